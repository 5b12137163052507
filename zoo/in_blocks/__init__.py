"""Apply a function of one row, draw or key to all of them, block by block."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["map_in_blocks"]


def map_in_blocks(function: Callable, elements: Any, size: int) -> Any:
    """Return ``function(element)`` of every element, stacked, computed at most ``size`` elements at a time.

    Blocks have equal sizes, and the last is padded with copies of the first element, so that the function is
    compiled once. (`jax.lax.map` with a ``batch_size`` compiles it again for the remainder.)

    Args:
        function: takes one element, a pytree of arrays.
        elements: pytree of arrays, leading shape (num_elements,).
        size: the most elements in a block.

    Returns:
        What the function returns, each array with leading shape (num_elements,).
    """
    number = jax.tree.leaves(elements)[0].shape[0]
    count = -(-number // max(1, size))
    if count <= 1:
        return jax.vmap(function)(elements)
    size = -(-number // count)

    def blocks(leaf: Array) -> Array:
        extra = jnp.broadcast_to(leaf[:1], (count * size - number, *leaf.shape[1:]))
        return jnp.concatenate([leaf, extra]).reshape(count, size, *leaf.shape[1:])

    found = jax.lax.map(jax.vmap(function), jax.tree.map(blocks, elements))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:number], found)
