"""Tables from files as people have them: what is told from the file is right, and what cannot be is refused.

The cases are files with one answer; `pandas.read_csv` alone gives another one for most of them.
"""

import sys
import tomllib

import numpy as np
import openpyxl
import pandas as pd
import pytest

from inference import open_rows
from inference.results.written_tables import table_file
from zoo.datasets import read_table, read_tables

NAN = np.nan
READ = {  # text or bytes: columns, row labels (None: 0, 1, ...), cells, a part of the notes
    "a;b\n0,126;-0,132\n0,640;0,105\n": (
        ["a", "b"], None, [[0.126, -0.132], [0.64, 0.105]], "decimal commas",
    ),
    "0,126;-0,132\n0,640;0,105\n": (
        ["column_1", "column_2"], None, [[0.126, -0.132], [0.64, 0.105]], "no hea",
    ),
    "c;n;s\nA;1.234;0,5\nB;22.345;0,7\n": (
        ["c", "n", "s"], None, [["A", 1234, 0.5], ["B", 22345, 0.7]], "of 'n'",
    ),
    "c;n;s\nA;1.234;5\nB;22.345;7\n": (
        ["c", "n", "s"], None, [["A", 1.234, 5], ["B", 22.345, 7]], "semicolons",
    ),
    ",a,b\n0,1.5,2\n1,2.5,3\n": (["a", "b"], [0, 1], [[1.5, 2], [2.5, 3]], "labels the rows"),
    ",a,b\nx,1.5,2\ny,2.5,3\n": (["a", "b"], ["x", "y"], [[1.5, 2], [2.5, 3]], "labels the rows"),
    ",b\n0.5,1\n0.5,2\n": (["column_1", "b"], None, [[0.5, 1], [0.5, 2]], "has no name"),
    "0,1\n1.5,2.1\n2.5,3.2\n": (["0", "1"], None, [[1.5, 2.1], [2.5, 3.2]], "name the columns"),
    "1.5,2.1\n2.5,3.2\n3.1,4.2\n": (
        ["column_1", "column_2"], None, [[1.5, 2.1], [2.5, 3.2], [3.1, 4.2]], "no hea",
    ),
    "0,1\n1,0\n0,1\n": (["column_1", "column_2"], None, [[0, 1], [1, 0], [0, 1]], "no header"),
    "5.1,3.5,se\n4.9,3.0,se\n": (
        ["column_1", "column_2", "column_3"], None, [[5.1, 3.5, "se"], [4.9, 3.0, "se"]], "",
    ),
    "name,2019,2020\nA,1.5,2.5\nB,2.5,3.5\n": (
        ["name", "2019", "2020"], None, [["A", 1.5, 2.5], ["B", 2.5, 3.5]], "",
    ),
    "4.5,4.6,4.7,4.8\n1,2,3,5\n4,5,6,7\n": (
        ["4.5", "4.6", "4.7", "4.8"], None, [[1, 2, 3, 5], [4, 5, 6, 7]], "name",
    ),
    '"a","b"\n"1",2.5,3\n"2",3.5,4\n': (["a", "b"], [1, 2], [[2.5, 3], [3.5, 4]], "labels the rows"),
    "a\tb\n1\t2\n3\t4\n": (["a", "b"], None, [[1, 2], [3, 4]], "tabs"),
    "a|b\n1|2\n3|4\n": (["a", "b"], None, [[1, 2], [3, 4]], "bars"),
    "  u   v\n  1.0   2.0\n  3.0   4.5\n": (["u", "v"], None, [[1, 2], [3, 4.5]], "spaces"),
    "a, b\n1, 2\n3, 4\n": (["a", "b"], None, [[1, 2], [3, 4]], ""),
    "sep=;\na;b\n1,5;2\n2,5;4\n": (["a", "b"], None, [[1.5, 2], [2.5, 4]], "decimal commas"),
    "# by x\n# in m\na,b\n1,2\n3,4\n": (["a", "b"], None, [[1, 2], [3, 4]], "remarks"),
    "# a,b\n1,2\n3,4\n": (["a", "b"], None, [[1, 2], [3, 4]], ""),
    'a,b\n"0,12","1,5"\n"0,15","2,25"\n': (["a", "b"], None, [[0.12, 1.5], [0.15, 2.25]], "decimal commas"),
    "a;b\n1,234;x\n12.50;y\n": (["a", "b"], None, [[1234, "x"], [12.5, "y"]], "commas of 'a' group"),
    "a;b\n1,5;x\n12.50;y\n": (["a", "b"], None, [["1,5", "x"], ["12.50", "y"]], ""),  # both cannot be
    'a,b\n"1,234.50",2\n"5,678.00",3\n': (["a", "b"], None, [[1234.5, 2], [5678, 3]], "group thousands"),
    "a,b\nx,2,\ny,4,\n": (["a", "b"], None, [["x", 2], ["y", 4]], "column 3, which has no name and no cells"),
    "a,b\n1,2,\n2,4,\n": (["a", "b"], None, [[1, 2], [2, 4]], "column 3, which has no name and no cells"),
    "a,b\nx,2,\ny,4,5\n": (["a", "b"], ["x", "y"], [[2, NAN], [4, 5]], "labels the rows"),
    "# u v\n1.0 2.0\n3.0 4.5\n": (["u", "v"], None, [[1, 2], [3, 4.5]], "spaces"),
    "5.1,NA,3\n4.2,2,4\n": (
        ["column_1", "column_2", "column_3"], None, [[5.1, NAN, 3], [4.2, 2, 4]], "no header",
    ),
    "a,b,c\n1.5,#DIV/0!,x\n2.5,3,#REF!\n": (["a", "b", "c"], None, [[1.5, NAN, "x"], [2.5, 3, None]], ""),
    "a,b,c\n,cm,kg\nx,1,2\ny,3,4\n": (
        ["a", "b", "c"], None, [["x", 1, 2], ["y", 3, 4]], "units below the names left out: 'cm', 'kg'",
    ),
    "zip,b\n01067,2\n10115,3\n,4\n": (["zip", "b"], None, [["01067", 2], ["10115", 3], [None, 4]], ""),
    "a,b\nm,s\n1,2\n3,4\n": (["a", "b"], None, [[1, 2], [3, 4]], "units below the names left out: 'm', 's'"),
    ",in cm,,\na,b,c,d\nx,1,2,p\ny,3,4,q\n": (
        ["a", "b", "c", "d"], None, [["x", 1, 2, "p"], ["y", 3, 4, "q"]], "left out above",
    ),
    "who,size,size\na,b,c\nx,1,2\ny,3,4\n": (
        ["a", "b", "c"], None, [["x", 1, 2], ["y", 3, 4]], "above them is 'who', 'size'",
    ),
    "a,b\nx,1\na,b\ny,3\na,b\nz,5\n": (
        ["a", "b"], None, [["x", 1], ["y", 3], ["z", 5]], "2 further lines that name the columns",
    ),
    "a,b,\n1,2,\n3,4,\n,,\n": (["a", "b"], None, [[1, 2], [3, 4]], "left out"),
    "a,b\n1,?\n2,3\n": (["a", "b"], None, [[1, NAN], [2, 3]], ""),
    'n,t\nA,"line one\nline two"\nB,"x; y"\n': (
        ["n", "t"], None, [["A", "line one\nline two"], ["B", "x; y"]], "",
    ),
    "score\n1.5\n\n2.5\n": (["score"], None, [[1.5], [NAN], [2.5]], ""),
    "gr\xf6\xdfe,b\n1,2\n3,4\n".encode("cp1252"): (
        ["gr\xf6\xdfe", "b"], None, [[1, 2], [3, 4]], "Windows-1252",
    ),
    b"\xef\xbb\xbfa,b\n1,2\n3,4\n": (["a", "b"], None, [[1, 2], [3, 4]], ""),
    "a\tb\n1\t2\n3\t4\n".encode("utf-16"): (["a", "b"], None, [[1, 2], [3, 4]], "UTF-16"),
}  # fmt: skip


