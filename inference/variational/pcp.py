r"""Variational Bayes for the probabilistic clustering-projection model.

``family="structured"`` (the default) approximates the posterior by :math:`q(\pi) \prod_m q(\theta_m) \prod_k
q(\beta_k) \prod_d q(c_d) \prod_n q(z_{dn} \mid c_d)`: the topics of words know the cluster. With
:math:`T_{mk} = e^{E \log \theta_{mk}}`, :math:`B_{kw} = e^{E \log \beta_{kw}}` the updates are

.. math::
    \psi_{dm} &\propto \exp\{E \log \pi_m + \textstyle\sum_w n_{dw} \log (T B)_{mw}\}, \qquad
    C_{mw} = \textstyle\sum_d \psi_{dm} n_{dw}, \quad R = C / (T B), \\
    \gamma_{mk} &= \lambda_k + T_{mk} (R B')_{mk}, \qquad
    \mu_{kw} = \epsilon + B_{kw} (T' R)_{kw}, \qquad \eta_m = \alpha/M + \textstyle\sum_d \psi_{dm}.

Nothing is done per nonzero and topic: a step costs O(nonzeros x M + inner_steps x M W K). It is never below
the mean-field bound at the same global factors, and equal where psi is certain.

``family="mean_field"`` is Algorithm 9.1 of Yu (2006), q(c) q(z) independent (`inference.variational.
pcp_mean_field`). From a random start it collapses to one cluster; it is here to show that, and warns.

The objective is the whole evidence lower bound, multinomial coefficients included; it never falls.
``topics``: ``"posterior"`` (a Dirichlet factor) or ``"point"`` (the thesis's: the maximum, ``word_smoothing -
1`` being its additive constant, 9.9). ``learn`` fits hyperparameters by maximum of the bound. A cluster
without documents is at its prior: such are dropped on the way (``prune``, `inference.variational.
pcp_pruning`), which leaves the bound as it is, and stand last in the fit.
"""

import warnings
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Method
from inference.count_segments import CACHED_NUMBERS, CountSegments
from inference.devices import on_all_devices
from inference.document_blocks import DocumentBlocks, cut, log_coefficient
from inference.variational import pcp_mean_field
from inference.variational.dirichlet_factors import expected_log
from inference.variational.pcp_posterior import (
    OCCUPIED,
    PCPVBState,
    centre_log_probs,
    conclude,
    expected_log_topics,
    expected_log_weights,
    globals_bound,
    guide,
    learnt_concentration,
    learnt_factors,
    log_density,
    transform,
)
from inference.variational.pcp_pruning import shrink
from inference.variational.pcp_starts import PROJECTIONS, init
from zoo.argument_checks import check_choice, check_flag
from zoo.gamma_functions import digamma
from zoo.pcp import PCP

__all__ = ["ALGORITHM", "METHOD", "Corpus", "PCPVBInfo", "bound", "init", "step"]

FAMILIES = ("structured", "mean_field")
LEARNABLE = ("concentration", "topic_prior", "word_smoothing")


