"""Tables from files as people have them: text of any separator and encoding, Parquet, Excel, arrays.

What a file does not say is told from its cells, and every decision that another reader might have made
otherwise is noted in ``table.attrs["read_as"]``. What cannot be told is refused, with what to write instead:
a number read wrongly is worse than an error.

Whether a file was damaged on its way is known where its format has checksums: ``.xlsx`` and ``.npz`` always,
``.parquet`` and ``.nc`` if their writer was asked for them. A damaged file of text, and one of these two
without checksums, may be read with another number in it.

A text file is read in this order: encoding (a byte order mark, UTF-8, else Windows-1252), separator (that by
which all lines have as many fields and most of these are numbers), titles above the table and notes below it,
header (a first row that is not a row of data), row labels (an unnamed first column), decimal mark (by
columns). A last or first row that is the sum of the others is left out. A ``.txt`` file without columns has a
text a line. With ``pandas.read_csv(sep=None)`` in place of all this 87 of the 123 tests of this file fail.
"""

import csv
import importlib
import importlib.util
import io
import itertools
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zoo.checks import check_unique, first_of, words_of
from zoo.intake.bounds import check_arrays, check_layout, check_parquet, check_workbook
from zoo.intake.kinds import are_codes
from zoo.intake.numbers_as_text import GROUPED_BY_COMMAS, GROUPED_BY_POINTS, POINT, is_number, role_of_commas

TEXT = (".csv", ".tsv", ".txt", ".dat")
ENDINGS = (*TEXT, ".xlsx", ".parquet", ".npz", ".nc")
SEPARATORS = ("\t", ";", "|", ",")
SPACES = r"\s+"
NAMES = {"tab": "\t", "space": SPACES, "comma": ",", "semicolon": ";", "pipe": "|", " ": SPACES, "\\t": "\t"}
SHOWN = {"\t": "tabs", SPACES: "spaces", ",": "commas", ";": "semicolons", "|": "bars"}
MOSTLY = 0.8  # share of lines or words
SHORTEST_TITLE = 5  # letters of a title or a note; fewer are a tick
ROWS_OF_A_SUM = 5  # rows, from which on a last row that nothing names may be the sum of the others
ERRORS = ("#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")  # of spreadsheets
MISSING = ("?", ".", "-", "--", *ERRORS)  # beside those of pandas: empty, NA, NaN, null, n/a, ...
ABSENT = (*MISSING, "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")  # in a row that may be a header
SAMPLE = 200  # records by which separator and header are told
MEANS = ("mean", "average", "avg", "mittelwert", "durchschnitt", "moyenne", "media", "promedio")
ROUNDED = 1e-2  # relative, of means as they are written
TOTALS = ("total", "totals", "grand", "sum", "sums", "summe", "gesamt", "gesamtsumme", "insgesamt", "somme")
MAGIC = {  # beginnings of files of other kinds
    b"PK\x03\x04": "an Excel workbook or another zip archive: give it the ending .xlsx",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save it as .xlsx or as CSV",
    b"PAR1": "a Parquet file: give it the ending .parquet",
    b"\x89HDF": "a netCDF or HDF5 file: give it the ending .nc",
    b"\x1f\x8b": "compressed: unpack it with gunzip",
    b"<html": "a web page: save its table as CSV",
    b"<!doctype html": "a web page: save its table as CSV",
}
EXTRAS = {".parquet": ("pyarrow", "parquet"), ".xlsx": ("openpyxl", "excel"), ".zarr": ("zarr", "zarr")}

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
BEFORE = re.compile(r"^(-?)(?:[$€£¥₹₽₩]|[A-Z]{3}(?=\s?-?\d))\s?(?=-?\d)")  # of money
AFTER = re.compile(r"(?<=\d)\s?(?:[$€£¥₹₽₩%]|\s[A-Z]{3})$")  # of money and shares
NEGATIVE = re.compile(r"^([$€£¥₹₽₩]?)\((.*\d.*)\)$|^(.*\d)-$")  # of accounts: (12.50), $(12.50) and 12.50-
BETWEEN_DIGITS = re.compile(r"(?<=\d)['’\u00a0\u2009\u202f ](?=\d{3}(?!\d))")  # what groups thousands


def read_table(
    path: str | Path,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    skip_rows: int | None = None,
) -> pd.DataFrame:
    r"""Read the one table of a file.

    Args:
        path: a ``.csv``, ``.tsv``, ``.txt``, ``.dat``, ``.xlsx``, ``.parquet``, ``.npz`` or ``.nc`` file.
        separator: of the columns of a text file; None: told from the file.
        decimal: ``"."`` or ``","``, of a text file; None: told from the file.
        header: whether the first row of a text file or sheet names the columns; None: told from the file.
        encoding: of a text file; None: told from the file.
        skip_rows: rows above the table in a text file or sheet; None: titles are told from the file.

    Returns:
        The table; ``table.attrs["read_as"]`` says what was told from the file, a sentence each, and
        ``table.attrs["has_columns"]`` is false where a text file has a text a line.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: an extra is needed; the message names it.
        ValueError: the file is damaged, of another kind, cannot be read without being told how, or holds
            several tables.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("points.csv").write_text("height;weight\n1,75;70\n1,62;58,5\n")
        >>> read_table("points.csv").to_numpy().tolist()
        [[1.75, 70.0], [1.62, 58.5]]
    """
    how = {"separator": separator, "decimal": decimal, "header": header, "encoding": encoding}
    how["skip_rows"] = skip_rows
    tables = read_tables(path, **how)
    if len(tables) > 1:
        raise ValueError(f"{path} holds several tables, {', '.join(tables)}: use read_tables")
    (table,) = tables.values()
    return table


