r"""The posterior that VB finds for LDA: as draws, as stored numbers, as a program, for new documents."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Outcome
from inference.numerics.weighted_rows import row_limit
from zoo.documents.bags import CellTopics, dense_counts, log_coefficients
from zoo.documents.shares import fold_in, log_integrals
from zoo.gamma_functions import expected_log
from zoo.lda import INTEGRATION_SEED, LDA
from zoo.model import in_current_precision

__all__ = ["LDAVBState", "affordable", "conclude", "guide", "log_density", "transform"]

TOPIC_BYTES = 2e9  # draws of topics that would take more are not all made


class LDAVBState(NamedTuple):
    """The factors of q, and the priors as learnt so far.

    Attributes:
        word_concentration: Dirichlet parameters of the topics, shape (num_words, num_topics).
        doc_concentration: Dirichlet parameters of the topic shares, shape (num_documents, num_topics).
        topic_prior: lambda, shape (num_topics,).
        word_smoothing: eps.
    """

    word_concentration: Array
    doc_concentration: Array
    topic_prior: Array
    word_smoothing: Array


def affordable(num_samples: int, num_entries: int) -> int:
    """So many draws of topics as the memory that is meant for them takes; warns if that is fewer.

    Args:
        num_samples: draws asked for.
        num_entries: numbers in a draw.
    """
    fits = max(int(TOPIC_BYTES // (8 * num_entries)), 1)
    if fits < num_samples:
        warnings.warn(
            f"{num_samples} draws of the topics would take {num_samples * num_entries * 8 / 1e9:.1f} GB: "
            f"{fits} are kept; ask for fewer by num_samples",
            stacklevel=4,
        )
    return min(num_samples, fits)


def conclude(
    key: Array,
    state: LDAVBState,
    model: LDA,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Independent draws from q, as one chain, beside q's parameters; topic shares only where small."""
    num_samples = affordable(num_samples, state.word_concentration.size)
    if "topic_prior" in options.get("learn", ()):
        _check_prior(state)
    keys = jax.random.split(key, num_samples)
    keep_rows = keep_rows and row_limit(num_samples * state.doc_concentration.size * 8, "doc_topic_probs")
    draws = _draw(keys, state, keep_rows)
    stored = {"topic_word_concentration": state.word_concentration.T}
    if state.doc_concentration.shape[0]:  # documents in chunks keep nothing
        stored["doc_topic_concentration"] = state.doc_concentration
    learnt = model.replaced(
        word_smoothing=np.asarray(state.word_smoothing, np.float64),
        topic_prior=np.asarray(
            state.topic_prior if np.ndim(model.topic_prior) else state.topic_prior[0], np.float64
        ),
    )
    learnt = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), learnt)
    return Outcome(posterior=jax.tree.map(lambda leaf: leaf[None], draws), variational=stored, model=learnt)


def _check_prior(state: LDAVBState) -> None:
    """Warn of a learnt prior of the shares that outweighs the documents: then all have the same topics."""
    prior = float(jnp.sum(state.topic_prior))
    tokens = float(jnp.mean(jnp.sum(state.doc_concentration, axis=-1))) - prior
    if prior > tokens:
        warnings.warn(
            f"the learnt topic_prior, {prior / state.topic_prior.size:.3g} for each topic, outweighs the "
            f"documents ({tokens:.3g} tokens in the mean), so that all have nearly the same topics. Learnt "
            "from topics that are still alike it can run off: fit some steps with learn=() first and go "
            "on from there (init=tree), or keep the prior; the higher bound decides",
            stacklevel=4,
        )


@partial(jax.jit, static_argnames="keep_rows")
def _draw(keys: Array, state: LDAVBState, keep_rows: bool) -> dict[str, Array]:
    def one(key: Array) -> dict[str, Array]:
        topic_key, share_key = jax.random.split(key)
        values = {"topic_word_probs": jax.random.dirichlet(topic_key, state.word_concentration.T)}
        if keep_rows:
            values["doc_topic_probs"] = jax.random.dirichlet(share_key, state.doc_concentration)
        return values

    return jax.lax.map(one, keys)


def guide(stored: Mapping[str, Array], model: LDA, counts: Any) -> None:
    """Q as a NumPyro program with exactly the sites of ``model.explicit``.

    Args:
        stored: the parameters, as in the group ``variational``.
        model: the model.
        counts: the documents that were fitted.

    Raises:
        ValueError: other documents, or a fit without their parameters.
    """
    stored = in_current_precision(dict(stored))
    if stored.get("doc_topic_concentration", np.zeros((0, 0))).shape[0] != counts.shape[0]:
        raise ValueError("the guide is of the documents that were fitted, with their parameters kept")
    positive = dist.constraints.positive
    words = numpyro.param("topic_word_concentration", stored["topic_word_concentration"], constraint=positive)
    shares = numpyro.param("doc_topic_concentration", stored["doc_topic_concentration"], constraint=positive)
    with numpyro.plate("topics", model.num_topics):
        numpyro.sample("topic_word_probs", dist.Dirichlet(words))
    with numpyro.plate("documents", counts.shape[0]):
        numpyro.sample("doc_topic_probs", dist.Dirichlet(shares))
        logits = expected_log(shares)[:, :, None] + expected_log(words)
        numpyro.sample("word_topics", CellTopics(dense_counts(counts), logits, model.num_tokens))


def transform(stored: Mapping[str, Array], model: LDA, counts: Any) -> Array:
    """Expected topic shares of new documents under q, by mean field with q(beta) as fitted."""
    by_word = jnp.exp(expected_log(stored["topic_word_concentration"])).T
    gamma = fold_in(counts, by_word, in_current_precision(model)._topic_prior())
    return gamma / jnp.sum(gamma, axis=-1, keepdims=True)


def log_density(stored: Mapping[str, Array], model: LDA, counts: Any) -> Array:
    """Log density of new documents in nats, topics at their mean under q, shares integrated out.

    By importance sampling (`zoo.documents.shares.log_integrals`).
    """
    words = stored["topic_word_concentration"]
    by_word = (words / jnp.sum(words, axis=-1, keepdims=True)).T
    prior = in_current_precision(model)._topic_prior()
    key = jax.random.key(INTEGRATION_SEED)
    return log_integrals(key, counts, by_word, prior) + log_coefficients(counts)
