r"""What a cell adds to a variational bound when its natural parameter is a product of normal vectors.

With :math:`\theta = u^T v + \mu`, :math:`u \sim N(m, S)` and :math:`[v, \mu] \sim N(M, C)`:

* Gaussian and logistic cells need the first two moments of theta alone. A logistic cell,
  :math:`\kappa\theta - b \log 2\cosh(\theta/2)`, is bounded below by its Polya-Gamma mean field, which is the
  bound of Jaakkola and Jordan (2000): :math:`\kappa E\theta - b\log 2\cosh(c/2)` at its best
  :math:`c^2 = E\theta^2`, and quadratic in theta with precision :math:`E\omega = b \tanh(c/2) / (2c)` there.
* a Poisson cell needs :math:`E e^\theta`. With :math:`S = L L^T`, :math:`C = [[A, b], [b^T, c]]`,
  :math:`h = M_v + b`, :math:`R = I - L^T A L` and :math:`g = L^T (h + A m)` it is
  :math:`|R|^{-1/2} \exp\{m^T h + m^T A m / 2 + M_\mu + c/2 + g^T R^{-1} g / 2\}` where R is positive
  definite, and infinite elsewhere.
"""

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

__all__ = ["expected_exponential", "expected_moments"]


def expected_moments(
    latents: Array, latents_covariance: Array, columns: Array, columns_covariance: Array
) -> tuple[Array, Array]:
    """E[theta] and E[theta^2] of every cell, each of shape (num_observations, num_features).

    Args:
        latents: m, shape (num_observations, num_latents).
        latents_covariance: S, shape (num_observations, num_latents, num_latents).
        columns: M, loadings and mean, shape (num_features, num_latents + 1).
        columns_covariance: C, shape (num_features, num_latents + 1, num_latents + 1).
    """
    size = latents.shape[1]
    extended = jnp.concatenate([latents, jnp.ones((latents.shape[0], 1), latents.dtype)], axis=1)
    mean = extended @ columns.T
    outer = columns[:, :size, None] * columns[:, None, :size] + columns_covariance[:, :size, :size]
    squares = (extended[:, :, None] * extended[:, None, :]).reshape(len(latents), -1)
    second = latents_covariance.reshape(len(latents), -1) @ outer.reshape(len(columns), -1).T
    return mean, mean**2 + second + squares @ columns_covariance.reshape(len(columns), -1).T


def expected_exponential(latents: Array, covariance: Array, column: Array, column_covariance: Array) -> Array:
    """E[e^theta] of one cell; infinite where the integral is.

    Args:
        latents: m, shape (num_latents,).
        covariance: S, shape (num_latents, num_latents).
        column: M, shape (num_latents + 1,).
        column_covariance: C, shape (num_latents + 1, num_latents + 1).
    """
    size = latents.shape[0]
    spread, cross = column_covariance[:size, :size], column_covariance[:size, size]
    half = jnp.linalg.cholesky(covariance)
    factor = jnp.linalg.cholesky(jnp.eye(size) - half.T @ spread @ half)  # NaN where not positive definite
    exists = jnp.all(jnp.isfinite(factor))
    safe = jnp.where(exists, factor, jnp.eye(size))
    slope = column[:size] + cross
    solved = solve_triangular(safe, half.T @ (slope + spread @ latents), lower=True)
    log_mean = latents @ slope + 0.5 * latents @ spread @ latents + column[size]
    log_mean += 0.5 * (column_covariance[size, size] + solved @ solved) - jnp.sum(jnp.log(jnp.diagonal(safe)))
    return jnp.where(exists, jnp.exp(log_mean), jnp.inf)
