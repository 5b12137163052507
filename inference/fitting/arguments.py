"""Validation of the arguments of `fit`, before anything is compiled, and the request that they become."""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from inference.algorithm import (
    Ascent,
    Direct,
    FitRequest,
    Init,
    Iterative,
    Memoised,
    Method,
    NaturalGradient,
    Sampler,
    check_model,
    model_name,
)
from inference.convergence.numbering import in_program_order
from inference.fitting.agreement import check_agreement
from inference.inputs.shared_streams import SharedDocuments, SharedRows
from inference.inputs.sources import as_passed, in_memory, is_source, opened
from inference.inputs.streams import CountStream, RowStream, check_complete_batch, is_chunked
from inference.inputs.surveys import read_all_columns, weight_and_rest
from inference.inputs.tables import (
    as_arrays,
    check_parts,
    column_dims,
    encoded_parts,
    joined_rows,
    label_parts,
    left_out_in_words,
    paired_rows,
)
from inference.methods import auto_method, method_of, methods_with_weights
from inference.numerics.atomic_files import check_writable
from inference.numerics.devices import of_first_process, resolved_num_devices
from inference.numerics.host_keys import key_from_seed
from inference.numerics.programs import draw_locals
from inference.numerics.summed_rows import summed_of_all
from inference.numerics.weighted_rows import checked_weight
from inference.precision import check_count_sizes, check_hyperparameters, check_scales, in_precision
from inference.processes import any_process, exchanged, refuse_unjoined
from inference.results.files import model_of
from inference.results.groups import ROW_DIMS, flat_draws, group_of, mean_over_rows, sample_weight_of
from inference.settings import COMMON, Climb, Sampling, Settings, plain
from zoo.answers import answer_of
from zoo.checks import as_plain, check_flag, check_size, column_moments, column_of, is_finite, shown, warn
from zoo.exponential_family import has_unit_noise
from zoo.exponential_family.cells import measured_columns
from zoo.fields import continuing, names_of
from zoo.intake.families import dim_labels, for_data
from zoo.intake.tables import is_of_rows
from zoo.model import Model
from zoo.naming import did_you_mean
from zoo.sparse import SparseCounts, SparseMatrix

READING = ("families", "levels", "id")  # how the columns of a table are read
NAMED = ("method", "seed", "init", "sample_weight", "batch_size", "dtype", "checkpoint")  # beside settings
SCALE_RATIO = 10.0  # of standard deviations of columns under one noise variance
NOISE_RATIO = 4.0  # of variances: noise that is half or twice as large as it is taken to be
MODEL_SIZES = (  # in which a fit and one that starts from it must agree
    *("num_components", "num_latents", "num_topics", "num_clusters", "num_shared", "num_specific"),
    *("num_features", "num_outputs", "num_words"),
)
TAKERS = "it goes with zoo.PPCA, and with vb of zoo.Mixture, zoo.LDA and zoo.PCP"  # of batch_size
SCALE_ROWS = 100_000  # of a file or of chunks, from which data-dependent default priors are read


class Unsaid:
    """What marks a default of `fit`, to tell it from the same value given."""


def unsaid[T](value: T) -> T:
    """The value as such a default."""
    kind = type(value)
    return type(kind.__name__, (kind, Unsaid), {})(value)


