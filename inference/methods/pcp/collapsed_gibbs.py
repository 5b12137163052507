r"""Collapsed Gibbs sampling for the probabilistic clustering-projection model.

Weights, clusters' shares and topics are integrated out. A sweep visits the tokens one by one, as LDA's does
with the tokens of the document's cluster in the place of those of the document, then the documents one by
one, each taken out of the counts with the topics of its words first:

.. math::
    p(c_d = m \mid c_{-d}, z) \propto w_m\, \frac{\Gamma(\Lambda + S_{m\cdot})}{\Gamma(\Lambda + S_{m\cdot} +
    N_d)} \prod_k \frac{\Gamma(\lambda_k + S_{mk} + s_{dk})}{\Gamma(\lambda_k + S_{mk})},

:math:`s_{dk}` being the document's tokens by topic and w the weight of the cluster without the document:
:math:`N_m + \alpha/M`, or under stick-breaking :math:`E[\pi_m]` given the other documents' clusters. After
the run the parameters are drawn given every kept draw. Cost O(tokens x K + D M K). A document moves with the
topics of its words held, so that it moves less easily than in the blocked sampler, which sums them out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.algorithm import Algorithm, Outcome
from inference.methods.documents.tokens import (
    Tokens,
    given_topics,
    log_dirichlet_multinomial,
    tokens_of,
    topic_sampler,
)
from inference.methods.lda.collapsed_gibbs import scan_tokens
from inference.methods.lda.gibbs import TopicGibbsInfo
from inference.methods.pcp import CollapsedGibbs
from inference.methods.pcp.gibbs import posteriors
from inference.numerics.compiled import compiled
from inference.numerics.gamma_draws import draw
from inference.numerics.programs import map_draws
from zoo.answers import answer_of
from zoo.gamma_functions import gammaln
from zoo.model import in_current_precision
from zoo.pcp import PCP
from zoo.shapes import Values


class CollapsedPCPState(NamedTuple):
    """Clusters of documents and topics of tokens.

    Attributes:
        topics: of each token, shape (num_tokens,).
        clusters: of each document, shape (num_documents,).
        log_joint: collapsed, of tokens, topics and clusters, in nats.
    """

    topics: Array
    clusters: Array
    log_joint: Array


def counts_by(index: Array, topics: Array, size: int, num_topics: int) -> Array:
    """Tokens of each topic by document, cluster or word, shape (size, num_topics)."""
    return jnp.zeros((size, num_topics), jnp.result_type(float)).at[index, topics].add(1)


def log_partition(clusters: Array, model: PCP) -> Array:
    """Log prior probability of the documents' clusters, weights integrated out, in nats."""
    current = in_current_precision(model)
    sizes = jnp.bincount(clusters, length=model.num_clusters).astype(jnp.result_type(float))
    if not model.weights.has_sticks:
        share = current.concentration / model.num_clusters
        return log_dirichlet_multinomial(sizes[None], share)
    tail = jnp.cumsum(sizes[::-1])[::-1][1:]
    a, b = 1.0 + sizes[:-1], current.concentration + tail
    return jnp.sum(gammaln(a) + gammaln(b) - gammaln(a + b) + jnp.log(current.concentration))


def log_joint(topics: Array, clusters: Array, tokens: Tokens, model: PCP) -> Array:
    """Log density of tokens in their order, topics and clusters, parameters integrated out, in nats."""
    prior, k = in_current_precision(model), model.num_topics
    by_cluster = counts_by(clusters[tokens.document], topics, model.num_clusters, k)
    by_word = counts_by(tokens.word, topics, tokens.shape[1], k)
    words = log_dirichlet_multinomial(by_word.T, prior.word_smoothing)
    centres = log_dirichlet_multinomial(by_cluster, prior.shares_concentration)
    return words + centres + log_partition(clusters, model)


def log_weights(sizes: Array, model: PCP) -> Array:
    """Log predictive weight of each cluster given the sizes without the document, up to a constant."""
    alpha = in_current_precision(model).concentration
    if not model.weights.has_sticks:
        return jnp.log(sizes + alpha / model.num_clusters)
    tail = jnp.cumsum(sizes[::-1])[::-1]
    own, later = 1.0 + sizes[:-1], alpha + tail[1:]
    taken = jnp.log(own) - jnp.log(own + later)
    left = jnp.log(later) - jnp.log(own + later)
    zero = jnp.zeros(1, taken.dtype)
    return jnp.concatenate([taken, zero]) + jnp.concatenate([zero, jnp.cumsum(left)])


