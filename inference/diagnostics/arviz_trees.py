"""A fit as ArviZ wants it: identified quantities that move, one density a row, and one outcome a row.

ArviZ's functions take a fit as it is, but draw and tabulate every variable of ``posterior``: labels of rows,
latents, parameters whose labels or axes switch, and constants, of which they make an R-hat of 1e15 or an
error. `for_arviz` gives them what can be read, from what the fit holds: nothing is computed but replications
of the outcome, and those when they are first read.
"""

import itertools
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from inference.convergence.identifiable import draws_of, invariants, kind_of
from inference.extension import check_replicable, extend
from inference.methods import advised
from inference.precision import double_precision
from inference.results.files import SAMPLE_DIMS, first_number, model_of
from inference.results.groups import ROW_DIMS, group_of, labels_along, restored_data, sample_weight_of
from inference.symmetry.labels import given_rows
from zoo.checks import first_of, shown
from zoo.model import Model

_MOST_CELLS = 2**24  # of all replications
_SMALLEST_MOVE = 1e-12  # of the size of a quantity; what moves less is rounding
_LISTED = 5  # cells that do not move
_RENAMED = {  # dims of ArviZ's own, and of a few cells that are no rows
    "component": "mixture_component",
    "row": "data_row",
    "column": "data_column",
    "document": "data_document",
}


@double_precision
def for_arviz(tree: xr.DataTree, *, column: str | int | None = None, seed: int = 0) -> xr.DataTree:
    """Return a fit in the form that the functions of ArviZ take.

    Args:
        tree: a fit by a method that draws from a posterior or from an approximation of it. Of one that is
            aligned (`inference.symmetry`) ``posterior`` also has the parameters that are no matrices, such as
            weights and locations, of a component only where it holds rows in every draw; else it has the
            invariants alone (`inference.diagnostics.invariants`).
        column: label of the column of the data that is the outcome of a row in ``observed_data`` and
            ``posterior_predictive``, where `arviz.loo_pit` wants a single one; None: the first column without
            missing cells. `inference.extend` makes replications of all columns.
        seed: of the replications.

    Returns:
        A tree with: ``posterior``, nothing in it by row and no cell that stays the same within every chain,
        of symmetric matrices the upper triangle (a variable of which cells are left out has the others along
        the dim ``NAME_cell``);
        ``log_likelihood``, the density of each row in one variable, of a row with a weight that of so many
        rows (`arviz.loo` leaves them out together); ``observed_data`` and ``posterior_predictive``, an
        outcome a row under the same name, called like the data (``x``, ``y_0_and_y_1``), the attribute
        ``column`` telling which; the replications are drawn when they are
        first read; ``sample_stats``, ``log_prior``, and ``prior`` where the fit has it. The root attribute
        ``not_made`` lists what is left out, with the reasons. The fit itself is not changed. Of more than
        20 quantities `arviz.plot_psense_dist` takes some by ``var_names``, or all with a larger
        ``arviz.rcParams["plot.max_subplots"]``.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or none that differ, or is a point estimate; no such column, or one with
            missing cells.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1, loading_prior="ard"), x, method="vb")
        >>> "latents" in inference.diagnostics.for_arviz(tree)["posterior"]
        False
    """
    draws_of(tree)
    if kind_of(tree) == "point":
        method, model = tree.attrs.get("method"), model_of(tree)
        others = advised(model, ("vb", "gibbs", "collapsed_gibbs", "nuts"))
        remedies = [f"fit by {others} for ArviZ"] if others else []
        if model.answers.has_density:
            remedies += [
                "compare estimates by the density of held-out rows, inference.log_density(tree, *new_data)"
            ]
        raise ValueError(
            f"{method!r} gives a point estimate: one draw, of which there is no R-hat, no interval and no "
            f"leave-one-out density{'; ' if remedies else ''}{', or '.join(remedies)}"
        )
    model, reasons = model_of(tree), []
    posterior = _moving(_posterior(tree, reasons), reasons)
    if not posterior.data_vars:
        draws, stop = draws_of(tree).sizes["draw"], tree.attrs.get("stop_reason", "")
        raise ValueError(
            f"no quantity of this fit changes within a chain, over {draws} draws a chain ({stop}): there is "
            f"nothing for ArviZ; run it longer (num_warmup, num_samples)"
        )
    groups = {"posterior": posterior} | _densities(tree, reasons)
    name = "_and_".join(model.data_names)
    if (outcome := _outcome(tree, model, column, reasons)) is not None:
        groups["observed_data"] = xr.Dataset({name: outcome.observed})
        replicated = _replications(tree, model, outcome, seed, reasons)
        groups |= {} if replicated is None else {"posterior_predictive": xr.Dataset({name: replicated})}
    if "log_likelihood" in groups:
        (own,) = groups["log_likelihood"].data_vars
        groups["log_likelihood"] = groups["log_likelihood"].rename({own: name})
    if "prior" in tree.children:
        groups["prior"] = _prior(tree, posterior)
    else:
        reasons.append("prior: inference.extend(tree, 'prior') draws it")
    groups = {group: value for group, value in groups.items() if value.data_vars}
    attrs = dict(tree.attrs) | {"not_made": "; ".join(reasons)}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs)} | groups)


