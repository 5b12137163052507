r"""Non-reversible parallel tempering of any kernel, as a sampler of the driver: chains are replicates.

A sweep moves all temperatures by one compiled step, exchanges neighbours after each of the kernel's parts of
it, and records the log likelihoods. (The urn's exchange after the split-merge moves and again after the scan
makes nearly twice the round trips on Old Faithful, at the same cost: a part forgets enough.)
Warm-up is cut into rounds of doubling length. After each the powers are set so that all pairs of neighbours
reject alike, by the barrier

.. math::
    \Lambda(\beta_t) = \sum_{s < t} r_s, \qquad r_s = E[1 - \min\{1, e^{(\beta_{s+1} - \beta_s)
    (\ell_s - \ell_{s+1})}\}],

estimated from all replicates and interpolated; and there are 3 Lambda + 1 temperatures or more, so that a
pair rejects at most one exchange in three. (Twice Lambda carries a state through fastest; the evidence and
a phase transition want more.) The last round keeps their number, and after warm-up nothing is adapted.

What of a state belongs to its temperature, such as a step size, stays there when states are exchanged.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers

from inference.algorithm import Algorithm, Outcome, Sampler
from inference.methods.tempered.evidence import told
from inference.settings import FEWEST_TEMPERATURES as FEWEST
from inference.settings import MOST_TEMPERATURES as MOST
from inference.settings import Temperatures
from zoo.checks import machine_memory, memory_in_words
from zoo.coordinates.of_models import part_weights
from zoo.model import Model
from zoo.programs import to_be_proper
from zoo.shapes import Values
from zoo.sparse import Observed

PER_BARRIER = 3.0  # temperatures for each unit of the barrier
FEWEST_ENDS = 8  # sweeps of the first round
FEWEST_SWEEPS = 30  # of a round that decides how many temperatures there are
GROWTH = 1.25  # what it takes to change their number, for which all is compiled anew
FIRST_POWER = 4  # of the schedule to begin with, dense near the prior
NOWHERE, HOT, COLD = 0, 1, 2  # the end of the ladder that a state has come from; COLD: by way of HOT


def itself(state: Any, model: Model = None) -> Any:
    """What is exchanged of the state of a kernel that has nothing of its own temperature."""
    return state


def nothing(model: Model, data: tuple) -> float:
    """What the log likelihood of a kernel leaves out that leaves out nothing."""
    return 0.0


def newcomer(state: Any, moving: Any) -> Any:
    """The state of such a kernel after an exchange."""
    return moving


class TemperedKernel(NamedTuple):
    """A sampler as it runs at any temperature.

    Attributes:
        sampler: the method whose starts, draws and conclusions it has, and whose options it takes.
        steps: the parts of a sweep, each ``step(key, power, state, model, *data, **options) -> (state,
            full)``, which leaves the prior times the likelihood to that power invariant; ``full`` as that of
            a sampler with slots.
        prior: ``prior(key, state, model, *data, **options) -> (state, full)``, an independent draw from the
            prior in a state of the same shapes.
        log_likelihood: ``log_likelihood(state, model, *data)``, what the power is of, a scalar in nats.
        info: ``info(state, model, *data)``, the values to record of the state at power 1.
        begun: ``begun(state)``, the kernel's state from the sampler's at its start.
        plain: ``plain(state, model)``, the sampler's state from the kernel's.
        moving: ``moving(state)``, what of a state is exchanged.
        arrived: ``arrived(state, moving)``, the state of a temperature after an exchange.
        constant: ``constant(model, data)``, what ``log_likelihood`` leaves out, on the host, in nats.
    """

    sampler: Sampler
    steps: tuple[Callable, ...]
    prior: Callable
    log_likelihood: Callable
    info: Callable
    begun: Callable = itself
    plain: Callable = itself
    moving: Callable = itself
    arrived: Callable = newcomer
    constant: Callable = nothing

    def options(self, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        """The options of the sampler, those that are given among them, as a static argument."""
        return tuple((name, given.get(name, default)) for name, default in self.sampler.options.items())


class TemperedState(NamedTuple):
    """The states at all temperatures, the first of which is the prior and the last the posterior.

    Attributes:
        replicas: of the kernel, leaves with a leading axis over temperatures.
        powers: of the likelihood, shape (num_temperatures,), rising from 0 to 1.
        log_likelihoods: shape (num_temperatures,).
        rejected: sums over the sweeps of this round of the mean probability that an exchange with the next
            temperature is refused, shape (num_temperatures,), the last 0.
        came_from: `NOWHERE`, `HOT` or `COLD` of each state, shape (num_temperatures,).
        sweeps: of this round.
        round_trips: of this round, from the prior to the posterior and back.
        rounds: that remain of warm-up.
    """

    replicas: Any
    powers: Array
    log_likelihoods: Array
    rejected: Array
    came_from: Array
    sweeps: Array
    round_trips: Array
    rounds: Array


def rounds_of(num_warmup: int) -> tuple[int, ...]:
    """The sweeps after which the schedule is set: rounds of doubling length, the last the longest."""
    ends = [num_warmup >> halvings for halvings in range(num_warmup.bit_length())]
    return tuple(sorted(end for end in ends if end >= FEWEST_ENDS or end == num_warmup))


# A sweep


def _begun(replicas: Any, num_warmup: int) -> TemperedState:
    number = jax.tree.leaves(replicas)[0].shape[0]
    zeros, dtype = jnp.zeros(number), jnp.result_type(float)
    powers = jnp.linspace(0.0, 1.0, number, dtype=dtype) ** FIRST_POWER
    counts = jnp.zeros((), int), jnp.zeros((), int), jnp.asarray(len(rounds_of(num_warmup)))
    return TemperedState(replicas, powers, zeros, zeros, jnp.zeros(number, int), *counts)


def _init(
    key: Array,
    model: Model,
    *data: Observed,
    init: Callable,
    kernel: TemperedKernel,
    number: int,
    num_warmup: int,
) -> TemperedState:
    keys = jax.random.split(key, number)
    return _begun(jax.vmap(lambda key: kernel.begun(init(key, model, *data)))(keys), num_warmup)


def step(
    key: Array, state: TemperedState, model: Model, *data: Observed, kernel: TemperedKernel, options: tuple
) -> tuple[TemperedState, Any]:
    """Move all temperatures, and exchange neighbours after each part of the kernel's sweep."""
    exchanges = len(kernel.steps)
    keys, full = jax.random.split(key, exchanges), jnp.zeros((), bool)
    for place, move in enumerate(kernel.steps):
        is_odd = (exchanges * state.sweeps + place) % 2
        state, own_full = _moved(keys[place], state, is_odd, move, model, data, kernel, dict(options))
        full |= own_full
    info = kernel.info(jax.tree.map(lambda leaf: leaf[-1], state.replicas), model, *data)
    if "full" in info._fields:
        info = info._replace(full=full)
    return state._replace(sweeps=state.sweeps + 1), info


