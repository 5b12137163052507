"""`fit`: check everything, choose the algorithm, drive it, hand back a tree."""

import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

import zoo
from inference.algorithm import Method, Outcome
from inference.ascent import Ascent, ascend, last_of
from inference.assembly import assemble, trace_group
from inference.atomic_files import check_writable
from inference.checkpoint import Checkpoint, fingerprint
from inference.convergence_of_runs import has_converged
from inference.devices import deal_out, exchanged, on_all_devices, on_one_device, resolved_num_devices
from inference.driver import CHAIN_METHODS, Chains, sample
from inference.minibatch import drive_in_batches, open_stream, passes_in_batches, rows_to_begin_with
from inference.model_fields import model_name
from inference.precision import in_precision, to_numpy
from inference.results import row_limit, versions
from inference.rows import Rows, checked_weight, unweighted, weight_of
from inference.starting_points import read_init
from inference.tables import as_arrays
from zoo.model import Model, in_current_precision

__all__ = ["fit", "method_of"]

FOLDERS = {
    "vb": "variational",
    "gibbs": "gibbs",
    "collapsed_gibbs": "gibbs",
    "em": "em",
    "closed_form": "closed_form",
}


def fit(
    model: Model,
    *data: Any,
    method: str = "auto",
    seed: int | jax.Array = 0,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    thinning: int = 1,
    chain_method: str = "vectorized",
    max_iterations: int = 1000,
    tolerance: float = 1e-6,
    num_restarts: int = 1,
    init: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    dtype: str = "float64",
    keep: tuple[str, ...] = (),
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    **options: Any,
) -> xr.DataTree:
    """A model fitted to data, as a DataTree that ArviZ reads.

    Args:
        model: a model of the zoo; fields that are None are read off the data.
        *data: what the model's program takes: arrays of shape (num_observations, num_features), or
            DataFrames, whose labels become coords.
        method: one of ``model.methods``; ``"auto"`` is the first that suits model and data.
        seed: a whole number in [0, 2**32) or a JAX key. Same seed, machine, versions, ``chain_method`` and
            devices: same answer, bit for bit.
        num_chains: chains of a sampler.
        num_warmup: sweeps before draws are kept.
        num_samples: draws kept per chain; for VB and SVI, independent draws from q, as one chain.
        thinning: sweeps per kept draw.
        chain_method: ``"vectorized"``, ``"sequential"`` or ``"parallel"`` (over devices).
        max_iterations: the most steps of VB, EM, MAP, or the number of steps of SVI.
        tolerance: gain of the objective in nats per row; five consecutive steps below it mean convergence.
            0: exactly ``max_iterations`` steps.
        num_restarts: starts of VB, EM or MAP, run side by side; the best objective is kept.
        init: where to start: a former tree, a dict of variables (``{"responsibilities": r}``), or the name
            of a strategy.
        sample_weight: weight per row, at least 0, shape (num_observations,): a row of weight w counts as w
            copies in the objective and the fit (``vb`` and ``em``). Data-dependent default priors and the
            group ``log_likelihood`` are those of the rows themselves.
        batch_size: rows per batch (``vb`` of mixtures): the rows pass in batches, a memory-mapped file or
            chunks (an object with ``__iter__``, or a callable that makes a fresh iterator) are never held
            whole, and an iteration is one pass over all of them (memoised variational inference, Hughes and
            Sudderth 2013). A start sees ``batch_size`` rows, evenly spaced ones or the first ones of chunks,
            and VB climbs to the top of their bound (with ``moves``, if asked) before the first pass;
            data-dependent default priors are read off at most 100 000 rows of a file or of chunks.
        dtype: ``"float64"`` or ``"float32"``.
        keep: names of variables to store whatever their size (``"assignments"``, ``"log_likelihood"``).
        progress: whether to show a bar; None: on a terminal or in a notebook.
        checkpoint: a file to save to and resume from; the same call goes on where it was cut.
        **options: options of the method.

    Returns:
        The tree; its groups and names are those of the README.

    Raises:
        TypeError: an option that the method does not have, or data that are not numeric.
        ValueError: anything else that is wrong with the call; always before anything is compiled.
    """
    begin = time.perf_counter()
    if not isinstance(model, Model):
        raise TypeError(f"model must be a model of the zoo, such as zoo.Mixture; got {type(model).__name__}")
    name = model.methods[0] if method == "auto" else method
    chosen = method_of(model, name)
    stream = None
    model, data = model.coded(*data)
    if passes_in_batches(data, batch_size):
        _check_takes_batches(chosen, name, model, options)
        stream, coords = open_stream(data, batch_size, sample_weight)
        arrays = (rows_to_begin_with(stream),)
    else:
        arrays, coords = as_arrays(data)
    shared_by_all = arrays if jax.process_count() == 1 else tuple(map(exchanged, arrays))
    model = model.filled(*shared_by_all)
    model.check(*arrays)
    if method == "auto" and stream is None:
        name = model.auto_method(*shared_by_all)
        chosen = method_of(model, name)
    settings = _check_settings(
        chosen,
        num_chains=num_chains,
        num_warmup=num_warmup,
        num_samples=num_samples,
        thinning=thinning,
        chain_method=chain_method,
        max_iterations=max_iterations,
        tolerance=tolerance,
        num_restarts=num_restarts,
    )
    options = _check_options(chosen, name, options)
    num_devices = resolved_num_devices(options.pop("num_devices")) if "num_devices" in options else 1
    if chosen.check is not None:
        chosen.check(model, **options)
    model.caution(name)
    weight = None
    if sample_weight is not None and (not chosen.takes_weight or options.get("moves")):
        with_moves = " with moves" if chosen.takes_weight else ""
        raise ValueError(f"method {name!r} of {model_name(model)}{with_moves} does not take sample_weight")
    if sample_weight is not None and stream is None:
        weight = checked_weight(sample_weight, arrays[0].shape[0])
    strategy, variables = read_init(init, chosen, settings)
    if checkpoint is not None:
        check_writable(checkpoint)
    with in_precision(dtype):
        key = _key_of(seed)
        data_of_run = arrays if stream is None or checkpoint is None else stream.identity()
        aspects = fingerprint(
            model,
            () if checkpoint is None else (data_of_run, variables, weight),
            method=name,
            settings=settings,
            options=options,
            init=strategy,
            batch_size=batch_size,
            num_devices=num_devices,
            seed=np.asarray(jax.random.key_data(key)).tolist(),
            dtype=dtype,
            devices=[str(device) for device in jax.devices()],
            versions=versions(),
        )
        shared = {
            "key": key,
            "settings": settings,
            "options": options,
            "num_devices": num_devices,
            "variables": variables,
            "checkpoint": Checkpoint(checkpoint, aspects),
            "progress": _shows_progress() if progress is None else progress,
            "keep": tuple(keep),
        }
        whole: tuple | None = arrays
        if chosen.kind == "direct":
            result, outcome = _solve(chosen, key, model, arrays, options)
        elif stream is None:
            taken = arrays if weight is None else (Rows(arrays[0], weight), *arrays[1:])
            if chosen.prepare is not None:
                taken = chosen.prepare(model, taken, init, **options)
            run = (in_current_precision(model), in_current_precision(taken))
            result, outcome = _drive(chosen, *run, strategy=strategy, **shared)
        else:
            algorithm = chosen.build(init=strategy, **options)
            shared |= {"algorithm": algorithm, "start": _start_of(chosen, algorithm, variables, options)}
            run = (in_current_precision(model), model, stream)
            result, outcome, whole = drive_in_batches(chosen, *run, **shared)
            weight = stream.sample_weight if whole is not None else None
        learnt = model if outcome.model is None else outcome.model
        trace = trace_group(chosen, result, settings)
        held = arrays if whole is None else whole
        tree = assemble(learnt, held, coords, outcome, trace, tuple(keep), holds_rows=whole is not None)
    if weight is not None:
        tree["constant_data"] = (
            tree["constant_data"].to_dataset().assign(sample_weight=("observation", weight))
        )
    attrs = dict(outcome.attrs)
    if stream is not None:
        attrs |= {"batch_size": int(batch_size), "num_observations": stream.num_rows or 0}
    if num_devices > 1:
        attrs["num_devices"] = num_devices
    if "learnt_from" in attrs:
        options["learnt_from"] = json.loads(attrs.pop("learnt_from"))
    if isinstance(result, Ascent) and options.get("moves"):
        attrs["num_improvements"] = result.num_improvements
    converged, advice = has_converged(chosen, result, tree, settings)
    tree.attrs |= {
        "method": name,
        "options": json.dumps(settings | options | {"init": strategy if variables is None else "given"}),
        "seed": int(seed) if isinstance(seed, int | np.integer) else str(aspects["seed"]),
        "dtype": dtype,
        "converged": int(converged),
        "stop_reason": result.stop_reason,
        "num_iterations": result.num_iterations,
        "chain_method": chain_method if chosen.kind == "sampling" else "none",
        "sampling_time": time.perf_counter() - begin,
    }
    tree.attrs |= (
        ({"best_restart": result.best_restart} if "restart" in tree["trace"].dims else {})
        | attrs
        | versions()
    )
    if not converged and advice:
        warnings.warn(f"{model_name(model)} by {name} has not converged: {advice}", stacklevel=2)
    return tree


