"""Fields that declare what they may be, their unit, and how they are read off data where they are open.

`zoo.model.Assumptions` checks them, and derives from them what a model says of its fields. Every kind of
field takes these facts as keywords.

====================  ================================================================================
fact                  meaning
====================  ================================================================================
``unit``              `zoo.coordinates.Unit`, one for each part of the data, or the property of the model
                      that has them; left out, or None: it has none
``read``              its value where none is given, of the model and a `Part` for each part of the data
``fill``              what a given value becomes, of the same
``is_used``           whether it is read, has its unit and makes a prior proper; left out: always
``otherwise``         its value where none is given and nothing is read, of the model
``convert``           what becomes of a given value before it is checked
``inside``            what it is in a model that is stated in the coordinates of its data
``families``          that it holds the families of cells or of components, which the columns of a table may
                      choose
``proper_with``       where a prior may be improper or unnormalised, its value with which it is neither, in
                      messages
====================  ================================================================================
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, Gamma

from zoo import checks
from zoo.coordinates import Unit

if TYPE_CHECKING:
    from zoo.model import Assumptions, Model

SIZE = Unit(1, (-1,))  # of a deviation for each column


class Given[From, To]:
    """The annotation of a field that is given as one type and holds another: a name, and what it names."""

    if TYPE_CHECKING:

        def __get__(self, model: object, owner: type) -> To: ...

        def __set__(self, model: object, value: From) -> None: ...


# Kinds of fields


def static(default: Any = dataclasses.MISSING, **facts: Any) -> Any:
    """A part of the program and not a pytree leaf: int, string, boolean, None or tuple.

    Args:
        default: of the field; left out, it must be given.
        **facts: see above.

    Returns:
        A dataclass field.
    """
    return dataclasses.field(default=default, metadata={"static": True} | facts)


def size(default: int | None = None, least: int = 1, **facts: Any) -> Any:
    """A whole number, part of the program.

    Args:
        default: of the field; None: it need not be given.
        least: that it may be.
        **facts: see above.

    Returns:
        A dataclass field.
    """
    return static(default, check=lambda name, value, _: checks.check_size(name, value, least), **facts)


def size_of(data: str, least: int = 0) -> Any:
    """The number of columns of a part of the data, read off it.

    Args:
        data: name of the part.
        least: that it may be.

    Returns:
        A dataclass field.
    """
    return size(None, least, size_of=data)


def whole(default: int, least: int = 1) -> Any:
    """A whole number, part of the program; anything else is a ValueError.

    Args:
        default: of the field.
        least: that it may be.

    Returns:
        A dataclass field.
    """
    return static(default, check=lambda name, value, _: checks.check_whole(name, value, least))


def choice(*names: str, **facts: Any) -> Any:
    """One of some names, part of the program.

    Args:
        *names: which; the first is the default.
        **facts: see above.

    Returns:
        A dataclass field.
    """
    return static(names[0], check=lambda name, value, _: checks.check_choice(name, value, names), **facts)


def flag(default: bool = False, **facts: Any) -> Any:
    """A switch, part of the program.

    Args:
        default: of the field.
        **facts: see above.

    Returns:
        A dataclass field.
    """
    return static(default, check=lambda name, value, _: checks.check_flag(name, value), **facts)


def numbers(
    default: Any = None,
    dims: tuple[str, ...] | Callable = (),
    *,
    or_one: bool = False,
    least: float | None = None,
    above: float | None = None,
    prior: tuple[type, ...] = (),
    also: Callable | None = None,
    **facts: Any,
) -> Any:
    """Finite numbers.

    Args:
        default: of the field.
        dims: of which the model has the sizes, ``num_features`` of ``"feature"``; or a function of the model
            from what there may be a number for to how many, or a word where that is not known. Empty: it is
            one number.
        or_one: whether one number for all will do too.
        least: lower bound that they may reach.
        above: lower bound that they may not reach.
        prior: kinds of distributions of which one may be its hyperprior.
        also: a further check of numbers, of the name, the value and the model.
        **facts: see above; ``is_concentration``: whether its log-gamma function is taken;
            ``is_stored``: whether it is kept with a fit.

    Returns:
        A dataclass field.
    """
    own = {"check": _Domain(dims, or_one, least, above, prior, also)} | (
        {} if callable(dims) else {"dims": dims}
    )
    return dataclasses.field(default=default, metadata=own | facts)


def positive(default: Any = None, dims: tuple[str, ...] | Callable = (), **facts: Any) -> Any:
    """Positive numbers.

    Args:
        default: of the field.
        dims: as of `numbers`.
        **facts: likewise.

    Returns:
        A dataclass field.
    """
    return numbers(default, dims, above=0.0, **facts)


def pseudo_counts(default: Any = None, dims: tuple[str, ...] | Callable = (), **facts: Any) -> Any:
    """Parameters of a Dirichlet prior, in the range in which they can be told.

    Args:
        default: of the field.
        dims: as of `numbers`.
        **facts: likewise.

    Returns:
        A dataclass field.
    """
    return positive(default, dims, also=_within_range, is_concentration=True, **facts)


def _within_range(name: str, value: object, _: object) -> None:
    checks.check_concentration(name, value)


def scale_of(number: int = 0, dim: str | None = "feature", unit: Unit | str = SIZE) -> Any:
    """The deviations of the columns of a part of the data, in which a model with ``standardize`` is stated.

    Args:
        number: of the part.
        dim: of its columns; None: they have one in common, the root of their mean variance.
        unit: of the field; where its power is 0 the columns have none, and their deviations count as one.

    Returns:
        A dataclass field.
    """
    dims = () if dim is None else (dim,)
    return positive(
        None,
        dims,
        unit=unit,
        scales=number,
        inside=None,
        is_used=lambda model: model.standardize,
    )


def origin_of(number: int = 0, dim: str = "feature") -> Any:
    """The means of the columns of a part of the data, about which a model with ``standardize`` is stated.

    Args:
        number: of the part, whose columns have deviations by `scale_of`.
        dim: of its columns.

    Returns:
        A dataclass field.
    """

    def read(model: "Model", *parts: Part) -> np.ndarray:  # of parts in their deviations
        scale = next(getattr(model, name) for name, own in facts_of(model, "scales").items() if own == number)
        return scale * checks.observed_moments(parts[number].rows, parts[number].weight)[0]

    def is_used(model: "Model") -> bool:
        return getattr(model, "standardize", False) and model.units[model.data_names[number]].is_location

    return numbers(
        None,
        (dim,),
        unit=Unit(1, (-1,), is_location=True, part=number),
        origins=number,
        inside=None,
        is_used=is_used,
        read=read,
    )


def stated_fields(tables: Sequence[Any], dims: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[Any, Any]]:
    """The fields that tell in which coordinates a program is stated, see `zoo.intake.Table.stated_in`.

    Args:
        tables: of the model.
        dims: of its variables.

    Returns:
        Name to type and dataclass field.
    """
    stated = [own for own in enumerate(tables) if own[1].stated_in != "data"]
    found: dict[str, tuple[Any, Any]] = {"standardize": (bool, flag(True, inside=False))} if stated else {}
    for number, table in stated:
        dim, unit = dims[table.name][-1], Unit(1, (-1,), part=number)
        of_scale = scale_of(number, dim if table.stated_in == "columns" else None, unit)
        found |= {
            f"{table.name}_scale": (Array | None, of_scale),
            f"{table.name}_origin": (Array | None, origin_of(number, dim)),
        }
    return found


def part(default: Any = None, kind: type = object, called: str = "", **facts: Any) -> Any:
    """A nested part of the model, or a field that the model checks by itself.

    Args:
        default: of the field.
        kind: its class.
        called: what it must be, in messages.
        **facts: see above.

    Returns:
        A dataclass field.
    """
    check = partial(_check_kind, kind=kind, called=called)
    return dataclasses.field(default=default, metadata={"check": check} | facts)


# What they declare


_OF_USED = {"unit", "proper_with"}  # facts that only fields have that are used


def facts_of(owner: "Assumptions | type[Assumptions]", fact: str) -> dict[str, Any]:
    """A fact of the fields that state it.

    Args:
        owner: a model or a prior; or its class, for facts that do not depend on it.
        fact: such as ``"dims"``; a ``"unit"`` that depends on the model is asked for, where it is used.

    Returns:
        Field name to fact.
    """
    found = {}
    for field in dataclasses.fields(owner):
        if fact not in field.metadata:
            continue
        value = field.metadata[fact]
        if fact == "unit":
            value = getattr(owner, value) if isinstance(value, str) else value
        if fact not in _OF_USED or (value is not None and _is_used(field, owner)):
            found[field.name] = value
    return found


def family_field(owner: "Assumptions | type[Assumptions]") -> str:
    """The field that holds families of cells or of components; empty: there is none.

    Args:
        owner: a model, or its class.

    Returns:
        Its name.
    """
    return next(iter(facts_of(owner, "families")), "")


class Names(NamedTuple):
    """Names of fields, in their order.

    Attributes:
        leaves: the hyperparameters, which are pytree leaves (or subtrees).
        static: the others.
    """

    leaves: tuple[str, ...]
    static: tuple[str, ...]


_NAMES: dict[type, Names] = {}


def names_of(owner: "Assumptions | type[Assumptions]") -> Names:
    """Names of the fields.

    Args:
        owner: a model or a prior, or its class.

    Returns:
        Those of hyperparameters, and of static fields.
    """
    kind = owner if isinstance(owner, type) else type(owner)
    if kind not in _NAMES:  # asked for whenever an argument of a program is taken apart
        is_static = {field.name: bool(field.metadata.get("static")) for field in dataclasses.fields(kind)}
        both = (tuple(n for n, own in is_static.items() if own == kept) for kept in (False, True))
        _NAMES[kind] = Names(*both)
    return _NAMES[kind]


def _is_used(field: dataclasses.Field, owner: "Assumptions | type[Assumptions]") -> bool:
    return "is_used" not in field.metadata or field.metadata["is_used"](owner)


def _check_kind(name: str, value: object, _: object, *, kind: type, called: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {called}; got {type(value).__name__}")


@dataclasses.dataclass(frozen=True)
class _Domain:
    """The check of numbers: a callable of the field's name, its value and its owner; see `numbers`."""

    dims: tuple[str, ...] | Callable
    or_one: bool
    least: float | None
    above: float | None
    prior: tuple[type, ...]
    also: Callable | None

    def __call__(self, name: str, value: Any, owner: "Assumptions") -> None:
        is_prior = isinstance(value, Distribution)
        if is_prior:
            self._check_prior(name, value, owner)
        shape = value.shape() if is_prior else np.shape(value)
        shapes = self._shapes(owner)
        is_one = not shapes or (self.or_one and not shape)
        if not is_one and not any(_fits(shape, own) for own in shapes.values()):
            raise ValueError(f"{name} must have {self._shape_in_words(shapes, owner)}; got shape {shape}")
        if (is_one and shape) or not (is_prior or self._holds(value)):
            raise ValueError(f"{name} must be {self._domain_in_words(is_one)}; got {checks.shown(value)}")
        if self.also is not None and not is_prior:
            self.also(name, value, owner)

    def _check_prior(self, name: str, prior: Distribution, owner: "Assumptions") -> None:
        if not isinstance(prior, self.prior):
            may = f"may have a {_or(self.prior)} as its prior"
            may = may if self.prior else "must be numbers: it can have no prior"
            raise ValueError(f"{name} of {type(owner).__name__} {may}; got a {type(prior).__name__}")
        if isinstance(prior, Gamma) and min(np.min(prior.concentration), np.min(prior.rate)) <= 0:
            raise ValueError(f"the Gamma prior of {name} needs a positive concentration and rate")
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(prior)):
            raise ValueError(f"{name} must be finite; got {checks.shown(prior)}")

    def _holds(self, value: Any) -> bool:
        low = np.min(value)
        is_above = self.above is None or low > self.above
        return bool(np.isfinite(value).all() and is_above and (self.least is None or low >= self.least))

    def _shapes(self, owner: "Assumptions") -> dict[str, tuple[Any, ...]]:
        """The shapes that an array may have, as far as they are known, by what its numbers are for."""
        if callable(self.dims):
            return {label: (size,) for label, size in self.dims(owner).items()}
        sizes = tuple(getattr(owner, _size_of(dim), None) or _size_of(dim) for dim in self.dims)
        return {f"each {self.dims[0]}" * (len(sizes) == 1): sizes} if sizes else {}

    def _domain_in_words(self, is_one: bool) -> str:
        """The domain, such as ``a positive number``."""
        if self.least is None and self.above in (None, 0):
            words = "finite" if self.above is None else "positive"
            words = f"a {words} number" if is_one else words
        else:
            bound = f"of at least {self.least:g}" if self.above is None else f"above {self.above:g}"
            words = f"a number {bound}" if is_one else f"numbers {bound}"
        return words + (f" or a {_or(self.prior)} distribution" if self.prior and is_one else "")

    def _shape_in_words(self, shapes: dict[str, tuple[Any, ...]], owner: "Assumptions") -> str:
        if ("any",) in shapes.values():
            return f"{'one number or ' * self.or_one}one for {' or for '.join(shapes)}"
        texts = [f"({', '.join(map(str, own))}{',' * (len(own) == 1)})" for own in shapes.values()]
        more = f", one number for {' or for '.join(shapes)}" * all(shapes)
        if not callable(self.dims) and any(isinstance(size, str) for own in shapes.values() for size in own):
            more = f", or use {type(owner).__name__}.from_data"
        return f"shape {' or '.join([*self.or_one * ['()'], *texts])}{more}"


