r"""Natural parameters :math:`\Theta = U V^T + 1\mu^T` that are not made whole.

A table of N rows and D columns has N D of them and they follow from (N + D) K + D numbers. What is asked of
them here is one number for each row, a sum over its columns. Large tables are passed through in blocks of
rows that fit into a processor's cache: what a block computes on its way does not go through memory. One array
of the table's size, the derivative in Theta, is kept for the way back, or none where the derivative is given:
then a block's share of the gradient is computed with its value, as if every row counted once, which is what a
log density asks for; where rows count differently, the blocks are passed through again.
"""

from collections.abc import Callable
from functools import partial
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
        """Theta, shape (num_observations, num_features).

        Returns:
            Theta, shape (num_observations, num_features).
        """
        return self.latents @ self.loadings.T + self.loc

    @property
    def is_large(self) -> bool:
        """Whether the table is passed through in blocks."""
        return self.latents.shape[0] * self.loadings.shape[0] > LARGE_TABLE

    @property
    def _block_size(self) -> int:
        return max(1, BLOCK_CELLS // self.loadings.shape[0])

    def row_sums_with(self, slope: Callable, function: Callable, table: Array) -> Array:
        """`row_sums` of a function of Theta and one table whose derivative in Theta is given.

        Args:
            slope: ``slope(theta, table)``, the derivative of each row's number in its natural parameters, of
                the shape of ``theta``. Neither it nor ``function`` may depend on anything that is varied.
            function: ``function(theta, table)``, one number for each row.
            table: with as many rows; taken as constant.

        Returns:
            Shape (num_observations,).
        """
        loc = jnp.broadcast_to(self.loc, self.loadings.shape[:1])
        return _row_sums_with(slope, function, self.latents, self.loadings, loc, table)

    def row_sums(self, function: Callable, *tables: Array) -> Array:
        """``function(theta, *tables)`` of all rows, computed in blocks of rows if the table is large.

        Args:
            function: of rows of Theta and of the tables; gives one number for each row.
            *tables: with as many rows.

        Returns:
            Shape (num_observations,).
        """
        if not self.is_large:
            return function(self.whole(), *tables)
        num_rows, size = self.latents.shape[0], self._block_size
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


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _row_sums_with(
    slope: Callable, function: Callable, latents: Array, loadings: Array, loc: Array, table: Array
) -> Array:
    return LowRank(latents, loadings, loc).row_sums(function, table)


def _forward(
    slope: Callable, function: Callable, latents: Array, loadings: Array, loc: Array, table: Array
) -> tuple[Array, tuple]:
    """The sums, and what the way back needs: the gradients of their total, and where they were taken."""
    at = LowRank(latents, loadings, loc)
    weights = jnp.ones(latents.shape[0], latents.dtype)
    sums, of_latents, of_rest = _sums_and_gradients(slope, function, at, table, weights)
    return sums, (at, table, of_latents, of_rest)


def _sums_and_gradients(
    slope: Callable, function: Callable, at: LowRank, table: Array, weights: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Sums of rows; the gradient of each in its latents; that of their weighted total in loadings and loc."""
    num_rows, size = at.latents.shape[0], at._block_size
    count = num_rows // size

    def block(start: Array, latents: Array, weights: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        theta = latents @ at.loadings.T + at.loc
        own = jax.lax.dynamic_slice_in_dim(table, start, latents.shape[0])
        away = slope(theta, own)
        of_rest = away.T @ (latents * weights[:, None]), weights @ away
        return function(theta, own), away @ at.loadings, of_rest

    def one(total: tuple, given: tuple) -> tuple[tuple, tuple]:
        sums, of_latents, of_rest = block(*given)
        return jax.tree.map(jnp.add, total, of_rest), (sums, of_latents)

    def blocks(rows: Array) -> Array:
        return rows[: count * size].reshape(count, size, *rows.shape[1:])

    nothing = jnp.zeros_like(at.loadings), jnp.zeros_like(at.loc)
    given = jnp.arange(count) * size, blocks(at.latents), blocks(weights)
    total, (sums, of_latents) = jax.lax.scan(one, nothing, given)
    sums, of_latents = sums.ravel(), of_latents.reshape(count * size, -1)
    if count * size == num_rows:
        return sums, of_latents, total
    last = block(jnp.asarray(count * size), at.latents[count * size :], weights[count * size :])
    whole = jax.tree.map(jnp.add, total, last[2])
    return jnp.concatenate([sums, last[0]]), jnp.concatenate([of_latents, last[1]]), whole


def _backward(slope: Callable, function: Callable, kept: tuple, weights: Array) -> tuple:
    """Gradients of the weighted total; a second pass only where the weights differ.

    The second pass is a loop of at most one turn, which side by side under ``vmap`` is skipped where no lane
    needs it; both branches of a condition would be computed.
    """
    at, table, of_latents, of_rest = kept

    def again(carry: tuple) -> tuple:
        return jnp.asarray(False), _sums_and_gradients(slope, function, at, table, weights)[2]

    guess = jax.tree.map(lambda part: weights[0] * part, of_rest)
    differ = jnp.any(weights != weights[0])
    of_rest = jax.lax.while_loop(lambda carry: carry[0], again, (differ, guess))[1]
    return of_latents * weights[:, None], *of_rest, None


_row_sums_with.defvjp(_forward, _backward)
