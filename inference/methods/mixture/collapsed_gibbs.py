r"""Collapsed Gibbs sampling for mixtures: the Polya urn, with split-merge moves.

Weights and component parameters are integrated out; a sweep changes the labels one row at a time,

.. math::
    p(c_i = k \mid c_{-i}, x) \propto w_k\, p(x_i \mid \{x_l : l \ne i, c_l = k\}),

(Yu 2006, after 3.9; the new component is drawn from the posterior of its parameters given the one row, not
from the base measure as the text says). The weights :math:`w` are

* ``weight_prior="dirichlet"``: :math:`n_k + \alpha/K` for each of the K components: the program itself,
  collapsed;
* ``weight_prior="stick_breaking"``: :math:`n_k` for the clusters there are and :math:`\alpha` for a new one:
  the Dirichlet process without truncation, which the program approaches as K grows. ``num_components`` is
  only the first number of slots; when they are full their number doubles and the sweep is made again, so
  nothing is truncated.

With one covariance for all components the predictive of a row is given all other rows, in the cluster or
not: they tell the covariance. Such families have no split-merge moves, whose evidences are of one cluster.

Hyperparameters of the components that have a prior are drawn at the end of a sweep: the parameters of the
clusters from their posterior given the labels, then the hyperparameters from the conditionals of
`inference.methods.mixture.gibbs` given these, and the parameters are forgotten. Both are Gibbs steps of the
program, and nothing reads the parameters before they are drawn again.

The concentration: Escobar and West (1995) for the Dirichlet process; for the finite allocation, where that
is not exact, the slice move of `inference.methods.mixture.gibbs`. Split-merge moves
(`inference.methods.mixture.split_merge`) come before the labels' scan, ``split_merge`` of them in a sweep.

A sweep costs O(N K d^2) for Gaussian components (rank-one changes, no factorisation), O(N K S) for another
family with S statistics, plus O(N d^2) or O(N S) per split-merge proposal.
A row's label is drawn by one uniform number: K of them, and the largest of K, take as long as the densities.
On data where the plain urn mixes, split-merge adds effective draws per sweep and not per second; it is there
for clusters that rows cannot leave one by one. The log joint recorded is the collapsed one: the prior of the
concentration, the prior of the partition and the evidences.

After the run weights and parameters are drawn for every kept draw given its labels: exactly for the finite
program; for the process, the occupied atoms from their posteriors, largest first, and the left-over mass
broken by further sticks over empty slots, the last of which takes the rest. The fit's model has as many
components as that takes.

**Split-merge moves of tempered chains** are sequentially allocated (Dahl 2003). Launched ones are accepted
twice as often in 0.6 of the time at power 1 (olive's continuous columns), but at the lower powers, where
clusters come and go, they are not: none of the replicates on Old Faithful made a round trip. In every sweep
all rows are put on a circle in random order; a move begins anywhere on it, with rows i and j, and goes once
round. (An order that labels have no part in serves any number of moves.) If i and j share a cluster it is
split: they seed two clusters, and the other members join one of them in turn, with probability proportional
to its weight times its predictive density given those already there. If they do not, their clusters are
merged. A split is accepted with probability

.. math::
    \min\Big\{1, \frac{p(c^{\mathrm{split}})\, L_i L_j}{p(c)\, L_{ij}\, q}\Big\},

p the prior of the partition, L the evidence of a cluster, q the probability of the allocations made; a merge
with the reciprocal, q being the probability that the same order would have allocated the two clusters as
they are. All evidences are chains of predictives of the one scan over rows that a proposal costs.
"""

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Outcome, Sampler
from inference.methods.gibbs_sweep import sweep
from inference.methods.mixture import CollapsedGibbs
from inference.methods.mixture.gibbs import (
    component_parameters,
    concentration_and_weights,
    drawn_label,
    expected_hyperparameters,
    hyperparameter_blocks,
    to_convergence,
)
from inference.methods.mixture.split_merge import log_sigmoid, log_split_prior, repeated
from inference.methods.mixture.starts import given_labels
from inference.methods.mixture.urn_statistics import statistics_for
from inference.numerics.compiled import compiled
from inference.numerics.gamma_draws import draw, draw_log_gamma
from inference.numerics.host_draws import generator, site_draws
from inference.numerics.weighted_rows import PaddedRows, beside_rows, number_of, shares_shapes, with_padding
from zoo.answers import answer_of
from zoo.dirichlet_process import BetaDecay
from zoo.gamma_functions import gammaln
from zoo.mixture import Mixture
from zoo.shapes import Values

