"""Rows that lie elsewhere, read again for every pass: files, folders, Arrow, Zarr and Dask.

===========================================  ==============================  =================================
what is passed                               read as                         extra
===========================================  ==============================  =================================
``.parquet`` files, or a folder of them      a table                         ``parquet`` (pyarrow)
``pyarrow.dataset.Dataset``, a Table         a table                         ``parquet`` (pyarrow)
``.csv``, ``.tsv``, ``.txt``, ``.dat``,      a table, one file at a time     ``excel`` for ``.xlsx``
``.xlsx``, ``.npz``, ``.nc`` files
``.npy`` files                               an array                        none
a ``.zarr`` folder, ``zarr.Array``           an array                        ``zarr``
``dask.array.Array``                         an array                        ``dask``
``dask.dataframe.DataFrame``                 a table                         ``dask``
a folder of texts, or a list of their paths  a document each (topic models)  scikit-learn counts the words
===========================================  ==============================  =================================

A path is a string or a ``pathlib.Path``; ``*`` and ``?`` in it stand for names, as in a shell. Several files
are given as a list, and are read in its order; those of a folder in the order of their names. Names that
begin with ``.`` or ``_`` are passed over in a folder, as Spark and Arrow do, and so are files and partitions
without rows. Folders named ``year=2024`` are a column of the tables in them. For a topic model a list of
strings is a list of texts: give the paths of files as ``pathlib.Path``.

`open_rows` makes such a source and takes some of its columns. A library is imported only when one of its
objects, or a file of its kind, is passed. Files are looked at again at every pass: one that has changed
since (time or size), or gives other rows, is an error, because a fit adds up passes over the same rows. A
file of text is held whole while it is read: large ones are better split, or written as Parquet.
``pyarrow.dataset`` reads the Parquet files here, and could read of the rest neither arrays nor workbooks nor
documents; its reader of CSV guesses no separator, header or decimal mark.
"""

import copy
import glob
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from inference.inputs.reading_ahead import read_ahead
from inference.inputs.text import as_counted
from zoo.checks import check_unique, shown, words_of
from zoo.datasets import read_table
from zoo.intake import Columns
from zoo.intake.files import ENDINGS, EXTRAS, require
from zoo.intake.frames import as_frame
from zoo.model import Model

READ_CELLS = 2**20  # of a chunk, about
TEXTS_AT_ONCE = 500
PATTERN = re.compile(r"[*?\[]")
TABLES = tuple(ending for ending in ENDINGS if ending != ".parquet")
KNOWN = (*ENDINGS, ".npy", ".zarr")


@dataclass(frozen=True)
class SourcePart:
    """A file, a partition, or an array.

    Attributes:
        label: its name in messages.
        read: ``read(columns, rows)``, its chunks in order, of about so many rows (None: as suits memory):
            tables with these columns (None: all), arrays, or lists of texts.
        names: of the columns of a table, where they are known without reading it.
        num_rows: where it is known without reading it.
        files: that must not change.
    """

    label: str
    read: Callable[[Sequence[str] | None, int | None], Iterator[Any]]
    names: tuple[str, ...] | None = None
    num_rows: int | None = None
    files: tuple[Path, ...] = ()


