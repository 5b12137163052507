"""What an algorithm is, and what the front door must know to run one.

An algorithm is two pure functions. ``init(key, model, *data)`` gives a state,
``step(key, state, model, *data)`` gives the next state and what is worth recording. Model and data are
arguments, never closed over and never part of the state: they can be sharded, a second fit of the same
shapes compiles nothing, and a checkpoint holds no data. Both functions are module-level (or made once per
set of options by a cached builder), so that their identity can key the compile cache.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["Algorithm", "Memoised", "Method", "Outcome", "conclude_draws"]


class Algorithm(NamedTuple):
    """A pair of pure functions that the driver compiles, vmaps over chains or restarts, and repeats.

    Attributes:
        init: ``init(key, model, *data) -> state``.
        step: ``step(key, state, model, *data) -> (state, info)``; ``info`` is a NamedTuple of scalars that
            always has ``objective``, in
            nats: the bound, the log likelihood or the log posterior for an ascent, the log joint for a
                sampler.
        improve: ascent only, optional: ``improve(key, state, model, *data) -> (state, objective, better)``,
            asked whenever the objective has settled: a state elsewhere with a higher objective, and whether
            there is one.
        shrink: ascent only, optional: ``shrink(states, model)``, asked on the host now and then, of all
            restarts (leading axis): smaller states with the same objective to run on with, or None.
    """

    init: Callable
    step: Callable
    improve: Callable | None = None
    shrink: Callable | None = None


class Memoised(NamedTuple):
    """An ascent taken apart, so that rows can pass in batches (Hughes and Sudderth 2013).

    What each batch contributed at its last visit is remembered; a visit replaces it by what the batch
    contributes now, and the rest of the state follows from the sum. That is coordinate ascent on the whole
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


class Stochastic(NamedTuple):
    """An ascent by noisy natural gradients, one batch of rows each (Hoffman, Blei, Wang and Paisley 2013).

    Attributes:
        step: ``step(state, model, rows, share, time) -> (state, score)``: the rows are this share of all, the
            batch is number ``time`` (from 1); the rows' part of the bound before the step.
        evaluate: ``evaluate(state, model, rows) -> (parameters of the rows, score)``.
        total: ``total(state, model) -> info``, the objective without the rows' part.
        with_rows: ``with_rows(state, parameters)``, the state that ``conclude`` takes.
        without_rows: ``without_rows(state)``, a start's state as batches pass it on.
    """

    step: Callable
    evaluate: Callable
    total: Callable
    with_rows: Callable
    without_rows: Callable


class Outcome(NamedTuple):
    """What a method concludes from its final state (or its draws), before names of dims are attached.

    Attributes:
        posterior: site name to draws, with leading dims (chain, draw).
        variational: name to array: the parameters of q or the point estimate, without chain or draw dims.
        sample_stats: name to array with leading dims (chain, draw).
        attrs: further root attributes (str, int, float).
        dims: names of the dims of variables that ``model.variable_dims`` does not name.
        model: the model that the fit is of, where the method learns hyperparameters or sizes.
        is_point: whether it is a point estimate, which has no pointwise posterior log likelihood.
        is_generative: whether ``posterior`` holds the sites of the program; a projection's does not.
    """

    posterior: Mapping[str, Any]
    variational: Mapping[str, Any] = MappingProxyType({})
    sample_stats: Mapping[str, Any] = MappingProxyType({})
    attrs: Mapping[str, Any] = MappingProxyType({})
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    model: Any = None
    is_point: bool = False
    is_generative: bool = True


class Method(NamedTuple):
    """One way to fit one model, as the front door sees it.

    Attributes:
        kind: ``"ascent"`` (an objective that must not fall), ``"stochastic"`` (a noisy objective),
            ``"sampling"`` (chains of draws) or ``"direct"`` (one computation on the host, nothing repeated).
        options: the options a caller may pass to ``fit``, with their defaults.
        strategies: the strings that ``init`` may be; the first is the default.
        build: ``build(init=strategy, **options) -> Algorithm``, cached, so that equal options give the same
            functions.
        start: ``start(key, variables, model, *data, **options) -> state``, a state from given variables
            (``init`` a dict or a former tree).
        conclude: ascent: ``conclude(key, state, model, data, num_samples, keep_rows, **options) -> Outcome``;
            sampling: ``conclude(key, draws, model, data, keep_rows) -> Outcome``.
        position: sampling only: ``position(keep_rows)`` gives a function of (state, model); what that
            returns is kept of a draw.
        guide: variational only: ``guide(variables, model, *data)``, q as a NumPyro program.
        transform: ``transform(variables, model, *new_data)``, scores of new rows; samplers and SVI average
            over draws.
        covariance: ``covariance(variables, model, *new_data)``, of the scores of new rows.
        predict: ``predict(variables, model, *new_data)``, mean and variance of what is missing of new rows.
            Without these three the model's own ``scores``, ``scores_covariance`` and ``predicted`` at the
            estimate serve.
        log_density: ``log_density(variables, model, *new_data)`` per new row; without it densities are
            averaged over draws.
        resize: sampling only: ``resize(states, model, full)``, the states of all chains with another number
            of slots, see `inference.driver.sample`.
        may_fall: ascent only: whether its objective may fall on the way, so that a fall is no error.
        takes_weight: whether its data may be `inference.rows.Rows`.
        takes_sparse: whether they may be `zoo.sparse_matrix.SparseMatrix`.
        runs_on_host: ascent only: ``runs_on_host(data)``, whether its steps on these (prepared) data run on
            the host instead of compiled.
        prepare: ``prepare(model, data, init, **options)``, on the host before anything is compiled: what
            ``init``, ``start``, ``step`` and ``conclude`` take as data instead of what a person passed. It
            may raise ValueError if ``init`` does not suit the data.
        solve: direct only: ``solve(key, model, data, **options) -> (Outcome, objective)`` with NumPy arrays
            in and out.
        memoised: ``memoised(**options) -> Memoised``, for data that pass in batches; without it the method
            does not take ``batch_size``.
        stochastic: ``stochastic(**options) -> Stochastic``, for documents that pass in batches.
        learnt_in_batches: hyperparameters that may be learnt with ``batch_size``.
        shards_documents: whether its (prepared) documents have ``over_devices(num_devices)``.
        check: ``check(model, **options)`` raises ValueError or TypeError if an option does not suit the
            model, before anything is compiled.
    """

    kind: str
    options: Mapping[str, Any]
    strategies: tuple[str, ...]
    build: Callable | None = None
    start: Callable | None = None
    conclude: Callable | None = None
    position: Callable | None = None
    guide: Callable | None = None
    transform: Callable | None = None
    covariance: Callable | None = None
    predict: Callable | None = None
    log_density: Callable | None = None
    prepare: Callable | None = None
    solve: Callable | None = None
    check: Callable | None = None
    resize: Callable | None = None
    may_fall: bool = False
    takes_weight: bool = False
    takes_sparse: bool = False
    runs_on_host: Callable | None = None
    memoised: Callable | None = None
    stochastic: Callable | None = None
    learnt_in_batches: tuple[str, ...] = ()
    shards_documents: bool = False


def conclude_draws(key: Any, draws: dict[str, Any], model: Any, data: tuple, keep_rows: bool) -> Outcome:
    """The ``conclude`` of a sampler whose draws are the posterior as they are."""
    return Outcome(posterior=draws)
