"""The numerical precision in which every public function of ``inference`` computes.

JAX's global precision setting is never touched: it belongs to the user. A public function enters
``jax.enable_x64`` in the thread that computes, does its work, and hands NumPy arrays out, because a 64-bit
JAX array used outside the context would silently lose half its bits.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from inference.program_cache import compile_cache_by_environment
from zoo.checks import (
    check_counts,
    check_scale,
    check_single_concentration,
    column_moments,
    largest_in_columns,
    row_blocks,
    warn,
)
from zoo.fields import facts_of, names_of
from zoo.model import Model

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


def check_hyperparameters(
    model: Model, dtype: str, *data: Any, sample_weight: np.ndarray | None = None
) -> None:
    """Refuse a concentration, or a distance to the prior location, that exceeds the precision.

    Args:
        model: with its sizes.
        dtype: the precision of the fit.
        *data: the parts of the data.
        sample_weight: of the rows, shape (num_observations,); None: one.

    Raises:
        ValueError: the precision cannot hold what the model makes of the data.
    """
    for name in facts_of(model, "is_concentration"):
        value = getattr(model, name)
        if value is not None and not isinstance(value, Distribution):
            check_single_concentration(name, value, dtype)
    for prior in (getattr(model, name) for name in names_of(model).leaves):
        if hasattr(prior, "check_concentrations"):  # of components
            prior.check_concentrations(dtype)
            prior.check_offset(data[0], dtype, sample_weight)


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
    for name, sizes in zip(model.data_names, _count_sizes(model, data), strict=False):
        if sizes is not None:
            check_counts(sizes, dtype, name, coords.get(model.variable_dims[name][-1]))


def _count_sizes(model: Model, data: tuple) -> Iterator[np.ndarray | None]:
    """Of each part the largest count (or number of trials) of each column, whose log factorial is taken."""
    for family, part in zip(model.part_families, data, strict=False):
        if model.data[0].holds_documents:
            yield largest_in_columns(part)
        else:
            yield None if family is None else family.count_sizes(part)


# Rows far from the origin

LOST_SPREAD = 1e-5  # of the offset: of a smaller deviation two digits and less are left
LOST_SHARE = 1e-3  # of the deviation: less is lost where the cast is exact, as for whole numbers


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
        if _is_single(x):
            continue
        means, deviations = column_moments(x, request.sample_weight)
        near = deviations < LOST_SPREAD * np.abs(means)
        if not near.any():
            continue
        rounding = column_moments(np.abs(x.astype(np.float32) - x), request.sample_weight)[0]
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
