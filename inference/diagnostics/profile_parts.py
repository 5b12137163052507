"""What the tables of `inference.diagnostics.profiles` share: intervals, names of columns, rows and data."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import kind_of
from inference.convergence.partitions import LEAST_ROWS, cluster_sizes
from inference.precision import double_precision
from inference.results.files import model_of
from inference.results.groups import (
    ROW_DIMS,
    flat_draws,
    group_of,
    labels_along,
    labels_of,
    responsibilities_of,
    restored_data,
)
from zoo.answers import TypicalCells, answer_of
from zoo.intake import Column
from zoo.model import Model

MOST_DRAWS = 400  # of which tables are made: intervals need no more


class Asked(NamedTuple):
    """The arguments of `profiles`.

    Attributes:
        probability: content of the intervals.
        num_rows: rows, documents or columns named for each cluster, topic or end.
        num_words: words of a topic.
    """

    probability: float
    num_rows: int
    num_words: int


def intervals(values: np.ndarray, kind: str, probability: float) -> dict[str, np.ndarray]:
    """Mean and equal-tailed interval over the first axis, NaN left out; no interval of a point estimate.

    The mean of a skewed quantity can lie outside of its quantiles: the interval is widened to hold it.

    Args:
        values: draws, shape (num_draws, ...).
        kind: as of `inference.convergence.identifiable.kind_of`.
        probability: content of the interval.

    Returns:
        ``mean``, ``lb`` and ``ub``, shape of a draw.
    """
    mean = mean_of_held(values)
    if kind == "point" or len(values) == 1:
        return {"mean": mean, "lb": np.full_like(mean, np.nan), "ub": np.full_like(mean, np.nan)}
    tails = [(1 - probability) / 2, (1 + probability) / 2]
    if not np.isnan(values).any():
        low, high = np.quantile(values, tails, axis=0)
    else:
        with warnings.catch_warnings():  # a cell that no draw holds is NaN
            warnings.simplefilter("ignore", RuntimeWarning)
            low, high = np.nanquantile(values, tails, axis=0)
    return {"mean": mean, "lb": np.minimum(low, mean), "ub": np.maximum(high, mean)}


def mean_of_held(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis, NaN left out; NaN where there is nothing else."""
    held = ~np.isnan(values)
    count = held.sum(0)
    total = np.where(held, values, 0.0).sum(0)
    return np.divide(total, count, where=count > 0, out=np.full(count.shape, np.nan))