def read_tables(path: str | Path, **how: Any) -> dict[str, Any]:
    """Read the tables of a file by name; a single one has the empty name.

    A file that cannot be read is refused. One that was damaged and can still be read is noticed by its
    checksums, which ``.xlsx`` and ``.npz`` always have, ``.parquet`` only if it was written with
    ``write_page_checksum=True`` (pyarrow) and ``.nc`` with ``fletcher32`` or compression. Without them, and
    in files of text, a changed digit is read as it stands: compare a copy with its original by a checksum of
    your own (``sha256sum``).

    Args:
        path: as for `read_table`.
        **how: the other arguments of `read_table`; those of text files are refused of others.

    Returns:
        DataFrames by name: of arrays, of variables, or of sheets; a sparse matrix as SciPy saves it as such.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: an extra is needed; the message names it.
        ValueError: the file is damaged, of another kind, or cannot be read without being told how.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path} must end in one of {', '.join(ENDINGS)}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}" if not path.exists() else f"{path} is no file")
    how = {name: value for name, value in how.items() if value is not None}
    allowed = ("header", "decimal", "skip_rows", *(("separator", "encoding") if ending in TEXT else ()))
    for name in how:
        if name not in allowed or ending in (".parquet", ".npz", ".nc"):
            raise ValueError(f"{name} is of text files; {path} is {ending}")
    try:
        if ending in TEXT:
            tables = {"": _read_text(path, **how)}
        elif ending == ".xlsx":
            tables = _read_workbook(path, **how)
        elif ending == ".parquet":
            require(ending)
            check_parquet(path)
            tables = {"": pd.read_parquet(path, engine="pyarrow", page_checksum_verification=True)}
        else:
            tables = _read_archive(path) if ending == ".npz" else _read_netcdf(path)
    except _Refusal as refusal:
        raise ValueError(str(refusal)) from None
    except ModuleNotFoundError:
        raise
    except Exception as error:  # several libraries read it, which raise anything at a damaged file
        raise ValueError(
            f"{path} cannot be read as a {ending} file ({words_of(error)}): it was cut short or is of "
            "another kind; copy it again, or give it the ending that it is"
        ) from None
    if not tables:
        raise ValueError(f"{path} holds no tables; a fit's data are in its group observed_data")
    if "" in tables and not tables[""].shape[0]:
        raise ValueError(f"{path} has no rows")
    if hasattr(tables.get(""), "columns"):
        check_unique(tables[""].columns, str(path), remedy="rename them in the file")
    return tables


class _Refusal(ValueError):
    """A message of this file, beside those of the libraries that read."""


def _say(option: str) -> str:
    """How to tell the reader something: as an option of the command line, and as an argument."""
    name, _, value = option.partition("=")
    in_python = {"yes": True, "no": False, "0": 0}.get(value, value)
    return f"--read {option} (in Python {name}={in_python!r})"


def require(ending: str) -> None:
    """Raise ModuleNotFoundError naming the extra unless the package for such files is installed.

    Args:
        ending: ``".parquet"`` or ``".xlsx"``.
    """
    package, extra = EXTRAS[ending]
    if importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(
            f"{ending} files need {package}, which is not installed: "
            f"pip install 'probabilistic-model-zoo[{extra}]', or save the table as CSV"
        )


# Arrays and variables


def as_table(
    key: str, array: Any, columns: Sequence[str] | None = None, rows: Sequence[str] | None = None
) -> Any:
    """Convert a dense array to a DataFrame, a vector to one column; sparse matrices stay.

    Args:
        key: name of the array, and of the column that a vector becomes.
        array: shape (num_observations, num_features) or (num_observations,).
        columns: their names, or None.
        rows: their labels, or None.

    Returns:
        A table with as many rows.
    """
    if not hasattr(array, "ndim") or hasattr(array, "tocsr"):
        return array
    return pd.DataFrame(
        array,
        index=None if rows is None else list(rows),
        columns=[key] if array.ndim == 1 else None if columns is None else list(columns),
    )


def _read_archive(path: Path) -> dict[str, Any]:
    if zipfile.is_zipfile(path):
        check_arrays(path)
    file = np.load(path, allow_pickle=False)
    if isinstance(file, np.ndarray):
        raise _Refusal(f"{path} is a .npy file of one array: give it the ending of np.savez, or save it so")
    with file:
        if {"format", "indptr"} <= set(file.files):  # as scipy.sparse.save_npz writes it
            matrix = importlib.import_module("scipy.sparse").load_npz(path).tocsr()
            matrix.check_format(full_check=True)
            return {"": matrix}
        return {key: as_table(key, file[key]) for key in file.files if file[key].ndim in (1, 2)}


def _read_netcdf(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:  # checked and read through one handle
        check_layout(file, path.stat().st_size)
        dataset = importlib.import_module("xarray").load_dataset(file, engine="h5netcdf")
    tables = {str(k): v.to_pandas() for k, v in dataset.data_vars.items() if v.ndim in (1, 2)}
    return {k: t.to_frame(k) if isinstance(t, pd.Series) else t for k, t in tables.items()}


def _read_workbook(
    path: Path, header: bool | None = None, decimal: str | None = None, skip_rows: int | None = None
) -> dict[str, Any]:
    """The sheets of a workbook by name, those without cells left out; a single one under the empty name."""
    require(".xlsx")
    check_workbook(path)
    with pd.ExcelFile(path, engine="openpyxl") as book:
        sheets = pd.read_excel(book, sheet_name=None, header=None, dtype=object)
        in_percent = {sheet.title: _in_percent(sheet) for sheet in book.book.worksheets}
    tables = {}
    for name, cells in sheets.items():
        cells, margins = _without_margins(cells, skip_rows)
        cells = cells.dropna(axis=0, how="all").dropna(axis=1, how="all")
        if not len(cells):
            continue
        written = [["" if pd.isna(c) else str(c) for c in row] for row in cells.head(SAMPLE).to_numpy()]
        names, notes, num_taken = _names(written, header, skip_rows)
        notes = margins + notes
        body = cells.iloc[num_taken:].replace(list(MISSING), np.nan).infer_objects()
        _read_text_numbers(path, body, decimal, names, notes)
        _times_100(body, in_percent.get(name, set()), names, notes)
        tables[str(name)] = _named(path, body, names, notes)
    return {"": next(iter(tables.values()))} if len(tables) == 1 else tables


def _in_percent(sheet: Any) -> set[tuple[int, int]]:
    """Rows and columns of the numbers of a sheet that are shown in percent."""
    return {
        (row, column)
        for row, cells in enumerate(sheet.rows)
        for column, cell in enumerate(cells)
        if isinstance(cell.value, int | float) and "%" in cell.number_format
    }


def _times_100(
    table: pd.DataFrame, in_percent: set[tuple[int, int]], names: list[str], notes: list[str]
) -> None:
    """Turn columns of numbers that are all shown in percent into percent, as in a CSV file, in place."""
    for column in sorted({column for _, column in in_percent} & set(table.columns)):
        cells = table[column].dropna()
        if all((row, column) in in_percent for row in cells.index):
            table[column] = cells.map(lambda cell: float(Decimal(str(cell)).scaleb(2))).reindex(table.index)
            notes.append(
                f"numbers of {names[list(table.columns).index(column)]!r} in percent, as they are shown"
            )


def _without_margins(cells: pd.DataFrame, skip_rows: int | None) -> tuple[pd.DataFrame, list[str]]:
    """A sheet without titles above its table and notes below it, and what is said of them."""
    if skip_rows is not None:
        return cells.iloc[skip_rows:], []
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in cells.to_numpy()]
    top, bottom = _margins([_fullness(row, cells.shape[1]) for row in rows])
    words = [cell for row in (*rows[:top], *rows[bottom:]) for cell in row if cell]
    return cells.iloc[top:bottom], _told_of_margins(words)


def _fullness(row: Sequence[str], width: int) -> int:
    """0 of an empty row, 1 of one cell as titles and notes are, 2 of a row of a table."""
    filled = [cell for cell in row if cell]
    if len(filled) != 1 or width < 2:
        return min(len(filled), 1) + 1 if filled else 0
    is_name = len(row) == width == 2 and " " not in filled[0]  # the other column has none
    return 2 if is_name or len(filled[0]) < SHORTEST_TITLE else 1


def _margins(fullness: Sequence[int]) -> tuple[int, int]:
    """The first row of a table, and that after its last.

    Titles are rows of one cell above the first full one, notes are rows of one cell below an empty one.
    """
    full = [row for row, own in enumerate(fullness) if own == 2]
    if 2 * len(full) <= sum(own > 0 for own in fullness):
        return 0, len(fullness)
    last = full[-1] + 1
    while last < len(fullness) and fullness[last] == 1:
        last += 1
    return full[0], last if any(fullness[last:]) else len(fullness)


def _told_of_margins(words: Sequence[str]) -> list[str]:
    if not words:
        return []
    shown = first_of(map(repr, words), 3)
    return [f"left out above and below the table: {shown}; if they belong to it, {_say('skip_rows=0')}"]


def _read_text_numbers(
    path: Path, table: pd.DataFrame, decimal: str | None, names: list[str], notes: list[str]
) -> None:
    """Turn columns of a sheet whose numbers were typed as text into numbers, in place."""
    words = [n for n in table.columns if table[n].dropna().map(lambda cell: isinstance(cell, str)).all()]
    texts, own = table[words].copy(), [names[list(table.columns).index(place)] for place in words]
    texts.columns = range(len(words))
    _without_marks(texts, own, notes)
    if decimal != ".":
        _read_decimal_commas(path, texts, texts.copy, None, decimal, own, notes)
    for place, name in enumerate(words):
        cells = _texts(texts[place])
        if cells is not None and cells.map(POINT.fullmatch).map(bool).all() and not are_codes(cells):
            texts[place] = pd.to_numeric(texts[place])
            notes.append(f"numbers of {own[place]!r} were text")
        table[name] = texts[place]


# Text


def _read_text(
    path: Path,
    separator: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    skip_rows: int | None = None,
) -> pd.DataFrame:
    if decimal not in (None, ".", ","):
        raise _Refusal(f"decimal must be a point or a comma; got {decimal!r}")
    text, notes = _decoded(path, encoding)
    if skip_rows:
        text = "".join(text.splitlines(keepends=True)[skip_rows:])
    num_blank = sum(1 for _ in itertools.takewhile(lambda line: not line.strip(), text.splitlines()))
    text, first_line = _without_preamble(text, notes)
    if path.suffix.lower() == ".txt" and separator is None and _is_prose(text):
        lines = [""] * num_blank + [line.strip() for line in text.rstrip().splitlines()]
        if not any(map(all, itertools.pairwise(lines))):  # blank lines separate all texts
            lines = list(filter(None, lines))
        table = pd.DataFrame({"text": lines})
        said = f"no columns: {len(lines)} text{'s, one a line' if len(lines) > 1 else ''}"
        said += f", {lines.count('')} of them empty" if "" in lines else ""
        table.attrs |= {"read_as": [*notes, said], "has_columns": False}
        return table
    if not text.strip():
        raise _Refusal(f"{path} is empty: it has no columns and no rows")
    if separator is not None:
        separator = NAMES.get(separator, separator)
        if len(separator) != 1 and separator != SPACES:
            raise _Refusal(f"separator must be one character, tab or space; got {separator!r}")
    else:
        separator = _separator(text)
        if separator != ",":
            notes.append(f"{SHOWN[separator]} between the columns")
    if skip_rows is None:
        text, above = _without_notes(text, separator, notes)
        first_line += above
    first_line += skip_rows or 0
    sample = list(itertools.islice(_records(text, separator), SAMPLE + 1))
    width, are_closed = _check_widths(path, text, separator, first_line)
    if are_closed and len(sample[0]) < width:
        sample[0].append("")
    names, told, num_taken = _names(sample, header, skip_rows, width)
    body = text
    for _ in range(num_taken):
        body = _after_first_record(body, separator)
    body = _without_headers_within(text, body, told) if num_taken else body
    if not body.strip():
        raise _Refusal(f"{path} has no rows")
    cells = zip(*sample[num_taken:], strict=True)
    codes = [place for place, own in enumerate(cells) if are_codes([c for c in own if c and c not in ABSENT])]
    table = _parsed(body, separator, width, dtype=dict.fromkeys(codes, str))
    _without_marks(table, names, notes)
    if decimal != ".":
        again = partial(_parsed, body, separator, width, dtype=str)
        _read_decimal_commas(path, table, again, separator, decimal, names, notes)
    if decimal == ".":
        _read_grouped(table)
    return _named(path, table, names, notes + told)


def _decoded(path: Path, encoding: str | None) -> tuple[str, list[str]]:
    """The text of a file, and the notes on its encoding."""
    raw = path.read_bytes()
    if encoding is not None:
        try:
            return raw.decode(encoding).removeprefix("\ufeff"), []
        except (UnicodeDecodeError, LookupError) as error:
            raise _Refusal(f"{path} is not encoded as {encoding!r}: {error}") from None
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if raw.startswith(mark):
            try:
                return raw.decode(name), [] if name == "utf-8-sig" else ["encoded as UTF-16"]
            except UnicodeDecodeError as error:
                raise _Refusal(f"{path} begins as {name} and is not: {error}; copy it again") from None
    for beginning, kind in MAGIC.items():
        if raw.startswith(beginning) or raw[:20].lower().startswith(beginning):
            raise _Refusal(f"{path} is no table of text: it is {kind}")
    if b"\0" in raw:
        raise _Refusal(
            f"{path} is no text, or encoded otherwise: save it as UTF-8, or {_say('encoding=utf-16')}"
        )
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        pass
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:
        raise _Refusal(
            f"{path} is neither UTF-8 nor Windows-1252: save it as UTF-8, or {_say('encoding=NAME')}"
        ) from None
    return text, [
        f"encoded as Windows-1252, for it is not UTF-8; if letters are wrong, {_say('encoding=NAME')}"
    ]


def _without_preamble(text: str, notes: list[str]) -> tuple[str, int]:
    """The text without blank lines, ``sep=;`` and remarks before it, and how many lines these were."""
    lines = text.splitlines(keepends=True)
    begin = 0
    while begin < len(lines) and not lines[begin].strip():
        begin += 1
    if begin < len(lines) and re.fullmatch(r'"?sep=."?', lines[begin].strip(), re.IGNORECASE):
        begin += 1
    remarks = 0
    while begin + remarks < len(lines) and lines[begin + remarks].startswith("#"):
        remarks += 1
    if remarks and begin + remarks < len(lines):  # the last may be the header: "# age, income"
        last, following = lines[begin + remarks - 1].strip(), lines[begin + remarks].strip()
        is_header = any(0 < last.count(mark) == following.count(mark) for mark in SEPARATORS)
        names, cells = last.lstrip("#").split(), following.split()  # as NumPy writes them
        is_header |= 1 < len(names) == len(cells) and all(map(is_number, cells))
        remarks -= is_header
        if remarks:
            notes.append(
                f"{remarks} lines of remarks (#) left out" if remarks > 1 else "a remark (#) left out"
            )
        if is_header:
            lines[begin + remarks] = lines[begin + remarks].lstrip("# ")
    begin += remarks
    return "".join(lines[begin:]).rstrip("\r\n"), begin


def _is_prose(text: str) -> bool:
    """Whether lines are texts: of several words, few numbers, and no separator makes columns of them."""
    lines = [line.split() for line in itertools.islice(text.splitlines(), SAMPLE) if line.strip()]
    words = [word for line in lines for word in line]
    if not lines or len(words) < 4 * len(lines) or _separator(text) == SPACES:
        return False
    if sum(any(map(str.isalpha, word)) for word in words) < MOSTLY * len(words):
        return False
    widths = (Counter(map(len, itertools.islice(_records(text, mark), SAMPLE))) for mark in SEPARATORS)
    modes = (own.most_common(1)[0] for own in widths if own)
    return len(lines) == 1 or not any(width > 1 and count > MOSTLY * len(lines) for width, count in modes)


def _without_notes(text: str, separator: str, notes: list[str]) -> tuple[str, int]:
    """The text without titles above the table and notes below it, and how many lines were above."""
    lines = text.splitlines(keepends=True)
    near = lines if len(lines) <= 2 * SAMPLE else lines[:SAMPLE] + lines[-SAMPLE:]
    if separator == SPACES or any(line.count('"') % 2 for line in near):
        return text, 0
    rows = [[cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])] for line in near]
    width = Counter(len(row) for row in rows if row).most_common(1)[0][0]
    if width < 2 or max(map(len, rows)) > width:
        return text, 0
    top, bottom = _margins([_fullness(row, width) for row in rows])
    if all(map(is_number, filter(None, rows[top]))):
        top = 0  # no header that a title is above
    below = [place for place in range(top, len(rows)) if rows[place]][:3]
    first, header, data = [rows[place] for place in below] if len(below) == 3 else ([], [], [])
    if 1 < len(first) < width == len(header):
        if not any(map(is_number, header)) and any(map(is_number, data)):
            top = below[1]  # a title with a separator in it
    while len(own := rows[bottom - 1]) == 1 and " " in own[0] and not is_number(own[0]):
        bottom -= 1  # words on a line without a separator are no row
    told = [" ".join(" ".join(row).split()) for row in (*rows[:top], *rows[bottom:])]
    notes += _told_of_margins(list(filter(None, told)))
    return "".join(lines[top : len(lines) - len(rows) + bottom]).rstrip("\r\n"), top


def _records(text: str, separator: str) -> Iterator[list[str]]:
    """The fields of each line that is not blank."""
    for _, fields in _numbered(_lines(text), separator):
        yield [field.strip() for field in fields]


def _lines(text: str) -> Iterator[str]:
    """The lines with their ends, one after the other: a stream would copy the text for a few of them."""
    return (line[0] for line in LINE.finditer(text))


def _numbered(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The number of each record's last line, and its fields."""
    if separator == SPACES:
        lines, separator = (" ".join(line.split()) + "\n" for line in lines), " "
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    for fields in reader:
        if any(fields) or len(fields) > 1:
            yield reader.line_num, fields


