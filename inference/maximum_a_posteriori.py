r"""Maximum a posteriori of any zoo model whose program has continuous sites, by L-BFGS.

The objective is the log joint density in nats of all sites at their own scale (no Jacobian of a
transformation), climbed in unconstrained coordinates, whatever the program sums out summed out. A step is one
iteration of limited-memory BFGS with a zoom line search (Liu and Nocedal 1989; Nocedal and Wright 2006,
algorithm 3.6), so it never lowers the objective by more than rounding. It costs a few evaluations of the
program's gradient.

A point is not a posterior: where many latents have few data each, the maximum lies far from the mass. It is a
good start for NUTS (``init=tree``), and by held-out density often as good a predictor.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import optax
from jax import Array
from numpyro.infer.util import constrain_fn, log_density, unconstrain_fn

from inference.algorithm import Algorithm, Method, Outcome
from inference.densities import latent_sites
from inference.hamiltonian import program

__all__ = ["METHOD", "MAPInfo", "MAPState", "log_joint"]

MAX_LINE_SEARCH_STEPS = 20


class MAPState(NamedTuple):
    """The point, and what L-BFGS remembers.

    Attributes:
        unconstrained: site name to coordinates.
        memory: of the optimiser.
    """

    unconstrained: dict[str, Array]
    memory: Any


class MAPInfo(NamedTuple):
    """What is recorded of a step.

    Attributes:
        objective: the log joint density, in nats.
    """

    objective: Array


def log_joint(unconstrained: Mapping[str, Array], model: Any, *data: Any) -> Array:
    """Log joint density of all sites, in nats, at unconstrained coordinates."""
    values = constrain_fn(program, (model, *data), {}, dict(unconstrained))
    return log_density(program, (model, *data), {}, values)[0]


def _loss(unconstrained: dict[str, Array], model: Any, data: tuple) -> Array:
    return -log_joint(unconstrained, model, *data)


def _optimiser(memory_size: int) -> optax.GradientTransformationExtraArgs:
    search = optax.scale_by_zoom_linesearch(MAX_LINE_SEARCH_STEPS, initial_guess_strategy="one")
    return optax.lbfgs(memory_size=memory_size, linesearch=search)


def _state(values: Mapping[str, Array], model: Any, data: tuple, memory_size: int) -> MAPState:
    unconstrained = unconstrain_fn(program, (model, *data), {}, dict(values))
    return MAPState(unconstrained, _optimiser(memory_size).init(unconstrained))


def _init(key: Array, model: Any, *data: Any, memory_size: int) -> MAPState:
    values = model.starting_point(key, *data)
    if values is None:
        drawn = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace(model, *data)
        values = {name: drawn[name]["value"] for name in latent_sites(model, *data)}
    return _state(values, model, data, memory_size)


def _step(key: Array, state: MAPState, model: Any, *data: Any, memory_size: int) -> tuple[MAPState, MAPInfo]:
    """One iteration; the key is ignored."""
    optimiser, loss = _optimiser(memory_size), partial(_loss, model=model, data=data)
    value, gradient = optax.value_and_grad_from_state(loss)(state.unconstrained, state=state.memory)
    updates, memory = optimiser.update(
        gradient, state.memory, state.unconstrained, value=value, grad=gradient, value_fn=loss
    )
    unconstrained = optax.apply_updates(state.unconstrained, updates)
    return MAPState(unconstrained, memory), MAPInfo(-optax.tree.get(memory, "value"))


@cache
def build(init: str, memory_size: int) -> Algorithm:
    """The algorithm."""
    return Algorithm(partial(_init, memory_size=memory_size), partial(_step, memory_size=memory_size))


def start(key: Array, variables: Mapping[str, Array], model: Any, *data: Any, memory_size: int) -> MAPState:
    """A fresh state at given values of the program's sites."""
    sites = latent_sites(model, *data)
    missing = [name for name in sites if name not in variables]
    if missing:
        raise ValueError(f"init must hold every site of the program; missing: {', '.join(missing)}")
    return _state({name: jnp.asarray(variables[name], float) for name in sites}, model, data, memory_size)


def conclude(
    key: Array,
    state: MAPState,
    model: Any,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """The point as one draw of one chain."""
    values = _constrain(state.unconstrained, model, data)
    return Outcome(
        posterior=jax.tree.map(lambda leaf: leaf[None, None], values), variational=values, is_point=True
    )


@jax.jit
def _constrain(unconstrained: dict[str, Array], model: Any, data: tuple) -> dict[str, Array]:
    return constrain_fn(program, (model, *data), {}, unconstrained)


METHOD = Method(
    kind="ascent",
    options={"memory_size": 10},
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
)
