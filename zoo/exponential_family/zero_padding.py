"""Arrays that are exactly zero at fixed places of their last axis, as a site of a program.

Loadings of a view have zero columns where a latent belongs to another view. Such a site is the free columns,
a Normal array, put into their places; NUTS, HMC and MAP move the free columns alone.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to

__all__ = ["PadZeros", "padded"]


class _ZeroElsewhere(constraints.Constraint):
    """Real at some places of the last axis, zero at the others."""

    base_constraint = constraints.real  # what a summary of such a value may assume

    def __init__(self, places: tuple[int, ...], size: int, event_dim: int) -> None:
        self.places, self.size, self.event_dim = places, size, event_dim

    def __call__(self, x: Array) -> Array:
        free = jnp.zeros(self.size, bool).at[jnp.asarray(self.places, int)].set(True)
        good = jnp.where(free, x == x, x == 0)
        return jnp.all(good, axis=tuple(range(-self.event_dim, 0)))

    def feasible_like(self, prototype: Array) -> Array:
        return jnp.zeros_like(prototype)

    def tree_flatten(self) -> tuple:
        return (), ((), {"places": self.places, "size": self.size, "event_dim": self.event_dim})

    def eq(self, other: object, static: bool = False) -> bool:
        return isinstance(other, _ZeroElsewhere) and self.__dict__ == other.__dict__


class PadZeros(Transform):
    """The last axis spread over ``places`` of a longer one, zeros elsewhere.

    Args:
        places: where the values go, rising.
        size: of the last axis afterwards.
        event_dim: dims of an event.
    """

    def __init__(self, places: tuple[int, ...], size: int, event_dim: int) -> None:
        self.places, self.size, self.event_dim = places, size, event_dim

    @property
    def domain(self) -> constraints.Constraint:
        """Real arrays of the free places."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def codomain(self) -> constraints.Constraint:
        """Real arrays, zero outside of the places."""
        return _ZeroElsewhere(self.places, self.size, self.event_dim)

    def __call__(self, x: Array) -> Array:
        """The padded array.

        Args:
            x: free values, the last axis the free places.

        Returns:
            The same with zeros in the other places, the last axis of length ``size``: shape (..., size).
        """
        return jnp.zeros((*jnp.shape(x)[:-1], self.size), x.dtype).at[..., list(self.places)].set(x)

    def _inverse(self, y: Array) -> Array:
        return y[..., list(self.places)]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: None = None) -> Array:
        """Zero: the volume is that of the free places.

        Args:
            x: free values, the last axis the free places.
            y: the same with zeros; not read.
            intermediates: not read.

        Returns:
            Zeros, shape of the batch.
        """
        return jnp.zeros(jnp.shape(x)[: jnp.ndim(x) - self.event_dim])

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """With the whole last axis.

        Args:
            shape: of free values.

        Returns:
            The same with the whole last axis.
        """
        return (*shape[:-1], self.size)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """With the free places only.

        Args:
            shape: of padded values.

        Returns:
            The same with the free places alone on the last axis.
        """
        return (*shape[:-1], len(self.places))

    def tree_flatten(self) -> tuple:
        """All of it is fixed."""
        return (), ((), {"places": self.places, "size": self.size, "event_dim": self.event_dim})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether the other pads alike.

        Args:
            other: anything.
            static: not read; NumPyro passes it.

        Returns:
            True if it pads alike.
        """
        own = self.places, self.size, self.event_dim
        return isinstance(other, PadZeros) and own == (other.places, other.size, other.event_dim)


biject_to.register(_ZeroElsewhere, lambda c: PadZeros(c.places, c.size, c.event_dim))


def padded(base: dist.Distribution, places: tuple[int, ...], size: int) -> dist.Distribution:
    """The base distribution, whose last event axis are the free places, padded with zeros to ``size``.

    Args:
        base: over the free places.
        places: of the free ones on the whole axis.
        size: of the whole axis.

    Returns:
        Distribution with ``size`` as the last event axis.
    """
    if len(places) == size:
        return base
    return dist.TransformedDistribution(base, PadZeros(places, size, base.event_dim))
