"""A fit as ArviZ wants it: identified quantities, log likelihoods by data site, and nothing by row but data.

ArviZ's functions take a fit as it is, but draw and tabulate every variable of ``posterior``: labels of rows,
latents, and parameters whose labels or axes switch. `for_arviz` gives them what can be read.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, invariants, kind_of
from inference.extension import extend
from inference.numerics.programs import over_draws
from inference.precision import double_precision
from inference.results.files import first_number, model_of
from inference.results.groups import ROW_DIMS, group_of, labels_of, restored_data
from inference.symmetry import align_rotation, relabel
from zoo.dependencies import naming_versions
from zoo.model import Model

__all__ = ["for_arviz"]

_MADE = ("posterior_predictive", "prior", "log_prior")
_MOST_CELLS = 2**24  # of all replications
_MOST_PRIOR_DRAWS = 500
_MOST_COUNTS = 2**22  # cells of documents as a matrix
_RENAMED = {  # dims of ArviZ's own, and of a few cells that are no rows
    "component": "mixture_component",
    "row": "data_row",
    "column": "data_column",
    "document": "data_document",
}  # ArviZ has such dims


@naming_versions()
@double_precision
def for_arviz(
    tree: xr.DataTree, *, column: str | int | None = None, parameters: bool = False, seed: int = 0
) -> xr.DataTree:
    """Return a fit in the form that the functions of ArviZ take.

    Args:
        tree: a fit.
        column: label of the one column of the data to keep in ``observed_data`` and
            ``posterior_predictive``; None: all. ``az.loo_pit`` and other functions of single outcomes need
            one.
        parameters: whether ``posterior`` also has the parameters, brought to one labelling or orientation
            (`inference.symmetry`); else it has the invariants alone (`inference.diagnostics.invariants`).
        seed: of the replications and prior draws.

    Returns:
        A tree with: ``posterior``, nothing in it by row; ``log_likelihood``, one variable for each data site
        and called like it, by row (of paired views one for each, given the latents; ``x_and_y`` where the
        parts of a row are not independent given a draw); ``observed_data``;
        ``sample_stats``; and, where they can be made, ``posterior_predictive``, ``prior`` (of the same
        quantities as ``posterior`` as far as prior draws have them) and ``log_prior``. The root attribute
        ``not_made`` lists what could not be made, with the reasons. The fit itself is not changed.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or there is no such column.

    Example:
        >>> import arviz, numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> "latents" in inference.diagnostics.for_arviz(tree)["posterior"]
        False
    """
    draws_of(tree)
    made, reasons = _with_groups(tree, seed)
    groups = {"posterior": _posterior(made, parameters)}
    model = model_of(tree)
    if "log_likelihood" in made.children:
        groups["log_likelihood"] = _log_likelihood(made, model)
    for name in ("sample_stats", "log_prior"):
        if name in made.children:
            groups[name] = made[name].to_dataset()
    for name in ("observed_data", "posterior_predictive"):
        if name in made.children:
            held = _tables(made[name].to_dataset(), model, _labels_of_words(made, model))
            groups[name] = held if column is None else _of_column(held, column)
    if column is not None and "log_likelihood" in groups and "observed_data" in groups:
        kept = set(groups["observed_data"].data_vars) & set(groups["log_likelihood"].data_vars)
        groups["log_likelihood"] = (
            groups["log_likelihood"][sorted(kept)] if kept else groups["log_likelihood"]
        )
    if "prior" in made.children:
        groups["prior"] = _prior(made, groups["posterior"])
        if not groups["prior"].data_vars:
            del groups["prior"]
            reasons.append("prior: none of the quantities follows from prior draws")
    attrs = dict(tree.attrs) | {"not_made": "; ".join(reasons)}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs)} | groups)


def _with_groups(tree: xr.DataTree, seed: int) -> tuple[xr.DataTree, list[str]]:
    """The fit with the groups that can be made, and why others cannot."""
    posterior, reasons = draws_of(tree), []
    for group in _MADE:
        if group in tree.children:
            continue
        try:
            if "observed_data" not in tree.children:
                raise ValueError("the fit does not hold its data")
            if group == "posterior_predictive":
                cells = sum(value.size for value in tree["observed_data"].data_vars.values())
                if cells * posterior.sizes["chain"] * posterior.sizes["draw"] > _MOST_CELLS:
                    raise ValueError("too many cells for all draws (inference.extend makes it all the same)")
            tree = extend(tree, group, seed=seed, num_samples=_MOST_PRIOR_DRAWS)
        except ValueError as why_not:
            reasons.append(f"{group}: {why_not}")
    return tree, reasons


def _labels_of_words(tree: xr.DataTree, model: Model) -> dict[str, np.ndarray]:
    """Labels of documents and words, where the fit has them."""
    dims = model.variable_dims[model.data_names[0]] if model.takes_documents else ()
    held = [
        (dim, group[dim].values) for dim in dims for group in tree.children.values() if dim in group.coords
    ]
    return dict(held)


def _tables(held: xr.Dataset, model: Model, labels: Mapping[str, np.ndarray]) -> xr.Dataset:
    """The data sites of a group; documents, which are stored by their words, as a matrix of counts."""
    known = [part for part in model.data_names if part in held]
    if known or not model.takes_documents:
        return held[known]
    (counts,) = restored_data(held, model)
    if counts.shape[0] * counts.shape[1] > _MOST_COUNTS:
        return held
    (name,), dims = model.data_names, model.variable_dims[model.data_names[0]]
    return xr.Dataset({name: (dims, np.asarray(counts.to_scipy().todense()))}, labels)


def _of_column(held: xr.Dataset, column: str | int) -> xr.Dataset:
    """Every table of a group that has the column, cut down to it."""
    found = {}
    for name, value in held.data_vars.items():
        dim = value.dims[-1]
        labels = value[dim].values if dim in value.coords else np.arange(value.sizes[dim])
        places = [place for place, label in enumerate(labels) if label == column or str(label) == column]
        if places:
            found[name] = value.isel({dim: places[0]}, drop=True)
    if not found:
        listed = ", ".join(str(value.dims[-1]) for value in held.data_vars.values())
        raise ValueError(f"the data have no column {column!r} along {listed}")
    return xr.Dataset(found)


def _without_rows(group: xr.Dataset) -> xr.Dataset:
    return group.drop_vars([name for name, value in group.data_vars.items() if ROW_DIMS & set(value.dims)])


def _posterior(tree: xr.DataTree, parameters: bool) -> xr.Dataset:
    found = _with_ranks(invariants(tree).drop_vars("lp", errors="ignore"))
    found = found.rename({dim: new for dim, new in _RENAMED.items() if dim in found.dims})
    if not parameters:
        return found
    symmetries, aligned = model_of(tree).symmetries, tree
    if "labels" in symmetries and (kind_of(tree) != "sampling" or labels_of(tree) is not None):
        aligned = tree if "relabelled" in tree.attrs else relabel(tree)
    elif "rotation" in symmetries:
        aligned = tree if "rotation_aligned" in tree.attrs else align_rotation(tree)
    rest = _without_rows(draws_of(aligned))
    rest = rest.drop_vars([name for name in rest.data_vars if name in found])
    rest = rest.rename({dim: new for dim, new in _RENAMED.items() if dim in rest.dims})
    return found.assign(rest.data_vars)


def _with_ranks(values: xr.Dataset) -> xr.Dataset:
    """The quantities with coords on all dims: ranks count from 1."""
    bare = [dim for dim in values.dims if dim not in values.coords]
    return values.assign_coords({dim: first_number(str(dim)) + np.arange(values.sizes[dim]) for dim in bare})


def _rows_by_part(model: Model, values: Mapping[str, Any], *data: Any) -> list[jax.Array]:
    return model.log_likelihood_by_part(values, *data)


def _log_likelihood(tree: xr.DataTree, model: Model) -> xr.Dataset:
    """Row densities by the name of the data site."""
    whole = group_of(tree, "log_likelihood")
    (name,) = whole.data_vars
    if not model.independent_parts or "observed_data" not in tree.children:
        return whole.rename({name: "_and_".join(model.data_names)})
    draws = {
        str(key): value.transpose("chain", "draw", ...).to_numpy() for key, value in draws_of(tree).items()
    }
    found = over_draws(_rows_by_part, draws, model, restored_data(group_of(tree, "observed_data"), model))
    dims = whole[name].transpose("chain", "draw", ...).dims
    variables = {part: (dims, np.asarray(rows)) for part, rows in zip(model.data_names, found, strict=True)}
    return xr.Dataset(variables, whole.coords, dict(whole.attrs))


def _prior(tree: xr.DataTree, posterior: xr.Dataset) -> xr.Dataset:
    """Quantities of the posterior under the prior, as far as prior draws have them."""
    drawn = group_of(tree, "prior")
    bare = xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs)), "posterior": drawn})
    if "constant_data" in tree.children:
        bare["constant_data"] = xr.DataTree(tree["constant_data"].to_dataset())
    found = _with_ranks(invariants(bare))
    found = found.rename({dim: new for dim, new in _RENAMED.items() if dim in found.dims}).assign(
        {name: value for name, value in drawn.data_vars.items() if name in posterior}
    )
    kept = {}
    for name, value in posterior.data_vars.items():
        if name not in found:
            continue
        new = found[name]
        inner = [dim for dim in value.dims if dim not in ("chain", "draw")]
        same = {dim: value[dim].values for dim in inner if dim in value.coords and dim in new.coords}
        if set(inner) == set(new.dims) - {"chain", "draw"} and all(
            set(labels) <= set(new[dim].values) for dim, labels in same.items()
        ):
            kept[name] = new.sel(same)
    return xr.Dataset(kept)