def _or(kinds: Sequence[type]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _size_of(dim: str) -> str:
    """The field or property with the size of a dim."""
    return f"num_{dim.removesuffix('_2')}s"


def _fits(shape: tuple[int, ...], wanted: tuple[Any, ...]) -> bool:
    """Whether sizes are those wanted; one that is not known is a word, and may be any but 0."""
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(
        own == size or (own and isinstance(size, str)) for own, size in pairs
    )


# Reading them


class Part:
    """A part of the data, off which fields are read.

    Attributes:
        rows: a dense table, shape (num_observations, num_columns), or a sparse one.
        name: of the part.
        weight: of each row, positive, shape (num_observations,); None: one.
    """

    def __init__(self, rows: Any, name: str, weight: np.ndarray | None = None) -> None:
        if isinstance(rows, np.ndarray):
            rows, weight = checks.rows_with_weight(rows, weight)
        self.rows, self.name, self.weight = rows, name, weight
        self._found: dict[Callable, Any] = {}

    def once(self, function: Callable) -> Any:
        """What a function finds of this part, which is asked for once.

        Args:
            function: of the part.

        Returns:
            What it returns.
        """
        if function not in self._found:
            self._found[function] = function(self)
        return self._found[function]


def read_off(model: "Model", parts: Sequence[Part]) -> dict[str, Any]:
    """The fields that are not given, read off the data; the numbers are those of the stated program.

    Args:
        model: with the sizes of the data.
        parts: of the data.

    Returns:
        Field name to value.
    """
    found, fields = {}, dataclasses.fields(model)
    used = [field for field in fields if _is_used(field, model)]
    for field in used:
        if "scales" in field.metadata:
            number, given = field.metadata["scales"], getattr(model, field.name)
            own = parts[number]
            if facts_of(model, "unit")[field.name].power:
                is_one = not facts_of(model, "dims")[field.name]
                scale = checks.column_scale(own.rows, None if is_one else given, own.name, weight=own.weight)
                if is_one:
                    scale = np.sqrt(np.mean(np.square(scale))) if given is None else given
            else:
                scale = np.ones(own.rows.shape[1])
            parts = [Part(p.rows / scale, p.name, p.weight) if p is own else p for p in parts]
            if given is None:
                found[field.name] = scale
    model = model.replaced(**found)
    for field in used:
        given = getattr(model, field.name)
        read = field.metadata.get("read" if given is None else "fill")
        value = given if read is None else read(model, *parts)
        if value is not given:
            found[field.name] = value
            model = model.replaced(**{field.name: value})
    return found


def continuing(model: "Model", former: "Model") -> Any:
    """The model with what a former fit read off its rows, where that is not given.

    Choices, switches and families decide how fields are read: where they differ nothing is kept.

    Args:
        model: of the new fit, before it sees data.
        former: of the former fit.

    Returns:
        The model.
    """
    if _choices(model) != _choices(former):
        return model
    read = (field.name for field in dataclasses.fields(model) if _READ & field.metadata.keys())
    return _kept(model, former, [name for name in read if name in names_of(model).leaves])


_READ = {"read", "fill", "scales"}  # facts of fields that data decide


def _choices(model: "Model") -> list[Any]:
    """What decides how the fields of a model are read."""
    own = (field for field in dataclasses.fields(model) if field.init and field.metadata.get("static"))
    fixed = (getattr(model, field.name) for field in own)
    return [value for value in fixed if isinstance(value, str | bool)] + list(map(type, model.part_families))


def _kept(own: "Model", former: "Model", names: Sequence[str]) -> Any:
    """A model or a part of it with the former's value of these fields where it has none, nested ones too."""
    found = {}
    for name in names:
        value, known = getattr(own, name), getattr(former, name)
        if value is None and known is not None:
            found[name] = known
        elif hasattr(value, "replaced") and type(value) is type(known):
            found[name] = _kept(value, known, names_of(value).leaves)
    return own.replaced(**found) if found else own


# Sizes


def require(model: "Model", *names: str) -> None:
    """Raise ValueError if a field that ``from_data`` reads off the data is not set.

    Args:
        model: the model.
        *names: of the fields.

    Raises:
        ValueError: one of them is None.
    """
    for name in names:
        if getattr(model, name) is None:
            raise ValueError(
                f"{name} is not set: give it, or make the model with "
                f"{type(model).__name__}.from_data({', '.join(model.data_names)})"
            )


def size_fields(model: "Model") -> tuple[str, ...]:
    """The fields with the numbers of columns of the parts of the data: one for each, or for all views.

    Args:
        model: the model, or its class.

    Returns:
        Their names.
    """
    return tuple(f"num_{model.dims[table.name][-1].removesuffix('_*')}s" for table in model.data)


def part_sizes(model: "Model") -> tuple[int | None, ...]:
    """The number of columns of each part of the data.

    Args:
        model: the model.

    Returns:
        For each part the number; None: it is not known.
    """
    known = names_of(model).static
    sizes = tuple(getattr(model, name) if name in known else None for name in size_fields(model))
    return sizes[0] or (None,) * len(model.data_names) if "*" in model.data[0].name else sizes


def sizes_of(model: "Model", parts: Sequence[Any]) -> dict[str, Any]:
    """The fields with sizes that parts of the data tell.

    Args:
        model: the model, or its class.
        parts: of the data, None where one is not given; of several with one name all must be.

    Returns:
        Field name to value.
    """
    names, known = size_fields(model), names_of(model).static
    if "*" in model.data[0].name:
        is_whole = all(part is not None for part in parts)
        return {names[0]: tuple(np.shape(part)[-1] for part in parts)} if is_whole else {}
    pairs = zip(names, parts, strict=False)
    return {n: np.shape(part)[-1] for n, part in pairs if part is not None and n in known}
