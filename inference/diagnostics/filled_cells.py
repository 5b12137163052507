r"""Missing cells filled in: the expectation of each given the observed cells of its row.

A mixture fills a cell under every draw by each of its clusters that hold rows, given the observed cells of
the row, and weighs the clusters by their probabilities given the same cells:

.. math:: E[x_d \mid x_o] = \sum_k p(k \mid x_o)\, E[x_d \mid x_o, k].

A projection fills it by `inference.predict`. A cell that is a word has a most probable level and no mean.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr

from inference.diagnostics.profile_parts import (
    column_names,
    fitted_data,
    held_in_draws,
    parameters_of,
    quantities_of,
    ranked,
    row_names,
    spread_of_logs,
)
from inference.numerics.programs import over_draws
from inference.prediction import predict
from inference.results.files import model_of
from inference.results.groups import thinned
from zoo.answers import answer_of, has_answer
from zoo.intake import Column
from zoo.intake.families import for_data
from zoo.intake.tables import tables_of
from zoo.model import Model

_MOST_DRAWS = 200  # of a sampler, by which cells are filled in
_MOST_FILLED = 2**23  # rows times columns times draws


class _Filled(NamedTuple):
    """A part of the data as a fit fills it in, NaN where it does not.

    Attributes:
        mean: expectations, the shape of the part.
        deviation: their standard deviations.
        level: number of the most probable level of cells that are words.
        probability: of that level.
    """

    mean: np.ndarray
    deviation: np.ndarray
    level: np.ndarray
    probability: np.ndarray

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> "_Filled":
        return cls(*(np.full(shape, np.nan) for _ in cls._fields))


def filled_cells(tree: xr.DataTree) -> pd.DataFrame | None:
    """Tabulate the expectations of the missing cells of the fitted data.

    Returns:
        As `inference.diagnostics.profiles` lists it; None where no cell is missing, or the fit does not hold
        its data.
    """
    data, model, gaps = fitted_data(tree), model_of(tree), _gaps(tree)
    if not gaps:
        return None
    few, rows, unknown, origins = thinned(tree, _MOST_DRAWS), [], 0, {}
    labels = row_names(tree)
    read = dict(zip(model.data_names, tree.fit.columns, strict=True))
    by_clusters = not has_answer(model, "cells")
    for name, gap in gaps.items():
        found = _by_clusters(few, gap) if by_clusters else _predicted(few, data, name, gap)
        columns = column_names(tree, name, gap.shape[1])
        held = {column.name: column for column in read[name].kept} if read[name] is not None else {}
        origins |= {column.name: column.origin for column in held.values() if column.origin is not None}
        for n, d in np.argwhere(gap):
            cell = _Filled(*(part[n, d] for part in found))
            if np.isnan(cell.mean) and np.isnan(cell.level):
                unknown += 1
                continue
            key = {"view": name, "row": n if labels is None else labels[n], "column": columns[d]}
            rows.append(key | _as_read(cell, held.get(columns[d])))
    words = any(row["value"] is not None for row in rows)
    table = ranked(
        rows, ("view", "row", "column"), ("mean", "sd", *(("value", "probability") if words else ()))
    )
    note = "expectation of each missing cell given the observed ones of its row, and its standard deviation"
    note += "; of columns fitted by their logarithms the median and half the central 68 %"
    note += "; value: the word or date nearest to it, with the probability of the word" if words else ""
    worded = (row for row in rows if row["value"] is not None and row["column"] not in origins)
    lacks = any(np.isnan(row["probability"]) for row in worded)
    note += " (projections: of yes and no alone)" if lacks else ""
    note += f"; {unknown} cells are not filled: their row has no answer" if unknown else ""
    note += "; dates have means and deviations in days since the first" if origins else ""
    table.attrs |= {"title": "Missing cells filled in", "note": note, "origins": origins}
    return table


def number_filled(tree: xr.DataTree) -> int:
    """How many cells `filled_cells` tabulates; a mixture fills all, so that none is computed."""
    gaps = _gaps(tree)
    if not has_answer(model_of(tree), "cells"):
        return sum(int(gap.sum()) for gap in gaps.values())
    table = filled_cells(tree) if gaps else None
    return 0 if table is None else len(table)


def _gaps(tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Where cells of the fitted data are missing, by part; without parts that lack none, or lack data."""
    model, data = model_of(tree), fitted_data(tree)
    if not has_answer(model, "cells") and model.roles.cluster is None:
        return {}  # nothing fills them
    return {
        table.name: np.isnan(part)
        for table, part in zip(tables_of(model), () if data is None else data, strict=data is not None)
        if not ("class_labels" in table.cells and model.classes)  # an unlabelled row is no cell to fill in
        and isinstance(part, np.ndarray)
        and part.ndim == 2
        and part.dtype.kind == "f"
        and np.isnan(part).any()
    }