def method_of(model: Model, name: str) -> Method:
    """The method of that name.

    Raises:
        ValueError: the model has no such method (the message lists those it has).
    """
    if name not in model.methods:
        raise ValueError(f"{model_name(model)} has no method {name!r}; it has {', '.join(model.methods)}")
    if name in ("nuts", "hmc"):
        return importlib.import_module("inference.hamiltonian").METHODS[name]
    if name == "svi":
        return importlib.import_module("inference.autoguides").METHOD
    if name == "map":
        return importlib.import_module("inference.maximum_a_posteriori").METHOD
    prefix = "collapsed_" if name.startswith("collapsed_") else ""
    file = zoo.MODELS[model_name(model)]["module"].rpartition(".")[2]
    return importlib.import_module(f"inference.{FOLDERS[name]}.{prefix}{file}").METHOD


# Checks


def _check_settings(method: Method, **settings: Any) -> dict[str, Any]:
    """The settings that matter to this kind of method, checked."""
    for name, at_least in (
        ("num_chains", 1),
        ("num_warmup", 0),
        ("num_samples", 1),
        ("thinning", 1),
        ("max_iterations", 1),
        ("num_restarts", 1),
    ):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
            raise ValueError(f"{name} must be a whole number of at least {at_least}; got {value!r}")
    if not (isinstance(settings["tolerance"], int | float) and settings["tolerance"] >= 0):
        raise ValueError(
            f"tolerance must be a number of at least 0 (nats per row); got {settings['tolerance']!r}"
        )
    if settings["chain_method"] not in CHAIN_METHODS:
        raise ValueError(
            f"chain_method must be one of {', '.join(CHAIN_METHODS)}; got {settings['chain_method']!r}"
        )
    if method.kind == "direct":
        return {"num_restarts": 1}
    sampling = ("num_chains", "num_warmup", "num_samples", "thinning", "chain_method")
    ascent = ("num_samples", "max_iterations", "tolerance", "num_restarts")
    return {name: settings[name] for name in (sampling if method.kind == "sampling" else ascent)}


