r"""The variational posterior of PCP: as draws, stored numbers and a program, and for new documents.

q(pi) q(theta) q(beta) are held by `PCPVBState`. The documents' factors follow from them: in the structured
family :math:`q(c_d = m) \propto \exp(E \log \pi_m + \sum_w n_{dw} \log \sum_k e^{E \log \theta_{mk} + E \log
\beta_{kw}})` and q(z | c); in the mean-field family q(c) is what the last step left and q(z) does not know c.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Outcome, as_one_chain
from inference.methods.documents.dirichlet_factors import (
    dirichlet_kl,
    symmetric_prior,
    total_expected_log,
    warn_of_prior,
    warn_of_smoothing,
)
from inference.numerics.compiled import compiled
from inference.numerics.documents import DocumentBlocks, padded_documents
from inference.numerics.host_draws import dirichlet_draws, generator, label_draws, weight_draws
from inference.precision import to_numpy
from zoo.answers import answer_of
from zoo.checks import warn
from zoo.documents.bags import CellTopics, dense_counts
from zoo.fields import names_of
from zoo.gamma_functions import digamma, expected_log, gammaln
from zoo.model import in_current_precision
from zoo.pcp import PCP
from zoo.shapes import Values
from zoo.sparse import SparseCounts

NO_MASS = 1e-9  # expected documents: clusters below it are dropped
FEWEST = 16  # clusters below which nothing is gained by dropping some
OCCUPIED = 0.5  # a cluster counts as occupied when it is expected to hold more documents than this


class Annealing(NamedTuple):
    """Where deterministic annealing is (`inference.methods.pcp.vb_starts`).

    Attributes:
        first_power: of the documents' likelihood, in the first step.
        steps_left: steps to come in which the power is below 1 or hyperparameters are held.
    """

    first_power: Array
    steps_left: Array


class PCPVBState(NamedTuple):
    """The global factors of q, and the priors as learnt so far.

    Attributes:
        weights: q of the weights' site: a Dirichlet, or Betas over sticks.
        clusters: gamma, Dirichlet parameters of the clusters' topic shares, shape (num_clusters, num_topics).
        words: Dirichlet parameters of the topics, or with point estimates their probabilities, shape
            (num_topics, num_words).
        concentration: alpha.
        topic_prior: lambda, shape (num_topics,).
        word_smoothing: eps.
        responsibilities: mean-field family: q(c), shape (num_documents, num_clusters); else None.
        annealing: of an annealed start; else None.
    """

    weights: dist.Distribution
    clusters: Array
    words: Array
    concentration: Array
    topic_prior: Array
    word_smoothing: Array
    responsibilities: Array | None = None
    annealing: Annealing | None = None


class PCPVBInfo(NamedTuple):
    """Values recorded at every step.

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


def info_of(objective: Array, sizes: Array, state: PCPVBState) -> PCPVBInfo:
    """The record of a step that ends in a state, with the expected documents of each cluster."""
    return PCPVBInfo(objective, jnp.sum(sizes > OCCUPIED), state.word_smoothing, state.concentration)


def with_learnt(state: PCPVBState, model: PCP) -> PCP:
    """The model with its hyperparameters as learnt so far."""
    return model.replaced(concentration=state.concentration, word_smoothing=state.word_smoothing)


def expected_log_topics(words: Array, point: bool) -> Array:
    """E[log beta], shape (num_topics, num_words)."""
    if point:
        return jnp.log(jnp.maximum(words, jnp.finfo(words.dtype).tiny))
    return expected_log(words)


def centre_log_probs(clusters: Array, log_topics: Array) -> Array:
    """Log of the sum over topics of exp(E log theta + E log beta), shape (num_clusters, num_words)."""
    centres = jnp.exp(expected_log(clusters)) @ jnp.exp(log_topics)
    return jnp.log(jnp.maximum(centres, jnp.finfo(centres.dtype).tiny))


def expected_log_weights(state: PCPVBState, model: PCP) -> Array:
    """E[log pi] of the clusters that the state holds; pruned ones enter by their prior."""
    if model.weights.has_sticks:
        return model.weights.expected_log_weights(state.weights)
    held = state.weights.concentration
    missing = model.num_clusters - held.shape[0]
    total = jnp.sum(held) + missing * state.concentration / model.num_clusters
    return digamma(held) - digamma(total)


def cluster_scores(state: PCPVBState, model: PCP, documents: DocumentBlocks, point: bool) -> Array:
    """Unnormalised log q(c) of the structured family, shape (num_documents, num_clusters)."""
    log_centres = centre_log_probs(state.clusters, expected_log_topics(state.words, point))
    return documents.times(log_centres.T) + expected_log_weights(state, model)


