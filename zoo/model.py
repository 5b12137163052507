"""The base class of models: a frozen dataclass that is a JAX pytree and a NumPyro program.

A field is either a *hyperparameter* (an array, a NumPyro distribution as a hyperprior, or another
`Assumptions`), which travels through ``jit`` and ``vmap`` as a pytree leaf, or *static* (a size, a name, a
switch; see `zoo.fields`), which is part of the program's identity. Values are checked once, by the
constructor; JAX rebuilds an object from its leaves without the constructor, so a check never sees a tracer.
Numbers are held as float64 NumPy arrays and converted where they are used (`in_current_precision`).

This module also completes the import of NumPyro. ArviZ 1.x leaves ``numpyro`` in ``sys.modules`` as a lazy
stub; ``import numpyro.distributions`` on the stub loads that package twice, and the second copy lacks its
submodules as attributes, on which NumPyro's samplers rely. Attaching them again is harmless when nothing is
missing.
"""

import copy
import dataclasses
import html
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Distribution

from zoo.answers import Answers, asked, started
from zoo.checks import check_single_concentration, shown
from zoo.coordinates import Coordinates, Freedom, Unit, by_part, freedom_of
from zoo.fields import Part, facts_of, read_off
from zoo.intake import ANY, NUMBERS, Columns, OfTables, Table
from zoo.intake.tables import as_cells, check_fit, check_latents, check_rows_of
from zoo.naming import did_you_mean
from zoo.programs import log_rows, run
from zoo.roles import Roles
from zoo.sparse import is_sparse

__all__ = [
    "ANY",
    "NUMBERS",
    "Assumptions",
    "Model",
    "Roles",
    "Table",
    "TypicalCells",
    "as_hyperparameter",
    "attach_submodules",
    "in_current_precision",
]

_OF_PROGRAM = {"static": True}


def in_current_precision(tree: Any) -> Any:
    """Convert NumPy leaves of a pytree to JAX arrays in the caller's precision; traced leaves stay.

    Programs and guides call this on what they hold. A NumPy array is copied on purpose: JAX remembers the
    converted constant by the identity of the array, and would hand 64-bit numbers out of a 64-bit context
    into a 32-bit one. The copy has the precision wanted, so that a large table is not copied twice.

    Args:
        tree: any pytree.

    Returns:
        The same pytree; shapes are as they were.
    """

    def converted(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            # device_put, since asarray copies a second time
            return jax.device_put(leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)))
        return jnp.asarray(leaf)

    return jax.tree.map(converted, tree)


def attach_submodules() -> None:
    """Make every loaded submodule of NumPyro an attribute of its package, as the import system does."""
    numpyro.distributions  # noqa: B018  (touching an attribute is what loads a stub)
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent.split(".")[0] == "numpyro" and not hasattr(sys.modules[parent], child):
            setattr(sys.modules[parent], child, module)


attach_submodules()


