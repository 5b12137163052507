"""Checks of data and of single arguments, whose errors name the culprit, the expected and the given value."""

from collections.abc import Collection
from typing import Any

import numpy as np

__all__ = [
    "as_matrix",
    "check_cells",
    "check_choice",
    "check_columns",
    "check_counts",
    "check_finite",
    "check_flag",
    "check_infinite",
    "check_not_constant",
    "check_num_parts",
    "check_number",
    "check_positive",
    "check_rows",
    "check_scale",
    "check_size",
    "check_some_cells",
    "check_whole",
    "column_scales",
    "largest_in_columns",
    "unit_roundoff",
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


# What a precision can hold


def largest_in_columns(x: Any) -> np.ndarray:
    """The largest cell of each column, 0 where no cell is above it; ``x`` may be sparse.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing; or `zoo.SparseCounts`.

    Returns:
        Shape (num_features,).
    """
    if hasattr(x, "word"):
        largest = np.zeros(x.shape[1])
        np.maximum.at(largest, x.word, x.count)
        return largest
    return np.fmax.reduce(x, axis=0, initial=0.0)


ROUNDING = 0.01  # nats: the most that rounding may cost the log density of a cell of counts
SCALES = {"float64": (1e-150, 1e150), "float32": (1e-16, 1e16)}  # sums of squares stay in range


def unit_roundoff(dtype: str) -> float:
    """The largest relative error of rounding a number.

    Args:
        dtype: ``"float64"`` or ``"float32"``.

    Returns:
        Half the distance of 1 from the next number.
    """
    return float(np.finfo(dtype).eps) / 2


def _largest_count(dtype: str) -> float:
    """The c at which the rounding of log c!, about c log c units in the last place, reaches `ROUNDING`."""
    target, count = ROUNDING / unit_roundoff(dtype), 1e3
    for _ in range(60):
        count = target / np.log(count)
    return float(count)


LARGEST_COUNTS = {dtype: _largest_count(dtype) for dtype in SCALES}


def check_counts(
    sizes: np.ndarray, dtype: str = "float64", name: str = "x", labels: Collection[Any] | None = None
) -> None:
    """Raise ValueError naming the first column whose counts or trials are too large for the precision.

    The log probability of a count c is a difference of terms of about c log c nats. Where their rounding
    comes to a hundredth of a nat for each cell (c = 1.7e4 in single and 3.1e12 in double precision),
    evidences and bounds mean little, and soon nothing.

    Args:
        sizes: largest count or number of trials of each column, 0 in columns of other cells.
        dtype: the precision of the computation.
        name: of the data in messages.
        labels: names of the columns, or None.
    """
    largest = LARGEST_COUNTS[dtype]
    column = int(np.argmax(sizes)) if len(sizes) else 0
    if not len(sizes) or sizes[column] <= largest:
        return
    remedy = (
        "fit with dtype='float64'"
        if sizes[column] <= LARGEST_COUNTS["float64"]
        else "divide the counts by a common factor, or model their logarithms as real numbers"
    )
    raise ValueError(
        f"column {_label(labels, column)} of {name} has counts or trials up to {sizes[column]:.3g}; "
        f"{dtype} holds the log probabilities of counts up to {largest:.2g}: {remedy}"
    )


def check_scale(
    x: np.ndarray,
    dtype: str = "float64",
    name: str = "x",
    labels: Collection[Any] | None = None,
    *,
    is_whole: bool = True,
) -> None:
    """Raise ValueError naming the first column whose squares leave the range of the precision.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing.
        dtype: the precision of the computation.
        name: of the data in messages.
        labels: names of the columns, or None.
        is_whole: whether these are all rows; some of them may all be small.
    """
    smallest, largest = SCALES[dtype]
    size = np.where(np.isfinite(x), np.abs(x), 0.0).max(axis=0, initial=0.0)
    bad = np.flatnonzero((size > largest) | (is_whole & (size > 0) & (size < smallest)))
    if not bad.size:
        return
    column = int(bad[0])
    kind = "overflow" if size[column] > largest else "underflow"
    other = SCALES["float64"]
    wider = dtype == "float32" and other[0] <= size[column] <= other[1]
    remedy = ", or fit with dtype='float64'" if wider else ""
    raise ValueError(
        f"column {_label(labels, column)} of {name} holds values of size {size[column]:.3g}, whose squares "
        f"{kind} in {dtype} (which takes sizes from {smallest:g} to {largest:g}): rescale the column, such "
        f"as by 1e{-np.floor(np.log10(size[column])):+.0f}{remedy}"
    )


def _label(labels: Collection[Any] | None, column: int) -> str:
    return str(column) if labels is None else repr(list(labels)[column])
