"""A picture of `inference.method_comparison`: held-out score, time and memory of each method on one line."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from inference.method_comparison import MethodScore
from inference.palette import COLOURS

__all__ = ["plot_methods"]


def plot_methods(scores: Sequence[MethodScore]) -> Figure:
    """Methods side by side, the best score on top; hollow where the fit did not converge.

    Args:
        scores: what `inference.method_comparison.score_methods` gave, refusals left out.

    Returns:
        Three panels that share their lines: nats a row with one standard error, seconds, mebibytes.

    Raises:
        ValueError: there are no scores.
    """
    if not scores:
        raise ValueError("there are no scores to draw: no method took the data")
    ranked = sorted(scores, key=lambda score: score.nats_per_row)
    names = list(dict.fromkeys(score.model for score in scores))
    height = np.arange(len(ranked))
    figure = Figure(figsize=(9.0, 1.2 + 0.28 * len(ranked)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True, width_ratios=(2, 1, 1))
    columns = (
        ("nats_per_row", "held out: nats a row"),
        ("seconds", "seconds"),
        ("mebibytes", "MiB more"),
    )
    for panel, (column, label) in zip(panels, columns, strict=True):
        for place, score in zip(height, ranked, strict=True):
            color = COLOURS[names.index(score.model) % len(COLOURS)]
            value = getattr(score, column)
            error = score.standard_error if column == "nats_per_row" else None
            panel.errorbar(
                value,
                place,
                xerr=error if error is not None and np.isfinite(error) else None,
                fmt="o",
                color=color,
                markerfacecolor=color if score.converged else "white",
            )
        panel.set_xlabel(label)
        panel.grid(axis="x", alpha=0.3)
    panels[0].xaxis.set_major_locator(MaxNLocator(6))
    panels[1].set_xscale("log")
    seconds = np.log10([max(score.seconds, 1e-3) for score in ranked])
    panels[1].set_xlim(10.0 ** np.floor(seconds.min()), 10.0 ** (np.floor(seconds.max()) + 1))
    panels[1].xaxis.set_minor_formatter(NullFormatter())
    panels[2].set_xlim(left=0)
    panels[0].set_ylim(-0.6, len(ranked) - 0.4)
    panels[0].set_yticks(height, [f"{score.model} · {score.method}" for score in ranked])
    figure.suptitle("Hollow: not converged", fontsize="small", x=0.99, ha="right")
    return figure
