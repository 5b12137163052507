r"""Variational Bayes for finite and Dirichlet-process mixtures: VBDMA and VBTDP.

The posterior is approximated by :math:`q(\alpha)\, q(\pi)\, \prod_k q(\theta_k) \prod_i q(c_i)`. With
:math:`r_{ik} = q(c_i = k)` and :math:`N_k = \sum_i r_{ik}` the updates are (Yu 2006, sections 2.2.2-2.2.4
and 3.3.2-3.3.3)

.. math::
    r_{ik} &\propto \exp\{E[\log \pi_k] + E[\log p(x_i \mid \theta_k)]\} \\
    q(\theta_k) &= \text{the conjugate posterior given } \sum_i r_{ik}\, t(x_i) \\
    q(\pi) &= \mathrm{Dirichlet}(E[\alpha]/K + N_k) \quad\text{or} \\
    q(V_j) &= \mathrm{Beta}(1 + N_j, E[\alpha] + \textstyle\sum_{l>j} N_l) \\
    q(\alpha) &= \mathrm{Gamma}(a + M, b - \textstyle\sum_j E[\log(1 - V_j)])

with M random sticks (K - 1; the printed (3.15) counts K, see `zoo.dirichlet_process`). Under Dirichlet
weights a Gamma prior is not conjugate: there q(alpha) is a log-normal whose two parameters climb the bound
by Newton steps, its one intractable expectation by Gauss-Hermite quadrature.

The objective is the whole evidence lower bound, constants included. With q(theta) and q(pi) optimal for the
current responsibilities it is

.. math::
    \sum_k \log m_k + \log \frac{B(\text{posterior})}{B(\text{prior})} + H(r)
    + E[\log p(\alpha)] - E[\log q(\alpha)],

:math:`m_k` being the evidence of the (weighted) rows of component k. It never falls, and with one component
it is the log evidence.

A step costs O(N K D^2) and holds no N x K array: rows pass in blocks, and the entropy is
:math:`\sum_i \log Z_i - \sum_k c_k \cdot s_k`, from the normalisers and the sufficient statistics. Prefer
NUTS or Gibbs when the spread of parameters matters: q's variances are too small.

**Moves** make changes that the updates cannot: two components become one, one goes to the others, one becomes
two. The updates climb to the nearest optimum. After the first steps and once they have settled, each move is
judged by the whole bound, constants and the entropy of the labels included, after one update of the labels,
and taken only if that is higher:

* **Merge** of components k and l: their statistics add up, so that everything in the bound but the entropy
  follows from them, without a look at the rows. The entropy can only fall: what the bound gains without it is
  an upper limit (under Dirichlet weights; under sticks nearly so), and pairs with none are not tried.
* **Delete**: one of the smallest components goes, and its rows to whichever others describe them. That ends
  components of a few stray rows, which no merge with a single other can.
* **Birth**: the rows of a component are shared between it and an empty one. Two rows of it are drawn as
  seeds, a few restricted updates (of the two components, all else held) settle the shares :math:`s_i`, and
  the entropy rises by :math:`\sum_i r_{ik} H(s_i)`. The most promising proposals get a few full updates.

A row of weight w counts as w copies with the same responsibilities: its terms of statistics and entropy are
multiplied by w, in the bound and in the entropy that a birth adds, so that moves are judged as they would be
on the copies. Seeds of births are drawn in proportion to weight.

Statistics, bounds and updates are those of the component family, whatever it is; all shapes are fixed. Merges
and deletions are made by default: each costs an update, and `EACH` that fail are the last of a round. Tried
early they spare many steps, in which components that are the same become so; tried at once, they would unite
what has not come apart yet. A round of births costs some tens of updates and takes long to compile; they must
be asked for. The published counts of components are those of VB without moves, ``moves=()``.

Reference: merges, deletions and births after Ueda and Ghahramani (2002), Hughes and Sudderth (2013) and
Hughes, Kim and Sudderth (2015), here with the exact bound of the proposed state.
"""

import itertools
from collections.abc import Generator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr
from scipy.special import gammaln

