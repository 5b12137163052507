"""The changes of data that relations are about, and what each does to a fit.

A change has two sides, the calls of `fit` before and after it, and says how the elements of each dim are
renumbered, in which units the cells are afterwards, and under which names variables are found again. From
these `inference.calibration.relations` derives what every quantity of the second fit must be.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from zoo.model import Model

NOTHING: Mapping = MappingProxyType({})
HOLES = 0.1  # share of the cells that are made missing
FACTOR, OFFSET = 1000.0, 1e6  # of a table in other units
GARBAGE = 1e6  # under a mask, where nobody may look


class Side(NamedTuple):
    """One of the two calls of `fit` that a relation compares.

    Attributes:
        data: parts of the data.
        options: of `fit`, beside those of both sides.
        model: the model; None: the one given to the check, its data-dependent fields read off these data.
        in_own_shapes: whether nothing is padded, in the fit and in what is asked of it.
    """

    data: tuple
    options: Mapping[str, Any] = NOTHING
    model: Model | None = None
    in_own_shapes: bool = False


class Change(NamedTuple):
    """The two sides of a relation, and how quantities of the second fit follow from those of the first.

    Attributes:
        before: the first call.
        after: the second.
        order: dim to the place in the first fit of each of its elements in the second; -1: a new element,
            which is not compared.
        scale: for each part of the data the factor of each column, shape (num_columns,).
        shift: for each part of the data what is then added to each column, shape (num_columns,).
        reverses_views: whether the views are numbered from the other end, as are their variables and dims.
    """

    before: Side
    after: Side
    order: Mapping[str, np.ndarray] = NOTHING
    scale: tuple[np.ndarray, ...] = ()
    shift: tuple[np.ndarray, ...] = ()
    reverses_views: bool = False


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation between two fits that a correct method keeps.

    Attributes:
        name: one of `RELATIONS`; of a relation of one's own, any.
        change: ``change(model, data, rng) -> Change``; the model has its sizes.
        keeps_draws: whether each random number falls on the same element after the change. If not, ascents
            start from the first fit's variables, renumbered, and samplers are compared in distribution.
        in_units: whether the units of the data change, which the steps of NUTS, HMC and SVI do not follow.
        stored: whether there is one fit, whose stored rows are compared with the same rows as new ones.
        single_precision: whether the second fit is one, so that the tolerance is that of float32.
        said: what happens to a fit: a short phrase that begins with ``"same"`` (objective, scores,
            predictions and draws follow from those before), or ``"no: "`` and why the relation does not hold.
    """

    name: str
    change: Callable[[Model, tuple, np.random.Generator], Change]
    keeps_draws: bool = True
    in_units: bool = False
    stored: bool = False
    single_precision: bool = False
    said: str = "same"


def _sides(before: tuple, after: tuple, **rest: Any) -> Change:
    return Change(Side(before), Side(after), **rest)


def _rows_of(model: Model) -> str:
    """The dim of the rows."""
    return model.variable_dims[model.data_names[0]][0]


def _columns_of(model: Model, number: int) -> str:
    """The dim of the columns of a part of the data."""
    return model.variable_dims[model.data_names[number]][-1]


def _taken(part: Any, places: np.ndarray, axis: int = 0) -> Any:
    return np.take(np.asarray(part), places, axis=axis)


# Order


