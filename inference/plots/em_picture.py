"""EM as a staircase: the bound that each M-step climbs, the likelihood that each E-step lifts it to."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.plots.palette import COLOURS

__all__ = ["plot_em"]


def plot_em(tree: xr.DataTree, iterations: int = 15) -> Figure:
    """The log likelihood and the lower bound of the first iterations of EM (of the best restart).

    After an E-step the bound touches the log likelihood; the M-step raises the bound, and the log
    likelihood, which lies above it, rises at least as much.

    Args:
        tree: a fit by ``em``.
        iterations: how many are drawn.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no bound in its trace, or ``iterations`` is below 2.
    """
    if "trace" not in tree.children or "bound" not in tree["trace"]:
        method = tree.attrs.get("method", "unknown")
        raise ValueError(f"plot_em draws a fit by method 'em'; this one is by {method!r}")
    if iterations < 2:
        raise ValueError(f"iterations must be at least 2; got {iterations}")
    trace = tree["trace"].to_dataset()
    if "restart" in trace.dims:
        trace = trace.isel(restart=int(tree.attrs["best_restart"]))
    likelihood = trace["objective"].to_numpy()
    count = min(iterations, int(np.isfinite(likelihood).sum()))
    likelihood, bound = likelihood[:count], trace["bound"].to_numpy()[:count]
    place = np.arange(1, count + 1)
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axis = figure.subplots()
    steps = np.stack([likelihood[:-1], bound[1:], likelihood[1:]])
    for i in range(count - 1):
        axis.plot([place[i], place[i + 1]], steps[:2, i], color=COLOURS[1], lw=1.2, ls="--")
        axis.plot([place[i + 1]] * 2, steps[1:, i], color=COLOURS[0], lw=1.2, ls=":")
    axis.plot(place, likelihood, "o", color=COLOURS[0], label="log likelihood (the bound after an E-step)")
    axis.plot(place[1:], bound[1:], "^", color=COLOURS[1], label="lower bound after the M-step")
    axis.set_xlabel("iteration")
    axis.set_ylabel("nats")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside upper left", ncols=2)
    return figure
