"""The DataTree of a finished run: its groups and root attributes."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr

from inference.algorithm import TEXT_COLUMN, AscentRun, FitRequest, Fitted, Outcome, Sampler, model_name
from inference.numerics.programs import deterministics, deterministics_and_log_prior, log_prior, over_draws
from inference.numerics.weighted_rows import (
    beside_others,
    bucket,
    draws_of_rows_limit,
    map_rows,
    row_limit,
    row_width,
    shares_shapes,
)
from inference.precision import to_numpy
from inference.results.files import SAMPLE_DIMS, Labels, dataset, versions
from inference.results.groups import (
    ROW_DIMS,
    columns_group,
    mean_over_rows,
    observed_group,
    sample_weight_of,
    with_levels,
)
from inference.results.model_fields import describe, field_dims
from zoo.answers import answer_of, has_answer
from zoo.model import Model

UNTIL = ("until", "max_sweeps", "max_seconds")  # settings of runs until the chains agree alone
RESTART_ITERATION = "restart_iteration"  # restarts need not end together
_GROUPS = ("posterior", "variational", "trace", "sample_stats", "log_likelihood")
_ORDER = (*_GROUPS, "observed_data", "constant_data", "columns")
type Scores = Callable[[FitRequest, Fitted], xr.DataTree | None]
_for_new_rows: ContextVar[Scores | None] = ContextVar("for_new_rows", default=None)


@contextmanager
def for_new_rows(scores: Scores = lambda request, fitted: None) -> Iterator[None]:
    """A context whose fits are asked for densities of new rows alone: no more is made of the fitted ones.

    Args:
        scores: makes a tree of the densities of known rows, or None where that takes the tree of the fit.
    """
    token = _for_new_rows.set(scores)
    try:
        yield
    finally:
        _for_new_rows.reset(token)


def asks_of_new_rows() -> bool:
    """Whether the fit is made in the context `for_new_rows`."""
    return _for_new_rows.get() is not None


def is_for_new_rows(request: FitRequest, outcome: Outcome) -> bool:
    """Whether nothing is asked of a fit but densities of new rows, and these need no more of its draws."""
    return asks_of_new_rows() and (outcome.is_point or request.method.log_density is not None)


def build_tree(request: FitRequest, fitted: Fitted) -> xr.DataTree:
    """Build the tree of a fit: all groups, and all root attributes but those of convergence.

    Args:
        request: the call.
        fitted: the finished run; without data nothing per row is stored.
    """
    scores = _for_new_rows.get()
    if scores is not None and (scored := scores(request, fitted)) is not None:
        return scored
    outcome, keep = fitted.outcome, request.keep
    model = request.model if outcome.model is None else outcome.model
    back = request.back
    stored = model if back is None else back.model(outcome.model)
    holds_rows = fitted.data is not None
    data = request.data if fitted.data is None else fitted.data
    labels = Labels(request.coords)
    dims = dict(model.variable_dims) | dict(outcome.dims)
    fields, arrays = describe(stored)
    draws = dict(outcome.posterior)
    num_draws = np.prod(next(iter(draws.values())).shape[:2])
    shares = model.roles.document_topic
    absent = [shares] if shares and shares not in draws and outcome.is_generative else []
    num_rows, passes = data[0].shape[0], answer_of(model, "density_passes")
    rows_fit = (
        holds_rows
        and row_limit(num_draws * num_rows * 8, "log_likelihood", keep)
        and draws_of_rows_limit(
            num_draws,
            num_rows,
            row_width(model) * passes,
            fitted.run.num_iterations // passes,
            "log_likelihood",
            keep,
        )
    )
    wanted = ["deterministics"] if outcome.is_generative else []
    if not outcome.is_point:  # a point has no posterior to weigh the rows by
        if not model.answers.has_density:
            wanted += ["log_prior"]  # with the program's factors
        elif rows_fit and not absent:
            wanted += ["log_prior", "log_likelihood"]
    found: dict[str, Any] = {}
    if is_for_new_rows(request, outcome):
        wanted = []
    if {"deterministics", "log_prior"} <= set(wanted):
        found |= _deterministics_and_log_prior(draws, model, data)
    for name in wanted:  # a program each: on little data not all of them are worth compiling
        if name == "log_likelihood":
            found[name] = _log_densities(draws, model, data)
        elif name not in found:
            found[name] = to_numpy(over_draws(_OF_DRAW[name], draws, model, data))
        draws |= found[name] if name == "deterministics" else {}
    if request.back is not None:
        found = request.back.densities(found, draws, model)
    stats = dict(outcome.sample_stats)
    site = model.roles.cluster
    groups, left_out = {}, [site] if site is not None and site not in draws else []
    left_out += absent
    if "log_likelihood" in found:
        rows = found["log_likelihood"]
        weight = fitted.sample_weight
        of_rows = rows.sum(axis=-1) if weight is None else rows[..., weight > 0] @ weight[weight > 0]
        stats["lp"] = of_rows + found["log_prior"]
        latents = "integrated out" if answer_of(model, "sums_out_locals") else "drawn"
        row_dims = {"log_likelihood": (model.variable_dims[model.data_names[0]][0],)}
        named = {"log_likelihood": rows}
        groups["log_likelihood"] = dataset(named, row_dims, labels, SAMPLE_DIMS, {"latents": latents})
    elif "log_prior" in found:
        stats["lp"] = found["log_prior"]
    elif not outcome.is_point:
        left_out.append("log_likelihood")
    groups["posterior"] = dataset(_outward(draws, request), dims, labels, SAMPLE_DIMS)
    variational, too_large = _by_size(_outward(outcome.variational, request), dims, keep)
    left_out += too_large
    in_batches = not holds_rows or request.stream is not None
    if (
        in_batches
        and model.roles.responsibilities in dims
        and model.roles.responsibilities not in outcome.variational
    ):
        left_out.append(model.roles.responsibilities)
    if variational:
        groups["variational"] = dataset(variational, dims, labels)
    groups["trace"] = _trace_group(request, fitted.run)
    if stats:
        by_temperature = dataset(outcome.by_temperature, {}, labels, ("temperature",))
        groups["sample_stats"] = dataset(stats, {}, labels, SAMPLE_DIMS).merge(by_temperature)
        if "lp" in stats and has_answer(model, "prior_of_occupied"):
            groups["sample_stats"]["lp"].attrs["components_without_rows"] = "integrated out"
    if holds_rows and row_limit(sum(part.nbytes for part in data), "observed_data", keep):
        groups["observed_data"] = with_levels(
            observed_group(model, data if back is None else back.data(), labels), model, request.columns
        )
    else:
        left_out.append("observed_data")
    groups["constant_data"] = dataset(arrays, field_dims(stored), labels)
    if (weight := fitted.sample_weight) is not None:
        groups["constant_data"] = groups["constant_data"].assign(sample_weight=("observation", weight))
    if (columns := columns_group(model, request.columns)) is not None:
        groups["columns"] = columns
    tree = xr.DataTree.from_dict({name: groups[name] for name in _ORDER if name in groups})
    attrs = {"model": model_name(model), "model_fields": fields, "left_out": ", ".join(left_out)}
    if holds_rows:
        attrs["num_observations"] = num_rows
    tree.attrs = attrs | _attributes(request, fitted) | versions()
    return tree


def without_rows(tree: xr.DataTree) -> xr.DataTree:
    """The tree with the mean over the rows of their log density in its place, all that a verdict needs."""
    if "log_likelihood" not in tree.children:
        return tree
    rows = tree["log_likelihood"].to_dataset().map(mean_over_rows, weight=sample_weight_of(tree))
    return tree.assign(log_likelihood=xr.DataTree(rows))


def joined_draws(trees: Sequence[xr.DataTree]) -> xr.DataTree:
    """The trees of draws that follow one another as one tree; where some have fewer components, zeros."""
    (first, *others), groups = trees, {}
    for name, group in first.children.items():
        own = [group.to_dataset(), *(tree[name].to_dataset() for tree in others)]
        if "draw" in group.dims:
            how: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
            own = [
                xr.concat(own, "draw", join="outer", fill_value=0, **how)
            ]  # what has no draws is that of the first
        groups[name] = own[-1]
    return xr.DataTree.from_dict({"/": trees[-1].to_dataset(), **groups})


def _outward(values: Mapping[str, Any], request: FitRequest) -> dict[str, Any]:
    """Variables of a fit in the coordinates of the data."""
    return dict(values) if request.back is None else request.back.variables(values)


def _attributes(request: FitRequest, fitted: Fitted) -> dict[str, Any]:
    """The root attributes that tell how the fit was made."""
    run, of_outcome = fitted.run, dict(fitted.outcome.attrs)
    settings = request.told
    if settings.get("until") is None:
        settings = {name: value for name, value in settings.items() if name not in UNTIL}
    options = settings | dict(request.options)
    options["init"] = request.strategy if request.variables is None else "given"
    if "learnt_from" in of_outcome:
        begun = _outward(json.loads(of_outcome.pop("learnt_from")), request)
        options["learnt_from"] = {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in begun.items()
        }
    attrs = {
        "method": request.name,
        "options": json.dumps(options),
        "seed": request.seed,
        "dtype": request.dtype,
        "stop_reason": run.stop_reason,
        "num_iterations": run.num_iterations,
        "chain_method": getattr(request.settings, "chain_method", "none"),
    }
    if run.stop_reason.startswith("interrupted") and request.checkpoint is not None:
        attrs["checkpoint"] = os.fspath(request.checkpoint)
    if (looks := getattr(run, "looks", None)) is not None:
        found = [{"draws": int(n), "passed": bool(p), "r_hat": float(r)} for n, p, r in looks]
        attrs |= {"look": len(found), "looks": json.dumps(found)}
    if isinstance(run, AscentRun) and _has_restarts(request):
        attrs["best_restart"] = run.best_restart
    attrs |= of_outcome
    if request.stream is not None:
        attrs |= {"batch_size": request.batch_size, "num_observations": request.stream.num_rows or 0}
    if TEXT_COLUMN in request.coords:
        (attrs[TEXT_COLUMN],) = request.coords[TEXT_COLUMN]
    if request.num_devices > 1:
        attrs["num_devices"] = request.num_devices
    if isinstance(run, AscentRun) and request.options.get("moves"):
        attrs["num_improvements"] = run.num_improvements
    return attrs


def _has_restarts(request: FitRequest) -> bool:
    return getattr(request.settings, "num_restarts", 1) > 1


def _by_size(
    variables: dict[str, Any], dims: Mapping[str, tuple[str, ...]], keep: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Variables without those per row that are too large, and the names of these."""
    too_large = [
        name
        for name, value in variables.items()
        if ROW_DIMS & set(dims.get(name, ())[:1]) and not row_limit(np.asarray(value).nbytes, name, keep)
    ]
    return {name: value for name, value in variables.items() if name not in too_large}, too_large