class Corpus(NamedTuple):
    """The documents as the steps take them.

    Attributes:
        counts: in segments.
        log_coefficient: sum of their log multinomial coefficients, in nats.
        blocks: the same in blocks, where the family or the start passes over cells and topics; else None.
    """

    counts: CountSegments
    log_coefficient: Array
    blocks: DocumentBlocks | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and words."""
        return self.counts.shape

    def over_devices(self, num_devices: int) -> "Corpus":
        """The same, the documents dealt out; the start has seen the blocks."""
        counts = self.counts.over_devices(num_devices)
        return Corpus(counts, on_all_devices(self.log_coefficient, num_devices))


class PCPVBInfo(NamedTuple):
    """What is recorded of a step.

    Attributes:
        objective: the evidence lower bound, in nats.
        num_occupied: clusters that are expected to hold more than half a document.
        word_smoothing: eps.
        concentration: alpha.
    """

    objective: Array
    num_occupied: Array
    word_smoothing: Array
    concentration: Array


def step(
    key: Array,
    state: PCPVBState,
    model: PCP,
    corpus: Corpus,
    *,
    inner_steps: int = 5,
    learn: tuple[str, ...] = ("word_smoothing",),
    point: bool = False,
) -> tuple[PCPVBState, PCPVBInfo]:
    """Clusters of documents, then centres, topics and hyperparameters in turn, then the bound."""
    log_weights = expected_log_weights(state, model)
    log_centres = word_log_centres(state, point)
    scores = corpus.counts.times(log_centres) + log_weights
    log_normaliser = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
    responsibilities = jnp.exp(scores - log_normaliser)
    by_word = corpus.counts.transposed_times(responsibilities)
    sizes = jnp.sum(responsibilities, axis=0)
    entropy = jnp.sum(log_normaliser) - jnp.sum(by_word * log_centres) - sizes @ log_weights
    state = update_globals(state, by_word, sizes, model, inner_steps, learn, point)
    words = jnp.sum(by_word * word_log_centres(state, point))
    objective = words + entropy + globals_bound(state, model, point) + corpus.log_coefficient
    occupied = jnp.sum(sizes > OCCUPIED)
    return state, PCPVBInfo(objective, occupied, state.word_smoothing, state.concentration)


def update_globals(
    state: PCPVBState,
    by_word: Array,
    sizes: Array,
    model: PCP,
    inner_steps: int,
    learn: tuple[str, ...],
    point: bool,
) -> PCPVBState:
    """Everything but the documents' clusters; none of it passes over the documents.

    Args:
        state: q.
        by_word: C', expected tokens of each word in each cluster, shape (num_words, num_clusters).
        sizes: expected documents of each cluster, shape (num_clusters,).
        model: the model as given.
        inner_steps: updates of centres and topics in turn.
        learn: hyperparameters to learn.
        point: whether topics are point estimates.
    """
    block_words = max(CACHED_NUMBERS // (2 * by_word.shape[1]), 16)
    rows = in_row_blocks(by_word, block_words)

    def alternate(state: PCPVBState, learn: tuple[str, ...]) -> PCPVBState:
        shares = jnp.exp(expected_log(state.clusters))
        topics = jnp.exp(expected_log_topics(state.words, point)).T
        given, tokens = _divided(rows, in_row_blocks(topics, block_words), shares)
        clusters = state.topic_prior + shares * given
        tokens = (tokens.reshape(-1, topics.shape[1])[: topics.shape[0]] * topics).T
        return learnt_factors(state, clusters, tokens, learn, point)

    state = jax.lax.fori_loop(1, inner_steps, lambda _, state: alternate(state, ()), state)
    state = alternate(state, learn)  # hyperparameters once: that costs more than an update
    weights = model.weights.posterior(sizes, state.concentration)
    if "concentration" in learn:
        state = state._replace(concentration=learnt_concentration(state._replace(weights=weights), model))
        weights = model.weights.posterior(sizes, state.concentration)
    return state._replace(weights=weights)


def word_log_centres(state: PCPVBState, point: bool) -> Array:
    """Log of the sum over topics of exp(E log theta + E log beta), shape (num_words, num_clusters)."""
    topics = jnp.exp(expected_log_topics(state.words, point)).T
    centres = topics @ jnp.exp(expected_log(state.clusters)).T
    return jnp.log(jnp.maximum(centres, jnp.finfo(centres.dtype).tiny))


def in_row_blocks(rows: Array, size: int) -> Array:
    """Rows in blocks, filled up with zeros, shape (num_blocks, size, columns)."""
    padding = -rows.shape[0] % size
    return jnp.pad(rows, ((0, padding), (0, 0))).reshape(-1, size, rows.shape[1])


def _divided(rows: Array, topics: Array, shares: Array) -> tuple[Array, Array]:
    """R = C / (T B), block by block of words, so that it stays in the cache: R B' and T' R.

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
        return total + ratio.T @ own, ratio @ shares

    return jax.lax.scan(visit, jnp.zeros_like(shares), (rows, topics))


def bound(state: PCPVBState, model: PCP, corpus: Corpus, point: bool = False) -> Array:
    """The structured bound of given global factors, the documents' factors optimal, in nats.

    The expected log weights are those of q(weights), which need not be optimal.
    """
    log_centres = centre_log_probs(state.clusters, expected_log_topics(state.words, point))
    log_weights = expected_log_weights(state, model)
    documents = jnp.sum(jax.nn.logsumexp(corpus.counts.times(log_centres.T) + log_weights, axis=-1))
    if isinstance(state.weights, dist.Beta):
        a, b = state.weights.concentration1, state.weights.concentration0
        counted = jnp.sum((a - 1) * (digamma(a) - digamma(a + b)))
        counted += jnp.sum((b - state.concentration) * (digamma(b) - digamma(a + b)))
    else:
        sizes = state.weights.concentration - state.concentration / model.num_clusters
        counted = jnp.sum(sizes * log_weights)
    return documents - counted + globals_bound(state, model, point) + corpus.log_coefficient


# The algorithm


