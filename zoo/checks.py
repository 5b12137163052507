"""Checks of data and of single arguments, whose errors name the culprit, the expected and the given value."""

from collections.abc import Collection
from typing import Any

import numpy as np

__all__ = [
    "as_matrix",
    "check_cells",
    "check_choice",
    "check_columns",
    "check_finite",
    "check_flag",
    "check_infinite",
    "check_not_constant",
    "check_num_parts",
    "check_number",
    "check_positive",
    "check_rows",
    "check_size",
    "check_some_cells",
    "check_whole",
    "column_scales",
]


def as_matrix(x: Any, name: str = "x") -> np.ndarray:
    """The data as a float64 array.

    Args:
        x: an array, a table of pandas or nested lists.
        name: of the data in messages.

    Returns:
        Shape (num_observations, num_features).

    Raises:
        TypeError: a column holds text or other things that are not numbers.
        ValueError: not two-dimensional, or without columns.
    """
    columns = getattr(x, "columns", None)
    if columns is not None:
        for column, kind in zip(columns, x.dtypes, strict=True):
            if getattr(kind, "kind", "O") not in "biuf":
                raise TypeError(f"column {column!r} of {name} is not numeric: its type is {kind}")
        array = x.to_numpy(dtype=np.float64)
    else:
        array = np.asarray(x)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be numeric; got an array of type {array.dtype}")
        array = array.astype(np.float64, copy=False)
    if array.ndim != 2:
        hint = "; for one feature use x[:, None]" if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (num_observations, num_features); got {array.shape}{hint}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns")
    return array


def check_finite(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first row and column that is NaN or infinite.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    _refuse_cells(x, ~np.isfinite(x), f"{name} must be finite, because this model cannot miss cells")


def _refuse_cells(x: np.ndarray, bad: np.ndarray, message: str) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        count = f"({bad.sum()} such cells in all)"
        raise ValueError(f"{message}; row {row}, column {column} is {x[row, column]:g} {count}")


def column_scales(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the observed cells of each column; 0 where there is none.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Two arrays of shape (num_features,).
    """
    seen = ~np.isnan(x)
    count = np.maximum(seen.sum(axis=0), 1)
    means = np.where(seen, x, 0.0).sum(axis=0) / count
    away = np.where(seen, x - means, 0.0)
    return means, np.sqrt((away**2).sum(axis=0) / count)


def check_rows(x: np.ndarray, at_least: int, why: str, name: str = "x") -> None:
    """Raise ValueError if the data have fewer rows than ``at_least``.

    Args:
        x: shape (num_observations, num_features).
        at_least: rows needed.
        why: they are needed.
        name: of the data in messages.
    """
    if x.shape[0] < at_least:
        raise ValueError(f"{name} must have at least {at_least} rows ({why}); got {x.shape[0]}")


def check_not_constant(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first column whose values are all equal; ``x`` may be sparse.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    extremes = x.extremes if hasattr(x, "extremes") else lambda: (np.nanmin(x, axis=0), np.nanmax(x, axis=0))
    lowest, highest = extremes()
    constant = np.flatnonzero(highest == lowest)
    if constant.size:
        raise ValueError(
            f"column {constant[0]} of {name} is constant ({lowest[constant[0]]}): it has no variance; "
            f"leave it out"
        )


def check_columns(
    x: np.ndarray, num_features: int | None, name: str = "x", owner: str = "component prior"
) -> None:
    """Raise ValueError if the number of columns is not the expected one.

    Args:
        x: shape (num_observations, num_features).
        num_features: expected number; None: any.
        name: of the data in messages.
        owner: object that has the expected number of columns, for the message.
    """
    if num_features is not None and x.shape[1] != num_features:
        raise ValueError(f"{name} must have {num_features} columns, as the {owner} has; got {x.shape[1]}")


def check_cells(x: np.ndarray, good: np.ndarray, what: str, name: str = "x") -> None:
    """Raise ValueError naming the first cell that is neither good nor missing (NaN).

    Args:
        x: the data.
        good: which cells are allowed, same shape.
        what: requirement on the cells, for the message.
        name: of the data.
    """
    bad = ~good
    bad &= ~np.isnan(x)
    _refuse_cells(x, bad, f"{name} must hold {what}")


def check_infinite(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first infinite cell; NaN is a missing cell and allowed.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    _refuse_cells(x, np.isinf(x), f"{name} must be finite or NaN (missing)")


def check_some_cells(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first column, or else row, in which every cell is missing (NaN).

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    missing = np.isnan(x)
    for axis, kind, other in ((0, "column", "rows"), (1, "row", "columns")):
        empty = np.flatnonzero(missing.all(axis=axis))
        if empty.size:
            raise ValueError(
                f"{kind} {empty[0]} of {name} is missing in all {other} ({empty.size} such {kind}s in all): "
                f"leave it out"
            )


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of the names in ``choices``.

    Args:
        name: of the argument in the message.
        value: given value.
        choices: allowed names.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a boolean.

    Args:
        name: of the argument in the message.
        value: given value.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {value!r}")


def check_num_parts(name: str, given: int, needed: int) -> None:
    """Raise TypeError unless the number of parts of data is the one that the model takes.

    Args:
        name: of the model.
        given: number of parts.
        needed: number that it takes.
    """
    if given != needed:
        parts = "part" if needed == 1 else "parts"
        raise TypeError(
            f"{name} takes {needed} {parts} of data; there {'is' if given == 1 else 'are'} {given}"
        )


def check_size(name: str, value: Any, least: int = 1) -> None:
    """Raise TypeError unless ``value`` is a whole number, ValueError if it is below ``least``.

    Args:
        name: of the argument in the message.
        value: given value.
        least: smallest allowed value.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``.

    Args:
        name: of the argument in the message.
        value: given value.
        least: smallest allowed value.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")


def check_number(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a Python number.

    Args:
        name: of the argument in the message.
        value: given value.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is one positive, finite number.

    Args:
        name: of the argument in the message.
        value: given value.
    """
    if value is None or np.shape(value) != () or not 0 < value < np.inf:
        raise ValueError(f"{name} must be a positive number; got {value}")
