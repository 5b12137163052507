r"""The order of the components of a truncated Dirichlet process, drawn anew in every sweep.

Earlier sticks are longer, so the posterior prefers orders in which large components come first, but a
sampler that moves one label at a time cannot exchange two components full of rows: it stays in the order it
met first, and number of components, concentration and log joint stay apart between chains. Swaps of two
components cure that step by step (Papaspiliopoulos and Roberts 2008, "Retrospective Markov chain Monte Carlo
methods for Dirichlet process hierarchical models", Biometrika 95; Hastie, Liverani and Richardson 2015,
"Sampling from Dirichlet process mixture models with unknown concentration parameter", Statistics and
Computing 25). Here all components are put in a new order at once.

With sticks and component parameters integrated out, labels with :math:`n_j` rows at stick j have probability

.. math::
    p(c \mid \alpha) = \prod_{j<K} \frac{B(1 + n_j, \alpha + n_{>j})}{B(1, \alpha)},
    \qquad n_{>j} = \sum_{l>j} n_l,

and the likelihood does not see the order, so this is, up to a constant, the law of the order given the sizes.
Without truncation it factorises: the next stick holds component k with probability :math:`n_k / (\alpha + R)`
and no row at all with probability :math:`\alpha / (\alpha + R)`, where R rows are still without a stick (a
size-biased order with gaps; Pitman 1996). A proposal from that law, confined to K sticks by filling a gap no
more once the components without rows are used up, has probability

.. math::
    q(c) \propto \prod_{j \le K} \frac{1}{\alpha\,[\text{some stick from } j \text{ on is empty}] + n_{\ge j}}

whatever order it is compared with, and is accepted with the Metropolis-Hastings probability for p and q:
always, as long as both orders end on an empty stick, which is nearly always where the truncation is long
enough for the concentration. Where it is not, exchanges of neighbouring sticks, each drawn from its two-point
conditional, go on mixing. Cost: O(N + K log K) a sweep.

Sticks and parameters must be drawn next, as in `inference.methods.mixture.gibbs.blocks_of`: the old ones belong to
the old order.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from zoo.dirichlet_process import StickBreaking
from zoo.mixture import Mixture

__all__ = ["exchange_neighbours", "log_allocation", "log_proposal", "propose_order", "reorder_components"]


def reorder_components(key: Array, values: Mapping[str, Array], model: Mixture, x: Array) -> dict[str, Array]:
    """New labels, rows grouped as before; a move for labels with sticks and parameters integrated out.

    Args:
        key: a JAX key.
        values: all sites; ``assignments`` and, where it is random, ``concentration`` are read.
        model: a mixture with stick-breaking weights.
        x: the data; not read.

    Returns:
        The values with new ``assignments``; every other site is as it was and must be drawn again, except the
        concentration.
    """
    propose_key, accept_key, even_key, odd_key = jax.random.split(key, 4)
    alpha = values["concentration"] if model.has_random_concentration else model.concentration
    counts = jnp.bincount(values["assignments"], length=model.num_components).astype(jnp.result_type(float))
    order = jnp.arange(model.num_components)
    proposed = propose_order(propose_key, counts, alpha)

    def log_weight(counts: Array) -> Array:
        return log_allocation(model.weights, counts, alpha) - log_proposal(counts, alpha)

    log_ratio = log_weight(counts[proposed]) - log_weight(counts)
    accepted = jnp.log(jax.random.uniform(accept_key, dtype=log_ratio.dtype)) < log_ratio
    order = jnp.where(accepted, proposed, order)
    for first, pair_key in ((0, even_key), (1, odd_key)):
        order = exchange_neighbours(pair_key, order, counts, alpha, model.weights, first)
    place = jnp.argsort(order)  # of each component, the stick that it gets
    return {**values, "assignments": place[values["assignments"]].astype(values["assignments"].dtype)}


def log_allocation(weights: StickBreaking, counts: Array, alpha: Array) -> Array:
    """Log probability of labels with these rows per stick, sticks integrated out, up to a constant in nats.

    The constant depends on the concentration and the number of sticks only.

    Args:
        weights: the prior of the weights.
        counts: rows per stick, shape (num_components,).
        alpha: the concentration, positive.
    """
    return weights.log_normaliser(weights.posterior(counts, alpha))


def propose_order(key: Array, counts: Array, alpha: Array) -> Array:
    """An order from the law without truncation, confined to the sticks there are.

    Args:
        key: a JAX key.
        counts: rows per component, shape (num_components,).
        alpha: the concentration, positive.

    Returns:
        The component at each stick, shape (num_components,), int. Its log probability is `log_proposal` of
        the reordered counts, up to a constant.
    """
    clock_key, gap_key = jax.random.split(key)
    size = counts.shape[0]
    clock = jax.random.exponential(clock_key, (size,), counts.dtype) / counts  # infinite without rows
    queue = jnp.argsort(clock)  # components with rows in size-biased order, then those without
    num_occupied = jnp.sum(counts > 0)

    def fill(carry: tuple, uniform: Array) -> tuple:
        taken, gaps, rows_left = carry  # components with rows placed, empty sticks so far, rows not placed
        gap = (gaps < size - num_occupied) & (uniform * (alpha + rows_left) < alpha)
        gap = gap | (taken == num_occupied)
        component = queue[jnp.where(gap, num_occupied + gaps, taken)]
        carry = (taken + ~gap, gaps + gap, rows_left - jnp.where(gap, 0.0, counts[component]))
        return carry, component

    start = (jnp.zeros((), int), jnp.zeros((), int), jnp.sum(counts))
    return jax.lax.scan(fill, start, jax.random.uniform(gap_key, (size,), counts.dtype))[1]


def log_proposal(counts: Array, alpha: Array) -> Array:
    """Log probability that `propose_order` gives this order, up to a constant in nats.

    The constant depends on concentration and sizes, not on the order.

    Args:
        counts: rows per stick in that order, shape (num_components,).
        alpha: the concentration, positive.
    """
    rows_left = jnp.cumsum(counts[::-1])[::-1]  # from this stick on
    empty_left = jnp.cumsum((counts == 0)[::-1])[::-1] > 0
    return -jnp.sum(jnp.log(alpha * empty_left + rows_left))


def exchange_neighbours(
    key: Array, order: Array, counts: Array, alpha: Array, weights: StickBreaking, first: int
) -> Array:
    """The order after each pair of neighbouring sticks was exchanged or not, by its conditional.

    The pairs are disjoint, and the rows beyond a pair do not change with what happens within another one,
    so that the pairs are independent given the rest and drawn side by side.

    Args:
        key: a JAX key.
        order: the component at each stick, shape (num_components,).
        counts: rows per component, shape (num_components,).
        alpha: the concentration, positive.
        weights: the prior of the weights.
        first: 0 for the pairs (0, 1), (2, 3), ..., 1 for (1, 2), (3, 4), ....
    """
    size = weights.num_components
    left = jnp.arange(first, size - 1, 2)
    ordered = counts[order]
    beyond = (jnp.cumsum(ordered[::-1])[::-1] - ordered)[left + 1]
    both_random = left + 1 < weights.num_sticks  # the last stick of a truncation is fixed

    def log_pair(near: Array, far: Array) -> Array:
        own, last = (_log_beta(1.0 + n, alpha + rest) for n, rest in ((near, beyond + far), (far, beyond)))
        return own + jnp.where(both_random, last, 0.0)

    near, far = ordered[left], ordered[left + 1]
    log_odds = log_pair(far, near) - log_pair(near, far)
    exchanged = jax.random.bernoulli(key, jax.nn.sigmoid(log_odds))
    new_left = jnp.where(exchanged, order[left + 1], order[left])
    new_right = jnp.where(exchanged, order[left], order[left + 1])
    return order.at[left].set(new_left).at[left + 1].set(new_right)


def _log_beta(a: Array, b: Array) -> Array:
    """Logarithm of the beta function; that of jax.scipy loses half the digits at moderate arguments."""
    return jax.lax.lgamma(a) + jax.lax.lgamma(b) - jax.lax.lgamma(a + b)
