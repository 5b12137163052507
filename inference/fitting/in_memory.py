"""Plans of fits that hold all rows at once: direct methods, samplers and ascents."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from tqdm import tqdm

from inference.algorithm import (
    Algorithm,
    Ascent,
    AscentRun,
    ChainsRun,
    Direct,
    FitRequest,
    Fitted,
    Iterative,
    Outcome,
    Sampler,
    Stochastic,
    last_of,
)
from inference.convergence.r_hat import judgement, psrf_of
from inference.driver.ascent import ascend
from inference.driver.chains import sample
from inference.driver.checkpoint import Checkpoint, fingerprint
from inference.driver.frames import Frames, frames_of_run
from inference.driver.host import CHUNK_CAPACITY, start_each
from inference.driver.progress import Progress
from inference.fitting.agreement import combined
from inference.fitting.memory import affordable_draws, check_memory
from inference.fitting.verdict import five_small_gains
from inference.numerics.compiled import compiled, for_work
from inference.numerics.devices import deal_out, on_all_devices, on_one_device
from inference.numerics.host_keys import run_keys
from inference.numerics.programs import latent_sites
from inference.numerics.weighted_rows import (
    FEWEST_ROWS,
    Rows,
    draws_of_rows_limit,
    row_limit,
    row_width,
    shares_shapes,
    unweighted,
    weight_of,
)
from inference.precision import to_numpy
from inference.processes import exchanged, over_processes, place_of
from inference.results.build import asks_of_new_rows, build_tree, joined_draws, without_rows
from inference.results.files import versions
from inference.results.groups import ROW_DIMS
from inference.settings import Climb, Once, Sampling
from zoo.model import Model, in_current_precision

JAX_SETTINGS = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_default_matmul_precision")
LIMITS = ("max_sweeps", "max_seconds")  # a run may be resumed with others
FRAME_DRAWS = 100  # from q, by which a frame shows it
FEWEST_FOR_R_HAT = 20  # sweeps, below which the progress line gives none


@dataclass(frozen=True)
class DirectPlan:
    """A direct method's answer, as an ascent of one step that converged.

    Attributes:
        request: the call.
    """

    request: FitRequest[Direct, Once]

    def drive(self) -> Fitted:
        """Solve directly.

        Returns:
            The run and its outcome.

        Raises:
            FloatingPointError: the objective or the estimate is not finite.
        """
        request, data = self.request, self.request.data
        if request.sample_weight is not None:
            data = (Rows(data[0], request.sample_weight), *data[1:])
        try:
            with np.errstate(all="ignore"):  # what comes of it is judged below
                outcome, objective = request.method.solve(request.key, request.model, data, **request.options)
        except np.linalg.LinAlgError as error:
            raise FloatingPointError(_not_finite(request.name, str(error))) from error
        if not np.isfinite(float(objective)):
            raise FloatingPointError(_not_finite(request.name, f"its objective is {float(objective)}"))
        for name, value in outcome.posterior.items():
            if not np.isfinite(np.asarray(value)).all():
                raise FloatingPointError(_not_finite(request.name, f"its estimate of {name} is not finite"))
        trace = {"objective": np.full((1, 1), float(objective))}
        run = AscentRun(None, trace, 0, True, "solved directly", 1, 0)
        return Fitted(run, outcome, request.data)


def _not_finite(name: str, what: str) -> str:
    """The message of a direct method that has no finite answer."""
    return (
        f"{name} has no finite answer: {what}. Squares of the data overflow, vanish or cannot be told apart: "
        "change their unit (columns of mean 0 and standard deviation 1 are safe)"
    )


@dataclass(frozen=True)
class _WholePlan[M: Iterative, S: Climb | Sampling]:
    """The plan of a run over all rows at once: an algorithm, its start with what it is given, model, data."""

    request: FitRequest[M, S]
    algorithm: Algorithm
    start: Callable
    is_numbered: bool
    model: Model
    data: tuple

    @classmethod
    def of(cls, request: FitRequest[M, S]) -> Self:
        """Prepare the data and build the algorithm."""
        method, options, data = request.method, dict(request.options), request.data
        if request.sample_weight is not None:
            data = (Rows(data[0], request.sample_weight), *data[1:])
        data = method.prepare(request.model, data, request.init, **options)
        if not (isinstance(method, Ascent) and method.runs_on_host(data)):
            data = in_current_precision(data)
        settings = request.settings
        if isinstance(settings, Sampling):
            options["num_warmup"] = settings.num_warmup
        algorithm = method.build(request.strategy, **options)
        start = start_of(method, algorithm, request.variables, options)
        several = isinstance(settings, Climb) and settings.num_starts > 1
        is_numbered = several and request.variables is None and algorithm.numbered_init is not None
        if is_numbered:
            start = _numbered(algorithm.numbered_init)
        return cls(request, algorithm, start, is_numbered, in_current_precision(request.model), data)

    @property
    def given(self) -> Mapping[str, Any]:
        """What the starts are given, leaves with a leading axis over restarts or chains."""
        settings = self.request.settings
        if self.is_numbered and isinstance(settings, Climb):
            return {"number": np.arange(settings.num_starts)}
        return self.request.variables or {}

    def _states(self, starts: int) -> Any:
        """The shapes of the states of so many restarts or chains."""
        keys = jax.eval_shape(partial(jax.random.split, num=starts), self.request.key)
        given = {"number": jax.ShapeDtypeStruct((starts,), int)} if self.is_numbered else self.given
        return jax.eval_shape(partial(start_each, self.start), keys, given, self.model, self.data)

    def _fitted(self, run: Any, outcome: Outcome) -> Fitted:
        # each of several processes holds but some of the rows
        outcome = with_arrays(outcome, run, self.model, holds_rows=not self.request.spreads_rows)
        return Fitted(run, outcome, self.request.data, self.request.sample_weight)


class SamplerPlan(_WholePlan[Sampler, Sampling]):
    """Chains of a sampler."""

    def drive(self) -> Fitted:
        """Run the chains and conclude from their draws.

        Returns:
            The run and its outcome.
        """
        request, method, settings = self.request, self.request.method, self.request.settings
        num_draws = settings.num_chains * settings.num_samples
        keep_rows = row_limit(num_draws * self.data[0].shape[0], "assignments", request.keep)

        def concluded(run: ChainsRun) -> Fitted:
            outcome = method.conclude(conclude_key, run.draws, self.model, self.data, keep_rows)
            return self._fitted(run, outcome)

        looked_at: list[xr.DataTree] = []

        def look(draws: Any, trace: dict[str, np.ndarray], num_sweeps: int) -> tuple[bool, float]:
            block = settings.num_samples
            for begin in range(len(looked_at) * block, jax.tree.leaves(draws)[0].shape[1], block):
                own = jax.tree.map(lambda leaf, at=begin: leaf[:, at : at + block], draws)
                tree = build_tree(request, concluded(ChainsRun(own, trace, "completed", num_sweeps)))
                looked_at.append(without_rows(tree))
            verdict = judgement(joined_draws(looked_at))
            return verdict.converged, verdict.r_hat

        position = method.position(keep_rows)
        check_memory(
            request,
            starts=settings.num_chains,
            num_draws=num_draws,
            sizes=partial(self._sizes, position),
        )
        keys, conclude_key = run_keys(request.key, settings.num_chains)
        placed: dict[str, Any] = {"model": self.model, "data": self.data}
        work = request.work
        if method.for_steps and shares_shapes():
            model, data = in_current_precision(method.for_steps(self.model, self.data))
            placed = {"model": model, "data": data, "start_data": self.data, "of_rows": method.of_rows}
            work = work[0], _cells(data) * settings.num_steps * method.passes_per_step
        with for_work(*work):
            run = sample(
                self.algorithm.step,
                self.start,
                position,
                **placed,
                keys=keys,
                resize=method.resize,
                slot_axes=method.slot_axes,
                rounds=method.rounds,
                variables=self.given,
                **loop_arguments(request),
                **settings.of_the_loop,
                look=look if settings.until else None,
                status=_agreement,
                loops=self.algorithm.loops,
            )
        if (frames := frames_of_run()) is not None:
            self._film(frames, partial(_at, position, self.model), run, concluded)
        return concluded(run)

    def _film(self, frames: Frames, position: Callable, run: ChainsRun, concluded: Callable) -> None:
        """Conclude from the states that were kept as from draws, one a frame."""
        frames.numbers = list(frames.states)
        kept = [to_numpy(jax.vmap(position)(own)) for own, *_ in frames.states.values()]
        draws = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *kept)
        site = self.model.roles.cluster
        frames.labels = draws.get(site) if isinstance(draws, Mapping) else None
        fitted = concluded(run._replace(draws=draws))._replace(data=None)
        frames.trees = [build_tree(self.request, fitted)]

    def _sizes(self, position: Callable) -> dict[str, Any]:
        """The shapes of the chains' states and of the draws that are kept of them."""
        num_chains, num_samples = self.request.settings.num_chains, self.request.settings.num_samples
        states = self._states(num_chains)
        own = jax.eval_shape(jax.vmap(partial(_at, position, self.model)), states)
        return {
            f"the states of {num_chains} chains": states,
            f"{num_samples} draws of each of {num_chains} chains": _repeated(own, num_samples),
            f"what {num_chains} chains record": _recorded(num_chains, self.request.dtype),
        }


