"""Pictures of the chains of a sampler: traces and ranks of invariants, those on which they agree least first.

Variables per row and parameters whose labels or axes turn are never drawn: their traces show the turning.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inference.convergence.identifiable import draws_of, invariants, kind_of, scalars
from inference.convergence.r_hat import mixing, why_no_psrf
from inference.plots.palette import COLOURS, LINES, figure_with_grid, literal
from zoo.checks import check_size

__all__ = ["plot_rank", "plot_trace"]

_FEWEST_DRAWS = 4
_MOST_BINS = 20


def plot_trace(
    tree: xr.DataTree, var_names: Sequence[str] | None = None, *, most: int = 3, ax: Axes | None = None
) -> Figure:
    """Plot the draws of invariants in their order, a line a chain.

    Args:
        tree: a fit by a sampler.
        var_names: names of scalars as in the table of `inference.diagnostics.summary`
            (``"sorted_weights[1]"``), or of invariants, of which all scalars are drawn; None: the ``most``
            on which the chains agree least.
        most: panels, where no names are given.
        ax: axes to draw a single scalar on; None: a new figure.

    Returns:
        The figure, a panel a scalar with its R-hat in the title.

    Raises:
        ValueError: the draws are not Markov chains, an unknown name, nothing that varies, or several scalars
            for one ``ax``.
    """
    chosen, factors = _chosen(tree, var_names, most)
    figure, panels = _panels(len(chosen), ax, "trace")
    for axis, (name, draws) in zip(panels, chosen.items(), strict=True):
        for chain, values in enumerate(draws):
            style = {"color": COLOURS[chain % len(COLOURS)], "linewidth": 0.7, "alpha": 0.85}
            axis.plot(np.arange(1, values.size + 1), values, label=f"chain {chain}", **style)
        _titled(axis, name, factors)
        axis.set_xlim(0.5, draws.shape[1] + 0.5)
        axis.set_xlabel("draw")
    return _with_legend(figure, panels, ax)


def plot_rank(
    tree: xr.DataTree, var_names: Sequence[str] | None = None, *, most: int = 3, ax: Axes | None = None
) -> Figure:
    """Plot how the ranks of each chain's draws among all draws are spread, a line a chain.

    Chains that agree have level lines up to chance (Vehtari et al. 2021, "Rank-normalization, folding, and
    localization: an improved R-hat"): the band holds 99 per cent of the counts of independent draws. A chain
    with many low ranks sits lower than the others, one with middle ranks only is too narrow. Equal draws are
    ranked in random order.

    Args:
        tree: a fit by a sampler.
        var_names: as for `plot_trace`.
        most: as for `plot_trace`.
        ax: as for `plot_trace`.

    Returns:
        The figure, a panel a scalar.

    Raises:
        ValueError: as for `plot_trace`.
    """
    chosen, factors = _chosen(tree, var_names, most)
    figure, panels = _panels(len(chosen), ax, "rank")
    for axis, (name, draws) in zip(panels, chosen.items(), strict=True):
        ranks = _ranks(draws)
        num_bins = int(np.clip(draws.shape[1] // 10, 4, _MOST_BINS))
        edges = np.linspace(0.5, draws.size + 0.5, num_bins + 1)
        wanted = draws.shape[1] / num_bins
        band = 2.576 * np.sqrt(wanted * (1 - 1 / num_bins))
        axis.axhspan(max(wanted - band, 0), wanted + band, color="0.9", label="99 % by chance")
        axis.axhline(wanted, color="0.6", linewidth=0.8)
        for chain, own in enumerate(ranks):
            counts = np.histogram(own, edges)[0]
            style = {"color": COLOURS[chain % len(COLOURS)], "linestyle": LINES[chain % len(LINES)]}
            axis.stairs(counts, edges, baseline=None, linewidth=1.3, label=f"chain {chain}", **style)
        _titled(axis, name, factors)
        axis.set_xlim(edges[0], edges[-1])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("rank among all draws")
        axis.set_ylabel("draws")
    return _with_legend(figure, panels, ax)


def _ranks(draws: np.ndarray) -> np.ndarray:
    """Ranks from 1 of all draws, ties in random order, so that those of indicators are level too."""
    order = np.lexsort((np.random.default_rng(0).random(draws.size), draws.ravel()))
    ranks = np.empty(draws.size)
    ranks[order] = np.arange(1, draws.size + 1)
    return ranks.reshape(draws.shape)


def _chosen(
    tree: xr.DataTree, var_names: Sequence[str] | None, most: int
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Draws (chain, draw) of the scalars to be drawn by name, and the R-hats that are known."""
    check_size("most", most)
    if kind_of(tree) != "sampling":
        raise ValueError(why_no_psrf(tree))
    sizes, known = draws_of(tree).sizes, dict(scalars(invariants(tree)))
    enough = sizes["chain"] > 1 and sizes["draw"] >= _FEWEST_DRAWS
    mixed = mixing(tree) if enough else None
    factors = dict(mixed.factors) if mixed else {}
    varying = [name for name, draws in known.items() if np.isfinite(draws).all() and np.ptp(draws) > 0]
    if var_names is None:
        worst = mixed.worst if mixed and not mixed.broken else varying
        chosen = worst[:most]
        if not chosen:
            raise ValueError("every invariant is the same in all draws, or not finite: nothing to draw")
        return {name: known[name] for name in chosen}, factors
    found = {}
    for asked in [var_names] if isinstance(var_names, str) else var_names:
        names = [name for name in known if asked in (name, name.partition("[")[0])]
        if not names:
            raise ValueError(f"no invariant {asked!r} in this fit; it has {sorted(known)}")
        found |= {name: known[name] for name in names}
    return found, factors


def _panels(count: int, ax: Axes | None, kind: str) -> tuple[Figure, list[Axes]]:
    if ax is None:
        figure, grid = figure_with_grid(count, 3, (0.0, 0.5), (3.2, 2.4))
        return figure, list(grid)
    if count != 1:
        raise ValueError(f"ax takes the {kind} of one scalar; {count} were asked for: name one in var_names")
    return ax.get_figure(), [ax]


def _titled(axis: Axes, name: str, factors: dict[str, float]) -> None:
    factor = f"\nR-hat {factors[name]:.3f}" if name in factors else ""
    axis.set_title(f"{literal(name)}{factor}", fontsize=9, loc="left")


def _with_legend(figure: Figure, panels: list[Axes], ax: Axes | None) -> Figure:
    handles, labels = panels[0].get_legend_handles_labels()
    if len(handles) <= len(COLOURS) + 1:
        place = figure if ax is None else ax
        where = {"loc": "outside lower center", "ncols": 5} if ax is None else {}
        place.legend(handles, labels, fontsize=8, frameon=False, **where)
    return figure
