"""Pictures of any fit: its mixture, and the course of its objective and PSRF."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.convergence.identifiable import draws_of, kind_of, scalars
from inference.convergence.r_hat import psrf_path
from inference.plots.mixtures import draw_mixture
from inference.plots.palette import COLOURS, LINES, ShownFigure, figure_with_axes, legend_of, literal
from inference.results.files import model_of
from inference.results.groups import group_or_empty
from zoo.checks import check_size

_MOST_LINES = 5
_LEAST_MARGIN = 0.5  # nats below the final values: smaller differences mean nothing


def plot_mixture(
    tree: xr.DataTree,
    features: tuple | None = None,
    num_draws: int = 15,
    content: float = 0.9,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Plot the data, the occupied components and the predictive density of a mixture.

    Rows are coloured by their most probable component, after relabelling. Bold ellipses hold ``content`` of a
    component at its posterior mean, thin ones at single draws: their spread is the posterior's. Shades are
    the regions that hold 50, 90 and 99 per cent of the posterior predictive density.

    Args:
        tree: a fit of a mixture of Gaussians.
        features: two names or positions of features; by default both of two, else the first two principal
            components of the data. One feature is drawn as a histogram with densities.
        num_draws: draws shown as thin ellipses.
        content: probability that an ellipse holds, between 0 and 1.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: no Gaussian components, no data in the fit, an unknown feature, or arguments out of range.
    """
    if not 0 < content < 1:
        raise ValueError(f"content must lie between 0 and 1; got {content}")
    check_size("num_draws", num_draws, 0)
    figure = ShownFigure(figsize=(8.0, 5.6), layout="constrained") if ax is None else ax.figure
    draw_mixture(figure, tree, features, num_draws, content, ax=ax)
    return figure


def plot_objective(tree: xr.DataTree) -> Figure:
    """Plot the objective and the number of occupied components by iteration, one line per restart or chain.

    Args:
        tree: a fit whose ``trace`` has ``objective`` (nats, higher is better).

    Returns:
        The figure; two panels where the trace holds ``num_occupied``. Warm-up is shaded. The vertical axis
        leaves out the first steep steps and the rare spikes that would flatten the rest; the title notes it.

    Raises:
        ValueError: the fit has no trace.
    """
    draws_of(tree)
    if "objective" not in group_or_empty(tree, "trace"):
        raise ValueError(
            "plot_objective needs the group 'trace' with the variable 'objective'; this fit has none"
        )
    trace = tree["trace"].to_dataset()
    counted = model_of(tree).roles.occupied
    panels = ["objective"] + ([counted] if counted in trace else [])
    figure = ShownFigure(figsize=(8.0, 2.6 + 1.5 * len(panels)), layout="constrained")
    ratios = [2, 1][: len(panels)]
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    for axis, name in zip(axes, panels, strict=True):
        _draw_trace(axis, trace, name, tree.attrs)
    objective, sampling = axes[0], kind_of(tree) == "sampling"
    objective.set_ylabel("log joint density (nats)" if sampling else "objective (nats)")
    title = "log joint density by chain" if sampling else "objective, higher is better"
    zoomed = _zoom(objective, trace["objective"], int(trace.attrs.get("num_warmup", 0)))
    objective.set_title(f"{tree.attrs.get('method', 'fit')}: {title}{zoomed}", fontsize=10, loc="left")
    if len(panels) > 1:
        axes[1].set(ylabel="occupied components", ylim=(0, 1.15 * np.nanmax(trace[counted].values) + 0.5))
        axes[1].yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[-1].set_xlabel("sweep (warm-up included)" if sampling else "iteration")
    named = objective.get_legend_handles_labels()
    if named[0]:
        figure.legend(*named, fontsize=8, frameon=False, ncols=5, loc="outside lower center")
    return figure


