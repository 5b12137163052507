r"""Topic shares of documents given the topics, computed by passes over the nonzero cells.

With unnormalised shares :math:`E_{dk}` and word weights :math:`B_{wk}` the probability that topic k gave a
token of word w in document d is :math:`\phi_{dwk} = E_{dk} B_{wk} / s_{dw}`, :math:`s_{dw} = \sum_k E_{dk}
B_{wk}`. A pass makes :math:`\sum_w n_{dw} \phi_{dwk} / E_{dk} = \sum_w (n_{dw}/s_{dw}) B_{wk}` and
:math:`\sum_w n_{dw} \log s_{dw}`, block by block; phi is never stored (equations 4.10-4.13 and 9.8 of Yu 2006
need no more).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from zoo.gamma_functions import exp_digamma, gammaln
from zoo.sparse import SparseCounts

FOLD_IN_STEPS = 1000
FOLD_IN_TOLERANCE = 1e-4  # share of a document's tokens that may still move in its last pass
LIKELIHOOD_STEPS = 2000
LIKELIHOOD_TOLERANCE = 1e-6  # nats per token
IMPORTANCE_DRAWS = 50
PRIOR_DRAWS = 0.1  # of the draws, the share that is from the prior


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


def fold_in(
    counts: SparseCounts,
    by_word: Array,
    prior: Array,
    steps: int = FOLD_IN_STEPS,
    present: Array | bool = True,
) -> Array:
    """Dirichlet parameters of the topic shares of documents, by mean field with the topics given.

    A document is left alone as soon as less than `FOLD_IN_TOLERANCE` of its tokens move in a pass, so that it
    has the same shares whatever documents come with it.

    Args:
        counts: the documents.
        by_word: probability (or exp of the expected log probability) of each word, (num_words, num_topics).
        prior: Dirichlet parameters before the words, shape (num_topics,).
        steps: the most passes.
        present: which topics there are, shape (num_topics,); the prior of the others is next to none.

    Returns:
        Shape (num_documents, num_topics).
    """
    equal = jnp.where(present, jnp.ones_like(prior), 0.0)
    start = prior + counts.totals[:, None] * (equal / jnp.sum(equal))

    least = FOLD_IN_TOLERANCE * counts.totals

    def update(gamma: Array) -> tuple[Array, Array]:
        shares = exp_digamma(gamma) / exp_digamma(jnp.sum(gamma, axis=-1, keepdims=True))
        new = prior + shares * cell_sums(counts, shares, by_word).by_document
        return new, jnp.sum(jnp.abs(new - gamma), axis=-1) > least

    return _settled(update, start, steps)


def _settled(update: Callable[[Array], tuple[Array, Array]], start: Array, steps: int) -> Array:
    """Rows after updates, each until it has settled.

    Args:
        update: ``update(rows)`` returns new rows, and for each whether it is to be updated again.
        start: shape (num_documents, num_topics).
        steps: the most updates.
    """

    def goes_on(carry: tuple) -> Array:
        return (carry[2] < steps) & jnp.any(carry[1])

    def once(carry: tuple) -> tuple[Array, Array, Array]:
        rows, moving, done = carry
        new, again = update(rows)
        return jnp.where(moving[:, None], new, rows), moving & again, done + 1

    moving = jnp.ones(start.shape[0], bool)
    return jax.lax.while_loop(goes_on, once, (start, moving, 0))[0]


def likely_shares(counts: SparseCounts, by_word: Array, steps: int = LIKELIHOOD_STEPS) -> Array:
    r"""Topic shares that maximise the likelihood of documents with the topics given (folding-in, by EM).

    A document without words has equal shares. The log likelihood per token is concave in the shares, with the
    gradient :math:`g_k = \sum_w (n_{dw}/N_d) \beta_{kw} / s_{dw}` and :math:`\sum_k \theta_k g_k = 1`, so
    that it lies at most :math:`\max_k g_k - 1` below its maximum: a document is left alone as soon as that is
    below `LIKELIHOOD_TOLERANCE`.

    Args:
        counts: the documents.
        by_word: word probabilities, shape (num_words, num_topics).
        steps: the most of EM.

    Returns:
        Shape (num_documents, num_topics).
    """
    num_topics = by_word.shape[1]
    dtype = jnp.result_type(by_word, jnp.asarray(counts.count))  # double counts may meet single topics
    start = jnp.full((counts.shape[0], num_topics), 1.0 / num_topics, dtype)

    def update(shares: Array) -> tuple[Array, Array]:
        gradient = cell_sums(counts, shares, by_word).by_document
        new = shares * gradient
        total = jnp.sum(new, axis=-1, keepdims=True)
        again = jnp.max(gradient, axis=-1) > (1 + LIKELIHOOD_TOLERANCE) * total[:, 0]
        return jnp.where(total > 0, new / jnp.where(total > 0, total, 1.0), shares), again

    return _settled(update, start, steps)


class LogIntegrals(NamedTuple):
    """Estimates by importance sampling.

    Attributes:
        value: log of the estimated probability of each document's tokens, in nats, shape (num_documents,).
        standard_error: of ``value``, from the spread of the weights, rather too large than too small, shape
            (num_documents,).
    """

    value: Array
    standard_error: Array


def log_integrals(
    key: Array,
    counts: SparseCounts,
    by_word: Array,
    prior: Array,
    num_draws: int = IMPORTANCE_DRAWS,
    gamma: Array | None = None,
    present: Array | bool = True,
) -> LogIntegrals:
    r"""Log probability of the tokens of documents, their topic shares integrated out, in nats.

    Importance sampling, nine tenths of the draws from the Dirichlets q of `fold_in` and the others from the
    prior p, all weighted against the mixture (Owen and Zhou 2000; Veach and Guibas 1995):
    :math:`w = p(x \mid \theta) p(\theta) / \{(1 - \delta) q(\theta) + \delta p(\theta)\}`. No weight
    exceeds :math:`\max_\theta p(x \mid \theta) / \delta`, so that their variance is finite; with q alone it
    is infinite where :math:`\gamma_k > 2 \lambda_k`. The estimate of the probability is unbiased, so that its
    log is too low on average, by about half its squared relative error.

    The draws of a document hang on its words, not on its place, so that it has the same score whatever
    documents come with it.

    Args:
        key: a JAX key.
        counts: the documents.
        by_word: probability of each word, (num_words, num_topics).
        prior: Dirichlet parameters before the words, shape (num_topics,).
        num_draws: draws per document, at least 2.
        gamma: of `fold_in`, where it is known.
        present: which topics there are, as for `fold_in`.

    Returns:
        Of the tokens in their order, without the multinomial coefficient.
    """
    gamma = fold_in(counts, by_word, prior, present=present) if gamma is None else gamma
    from_prior = max(1, round(PRIOR_DRAWS * num_draws))
    log_parts = jnp.log1p(-from_prior / num_draws), jnp.log(from_prior / num_draws)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, _fingerprints(counts))

    def log_dirichlet(concentration: Array, log_shares: Array) -> Array:
        terms = (concentration - 1) * log_shares - gammaln(concentration)
        terms = jnp.where(present, terms, 0.0)
        return jnp.sum(terms, axis=-1) + gammaln(jnp.sum(concentration, axis=-1))

    def draw(total: tuple[Array, Array], number: Array) -> tuple[tuple[Array, Array], None]:
        proposal = jnp.where(number < from_prior, prior, gamma)
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
        log_gamma = jax.vmap(jax.random.loggamma)(own, proposal)
        log_shares = log_gamma - logsumexp(log_gamma, axis=-1, keepdims=True)
        log_sums = cell_sums(counts, jnp.exp(log_shares), by_word).log_sums
        log_prior = log_dirichlet(prior, log_shares)
        log_mixture = jnp.logaddexp(log_parts[0] + log_dirichlet(gamma, log_shares), log_parts[1] + log_prior)
        log_weight = log_sums + log_prior - log_mixture
        return (jnp.logaddexp(total[0], log_weight), jnp.logaddexp(total[1], 2 * log_weight)), None

    # topics may be of a float32 fit
    start = jnp.full(counts.shape[0], -jnp.inf, jnp.result_type(gamma, by_word))
    (first, second), _ = jax.lax.scan(draw, (start, start), jnp.arange(num_draws))
    # the variance of independent draws from the mixture: an upper bound for those of fixed shares
    variance = jnp.maximum(num_draws * jnp.exp(second - 2 * first) - 1.0, 0.0) / (num_draws - 1)
    return LogIntegrals(first - jnp.log(num_draws), jnp.sqrt(variance))


def log_topic_spread(counts: SparseCounts, words: Array, prior: Array, gamma: Array | None = None) -> Array:
    r"""Log ratio of a document's expected density under q(topics) to that at the topics' means, in nats.

    With :math:`n_{kw}` tokens of topic k, :math:`q(\beta_k) = \mathrm{Dirichlet}(a_k)`, :math:`A_k = \sum_w
    a_{kw}` and :math:`(a)_n = \Gamma(a + n) / \Gamma(a)` the ratio is the expectation of

    .. math:: \prod_k \frac{A_k^{N_k}}{(A_k)_{N_k}} \prod_w \frac{(a_{kw})_{n_{kw}}}{a_{kw}^{n_{kw}}}

    over the topics z of the words given the means of the topics. A word of :math:`n_w` tokens has topic k
    with probability :math:`\phi_{kw}` by `fold_in`, and adds :math:`\phi \sum_{j < n_w} \log(1 + \phi j /
    a_{kw})`: exact with one topic and for words that occur once, of second order in :math:`n_w / a_{kw}` for
    others. The totals are taken at their means with half their variance over :math:`A_k + N_k`.

    Args:
        counts: the documents.
        words: Dirichlet parameters of the topics under q, shape (num_words, num_topics).
        prior: Dirichlet parameters of the shares before the words, shape (num_topics,).
        gamma: of `fold_in`, where it is known.

    Returns:
        Shape (num_documents,).
    """
    totals = jnp.sum(words, axis=0)
    by_word = words / totals
    gamma = fold_in(counts, by_word, prior) if gamma is None else gamma
    shares = exp_digamma(gamma) / exp_digamma(jnp.sum(gamma, axis=-1, keepdims=True))

    def log_rising(start: Array, length: Array) -> Array:
        """``log (start)_length - length log start``."""
        return gammaln(start + length) - gammaln(start) - length * jnp.log(start)

    def cells(document: Array, word: Array, count: Array) -> tuple[Array, Array, Array]:
        phi = shares[document] * by_word[word]
        phi = phi / jnp.maximum(jnp.sum(phi, axis=-1, keepdims=True), jnp.finfo(phi.dtype).tiny)
        phi = jnp.maximum(phi, jnp.finfo(phi.dtype).eps)
        tokens = count[:, None] * phi
        own = jnp.sum(phi * log_rising(words[word] / phi, count[:, None]), axis=-1)
        return jnp.where(count > 1, own, 0.0), tokens, tokens * (1.0 - phi)

    by_cell, tokens, variances = counts.sum_by_document(cells)
    of_totals = log_rising(totals, tokens) + 0.5 * variances / (totals + tokens)
    return by_cell - jnp.sum(of_totals, axis=-1)


def _fingerprints(counts: SparseCounts) -> Array:
    """A whole number for each document that its words and their counts determine."""
    mixed = (jnp.asarray(counts.word).astype(jnp.uint32) + 1) * jnp.uint32(2654435761)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(2246822519)
    mixed = (mixed ^ (mixed >> 13)) * jnp.asarray(counts.count).astype(jnp.uint32)
    return jnp.zeros(counts.shape[0], jnp.uint32).at[jnp.asarray(counts.document)].add(mixed)
