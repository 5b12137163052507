"""The base class of topic models: their data, sizes and checks."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import softmax

from zoo.checks import check_lengths, check_unique
from zoo.documents.bags import as_counts, check_word_counts
from zoo.fields import Part
from zoo.model import Model, Roles, Table
from zoo.shapes import Values
from zoo.sparse import SparseCounts


def dirichlet_of(site: str) -> str:
    """Name of the parameters of the Dirichlet factor of a site in q.

    Args:
        site: of the program, such as ``"topic_word_probs"``.

    Returns:
        ``"topic_word_concentration"``.
    """
    return f"{site.removesuffix('_probs')}_concentration"


def lengths_of(model: "TopicModel", counts: Part) -> tuple[int, ...]:
    """The numbers of words of the documents."""
    held = counts.rows
    return tuple(int(length) for length in np.bincount(held.document, held.count, held.shape[0]))


# facts of a field with the numbers of words of documents, and with the Dirichlet parameters of topic shares
LENGTHS: dict[str, Any] = {"check": lambda name, value, _: check_lengths(name, value), "read": lengths_of}
SHARES: dict[str, Any] = {
    "dims": lambda model: {"each topic": model.num_topics},
    "or_one": True,
    "otherwise": lambda model: 1.0 / model.num_topics,
}


class TopicModel(Model):
    """A model of a document-term matrix; subclasses have ``num_topics``, ``num_words`` and ``num_tokens``.

    Documents have individual topic shares (``roles.document_topic``), or those of their cluster
    (``roles.cluster_topic``, with ``cluster`` and ``weight``). Without ``cluster_topic`` each
    cluster is a topic.

    Class attributes beside those of `zoo.model.Model`:
        scored_over_fitted: whether the likelihood of a new document is that of the mixture over the topic
            shares of the fitted ones, for want of a prior of shares.
    """

    data = (Table("counts", ("documents",), missing=False, sparse="counts"),)
    roles: ClassVar[Roles] = Roles(topic="topic_word_probs", scores=("document", "topic"))
    scored_over_fitted: ClassVar[bool] = False
    num_topics: int
    num_words: int
    num_tokens: int | tuple[int, ...] | None
    topic_prior: Array
    log_joint_documents: Callable

    def with_sizes_from(self, counts: Any, sample_weight: np.ndarray | None = None) -> Self:
        """The model with the vocabulary's size and the documents' lengths read off."""
        if hasattr(counts, "columns"):
            check_unique(counts.columns, "counts", "words")
        counts = as_counts(counts)
        check_word_counts(counts, None)
        return super().with_sizes_from(counts)

    def check(self, counts: SparseCounts) -> None:
        """Raise ValueError if the documents do not suit the model, or all of them are empty."""
        self.check_new(counts)
        if not as_counts(counts).count.any():
            raise ValueError(
                "counts holds no word at all: every document is empty, and there is nothing to fit"
            )

    def check_new(self, counts: SparseCounts) -> None:
        """Raise ValueError if new documents do not suit the (fitted) model."""
        check_word_counts(as_counts(counts), self.num_words)

    def impossible(self, values: Values, counts: SparseCounts) -> Array:
        """Whether documents hold a word that no topic gives: their density is zero.

        Args:
            values: of the sites; ``topic_word_probs`` is read.
            counts: the documents.

        Returns:
            Shape (num_documents,), truth values.
        """
        never = jnp.max(values[self.roles.topic], axis=0) <= 0
        return counts.times(never[:, None].astype(float))[:, 0] > 0

    @property
    def share_sites(self) -> tuple[str, ...]:
        """Variables, besides the topics, that determine the topic shares of documents."""
        if self.roles.document_topic is not None:
            return (self.roles.document_topic,)
        return tuple(site for site in (self.roles.cluster_topic, self.roles.weight) if site is not None)

    def centres(self, values: Mapping[str, Any]) -> Any:
        """Topic shares of the clusters of documents, dims (..., cluster, topic).

        Args:
            values: of the sites.

        Returns:
            Rows that sum to one; the identity where each cluster is a topic.
        """
        site = self.roles.cluster_topic
        return np.eye(self.num_topics) if site is None else values[site]

    def document_shares(
        self, values: Mapping[str, np.ndarray], counts: SparseCounts, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Topic shares of documents for new words and for their observed ones, at one draw.

        Args:
            values: of the draw.
            counts: the documents, shape (num_documents, num_words), a sparse matrix.
            rng: of the clusters: drawn from their prior for new words, given the words for the observed ones.

        Returns:
            Two arrays of shape (num_documents, num_topics).
        """
        if self.roles.document_topic is not None:
            return (values[self.roles.document_topic],) * 2
        centres, weights = self.centres(values), values[self.roles.weight]
        tiny = np.finfo(float).tiny
        words = np.log(np.maximum(centres @ values[self.roles.topic], tiny))
        scores = counts @ words.T + np.log(np.maximum(weights, tiny))
        prior = np.broadcast_to(weights / weights.sum(), scores.shape)
        return centres[_one_of(prior, rng)], centres[_one_of(softmax(scores, axis=1), rng)]

    def expected(self, stored: Values) -> dict[str, Array]:
        """Sites at their mean under q, or at the stored estimate.

        Args:
            stored: variables of the group ``variational``; ``*_concentration`` are of Dirichlets.

        Returns:
            Site to value, shapes as in ``dims``.
        """
        values = {}
        for site in self.dims:
            if site in stored and not site.endswith("_concentration"):
                values[site] = stored[site]
            elif dirichlet_of(site) in stored:
                concentration = stored[dirichlet_of(site)]
                values[site] = concentration / jnp.sum(concentration, axis=-1, keepdims=True)
        return values

    @property
    def shares_concentration(self) -> Array:
        """Dirichlet parameters over topics, shape (num_topics,)."""
        return jnp.broadcast_to(self.topic_prior, (self.num_topics,))


def _one_of(probs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a column for each row by its probabilities."""
    below = np.cumsum(probs, axis=1)
    reached = rng.random(len(probs))[:, None] * below[:, -1:] >= below
    return np.minimum(reached.sum(1), probs.shape[1] - 1)