from inference.algorithm import Algorithm, Ascent, Memoised
from inference.methods.mixture import VB
from inference.methods.mixture.sizes import in_shared_shapes
from inference.methods.mixture.starts import STRATEGIES, kmeans_or_random, restarts, start_named
from inference.methods.mixture.vb_hyperparameters import (
    check_learn,
    concentration_terms,
    expected_log,
    expected_log_dirichlet_constant,
    learn_concentration,
    log_hyperprior,
    mean_of,
    update_concentration,
    with_learnt,
)
from inference.methods.mixture.vb_posterior import (
    OCCUPIED,
    MixtureVBState,
    begin,
    conclude,
    from_statistics,
    guide,
    log_density,
    log_unnormalised,
    new_log_joint_rows,
    resized,
    start,
    transform,
    units,
)
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import (
    Rows,
    RowShards,
    sum_over_rows,
    unweighted,
    weight_of,
)
from zoo.mixture import Mixture
from zoo.sparse import SparseCounts

LEARNING_STEPS = 5  # of hyperparameters and global factors in turn, within a step


class MixtureVBInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: the evidence lower bound, in nats.
        num_occupied: components with more than half an expected row.
        expected_concentration: E[alpha].
    """

    objective: Array
    num_occupied: Array
    expected_concentration: Array


class RowSums(NamedTuple):
    """Sums over the responsibilities that the local step returns.

    Attributes:
        statistics: sums of the rows' features by component, shape (num_components, num_statistics).
        entropy: of the responsibilities, in nats.
    """

    statistics: Array  # (num_components, num_statistics), sums of responsibility times feature
    entropy: Array  # of the labels, nats


# Local step


def update_responsibilities(state: MixtureVBState, model: Mixture, x: Array) -> RowSums:
    """The labels' update, kept as sufficient statistics and entropy; rows pass in blocks."""
    coefficients = model.components.expected_coefficients(state.components)
    log_weights = model.weights.expected_log_weights(state.weights)
    offset = coefficients.at[:, 0].add(log_weights)  # the first feature is one

    def block(rows: Array, weight: Array) -> tuple[Array, Array]:
        features = model.components.features(rows)
        scores = features @ offset.T
        peak = jnp.max(scores, axis=-1, keepdims=True)
        exponentials = jnp.exp(scores - peak)
        total = jnp.sum(exponentials, axis=-1, keepdims=True)
        log_normaliser = (peak + jnp.log(total))[:, 0]
        r = exponentials * (weight[:, None] / total)
        return model.components.expected_sums(r.T, features, coefficients), weight @ log_normaliser

    statistics, log_normaliser = sum_over_rows(block, x)
    # H(r), with that of missing cells integrated out, = sum_i log Z_i - sum_ik r_ik log(Z_i r_ik)
    return RowSums(statistics, log_normaliser - jnp.sum(offset * statistics))


# Bound


def bound(state: MixtureVBState, statistics: Array, entropy: Array, model: Mixture) -> Array:
    """The evidence lower bound when q(theta) and q(weights) are optimal for the responsibilities.

    Args:
        state: q; its components and weights must be the updates for these statistics and E[alpha].
        statistics: summed responsibility times feature, shape (num_components, num_statistics).
        entropy: of the labels, in nats.
        model: the model as it was given; what is learnt of it is in the state.
    """
    hyperprior = log_hyperprior(state, model)
    model = with_learnt(state, model)
    q = state.concentration
    weights = model.weights.log_normaliser(state.weights)
    if model.weights.has_sticks:  # the prior's constant is alpha for each stick
        each = expected_log(q) if model.has_random_concentration else jnp.log(q)
        weights += model.weights.num_sticks * each
    else:
        weights += expected_log_dirichlet_constant(q, model.weights.num_components)
    evidence = model.components.log_evidence_beside(state.components, statistics)
    total = jnp.sum(evidence) + weights + entropy + hyperprior
    return total + concentration_terms(q, model.concentration) if model.has_random_concentration else total


# The algorithm


