"""The page that compares several fits of the same data: predictive scores, and agreement of the methods."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.utils import ELPDData

from inference.convergence.identifiable import kind_of
from inference.diagnostics.comparison import (
    agreement,
    check_fits,
    compare,
    differences,
    leave_one_out,
    same_posterior,
    standard_error,
)
from inference.plots.comparison import plot_agreement, plot_scores
from inference.prediction import log_density
from inference.report.page import (
    Judgement,
    Paragraph,
    Picture,
    Section,
    Table,
    check_page_path,
    one_column,
    write_page,
)
from inference.report.results import believed
from inference.report.run import run_facts, title_of

__all__ = ["report_comparison"]

_STANDARD_ERRORS = 4.0
_POSTERIOR_SDS = 1.0
_MOST_OF_A_VARIABLE = 8
_UNITS = (
    "Scores compare models whose cells are of one kind: a density of numbers and a probability of counts are "
    "in different units, and a better number there means nothing."
)


def report_comparison(
    trees: Mapping[str, xr.DataTree], path: str | os.PathLike, held_out: Sequence[Any] = ()
) -> Path:
    """Write one page on several fits of the same data; models and methods may differ.

    Args:
        trees: name to fit, at least two.
        path: where to write; the ending decides the form, as for `inference.report.report`.
        held_out: rows that were not fitted, the sites in the models' order, to score by every fit.

    Returns:
        The path written.

    Raises:
        TypeError: ``trees`` is not a mapping of fits.
        ValueError: fewer than two fits, fits of other data, or another ending.
        OSError: the folder does not exist or cannot be written to; found out before any work.
    """
    path = Path(path)
    check_page_path(path)
    check_fits(trees, without_data=True)
    sections = [_fitted(trees), _predicted(trees, held_out), _agreed(trees)]
    sections += [_one(name, tree) for name, tree in trees.items()]
    return write_page(f"{len(trees)} fits compared: {', '.join(trees)}", sections, path)


def _fitted(trees: Mapping[str, xr.DataTree]) -> Section:
    rows, unchecked = {}, [name for name, tree in trees.items() if "observed_data" not in tree.children]
    for name, tree in trees.items():
        facts = run_facts(tree)
        rows[name] = {"model": title_of(tree)}
        rows[name] |= {key: facts.get(key, "-") for key in ("method", "draws", "seed")}
        rows[name]["seconds"] = facts.get("time", "-").removesuffix(" s")
        rows[name]["converged"] = "yes" if int(tree.attrs.get("converged", 0)) else "NO"
    blocks = [Table("The fits", pd.DataFrame.from_dict(rows, orient="index"))]
    data = run_facts(next(iter(trees.values()))).get("data", "")
    if unchecked:
        reason = f"the data were left out of {', '.join(unchecked)} for their size"
        advice = "check it yourself, or fit with keep=('observed_data',)"
        text = "It is not checked that all fits are of the same data"
        blocks.append(Judgement(False, text, reason, advice))
    else:
        blocks.append(Paragraph(f"All are of the same data, cell by cell{f': {data}' if data else ''}."))
    if len(fields := _fields_that_differ(trees)):
        blocks.append(Table("Assumptions that differ", fields))
    return Section("Fitted", blocks)


def _fields_that_differ(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Tabulate the fields whose values differ: a row for each field, a column for each fit."""
    fields = {name: json.loads(tree.attrs.get("model_fields", "{}")) for name, tree in trees.items()}
    for name, tree in trees.items():
        arrays = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
        fields[name] |= {key: value.values for key, value in arrays.items()}
    rows = {}
    for key in dict.fromkeys(key for held in fields.values() for key in held):
        values = [held.get(key) for held in fields.values()]
        if not all(_equal(value, values[0]) for value in values):
            rows[key] = dict(zip(trees, map(_written, values), strict=True))
    return pd.DataFrame.from_dict(rows, orient="index")


def _equal(one: object, other: object) -> bool:
    arrays = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    return np.array_equal(one, other) if arrays else one == other


def _written(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, np.ndarray) and value.size > 4:
        return f"{value.shape}, mean {value.mean():.4g}"
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, separator=", ").replace("\n", "")
    if isinstance(value, dict) and "type" in value:
        return str(value["type"])
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _predicted(trees: Mapping[str, xr.DataTree], held_out: Sequence[Any]) -> Section:
    blocks: list = []
    if len({str(tree.attrs["model"]) for tree in trees.values()}) > 1:
        blocks.append(Paragraph(_UNITS))
    blocks += _leave_one_out(trees)
    if held_out:
        blocks += _held_out(trees, held_out)
    else:
        blocks.append(Paragraph("No rows were held out: --heldout FILE scores the fits on such rows too."))
    return Section("Predicted", blocks)


