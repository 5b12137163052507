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

from inference.algorithm import Method, Outcome
from inference.atomic_files import check_writable
from inference.checkpoint import Checkpoint, fingerprint
from inference.densities import deterministics, log_prior
from inference.draws import over_draws
from inference.driver import CHAIN_METHODS, Ascent, Chains, ascend, sample
from inference.model_fields import describe, field_dims, model_name
from inference.precision import in_precision, to_numpy
from inference.results import SAMPLE_DIMS, Labels, dataset, row_limit, versions
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
        method: one of ``model.methods``; ``"auto"`` is the first.
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
        sample_weight: weight per row; no method of the present models takes it.
        batch_size: rows per minibatch; no method of the present models takes it.
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
    arrays, coords = as_arrays(data)
    model = model.filled(*arrays)
    model.check(*arrays)
    name = model.methods[0] if method == "auto" else method
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
    for argument, value in (("sample_weight", sample_weight), ("batch_size", batch_size)):
        if value is not None:
            raise ValueError(f"method {name!r} of {model_name(model)} does not take {argument}")
    strategy, variables = _read_init(init, chosen, settings)
    if checkpoint is not None:
        check_writable(checkpoint)
    with in_precision(dtype):
        key = _key_of(seed)
        aspects = fingerprint(
            model,
            (arrays, variables),
            method=name,
            settings=settings,
            options=options,
            init=strategy,
            seed=np.asarray(jax.random.key_data(key)).tolist(),
            dtype=dtype,
            devices=[str(device) for device in jax.devices()],
            versions=versions(),
        )
        result, outcome = _drive(
            chosen,
            in_current_precision(model),
            in_current_precision(arrays),
            key=key,
            settings=settings,
            options=options,
            strategy=strategy,
            variables=variables,
            checkpoint=Checkpoint(checkpoint, aspects),
            progress=_shows_progress() if progress is None else progress,
            keep=tuple(keep),
        )
        tree = _assemble(model, arrays, coords, outcome, _trace(chosen, result, settings), tuple(keep))
    converged, advice = _judge(chosen, result, tree, settings)
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
        | dict(outcome.attrs)
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
    return importlib.import_module(f"inference.{FOLDERS[name]}.{model_name(model)}").METHOD


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
    sampling = ("num_chains", "num_warmup", "num_samples", "thinning", "chain_method")
    ascent = ("num_samples", "max_iterations", "tolerance", "num_restarts")
    return {name: settings[name] for name in (sampling if method.kind == "sampling" else ascent)}


def _check_options(method: Method, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [option for option in options if option not in method.options]
    if unknown:
        has = ", ".join(method.options) or "no options of its own"
        raise TypeError(f"method {name!r} has no option {unknown[0]!r}; it has {has}")
    return dict(method.options) | dict(options)


def _key_of(seed: Any) -> jax.Array:
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array) and seed.dtype == jnp.uint32 and seed.shape == (2,):
        return jax.random.wrap_key_data(seed)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2**32) or a JAX key; got {seed!r}")
    return jax.random.key(int(seed))


def _read_init(
    init: Any, method: Method, settings: Mapping[str, Any]
) -> tuple[str, dict[str, np.ndarray] | None]:
    """The start strategy, and given variables: for a sampler with a leading axis over chains."""
    if init is None:
        return method.strategies[0], None
    if isinstance(init, str):
        if init not in method.strategies:
            raise ValueError(
                f"init must be one of {', '.join(method.strategies)}, a former tree, or a dict of variables; "
                f"got {init!r}"
            )
        return init, None
    lanes = settings.get("num_chains", settings.get("num_restarts"))
    if isinstance(init, xr.DataTree):
        if method.kind != "ascent":
            return method.strategies[0], _draws_to_start_from(init, lanes)
        values = _best_of(init)
    elif isinstance(init, Mapping):
        values = {name: np.asarray(value) for name, value in init.items()}
    else:
        raise TypeError(
            f"init must be a strategy name, a former tree or a dict of variables; got {type(init).__name__}"
        )
    return method.strategies[0], {
        name: np.broadcast_to(value, (lanes, *value.shape)) for name, value in values.items()
    }


