"""Pictures of draws: traces and ranks of invariants, and replications of the data.

Quantities are those that no symmetry can change (`inference.diagnostics.invariants`) and never by row, so
that every picture can be read and none hangs; ArviZ's functions, given a fit as it is, draw all of it
(`inference.diagnostics.for_arviz` gives them what they can draw well).
"""

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference.convergence.identifiable import draws_of, feature_names, invariants, kind_of, scalars
from inference.convergence.r_hat import effective_sample_size, is_constant, psrf_of, why_no_psrf
from inference.diagnostics.model_criticism import to_replicate
from inference.diagnostics.profile_parts import Asked
from inference.diagnostics.projection_profiles import projection_tables
from inference.extension import extend
from inference.plots.palette import COLOURS, LINES, figure_with_axes, figure_with_grid, legend_of, literal
from inference.results.files import model_of
from inference.results.groups import observed_tables
from zoo.checks import check_size

_MOST_LINES = 4000  # points of a line
_NUM_BINS = 20
_MOST_COLUMNS = 12  # features of replications
_FEW_VALUES = 12  # of a column that is drawn as bars


def worst_quantities(
    tree: xr.DataTree, names: Sequence[str] | None = None, most: int = 5
) -> dict[str, np.ndarray]:
    """The invariants on which chains agree least, or those that are named.

    Args:
        tree: a fit by MCMC.
        names: of invariants, whole (``"sorted_weights"``) or single (``"sorted_weights[1]"``); None: worst.
        most: how many of the worst; the named ones are all taken.

    Returns:
        Name to draws, shape (chain, draw), the largest R-hat first where they are not named.

    Raises:
        ValueError: the draws are no Markov chains, no such invariant, or none that varies.
    """
    check_size("most", most)
    if kind_of(tree) != "sampling":
        raise ValueError(why_no_psrf(tree))
    found = {name: values for name, values in scalars(invariants(tree)) if not is_constant(values)}
    if names is not None:
        names = [names] if isinstance(names, str) else list(names)
        for name in names:
            if not any(key == name or key.partition("[")[0] == name for key in found):
                known = ", ".join(dict.fromkeys(key.partition("[")[0] for key in found))
                raise ValueError(f"no invariant {name!r} varies in this fit; there are {known}")
        return {key: found[key] for key in found if key in names or key.partition("[")[0] in names}
    if not found:
        raise ValueError("every invariant is the same in all draws: there is nothing to draw")
    several = draws_of(tree).sizes["chain"] > 1 and draws_of(tree).sizes["draw"] >= 4
    factors = {key: psrf_of(values, "rank") if several else 0.0 for key, values in found.items()}
    order = sorted(found, key=lambda key: -np.nan_to_num(factors[key], nan=np.inf))
    return {key: found[key] for key in order[:most]}


def _agreement(values: np.ndarray) -> str:
    """R-hat and effective sample size of a quantity, for the title of its panel."""
    if min(values.shape) < 2 or values.shape[1] < 4:
        return ""
    return f"R-hat {psrf_of(values, 'rank'):.3f}, ESS {effective_sample_size(values, 'bulk'):.0f}"


