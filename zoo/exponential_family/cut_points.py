r"""Cut points of the ordinal columns of a table.

A column of C levels has C - 1 cut points, which rise. Where all ordinal columns of a table have equally many,
they are a matrix, a column of the table a row of it. Where the numbers of levels differ they lie flat, those
of a column together and columns in the order of the table, so that no place is idle. Either way each column
has the prior that it has alone: :math:`x_1, \dots, x_{C-1} \sim N(0, 5^2)`, the first cut point
:math:`x_1` and the next one :math:`e^{x_{c+1}}` above the one before.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to

CUT_POINT_SCALE = 5.0  # standard deviation of cut points before they are put in order


class _InBlocks:
    """What has blocks of so many entries, which are static."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    def tree_flatten(self) -> tuple:
        """The sizes are static."""
        return (), ((), {"sizes": self.sizes})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether another constraint or transform of this kind has the same blocks.

        Args:
            other: anything.
            static: not read: sizes are known while a program is traced.

        Returns:
            True if the sizes are equal.
        """
        return isinstance(other, type(self)) and self.sizes == other.sizes


class OrderedBlocks(_InBlocks, constraints.Constraint):
    """Vectors that rise within each of their blocks.

    Args:
        sizes: entries of each block, in their order.
    """

    event_dim = 1
    base_constraint = constraints.real_vector  # what a summary of such a value may assume

    def __call__(self, x: Array) -> Array:
        """Whether each block of the last axis rises.

        Args:
            x: values, shape (..., sum of the sizes).

        Returns:
            The shape of ``x`` without the last axis.
        """
        return jnp.all((x[..., 1:] > x[..., :-1]) | _is_first(self.sizes)[1:], axis=-1)

    def feasible_like(self, prototype: Array) -> Array:
        """Blocks 0, 1, 2, ...

        Args:
            prototype: an array, of which the shape counts.

        Returns:
            The shape of ``prototype``.
        """
        rising = np.concatenate([np.arange(float(size)) for size in self.sizes])
        return jnp.broadcast_to(rising, jnp.shape(prototype))


class OrderBlocks(_InBlocks, Transform):
    """Real vectors to those that rise within blocks: each block by the cumulative sum of its exponentials.

    Every block is put in order as NumPyro's ``OrderedTransform`` does a vector.

    Args:
        sizes: entries of each block, in their order.
    """

    domain = constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        """Vectors that rise within the blocks."""
        return OrderedBlocks(self.sizes)

    def __call__(self, x: Array) -> Array:
        """The vector in order.

        Args:
            x: real, shape (..., sum of the sizes).

        Returns:
            The shape of ``x``.
        """
        block, place = _places(self.sizes)
        steps = jnp.where(_is_first(self.sizes), x, jnp.exp(jnp.where(_is_first(self.sizes), 0.0, x)))
        table = jnp.zeros((*jnp.shape(x)[:-1], len(self.sizes), max(self.sizes)), steps.dtype)
        return jnp.cumsum(table.at[..., block, place].set(steps), axis=-1)[..., block, place]

    def _inverse(self, y: Array) -> Array:
        first = _is_first(self.sizes)
        steps = jnp.diff(y, axis=-1, prepend=jnp.zeros_like(y[..., :1]))
        return jnp.where(first, y, jnp.log(jnp.where(first, 1.0, steps)))

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: None = None) -> Array:
        """The sum of the logarithms of the steps.

        Args:
            x: real, shape (..., sum of the sizes).
            y: the vector in order; not read.
            intermediates: not read.

        Returns:
            The shape of ``x`` without the last axis, in nats.
        """
        return jnp.sum(jnp.where(_is_first(self.sizes), 0.0, x), axis=-1)


biject_to.register(OrderedBlocks, lambda constraint: OrderBlocks(constraint.sizes))


class CutPoints(dist.TransformedDistribution):
    """A normal vector put in order; its name is what pictures of a program show."""


def cut_points_prior(counts: tuple[int, ...]) -> dist.Distribution:
    """The prior of the cut points of the ordinal columns of a table.

    Args:
        counts: number of cut points of each of these columns.

    Returns:
        Distribution with event shape (num_columns, num_cut_points), flat where the numbers differ.

    Example:
        >>> cut_points_prior((2, 2)).event_shape, cut_points_prior((2, 4)).event_shape
        ((2, 2), (6,))
    """
    if are_equal(counts):
        base = dist.Normal(0.0, CUT_POINT_SCALE).expand([len(counts), counts[0]]).to_event(1)
        return CutPoints(base, dist.transforms.OrderedTransform()).to_event(1)
    return CutPoints(dist.Normal(0.0, CUT_POINT_SCALE).expand([sum(counts)]).to_event(1), OrderBlocks(counts))


def starting_cut_points(counts: tuple[int, ...]) -> Array:
    """Cut points at which all levels of a column have the same probability where theta is zero.

    Args:
        counts: number of cut points of each ordinal column.

    Returns:
        The event shape of `cut_points_prior`.
    """
    shares = [jnp.arange(1, count + 1) / (count + 1) for count in counts]
    rows = [jnp.log(share) - jnp.log1p(-share) for share in shares]
    return jnp.stack(rows) if are_equal(counts) else jnp.concatenate(rows)


def cut_points_of_columns(cut_points: Array, counts: tuple[int, ...], columns: Sequence[int]) -> Array:
    """The cut points of ordinal columns that have equally many.

    Args:
        cut_points: of all ordinal columns, the event shape of `cut_points_prior`.
        counts: number of cut points of each ordinal column.
        columns: which of them, by their places among the ordinal ones.

    Returns:
        Shape (number of these columns, number of their cut points).
    """
    if are_equal(counts):
        return cut_points[np.asarray(columns)]
    ends = np.cumsum(counts)
    return cut_points[
        np.stack([np.arange(ends[column] - counts[column], ends[column]) for column in columns])
    ]


def are_equal(counts: tuple[int, ...]) -> bool:
    """Whether all ordinal columns have as many cut points, which then are a matrix.

    Args:
        counts: number of cut points of each ordinal column.

    Returns:
        True or False.
    """
    return len(set(counts)) == 1


def _is_first(sizes: tuple[int, ...]) -> np.ndarray:
    """Which entries are the first of their block."""
    return _places(sizes)[1] == 0


def _places(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The block of each entry, and its place in the block."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    return block, np.concatenate([np.arange(size) for size in sizes])
