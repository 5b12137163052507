r"""Blocked Gibbs sampling for the probabilistic clustering-projection model.

A sweep draws the cluster of every document given the parameters, the topics of its words summed out, then the
topic of every token given the cluster, then the parameters given both:

.. math::
    c_d &\sim \mathrm{Categorical}\{\pi_m \textstyle\prod_w (\theta_m' \beta)_w^{n_{dw}}\}, \qquad
    z_{dn} \sim \mathrm{Categorical}(\theta_{c_d k} \beta_{k, w_{dn}}), \\
    \pi &\sim \mathrm{Dirichlet}(\alpha/M + N), \quad
    \theta_m \sim \mathrm{Dirichlet}(\lambda + S_m), \quad \beta_k \sim \mathrm{Dirichlet}(\epsilon + T_k),

or Beta sticks for pi, drawn and held in logs (`zoo.dirichlet_process.BetaDecay`). The state holds the
parameters; clusters and topics of words are drawn afresh in every
sweep. Cost O(nonzeros x M + tokens x K).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Init, conclude_draws
from inference.methods.documents.tokens import (
    Tokens,
    TopicSweep,
    draw_topics,
    tokens_of,
    topic_posterior,
    topic_sampler,
)
from inference.methods.documents.tokens import prepare as prepare_tokens
from inference.methods.lda.gibbs import TopicGibbsInfo
from inference.methods.pcp import Gibbs
from inference.numerics.gamma_draws import draw
from zoo.answers import answer_of
from zoo.dirichlet_process import with_stick_decays
from zoo.documents.bags import CellTopics, dense_counts
from zoo.model import in_current_precision
from zoo.pcp import PCP
from zoo.shapes import Values
from zoo.sparse import SparseCounts


class Documents(NamedTuple):
    """The corpus as counts and as tokens."""

    counts: Any
    tokens: Tokens

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and words."""
        return self.tokens.shape


class PCPGibbsState(NamedTuple):
    """The parameters, and the clusters last drawn.

    Attributes:
        values: ``cluster_weights`` or ``stick_decays``, ``cluster_topic_probs``, ``topic_word_probs``.
        doc_clusters: shape (num_documents,); the next sweep does not read them.
    """

    values: dict[str, Array]
    doc_clusters: Array


def parameters(values: Values, model: PCP, counts: Tokens) -> dict[str, dist.Distribution]:
    """Distributions of all parameters given clusters of documents and topics of words."""
    tokens, chosen = values["word_topics"], values["doc_clusters"]
    by_cluster = jax.nn.one_hot(chosen, model.num_clusters).T @ jnp.sum(tokens, axis=2)
    sizes = jnp.bincount(chosen, length=model.num_clusters)
    return posteriors(sizes, by_cluster, jnp.sum(tokens, axis=0).T, model)


def posteriors(sizes: Array, by_cluster: Array, by_word: Array, model: PCP) -> dict[str, dist.Distribution]:
    """All parameters given documents and tokens of clusters, and tokens of words, by topic."""
    current = in_current_precision(model)
    return {
        model.weights.site: model.weights.posterior(sizes, current.concentration),
        "cluster_topic_probs": dist.Dirichlet(current.shares_concentration + by_cluster),
        "topic_word_probs": topic_posterior(by_word, model),
    }


def clusters(values: Values, model: PCP, counts: SparseCounts) -> dict[str, dist.Distribution]:
    """The documents' clusters given the parameters, then the topics of their words given the clusters.

    For small corpora; a sweep draws the topics token by token.
    """
    return answer_of(model, "conditionals", values, counts) | word_topics(values, model, counts)


def word_topics(values: Values, model: PCP, counts: SparseCounts) -> dict[str, dist.Distribution]:
    """The topics of all words given clusters and parameters."""
    shares = values["cluster_topic_probs"][values["doc_clusters"]]
    logits = jnp.log(shares)[:, :, None] + jnp.log(values["topic_word_probs"])
    return {"word_topics": CellTopics(dense_counts(counts), logits, model.num_tokens)}


def init(key: Array, model: PCP, documents: Tokens) -> PCPGibbsState:
    """Equal weights, clusters' shares uniform on the simplex, topics all but flat."""
    share_key, word_key = jax.random.split(key)
    num_documents, num_words = documents.shape
    dtype, k, m = jnp.result_type(float), model.num_topics, model.num_clusters
    noise = jax.random.gamma(word_key, 10.0, (k, num_words), dtype)
    values = {
        "cluster_topic_probs": jax.random.dirichlet(share_key, jnp.ones(k, dtype), (m,)),
        "topic_word_probs": noise / jnp.sum(noise, axis=-1, keepdims=True),
    }
    if model.weights.has_sticks:
        values["stick_decays"] = -jnp.log1p(-1.0 / jnp.arange(m, 1, -1, dtype=dtype))
    else:
        values["cluster_weights"] = jnp.full(m, 1.0 / m, dtype)
    return PCPGibbsState(values, jnp.zeros(num_documents, int))


def start(key: Array, variables: Values, model: PCP, documents: Tokens, **options: object) -> PCPGibbsState:
    """The state with given ``cluster_topic_probs`` and ``topic_word_probs``, and weights where given.

    Raises:
        ValueError: one of the two is missing, or of another shape.
    """
    state, variables = init(key, model, documents), with_stick_decays(variables)
    for name in ("cluster_topic_probs", "topic_word_probs"):
        if name not in variables or jnp.shape(variables[name]) != state.values[name].shape:
            raise ValueError(f"init must hold {name!r} of shape {state.values[name].shape}")
    values = {
        name: jnp.asarray(variables.get(name, value), value.dtype) for name, value in state.values.items()
    }
    return state._replace(values=values)