@dataclass(frozen=True, eq=False)
class Call:
    """A call of `fit`: its arguments, checked for what is wrong whatever the model, method and data are.

    Attributes:
        model, data, method, seed, init, sample_weight, batch_size: as in `fit`.
        dtype, keep, progress, checkpoint: as in `fit`.
        settings: those that all methods of a kind take, options of the method, and how tables are read; what
            the call leaves open is `Unsaid`.
    """

    model: Model
    data: tuple
    method: Any
    seed: Any
    settings: Mapping[str, Any]
    init: Any
    sample_weight: Any
    batch_size: int | None
    dtype: str
    keep: tuple[str, ...]
    progress: bool | None
    checkpoint: str | os.PathLike | None

    def __post_init__(self) -> None:
        check_model(self.model)
        for name in ("model", "data", "seed", "init", "sample_weight"):
            _check_not_traced(getattr(self, name), f"{name} holds a traced array")
        for kind in (Sampling, Climb):
            kind(**taken(kind, self.given))
        dtype, keep, checkpoint = self.dtype, self.keep, self.checkpoint
        _check_seed(self.seed)
        if not isinstance(dtype, str):
            raise ValueError(f"dtype must be 'float64' or 'float32'; got {shown(dtype)}")
        with in_precision(dtype):
            pass  # which names those it knows
        if isinstance(keep, str) or not isinstance(keep, Collection) or isinstance(keep, Mapping):
            raise TypeError(f"keep must be a tuple of names, such as ('assignments',); got {shown(keep)}")
        if self.progress is not None:
            check_flag("progress", self.progress)
        is_path = isinstance(checkpoint, str | os.PathLike) and bool(os.fspath(checkpoint))
        if checkpoint is not None and not is_path:
            raise TypeError(f"checkpoint must be the path of a file; got {shown(checkpoint)}")

    @property
    def given(self) -> dict[str, Any]:
        """The settings that the call gives, by keyword or as an object of the method's settings.

        Raises:
            TypeError: one is given twice, with different values.
        """
        given = {
            name: value
            for name, value in self.settings.items()
            if not isinstance(value, Unsaid) and name not in READING
            if value is not None or COMMON.get(name, 0) is not None
        }
        own = self.method.given if isinstance(self.method, Settings) else {}
        for name in own.keys() & given.keys():
            if own[name] != plain(given[name]):
                raise TypeError(
                    f"{name} is given twice: method={type(self.method).__name__}({name}={shown(own[name])}) "
                    f"and {name}={shown(given[name])}; leave one of them out"
                )
        return given | own

    def method_for(self, model: Model) -> tuple[str, Method]:
        """The name of the method, and the method; for ``"auto"`` the model's first.

        Raises:
            ValueError: the model has no such method.
        """
        method = self.method
        if isinstance(method, Settings):
            chosen = method_of(model, method.name)
            if not isinstance(method, chosen.settings):
                wanted, got = (
                    f"{kind.__module__}.{kind.__name__}" for kind in (chosen.settings, type(method))
                )
                raise ValueError(f"method of {model_name(model)} must be {wanted}(...); got {got}(...)")
            return method.name, chosen
        if not isinstance(method, str):
            is_class = isinstance(method, type) and issubclass(method, Settings)
            remedy = f": make one, {method.__name__}()" if is_class else ""
            raise ValueError(
                f"method must be the name of one, 'auto' or one of {', '.join(model.methods)}; got "
                f"{shown(method)}{remedy}"
            )
        name = model.methods[0] if method == "auto" else method
        return name, method_of(model, name)