def written(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("content", READ, ids=lambda content: ascii(content)[:30])
def test_a_file_is_read_as_its_writer_meant_it(content, tmp_path):
    columns, index, cells, note = READ[content]
    table = read_table(written(tmp_path, content))
    index = range(len(cells)) if index is None else index
    assert list(table.columns) == columns and list(table.index) == list(index)
    wanted = pd.DataFrame(cells, columns=columns, index=index)
    pd.testing.assert_frame_equal(table, wanted, check_dtype=False, check_index_type=False)
    assert note in "; ".join(table.attrs["read_as"])
    for name in columns:
        assert pd.api.types.is_numeric_dtype(table[name]) == pd.api.types.is_numeric_dtype(wanted[name]), name


def test_pandas_alone_reads_most_of_them_otherwise(tmp_path):
    """The control of the test above: the former reader fails most of its cases."""
    wrong = 0
    for content, (columns, _, cells, _) in READ.items():
        try:
            table = pd.read_csv(written(tmp_path, content))
            wrong += list(table.columns) != columns or table.shape != np.shape(cells)
        except (ValueError, UnicodeError):
            wrong += 1
    assert wrong >= 20


@pytest.mark.parametrize(
    ("other", "numbers"), [(["0.5", "1.25"], [4522, 1308]), (["1.500", "2.125"], None), (["7", "8"], None)]
)
def test_decimal_points_of_other_columns_tell_that_commas_group(tmp_path, other, numbers):
    rows = zip(["$4,522", "$1,308"], other, strict=True)
    text = "paid\tother\n" + "".join("\t".join(row) + "\n" for row in rows)
    if numbers is None:  # points may group as well, or there are none
        with pytest.raises(ValueError, match="say which mark is decimal"):
            read_table(written(tmp_path, text))
        return
    table = read_table(written(tmp_path, text))
    assert table["paid"].tolist() == numbers and table["other"].tolist() == [0.5, 1.25]
    assert "group thousands, for points" in " ".join(table.attrs["read_as"])


REFUSED = {  # content: part of the message, and what to tell the reader for the cells that follow
    "a,b\n0,126,-0,132\n0,640,0,105\n": ("write the table with semicolons", None, None),
    "a\n0,126\n0,640\n": ("the first line has 1 fields and the rows have 2", None, None),
    'a,b\n"1,234",2\n"5,678",3\n': ("--read decimal=, ", {"decimal": ","}, [[1.234, 2], [5.678, 3]]),
    'a\tb\n1,234\t2\n5,678\t3\n': ("(in Python decimal='.')", {"decimal": "."}, [[1234, 2], [5678, 3]]),
    "a,b,a\n1,2,3\n4,5,6\n": ("2 columns of the name 'a' (columns 1 and 3)", None, None),
    "a,b\n1,2\n3,4\n5,6,7\n": ("line 4 has 3 fields and line 2 has 2", None, None),
    "\n# u\na,b\n1,2\n3\n": ("line 5 has 1 fields and line 4 has 2", None, None),
    "a:b\n1,5:2\n2:3\n": ("", {"separator": ":"}, [[1.5, 2], [2, 3]]),
    "": ("is empty", None, None),
    "\n\n": ("is empty", None, None),
    "a,b\n": ("has no rows", None, None),
    b"PK\x03\x04abc": ("give it the ending .xlsx", None, None),
    b"PAR1abc": ("give it the ending .parquet", None, None),
    "<!DOCTYPE html>\n<table></table>\n": ("a web page", None, None),
    b"a\0,\0b\0\n\x001\0,\x002\0\n\0": ("encoding=utf-16", {"encoding": "utf-16-le"}, [[1, 2]]),
    b"a,b\n\x81,1\n\x82,2\n": ("--read encoding=NAME", {"encoding": "cp437"}, [["\xfc", 1], ["\xe9", 2]]),
}  # fmt: skip


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: ascii(content)[:30])
def test_what_cannot_be_told_is_refused_and_the_remedy_works(content, tmp_path):
    message, how, cells = REFUSED[content]
    path = written(tmp_path, content)
    if message:
        with pytest.raises(ValueError, match=r".") as caught:
            read_table(path)
        assert message in str(caught.value) and "\n" not in str(caught.value)
        assert type(caught.value) is ValueError
    if how is not None:
        assert read_table(path, **how).to_numpy().tolist() == cells


