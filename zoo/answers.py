"""What follows from a program in closed form: densities, scores and completions of rows at given parameters.

An author writes `Answers` in the model's own coordinates; `asked` is how a model's public functions reach
them, and the only place where values, rows and results of an answer change coordinates.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from zoo.coordinates import Unit

__all__ = ["Answers", "asked", "scores_outward", "started"]


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

    def start(self, model: Any, key: Array, *data: Any) -> dict[str, Array] | None:
        """Starting values of all sites for MAP, NUTS and HMC.

        Args:
            model: as of `log_rows`.
            key: a JAX key.
            *data: as of `log_rows`.

        Returns:
            Site name to value, shapes as in ``dims``; None: the default of the algorithm.
        """
        return None

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
        """Posterior mean scores of rows; those of kind ``"latent"`` have no unit.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            kind: ``"latent"``, or ``"orthonormal"`` where the model has loadings.

        Returns:
            A score a row, dims ``roles.scores``.

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
            Dims ``roles.scores`` and a second latent dim.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"the scores of {type(model).__name__} have no covariance")

    def typical_cells(self, model: Any, values: Mapping[str, Array]) -> tuple:
        """Typical cells of each cluster at one draw, each with a spread.

        Args:
            model: as of `log_rows`.
            values: likewise.

        Returns:
            `zoo.model.TypicalCells`, one a quantity; empty: the model has no clusters.
        """
        return ()

    def cells(
        self, model: Any, values: Mapping[str, Array], *data: Any, **options: str
    ) -> tuple[Array, Array]:
        """Rows with missing cells at their conditional mean, and the conditional variance of each cell.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            **options: ``what``, one of `zoo.model.Model.completions`, of a model that has several.

        Returns:
            Two arrays of dims ``roles.predicted``, or of those of the completion.

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
    units = model.units_of_sites
    inner = {
        site: own.inward(value, units[site]) if site in units else value for site, value in values.items()
    }
    parts = own.parts_inward(data, model.data_names, units)
    found = answer(model.inside(own), inner, *parts, **options)
    if name == "log_rows":
        weights = [model.part_weights.get(part, 1.0) for part in model.data_names]
        return found - own.log_scale_of_rows(data, weights)
    if name == "scores":
        return scores_outward(model, found, **options)
    if name == "typical_cells":
        return _typical_outward(model, found)
    if name == "view_variances":
        parts = dict(zip(found, model.data_names, strict=True))
        return {own: tuple(_variance_outward(model, parts[own], v) for v in found[own]) for own in found}
    part = model.predicted_part(options.get("what")) if name == "cells" else None
    return _cells_outward(model, found, data, options.get("what")) if part in units else found


def scores_outward(model: Any, scores: Array, kind: str = "latent") -> Array:
    """Scores in the coordinates of the data: those in an orthonormal basis are in a common unit of loadings.

    There is none where each column has a scale of its own, or each of several parts.

    Args:
        model: the model.
        scores: in its own coordinates.
        kind: as of `Answers.scores`.

    Returns:
        A score a row, dims ``roles.scores``.
    """
    own, site = model.own_coordinates, next(iter(model.roles.loadings), None)
    has_common = own is not None and len(own.scales) == 1 and site in model.units_of_sites
    if not has_common or kind == "latent":
        return scores
    unit = model.units_of_sites[site]
    return own.outward(scores, Unit(unit.power, part=unit.part))


def started(model: Any, key: Array, data: tuple) -> dict[str, Array] | None:
    """The starting point of a model, in the coordinates of the data.

    Args:
        model: the model.
        key: a JAX key.
        data: parts of the data.

    Returns:
        Site name to value, shapes as in ``dims``, or None, as of `Answers.start`.
    """
    own = model.own_coordinates
    if own is None:
        return model.answers().start(model, key, *data)
    units, names = model.units_of_sites, model.data_names
    found = model.answers().start(model.inside(own), key, *own.parts_inward(data, names, units))
    return found and {n: own.outward(value, units[n]) if n in units else value for n, value in found.items()}


def _cells_outward(model: Any, found: tuple, data: tuple, what: str | None) -> tuple[Array, Array]:
    """Means and variances of cells; where they complete rows, observed cells stay exactly as they are."""
    mean, variance = found
    own, part = model.own_coordinates, model.predicted_part(what)
    place = model.data_names.index(part)
    mean = own.outward(mean, model.units_of_sites[part])
    if part == model.completed_part(what) and place < len(data):
        mean = jnp.where(jnp.isnan(data[place]), mean, data[place])
    return mean, _variance_outward(model, part, variance)


def _variance_outward(model: Any, part: str, variance: Array) -> Array:
    """Variances of cells of a part of the data; they are as they are where it has no unit."""
    unit = model.units_of_sites.get(part, Unit(0))
    return model.own_coordinates.outward(variance, unit._replace(power=2 * unit.power, is_location=False))


def _typical_outward(model: Any, found: tuple) -> tuple:
    """Typical cells of columns of the first part of the data."""
    own, unit = model.own_coordinates, model.units_of_sites[model.data_names[0]]
    pair = own.factor(unit), own.shift(unit)
    factor, shift = (jnp.broadcast_to(part, model.num_features) for part in pair)
    return tuple(
        cells._replace(
            values=cells.values * factor[cells.columns] + shift[cells.columns],
            spread=cells.spread * factor[cells.columns],
        )
        for cells in found
    )