SPARE_SLOTS = 5  # empty components of a stored draw of the process, at least


class CollapsedMixtureState(NamedTuple):
    """The partition of the rows, the concentration, and what the components' prior leaves to be drawn.

    Attributes:
        labels: slot of each row, shape (num_observations,).
        counts: rows per slot, shape (num_slots,).
        concentration: alpha, drawn or fixed.
        hyperparameters: site of each hyperparameter with a prior to its value; usually empty.
    """

    labels: Array
    counts: Array
    concentration: Array
    hyperparameters: Values


class CollapsedMixtureInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: log joint density of data, labels and concentration, in nats.
        num_occupied: clusters.
        split_merge_rate: share of the split-merge proposals that were accepted.
        full: whether the sweep ran out of slots, so that it must be made again with more.
    """

    objective: Array
    num_occupied: Array
    split_merge_rate: Array
    full: Array


def log_partition_prior(counts: Array, alpha: Array, model: Mixture) -> Array:
    """Log prior probability of a partition into clusters of these sizes (zeros are not clusters), in nats."""
    occupied = counts > 0
    number = jnp.sum(occupied)
    total = gammaln(alpha) - gammaln(alpha + jnp.sum(counts))
    if model.weights.has_sticks:
        sizes = jnp.sum(jnp.where(occupied, gammaln(jnp.maximum(counts, 1)), 0))
        return total + number * jnp.log(alpha) + sizes
    share = alpha / model.num_components
    sizes = jnp.sum(jnp.where(occupied, gammaln(share + counts) - gammaln(share), 0))
    # the labels of the clusters do not matter to the partition
    return (
        total + sizes + math.lgamma(model.num_components + 1.0) - gammaln(model.num_components - number + 1.0)
    )


def _log_prior_of_split(alpha: Array, model: Mixture) -> Any:
    def process(count_i: Array, count_j: Array, number: Array) -> Array:
        both = gammaln(jnp.stack([count_i, count_j, count_i + count_j]))
        return jnp.log(alpha) + both[0] + both[1] - both[2]

    def finite(count_i: Array, count_j: Array, number: Array) -> Array:
        share = alpha / model.num_components
        logs = gammaln(share + jnp.stack([count_i, count_j, count_i + count_j, jnp.zeros_like(count_i)]))
        return logs[0] + logs[1] - logs[2] - logs[3] + jnp.log(model.num_components - number + 0.0)

    return process if model.weights.has_sticks else finite


# A sweep


def scan_labels(
    key: Array, state: CollapsedMixtureState, model: Mixture, x: Array | PaddedRows
) -> tuple[CollapsedMixtureState, Array]:
    """Draw every row's label in turn; returns whether the slots ran out too."""
    components, alpha = model.components.with_hyperparameters(state.hyperparameters), state.concentration
    statistics, num_slots = statistics_for(components), state.counts.shape[0]
    rows, slots = statistics.rows(components, with_padding(x)), jnp.arange(num_slots)
    cache = statistics.of(components, rows, state.labels, num_slots)
    uniforms = jax.random.uniform(key, state.labels.shape, jnp.result_type(float))

    def visit(place: Array, carry: tuple) -> tuple:
        cache, counts, full, labels = carry
        row, label, uniform = rows[place], labels[place], uniforms[place]
        counts = counts - (slots == label)
        if model.weights.has_sticks:
            empty = counts == 0
            full = full | ~jnp.any(empty)
            new = slots == jnp.argmax(empty)
            weight = jnp.where(empty, jnp.where(new, alpha, 0.0), counts)
        else:
            weight = counts + alpha / model.num_components

        def choose(density: Array) -> tuple[Array, Array]:
            drawn = drawn_label(jnp.log(weight) + density, uniform)
            return slots == drawn, drawn

        cache, label = cache.drawn_anew(components, label, row, choose)
        labels = jax.lax.dynamic_update_index_in_dim(labels, label.astype(labels.dtype), place, 0)
        return cache, counts + (slots == label), full, labels

    start = (cache, state.counts, jnp.zeros((), bool), state.labels)
    _, counts, full, labels = jax.lax.fori_loop(0, number_of(x), visit, start)
    return state._replace(labels=labels, counts=counts), full