def _agreement(draws: Any, log_joint: np.ndarray) -> str:
    """R-hat of the log joint so far, and the divergent trajectories where there are any to count."""
    words = []
    if log_joint.shape[0] > 1 and log_joint.shape[1] >= FEWEST_FOR_R_HAT:
        words.append(f"its R-hat {psrf_of(log_joint, 'rank'):.3f}")
    stats = draws.get("stats", {}) if isinstance(draws, Mapping) else {}
    if "diverging" in stats:
        words.append(f"{int(np.count_nonzero(stats['diverging']))} divergences")
    return ", ".join(words)


class AscentPlan(_WholePlan[Ascent | Stochastic, Climb]):
    """Restarts of an ascent, on one device or several, compiled or on the host."""

    def drive(self) -> Fitted:
        """Run the restarts and conclude from the best.

        Returns:
            The run and its outcome.
        """
        request, method, settings = self.request, self.request.method, self.request.settings
        num_rows, num_samples = self.data[0].shape[0], affordable_draws(request, *request.data)
        if isinstance(self.data[0], Rows):
            num_rows = float(jnp.sum(self.data[0].weight))
        exact = method if isinstance(method, Ascent) else None  # whose objective has no noise
        draws_parameters = method.guide is not None
        check_memory(
            request,
            starts=settings.num_starts,
            num_draws=num_samples if draws_parameters else 0,
            sizes=partial(self._sizes, num_samples if draws_parameters else 0),
        )
        keys, conclude_key = run_keys(request.key, settings.num_starts)
        on_host = exact is not None and exact.runs_on_host(self.data)
        placed: dict[str, Any] = {"start": self.start, "model": self.model, "data": self.data}
        work = request.work
        if request.num_devices > 1:
            placed |= self._over_devices()
        elif exact and exact.for_steps and shares_shapes() and not (on_host or self.algorithm.improve):
            placed |= self._in_shared_shapes(exact.for_steps, exact)
            share = 0.5 if self.data[0].shape[0] <= FEWEST_ROWS else 1.0  # the rest may be padding
            work = work[0], share * _cells(placed["data"]) * settings.num_steps * method.passes_per_step
        with for_work(*work):
            run = ascend(
                self.algorithm.step,
                keys=keys,
                num_rows=over_processes(num_rows) if request.spreads_rows else num_rows,
                num_restarts=settings.num_starts,
                max_iterations=settings.max_iterations,
                tolerance=settings.tolerance if exact else 0.0,
                must_rise=exact is not None and not exact.may_fall,
                may_drop=request.drops_starts,
                rule=five_small_gains,
                variables=self.given,
                **loop_arguments(request),
                propose=self.algorithm.propose,
                improve=self.algorithm.improve,
                shrink=self.algorithm.shrink,
                slot_axes=self.algorithm.slot_axes,
                settling_steps=self.algorithm.settling_steps,
                on_host=on_host,
                **placed,
            )
        is_resized = "start_model" in placed

        def concluded(run: AscentRun, num_samples: int, keep_rows: bool) -> Fitted:
            state = on_one_device(run.state) if request.num_devices > 1 else run.state
            if exact and is_resized:
                state = _resized(exact.resized, state, self.model)
            if request.spreads_rows and exact:
                state = exact.own_rows(state, place_of(self.data[0].shape[0]))
            outcome = method.conclude(
                conclude_key, state, self.model, self.data, num_samples, keep_rows, **request.options
            )
            return self._fitted(run, outcome)

        if (frames := frames_of_run()) is not None:
            self._film(frames, run, partial(concluded, num_samples=min(num_samples, FRAME_DRAWS)))
        return concluded(run, num_samples, keeps_assignments(request, self.model, self.data[0].shape[0], run))

    def _film(self, frames: Frames, run: AscentRun, concluded: Callable) -> None:
        """Conclude from each state of the best restart that was kept; of equal steps from the last."""
        best = run.best_restart
        own = {int(steps[best]): (state, at[best]) for state, steps, at in frames.states.values()}
        frames.numbers = list(own)
        trace = run.trace["objective"][best]
        frames.gains = [float(at - trace[number - 1]) for number, (_, at) in own.items()]
        with catch_warnings():
            simplefilter("ignore")  # of states on the way; the run's own end is warned of
            for number, (states, _) in own.items():
                state = jax.tree.map(lambda leaf: leaf[best], states)
                fitted = concluded(run._replace(state=state, num_iterations=number), keep_rows=False)
                frames.trees.append(build_tree(self.request, fitted._replace(data=None)))

    def _sizes(self, num_samples: int) -> dict[str, Any]:
        """The shapes of the restarts' states, and of the draws of parameters that no row has of its own."""
        model, num_restarts = self.request.model, self.request.settings.num_starts
        progress = jax.ShapeDtypeStruct((num_restarts, 1 + len(Progress._fields)), float)  # and a key
        sizes = {f"the progress of {num_restarts} restarts": progress}
        if not (isinstance(self.request.method, Ascent) and self.request.method.runs_on_host(self.data)):
            sizes[f"the states of {num_restarts} restarts"] = self._states(num_restarts)
            sizes[f"what {num_restarts} restarts record"] = _recorded(num_restarts, self.request.dtype)
        if num_samples:
            with suppress(NotImplementedError):  # an improper prior: its program has no draws to be traced
                drawn = {
                    name: jax.ShapeDtypeStruct(site.shape, self.request.dtype)
                    for name, site in latent_sites(model, *self.request.data).items()
                    if not ROW_DIMS & set(model.variable_dims.get(name, ()))
                }
                sizes[f"{num_samples} draws"] = _repeated(drawn, num_samples)
        return sizes

    def _in_shared_shapes(self, for_steps: Callable, method: Ascent) -> dict[str, Any]:
        """Model and data in the shapes that others share, and what starts are given instead."""
        found = for_steps(self.model, self.data)
        model, data = in_current_precision(found)
        placed = {"model": model, "data": data}
        if not (self.is_numbered and method.starts_alike):
            placed |= {"start_data": self.data, "of_rows": method.of_rows}
        if method.resized is None or found[0] is self.model:
            return placed
        start = _begun_smaller(self.start, method.resized)
        return placed | {"start": start, "start_model": (self.model, model)}

    def _over_devices(self) -> dict[str, Any]:
        """The data dealt out over devices, those that starts are given, and where states go."""
        num_devices, first = self.request.num_devices, self.data[0]
        place = partial(on_all_devices, num_devices=num_devices)
        if "documents" in self.request.method.takes:
            dealt = tuple(part.over_devices(num_devices) for part in self.data)
            start = {} if jax.process_count() > 1 else {"start_data": self.data}
            return {"data": dealt, "place": place} | start
        rows, weight = np.asarray(unweighted(first)), np.asarray(weight_of(first))
        begun_with = self.data
        if jax.process_count() > 1:
            of_all = exchanged(np.column_stack([rows, weight]))
            begun_with = (Rows(jnp.asarray(of_all[:, :-1]), jnp.asarray(of_all[:, -1])),)
        return {"data": (deal_out(rows, weight, num_devices),), "start_data": begun_with, "place": place}


