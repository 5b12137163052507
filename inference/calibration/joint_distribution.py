"""Whether a sampler leaves the joint distribution of latents and data invariant.

The joint-invariance form of Geweke's test (Geweke 2004, "Getting it right", JASA 99): draw latents and data
from the prior, apply a few rounds of (new data given the latents, then one step of the algorithm). If the
step leaves the posterior invariant, the result is again a draw of the joint, whatever the mixing, because
each replicate starts there. The step comes last: after new data, a step that draws latents from their prior
would leave a draw of the joint as well. Independent replicates make the p-values exact in large samples,
where one long chain would need its autocorrelation estimated.

Distributions are compared, here and in `inference.calibration.simulation_based`, by scalar summaries of a
joint draw of latents and data and rank tests, with Bonferroni's correction for their number. Ranks need no
moments (under a Wishart prior with few degrees of freedom the data have none), and a logarithm more or less
changes nothing. All summaries are symmetric in the elements of a site, hence do not depend on labels. The log
density of each site given the ones before it ties the sites to each other and to the data.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.algorithm import Algorithm
from inference.calibration.verdicts import GewekeVerdict, two_sample
from inference.numerics.programs import (
    Site,
    call_compiled,
    check_latents,
    check_proper,
    data_sites,
    explicit_form,
    joint_draws,
    latent_sites,
    log_densities,
    redraw_data,
    sites_of,
)
from inference.precision import double_precision
from zoo.in_blocks import map_in_blocks


@double_precision
def geweke(
    model: Callable,
    algorithm: Algorithm,
    num_observations: int,
    *,
    key: jax.Array,
    num_draws: int,
    num_rounds: int = 6,
    functionals: Callable | None = None,
    prior_draws: Mapping[str, Any] | None = None,
    false_alarm_rate: float = 0.01,
    block_size: int = 500,
) -> GewekeVerdict:
    """Whether a sampler leaves the joint distribution of latents and data invariant.

    Args:
        model: a program with a proper prior, or a model of the zoo, whose explicit form is taken; its sizes
            are filled.
        algorithm: a sampler whose state has a field ``values``, all latent sites in constrained space, and
            nothing else that matters.
        num_observations: rows of the data drawn; few (5) show most, because prior and posterior then differ
            little.
        key: a JAX key.
        num_draws: independent replicates, and as many fresh draws of the prior that they are compared with.
        num_rounds: steps of the algorithm in each replicate, new data before each.
        functionals: ``functionals(values) -> dict`` of scalars of one joint draw, instead of the
            default ones of `inference.calibration.joint_distribution`.
        prior_draws: at least ``2 * num_draws`` joint draws of all latent and data sites, stacked, for a prior
            that the program cannot draw from.
        false_alarm_rate: probability that a correct sampler fails, at most; shared by all p-values
            (Bonferroni).
        block_size: replicates computed at once.

    Returns:
        The verdict, with all p-values.

    Raises:
        TypeError: the state of the algorithm has no field ``values``.
        ValueError: the prior is not proper and no ``prior_draws`` are given, or too few of them;
            ``num_draws`` below 2.
    """
    if num_draws < 2:
        raise ValueError(f"num_draws must be at least 2; got {num_draws}")
    program = explicit_form(model)
    key, start_key, reference_key = jax.random.split(key, 3)
    if prior_draws is None:
        check_proper(model, "pass joint draws as prior_draws=")
        arguments = (program, num_observations, block_size)
        start = call_compiled(joint_draws, jax.random.split(start_key, num_draws), *arguments)
        reference = call_compiled(joint_draws, jax.random.split(reference_key, num_draws), *arguments)
    else:
        start, reference = _halves(prior_draws, num_draws)
    names = data_sites(start)
    _check_state(model, algorithm, program, start, names)
    keys = jax.random.split(key, num_draws)
    moved = call_compiled(_move, keys, start, algorithm, model, program, names, num_rounds, block_size)
    before = call_compiled(summarise, reference, functionals, program, names, block_size)
    after = call_compiled(summarise, moved, functionals, program, names, block_size)
    p_values = {}
    for name in before:
        tests = two_sample(np.asarray(before[name], float), np.asarray(after[name], float))
        p_values.update({f"{name}, {test}": p for test, p in tests.items()})
    if _all_finite(reference) and not _all_finite(moved):
        p_values["all values finite"] = 0.0
    return GewekeVerdict.of(p_values, false_alarm_rate, num_draws=num_draws)


def _check_state(
    model: Callable, algorithm: Algorithm, program: Callable, start: Mapping[str, jax.Array], names: tuple
) -> None:
    """Refuse an algorithm without ``values``, and values or prior draws that are not the latent sites."""
    first = {name: value[0] for name, value in start.items()}
    data = tuple(first[name] for name in names)
    latents = latent_sites(program, *data)
    shapes = {name: value.shape for name, value in first.items() if name not in names}
    check_latents(shapes, latents, "a draw from the prior")
    state = jax.eval_shape(lambda: algorithm.init(jax.random.key(0), model, *data))
    if not hasattr(state, "values") or not hasattr(state, "_replace"):
        raise TypeError(
            f"the state of the algorithm must be a NamedTuple with a field values; got {type(state).__name__}"
        )
    check_latents({name: v.shape for name, v in state.values.items()}, latents, "the state's values")


def _halves(prior_draws: Mapping[str, Any], num_draws: int) -> list[dict[str, jax.Array]]:
    have = min(len(value) for value in prior_draws.values())
    if have < 2 * num_draws:
        raise ValueError(
            f"prior_draws must hold 2 * num_draws = {2 * num_draws} draws of each site; got {have}"
        )
    halves = slice(num_draws), slice(num_draws, 2 * num_draws)
    return [{name: jnp.asarray(value[half]) for name, value in prior_draws.items()} for half in halves]


def _move(
    keys: jax.Array,
    start: dict,
    algorithm: Algorithm,
    model: Callable,
    program: Callable,
    names: tuple[str, ...],
    num_rounds: int,
    block_size: int,
) -> dict:
    """Every replicate after ``num_rounds`` of (new data, step)."""

    def replicate(key_and_start: tuple) -> dict:
        key, joint = key_and_start
        init_key, key = jax.random.split(key)
        data = tuple(joint[name] for name in names)
        state = algorithm.init(init_key, model, *data)
        values = {name: joint[name].astype(old.dtype) for name, old in state.values.items()}

        def one_round(carry: tuple, round_key: jax.Array) -> tuple:
            state, data = carry
            step_key, data_key = jax.random.split(round_key)
            data = redraw_data(data_key, program, state.values, data, names)
            state, _ = algorithm.step(step_key, state, model, *data)
            return (state, data), None

        carry = (state._replace(values=values), data)
        (state, data), _ = jax.lax.scan(one_round, carry, jax.random.split(key, num_rounds))
        return {**state.values, **dict(zip(names, data, strict=True))}

    return map_in_blocks(replicate, (keys, start), block_size)


def _all_finite(values: Mapping[str, jax.Array]) -> bool:
    return all(bool(jnp.all(jnp.isfinite(value))) for value in values.values())


def joint_functionals(
    values: Mapping[str, jax.Array],
    sites: Mapping[str, Site],
    program: Callable,
    data_names: tuple[str, ...],
) -> dict[str, jax.Array]:
    """Named scalars of one joint draw.

    Returns:
        Summaries of each site by its kind, products of the mean of the data with those of real latents, and
        log densities in nats.
    """
    data = tuple(values[name] for name in data_names)
    latents = {name: value for name, value in values.items() if name not in data_names}
    terms = log_densities(program, data, latents)
    return (
        {
            f"{name}: {summary}": scalar
            for name, value in values.items()
            for summary, scalar in _summaries(value, sites[name].kind).items()
        }
        | {
            f"{name} x {observed}": jnp.mean(values[name]) * jnp.mean(values[observed])
            for name in latents
            if sites[name].kind == "real"
            for observed in data_names
        }
        | {f"{name}: log density": term for name, term in terms.items() if name in values}
        | {"log joint": sum(terms.values())}
    )


def summarise(
    joint: Mapping[str, jax.Array],
    functionals: Callable | None,
    program: Callable,
    data_names: tuple[str, ...],
    block_size: int,
) -> dict[str, jax.Array]:
    """The functionals (`joint_functionals` for None) of each of many joint draws, stacked, in blocks."""
    if functionals is None:
        sites = sites_of(program, *(joint[name][0] for name in data_names))

        def functionals(values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            return joint_functionals(values, sites, program, data_names)

    return map_in_blocks(functionals, joint, block_size)


def _summaries(value: Any, kind: str) -> dict[str, jax.Array]:
    if kind == "label":
        ordered = jnp.sort(jnp.ravel(value))
        counts = jnp.searchsorted(ordered, ordered, side="right") - jnp.searchsorted(ordered, ordered)
        number = 1 + jnp.sum(ordered[1:] != ordered[:-1])
        return {"largest group": jnp.max(counts), "number of groups": number}
    if kind == "simplex":
        squares = jnp.sum(value**2, axis=-1)
        return {"largest": jnp.max(value), "smallest": jnp.min(value), "sum of squares": jnp.mean(squares)}
    if kind == "positive_definite":
        log_det, log_trace = jnp.linalg.slogdet(value)[1], jnp.log(jnp.trace(value, axis1=-2, axis2=-1))
        means = {"mean log det": jnp.mean(log_det), "mean log trace": jnp.mean(log_trace)}
        return means | {"largest log det": jnp.max(log_det)}
    value = jnp.asarray(value, float)
    if jnp.size(value) == 1:
        return {"value": jnp.reshape(value, ())}
    ends = {"largest": jnp.max(value), "smallest": jnp.min(value)}
    if kind == "positive":
        return ends | {"mean log": jnp.mean(jnp.log(value))}
    return ends | {"mean": jnp.mean(value), "mean square": jnp.mean(value**2)}