def _moved(
    key: Array,
    state: TemperedState,
    is_odd: Array,
    step: Callable,
    model: Any,
    data: tuple,
    kernel: TemperedKernel,
    options: dict[str, Any],
) -> tuple[TemperedState, Array]:
    """Move all temperatures, then exchange even or odd pairs of neighbours; whether slots ran out."""
    number = state.powers.shape[0]
    swap_key, *keys = jax.random.split(key, number + 1)
    hottest = jax.tree.map(lambda leaf: leaf[0], state.replicas)
    colder = jax.tree.map(lambda leaf: leaf[1:], state.replicas)
    hottest, full = kernel.prior(keys[0], hottest, model, *data, **options)

    def move(key: Array, power: Array, replica: Any) -> tuple[Any, Array]:
        return step(key, power, replica, model, *data, **options)

    colder, all_full = jax.vmap(move)(jnp.stack(keys[1:]), state.powers[1:], colder)
    replicas = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), hottest, colder)
    found = jax.vmap(lambda replica: kernel.log_likelihood(replica, model, *data))(replicas)
    log_likelihoods = jnp.where(jnp.isnan(found), -jnp.inf, found)  # of a draw that overflows
    gain = jnp.diff(state.powers) * -jnp.diff(log_likelihoods)
    accepts = jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0)))
    is_turn = jnp.arange(number - 1) % 2 == is_odd
    swaps = is_turn & (jax.random.uniform(swap_key, (number - 1,), accepts.dtype) < accepts)
    order = jnp.arange(number) + jnp.pad(swaps, (0, 1)) - jnp.pad(swaps, (1, 0))
    moving = jax.tree.map(lambda leaf: leaf[order], jax.vmap(kernel.moving)(replicas))
    came_from, returned = _tracked(state.came_from[order])
    return state._replace(
        replicas=jax.vmap(kernel.arrived)(replicas, moving),
        log_likelihoods=log_likelihoods[order],
        rejected=state.rejected + jnp.pad(1 - accepts, (0, 1)) / len(kernel.steps),
        came_from=came_from,
        round_trips=state.round_trips + returned,
    ), full | jnp.any(all_full)


def _tracked(came_from: Array) -> tuple[Array, Array]:
    """Where the states have come from once those at the ends are there, and whether one has returned."""
    returned = came_from[0] == COLD
    last = jnp.where(came_from[-1] == HOT, COLD, came_from[-1])
    return came_from.at[0].set(HOT).at[-1].set(last), returned