class Source:
    """Rows in chunks, read from the beginning as often as it is iterated over, ahead in a thread.

    Args:
        parts: where the rows lie, in order.
        kind: ``"table"``, ``"array"`` or ``"texts"``.

    Attributes:
        names: of the columns, in order; None of arrays and texts.
        columns: what the columns of a table hold, and how chunks become numbers; None: they come as they are.
        holds_texts: whether chunks are lists of texts.

    Raises:
        ValueError: parts with different columns.
    """

    def __init__(self, parts: Sequence[SourcePart], kind: str) -> None:
        """Look at the files; nothing is read but the beginning of a table whose columns are not known."""
        self.parts, self.kind = tuple(parts), kind
        self.columns: Columns | None = None
        self.holds_texts = kind == "texts"
        self._chosen, self._rows = False, None
        known = [part.num_rows for part in parts]
        self._num_rows = None if None in known else sum(known)
        self._stamps = {file: _stamp(file) for part in parts for file in part.files}
        self.names = None
        if kind == "table":
            self.names = parts[0].names or tuple(map(str, next(self._read_raw()).columns))
            check_unique(self.names, parts[0].label)
            for part in parts[1:]:
                if part.names is not None:
                    self._check_names(part.names, part.label)

    def taking(self, columns: Sequence[str]) -> Self:
        """The same rows with some columns only.

        Args:
            columns: their names, in the order that is wanted.

        Returns:
            The source.

        Raises:
            TypeError: the rows have no names of columns.
            ValueError: no such column, none, or one named twice.
        """
        if self.names is None:
            raise TypeError(f"columns go with tables; {self} has no names of columns")
        columns = list(map(str, columns))
        if not columns:
            raise ValueError(f"no column of {self} is taken: name one of {', '.join(self.names)}")
        for name in columns:
            if name not in self.names:
                raise ValueError(f"{self} has no column {name!r}; there are {shown_names(self.names)}")
            if columns.count(name) > 1:
                raise ValueError(f"the column {name!r} is taken twice: name it once")
        return self._but(names=tuple(columns), _chosen=True)

    def read_by(self, columns: Columns | None) -> Self:
        """The same rows as numbers.

        Args:
            columns: what the columns hold; None: chunks as they are.

        Returns:
            The source.
        """
        return self._but(columns=columns)

    def in_chunks_of(self, rows: int) -> Self:
        """The same rows, read in chunks of about so many where that costs nothing.

        Args:
            rows: of a chunk.

        Returns:
            The source.
        """
        return self._but(_rows=rows)

    def as_texts(self) -> Self:
        """The rows of a table of one column as texts.

        Returns:
            The source.
        """
        return self._but(holds_texts=True)

    def _but(self, **attributes: Any) -> Self:
        """The source with other values of attributes."""
        new = copy.copy(self)
        vars(new).update(attributes)
        return new

    @property
    def num_rows(self) -> int:
        """How many rows there are; read once where this is not known."""
        if self._num_rows is None:
            for _ in read_ahead(self._read_raw):
                pass
        return self._num_rows

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        return tuple(self._stamps)

    def __iter__(self) -> Iterator[Any]:
        """The chunks of one pass: arrays, tables whose index counts the rows from 0, or lists of texts.

        Raises:
            ValueError: a file that has changed or cannot be read, a part with other columns than the first,
                or another number of rows than at the pass before.
        """
        for chunk in read_ahead(self._read_raw):
            if self.holds_texts:
                yield chunk if isinstance(chunk, list) else _texts_of(chunk)
            else:
                yield chunk if self.columns is None else self.columns.encoded(chunk)

    def first(self) -> Any:
        """The first chunk, as it is.

        Raises:
            ValueError: there are no rows.
        """
        chunk = next(self._read_raw(), None)
        if chunk is None:
            raise ValueError(f"{self} has no rows")
        return chunk

    def picked(self, rows: np.ndarray) -> np.ndarray:
        """Some rows as numbers, by one pass.

        Args:
            rows: their numbers, rising, shape (num_picked,).

        Returns:
            Shape (num_picked, num_features).
        """
        found, begin = [], 0
        for chunk in self:
            end = begin + _num_rows_of(chunk)
            own = rows[np.searchsorted(rows, begin) : np.searchsorted(rows, end)] - begin
            if own.size:
                taken = chunk.iloc[own] if hasattr(chunk, "iloc") else chunk[own]
                found.append(np.asarray(taken, dtype=np.float64))
            begin = end
        return np.concatenate(found)

    def column(self, name: str) -> np.ndarray:
        """The cells of one column of numbers, all of them, by one pass.

        Args:
            name: of the column.

        Returns:
            Shape (num_rows,), NaN where a cell is missing.

        Raises:
            TypeError: the column holds something else.
        """
        own = self.taking([name])
        cells = [chunk.iloc[:, 0] for chunk in read_ahead(own._read_raw)]
        for chunk in cells:
            if not pd.api.types.is_numeric_dtype(chunk.dtype):
                raise TypeError(f"the column {name!r} must hold numbers; it has {shown(chunk.iloc[0])}")
        self._num_rows = own._num_rows
        return np.concatenate([chunk.to_numpy(dtype=np.float64, na_value=np.nan) for chunk in cells])

    def __str__(self) -> str:
        """The first part and how many there are."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"{self.parts[0].label}{more}"

    def _read_raw(self) -> Iterator[Any]:
        begin, width = 0, None
        for part in self.parts:
            self._check_unchanged(part)
            own = 0
            for chunk in self._chunks_of(part):
                count = _num_rows_of(chunk)
                if not count:
                    continue
                if self.kind == "table":
                    chunk = self._suited(chunk, part.label, begin)
                elif self.kind == "array":
                    width = chunk.shape[1] if width is None else width
                    if chunk.shape[1] != width:
                        raise ValueError(
                            f"{part.label} has {chunk.shape[1]} columns, and {self.parts[0].label} "
                            f"has {width}"
                        )
                own, begin = own + count, begin + count
                yield chunk
            self._check_unchanged(part)
            if part.num_rows not in (None, own):
                raise ValueError(f"{part.label} gave {own} rows, and had {part.num_rows} when it was opened")
        if not begin:
            raise ValueError(f"{self} has no rows")
        if self._num_rows not in (None, begin):
            raise ValueError(f"{self} gave {self._num_rows} rows at first and {begin} later")
        self._num_rows = begin

    def _chunks_of(self, part: SourcePart) -> Iterator[Any]:
        """The chunks of a part; what its library says of a damaged one, with the part's name."""
        try:
            yield from part.read(self.names, self._rows)
        except (ValueError, TypeError, FileNotFoundError, MemoryError):
            raise
        except Exception as error:
            raise ValueError(f"{part.label} cannot be read: {type(error).__name__}: {error}") from error

    def _suited(self, chunk: pd.DataFrame, label: str, begin: int) -> pd.DataFrame:
        """The columns that are wanted in their order, the rows numbered."""
        if self.names is not None:
            self._check_names(tuple(map(str, chunk.columns)), label)
            if tuple(chunk.columns) != self.names:
                have = {str(name): name for name in chunk.columns}
                chunk = chunk[[have[name] for name in self.names]].set_axis(list(self.names), axis=1)
        return chunk.set_axis(pd.RangeIndex(begin, begin + len(chunk)), axis=0)

    def _check_names(self, names: tuple[str, ...], label: str) -> None:
        if names == self.names:
            return
        check_unique(names, label)
        lacking = [name for name in self.names if name not in names]
        strange = [] if self._chosen else [name for name in names if name not in self.names]
        if lacking:
            raise ValueError(
                f"{label} lacks the column {lacking[0]!r} of {self.parts[0].label}: all parts must have the "
                f"same columns, in any order; this one has {shown_names(names)}. On the command line "
                "tables of the same rows, each with columns of its own, go by --id COLUMN"
            )
        if strange:
            raise ValueError(
                f"{label} has the column {strange[0]!r}, which {self.parts[0].label} lacks: all parts must "
                "have the same columns, or name those that are wanted (open_rows(..., columns=[...]), on the "
                "command line --x)"
            )

    def _check_unchanged(self, part: SourcePart) -> None:
        for file in part.files:
            if _stamp(file) != self._stamps[file]:
                raise ValueError(
                    f"{file} has changed since it was opened: a fit adds up passes over the same rows; "
                    "start again when nothing writes the file any more"
                )


