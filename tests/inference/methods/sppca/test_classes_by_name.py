"""Class labels, most of them missing: classes by name with probabilities that hold."""

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.cli import main

CLASSES, ROWS = np.array(["bolt", "nut", "washer"]), 1000


@pytest.fixture(scope="module")
def table():
    """Three overlapping classes beside one direction of nuisance; a fifth of the rows is labelled."""
    rng = np.random.default_rng(4)
    truth = rng.choice(3, ROWS)
    x = rng.normal(size=(3, 6))[truth] * 0.7 + rng.normal(size=(ROWS, 6))
    x += rng.normal(size=(ROWS, 1)) * rng.normal(size=6) * 2
    kind = np.where(rng.random(ROWS) < 0.2, CLASSES[truth], None)
    return pd.DataFrame(x, columns=[f"m{d}" for d in range(6)]).assign(kind=kind), truth


@pytest.fixture(scope="module")
def tree(table):
    x, y = table[0].drop(columns="kind"), table[0]["kind"]
    return inference.fit(zoo.SPPCA(num_latents=3, label_coding="reduced"), x, y, progress=False)


def test_probabilities_by_name_are_the_default_and_hold(table, tree):
    x, truth = table[0].drop(columns="kind"), table[1]
    found = inference.predict(tree, x)
    assert found.dims == ("observation", "class") and found["class"].values.tolist() == CLASSES.tolist()
    shares = found.values
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-12)
    assert shares.min() >= 0 and shares.max() <= 1
    unlabelled = table[0]["kind"].isna().to_numpy()
    shares, hit = shares[unlabelled], shares[unlabelled].argmax(1) == truth[unlabelled]
    sure, error = shares.max(1), np.sqrt((shares.max(1) * (1 - shares.max(1))).sum()) / unlabelled.sum()
    assert abs(hit.mean() - sure.mean()) < 4 * error + 0.05  # .05: 200 labels estimate the model


def test_unlabelled_rows_are_no_missing_cells(tree):
    assert "filled_cells" not in inference.diagnostics.profiles(tree)


def test_command_line_names_classes(table, tree, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table[0].drop(columns="kind").head(20).to_csv("new.csv", index=False)
    inference.save(tree, "parts.nc")
    assert main(["predict", "parts.nc", "new.csv", "--out", "kinds.csv"]) == 0
    assert "class of each row" in capsys.readouterr().out
    written = pd.read_csv("kinds.csv")
    assert set(written["class"]) <= set(CLASSES) and written["probability"].between(1 / 3 - 1e-9, 1).all()
    columns = [f"probability_{name}" for name in CLASSES]
    np.testing.assert_allclose(written[columns].sum(axis=1), 1, rtol=1e-9)