def test_a_header_is_what_the_reader_says_it_is(tmp_path):
    path = written(tmp_path, "0,1\n1.5,2.1\n2.5,3.2\n")
    assert read_table(path, header=False).shape == (3, 2)
    path = written(tmp_path, "1.5,2.1\n2.5,3.2\n3.5,4\n")
    assert list(read_table(path, header=True).columns) == ["1.5", "2.1"]


@pytest.mark.parametrize(("ending", "package"), [(".parquet", "pyarrow"), (".xlsx", "openpyxl")])
def test_a_missing_extra_is_named(ending, package, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=rf"{package}.*pip install 'probabilistic-model-zoo\["
    ) as caught:
        read_table(written(tmp_path, b"PAR1", f"table{ending}"))
    extra = str(caught.value).partition("zoo[")[2].partition("]")[0]
    with open("pyproject.toml", "rb") as file:
        assert package in tomllib.load(file)["project"]["optional-dependencies"][extra][0]


@pytest.mark.needs_peer
def test_parquet_and_workbooks_are_read(tmp_path):
    table = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    table.to_parquet(tmp_path / "t.parquet")
    table.to_excel(tmp_path / "t.xlsx", index=False)
    for name in ("t.parquet", "t.xlsx"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name), table, check_dtype=False)
    table.to_excel(tmp_path / "i.xlsx")
    assert list(read_table(tmp_path / "i.xlsx").columns) == ["a", "b"]
    with pd.ExcelWriter(tmp_path / "two.xlsx") as writer:
        table.to_excel(writer, sheet_name="first", index=False)
        table.to_excel(writer, sheet_name="second", index=False)
    assert sorted(read_tables(tmp_path / "two.xlsx")) == ["first", "second"]
    with pytest.raises(ValueError, match="several tables, first, second"):
        read_table(tmp_path / "two.xlsx")


