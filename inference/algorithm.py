"""Types of algorithms and methods, and of the request, runs and outcome of a fit.

An algorithm is two pure functions. ``init(key, model, *data)`` returns a state,
``step(key, state, model, *data)`` the next state and the values to record. Model and data are
arguments, never closed over and never part of the state: they can be sharded, a second fit of the same
shapes compiles nothing, and a checkpoint holds no data. Both functions are module-level (or made once per
set of options by a cached builder), so that their identity can key the compile cache.

A method is one way to fit one model: an algorithm with its options, starts and conclusions. `fit` reads its
arguments into a `FitRequest`, plans a run, drives it, and builds the tree of the `Fitted` result.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jax import Array

import zoo
from inference.settings import Climb, Once, Sampling, Settings
from zoo.answers import answer_of
from zoo.checks import shown
from zoo.coordinates import Unit
from zoo.intake import Columns
from zoo.model import Model

#: What ``init`` of `fit` may be: a strategy, variables to start from, or a former fit
Init = str | Mapping[str, Any] | xr.DataTree | None

CHEAP_ENTRIES = 2e7  # numbers that a step of all starts may compute where a call does not say how many


class Algorithm(NamedTuple):
    """A pair of pure functions that the driver compiles, vmaps over chains or restarts, and repeats.

    Attributes:
        init: ``init(key, model, *data) -> state``.
        step: ``step(key, state, model, *data) -> (state, info)``; ``info`` is a NamedTuple of scalars that
            always has ``objective``, in nats: the bound, the log likelihood or the log posterior for an
            ascent, the log joint for a sampler.
        propose: ascent only, optional: ``propose(states, asked, model)``, a generator that is asked on the
            host after a restart's first steps and whenever its objective has settled, of all restarts
            (leading axis) for the numbers ``asked``: states elsewhere, from what the states hold, without a
            look at the data, and which restarts they are for, shape (num_restarts,). These take a step; sent
            are the states that are then kept, and which restarts moved: those whose objective is higher.
        improve: ascent only, optional: ``improve(key, state, model, *data) -> (state, objective, better)``,
            asked whenever the objective has settled and no proposal is kept: a state elsewhere with a higher
            objective, and whether there is one.
        shrink: ascent only, optional: ``shrink(states, model)``, asked on the host now and then, of all
            restarts (leading axis): smaller states with the same objective to run on with, or None.
        slot_axes: with ``shrink``, the paths of the leaves that become smaller, as ``jax.tree_util.keystr``
            gives them, and the axis (that over restarts being 0); a state without the first has no slots.
        numbered_init: ascent only, optional: ``numbered_init(number, key, model, *data) -> state``, the start
            of one of several restarts, which need not all start alike; number 0 starts as ``init`` does.
        settling_steps: ascent only, optional: ``settling_steps(states)``, how many steps of each fresh start
            (leading axis) come before the first that is recorded and judged; the state knows that they do.
        loops: sampler only: whether a step is a loop over cells that reads and writes tables of counts, as a
            collapsed sweep over tokens. On a CPU "vectorized" chains take such steps in turn: under
            ``jax.vmap`` each turn of the loop gathers and scatters, which takes three times as long.
    """

    init: Callable
    step: Callable
    propose: Callable | None = None
    improve: Callable | None = None
    shrink: Callable | None = None
    slot_axes: tuple[tuple[str, int], ...] = ()
    numbered_init: Callable | None = None
    settling_steps: Callable | None = None
    loops: bool = False


def check_info(info: Any) -> None:
    """Raise TypeError if what a step records is no NamedTuple with an objective."""
    if "objective" not in getattr(info, "_fields", ()):
        raise TypeError(
            "a step returns its state and a NamedTuple of what is recorded, with objective, in nats, among "
            f"its fields; got {shown(info) if isinstance(info, Mapping | tuple) else type(info).__name__}"
        )


class Memoised(NamedTuple):
    """An ascent taken apart, so that rows can pass in batches (Hughes and Sudderth 2013).

    The contribution of each batch at its last visit is remembered; a visit replaces it by the present
    contribution, and the rest of the state follows from the sum. That is coordinate ascent on the whole
    objective, one batch at a time: it never falls.

    Attributes:
        sums: ``sums(state, model, rows) -> sums``, a pytree that adds up over rows.
        update: ``update(state, sums, model) -> (state, info)``, all of a step but the sums.
        best_order: ``best_order(state, sums, model)``, an order of the components to put the sums in, or None
            if the order is of no account.
        reorder: ``reorder(sums, order) -> sums``.
    """

    sums: Callable
    update: Callable
    best_order: Callable
    reorder: Callable


class NaturalGradient(NamedTuple):
    """An ascent by noisy natural gradients, one batch of rows each (Hoffman, Blei, Wang and Paisley 2013).

    Attributes:
        step: ``step(state, model, rows, share, time) -> (state, score)``: the rows are this share of all, the
            batch is number ``time`` (from 1); the rows' part of the bound before the step.
        evaluate: ``evaluate(state, model, rows) -> (parameters of the rows, score)``.
        total: ``total(state, model) -> info``, the objective without the rows' part.
        with_rows: ``with_rows(state, parameters)``, the state that ``conclude`` takes; None where they are
            not kept.
        without_rows: ``without_rows(state)``, a start's state as batches pass it on.
        num_columns: ``num_columns(model)``, parameters of a row, and columns that a pass gathers for a cell.
        of_rows: name of the rows' parameters in a fit.
        drawn_of_rows: name of the variable that is drawn of each row.
        draw_width: ``draw_width(model)``, numbers of a row in a draw of it.
    """

    step: Callable
    evaluate: Callable
    total: Callable
    with_rows: Callable
    without_rows: Callable
    num_columns: Callable
    of_rows: str
    drawn_of_rows: str
    draw_width: Callable


class Outcome(NamedTuple):
    """The conclusion of a method from its final state (or its draws), before dims are named.

    Attributes:
        posterior: site name to draws, with leading dims (chain, draw).
        variational: name to array: the parameters of q or the point estimate, without chain or draw dims.
        sample_stats: name to array with leading dims (chain, draw).
        attrs: further root attributes (str, int, float).
        dims: names of the dims of variables that ``model.variable_dims`` does not name.
        model: the model that the fit is of, where the method learns hyperparameters or sizes.
        is_point: whether it is a point estimate, which has no pointwise posterior log likelihood.
        is_generative: whether ``posterior`` holds the sites of the program; a projection's does not.
        densities: ``"objective"`` and every other column of the trace or attribute that is a log density of
            the rows, to the sites of the program whose prior density is a part of it: none of a likelihood
            or a bound. What is no log density of the rows is not named.
        by_temperature: of tempered chains, name to array of shape (num_temperatures,).
        of_occupied: whether the trace's densities leave out the parameters of components without rows
            (`zoo.answers.Answers.prior_of_occupied`); it then holds the number of those with rows.
    """

    posterior: Mapping[str, Any]
    variational: Mapping[str, Any] = MappingProxyType({})
    sample_stats: Mapping[str, Any] = MappingProxyType({})
    attrs: Mapping[str, Any] = MappingProxyType({})
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    model: Any = None
    is_point: bool = False
    is_generative: bool = True
    densities: Mapping[str, tuple[str, ...]] = MappingProxyType({"objective": ()})
    by_temperature: Mapping[str, Any] = MappingProxyType({})
    of_occupied: bool = False


def accept(model: Model, settings: Settings) -> None:
    """The ``check`` of a method whose settings suit every model."""


def as_passed(model: Model, data: tuple, init: Init, **options: object) -> tuple:
    """The ``prepare`` of a method that takes the data as they are passed."""
    return data


def no_units(model: Model) -> Mapping[str, Unit]:
    """The ``units`` of a method whose q has no variables with a unit but the sites of the program."""
    return {}


def never(data: tuple) -> bool:
    """The ``runs_on_host`` of a method whose steps are always compiled."""
    return False


def whole_state(state: Any, rows: slice) -> Any:
    """The ``own_rows`` of a method whose state holds nothing by row."""
    return state


def one_start(model: Model, data: tuple, **options: object) -> int:
    """The ``restarts`` of a method that needs no more than its default start."""
    return 1


def one_round(num_warmup: int) -> tuple[int, ...]:
    """The ``rounds`` of a sampler whose states may change their size at the end of warm-up."""
    return (num_warmup,)


def starts_by_size(needed: int, entries: float) -> int:
    """As many starts as a method needs where that is cheap, else one: by sizes alone, never by a clock.

    Args:
        needed: how many it needs.
        entries: numbers that a step of one start computes, e.g. rows times columns times components.

    Returns:
        ``needed`` while ``needed * entries`` is at most `CHEAP_ENTRIES`, else 1.
    """
    return needed if needed * entries <= CHEAP_ENTRIES else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Method:
    """One way to fit one model: the part that all kinds of methods share.

    Attributes:
        settings: the class of its settings (`inference.settings`), whose own fields are its options.
        takes: the parts of a call beyond dense rows that it takes: ``"weights"``
            (`inference.numerics.weighted_rows.Rows`), ``"sparse"`` (`zoo.sparse.SparseMatrix`),
            ``"batches"``, ``"devices"`` (rows that lie on several); ``"documents"`` where the rows are
            documents, which go to devices in blocks and in batches by natural gradients; ``"moments"`` where
            rows enter by their number, mean and scatter alone, so that batches are summed up before the fit
            (`inference.numerics.summed_rows`).
        check: ``check(model, settings)`` raises ValueError or TypeError if the method or its settings do not
            suit the model, before anything is compiled; ``num_devices`` among them is a whole number.
        otherwise: ``otherwise(model, data, is_refused)``, the method that ``method="auto"`` takes in the
            place of this one, the model's first; empty where this one suits. It is told whether ``check``
            refuses the model. None: there is no other.
        guide: ``guide(variables, model, *data)``, q as a NumPyro program.
        guide_has_points: whether q has point masses at parameters, so that the objective, which has their
            prior density, is no bound on the log evidence.
        transform: ``transform(variables, model, *new_data)``, scores of new rows; samplers and SVI average
            over draws.
        covariance: ``covariance(variables, model, *new_data)``, of the scores of new rows.
        predict: ``predict(variables, model, *new_data)``, mean and variance of the missing part of new rows.
            Without these three the model's ``scores``, ``scores_covariance`` and ``predicted`` at the
            estimate serve.
        log_density: ``log_density(variables, model, *new_data)`` per new row; without it densities are
            averaged over draws.
        log_joint: ``log_joint(variables, model, *new_data)`` per new row and cluster, of which the
            probabilities of the clusters are the softmax; a term of the row may lack. Without it the model's
            labels at the estimate serve.
        passes_per_step: about how often a step passes over the data.
        units: ``units(model)``, how variables of q that are no sites of the program follow the coordinates of
            the data (`zoo.coordinates.Unit`; one of power 0 has no unit), by name.
        trace_units: columns of the trace that are no densities to how they follow the data's scale.
        has_unit: whether its options or its results have a unit that it does not tell, so that it takes the
            data as they are.
        follows_units: whether its random steps follow the units of the data, so that the same seed gives the
            same draws in other units; those of SVI begin with a fixed size.
    """

    settings: type[Settings] = Settings
    takes: AbstractSet[str] = frozenset()
    check: Callable = accept
    otherwise: Callable | None = None
    guide: Callable | None = None
    guide_has_points: bool = False
    transform: Callable | None = None
    covariance: Callable | None = None
    predict: Callable | None = None
    log_density: Callable | None = None
    log_joint: Callable | None = None
    passes_per_step: int = 1
    units: Callable = no_units
    trace_units: Mapping[str, Unit] = MappingProxyType({})
    has_unit: bool = False
    follows_units: bool = True

    @property
    def options(self) -> dict[str, Any]:
        """The options that a caller may pass to `fit`, with their defaults."""
        return self.settings.defaults()


@dataclass(frozen=True, kw_only=True, eq=False)
class Iterative(Method):
    """A method that starts somewhere and repeats a step.

    Attributes:
        strategies: the strings that ``init`` may be; the first is the default.
        seedless: strategies that do not depend on the seed.
        build: ``build(init=strategy, **options) -> Algorithm``, cached, so that equal options give the same
            functions; a sampler's is given ``num_warmup`` too.
        start: ``start(key, variables, model, *data, **options) -> state``, a state from given variables
            (``init`` a dict or a former tree).
        prepare: ``prepare(model, data, init, **options)``, on the host before anything is compiled: the data
            as ``init``, ``start``, ``step`` and ``conclude`` take them. It may raise ValueError if ``init``
            does not suit the data.
        conclude: ``conclude(key, state, model, data, num_samples, keep_rows, **options) -> Outcome``;
            a sampler's ``conclude(key, draws, model, data, keep_rows) -> Outcome``.
        for_steps: ``for_steps(model, data)``, the model and the (prepared) data as steps take them, in shapes
            that models of about as many components and tables of about as many rows share, so that one
            program serves them all; starts and ``conclude`` take model and data themselves. None: as they
            are.
        of_rows: with ``for_steps``, the paths of the leaves of a state that have an axis over rows, their
            first, as ``jax.tree_util.keystr`` gives them; other states than those of steps, and whatever is
            kept of draws, have true sizes.
    """

    strategies: tuple[str, ...]
    seedless: AbstractSet[str] = frozenset({"pca", "hierarchical", "eigenvalues"})
    build: Callable
    start: Callable
    prepare: Callable = as_passed
    conclude: Callable
    for_steps: Callable | None = None
    of_rows: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent(Iterative):
    """A method that climbs an objective: VB, EM, MAP.

    Attributes:
        settings: as of `Method`.
        may_fall: whether its objective may fall on the way, so that a fall is no error.
        own_rows: ``own_rows(state, rows)``, the state with what it holds of each row for those (a slice) that
            this one of several processes holds; the state itself where it holds nothing by row.
        restarts: ``restarts(model, data, **options)``, how many starts ``num_restarts=None`` means for data
            of this size and the default start.
        drops_starts: whether a start that falls behind the others for good is stopped; for steps whose gains
            tell the gains to come, as those of EM do and those of quasi-Newton steps do not.
        runs_on_host: ``runs_on_host(data)``, whether its steps on these (prepared) data run on the host
            instead of compiled.
        starts_alike: with ``for_steps``, whether ``numbered_init`` takes data as steps do, with the same
            result, so that tables share its program too; its states hold nothing by row.
        resized: ``resized(state, model)``, a state in the size of a model as steps take it, or the other way;
            None: ``for_steps`` changes no model.
        for_new: ``for_new(stored, model)``, on the host, of `transform` and `log_density`: the stored
            variables and what stands for the model, in sizes that others share; results are cut. None: as
            they are.
        in_batches: ``in_batches(**options) -> Memoised | NaturalGradient``, the step for rows that pass in
            batches; it raises ValueError for an option that needs all rows at once.
    """

    settings: type[Settings] = Climb
    may_fall: bool = False
    own_rows: Callable = whole_state
    restarts: Callable = one_start
    drops_starts: bool = False
    runs_on_host: Callable = never
    starts_alike: bool = False
    resized: Callable | None = None
    for_new: Callable | None = None
    in_batches: Callable | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Stochastic(Iterative):
    """A method that climbs a noisy objective for a given number of steps: SVI.

    Attributes:
        settings: as of `Method`.
        turned: ``turned(variables, inner, outer, turn, **options)``, the parameters of a guide in the
            unconstrained coordinates of another program: ``inner`` and ``outer`` are model and data of both,
            and ``turn`` takes the sites' values from one to the other.
    """

    settings: type[Settings] = Climb
    turned: Callable


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampler(Iterative):
    """A method that runs chains of draws.

    Attributes:
        settings: as of `Method`.
        position: ``position(keep_rows)`` returns a function of (state, model), whose value is kept of a draw.
        resize: ``resize(states, model, full)``, the states of all chains with another number of slots, see
            `inference.driver.chains.sample`.
        slot_axes: with ``resize``, the paths of the leaves of the states whose size it changes, as
            ``jax.tree_util.keystr`` gives them, and the axis (that over chains being 0); a path that ends in
            a star stands for all that begin so, and a third entry says what the axis is over, if not slots.
        rounds: ``rounds(num_warmup)``, the sweeps after which ``resize`` is asked, the end of warm-up last.
        by_settings: ``by_settings(model, settings)``, the sampler that the settings of a call ask for; None:
            this one.
        options_for_modes: ``options_for_modes(model)``, options whose moves lead chains from one mode to
            another, for the advice to someone whose chains stay apart; empty where there are none.
        to_convergence: ``to_convergence(model, data, num_chains)``, the settings of a call that says neither
            how many draws nor until when: it runs until its chains agree, ``num_samples`` draws at a time, at
            most ``max_looks`` times, and ``thinning`` if the call does not say. None: as many draws as any
            method makes by default.
    """

    settings: type[Settings] = Sampling
    position: Callable
    resize: Callable | None = None
    slot_axes: tuple[tuple[str, int] | tuple[str, int, str], ...] = ()
    rounds: Callable = one_round
    by_settings: Callable | None = None
    options_for_modes: Callable = lambda model: {}
    to_convergence: Callable | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Direct(Method):
    """A method that computes its answer at once, on the host.

    Attributes:
        settings: as of `Method`.
        solve: ``solve(key, model, data, **options) -> (Outcome, objective)``, NumPy arrays in and out.
        is_double: whether it computes in double precision whatever ``dtype`` is.
    """

    settings: type[Settings] = Once
    solve: Callable
    is_double: bool = False


def conclude_draws(key: Array, draws: dict[str, Any], model: Model, data: tuple, keep_rows: bool) -> Outcome:
    """The ``conclude`` of a sampler of all sites, whose draws are the posterior as they are."""
    return Outcome(posterior=draws, densities={"objective": tuple(draws)})


def as_one_chain(draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Independent draws as those of one chain, on the host.

    Args:
        draws: name to draws, a leading axis over them.

    Returns:
        Arrays with leading dims (chain, draw).
    """
    return {name: np.asarray(value)[None] for name, value in draws.items()}


