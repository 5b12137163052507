"""Sums over rows in blocks that stay in the processor's cache.

A step that needs an N x K matrix (log densities, responsibilities) only to sum it over rows never has to
hold it: a scan over equal blocks of rows adds the blocks' sums. The last block is filled up with rows of
weight zero.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from inference.numerics.weighted_rows import (Rows, RowShards, unweighted, weight_of)
from zoo.sparse import SparseCounts

__all__ = ["map_rows", "row_limit", "sum_over_rows"]

BLOCK_ROWS = 2048
ROW_BYTES = 256e6  # anything per row that would take more is left out of a fit


def row_limit(num_bytes: float, name: str, keep: tuple[str, ...] = ()) -> bool:
    """Whether something per row is stored: it is small enough, or asked for by name."""
    return num_bytes < ROW_BYTES or name in keep


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
    zeros = jax.tree.map(
        lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, blocks[0], weights[0])
    )

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
    num_rows = x.shape[0]
    num_blocks = -(-num_rows // block_rows)
    padding = num_blocks * block_rows - num_rows
    padded = jnp.concatenate(
        [x, jnp.broadcast_to(x[:1], (padding, *x.shape[1:]))]
    )  # copies of a real row: finite in every formula
    weights = jnp.pad(weight, (0, padding))
    return padded.reshape(num_blocks, block_rows, *x.shape[1:]), weights.reshape(num_blocks, block_rows)