def taken(kind: type[Settings], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given settings that a class of settings has."""
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def read_call(call: Call) -> FitRequest:
    """Validate a call of `fit` against its model, method and data, and make it a request.

    Raises:
        TypeError: an option that the method does not have, or data that are not numeric.
        ValueError: anything else that is wrong with the call.
    """
    model, init, dtype, batch_size, given = call.model, call.init, call.dtype, call.batch_size, call.given
    refuse_unjoined()
    is_auto = isinstance(call.method, str) and call.method == "auto"
    name, chosen = call.method_for(model)
    if not is_auto:
        _settings(chosen, name, given)
    families, levels, id = map(call.settings.get, READING)
    passed = call.data if batch_size is not None else tuple(as_passed(part, model) for part in call.data)
    data = opened(model, passed)
    if batch_size is None and model.data[0].holds_documents:
        data = tuple(as_passed(in_memory(part), model) for part in data)
    if any(map(is_source, data)):
        _refuse_source(chosen, name, model, data, batch_size)
    check_parts(model, data, weighted=methods_with_weights)
    data, sample_weight = weight_and_rest(data, call.sample_weight)
    data = paired_rows(joined_rows(data, model.data_names, id), model.data_names)
    if sample_weight is not None:
        sample_weight = paired_rows((data[0], sample_weight), (model.data_names[0], "sample_weight"))[1]
    model, columns, data = read_all_columns(model, data, families, levels, id)
    data = label_parts(model, data, families, id)
    model, data = model.encoded(*encoded_parts(data, columns))
    is_summed = "moments" in chosen.takes
    asked = _Asked(call, model, chosen, name, given, sample_weight is not None)
    stream: Any = None
    weight: Any = None
    arrays: tuple[Any, ...]
    if _passes_in_batches(data, batch_size):
        _refuse(asked)
        parts = None
        if not is_summed:  # this refuses what needs all rows at once
            parts = cast(Any, chosen).in_batches(**_settings(chosen, name, given).options)
        stream, coords = _open_stream(asked, parts, data, sample_weight)
        if is_summed:
            rows = summed_of_all(_complete(stream))
            arrays, weight = (rows.x,), rows.weight
        elif "documents" in chosen.takes:
            arrays, model = (stream.first,), _with_lengths(model, stream.lengths)
        else:
            arrays, weight = (_rows_to_begin_with(stream),), stream.sample_weight
    else:
        arrays, coords = as_arrays(model, data)
        if sample_weight is not None:
            weight = checked_weight(sample_weight, arrays[0].shape[0])
    check_scales(model, arrays, coords, dtype)
    if jax.process_count() > 1:
        _refuse(asked._replace(data=arrays))
    spreads_rows = jax.process_count() > 1 and not isinstance(chosen, Sampler)
    is_exchanged = stream is not None and is_summed  # already
    # of documents no default is read off
    exchanges = spreads_rows and not is_exchanged and "documents" not in chosen.takes
    worth = None  # of the rows that default priors are read off
    if model.answers.weighs_rows and any_process(sample_weight is not None):
        worth = weight if stream is None or is_summed else _weight_to_begin_with(stream)
        worth = np.ones(arrays[0].shape[0]) if worth is None else worth
    if exchanges and worth is not None:
        both = exchanged(np.column_stack([arrays[0], worth]))
        of_all_processes: tuple = (both[:, :-1],)
        worth = both[:, -1]
    else:
        of_all_processes = tuple(map(exchanged, arrays)) if exchanges else arrays
    if isinstance(init, xr.DataTree):
        model = continuing(model, _former_model(init, model))
    model = model.with_sizes_from(*of_all_processes, **({} if worth is None else {"sample_weight": worth}))
    try:
        model.check(*arrays)
    except ValueError as error:  # what follows from columns that were left out names them
        told = "; ".join(filter(None, map(left_out_in_words, columns)))
        if not told:
            raise
        raise ValueError(f"{error}; {told}") from None
    coords = {**coords, **dim_labels(model, coords, columns)}
    if stream is not None and not is_summed and "documents" not in chosen.takes:
        check_complete_batch(model, arrays[0])
    model = for_data(model, *arrays)
    _check_keep(call.keep, model)
    check_count_sizes(model, arrays, coords, dtype)
    counted, of_counted = _that_count(of_all_processes, weight if worth is None else worth)
    check_hyperparameters(model, dtype, *counted, sample_weight=of_counted)
    if is_auto and (stream is None or is_summed):
        name, chosen = _suitable(model, of_all_processes, init)
        if spreads_rows and isinstance(chosen, Sampler):
            raise ValueError(f"over several processes name the sampler, method={name!r}, in place of 'auto'")
    settings, drops_starts = _decided(
        chosen, name, given, model, arrays, by_need=init is None and stream is None
    )
    chosen.check(model, settings)
    if isinstance(chosen, Sampler) and chosen.by_settings is not None:
        chosen = chosen.by_settings(model, settings)
    _warn_of_scales(model, *_that_count(arrays, weight), coords)
    asked = asked._replace(method=chosen, name=name, model=model, data=arrays, settings=settings)
    _refuse(asked)
    _check_start(init, model, arrays)
    strategy, variables = read_init(init, chosen, settings)
    if call.checkpoint is not None:
        of_first_process(partial(check_writable, call.checkpoint))
    with in_precision(dtype):
        key = key_of(call.seed)
        _check_not_traced(key, "it is being traced")
        words = np.asarray(jax.random.key_data(key)).tolist()
        if isinstance(init, xr.DataTree) and variables is not None:
            variables = _of_these_rows(variables, init, model, arrays, key, coords)
    request = FitRequest(
        model=model,
        data=arrays,
        coords=coords,
        columns=columns,
        method=chosen,
        name=name,
        settings=settings,
        drops_starts=drops_starts,
        init=init,
        strategy=strategy,
        variables=variables,
        sample_weight=weight,
        stream=stream,
        batch_size=None if stream is None or batch_size is None else int(batch_size),
        key=key,
        seed=int(call.seed) if isinstance(call.seed, int | np.integer) else json.dumps(words),
        dtype=dtype,
        keep=tuple(call.keep),
        show_progress=_is_interactive() if call.progress is None else call.progress,
        checkpoint=call.checkpoint,
    )
    check_agreement(request)
    return request


def _check_not_traced(value: Any, found: str) -> None:
    """Raise TypeError inside `jax.jit` and the like, where an array has no numbers yet."""
    parts = list(value.values()) if isinstance(value, dict) else value  # its keys need not be in any order
    leaves = jax.tree.leaves(parts, is_leaf=lambda part: not isinstance(part, tuple | list | dict | Model))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise TypeError(
            f"fit cannot be called inside jax.jit, jax.vmap or jax.grad ({found}): it runs and judges a loop "
            "on the host; call it outside, it compiles its steps itself"
        )


def scales_in_words(
    model: Model, arrays: tuple, coords: Mapping[str, Any], weight: np.ndarray | None = None
) -> tuple[str, str]:
    """Find columns of very different scales under one noise variance.

    Args:
        model: the model.
        arrays: the parts of the data.
        coords: labels by dim.
        weight: of the rows, shape (num_observations,); None: one.

    Returns:
        What was found and what to do about it; both empty where all is well.
    """
    found, remedy = [], ""
    shared = zip(model.scale_remedies, model.part_families, strict=False)
    parts = zip(model.data_names, column_dims(model), arrays, shared, strict=False)
    for name, dim, part, (own, family) in parts:
        if not own or not isinstance(part, np.ndarray):
            continue
        deviations = column_moments(part, weight)[1]
        if getattr(family, "is_mixed", False):
            deviations = np.where(measured_columns(family, part.shape[1]), deviations, 0.0)
        varying = np.flatnonzero(deviations > 0)
        if not varying.size:
            continue
        least, most = (varying[pick(deviations[varying])] for pick in (np.argmin, np.argmax))
        if deviations[most] > SCALE_RATIO * deviations[least]:
            labels = coords.get(dim, range(part.shape[1]))
            small, large = (f"{labels[i]} (sd {deviations[i]:.3g})" for i in (least, most))
            found.append(f"the columns of {name} have very different scales, {small} to {large}")
            remedy = own
    return " and ".join(found), remedy


def _that_count(arrays: tuple, weight: np.ndarray | None) -> tuple[tuple, np.ndarray | None]:
    """The data without rows of weight zero, and the weights, as far as they are of these rows."""
    if weight is None or len(weight) != arrays[0].shape[0]:
        return arrays, None
    counts = weight > 0
    return tuple(part[counts] if isinstance(part, np.ndarray) else part for part in arrays), weight[counts]


def _warn_of_scales(
    model: Model, arrays: tuple, weight: np.ndarray | None, coords: Mapping[str, Any]
) -> None:
    """Warn of columns of very different scales under one noise variance, and of unit noise that is none."""
    found, remedy = scales_in_words(model, arrays, coords, weight)
    if found:
        warn(
            f"{found}, but share one noise variance, so that small columns hardly count; "
            f"unless all are in the same unit, {remedy}"
        )
    for name, part, family in zip(model.data_names, arrays, model.part_families, strict=False):
        is_unit = has_unit_noise(family) and isinstance(part, np.ndarray)
        if is_unit and (found := _misfit_of_unit_noise(model, part)):
            warn(
                f"the Gaussian cells of {name} have noise of known variance 1, the default, {found}: "
                "estimate it by family Gaussian(noise_variance=None), or give the variance"
            )


def _misfit_of_unit_noise(model: Any, x: np.ndarray) -> str:
    """How a table contradicts noise of variance 1 by a factor of more than four; empty where it does not.

    Noise cannot be larger than the columns' variance; and it is not far below what is left of the rows after
    the leading directions, more of them than the model has.
    """
    seen = ~np.isnan(x)
    centred = np.where(seen, x - np.mean(x[seen]), 0.0)
    counts = np.maximum(seen.sum(axis=0), 1)
    centred = np.where(seen, centred - centred.sum(axis=0) / counts, 0.0)
    variance = float(np.mean((centred**2).sum(axis=0) / counts))
    if 0 < variance < 1 / NOISE_RATIO:
        return f"and the columns' mean variance is {variance:.3g}"
    values = np.linalg.eigvalsh(centred.T @ centred / counts.mean())[::-1]
    components = getattr(model, "num_components", 1)
    directions = min(components * (model.num_latents + 1) - 1, values.size - 1)
    rest = float(values[directions:].mean())
    if rest > NOISE_RATIO:
        return f"and beside {directions} directions the columns' mean variance is {rest:.3g}"
    return ""


def _suitable(model: Model, data: tuple, init: Init) -> tuple[str, Method]:
    """The method that ``"auto"`` selects: with ``init``, the first that takes a start."""
    name = auto_method(model, *data)
    if init is not None and isinstance(method_of(model, name), Direct):
        name = next(name for name in model.methods if not isinstance(method_of(model, name), Direct))
    return name, method_of(model, name)


def _settings(method: Method, name: str, given: Mapping[str, Any]) -> Any:
    """The settings of a method as the call gives them; those of other kinds of methods are left out.

    Raises:
        TypeError: an option that the method does not have.
        ValueError: a value outside its domain, or a run until chains agree of a method without chains.
    """
    unknown = [option for option in given if option not in COMMON and option not in method.options]
    if unknown:
        has = ", ".join(method.options) or "no options"
        near = did_you_mean(unknown[0], (*method.options, *COMMON, *READING, *NAMED))
        raise TypeError(f"method {name!r} has no option {unknown[0]!r}; it has {has}{near}")
    if "until" in given and not isinstance(method, Sampler):
        raise ValueError("until='converged' goes with samplers, such as gibbs or nuts")
    return method.settings(**taken(method.settings, given))


def _decided(
    method: Method, name: str, given: Mapping[str, Any], model: Model, data: tuple, by_need: bool
) -> tuple[Any, bool]:
    """The settings with what the call leaves open decided, and whether starts that fall behind are stopped.

    Args:
        method: the method.
        name: its name.
        given: the settings that the call gives.
        model: the model, its sizes filled in.
        data: the parts of the data.
        by_need: whether there may be as many starts as the method needs.
    """
    settings, decided, drops_starts = _settings(method, name, given), dict[str, Any](), False
    if "devices" in method.takes:
        decided["num_devices"] = resolved_num_devices(settings.num_devices)
    if isinstance(settings, Climb):
        decided["num_restarts"] = settings.num_starts
        is_alone = decided.get("num_devices", 1) * jax.process_count() == 1
        if by_need and is_alone and settings.num_restarts is None and isinstance(method, Ascent):
            decided["num_restarts"] = method.restarts(model, data, **settings.options)
            drops_starts = decided["num_restarts"] > 1 and method.drops_starts
    if isinstance(method, Sampler):
        if jax.process_count() > 1:  # chains are the same however many run in a process
            decided["chain_method"] = "sequential"
        plan, looks = method.to_convergence, settings.max_looks
        if plan is not None and not {"num_samples", "until"} & given.keys() and settings.num_chains > 1:
            decided |= {"until": "converged", **plan(model, data, settings.num_chains)}
            looks = decided.pop("max_looks")
            decided |= {"thinning": given["thinning"]} if "thinning" in given else {}
        until, each, thinning = (
            decided.get(own, getattr(settings, own)) for own in ("until", "num_samples", "thinning")
        )
        if until is not None and settings.max_sweeps is None:
            decided["max_sweeps"] = settings.num_warmup + looks * each * thinning
    return replace(settings, **decided), drops_starts


def _check_keep(keep: Collection[str], model: Model) -> None:
    """Raise ValueError for a name in ``keep`` that no variable of the model or group of a fit has."""
    site, dims = model.roles.latent, {}
    for name, own in model.variable_dims.items():
        if name not in model.data_names:
            dims[name] = own
    named = [name for name, own in dims.items() if ROW_DIMS & set(own[:1])]
    named += [] if site is None else [f"{site}_covariance", f"{site}_loc"]
    named += ["log_likelihood", "observed_data"]
    for name in keep:
        if isinstance(name, str) and (name in named or name in dims or _fits_star(name, dims)):
            continue
        raise ValueError(
            f"keep must hold names of variables; {shown(name)} is none of this model's. What grows with the "
            f"rows, and is left out where it is large: {', '.join(named)}"
        )


def _fits_star(name: str, dims: Mapping[str, Any]) -> bool:
    return any(known.endswith("*") and name.startswith(known[:-1]) for known in dims)


def _is_interactive() -> bool:
    """Whether this runs on a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


def key_of(seed: Any) -> jax.Array:
    """The JAX key of a seed.

    Raises:
        ValueError: neither a whole number in [0, 2**32) nor a key.
    """
    _check_seed(seed)
    if not isinstance(seed, jax.Array):
        return key_from_seed(int(seed))
    return seed if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(seed)


def _check_seed(seed: Any) -> None:
    """Raise ValueError unless a seed is a whole number in [0, 2**32) or one JAX key."""
    if isinstance(seed, jax.Array):
        is_key = jnp.issubdtype(seed.dtype, jax.dtypes.prng_key)
        if seed.shape == (() if is_key else (2,)) and (is_key or seed.dtype == jnp.uint32):
            return
    elif isinstance(seed, int | np.integer) and not isinstance(seed, bool) and 0 <= seed < 2**32:
        return
    raise ValueError(f"seed must be a whole number in [0, 2**32) or one JAX key; got {shown(seed)}")


# Rows that pass in batches


def _refuse_source(chosen: Method, name: str, model: Model, data: tuple, batch_size: int | None) -> None:
    """Raise for rows that lie elsewhere where the call does not take batches."""
    if batch_size is None:
        raise ValueError(
            f"{next(filter(is_source, data))} is read in batches: give batch_size, the rows of one, such as "
            "100_000"
        )
    if len(data) != 1:
        raise TypeError(f"batch_size needs data of one part; got {len(data)} parts")
    if "batches" not in chosen.takes:
        raise ValueError(_no_batches(f"method {name!r} of {model_name(model)}"))


def _no_batches(who: str) -> str:
    return f"{who} does not take batch_size: leave it out ({TAKERS})"


def _passes_in_batches(data: tuple, batch_size: int | None) -> bool:
    """Whether the rows of a fit pass in batches; ValueError for chunks without a batch size."""
    if batch_size is None and any(is_chunked(part) for part in data):
        raise ValueError("data that come in chunks are fitted in batches: give batch_size, such as 10_000")
    return batch_size is not None


def _open_stream(
    asked: "_Asked", parts: Memoised | NaturalGradient | None, data: tuple, sample_weight: Any
) -> tuple[Any, dict[str, Any]]:
    """The rows or documents of a fit as batches, and the names of columns, words and documents.

    Raises:
        TypeError: a batch size that is no whole number, sparse rows, or data in several parts.
        ValueError: a batch size below 1, weights that do not go with the rows, or no rows.
    """
    batch_size = cast(int, asked.call.batch_size)
    check_size("batch_size", batch_size)
    if len(data) != 1:
        raise TypeError(f"batch_size needs data of one part; got {len(data)} parts")
    several = jax.process_count() > 1
    share, left = divmod(int(batch_size), jax.process_count())
    if left:
        raise ValueError(
            f"batch_size is of all {jax.process_count()} processes together, which give equal shares: it "
            f"must be a multiple of {jax.process_count()}; got {batch_size}"
        )
    (source,) = data
    if isinstance(parts, NaturalGradient):
        stream: Any = CountStream(source, share, parts.num_columns(asked.model))
        if several:
            stream = SharedDocuments(stream, resolved_num_devices(asked.given.get("num_devices")))
        return stream, stream.coords
    if isinstance(source, SparseCounts) or hasattr(source, "tocoo"):
        raise TypeError("batch_size takes dense rows; sparse counts are fitted whole, without batch_size")
    coords: dict[str, Any] = {}
    is_plain = hasattr(source, "shape") and not hasattr(source, "columns")
    if not is_chunked(source) and (not is_plain or isinstance(source, np.ma.MaskedArray)):
        (source,), coords = as_arrays(asked.model, data)  # a table, nested lists, or a masked array
    if is_source(source) and source.holds_texts:
        raise TypeError(f"{source} holds texts, which go with models of documents, such as zoo.LDA")
    if sample_weight is not None and is_chunked(source) and not is_source(source):
        raise ValueError("sample_weight goes with an array, whose length is known; these data come in chunks")
    weight = None
    if sample_weight is not None:
        num_rows = source.num_rows if is_source(source) else source.shape[0]
        weight = checked_weight(sample_weight, num_rows)
    stream = RowStream(source, share, weight)
    if several and "moments" not in asked.method.takes:
        stream = SharedRows(stream)
    if stream.columns is not None:
        coords = {column_dims(asked.model)[0]: list(stream.columns)}
    return stream, coords


def _rows_to_begin_with(stream: RowStream) -> np.ndarray:
    """The rows that default priors are read off: all of an array in memory, else a sample or the first."""
    return stream.whole() if _is_in_memory(stream) else stream.sample(max(SCALE_ROWS, stream.batch_size))


def _weight_to_begin_with(stream: RowStream) -> np.ndarray | None:
    """The weights of `_rows_to_begin_with`."""
    whole = _is_in_memory(stream) or stream.sample_weight is None
    return stream.sample_weight if whole else stream.sampled_weight(max(SCALE_ROWS, stream.batch_size))


def _is_in_memory(stream: RowStream) -> bool:
    return isinstance(stream.source, np.ndarray) and not isinstance(stream.source, np.memmap)


def _complete(stream: RowStream) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of each batch and their weights.

    Raises:
        ValueError: a cell is missing, or infinite.
    """
    for batch in stream:
        rows = batch.rows
        if not is_finite(rows):
            row, column = np.argwhere(~np.isfinite(rows))[0]
            found = "is missing" if np.isnan(rows[row, column]) else "is infinite"
            name = column_of(rows, column) if stream.columns is None else repr(stream.columns[column])
            raise ValueError(
                f"the cell of row {batch.begin + row} (counted from 0) and column {name} {found}, and rows "
                "in batches are summed up whole: leave batch_size out (method 'em' or 'vb'), or drop such "
                "rows"
            )
        yield rows, batch.weight[: batch.count]


def _with_lengths(model: Any, lengths: np.ndarray) -> Any:
    """The model with the documents' lengths, unless it was given others."""
    if model.num_tokens is not None:
        return model
    return replace(model, num_tokens=tuple(int(length) for length in lengths))


# Refusals


class _Asked(NamedTuple):
    """What of a call does not go with every method."""

    call: Call
    model: Model
    method: Method
    name: str
    given: Mapping[str, Any]
    has_weight: bool
    data: tuple = ()
    settings: Any = None  # once they are decided

    def holds(self, kind: type) -> bool:
        return any(isinstance(part, kind) for part in self.data)

    def lacks(self, part: str) -> bool:
        return part not in self.method.takes


def _refusals(asked: _Asked) -> Iterator[tuple[bool, str]]:
    """Reasons to refuse a call, in order: whether each applies, and its message."""
    who, lacks = f"method {asked.name!r} of {model_name(asked.model)}", asked.lacks
    of_documents, in_batches = not lacks("documents"), asked.call.batch_size is not None
    yield in_batches and lacks("batches"), _no_batches(who)
    if in_batches and of_documents:
        yield asked.has_weight, "documents in batches do not take sample_weight"
        one = f"batch_size goes with one start for {model_name(asked.model)}"
        starts = asked.given.get("num_restarts", 1)
        yield starts != 1, f"{one}; got num_restarts={starts}"
    yield asked.holds(SparseMatrix) and lacks("sparse"), f"{who} takes dense x; sparse x goes with 'em'"
    if asked.has_weight and lacks("weights"):
        takers = methods_with_weights(asked.model)
        remedy = f"use method={takers[0]!r}" if takers else "leave it out"
        yield True, f"{who} does not take sample_weight: {remedy}"
    if jax.process_count() > 1:
        yield from _refusals_of_processes(asked, who)
    if (num_devices := getattr(asked.settings, "num_devices", 1)) > 1:
        got = f"lie on one device; got num_devices={num_devices}"
        if jax.process_count() == 1:
            yield in_batches and of_documents, f"documents in batches {got}"
        yield asked.holds(SparseCounts) and not of_documents, f"sparse counts {got}"


def _refusals_of_processes(asked: _Asked, who: str) -> Iterator[tuple[bool, str]]:
    """Reasons to refuse a call of one of several processes."""
    processes = jax.process_count()
    this = f"this one is one of {processes}"
    one = f"goes with one process, and this is one of {processes}"
    init = asked.call.init
    if isinstance(asked.method, Sampler):
        num_chains = asked.given.get("num_chains", COMMON["num_chains"])
        fewer = num_chains < processes
        yield fewer, f"num_chains must be at least {processes}, one for each process; got {num_chains}"
        yield (
            asked.given.get("chain_method") == "parallel",
            f"chain_method='parallel' {one}: every process runs its chains one after another",
        )
        return
    if not asked.lacks("moments"):
        remedy = "give batch_size, and the rows of all are summed up"
        yield (
            asked.call.batch_size is None,
            f"{who} runs in one process where rows are held whole; {this}: {remedy}",
        )
    else:
        yield asked.lacks("devices"), f"{who} runs in one process; {this}"
    yield (
        isinstance(init, Mapping | xr.DataTree),
        f"init with variables per row {one}: each process holds rows of its own",
    )


def _refuse(asked: _Asked) -> None:
    """Raise ValueError if the method does not take a part of the call."""
    for applies, message in _refusals(asked):
        if applies:
            raise ValueError(message)


def read_init(init: Init, method: Method, settings: Any) -> tuple[str, dict[str, np.ndarray] | None]:
    """The start strategy, and given variables: for a sampler with a leading axis over chains.

    Raises:
        TypeError: ``init`` is nothing of the kind.
        ValueError: an unknown strategy, or a method without a start.
    """
    if not isinstance(method, Iterative):
        if init is not None:
            raise ValueError("a method that solves directly has no start: leave init out")
        return "none", None
    if init is None:
        return method.strategies[0], None
    if isinstance(init, str):
        if init not in method.strategies:
            raise ValueError(
                f"init must be one of {', '.join(method.strategies)}, a former tree, or a dict of variables; "
                f"got {shown(init)}"
            )
        return init, None
    num_starts = settings.num_starts
    if isinstance(init, xr.DataTree):
        if not isinstance(method, Ascent):
            return method.strategies[0], _draws_to_start_from(init, num_starts)
        values = _best_of(init)
    elif isinstance(init, Mapping):
        values = {name: as_plain(value, f"init[{name!r}]") for name, value in init.items()}
    else:
        raise TypeError(
            f"init must be a strategy name, a former tree or a dict of variables; got {type(init).__name__}"
        )
    return method.strategies[0], {
        name: np.broadcast_to(value, (num_starts, *value.shape)) for name, value in values.items()
    }


def _former_model(tree: xr.DataTree, model: Model) -> Model:
    """The model of a former fit to start from.

    Raises:
        ValueError: the tree is no fit, or of another model, or of one of another size.
    """
    former = model_of(tree)
    if model_name(former) != model_name(model):
        raise ValueError(
            f"init must be a fit of the same model; it is one of {model_name(former)}, and the model is "
            f"{model_name(model)}"
        )
    for name in {*MODEL_SIZES} & {*names_of(model).static}:
        ours, theirs = getattr(model, name, None), getattr(former, name, None)
        if None not in (ours, theirs) and ours != theirs:
            raise ValueError(
                f"init must be a fit of the same size; it has {name}={theirs!r}, and the model has "
                f"{name}={ours!r}"
            )
    return former


def _check_start(init: Init, model: Model, data: tuple) -> None:
    """Raise ValueError or TypeError for a former fit of other columns, or for variables of another shape."""
    dims = column_dims(model)
    if isinstance(init, xr.DataTree):
        for dim, part in zip(dims, data, strict=True):
            held = next((group.sizes[dim] for group in init.children.values() if dim in group.sizes), None)
            if held is not None and dim != "observation" and not answer_of(model, "needs_fitted_rows"):
                if held != part.shape[1]:
                    raise ValueError(
                        f"init must be a fit of as many columns; it has {held} of the dim {dim!r}, and the "
                        f"data have {part.shape[1]}"
                    )
        return
    if not isinstance(init, Mapping):
        return
    row_dim = model.variable_dims[model.data_names[0]][0]
    sizes = dict(zip(dims, (part.shape[1] for part in data), strict=True)) | {row_dim: data[0].shape[0]}
    for name, value in init.items():
        if not isinstance(name, str):
            raise TypeError(f"init must have names of variables as keys; got {shown(name)}")
        if np.ma.is_masked(value):
            raise ValueError(f"init[{name!r}] has masked entries: a start has no missing values")
        shape = as_plain(value, f"init[{name!r}]").shape
        own = model.variable_dims.get(name, ())
        wanted = tuple(sizes.get(dim, getattr(model, f"num_{dim}s", None)) for dim in own)
        if own and len(shape) == len(own):
            good = all(
                size == need or not isinstance(need, int) for size, need in zip(shape, wanted, strict=True)
            )
            if not good:
                needed = ", ".join(str(size) if isinstance(size, int) else "any" for size in wanted)
                raise ValueError(
                    f"init[{name!r}]: {name} must have shape ({needed}{',' * (len(own) == 1)}); got {shape}"
                )


def _of_these_rows(
    variables: dict[str, np.ndarray],
    tree: xr.DataTree,
    model: Model,
    data: tuple,
    key: jax.Array,
    coords: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """A start by a fit of other rows: what it held of each of those is drawn anew, given all else."""
    row_dim = model.variable_dims[model.data_names[0]][0]
    names = np.asarray(coords.get(row_dim, np.arange(data[0].shape[0])))
    values = {str(name): v for group in tree.children.values() for name, v in group.data_vars.items()}
    of_rows = {name: v[row_dim].to_numpy() for name, v in values.items() if row_dim in v.dims}
    others = {name for name, held in of_rows.items() if not np.array_equal(held, names)}
    if not others & {*variables} or answer_of(model, "needs_fitted_rows"):  # a kernel goes on from those rows
        return variables
    num_starts = len(next(iter(variables.values())))
    drawn = {
        name: v[None] for name, v in _draws_to_start_from(tree, num_starts).items() if name not in others
    }
    local = draw_locals(key, drawn, model, data, keep_rows=True)
    kept = {name: value for name, value in variables.items() if name not in others}
    return kept | {name: np.asarray(value)[0] for name, value in local.items() if is_of_rows(model, name)}


def _best_of(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """The start of an ascent: q, or the draw with the highest likelihood (without one, the last draw)."""
    if "variational" in tree.children:
        held = in_program_order(group_of(tree, "variational"), model_of(tree))
        return {str(name): value.to_numpy() for name, value in held.data_vars.items()}
    posterior = in_program_order(group_of(tree, "posterior"), model_of(tree))
    chain, draw = 0, -1
    if "log_likelihood" in tree.children:
        rows = tree["log_likelihood"]["log_likelihood"].transpose("chain", "draw", ...)
        density = mean_over_rows(rows, sample_weight_of(tree)).to_numpy()
        chain, draw = map(int, np.unravel_index(density.argmax(), density.shape))
    return {str(name): value.to_numpy()[chain, draw] for name, value in posterior.data_vars.items()}


def _draws_to_start_from(tree: xr.DataTree, num_starts: int) -> dict[str, np.ndarray]:
    """Starts of chains: the last draw of each, if there are as many, else draws evenly spread over all."""
    posterior = in_program_order(group_of(tree, "posterior"), model_of(tree))
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if chains == num_starts:
        return {str(name): value.to_numpy()[:, -1] for name, value in posterior.items()}
    chosen = np.linspace(0, chains * draws - 1, num_starts).round().astype(int)
    return {str(name): flat_draws(value)[chosen] for name, value in posterior.items()}