def updated(state: MixtureVBState, statistics: Array, model: Mixture) -> MixtureVBState:
    """The state with weights and components that are optimal for given statistics."""
    new = from_statistics(statistics, state.concentration, with_learnt(state, model))
    return new._replace(prior=state.prior, learning_in=state.learning_in)


def in_best_order(statistics: Array, state: MixtureVBState, model: Mixture) -> Array:
    """The statistics with components in the order that is optimal under the weights' prior.

    Relabelling leaves all of the bound as it is but q(V), which is then optimal for the better order: the
    bound cannot fall.
    """
    order = best_order(state, statistics, model)
    return statistics if order is None else statistics[order]


def best_order(state: MixtureVBState, statistics: Array, model: Mixture) -> Array | None:
    """The order of the components that is optimal under the weights' prior; None if all are equal."""
    if not model.weights.has_sticks:
        return None
    return model.weights.best_order(statistics[:, 0], mean_of(state.concentration))


def learn_hyperparameters(
    state: MixtureVBState, statistics: Array, model: Mixture, learn: tuple[str, ...]
) -> MixtureVBState:
    """Hyperparameters and the factors that depend on them, in turn; none of it passes over the rows."""

    def alternate(state: MixtureVBState, _: None) -> tuple[MixtureVBState, None]:
        state = updated(state, statistics, model)
        if "concentration" in learn:
            state = state._replace(concentration=learn_concentration(state.weights, model))
        if state.prior is None:
            return state, None
        prior = state.prior.learnt(state.components, model.components, learn)
        before, after = (
            jnp.sum(which.log_evidence(statistics)) + log_hyperprior(state._replace(prior=which), model)
            for which in (state.prior, prior)
        )
        keep = partial(jnp.where, after >= before)  # at an end of a bracket the M-step need not rise
        return state._replace(prior=jax.tree.map(keep, prior, state.prior)), None

    return jax.lax.scan(alternate, state, None, LEARNING_STEPS)[0]


def step(
    key: Array,
    state: MixtureVBState,
    model: Mixture,
    x: Array,
    *,
    sort_sticks: bool = True,
    learn: tuple[str, ...] = (),
) -> tuple[MixtureVBState, MixtureVBInfo]:
    """Update labels, concentration, order, hyperparameters, weights and components; the key is ignored.

    Args:
        key: ignored: the step is deterministic.
        state: q.
        model: the model as it was given.
        x: the rows.
        sort_sticks: whether components are put into the order that stick-breaking weights like best.
        learn: names of the hyperparameters to learn, see `inference.methods.mixture.vb_hyperparameters`.
    """
    sums = update_responsibilities(state, with_learnt(state, model), x)
    return update_globals(state, sums, model, sort_sticks=sort_sticks, learn=learn)


def update_globals(
    state: MixtureVBState,
    sums: RowSums,
    model: Mixture,
    *,
    sort_sticks: bool = False,
    learn: tuple[str, ...] = (),
) -> tuple[MixtureVBState, MixtureVBInfo]:
    """All of a step that does not pass over the rows."""
    current = with_learnt(state, model)
    concentration = update_concentration(state.concentration, state.weights, current)
    state = state._replace(concentration=concentration)
    statistics = in_best_order(sums.statistics, state, current) if sort_sticks else sums.statistics
    if learn:
        learnt = learn_hyperparameters(state, statistics, model, learn)
        state = jax.tree.map(partial(jnp.where, state.learning_in <= 0), learnt, state)
        state = state._replace(learning_in=jnp.maximum(state.learning_in - 1, 0))
    state = updated(state, statistics, model)
    objective = bound(state, statistics, sums.entropy, model)
    num_occupied = jnp.sum(statistics[:, 0] > OCCUPIED)
    return state, MixtureVBInfo(objective, num_occupied, mean_of(state.concentration))


