r"""Documents as bags of words: the data of topic models and the densities of their rows.

A document with word probabilities p and n tokens has counts :math:`x \sim \mathrm{Multinomial}(n, p)`, its
coefficient :math:`n! / \prod_w x_w!` included, so that the density can be compared with a mixture's
(`zoo.conjugate.MultinomialDirichlet`). Scores per token, as the papers print them, are of the tokens in their
order and leave the coefficient out (`inference.diagnostics.heldout`).

Word probabilities are mixtures of topics, :math:`p = \theta' \beta`. Sparse counts are scored at their
nonzero cells only: no documents x words and no nonzeros x topics array is made.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, logsumexp

from zoo.checks import as_plain, keep_labels, table_numbers, warn
from zoo.sparse import SparseCounts

MOST_DENSE_CELLS = 200_000_000  # a dense array of more cells (1.6 GB) is taken for a mistake


def as_counts(counts: Any) -> SparseCounts:
    """Convert a dense or a scipy sparse matrix to sparse counts.

    Args:
        counts: shape (num_documents, num_words), dense or sparse.

    Returns:
        The same counts.

    Raises:
        TypeError: not numbers.
        ValueError: not two-dimensional, a dense array too large to be meant, or cells that are no counts.
    """
    if isinstance(counts, SparseCounts):
        return counts
    if hasattr(counts, "tocoo"):
        return SparseCounts.from_matrix(counts)
    table = table_numbers(counts, "counts") if hasattr(counts, "columns") else as_plain(counts, "counts")
    if table.ndim != 2:
        raise ValueError(f"counts must have shape (num_documents, num_words); got {table.shape}")
    if hasattr(counts, "columns"):
        keep_labels(table, counts)
    if table.size > MOST_DENSE_CELLS:
        raise ValueError(
            f"a dense array of {table.shape[0]} documents x {table.shape[1]} words takes "
            f"{table.size * 8 / 1e9:.1f} GB; give a scipy sparse matrix or zoo.SparseCounts"
        )
    return SparseCounts.from_matrix(table)


def check_word_counts(counts: SparseCounts, num_words: int | None) -> None:
    """Raise ValueError unless documents suit a model's vocabulary.

    Args:
        counts: the documents.
        num_words: size of the vocabulary; None: whatever they have.
    """
    if num_words is not None and counts.shape[1] != num_words:
        raise ValueError(
            f"counts must have {num_words} words, as the model has; got {counts.shape[1]}: leave "
            f"num_words out "
            "to have it read off the data, or give the words that were fitted"
        )
    if counts.shape[0] < 1:
        raise ValueError("there are no documents")
    if counts.shape[1] < 2:
        words = "no word" if counts.shape[1] == 0 else "one word"
        raise ValueError(f"a vocabulary of {words} has no topics: counts must have at least 2 columns")


def warn_of_empty(lengths: np.ndarray, given: Any = None, names: Sequence[Any] | None = None) -> None:
    """Warn of documents without words.

    Args:
        lengths: tokens of each document, shape (num_documents,).
        given: the documents as the caller passed them, by which the advice on dropping them goes.
        names: of the documents; None: their row numbers.
    """
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        labels = empty if names is None else [names[row] for row in empty[:5]]
        named = ", ".join(map(str, labels[:5])) + (", ..." if empty.size > 5 else "")
        warn(
            f"{empty.size} of {lengths.size} documents have no words (rows {named}): they keep the prior; "
            f"{_how_to_drop_empty(given)}"
        )


def _how_to_drop_empty(given: Any) -> str:
    """Advice on dropping documents without words, in terms of what the caller has."""
    if isinstance(given, SparseCounts):
        return "leave them out, counts.without_empty()"
    if hasattr(given, "tocsr"):
        return "leave them out, counts.tocsr()[np.flatnonzero(counts.sum(axis=1))]"
    if hasattr(given, "columns") or isinstance(given, np.ndarray) and given.ndim == 2:
        return "leave them out, counts[counts.sum(axis=1) > 0]"
    return "leave them out"


def dense_counts(counts: SparseCounts) -> Array:
    """Convert counts to a dense array, for small corpora and tests.

    Args:
        counts: shape (num_documents, num_words), dense or sparse.

    Returns:
        Shape (num_documents, num_words).
    """
    if not isinstance(counts, SparseCounts):
        return jnp.asarray(counts)
    value = jnp.asarray(counts.count)
    return jnp.zeros(counts.shape, value.dtype).at[counts.document, counts.word].add(value)


def log_coefficients(counts: SparseCounts) -> Array:
    """Log multinomial coefficient of each document.

    Args:
        counts: shape (num_documents, num_words), dense or sparse.

    Returns:
        Shape (num_documents,), in nats.
    """
    if isinstance(counts, SparseCounts):
        return counts.log_coefficients
    return gammaln(jnp.sum(counts, axis=-1) + 1) - jnp.sum(gammaln(counts + 1), axis=-1)


def word_log_probs(topic_shares: Array, topic_word_probs: Array) -> Array:
    """Log of the word probabilities of rows of topic shares.

    Args:
        topic_shares: shape (num_rows, num_topics).
        topic_word_probs: shape (num_topics, num_words).

    Returns:
        Shape (num_rows, num_words), in nats.
    """
    return _safe_log(topic_shares @ topic_word_probs)


class _Documents(dist.Distribution):
    """Base of the distributions of documents, whose number of tokens must be known to draw."""

    support = dist.constraints.independent(dist.constraints.nonnegative_integer, 1)
    pytree_aux_fields = ("num_tokens",)

    def given(self, by_topic: Array | None) -> dist.Distribution:
        """The documents given the counts of their words by topic.

        Args:
            by_topic: shape (num_documents, num_topics, num_words); None: they are summed out.

        Returns:
            Distribution with event shape (num_words,).
        """
        return self if by_topic is None else TopicTotals(by_topic)

    def _drawn(self, key: Array, log_probs: Array) -> Array:
        """Counts as floats, of the shape of ``log_probs``; the axes after documents are one event.

        Raises:
            ValueError: the numbers of tokens are not set, or of another number of documents.
        """
        num_documents = self.batch_shape[0]
        if self.num_tokens is None:
            raise ValueError("num_tokens is not set: the program needs the number of tokens of what it draws")
        lengths = np.asarray(self.num_tokens)
        if lengths.shape not in ((), (num_documents,)):
            raise ValueError(
                f"num_tokens is of {lengths.shape[0]} documents; {num_documents} are to be drawn: give one "
                "number, or one for each"
            )
        flat = log_probs.reshape(num_documents, -1)
        document = np.repeat(np.arange(num_documents), lengths)
        drawn = jax.random.categorical(key, flat[document], axis=-1)
        counts = jnp.zeros(flat.shape, jnp.result_type(float)).at[document, drawn].add(1.0)
        return counts.reshape(log_probs.shape)


class _TopicDocuments(_Documents):
    """Base of the distributions of documents with topic shares of each.

    Args:
        topic_shares: shape (num_documents, num_topics).
        topic_word_probs: shape (num_topics, num_words).
        num_tokens: of the documents to be drawn.
    """

    pytree_data_fields = ("topic_shares", "topic_word_probs")
    num_event_axes = 1

    def __init__(
        self, topic_shares: Array, topic_word_probs: Array, num_tokens: int | tuple[int, ...] | None = None
    ) -> None:
        self.topic_shares, self.topic_word_probs, self.num_tokens = topic_shares, topic_word_probs, num_tokens
        super().__init__(topic_shares.shape[:1], topic_word_probs.shape[-self.num_event_axes :])


class BagsOfWords(_TopicDocuments):
    """Documents whose word probabilities are mixtures of topics, with shares of each document.

    Args:
        topic_shares: shape (num_documents, num_topics).
        topic_word_probs: shape (num_topics, num_words).
        num_tokens: of the documents to be drawn.
    """

    def log_prob(self, value: SparseCounts | Array) -> Array:
        """Log density in nats, shape (num_documents,)."""
        if not isinstance(value, SparseCounts):
            words = word_log_probs(self.topic_shares, self.topic_word_probs)
            return jnp.sum(value * words, axis=-1) + log_coefficients(value)
        by_word = self.topic_word_probs.T

        def cells(document: Array, word: Array, count: Array) -> Array:
            probs = jnp.sum(self.topic_shares[document] * by_word[word], axis=-1)
            return count * _safe_log(probs)

        return value.sum_by_document(cells) + log_coefficients(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw counts, as floats."""
        return self._drawn(key, word_log_probs(self.topic_shares, self.topic_word_probs))

    def by_topic(self) -> dist.Distribution:
        """The distribution of the counts of words by topic.

        Returns:
            Distribution with event shape (num_topics, num_words).
        """
        return TopicCounts(self.topic_shares, self.topic_word_probs, self.num_tokens)


