"""What a file of a stranger may make this process do: nothing is run, nothing else read, memory is bounded.

A file of arrays declares sizes, and a few bytes may declare more than any machine holds; an archive unpacks
to what it likes; HDF5 leads to other files and to itself. So before a file is read, it is looked through: for
links and loops, and for what it declares, which must be in proportion to the bytes that it has.
"""

import importlib
import io
import mmap
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import h5py
import numpy as np

MOST_GROUPS = 200
MOST_ARRAYS = 4000
MOST_ATTRIBUTES = 1000  # of one group or array
DEEPEST = 8
SMALL_BYTES = 2**27  # that any file may declare
LARGEST_RATIO = 200  # of the bytes that a larger file declares to those that it has
KINDS = "iufbSO"  # NumPy's kinds of arrays that are read; O: text
MOST_CELLS = 2**25  # of a sheet of a workbook, filled or not: between its first and its last
BLOCK = 2**20  # bytes of an archive that are unpacked at a time
PLACE = re.compile(rb'<(?:\w+:)?c [^>]*?\br="([A-Z]{1,3})([0-9]{1,7})"')  # of a cell in a sheet
LONGEST_PLACE = 300  # bytes in which the element of a cell begins


def may_hold(declared: int, size: int) -> bool:
    """Whether a file is read that declares arrays of so many bytes.

    Args:
        declared: bytes of all arrays as the file declares them.
        size: bytes of the file.

    Returns:
        False for a file that would take far more memory than its size accounts for.
    """
    return declared <= max(SMALL_BYTES, LARGEST_RATIO * size)


def check_layout(file: BinaryIO, size: int) -> None:
    """Raise ValueError unless an HDF5 file holds what a fit holds; arrays are not read for it.

    Args:
        file: open for reading.
        size: its length in bytes.

    Raises:
        ValueError: a link out of the file or to a place that was reached before, data in another file, too
            many or too deep groups, or arrays that declare more than such a file can hold.
        Exception: whatever h5py raises at a damaged file.
    """
    if isinstance(file, io.BytesIO):
        _check_heaps(file.getvalue())
    elif size:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check_heaps(content)
    with h5py.File(file, "r") as opened:
        _Walk(size).visit(opened, 0)