def _cells(data: tuple) -> int:
    """The numbers that a pass goes over."""
    return sum(map(np.size, jax.tree.leaves(data)))


def _recorded(starts: int, dtype: str) -> jax.ShapeDtypeStruct:
    """The objectives of a chunk of steps, for which there is room from the start."""
    return jax.ShapeDtypeStruct((starts, CHUNK_CAPACITY), dtype)


def _at(position: Callable, model: Model, state: Any) -> Any:
    return position(state, model)


def _repeated(shapes: Any, count: int) -> Any:
    """The shapes of so many of each."""
    return jax.tree.map(lambda own: jax.ShapeDtypeStruct((count, *own.shape), own.dtype), shapes)


def keeps_assignments(request: FitRequest, model: Model, num_rows: int, run: AscentRun) -> bool:
    """Whether the labels of every row are drawn with every draw from q."""
    if asks_of_new_rows():
        return False
    num_samples, keep = request.settings.num_samples, request.keep
    sizes = num_samples, num_rows, row_width(model), run.num_iterations
    is_small = row_limit(num_samples * num_rows, "assignments", keep)
    return is_small and draws_of_rows_limit(*sizes, "assignments", keep)


def with_arrays(outcome: Outcome, run: Any, model: Model, holds_rows: bool) -> Outcome:
    """The outcome as NumPy arrays, and occupied components by the trace where the rows are not all held."""
    groups = ("posterior", "variational", "sample_stats")
    arrays: dict[str, Any] = {name: to_numpy(dict(getattr(outcome, name))) for name in groups}
    outcome = outcome._replace(**arrays)
    site = model.roles.occupied
    if not holds_rows and site in run.trace:
        occupied = {site: last_of(run, site).astype(int)}
        outcome = outcome._replace(variational={**outcome.variational, **occupied})
    return outcome


