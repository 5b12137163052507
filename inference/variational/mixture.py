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

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Method, Outcome
from inference.row_blocks import map_rows, sum_over_rows
from inference.variational.concentration import (
    concentration_terms,
    expected_log,
    expected_log_dirichlet_constant,
    initial_concentration,
    mean_of,
    parameter_names,
    stored_concentration,
    update_concentration,
)
from inference.variational.concentration import variables as concentration_variables
from zoo.conjugate import GaussianWishart
from zoo.mixture import Mixture
from zoo.model import in_current_precision

__all__ = [
    "METHOD",
    "MixtureVBInfo",
    "MixtureVBState",
    "bound",
    "guide",
    "init",
    "q_from_variables",
    "responsibilities",
    "step",
]

OCCUPIED = 0.5  # a component counts as occupied when it is expected to hold more rows than this
DERIVED = (
    "responsibilities",
    "num_occupied",
    "expected_weights",
)  # stored beside q's parameters, and follow from them


class MixtureVBState(NamedTuple):
    """The factors of q but the labels, which follow from them.

    Attributes:
        components: q(theta), the component prior's class with a leading axis over components.
        weights: q of the weights' site: a Dirichlet, or Betas over sticks.
        concentration: q(alpha): a Gamma or LogNormal, or the number at which alpha is fixed.
    """

    components: GaussianWishart
    weights: dist.Distribution
    concentration: dist.Distribution | Array


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


class _RowSums(NamedTuple):
    """What the local step leaves behind of the responsibilities."""

    statistics: Array  # (num_components, num_statistics), sums of responsibility times feature
    entropy: Array  # of the labels, nats


# Local step


def responsibilities(state: MixtureVBState, model: Mixture, x: Array) -> Array:
    """q(c_i = k), shape (num_observations, num_components)."""
    return map_rows(lambda rows: jax.nn.softmax(_log_unnormalised(state, model, rows), axis=-1), x)


def _log_unnormalised(state: MixtureVBState, model: Mixture, x: Array) -> Array:
    """E[log pi_k] + E[log p(x_i | theta_k)]."""
    coefficients = model.components.expected_coefficients(state.components)
    return model.components.features(x) @ coefficients.T + model.weights.expected_log_weights(state.weights)


def update_responsibilities(state: MixtureVBState, model: Mixture, x: Array) -> _RowSums:
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
    return _RowSums(
        statistics, log_normaliser - jnp.sum(offset * statistics)
    )  # H(r) = sum_i log Z_i - sum_ik r_ik log(Z_i r_ik)


# Global step


# Bound


def bound(state: MixtureVBState, statistics: Array, entropy: Array, model: Mixture) -> Array:
    """The evidence lower bound when q(theta) and q(weights) are optimal for the responsibilities.

    Args:
        state: q; its components and weights must be the updates for these statistics and E[alpha].
        statistics: summed responsibility times feature, shape (num_components, num_statistics).
        entropy: of the labels, in nats.
        model: the model.
    """
    q = state.concentration
    weights = model.weights.log_normaliser(state.weights)
    if isinstance(state.weights, dist.Beta):  # the prior's constant is alpha for each stick
        num_sticks = state.weights.concentration1.shape[-1]
        weights += num_sticks * (expected_log(q) if model.has_random_concentration else jnp.log(q))
    else:
        weights += expected_log_dirichlet_constant(q, model.weights.num_components)
    total = jnp.sum(model.components.log_evidence(statistics)) + weights + entropy
    return total + concentration_terms(q, model.concentration) if model.has_random_concentration else total


# The algorithm


def _from_statistics(
    statistics: Array, concentration: dist.Distribution | Array, model: Mixture
) -> MixtureVBState:
    counts = statistics[:, 0]
    weights = model.weights.posterior(counts, mean_of(concentration))
    return MixtureVBState(model.components.posterior(statistics), weights, concentration)


def from_responsibilities(r: Array, model: Mixture, x: Array) -> MixtureVBState:
    """The state whose global factors are optimal for given responsibilities.

    Shape (num_observations, num_components).
    """
    return _from_statistics(r.T @ model.components.features(x), initial_concentration(model), model)


