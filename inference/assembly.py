"""A run's outcome and trace become the groups of a tree."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr

from inference.algorithm import Method, Outcome
from inference.densities import deterministics, log_prior
from inference.draws import over_draws
from inference.driver import Ascent, Chains
from inference.model_fields import describe, field_dims, model_name
from inference.observed import observed_group
from inference.precision import to_numpy
from inference.results import SAMPLE_DIMS, Labels, dataset, row_limit
from inference.row_blocks import map_rows
from zoo.model import Model

__all__ = ["assemble", "trace_group"]


def assemble(
    model: Model,
    data: tuple,
    coords: Mapping[str, Any],
    outcome: Outcome,
    trace: xr.Dataset,
    keep: tuple[str, ...],
    holds_rows: bool = True,
) -> xr.DataTree:
    """All groups, with names for dims and coords.

    Args:
        model: the model that was fitted.
        data: its data; without ``holds_rows`` any rows that the program accepts.
        coords: labels by dim.
        outcome: what the method concluded.
        trace: the group `trace`.
        keep: names of what is stored whatever its size.
        holds_rows: whether anything per row is stored.
    """
    labels = Labels(coords)
    dims = dict(model.variable_dims) | dict(outcome.dims)
    fields, arrays = describe(model)
    draws = dict(outcome.posterior)
    first = next(iter(draws.values()))
    if outcome.is_generative:
        draws |= to_numpy(over_draws(deterministics, draws, model, data))
    stats = dict(outcome.sample_stats)
    site = model.cluster_site
    groups, left_out = {}, [site] if site is not None and site not in draws else []
    num_draws = first.shape[0] * first.shape[1]
    rows_fit = holds_rows and row_limit(num_draws * data[0].shape[0] * 8, "log_likelihood", keep)
    absent = [name for name in model.local_sites if name not in draws] if outcome.is_generative else []
    left_out += absent
    if not model.scores_rows:
        if not outcome.is_point:
            stats["lp"] = np.asarray(over_draws(log_prior, draws, model, data))  # with the program's factors
    elif (
        rows_fit and not outcome.is_point and not absent
    ):  # a point estimate has no posterior to weigh the rows by
        rows = np.asarray(over_draws(_log_likelihood, draws, model, data))
        stats["lp"] = rows.sum(axis=-1) + np.asarray(over_draws(log_prior, draws, model, data))
        latents = "integrated out" if model.sums_out_locals else "drawn"
        row_dims = {"log_likelihood": (model.variable_dims[model.data_names[0]][0],)}
        groups["log_likelihood"] = dataset(
            {"log_likelihood": rows}, row_dims, labels, SAMPLE_DIMS, {"latents": latents}
        )
    elif not outcome.is_point:
        left_out.append("log_likelihood")
    groups["posterior"] = dataset(draws, dims, labels, SAMPLE_DIMS)
    variational, too_large = _by_size(dict(outcome.variational), dims, keep)
    left_out += too_large
    if not holds_rows and model.responsibility_site in dims:
        left_out.append(model.responsibility_site)
    if variational:
        groups["variational"] = dataset(variational, dims, labels)
    groups["trace"] = trace
    if stats:
        groups["sample_stats"] = dataset(stats, {}, labels, SAMPLE_DIMS)
    if holds_rows and row_limit(sum(part.nbytes for part in data), "observed_data", keep):
        groups["observed_data"] = observed_group(model, data, labels)
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


def _by_size(
    variables: dict[str, Any], dims: Mapping[str, tuple[str, ...]], keep: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """Variables without those per row that take too much, and their names."""
    too_large = [
        name
        for name, value in variables.items()
        if dims.get(name, ("",))[:1] in (("observation",), ("document",))
        and not row_limit(np.asarray(value).nbytes, name, keep)
    ]
    return {name: value for name, value in variables.items() if name not in too_large}, too_large


def _log_likelihood(model: Model, values: Mapping[str, Any], *data: Any) -> jax.Array:
    if len(data) > 1 or not model.sums_out_locals:
        return model.log_likelihood(values, *data)
    return map_rows(partial(model.log_likelihood, values), data[0])  # no rows x components array at once


def trace_group(method: Method, result: Ascent | Chains, settings: Mapping[str, Any]) -> xr.Dataset:
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