def _separator(text: str) -> str:
    """The separator by which the lines have as many fields, and of several the one that leaves numbers."""
    found = {}
    for separator in SEPARATORS:
        sample = list(itertools.islice(_records(text, separator), SAMPLE))
        widths = {len(fields) for fields in sample[1:]} or {len(sample[0])}
        if max(widths) < 2:
            continue
        agrees = len(widths) == 1 and len(sample[0]) == max(widths)
        nearly = len(widths) == 1 and len(sample[0]) == max(widths) - 1  # no name of the row labels
        cells = [cell for fields in sample[1:] for cell in fields if cell]
        commas = separator != ","
        numbers = sum(is_number(cell, commas) for cell in cells) / max(len(cells), 1)
        found[separator] = (2 * agrees + nearly, numbers)
    if found:
        return max(found, key=found.get)
    sample = list(itertools.islice(_records(text, SPACES), SAMPLE))
    widths = {len(fields) for fields in sample}
    cells = [cell for fields in sample[1:] for cell in fields]
    if len(widths) == 1 and widths != {1} and any(is_number(cell, True) for cell in cells):
        return SPACES
    return ","


def _check_widths(path: Path, text: str, separator: str, skipped: int) -> tuple[int, bool]:
    """The number of fields of the rows, and whether a separator closes each of them.

    ValueError names the first line that has another number.
    """
    records = _numbered(io.StringIO(text, newline=""), separator)
    _, first = next(records)
    width, line, are_closed = None, 0, True
    for number, fields in records:
        are_closed = are_closed and not fields[-1]
        if width is None:
            width, line = len(fields), number
        elif len(fields) != width:
            raise _Refusal(
                f"{path}: line {number + skipped} has {len(fields)} fields and line {line + skipped} has "
                f"{width} ({SHOWN.get(separator, repr(separator))} between them): mend the line, or say what "
                f"is between the columns: {_say('separator=semicolon')}"
            )
    if width is None:
        return len(first), False
    is_named = are_closed or len(first) == width or _has_row_labels(text, separator)
    if len(first) not in (width, width - 1) or not is_named:
        hint = "mend the file"
        if separator == "," and width > len(first):
            hint = (
                "if the numbers have decimal commas, the columns cannot be told: write the table with "
                "semicolons between the columns"
            )
        raise _Refusal(
            f"{path}: the first line has {len(first)} fields and the rows have {width} "
            f"({SHOWN.get(separator, repr(separator))} between them): {hint}"
        )
    return width, are_closed


