r"""Expectation maximisation for probabilistic latent semantic indexing, plain, tempered and annealed.

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

**Annealing on held-out tokens** (``heldout_share`` above 0) chooses b. It is Hofmann's "inverse annealing": b
goes down, against topics that fit single documents, not against local maxima. A share of every document's
tokens is held out, the same for every seed; a word and a document keep one at least. From b =
``inverse_temperature`` on,

1. the held-out tokens are scored, :math:`S = \sum_{dw} h_{dw} \log \sum_k \theta_{dk} \beta_{kw}`, with the
   topics smoothed as they will be in the end;
2. where S has risen by less than 1e-4 nats per held-out token since the step before, b is multiplied by
   ``inverse_temperature_decay``;
3. a step of tempered EM is taken on the other tokens.

The objective is the largest S so far, which never falls, and its estimate is the fit. So stopping early at
one b, and no longer lowering b, are one rule: five steps without gain. The trace has S and b of every step,
the attributes the b of the estimate. With it iterations on all tokens may follow:
``fit(model, counts, init=tree, inverse_temperature=tree.attrs["inverse_temperature"])``. A step costs a pass
over the held-out tokens besides.

Reference: Hofmann (1999), "Probabilistic latent semantic analysis", section 3.6. Which tokens are held out,
and what gain is negligible, he leaves open.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome, as_one_draw
from inference.methods.documents.tokens import given_topics
from inference.methods.plsi import EM
from inference.numerics.documents import DocumentBlocks, cut, padded_documents, topic_pass
from zoo.plsi import PLSI
from zoo.shapes import Values
from zoo.sparse import SparseCounts

NEGLIGIBLE = 1e-4  # gain in nats per held-out token below which b is lowered


class PLSIEMState(NamedTuple):
    """The estimate.

    Attributes:
        shares: theta, shape (num_documents, num_topics).
        by_word: beta, a topic a column, shape (num_words, num_topics).
    """

    shares: Array
    by_word: Array


class AnnealedState(NamedTuple):
    """A run of the schedule.

    Attributes:
        now: the estimate that the last step made.
        best: the one whose held-out tokens had the largest log likelihood.
        inverse_temperature: b at which ``now`` was made, shape ().
        best_inverse_temperature: b at which ``best`` was made, shape ().
        score: log likelihood of the held-out tokens before the last step, in nats, shape ().
        best_score: that at ``best``, shape ().
    """

    now: PLSIEMState
    best: PLSIEMState
    inverse_temperature: Array
    best_inverse_temperature: Array
    score: Array
    best_score: Array


class AnnealedInfo(NamedTuple):
    """Values recorded at every step of the schedule.

    Attributes:
        objective: largest log likelihood of the held-out tokens so far, in nats.
        heldout_log_likelihood: that at the parameters before the step.
        inverse_temperature: b at which these were made.
    """

    objective: Array
    heldout_log_likelihood: Array
    inverse_temperature: Array


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
    key: Array,
    variables: Values,
    model: PLSI,
    documents: DocumentBlocks,
    heldout: DocumentBlocks | None = None,
    **options: Any,
) -> PLSIEMState | AnnealedState:
    """The state with given ``topic_word_probs`` and, if given, ``doc_topic_probs``.

    Raises:
        ValueError: no topics, or of another shape.
    """
    topics = given_topics(variables, model.num_topics, documents.shape[1])
    shares = variables.get("doc_topic_probs")
    if shares is None:
        shares = jnp.full((documents.shape[0], model.num_topics), 1.0 / model.num_topics, topics.dtype)
    given = PLSIEMState(jnp.asarray(shares), topics.T)
    return _begun(given, options["inverse_temperature"]) if options["heldout_share"] else given


def step(
    key: Array,
    state: PLSIEMState,
    model: PLSI,
    documents: DocumentBlocks,
    *,
    inverse_temperature: float = 1.0,
) -> tuple[PLSIEMState, PLSIEMInfo]:
    """One E- and M-step; the key is ignored, and a document without words keeps its shares."""
    return _tempered(state, documents, inverse_temperature)


def _tempered(
    state: PLSIEMState, documents: DocumentBlocks, b: Array | float
) -> tuple[PLSIEMState, PLSIEMInfo]:
    """One E- and M-step at an inverse temperature, a number or traced."""
    powered = (state.shares, state.by_word)
    if not isinstance(b, float | int) or b != 1:
        powered = (state.shares**b, state.by_word**b)
    sums = topic_pass(documents, *powered)
    tokens = jnp.sum(sums.by_document, axis=-1, keepdims=True)
    shares = jnp.where(tokens > 0, sums.by_document / jnp.where(tokens > 0, tokens, 1.0), state.shares)
    given = jnp.sum(sums.by_word, axis=0)
    by_word = jnp.where(given > 0, sums.by_word / jnp.where(given > 0, given, 1.0), state.by_word)
    return PLSIEMState(shares, by_word), PLSIEMInfo(sums.log_sums / b + documents.log_coefficient)


def annealed(
    key: Array,
    state: AnnealedState,
    model: PLSI,
    documents: DocumentBlocks,
    heldout: DocumentBlocks,
    *,
    inverse_temperature_decay: float,
    smoothing: float,
) -> tuple[AnnealedState, AnnealedInfo]:
    """Score the held-out tokens, lower b where they have gained next to nothing, and take a step."""
    tokens = jnp.sum(heldout.blocks.count)
    by_word = _smoothed(state.now, documents, smoothing)
    score = topic_pass(heldout, state.now.shares, by_word).log_sums
    rises = score - state.score >= NEGLIGIBLE * tokens  # not of NaN, where both are minus infinity
    b = state.inverse_temperature * jnp.where(rises, 1.0, inverse_temperature_decay)
    better = score > state.best_score
    best, best_b, best_score = jax.tree.map(
        partial(jnp.where, better),
        (state.now, state.inverse_temperature, score),
        (state.best, state.best_inverse_temperature, state.best_score),
    )
    after = _tempered(state.now, documents, b)[0]
    info = AnnealedInfo(best_score, score, state.inverse_temperature)
    return AnnealedState(after, best, b, best_b, score, best_score), info


def _smoothed(state: PLSIEMState, documents: DocumentBlocks, smoothing: float) -> Array:
    """The topics with so many tokens added to every word of each, shape (num_words, num_topics)."""
    if not smoothing:
        return state.by_word
    tokens = jnp.sum(topic_pass(documents, *state).by_word, axis=0)
    return (tokens * state.by_word + smoothing) / (tokens + smoothing * state.by_word.shape[0])


def _begun(state: PLSIEMState, inverse_temperature: float) -> AnnealedState:
    """A run of the schedule before its first score."""
    dtype = state.shares.dtype
    b, unknown = jnp.asarray(inverse_temperature, dtype), jnp.asarray(-jnp.inf, dtype)
    return AnnealedState(state, state, b, b, unknown, unknown)


def split_off(counts: SparseCounts, share: float) -> tuple[SparseCounts, ...]:
    """Hold out each token with the same probability, so that no document and no word loses all it has.

    Args:
        counts: the documents.
        share: the probability.

    Returns:
        The tokens that are kept, and those held out, each with all documents in their order.
    """
    taken = np.random.default_rng(0).binomial(counts.count.astype(int), share).astype(float)
    for index in (counts.document, counts.word):
        left = np.bincount(index, counts.count - taken)
        taken = np.where(left[index] == 0, 0.0, taken)
    return tuple(
        SparseCounts(counts.document[part > 0], counts.word[part > 0], part[part > 0], counts.shape)
        for part in (counts.count - taken, taken)
    )


ALGORITHM = Algorithm(init, step)


def _init_annealed(
    key: Array, model: PLSI, documents: DocumentBlocks, heldout: DocumentBlocks, *, inverse_temperature: float
) -> AnnealedState:
    return _begun(init(key, model, documents), inverse_temperature)


@cache
def build(
    strategy: str,
    inverse_temperature: float,
    smoothing: float,
    heldout_share: float,
    inverse_temperature_decay: float,
) -> Algorithm:
    """The algorithm at a temperature, or the schedule that begins there."""
    if not heldout_share:
        return Algorithm(init, partial(step, inverse_temperature=inverse_temperature))
    return Algorithm(
        partial(_init_annealed, inverse_temperature=inverse_temperature),
        partial(annealed, inverse_temperature_decay=inverse_temperature_decay, smoothing=smoothing),
    )


def prepare(
    model: PLSI, data: tuple, init: Init, *, heldout_share: float, **options: object
) -> tuple[DocumentBlocks, ...]:
    """The documents in blocks: those to fit and, with the schedule, those held out.

    Raises:
        ValueError: the share holds out no token.
    """
    if not heldout_share:
        return (cut(data[0], model.num_topics),)
    parts = split_off(data[0], heldout_share)
    if not parts[1].num_nonzeros:
        raise ValueError(
            f"heldout_share={heldout_share:g} holds out none of the {data[0].count.sum():.0f} tokens, since "
            "every word and every document keeps one: give a larger share, or leave heldout_share out"
        )
    return tuple(cut(part, model.num_topics) for part in parts)


def conclude(
    key: Array,
    state: PLSIEMState | AnnealedState,
    model: PLSI,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    *,
    smoothing: float,
    **options: object,
) -> Outcome:
    """The estimate as one draw of one chain; ``smoothing`` adds tokens to every word of every topic."""
    attrs: dict[str, float] = {}
    if isinstance(state, AnnealedState):
        tokens = float(jnp.sum(data[1].blocks.count))
        attrs = {
            "inverse_temperature": float(state.best_inverse_temperature),
            "num_heldout_tokens": int(tokens),
            "heldout_log_likelihood": float(state.best_score),
            "heldout_perplexity": float(np.exp(-float(state.best_score) / tokens)),
        }
        state = state.best
    values = {
        "topic_word_probs": _smoothed(state, data[0], smoothing).T,
        "doc_topic_probs": state.shares,
    }
    return Outcome(
        posterior=as_one_draw(values),
        variational=values,
        attrs=attrs,
        is_point=True,
        densities={"objective": ()},
    )


METHOD = Ascent(
    settings=EM,
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
    log_density=lambda stored, model, counts: model.log_likelihood(
        {"topic_word_probs": stored["topic_word_probs"]}, counts
    ),
    prepare=prepare,
    for_steps=padded_documents,
    of_rows=(".shares", ".now.shares", ".best.shares"),
)
