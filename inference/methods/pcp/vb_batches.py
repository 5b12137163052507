r"""Structured VB for PCP from batches of documents: the corpus' sums are estimated as batches pass.

All that the global factors need of the documents is :math:`C_{mw} = \sum_d \psi_{dm} n_{dw}` and :math:`S_m =
\sum_d \psi_{dm}` (`inference.methods.pcp.vb`). A batch B, taken D/|B| times, estimates both without bias:

.. math:: \hat C \leftarrow (1 - \rho_t)\, \hat C + \rho_t \frac{D}{|B|} C_B, \qquad
    \rho_t = \max\{(\tau + t)^{-\kappa}, 1/t\},

and :math:`\hat S` likewise, after which centres, topics and weights are updated as from the sums of all
documents. Where the sums are those of the state, the state is a fixed point of VB on the whole corpus: this
is stochastic approximation of it (Cappe and Moulines 2009 for EM; Hoffman, Blei, Wang and Paisley 2013 for
VB). The sums are averaged and not the Dirichlet parameters, as centres and topics are optimal for the sums
only together. The first batches have equal weights (1/t), so that nothing of the start is left in the sums. A
first batch of all documents is a step of VB.

An annealed start is annealed over the first batches. Nothing is pruned; of the hyperparameters only
``word_smoothing`` is learnt.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.algorithm import NaturalGradient
from inference.methods.pcp.vb_posterior import (
    PCPVBInfo,
    PCPVBState,
    expected_log_weights,
    globals_bound,
    info_of,
    log_weight_terms,
)
from inference.methods.pcp.vb_starts import settled_by_one
from inference.methods.pcp.vb_updates import assign, update_globals, word_log_centres
from inference.numerics.documents import DocumentBlock, DocumentBlocks
from zoo.pcp import PCP


class PCPBatchState(NamedTuple):
    """The global factors of q, and the sums over the corpus that they follow from.

    Attributes:
        factors: of q.
        by_word: C' as estimated so far, shape (num_words, num_clusters).
        sizes: S as estimated so far, shape (num_clusters,).
    """

    factors: PCPVBState
    by_word: Array
    sizes: Array


def step_of_batch(
    state: PCPBatchState,
    model: PCP,
    documents: DocumentBlocks,
    share: Array,
    time: Array,
    *,
    inner_steps: int,
    learn: tuple[str, ...],
    point: bool,
    learning_offset: float,
    learning_decay: float,
) -> tuple[PCPBatchState, Array]:
    """The state after a batch, and the documents' part of the bound before it.

    Args:
        state: q.
        model: the model as given.
        documents: the batch.
        share: |B| / D.
        time: t, from 1.
        inner_steps: updates of centres and topics in turn.
        learn: hyperparameters to learn.
        point: whether topics are point estimates.
        learning_offset: tau.
        learning_decay: kappa.
    """
    factors, power, holds = settled_by_one(state.factors)
    log_centres, log_weights = word_log_centres(factors, point), expected_log_weights(factors, model)
    found = assign(documents, log_centres, log_weights, power)
    score = jnp.sum(found.by_word * log_centres) + found.sizes @ log_weights + found.entropy
    rate = jnp.minimum(jnp.maximum((learning_offset + time) ** -learning_decay, 1.0 / time), 1.0)
    by_word = state.by_word + rate * (found.by_word / share - state.by_word)
    sizes = state.sizes + rate * (found.sizes / share - state.sizes)
    factors = update_globals(factors, by_word, sizes, model, inner_steps, learn, point, holds)
    return PCPBatchState(factors, by_word, sizes), score


def evaluate(
    state: PCPBatchState, model: PCP, documents: DocumentBlocks, *, point: bool
) -> tuple[Array, Array]:
    """Shares of documents in the clusters and their part of the bound, the global factors fixed."""
    factors = state.factors
    log_centres, log_weights = word_log_centres(factors, point), expected_log_weights(factors, model)

    def add(total: tuple[Array, Array], block: DocumentBlock) -> tuple[Array, Array]:
        scores = block.times(log_centres) + log_weights
        normaliser = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
        exists = (block.owner < documents.shape[0])[:, None]
        shares = total[0].at[block.owner].set(jnp.exp(scores - normaliser), mode="drop")
        return shares, total[1] + jnp.sum(jnp.where(exists, normaliser, 0.0))

    shape, dtype = (documents.shape[0], log_weights.size), log_weights.dtype
    return documents.fold(add, (jnp.zeros(shape, dtype), jnp.zeros((), dtype)))


def total(state: PCPBatchState, model: PCP, *, point: bool) -> PCPVBInfo:
    """The bound without the documents' terms."""
    factors = state.factors
    objective = globals_bound(factors, model, point) - log_weight_terms(factors, model)
    return info_of(objective, state.sizes, factors)


def with_rows(state: PCPBatchState, shares: Array | None) -> PCPVBState:
    """The factors of q, with the documents' shares in the clusters where they are kept."""
    return state.factors._replace(responsibilities=shares, annealing=None)


def without_rows(factors: PCPVBState) -> PCPBatchState:
    """A start, before any document has been seen."""
    by_word = jnp.zeros((factors.words.shape[1], factors.clusters.shape[0]), factors.clusters.dtype)
    return PCPBatchState(factors, by_word, jnp.zeros_like(by_word[0]))


@cache
def in_batches(
    family: str,
    topics: str,
    inner_steps: int,
    learn: tuple[str, ...],
    prune: bool,
    learning_offset: float,
    learning_decay: float,
) -> NaturalGradient:
    """The step from batches, with its options.

    Raises:
        ValueError: an option that needs all documents at once.
    """
    if family == "mean_field":
        raise ValueError(
            "family='mean_field' needs all documents at once: with batch_size fit the structured family"
        )
    if not set(learn) <= {"word_smoothing"}:
        raise ValueError(
            "learn does not go with batch_size but for word_smoothing: give the hyperparameters, or learn "
            "them on fewer rows"
        )
    point: dict[str, Any] = {"point": topics == "point"}
    rates: dict[str, Any] = {"learning_offset": learning_offset, "learning_decay": learning_decay}
    return NaturalGradient(
        partial(step_of_batch, inner_steps=inner_steps, learn=learn, **rates, **point),
        partial(evaluate, **point),
        partial(total, **point),
        with_rows,
        without_rows,
        num_columns=_num_clusters,
        of_rows="responsibilities",
        drawn_of_rows="doc_clusters",
        draw_width=_one,
    )


def _num_clusters(model: PCP) -> int:
    return model.num_clusters


def _one(model: PCP) -> int:
    return 1
