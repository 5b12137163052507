"""Blocks of documents dealt out over devices, and sums over blocks wherever they lie.

A pass over documents is a sum over blocks that starts from zeros. Where the blocks lie on several devices
each sums its own, and one exchange adds them up: the same step runs on one device and on many.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inference.devices import spread

__all__ = ["BlockShards", "deal_out_blocks", "sum_over_blocks"]


class BlockShards(NamedTuple):
    """Blocks in equal shares over devices.

    Attributes:
        blocks: leaves with leading axes over shares and blocks.
    """

    blocks: Any


def sum_over_blocks(visit: Callable, zeros: Any, blocks: Any) -> Any:
    """What is left when every block has been visited.

    Args:
        visit: ``visit(total, block) -> (total, None)``, which adds to the total.
        zeros: the total of nothing.
        blocks: leaves with a leading axis over blocks, or `BlockShards`.
    """
    if not isinstance(blocks, BlockShards):
        return jax.lax.scan(visit, zeros, blocks)[0]
    shares = jax.vmap(lambda own: jax.lax.scan(visit, zeros, own)[0])(blocks.blocks)
    return jax.tree.map(lambda share: jnp.sum(share, axis=0), shares)


def deal_out_blocks(blocks: Any, empty: Any, num_devices: int) -> BlockShards:
    """Blocks in equal shares over the devices of this process.

    Args:
        blocks: leaves with a leading axis over blocks.
        empty: of each leaf the number that fills up blocks that hold nothing.
        num_devices: shares.
    """

    def put(leaf: Any, fill: int) -> jax.Array:
        leaf = np.asarray(leaf)
        missing = -leaf.shape[0] % num_devices
        filler = np.full((missing, *leaf.shape[1:]), fill, leaf.dtype)
        return spread(np.concatenate([leaf, filler]).reshape(num_devices, -1, *leaf.shape[1:]), num_devices)

    return BlockShards(jax.tree.map(put, blocks, empty))
