"""The loop of an ascent: a step repeated on every restart until its objective stops rising.

A fresh start may ask for steps that come before the first that counts (`Algorithm.settling_steps`): the same
compiled steps, at iterations below zero, neither recorded nor judged. After its first steps and once it has
settled, a restart may be proposed states elsewhere (`Algorithm.propose`): it moves to where one step from one
leads higher. If none does, it may be asked for a better state (`Algorithm.improve`). The result of a restart
does not depend on where the run was cut into chunks.

A step that cannot be traced, such as a product of a sparse matrix by scipy, runs on the host: then restarts
run one after another, step by step, with the same keys and the same rule for every step, and no data are
copied. How chunks work is described in `inference.driver.chains`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import AscentRun, check_info
from inference.driver.checkpoint import Checkpoint, Layout, slots_of
from inference.driver.host import (
    CHUNK_CAPACITY,
    ChunkLength,
    Interrupt,
    resume,
    start_each,
    start_together,
    with_rows,
)
from inference.driver.progress import (
    CONVERGED,
    NOT_FINITE,
    RUNNING,
    SETTLED,
    Progress,
    advanced,
    best_run,
    layout_of_ascent,
    left_behind,
    restored,
    smallest_gain,
    stored,
    tolerated_fall,
)
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import with_padding
from inference.processes import agreed, any_process
from zoo.model import Model

EARLY = 40  # steps after which proposals are tried first, long before a restart settles
FEW_CELLS = 2**16  # of the data of all restarts
SHRINK_EVERY = 10  # steps: fixed, so that what comes of a run does not depend on where it was cut into chunks
LEAST_GAIN = 1e-3  # nats that a proposal must gain, beyond rounding
IMPROVE = 2**31 - 1  # no iteration has this number: the key of an improvement is no step's


class _Restarts(NamedTuple):
    """All restarts of an ascent; every leaf has a leading axis over restarts."""

    state: Any
    progress: Progress


def ascend(
    step: Callable,
    start: Callable,
    model: Model,
    data: tuple,
    *,
    keys: Array,
    variables: Mapping[str, np.ndarray] | None,
    num_rows: float,
    num_restarts: int,
    max_iterations: int,
    tolerance: float,
    must_rise: bool,
    rule: Callable,
    checkpoint: Checkpoint,
    open_bar: Callable,
    may_drop: bool = False,
    propose: Callable | None = None,
    improve: Callable | None = None,
    shrink: Callable | None = None,
    slot_axes: tuple[tuple[str, int], ...] = (),
    settling_steps: Callable | None = None,
    start_data: tuple | None = None,
    start_model: Model | None = None,
    of_rows: tuple[str, ...] = (),
    place: Callable = lambda tree: tree,
    on_host: bool = False,
) -> AscentRun:
    """Repeat a step on every restart until its objective stops rising; keep the restart that rose highest.

    Every restart takes a step before any takes the next; with ``may_drop``, and neither ``propose`` nor
    ``improve``, one that falls behind for good is stopped (`inference.driver.progress.left_behind`).

    Args:
        step: the step to repeat, of an `Algorithm`.
        start: ``start(key, variables, model, *data) -> state`` of one restart.
        model: passed to the step.
        data: passed to the step.
        keys: of the restarts, shape (num_restarts,).
        variables: what the starts are given, leaves with a leading axis over restarts.
        num_rows: what the tolerance is multiplied by.
        num_restarts: how many starts are run.
        max_iterations: the most steps a restart takes.
        tolerance: gain in nats per row below which a step is small; 0: none is.
        must_rise: whether a fall of the objective by more than rounding is an error.
        rule: whether a restart goes on after a step, see `inference.driver.progress`.
        checkpoint: where to save and resume.
        open_bar: ``open_bar(total, done)``, a context that is told of steps and shows them.
        may_drop: whether a restart that falls behind the others for good is stopped.
        propose: of an `Algorithm`: asked for states elsewhere after a restart's first `EARLY` steps and
            whenever it has settled; it has converged when none of them leads higher.
        improve: of an `Algorithm`: asked when no proposal leads higher.
        shrink: of an `Algorithm`: asked every few steps.
        slot_axes: of an `Algorithm`.
        settling_steps: of an `Algorithm`: asked of fresh starts.
        start_data: what the starts are given instead of ``data`` (which may lie on several devices); None:
            starts are made where the data are.
        start_model: what they are given instead of ``model``; None: that.
        of_rows: the paths of the leaves of a state that have an axis over rows; outside the compiled steps
            they have as many as ``start_data``.
        place: puts states and the model where ``data`` are.
        on_host: whether start and step run on the host instead of compiled.

    Raises:
        FloatingPointError: no restart has a finite objective after its first step.
    """
    own_model = model
    if start_data is None:  # starts are made where the data are
        keys, variables, model = place((keys, variables, model))
    begun_with = model if start_model is None else start_model, data if start_data is None else start_data
    held, size = (with_padding(part[0]).shape[0] if of_rows else 0 for part in (begun_with[1], data))
    cells = num_restarts * sum(np.size(leaf) for leaf in jax.tree.leaves(begun_with[1]))
    on_device = start_together if cells <= FEW_CELLS else start_each
    begin = partial(_start_on_host if on_host else on_device, start)
    plain = layout_of_ascent(num_restarts, max_iterations)

    def layout(template: Any) -> Layout:
        slots, most = slots_of(template, slot_axes)
        return plain._replace(slot_axes=slots, most_slots=most)

    state, saved = resume(
        *(checkpoint, begin, keys, variables, *begun_with),
        layout=layout,
        traced=not on_host,
    )
    progress, history, _ = restored(saved, num_restarts)
    if saved is None and settling_steps is not None:
        progress = progress._replace(iteration=progress.iteration - np.asarray(settling_steps(state)))
    restarts, keys, model = place((_Restarts(with_rows(state, of_rows, size), progress), keys, model))
    small_gain = smallest_gain(num_rows, tolerance)
    slack = tolerated_fall(progress.objective.dtype, must_rise)
    may_move = propose is not None or improve is not None
    bounds = max_iterations, small_gain, slack, SETTLED if may_move else CONVERGED
    may_drop &= num_restarts > 1 and not may_move  # else what comes of a restart depends on chunks
    run_chunk = partial(_ascend_chunk_on_host if on_host else _ascend_chunk, (step, rule, may_drop))
    if to_come := int(-np.min(progress.iteration, initial=0)):
        restarts, _ = run_chunk(restarts, keys, (to_come, 0, *bounds[1:]), model, data)

    def take_a_step(trial: _Restarts) -> _Restarts:
        return run_chunk(place(trial), keys, (1, *bounds), model, data)[0]

    chunk = ChunkLength()
    interrupted = False  # in any process
    begun = int(np.asarray(restarts.progress.iteration).max())
    with Interrupt() as interrupt, open_bar(max_iterations, begun) as bar:
        while _steps_left(restarts, max_iterations):
            if interrupted := any_process(interrupt.requested):
                break
            before = np.asarray(restarts.progress.iteration)
            limit = min(agreed(chunk.length), _steps_left(restarts, max_iterations))
            limit = min(limit, checkpoint.until_next(int(before.max())))
            if shrink is not None:
                limit = min(limit, SHRINK_EVERY - int(before.max()) % SHRINK_EVERY)
            if propose is not None:
                limit = min(limit, _until_early(restarts))
            with chunk:
                restarts, infos = run_chunk(restarts, keys, (limit, *bounds), model, data)
                after = np.asarray(restarts.progress.iteration)
            most = int((after - before).max())
            infos = {name: np.asarray(value)[:, :most] for name, value in infos._asdict().items()}
            history.add(before, after, infos)
            if propose is not None and (asked := _asking(restarts, before)).size:
                restarts = place(_try_proposals(propose, restarts, asked, take_a_step, own_model))
            if _have_settled(restarts):
                restarts = place(_improve_settled(improve, restarts, keys, model, data))
            if shrink is not None and int(after.max()) % SHRINK_EVERY == 0:
                smaller = shrink(restarts.state, model)
                restarts = restarts if smaller is None else restarts._replace(state=smaller)
            bar.update(int(after.max() - before.max()))
            bar.set_postfix_str(
                f"objective {float(np.nanmax(np.asarray(restarts.progress.objective))):.6g}", refresh=False
            )
            if checkpoint.is_due():
                checkpoint.save(with_rows(restarts.state, of_rows, held), stored(restarts.progress, history))
    state = with_rows(restarts.state, of_rows, held)
    checkpoint.save(state, stored(restarts.progress, history))
    if not history:
        raise KeyboardInterrupt("interrupted before the first step was complete")
    own = state, restarts.progress, history.arrays(), interrupted
    return best_run(*own, num_rows=num_rows)


def _steps_left(restarts: _Restarts, max_iterations: int) -> int:
    """The most steps that a running restart may still take."""
    status, iteration = np.asarray(restarts.progress.status), np.asarray(restarts.progress.iteration)
    return int(np.where(status == RUNNING, max_iterations - iteration, 0).max())


def _until_early(restarts: _Restarts) -> int:
    """Steps until a running restart has taken the first `EARLY`; many where none is before them."""
    status, iteration = np.asarray(restarts.progress.status), np.asarray(restarts.progress.iteration)
    to_come = EARLY - iteration[(status == RUNNING) & (iteration < EARLY)]
    return int(to_come.min(initial=CHUNK_CAPACITY))


def _asking(restarts: _Restarts, before: np.ndarray) -> np.ndarray:
    """The restarts for which proposals are tried: the settled ones, and those after their first steps."""
    status, iteration = np.asarray(restarts.progress.status), np.asarray(restarts.progress.iteration)
    is_early = (status == RUNNING) & (before < EARLY) & (iteration == EARLY)
    return np.flatnonzero((status == SETTLED) | is_early)


def _have_settled(restarts: _Restarts) -> bool:
    return bool((np.asarray(restarts.progress.status) == SETTLED).any())


def _try_proposals(
    propose: Callable, restarts: _Restarts, asked: np.ndarray, take_a_step: Callable, model: Model
) -> _Restarts:
    """Restarts moved to where their proposals lead if that is higher, to run on from there.

    What comes of it depends on the restart alone, not on where chunks were cut.
    """
    kept = jax.tree.map(np.asarray, restarts)
    proposals, answer = propose(kept.state, asked, model), None
    while True:
        try:
            states, tried = proposals.send(answer)
        except StopIteration:
            return kept
        at = kept.progress
        status = np.where(tried, RUNNING, CONVERGED).astype(at.status.dtype)
        trial = at._replace(objective=np.full_like(at.objective, -np.inf), status=status)
        reached = jax.tree.map(np.asarray, take_a_step(_Restarts(states, trial)))
        objective = reached.progress.objective
        least = LEAST_GAIN + 100 * np.finfo(objective.dtype).eps * np.abs(at.objective)
        taken = objective > at.objective + least  # of a restart without a proposal it is -inf
        if taken.any():
            improvements = at.improvements + 1
            moved = Progress(objective, np.zeros_like(at.small_steps), at.iteration, status, improvements)
            kept = jax.tree.map(partial(_chosen, taken), _Restarts(reached.state, moved), kept)
        answer = kept.state, taken


def _chosen(which: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    """What some restarts hold in one array and the others in another."""
    return np.where(which.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)


def _ended(restarts: _Restarts) -> _Restarts:
    """Every settled restart converged."""
    at = restarts.progress
    status = np.asarray(at.status)
    status = np.where(status == SETTLED, np.asarray(CONVERGED, status.dtype), status)
    return restarts._replace(progress=at._replace(status=status))


def _improve_settled(
    improve: Callable | None, restarts: _Restarts, keys: Array, model: Model, data: tuple
) -> _Restarts:
    """Every settled restart moved to a better state, to run on from there, or else converged.

    What comes of it depends on the restart alone, not on where chunks were cut.
    """
    if improve is None:
        return _ended(restarts)
    for number in np.flatnonzero(np.asarray(restarts.progress.status) == SETTLED):
        restarts = _improve_restart(improve, restarts, keys, number, model, data)
    return restarts


@partial(compiled, static_argnums=0)
def _improve_restart(
    improve: Callable, restarts: _Restarts, keys: Array, number: Array, model: Model, data: tuple
) -> _Restarts:
    own = jax.tree.map(lambda leaf: leaf[number], restarts)
    at = own.progress
    key = jax.random.fold_in(jax.random.fold_in(keys[number], at.iteration), IMPROVE)
    state, objective, better = improve(key, own.state, model, *data)
    stay = own._replace(progress=at._replace(status=jnp.full_like(at.status, CONVERGED)))
    moved = Progress(
        jnp.maximum(objective, at.objective),
        jnp.zeros_like(at.small_steps),
        at.iteration,
        jnp.full_like(at.status, RUNNING),
        at.improvements + 1,
    )
    go = _Restarts(state, moved)
    return jax.tree.map(lambda all_, one: all_.at[number].set(one), restarts, _where(better, go, stay))


@partial(compiled, repeats=True, static_argnums=0)
def _ascend_chunk(
    functions: tuple, restarts: _Restarts, keys: Array, bounds: tuple, model: Model, data: tuple
) -> tuple[_Restarts, Any]:
    """Up to ``limit`` steps of every running restart; a restart that has stopped keeps its state.

    The bounds are the limit, ``max_iterations``, the smallest gain, the tolerated fall and the status of a
    restart that has converged. What is recorded starts, for each restart, with its first step of the chunk.
    """
    step, rule, may_drop = functions
    limit, max_iterations, *verdict = bounds
    step = jax.jit(step)  # so that it is traced once, not once for its shapes and once for its body

    def advance(restart: _Restarts, key: Array) -> tuple[_Restarts, Any]:
        at = restart.progress
        state, info = step(jax.random.fold_in(key, at.iteration), restart.state, model, *data)
        check_info(info)
        reached = advanced(rule, jnp, at, info.objective, *verdict)
        # computed once, not anew beside each of the many arrays that they choose between
        failed, runs, reached = jax.lax.optimization_barrier(
            (reached.status >= NOT_FINITE, _runs(at), reached)
        )
        chosen = _Restarts(_where(failed, restart.state, state), reached)
        return _where(runs, chosen, restart), info

    def _runs(at: Progress) -> Array:
        return (at.status == RUNNING) & (at.iteration < max_iterations)

    many = jax.vmap(advance) if _side_by_side() else _in_turn(advance, lambda own: _runs(own.progress))
    shapes = jax.eval_shape(many, restarts, keys)[1]
    buffers = jax.tree.map(lambda s: jnp.zeros((*s.shape, CHUNK_CAPACITY), s.dtype), shapes)

    began, which = restarts.progress.iteration, jnp.arange(keys.shape[0])

    def body(carry: tuple) -> tuple:
        restarts, buffers, count = carry
        at = restarts.progress
        slot = jnp.where(_runs(at), at.iteration - began, CHUNK_CAPACITY)  # past the end: dropped
        restarts, info = many(restarts, keys)
        if may_drop:
            restarts = restarts._replace(progress=left_behind(at, restarts.progress, max_iterations))
        buffers = jax.tree.map(
            lambda buffer, value: buffer.at[which, slot].set(value, mode="drop"), buffers, info
        )
        return restarts, buffers, count + 1

    def running(carry: tuple) -> Array:
        restarts, _, count = carry
        return (count < limit) & jnp.any(_runs(restarts.progress))

    return jax.lax.while_loop(running, body, (restarts, buffers, jnp.zeros((), int)))[:2]


def _side_by_side() -> bool:
    """Whether all restarts take a step at once, as on an accelerator; on a CPU they take it in turn."""
    return jax.default_backend() != "cpu"


def _in_turn(advance: Callable, runs: Callable) -> Callable:
    """``jax.vmap`` as a loop over restarts: one that has stopped costs nothing, and branches stay branches.

    On a CPU a batched product costs more than its parts one after another, and under ``jax.vmap`` every
    restart takes both branches of a condition and as many iterations of a loop as the slowest.
    """

    def one(restart: _Restarts, key: Array) -> tuple[_Restarts, Any]:
        shapes = jax.eval_shape(advance, restart, key)[1]
        nothing = jax.tree.map(lambda own: jnp.zeros(own.shape, own.dtype), shapes)
        return jax.lax.cond(runs(restart), advance, lambda restart, _: (restart, nothing), restart, key)

    def many(restarts: _Restarts, keys: Array) -> tuple[_Restarts, Any]:
        if keys.shape[0] > 1:
            return jax.lax.map(lambda own: one(*own), (restarts, keys))
        restart, info = advance(jax.tree.map(lambda leaf: leaf[0], restarts), keys[0])
        return jax.tree.map(lambda leaf: leaf[None], (restart, info))

    return many


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), yes, no)


def _start_on_host(
    start: Callable, keys: Array, variables: Mapping[str, np.ndarray] | None, model: Model, data: tuple
) -> Any:
    """The states of all restarts, leaves with a leading axis over them."""
    given = (jax.tree.map(lambda leaf, n=n: leaf[n], variables) for n in range(len(keys)))
    return _stacked([start(key, own, model, *data) for key, own in zip(keys, given, strict=True)])


def _ascend_chunk_on_host(
    functions: tuple, restarts: _Restarts, keys: Array, bounds: tuple, model: Model, data: tuple
) -> tuple[Any, Any]:
    """`_ascend_chunk` with the same arguments and results, not compiled."""
    step, rule, _ = functions
    limit, max_iterations, *verdict = bounds
    after, recorded = [], []
    for number, key in enumerate(keys):
        own = jax.tree.map(lambda leaf, number=number: np.asarray(leaf[number]), restarts)
        infos: list[Any] = []
        while (at := own.progress).status == RUNNING and at.iteration < max_iterations and len(infos) < limit:
            state, info = step(jax.random.fold_in(key, at.iteration), own.state, model, *data)
            with np.errstate(invalid="ignore"):
                reached = advanced(rule, np, at, np.asarray(info.objective), *verdict)
            failed = reached.status >= NOT_FINITE
            own = own._replace(state=own.state if failed else state, progress=reached)
            infos.append(jax.tree.map(np.asarray, info))
        after.append(own)
        recorded.append(infos)
    longest = max(map(len, recorded))
    kinds = next(infos[0] for infos in recorded if infos)
    empty = jax.tree.map(lambda leaf: np.full_like(leaf, 0), kinds)
    padded = [infos + [empty] * (longest - len(infos)) for infos in recorded]
    columns = [jax.tree.map(lambda *leaves: np.stack(leaves), *infos) for infos in padded]
    return _stacked(after), _stacked(columns)


def _stacked(trees: list) -> Any:
    """Leaves with a leading axis; of one tree its own memory."""
    if len(trees) == 1:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], trees[0])
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
