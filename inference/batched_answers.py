"""Answers of a fit for rows that lie elsewhere: asked batch by batch, joined or written to a file.

A batch is read, scored and written before the next one is scored; beside the fit no more than a few batches
are held, and where no file is named the answers. Errors and warnings say which rows they are of.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr

from inference.algorithm import TEXT_COLUMN
from inference.inputs.sources import as_passed, as_source, is_source, opened
from inference.inputs.streams import is_chunked, stacked
from inference.inputs.text import WordCounts
from inference.results.groups import labels_along
from inference.results.written_tables import table_file
from zoo.checks import check_size, warn
from zoo.intake.frames import as_frame
from zoo.model import Model
from zoo.sparse import SparseCounts

BATCH_ROWS = 100_000
BATCH_TEXTS = 1000
MOST_WARNINGS = 3  # of batches, that are told one by one


def is_asked_in_batches(model: Model, data: tuple, out: Any, batch_size: int | None) -> bool:
    """Whether an answer is asked for batch by batch.

    Args:
        model: of the fit.
        data: new data.
        out: where the answer is to be written, or None.
        batch_size: rows of a batch, or None.

    Returns:
        Whether one of these says so.
    """
    if out is not None or batch_size is not None:
        return True
    return len(data) == 1 and _is_elsewhere(data[0], model)


def _is_elsewhere(part: Any, model: Model) -> bool:
    if isinstance(part := as_frame(part), pd.DataFrame):
        return False
    part = as_passed(part, model)
    texts = isinstance(part, list | tuple) and bool(part) and all(isinstance(one, str) for one in part)
    if texts and model.data[0].holds_documents:
        return False
    return is_chunked(part) or is_source(opened(model, [part])[0])


def answered(
    ask: Callable[[Any], Any],
    tree: xr.DataTree,
    model: Model,
    data: tuple,
    out: str | os.PathLike | None,
    batch_size: int | None,
) -> Any:
    """The answers for all batches.

    Args:
        ask: ``ask(rows)``, the answer for rows in memory, a DataArray.
        tree: the fit.
        model: its model.
        data: new data of one part, in memory, in chunks or elsewhere.
        out: a file to write them to; None: they are joined in memory.
        batch_size: rows of a batch; None: 100 000, of texts 1000.

    Returns:
        The path of the file, or the answers joined.

    Raises:
        TypeError: data in several parts.
        ValueError: what ``ask`` raises, with the rows that it is of, no rows, or a file that holds rows of
            the data, a saved fit or a checkpoint.
    """
    data = opened(model, data, tree.attrs.get(TEXT_COLUMN))
    if out is not None:
        _check_not_read(out, data)
    found = answers(ask, tree, model, data, batch_size)
    if out is None:
        return _joined(list(found))
    with table_file(out) as write:
        for values in found:
            write(frame_of(values))
    return Path(out)


def _check_not_read(out: str | os.PathLike, data: tuple) -> None:
    """Raise ValueError if the answers would take the place of a file that the rows are read from."""
    for part in data:
        files = [file for own in part.parts for file in own.files] if is_source(part) else []
        files += [part.filename] if isinstance(part, np.memmap) and part.filename is not None else []
        for file in files:
            if os.path.exists(out) and os.path.exists(file) and os.path.samefile(out, file):
                raise ValueError(f"cannot write {out}: the data are read from it; choose another name")


def answers(
    ask: Callable[[Any], Any], tree: xr.DataTree, model: Model, data: tuple, batch_size: int | None
) -> Iterator[Any]:
    """The answer for one batch after another, its rows numbered as in the whole.

    Args:
        ask: ``ask(rows)``, the answer for rows in memory.
        tree: the fit.
        model: its model.
        data: new data of one part.
        batch_size: rows of a batch; None: 100 000, of texts 1000.

    Yields:
        The answers.

    Raises:
        TypeError: what ``ask`` raises, with the rows that it is of, or data in several parts.
        ValueError: what ``ask`` raises, with the rows that it is of.
    """
    if len(data) != 1:
        raise TypeError(f"rows are scored in batches where the data have one part; got {len(data)}")
    told = 0
    for begin, piece in pieces(tree, model, data[0], batch_size):
        end = begin + _length(piece)
        where = f"in rows {begin} to {end - 1} of the data (counted from 0)"
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            try:
                values = ask(piece)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {error}") from None
        for note in notes:
            told += 1
            if told <= MOST_WARNINGS:
                warn(f"{where}: {note.message}", note.category)
        is_labelled = hasattr(piece, "iloc") or getattr(piece, "documents", None) is not None
        if isinstance(values, xr.DataArray | xr.Dataset) and not is_labelled:
            values = values.assign_coords({next(iter(values.dims)): np.arange(begin, end)})
        yield values
    if told > MOST_WARNINGS:
        warn(f"{told - MOST_WARNINGS} more warnings like these, of other batches")


def pieces(tree: xr.DataTree, model: Model, part: Any, batch_size: int | None) -> Iterator[tuple[int, Any]]:
    """The rows in batches, each with the number of its first row.

    Args:
        tree: a fit, whose columns are read of a table that has more.
        model: its model.
        part: rows in memory, in chunks or elsewhere.
        batch_size: rows of a batch; None: 100 000, of texts 1000.

    Yields:
        The number of the first row, and the rows: a table, an array, counts or a list of texts.

    Raises:
        ValueError: no rows.
    """
    texts = model.data[0].holds_documents
    source = as_source(part, texts=texts)
    if batch_size is None:
        batch_size = BATCH_TEXTS if is_source(source) and source.holds_texts else BATCH_ROWS
    check_size("batch_size", batch_size)
    if is_source(source):
        source = _of_interest(source, tree, model)
    elif not is_chunked(source):
        source = _slices(source, batch_size)
    elif callable(source):
        source = source()
    begin, held = 0, []
    for chunk in source:
        while _length(chunk):
            room = batch_size - sum(map(_length, held))
            held.append(_sliced(chunk, 0, room))
            chunk = _sliced(chunk, room, _length(chunk))
            if _length(held[-1]) == room:
                yield begin, _stacked(held, begin)
                begin, held = begin + batch_size, []
    if held:
        yield begin, _stacked(held, begin)
    elif not begin:
        raise ValueError(f"{model.data_names[0]} has no rows: there is nothing to score or predict")


def frame_of(values: Any, prefix: str = "", *, deviations: bool = True) -> pd.DataFrame:
    """An answer as a table: its rows, and columns named by its second dim and by coordinates of the rows.

    Args:
        values: a DataArray of one or two dims.
        prefix: of the columns' names.
        deviations: whether the standard deviations of cells are columns too, named ``*_sd``.

    Returns:
        The table.

    Raises:
        TypeError: an answer of more dims.
    """
    if isinstance(values, xr.Dataset) or values.ndim > 2:
        raise TypeError("a table cannot hold covariances: leave out covariance=True, or out=")
    held = values.coords.get("standard_deviation")
    plain = values.drop_vars([name for name in values.coords if name not in values.dims])
    table = plain.to_pandas()
    table = table.to_frame(values.name or "value") if table.ndim == 1 else table
    table.columns = [f"{prefix}{name}" for name in table.columns]
    of_rows = {name for name, own in values.coords.items() if own.dims == values.dims[:1]} - {*values.dims}
    table = table.assign(**{str(name): values[name].to_numpy() for name in sorted(of_rows)})
    if deviations and held is not None and held.ndim == 2:
        table = table.join(held.drop_vars("standard_deviation").to_pandas().add_suffix("_sd"))
    table.index.name = values.dims[0]
    return table


def _of_interest(source: Any, tree: xr.DataTree, model: Model) -> Any:
    """The columns of a table that the fit knows, of which some may be lacking."""
    if source.names is None or (model.data[0].holds_documents and source.holds_texts):
        return source
    if model.data[0].holds_documents:
        column = tree.attrs.get(TEXT_COLUMN, source.names[0])
        return source.as_texts() if source.names == (column,) else source
    own = tree.fit.columns[0]
    dim = model.variable_dims[model.data_names[0]][1]
    wanted = (
        set(map(str, labels_along(tree, dim)))
        if own is None
        else {column.name for column in own.kept} | {own.label}
    )
    taken = [name for name in source.names if name in wanted]
    return source.taking(taken) if taken else source


def _slices(part: Any, batch_size: int) -> Iterator[Any]:
    return (_sliced(part, begin, begin + batch_size) for begin in range(0, _length(part), batch_size))


def _length(part: Any) -> int:
    return len(part) if isinstance(part, list | tuple) or not hasattr(part, "shape") else int(part.shape[0])


def _sliced(part: Any, begin: int, end: int) -> Any:
    if isinstance(part, SparseCounts):
        return part.rows(np.arange(begin, min(end, len(part))))
    if isinstance(part, WordCounts):
        return replace(
            part,
            counts=_sliced(part.counts, begin, end),
            documents=None if part.documents is None else part.documents[begin:end],
        )
    return part.iloc[begin:end] if hasattr(part, "iloc") else part[begin:end]


def _stacked(parts: list, begin: int) -> Any:
    """Slices of chunks as one."""
    first = parts[0]
    if isinstance(first, WordCounts):
        return replace(first, counts=stacked([part.counts for part in parts]))
    if isinstance(first, SparseCounts):
        return stacked(parts)
    if hasattr(first, "tocoo"):
        return scipy.sparse.vstack(parts, format="csr")
    if hasattr(first, "iloc"):
        joined = pd.concat(parts) if len(parts) > 1 else first
        if all(isinstance(part.index, pd.RangeIndex) for part in parts):
            joined = joined.set_axis(pd.RangeIndex(begin, begin + len(joined)), axis=0)
        return joined
    if isinstance(first, list | tuple):
        return [row for part in parts for row in part]
    return np.concatenate(parts)


def _joined(parts: list) -> Any:
    """The answers of all batches along their rows."""
    if len(parts) == 1:
        return parts[0]
    joined = xr.concat(parts, next(iter(parts[0].dims)), coords="minimal", compat="override", join="override")
    return joined.assign_attrs(parts[0].attrs)
