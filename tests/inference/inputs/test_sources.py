"""Rows that lie elsewhere: what may be passed, what the columns hold, what is refused, and reading ahead."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest

import zoo
from inference import columns_of, fit, open_rows
from inference.inputs import surveys
from inference.inputs.reading_ahead import read_ahead
from inference.inputs.sources import as_source
from inference.inputs.surveys import read_all_columns
from inference.inputs.tables import read_parts
from tests.support.processes import LIMIT, started

X = np.random.default_rng(0).normal(size=(300, 2)) + 4 * np.arange(300)[:, None].repeat(2, 1) / 300
CALL = {"batch_size": 64, "max_iterations": 3, "tolerance": 0, "num_samples": 2, "progress": False}
MODEL = zoo.Mixture.from_data(X, num_components=3)


def objective(tree):
    return tree["trace"]["objective"].to_numpy()


@pytest.fixture(scope="module")
def held():
    return objective(fit(MODEL, X, **CALL))


@pytest.fixture
def folder(tmp_path):
    """Two tables of text, their columns in different orders, and files that do not count."""
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame[:100].to_csv(tmp_path / "0.csv", index=False, float_format="%.17g")
    frame[100:][["b", "a"]].to_csv(tmp_path / "2.csv", index=False, float_format="%.17g")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".0.csv.crc").write_text("")
    return tmp_path


@pytest.mark.slow
def test_files_give_the_fit_of_the_array(held, folder, tmp_path):
    parts = [tmp_path / "x0.npy", tmp_path / "x1.npy"]
    np.save(parts[0], X[:130])
    np.save(parts[1], np.asfortranarray(X[130:]).astype(">f8"))
    np.testing.assert_array_equal(objective(fit(MODEL, parts, **CALL)), held)
    np.testing.assert_array_equal(objective(fit(MODEL, str(tmp_path / "x?.npy"), **CALL)), held)
    for file in parts:
        file.unlink()
    tree = fit(MODEL, folder, **CALL)
    np.testing.assert_allclose(objective(tree), held, rtol=1e-12)
    assert tree["posterior"]["feature"].values.tolist() == ["a", "b"]


def test_rows_of_a_folder_are_in_the_order_of_files_and_columns_in_that_of_the_first(folder):
    """All rows, those of chosen columns, chosen rows, one column and the first chunk."""
    source = as_source(folder)
    read = pd.concat(list(source))
    assert read.columns.tolist() == ["a", "b"] and read.index.tolist() == list(range(300))
    np.testing.assert_array_equal(read.to_numpy(), X)
    assert source.num_rows == 300
    np.testing.assert_array_equal(pd.concat(list(source.taking(["b", "a"]))).to_numpy(), X[:, ::-1])
    rows = np.array([3, 63, 64, 99, 100, 163, 299])
    np.testing.assert_array_equal(source.picked(rows), X[rows])
    np.testing.assert_array_equal(source.column("b"), X[:, 1])
    np.testing.assert_array_equal(source.first().to_numpy(), X[:100])


@pytest.mark.needs_peer
def test_libraries_give_the_fit_of_the_array(held, tmp_path):
    """Arrow, Zarr and Dask; partitions without rows and columns in another order among them."""
    import dask.array
    import dask.dataframe
    import pyarrow
    import pyarrow.dataset
    import zarr

    frame = pd.DataFrame(X, columns=["a", "b"])
    (tmp_path / "p").mkdir()
    frame[:100].set_axis([f"r{row}" for row in range(100)]).to_parquet(tmp_path / "p" / "0.parquet")
    frame[:0].to_parquet(tmp_path / "p" / "1.parquet")
    frame[100:][["b", "a"]].to_parquet(tmp_path / "p" / "2.parquet", row_group_size=70)
    (tmp_path / "p" / "_SUCCESS").write_text("")
    array = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(77, 1), dtype="f8")
    array[:] = X
    lazy = dask.dataframe.from_pandas(frame, npartitions=4)
    sources = [
        tmp_path / "p",
        [str(tmp_path / "p" / "*.parquet")],
        pyarrow.dataset.dataset(tmp_path / "p"),
        pyarrow.Table.from_pandas(frame),
        array,
        str(tmp_path / "x.zarr"),
        dask.array.from_array(X, chunks=(90, 1)),
        lazy.to_dask_array(),
        lazy,
        lazy.repartition(npartitions=2),
    ]
    for source in sources:
        np.testing.assert_array_equal(objective(fit(MODEL, source, **CALL)), held)
    names = fit(MODEL, lazy, **CALL)["posterior"]["feature"].values
    assert names.tolist() == ["a", "b"]


def mixed(num_rows):
    """A table of all kinds, whose rare cells come late."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "row": np.arange(num_rows),
            "age": np.where(rng.random(num_rows) < 0.1, np.nan, rng.normal(40.0, 9.0, num_rows)),
            "visits": rng.poisson(3.0, num_rows),
            "smoker": rng.choice(["yes", "no"], num_rows),
            "colour": rng.choice(["red", "green"], num_rows),
            "flag": rng.integers(0, 2, num_rows),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, num_rows), unit="D"),
            "weight": rng.integers(0, 3, num_rows).astype(float),
            "year": rng.choice([2001, 2002, 2004], num_rows),
        }
    )
    table.loc[num_rows - 4, "year"] = 2003  # which makes them no levels
    table.loc[num_rows - 3, "colour"] = "blue"
    table.loc[num_rows - 2, "flag"] = 2
    return table