def _has_row_labels(text: str, separator: str) -> bool:
    """Whether the first of one field too many labels its row: all differ, and are words or 1, 2, ..."""
    labels = [fields[0] for fields in itertools.islice(_records(text, separator), 1, None)]
    in_step = labels in ([str(i) for i in range(first, first + len(labels))] for first in (0, 1))
    return in_step or (len(set(labels)) == len(labels) and not any(map(is_number, labels)))


def _names(
    sample: list[list[str]], header: bool | None, skip_rows: int | None, width: int | None = None
) -> tuple[list[str], list[str], int]:
    """Names of the columns, notes, and how many records they and what is told of them took (0, 1 or 2).

    Below the names may be their units, and above them, if nothing is said of it, what groups of columns hold.
    """
    width = width or len(sample[0])
    known = [["" if cell in ABSENT else cell for cell in row] for row in sample]
    names, notes, num_taken = _header(sample[0], known, header, width)
    below = known[1] if num_taken and len(known) > 2 else []
    if not any(below) or any(map(is_number, below)):
        return names, notes, num_taken
    numbers = [p for p in range(width) if _holds_numbers(row[p] for row in known[2:])]
    if not any(below[p] for p in numbers):
        return names, notes, num_taken
    if not any(below[p] for p in range(width) if p not in numbers):
        told = ", ".join(repr(below[p]) for p in numbers[:3] if below[p])
        return names, [*notes, f"units below the names left out: {told}"], 2
    given = [name for name in names if name]
    if header is skip_rows is None and len({*given}) < width == len({*below} - {""}):
        told = ", ".join(map(repr, dict.fromkeys(given)))
        return below, [*notes, f"the second row names the columns; above them is {told}"], 2
    return names, notes, num_taken


