"""Closed forms of the topic models: densities and topic shares of documents at given topics."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from zoo.answers import Answers
from zoo.dirichlet_process import compact_labels
from zoo.documents.bags import BagsOfWords, log_coefficients
from zoo.documents.shares import LogIntegrals, cell_sums, fold_in, likely_shares, log_integrals
from zoo.gamma_functions import expected_log
from zoo.shapes import PerRow, Scores, Values
from zoo.sparse import SparseCounts

if TYPE_CHECKING:
    from zoo.documents.topic_model import TopicModel
    from zoo.pcp import PCP

INTEGRATION_SEED = 0  # of the importance sampling that integrates topic shares out


class TopicAnswers(Answers):
    """Closed forms of a topic model; documents are counts, dense or sparse."""

    def sums_out_locals(self, model: "TopicModel") -> bool:
        """Where documents have no topic shares of their own, the clusters of which are summed out."""
        return model.roles.document_topic is None

    def sampling_errors(self, model: "TopicModel", values: Values, counts: SparseCounts) -> Array:
        """Standard errors of the log densities of new documents where these are estimated by sampling.

        Args:
            model: the model.
            values: of the sites.
            counts: the documents.

        Returns:
            Shape (num_documents,), in nats; zero where they are computed exactly.
        """
        return jnp.zeros(counts.shape[0])

    def document_bounds(self, model: "TopicModel", stored: Values, counts: SparseCounts) -> Array:
        """Terms of new documents in the evidence lower bound, with the factors of the parameters held at q.

        Args:
            model: the model.
            stored: variables of the group ``variational``.
            counts: the documents.

        Returns:
            Shape (num_documents,), in nats, without multinomial coefficients.

        Raises:
            ValueError: no such bound is known of the model.
        """
        raise ValueError(
            f"{type(model).__name__} has no bound of new documents: score them by 'likelihood' or "
            "'completion'"
        )


class LDAAnswers(TopicAnswers):
    """Topic shares are given, or integrated out by importance sampling."""

    estimates_density = True

    def log_rows(self, model: "TopicModel", values: Values, counts: SparseCounts) -> PerRow:
        """Log density of each document, given its topic shares if ``values`` has them."""
        if "doc_topic_probs" in values:
            return BagsOfWords(values["doc_topic_probs"], values["topic_word_probs"]).log_prob(counts)
        return _integrals(model, values, counts).value + log_coefficients(counts)

    def sampling_errors(self, model: "TopicModel", values: Values, counts: SparseCounts) -> Array:
        """Those of the importance sampling by which new documents are scored."""
        return _integrals(model, values, counts).standard_error

    def scores(
        self, model: "TopicModel", values: Values, counts: SparseCounts, *, kind: str = "latent"
    ) -> Scores:
        """Expected topic shares of documents given the topics, by mean field."""
        _check_kind(kind)
        gamma = fold_in(counts, values["topic_word_probs"].T, model.shares_concentration)
        return gamma / jnp.sum(gamma, axis=-1, keepdims=True)

    def document_bounds(self, model: "TopicModel", stored: Values, counts: SparseCounts) -> Array:
        """Terms of new documents in the evidence lower bound, with q of the topics held."""
        log_topics, prior = expected_log(stored["topic_word_concentration"]), model.shares_concentration
        gamma = fold_in(counts, jnp.exp(log_topics).T, prior)
        words = cell_sums(counts, jnp.exp(expected_log(gamma)), jnp.exp(log_topics).T).log_sums
        return words - _row_divergences(gamma, prior)


class PLSIAnswers(TopicAnswers):
    """Topic shares are parameters: given, or the most likely ones."""

    def log_rows(self, model: "TopicModel", values: Values, counts: SparseCounts) -> PerRow:
        """Log density of each document; minus infinity of a new one with a word that no topic gives."""
        shares, topics = values.get("doc_topic_probs"), values["topic_word_probs"]
        if shares is not None:
            return BagsOfWords(shares, topics).log_prob(counts)
        scores = BagsOfWords(likely_shares(counts, topics.T), topics).log_prob(counts)
        return jnp.where(model.impossible(values, counts), -jnp.inf, scores)

    def scores(
        self, model: "TopicModel", values: Values, counts: SparseCounts, *, kind: str = "latent"
    ) -> Scores:
        """Most likely topic shares of documents given the topics (folding-in)."""
        _check_kind(kind)
        return likely_shares(counts, values["topic_word_probs"].T)


class PCPAnswers(TopicAnswers):
    """The cluster of a document and the topics of its words are summed out."""

    def log_rows(self, model: "TopicModel", values: Values, counts: SparseCounts) -> PerRow:
        """Log density of each document."""
        return jax.nn.logsumexp(model.log_joint_documents(values, counts), axis=-1)

    def conditionals(
        self, model: "TopicModel", values: Values, counts: SparseCounts
    ) -> dict[str, dist.Distribution]:
        """The documents' clusters given everything else but the topics of their words."""
        return {"doc_clusters": dist.Categorical(logits=model.log_joint_documents(values, counts))}

    def scores(
        self, model: "TopicModel", values: Values, counts: SparseCounts, *, kind: str = "latent"
    ) -> Scores:
        """Expected topic shares of documents: those of the clusters, weighted by their probabilities."""
        _check_kind(kind)
        probs = jax.nn.softmax(model.log_joint_documents(values, counts), axis=-1)
        return probs @ values["cluster_topic_probs"]

    def document_bounds(self, model: "PCP", stored: Values, counts: SparseCounts) -> Array:
        """Terms of new documents in the evidence lower bound, with q of the parameters held."""
        log_topics = expected_log(stored["topic_word_concentration"])
        shares = jnp.exp(expected_log(stored["cluster_topic_concentration"]))
        log_centres = jnp.log(jnp.maximum(shares @ jnp.exp(log_topics), jnp.finfo(shares.dtype).tiny))
        if "cluster_weights_concentration" in stored:
            log_weights = expected_log(stored["cluster_weights_concentration"])
        else:
            parts = stored["stick_fractions_concentration1"], stored["stick_fractions_concentration0"]
            log_weights = model.weights.expected_log_weights(dist.Beta(*parts))
        return jax.nn.logsumexp(counts.times(log_centres.T) + log_weights, axis=-1)

    def derived(self, model: "PCP", values: Values) -> dict[str, Array]:
        """Clusters in the smallest type that holds them, and the number with at least one document."""
        clusters, num_occupied = compact_labels(values["doc_clusters"], model.num_clusters)
        return {"doc_clusters": clusters, "num_occupied": num_occupied}


def _integrals(model: "TopicModel", values: Values, counts: SparseCounts) -> LogIntegrals:
    """Log densities of new documents without coefficients, topic shares integrated out."""
    by_word = values["topic_word_probs"].T
    return log_integrals(jax.random.key(INTEGRATION_SEED), counts, by_word, model.shares_concentration)


def _check_kind(kind: str) -> None:
    """Raise ValueError unless ``kind`` means the topic shares."""
    if kind != "latent":
        raise ValueError(f"a topic model has one kind of scores, the topic shares; got {kind!r}")


def _row_divergences(gamma: Array, prior: Array) -> Array:
    """KL of each row's Dirichlet from the prior, in nats."""
    total = gammaln(jnp.sum(gamma, axis=-1)) - jnp.sum(gammaln(gamma), axis=-1)
    total -= gammaln(jnp.sum(prior)) - jnp.sum(gammaln(prior))
    return total + jnp.sum((gamma - prior) * expected_log(gamma), axis=-1)