def log_weight_terms(state: PCPVBState, model: PCP) -> Array:
    """The documents' expected log weights that q(weights) is optimal for, which `globals_bound` holds."""
    if model.weights.has_sticks:
        a, b = state.weights.concentration1, state.weights.concentration0
        logs, rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        return jnp.sum((a - 1) * logs) + jnp.sum((b - state.concentration) * rest)
    sizes = state.weights.concentration - state.concentration / model.num_clusters
    return jnp.sum(sizes * expected_log_weights(state, model))


def globals_bound(state: PCPVBState, model: PCP, point: bool) -> Array:
    """Minus the divergences of the global factors, q(weights) optimal for its counts, in nats.

    The expected log weights of the documents' clusters are in it. Of point estimates of the topics their log
    prior density takes the place of the divergence.
    """
    if model.weights.has_sticks:  # the prior's constant is alpha for each stick
        sticks = state.weights.concentration1.shape[-1]
        weights = model.weights.log_normaliser(state.weights) + sticks * jnp.log(state.concentration)
    else:  # a cluster that was pruned has the same normaliser under q and prior
        held, share = state.weights.concentration, state.concentration / model.num_clusters
        total = jnp.sum(held) + (model.num_clusters - held.shape[0]) * share
        weights = jnp.sum(gammaln(held) - gammaln(share)) + gammaln(state.concentration) - gammaln(total)
    total = weights - dirichlet_kl(state.clusters, state.topic_prior)
    if not point:
        return total - dirichlet_kl(state.words, state.word_smoothing)
    size = state.words.shape[1]
    constant = gammaln(size * state.word_smoothing) - size * gammaln(state.word_smoothing)
    logs = jnp.where(state.word_smoothing == 1, 0.0, expected_log_topics(state.words, True))
    return total + state.words.shape[0] * constant + (state.word_smoothing - 1) * jnp.sum(logs)


# Updates that both families share


def learnt_factors(
    state: PCPVBState,
    clusters: Array,
    tokens: Array,
    learn: tuple[str, ...],
    point: bool,
    holds: Array | bool = False,
) -> PCPVBState:
    """The state with new centres and topics, and the hyperparameters that are optimal for them.

    Args:
        state: before.
        clusters: new gamma.
        tokens: expected tokens of each word in each topic, shape (num_topics, num_words).
        learn: hyperparameters to learn.
        point: whether topics are point estimates.
        holds: whether hyperparameters stay what they are in this step.
    """
    prior, smoothing = state.topic_prior, state.word_smoothing
    if "topic_prior" in learn:
        tokens_of_clusters = clusters - prior
        number, size = clusters.shape
        best = symmetric_prior(total_expected_log(clusters), number, size, prior[0])
        prior = jnp.where(holds, prior, best)
        clusters = prior + tokens_of_clusters
    if "word_smoothing" in learn and not point:
        number, size = tokens.shape
        best = symmetric_prior(total_expected_log(smoothing + tokens), number, size, smoothing)
        smoothing = jnp.where(holds, smoothing, best)
    words = topic_factors(tokens, smoothing, state.words, point)
    return state._replace(clusters=clusters, words=words, topic_prior=prior, word_smoothing=smoothing)


def topic_factors(
    tokens: Array, smoothing: Array, before: Array, point: bool, axis: int | tuple[int, ...] = -1
) -> Array:
    """New topics: mu, or the point estimates, those of before where a topic has no words.

    Args:
        tokens: expected tokens of each word in each topic, of any shape.
        smoothing: eps.
        before: the former topics, of the same shape.
        point: whether topics are point estimates.
        axis: of the words.
    """
    if not point:
        return smoothing + tokens
    words = jnp.maximum(tokens + smoothing - 1, 0.0)
    total = jnp.sum(words, axis=axis, keepdims=True)
    return jnp.where(total > 0, words / jnp.where(total > 0, total, 1.0), before)


def learnt_concentration(state: PCPVBState, model: PCP) -> Array:
    """The concentration that is optimal for q of the weights."""
    weights, size = state.weights, model.num_clusters
    if model.weights.has_sticks:
        a, b = weights.concentration1, weights.concentration0
        left = jnp.sum(digamma(b) - digamma(a + b))
        return a.shape[-1] / -left
    share = state.concentration / size
    logs = jnp.sum(expected_log_weights(state, model))
    missing = size - weights.concentration.shape[0]  # clusters that were pruned are at their prior
    total = jnp.sum(weights.concentration) + missing * share
    logs += missing * (digamma(share) - digamma(total))
    return size * symmetric_prior(logs, 1, size, share)


# Clusters without documents are dropped, and the bound stays as it is: a cluster without mass has q at its
# prior, so it adds nothing to the bound but through alpha / M, which stays what it was. A cluster holds some
# mass in every document; below NO_MASS documents in all, what it adds is below the bound's rounding.


