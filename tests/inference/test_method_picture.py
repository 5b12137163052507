"""The picture of a comparison: a line a method in the order of scores, hollow where not converged."""

import numpy as np
import pytest

from inference.method_comparison import MethodScore
from inference.plots import plot_methods

SCORES = [
    MethodScore("mixture", "vb", -4.4, 0.2, 3.0, True, np.nan, 200.0, False),
    MethodScore("ppca", "em", -5.0, np.nan, 0.4, False, np.nan, 0.0, False),
    MethodScore("mixture", "gibbs", -4.3, 0.2, 30.0, True, 1.01, 20.0, False),
]


def test_methods_stand_in_the_order_of_their_scores():
    figure = plot_methods(SCORES)
    figure.draw_without_rendering()
    first, seconds, memory = figure.axes
    labels = [tick.get_text() for tick in first.get_yticklabels()]
    assert labels == ["ppca \u00b7 em", "mixture \u00b7 vb", "mixture \u00b7 gibbs"]
    shown = [container.lines[0] for container in first.containers]
    assert [float(line.get_xdata()[0]) for line in shown] == [-5.0, -4.4, -4.3]
    assert [line.get_markerfacecolor() == "white" for line in shown] == [True, False, False]
    assert shown[1].get_color() == shown[2].get_color() != shown[0].get_color()
    assert seconds.get_xlim() == (0.1, 100.0) and memory.get_xlim()[0] == 0


def test_no_scores_no_picture():
    with pytest.raises(ValueError, match="no method took the data"):
        plot_methods([])
