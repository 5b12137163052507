"""The page that compares several fits of the same data: predictive scores, and agreement of the methods.

Nothing is ranked over a fit that has not converged, and fits of one model are never ranked: what they
differ in is the approximation. Of several fits of one model the first sampler speaks for the model.
"""

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
    told_by_their_own_latents,
)
from inference.diagnostics.summaries import shown_of_variables
from inference.fitting.verdict import Judgement, convergence_judgements, gravest, is_provisional
from inference.plots.comparison import plot_agreement, plot_scores
from inference.prediction import log_density
from inference.report.page import (
    Front,
    Paragraph,
    Picture,
    Section,
    ShownTable,
    check_page_path,
    one_column,
    write_page,
)
from inference.report.run import data_in_words, file_of, heading_of, run_facts, title_of
from inference.results.groups import group_or_empty
from zoo.checks import listed

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
    own = {name: convergence_judgements(tree) for name, tree in trees.items()}
    unfinished = [name for name, judged in own.items() if _failed(trees[name], judged)]
    predicted, ranking = _predicted(trees, unfinished, held_out)
    agreed, pairs = _agreed(trees, unfinished)
    fitted = _fitted(trees, own, unfinished)
    front = _front(trees, _verdict(trees, unfinished, ranking, pairs), unfinished)
    sections = [predicted, agreed, fitted] if len(_posteriors(trees)) > 1 else [agreed, predicted, fitted]
    sections += [_one(name, tree, own[name]) for name, tree in trees.items()]
    return write_page(front, sections, path)


def _failed(tree: xr.DataTree, own: Sequence[Judgement]) -> bool:
    """Whether nothing may be built on a fit: its run failed, or it is recorded as not converged."""
    return is_provisional(own) or not int(tree.attrs.get("converged", 1))


def _verdict(
    trees: Mapping[str, xr.DataTree],
    unfinished: Sequence[str],
    ranking: Judgement | None,
    pairs: Sequence[Judgement],
) -> Judgement:
    """The one verdict on several fits: none while one has not converged, else how they predict, or agree."""
    if unfinished:
        text = (
            f"No verdict yet: {listed(unfinished)} {'has' if len(unfinished) == 1 else 'have'} not converged"
        )
        reason = (
            "scores and differences of a fit that has not converged are those of its run, not of its model"
        )
        return Judgement(
            None, text, reason, f"run {listed(unfinished)} longer, or repair the run, then compare"
        )
    far = [pair.text for pair in pairs if pair.good is False]
    if len(_posteriors(trees)) == 1:
        if not pairs:
            return Judgement(None, "Same model: there is nothing to agree on", "", "compare how they predict")
        worst = gravest(pairs)
        text = f"Same model, so differences are of the methods: {worst.text}"
        return worst._replace(text=text)
    if ranking is None:
        return Judgement(None, "Different models without a common score", "", "score rows: --heldout FILE")
    also = "".join(f"; also: {text}" for text in far)
    return ranking._replace(reason=ranking.reason + also)


def _front(trees: Mapping[str, xr.DataTree], verdict: Judgement, unfinished: Sequence[str]) -> Front:
    first = next(iter(trees.values()))
    same = len(_posteriors(trees)) == 1
    models = f"{title_of(first)}, the same for all" if same else f"{len(_posteriors(trees))} different models"
    dates = sorted({run_facts(tree).get("date", "not recorded") for tree in trees.values()})
    facts = {
        "Data": data_in_words(first),
        "Converged": ", ".join(f"{name}: {'NO' if name in unfinished else 'yes'}" for name in trees),
        "Fits": ", ".join(f"{name}: {heading_of(tree)}" for name, tree in trees.items()),
        "Models": models,
        "Date": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "Files": ", ".join(dict.fromkeys(map(file_of, trees.values()))),
    }
    return Front(f"{len(trees)} fits compared: {', '.join(trees)}", verdict, facts)