def _check_options(method: Method, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [option for option in options if option not in method.options]
    if unknown:
        has = ", ".join(method.options) or "no options of its own"
        raise TypeError(f"method {name!r} has no option {unknown[0]!r}; it has {has}")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return dict(method.options) | given  # lists: as the options of a stored fit have them


def _check_takes_batches(method: Method, name: str, model: Model, options: Mapping[str, Any]) -> None:
    if method.memoised is None:
        raise ValueError(f"method {name!r} of {model_name(model)} does not take batch_size")
    if options.get("learn"):
        raise ValueError(
            "learn does not go with batch_size: give the hyperparameters, or learn them on fewer rows"
        )


def _key_of(seed: Any) -> jax.Array:
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array) and seed.dtype == jnp.uint32 and seed.shape == (2,):
        return jax.random.wrap_key_data(seed)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2**32) or a JAX key; got {seed!r}")
    return jax.random.key(int(seed))


def _shows_progress() -> bool:
    """On a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


# The run


def _solve(
    method: Method, key: jax.Array, model: Model, arrays: tuple, options: dict[str, Any]
) -> tuple[Ascent, Outcome]:
    """A direct method's answer, as an ascent of one step that converged."""
    outcome, objective = method.solve(key, model, arrays, **options)
    trace = {"objective": np.full((1, 1), float(objective))}
    return Ascent(None, trace, 0, True, "solved directly", 1, 0), outcome


