"""Validation of the arguments of `fit`, before anything is compiled, and the request that they become."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from inference.algorithm import (
    Ascent,
    AscentSettings,
    Direct,
    DirectSettings,
    FitRequest,
    Method,
    Sampler,
    SamplerSettings,
    model_name,
)
from inference.inputs.streams import CountStream, RowStream, is_chunked
from inference.inputs.tables import as_arrays, column_dims
from inference.methods import method_of
from inference.numerics.atomic_files import check_writable
from inference.numerics.devices import exchanged, resolved_num_devices
from inference.numerics.weighted_rows import checked_weight
from inference.precision import in_precision
from inference.results.files import model_of
from inference.results.groups import flat_draws, group_of
from zoo.checks import check_choice, check_size
from zoo.model import Model
from zoo.sparse import SparseCounts, SparseMatrix

__all__ = ["key_of", "read_call", "read_init"]

CHAIN_METHODS = ("vectorized", "sequential", "parallel")
SIZES = ("num_chains", "num_warmup", "num_samples", "thinning", "max_iterations", "num_restarts")
SCALE_ROWS = 100_000  # of a file or of chunks, from which data-dependent default priors are read


def read_call(
    model: Model,
    data: tuple,
    *,
    method: str,
    seed: Any,
    num_restarts: int | None,
    init: Any,
    sample_weight: Any,
    batch_size: int | None,
    dtype: str,
    keep: tuple[str, ...],
    progress: bool | None,
    checkpoint: str | os.PathLike | None,
    options: Mapping[str, Any],
    **settings: Any,
) -> FitRequest:
    """Validate the arguments of `fit`, which these are, and make them a request.

    Raises:
        TypeError: an option that the method does not have, or data that are not numeric.
        ValueError: anything else that is wrong with the call.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a model of the zoo, such as zoo.Mixture; got {type(model).__name__}")
    name = model.methods[0] if method == "auto" else method
    chosen = method_of(model, name)
    model, data = model.encoded(*data)
    call = _Call(
        chosen,
        name,
        model,
        options,
        num_restarts=1 if num_restarts is None else num_restarts,
        in_batches=_passes_in_batches(data, batch_size),
        has_weight=sample_weight is not None,
        has_checkpoint=checkpoint is not None,
        has_variables=isinstance(init, Mapping) and not isinstance(init, xr.DataTree),
    )
    stream, weight = None, None
    if call.in_batches:
        _refuse(call)
        chosen.in_batches(**_options(chosen, name, options)[0])  # refuses what needs all rows at once
        stream, coords = _open_stream(call, data, batch_size, sample_weight)
        if "documents" in chosen.takes:
            arrays, model = (stream.first,), _with_lengths(model, stream.lengths)
        else:
            arrays, weight = (_rows_to_begin_with(stream),), stream.sample_weight
    else:
        arrays, coords = as_arrays(data, column_dims(model), model.data_names)
    of_all_processes = arrays if jax.process_count() == 1 else tuple(map(exchanged, arrays))
    if isinstance(init, xr.DataTree) and init.attrs.get("model") == model_name(model):
        model = model.continuing(model_of(init))
    model = model.with_sizes_from(*of_all_processes)
    model.check(*arrays)
    if method == "auto" and stream is None:
        name, chosen = _suitable(model, of_all_processes, init)
    settings = _settings(chosen, num_restarts=call.num_restarts, **settings)
    options, num_devices = _options(chosen, name, options)
    with_devices = {"num_devices": num_devices} if "devices" in chosen.takes else {}
    chosen.check(model, **options, **with_devices)
    model.check_method(name)
    _refuse(call._replace(method=chosen, name=name, model=model, data=arrays, num_devices=num_devices))
    if sample_weight is not None and stream is None:
        weight = checked_weight(sample_weight, arrays[0].shape[0])
    strategy, variables = read_init(init, chosen, settings)
    if checkpoint is not None:
        check_writable(checkpoint)
    with in_precision(dtype):
        key = key_of(seed)
        words = np.asarray(jax.random.key_data(key)).tolist()
    return FitRequest(
        model=model,
        data=arrays,
        coords=coords,
        method=chosen,
        name=name,
        settings=settings,
        options=MappingProxyType(options),
        init=init,
        strategy=strategy,
        variables=variables,
        sample_weight=weight,
        stream=stream,
        batch_size=None if stream is None else int(batch_size),
        num_devices=num_devices,
        key=key,
        seed=int(seed) if isinstance(seed, int | np.integer) else json.dumps(words),
        dtype=dtype,
        keep=tuple(keep),
        show_progress=_is_interactive() if progress is None else progress,
        checkpoint=checkpoint,
    )