def _holds_numbers(cells: Iterable[str]) -> bool:
    held = [cell for cell in cells if cell]
    return bool(held) and all(map(is_number, held))


def _header(
    first: list[str], known: list[list[str]], header: bool | None, width: int
) -> tuple[list[str], list[str], int]:
    """Names of the columns by the first record and those after it, notes, and how many they took (0 or 1)."""
    rest = known[1:]
    numbered = [f"column_{place + 1}" for place in range(width)]
    if header is not None and not isinstance(header, bool):
        raise _Refusal(f"header must be True or False, on the command line yes or no; got {header!r}")
    if header is False:
        return numbered, [], 0
    if len(first) < width:
        return ["", *first], [], 1
    numbers = [place for place, cell in enumerate(first) if cell and is_number(cell)]
    if header is True or not numbers:
        if header is None and rest and not any(first):
            return numbered, [], 0
        return list(first), [], 1
    if not rest:
        return numbered, [], 0
    if _names_in_step([first[place] for place in numbers], [[r[p] for r in rest] for p in numbers]):
        shown = ", ".join(first[place] for place in numbers[:3])
        note = f"the numbers of the first row ({shown}, ...) name the columns; if they are data, "
        return list(first), [note + _say("header=no")], 1
    words = [place for place, cell in enumerate(known[0]) if cell and place not in numbers]
    if any(all(is_number(row[place]) for row in rest if row[place]) for place in words) or any(
        not all(is_number(row[place]) for row in rest if row[place]) for place in numbers
    ):
        return list(first), [], 1
    note = f"no header: the columns are named column_1 to column_{width}; if the first row names them, "
    return numbered, [note + _say("header=yes")], 0


