"""Selection of the tables for a command: a data set of the catalogue or a file, and its columns."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.datasets import catalogue, load

__all__ = ["select"]

_ENDINGS = (".csv", ".npz", ".nc", ".parquet")


def select(
    source: str, x: str | None = None, y: str | None = None, views: Sequence[str] | None = None
) -> tuple[str, tuple[Any, ...]]:
    """Read the data for ``model(*data)`` from a data set of the catalogue or a file.

    Args:
        source: name of a data set, or path to a ``.csv``, ``.npz``, ``.nc`` or ``.parquet`` file.
        x: columns of the inputs: names of arrays or columns with commas between, ``first:last`` for a run.
        y: columns of the outputs, in the same form.
        views: columns of each view, in the same form.

    Returns:
        A short name for the source, and a tuple of tables: DataFrames where columns have names, NumPy arrays
        where they have none, a SciPy sparse matrix for counts.

    Raises:
        ValueError: no such data set, array or column, a file of another kind or cut short, or a choice that
            is needed and was not made.
        FileNotFoundError: there is no such file.
    """
    if views and (x or y):
        raise ValueError("--views goes without --x and --y")
    name, tables = _open(source)
    if views:
        return name, tuple(_choose(tables, view) for view in views)
    outputs = None if y is None else _choose(tables, y)
    if x is not None:
        inputs = _choose(tables, x)
    elif len(tables) == 1 and outputs is not None and hasattr(outputs, "columns"):
        (table,) = tables.values()
        inputs = table.drop(columns=outputs.columns)
    else:
        inputs = _choose(tables, _default(tables))
    return name, (inputs,) if outputs is None else (inputs, outputs)


def _open(source: str) -> tuple[str, dict[str, Any]]:
    """Open a source: its short name and its tables by name, a single table under the empty name."""
    if source in (names := catalogue()):
        dataset = load(source)
        return source, {
            key: _as_table(key, dataset[key], dataset.columns.get(key), dataset.rows.get(key))
            for key in dataset
        }
    path = Path(source)
    if path.suffix not in _ENDINGS:
        raise ValueError(
            f"no data set is called {source!r}, and it is no path to a file ending in {', '.join(_ENDINGS)}; "
            f"the catalogue has: {', '.join(names)}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    try:
        tables = _read(path)
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{source} cannot be read as a {path.suffix} file ({error}): it was cut short or is of another "
            "kind; copy it again, or give it the ending that it is"
        ) from None
    if not tables:
        raise ValueError(f"{source} holds no tables; a fit's data are in its group observed_data")
    if not len(tables.get("", "a named table")):
        raise ValueError(f"{source} has no rows")
    return path.stem, tables


def _read(path: Path) -> dict[str, Any]:
    """Read the tables of a file by name, a single table under the empty name."""
    import pandas as pd

    if path.suffix in (".csv", ".parquet"):
        return {"": pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)}
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as file:
            return {key: _as_table(key, file[key]) for key in file.files if file[key].ndim in (1, 2)}
    import xarray as xr

    dataset = xr.load_dataset(path, engine="h5netcdf")
    tables = {str(k): v.to_pandas() for k, v in dataset.data_vars.items() if v.ndim in (1, 2)}
    return {k: t.to_frame(k) if isinstance(t, pd.Series) else t for k, t in tables.items()}


def _as_table(
    key: str, array: Any, columns: Sequence[str] | None = None, rows: Sequence[str] | None = None
) -> Any:
    """Convert a dense array to a DataFrame, a vector to one column; sparse matrices stay."""
    import pandas as pd

    if not hasattr(array, "ndim") or hasattr(array, "tocsr"):
        return array
    return pd.DataFrame(
        array,
        index=None if rows is None else list(rows),
        columns=[key] if array.ndim == 1 else None if columns is None else list(columns),
    )


def _default(tables: dict[str, Any]) -> str:
    """Name of the table to use by default."""
    for key in ("x", "counts"):
        if key in tables:
            return key
    if len(tables) > 1:
        raise ValueError(f"choose what to fit with --x; the file has: {', '.join(tables)}")
    return next(iter(tables))


def _choose(tables: dict[str, Any], terms: str) -> Any:
    """The columns that the terms name, side by side and in their order."""
    import pandas as pd

    pieces = [_find(tables, term.strip()) for term in terms.split(",")]
    if len(pieces) > 1:
        if len({len(piece) if hasattr(piece, "columns") else -1 for piece in pieces}) > 1:
            raise ValueError(f"the arrays of {terms} differ in their number of rows, or one is sparse")
        return pd.concat(pieces, axis=1)
    (table,) = pieces
    return table.to_numpy() if isinstance(getattr(table, "columns", None), pd.RangeIndex) else table


def _find(tables: dict[str, Any], term: str) -> Any:
    """The table or column of a name, or the run of columns ``first:last``."""
    if term in tables:
        return tables[term]
    first, _, last = term.partition(":")
    for table in tables.values():
        names = [str(column) for column in getattr(table, "columns", ())]
        if term in names:
            return table.iloc[:, [names.index(term)]]
        if first in names and last in names:
            return table.iloc[:, names.index(first) : names.index(last) + 1]
    known = [key for key in tables if key] + [
        str(c) for table in tables.values() for c in getattr(table, "columns", ())
    ]
    more = f" and {len(known) - 30} more" if len(known) > 30 else ""
    raise ValueError(f"there is no column {term!r}; there are: {', '.join(known[:30])}{more}")
