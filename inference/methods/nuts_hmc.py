r"""NUTS and HMC for any zoo model, on the program itself, with NumPyro's kernels in this project's driver.

The driver runs them, rather than ``numpyro.infer.MCMC``, because a run must be able to stop and resume
inside warm-up. The kernel's adaptation schedule is part of its state; the key of sweep i is the driver's.
Local latents that the program sums out are drawn afterwards from their exact conditionals.

With ``random_step=True`` HMC draws the step size of every trajectory from an exponential distribution, about
the mean that warm-up adapts (to the acceptance averaged over steps): Virtanen (2010), algorithm 1, with ten
leapfrog steps there (``num_steps=10``) and the gradient of the log density in the place of the printed
density's. The step does not depend on the state, so each trajectory leaves the posterior invariant; short and
long ones together reach what one length would return to.

Weights of rows are powers of the likelihood. Of a program whose rows are independent given the parameters,
with everything that belongs to a row summed out, the target is

.. math::
    p(\theta \mid x, w) \propto p(\theta) \prod_i p(x_i \mid \theta)^{w_i},

for any :math:`w_i \ge 0`: a row of weight 2 is two rows, one of weight 0 none. Programs that keep a latent
:math:`z_i` of each row take no weights: neither :math:`p(x_i \mid z_i)^{w_i} p(z_i)` nor
:math:`[p(x_i \mid z_i) p(z_i)]^{w_i}` has that power as its integral over the latent.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import handlers, infer
from numpyro.distributions import biject_to
from numpyro.infer.hmc import HMCState
from numpyro.infer.util import constrain_fn, unconstrain_fn

from inference.algorithm import Algorithm, Outcome, Sampler
from inference.numerics.compiled import compiled
from inference.numerics.programs import draw_locals, latent_names, weighing_rows
from inference.numerics.weighted_rows import Rows, unweighted
from inference.settings import HMC, NUTS
from zoo.answers import start_of
from zoo.dirichlet_process import with_stick_decays
from zoo.model import Model
from zoo.shapes import Values
from zoo.sparse import Observed


class HamiltonianInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: the log joint density of all sites at their own scale, in nats: minus the potential energy
            less the Jacobian of the unconstrained coordinates, in which the sampler moves.
    """

    objective: Array


def program(model: Model, *data: Observed) -> Any:
    """Call the model, so that its hyperparameters are arguments of compiled code instead of constants.

    The log density of weighted rows is multiplied by their weights.
    """
    if data and isinstance(data[0], Rows):
        with weighing_rows(data[0].weight):
            return model(data[0].x, *data[1:])
    return model(*data)


def _unweighted(data: tuple) -> tuple:
    return tuple(map(unweighted, data))


def log_joint_of(state: HMCState, model: Model, data: tuple) -> Array:
    """Log joint density of the sites at their own scale, in nats."""
    jacobians = []

    def constrained(site: dict[str, Any]) -> Array | None:
        point = state.z.get(site["name"])
        if point is None:
            return None
        transform = biject_to(site["fn"].support)
        value = transform(point)
        jacobians.append(jnp.sum(transform.log_abs_det_jacobian(point, value)))
        return value

    handlers.substitute(program, substitute_fn=constrained)(model, *data)
    return -state.potential_energy - sum(jacobians)


def given_sites(variables: Values, model: Model, *data: Observed) -> dict[str, Array]:
    """Values of all sites of the program, taken from given variables.

    Raises:
        ValueError: a site is missing.
    """
    sites, variables = latent_names(model, *_unweighted(data)), with_stick_decays(variables)
    missing = [name for name in sites if name not in variables]
    if missing:
        raise ValueError(f"init must hold every site of the program; missing: {', '.join(missing)}")
    return {name: jnp.asarray(variables[name], float) for name in sites}


def _kernel(kind: str, options: tuple[tuple[str, Any], ...]) -> infer.HMC:
    own = {name: value for name, value in options if name != "random_step"}
    return {"nuts": infer.NUTS, "hmc": infer.HMC}[kind](program, **own)