def scan_documents(key: Array, topics: Array, clusters: Array, tokens: Tokens, model: PCP) -> Array:
    """Draw every document's cluster in turn, the topics of its words moving with it."""
    prior = in_current_precision(model).shares_concentration
    total = jnp.sum(prior)
    num_documents, k, m = tokens.shape[0], model.num_topics, model.num_clusters
    own = counts_by(tokens.document, topics, num_documents, k)
    by_cluster = counts_by(clusters[tokens.document], topics, m, k)
    sizes = jnp.bincount(clusters, length=m).astype(own.dtype)

    def visit(carry: tuple, document: tuple) -> tuple[tuple, Array]:
        by_cluster, sizes = carry
        row, old, noise = document
        by_cluster, sizes = by_cluster.at[old].add(-row), sizes.at[old].add(-1)
        held = by_cluster + prior
        score = jnp.sum(gammaln(held + row) - gammaln(held), axis=-1)
        tokens_held = total + jnp.sum(by_cluster, axis=-1)
        score += gammaln(tokens_held) - gammaln(tokens_held + jnp.sum(row))
        new = jnp.argmax(score + log_weights(sizes, model) + noise).astype(old.dtype)
        return (by_cluster.at[new].add(row), sizes.at[new].add(1)), new

    noise = jax.random.gumbel(key, (num_documents, m))
    return jax.lax.scan(visit, (by_cluster, sizes), (own, clusters, noise))[1]


def state_of(topics: Array, clusters: Array, tokens: Tokens, model: PCP) -> CollapsedPCPState:
    """The state with given topics and clusters."""
    return CollapsedPCPState(topics, clusters, log_joint(topics, clusters, tokens, model))


def init(key: Array, model: PCP, counts: Tokens) -> CollapsedPCPState:
    """The state with topics of tokens and clusters of documents drawn uniformly."""
    tokens = tokens_of(counts, model)
    topic_key, cluster_key = jax.random.split(key)
    topics = jax.random.randint(topic_key, tokens.word.shape, 0, model.num_topics)
    clusters = jax.random.randint(cluster_key, tokens.shape[:1], 0, model.num_clusters)
    return state_of(topics, clusters, tokens, model)


def start(key: Array, variables: Values, model: PCP, counts: Tokens, **options: object) -> CollapsedPCPState:
    """The state with given ``doc_clusters`` (or drawn from ``responsibilities``), topics of tokens drawn.

    Raises:
        ValueError: neither clusters nor responsibilities, or no ``topic_word_probs``, or of other shapes.
    """
    tokens = tokens_of(counts, model)
    cluster_key, topic_key = jax.random.split(key)
    if "doc_clusters" in variables:
        clusters = jnp.asarray(variables["doc_clusters"]).astype(int)
    elif "responsibilities" in variables:
        clusters = jax.random.categorical(cluster_key, jnp.log(jnp.asarray(variables["responsibilities"])))
    else:
        raise ValueError("init must hold 'doc_clusters' or 'responsibilities' for this sampler")
    if clusters.shape != tokens.shape[:1]:
        raise ValueError(f"init: doc_clusters must have shape ({tokens.shape[0]},); got {clusters.shape}")
    logits = jnp.log(given_topics(variables, model.num_topics, tokens.shape[1])).T[tokens.word]
    return state_of(jax.random.categorical(topic_key, logits), clusters, tokens, model)


def step(
    key: Array, state: CollapsedPCPState, model: PCP, counts: Tokens
) -> tuple[CollapsedPCPState, TopicGibbsInfo]:
    """Run one sweep: tokens, then documents."""
    tokens, current = tokens_of(counts, model), in_current_precision(model)
    token_key, document_key = jax.random.split(key)
    rows, k = state.clusters[tokens.document], model.num_topics
    by_cluster = counts_by(rows, state.topics, model.num_clusters, k)
    by_word = counts_by(tokens.word, state.topics, tokens.shape[1], k)
    priors = current.shares_concentration, current.word_smoothing
    topics, _, _ = scan_tokens(token_key, state.topics, rows, tokens.word, by_cluster, by_word, *priors)
    new = state_of(topics, scan_documents(document_key, topics, state.clusters, tokens, model), tokens, model)
    return new, TopicGibbsInfo(new.log_joint)


def position(state: CollapsedPCPState, model: PCP) -> dict[str, Array]:
    """Values kept at every draw; the parameters are drawn from it afterwards."""
    return {
        "topics": state.topics.astype(jnp.uint8 if model.num_topics <= 256 else jnp.int32),
        "doc_clusters": state.clusters,
    }


def conclude(key: Array, draws: dict[str, Array], model: PCP, data: tuple, keep_rows: bool) -> Outcome:
    """Parameters drawn given every draw of topics and clusters."""
    values = _parameters(key, draws, model, data[0])
    if not keep_rows:
        values.pop("doc_clusters")
    return Outcome(posterior=values, densities={"objective": ()})


@compiled
def _parameters(key: Array, draws: dict[str, Array], model: PCP, tokens: Tokens) -> dict[str, Array]:

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        topics, clusters = values["topics"].astype(int), values["doc_clusters"]
        k, m = model.num_topics, model.num_clusters
        by_cluster = counts_by(clusters[tokens.document], topics, m, k)
        by_word = counts_by(tokens.word, topics, tokens.shape[1], k)
        given = posteriors(jnp.bincount(clusters, length=m), by_cluster, by_word, model)
        drawn = {name: draw(jax.random.fold_in(key, i), d) for i, (name, d) in enumerate(given.items())}
        return drawn | answer_of(model, "derived", {"doc_clusters": clusters})

    return map_draws(one, key, draws)


ALGORITHM = Algorithm(init, step, loops=True)
METHOD = topic_sampler(CollapsedGibbs, ALGORITHM, start, conclude, lambda keep_rows: position)
