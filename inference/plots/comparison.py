"""Pictures of a comparison of fits: leave-one-out scores, and invariants under each of them."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from inference.plots.palette import COLOURS, MARKERS

__all__ = ["plot_agreement", "plot_scores"]

_MOST = 24


def plot_agreement(table: pd.DataFrame) -> Figure:
    """Means of invariants under each fit, in posterior standard deviations from the first that has draws.

    A thick bar is two Monte Carlo standard errors, a thin one a posterior standard deviation to each side:
    fits of one posterior overlap with their thick bars, an approximation should at least lie inside the
    thin ones.

    Args:
        table: what `inference.diagnostics.agreement.agreement` returned. Of more than 24 invariants those
            furthest apart are drawn.

    Returns:
        The figure.

    Raises:
        ValueError: no invariant is shared by two fits, or none of the fits has draws that vary.
    """
    names = list(dict.fromkeys(table.columns.get_level_values(0)))
    means, errors, sds = (table.xs(part, axis=1, level=1)[names] for part in ("mean", "mcse", "sd"))
    unit = sds.bfill(axis=1).iloc[:, 0] if len(table) else pd.Series(dtype=float)
    table_rows = unit.index[unit > 0]
    if not len(table_rows):
        raise ValueError("no invariant that varies is shared by two of the fits")
    unit = unit[table_rows]
    origin = means.where(sds.notna()).bfill(axis=1).iloc[:, 0][table_rows]
    places, thick, thin = (
        part.loc[table_rows].sub(shift, axis=0).div(unit, axis=0)
        for part, shift in ((means, origin), (errors, 0.0), (sds, 0.0))
    )
    apart = (places.max(axis=1) - places.min(axis=1)).fillna(0.0)
    kept = apart.index[np.sort(np.argsort(-apart.to_numpy(), kind="stable")[:_MOST])]
    height = np.arange(len(kept))[::-1]
    figure = Figure(figsize=(8.0, 1.8 + 0.3 * len(kept) + 0.12 * len(names)), layout="constrained")
    axis = figure.subplots()
    for i, name in enumerate(names):
        colour, level = COLOURS[i % len(COLOURS)], height + 0.5 * (0.5 - (i + 0.5) / len(names))
        here = places.loc[kept, name].to_numpy()
        axis.hlines(level, here - thin.loc[kept, name], here + thin.loc[kept, name], colour, linewidth=0.8)
        wide = 2 * thick.loc[kept, name]
        axis.hlines(level, here - wide, here + wide, colour, linewidth=3.0, alpha=0.7)
        axis.plot(here, level, linestyle="", marker=MARKERS[i % len(MARKERS)], color=colour, label=name, ms=5)
    axis.set_yticks(height, kept, fontsize=8)
    axis.set_ylim(-0.7, len(kept) - 0.3)
    axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axis.set_xlabel("mean, in posterior standard deviations from the first fit that has draws")
    if len(kept) < len(table_rows):
        axis.set_title(f"the {len(kept)} of {len(table_rows)} furthest apart", fontsize=9, loc="left")
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8, frameon=False
    )
    return figure


def plot_scores(table: pd.DataFrame) -> Figure:
    """Leave-one-out scores of fits as differences from the best, with the standard error of the difference.

    Args:
        table: what `inference.diagnostics.compare` returned.

    Returns:
        The figure; fits with rows whose Pareto k is too high are drawn hollow.
    """
    below = (table["elpd"] - table["elpd"].max()).to_numpy()
    height = np.arange(len(table))[::-1]
    figure = Figure(figsize=(8.0, 1.3 + 0.35 * len(table)), layout="constrained")
    axis = figure.subplots()
    for x, error, y, bad in zip(below, table["dse"], height, table["pareto_k_bad"], strict=True):
        axis.errorbar(
            x,
            y,
            xerr=error or None,
            fmt="o",
            color=COLOURS[0],
            markerfacecolor="white" if bad else COLOURS[0],
        )
    axis.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axis.set_yticks(height, table.index)
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.set_xlabel("elpd less the best one, nats over all rows, one standard error of the difference")
    if table["pareto_k_bad"].any():
        axis.set_title("hollow: not to be trusted (Pareto k)", fontsize=9, loc="right")
    return figure