@cache
def build(strategy: str, sort_sticks: bool, moves: tuple[str, ...], learn: tuple[str, ...]) -> Algorithm:
    """The algorithm with a start strategy."""
    options: dict[str, Any] = {"sort_sticks": sort_sticks, "learn": learn}
    is_mixed = strategy == "mixed"
    proposing = tuple(name for name in moves if name in MOVES_OF)
    improving = "birth" in moves or learn
    return Algorithm(
        partial(begin, partial(kmeans_or_random, 0) if is_mixed else start_named(strategy), learn),
        partial(step, **options),
        partial(propose, moves=proposing) if proposing else None,
        partial(improve, moves=moves, **options) if improving else None,
        numbered_init=partial(_begin_mixed, learn) if is_mixed else None,
    )


def _begin_mixed(
    learn: tuple[str, ...], number: Array, key: Array, model: Mixture, x: Array
) -> MixtureVBState:
    return begin(partial(kmeans_or_random, number), learn, key, model, x)


@cache
def memoised(sort_sticks: bool, moves: tuple[str, ...], learn: tuple[str, ...]) -> Memoised:
    """The step taken apart, for rows that pass in batches.

    Raises:
        ValueError: hyperparameters are to be learnt, which needs all rows at once.
    """
    if learn:
        raise ValueError(
            "learn does not go with batch_size: give the hyperparameters, or learn them on fewer rows"
        )
    return Memoised(
        update_responsibilities,
        update_globals,
        partial(_order_of_sums, sort_sticks),
        lambda sums, order: sums._replace(statistics=sums.statistics[order]),
    )


def _order_of_sums(sort_sticks: bool, state: MixtureVBState, sums: RowSums, model: Mixture) -> Array | None:
    return best_order(state, sums.statistics, model) if sort_sticks else None


def check(model: Mixture, settings: VB) -> None:
    """Raise ValueError if the settings do not suit the model."""
    if "birth" in settings.moves and model.num_components < 2:
        raise ValueError("births need a mixture of at least two components")
    if "birth" in settings.moves and model.components.is_incomplete:
        raise ValueError(
            "births take complete rows under full covariances, and cells are missing: leave 'birth' out of "
            "moves, or take components=NormalGamma(), whose columns are independent"
        )
    check_learn(model, settings.learn)


METHOD = Ascent(
    settings=VB,
    strategies=STRATEGIES,
    restarts=restarts,
    takes=frozenset({"weights", "batches", "devices"}),
    for_steps=in_shared_shapes,
    resized=resized,
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
    log_joint=new_log_joint_rows,
    units=units,
    check=check,
    in_batches=memoised,
)


ROOM = 2  # others beside the components whose evidence is looked at together, times as many as components
EACH = 3  # merges, and deletions, that fail before others are left alone
PROPOSALS = 12  # births tried in a round
RESTRICTED_STEPS = 6  # updates of the two components of a birth, all else held
REFINED = 3  # proposals that get full updates
REFINING_STEPS = 15  # full updates of each
SEED_ROWS = 4096  # seeds are drawn among so many rows at most
SMALLEST_GAIN = 1e-3  # nats; less is not worth a move


def improve(
    key: Array,
    state: MixtureVBState,
    model: Mixture,
    x: Array,
    *,
    moves: tuple[str, ...],
    sort_sticks: bool,
    learn: tuple[str, ...],
) -> tuple[MixtureVBState, Array, Array]:
    """A state elsewhere with a higher bound, that bound, and whether there is one.

    Args:
        key: for the births.
        state: q, settled.
        model: the model.
        x: the rows.
        moves: which of `MOVES`.
        sort_sticks: as for the step.
        learn: as for the step; learning begins here if it has not begun.
    """
    options: dict[str, Any] = {"sort_sticks": sort_sticks, "learn": learn}
    best, start = _settled(state, model, x)
    objective = start
    if "birth" in moves:
        best, objective = _birth(key, best, objective, model, x, options)
    better = objective > start + _least(start)
    if learn:  # what has settled with the given hyperparameters may go on with learnt ones
        better = better | (best.learning_in > 0)
        best = best._replace(learning_in=jnp.zeros_like(best.learning_in))
    return best, objective, better


def _least(objective: Array) -> Array:
    """The gain that is more than rounding."""
    return SMALLEST_GAIN + 100 * jnp.finfo(objective.dtype).eps * jnp.abs(objective)


