"""A checkpoint goes on with the same call only: what each argument of `fit` changes in its fingerprint."""

import json

import jax
import numpy as np
import pytest

import zoo
from inference import fit
from inference.fitting import agreement, front_door
from inference.fitting.in_memory import _checkpoint_of

X = np.random.default_rng(0).normal(size=(12, 2))
HOLES = np.where(np.arange(24).reshape(12, 2) == 5, np.nan, X)
MODEL = zoo.Mixture.from_data(X, num_components=3, concentration=0.1)
STICKS = MODEL.replaced(weight_prior="stick_breaking")


def aspects(monkeypatch, path, model=MODEL, x=X, **call):
    """The fingerprint of a call, which nothing is computed for."""
    requests = []
    monkeypatch.setattr(front_door, "plan", lambda request: requests.append(request) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit(model, x, checkpoint=path, progress=False, **call)
    return _checkpoint_of(requests[0]).aspects


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"model": MODEL.replaced(concentration=2.0)}, {"model.concentration"}),  # a value alone
        ({"model": STICKS}, {"model.weight_prior"}),
        ({"x": X + 1e-6}, {"data.x"}),
        ({"x": HOLES}, {"data.x"}),
        ({"sample_weight": np.arange(12.0)}, {"sample_weight"}),
        ({"learn": ("concentration",)}, {"option learn"}),
        ({"moves": ("merge",)}, {"option moves"}),
        ({"init": "pca"}, {"init"}),
        ({"seed": 1}, {"seed"}),
        ({"num_restarts": 3}, {"num_restarts"}),
        ({"tolerance": 1e-9}, {"tolerance"}),
        ({"method": "em"}, {"method", "option learn"}),
        ({"dtype": "float32"}, {"dtype"}),
        ({"batch_size": 5}, {"batch_size"}),
    ],
)
def test_what_a_change_of_the_call_changes(change, names, monkeypatch, tmp_path):
    first = aspects(monkeypatch, tmp_path / "a.ckpt")
    assert aspects(monkeypatch, tmp_path / "b.ckpt") == first  # not where it is kept
    other = aspects(monkeypatch, tmp_path / "a.ckpt", **change)
    differing = {name for name in first | other if first.get(name) != other.get(name)}
    assert names <= differing, differing  # what follows from a change may differ too


def test_weights_that_differ_in_one_row_are_another_run(monkeypatch, tmp_path):
    weight = np.arange(12.0)
    one, other = (
        aspects(monkeypatch, tmp_path / "a.ckpt", sample_weight=own) for own in (weight, weight[::-1])
    )
    assert one["sample_weight"] != other["sample_weight"]


def test_a_limit_may_be_raised(monkeypatch, tmp_path):
    call = {"method": "gibbs", "until": "converged"}
    one, other = (
        aspects(monkeypatch, tmp_path / "a.ckpt", max_sweeps=most, **call) for most in (20_000, 40_000)
    )
    assert one == other


@pytest.mark.parametrize("other", [0, 1, 2])
def test_a_run_of_several_processes_is_another_one_if_any_of_them_has_other_rows(other, monkeypatch):
    """The same in each of three processes; what all of them agree in stays as it is, rows have an order."""
    names = {"seed": "0"}
    before = [names | {"data.x": f"rows {place}"} for place in range(3)]
    after = [dict(own) for own in before]
    after[other]["data.x"] = "other rows"

    def combined(every):
        messages = [{"aspects": np.asarray(json.dumps(own))} for own in every]
        with monkeypatch.context() as patched:
            patched.setattr(jax, "process_count", lambda: len(every))
            patched.setattr(agreement, "gathered", lambda aspects: messages)
            found = [agreement.combined(own) for own in every]
        assert found[1:] == found[:-1]
        return found[0]

    one, changed = combined(before), combined(after)
    assert one["seed"] == changed["seed"] == "0" and set(one) == {"seed", "data.x"}
    assert len({one["data.x"], changed["data.x"], combined(before[::-1])["data.x"]}) == 3
    assert combined([before[other]] * 3) == before[other] == agreement.combined(before[other])