def _leave_one_out(trees: Mapping[str, xr.DataTree]) -> list:
    refused, scored = {}, {}
    for name, tree in trees.items():
        try:
            scored[name] = leave_one_out(tree)
        except ValueError as why_not:
            refused[name] = str(why_not)
    try:
        if len(scored) < 2:
            raise ValueError("it takes two fits with a posterior and its pointwise log likelihood")
        blocks = _ranking({name: trees[name] for name in scored}, scored)
    except ValueError as why_not:
        advice = "score rows that were held out: --heldout FILE"
        blocks = [Judgement(None, "No ranking by leave-one-out", str(why_not), advice)]
    if refused:
        blocks.append(one_column("Fits without a leave-one-out score", refused, "why"))
    return blocks


def _ranking(trees: Mapping[str, xr.DataTree], scores: Mapping[str, ELPDData]) -> list:
    table = compare(trees, scores=scores)
    best, second = table.index[:2]
    gap, error = float(table["elpd"].iloc[0] - table["elpd"].iloc[1]), float(table["dse"].iloc[1])
    clear = gap > 2 * error
    text = f"{best} predicts best" if clear else f"{best} and {second} cannot be told apart"
    reason = f"elpd {gap:.2f} nats above {second}, standard error of the difference {error:.2f}"
    bad = int(table["pareto_k_bad"].sum())
    reason += f"; {table.attrs['note']}"
    advice = "score rows that were held out" if bad else "look at the rows that decide it (compare, elpd_i)"
    shown = table[["elpd", "se", "dse", "p", "weight", "pareto_k_bad", "pareto_k_max"]].copy()
    shown["weight"] = [f"{weight:.3f}" for weight in shown["weight"]]
    shown.insert(2, "below best", table["elpd"].max() - table["elpd"])
    alt = "; ".join(
        f"{name} {value:.2f} nats below the best" for name, value in shown["below best"].items() if value
    )
    caption = "Leave-one-out scores below the best one, with the standard error of the difference."
    alt = f"Points: {best} is best; {alt or 'no other differs'}."
    return [
        Judgement(None if bad else clear, text, reason, advice),
        Table("Leave-one-out (PSIS-LOO), nats over all rows; dse: standard error of the difference", shown),
        Picture("scores", caption, alt, plot_scores(table)),
    ]


def _held_out(trees: Mapping[str, xr.DataTree], data: Sequence[Any]) -> list:
    scores, refused = {}, {}
    for name, tree in trees.items():
        try:
            scores[name] = log_density(tree, *data).values
        except (ValueError, TypeError) as why_not:
            refused[name] = str(why_not)
    blocks: list = []
    if scores:
        best = max(scores, key=lambda name: scores[name].mean())
        rows = {
            name: {
                "nats per row": values.mean(),
                "standard error": standard_error(values),
                "below best": float(np.mean(scores[best] - values)),
                "its error": standard_error(scores[best] - values),
            }
            for name, values in scores.items()
        }
        frame = pd.DataFrame.from_dict(rows, orient="index").sort_values("below best")
        others = [name for name in frame.index if name != best]
        clear = all(frame.loc[name, "below best"] > 2 * frame.loc[name, "its error"] for name in others)
        text = f"{best} predicts the rows held out best" + ("" if clear else ", but not clearly")
        reason = f"over {scores[best].size} rows; differences are taken row by row"
        advice = "hold other rows out and see whether it stays so"
        blocks = [Judgement(None, text, reason, advice), Table("Rows held out", frame)]
    if refused:
        blocks.append(one_column("Fits that do not score these rows", refused, "why"))
    return blocks


def _agreed(trees: Mapping[str, xr.DataTree]) -> Section:
    table = agreement(trees)
    if table.empty:
        reason = "the models have no invariant in common"
        advice = "compare how they predict"
        return Section("Agreement", [Judgement(None, "There is nothing to agree on", reason, advice)])
    groups = _posteriors(trees)
    same = [(group[0], other) for group in groups for other in group[1:]]
    blocks: list = [_pair_verdict(table, pair, trees) for pair in same]
    if len(groups) > 1:
        listed = "; ".join(", ".join(group) for group in groups)
        text = (
            f"The assumptions, and so the posteriors, are of {len(groups)} kinds: {listed}. Invariants of "
            "different kinds are shown side by side but need not agree."
        )
        blocks.append(Paragraph(text))
    blocks += _side_by_side(table, same)
    if any(kind_of(tree) != "point" for tree in trees.values()):
        try:
            figure = plot_agreement(table)
        except ValueError as why_not:
            return Section("Agreement", [*blocks, Paragraph(f"No picture: {why_not}.")])
        caption = (
            "Invariants under each fit, in posterior standard deviations from the first that has draws. "
            "Thick: two Monte Carlo standard errors; thin: one posterior standard deviation."
        )
        alt = f"{len(table)} shared invariants under {len(trees)} fits; the table above holds the numbers."
        blocks.append(Picture("agreement", caption, alt, figure))
    return Section("Agreement", blocks)


def _posteriors(trees: Mapping[str, xr.DataTree]) -> list[list[str]]:
    """Group fits by posterior; the first of each group is the reference for the others.

    That is a sampler if there is one, rather one that has converged.
    """
    groups: list[list[str]] = []
    for name, tree in trees.items():
        home = next((group for group in groups if same_posterior(trees[group[0]], tree)), [])
        groups += [] if home else [home]
        home.append(name)

    def trust(name: str) -> tuple[int, int]:
        kind = ("sampling", "variational", "point").index(kind_of(trees[name]))
        return kind, 1 - int(trees[name].attrs.get("converged", 0))

    return [sorted(group, key=trust) for group in groups]


