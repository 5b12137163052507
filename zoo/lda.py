r"""Latent Dirichlet allocation.

Generative process, in the letters of Yu (2006, section 4.2.2; Blei, Ng and Jordan 2003)::

    beta_k      ~ Dirichlet(eps, ..., eps), k = 1..K               topics over the W words
    theta_d     ~ Dirichlet(lambda_1, ..., lambda_K), d = 1..D     topic shares of a document
    z_dn        ~ Categorical(theta_d), n = 1..N_d
    w_dn        ~ Categorical(beta_{z_dn})

======================  ====================  ==================  ============================================
letter                  site                  shape               support
======================  ====================  ==================  ============================================
beta                    ``topic_word_probs``  (K, W)              simplex, row by row
theta                   ``doc_topic_probs``   (D, K)              simplex, row by row
z                       ``word_topics``       (D, K, W)           counts: tokens of each word by topic; summed
                                                                  out unless ``explicit``
w                       ``counts``            (D, W)              data: tokens of each word
======================  ====================  ==================  ============================================

Tokens are exchangeable, so a document is its counts, and the topics of its words are counts too:
:math:`x_d \sim \mathrm{Multinomial}(N_d, \theta_d' \beta)` and, explicitly,
``word_topics`` :math:`\sim \mathrm{Multinomial}(N_d, \theta_{dk} \beta_{kw})`, whose totals over topics are
the data. Document lengths are given. Both densities have their multinomial coefficients.

Symmetries: the posterior does not change when topics are permuted (with equal lambda).

Departures from the source. The thesis has topics as parameters with an additive smoothing; here they have a
Dirichlet prior, of which that smoothing (plus one) is the maximum a posteriori.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from jax import Array
from jax.scipy.special import gammaln

from zoo.checks import check_concentration, check_positive
from zoo.documents.bags import BagsOfWords, TopicCounts, TopicTotals, log_coefficients
from zoo.documents.shares import cell_sums, fold_in, log_integrals
from zoo.documents.topic_model import TopicModel
from zoo.gamma_functions import expected_log
from zoo.model import in_current_precision, static
from zoo.shapes import PerRow, Scores
from zoo.sparse import SparseCounts
from zoo.supports.small_probabilities import Dirichlet

__all__ = ["LDA"]

INTEGRATION_SEED = 0  # of the importance sampling that integrates topic shares out


@dataclass(frozen=True, eq=False)
class LDA(TopicModel):
    """Latent Dirichlet allocation.

    Attributes:
        num_topics: K.
        topic_prior: lambda > 0, one number or one for each topic; None: 1 / K.
        word_smoothing: eps > 0, prior pseudo-count of each word in each topic.
        num_words: W; read off the data.
        num_tokens: length of every document that the program draws without data, or one for each; read off
            the data.

    Example:
        >>> import numpy as np, zoo
        >>> counts = np.random.default_rng(0).poisson(1.0, size=(20, 8))
        >>> zoo.LDA.from_data(counts, num_topics=3).num_words
        8
    """

    num_topics: int = static(default=10)
    topic_prior: Array | None = None
    word_smoothing: Array = 0.1
    num_words: int | None = static(default=None)
    num_tokens: int | tuple[int, ...] | None = static(default=None)

    dims = {
        "topic_word_probs": ("topic", "word"),
        "doc_topic_probs": ("document", "topic"),
        "word_topics": ("document", "topic", "word"),
        "topic_word_concentration": ("topic", "word"),
        "doc_topic_concentration": ("document", "topic"),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    relations = {
        "batches": "no: steps on batches are noisy, and end near the optimum of the whole",
        "empty_document": "same, and its shares are the prior's",
        "unused_word": "no: the prior gives every word of the vocabulary a share",
        "fitted_rows": "same as stored, to the tolerance of passes over documents",
    }
    methods = ("vb", "collapsed_gibbs", "gibbs", "nuts", "hmc", "svi")
    concentration_fields = ("topic_prior", "word_smoothing")
    sums_out_locals = False
    estimates_density = True
    local_sites = ("doc_topic_probs",)
    document_topic_site = "doc_topic_probs"

    def __call__(self, counts: Any = None, *, num_observations: int | None = None) -> Array:
        """The NumPyro program: with ``counts`` it conditions, without them it draws documents.

        Args:
            counts: shape (num_documents, num_words), dense or sparse.
            num_observations: how many documents to draw.

        Returns:
            ``counts``, or those drawn, dense, shape (num_documents, num_words).
        """
        num_documents, num_words = self._sizes(counts, num_observations)
        prior = in_current_precision(self)
        with numpyro.plate("topics", self.num_topics):
            smoothing = jnp.full(num_words, prior.word_smoothing)
            topics = numpyro.sample("topic_word_probs", Dirichlet(smoothing))
        with numpyro.plate("documents", num_documents):
            shares = numpyro.sample("doc_topic_probs", Dirichlet(prior._topic_prior()))
            if not self.draw_locals:
                documents = BagsOfWords(shares, topics, self.num_tokens)
                return numpyro.sample("counts", documents, obs=counts)
            word_topics = numpyro.sample("word_topics", TopicCounts(shares, topics, self.num_tokens))
            return numpyro.sample("counts", TopicTotals(word_topics), obs=counts)

    # Closed-form companions of the program

    def log_likelihood(self, values: Mapping[str, Array], counts: Any) -> PerRow:
        """Log density of each document, given its topic shares if ``values`` has them.

        Else (new documents) with them integrated out by importance sampling.

        Args:
            values: of the sites.
            counts: shape (num_documents, num_words), dense or sparse.

        Returns:
            Shape (num_documents,), in nats.
        """
        if "doc_topic_probs" in values:
            return BagsOfWords(values["doc_topic_probs"], values["topic_word_probs"]).log_prob(counts)
        prior, by_word = in_current_precision(self), values["topic_word_probs"].T
        key = jax.random.key(INTEGRATION_SEED)
        found = log_integrals(key, counts, by_word, prior._topic_prior())
        return found.value + log_coefficients(counts)

    def sampling_errors(self, values: Mapping[str, Array], counts: SparseCounts) -> Array:
        """Standard errors of the importance sampling by which `log_likelihood` scores new documents.

        Args:
            values: of the sites.
            counts: the documents.

        Returns:
            Shape (num_documents,), in nats.
        """
        prior, by_word = in_current_precision(self), values["topic_word_probs"].T
        key = jax.random.key(INTEGRATION_SEED)
        return log_integrals(key, counts, by_word, prior._topic_prior()).standard_error

    def scores(self, values: Mapping[str, Array], counts: Any, *, kind: str = "latent") -> Scores:
        """Expected topic shares of documents given the topics, by mean field.

        Raises:
            ValueError: another kind than ``"latent"``.
        """
        self._check_kind(kind)
        prior = in_current_precision(self)
        gamma = fold_in(counts, values["topic_word_probs"].T, prior._topic_prior())
        return gamma / jnp.sum(gamma, axis=-1, keepdims=True)

    def document_bounds(self, stored: Mapping[str, Array], counts: SparseCounts) -> Array:
        """Terms of new documents in the evidence lower bound, with q of the topics held.

        Args:
            stored: ``topic_word_concentration`` is read.
            counts: the documents.

        Returns:
            Shape (num_documents,), in nats.
        """
        log_topics = expected_log(stored["topic_word_concentration"])
        prior = in_current_precision(self)._topic_prior()
        gamma = fold_in(counts, jnp.exp(log_topics).T, prior)
        expected = expected_log(gamma)
        words = cell_sums(counts, jnp.exp(expected), jnp.exp(log_topics).T).log_sums
        return words - _row_divergences(gamma, prior)

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        self._check_sizes()
        self._check_topic_prior()
        check_positive("word_smoothing", self.word_smoothing)
        check_concentration("word_smoothing", self.word_smoothing)


def _row_divergences(gamma: Array, prior: Array) -> Array:
    """KL of each row's Dirichlet from the prior, in nats."""
    total = gammaln(jnp.sum(gamma, axis=-1)) - jnp.sum(gammaln(gamma), axis=-1)
    total -= gammaln(jnp.sum(prior)) - jnp.sum(gammaln(prior))
    return total + jnp.sum((gamma - prior) * expected_log(gamma), axis=-1)
