r"""Expectation maximisation for finite mixtures of any component family: maximum likelihood.

With responsibilities :math:`r_{ik} \propto \pi_k\, p(x_i \mid \theta_k)` (E-step) the M-step is

.. math::
    \pi_k = N_k / N, \qquad
    \theta_k = \arg\max_\theta \sum_i r_{ik} \log p(x_i \mid \theta)

(`zoo.conjugate`). The objective is the log likelihood :math:`\sum_i \log \sum_k \pi_k\,
p(x_i \mid \theta_k)` in nats, at the parameters returned; it never falls. Beside it the lower bound that the
M-step climbed, :math:`\sum_{ik} r_{ik} \log\{\pi_k\, p(x_i \mid \theta_k) / r_{ik}\}` with the
responsibilities of the parameters before: it lies below the log likelihood and touches it where the
parameters stand still.

Of the model's prior nothing is used but the family and what it knows (a covariance, a mean, a shape). The
likelihood of a mixture with free variances has no maximum: a component on a single row sends it to infinity.
``variance_floor`` keeps every variance above that share of the variance of all rows, and a fit that ends on
it says so. A step costs O(N K D^2) for full covariances; rows pass in blocks.

When to use what: EM for a quick point estimate, BIC and cross-validation; VB where components should be able
to empty themselves and the number of clusters is in question; Gibbs or NUTS where the spread of the
parameters matters.

Reference: Dempster, Laird and Rubin (1977); Bishop (2006), section 9.2.
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_draw
from inference.methods.mixture import EM
from inference.methods.mixture.sizes import SizedMixture, in_shared_shapes, with_others
from inference.methods.mixture.starts import STRATEGIES, mixed, restarts, start_named, statistics_given
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import map_rows, sum_over_rows
from inference.precision import to_numpy
from zoo.answers import answer_of
from zoo.checks import warn
from zoo.mixture import Mixture
from zoo.shapes import Values

OCCUPIED = 0.5  # rows that an occupied component is expected to hold more than


class MixtureEMState(NamedTuple):
    """The estimate, and the sums of its E-step.

    Attributes:
        log_weights: shape (num_components,).
        parameters: site name to value, of all components.
        statistics: sums of responsibility times feature at these parameters.
        entropy: of the responsibilities at these parameters, nats.
        at_floor: components that a guard holds.
    """

    log_weights: Array
    parameters: dict[str, Array]
    statistics: Array
    entropy: Array
    at_floor: Array


class MixtureEMInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: log likelihood at the new parameters, in nats.
        bound: the lower bound at the new parameters and the responsibilities before, in nats.
        num_occupied: components with more than half an expected row.
        at_floor: components that a guard holds.
    """

    objective: Array
    bound: Array
    num_occupied: Array
    at_floor: Array


def _log_joint_coefficients(log_weights: Array, parameters: Values, model: Mixture) -> Array:
    """Coefficients of ``log pi_k + log p(x | theta_k)`` on the features; the first feature is one."""
    return model.components.coefficients(parameters).at[:, 0].add(log_weights)


def e_step(log_weights: Array, parameters: dict[str, Array], model: Mixture, x: Array) -> tuple[Array, ...]:
    """Log likelihood, summed statistics and entropy of responsibilities and missing cells."""
    coefficients = _log_joint_coefficients(log_weights, parameters, model)

    def block(rows: Array, weight: Array) -> tuple[Array, Array, Array]:
        features = model.components.features(rows)
        scores = features @ coefficients.T
        log_normaliser = jax.nn.logsumexp(scores, axis=-1)
        r = jnp.exp(scores - log_normaliser[:, None])
        entropy = -jnp.sum(jax.scipy.special.xlogy(r, r), axis=-1)
        sums = model.components.expected_sums((weight[:, None] * r).T, features, coefficients)
        return weight @ log_normaliser, sums, weight @ entropy

    log_likelihood, statistics, entropy = sum_over_rows(block, x)
    if model.components.is_incomplete:  # the missing cells' entropy beside that of the labels
        taken = statistics[:, :1] > 0
        entropy = log_likelihood - jnp.sum(jnp.where(taken, coefficients * statistics, 0.0))
    return log_likelihood, statistics, entropy


def m_step(
    statistics: Array, before: dict[str, Array] | None, model: Mixture, variance_floor: float
) -> tuple[Array, dict[str, Array], Array]:
    """Log weights, parameters, how many components a guard holds; an empty component stays put."""
    counts = statistics[:, 0]
    estimate = model.components.maximum_likelihood(statistics, variance_floor)
    parameters = estimate.parameters
    if before is not None and not model.components.couples_components:
        empty = counts <= 0
        parameters = {
            name: jnp.where(empty.reshape(-1, *[1] * (value.ndim - 1)), before[name], value)
            for name, value in parameters.items()
        }
    log_weights = jnp.log(counts) - jnp.log(jnp.sum(counts))
    return log_weights, parameters, estimate.at_floor


def init(
    key: Array, model: Mixture, x: Array, *, strategy: str = "random", variance_floor: float = 1e-6
) -> MixtureEMState:
    """The state after an M-step from the responsibilities of a start strategy."""
    return _from_statistics(start_named(strategy)(key, model, x), model, x, variance_floor)


def _init_mixed(
    number: Array, key: Array, model: Mixture, x: Array, *, variance_floor: float
) -> MixtureEMState:
    return _from_statistics(mixed(number, key, model, x), model, x, variance_floor)


