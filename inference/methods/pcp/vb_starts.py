"""Starts of VB for PCP: annealed, at random, or at the topics of a short LDA or pLSI.

Documents of many words are soon sure of their clusters: from a random start on four newsgroups (five
Reuters topics; 20 topics) 78 (60) per cent are surer than 0.99 after two steps, and 79 (77) per cent of the
clusters after five steps are the last ones. Deterministic annealing (Ueda and Nakano 1998; of VB, Katahira,
Watanabe and Okada 2008) raises their likelihood to a power that grows to 1: at first a document says as
little of its cluster as two words would, and clusters part as the power allows. They part along the topics,
so each begins with a topic of its own: that takes as many topics as clusters. With fewer topics the
clusters that share one fall together while the power is low, and a start without annealing ends higher. On
text that is the one at the topics of a short LDA (.05 to .08 nats a token above the random one, 20 topics
and 200 clusters); on drawn corpora it depends (300 documents; 5 topics and 10 clusters, 5 and 20, 10 and
30: LDA's ends higher in 6, 3 and 0 of 8 pairs of starts). So both are run where they are cheap, and LDA's
alone where they are not. The annealed updates are steps of the run that come before the first that counts
(`inference.algorithm.Algorithm.settling_steps`), so that they need no program of their own.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import starts_by_size
from inference.methods.lda import vb as lda
from inference.methods.pcp import mean_field as pcp_mean_field
from inference.methods.pcp.vb_posterior import Annealing, PCPVBState
from inference.methods.plsi import em as plsi_em
from inference.numerics.documents import DocumentBlocks
from zoo.lda import LDA
from zoo.pcp import PCP
from zoo.plsi import PLSI

PROJECTIONS = ("lda", "plsi")
PROJECTION_STEPS = 30  # of the starts that project first
ANNEALING_STEPS = 30
FIRST_WORDS = 2.0  # as many words as a document of usual length is worth in the first step of annealing
TWICE_SHUFFLED = 1626  # numbers from there on, so that two that are sorted by the same bits are rare
OWN_TOPIC = 0.9  # of a cluster's words, where annealing begins


def init(
    key: Array,
    model: PCP,
    documents: DocumentBlocks,
    *,
    strategy: str = "auto",
    family: str = "structured",
    point: bool = False,
) -> PCPVBState:
    """The state of a start strategy.

    ``"auto"``: ``"annealed"`` where there are no more clusters than topics; otherwise ``"random"`` and
    ``"lda"`` in turn of several starts, and of a single one ``"random"`` where two would be cheap and
    ``"lda"`` where not. Of the mean-field family always ``"random"``.
    ``"annealed"``: topics at the words' frequencies times Gamma draws of mean 1 and variance 1/100, clusters
    with nine tenths of their words in one topic (cluster m in topic m mod K) and shares uniform on the
    simplex beside, to be followed by `ANNEALING_STEPS` steps under a growing power of the likelihood.
    ``"random"``: topics all but flat, as LDA's start has them (the same Gamma draws), and clusters with
    shares uniform on the simplex (mean field: the topics of all tokens drawn at random, as line 1 of
    Algorithm 9.1).
    ``"lda"``, ``"plsi"``: topics of a short fit of that model, clusters at the shares of documents drawn at
    random.

    Raises:
        ValueError: the mean-field family is to be annealed.
    """
    if strategy == "auto":
        strategy = _chosen(model, family, restarts(model, (documents.blocks,)) == 1)
    if strategy == "annealed" and family == "mean_field":
        raise ValueError("init='annealed' is a start of family='structured'; the mean-field family has none")
    word_key, cluster_key, share_key = jax.random.split(key, 3)
    num_documents, num_words = jnp.sum(documents.held), documents.shape[1]
    count = documents.blocks.count
    dtype, tokens = count.dtype, jnp.sum(count)
    prior = jnp.asarray(model.shares_concentration, dtype)
    if strategy in PROJECTIONS:
        words, of_documents = _projected(word_key, model, documents, strategy)
        order = permutation(cluster_key, num_documents, documents.shape[0])
        shares = of_documents[order[jnp.arange(model.num_clusters) % num_documents]]
    else:
        words = jax.random.gamma(word_key, 100.0, (model.num_topics, num_words), dtype) / 100.0
        shares = jax.random.dirichlet(cluster_key, jnp.ones(model.num_topics, dtype), (model.num_clusters,))
    if strategy == "annealed":
        own = jax.nn.one_hot(jnp.arange(model.num_clusters) % model.num_topics, model.num_topics, dtype=dtype)
        shares = OWN_TOPIC * own + (1 - OWN_TOPIC) * shares
        frequency = jnp.zeros(num_words, dtype).at[documents.blocks.word].add(count)
        words = model.word_smoothing + frequency / model.num_topics * words
    clusters = prior + tokens / model.num_clusters * shares
    state = _state(clusters, words, model, num_documents, dtype, point)
    if strategy == "annealed":
        first_power = jnp.minimum(FIRST_WORDS * num_documents / tokens, 1.0)
        return state._replace(annealing=Annealing(first_power, jnp.array(ANNEALING_STEPS)))
    if family == "mean_field":
        return pcp_mean_field.begin(share_key, state, model, documents, strategy, point)
    return state


def numbered_init(
    number: Array, key: Array, model: PCP, documents: DocumentBlocks, *, point: bool
) -> PCPVBState:
    """`init` of one of several default starts of the structured family."""
    first, second = (_chosen(model, "structured", by_projection) for by_projection in (False, True))
    begin, other = (partial(init, strategy=name, point=point) for name in (first, second))
    if first == second:
        return begin(key, model, documents)
    return jax.lax.cond(number % 2 == 0, begin, other, key, model, documents)


def permutation(key: Array, number: Array, size: int) -> Array:
    """``jax.random.permutation(key, number)`` before the rest of so many: one program for many numbers."""
    order = jnp.arange(size)
    is_one, last = order < number, np.uint32(2**32 - 1)
    for fewest in (1, TWICE_SHUFFLED):
        key, own = jax.random.split(key)
        bits = jnp.where(is_one, jax.random.bits(own, (size,), np.uint32), last)
        order = jnp.where(number >= fewest, order[jnp.argsort(bits)], order)
    return order


def _chosen(model: PCP, family: str, by_projection: bool) -> str:
    if family == "mean_field":
        return "random"
    if model.num_clusters <= model.num_topics:
        return "annealed"
    return "lda" if by_projection else "random"


def restarts(model: PCP, data: tuple, family: str = "structured", **options: object) -> int:
    """A start of each kind where there are more clusters than topics and that is cheap, else one."""
    if _chosen(model, family, False) == _chosen(model, family, True):
        return 1
    return starts_by_size(2, data[0].count.size * model.num_clusters)


def settling_steps(states: PCPVBState) -> np.ndarray:
    """How many annealed steps the start of each restart asks for, shape (num_restarts,) or ()."""
    return np.asarray(0 if states.annealing is None else states.annealing.steps_left)


def settled_by_one(state: PCPVBState) -> tuple[PCPVBState, Array | float, Array | bool]:
    """The state one step of annealing on, the power of the likelihood in that step, and what it holds.

    Returns:
        The state, the power, and whether hyperparameters are held.
    """
    if (annealing := state.annealing) is None:
        return state, 1.0, False
    holds = annealing.steps_left > 0
    left = annealing._replace(steps_left=annealing.steps_left - holds)
    return state._replace(annealing=left), power_of(annealing), holds


def power_of(annealing: Annealing) -> Array:
    """The power of the documents' likelihood in the next step: geometric, and 1 in the last annealed one."""
    left = jnp.maximum(annealing.steps_left - 1, 0)
    return annealing.first_power ** (left / (ANNEALING_STEPS - 1))


