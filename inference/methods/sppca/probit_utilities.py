r"""Utilities of probit outputs given everything else (Albert and Chib 1993): truncated normals.

A binary output cuts its own utility at zero, independently of the others. Class labels say that the
utility of the class is the largest: the others are cut off above by it, it is cut off below by the largest of
them. Both half steps together are a Markov move that leaves the truncated normal invariant.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr, ndtri

__all__ = ["ClassUtilities", "SignedUtilities", "positive_normal"]

FAR = -30.0
SMALLEST = 1e-300


def positive_normal(key: Array, mean: Array) -> Array:
    """A draw of d ~ N(mean, 1) given d > 0, entry by entry, in both tails.

    By the quantile function; far below zero, where it has no digits, from an exponential that three steps of
    Newton's method bring to the quantile.
    """
    log_uniform = -jax.random.exponential(key, mean.shape, mean.dtype)
    log_tail = log_ndtr(mean)
    usual = mean - ndtri(jnp.maximum(jnp.exp(log_uniform + log_tail), SMALLEST))
    low = jnp.minimum(mean, FAR)
    target = log_uniform + log_ndtr(low)
    d = -log_uniform / -low
    for _ in range(3):
        here = log_ndtr(low - d)
        slope = jnp.exp(-0.5 * (low - d) ** 2 - 0.5 * jnp.log(2 * jnp.pi) - here)
        d = jnp.maximum(d + (here - target) / slope, SMALLEST)
    return jnp.maximum(jnp.where(mean < FAR, d, usual), SMALLEST)


class _Truncated(dist.Distribution):
    """Utilities with means, and the outputs that cut them off; of missing ones N(0, 1)."""

    support = dist.constraints.real_vector
    pytree_data_fields = ("predictor", "y")

    def __init__(self, predictor: Array, y: Array) -> None:
        self.missing = jnp.isnan(y)
        self.predictor, self.y = jnp.where(self.missing, 0.0, predictor), y
        super().__init__(predictor.shape[:1], predictor.shape[1:])

    def _density(self, value: Array, allowed: Array) -> Array:
        own = jnp.sum(-0.5 * (value - self.predictor) ** 2, axis=-1)
        return jnp.where(allowed, own, -jnp.inf)

    def _free(self, key: Array) -> Array:
        return jax.random.normal(key, self.predictor.shape, self.predictor.dtype)


class SignedUtilities(_Truncated):
    """Utilities of binary outputs, positive where the output is 1.

    Args:
        predictor: their means, shape (num_observations, num_outputs).
        y: outputs, NaN where missing.
    """

    def log_prob(self, value: Array) -> Array:
        """In nats, up to a constant, shape (num_observations,)."""
        agrees = self.missing | ((value > 0) == (self.y == 1))
        return self._density(value, agrees.all(axis=-1))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One independent draw."""
        _only_one(sample_shape)
        own, free = jax.random.split(key)
        sign = jnp.where(self.y == 1, 1.0, -1.0)
        return jnp.where(self.missing, self._free(free), sign * positive_normal(own, sign * self.predictor))


class ClassUtilities(_Truncated):
    """Utilities of class labels, that of the class the largest.

    Args:
        predictor: their means, shape (num_observations, num_classes).
        y: one column a class, NaN where missing.
        current: the utilities that a move starts from, of the same shape.
    """

    pytree_data_fields = ("predictor", "y", "current")

    def __init__(self, predictor: Array, y: Array, current: Array) -> None:
        self.current = current
        super().__init__(predictor, y)

    def log_prob(self, value: Array) -> Array:
        """In nats, up to a constant, shape (num_observations,)."""
        largest = jnp.argmax(value, axis=-1) == jnp.argmax(self.y, axis=-1)
        return self._density(value, self.missing.any(axis=-1) | largest)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One move from the current values."""
        _only_one(sample_shape)
        below, above, free = jax.random.split(key, 3)
        is_class = self.y == 1
        own = jnp.sum(jnp.where(is_class, self.current, 0.0), axis=-1, keepdims=True)
        others = own - positive_normal(below, own - self.predictor)
        floor = jnp.max(jnp.where(is_class, -jnp.inf, others), axis=-1, keepdims=True)
        raised = floor + positive_normal(above, self.predictor - floor)
        return jnp.where(self.missing, self._free(free), jnp.where(is_class, raised, others))


def _only_one(sample_shape: tuple[int, ...]) -> None:
    if sample_shape:
        raise ValueError("a Gibbs draw of the utilities is one value; sample_shape must be ()")
