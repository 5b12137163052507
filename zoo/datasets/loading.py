"""Loading of data sets of the catalogue: from files, from other packages and from seeded generators.

The catalogue describes the arrays of a file (`read_arrays`): a ``.csv`` has a header, an ``.npz`` is read
without pickle, and ``data/README.md`` lists the keys of a description. The generators draw the synthetic data
of the papers.
"""

import hashlib
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from zoo.datasets import catalogue, shipped_folder


class Dataset(Mapping):
    """Arrays by name, with their origin.

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
        """One array as a DataFrame with the names of its rows and columns, which a fit then uses.

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
    """Load a data set by its name in the catalogue.

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
                f"if it is another file in the same layout, use load({name!r}, verify=False)"
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


def _toy_gaussians(seed: int = 0) -> dict[str, np.ndarray]:
    """Fifty points from each of the five Gaussians of Yu (2006), section 2.1.3."""
    means = [(3, 3), (3, 8), (5, 6), (7, 7), (8, 4)]
    covariances = [
        [[0.4, -0.3], [-0.3, 0.6]],
        [[1.0, 0.0], [0.0, 0.2]],
        [[0.4, -0.3], [-0.3, 0.8]],
        [[0.7, 0.3], [0.3, 0.6]],
        [[0.3, -0.2], [-0.2, 0.8]],
    ]
    rng = np.random.default_rng(seed)
    rows = [
        rng.multivariate_normal(m, c, size=50, method="cholesky")
        for m, c in zip(means, covariances, strict=True)
    ]
    return {"x": np.concatenate(rows), "labels": np.repeat(np.arange(5), 50)}


def _pcp_corpus(seed: int = 0) -> dict[str, Any]:
    """Documents of the probabilistic clustering-projection model (Yu 2006, section 9.1), settings ours.

    Six topics ~ Dirichlet(0.05) over 200 words, five clusters ~ Dirichlet(0.1) over the topics, 300 documents
    of uniformly drawn clusters and Poisson(60) + 5 words.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(200, 0.05), size=6)
    clusters = rng.dirichlet(np.full(6, 0.1), size=5)
    labels = rng.integers(5, size=300)
    lengths = rng.poisson(60, size=300) + 5
    counts = rng.multinomial(lengths, (clusters @ topics)[labels]).astype(np.float64)
    return {"counts": csr_matrix(counts), "labels": labels}


def _binary_prototypes(seed: int = 0) -> dict[str, np.ndarray]:
    """Noisy copies of binary prototypes in three categories (Qiao et al., section VI-A).

    Each category has a mean of 0.9, 0.5 or 0.1 and three prototypes of 16 bits drawn with it; each prototype
    has 50 copies, of which every bit is flipped with probability 0.1.
    """
    rng = np.random.default_rng(seed)
    means = np.repeat([0.9, 0.5, 0.1], 3)
    prototypes = rng.random((9, 16)) < means[:, None]
    clean = np.repeat(prototypes, 50, axis=0)
    x = clean ^ (rng.random(clean.shape) < 0.1)
    number = np.repeat(np.arange(9), 50)
    return {
        "x": x.astype(np.float64),
        "labels": number // 3,
        "prototype": number,
        "prototypes": prototypes.astype(np.float64),
    }


GENERATORS = {
    "binary_prototypes": _binary_prototypes,
    "pcp_corpus": _pcp_corpus,
    "toy_gaussians": _toy_gaussians,
}


Names = dict[str, tuple[str, ...]]


def read_arrays(path: Path, specs: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], Names, Names]:
    """The arrays of a file, as the entry ``arrays`` of the catalogue describes them."""
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
    """Read the arrays of a table, in which an empty cell is a missing number."""
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
    """Convert a column to words or to the numbers of classes."""
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
