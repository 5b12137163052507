r"""The loop of an ascent by noisy natural gradients: documents pass in batches, every batch moves the state.

After batch t the state is a mean of the state before and of the one that is optimal for the batch, taken for
the whole corpus, the latter with weight :math:`\rho_t = (\tau + t)^{-\kappa}` (Hoffman, Blei, Wang and
Paisley 2013).
An iteration of the trace is a pass over all documents; its objective is the sum of the documents' terms, each
at the state that it met, and of the divergences at the end of the pass: an estimate of the bound, which may
fall. After the last pass the documents are visited once more at the final state; the last objective is the
bound there.

Between two batches, and only there, the host looks at Ctrl-C and the checkpoint.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from inference.algorithm import AscentRun, NaturalGradient
from inference.driver.checkpoint import Checkpoint, Kept
from inference.driver.host import Interrupt, resume
from inference.driver.progress import (
    CONVERGED,
    NOT_FINITE,
    RUNNING,
    Progress,
    advanced,
    layout_of_ascent,
    restored,
    smallest_gain,
    stored,
    tolerated_fall,
)
from inference.numerics.compiled import compiled
from inference.processes import any_process
from zoo.model import Model, in_current_precision


def ascend_stochastically(
    stochastic: NaturalGradient,
    start: Callable,
    model: Model,
    stream: Any,
    *,
    key: Array,
    variables: Mapping[str, np.ndarray] | None,
    max_iterations: int,
    tolerance: float,
    rule: Callable,
    checkpoint: Checkpoint,
    open_bar: Callable,
    keep_rows: bool,
    place: Callable = lambda tree: tree,
) -> tuple[AscentRun, np.ndarray | None]:
    """Pass over all batches until the objective stops rising.

    Args:
        stochastic: the step.
        start: ``start(key, variables, model, documents) -> state``.
        model: passed to the step.
        stream: the documents.
        key: the run's key.
        variables: what the start is given.
        max_iterations: the most passes.
        tolerance: gain in nats per document below which a pass is small; 0: none is.
        rule: whether the run goes on after a pass, see `inference.driver.progress`.
        checkpoint: where to save and resume.
        open_bar: ``open_bar(total, done)``, a context that is told of passes and shows them.
        keep_rows: whether the documents' own parameters are returned.
        place: puts states and the model where the documents are.

    Raises:
        FloatingPointError: the objective is not finite.
    """
    run_key = key

    def put(counts: Any) -> Any:
        return in_current_precision(stream.blocks(counts))

    key, variables, model = place((key, variables, model))
    in_order = None if stream.is_chunked else np.arange(stream.num_rows)
    _, first = next(stream.batches(in_order))  # the same documents, whoever holds them
    begin = partial(_start, stochastic, start)
    layout = layout_of_ascent(1, max_iterations, batches=Kept((), "i"), score=Kept((), "f"))
    state, saved = resume(
        checkpoint, begin, key, variables, model, put(first), layout=lambda template: layout
    )
    state = place(state)
    progress, history, loop = restored(saved, 1)
    progress = Progress(*map(np.asarray, progress))
    passes = int(progress.iteration[0])
    visited, score = int(loop.get("batches", 0)), float(loop.get("score", 0.0))

    def save() -> None:
        checkpoint.save(state, stored(progress, history, batches=visited, score=score))

    with Interrupt() as interrupt, open_bar(max_iterations, passes) as bar:
        while passes < max_iterations and progress.status[0] == RUNNING:
            if any_process(interrupt.requested):
                break
            order = None if stream.is_chunked else _order(run_key, passes, stream.num_rows)
            for number, (first_row, counts) in enumerate(stream.batches(order)):
                if number < visited:  # before the run was cut
                    continue
                time = passes * stream.num_batches + number + 1
                share = counts.shape[0] / stream.num_rows
                state, gain = _compiled(stochastic.step, state, model, put(counts), share, float(time))
                visited, score = number + 1, score + float(gain)
                bar.set_postfix_str(f"document {first_row + counts.shape[0]}", refresh=False)
                if checkpoint.is_due():
                    save()
                if any_process(interrupt.requested):
                    break
            else:
                info = _objective_of(stochastic, state, model, score + stream.log_coefficient)
                small_gain = smallest_gain(stream.num_rows, tolerance)
                objective = np.array([info["objective"]])
                reached = advanced(rule, np, progress, objective, small_gain, tolerated_fall(None, False))
                if reached.status[0] == NOT_FINITE:
                    raise FloatingPointError(
                        f"the objective was not finite in pass {passes + 1}: check the scale of the priors"
                    )
                infos = {name: np.array([[value]]) for name, value in info.items()}
                history.add(progress.iteration, reached.iteration, infos)
                progress, passes, visited, score = reached, passes + 1, 0, 0.0
                bar.update(1)
    save()
    if passes == 0 and visited == 0:
        raise KeyboardInterrupt("interrupted before the first batch was complete")
    info, rows = _evaluated(stochastic, state, model, stream, put, keep_rows)
    trace = history.arrays() or {name: np.full((1, 1), np.nan) for name in info}
    for name, value in info.items():
        trace[name][0, -1] = value
    converged = bool(progress.status[0] == CONVERGED)
    stopped = any_process(interrupt.requested)
    reason = "converged" if converged else "interrupted" if stopped else "max_iterations"
    return AscentRun(state, trace, 0, converged, reason, passes, 0), rows


def _objective_of(stochastic: NaturalGradient, state: Any, model: Model, of_rows: float) -> dict[str, float]:
    """The recorded values at a state; ``of_rows`` is the rows' part of the objective."""
    total = _compiled(stochastic.total, state, model)
    info = {name: float(value) for name, value in total._asdict().items()}
    return info | {"objective": info["objective"] + of_rows}


def _evaluated(
    stochastic: NaturalGradient, state: Any, model: Model, stream: Any, put: Callable, keep_rows: bool
) -> tuple[dict[str, float], np.ndarray | None]:
    """The bound of all documents at a state, and their own parameters."""
    score, rows = 0.0, []
    for _, counts in stream.batches():
        own, gain = _compiled(stochastic.evaluate, state, model, put(counts))
        score += float(gain)
        if keep_rows:
            rows.append(np.asarray(own)[stream.places(counts)])
    info = _objective_of(stochastic, state, model, score + stream.log_coefficient)
    return info, np.concatenate(rows) if keep_rows else None


def _order(key: Array, number: int, num_rows: int) -> np.ndarray:
    """A random order of the documents, another one for each pass."""
    words = np.asarray(jax.random.key_data(jax.random.fold_in(key, number)))
    return np.random.default_rng(words.tolist()).permutation(num_rows)


@partial(compiled, static_argnums=(0, 1))
def _start(
    stochastic: NaturalGradient,
    start: Callable,
    key: Array,
    variables: Mapping[str, np.ndarray] | None,
    model: Model,
    documents: Any,
) -> Any:
    return stochastic.without_rows(start(key, variables, model, documents))


@partial(compiled, static_argnums=0)
def _compiled(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)