def _suitable(model: Model, data: tuple, init: Any) -> tuple[str, Method]:
    """The method that ``"auto"`` selects: with ``init``, the first that takes a start."""
    name = model.auto_method(*data)
    if init is not None and isinstance(method_of(model, name), Direct):
        name = next(name for name in model.methods if not isinstance(method_of(model, name), Direct))
    return name, method_of(model, name)


def _settings(method: Method, **settings: Any) -> AscentSettings | SamplerSettings | DirectSettings:
    """The settings that matter to this kind of method; all of them are checked."""
    for name in SIZES:
        value, at_least = settings[name], 0 if name == "num_warmup" else 1
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
            raise ValueError(f"{name} must be a whole number of at least {at_least}; got {value!r}")
    if not (isinstance(settings["tolerance"], int | float) and settings["tolerance"] >= 0):
        raise ValueError(
            f"tolerance must be a number of at least 0 (nats per row); got {settings['tolerance']!r}"
        )
    check_choice("chain_method", settings["chain_method"], CHAIN_METHODS)
    if isinstance(method, Direct):
        return DirectSettings()
    kind = SamplerSettings if isinstance(method, Sampler) else AscentSettings
    return kind(**{name: settings[name] for name in kind.__dataclass_fields__})


def _options(method: Method, name: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """All options of the method, those that are not given at their defaults, and the number of devices."""
    unknown = [option for option in options if option not in method.options]
    if unknown:
        has = ", ".join(method.options) or "no options"
        raise TypeError(f"method {name!r} has no option {unknown[0]!r}; it has {has}")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    read = dict(method.options) | given  # lists: as the options of a stored fit have them
    return read, resolved_num_devices(read.pop("num_devices")) if "num_devices" in read else 1


def _is_interactive() -> bool:
    """Whether this runs on a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


def key_of(seed: Any) -> jax.Array:
    """The JAX key of a seed.

    Raises:
        ValueError: neither a whole number in [0, 2**32) nor a key.
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array) and seed.dtype == jnp.uint32 and seed.shape == (2,):
        return jax.random.wrap_key_data(seed)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2**32) or a JAX key; got {seed!r}")
    return jax.random.key(int(seed))


# Rows that pass in batches


def _passes_in_batches(data: tuple, batch_size: int | None) -> bool:
    """Whether the rows of a fit pass in batches; ValueError for chunks without a batch size."""
    if batch_size is None and any(is_chunked(part) for part in data):
        raise ValueError("data that come in chunks are fitted in batches: give batch_size, such as 10_000")
    return batch_size is not None


def _open_stream(
    call: "_Call", data: tuple, batch_size: Any, sample_weight: Any
) -> tuple[RowStream | CountStream, dict[str, Any]]:
    """The rows or documents of a fit as batches, and the names of columns, words and documents.

    Raises:
        TypeError: a batch size that is no whole number, sparse rows, or data in several parts.
        ValueError: a batch size below 1, weights that do not go with the rows, or no rows.
    """
    check_size("batch_size", batch_size)
    if len(data) != 1:
        raise TypeError(f"batch_size goes with data of one part; got {len(data)}")
    (source,) = data
    if "documents" in call.method.takes:
        stream = CountStream(source, int(batch_size), call.model.num_topics)
        return stream, stream.coords
    if isinstance(source, SparseCounts) or hasattr(source, "tocoo"):
        raise TypeError("batch_size takes dense rows; sparse counts are fitted whole, without batch_size")
    coords: dict[str, Any] = {}
    if not is_chunked(source) and not (hasattr(source, "shape") and not hasattr(source, "columns")):
        (source,), coords = as_arrays(data)  # a table or nested lists
    if sample_weight is not None and is_chunked(source):
        raise ValueError("sample_weight goes with an array, whose length is known; these data come in chunks")
    weight = None if sample_weight is None else checked_weight(sample_weight, source.shape[0])
    return RowStream(source, int(batch_size), weight), coords


def _rows_to_begin_with(stream: RowStream) -> np.ndarray:
    """The rows that default priors are read off: all of an array in memory, else a sample or the first."""
    in_memory = isinstance(stream.source, np.ndarray) and not isinstance(stream.source, np.memmap)
    return stream.whole() if in_memory else stream.sample(max(SCALE_ROWS, stream.batch_size))


def _with_lengths(model: Model, lengths: np.ndarray) -> Model:
    """The model with the documents' lengths, unless it was given others."""
    if model.num_tokens is not None:
        return model
    return replace(model, num_tokens=tuple(int(length) for length in lengths))


# Refusals


class _Call(NamedTuple):
    """The parts of a call that do not go with every method."""

    method: Method
    name: str
    model: Model
    options: Mapping[str, Any]
    num_restarts: int
    in_batches: bool
    has_weight: bool
    has_checkpoint: bool
    has_variables: bool  # given as a dict, per row
    data: tuple = ()
    num_devices: int = 1

    def holds(self, kind: type) -> bool:
        return any(isinstance(part, kind) for part in self.data)

    def lacks(self, part: str) -> bool:
        return part not in self.method.takes


