r"""Gamma and Dirichlet draws by the hundred thousand, in logs, exact.

Marsaglia and Tsang's (2000) rejection: with :math:`d = a - 1/3`, :math:`c = 1/\sqrt{9 d}`, x standard normal
and :math:`v = (1 + c x)^3`, d v is Gamma(a) once :math:`v > 0` and

.. math::
    \log u < x^2/2 + d - d v + d \log v.

For a < 1 a draw of Gamma(a + 1) is multiplied by :math:`u^{1/a}`. All numbers are proposed at once; those
that are refused, 5 in 100 at most, are collected and proposed again until none is left. `jax.random.gamma`
proposes number after number on a CPU, which takes 12 times as long (``tests.benchmarks.numerics``).
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

__all__ = ["draw", "draw_dirichlet", "draw_log_gamma"]

BLOCK_NUMBERS = 2**16  # drawn at once, so that the temporary arrays stay small
REFUSED = 16  # at most one in twenty is refused: room for one in sixteen suffices in all but freak cases


def draw(key: Array, distribution: dist.Distribution) -> Array:
    """One draw of a distribution; a Dirichlet is drawn by `draw_dirichlet`."""
    if isinstance(distribution, dist.Dirichlet):
        return draw_dirichlet(key, distribution.concentration)
    return distribution.sample(key)


def draw_dirichlet(key: Array, concentration: Array) -> Array:
    """One draw of each row's Dirichlet, shape (..., size); entries may underflow to zero."""
    return jax.nn.softmax(draw_log_gamma(key, concentration), axis=-1)


def draw_log_gamma(key: Array, concentration: Array) -> Array:
    """Log of one draw of Gamma(concentration, 1) each.

    Args:
        key: a JAX key.
        concentration: positive, any shape; a number that is not gives NaN.
    """
    flat = concentration.ravel()
    number = -(-flat.size // BLOCK_NUMBERS)
    if number <= 1:
        return _block(key, flat).reshape(concentration.shape)
    size = -(-flat.size // number)
    blocks = jnp.pad(flat, (0, number * size - flat.size), constant_values=1).reshape(number, size)
    logs = jax.lax.map(lambda own: _block(*own), (jax.random.split(key, number), blocks))
    return logs.ravel()[: flat.size].reshape(concentration.shape)


def _block(key: Array, shape: Array) -> Array:
    """Draws for a vector of parameters."""
    keys = jax.random.split(key, 3)
    small = shape < 1
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    log_v, refused = _proposals(keys[0], d)
    log_v, _, _ = jax.lax.while_loop(_any_refused, _collected(d), (log_v, refused, keys[1]))
    boost = jnp.where(small, -jax.random.exponential(keys[2], d.shape, d.dtype) / shape, 0)
    return jnp.log(d) + log_v + boost


def _proposals(key: Array, d: Array) -> tuple[Array, Array]:
    """Log v of one proposal each, and whether it is refused; NaN is accepted, so that loops end."""
    normal_key, uniform_key = jax.random.split(key)
    x = jax.random.normal(normal_key, d.shape, d.dtype)
    root = 1 + x / jnp.sqrt(9 * d)
    v = root * root * root
    log_v = jnp.log(jnp.where(v > 0, v, 1))
    level = -jax.random.exponential(uniform_key, d.shape, d.dtype)
    refused = (v <= 0) | (level >= 0.5 * x * x + d * (1 - v + log_v))
    return jnp.where(jnp.isnan(v), v, log_v), refused


def _any_refused(carry: tuple[Array, Array, Array]) -> Array:
    return jnp.any(carry[1])


def _collected(d: Array) -> object:
    """A loop body that proposes again for the first refused numbers, as many as there is room for."""
    room = min(d.size, d.size // REFUSED + 64)

    def body(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        log_v, refused, key = carry
        index = jnp.nonzero(refused, size=room, fill_value=d.size)[0]
        own = d.at[index].get(mode="fill", fill_value=1.0)

        def again(inner: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            value, left, key = inner
            key, own_key = jax.random.split(key)
            new, refused = _proposals(own_key, own)
            return jnp.where(left, new, value), left & refused, key

        start = (jnp.zeros_like(own), index < d.size, key)
        value, _, key = jax.lax.while_loop(_any_refused, again, start)
        refused = refused.at[index].set(False, mode="drop")
        return log_v.at[index].set(value, mode="drop"), refused, key

    return body