def test_columns_are_decided_by_all_rows(tmp_path, monkeypatch):
    """Seventy rows of a thousand are looked at: a word, a number and missing cells that come late count."""
    monkeypatch.setattr(surveys, "SURVEYED", 70)
    table = mixed(1000)
    table.to_csv(tmp_path / "t.csv", index=False)
    wanted = read_all_columns(zoo.Mixture(), (pd.read_csv(tmp_path / "t.csv"),), None, None, None)[1][0]
    source = as_source(tmp_path / "t.csv")
    found, (columns,), (encoded,) = read_all_columns(zoo.Mixture(), (source,), None, None, None)
    assert [(c.name, c.kind, c.levels, c.num_missing) for c in columns.columns] == [
        (c.name, c.kind, c.levels, c.num_missing) for c in wanted.columns
    ]
    assert columns.label == "row" and columns.columns[4].levels == ("blue", "green", "red")
    whole = wanted.encoded(pd.read_csv(tmp_path / "t.csv"))
    pd.testing.assert_frame_equal(pd.concat(list(encoded)), whole)


@pytest.mark.slow
def test_a_mixed_table_with_weights_by_column(tmp_path):
    """Families by column, missing cells and weights: as of the table in memory, in batches too."""
    table = mixed(200).drop(columns="row")
    table.to_csv(tmp_path / "t.csv", index=False)
    model = zoo.Mixture(num_components=2)
    call = CALL | {"families": {"flag": "gaussian"}}
    read = pd.read_csv(tmp_path / "t.csv")
    held = fit(model, read.drop(columns="weight"), sample_weight=read["weight"], **call)
    tree = fit(model, tmp_path / "t.csv", sample_weight="weight", **call)
    assert "weight" not in columns_of(tree).index
    pd.testing.assert_frame_equal(columns_of(tree), columns_of(held))
    np.testing.assert_allclose(objective(tree), objective(held), rtol=1e-12)
    np.testing.assert_array_equal(tree["constant_data"]["sample_weight"], table["weight"])


def refused(kind, match, source, **call):
    with pytest.raises(kind, match=match):
        fit(MODEL, source, **CALL | call)


def test_errors_name_the_file_and_the_remedy(folder, tmp_path):
    frame = pd.DataFrame(X[:20], columns=["a", "c"])
    frame.to_csv(folder / "3.csv", index=False)
    refused(ValueError, r"3\.csv lacks the column 'b' of .*0\.csv", folder)
    frame.rename(columns={"c": "b"}).assign(z=1.0).to_csv(folder / "3.csv", index=False)
    refused(ValueError, r"3\.csv has the column 'z', which .*0\.csv lacks.*columns=", folder)
    chosen = open_rows(folder, columns=["b", "a"])
    assert next(iter(chosen)).columns.tolist() == ["b", "a"] and chosen.num_rows == 320
    with pytest.raises(ValueError, match="has no column 'q'; there are a, b"):
        open_rows(folder / "0.csv", columns=["q"])
    refused(ValueError, r"0\.csv is read twice", [folder / "0.csv", folder / "2.csv", folder / "0.csv"])
    refused(ValueError, "is read in batches: give batch_size", folder / "0.csv", batch_size=None)
    refused(FileNotFoundError, "^x: there is no file .*none.npy$", tmp_path / "none.npy")
    refused(FileNotFoundError, "^x: there is no file strange; text in place of data is the path", "strange")
    refused(FileNotFoundError, "no file is named .*none", str(tmp_path / "none*.npy"))
    refused(ValueError, "must end in one of", tmp_path / "_SUCCESS")
    np.save(tmp_path / "x.npy", X)
    refused(ValueError, "several kinds", [folder / "0.csv", tmp_path / "x.npy"])
    np.save(tmp_path / "y.npy", X[:, :1])
    refused(ValueError, r"y\.npy has 1 columns, and .*x\.npy has 2", [tmp_path / "x.npy", tmp_path / "y.npy"])
    np.save(tmp_path / "z.npy", X[:, 0])
    refused(ValueError, r"z\.npy must hold an array of rows and columns", tmp_path / "z.npy")
    np.save(tmp_path / "e.npy", X[:0])
    refused(ValueError, r"e\.npy has no rows", tmp_path / "e.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    refused(ValueError, r"cut\.npy", tmp_path / "cut.npy")
    refused(TypeError, "names a column, and the data have no names", tmp_path / "x.npy", sample_weight="w")
    refused(ValueError, "sample_weight names no column: 'w'", folder / "0.csv", sample_weight="w")
    (tmp_path / "empty").mkdir()
    refused(FileNotFoundError, "holds no file", tmp_path / "empty")
    with pytest.raises(ValueError, match="'em' of mixture does not take batch_size"):
        fit(MODEL, tmp_path / "x.npy", method="em", batch_size=10)
    with pytest.raises(ValueError, match="of epca does not take batch_size.*zoo.PPCA"):
        fit(zoo.EPCA(num_latents=1), tmp_path / "x.npy", batch_size=10)
    with pytest.raises(TypeError, match="must be a path, a list of paths, or an object"):
        open_rows(3)


def test_a_file_that_changes_between_passes_is_an_error(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    source = open_rows(path)
    assert sum(len(chunk) for chunk in source) == 300
    np.save(path, X[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(ValueError, match=r"x\.npy has changed since it was opened"):
        fit(MODEL, source, **CALL)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="cannot be read any more"):
        list(source)


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("x.parquet", "pyarrow", "parquet"), ("x.zarr", "zarr", "zarr")]
)
def test_a_package_that_is_not_there_is_named_with_its_extra(tmp_path, monkeypatch, name, package, extra):
    (tmp_path / name).mkdir() if name == "x.zarr" else (tmp_path / name).write_bytes(b"PAR1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs? {package}.*\[{extra}\]"):
        open_rows(tmp_path / name)


def test_no_library_is_imported_before_its_object_is_passed(tmp_path):
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, inference.inputs.sources as s; list(s.open_rows('x.npy')); "
        "print([n for n in ('pyarrow', 'zarr', 'dask') if n in sys.modules])"
    )
    run = [sys.executable, "-c", code]
    with started(run, cwd=tmp_path) as process:
        stdout, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    assert stdout.strip() in ("[]", "['pyarrow']")  # pandas imports pyarrow where it is installed


