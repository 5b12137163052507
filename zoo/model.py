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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np
import numpyro
from numpyro.distributions import Distribution

from zoo.answers import Answers, answer_of
from zoo.cards.markup import facts_as_html
from zoo.checks import shown
from zoo.coordinates import Coordinates, Freedom, Unit, freedom_of
from zoo.coordinates.of_models import coordinate_fields, turned
from zoo.fields import Part, facts_of, family_field, names_of, read_off, require, sizes_of, stated_fields
from zoo.intake import ANY, NUMBERS, Columns, PartNames, Table
from zoo.intake.tables import as_cells, check_fit, check_latents, check_rows_of, columns_of, tables_of
from zoo.naming import did_you_mean
from zoo.programs import in_current_precision, run
from zoo.roles import Roles
from zoo.sparse import Observed, is_sparse

__all__ = [
    "ANY",
    "NUMBERS",
    "Assumptions",
    "Model",
    "Roles",
    "Table",
    "as_hyperparameter",
    "attach_submodules",
    "in_current_precision",
]


def attach_submodules() -> None:
    """Make every loaded submodule of NumPyro an attribute of its package, as the import system does."""
    numpyro.distributions  # noqa: B018  (touching an attribute is what loads a stub)
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent.split(".")[0] == "numpyro" and not hasattr(sys.modules[parent], child):
            setattr(sys.modules[parent], child, module)


attach_submodules()


def _flattened(own: "Assumptions") -> tuple[tuple, tuple]:
    leaves, fixed = (tuple(getattr(own, name) for name in names) for names in names_of(own))
    return leaves, fixed


def _with_keys(own: "Assumptions") -> tuple[tuple, tuple]:
    leaves, fixed = _flattened(own)
    return tuple(zip(map(jax.tree_util.GetAttrKey, names_of(own).leaves), leaves, strict=True)), fixed


def _unflattened(kind: "type[Assumptions]", fixed: Iterable[Any], leaves: Iterable[Any]) -> "Assumptions":
    new = object.__new__(kind)
    for names, values in zip(names_of(kind), (leaves, fixed), strict=True):
        for name, value in zip(names, values, strict=True):
            object.__setattr__(new, name, value)
    return new