def init(key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """Uniform random responsibilities, rows normalised (a symmetric start is a fixed point)."""
    numbered = jnp.concatenate([x, jnp.arange(x.shape[0], dtype=x.dtype)[:, None]], axis=-1)

    def block(rows: Array, weight: Array) -> Array:  # drawn block by block: no N x K array is held
        block_key = key if rows.shape[0] == x.shape[0] else jax.random.fold_in(key, rows[0, -1].astype(int))
        r = jax.random.uniform(block_key, (rows.shape[0], model.num_components), minval=1e-6)
        r = weight[:, None] * r / jnp.sum(r, axis=-1, keepdims=True)
        return r.T @ model.components.features(rows[:, :-1])

    return _from_statistics(sum_over_rows(block, numbered), initial_concentration(model), model)


def init_kmeans(key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """Hard k-means++ seeds on standardised columns, each row with its nearest.

    Fast to converge, but keeps too many components.
    """
    z = (x - jnp.mean(x, axis=0)) / jnp.std(x, axis=0)

    def seed(distance: Array, key: Array) -> tuple[Array, Array]:
        index = jax.random.categorical(key, jnp.log(distance))
        return jnp.minimum(distance, jnp.sum((z - z[index]) ** 2, axis=-1)), z[index]

    _, seeds = jax.lax.scan(seed, jnp.ones(z.shape[0]), jax.random.split(key, model.num_components))
    nearest = map_rows(lambda rows: jnp.argmax(rows @ seeds.T - 0.5 * jnp.sum(seeds**2, axis=-1), axis=-1), z)
    return from_responsibilities(jax.nn.one_hot(nearest, model.num_components, dtype=x.dtype), model, x)


def start(key: Array, variables: Mapping[str, Array], model: Mixture, x: Array) -> MixtureVBState:
    """The state that given ``responsibilities`` (or ``assignments``) lead to; deterministic."""
    if "responsibilities" in variables:
        r = jnp.asarray(variables["responsibilities"], x.dtype)
    elif "assignments" in variables:
        r = jax.nn.one_hot(variables["assignments"], model.num_components, dtype=x.dtype)
    else:
        raise ValueError(
            f"init must hold 'responsibilities' or 'assignments'; got {', '.join(variables) or 'nothing'}"
        )
    if r.shape != (x.shape[0], model.num_components):
        raise ValueError(
            f"init: responsibilities must have shape ({x.shape[0]}, {model.num_components}); got {r.shape}"
        )
    concentration = initial_concentration(model)
    if model.has_random_concentration and parameter_names(concentration)[0] in variables:
        concentration = stored_concentration(variables, concentration)
    return _from_statistics(r.T @ model.components.features(x), concentration, model)


def step(key: Array, state: MixtureVBState, model: Mixture, x: Array) -> tuple[MixtureVBState, MixtureVBInfo]:
    """Labels, concentration, weights, components, bound; deterministic, the key is ignored."""
    sums = update_responsibilities(state, model, x)
    concentration = update_concentration(state.concentration, state.weights, model)
    state = _from_statistics(sums.statistics, concentration, model)
    objective = bound(state, sums.statistics, sums.entropy, model)
    num_occupied = jnp.sum(sums.statistics[:, 0] > OCCUPIED)
    return state, MixtureVBInfo(objective, num_occupied, mean_of(concentration))


@cache
def build(init: str) -> Algorithm:
    """The algorithm with a start strategy."""
    return {"random": ALGORITHM, "kmeans": Algorithm(init_kmeans, step)}[init]


ALGORITHM = Algorithm(init, step)


# The posterior as a program and as draws


def guide(
    stored: Mapping[str, Array],
    model: Mixture,
    x: Array | None = None,
    *,
    num_observations: int | None = None,
) -> None:
    """Q as a NumPyro program with exactly the sites of ``model.explicit``.

    Its parameters are ``numpyro.param`` sites that SVI may move.

    Args:
        stored: the parameters, as `variables` names them.
        model: the model.
        x: the rows whose labels are drawn from q, shape (num_observations, num_features).
        num_observations: without ``x``: draw the labels of so many new rows from the weights.
    """
    stored, model = in_current_precision((dict(stored), model))
    supports = {f"components_{name}": support for name, support in model.components.field_supports.items()}
    supports["concentration_loc"] = dist.constraints.real  # what is not named here is positive
    parameters = {
        name: numpyro.param(name, value, constraint=supports.get(name, dist.constraints.positive))
        for name, value in stored.items()
        if name not in DERIVED
    }
    state = q_from_variables(parameters, model)
    log_weights = sample_globals(state, model)
    rows = num_observations if x is None else x.shape[0]
    with numpyro.plate("observations", rows):
        logits = log_weights if x is None else _log_unnormalised(state, model, x)
        numpyro.sample("assignments", dist.Categorical(logits=logits), infer={"enumerate": "parallel"})


def sample_globals(state: MixtureVBState, model: Mixture) -> Array:
    """Q of everything but the labels, as a NumPyro program; returns the log weights drawn."""
    if model.has_random_concentration:
        numpyro.sample("concentration", state.concentration)
    if isinstance(state.weights, dist.Beta):
        with numpyro.plate("sticks", state.weights.concentration1.shape[-1]):
            values = {"stick_fractions": numpyro.sample("stick_fractions", state.weights)}
    else:
        values = {"weights": numpyro.sample("weights", state.weights)}
    with numpyro.plate("components", model.num_components):
        state.components.sample()
    return model.weights.log_weights(values)


def variables(state: MixtureVBState, model: Mixture, x: Array) -> dict[str, Array]:
    """The parameters of q as they are stored in a fit.

    With the responsibilities and the number of occupied components.
    """
    r = responsibilities(state, model, x)
    stored = model.weights.variables(state.weights) | {
        "responsibilities": r,
        "num_occupied": jnp.sum(jnp.sum(r, axis=0) > OCCUPIED),
    }
    stored["expected_weights"] = model.weights.expected_weights(state.weights)
    for name in state.components.leaf_names():
        stored[f"components_{name}"] = getattr(state.components, name)
    if model.has_random_concentration:
        stored |= concentration_variables(state.concentration)
    return stored


def q_from_variables(stored: Mapping[str, Array], model: Mixture) -> MixtureVBState:
    """The state back from what `variables` stored."""
    names = {name: jnp.asarray(stored[f"components_{name}"]) for name in model.components.leaf_names()}
    example = model.weights.posterior(jnp.ones(model.num_components), jnp.ones(()))
    weights = (
        dist.Beta(
            jnp.asarray(stored["stick_fractions_concentration1"]),
            jnp.asarray(stored["stick_fractions_concentration0"]),
        )
        if isinstance(example, dist.Beta)
        else dist.Dirichlet(jnp.asarray(stored["weights_concentration"]))
    )
    concentration = initial_concentration(model)
    if model.has_random_concentration:
        concentration = stored_concentration(stored, concentration)
    return MixtureVBState(model.components.replaced(**names), weights, concentration)


def conclude(
    key: Array, state: MixtureVBState, model: Mixture, data: tuple, num_samples: int, keep_rows: bool
) -> Outcome:
    """Independent draws from q, as one chain, beside q's parameters; labels of rows only if ``keep_rows``."""
    stored = _variables(state, model, *data)
    draws = _draw(state, stored["responsibilities"], jax.random.split(key, num_samples), model, keep_rows)
    dims = {f"components_{name}": ("component", *own) for name, own in model.components.field_dims.items()}
    return Outcome(posterior=jax.tree.map(lambda leaf: leaf[None], draws), variational=stored, dims=dims)


@partial(jax.jit, static_argnames="keep_rows")
def _draw(state: MixtureVBState, r: Array, keys: Array, model: Mixture, keep_rows: bool) -> dict[str, Array]:
    """Draws of every site of the guide.

    Labels by inverting each row's cumulative responsibilities, one uniform a row.
    """
    by_component = r.T  # scanned over: no cumulated copy is held

    def labels_of(uniform: Array) -> Array:
        def pass_component(carry: tuple, share: Array) -> tuple:
            cumulative, labels = carry
            cumulative = cumulative + share
            return (cumulative, labels + (uniform > cumulative)), None

        start = (jnp.zeros_like(uniform), jnp.zeros(uniform.shape, int))
        return jax.lax.scan(pass_component, start, by_component[:-1])[0][1]

    def one(key: Array) -> dict[str, Array]:
        globals_key, labels_key = jax.random.split(key)
        values = _sample_sites(partial(sample_globals, state, model), globals_key)
        if not keep_rows:
            return values
        labels = labels_of(jax.random.uniform(labels_key, (r.shape[0],)))
        return values | model.derived({"assignments": labels})

    return jax.lax.map(one, keys)


def _sample_sites(program: Callable, key: Array) -> dict[str, Array]:
    sites = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace()
    return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}


_variables = jax.jit(variables)


# New rows


def new_log_joint_rows(stored: Mapping[str, Array], model: Mixture, x: Array) -> Array:
    """``log E[pi_k] + log E[p(x_i | theta_k)]`` under q, shape (num_observations, num_components).

    Exact, since q factorises.
    """
    state = q_from_variables(stored, model)
    predictive = state.components.predictive()
    return map_rows(lambda rows: predictive.log_prob(rows[:, None]), x, 256) + jnp.log(
        model.weights.expected_weights(state.weights)
    )


def transform(stored: Mapping[str, Array], model: Mixture, x: Array) -> Array:
    """Posterior mean of a new row's shares in the components: its predictive responsibilities."""
    return jax.nn.softmax(new_log_joint_rows(stored, model, x), axis=-1)


def log_density(stored: Mapping[str, Array], model: Mixture, x: Array) -> Array:
    """Log predictive density of new rows under q, in nats: a mixture of Student-t."""
    return jax.nn.logsumexp(new_log_joint_rows(stored, model, x), axis=-1)


METHOD = Method(
    kind="ascent",
    options={},
    strategies=("random", "kmeans"),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
)
