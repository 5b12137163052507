"""What a fit of a topic model says, as tables: top words, shares, clusters, documents near them.

Parameters are posterior means, under q or over draws whose topics were brought to one numbering
(`align_topics`). Clusters are PCP's. Gathered here too: matching topics of two fits (`match_topics`),
coherence, agreement with classes, splitting tokens for completion, and bringing documents to a vocabulary.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inference.observed import restored_data
from inference.prediction import transform
from inference.results import model_of
from inference.text_heldout import split_tokens
from inference.text_input import WordCounts, to_vocabulary
from inference.topic_alignment import align_topics, match_topics
from inference.topic_quality import coherence, normalised_mutual_information
from zoo.sparse_counts import SparseCounts

__all__ = [
    "WordCounts",
    "align_topics",
    "cluster_shares",
    "cluster_topics",
    "coherence",
    "match_topics",
    "nearest_documents",
    "normalised_mutual_information",
    "pyldavis_arrays",
    "split_tokens",
    "to_vocabulary",
    "top_words",
    "topic_shares",
    "topic_words",
]


def topic_words(tree: xr.DataTree) -> pd.DataFrame:
    """Word probabilities of each topic: a row a topic, a column a word.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        num_topics rows that sum to one, num_words columns.

    Raises:
        ValueError: the fit is of no topic model.
    """
    return _table(_expected(_checked(tree), "topic_word"), "topic", "word")


def top_words(tree: xr.DataTree, num_words: int = 10) -> pd.DataFrame:
    """The most probable words of each topic: a row a topic, a column a rank from 1.

    Args:
        tree: a fit of LDA, pLSI or PCP.
        num_words: words per topic, or all there are.

    Returns:
        num_topics rows, columns 1 to ``num_words``, words as entries.

    Raises:
        ValueError: the fit is of no topic model, or less than one word is asked for.
    """
    table = topic_words(tree)
    if num_words < 1:
        raise ValueError(f"num_words must be at least 1; got {num_words}")
    num_words = min(num_words, table.shape[1])
    order = np.argsort(-table.to_numpy(), axis=1, kind="stable")[:, :num_words]
    ranks = pd.RangeIndex(1, num_words + 1, name="rank")
    return pd.DataFrame(table.columns.to_numpy()[order], index=table.index, columns=ranks)


def topic_shares(tree: xr.DataTree) -> pd.DataFrame:
    """Expected topic shares of the fitted documents: a row a document, a column a topic.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        num_documents rows that sum to one, num_topics columns.

    Raises:
        ValueError: the fit is of no topic model, or does not hold its documents.
    """
    counts, names = _documents(_checked(tree))
    shares = transform(tree, counts)
    return _table(shares.assign_coords(document=names), "document", "topic")


def cluster_topics(tree: xr.DataTree) -> pd.DataFrame:
    """Clusters as mixtures of topics: a row a cluster, a column a topic, and ``weight``, its expected weight.

    Args:
        tree: a fit of PCP.

    Returns:
        num_clusters rows, num_topics columns that sum to one, and ``weight``.

    Raises:
        ValueError: the fit has no clusters.
    """
    tree = _with_clusters(tree)
    table = _table(_expected(tree, "cluster_topic"), "cluster", "topic")
    return table.assign(weight=_weights(tree))


def cluster_shares(tree: xr.DataTree) -> pd.DataFrame:
    """Probability of each cluster for the fitted documents: a row a document, a column a cluster.

    Args:
        tree: a fit of PCP.

    Returns:
        num_documents rows that sum to one, num_clusters columns.

    Raises:
        ValueError: the fit has no clusters, or does not hold its documents.
    """
    tree = _with_clusters(tree)
    if "variational" in tree.children and "responsibilities" in tree["variational"]:
        return _table(tree["variational"]["responsibilities"], "document", "cluster")
    posterior = align_topics(tree)["posterior"]
    if "doc_clusters" not in posterior:
        raise ValueError("this fit does not hold its documents' clusters: fit with keep=('assignments',)")
    drawn = (
        posterior["doc_clusters"].transpose(..., "document").values.reshape(-1, posterior.sizes["document"])
    )
    shares = np.stack([(drawn == m).mean(0) for m in range(posterior.sizes["cluster"])], axis=1)
    index = pd.Index(posterior["document"].values, name="document")
    return pd.DataFrame(shares, index=index, columns=pd.Index(posterior["cluster"].values, name="cluster"))


def nearest_documents(tree: xr.DataTree, cluster: int, num_documents: int = 10) -> pd.DataFrame:
    """The documents of a cluster that are nearest to its centre.

    Args:
        tree: a fit of PCP.
        cluster: its number.
        num_documents: at most so many of those whose most probable cluster it is.

    Returns:
        By document, nearest first: ``share`` (probability of the cluster) and ``divergence`` (of the centre's
        word probabilities from the document's word frequencies, nats per token).

    Raises:
        ValueError: no such cluster.
    """
    shares = cluster_shares(tree)
    if cluster not in shares.columns:
        raise ValueError(f"there is no cluster {cluster!r}; clusters are {list(shares.columns)}")
    own = np.flatnonzero(shares.to_numpy().argmax(1) == shares.columns.get_loc(cluster))
    topics, clusters = topic_words(tree), cluster_topics(tree)
    centre = clusters.loc[cluster].drop("weight").to_numpy() @ topics.to_numpy()
    counts, _ = _documents(tree)
    chosen = counts.rows(own)
    totals = np.bincount(chosen.document, chosen.count, own.size)
    share = chosen.count / totals[chosen.document]
    terms = share * (np.log(share) - np.log(np.maximum(centre[chosen.word], np.finfo(float).tiny)))
    divergence = np.bincount(chosen.document, terms, own.size)
    table = pd.DataFrame(
        {"share": shares[cluster].to_numpy()[own], "divergence": divergence}, index=shares.index[own]
    )
    return table[totals > 0].sort_values("divergence", kind="stable").head(num_documents)


def pyldavis_arrays(tree: xr.DataTree) -> dict[str, Any]:
    """The arguments of ``pyLDAvis.prepare(**arrays)``.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        Five arrays by the names of ``pyLDAvis.prepare``'s arguments.

    Raises:
        ValueError: the fit is of no topic model, or does not hold its documents.
    """
    counts, _ = _documents(_checked(tree))
    topics = topic_words(tree)
    return {
        "topic_term_dists": topics.to_numpy(),
        "doc_topic_dists": topic_shares(tree).to_numpy(),
        "doc_lengths": np.bincount(counts.document, counts.count, counts.shape[0]).astype(int),
        "vocab": [str(word) for word in topics.columns],
        "term_frequency": np.bincount(counts.word, counts.count, counts.shape[1]).astype(int),
    }


def _checked(tree: xr.DataTree) -> xr.DataTree:
    if not model_of(tree).takes_documents:
        raise ValueError(f"a fit of {tree.attrs['model']!r} has no topics of words")
    return tree


def _with_clusters(tree: xr.DataTree) -> xr.DataTree:
    if tree.attrs.get("model") != "pcp":
        raise ValueError(f"a fit of {tree.attrs.get('model')!r} has no clusters of documents: fit zoo.PCP")
    return tree


def _documents(tree: xr.DataTree) -> tuple[SparseCounts, np.ndarray]:
    """The fitted documents and their names."""
    if "observed_data" not in tree.children:
        raise ValueError("this fit does not hold its documents: fit with keep=('observed_data',)")
    (counts,) = restored_data(tree["observed_data"].to_dataset(), model_of(tree))
    for group in tree.children.values():
        if "document" in group.coords and group.sizes.get("document") == counts.shape[0]:
            return counts, group.coords["document"].values
    return counts, np.arange(counts.shape[0])


def _expected(tree: xr.DataTree, stem: str) -> xr.DataArray:
    """Posterior mean of ``STEM_probs``."""
    if "variational" in tree.children:
        stored = tree["variational"]
        if f"{stem}_concentration" in stored:
            concentration = stored[f"{stem}_concentration"]
            return concentration / concentration.sum(concentration.dims[-1])
        if f"{stem}_probs" in stored:
            return stored[f"{stem}_probs"]
    return align_topics(tree)["posterior"][f"{stem}_probs"].mean(("chain", "draw"))


def _weights(tree: xr.DataTree) -> np.ndarray:
    return align_topics(tree)["posterior"]["cluster_weights"].mean(("chain", "draw")).values


def _table(values: xr.DataArray, rows: str, columns: str) -> pd.DataFrame:
    values = values.transpose(rows, columns)
    index, names = (pd.Index(values[dim].values, name=dim) for dim in (rows, columns))
    return pd.DataFrame(values.values, index=index, columns=names)
