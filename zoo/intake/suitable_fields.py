"""Default fields that suit a data set, for the comparison of models on it.

Each model chooses them in `zoo.model.Model.suitable_fields`; this module has the parts that models share.

Cells of numbers are judged by their values: zeros and ones get Bernoulli cells, whole numbers from 0 Poisson
ones, other numbers Gaussian ones of unknown variance, whose default priors are as wide as the data, in every
model that has a choice; a sparse matrix holds documents. A table with words, or with kinds that are given,
has the families of its columns. Then all models score the same thing, a density, a probability, or that of a
document given its length, and their log densities compare; a model that scores something else is refused.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from zoo.checks import as_matrix, as_numbers, check_num_parts
from zoo.exponential_family import Categorical, Family, Gaussian, Ordinal, as_family
from zoo.intake import Column, Columns, read_columns
from zoo.model import Model

__all__ = [
    "AUTO",
    "ChoosesFamily",
    "check_not_sparse",
    "density_fields",
    "families_of_views",
    "family_fields",
    "family_of_columns",
    "one_family_of_columns",
    "family_of",
    "kind_of_cells",
    "level_starts",
    "no_densities",
    "suitable_fields",
    "suitable_tables",
    "tables_of_parts",
    "suitable_num_latents",
]

AUTO = "auto"  # the name of a family that the columns of a table decide
_SIZE = 2  # latents, where the data have columns enough


def kind_of_cells(x: Any) -> str:
    """The family of the cells of a table, judged by their values.

    Args:
        x: a table of numbers, NaN where missing; a sparse one holds counts.

    Returns:
        ``"bernoulli"``, ``"poisson"`` or ``"gaussian"``.
    """
    if hasattr(x, "tocsr"):
        return "poisson"
    values = as_numbers(x)
    values = values[~np.isnan(values)]
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli"
    return "poisson" if (values >= 0).all() and (values == np.round(values)).all() else "gaussian"


def suitable_fields(model: type[Model], data: Sequence[Any]) -> dict[str, Any]:
    """Fields of a model that suit the data, besides those that `from_data` reads off them.

    Args:
        model: its class.
        data: the parts of the data; tables of two axes.

    Returns:
        Field name to value.

    Raises:
        TypeError: the model takes another number of parts.
        ValueError: the model scores densities, and the cells are zeros and ones, or counts.
    """
    fields = model.suitable_fields(data)
    if not model.scores_rows:
        raise ValueError(f"{model.__name__} has no density of rows to compare")
    return fields


def suitable_tables(
    model: type[Model], data: Sequence[Any], columns: Sequence[Columns | None]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Fields of a model that suit tables, and the tables as numbers as that model takes them.

    Args:
        model: its class.
        data: the parts of the data.
        columns: what those of each part hold that is a table; None of an array.

    Returns:
        Field name to value, and the parts: arrays, or class labels as they are.

    Raises:
        TypeError: the model takes another number of parts.
        ValueError: it does not take such columns, or scores something else than models that take them.
    """
    names = model.data_names if isinstance(model.data_names, tuple) else ()
    known = (*names, *[""] * len(data))
    own = tuple(
        None if name in (model.label_parts or ()) else found
        for name, found in zip(known, columns, strict=False)
    )
    fields = None
    if any(found is not None and found.needs_families for found in own):
        fields = model.suitable_for_columns(own)
        starts = model(**fields).takes_levels(own)
        own = tuple(
            None if found is None else found.numbered_from(start, model.__name__)
            for found, start in zip(own, starts, strict=True)
        )
    parts = tuple(
        part if found is None else as_matrix(found.encoded(part))
        for part, found in zip(data, own, strict=True)
    )
    return suitable_fields(model, parts) if fields is None else fields, parts


def check_not_sparse(name: str, x: Any) -> None:
    """Raise ValueError if the table is sparse and therefore holds documents.

    Args:
        name: of the model.
        x: a table.
    """
    if hasattr(x, "tocsr"):
        raise ValueError(f"{name} scores cells, which does not compare with documents given their lengths")


