"""The progress of the restarts of an ascent: one record for every loop, on a device or on the host.

The loops do not decide when to stop. They are given a rule, ``rule(numbers, progress, objective, small_gain,
slack, settled) -> (small_steps, status)``, with ``numbers`` either `jax.numpy` or `numpy`, and apply it after
each step (`advanced`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, dtypes

from inference.algorithm import AscentRun
from inference.driver.checkpoint import AtMost, Kept, Layout

#: What is judged of every restart: arrays of NumPy or of JAX, or one number
type Numbers = np.ndarray | Array | float

RUNNING, CONVERGED, SETTLED, NOT_FINITE, FELL = range(5)  # a restart of status NOT_FINITE or more has failed
DROPPED = -1
TRIAL_STEPS = 30  # before a restart may be left behind
TIE = 1e-9  # nats per row: restarts that reach one optimum end so near, and which is higher is rounding
CLOSE = 2.0  # nats below the best: a restart so near is never left behind, because it may tell another answer


class Progress(NamedTuple):
    """The progress of each restart; every field has a leading axis over restarts.

    Attributes:
        objective: of the state that the restart holds, nats: a failed step leaves it as it was.
        small_steps: consecutive steps of little gain.
        iteration: steps (or passes) taken; below zero as many are still to come that are not judged.
        status: `RUNNING`, `CONVERGED`, `SETTLED` (to be asked for a better state), `DROPPED` (left behind by
            another restart), `NOT_FINITE` or `FELL`.
        improvements: how often a settled state was moved to a better one.
    """

    objective: Array | np.ndarray
    small_steps: Array | np.ndarray
    iteration: Array | np.ndarray
    status: Array | np.ndarray
    improvements: Array | np.ndarray


def new_progress(num_restarts: int) -> Progress:
    """Progress before the first step, in arrays of strong types: every chunk is compiled as the first."""
    zeros = np.zeros(num_restarts, dtypes.canonicalize_dtype(int))
    unknown = np.full(num_restarts, -np.inf, dtypes.canonicalize_dtype(float))
    return Progress(unknown, zeros, zeros, zeros, zeros)


def smallest_gain(num_rows: float, tolerance: float) -> float:
    """The gain in nats below which a step is small; minus infinity at tolerance 0: no step is."""
    return num_rows * tolerance if tolerance > 0 else -np.inf


def tolerated_fall(dtype: Any, must_rise: bool = True) -> float:
    """The relative fall of an objective that is no error: rounding, or any where it need not rise."""
    if not must_rise:
        return np.inf
    return 1e-8 if dtype == jnp.float64 else 2e-4


def advanced(
    rule: Callable,
    numbers: ModuleType,
    progress: Progress,
    objective: Numbers,
    small_gain: Numbers,
    slack: Numbers,
    settled: Numbers = CONVERGED,
) -> Progress:
    """Progress after a step, elementwise over restarts; ``settled`` is the status of one that converged."""
    small_steps, status = rule(numbers, progress, objective, small_gain, slack, settled)
    unjudged = progress.iteration < 0
    stays = unjudged | (status >= NOT_FINITE)
    return Progress(
        numbers.where(stays, progress.objective, objective),
        numbers.where(stays, progress.small_steps, small_steps),
        progress.iteration + 1,
        numbers.where(unjudged, progress.status, status),
        progress.improvements,
    )


def left_behind(before: Progress, after: Progress, max_iterations: np.ndarray | Array) -> Progress:
    """Progress in which restarts that fall behind for good have stopped.

    One falls behind where, at the gain of its last step, ``max_iterations`` would not bring it to the best
    objective of all restarts. It is given `TRIAL_STEPS` first.

    Args:
        before: of all restarts, before a step.
        after: and after it.
        max_iterations: the most steps.
    """
    best = jnp.max(jnp.where(jnp.isfinite(after.objective), after.objective, -jnp.inf))
    lag = best - after.objective
    reach = (max_iterations - after.iteration) * jnp.maximum(after.objective - before.objective, 0.0)
    moved = after.iteration > before.iteration
    hopeless = moved & (after.iteration >= TRIAL_STEPS) & (lag > jnp.maximum(reach, CLOSE))
    status = jnp.where((after.status == RUNNING) & hopeless, DROPPED, after.status)
    return after._replace(status=status)


class History:
    """The recorded values of all steps so far; restarts need not have taken the same number of steps."""

    def __init__(self) -> None:
        """Begin with no steps."""
        self._chunks: list[tuple[np.ndarray, np.ndarray, Mapping[str, np.ndarray]]] = []

    def __bool__(self) -> bool:
        """Whether anything is recorded."""
        return bool(self._chunks)

    def add(self, before: Any, after: Any, infos: Mapping[str, Any]) -> None:
        """Append the values of a chunk of steps.

        Args:
            before: iterations of each restart before the chunk.
            after: and after it.
            infos: name to values, shape (num_restarts, steps).
        """
        self._chunks.append((np.asarray(before), np.asarray(after), infos))

    def arrays(self) -> dict[str, np.ndarray]:
        """All values by name.

        Returns:
            Arrays of shape (num_restarts, num_iterations), NaN after a restart has stopped.
        """
        if not self._chunks:
            return {}
        last = self._chunks[-1][1]
        trace = {name: np.full((last.size, int(last.max())), np.nan) for name in self._chunks[0][2]}
        for before, after, infos in self._chunks:
            for name, values in infos.items():
                for restart, (begin, end) in enumerate(zip(before, after, strict=True)):
                    trace[name][restart, begin:end] = np.asarray(values)[restart, : end - begin]
        return trace


def stored(progress: Progress, history: History, **others: Any) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint beside the state: progress, history, and numbers of the loop itself."""
    arrays = {f"progress_{name}": np.asarray(value) for name, value in progress._asdict().items()}
    arrays |= {f"trace_{name}": values for name, values in history.arrays().items()}
    return arrays | {f"loop_{name}": np.asarray(value) for name, value in others.items()}


