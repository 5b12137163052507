"""Posterior means and standard deviations by listing all labels of the rows or all topics of the tokens.

Given the labels or the topics everything else is conjugate: rows of a component have a closed evidence,
shares and word probabilities are Dirichlets. The sums below are therefore exact up to rounding.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betaln, gammaln

RARE = 0.05  # an indicator rarer than this is left out: its Monte Carlo error is not known well enough


def every_partition(model, x):
    """Mean and sd of the number of clusters, the share of pairs in one cluster, and each pair's indicator."""
    return _moments_of(*_labelings(model, x))


def every_partition_of_process(model, x):
    """The same under the Dirichlet process without truncation, one labeling for each partition."""
    return _moments_of(*_partitions(model, x))


def log_evidence(model, x, process=False):
    """Log evidence in nats: of the finite or truncated prior, or of the process without truncation."""
    return float(np.logaddexp.reduce((_partitions if process else _labelings)(model, x)[2]))


def _labelings(model, x):
    """All labelings, their counts and log joint densities."""
    labels = np.array(list(itertools.product(range(model.num_components), repeat=len(x))))
    return _log_joint(model, x, labels, lambda counts: log_prior_of_labels(model, counts))


def _partitions(model, x):
    """One labeling for each partition."""
    labels = [(0,)]
    for _ in range(len(x) - 1):
        labels = [(*z, k) for z in labels for k in range(max(z) + 2)]
    concentration = float(model.concentration)

    def log_prior(counts):  # alpha^clusters prod (n_k - 1)!
        occupied = counts > 0
        urn = (occupied * (np.log(concentration) + gammaln(np.maximum(counts, 1)))).sum(axis=1)
        return urn + gammaln(concentration) - gammaln(concentration + len(x))

    return _log_joint(model.replaced(num_components=len(x)), x, np.array(labels), log_prior)


def _log_joint(model, x, labels, log_prior):
    """Labelings, counts and log joint densities, given the log prior of the counts."""
    size = model.num_components
    with jax.enable_x64(True):
        features = model.components.features(jnp.asarray(x))
        sums = jax.vmap(lambda z: jax.ops.segment_sum(features, z, num_segments=size))
        evidence = jax.vmap(lambda z: jnp.sum(model.components.log_evidence(z)))(sums(jnp.asarray(labels)))
    counts = np.stack([np.bincount(z, minlength=size) for z in labels])
    return labels, counts, np.asarray(evidence) + log_prior(counts)


def _moments_of(labels, counts, log):
    return moments(partition_functions(labels, counts), np.exp(log - np.logaddexp.reduce(log)))


def log_prior_of_labels(model, counts):
    """Log probability of labels with these counts, shape (labelings, components)."""
    concentration = float(model.concentration)
    if model.weight_prior == "dirichlet":
        weights = np.full(model.num_components, concentration / model.num_components)
        return log_normaliser_of_rows(weights + counts) - log_normaliser_of_rows(weights)
    beyond = counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts
    sticks = betaln(1 + counts, concentration + beyond) - betaln(1, concentration)
    return sticks[:, :-1].sum(axis=1)  # the last stick is what is left


def partition_functions(labels, counts):
    """What is asked of each labeling, shape (labelings,)."""
    num_rows = labels.shape[1]
    found = {
        "num_occupied": (counts > 0).sum(axis=1),
        "same_cluster": (counts * (counts - 1)).sum(axis=1) / (num_rows * (num_rows - 1)),
    }
    for i, j in itertools.combinations(range(num_rows), 2):
        found[f"pair_together[{i}~{j}]"] = labels[:, i] == labels[:, j]
    return found


def moments(functions, weights):
    """Name to mean and sd of functions of labelings with these probabilities; without rare indicators."""
    found = {}
    for name, values in functions.items():
        mean = float(weights @ values)
        if not (name.startswith("pair") and min(mean, 1 - mean) < RARE):
            found[name] = (mean, float(np.sqrt(weights @ (values - mean) ** 2)))
    return found