def is_source(data: object) -> bool:
    """Whether data are a `Source`."""
    return isinstance(data, Source)


def open_rows(source: Any, columns: Sequence[str] | None = None) -> Source:
    """Open rows stored in files, folders, Zarr or Dask, to be fitted or scored in batches.

    `inference.fit` and the functions of a fit open a source by themselves; this is for choosing columns.

    Args:
        source: a path, a list of paths, or an object of pyarrow, Zarr or Dask (`inference.inputs.sources`).
        columns: names of the columns that are wanted, in order; None: all.

    Returns:
        The source; iterated over, it gives its chunks.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: an extra is needed; the message names it.
        TypeError: nothing that can be opened, or columns of an array.
        ValueError: files of several kinds or with different columns, a file named twice, or no such column.

    Example:
        >>> import numpy as np, inference, zoo
        >>> np.save("rows.npy", np.random.default_rng(0).normal(size=(500, 2)))
        >>> rows = inference.open_rows("rows.npy")
        >>> tree = inference.fit(zoo.Mixture(num_components=2), rows, batch_size=200, max_iterations=2,
        ...                      tolerance=0, num_samples=2)
        >>> int(tree.attrs["batch_size"])
        200
    """
    found = as_source(source)
    if not is_source(found):
        raise TypeError(
            "source must be a path, a list of paths, or an object of pyarrow, Zarr or Dask; got "
            f"{shown(source)}"
        )
    return found if columns is None else found.taking(columns)


