r"""The probabilistic clustering-projection model: documents are clustered, clusters are mixtures of topics.

Generative process, in the letters of Yu (2006, section 9.1)::

    pi          ~ Dirichlet(alpha/M, ..., alpha/M)                 weight_prior="dirichlet"
    V_j         ~ Beta(1, alpha), j < M;  V_M = 1                  weight_prior="stick_breaking"
                  that is, -log(1 - V_j) ~ Exponential(alpha)
    beta_k      ~ Dirichlet(eps, ..., eps), k = 1..K               topics over the W words
    theta_m     ~ Dirichlet(lambda_1, ..., lambda_K), m = 1..M     topic shares of a cluster
    c_d         ~ Categorical(pi), d = 1..D
    z_dn        ~ Categorical(theta_{c_d}), n = 1..N_d
    w_dn        ~ Categorical(beta_{z_dn})

======================  =======================  ===============  ============================================
letter                  site                     shape            support
======================  =======================  ===============  ============================================
-log(1 - V)             ``stick_decays``         (M - 1,)         positive; only with ``"stick_breaking"``
V                       ``stick_fractions``      (M - 1,)         deterministic, of the decays
pi                      ``cluster_weights``      (M,)             simplex
beta                    ``topic_word_probs``     (K, W)           simplex, row by row
theta                   ``cluster_topic_probs``  (M, K)           simplex, row by row
c                       ``doc_clusters``         (D,)             0..M-1; summed out unless ``explicit``
z                       ``word_topics``          (D, K, W)        counts: tokens of each word by topic; summed
                                                                  out unless ``explicit``
w                       ``counts``               (D, W)           data: tokens of each word
======================  =======================  ===============  ============================================

Given the parameters a document's density is exact: a mixture of M multinomials whose centres are the product
theta beta of rank K. Symmetries: clusters may be permuted (under Dirichlet weights), and topics.

Departures from the source. Topics are parameters there, smoothed by an additive constant (section 9.1.3);
here they have a Dirichlet prior, of which that constant plus one gives the same estimate.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import sample

from zoo.dirichlet_process import WeightPrior, weight_prior
from zoo.documents.answers import PCPAnswers
from zoo.documents.bags import ClusteredBags
from zoo.documents.topic_model import LENGTHS, SHARES, TopicModel
from zoo.fields import choice, pseudo_counts, size, size_of, static
from zoo.programs import local
from zoo.shapes import Values
from zoo.sparse import SparseCounts
from zoo.supports.small_probabilities import Dirichlet


@dataclass(frozen=True, eq=False)
class PCP(TopicModel):
    """The probabilistic clustering-projection model.

    Attributes:
        num_topics: K.
        num_clusters: M, the number of clusters or the truncation of the Dirichlet process.
        concentration: alpha > 0.
        topic_prior: lambda > 0, one number or one for each topic; None: 1 / K.
        word_smoothing: eps > 0, prior pseudo-count of each word in each topic.
        weight_prior: ``"dirichlet"`` (finite clusters, alpha / M each) or ``"stick_breaking"`` (truncated
            Dirichlet process).
        num_words: W; read off the data.
        num_tokens: length of every document that the program draws without data, or one for each; read off
            the data.

    Example:
        >>> import numpy as np, zoo
        >>> counts = np.random.default_rng(0).poisson(1.0, size=(20, 8))
        >>> zoo.PCP.from_data(counts, num_topics=3, num_clusters=4).num_words
        8
    """

    num_topics: int = size(10)
    num_clusters: int = size(20)
    concentration: Array = pseudo_counts(1.0)
    topic_prior: Array | None = pseudo_counts(**SHARES)
    word_smoothing: Array = pseudo_counts(0.1)
    weight_prior: str = choice("dirichlet", "stick_breaking")
    num_words: int | None = size_of("counts", 2)
    num_tokens: int | tuple[int, ...] | None = static(None, **LENGTHS)

    def program(self, counts: SparseCounts, rows: numpyro.plate) -> Array:
        """Clusters with their topic shares, and topics; then the cluster and the words of each document."""
        log_weights = self.weights.sample(self.concentration)
        with numpyro.plate("topics", self.num_topics):
            smoothing = jnp.full(self.num_words, self.word_smoothing)
            topics = sample("topic_word_probs", Dirichlet(smoothing))
        with numpyro.plate("clusters", self.num_clusters):
            shares = sample("cluster_topic_probs", Dirichlet(self.shares_concentration))
        with rows:
            cluster = local("doc_clusters", dist.Categorical(logits=log_weights))
            words = ClusteredBags(log_weights, shares, topics, rows.size, self.num_tokens).of(cluster)
            by_topic = local("word_topics", words.by_topic, draws_rows=False)
            return sample("counts", words.given(by_topic), obs=counts)

    dims = {
        "stick_decays": ("stick",),
        "stick_fractions": ("stick",),
        "stick_fractions_*": ("stick",),
        "cluster_weights": ("cluster",),
        "cluster_weights_concentration": ("cluster",),
        "topic_word_probs": ("topic", "word"),
        "cluster_topic_probs": ("cluster", "topic"),
        "doc_clusters": ("document",),
        "word_topics": ("document", "topic", "word"),
        "topic_word_concentration": ("topic", "word"),
        "cluster_topic_concentration": ("cluster", "topic"),
        "responsibilities": ("document", "cluster"),
        "num_occupied": (),
        "counts": ("document", "word"),
    }
    symmetries = ("labels",)
    methods = ("vb", "collapsed_gibbs", "gibbs", "nuts", "hmc", "svi", "tempered")
    roles = TopicModel.roles._replace(
        cluster="doc_clusters", weight="cluster_weights", cluster_topic="cluster_topic_probs"
    )
    answers = PCPAnswers

    @property
    def weights(self) -> WeightPrior:
        """The prior of the weights (one cluster has no sticks: its weight is 1 under either prior)."""
        return weight_prior(self.weight_prior, self.num_clusters, name="cluster_weights")

    def log_weights(self, values: Values) -> Array:
        """The clusters' log weights at given values of the sites.

        Args:
            values: of the sites; ``stick_decays``, ``stick_fractions`` or ``cluster_weights`` is read.

        Returns:
            Shape (num_clusters,).
        """
        if "stick_decays" in values or "stick_fractions" in values:
            return self.weights.log_weights(values)
        tiny = jnp.finfo(values["cluster_weights"].dtype).tiny
        return jnp.log(jnp.maximum(values["cluster_weights"], tiny))

    def log_joint_documents(self, values: Values, counts: SparseCounts) -> Array:
        """Log weight plus log density of each document under each cluster.

        Args:
            values: of the sites.
            counts: shape (num_documents, num_words), dense or sparse.

        Returns:
            Shape (num_documents, num_clusters), in nats.
        """
        parts = values["cluster_topic_probs"], values["topic_word_probs"]
        return ClusteredBags(self.log_weights(values), *parts, counts.shape[0]).by_cluster(counts)

    def expected(self, stored: Values) -> dict[str, Array]:
        """Sites at their mean under q, or at the stored estimate; weights by their stick fractions.

        Args:
            stored: variables of the group ``variational``.

        Returns:
            Site to value, shapes as in ``dims``.
        """
        values = super().expected(stored)
        if "stick_fractions_concentration1" in stored:
            a, b = stored["stick_fractions_concentration1"], stored["stick_fractions_concentration0"]
            values["stick_fractions"] = a / (a + b)
        return values