def update_concentration(key: Array, state: CollapsedMixtureState, model: Mixture, x: Array) -> Array:
    """Alpha given the partition: Escobar and West (1995, section 6), or a slice move for the finite prior."""
    if not model.has_random_concentration:
        return state.concentration
    if not model.weights.has_sticks:
        values = {"assignments": state.labels, "concentration": state.concentration}
        return draw(key, concentration_and_weights(values, model, x)["concentration"])
    which_key, gamma_key = jax.random.split(key)
    num_rows, number = jnp.sum(state.counts), jnp.sum(state.counts > 0)
    a, b = model.concentration.concentration, model.concentration.rate
    shapes = jnp.stack([state.concentration + 1, jnp.asarray(num_rows, float), a + number, a + number - 1])
    own, rest, log_more, log_less = draw_log_gamma(gamma_key, shapes)  # in one call, which compiles sooner
    rate = b - (own - jnp.logaddexp(own, rest))  # less the log of a beta variable
    odds = (a + number - 1) / (num_rows * rate)
    more = jax.random.uniform(which_key) < odds / (1 + odds)
    alpha = jnp.exp(jnp.where(more, log_more, log_less)) / rate
    return jnp.maximum(alpha, jnp.finfo(alpha.dtype).tiny)  # of a tiny shape a draw may underflow


def update_hyperparameters(key: Array, state: CollapsedMixtureState, model: Mixture, x: Array) -> Values:
    """Hyperparameters with a prior given the partition, by way of parameters that are forgotten again."""
    if not state.hyperparameters:
        return state.hyperparameters
    model = model.replaced(num_components=state.counts.shape[0])
    values = {"assignments": state.labels, **state.hyperparameters}
    blocks = (component_parameters, *hyperparameter_blocks(model.components))
    after = sweep(key, values, blocks, model, x)
    return {site: after[site].astype(value.dtype) for site, value in state.hyperparameters.items()}


def split_and_merge(
    key: Array, state: CollapsedMixtureState, model: Mixture, x: Array, number: int
) -> tuple[CollapsedMixtureState, Array, Array]:
    """Sequentially allocated moves; whether the slots ran out, and the share of the moves accepted."""
    components, num_rows = model.components.with_hyperparameters(state.hyperparameters), x.shape[0]
    if not number or num_rows < 2 or components.couples_components:
        return state, jnp.zeros((), bool), jnp.zeros(())
    statistics = statistics_for(components)
    offset = 0.0 if model.weights.has_sticks else state.concentration / model.num_components
    log_prior = _log_prior_of_split(state.concentration, model)
    uniforms = jax.random.uniform(key, (number + 1, num_rows + 2), jnp.result_type(float))
    circle = jnp.argsort(uniforms[-1, :num_rows])  # sorted once: that takes as long as a move's scan
    rows = statistics.rows(components, x)[circle]
    no_rows = statistics.without_rows(components, rows, 3)

    def propose(carry: tuple, uniforms: Array) -> tuple[tuple, Array]:
        labels, counts, full = carry
        full = full | (model.weights.has_sticks & jnp.all(counts > 0))
        first = jnp.floor(uniforms[-1] * num_rows).astype(int)
        ahead, own = jnp.roll(rows, -first, axis=0), jnp.roll(labels, -first)
        own, counts, accepted = split_or_merge(
            uniforms[:-1], own, counts, ahead, components, no_rows, offset, log_prior
        )
        return (jnp.roll(own, first), counts, full), accepted

    begin = (state.labels[circle], state.counts, jnp.zeros((), bool))
    (labels, counts, full), accepted = jax.lax.scan(propose, begin, uniforms[:-1])
    state = state._replace(labels=state.labels.at[circle].set(labels), counts=counts)
    return state, full, jnp.mean(accepted.astype(float))


