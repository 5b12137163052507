"""Reading a data file: how the catalogue's description of a table or an archive becomes arrays.

A ``.csv`` has a header, an ``.npz`` is read without pickle; ``data/README.md`` lists what a description may
say.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

__all__ = ["read_arrays"]

Names = dict[str, tuple[str, ...]]


def read_arrays(path: Path, specs: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], Names, Names]:
    """The arrays of a file, as the entry ``arrays`` of the catalogue describes them.

    Args:
        path: a ``.csv`` or an ``.npz`` file.
        specs: name of an array to its description.

    Returns:
        The arrays by name, and the names of their columns and of their rows, by array, where there are any.
    """
    if path.suffix == ".csv":
        return _read_table(path, specs)
    arrays, columns = {}, {}
    with np.load(path, allow_pickle=False) as file:
        for key, spec in specs.items():
            arrays[key] = _from_archive(file, key, spec)
            if "columns_key" in spec:
                columns[key] = tuple(map(str, file[spec["columns_key"]]))
    return arrays, columns, {}


def _read_table(path: Path, specs: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], Names, Names]:
    """Arrays of a table; an empty cell is a missing number."""
    words = {spec["key"] for spec in specs.values() if spec.get("text")}
    titles = {spec["rows"] for spec in specs.values() if "rows" in spec}
    taken = titles | {spec["key"] for spec in specs.values() if "key" in spec}
    table = pd.read_csv(path, dtype=dict.fromkeys(words | titles, str))
    rows = dict.fromkeys(specs, tuple(table[titles.pop()])) if titles else {}
    arrays, columns = {}, {}
    for key, spec in specs.items():
        if "columns" not in spec:
            arrays[key] = _from_column(table[spec["key"]], spec)
            continue
        names = spec["columns"]
        if names == "others":
            names = [name for name in table.columns if name not in taken]
        arrays[key], columns[key] = table[names].to_numpy(np.float64), tuple(names)
    return arrays, columns, rows


def _from_column(column: pd.Series, spec: Mapping[str, Any]) -> np.ndarray:
    """Words as they are, or the numbers of classes."""
    if spec.get("text"):
        return column.fillna("").to_numpy(str)
    return (column.map(spec["values"]) if "values" in spec else column).to_numpy(np.int64)


def _from_archive(file: Mapping[str, np.ndarray], key: str, spec: Mapping[str, Any]) -> Any:
    if spec.get("sparse"):
        parts = (
            file["data"].astype(np.float64),
            file["indices"].astype(np.int32),
            file["indptr"].astype(np.int32),
        )
        return csr_matrix(parts, shape=tuple(file["shape"]))
    array = file[spec["key"]]
    if "bits" in spec:
        array = np.unpackbits(array, axis=1)[:, : spec["bits"]]
    if array.ndim == 1:
        return array.astype(np.int64)
    return array.reshape(len(array), -1).astype(np.float64)
