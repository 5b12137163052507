"""Weighted rows."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["RowShards", "Rows", "checked_weight", "unweighted", "weight_of"]


class Rows(NamedTuple):
    """Rows and their weights: a row of weight w counts as w copies of it.

    Attributes:
        x: the rows, shape (num_observations, num_features), or sparse counts.
        weight: shape (num_observations,), at least 0.
    """

    x: Any
    weight: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the rows."""
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
        """That of all rows, padding included."""
        return (self.x.shape[0] * self.x.shape[1], *self.x.shape[2:])


def unweighted(x: Any) -> Any:
    """The rows themselves."""
    return x.x if isinstance(x, Rows) else x


def weight_of(x: Any) -> Array:
    """The weight of each row, one where none is given."""
    return x.weight if isinstance(x, Rows) else jnp.ones(x.shape[0], jnp.result_type(float))


def checked_weight(sample_weight: Any, num_rows: int) -> np.ndarray:
    """The weights as float64.

    Raises:
        TypeError: they are not numbers.
        ValueError: another number of weights than rows, a weight that is negative or not finite, or no weight
            above zero.
    """
    try:
        weight = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"sample_weight must be numbers; got {type(sample_weight).__name__}") from None
    if weight.shape != (num_rows,):
        raise ValueError(f"sample_weight must have shape ({num_rows},), one for each row; got {weight.shape}")
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"sample_weight must be at least 0 and finite; row {row} has {weight[row]}")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to fit")
    return weight