def test_options_of_text_are_refused_of_arrays(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones((3, 2)))
    with pytest.raises(ValueError, match="decimal is of text files"):
        read_table(tmp_path / "t.npz", decimal=",")
    np.save(tmp_path / "u.npy", np.ones((3, 2)))
    (tmp_path / "u.npy").rename(tmp_path / "u.npz")
    with pytest.raises(ValueError, match="one array"):
        read_table(tmp_path / "u.npz")


def test_a_wide_table_is_read_in_reasonable_passes(tmp_path):
    """Names are counted once, not once a column: ten thousand columns take less than a hundred passes."""
    names = [f"word{i}" for i in range(10_000)]
    text = ",".join(names) + "\n" + "\n".join(",".join(["1"] * 10_000) for _ in range(3))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    path = written(tmp_path, text)
    sys.setprofile(count)
    try:
        table = read_table(path)
    finally:
        sys.setprofile(None)
    assert table.shape == (3, 10_000) and calls < 2_000_000


@pytest.mark.parametrize("in_batches", [False, True])
def test_checksums_of_parquet_are_verified_where_there_are_any(in_batches, tmp_path):
    """Without them a flipped bit is read as another number, which the documentation says."""
    table = pd.DataFrame({"a": np.arange(1000.0), "b": np.arange(1000.0)[::-1]})
    path = tmp_path / "t.parquet"

    def read():
        if not in_batches:
            return read_table(path)["a"].to_numpy()
        return np.concatenate([chunk["a"].to_numpy() for chunk in open_rows(path)])

    for has_sums in (True, False):
        table.to_parquet(path, write_page_checksum=has_sums, compression="none", use_dictionary=False)
        np.testing.assert_array_equal(read(), table["a"])
        content = bytearray(path.read_bytes())
        content[content.index(np.arange(500.0, 504.0).tobytes())] ^= 1
        path.write_bytes(content)
        if has_sums:
            with pytest.raises(ValueError, match=r"t\.parquet cannot be read.*(?i:crc|checksum)"):
                read()
        else:
            assert np.count_nonzero(read() != table["a"].to_numpy()) == 1