# The schedule, on the host


def resize(
    states: TemperedState, model: Model, full: bool, *, kernel: TemperedKernel, number: int | None
) -> TemperedState:
    """The states of all chains after a round: a new schedule; of full slots more of them.

    Args:
        states: of all chains, leaves with a leading axis over them.
        model: the model.
        full: whether a sweep has run out of the kernel's slots.
        kernel: the kernel.
        number: of temperatures; None: by the barrier.
    """
    if kernel.sampler.resize is not None:
        states = states._replace(replicas=_slots_of_all(states.replicas, model, full, kernel.sampler.resize))
    if full:
        return states
    powers, rejected = np.asarray(states.powers[0], np.float64), np.asarray(states.rejected, np.float64)
    rejection = rejected.sum(axis=0)[:-1] / np.asarray(states.sweeps, np.float64).sum()
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, 1e-3))])
    size, is_last = len(powers), int(states.rounds[0]) <= 1
    if number is None and not is_last and int(states.sweeps[0]) >= FEWEST_SWEEPS:
        wanted = min(1 + int(np.ceil(PER_BARRIER * barrier[-1])), MOST)
        size = wanted if wanted >= GROWTH * size else size
        _check_memory(states.replicas, len(powers), size)
    places = np.linspace(0.0, barrier[-1], size)
    powers = np.interp(places, barrier, powers)
    powers[0], powers[-1] = 0.0, 1.0
    nearest = np.abs(barrier[:, None] - places).argmin(axis=0)
    if size == len(barrier):
        nearest = np.arange(size)
    nearest[1:] = np.maximum(nearest[1:], 1)  # the prior's own kernel never moves, and has learnt nothing

    def dealt(leaf: Array) -> Array:
        return leaf[:, nearest]

    num_chains = states.sweeps.shape[0]
    zero = jnp.zeros_like(states.sweeps)
    return TemperedState(
        jax.tree.map(dealt, states.replicas),
        jnp.broadcast_to(jnp.asarray(powers, states.powers.dtype), (num_chains, size)),
        dealt(states.log_likelihoods),
        jnp.zeros((num_chains, size), states.rejected.dtype),
        jnp.zeros((num_chains, size), states.came_from.dtype),
        zero,
        zero,
        jnp.maximum(states.rounds - 1, 0),
    )


def _check_memory(replicas: Any, number: int, wanted: int) -> None:
    """Raise ValueError if the states at so many temperatures are larger than the memory of this machine."""
    entries = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(replicas)]
    needed = sum(entries) * wanted / number
    if needed > machine_memory():
        raise ValueError(
            f"the barrier from prior to posterior takes {wanted} temperatures, whose states need at least "
            f"{memory_in_words(needed)} of memory, and there are {memory_in_words(machine_memory())}: take "
            f"fewer num_chains, fewer rows or components, or num_temperatures={number}"
        )


def _slots_of_all(replicas: Any, model: Model, full: bool, resize: Callable) -> Any:
    """The kernel's states with another number of slots, those of all temperatures alike."""
    chains, number = jax.tree.leaves(replicas)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), replicas)
    flat = resize(flat, model, full)
    return jax.tree.map(lambda leaf: leaf.reshape(chains, number, *leaf.shape[1:]), flat)


# Draws


def _position(
    state: TemperedState, model: Model, *, kernel: TemperedKernel, keep_rows: bool
) -> dict[str, Any]:
    """The posterior's draw, and the powers and log likelihoods, with room for as many as there may be."""
    cold = kernel.plain(jax.tree.map(lambda leaf: leaf[-1], state.replicas), model)
    room = (0, MOST - state.powers.shape[0])
    return {
        "target": kernel.sampler.position(keep_rows)(cold, model),
        "powers": jnp.pad(state.powers, room, constant_values=jnp.nan),
        "log_likelihoods": jnp.pad(state.log_likelihoods, room),
        "round_trips": state.round_trips,
    }


def conclude(
    key: Array, draws: dict[str, Any], model: Model, data: tuple, keep_rows: bool, *, kernel: TemperedKernel
) -> Outcome:
    """What the kernel's sampler concludes from the draws at power 1, and the evidence."""
    outcome = kernel.sampler.conclude(key, draws["target"], model, data, keep_rows)
    powers = np.asarray(draws["powers"], np.float64)[0, -1]
    size = int(np.isfinite(powers).sum())
    log_likelihoods = np.asarray(draws["log_likelihoods"], np.float64)[..., :size]
    log_likelihoods = log_likelihoods + kernel.constant(model, data)
    attrs, by_temperature = told(log_likelihoods, powers[:size], np.asarray(draws["round_trips"]))
    evidence = dict.fromkeys(("log_evidence", "log_evidence_below", "log_evidence_above"), ())
    return outcome._replace(
        attrs={**outcome.attrs, **attrs},
        by_temperature=by_temperature,
        densities={**outcome.densities, **evidence},
    )


