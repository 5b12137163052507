"""A fit whose rows pass in batches: what `inference.front_door` does differently then."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.algorithm import Algorithm, Method, Outcome
from inference.ascent import Ascent, ascend, last_of
from inference.checkpoint import Checkpoint
from inference.count_stream import CountStream
from inference.devices import deal_out, on_all_devices, on_one_device
from inference.memoised import ascend_in_batches
from inference.precision import to_numpy
from inference.results import row_limit
from inference.row_stream import Batch, RowStream, is_chunked
from inference.rows import Rows, checked_weight
from inference.tables import as_arrays
from zoo.argument_checks import check_size
from zoo.model import Model, in_current_precision
from zoo.sparse_counts import SparseCounts

__all__ = [
    "drive_in_batches",
    "open_documents",
    "open_stream",
    "passes_in_batches",
    "rows_to_begin_with",
    "warmed_up",
]

WARM_UP_STEPS, WARM_UP_TOLERANCE = 1000, 1e-5  # nats per row
SCALE_ROWS = 100_000  # of a file or of chunks, from which data-dependent default priors are read


def passes_in_batches(data: tuple, batch_size: int | None) -> bool:
    """Whether the rows of a fit pass in batches.

    Raises:
        ValueError: chunks without a batch size.
    """
    if batch_size is None and any(is_chunked(part) for part in data):
        raise ValueError("data that come in chunks are fitted in batches: give batch_size, such as 10_000")
    return batch_size is not None


def open_documents(
    data: tuple, batch_size: int, sample_weight: Any, model: Model
) -> tuple[CountStream, dict[str, Any]]:
    """The documents of a fit as batches, and the names of words and documents.

    Raises:
        TypeError: a batch size that is no whole number, data in several parts, or no counts.
        ValueError: a batch size below 1, weights, or documents that do not suit.
    """
    _check_batches(data, batch_size)
    if sample_weight is not None:
        raise ValueError("documents in batches do not take sample_weight")
    stream = CountStream(data[0], int(batch_size), model.num_topics)
    return stream, stream.coords


def _check_batches(data: tuple, batch_size: Any) -> None:
    """Raise TypeError or ValueError unless the batch size suits, and the data are of one part."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer):
        raise TypeError(f"batch_size must be a whole number of rows; got {batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}")
    if len(data) != 1:
        raise TypeError(f"batch_size goes with data of one part; got {len(data)}")


def open_stream(data: tuple, batch_size: int, sample_weight: Any) -> tuple[RowStream, dict[str, Any]]:
    """The rows of a fit as batches, and the names of its columns.

    Raises:
        TypeError: a batch size that is no whole number, sparse rows, or data in several parts.
        ValueError: a batch size below 1, weights that do not go with the rows, no rows.
    """
    check_size("batch_size", batch_size)
    if len(data) != 1:
        raise TypeError(f"batch_size goes with data of one part; got {len(data)}")
    (source,) = data
    if isinstance(source, SparseCounts) or hasattr(source, "tocoo"):
        raise TypeError("batch_size takes dense rows; sparse counts are fitted whole, without batch_size")
    coords: dict[str, Any] = {}
    if not is_chunked(source) and not (hasattr(source, "shape") and not hasattr(source, "columns")):
        (source,), coords = as_arrays(data)  # a table or nested lists
    if sample_weight is not None and is_chunked(source):
        raise ValueError("sample_weight goes with an array, whose length is known; these data come in chunks")
    weight = None if sample_weight is None else checked_weight(sample_weight, source.shape[0])
    return RowStream(source, int(batch_size), weight), coords


def rows_to_begin_with(stream: RowStream) -> np.ndarray:
    """What default priors are read off: all rows of an array in memory, else a sample or the first ones."""
    in_memory = isinstance(stream.source, np.ndarray) and not isinstance(stream.source, np.memmap)
    return stream.whole() if in_memory else stream.sample(max(SCALE_ROWS, stream.batch_size))


