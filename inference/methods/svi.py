"""Stochastic variational inference with NumPyro's automatic guides, for any program with continuous sites.

The objective is a Monte Carlo estimate of the evidence lower bound and goes up and down: a run takes
``max_iterations`` steps, and the front door judges convergence by comparing its last two stretches. Steps
shrink from the 1000th on (Robbins and Monro 1951): constant ones leave the means of q a quarter of a
posterior deviation off, however many there are. Local latents that the program sums out stay summed out, so
the bound is that of the marginal program, tighter than a mean-field bound over labels.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro import handlers, infer
from numpyro.handlers import substitute
from numpyro.infer import Trace_ELBO, init_to_uniform, init_to_value
from numpyro.infer.autoguide import (
    AutoGuide,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.svi import SVIState
from numpyro.infer.util import constrain_fn, unconstrain_fn
from numpyro.optim import ClippedAdam

from inference.algorithm import Algorithm, Outcome, Stochastic
from inference.methods.nuts_hmc import given_sites, program
from inference.numerics.compiled import compiled
from inference.numerics.programs import draw_locals, latent_names, sample_locals
from inference.settings import SVI
from zoo.in_blocks import map_in_blocks
from zoo.model import Model, in_current_precision
from zoo.shapes import Values
from zoo.sparse import Observed

GUIDES = {
    "normal": AutoNormal,
    "multivariate_normal": AutoMultivariateNormal,
    "low_rank_multivariate_normal": AutoLowRankMultivariateNormal,
}
FINAL_PARTICLES = 256
FULL_STEPS = 1000  # then steps shrink as 1 / t, without which q never comes to rest


class SVIInfo(NamedTuple):
    """Values recorded at every step.

    Attributes:
        objective: an unbiased estimate of the evidence lower bound, in nats.
    """

    objective: Array


class _OrderedELBO(Trace_ELBO):
    """The evidence lower bound with its sites added in the order of their names.

    NumPyro adds them in the order of a set of strings, which is another one in another process: the same call
    ended with other last bits.
    """

    def __init__(self, num_particles: int = 1) -> None:
        super().__init__(num_particles, sum_sites=False)

    def loss_with_mutable_state(self, *args: Any, **keywords: Any) -> dict[str, Any]:
        """The loss of `Trace_ELBO`, summed over sites, and its mutable state."""
        found = super().loss_with_mutable_state(*args, **keywords)
        return found | {"loss": sum(found["loss"][name] for name in sorted(found["loss"]))}


def _svi(
    family: str, step_size: float, num_particles: int, init_loc_fn: Callable = init_to_uniform
) -> infer.SVI:
    guide = GUIDES[family](program, init_loc_fn=init_loc_fn)

    def size(step: Array) -> Array:
        return step_size * jnp.minimum(1.0, FULL_STEPS / (step + 1))

    return infer.SVI(program, guide, ClippedAdam(size), _OrderedELBO(num_particles))


def _init(key: Array, model: Model, *data: Observed, options: tuple) -> SVIState:
    return _svi(*options).init(key, model, *data)


def _step(
    key: Array, state: SVIState, model: Model, *data: Observed, options: tuple
) -> tuple[SVIState, SVIInfo]:
    svi = _svi(*options)
    svi.init(key, model, *data)  # lets the guide learn the sites; its result is not used
    state, loss = svi.update(state._replace(rng_key=key), model, *data)
    return state, SVIInfo(-loss)


@cache
def _algorithm(options: tuple) -> Algorithm:
    return Algorithm(partial(_init, options=options), partial(_step, options=options))


def build(strategy: str, **options: Any) -> Algorithm:
    """The algorithm for a guide family and step size."""
    return _algorithm(_in_order(**options))


def _in_order(guide: str, step_size: float, num_particles: int) -> tuple[str, float, int]:
    return guide, float(step_size), num_particles


def start(key: Array, variables: Values, model: Model, *data: Observed, **options: Any) -> SVIState:
    """A guide centred at given values of the program's sites."""
    values = given_sites(variables, model, *data)
    return _svi(*_in_order(**options), init_to_value(values=values)).init(key, model, *data)