# The method


def tempered(
    kernels: Mapping[str, TemperedKernel], settings: type[Temperatures], default: Callable
) -> Sampler:
    """The method that tempers one of several kernels, and refuses options that only the others take.

    Args:
        kernels: by name.
        settings: the class of its settings, which has ``kernel``.
        default: ``default(model)``, the name of the kernel where the settings name none.

    Raises:
        ValueError: where a fit begins, an option that the kernel does not take.
    """

    def by_settings(model: Model, settings: Any) -> Sampler:
        kernel = settings.kernel or default(model)
        for name, value in settings.options.items():
            takes = [own for own, one in kernels.items() if name in one.sampler.options]
            if takes and kernel not in takes and value != settings.defaults()[name]:
                others = " or ".join(f"kernel={own!r}" for own in takes)
                raise ValueError(f"{name} is an option of {others}, and kernel={kernel!r} is tempered here")
        return _of_kernel(kernels[kernel], cast(Hashable, type(settings)), settings.num_temperatures)

    first = _of_kernel(next(iter(kernels.values())), cast(Hashable, settings), None)
    return replace(first, by_settings=by_settings)


@cache
def _of_kernel(kernel: TemperedKernel, settings: type[Temperatures], number: int | None) -> Sampler:
    """The sampler that tempers a kernel at so many temperatures; None: by the barrier."""
    own = kernel.sampler

    def build(strategy: str, num_warmup: int, **options: object) -> Algorithm:
        return _algorithm(kernel, strategy, num_warmup, number or FEWEST, kernel.options(options))

    def start(
        key: Array, variables: Any, model: Model, *data: Observed, num_warmup: int, **options: object
    ) -> Any:
        given = dict(kernel.options(options))
        one = kernel.begun(own.start(key, variables, model, *data, num_warmup=num_warmup, **given))
        size = number or FEWEST
        return _begun(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), one), num_warmup)

    return Sampler(
        settings=settings,
        strategies=own.strategies,
        build=build,
        start=start,
        prepare=own.prepare,
        conclude=partial(conclude, kernel=kernel),
        position=cache(lambda keep_rows: partial(_position, kernel=kernel, keep_rows=keep_rows)),
        resize=partial(resize, kernel=kernel, number=number),
        slot_axes=_slot_axes(own.slot_axes),
        rounds=rounds_of,
    )


def _slot_axes(of_kernel: tuple) -> tuple[tuple[str, int, str], ...]:
    """The axes over temperatures, and those over the kernel's slots behind them."""
    names = ("powers", "log_likelihoods", "rejected", "came_from", "replicas*")
    axes = [(f".{name}", 1, "temperatures") for name in names]
    return (*axes, *((f".replicas{path}", axis + 1, "slots") for path, axis, *_ in of_kernel))


@cache
def _algorithm(
    kernel: TemperedKernel, strategy: str, num_warmup: int, number: int, options: tuple
) -> Algorithm:
    init = kernel.sampler.build(strategy, num_warmup=num_warmup, **dict(options)).init
    return Algorithm(
        partial(_init, init=init, kernel=kernel, number=number, num_warmup=num_warmup),
        partial(step, kernel=kernel, options=(*options, ("num_warmup", num_warmup))),
    )


def drawn_from_prior(key: Array, program: Callable, values: Values, *data: Observed) -> dict[str, Array]:
    """A draw of sites from the program, of the types of given values; of the data only sizes matter."""
    sites = handlers.trace(handlers.seed(program, key)).get_trace(*data)
    return {name: sites[name]["value"].astype(own.dtype) for name, own in values.items()}


def check_evidence(model: Model) -> None:
    """Raise ValueError unless the prior can be drawn from, and the likelihood is a density of the data."""
    weights = dict(zip(model.data_names, map(float, part_weights(model)), strict=True))
    if weighed := [part for part, weight in weights.items() if weight != 1]:
        raise ValueError(
            f"the density of {weighed[0]} counts to the power {weights[weighed[0]]:g}, which is no density "
            "of data and has no evidence: leave its weight out"
        )
    if model.prior != "proper":
        raise ValueError(
            f"tempered goes from draws from the prior to the posterior, and the prior of "
            f"{type(model).__name__} is {model.prior}, which has neither draws nor an "
            f"evidence{to_be_proper(model)}"
        )
