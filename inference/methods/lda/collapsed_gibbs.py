r"""Collapsed Gibbs sampling for latent Dirichlet allocation.

Topics and shares are integrated out; a sweep visits the tokens one by one, each taken out of the counts first
(Griffiths and Steyvers 2004),

.. math::
    p(z_{dn} = k \mid z_{-dn}, w) \propto (S_{dk} + \lambda_k)\,
    \frac{T_{k w_{dn}} + \epsilon}{\sum_w T_{kw} + W \epsilon}.

It is the exact sequential sampler: no sweep over stale counts goes by the name of Gibbs here. After the run
topics and shares are drawn from their Dirichlets given the tokens' topics of every kept draw. Cost O(tokens x
K). The objective is the collapsed log joint density of tokens and their topics.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Outcome
from inference.methods.documents.tokens import (
    SMALL_DRAW,
    Tokens,
    given_topics,
    log_dirichlet_multinomial,
    tokens_of,
    topic_sampler,
)
from inference.methods.lda import CollapsedGibbs
from inference.methods.lda.gibbs import TopicGibbsInfo
from inference.numerics.host_draws import dirichlet_of_each, generator
from zoo.lda import LDA
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sparse import SparseCounts

COUNT = jnp.int32  # of tokens, and of places: half the bytes of a double
_made_once = jax.lax.optimization_barrier  # what is read at several places


class CollapsedLDAState(NamedTuple):
    """The tokens' topics and their counts.

    Attributes:
        topics: of each token, shape (num_tokens,).
        by_document: shape (num_documents, num_topics).
        by_word: shape (num_words, num_topics).
        log_joint: collapsed, of tokens and topics, in nats; zero at a start.
    """

    topics: Array
    by_document: Array
    by_word: Array
    log_joint: Array


def scan_tokens(
    key: Array,
    topics: Array,
    rows: Array,
    words: Array,
    by_row: Array,
    by_word: Array,
    prior: Array,
    smoothing: Array,
) -> tuple[Array, Array, Array]:
    """Draw every token's topic in turn.

    Args:
        key: a JAX key.
        topics: of the tokens, shape (num_tokens,).
        rows: the row of topic counts that each token belongs to: its document, or its document's cluster.
        words: of the tokens.
        by_row: topic counts of the rows, shape (num_rows, num_topics).
        by_word: topic counts of the words, shape (num_words, num_topics).
        prior: lambda, shape (num_topics,).
        smoothing: eps.

    Returns:
        New topics, and the counts they add up to.
    """
    dtype, num_topics, lanes = by_word.dtype, by_word.shape[1], _lanes(by_word.shape[1])
    level = jax.random.uniform(key, topics.shape, dtype)
    room, kind = by_word.shape[0] * smoothing, topics.dtype
    padding = (0, -num_topics % lanes)  # topics that fill up have no prior, and no probability
    prior = jnp.pad(jnp.broadcast_to(prior, (num_topics,)).astype(dtype), padding)
    by_row, by_word = (jnp.pad(counts.astype(COUNT), ((0, 0), padding)) for counts in (by_row, by_word))
    number, first = jnp.arange(prior.shape[0], dtype=COUNT), jnp.zeros((), COUNT)
    rows, words, topics = (index.astype(COUNT) for index in (rows, words, topics))

    def at(counts: Array, place: Array) -> Array:
        return jax.lax.dynamic_slice(counts, (place, first), (1, number.shape[0]))[0]

    def put(counts: Array, place: Array, own: Array) -> Array:
        return jax.lax.dynamic_update_slice(counts, own[None], (place, first))

    def changed(totals: Array, topic: Array, by: int) -> tuple[Array, Array]:
        own = _made_once(jax.lax.dynamic_slice(totals, (topic,), (1,)) + by)  # else all are copied first
        return jax.lax.dynamic_update_slice(totals, own, (topic,)), 1 / (own + room)

    def visit(carry: tuple, token: tuple) -> tuple[tuple, Array]:
        by_row, by_word, totals, inverse, last, of_last = carry
        row, word, old, u = token
        out = (number == old).astype(COUNT)
        own_row, own_word = at(by_row, row) - out, at(by_word, word) - out
        totals, of_old = changed(totals, old, -1)
        # the change by the last token is made here: in the pass over the topics that there is anyway
        inverse = jnp.where(number == old, of_old, jnp.where(number == last, of_last, inverse))
        weights = (own_row.astype(dtype) + prior) * (own_word.astype(dtype) + smoothing) * inverse
        new = _drawn(u, _made_once(weights), num_topics).astype(COUNT)
        totals, of_new = changed(totals, new, 1)
        into = (number == new).astype(COUNT)
        by_row, by_word = put(by_row, row, own_row + into), put(by_word, word, own_word + into)
        return (by_row, by_word, totals, inverse, new, of_new), new

    totals = jnp.sum(by_word, axis=0).astype(dtype)
    inverse = 1 / (totals + room)
    start = (by_row, by_word, totals, inverse, first, inverse[:1])
    (by_row, by_word, *_), topics = jax.lax.scan(visit, start, (rows, words, topics, level))
    by_row, by_word = (counts[:, :num_topics].astype(dtype) for counts in (by_row, by_word))
    return topics.astype(kind), by_row, by_word


def _lanes(num_topics: int) -> int:
    """Columns of the table that `_drawn` looks through: about the root of the number, a multiple of 8."""
    return 8 * max(1, round(num_topics**0.5 / 8))


def _drawn(level: Array, weights: Array, num_topics: int) -> Array:
    """The topic whose share of the cumulated weights a level in [0, 1) falls into: its column, then its row.

    The topics, row by row in a table of `_lanes` columns, are cumulated column by column. A token waits for
    the one before it, so that what counts is the longest chain of additions: sums are made in pairs, all
    partial sums at once. Against groups of eight summed one after the other a sweep over 50 topics takes 0.9
    of the time.
    """
    lanes = _lanes(num_topics)
    table = weights.reshape(-1, lanes)
    sums = _made_once(_added_up(list(table)))
    before = _made_once(_sums_before(sums))
    goal = level * (before[-1] + sums[-1])
    lane = _made_once(jnp.sum(before <= goal, dtype=COUNT) - 1)
    own = _made_once(jax.lax.dynamic_slice(table, (jnp.zeros((), COUNT), lane), (table.shape[0], 1))[:, 0])
    within = jnp.sum(before[lane] + _sums_before(own) <= goal, dtype=COUNT) - 1
    return jnp.minimum(within * lanes + lane, num_topics - 1)


def _sums_before(values: Array) -> Array:
    """Of every entry the sum of those before it."""
    after = np.triu(np.ones((values.size, values.size)), 1)
    parts = [values[i] * jnp.asarray(after[i], values.dtype) for i in range(values.size - 1)]
    return _added_up([jnp.zeros_like(values), *parts])


def _added_up(terms: list[Array]) -> Array:
    while len(terms) > 1:
        pairs = [terms[i] + terms[i + 1] for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(terms) - len(terms) % 2 :]
    return terms[0]


def state_of(topics: Array, tokens: Tokens, model: LDA) -> CollapsedLDAState:
    """The state with given topics of the tokens; its log joint is zero until a sweep was made."""
    dtype = jnp.result_type(float)
    num_documents, num_words = tokens.shape
    by_document = jnp.zeros((num_documents, model.num_topics), dtype).at[tokens.document, topics].add(1)
    by_word = jnp.zeros((num_words, model.num_topics), dtype).at[tokens.word, topics].add(1)
    return CollapsedLDAState(topics, by_document, by_word, jnp.zeros((), dtype))


def log_joint(by_document: Array, by_word: Array, model: LDA) -> Array:
    """Log density of the tokens in their order and their topics, parameters integrated out, in nats."""
    current = in_current_precision(model)
    documents = log_dirichlet_multinomial(by_document, current.shares_concentration)
    return documents + log_dirichlet_multinomial(by_word.T, current.word_smoothing)


def init(key: Array, model: LDA, counts: SparseCounts) -> CollapsedLDAState:
    """The state with the topics of all tokens drawn uniformly."""
    tokens = tokens_of(counts, model)
    level = jax.random.uniform(key, tokens.word.shape)  # a shorter program than that of whole numbers
    return state_of(jnp.floor(level * model.num_topics).astype(int), tokens, model)


def start(
    key: Array, variables: Values, model: LDA, counts: SparseCounts, **options: object
) -> CollapsedLDAState:
    """The state with topics of tokens drawn given ``topic_word_probs`` (and ``doc_topic_probs``, if given).

    Raises:
        ValueError: no topics, or of another shape.
    """
    tokens = tokens_of(counts, model)
    logits = jnp.log(given_topics(variables, model.num_topics, tokens.shape[1])).T[tokens.word]
    if "doc_topic_probs" in variables:
        logits = logits + jnp.log(jnp.asarray(variables["doc_topic_probs"]))[tokens.document]
    return state_of(jax.random.categorical(key, logits), tokens, model)


def step(
    key: Array, state: CollapsedLDAState, model: LDA, counts: SparseCounts
) -> tuple[CollapsedLDAState, TopicGibbsInfo]:
    """Run one sweep over all tokens."""
    tokens, current = tokens_of(counts, model), in_current_precision(model)
    counted, priors = (
        (state.by_document, state.by_word),
        (current.shares_concentration, current.word_smoothing),
    )
    topics, by_document, by_word = scan_tokens(
        key, state.topics, tokens.document, tokens.word, *counted, *priors
    )
    value = log_joint(by_document, by_word, model)
    return CollapsedLDAState(topics, by_document, by_word, value), TopicGibbsInfo(value)


def position(state: CollapsedLDAState, model: LDA) -> dict[str, Array]:
    """Values kept at every draw: the counts that topics, and shares where they are small, are drawn from."""
    kept = {"by_word": state.by_word.astype(jnp.int32), "lp": state.log_joint}
    if state.by_document.size <= SMALL_DRAW:
        kept["by_document"] = state.by_document.astype(jnp.int32)
    return kept


def conclude(key: Array, draws: dict[str, Array], model: LDA, data: tuple, keep_rows: bool) -> Outcome:
    """Topics and shares drawn from their Dirichlets, for every draw of the tokens' topics."""
    rng = generator(key)
    by_word = np.swapaxes(np.asarray(draws["by_word"]), -1, -2)
    posterior = {"topic_word_probs": dirichlet_of_each(rng, by_word, model.word_smoothing)}
    if "by_document" in draws:
        shares = dirichlet_of_each(rng, np.asarray(draws["by_document"]), model.topic_prior)
        posterior["doc_topic_probs"] = shares
    stats = {"lp": draws["lp"]}
    return Outcome(posterior=posterior, sample_stats=stats, densities={"objective": ()})


ALGORITHM = Algorithm(init, step, loops=True)
METHOD = topic_sampler(CollapsedGibbs, ALGORITHM, start, conclude, lambda keep_rows: position)