def opened(model: Model, data: Sequence[Any], text_column: str | None = None) -> tuple[Any, ...]:
    """The parts of the data of a call, those that lie elsewhere as a `Source`.

    Args:
        model: that is fitted or asked.
        data: parts of the data, in the model's order.
        text_column: the column of a table that holds texts; None: it is told from the cells.

    Returns:
        A source or the data themselves, for each part.

    Raises:
        FileNotFoundError: there is no such file; the message has the name of the part.
        ModuleNotFoundError: an extra is needed.
        ValueError: files of several kinds, one named twice, or none.
    """
    names = (*model.data_names, *(f"part {place}" for place in range(len(model.data_names), len(data))))
    return tuple(
        as_source(
            part if is_arrow(part) else as_passed(part, model, text_column),
            texts=model.data[0].holds_documents,
            name=name,
        )
        for part, name in zip(data, names[: len(data)], strict=True)
    )


def as_passed(part: Any, model: Model, text_column: str | None = None) -> Any:
    """A part of the data in the types that the rest knows: frames of pandas, and counts of bags of words."""
    part = as_frame(part)
    if model.data[0].holds_documents:
        return as_counted(part, text_column)
    are_records = isinstance(part, list) and part and all(isinstance(row, Mapping) for row in part)
    return pd.DataFrame(part) if are_records else part


def is_arrow(part: object) -> bool:
    """Whether a part of the data is of pyarrow, which can be read in batches where it lies."""
    return type(part).__module__.partition(".")[0] == "pyarrow"


def as_source(data: Any, *, texts: bool = False, name: str | None = None) -> Any:
    """Data as a `Source` where they lie elsewhere; anything else as it is.

    Args:
        data: as passed.
        texts: whether they are of a model of documents, to which a list of strings is a list of texts and a
            file of no known kind is a text.
        name: of this part of the data, for messages.

    Returns:
        A source, or the data.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: an extra is needed.
        ValueError: files of several kinds, one named twice, or none.
    """
    paths = None
    if isinstance(data, str | os.PathLike):
        paths = [data]
    elif isinstance(data, list | tuple) and data:
        are_paths = all(isinstance(part, os.PathLike) for part in data)
        if are_paths or (not texts and all(map(_names_a_file, data))):
            paths = data
    if paths is None:
        opener = _OPENERS.get(type(data).__module__.partition(".")[0])
        return data if opener is None else opener(data)
    try:
        return _open_paths(paths, texts)
    except FileNotFoundError as error:
        if name is None:
            raise
        remedy = "; text in place of data is the path of a file" if isinstance(data, str) else ""
        raise FileNotFoundError(f"{name}: {error}{remedy}") from None


def in_memory(part: Any) -> Any:
    """The texts of files, one each, as a column whose rows have the files' names; another part as it is."""
    if not isinstance(part, Source) or not part.holds_texts or len(part.files) != part.num_rows:
        return part
    folder = os.path.commonpath([file.parent for file in part.files])
    names = [os.path.relpath(file, folder) for file in part.files]
    return pd.DataFrame({"text": [text for texts in part for text in texts]}, index=names)


def _names_a_file(part: object) -> bool:
    """Whether an entry of a list is a path or a pattern; a list of other words holds labels."""
    if isinstance(part, os.PathLike):
        return True
    return isinstance(part, str) and (
        Path(part).suffix.lower() in KNOWN or PATTERN.search(part) is not None or os.path.exists(part)
    )


