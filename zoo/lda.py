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

from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
from jax import Array
from numpyro import sample

from zoo.documents.answers import LDAAnswers
from zoo.documents.bags import BagsOfWords
from zoo.documents.topic_model import LENGTHS, SHARES, TopicModel
from zoo.fields import pseudo_counts, size, size_of, static
from zoo.programs import local
from zoo.sparse import SparseCounts
from zoo.supports.small_probabilities import Dirichlet


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

    num_topics: int = size(10)
    topic_prior: Array | None = pseudo_counts(**SHARES)
    word_smoothing: Array = pseudo_counts(0.1)
    num_words: int | None = size_of("counts", 2)
    num_tokens: int | tuple[int, ...] | None = static(None, **LENGTHS)

    def program(self, counts: SparseCounts, rows: numpyro.plate) -> Array:
        """Topics; then the topic shares and the words of each document."""
        with numpyro.plate("topics", self.num_topics):
            smoothing = jnp.full(self.num_words, self.word_smoothing)
            topics = sample("topic_word_probs", Dirichlet(smoothing))
        with rows:
            shares = local("doc_topic_probs", Dirichlet(self.shares_concentration), sums_out=False)
            words = BagsOfWords(shares, topics, self.num_tokens)
            by_topic = local("word_topics", words.by_topic, draws_rows=False)
            return sample("counts", words.given(by_topic), obs=counts)

    dims = {
        "topic_word_probs": ("topic", "word"),
        "doc_topic_probs": ("document", "topic"),
        "word_topics": ("document", "topic", "word"),
        "topic_word_concentration": ("topic", "word"),
        "doc_topic_concentration": ("document", "topic"),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    methods = ("vb", "collapsed_gibbs", "gibbs", "nuts", "hmc", "svi", "tempered")
    roles = TopicModel.roles._replace(document_topic="doc_topic_probs")
    answers = LDAAnswers