def launched_moves(
    key: Array, state: CollapsedMixtureState, model: Mixture, x: Array, number: int
) -> tuple[CollapsedMixtureState, Array, Array]:
    """Moves of `inference.methods.mixture.split_merge`; returns as of `split_and_merge`."""
    components = model.components.with_hyperparameters(state.hyperparameters)
    if not number or x.shape[0] < 2 or components.couples_components:
        return state, jnp.zeros((), bool), jnp.zeros(())
    log_prior = log_split_prior(model, state.concentration, truncated=False)
    labels, accepted, filled = repeated(
        key, state.labels, x, components, state.counts.shape[0], log_prior, number
    )
    counts = jnp.zeros_like(state.counts).at[labels].add(1)
    full = model.weights.has_sticks & jnp.any(filled)
    return state._replace(labels=labels, counts=counts), full, jnp.mean(accepted.astype(float))


def step(
    key: Array, state: CollapsedMixtureState, model: Mixture, x: Array | PaddedRows, *, split_merge: int = 5
) -> tuple[CollapsedMixtureState, CollapsedMixtureInfo]:
    """Run one sweep: split-merge proposals, labels row by row, concentration, hyperparameters."""
    move_key, scan_key, concentration_key, hyper_key = jax.random.split(key, 4)
    rows = with_padding(x)
    if isinstance(x, PaddedRows):  # a label beyond all slots has no part in any sum
        state = state._replace(labels=jnp.where(x.is_row, state.labels, state.counts.shape[0]))
    state, full, rate = launched_moves(move_key, state, model, rows, split_merge)
    state, scan_full = scan_labels(scan_key, state, model, x)
    state = state._replace(concentration=update_concentration(concentration_key, state, model, rows))
    state = state._replace(hyperparameters=update_hyperparameters(hyper_key, state, model, rows))
    objective, occupied = log_joint(state, model, rows), jnp.sum(state.counts > 0)
    return state, CollapsedMixtureInfo(objective, occupied, rate, full | scan_full)


def log_joint(state: CollapsedMixtureState, model: Mixture, x: Array) -> Array:
    """Log density of data, partition, concentration and hyperparameters, in nats."""
    components = model.components.with_hyperparameters(state.hyperparameters)
    sums = components.statistics(x, state.labels, state.counts.shape[0])
    total = log_partition_prior(state.counts, state.concentration, model)
    total += jnp.sum(components.log_evidence(sums))
    for name, site in model.components.hyperprior_sites().items():
        total += jnp.sum(model.components.hyperparameter(name).log_prob(state.hyperparameters[site]))
    prior = model.concentration
    return total + prior.log_prob(state.concentration) if model.has_random_concentration else total


# Starts and slots


def _state(labels: Array, num_slots: int, model: Mixture) -> CollapsedMixtureState:
    counts = jnp.zeros(num_slots, int).at[labels].add(1)
    dtype = jnp.result_type(float)
    alpha = jnp.asarray(model.expected_concentration, dtype)
    hyper = {site: v.astype(dtype) for site, v in expected_hyperparameters(model.components).items()}
    return CollapsedMixtureState(labels.astype(int), counts, alpha, hyper)