def density_fields(name: str, x: Any) -> dict[str, Any]:
    """Fields of a projection whose scores are densities.

    Args:
        name: of the model.
        x: a table of numbers.

    Returns:
        ``num_latents``.

    Raises:
        ValueError: the cells have probabilities.
    """
    check_not_sparse(name, x)
    kind = kind_of_cells(x)
    if kind != "gaussian":
        held = "zeros and ones" if kind == "bernoulli" else "whole numbers"
        raise ValueError(f"{name} has densities, which do not compare with probabilities of {held}")
    return {"num_latents": suitable_num_latents(x)}


def family_fields(name: str, x: Any) -> dict[str, Any]:
    """Fields of a projection whose cells are of an exponential family.

    Args:
        name: of the model.
        x: a table of numbers.

    Returns:
        ``family`` and ``num_latents``.

    Raises:
        ValueError: the table is sparse.
    """
    check_not_sparse(name, x)
    return {"family": family_of(kind_of_cells(x)), "num_latents": suitable_num_latents(x)}


def family_of(kind: str) -> Any:
    """The family of cells of a kind; Gaussian ones have an unknown noise variance.

    Args:
        kind: as of `kind_of_cells`.

    Returns:
        A family, or its name.
    """
    return Gaussian(noise_variance=None) if kind == "gaussian" else kind


def suitable_num_latents(x: Any) -> int:
    """A number of latents: two, or one if the data have too few rows or columns.

    Args:
        x: a table, shape (num_observations, num_features).

    Returns:
        1 or 2.
    """
    return max(1, min(_SIZE, x.shape[1] - 1, x.shape[0] - 1))


# Families by what columns hold


def no_densities(name: str, columns: Sequence[Columns | None]) -> None:
    """Raise ValueError naming columns that have probabilities, for a model that scores densities.

    Args:
        name: of the model.
        columns: of each part of the data.
    """
    discrete = [
        column.name
        for own in columns
        if own is not None
        for column in own.kept
        if column.kind not in ("real", "positive", "date") or column.scale is not None
    ]
    if discrete:
        raise ValueError(
            f"{name} has densities, which do not compare with probabilities of {', '.join(discrete)}: leave "
            f"{'it' if len(discrete) == 1 else 'them'} out to compare it, such as "
            f"--families {discrete[0]}=leave_out"
        )


def families_of_views(views: Sequence[Columns | None]) -> tuple[Any, ...]:
    """A family for each view, by its columns.

    Args:
        views: what their columns hold; None of a view that is an array, whose cells are zeros and ones.

    Returns:
        For each view a family, or a tuple with one for each column.
    """
    return tuple("bernoulli" if columns is None else _families(columns) for columns in views)


def family_of_columns(columns: Columns) -> Any:
    """The family of a table, or a tuple with one for each column.

    Yes/no is Bernoulli, counts are Poisson, other numbers and dates Gaussian of unknown noise, categories
    categorical; ordered levels are ordinal, each column with its own number of levels.

    Args:
        columns: of the table.

    Returns:
        A family, its name, or a tuple of these.
    """
    return families_of_views((columns,))[0]


def one_family_of_columns(columns: Columns) -> Any:
    """One family for all columns: that of each if they agree, else a Gaussian of unknown noise.

    Args:
        columns: of the table.

    Returns:
        A family, or its name.
    """
    kinds = {column.kind for column in columns.kept}
    name = {"yes/no": "bernoulli", "count": "poisson"}.get(next(iter(kinds))) if len(kinds) == 1 else None
    return name or Gaussian(noise_variance=None)


def _families(columns: Columns) -> Any:
    each = tuple(_family_of(column) for column in columns.kept)
    described = {repr(family) for family in each}
    return each[0] if len(described) == 1 else each


def _family_of(column: Column) -> Any:
    if column.kind in ("yes/no", "count"):
        return {"yes/no": "bernoulli", "count": "poisson"}[column.kind]
    num_levels = _num_levels(column)
    if num_levels == 0:
        return Gaussian(noise_variance=None)
    return Categorical(num_levels) if column.kind == "category" else Ordinal(num_levels)


def _num_levels(column: Column) -> int:
    if column.kind in ("category", "ordered"):
        return len(column.levels)
    return 0 if column.scale is None else column.scale[1] - column.scale[0] + 1


