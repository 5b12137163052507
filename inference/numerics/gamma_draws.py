r"""Gamma and Dirichlet draws by the hundred thousand, in logs, exact.

Marsaglia and Tsang's (2000) rejection: with :math:`d = a - 1/3`, :math:`c = 1/\sqrt{9 d}`, x standard normal
and :math:`v = (1 + c x)^3`, d v is Gamma(a) once :math:`v > 0` and

.. math::
    \log u < x^2/2 + d - d v + d \log v.

For a < 1 a draw of Gamma(a + 1) is multiplied by :math:`u^{1/a}`. All numbers are proposed at once; those
that are refused, 5 in 100 at most, are proposed again until none is left: of many numbers the refused ones
are collected first, of few all are. `jax.random.gamma` proposes number after number on a CPU, which takes 12
times as long (``tests.benchmarks.numerics``), and its program takes three times as long to compile.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.dirichlet_process import BetaDecay

BLOCK_NUMBERS = 2**16  # drawn at once, so that the temporary arrays stay small
FEW = 2**12  # numbers that are all proposed again where one is refused
GAMMAS = dist.Dirichlet, dist.Wishart, dist.Gamma, dist.InverseGamma, dist.Beta, BetaDecay
REFUSED = 16  # at most one in twenty is refused: room for one in sixteen suffices in all but freak cases


def draw(key: Array, distribution: dist.Distribution) -> Array:
    """One draw of a distribution; what is made of gamma variables is drawn by `draw_log_gamma`.

    Args:
        key: a JAX key.
        distribution: any.

    Returns:
        The shape of the distribution.
    """
    base, normal = inner(distribution), None
    if not isinstance(base, GAMMAS):
        return distribution.sample(key)
    if isinstance(base, dist.Wishart):
        key, normal_key = jax.random.split(key)
    logs = draw_log_gamma(key, gamma_parameters(distribution))
    if isinstance(base, dist.Wishart):
        normal = jax.random.normal(normal_key, distribution.shape(), logs.dtype)
    return made_of_gammas(base, logs, normal)


def inner(distribution: dist.Distribution) -> dist.Distribution:
    """The distribution inside expansions, whose parameters broadcast to the shape of the whole."""
    while isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        distribution = distribution.base_dist
    return distribution


def gamma_parameters(distribution: dist.Distribution) -> Array:
    """The concentrations of the gamma variables that one of `GAMMAS` is made of."""
    base, shape = inner(distribution), distribution.shape()
    if isinstance(base, dist.Wishart):
        halves = 0.5 * (jnp.asarray(base.base_dist.concentration)[..., None] - jnp.arange(shape[-1]))
        return jnp.broadcast_to(halves, shape[:-1])
    if isinstance(base, dist.Beta | BetaDecay):
        both = base.concentration1, base.concentration0
        return jnp.stack([jnp.broadcast_to(own, shape) for own in both])
    return jnp.broadcast_to(base.concentration, shape)


def made_of_gammas(base: dist.Distribution, logs: Array, normal: Array | None) -> Array:
    """A value of one of `GAMMAS`.

    Args:
        base: the distribution, without expansions.
        logs: of its gamma variables, shape of `gamma_parameters`.
        normal: a Wishart matrix's standard normal variables.
    """
    if isinstance(base, dist.Wishart):
        return wishart_of(base, logs, normal)
    tiny, eps = jnp.finfo(logs.dtype).tiny, jnp.finfo(logs.dtype).epsneg
    if isinstance(base, dist.Dirichlet):
        return jnp.maximum(jax.nn.softmax(logs, axis=-1), tiny)  # as NumPyro: zeros have no finite density
    if isinstance(base, BetaDecay):
        return jnp.maximum(jax.nn.softplus(logs[0] - logs[1]), tiny)
    if isinstance(base, dist.Beta):
        return jnp.clip(jax.nn.sigmoid(logs[0] - logs[1]), tiny, 1 - eps)
    logs -= jnp.log(base.rate)
    return jnp.clip(jnp.exp(logs if isinstance(base, dist.Gamma) else -logs), tiny, 1 / tiny)


def wishart_of(distribution: dist.Wishart, logs: Array, normal: Array) -> Array:
    """Bartlett's decomposition: the root of a chi-squared variable on the diagonal, normal ones below it.

    Rounding leaves one draw in some millions indefinite where there are as many degrees of freedom as
    columns, more with fewer: the diagonal grows by as much as rounding may have taken.

    Args:
        distribution: of matrices of shape (..., D, D).
        logs: of gamma variables, whose concentrations are the halves of the degrees of freedom, one fewer for
            every column, shape (..., D).
        normal: standard normal variables, shape (..., D, D).

    Returns:
        Shape (..., D, D), positive definite.
    """
    size = logs.shape[-1]
    diagonal = jnp.sqrt(2.0) * jnp.exp(0.5 * logs)[..., None] * jnp.eye(size)
    factor = distribution.base_dist.scale_tril @ (jnp.tril(normal, -1) + diagonal)
    product = factor @ jnp.swapaxes(factor, -1, -2)
    return product * (1 + 8 * size * jnp.finfo(product.dtype).eps * jnp.eye(size))


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
    if shape.size <= FEW:
        return _few(key, shape)
    keys = jax.random.split(key, 3)
    small = shape < 1
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    log_v, refused = _proposals(keys[0], d)
    log_v, _, _ = jax.lax.while_loop(_any_refused, _collected(d), (log_v, refused, keys[1]))
    boost = jnp.where(small, -jax.random.exponential(keys[2], d.shape, d.dtype) / shape, 0)
    return jnp.log(d) + log_v + boost


def _few(key: Array, shape: Array) -> Array:
    """Draws for a short vector of parameters, by a program that is quickly compiled: one call for bits."""
    small = shape < 1
    d = jnp.where(small, shape + 1, shape) - 1 / 3
    tiny = jnp.finfo(d.dtype).tiny

    def again(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        log_v, boost, left, count = carry
        own_key = jax.random.fold_in(key, count)
        logs = -jnp.log(jax.random.uniform(own_key, (4, *d.shape), d.dtype, minval=tiny))  # exponential
        angle = 2 * jnp.pi * jnp.exp(-logs[0])
        x = jnp.sqrt(2 * logs[1]) * jnp.cos(angle)  # Box and Muller
        new, refused = _proposed(x, -logs[2], d)
        log_v, boost = jnp.where(left, new, log_v), jnp.where(left, logs[3], boost)
        return log_v, boost, left & refused, count + 1

    zero = jnp.zeros_like(d)
    carry = zero, zero, jnp.ones(d.shape, bool), jnp.zeros((), jnp.uint32)
    log_v, boost, _, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2]), again, carry)
    return jnp.log(d) + log_v - jnp.where(small, boost / shape, 0)


def _proposals(key: Array, d: Array) -> tuple[Array, Array]:
    """Log v of one proposal each, and whether it is refused."""
    normal_key, uniform_key = jax.random.split(key)
    x = jax.random.normal(normal_key, d.shape, d.dtype)
    level = -jax.random.exponential(uniform_key, d.shape, d.dtype)
    return _proposed(x, level, d)


def _proposed(x: Array, level: Array, d: Array) -> tuple[Array, Array]:
    """Log v of normal numbers x, and whether it is refused at the logs of uniform ones; NaN is accepted."""
    root = 1 + x / jnp.sqrt(9 * d)
    v = root * root * root
    log_v = jnp.log(jnp.where(v > 0, v, 1))
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