def _pair_verdict(table: pd.DataFrame, pair: tuple[str, str], trees: Mapping[str, xr.DataTree]) -> Judgement:
    gaps = differences(table, *pair)
    samplers = [name for name in pair if kind_of(trees[name]) == "sampling"]
    unfinished = [name for name in samplers if not int(trees[name].attrs.get("converged", 0))]
    if len(samplers) == 2:
        return _by_monte_carlo_error(gaps["standard_errors"].abs().dropna(), pair, unfinished)
    apart = gaps["posterior_sds"].abs().replace(np.inf, np.nan).dropna()
    one, other = pair
    if apart.empty:
        reason = "neither has draws that vary, so there is no posterior standard deviation to measure by"
        advice = "add a fit by a sampler: its posterior is the unit"
        return Judgement(None, f"{one} and {other}: nothing to measure by", reason, advice)
    near = bool((apart <= _POSTERIOR_SDS).all())
    text = f"{one} and {other} lie {'near each other' if near else 'far apart'}"
    reason = (
        f"means differ by at most {apart.max():.2f} posterior standard deviations ({apart.idxmax()}) over "
        f"{len(apart)} invariants; one of them is no sampler, so a difference is bias, not chance"
    )
    if unfinished:
        advice = f"run {unfinished[0]} longer first: until a sampler has converged it is no measure"
    elif near:
        advice = "spreads may still be too small: compare the sd of the quantities you need"
    else:
        advice = "build on the sampler" if samplers else "run a sampler to see which is nearer"
    return Judgement(None if near else False, text, reason, advice)


def _by_monte_carlo_error(apart: pd.Series, pair: tuple[str, str], unfinished: Sequence[str]) -> Judgement:
    """Judge whether two samplers of one posterior agree: ``apart`` is in combined standard errors."""
    one, other = pair
    good = bool((apart < _STANDARD_ERRORS).all())
    reason = (
        f"over {len(apart)} invariants the largest difference is {apart.max():.1f} combined Monte Carlo "
        f"standard errors ({apart.idxmax()}); {_STANDARD_ERRORS:g} allowed, by chance 6 times in 100 000"
    )
    if unfinished:
        longer = " and ".join(unfinished)
        advice = f"run {longer} longer: until a sampler has converged its error is not known"
    elif good:
        advice = "build on either; prefer the one with more effective draws"
    else:
        advice = "one of them is wrong or stuck: run both longer from other seeds"
    text = f"{one} and {other} {'agree' if good else 'DISAGREE'}"
    return Judgement(None if good and unfinished else good, text, reason, advice)


def _side_by_side(table: pd.DataFrame, same: Sequence[tuple[str, str]]) -> list:
    names = list(dict.fromkeys(table.columns.get_level_values(0)))
    cells = pd.DataFrame(
        {name: [_mean_and_error(*row) for row in table[name][["mean", "mcse"]].to_numpy()] for name in names},
        index=table.index,
    )
    far = pd.Series(0.0, index=table.index)
    if same:
        gaps = {pair: differences(table, *pair) for pair in same}
        for column, head in (("standard_errors", "apart (SE)"), ("posterior_sds", "apart (sd)")):
            worst = pd.DataFrame({pair: gap[column].abs() for pair, gap in gaps.items()}).max(axis=1)
            worst = worst.reindex(table.index)
            cells[head] = ["-" if np.isnan(value) else f"{value:.2f}" for value in worst]
            far = worst.fillna(0.0) if column == "posterior_sds" else far
    variable = pd.Series([str(name).partition("[")[0] for name in table.index], index=table.index)
    rank = far.groupby(variable, sort=False).rank(method="first", ascending=False)
    kept = (rank <= _MOST_OF_A_VARIABLE).to_numpy()
    caption = "Invariants: mean ± Monte Carlo standard error under each fit"
    if same:
        caption += (
            "; the largest difference of two fits of one posterior, in combined standard errors (SE) and in "
            "posterior standard deviations (sd)"
        )
    left_out = variable[~kept].value_counts()
    more = ", ".join(f"{count} more of {name}" for name, count in left_out.items())
    note = [Paragraph(f"Not shown: {more} (of each, those furthest apart are shown).")] if more else []
    return [Table(caption, cells[kept]), *note]


def _mean_and_error(mean: float, error: float) -> str:
    if np.isnan(mean):
        return "-"
    return f"{mean:.4g}" if np.isnan(error) or error == 0 else f"{mean:.4g} ± {error:.2g}"


def _one(name: str, tree: xr.DataTree) -> Section:
    """Return the section on one fit: its verdicts and its run."""
    verdicts = [block for block in believed(tree).blocks if isinstance(block, Judgement)]
    return Section(f"File {name}", [*verdicts, one_column(f"The run of {name}", run_facts(tree))])