def _posterior(tree: xr.DataTree, reasons: list[str]) -> xr.Dataset:
    """The invariants, and the parameters of a fit that is aligned."""
    found = _with_ranks(invariants(tree).drop_vars("lp", errors="ignore"))
    if {"relabelled", "rotation_aligned"} & set(tree.attrs):
        rest = _with_ranks(given_rows(tree))
        for name, value in rest.data_vars.items():
            is_matrix = any(str(dim).endswith("_2") for dim in value.dims)
            if name not in found and not ROW_DIMS & set(value.dims) and not is_matrix:
                found = found.assign({name: _always_held(value, reasons)})
    return found.rename({dim: new for dim, new in _RENAMED.items() if dim in found.dims})


def _always_held(value: xr.DataArray, reasons: list[str]) -> xr.DataArray:
    """The entries of a parameter of clusters that hold rows in every draw; the others are NaN in some."""
    gaps = value.isnull().any(SAMPLE_DIMS)
    if not gaps.any():
        return value
    dim = next(str(dim) for dim in value.dims[2:] if str(dim) in ("component", "cluster"))
    empty = gaps.any([other for other in gaps.dims if other != dim]).to_numpy()
    labels = ", ".join(map(str, value[dim].to_numpy()[empty]))
    reasons.append(f"{value.name} of {dim} {labels}: without rows in some draws")
    return value.isel({dim: ~empty}).rename({dim: f"{dim}_of_{value.name}"})


def _with_ranks(values: xr.Dataset) -> xr.Dataset:
    """The quantities with coords on all dims: ranks count from 1."""
    bare = [dim for dim in values.dims if dim not in values.coords]
    return values.assign_coords({dim: first_number(str(dim)) + np.arange(values.sizes[dim]) for dim in bare})


def _moving(values: xr.Dataset, reasons: list[str]) -> xr.Dataset:
    """The quantities without cells that stay the same within every chain, and without their transposes."""
    found, still = {}, []
    for name, value in values.data_vars.items():
        value = value.transpose(*SAMPLE_DIMS, ...)
        cells = value.to_numpy().astype(float).reshape(*value.shape[:2], -1)
        moves = (np.ptp(cells, axis=1) > _SMALLEST_MOVE * np.abs(cells).max(axis=1)).any(axis=0)
        at = value.dims[2:]
        upper = _is_upper(value.isel(chain=0, draw=0))
        if (moves & upper).all():
            found[name] = value
            continue
        labels = np.array([", ".join(map(str, cell)) for cell in _cells_along(value, at)])
        for label, own in zip(labels[~moves], np.moveaxis(cells[..., ~moves], -1, 0), strict=True):
            place = f"{name}[{label}]" if at else str(name)
            still.append(f"{place} = {', '.join(f'{number:.6g}' for number in np.unique(own[:, 0]))}")
        if (kept := moves & upper).any():
            coords = {dim: value[dim] for dim in SAMPLE_DIMS} | {f"{name}_cell": labels[kept]}
            found[name] = xr.DataArray(cells[..., kept], coords, (*SAMPLE_DIMS, f"{name}_cell"))
    if still:
        reasons.append(f"posterior: the same in all draws of a chain: {first_of(still, _LISTED)}")
    return xr.Dataset(found)