def _init(key: Array, model: Model, *data: Observed, kind: str, options: tuple, num_warmup: int) -> HMCState:
    key, start_key = jax.random.split(key)
    unconstrained = None
    if (values := start_of(model, start_key, *_unweighted(data))) is not None:
        unconstrained = unconstrain_fn(program, (model, *data), {}, values)
    return _kernel(kind, options).init(key, num_warmup, unconstrained, (model, *data), {})


def _step(
    key: Array, state: HMCState, model: Model, *data: Observed, kind: str, options: tuple, num_warmup: int
) -> tuple:
    kernel = _kernel(kind, options)
    # The kernel learns its adaptation schedule in init; its result is not used, so that the compiled step
    # does not contain it.
    kernel.init(key, num_warmup, None, (model, *data), {})
    state = state._replace(rng_key=key)
    if not dict(options).get("random_step"):
        state = kernel.sample(state, (model, *data), {})
        return state, HamiltonianInfo(log_joint_of(state, model, data))
    mean = state.adapt_state.step_size
    factor = jax.random.exponential(jax.random.fold_in(key, 1), mean.shape, mean.dtype)
    drawn = state._replace(adapt_state=state.adapt_state._replace(step_size=mean * factor))
    moved = kernel.sample(drawn, (model, *data), {})
    adapted = jnp.where(state.i < num_warmup, moved.adapt_state.step_size, mean)
    moved = moved._replace(adapt_state=moved.adapt_state._replace(step_size=adapted))
    return moved, HamiltonianInfo(log_joint_of(moved, model, data))


@cache
def _algorithm(kind: str, options: tuple, num_warmup: int) -> Algorithm:
    keywords: dict[str, Any] = {"kind": kind, "options": options, "num_warmup": num_warmup}
    return Algorithm(partial(_init, **keywords), partial(_step, **keywords))


def _build(kind: str, strategy: str, num_warmup: int, **options: object) -> Algorithm:
    return _algorithm(kind, tuple(sorted(options.items())), num_warmup)


def start(
    key: Array,
    variables: Values,
    model: Model,
    *data: Observed,
    kind: str,
    num_warmup: int,
    **options: object,
) -> HMCState:
    """A fresh kernel state at given values of the program's sites."""
    unconstrained = unconstrain_fn(program, (model, *data), {}, given_sites(variables, model, *data))
    return _kernel(kind, tuple(sorted(options.items()))).init(
        key, num_warmup, unconstrained, (model, *data), {}
    )


def position(state: HMCState, model: Model) -> dict[str, Any]:
    """Values kept at every draw: the unconstrained values and the trajectory's statistics."""
    stats = {
        "diverging": state.diverging,
        "acceptance_rate": state.accept_prob,
        "energy": state.energy,
        "step_size": state.adapt_state.step_size,
        "n_steps": state.num_steps,
    }
    return {"unconstrained": state.z, "stats": stats}


def conclude(key: Array, draws: dict[str, Any], model: Model, data: tuple, keep_rows: bool) -> Outcome:
    """The draws in constrained space, with local latents drawn given them."""
    data = _unweighted(data)
    values = _constrain(draws["unconstrained"], model, data)
    return Outcome(
        posterior=values | draw_locals(key, values, model, data, keep_rows),
        sample_stats=draws["stats"],
        densities={"objective": tuple(values)},
    )


@partial(compiled, once=True)
def _constrain(draws: dict[str, Array], model: Model, data: tuple) -> dict[str, Array]:
    return jax.vmap(jax.vmap(lambda z: constrain_fn(program, (model, *data), {}, z)))(draws)


METHODS = {
    settings.name: Sampler(
        settings=settings,
        strategies=("uniform",),
        takes=frozenset({"weights"}),
        follows_units=True,
        passes_per_step=50,
        build=partial(_build, settings.name),
        start=partial(start, kind=settings.name),
        conclude=conclude,
        position=lambda keep_rows: position,
    )
    for settings in (NUTS, HMC)
}
