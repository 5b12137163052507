"""What the columns of a table hold that is too large to be held: decided by rows of all of it, in one pass.

`zoo.intake` decides by cells. Of a table of up to `SURVEYED` rows it is shown all of them, of a larger one
evenly spaced rows and, of every column, the rows that bear witness against a hasty decision: those of the
smallest and the largest number, of the first that is not whole, of the first missing cell, of every
different word (up to `MOST_WORDS`) and of few different numbers, of the first and the last date. So no
later batch holds a word, a fraction or a negative number that the decision has not seen. Numbers in step
through all rows are an id, and missing cells are counted in all rows.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from inference.inputs.sources import Source, is_source
from inference.inputs.tables import read_parts
from zoo.intake import MOST_FEW, Columns
from zoo.model import Model

SURVEYED = 100_000
MOST_WORDS = 50
IN_STEP = "all different whole numbers, in steps of {:g}"
LEAST_STEPS = 8  # as of `zoo.intake.kinds`


class _Witnesses:
    """The rows of one column that a decision must see, and what is counted of it."""

    def __init__(self) -> None:
        self.rows: dict[Any, int] = {}  # what a row is witness of -> its number
        self.num_missing = 0
        self.extremes: dict[str, float] = {}
        self.words: set[str] = set()
        self.last: float | None = None
        self.step: float | None = None
        self.may_be_dates = True
        self.in_step = True

    def look(self, cells: pd.Series, begin: int) -> None:
        if pd.api.types.is_datetime64_any_dtype(cells.dtype):
            self.in_step = False
            self._extremes(cells.astype("int64").to_numpy(float), cells.isna().to_numpy(), begin)
        elif pd.api.types.is_numeric_dtype(cells.dtype):
            numbers = cells.to_numpy(dtype=float, na_value=np.nan)
            missing = np.isnan(numbers)
            self._extremes(numbers, missing, begin)
            self._fraction(numbers, begin)
            if len(self.words) <= MOST_FEW:
                self._different(numbers, begin)
            whole = pd.api.types.is_integer_dtype(cells.dtype)
            self.in_step = self.in_step and whole and not missing.any() and self._steps(numbers)
        else:
            self.in_step = False
            self._words(cells, begin)

    def _extremes(self, numbers: np.ndarray, missing: np.ndarray, begin: int) -> None:
        self.num_missing += int(missing.sum())
        if missing.any():
            self.rows.setdefault("missing", begin + int(np.argmax(missing)))
        if missing.all():
            return
        for name, sign in (("least", -1.0), ("most", 1.0)):
            at = int(np.argmax(np.where(missing, -np.inf, sign * numbers)))
            if sign * numbers[at] > self.extremes.get(name, -np.inf):
                self.extremes[name] = sign * numbers[at]
                self.rows[name] = begin + at

    def _fraction(self, numbers: np.ndarray, begin: int) -> None:
        if "fraction" not in self.rows:
            broken = np.isfinite(numbers) & (numbers != np.floor(numbers))
            if broken.any():
                self.rows["fraction"] = begin + int(np.argmax(broken))

    def _different(self, numbers: np.ndarray, begin: int) -> None:
        """The first row of every different number, of columns that have few."""
        for number in pd.unique(numbers[~np.isnan(numbers)])[: MOST_FEW + 1]:
            if (word := str(number)) not in self.words:
                self.words.add(word)
                self.rows["word", word] = begin + int(np.argmax(numbers == number))

    def _steps(self, numbers: np.ndarray) -> bool:
        if self.last is not None:
            numbers = np.concatenate([[self.last], numbers])
        self.last = numbers[-1]
        if numbers.size < 2:
            return True
        steps = np.diff(numbers)
        self.step = steps[0] if self.step is None else self.step
        return self.step != 0 and bool((steps == self.step).all())

    def _words(self, cells: pd.Series, begin: int) -> None:
        missing = cells.isna().to_numpy()
        if not isinstance(cells.dtype, pd.CategoricalDtype):
            missing = missing | (cells.astype(str).str.strip() == "").to_numpy()
        self.num_missing += int(missing.sum())
        if missing.any():
            self.rows.setdefault("missing", begin + int(np.argmax(missing)))
        if self.may_be_dates:
            self._dates(cells[~missing], np.flatnonzero(~missing) + begin)
        if len(self.words) >= MOST_WORDS:
            return
        first = ~cells.duplicated().to_numpy() & ~missing
        for at in np.flatnonzero(first)[: 2 * MOST_WORDS]:
            word = str(cells.iloc[at]).strip()
            if word not in self.words:
                self.words.add(word)
                self.rows["word", word] = begin + int(at)

    def _dates(self, cells: pd.Series, rows: np.ndarray) -> None:
        """The first and the last of words that are dates, of which days are counted from the first."""
        words = cells.drop_duplicates()
        if not len(words):
            return
        text = words.astype(str).str.strip()
        if not text.str.contains(r"\d", regex=True).all():
            self.may_be_dates = False
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that differ or are not known
            dates = pd.to_datetime(text, errors="coerce")
        if dates.isna().any():
            self.may_be_dates = False
            return
        places = rows[~cells.duplicated().to_numpy()]
        numbers = np.full(len(dates), 0.0) + dates.astype("int64").to_numpy()
        for name, sign, at in (("least", -1.0, numbers.argmin()), ("most", 1.0, numbers.argmax())):
            if sign * numbers[at] > self.extremes.get(name, -np.inf):
                self.extremes[name] = sign * numbers[at]
                self.rows[name] = int(places[at])


def survey(source: Source) -> tuple[pd.DataFrame, dict[str, _Witnesses], int]:
    """Rows by which the columns of a table are decided, and what was seen of each column in all rows.

    Args:
        source: a table.

    Returns:
        The rows, numbered as in the table; what was seen, by column; and the number of rows.
    """
    seen = {name: _Witnesses() for name in source.names}
    kept: list[pd.DataFrame] = []
    witnesses: dict[tuple[str, Any], tuple[int, pd.DataFrame]] = {}
    stride, count = 1, 0
    for chunk in source:
        begin = int(chunk.index[0])
        for name, own in seen.items():
            own.look(chunk[name], begin)
            for what, row in own.rows.items():
                if row >= begin:
                    witnesses[name, what] = row, chunk.iloc[[row - begin]]
        kept.append(chunk.iloc[-begin % stride :: stride])
        count = begin + len(chunk)
        while sum(map(len, kept)) > SURVEYED:
            stride *= 2
            kept = [part[part.index % stride == 0] for part in kept]
    rows = pd.concat([*kept, *(frame for _, frame in witnesses.values())])
    return rows[~rows.index.duplicated()].sort_index(), seen, count


def read_all_columns(
    model: Model,
    data: tuple,
    families: Mapping[str, str] | None,
    levels: Mapping[str, Sequence[Any]] | None,
    id: str | None,
) -> tuple[Model, tuple[Columns | None, ...], tuple]:
    """What the columns of tables hold, in memory or elsewhere, the model that suits them, and the data.

    Args:
        model: as for `inference.inputs.tables.read_parts`.
        data: the parts, a `Source` where they lie elsewhere.
        families: as for `read_parts`.
        levels: as for `read_parts`.
        id: as for `read_parts`.

    Returns:
        The model, the columns of each part (None of one that is no table), and the parts, sources as numbers.

    Raises:
        TypeError: as `read_parts`.
        ValueError: as `read_parts`; a row that a message names is that of the table.
    """
    if not any(is_source(part) and part.kind == "table" for part in data):
        return *read_parts(model, data, families, levels, id), data
    (source,) = data
    if source.holds_texts:
        return model, (None,), data
    if model.data[0].holds_documents:
        frame, seen = source.first(), {}
        if _is_text(frame):
            return model, (None,), (source.as_texts(),)
    else:
        frame, seen, count = survey(source)
    stepped = {
        name: own.step
        for name, own in seen.items()
        if own.in_step and own.step is not None and count >= LEAST_STEPS
        if name not in (families or {}) and name not in (levels or {}) and name != id
    }
    told = {**(families or {}), **dict.fromkeys(stepped, "id")} or None
    plain = frame.reset_index(drop=True)
    try:
        model, (columns,) = read_parts(model, (plain,), told, levels, id)
    except (TypeError, ValueError):
        read_parts(model, (frame,), told, levels, id)  # names the row of the table
        raise
    if columns is not None and seen:
        columns = replace(
            columns,
            columns=tuple(
                replace(
                    column,
                    num_missing=seen[column.name].num_missing,
                    **(
                        {"why": IN_STEP.format(stepped[column.name]), "is_given": False}
                        if column.kind == "id" and column.name in stepped
                        else {}
                    ),
                )
                for column in columns.columns
            ),
        )
    return model, (columns,), (source.read_by(columns),)


def _is_text(frame: pd.DataFrame) -> bool:
    """Whether a table is one column of texts."""
    if frame.shape[1] != 1:
        return False
    cells = frame.iloc[:, 0].dropna()
    return not pd.api.types.is_numeric_dtype(cells.dtype) and all(isinstance(text, str) for text in cells)


def weight_and_rest(data: tuple, sample_weight: Any) -> tuple[tuple, Any]:
    """The data without the column that weights the rows, and the weights.

    Args:
        data: the parts; the first is a table, or a source of one, where ``sample_weight`` is a name.
        sample_weight: weights, the name of a column, or None.

    Returns:
        The data and the weights.

    Raises:
        TypeError: a name, and data without names of columns.
        ValueError: no such column.
    """
    if not isinstance(sample_weight, str):
        return data, sample_weight
    first, *others = data
    names = first.names if is_source(first) else getattr(first, "columns", None)
    if names is None:
        raise TypeError(
            f"sample_weight={sample_weight!r} names a column, and the data have no names of columns: pass "
            "the weights, one for each row"
        )
    if sample_weight not in list(map(str, names)):
        raise ValueError(
            f"sample_weight names no column: {sample_weight!r}; there are {', '.join(map(str, names))}"
        )
    if is_source(first):
        rest = first.taking([name for name in names if name != sample_weight])
        return (rest, *others), first.column(sample_weight)
    own = next(name for name in names if str(name) == sample_weight)
    return (first.drop(columns=own), *others), first[own]
