r"""Topic shares of documents given the topics, computed by passes over the nonzero cells.

With unnormalised shares :math:`E_{dk}` and word weights :math:`B_{wk}` the probability that topic k gave a
token of word w in document d is :math:`\phi_{dwk} = E_{dk} B_{wk} / s_{dw}`, :math:`s_{dw} = \sum_k E_{dk}
B_{wk}`. A pass makes :math:`\sum_w n_{dw} \phi_{dwk} / E_{dk} = \sum_w (n_{dw}/s_{dw}) B_{wk}` and
:math:`\sum_w n_{dw} \log s_{dw}`, block by block; phi is never stored (equations 4.10-4.13 and 9.8 of Yu 2006
need no more).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from zoo.gamma_functions import exp_digamma, gammaln
from zoo.sparse import SparseCounts

__all__ = ["CellSums", "cell_sums", "fold_in", "likely_shares", "log_integrals"]

FOLD_IN_STEPS = 50
LIKELIHOOD_STEPS = 100
IMPORTANCE_DRAWS = 50


class CellSums(NamedTuple):
    """Sums over the cells of each document.

    Attributes:
        by_document: sum over words of n/s times the word's weights, shape (num_documents, num_topics).
        log_sums: sum over words of n log s, shape (num_documents,).
    """

    by_document: Array
    log_sums: Array


def cell_sums(counts: SparseCounts, shares: Array, by_word: Array) -> CellSums:
    """Sum over the cells of each document in one pass.

    Args:
        counts: the documents.
        shares: E, shape (num_documents, num_topics).
        by_word: B, shape (num_words, num_topics).

    Returns:
        The sums, see `CellSums`.
    """

    def cells(document: Array, word: Array, count: Array) -> CellSums:
        weights = by_word[word]
        s = jnp.sum(shares[document] * weights, axis=-1)
        s = jnp.where(count > 0, jnp.maximum(s, jnp.finfo(s.dtype).tiny), 1.0)
        return CellSums((count / s)[:, None] * weights, count * jnp.log(s))

    return counts.sum_by_document(cells)


def fold_in(counts: SparseCounts, by_word: Array, prior: Array, steps: int = FOLD_IN_STEPS) -> Array:
    """Dirichlet parameters of the topic shares of documents, by mean field with the topics given.

    Args:
        counts: the documents.
        by_word: probability (or exp of the expected log probability) of each word, (num_words, num_topics).
        prior: Dirichlet parameters before the words, shape (num_topics,).
        steps: passes.

    Returns:
        Shape (num_documents, num_topics).
    """
    start = prior + counts.totals[:, None] / prior.shape[0]

    def update(gamma: Array, _: None) -> tuple[Array, None]:
        shares = exp_digamma(gamma) / exp_digamma(jnp.sum(gamma, axis=-1, keepdims=True))
        return prior + shares * cell_sums(counts, shares, by_word).by_document, None

    return jax.lax.scan(update, start, None, steps)[0]


def likely_shares(counts: SparseCounts, by_word: Array, steps: int = LIKELIHOOD_STEPS) -> Array:
    """Topic shares that maximise the likelihood of documents with the topics given (folding-in, by EM).

    A document without words has equal shares.

    Args:
        counts: the documents.
        by_word: word probabilities, shape (num_words, num_topics).
        steps: of EM.

    Returns:
        Shape (num_documents, num_topics).
    """
    num_topics = by_word.shape[1]
    dtype = jnp.result_type(by_word, jnp.asarray(counts.count))  # double counts may meet single topics
    start = jnp.full((counts.shape[0], num_topics), 1.0 / num_topics, dtype)

    def update(shares: Array, _: None) -> tuple[Array, None]:
        new = shares * cell_sums(counts, shares, by_word).by_document
        total = jnp.sum(new, axis=-1, keepdims=True)
        return jnp.where(total > 0, new / jnp.where(total > 0, total, 1.0), shares), None

    return jax.lax.scan(update, start, None, steps)[0]


def log_integrals(
    key: Array, counts: SparseCounts, by_word: Array, prior: Array, num_draws: int = IMPORTANCE_DRAWS
) -> Array:
    r"""Log probability of the tokens of documents, their topic shares integrated out, in nats.

    Importance sampling from the Dirichlets of `fold_in`: an unbiased estimate of the probability, so that its
    log is too low on average, by about half its squared relative error.

    Args:
        key: a JAX key.
        counts: the documents.
        by_word: probability of each word, (num_words, num_topics).
        prior: Dirichlet parameters before the words, shape (num_topics,).
        num_draws: draws per document.

    Returns:
        Shape (num_documents,); of the tokens in their order, without the multinomial coefficient.
    """
    gamma = fold_in(counts, by_word, prior)
    constant = (
        gammaln(jnp.sum(prior))
        - jnp.sum(gammaln(prior))
        - gammaln(jnp.sum(gamma, axis=-1))
        + jnp.sum(gammaln(gamma), axis=-1)
    )

    def draw(total: Array, key: Array) -> tuple[Array, None]:
        log_gamma = jax.random.loggamma(key, gamma)
        log_shares = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
        log_sums = cell_sums(counts, jnp.exp(log_shares), by_word).log_sums
        log_weight = log_sums + constant + jnp.sum((prior - gamma) * log_shares, axis=-1)
        return jnp.logaddexp(total, log_weight), None

    start = jnp.full(
        counts.shape[0], -jnp.inf, jnp.result_type(gamma, by_word)
    )  # topics may be of a float32 fit
    return jax.lax.scan(draw, start, jax.random.split(key, num_draws))[0] - jnp.log(num_draws)
