"""Scores, predictions and densities of rows that lie elsewhere: those of the rows in memory, in files too."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

import zoo
from inference import fit, load, log_density, open_rows, predict, save, transform
from inference.batched_answers import answers
from inference.diagnostics import heldout
from tests.support.text_cases import random_corpus
from zoo.intake import Table

X = np.random.default_rng(0).normal(size=(230, 3)) + 5 * np.random.default_rng(1).integers(0, 2, (230, 1))
CALL = {"max_iterations": 5, "tolerance": 0, "num_samples": 2, "progress": False}


@pytest.fixture(scope="module")
def tree():
    return fit(zoo.Mixture(num_components=3), pd.DataFrame(X, columns=list("abc")), **CALL)


@pytest.fixture
def table(tmp_path):
    """Rows in two files of text, with a column more, in another order, and rows of their own numbering."""
    frame = pd.DataFrame(X, columns=list("abc")).assign(other="word")[["c", "other", "a", "b"]]
    for name, part in (("0", frame[:90]), ("1", frame[90:])):
        part.to_csv(tmp_path / f"{name}.csv", index=False, float_format="%.17g")
    return tmp_path / "*.csv"


def test_rows_without_labels_are_numbered_as_in_the_whole():
    """Seven rows in batches of three; those of a table keep the labels that it has."""
    model = SimpleNamespace(data=(Table("x"),), data_names=("x",))

    def ask(rows):
        labels = list(rows.index) if hasattr(rows, "iloc") else range(len(rows))
        return xr.DataArray(np.asarray(rows)[:, 0], {"observation": labels}, ("observation",))

    for rows, labels in (
        (X[:7], list(range(7))),
        (pd.DataFrame(X[:7], index=list("abcdefg")), list("abcdefg")),
    ):
        found = list(answers(ask, None, model, (rows,), 3))
        assert [part.sizes["observation"] for part in found] == [3, 3, 1]
        whole = xr.concat(found, "observation")
        assert whole["observation"].values.tolist() == labels
        np.testing.assert_array_equal(whole, X[:7, 0])


@pytest.mark.slow
def test_answers_are_those_of_the_rows_in_memory(tree, table):
    frame = pd.DataFrame(X, columns=list("abc"))
    for function in (transform, predict, log_density):
        whole = function(tree, frame)
        for rows in (table, frame, [frame[:7], frame[7:]]):
            found = function(tree, rows, batch_size=64)
            assert found.name == whole.name and found.dims == whole.dims
            np.testing.assert_array_equal(found["observation"], np.arange(230))
            np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-12)
    shares = transform(tree, X, batch_size=100)
    np.testing.assert_array_equal(shares["observation"], np.arange(230))
    np.testing.assert_allclose(shares, transform(tree, X), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_held_out_rows_in_batches(tree, table):
    whole, found = heldout(tree, pd.DataFrame(X, columns=list("abc"))), heldout(tree, table, batch_size=64)
    for name in ("mean", "standard_error", "num_rows"):
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-12)


def test_files_are_written_batch_by_batch(tree, table, tmp_path):
    (tmp_path / "out").mkdir()
    out = tmp_path / "out"
    assert transform(tree, table, out=out / "s.csv", batch_size=64) == out / "s.csv"
    read = pd.read_csv(out / "s.csv", index_col="observation")
    shares = transform(tree, X)
    assert read.columns.tolist() == [str(label) for label in shares["component"].values]
    np.testing.assert_allclose(read, shares, rtol=1e-12, atol=1e-12)
    log_density(tree, table, out=out / "d.npy", batch_size=64)
    np.testing.assert_allclose(np.load(out / "d.npy")[:, 0], log_density(tree, X), rtol=1e-12)
    assert np.load(out / "d.npy", mmap_mode="r").shape == (230, 1)
    predict(tree, table, out=str(out / "p.tsv"))
    read = pd.read_csv(out / "p.tsv", sep="\t", index_col="observation")
    np.testing.assert_array_equal(read["assignments"], predict(tree, X))
    with pytest.raises(
        ValueError, match=r"in rows 100 to 199 of the data .*infinite|in rows 100 to 199.*inf"
    ):
        transform(
            tree, np.where(np.arange(230)[:, None] == 150, np.inf, X), out=out / "n.csv", batch_size=100
        )
    assert not (out / "n.csv").exists() and len(list(out.iterdir())) == 3
    for path, match in (("x.pdf", "must end in one of .parquet"), ("no/x.csv", "does not exist")):
        with pytest.raises(ValueError, match=match):
            predict(tree, table, out=out / path)
    with pytest.raises(ValueError, match="covariance=True gives no table to write"):
        transform(tree, table, covariance=True, out=out / "c.csv")
    with pytest.raises(TypeError, match="the data have one part; got 2"):
        transform(tree, X, X, batch_size=10)
    with pytest.raises(ValueError, match="batch_size must be"):
        transform(tree, X, batch_size=0)


@pytest.mark.needs_peer
def test_parquet_is_read_and_written(tree, tmp_path):
    """What is written is read again, labels of the rows by their id too."""
    from pyarrow import parquet

    frame = pd.DataFrame(X, columns=list("abc"))
    frame.to_parquet(tmp_path / "x.parquet", row_group_size=50)
    transform(tree, tmp_path / "x.parquet", out=tmp_path / "s.parquet", batch_size=64)
    read = pd.read_parquet(tmp_path / "s.parquet")
    assert read.index.name == "observation"
    np.testing.assert_allclose(read, transform(tree, X), rtol=1e-12, atol=1e-12)
    parts = parquet.read_metadata(tmp_path / "s.parquet").row_group(0)
    encodings = {parts.column(place).path_in_schema: parts.column(place).encodings for place in range(2)}
    assert not any("RLE_DICTIONARY" in used for used in encodings.values())  # which cost most of the time
    named = frame.assign(customer_id=[f"C{number:03d}" for number in range(230)])
    named.to_parquet(tmp_path / "n.parquet")
    labelled = fit(zoo.Mixture(num_components=2), named, **CALL)
    density = log_density(labelled, tmp_path / "n.parquet", batch_size=64)
    assert density["observation"].values.tolist() == named["customer_id"].tolist()
    log_density(labelled, tmp_path / "n.parquet", out=tmp_path / "d.parquet", batch_size=64)
    assert pd.read_parquet(tmp_path / "d.parquet").index.tolist() == named["customer_id"].tolist()


@pytest.mark.slow
def test_cells_and_their_deviations(tmp_path):
    """Missing cells of a projection; warnings are told with their rows, the first few of them."""
    tree = fit(zoo.PPCA(num_latents=1), X)
    gaps = np.where(np.random.default_rng(3).random(X.shape) < 0.2, np.nan, X)
    whole, found = predict(tree, gaps), predict(tree, gaps, batch_size=50)
    np.testing.assert_allclose(found, whole, rtol=1e-12)
    np.testing.assert_allclose(found.standard_deviation, whole.standard_deviation, rtol=1e-10, atol=1e-12)
    predict(tree, gaps, out=tmp_path / "c.csv", batch_size=50)
    read = pd.read_csv(tmp_path / "c.csv", index_col=0)
    np.testing.assert_allclose(
        read[["0_sd", "1_sd", "2_sd"]], whole.standard_deviation, rtol=1e-10, atol=1e-12
    )


TEXTS = [
    " ".join(f"word{word}" for word in np.random.default_rng(n).integers(n % 2, 12, 20)) for n in range(40)
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [zoo.LDA(num_topics=2), zoo.PCP(num_topics=2, num_clusters=2)], ids=["lda", "pcp"]
)
def test_a_folder_of_texts_is_fitted_and_scored_as_the_list_of_texts(model, tmp_path):
    """The same counts, words and bound; unseen words are told with their rows."""
    (tmp_path / "news").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "news" / f"{number:03d}").write_text(text)
    call = CALL | {"batch_size": 16}
    chunks = fit(model, lambda: iter([TEXTS]), **call)
    tree = fit(model, tmp_path / "news", **call)
    assert tree["posterior"]["word"].values.tolist() == chunks["posterior"]["word"].values.tolist()
    np.testing.assert_allclose(tree["trace"]["objective"], chunks["trace"]["objective"], rtol=1e-12)
    whole, found = log_density(tree, TEXTS), log_density(tree, tmp_path / "news", batch_size=15)
    np.testing.assert_allclose(found, whole, rtol=1e-10)
    np.testing.assert_array_equal(found["num_tokens"], whole["num_tokens"])
    for protocol in ("bound", "likelihood", "completion"):
        one, many = (
            heldout(tree, rows, protocol=protocol, batch_size=size)
            for rows, size in ((TEXTS, None), (tmp_path / "news", 15))
        )
        assert int(one["num_tokens"]) == pytest.approx(int(many["num_tokens"]), abs=20)
        if protocol != "completion":  # each batch has a split of its own
            np.testing.assert_allclose(many["mean"], one["mean"], rtol=1e-8)
            np.testing.assert_allclose(many["standard_error"], one["standard_error"], rtol=1e-6)
        assert abs(float(many["mean"] - one["mean"])) < 6 * float(one["standard_error"])
    (tmp_path / "news" / "017").write_text(TEXTS[17] + " unheard")
    with pytest.warns(UserWarning, match=r"in rows 15 to 29 .*1 tokens .* not seen"):
        transform(tree, tmp_path / "news", batch_size=15)


@pytest.mark.slow
def test_text_columns_and_files_of_counts(tmp_path):
    """Texts of a column by name; a table with words as columns; sparse counts in several files."""
    frame = pd.DataFrame({"number": range(40), "text": TEXTS})
    frame.to_csv(tmp_path / "t.csv", index=False)
    call = CALL | {"batch_size": 16}
    model = zoo.LDA(num_topics=2)
    wanted = fit(model, lambda: iter([TEXTS]), **call)["trace"]["objective"]
    found = fit(model, open_rows(tmp_path / "t.csv", columns=["text"]), **call)["trace"]["objective"]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    corpus = random_corpus(40, seed=4)
    names = [f"w{place}" for place in range(corpus.shape[1])]
    pd.DataFrame(corpus, columns=names).astype(int).to_csv(tmp_path / "c.csv", index=False)
    for number, part in enumerate((corpus[:25], corpus[25:])):
        scipy.sparse.save_npz(tmp_path / f"{number}.npz", scipy.sparse.csr_matrix(part))
    wanted = fit(model, lambda: iter([corpus]), **call)["trace"]["objective"]
    for source in (tmp_path / "c.csv", [tmp_path / "0.npz", tmp_path / "1.npz"]):
        np.testing.assert_allclose(fit(model, source, **call)["trace"]["objective"], wanted, rtol=1e-12)
    frame.loc[7, "text"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TypeError, match="the column 'text' must hold texts; row 7 has nan"):
        fit(model, open_rows(tmp_path / "t.csv", columns=["text"]), **call)
    with pytest.raises(TypeError, match="holds texts, which go with models of documents"):
        fit(zoo.Mixture(), open_rows(tmp_path / "t.csv", columns=["text"]).as_texts(), **call)


def test_answers_never_take_the_place_of_their_rows(tree, tmp_path, monkeypatch):
    """Nor of a saved fit: by another name, a hard link, a pattern or a memory map of the file too."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X, columns=list("abc")).to_csv("rows.csv", index=False)
    np.save("rows.npy", X)
    (tmp_path / "same.csv").hardlink_to("rows.csv")
    held = {name: (tmp_path / name).read_bytes() for name in ("rows.csv", "rows.npy")}
    rows = np.load("rows.npy", mmap_mode="r")
    for function in (transform, predict, log_density):
        for data, out in (
            ("rows.csv", "rows.csv"),
            (tmp_path / "rows.csv", "./rows.csv"),
            ("rows.csv", tmp_path / "same.csv"),
            (["rows.csv"], "rows.csv"),
            (open_rows("rows.csv"), "rows.csv"),
            ("rows.npy", "rows.npy"),
            (rows, "rows.npy"),
            (rows[:100], "rows.npy"),
        ):
            with pytest.raises(ValueError, match="cannot write .*: the data are read from it; choose"):
                function(tree, data, out=out, batch_size=64)
    save(tree, "fit.csv")
    with pytest.raises(ValueError, match="cannot write fit.csv: a saved fit"):
        transform(tree, "rows.csv", out="fit.csv")
    assert held == {name: (tmp_path / name).read_bytes() for name in held}
    assert load("fit.csv").attrs["model"] == "mixture"
    assert transform(tree, rows, out="other.npy").is_file()
