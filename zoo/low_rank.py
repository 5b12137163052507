r"""Natural parameters :math:`\Theta = U V^T + 1\mu^T` that are not made whole.

A table of N rows and D columns has N D of them and they follow from (N + D) K + D numbers. What is asked of
them here is one number for each row, a sum over its columns. Large tables are passed through in blocks of
rows that fit into a processor's cache: what a block computes on its way does not go through memory, and one
array of the table's size, the derivative in Theta, is all that is kept for the way back.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["LowRank"]

BLOCK_CELLS = 2**17  # 1 MiB in float64
LARGE_TABLE = 2**20  # cells; smaller tables are made whole


class LowRank(NamedTuple):
    """Theta by its factors.

    Attributes:
        latents: U, shape (num_observations, num_latents).
        loadings: V, shape (num_features, num_latents).
        loc: mu, shape (num_features,), or 0.
    """

    latents: Array
    loadings: Array
    loc: Array | float

    def whole(self) -> Array:
        """Theta, shape (num_observations, num_features)."""
        return self.latents @ self.loadings.T + self.loc

    def row_sums(self, function: Callable, *tables: Array) -> Array:
        """``function(theta, *tables)`` of all rows, computed in blocks of rows if the table is large.

        Args:
            function: of rows of Theta and of the tables; gives one number for each row.
            *tables: with as many rows.
        """
        num_rows, num_columns = self.latents.shape[0], self.loadings.shape[0]
        if num_rows * num_columns <= LARGE_TABLE:
            return function(self.whole(), *tables)
        size = max(1, BLOCK_CELLS // num_columns)
        count = num_rows // size

        def block(start: Array, latents: Array) -> Array:
            theta = latents @ self.loadings.T + self.loc
            own = (jax.lax.dynamic_slice_in_dim(table, start, latents.shape[0]) for table in tables)
            return function(theta, *own)

        def one(_: None, given: tuple) -> tuple[None, Array]:
            return None, block(*given)

        blocks = self.latents[: count * size].reshape(count, size, -1)
        sums = jax.lax.scan(one, None, (jnp.arange(count) * size, blocks))[1].ravel()
        if count * size == num_rows:
            return sums
        return jnp.concatenate([sums, block(jnp.asarray(count * size), self.latents[count * size :])])