def _names_in_step(cells: list[str], columns: list[list[str]]) -> bool:
    """Whether numbers in the first row are names: 0, 1, 2, ..., years, or others in step, and no values."""
    if any(cell in column for cell, column in zip(cells, columns, strict=True)):
        return False
    values = [float(cell.replace(",", ".")) for cell in cells]
    steps = np.diff(values)
    even = bool(len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-6))
    are_whole = all(cell.isdigit() for cell in cells)
    are_years = are_whole and all(1900 <= value <= 2100 for value in values)
    counted = are_whole and even and values[0] in (0, 1) and steps[0] == 1
    return counted or (are_years and (even or len(values) == 1)) or (even and len(values) > 3)


def _without_headers_within(text: str, body: str, notes: list[str]) -> str:
    """The rows without the lines that repeat the first one, as in files that were put together."""
    header = text[: len(text) - len(body)].splitlines()[0] if len(body) < len(text) else ""
    if not header or f"\n{header}" not in body:
        return body
    lines = body.splitlines(keepends=True)
    kept = [line for line in lines if line.rstrip("\r\n") != header]
    if len(kept) < len(lines):
        count = len(lines) - len(kept)
        again = "a further line that names" if count == 1 else f"{count} further lines that name"
        notes.append(f"{again} the columns left out")
    return "".join(kept)