def _check_heaps(content: mmap.mmap | bytes) -> None:
    """Raise ValueError for a heap of texts at which HDF5 would go round and round.

    It passes over a heap from object to object by their lengths, and waits for ever at one of no length, as
    zeros in the place of a heap are (HDF5 1.14, ``H5HG__cache_heap_deserialize``).
    """
    begin = content.find(b"GCOL")
    while begin >= 0:
        version = content[begin + 4 : begin + 5]
        end = begin + int.from_bytes(content[begin + 8 : begin + 16], "little")
        if version == b"\x01" and end <= len(content):  # HDF5 refuses others itself
            place = begin + 16
            while place + 16 <= end:
                number = int.from_bytes(content[place : place + 2], "little")
                length = int.from_bytes(content[place + 8 : place + 16], "little")
                step = 16 + -(-length // 8) * 8 if number else length
                if not 0 < step <= end - place:
                    raise ValueError("its texts are damaged")
                place += step
        begin = content.find(b"GCOL", begin + 4)


class _Walk:
    """A visit to every group and array of a file, each of them once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.declared = 0
        self.num_groups = 0
        self.num_arrays = 0
        self.reached: set[Any] = set()

    def visit(self, group: h5py.Group, depth: int) -> None:
        self._enter(group)
        self.num_groups += 1
        if self.num_groups > MOST_GROUPS or depth > DEEPEST:
            raise ValueError(
                f"it has more than {MOST_GROUPS} groups, or groups more than {DEEPEST} deep: a fit has about "
                "ten beside each other"
            )
        if self.num_arrays + len(group) > MOST_ARRAYS:
            raise ValueError(f"it has more than {MOST_ARRAYS} arrays")
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{group.name}/{name} is a link to another place, which a fit does not have")
            found = group[name]
            if isinstance(found, h5py.Group):
                self.visit(found, depth + 1)
            elif isinstance(found, h5py.Dataset):
                self._check_array(found)
            else:
                raise ValueError(f"{found.name} is neither a group nor an array")

    def _enter(self, found: Any) -> None:
        """Take note of a group or an array; ValueError where it was reached by another name."""
        address = h5py.h5o.get_info(found.id).addr
        if address in self.reached:
            raise ValueError(f"{found.name} is another name of a group or array of the same file")
        self.reached.add(address)
        if len(found.attrs) > MOST_ATTRIBUTES:
            raise ValueError(f"{found.name} has more than {MOST_ATTRIBUTES} attributes")

    def _check_array(self, array: h5py.Dataset) -> None:
        self._enter(array)
        self.num_arrays += 1
        if array.external or array.is_virtual:
            raise ValueError(f"{array.name} has its data in another file")
        is_text = h5py.check_string_dtype(array.dtype) is not None
        if array.dtype.kind not in KINDS or (array.dtype.kind == "O" and not is_text):
            raise ValueError(f"{array.name} holds {array.dtype}, neither numbers nor text")
        chunk = int(np.prod(array.chunks, dtype=float)) if array.chunks else 0
        numbers = max(int(np.prod(array.shape or (), dtype=float)), chunk)
        self._declare(numbers * array.dtype.itemsize)
        if array.dtype.kind == "O":
            self._check_text(array)

    def _declare(self, num_bytes: int) -> None:
        self.declared += num_bytes
        if not may_hold(self.declared, self.size):
            raise ValueError(
                f"its arrays declare {self.declared:.2e} bytes and the file has {self.size}: no fit does"
            )

    def _check_text(self, array: h5py.Dataset) -> None:
        """Add up the lengths of texts, of which many may lie at one place of the file, a few at a time."""
        if array.ndim != 1:
            self._declare(self.size * array.size)
            return
        begin, block = 0, 1
        while begin < array.shape[0]:
            lengths = list(map(len, array[begin : begin + block]))
            self._declare(sum(lengths))
            begin += block
            block = int(np.clip(2**20 // (max(lengths) + 1), 1, 4 * block))


def check_archive(path: Path) -> None:
    """Raise ValueError unless a zip archive unpacks to a size in proportion to its own.

    Args:
        path: of an archive.

    Raises:
        ValueError: too many members, or members that declare too much.
        Exception: whatever `zipfile` raises at a damaged file.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if len(members) > MOST_ARRAYS:
        raise ValueError(f"it has {len(members)} members, and {MOST_ARRAYS} at most are read")
    _check_declared(sum(member.file_size for member in members), path.stat().st_size)


def _check_declared(declared: int, size: int) -> None:
    if not may_hold(declared, size):
        raise ValueError(f"it declares {declared:.2e} bytes and has {size}: no table does")


def _members(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[zipfile.ZipInfo, IO[bytes]]]:
    """The members of a checked archive whose names end so, each opened."""
    check_archive(path)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith(endings):
                with archive.open(member) as file:
                    yield member, file


def check_arrays(path: Path) -> None:
    """Raise ValueError unless the arrays of an ``.npz`` archive are as large as its members.

    NumPy makes room for the shape that an array declares before it reads its numbers.

    Args:
        path: of an archive.

    Raises:
        ValueError: an array of objects, or one that declares another size than it has.
        Exception: whatever `zipfile` or NumPy raises at a damaged file.
    """
    for member, file in _members(path, (".npy",)):
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        shape, _, dtype = (header or np.lib.format.read_array_header_2_0)(file)
        held = member.file_size - file.tell()
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds objects, not numbers")
        if dtype.itemsize * float(np.prod(shape, dtype=float)) > held:
            raise ValueError(f"{member.filename} declares the shape {shape} and holds {held} bytes")


def check_workbook(path: Path) -> None:
    """Raise ValueError unless the sheets of an ``.xlsx`` workbook have a bounded extent.

    A single cell far from the first makes a table of all the cells between.

    Args:
        path: of a workbook.

    Raises:
        ValueError: an archive that unpacks to too much, a sheet of too great an extent, or one that declares
            entities.
        Exception: whatever `zipfile` raises at a damaged file.
    """
    for member, file in _members(path, (".xml", ".rels")):
        _check_sheet(file, member.filename)


def _check_sheet(file: Any, name: str) -> None:
    rows = columns = 1
    kept = b""
    while block := file.read(BLOCK):
        block = kept + block
        if b"<!DOCTYPE" in block or b"<!ENTITY" in block:
            raise ValueError(f"{name} declares entities, which no workbook does")
        for letters, digits in PLACE.findall(block):
            column = 0
            for letter in letters:
                column = 26 * column + letter - ord("A") + 1
            rows, columns = max(rows, int(digits)), max(columns, column)
        if rows * columns > MOST_CELLS:
            raise ValueError(
                f"{name} reaches to row {rows} and column {columns}, and {MOST_CELLS} cells at most are "
                "read: save it as CSV"
            )
        kept = block[-LONGEST_PLACE:]


def check_parquet(path: Path) -> None:
    """Raise ValueError unless a Parquet file declares a table in proportion to its own size.

    Args:
        path: of the file.

    Raises:
        ValueError: it declares more.
        Exception: whatever pyarrow raises at a damaged file.
    """
    found = importlib.import_module("pyarrow.parquet").read_metadata(path)  # of an extra
    groups = (found.row_group(number) for number in range(found.num_row_groups))
    unpacked = sum(group.total_byte_size for group in groups)
    _check_declared(max(unpacked, 8 * found.num_rows * found.num_columns), path.stat().st_size)
