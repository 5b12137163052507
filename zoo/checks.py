"""Checks of data and of single arguments, whose errors name the culprit, the expected and the given value.

Every reader of numbers goes through `as_plain`: a masked cell of NumPy (``numpy.ma``), None, ``pandas.NA``
and NaN are all the missing cell NaN, which a model takes or refuses. ``numpy.asarray`` alone would take what
lies under a mask for data.
"""

import contextlib
import math
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from zoo.sparse import SparseCounts, SparseMatrix

try:
    import resource
except ImportError:  # Windows
    resource = None

_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

LARGE_MEAN = 10  # times the variance: squares of smaller means may be taken off the mean squares
BLOCK_CELLS = 2**17  # of a block of rows that stays in the cache
LONGEST_SHOWN = 100  # characters of a value in a message
_SKIPPED = ("sklearn", "jax", "jaxlib", "numpyro", "joblib")  # libraries through which a caller reaches us
MOST = 2**31 - 1  # of what is counted: places in arrays, which have no more along an axis
NUMBERS = "biuf"  # NumPy's kinds of types that are read as real numbers
MOST_NAMED = 8  # columns that a message lists


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller: the first one that is not of this library, nor of one that calls it."""
    here = Path(__file__).parents[1]
    held = [
        sys.modules[name].__file__ for name in _SKIPPED if getattr(sys.modules.get(name), "__file__", None)
    ]
    folders = [here / "zoo", here / "inference", *(Path(file).parent for file in held)]
    # Python 3.12 does not find a prefix that is the whole name
    decorators = os.path.splitext(contextlib.__file__)[0]
    prefixes = (*(f"{folder}{os.sep}" for folder in folders), decorators)
    warnings.warn(message, category, skip_file_prefixes=prefixes)


# Names of rows and columns in messages


class _Labels(NamedTuple):
    """Labels of the rows and columns of an array that was made from a table, or taken from one."""

    array: weakref.ref
    columns: Sequence[Any] | None
    index: Any
    places: Sequence[int] | None = None  # of the columns in the whole table, where these are some of them


_LABELS: dict[int, _Labels] = {}  # by the identity of an array, for as long as it lives


def keep_labels(array: np.ndarray, table: Any) -> None:
    """Remember the labels of a table for messages on the array that its cells were read into, and for a fit.

    The array stays an ordinary one; computed ones have no labels, and messages give their places.

    Args:
        array: shape (num_observations, num_features).
        table: a DataFrame of that shape (anything with ``columns`` and ``index``).
    """
    _remember(array, table.columns, table.index)


def _remember(array: np.ndarray, columns: Any, index: Any, places: Sequence[int] | None = None) -> None:
    key = id(array)
    forget = weakref.ref(array, lambda _: _LABELS.pop(key, None))
    _LABELS[key] = _Labels(forget, columns, index, places)


def copy_labels(array: np.ndarray, of: np.ndarray) -> None:
    """Remember the labels of one array for another of the same rows and columns.

    Args:
        array: shape (num_observations, num_features).
        of: the array that may have labels.
    """
    labels = kept_labels(of)
    if labels is not None:
        _remember(array, *labels[1:])


def take_columns(x: Any, places: Sequence[int]) -> Any:
    """Some columns of an array, whose messages name them as those of the whole array.

    Args:
        x: shape (num_observations, num_features).
        places: of the columns.

    Returns:
        Shape (num_observations, number of places).
    """
    places = list(places)
    part = x[:, places]
    if isinstance(part, np.ndarray):
        labels = kept_labels(x)
        columns, index, whole = (None, None, None) if labels is None else labels[1:]
        named = None if columns is None else [columns[place] for place in places]
        _remember(part, named, index, places if whole is None else [whole[place] for place in places])
    return part


def take_rows(x: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, whose messages name them and the columns as those of the whole array.

    Args:
        x: shape (num_observations, num_features).
        rows: their places, or whether each is taken.

    Returns:
        Shape (number of rows, num_features).
    """
    part, labels = x[rows], kept_labels(x)
    if labels is not None:
        _remember(part, labels.columns, None if labels.index is None else labels.index[rows], labels.places)
    return part


def kept_labels(array: object) -> _Labels | None:
    """The labels that are remembered for an array; None: none are."""
    found = _LABELS.get(id(array))
    return found if found is not None and found.array() is array else None


def column_of(array: object, place: int) -> str:
    """A column in a message: ``column 'income'``, or ``column 3`` of an array without names."""
    return f"column {_column_label(array, int(place))!r}"


def _is_table(array: object) -> bool:
    """Whether an array was made from a table of pandas, whose rows and columns have labels."""
    labels = kept_labels(array)
    return labels is not None and labels.columns is not None