def spread_of_logs(median: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Half the central 68 % of cells with Gaussian logarithms; NaN where it is beyond all numbers.

    Args:
        median: of the cells.
        deviation: of their logarithms, the same shape.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found = median * np.sinh(deviation)
    return np.where(np.isfinite(found), found, np.nan)


def names_along(tree: xr.DataTree, dim: str, size: int, noun: str) -> list[str]:
    """Labels along a dim of a fit; "feature 0", ... where they are only numbered.

    Args:
        tree: a fit.
        dim: the dim.
        size: of the dim.
        noun: the word for numbered ones.
    """
    labels = labels_along(tree, dim, size)
    names = np.arange(size) if labels is None else labels
    return [f"{noun} {name}" if isinstance(name, int | np.integer) else str(name) for name in names]


def column_names(tree: xr.DataTree, part: str, size: int) -> list[str]:
    """Names of the columns of a part of the data."""
    dim = model_of(tree).variable_dims[part][1]
    return names_along(tree, dim, size, dim.partition("_")[0])


def row_names(tree: xr.DataTree) -> np.ndarray | None:
    """Labels of the fitted rows or documents, as they are in the tree; None where the fit holds no row."""
    return labels_along(tree, model_of(tree).roles.scores[0])


def fitted_data(tree: xr.DataTree) -> tuple | None:
    """The data of a fit, arrays or sparse as they were; None where it does not hold them."""
    if "observed_data" not in tree.children:
        return None
    return restored_data(tree["observed_data"].to_dataset(), model_of(tree))


@double_precision
def parameters_of(tree: xr.DataTree, most: int, with_rows: bool = False) -> dict[str, np.ndarray]:
    """Draws of the parameters, evenly spread, all chains end to end; one where all are equal.

    Returns:
        Name to draws, dims (1, draws, ...) as `inference.numerics.programs.over_draws` takes them.
    """
    posterior, (size, chosen) = group_of(tree, "posterior"), _spread(tree, most)
    found: dict[str, np.ndarray] = {}
    for name, value in posterior.data_vars.items():
        if with_rows or not ROW_DIMS & set(value.dims):
            values = value.transpose("chain", "draw", ...).to_numpy()
            values = values.reshape(size, *values.shape[2:])[chosen][None]
            found[str(name)] = values.astype(float) if values.dtype.kind == "f" else values
    if all((values == values[:, :1]).all() for values in found.values()):  # an estimate with q of the rows
        return {name: values[:, :1] for name, values in found.items()}
    return found


def held_in_draws(tree: xr.DataTree, most: int) -> np.ndarray:
    """Which clusters hold rows in the draws that `parameters_of` takes; there others are draws of the prior.

    Under one q these are the same in all draws, those expected to hold half a row; where the fit holds no
    labels, all.

    Returns:
        Dims (1, draws, clusters) or (1, 1, clusters).
    """
    model, soft, drawn = model_of(tree), responsibilities_of(tree), labels_of(tree)
    size = group_of(tree, "posterior").sizes[model.variable_dims[model.roles.weight][-1]]
    if soft is not None:
        return (soft.to_numpy().sum(0) >= LEAST_ROWS)[None, None]
    if drawn is None or kind_of(tree) == "point":
        return np.ones((1, 1, size), bool)
    return cluster_sizes(flat_draws(drawn)[_spread(tree, most)[1]], size)[None, :, :size] > 0


def _spread(tree: xr.DataTree, most: int) -> tuple[int, np.ndarray]:
    """The number of draws of all chains, and the places of at most so many of them, evenly spread."""
    sizes = group_of(tree, "posterior").sizes
    size = sizes["chain"] * sizes["draw"]
    return size, np.linspace(0, size - 1, min(most, size)).round().astype(int)


def ranked(rows: list[dict[str, Any]], index: tuple[str, ...], columns: tuple[str, ...]) -> pd.DataFrame:
    """A table from its rows, with an index of several levels.

    Returns:
        The table; empty with the same columns where there are no rows.
    """
    return pd.DataFrame(rows, columns=[*index, *columns]).set_index(list(index))


def kind_in_words(tree: xr.DataTree) -> str:
    """How the intervals of a fit are to be read."""
    return {
        "sampling": "intervals are of the posterior",
        "variational": "intervals are of the approximation q, usually too narrow",
        "point": "a point estimate has no intervals",
    }[kind_of(tree)]


def quantities_of(model: Model, draws: Mapping[str, np.ndarray]) -> list[TypicalCells]:
    """What the typical cells of a model are, and their columns, without computing any.

    Args:
        model: the model.
        draws: of its parameters, leading dims (chain, draw).

    Returns:
        As `zoo.answers.Answers.typical_cells`, values and spread None.
    """
    found: list[TypicalCells] = []

    def note(values: Mapping[str, Any]) -> None:
        found.extend(
            part._replace(values=None, spread=None) for part in answer_of(model, "typical_cells", values)
        )

    jax.eval_shape(note, {name: value[0, 0] for name, value in draws.items()})
    return found


def quantity_in_words(quantity: str, column: Column | None) -> str:
    """A quantity of typical cells in the words of the column that was read.

    Args:
        quantity: such as ``"mean"`` or ``"probability of 1"``.
        column: what the column holds; None: it was a column of numbers.
    """
    if column is not None and column.origin is not None:
        return f"{quantity}, days since {column.origin[:10]}"
    if column is not None and len(column.levels) == 2 and quantity == "probability of 1":
        return f"probability of {column.levels[1]}"
    return quantity


def place_in_words(column: str, quantity: str) -> str:
    """Word a quantity of a column: the column alone for its mean, ``COLUMN: LEVEL`` for a probability.

    The mean of a column of dates is itself a date, whatever the first one is.
    """
    if quantity.partition(", ")[0] == "mean":
        return column
    if quantity.startswith("probability of "):
        return f"{column}: {quantity.removeprefix('probability of ')}"
    return f"{column} ({quantity})"
