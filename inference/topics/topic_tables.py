r"""Tables of a topic model: top words, shares, clusters, the documents near them, and how good they are.

Parameters are posterior means, under q or over draws whose topics were brought to one numbering
(`align_topics`). Clusters are PCP's.

Normalised mutual information divides by a normaliser, and the published values differ in which: the thesis
(9.3.4) divides by the larger entropy (``"max"``). Coherence is the normalised pointwise mutual information of
a topic's top words, :math:`\log \frac{p(v, w)}{p(v) p(w)} / -\log p(v, w)`, from how many documents hold them
(Bouma 2009; Lau, Newman and Baldwin 2014), -1 where no document holds both.
"""

import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr
from scipy.sparse import csr_matrix, diags
from scipy.special import entr, softmax

from inference.precision import double_precision
from inference.prediction import prepared, transform
from inference.results.files import model_of
from inference.results.groups import flat_draws, labels_of, responsibilities_of, restored_data, thinned
from inference.symmetry.labels import given_rows
from inference.symmetry.topics import align_topics, match_topics
from zoo.checks import check_choice, check_size
from zoo.documents.bags import as_counts
from zoo.documents.topic_model import dirichlet_of
from zoo.sparse import SparseCounts

CELLS_AT_ONCE = 2**16  # of documents x words, times topics


def topic_words(tree: xr.DataTree) -> pd.DataFrame:
    """Tabulate the word probabilities of each topic: one row per topic, one column per word.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        num_topics rows that sum to one, num_words columns.

    Raises:
        ValueError: the fit is of no topic model.
    """
    return _table(_expected(_checked(tree), model_of(tree).roles.topic), "topic", "word")


def top_words(tree: xr.DataTree, num_words: int = 10) -> pd.DataFrame:
    """List the most probable words of each topic: one row per topic, one column per rank from 1.

    Args:
        tree: a fit of LDA, pLSI or PCP.
        num_words: words per topic, or all there are.

    Returns:
        num_topics rows, columns 1 to ``num_words``, words as entries.

    Raises:
        ValueError: the fit is of no topic model, or less than one word is asked for.
    """
    table = topic_words(tree)
    check_size("num_words", num_words)
    num_words = min(num_words, table.shape[1])
    order = np.argsort(-table.to_numpy(), axis=1, kind="stable")[:, :num_words]
    ranks = pd.RangeIndex(1, num_words + 1, name="rank")
    return pd.DataFrame(table.columns.to_numpy()[order], index=table.index, columns=ranks)


def topic_shares(tree: xr.DataTree) -> pd.DataFrame:
    """Tabulate the expected topic shares of the fitted documents: one row per document, one column per topic.

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


def token_shares(tree: xr.DataTree, counts: Any = None) -> pd.DataFrame:
    r"""Tabulate the shares of topics among the words of documents: a row per document, a column per topic.

    The projection by which the thesis compares the models (9.3.3):
    :math:`\sum_n E[\phi_{dnk}] / N_d`, the probabilities that topic k gave the words of document d, averaged
    over them. Of PCP, whose documents have no shares but those of their clusters (`topic_shares`), it tells
    the documents of a cluster apart. A document without words has its topic shares, as `topic_shares` has.

    Args:
        tree: a fit of LDA, pLSI or PCP.
        counts: documents; None: the fitted ones.

    Returns:
        num_documents rows that sum to one, num_topics columns.

    Raises:
        ValueError: the fit is of no topic model, or does not hold its documents.
    """
    documents, names = _given_or_fitted(_checked(tree), counts)
    topics, matrix = topic_words(tree), documents.to_scipy()
    with warnings.catch_warnings():
        if counts is None:  # told when they were fitted
            warnings.filterwarnings("ignore", message=".*documents have no words")
        by_word, of_documents = topics.to_numpy().T, transform(tree, documents).values
    if model_of(tree).roles.document_topic is None:
        tokens = _tokens_by_cluster(matrix, _cluster_probs(tree, matrix), _centres(tree), by_word)
    else:
        tokens = _tokens_by_topic(documents, of_documents, by_word)
    total = tokens.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, tokens / np.where(total > 0, total, 1.0), of_documents)
    return pd.DataFrame(shares, index=pd.Index(names, name="document"), columns=topics.index)


def token_share_draws(tree: xr.DataTree, most: int = 100) -> np.ndarray:
    """Compute the share of each topic in all words of the documents, draw by draw.

    Returns:
        Shape (draws, num_topics), rows that sum to one.

    Raises:
        ValueError: the fit is of no topic model, does not hold its documents, or no shares of theirs.
    """
    documents, _ = _documents(_checked(tree))
    model, posterior = model_of(tree), thinned(tree, most)["posterior"].to_dataset()
    topics, labels = flat_draws(posterior[model.roles.topic], "topic", "word"), None
    if model.roles.document_topic in posterior:
        shares = flat_draws(posterior[model.roles.document_topic], "document", "topic")
    elif model.roles.cluster in posterior:
        site, labels = model.roles.cluster_topic, flat_draws(posterior[model.roles.cluster]).astype(int)
        centres = flat_draws(posterior[site], "cluster", "topic") if site in posterior else None
    else:  # shares of the documents were left out for their size
        return _pooled(documents, token_shares(tree).to_numpy())[None]
    found = []
    for draw, words in enumerate(topics):
        if labels is None:
            own = shares[draw]
        else:
            own = (_centres(tree) if centres is None else centres[draw])[labels[draw]]
        found.append(_tokens_by_topic(documents, own, words.T).sum(0))
    total = np.stack(found)
    return total / total.sum(1, keepdims=True)


def _pooled(documents: SparseCounts, shares: np.ndarray) -> np.ndarray:
    """Shares of topics in all words, from those in each document's."""
    return np.average(shares, axis=0, weights=np.bincount(documents.document, documents.count, len(shares)))


