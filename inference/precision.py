"""The numerical precision in which every public function of ``inference`` computes.

JAX's global precision setting is never touched: it belongs to the user. A public function enters
``jax.enable_x64`` in the thread that computes, does its work, and hands NumPy arrays out, because a 64-bit
JAX array used outside the context would silently lose half its bits.

Rows far from the origin: a number in single precision has seven digits, and of a column at 1e6 with deviation
1 the cast keeps one digit of the rows. So a model whose locations may be anywhere is fitted to rows about an
origin in their middle (`moved`): the difference is taken in double precision, here and nowhere else, before
anything is cast, and variables are moved back (`moved_back`). Densities are those of the rows as they were,
since a shift has Jacobian one. In double precision rows are moved only where the moments of a component
would be summed about a point that is far from all of them.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from inference.processes import gathered
from inference.program_cache import compile_cache_by_environment
from zoo.checks import check_counts, check_scale, column_moments, row_blocks, warn
from zoo.model import Model

__all__ = [
    "check_count_sizes",
    "check_scales",
    "double_precision",
    "in_precision",
    "moved",
    "moved_back",
    "stored_model",
    "to_numpy",
    "unmoved_data",
    "warn_of_lost_digits",
]

_DTYPES = {"float64": True, "float32": False}


@contextmanager
def in_precision(dtype: str = "float64") -> Iterator[None]:
    """Run the body in 64-bit (or, for ``dtype="float32"``, 32-bit) JAX, whatever the caller's setting is.

    Raises:
        ValueError: ``dtype`` is neither ``"float64"`` nor ``"float32"``.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32'; got {dtype!r}")
    compile_cache_by_environment()
    with jax.enable_x64(_DTYPES[dtype]):
        yield


