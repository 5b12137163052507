r"""Expectation maximisation for probabilistic latent semantic indexing, plain and tempered.

With :math:`s_{dw} = \sum_k (\theta_{dk} \beta_{kw})^b` and :math:`\phi_{dwk} = (\theta_{dk} \beta_{kw})^b /
s_{dw}` (E-step) the M-step is (Hofmann 1999; Yu 2006, 4.7-4.9)

.. math:: \theta_{dk} \propto \sum_w n_{dw} \phi_{dwk}, \qquad \beta_{kw} \propto \sum_d n_{dw} \phi_{dwk}.

b = 1 is EM; ``inverse_temperature`` b < 1 tempers it. The objective is :math:`\sum_{dw} n_{dw} \tfrac1b \log
s_{dw}` plus the documents' multinomial coefficients: the log likelihood at b = 1, else the free energy that
tempered EM climbs. It never falls. One pass costs O(nonzeros x K).

Multiplying theta by the documents' lengths makes the fit a nonnegative factorisation of the counts that
minimises the I-divergence, and EM its multiplicative updates (Lee and Seung 2001; Gaussier and Goutte 2005):
a test holds them against each other.

A word that a topic has never given has probability zero: a new document with it has density zero.
``smoothing`` adds so many tokens to every word of every topic at the end; held-out scores hinge on it.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_draw
from inference.methods.documents.tokens import given_topics
from inference.numerics.documents import DocumentBlocks, cut, topic_pass
from zoo.checks import check_number
from zoo.plsi import PLSI

__all__ = ["METHOD", "init", "step"]


class PLSIEMState(NamedTuple):
    """The estimate.

    Attributes:
        shares: theta, shape (num_documents, num_topics).
        by_word: beta, a topic a column, shape (num_words, num_topics).
    """

    shares: Array
    by_word: Array


class PLSIEMInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: log likelihood (or free energy) at the parameters before the step, in nats.
    """

    objective: Array


def init(key: Array, model: PLSI, documents: DocumentBlocks) -> PLSIEMState:
    """The state with topics and shares drawn uniformly from their simplexes."""
    topic_key, share_key = jax.random.split(key)
    num_documents, num_words = documents.shape
    dtype = documents.blocks.count.dtype
    topics = jax.random.dirichlet(topic_key, jnp.ones(num_words, dtype), (model.num_topics,))
    shares = jax.random.dirichlet(share_key, jnp.ones(model.num_topics, dtype), (num_documents,))
    return PLSIEMState(shares, topics.T)


def start(
    key: Array, variables: Mapping[str, Array], model: PLSI, documents: DocumentBlocks, **options: Any
) -> PLSIEMState:
    """The state with given ``topic_word_probs`` and, if given, ``doc_topic_probs``.

    Raises:
        ValueError: no topics, or of another shape.
    """
    topics = given_topics(variables, model.num_topics, documents.shape[1])
    shares = variables.get("doc_topic_probs")
    if shares is None:
        shares = jnp.full((documents.shape[0], model.num_topics), 1.0 / model.num_topics, topics.dtype)
    return PLSIEMState(jnp.asarray(shares), topics.T)


def step(
    key: Array,
    state: PLSIEMState,
    model: PLSI,
    documents: DocumentBlocks,
    *,
    inverse_temperature: float = 1.0,
) -> tuple[PLSIEMState, PLSIEMInfo]:
    """One E- and M-step; the key is ignored, and a document without words keeps its shares."""
    b = inverse_temperature
    powered = (state.shares, state.by_word) if b == 1 else (state.shares**b, state.by_word**b)
    sums = topic_pass(documents, *powered)
    tokens = jnp.sum(sums.by_document, axis=-1, keepdims=True)
    shares = jnp.where(tokens > 0, sums.by_document / jnp.where(tokens > 0, tokens, 1.0), state.shares)
    given = jnp.sum(sums.by_word, axis=0)
    by_word = jnp.where(given > 0, sums.by_word / jnp.where(given > 0, given, 1.0), state.by_word)
    return PLSIEMState(shares, by_word), PLSIEMInfo(sums.log_sums / b + documents.log_coefficient)


ALGORITHM = Algorithm(init, step)


@cache
def build(strategy: str, inverse_temperature: float, smoothing: float) -> Algorithm:
    """The algorithm at a temperature."""
    return Algorithm(init, partial(step, inverse_temperature=inverse_temperature))


def prepare(model: PLSI, data: tuple, init: Any, **options: Any) -> tuple[DocumentBlocks]:
    """The documents in blocks."""
    return (cut(data[0], model.num_topics),)


def check(model: PLSI, *, inverse_temperature: Any, smoothing: Any) -> None:
    """Raise TypeError or ValueError if an option does not suit."""
    check_number("inverse_temperature", inverse_temperature)
    check_number("smoothing", smoothing)
    if not 0 < inverse_temperature <= 1:
        raise ValueError(f"inverse_temperature must lie in (0, 1]; got {inverse_temperature}")
    if not 0 <= smoothing < np.inf:
        raise ValueError(f"smoothing must be a number of tokens of at least 0; got {smoothing}")


def conclude(
    key: Array,
    state: PLSIEMState,
    model: PLSI,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    *,
    smoothing: float,
    **options: Any,
) -> Outcome:
    """The estimate as one draw of one chain; ``smoothing`` adds tokens to every word of every topic."""
    topics = state.by_word.T
    if smoothing:
        tokens = jnp.sum(topic_pass(data[0], *state).by_word, axis=0)[:, None]
        topics = (tokens * topics + smoothing) / (tokens + smoothing * topics.shape[1])
    values = {"topic_word_probs": topics, "doc_topic_probs": state.shares}
    lead = as_one_draw(values)
    return Outcome(posterior=lead, variational=values, is_point=True)


METHOD = Ascent(
    options={"inverse_temperature": 1.0, "smoothing": 0.0},
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
    log_density=lambda stored, model, counts: model.log_likelihood(
        {"topic_word_probs": stored["topic_word_probs"]}, counts
    ),
    prepare=prepare,
    check=check,
)
