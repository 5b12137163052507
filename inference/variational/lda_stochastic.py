r"""Minibatch variational Bayes for latent Dirichlet allocation.

Documents have their optimum in the batch (:math:`\gamma_d`, :math:`\phi_d` as in
`inference.variational.lda`); a batch B of them, taken D/|B| times, would have the topics

.. math:: \hat\mu = \epsilon + \frac{D}{|B|} \sum_{d \in B} n_{dw} \phi_{dwk},

and :math:`\hat\mu - \mu` estimates the natural gradient of the bound without bias (Hoffman, Blei and Bach
2010, equations 5-7; Hoffman, Blei, Wang and Paisley 2013, 4.2), so

.. math:: \mu \leftarrow (1 - \rho_t)\, \mu + \rho_t\, \hat\mu, \qquad \rho_t = (\tau + t)^{-\kappa}.

``learning_offset`` is tau, ``learning_decay`` kappa; the sum of :math:`\rho_t` must be infinite and that of
its squares finite, hence 1/2 < kappa <= 1. ``word_smoothing`` may be learnt: after every batch it is set to
what the topics like best.
"""

from functools import cache, partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from inference.algorithm import Stochastic
from inference.document_blocks import DocumentBlocks
from inference.variational.dirichlet_factors import (
    dirichlet_kl,
    expected_log,
    symmetric_prior,
    total_expected_log,
)
from inference.variational.lda import LDAVBInfo, local_step
from inference.variational.lda_posterior import LDAVBState
from zoo.lda import LDA

__all__ = ["evaluate", "natural_gradient", "step", "stochastic", "total"]


class BatchGradient(NamedTuple):
    """What a batch says of the topics.

    Attributes:
        gradient: noisy natural gradient with respect to the topics' parameters, (num_words, num_topics).
        score: the documents' part of the bound, in nats.
    """

    gradient: Array
    score: Array


def natural_gradient(
    state: LDAVBState, documents: DocumentBlocks, share: Array, inner_steps: int
) -> BatchGradient:
    """The estimate of a batch.

    Args:
        state: q.
        documents: the batch.
        share: |B| / D, of all documents.
        inner_steps: passes over the documents.
    """
    by_word = jnp.exp(expected_log(state.word_concentration, axis=0))
    local = local_step(documents, by_word, state.topic_prior, inner_steps)
    best = state.word_smoothing + local.by_word / share
    return BatchGradient(best - state.word_concentration, local.score)


def step(
    state: LDAVBState,
    model: LDA,
    documents: DocumentBlocks,
    share: Array,
    time: Array,
    *,
    inner_steps: int,
    learn: tuple[str, ...],
    learning_offset: float,
    learning_decay: float,
) -> tuple[LDAVBState, Array]:
    """The state after a batch, and the documents' part of the bound before it.

    Args:
        state: q.
        model: the model as given.
        documents: the batch.
        share: |B| / D.
        time: t, from 1.
        inner_steps: passes over the documents.
        learn: hyperparameters to learn.
        learning_offset: tau.
        learning_decay: kappa.
    """
    found = natural_gradient(state, documents, share, inner_steps)
    size = jnp.minimum((learning_offset + time) ** -learning_decay, 1.0)
    words = state.word_concentration + size * found.gradient
    smoothing = state.word_smoothing
    if "word_smoothing" in learn:
        smoothing = symmetric_prior(total_expected_log(words, axis=0), *words.shape[::-1], smoothing)
    return state._replace(word_concentration=words, word_smoothing=smoothing), found.score


def evaluate(
    state: LDAVBState, model: LDA, documents: DocumentBlocks, *, inner_steps: int
) -> tuple[Array, Array]:
    """Dirichlet parameters of documents and their part of the bound, the topics as they are."""
    by_word = jnp.exp(expected_log(state.word_concentration, axis=0))
    local = local_step(documents, by_word, state.topic_prior, inner_steps)
    return local.doc_concentration, local.score


def total(state: LDAVBState, model: LDA) -> LDAVBInfo:
    """The bound without the documents' terms."""
    divergence = dirichlet_kl(state.word_concentration, state.word_smoothing, axis=0)
    return LDAVBInfo(-divergence, state.word_smoothing, jnp.mean(state.topic_prior))


def with_rows(state: LDAVBState, doc_concentration: Array) -> LDAVBState:
    """The state with the documents' parameters."""
    return state._replace(doc_concentration=jnp.asarray(doc_concentration))


def without_rows(state: LDAVBState) -> LDAVBState:
    """The state as batches pass it on: documents keep nothing."""
    return state._replace(doc_concentration=state.doc_concentration[:0])


@cache
def stochastic(
    documents: str,
    inner_steps: int,
    learn: tuple[str, ...],
    learning_offset: float,
    learning_decay: float,
) -> Stochastic:
    """The step with its options."""
    options = {"learn": learn, "learning_offset": learning_offset, "learning_decay": learning_decay}
    return Stochastic(
        partial(step, inner_steps=inner_steps, **options),
        partial(evaluate, inner_steps=inner_steps),
        total,
        with_rows,
        without_rows,
    )
