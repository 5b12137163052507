r"""Dirichlet factors of a variational posterior: expectations, divergences, learnt symmetric priors.

A symmetric prior's parameter a maximises :math:`n\{\log\Gamma(Sa) - S\log\Gamma(a)\} + (a - 1) \ell`, with n
vectors of S entries and :math:`\ell` the sum of their expected logs. Its derivative falls where the optimum
is, and :math:`\psi(Sa) - \psi(a)` falls from infinity to log S, so bisection in log a finds the one root; at
an end of the bracket the objective still rises from any value inside it.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

__all__ = ["dirichlet_kl", "expected_log", "symmetric_prior"]

LEAST, MOST = 1e-6, 1e4  # a learnt parameter stays between
HALVINGS = 60


def expected_log(concentration: Array, axis: int = -1) -> Array:
    """E[log p] under Dirichlets along an axis."""
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=axis, keepdims=True))


def dirichlet_kl(concentration: Array, prior: Array, axis: int = -1) -> Array:
    """Sum of the divergences KL(q || prior) of Dirichlets along an axis, in nats.

    Args:
        concentration: of q, any shape.
        prior: of the prior, a number or something that broadcasts.
        axis: of the entries of one vector.
    """
    prior = jnp.broadcast_to(prior, concentration.shape)

    def log_normaliser(parameters: Array) -> Array:
        return jnp.sum(gammaln(parameters)) - jnp.sum(gammaln(jnp.sum(parameters, axis=axis)))

    gap = jnp.sum((concentration - prior) * expected_log(concentration, axis))
    return log_normaliser(prior) - log_normaliser(concentration) + gap


def symmetric_prior(total_log: Array, num_vectors: int, size: int, current: Array) -> Array:
    """The parameter of a symmetric Dirichlet prior that the expected logs like best.

    Args:
        total_log: sum of the expected logs over all vectors and entries.
        num_vectors: n.
        size: S, entries of a vector; of one entry nothing can be learnt.
        current: the parameter so far, kept if the best one inside the bracket is no better.
    """
    if size < 2:
        return current

    def height(a: Array) -> Array:
        return num_vectors * (gammaln(size * a) - size * gammaln(a)) + (a - 1) * total_log

    def halve(ends: tuple, _: None) -> tuple:
        low, high = ends
        middle = 0.5 * (low + high)
        a = jnp.exp(middle)
        rises = num_vectors * size * (digamma(size * a) - digamma(a)) + total_log > 0
        return (jnp.where(rises, middle, low), jnp.where(rises, high, middle)), None

    start = (jnp.log(jnp.asarray(LEAST, total_log.dtype)), jnp.log(jnp.asarray(MOST, total_log.dtype)))
    (low, high), _ = jax.lax.scan(halve, start, None, HALVINGS)
    best = jnp.exp(0.5 * (low + high))
    return jnp.where(height(best) >= height(current), best, current)