def _log_likelihood(model: Model, values: Mapping[str, Any], *data: Any) -> jax.Array:
    if len(data) > 1 or not answer_of(model, "sums_out_locals"):
        return model.log_likelihood(values, *data)
    return map_rows(partial(model.log_likelihood, values), data[0])  # no rows x components array at once


#: What a tree holds of each draw besides: functions of model, values and data.
_OF_DRAW = {"deterministics": deterministics, "log_prior": log_prior}


def _in_a_bucket(model: Model, data: tuple) -> tuple[Model, tuple]:
    """Rows whose latents are summed out with others beside them, so that tables share a program."""
    if not (shares_shapes() and answer_of(model, "sums_out_locals")):
        return model, data
    return beside_others(model, data, bucket(data[0].shape[0]))


def _of_rows(draws: dict[str, Any], model: Model) -> set[str]:
    return {name for name in draws if ROW_DIMS & {*model.variable_dims.get(name, ())}}


def _deterministics_and_log_prior(draws: dict[str, Any], model: Model, data: tuple) -> dict[str, Any]:
    """Both by name; of the data shapes count, and of the rows' draws labels, for components without any."""
    if (of_rows := _of_rows(draws, model)) <= {model.roles.cluster}:
        number, (model, data) = data[0].shape[0], _in_a_bucket(model, data)
        more = (0, 0), (0, 0), (0, data[0].shape[0] - number)
        draws = draws | {name: np.pad(draws[name], more, mode="edge") for name in of_rows}
    both = to_numpy(over_draws(deterministics_and_log_prior, draws, model, data))
    return dict(zip(("deterministics", "log_prior"), both, strict=True))


