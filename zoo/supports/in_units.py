r"""Sites whose unconstrained coordinates are in the units of the data.

NUTS, HMC, SVI and L-BFGS move in unconstrained coordinates, start within 2 of zero there, and begin with
steps, masses and spreads of order one. A site in metres and the same site in millimetres must therefore have
the same coordinates, or the answer depends on the unit. `InUnits` leaves a distribution as it is and says in
which unit its value is measured: a real value is ``loc + scale * u``, a positive one ``scale * exp(u)``. The
log joint in unconstrained coordinates then changes by a constant when the data are rescaled, and nothing else
changes.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, ComposeTransform, ExpTransform, biject_to

__all__ = ["InUnits", "PositiveInUnits", "RealInUnits"]


class RealInUnits(constraints.Constraint):
    """Real values measured from ``loc`` in units of ``scale``.

    Args:
        loc: the origin, of a shape that broadcasts to that of the value.
        scale: the unit, positive, likewise.
    """

    base_constraint = constraints.real  # what a summary of such a value may assume

    def __init__(self, loc: Array, scale: Array) -> None:
        self.loc, self.scale = loc, scale

    def __call__(self, x: Array) -> Array:
        """Whether values are numbers.

        Args:
            x: values.

        Returns:
            The shape of ``x``.
        """
        return x == x

    def feasible_like(self, prototype: Array) -> Array:
        """The origin as a value of this support.

        Args:
            prototype: an array, of which the shape counts.

        Returns:
            The shape of ``prototype``.
        """
        return jnp.broadcast_to(self.loc, jnp.shape(prototype))

    def tree_flatten(self) -> tuple:
        """The origin and the unit are leaves.

        Returns:
            The leaves, and their names beside nothing static.
        """
        return (self.loc, self.scale), (("loc", "scale"), {})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another constraint is this object: values may be traced and cannot be compared.

        Args:
            other: anything.
            static: not read; NumPyro passes it.

        Returns:
            True for the same object.
        """
        return self is other


class PositiveInUnits(constraints.Constraint):
    """Positive values measured in units of ``scale``.

    Args:
        scale: the unit, positive, of a shape that broadcasts to that of the value.
    """

    base_constraint = constraints.positive

    def __init__(self, scale: Array) -> None:
        self.scale = scale

    def __call__(self, x: Array) -> Array:
        """Whether values are positive.

        Args:
            x: values.

        Returns:
            The shape of ``x``.
        """
        return x > 0

    def feasible_like(self, prototype: Array) -> Array:
        """The unit as a value of this support.

        Args:
            prototype: an array, of which the shape counts.

        Returns:
            The shape of ``prototype``.
        """
        return jnp.broadcast_to(self.scale, jnp.shape(prototype))

    def tree_flatten(self) -> tuple:
        """The unit is the leaf.

        Returns:
            The leaf, and its name beside nothing static.
        """
        return (self.scale,), (("scale",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another constraint is this object, see `RealInUnits.eq`.

        Args:
            other: anything.
            static: not read; NumPyro passes it.

        Returns:
            True for the same object.
        """
        return self is other


biject_to.register(RealInUnits, lambda c: AffineTransform(c.loc, c.scale))
biject_to.register(
    PositiveInUnits,
    lambda c: ComposeTransform([ExpTransform(), AffineTransform(0.0, c.scale, domain=constraints.positive)]),
)


class InUnits(dist.Independent):
    """A distribution of real or of positive values that says in which unit they are measured.

    Args:
        base_dist: the distribution, its support real or positive in every entry.
        scale: the unit, positive, of a shape that broadcasts to that of a value.
        loc: of real values, the origin, likewise; None: positive values.
    """

    pytree_data_fields = ("scale", "loc")

    def __init__(self, base_dist: dist.Distribution, scale: Array, loc: Array | None = None) -> None:
        self.scale, self.loc = scale, loc
        super().__init__(base_dist, 0)

    @property
    def support(self) -> constraints.Constraint:
        """Real or positive values, with the unit of their unconstrained coordinates."""
        entry = PositiveInUnits(self.scale) if self.loc is None else RealInUnits(self.loc, self.scale)
        return constraints.independent(entry, self.event_dim)