def every_topic(counts, num_topics, topic_prior, word_smoothing, num_clusters=None, concentration=None):
    """Mean and sd of word probabilities over all topics of all tokens (and clusters of all documents).

    Of LDA and pLSI (whose flat priors are Dirichlets of ones) one row a document; with clusters, PCP: those
    of a document whose cluster is not known, and which documents share a cluster.
    """
    document, word = (
        np.repeat(axis.ravel(), counts.astype(int).ravel()) for axis in np.indices(counts.shape)
    )
    clusterings = [np.arange(len(counts))]
    if num_clusters:
        clusterings = map(np.array, itertools.product(range(num_clusters), repeat=len(counts)))
    first, second, logs, labels = [], [], [], []
    for clusters, topics in itertools.product(
        clusterings, map(np.array, itertools.product(range(num_topics), repeat=len(word)))
    ):
        num_rows = num_clusters or len(counts)
        shares = np.zeros((num_rows, num_topics)) + topic_prior
        words = np.full((num_topics, counts.shape[1]), float(word_smoothing))
        np.add.at(shares, (clusters[document], topics), 1)
        np.add.at(words, (topics, word), 1)
        mean, square = shares / shares.sum(1, keepdims=True), dirichlet_squares(shares)
        log = log_normaliser(shares) + log_normaliser(words)
        if num_clusters:
            sizes = np.bincount(clusters, minlength=num_rows)
            weights = (concentration / num_rows + sizes)[None]
            log += log_normaliser(weights)
            mean, square = mixed(weights, mean, square)
            labels.append(clusters)
        one = words / words.sum(1, keepdims=True)
        two = one[:, None] * one[None]  # E of beta_k beta_l, word by word; topics are independent
        diagonal = np.arange(num_topics)
        total = words.sum(1, keepdims=True)
        two[diagonal, diagonal] = words * (words + 1) / (total * (total + 1))
        first.append(mean @ one)
        second.append(np.tensordot(square, two, axes=2))
        logs.append(log)
    weights = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    mean = np.tensordot(weights, np.array(first), axes=1)
    sd = np.sqrt(np.tensordot(weights, np.array(second), axes=1) - mean**2)
    found = {}
    for d, w in np.ndindex(mean.shape):
        place = f"{w}" if num_clusters else f"{d}, {w}"
        found[f"word_probs[{place}]"] = (float(mean[d, w]), float(sd[d, w]))
    if num_clusters:
        labels = np.array(labels)
        sizes = np.stack([np.bincount(z, minlength=num_clusters) for z in labels])
        found |= moments(partition_functions(labels, sizes), weights)
    return found


def log_evidence_of_topics(model, counts):
    """Log evidence in nats of LDA, or PCP with Dirichlet weights, by all topics of all tokens."""
    counts = counts.astype(int)
    document, word = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    topics = np.array(list(itertools.product(range(model.num_topics), repeat=len(word))))
    clusterings = [np.arange(len(counts))]
    if number := getattr(model, "num_clusters", 0):
        clusterings = list(map(np.array, itertools.product(range(number), repeat=len(counts))))
    of_topic = 1.0 * (topics[:, :, None] == np.arange(model.num_topics))  # (topics, tokens, topic)
    logs = []
    for clusters in clusterings:
        prior = np.broadcast_to(model.topic_prior, (model.num_topics,))
        by_row = np.einsum("ink,nm->imk", of_topic, clusters[document, None] == np.arange(max(clusters) + 1))
        found = (log_normaliser_of_rows(prior + by_row) - log_normaliser_of_rows(prior)).sum(axis=1)
        by_word = np.einsum("ink,nw->ikw", of_topic, word[:, None] == np.arange(counts.shape[1]))
        smoothing = np.full(counts.shape[1], float(model.word_smoothing))
        found += (log_normaliser_of_rows(smoothing + by_word) - log_normaliser_of_rows(smoothing)).sum(axis=1)
        if number:
            weights = np.full(number, float(model.concentration) / number)
            sizes = np.bincount(clusters, minlength=number)
            found += log_normaliser_of_rows(weights + sizes) - log_normaliser_of_rows(weights)
        logs.append(found)
    orders = gammaln(counts.sum(axis=1) + 1).sum() - gammaln(counts + 1).sum()
    return float(np.logaddexp.reduce(np.concatenate(logs)) + orders)


def log_normaliser(rows):
    """Sum of the log normalisers of Dirichlets, one a row."""
    return log_normaliser_of_rows(rows).sum()


def log_normaliser_of_rows(rows):
    """Log normaliser of a Dirichlet for each row."""
    return gammaln(rows).sum(-1) - gammaln(rows.sum(-1))


def dirichlet_squares(rows):
    """E of p p' under a Dirichlet for each row, shape (rows, size, size)."""
    total = rows.sum(1)[:, None, None]
    return (rows[:, :, None] * rows[:, None] + rows[:, :, None] * np.eye(rows.shape[1])) / (
        total * (total + 1)
    )


def mixed(weights, means, squares):
    """E of p and p p' of a mixture of independent vectors with these moments and Dirichlet weights."""
    share = weights[0] / weights.sum()
    pairs = dirichlet_squares(weights)[0]
    apart = pairs - np.diag(np.diag(pairs))
    square = np.einsum("mn,mk,nl->kl", apart, means, means) + np.einsum("m,mkl->kl", np.diag(pairs), squares)
    return (share @ means)[None], square[None]
