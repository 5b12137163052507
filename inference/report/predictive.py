"""The section of a report on prediction: the leave-one-out score and posterior predictive checks.

Checks compare statistics of rows, or of documents, observed and replicated. Of a fit whose run failed nothing
here is in favour: its score is withheld, and what its draws reproduce is provisional.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.utils import ELPDData

from inference.convergence.identifiable import draws_of, kind_of, symmetries_of
from inference.diagnostics.comparison import leave_one_out
from inference.diagnostics.model_criticism import check_features
from inference.diagnostics.verdicts import Judgement
from inference.extension import extend
from inference.plots.topics import plot_document_check
from inference.report.page import Paragraph, Picture, Section, Table, one_column
from inference.results.files import model_of
from inference.results.groups import thinned
from inference.topics.document_checks import check_documents

__all__ = ["document_blocks", "predictive_blocks", "predictive_section"]

_MOST_REPLICATIONS, _FEWEST_REPLICATIONS = 500, 50
_OF_AN_ESTIMATE = 200
_MOST_CELLS = 2**26  # of all replications, 512 MiB
_MOST_LINES = 24
_MOST_TOPICS = 20
_SUSPECT = 0.01  # a posterior predictive p-value nearer than this to 0 or 1 is named


_MOST_NAMED = 5  # rows that the score hangs on
_NO_MEAN = 1.0  # Pareto k above which importance weights have no mean


def predictive_section(tree: xr.DataTree, provisional: bool) -> tuple[Section, list[Judgement]]:
    """Return the section on prediction, and those of its judgements that count for the verdict on the fit.

    Args:
        tree: a fit.
        provisional: whether its run failed.
    """
    score, counted = _leave_one_out(tree, provisional)
    checks = predictive_blocks(tree)
    if provisional:
        text = "The run of this fit failed (see Convergence): all of this section is provisional."
        checks = [_withheld(block) if isinstance(block, Judgement) else block for block in checks]
        return Section("Predictive checks", [Paragraph(text), *score, *checks]), []
    counted = [*counted, *(block for block in checks if isinstance(block, Judgement))]
    return Section("Predictive checks", [*checks, *score]), counted


def _withheld(judgement: Judgement) -> Judgement:
    """A judgement in favour of a fit whose run failed speaks neither for nor against it."""
    text = f"Provisional: {judgement.text[:1].lower()}{judgement.text[1:]}"
    return judgement._replace(good=None if judgement.good else judgement.good, text=text)


def _leave_one_out(tree: xr.DataTree, provisional: bool) -> tuple[list, list[Judgement]]:
    """Blocks on the leave-one-out score, and the judgements that count."""
    model, missing = model_of(tree), "No leave-one-out score"
    advice = "judge it by its purpose: predict from its scores (inference.transform), rows held out"
    if not tree.attrs.get("generative", 1):
        reason = f"method {tree.attrs.get('method')!r} is a projection, under which rows have no density"
        return [Judgement(None, missing, reason, advice)], []
    if not model.scores_rows:
        reason = f"{type(model).__name__} is no distribution of rows, which have no density"
        return [Judgement(None, missing, reason, advice)], []
    if provisional and kind_of(tree) != "point":
        reason = "the run failed, so the draws are not yet those that the score needs"
        return [Judgement(None, f"{missing} yet", reason, "mend the run first (see Convergence)")], []
    try:
        score = leave_one_out(tree)
    except ValueError as why_not:
        advice = "score rows that were not fitted: inference.diagnostics.heldout(tree, x)"
        return [Judgement(None, missing, str(why_not), advice)], []
    judgement, counts = _of_score(tree, score)
    numbers = {
        "elpd (nats)": float(score.elpd),
        "standard error": float(score.se),
        "elpd per row": float(score.elpd) / score.n_data_points,
        "effective number of parameters": float(score.p),
        f"rows with Pareto k above {score.good_k:.2f}": int((score.pareto_k > score.good_k).sum()),
        "largest Pareto k": float(score.pareto_k.max()),
    }
    table = one_column("Leave-one-out prediction (PSIS-LOO)", numbers)
    return [judgement, table], [judgement] if counts else []


def _of_score(tree: xr.DataTree, score: ELPDData) -> tuple[Judgement, bool]:
    """Judge the score, and whether that counts for the fit: a Pareto k above 1 names a row that it hangs on."""
    k, rows = np.asarray(score.pareto_k).ravel(), score.n_data_points
    of_q = "; the draws are from q, so this is the score of the approximation"
    of_q = of_q if kind_of(tree) == "variational" else ""
    if not (k > score.good_k).any():
        reason = f"all Pareto k are below {score.good_k:.2f}{of_q}"
        advice = "compare it with other models of the same data: inference.diagnostics.compare"
        return Judgement(True, "The leave-one-out score can be trusted", reason, advice), True
    (dim,) = (name for name in score.pareto_k.dims if name not in ("chain", "draw"))
    noun = f"{dim}{'s' if rows != 1 else ''}".replace("observation", "row")
    labels = score.pareto_k[dim].values if dim in score.pareto_k.coords else np.arange(rows)
    hangs = bool((k > _NO_MEAN).any())
    far = np.flatnonzero(k > (_NO_MEAN if hangs else score.good_k))
    order = far[np.argsort(-k[far], kind="stable")]
    named = ", ".join(str(labels[place]) for place in order[:_MOST_NAMED])
    named += ", ..." if far.size > _MOST_NAMED else ""
    advice = (
        f"look at these {noun}: outliers, or a likelihood with too thin tails; score held-out rows instead"
    )
    if hangs:
        text = f"The fit hangs on {far.size} of {rows} {noun} ({named})"
        reason = f"without one of these the posterior would be another (Pareto k above {_NO_MEAN:g}){of_q}"
        return Judgement(None, text, reason, advice), True
    text = f"The leave-one-out score is doubtful for {far.size} of {rows} {noun} ({named})"
    reason = f"importance sampling is noisy there (Pareto k above {score.good_k:.2f}){of_q}"
    return Judgement(None, text, reason, advice), False


def predictive_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table | Judgement]:
    """Build the blocks on statistics of rows, observed and replicated: a verdict and a table.

    Args:
        tree: a fit.

    Returns:
        Blocks of a section; a sentence where nothing can be drawn from the fit, and nothing where it does not
            hold its data.
    """
    if model_of(tree).topic_site in draws_of(tree):
        return document_blocks(tree)
    if "observed_data" not in tree.children or not tree.attrs.get("generative", 1):
        return []
    observed = {
        str(name): values
        for name, values in tree["observed_data"].data_vars.items()
        if values.ndim == 2 and "observation" in values.dims
    }
    if not observed:
        return [Paragraph("No data were drawn from the fit: its rows are a sparse matrix.")]
    cells = sum(values.size for values in observed.values())
    most = min(_MOST_REPLICATIONS, _MOST_CELLS // cells)
    if most < _FEWEST_REPLICATIONS:
        return [Paragraph(f"No data were drawn from the fit: there are {cells} cells. Fit a part of them.")]
    few = _repeated(tree, min(most, _OF_AN_ESTIMATE)) if kind_of(tree) == "point" else thinned(tree, most)
    try:
        drawn = extend(few, "posterior_predictive")["posterior_predictive"]
    except ValueError as why_not:
        return [Paragraph(f"No data were drawn from the fit: {why_not}.")]
    parts, nouns = [], [_noun(values) for values in observed.values()]
    for name, values in observed.items():
        view = f"{name} " if nouns.count(_noun(values)) > 1 else ""
        parts.append(check_features(values, drawn[name]).rename(index=lambda name, view=view: view + name))
    table = pd.concat(parts)
    num_replications = drawn.sizes["chain"] * drawn.sizes["draw"]
    replications = _replications(tree, f"{num_replications} replications of the data.")
    return [_verdict_on_rows(tree, table), replications, _features(table)]


def _noun(table: xr.DataArray) -> str:
    """Noun for a column of a table, the same for all views of one kind."""
    return str(table.dims[-1]).rstrip("_0123456789")


def _repeated(tree: xr.DataTree, times: int) -> xr.DataTree:
    """Repeat a point estimate as ``times`` equal draws."""
    drawn = draws_of(tree).isel(draw=np.zeros(times, int)).assign_coords(draw=np.arange(times))
    return tree.assign({"posterior": xr.DataTree(drawn)})


def _replications(tree: xr.DataTree, text: str) -> Paragraph:
    if kind_of(tree) == "point":
        text += " The parameters are one estimate: replications vary less than they should."
    return Paragraph(text)


def _suspect(table: pd.DataFrame) -> list[str]:
    """Names of the statistics whose p-value is close to 0 or 1."""
    return list(table.index[(table["p"] - 0.5).abs() > 0.5 - _SUSPECT])


def _good(noun: str, checked: str) -> Judgement:
    text = f"{noun.capitalize()} drawn from the fit look like the {noun}"
    reason = f"{checked} is out of the ordinary (p between {_SUSPECT} and {1 - _SUSPECT})"
    return Judgement(True, text, reason, "check the quantities of your question in the same way")


def _verdict_on_rows(tree: xr.DataTree, table: pd.DataFrame) -> Judgement:
    suspect = _suspect(table)
    if not suspect:
        return _good("data", f"none of {len(table)} means, spreads and extremes")
    text = f"Data drawn from the fit differ from the data in {len(suspect)} of {len(table)} statistics"
    reason = "; ".join(suspect[:8]) + ("; ..." if len(suspect) > 8 else "")
    more = "components" if "labels" in symmetries_of(tree) else "latents"
    advice = f"look at these features in the pictures; another likelihood, or more {more}, may be needed"
    return Judgement(False, text, reason, advice)


def _features(table: pd.DataFrame) -> Table:
    caption = (
        "Posterior predictive check: 90 % interval of each statistic in replicated data; "
        "p is the share of replications that are larger"
    )
    if len(table) <= _MOST_LINES:
        return Table(caption, table)
    distance = (table["p"] - 0.5).abs().sort_values(ascending=False, kind="stable")
    return Table(f"{caption}; the {_MOST_LINES} furthest out", table.loc[distance.index[:_MOST_LINES]])


def document_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table | Judgement]:
    """Build the blocks on the posterior predictive check of documents: a verdict, tables and a picture.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        Blocks of a section; a sentence where the fit lacks the variables of the check.
    """
    try:
        check = check_documents(tree)
    except ValueError as why_not:
        return [Paragraph(f"No documents were drawn from the fit: {why_not}.")]
    table, topics = check.table, check.topics.sort_values("p", kind="stable")
    documents = f"{check.num_draws} replications of documents of the same lengths. {check.note}".strip()
    distinct, *interval = (check.documents[name] for name in ("distinct", "replicated_lb", "replicated_ub"))
    inside = distinct.between(*interval)
    alt = (
        f"Two scatter plots: {inside.mean():.0%} of {len(inside)} documents have as many different words as "
        "replicated ones of their length; documents that hold a word, observed against replicated."
    )
    caption = (
        "Left: a point a document, by its number of different words; the band is the 90 % interval of "
        "replicated ones. Right: a point a word; below the line it is in fewer documents than in "
        "replications, so it comes in bursts."
    )
    mixed = "Topics, observed and replicated: mutual information (nats) of words and documents in a topic"
    mixed += f"; the {_MOST_TOPICS} furthest out" if len(topics) > _MOST_TOPICS else ""
    return [
        _verdict_on_documents(_suspect(table), int((topics["p"] < _SUSPECT).sum()), len(topics)),
        _replications(tree, documents),
        Table("Documents, observed and replicated (90 % interval); p: share of larger replications", table),
        Picture("documents", caption, alt, plot_document_check(check)),
        Table(mixed, topics.head(_MOST_TOPICS)),
    ]


def _verdict_on_documents(suspect: Sequence[str], num_mixed: int, num_topics: int) -> Judgement:
    if not suspect and not num_mixed:
        return _good("documents", f"no statistic of documents and none of {num_topics} topics")
    parts = [*suspect, *([f"{num_mixed} of {num_topics} topics (by chance 1 in 100)"] if num_mixed else [])]
    if num_mixed == num_topics:
        advice = (
            "words come in bursts, as in most texts: topics and shares may serve, but scores of documents "
            "and probabilities of clusters are too sure; leave out words of single documents"
        )
    elif num_mixed:
        advice = "topics with p near 0 mix several: raise num_topics, or num_restarts"
    else:
        advice = "look at the documents and words far from the band and the line in the picture"
    text = "Documents drawn from the fit differ from the documents"
    return Judgement(False, text, ", ".join(parts), advice)