def init(key: Array, model: Mixture, x: Array, *, strategy: str = "random") -> CollapsedMixtureState:
    """A partition to start from.

    ``"random"``: uniform labels over the first L slots, L itself uniform, so that chains start far apart;
    ``"one_cluster"``; ``"singletons"``: every row its own cluster (as many as there are components under
    ``weight_prior="dirichlet"``).
    """
    num_rows, num_slots = x.shape[0], model.num_components
    if strategy == "one_cluster":
        return _state(jnp.zeros(num_rows, int), num_slots, model)
    if strategy == "singletons":
        if model.weights.has_sticks:
            return _state(jnp.arange(num_rows), max(num_slots, num_rows + 1), model)
        return _state(jnp.arange(num_rows) % num_slots, num_slots, model)
    uniform = jax.random.uniform(key, (num_rows + 1,))
    number = 1 + jnp.floor(uniform[0] * num_slots)
    return _state(jnp.floor(uniform[1:] * number).astype(int), num_slots, model)


def start(
    key: Array, variables: Values, model: Mixture, x: Array, *, num_warmup: int, **options: object
) -> CollapsedMixtureState:
    """The state with given ``assignments`` (or drawn from ``responsibilities``), and further given sites."""
    labels = given_labels(key, variables, x.shape[0])
    slots = max(model.num_components, x.shape[0] + 1) if model.weights.has_sticks else model.num_components
    state = _state(labels, slots, model)  # the process: labels may be any, up to one per row
    if model.has_random_concentration and "concentration" in variables:
        state = state._replace(concentration=jnp.asarray(variables["concentration"], jnp.result_type(float)))
    hyper = {n: jnp.asarray(variables.get(n, v), v.dtype) for n, v in state.hyperparameters.items()}
    return state._replace(hyperparameters=hyper)


def resize(states: CollapsedMixtureState, model: Mixture, full: bool) -> CollapsedMixtureState:
    """The states of all chains with twice the slots if they are full, else with no more than they need.

    Args:
        states: of all chains, leaves with a leading axis over chains.
        model: the model; the finite prior has as many slots as components, always.
        full: whether a sweep ran out of slots.
    """
    if not model.weights.has_sticks:
        return states
    num_slots = states.counts.shape[1]
    if full:
        return states._replace(counts=jnp.pad(states.counts, ((0, 0), (0, num_slots))))
    most = int(jnp.max(jnp.sum(states.counts > 0, axis=1)))
    wanted = 2 ** math.ceil(math.log2(2 * most + 2))
    if wanted >= num_slots:
        return states
    order = jnp.argsort(-states.counts, axis=1, stable=True)  # the occupied slots first
    places = jnp.argsort(order, axis=1)
    labels = jnp.take_along_axis(places, states.labels, axis=1)
    counts = jnp.take_along_axis(states.counts, order, axis=1)[:, :wanted]
    return states._replace(labels=labels.astype(states.labels.dtype), counts=counts)


@cache
def build(strategy: str, split_merge: int, num_warmup: int) -> Algorithm:
    """The sampler with a start strategy; it does not adapt."""
    return Algorithm(partial(init, strategy=strategy), partial(step, split_merge=split_merge))


def check(model: Mixture, settings: CollapsedGibbs) -> None:
    """Raise ValueError if the model does not suit the sampler."""
    if model.free_last_stick:
        raise ValueError("collapsed_gibbs needs weights that sum to one: free_last_stick=True has no urn")
    if model.components.is_incomplete:
        raise ValueError(
            "collapsed_gibbs takes complete rows under full covariances, and cells are missing: use gibbs, "
            "or components=NormalGamma(), whose columns are independent"
        )


# Draws


def position(state: CollapsedMixtureState, model: Mixture) -> dict[str, Array]:
    """Values kept at every draw; everything else is drawn from it afterwards."""
    kept = {"assignments": state.labels.astype(jnp.int32), **state.hyperparameters}
    return kept | ({"concentration": state.concentration} if model.has_random_concentration else {})