def double_precision[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function so that it computes in 64 bits.

    It must return NumPy or xarray objects, not JAX arrays.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with in_precision("float64"):
            return function(*args, **kwargs)

    return wrapped


def to_numpy(tree: Any) -> Any:
    """Every leaf of a pytree as a NumPy array on the host (call it before the precision context is left)."""
    return jax.tree.map(np.asarray, tree)


# What a precision can hold


def check_scales(
    model: Model, data: tuple, coords: Mapping[str, Any], dtype: str = "float64", *, is_whole: bool = True
) -> None:
    """Refuse columns whose squares overflow or underflow, before anything is read off the data.

    Args:
        model: its sizes need not be known.
        data: the parts of the data as arrays; sparse ones hold counts, or reals by columns of zeros.
        coords: names of columns by dim.
        dtype: the precision of the fit.
        is_whole: whether these are all rows of the fit.

    Raises:
        ValueError: such a column.
    """
    for name, x in zip(model.data_names, data, strict=False):
        if isinstance(x, np.ndarray):
            labels = coords.get(model.variable_dims[name][-1])
            check_scale(x, dtype, name, labels, is_whole=is_whole)


def check_count_sizes(model: Model, data: tuple, coords: Mapping[str, Any], dtype: str = "float64") -> None:
    """Refuse counts whose log probabilities the precision cannot hold.

    Args:
        model: with its sizes.
        data: the parts of the data, which suit the model.
        coords: names of columns by dim.
        dtype: the precision of the fit.

    Raises:
        ValueError: a column with such counts.
    """
    for name, sizes in zip(model.data_names, model.count_sizes(*data), strict=False):
        if sizes is not None:
            check_counts(sizes, dtype, name, coords.get(model.variable_dims[name][-1]))


# Rows far from the origin

LOST_SPREAD = 1e-5  # of the offset: of a smaller deviation two digits and less are left
LOST_SHARE = 1e-3  # of the deviation: less is lost where the cast is exact, as for whole numbers


def moved(request: Any) -> Any:
    """The call about the origin of its data; the call itself where nothing need be moved.

    Args:
        request: the call, an `inference.algorithm.FitRequest`.

    Returns:
        The call with model, data, stream and given variables about the origin.

    Warns:
        UserWarning: single precision loses digits of columns that the model cannot move.
    """
    single = request.dtype == "float32" and not getattr(request.method, "is_double", False)
    if request.back is not None:  # of which the coordinates have an origin, or else none is allowed
        return request
    origin = request.model.origin(*request.data, always=single)
    if request.spreads_rows:
        origin = _common(origin, single)
    if _has_one_block(request):
        origin = (None,) * len(request.data)
    if single:
        warn_of_lost_digits(request, origin)
    if all(at is None for at in origin):
        return request
    home = replace(request, model=request.model.recentred(origin))
    away = tuple(None if at is None else -at for at in origin)
    data = tuple(x if at is None else x - at for x, at in zip(request.data, origin, strict=True))
    return replace(
        home,
        model=home.model.shifted(away),
        data=data,
        stream=None if request.stream is None else request.stream.about(origin[0]),
        variables=request.variables and _added(request.variables, request.model, away),
        origin=origin,
        original=home,
    )


def moved_back(values: Mapping[str, Any], request: Any) -> dict[str, Any]:
    """Variables of a fit as those of the rows as they were, in double precision where they move.

    Args:
        values: variable name to array, of the moved call.
        request: the call that was fitted.

    Returns:
        The same variables.
    """
    if request.back is not None:
        return request.back.variables(values)
    return dict(values) if request.origin is None else _added(values, request.model, request.origin)


def stored_model(request: Any, learnt: Model | None) -> Model:
    """The model of the rows as they were.

    Args:
        request: the call that was fitted.
        learnt: the model that the method ended with, or None.

    Returns:
        The model to be stored.
    """
    if request.back is not None:
        return request.back.model(learnt)
    if request.origin is None:
        return request.model if learnt is None else learnt
    return request.original.model if learnt is None else learnt.shifted(request.origin)


def unmoved_data(request: Any, data: tuple) -> tuple:
    """The data of a fit as they were passed.

    Args:
        request: the call that was fitted.
        data: the rows that the fit held.

    Returns:
        The parts of the data.
    """
    if request.back is not None:
        call = request.back.request
        is_whole = call.stream is None or "moments" in call.method.takes
        return call.data if is_whole else (call.stream.whole(),)
    if request.origin is None:
        return data
    original = request.original
    return original.data if original.stream is None else (original.stream.whole(),)


def _added(values: Mapping[str, Any], model: Model, by: tuple) -> dict[str, Any]:
    sites, new = model.location_sites, dict(values)
    for name, value in values.items():
        part, columns = sites.get(name.removesuffix("_auto_loc"), (0, None))
        if columns is not None and by[part] is not None:
            new[name] = np.asarray(value, np.float64) + by[part][columns]
    return new


def _common(origin: tuple, single: bool) -> tuple:
    """The origin of the first of several processes, each of which sees some of the rows; any point serves.

    In double precision rows stay: whether they are far is not decided by some of them.
    """
    if not single:
        return (None,) * len(origin)
    first = gathered(**{str(i): at for i, at in enumerate(origin) if at is not None})[0]
    return tuple(first.get(str(i)) for i in range(len(origin)))


def _has_one_block(request: Any) -> bool:
    """Whether q is one Gaussian of all sites in a row, which has no locations by name."""
    return request.options.get("guide", "normal") != "normal"


def _is_single(x: np.ndarray) -> bool:
    """Whether single precision holds every cell as it is; the first block that it does not tells."""
    with np.errstate(over="ignore"):
        return all(np.array_equal(own.astype(np.float32), own, equal_nan=True) for own in row_blocks(x))


def warn_of_lost_digits(request: Any, origin: tuple) -> None:
    """Warn of columns of a call that keep their place, and of which single precision keeps few digits.

    Args:
        request: the call, an `inference.algorithm.FitRequest`.
        origin: for each part of the data what is taken from its columns, or None.

    Warns:
        UserWarning: there are some.
    """
    lost = []
    for number, (x, at) in enumerate(zip(request.data, origin, strict=True)):
        if at is not None or not isinstance(x, np.ndarray):
            continue
        if np.any(request.model.units.get(request.model.data_names[number], (1.0, 0.0))[1]):
            continue  # standard units are about an origin of their own
        if _is_single(x):
            continue
        means, deviations = column_moments(x)
        near = deviations < LOST_SPREAD * np.abs(means)
        if not near.any():
            continue
        rounding = column_moments(np.abs(x.astype(np.float32) - x))[0]
        near &= rounding > LOST_SHARE * deviations
        site = request.model.data_names[number]
        labels = request.coords.get(request.model.variable_dims[site][-1])
        for column in np.flatnonzero(near):
            name = column if labels is None else repr(labels[column])
            digits = max(np.log10(deviations[column] / rounding[column]), 0.0) if deviations[column] else 0.0
            lost.append(
                f"column {name} of {site} keeps {digits:.1f} digits of its spread (mean {means[column]:.3g}, "
                f"standard deviation {deviations[column]:.3g})"
            )
    if lost:
        more = f" ({len(lost)} such columns in all)" if len(lost) > 3 else ""
        warn(
            f"dtype='float32' loses digits far from the origin: {'; '.join(lost[:3])}{more}; subtract the "
            f"columns' means first, or fit with dtype='float64'"
        )