def _is_upper(value: xr.DataArray) -> np.ndarray:
    """Which cells of a quantity are no transposes of others: of dims d and d_2 the upper triangle."""
    places = np.indices(value.shape).reshape(value.ndim, value.size)
    at = {str(dim): own for dim, own in zip(value.dims, places, strict=True)}
    pairs = [(own, at[f"{dim}_2"]) for dim, own in at.items() if f"{dim}_2" in at]
    return np.logical_and.reduce([first <= second for first, second in pairs] or [np.ones(value.size, bool)])


def _cells_along(value: xr.DataArray, dims: tuple) -> list[tuple]:
    """Labels of all cells along dims, in the order of the values."""
    return list(itertools.product(*(value[dim].to_numpy().tolist() for dim in dims)))


def _densities(tree: xr.DataTree, reasons: list[str]) -> dict[str, xr.Dataset]:
    """The groups of densities as the fit has them; the log prior is what its log joint leaves."""
    held = ("sample_stats", "log_likelihood", "log_prior")
    found = {name: tree[name].to_dataset() for name in held if name in tree.children}
    if "log_likelihood" in found and (weight := sample_weight_of(tree)) is not None:
        dims = set(found["log_likelihood"].dims) - set(SAMPLE_DIMS)
        found["log_likelihood"] = found["log_likelihood"] * xr.DataArray(weight, dims=tuple(dims))
    if "log_likelihood" not in found:
        reasons.append("log_likelihood: inference.extend(tree, 'log_likelihood') makes it")
    elif "log_prior" not in found and "lp" in found.get("sample_stats", {}):
        rows = found["log_likelihood"]["log_likelihood"]
        of_rows = rows.sum([dim for dim in rows.dims if dim not in SAMPLE_DIMS])
        found["log_prior"] = xr.Dataset({"log_prior": found["sample_stats"]["lp"] - of_rows})
    if "log_prior" not in found:
        reasons.append("log_prior: inference.extend(tree, 'log_prior') makes it")
    joint = float(np.abs(found["sample_stats"]["lp"]).max()) if "lp" in found.get("sample_stats", {}) else 0.0
    for name in ("log_likelihood", "log_prior"):
        moves = found[name][name].to_numpy() if name in found else None
        if moves is not None and np.ptp(moves, axis=(0, 1)).max() <= _SMALLEST_MOVE * max(joint, 1.0):
            del found[name]
            reasons.append(f"{name}: the same in all draws, which weighs none of them against another")
    return found


class _Outcome(NamedTuple):
    """A column of the data.

    Attributes:
        observed: its cells, by row.
        site: the part of the data.
        place: number of the column there.
    """

    observed: xr.DataArray
    site: str
    place: int


