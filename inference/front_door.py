"""`fit`: check everything, choose the algorithm, drive it, hand back a tree."""

import importlib
import json
import os
import sys
import time
import warnings
from typing import Any

import jax
import numpy as np
import xarray as xr

import zoo
from inference.algorithm import Method
from inference.ascent import Ascent
from inference.assembly import assemble, trace_group
from inference.atomic_files import check_writable
from inference.call_checks import (
    check_options,
    check_settings,
    check_takes_batches,
    check_takes_devices,
    check_takes_sparse,
    key_of,
)
from inference.checkpoint import Checkpoint, fingerprint
from inference.convergence_of_runs import has_converged
from inference.devices import exchanged, resolved_num_devices
from inference.minibatch import (
    drive_in_batches,
    open_documents,
    open_stream,
    passes_in_batches,
    rows_to_begin_with,
)
from inference.model_fields import model_name
from inference.precision import in_precision
from inference.results import model_of, versions
from inference.rows import Rows, checked_weight
from inference.starting_points import read_init
from inference.stochastic_batches import drive_stochastically, with_lengths
from inference.tables import as_arrays, column_dims
from inference.whole_data import drive_whole, solve, start_of
from zoo.model import Model, in_current_precision

__all__ = ["fit", "method_of"]

FOLDERS = {
    "vb": "variational",
    "gibbs": "gibbs",
    "collapsed_gibbs": "gibbs",
    "em": "em",
    "closed_form": "closed_form",
}
OWN_FILES = {"ep": "em.ep_sppca", "morp": "closed_form.morp", "kernel_cca": "closed_form.kernel_cca"}


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
        method: one of ``model.methods``; ``"auto"`` is the first that suits model and data
            and, where ``init`` is given, starts anywhere at all.
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
            data-dependent default priors are read off at most 100 000 rows of a file or of chunks. For ``vb``
            of `zoo.LDA`: documents per batch, from anything that holds counts or from chunks of such, by
            noisy natural gradients (`inference.variational.lda_stochastic`); the last value of the trace is
            the bound of all documents.
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

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> tree.attrs["method"], tree["variational"]["loadings"].dims
        ('closed_form', ('feature', 'latent'))
    """
    begin = time.perf_counter()
    if not isinstance(model, Model):
        raise TypeError(f"model must be a model of the zoo, such as zoo.Mixture; got {type(model).__name__}")
    name = model.methods[0] if method == "auto" else method
    chosen = method_of(model, name)
    stream = None
    model, data = model.coded(*data)
    if passes_in_batches(data, batch_size):
        check_takes_batches(chosen, name, model, options, num_restarts)
        if chosen.stochastic is None:
            stream, coords = open_stream(data, batch_size, sample_weight)
            arrays = (rows_to_begin_with(stream),)
        else:
            stream, coords = open_documents(data, batch_size, sample_weight, model)
            arrays, model = (stream.first,), with_lengths(model, stream.lengths)
    else:
        arrays, coords = as_arrays(data, column_dims(model))
    shared_by_all = arrays if jax.process_count() == 1 else tuple(map(exchanged, arrays))
    if isinstance(init, xr.DataTree) and init.attrs.get("model") == model_name(model):
        model = model.continuing(model_of(init))
    model = model.filled(*shared_by_all)
    model.check(*arrays)
    if method == "auto" and stream is None:
        name = model.auto_method(*shared_by_all)
        if init is not None and method_of(model, name).kind == "direct":
            name = next(name for name in model.methods if method_of(model, name).kind != "direct")
        chosen = method_of(model, name)
    check_takes_sparse(chosen, name, model, arrays)
    settings = check_settings(
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
    options = check_options(chosen, name, options)
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
    check_takes_devices(
        chosen,
        name,
        model,
        arrays,
        num_devices=num_devices,
        in_batches=stream is not None,
        variables=variables is not None and not isinstance(init, xr.DataTree),
        checkpoint=checkpoint is not None,
        options=options,
    )
    if checkpoint is not None:
        check_writable(checkpoint)
    with in_precision(dtype):
        key = key_of(seed)
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
            result, outcome = solve(chosen, key, model, arrays, options)
        elif stream is None:
            taken = arrays if weight is None else (Rows(arrays[0], weight), *arrays[1:])
            if chosen.prepare is not None:
                taken = chosen.prepare(model, taken, init, **options)
            hosted = chosen.runs_on_host is not None and chosen.runs_on_host(taken)
            run = (in_current_precision(model), taken if hosted else in_current_precision(taken))
            result, outcome = drive_whole(chosen, *run, strategy=strategy, **shared)
        else:
            algorithm = chosen.build(init=strategy, **options)
            shared |= {"start": start_of(chosen, algorithm, variables, options)}
            if chosen.stochastic is None:
                run = (in_current_precision(model), model, stream)
                result, outcome, whole = drive_in_batches(chosen, *run, algorithm=algorithm, **shared)
                weight = stream.sample_weight if whole is not None else None
            else:
                del shared["num_devices"]
                run = (in_current_precision(model), stream)
                result, outcome, whole = drive_stochastically(chosen, *run, **shared)
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
    key = model_name(model)
    if key not in zoo.MODELS:
        raise ValueError(f"{type(model).__name__} is not a model of the zoo: call zoo.register first")
    registered = zoo.registered_methods(key)
    if name in registered:
        return registered[name]
    if name in ("nuts", "hmc"):
        return importlib.import_module("inference.hamiltonian").METHODS[name]
    if name == "svi":
        return importlib.import_module("inference.autoguides").METHOD
    if name == "map":
        return importlib.import_module("inference.maximum_a_posteriori").METHOD
    if name in OWN_FILES:
        return importlib.import_module(f"inference.{OWN_FILES[name]}").METHOD
    prefix = "collapsed_" if name.startswith("collapsed_") else ""
    file = zoo.MODELS[key]["module"].rpartition(".")[2]
    return importlib.import_module(f"inference.{FOLDERS[name]}.{prefix}{file}").METHOD


def _shows_progress() -> bool:
    """On a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"
