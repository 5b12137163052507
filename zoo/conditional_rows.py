"""Linear-Gaussian rows that differ in what is known of them, as distributions."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.linear_gaussian import LinearGaussianRows, latents_covariance, latents_mean, log_density
from zoo.sparse_matrix import SparseMatrix
from zoo.sparse_projection import reduced

__all__ = ["RowsGivenOthers", "ShiftedRows"]


class ShiftedRows(dist.Distribution):
    r"""Rows N(shift_n + loc, W W' + diag(noise_variance)), each with a mean of its own.

    Args:
        shift: shape (num_observations, L).
        loadings: W, shape (L, num_latents).
        loc: shape (L,).
        noise_variance: shape (L,).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("shift", "loadings", "loc", "noise_variance")

    def __init__(self, shift: Array, loadings: Array, loc: Array, noise_variance: Array) -> None:
        self.shift, self.loadings, self.loc, self.noise_variance = shift, loadings, loc, noise_variance
        super().__init__(shift.shape[:1], shift.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """In nats, over the observed cells (NaN is missing), shape (num_observations,)."""
        return log_density(value - self.shift, self.loadings, self.loc, self.noise_variance)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Whole rows."""
        own = LinearGaussianRows(self.loadings, self.loc, self.noise_variance)
        return self.shift + own.sample(key, (*sample_shape, *self.batch_shape))


class RowsGivenOthers(dist.Distribution):
    r"""The last columns of rows [x, y] given the observed cells of the first ones, latents summed out.

    The log density is that of [x, y] less that of x, over observed cells. Draws are
    :math:`W_y z + \\mu_y + N(0, \\psi_y)` with z from its posterior given x.

    Args:
        x: what is known, shape (num_observations, M); NaN is missing; may be sparse.
        loadings: of all columns, shape (M + L, num_latents).
        loc: of all columns, shape (M + L,).
        noise_variance: of all columns, shape (M + L,).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("x", "loadings", "loc", "noise_variance")

    def __init__(self, x: Array, loadings: Array, loc: Array, noise_variance: Array) -> None:
        if isinstance(x, SparseMatrix):
            m = x.shape[1]
            x, *own, _ = reduced(x, loadings[:m], loc[:m], noise_variance[:m])
            rest = loadings[m:], loc[m:], noise_variance[m:]
            loadings, loc, noise_variance = map(jnp.concatenate, zip(own, rest, strict=True))
        self.x, self.loadings, self.loc, self.noise_variance = x, loadings, loc, noise_variance
        super().__init__(x.shape[:1], (loc.shape[0] - x.shape[1],))

    def log_prob(self, value: Array) -> Array:
        """In nats, over the observed cells, shape (num_observations,)."""
        rows = jnp.concatenate([self.x, value], axis=1)
        return log_density(rows, self.loadings, self.loc, self.noise_variance) - log_density(
            self.x, *self._known()
        )

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Whole rows of the last columns."""
        own, rest = jax.random.split(key)
        known, size = self._known(), self.x.shape[1]
        mean = latents_mean(self.x, *known)
        root = jnp.linalg.cholesky(latents_covariance(self.x, known[0], known[2]))
        standard = jax.random.normal(own, (*sample_shape, *mean.shape))
        latents = mean + jnp.einsum("nij,...nj->...ni", root, standard)
        noise = jax.random.normal(rest, (*sample_shape, *self.batch_shape, *self.event_shape))
        return (
            self.loc[size:] + latents @ self.loadings[size:].T + jnp.sqrt(self.noise_variance[size:]) * noise
        )

    def _known(self) -> tuple[Array, Array, Array]:
        size = self.x.shape[1]
        return self.loadings[:size], self.loc[:size], self.noise_variance[:size]
