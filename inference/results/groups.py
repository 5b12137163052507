"""Access to the groups of a fit: variables by their role in the model, draws, and the observed data."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from inference.results.files import SAMPLE_DIMS, Labels, check_tree, dataset, model_of
from zoo.intake import Columns
from zoo.model import Model
from zoo.sparse import SparseCounts, SparseMatrix

ROW_DIMS = {"observation", "document"}  # dims along which a fit's data grow

_REMEDIES = {
    "observed_data": "the data were left out for their size: inference.extend(tree, 'observed_data', *data) "
    "adds them; or fit again with keep=('observed_data',)",
    "log_likelihood": "inference.extend(tree, 'log_likelihood') makes it, or extend(tree, 'log_likelihood', "
    "*data) where the fit does not hold the data",
}


def group_of(tree: xr.DataTree, name: str) -> xr.Dataset:
    """A group of a fit.

    Raises:
        ValueError: the fit lacks the group, or its draws a dim.
    """
    check_tree(tree)
    if name not in tree.children:
        remedy = _REMEDIES.get(name, "take the whole tree that inference.fit or inference.load gave")
        held = ", ".join(sorted(tree.children)) or "no groups at all"
        raise ValueError(f"this needs the group {name!r} of the fit, which holds {held}; {remedy}")
    group = tree[name].to_dataset()
    if name == "posterior" and (missing := sorted({"chain", "draw"} - set(group.dims))):
        keep = f"one that is chosen stays a dim by a list, tree.isel({missing[0]}=[0])"
        raise ValueError(f"expected draws with dims chain and draw; the posterior lacks {missing}: {keep}")
    return group


def check_all_rows(tree: xr.DataTree) -> None:
    """Raise ValueError where rows were cut off a fit, since its draws are given those too."""
    check_tree(tree)
    fitted = int(tree.attrs.get("num_observations", 0))  # 0: not known
    sizes = {size for group in tree.children.values() for dim, size in group.sizes.items() if dim in ROW_DIMS}
    if fitted and sizes - {fitted}:
        raise ValueError(
            f"this tree holds {min(sizes - {fitted})} of the {fitted} rows that were fitted, and its draws "
            "are given all of them: take the whole tree, or fit these rows alone"
        )


def group_or_empty(tree: xr.DataTree, name: str) -> xr.Dataset:
    """A group of a fit; one without variables where the fit lacks it."""
    return tree[name].to_dataset() if name in tree.children else xr.Dataset()


def sample_weight_of(tree: xr.DataTree) -> np.ndarray | None:
    """The weights of the rows, shape (rows,); None where the fit weighs all alike."""
    constants = group_or_empty(tree, "constant_data")
    return constants["sample_weight"].to_numpy() if "sample_weight" in constants else None


def mean_over_rows(rows: xr.DataArray, weight: np.ndarray | None) -> xr.DataArray:
    """The mean of densities over their rows, each as often as its weight says, shape (chain, draw)."""
    dims = [dim for dim in rows.dims if dim not in SAMPLE_DIMS]
    if weight is None or not dims:
        return rows.mean(dims)
    return rows.weighted(xr.DataArray(weight, dims=dims)).mean(dims)


def observed_tables(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """The tables of rows among the data of a fit, by their sites."""
    held = group_of(tree, "observed_data").data_vars.items()
    return {str(name): own for name, own in held if own.ndim == 2 and "observation" in own.dims}


def labels_along(tree: xr.DataTree, dim: str, size: int | None = None) -> np.ndarray | None:
    """Labels of a dim in the first group that has them (so many, if told); None where none has."""
    held = (group[dim].to_numpy() for group in tree.children.values() if dim in group.coords)
    return next((labels for labels in held if size in (None, len(labels))), None)


def left_out_of(tree: xr.DataTree) -> list[str]:
    """The names of what a fit left out for its size or cost."""
    check_tree(tree)
    return [name for name in str(tree.attrs.get("left_out", "")).split(", ") if name]


def labels_of(tree: xr.DataTree) -> xr.DataArray | None:
    """Draws of each row's cluster.

    Returns:
        Dims (chain, draw, observation) or (chain, draw, document); None where the fit holds none.
    """
    site, posterior = model_of(tree).roles.cluster, group_of(tree, "posterior")
    return posterior[site].transpose("chain", "draw", ...) if site in posterior else None


def responsibilities_of(tree: xr.DataTree) -> xr.DataArray | None:
    """Stored probabilities of each row's clusters.

    Returns:
        Dims (observation, component) or (document, cluster); None where the fit holds none.
    """
    check_tree(tree)
    if "variational" not in tree.children:
        return None
    model, stored = model_of(tree), tree["variational"].to_dataset()
    site = model.roles.responsibilities
    return stored[site].transpose(*model.variable_dims[site]) if site in stored else None


def loadings_of(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """Draws of the loadings of each view.

    Returns:
        Suffix of the view to loadings, dims (chain, draw, feature, latent), in the order of the posterior.
    """
    sites = model_of(tree).roles.loadings
    return {
        sites[str(name)]: variable.transpose("chain", "draw", ..., "latent")
        for name, variable in group_of(tree, "posterior").data_vars.items()
        if name in sites
    }


def thinning(tree: xr.DataTree, most: int) -> int:
    """Every how many draws of each chain one is kept, so that at most ``most`` are left in all."""
    sizes = group_of(tree, "posterior").sizes
    return -(-sizes["draw"] // max(most // sizes["chain"], 1))


def thinned(tree: xr.DataTree, most: int) -> xr.DataTree:
    """The fit with at most so many draws, evenly spaced, in all groups that have them."""
    step = thinning(tree, most)
    if step <= 1:
        return tree
    return with_groups(
        tree,
        {
            name: child.to_dataset().isel(draw=slice(None, None, step))
            for name, child in tree.children.items()
            if "draw" in child.dims
        },
    )


def with_groups(tree: xr.DataTree, groups: Mapping[str, xr.Dataset], **attrs: Any) -> xr.DataTree:
    """The fit with some groups replaced, and with further root attributes."""
    new = tree.assign({name: xr.DataTree(group) for name, group in groups.items()})
    new.attrs |= attrs
    return tree.fit.share(new)


def flat_draws(variable: xr.DataArray, *dims: Any) -> np.ndarray:
    """Draws of a variable, all chains end to end: shape (draws, ...) with the inner dims in this order."""
    values = variable.transpose("chain", "draw", *(dims or (...,))).values
    return values.reshape(-1, *values.shape[2:])


CELLS = ("document", "word", "count")
REAL_CELLS = ("row", "column", "value")


def observed_group(model: Model, data: tuple, labels: Labels) -> xr.Dataset:
    """Matrices by the names of their sites; sparse ones as their cells, over the dim ``nonzero``."""
    dims = dict(model.variable_dims) | dict.fromkeys(CELLS, ("nonzero",))
    variables: dict[str, np.ndarray] = {}
    attrs: dict[str, int] = {}
    bare: dict[str, np.ndarray] = {}
    for name, part in zip(model.data_names, data, strict=True):
        if isinstance(part, SparseCounts):
            variables |= {cell: np.asarray(getattr(part, cell)) for cell in CELLS}
            attrs = {"num_documents": part.shape[0], "num_words": part.shape[1]}
        elif isinstance(part, SparseMatrix):
            cells = part.to_scipy().tocoo(copy=False)
            bare = dict(zip(REAL_CELLS, (*cells.coords, cells.data), strict=True))
            attrs = {"num_observations": part.shape[0], "num_features": part.shape[1]}
        else:
            variables[name] = np.array(part)  # a copy: the caller may change theirs later
    group = dataset(variables, dims, labels, attrs=attrs)
    if bare:  # these have no coords
        group = group.assign({name: ("nonzero", value) for name, value in bare.items()})
    return group


def columns_group(model: Model, columns: Sequence[Columns | None]) -> xr.Dataset | None:
    """What the columns of tables hold, by the names of the parts; None where no part is a table."""
    texts = {
        name: (f"column_{name}", np.array(own.as_text()))
        for name, own in zip(model.data_names, columns, strict=False)
        if own is not None
    }
    return xr.Dataset(texts) if texts else None


def with_levels(group: xr.Dataset, model: Model, columns: Sequence[Columns | None]) -> xr.Dataset:
    """The data with the names of levels beside the numbers, as JSON in the attribute ``levels``."""
    for name, own in zip(model.data_names, columns, strict=False):
        if own is not None and own.level_numbers and name in group:
            group[name].attrs["levels"] = json.dumps(own.level_numbers)
    return group


def columns_of(tree: xr.DataTree) -> pd.DataFrame:
    """How the columns of the tables of a fit were read, and why.

    Args:
        tree: a fit.

    Returns:
        One row a column, by the part of the data and the column's name, with kind, missing cells, levels and
        the reason.

    Raises:
        ValueError: the data of the fit were arrays, whose cells are taken as they are.

    Example:
        >>> import numpy as np, pandas as pd, inference, zoo
        >>> x = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["height", "weight"])
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> inference.columns_of(tree)["kind"].tolist()
        ['real', 'real']
    """
    found = dict(zip(model_of(tree).data_names, tree.fit.columns, strict=True))
    tables = {name: columns.table() for name, columns in found.items() if columns is not None}
    if not tables:
        raise ValueError("the data of this fit were no tables with named columns: pass a DataFrame to fit")
    return pd.concat(tables, names=["data"])


def restored_data(group: xr.Dataset, model: Model) -> tuple:
    """The parts of the data that `observed_group` stored, as NumPy arrays or sparse as they were."""
    if "num_documents" in group.attrs:
        shape = (int(group.attrs["num_documents"]), int(group.attrs["num_words"]))
        document, word, count = (group[cell].to_numpy() for cell in CELLS)
        return (SparseCounts(document, word, count, shape),)
    parts = {name: group[name].to_numpy() for name in model.data_names if name in group}
    if "num_observations" in group.attrs:
        shape = (int(group.attrs["num_observations"]), int(group.attrs["num_features"]))
        row, column, value = (group[cell].to_numpy() for cell in REAL_CELLS)
        parts["x"] = SparseMatrix.from_cells(row, column, value, shape)
    return tuple(parts[name] for name in model.data_names)