def shown_names(names: Sequence[str]) -> str:
    """Names of columns, the first twenty of them."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(names[:20]) + more


# Paths


def _open_paths(given: Sequence[str | os.PathLike], texts: bool) -> Source:
    files = [file for path in given for file in _files_of(path, texts)]
    seen: dict[str, Path] = {}
    for file in files:
        place = os.path.realpath(file)
        if place in seen:
            raise ValueError(f"{file} is read twice (as {seen[place]} before): name each file once")
        seen[place] = file
    kinds = {_kind_of(file, texts) for file in files}
    if len(kinds) > 1:
        of_each = [next(file for file in files if _kind_of(file, texts) == kind) for kind in sorted(kinds)]
        raise ValueError(
            f"the files are of several kinds, such as {' and '.join(map(str, of_each[:3]))}: give files of "
            "one kind"
        )
    (kind,) = kinds
    return _BY_KIND[kind](files)


def _files_of(path: str | os.PathLike, texts: bool) -> list[Path]:
    """The files that a path, a pattern or a folder stands for, in order."""
    text = os.fspath(path)
    if PATTERN.search(text) and not os.path.lexists(text):
        found = sorted(glob.glob(text, recursive=True))
        if not found:
            raise FileNotFoundError(f"no file is named {text}")
        return [file for name in found for file in _files_of(name, texts)]
    path = Path(text)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.is_dir() or path.suffix.lower() == ".zarr":
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(_is_hidden(name) for name in file.relative_to(path).parts)
    ]
    if (path / "zarr.json").exists() or (path / ".zarray").exists():
        return [path]
    if not files:
        raise FileNotFoundError(
            f"the folder {path} holds no file (names that begin with . or _ do not count)"
        )
    return files


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _kind_of(file: Path, texts: bool) -> str:
    ending = file.suffix.lower()
    if file.is_dir():
        return ".zarr"
    if texts and (ending == ".txt" or ending not in KNOWN):
        return "text"
    if ending in (".parquet", ".npy"):
        return ending
    if ending in TABLES:
        return "table"
    raise ValueError(f"{file} must end in one of {', '.join(KNOWN)}")


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError as error:
        raise FileNotFoundError(f"{file} cannot be read any more: {error.strerror}") from None
    return found.st_mtime_ns, found.st_size


def _rows_at_once(num_columns: int, asked: int | None) -> int:
    """Rows of a chunk: batches if they are asked for, but not so few that reading is all overhead."""
    most = max(1024, READ_CELLS // max(num_columns, 1))
    if asked is None:
        return most
    return asked * max(1, most // asked) if asked <= most else asked


def _needed(module: str, ending: str) -> Any:
    """A library, or an error that names the extra."""
    require(ending)
    return importlib.import_module(module)


def _open_parquet(files: Sequence[Path]) -> Source:
    dataset = _needed("pyarrow.dataset", ".parquet")
    verified = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)  # where there are any
    parquet = dataset.ParquetFileFormat(default_fragment_scan_options=verified)
    parts = []
    for file in files:
        try:
            held = dataset.dataset(str(file), format=parquet, partitioning="hive")
            num_rows = held.count_rows()
        except (OSError, ValueError) as error:  # what pyarrow raises of a damaged file
            raise ValueError(f"{file} cannot be read as a .parquet file: {error}") from None
        names = _columns_of(held.schema)
        parts.append(SourcePart(str(file), partial(_read_dataset, held), names, num_rows, (file,)))
    return Source(parts, "table")


def _columns_of(schema: Any) -> tuple[str, ...]:
    """The names of the columns, without those in which pandas wrote the labels of the rows."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    return tuple(name for name in schema.names if name not in index)


