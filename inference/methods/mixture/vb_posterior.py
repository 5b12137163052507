r"""The variational posterior of a mixture: its starts, program, draws, stored numbers, and new rows.

q(alpha) q(pi) prod_k q(theta_k) is held by `MixtureVBState`; the labels' factor follows from it row by row:
:math:`q(c_i = k) \propto \exp\{E[\log \pi_k] + E[\log p(x_i \mid \theta_k)]\}`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Outcome, as_one_chain
from inference.methods.mixture.sizes import SizedMixture, with_others
from inference.methods.mixture.starts import STARTS, statistics_given
from inference.methods.mixture.vb_hyperparameters import (
    LEARNING_AFTER,
    at_bound,
    concentration_variables,
    initial_concentration,
    learnt_from,
    learnt_model,
    mean_of,
    parameter_names,
    starting_model,
    starting_prior,
    stored_concentration,
    with_learnt,
)
from inference.numerics.compiled import compiled
from inference.numerics.host_draws import generator, label_draws, site_draws
from inference.numerics.weighted_rows import map_rows, weight_of
from zoo.answers import answer_of
from zoo.checks import warn
from zoo.conjugate.component_prior import ComponentPrior
from zoo.coordinates import Unit
from zoo.mixture import Mixture
from zoo.model import in_current_precision
from zoo.shapes import Values

OCCUPIED = 0.5  # a component counts as occupied when it is expected to hold more rows than this
DERIVED = ("responsibilities", "num_occupied", "expected_weights")  # follow from q's parameters


def units(model: Mixture) -> dict[str, Unit | tuple[Unit, ...]]:
    """How the parameters of q(theta), and hyperparameters as `learn` names them, follow the data."""
    known, of_q = model.components.units_of_fields, model.components.posterior_dims
    return {**known, **{f"components_{name}": unit for name, unit in known.items() if name in of_q}}


class MixtureVBState(NamedTuple):
    """The factors of q but the labels, which follow from them.

    Attributes:
        components: q(theta), the component prior's class with a leading axis over components.
        weights: q of the weights' site: a Dirichlet, or Betas over sticks.
        concentration: q(alpha): a Gamma or LogNormal, or the number at which alpha is fixed or learnt so far.
        prior: the component prior as learnt so far; None if nothing of it is learnt.
        learning_in: steps until hyperparameters are learnt; None if none is.
        statistics: sums of responsibility times feature that components and weights are optimal for, shape
            (num_components, num_statistics), from which moves are proposed; None of a fit that is stored.
    """

    components: ComponentPrior
    weights: dist.Distribution
    concentration: dist.Distribution | Array
    prior: ComponentPrior | None = None
    learning_in: Array | None = None
    statistics: Array | None = None


def from_statistics(
    statistics: Array, concentration: dist.Distribution | Array, model: Mixture | SizedMixture
) -> MixtureVBState:
    """The state whose components and weights are optimal for these statistics and E[alpha]."""
    counts = statistics[:, 0]
    weights = model.weights.posterior(counts, mean_of(concentration))
    components = model.components.posterior(statistics)
    return MixtureVBState(components, weights, concentration, statistics=statistics)


def resized(state: MixtureVBState, model: Mixture | SizedMixture) -> MixtureVBState:
    """The state of another size of the same mixture, empty components beyond the others."""
    return from_statistics(with_others(state.statistics, model), state.concentration, model)


def responsibilities(state: MixtureVBState, model: Mixture, x: Array) -> Array:
    """q(c_i = k), shape (num_observations, num_components)."""
    return map_rows(lambda rows: jax.nn.softmax(log_unnormalised(state, model, rows), axis=-1), x)


def log_unnormalised(state: MixtureVBState, model: Mixture, x: Array) -> Array:
    """E[log pi_k] + E[log p(x_i | theta_k)], shape (num_observations, num_components)."""
    coefficients = model.components.expected_coefficients(state.components)
    return model.components.features(x) @ coefficients.T + model.weights.expected_log_weights(state.weights)


# The posterior as a program and as draws


def guide(
    stored: Values, model: Mixture, x: Array | None = None, *, num_observations: int | None = None
) -> None:
    """Run q as a NumPyro program with exactly the sites of ``model.explicit``.

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
        logits = log_weights if x is None else log_unnormalised(state, model, x)
        numpyro.sample("assignments", dist.Categorical(logits=logits), infer={"enumerate": "parallel"})


def sample_globals(state: MixtureVBState, model: Mixture) -> Array:
    """Draw everything but the labels from q, as a NumPyro program; returns the log weights drawn."""
    if model.has_random_concentration:
        numpyro.sample("concentration", state.concentration)
    log_weights = model.weights.sample_posterior(state.weights)
    state.components.sample(model.num_components)
    return log_weights