class PCPTokens(NamedTuple):
    """Clusters of documents, and the tokens of each topic.

    Attributes:
        doc_clusters: shape (num_documents,).
        sizes: documents of each cluster, shape (num_clusters,).
        by_cluster: shape (num_clusters, num_topics).
        by_word: shape (num_words, num_topics).
    """

    doc_clusters: Array
    sizes: Array
    by_cluster: Array
    by_word: Array


def no_tokens(state: PCPGibbsState) -> PCPTokens:
    """What is drawn where there are no tokens."""
    shares, topics = state.values["cluster_topic_probs"], state.values["topic_word_probs"]
    sizes = jnp.zeros(shares.shape[0], int)
    return PCPTokens(state.doc_clusters, sizes, jnp.zeros_like(shares), jnp.zeros_like(topics.T))


def _counts(documents: Tokens) -> Any:
    return documents.counts if isinstance(documents, Documents) else documents


def _assigned(keys: Array, scores: Array, values: Values, model: PCP, documents: Tokens) -> PCPTokens:
    tokens = documents.tokens if isinstance(documents, Documents) else tokens_of(documents, model)
    chosen = jax.random.categorical(keys[0], scores)
    shares, by_word = values["cluster_topic_probs"], values["topic_word_probs"].T
    sizes = jnp.bincount(chosen, length=model.num_clusters)
    return PCPTokens(chosen, sizes, *draw_topics(keys[1], tokens, shares, chosen, by_word))


def assigned(keys: Array, values: Values, model: PCP, documents: Tokens, power: Array) -> PCPTokens:
    """Clusters of documents and topics of tokens; their words' probabilities count to a power."""
    raised = {**values, "topic_word_probs": values["topic_word_probs"] ** power}
    scores = model.log_joint_documents(raised, _counts(documents))
    return _assigned(keys, scores, raised, model, documents)


def parameters_given(
    keys: Array, drawn: PCPTokens, model: PCP, power: Array | float = 1.0
) -> dict[str, Array]:
    """All parameters given clusters and tokens, whose words count to a power."""
    given = posteriors(drawn.sizes, drawn.by_cluster, power * drawn.by_word, model)
    tiny = jnp.finfo(drawn.by_word.dtype).tiny
    return {
        name: jnp.maximum(draw(jax.random.fold_in(keys[0], i), given[name]), tiny)
        for i, name in enumerate(given)
    }


def step(
    key: Array, state: PCPGibbsState, model: PCP, documents: Tokens
) -> tuple[PCPGibbsState, TopicGibbsInfo]:
    """Run one sweep."""
    keys = jax.random.split(key, 3)
    scores = model.log_joint_documents(state.values, _counts(documents))
    drawn = _assigned(keys[:2], scores, state.values, model, documents)
    values = parameters_given(keys[2:], drawn, model)
    # the parameters that the clusters were drawn by, with clusters and topics of words summed out
    log_joint = jnp.sum(jax.nn.logsumexp(scores, axis=-1)) + _log_prior(state.values, model)
    return PCPGibbsState(values, drawn.doc_clusters), TopicGibbsInfo(log_joint)


def state_of(swept: TopicSweep, model: PCP) -> PCPGibbsState:
    """The state after a sweep."""
    return PCPGibbsState(swept.values, swept.drawn.doc_clusters)


def recorded(swept: TopicSweep, model: PCP, documents: Tokens) -> TopicGibbsInfo:
    """The log joint after a sweep, with clusters and topics of words summed out."""
    scores = model.log_joint_documents(swept.values, _counts(documents))
    return TopicGibbsInfo(jnp.sum(jax.nn.logsumexp(scores, axis=-1)) + _log_prior(swept.values, model))


def _log_prior(values: Values, model: PCP) -> Array:
    nothing = jnp.zeros(model.num_clusters), jnp.zeros((1, model.num_topics)), jnp.zeros((1, 1))
    empty = posteriors(*nothing, model)
    current = in_current_precision(model)
    site, weights = next(iter(empty.items()))
    words = dist.Dirichlet(jnp.full(values["topic_word_probs"].shape[1], current.word_smoothing))
    total = jnp.sum(weights.log_prob(values[site])) + jnp.sum(words.log_prob(values["topic_word_probs"]))
    return total + jnp.sum(
        dist.Dirichlet(current.shares_concentration).log_prob(values["cluster_topic_probs"])
    )


def prepare(model: PCP, data: tuple, init: Init, **options: object) -> tuple[Documents]:
    """The documents as counts and as tokens."""
    return (Documents(data[0], prepare_tokens(model, data, init)[0]),)


def position(state: PCPGibbsState, model: PCP, keep_rows: bool = True) -> dict[str, Array]:
    """Values kept at every draw; the documents' clusters only if ``keep_rows``."""
    kept = state.values | answer_of(model, "derived", {"doc_clusters": state.doc_clusters})
    return {name: value for name, value in kept.items() if keep_rows or name != "doc_clusters"}


METHOD = topic_sampler(
    Gibbs,
    Algorithm(init, step),
    start,
    conclude_draws,
    {True: position, False: partial(position, keep_rows=False)}.get,
    prepare,
)