def _settled(state: MixtureVBState, model: Mixture, x: Array) -> tuple[MixtureVBState, Array]:
    """The state after one more update of labels, weights and components, and its bound."""
    sums = update_responsibilities(state, with_learnt(state, model), x)
    state = updated(state, sums.statistics, model)
    return state, bound(state, sums.statistics, sums.entropy, model)


# Merges and deletions


#: Of one restart: statistics, others below them, and whether a step is to be taken from them. Sent are those
#: that the step led to, None where it is no higher; without a step evidence and E[alpha] / K, see `at_sums`.
type Moves = Generator[tuple[np.ndarray, bool], Any, np.ndarray]


def propose(
    states: MixtureVBState, asked: np.ndarray, model: Mixture, *, moves: tuple[str, ...]
) -> Generator[tuple[MixtureVBState, np.ndarray], tuple[MixtureVBState, np.ndarray], None]:
    """The states after moves of every kind after which the bound may be higher, until `EACH` have failed."""
    opened = {number: _moves_of(states.statistics[number], model, moves) for number in asked}
    answers: dict[int, Any] = dict.fromkeys(opened)
    while True:
        sums = np.stack([_with_others(own, own[:0], model) for own in states.statistics])
        tried = np.zeros(len(sums), bool)
        for number in tuple(opened):
            try:
                sums[number], tried[number] = opened[number].send(answers[number])
            except StopIteration:
                del opened[number]
        if not opened:
            return
        proposed, *found = at_sums(sums, states, model)
        evidence, each = map(np.asarray, found)
        answers = {number: (evidence[number], each[number]) for number in opened}
        if tried.any():
            states, taken = yield proposed, tried
            for number in np.flatnonzero(tried).tolist():
                answers[number] = states.statistics[number] if taken[number] else None


def _moves_of(statistics: np.ndarray, model: Mixture, moves: tuple[str, ...]) -> Moves:
    """The moves of one restart."""
    for name in moves:
        statistics = yield from MOVES_OF[name](statistics, model)
    return statistics


def _held(statistics: np.ndarray) -> np.ndarray:
    """The components that hold rows, the smallest first; none where there is but one."""
    counts = statistics[:, 0]
    held = np.flatnonzero(counts > OCCUPIED)
    return held[np.argsort(counts[held], kind="stable")] if len(held) > 1 else held[:0]


@compiled
def at_sums(statistics: Array, states: MixtureVBState, model: Mixture) -> tuple[MixtureVBState, Array, Array]:
    """The states that are optimal for statistics, the log evidence of each row of them, and E[alpha] / K.

    Of all restarts, along leading axes. Rows beyond those of the components have their evidence alone.
    """

    def at(statistics: Array, state: MixtureVBState) -> tuple[MixtureVBState, Array, Array]:
        prior, alpha = with_learnt(state, model).components, mean_of(state.concentration)
        every, own = prior.posterior(statistics), statistics[: len(state.statistics)]
        components = jax.tree.map(
            lambda each, held: each if each.shape == held.shape else each[: len(own)], every, state.components
        )
        weights = model.weights.posterior(own[:, 0], alpha)
        new = state._replace(components=components, weights=weights, statistics=own)
        return new, prior.log_evidence_beside(every, statistics), alpha / model.num_components

    return jax.vmap(at)(statistics, states)


def _merges(statistics: np.ndarray, model: Mixture) -> Moves:
    """Pairs added up that may gain, first the pair that may gain most.

    After one is taken the gains of the others are still good guesses, unless the components are put into an
    order again.
    """
    while len(held := np.sort(_held(statistics))):
        pairs = np.array(list(itertools.combinations(held, 2))).T
        before, failed = statistics, 0
        gains = yield from union_gains(statistics, pairs, model)
        for place in np.argsort(-gains, kind="stable"):
            if gains[place] <= 0 or failed == EACH or (model.weights.has_sticks and statistics is not before):
                break
            pair = pairs[:, place]
            if statistics[pair, 0].min() > OCCUPIED:
                united = _added_up(statistics, *pair)
                taken = yield _with_others(united, united[:0], model), True
                statistics, failed = (statistics, failed + 1) if taken is None else (taken, failed)
        if statistics is before:
            break
    return statistics


