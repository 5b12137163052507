"""Datasets with named dims, and fits in netCDF files."""

import io
import json
import mmap
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import h5netcdf
import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import H5NetCDFStore

import inference.results.accessor  # noqa: F401 - `tree.fit`
import zoo
from inference.numerics.atomic_files import HDF5, check_writable, replacing
from inference.results.integrity import CHECKSUM, INTEGRITY, checksum, contradiction, nodes_of, not_finite
from inference.results.model_fields import check_known
from zoo.checks import words_of
from zoo.intake.bounds import check_layout, may_hold
from zoo.model import Model

PACKAGE = "probabilistic-model-zoo"
_FIRST = (0, 2)  # version whose files are read
SAMPLE_DIMS = ("chain", "draw")
IN_MEMORY = 2**28  # bytes of a fit that is put together in memory before it is written


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
    """
    return int(dim.partition("_")[0] == "rank" or dim.endswith("_rank"))


def _storable(values: Any) -> np.ndarray:
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step)
    if not any(isinstance(value, str) for value in values):  # pandas may refuse text that is no Unicode
        array = pd.Index(values).to_numpy()
        if array.dtype.kind in "iufb":
            return array
    return np.array([_storable_text(str(value)) for value in values])


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
    arrays: dict[str, xr.Variable] = {}
    coords: dict[str, xr.Variable] = {}
    for name, value in variables.items():
        value = np.asarray(value)
        all_dims = (*leading, *_dims_of(name, value.ndim - len(leading), dims))
        arrays[name] = _variable(all_dims, value)
        sizes = zip(all_dims, value.shape, strict=True)
        coords |= {dim: _variable((dim,), np.asarray(labels.of(dim, size))) for dim, size in sizes}
    return xr.Dataset(arrays, coords, attrs or {})


def _variable(dims: tuple[str, ...], values: np.ndarray) -> xr.Variable:
    """A variable of an array that needs no conversion, told as such: otherwise xarray imports dask to ask."""
    return xr.Variable(dims, values, fastpath=values.dtype.kind in "biufcUS")


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
    """Write a fit as netCDF: to a new file in the same folder, flushed to the disk, then renamed into place.

    The file holds a checksum of all groups, which `load` verifies.

    Args:
        tree: a fit (or any tree of it).
        path: where; the ending ``.nc`` is customary. A fit that is there is replaced, anything else is not.

    Raises:
        TypeError: ``tree`` is no tree.
        ValueError: nothing can be written there, a file that is no fit is there, or the tree does not have
            the sizes that its model declares.
        OSError: the disk is full, or the folder has gone: what was at ``path`` is as it was, nothing else is
            left, and the fit is still in memory.
    """
    check_tree(tree)
    check_place_of_fit(path)
    if "model_fields" in tree.attrs and (found := contradiction(tree, model_of(tree))):
        raise ValueError(f"this tree is not a whole fit: {found}; save the tree that inference.fit gave")
    groups = {where: node.to_dataset(inherit=False) for where, node in nodes_of(tree).items()}
    for dataset in groups.values():
        dataset.attrs = {
            name: _storable_text(value) if isinstance(value, str) else value
            for name, value in dataset.attrs.items()
        }
    root = groups["."].attrs
    root.pop(INTEGRITY, None)
    of_root = xr.DataTree.from_dict({"/": groups["."]} | {f"/{k}": v for k, v in groups.items() if k != "."})
    of_values = {"sha256": checksum(of_root, list(groups)), "groups": list(groups)}
    root[CHECKSUM] = json.dumps(of_values)
    declared = sum(
        _num_bytes(variable) for dataset in groups.values() for variable in dataset.variables.values()
    )
    if declared > IN_MEMORY:
        with replacing(path, reserve=declared + declared // 10) as file:
            steady = _Steady(file)
            _write(groups, steady, compressed=True)
            steady.finish()
        return
    content = io.BytesIO()
    _write(groups, content, compressed=True)
    if not may_hold(declared, content.getbuffer().nbytes):  # `load` would take it for a trap
        content = io.BytesIO()
        _write(groups, content, compressed=False)
    with replacing(path) as file:
        file.write(content.getbuffer())


def check_place_of_fit(path: str | os.PathLike) -> None:
    """Raise before a run unless its fit can be saved at ``path``.

    Raises:
        ValueError: nothing can be written there (`check_writable`), or a file is there that is neither empty
            nor a fit.
    """
    check_writable(path)
    path = Path(path)
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        is_fit = file.read(len(HDF5)) == HDF5
        if is_fit:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                is_fit = any(content.find(mark) >= 0 for mark in (b"model_fields", CHECKSUM.encode()))
    if not is_fit:
        raise ValueError(f"{path} is there and is no fit: it would be lost; choose another name")


def _storable_text(text: str) -> str:
    """Text that a file can hold: what is no Unicode, such as half of a pair, becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def _num_bytes(variable: xr.Variable) -> int:
    """Bytes of a variable in a file; of text about as many as it has letters."""
    if variable.dtype.kind in "OT":
        return sum(len(str(value)) + 16 for value in variable.values.ravel())
    return variable.nbytes


def _write(groups: Mapping[str, xr.Dataset], file: Any, compressed: bool) -> None:
    """Write groups, by path, into a file object.

    Not by ``DataTree.to_netcdf``: it opens a path itself, and where that file cannot grow, HDF5 ends the
    interpreter while it closes it.
    """
    with h5netcdf.File(file, "w") as opened:
        for where, dataset in groups.items():
            numbers = (n for n, v in dataset.data_vars.items() if v.ndim and v.dtype.kind in "iufb")
            encoding = {name: {"zlib": True, "complevel": 4} if compressed else {} for name in numbers}
            # what an array was read with, such as its chunks, is of another file
            plain = dataset.drop_encoding()
            store = H5NetCDFStore(opened, group=None if where == "." else where, mode="a")
            plain.dump_to_store(store, encoding=encoding)