def _refusals(call: _Call) -> Iterator[tuple[bool, str]]:
    """Reasons to refuse a call, in order: whether each applies, and its message."""
    who, lacks = f"method {call.name!r} of {model_name(call.model)}", call.lacks
    of_documents, in_batches, has_weight = not lacks("documents"), call.in_batches, call.has_weight
    yield in_batches and lacks("batches"), f"{who} does not take batch_size"
    if in_batches and of_documents:
        yield has_weight, "documents in batches do not take sample_weight"
        one = f"batch_size goes with one start for {model_name(call.model)}"
        yield call.num_restarts != 1, f"{one}; got num_restarts={call.num_restarts}"
    yield call.holds(SparseMatrix) and lacks("sparse"), f"{who} takes dense x; sparse x goes with 'em'"
    yield has_weight and lacks("weights"), f"{who} does not take sample_weight"
    yield has_weight and bool(call.options.get("moves")), f"{who} with moves does not take sample_weight"
    if (processes := jax.process_count()) > 1:
        this = f"this one is one of {processes}"
        one = f"goes with one process, and this is one of {processes}"
        yield lacks("devices"), f"{who} runs in one process; {this}"
        yield in_batches, f"batch_size {one}: the processes would have to pass over as many batches each"
        yield call.has_variables, f"init with variables per row {one}: each process holds rows of its own"
        shared = "a run that several processes share cannot be resumed from a file"
        yield call.has_checkpoint, f"checkpoint {one}: {shared}"
        yield of_documents, f"documents lie in one process, on one device or several; {this}"
    if call.num_devices > 1:
        got = f"lie on one device; got num_devices={call.num_devices}"
        yield in_batches and of_documents, f"documents in batches {got}"
        yield call.holds(SparseCounts) and not of_documents, f"sparse counts {got}"


def _refuse(call: _Call) -> None:
    """Raise ValueError if the method does not take a part of the call."""
    for applies, message in _refusals(call):
        if applies:
            raise ValueError(message)


def read_init(
    init: Any, method: Method, settings: AscentSettings | SamplerSettings
) -> tuple[str, dict[str, np.ndarray] | None]:
    """The start strategy, and given variables: for a sampler with a leading axis over chains.

    Raises:
        TypeError: ``init`` is nothing of the kind.
        ValueError: an unknown strategy, or a method that starts nowhere.
    """
    if isinstance(method, Direct):
        if init is not None:
            raise ValueError("a method that solves directly starts nowhere: leave init out")
        return "none", None
    if init is None:
        return method.strategies[0], None
    if isinstance(init, str):
        if init not in method.strategies:
            raise ValueError(
                f"init must be one of {', '.join(method.strategies)}, a former tree, or a dict of variables; "
                f"got {init!r}"
            )
        return init, None
    num_starts = getattr(settings, "num_chains", None) or settings.num_restarts
    if isinstance(init, xr.DataTree):
        if not isinstance(method, Ascent):
            return method.strategies[0], _draws_to_start_from(init, num_starts)
        values = _best_of(init)
    elif isinstance(init, Mapping):
        values = {name: np.asarray(value) for name, value in init.items()}
    else:
        raise TypeError(
            f"init must be a strategy name, a former tree or a dict of variables; got {type(init).__name__}"
        )
    return method.strategies[0], {
        name: np.broadcast_to(value, (num_starts, *value.shape)) for name, value in values.items()
    }


def _best_of(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """The start of an ascent: q, or the draw with the highest likelihood (without one, the last draw)."""
    if "variational" in tree.children:
        return {name: value.to_numpy() for name, value in group_of(tree, "variational").data_vars.items()}
    posterior = group_of(tree, "posterior")
    chain, draw = 0, -1
    if "log_likelihood" in tree.children:
        density = tree["log_likelihood"]["log_likelihood"].to_numpy().sum(-1)
        chain, draw = np.unravel_index(density.argmax(), density.shape)
    return {name: value.to_numpy()[chain, draw] for name, value in posterior.data_vars.items()}


def _draws_to_start_from(tree: xr.DataTree, num_starts: int) -> dict[str, np.ndarray]:
    """Starts of chains: the last draw of each, if there are as many, else draws evenly spread over all."""
    posterior = group_of(tree, "posterior")
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains == num_starts:
        return {name: value.to_numpy()[:, -1] for name, value in posterior.items()}
    chosen = np.linspace(0, chains * draws - 1, num_starts).round().astype(int)
    return {name: flat_draws(value)[chosen] for name, value in posterior.items()}
