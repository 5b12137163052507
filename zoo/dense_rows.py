r"""Gaussian rows with a full covariance and missing cells.

A row is scored by its observed cells, :math:`N(x_o; \mu_o, \Sigma_{oo})`: rows and columns of the covariance
that belong to missing cells are replaced by those of the identity, their residuals by zero, and the constant
they add is left out. Rows without missing cells share one Cholesky factor.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

__all__ = ["DenseRows", "completed"]


class DenseRows(dist.Distribution):
    """Rows ~ Normal(loc, covariance); NaN is a missing cell.

    Args:
        loc: shape (num_observations, num_features).
        covariance: shape (num_features, num_features).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("loc", "covariance")

    def __init__(self, loc: Array, covariance: Array) -> None:
        self.loc, self.covariance = loc, covariance
        super().__init__(batch_shape=loc.shape[:1], event_shape=loc.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """Log density of each row over its observed cells, in nats."""
        seen = ~jnp.isnan(value)
        residual = jnp.where(seen, value - self.loc, 0.0)

        def with_holes(_: None) -> Array:
            def one(row: Array, mask: Array) -> Array:
                factor = jnp.linalg.cholesky(_only(self.covariance, mask))
                return _log_normal(factor, row, jnp.sum(mask))

            return jax.vmap(one)(residual, seen)

        def complete(_: None) -> Array:
            factor = jnp.linalg.cholesky(self.covariance)
            return jax.vmap(lambda row: _log_normal(factor, row, row.shape[0]))(residual)

        return jax.lax.cond(jnp.all(seen), complete, with_holes, None)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Whole rows."""
        noise = jax.random.normal(key, (*sample_shape, *self.loc.shape), self.loc.dtype)
        return self.loc + noise @ jnp.linalg.cholesky(self.covariance).T


def completed(x: Array, loc: Array, covariance: Array) -> tuple[Array, Array]:
    """Rows with missing cells at their expectation given the observed ones, and each cell's variance.

    Args:
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.
        loc: means, shape (num_observations, num_features).
        covariance: of a row, shape (num_features, num_features).

    Returns:
        Two arrays of the shape of ``x``; the variance of an observed cell is zero.
    """

    def one(row: Array, mean: Array) -> tuple[Array, Array]:
        mask = ~jnp.isnan(row)
        factor = jnp.linalg.cholesky(_only(covariance, mask))
        across = jnp.where(mask[:, None], covariance, 0.0)
        gain = cho_solve((factor, True), across).T
        filled = mean + gain @ jnp.where(mask, row - mean, 0.0)
        spread = jnp.diag(covariance) - jnp.sum(gain * across.T, axis=1)
        return jnp.where(mask, row, filled), jnp.where(mask, 0.0, spread)

    return jax.vmap(one)(x, loc)


def _only(covariance: Array, mask: Array) -> Array:
    both = mask[:, None] & mask[None]
    return jnp.where(both, covariance, jnp.eye(covariance.shape[0], dtype=covariance.dtype))


def _log_normal(factor: Array, residual: Array, count: Array | int) -> Array:
    whitened = solve_triangular(factor, residual, lower=True)
    constant = count * jnp.log(2 * jnp.pi) / 2
    return -0.5 * whitened @ whitened - jnp.sum(jnp.log(jnp.diag(factor))) - constant