def _log_densities(draws: dict[str, Any], model: Model, data: tuple) -> np.ndarray:
    """Log density of each row in each draw: (chain, draw, row)."""
    number, (model, data) = data[0].shape[0], _in_a_bucket(model, data)
    if answer_of(model, "sums_out_locals"):
        draws = {name: own for name, own in draws.items() if name not in _of_rows(draws, model)}
    return to_numpy(over_draws(_log_likelihood, draws, model, data))[..., :number]


def _trace_group(request: FitRequest, run: Any) -> xr.Dataset:
    """The group `trace`, by iteration: per chain, or of the best restart.

    Of several restarts all are beside it as NAME_by_restart, along a dim of their own and NaN after one has
    stopped, and as NAME_at_end what each ended with.
    """
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(run.trace, ("iteration",))
    length = run.trace["objective"].shape[1]
    labels = Labels(dict.fromkeys(("iteration", RESTART_ITERATION), np.arange(1, length + 1)))
    if isinstance(request.method, Sampler):
        return dataset(run.trace, dims, labels, ("chain",), {"num_warmup": request.settings.num_warmup})
    length = min(length, max(run.num_iterations, 1))
    labels = Labels({**labels.coords, "iteration": np.arange(1, length + 1)})
    values = {name: value[run.best_restart, :length] for name, value in run.trace.items()}
    if _has_restarts(request):
        steps = np.isfinite(run.trace["objective"]).cumsum(axis=1).argmax(axis=1)
        every = {f"{name}_by_restart": value.T for name, value in run.trace.items()}
        ends = {f"{name}_at_end": value[np.arange(len(steps)), steps] for name, value in run.trace.items()}
        dims |= dict.fromkeys(every, (RESTART_ITERATION, "restart")) | dict.fromkeys(ends, ("restart",))
        values |= every | ends
    return dataset(values, dims, labels)
