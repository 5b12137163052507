"""The state that VB of a mixture has after a start: the global factors optimal for its statistics."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from inference.methods.mixture.starts import STARTS, statistics_given
from inference.methods.mixture.concentration import initial_concentration, parameter_names, stored_concentration
from inference.methods.mixture.vb_hyperparameters import LEARNING_AFTER, starting_model, starting_prior
from inference.methods.mixture.mixture_posterior import MixtureVBState, from_statistics
from zoo.mixture import Mixture

__all__ = ["begin", "init", "start"]


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
    key: Array,
    variables: Mapping[str, Array],
    model: Mixture,
    x: Array,
    *,
    learn: tuple[str, ...] = (),
    **options: Any,
) -> MixtureVBState:
    """The state that given ``responsibilities`` (or ``assignments``) lead to; deterministic."""
    given, model = model, starting_model(model, learn)
    statistics = statistics_given(variables, model, x)
    concentration = initial_concentration(model)
    if model.has_random_concentration and parameter_names(concentration)[0] in variables:
        concentration = stored_concentration(variables, concentration)
    return _with_learning(from_statistics(statistics, concentration, model), given, learn, 0)