def _deletions(statistics: np.ndarray, model: Mixture) -> Moves:
    """Statistics without the smallest component; where that fails, without the second smallest, ..."""
    failed = 0
    while failed < min(EACH, len(held := _held(statistics)) - 1):
        fewer = statistics.copy()
        fewer[held[failed]] = 0.0
        taken = yield _with_others(fewer, fewer[:0], model), True
        statistics, failed = (statistics, failed + 1) if taken is None else (taken, 0)
    return statistics


def union_gains(statistics: np.ndarray, pairs: np.ndarray, model: Mixture) -> Moves:
    """The gain of the evidence by unions of two components, in nats, from their sums.

    That is the evidence of the rows, and of the labels under symmetric Dirichlet weights (those under sticks
    depend on the order of all): what the bound gains but for the entropy of soft labels.

    Args:
        statistics: of the components, shape (num_components, num_statistics).
        pairs: numbers of components, shape (2, num_pairs).
        model: the model.

    Returns:
        Shape (num_pairs,).
    """
    first, second = pairs
    if model.components.couples_components:
        bounds = []
        for own in (statistics, *(_added_up(statistics, *pair) for pair in pairs.T)):
            bound, each = yield own, False
            bounds.append(float(bound))
        gains = np.array(bounds[1:]) - bounds[0]
    else:
        number = len(statistics)
        united, after = statistics[first] + statistics[second], []
        for part in np.array_split(united, range(ROOM * number, len(united), ROOM * number)):
            evidence, each = yield _with_others(statistics, part, model), False
            after.append(evidence[number : number + len(part)])
        gains = np.concatenate(after) - evidence[first] - evidence[second]
    counts = statistics[:, 0]
    gains += gammaln(each + counts[first] + counts[second]) + gammaln(each)
    return gains - gammaln(each + counts[first]) - gammaln(each + counts[second])


def _with_others(statistics: np.ndarray, others: np.ndarray, model: Mixture) -> np.ndarray:
    """The statistics with others below them, and room for as many in all cases: one program for all.

    None and no room where components share a parameter, which is that of all.
    """
    if model.components.couples_components:
        return statistics
    room = ROOM * len(statistics) - len(others)
    return np.concatenate([statistics, others, np.zeros((room, statistics.shape[1]), statistics.dtype)])


def _added_up(statistics: np.ndarray, first: int, second: int) -> np.ndarray:
    """Statistics with those of a second component added to those of a first, which empties the second."""
    found = statistics.copy()
    found[first] += found[second]
    found[second] = 0.0
    return found


MOVES_OF = {"merge": _merges, "delete": _deletions}


# Birth


class Births(NamedTuple):
    """Proposals to share the rows of a component, the parent, with the emptiest one, the child.

    Attributes:
        statistics: of each proposal, shape (PROPOSALS, num_components, num_statistics).
        entropy: of its labels, nats, shape (PROPOSALS,).
        parents: shape (PROPOSALS,).
        child: the emptiest component.
        odds: coefficients on the features of the log odds that a row of the parent stays with it.
    """

    statistics: Array
    entropy: Array
    parents: Array
    child: Array
    odds: Array


