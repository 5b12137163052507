"""``zoo explain`` and ``zoo check`` print what the functions say, and one line for every mistake."""

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.calibration import recoveries
from inference.cli import main


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2)) + np.repeat([[0.0, 0.0], [6.0, 3.0]], 20, axis=0)
    x[3, 1] = np.nan
    table = pd.DataFrame(x, columns=["length", "width"], index=[f"K{n:05}" for n in range(40)])
    tree = inference.fit(zoo.Mixture(num_components=3), table, method="vb", num_restarts=2, num_samples=10)
    inference.save(tree, folder / "fit.nc")
    return folder / "fit.nc", tree


def words_of(capsys, *command):
    assert main([str(word) for word in command]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("row", ["K00003", "3"])
def test_a_row_is_explained_by_its_label_or_number(place, capsys, row):
    path, tree = place
    told, table = words_of(capsys, "explain", path, "--row", row), inference.explain(tree, "K00003")
    assert f"found {table.attrs['said']}" in told and "row K00003 is in cluster" in told
    for name, value in table["contribution"].items():
        cell = table["cell"][name]
        shown = "" if cell is None else f" {cell:.4g}"
        assert f"{name}{shown} {value:.4g}" in told
    assert "width 0 " in told and "None" not in told and table.attrs["note"] in told


def test_a_check_prints_its_cost_then_what_came_back(place, capsys, monkeypatch):
    path, tree = place
    monkeypatch.setattr(recoveries, "_fitted", lambda model, x, call, seed: tree)
    told = words_of(capsys, "check", path, "--tables", "2")
    assert told.index("3 fits like this one") < told.index("found the number of clusters came back in")
    assert "not about whether the fit is true" in told


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["explain", "fit.nc", "--row", "K1"], "no row 'K1': its 40 rows are called 'K00000' to 'K00039'"),
        (["explain", "fit.nc"], "Missing option '--row'"),
        (["explain", "gone.nc", "--row", "1"], "there is no file gone.nc"),
        (["check", "gone.nc"], "there is no file gone.nc"),
        (["check", "fit.nc", "--tables", "0"], "--tables"),
    ],
)
def test_mistakes_are_told_in_one_line(place, capsys, monkeypatch, command, said):
    monkeypatch.chdir(place[0].parent)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
