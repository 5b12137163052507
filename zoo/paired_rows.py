"""What `zoo.Paired` says of rows at given parameters: starts, densities, scores, predictions of new rows."""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.dense_rows import completed
from zoo.joint_prior import balanced_variance, log_kernel
from zoo.model import in_current_precision
from zoo.paired_checks import check_new_views
from zoo.row_latents import RowMode, row_modes
from zoo.view_parameters import starting_view_parameters

__all__ = ["PairedRows"]

START_SCALE = 0.3


class PairedRows:
    """Rows of paired views; a base of `zoo.paired.Paired`, whose fields it uses."""

    def log_likelihood(self, values: Mapping[str, Array], *views: Array) -> Array:
        """Log density of each row over its observed cells in all views, weighted as in the program, in nats.

        Given its latents if ``values`` has them; else (new rows) with them integrated out by Laplace's
        approximation, under the prior that they have given the loadings, conjugate kernels and all. View
        weights other than one make it a score instead of a density.
        """
        if "latents" in values:
            return self._log_cells(values, views)
        whole = self._modes(values, views).log_integral
        if not self.has_kernel:
            return whole
        nothing = tuple(jnp.full_like(view[:1], jnp.nan) for view in views)
        return whole - self._modes(values, nothing).log_integral

    def scores(self, values: Mapping[str, Array], *views: Array, kind: str = "latent") -> Array:
        """The mode of each row's latents, or its natural parameters' coordinates in an orthonormal basis."""
        u = self._modes(values, views).latents[:, : self.num_latents]
        if kind == "latent":
            return u
        loadings = jnp.concatenate([values[f"loadings_{v}"] for v in range(len(views))])
        left, _, right = jnp.linalg.svd(loadings, full_matrices=False)
        return u @ loadings.T @ (left @ right)

    def scores_covariance(self, values: Mapping[str, Array], *views: Array) -> Array:
        """Laplace's covariance of the latents of each row."""
        k = self.num_latents
        return self._modes(values, views).covariance[:, :k, :k]

    def predicted(self, values: Mapping[str, Array], *views: Array, what: str = "y_0") -> tuple[Array, Array]:
        """One view with its missing cells at their mean at the mode of the latents, and their variance."""
        v = self.data_names.index(what)
        at_mode = self._with_local(values, self._modes(values, views).latents)
        if self.has_dense_rows(v):
            rows = self.rows_of(v, at_mode)
            return completed(views[v], rows.loc, rows.covariance)
        mean, variance = self.rows_of(v, at_mode).mean_and_variance()
        missing = jnp.isnan(views[v])
        return jnp.where(missing, mean, views[v]), jnp.where(missing, variance, 0.0)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """Each view."""
        return {name: ("observation", f"feature_{v}") for v, name in enumerate(self.data_names)}

    def default_completion(self, *views: np.ndarray) -> str:
        """The view that is missing as a whole, or else the only one with missing cells.

        Raises:
            ValueError: several, or none.
        """
        for condition in (np.all, np.any):
            found = [n for n, y in zip(self.data_names, views, strict=True) if condition(np.isnan(y))]
            if len(found) == 1:
                return found[0]
        names = ", ".join(self.data_names)
        raise ValueError(f"say which view to predict: what= one of {names}")

    def coded(self, *views: Any) -> tuple[Self, tuple]:
        """Views that are None or left out at the end become tables of missing cells.

        Raises:
            ValueError: a view that must be there is missing as a whole.
        """
        known = [len(view) for view in views if view is not None]
        if self.num_features is None or not known:
            missing = [f"y_{v}" for v, view in enumerate(views) if view is None]
            if missing:
                raise ValueError(f"{missing[0]} is missing as a whole: leave the view out of the model")
            return self, views
        if len(views) > len(self.families):
            return self, views  # the check says so
        views = (*views, *[None] * (len(self.families) - len(views)))
        sizes = zip(views, self.num_features, strict=True)
        return self, tuple(np.full((known[0], d), np.nan) if y is None else y for y, d in sizes)

    def check_new(self, *views: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model."""
        check_new_views(self, views)

    def starting_point(self, key: Array, *views: Array) -> dict[str, Array]:
        """Values of all sites to start from: means at the columns' means, latents and loadings small.

        Natural parameters lie inside the families' domains, which the prior alone does not see to.
        """
        model = in_current_precision(self)
        keys = jax.random.split(key, len(views) + 1)
        negative = any(family.theta_is_negative for family in self.families)
        scale = START_SCALE * (0.1 if negative else 1.0)
        latents = scale * jax.random.normal(keys[0], (views[0].shape[0], self.num_latents))
        values = {"latents": latents}
        is_full = self.specific == "full_covariance"
        for v, (family, y) in enumerate(zip(model.families, views, strict=True)):
            size = family.num_params(y.shape[1])
            free = jnp.zeros(self.num_latents).at[jnp.asarray(self.latents_of(v))].set(1.0)
            values[f"loadings_{v}"] = scale * free * jax.random.normal(keys[v + 1], (size, self.num_latents))
            values |= starting_view_parameters(family, y, f"_{v}", not is_full)
            if is_full:
                values[f"specific_precision_{v}"] = jnp.eye(size) / model.covariance_scale
            if is_full and not self.has_dense_rows(v):
                values[f"natural_params_{v}"] = self.mean_theta(v, values).whole()
        if self.ard:
            values["loading_precision"] = jnp.ones(self.num_latents)
        return values

    def _log_cells(self, values: Mapping[str, Array], views: tuple[Array, ...]) -> Array:
        weights = jnp.broadcast_to(in_current_precision(self.view_weights), (len(views),))
        rows = [weights[v] * self.rows_of(v, values).log_prob(y) for v, y in enumerate(views)]
        return sum(rows[1:], rows[0])

    def _with_local(self, values: Mapping[str, Array], local: Array) -> dict[str, Array]:
        """Values with the local latents: u, and of noisy natural parameters their whitened deviations."""
        new = dict(values) | {"latents": local[:, : self.num_latents]}
        start = self.num_latents
        for v in self._noisy_views():
            size = values[f"loadings_{v}"].shape[0]
            factor = jnp.linalg.cholesky(self.specific_covariance(v, values))
            new[f"natural_params_{v}"] = (
                self.mean_theta(v, new).whole() + local[:, start : start + size] @ factor.T
            )
            start += size
        return new

    def _noisy_views(self) -> list[int]:
        full = self.specific == "full_covariance"
        return [v for v in range(len(self.families)) if full and not self.has_dense_rows(v)]

    def _modes(self, values: Mapping[str, Array], views: tuple[Array, ...]) -> RowMode:
        prior = in_current_precision(self)
        variance = balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)
        ends = np.cumsum([view.shape[1] for view in views])[:-1].tolist()
        extra = sum(values[f"loadings_{v}"].shape[0] for v in self._noisy_views())
        scales = jnp.concatenate([jnp.full(self.num_latents, jnp.sqrt(variance)), jnp.ones(extra)])

        def log_joint(local: Array, row: Array) -> Array:
            at = self._with_local(values, local[None])
            total = self._log_cells(at, tuple(jnp.split(row[None], ends, axis=1)))[0]
            total += jnp.sum(dist.Normal(0.0, scales).log_prob(local))
            for v, family in enumerate(prior.families if self.has_kernel else ()):
                kernel = log_kernel(family, self.mean_theta(v, at).whole(), self.kernel_of(v))
                total += prior.beta * jnp.sum(kernel)
            return total

        return row_modes(log_joint, jnp.concatenate(views, axis=1), self.num_latents + extra)