def prune(state: PCPVBState, sizes: Array, least: float = NO_MASS) -> PCPVBState:
    """The state without the clusters that hold less than ``least`` documents (finite weights only).

    Args:
        state: q under Dirichlet weights.
        sizes: expected documents of each cluster, shape (num_clusters,).
        least: documents.
    """
    return _chosen(state, np.flatnonzero(np.asarray(sizes) >= least))


#: What `shrink` makes smaller, and the axis over clusters, that over restarts being 0.
SLOT_AXES = ((".weights.concentration", 1), (".clusters", 1), (".responsibilities", 2))


def shrink(states: PCPVBState, model: PCP) -> PCPVBState | None:
    """The states of all restarts with as many clusters as the one that needs most, if that halves them.

    Sticks are not dropped: what they leave depends on their order.

    Args:
        states: with a leading axis over restarts.
        model: as given.
    """
    if model.weights.has_sticks:
        return None
    concentration = np.asarray(states.weights.concentration)
    share = np.asarray(states.concentration)[:, None] / model.num_clusters
    least = np.maximum(NO_MASS, 8 * np.finfo(concentration.dtype).eps * share)
    needed = max(int((concentration - share > least).sum(axis=1).max()), FEWEST)
    if 2 * needed > concentration.shape[1]:
        return None
    largest = np.argsort(-concentration, axis=1, kind="stable")[:, :needed]
    fewer = [
        _chosen(jax.tree.map(lambda leaf, restart=restart: leaf[restart], states), np.sort(held))
        for restart, held in enumerate(largest)
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *fewer)


def with_all_clusters(state: PCPVBState, model: PCP) -> PCPVBState:
    """The state with the clusters that were dropped at the end, at their prior; on the host."""
    missing = model.num_clusters - state.clusters.shape[0]
    if model.weights.has_sticks or not missing:
        return state
    held, r = np.asarray(state.weights.concentration), state.responsibilities
    share = np.full(missing, np.asarray(state.concentration) / model.num_clusters, held.dtype)
    priors = np.broadcast_to(state.topic_prior, (missing, state.clusters.shape[1]))
    return state._replace(
        weights=dist.Dirichlet(np.concatenate([held, share]), validate_args=False),
        clusters=np.concatenate([state.clusters, priors]),
        responsibilities=None if r is None else np.pad(r, ((0, 0), (0, missing))),
    )


def _chosen(state: PCPVBState, held: np.ndarray) -> PCPVBState:
    r = state.responsibilities
    return state._replace(
        weights=dist.Dirichlet(state.weights.concentration[held]),
        clusters=state.clusters[held],
        responsibilities=None if r is None else r[:, held],
    )


# The posterior as draws and as a program


def conclude(
    key: Array,
    state: PCPVBState,
    model: PCP,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    *,
    topics: str,
    **options: Any,
) -> Outcome:
    """Independent draws from q, as one chain, beside q's parameters; documents' clusters if ``keep_rows``.

    Without data (documents in batches that are not kept) nothing of the documents is concluded.
    """
    point = topics == "point"
    state = to_numpy(state._replace(annealing=None))
    _warn_of_learnt(state, options.get("learn", ()), data, point)
    current, state = with_learnt(state, model), with_all_clusters(state, model)
    r = state.responsibilities
    if r is None and data:
        shared, (documents,) = padded_documents(current, data)
        r = _shares_of(state, shared, documents, point)[: data[0].shape[0]]
    stored = {
        "cluster_topic_concentration": state.clusters,
        "topic_word_probs" if point else "topic_word_concentration": state.words,
    } | model.weights.variables(state.weights)
    if r is not None:
        stored |= {"responsibilities": r, "num_occupied": np.sum(np.asarray(r).sum(axis=0) > OCCUPIED)}
    rng = generator(key)
    draws = {
        model.weights.site: weight_draws(rng, state.weights, num_samples),
        "cluster_topic_probs": dirichlet_draws(rng, state.clusters, num_samples),
    }
    if point:
        draws["topic_word_probs"] = np.broadcast_to(state.words, (num_samples, *state.words.shape))
    else:
        draws["topic_word_probs"] = dirichlet_draws(rng, state.words, num_samples)
    if keep_rows:
        draws |= answer_of(model, "derived", {"doc_clusters": label_draws(rng, r, num_samples)})
    prior = state.topic_prior if np.ndim(model.topic_prior) else state.topic_prior[0]
    fields = {name: getattr(model, name) for name in names_of(model).leaves} | {"topic_prior": prior}
    fields |= {"concentration": state.concentration, "word_smoothing": state.word_smoothing}
    fields = {name: np.asarray(value, np.float64) for name, value in fields.items()}
    return Outcome(
        posterior=as_one_chain(draws),
        variational=stored,
        model=model.replaced(**fields),
        densities={"objective": ("topic_word_probs",) if point else ()},
    )


