"""Thousands of bad calls over the models: right, or one clear message of ours before anything is compiled."""

import json

import numpy as np
import pytest

from tests.support.bad_inputs import MODELS, Case, X, _fit, cases, outcome
from tests.tools.recording import REFERENCE

SHARE = 6  # the default run makes one call in so many


def faults(chosen):
    """What is wrong with what became of calls."""
    found = [(case, outcome(case)) for case in chosen]
    compiled = [(case, result) for case, result in found if result.kind == "refused" and result.num_compiled]
    return [
        f"{case.subject} {case.kind}: {result.fault or 'compiled'}: {result.text}"
        for case, result in found
        if result.fault or (case, result) in compiled
    ]


@pytest.mark.parametrize("model", MODELS)
def test_a_sample_of_bad_calls_is_accepted_rightly_or_refused_in_one_line(model):
    table = list(cases(model))
    place = list(MODELS).index(model)
    chosen = np.random.default_rng(place).permutation(len(table))[: len(table) // SHARE]
    assert len(chosen) > 100
    assert faults(table[i] for i in chosen) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_every_bad_call_is_accepted_rightly_or_refused_in_one_line(model):
    assert faults(cases(model)) == []


def test_the_record_is_of_this_table():
    record = json.loads((REFERENCE / "bad_inputs.json").read_text(encoding="utf-8"))
    total = record["total"]
    assert {model: sum(1 for _ in cases(model)) for model in MODELS} == {
        model: sum(own.get(kind, 0) for kind in ("accepted", "refused", "raw"))
        for model, own in record["by_model"].items()
    }
    assert record["calls"] >= 1200 and total["refused before any compilation"] >= 1000
    assert total["wrong"] == total.get("raw", 0) == 0


def test_planted_faults_are_found(monkeypatch):
    """A mask that is ignored, and a check that is left to NumPy."""
    (masked,) = (c for c in cases("mixture") if c.subject == "data x" and c.kind == "masked")
    assert outcome(masked).fault == ""
    with monkeypatch.context() as patch:
        patch.setattr(np.ma, "getmaskarray", lambda x: np.zeros(x.shape, bool))
        assert outcome(masked).fault == "part 0 is not what was passed"
    raw = Case("ppca", "data x", "none", (), lambda: np.broadcast_to(X, (5,)), False)
    assert outcome(raw).kind == "raw" and "raised in" in outcome(raw).fault
    taken = Case("ppca", "data x", "none", (), lambda: _fit("ppca", (X,)), False)
    assert outcome(taken).fault == "it is to be refused"
    unnamed = Case("ppca", "data x", "none", ("elsewhere",), lambda: _fit("ppca", (X[:1],)), False)
    assert outcome(unnamed).fault.startswith("names none of")
