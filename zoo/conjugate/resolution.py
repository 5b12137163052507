"""Whether the components of a fit can be told from rounding, and the step in which a column is recorded."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo import checks
from zoo.conjugate.component_prior import LOST_SHARE, ComponentPrior

OWN_ROWS = 1.5  # a component with fewer has no spread of rows
SPOILT_SHARE = 1e-2  # of a component's variance, uncertain by rounding
OFF_STEP = 1e-3  # of a step, by which decimals may miss its multiples
MOST_ZEROS, MOST_DECIMALS = 6, 9  # of a number as it is written
FEW_NUMBERS = 0.9  # different ones by row, above which cells are not called coarse


def recorded_step(cells: np.ndarray) -> float:
    """The step in which the cells of a column are recorded.

    Args:
        cells: shape (num_observations,), NaN where missing.

    Returns:
        The largest number of which all differences of cells are multiples, if many cells are equal; else 0.
    """
    seen = cells[np.isfinite(cells)]
    gaps = np.diff(np.unique(seen))
    if not len(gaps) or len(gaps) + 1 > FEW_NUMBERS * len(seen):
        return 0.0
    step = gaps.min()
    while (rest := np.abs(gaps / step - np.round(gaps / step)) * step).max() > OFF_STEP * step:
        step = rest[rest > OFF_STEP * step].min()  # Euclid's: a step divides what is left over
        if step < OFF_STEP * gaps.min():
            return 0.0
    return float(f"{step:.6g}")


def decimal_step(cells: np.ndarray) -> float:
    """The power of ten that the cells of a column are written to.

    Args:
        cells: shape (num_observations,), NaN where missing.

    Returns:
        The largest power of ten of which all cells are multiples; 0 if there is none down to 1e-9.
    """
    seen = cells[np.isfinite(cells)]
    for place in range(MOST_ZEROS, -MOST_DECIMALS - 1, -1):
        scaled = seen / 10.0**place if place > 0 else seen * 10.0**-place
        if (np.abs(scaled - np.round(scaled)) <= 1e-9 + 1e-12 * np.abs(scaled)).all():
            return 10.0**place
    return 0.0


def rows_held(labels: np.ndarray, num_components: int) -> np.ndarray:
    """Rows in each component in every draw.

    Args:
        labels: shape (..., num_observations).
        num_components: K.

    Returns:
        Shape (..., num_components).
    """
    draws = labels.reshape(-1, labels.shape[-1])
    places = draws + num_components * np.arange(len(draws))[:, None]
    counts = np.bincount(places.ravel(), minlength=num_components * len(draws))
    return counts.reshape(*labels.shape[:-1], num_components)


def check_resolved(
    components: ComponentPrior,
    values: Mapping[str, np.ndarray],
    weights: np.ndarray | None,
    labels: np.ndarray | None,
    num_rows: float,
    dtype: str,
    x: Any,
) -> None:
    """Check that components are near enough to each other for their size.

    Args:
        components: the family.
        values: draws, or the estimate, of its sites.
        weights: of the components, shape (..., num_components), or None.
        labels: of the rows, shape (..., num_observations), or None.
        num_rows: rows of the data, the sum of their weights.
        dtype: the precision of the fit.
        x: the rows, whose columns have names in messages.

    Raises:
        FloatingPointError: rounding has spoilt a component.

    Warns:
        UserWarning: rounding has blurred one.
    """
    share = components.lost_share(values, dtype)
    if weights is not None:  # components without rows are drawn from the prior
        share = share * (np.asarray(weights) * num_rows > OWN_ROWS)[..., None]
        if labels is not None and share.max() > LOST_SHARE:  # weights say little of many components
            held = rows_held(np.asarray(labels), share.shape[-2]) > 1
            share = share * held[..., None]
    of_draws = share.reshape(-1, *share.shape[-2:])
    worst = of_draws.max(axis=(1, 2))
    share = of_draws[np.argsort(worst)[len(worst) // 2]]  # one draw of many may be from a tail
    component, column = np.unravel_index(np.argmax(share), share.shape)
    if not share.max() > LOST_SHARE:
        return
    deviations = np.sqrt(share.max() / checks.unit_roundoff(dtype))
    message = (
        f"component {component} lies {deviations:.2g} of its standard deviations from the middle of the "
        f"data, along {checks.column_of(x, int(column))}: {dtype} leaves {share.max():.1g} of its variance "
        f"to rounding"
    )
    remedy = "fit the far groups apart" + (", or with dtype='float64'" if dtype == "float32" else "")
    if share.max() > SPOILT_SHARE:
        raise FloatingPointError(f"{message}; {remedy}")
    checks.warn(f"{message}; {remedy}")