def conclude(
    key: Array,
    state: SVIState,
    model: Model,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Draws from the guide as one chain, its parameters, and the bound re-estimated with many particles."""
    params, draws, mean, error = _conclude(_in_order(**options), key, state, model, data, num_samples)
    local = draw_locals(jax.random.fold_in(key, 1), draws, model, data, keep_rows)
    attrs = {"elbo": float(mean), "elbo_standard_error": float(error), "guide": options["guide"]}
    densities = {"objective": (), "elbo": ()}
    return Outcome(posterior=draws | local, variational=params, attrs=attrs, densities=densities)


@partial(compiled, static_argnums=(0, 5))
def _conclude(
    options: tuple, key: Array, state: SVIState, model: Model, data: tuple, num_samples: int
) -> tuple:
    svi = _svi(*options)
    svi.init(key, model, *data)
    params = svi.get_params(state)
    draw_key, bound_key = jax.random.split(key)
    draws = svi.guide.sample_posterior(draw_key, params, model, *data, sample_shape=(num_samples,))
    sites = latent_names(model, *data)
    draws = {name: value[None] for name, value in draws.items() if name in sites}

    def one(key: Array) -> Array:
        return -_OrderedELBO().loss(key, params, program, svi.guide, model, *data)

    values = map_in_blocks(one, jax.random.split(bound_key, FINAL_PARTICLES), 16)
    return params, draws, jnp.mean(values), jnp.std(values) / jnp.sqrt(FINAL_PARTICLES)


def guide(params: Values, model: Model, *data: Observed, family: str) -> None:
    """The fitted guide as a program with the sites of ``model.explicit``.

    The local latents are drawn given the others.
    """
    params, model = in_current_precision((dict(params), model))
    auto: AutoGuide = GUIDES[family](program)
    values = substitute(auto, data=params)(model, *data)
    sample_locals(model, values, *data)


def turned(
    params: Values, inner: tuple, outer: tuple, turn: Callable, *, guide: str, **options: object
) -> dict[str, Array]:
    """The parameters of a fitted guide as one of the same program in other coordinates.

    A site that is multiplied and shifted has unconstrained coordinates that are, entry by entry, whether they
    are those of real or positive numbers or of matrices. So a normal guide is normal in both.
    """
    zero = _unconstrained(inner)
    one = {name: jnp.ones_like(value) for name, value in zero.items()}
    shift, total = (_image(point, inner, outer, turn) for point in (zero, one))
    scale = {name: total[name] - shift[name] for name in shift}
    if guide == "normal":
        found = {f"{name}_auto_loc": shift[name] + scale[name] * params[f"{name}_auto_loc"] for name in shift}
        return found | {f"{name}_auto_scale": scale[name] * params[f"{name}_auto_scale"] for name in shift}
    flat_shift, flat_scale = (ravel_pytree(part)[0] for part in (shift, scale))
    found = dict(params) | {"auto_loc": flat_shift + flat_scale * params["auto_loc"]}
    if guide == "multivariate_normal":
        return found | {"auto_scale_tril": flat_scale[:, None] * params["auto_scale_tril"]}
    return found | {"auto_scale": flat_scale * params["auto_scale"]}


def _unconstrained(call: tuple) -> dict[str, Array]:
    """Zeros in the shapes of the unconstrained coordinates of a program's sites."""
    model, *data = call

    def shapes(key: Array) -> dict[str, Array]:
        traced = handlers.substitute(handlers.seed(program, key), substitute_fn=init_to_uniform)
        sites = handlers.trace(traced).get_trace(model, *data)
        values = {name: sites[name]["value"] for name in latent_names(model, *data)}
        return unconstrain_fn(program, (model, *data), {}, values)

    found = jax.eval_shape(shapes, jax.random.key(0))
    return {name: jnp.zeros(own.shape, own.dtype) for name, own in found.items()}


def _image(point: Values, inner: tuple, outer: tuple, turn: Callable) -> dict[str, Array]:
    values = turn(constrain_fn(program, inner, {}, dict(point)))
    return unconstrain_fn(program, outer, {}, {name: jnp.asarray(value) for name, value in values.items()})


METHOD = Stochastic(
    settings=SVI,
    strategies=("uniform",),
    follows_units=False,
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    turned=turned,
)