def _tokens_by_topic(documents: SparseCounts, shares: np.ndarray, by_word: np.ndarray) -> np.ndarray:
    """Expected tokens of each topic where every document has its shares, (num_documents, num_topics)."""
    ratio = np.empty(documents.num_nonzeros)
    for begin in range(0, documents.num_nonzeros, CELLS_AT_ONCE):
        cells = slice(begin, begin + CELLS_AT_ONCE)
        probs = np.sum(shares[documents.document[cells]] * by_word[documents.word[cells]], axis=1)
        ratio[cells] = documents.count[cells] / np.maximum(probs, np.finfo(float).tiny)
    cells = csr_matrix((ratio, (documents.document, documents.word)), shape=documents.shape)
    return shares * (cells @ by_word)


def _tokens_by_cluster(
    matrix: csr_matrix, probs: np.ndarray, centres: np.ndarray, by_word: np.ndarray
) -> np.ndarray:
    """Expected tokens of each topic where clusters have shares, (num_documents, num_topics)."""
    tokens = np.zeros((matrix.shape[0], by_word.shape[1]))
    for share, prob in zip(centres, probs.T, strict=True):
        held = np.flatnonzero(prob > np.finfo(np.float32).eps)
        inverse = 1 / np.maximum(by_word @ share, np.finfo(float).tiny)
        tokens[held] += share * ((diags(prob[held]) @ matrix[held] @ diags(inverse)) @ by_word)
    return tokens


def cluster_topics(tree: xr.DataTree) -> pd.DataFrame:
    """Tabulate clusters as mixtures of topics: a row per cluster, a column per topic, and the ``weight``.

    Args:
        tree: a fit of PCP.

    Returns:
        num_clusters rows, num_topics columns that sum to one, and ``weight``.

    Raises:
        ValueError: the fit has no clusters.
    """
    tree = _with_clusters(tree)
    table = _table(_expected(tree, model_of(tree).roles.cluster_topic), "cluster", "topic")
    return table.assign(weight=_weights(tree))


def cluster_shares(tree: xr.DataTree, counts: Any = None) -> pd.DataFrame:
    """Tabulate the probability of each cluster for documents: one row per document, one column per cluster.

    Args:
        tree: a fit of PCP.
        counts: new documents, judged by the parameters at their posterior mean; None: the fitted ones, by q
            or by how many draws put them there.

    Returns:
        num_documents rows that sum to one, num_clusters columns.

    Raises:
        ValueError: the fit has no clusters, or does not hold its documents.
    """
    tree = _with_clusters(tree)
    if counts is not None:
        documents, names = _given_or_fitted(tree, counts)
        index, columns = pd.Index(names, name="document"), cluster_topics(tree).index
        return pd.DataFrame(_cluster_probs(tree, documents.to_scipy()), index=index, columns=columns)
    soft, aligned = responsibilities_of(tree), align_topics(tree)
    if soft is not None:
        return _table(soft, "document", "cluster")
    posterior, labels = aligned["posterior"], labels_of(aligned)
    if labels is None:
        raise ValueError("this fit does not hold its documents' clusters: fit with keep=('assignments',)")
    drawn = labels.values.reshape(-1, posterior.sizes["document"])
    shares = np.stack([(drawn == m).mean(0) for m in range(posterior.sizes["cluster"])], axis=1)
    index = pd.Index(posterior["document"].values, name="document")
    return pd.DataFrame(shares, index=index, columns=pd.Index(posterior["cluster"].values, name="cluster"))


