r"""Tempered NUTS for any model whose program has a proper prior, with NumPyro's kernel at every temperature.

The potential energy at power beta is that of the program with the log densities of its observed sites times
beta; what the program's factors add belongs to the prior. Unconstrained coordinates are exchanged; step size
and mass matrix stay with their temperature, whose warm-up adapts them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro import infer
from numpyro.infer.hmc import HMCState
from numpyro.infer.util import potential_energy, unconstrain_fn
from numpyro.primitives import Messenger

from inference.algorithm import Sampler
from inference.methods import nuts_hmc
from inference.methods.tempered.sampler import TemperedKernel, check_evidence, drawn_from_prior, tempered
from inference.settings import Tempered, TemperedGibbs
from zoo.model import Model
from zoo.sparse import Observed


class raising_likelihood(Messenger):
    """Multiply the log density of the data by a power; a context around a call of a program."""

    def __init__(self, power: Array | float) -> None:
        """Take the power."""
        super().__init__()
        self.power = power

    def process_message(self, msg: dict[str, Any]) -> None:
        """Scale an observed site that is no factor."""
        if msg["type"] == "sample" and msg["is_observed"] and not isinstance(msg["fn"], dist.Unit):
            msg["scale"] = self.power if msg["scale"] is None else self.power * msg["scale"]


def program(power: Array | float, model: Model, *data: Observed) -> Any:
    """The model, its likelihood to a power."""
    with raising_likelihood(power):
        return model(*data)


class TemperedNUTSState(NamedTuple):
    """Where a temperature is, and the state of its kernel.

    Attributes:
        z: unconstrained values of the sites, which are exchanged.
        hmc: what NumPyro's kernel keeps; its own values, energy and gradient are those of its last step.
    """

    z: dict[str, Array]
    hmc: HMCState


def step(
    key: Array,
    power: Array,
    state: TemperedNUTSState,
    model: Model,
    *data: Observed,
    num_warmup: int,
    **options: object,
) -> tuple[TemperedNUTSState, Array]:
    """One trajectory under the prior times the likelihood to a power."""
    kernel, arguments = infer.NUTS(program, **options), (power, model, *data)
    kernel.init(key, num_warmup, None, arguments, {})  # learns its schedule; see `inference.methods.nuts_hmc`
    energy, gradient = jax.value_and_grad(lambda z: potential_energy(program, arguments, {}, z))(state.z)
    hmc = state.hmc._replace(z=state.z, potential_energy=energy, z_grad=gradient, rng_key=key)
    hmc = kernel.sample(hmc, arguments, {})
    return TemperedNUTSState(hmc.z, hmc), jnp.zeros((), bool)


def prior(
    key: Array, state: TemperedNUTSState, model: Model, *data: Observed, **options: object
) -> tuple[TemperedNUTSState, Array]:
    """All sites drawn from the program."""
    values = drawn_from_prior(key, model, state.z, *data)
    z = unconstrain_fn(nuts_hmc.program, (model, *data), {}, values)
    return state._replace(z=z), jnp.zeros((), bool)


def log_likelihood(state: TemperedNUTSState, model: Model, *data: Observed) -> Array:
    """Log density of the data: what the power multiplies."""
    none, whole = (potential_energy(program, (power, model, *data), {}, state.z) for power in (0.0, 1.0))
    return none - whole


def info(state: TemperedNUTSState, model: Model, *data: Observed) -> nuts_hmc.HamiltonianInfo:
    """The log joint density at power 1."""
    energy = potential_energy(program, (1.0, model, *data), {}, state.z)
    hmc = state.hmc._replace(z=state.z, potential_energy=energy)
    return nuts_hmc.HamiltonianInfo(nuts_hmc.log_joint_of(hmc, model, data))


def begun(state: HMCState) -> TemperedNUTSState:
    """The state of a kernel that starts as NUTS does."""
    return TemperedNUTSState(state.z, state)


def plain(state: TemperedNUTSState, model: Model) -> HMCState:
    """The state as NUTS has it."""
    return state.hmc._replace(z=state.z)


def moving(state: TemperedNUTSState) -> dict[str, Array]:
    """What is exchanged."""
    return state.z


def arrived(state: TemperedNUTSState, z: dict[str, Array]) -> TemperedNUTSState:
    """The temperature's own kernel elsewhere."""
    return state._replace(z=z)


KERNEL = TemperedKernel(
    sampler=nuts_hmc.METHODS["nuts"],
    steps=(step,),
    prior=prior,
    log_likelihood=log_likelihood,
    info=info,
    begun=begun,
    plain=plain,
    moving=moving,
    arrived=arrived,
)


def exactly(model: Model) -> str:
    """Why a sampler does not temper a model exactly, where it does."""
    return ""


def beside_nuts(gibbs: TemperedKernel, why_not: Callable = exactly) -> Sampler:
    """The method that tempers a model's Gibbs sampler, or NUTS.

    Args:
        gibbs: the kernel, the default where it tempers the model exactly.
        why_not: ``why_not(model)``, why it does not; empty where it does.

    The method raises ValueError where ``kernel="gibbs"`` is asked of a model that it does not temper.
    """

    def default(model: Model) -> str:
        return "nuts" if why_not(model) else "gibbs"

    def check(model: Model, settings: Any) -> None:
        check_evidence(model)
        if settings.kernel == "gibbs" and (why := why_not(model)):
            raise ValueError(f"kernel='gibbs' does not temper this model: {why}; use kernel='nuts'")

    return replace(tempered({"gibbs": gibbs, "nuts": KERNEL}, TemperedGibbs, default), check=check)


def check(model: Model, settings: Any) -> None:
    """Raise ValueError unless the model has an evidence."""
    check_evidence(model)


METHOD = replace(tempered({"nuts": KERNEL}, Tempered, lambda model: "nuts"), check=check)
