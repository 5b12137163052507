"""Checks of inputs and outputs that belong together: what was expected, what came, and where."""

from typing import Any

import numpy as np

from zoo.sparse_matrix import SparseMatrix, as_rows
from zoo.validation import check_infinite, check_not_constant

__all__ = ["check_latents_fit", "check_observed", "check_pair", "sparse_inputs"]


def check_pair(
    x: np.ndarray, y: np.ndarray | None, num_features: int | None, num_outputs: int | None
) -> None:
    """Raise ValueError unless x and y are finite or missing, as wide as they should be and equally long.

    Args:
        x: inputs, shape (num_observations, num_features).
        y: outputs, or None where there are none.
        num_features: what ``x`` must have; None: anything.
        num_outputs: what ``y`` must have; None: anything.
    """
    for name, part, size in (("x", x, num_features), ("y", y, num_outputs)):
        if part is None:
            continue
        if size is not None and part.shape[1] != size:
            raise ValueError(f"{name} must have {size} columns; got {part.shape[1]}")
        if not isinstance(part, SparseMatrix):  # which is finite
            check_infinite(part, name)
    if y is not None and y.shape[0] != x.shape[0]:
        raise ValueError(f"x and y must have the same rows; x has {x.shape[0]} and y has {y.shape[0]}")


def check_observed(x: np.ndarray, y: np.ndarray, *, check_x_columns: bool = True) -> None:
    """Raise ValueError naming a column without variance or observed cell, or a row without any cell.

    Args:
        x: inputs, shape (num_observations, num_features).
        y: outputs, shape (num_observations, num_outputs).
        check_x_columns: whether columns of ``x`` must vary.
    """
    if np.isnan(y).all():
        raise ValueError("every cell of y is missing: without outputs the model is zoo.PPCA")
    for name, part in (("x", x), ("y", y)):
        if isinstance(part, SparseMatrix):
            check_not_constant(part, name)
            continue
        empty = np.flatnonzero(np.isnan(part).all(axis=0))
        if empty.size:
            raise ValueError(f"column {empty[0]} of {name} has no observed cell; leave it out")
        if name == "y" or check_x_columns:
            check_not_constant(part, name)
    if isinstance(x, SparseMatrix):
        return
    empty = np.flatnonzero(np.isnan(x).all(axis=1) & np.isnan(y).all(axis=1))
    if empty.size:
        raise ValueError(f"row {empty[0]} has no observed cell in x or y; leave it out")


def check_latents_fit(num_latents: int, num_rows: int, num_features: int | None) -> None:
    """Raise ValueError unless there are fewer latents than rows and than features (None: no such limit).

    Args:
        num_latents: K.
        num_rows: N.
        num_features: M, or None.
    """
    for limit, what in ((num_rows, "rows"), (num_features, "columns of x")):
        if limit is not None and num_latents >= limit:
            raise ValueError(f"num_latents must be below the number of {what}, {limit}; got {num_latents}")


def sparse_inputs(model: Any, x: Any) -> SparseMatrix:
    """Sparse inputs, where the model takes them.

    Args:
        model: a `zoo.SPPCA`.
        x: inputs, sparse.

    Returns:
        Shape (num_observations, num_features).

    Raises:
        ValueError: with a kernel, a prior of the loadings, or outputs that are not Gaussian.
    """
    if model.kernel is not None:
        raise ValueError(
            "a kernel takes dense x: zoo.gram_matrices.gram_matrix makes the Gram matrix of sparse x, to be "
            "fitted with kernel='precomputed'"
        )
    for name, needed in (("loading_prior", "flat"), ("output_likelihood", "gaussian")):
        if getattr(model, name) != needed:
            raise ValueError(f"sparse x goes with {name}={needed!r}; got {getattr(model, name)!r}")
    return as_rows(x)