def layout_of_ascent(num_restarts: int, max_iterations: int, **others: Kept) -> Layout:
    """The arrays that `stored` makes: what a checkpoint of an ascent may hold beside the state.

    Args:
        num_restarts: of the run.
        max_iterations: of the run.
        **others: the numbers of the loop itself, as they are passed to `stored`; a name may end in a star.
    """
    numbers = {"objective": "f"}
    of_each = {f"progress_{name}": Kept((num_restarts,), numbers.get(name, "i")) for name in Progress._fields}
    trace = {"trace_*": Kept((num_restarts, AtMost(max_iterations)))}
    of_loop = {f"loop_{name}": kept for name, kept in others.items()}
    return Layout(of_each | trace | of_loop, partial(_contradiction, max_iterations))


def _contradiction(max_iterations: int, arrays: Mapping[str, np.ndarray]) -> str:
    """What does not go together in the arrays of an ascent."""
    iteration, status = arrays["progress_iteration"], arrays["progress_status"]
    if iteration.max() > max_iterations:
        return f"a restart has taken {iteration.max()} steps of at most {max_iterations}"
    if iteration.min() < 0:  # steps that are not judged come before the first save
        return f"a restart has taken {iteration.min()} steps"
    if status.min() < DROPPED or status.max() > FELL or (status == DROPPED).all():
        return "the status of a restart is none"
    steps = int(iteration.max())
    trace = beginning_with("trace_", arrays)
    if steps and "objective" not in trace:
        return "it lacks trace_objective"
    for name, values in trace.items():
        if values.shape[1] != steps:
            return f"trace_{name} is of {values.shape[1]} steps and {steps} were taken"
    return ""


def restored(
    arrays: Mapping[str, np.ndarray] | None, num_restarts: int
) -> tuple[Progress, History, dict[str, np.ndarray]]:
    """Progress, history and the loop's numbers from a checkpoint, or those of a fresh run."""
    progress, history = new_progress(num_restarts), History()
    if arrays is None:
        return progress, history, {}
    saved = beginning_with("progress_", arrays)
    progress = Progress(*(np.asarray(saved[n], fresh.dtype) for n, fresh in progress._asdict().items()))
    trace = beginning_with("trace_", arrays)
    if trace:
        history.add(np.zeros(num_restarts, int), progress.iteration, trace)
    return progress, history, beginning_with("loop_", arrays)


def beginning_with(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def best_run(
    states: Any,
    progress: Progress,
    trace: dict[str, np.ndarray],
    interrupted: bool,
    unit: str = "iteration",
    num_rows: float = 0.0,
) -> AscentRun:
    """The restart with the highest objective, the first of those that tie, and why it stopped.

    Args:
        states: of all restarts, leaves with a leading axis over them.
        progress: of all restarts.
        trace: of all restarts.
        interrupted: whether the run was.
        unit: the name of a step, for messages.
        num_rows: restarts within `TIE` nats of the highest for each of so many rows tie with it.

    Raises:
        FloatingPointError: no restart has a finite objective.
    """
    objective, small_steps, iteration, status, improvements = map(np.asarray, progress)
    if not np.isfinite(objective).any():
        raise FloatingPointError(
            "the objective is not finite after the first step, at every restart: check the scale of data and "
            "priors, and how far they lie from each other, or give another start by init="
        )
    ends = np.where(status == DROPPED, -np.inf, objective)
    best = int((ends >= ends.max() - TIE * num_rows).argmax())
    end = int(iteration[best])
    reason = {
        RUNNING: "interrupted" if interrupted else "max_iterations",
        CONVERGED: "converged",
        SETTLED: "interrupted",
        NOT_FINITE: f"the objective was not finite at {unit} {end}; this is the state before it",
        FELL: f"the objective fell at {unit} {end}; this is the state before it",
    }[int(status[best])]
    state = jax.tree.map(partial(_own, best), states)
    converged = bool(status[best] == CONVERGED)
    return AscentRun(state, trace, best, converged, reason, end, int(improvements[best]))


def _own(number: int, leaf: Any) -> Any:
    """The part of one restart: on the host, without a program of its own, where the host can hold it."""
    on_host = isinstance(leaf, np.ndarray) or (
        leaf.is_fully_addressable and not jnp.issubdtype(leaf.dtype, dtypes.extended)
    )
    return np.asarray(leaf)[number] if on_host else leaf[number]
