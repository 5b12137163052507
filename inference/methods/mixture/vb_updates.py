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
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.mixture.vb_hyperparameters import (
    concentration_terms,
    expected_log,
    expected_log_dirichlet_constant,
    learn_concentration,
    log_hyperprior,
    mean_of,
    update_concentration,
    with_learnt,
)
from inference.methods.mixture.vb_posterior import OCCUPIED, MixtureVBState, from_statistics
from inference.numerics.weighted_rows import sum_over_rows
from zoo.mixture import Mixture

__all__ = [
    "MixtureVBInfo",
    "RowSums",
    "bound",
    "in_best_order",
    "step",
    "update_globals",
    "update_responsibilities",
    "updated",
]

LEARNING_STEPS = 5  # of hyperparameters and global factors in turn, within a step


class MixtureVBInfo(NamedTuple):
    """What is recorded of a step.

    Attributes:
        objective: the evidence lower bound, in nats.
        num_occupied: components with more than half an expected row.
        expected_concentration: E[alpha].
    """

    objective: Array
    num_occupied: Array
    expected_concentration: Array


class RowSums(NamedTuple):
    """What the local step leaves behind of the responsibilities.

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
        return (exponentials * (weight[:, None] / total)).T @ features, weight @ log_normaliser

    statistics, log_normaliser = sum_over_rows(block, x)
    return RowSums(
        statistics, log_normaliser - jnp.sum(offset * statistics)
    )  # H(r) = sum_i log Z_i - sum_ik r_ik log(Z_i r_ik)


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
        num_sticks = state.weights.concentration1.shape[-1]
        weights += num_sticks * (expected_log(q) if model.has_random_concentration else jnp.log(q))
    else:
        weights += expected_log_dirichlet_constant(q, model.weights.num_components)
    total = jnp.sum(model.components.log_evidence(statistics)) + weights + entropy + hyperprior
    return total + concentration_terms(q, model.concentration) if model.has_random_concentration else total


# The algorithm


def updated(state: MixtureVBState, statistics: Array, model: Mixture) -> MixtureVBState:
    """The state with weights and components that are optimal for given statistics."""
    new = from_statistics(statistics, state.concentration, with_learnt(state, model))
    return new._replace(prior=state.prior, learning_in=state.learning_in)


def in_best_order(statistics: Array, state: MixtureVBState, model: Mixture) -> Array:
    """The statistics with components sorted as the weights' prior likes them best.

    Relabelling leaves all of the bound as it is but q(V), which is then optimal for the better order: the
    bound cannot fall.
    """
    order = best_order(state, statistics, model)
    return statistics if order is None else statistics[order]


def best_order(state: MixtureVBState, statistics: Array, model: Mixture) -> Array | None:
    """The order of the components that the weights' prior likes best; None if it likes all the same."""
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
    """Labels, concentration, order, hyperparameters, weights, components, bound; the key is ignored.

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
