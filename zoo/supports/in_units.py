r"""Sites whose unconstrained coordinates are in the units of the data.

NUTS, HMC, SVI and L-BFGS move in unconstrained coordinates, start within 2 of zero there, and begin with
steps, masses and spreads of order one. A site in metres and the same site in millimetres must therefore have
the same coordinates, or the answer depends on the unit. `InUnits` leaves a distribution as it is and says in
which unit its value is measured: a real value is ``loc + scale * u``, a positive one ``scale * exp(u)``, a
positive definite matrix ``scale_i scale_j`` times one of standard coordinates. The log joint in unconstrained
coordinates then changes by a constant when the data are rescaled, and nothing else changes.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    Transform,
    biject_to,
)


class _InUnits(constraints.Constraint):
    """A set of values, and the unit in which they are measured: its leaf.

    Args:
        scale: the unit, positive, of a shape that broadcasts to that of the value.
    """

    base_constraint: constraints.Constraint  # what a summary of such a value may assume

    def __init__(self, scale: Array) -> None:
        self.scale = scale

    def __call__(self, x: Array) -> Array:
        """Whether values are in the set, in whatever unit.

        Returns:
            The shape of ``x`` without the axes of a value.
        """
        return self.base_constraint(x)

    def feasible_like(self, prototype: Array) -> Array:
        """The value at zero unconstrained coordinates.

        Args:
            prototype: an array, of which the shape counts.

        Returns:
            The shape of ``prototype``.
        """
        return jnp.broadcast_to(self.scale, jnp.shape(prototype))

    def tree_flatten(self) -> tuple:
        """What tells the unit is a leaf."""
        return (self.scale,), (("scale",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another constraint is this object: values may be traced and cannot be compared."""
        return self is other


class RealInUnits(_InUnits):
    """Real values measured from ``loc`` in units of ``scale``.

    Args:
        loc: the origin, of a shape that broadcasts to that of the value.
        scale: the unit, positive, likewise.
    """

    base_constraint = constraints.real

    def __init__(self, loc: Array, scale: Array) -> None:
        self.loc = loc
        super().__init__(scale)

    def feasible_like(self, prototype: Array) -> Array:
        """The origin; see `_InUnits.feasible_like`."""
        return jnp.broadcast_to(self.loc, jnp.shape(prototype))

    def tree_flatten(self) -> tuple:
        """The origin and the unit; see `_InUnits.tree_flatten`."""
        return (self.loc, self.scale), (("loc", "scale"), {})


class PositiveInUnits(_InUnits):
    """Positive values measured in units of ``scale``."""

    base_constraint = constraints.positive


class PositiveDefiniteInUnits(_InUnits):
    """Positive definite matrices, entry (i, j) measured in units of ``scale[i] * scale[j]``.

    Args:
        scale: positive, the shape of a row of the matrix, with axes of a batch before it or without.
    """

    event_dim = 2
    base_constraint = constraints.positive_definite

    def feasible_like(self, prototype: Array) -> Array:
        """The diagonal matrix of the squared units; see `_InUnits.feasible_like`."""
        diagonal = self.scale[..., None] ** 2 * jnp.eye(jnp.shape(self.scale)[-1])
        return jnp.broadcast_to(diagonal, jnp.shape(prototype))


class _Rescaled(Transform):
    """A symmetric matrix whose entry (i, j) is multiplied by ``scale[i] * scale[j]``."""

    domain = codomain = constraints.positive_definite

    def __init__(self, scale: Array) -> None:
        self.scale = scale

    def _factors(self) -> Array:
        return self.scale[..., :, None] * self.scale[..., None, :]

    def __call__(self, x: Array) -> Array:
        return x * self._factors()

    def _inverse(self, y: Array) -> Array:
        return y / self._factors()

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: None = None) -> Array:
        """Each scale counts once for every entry of its row on or below the diagonal, and once again."""
        num_rows = jnp.shape(self.scale)[-1]
        return jnp.broadcast_to((num_rows + 1) * jnp.sum(jnp.log(self.scale), axis=-1), jnp.shape(x)[:-2])

    def tree_flatten(self) -> tuple:
        return (self.scale,), (("scale",), {})

    def eq(self, other: object, static: bool = False) -> bool:
        return self is other


biject_to.register(RealInUnits, lambda c: AffineTransform(c.loc, c.scale))
biject_to.register(
    PositiveInUnits,
    lambda c: ComposeTransform([ExpTransform(), AffineTransform(0.0, c.scale, domain=constraints.positive)]),
)
biject_to.register(
    PositiveDefiniteInUnits,
    lambda c: ComposeTransform([biject_to(constraints.positive_definite), _Rescaled(c.scale)]),
)


class InUnits(dist.Independent):
    """A distribution of real or positive values or of matrices that says in which unit they are measured.

    Args:
        base_dist: the distribution, its support real or positive in every entry, or positive definite.
        scale: the unit, positive, of a shape that broadcasts to that of a value; to a row of a matrix.
        loc: of real values, the origin, likewise; None: positive values, or matrices.
    """

    pytree_data_fields = ("scale", "loc")

    def __init__(self, base_dist: dist.Distribution, scale: Array, loc: Array | None = None) -> None:
        self.scale, self.loc = scale, loc
        super().__init__(base_dist, 0)

    def expand(self, batch_shape: tuple[int, ...]) -> "InUnits":
        """The distribution with another batch shape, its values measured as before.

        Args:
            batch_shape: to which the present one broadcasts.
        """
        return InUnits(self.base_dist.expand(batch_shape), self.scale, self.loc)

    @property
    def support(self) -> constraints.Constraint:
        """Real or positive values, or matrices, with the unit of their unconstrained coordinates."""
        if isinstance(self.base_dist.support, type(constraints.positive_definite)):
            return PositiveDefiniteInUnits(self.scale)
        entry = PositiveInUnits(self.scale) if self.loc is None else RealInUnits(self.loc, self.scale)
        return constraints.independent(entry, self.event_dim)
