"""Pictures of a comparison: leave-one-out scores and invariants of fits, scores and costs of methods."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from inference.diagnostics.comparison import MethodScore
from inference.plots.palette import COLOURS, MARKERS, ShownFigure, figure_with_axes, legend_of, literal

_MOST = 24


def plot_agreement(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Plot means of invariants under each fit, in posterior standard deviations from the first with draws.

    A thick bar is two Monte Carlo standard errors, a thin one a posterior standard deviation to each side:
    fits of one posterior overlap with their thick bars, an approximation should at least lie inside the
    thin ones.

    Args:
        table: the result of `inference.diagnostics.comparison.agreement`. Of more than 24 invariants those
            furthest apart are drawn.
        ax: axes to draw into; None: a new figure.

    Raises:
        ValueError: no invariant is shared by two fits, or none of the fits has draws that vary.
    """
    names = list(dict.fromkeys(table.columns.get_level_values(0)))
    means, errors, sds = (table.xs(part, axis=1, level=1)[names] for part in ("mean", "mcse", "sd"))
    unit = sds.bfill(axis=1).iloc[:, 0] if len(table) else pd.Series(dtype=float)
    unit = unit[unit > 0]
    if not len(unit):
        raise ValueError("no invariant that varies is shared by two of the fits")
    origin = means.where(sds.notna()).bfill(axis=1).iloc[:, 0][unit.index]
    places, thick, thin = (
        part.loc[unit.index].sub(shift, axis=0).div(unit, axis=0)
        for part, shift in ((means, origin), (errors, 0.0), (sds, 0.0))
    )
    apart = (places.max(axis=1) - places.min(axis=1)).fillna(0.0)
    kept = apart.index[np.sort(np.argsort(-apart.to_numpy(), kind="stable")[:_MOST])]
    height = np.arange(len(kept))[::-1]
    figure, axis = figure_with_axes(8.0, 1.8 + 0.3 * len(kept) + 0.12 * len(names), ax)
    for i, name in enumerate(names):
        colour, level = COLOURS[i % len(COLOURS)], height + 0.5 * (0.5 - (i + 0.5) / len(names))
        here = places.loc[kept, name].to_numpy()
        axis.hlines(level, here - thin.loc[kept, name], here + thin.loc[kept, name], colour, linewidth=0.8)
        wide = 2 * thick.loc[kept, name]
        axis.hlines(level, here - wide, here + wide, colour, linewidth=3.0, alpha=0.7)
        axis.plot(
            here,
            level,
            linestyle="",
            marker=MARKERS[i % len(MARKERS)],
            color=colour,
            label=literal(name),
            ms=5,
        )
    axis.set_yticks(height, [literal(name) for name in kept], fontsize=8)
    axis.set_ylim(-0.7, len(kept) - 0.3)
    axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axis.set_xlabel("mean, in posterior standard deviations from the first fit that has draws")
    if len(kept) < len(unit):
        axis.set_title(f"the {len(kept)} of {len(unit)} furthest apart", fontsize=9, loc="left")
    legend_of(figure, axis, ax, "outside upper center", ncols=4)
    return figure


def plot_scores(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Plot leave-one-out scores of fits below the best, with the standard error of the difference.

    Args:
        table: the result of `inference.diagnostics.compare`.
        ax: axes to draw into; None: a new figure.
    """
    below = (table["elpd"] - table["elpd"].max()).to_numpy()
    height = np.arange(len(table))[::-1]
    figure, axis = figure_with_axes(8.0, 1.3 + 0.35 * len(table), ax)
    for x, error, y, bad in zip(below, table["dse"], height, table["pareto_k_bad"], strict=True):
        style = {"fmt": "o", "color": COLOURS[0], "markerfacecolor": "white" if bad else COLOURS[0]}
        axis.errorbar(x, y, xerr=error or None, **style)
    axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axis.set_yticks(height, [literal(name) for name in table.index])
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.set_xlabel("elpd less the best one, nats over all rows, one standard error of the difference")
    if table["pareto_k_bad"].any():
        axis.set_title("hollow: not to be trusted (Pareto k)", fontsize=9, loc="right")
    return figure


_FAR = 10  # times the distance from the best to the median: lower scores are off the scale
_BELIEVED = 1.01  # rank-normalised R-hat, as `inference.diagnostics` judges chains


def plot_methods(scores: Sequence[MethodScore]) -> Figure:
    """Plot methods side by side, the best score on top; hollow where the fit did not converge.

    A score so far below the others that their differences could not be seen is a number at the edge.

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
    columns = [("seconds", "seconds"), ("mebibytes", "extra MiB")]
    if any(np.isfinite(score.max_psrf) for score in scores):
        columns.append(("max_psrf", "max PSRF"))
    figure = ShownFigure(figsize=(5.0 + 2.0 * len(columns), 1.2 + 0.28 * len(ranked)), layout="constrained")
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
    panels[0].set_yticks(range(len(ranked)), [literal(f"{score.model} · {score.method}") for score in ranked])
    figure.suptitle("Hollow: not converged", fontsize="small", x=0.99, ha="right")
    return figure


def _finite(value: float) -> float:
    """Replace a missing score by the lowest number, to sort by."""
    return -np.inf if np.isnan(value) else value


def _least_shown(values: Sequence[float]) -> float:
    """Lowest score shown on an axis, at least a nat below the best."""
    finite = [value for value in values if np.isfinite(value)]
    if not finite:
        return np.inf
    best = max(finite)
    return best - max(_FAR * (best - float(np.median(finite))), 1.0)


def _on_decades(panel: Axes, seconds: Sequence[float]) -> None:
    """Make the axis logarithmic, from one power of ten to another."""
    powers = np.log10(np.maximum(seconds, 1e-3))
    panel.set_xscale("log")
    panel.set_xlim(10.0 ** np.floor(powers.min()), 10.0 ** (np.floor(powers.max()) + 1))
    panel.xaxis.set_minor_formatter(NullFormatter())
