"""The group `observed_data`: a fit's data as variables, and back."""

from typing import Any

import numpy as np
import xarray as xr

from inference.results.files import Labels, dataset
from zoo.model import Model
from zoo.sparse import SparseCounts
from zoo.sparse_matrix import SparseMatrix

__all__ = ["observed_group", "restored_data"]

CELLS = ("document", "word", "count")
REAL_CELLS = ("row", "column", "value")


def observed_group(model: Model, data: tuple, labels: Labels) -> xr.Dataset:
    """Matrices by the names of their sites; sparse ones as their cells, over the dim ``nonzero``."""
    dims = dict(model.variable_dims) | dict.fromkeys(CELLS, ("nonzero",))
    variables: dict[str, Any] = {}
    attrs: dict[str, int] = {}
    bare: dict[str, Any] = {}
    for name, part in zip(model.data_names, data, strict=True):
        if isinstance(part, SparseCounts):
            variables |= {cell: np.asarray(getattr(part, cell)) for cell in CELLS}
            attrs = {"num_documents": part.shape[0], "num_words": part.shape[1]}
        elif isinstance(part, SparseMatrix):
            cells = part.to_scipy().tocoo(copy=False)
            bare = dict(zip(REAL_CELLS, (*cells.coords, cells.data), strict=True))
            attrs = {"num_observations": part.shape[0], "num_features": part.shape[1]}
        else:
            variables[name] = np.array(part)  # the caller may change his own later
    group = dataset(variables, dims, labels, attrs=attrs)
    return group.assign({name: ("nonzero", value) for name, value in bare.items()})  # numbered by themselves


def restored_data(group: xr.Dataset, model: Model) -> tuple:
    """The parts of the data that `observed_group` stored, as NumPy arrays or sparse as they were."""
    if "num_documents" in group.attrs:
        shape = (int(group.attrs["num_documents"]), int(group.attrs["num_words"]))
        return (SparseCounts(*(group[cell].to_numpy() for cell in CELLS), shape),)
    parts = {name: group[name].to_numpy() for name in model.data_names if name in group}
    if "num_observations" in group.attrs:
        shape = (int(group.attrs["num_observations"]), int(group.attrs["num_features"]))
        row, column, value = (group[cell].to_numpy() for cell in REAL_CELLS)
        parts["x"] = SparseMatrix.from_cells(row, column, value, shape)
    return tuple(parts[name] for name in model.data_names)
