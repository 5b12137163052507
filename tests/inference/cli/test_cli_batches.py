"""Commands whose data are read in batches: several files, a folder, an array; what is refused."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import zoo
from inference import fit, load, log_density, open_rows, transform
from inference.cli import main, predicting
from zoo.intake import Table

X = np.random.default_rng(0).normal(size=(200, 2)) + 6 * np.random.default_rng(1).integers(0, 2, (200, 1))
FIT = (
    "--set",
    "num_components=2",
    "--max-iterations",
    "4",
    "--num-samples",
    "2",
    "--no-progress",
    "--batch-size",
    "64",
)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Two files of text in a folder, with the copies of each row and a word beside the numbers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()
    table = pd.DataFrame(X, columns=["a", "b"]).assign(copies=np.arange(200) % 3, note="word")
    table[:80].to_csv("rows/0.csv", index=False)
    table[80:].to_csv("rows/1.csv", index=False)
    return tmp_path


@pytest.mark.slow
def test_files_are_fitted_and_scored(rows, capsys):
    """The columns that --x names, weighted by another; what is written is what Python says."""
    files = ("rows/0.csv", "rows/1.csv")
    assert (
        main(["fit", "mixture", *files, "--x", "a,b", "--sample-weight", "copies", *FIT, "--out", "f.nc"])
        == 0
    )
    out = capsys.readouterr().out
    assert "data       0: 200 rows, 3 columns (a, b, copies) from 2 files in batches of 64" in out
    tree = load("f.nc")
    assert tree["posterior"]["feature"].values.tolist() == ["a", "b"] and tree.attrs["batch_size"] == 64
    np.testing.assert_array_equal(tree["constant_data"]["sample_weight"], np.arange(200) % 3)
    assert main(["predict", "f.nc", "rows", "--batch-size", "50"]) == 0
    out = capsys.readouterr().out
    assert "cluster of each row, and its probability" in out and "and 195 more rows" in out
    read = pd.read_csv("f-rows.csv", index_col="observation")
    shares = transform(tree, open_rows("rows", columns=["a", "b"]))
    np.testing.assert_array_equal(read.index, np.arange(200))
    np.testing.assert_allclose(read["probability"], shares.max("component"), rtol=1e-12)
    np.save("x.npy", X)
    assert main(["predict", "f.nc", "x.npy", "--what", "log_density", "--out", "d.npy"]) == 0
    np.testing.assert_allclose(np.load("d.npy")[:, 0], log_density(tree, X), rtol=1e-12)
    assert (
        main(["predict", "f.nc", "rows/*.csv", "--what", "scores", "--out", "s.tsv", "--batch-size", "99"])
        == 0
    )
    np.testing.assert_allclose(pd.read_csv("s.tsv", sep="\t", index_col=0), shares, rtol=1e-12, atol=1e-12)
    assert main(["predict", "f.nc", "rows/0.csv", "--batch-size", "30", "--out", "one.csv"]) == 0
    assert pd.read_csv("one.csv", index_col=0).index.tolist() == list(range(80))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("fit", "mixture", "rows"),
            "rows is read in batches: say how many rows each has, such as --batch-size",
        ),
        (
            ("fit", "paired", "rows/0.csv", "rows/1.csv"),
            "tables of the same rows, each with columns of its own, go by --id COLUMN",
        ),
        (("fit", "mixture", "rows/0.csv", "faithful"), "faithful is a data set of the catalogue"),
        (("fit", "sppca", "rows", "--y", "a", "--batch-size", "9"), "--y goes with one table in memory"),
        (("fit", "mixture", "rows", "--x", "a,q", *FIT), "has no column 'q'; there are a, b, copies, note"),
        (("fit", "mixture", "rows", "--sample-weight", "q", *FIT), "sample_weight names no column: 'q'"),
        (("fit", "mixture", "none*.csv", *FIT), "no file is named none*.csv"),
        (("fit", "epca", "rows", "--batch-size", "9"), "of epca does not take --batch-size"),
        (("fit", "mixture", "rows", *FIT, "--out", "rows/0.csv", "--force"), "this command reads it"),
    ],
)
def test_mistakes_are_one_line(rows, capsys, words, told):
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not list(rows.glob("*.nc"))


def test_a_folder_of_texts_is_fitted_in_memory_as_the_list_of_texts(tmp_path, monkeypatch):
    """In Python and by the command; documents have the names of their files."""
    monkeypatch.chdir(tmp_path)
    texts = [9 * text for text in ("court law ", "army war peace ", "law court ", "peace war army ")]
    for place, text in zip(("a/1", "a/2.txt", "b/1", "b/2.txt"), texts, strict=True):
        (tmp_path / "news" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "news" / place).write_text(text)
    settings = {"num_restarts": 1, "max_iterations": 3, "tolerance": 0}
    whole = fit(zoo.LDA(num_topics=2), texts, **settings)
    trees = [fit(zoo.LDA(num_topics=2), "news", **settings)]
    words = ["--set", "num_topics=2", "--num-restarts", "1", "--max-iterations", "3", "--tolerance", "0"]
    assert main(["fit", "lda", "news", *words, "--out", "f.nc"]) == 0
    for tree in [*trees, load("f.nc")]:
        np.testing.assert_array_equal(tree["trace"]["objective"], whole["trace"]["objective"])
        assert tree["variational"]["document"].values.tolist() == ["a/1", "a/2.txt", "b/1", "b/2.txt"]


@pytest.mark.slow
def test_a_run_that_fails_leaves_no_file(rows, capsys):
    np.save("x.npy", X)
    assert main(["fit", "mixture", "x.npy", *FIT, "--out", "f.nc"]) == 0
    np.save("wide.npy", np.ones((20, 5)))
    assert main(["predict", "f.nc", "wide.npy", "--out", "w.csv"]) == 2
    assert "in rows 0 to 19 of the data" in capsys.readouterr().err and not (rows / "w.csv").exists()


@pytest.mark.parametrize(
    ("held", "count", "said"),
    [(3, 3, ""), (5, 6, "1 more row\n"), (3, 7, "4 more rows\n"), (9, 9, "4 more rows\n")],
)
def test_a_preview_says_how_many_rows_it_leaves_out(held, count, said, capsys):
    """Of an answer of ``count`` rows, of which the first batch holds some."""
    predicting._print_first(pd.DataFrame({"value": range(held)}), count)
    shown = capsys.readouterr().out
    assert shown.endswith(said) and ("more row" in shown) is bool(said)
    assert f"\n{min(held, 5) - 1} " in shown and f"\n{min(held, 5)} " not in shown


def test_rows_without_labels_are_numbered_on_from_batch_to_batch(tmp_path, monkeypatch, capsys):
    """Seven rows in batches of three, of an array; those of a table keep the labels that it has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.nc").write_bytes(b"\x89HDF\r\n\x1a\n")
    np.save("x.npy", X[:7])
    named = pd.DataFrame(X[:7], columns=["a", "b"], index=[f"r{row}" for row in range(7)])
    named.to_csv("named.csv")
    model = SimpleNamespace(data=(Table("x"),), data_names=("x",), variable_dims={"x": ("row", "column")})
    monkeypatch.setattr(predicting, "load", lambda path: SimpleNamespace(attrs={"model": "m", "method": "n"}))
    monkeypatch.setattr(predicting, "model_of", lambda tree: model)
    monkeypatch.setattr(predicting, "compile_cache", lambda: None)
    monkeypatch.setattr(predicting, "labels_along", lambda tree, dim: ["a", "b"])

    def first_column(tree, model, parts, options):
        table = pd.DataFrame(parts[0])
        return "the first column", table.iloc[:, :1].set_axis(["value"], axis=1).rename_axis("row")

    monkeypatch.setattr(predicting, "_answer", first_column)
    words = ["--batch-size", "3", "--out"]
    assert main(["predict", "f.nc", "x.npy", *words, "o.csv"]) == 0
    found = pd.read_csv("o.csv", index_col="row")
    assert found.index.tolist() == list(range(7))
    np.testing.assert_allclose(found["value"], X[:7, 0], rtol=1e-12)
    assert "and 4 more rows" in capsys.readouterr().out  # the first batch, of three rows, is shown
    assert main(["predict", "f.nc", "named.csv", *words, "p.csv"]) == 0
    assert pd.read_csv("p.csv", index_col="row").index.tolist() == named.index.tolist()
