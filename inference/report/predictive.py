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
from inference.diagnostics.comparison import leave_one_out, told_by_their_own_latents
from inference.diagnostics.model_criticism import (
    SUSPECT,
    PredictiveCheck,
    check_predictions,
    suspects,
)
from inference.diagnostics.sensitivity import judge_prior, prior_sensitivity
from inference.fitting.verdict import Judgement
from inference.plots.topics import plot_document_check
from inference.report.page import Paragraph, Picture, Section, ShownTable, one_column
from inference.results.files import model_of
from inference.topics.document_checks import check_documents
from zoo.answers import how_to_score_rows
from zoo.checks import first_of

_MOST_LINES = 24
_MOST_TOPICS = 20
_NEXT = "check the quantities of your question in the same way"
_MOST_NAMED = 5  # rows that the score hangs on
_NO_MEAN = 1.0  # Pareto k above which importance weights have no mean


def predictive_section(tree: xr.DataTree, provisional: bool) -> tuple[Section, list[Judgement]]:
    """Return the section on prediction, and those of its judgements that count for that on the model."""
    score, counted = _leave_one_out(tree, provisional)
    checks = predictive_blocks(tree)
    if provisional:
        text = "Nothing can be built on this run yet (see Convergence): all of this section is provisional."
        checks = [_withheld(block) if isinstance(block, Judgement) else block for block in checks]
        return Section("Predictive checks", [Paragraph(text), *score, *checks]), []
    prior = _prior(tree)
    counted = [*(block for block in (*checks, *prior) if isinstance(block, Judgement)), *counted]
    return Section("Predictive checks", [*checks, *score, *prior]), counted


def _prior(tree: xr.DataTree) -> list[Judgement | ShownTable | Paragraph]:
    """Blocks on how far the prior moves the answers of a sampler; a sentence where that cannot be told."""
    if kind_of(tree) != "sampling" or model_of(tree).prior == "improper":
        return []
    try:
        table = prior_sensitivity(tree)
    except ValueError as why_not:
        return [Paragraph(f"Weight of the prior: not known; {why_not}.")]
    good, reason = judge_prior(table)
    shown = table.drop(columns="prior_noise").rename_axis("quantity")
    note = "how far a quantity moves when prior or likelihood are weighted more or less; 0.05: by 0.4 "
    note += "posterior deviations if the prior counted twice, as it may under a right prior and few rows"
    blocks = [ShownTable("Weight of the prior", shown, ("prior", "diagnosis"), note)]
    if good:
        return [Judgement(True, "The prior moves no answer", reason, "report it with the answers"), *blocks]
    advice = "report the prior with them; where it is vague, fit with a wider one and compare"
    return [Judgement(None, "The answers depend on the prior", reason, advice), *blocks]


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
    if not model.answers.has_density:
        reason = f"{type(model).__name__} is no distribution of rows, which have no density"
        return [Judgement(None, missing, reason, advice)], []
    if provisional and kind_of(tree) != "point":
        reason = "the run cannot be trusted, so its draws are not yet those that the score needs"
        return [Judgement(None, f"{missing} yet", reason, "repair the run first (see Convergence)")], []
    try:
        score = leave_one_out(tree)
    except ValueError as why_not:
        return [Judgement(None, missing, str(why_not), how_to_score_rows(model))], []
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
    """Judge the score, and say whether that counts for the fit: it does where it hangs on single rows."""
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
    own_latents = told_by_their_own_latents({"this fit": tree}, {"this fit": score})
    hangs = not own_latents and bool((k > _NO_MEAN).any())
    far = np.flatnonzero(k > (_NO_MEAN if hangs else score.good_k))
    order = far[np.argsort(-k[far], kind="stable")]
    named = first_of(labels[order], _MOST_NAMED)
    if own_latents:
        text = f"The leave-one-out score is doubtful for {far.size} of {rows} {noun} ({named})"
        return Judgement(None, text, own_latents, how_to_score_rows(model_of(tree))), False
    advice = (
        f"look at these {noun}: outliers, or a likelihood with too thin tails; score held-out rows instead"
    )
    if hangs:
        text = f"The fit depends heavily on {far.size} of {rows} {noun} ({named})"
        reason = f"without one of them the posterior would change much (Pareto k above {_NO_MEAN:g}){of_q}"
        return Judgement(None, text, reason, advice), True
    text = f"The leave-one-out score is doubtful for {far.size} of {rows} {noun} ({named})"
    reason = f"importance sampling is noisy there (Pareto k above {score.good_k:.2f}){of_q}"
    return Judgement(None, text, reason, advice), False


