r"""Split-merge moves for the labels of a collapsed mixture: sequentially allocated (Dahl 2003).

Two rows i and j are drawn. If they share a cluster it is split: i and j seed two clusters, and the other
members, in random order, join one of them with probability proportional to its weight times its predictive
density given those already there. If they do not, their clusters are merged. A split is accepted with
probability

.. math::
    \min\Big\{1, \frac{p(c^{\mathrm{split}})\, L_i L_j}{p(c)\, L_{ij}\, q}\Big\},

p the prior of the partition, L the evidence of a cluster, q the probability of the allocations made; a merge
with the reciprocal, q being the probability that the same order would have allocated the two clusters as
they are. All evidences are chains of predictives of the one scan over rows that a proposal costs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["split_or_merge"]

SIDE_I, SIDE_J, BOTH, NOWHERE = 0, 1, 2, 3


def split_or_merge(
    key: Array,
    labels: Array,
    counts: Array,
    rows: Array,
    components: Any,
    statistics: Any,
    weight_offset: Array,
    log_prior_of_split: Any,
) -> tuple[Array, Array, Array]:
    """One proposal.

    Args:
        key: random key.
        labels: slot of each row.
        counts: rows per slot.
        rows: what ``statistics`` takes of the rows.
        components: the family.
        statistics: the class from `inference.methods.mixture.urn_statistics`.
        weight_offset: what a cluster's weight exceeds its number of rows by (0 for the Dirichlet process,
            alpha / K for the finite allocation).
        log_prior_of_split: ``(count_i, count_j, num_occupied)`` to the log ratio of the partition's prior
            with the two clusters apart (``num_occupied`` before) to that with them together.

    Returns:
        labels, counts, and whether the proposal was accepted. Without an empty slot a split is refused;
        the caller grows the slots.
    """
    pair_key, order_key, allocation_key, accept_key = jax.random.split(key, 4)
    num_rows = labels.shape[0]
    i = jax.random.randint(pair_key, (), 0, num_rows)
    j = (i + jax.random.randint(jax.random.fold_in(pair_key, 1), (), 1, num_rows)) % num_rows
    splits = labels[i] == labels[j]
    order = jax.random.permutation(order_key, num_rows)
    log_odds = jax.random.logistic(allocation_key, (num_rows,))
    member = ((labels == labels[i]) | (labels == labels[j])).at[jnp.array([i, j])].set(False)

    seeds = jnp.full(num_rows, NOWHERE).at[i].set(SIDE_I).at[j].set(SIDE_J)
    cache = statistics.of(components, rows, seeds, 3)
    alone = statistics.of(components, rows, jnp.full(num_rows, NOWHERE), 3)
    first = alone.log_predictive(components, rows[i])[BOTH]
    cache = cache.changed(components, BOTH, rows[i], jnp.ones(()))
    second = cache.log_predictive(components, rows[j])[BOTH]
    cache = cache.changed(components, BOTH, rows[j], jnp.ones(()))
    apart = first + alone.log_predictive(components, rows[j])[BOTH]

    def allocate(carry: tuple, place: Array) -> tuple[tuple, Array]:
        cache, sizes, log_q, log_apart, log_together = carry
        row, taken = rows[place], member[place]
        density = cache.log_predictive(components, row)
        log_weight = jnp.log(sizes + weight_offset) + density[:2]
        advantage = log_weight[SIDE_J] - log_weight[SIDE_I]
        drawn = jnp.where(log_odds[place] < advantage, SIDE_J, SIDE_I)
        side = jnp.where(splits, drawn, jnp.where(labels[place] == labels[j], SIDE_J, SIDE_I))
        chosen = jax.nn.log_sigmoid(jnp.where(side == SIDE_J, advantage, -advantage))
        in_it = taken.astype(rows.dtype)
        cache = cache.changed(components, side, row, in_it).changed(components, BOTH, row, in_it)
        carry = (
            cache,
            sizes.at[side].add(in_it),
            log_q + in_it * chosen,
            log_apart + in_it * density[side],
            log_together + in_it * density[BOTH],
        )
        return carry, side

    zero = jnp.zeros((), rows.dtype)
    start = (cache, jnp.ones(2, rows.dtype), zero, apart, first + second)
    (_, sizes, log_q, log_apart, log_together), sides = jax.lax.scan(allocate, start, order)
    side = jnp.zeros(num_rows, int).at[order].set(sides).at[i].set(SIDE_I).at[j].set(SIDE_J)
    member = member.at[jnp.array([i, j])].set(True)

    num_occupied = jnp.sum(counts > 0)
    apart_number = num_occupied + jnp.where(splits, 0, -1)  # clusters when the two are one
    log_ratio = (
        log_prior_of_split(sizes[SIDE_I], sizes[SIDE_J], apart_number) + log_apart - log_together - log_q
    )
    log_ratio = jnp.where(splits, log_ratio, -log_ratio)
    empty = jnp.argmin(counts)  # an empty slot, if there is one
    possible = ~splits | (counts[empty] == 0)
    accepted = possible & (jnp.log(jax.random.uniform(accept_key)) < log_ratio)
    new_slot = jnp.where(splits, empty, labels[j])
    moved = member & jnp.where(splits, side == SIDE_I, True)
    new_labels = jnp.where(moved, new_slot, labels)
    labels = jnp.where(accepted, new_labels, labels)
    counts = jnp.zeros_like(counts).at[labels].add(1)
    return labels, counts, accepted
