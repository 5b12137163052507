"""The loop of an ascent: a step repeated on every restart until its objective stops rising.

See `inference.driver`. A restart that has settled may be asked for a better state (`Algorithm.improve`) and
runs on from there; what comes of a restart does not depend on where the run was cut into chunks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.checkpoint import Checkpoint
from inference.devices import agreed, any_process
from inference.host_ascent import ascend_chunk_on_host, start_on_host
from inference.lanes import lane_keys, resume, start_each
from inference.pacing import CHUNK_CAPACITY, ChunkLength, Interrupt, progress_bar

__all__ = ["SMALL_STEPS", "Ascent", "ascend", "last_of", "rounding"]

SMALL_STEPS = 5  # consecutive steps of little gain that mean convergence
SHRINK_EVERY = 10  # steps: fixed, so that what comes of a run does not depend on where it was cut into chunks


class Ascent(NamedTuple):
    """What `ascend` returns.

    Attributes:
        state: the final state of the best restart.
        trace: name to array of shape (num_restarts, num_iterations), NaN after a restart has stopped.
        best_restart: index of the restart with the highest last objective.
        converged: whether the best restart met the tolerance.
        stop_reason: why the best restart stopped.
        num_iterations: iterations of the best restart.
        num_improvements: how often the best restart, having settled, was moved to a better state.
    """

    state: Any
    trace: dict[str, np.ndarray]
    best_restart: int
    converged: bool
    stop_reason: str
    num_iterations: int
    num_improvements: int


def last_of(result: Ascent, name: str) -> np.ndarray:
    """The last recorded value of the best restart."""
    values = result.trace[name][result.best_restart]
    return values[np.isfinite(values)][-1]


class _Lanes(NamedTuple):
    """State of all restarts of an ascent; every field has a leading axis over restarts."""

    state: Any
    objective: Array  # of the last step, nats
    small_steps: Array  # consecutive steps with a gain below the tolerance
    iteration: Array  # steps taken
    status: Array  # one of the codes below
    improvements: Array  # how often a settled state was moved to a better one


_RUNNING, _CONVERGED, _SETTLED, _NOT_FINITE, _FELL = range(5)
IMPROVE = 2**31 - 1  # no iteration has this number: the key of an improvement is no step's


def ascend(
    step: Callable,
    start: Callable,
    model: Any,
    data: tuple,
    *,
    key: Array,
    variables: Any,
    num_rows: float,
    num_restarts: int,
    max_iterations: int,
    tolerance: float,
    must_rise: bool,
    checkpoint: Checkpoint,
    progress: bool,
    improve: Callable | None = None,
    shrink: Callable | None = None,
    start_data: tuple | None = None,
    place: Callable = lambda tree: tree,
    on_host: bool = False,
) -> Ascent:
    """Repeat a step on every restart until its objective stops rising.

    And keep the restart that rose highest.

    Args:
        step: the step to repeat, of an `Algorithm`.
        start: ``start(key, variables, model, *data) -> state`` of one restart.
        model: passed to the step.
        data: passed to the step.
        key: the run's key.
        variables: what the starts are given, leaves with a leading axis over restarts.
        num_rows: what the tolerance is multiplied by.
        num_restarts: how many starts are run side by side.
        max_iterations: the most steps a restart takes.
        tolerance: gain in nats per row; a restart has converged when five consecutive steps gain less. 0:
            never.
        must_rise: whether a fall of the objective by more than rounding is an error.
        checkpoint: where to save and resume.
        progress: whether to show a bar.
        improve: of an `Algorithm`: asked for a better state whenever a restart has settled; the restart has
            converged when there is none.
        shrink: of an `Algorithm`: asked every few steps.
        start_data: what the starts are given instead of ``data`` (which may lie on several devices).
        place: puts states and the model where ``data`` are.
        on_host: whether start and step run on the host (`inference.host_ascent`) instead of compiled.

    Raises:
        FloatingPointError: no restart has a finite objective after its first step.
    """
    keys = lane_keys(key, num_restarts)
    begun_with = data if start_data is None else start_data
    begin = partial(_start_lanes_on_host if on_host else _start_lanes, start)
    lanes, stored = resume(checkpoint, begin, keys, variables, model, begun_with, traced=not on_host)
    lanes, keys, model = place((lanes, keys, model))
    chunks = [] if stored is None else [_stored_chunk(lanes, stored)]
    small_gain = num_rows * tolerance if tolerance > 0 else -np.inf
    slack = rounding(lanes.objective.dtype) if must_rise else jnp.inf
    settled = _CONVERGED if improve is None else _SETTLED
    chunk = ChunkLength()
    with (
        Interrupt() as interrupt,
        progress_bar(progress, max_iterations, int(lanes.iteration.max())) as bar,
    ):
        while _steps_left(lanes, max_iterations) and not any_process(interrupt.requested):
            before = np.asarray(lanes.iteration)
            limit = min(agreed(chunk.length), _steps_left(lanes, max_iterations))
            if shrink is not None:
                limit = min(limit, SHRINK_EVERY - int(before.max()) % SHRINK_EVERY)
            with chunk.timed():
                lanes, infos = (_ascend_chunk_on_host if on_host else _ascend_chunk)(
                    step, lanes, keys, limit, max_iterations, small_gain, slack, settled, model, data
                )
                after = np.asarray(lanes.iteration)
            most = int((after - before).max())
            infos = {name: np.asarray(value)[:, :most] for name, value in infos._asdict().items()}
            chunks.append(_Chunk(before, after, infos))
            lanes = _improve_settled(improve, lanes, keys, model, data)
            if shrink is not None and int(after.max()) % SHRINK_EVERY == 0:
                smaller = shrink(lanes.state, model)
                lanes = lanes if smaller is None else lanes._replace(state=smaller)
            bar.update(int(after.max() - before.max()))
            bar.set_postfix_str(f"objective {float(jnp.nanmax(lanes.objective)):.6g}", refresh=False)
            if checkpoint.is_due():
                checkpoint.save(lanes, _lane_trace_arrays(chunks))
    checkpoint.save(lanes, _lane_trace_arrays(chunks))
    return _best(lanes, chunks, interrupt.requested)


class _Chunk(NamedTuple):
    """What was recorded of one chunk; restarts need not have taken the same number of steps."""

    before: np.ndarray  # iterations of each restart before the chunk
    after: np.ndarray  # and after it
    infos: dict[str, np.ndarray]  # name to (num_restarts, steps)


def _lane_trace(chunks: list[_Chunk]) -> dict[str, np.ndarray]:
    """Name to (num_restarts, num_iterations), NaN after a restart has stopped."""
    shape = chunks[0].before.shape[0], int(chunks[-1].after.max())
    trace = {name: np.full(shape, np.nan) for name in chunks[0].infos}
    for before, after, infos in chunks:
        for name, values in infos.items():
            for lane, (begin, end) in enumerate(zip(before, after, strict=True)):
                trace[name][lane, begin:end] = values[lane, : end - begin]
    return trace


def _lane_trace_arrays(chunks: list[_Chunk]) -> dict[str, np.ndarray]:
    return {f"trace_{name}": values for name, values in _lane_trace(chunks).items()} if chunks else {}


def _stored_chunk(lanes: _Lanes, stored: dict[str, np.ndarray]) -> _Chunk:
    """All that was recorded before a checkpoint, as one chunk."""
    after = np.asarray(lanes.iteration)
    infos = {name[6:]: value for name, value in stored.items() if name.startswith("trace_")}
    return _Chunk(np.zeros_like(after), after, infos)


def _steps_left(lanes: _Lanes, max_iterations: int) -> int:
    """The most steps that a running restart may still take."""
    left = np.where(np.asarray(lanes.status) == _RUNNING, max_iterations - np.asarray(lanes.iteration), 0)
    return int(left.max())


def _improve_settled(improve: Callable | None, lanes: _Lanes, keys: Array, model: Any, data: tuple) -> _Lanes:
    """Every settled restart moved to a better state, to run on from there, or else converged.

    What comes of it depends on the restart alone, not on where chunks were cut.
    """
    for lane in np.flatnonzero(np.asarray(lanes.status) == _SETTLED):
        lanes = _improve_lane(improve, lanes, keys, lane, model, data)
    return lanes


@partial(jax.jit, static_argnums=0)
def _improve_lane(
    improve: Callable, lanes: _Lanes, keys: Array, lane: Array, model: Any, data: tuple
) -> _Lanes:
    own = jax.tree.map(lambda leaf: leaf[lane], lanes)
    key = jax.random.fold_in(jax.random.fold_in(keys[lane], own.iteration), IMPROVE)
    state, objective, better = improve(key, own.state, model, *data)
    stay = own._replace(status=jnp.full_like(own.status, _CONVERGED))
    go = own._replace(
        state=state,
        objective=jnp.maximum(objective, own.objective),
        small_steps=jnp.zeros_like(own.small_steps),
        status=jnp.full_like(own.status, _RUNNING),
        improvements=own.improvements + 1,
    )
    return jax.tree.map(lambda all_, one: all_.at[lane].set(one), lanes, _where(better, go, stay))


def _best(lanes: _Lanes, chunks: list[_Chunk], interrupted: bool) -> Ascent:
    """The highest restart and why it stopped."""
    if not chunks:
        raise KeyboardInterrupt("interrupted before the first step was complete")
    iteration, status = np.asarray(lanes.iteration), np.asarray(lanes.status)
    trace = _lane_trace(chunks)
    last = np.asarray(lanes.objective)  # a restart that failed has kept the objective of the state before
    if not np.isfinite(last).any():
        raise FloatingPointError(
            "the objective is not finite after the first step, at every restart: check the scale of data and "
            "priors"
        )
    best = int(last.argmax())
    reason = {
        _RUNNING: "interrupted" if interrupted else "max_iterations",
        _CONVERGED: "converged",
        _SETTLED: "interrupted",
        _NOT_FINITE: (
            f"the objective was not finite at iteration {iteration[best]}; this is the state before it"
        ),
        _FELL: f"the objective fell at iteration {iteration[best]}; this is the state before it",
    }[int(status[best])]
    state = jax.tree.map(lambda leaf: leaf[best], lanes.state)
    converged, improvements = bool(status[best] == _CONVERGED), int(lanes.improvements[best])
    return Ascent(state, trace, best, converged, reason, int(iteration[best]), improvements)


@partial(jax.jit, static_argnums=0)
def _start_lanes(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> _Lanes:
    """Start every restart, one after another: a start may need as much memory as a step."""
    return _new_lanes(start_each(start, keys, variables, model, data), keys.shape[0])


def _start_lanes_on_host(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> _Lanes:
    return _new_lanes(start_on_host(start, keys, variables, model, data), keys.shape[0])


def _new_lanes(state: Any, count: int) -> _Lanes:
    zeros = jnp.zeros(count, int)
    lowest = jnp.full(
        count, -jnp.inf, float
    )  # a dtype: the next chunk, whose type is no weak one, is compiled as this
    return _Lanes(state, lowest, zeros, zeros, zeros, zeros)


def _verdict(
    numbers: Any, lane: _Lanes, objective: Array, small_gain: Array, slack: Array, settled: Array
) -> tuple[Array, Array]:
    """Steps of little gain so far, and the status after a step; ``numbers`` is `jax.numpy` or `numpy`."""
    gain = objective - lane.objective
    small = numbers.where(gain < small_gain, lane.small_steps + 1, 0)
    status = numbers.where(small >= SMALL_STEPS, settled, _RUNNING)
    status = numbers.where(gain < -slack * numbers.abs(lane.objective), _FELL, status)
    return small, numbers.where(numbers.isfinite(objective), status, _NOT_FINITE)


def _ascend_chunk_on_host(
    step: Callable,
    lanes: _Lanes,
    keys: Array,
    limit: int,
    max_iterations: int,
    small_gain: float,
    slack: float,
    settled: int,
    model: Any,
    data: tuple,
) -> tuple[_Lanes, Any]:
    """`_ascend_chunk` for a step that runs on the host."""

    def verdict(lane: _Lanes, objective: Any) -> tuple[np.ndarray, np.ndarray, bool]:
        began = np.isfinite(lane.objective)  # before the first step there is nothing to fall from
        own_slack = slack if began else np.inf
        with np.errstate(invalid="ignore"):
            small, status = _verdict(np, lane, np.asarray(objective), small_gain, own_slack, settled)
        return small, status, bool(status >= _NOT_FINITE)

    return ascend_chunk_on_host(step, verdict, lanes, keys, limit, max_iterations, model, data)


@partial(jax.jit, static_argnums=0)
def _ascend_chunk(
    step: Callable,
    lanes: _Lanes,
    keys: Array,
    limit: Array,
    max_iterations: Array,
    small_gain: Array,
    slack: Array,
    settled: Array,
    model: Any,
    data: tuple,
) -> tuple[_Lanes, Any]:
    """Up to ``limit`` steps of every running restart; a restart that has stopped keeps its state.

    What is recorded starts, for each restart, with its first step of the chunk.
    """
    step = jax.jit(step)  # so that it is traced once, not once for its shapes and once for its body

    def advance(lane: _Lanes, key: Array) -> tuple[_Lanes, Any]:
        state, info = step(jax.random.fold_in(key, lane.iteration), lane.state, model, *data)
        small, status = _verdict(jnp, lane, info.objective, small_gain, slack, settled)
        stepped = _Lanes(state, info.objective, small, lane.iteration + 1, status, lane.improvements)
        failed = lane._replace(iteration=lane.iteration + 1, status=status)
        chosen = _where(status >= _NOT_FINITE, failed, stepped)
        return _where(_runs(lane), chosen, lane), info

    def _runs(lane: _Lanes) -> Array:
        return (lane.status == _RUNNING) & (lane.iteration < max_iterations)

    many = jax.vmap(advance) if keys.shape[0] > 1 else _alone(advance)
    shapes = jax.eval_shape(many, lanes, keys)[1]
    buffers = jax.tree.map(lambda s: jnp.zeros((*s.shape, CHUNK_CAPACITY), s.dtype), shapes)

    began, which = lanes.iteration, jnp.arange(keys.shape[0])

    def body(carry: tuple) -> tuple:
        lanes, buffers, count = carry
        slot = jnp.where(_runs(lanes), lanes.iteration - began, CHUNK_CAPACITY)  # past the end: dropped
        lanes, info = many(lanes, keys)
        buffers = jax.tree.map(
            lambda buffer, value: buffer.at[which, slot].set(value, mode="drop"), buffers, info
        )
        return lanes, buffers, count + 1

    def running(carry: tuple) -> Array:
        lanes, _, count = carry
        return (count < limit) & jnp.any(_runs(lanes))

    return jax.lax.while_loop(running, body, (lanes, buffers, jnp.zeros((), int)))[:2]


def _alone(advance: Callable) -> Callable:
    """``jax.vmap`` of a single lane: without batched products, which cost more; branches stay branches."""

    def many(lanes: _Lanes, keys: Array) -> tuple[_Lanes, Any]:
        lane, info = advance(jax.tree.map(lambda leaf: leaf[0], lanes), keys[0])
        return jax.tree.map(lambda leaf: leaf[None], (lane, info))

    return many


def rounding(dtype: Any) -> float:
    """How much an objective may fall relative to its size before it is an error."""
    return 1e-8 if dtype == jnp.float64 else 2e-4


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
