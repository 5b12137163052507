r"""The loop of an ascent by noisy natural gradients: documents pass in batches, every batch moves the state.

After batch t the state is a mean of what it was and of what the batch, taken for the whole corpus, makes
optimal, the latter with weight :math:`\rho_t = (\tau + t)^{-\kappa}` (Hoffman, Blei, Wang and Paisley 2013).
An iteration of the trace is a pass over all documents; its objective is the sum of the documents' terms, each
at the state that it met, and of the divergences at the end of the pass: an estimate of the bound, which may
fall. After the last pass the documents are visited once more at the final state; the last objective is the
bound there.

Between two batches, and only there, the host looks at Ctrl-C and the checkpoint.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from inference.algorithm import Method, Outcome, Stochastic
from inference.ascent import SMALL_STEPS, Ascent
from inference.checkpoint import Checkpoint
from inference.count_stream import CountStream
from inference.lanes import lane_keys, resume
from inference.pacing import Interrupt, progress_bar
from inference.precision import to_numpy
from inference.results import row_limit
from zoo.model import Model, in_current_precision

__all__ = ["ascend_stochastically", "drive_stochastically", "with_lengths"]


class _Progress(NamedTuple):
    """How far the run is, on the host."""

    passes: int  # complete ones
    batches: int  # visited in the present pass
    score: float  # of the documents visited in the present pass, nats
    small_steps: int


def drive_stochastically(
    method: Method,
    model: Model,
    stream: CountStream,
    *,
    start: Callable,
    key: Array,
    variables: Any,
    settings: dict[str, Any],
    options: dict[str, Any],
    checkpoint: Checkpoint,
    progress: bool,
    keep: tuple[str, ...],
) -> tuple[Ascent, Outcome, tuple | None]:
    """Run and conclude.

    Returns:
        The ascent, the outcome, and the documents if the fit is to hold them.
    """
    run_key, conclude_key = jax.random.split(key)
    stochastic = method.stochastic(**options)
    in_memory = not stream.is_chunked
    per_row = 8 * model.num_topics
    holds_rows = in_memory and row_limit(stream.num_rows * per_row, "doc_topic_concentration", keep)
    result, rows = ascend_stochastically(
        stochastic,
        start,
        model,
        stream,
        key=lane_keys(run_key, 1)[0],
        variables={name: value[0] for name, value in (variables or {}).items()},
        max_iterations=settings["max_iterations"],
        tolerance=settings["tolerance"],
        checkpoint=checkpoint,
        progress=progress,
        keep_rows=holds_rows,
    )
    state = result.state if rows is None else stochastic.with_rows(result.state, rows)
    data = (stream.source,) if in_memory else ()
    num_samples = settings["num_samples"]
    keep_rows = holds_rows and row_limit(num_samples * stream.num_rows, "doc_topic_probs", keep)
    outcome = method.conclude(conclude_key, state, model, data, num_samples, keep_rows, **options)
    on_host = {name: to_numpy(dict(getattr(outcome, name))) for name in ("posterior", "variational")}
    return result, outcome._replace(**on_host), data or None


def with_lengths(model: Model, lengths: np.ndarray) -> Model:
    """The model with the documents' lengths, unless it was given others."""
    if model.num_tokens is not None:
        return model
    return replace(model, num_tokens=tuple(int(length) for length in lengths))