def _outcome(
    tree: xr.DataTree, model: Model, column: str | int | None, reasons: list[str]
) -> _Outcome | None:
    """The column asked for, or the first one without missing cells; None where there is none.

    Raises:
        ValueError: no such column, or cells of it are missing.
    """
    if "observed_data" not in tree.children:
        if column is not None:
            raise ValueError("the fit does not hold its data: inference.extend(tree, 'observed_data', *data)")
        reasons.append("observed_data: the fit does not hold its data")
        return None
    listed = []
    for site, part in zip(
        model.data_names, restored_data(group_of(tree, "observed_data"), model), strict=True
    ):
        row_dim, dim = model.variable_dims[site]
        found = (labels_along(tree, own, size) for own, size in zip((row_dim, dim), part.shape, strict=True))
        rows, labels = (
            np.arange(n) if own is None else own for own, n in zip(found, part.shape, strict=True)
        )
        for place, label in enumerate(labels.tolist()):
            if column is not None and label != column and str(label) != str(column):
                listed.append(str(label))
                continue
            cells = _column_of(part, place)
            missing = int(np.isnan(cells).sum())
            if not missing:
                attrs = {"site": site, "column": str(label)}
                return _Outcome(xr.DataArray(cells, {row_dim: rows}, (row_dim,), attrs=attrs), site, place)
            if column is not None:
                raise ValueError(
                    f"column {label!r} of {site} lacks {missing} of {len(cells)} cells: an outcome must be "
                    f"observed in every row; name another column"
                )
    if column is not None:
        raise ValueError(f"the data have no column {column!r}: there are {shown(listed)}")
    reasons.append("observed_data: every column has missing cells, and an outcome is one a row")
    return None


def _column_of(part: Any, place: int) -> np.ndarray:
    """The cells of a column, of a matrix or of a sparse one."""
    if isinstance(part, np.ndarray):
        return part[:, place].astype(float)
    return part.to_scipy().tocsc()[:, [place]].toarray().ravel().astype(float)


class _DrawnWhenRead(BackendArray):
    """An array that is computed when its values are first asked for.

    Args:
        draw: gives the values.
        shape: of them.
    """

    dtype = np.dtype(float)

    def __init__(self, draw: Callable[[], np.ndarray], shape: tuple[int, ...]) -> None:
        self.draw, self.shape = draw, shape

    @cached_property
    def values(self) -> np.ndarray:
        return self.draw()

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        basic = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, basic, lambda own: self.values[own])


def _replications(
    tree: xr.DataTree, model: Model, outcome: _Outcome, seed: int, reasons: list[str]
) -> xr.DataArray | None:
    """Replications of the outcome, as the fit has them or drawn when they are first read."""
    posterior, dim = draws_of(tree), model.variable_dims[outcome.site][1]
    dims, shape = (
        (*SAMPLE_DIMS, *outcome.observed.dims),
        (*(posterior.sizes[d] for d in SAMPLE_DIMS), outcome.observed.size),
    )

    def of_column(group: xr.Dataset) -> np.ndarray:
        return group[outcome.site].isel({dim: outcome.place}).transpose(*dims).to_numpy().astype(float)

    coords = {d: posterior[d] for d in SAMPLE_DIMS if d in posterior.coords} | dict(outcome.observed.coords)
    if "posterior_predictive" in tree.children:
        return xr.DataArray(of_column(tree["posterior_predictive"].to_dataset()), coords, dims)
    try:
        check_replicable(tree, model)
    except ValueError as why_not:
        reasons.append(f"posterior_predictive: {why_not}")
        return None
    cells = sum(value.size for value in tree["observed_data"].data_vars.values())
    if cells * shape[0] * shape[1] > _MOST_CELLS:
        reasons.append(
            "posterior_predictive: too many cells for all draws; inference.extend makes it all the same"
        )
        return None
    draw = partial(_drawn, tree, seed, of_column)
    lazy = indexing.LazilyIndexedArray(_DrawnWhenRead(draw, shape))
    return xr.DataArray(xr.Variable(dims, lazy), coords)


def _drawn(tree: xr.DataTree, seed: int, of_column: Callable) -> np.ndarray:
    return of_column(extend(tree, "posterior_predictive", seed=seed)["posterior_predictive"].to_dataset())


def _prior(tree: xr.DataTree, posterior: xr.Dataset) -> xr.Dataset:
    """Quantities of the posterior under the prior, as far as prior draws have them."""
    drawn = group_of(tree, "prior")
    kept = {name: tree[name].to_dataset() for name in ("constant_data",) if name in tree.children}
    bare = xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs)), "posterior": drawn} | kept)
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