def _best_of(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """What an ascent starts from.

    The parameters of q, or the draw with the highest likelihood (the last, without it).
    """
    if "variational" in tree.children:
        return {name: value.to_numpy() for name, value in tree["variational"].data_vars.items()}
    posterior = tree["posterior"].to_dataset()
    chain, draw = 0, -1
    if "log_likelihood" in tree.children:
        density = tree["log_likelihood"]["log_likelihood"].sum("observation").to_numpy()
        chain, draw = np.unravel_index(density.argmax(), density.shape)
    return {name: value.to_numpy()[chain, draw] for name, value in posterior.data_vars.items()}


def _draws_to_start_from(tree: xr.DataTree, lanes: int) -> dict[str, np.ndarray]:
    """What chains start from: the last draw of each, if there are as many.

    Else draws evenly spread over all.
    """
    posterior = tree["posterior"].to_dataset()
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains == lanes:
        return {name: value.to_numpy()[:, -1] for name, value in posterior.data_vars.items()}
    flat = np.linspace(0, chains * draws - 1, lanes).round().astype(int)
    return {
        name: value.to_numpy().reshape(chains * draws, *value.shape[2:])[flat]
        for name, value in posterior.data_vars.items()
    }


def _shows_progress() -> bool:
    """On a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


# The run


def _drive(
    method: Method,
    model: Model,
    data: tuple,
    *,
    key: jax.Array,
    settings: dict[str, Any],
    options: dict[str, Any],
    strategy: str,
    variables: dict[str, np.ndarray] | None,
    checkpoint: Checkpoint,
    progress: bool,
    keep: tuple[str, ...],
) -> tuple[Ascent | Chains, Outcome]:
    """Run and conclude; everything handed out is NumPy."""
    adaptation = {"num_warmup": settings["num_warmup"]} if method.kind == "sampling" else {}
    algorithm = method.build(init=strategy, **options, **adaptation)
    if variables is None:
        start, variables = _fresh(algorithm.init), {}
    else:
        start = _given(method.start, tuple(sorted({**options, **adaptation}.items())))
    run_key, conclude_key = jax.random.split(key)
    num_rows, num_samples = data[0].shape[0], settings["num_samples"]
    shared = {"key": run_key, "variables": variables, "checkpoint": checkpoint, "progress": progress}
    if method.kind == "sampling":
        keep_rows = row_limit(settings["num_chains"] * num_samples * num_rows, "assignments", keep)
        result = sample(algorithm.step, start, method.position(keep_rows), model, data, **settings, **shared)
        outcome = method.conclude(
            conclude_key, jax.tree.map(jnp.asarray, result.draws), model, data, keep_rows
        )
    else:
        keep_rows = row_limit(num_samples * num_rows, "assignments", keep)
        rising = method.kind == "ascent"
        result = ascend(
            algorithm.step,
            start,
            model,
            data,
            num_rows=num_rows,
            num_restarts=settings["num_restarts"],
            max_iterations=settings["max_iterations"],
            tolerance=settings["tolerance"] if rising else 0.0,
            must_rise=rising,
            **shared,
        )
        outcome = method.conclude(conclude_key, result.state, model, data, num_samples, keep_rows, **options)
    on_host = {
        name: to_numpy(dict(getattr(outcome, name))) for name in ("posterior", "variational", "sample_stats")
    }
    return result, outcome._replace(**on_host)


@cache
def _fresh(init: Callable) -> Callable:
    """A start that is given nothing."""
    return lambda key, variables, model, *data: init(key, model, *data)


@cache
def _given(start: Callable, options: tuple) -> Callable:
    """A start from given variables."""
    return partial(start, **dict(options))


# The tree


def _assemble(
    model: Model,
    data: tuple,
    coords: Mapping[str, Any],
    outcome: Outcome,
    trace: xr.Dataset,
    keep: tuple[str, ...],
) -> xr.DataTree:
    """All groups, with names for dims and coords."""
    labels = Labels(coords)
    dims = dict(model.dims) | dict(outcome.dims)
    fields, arrays = describe(model)
    draws = dict(outcome.posterior)
    first = next(iter(draws.values()))
    draws |= to_numpy(over_draws(deterministics, draws, model, data))
    stats = dict(outcome.sample_stats)
    groups, left_out = {}, [] if "assignments" in draws else ["assignments"]
    if row_limit(first.shape[0] * first.shape[1] * data[0].shape[0] * 8, "log_likelihood", keep):
        rows = np.asarray(over_draws(_log_likelihood, draws, model, data))
        stats["lp"] = rows.sum(axis=-1) + np.asarray(over_draws(log_prior, draws, model, data))
        row_dims = {"log_likelihood": (model.dims[model.data_names[0]][0],)}
        groups["log_likelihood"] = dataset(
            {"log_likelihood": rows}, row_dims, labels, SAMPLE_DIMS, {"latents": "integrated out"}
        )
    else:
        left_out.append("log_likelihood")
    groups["posterior"] = dataset(draws, dims, labels, SAMPLE_DIMS)
    if outcome.variational:
        groups["variational"] = dataset(outcome.variational, dims, labels)
    groups["trace"] = trace
    if stats:
        groups["sample_stats"] = dataset(stats, {}, labels, SAMPLE_DIMS)
    observed = dict(zip(model.data_names, data, strict=True))
    if row_limit(sum(part.nbytes for part in data), "observed_data", keep):
        groups["observed_data"] = dataset(observed, dims, labels)
    else:
        left_out.append("observed_data")
    groups["constant_data"] = dataset(arrays, field_dims(model), labels)
    order = (
        "posterior",
        "variational",
        "trace",
        "sample_stats",
        "log_likelihood",
        "observed_data",
        "constant_data",
    )
    tree = xr.DataTree.from_dict({name: groups[name] for name in order if name in groups})
    tree.attrs = {"model": model_name(model), "model_fields": fields, "left_out": ", ".join(left_out)}
    return tree


def _log_likelihood(model: Model, values: Mapping[str, Any], *data: Any) -> jax.Array:
    return model.log_likelihood(values, *data)


def _trace(method: Method, result: Ascent | Chains, settings: Mapping[str, Any]) -> xr.Dataset:
    """The group `trace`: per restart (where there are several) or chain, by iteration."""
    sampling = method.kind == "sampling"
    several = sampling or settings["num_restarts"] > 1
    leading = (("chain",) if sampling else ("restart",)) if several else ()
    values = result.trace if several else {name: value[0] for name, value in result.trace.items()}
    attrs = {"num_warmup": settings["num_warmup"]} if sampling else {}
    length = result.trace["objective"].shape[1]
    return dataset(
        values,
        dict.fromkeys(values, ("iteration",)),
        Labels({"iteration": np.arange(1, length + 1)}),
        leading,
        attrs,
    )


# Did it converge?


def _judge(
    method: Method, result: Ascent | Chains, tree: xr.DataTree, settings: Mapping[str, Any]
) -> tuple[bool, str]:
    """Whether the fit can be taken for converged, and if not, what to do."""
    if method.kind == "sampling":
        from inference.diagnostics import judge

        if result.stop_reason != "completed":
            return False, f"the run ended early: {result.stop_reason}"
        converged, reason = judge(tree)
        return converged, reason
    if method.kind == "stochastic":
        return _has_levelled(result.trace["objective"][result.best_restart], settings["max_iterations"])
    if result.stop_reason == "max_iterations" and settings["tolerance"] == 0:
        return False, ""  # so it was ordered
    return (
        result.converged,
        f"stopped by {result.stop_reason}; raise max_iterations or tolerance, or try other starts "
        f"(num_restarts)",
    )


def _has_levelled(objective: np.ndarray, max_iterations: int) -> tuple[bool, str]:
    """Whether a noisy objective has stopped rising.

    Its last two tenths differ by less than two standard errors.
    """
    objective = objective[np.isfinite(objective)]
    tenth = max(objective.size // 10, 2)
    before, after = objective[-2 * tenth : -tenth], objective[-tenth:]
    error = np.sqrt(before.var(ddof=1) / tenth + after.var(ddof=1) / tenth)
    rise = after.mean() - before.mean()
    advice = (
        f"the objective still rose by {rise:.3g} nats over the last tenth of the run; raise "
        f"max_iterations or step_size"
    )
    return bool(objective.size >= max_iterations and rise < 2 * error), advice
