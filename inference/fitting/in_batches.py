"""Plans of fits whose rows pass in batches: memoised ascents, natural gradients, sums of rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from inference.algorithm import (
    Algorithm,
    Ascent,
    Direct,
    FitRequest,
    Fitted,
    Memoised,
    NaturalGradient,
    Outcome,
)
from inference.driver.ascent import ascend
from inference.driver.checkpoint import Checkpoint
from inference.driver.host import start_each
from inference.driver.memoised import ascend_in_batches
from inference.driver.stochastic import ascend_stochastically
from inference.fitting.in_memory import (
    AscentPlan,
    DirectPlan,
    keeps_assignments,
    loop_arguments,
    progress_line,
    start_of,
    with_arrays,
)
from inference.fitting.memory import affordable_draws, check_sizes
from inference.fitting.verdict import five_small_gains
from inference.inputs.shared_streams import SharedRows
from inference.inputs.streams import Batch, check_complete_batch
from inference.numerics.devices import deal_out, on_all_devices, on_one_device
from inference.numerics.host_keys import numbered_keys, run_keys
from inference.numerics.weighted_rows import Rows, row_limit
from inference.precision import check_count_sizes, check_scales
from inference.processes import any_process
from inference.results.groups import ROW_DIMS
from inference.settings import Climb
from zoo.model import Model, in_current_precision
from zoo.sparse import SparseCounts

MANY_RESTARTS = 1000  # above which their memory is asked for
WARM_UP_STEPS, WARM_UP_TOLERANCE = 1000, 1e-5  # nats per row


@dataclass(frozen=True)
class BatchPlan[P: (Memoised, NaturalGradient)]:
    """The plan of a run in batches: an algorithm taken apart, its start, and the model.

    Attributes:
        request: the call.
        parts: the step taken apart.
        algorithm: the algorithm of all rows at once, which starts and warms up.
        start: ``start(key, variables, model, rows) -> state``.
        model: the model in the precision of the run.
    """

    request: FitRequest[Ascent, Climb]
    parts: P
    algorithm: Algorithm
    start: Callable
    model: Any

    @staticmethod
    def of(request: FitRequest[Ascent, Climb]) -> "MemoisedPlan | NaturalGradientPlan":
        """Build the algorithm.

        Args:
            request: the call.

        Returns:
            The plan.
        """
        method, options = request.method, request.options
        parts = cast(Callable, method.in_batches)(**options)  # a call of a method without it is refused
        algorithm = method.build(request.strategy, **options)
        start = start_of(method, algorithm, request.variables, options)
        rest = algorithm, start, in_current_precision(request.model)
        if isinstance(parts, Memoised):
            return MemoisedPlan(request, parts, *rest)
        return NaturalGradientPlan(request, parts, *rest)

    @property
    def _placing(self) -> dict[str, Any]:
        """Where states go that several processes share."""
        if jax.process_count() == 1:
            return {}
        return {"place": partial(on_all_devices, num_devices=self.request.num_devices)}


class MemoisedPlan(BatchPlan[Memoised]):
    """Coordinate ascent on the whole objective, one batch at a time.

    Before the first pass every restart climbs to the top of the bound of the rows that it starts from, moves
    and all: that costs little, and batches cannot find a better optimum later. Not so from given variables,
    where the passes start.
    """

    def drive(self) -> Fitted:
        """Run the restarts over all batches and conclude from the best.

        Returns:
            The run and its outcome.

        Raises:
            ValueError: rows that do not suit the model, or variables per row to start from, of rows that come
                in chunks.
        """
        request, stream, settings = self.request, self.request.stream, self.request.settings
        begin, several = self._rows_to_start_from(), jax.process_count() > 1
        if settings.num_starts > MANY_RESTARTS:
            self._check_memory(begin)
        keys, conclude_key = run_keys(request.key, settings.num_starts)
        num_devices, is_given = request.num_devices, request.variables is not None
        run = ascend_in_batches(
            self.parts,
            self.start,
            self.model if several or num_devices == 1 else on_all_devices(self.model, num_devices),
            stream,
            put=self._put,
            check=self._check,
            start_rows=begin,
            warm_up=_left_alone if is_given else partial(warmed_up, self.algorithm, self.model, begin),
            keys=keys,
            num_restarts=settings.num_starts,
            max_iterations=settings.max_iterations,
            tolerance=settings.tolerance,
            rule=five_small_gains,
            variables=request.variables or {},
            **loop_arguments(request),
            **self._placing,
        )
        per_row = 8 * (stream.num_features + self.model.num_components)
        num_rows, num_samples = stream.num_rows, affordable_draws(request, begin)
        holds_rows = num_rows is not None and row_limit(num_rows * per_row, "observed_data", request.keep)
        whole = (stream.whole(),) if holds_rows else None
        data = () if whole is None else in_current_precision(whole)
        if data and stream.sample_weight is not None:
            data = (Rows(data[0], jnp.asarray(stream.sample_weight)),)
        keep_rows = holds_rows and keeps_assignments(request, self.model, num_rows, run)
        state = on_one_device(run.state)
        outcome = request.method.conclude(
            conclude_key, state, self.model, data, num_samples, keep_rows, **request.options
        )
        outcome = with_arrays(outcome, run, self.model, holds_rows)
        return Fitted(run, outcome, whole, stream.sample_weight if holds_rows else None)

    def _check_memory(self, begin: Any) -> None:
        """Raise ValueError if the states of all restarts are larger than the memory of this machine."""
        request, number = self.request, self.request.settings.num_starts
        keys = jax.eval_shape(partial(jax.random.split, num=number), request.key)
        variables = request.variables or {}
        states = jax.eval_shape(partial(start_each, self.start), keys, variables, self.model, (begin,))
        check_sizes(request, {f"the states of {number} restarts": states})

    def _rows_to_start_from(self) -> Any:
        """A batch of rows all over the data, or all rows where variables are given, with their weights."""
        stream = self.request.stream
        if isinstance(stream, SharedRows):
            rows, weight = stream.rows_of_all()
            rows = in_current_precision(rows)
            is_weighted = any_process(stream.sample_weight is not None)
            return Rows(rows, jnp.asarray(weight)) if is_weighted else rows
        if self.request.variables is None:
            rows = in_current_precision(stream.sample(stream.batch_size))
        elif stream.is_chunked:
            raise ValueError(
                "init: variables per row go with an array; data in chunks start by a strategy's name"
            )
        else:
            rows = in_current_precision(stream.whole())
        if stream.sample_weight is None:
            return rows
        return Rows(rows, jnp.asarray(stream.sampled_weight(rows.shape[0])))

    def _check(self, batch: Batch) -> None:
        """Raise ValueError if the rows of a batch do not suit the model."""
        if not batch.count:  # another of several processes holds more rows
            return
        model = self.request.model
        rows = batch.rows if batch.count > 1 else np.repeat(batch.rows, 2, axis=0)  # a single row is refused
        try:
            of_call = model, (rows,), self.request.coords, self.request.dtype
            check_scales(*of_call, is_whole=False)
            model.check(rows)
            check_complete_batch(model, rows)
            check_count_sizes(*of_call)
        except ValueError as error:
            last = batch.begin + batch.count - 1
            raise ValueError(
                f"in rows {batch.begin} to {last} of the data (counted from there): {error}"
            ) from None

    def _put(self, batch: Batch) -> Any:
        """A batch as the step takes it, on its device or devices."""
        if self.request.num_devices > 1:
            return deal_out(batch.x, batch.weight, self.request.num_devices)
        # not by in_current_precision, which would copy: no program holds a batch as a constant
        return Rows(*jax.device_put((np.asarray(batch.x), np.asarray(batch.weight))))


class NaturalGradientPlan(BatchPlan[NaturalGradient]):
    """Noisy natural gradients, one batch of documents each."""

    def drive(self) -> Fitted:
        """Run over all batches and conclude.

        Returns:
            The run and its outcome.
        """
        request, stream, settings = self.request, self.request.stream, self.request.settings
        keys, conclude_key = run_keys(request.key, 1)
        in_memory = not stream.is_chunked
        parts, num_rows = self.parts, stream.num_rows
        num_bytes = num_rows * 8 * parts.num_columns(self.model)
        holds_rows = in_memory and row_limit(num_bytes, parts.of_rows, request.keep)
        run, rows = ascend_stochastically(
            self.parts,
            self.start,
            self.model,
            stream,
            key=keys[0],
            keep_rows=holds_rows,
            max_iterations=settings.max_iterations,
            tolerance=settings.tolerance,
            rule=five_small_gains,
            variables={name: value[0] for name, value in (request.variables or {}).items()},
            **loop_arguments(request),
            **self._placing,
        )
        state = on_one_device(run.state) if request.num_devices > 1 else run.state
        empty = SparseCounts((), (), (), (1, self.model.num_words))
        state, num_samples = parts.with_rows(state, rows), affordable_draws(request, empty)
        data = (stream.source,) if in_memory else ()
        num_drawn = num_samples * num_rows * parts.draw_width(self.model)
        keep_rows = holds_rows and row_limit(num_drawn * 8, parts.drawn_of_rows, request.keep)
        held = data if holds_rows else ()
        outcome = request.method.conclude(
            conclude_key, state, self.model, held, num_samples, keep_rows, **request.options
        )
        return Fitted(run, with_arrays(outcome, run, self.model, holds_rows), data or None)


@dataclass(frozen=True)
class SummedPlan:
    """A fit to the few rows that all batches were summed up to: the fit to all rows, nothing per row kept.

    Attributes:
        request: the call, whose data and weights are these rows'.
    """

    request: FitRequest

    def drive(self) -> Fitted:
        """Fit the rows that were summed up to.

        Returns:
            The run and its outcome.
        """
        request = replace(self.request, stream=None)
        plan = DirectPlan(request) if isinstance(request.method, Direct) else AscentPlan.of(request)
        fitted = plan.drive()
        return Fitted(fitted.run, _without_rows(fitted.outcome, request.model), None)


def _without_rows(outcome: Outcome, model: Model) -> Outcome:
    """The outcome without what there is for every row."""
    dims = dict(model.variable_dims) | dict(outcome.dims)
    groups: dict[str, Any] = {
        group: {
            name: value
            for name, value in getattr(outcome, group).items()
            if not ROW_DIMS & set(dims.get(name, ()))
        }
        for group in ("posterior", "variational")
    }
    return outcome._replace(**groups)


def warmed_up(algorithm: Algorithm, model: Model, rows: Any, keys: jax.Array, states: Any) -> Any:
    """The states of all restarts (leading axis) at the top of the bound of a few rows, one after another.

    Raises:
        KeyboardInterrupt: interrupted; there is nothing yet to return.
    """
    reached = []
    for number in range(keys.shape[0]):
        run = ascend(
            algorithm.step,
            _as_given,
            model,
            (rows,),
            keys=numbered_keys(keys[number], 1),
            variables=jax.tree.map(lambda leaf, i=number: leaf[i : i + 1], states),
            num_rows=rows.shape[0],
            num_restarts=1,
            max_iterations=WARM_UP_STEPS,
            tolerance=WARM_UP_TOLERANCE,
            must_rise=True,
            rule=five_small_gains,
            checkpoint=Checkpoint(None, {}),
            open_bar=progress_line(False),
            propose=algorithm.propose,
            improve=algorithm.improve,
        )
        if run.stop_reason == "interrupted":
            raise KeyboardInterrupt("interrupted before the first batch was complete")
        reached.append(run.state)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *reached)


def _left_alone(keys: jax.Array, states: Any) -> Any:
    return states


def _as_given(key: jax.Array, state: Any, model: Model, *data: Any) -> Any:
    """The start of a run whose variables are a state already."""
    return state
