"""Weighted rows, and sums over them in blocks that stay in the processor's cache.

A step that needs an N x K matrix (log densities, responsibilities) only to sum it over rows never has to
hold it: a scan over equal blocks of rows adds the blocks' sums. The last block is filled up with rows of
weight zero.

Tables are padded to few sizes (`bucket`, `swept_size`), so that many share a program. An ascent sums over
weighted rows, and what is beside them has weight zero (`padded`). Where a state has rows too, as those of
samplers have, what is beside them has a mask of its own (`PaddedRows`): random numbers go by the row's place,
and those of a row do not depend on how many are drawn.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo.checks import as_numbers
from zoo.model import Model
from zoo.sparse import SparseCounts


class Rows(NamedTuple):
    """Rows and their weights: a row of weight w counts as w copies of it.

    Attributes:
        x: the rows, shape (num_observations, num_features), or sparse counts.
        weight: shape (num_observations,), at least 0.
    """

    x: Any
    weight: Array | np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows."""
        return self.x.shape


class RowShards(NamedTuple):
    """Weighted rows in equal shares over devices.

    Attributes:
        x: shape (num_shards, rows_per_shard, num_features).
        weight: shape (num_shards, rows_per_shard), zero for what fills the shares up.
    """

    x: Array
    weight: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all rows, padding included."""
        return (self.x.shape[0] * self.x.shape[1], *self.x.shape[2:])


class PaddedRows(NamedTuple):
    """Rows with copies of the first beside them, which are none, as steps of states with rows take them.

    Attributes:
        x: shape (size, num_features).
        num_rows: how many are rows, the first so many; a number of the program, not of its shapes.
    """

    x: Any
    num_rows: Array | int

    @property
    def is_row(self) -> Array:
        """Which are rows, shape (size,)."""
        return jnp.arange(self.x.shape[0]) < self.num_rows


def with_padding(x: Array | PaddedRows) -> Any:
    """The rows, what is beside them included."""
    return x.x if isinstance(x, PaddedRows) else x


def number_of(x: Array | PaddedRows) -> Array | int:
    """How many rows there are, without what is beside them."""
    return x.num_rows if isinstance(x, PaddedRows) else x.shape[0]


def only_rows(values: Array, x: Array | PaddedRows, other: Array | float = 0.0) -> Array:
    """Values of rows (first axis), with another number in place of what is beside them."""
    if not isinstance(x, PaddedRows):
        return values
    return jnp.where(x.is_row.reshape(-1, *[1] * (values.ndim - 1)), values, other)


def cells_of(x: Array | PaddedRows) -> Array:
    """The cells, of what is no row missing."""
    return only_rows(with_padding(x), x, jnp.nan)


def sum_of_rows(values: Array, x: Array | PaddedRows) -> Array:
    """The sum over rows (first axis) without what is beside them."""
    return jnp.sum(only_rows(values, x), axis=0)


def unweighted(x: Array | Rows) -> Any:
    """The rows without their weights."""
    return x.x if isinstance(x, Rows) else x


def weight_of(x: Array | Rows) -> Array:
    """The weight of each row, one where none is given."""
    return x.weight if isinstance(x, Rows) else jnp.ones(x.shape[0], jnp.result_type(float))


def checked_weight(sample_weight: Any, num_rows: int) -> np.ndarray:
    """The weights as float64.

    Raises:
        TypeError: they are not numbers.
        ValueError: another number of weights than rows, a weight that is negative or not finite, or no weight
            above zero.
    """
    if isinstance(sample_weight, str):
        raise TypeError("sample_weight must be numbers; got str")
    weight = as_numbers(sample_weight, "sample_weight")
    if weight.shape != (num_rows,):
        raise ValueError(f"sample_weight must have shape ({num_rows},), one for each row; got {weight.shape}")
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        missing = " (missing or masked)" if np.isnan(weight[row]) else ""
        label = (
            sample_weight.index[row]
            if hasattr(sample_weight, "index") and hasattr(sample_weight, "iloc")
            else row
        )
        raise ValueError(
            f"sample_weight must be at least 0 and finite; row {label} has {weight[row]}{missing}: 0 "
            "leaves a row out"
        )
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    return weight


BLOCK_ROWS = 2048
ROW_BYTES = 64e6  # anything per row that would take more is left out of a fit
ROW_OPERATIONS = 2**27  # of what is made of every row and draw after a fit of fewer iterations than draws


def row_width(model: Model) -> int:
    """The components, topics or latents that the density of a row is summed over.

    Args:
        model: the model.

    Returns:
        How many there are, at least one.
    """
    names = ("num_components", "num_topics", "num_latents")
    return max([1, *(int(getattr(model, name, None) or 1) for name in names)])


def row_limit(num_bytes: float, name: str, keep: tuple[str, ...] = ()) -> bool:
    """Whether something per row is stored: it is small enough, or asked for by name."""
    return num_bytes < ROW_BYTES or name in keep


def draws_of_rows_limit(
    num_draws: int, num_rows: int, width: int, num_iterations: int, name: str, keep: tuple[str, ...] = ()
) -> bool:
    """Whether something is made of every row and every draw, by sizes alone and never by a clock.

    Args:
        num_draws: of the fit.
        num_rows: of the data.
        width: numbers a row and draw take part in: components, topics or latents.
        num_iterations: of the fit; passes over the rows that it made anyway.
        name: of what is made.
        keep: names that are asked for.
    """
    is_cheap = num_draws <= num_iterations or num_draws * num_rows * width <= ROW_OPERATIONS
    return is_cheap or name in keep


_own_shapes: ContextVar[bool] = ContextVar("own_shapes", default=False)


@contextmanager
def in_own_shapes() -> Iterator[None]:
    """A context in which nothing is padded: each size of table and model has programs of its own."""
    token = _own_shapes.set(True)
    try:
        yield
    finally:
        _own_shapes.reset(token)


def shares_shapes() -> bool:
    """Whether rows and components are padded, so that many sizes share a program."""
    return not _own_shapes.get()


FEWEST_ROWS, MOST_ROWS = 512, 2**15  # of tables whose rows are padded: fewer than the first become as many
FEWEST_CELLS, MOST_DOUBLED = 2**12, 2**17  # of documents, up to which their number is a power of two
#: That smaller tables are padded to where steps cost much: each of a thousand sweeps pays for more.
SWEPT = (64, 96, 144, 216, 320)


def bucket(num_rows: int, fewest: int = FEWEST_ROWS, most: int = MOST_ROWS) -> int:
    """The number of rows that a table is padded to: at most an eighth more, or the fewest of a bucket."""
    if num_rows > most:
        return num_rows
    step = max(2 ** ((num_rows - 1).bit_length() - 4), fewest // 8)
    return max(-(-num_rows // step) * step, fewest)


def swept_size(num_rows: int) -> int:
    """The number of rows that a table is padded to where a step costs much for each."""
    return next((size for size in SWEPT if num_rows <= size), bucket(num_rows))


def power_of_two(number: int, fewest: int) -> int:
    """The next power of two, or the fewest: sizes that two tables share more often than a `bucket`."""
    return max(2 ** max(number - 1, 0).bit_length(), fewest)


def next_to_none(like: Array) -> Array:
    """A number so small that nothing changes if it is added, and of which one over it is finite."""
    return jnp.sqrt(jnp.finfo(like.dtype).tiny)


def beside_copies(part: Any, num_rows: int) -> np.ndarray:
    """Rows with copies of the first beside them, which are finite in every formula that the rows are."""
    part = np.asarray(part)
    more = num_rows - part.shape[0]
    return np.concatenate([part, np.broadcast_to(part[:1], (more, *part.shape[1:]))])


def beside_others[M: Any](model: M, data: tuple, num_rows: int) -> tuple[M, tuple]:
    """A model and dense parts with copies of the first row, or documents with empty ones, beside their rows.

    Documents have as many cells as others have, and the model no ``num_tokens``, since every corpus has its
    own. Other data stay as they are.
    """
    if all(isinstance(part, np.ndarray | Array) for part in data):
        data = tuple(jax.device_put(beside_copies(part, num_rows)) for part in data)
    elif all(isinstance(part, SparseCounts) for part in data):
        data = tuple(_beside_empty(part, num_rows) for part in data)
        model = model.replaced(num_tokens=None) if hasattr(model, "num_tokens") else model
    return model, data


def _beside_empty(counts: SparseCounts, num_rows: int) -> SparseCounts:
    number = counts.num_nonzeros
    more = (power_of_two if number <= MOST_DOUBLED else bucket)(number, FEWEST_CELLS) - number
    cells = [
        jax.device_put(np.pad(np.asarray(own), (0, more), constant_values=value))
        for own, value in zip(jax.tree.leaves(counts), (num_rows - 1, 0, 0), strict=True)
    ]
    return SparseCounts.tree_unflatten((num_rows, counts.shape[1]), cells)


def padded(data: tuple[Any]) -> tuple[Any]:
    """One part of weighted rows with copies of the first beside them that have weight zero, to a `bucket`.

    A step that sums over the rows has the same sums, but for rounding, and one program for many tables.
    """
    x = unweighted(data[0])
    if isinstance(x, SparseCounts):
        return data
    size = bucket(x.shape[0])
    weight = data[0].weight if isinstance(data[0], Rows) else np.ones(x.shape[0])
    return (Rows(beside_copies(x, size), np.pad(weight, (0, size - x.shape[0]))),)


def beside_rows[M: Model](model: M, data: tuple) -> tuple[M, tuple]:
    """The ``for_steps`` of a method whose states have rows: the parts, dense rows, as `PaddedRows`."""
    number = data[0].shape[0]
    if isinstance(data[0], SparseCounts) or number > MOST_ROWS:
        return model, data
    size = swept_size(number)
    return model, tuple(PaddedRows(beside_copies(x, size), np.asarray(number)) for x in data)


def sum_over_rows(function: Callable, x: Array | Rows | RowShards, block_rows: int = BLOCK_ROWS) -> Any:
    """The sum over blocks of ``function(rows, weight)``.

    Args:
        function: takes rows of shape (block_rows, ...) and their weights (block_rows,), zero for padding;
            returns a pytree of sums.
        x: shape (num_observations, ...), or `Rows`, whose weights are then those of the blocks, or
            `RowShards`: every device sums its own, and one exchange adds them up.
        block_rows: rows per block; with fewer rows in all there is one block and no padding.
    """
    if isinstance(x, RowShards):
        shares = jax.vmap(lambda rows, weight: sum_over_rows(function, Rows(rows, weight), block_rows))(*x)
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), shares)
    num_rows = x.shape[0]
    if num_rows <= block_rows or isinstance(unweighted(x), SparseCounts):
        return function(unweighted(x), weight_of(x))
    blocks, weights = _blocks(unweighted(x), weight_of(x), block_rows)
    shapes = jax.eval_shape(function, blocks[0], weights[0])
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def add(total: Any, block: tuple) -> tuple:
        return jax.tree.map(jnp.add, total, function(*block)), None

    return jax.lax.scan(add, zeros, (blocks, weights))[0]


def map_rows(function: Callable, x: Array | Rows, block_rows: int = BLOCK_ROWS) -> Any:
    """``function(rows)`` of each block, stacked along rows again, shape (num_observations, ...).

    Results are written in place, the last block over the end of the one before it: nothing is held twice.
    """
    x = unweighted(x)
    num_rows = x.shape[0]
    if num_rows <= block_rows or isinstance(x, SparseCounts):
        return function(x)
    shapes = jax.eval_shape(function, x[:block_rows])
    stacked = jax.tree.map(lambda s: jnp.zeros((num_rows, *s.shape[1:]), s.dtype), shapes)

    def write(number: Array, stacked: Any) -> Any:
        start = jnp.minimum(number * block_rows, num_rows - block_rows)
        values = function(jax.lax.dynamic_slice_in_dim(x, start, block_rows))
        return jax.tree.map(
            lambda leaf, value: jax.lax.dynamic_update_slice_in_dim(leaf, value, start, 0), stacked, values
        )

    return jax.lax.fori_loop(0, -(-num_rows // block_rows), write, stacked)


def _blocks(x: Array, weight: Array, block_rows: int) -> tuple[Array, Array]:
    padding = -x.shape[0] % block_rows
    filler = jnp.broadcast_to(x[:1], (padding, *x.shape[1:]))  # copies of a real row: finite in every formula
    padded, weights = jnp.concatenate([x, filler]), jnp.pad(weight, (0, padding))
    return padded.reshape(-1, block_rows, *x.shape[1:]), weights.reshape(-1, block_rows)
