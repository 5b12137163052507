r"""Moves of VB for mixtures that its updates cannot make: two components become one, one becomes two.

The updates climb to the nearest optimum. Once they have settled, each move is judged by the whole bound,
constants and the entropy of the labels included, and taken only if that is higher:

* **Merge** of components k and l: the responsibilities are added. The statistics add up too, so everything in
  the bound but the entropy follows from them. The entropy can only fall, by
  :math:`\sum_i (r_{ik} + r_{il}) \log(r_{ik} + r_{il}) - r_{ik} \log r_{ik} - r_{il} \log r_{il}`; what the
  bound gains without it is therefore an upper limit of the gain. Pairs are ranked by that limit, and the
  exact gain is computed for the first of them, in one pass over the rows.
* **Birth**: the rows of a component are shared between it and an empty one. Two rows of it are drawn as
  seeds, a few restricted updates (of the two components, all else held) settle the shares :math:`s_i`, and
  the entropy rises by :math:`\sum_i r_{ik} H(s_i)`. The most promising proposals get a few full updates.

Statistics, bounds and updates are those of the component family, whatever it is; all shapes are fixed. A
round costs about as much as some tens of updates. Moves are off by default: they triple the compilation of a
first call, and the published counts of components are those of VB without them. On the toy data (250 rows,
20 components) they and the sorting of sticks gain 25 nats (sticks) and 6 nats (Dirichlet weights) over what
plain restarts find in the same CPU time.

Reference: merge and birth moves after Ueda and Ghahramani (2002) and Hughes and Sudderth (2013), here with
the exact bound of the proposed state.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import entr, xlogy

from inference.methods.mixture.vb_hyperparameters import mean_of, with_learnt
from inference.methods.mixture.vb_posterior import OCCUPIED, MixtureVBState, log_unnormalised
from inference.methods.mixture.vb_updates import bound, in_best_order, step, update_responsibilities, updated
from inference.numerics.weighted_rows import RowShards, sum_over_rows
from zoo.mixture import Mixture
from zoo.sparse import SparseCounts

__all__ = ["MOVES", "Births", "improve", "merge_gains", "split"]

MOVES = ("merge", "birth")
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
    options = {"sort_sticks": sort_sticks, "learn": learn}
    best, start = _settled(state, model, x)
    objective = start
    if "merge" in moves:
        best, objective = _merge_all(best, objective, model, x)
    if "birth" in moves:
        best, objective = _birth(key, best, objective, model, x, options)
    better = objective > start + _least(start)
    if learn:  # what has settled with the given hyperparameters may go on with learnt ones
        better = better | (best.learning_in > 0)
        best = best._replace(learning_in=jnp.zeros_like(best.learning_in))
    return best, objective, better


def _least(objective: Array) -> Array:
    """What a gain must exceed to be more than rounding."""
    return SMALLEST_GAIN + 100 * jnp.finfo(objective.dtype).eps * jnp.abs(objective)


def _settled(state: MixtureVBState, model: Mixture, x: Array) -> tuple[MixtureVBState, Array]:
    """The state after one more update of labels, weights and components, and its bound."""
    sums = update_responsibilities(state, with_learnt(state, model), x)
    state = updated(state, sums.statistics, model)
    return state, bound(state, sums.statistics, sums.entropy, model)


# Merge


def merge_gains(state: MixtureVBState, model: Mixture, x: Array) -> tuple[Array, tuple[Array, Array], Array]:
    """What the bound gains by each of the most promising merges, right after an update of the labels.

    Returns:
        The exact gains in nats, shape (num_candidates,); minus infinity where a component is empty.
        The two components of each candidate. The statistics of the labels.
    """
    current = with_learnt(state, model)
    sums = update_responsibilities(state, current, x)
    statistics, entropy = sums.statistics, sums.entropy
    first, second = (jnp.asarray(index) for index in np.triu_indices(model.num_components, 1))
    limits = _gains_with_entropy_held(state, statistics, entropy, (first, second), model)
    counts = statistics[:, 0]
    both = (counts[first] > OCCUPIED) & (counts[second] > OCCUPIED)
    limits, order = jax.lax.top_k(
        jnp.where(both, limits, -jnp.inf), min(first.shape[0], model.num_components)
    )
    first, second = first[order], second[order]

    def block(rows: Array, weight: Array) -> Array:
        r = jax.nn.softmax(log_unnormalised(state, current, rows), axis=-1)
        one, other = r[:, first], r[:, second]
        return weight @ (xlogy(one, one) + xlogy(other, other) - xlogy(one + other, one + other))

    return limits + sum_over_rows(block, x), (first, second), statistics


def _gains_with_entropy_held(
    state: MixtureVBState, statistics: Array, entropy: Array, pairs: tuple[Array, Array], model: Mixture
) -> Array:
    """What the bound gains by each merge, the entropy of the labels as it is, shape (num_pairs,).

    Only two components and the weights change, unless the family couples all components.
    """
    current = with_learnt(state, model)

    def by_whole_bound(pair: tuple[Array, Array]) -> Array:
        merged = in_best_order(_merged(statistics, *pair), state, model)
        return bound(updated(state, merged, model), merged, entropy, model)

    def weights(counts: Array) -> Array:
        posterior = current.weights.posterior(counts, mean_of(state.concentration))
        return current.weights.log_normaliser(posterior)

    def by_parts(pair: tuple[Array, Array]) -> Array:
        first, second = pair
        merged = in_best_order(_merged(statistics, *pair)[:, :1], state, model)[:, 0]
        both = evidence((statistics[first] + statistics[second])[None])[0]
        return both + nothing - own[first] - own[second] + weights(merged) - weights(statistics[:, 0])

    batch = {"batch_size": min(256, pairs[0].shape[0])}
    if current.components.couples_components:
        here = bound(updated(state, statistics, model), statistics, entropy, model)
        return jax.lax.map(by_whole_bound, pairs, **batch) - here
    evidence = current.components.log_evidence
    own, nothing = evidence(statistics), evidence(jnp.zeros_like(statistics[:1]))[0]
    return jax.lax.map(by_parts, pairs, **batch)


def _merged(statistics: Array, first: Array, second: Array) -> Array:
    return statistics.at[first].add(statistics[second]).at[second].set(0.0)


def _merge_all(
    state: MixtureVBState, objective: Array, model: Mixture, x: Array
) -> tuple[MixtureVBState, Array]:
    """The best merge again and again, as long as it pays; after each, the labels are updated."""

    def attempt(carry: tuple) -> tuple:
        state, objective, _ = carry
        gains, (first, second), statistics = merge_gains(state, model, x)
        best = jnp.argmax(gains)
        merged = in_best_order(_merged(statistics, first[best], second[best]), state, model)
        merged, after = _settled(updated(state, merged, model), model, x)
        pays = (gains[best] > _least(objective)) & (after > objective + _least(objective))
        return (*_choose(pays, (merged, after), (state, objective)), pays)

    carry = state, objective, jnp.asarray(True)
    return jax.lax.while_loop(lambda carry: carry[2], attempt, carry)[:2]


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
    """Features of two rows of each parent, drawn by responsibility."""
    subset_key, seed_key = jax.random.split(key)
    if isinstance(x, RowShards):  # what fills the shares up are rows too
        x = x.x.reshape(x.shape)
    if x.shape[0] > SEED_ROWS and not isinstance(x, SparseCounts):
        x = x[jax.random.randint(subset_key, (SEED_ROWS,), 0, x.shape[0])]
    log_r = jax.nn.log_softmax(log_unnormalised(state, model, x), axis=-1)[:, parents]
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
        born = updated(state, statistics, model)
        born = jax.lax.scan(
            lambda state, _: (step(key, state, model, x, **options)[0], None), born, None, REFINING_STEPS
        )[0]
        return _settled(born, model, x)

    born, after = jax.lax.map(refine, births.statistics[order])
    best = jnp.argmax(jnp.where(jnp.isfinite(after), after, -jnp.inf))
    pays = after[best] > objective + _least(objective)
    return _choose(pays, (jax.tree.map(lambda leaf: leaf[best], born), after[best]), (state, objective))


def _choose(condition: Array, yes: tuple, no: tuple) -> tuple:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
