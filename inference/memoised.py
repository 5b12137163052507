"""The loop of an ascent whose rows pass in batches: each pass visits every batch once, in order.

A visit takes back what the batch contributed to the sums before, adds what it contributes under the present
state, and makes the state optimal for the new sums (`inference.algorithm.Memoised`): coordinate ascent on the
objective of all rows, so that an iteration of the trace, one pass, may never lower it. In the first pass the
state stays as it is until the sums are complete: rows may come sorted, and a component must not die because
none of its rows has been seen yet. What is held beside one batch is what each contributed, one set of sums
per batch.

Between two visits, and only there, the host looks at Ctrl-C and the checkpoint.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Memoised
from inference.ascent import SMALL_STEPS, Ascent, rounding
from inference.checkpoint import Checkpoint
from inference.lanes import lane_keys, resume, start_each
from inference.pacing import Interrupt, progress_bar
from inference.row_stream import RowStream

__all__ = ["ascend_in_batches"]

RUNNING, CONVERGED, NOT_FINITE, FELL = range(4)


class _Lanes(NamedTuple):
    """All restarts; every leaf has a leading axis over restarts."""

    state: Any
    sums: Any  # of all batches at their last visit
    fresh: Any  # of the batches visited in this pass: no rounding of what was taken back stays in them
    settled: Any  # the state at the end of the last pass


class _Progress(NamedTuple):
    """How far the run is, on the host."""

    passes: int  # complete ones
    batches: int  # visited in the present pass
    status: np.ndarray  # per restart
    small_steps: np.ndarray
    ended_at: np.ndarray  # passes of each restart when it stopped


def ascend_in_batches(
    memoised: Memoised,
    start: Callable,
    model: Any,
    stream: RowStream,
    *,
    put: Callable,
    check: Callable,
    start_rows: Any,
    warm_up: Callable,
    key: Array,
    variables: Any,
    num_restarts: int,
    max_iterations: int,
    tolerance: float,
    checkpoint: Checkpoint,
    progress: bool,
) -> Ascent:
    """Pass over all batches, on every restart, until the objective stops rising.

    Args:
        memoised: the step taken apart.
        start: ``start(key, variables, model, rows) -> state`` of one restart.
        model: passed to the step.
        stream: the rows.
        put: a batch as the step takes it, on its device or devices.
        check: called with each batch in the first pass, before it is used.
        start_rows: what the starts see.
        warm_up: ``warm_up(keys, states) -> states`` of all restarts, once, before the first pass.
        key: the run's key.
        variables: what the starts are given.
        num_restarts: how many starts are run side by side.
        max_iterations: the most passes.
        tolerance: gain in nats per row and pass; a restart has converged after five consecutive passes that
            gain less. 0: never.
        checkpoint: where to save and resume.
        progress: whether to show a bar.

    Raises:
        FloatingPointError: no restart has a finite objective after its first pass.
    """
    keys = lane_keys(key, num_restarts)
    lanes, stored = resume(checkpoint, partial(_start, start, memoised), keys, variables, model, start_rows)
    if stored is None:
        state = warm_up(keys, lanes.state)
        lanes = lanes._replace(state=state, settled=state)
    nothing = jax.tree.map(jnp.zeros_like, lanes.sums)
    memo, trace, at = _restored(stored, nothing, num_restarts)
    slack = rounding(jax.tree.leaves(lanes.sums)[0].dtype)
    with Interrupt() as interrupt, progress_bar(progress, max_iterations, at.passes) as bar:
        while at.passes < max_iterations and (at.status == RUNNING).any() and not interrupt.requested:
            running = jnp.asarray(at.status == RUNNING)
            total_weight = 0.0
            for number, batch in enumerate(stream):
                total_weight += float(batch.weight.sum())
                if number < at.batches:  # visited before the run was cut
                    continue
                if at.passes == 0:
                    check(batch)
                    memo.append(nothing)
                moves = running & (at.passes > 0)
                lanes, memo[number] = _visit(memoised, lanes, memo[number], running, moves, model, put(batch))
                at = at._replace(batches=number + 1)
                bar.set_postfix_str(f"row {batch.begin + batch.count}", refresh=False)
                if checkpoint.is_due():
                    jax.block_until_ready(lanes)
                    checkpoint.save(lanes, _stored(memo, trace, at))
                if interrupt.requested:
                    break
            else:
                lanes, info, memo = _end_of_pass(memoised, lanes, memo, running, model)
                info = {name: np.asarray(value, float) for name, value in info._asdict().items()}
                at = _judge(at, info["objective"], trace, tolerance * total_weight, slack)
                lanes = _end_at_good_state(lanes, jnp.asarray(at.status >= NOT_FINITE))
                for name, value in info.items():
                    value = np.where(at.ended_at >= at.passes, value, np.nan)
                    trace.setdefault(name, []).append(value)
                bar.update(1)
    checkpoint.save(lanes, _stored(memo, trace, at))
    return _best(lanes, trace, at, interrupt.requested)


def _start(
    start: Callable, memoised: Memoised, keys: Array, variables: Any, model: Any, start_rows: Any
) -> _Lanes:
    """States after their starts, and sums of nothing."""
    state = _start_states(start, keys, variables, model, start_rows)
    shapes = jax.eval_shape(jax.vmap(lambda own: memoised.sums(own, model, start_rows)), state)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return _Lanes(state, nothing, nothing, state)


@partial(jax.jit, static_argnums=0)
def _start_states(start: Callable, keys: Array, variables: Any, model: Any, start_rows: Any) -> Any:
    return start_each(start, keys, variables, model, (start_rows,))


@partial(jax.jit, static_argnums=0)
def _visit(
    memoised: Memoised, lanes: _Lanes, before: Any, running: Array, moves: Array, model: Any, rows: Any
) -> tuple[_Lanes, Any]:
    """One batch; restarts that have stopped stay as they are, and states that are not to move."""

    def one(lane: _Lanes, before: Any, runs: Array, moves: Array) -> tuple[_Lanes, Any]:
        now = _where(runs, memoised.sums(lane.state, model, rows), before)
        sums = jax.tree.map(lambda total, old, new: total - old + new, lane.sums, before, now)
        state, _ = memoised.update(lane.state, sums, model)
        fresh = jax.tree.map(jnp.add, lane.fresh, now)
        return _Lanes(_where(moves, state, lane.state), sums, fresh, lane.settled), now

    return jax.vmap(one)(lanes, before, running, moves)


def _end_of_pass(
    memoised: Memoised, lanes: _Lanes, memo: list, running: Array, model: Any
) -> tuple[_Lanes, Any, list]:
    """The state at the exact sums, its objective, and everything in the order of components that is best."""
    lanes, info, order = _settle(memoised, lanes, running, model)
    if order is None:
        return lanes, info, memo
    return lanes, info, [_reordered(memoised, sums, order) for sums in memo]


@partial(jax.jit, static_argnums=0)
def _settle(
    memoised: Memoised, lanes: _Lanes, running: Array, model: Any
) -> tuple[_Lanes, Any, Array | None]:
    def one(lane: _Lanes, runs: Array) -> tuple[_Lanes, Any, Array | None]:
        order = memoised.best_order(lane.state, lane.fresh, model)
        sums = lane.fresh
        if order is not None:
            order = jnp.where(runs, order, jnp.arange(order.shape[0]))
            sums = memoised.reorder(sums, order)
        state, info = memoised.update(lane.state, sums, model)
        nothing = jax.tree.map(jnp.zeros_like, sums)
        return _Lanes(_where(runs, state, lane.state), sums, nothing, lane.settled), info, order

    return jax.vmap(one)(lanes, running)


@jax.jit
def _end_at_good_state(lanes: _Lanes, failed: Array) -> _Lanes:
    """A restart that failed goes back to the end of its last good pass."""
    state = jax.vmap(_where)(failed, lanes.settled, lanes.state)
    return lanes._replace(state=state, settled=state)


@partial(jax.jit, static_argnums=0)
def _reordered(memoised: Memoised, sums: Any, order: Array) -> Any:
    return jax.vmap(memoised.reorder)(sums, order)


def _judge(
    at: _Progress, objective: np.ndarray, trace: dict[str, list], small_gain: float, slack: float
) -> _Progress:
    """Which restarts go on after a complete pass."""
    before = trace["objective"][-1] if trace else np.full(objective.shape, -np.inf)
    runs = at.status == RUNNING
    gain = np.where(runs, objective - before, np.inf)
    small = np.where(gain < small_gain, at.small_steps + 1, 0) if small_gain > 0 else at.small_steps
    status = np.where(runs & (small >= SMALL_STEPS), CONVERGED, at.status)
    status = np.where(runs & (gain < -slack * np.abs(before)), FELL, status)
    status = np.where(runs & ~np.isfinite(objective), NOT_FINITE, status)
    passes = at.passes + 1
    small, ended_at = np.where(runs, small, at.small_steps), np.where(runs, passes, at.ended_at)
    return _Progress(passes, 0, status, small, ended_at)


def _best(lanes: _Lanes, trace: dict[str, list], at: _Progress, interrupted: bool) -> Ascent:
    """The highest restart and why it stopped."""
    if at.passes == 0 and at.batches == 0:
        raise KeyboardInterrupt("interrupted before the first batch was complete")
    arrays = {name: np.stack(values, axis=1) for name, values in trace.items()}
    if at.passes == 0:
        arrays = {"objective": np.full((at.status.shape[0], 1), np.nan)}
        last = np.zeros(at.status.shape[0])
    else:
        good = at.ended_at - (at.status >= NOT_FINITE)  # the pass whose end the state is
        last = np.array(
            [row[end - 1] if end else -np.inf for row, end in zip(arrays["objective"], good, strict=True)]
        )
        if not np.isfinite(last).any():
            raise FloatingPointError(
                "the objective is not finite after the first pass, at every restart: check the scale of data "
                "and priors"
            )
    best = int(last.argmax())
    reason = {
        RUNNING: "interrupted" if interrupted else "max_iterations",
        CONVERGED: "converged",
        NOT_FINITE: f"the objective was not finite after pass {at.ended_at[best]}; this is the state before",
        FELL: f"the objective fell in pass {at.ended_at[best]}; this is the state before",
    }[int(at.status[best])]
    state = jax.tree.map(lambda leaf: leaf[best], lanes.state)
    converged = bool(at.status[best] == CONVERGED)
    return Ascent(state, arrays, best, converged, reason, int(at.ended_at[best]), 0)


# Checkpoints


def _stored(memo: list, trace: dict[str, list], at: _Progress) -> dict[str, np.ndarray]:
    arrays = {f"progress_{name}": np.asarray(value) for name, value in at._asdict().items()}
    arrays |= {f"trace_{name}": np.stack(values) for name, values in trace.items()}
    leaves = zip(*(jax.tree.leaves(sums) for sums in memo), strict=True)
    return arrays | {
        f"memo_{i}": np.stack([np.asarray(part) for part in parts]) for i, parts in enumerate(leaves)
    }


def _restored(
    stored: dict[str, np.ndarray] | None, nothing: Any, num_restarts: int
) -> tuple[list, dict[str, list], _Progress]:
    if stored is None:
        still = np.zeros(num_restarts, int)
        return [], {}, _Progress(0, 0, still + RUNNING, still, still)
    fields = {name: stored[f"progress_{name}"] for name in _Progress._fields}
    fields |= {name: int(fields[name]) for name in ("passes", "batches")}
    structure = jax.tree.structure(nothing)
    leaves = [stored[f"memo_{i}"] for i in range(structure.num_leaves)]
    memo = [jax.tree.unflatten(structure, map(jnp.asarray, parts)) for parts in zip(*leaves, strict=True)]
    trace = {name[6:]: list(values) for name, values in stored.items() if name.startswith("trace_")}
    return memo, trace, _Progress(**fields)


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
