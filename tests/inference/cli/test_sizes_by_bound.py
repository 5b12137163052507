"""``zoo fit`` of topics and of shared latents settles a size that the command does not name."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import zoo
from inference import load
from inference.cli import main, validating
from inference.report.run import run_facts


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = np.array(["late parcel box courier".split(), "refund card bank fee".split()])
    lines = [" ".join(rng.choice(words[row % 2], 12)) for row in range(60)]
    (tmp_path / "tickets.txt").write_text("\n".join(lines) + "\n")
    shared = rng.normal(size=(80, 2)) * 2
    views = {name: shared @ rng.normal(size=(2, 4)) + rng.normal(size=(80, 4)) for name in ("a", "b")}
    for name, rows in views.items():
        pd.DataFrame(rows, columns=[f"{name}{i}" for i in range(4)]).rename_axis("id").to_csv(f"{name}.csv")
    return tmp_path


def told_by(capsys, command):
    assert main(command) == 0
    return " ".join(capsys.readouterr().out.split())


def test_topics_are_as_many_as_have_the_highest_bound(place, capsys):
    told = told_by(capsys, ["fit", "lda", "tickets.txt"])
    assert told.startswith("Two topics") and "size num_topics=2, which has the highest bound" in told
    assert "3:" in told and "4:" in told and "5:" not in told  # two falls end the search
    kept = run_facts(load("lda-tickets.nc"))
    assert kept["size"].startswith("num_topics=2")


class _Fit(dict):
    """What is asked of a fit: its bounds, and how it ended."""

    attrs = {"method": "vb", "stop_reason": "converged"}


def test_the_search_ends_after_two_falls_in_a_row(monkeypatch):
    """One fall does not end it, and what was stopped before settles nothing."""
    bounds = dict(enumerate([-9.0, -5.0, -6.0, -4.0, -7.0, -8.0, -1.0], start=1))

    def fit(model, *data, **given):
        return _Fit(trace={"objective": np.array([-20.0, bounds[model.num_topics], np.nan])})

    monkeypatch.setattr(validating.front_door, "fit", fit)
    options = SimpleNamespace(
        card=SimpleNamespace(fields=("num_topics",)),
        **dict.fromkeys(("init", "checkpoint", "seed", "sample_weight")),
        method="auto",
        in_batches=False,
    )
    settings = {}
    told = validating.size_by_bound(zoo.LDA, settings, (np.ones((3, 4)),), options)
    assert settings == {"num_topics": 4} and "6: -8" in told["size"] and "7:" not in told["size"]
    monkeypatch.setitem(_Fit.attrs, "stop_reason", "interrupted by the user")
    assert validating.size_by_bound(zoo.LDA, {}, (np.ones((3, 4)),), options) == {}


def test_a_size_that_is_named_is_kept_without_a_word(place, capsys):
    told = told_by(capsys, ["fit", "lda", "tickets.txt", "--set", "num_topics=3"])
    assert told.startswith("Three topics") and "highest bound" not in told


@pytest.mark.slow
def test_shared_latents_are_as_many_as_have_the_highest_bound(place, capsys):
    told = told_by(capsys, ["fit", "paired", "a.csv", "b.csv", "--id", "id"])
    assert told.startswith("Two shared latents") and "size num_shared=2" in told