def drive_in_batches(
    method: Method,
    model: Model,
    given: Model,
    stream: RowStream,
    *,
    algorithm: Algorithm,
    key: jax.Array,
    start: Callable,
    variables: Any,
    settings: Mapping[str, Any],
    options: dict[str, Any],
    num_devices: int,
    checkpoint: Checkpoint,
    progress: bool,
    keep: tuple[str, ...],
) -> tuple[Ascent, Outcome, tuple | None]:
    """Run and conclude.

    Before the first pass every restart climbs to the top of the bound of the rows that it starts from, moves
    and all: that costs little, and batches cannot find a better optimum later. Not so from given variables,
    where the passes start.

    Returns:
        What the driver returns, the outcome, and all rows if the fit is to hold them.

    Raises:
        ValueError: variables per row to start from, of rows that come in chunks; or rows that do not suit
            the model.
    """
    run_key, conclude_key = jax.random.split(key)

    def check(batch: Batch) -> None:
        rows = (
            batch.rows if batch.count > 1 else np.repeat(batch.rows, 2, axis=0)
        )  # models refuse a single row
        try:
            given.check(rows)
        except ValueError as error:
            last = batch.begin + batch.count - 1
            raise ValueError(
                f"in rows {batch.begin} to {last} of the data (counted from there): {error}"
            ) from None

    def put(batch: Batch) -> Any:
        if num_devices > 1:
            return deal_out(batch.x, batch.weight, num_devices)
        return Rows(*in_current_precision((np.asarray(batch.x), np.asarray(batch.weight))))

    if variables is not None and stream.is_chunked:
        raise ValueError(
            "init: variables per row go with an array; data in chunks start by a strategy's name"
        )
    begin = in_current_precision(stream.sample(stream.batch_size) if variables is None else stream.whole())
    if stream.sample_weight is not None:
        weight = stream.sampled_weight(begin.shape[0])
        begin = Rows(begin, jnp.asarray(weight))

    result = ascend_in_batches(
        method.memoised(**options),
        start,
        on_all_devices(model, num_devices) if num_devices > 1 else model,
        stream,
        put=put,
        check=check,
        start_rows=begin,
        warm_up=partial(warmed_up, algorithm, model, begin) if variables is None else _left_alone,
        key=run_key,
        variables={} if variables is None else variables,
        num_restarts=settings["num_restarts"],
        max_iterations=settings["max_iterations"],
        tolerance=settings["tolerance"],
        checkpoint=checkpoint,
        progress=progress,
    )
    per_row = 8 * (stream.num_features + model.num_components)
    holds_rows = stream.num_rows is not None and row_limit(stream.num_rows * per_row, "observed_data", keep)
    whole = (stream.whole(),) if holds_rows else None
    data = () if whole is None else in_current_precision(whole)
    if data and stream.sample_weight is not None:
        data = (Rows(data[0], jnp.asarray(stream.sample_weight)),)
    num_samples = settings["num_samples"]
    keep_rows = holds_rows and row_limit(num_samples * stream.num_rows, "assignments", keep)
    state = on_one_device(result.state)
    outcome = method.conclude(conclude_key, state, model, data, num_samples, keep_rows, **options)
    on_host = {name: to_numpy(dict(getattr(outcome, name))) for name in ("posterior", "variational")}
    if not holds_rows and model.occupied_site in result.trace:
        on_host["variational"][model.occupied_site] = last_of(result, model.occupied_site).astype(int)
    return result, outcome._replace(**on_host), whole


def warmed_up(algorithm: Algorithm, model: Model, rows: Any, keys: jax.Array, states: Any) -> Any:
    """The states of all restarts (leading axis) at the top of the bound of a few rows, one after another.

    Raises:
        KeyboardInterrupt: interrupted; there is nothing yet to return.
    """
    reached = []
    for lane in range(keys.shape[0]):
        run = ascend(
            algorithm.step,
            _as_given,
            model,
            (rows,),
            key=keys[lane],
            variables=jax.tree.map(lambda leaf, lane=lane: leaf[lane : lane + 1], states),
            num_rows=rows.shape[0],
            num_restarts=1,
            max_iterations=WARM_UP_STEPS,
            tolerance=WARM_UP_TOLERANCE,
            must_rise=True,
            checkpoint=Checkpoint(None, {}),
            progress=False,
            improve=algorithm.improve,
        )
        if run.stop_reason == "interrupted":
            raise KeyboardInterrupt("interrupted before the first batch was complete")
        reached.append(run.state)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *reached)


def _left_alone(keys: jax.Array, states: Any) -> Any:
    return states


def _as_given(key: jax.Array, state: Any, model: Model, *data: Any) -> Any:
    """A start that is a state."""
    return state
