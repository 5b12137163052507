"""The updates of structured VB for PCP (`inference.methods.pcp.vb`): documents' clusters, then the rest."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.documents.dirichlet_factors import exp_expected_log
from inference.methods.pcp.vb_posterior import (
    PCPVBState,
    learnt_concentration,
    learnt_factors,
    topic_factors,
)
from inference.numerics.documents import CACHED_NUMBERS, DocumentBlock, DocumentBlocks, add_by_word
from zoo.pcp import PCP


class ClusterSums(NamedTuple):
    """The sums over the clusters of all documents.

    Attributes:
        by_word: C', expected tokens of each word in each cluster, shape (num_words, num_clusters).
        sizes: expected documents of each cluster, shape (num_clusters,).
        entropy: of the documents' clusters, in nats.
    """

    by_word: Array
    sizes: Array
    entropy: Array


def assign(
    documents: DocumentBlocks, log_centres: Array, log_weights: Array, power: Array | float = 1.0
) -> ClusterSums:
    """Update the clusters of documents, a block of documents at a time.

    Args:
        documents: in blocks.
        log_centres: shape (num_words, num_clusters).
        log_weights: shape (num_clusters,).
        power: of the documents' likelihood; below 1 they are less sure of their clusters.
    """

    def add(total: ClusterSums, block: DocumentBlock) -> ClusterSums:
        scores = power * block.times(log_centres) + log_weights
        scores -= jnp.max(scores, axis=-1, keepdims=True)
        exists = (block.owner < documents.shape[0])[:, None]
        unnormalised = jnp.where(exists, jnp.exp(scores), 0.0)
        normaliser = jnp.where(exists, jnp.sum(unnormalised, axis=-1, keepdims=True), 1.0)
        r = unnormalised / normaliser
        return ClusterSums(
            add_by_word(total.by_word, block, block.count, r),
            total.sizes + jnp.sum(r, axis=0),
            total.entropy + jnp.sum(jnp.log(normaliser)) - jnp.sum(r * scores),
        )

    zero = jnp.zeros((), log_centres.dtype)
    zeros = ClusterSums(jnp.zeros_like(log_centres), jnp.zeros_like(log_weights), zero)
    return documents.fold(add, zeros)


def update_globals(
    state: PCPVBState,
    by_word: Array,
    sizes: Array,
    model: PCP,
    inner_steps: int,
    learn: tuple[str, ...],
    point: bool,
    holds: Array | bool = False,
) -> PCPVBState:
    """Update everything but the documents' clusters; none of it passes over the documents.

    Args:
        state: q.
        by_word: C', expected tokens of each word in each cluster, shape (num_words, num_clusters).
        sizes: expected documents of each cluster, shape (num_clusters,).
        model: the model as given.
        inner_steps: updates of centres and topics in turn.
        learn: hyperparameters to learn.
        point: whether topics are point estimates.
        holds: whether hyperparameters stay what they are in this step.
    """
    size = _block_words(by_word)
    rows = _in_row_blocks(by_word, size)
    exists = _in_row_blocks(jnp.ones((by_word.shape[0], 1), bool), size)

    def divided(clusters: Array, words: Array) -> tuple[Array, Array]:
        shares = exp_expected_log(clusters)
        given, tokens = _divided(rows, _topic_weights(words, point, axis=(0, 1)), shares)
        return state.topic_prior + shares * given, tokens

    def alternate(_: Array, factors: tuple[Array, Array]) -> tuple[Array, Array]:
        clusters, tokens = divided(*factors)
        tokens = jnp.where(exists, tokens, -state.word_smoothing)  # a word that fills up has no weight
        return clusters, topic_factors(tokens, state.word_smoothing, factors[1], point, axis=(0, 1))

    before = state.clusters, _in_row_blocks(state.words.T, size)  # blocks once, not in every turn
    clusters, tokens = divided(*jax.lax.fori_loop(1, inner_steps, alternate, before))
    tokens = tokens.reshape(-1, tokens.shape[-1])[: by_word.shape[0]].T
    state = learnt_factors(state, clusters, tokens, learn, point, holds)
    weights = model.weights.posterior(sizes, state.concentration)
    if "concentration" in learn:
        best = learnt_concentration(state._replace(weights=weights), model)
        state = state._replace(concentration=jnp.where(holds, state.concentration, best))
        weights = model.weights.posterior(sizes, state.concentration)
    return state._replace(weights=weights)


def word_log_centres(state: PCPVBState, point: bool) -> Array:
    """Log of the sum over topics of exp(E log theta + E log beta), shape (num_words, num_clusters)."""
    return _logs(_topic_weights(state.words, point).T @ exp_expected_log(state.clusters).T)


def log_likelihood(state: PCPVBState, by_word: Array, point: bool) -> Array:
    """Sum over words and clusters of the expected tokens times `word_log_centres`, in nats.

    Args:
        state: q.
        by_word: C', shape (num_words, num_clusters).
        point: whether topics are point estimates.
    """
    shares = exp_expected_log(state.clusters)
    size = _block_words(by_word)

    def visit(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
        tokens, own = block
        return total + jnp.sum(tokens * _logs(own @ shares.T)), None

    rows = _in_row_blocks(by_word, size), _in_row_blocks(_topic_weights(state.words, point).T, size)
    return jax.lax.scan(visit, jnp.zeros((), by_word.dtype), rows)[0]


def _topic_weights(words: Array, point: bool, axis: int | tuple[int, ...] = -1) -> Array:
    """B, the exponential of E log beta, or the point estimates; ``axis`` is that of the words."""
    return jnp.maximum(words, jnp.finfo(words.dtype).tiny) if point else exp_expected_log(words, axis)


def _logs(centres: Array) -> Array:
    return jnp.log(jnp.maximum(centres, jnp.finfo(centres.dtype).tiny))


def _block_words(by_word: Array) -> int:
    """Words of a block whose centres and tokens stay in the cache, all blocks about equally full."""
    num_words, num_clusters = by_word.shape
    most = max(CACHED_NUMBERS // (2 * num_clusters), 16)
    return -(-num_words // -(-num_words // most))


def _in_row_blocks(rows: Array, size: int) -> Array:
    """Rows in blocks, filled up with zeros, shape (num_blocks, size, columns)."""
    padding = -rows.shape[0] % size
    return jnp.pad(rows, ((0, padding), (0, 0))).reshape(-1, size, rows.shape[1])


def _divided(rows: Array, topics: Array, shares: Array) -> tuple[Array, Array]:
    """R = C / (T B), block by block of words, so that it stays in the cache: R B' and B' times T' R.

    Args:
        rows: C', shape (num_blocks, block_words, num_clusters).
        topics: B', shape (num_blocks, block_words, num_topics).
        shares: T, shape (num_clusters, num_topics).

    Returns:
        Shapes (num_clusters, num_topics) and (num_blocks, block_words, num_topics).
    """

    def visit(total: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
        tokens, own = block
        centres = own @ shares.T
        ratio = tokens / jnp.maximum(centres, jnp.finfo(centres.dtype).tiny)
        return total + ratio.T @ own, own * (ratio @ shares)

    return jax.lax.scan(visit, jnp.zeros_like(shares), (rows, topics))
