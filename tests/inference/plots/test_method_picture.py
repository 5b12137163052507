"""The picture of a comparison: a line a method in the order of scores, hollow where not converged."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from inference.diagnostics import comparison as method_comparison
from inference.diagnostics.comparison import MethodScore, Refusal, score_methods
from inference.plots.comparison import plot_methods

SCORES = [
    MethodScore("mixture", "vb", -4.4, 0.2, 3.0, True, np.nan, 200.0, False),
    MethodScore("ppca", "em", -5.0, np.nan, 0.4, False, np.nan, 0.0, False),
    MethodScore("mixture", "gibbs", -4.3, 0.2, 30.0, True, 1.01, 20.0, False),
]


def test_methods_stand_in_the_order_of_their_scores():
    figure = plot_methods(SCORES)
    figure.draw_without_rendering()
    first, seconds, memory, psrf = figure.axes
    labels = [tick.get_text() for tick in first.get_yticklabels()]
    assert labels == ["ppca \u00b7 em", "mixture \u00b7 vb", "mixture \u00b7 gibbs"]
    shown = [container.lines[0] for container in first.containers]
    assert [float(line.get_xdata()[0]) for line in shown] == [-5.0, -4.4, -4.3]
    assert [line.get_markerfacecolor() == "white" for line in shown] == [True, False, False]
    assert shown[1].get_color() == shown[2].get_color() != shown[0].get_color()
    assert seconds.get_xlim() == (0.1, 100.0) and memory.get_xlim()[0] == 0
    assert [float(bar.lines[0].get_xdata()[0]) for bar in psrf.containers][2] == 1.01


def test_a_score_far_below_the_others_is_a_number_at_the_edge():
    far = SCORES[1]._replace(method="map", nats_per_row=-2e5)
    none = SCORES[1]._replace(method="svi", nats_per_row=np.nan)
    figure = plot_methods([*SCORES, far, none])
    figure.draw_without_rendering()
    first = figure.axes[0]
    assert [text.get_text() for text in first.texts] == ["\u2190 nan", "\u2190 -2e+05"]
    assert first.get_xlim()[0] > -10 and len(first.containers) == 3


def test_there_is_no_panel_of_psrf_without_chains():
    assert len(plot_methods(SCORES[:2]).axes) == 3


@pytest.mark.parametrize("failure", [RuntimeError("out of\nmemory"), KeyError("site"), MemoryError()])
def test_a_method_that_fails_is_a_line_and_the_others_go_on(monkeypatch, failure):
    """Whatever one fit raises, the scores of the other methods are not lost."""

    class Model:
        methods = ("vb", "em")

    def score(name, model, method, *_):
        if method == "vb":
            raise failure
        return SCORES[1]

    monkeypatch.setattr(method_comparison, "_score", score)
    refused, scored = score_methods({"ppca": Model()}, (), ())
    assert scored == SCORES[1] and isinstance(refused, Refusal)
    assert refused.method == "vb" and refused.reason and "\n" not in refused.reason


def test_no_scores_no_picture():
    with pytest.raises(ValueError, match="no method took the data"):
        plot_methods([])


def test_a_method_is_fitted_to_some_rows_and_scored_on_the_others(monkeypatch):
    """Stand-ins for the fit and its score: what they are given, and what becomes of their answers."""
    tree = SimpleNamespace(attrs={"stop_reason": "interrupted by the user", "converged": 0})
    given = []

    def fit(model, *data, method, **settings):
        given.append((model, data, method, settings))
        return tree

    def heldout(own, *data):
        given.append((own, data))
        return {"mean": np.float64(-4.5), "standard_error": np.float64(0.25)}

    class Model:
        methods = ("em", "vb")

    tables = iter([pd.DataFrame({"r_hat": [1.02, "constant", 1.3, 1.1]}), pd.DataFrame({"mean": [0.0]})])
    clock = SimpleNamespace(perf_counter=iter([10.0, 13.5, 20.0, 21.0]).__next__)
    for name, stand_in in {"fit": fit, "heldout": heldout, "summary": lambda own: next(tables)}.items():
        monkeypatch.setattr(method_comparison, name, stand_in)
    monkeypatch.setattr(method_comparison, "time", clock)
    monkeypatch.setattr(method_comparison, "_forget_peak", lambda: 100.0)
    monkeypatch.setattr(method_comparison, "_peak", iter([140.0, 90.0]).__next__)
    model = Model()
    both = {"train": ("x of train", "y of train"), "test": ("x of test", "y of test")}
    first, second = score_methods({"named": model}, **both, seed=7)
    scored = (tree, both["test"])
    fits = [(model, both["train"], method, {"seed": 7}) for method in model.methods]
    assert given == [fits[0], scored, fits[1], scored]
    assert first == MethodScore("named", "em", -4.5, 0.25, 3.5, False, 1.3, 40.0, True)
    assert np.isnan(second.max_psrf) and second.mebibytes == 0 and second.seconds == 1
    tree.attrs |= {"stop_reason": "completed", "converged": 1}
    monkeypatch.setattr(method_comparison, "summary", lambda own: pd.DataFrame({"mean": [0.0]}))
    monkeypatch.setattr(method_comparison, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(method_comparison, "_peak", lambda: 100.0)
    (third,) = score_methods({"named": model}, **both, methods=("vb",))
    assert third.method == "vb" and third.converged and not third.interrupted