# Reading ahead


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name == "reading ahead"]


def test_chunks_come_in_order_and_the_thread_is_at_most_so_far_ahead():
    begun = []

    def read():
        for number in range(20):
            begun.append(number)
            yield number

    taken = []
    for number in read_ahead(read, depth=2):
        time.sleep(0.002)
        taken.append(number)
        assert len(begun) <= len(taken) + 2 + 1
    assert taken == list(range(20)) and not reading_threads()


def test_the_next_chunk_is_read_while_one_is_worked_on():
    begun = [threading.Event() for _ in range(4)]

    def read():
        for number in range(3):
            begun[number].set()
            yield number
        begun[3].set()

    for number in read_ahead(read, depth=1):
        assert begun[number + 1].wait(LIMIT)


def test_errors_and_leaving_early_end_the_thread():
    def read():
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(read_ahead(read))
    assert not reading_threads()
    closed = []

    def endless():
        try:
            while True:
                yield np.zeros(10)
        finally:
            closed.append(True)

    for _ in read_ahead(endless):
        break
    deadline = time.monotonic() + LIMIT
    while reading_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not reading_threads() and closed


def test_ctrl_c_while_waiting_for_the_disk_is_raised_and_ends_the_thread():
    release = threading.Event()

    def slow():
        yield 1
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(0.2)
        yield 2

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            list(read_ahead(slow))
    finally:
        signal.signal(signal.SIGINT, former)
    assert not reading_threads()


def test_a_generator_that_can_be_read_once_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match="read only once.*callable that makes a fresh iterator"):
        fit(MODEL, (chunk for chunk in np.split(X, 3)), **CALL)


@pytest.mark.parametrize("names", [["d0", "d1", "d2"], [0, 1, 2]])
def test_a_table_of_documents_and_words_names_the_call_that_turns_it(tmp_path, names):
    """In memory and in batches; a category beside the counts of two words is no such table."""
    long = pd.DataFrame(
        {"document": np.repeat(names, 2), "word": list("abacbc"), "count": [3, 1, 2, 2, 1, 4]}
    )
    long.to_csv(tmp_path / "long.csv", index=False)
    told = r"pivot_table\(index='document', columns='word', values='count', aggfunc='sum', fill_value=0\) has"
    for rows, batch_size in ((long, None), (long, 2), (tmp_path / "long.csv", 2)):
        with pytest.raises(ValueError, match=told):
            fit(zoo.LDA(num_topics=2), rows, batch_size=batch_size)
    beside = pd.DataFrame({"a": [1, 1, 2], "b": [0, 2, 1], "kind": ["x", "x", "y"]})
    with pytest.warns(UserWarning, match="columns left out: kind"):
        _, (columns,) = read_parts(zoo.LDA(num_topics=2), (beside,))
    assert [column.name for column in columns.kept] == ["a", "b"]
