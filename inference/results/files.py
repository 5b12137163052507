"""Datasets with named dims, and fits in netCDF files."""

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import zoo
from inference.numerics.atomic_files import check_writable, replacing
from inference.results.model_fields import check_known, restore
from zoo.model import Model

__all__ = ["Labels", "check_tree", "dataset", "first_number", "load", "model_of", "save", "versions"]

PACKAGE = "probabilistic-model-zoo"
SAMPLE_DIMS = ("chain", "draw")


class Labels:
    """Names of rows and columns, as they came with the data, by dim."""

    def __init__(self, coords: Mapping[str, Any]) -> None:
        """Keep labels in a form that netCDF can hold: numbers unchanged, anything else as strings.

        Args:
            coords: labels by dim.
        """
        self.coords = {dim: _storable(values) for dim, values in coords.items()}

    def of(self, dim: str, size: int) -> np.ndarray:
        """The labels of a dim; whole numbers from `first_number` where the data brought none.

        ``feature_2`` has those of ``feature``.

        Args:
            dim: name of the dim; ``feature_2`` has the labels of ``feature``.
            size: its length.

        Returns:
            The labels, shape (size,); those of another length are not taken.
        """
        stem = dim.removesuffix("_2")
        labels = self.coords.get(dim, self.coords.get(stem))
        if labels is not None and len(labels) == size:
            return labels
        return np.arange(size) + first_number(dim)


def first_number(dim: str) -> int:
    """The number of the first place along a dim without labels: ranks count from 1, all else from 0.

    Args:
        dim: name of the dim; ranks are along ``rank``, ``rank_...`` and ``..._rank``.

    Returns:
        0 or 1.
    """
    return int(dim.partition("_")[0] == "rank" or dim.endswith("_rank"))


def _storable(values: Any) -> np.ndarray:
    array = pd.Index(values).to_numpy()
    return array if array.dtype.kind in "iufb" else np.array([str(value) for value in values])


def dataset(
    variables: Mapping[str, Any],
    dims: Mapping[str, tuple[str, ...]],
    labels: Labels,
    leading: tuple[str, ...] = (),
    attrs: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Arrays with named dims and coords.

    Args:
        variables: name to array, with the ``leading`` dims first.
        dims: name to the dims that follow; a name with a star matches all names with that beginning.
            Unnamed axes become ``NAME_dim_0``, ...
        labels: coords by dim.
        leading: dims that all variables share.
        attrs: attributes of the group.
    """
    arrays, coords = {}, {}
    for name, value in variables.items():
        value = np.asarray(value)
        all_dims = (*leading, *_dims_of(name, value.ndim - len(leading), dims))
        arrays[name] = (all_dims, value)
        coords |= {dim: labels.of(dim, size) for dim, size in zip(all_dims, value.shape, strict=True)}
    return xr.Dataset(arrays, coords, attrs or {})


def _dims_of(name: str, ndim: int, dims: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    starred = [value for key, value in dims.items() if key.endswith("*") and name.startswith(key[:-1])]
    named = dims.get(name, next(iter(starred), None))
    if named is not None and len(named) == ndim:
        return tuple(named)
    return tuple(f"{name}_dim_{i}" for i in range(ndim))


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers, read once."""
    found = {f"version_{PACKAGE.replace('-', '_')}": zoo.__version__}
    for package in ("numpyro", "jax", "jaxlib", "arviz"):
        try:
            found[f"version_{package.replace('-', '_')}"] = version(package)
        except PackageNotFoundError:  # run without being installed
            found[f"version_{package.replace('-', '_')}"] = "not installed"
    return found


def save(tree: xr.DataTree, path: str | os.PathLike) -> None:
    """Write a fit as netCDF: to a new file in the same folder, then renamed over an old one.

    Args:
        tree: a fit (or any tree of it).
        path: where; the ending ``.nc`` is customary.

    Raises:
        TypeError: ``tree`` is no tree.
        ValueError: nothing can be written there.
    """
    check_tree(tree)
    check_writable(path)
    encoding = {
        f"/{group.relative_to(tree)}": {
            name: {"zlib": True, "complevel": 4}
            for name, v in group.data_vars.items()
            if v.ndim and v.dtype.kind in "iufb"
        }
        for group in tree.subtree
        if group.data_vars
    }
    with replacing(path) as temporary:
        tree.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)


def load(path: str | os.PathLike) -> xr.DataTree:
    """Read a saved fit whole and close the file.

    Args:
        path: a file that `save` wrote.

    Returns:
        The fit, as `fit` returned it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a fit of this library, is damaged, or is of a later version.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> inference.save(tree, "fit.nc")
        >>> inference.load("fit.nc").attrs["model"]
        'ppca'
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder" if path.is_dir() else f"there is no file {path}")
    try:
        with xr.open_datatree(path, engine="h5netcdf") as opened:
            tree = opened.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} cannot be read as netCDF ({error}): it was cut short, or is no fit; copy it again, or "
            "fit again"
        ) from None
    if "model_fields" not in tree.attrs:
        raise ValueError(
            f"{path} is a netCDF file but not a fit of this library: it does not say which model it is of; "
            "a table is fitted by zoo fit MODEL FILE"
        )
    _check_version(path, str(tree.attrs.get(f"version_{PACKAGE.replace('-', '_')}", "")))
    check_known(str(tree.attrs.get("model", "")))
    tree.attrs = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in tree.attrs.items()
    }
    return tree


def _check_version(path: Path, written: str) -> None:
    """Raise ValueError for a file of a later version: a patch (the third number) changes no file."""
    numbers = [re.match(r"(\d+)\.(\d+)", version) for version in (written, zoo.__version__)]
    if None not in numbers:
        theirs, ours = (tuple(map(int, found.groups())) for found in numbers)
        if theirs > ours:
            raise ValueError(
                f"{path} was written by version {written} of this library and this is {zoo.__version__}: "
                f"install {PACKAGE} {written} or later to read it"
            )


def check_tree(tree: Any) -> None:
    """Raise TypeError unless ``tree`` is a DataTree.

    Args:
        tree: what a function was given for a fit.
    """
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            "tree must be a fit, the DataTree that inference.fit or inference.load gives; got "
            f"{type(tree).__name__}"
        )


def model_of(tree: xr.DataTree) -> Model:
    """The model of a fit, its sizes and data-dependent defaults filled in.

    Args:
        tree: a fit.

    Returns:
        The model; nothing of it is imported by a name in the file.

    Raises:
        TypeError: ``tree`` is no tree.
        ValueError: the tree is not a fit of this library.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> inference.model_of(tree).num_features
        3
    """
    check_tree(tree)
    if "model" not in tree.attrs or "model_fields" not in tree.attrs:
        raise ValueError(
            "this tree is not a fit of this library: its root attributes do not describe a model"
        )
    arrays = tree["constant_data"] if "constant_data" in tree.children else {}
    return restore(tree.attrs["model"], tree.attrs["model_fields"], arrays)
