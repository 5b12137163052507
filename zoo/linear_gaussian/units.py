"""The origin and the unit of rows that a linear-Gaussian model reads off its data."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from zoo.model import Model
from zoo.sparse import SparseMatrix

__all__ = ["taken_over", "units_of"]


def units_of(x: Array | SparseMatrix | None) -> tuple[Array, Array]:
    """The origin and the unit of rows under a flat prior: the columns' means and their mean deviation.

    Args:
        x: rows, shape (num_observations, num_features), NaN where missing; without them, and of sparse rows,
            whose means are near zero, they are 0 and 1.

    Returns:
        Shapes (num_features,) and ().
    """
    if x is None or isinstance(x, SparseMatrix):
        return jnp.zeros(()), jnp.ones(())
    return jnp.nanmean(x, axis=0), jnp.sqrt(jnp.mean(jnp.nanvar(x, axis=0)))


def taken_over(model: Model, former: Model, names: Sequence[str]) -> dict[str, Any]:
    """The fields that are not given and that a former fit read off its data.

    Args:
        model: of the new fit, before it sees data.
        former: of the former fit.
        names: of the fields.

    Returns:
        Field name to value.
    """
    open_ones = (name for name in names if getattr(model, name) is None)
    return {name: getattr(former, name) for name in open_ones if getattr(former, name) is not None}