def start(
    key: Array, variables: Mapping[str, Array], model: PCP, corpus: Corpus, **options: Any
) -> PCPVBState:
    """The state with the factors of a former fit, or after updates from given ``responsibilities``.

    Raises:
        ValueError: neither is given, or of other shapes.
    """
    point, family = options["topics"] == "point", options["family"]
    state = init(key, model, corpus, family=family, point=point)
    names = ("cluster_topic_concentration", "topic_word_probs" if point else "topic_word_concentration")
    if all(name in variables for name in names):
        clusters, words = (jnp.asarray(variables[name]) for name in names)
        if clusters.shape != state.clusters.shape or words.shape != state.words.shape:
            raise ValueError(
                f"init: clusters and topics must have shapes {state.clusters.shape} and {state.words.shape}; "
                f"got {clusters.shape} and {words.shape}"
            )
        state = state._replace(clusters=clusters, words=words)
        if "cluster_weights_concentration" in variables and isinstance(state.weights, dist.Dirichlet):
            state = state._replace(weights=dist.Dirichlet(variables["cluster_weights_concentration"]))
        if family == "mean_field" and "responsibilities" in variables:
            state = state._replace(responsibilities=jnp.asarray(variables["responsibilities"]))
        return state
    if "responsibilities" not in variables:
        raise ValueError(
            f"init must hold 'responsibilities', or {' and '.join(names)}; got "
            f"{', '.join(variables) or 'nothing'}"
        )
    r = jnp.asarray(variables["responsibilities"])
    if r.shape != (corpus.shape[0], model.num_clusters):
        raise ValueError(
            f"init: responsibilities must have shape {(corpus.shape[0], model.num_clusters)}; got {r.shape}"
        )
    by_word = corpus.counts.transposed_times(r)
    state = update_globals(state, by_word, jnp.sum(r, axis=0), model, options["inner_steps"], (), point)
    return state._replace(responsibilities=r) if family == "mean_field" else state


ALGORITHM = Algorithm(init, step)


@cache
def build(
    init: str, family: str, topics: str, inner_steps: int, learn: tuple[str, ...], prune: bool
) -> Algorithm:
    """The algorithm with its options."""
    point, drop = topics == "point", shrink if prune else None
    begin = partial(globals()["init"], strategy=init, family=family, point=point)
    if family == "mean_field":
        return Algorithm(begin, partial(pcp_mean_field.step, learn=learn, point=point), shrink=drop)
    options = {"inner_steps": inner_steps, "learn": learn, "point": point}
    return Algorithm(begin, partial(step, **options), shrink=drop)


def prepare(model: PCP, data: tuple, init: Any, *, family: str, **options: Any) -> tuple[Corpus]:
    """The documents, in blocks too where those are passed over."""
    (counts,) = data
    blocks = cut(counts, model.num_topics) if family == "mean_field" or init in PROJECTIONS else None
    segments = CountSegments.cut(counts, model.num_clusters)
    return (Corpus(segments, log_coefficient(counts), blocks),)


def check(model: PCP, *, family: Any, topics: Any, inner_steps: Any, learn: Any, prune: Any) -> None:
    """Raise ValueError if an option does not suit the model; warn of the mean-field family."""
    check_choice("family", family, FAMILIES)
    check_flag("prune", prune)
    if topics not in ("posterior", "point"):
        raise ValueError(f"topics must be 'posterior' or 'point'; got {topics!r}")
    if topics == "point" and model.word_smoothing < 1:
        raise ValueError(
            "topics='point' maximises over topics under Dirichlet(word_smoothing), which has no maximum "
            f"below 1: give the additive constant plus one; got {model.word_smoothing}"
        )
    if isinstance(inner_steps, bool) or not isinstance(inner_steps, int | np.integer) or inner_steps < 1:
        raise ValueError(f"inner_steps must be a whole number of at least 1; got {inner_steps!r}")
    if not isinstance(learn, tuple) or not set(learn) <= set(LEARNABLE):
        raise ValueError(f"learn must be a tuple of some of {', '.join(LEARNABLE)}; got {learn!r}")
    if "topic_prior" in learn and np.ndim(model.topic_prior):
        raise ValueError("learn: topic_prior is learnt as one number; this model has one for each topic")
    if family == "mean_field":
        warnings.warn(
            "family='mean_field' is the thesis's Algorithm 9.1, which from a random start collapses to one "
            "cluster; the default family='structured' does not, and is cheaper",
            stacklevel=4,
        )


METHOD = Method(
    kind="ascent",
    options={
        "family": "structured",
        "topics": "posterior",
        "inner_steps": 5,
        "learn": ("word_smoothing",),
        "prune": True,
        "num_devices": None,
    },
    strategies=("random", *PROJECTIONS),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
    prepare=prepare,
    check=check,
    shards_documents=True,
)