def _fitted(
    trees: Mapping[str, xr.DataTree], own: Mapping[str, Sequence[Judgement]], unfinished: Sequence[str]
) -> Section:
    rows, unchecked = {}, [name for name, tree in trees.items() if "observed_data" not in tree.children]
    for name, tree in trees.items():
        facts = run_facts(tree)
        rows[name] = {"converged": "NO" if name in unfinished else "yes", "model": title_of(tree)}
        rows[name] |= {key: facts.get(key, "-") for key in ("method", "draws", "seed", "time")}
        rows[name]["verdict"] = gravest(own[name]).text
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit")
    blocks: list = [ShownTable("The fits", frame, ("converged",))]
    if unchecked:
        reason = f"the data were left out of {', '.join(unchecked)} for their size"
        advice = "check it yourself, or fit with keep=('observed_data',)"
        text = "Not verified: that all fits are of the same data"
        blocks.append(Judgement(False, text, reason, advice))
    else:
        blocks.append(Paragraph("All are of the same data, cell by cell."))
    if len(fields := _fields_that_differ(trees)):
        blocks.append(ShownTable("Assumptions that differ", fields))
    return Section("Fits", blocks)


def _fields_that_differ(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Tabulate the fields whose values differ: a row for each field, a column for each fit."""
    fields = {name: json.loads(tree.attrs.get("model_fields", "{}")) for name, tree in trees.items()}
    for name, tree in trees.items():
        fields[name] |= {key: value.values for key, value in group_or_empty(tree, "constant_data").items()}
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


def _predicted(
    trees: Mapping[str, xr.DataTree], unfinished: Sequence[str], held_out: Sequence[Any]
) -> tuple[Section, Judgement | None]:
    """The section on prediction, and the ranking that counts: of rows held out, else by leave-one-out."""
    blocks: list = []
    if len({str(tree.attrs["model"]) for tree in trees.values()}) > 1:
        blocks.append(Paragraph(_UNITS))
    if held_out:
        found, ranking = _held_out(trees, unfinished, held_out)
        more, other = _leave_one_out(trees, unfinished)
        return Section("Prediction", [*blocks, *found, *more]), ranking or other
    found, ranking = _leave_one_out(trees, unfinished)
    text = "No rows were held out: --heldout FILE scores the fits on such rows too."
    return Section("Prediction", [*blocks, *found, Paragraph(text)]), ranking


def _leave_one_out(
    trees: Mapping[str, xr.DataTree], unfinished: Sequence[str]
) -> tuple[list, Judgement | None]:
    refused = {name: "it has not converged" for name in unfinished}
    scored = {}
    for name in trees:
        if name not in unfinished:
            try:
                scored[name] = leave_one_out(trees[name])
            except ValueError as why_not:
                refused[name] = str(why_not)
    blocks, ranking = _scores({name: trees[name] for name in scored}, scored, bool(unfinished))
    if refused:
        blocks.append(one_column("Fits without a leave-one-out score", refused, "why"))
    return blocks, ranking


def _scores(
    trees: Mapping[str, xr.DataTree], scores: Mapping[str, ELPDData], partial: bool
) -> tuple[list, Judgement | None]:
    """Scores of fits that have converged; models are ranked, and fits of one model are not."""
    advice = "score rows that were held out: --heldout FILE"
    if len(scores) < 2:
        reason = "it takes two converged fits with a posterior and its pointwise log likelihood"
        ranking = Judgement(None, "No ranking by leave-one-out", reason, advice)
        return [ranking], ranking
    try:
        table = compare(trees, scores=scores)
    except ValueError as why_not:
        ranking = Judgement(None, "No ranking by leave-one-out", str(why_not), advice)
        return [ranking], ranking
    evidence = [name for name in table if name.startswith("log_evidence")]
    shown = table[["elpd", "se", "p", "pareto_k_bad", "pareto_k_max", *evidence]].rename_axis("fit")
    caption = "Leave-one-out (PSIS-LOO), nats over all rows"
    best_of_each = [group[0] for group in _posteriors(trees)]
    if len(best_of_each) < 2:
        text = "Same model: a difference in score is of the approximation, so there is no ranking"
        reason = "fits of one model estimate one score; a q that is too narrow scores higher by construction"
        advice = "use the sampler's score, if there is one"
        return [Judgement(None, text, reason, advice), ShownTable(caption, shown)], None
    if reason := told_by_their_own_latents(trees, scores):
        ranking = Judgement(None, "No ranking by leave-one-out", reason, advice)
        return [ranking, *_told_by_evidence(table.attrs["evidence"]), ShownTable(caption, shown)], ranking
    shown.insert(0, "below best", table["elpd"].max() - table["elpd"])
    shown.insert(1, "dse", table["dse"])
    shown["weight"] = [f"{weight:.3f}" for weight in table["weight"]]
    ranking = _ranking(table.loc[[name for name in table.index if name in best_of_each]], trees, scores)
    if partial:
        text = f"Among the fits that have converged, {ranking.text}"
        ranking = ranking._replace(good=None, text=text)
    places = "; ".join(
        f"{name} {value:.2f} nats below the best" for name, value in shown["below best"].items() if value
    )
    alt = f"Points: {table.index[0]} has the highest score; {places or 'no other differs'}."
    picture = "Leave-one-out scores below the best one, with the standard error of the difference."
    caption += "; dse: standard error of the difference from the best"
    blocks = [
        ranking,
        *_told_by_evidence(table.attrs["evidence"]),
        ShownTable(caption, shown, ("below best", "dse")),
        Picture("scores", picture, alt, plot_scores(table)),
    ]
    return blocks, ranking


def _told_by_evidence(words: str) -> list[Judgement]:
    """What the log evidence says of the models, with its errors."""
    if not words:
        return []
    reason = "log evidence in nats, of each prior as much as of the data"
    return [Judgement(None, words, reason, "beware of priors that were read off these data: they favour it")]


def _ranking(
    table: pd.DataFrame, trees: Mapping[str, xr.DataTree], scores: Mapping[str, ELPDData]
) -> Judgement:
    """Judge which of several models predicts best, by the first fit of each."""
    best, second = table.index[:2]
    gaps = np.asarray(scores[best].elpd_i).ravel() - np.asarray(scores[second].elpd_i).ravel()
    gap, error = float(gaps.sum()), float(table["dse"].iloc[1])
    clear = gap > 2 * error
    text = f"{best} predicts best" if clear else f"{best} and {second} cannot be told apart"
    reason = f"elpd {gap:.2f} nats above {second}, standard error of the difference {error:.2f}"
    bad = int(table["pareto_k_bad"].sum())
    if bad:
        reason += f"; {bad} Pareto k are too high for a score to be trusted"
    of_q = [name for name in (best, second) if kind_of(trees[name]) == "variational"]
    if of_q:
        reason += f"; the score of {listed(of_q)} is that of an approximation"
    advice = "score rows that were held out" if bad else "look at the rows that decide it (compare, elpd_i)"
    return Judgement(None if bad or not clear else True, text, reason, advice)


def _held_out(
    trees: Mapping[str, xr.DataTree], unfinished: Sequence[str], data: Sequence[Any]
) -> tuple[list, Judgement | None]:
    scores, refused = {}, {}
    for name, tree in trees.items():
        try:
            scores[name] = log_density(tree, *data).values
        except (ValueError, TypeError) as why_not:
            refused[name] = str(why_not)
    blocks, ranking = [], None
    if scores:
        best = max(scores, key=lambda name: scores[name].mean())
        rows = {
            name: {
                "below best": float(np.mean(scores[best] - values)),
                "its error": standard_error(scores[best] - values),
                "converged": "NO" if name in unfinished else "yes",
                "nats per row": values.mean(),
                "standard error": standard_error(values),
            }
            for name, values in scores.items()
        }
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit").sort_values("below best")
        late = [name for name in scores if name in unfinished]
        ranking = _best_on_new_rows(frame, late, scores[best].size)
        if late:  # differences from the best would rank it
            frame = frame.loc[list(scores), ["nats per row", "converged", "standard error"]]
        decisive = ("nats per row" if late else "below best", "converged")
        blocks = [ranking, ShownTable("Rows held out", frame, decisive)]
    if refused:
        blocks.append(one_column("Fits that do not score these rows", refused, "why"))
    return blocks, ranking


def _best_on_new_rows(frame: pd.DataFrame, late: Sequence[str], num_rows: int) -> Judgement:
    """Judge which fit predicts rows held out best; none while one of them (``late``) has not converged."""
    best, *others = frame.index
    if late:
        reason = f"{listed(late)} may score otherwise once it has converged"
        text = f"No ranking by held-out rows: {listed(late)} not converged"
        return Judgement(None, text, reason, "finish the runs first")
    clear = all(frame.loc[name, "below best"] > 2 * frame.loc[name, "its error"] for name in others)
    text = f"{best} predicts the held-out rows best" + ("" if clear else ", but not clearly")
    reason = f"over {num_rows} rows; differences are taken row by row"
    advice = "repeat this with other rows held out"
    return Judgement(True if clear else None, text, reason, advice)


def _agreed(trees: Mapping[str, xr.DataTree], unfinished: Sequence[str]) -> tuple[Section, list[Judgement]]:
    """The section on agreement, and the judgement of each pair of fits of one posterior."""
    table = agreement(trees)
    if table.empty:
        reason = "the models have no invariant in common"
        advice = "compare how they predict"
        return Section("Agreement", [Judgement(None, "There is nothing to agree on", reason, advice)]), []
    groups = _posteriors(trees)
    same = [(group[0], other) for group in groups for other in group[1:]]
    pairs = [_pair_verdict(table, pair, trees, unfinished) for pair in same]
    blocks: list = list(pairs)
    if len(groups) > 1:
        listed = "; ".join(", ".join(group) for group in groups)
        text = (
            f"The assumptions, and so the posteriors, are of {len(groups)} kinds: {listed}. Invariants of "
            "different kinds are shown side by side but need not agree."
        )
        blocks.append(Paragraph(text))
    blocks += _side_by_side(table, [pair for pair in same if not set(pair) & set(unfinished)])
    if any(kind_of(tree) != "point" for tree in trees.values()):
        try:
            figure = plot_agreement(table)
        except ValueError as why_not:
            return Section("Agreement", [*blocks, Paragraph(f"No picture: {why_not}.")]), pairs
        caption = (
            "Invariants under each fit, in posterior standard deviations from the first that has draws. "
            "Thick: two Monte Carlo standard errors; thin: one posterior standard deviation."
        )
        alt = f"{len(table)} shared invariants under {len(trees)} fits; the table above holds the numbers."
        blocks.append(Picture("agreement", caption, alt, figure))
    return Section("Agreement", blocks), pairs


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


def _pair_verdict(
    table: pd.DataFrame, pair: tuple[str, str], trees: Mapping[str, xr.DataTree], unfinished: Sequence[str]
) -> Judgement:
    gaps = differences(table, *pair)
    samplers = [name for name in pair if kind_of(trees[name]) == "sampling"]
    late = [name for name in pair if name in unfinished]
    one, other = pair
    if late:
        reason = (
            f"{listed(late)} not converged: until then neither its means nor their errors measure anything"
        )
        text = f"{one} and {other} cannot be compared yet"
        return Judgement(None, text, reason, f"run {listed(late)} longer first")
    if len(samplers) == 2:
        return _by_monte_carlo_error(gaps["standard_errors"].abs().dropna(), pair)
    apart = gaps["posterior_sds"].abs().replace(np.inf, np.nan).dropna()
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
    if near:
        advice = "spreads may still be too small: compare the sd of the quantities you need"
    else:
        advice = f"build on {samplers[0]}" if samplers else "run a sampler to see which is nearer"
    return Judgement(None if near else False, text, reason, advice)


def _by_monte_carlo_error(apart: pd.Series, pair: tuple[str, str]) -> Judgement:
    """Judge whether two samplers of one posterior agree: ``apart`` is in combined standard errors."""
    one, other = pair
    good = bool((apart < _STANDARD_ERRORS).all())
    reason = (
        f"over {len(apart)} invariants the largest difference is {apart.max():.1f} combined Monte Carlo "
        f"standard errors ({apart.idxmax()}); {_STANDARD_ERRORS:g} allowed, by chance 6 times in 100 000"
    )
    advice = "one of them is wrong or stuck: run both longer from other seeds"
    if good:
        advice = "build on either; prefer the one with more effective draws"
    return Judgement(good, f"{one} and {other} {'agree' if good else 'DISAGREE'}", reason, advice)


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
    kept, not_shown = shown_of_variables(far, _MOST_OF_A_VARIABLE, "those furthest apart")
    caption = "Invariants: mean ± Monte Carlo standard error under each fit"
    if same:
        caption += (
            "; the largest difference of two fits of one posterior, in combined standard errors (SE) and in "
            "posterior standard deviations (sd)"
        )
    note = [Paragraph(not_shown)] if not_shown else []
    return [ShownTable(caption, cells[kept], ("apart (SE)", "apart (sd)")), *note]


def _mean_and_error(mean: float, error: float) -> str:
    if np.isnan(mean):
        return "-"
    return f"{mean:.4g}" if np.isnan(error) or error == 0 else f"{mean:.4g} ± {error:.2g}"


def _one(name: str, tree: xr.DataTree, own: Sequence[Judgement]) -> Section:
    """Return the section on one fit: its judgements and its run."""
    return Section(f"Fit {name}", [*own, one_column(f"The run of {name}", run_facts(tree))])
