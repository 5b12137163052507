"""What follows from a program in closed form: densities, scores and completions of rows at given parameters.

An author writes `Answers` in the model's own coordinates; `asked` is how a model's public functions reach
them, and the only place where values, rows and results of an answer change coordinates.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from zoo.coordinates import Coordinates

__all__ = ["Answers", "asked"]


class Answers:
    """Closed forms of a model; values and rows are in the model's own coordinates, and it has no others."""

    def log_rows(self, model: Any, values: Mapping[str, Array], *data: Any) -> Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            model: the model.
            values: of the sites.
            *data: parts of the data, NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"{type(model).__name__} has no log density of a row")

    def conditionals(self, model: Any, values: Mapping[str, Array], *data: Any) -> dict[str, Distribution]:
        """Conditional distributions of the latents of the rows that the program sums out.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Site name to distribution over rows.
        """
        return {}

    def derived(self, model: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        """The latents of the rows of a draw as they are stored, and what follows from them.

        Args:
            model: as of `log_rows`.
            values: of the sites and of these latents.

        Returns:
            Variable name to value, shapes as in ``dims``.
        """
        return {}

    def scores(self, model: Any, values: Mapping[str, Array], *data: Any, kind: str = "latent") -> Array:
        """Posterior mean scores of rows; they have no unit.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            kind: ``"latent"``, or ``"orthonormal"`` where the model has loadings.

        Returns:
            A score a row, dims ``score_dims``.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"{type(model).__name__} has no scores")

    def scores_covariance(self, model: Any, values: Mapping[str, Array], *data: Any) -> Array:
        """Posterior covariance of the ``"latent"`` scores of each row.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Dims ``score_dims`` and a second latent dim.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"the scores of {type(model).__name__} have no covariance")

    def cells(self, model: Any, values: Mapping[str, Array], *data: Any) -> tuple[Array, Array]:
        """Rows with missing cells at their conditional mean, and the conditional variance of each cell.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Two arrays of dims ``predicted_dims``.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"{type(model).__name__} predicts nothing but its scores")


def asked(model: Any, name: str, values: Mapping[str, Array], data: tuple, **options: Any) -> Any:
    """An answer of a model, in the coordinates of the data.

    Args:
        model: the model.
        name: of the function of `Answers`.
        values: of the sites.
        data: parts of the data.
        **options: of the answer.

    Returns:
        What the function returns.
    """
    answer, own = getattr(model.answers(), name), model.own_coordinates
    if own is None:
        return answer(model, values, *data, **options)
    units, names = model.units_of_sites, model.data_names
    inner = {
        site: own.inward(value, units[site]) if site in units else value for site, value in values.items()
    }
    parts = [own.inward(part, units[n]) for n, part in zip(names, data, strict=False)]
    found = answer(model.inside(own), inner, *parts, **options)
    if name == "log_rows":
        return found - own.log_scale_of_rows(data)
    return _cells_outward(found, own, units[names[0]], data[0]) if name == "cells" else found


def _cells_outward(found: tuple, own: Coordinates, unit: Any, x: Array) -> tuple[Array, Array]:
    """Means and variances of cells; those that were observed stay exactly as they are."""
    mean, variance = found
    mean = jnp.where(jnp.isnan(x), own.outward(mean, unit), x)
    return mean, own.outward(variance, unit._replace(power=2 * unit.power, is_location=False))