def variables(state: MixtureVBState, model: Mixture, x: Array | None = None) -> dict[str, Array]:
    """The parameters of q by their names in a fit, and what follows from them of given rows.

    These are the responsibilities and the number of occupied components.
    """
    stored = model.weights.variables(state.weights)
    if x is not None:
        r = responsibilities(state, model, x)
        stored |= {"responsibilities": r, "num_occupied": jnp.sum(weight_of(x) @ r > OCCUPIED)}
    stored["expected_weights"] = model.weights.expected_weights(state.weights)
    stored |= {f"components_{name}": value for name, value in state.components.variables().items()}
    if model.has_random_concentration:
        stored |= concentration_variables(state.concentration)
    return stored


def q_from_variables(stored: Values, model: Mixture) -> MixtureVBState:
    """The state of q from the variables that `variables` stored."""
    components = {name: stored[f"components_{name}"] for name in model.components.posterior_dims}
    weights = model.weights.with_variables(stored)
    concentration = initial_concentration(model)
    if model.has_random_concentration:
        concentration = stored_concentration(stored, concentration)
    return MixtureVBState(model.components.with_variables(components), weights, concentration)


def conclude(
    key: Array,
    state: MixtureVBState,
    model: Mixture,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    learn: tuple[str, ...] = (),
    **options: object,
) -> Outcome:
    """Independent draws from q as one chain, beside q's parameters; labels of rows only if ``keep_rows``.

    Without data (there were too many rows to go through again) nothing per row is concluded.

    With the model as learnt, if ``learn`` is not empty, and a warning if a hyperparameter is at a bound.
    """
    current = with_learnt(state, model)
    stored = _variables(state, current, *data)
    rng = generator(key)
    draws = site_draws(rng, sample_globals, num_samples, state, current)
    if keep_rows and data:
        labels = label_draws(rng, stored["responsibilities"], num_samples)
        draws |= answer_of(current, "derived", {"assignments": labels})
    outcome = Outcome(posterior=as_one_chain(draws), variational=stored, densities={"objective": ()})
    if not learn:
        return outcome
    if state.learning_in > 0:
        warn(
            f"hyperparameters were not learnt yet: that begins when the bound has settled, or after "
            f"{LEARNING_AFTER} steps; raise max_iterations"
        )
    stuck = at_bound(state, model, learn)
    if stuck:
        warn(
            f"learnt up to the limit of the search: {', '.join(stuck)}; the bound has no optimum inside, so "
            f"fix it, or give the concentration or mean_precision a Gamma prior"
        )
    attrs = {"learnt_from": learnt_from(model, learn), "hyperparameters_at_bound": ", ".join(stuck)}
    return outcome._replace(model=learnt_model(state, model), attrs=attrs)


_variables = compiled(variables, once=True)


# New rows


def new_log_joint_rows(stored: Values, model: Mixture, x: Array) -> Array:
    """``log E[pi_k] + log E[p(x_i | theta_k)]`` under q, shape (num_observations, num_components).

    Exact, since q factorises.
    """
    state = q_from_variables(stored, model)
    return map_rows(state.components.log_predictive, x, 256) + jnp.log(
        model.weights.expected_weights(state.weights)
    )


def transform(stored: Values, model: Mixture, x: Array) -> Array:
    """Posterior mean of a new row's shares in the components: its predictive responsibilities."""
    return jax.nn.softmax(new_log_joint_rows(stored, model, x), axis=-1)


def log_density(stored: Values, model: Mixture, x: Array) -> Array:
    """Log predictive density of new rows under q, in nats: a mixture of Student-t."""
    return jax.nn.logsumexp(new_log_joint_rows(stored, model, x), axis=-1)


def begin(strategy: Callable, learn: tuple[str, ...], key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """The state of a start strategy, with the hyperparameters that learning starts from."""
    begun = starting_model(model, learn)
    state = from_statistics(strategy(key, begun, x), initial_concentration(begun), begun)
    return _with_learning(state, model, learn, LEARNING_AFTER)


def _with_learning(
    state: MixtureVBState, model: Mixture, learn: tuple[str, ...], learning_in: int
) -> MixtureVBState:
    if not learn:
        return state
    return state._replace(prior=starting_prior(model, learn), learning_in=jnp.asarray(learning_in))


def init(key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """The state after uniform random responsibilities."""
    return begin(STARTS["random"], (), key, model, x)


def start(
    key: Array, variables: Values, model: Mixture, x: Array, *, learn: tuple[str, ...] = (), **options: object
) -> MixtureVBState:
    """The state that given ``responsibilities`` (or ``assignments``) lead to; deterministic."""
    given, model = model, starting_model(model, learn)
    statistics = statistics_given(variables, model, x)
    concentration = initial_concentration(model)
    if model.has_random_concentration and parameter_names(concentration)[0] in variables:
        concentration = stored_concentration(variables, concentration)
    return _with_learning(from_statistics(statistics, concentration, model), given, learn, 0)
