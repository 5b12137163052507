"""Arrays from the data that are passed to `fit`, and the names of their rows and columns.

Accepted: NumPy arrays, nested lists, pandas DataFrames (index and columns become coords), scipy sparse
matrices where the model takes counts (or real numbers, `zoo.sparse`), and None for a part that is
missing.
"""

from typing import Any

import numpy as np

from inference.inputs.text import read_documents
from zoo.checks import as_matrix
from zoo.model import Model
from zoo.sparse import SparseCounts, SparseMatrix

__all__ = ["as_arrays", "column_dims", "matching_columns"]

VIEW_DIMS = ("feature", "output")


def as_arrays(
    data: tuple, dims: tuple[str, ...] = VIEW_DIMS, names: tuple[str, ...] = ("x", "y")
) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Each part of the data as a float64 matrix, and coords by dim; documents as sparse counts.

    Args:
        data: the parts.
        dims: of the columns of each part.
        names: of the parts, for messages.

    Raises:
        TypeError: a column is not numeric, or there is no data.
        ValueError: a part is not two-dimensional.
    """
    if not data:
        raise TypeError("there is no data: call fit(model, x, ...)")
    if dims == ("word",):
        return read_documents(*data)
    arrays, coords = [], {}
    for part, dim, name in zip(data, dims, names, strict=False):
        if isinstance(part, SparseMatrix | SparseCounts):
            arrays.append(part)
            continue
        arrays.append(SparseCounts.from_matrix(part) if hasattr(part, "tocoo") else as_matrix(part, name))
        if hasattr(part, "columns"):
            coords[dim] = list(part.columns)
            coords.setdefault("observation", list(part.index))
    return tuple(arrays), coords


def column_dims(model: Model) -> tuple[str, ...]:
    """Dims of the columns of each part of a model's data."""
    return tuple(model.variable_dims[name][-1] for name in model.data_names)


def matching_columns(x: Any, features: np.ndarray) -> Any:
    """New rows with their columns in the order of the fit; a DataFrame is matched by name.

    Args:
        x: new rows.
        features: names of the fitted columns.

    Raises:
        ValueError: another number of columns, or a fitted column is missing.
    """
    if not hasattr(x, "columns"):
        return x
    named = {str(column): column for column in x.columns}
    missing = [str(name) for name in features if str(name) not in named]
    if missing:
        raise ValueError(
            f"new data lack the columns {', '.join(missing)} of the fit; they have {', '.join(named)}"
        )
    return x[[named[str(name)] for name in features]]
