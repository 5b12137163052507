"""The tables for a command: a data set of the catalogue, a file, or rows elsewhere, and their columns."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from inference.cli.naming import name_of
from inference.cli.printing import shape, size
from inference.inputs.sources import as_source, in_memory
from inference.inputs.tables import check_parts
from zoo.datasets.loading import load
from zoo.intake.files import as_table, read_tables
from zoo.model import Model
from zoo.naming import did_you_mean


def data_of(options: SimpleNamespace, *, texts: bool = False) -> tuple[str, tuple[Any, ...]]:
    """A short name for the data of a command, and their parts: tables, or a source that is read in batches.

    Raises:
        ValueError: no such column.
    """
    if not getattr(options, "in_batches", False):
        label = getattr(options, "id", None)
        name, data = select(options.files[0], options.x, options.y, options.views, options.read, label)
        others = [select(other, read=options.read) for other in options.files[1:]]  # joined by --id
        return " and ".join([name, *(own for own, _ in others)]), sum((part for _, part in others), data)
    source = as_source([Path(name) for name in options.files], texts=texts)
    if options.x is not None:
        source = source.taking(list(dict.fromkeys(_expanded(source.names or (), options.x))))
    if options.batch_size is None and options.command == "fit":
        source = in_memory(source)
        options.in_batches = hasattr(source, "holds_texts")
    return name_of(options.files), (source,)


def settle_parts(model: type[Model], settings: dict[str, Any], data: tuple[Any, ...]) -> None:
    """Add the families of views; ValueError for one view, TypeError for parts that a model does not take."""
    if isinstance(model.data_names, tuple):  # else the data say how many parts there are
        check_parts(model, data)
    elif len(data) < 2:
        raise ValueError(
            f"{model.__name__} is of two or more views of the same rows: name the columns of each, such as "
            "--views a,b c,d (or --x a,b --y c,d)"
        )
    else:
        settings.setdefault("families", ("auto",) * len(data))


def _expanded(names: Sequence[str], terms: Sequence[str]) -> Iterator[str]:
    """Names of columns, a run ``first:last`` as all of its names; ValueError for one that goes backwards."""
    for term in terms:
        first, _, last = term.partition(":")
        if term not in names and first in names and last in names:
            begin, end = names.index(first), names.index(last)
            if begin > end:
                raise ValueError(f"the columns {term!r} go backwards: write {last}:{first}")
            yield from names[begin : end + 1]
        else:
            yield term


def in_words(data: Sequence[Any], batch_size: int | None = None) -> str:
    """The data in words: rows, columns and parts."""
    source = data[0]
    if not hasattr(source, "holds_texts"):
        return "; ".join(map(shape, data))
    names = source.names or ()
    what = "texts" if source.holds_texts else "rows"
    columns = size(len(names), names) if names else ""
    several = f" from {len(source.files)} files" if len(source.files) > 1 else ""
    sizes = f" in batches of {batch_size}" if batch_size else " in batches"
    return f"{source.num_rows} {what}{columns}{several}{sizes}"


def select(
    source: str,
    x: Sequence[str] | None = None,
    y: Sequence[str] | None = None,
    views: Sequence[Sequence[str]] = (),
    read: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> tuple[str, tuple[Any, ...]]:
    """Read the data for ``model(*data)`` from a data set of the catalogue or a file.

    The column ``label`` goes with columns that are chosen by ``x`` or ``views``.

    Returns:
        A short name for the source, and a tuple of tables: DataFrames where columns have names, NumPy arrays
        where they have none, a SciPy sparse matrix for counts.

    Raises:
        ValueError: no such array or column, a file of another kind or cut short, or a choice that is needed
            and was not made.
    """
    if views and (x is not None or y is not None):
        raise ValueError("--views goes without --x and --y")
    name, tables = _open(source, read or {})
    if views:
        return name, tuple(_choose(tables, view, label) for view in views)
    outputs = None if y is None else _choose(tables, y)
    if x is None and len(tables) == 1 and outputs is not None and hasattr(outputs, "columns"):
        (table,) = tables.values()
        inputs = table.drop(columns=outputs.columns)
    else:
        inputs = _choose(tables, [_default(tables)]) if x is None else _choose(tables, x, label)
    return name, (inputs,) if outputs is None else (inputs, outputs)


def _open(source: str, read: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Open a source: its short name and its tables by name, a single table under the empty name."""
    path = Path(source)
    if path.suffix:
        return path.stem, read_tables(path, **read)
    if read:
        raise ValueError(f"--read is of files; {source} is a data set of the catalogue")
    dataset = load(source)
    return source, {
        key: as_table(key, dataset[key], dataset.columns.get(key), dataset.rows.get(key)) for key in dataset
    }


def _default(tables: dict[str, Any]) -> str:
    """Name of the table to use by default."""
    for key in ("x", "counts"):
        if key in tables:
            return key
    if len(tables) > 1:
        raise ValueError(f"choose what to fit with --x; the file has: {', '.join(tables)}")
    return next(iter(tables))


def _choose(tables: dict[str, Any], terms: Sequence[str], label: str | None = None) -> Any:
    """The columns that the terms name, side by side and in their order, after that of the rows' labels."""
    pieces = [_find(tables, term) for term in terms]
    if label is not None and not any(label in getattr(piece, "columns", ()) for piece in pieces):
        pieces = [_find(tables, label), *pieces]
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
    columns = {key: list(map(str, getattr(table, "columns", ()))) for key, table in tables.items()}
    for key, names in columns.items():
        found = list(_expanded(names, [term]))
        if found[0] in names:
            return tables[key].iloc[:, [names.index(name) for name in found]]
    known = [key for key in tables if key] + [name for names in columns.values() for name in names]
    more = f" and {len(known) - 30} more" if len(known) > 30 else ""
    near = did_you_mean(term, known)
    raise ValueError(f"there is no column {term!r}; there are: {', '.join(known[:30])}{more}{near}")
