"""Slice sampling of positive numbers, for conditionals without an exact sampler."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array


class PositiveSlice(dist.Distribution):
    """A density on the positive numbers, known up to a constant; ``sample`` is one slice-sampling move.

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
        """One move from the current value.

        Raises:
            ValueError: ``sample_shape`` is not ().
        """
        if sample_shape:
            raise ValueError("a slice-sampling move gives one value; sample_shape must be ()")
        height_key, place_key, shrink_key = jax.random.split(key, 3)

        def density(u: Array) -> Array:
            return self.log_density(jnp.exp(u)) + u

        here = jnp.log(self.current)
        height = density(here) - jax.random.exponential(height_key, dtype=here.dtype)
        left = here - self.width * jax.random.uniform(place_key, dtype=here.dtype)
        right = _step_out(density, height, left + self.width, self.width)
        left = _step_out(density, height, left, -self.width)

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


class PositiveSlices(dist.Distribution):
    r"""A density on vectors of positive numbers, known up to a constant: one slice-sampling move each.

    The log density is :math:`\sum_j f(v_j, \text{arguments}_j) + g(\sum_j v_j)`. Without g the elements are
    independent and moved side by side; with it one after another, each given the others, at the same cost.

    Attributes:
        log_density: ``log_density(value, *arguments)``, f, elementwise on arrays.
        current: the values that the moves start from, a vector.
        arguments: arrays with one entry along the first axis for each element.
        log_density_of_sum: g, a function of one number; None: there is none.
    """

    support = dist.constraints.independent(dist.constraints.positive, 1)

    def __init__(
        self,
        log_density: Callable,
        current: Array,
        arguments: tuple[Array, ...] = (),
        log_density_of_sum: Callable | None = None,
    ) -> None:
        """Remember the density and the current values."""
        self.log_density, self.current, self.arguments = log_density, current, arguments
        self.log_density_of_sum = log_density_of_sum
        super().__init__(batch_shape=(), event_shape=jnp.shape(current))

    def log_prob(self, value: Array) -> Array:
        """Log density at a vector, in nats, up to a constant."""
        terms = jnp.sum(self.log_density(value, *self.arguments))
        return terms if self.log_density_of_sum is None else terms + self.log_density_of_sum(jnp.sum(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One move of every element from the current values.

        Raises:
            ValueError: ``sample_shape`` is not ().
        """
        if sample_shape:
            raise ValueError("slice-sampling moves give one vector; sample_shape must be ()")

        def move(key: Array, value: Array, others: Array, arguments: tuple) -> Array:
            def density(v: Array) -> Array:
                own = self.log_density(v, *arguments)
                return own if self.log_density_of_sum is None else own + self.log_density_of_sum(others + v)

            return PositiveSlice(density, value).sample(key)

        keys = jax.random.split(key, self.current.shape[0])
        if self.log_density_of_sum is None:
            return jax.vmap(move)(keys, self.current, jnp.zeros_like(self.current), self.arguments)

        def in_turn(total: Array, element: tuple) -> tuple[Array, Array]:
            key, value, arguments = element
            new = move(key, value, total - value, arguments)
            return total - value + new, new

        return jax.lax.scan(in_turn, jnp.sum(self.current), (keys, self.current, self.arguments))[1]


def _step_out(density: Callable, height: Array, edge: Array, stride: float) -> Array:
    """Move an edge of the bracket until it is outside the slice."""
    return jax.lax.while_loop(lambda u: density(u) > height, lambda u: u + stride, edge)