def _rows_permuted(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    order = rng.permutation(len(data[0]))
    return _sides(data, tuple(_taken(part, order) for part in data), order={_rows_of(model): order})


def _columns_permuted(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    tables = [np.ndim(part) == 2 for part in data]  # a vector of class labels has no columns
    orders = [
        rng.permutation(np.shape(part)[1]) if is_table else None
        for part, is_table in zip(data, tables, strict=True)
    ]
    moved = tuple(
        part if o is None else _taken(part, o, axis=1) for part, o in zip(data, orders, strict=True)
    )
    return _sides(
        data, moved, order={_columns_of(model, n): o for n, o in enumerate(orders) if o is not None}
    )


def _frames(data: tuple, names: str = "abcdefghijklmnopqrstuvwxyz") -> tuple:
    return tuple(
        pd.DataFrame(part, columns=[f"{names[j % 26]}{number}_{j}" for j in range(part.shape[1])])
        if np.ndim(part) == 2
        else part
        for number, part in enumerate(map(np.asarray, data))
    )


def _columns_renamed(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    return _sides(_frames(data), _frames(data, "zyxwvutsrqponmlkjihgfedcba"))


def _views_exchanged(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    other, latents = model.views_reversed()
    after = Side(tuple(reversed(data)), model=other)
    return Change(Side(data, model=model), after, order={"latent": latents}, reverses_views=True)


def _classes_reordered(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    *rest, labels = data
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    names = np.array([f"class {len(classes) - c}" for c in range(len(classes))])
    back = np.arange(len(classes))[::-1]
    return _sides(data, (*rest, names[codes]), order={"output": back, "class": back})


# Units


def cell_units(model: Model) -> tuple[str, ...]:
    """How cells may be measured anew: in any unit, or one also from another origin.

    Args:
        model: the model.

    Returns:
        For each part of the data ``"none"`` (counts, classes), ``"scale"`` or ``"location_scale"``.
    """
    units = (model.units.get(name) for name in model.data_names)
    return tuple(
        getattr(family, "cell_units", "none")
        if unit is None
        else "location_scale"
        if unit.is_location
        else "scale"
        for family, unit in zip(model.part_families, units, strict=True)
    )


def _in_units(scale: Callable, shift: Callable) -> Callable:
    """The change of every part that has units by ``scale(table)`` and then ``shift(table)``, per column."""

    def change(model: Model, data: tuple, rng: np.random.Generator) -> Change:
        scales, shifts, parts = [], [], []
        for part, units in zip(data, cell_units(model), strict=True):
            width = np.shape(part)[1] if np.ndim(part) == 2 else 1  # one column of labels
            table = np.asarray(part, float) if units != "none" else np.zeros((1, width))
            factor = scale(table) * np.ones(table.shape[1]) if units != "none" else np.ones(table.shape[1])
            offset = (
                shift(table) * np.ones(table.shape[1])
                if units == "location_scale"
                else np.zeros(table.shape[1])
            )
            scales.append(factor)
            shifts.append(offset)
            parts.append(part if units == "none" else table * factor + offset)
        return _sides(data, tuple(parts), scale=tuple(scales), shift=tuple(shifts))

    return change


def _unchanged(table: np.ndarray) -> float:
    return 1.0


def _mixed_units(table: np.ndarray) -> np.ndarray:
    return np.logspace(-3, 3, table.shape[1])


def _steps_away(table: np.ndarray) -> np.ndarray:
    """Ten standard deviations, and more in each further column."""
    return np.nanstd(table, axis=0) * (10.0 + np.arange(table.shape[1]))


# Cells and rows


def _row_doubled(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    size = len(data[0])
    order = np.append(np.arange(size), rng.integers(size))
    weight = np.bincount(order, minlength=size).astype(float)
    return Change(
        Side(data, {"sample_weight": weight}, model),
        Side(tuple(_taken(part, order) for part in data), NOTHING, model),
        order={_rows_of(model): order},
    )


def _row_left_out(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    """The rows alone against them and a row at their edge, of weight zero."""
    size = len(data[0])
    edges = (np.nanmax(np.asarray(part), axis=0, keepdims=True) for part in data)
    longer = tuple(np.concatenate([part, edge]) for part, edge in zip(data, edges, strict=True))
    return Change(
        Side(data, NOTHING, model),
        Side(longer, {"sample_weight": np.append(np.ones(size), 0.0)}, model),
        order={_rows_of(model): np.append(np.arange(size), -1)},
    )


def _with_holes(part: Any, rng: np.random.Generator, whole_row: bool = False) -> np.ndarray:
    """A table with missing cells, but none in its first row and its first column, or without a whole row."""
    table = np.array(part, float)
    if whole_row:
        table[rng.integers(1, len(table))] = np.nan
    else:
        table[1:, 1:][rng.uniform(size=table[1:, 1:].shape) < HOLES] = np.nan
        table[-1, -1] = np.nan
    return table


def _marked(mark: Callable, whole_row: bool = False) -> Callable:
    """Missing cells as NaN against the same cells as ``mark(table)`` marks them, in the first part."""

    def change(model: Model, data: tuple, rng: np.random.Generator) -> Change:
        first, *rest = data
        table = _with_holes(first, rng, whole_row)
        before, after = (table, *rest), (mark(table), *rest)
        return _sides(before, after)

    return change


def _masked(table: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.MaskedArray(
        np.where(np.isnan(table), GARBAGE * (1 + np.indices(table.shape)[1]), table), np.isnan(table)
    )


def _frame_of_na(table: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(table).astype("Float64")
    return frame.mask(np.isnan(table), pd.NA)


def _empty_document(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    (counts,) = data
    counts = np.asarray(counts)
    return _sides(
        data,
        (np.concatenate([counts, np.zeros_like(counts[:1])]),),
        order={_rows_of(model): np.append(np.arange(len(counts)), -1)},
    )


def _unused_word(model: Model, data: tuple, rng: np.random.Generator) -> Change:
    (counts,) = data
    counts = np.asarray(counts)
    order = np.append(np.arange(counts.shape[1]), -1)
    more = np.concatenate([counts, np.zeros_like(counts[:, :1])], axis=1)
    return _sides(data, (more,), order={_columns_of(model, 0): order})


# Formats and machines


def _second(make: Callable) -> Callable:
    return lambda model, data, rng: _sides(data, make(data))


def _sparse(data: tuple) -> tuple:
    first, *rest = data
    return (sparse.csr_matrix(np.asarray(first)), *rest)


def _with_options(options: Callable) -> Callable:
    return lambda model, data, rng: Change(Side(data), Side(data, options(data)))


RELATIONS: Mapping[str, Relation] = MappingProxyType(
    {
        relation.name: relation
        for relation in (
            Relation("rows_permuted", _rows_permuted, keeps_draws=False, said="same, rows in the new order"),
            Relation(
                "columns_permuted",
                _columns_permuted,
                keeps_draws=False,
                said="same, columns in the new order",
            ),
            Relation("columns_renamed", _columns_renamed),
            Relation(
                "views_exchanged",
                _views_exchanged,
                keeps_draws=False,
                said="no: the views play different parts, or there is but one",
            ),
            Relation(
                "classes_reordered",
                _classes_reordered,
                keeps_draws=False,
                said="no: the data hold no class labels",
            ),
            Relation(
                "shifted", _in_units(_unchanged, _steps_away), in_units=True, said="same, predictions shifted"
            ),
            Relation(
                "rescaled",
                _in_units(lambda x: FACTOR, lambda x: 0.0),
                in_units=True,
                said="same, predictions in the new unit, log densities less the log of the factor a cell",
            ),
            Relation(
                "columns_rescaled",
                _in_units(_mixed_units, lambda x: 0.0),
                in_units=True,
                said="no: columns share parameters that have a unit",
            ),
            Relation(
                "other_units",
                _in_units(lambda x: FACTOR, lambda x: OFFSET),
                in_units=True,
                said="same, as rescaled and shifted",
            ),
            Relation("row_doubled", _row_doubled, keeps_draws=False, said="same as a row of weight 2"),
            Relation("row_left_out", _row_left_out, keeps_draws=False, said="same as a row of weight 0"),
            Relation("masked_array", _marked(_masked), said="same as NaN"),
            Relation("frame_nan", _marked(pd.DataFrame), said="same as NaN in an array"),
            Relation("frame_na", _marked(_frame_of_na), said="same as NaN in an array"),
            Relation(
                "row_masked", _marked(_masked, whole_row=True), said="no: a row without any cell is refused"
            ),
            Relation("empty_document", _empty_document, keeps_draws=False, said="no: rows are not documents"),
            Relation("unused_word", _unused_word, keeps_draws=False, said="no: columns are not words"),
            Relation("sparse", _second(_sparse), keeps_draws=False, said="same as dense"),
            Relation("frame", _second(_frames), said="same as an array"),
            Relation(
                "nested_list",
                _second(lambda data: tuple(np.asarray(x).tolist() for x in data)),
                said="same as an array",
            ),
            Relation(
                "float32",
                _with_options(lambda data: {"dtype": "float32"}),
                said="same, to single precision",
                keeps_draws=False,
                single_precision=True,
            ),
            Relation(
                "batches",
                _with_options(lambda data: {"batch_size": -(-len(data[0]) // 2)}),
                said="same once converged",
                keeps_draws=False,
            ),
            Relation(
                "devices",
                _with_options(lambda data: {"num_devices": 2}),
                keeps_draws=False,
                said="same as on one device",
            ),
            Relation(
                "padded",
                lambda model, data, rng: Change(Side(data), Side(data, in_own_shapes=True)),
                said="same as without rows and components that fill up",
            ),
            Relation("fitted_rows", _second(lambda data: data), stored=True, said="same as stored"),
        )
    }
)