def column_labels(array: object, places: Sequence[int]) -> tuple[Any, ...]:
    """Names of columns in a message, or their places in the whole array where they have none."""
    return tuple(_column_label(array, int(place)) for place in places)


def _column_label(array: object, place: int) -> Any:
    """The name of a column, or its place in the whole table where it has none."""
    labels = kept_labels(array)
    if labels is None:
        return place
    if labels.columns is None:
        return labels.places[place]
    return _plain_label(labels.columns[place])


def row_of(array: object, place: int) -> str:
    """A row in a message: ``row 'anna'``, or ``row 14`` counted from 0 where rows have no labels."""
    labels = kept_labels(array)
    if labels is None or labels.index is None:
        return f"row {int(place)}"
    if isinstance(labels.index, pd.RangeIndex):
        return f"row {labels.index[int(place)]}"
    return f"row {_plain_label(labels.index[int(place)])!r}"


def _plain_label(label: object) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def without_columns(array: object, places: Collection[int], name: str = "x") -> str:
    """The expression that leaves columns out, for the end of a message."""
    labels = kept_labels(array)
    found = _one_or_all([_column_label(array, int(place)) for place in places])
    if labels is None or labels.columns is None:
        return f"np.delete({name}, {found}, axis=1)"
    return f"{name}.drop(columns={found})"


def without_rows(array: object, places: Collection[int], name: str = "x") -> str:
    """The expression that leaves rows out, for the end of a message."""
    labels = kept_labels(array)
    if labels is None or labels.index is None:
        return f"np.delete({name}, {_one_or_all(list(map(int, places)))}, axis=0)"
    return f"{name}.drop(index={_one_or_all([_plain_label(labels.index[int(p)]) for p in places])})"


def _one_or_all(items: list) -> str:
    return repr(items[0] if len(items) == 1 else items)


# Reading numbers


def as_plain(x: Any, name: str = "x") -> np.ndarray:
    """The numbers as an ordinary array, masked or missing ones as NaN; nothing is copied without need.

    Args:
        x: an array, masked or not, a table or Series of pandas, or nested lists, of any shape.
        name: of the data in messages.

    Returns:
        An array of booleans, whole or real numbers, of the shape of ``x``.

    Raises:
        TypeError: something that is not a real number.
        ValueError: nested lists of different lengths.
    """
    if isinstance(x, list | tuple):
        x = _without_masks(x)
        try:
            x = np.asarray(x)
        except ValueError:
            raise ValueError(f"{name} must be a table, but its rows have different lengths") from None
    masked = np.ma.getmaskarray(x) if isinstance(x, np.ma.MaskedArray) else None
    try:
        array = np.asarray(x)
    except Exception as error:  # whatever an object says that can be no array
        if isinstance(x, np.ndarray | pd.DataFrame | pd.Series):
            raise
        kind = type(x).__name__
        inside = " inside a function that JAX compiles: call this outside it" if "Tracer" in kind else ""
        raise TypeError(f"{name} must be numeric; got {kind}{inside}") from error
    if array.dtype.kind == "O":
        array = _numbers_of(array, lambda place, value: _not_numeric(name, place, value), masked)
    if array.dtype.kind not in NUMBERS:
        raise TypeError(f"{name} must be numeric; got an array of type {array.dtype}")
    if masked is None or not masked.any():
        return array
    return np.where(masked, np.nan, array.astype(np.float64))


def as_numbers(x: Any, name: str = "x") -> np.ndarray:
    """The numbers as a float64 array, masked or missing ones as NaN.

    Returns:
        The shape of ``x``.
    """
    return as_plain(x, name).astype(np.float64, copy=False)


def table_numbers(table: Any, name: str = "x") -> np.ndarray:
    """The cells of a table of pandas as float64, missing ones as NaN.

    Returns:
        Shape (num_observations, num_features).

    Raises:
        TypeError: a column holds text or other things that are not numbers.
    """
    kinds = [getattr(kind, "kind", "O") for kind in table.dtypes]
    bad = [place for place, kind in enumerate(kinds) if kind not in NUMBERS and not _is_numeric(table, place)]
    if bad:
        raise TypeError(_not_numeric_columns(table, bad, name))
    if all(isinstance(kind, np.dtype) for kind in table.dtypes) and "O" not in kinds:
        return table.to_numpy(dtype=np.float64)
    columns = [as_numbers(table.iloc[:, place].to_numpy(), name) for place in range(len(kinds))]
    return np.stack(columns, axis=1)


def _is_numeric(table: Any, place: int) -> bool:
    """Whether a column of objects holds numbers and missing cells alone."""
    if table.dtypes.iloc[place] is not np.dtype(object):
        return False
    cells = table.iloc[:, place]
    return all(isinstance(cell, Real | Decimal | np.bool_) or cell is np.ma.masked for cell in _seen(cells))