def _from_statistics(statistics: Array, model: Mixture, x: Array, variance_floor: float) -> MixtureEMState:
    log_weights, parameters, at_floor = m_step(statistics, None, model, variance_floor)
    _, statistics, entropy = e_step(log_weights, parameters, model, x)
    return MixtureEMState(log_weights, parameters, statistics, entropy, at_floor)


def start(
    key: Array, variables: Values, model: Mixture, x: Array, *, variance_floor: float
) -> MixtureEMState:
    """The state after an M-step from given ``responsibilities`` (or ``assignments``); deterministic."""
    return _from_statistics(statistics_given(variables, model, x), model, x, variance_floor)


def resized(state: MixtureEMState, model: Mixture | SizedMixture) -> MixtureEMState:
    """The state of another size of the same mixture, components without rows beyond the others."""
    return state._replace(
        log_weights=with_others(state.log_weights, model, -jnp.inf),
        parameters={name: with_others(value, model, value[0]) for name, value in state.parameters.items()},
        statistics=with_others(state.statistics, model),
    )


def step(
    key: Array, state: MixtureEMState, model: Mixture, x: Array, *, variance_floor: float = 1e-6
) -> tuple[MixtureEMState, MixtureEMInfo]:
    """M-step from the statistics of the state, then E-step; deterministic, the key is ignored."""
    log_weights, parameters, at_floor = m_step(state.statistics, state.parameters, model, variance_floor)
    coefficients = _log_joint_coefficients(log_weights, parameters, model)
    taken = state.statistics[:, :1] > 0  # an empty component has log weight -inf and no rows to weigh it
    bound = jnp.sum(jnp.where(taken, coefficients * state.statistics, 0.0)) + state.entropy
    objective, statistics, entropy = e_step(log_weights, parameters, model, x)
    new = MixtureEMState(log_weights, parameters, statistics, entropy, at_floor)
    num_occupied = jnp.sum(statistics[:, 0] > OCCUPIED)
    return new, MixtureEMInfo(objective, bound, num_occupied, at_floor)


@cache
def build(strategy: str, variance_floor: float) -> Algorithm:
    """The algorithm with a start strategy and a floor."""
    return Algorithm(
        partial(init, strategy=strategy, variance_floor=variance_floor),
        partial(step, variance_floor=variance_floor),
        numbered_init=partial(_init_mixed, variance_floor=variance_floor) if strategy == "mixed" else None,
    )


def check(model: Mixture, settings: EM) -> None:
    """Raise ValueError if the model is more than a likelihood."""
    if model.weight_prior != "dirichlet":
        raise ValueError(
            "em estimates the weights of a finite mixture: it takes weight_prior='dirichlet', whose "
            f"concentration it ignores; got {model.weight_prior!r}"
        )
    if model.has_random_concentration or model.components.hyperprior_sites():
        raise ValueError("em maximises the likelihood and ignores hyperpriors: give numbers instead")


# The estimate in a fit


def responsibilities(values: Values, model: Mixture, x: Array) -> Array:
    """Posterior probability of each component for each row, shape (num_observations, num_components)."""
    return map_rows(lambda rows: jax.nn.softmax(_scores(values, model, rows), axis=-1), x)


def _scores(values: Values, model: Mixture, x: Array) -> Array:
    coefficients = _log_joint_coefficients(jnp.log(values["weights"]), values, model)
    return model.components.features(x) @ coefficients.T


def conclude(
    key: Array,
    state: MixtureEMState,
    model: Mixture,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: object,
) -> Outcome:
    """The estimate as one draw of one chain, beside its responsibilities and its log likelihood."""
    stored, labels, log_likelihood = to_numpy(_concluded(state, model, *data))
    number = model.components.num_free_parameters(model.num_components) + model.num_components - 1
    posterior = {"weights": stored["weights"]} | state.parameters | labels
    if not keep_rows:
        posterior.pop("assignments")
    held = int(state.at_floor)
    if held:
        warn(
            f"em: a guard holds {held} of {model.num_components} components (variances at variance_floor, or "
            "rates next to infinity): the likelihood has no maximum there; use fewer components, more "
            "rows, or vb, whose prior keeps components proper"
        )
    attrs = {
        "num_parameters": number,
        "log_likelihood": float(log_likelihood),
        "components_at_floor": held,
    }
    return Outcome(
        posterior=as_one_draw(posterior),
        variational=stored,
        attrs=attrs,
        is_point=True,
        densities={"objective": (), "bound": (), "log_likelihood": ()},
    )


@partial(compiled, once=True)
def _concluded(
    state: MixtureEMState, model: Mixture, x: Array
) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """What is stored of the estimate, the most probable labels, and the log likelihood in nats."""
    values = {"weights": jnp.exp(state.log_weights)} | state.parameters
    r = responsibilities(values, model, x)
    labels = answer_of(model, "derived", {"assignments": jnp.argmax(r, axis=-1)})
    occupied = jnp.sum(state.statistics[:, 0] > OCCUPIED)
    stored = values | {"responsibilities": r, "num_occupied": occupied}
    return stored, labels, e_step(state.log_weights, state.parameters, model, x)[0]


def log_density(stored: Values, model: Mixture, x: Array) -> Array:
    """Log density of new rows at the estimate, in nats."""
    return map_rows(lambda rows: jax.nn.logsumexp(_scores(stored, model, rows), axis=-1), x)


METHOD = Ascent(
    settings=EM,
    strategies=STRATEGIES,
    restarts=restarts,
    drops_starts=True,
    takes=frozenset({"weights"}),
    for_steps=in_shared_shapes,
    resized=resized,
    build=build,
    start=start,
    conclude=conclude,
    transform=responsibilities,
    log_density=log_density,
    log_joint=_scores,
    check=check,
)
