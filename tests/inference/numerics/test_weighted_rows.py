"""Sums over rows, and what is made of each, in blocks and shares: as of all rows at once."""

import jax.numpy as jnp
import numpy as np

from inference.numerics.weighted_rows import Rows, RowShards, map_rows, sum_over_rows

ROWS = np.arange(22.0).reshape(11, 2)  # small whole numbers: no sum of them is rounded
WEIGHT = np.linspace(0.5, 5.5, 11)


def _sums(x, weight):
    return {"first": weight @ x, "second": (weight[:, None] * x).T @ x, "number": jnp.sum(weight)}


def test_sums_of_blocks_and_of_shares_are_those_of_all_rows():
    """Blocks of four, the last filled up; three shares of four rows, one of weight zero."""
    whole = {"first": WEIGHT @ ROWS, "second": (WEIGHT[:, None] * ROWS).T @ ROWS, "number": WEIGHT.sum()}
    x, weight = jnp.asarray(ROWS), jnp.asarray(WEIGHT)
    padded, weights = np.concatenate([ROWS, ROWS[:1]]), np.append(WEIGHT, 0.0)
    shards = RowShards(jnp.asarray(padded.reshape(3, 4, 2)), jnp.asarray(weights.reshape(3, 4)))
    in_blocks = sum_over_rows(_sums, Rows(x, weight), block_rows=4)
    of_shares = sum_over_rows(_sums, shards)
    of_blocks_of_shares = sum_over_rows(_sums, shards, block_rows=3)
    for name, value in whole.items():
        for found in (in_blocks, of_shares, of_blocks_of_shares):
            np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(sum_over_rows(_sums, x, block_rows=4)["first"], ROWS.sum(0))


def test_what_is_made_of_blocks_is_what_is_made_of_each_row():
    """Eleven rows in blocks of four: the last block begins within the one before."""
    found = map_rows(lambda rows: jnp.stack([rows[:, 0] * 2, rows[:, 1] ** 2], 1), ROWS, block_rows=4)
    np.testing.assert_array_equal(found, np.stack([ROWS[:, 0] * 2, ROWS[:, 1] ** 2], 1))
