"""``tree.fit``: what a tree says of the fit that it holds.

xarray makes the accessor when it is first asked for and keeps it with the tree; a copy gets its own. The
model is built once for each precision, and again when the fields in the attributes or arrays of the group
``constant_data`` are replaced.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from inference.results.integrity import cut_columns
from inference.results.model_fields import parsed, restore
from zoo import MODELS
from zoo.intake import Columns
from zoo.model import Model
from zoo.roles import Roles


@xr.register_datatree_accessor("fit")
class Fit:
    """A fit, as its tree tells it."""

    def __init__(self, tree: xr.DataTree) -> None:
        """Of a tree.

        Args:
            tree: the root.
        """
        self._tree = tree
        self._models: dict[bool, tuple[tuple, Model]] = {}
        self._kept: dict[Callable, tuple[list, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_tree": self._tree, "_models": {}, "_kept": {}}

    @property
    def model(self) -> Model:
        """The model, its sizes and data-dependent defaults filled in.

        Raises:
            ValueError: the tree is not a fit of this library, or lacks columns that were fitted.
        """
        attrs, wide = self._tree.attrs, bool(jax.config.jax_enable_x64)
        if "model" not in attrs or "model_fields" not in attrs:
            raise ValueError(
                "this tree is not a fit of this library: its root attributes do not describe a model"
            )
        constants = self._tree.children.get("constant_data", xr.DataTree())
        arrays = {str(name): value.data for name, value in constants.data_vars.items()}
        named, made_of = (attrs["model"], attrs["model_fields"], *arrays), list(arrays.values())
        if wide in self._models and attrs["model"] in MODELS:  # which a class may have left
            (names, values), model = self._models[wide]
            if names == named and all(one is other for one, other in zip(values, made_of, strict=True)):
                return model
        if found := cut_columns(self._tree, parsed(attrs["model_fields"])):
            raise ValueError(f"this tree is not a whole fit: {found}; take the one that inference.fit gave")
        model = restore(attrs["model"], attrs["model_fields"], arrays)
        self._models[wide] = (named, made_of), model
        return model

    def share(self, other: xr.DataTree) -> xr.DataTree:
        """Let another tree of the same fit have the models that were built for this one; returns it."""
        other.fit._models = dict(self._models)
        return other

    def kept[Found](self, make: Callable[[xr.DataTree], Found]) -> Found:
        """``make(tree)``, made once, and again when an array of the draws or of q is replaced."""
        groups = [self._tree[name] for name in ("posterior", "variational") if name in self._tree.children]
        made_of = [variable.data for group in groups for variable in group.data_vars.values()]
        if make in self._kept:
            held, found = self._kept[make]
            if len(held) == len(made_of) and all(map(operator.is_, held, made_of)):
                return found
        found = make(self._tree)
        self._kept[make] = made_of, found
        return found

    @property
    def method(self) -> str:
        """The name of the method that made the fit."""
        return str(self._tree.attrs["method"])

    @property
    def roles(self) -> Roles:
        """Which variable plays which part."""
        return self.model.roles

    @property
    def columns(self) -> tuple[Columns | None, ...]:
        """What the columns of each part of the fitted data hold; None of a part that was no table."""
        names = self.model.data_names
        if "columns" not in self._tree.children:
            return (None,) * len(names)
        group = self._tree["columns"]
        return tuple(
            Columns.from_text([str(entry) for entry in group[name].to_numpy()]) if name in group else None
            for name in names
        )

    def values(self, group: str) -> dict[str, np.ndarray]:
        """The variables of a group.

        Returns:
            Name to array, dims as in the group.

        Raises:
            KeyError: the fit has no such group.
        """
        return {str(name): value.to_numpy() for name, value in self._tree[group].data_vars.items()}
