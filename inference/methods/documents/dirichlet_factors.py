r"""Dirichlet factors of a variational posterior: expectations, divergences, learnt symmetric priors.

A symmetric prior's parameter a maximises :math:`n\{\log\Gamma(Sa) - S\log\Gamma(a)\} + (a - 1) \ell`, with n
vectors of S entries and :math:`\ell` the sum of their expected logs. Its derivative falls where the optimum
is, and :math:`\psi(Sa) - \psi(a)` falls from infinity to log S, so bisection in log a finds the one root; at
an end of the bracket the objective still rises from any value inside it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.methods.documents import TopicVB
from zoo.checks import warn
from zoo.documents.topic_model import TopicModel
from zoo.gamma_functions import digamma, exp_digamma, expected_log, gammaln

LEAST, MOST = 1e-6, 1e4  # a learnt parameter stays between
HALVINGS = 60


def exp_expected_log(concentration: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """exp(E[log p]) under Dirichlets along an axis, at half the cost of that of `expected_log`."""
    return exp_digamma(concentration) / exp_digamma(jnp.sum(concentration, axis=axis, keepdims=True))


def total_expected_log(concentration: Array, axis: int = -1, where: Array | bool = True) -> Array:
    """Sum of E[log p] over all entries of Dirichlets along an axis, or over those that there are."""
    return _sum(jnp.where(where, expected_log(concentration, axis), 0.0))


def dirichlet_kl(concentration: Array, prior: Array, axis: int = -1) -> Array:
    """Sum of the divergences KL(q || prior) of Dirichlets along an axis, in nats.

    Args:
        concentration: of q, any shape.
        prior: of the prior, a number or something that broadcasts.
        axis: of the entries of one vector.
    """
    prior = jnp.asarray(prior, concentration.dtype)
    gap = _sum((concentration - prior) * expected_log(concentration, axis))
    if prior.ndim:
        return (
            log_normaliser(jnp.broadcast_to(prior, concentration.shape), axis)
            - log_normaliser(concentration, axis)
            + gap
        )
    size = concentration.shape[axis]
    of_prior = concentration.size // size * symmetric_log_normaliser(prior, size)
    return of_prior - log_normaliser(concentration, axis) + gap


def log_normaliser(concentration: Array, axis: int = -1, where: Array | bool = True) -> Array:
    """Sum of the log normalisers of Dirichlets along an axis: log of the integral of prod p^(a - 1).

    Of Dirichlets in columns (axis 0) only those that there are, shape (num_columns,).
    """
    of_entries, of_totals = gammaln(concentration), gammaln(jnp.sum(concentration, axis=axis))
    return _sum(jnp.where(where, of_entries, 0.0)) - jnp.sum(jnp.where(where, of_totals, 0.0))


def _sum(values: Array) -> Array:
    """Sum of all entries, made before they are added up.

    Where XLA adds up as it makes them, it makes an array of every constant of a series first: twenty times
    the work (on CPUs, JAX 0.12).
    """
    return jnp.sum(jax.lax.optimization_barrier(values))


def symmetric_log_normaliser(parameter: Array, size: int) -> Array:
    """`log_normaliser` of one symmetric Dirichlet of so many entries."""
    return size * gammaln(parameter) - gammaln(size * parameter)


def symmetric_log_density(total_log: Array, num_vectors: int, size: int, parameter: Array) -> Array:
    """Expected log density of vectors under a symmetric Dirichlet, summed, in nats.

    Args:
        total_log: sum of the expected logs over all vectors and entries.
        num_vectors: n.
        size: S, entries of a vector.
        parameter: of the Dirichlet.
    """
    return (parameter - 1) * total_log - num_vectors * symmetric_log_normaliser(parameter, size)


def symmetric_prior(total_log: Array, num_vectors: int, size: int, current: Array) -> Array:
    """The parameter of a symmetric Dirichlet prior that the expected logs like best.

    Args:
        total_log: sum of the expected logs over all vectors and entries.
        num_vectors: n.
        size: S, entries of a vector; of one entry nothing can be learnt.
        current: the parameter so far, kept if the best one inside the bracket is no better.
    """

    def height(a: Array) -> Array:
        return symmetric_log_density(total_log, num_vectors, size, a)

    def halve(ends: tuple, _: None) -> tuple:
        low, high = ends
        middle = 0.5 * (low + high)
        a = jnp.exp(middle)
        rises = num_vectors * size * (digamma(size * a) - digamma(a)) + total_log > 0
        return (jnp.where(rises, middle, low), jnp.where(rises, high, middle)), None

    start = (jnp.log(jnp.asarray(LEAST, total_log.dtype)), jnp.log(jnp.asarray(MOST, total_log.dtype)))
    (low, high), _ = jax.lax.scan(halve, start, None, HALVINGS)
    best = jnp.exp(0.5 * (low + high))
    return jnp.where((height(best) >= height(current)) & (jnp.asarray(size) > 1), best, current)


def check_learnt_prior(model: TopicModel, settings: TopicVB) -> None:
    """Raise ValueError for a prior of topics to be learnt as one number that has one for each topic."""
    if "topic_prior" in settings.learn and np.ndim(model.topic_prior):
        raise ValueError("learn: topic_prior is learnt as one number; this model has one for each topic")


def warn_of_prior(parameter: Array, concentration: Array, name: str, holders: str) -> None:
    """Warn of a learnt prior of topic shares that outweighs the data: then all have nearly the same topics.

    Args:
        parameter: the prior's Dirichlet parameters, shape (num_topics,).
        concentration: of the factors, prior included, shape (num_vectors, num_topics).
        name: of the hyperparameter.
        holders: of the shares, in the plural, such as ``"documents"``.
    """
    prior = float(jnp.sum(parameter))
    tokens = float(jnp.mean(jnp.sum(concentration, axis=-1))) - prior
    if prior > tokens:
        warn(
            f"the learnt {name}, {prior / parameter.size:.3g} for each topic, outweighs the {holders} "
            f"({tokens:.3g} tokens in the mean), so that all have nearly the same topics. Learnt "
            "from topics that are still alike it can run off: fit some steps with learn=() first and go "
            "on from there (init=tree), or keep the prior; the higher bound decides"
        )


def warn_of_smoothing(smoothing: Array, concentration: Array) -> None:
    """Warn of a learnt smoothing of words that outweighs the words: then all topics are nearly flat.

    Args:
        smoothing: eps, for each word of each topic.
        concentration: Dirichlet parameters of the topics, smoothing included, shape (num_topics, num_words).
    """
    num_topics, num_words = concentration.shape
    prior = float(smoothing) * num_words
    tokens = float(np.asarray(concentration).sum()) / num_topics - prior
    if prior > tokens:
        warn(
            f"the learnt word_smoothing, {float(smoothing):.3g} for each word, outweighs the topics "
            f"({tokens / num_words:.3g} tokens of a word in the mean), so that all words are nearly equally "
            "probable in each: the bound finds no topics in these counts. Keep the smoothing (learn=()), "
            "give fewer topics, or compare with one topic"
        )
