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

from dataclasses import dataclass

import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import sample

from zoo.documents.answers import PLSIAnswers
from zoo.documents.bags import BagsOfWords
from zoo.documents.topic_model import LENGTHS, TopicModel
from zoo.fields import size, size_of, static
from zoo.programs import local
from zoo.sparse import SparseCounts


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

    num_topics: int = size(10)
    num_words: int | None = size_of("counts", 2)
    num_tokens: int | tuple[int, ...] | None = static(None, **LENGTHS)

    def program(self, counts: SparseCounts, rows: numpyro.plate) -> Array:
        """Topics; then the topic shares and the words of each document."""
        simplex = dist.constraints.simplex
        with numpyro.plate("topics", self.num_topics):
            topics = sample("topic_word_probs", dist.ImproperUniform(simplex, (), (self.num_words,)))
        with rows:
            flat = dist.ImproperUniform(simplex, (), (self.num_topics,))
            shares = local("doc_topic_probs", flat, sums_out=False)
            words = BagsOfWords(shares, topics, self.num_tokens)
            by_topic = local("word_topics", words.by_topic, draws_rows=False)
            return sample("counts", words.given(by_topic), obs=counts)

    dims = {
        "topic_word_probs": ("topic", "word"),
        "doc_topic_probs": ("document", "topic"),
        "word_topics": ("document", "topic", "word"),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    methods = ("em", "nuts", "hmc", "svi")
    roles = TopicModel.roles._replace(document_topic="doc_topic_probs")
    scored_over_fitted = True
    answers = PLSIAnswers

    @property
    def prior(self) -> str:
        """Always ``"improper"``, since topics and shares are parameters."""
        return "improper"