def ascend_stochastically(
    stochastic: Stochastic,
    start: Callable,
    model: Any,
    stream: CountStream,
    *,
    key: Array,
    variables: Any,
    max_iterations: int,
    tolerance: float,
    checkpoint: Checkpoint,
    progress: bool,
    keep_rows: bool,
) -> tuple[Ascent, np.ndarray | None]:
    """Pass over all batches until the objective stops rising.

    Args:
        stochastic: the step.
        start: ``start(key, variables, model, documents) -> state``.
        model: passed to the step.
        stream: the documents.
        key: the run's key.
        variables: what the start is given.
        max_iterations: the most passes.
        tolerance: gain in nats per document and pass; converged after five consecutive passes that gain less.
            0: never.
        checkpoint: where to save and resume.
        progress: whether to show a bar.
        keep_rows: whether the documents' own parameters are returned.

    Raises:
        FloatingPointError: the objective is not finite.
    """

    def put(counts: Any) -> Any:
        return in_current_precision(stream.blocks(counts))

    _, first = next(stream.batches())
    begin = partial(_start, stochastic, start)
    state, stored = resume(checkpoint, begin, key, variables, model, put(first))
    trace, at = _restored(stored)
    converged = at.small_steps >= SMALL_STEPS
    with Interrupt() as interrupt, progress_bar(progress, max_iterations, at.passes) as bar:
        while at.passes < max_iterations and not converged and not interrupt.requested:
            order = None if stream.is_chunked else _order(key, at.passes, stream.num_rows)
            for number, (first_row, counts) in enumerate(stream.batches(order)):
                if number < at.batches:  # visited before the run was cut
                    continue
                time = at.passes * -(-stream.num_rows // stream.batch_size) + number + 1
                share = counts.shape[0] / stream.num_rows
                state, score = _visit(stochastic.step, state, model, put(counts), share, float(time))
                at = at._replace(batches=number + 1, score=at.score + float(score))
                bar.set_postfix_str(f"document {first_row + counts.shape[0]}", refresh=False)
                if checkpoint.is_due():
                    checkpoint.save(state, _stored(trace, at))
                if interrupt.requested:
                    break
            else:
                info = _total(stochastic.total, state, model)._asdict()
                info["objective"] += at.score + stream.log_coefficient
                if not np.isfinite(info["objective"]):
                    raise FloatingPointError(
                        f"the objective was not finite in pass {at.passes + 1}: check the scale of the priors"
                    )
                before = trace["objective"][-1] if trace else -np.inf
                small = float(info["objective"]) - before < tolerance * stream.num_rows
                for name, value in info.items():
                    trace.setdefault(name, []).append(float(value))
                at = _Progress(at.passes + 1, 0, 0.0, at.small_steps + 1 if small and tolerance > 0 else 0)
                converged = at.small_steps >= SMALL_STEPS
                bar.update(1)
    checkpoint.save(state, _stored(trace, at))
    if not at.passes and not at.batches:
        raise KeyboardInterrupt("interrupted before the first batch was complete")
    info, rows = _evaluated(stochastic, state, model, stream, put, keep_rows)
    for name, value in info.items():
        trace[name] = [*trace.get(name, [np.nan])[:-1], value]
    reason = "converged" if converged else "interrupted" if interrupt.requested else "max_iterations"
    arrays = {name: np.asarray(values)[None] for name, values in trace.items()}
    return Ascent(state, arrays, 0, converged, reason, at.passes, 0), rows


def _evaluated(
    stochastic: Stochastic, state: Any, model: Any, stream: CountStream, put: Callable, keep_rows: bool
) -> tuple[dict[str, float], np.ndarray | None]:
    """The bound of all documents at a state, and their own parameters."""
    score, rows = 0.0, []
    for _, counts in stream.batches():
        own, gain = _evaluate(stochastic.evaluate, state, model, put(counts))
        score += float(gain)
        if keep_rows:
            rows.append(np.asarray(own)[: counts.shape[0]])
    info = {name: float(value) for name, value in _total(stochastic.total, state, model)._asdict().items()}
    info["objective"] += score + stream.log_coefficient
    return info, np.concatenate(rows) if keep_rows else None


def _order(key: Array, number: int, num_rows: int) -> np.ndarray:
    """A random order of the documents, of each pass its own."""
    words = np.asarray(jax.random.key_data(jax.random.fold_in(key, number)))
    return np.random.default_rng(words.tolist()).permutation(num_rows)


@partial(jax.jit, static_argnums=(0, 1))
def _start(
    stochastic: Stochastic, start: Callable, key: Array, variables: Any, model: Any, documents: Any
) -> Any:
    return stochastic.without_rows(start(key, variables, model, documents))


@partial(jax.jit, static_argnums=0)
def _visit(step: Callable, state: Any, model: Any, documents: Any, share: Array, time: Array) -> Any:
    return step(state, model, documents, share, time)


@partial(jax.jit, static_argnums=0)
def _evaluate(evaluate: Callable, state: Any, model: Any, documents: Any) -> Any:
    return evaluate(state, model, documents)


@partial(jax.jit, static_argnums=0)
def _total(total: Callable, state: Any, model: Any) -> Any:
    return total(state, model)


# Checkpoints


def _stored(trace: dict[str, list], at: _Progress) -> dict[str, np.ndarray]:
    arrays = {f"progress_{name}": np.asarray(value) for name, value in at._asdict().items()}
    return arrays | {f"trace_{name}": np.asarray(values) for name, values in trace.items()}


def _restored(stored: dict[str, np.ndarray] | None) -> tuple[dict[str, list], _Progress]:
    if stored is None:
        return {}, _Progress(0, 0, 0.0, 0)
    at = _Progress(*(stored[f"progress_{name}"].item() for name in _Progress._fields))
    return {name[6:]: value.tolist() for name, value in stored.items() if name.startswith("trace_")}, at
