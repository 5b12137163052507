"""What `zoo.Paired` says of rows at given parameters: starts, densities, scores, predictions of new rows."""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.dense_rows import DenseRows, completed
from zoo.family_cells import FamilyCells
from zoo.joint_prior import balanced_variance, log_kernel
from zoo.low_rank import LowRank
from zoo.model import in_current_precision
from zoo.paired_checks import check_new_views
from zoo.row_latents import RowMode, row_modes
from zoo.view_parameters import cells_of, starting_view_parameters

__all__ = ["PairedRows"]

START_SCALE = 0.3


class PairedRows:
    """Rows of paired views; a base of `zoo.paired.Paired`, whose fields it uses."""

    def mean_theta(self, v: int, values: Mapping[str, Array]) -> LowRank:
        """V_v u + mu_v by its factors.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            The factors; made whole, flat, of shape (num_observations, num_params).
        """
        return LowRank(values["latents"], values[f"loadings_{v}"], values.get(f"loc_{v}", 0.0))

    def natural_params(self, v: int, values: Mapping[str, Array]) -> Array:
        """Theta_v, flat: drawn where the view has noisy ones, else its mean.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            Shape (num_observations, num_params).
        """
        drawn = values.get(f"natural_params_{v}")
        return self.mean_theta(v, values).whole() if drawn is None else drawn

    def specific_covariance(self, v: int, values: Mapping[str, Array]) -> Array:
        """Psi_v.

        Args:
            v: the view, from 0.
            values: of the sites; ``specific_precision_v`` is read.

        Returns:
            Shape (num_params, num_params).
        """
        return jnp.linalg.inv(values[f"specific_precision_{v}"])

    def has_dense_rows(self, v: int) -> bool:
        """Whether the rows of a view are Gaussian with covariance Psi_v.

        Args:
            v: the view, from 0.

        Returns:
            True for Gaussian views with ``specific="full_covariance"``.
        """
        return self.specific == "full_covariance" and self.families[v].learns_noise

    def rows_of(self, v: int, values: Mapping[str, Array]) -> FamilyCells | DenseRows:
        """The distribution of the rows of a view at given values of the sites.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (features of the view,).
        """
        mean = self.mean_theta(v, values)
        if self.has_dense_rows(v):
            return DenseRows(mean.whole(), self.specific_covariance(v, values))
        theta = values.get(f"natural_params_{v}", mean)
        return cells_of(in_current_precision(self).families[v], theta, values, f"_{v}")

    @property
    def has_kernel(self) -> bool:
        """Whether the conjugate kernel multiplies the prior."""
        return self.conjugate is not None

    def log_likelihood(self, values: Mapping[str, Array], *views: Array) -> Array:
        """Log density of each row over its observed cells in all views, weighted as in the program.

        Given its latents if ``values`` has them; else (new rows) with them integrated out by Laplace's
        approximation, under the prior that they have given the loadings, conjugate kernels and all. View
        weights other than one make it a score instead of a density.

        Args:
            values: of the sites.
            *views: a table each, shape (num_observations, features of the view), NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        if "latents" in values:
            return self._log_cells(values, views)
        whole = self._modes(values, views).log_integral
        if not self.has_kernel:
            return whole
        nothing = tuple(jnp.full_like(view[:1], jnp.nan) for view in views)
        return whole - self._modes(values, nothing).log_integral

    def scores(self, values: Mapping[str, Array], *views: Array, kind: str = "latent") -> Array:
        """The mode of each row's latents, or its natural parameters' coordinates in an orthonormal basis.

        Args:
            values: of the sites.
            *views: as in `log_likelihood`.
            kind: ``"latent"`` or ``"orthonormal"``.

        Returns:
            Shape (num_observations, num_latents).
        """
        u = self._modes(values, views).latents[:, : self.num_latents]
        if kind == "latent":
            return u
        loadings = jnp.concatenate([values[f"loadings_{v}"] for v in range(len(views))])
        left, _, right = jnp.linalg.svd(loadings, full_matrices=False)
        return u @ loadings.T @ (left @ right)

    def scores_covariance(self, values: Mapping[str, Array], *views: Array) -> Array:
        """Laplace's covariance of the latents of each row.

        Args:
            values: of the sites.
            *views: as in `log_likelihood`.

        Returns:
            Shape (num_observations, num_latents, num_latents).
        """
        k = self.num_latents
        return self._modes(values, views).covariance[:, :k, :k]

    def predicted(self, values: Mapping[str, Array], *views: Array, what: str = "y_0") -> tuple[Array, Array]:
        """One view with its missing cells at their mean at the mode of the latents, and their variance.

        Args:
            values: of the sites.
            *views: as in `log_likelihood`.
            what: the view.

        Returns:
            Two arrays of the view's shape; the variance of an observed cell is zero.
        """
        v = self.data_names.index(what)
        at_mode = self._with_local(values, self._modes(values, views).latents)
        if self.has_dense_rows(v):
            rows = self.rows_of(v, at_mode)
            return completed(views[v], rows.loc, rows.covariance)
        mean, variance = self.rows_of(v, at_mode).mean_and_variance()
        missing = jnp.isnan(views[v])
        return jnp.where(missing, mean, views[v]), jnp.where(missing, variance, 0.0)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """What `inference.predict` can be asked for: each view.

        Returns:
            Name of the view to the dims of what it gives.
        """
        return {name: ("observation", f"feature_{v}") for v, name in enumerate(self.data_names)}

    def default_completion(self, *views: np.ndarray) -> str:
        """The view that is missing as a whole, or else the only one with missing cells.

        Args:
            *views: as in `log_likelihood`.

        Returns:
            The view's name.

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

        Args:
            *views: tables, None where a view is missing as a whole.

        Returns:
            The model, and the views as the program takes them.

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
        """Refuse new rows that do not suit the fitted model.

        Args:
            *views: as in `log_likelihood`.

        Raises:
            ValueError: a number of views or columns that the model does not have, rows that differ in number
                between views, or cells outside a family's domain.
        """
        check_new_views(self, views)

    def starting_point(self, key: Array, *views: Array) -> dict[str, Array]:
        """Values of all sites to start from: means at the columns' means, latents and loadings small.

        Natural parameters lie inside the families' domains, which the prior alone does not see to.

        Args:
            key: a JAX key.
            *views: as in `log_likelihood`.

        Returns:
            Value of each site by name, in the shapes that the program gives them.
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
