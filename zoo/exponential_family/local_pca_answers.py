"""What follows from a mixture of local PCAs: densities, labels, completions of rows, and starts of fits.

Latents are integrated out, exactly of Gaussian cells, else by Laplace's approximation or by quadrature about
it (`zoo.exponential_family.local_pca`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from zoo.answers import Answers, Completion, TypicalCells
from zoo.dirichlet_process import compact_labels
from zoo.exponential_family import local_pca
from zoo.exponential_family.cells import standard_normals
from zoo.exponential_family.expectations import are_steep, rests_on_tail
from zoo.exponential_family.local_pca import LocalPCA, components_of, orthonormal
from zoo.model import in_current_precision
from zoo.shapes import PerRow, Rows, RowsByComponent, Scores, Values

if TYPE_CHECKING:
    from zoo.depcam import DEPCAM

START_SCALE = 0.5


class LocalPCAAnswers(Answers):
    """Of a mixture whose sites are those of `zoo.DEPCAM`."""

    @override
    def sums_out_locals(self, model: "DEPCAM") -> bool:
        return model.integrates_latents

    @override
    def resolving(self, model: "DEPCAM", variables: Mapping[str, Any]) -> Any:
        """With finer nodes where bounded cells change steeply; bases and scales of the components tell."""
        if not {"bases", "scales"} <= variables.keys():
            return model
        loadings = np.asarray(variables["bases"]) * np.asarray(variables["scales"])[..., None, :]
        return model.replaced(has_steep_cells=are_steep(model.family, loadings, 1.0))

    @override
    def log_rows(self, model: "DEPCAM", values: Values, x: Rows) -> PerRow:
        """Labels summed out; given the latents if ``values`` has them."""
        return jax.nn.logsumexp(_log_joint(model, values, x), axis=-1)

    @override
    def conditionals(self, model: "DEPCAM", values: Values, x: Rows) -> dict[str, Distribution]:
        """The summed-out labels, given the latents if ``values`` has them."""
        return {"assignments": dist.Categorical(logits=_log_joint(model, values, x))}

    @override
    def derived(self, model: "DEPCAM", values: Values) -> dict[str, Array]:
        """Labels in the smallest type that holds them, and the number of components with at least one row."""
        labels, num_occupied = compact_labels(values["assignments"], model.num_components)
        return {"assignments": labels, "num_occupied": num_occupied}

    @override
    def scores(self, model: "DEPCAM", values: Values, x: Rows, *, kind: str = "latent") -> Scores:
        """Responsibilities of the components for the rows; ValueError: of another kind than "latent"."""
        if kind != "latent":
            raise ValueError(f"a mixture has one kind of scores, the responsibilities; got {kind!r}")
        return jax.nn.softmax(_log_joint(model, _without_latents(values), x), axis=-1)

    @override
    def cells(self, model: "DEPCAM", values: Values, x: Rows, *, what: str = "cells") -> tuple[Rows, Rows]:
        """Averaged over the components and each one's latents; all cells as if missing, or those that are."""
        r, means, variances = _expected(model, values, x)
        mean = jnp.einsum("nk,nkf->nf", r, means)
        variance = jnp.einsum("nk,nkf->nf", r, variances + (means - mean[:, None]) ** 2)
        if what == "reconstruction":
            return mean, variance
        missing = jnp.isnan(x)
        return jnp.where(missing, mean, x), jnp.where(missing, variance, 0.0)

    @override
    def typical_cells(self, model: "DEPCAM", values: Values) -> tuple[TypicalCells, ...]:
        """Mean and deviation of a cell of each component, averaged over the prior of its latents."""
        means, variances = local_pca.cells_of_prior(_components(model, values), steep=model.has_steep_cells)
        deviations = jnp.sqrt(variances)
        return tuple(
            TypicalCells(family.mean_is, columns, means[:, columns], deviations[:, columns])
            for family, columns in model.family.column_groups(means.shape[1])
        )

    @override
    def completions(self, model: "DEPCAM") -> dict[str, Completion]:
        """Completed cells, or the mean of every cell."""
        cells = Completion(("observation", "feature"), "x")
        return {"cells": cells, "reconstruction": cells._replace(fills=False)}

    @override
    def rests_on_tail(
        self, model: "DEPCAM", values: Values, mean: Array, variance: Array, x: Array, *, what: str = "cells"
    ) -> Array | None:
        """Which expectations come to more than half from components in which the tail of latents dominates.

        See `zoo.exponential_family.expectations`; that clusters differ is no tail, and cells with a tail are
        never standardised.
        """
        if model.family.mean_square_of_means(mean, variance) is None:
            return None
        r, means, variances = _expected(model, values, x)
        far = rests_on_tail(means, model.family.mean_square_of_means(means, variances))
        return (variance != 0) & ~(jnp.einsum("nk,nkf->nf", r, means * far) <= 0.5 * mean)

    @override
    def start(self, model: "DEPCAM", key: Array, x: Rows) -> dict[str, Array]:
        """Random bases, and offsets near the columns' means."""
        family = in_current_precision(model).family
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        sizes = model.num_components, x.shape[1], model.num_latents
        carriers, offsets, latents = standard_normals(
            key, sizes, sizes[:2], (x.shape[0], *model.latents_shape)
        )
        values = {"carriers": orthonormal(carriers), "scales": jnp.full(sizes[::2], scale)}
        if not model.weights.has_sticks:
            values["weights"] = jnp.full(sizes[0], 1.0 / sizes[0])
        else:
            values["stick_decays"] = -jnp.log1p(-1.0 / jnp.arange(sizes[0], 1.0, -1.0))
        if model.scale_prior == "ard":
            values["scales_precision"] = jnp.ones(sizes[::2])
        if model.offset:
            loc = family.natural_of_columns(x)
            least = jnp.minimum(1.0, jnp.abs(loc)) if family.theta_is_negative else 1.0
            values["offsets"] = loc + 0.1 * scale * least * offsets
            values["scales"] *= jnp.min(least)  # so that natural parameters stay negative where they must
        if family.learns_noise:
            values["noise_variance"] = jnp.ones(())
        if not model.integrates_latents or model.draw_locals:
            values["latents"] = scale * latents
        return values


def _components(model: "DEPCAM", values: Values) -> LocalPCA:
    return components_of(in_current_precision(model), values)


def _without_latents(values: Values) -> dict[str, Array]:
    """Values without the latents of the fitted rows."""
    return {name: value for name, value in values.items() if name != "latents"}


def _log_joint(model: "DEPCAM", values: Values, x: Rows) -> RowsByComponent:
    """Log joint density of each row and label, ``log pi_k + log p(x_n | z_n = k)``, in nats."""
    by_component = local_pca.log_rows(_components(model, values), x, values.get("latents"))
    return by_component + model.weights.log_weights(values)


def _expected(model: "DEPCAM", values: Values, x: Rows) -> tuple[Array, Array, Array]:
    """Shares of the components, and mean and variance of all cells under each."""
    values = _without_latents(values)
    local = _components(model, values)
    modes = local_pca.modes(local, x)
    r = jax.nn.softmax(modes.log_integral + model.weights.log_weights(values), axis=-1)
    return r, *local_pca.expected_cells(local, x, modes, steep=model.has_steep_cells)