def as_one_draw(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A point as the only draw of one chain, on the host.

    Args:
        values: name to value.

    Returns:
        Arrays with leading dims (chain, draw).
    """
    return {name: np.asarray(value)[None, None] for name, value in values.items()}


def model_name(model: Model) -> str:
    """The key of the model in ``zoo.MODELS``."""
    return type(model).__name__.lower()


def check_model(model: object) -> None:
    """Raise TypeError for something that is no model: a class, a name, or anything else."""
    if isinstance(model, Model):
        return
    found = None
    if isinstance(model, type) and issubclass(model, Model):
        found = model.__name__
    elif isinstance(model, str) and model.lower() in zoo.MODELS:
        found = zoo.MODELS[model.lower()]["class"]
    got = f"the class {found}" if isinstance(model, type) and found else shown(model)
    remedy = f": make one, zoo.{found}()" if found else ", such as zoo.Mixture()"
    raise TypeError(f"model must be a model of the zoo; got {got}{remedy}")


# A call of `fit`


@dataclass(frozen=True, kw_only=True, eq=False)
class FitRequest[M: Method, S: Climb | Sampling | Once]:
    """A validated call of `fit`, by a kind of method that goes with its settings.

    Attributes:
        model: the model, its sizes and data-dependent defaults filled in.
        data: the parts of the data as float64 arrays or sparse matrices; of rows that pass in batches those
            that default priors are read off, or that they were summed up to.
        coords: labels by dim, as they came with the data.
        columns: of each part of the data what its columns hold, None of a part that is no table.
        method: the method.
        name: its name.
        settings: of the method, what the call leaves open decided.
        drops_starts: whether a start that falls behind for good is stopped; never where the call says how
            many.
        init: as passed.
        strategy: the name of the start.
        variables: given values to start from, with a leading axis over restarts or chains, or None.
        sample_weight: of the rows, shape (num_observations,), or None.
        stream: the rows or documents in batches, or None.
        batch_size: of the stream.
        key: the JAX key.
        seed: as it is stored: a whole number, or the words of a key as a string.
        dtype: ``"float64"`` or ``"float32"``.
        keep: names of variables to store whatever their size.
        show_progress: whether a bar is shown.
        checkpoint: a path, or None.
        back: the way back from the coordinates of the fit (`inference.coordinates.Return`), where model and
            data are in coordinates of their own; else None.
    """

    model: Any
    data: tuple
    coords: Mapping[str, Any]
    columns: tuple[Columns | None, ...]
    method: M
    name: str
    settings: S
    drops_starts: bool
    init: Any
    strategy: str
    variables: Mapping[str, np.ndarray] | None
    sample_weight: np.ndarray | None
    stream: Any
    batch_size: int | None
    key: Any
    seed: int | str
    dtype: str
    keep: tuple[str, ...]
    show_progress: bool
    checkpoint: Any
    back: Any = None

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method but ``num_devices``."""
        return self.settings.options

    @property
    def num_devices(self) -> int:
        """How many devices the rows lie on."""
        return getattr(self.settings, "num_devices", 1)

    @property
    def told(self) -> dict[str, Any]:
        """The settings of its kind of method, as they are stored with a fit."""
        if isinstance(self.settings, Sampling):
            return self.settings.shared
        if isinstance(self.settings, Climb):
            return self.settings.shared | {"drops_starts": self.drops_starts}
        return {"num_restarts": self.settings.num_restarts}

    @property
    def spreads_rows(self) -> bool:
        """Whether each of several processes holds rows of its own.

        Those of a sampler all hold every row, and rows that were summed up are those of all processes.
        """
        is_summed = self.batch_size is not None and "moments" in self.method.takes
        return jax.process_count() > 1 and not is_summed and not isinstance(self.method, Sampler)

    @property
    def work(self) -> tuple[float, float]:
        """Cells passed over once for each draw, and by all steps: by sizes and numbers of steps alone."""
        if self.stream is not None:
            return np.inf, np.inf
        cells = sum(part.nbytes for part in self.data) / 8
        settings, passes = self.settings, answer_of(self.model, "density_passes")
        return cells * settings.num_draws * passes, cells * settings.num_steps * self.method.passes_per_step


class AscentRun(NamedTuple):
    """A finished (or interrupted) ascent.

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


class ChainsRun(NamedTuple):
    """Finished (or interrupted) chains of a sampler.

    Attributes:
        draws: the kept draws, leaves of shape (num_chains, num_draws, ...).
        trace: name to array of shape (num_chains, num_sweeps), warm-up included.
        stop_reason: ``"completed"``, ``"interrupted"`` or an error.
        num_iterations: sweeps run per chain, warm-up included.
        looks: of a run until the chains agree: the draws per chain at each look, whether it passed, and the
            largest R-hat then, shape (num_looks, 3); else None.
    """

    draws: Any
    trace: dict[str, np.ndarray]
    stop_reason: str
    num_iterations: int
    looks: np.ndarray | None = None


class Fitted(NamedTuple):
    """A run and its outcome, before they become a tree.

    Attributes:
        run: as the driver returned it.
        outcome: the conclusion of the method, NumPy arrays throughout.
        data: the rows that the tree may hold, or None if it is to hold nothing per row.
        sample_weight: of these rows, or None.
    """

    run: AscentRun | ChainsRun
    outcome: Outcome
    data: tuple | None
    sample_weight: np.ndarray | None = None


def last_of(run: AscentRun, name: str) -> np.ndarray:
    """The last recorded value of the best restart."""
    values = run.trace[name][run.best_restart]
    return values[np.isfinite(values)][-1]
