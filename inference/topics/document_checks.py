r"""Posterior predictive checks of topic models: observed documents against documents drawn from the fit.

Replicated documents have the lengths of the observed ones. At each of the draws looked at, tokens get
topics and then words: of LDA and pLSI at the drawn (estimated) topic shares of the document, of PCP at
those of a new cluster; this is what the programs do, without an array of documents by words. Two kinds of
statistics are compared, posterior predictive p-values as in `inference.diagnostics.model_criticism`.

Statistics of documents: all words of a bag are independent given its topics. Text is burstier (Church and
Gale 1995, "Poisson mixtures"): a word that was used once is used again. Then documents hold fewer different
words than their length lets expect, the commonest word of a document takes more of it, and counts of a word
vary more between documents. Documents whose numbers of different words differ more than replicated ones are
of more kinds than the fit knows.

Statistics of topics: given the topics of all tokens, words and documents are independent within a topic.
Their dependence is measured by their mutual information (Mimno and Blei 2011, "Bayesian checking for topic
models", equation 1),

.. math:: MI_k = \sum_{w,d} \frac{N_{wdk}}{N_k} \log \frac{N_{wdk} N_k}{N_{wk} N_{dk}},

a realised discrepancy: topics of the observed tokens are drawn given their words, replicated words given
these topics. A topic far above its replications mixes several.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.random import Generator
from scipy.sparse import csr_matrix
from scipy.special import xlogy

from inference.convergence.identifiable import draws_of
from inference.results.files import model_of
from inference.results.groups import thinned
from inference.symmetry.topics import align_topics
from inference.topics.topic_tables import documents_of, top_words
from zoo.checks import check_seed, check_share, check_size

STATISTICS = (
    "different words per document",
    "their standard deviation between documents",
    "share of a document's commonest word",
    "index of dispersion of a word's counts",
)
_MOST_TOKENS = 100_000


class DocumentCheck(NamedTuple):
    """Results of a posterior predictive check of documents.

    Attributes:
        table: one row per statistic: ``observed``, ``replicated_lb``, ``replicated_ub``, ``p`` (the share of
            replications that are larger).
        topics: one row per topic: its ``words``, ``observed`` mutual information of words and documents in
            nats (mean over the draws), ``replicated_lb``, ``replicated_ub``, ``p``.
        documents: one row per document checked: ``length``, ``distinct`` words, their ``replicated`` mean,
            ``replicated_lb``, ``replicated_ub``.
        words: one row per word: number of ``documents`` with it, its ``replicated`` mean and ``sd``.
        num_draws: how many draws were replicated.
        note: a sentence on the documents and draws left out for size; empty if there are none.
    """

    table: pd.DataFrame
    topics: pd.DataFrame
    documents: pd.DataFrame
    words: pd.DataFrame
    num_draws: int
    note: str


class _Draw(NamedTuple):
    """One draw: topic shares of the documents for new tokens and for theirs, word probabilities by topic."""

    fresh: np.ndarray
    fitted: np.ndarray
    topics: np.ndarray


def check_documents(
    tree: xr.DataTree,
    num_draws: int = 100,
    num_documents: int = 500,
    probability: float = 0.9,
    seed: int = 0,
) -> DocumentCheck:
    """Compare statistics of documents and topics, observed and replicated.

    Args:
        tree: a fit of LDA, pLSI or PCP that holds its documents (LDA, pLSI: and their topic shares).
        num_draws: replications, at evenly spaced draws; a point estimate is replicated as often.
        num_documents: at most so many documents, evenly spaced, and at most 100 000 tokens.
        probability: content of the equal-tailed intervals of the replications.
        seed: of the replications.

    Returns:
        Tables, see `DocumentCheck`.

    Raises:
        ValueError: a fit of no topic model, or without its documents or shares; a number below 2.
    """
    check_size("num_draws", num_draws, 2)
    check_size("num_documents", num_documents, 2)
    check_share("probability", probability, "the content of an interval")
    check_seed(seed)
    whole = documents_of(tree)
    chosen = _evenly_spaced(whole, num_documents)
    counts = whole[chosen].astype(np.int64)
    counts.sort_indices()
    lengths = np.asarray(counts.sum(1)).ravel()
    rng = np.random.default_rng(seed)
    draws, known = _draws(tree, chosen, counts, num_draws, rng)
    tail = [(1 - probability) / 2, (1 + probability) / 2]
    pairs, distinct, statistics = [], [], []
    held = np.zeros((2, counts.shape[1]))
    for draw in draws:
        tokens = rng.multinomial(lengths, draw.fresh / draw.fresh.sum(1, keepdims=True))
        document, _, word = _drawn_words(tokens, draw.topics, rng)
        new = csr_matrix((np.ones(len(word), np.int64), (document, word)), shape=counts.shape)
        new.sum_duplicates()
        distinct.append(np.diff(new.indptr))
        statistics.append(_statistics(new))
        within = np.bincount(new.indices, minlength=new.shape[1])
        held += within, within**2
        pairs.append(_information(counts, draw, rng))
    statistics, pairs, distinct = np.array(statistics), np.array(pairs), np.array(distinct)
    table = _compared(np.array(_statistics(counts)), statistics, tail, STATISTICS)
    words = top_words(tree, 4)
    topics = _compared(pairs[:, 0], pairs[:, 1], tail, words.index)
    topics.insert(0, "words", [", ".join(map(str, row)) for row in words.to_numpy()])
    low, high = np.quantile(distinct, tail, axis=0)
    documents = pd.DataFrame(
        {
            "length": lengths,
            "distinct": np.diff(counts.indptr),
            "replicated": distinct.mean(0),
            "replicated_lb": low,
            "replicated_ub": high,
        },
        index=pd.Index(chosen, name="document"),
    )
    mean, square = held / len(distinct)
    by_word = pd.DataFrame(
        {
            "documents": np.bincount(counts.indices, minlength=counts.shape[1]),
            "replicated": mean,
            "sd": np.sqrt(np.maximum(square - mean**2, 0.0)),
        },
        index=pd.Index(draws_of(tree)["word"].values, name="word"),
    )
    note = _note(len(chosen), whole.shape[0], len(distinct), known)
    return DocumentCheck(table, topics, documents, by_word, len(distinct), note)


def _note(num_documents: int, in_all: int, num_draws: int, known: int) -> str:
    sizes = ((num_documents, in_all, "documents"), (num_draws, known, "draws"))
    parts = [f"{few} of {every} {name}, evenly spaced" for few, every, name in sizes if few < every]
    return f"Looked at: {' and '.join(parts)}." if parts else ""


def _evenly_spaced(counts: csr_matrix, most: int) -> np.ndarray:
    """Choose at most ``most`` documents of at most `_MOST_TOKENS` tokens in all, but at least two."""
    lengths = np.asarray(counts.sum(1)).ravel()
    filled = np.flatnonzero(lengths)
    size = min(most, len(filled), max(2, int(_MOST_TOKENS / max(lengths[filled].mean(), 1.0))))
    return filled[np.unique(np.linspace(0, len(filled) - 1, size).astype(int))]


def _draws(
    tree: xr.DataTree, chosen: np.ndarray, counts: csr_matrix, most: int, rng: Generator
) -> tuple[Iterator[_Draw], int]:
    """Select the draws to look at, their topics in one numbering, and count the draws of the fit."""
    posterior = draws_of(tree)
    known = posterior.sizes["chain"] * posterior.sizes["draw"]
    model = model_of(tree)
    missing = [name for name in model.share_sites if name not in posterior]
    if missing:
        raise ValueError(f"replicating documents takes {missing[0]!r}, which this fit does not hold")
    few = draws_of(align_topics(thinned(tree, most)))
    values = {}
    for name in (*model.share_sites, model.roles.topic):
        value = few[name].stack(sample=("chain", "draw")).transpose("sample", ...)
        values[name] = value.isel(document=chosen, missing_dims="ignore").values
    size = len(values[model.roles.topic])
    places = np.arange(most) % size if size == 1 else np.arange(size)

    def one(place: int) -> _Draw:
        drawn = {name: value[place] for name, value in values.items()}
        return _Draw(*model.document_shares(drawn, counts, rng), drawn[model.roles.topic])

    return (one(place) for place in places), known


def _drawn_words(
    tokens: np.ndarray, topics: np.ndarray, rng: Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw words for tokens; return document, topic and word of each, ordered by topic."""
    num_documents, num_topics = tokens.shape
    document = np.concatenate([np.repeat(np.arange(num_documents), number) for number in tokens.T])
    topic = np.repeat(np.arange(num_topics), tokens.sum(0))
    word = np.empty(len(topic), np.int64)
    for k, probs in enumerate(topics):
        below, place = np.cumsum(probs), topic == k
        drawn = np.searchsorted(below, rng.random(int(place.sum())) * below[-1], side="right")
        word[place] = np.minimum(drawn, len(probs) - 1)
    return document, topic, word