def _after_first_record(text: str, separator: str) -> str:
    """The text after its header, which may have line breaks between quotes."""
    reader = csv.reader(_lines(text), delimiter=" " if separator == SPACES else separator)
    next(reader)
    return text[sum(map(len, itertools.islice(_lines(text), reader.line_num))) :]


def _parsed(body: str, separator: str, width: int, **options: Any) -> pd.DataFrame:
    return pd.read_csv(
        io.StringIO(body),
        sep=separator,
        header=None,
        names=range(width),
        index_col=False,
        skipinitialspace=separator != SPACES,
        na_values=list(MISSING),
        low_memory=False,
        skip_blank_lines=width > 1,
        **options,
    )


def _texts(column: pd.Series) -> pd.Series | None:
    """The different cells of a column of text, stripped, by what is stripped; None of one without cells."""
    distinct = column.drop_duplicates().dropna()
    return distinct.astype(str).str.strip().set_axis(pd.Index(distinct)) if len(distinct) else None


def _unmarked(cell: str) -> str:
    """A number as text without marks of money, percent and thousands, and with a plain minus sign."""
    cell = NEGATIVE.sub(r"-\1\2\3", cell.strip().replace("\u2212", "-"))
    cell = AFTER.sub("", BEFORE.sub(r"\1", cell))
    return BETWEEN_DIGITS.sub("", cell)


def _without_marks(table: pd.DataFrame, names: list[str], notes: list[str]) -> None:
    """Turn columns whose numbers have such marks into numbers, or text that is read further, in place."""
    for place in table.select_dtypes(exclude=["number", "bool"]):
        cells = _texts(table[place])
        if cells is None or not all(is_number(c) or _is_grouped(c) for c in map(_unmarked, cells)):
            continue
        plain = cells.map(_unmarked)
        if plain.equals(cells):
            continue
        kept = table[place].map(plain)
        table[place] = pd.to_numeric(kept) if all(map(POINT.fullmatch, plain)) else kept
        mark = next(cell for cell, own in zip(cells, plain, strict=True) if cell != own)
        means = ", in percent" if "%" in mark else ", negative" if NEGATIVE.match(mark) else ""
        notes.append(f"numbers of {names[place]!r} without their marks ({mark!r}{means})")


def _is_grouped(cell: str) -> bool:
    return bool(GROUPED_BY_COMMAS.fullmatch(cell) or GROUPED_BY_POINTS.fullmatch(cell))


def _read_decimal_commas(
    path: Path,
    table: pd.DataFrame,
    read_again: Callable[[], pd.DataFrame],
    separator: str,
    decimal: str | None,
    names: list[str],
    notes: list[str],
) -> None:
    """Turn columns of numbers with decimal commas into numbers, in place.

    Where one column has decimal commas, a point between groups of three digits groups thousands. Where a cell
    of a column has another point, commas of this column are none.
    """
    found: list[Any] = []
    doubtful: list[Any] = []
    for place in table.select_dtypes(exclude=["number", "bool"]):
        cells = _texts(table[place])
        if cells is None:
            continue
        role = role_of_commas(cells)
        if role == "group":
            table[place] = pd.to_numeric(table[place].astype("object").str.replace(",", ""))
            notes.append(f"commas of {names[place]!r} group thousands")
        elif role:
            is_doubtful = role == "doubtful" and separator != ";" and decimal is None
            (doubtful if is_doubtful else found).append(place)
    if doubtful and not found and _has_points(read_again()):
        for place in doubtful:
            table[place] = pd.to_numeric(table[place].astype("object").str.replace(",", ""))
            notes.append(
                f"commas of {names[place]!r} group thousands, for points are decimal in other columns"
            )
        return
    if doubtful and not found:
        place = doubtful[0]
        example = next(cell for cell in _texts(table[place]) if "," in cell)
        raise _Refusal(
            f"{path}: column {names[place]!r} has numbers such as {example!r}, which may be "
            f"{example.replace(',', '')} or {example.replace(',', '.')}: say which mark is decimal, "
            f"{_say('decimal=,')} or {_say('decimal=.')}"
        )
    if not found:
        return
    written, grouped = read_again(), []
    for place in table.columns:
        cells = written[place].dropna().str.strip()
        is_grouped = len(cells) and cells.map(lambda cell: bool(GROUPED_BY_POINTS.fullmatch(cell))).all()
        grouped += [repr(names[place])] if is_grouped else []
        if place in (*found, *doubtful) or is_grouped:
            plain = written[place].map(_unmarked, na_action="ignore").str.replace(".", "", regex=False)
            table[place] = pd.to_numeric(plain.str.replace(",", ".", regex=False))
    listed = [repr(names[place]) for place in found + doubtful]
    which = f"column{'s' * (len(listed) > 1)} {', '.join(listed[:5])}{', ...' if len(listed) > 5 else ''}"
    also = f"; points group the thousands of {', '.join(grouped[:5])}" if grouped else ""
    notes.append(f"decimal commas ({which}){also}")


def _has_points(written: pd.DataFrame) -> bool:
    """Whether some number has a decimal point, and not one that groups thousands."""
    for place in written.columns:
        cells = written[place].dropna().str.strip().map(_unmarked)
        points = cells[cells.str.contains(".", regex=False)]
        is_number = len(points) and cells.map(lambda cell: bool(POINT.fullmatch(cell))).all()
        if is_number and not points.map(lambda cell: bool(GROUPED_BY_POINTS.fullmatch(cell))).all():
            return True
    return False