@dataclasses.dataclass(frozen=True, eq=False)
class Assumptions:
    """A frozen dataclass of hyperparameters, registered as a pytree; equality and hash are identity.

    Subclasses are decorated with ``@dataclass(frozen=True, eq=False)`` and may define `validate`.
    """

    def __init_subclass__(cls) -> None:
        """Register the subclass as a pytree, whose fields are read after the dataclass decorator has run."""
        jax.tree_util.register_pytree_with_keys(
            cls, cls._flatten_with_keys, cls._unflatten, flatten_func=cls._flatten
        )

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Refuse a field that there is not, and name those that there are."""
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        for name in fields:
            if name not in known:
                has = f"it has: {', '.join(known)}{did_you_mean(name, known)}"
                raise TypeError(f"{cls.__name__} has no field {name!r}; {has}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Store hyperparameters as float64 NumPy arrays, set what follows from others, and check all."""
        fields = dataclasses.fields(self)
        for field in fields:
            value = getattr(self, field.name)
            if field.init:
                _check_kind(field, value)
            if value is not None and "convert" in field.metadata:
                self._set(field.name, field.metadata["convert"](value))
            if field.metadata.get("static"):
                if isinstance(value, np.integer):  # which a file cannot hold
                    self._set(field.name, int(value))
                self._check_field(field)
        for field in fields:
            if getattr(self, field.name) is None and "otherwise" in field.metadata:
                self._set(field.name, field.metadata["otherwise"](self))
        for name in self.leaf_names():
            self._set(name, as_hyperparameter(name, getattr(self, name)))
        if self.is_filled:
            for field in fields:
                if not field.metadata.get("static"):
                    self._check_field(field)
            self.validate()
        for name in self.leaf_names():
            leaves = jax.tree.leaves(getattr(self, name))
            if any(isinstance(leaf, np.ndarray) and np.isnan(leaf).any() for leaf in leaves):
                raise ValueError(f"{name} must not be NaN, nor hold one")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_field(self, field: dataclasses.Field) -> None:
        value = getattr(self, field.name)
        if value is not None and "check" in field.metadata:
            field.metadata["check"](field.name, value, self)

    def validate(self) -> None:
        """Raise ValueError or TypeError if fields do not go together, each of which is in its domain."""

    @property
    def field_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Fields that are arrays with named dims, to these."""
        return facts_of(self, "dims")

    @property
    def units_of_fields(self) -> Mapping[str, Unit | tuple[Unit, ...]]:
        """Hyperparameters to how they follow the data's origin and scale; others do not.

        One that holds numbers of all parts of the data has a unit for each, see `Model.field_by_part`.
        """
        return facts_of(self, "unit")

    @property
    def concentration_fields(self) -> tuple[str, ...]:
        """Fields whose log-gamma functions the objective takes."""
        return tuple(facts_of(self, "is_concentration"))

    unstored: ClassVar[tuple[str, ...]] = ()  # fields that follow from the data and are not kept with a fit

    @property
    def is_filled(self) -> bool:
        """Whether nothing that others are checked against is still to be read off the data."""
        return True

    @classmethod
    def leaf_names(cls) -> tuple[str, ...]:
        """Names of the hyperparameters: the fields that are pytree leaves (or subtrees).

        Returns:
            Names, in the order of the fields.
        """
        return _names(cls)[0]

    @classmethod
    def static_names(cls) -> tuple[str, ...]:
        """Names of the static fields.

        Returns:
            Names, in the order of the fields.
        """
        return _names(cls)[1]

    def replaced(self, **fields: Any) -> Self:
        """A copy with some fields replaced without checks, by computed (posteriors) or traced values.

        Args:
            **fields: new values by name.

        Returns:
            The copy.

        Raises:
            TypeError: no such field.
        """
        new = copy.copy(self)
        for name, value in fields.items():
            if name not in {f.name for f in dataclasses.fields(self)}:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            object.__setattr__(new, name, value)
        return new

    def _flatten(self) -> tuple[tuple, tuple]:
        leaves, fixed = self.leaf_names(), self.static_names()
        return tuple(getattr(self, n) for n in leaves), tuple(getattr(self, n) for n in fixed)

    def _flatten_with_keys(self) -> tuple[tuple, tuple]:
        leaves, fixed = self._flatten()
        return tuple(zip(map(jax.tree_util.GetAttrKey, self.leaf_names()), leaves, strict=True)), fixed

    @classmethod
    def _unflatten(cls, fixed: Iterable[Any], leaves: Iterable[Any]) -> Self:
        new = object.__new__(cls)
        for names, values in ((cls.leaf_names(), leaves), (cls.static_names(), fixed)):
            for name, value in zip(names, values, strict=True):
                object.__setattr__(new, name, value)
        return new


_NAMES: dict[type, tuple[tuple[str, ...], ...]] = {}


def _names(cls: type[Assumptions]) -> tuple[tuple[str, ...], ...]:
    """Names of leaves and of static fields, asked for whenever an argument of a program is taken apart."""
    if cls not in _NAMES:
        kinds = {f.name: bool(f.metadata.get("static")) for f in dataclasses.fields(cls)}
        _NAMES[cls] = tuple(
            tuple(name for name, own in kinds.items() if own == kind) for kind in (False, True)
        )
    return _NAMES[cls]


class TypicalCells(NamedTuple):
    """Typical cells of every cluster in some columns, in the units of the data.

    Attributes:
        quantity: what the values are, such as ``"mean"`` or ``"probability of 1"``.
        columns: positions of the columns in the first part of the data, shape (num_columns,).
        values: shape (..., num_clusters, num_columns).
        spread: standard deviation of cells within a cluster, the same shape; None: the quantity has none.
        of_logs: whether values and spread are of the logarithms of cells, whose exponentials are read. Draws
            are averaged before: the mean of a cell with a Gaussian logarithm need not exist in the posterior.
    """

    quantity: str
    columns: np.ndarray
    values: Any
    spread: Any
    of_logs: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Model(Assumptions):
    """A probabilistic model, which is called as a NumPyro program.

    ``model(*data)`` conditions on data, local latents that can be integrated exactly summed out;
    ``model(num_observations=n)`` draws from the prior predictive with them drawn; ``model.explicit`` is the
    same model with them drawn in both cases.

    Class attributes are plain literals, so that the command line can read them without importing anything.

    Attributes:
        data: the parts of the data, in the order of the call, and what each takes.
        data_names: names of the data sites, as the other facts about data read off `data`.
        family_field: the field that holds families of cells or of components, which the columns of a table
            may choose; None: there is none.
        dims: variable name to the names of its dims, rows first; a name that repeats by view is written once
            with a star.
        symmetries: which of ``"labels"``, ``"rotation"``, ``"sign"`` leave the posterior unchanged.
        roles: which variables play which part, for summaries, plots and reports.
        methods: the ways to fit it; ``method="auto"`` means the first that suits the model and its data.
        scores_rows: whether it has a log density of each row (`log_likelihood`).
        projects_by_draws: whether `scores` needs no more than a draw.
        sums_out_locals: whether the density of a row has its latents integrated out.
        weighs_rows: whether its program, called with data, is a product over rows given the parameters, with
            all that belongs to a row summed out, so that a power of a row's density weighs the row.
        estimates_density: whether `inference.log_density` estimates by draws that depend on a row's place.
        num_needed: how many parts of data new rows must bring.
        kept_locals: local latents that the program draws, because they cannot be summed out exactly, though
            `log_likelihood` has them integrated out.
        needs_fitted_rows: whether new rows are judged by the fitted ones, beside the parameters.
        local_sites: latents of single rows that the program draws and a fit may leave out for their size.
        takes_documents: whether its data are documents: counts, or strings whose words are counted.
        takes_sparse: whether its rows may be a sparse matrix.
        label_parts: parts of the data whose words are class labels, which `encoded` reads.
        proper_with: of a model with a `program` whose prior may be improper, the fields with which it is
            proper.
        answers: its closed forms.
    """

    data: ClassVar[tuple[Table, ...]] = (Table("x"),)
    data_names = OfTables(lambda tables: tuple(table.name for table in tables))
    num_needed = OfTables(lambda tables: max(1, sum(not table.optional for table in tables)))
    takes_documents = OfTables(lambda tables: any("documents" in table.cells for table in tables))
    takes_sparse = OfTables(lambda tables: any(table.sparse is not None for table in tables))
    label_parts = OfTables(lambda tables: tuple(t.name for t in tables if "class_labels" in t.cells))
    family_field: ClassVar[str | None] = None
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    symmetries: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[Roles] = Roles()
    methods: ClassVar[tuple[str, ...]] = ()
    scores_rows: ClassVar[bool] = True
    projects_by_draws: ClassVar[bool] = True
    sums_out_locals: ClassVar[bool] = True
    weighs_rows: ClassVar[bool] = False
    estimates_density: ClassVar[bool] = False
    needs_fitted_rows: ClassVar[bool] = False

    kept_locals: ClassVar[tuple[str, ...]] = ()
    local_sites: ClassVar[tuple[str, ...]] = ()

    proper_with: ClassVar[str] = ""
    answers: ClassVar[type[Answers]] = Answers

    draw_locals: bool = dataclasses.field(default=False, init=False, repr=False, metadata=_OF_PROGRAM)
    has_steep_cells: bool = dataclasses.field(default=False, init=False, repr=False, metadata=_OF_PROGRAM)

    def __call__(self, *data: Any, num_observations: int | None = None) -> Any:
        """The NumPyro program of the model.

        Args:
            *data: to condition on, rows first.
            num_observations: rows to draw where there are no data.

        Returns:
            The data, or the draws in their place.

        Raises:
            TypeError: the model does not define one.
        """
        if type(self).program is Model.program:
            raise TypeError(f"{type(self).__name__} defines no program")
        self.require(*self.units_of_fields)
        return run(in_current_precision(self), data, num_observations)

    def program(self, *parts: Any, rows: numpyro.plate) -> Any:
        """The NumPyro program, which `zoo.programs.run` runs, in the coordinates in which it is stated.

        Args:
            *parts: of the data, in the model's order; None: drawn.
            rows: the plate of the rows.

        Returns:
            The rows; of several parts a tuple.

        Raises:
            NotImplementedError: the model has a ``__call__`` of its own.
        """
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """A card for notebooks: what is assumed, the fields, and the ways to fit it."""
        title = (type(self).__doc__ or type(self).__name__).strip().partition("\n")[0]
        prior = {
            "proper": "proper: it draws data without any",
            "unnormalised": "unnormalised: a factor multiplies it",
            "improper": "improper: it draws nothing without data",
        }[self.prior]
        rows = [
            (field.name, _short_html(getattr(self, field.name)))
            for field in dataclasses.fields(self)
            if field.init
        ]
        rows += [("prior", prior), ("unchanged under", ", ".join(self.exact_symmetries) or "nothing")]
        rows.append(("methods", ", ".join(self.methods) or "registered ones"))
        cells = "".join(
            f'<tr><th scope="row" style="text-align:left;padding-right:1em">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in rows
        )
        name = html.escape(type(self).__name__)
        return f"<div><p><strong>{name}</strong> {html.escape(title)}</p><table>{cells}</table></div>"

    @property
    def explicit(self) -> Self:
        """The same model with its local latents drawn instead of summed out."""
        return self.replaced(draw_locals=True)

    def resolving(self, variables: Mapping[str, Any]) -> Self:
        """The same model, which integrates over latents finely enough for cells that change steeply.

        Args:
            variables: of a fit, estimates or draws with any leading axes.

        Returns:
            The model; itself where its integrals need no such care.
        """
        return self

    @property
    def prior(self) -> str:
        """Kind of the prior: ``"proper"``, ``"unnormalised"`` (a factor multiplies it) or ``"improper"``."""
        return "proper"

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Variable name to its dims: ``dims`` and those of nested priors."""
        return self.dims

    def count_sizes(self, *data: Any) -> tuple[np.ndarray | None, ...]:
        """How large the counts are, whose log factorials the model takes.

        Args:
            *data: parts of the data, in the model's order.

        Returns:
            For each part the largest count, or number of trials, of each column, shape (its columns,), 0
                where cells are no counts; None: the part has no counts.
        """
        pairs = zip(self.part_families, data, strict=False)
        return tuple(None if family is None else family.count_sizes(x) for family, x in pairs)

    def check_precision(self, dtype: str, *data: Any) -> None:
        """Raise ValueError if the precision cannot hold what the model makes of the data.

        Args:
            dtype: ``"float64"`` or ``"float32"``.
            *data: parts of the data, in the model's order.
        """
        for name in self.concentration_fields:
            value = getattr(self, name)
            if value is not None and not isinstance(value, Distribution):
                check_single_concentration(name, value, dtype)

    def check_resolved(
        self, values: Mapping[str, np.ndarray], num_rows: int, dtype: str, x: Any = None
    ) -> None:
        """Raise FloatingPointError if rounding has spoilt a fit, warn if it has blurred it.

        Args:
            values: draws (or the estimate) of the sites.
            num_rows: rows of the data.
            dtype: the precision of the fit.
            x: the rows themselves, whose columns have names in messages.
        """

    @property
    def gaussian_sites(self) -> tuple[str, ...]:
        """Weights, means and covariances of the clusters, where these are Gaussian; else empty."""
        return ()

    @property
    def cell_families(self) -> tuple[Any, ...]:
        """The exponential family of the cells of each part of the data; empty: no such families."""
        return ()

    @classmethod
    def sizes_for(cls, num_rows: int, widths: Sequence[int]) -> dict[str, Any]:
        """Numbers of latents for a comparison: two, or one where rows or columns are too few.

        Args:
            num_rows: of the data.
            widths: numbers of columns of the parts of the data.

        Returns:
            Field name to value.
        """
        has_latents = "num_latents" in cls.static_names()
        return {"num_latents": max(1, min(2, widths[0] - 1, num_rows - 1))} if has_latents else {}

    @property
    def part_families(self) -> tuple[Any, ...]:
        """What says which cells each part of the data may have: a family, or None."""
        return self.cell_families or (None,) * len(self.data)

    @property
    def units_of_sites(self) -> Mapping[str, Unit]:
        """Parts of the data and sites to how they follow the data's origin and scale; others do not.

        A model that names any is fitted in coordinates of its data (`zoo.coordinates`); its program knows of
        none. Empty: the model is fitted to the data as they are.
        """
        return {}

    @property
    def coordinate_freedom(self) -> tuple[Freedom | None, ...]:
        """For each part of the data the coordinates in which the model can be written; None: its own."""
        return freedom_of({**self.units_of_fields, **self.units_of_sites}, self.data_names)

    def expressed(self, turn: Callable[[Any, Unit], Any]) -> Self:
        """The same model of data in other coordinates.

        Args:
            turn: what becomes of a field with a unit: `zoo.coordinates.Coordinates.inward` or ``outward``.

        Returns:
            The model.
        """
        names = [name for name in self.units_of_fields if getattr(self, name) is not None]
        return self.replaced(**{name: self._turned(name, turn) for name in names})

    def _turned(self, name: str, turn: Callable[[Any, Unit], Any]) -> Any:
        """A field with a unit in other coordinates."""
        value, unit = getattr(self, name), self.units_of_fields[name]
        if isinstance(unit, Unit):
            return turn(value, unit)
        numbers = jnp if isinstance(value, jax.Array) else np
        sizes = (size if own.axes else 1 for size, own in zip(self.part_sizes, unit, strict=True))
        parts = zip(self.field_by_part(name), unit, sizes, strict=True)
        return numbers.concatenate([numbers.broadcast_to(turn(v, own), (n,)) for v, own, n in parts])

    def field_by_part(self, name: str) -> list[Any]:
        """What a hyperparameter holds of each part of the data.

        Args:
            name: of the field, which has a unit for each part.

        Returns:
            For each part a number, or one for each of its columns.
        """
        return by_part(getattr(self, name), self.units_of_fields[name], self.part_sizes)

    @classmethod
    def size_fields(cls) -> tuple[str, ...]:
        """The fields with the numbers of columns of the parts of the data: one for each, or for all views.

        Returns:
            Their names.
        """
        return tuple(f"num_{cls.dims[table.name][-1].removesuffix('_*')}s" for table in cls.data)

    @property
    def scale_fields(self) -> tuple[str, ...]:
        """The fields with the deviations of the columns of the parts of the data: one for each."""
        return tuple(facts_of(self, "scales"))

    @property
    def coordinate_fields(self) -> Mapping[str, Any]:
        """Fields that tell `own_coordinates`, to what they are in a model of data in these."""
        units = self.units_of_fields
        fields = [own for own in dataclasses.fields(self) if own.name in units or "unit" not in own.metadata]
        return {field.name: field.metadata["inside"] for field in fields if "inside" in field.metadata}

    @property
    def part_sizes(self) -> tuple[int | None, ...]:
        """For each part of the data the number of its columns; None: it is not known."""
        known = self.static_names()
        sizes = tuple(getattr(self, name) if name in known else None for name in self.size_fields())
        return sizes if self.tables is self.data else sizes[0] or (None,) * len(self.tables)

    @classmethod
    def sizes_of(cls, parts: Sequence[Any]) -> dict[str, Any]:
        """The fields with sizes that parts of the data tell.

        Args:
            parts: of the data, None where one is not given; of several with one name all must be.

        Returns:
            Field name to value.
        """
        if "*" in cls.data[0].name:
            is_whole = all(part is not None for part in parts)
            return {cls.size_fields()[0]: tuple(np.shape(part)[-1] for part in parts)} if is_whole else {}
        pairs, known = zip(cls.size_fields(), parts, strict=False), cls.static_names()
        return {n: np.shape(part)[-1] for n, part in pairs if part is not None and n in known}

    @property
    def has_own_coordinates(self) -> bool:
        """Whether the program is stated in coordinates of its own, see `own_coordinates`."""
        return getattr(self, "standardize", False) and bool(self.units_of_sites)

    @property
    def own_coordinates(self) -> Coordinates | None:
        """The coordinates in which the program is stated, where these are not those of the data.

        A model with units whose field ``standardize`` is true is stated in the columns' deviations, its
        `scale_fields`: quantities without an axis over columns have no unit then. Another model that is
        stated about an origin or in a common scale says so here and in `has_own_coordinates`.
        """
        if not self.has_own_coordinates:
            return None
        self.require(*self.scale_fields)
        return Coordinates(
            (None,) * len(self.scale_fields), tuple(getattr(self, name) for name in self.scale_fields)
        )

    def inside(self, own: Coordinates) -> Self:
        """The model of data in coordinates, and stated in these.

        Args:
            own: `own_coordinates`, with any origin where they have none, or others where the model has none.

        Returns:
            The model.
        """
        return self.expressed(own.inward).replaced(**self.coordinate_fields)

    @property
    def part_weights(self) -> Mapping[str, Any]:
        """Parts of the data to the weight of their log densities in the program, where it is not one."""
        return {}

    @property
    def row_width(self) -> int:
        """The components, topics or latents that the density of a row is summed over."""
        names = ("num_components", "num_topics", "num_latents")
        return max([1, *(int(getattr(self, name, None) or 1) for name in names)])

    @property
    def truncation(self) -> int | None:
        """Number of clusters at which an infinite prior is cut; None: their number is part of the model."""
        return None

    def leaves_some_empty(self, num_rows: float) -> bool:
        """Whether rows in all components would surprise, which says that there may be more clusters.

        Args:
            num_rows: how many rows there are.

        Returns:
            Whether the prior would leave some component empty.
        """
        return False

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """Those of `symmetries` that leave the posterior unchanged with the present fields: by default all.

        Under the others chains are compared and draws aligned all the same.
        """
        return tuple(self.symmetries)

    @property
    def has_several_modes(self) -> bool:
        """Whether the joint density is known to have several modes of different height at these priors."""
        return False

    def predicted_part(self, what: str | None) -> str | None:
        """The part of the data that holds the cells which `predicted` returns.

        Args:
            what: one of `completions`, or None where there is only one quantity.

        Returns:
            One of ``data_names``; None: the quantity is no cell.
        """
        return what if what in self.data_names else self.data_names[0]

    def completed_part(self, what: str | None) -> str | None:
        """The part of the data whose missing cells `predicted` fills in, its observed ones as they are.

        Args:
            what: as of `predicted_part`.

        Returns:
            One of ``data_names``; None: what is returned says something of complete rows too.
        """
        if what in self.data_names:
            return what
        first = self.data_names[0]
        of_cells = what is None and self.variable_dims.get(first) == self.roles.predicted
        return first if of_cells or what == "cells" else None

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """Suffix of a noise variance to its factor in each row of the loadings; left out: 1."""
        own, units = self.own_coordinates, self.units_of_sites
        if own is None:
            return {}
        found = {suffix: units[site] for site, suffix in self.roles.loadings.items() if site in units}
        if self.roles.subspaces:  # whose scales have no axis over the columns
            found[""] = units[self.data_names[0]]
        return {
            suffix: own.factor(Unit(2, (-1,), part=unit.part, columns=unit.columns))
            for suffix, unit in found.items()
            if (scale := own.scales[unit.part]) is not None and scale.ndim
        }

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """For each part of the data whether all its columns have one noise variance; empty: none has.

        Columns in very different units then are not fitted alike: the noise is that of the largest ones.
        """
        units = self.units_of_sites.items()
        shared = {
            own.part
            for name, own in units
            if (
                name.startswith(("noise_variance", "precisions"))
                and own.power
                and not own.axes
                and own.columns is None
            )
            or (name in self.data_names and not own.power)  # whose scale is that of a known noise
        }
        return tuple(number in shared for number in range(len(self.data_names))) if units else ()

    @property
    def scale_remedy(self) -> str:
        """What to do where columns of very different scales share one noise variance."""
        if "standardize" in self.static_names():
            return "give standardize=True"
        return "divide the columns by their standard deviations"

    @property
    def unit_noise_parts(self) -> tuple[bool, ...]:
        """For each part of the data whether its noise is known to have variance 1; empty: none has."""
        return ()

    @property
    def cell_units(self) -> tuple[str, ...]:
        """For each part of the data ``"none"`` (counts, classes), ``"scale"`` or ``"location_scale"``.

        A cell with a scale may be in any unit; one with a location may be counted from any origin.
        """
        units = (self.units_of_sites.get(name) for name in self.data_names)
        kinds = {None: "none", False: "scale", True: "location_scale"}
        return tuple(kinds[unit and unit.is_location] for unit in units)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The parts of the data by their names: as declared, a starred one once for each family."""
        (first, *others), stars = self.data, range(len(self.part_families))
        if "*" not in first.name:
            return self.data
        return (*(first._replace(name=first.name.replace("*", str(v))) for v in stars), *others)

    @property
    def takes_missing(self) -> bool:
        """Whether cells of the (first part of the) data may be missing; kernels are of whole rows."""
        (family, *_), (table, *_) = self.part_families, self.data
        return bool(table.missing) and not self.needs_fitted_rows and (family is None or family.takes_missing)

    @property
    def takes_sparse_counts(self) -> bool:
        """Whether rows may be `zoo.SparseCounts`."""
        (family, *_), (table, *_) = self.part_families, self.data
        return table.sparse == "counts" and (family is None or family.takes_sparse)

    @property
    def predicts_cells(self) -> bool:
        """Whether `predicted` is defined."""
        return self.answers.cells is not Answers.cells or type(self).predicted is not Model.predicted

    @property
    def num_canonical(self) -> int:
        """Number of canonical correlations between two views; 0: the model is not of two views."""
        return 0

    def view_covariances(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Covariances of two views that share ``num_shared`` latents, for their canonical correlations.

        Args:
            values: of one draw, shapes as in ``dims``.

        Returns:
            Covariance of the first view, of the first with the second, of the second; shapes (D_0, D_0),
            (D_0, D_1), (D_1, D_1) for D_v features.

        Raises:
            ValueError: the model is not of two views.
        """
        raise ValueError(
            f"canonical correlations are of zoo.Paired with two views; got {type(self).__name__.lower()!r}"
        )

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model and its data, sparse ones and class labels as the model takes them.

        Args:
            *data: parts of the data as they were passed.

        Returns:
            The model that knows its labels, and the parts as tables of numbers.

        Raises:
            TypeError: a sparse matrix that the model does not take.
        """
        return self, tuple(
            as_cells(self, place, part) if is_sparse(part) and table.sparse != "counts" else part
            for place, (table, part) in enumerate(zip(self.tables, data, strict=False))
        )

    def for_data(self, *data: Any) -> Self:
        """The model that knows what its program must know of data before it is traced; by default itself.

        Args:
            *data: parts of the data as arrays, in the model's order.

        Returns:
            The model.
        """
        return self

    def dim_labels(
        self, coords: Mapping[str, Sequence[Any]], columns: Sequence[Columns | None] = ()
    ) -> dict[str, Sequence[Any]]:
        """Labels of dims that are no rows or columns of the data, such as levels and groups of columns.

        Args:
            coords: labels of rows and columns, by dim.
            columns: of each part of the data; None of a part that is an array.

        Returns:
            Dim to labels, of the families that add any.
        """
        labels: dict[str, Sequence[Any]] = {}
        for name, family, own in zip_longest(self.data_names, self.part_families, columns):
            if family is None:
                continue
            dim = self.variable_dims[name][-1]
            levels = {} if own is None else {column.name: column.levels for column in own.kept}
            of_family = family.labels_of(coords.get(dim), levels)
            labels |= {key + dim.removeprefix("feature"): held for key, held in of_family.items()}
        return labels

    @classmethod
    def from_data(cls, *data: Any, **overrides: Any) -> Self:
        """The model with its sizes read off the data and its data-dependent defaults filled in.

        Args:
            *data: parts of the data, in the model's order.
            **overrides: fields that are given.

        Returns:
            The model, none of its fields None but those that may stay so.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        weight = given.pop("sample_weight", None) if cls.weighs_rows else None
        return cls(**given).with_sizes_from(*data, sample_weight=weight)

    def with_sizes_from(self, *data: Any, sample_weight: Any = None) -> Self:
        """The model with the fields that are None read off the data by `from_data`; itself where none is.

        Args:
            *data: parts of the data, in the model's order.
            sample_weight: weight of each row, shape (num_observations,), for a model that `weighs_rows`; a
                row of weight w counts as w rows. None: one.

        Returns:
            The model with its sizes.
        """
        places = enumerate(zip(self.data_names, data, strict=False))
        parts = [Part(as_cells(self, place, x), name, sample_weight) for place, (name, x) in places]
        sizes = self.sizes_of([part.rows for part in parts])
        read = {name: size for name, size in sizes.items() if getattr(self, name) is None}
        read |= read_off(self.replaced(**read), parts)
        model = self.replaced(**read)
        if model.own_coordinates is not None:
            told = read.keys() & model.units_of_fields.keys() - model.coordinate_fields.keys()
            read |= {name: model._turned(name, model.own_coordinates.outward) for name in told}
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
        return type(self)(**given | read) if read else self

    def require(self, *names: str) -> None:
        """Raise ValueError if a field that `from_data` reads off the data is not set.

        Args:
            *names: of the fields.

        Raises:
            ValueError: one of them is None.
        """
        for name in names:
            if getattr(self, name) is None:
                raise ValueError(
                    f"{name} is not set: give it, or make the model with "
                    f"{type(self).__name__}.from_data({', '.join(self.data_names)})"
                )

    def rows_to_draw(self, num_observations: int | None, *sizes: str, reason: str = "") -> int:
        """The number of rows of a draw from the prior predictive.

        Args:
            num_observations: as the program was called.
            *sizes: fields that a draw needs.
            reason: why there is nothing to draw from where `prior` is not ``"proper"``, and the remedy.

        Returns:
            ``num_observations``.

        Raises:
            ValueError: a size or the number is missing, or there is nothing to draw from.
        """
        self.require(*sizes)
        if self.prior != "proper":
            raise ValueError(reason)
        if num_observations is None:
            given = " and ".join(self.data_names)
            raise ValueError(f"give {given} to condition on, or num_observations to draw")
        return num_observations

    def continuing(self, former: Self) -> Self:
        """The model for a fit that continues a former one.

        Fields that are not given, and that the former fit read off its rows, are taken over where they must
        not change.

        Args:
            former: model of the former fit, with its sizes.

        Returns:
            The model, before its sizes are read off the data.
        """
        return self

    def starting_point(self, key: Any, *data: Any) -> dict[str, Any] | None:
        """Starting values of all sites for MAP, NUTS and HMC.

        Args:
            key: a JAX key.
            *data: parts of the data, in the model's order.

        Returns:
            Site name to value, shapes as in ``dims``; None: the default of the algorithm.
        """
        return started(self, key, data)

    def local_conditionals(self, values: Mapping[str, Any], *data: Any) -> dict[str, Distribution]:
        """Conditional distributions of the local latents that the program sums out.

        Args:
            values: variable or site name to value, shapes as in ``dims``.
            *data: parts of the data, in the model's order.

        Returns:
            Site name to distribution over rows.
        """
        return asked(in_current_precision(self), "conditionals", values, data)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """The quantities that `inference.predict` can return, chosen by ``what``.

        Returns:
            Name to dims; empty: there is only one quantity.
        """
        return {}

    def default_completion(self, *data: Any) -> str | None:
        """The default of `completions`.

        Args:
            *data: parts of the data, in the model's order.

        Returns:
            Its name; None: there is one kind only.
        """
        return None

    @property
    def leaves_out_empty(self) -> bool:
        """Whether log priors of draws leave components without rows out, see `prior_of_occupied`."""
        return type(self).prior_of_occupied is not Model.prior_of_occupied

    def prior_of_occupied(self, values: Mapping[str, Any], *data: Any) -> Any:
        """The log prior density of a site where components without rows are integrated out.

        Args:
            values: of the sites.
            *data: the data.

        Returns:
            ``density(name, log_prob)``, a scalar in nats, of a site with these terms in the program; None:
                every term counts.
        """
        return None

    def derived(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The local latents of a draw as they are stored, and quantities that follow from them.

        Args:
            values: variable or site name to value, shapes as in ``dims``.

        Returns:
            Variable name to value, shapes as in ``dims``.
        """
        return self.answers().derived(self, values)

    def typical_cells(self, values: Mapping[str, Any]) -> tuple[TypicalCells, ...]:
        """Typical cells of each cluster at one draw: means, rates, probabilities of levels.

        Args:
            values: of the sites, shapes as in ``dims``.

        Returns:
            One entry a quantity; empty: clusters are described by no cells, or there are none.
        """
        return asked(in_current_precision(self), "typical_cells", values, ())

    def cells_given(self, values: Mapping[str, Any], *data: Any) -> tuple[TypicalCells, ...]:
        """Typical cells of each row in each cluster at one draw, given the cells of it that were observed.

        Args:
            values: of the sites, shapes as in ``dims``.
            *data: rows, NaN where a cell is missing.

        Returns:
            As `typical_cells`, with a leading axis over rows, of size 1 where all have the same.
        """
        return tuple(
            part._replace(values=part.values[None], spread=None if part.spread is None else part.spread[None])
            for part in self.typical_cells(values)
        )

    def log_density_by_cluster(self, values: Mapping[str, Any], *data: Any) -> Any:
        """Log density of each row were it in each of the clusters, at one draw.

        Args:
            values: of the sites, shapes as in ``dims``.
            *data: rows.

        Returns:
            Shape (num_observations, num_clusters), in nats.

        Raises:
            ValueError: the model has no clusters of rows.
        """
        cluster, weight = self.roles.cluster, self.roles.weight
        labels = None if cluster is None else self.local_conditionals(values, *data).get(cluster)
        if labels is None or weight is None or weight not in values:
            raise ValueError(f"{type(self).__name__} has no labels of rows that can be summed out")
        rows = self.log_likelihood(values, *data)[:, None]
        return rows + jax.nn.log_softmax(labels.logits, axis=-1) - jnp.log(values[weight])

    def view_variances(self, values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Variance of each column that the latents explain at one draw, and what they leave.

        Args:
            values: of the sites, shapes as in ``dims``.

        Returns:
            Suffix of the view, as in `Roles.loadings`, to two arrays of shape (num_columns,); empty: a model
            without loadings.
        """
        found = {}
        for site, suffix in self.roles.loadings.items():
            if site not in values:
                continue
            explained = jnp.sum(jnp.asarray(values[site]) ** 2, axis=-1)
            noise = jnp.asarray(values.get(f"noise_variance{suffix}", 0.0))
            left = noise * self.noise_factors.get(suffix, 1.0)
            found[suffix] = explained, jnp.broadcast_to(left, explained.shape)
        return found

    def log_likelihood(self, values: Mapping[str, Any], *data: Any) -> jax.Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            *data: rows, NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: the model has none.
        """
        if self.answers.log_rows is Answers.log_rows:
            return log_rows(in_current_precision(self), values, data)
        return asked(in_current_precision(self), "log_rows", values, data)

    def scores(self, values: Mapping[str, Any], *data: Any, kind: str = "latent") -> Any:
        """Posterior mean scores of rows given values of everything else, dims ``roles.scores``.

        Args:
            values: of the parameters.
            *data: rows.
            kind: ``"latent"``, or ``"orthonormal"`` where the model has loadings.

        Returns:
            A score a row, dims ``roles.scores``.

        Raises:
            ValueError: a kind of scores that the model does not have.
        """
        return asked(in_current_precision(self), "scores", values, data, kind=kind)

    def scores_covariance(self, values: Mapping[str, Any], *data: Any) -> Any:
        """Posterior covariance of the ``"latent"`` scores of each row.

        Args:
            values: of the parameters.
            *data: rows.

        Returns:
            Dims ``roles.scores`` and a second latent dim.

        Raises:
            ValueError: the scores have no covariance.
        """
        return asked(in_current_precision(self), "scores_covariance", values, data)

    def predicted(self, values: Mapping[str, Any], *data: Any, **options: Any) -> tuple[Any, Any]:
        """Mean and variance of the missing cells of rows at given parameters.

        Args:
            values: of the parameters.
            *data: rows.
            **options: of the answer, such as ``what``, one of `completions`.

        Returns:
            Two arrays of dims ``roles.predicted``, or of those of the completion.

        Raises:
            ValueError: the model predicts nothing but its scores.
        """
        return asked(in_current_precision(self), "cells", values, data, **options)

    def rests_on_tail(
        self, values: Mapping[str, Any], mean: Any, variance: Any, *data: Any, **options: str
    ) -> Any | None:
        """Which of the `predicted` cells have an expectation that the tail of their latents dominates.

        Args:
            values: of the parameters.
            mean: of `predicted`.
            variance: of `predicted`.
            *data: rows, as given to it.
            **options: likewise.

        Returns:
            Boolean, the shape of ``mean``; None: no cells of the model have a tail.
        """
        return None

    def check_new(self, *data: Any) -> None:
        """Raise ValueError if new rows do not suit the (fitted) model; a single one does, and one of NaN.

        Args:
            *data: parts of the rows, in the model's order.
        """
        check_rows_of(self, data)

    def check(self, *data: Any) -> None:
        """Raise ValueError if the (numeric) data do not suit the model, before anything is compiled.

        Args:
            *data: parts of the data, in the model's order.
        """
        self.check_new(*data)
        check_fit(self, data)
        check_latents(self, data)

    def auto_method(self, *data: Any) -> str:
        """The method for ``method="auto"``: the first of `methods` that suits the model and the data.

        Args:
            *data: parts of the data, in the model's order.

        Returns:
            The method's name.
        """
        return self.methods[0]

    def check_method(self, method: str) -> None:
        """Refuse or warn of a method that does not suit the fields, before anything is compiled.

        Args:
            method: its name.
        """


def _short_html(value: Any) -> str:
    """A field in a few words: numbers as they are, larger arrays by their shape and range."""
    if value is None:
        return "read off the data"
    if isinstance(value, np.ndarray):
        if value.size <= 4:
            return np.array2string(value, precision=4, separator=", ")
        ends = f", from {np.nanmin(value):.3g} to {np.nanmax(value):.3g}" if value.dtype.kind in "fiu" else ""
        return f"array of shape {value.shape}{ends}"
    text = type(value).__name__ if isinstance(value, Assumptions | Distribution) else shown(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_kind(field: dataclasses.Field, value: Any) -> None:
    """Raise TypeError for None in a field that may not be None, and for a class.

    A field may be None if that is its default or its type says so.
    """
    if isinstance(value, type) and issubclass(value, Assumptions | Distribution):
        raise TypeError(
            f"{field.name} is the class {value.__name__}: make one, {value.__name__}(), with what it takes"
        )
    kinds = typing.get_args(field.type) or (field.type,)
    if value is None:
        if field.default is not None and type(None) not in kinds:
            missing = field.default is dataclasses.MISSING
            remedy = "it must be given" if missing else f"leave it out for the default, {field.default!r}"
            raise TypeError(f"{field.name} must not be None: {remedy}")


def as_hyperparameter(name: str, value: Any) -> Any:
    """Convert a hyperparameter for storage: numbers, and those in distributions, to float64.

    Args:
        name: of the field, in messages.
        value: a number, an array of any shape, a distribution, `Assumptions`, or None.

    Returns:
        The same in the form in which a model holds it.

    Raises:
        TypeError: something else, text and booleans among them, which NumPy would read as numbers.
    """
    if value is None or isinstance(value, Assumptions):
        return value
    if isinstance(value, tuple | list) and value and all(isinstance(part, Assumptions) for part in value):
        return tuple(value)
    if isinstance(value, Distribution):
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), value)
    but = ", which has masked entries" if np.ma.is_masked(value) else ""
    try:
        if not but and np.asarray(value).dtype.kind not in "bUST":  # read as numbers: True as 1, "1" as 1
            return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        pass
    got = f"{type(value).__name__} {shown(value)}"
    raise TypeError(f"{name} must be a number, an array or a NumPyro distribution; got {got}{but}")