def _read_dataset(held: Any, columns: Sequence[str] | None, rows: int | None) -> Iterator[pd.DataFrame]:
    batches = held.to_batches(
        columns=None if columns is None else list(columns),
        batch_size=_rows_at_once(len(columns or held.schema.names), rows),
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    try:
        for batch in batches:
            yield _frame_of(batch)
    except (OSError, ValueError) as error:  # what pyarrow raises of a damaged page
        files = getattr(held, "files", ())
        which = files[0] if len(files) == 1 else "the dataset of Arrow"
        raise ValueError(f"{which} cannot be read: {words_of(error)}; copy it again") from None


def _frame_of(batch: Any) -> pd.DataFrame:
    """A batch or table of Arrow in pandas, the types of its columns the same whether cells are missing."""
    arrow = importlib.import_module("pyarrow")
    if all(field.type == arrow.float64() for field in batch.schema):  # in one copy, row by row
        rows = batch.to_tensor(null_to_nan=True).to_numpy()
        return pd.DataFrame(rows, columns=batch.schema.names, copy=False)
    nullable = {arrow.bool_(): pd.BooleanDtype()}
    return batch.to_pandas(types_mapper=nullable.get, date_as_object=False, ignore_metadata=True)


def _open_arrow(data: Any) -> Any:
    arrow, dataset = sys.modules["pyarrow"], importlib.import_module("pyarrow.dataset")
    if isinstance(data, arrow.Table):
        names = _columns_of(data.schema)

        def read(columns: Sequence[str] | None, rows: int | None) -> Iterator[pd.DataFrame]:
            held = data if columns is None else data.select(list(columns))
            return map(_frame_of, held.to_batches(max_chunksize=_rows_at_once(len(names), rows)))

        return Source([SourcePart("the table of Arrow", read, names, data.num_rows)], "table")
    if isinstance(data, dataset.Dataset):
        names = _columns_of(data.schema)
        files = tuple(map(Path, getattr(data, "files", ())))
        local = files if all(file.is_file() for file in files) else ()
        label = str(local[0]) if len(local) == 1 else "the dataset of Arrow"
        reading = partial(_read_dataset, data)
        return Source([SourcePart(label, reading, names, data.count_rows(), local)], "table")
    raise TypeError(
        "of pyarrow a dataset (pyarrow.dataset.dataset(...)) or a Table is read in batches; got "
        f"{shown(data)}"
    )


def _open_tables(files: Sequence[Path]) -> Source:
    for ending in {file.suffix.lower() for file in files} & EXTRAS.keys():
        require(ending)

    def read(file: Path, columns: Sequence[str] | None, rows: int | None) -> Iterator[Any]:
        yield read_table(file)

    first = read_table(files[0])
    kind = "table" if hasattr(first, "columns") and not isinstance(first.columns, pd.RangeIndex) else "array"
    names = tuple(map(str, first.columns)) if kind == "table" else None
    parts = [SourcePart(str(file), partial(read, file), None, None, (file,)) for file in files[1:]]
    parts.insert(
        0, SourcePart(str(files[0]), partial(read, files[0]), names, _num_rows_of(first), (files[0],))
    )
    return Source(parts, kind)


def _num_rows_of(chunk: Any) -> int:
    """Rows of a table, an array or a sparse matrix, or texts of a list."""
    return len(chunk) if isinstance(chunk, list) else int(chunk.shape[0])


def _open_npy(files: Sequence[Path]) -> Source:
    parts = []
    for file in files:
        try:
            held = np.load(file, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise ValueError(f"{file} cannot be read as a .npy file: {error}") from None
        if held.ndim != 2:
            raise ValueError(f"{file} must hold an array of rows and columns; its shape is {held.shape}")
        if not np.issubdtype(held.dtype, np.number) and held.dtype != bool:
            raise TypeError(f"{file} must hold numbers; it holds {held.dtype}")
        parts.append(SourcePart(str(file), partial(_read_npy, file), None, held.shape[0], (file,)))
    return Source(parts, "array")


def _read_npy(file: Path, columns: Sequence[str] | None, rows: int | None) -> Iterator[np.ndarray]:
    """The rows by a map for each chunk: one map would count every page that was read as memory of ours."""
    num_rows, width = np.load(file, mmap_mode="r").shape
    step = _rows_at_once(width, rows)
    for begin in range(0, num_rows, step):
        yield np.array(np.load(file, mmap_mode="r")[begin : begin + step])


# Zarr and Dask


def _open_zarr_folders(folders: Sequence[Path]) -> Source:
    zarr = _needed("zarr", ".zarr")
    parts = []
    for folder in folders:
        try:
            held = zarr.open(str(folder), mode="r")
        except Exception as error:  # of any of the stores
            raise ValueError(f"{folder} cannot be read as a Zarr array: {error}") from None
        parts.append(_zarr_part(held, str(folder)))
    return Source(parts, "array")


def _open_zarr(data: Any) -> Source:
    return Source([_zarr_part(data, "the Zarr array")], "array")


def _zarr_part(held: Any, label: str) -> SourcePart:
    if not hasattr(held, "chunks"):
        names = ", ".join(sorted(held.array_keys())) if hasattr(held, "array_keys") else ""
        raise TypeError(
            f"{label} is no array but a group" + (f" of {names}: pass one of these" if names else "")
        )
    if len(held.shape) != 2:
        raise ValueError(f"{label} must hold an array of rows and columns; its shape is {tuple(held.shape)}")
    step = held.chunks[0] * max(1, _rows_at_once(held.shape[1], None) // held.chunks[0])

    def read(columns: Sequence[str] | None, rows: int | None) -> Iterator[np.ndarray]:
        for begin in range(0, held.shape[0], step):
            yield np.asarray(held[begin : begin + step])

    return SourcePart(label, read, None, int(held.shape[0]))


def _open_dask(data: Any) -> Any:
    if hasattr(data, "npartitions") and hasattr(data, "columns"):
        if not hasattr(data, "dtypes") or not hasattr(data, "partitions"):
            raise TypeError(f"of Dask a DataFrame or an array is read in batches; got {shown(data)}")
        names = tuple(map(str, data.columns))
        check_unique(names, "the DataFrame of Dask")

        def read_frame(
            number: int, columns: Sequence[str] | None, rows: int | None
        ) -> Iterator[pd.DataFrame]:
            have = {str(name): name for name in data.columns}
            held = data if columns is None else data[[have[name] for name in columns]]
            yield held.partitions[number].compute()

        parts = [
            SourcePart(f"partition {number} of the DataFrame of Dask", partial(read_frame, number), names)
            for number in range(data.npartitions)
        ]
        return Source(parts, "table")
    if hasattr(data, "numblocks") and hasattr(data, "blocks"):
        if data.ndim != 2:
            raise ValueError(f"the Dask array must have rows and columns; its shape is {data.shape}")

        def read_blocks(number: int, columns: Sequence[str] | None, rows: int | None) -> Iterator[np.ndarray]:
            yield np.asarray(data.blocks[number].compute())

        sizes = [None if np.isnan(size) else int(size) for size in data.chunks[0]]  # NaN: not known yet
        parts = [
            SourcePart(f"block {number} of the Dask array", partial(read_blocks, number), None, size)
            for number, size in enumerate(sizes)
        ]
        return Source(parts, "array")
    raise TypeError(f"of Dask a DataFrame or an array is read in batches; got {shown(data)}")


# Texts


def _open_texts(files: Sequence[Path]) -> Source:
    parts, begins = [], range(0, len(files), TEXTS_AT_ONCE)
    for begin in begins:
        own = tuple(files[begin : begin + TEXTS_AT_ONCE])

        parts.append(SourcePart(str(own[0]), partial(_read_texts, own), None, len(own), own))
    return Source(parts, "texts")


def _texts_of(chunk: pd.DataFrame) -> list[str]:
    """The texts of a table of one column."""
    cells = chunk.iloc[:, 0]
    strange = ~cells.map(lambda text: isinstance(text, str)).to_numpy(dtype=bool)
    if strange.any():
        row = chunk.index[int(np.argmax(strange))]
        raise TypeError(
            f"the column {chunk.columns[0]!r} must hold texts; row {row} has {shown(cells[row])}: leave such "
            "rows out, or write an empty text"
        )
    return cells.tolist()


def _read_texts(
    files: Sequence[Path], columns: Sequence[str] | None, rows: int | None
) -> Iterator[list[str]]:
    yield list(map(_text_of, files))


def _text_of(file: Path) -> str:
    raw = file.read_bytes()
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{file} is neither UTF-8 nor Windows-1252: save it as UTF-8")


_BY_KIND = {
    ".parquet": _open_parquet,
    ".npy": _open_npy,
    ".zarr": _open_zarr_folders,
    "table": _open_tables,
    "text": _open_texts,
}
_OPENERS = {"pyarrow": _open_arrow, "zarr": _open_zarr, "dask": _open_dask, "dask_expr": _open_dask}
