"""New texts are read as those of the fit were: by the column's name, and from any file that a fit takes."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import inference
import zoo
from inference.cli import main

WORDS = "late parcel box courier refund card bank fee".split()


def texts(number, length, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(number)]


def tickets(number, seed, title=3):
    """An id, a title and a body; the title may be longer than the body, which has eight words."""
    return pd.DataFrame(
        {
            "id": [f"T{row}" for row in range(number)],
            "title": texts(number, title, seed),
            "body": texts(number, 8, seed + 1),
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A fit of the bodies, and new texts in files of every kind."""
    place = tmp_path_factory.mktemp("texts")
    with pytest.warns(UserWarning, match="the documents are the texts of the column 'body'"):
        tree = inference.fit(zoo.LDA(num_topics=2), tickets(20, 0), progress=False)
    inference.save(tree, place / "fit.nc")
    new = tickets(4, 5, title=20)
    new.to_csv(place / "new.csv", index=False)
    new.drop(columns="body").to_csv(place / "lacking.csv", index=False)
    (place / "new.txt").write_text("\n".join(new["body"]) + "\n")
    (place / "one.txt").write_text(new["body"][0] + "\n")
    (place / "folder").mkdir()
    for number, text in enumerate(new["body"]):
        (place / "folder" / f"{number}.txt").write_text(text)
    return place


@pytest.fixture
def wanted(place):
    """The scores of the bodies, given as a list."""
    tree = inference.load(place / "fit.nc")
    return inference.transform(tree, pd.read_csv(place / "new.csv")["body"].tolist()).to_numpy()


def test_a_table_is_read_by_the_column_of_the_fit(place, wanted, tmp_path, recwarn):
    """Its titles are longer than its bodies, and once were read in their place."""
    tree, new = inference.load(place / "fit.nc"), pd.read_csv(place / "new.csv")
    found = [inference.transform(tree, rows) for rows in (new, place / "new.csv")]
    found.append(inference.transform(tree, new, batch_size=3))
    found.append(inference.transform(tree, new.assign(count=3)))
    for scores in found:
        np.testing.assert_allclose(scores, wanted, rtol=1e-9)
        assert list(scores["document"].to_numpy()) == ["T0", "T1", "T2", "T3"]
    inference.transform(tree, new, out=tmp_path / "s.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "s.csv", index_col=0), wanted, rtol=1e-9)
    assert not recwarn.list
    for call in ({}, {"batch_size": 2}):
        with pytest.raises(ValueError, match="lack the column body of the fit, .* they have id, title"):
            inference.transform(tree, new.drop(columns="body"), **call)
    with pytest.raises(ValueError, match="lack the column body of the fit"):
        inference.transform(tree, place / "lacking.csv")


def test_a_fit_in_batches_knows_its_column(tmp_path):
    tickets(20, 0)[["body"]].to_csv(tmp_path / "t.csv", index=False)
    tree = inference.fit(
        zoo.LDA(num_topics=2), tmp_path / "t.csv", batch_size=10, max_iterations=20, tolerance=0.0
    )
    assert tree.attrs["text_column"] == "body"


@pytest.mark.parametrize(("file", "rows"), [("new.csv", 4), ("new.txt", 4), ("one.txt", 1), ("folder", 4)])
def test_the_command_takes_texts_from_files_of_every_kind(file, rows, place, wanted, tmp_path):
    out = str(tmp_path / "scores.csv")
    assert main(["predict", str(place / "fit.nc"), str(place / file), "--out", out]) == 0
    np.testing.assert_allclose(pd.read_csv(out, index_col=0), wanted[:rows], rtol=1e-9)


def test_the_command_refuses_a_table_without_the_column(place, tmp_path, capsys):
    call = ["predict", str(place / "fit.nc"), str(place / "lacking.csv"), "--out", str(tmp_path / "s.csv")]
    assert main(call) == 2
    assert "lack the column body of the fit" in capsys.readouterr().err


def test_the_command_takes_sparse_counts_as_scipy_saves_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    counts = scipy.sparse.csr_array(np.random.default_rng(0).poisson(1.0, (12, 6)))
    scipy.sparse.save_npz("counts.npz", counts)
    scipy.sparse.save_npz("new.npz", counts[:4].tocsc())
    assert main("fit lda counts.npz --set num_topics=2 --max-iterations 20 --out f.nc".split()) == 0
    assert main("predict f.nc new.npz --out s.csv".split()) == 0
    wanted = inference.transform(inference.load("f.nc"), counts[:4])
    np.testing.assert_allclose(pd.read_csv("s.csv", index_col=0), wanted, rtol=1e-9)
    np.savez("bad.npz", format="csr", data=[1, 1], indices=[0, 9], indptr=[0, 1, 2], shape=[2, 3])
    capsys.readouterr()
    assert main("predict f.nc bad.npz".split()) == 2
    assert "bad.npz cannot be read as a .npz file" in capsys.readouterr().err
