"""Tables of one fit: its invariants, the number of occupied clusters, and the most probable partitions.

`inference.convergence` computes which quantities a symmetry cannot change and whether chains agree on them.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import (
    draws_of,
    hidden_variables,
    invariants,
    kind_of,
    named_variables,
    scalars,
)
from inference.convergence.partitions import cluster_sizes, why_no_labels
from inference.convergence.r_hat import effective_sample_size, is_constant, psrf_of, why_no_psrf
from inference.convergence.starts import spread_of_starts, starts_table
from inference.extension import extend
from inference.numerics.weighted_rows import row_limit
from inference.results.files import model_of
from inference.results.groups import group_of, group_or_empty, labels_of, left_out_of, responsibilities_of
from inference.symmetry.labels import given_rows
from zoo import late
from zoo.answers import answer_of
from zoo.checks import check_choice, check_whole

_INTERVALS = ("eti", "hdi")
_OF_HELD = "draws: those in which the cluster holds rows; in the others its parameters are of the prior."
_MOST_OF_A_VARIABLE = 12  # rows of the printed table


def summary(
    tree: xr.DataTree,
    var_names: Sequence[str] | None = None,
    *,
    interval: str = "eti",
    probability: float = 0.9,
    method: str = "rank",
) -> pd.DataFrame:
    """Tabulate a fit's invariants: their means, their uncertainty, and whether the chains agree.

    Args:
        tree: a fit.
        var_names: invariants, or variables of the posterior that no symmetry hides; after ``relabel`` (or
            ``identify``) hidden ones too.
        interval: ``"eti"`` (equal tails) or ``"hdi"`` (highest density).
        probability: content of the interval.
        method: PSRF: ``"rank"`` (rank-normalised, split, folded), or ``"identity"`` for the papers'
            Gelman-Rubin.

    Returns:
        One row a scalar: ``mean``, ``sd``, the interval's ends (``eti90_lb``, ``eti90_ub``), and for MCMC
        ``ess_bulk``, ``ess_tail`` and ``r_hat``, which read ``"constant"`` where the quantity never changed;
        no such columns for draws from q, a point estimate or, R-hat, one chain. Parameters of a cluster are
        given that it holds rows: the column ``draws`` counts the draws where it does, if those are not all,
        and such rows have no ESS and R-hat. The attribute ``note`` lists
        the variables left out, with the reason and the remedy, and how the starts of an ascent ended;
        ``summary_text(tree, details=True)`` prints both.

    Raises:
        ValueError: an unknown interval, probability, method or name, or a parameter whose labels or rotation
            are not aligned.
    """
    check_choice("interval", interval, _INTERVALS)
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie between 0 and 1; got {probability}")
    check_choice("method", method, ("rank", "identity", "split", "folded", "z_scale"))
    values, kind = _chosen(_with_log_likelihood(tree), var_names), kind_of(tree)
    lower, upper = (f"{interval}{100 * probability:.3g}_{end}" for end in ("lb", "ub"))
    several_chains = values.sizes["chain"] > 1
    rows = {}
    for name, drawn in scalars(values):
        draws = drawn[~np.isnan(drawn)] if np.isnan(drawn).any() else drawn
        rows[name] = row = {"mean": draws.mean() if draws.size else np.nan}
        if draws.size < drawn.size:
            row["draws"] = draws.size
        if kind != "point":
            row["sd"] = draws.std(ddof=1) if draws.size > 1 else np.nan
            row[lower], row[upper] = _interval(draws, interval, probability)
        if kind == "sampling" and draws.size == drawn.size:
            constant = "constant" if is_constant(draws) else None
            for tail in ("bulk", "tail"):
                row[f"ess_{tail}"] = constant or effective_sample_size(draws, tail)
            if several_chains:
                row["r_hat"] = constant or psrf_of(draws, method)
    honest = _by_starts(tree, rows, (lower, upper)) if kind == "variational" else ""
    table = pd.DataFrame.from_dict(rows, orient="index")
    note = _note(tree, kind, several_chains, [] if var_names else list(hidden_variables(tree)))
    held = _OF_HELD if any("draws" in row for row in rows.values()) else ""
    table.attrs["note"] = " ".join(filter(None, (note, spread_of_starts(tree), honest, held)))
    return table


def _by_starts(tree: xr.DataTree, rows: dict[str, dict], ends: tuple[str, str]) -> str:
    """Take back how sure one q is of the number of clusters where starts differ; return a note.

    One q holds its own optimum only: that its draws agree tells nothing about the number.
    """
    site = model_of(tree).roles.occupied
    if site not in rows or np.isnan(rows[site]["sd"]):
        return ""
    row, starts = rows[site], starts_table(tree)
    found = None if starts is None else starts.get("occupied")
    if found is None and row["sd"] > 0:
        return ""
    low, high = row[ends[0]], row[ends[1]]
    if found is not None and found.min() == found.max() and low <= found.min() <= high:
        return ""
    row |= {"sd": np.nan} | dict.fromkeys(ends, np.nan)
    if found is None:
        return f"{site} is of one start, which has no spread; see other starts (num_restarts=10)."
    span = f"{min(low, found.min()):.0f} to {max(high, found.max()):.0f}"
    return f"{site} has no interval: it is of the best start, and over all starts it is {span}."


def _with_log_likelihood(tree: xr.DataTree) -> xr.DataTree:
    """The fit with its pointwise log likelihood, made now if it was left out for its cost alone."""
    if "log_likelihood" not in left_out_of(tree) or "observed_data" not in tree.children:
        return tree
    posterior, model = group_of(tree, "posterior"), model_of(tree)
    if answer_of(model, "density_passes") > 1:  # it would take longer than the fit
        return tree
    dim = model.roles.scores[0]
    num_rows = tree["observed_data"].sizes.get(dim, np.inf)
    num_bytes = 8 * posterior.sizes["chain"] * posterior.sizes["draw"] * num_rows
    return extend(tree, "log_likelihood") if row_limit(num_bytes, "log_likelihood") else tree


def summary_cells(table: pd.DataFrame, most: int = _MOST_OF_A_VARIABLE) -> pd.DataFrame:
    """Format the cells of the table of ``summary``: ESS in whole numbers, R-hat with three decimals.

    Args:
        table: the result of ``summary``.
        most: rows of one variable that are shown: those with the largest R-hat, or the first ones where there
            is none.

    Returns:
        A table of at most as many rows; its attribute ``not_shown`` lists in a sentence the rows left out.
    """
    worst, which = pd.Series(0.0, table.index), "the first ones"
    if "r_hat" in table:
        worst, which = pd.to_numeric(table["r_hat"], errors="coerce"), "those with the largest R-hat"
    kept, not_shown = shown_of_variables(worst, most, which)
    table = table[kept]
    styles = {"draws": ".0f", "ess_bulk": ".0f", "ess_tail": ".0f", "r_hat": ".3f"}
    columns = {
        name: [_in_print(cell, styles.get(name, ".4g")) for cell in table[name]] for name in table.columns
    }
    cells = pd.DataFrame(columns, index=table.index)
    cells.attrs["not_shown"] = not_shown
    return cells


def shown_of_variables(worst: pd.Series, most: int, which: str) -> tuple[np.ndarray, str]:
    """Which rows of a table are shown, of each variable those with the largest numbers.

    Args:
        worst: a number of each row, by labels such as ``weights[0]``.
        most: rows of one variable.
        which: are shown, in words.

    Returns:
        Whether each row is; and a sentence on those that are not, empty where all are.
    """
    variable = pd.Series([str(name).partition("[")[0] for name in worst.index], index=worst.index)
    rank = worst.groupby(variable).rank(method="first", ascending=False, na_option="bottom")
    left_out = variable[rank > most].value_counts()
    parts = ", ".join(f"{count} more of {name}" for name, count in left_out.items())
    return (rank <= most).to_numpy(), f"Not shown: {parts} (of each, {which} are shown)." if parts else ""


def _in_print(cell: str | float, style: str) -> str:
    """A cell of a printed table; what is not known is a dash."""
    if isinstance(cell, str):
        return cell
    return "-" if np.isnan(cell) else f"{cell:{style}}"


def occupied(tree: xr.DataTree, by_chain: bool = False) -> xr.DataArray:
    """Compute the posterior of the number of occupied clusters.

    Args:
        tree: a fit of a model with components.
        by_chain: return a distribution for each chain (dims chain, num_occupied), to see whether they agree.

    Returns:
        Probabilities (num_occupied,) with the coordinate ``mcse``, their Monte Carlo standard errors (from
        the ESS of the indicator for Markov chains, binomial for independent draws, 0 where the indicator
        never changed). Attributes: ``mean``, ``mode``, and for a variational fit
        ``variational_num_occupied``, the number of components with N_k > 0.5 under q's responsibilities.

    Raises:
        ValueError: the fit has no components to occupy.
    """
    posterior, site = draws_of(tree), model_of(tree).roles.occupied
    drawn, soft = labels_of(tree), responsibilities_of(tree)
    if site in posterior:
        counts = posterior[site].transpose("chain", "draw").values.astype(int)
    elif drawn is not None:
        counts = (cluster_sizes(drawn.values) > 0).sum(-1)
    elif soft is not None:
        counts = np.array([[len(np.unique(soft.values.argmax(1)))]])
    else:
        name = tree.attrs.get("model", "this model")
        raise ValueError(f"a fit of {name!r} has no components to be occupied")
    support = np.arange(counts.min(), counts.max() + 1)
    indicators = (counts[..., None] == support).astype(float)
    coords = {"num_occupied": support}
    if by_chain:
        coords |= {"chain": posterior["chain"].values} if "chain" in posterior.coords else {}
        return xr.DataArray(indicators.mean(1), coords, ("chain", "num_occupied"), "probability")
    probabilities = indicators.mean((0, 1))
    errors = [_standard_error(indicators[..., i], kind_of(tree)) for i in range(len(support))]
    coords["mcse"] = ("num_occupied", np.array(errors))
    attrs = {"mean": float(counts.mean()), "mode": int(support[probabilities.argmax()])}
    if site in group_or_empty(tree, "variational"):
        attrs["variational_num_occupied"] = int(tree["variational"][site])
    return xr.DataArray(probabilities, coords, ("num_occupied",), "probability", attrs)


def _chosen(tree: xr.DataTree, var_names: Sequence[str] | None) -> xr.Dataset:
    if var_names is None:
        return invariants(tree)
    values, hidden = named_variables(tree, var_names, given_rows(tree)), hidden_variables(tree)
    for name in values:
        if name in hidden and _ALIGNED[hidden[name]] not in tree.attrs and kind_of(tree) == "sampling":
            raise ValueError(
                f"{name!r} is not identified: averages over its draws mix {_REASONS[hidden[name]]}. "
                f"{_REMEDIES[hidden[name]]}"
            )
    return values


_ALIGNED = {"labels": "relabelled", "rotation": "rotation_aligned"}  # the attribute that the remedy leaves
_REASONS = {
    "labels": "components, because labels switch between draws",
    "rotation": "axes, because the latent space turns between draws",
}
_REMEDIES = {
    "labels": "Use inference.symmetry.relabel(tree) and summarise the result",
    "rotation": "Use inference.symmetry.identify(tree) and summarise the result",
}


def _note(tree: xr.DataTree, kind: str, several_chains: bool, left_out: list[str]) -> str:
    hidden = hidden_variables(tree)
    sentences = []
    for symmetry in dict.fromkeys(hidden[name] for name in left_out):
        names = ", ".join(name for name in left_out if hidden[name] == symmetry)
        if kind == "sampling" and _ALIGNED[symmetry] not in tree.attrs:
            sentences.append(
                f"Not shown: {names}. Averages over their draws would mix {_REASONS[symmetry]}; the rows "
                f"above do not depend on that. {_REMEDIES[symmetry]} (summary(tree, var_names=[...]))"
            )
        else:
            what = "the numbers of components" if symmetry == "labels" else "the axes of the latents"
            sentences.append(
                f"Not shown because {what} are arbitrary: {names}. Show them with "
                "summary(tree, var_names=[...])"
            )
    if kind != "sampling":
        sentences.append(f"No R-hat or ESS: {why_no_psrf(tree)}")
    elif not several_chains:
        sentences.append("No R-hat: a single chain cannot be compared with another; fit with num_chains=4")
    return ". ".join(sentences) + ("." if sentences else "")


def _interval(draws: np.ndarray, interval: str, probability: float) -> tuple[float, float]:
    if not draws.size:
        return np.nan, np.nan
    if is_constant(draws):
        return float(draws.flat[0]), float(draws.flat[0])
    function = late.array_stats.eti if interval == "eti" else late.array_stats.hdi
    low, high = function(draws.ravel(), prob=probability, axis=-1)
    return float(low), float(high)


def top_partitions(tree: xr.DataTree, count: int = 10) -> pd.DataFrame:
    """List the most probable partitions of the rows into clusters, whatever the labels of the clusters.

    With many rows every draw is another partition, which shows in small probabilities; then
    `co_clustering` and `point_partition` are more informative.

    Args:
        tree: a fit with ``assignments`` in its draws.
        count: how many partitions.

    Returns:
        One row a partition, most probable first: ``probability`` (share of the draws), ``mcse`` (its Monte
        Carlo standard error over the chains; for independent draws of q the binomial one), ``num_clusters``,
        ``sizes`` (descending) and ``labels`` (of the rows in their order, numbered by first appearance).

    Raises:
        ValueError: no assignments in the draws, or ``count`` below 1.
    """
    check_whole("count", count)
    drawn_labels = labels_of(tree)
    if drawn_labels is None:
        raise ValueError(why_no_labels(tree))
    labels = drawn_labels.to_numpy()
    chains, number, num_rows = labels.shape
    flat = _by_first_appearance(labels.reshape(-1, num_rows))
    kinds, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(chains, number)
    rows = []
    for place in np.argsort(-counts, kind="stable")[:count]:
        drawn = (which == place).astype(float)
        sizes = np.sort(np.bincount(kinds[place]))[::-1].tolist()
        error = _standard_error(drawn, kind_of(tree))
        rows.append((drawn.mean(), error, len(sizes), tuple(sizes), tuple(kinds[place].tolist())))
    columns = ["probability", "mcse", "num_clusters", "sizes", "labels"]
    return pd.DataFrame(rows, pd.RangeIndex(1, len(rows) + 1, name="rank"), columns)


def _standard_error(drawn: np.ndarray, kind: str) -> float:
    """Monte Carlo standard error of a probability from its indicators, dims (chain, draw)."""
    if kind == "sampling" and 0 < drawn.mean() < 1 and drawn.shape[1] > 3:
        with warnings.catch_warnings():  # a partition that some chain never visits
            warnings.simplefilter("ignore", RuntimeWarning)
            return float(late.array_stats.mcse(drawn, chain_axis=0, draw_axis=1, method="mean"))
    share = drawn.mean()
    return float(np.sqrt(share * (1 - share) / drawn.size))


def _by_first_appearance(labels: np.ndarray) -> np.ndarray:
    """Labels of every draw numbered 0, 1, ... in the order in which its clusters first appear."""
    num_draws, num_rows = labels.shape
    new = np.zeros_like(labels, dtype=np.int32)
    place = np.full((num_draws, int(labels.max()) + 1), -1, dtype=np.int32)
    used = np.zeros(num_draws, dtype=np.int32)
    every = np.arange(num_draws)
    for i in range(num_rows):
        label = place[every, labels[:, i]]
        unseen = label < 0
        label = np.where(unseen, used, label)
        place[every, labels[:, i]] = label
        used += unseen
        new[:, i] = label
    return new
