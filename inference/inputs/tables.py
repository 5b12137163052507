"""Arrays from the data that are passed to `fit`, and the names of their rows and columns.

Accepted: NumPy arrays, masked ones too, nested lists, pandas DataFrames (index and columns become coords),
scipy sparse matrices where the model takes counts (or real numbers, `zoo.sparse`), and None for a part that
is missing. Several parts of pandas are paired by their index (`paired_rows`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from inference.inputs.text import read_documents
from zoo.checks import as_matrix, check_unique
from zoo.documents.bags import warn_of_empty
from zoo.model import Model
from zoo.sparse import SparseCounts, SparseMatrix

__all__ = ["as_arrays", "check_parts", "column_dims", "matching_columns", "paired_rows"]


def as_arrays(model: Model, data: tuple) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Each part of the data as a float64 matrix, and coords by dim; documents as sparse counts.

    Documents without words are warned of.

    Args:
        model: which says what the parts are.
        data: the parts, as many as the model has or the first of them.

    Raises:
        TypeError: a column is not numeric, or sparse rows that the model does not take.
        ValueError: a part is not two-dimensional, or two columns of one name.
    """
    if model.takes_documents:
        (counts,), coords = read_documents(*data)
        lengths = np.bincount(counts.document, counts.count, counts.shape[0])
        warn_of_empty(lengths, data[0], coords.get("document"))
        return (counts,), coords
    arrays, coords = [], {}
    for part, dim, name in zip(data, column_dims(model), model.data_names, strict=False):
        if isinstance(part, SparseMatrix | SparseCounts) and model.takes_sparse:
            arrays.append(part)
        elif hasattr(part, "tocoo") and model.takes_sparse:
            arrays.append(SparseCounts.from_matrix(part))
        else:
            arrays.append(as_matrix(part, name))
        if hasattr(part, "columns"):
            coords[dim] = list(part.columns)
            coords.setdefault("observation", list(part.index))
    return tuple(arrays), coords


def column_dims(model: Model) -> tuple[str, ...]:
    """Dims of the columns of each part of a model's data."""
    return tuple(model.variable_dims[name][-1] for name in model.data_names)


def check_parts(
    model: Model | type[Model],
    data: tuple,
    least: int | None = None,
    weighted: Callable[[Model | type[Model]], tuple[str, ...]] | None = None,
) -> None:
    """Raise TypeError unless the data are as many parts as the model takes.

    Args:
        model: the model, or its class where that knows its ``data_names``.
        data: the parts.
        least: number of parts that must be there; None: all.
        weighted: the model's methods that take weights of rows, asked for where a part too many may have been
            meant as weights; None: the call takes no weights.
    """
    if not data:
        raise TypeError("there is no data: call fit(model, x, ...)")
    names, given = model.data_names, len(data)
    if (least or len(names)) <= given <= len(names):
        return
    parts = f"{len(names)} part{'s' * (len(names) > 1)} of data, {' and '.join(names)}"
    if given < len(names):
        missing = " and ".join(names[given:])
        hint = f"{missing} {'is' if len(names) - given == 1 else 'are'} missing"
    else:
        hint = _hint_of(data, len(names), weighted(model) if weighted else ())
    name = model.__name__ if isinstance(model, type) else type(model).__name__
    raise TypeError(f"{name} takes {parts}; got {given}: {hint}")


def _hint_of(data: tuple, num_taken: int, weighted: tuple[str, ...]) -> str:
    """What a part beyond those that the model takes may have been meant for."""
    shape = _shape_of(data[num_taken])
    if shape is None or shape[1:] not in ((), (1,)) or shape[:1] != (_shape_of(data[0]) or ())[:1]:
        return "leave the others out"
    outputs = "; class labels and outputs go with zoo.SPPCA" if num_taken == 1 else ""
    if not weighted:
        return f"leave the others out{outputs}"
    methods = f"method{'s' * (len(weighted) > 1)} {' and '.join(weighted)}"
    return f"the last has one value a row; did you mean sample_weight=... ({methods})?{outputs}"


def _shape_of(part: Any) -> tuple[int, ...] | None:
    """Shape of a part of the data; None of chunks, which have none."""
    if isinstance(part, list | tuple):
        return (len(part), *(_shape_of(part[0]) or ())) if part else (0,)
    return tuple(part.shape) if hasattr(part, "shape") else None


# Rows of several parts


def paired_rows(data: tuple, names: tuple[str, ...]) -> tuple:
    """The parts of the data with their rows in the order of the first part's.

    Tables and Series of pandas are paired by their index: the same labels in another order are put in the
    first part's order. An array beside them has no labels, and is paired by position.

    Args:
        data: the parts, None where one is missing.
        names: of the parts, in messages.

    Returns:
        The parts.

    Raises:
        ValueError: a part of pandas with other labels than the first, with labels that occur twice and are
            not in the same order, or with labels other than 0, 1, ... beside an array as first part.
    """
    given = [place for place, part in enumerate(data) if part is not None]
    if len(given) < 2 or not any(map(_has_index, data)):
        return data
    first, paired = given[0], list(data)
    for place in given[1:]:
        if _has_index(part := data[place]):
            paired[place] = _in_order(part, names[place], data[first], names[first])
    return tuple(paired)


def _has_index(part: Any) -> bool:
    return hasattr(part, "iloc") and hasattr(part, "index")


def _in_order(part: Any, name: str, first: Any, first_name: str) -> Any:
    """A part of pandas in the order of the first part's rows."""
    by_position = f"to pair rows by position, pass {name}.to_numpy()"
    if not _has_index(first):
        strange = [(row, label) for row, label in enumerate(map(str, part.index)) if label != str(row)]
        if not strange:
            return part
        row, label = strange[0]
        raise ValueError(
            f"{name} has an index and {first_name} has none, so that its order is not known (row {row} of "
            f"{name} is labelled {label!r}): {by_position}"
        )
    labels, wanted = part.index, first.index
    if labels.equals(wanted):
        return part
    for index, of in ((labels, name), (wanted, first_name)):
        if index.has_duplicates:
            raise ValueError(
                f"the index of {of} has the label {index[index.duplicated()][0]!r} twice, so that the rows "
                f"of {first_name} and {name} cannot be paired by their labels: {by_position}"
            )
    lacking, strange = wanted[~wanted.isin(labels)], labels[~labels.isin(wanted)]
    if len(lacking):
        raise ValueError(
            f"the rows of {name} are labelled otherwise than those of {first_name}: {first_name} has a row "
            f"{lacking[0]!r}, which {name} lacks ({len(lacking)} such rows in all); {by_position}"
        )
    if len(strange):
        raise ValueError(
            f"{name} has a row {strange[0]!r}, which {first_name} lacks ({len(strange)} such rows in all); "
            f"pass {name}.loc[{first_name}.index]"
        )
    return part.loc[wanted]


def matching_columns(x: Any, features: np.ndarray) -> Any:
    """New rows with their columns in the order of the fit; a DataFrame is matched by name.

    Args:
        x: new rows.
        features: names of the fitted columns.

    Raises:
        ValueError: another number of columns, a fitted column is missing, or there are two of its name.
    """
    if not hasattr(x, "columns"):
        return x
    named = {str(column): column for column in x.columns}
    missing = [str(name) for name in features if str(name) not in named]
    if missing:
        raise ValueError(
            f"new data lack the columns {', '.join(missing)} of the fit; they have {', '.join(named)}"
        )
    wanted = set(map(str, features))
    check_unique([column for column in x.columns if str(column) in wanted], "new data")
    return x[[named[str(name)] for name in features]]