def _statistics(counts: csr_matrix) -> tuple[float, ...]:
    """Compute the values of `STATISTICS`."""
    lengths = np.asarray(counts.sum(1)).ravel()
    commonest = counts.max(axis=1).toarray().ravel() / lengths
    mean = np.asarray(counts.mean(0)).ravel()
    second = np.asarray(counts.multiply(counts).mean(0)).ravel()
    used = mean > 0
    dispersion = (second[used] - mean[used] ** 2) / mean[used]
    weighted = np.average(dispersion, weights=mean[used])
    distinct = np.diff(counts.indptr)
    return float(distinct.mean()), float(distinct.std()), float(commonest.mean()), float(weighted)


def _information(counts: csr_matrix, draw: _Draw, rng: Generator) -> np.ndarray:
    """Mutual information of words and documents in each topic, observed and replicated, (2, num_topics)."""
    num_documents, num_words = counts.shape
    num_topics = len(draw.topics)
    document = np.repeat(np.arange(num_documents), np.diff(counts.indptr))
    given = draw.fitted[document] * draw.topics.T[counts.indices] + np.finfo(float).tiny
    split = rng.multinomial(counts.data, given / given.sum(1, keepdims=True))
    cell, topic = np.nonzero(split)
    observed = document[cell], topic, counts.indices[cell], split[cell, topic]
    tokens = np.zeros((num_documents, num_topics), np.int64)
    np.add.at(tokens, observed[:2], observed[3])
    d, k, w = _drawn_words(tokens, draw.topics, rng)
    code, number = np.unique((k * num_documents + d) * num_words + w, return_counts=True)
    pair, word = np.divmod(code, num_words)
    replicated = (pair % num_documents, pair // num_documents, word, number)
    sizes = num_documents, num_topics, num_words
    return np.stack([_mutual_information(*cells, sizes) for cells in (observed, replicated)])


def _mutual_information(
    document: np.ndarray, topic: np.ndarray, word: np.ndarray, count: np.ndarray, sizes: tuple[int, int, int]
) -> np.ndarray:
    """Mutual information of each topic from its cells, in nats; zero for a topic without tokens."""
    num_documents, num_topics, num_words = sizes
    total = np.bincount(topic, count, num_topics)
    by_word = np.bincount(topic * num_words + word, count, num_topics * num_words)
    by_document = np.bincount(topic * num_documents + document, count, num_topics * num_documents)
    joint = np.bincount(topic, xlogy(count, count), num_topics)
    words, documents = (xlogy(n, n).reshape(num_topics, -1).sum(1) for n in (by_word, by_document))
    return (joint + xlogy(total, total) - words - documents) / np.maximum(total, 1.0)


def _compared(
    observed: np.ndarray, replicated: np.ndarray, tail: list, names: tuple | pd.Index
) -> pd.DataFrame:
    """Tabulate observed values, (statistics,) or (replications, statistics), beside the replications."""
    low, high = np.quantile(replicated, tail, axis=0)
    p = (replicated > observed).mean(0) + 0.5 * (replicated == observed).mean(0)
    values = observed if observed.ndim == 1 else observed.mean(0)
    table = {"observed": values, "replicated_lb": low, "replicated_ub": high, "p": p}
    return pd.DataFrame(table, index=names)
