"""Normal and gamma factors of a mean-field posterior: the best normal, and E[log p - log q] of each."""

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

__all__ = ["expected_log_gamma", "gamma_terms", "normal_given", "normal_terms"]


def normal_given(linear: Array, precision: Array) -> tuple[Array, Array]:
    """Means and covariances of vectors with log density linear' u - u' precision u / 2.

    Args:
        linear: shape (count, size).
        precision: shape (count, size, size).
    """
    covariance = jnp.linalg.inv(precision)
    covariance = (covariance + jnp.swapaxes(covariance, -1, -2)) / 2
    return jnp.einsum("nij,nj->ni", covariance, linear), covariance


def normal_terms(
    squares: Array, covariances: Array, precision: Array, log_precision: Array, seen: Array | float = 1.0
) -> Array:
    """E[log p - log q] of normal vectors, the prior about zero with these precisions expected, in nats.

    Args:
        squares: E of the squares of their entries, shape (count, size).
        covariances: of q, shape (count, size, size).
        precision: E of the prior's, shape (size,).
        log_precision: E of its logarithm.
        seen: ones where an entry is random, zeros where it is fixed; 1: all are.
    """
    log_dets = jnp.linalg.slogdet(covariances)[1]
    return 0.5 * (jnp.sum(seen * (log_precision + 1 - squares * precision)) + jnp.sum(log_dets))


def expected_log_gamma(gamma: Array) -> Array:
    """E of the logarithm of gamma variables; ``gamma`` is concentration and rate."""
    return digamma(gamma[0]) - jnp.log(gamma[1])


def gamma_terms(gamma: Array, concentration: Array | float, rate: Array | float) -> Array:
    """E[log p - log q] of gamma variables, the prior's concentration and rate given, in nats."""
    shape, own_rate = gamma
    log_p = concentration * jnp.log(rate) - gammaln(concentration)
    log_p += (concentration - 1) * expected_log_gamma(gamma) - rate * shape / own_rate
    return log_p + shape - jnp.log(own_rate) + gammaln(shape) + (1 - shape) * digamma(shape)
