"""Slice sampling of one positive number, for conditionals that have no sampler of their own."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

__all__ = ["PositiveSlice"]


class PositiveSlice(dist.Distribution):
    """A density on the positive numbers, known up to a constant.

    With a slice-sampling move from a current value as its ``sample``.

    The move (Neal 2003, figures 3 and 5: stepping out, then shrinking) is made on the logarithm, with the
    Jacobian, and leaves the density invariant; draws are a Markov chain, not independent. ``log_prob`` lacks
    the normalising constant.

    Attributes:
        log_density: log density of the number itself (not of its logarithm), up to a constant.
        current: the value that a move starts from.
        width: first length of the bracket, on the log scale.
    """

    support = dist.constraints.positive

    def __init__(self, log_density: Callable, current: Array, width: float = 1.0) -> None:
        """Remember the density and the current value."""
        self.log_density, self.current, self.width = log_density, current, width
        super().__init__(batch_shape=(), event_shape=())

    def log_prob(self, value: Array) -> Array:
        """Log density at ``value``, in nats, up to a constant."""
        return self.log_density(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One move from the current value."""
        if sample_shape:
            raise ValueError("a slice-sampling move gives one value; sample_shape must be ()")
        height_key, place_key, shrink_key = jax.random.split(key, 3)

        def density(u: Array) -> Array:
            return self.log_density(jnp.exp(u)) + u

        here = jnp.log(self.current)
        height = density(here) - jax.random.exponential(height_key, dtype=here.dtype)
        left = here - self.width * jax.random.uniform(place_key, dtype=here.dtype)
        left, right = (
            _step_out(density, height, left, -self.width),
            _step_out(density, height, left + self.width, self.width),
        )

        def outside(carry: tuple) -> Array:
            return density(carry[2]) <= height

        def shrink(carry: tuple) -> tuple:
            left, right, u, key = carry
            left, right = jnp.where(u < here, u, left), jnp.where(u < here, right, u)
            key, draw = jax.random.split(key)
            return left, right, jax.random.uniform(draw, dtype=u.dtype, minval=left, maxval=right), key

        key, draw = jax.random.split(shrink_key)
        first = jax.random.uniform(draw, dtype=here.dtype, minval=left, maxval=right)
        return jnp.exp(jax.lax.while_loop(outside, shrink, (left, right, first, key))[2])


def _step_out(density: Callable, height: Array, edge: Array, stride: float) -> Array:
    """Move an edge of the bracket until it is outside the slice."""
    return jax.lax.while_loop(lambda u: density(u) > height, lambda u: u + stride, edge)
