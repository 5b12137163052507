"""The loop of an ascent whose rows pass in batches: each pass visits every batch once, in order.

A visit subtracts the former contribution of the batch from the sums, adds its contribution under the present
state, and makes the state optimal for the new sums (`inference.algorithm.Memoised`): coordinate ascent on the
objective of all rows, so that an iteration of the trace, one pass, may never lower it. In the first pass the
state stays as it is until the sums are complete: rows may come sorted, and a component must not die because
none of its rows has been seen yet. Beside one batch the contribution of each is held, one set of sums per
batch.

Between two visits, and only there, the host looks at Ctrl-C and the checkpoint.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import AscentRun, Memoised
from inference.driver.checkpoint import AtMost, Checkpoint, Kept, Layout
from inference.driver.host import Interrupt, resume, start_each
from inference.driver.progress import (
    NOT_FINITE,
    RUNNING,
    Progress,
    advanced,
    best_run,
    layout_of_ascent,
    restored,
    smallest_gain,
    stored,
    tolerated_fall,
)
from inference.numerics.compiled import compiled
from inference.processes import any_process, first_only, over_processes
from zoo.model import Model


class _Restarts(NamedTuple):
    """All restarts; every leaf has a leading axis over restarts."""

    state: Any
    sums: Any  # of all batches at their last visit
    fresh: Any  # of the batches visited in this pass: free of rounding left by subtractions
    settled: Any  # the state at the end of the last pass


def ascend_in_batches(
    memoised: Memoised,
    start: Callable,
    model: Model,
    stream: Any,
    *,
    put: Callable,
    check: Callable,
    start_rows: Any,
    warm_up: Callable,
    keys: Array,
    variables: Mapping[str, np.ndarray] | None,
    num_restarts: int,
    max_iterations: int,
    tolerance: float,
    rule: Callable,
    checkpoint: Checkpoint,
    open_bar: Callable,
    place: Callable = lambda tree: tree,
) -> AscentRun:
    """Pass over all batches, on every restart, until the objective stops rising.

    Args:
        memoised: the step taken apart.
        start: ``start(key, variables, model, rows) -> state`` of one restart.
        model: passed to the step.
        stream: the rows, an iterable of batches (`inference.inputs.streams.RowStream`).
        put: a batch as the step takes it, on its device or devices.
        check: called with each batch in the first pass, before it is used.
        start_rows: the rows that the starts see.
        warm_up: ``warm_up(keys, states) -> states`` of all restarts, once, before the first pass.
        keys: of the restarts, shape (num_restarts,).
        variables: what the starts are given.
        num_restarts: how many starts are run.
        max_iterations: the most passes.
        tolerance: gain in nats per row below which a pass is small; 0: none is.
        rule: whether a restart goes on after a pass, see `inference.driver.progress`.
        checkpoint: where to save and resume.
        open_bar: ``open_bar(total, done)``, a context that is told of passes and shows them.
        place: puts states, sums and the model where the batches are.

    Raises:
        FloatingPointError: no restart has a finite objective after its first pass.
    """
    restarts, saved = resume(
        *(checkpoint, partial(_start, start, memoised), keys, variables, model, start_rows),
        layout=partial(_layout, num_restarts, max_iterations, stream),
    )
    if saved is None:
        state = warm_up(keys, restarts.state)
        restarts = restarts._replace(state=state, settled=state)
    nothing = jax.tree.map(jnp.zeros_like, restarts.sums)
    restarts, model = place((restarts, model))
    progress, history, loop = restored(saved, num_restarts)
    progress = Progress(*map(np.asarray, progress))
    passes, visited = int(progress.iteration.max()), int(loop.get("batches", 0))
    memo, nothing = place((_restored_memo(loop, nothing), nothing))
    slack = tolerated_fall(jax.tree.leaves(restarts.sums)[0].dtype)

    def save() -> None:
        checkpoint.save(restarts, stored(progress, history, batches=visited, **_memo_arrays(memo, nothing)))

    with Interrupt() as interrupt, open_bar(max_iterations, passes) as bar:
        while passes < max_iterations and not any_process(interrupt.requested):
            runs = progress.status == RUNNING
            if not runs.any():
                break
            running, moves = runs, runs & (passes > 0)
            total_weight = 0.0
            for number, batch in enumerate(stream):
                total_weight += float(batch.weight.sum())
                if number < visited:  # before the run was cut
                    continue
                if passes == 0:
                    check(batch)
                    memo.append(nothing)
                restarts, memo[number] = _visit(
                    memoised, restarts, memo[number], running, moves, model, put(batch)
                )
                visited = number + 1
                bar.set_postfix_str(f"row {batch.begin + batch.count}", refresh=False)
                if first_only() and checkpoint.is_due():
                    jax.block_until_ready(restarts)
                    save()
                if any_process(interrupt.requested):
                    break
            else:
                restarts, info, memo = _end_of_pass(memoised, restarts, memo, running, model)
                infos = {name: np.asarray(value, float)[:, None] for name, value in info._asdict().items()}
                small_gain = smallest_gain(over_processes(total_weight), tolerance)
                with np.errstate(invalid="ignore"):
                    reached = advanced(rule, np, progress, infos["objective"][:, 0], small_gain, slack)
                reached = jax.tree.map(partial(np.where, runs), reached, progress)
                history.add(progress.iteration, reached.iteration, infos)
                progress, passes, visited = reached, passes + 1, 0
                restarts = _end_at_good_state(restarts, progress.status >= NOT_FINITE)
                bar.update(1)
    save()
    if passes == 0 and visited == 0:
        raise KeyboardInterrupt("interrupted before the first batch was complete")
    if passes == 0:
        state = jax.tree.map(lambda leaf: leaf[0], restarts.state)
        trace = {"objective": np.full((num_restarts, 1), np.nan)}
        return AscentRun(state, trace, 0, False, "interrupted", 0, 0)
    is_interrupted = any_process(interrupt.requested)
    return best_run(restarts.state, progress, history.arrays(), is_interrupted, "pass")


def _start(
    start: Callable,
    memoised: Memoised,
    keys: Array,
    variables: Mapping[str, np.ndarray] | None,
    model: Model,
    start_rows: Any,
) -> _Restarts:
    """The states after their starts, and empty sums."""
    state = start_each(start, keys, variables, model, (start_rows,))
    shapes = jax.eval_shape(jax.vmap(lambda own: memoised.sums(own, model, start_rows)), state)
    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return _Restarts(state, nothing, nothing, state)


@partial(compiled, static_argnums=0)
def _visit(
    memoised: Memoised,
    restarts: _Restarts,
    before: Any,
    running: Array,
    moves: Array,
    model: Model,
    rows: Any,
) -> tuple[_Restarts, Any]:
    """Visit one batch; restarts that have stopped stay unchanged, and so do states that are not to move."""

    def one(restart: _Restarts, before: Any, runs: Array, moves: Array) -> tuple[_Restarts, Any]:
        now = _where(runs, memoised.sums(restart.state, model, rows), before)
        sums = jax.tree.map(lambda total, old, new: total - old + new, restart.sums, before, now)
        state, _ = memoised.update(restart.state, sums, model)
        fresh = jax.tree.map(jnp.add, restart.fresh, now)
        return _Restarts(_where(moves, state, restart.state), sums, fresh, restart.settled), now

    return jax.vmap(one)(restarts, before, running, moves)


def _end_of_pass(
    memoised: Memoised, restarts: _Restarts, memo: list, running: Array, model: Model
) -> tuple[_Restarts, Any, list]:
    """The state at the exact sums, its objective, and everything in the order of components that is best."""
    restarts, info, order = _settle(memoised, restarts, running, model)
    if order is None:
        return restarts, info, memo
    return restarts, info, [_reordered(memoised, sums, order) for sums in memo]


@partial(compiled, static_argnums=0)
def _settle(
    memoised: Memoised, restarts: _Restarts, running: Array, model: Model
) -> tuple[_Restarts, Any, Array | None]:
    def one(restart: _Restarts, runs: Array) -> tuple[_Restarts, Any, Array | None]:
        order = memoised.best_order(restart.state, restart.fresh, model)
        sums = restart.fresh
        if order is not None:
            order = jnp.where(runs, order, jnp.arange(order.shape[0]))
            sums = memoised.reorder(sums, order)
        state, info = memoised.update(restart.state, sums, model)
        nothing = jax.tree.map(jnp.zeros_like, sums)
        return _Restarts(_where(runs, state, restart.state), sums, nothing, restart.settled), info, order

    return jax.vmap(one)(restarts, running)


@compiled
def _end_at_good_state(restarts: _Restarts, failed: Array) -> _Restarts:
    """A restart that failed goes back to the end of its last good pass."""
    state = jax.vmap(_where)(failed, restarts.settled, restarts.state)
    return restarts._replace(state=state, settled=state)


@partial(compiled, static_argnums=0)
def _reordered(memoised: Memoised, sums: Any, order: Array) -> Any:
    return jax.vmap(memoised.reorder)(sums, order)


def _layout(num_restarts: int, max_iterations: int, stream: Any, template: _Restarts) -> Layout:
    """The arrays of a checkpoint: those of an ascent, and every leaf of the sums of all batches."""
    memo = {f"memo_{i}": Kept((AtMost(None), *s.shape)) for i, s in enumerate(jax.tree.leaves(template.sums))}
    of_ascent = layout_of_ascent(num_restarts, max_iterations, batches=Kept((), "i"), **memo)
    num_batches = stream.num_batches

    def contradiction(stored: Mapping[str, np.ndarray]) -> str:
        if found := of_ascent.contradiction(stored):
            return found
        visited = int(stored["loop_batches"])
        passes = int(stored["progress_iteration"].max())
        held = {stored[f"loop_{name}"].shape[0] for name in memo}
        complete = visited if passes == 0 else num_batches
        if len(held) != 1 or not 0 <= visited <= max(held) or complete not in (None, *held):
            return f"it holds the sums of {max(held)} batches after {passes} passes and {visited} batches"
        return ""

    return of_ascent._replace(contradiction=contradiction)


def _memo_arrays(memo: list, nothing: Any) -> dict[str, np.ndarray]:
    """The sums of all batches, leaf by leaf, a leading axis over batches."""
    of_batches = [jax.tree.leaves(sums) for sums in memo]
    return {
        f"memo_{i}": np.stack([np.asarray(leaves[i]) for leaves in of_batches])
        if memo
        else np.zeros((0, *leaf.shape), leaf.dtype)
        for i, leaf in enumerate(jax.tree.leaves(nothing))
    }


def _restored_memo(loop: dict[str, np.ndarray], nothing: Any) -> list:
    if not loop:
        return []
    structure = jax.tree.structure(nothing)
    leaves = [loop[f"memo_{i}"] for i in range(len(jax.tree.leaves(nothing)))]
    return [jax.tree.unflatten(structure, map(jnp.asarray, parts)) for parts in zip(*leaves, strict=True)]


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
