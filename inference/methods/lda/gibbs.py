r"""Blocked Gibbs sampling for latent Dirichlet allocation.

A sweep draws the topic of every token given shares and topics, then these given the tokens' topics,

.. math::
    z_{dn} \sim \mathrm{Categorical}(\theta_{dk} \beta_{k, w_{dn}}), \qquad
    \beta_k \sim \mathrm{Dirichlet}(\epsilon + T_k), \qquad \theta_d \sim \mathrm{Dirichlet}(\lambda + S_d),

each block at once: tokens are independent given the parameters, so nothing about it is approximate. The state
holds the parameters; the tokens' topics are drawn afresh in every sweep. Cost O(tokens x K). It mixes more
slowly by sweep than the collapsed sampler (`inference.methods.lda.collapsed_gibbs`), whose tokens see each
other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Outcome
from inference.methods.documents.tokens import (
    SMALL_DRAW,
    TopicSweep,
    draw_topics,
    tokens_of,
    topic_posterior,
    topic_sampler,
)
from inference.methods.lda import Gibbs
from inference.numerics.gamma_draws import draw
from zoo.documents.bags import CellTopics, dense_counts
from zoo.lda import LDA
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sparse import SparseCounts


class LDAGibbsState(NamedTuple):
    """The parameters and their log joint density.

    Attributes:
        values: ``topic_word_probs`` (num_topics, num_words) and ``doc_topic_probs`` (num_documents,
            num_topics).
        log_joint: log density of tokens, their topics and the parameters drawn given these, up to a
            constant, in nats.
    """

    values: dict[str, Array]
    log_joint: Array


class TopicGibbsInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: log joint density of tokens, their topics and parameters, up to a constant, in nats.
    """

    objective: Array


class LDATokens(NamedTuple):
    """The tokens of each topic.

    Attributes:
        by_document: shape (num_documents, num_topics).
        by_word: shape (num_words, num_topics).
    """

    by_document: Array
    by_word: Array


def posteriors(by_document: Array, by_word: Array, model: LDA) -> dict[str, dist.Distribution]:
    """Topics and shares given the tokens of each topic by document and by word."""
    prior = in_current_precision(model).shares_concentration
    return {
        "topic_word_probs": topic_posterior(by_word, model),
        "doc_topic_probs": dist.Dirichlet(prior + by_document),
    }


def word_topics(values: Values, model: LDA, counts: SparseCounts) -> dict[str, dist.Distribution]:
    """The topics of all words given the rest, for small corpora; a sweep draws them token by token."""
    logits = jnp.log(values["doc_topic_probs"])[:, :, None] + jnp.log(values["topic_word_probs"])
    return {"word_topics": CellTopics(dense_counts(counts), logits, model.num_tokens)}


def init(key: Array, model: LDA, counts: SparseCounts) -> LDAGibbsState:
    """The state with nearly flat topics, as VB starts, and equal shares; chains start apart."""
    num_documents, num_words = counts.shape
    noise = jax.random.gamma(key, 100.0, (model.num_topics, num_words), jnp.result_type(float))
    equal = jnp.full((num_documents, model.num_topics), 1.0 / model.num_topics)
    topics = noise / jnp.sum(noise, axis=-1, keepdims=True)
    return LDAGibbsState({"topic_word_probs": topics, "doc_topic_probs": equal}, jnp.zeros(()))


def start(
    key: Array, variables: Values, model: LDA, counts: SparseCounts, **options: object
) -> LDAGibbsState:
    """The state with given ``topic_word_probs`` and, if given, ``doc_topic_probs``.

    Raises:
        ValueError: no topics, or of another shape.
    """
    values = init(key, model, counts).values
    for name in values:
        if name in variables and jnp.shape(variables[name]) != values[name].shape:
            raise ValueError(
                f"init: {name} must have shape {values[name].shape}; got {jnp.shape(variables[name])}"
            )
    if "topic_word_probs" not in variables:
        raise ValueError("init must hold 'topic_word_probs' for this sampler")
    given = {name: jnp.asarray(variables.get(name, value), value.dtype) for name, value in values.items()}
    return LDAGibbsState(given, jnp.zeros(()))


def no_tokens(state: LDAGibbsState) -> LDATokens:
    """What is drawn where there are no tokens."""
    shares, topics = state.values["doc_topic_probs"], state.values["topic_word_probs"]
    return LDATokens(jnp.zeros_like(shares), jnp.zeros_like(topics.T))


def assigned(
    keys: Array, values: Values, model: LDA, counts: SparseCounts, power: Array | float = 1.0
) -> LDATokens:
    """Topics of all tokens given the parameters; their words' probabilities count to a power."""
    tokens, by_word = tokens_of(counts, model), values["topic_word_probs"].T ** power
    rows = jnp.arange(tokens.shape[0])
    return LDATokens(*draw_topics(keys[0], tokens, values["doc_topic_probs"], rows, by_word))


def parameters_given(
    keys: Array, drawn: LDATokens, model: LDA, power: Array | float = 1.0
) -> dict[str, Array]:
    """Topics and shares given the topics of all tokens, whose words count to a power; a key for each."""
    given = posteriors(drawn.by_document, power * drawn.by_word, model)
    tiny = jnp.finfo(drawn.by_word.dtype).tiny
    return {name: jnp.maximum(draw(key, given[name]), tiny) for name, key in zip(given, keys, strict=True)}


def sweep(key: Array, values: Values, model: LDA, counts: SparseCounts) -> TopicSweep:
    """Draw topics of all tokens given the parameters, then these given the topics."""
    keys = jax.random.split(key, 3)
    drawn = assigned(keys, values, model, counts)
    return TopicSweep(parameters_given(keys[1:], drawn, model), drawn)


def state_of(swept: TopicSweep, model: LDA) -> LDAGibbsState:
    """The state after a sweep."""
    (values, (by_document, by_word)), current = swept, in_current_precision(model)
    log_joint = jnp.sum((by_document + current.shares_concentration - 1) * jnp.log(values["doc_topic_probs"]))
    log_joint += jnp.sum((by_word.T + current.word_smoothing - 1) * jnp.log(values["topic_word_probs"]))
    return LDAGibbsState(values, log_joint)


def recorded(swept: TopicSweep, model: LDA, counts: SparseCounts) -> TopicGibbsInfo:
    """The log joint after a sweep."""
    return TopicGibbsInfo(state_of(swept, model).log_joint)


def step(
    key: Array, state: LDAGibbsState, model: LDA, counts: SparseCounts
) -> tuple[LDAGibbsState, TopicGibbsInfo]:
    """Run one sweep and evaluate the log joint."""
    state = state_of(sweep(key, state.values, model, counts), model)
    return state, TopicGibbsInfo(state.log_joint)


def position(state: LDAGibbsState, model: LDA) -> dict[str, Array]:
    """Values kept at every draw: topics, the log joint, and shares where they are small."""
    kept = {"topic_word_probs": state.values["topic_word_probs"], "lp": state.log_joint}
    if state.values["doc_topic_probs"].size <= SMALL_DRAW:
        kept["doc_topic_probs"] = state.values["doc_topic_probs"]
    return kept


def conclude(key: Array, draws: dict[str, Array], model: LDA, data: tuple, keep_rows: bool) -> Outcome:
    """The draws and their log joint."""
    return Outcome(
        posterior={name: value for name, value in draws.items() if name != "lp"},
        sample_stats={"lp": draws["lp"]},
        densities={"objective": ("topic_word_probs", "doc_topic_probs")},
    )


METHOD = topic_sampler(Gibbs, Algorithm(init, step), start, conclude, lambda keep_rows: position)
