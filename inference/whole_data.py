"""A fit that holds all rows at once: drive an algorithm, or let a direct method answer, and conclude."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.algorithm import Algorithm, Method, Outcome
from inference.ascent import Ascent, ascend, last_of
from inference.checkpoint import Checkpoint
from inference.devices import deal_out, exchanged, on_all_devices, on_one_device, over_processes
from inference.driver import Chains, sample
from inference.precision import to_numpy
from inference.results import row_limit
from inference.rows import Rows, unweighted, weight_of
from zoo.model import Model

__all__ = ["drive_whole", "solve", "start_of"]


def solve(
    method: Method, key: jax.Array, model: Model, arrays: tuple, options: dict[str, Any]
) -> tuple[Ascent, Outcome]:
    """A direct method's answer, as an ascent of one step that converged."""
    outcome, objective = method.solve(key, model, arrays, **options)
    trace = {"objective": np.full((1, 1), float(objective))}
    return Ascent(None, trace, 0, True, "solved directly", 1, 0), outcome


def drive_whole(
    method: Method,
    model: Model,
    data: tuple,
    *,
    key: jax.Array,
    settings: dict[str, Any],
    options: dict[str, Any],
    num_devices: int,
    strategy: str,
    variables: dict[str, np.ndarray] | None,
    checkpoint: Checkpoint,
    progress: bool,
    keep: tuple[str, ...],
) -> tuple[Ascent | Chains, Outcome]:
    """Run and conclude; everything handed out is NumPy."""
    adaptation = {"num_warmup": settings["num_warmup"]} if method.kind == "sampling" else {}
    algorithm = method.build(init=strategy, **options, **adaptation)
    start = start_of(method, algorithm, variables, {**options, **adaptation})
    variables = {} if variables is None else variables
    run_key, conclude_key = jax.random.split(key)
    num_rows, num_samples = data[0].shape[0], settings["num_samples"]
    total_weight = float(jnp.sum(data[0].weight)) if isinstance(data[0], Rows) else num_rows
    shared = {"key": run_key, "variables": variables, "checkpoint": checkpoint, "progress": progress}
    if method.kind == "sampling":
        keep_rows = row_limit(settings["num_chains"] * num_samples * num_rows, "assignments", keep)
        position = method.position(keep_rows)
        result = sample(
            algorithm.step, start, position, model, data, **settings, **shared, resize=method.resize
        )
        outcome = method.conclude(
            conclude_key, jax.tree.map(jnp.asarray, result.draws), model, data, keep_rows
        )
    else:
        keep_rows = row_limit(num_samples * num_rows, "assignments", keep)
        rising = method.kind == "ascent"
        taken = data
        if num_devices > 1 and method.shards_documents:
            taken = tuple(part.over_devices(num_devices) for part in data)
            shared |= {"start_data": data, "place": partial(on_all_devices, num_devices=num_devices)}
        elif num_devices > 1:
            rows, weight = np.asarray(unweighted(data[0])), np.asarray(weight_of(data[0]))
            of_all = Rows(*map(jnp.asarray, (exchanged(rows), exchanged(weight[:, None])[:, 0])))
            taken = (deal_out(rows, weight, num_devices),)
            shared |= {
                "start_data": data if jax.process_count() == 1 else (of_all,),
                "place": partial(on_all_devices, num_devices=num_devices),
            }
            total_weight = over_processes(total_weight)
        result = ascend(
            algorithm.step,
            start,
            model,
            taken,
            num_rows=total_weight,
            num_restarts=settings["num_restarts"],
            max_iterations=settings["max_iterations"],
            tolerance=settings["tolerance"] if rising else 0.0,
            must_rise=rising and not method.may_fall,
            improve=algorithm.improve,
            shrink=algorithm.shrink,
            on_host=method.runs_on_host is not None and method.runs_on_host(data),
            **shared,
        )
        state = on_one_device(result.state) if num_devices > 1 else result.state
        outcome = method.conclude(conclude_key, state, model, data, num_samples, keep_rows, **options)
    on_host = {
        name: to_numpy(dict(getattr(outcome, name))) for name in ("posterior", "variational", "sample_stats")
    }
    if jax.process_count() > 1 and model.occupied_site in result.trace:  # each process holds but its own rows
        on_host["variational"][model.occupied_site] = last_of(result, model.occupied_site).astype(int)
    return result, outcome._replace(**on_host)


def start_of(
    method: Method, algorithm: Algorithm, variables: Mapping | None, options: dict[str, Any]
) -> Callable:
    """``start(key, variables, model, *data)`` of one run."""
    if variables is None:
        return _fresh(algorithm.init)
    return _given(method.start, tuple(sorted(options.items())))


@cache
def _fresh(init: Callable) -> Callable:
    """A start that is given nothing."""
    return lambda key, variables, model, *data: init(key, model, *data)


@cache
def _given(start: Callable, options: tuple) -> Callable:
    """A start from given variables."""
    return partial(start, **dict(options))
