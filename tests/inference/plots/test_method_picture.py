"""The picture of a comparison: a line a method in the order of scores, hollow where not converged."""

import numpy as np
import pytest

from inference.diagnostics import comparison as method_comparison
from inference.diagnostics.comparison import MethodScore, Refusal, score_methods
from inference.plots import plot_methods

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
