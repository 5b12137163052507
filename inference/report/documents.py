"""What a report says of documents drawn from a fit of a topic model."""

import xarray as xr

from inference.document_checks import check_documents
from inference.identifiable import kind_of
from inference.report.page import Paragraph, Picture, Table, Verdict
from inference.topic_picture import plot_document_check

__all__ = ["document_blocks"]

_SUSPECT = 0.01  # a posterior predictive p-value nearer than this to 0 or 1 is named
_MOST_TOPICS = 20


def document_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table | Verdict]:
    """Verdict, tables and picture of the posterior predictive check of documents.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        Blocks of a section; a sentence where the fit does not hold what the check needs.
    """
    try:
        check = check_documents(tree)
    except ValueError as why_not:
        return [Paragraph(f"No documents were drawn from the fit: {why_not}.")]
    table, topics = check.table, check.topics.sort_values("p", kind="stable")
    suspect = table.index[(table["p"] - 0.5).abs() > 0.5 - _SUSPECT]
    mixed = topics[topics["p"] < _SUSPECT]
    blocks: list = [_verdict(list(suspect), len(mixed), len(topics))]
    said = f"{check.num_draws} replications of documents of the same lengths. {check.note}".strip()
    if kind_of(tree) == "point":
        said += " The parameters are one estimate: replications vary less than they should."
    inside = check.documents["distinct"].between(
        check.documents["replicated_lb"], check.documents["replicated_ub"]
    )
    alt = (
        f"Two scatter plots: {inside.mean():.0%} of {len(inside)} documents have as many different words as "
        "replicated ones of their length; documents that hold a word, observed against replicated."
    )
    caption = (
        "Left: a point a document, by its number of different words; the band is the 90 % interval of "
        "replicated ones. Right: a point a word; below the line it is in fewer documents than in "
        "replications, so it comes in bursts."
    )
    return [
        *blocks,
        Paragraph(said),
        Table("Documents, observed and replicated (90 % interval); p: share of larger replications", table),
        Picture("documents", caption, alt, plot_document_check(check)),
        Table(
            "Topics, observed and replicated: mutual information (nats) of words and documents in a topic"
            + (f"; the {_MOST_TOPICS} furthest out" if len(topics) > _MOST_TOPICS else ""),
            topics.head(_MOST_TOPICS),
        ),
    ]


def _verdict(suspect: list[str], num_mixed: int, num_topics: int) -> Verdict:
    if not suspect and not num_mixed:
        return Verdict(
            True,
            "Documents drawn from the fit look like the documents",
            f"no statistic of documents and none of {num_topics} topics is out of the ordinary "
            f"(p between {_SUSPECT} and {1 - _SUSPECT})",
            "check what your question depends on in the same way",
        )
    parts = [*suspect, *([f"{num_mixed} of {num_topics} topics (by chance 1 in 100)"] if num_mixed else [])]
    if num_mixed == num_topics:
        advice = (
            "words come in bursts, as in most texts: topics and shares may serve, but scores of documents "
            "and probabilities of clusters are too sure; leave out words of single documents"
        )
    elif num_mixed:
        advice = "topics with p near 0 mix what should be several: raise num_topics, or num_restarts"
    else:
        advice = "look at the documents and words far from the band and the line in the picture"
    return Verdict(False, "Documents drawn from the fit differ from the documents", ", ".join(parts), advice)