def plot_psrf_path(tree: xr.DataTree, method: str = "rank", *, ax: Axes | None = None) -> Figure:
    """Plot the PSRF of the invariants against the number of draws, to see whether the chains keep agreeing.

    The axis is linear up to 1.01, where noise lives, and logarithmic in the excess over 1 from there. The
    five quantities that end highest are named, the others grey.

    Args:
        tree: a fit by MCMC with at least two chains.
        method: ``"rank"`` or ``"identity"`` (the papers' Gelman-Rubin).
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the draws are not Markov chains, or there is one chain.
    """
    path = psrf_path(tree, method=method)
    draws = path["draw"].values
    lines = [(name, values[0]) for name, values in scalars(path.expand_dims("chain"))]
    lines = [(name, values) for name, values in lines if not np.isnan(values).all()]
    lines.sort(key=lambda line: -np.nan_to_num(line[1][-1], nan=-np.inf))
    figure, axis = figure_with_axes(8.0, 4.6, ax)
    for i, (name, values) in enumerate(lines):
        style = {"color": "0.75", "linewidth": 0.8, "label": "others" if i == _MOST_LINES else None}
        if i < _MOST_LINES:
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i % len(LINES)], "linewidth": 1.4}
            style |= {"label": literal(name), "zorder": 3}
        axis.plot(draws, values - 1.0, **style)
    for excess, colour, dashes, label in (
        (0.01, "0.2", (8, 3), "1.01: wanted at the end"),
        (0.1, "0.5", (2, 2), "1.1: the papers' bar"),
    ):
        axis.axhline(excess, color=colour, linewidth=1.0, linestyle=(0, dashes), zorder=1, label=label)
    axis.set_yscale("symlog", linthresh=0.01, linscale=0.6)
    finite = np.concatenate([v[np.isfinite(v)] - 1.0 for _, v in lines] or [np.zeros(1)])
    axis.set_ylim(min(1.3 * finite.min(), -0.004), min(max(0.15, 1.5 * finite.max()), 20.0))
    ticks = [t for t in (0.0, 0.01, 0.1, 1.0, 10.0) if t < axis.get_ylim()[1]]
    axis.set_yticks(ticks, [f"{1 + t:g}" for t in ticks])
    axis.set_yticks([], minor=True)
    axis.set_xlabel("draws per chain so far (second half used)")
    axis.set_ylabel("PSRF (rank-normalised)" if method == "rank" else f"PSRF ({method})")
    title = f"{tree.attrs.get('method', 'fit')}: do the chains agree, and do they stay so?"
    if path.attrs["constant"]:
        title += f"\nnot shown, because constant: {literal(path.attrs['constant'])}"
    axis.set_title(title, fontsize=10, loc="left")
    legend_of(figure, axis, ax, "outside lower center", ncols=3)
    return figure


def _draw_trace(axis: Axes, trace: xr.Dataset, name: str, attrs: dict) -> None:
    drawn = trace.get(f"{name}_by_restart", trace[name])
    values = (drawn.transpose("restart", ...) if "restart" in drawn.dims else drawn).values
    values = values.reshape(-1, values.shape[-1])
    kind = next((dim for dim in ("restart", "chain") if dim in drawn.dims), "")
    best = int(attrs.get("best_restart", 0)) if kind == "restart" else None
    iterations = np.arange(1, values.shape[1] + 1)
    few, others = len(values) <= 4, "other restarts"
    for i, line in enumerate(values):
        if best is not None and i != best:
            style, label = {"color": "0.7", "linewidth": 0.8, "zorder": 2}, others
            others = None
        else:
            colour = COLOURS[(i if best is None else 0) % len(COLOURS)]
            style = {"color": colour, "linewidth": 0.9 if kind == "chain" else 1.6, "zorder": 3}
            chain = f"chain {i}" if few else None
            label = {"": None, "chain": chain, "restart": f"best restart ({i} of {len(values)})"}[kind]
        known = np.isfinite(line)
        style |= {"alpha": 0.8 if kind == "chain" else 1.0}
        steps = "default" if name == "objective" else "steps-post"
        axis.plot(iterations[known], line[known], label=label, drawstyle=steps, **style)
        if kind != "chain" and known.any():
            axis.plot(iterations[known][-1], line[known][-1], "o", markersize=3.5, **style)
    warmup = int(trace.attrs.get("num_warmup", 0))
    if warmup:
        label = "warm-up" if name == "objective" else None
        axis.axvspan(0.5, warmup + 0.5, color="0.9", zorder=0, label=label)
    axis.set_xlim(0.5, values.shape[1] + 0.5)
    axis.grid(axis="y", color="0.92", zorder=0)
    axis.ticklabel_format(axis="y", useOffset=False)


def _zoom(axis: Axes, objective: xr.DataArray, num_warmup: int) -> str:
    """Leave a steep start and rare spikes out of the axis where they take half of it, and return a note."""
    values = objective.transpose(..., "iteration").values.reshape(-1, objective.sizes["iteration"])
    skipped = num_warmup if 0 < num_warmup < values.shape[1] else max(3, values.shape[1] // 10)
    late = values[:, skipped:]
    late = late[np.isfinite(late)]
    if not len(late):
        return ""
    notes = []
    low, high = (late.min(), late.max()) if not num_warmup else np.quantile(late, [0.01, 0.99])
    margin = max(0.15 * (high - low), _LEAST_MARGIN)
    bottom, top = np.nanmin(values), np.nanmax(values)
    if low - margin - bottom > high - low:
        axis.set_ylim(low - margin, top + 0.05 * (top - low + margin))
        notes.append("first steps below the axis")
    if top - high - margin > high - low:
        axis.set_ylim(top=high + margin)
        notes.append(f"{np.mean(late > high + margin):.1%} of sweeps above it")
    return f" ({', '.join(notes)})" if notes else ""