class _Steady(io.RawIOBase):
    """A file whose failures HDF5 does not see, for it does not survive them; `finish` raises the first.

    It is as long as what was written, whatever is reserved for it on the disk.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = self._size = 0
        self._error: OSError | None = None

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._at)
        room = memoryview(buffer)[: max(self._size - self._at, 0)]
        found = self._file.read(len(room))
        room[: len(found)] = found
        self._at += len(found)
        return len(found)

    def write(self, data: Any) -> int:
        length = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.seek(self._at)
                self._file.write(data)
            except OSError as error:
                self._error = error
        self._at += length
        self._size = max(self._size, self._at)
        return length

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        return self._size

    def finish(self) -> None:
        """Cut the file to its length; what was reserved beyond is given back."""
        if self._error is not None:
            raise self._error
        self._file.truncate(self._size)


def load(path: str | os.PathLike) -> xr.DataTree:
    """Read a saved fit into memory and close the file.

    Nothing of the file is run, nothing outside it is read, and it cannot make this process take much more
    memory than it has bytes.

    Args:
        path: a file that `save` wrote.

    Returns:
        The fit, as `fit` returned it. One without a checksum, as older versions and xarray write them, has
        the attribute ``integrity``, which says so.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a fit of this library, is damaged, was changed, contradicts its model, or
            is of a later version.

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
    with path.open("rb") as file:  # checked and read through one handle: it cannot be exchanged in between
        try:
            check_layout(file, os.fstat(file.fileno()).st_size)
            tree = _read(file)
        except Exception as error:  # two libraries read it, which raise anything at a damaged file
            raise ValueError(
                f"{path} cannot be read as netCDF ({words_of(error)}): it was cut short or damaged, or is "
                "no fit; copy it again, or fit again"
            ) from None
    tree.attrs = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in tree.attrs.items()
    }
    if "model_fields" not in tree.attrs:
        raise ValueError(
            f"{path} is a netCDF file but not a fit of this library: it does not say which model it is of; "
            "a table is fitted by zoo fit MODEL FILE"
        )
    _check_version(path, str(tree.attrs.get(f"version_{PACKAGE.replace('-', '_')}", "")))
    check_known(str(tree.attrs.get("model", "")))
    is_verified = _verify(tree, path)
    model = model_of(tree)
    found = contradiction(tree, model) or ("" if is_verified else not_finite(tree))
    if found:
        raise ValueError(
            f"{path} contradicts itself: {found}; it was changed or put together: copy it again, or fit again"
        )
    tree.encoding["source"] = str(path)  # a page names the file that it was made from
    return tree


def _read(file: BinaryIO) -> xr.DataTree:
    # groups that were added by other tools may have dims without names
    with xr.open_datatree(file, engine="h5netcdf", phony_dims="access") as opened:
        # `DataTree.load` of xarray leaves out a variable that bears the name of its group, such as
        # log_likelihood/log_likelihood: it stayed bound to the path, and gave the numbers of another fit once
        # that was saved there (xarray 2025.1 to 2026.9)
        for node in opened.subtree:
            for variable in node.variables.values():
                variable.load()
        return opened


def _verify(tree: xr.DataTree, path: Path) -> bool:
    """Compare a fit with its checksum, which is taken off; without one it is marked as not verified."""
    written = tree.attrs.pop(CHECKSUM, None)
    if written is None:
        tree.attrs[INTEGRITY] = (
            "not verified: the file has no checksum (inference.save writes one; older versions and xarray do "
            "not)"
        )
        return False
    try:
        of_values = json.loads(written)
        is_right = of_values["sha256"] == checksum(tree, list(map(str, of_values["groups"])))
    except (ValueError, TypeError, KeyError, RecursionError):
        is_right = False
    if not is_right:
        raise ValueError(
            f"{path} is damaged or was changed since it was saved: its checksum is of other values; copy it "
            f"again, or fit again. If you changed it, remove its attribute {CHECKSUM!r}, or change a loaded "
            "fit and save that"
        )
    return True


def _check_version(path: Path, written: str) -> None:
    """Raise ValueError for a file of another format: a patch (the third number) changes none."""
    found = [re.match(r"(\d+)\.(\d+)", version) for version in (written, zoo.__version__)]
    numbers = [tuple(map(int, one.groups())) for one in found if one is not None]
    if len(numbers) == 2:
        theirs, ours = numbers
        if theirs > ours:
            raise ValueError(
                f"{path} was written by version {written} of this library and this is {zoo.__version__}: "
                f"install {PACKAGE} {written} or later to read it"
            )
        if theirs < _FIRST:
            raise ValueError(
                f"{path} was written by version {written} of this library, whose files are no longer "
                "read: fit again, or read its numbers with xarray.open_datatree"
            )


def check_tree(tree: object) -> None:
    """Raise TypeError unless ``tree`` is a DataTree."""
    if not isinstance(tree, xr.DataTree):
        raise TypeError(
            "tree must be a fit, the DataTree that inference.fit or inference.load gives; got "
            f"{type(tree).__name__}"
        )


def model_of(tree: xr.DataTree) -> Model:
    """The model of a fit, its sizes and data-dependent defaults filled in: ``tree.fit.model``.

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
    return tree.fit.model
