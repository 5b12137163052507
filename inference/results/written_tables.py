"""Answers for many rows as one file, written table by table: Parquet, CSV, Excel or NumPy.

The file is whole or not there (`inference.numerics.atomic_files`), and no more than one table is held.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pandas as pd

from inference.numerics.atomic_files import check_replaceable, replacing
from zoo.intake.files import EXTRAS, require

WRITTEN = (".parquet", ".csv", ".tsv", ".xlsx", ".npy")


def check_table_file(path: str | Path) -> Path:
    """The path of a file that tables can be written to one after another.

    Raises:
        ModuleNotFoundError: an extra is needed; the message names it.
        ValueError: another ending, a place where nothing can be written, or a saved fit or a checkpoint.
    """
    path = Path(path)
    if path.suffix.lower() not in WRITTEN:
        raise ValueError(f"{path} must end in one of {', '.join(WRITTEN)}, which are written in batches")
    if path.suffix.lower() in EXTRAS:
        require(path.suffix.lower())
    check_replaceable(path)
    return path


@contextmanager
def table_file(path: str | Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A file to write tables to, all with the columns of the first.

    Yields:
        A function that takes the next table.

    Raises:
        TypeError: a column that is not of numbers, in a ``.npy`` file.
    """
    path = check_table_file(path)
    writer: Any = {".parquet": _Parquet, ".xlsx": _Workbook, ".npy": _Numbers}.get(path.suffix.lower(), _Text)
    with replacing(path) as file:
        own = writer(file, path)
        yield own.write
        own.close()


class _Text:
    """A table as text."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.is_first = file, True
        self.separator = "\t" if path.suffix.lower() == ".tsv" else ","

    def write(self, table: pd.DataFrame) -> None:
        table.to_csv(self.file, sep=self.separator, header=self.is_first)
        self.is_first = False

    def close(self) -> None:
        """Nothing is left to be written."""


class _Workbook:
    """A table in a workbook, the rows of each part below those before."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.writer, self.row = pd.ExcelWriter(file, engine="openpyxl"), 0

    def write(self, table: pd.DataFrame) -> None:
        is_first = self.row == 0
        table.to_excel(self.writer, startrow=self.row, header=is_first)
        self.row += len(table) + is_first

    def close(self) -> None:
        self.writer.close()


class _Parquet:
    """A table of Arrow, a row group for each part."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.writer = file, cast(Any, None)
        self.arrow, self.parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))

    def write(self, table: pd.DataFrame) -> None:
        if self.writer is None:
            schema = self.arrow.Schema.from_pandas(table, preserve_index=True)
            for place, field in enumerate(schema):  # nothing in the first table, words in a later one
                if self.arrow.types.is_null(field.type):
                    schema = schema.set(place, field.with_type(self.arrow.string()))
            reals = self.arrow.types.is_floating  # hardly two alike: to look for equal ones costs most
            listed = [field.name for field in schema if not reals(field.type)]
            options = {"use_dictionary": listed, "write_page_checksum": True}
            self.schema, self.writer = schema, self.parquet.ParquetWriter(self.file, schema, **options)
        held = self.arrow.Table.from_pandas(table, schema=self.schema, preserve_index=True)
        self.writer.write_table(held)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


class _Numbers:
    """An array whose number of rows is written into its header at the end."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path, self.num_rows, self.width = file, path, 0, None

    def write(self, table: pd.DataFrame) -> None:
        strange = [name for name in table if not pd.api.types.is_numeric_dtype(table[name].dtype)]
        if strange:
            raise TypeError(
                f"{self.path} takes numbers; the column {strange[0]!r} holds words: write .parquet or .csv"
            )
        if self.width is None:
            self.width = table.shape[1]
            self._header()
        self.num_rows += len(table)
        self.file.write(np.ascontiguousarray(table.to_numpy(dtype=np.float64)).tobytes())

    def close(self) -> None:
        if self.width is not None:
            self.file.seek(0)
            self._header()

    def _header(self) -> None:
        """As long whatever the number of rows: NumPy leaves room for it to grow."""
        header: dict[str, Any] = {"descr": "<f8", "fortran_order": False}
        np.lib.format.write_array_header_1_0(self.file, header | {"shape": (self.num_rows, self.width)})
