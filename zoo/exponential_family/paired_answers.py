"""Closed forms of `zoo.Paired`: weighted views, and natural parameters or rows that are correlated."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.answers import Completion
from zoo.coordinates.of_models import noise_factors
from zoo.exponential_family import joint_prior
from zoo.exponential_family.answers import START_SCALE, ProjectionAnswers
from zoo.exponential_family.cells import standard_normals, starting_sizes, starting_view_parameters
from zoo.exponential_family.expectations import Nodes, over_latents
from zoo.exponential_family.natural_params import LowRank
from zoo.in_blocks import map_in_blocks
from zoo.model import in_current_precision
from zoo.shapes import Predicted, Values, View

if TYPE_CHECKING:
    from zoo.paired import Paired


NEGLIGIBLE = 1e-10  # share of a parameter's information that is added, so that classes without rows have some


class PairedAnswers(ProjectionAnswers):
    """Of views side by side; the local latents are u and whitened deviations of noisy natural parameters."""

    @override
    def start(self, model: "Paired", key: Array, *views: View) -> dict[str, Array]:
        """Means at the columns' means, small latents and loadings.

        Natural parameters lie inside the families' domains, which the prior alone does not see to.
        """
        current = in_current_precision(model)
        sizes = [family.num_params(y.shape[1]) for family, y in zip(current.families, views, strict=True)]
        shapes = [(size, model.num_latents) for size in (views[0].shape[0], *sizes)]
        latents, *loadings = standard_normals(key, *shapes)
        scale = START_SCALE * (0.1 if model.is_negative else 1.0)
        values = {"latents": scale * latents}
        is_full = model.specific == "full_covariance"
        for v, (family, y) in enumerate(zip(current.families, views, strict=True)):
            free = jnp.zeros(model.num_latents).at[jnp.asarray(model.latents_of(v))].set(1.0)
            values[f"loadings_{v}"] = scale * free * loadings[v]
            values |= starting_view_parameters(family, y, f"_{v}", not is_full)
            if model.is_negative and f"loc_{v}" in values:
                started = starting_sizes(family, values[f"loc_{v}"], current.param_sizes(v), y.shape[1])
                values[f"loadings_{v}"] *= started[:, None]
            if is_full:
                values[f"specific_precision_{v}"] = jnp.eye(sizes[v]) / current.covariance_scale
            if model.has_noisy_params(v):
                values[f"natural_params_{v}"] = model.mean_theta(v, values).whole()
        if model.ard:
            values["loading_precision"] = jnp.ones(model.num_latents)
        return values

    @override
    def cells(
        self, model: "Paired", values: Values, *views: View, what: str = "y_0", spread: Values | None = None
    ) -> tuple[Predicted, Predicted]:
        v = model.data_names.index(what)
        if model.has_dense_rows(v):
            return self._completed(model, values, views, v, spread)
        return super().cells(model, values, *views, what=what, spread=spread)

    @override
    def completions(self, model: "Paired") -> dict[str, Completion]:
        """Each view."""
        dims = (("observation", f"feature_{v}") for v in range(len(model.families)))
        return {name: Completion(own, name) for name, own in zip(model.data_names, dims, strict=True)}

    @override
    def default_completion(self, model: "Paired", *views: np.ndarray) -> str:
        """The view that is missing as a whole, or the only one with missing cells; else ValueError."""
        for condition in (np.all, np.any):
            found = [n for n, y in zip(model.data_names, views, strict=True) if condition(np.isnan(y))]
            if len(found) == 1:
                return found[0]
        names = ", ".join(model.data_names)
        raise ValueError(f"say which view to predict: what= one of {names}")

    @override
    def num_canonical(self, model: "Paired") -> int:
        return model.num_shared if len(model.families) == 2 else 0

    @override
    def view_covariances(self, model: "Paired", values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Of natural parameters with the noise that cells of their information have.

        That noise has the covariance Psi_v: of the full-covariance model, or the inverse of the cells' Fisher
        information of their natural parameters, averaged over the rows (the variance of Gaussian cells).
        """
        if len(model.families) != 2:
            return super().view_covariances(model, values)
        variance = float(model.entry_variance)
        w = [values[f"loadings_{v}"] for v in (0, 1)]
        first, second = (variance * own @ own.T + _noise(model, v, values) for v, own in enumerate(w))
        return first, variance * w[0] @ w[1].T, second

    def _completed(
        self,
        model: "Paired",
        values: Values,
        views: tuple[Array, ...],
        v: int,
        loadings_spread: Values | None,
    ) -> tuple[Array, Array]:
        """`cells` of rows with a full covariance: the missing cells are linear in the latents."""
        rows, modes = jnp.concatenate(views, axis=1), self._modes(model, values, views)

        def moments(nodes: Nodes, row: Array) -> tuple[Array, Array]:
            u = nodes.latents[:, : model.num_latents]
            mean = nodes.weights @ u
            return mean, ((u - mean) * nodes.weights[:, None]).T @ (u - mean)

        log_joint = self._log_joint(model, values, views)
        mean, covariance = over_latents(
            log_joint, moments, rows, modes, rows.shape[1], steep=model.has_steep_cells
        )

        def at(u: Array, row: Array) -> tuple[Array, Array]:
            own = dict(values) | {"latents": u[None]}
            filled, variance = model.rows_of(v, own).completed(row[None])
            return filled[0], variance[0]

        def one(given: tuple) -> tuple[Array, Array]:
            u, spread, row = given
            filled, variance = at(u, row)
            slope = jax.jacobian(lambda u: at(u, row)[0])(u)
            variance += jnp.einsum("di,ij,dj->d", slope, spread, slope)
            if loadings_spread is not None:
                extended = jnp.append(u, 1.0)
                second = jnp.outer(extended, extended).at[:-1, :-1].add(spread)
                own = jnp.einsum("dij,ij->d", loadings_spread[f"_{v}"], second)
                variance += jnp.where(jnp.isnan(row), own, 0.0)
            return filled, variance

        return map_in_blocks(one, (mean, covariance, views[v]), 256)

    def _log_cells(self, model: "Paired", values: Values, views: tuple[Array, ...]) -> Array:
        weights = jnp.broadcast_to(self._view_weights(model), (len(views),))
        current = in_current_precision(model)
        rows = [weights[v] * current.rows_of(v, values).log_prob(y) for v, y in enumerate(views)]
        return sum(rows[1:], rows[0])

    def _with_local(self, model: "Paired", values: Values, local: Array) -> dict[str, Array]:
        new = dict(values) | {"latents": local[:, : model.num_latents]}
        start = model.num_latents
        for v in _noisy_views(model):
            size = values[f"loadings_{v}"].shape[0]
            factor = jnp.linalg.cholesky(model.specific_covariance(v, values))
            new[f"natural_params_{v}"] = (
                model.mean_theta(v, new).whole() + local[:, start : start + size] @ factor.T
            )
            start += size
        return new

    def _num_local(self, model: "Paired", values: Values) -> int:
        noisy = (values[f"loadings_{v}"].shape[0] for v in _noisy_views(model))
        return model.num_latents + sum(noisy)

    def _log_prior(self, model: "Paired", values: Values, local: Array) -> Array:
        """Log prior density of local latents, up to a constant with kernels; shape (num_observations,)."""
        prior, extra = in_current_precision(model), local.shape[-1] - model.num_latents
        of_latents = jnp.full(model.num_latents, jnp.sqrt(prior.entry_variance))
        scales = jnp.concatenate([of_latents, jnp.ones(extra)])
        total = jnp.sum(dist.Normal(0.0, scales).log_prob(local), axis=-1)
        for v, family in enumerate(prior.families if model.has_kernel else ()):
            theta = model.mean_theta(v, self._with_local(model, values, local)).whole()
            total += prior.beta * jnp.sum(joint_prior.log_kernel(family, theta, prior.kernel_of(v)), -1)
        return total

    def _table(self, model: "Paired", v: int, values: Values) -> dist.Distribution:
        return in_current_precision(model).rows_of(v, values)

    def _mean_theta(self, model: "Paired", v: int, values: Values) -> LowRank:
        return model.mean_theta(v, values)

    def _view_weights(self, model: "Paired") -> Array:
        return in_current_precision(model.view_weights)


def _noise(model: "Paired", v: int, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """The covariance Psi_v of one draw; without latents of rows as a row of their mean has it."""
    if model.specific == "full_covariance":
        return np.linalg.inv(values[f"specific_precision_{v}"])
    cells = model.rows_of(v, {"latents": np.zeros((1, model.num_latents))} | dict(values))
    information = np.asarray(cells.family.mean_information(cells.theta, cells.cut_points), float)
    least = NEGLIGIBLE * np.diagonal(information) + np.finfo(float).tiny ** 0.5
    units = np.sqrt(np.asarray(noise_factors(model).get(f"_{v}", 1.0)))
    return np.linalg.inv(information + np.diag(least)) * np.multiply.outer(units, units)


def _noisy_views(model: "Paired") -> list[int]:
    return list(filter(model.has_noisy_params, range(len(model.families))))
