r"""The mean-field family for PCP: Algorithm 9.1 of Yu (2006), on sparse counts.

q(pi) q(theta) q(beta) prod q(c_d) prod q(z_dn), clusters and topics of words independent. With
:math:`e_{dk} = \sum_m \psi_{dm} E \log \theta_{mk}` the updates are (9.6)-(9.9)

.. math::
    \phi_{dwk} &\propto B_{kw}\, e^{e_{dk}}, \qquad S_{dk} = \textstyle\sum_w n_{dw} \phi_{dwk}, \\
    \psi_{dm} &\propto \exp\{E \log \pi_m + \textstyle\sum_k S_{dk} E \log \theta_{mk}\}, \\
    \gamma_{mk} &= \lambda_k + \textstyle\sum_d \psi_{dm} S_{dk}, \qquad
    \eta_m = \alpha/M + \textstyle\sum_d \psi_{dm}, \qquad
    \mu_{kw} = \epsilon + \textstyle\sum_d n_{dw} \phi_{dwk}.

One pass over the nonzeros makes S, the topics' tokens and :math:`\sum n \log s`; then, phi held, clusters and
centres in turn, ``CLUSTERING_STEPS`` times. Corrections of the source: the bullets after (9.7) say "cluster
k" for m; line 12 of the algorithm uses beta before line 1 has set it, so that topics are updated from the
first phi here; what its lines 8, 14 and 15 call the log-likelihood is the bound (9.5), and (9.5) lacks the
prior of beta, which is in the bound here.
"""

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.pcp.vb_posterior import (
    PCPVBInfo,
    PCPVBState,
    cluster_scores,
    expected_log_topics,
    expected_log_weights,
    globals_bound,
    info_of,
    learnt_concentration,
    learnt_factors,
)
from inference.numerics.documents import DocumentBlock, DocumentBlocks, PassSums, topic_pass
from zoo.gamma_functions import expected_log
from zoo.pcp import PCP

CLUSTERING_STEPS = 3


def step(
    key: Array,
    state: PCPVBState,
    model: PCP,
    documents: DocumentBlocks,
    *,
    learn: tuple[str, ...],
    point: bool,
) -> tuple[PCPVBState, PCPVBInfo]:
    """Topics of words, clusters and centres in turn, topics, hyperparameters, bound; the key is ignored."""
    before = expected_log_topics(state.words, point)
    expected = state.responsibilities @ expected_log(state.clusters)
    sums = topic_pass(documents, jnp.exp(expected), jnp.exp(before).T)
    held = sums.log_sums - jnp.sum(sums.by_document * expected)
    exists = documents.held[:, None]

    def cluster(state: PCPVBState, _: None) -> tuple[PCPVBState, None]:
        scores = sums.by_document @ expected_log(state.clusters).T + expected_log_weights(state, model)
        r = jnp.where(exists, jax.nn.softmax(scores, axis=-1), 0.0)
        weights = model.weights.posterior(jnp.sum(r, axis=0), state.concentration)
        clusters = state.topic_prior + r.T @ sums.by_document
        return state._replace(responsibilities=r, weights=weights, clusters=clusters), None

    state = jax.lax.scan(cluster, state, None, CLUSTERING_STEPS)[0]
    state = learnt_factors(state, state.clusters, sums.by_word.T, learn, point)
    sizes = jnp.sum(state.responsibilities, axis=0)
    if "concentration" in learn:
        state = state._replace(concentration=learnt_concentration(state, model))
        state = state._replace(weights=model.weights.posterior(sizes, state.concentration))
    after = expected_log_topics(state.words, point)
    r = state.responsibilities
    words = jnp.sum(sums.by_word.T * (after - before))
    topics = jnp.sum(sums.by_document * (r @ expected_log(state.clusters)))
    entropy = -jnp.sum(jax.scipy.special.xlogy(r, r))
    objective = held + words + topics + entropy + globals_bound(state, model, point)
    return state, info_of(objective + documents.log_coefficient, sizes, state)


def begin(
    key: Array, state: PCPVBState, model: PCP, documents: DocumentBlocks, strategy: str, point: bool
) -> PCPVBState:
    """The state of a start with the clusters of documents filled in.

    ``"random"``: the topic shares of every token are drawn uniformly from the simplex, as line 1 of Algorithm
    9.1, the clusters' nearly flat; topics and clusters of documents follow from them.
    Any other: clusters as the structured family has them.
    """
    if strategy != "random":
        scores = cluster_scores(state, model, documents, point)
        return state._replace(responsibilities=jax.nn.softmax(scores, axis=-1))
    key, cluster_key = jax.random.split(key)
    noise = jax.random.gamma(cluster_key, 100.0, state.clusters.shape, state.clusters.dtype) / 100.0
    state = state._replace(clusters=noise)
    sums = _random_topics(key, documents, model.num_topics)
    scores = sums.by_document @ expected_log(state.clusters).T + expected_log_weights(state, model)
    state = state._replace(responsibilities=jax.nn.softmax(scores, axis=-1))
    return learnt_factors(state, state.clusters, sums.by_word.T, (), point)


def _random_topics(key: Array, documents: DocumentBlocks, num_topics: int) -> PassSums:
    """Expected tokens when every token has topic shares drawn uniformly from the simplex.

    The mean over a cell's tokens is drawn from the Dirichlet with its mean and variance.
    """
    count = documents.blocks.count
    shapes = [(size, num_topics) for size in documents.shape]
    zeros = PassSums(*(jnp.zeros(shape, count.dtype) for shape in (*shapes, ())))

    def add(carry: tuple, block: DocumentBlock) -> tuple:
        key, total = carry
        key, own = jax.random.split(key)
        spread = (jnp.maximum(block.count, 1.0) * (num_topics + 1) - 1) / num_topics
        draws = jax.random.gamma(own, spread[..., None], (*block.count.shape, num_topics), count.dtype)
        tokens = block.count[..., None] * draws / jnp.sum(draws, axis=-1, keepdims=True)
        rows = jnp.zeros((block.owner.shape[0], num_topics), count.dtype)
        rows = rows.at[block.place].add(jnp.sum(tokens, axis=1))
        by_document = total.by_document.at[block.owner].set(rows, mode="drop")
        by_word = total.by_word.at[block.word].add(tokens)
        return key, total._replace(by_document=by_document, by_word=by_word)

    return documents.fold(add, (key, zeros))[1]  # a start is made on one device