def nearest_documents(tree: xr.DataTree, cluster: int, num_documents: int = 10) -> pd.DataFrame:
    """List the documents of a cluster that are nearest to its centre.

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
    members = np.flatnonzero(shares.to_numpy().argmax(1) == shares.columns.get_loc(cluster))
    topics, clusters = topic_words(tree), cluster_topics(tree)
    centre = clusters.loc[cluster].drop("weight").to_numpy() @ topics.to_numpy()
    counts, _ = _documents(tree)
    chosen = counts.rows(members)
    totals = np.bincount(chosen.document, chosen.count, members.size)
    share = chosen.count / totals[chosen.document]
    terms = share * (np.log(share) - np.log(np.maximum(centre[chosen.word], np.finfo(float).tiny)))
    divergence = np.bincount(chosen.document, terms, members.size)
    table = pd.DataFrame({"share": shares[cluster].iloc[members], "divergence": divergence})
    return table[totals > 0].sort_values("divergence", kind="stable").head(num_documents)


def numbered_like(tree: xr.DataTree, reference: Any) -> xr.DataTree:
    """Renumber the topics of a fit as those of another run or model that they match.

    Topics are matched by their words (`match_topics`); those that answer no topic of the reference come last.

    Args:
        tree: a fit of LDA, pLSI or PCP.
        reference: a fit over the same words, or its word probabilities, one row per topic.

    Returns:
        A new tree; root attribute ``relabelled`` describes the change.

    Raises:
        ValueError: other words, or topics whose priors differ, which cannot change places.
    """
    if np.ptp(getattr(model_of(_checked(tree)), "topic_prior", 0.0)):
        raise ValueError("topics with priors of their own (a vector topic_prior) cannot change places")
    tree, words = align_topics(tree), topic_words(tree)
    reference = topic_words(reference) if isinstance(reference, xr.DataTree) else reference
    matching = match_topics(words, reference)
    first = matching.order[np.argsort(matching.reference)]
    order = np.concatenate([first, np.setdiff1d(np.arange(len(words)), first)])

    def renumbered(group: xr.Dataset) -> xr.Dataset:
        if "topic" not in group.dims:
            return group
        return group.isel(topic=order).assign_coords(topic=words.index.to_numpy())

    new = tree.map_over_datasets(renumbered)
    new.attrs = dict(tree.attrs) | {"relabelled": "topics numbered like those of another fit"}
    return new


def _checked(tree: xr.DataTree) -> xr.DataTree:
    if not model_of(tree).data[0].holds_documents:
        raise ValueError(f"a fit of {tree.attrs['model']!r} has no topics of words")
    return tree


def _with_clusters(tree: xr.DataTree) -> xr.DataTree:
    if model_of(tree).roles.cluster_topic is None:
        raise ValueError(f"a fit of {tree.attrs.get('model')!r} has no clusters of documents: fit zoo.PCP")
    return tree


def documents_of(tree: xr.DataTree) -> csr_matrix:
    """Return the fitted documents as a sparse matrix of counts.

    Returns:
        Counts, shape (num_documents, num_words).

    Raises:
        ValueError: the fit is of no topic model, or does not hold its documents.
    """
    return _documents(_checked(tree))[0].to_scipy()


def _documents(tree: xr.DataTree) -> tuple[SparseCounts, np.ndarray]:
    """Return the fitted documents and their names."""
    if "observed_data" not in tree.children:
        raise ValueError("this fit does not hold its documents: fit with keep=('observed_data',)")
    (counts,) = restored_data(tree["observed_data"].to_dataset(), model_of(tree))
    for group in tree.children.values():
        if "document" in group.coords and group.sizes.get("document") == counts.shape[0]:
            return counts, group.coords["document"].values
    return counts, np.arange(counts.shape[0])


@double_precision
def _given_or_fitted(tree: xr.DataTree, counts: Any) -> tuple[SparseCounts, np.ndarray]:
    """Return documents over the words of the fit, the fitted ones by default, and their names."""
    if counts is None:
        return _documents(tree)
    _, (documents,), coords = prepared(tree, (counts,))
    documents = jax.tree.map(np.asarray, documents)
    return documents, np.asarray(coords.get("document", np.arange(documents.shape[0])))


def _centres(tree: xr.DataTree) -> np.ndarray:
    site = model_of(tree).roles.cluster_topic
    return model_of(tree).centres({} if site is None else {site: _expected(tree, site).values})


def _cluster_probs(tree: xr.DataTree, matrix: csr_matrix) -> np.ndarray:
    """Probabilities of clusters given a document at posterior means of parameters, a row per document."""
    centres = np.log(np.maximum(_centres(tree) @ topic_words(tree).to_numpy(), np.finfo(float).tiny))
    weights = np.log(np.maximum(_weights(tree), np.finfo(float).tiny))
    return softmax(matrix @ centres.T + weights, axis=1)


def _expected(tree: xr.DataTree, site: str) -> xr.DataArray:
    """Posterior mean of the probabilities at a site."""
    if "variational" in tree.children:
        stored = tree["variational"]
        if dirichlet_of(site) in stored:
            concentration = stored[dirichlet_of(site)]
            return concentration / concentration.sum(concentration.dims[-1])
        if site in stored:
            return stored[site]
    aligned = align_topics(tree)
    mean = given_rows(aligned)[site].mean(("chain", "draw"))
    return mean.fillna(aligned["posterior"][site].mean(("chain", "draw")))


def _weights(tree: xr.DataTree) -> np.ndarray:
    return align_topics(tree)["posterior"][model_of(tree).roles.weight].mean(("chain", "draw")).values


def _table(values: xr.DataArray, rows: str, columns: str) -> pd.DataFrame:
    values = values.transpose(rows, columns)
    index, names = (pd.Index(values[dim].values, name=dim) for dim in (rows, columns))
    return pd.DataFrame(values.values, index=index, columns=names)


NORMALISERS = {
    "max": max,
    "min": min,
    "arithmetic": lambda a, b: 0.5 * (a + b),
    "geometric": lambda a, b: float(np.sqrt(a * b)),
}


def normalised_mutual_information(labels: Any, others: Any, *, normaliser: str = "max") -> float:
    """Compute mutual information of two labellings over a mean of their entropies, between 0 and 1.

    Args:
        labels: of each row.
        others: of each row.
        normaliser: ``"max"`` (the thesis's), ``"min"``, ``"arithmetic"`` or ``"geometric"``.

    Returns:
        A number in [0, 1].

    Raises:
        ValueError: another number of labels, none, or an unknown normaliser.

    Example:
        >>> normalised_mutual_information([0, 0, 1, 1], ["b", "b", "a", "a"])
        1.0
    """
    check_choice("normaliser", normaliser, NORMALISERS)
    first, second = (np.unique(np.asarray(part), return_inverse=True)[1] for part in (labels, others))
    if first.shape != second.shape or not first.size:
        raise ValueError(f"labels must be of the same rows; got {first.size} and {second.size}")
    joint = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(joint, (first, second), 1.0 / first.size)
    *ends, both = (float(entr(p).sum()) for p in (joint.sum(1), joint.sum(0), joint))
    shared = max(sum(ends) - both, 0.0)
    scale = NORMALISERS[normaliser](*ends)
    if scale <= 0:  # a labelling with one class holds no information, unless both have only one
        return float(ends[0] == ends[1] == 0)
    return shared / scale


def coherence(topic_word_probs: Any, counts: Any, *, num_words: int = 10) -> pd.Series:
    """Compute the NPMI coherence of each topic's top words in a corpus, in [-1, 1], higher is better.

    Args:
        topic_word_probs: shape (num_topics, num_words of the vocabulary).
        counts: documents to count words in, of the same vocabulary.
        num_words: top words of a topic, at least 2.

    Returns:
        One number per topic.

    Raises:
        ValueError: another vocabulary, or too few words.
    """
    topics, documents = np.asarray(topic_word_probs), as_counts(counts)
    if topics.ndim != 2 or topics.shape[1] != documents.shape[1]:
        expected = f"over the corpus's {documents.shape[1]} words"
        raise ValueError(f"topics must be {expected}; got shape {topics.shape}")
    if not 2 <= num_words <= topics.shape[1]:
        raise ValueError(f"num_words must lie between 2 and {topics.shape[1]}; got {num_words}")
    held = (documents.to_scipy() > 0).astype(float).tocsc()
    scores = []
    for topic in topics:
        top = held[:, np.argsort(-topic, kind="stable")[:num_words]]
        together = np.asarray((top.T @ top).todense()) / documents.shape[0]
        i, j = np.triu_indices(num_words, 1)
        alone, both = np.diag(together), together[i, j]
        with np.errstate(divide="ignore", invalid="ignore"):
            npmi = np.log(both / (alone[i] * alone[j])) / -np.log(both)
        npmi = np.select([both == 0, both >= 1], [-1.0, 1.0], npmi)
        scores.append(npmi.mean())
    return pd.Series(scores, index=pd.RangeIndex(len(scores), name="topic"), name="npmi")