def _warn_of_learnt(state: PCPVBState, learn: tuple[str, ...], data: tuple, point: bool) -> None:
    """Warn of learnt hyperparameters that outweigh what they are learnt from."""
    if "topic_prior" in learn:
        warn_of_prior(state.topic_prior, state.clusters, "topic_prior", "clusters")
    if "word_smoothing" in learn and not point:
        warn_of_smoothing(state.word_smoothing, state.words)
    if "concentration" in learn and float(state.concentration) > (num_documents := data[0].shape[0]):
        warn(
            f"the learnt concentration, {float(state.concentration):.3g}, outweighs the {num_documents} "
            "documents, so that all clusters are nearly equally probable: keep the concentration, or give "
            "fewer clusters"
        )


@partial(compiled, static_argnums=3)
def _shares_of(state: PCPVBState, model: PCP, documents: DocumentBlocks, point: bool) -> Array:
    """Shares of each document in the clusters, shape (num_documents, num_clusters)."""
    return jax.nn.softmax(cluster_scores(state, model, documents, point), axis=-1)


def guide(stored: Values, model: PCP, counts: SparseCounts) -> None:
    """Run q as a NumPyro program with exactly the sites of ``model.explicit``.

    Of the structured family: a document's cluster is drawn, then the topics of its words given the cluster.

    Args:
        stored: the parameters, as in the group ``variational``.
        model: the model.
        counts: documents.
    """
    stored, model = in_current_precision((dict(stored), model))
    names = [name for name in stored if name.endswith(("concentration", "concentration1", "concentration0"))]
    q = {name: numpyro.param(name, stored[name], constraint=dist.constraints.positive) for name in names}
    weights = model.weights.with_variables(q)
    model.weights.sample_posterior(weights)
    log_weights = model.weights.expected_log_weights(weights)
    clusters, point = q["cluster_topic_concentration"], "topic_word_probs" in stored
    words = stored["topic_word_probs"] if point else q["topic_word_concentration"]
    with numpyro.plate("topics", model.num_topics):
        factor = dist.Delta(words, event_dim=1) if point else dist.Dirichlet(words)
        numpyro.sample("topic_word_probs", factor)
    with numpyro.plate("clusters", model.num_clusters):
        numpyro.sample("cluster_topic_probs", dist.Dirichlet(clusters))
    log_topics, documents = expected_log_topics(words, point), dense_counts(counts)
    with numpyro.plate("documents", counts.shape[0]):
        logits = documents @ centre_log_probs(clusters, log_topics).T + log_weights
        chosen = numpyro.sample("doc_clusters", dist.Categorical(logits=logits))
        cells = expected_log(clusters)[chosen][:, :, None] + log_topics
        numpyro.sample("word_topics", CellTopics(documents, cells, model.num_tokens))


# New documents


def _centres(stored: Values, model: PCP) -> tuple[Array, Array, Array]:
    """Expected weights, topic shares of clusters and topics under q."""

    def mean(concentration: Array) -> Array:
        return concentration / jnp.sum(concentration, axis=-1, keepdims=True)

    is_point = "topic_word_probs" in stored
    topics = stored["topic_word_probs"] if is_point else mean(stored["topic_word_concentration"])
    shares = mean(stored["cluster_topic_concentration"])
    weights = model.weights.expected_weights(model.weights.with_variables(stored))
    return weights, shares, topics


def log_joint_documents(stored: Values, model: PCP, counts: SparseCounts) -> Array:
    """Log joint density of new documents and their clusters, parameters at their mean under q."""
    weights, shares, topics = _centres(stored, model)
    values = {"cluster_weights": weights, "cluster_topic_probs": shares, "topic_word_probs": topics}
    return model.log_joint_documents(values, counts)


def transform(stored: Values, model: PCP, counts: SparseCounts) -> Array:
    """Expected topic shares of new documents, parameters at their mean under q."""
    return jax.nn.softmax(log_joint_documents(stored, model, counts), axis=-1) @ _centres(stored, model)[1]


def log_density(stored: Values, model: PCP, counts: SparseCounts) -> Array:
    """Log density of new documents in nats, parameters at their mean under q: exact for these.

    With ``topics="point"`` a word may have probability zero, and documents with it density zero.
    """
    values = {"topic_word_probs": _centres(stored, model)[2]}
    scores = jax.nn.logsumexp(log_joint_documents(stored, model, counts), axis=-1)
    return jnp.where(model.impossible(values, counts), -jnp.inf, scores)