@pytest.mark.parametrize("ending", ["csv", "tsv", "xlsx", "parquet"])
def test_a_table_that_is_written_in_parts_is_read_as_one(ending, tmp_path):
    table = pd.DataFrame({"x": np.arange(5.0), "word": list("abcde")}, index=[f"r{i}" for i in range(5)])
    with table_file(tmp_path / f"rows.{ending}") as add:
        for part in (table[:2], table[2:3], table[3:]):
            add(part)
    found = read_table(tmp_path / f"rows.{ending}")
    assert found["x"].tolist() == table["x"].tolist() and found["word"].tolist() == table["word"].tolist()
    assert found.index.tolist() == table.index.tolist()


def test_tables_that_we_write_in_parquet_have_checksums(tmp_path):
    table, path = pd.DataFrame({"x": np.arange(5000.0)}), tmp_path / "rows.parquet"
    with table_file(path) as add:
        add(table)
    np.testing.assert_array_equal(read_table(path)["x"], table["x"])
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read.*(?i:crc|checksum)"):
        read_table(path)


@pytest.mark.parametrize(
    ("cells", "numbers", "mark"),
    [
        (["1'234.50", "7.25"], [1234.5, 7.25], "1'234.50"),
        (["7 %", "", "12.5 %", "7 %", " 7 %"], [7.0, np.nan, 12.5, 7.0, 7.0], "7 %"),
        (["1\u202f234,50", "7,25"], [1234.5, 7.25], "1\u202f234,50"),
        (["12.5 %", "7%"], [12.5, 7.0], "12.5 %"),
        (["€12.50", "-€3"], [12.5, -3.0], "€12.50"),
        (["12.50 EUR", "3 EUR"], [12.5, 3.0], "12.50 EUR"),
        (["USD 12.50", "3"], [12.5, 3.0], "USD 12.50"),
        (["\u22122.5", "3.5"], [-2.5, 3.5], "\u22122.5"),
        (["(12.50)", "$(3)", "(1,234)", "7.5"], [-12.5, -3.0, -1234.0, 7.5], "(12.50)', negative"),
        (["7.5", "12.50-"], [7.5, -12.5], "12.50-', negative"),
    ],
)
def test_marks_of_numbers_are_left_out_and_said(tmp_path, cells, numbers, mark):
    path = tmp_path / "a.csv"
    path.write_text(
        "name;x\n" + "".join(f"row {i};{cell}\n" for i, cell in enumerate(cells)), encoding="utf-8"
    )
    table = read_table(path)
    np.testing.assert_allclose(table["x"], numbers)
    assert any(f"'{mark}" in note or repr(mark) in note for note in table.attrs["read_as"] if "'x'" in note)


@pytest.mark.parametrize(
    "cells",
    [
        ["A4", "B5"],
        ["12 km", "3 km"],
        ["100% wool", "50% silk"],
        ["$a", "$1"],
        ["(a)", "(1)"],
        ["18-", "18-24"],
    ],
)
def test_words_with_such_marks_stay_words(tmp_path, cells):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{cell},1.5\n" for cell in cells), encoding="utf-8")
    assert list(read_table(path)["x"]) == cells


