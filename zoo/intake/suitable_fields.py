"""Default fields that suit a data set, for the comparison of models on it.

Cells of numbers are judged by their values: zeros and ones get Bernoulli cells, whole numbers from 0 Poisson
ones, other numbers Gaussian ones of unknown variance, whose default priors are as wide as the data, in every
model that has a choice; a sparse matrix holds documents. A table with words, or with kinds that are given,
has the families of its columns. Then all models score the same thing, a density, a probability, or that of a
document given its length, and their log densities compare; a model that scores something else is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.checks import as_matrix, as_numbers, check_num_parts, first_of
from zoo.conjugate.cellwise import PoissonGamma
from zoo.conjugate.multinomial_dirichlet import MultinomialDirichlet
from zoo.exponential_family import as_family
from zoo.fields import family_field, names_of
from zoo.intake.families import FAMILIES, as_taken, components_of, families_for
from zoo.intake.kinds import Columns
from zoo.intake.tables import NUMBERS, without_ids
from zoo.model import Model


def kind_of_cells(x: Any) -> str:
    """The kind of the cells of a table, judged by their values.

    Args:
        x: a table of numbers, NaN where missing; a sparse one holds counts.

    Returns:
        ``"yes/no"``, ``"count"`` or ``"real"``.
    """
    if hasattr(x, "tocsr"):
        return "count"
    values = as_numbers(x)
    values = values[~np.isnan(values)]
    if np.isin(values, (0.0, 1.0)).all():
        return "yes/no"
    return "count" if (values >= 0).all() and (values == np.round(values)).all() else "real"


def sizes_for(model: type[Model], num_rows: int, widths: Sequence[int]) -> dict[str, Any]:
    """Numbers of latents for a comparison: two, or one where rows or columns are too few.

    Of several views that is one shared latent, and one of each wide view's.

    Args:
        model: its class.
        num_rows: of the data.
        widths: numbers of columns of the parts of the data.

    Returns:
        Field name to value.
    """
    if "num_shared" in names_of(model).static:
        return {"num_shared": 1, "num_specific": tuple(int(width > 1) for width in widths)}
    has_latents = "num_latents" in names_of(model).static
    return {"num_latents": max(1, min(2, widths[0] - 1, num_rows - 1))} if has_latents else {}


def suitable_fields(model: type[Model], data: Sequence[Any]) -> dict[str, Any]:
    """Fields of a model that suit the data, besides those that `from_data` reads off them.

    Args:
        model: its class.
        data: the parts of the data; tables of two axes.

    Returns:
        Field name to value.

    Raises:
        TypeError: the model takes another number of parts.
        ValueError: the model scores densities, and the cells are zeros and ones, or counts; or it has no
            density of rows.
    """
    name, x = model.__name__, data[0]
    _check_num_tables(model, data)
    check_scores_new_rows(model)
    if model.data[0].holds_documents:
        if not hasattr(x, "tocsr"):
            raise ValueError(
                f"{name} scores documents given their lengths: give their counts as a sparse matrix"
            )
        return {}
    if family_field(model) == "components":
        components = _suitable_components(x)
        return {} if components is None else {"components": components}
    if hasattr(x, "tocsr"):
        raise ValueError(f"{name} scores cells, which does not compare with documents given their lengths")
    sizes = sizes_for(model, len(x), [part.shape[1] for part in data])
    kinds = [kind_of_cells(part) for part in data]
    if family_field(model):
        return _held(model, [FAMILIES[kind][0] for kind in kinds]) | sizes
    if kinds[0] not in model.data[0].cells:
        held = "zeros and ones" if kinds[0] == "yes/no" else "whole numbers"
        raise ValueError(f"{name} has densities, which do not compare with probabilities of {held}")
    return sizes


def check_scores_new_rows(model: type[Model]) -> None:
    """Raise ValueError unless the model has a density of new rows, by which it can be compared."""
    if not model.answers.has_density:
        raise ValueError(f"{model.__name__} has no density of rows to compare")
    if model.data[0].holds_documents and getattr(model, "scored_over_fitted", False):
        raise ValueError(
            f"{model.__name__} fits the topic shares of a new document to that document, which more topics "
            "always do better: compare by inference.diagnostics.heldout(tree, counts, protocol='completion')"
        )


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
    labels = [place for place, table in enumerate(model.data) if "class_labels" in table.cells]
    own = tuple(None if place in labels else found for place, found in enumerate(columns))
    fields = None
    if any(found is not None and found.needs_families for found in own):
        fields = _fields_for_columns(model, data, own)
        own = as_taken(model(**fields), own)
    ids = [None if found is None else found.label for found in columns]
    parts = tuple(
        without_ids(part, label) if found is None else as_matrix(found.encoded(part))
        for part, found, label in zip(data, own, ids, strict=True)
    )
    return suitable_fields(model, parts) if fields is None else fields, parts


def _fields_for_columns(
    model: type[Model], data: Sequence[Any], columns: Sequence[Columns | None]
) -> dict[str, Any]:
    """Fields with which a model suits tables whose columns are of several kinds, or ValueError."""
    _check_num_tables(model, columns)
    if not family_field(model):
        kept = [column for own in columns if own is not None for column in own.kept]
        named = [column.name for own in columns if own is not None for column in own.with_families]
        raise ValueError(f"{model.__name__} takes numbers alone, {_unlike(named, len(kept))}")
    if family_field(model) == "components":
        return {"components": None if columns[0] is None else components_of(columns[0])}
    families = families_for(model, columns)
    for own, family in zip(columns, families, strict=True):
        if own is not None and not isinstance(family, tuple) and as_family(family).cell_units != "none":
            _check_no_probabilities(model.__name__, own)
    widths = [
        part.shape[1] if own is None else len(own.kept) for part, own in zip(data, columns, strict=True)
    ]
    return _held(model, families) | sizes_for(model, len(data[0]), widths)


def _check_num_tables(model: type[Model], data: Sequence[Any]) -> None:
    has_views = "*" in model.data[0].name
    check_num_parts(model.__name__, len(data), 2 if has_views else len(model.data))


def _held(model: type[Model], families: Sequence[Any]) -> dict[str, Any]:
    """The field that holds the families of the parts."""
    return {family_field(model): tuple(families) if "*" in model.data[0].name else families[0]}


def _check_no_probabilities(name: str, columns: Columns) -> None:
    """Raise ValueError naming columns that have probabilities, for a model that scores densities."""
    discrete = [c.name for c in columns.kept if c.kind not in NUMBERS]
    if discrete:
        raise ValueError(f"{name} scores densities alone, {_unlike(discrete, len(columns.kept))}")


def _unlike(names: Sequence[str], number: int) -> str:
    """Which of so many columns have probabilities or a family, and how to leave them out if others remain."""
    if len(names) == number:
        return "and all columns have families of their own"
    it, has = ("it", "has a family of its own") if len(names) == 1 else ("them", "have families of their own")
    how = ",".join(f"{column}=leave_out" for column in names)
    return f"and {first_of(names, 4)} {has}: leave {it} out to compare it, by --families {how}"


def _suitable_components(x: Any) -> Any:
    """Components for the kind of cells, independent by column unless these are complete real numbers."""
    if hasattr(x, "tocsr"):
        return MultinomialDirichlet.from_data(x)
    kind = kind_of_cells(x)
    if kind == "real" and not np.isnan(as_numbers(x)).any():
        return None
    if kind == "count":  # a column without events: as if half a one had been seen
        means = np.nanmean(as_numbers(x), axis=0)
        return PoissonGamma.from_data(x, rate=1.0 / np.maximum(means, 0.5 / len(x)))
    return FAMILIES[kind][1].from_data(x)
