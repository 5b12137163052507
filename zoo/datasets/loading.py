"""Loading of a data set by its name in the catalogue."""

import hashlib
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zoo.datasets import catalogue, shipped_folder
from zoo.datasets.files import read_arrays
from zoo.datasets.generators import GENERATORS

__all__ = ["Dataset", "load"]


class Dataset(Mapping):
    """Arrays by name, with where they are from.

    ``dataset["x"]`` is a float64 NumPy array, rows first, NaN where a cell is missing; class numbers
    (``labels``) and ``split`` are integer arrays of one axis, categories in words (``region``) string arrays;
    word counts (``counts``) are a SciPy sparse matrix in compressed rows.

    Args:
        arrays: the data by name.
        entry: of the catalogue, with ``description``, ``citation`` and ``terms``.

    Attributes:
        name: name in the catalogue.
        description: what the rows and columns are, with units.
        citation: whom to cite.
        terms: what may be done with the data.
        columns: name of an array to the names of its columns, where they are known.
        rows: name of an array to the names of its rows, where they have names.
    """

    def __init__(
        self,
        name: str,
        arrays: Mapping[str, Any],
        entry: Mapping[str, Any],
        columns: Mapping[str, tuple[str, ...]],
        rows: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.name = name
        self.description: str = entry["description"]
        self.citation: str = entry["citation"]
        self.terms: str = entry["terms"]
        self.columns = dict(columns)
        self.rows = dict(rows)
        self._arrays = dict(arrays)

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._arrays:
            raise KeyError(f"{self.name} has no array {key!r}; it has: {', '.join(self._arrays)}")
        return self._arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{key} {array.shape}" for key, array in self._arrays.items())
        return f"Dataset({self.name!r}: {shapes})"

    def frame(self, key: str = "x") -> pd.DataFrame:
        """One array as a DataFrame with the names of its rows and columns, so that a fit names them.

        Args:
            key: name of the array.

        Returns:
            The table, shape as that of the array.
        """
        columns, rows = (names.get(key) for names in (self.columns, self.rows))
        return pd.DataFrame(
            self[key],
            index=None if rows is None else list(rows),
            columns=None if columns is None else list(columns),
        )


def load(name: str, **options: Any) -> Dataset:
    """A data set by its name in the catalogue.

    Args:
        name: see `catalogue`.
        **options: generated sets take ``seed``, an int (default 0); sets that the user holds take ``verify``,
            whether the file must have the SHA-256 of the catalogue (default True).

    Returns:
        The arrays by item access, with ``description`` and ``citation``.

    Raises:
        ValueError: no such data set, or a file that is not the one described.
        FileNotFoundError: a set that the user must provide; the message says how.
        ModuleNotFoundError: a set of a package that is not installed.
        TypeError: an option that the set does not take.

    Example:
        >>> load("faithful")["x"].shape
        (272, 2)
    """
    entries = catalogue()
    if name not in entries:
        raise ValueError(f"no data set is called {name!r}; the catalogue has: {', '.join(entries)}")
    entry = entries[name]
    taken = {"generated": {"seed"}, "user": {"verify"}}.get(entry["kind"], set())
    if options.keys() - taken:
        unknown = ", ".join(sorted(options.keys() - taken))
        raise TypeError(f"the data set {name} takes {', '.join(taken) or 'no options'}; got {unknown}")
    columns: dict[str, tuple[str, ...]] = {}
    rows: dict[str, tuple[str, ...]] = {}
    if entry["kind"] == "generated":
        arrays = GENERATORS[name](**options)
    elif entry["kind"] == "package":
        arrays = _from_scikit_learn(name, entry)
    else:
        path = (
            shipped_folder() / entry["file"]
            if entry["kind"] == "shipped"
            else _held_file(name, entry, **options)
        )
        arrays, columns, rows = read_arrays(path, entry["arrays"])
    for key, spec in entry["arrays"].items():
        if isinstance(spec.get("columns"), list):
            columns[key] = tuple(spec["columns"])
        if list(arrays[key].shape) != spec["shape"]:
            raise ValueError(f"{name}: {key} must have shape {tuple(spec['shape'])}; got {arrays[key].shape}")
    return Dataset(name, arrays, entry, columns, rows)


def _held_file(name: str, entry: Mapping[str, Any], verify: bool = True) -> Path:
    """The user's file of a set that may not be shipped, checked by its SHA-256."""
    folder = os.environ.get("ZOO_DATA")
    path = Path(folder or "", entry["file"])
    if not folder or not path.is_file():
        where = f"the folder {folder} has no {entry['file']}" if folder else "ZOO_DATA is not set"
        raise FileNotFoundError(
            f"the data set {name} is not shipped ({entry['terms'].rstrip('.')}) and {where}: get it from its "
            f"origin ({entry['origin']}), save it as {entry['file']} in the layout of data/README.md, and "
            "let ZOO_DATA name its folder"
        )
    if verify:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != entry["sha256"]:
            raise ValueError(
                f"{path} is not the file that the catalogue describes: its SHA-256 should be "
                f"{entry['sha256']} and is {found}; "
                f"if it is your own in the same layout, use load({name!r}, verify=False)"
            )
    return path


def _from_scikit_learn(name: str, entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Inputs and class numbers of a set that is bundled with scikit-learn."""
    try:
        bunch = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    except ModuleNotFoundError:
        package = entry["package"]
        raise ModuleNotFoundError(
            f"the data set {name} comes with {package}, which is not installed: pip install {package}"
        ) from None
    return {"x": bunch.data.astype(np.float64), "labels": bunch.target.astype(np.int64)}