def test_numbers_typed_as_text_into_a_workbook_are_numbers(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["name", "x", "y", "z"], ["a", "1.234,50", "2.5", "left"], ["b", "7,25", "3.5", None]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    table = read_table(tmp_path / "a.xlsx")
    np.testing.assert_allclose(table[["x", "y"]].to_numpy(), [[1234.5, 2.5], [7.25, 3.5]])
    assert list(table["z"][:1]) == ["left"] and "numbers of 'y' were text" in table.attrs["read_as"]


def test_numbers_that_a_workbook_shows_in_percent_are_those_of_its_csv_file(tmp_path):
    """Guards rows of a workbook, .2166, that a fit to the CSV file, 21.66%, takes for another cluster's."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    rows = (
        ["name", "rate", "plain", "some"],
        ["a", 0.2166, 0.2166, 0.5],
        ["b", None, 3, 0.25],
        ["c", 1, 5, 1],
    )
    for row in rows:
        book.active.append(row)
    for cell in ("B2", "B4", "D2"):
        book.active[cell].number_format = "0.00%"
    book.save(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text("name,rate,plain,some\na,21.66%,.2166,.5\nb,,3,.25\nc,100.00%,5,1\n")
    table = read_table(tmp_path / "a.xlsx")
    pd.testing.assert_frame_equal(table, read_table(tmp_path / "a.csv"), check_dtype=False)
    assert "numbers of 'rate' in percent, as they are shown" in table.attrs["read_as"]


@pytest.mark.parametrize(
    ("header", "names"), [("'a'\t'b c'", ["a", "b c"]), ("'a'\tb", ["'a'", "b"]), ("'\tb", ["'", "b"])]
)
def test_names_are_without_the_apostrophes_that_all_of_them_have(tmp_path, header, names):
    (tmp_path / "t.csv").write_text(f"{header}\n1\t2\n3\t5\n4\t1\n")
    table = read_table(tmp_path / "t.csv")
    assert list(table.columns) == names and table.shape == (3, 2)
    assert ("names without their apostrophes" in table.attrs["read_as"]) == (names[0] == "a")


def test_a_last_row_without_a_tick_is_a_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\nx,\n,x\n,\n", encoding="utf-8")
    assert len(read_table(path)) == 3


# Around the table

BRANCHES = [[f"b{i:02d}", 1.5 * i, 2.25 * i] for i in range(1, 9)]
ROWS = "".join(f"{name},{a},{b}\n" for name, a, b in BRANCHES)
HEADER = "branch,first,second\n"
TOTAL = "Total,54,81\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"Sales\n{HEADER}{ROWS}", "'Sales'"),
        (f"Sales,,\n,,\n{HEADER}{ROWS}", "'Sales'"),  # as a spreadsheet writes it
        (f"Sales by branch, 2024\n\n{HEADER}{ROWS}", "'Sales by branch 2024'"),
        (f"{HEADER}{ROWS}\nSource: own count\nIn thousands\n", "'Source: own count', 'In thousands'"),
        (f"{HEADER}{ROWS},,\nSource,,\n", "'Source'"),
        (f"Sales\n{HEADER}{ROWS}{TOTAL}Source: own count\n", "'Sales', 'Source: own count'"),
        (f"{HEADER}{ROWS}{TOTAL}", "the last row ('total'), which is the sum of the others, left out"),
        (f"{HEADER}{ROWS}all,54,81\n", "the last row, which is the sum"),
        (f"{HEADER}{ROWS}Total,54,9\n", "the last row ('total')"),  # of the other column the mean
        (f"{HEADER}{TOTAL}{ROWS}", "the first row ('total'), which is the sum of the others, left out"),
        (f"{HEADER}all,54,81\n{ROWS}", "the first row, which is the sum"),
        (f"{HEADER}{ROWS}{TOTAL}Average,6.75,10.1\n", "('total'), which is the sum of the others"),
        (f"{HEADER}{ROWS}Mean,6.8,10.1\n{TOTAL}", "('mean'), which is the mean of the others"),
        (f"Sales\n\n{HEADER}{ROWS}{TOTAL}\nSource\n", "'Sales', 'Source'"),
    ],
)
def test_titles_notes_and_totals_are_left_out_and_said(tmp_path, text, told):
    table = read_table(written(tmp_path, text))
    assert table.columns.tolist() == ["branch", "first", "second"]
    assert table.to_numpy().tolist() == BRANCHES and told in " ".join(table.attrs["read_as"])


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("x,\n1,2\n3,4\n5,6\n", (3, 2)),  # a second column without a name
        ("a,b\n1,2\n2,3\n3,5\n6,10\n", (4, 2)),  # sums of few rows, which nothing calls a total
        (f"{HEADER}{ROWS}total,54.5,82\n", (9, 3)),  # no sums
        (f"{HEADER}{ROWS}b09,54,82\n", (9, 3)),  # the sum of one column
        (f"{HEADER}{ROWS}mean streets,6.8,12\n", (9, 3)),  # the mean of one column
        (f"{HEADER}b00,none,none\n{ROWS}", (9, 3)),  # no units, but a row without numbers
        ("id,tick\n1,\n2,x\n3,\n4,\n", (4, 2)),  # rows of one cell are rows where most are
        (f"{HEADER}{ROWS}b09,,\n", (9, 3)),
        ("a,b,c\n" + "x,x,\n" * 5 + ",,\nx,,\n", (7, 3)),  # ticks
    ],
)
def test_rows_that_are_data_stay(tmp_path, text, shape):
    assert read_table(written(tmp_path, text)).shape == shape


def test_rows_above_the_table_can_be_told(tmp_path):
    path = written(tmp_path, f"2,4,6\n{HEADER}{ROWS}")
    assert read_table(path, skip_rows=1).to_numpy().tolist() == BRANCHES
    kept = read_table(written(tmp_path, f"Sales,,\n{HEADER}{ROWS}"), skip_rows=0)
    assert len(kept) == len(BRANCHES) + 1


def test_a_sheet_with_a_title_a_total_and_a_note(tmp_path):
    book = openpyxl.Workbook()
    rows = [["Sales"], [], ["branch", "first", "second"], *BRANCHES, ["Summe", 54.0, 81.0], [], ["Source"]]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.to_numpy().tolist() == BRANCHES
    assert "'Sales', 'Source'" in table.attrs["read_as"][0] and "'summe'" in table.attrs["read_as"][1]
    assert len(read_table(tmp_path / "t.xlsx", skip_rows=2)) == len(BRANCHES) + 2


def test_a_text_file_without_columns_has_a_text_a_line(tmp_path):
    lines = [
        "Late parcel, damaged at the door.",
        "Money back for the parcel",
        "The app, again, has an error",
    ]
    (tmp_path / "t.txt").write_text("\n\n".join(lines))
    table = read_table(tmp_path / "t.txt")
    assert table.columns.tolist() == ["text"] and table["text"].tolist() == lines
    assert table.attrs["read_as"] == ["no columns: 3 texts, one a line"]
    held = ["", *lines, "", lines[0]]  # a blank line between some texts is one that holds nothing
    (tmp_path / "t.txt").write_text("\n".join([*held, "", "  ", ""]))
    table = read_table(tmp_path / "t.txt")
    assert table["text"].tolist() == held
    assert table.attrs["read_as"] == ["no columns: 6 texts, one a line, 2 of them empty"]
    (tmp_path / "t.txt").write_text("name\tnote\n" + "".join(f"a\t{line}\n" for line in lines))
    assert read_table(tmp_path / "t.txt").columns.tolist() == ["name", "note"]