def _state(
    clusters: Array, words: Array, model: PCP, num_documents: Array, dtype: Any, point: bool
) -> PCPVBState:
    sizes = jnp.full(model.num_clusters, num_documents / model.num_clusters, dtype)
    alpha = jnp.asarray(model.concentration, dtype)
    prior = jnp.asarray(model.shares_concentration, dtype)
    if point:
        words = words / jnp.sum(words, axis=-1, keepdims=True)
    weights = model.weights.posterior(sizes, alpha)
    return PCPVBState(weights, clusters, words, alpha, prior, jnp.asarray(model.word_smoothing, dtype))


def _projected(key: Array, model: PCP, documents: DocumentBlocks, strategy: str) -> tuple[Array, Array]:
    """Dirichlet parameters of topics, and topic shares of documents, by a short run of LDA or pLSI."""
    fields = {"num_topics": model.num_topics, "num_words": documents.shape[1]}
    projection: LDA | PLSI = PLSI(**fields)
    begin: Callable = plsi_em.init
    once: Callable = plsi_em.step
    if strategy == "lda":
        projection = LDA(**fields)  # its priors are learnt
        begin, once = lda.init, partial(lda.step, learn=lda.VB.learnable)

    def climb(state: Any, _: None) -> tuple[Any, None]:
        return once(None, state, projection, documents)[0], None

    first = begin(key, projection, documents)
    state = jax.lax.scan(climb, first, None, PROJECTION_STEPS)[0]
    if strategy == "plsi":
        tokens = jnp.sum(documents.blocks.count) / model.num_topics
        return model.word_smoothing + tokens * state.by_word.T, state.shares
    gamma = state.doc_concentration
    return state.word_concentration.T, gamma / jnp.sum(gamma, axis=-1, keepdims=True)