def progress_line(shown: bool) -> Callable:
    """``open_bar(total, done)`` of the driver's loops: a bar over iterations, silent unless it is shown.

    Where bars are shown ``TQDM_DISABLE`` decides, as it does for NumPyro's.
    """
    silent = {} if shown else {"disable": True}
    return lambda total, done: tqdm(total=total, initial=done, unit="it", leave=False, **silent)


def loop_arguments(request: FitRequest) -> dict[str, Any]:
    """The arguments that all loops of the driver take, beside what starts are given."""
    return {
        "checkpoint": _checkpoint_of(request),
        "open_bar": progress_line(request.show_progress),
    }


def _checkpoint_of(request: FitRequest) -> Checkpoint:
    """The file to save to and resume from, with the fingerprint of the call."""
    if (frames := frames_of_run()) is not None:
        return frames
    if request.checkpoint is None:
        return Checkpoint(None, {})
    return Checkpoint(request.checkpoint, aspects_of(request))


def aspects_of(request: FitRequest) -> dict[str, str]:
    """The fingerprint of a call: all that decides the numbers of its run, by the arguments of `fit`.

    A limit of a run until the chains agree, the bar and the file itself decide none.

    Args:
        request: the call.

    Returns:
        Aspect to its value in words; each field of the model, each setting and each option is one.
    """
    stream = request.stream
    names, parts = request.model.data_names, request.data
    if stream is not None:
        names, parts = ("batches", "num_rows"), (stream.identity(), stream.num_rows)
    settings = {k: v for k, v in request.told.items() if k not in LIMITS}
    aspects = fingerprint(
        request.model,
        data=dict(zip(names, parts, strict=True)),
        sample_weight=request.sample_weight,
        method=request.name,
        _settings=settings,
        _options={f"option {name}": value for name, value in request.options.items()},
        init=request.strategy,
        _variables={f"init[{name!r}]": value for name, value in (request.variables or {}).items()},
        batch_size=request.batch_size,
        num_devices=request.num_devices,
        seed=jax.random.key_data(request.key),
        dtype=request.dtype,
        keep=tuple(sorted(request.keep)),
        devices=tuple(str(device) for device in jax.devices()),
        versions=versions(),
        jax={name: jax.config.values.get(name) for name in JAX_SETTINGS},
    )
    return combined(aspects) if jax.process_count() > 1 else aspects  # each holds rows of its own


def start_of(
    method: Iterative, algorithm: Algorithm, variables: Mapping | None, options: Mapping[str, Any]
) -> Callable:
    """``start(key, variables, model, *data)`` of one run."""
    if variables is None:
        return _fresh(algorithm.init)
    return _given(method.start, tuple(sorted(options.items())))


@cache
def _fresh(init: Callable) -> Callable:
    """A start without given variables."""
    return lambda key, variables, model, *data: init(key, model, *data)


@cache
def _numbered(init: Callable) -> Callable:
    """A start that depends on the number of the restart."""
    return lambda key, variables, model, *data: init(variables["number"], key, model, *data)


@cache
def _begun_smaller(start: Callable, resized: Callable) -> Callable:
    """A start of a model that steps take in another size: it is given both."""
    return lambda key, variables, models, *data: resized(start(key, variables, models[0], *data), models[1])


@partial(compiled, once=True, static_argnums=0)
def _resized(resized: Callable, state: Any, model: Model) -> Any:
    return resized(state, model)


@cache
def _given(start: Callable, options: tuple) -> Callable:
    """A start from given variables."""
    return partial(start, **dict(options))
