"""The sections of a report that judge and show: can it be believed, what was found, how it predicts."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.comparison import leave_one_out
from inference.convergence import judge
from inference.diagnostics import occupied, summary, summary_cells
from inference.identifiable import draws_of, feature_names, kind_of
from inference.mixture_picture import occupied_components
from inference.page import Paragraph, Picture, Section, Table, Verdict
from inference.partitions import point_partition
from inference.plots import plot_co_clustering, plot_mixture, plot_objective, plot_psrf_path
from inference.report_components import local_pca_blocks
from inference.report_predictive import predictive_blocks
from inference.report_projections import projection_blocks, topic_blocks
from inference.results import model_of
from inference.symmetry import relabel
from inference.tree_groups import labels_of, responsibilities_of

__all__ = ["believed", "fits", "found"]

_MOST_ROWS = 5000  # of a point partition: it costs O(N^2)
_MOST_FEATURES = 6
_MOST_COMPONENTS = 8
_SOLVED = "solved directly"
_WHY_STOPPED = {"max_iterations": "it was still rising when max_iterations ended it"}
_VARIED_SEEDS = "fit again with another seed: what changes is not to be believed"


def believed(tree: xr.DataTree) -> Section:
    """Whether the result can be believed, why, and what to do next; the invariants and their path."""
    kind, table = kind_of(tree), summary(tree)
    blocks = []
    if kind == "sampling":
        good, reason = judge(tree)
        reason, _, advice = reason.partition(". Next: ")
        text = (
            "The chains agree: the draws can be believed"
            if good
            else "The chains have NOT converged: do not build on these draws yet"
        )
        blocks.append(Verdict(good, text, reason, advice or _VARIED_SEEDS))
        blocks += _divergences(tree)
    else:
        blocks.append(_ascent_verdict(tree, kind))
    cells = summary_cells(table)
    blocks += [
        Table("Invariants (nothing in this table depends on labels or axes)", cells),
        Paragraph(f"{cells.attrs['not_shown']} {table.attrs['note']}".strip()),
    ]
    if kind == "sampling" and draws_of(tree).sizes["chain"] > 1 and draws_of(tree).sizes["draw"] >= 40:
        alt = f"Line plot of the PSRF against draws per chain. {_extremes(table)}"
        caption = "PSRF of the invariants as draws accumulate: all should come to stay below the dashed line."
        blocks.append(Picture("psrf", caption, alt, plot_psrf_path(tree)))
    elif "trace" in tree.children and tree["trace"].sizes["iteration"] > 1:
        objective = tree["trace"]["objective"].values
        final = objective[np.isfinite(objective)].max()
        counted = (
            " and the number of occupied components" if model_of(tree).occupied_site in tree["trace"] else ""
        )
        caption = f"The objective (higher is better){counted} by iteration."
        blocks.append(
            Picture(
                "objective",
                caption,
                f"Line plot of the objective, whose best value is {final:.2f} nats.",
                plot_objective(tree),
            )
        )
    return Section("Believed", blocks)


def _extremes(table: pd.DataFrame) -> str:
    factors = pd.to_numeric(table["r_hat"], errors="coerce")
    return (
        f"At the end the largest is {factors.max():.3f}, for {factors.idxmax()}."
        if factors.notna().any()
        else "All quantities are constant."
    )


def _divergences(tree: xr.DataTree) -> list[Verdict]:
    if "sample_stats" not in tree.children or "diverging" not in tree["sample_stats"]:
        return []
    count, total = int(tree["sample_stats"]["diverging"].sum()), tree["sample_stats"]["diverging"].size
    if not count:
        return []
    reason = "near a divergence the sampler may have missed a region of high curvature, unseen by the PSRF"
    return [
        Verdict(
            False,
            f"{count} of {total} transitions diverged",
            reason,
            "raise target_accept_prob to 0.95, or compare with another method",
        )
    ]


def _ascent_verdict(tree: xr.DataTree, kind: str) -> Verdict:
    stopped = tree.attrs.get("stop_reason", "no reason recorded")
    if stopped == _SOLVED:
        advice = (
            "score held-out rows; for uncertainty fit by a method that gives a posterior, if there is one"
        )
        reason = "a closed form: the optimum of the objective, one point without uncertainty"
        return Verdict(True, "Solved directly: there is nothing to converge", reason, advice)
    what = "q" if kind == "variational" else "the estimate"
    if not int(tree.attrs.get("converged", 0)):
        return Verdict(
            False,
            f"The objective has NOT come to rest: {what} is not final",
            _WHY_STOPPED.get(stopped, stopped),
            "raise max_iterations, or continue with init=tree",
        )
    reason = f"{stopped}; that says where the ascent stopped, not that no better optimum exists"
    restarts = 1
    if "trace" in tree.children and "restart" in tree["trace"]["objective"].dims:
        finals = tree["trace"]["objective"].max("iteration").values
        restarts = len(finals)
        second = np.sort(finals)[-2]
        reason = (
            f"{stopped}; the best of {restarts} restarts is {finals.max() - second:.2f} nats above the second"
        )
    referee = "gibbs" if "gibbs" in model_of(tree).methods else "nuts"
    advice = (
        "num_restarts=10: the ascent finds the optimum nearest to its start"
        if restarts < 5
        else f"compare with method='{referee}': an approximation is usually too sure of itself"
    )
    return Verdict(True, f"The objective has come to rest: {what} is final for its start", reason, advice)


def found(tree: xr.DataTree) -> Section:
    """What was found: the number of clusters, the components after relabelling, who belongs together."""
    model, blocks = model_of(tree), _provisional(tree)
    symmetries = model.symmetries
    if "rotation" in symmetries and "labels" not in symmetries:
        return Section("Found", [*blocks, *projection_blocks(tree)])
    if "labels" not in symmetries:
        return Section(
            "Found", [Paragraph("The invariants above are what was found: this model has no clusters.")]
        )
    names = draws_of(tree)
    if model.topic_site in names:
        blocks += topic_blocks(tree)
        if model.cluster_site is None:
            return Section("Found", blocks)
    blocks += _occupied(tree)
    if model.gaussian_sites and all(site in names for site in model.gaussian_sites):
        blocks += _components(tree)
    if model.subspace_sites and all(site in names for site in model.subspace_sites):
        blocks += local_pca_blocks(tree)
    labels = labels_of(tree)
    per_row = responsibilities_of(tree) if labels is None else labels
    num_rows = 0 if per_row is None else per_row.sizes.get("observation", 0)  # documents: their own section
    if 0 < num_rows <= _MOST_ROWS and (labels is not None or kind_of(tree) != "sampling"):
        partition = point_partition(tree)
        sizes = np.bincount(partition.values)
        listed = ", ".join(map(str, sizes))
        alt = f"Matrix in blocks: the point partition of {num_rows} rows has clusters of {listed} rows."
        caption = (
            "Posterior probability that two rows share a component, rows ordered by cluster. "
            "Sharp blocks: clusters one can rely on."
        )
        blocks.append(Picture("co-clustering", caption, alt, plot_co_clustering(tree)))
    return Section("Found", blocks)


def _occupied(tree: xr.DataTree) -> list[Table | Verdict]:
    """How many components hold rows."""
    counts = occupied(tree)
    mode = counts.attrs["mode"]
    advice = "compare with the clusters below: how many rows each holds matters more than their number"
    if kind_of(tree) == "point":
        text = f"The estimate has {mode} occupied component{'s' if mode != 1 else ''}"
        return [Verdict(None, text, "each is the most probable one of at least one row", advice)]
    frame = pd.DataFrame(
        {"probability": counts.values, "mcse": counts["mcse"].values}, index=counts["num_occupied"].values
    )
    sure = float(counts.max())
    noun = "component is" if mode == 1 else "components are"
    text = f"{mode} occupied {noun} most probable (probability {sure:.2f})"
    reason = "each occupied component holds at least one row; small ones may come and go between draws"
    if "variational_num_occupied" in counts.attrs:
        reason += f"; q itself holds {counts.attrs['variational_num_occupied']} (expected rows above 0.5)"
    table = Table("Posterior of the number of occupied components", frame)
    return [Verdict(None, text, reason, advice), table]


def _components(tree: xr.DataTree) -> list[Table | Picture | Paragraph]:
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return [
            Paragraph(
                "No table of components: labels are matched by the assignments, which this fit does not hold."
            )
        ]
    aligned = tree if "relabelled" in tree.attrs else relabel(tree)
    components = occupied_components(aligned)
    posterior = draws_of(aligned).isel(component=components.index)
    columns = {"share of rows": components.share}
    names = feature_names(posterior[model_of(tree).gaussian_sites[1]])
    for i, name in enumerate(names[:_MOST_FEATURES]):
        columns[f"{name}: mean"] = components.locs[:, i]
        if kind_of(tree) != "point":
            columns[f"{name}: sd of the mean"] = components.loc_sds[:, i]
        columns[f"{name}: spread"] = np.sqrt(components.covariances[:, i, i])
    caption = (
        "Components with at least 1 % of the rows, relabelled, the largest first; "
        "spread is the standard deviation within a component"
    )
    if len(names) > _MOST_FEATURES:
        caption += f"; the first {_MOST_FEATURES} of {len(names)} features"
    frame = pd.DataFrame(columns, index=[f"component {k}" for k in components.index]).head(_MOST_COMPONENTS).T
    if len(components.index) > _MOST_COMPONENTS:
        caption += f"; the first {_MOST_COMPONENTS} of {len(components.index)} components"
    blocks = [Table(caption, frame)]
    if "relabel_rhat_after" in aligned.attrs:
        before, after = aligned.attrs["relabel_rhat_before"], aligned.attrs["relabel_rhat_after"]
        blocks.append(
            Paragraph(
                f"Largest R-hat of these parameters: {before:.3f} before relabelling, {after:.3f} after."
            )
        )
    if "observed_data" not in tree.children:
        return [*blocks, Paragraph("This fit does not hold its data, so there is no picture of them.")]
    described = "; ".join(
        f"component {k} with {100 * s:.0f} % of the rows"
        for k, s in zip(components.index, components.share, strict=True)
    )
    alt = f"Scatter plot of the rows with an ellipse for each component: {described}."
    caption = "The data, the components and the predictive density."
    blocks.append(Picture("components", caption, alt, plot_mixture(aligned)))
    return blocks


def fits(tree: xr.DataTree) -> Section:
    """How well the fit predicts: leave-one-out, and data drawn from it against the data."""
    return Section("Fits", [*_provisional(tree), *_leave_one_out(tree), *predictive_blocks(tree)])


def _provisional(tree: xr.DataTree) -> list[Paragraph]:
    if int(tree.attrs.get("converged", 1)):
        return []
    return [Paragraph("This fit has not converged (see Believed): all of this section is provisional.")]


def _leave_one_out(tree: xr.DataTree) -> list:
    model = model_of(tree)
    if not tree.attrs.get("generative", 1) or not model.scores_rows:
        reason = (
            f"{type(model).__name__} is no distribution of rows, which have no density"
            if tree.attrs.get("generative", 1)
            else f"method {tree.attrs.get('method')!r} is a projection, which gives rows no density"
        )
        advice = "judge it by what it is for: predict from its scores (inference.transform), rows held out"
        return [Verdict(None, "No leave-one-out score", reason, advice)]
    try:
        score = leave_one_out(tree)
    except ValueError as why_not:
        advice = "score rows that were not fitted: inference.diagnostics.heldout(tree, x)"
        return [Verdict(None, "No leave-one-out score", str(why_not), advice)]
    bad, rows = int((score.pareto_k > score.good_k).sum()), score.n_data_points
    frame = pd.DataFrame(
        {
            "value": {
                "elpd (nats)": float(score.elpd),
                "standard error": float(score.se),
                "elpd per row": float(score.elpd) / rows,
                "effective number of parameters": float(score.p),
                f"rows with Pareto k above {score.good_k:.2f}": bad,
                "largest Pareto k": float(score.pareto_k.max()),
            }
        }
    )
    text = (
        "The leave-one-out score can be trusted"
        if not bad
        else f"The leave-one-out score is doubtful for {bad} of {rows} rows"
    )
    reason = (
        "all Pareto k are below the threshold"
        if not bad
        else "without one of these rows the posterior would change too much for importance sampling"
    )
    advice = (
        "compare it with other models of the same data: inference.diagnostics.compare"
        if not bad
        else "look at these rows; score held-out rows instead"
    )
    if kind_of(tree) == "variational":
        reason += "; the draws are from q, so this is the score of the approximation"
    return [Verdict(not bad, text, reason, advice), Table("Leave-one-out prediction (PSIS-LOO)", frame)]