def _read_grouped(table: pd.DataFrame) -> None:
    """Turn columns whose commas group thousands into numbers, in place."""
    for place in table.select_dtypes(exclude=["number", "bool"]):
        cells = _texts(table[place])
        if cells is None or not cells.str.contains(",", regex=False).any():
            continue
        if cells.map(lambda cell: bool(GROUPED_BY_COMMAS.fullmatch(cell) or POINT.fullmatch(cell))).all():
            table[place] = pd.to_numeric(table[place].str.strip().str.replace(",", "", regex=False))


# Names and labels


def _named(path: Path, table: pd.DataFrame, names: list[str], notes: list[str]) -> pd.DataFrame:
    """The table with the names of its columns, an unnamed first one as row labels, without empty margins."""
    table, notes = table.set_axis(range(table.shape[1]), axis=1), list(notes)
    names = [name.strip() for name in names]
    if all(len(name) > 2 and name[0] == name[-1] == "'" for name in names):
        names = [name[1:-1] for name in names]
        notes.append("names without their apostrophes")
    empty = table.isna().all(axis=1).to_numpy()
    last = len(table) - int(np.argmin(empty[::-1])) if not empty.all() else 0
    # where all cells are ticks an empty row is one without a tick
    if last < len(table) and table.shape[1] > 1 and table.nunique().max() > 1:
        count = len(table) - last
        notes.append(f"{count} empty rows at the end left out" if count > 1 else "an empty last row left out")
        table = table.iloc[:last]
    table = _without_totals(table.reset_index(drop=True), notes)
    if table.shape[1] > 1 and (not names[0] or names[0] == "Unnamed: 0") and _labels_rows(table[0]):
        notes.append("the first column, which has no name, labels the rows")
        index = pd.Index(table[0].to_numpy(), name=None)
        table = table.drop(columns=0)
        table.index = index
    for place in list(table.columns):
        if names[place]:
            continue
        if table[place].isna().all():
            table = table.drop(columns=place)
            notes.append(f"column {place + 1}, which has no name and no cells, left out")
        else:
            names[place] = f"column_{place + 1}"
            notes.append(f"column {place + 1}, which has no name, is called {names[place]!r}")
    given = [names[place] for place in table.columns]
    for name, count in Counter(given).items():
        if count > 1:
            places = " and ".join(str(p + 1) for p, other in enumerate(names) if other == name)
            raise _Refusal(
                f"{path} has {count} columns of the name {name!r} (columns {places}): names must "
                f"differ; rename them in the first line of the file, such as {name!r} and {name + '_2'!r}"
            )
    table.columns = given
    table.attrs["read_as"] = notes
    return table


def _without_totals(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """The table without rows at its end, or one at its beginning, that sum up the others.

    A row that a word such as total names is one if a column is the sum, one that is called mean if all
    columns nearly are the mean, any other if two columns or more are sums and all are.
    """
    if len(table) < 3:
        return table
    numbers = table.select_dtypes("number").to_numpy(dtype=float, na_value=np.nan)
    called = {place: _called(table.iloc[place]) for place in (0, *range(-1, -min(4, len(table) - 1), -1))}
    named = list(itertools.takewhile(lambda place: called[place], list(called)[1:]))
    sums, counts = np.nansum(numbers, axis=0), (~np.isnan(numbers)).sum(axis=0)
    for places, where in ((named or [-1], "last"), ([0], "first")):
        with np.errstate(all="ignore"):
            own = sums - np.nansum(numbers[places], axis=0)
            means = own / (counts - (~np.isnan(numbers[places])).sum(axis=0))
        found = [p for p in places if _sums_up(numbers[p], own, means, called[p], len(table) - len(places))]
        for place in found:
            word, what = called[place], "mean" if called[place] in MEANS else "sum"
            shown = f" ({word!r})" if word else ""
            notes.append(f"the {where} row{shown}, which is the {what} of the others, left out")
        if found:
            return table.drop(index=table.index[found]).reset_index(drop=True).infer_objects()
    return table


def _called(row: pd.Series) -> str:
    """The word for sums or means by which a row is named, or none."""
    words = (re.split(r"[\W_]+", cell.strip().lower())[0] for cell in row if isinstance(cell, str))
    return next((word for word in words if word in TOTALS or word in MEANS), "")


def _sums_up(row: np.ndarray, sums: np.ndarray, means: np.ndarray, word: str, num_others: int) -> bool:
    held = ~np.isnan(row)
    if word in MEANS:
        return bool(held.any() and np.isclose(row, means, rtol=ROUNDED)[held].all())
    agrees = (np.isclose(row, sums, rtol=1e-9, atol=0.0) & (sums != 0))[held]
    return bool(agrees.any() if word else len(agrees) > 1 and agrees.all() and num_others >= ROWS_OF_A_SUM)


def _labels_rows(column: pd.Series) -> bool:
    """Whether a column without a name may be the labels of rows: none is missing, and all differ."""
    if column.isna().any():
        return False
    is_whole = pd.api.types.is_integer_dtype(column)
    return is_whole or (not pd.api.types.is_float_dtype(column) and column.is_unique)
