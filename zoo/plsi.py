r"""Probabilistic latent semantic indexing.

Generative process, in the letters of Yu (2006, section 4.2.1; Hofmann 1999), documents given::

    beta_k      a parameter: word probabilities of topic k = 1..K
    theta_d     a parameter: topic shares of document d = 1..D
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

Nothing is assumed of the parameters: their "prior" is flat over the simplexes and the program draws no new
documents. With the total of each document given the likelihood is that of a factorisation of the counts under
the I-divergence (Gaussier and Goutte 2005). Symmetries: topics may be permuted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.documents.bags import BagsOfWords, TopicCounts, TopicTotals
from zoo.documents.shares import likely_shares
from zoo.documents.topic_model import TopicModel
from zoo.model import static
from zoo.shapes import PerRow, Scores

__all__ = ["PLSI"]


@dataclass(frozen=True, eq=False)
class PLSI(TopicModel):
    """Probabilistic latent semantic indexing.

    Attributes:
        num_topics: K.
        num_words: W; read off the data.
        num_tokens: length of each document; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> zoo.PLSI.from_data(np.eye(4) + 1, num_topics=2).num_words
        4
    """

    num_topics: int = static(default=10)
    num_words: int | None = static(default=None)
    num_tokens: int | tuple[int, ...] | None = static(default=None)

    dims = {
        "topic_word_probs": ("topic", "word"),
        "doc_topic_probs": ("document", "topic"),
        "word_topics": ("document", "topic", "word"),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    relations = {
        "empty_document": "same",
        "unused_word": "same, with probability 0",
        "fitted_rows": "same as stored, to the tolerance of passes over documents",
    }
    methods = ("em", "nuts", "hmc", "svi")
    sums_out_locals = False
    local_sites = ("doc_topic_probs",)
    document_topic_site = "doc_topic_probs"
    scored_over_fitted = True

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name == "unused_word" and method != "em":
            return "no: under a flat prior every word of the vocabulary has a share in a draw"
        return super().relation_of(name, method)

    def __call__(self, counts: Any = None, *, num_observations: int | None = None) -> Array:
        """The NumPyro program, which cannot draw documents because its parameters have no proper prior.

        Args:
            counts: shape (num_documents, num_words), dense or sparse.
            num_observations: refused.

        Returns:
            ``counts``, shape (num_documents, num_words).

        Raises:
            ValueError: no data.
        """
        if counts is None:
            raise ValueError("PLSI has parameters without a prior: there is nothing to draw documents from")
        simplex = dist.constraints.simplex
        with numpyro.plate("topics", self.num_topics):
            flat = dist.ImproperUniform(simplex, (), (counts.shape[1],))
            topics = numpyro.sample("topic_word_probs", flat)
        with numpyro.plate("documents", counts.shape[0]):
            flat = dist.ImproperUniform(simplex, (), (self.num_topics,))
            shares = numpyro.sample("doc_topic_probs", flat)
            if not self.draw_locals:
                return numpyro.sample("counts", BagsOfWords(shares, topics, self.num_tokens), obs=counts)
            word_topics = numpyro.sample("word_topics", TopicCounts(shares, topics, self.num_tokens))
            return numpyro.sample("counts", TopicTotals(word_topics), obs=counts)

    @property
    def prior(self) -> str:
        """Always ``"improper"``, since topics and shares are parameters."""
        return "improper"

    def log_likelihood(self, values: Mapping[str, Array], counts: Any) -> PerRow:
        """Log density of each document at its given or its most likely topic shares.

        That of a new document with a word that no topic gives is minus infinity.

        Args:
            values: of the sites.
            counts: shape (num_documents, num_words), dense or sparse.

        Returns:
            Shape (num_documents,), in nats.
        """
        shares, topics = values.get("doc_topic_probs"), values["topic_word_probs"]
        if shares is not None:
            return BagsOfWords(shares, topics).log_prob(counts)
        scores = BagsOfWords(likely_shares(counts, topics.T), topics).log_prob(counts)
        return jnp.where(self.impossible(values, counts), -jnp.inf, scores)

    def scores(self, values: Mapping[str, Array], counts: Any, *, kind: str = "latent") -> Scores:
        """Most likely topic shares of documents given the topics (folding-in).

        Raises:
            ValueError: another kind than ``"latent"``.
        """
        self._check_kind(kind)
        return likely_shares(counts, values["topic_word_probs"].T)

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        self._check_sizes()