def conclude(key: Array, draws: dict[str, Array], model: Mixture, data: tuple, keep_rows: bool) -> Outcome:
    """Weights and parameters given the labels of every draw, with as many components as the draws need."""
    (x,) = data
    rng, labels = generator(key), np.asarray(draws["assignments"])
    chains, labels = labels.shape[:2], labels.reshape(-1, labels.shape[-1])
    if model.weights.has_sticks:
        labels, most = _by_size(labels)
        model = model.replaced(num_components=most + SPARE_SLOTS)
    else:  # which slot a cluster sits in is arbitrary
        slots = np.tile(np.arange(model.num_components, dtype=labels.dtype), (len(labels), 1))
        labels = np.take_along_axis(rng.permuted(slots, axis=1), labels, axis=1)
    hyper = {site: np.asarray(draws[site]) for site in model.components.hyperprior_sites().values()}
    hyper = {site: value.reshape(-1, *value.shape[2:]) for site, value in hyper.items()}
    rows = with_padding((beside_rows(model, data)[1] if shares_shapes() else data)[0])
    beside = (0, 0), (0, rows.shape[0] - labels.shape[1])
    own = np.pad(labels, beside, constant_values=model.num_components)  # what is no row is in no component
    given = _posteriors({"assignments": own, **hyper}, model, rows)
    alpha = draws["concentration"] if model.has_random_concentration else model.concentration
    given["concentration"] = np.broadcast_to(np.ravel(alpha), len(labels))
    found = site_draws(rng, sample_given_labels, len(labels), model, given=given)
    found = {name: np.asarray(value) for name, value in found.items()}
    found |= answer_of(model, "derived", {"assignments": labels})
    posterior = {name: value.reshape(*chains, *value.shape[1:]) for name, value in found.items()}
    posterior = dict(draws) | posterior
    if not keep_rows:
        posterior.pop("assignments")
    return Outcome(
        posterior=posterior,
        model=jax.tree.map(np.asarray, model),
        densities={"objective": ("concentration", *hyper)},
    )


@partial(compiled, once=True)
def _posteriors(draws: dict[str, Array], model: Mixture, x: Array) -> dict[str, Any]:
    """What every draw, a leading axis over them, says of weights and parameters."""
    return jax.lax.map(lambda own: posterior_given(own, model, x), draws)


def posterior_given(values: Values, model: Mixture, x: Array) -> dict[str, Any]:
    """What one draw says of weights and parameters.

    Args:
        values: ``assignments``, the component of each row, shape (num_observations,), and the hyperparameters
            that have a prior, by site.
        model: the model.
        x: the data.

    Returns:
        ``components``, the parameters of the components' posterior, ``counts``, rows per component, shape
        (num_components,), and ``hyperparameters``.
    """
    prior = model.components.with_hyperparameters(values)
    statistics = prior.statistics(x, values["assignments"], model.num_components)
    return {
        "components": prior.posterior(statistics).variables(),
        "counts": statistics[:, 0],
        "hyperparameters": {site: values[site] for site in model.components.hyperprior_sites().values()},
    }


def sample_given_labels(given: Mapping[str, Any], model: Mixture) -> None:
    """Weights and parameters given the labels of a draw, as a NumPyro program.

    Args:
        given: the result of `posterior_given`, and the ``concentration``.
        model: the model.
    """
    counts = given["counts"]
    weights = model.weights.posterior(counts, given["concentration"])
    if model.weights.has_sticks:  # Beta(1 + n, ...); an occupied atom's is Beta(n, ...)
        taken = jnp.where(counts > 0, counts, 1.0)[: weights.concentration1.shape[0]]
        weights = BetaDecay(taken, weights.concentration0)
    model.weights.sample_posterior(weights)
    components = model.components.with_hyperparameters(given["hyperparameters"])
    components.with_variables(given["components"]).sample(model.num_components)