def tables_of_parts(
    data: Sequence[Any], given: Sequence[Any], choose: Any, model: str
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The parts of the data as numbers, and a family for each.

    Args:
        data: parts; tables of pandas are read by what their columns hold.
        given: for each part its family, or `AUTO`.
        choose: what each part's columns, None of an array, make of the families that are not given.
        model: its name, in messages.

    Returns:
        The parts with their tables as numbers, and the families; that of an array that is not given is
        ``"bernoulli"``.
    """
    names = ("x",) if len(data) == 1 else tuple(f"y_{place}" for place in range(len(data)))
    found = tuple(
        read_columns(part, name=name) if isinstance(part, pd.DataFrame) else None
        for name, part in zip(names, data, strict=True)
    )
    chosen = tuple(
        own if _is_auto(family) else family for family, own in zip(given, choose(found), strict=True)
    )
    parts = []
    for part, columns, family in zip(data, found, chosen, strict=True):
        if columns is not None:
            starts = as_family(family).level_starts(len(columns.kept))
            part = columns.numbered_from(starts, model).encoded(part)
        parts.append(part)
    return tuple(parts), chosen


class ChoosesFamily:
    """A model whose families may be `AUTO`: until data decide, those cells are zeros and ones.

    Class attributes:
        family_field: the field that holds them.
    """

    family_field: ClassVar[str] = "family"
    _given: ClassVar[Mapping[str, Any] | None] = None

    def _remember_auto(self) -> None:
        """Keep the fields as they were given, before a family and what follows from it take the place."""
        held = getattr(self, self.family_field)
        names = (held,) if isinstance(held, str) else held if isinstance(held, tuple | list) else ()
        if not any(map(_is_auto, names)):
            return
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
        object.__setattr__(self, "_given", given)
        settled = tuple("bernoulli" if _is_auto(name) else name for name in names)
        object.__setattr__(self, self.family_field, settled[0] if isinstance(held, str) else settled)

    @staticmethod
    def families_for(columns: Sequence[Columns | None]) -> tuple[Any, ...]:
        """The families for what the columns of each part hold.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            One for each part.
        """
        return families_of_views(columns)

    @classmethod
    def suitable_for_columns(cls, columns: Sequence[Columns | None]) -> dict[str, Any]:
        """The families of the columns, and a number of latents.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            Field name to value.

        Raises:
            ValueError: one family of densities for columns that have probabilities.
        """
        families = cls.families_for(columns)
        for own, family in zip(columns, families, strict=True):
            if not isinstance(family, tuple) and as_family(family).cell_units != "none":
                no_densities(cls.__name__, (own,))
        return cls.fields_of_families(families, [1 if own is None else len(own.kept) for own in columns])

    @classmethod
    def fields_of_families(cls, families: Sequence[Any], sizes: Sequence[int]) -> dict[str, Any]:
        """Fields with these families that suit tables of so many columns.

        Args:
            families: of each part of the data.
            sizes: numbers of columns.

        Returns:
            Field name to value.
        """
        check_num_parts(cls.__name__, len(sizes), 1)
        return {cls.family_field: families[0], "num_latents": max(1, min(_SIZE, sizes[0] - 1))}

    def suited_to(self, columns: Sequence[Columns | None]) -> Any:
        """The model with the families of the columns of tables, where none were given.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            The model.
        """
        if self._given is None or all(own is None for own in columns):
            return self
        held, chosen = self._given[self.family_field], self.families_for(columns)
        if isinstance(held, str):
            return type(self)(**dict(self._given) | {self.family_field: chosen[0]})
        both = zip(held, (*chosen, *["bernoulli"] * len(held)), strict=False)
        settled = tuple(own if _is_auto(name) else name for name, own in both)
        return type(self)(**dict(self._given) | {self.family_field: settled})

    def takes_levels(self, columns: Sequence[Columns | None]) -> tuple[np.ndarray, ...]:
        """Columns of ordered and categorical cells, and the number of their first level.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            For each part shape (its columns,), -1 where cells are no levels.
        """
        return tuple(level_starts(*pair) for pair in zip(self.cell_families, columns, strict=False))


def _is_auto(family: Any) -> bool:
    return isinstance(family, str) and family == AUTO


def level_starts(family: Family, columns: Columns | None) -> np.ndarray:
    """The number of the first level of each column of a table, -1 where cells are no levels.

    Args:
        family: of the table.
        columns: of the table, or None of an array.

    Returns:
        Shape (its columns,); nothing for an array.
    """
    size = 0 if columns is None else len(columns.kept)
    return family.level_starts(size)[:size] if size else np.zeros(0)
