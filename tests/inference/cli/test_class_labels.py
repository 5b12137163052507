"""``zoo fit sppca TABLE --y KIND`` and ``zoo predict`` with class labels: size, accuracy, classes by name."""

import numpy as np
import pandas as pd
import pytest

from inference import load
from inference.cli import main
from inference.report.run import run_facts


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    kind = rng.choice(2, 60)
    rows = rng.normal(size=(2, 4))[kind] * 2 + rng.normal(size=(60, 4))
    table = pd.DataFrame(rows, columns=list("abcd"))
    table["kind"] = np.where(rng.random(60) < 0.5, np.array(["bolt", "nut"])[kind], "")
    table.to_csv("parts.csv", index=False)
    return tmp_path


@pytest.mark.slow
def test_the_size_is_found_by_the_labelled_rows(place, capsys):
    assert main(["fit", "sppca", "parts.csv", "--y", "kind", "--max-iterations", "60"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    labelled = (pd.read_csv("parts.csv")["kind"].notna()).sum()
    assert f"{labelled} of 60 rows are labelled; predicted with their labels hidden" in told
    assert "bolt" in told and "size num_latents=" in told
    assert "Missing cells" not in told and "use fewer latents" not in told and "have rank" not in told


def test_classes_are_judged_and_predicted_by_name_at_a_size_that_is_given(place, capsys):
    command = ["fit", "sppca", "parts.csv", "--y", "kind", "--max-iterations", "60", "--set", "num_latents=1"]
    assert main(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "rows are labelled; predicted with their labels hidden" in told and " size " not in told
    assert "latent 0" in told and "latent 1" not in told
    kept = run_facts(load("sppca-parts.nc"))
    assert " ".join(kept["classes"].split()) in told and "size" not in kept
    assert main(["predict", "sppca-parts.nc", "parts.csv", "--out", "found.csv"]) == 0
    found = pd.read_csv("found.csv")
    assert set(found["class"]) <= {"bolt", "nut"}
    assert found["probability"].between(0.5, 1).all()
    assert np.allclose(found[["probability_bolt", "probability_nut"]].sum(axis=1), 1)
    assert main(["predict", "sppca-parts.nc", "parts.csv", "--what", "outputs", "--out", "outputs.csv"]) == 0


def test_numbers_are_not_validated(place, capsys):
    assert main(["fit", "sppca", "parts.csv", "--x", "a:c", "--y", "d", "--set", "num_latents=1"]) == 0
    assert "labelled" not in capsys.readouterr().out