def _by_size(labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels of every draw renumbered 0, 1, ... by falling size of the clusters, and the most clusters."""
    renumbered, most = np.empty_like(labels), 0
    for own, new in zip(labels, renumbered, strict=True):
        counts = np.bincount(own)
        place = np.empty(len(counts), labels.dtype)
        place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        new[:], most = place[own], max(most, int(np.count_nonzero(counts)))
    return renumbered, most


METHOD = Sampler(
    settings=CollapsedGibbs,
    strategies=("random", "one_cluster", "singletons"),
    build=build,
    start=start,
    conclude=conclude,
    position=lambda keep_rows: position,
    check=check,
    for_steps=beside_rows,
    of_rows=(".labels",),
    resize=resize,
    slot_axes=((".counts", 1),),
    to_convergence=to_convergence,
)


SIDE_I, SIDE_J, BOTH = 0, 1, 2


def split_or_merge(
    uniforms: Array,
    labels: Array,
    counts: Array,
    rows: Array,
    components: Any,
    no_rows: Any,
    weight_offset: Array | float,
    log_prior_of_split: Any,
) -> tuple[Array, Array, Array]:
    """Propose one split or merge, and accept or refuse it; the first two rows are the pair.

    Args:
        uniforms: independent uniform numbers on [0, 1), one for each row and one more.
        labels: slot of each row, at least two of them.
        counts: rows per slot.
        rows: what ``statistics`` takes of the rows, in the order in which they are allocated.
        components: the family.
        no_rows: the statistics of three empty clusters, from `inference.methods.mixture.urn_statistics`.
        weight_offset: what a cluster's weight exceeds its number of rows by (0 for the Dirichlet process,
            alpha / K for the finite allocation).
        log_prior_of_split: ``(count_i, count_j, num_occupied)`` to the log ratio of the partition's prior
            with the two clusters apart (``num_occupied`` before) to that with them together.

    Returns:
        labels, counts, and whether the proposal was accepted. Without an empty slot a split is refused;
        the caller grows the slots.
    """
    with_i, with_j = labels == labels[0], labels == labels[1]
    splits, three = labels[0] == labels[1], jnp.arange(3)

    def allocate(carry: tuple, item: tuple) -> tuple[tuple, Array]:
        cache, sizes, log_ratio = carry
        row, number, level, with_j, is_member = item
        is_seed = number < 2

        def choose(density: Array) -> tuple[Array, tuple[Array, Array, Array]]:
            log_weight = jnp.log(jnp.maximum(sizes, 1.0) + weight_offset) + density
            advantage = log_weight[SIDE_J] - log_weight[SIDE_I]
            is_j = jnp.where(splits, level < jax.nn.sigmoid(advantage), with_j)
            side = jnp.where(is_seed, number, jnp.where(is_j, SIDE_J, SIDE_I))
            log_q = log_sigmoid(jnp.where(side == SIDE_J, advantage, -advantage))
            takes = is_member & ((three == side) | (three == BOTH))
            gain = jnp.sum(jnp.where(takes, jnp.where(three == BOTH, -density, density), 0.0))
            return takes, (takes, gain - jnp.where(is_member & ~is_seed, log_q, 0.0), side)

        cache, (takes, gain, side) = cache.drawn_anew(components, -1, row, choose)
        return (cache, sizes + takes, log_ratio + gain), side

    dtype = uniforms.dtype
    begin = (no_rows, jnp.zeros(3, dtype), jnp.zeros((), dtype))
    items = (rows, jnp.arange(labels.shape[0]), uniforms[:-1], with_j, with_i | with_j)
    (_, sizes, log_ratio), side = jax.lax.scan(allocate, begin, items)
    num_others = jnp.sum(counts > 0) - jnp.where(splits, 0, 1)  # clusters when the two are one
    log_ratio += log_prior_of_split(sizes[SIDE_I], sizes[SIDE_J], num_others)
    empty = jnp.argmin(counts)  # an empty slot, if there is one
    possible = ~splits | (counts[empty] == 0)
    accepted = possible & (jnp.log(uniforms[-1]) < jnp.where(splits, log_ratio, -log_ratio))
    moved = accepted & with_i & (~splits | (side == SIDE_I))
    labels = jnp.where(moved, jnp.where(splits, empty, labels[1]), labels)
    return labels, jnp.zeros_like(counts).at[labels].add(1), accepted