@dataclasses.dataclass(frozen=True, eq=False)
class Assumptions:
    """A frozen dataclass of hyperparameters, registered as a pytree; equality and hash are identity.

    Subclasses are decorated with ``@dataclass(frozen=True, eq=False)`` and may define `validate`.
    """

    def __init_subclass__(cls) -> None:
        """Register the subclass as a pytree, whose fields are read after the dataclass decorator has run."""
        jax.tree_util.register_pytree_with_keys(
            cls, _with_keys, partial(_unflattened, cls), flatten_func=_flattened
        )

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Refuse a field that there is not, naming those that there are; a size in the place of families."""
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        if values and isinstance(values[0], int) and known[0] == family_field(cls):
            size = next(name for name in known if name.startswith("num_"))
            call = f"{cls.__name__}({size}={values[0]})"
            raise TypeError(f"{known[0]} comes first and is no number; did you mean {call}?")
        for name in fields:
            if name not in known:
                has = f"it has: {', '.join(known)}{did_you_mean(name, known)}"
                raise TypeError(f"{cls.__name__} has no field {name!r}; {has}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Store hyperparameters as float64 NumPy arrays, set what follows from others, and check all."""
        fields, settle = dataclasses.fields(self), partial(object.__setattr__, self)
        for field in fields:
            value = getattr(self, field.name)
            if field.init:
                _check_kind(field, value)
            if value is not None and "convert" in field.metadata:
                settle(field.name, field.metadata["convert"](value))
            if field.metadata.get("static"):
                if isinstance(value, np.integer):  # which a file cannot hold
                    settle(field.name, int(value))
                _check_domain(self, field)
        for field in fields:
            if getattr(self, field.name) is None and "otherwise" in field.metadata:
                settle(field.name, field.metadata["otherwise"](self))
        for name in names_of(self).leaves:
            settle(name, as_hyperparameter(name, getattr(self, name)))
        if self.is_filled:
            for field in fields:
                if not field.metadata.get("static"):
                    _check_domain(self, field)
            self.validate()
        for name in names_of(self).leaves:
            leaves = jax.tree.leaves(getattr(self, name))
            if any(isinstance(leaf, np.ndarray) and np.isnan(leaf).any() for leaf in leaves):
                raise ValueError(f"{name} must not be NaN, nor hold one")

    def validate(self) -> None:
        """Raise ValueError or TypeError if fields do not go together, each of which is in its domain."""

    @property
    def is_filled(self) -> bool:
        """Whether nothing that others are checked against is still to be read off the data."""
        return True

    def replaced(self, **fields: Any) -> Self:
        """A copy with some fields replaced without checks, by computed (posteriors) or traced values.

        Plain numbers become arrays, as when the model is made.

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
            if isinstance(value, float | int | list) and name in names_of(self).leaves:
                value = as_hyperparameter(name, value)
            object.__setattr__(new, name, value)
        return new


@dataclasses.dataclass(frozen=True, eq=False)
class Model(Assumptions):
    """A probabilistic model, which is called as a NumPyro program.

    ``model(*data)`` conditions on data, local latents that can be integrated exactly summed out;
    ``model(num_observations=n)`` draws from the prior predictive with them drawn; ``model.explicit`` is the
    same model with them drawn in both cases.

    Class attributes are plain literals, so that the command line can read them without importing anything.

    Attributes:
        data: the parts of the data, in the order of the call, and what each takes.
        data_names: names of the data sites, by `data`.
        dims: variable name to the names of its dims, rows first; a name that repeats by view is written once
            with a star.
        symmetries: which of ``"labels"``, ``"rotation"``, ``"sign"`` leave the posterior unchanged.
        units: how parts of the data and sites follow the data's origin and scale; others do not. A model that
            names any is fitted in coordinates of its data (`zoo.coordinates`), and its program knows of none.
        roles: which variables play which part, for summaries, plots and reports.
        methods: the ways to fit it; ``method="auto"`` means the first that suits the model and its data.
        answers: its closed forms.
    """

    data: ClassVar[tuple[Table, ...]] = (Table("x"),)
    data_names = PartNames()
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    symmetries: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[Roles] = Roles()
    methods: ClassVar[tuple[str, ...]] = ()
    units: ClassVar[Mapping[str, Unit]] = {}
    answers: ClassVar[type[Answers]] = Answers

    draw_locals: bool = dataclasses.field(default=False, init=False, repr=False, metadata={"static": True})

    def __init_subclass__(cls) -> None:
        """Add the fields that tell in which coordinates the program is stated, see `Table.stated_in`."""
        super().__init_subclass__()
        for name, (kind, field) in stated_fields(cls.__dict__.get("data", ()), cls.dims).items():
            cls.__annotations__[name] = kind
            setattr(cls, name, field)

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
        require(self, *facts_of(self, "unit"))
        return run(in_current_precision(self), data, num_observations)

    def program(self, *parts: Observed | None, rows: numpyro.plate) -> Any:
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
        name = type(self).__name__
        title = (type(self).__doc__ or name).strip().partition("\n")[0]
        prior = {
            "proper": "proper: it draws data without any",
            "unnormalised": "unnormalised: a factor multiplies it",
            "improper": "improper: it draws nothing without data",
        }[self.prior]
        facts = {f.name: _short(getattr(self, f.name)) for f in dataclasses.fields(self) if f.init} | {
            "prior": prior,
            "unchanged under": ", ".join(self.exact_symmetries) or "nothing",
            "methods": ", ".join(self.methods) or "registered ones",
        }
        return f"<div><p><strong>{name}</strong> {html.escape(title)}</p>{facts_as_html(facts)}</div>"

    @property
    def explicit(self) -> Self:
        """The same model with its local latents drawn instead of summed out."""
        return self.replaced(draw_locals=True)

    @property
    def prior(self) -> str:
        """Kind of the prior: ``"proper"``, ``"unnormalised"`` (a factor multiplies it) or ``"improper"``."""
        return "proper"

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Variable name to its dims: ``dims`` and those of nested priors."""
        return self.dims

    @property
    def part_families(self) -> tuple[Any, ...]:
        """The family of the cells, or of the components, of each part of the data; None: there is none."""
        held = getattr(self, family_field(self), None)
        return held if isinstance(held, tuple) else (held,) * len(self.data)

    @property
    def coordinate_freedom(self) -> tuple[Freedom | None, ...]:
        """For each part of the data the coordinates in which the model can be written; None: its own.

        None of a mixed table, some of whose columns have no unit.
        """
        free = freedom_of({**facts_of(self, "unit"), **self.units}, self.data_names)
        is_as_passed = not getattr(self, "standardize", True)  # though its numbers are without a unit
        stays = (
            (is_as_passed and part.stated_in != "data") or getattr(family, "is_mixed", False)
            for part, family in zip(tables_of(self), self.part_families, strict=True)
        )
        return tuple(None if own_stays else own for own_stays, own in zip(stays, free, strict=True))

    @property
    def own_coordinates(self) -> Coordinates | None:
        """The coordinates in which the program is stated, where these are not those of the data.

        A model with units whose field ``standardize`` is true is stated in the columns' deviations, its
        fields by `zoo.fields.scale_of`: quantities without an axis over columns have no unit then. Another
        model that is stated about an origin or in a common scale says so here, and its fields by ``inside``.
        """
        if not (getattr(self, "standardize", False) and self.units):
            return None
        named = tuple(facts_of(self, "scales"))
        require(self, *named)
        origins = {number: getattr(self, name) for name, number in facts_of(self, "origins").items()}
        scales = tuple(getattr(self, name) for name in named)
        return Coordinates(tuple(origins.get(number) for number in range(len(scales))), scales)

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """Those of `symmetries` that leave the posterior unchanged with the present fields: by default all.

        Under the others chains are compared and draws aligned all the same.
        """
        return tuple(self.symmetries)

    @property
    def scale_remedies(self) -> tuple[str, ...]:
        """For each part of the data what to do where its columns have very different scales.

        Empty of a part whose columns do not share one noise variance: where they do, those in very different
        units are not fitted alike, since the noise is that of the largest ones.
        """
        has_option = "standardize" in names_of(self).static
        remedy = "give standardize=True" if has_option else "divide the columns by their standard deviations"
        shared = {
            own.part
            for name, own in self.units.items()
            if (
                name.startswith(("noise_variance", "precisions"))
                and own.power
                and not own.axes
                and own.columns is None
            )
            or (name in self.data_names and not own.power)  # whose scale is that of a known noise
        }
        return tuple(remedy if number in shared else "" for number in range(len(self.data_names)))

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
            for place, (table, part) in enumerate(zip(tables_of(self), data, strict=False))
        )

    def with_families(self, columns: Sequence[Columns | None]) -> Self:
        """The model with the families of the columns of tables, where none were given; by default itself.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            The model.
        """
        return self

    @classmethod
    def from_data(cls, *data: Any, **overrides: Any) -> Self:
        """The model with its families, sizes and data-dependent defaults read off the data.

        Args:
            *data: parts of the data, in the model's order.
            **overrides: fields that are given.

        Returns:
            The model, none of its fields None but those that may stay so.

        Raises:
            TypeError: another number of parts than the model takes.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        weight = given.pop("sample_weight", None) if cls.answers.weighs_rows else None
        if (field := family_field(cls)) and "*" in cls.data[0].name:
            given.setdefault(field, ("auto",) * len(data))
        model = cls(**given)
        model, data = model.with_families(columns_of(model, data)).encoded(*data)
        return model.with_sizes_from(*data, sample_weight=weight)

    def with_sizes_from(self, *data: Observed, sample_weight: np.ndarray | None = None) -> Self:
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
        sizes = sizes_of(self, [part.rows for part in parts])
        read = {name: size for name, size in sizes.items() if getattr(self, name) is None}
        read |= read_off(self.replaced(**read), parts)
        model = self.replaced(**read)
        if model.own_coordinates is not None:
            told = read.keys() & facts_of(model, "unit").keys() - coordinate_fields(model).keys()
            read |= {name: turned(model, name, model.own_coordinates.outward) for name in told}
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
        return type(self)(**given | read) if read else self

    def log_likelihood(self, values: Mapping[str, Any], *data: Observed) -> jax.Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            *data: rows, NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: the model has none.
        """
        return answer_of(self, "log_rows", values, *data)

    def scores(self, values: Mapping[str, Any], *data: Observed, kind: str = "latent") -> Any:
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
        return answer_of(self, "scores", values, *data, kind=kind)

    def predicted(self, values: Mapping[str, Any], *data: Observed, **options: Any) -> tuple[Any, Any]:
        """Mean and variance of the missing cells of rows at given parameters.

        Args:
            values: of the parameters.
            *data: rows.
            **options: of the answer, such as ``what``, one of `zoo.answers.Answers.completions`.

        Returns:
            Two arrays of the dims of the completion.

        Raises:
            ValueError: the model predicts nothing but its scores.
        """
        return answer_of(self, "cells", values, *data, **options)

    def check_new(self, *data: Observed) -> None:
        """Raise ValueError if new rows do not suit the (fitted) model; a single one does, and one of NaN.

        Args:
            *data: parts of the rows, in the model's order.
        """
        check_rows_of(self, data)

    def check(self, *data: Observed) -> None:
        """Raise ValueError if the (numeric) data do not suit the model, before anything is compiled.

        Args:
            *data: parts of the data, in the model's order.
        """
        self.check_new(*data)
        check_fit(self, data)
        check_latents(self, data)


def _short(value: object) -> str:
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


def _check_domain(own: Assumptions, field: dataclasses.Field) -> None:
    value = getattr(own, field.name)
    if value is not None and "check" in field.metadata:
        field.metadata["check"](field.name, value, own)


def _check_kind(field: dataclasses.Field, value: object) -> None:
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


def as_hyperparameter(name: str, value: object) -> Any:
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