def _seen(cells: pd.Series) -> pd.Series:
    """The cells that are not missing."""
    try:
        return cells.dropna()
    except ArithmeticError:  # a signalling NaN of decimals compares with nothing
        return cells


def _not_numeric_columns(table: Any, places: list[int], name: str) -> str:
    """The message for columns that are not numbers: what they hold, and what to do with the first."""
    names = [_plain_label(table.columns[place]) for place in places]
    first, cells = names[0], table.iloc[:, places[0]]
    message = f"column {first!r} of {name} is not numeric: its type is {cells.dtype}"
    if len(names) > 1:
        message += f" (nor are {first_of(map(repr, names[1:]), MOST_NAMED - 1)})"
    leave = f"{name}.drop(columns={_one_or_all(names)})"
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        given = f"{name}.assign(**{{{first!r}: ({name}[{first!r}] - {name}[{first!r}].min()).dt.days}})"
        return f"{message}; give days since the first, {given}, or leave it out, {leave}"
    seen = _seen(cells)
    numbers = pd.to_numeric(seen.map(str), errors="coerce")
    wrong = numbers.isna().to_numpy()
    if 0 < wrong.sum() <= len(seen) // 2:
        row, value = seen.index[wrong][0], seen[wrong].iloc[0]
        where = f"row {_plain_label(row)!r} is {value!r} ({int(wrong.sum())} such cells in all)"
        given = f"{name}.assign(**{{{first!r}: pd.to_numeric({name}[{first!r}], errors='coerce')}})"
        return f"{message}, and {where}; make such cells missing, {given}, or leave it out, {leave}"
    return f"{message}; leave {'it' if len(names) == 1 else 'them'} out, {leave}, or give numbers"


def _without_masks(x: Any) -> Any:
    """Nested lists whose masked arrays and masked cells are replaced: NumPy would drop their masks."""
    if isinstance(x, list | tuple):
        return [_without_masks(part) for part in x]
    if x is np.ma.masked:
        return np.nan
    return as_plain(x) if isinstance(x, np.ma.MaskedArray) else x


def _not_numeric(name: str, place: tuple[int, ...], value: object) -> str:
    where = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column", "layer"), place, strict=False))
    return f"{name} must be numeric; {where or 'it'} is {shown(value)}"


def _numbers_of(array: np.ndarray, message: Callable, masked: np.ndarray | None = None) -> np.ndarray:
    """Objects as float64, missing ones as NaN; TypeError with ``message(place, value)`` for another kind."""
    missing = _holds(lambda value: value is np.ma.masked, array)
    with contextlib.suppress(ArithmeticError):  # a signalling NaN of decimals compares with nothing
        missing |= pd.isna(array)
    if masked is not None:
        missing |= masked
    bad = np.argwhere(~(_holds(_is_real, array) | missing))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        raise TypeError(message(place, array[place]))
    numbers = np.full(array.shape, np.nan)
    numbers[~missing] = array[~missing].astype(np.float64)
    return numbers


def _holds(question: Callable, array: np.ndarray) -> np.ndarray:
    """The answer to a question for each object of an array, also of one without axes."""
    return np.asarray(np.frompyfunc(question, 1, 1)(array)).astype(bool)


def _is_real(value: object) -> bool:
    """Whether an object is a number that float64 has."""
    if not isinstance(value, Real | Decimal | np.bool_):
        return False
    try:
        float(value)
    except (ArithmeticError, TypeError, ValueError):  # a signalling NaN, a whole number of 400 digits
        return False
    return True


def check_unique(names: Iterable[Any], of: str, kind: str = "columns", remedy: str = "") -> None:
    """Raise ValueError if two columns have one name, as strings: a fit could not tell them apart."""
    names, found = list(map(str, names)), dict[str, int]()
    for name in names:
        found[name] = found.get(name, 0) + 1
    several = [name for name, count in found.items() if count > 1]
    if several:
        more = f" (and {len(several) - 1} more such names)" if len(several) > 1 else ""
        raise ValueError(
            f"{of} has {found[several[0]]} {kind} of the name {several[0]!r}{more}: names must differ; "
            + (remedy or f"rename them, {_renaming(names, of)}")
        )


def _renaming(names: list[str], of: str) -> str:
    """The expression that numbers columns of one name, for the end of a message."""
    if len(names) > MOST_NAMED or " " in of:
        return f"such as {of}.columns = [...]"
    taken: list[str] = []
    for name in names:
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        taken.append(free)
    return f"{of}.set_axis({taken}, axis=1)"


