r"""Maximum a posteriori of any zoo model whose program has continuous sites, by L-BFGS.

The objective is the log joint density in nats of all sites at their own scale (no Jacobian of a
transformation), climbed in unconstrained coordinates, whatever the program sums out summed out. A step is one
iteration of limited-memory BFGS (`inference.numerics.lbfgs`), so it never lowers the objective by more
than rounding. It costs one evaluation of the program's gradient, or a few where the step length is searched.

A point is not a posterior: where many latents have few data each, the maximum lies far from the mass. It is a
good start for NUTS (``init=tree``), and by held-out density often as good a predictor.
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.infer.util import constrain_fn, log_density, unconstrain_fn

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_draw, starts_by_size
from inference.methods.nuts_hmc import given_sites, program
from inference.numerics.compiled import compiled
from inference.numerics.lbfgs import LBFGSState, lbfgs_init, lbfgs_step
from inference.numerics.programs import latent_names
from inference.settings import MAP
from zoo.answers import answer_of, start_of
from zoo.intake.tables import is_of_rows
from zoo.model import Model
from zoo.shapes import Values
from zoo.sparse import Observed

NEEDED = 5  # starts where priors are weak
PER_CELL = 10  # numbers that an iteration computes a cell, about


class MAPInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: the log joint density, in nats.
    """

    objective: Array


def log_joint(unconstrained: Values, model: Model, *data: Observed) -> Array:
    """Log joint density of all sites, in nats, at unconstrained coordinates."""
    values = constrain_fn(program, (model, *data), {}, dict(unconstrained))
    return log_density(program, (model, *data), {}, values)[0]


def _loss(unconstrained: dict[str, Array], model: Model, data: tuple) -> Array:
    return -log_joint(unconstrained, model, *data)


def _state(values: Values, model: Model, data: tuple, memory_size: int) -> LBFGSState:
    point = unconstrain_fn(program, (model, *data), {}, dict(values))
    return lbfgs_init(point, memory_size)


def _init(key: Array, model: Model, *data: Observed, memory_size: int) -> LBFGSState:
    values = start_of(model, key, *data)
    if values is None:
        drawn = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace(model, *data)
        values = {name: drawn[name]["value"] for name in latent_names(model, *data)}
    return _state(values, model, data, memory_size)


def _step(
    key: Array, state: LBFGSState, model: Model, *data: Observed, memory_size: int
) -> tuple[LBFGSState, MAPInfo]:
    """One iteration; the key is ignored."""
    state = lbfgs_step(state, partial(_loss, model=model, data=data))
    return state, MAPInfo(-state.value)


def settling_steps(states: LBFGSState) -> np.ndarray:
    """The one step of each start that evaluates it, shape (num_restarts,)."""
    return np.ones(np.shape(states.value), int)


@cache
def build(strategy: str, memory_size: int) -> Algorithm:
    """The algorithm with a memory of so many steps."""
    begin, once = (partial(function, memory_size=memory_size) for function in (_init, _step))
    return Algorithm(begin, once, settling_steps=settling_steps)


def start(key: Array, variables: Values, model: Model, *data: Observed, memory_size: int) -> LBFGSState:
    """A fresh state at given values of the program's sites."""
    return _state(given_sites(variables, model, *data), model, data, memory_size)


def conclude(
    key: Array,
    state: LBFGSState,
    model: Model,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: object,
) -> Outcome:
    """The point as one draw of one chain, with the most probable labels where the program sums them out."""
    values, shares, labels = _concluded(state.point, model, data)
    if not keep_rows:
        labels.pop(model.roles.cluster, None)
    return Outcome(
        posterior=as_one_draw(values | labels),
        variational=values | ({} if shares is None else {"responsibilities": shares}),
        is_point=True,
        densities={"objective": tuple(values)},
    )


@partial(compiled, once=True)
def _concluded(
    unconstrained: dict[str, Array], model: Model, data: tuple
) -> tuple[dict[str, Array], Array | None, dict[str, Array]]:
    """The point in the support, probabilities of the summed-out labels (or None), the most probable ones."""
    values = constrain_fn(program, (model, *data), {}, unconstrained)
    site = model.roles.cluster
    own = {name: value for name, value in values.items() if not is_of_rows(model, name)}  # as of new rows
    conditional = answer_of(model, "conditionals", own, *data).get(site)
    if conditional is None:
        return values, None, {}
    shares = jax.nn.softmax(conditional.logits, axis=-1)
    return values, shares, answer_of(model, "derived", {site: jnp.argmax(shares, axis=-1)})


def restarts(model: Model, data: tuple, **options: object) -> int:
    """Several starts where the model says that single ones end at different optima, if they are cheap."""
    cells = sum(part.nbytes for part in data) / 8
    return starts_by_size(NEEDED if answer_of(model, "has_several_modes") else 1, PER_CELL * cells)


METHOD = Ascent(
    settings=MAP,
    strategies=("random",),
    restarts=restarts,
    passes_per_step=3,  # a gradient passes forward and back, and some steps are searched for
    build=build,
    start=start,
    conclude=conclude,
)
