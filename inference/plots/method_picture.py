"""A picture of `inference.diagnostics.method_comparison`: score, time, memory and PSRF of each method on one line."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from inference.diagnostics.method_comparison import MethodScore
from inference.plots.palette import COLOURS

__all__ = ["plot_methods"]

_FAR = 10  # times the distance from the best to the median: what lies below is off the scale
_BELIEVED = 1.01  # rank-normalised R-hat, as `inference.diagnostics` judges chains


def plot_methods(scores: Sequence[MethodScore]) -> Figure:
    """Methods side by side, the best score on top; hollow where the fit did not converge.

    A score so far below the others that their differences could not be seen is a number at the edge.

    Args:
        scores: what `inference.diagnostics.method_comparison.score_methods` gave, refusals left out.

    Returns:
        Panels that share their lines: nats a row with one standard error, seconds, mebibytes, and the largest
        PSRF where any method has chains.

    Raises:
        ValueError: there are no scores.
    """
    if not scores:
        raise ValueError("there are no scores to draw: no method took the data")
    ranked = sorted(scores, key=lambda score: _finite(score.nats_per_row))
    names = list(dict.fromkeys(score.model for score in scores))
    columns = [("seconds", "seconds"), ("mebibytes", "MiB more")]
    if any(np.isfinite(score.max_psrf) for score in scores):
        columns.append(("max_psrf", "max PSRF"))
    figure = Figure(figsize=(5.0 + 2.0 * len(columns), 1.2 + 0.28 * len(ranked)), layout="constrained")
    widths = (2, *[1 for _ in columns])
    panels = figure.subplots(1, len(widths), sharey=True, width_ratios=widths)
    least = _least_shown([_finite(score.nats_per_row) for score in ranked])
    for place, score in enumerate(ranked):
        color = COLOURS[names.index(score.model) % len(COLOURS)]
        look = {"fmt": "o", "color": color, "markerfacecolor": color if score.converged else "white"}
        if score.nats_per_row >= least:
            error = score.standard_error if np.isfinite(score.standard_error) else None
            panels[0].errorbar(score.nats_per_row, place, xerr=error, **look)
        else:
            text = f"\N{LEFTWARDS ARROW} {score.nats_per_row:.4g}"
            at = {"transform": panels[0].get_yaxis_transform(), "va": "center", "fontsize": "small"}
            panels[0].text(0.02, place, text, color=color, **at)
        for panel, (column, _) in zip(panels[1:], columns, strict=True):
            panel.errorbar(getattr(score, column), place, **look)
    for panel, (_, label) in zip(panels, (("", "held out: nats a row"), *columns), strict=True):
        panel.set_xlabel(label)
        panel.grid(axis="x", alpha=0.3)
    panels[0].xaxis.set_major_locator(MaxNLocator(6))
    _on_decades(panels[1], [score.seconds for score in ranked])
    panels[2].set_xlim(left=0)
    if len(columns) > 2:
        panels[3].axvline(_BELIEVED, color="grey", linestyle=":")
        panels[3].xaxis.set_major_locator(MaxNLocator(3))
    panels[0].set_ylim(-0.6, len(ranked) - 0.4)
    panels[0].set_yticks(range(len(ranked)), [f"{score.model} · {score.method}" for score in ranked])
    figure.suptitle("Hollow: not converged", fontsize="small", x=0.99, ha="right")
    return figure


def _finite(value: float) -> float:
    """A number to sort by: no score is the lowest one."""
    return -np.inf if np.isnan(value) else value


def _least_shown(values: Sequence[float]) -> float:
    """The lowest score that has a place on an axis, a nat below the best at the least."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return np.inf
    best = max(finite)
    return best - max(_FAR * (best - float(np.median(finite))), 1.0)


def _on_decades(panel: Axes, seconds: Sequence[float]) -> None:
    """A logarithmic axis from one power of ten to another."""
    powers = np.log10(np.maximum(seconds, 1e-3))
    panel.set_xscale("log")
    panel.set_xlim(10.0 ** np.floor(powers.min()), 10.0 ** (np.floor(powers.max()) + 1))
    panel.xaxis.set_minor_formatter(NullFormatter())
