"""Posterior predictive checks in a report: statistics of rows, or of documents, observed and replicated."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of, symmetries_of
from inference.diagnostics.model_criticism import check_features
from inference.extension import extend
from inference.plots.topics import plot_document_check
from inference.report.page import Judgement, Paragraph, Picture, Table
from inference.results.files import model_of
from inference.results.groups import thinned
from inference.topics.document_checks import check_documents

__all__ = ["document_blocks", "predictive_blocks"]

_MOST_REPLICATIONS, _FEWEST_REPLICATIONS = 500, 50
_OF_AN_ESTIMATE = 200
_MOST_CELLS = 2**26  # of all replications, 512 MiB
_MOST_LINES = 24
_MOST_TOPICS = 20
_SUSPECT = 0.01  # a posterior predictive p-value nearer than this to 0 or 1 is named


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