def _panels(
    count: int, size: tuple[float, float], ax: Axes | None, noun: str
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with a column of panels, or the axes given, which hold one."""
    if ax is None:
        return figure_with_grid(count, 1, (0.6, 0.5), size)
    if count > 1:
        raise ValueError(f"ax holds one {noun}, and there are {count}: name one")
    return ax.figure, [ax]


def plot_trace(
    tree: xr.DataTree, names: Sequence[str] | None = None, most: int = 5, *, ax: Axes | None = None
) -> Figure:
    """Plot the path of invariants, one panel per quantity, one line per chain, with R-hat and ESS.

    Chains that have converged cross each other all the way and look alike.

    Args:
        tree: a fit by MCMC.
        names: of invariants; None: those on which chains agree least.
        most: how many of them.
        ax: axes to draw one quantity into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: as `worst_quantities`, or ``ax`` for several quantities.
    """
    found = worst_quantities(tree, names, 1 if ax is not None and names is None else most)
    figure, panels = _panels(len(found), (7.4, 1.5), ax, "quantity")
    for axis, (name, values) in zip(panels, found.items(), strict=True):
        step = max(1, values.shape[1] // _MOST_LINES)
        for chain, line in enumerate(values):
            style = {"color": COLOURS[chain % len(COLOURS)], "linewidth": 0.7, "alpha": 0.8}
            axis.plot(np.arange(0, len(line), step), line[::step], label=f"chain {chain}", **style)
        axis.set_title(f"{literal(name)}   {_agreement(values)}", fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.ticklabel_format(axis="y", useOffset=False)
    panels[-1].set_xlabel("draw")
    if len(next(iter(found.values()))) > 1:
        legend_of(figure, panels[0], ax, "outside lower center", ncols=4, handles=panels[0].lines)
    return figure


def plot_rank(
    tree: xr.DataTree, names: Sequence[str] | None = None, most: int = 5, *, ax: Axes | None = None
) -> Figure:
    """Plot how the draws of each chain rank among all draws, one panel per quantity, one line per chain.

    Chains that agree have as many draws in each twentieth of all: their lines stay near the dashed one. A
    chain that is high on one side sits apart, one high at both ends spreads further (Vehtari, Gelman,
    Simpson, Carpenter and Buerkner 2021).

    Args:
        tree: a fit by MCMC with at least two chains.
        names: of invariants; None: those on which chains agree least.
        most: how many of them.
        ax: axes to draw one quantity into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: as `worst_quantities`, one chain, or ``ax`` for several quantities.
    """
    found = worst_quantities(tree, names, 1 if ax is not None and names is None else most)
    if draws_of(tree).sizes["chain"] < 2:
        raise ValueError("ranks compare chains, and there is one: fit with num_chains=4")
    figure, panels = _panels(len(found), (6.4, 1.5), ax, "quantity")
    rng = np.random.default_rng(0)
    for axis, (name, values) in zip(panels, found.items(), strict=True):
        flat = values.ravel()
        order = np.lexsort((rng.random(flat.size), flat))  # ties at random: counts have many
        ranks = np.empty(flat.size)
        ranks[order] = np.arange(flat.size)
        bins = min(_NUM_BINS, max(2, values.shape[1] // 5))
        edges = np.linspace(0, flat.size, bins + 1)
        for chain, own in enumerate(ranks.reshape(values.shape)):
            share = np.histogram(own, edges)[0] * bins / values.shape[1]
            style = {"color": COLOURS[chain % len(COLOURS)], "linestyle": LINES[chain % len(LINES)]}
            axis.stairs(share, edges / flat.size, label=f"chain {chain}", linewidth=1.3, **style)
        axis.axhline(1.0, color="0.5", linewidth=0.8, linestyle=(0, (6, 3)), zorder=0)
        axis.set(ylim=(0, None), xlim=(0, 1), ylabel="density")
        axis.set_title(f"{literal(name)}   {_agreement(values)}", fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("rank among the draws of all chains, lowest to highest")
    handles = panels[0].get_legend_handles_labels()[0]
    legend_of(figure, panels[0], ax, "outside lower center", ncols=4, handles=handles)
    return figure


def plot_ppc(
    tree: xr.DataTree,
    features: Sequence[str] | None = None,
    num_draws: int = 100,
    *,
    seed: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """Plot the distribution of each column of the data over those of replications drawn from the fit.

    Numbers are drawn as the share of rows up to a value, whole numbers of few values as bars; the band holds
    90 per cent of the replications at every value. Where the line leaves the band the fit does not look like
    the data; `inference.diagnostics.check_predictions` judges that with all columns together.

    Args:
        tree: a fit that holds its data, tables of rows.
        features: names of columns; None: the first twelve.
        num_draws: replications.
        seed: of the replications.
        ax: axes to draw one column into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: no table of rows in the fit, no such column, nothing can be drawn from it, or ``ax`` for
            several columns.
    """
    check_size("num_draws", num_draws, 10)
    observed = observed_tables(tree)
    if not observed:
        raise ValueError(
            "plot_ppc draws tables of rows; of documents see inference.plots.plot_document_check, and of "
            "sparse rows fit a part of them as a table"
        )
    columns = [
        (site, place, name)
        for site, values in observed.items()
        for place, name in enumerate(
            feature_names(values.rename({values.dims[-1]: "feature"}), str(values.dims[-1]).partition("_")[0])
        )
    ]
    if features is not None:
        wanted = [features] if isinstance(features, str) else list(map(str, features))
        unknown = [name for name in wanted if name not in {column[2] for column in columns}]
        if unknown:
            raise ValueError(
                f"no column {unknown[0]!r}; there are {', '.join(column[2] for column in columns)}"
            )
        columns = [column for column in columns if column[2] in wanted]
    chosen = columns[: 1 if ax is not None and features is None else _MOST_COLUMNS]
    drawn = extend(to_replicate(tree, num_draws), "posterior_predictive", seed=seed)["posterior_predictive"]
    if ax is None:
        figure, panels = figure_with_grid(len(chosen), min(len(chosen), 3), (0.4, 0.9), (2.6, 2.0))
    else:
        figure, panels = _panels(len(chosen), (2.6, 2.0), ax, "column")
    for axis, (site, place, name) in zip(panels, chosen, strict=True):
        x = observed[site].transpose("observation", ...).values[:, place].astype(float)
        known = np.isfinite(x)
        replicas = drawn[site].transpose("chain", "draw", "observation", ...).values[..., place]
        _draw_replicas(axis, x[known], replicas.reshape(-1, len(x))[:, known].astype(float))
        levels = json.loads(observed[site].attrs.get("levels", "{}")).get(name)
        if levels:
            words = [literal(word) for word in levels]
            axis.set_xticks(list(levels.values()), words, rotation=30, ha="right")
        axis.set_xlabel(literal(name), fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    handles = panels[0].get_legend_handles_labels()[0]
    legend_of(figure, panels[0], ax, "outside upper center", ncols=2, handles=handles)
    if len(chosen) < len(columns) and ax is None:
        figure.supxlabel(f"{len(chosen)} of {len(columns)} columns", fontsize=8)
    return figure


def _draw_replicas(axis: Axes, x: np.ndarray, replicas: np.ndarray) -> None:
    """The data of a column and the band of its replications."""
    values = np.unique(x)
    if len(values) <= _FEW_VALUES and (values == np.round(values)).all():
        levels = np.arange(np.floor(min(values.min(), np.quantile(replicas, 0.01))), values.max() + 1)
        share = (replicas[:, :, None] == levels).mean(1)
        low, high = np.quantile(share, [0.05, 0.95], axis=0)
        axis.bar(levels, high - low, bottom=low, width=0.7, color="0.8", label="90 % of the replications")
        axis.plot(levels, (x[:, None] == levels).mean(0), "o", color=COLOURS[0], ms=4, label="data")
        axis.set(ylabel="share of rows", ylim=(0, None))
        axis.yaxis.label.set_fontsize(7)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        return
    low, high = np.quantile(replicas, [0.002, 0.998])
    grid = np.linspace(min(low, x.min()), max(high, x.max()), 200)
    sorted_rows = np.sort(replicas, axis=1)
    below = np.stack([np.searchsorted(row, grid, side="right") for row in sorted_rows]) / replicas.shape[1]
    axis.fill_between(
        grid,
        *np.quantile(below, [0.05, 0.95], axis=0),
        color="0.8",
        linewidth=0,
        label="90 % of the replications",
    )
    own = np.searchsorted(np.sort(x), grid, side="right") / len(x)
    axis.plot(grid, own, color=COLOURS[0], linewidth=1.4, drawstyle="steps-post", label="data")
    axis.set_ylabel("share of rows below", fontsize=7)
    axis.set_ylim(0, 1.02)


def plot_scree(tree: xr.DataTree, prob: float = 0.9, *, ax: Axes | None = None) -> Figure:
    """Plot the share of variance that each latent explains, with its interval, and the shares added up.

    Args:
        tree: a fit of a projection.
        prob: content of the intervals; a point estimate has none.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no latents, or ``prob`` is out of range.
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie between 0 and 1; got {prob}")
    found = projection_tables(tree, Asked(prob, 1, 1)) if "rotation" in model_of(tree).symmetries else {}
    shares = [table for table in found.values() if "cumulative" in table]
    if not shares:
        raise ValueError(
            f"a fit of {tree.attrs.get('model')!r} by {tree.attrs.get('method')!r} has no latents"
        )
    table = shares[0]
    figure, axis = figure_with_axes(1.8 + 0.5 * min(len(table), 20), 3.4, ax)
    place = np.arange(len(table))
    kinds = table["kind"].tolist() if "kind" in table else [""] * len(table)
    order = list(dict.fromkeys(kinds))
    for kind in order:
        own = np.array([k == kind for k in kinds])
        colour = COLOURS[order.index(kind) % len(COLOURS)]
        axis.bar(place[own], table["share"][own], width=0.7, color=colour, alpha=0.8, label=kind or None)
    if table["lb"].notna().any():
        middle = table["share"].to_numpy()
        ends = np.maximum([middle - table["lb"], table["ub"] - middle], 0.0)
        axis.errorbar(place, middle, ends, fmt="none", ecolor="0.2", capsize=2, linewidth=1.0)
    axis.plot(place, table["cumulative"], "o-", color="0.35", ms=3, linewidth=1.0, label="added up")
    axis.set(xlabel="latent", ylabel="share of variance", ylim=(0, 1.04))
    axis.set_xticks(place[:: max(1, len(place) // 15)])
    axis.spines[["top", "right"]].set_visible(False)
    legend_of(figure, axis, ax, "outside upper center", ncols=3)
    return figure