class ClusteredBags(_Documents):
    """Documents of clusters, each a mixture of topics; the cluster of a document is summed out.

    Args:
        log_weights: of the clusters, shape (num_clusters,).
        cluster_topic_probs: shape (num_clusters, num_topics).
        topic_word_probs: shape (num_topics, num_words).
        num_documents: D.
        num_tokens: of the documents to be drawn.
    """

    pytree_data_fields = ("log_weights", "cluster_topic_probs", "topic_word_probs")

    def __init__(
        self,
        log_weights: Array,
        cluster_topic_probs: Array,
        topic_word_probs: Array,
        num_documents: int,
        num_tokens: int | tuple[int, ...] | None = None,
    ) -> None:
        self.log_weights, self.cluster_topic_probs = log_weights, cluster_topic_probs
        self.topic_word_probs, self.num_tokens = topic_word_probs, num_tokens
        super().__init__((num_documents,), topic_word_probs.shape[1:])

    def of(self, clusters: Array | None) -> dist.Distribution:
        """The documents given their clusters.

        Args:
            clusters: shape (num_documents,); None: they are summed out.

        Returns:
            Distribution with event shape (num_words,).
        """
        if clusters is None:
            return self
        return BagsOfWords(self.cluster_topic_probs[clusters], self.topic_word_probs, self.num_tokens)

    def by_topic(self) -> dist.Distribution:
        """Counts by topic are those of documents given their clusters.

        Returns:
            Nothing.

        Raises:
            TypeError: always.
        """
        raise TypeError("counts by topic are those of documents given their clusters")

    def by_cluster(self, value: SparseCounts | Array) -> Array:
        """Log weight plus log density of each document under each cluster.

        Args:
            value: counts, shape (num_documents, num_words), dense or sparse.

        Returns:
            Shape (num_documents, num_clusters), in nats.
        """
        words = word_log_probs(self.cluster_topic_probs, self.topic_word_probs)
        scores = value.times(words.T) if isinstance(value, SparseCounts) else value @ words.T
        return scores + log_coefficients(value)[:, None] + self.log_weights

    def log_prob(self, value: SparseCounts | Array) -> Array:
        """Log density in nats, shape (num_documents,)."""
        return logsumexp(self.by_cluster(value), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw counts, as floats."""
        cluster_key, key = jax.random.split(key)
        chosen = jax.random.categorical(cluster_key, self.log_weights, shape=self.batch_shape)
        return self._drawn(key, word_log_probs(self.cluster_topic_probs, self.topic_word_probs)[chosen])


class TopicCounts(_TopicDocuments):
    """Counts of words by topic, shape (num_documents, num_topics, num_words).

    Args:
        topic_shares: shape (num_documents, num_topics).
        topic_word_probs: shape (num_topics, num_words).
        num_tokens: of the documents to be drawn.
    """

    support = dist.constraints.independent(dist.constraints.nonnegative_integer, 2)
    num_event_axes = 2

    def _log_probs(self) -> Array:
        return _safe_log(self.topic_shares)[:, :, None] + _safe_log(self.topic_word_probs)

    def log_prob(self, value: Array) -> Array:
        """Log density in nats, shape (num_documents,)."""
        flat = value.reshape(value.shape[0], -1)
        return jnp.sum(value * self._log_probs(), axis=(1, 2)) + log_coefficients(flat)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw counts, as floats."""
        return self._drawn(key, self._log_probs())


class CellTopics(dist.Distribution):
    """Allocation of the tokens of each cell to topics, a multinomial for each document and word.

    Args:
        counts: tokens of each cell, shape (num_documents, num_words).
        logits: unnormalised log probabilities, shape (num_documents, num_topics, num_words).
        num_tokens: lengths of the documents; the longest bounds the loops of a draw.
    """

    support = dist.constraints.independent(dist.constraints.nonnegative_integer, 2)
    pytree_data_fields = ("counts", "logits")
    pytree_aux_fields = ("num_tokens",)

    def __init__(self, counts: Array, logits: Array, num_tokens: int | tuple[int, ...] | None = None) -> None:
        self.counts, self.logits, self.num_tokens = counts, jax.nn.log_softmax(logits, axis=1), num_tokens
        super().__init__(logits.shape[:1], logits.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """Log density in nats, shape (num_documents,); minus infinity unless topics add up to the cells."""
        choices = jnp.sum(gammaln(self.counts + 1), axis=-1) - jnp.sum(gammaln(value + 1), axis=(1, 2))
        inside = jnp.all(jnp.sum(value, axis=1) == self.counts, axis=-1)
        chosen = jnp.where(value > 0, value * self.logits, 0.0)
        return jnp.where(inside, jnp.sum(chosen, axis=(1, 2)) + choices, -jnp.inf)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw counts by topic, as floats.

        Raises:
            ValueError: ``num_tokens`` is not set.
        """
        if self.num_tokens is None:
            raise ValueError("num_tokens is not set: the longest document bounds the loops of a draw")
        probs = jnp.moveaxis(jnp.exp(self.logits), 1, -1)
        most = int(np.max(self.num_tokens))
        cells = dist.Multinomial(self.counts.astype(int), probs, total_count_max=most)
        return jnp.moveaxis(cells.sample(key), -1, 1).astype(self.logits.dtype)


class TopicTotals(dist.Distribution):
    """The point mass of the words of documents given the counts by topic.

    Args:
        word_topics: shape (num_documents, num_topics, num_words).
    """

    support = dist.constraints.independent(dist.constraints.nonnegative_integer, 1)
    pytree_data_fields = ("word_topics",)

    def __init__(self, word_topics: Array) -> None:
        self.word_topics = word_topics
        shape = word_topics.shape
        super().__init__(shape[:1], shape[2:])

    def log_prob(self, value: SparseCounts | Array) -> Array:
        """Log probability: zero where the counts are those totals, else minus infinity."""
        equal = jnp.all(dense_counts(value) == jnp.sum(self.word_topics, axis=1), axis=-1)
        return jnp.where(equal, 0.0, -jnp.inf)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """The totals."""
        return jnp.sum(self.word_topics, axis=1)


def _safe_log(probs: Array) -> Array:
    """Log of probabilities of which some may have rounded to zero."""
    return jnp.log(jnp.maximum(probs, jnp.finfo(jnp.result_type(probs)).tiny))