def as_matrix(x: Any, name: str = "x") -> np.ndarray:
    """The data as a float64 array.

    Args:
        x: an array, masked or not, a table of pandas or nested lists; masked cells, None, ``pandas.NA`` and
            NaN are missing cells.
        name: of the data in messages.

    Returns:
        Shape (num_observations, num_features), NaN where a cell is missing.

    Raises:
        TypeError: a sparse matrix, or a column holds text or other things that are not numbers.
        ValueError: not two-dimensional, without columns, or with two columns of one name.
    """
    if hasattr(x, "tocoo") or hasattr(x, "to_scipy"):
        raise TypeError(f"{name} must be dense: this model takes no sparse matrix; give {name}.toarray()")
    if hasattr(x, "columns"):
        if not hasattr(x, "iloc"):
            raise TypeError(f"{name} must be a table of pandas here: call {name}.to_pandas()")
        check_unique(x.columns, name)
        array = table_numbers(x, name)
    else:
        array = as_numbers(x, name)
    if array.ndim != 2:
        hint = ""
        if hasattr(x, "to_frame"):
            hint = f"; a Series is one column: {name}.to_frame()"
        elif array.ndim == 1:
            hint = f"; for one feature use {name}[:, None], for one row {name}[None]"
        raise ValueError(f"{name} must have shape (num_observations, num_features); got {array.shape}{hint}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns")
    array = np.ascontiguousarray(array)  # a table lies column by column: its sums differ in the last bit
    if hasattr(x, "columns"):
        keep_labels(array, x)
    elif array is not x:
        copy_labels(array, x)
    return array


def as_column(y: Any, name: str = "y") -> Any:
    """Numbers of one dimension as one column, anything else as it is.

    Returns:
        A table of one column with the name and the index of a Series that has a name, or an array of shape
        (num_observations, 1).
    """
    if hasattr(y, "columns") or hasattr(y, "tocoo"):
        return y
    if hasattr(y, "to_frame") and getattr(y, "name", None) is not None:
        return y.to_frame()
    array = as_plain(y, name)
    return array[:, None] if array.ndim == 1 else array


def check_finite(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first row and column that is NaN or infinite.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    if not is_finite(x):
        if len(x) > 1:
            _check_axis(x, name, 0)
        message = f"{name} must be finite, because this model cannot miss cells"
        _refuse_cells(x, ~np.isfinite(x), message, name, misses=False)


def _mended_infinite(x: np.ndarray, name: str, misses: bool) -> str:
    """What to do with infinite cells: missing ones where the model takes these, else their rows left out."""
    labelled = _is_table(x)
    if misses and labelled:
        return f"make them missing, {name}.replace([np.inf, -np.inf], np.nan)"
    if misses:
        return f"make them missing, np.where(np.isinf({name}), np.nan, {name})"
    rows = f"~np.isinf({name}).any(axis=1)"
    return f"mend them, or leave their rows out, {name}{'.loc' if labelled else ''}[{rows}]"


def _refuse_cells(
    x: np.ndarray, bad: np.ndarray, message: str, name: str, remedy: str = "", *, misses: bool = True
) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        count = f"({bad.sum()} such cells in all)"
        value = x[row, column]
        if np.isnan(value):
            drop = f"{name}.dropna()" if _is_table(x) else f"{name}[np.isfinite({name}).all(axis=1)]"
            remedy = f": fill missing cells, or leave their rows out, {drop}"
        elif np.isinf(value):
            remedy = f": {_mended_infinite(x, name, misses)}"
        raise ValueError(f"{message}; {row_of(x, row)}, {column_of(x, column)} is {value:g} {count}{remedy}")


def row_blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of rows that stay in the processor's cache, one after the other.

    Args:
        x: any shape but that of a single number.

    Yields:
        Views of ``x``, each of shape (some rows, *x.shape[1:]), all rows in turn.
    """
    size = max(1, BLOCK_CELLS // max(1, math.prod(x.shape[1:])))
    for first in range(0, len(x), size):
        yield x[first : first + size]


def check_complete(method: str, remedy: str, **parts: np.ndarray) -> None:
    """Raise ValueError naming the first missing cell of the named parts of the data."""
    for name, part in parts.items():
        if not is_finite(part) and np.isnan(part).any():
            row, column = np.argwhere(np.isnan(part))[0]
            raise ValueError(
                f"{method} needs every cell; {row_of(part, row)}, {column_of(part, column)} of {name} is "
                f"missing: {remedy}"
            )


def is_finite(x: np.ndarray) -> bool:
    """Whether all numbers are finite, told by their sum where that is finite.

    Args:
        x: any shape.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(x.sum()) or np.isfinite(x).all())