def _as_read(cell: _Filled, column: Column | None) -> dict[str, Any]:
    """A filled cell in the words of the table that was read."""
    row = {"mean": cell.mean, "sd": cell.deviation, "value": None, "probability": cell.probability}
    if column is None:
        return row | {"value": None if np.isnan(cell.level) else f"level {cell.level:.0f}"}
    if column.origin is not None:
        return row | {"value": column.cell_in_words(cell.mean)}
    if not column.levels:
        return row
    place = cell.level if not np.isnan(cell.level) else cell.mean
    if len(column.levels) == 2 and np.isnan(cell.probability):  # yes and no, whose mean is the probability
        row["probability"] = max(cell.mean, 1 - cell.mean)
    return row | {"value": column.cell_in_words(place)}


def _of_rows(model: Model, draw: Mapping[str, Any], *data: Any) -> list[tuple[jax.Array, ...]]:
    """Moments of the cells of rows under one draw, or probabilities of levels, over clusters with rows."""
    values, holds = draw["values"], draw["holds"]
    logits = answer_of(model, "conditionals", values, *data)[model.roles.cluster].logits
    shares, found = jax.nn.softmax(jnp.where(holds, logits, -jnp.inf), axis=-1)[..., None], []
    for part in answer_of(model, "cells_given", values, *data):
        mean, *spread = (
            jnp.where(holds[:, None], own, 0.0) for own in (part.values, part.spread) if own is not None
        )
        moments = [mean, *(own**2 + mean**2 for own in spread)]
        found.append(tuple(jnp.sum(shares * moment, axis=1) for moment in moments))
    return found


def _by_clusters(tree: xr.DataTree, gap: np.ndarray) -> _Filled:
    """The only part of the data of a mixture filled in by its clusters."""
    (x,), found, rows = fitted_data(tree), _Filled.nothing(gap.shape), np.flatnonzero(gap.any(1))
    model = for_data(model_of(tree), x[rows])
    most = int(np.clip(_MOST_FILLED // max(x[rows].size, 1), 1, _MOST_DRAWS))
    draws, holds = parameters_of(tree, most), held_in_draws(tree, most)
    number = next(iter(draws.values())).shape[1]
    holds = np.broadcast_to(holds, (1, number, holds.shape[2]))
    parts = quantities_of(model, draws)
    moments = over_draws(_of_rows, {"values": draws, "holds": holds}, model, (x[rows],))
    best = np.zeros((len(rows), gap.shape[1]))
    places = np.zeros(gap.shape[1])
    for part, moment in zip(parts, moments, strict=True):
        mean, *second = (np.asarray(own)[0].mean(0) for own in moment)
        at = np.ix_(rows, part.columns)
        if second:
            deviation = np.sqrt(np.maximum(second[0] - mean**2, 0.0))
            if part.of_logs:
                mean = np.exp(mean)
                deviation = spread_of_logs(mean, deviation)
            found.mean[at], found.deviation[at] = mean, deviation
            continue
        better = mean > best[:, part.columns]  # one quantity a level, in the order of the levels
        best[:, part.columns] = np.where(better, mean, best[:, part.columns])
        found.level[at] = np.where(better, places[part.columns], found.level[at])
        found.probability[at] = best[:, part.columns]
        places[part.columns] += 1
    return found


def _predicted(tree: xr.DataTree, data: tuple, name: str, gap: np.ndarray) -> _Filled:
    """A part of the data of a projection filled in by its predictions."""
    model, found, rows = model_of(tree), _Filled.nothing(gap.shape), np.flatnonzero(gap.any(1))
    chosen = [what for what, own in answer_of(model, "completions").items() if own.part == name]
    if not chosen or not rows.size:
        return found
    predicted = predict(tree, *(part[rows] for part in data), what=chosen[0])
    if predicted.shape[1] == gap.shape[1]:
        found.mean[rows], found.deviation[rows] = predicted.to_numpy(), predicted["standard_deviation"]
    return found