def predictive_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | ShownTable | Judgement]:
    """Build the blocks on statistics of rows, observed and replicated: a verdict and a table."""
    if model_of(tree).roles.topic in draws_of(tree):
        return document_blocks(tree)
    if "observed_data" not in tree.children or not tree.attrs.get("generative", 1):
        return []
    try:
        check = check_predictions(tree)
    except ValueError as why_not:
        return [Paragraph(f"No data were drawn from the fit: {why_not}.")]
    replications = _replications(tree, f"{check.num_replications} replications of the data.")
    return [_verdict_on_rows(tree, check), replications, _features(check.table)]


def _replications(tree: xr.DataTree, text: str) -> Paragraph:
    if kind_of(tree) == "point":
        text += " The parameters are one estimate: replications vary less than they should."
    return Paragraph(text)


def _verdict_on_rows(tree: xr.DataTree, check: PredictiveCheck) -> Judgement:
    if check.good is None:
        return Judgement(None, "The data are not checked", check.reason, "raise num_samples")
    if check.good:
        return Judgement(True, "Data drawn from the fit look like the data", check.reason, _NEXT)
    more = "components" if "labels" in symmetries_of(tree) else "latents"
    has_labels = getattr(model_of(tree), "classes", None) is not None
    other = "another likelihood" + " (output_likelihood='probit' of class labels)" * has_labels
    advice = f"look at these columns in the pictures; {other}, or more {more}, may be needed"
    return Judgement(False, "Data drawn from the fit differ from the data", check.reason, advice)


def _features(table: pd.DataFrame) -> ShownTable:
    note = (
        "90 % interval of each statistic in replicated data; p: share of larger replications; surprise: "
        "minus the log of its tail probability among them, in nats (0: in no tail)"
    )
    shown = table.rename(columns={"replicated_lb": "from", "replicated_ub": "to"}).rename_axis("statistic")
    if len(shown) > _MOST_LINES:
        note += f"; the {_MOST_LINES} most surprising of {len(shown)}"
        order = shown["surprise"].sort_values(ascending=False, kind="stable").index
        shown = shown.loc[order[:_MOST_LINES]]
    return ShownTable("Posterior predictive check", shown, ("p", "surprise"), note)


def document_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | ShownTable | Judgement]:
    """Build the blocks on the posterior predictive check of documents: a verdict, tables and a picture."""
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
        _verdict_on_documents(list(suspects(table)), int((topics["p"] < SUSPECT).sum()), len(topics)),
        _replications(tree, documents),
        ShownTable(
            "Documents, observed and replicated (90 % interval); p: share of larger replications", table
        ),
        Picture("documents", caption, alt, plot_document_check(check)),
        ShownTable(mixed, topics.head(_MOST_TOPICS)),
    ]


def _verdict_on_documents(suspect: Sequence[str], num_mixed: int, num_topics: int) -> Judgement:
    if not suspect and not num_mixed:
        text = "Documents drawn from the fit look like the documents"
        reason = (
            f"no statistic of documents and none of {num_topics} topics is out of the ordinary (p between "
        )
        reason += f"{SUSPECT} and {1 - SUSPECT})"
        return Judgement(True, text, reason, _NEXT)
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