def split(key: Array, state: MixtureVBState, model: Mixture, x: Array) -> Births:
    """Proposals of births, settled by restricted updates."""
    current = with_learnt(state, model)
    sums = update_responsibilities(state, current, x)
    counts = sums.statistics[:, 0]
    order = jnp.argsort(-counts)
    splittable = jnp.clip(jnp.sum(counts > OCCUPIED), 1, model.num_components - 1)
    parents, child = order[jnp.arange(PROPOSALS) % splittable], order[-1]

    def scores(statistics: Array, parent: Array) -> Array:
        """Coefficients on the features of a row's log odds of the parent against the child."""
        q = updated(state, statistics, model)
        coefficients = current.components.expected_coefficients(q.components)
        coefficients = coefficients.at[:, 0].add(current.weights.expected_log_weights(q.weights))
        return coefficients[parent] - coefficients[child]

    def restricted(carry: tuple, _: None) -> tuple:
        odds = jax.vmap(scores)(carry[0], parents)

        def block(rows: Array, weight: Array) -> tuple[Array, Array]:
            features = current.components.features(rows)
            r = jax.nn.softmax(log_unnormalised(state, current, rows), axis=-1)
            whole, own = r[:, parents], r[:, child, None]
            kept = whole * jax.nn.sigmoid(features @ odds.T)
            gained = entr(kept) + entr(own + whole - kept) - entr(whole) - entr(own)
            return (weight[:, None] * kept).T @ features, weight @ gained

        kept, gained = sum_over_rows(block, x)
        return (jax.vmap(shared)(parents, kept), gained, odds), None

    def shared(parent: Array, kept: Array) -> Array:
        given = sums.statistics[parent] - kept
        return sums.statistics.at[parent].set(kept).at[child].add(given)

    def seeded(parent: Array, pair: Array) -> Array:
        return sums.statistics.at[parent].set(pair[0]).at[child].set(pair[1])

    start = jax.vmap(seeded)(parents, _draw_seeds(key, state, current, x, parents))
    carry = (start, jnp.zeros(PROPOSALS, start.dtype), jnp.zeros(start[:, 0].shape, start.dtype))
    (statistics, gained, odds), _ = jax.lax.scan(restricted, carry, None, RESTRICTED_STEPS)
    return Births(statistics, sums.entropy + gained, parents, child, odds)


def _draw_seeds(key: Array, state: MixtureVBState, model: Mixture, x: Array, parents: Array) -> Array:
    """Features of two rows of each parent, drawn by weight and responsibility."""
    subset_key, seed_key = jax.random.split(key)
    if isinstance(x, RowShards):
        x = Rows(x.x.reshape(x.shape), x.weight.ravel())
    x, log_weight = unweighted(x), jnp.log(weight_of(x))
    if x.shape[0] > SEED_ROWS and not isinstance(x, SparseCounts):
        seen = jax.random.randint(subset_key, (SEED_ROWS,), 0, x.shape[0])
        x, log_weight = x[seen], log_weight[seen]
    log_r = jax.nn.log_softmax(log_unnormalised(state, model, x), axis=-1)[:, parents] + log_weight[:, None]
    chosen = jax.random.categorical(seed_key, log_r.T, shape=(2, PROPOSALS)).T
    if isinstance(x, SparseCounts):  # whose features can be summed but not indexed
        picked = jax.nn.one_hot(chosen.ravel(), x.shape[0], dtype=log_r.dtype) @ model.components.features(x)
        return picked.reshape(*chosen.shape, -1)
    return model.components.features(x)[chosen]


def _birth(
    key: Array, state: MixtureVBState, objective: Array, model: Mixture, x: Array, options: dict
) -> tuple[MixtureVBState, Array]:
    """The best of a few births after a few full updates, if it beats the bound as it is."""
    births = split(key, state, model, x)

    def value(proposal: tuple[Array, Array]) -> Array:
        return bound(updated(state, proposal[0], model), *proposal, model)

    _, order = jax.lax.top_k(jax.lax.map(value, (births.statistics, births.entropy)), REFINED)

    def refine(statistics: Array) -> tuple[MixtureVBState, Array]:
        def once(state: MixtureVBState, _: None) -> tuple[MixtureVBState, None]:
            return step(key, state, model, x, **options)[0], None

        born = jax.lax.scan(once, updated(state, statistics, model), None, REFINING_STEPS)[0]
        return _settled(born, model, x)

    born, after = jax.lax.map(refine, births.statistics[order])
    best = jnp.argmax(jnp.where(jnp.isfinite(after), after, -jnp.inf))
    pays = after[best] > objective + _least(objective)
    return _choose(pays, (jax.tree.map(lambda leaf: leaf[best], born), after[best]), (state, objective))


def _choose(condition: Array, yes: tuple, no: tuple) -> tuple:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
