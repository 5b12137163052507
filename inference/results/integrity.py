"""Whether a file may be read, and whether what was read is what was saved.

Three questions, asked in this order. Of the file before anything of it is read into memory: does it hold
plain groups and arrays of bounded size, and lead nowhere else (`zoo.intake.bounds`)? Of the tree: are its
values those of the checksum that `inference.save` wrote (`checksum`)? And of tree and model together: does
the tree have the sizes that the model declares (`contradiction`), and numbers in its posterior
(`not_finite`)?
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray as xr

from zoo.model import Model

CHECKSUM = "zoo_checksum"  # attribute of a file: the SHA-256 and the groups that it is of
_SIZED = ("posterior", "variational")  # groups whose dims a model declares
INTEGRITY = "integrity"  # attribute of a fit that was read from a file without one


def nodes_of(tree: xr.DataTree) -> dict[str, xr.DataTree]:
    """The groups of a tree by their paths in it, ``"."`` being the tree itself."""
    return {node.relative_to(tree): node for node in tree.subtree}


def checksum(tree: xr.DataTree, paths: Sequence[str]) -> str:
    """The SHA-256 of everything that some groups hold: names, dims, attributes and values.

    Args:
        tree: a fit.
        paths: of the groups; one that the tree does not have counts as empty.
    """
    digest = hashlib.sha256()
    there = nodes_of(tree)
    for path in sorted(paths):
        dataset = there[path].to_dataset(inherit=False) if path in there else xr.Dataset()
        _add_words(digest, path, _plain(dataset.attrs))
        for name in sorted(map(str, dataset.variables)):
            variable = dataset.variables[name]
            _add_words(digest, name, variable.dims, variable.shape, _plain(variable.attrs))
            _add_values(digest, np.asarray(variable.values))
    return digest.hexdigest()


def _add_words(digest: Any, *words: Any) -> None:
    digest.update(json.dumps(words).encode() + b"\n")


def _plain(attrs: Any) -> dict[str, list]:
    """Attributes as a file gives them back: a list of one is a number there."""
    kept = {str(k): np.atleast_1d(np.asarray(v)) for k, v in attrs.items() if k not in (CHECKSUM, INTEGRITY)}
    return {
        name: [str(v) if isinstance(v, bytes) else v for v in kept[name].tolist()] for name in sorted(kept)
    }


def _add_values(digest: Any, values: np.ndarray) -> None:
    if values.dtype.kind in "fc":
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        unknown = np.isnan(values)
        if unknown.any():  # of the many bit patterns of NaN a file gives back one
            values = np.where(unknown, np.asarray(np.nan, values.dtype), values)
    elif values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[ns]")
    elif values.dtype.kind not in "iub":
        _add_words(digest, "text", list(map(str, values.ravel().tolist())))
        return
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)
    _add_words(digest, values.dtype.str)
    digest.update(np.ascontiguousarray(values))


def contradiction(tree: xr.DataTree, model: Model) -> str:
    """Where a fit does not have the sizes that its model declares.

    Returns:
        What was found, in a clause; empty where all is well.
    """
    if (method := tree.attrs.get("method")) not in (None, *model.methods):
        return f"its method is {method!r}, which {type(model).__name__} does not have"
    if found := other_sizes(tree, model):
        return found
    for group in _SIZED:
        if group not in tree.children:
            continue
        dataset = tree.children[group].to_dataset(inherit=False)
        leading = ("chain", "draw") if group == "posterior" else ()
        for name, variable in dataset.data_vars.items():
            dims = model.variable_dims.get(str(name))
            own = tuple(map(str, variable.dims))
            # what is the same for every row lacks the rows' dim
            if dims is not None and own not in {(*leading, *dims[begin:]) for begin in range(len(dims) + 1)}:
                return (
                    f"{name} of its group {group!r} has the dims {', '.join(own)} and must "
                    f"have {', '.join((*leading, *dims))}"
                )
    return ""


def cut_columns(tree: xr.DataTree, fields: Mapping[str, Any]) -> str:
    """Where a fit lacks columns that the fields of its model declare, or one of the two axes of a matrix."""
    return other_sizes(tree, SimpleNamespace(**{k: v for k, v in fields.items() if "num_feature" in k}))


def other_sizes(tree: xr.DataTree, fields: object) -> str:
    """Where a dim has another size than a model, or the fields of one as attributes, declares; or nothing."""
    for group in _SIZED:
        sizes = tree.children[group].sizes if group in tree.children else {}
        for dim, size in sizes.items():
            first = str(dim).removesuffix("_2")
            if first not in sizes:
                continue  # the third group of columns, and no second axis
            declared = _declared_size(fields, str(dim))
            if declared is not None and declared != size:
                return f"its model has {declared} of the dim {dim!r} and its group {group!r} has {size}"
            if sizes[first] != size:
                return f"its group {group!r} has {sizes[first]} of the dim {first!r} and {size} of {dim!r}"
    return ""


def _declared_size(model: object, dim: str) -> int | None:
    """The size of a dim that the model's fields give: ``num_components`` of ``component``."""
    stem, _, number = dim.removesuffix("_2").partition("_")
    size = getattr(model, f"num_{stem}s", None)
    if isinstance(size, tuple | list):
        size = size[int(number)] if number.isdigit() and int(number) < len(size) else None
    elif number:
        return None
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def not_finite(tree: xr.DataTree) -> str:
    """The variable of the posterior that holds something else than finite numbers, in a clause."""
    if "posterior" in tree.children:
        for name, variable in tree["posterior"].data_vars.items():
            if variable.dtype.kind == "f" and not np.isfinite(variable.values).all():
                return f"{name} of its group 'posterior' is not finite"
    return ""