def column_moments(x: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the observed cells of each column; 0 where there is none.

    The deviation of a column of equal cells is exactly zero, not what rounding makes of it.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing.
        weight: as often as each row counts, shape (num_observations,); None: once.

    Returns:
        Two arrays of shape (num_features,).
    """
    if weight is not None:
        known = np.where(np.isnan(x), 0.0, weight[:, None])
        count = np.where((count := known.sum(axis=0)) > 0, count, 1.0)
        means = (known * np.where(known > 0, x, 0.0)).sum(axis=0) / count
        squares = (known * np.where(known > 0, x - means, 0.0) ** 2).sum(axis=0)
        return means, _without_rounding(x[weight > 0], means, np.sqrt(squares / count))
    kind = x.dtype if x.dtype.kind == "f" else np.float64  # sums are in float64 whatever it is
    with np.errstate(over="ignore", invalid="ignore"):
        sums = x.sum(axis=0, dtype=np.float64)
    if x.size and np.isfinite(sums).all():
        means = sums / len(x)
        if x.dtype == np.float64:  # one pass instead of two, at the cost of a digit at most
            with np.errstate(over="ignore", invalid="ignore"):
                variances = np.einsum("ij,ij->j", x, x) / len(x) - means**2
                if (means**2 <= LARGE_MEAN * variances).all():
                    return means, np.sqrt(variances)
        squares, size = np.zeros_like(means), -(-BLOCK_CELLS // x.shape[1])
        block = np.empty((min(size, len(x)), x.shape[1]))
        for first in range(0, len(x), size):
            rows = x[first : first + size]
            away = np.subtract(rows, means, out=block[: len(rows)])
            squares += np.einsum("ij,ij->j", away, away)
        return means.astype(kind), _without_rounding(x, means, np.sqrt(squares / len(x))).astype(kind)
    seen = ~np.isnan(x)
    count = np.maximum(seen.sum(axis=0), 1)
    means = np.where(seen, x, 0.0).sum(axis=0, dtype=np.float64) / count
    away = np.where(seen, x - means, 0.0)
    deviations = np.sqrt((away**2).sum(axis=0) / count)
    return means.astype(kind), _without_rounding(x, means, deviations).astype(kind)


def rows_with_weight(x: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows of weight above zero, and their weights.

    Raises:
        ValueError: another number of weights than rows.

    Args:
        x: shape (num_observations, num_features).
        weight: of each row, shape (num_observations,); None: one.

    Returns:
        Rows and weights; without weights all rows and None.
    """
    if weight is None:
        return x, None
    weight = np.asarray(weight, np.float64)
    if weight.shape != x.shape[:1]:
        raise ValueError(f"sample_weight must have shape ({len(x)},), one for each row; got {weight.shape}")
    return x[weight > 0], weight[weight > 0]


def degrees_of_freedom(total: Any, ddof: int) -> Any:
    """What sums of squares are divided by; ``ddof`` less than the total weight, but half of it at least."""
    return np.maximum(total - ddof, 0.5 * total) if ddof else total


def observed_moments(
    x: np.ndarray, weight: np.ndarray | None = None, ddof: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the observed cells of each column; a row of weight w counts as w rows.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing; every column has cells.
        weight: of each row, positive, shape (num_observations,); None: one.
        ddof: degrees of freedom that the means take.

    Returns:
        Two arrays of shape (num_features,).
    """
    if weight is None:
        return np.nanmean(x, axis=0), np.nanvar(x, axis=0, ddof=ddof)
    seen = ~np.isnan(x)
    total = weight @ seen
    means = weight @ np.where(seen, x, 0.0) / total
    squares = weight @ np.where(seen, x - means, 0.0) ** 2
    return means, squares / degrees_of_freedom(total, ddof)


def _without_rounding(x: np.ndarray, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The deviations, exactly zero where all cells of a column are equal."""
    doubtful = np.flatnonzero((deviations > 0) & (deviations <= 1e-7 * np.abs(means)))
    if doubtful.size:
        held = x[:, doubtful]
        deviations[doubtful[np.fmin.reduce(held, axis=0) == np.fmax.reduce(held, axis=0)]] = 0.0
    return deviations


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


def check_num_latents(num_latents: int, limits: Mapping[str, int], *, below: bool = False) -> None:
    """Raise ValueError if there are more latents than rows or columns allow, or too few of these for any."""
    for counted, size in limits.items():
        most = size - below
        if num_latents <= most:
            continue
        if most < 1:
            raise ValueError(f"a projection needs at least {1 + below} {counted}; got {size}")
        raise ValueError(
            f"num_latents must be {'below' if below else 'at most'} the number of {counted}, {size}; got "
            f"{num_latents}: give num_latents={most}" + " or less" * (most > 1)
        )


def check_not_constant(
    x: "np.ndarray | SparseMatrix", name: str = "x", measured: np.ndarray | None = None
) -> None:
    """Raise ValueError naming the first column whose values are all equal; ``x`` may be sparse.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
        measured: whether a column is looked at, shape (num_features,); None: all are.
    """
    if hasattr(x, "extremes"):
        lowest, highest = x.extremes()
    elif len(x) > 1 and ((x[0] < x[1]) | (x[0] > x[1])).all():
        return
    else:
        held = x if measured is None else np.where(measured, x, 0.0)
        lowest, highest = np.nanmin(held, axis=0), np.nanmax(held, axis=0)
    is_constant = highest == lowest
    constant = np.flatnonzero(is_constant if measured is None else is_constant & measured)
    if constant.size:
        first = int(constant[0])
        also = f" ({constant.size} such columns in all)" if constant.size > 1 else ""
        raise ValueError(
            f"{column_of(x, first)} of {name} is constant ({lowest[first]}){also}: it has no variance; "
            f"leave it "
            f"out, {without_columns(x, constant, name)}"
        )


def column_scale(
    x: Any,
    given: Any = None,
    name: str = "x",
    measured: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """The standard deviation of each column over its observed cells, or the scales that are given.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing.
        given: scales, shape (num_features,), or None.
        name: of the data in messages.
        measured: whether a column has a scale, shape (num_features,); None: all have.
        weight: of each row, positive, shape (num_observations,); None: one.

    Returns:
        Shape (num_features,), positive; 1 for a column without a scale.

    Raises:
        ValueError: a sparse table, a column that is constant or without cells, or scales of another shape.
    """
    if not isinstance(x, np.ndarray):
        raise ValueError(f"standardize=True takes dense {name}; of sparse {name} divide the columns yourself")
    if given is not None:
        check_positive_columns("column_scale", np.asarray(given, np.float64), x.shape[1])
        return np.asarray(given, np.float64)
    has_scale = np.ones(x.shape[1], bool) if measured is None else measured
    is_empty = has_scale & np.isnan(x).all(axis=0)
    if is_empty.any():
        empty = np.flatnonzero(is_empty)
        raise ValueError(
            f"{column_of(x, empty[0])} of {name} has no cell: it has no scale; leave it out, "
            f"{without_columns(x, empty, name)}"
        )
    check_infinite(x, name)
    check_not_constant(x, name, measured)
    if measured is None:
        return np.sqrt(observed_moments(x, weight)[1])
    return np.where(measured, np.nanstd(np.where(measured, x, 0.0), axis=0), 1.0)


def check_positive_columns(name: str, value: np.ndarray, num_columns: int | None) -> None:
    """Raise ValueError if ``value`` is not one positive number for each column.

    Args:
        name: of the field.
        value: its value.
        num_columns: expected number; None: any.
    """
    if value.ndim != 1 or num_columns not in (None, value.size):
        many = "each column" if num_columns is None else f"each of {num_columns} columns"
        raise ValueError(f"{name} must have one number for {many}; got shape {value.shape}")
    if not ((value > 0) & (value < np.inf)).all():
        raise ValueError(f"{name} must be positive and finite; got {value.tolist()}")


def check_columns(
    x: "np.ndarray | SparseCounts",
    num_features: int | None,
    name: str = "x",
    owner: str = "component prior",
    field: str = "num_features",
) -> None:
    """Raise ValueError if the number of columns is not the expected one.

    Args:
        x: shape (num_observations, num_features).
        num_features: expected number; None: any.
        name: of the data in messages.
        owner: object that has the expected number of columns, for the message.
        field: of the owner, that has it.
    """
    if num_features is not None and x.shape[1] != num_features:
        raise ValueError(
            f"{name} must have {num_features} columns, as the {owner} has; got {x.shape[1]}: give the "
            f"columns "
            f"that it was made for, or leave {field} out to have it read off the data"
        )


def check_cells(x: np.ndarray, good: np.ndarray, what: str, name: str = "x", remedy: str = "") -> None:
    """Raise ValueError naming the first cell that is neither good nor missing (NaN).

    Args:
        x: the data.
        good: which cells are allowed, same shape.
        what: requirement on the cells, for the message.
        name: of the data.
        remedy: end of the message.
    """
    bad = ~good
    bad &= ~np.isnan(x)
    _refuse_cells(x, bad, f"{name} must hold {what}", name, remedy)


def check_infinite(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first infinite cell; NaN is a missing cell and allowed.

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    if not is_finite(x):
        _refuse_cells(x, np.isinf(x), f"{name} must be finite or NaN (missing)", name)


#: Kinds of cells that not all numbers are: in words, and which numbers they are.
_KINDS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "positive": ("positive numbers", lambda x: x > 0),
    "count": ("counts", lambda x: (x >= 0) & (x == np.round(x))),
    "yes/no": ("0 or 1", lambda x: (x == 0) | (x == 1)),
}


def check_kinds(x: np.ndarray, kinds: Sequence[str], name: str = "x") -> None:
    """Raise ValueError naming the first cell that is of none of the kinds that a model takes.

    Args:
        x: shape (num_observations, num_features); NaN is a missing cell and allowed.
        kinds: as `zoo.intake.Table.cells` names them; where one of them is not known here, all cells pass.
        name: of the data in messages.
    """
    if not set(kinds) <= _KINDS.keys():
        return
    words, rules = zip(*(_KINDS[kind] for kind in kinds), strict=True)
    fits = np.isnan(x) | np.any([rule(x) for rule in rules], axis=0)
    if not fits.all():
        _refuse_cells(x, ~fits, f"{name} must hold {' or '.join(words)}", name)


def check_some_cells(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first column, or else row, in which every cell is missing (NaN).

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    if is_finite(x):
        return
    for axis in (0, 1):
        _check_axis(x, name, axis)


def _check_axis(x: np.ndarray, name: str, axis: int) -> None:
    """Raise ValueError naming the first column (axis 0) or row (axis 1) in which every cell is missing."""
    empty = np.flatnonzero(np.isnan(x).all(axis=axis))
    if not empty.size:
        return
    kind, other = ("column", "rows") if axis == 0 else ("row", "columns")
    called, leave = (column_of, without_columns) if axis == 0 else (row_of, without_rows)
    remedy = f"{name}.dropna(how='all')" if axis and _is_table(x) else leave(x, empty, name)
    also = f" ({empty.size} such {kind}s in all)" if empty.size > 1 else ""
    raise ValueError(
        f"{called(x, empty[0])} of {name} is missing in all {other}{also}: leave it out, {remedy}"
    )


def check_some_columns(x: np.ndarray, name: str = "x") -> None:
    """Raise ValueError naming the first column in which every cell is missing (NaN).

    Args:
        x: shape (num_observations, num_features).
        name: of the data in messages.
    """
    if not is_finite(x):
        _check_axis(x, name, 0)


def shown(value: object) -> str:
    """A value as messages show it: on one line, arrays of more than a few numbers by their shape."""
    shape = getattr(value, "shape", ())
    shape = shape if isinstance(shape, tuple) else ()
    if len(shape) > 1 or (shape and shape[0] > 8):
        return f"{type(value).__name__} of shape {shape}"
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def listed(names: Iterable[object]) -> str:
    """Names with commas between and a last "and"."""
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last


def first_of(names: Iterable[object], most: int) -> str:
    """The first names with commas between, and ", ..." where there are more than ``most``."""
    names = list(names)
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def words_of(error: Exception) -> str:
    """What a library says of an error, on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}..."


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of the names in ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {shown(value)}")


def check_flag(name: str, value: object) -> None:
    """Raise TypeError unless ``value`` is a boolean."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {shown(value)}")


def check_num_parts(name: str, given: int, needed: int) -> None:
    """Raise TypeError unless the number of parts of data is the one that the model takes."""
    if given != needed:
        parts = "part" if needed == 1 else "parts"
        raise TypeError(
            f"{name} takes {needed} {parts} of data; there {'is' if given == 1 else 'are'} {given}"
        )


def check_size(name: str, value: object, least: int = 1) -> None:
    """Raise TypeError unless ``value`` is a whole number, ValueError if it is below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number; got {shown(value)}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {shown(value)}")
    _check_most(name, value)


def _check_most(name: str, value: int | np.integer) -> None:
    if value > MOST:
        raise ValueError(f"{name} must be at most {MOST}; got {shown(value)}")


def check_lengths(name: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least 0, or a vector of such."""
    lengths = np.asarray(value) if not np.ma.is_masked(value) else np.array(np.nan)
    found = shown(value)
    if lengths.dtype.kind in "iuf" and lengths.ndim < 2:
        bad = ~((lengths >= 0) & (lengths < np.inf) & (lengths == np.floor(lengths)))
        if not bad.any():
            return
        found = shown(np.atleast_1d(lengths)[np.atleast_1d(bad)][0].item())
    raise ValueError(f"{name} must be whole numbers of at least 0; got {found}")


def check_whole(name: str, value: object, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {shown(value)}")
    _check_most(name, value)


def check_number(name: str, value: object) -> None:
    """Raise TypeError unless ``value`` is a real number, not a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number; got {shown(value)}")


LEAST_CONCENTRATION, LARGEST_CONCENTRATION = 1e-300, 1e10
LARGEST_SINGLE_CONCENTRATION = 1e4


def check_concentration(name: str, value: object) -> None:
    """Raise ValueError unless the parameters of a Dirichlet prior are in the range in which they can be told.

    Above 1e10 differences of log-gamma functions, of which bounds and moves consist, are rounding errors: the
    bound of 40 to 4000 rows is off by 1e-5 nats at 1e9, 1e-4 at 1e10 and 0.01 at 1e12 (float32: see
    `check_single_concentration`). Below 1e-300 the share of one of many components is not a normal number.

    Raises:
        ValueError: a number that is not finite or not within the range.
    """
    numbers = np.asarray(value, float)
    if not ((numbers > 0) & (numbers < np.inf)).all():
        raise ValueError(f"{name} must be positive; got {shown(value)}")
    if numbers.max() > LARGEST_CONCENTRATION:
        raise ValueError(
            f"{name} must be at most {LARGEST_CONCENTRATION:g}: above it the differences of log-gamma "
            f"functions in the objective are rounding errors; got {numbers.max():g}"
        )
    if numbers.min() < LEAST_CONCENTRATION:
        raise ValueError(
            f"{name} must be at least {LEAST_CONCENTRATION:g}: below it a component's share underflows; "
            f"got {numbers.min():g}"
        )


def check_single_concentration(name: str, value: object, dtype: str) -> None:
    """Raise ValueError if a concentration is too large for single precision.

    Of ``a + n``, the prior's parameter and the rows, and of the difference of their log-gamma functions,
    float32 loses 0.01 nats at 1e4, 0.1 at 1e5 and 1 at 1e6.

    Raises:
        ValueError: a number above 1e4, and ``dtype`` is ``"float32"``.
    """
    largest = float(np.max(np.asarray(value, float)))
    if dtype == "float32" and largest > LARGEST_SINGLE_CONCENTRATION:
        raise ValueError(
            f"{name} must be at most {LARGEST_SINGLE_CONCENTRATION:g} in float32: above it differences of "
            f"log-gamma functions are rounding errors; got {largest:g}: fit with dtype='float64'"
        )


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is one positive, finite number."""
    is_number = np.shape(value) == () and np.asarray(value).dtype.kind in "iuf"
    if not is_number or not 0 < value < np.inf:
        raise ValueError(
            f"{name} must be a positive number; got {value if np.shape(value) == () else shown(value)}"
        )


def check_share(name: str, value: Any, of: str, *, closed: bool = False) -> None:
    """Raise TypeError or ValueError unless ``value`` is a number above 0 and below 1."""
    check_number(name, value)
    if not (0 <= value if closed else 0 < value) or not value < 1:
        bounds = "in [0, 1)" if closed else "between 0 and 1"
        raise ValueError(f"{name} must be {of}, {bounds}; got {shown(value)}")


def check_names(name: str, value: object, allowed: Collection[str]) -> None:
    """Raise TypeError unless ``value`` is a tuple of names, ValueError if one of them is not allowed."""
    if not isinstance(value, tuple) or not all(isinstance(part, str) for part in value):
        raise TypeError(f"{name} must be a tuple of some of {', '.join(allowed)}; got {shown(value)}")
    for part in value:
        if part not in allowed:
            raise ValueError(f"{name} must be a tuple of some of {', '.join(allowed)}; got {shown(part)}")


def check_seed(value: object) -> None:
    """Raise ValueError unless a seed is a whole number in [0, 2**32)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2**32); got {shown(value)}")


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
    """The largest relative error of rounding a number."""
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
    if x.dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->j", x, x)  # one pass, and enough for most tables
        if ((squares > len(x) * smallest**2) & (squares < largest**2)).all():
            return
    size = np.fmax(np.fmax.reduce(x, axis=0, initial=0.0), np.abs(np.fmin.reduce(x, axis=0, initial=0.0)))
    if not np.isfinite(size).all():  # what is infinite is refused elsewhere
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


def machine_memory() -> float:
    """The bytes of memory that this process may use: those of the machine, or a limit below them.

    Returns:
        The least of the physical memory, the limit of its control group and that of its address space;
        infinity where the system tells none of them.
    """
    found = [math.inf]
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in _GROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # none there, or "max"
            found.append(int(Path(limit).read_text()))
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        found += [] if soft == resource.RLIM_INFINITY else [soft]
    return min(found)


def memory_in_words(size: float) -> str:
    """Bytes in MiB, or in GiB from one of them on."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _label(labels: Collection[Any] | None, column: int) -> str:
    return str(column) if labels is None else repr(list(labels)[column])