def _drive(
    method: Method,
    model: Model,
    data: tuple,
    *,
    key: jax.Array,
    settings: dict[str, Any],
    options: dict[str, Any],
    num_devices: int,
    strategy: str,
    variables: dict[str, np.ndarray] | None,
    checkpoint: Checkpoint,
    progress: bool,
    keep: tuple[str, ...],
) -> tuple[Ascent | Chains, Outcome]:
    """Run and conclude; everything handed out is NumPy."""
    adaptation = {"num_warmup": settings["num_warmup"]} if method.kind == "sampling" else {}
    algorithm = method.build(init=strategy, **options, **adaptation)
    start = _start_of(method, algorithm, variables, {**options, **adaptation})
    variables = {} if variables is None else variables
    run_key, conclude_key = jax.random.split(key)
    num_rows, num_samples = data[0].shape[0], settings["num_samples"]
    total_weight = float(jnp.sum(data[0].weight)) if isinstance(data[0], Rows) else num_rows
    shared = {"key": run_key, "variables": variables, "checkpoint": checkpoint, "progress": progress}
    if method.kind == "sampling":
        keep_rows = row_limit(settings["num_chains"] * num_samples * num_rows, "assignments", keep)
        position = method.position(keep_rows)
        result = sample(
            algorithm.step, start, position, model, data, **settings, **shared, resize=method.resize
        )
        outcome = method.conclude(
            conclude_key, jax.tree.map(jnp.asarray, result.draws), model, data, keep_rows
        )
    else:
        keep_rows = row_limit(num_samples * num_rows, "assignments", keep)
        rising = method.kind == "ascent"
        if num_devices > 1:
            rows, weight = np.asarray(unweighted(data[0])), np.asarray(weight_of(data[0]))
            of_all = Rows(*map(jnp.asarray, (exchanged(rows), exchanged(weight[:, None])[:, 0])))
            shared |= {
                "start_data": data if jax.process_count() == 1 else (of_all,),
                "place": partial(on_all_devices, num_devices=num_devices),
            }
            total_weight = (
                float(exchanged(weight[:, None]).sum()) if jax.process_count() > 1 else total_weight
            )
        result = ascend(
            algorithm.step,
            start,
            model,
            (deal_out(rows, weight, num_devices),) if num_devices > 1 else data,
            num_rows=total_weight,
            num_restarts=settings["num_restarts"],
            max_iterations=settings["max_iterations"],
            tolerance=settings["tolerance"] if rising else 0.0,
            must_rise=rising,
            improve=algorithm.improve,
            **shared,
        )
        state = on_one_device(result.state) if num_devices > 1 else result.state
        outcome = method.conclude(conclude_key, state, model, data, num_samples, keep_rows, **options)
    on_host = {
        name: to_numpy(dict(getattr(outcome, name))) for name in ("posterior", "variational", "sample_stats")
    }
    if jax.process_count() > 1 and "num_occupied" in result.trace:  # each process holds but its own rows
        on_host["variational"]["num_occupied"] = last_of(result, "num_occupied").astype(int)
    return result, outcome._replace(**on_host)


def _start_of(method: Method, algorithm: Any, variables: Mapping | None, options: dict[str, Any]) -> Callable:
    """``start(key, variables, model, *data)`` of one run."""
    if variables is None:
        return _fresh(algorithm.init)
    return _given(method.start, tuple(sorted(options.items())))


@cache
def _fresh(init: Callable) -> Callable:
    """A start that is given nothing."""
    return lambda key, variables, model, *data: init(key, model, *data)


@cache
def _given(start: Callable, options: tuple) -> Callable:
    """A start from given variables."""
    return partial(start, **dict(options))
