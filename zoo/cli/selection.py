"""Selection of the tables for a command: a data set of the catalogue or a file, and its columns."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.datasets import catalogue

__all__ = ["reading_options", "select", "terms_of"]

_ENDINGS = (".csv", ".tsv", ".txt", ".dat", ".xlsx", ".parquet", ".npz", ".nc")
_READ = {
    "separator": None,
    "decimal": {",": ",", ".": ".", "comma": ",", "point": "."},
    "header": {"yes": True, "no": False},
    "encoding": None,
    "skip_rows": {str(number): number for number in range(100)},
}


def reading_options(texts: Iterable[str]) -> dict[str, Any]:
    """Parse the values of ``--read``: how a file is to be read where it does not say so itself.

    Args:
        texts: as written, ``["decimal=,", "header=no"]``.

    Returns:
        Arguments of `zoo.datasets.read_table`.

    Raises:
        ValueError: an unknown option, one given twice, or a value that it does not take.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in _READ or not value:
            raise ValueError(f"--read takes NAME=VALUE with one of {', '.join(_READ)}; got {text!r}")
        if name in found:
            raise ValueError(f"--read {name} is given twice")
        words = _READ[name]
        if words is not None and value not in words:
            taken = " or ".join(words) if len(words) < 9 else f"{min(words)} to {list(words)[-1]}"
            raise ValueError(f"--read {name} takes {taken}; got {value!r}")
        found[name] = value if words is None else words[value]
    return found


def terms_of(option: str, text: str) -> list[str]:
    """The terms of an option such as ``--x a,b:d``; a name that holds a comma is put between quotes.

    Args:
        option: its name, for messages.
        text: as written.

    Returns:
        The terms, without spaces around them.

    Raises:
        ValueError: no term, an empty one, or one given twice.
    """
    terms = [term.strip() for term in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(terms) or not terms:
        raise ValueError(
            f"{option} has an empty name in {text!r}: write names of columns with one comma between, such as "
            f"{option} {','.join(filter(None, terms)) or 'age,income'}"
        )
    for term in terms:
        if terms.count(term) > 1:
            raise ValueError(f"{option} names {term!r} twice: write it once")
    return terms


def select(
    source: str,
    x: str | None = None,
    y: str | None = None,
    views: Sequence[str] | None = None,
    read: Mapping[str, Any] | None = None,
) -> tuple[str, tuple[Any, ...]]:
    """Read the data for ``model(*data)`` from a data set of the catalogue or a file.

    Args:
        source: name of a data set, or path to a file that `zoo.datasets.read_tables` reads.
        x: columns of the inputs: names of arrays or columns with commas between, ``first:last`` for a run.
        y: columns of the outputs, in the same form.
        views: columns of each view, in the same form.
        read: how to read a file, see `reading_options`.

    Returns:
        A short name for the source, and a tuple of tables: DataFrames where columns have names, NumPy arrays
        where they have none, a SciPy sparse matrix for counts.

    Raises:
        ValueError: no such data set, array or column, a file of another kind or cut short, or a choice that
            is needed and was not made.
        FileNotFoundError: there is no such file.
    """
    if views and (x is not None or y is not None):
        raise ValueError("--views goes without --x and --y")
    terms = {option: terms_of(option, text) for option, text in (("--x", x), ("--y", y)) if text is not None}
    viewed = [terms_of("--views", view) for view in views or ()]
    name, tables = _open(source, read or {})
    if viewed:
        return name, tuple(_choose(tables, view) for view in viewed)
    outputs = None if y is None else _choose(tables, terms["--y"])
    if x is not None:
        inputs = _choose(tables, terms["--x"])
    elif len(tables) == 1 and outputs is not None and hasattr(outputs, "columns"):
        (table,) = tables.values()
        inputs = table.drop(columns=outputs.columns)
    else:
        inputs = _choose(tables, [_default(tables)])
    return name, (inputs,) if outputs is None else (inputs, outputs)


def _open(source: str, read: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Open a source: its short name and its tables by name, a single table under the empty name."""
    if source in (names := catalogue()):
        from zoo.datasets import load
        from zoo.intake.files import as_table

        if read:
            raise ValueError(f"--read is of files; {source} is a data set of the catalogue")
        dataset = load(source)
        return source, {
            key: as_table(key, dataset[key], dataset.columns.get(key), dataset.rows.get(key))
            for key in dataset
        }
    path = Path(source)
    if not path.suffix or (path.suffix.lower() not in _ENDINGS and not path.exists()):
        raise ValueError(
            f"no data set is called {source!r}, and it is no path to a file ending in {', '.join(_ENDINGS)}; "
            f"the catalogue has: {', '.join(names)}"
        )
    if not path.exists():  # before pandas is imported
        raise FileNotFoundError(f"there is no file {source}")
    from zoo.datasets import read_tables

    return path.stem, read_tables(path, **read)


def _default(tables: dict[str, Any]) -> str:
    """Name of the table to use by default."""
    for key in ("x", "counts"):
        if key in tables:
            return key
    if len(tables) > 1:
        raise ValueError(f"choose what to fit with --x; the file has: {', '.join(tables)}")
    return next(iter(tables))


def _choose(tables: dict[str, Any], terms: Sequence[str]) -> Any:
    """The columns that the terms name, side by side and in their order."""
    import pandas as pd

    pieces = [_find(tables, term) for term in terms]
    if len(pieces) > 1:
        if len({len(piece) if hasattr(piece, "columns") else -1 for piece in pieces}) > 1:
            raise ValueError(
                f"the arrays {', '.join(terms)} differ in their number of rows, or one is sparse"
            )
        joined = pd.concat(pieces, axis=1)
        twice = joined.columns[joined.columns.duplicated()]
        if len(twice):
            raise ValueError(f"the column {twice[0]!r} is chosen twice by {', '.join(terms)}: name it once")
        return joined
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
    import difflib

    near = difflib.get_close_matches(term, known, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"there is no column {term!r}{meant}; there are: {', '.join(known[:30])}{more}")
