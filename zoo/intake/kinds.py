"""The kind of each column of a table, decided by its cells, and the table as numbers.

==============  ======================================================  =====================================
kind            which columns                                           as numbers
==============  ======================================================  =====================================
``real``        numbers                                                 themselves
``positive``    positive numbers whose held-out rows are more likely    themselves
                under log-normals than under Gaussians, by a wide
                margin
``count``       whole numbers that reach down towards zero and spread   themselves
                as counts do
``yes/no``      0 and 1, booleans, yes and no and the like              0 and 1
``category``    words of at most 20 levels, two rows a level or more    0, 1, ...: levels in their order
``ordered``     words of a common scale, levels that were given, or     0, 1, ...: levels in rising order
                few numbers
``date``        dates and times                                         days since the first
``id``          words, or whole numbers in step or so named, all        left out; the first labels the rows
                different; dates in even steps
``text``        other words, and columns with one value in every row    left out
==============  ======================================================  =====================================

Few numbers are at most 12 different ones, of 5 rows or more each but for a twentieth of the rows, such as
years or answers from 1 to 7. They are counts if they are whole, have the range and spread of counts and thin
out towards the largest; categories if they are whole and in no even steps (of which some may be empty); else
ordered. Columns with the same smallest and largest number are judged together. A model that takes no levels
has the numbers themselves.

Every decision can be overruled by the column's name. New rows are encoded as the rows of the fit were.
"""

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from zoo.checks import as_numbers, check_unique, first_of, shown
from zoo.intake.dates import DAY_FIRST, MONTH_FIRST, nearly_dates, read_dates
from zoo.intake.numbers_as_text import role_of_commas

KINDS = {  # word of a family or of a kind -> kind
    "gaussian": "real",
    "real": "real",
    "lognormal": "positive",
    "positive": "positive",
    "poisson": "count",
    "count": "count",
    "bernoulli": "yes/no",
    "yes/no": "yes/no",
    "categorical": "category",
    "category": "category",
    "ordinal": "ordered",
    "ordered": "ordered",
    "date": "date",
    DAY_FIRST: "date",
    MONTH_FIRST: "date",
    "id": "id",
    "text": "text",
    "leave_out": "text",
}
MOST_LEVELS = 20
ROWS_PER_LEVEL = 2
LEAST_STEPS = 8  # rows, from which on whole numbers in step are no accident
LEAST_COUNTS = 8  # cells, from which on range and spread are looked at
COUNT_DISPERSION = (0.5, 5.0)  # variance over mean of a column of counts
COUNT_REACH = 4.0  # the smallest count is at most the mean over this
LARGEST_MEAN_COUNT = 100.0
_SKEWED = "skewed: lognormal may suit it better"
SKEWED = 0.75  # skewness of a positive column, above which its logarithms are looked at
LOG_GAIN = 0.01  # nats a held-out row, from which on logarithms are better
LOG_ERRORS = 3.0  # standard errors that the gain must be from zero
SUGGESTED = 1.5  # standard errors, from which on they are suggested
BY_CHANCE = 0.05  # share of columns for which they may be suggested by chance
MOST_SCORED = 4000  # rows by which logarithms are judged
MOSTLY = 0.5  # share of words that are numbers, above which the others are taken for mistakes
REPEATED = 3.0  # rows of a word on average, from which on it may name what was measured again and again
ALIKE = 0.5  # share of the variance of numbers between words, from which on their rows are alike
MOST_FEW = 12  # different numbers of a column that may be levels
ROWS_OF_EACH = 5  # rows that each of them has at least
RARE = 0.05  # share of rows whose numbers may have fewer
THINNED_OUT = 0.05  # share of rows with the largest number, up to which few numbers may be counts
LEAST_RUN = 4  # neighbouring columns that hold the same, from which on they are told in one
MOST_TOLD = 15  # entries of the line that tells of the columns one by one
_LEFT_OUT = ("id", "text")
_PLAIN_ANSWERS = ("0", "1")
_EMPTY = "(empty)"  # the level of a cell that is not ticked
_WORDS_OF_KIND = ("category", "ordered")


def date_in_words(origin: str, days: float) -> str:
    """The date so many days after the first one of a column.

    Args:
        origin: the first date, ISO 8601.
        days: since then.

    Returns:
        As ``2021-06-28``, the nearest day; with hours and minutes where the first date has a time of day.
    """
    first = pd.Timestamp(origin)
    if first == first.normalize():
        return str((first + pd.Timedelta(days=round(days))).date())
    return (first + pd.Timedelta(days=days)).round("min").strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class Column:
    """What one column holds.

    Attributes:
        name: of the column.
        kind: one of the values of `KINDS`.
        why: the reason for the decision, in words.
        num_missing: cells without a value.
        levels: names of the levels in their order, or of the two answers; empty: none.
        origin: the first date of a column of dates, ISO 8601.
        format: in which its dates are written; None: they are no words.
        doubt: what the cells leave open, and how to say otherwise; of a column that is left out, what it may
            be said to hold; empty: nothing.
        is_given: whether the caller said what the column holds.
        numbers: those that the levels of a column of few numbers stand for; empty: words.
        first: number of the first level; None: words are numbered from 0, and numbers are themselves.
        repeats: rows of a word in a column that is left out, on average, where these are alike; else 0.
    """

    name: str
    kind: str
    why: str
    num_missing: int = 0
    levels: tuple[str, ...] = ()
    origin: str | None = None
    format: str | None = None
    doubt: str = ""
    is_given: bool = False
    numbers: tuple[float, ...] = ()
    first: int | None = None
    repeats: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether the column is part of the data: neither an id nor text."""
        return self.kind not in _LEFT_OUT

    @property
    def is_discrete(self) -> bool:
        """Whether cells have probabilities, not densities."""
        return self.kind in ("yes/no", "count", *_WORDS_OF_KIND)

    @property
    def is_told(self) -> bool:
        """Whether words, or the caller, say what the column holds."""
        return self.is_given or (bool(self.levels) and self.levels != _PLAIN_ANSWERS and not self.numbers)

    @property
    def has_two_words(self) -> bool:
        """Whether the cells are one of two words, and the caller said nothing of them."""
        return self.kind in _WORDS_OF_KIND and len(self.levels) == 2 and not (self.numbers or self.is_given)

    @property
    def is_as_numbered(self) -> bool:
        """Whether the cells are numbers that a model takes as they are."""
        return self.kind in ("real", "positive", "count") or (bool(self.numbers) and self.first is None)

    @property
    def in_words(self) -> str:
        """What the column holds, without its name."""
        few = f" ({self.levels[0]} to {self.levels[-1]}; as numbers: gaussian)" if self.numbers else ""
        if few and self.first is None:
            return f"{len(self.levels)} numbers ({self.levels[0]} to {self.levels[-1]})"
        return {
            "category": f"{len(self.levels)} categories{few}",
            "ordered": f"{len(self.levels)} ordered levels{few}",
            "positive": f"positive{'' if self.is_given else ', log-normal (else say gaussian)'}",
            "count": "counts",
            "real": f"real{self.doubt and f' ({self.doubt})'}",
            "date": f"dates{self.doubt and f' ({self.doubt})'}",
            "text": "left out",
            "yes/no": f"yes/no{self.doubt and f' ({self.doubt})'}",
        }.get(self.kind, self.kind)

    @property
    def as_it_is(self) -> Self:
        """The column where a model has no log-normal for it."""
        if self.kind != "positive" and self.doubt != _SKEWED:
            return self
        return replace(self, kind="real", doubt="skewed: its logarithm may suit better")

    def cell_in_words(self, number: float) -> str | float | None:
        """The number of a cell as the table had it: the nearest level or date, or the number itself.

        Args:
            number: of the cell, as `Columns.encoded` makes it, or near it.

        Returns:
            A word, a date as text or the number; None of NaN.
        """
        if np.isnan(number):
            return None
        if self.origin is not None:
            return date_in_words(self.origin, number)
        if not self.levels or self.is_as_numbered:
            return number
        return self.levels[int(np.clip(np.round(number - (self.first or 0)), 0, len(self.levels) - 1))]

    def __str__(self) -> str:
        """The decision in a few words."""
        return f"{self.name}: {self.in_words}" + _missing(self.num_missing)


@dataclass(frozen=True)
class Columns:
    """What the columns of a table hold, and how they become numbers.

    Attributes:
        columns: one for each column of the table, in its order.
        label: name of the column whose cells label the rows; None: the index of the table does.
        num_rows: of the table that was read; None: not known.
    """

    columns: tuple[Column, ...]
    label: str | None = None
    num_rows: int | None = field(default=None, compare=False)

    @property
    def kept(self) -> tuple[Column, ...]:
        """The columns that are part of the data."""
        return tuple(column for column in self.columns if column.is_kept)

    @property
    def left_out(self) -> tuple[Column, ...]:
        """The columns that are neither part of the data nor label the rows."""
        return tuple(c for c in self.columns if not c.is_kept and c.name != self.label)

    @property
    def with_families(self) -> tuple[Column, ...]:
        """The columns that hold words, or whose kind was given, and that have probabilities."""
        return tuple(column for column in self.kept if column.is_discrete and column.is_told)

    @property
    def needs_families(self) -> bool:
        """Whether some columns are no numbers whose family follows from their values alone."""
        return bool(self.with_families)

    @property
    def level_numbers(self) -> dict[str, dict[str, int]]:
        """Column to the number of each of its levels, of columns whose levels have names."""
        return {
            column.name: {level: number + (column.first or 0) for number, level in enumerate(column.levels)}
            for column in self.kept
            if column.levels and not column.is_as_numbered
        }

    def encoded(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table as numbers, its rows labelled by their ids.

        Args:
            frame: rows with the columns of the table that was read; ids and text may be missing.

        Returns:
            The columns that are part of the data and that ``frame`` has, in their order, as float64.

        Raises:
            TypeError: a cell that is no number in a column of numbers.
            ValueError: a word that is none of a column's levels, or two columns of one name that is wanted.
        """
        wanted = {column.name for column in self.kept} | {self.label}
        check_unique([name for name in frame.columns if str(name) in wanted], "new data")
        have = {str(name): name for name in frame.columns}
        held = [(have[column.name], column) for column in self.kept if column.name in have]
        if all(_is_as_it_is(frame[name].dtype, column) for name, column in held):
            names = [name for name, _ in held]
            encoded = (frame if names == list(frame.columns) else frame[names]).astype(np.float64)
        else:
            numbers = [_numbers(frame[name], column) for name, column in held]
            encoded = pd.DataFrame(dict(enumerate(numbers)), index=frame.index)
            places = {str(name): place for place, name in enumerate(frame.columns)}
            # names as they came: pandas with pyarrow makes no index of text that is no Unicode
            encoded.columns = frame.columns[[places[column.name] for _, column in held]]
        if self.label is not None and self.label in have and _is_plain(frame.index):
            encoded.index = pd.Index(frame[have[self.label]], name=self.label)
        return encoded

    def table(self) -> pd.DataFrame:
        """What was decided, and why.

        Returns:
            One row a column, with the columns kind, missing, levels and why.
        """
        rows = [
            {
                "kind": "row label" if column.name == self.label else str(column.kind),
                "missing": column.num_missing,
                "levels": ", ".join(column.levels),
                "why": column.why,
            }
            for column in self.columns
        ]
        return pd.DataFrame(rows, index=pd.Index([column.name for column in self.columns], name="column"))

    def __str__(self) -> str:
        """The decisions in one line; neighbours that hold the same are named by the first and the last."""
        runs: list[list[Column]] = []
        for column in self.columns:
            before = runs[-1][-1] if runs else None
            is_same = before is not None and before.in_words == column.in_words
            if is_same and self.label not in (before.name, column.name):
                runs[-1].append(column)
            else:
                runs.append([column])
        told = [self._in_words(run) for run in runs]
        return "; ".join(told if len(told) <= MOST_TOLD else self._by_kind())

    def _by_kind(self) -> list[str]:
        """How many columns hold what, for a table whose columns are of many kinds in turn."""
        found: dict[str, list[Column]] = {}
        for column in self.columns:
            if column.name != self.label:
                found.setdefault(column.in_words, []).append(column)
        told = [] if self.label is None else [f"{self.label}: row label"]
        for words, columns in found.items():
            missing = _missing(sum(column.num_missing for column in columns))
            named = first_of((column.name for column in columns), 3)
            told.append(f"{len(columns)} of {words}{missing} ({named})")
        return told

    def _in_words(self, run: Sequence[Column]) -> str:
        if run[0].name == self.label:
            return f"{self.label}: row label"
        if len(run) < LEAST_RUN:
            return "; ".join(map(str, run))
        missing = _missing(sum(column.num_missing for column in run))
        return f"{run[0].name} to {run[-1].name} ({len(run)} columns): {run[0].in_words}{missing}"

    def as_text(self) -> tuple[str, ...]:
        """The decisions as text, one entry for the label and one for each column; `from_text` reads it.

        Returns:
            JSON, an entry each.
        """
        return (json.dumps(self.label), *(json.dumps(asdict(column)) for column in self.columns))

    @classmethod
    def from_text(cls, entries: Sequence[str]) -> Self:
        """The decisions that `as_text` wrote.

        Args:
            entries: its result.

        Returns:
            The decisions.
        """
        label, *columns = map(json.loads, entries)
        made = (
            Column(**fields | {"levels": tuple(fields["levels"]), "numbers": tuple(fields["numbers"])})
            for fields in columns
        )
        return cls(tuple(made), label)

    def numbered_from(self, starts: Sequence[int] | np.ndarray, model: str) -> Self:
        """The columns with levels numbered as a model takes them.

        Args:
            starts: for each column that is part of the data the number of its first level, -1 where the model
                takes no levels.
            model: its name, in messages.

        Returns:
            The columns.

        Raises:
            ValueError: a column of categories where the model takes no levels.
        """
        pairs = list(zip(self.kept, starts, strict=True))
        refused = [c for c, start in pairs if c.kind == "category" and start < 0 and not c.numbers]
        if refused:
            named = ", ".join(column.name for column in refused)
            words = ", ".join(map(repr, refused[0].levels[:3]))
            raise ValueError(
                f"{model} takes numbers here, and these columns hold categories: {named} (such as {words}); "
                f"leave them out by families={{{refused[0].name!r}: 'leave_out'}} of inference.fit, or take "
                "zoo.Mixture or zoo.EPCA, which choose families that suit"
            )
        first = {column.name: int(start) for column, start in pairs if start >= 0}
        return replace(
            self, columns=tuple(replace(column, first=first.get(column.name)) for column in self.columns)
        )

    def with_answers(self, places: Collection[int]) -> Self:
        """The columns where some of two words are zeros and ones, the second word being yes.

        Args:
            places: numbers of columns whose cells a model takes as zeros and ones, among those that are part
                of the data.

        Returns:
            The columns.
        """
        answers = {
            column.name: replace(column, kind="yes/no", doubt=f"yes: {column.levels[1]}")
            for place, column in enumerate(self.kept)
            if place in places and column.has_two_words
        }
        return replace(self, columns=tuple(answers.get(column.name, column) for column in self.columns))

    def with_logs(self, places: Set[int] | None, model: str) -> Self:
        """The columns where only some are fitted by their logarithms, and the others are taken as they are.

        Args:
            places: numbers of these columns among those that are part of the data; None: the model has no
                logarithms, and none are suggested.
            model: its name, in messages.

        Returns:
            The columns.

        Raises:
            ValueError: another was said to be log-normal.
        """
        kept = enumerate(self.kept)
        others = [c.name for n, c in kept if places is None or (c.kind == "positive" and n not in places)]
        said = [c.name for c in self.columns if c.name in others and c.kind == "positive" and c.is_given]
        if said:
            raise ValueError(
                f"{model} takes numbers as they are, and families has {', '.join(said)} as log-normal: "
                "pass their logarithms, or take zoo.Mixture with the default components"
            )
        return replace(self, columns=tuple(c.as_it_is if c.name in others else c for c in self.columns))


def read_columns(
    frame: pd.DataFrame,
    *,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
    name: str = "x",
) -> Columns:
    """What the columns of a table hold, decided by their cells.

    Args:
        frame: the table.
        families: column to the family or kind that it is to have, one of `KINDS`; ``"leave_out"`` leaves it
            out.
        levels: column to its levels in rising order: it is ordered then.
        id: column whose cells label the rows; None: the first that looks like an id, unless the table has an
            index other than 0, 1, ...
        name: of the data in messages.

    Returns:
        The decisions; printed, they are one line, and ``.table()`` has the reasons.

    Raises:
        TypeError: ``frame`` is no table of pandas, or ``families`` or ``levels`` no mapping.
        ValueError: two columns of one name, no such column or kind, words in a column of numbers, or cells
            that are none of the levels that are given.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"opinion": ["often", "never", "often"], "visits": [0, 3, 1]})
        >>> read_columns(frame, levels={"opinion": ["never", "often"]}).columns[0].levels
        ('never', 'often')
    """
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(f"{name} must be a DataFrame for its columns to be read; got {type(frame).__name__}")
    check_unique(frame.columns, name)
    known = [str(column) for column in frame.columns]
    families = _by_column("families", families, known)
    levels = _by_column("levels", levels, known)
    if id is not None and str(id) not in known:
        raise ValueError(f"id names no column: {id!r}; there are {', '.join(known)}")
    for column, family in families.items():
        if family not in KINDS:
            raise ValueError(
                f"families gives {column!r} the kind {shown(family)}; there are {', '.join(KINDS)}"
            )
    found = []
    for column, cells in zip(known, (frame.iloc[:, i] for i in range(frame.shape[1])), strict=True):
        kind = KINDS[families[column]] if column in families else None
        if column == id:
            found.append(_column(column, "id", "named by id=", cells, is_given=True))
        elif column in levels:
            found.append(_with_given_levels(column, cells, levels[column], kind or "ordered"))
        else:
            found.append(_read(column, cells, kind, families.get(column)))
    found = _on_common_scales(frame, found)
    found = _with_few_numbers(frame, found)
    found = _without_constants(frame, found)
    found = _without_chance(found)
    found = _with_repeats(frame, found)
    return _labelled(frame, found, None if id is None else str(id))


def _by_column(what: str, given: Mapping[str, Any] | None, known: Sequence[str]) -> dict[str, Any]:
    """An argument that has a value for some columns."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} must be a mapping by column, such as {{{known[0]!r}: ...}}; got {shown(given)}"
        )
    strange = [str(column) for column in given if str(column) not in known]
    if strange:
        raise ValueError(f"{what} names no column: {strange[0]!r}; there are {', '.join(known)}")
    return {str(column): value for column, value in given.items()}


def _missing(number: int) -> str:
    return f", {number} missing" if number else ""


def _column(name: str, kind: str, why: str, cells: pd.Series, **fields: Any) -> Column:
    return Column(name, kind, why, int(_is_missing(cells).sum()), **fields)


def _is_missing(cells: pd.Series) -> pd.Series:
    """Cells without a value: missing ones of pandas, and empty words."""
    missing = cells.isna()
    return missing if _is_numeric(cells) else missing | (_as_text(cells) == "")


def _as_text(cells: pd.Series) -> pd.Series:
    """Cells as words without spaces around them."""
    try:
        return cells.astype(str).str.strip()
    except UnicodeDecodeError:  # bytes that are no text
        return cells.map(repr)


def _is_numeric(cells: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(cells.dtype)


def _check_cells(name: str, cells: pd.Series) -> None:
    """Raise TypeError for cells that are read as other numbers than they are."""
    try:
        cells.isna()
    except ArithmeticError:
        raise TypeError(f"column {name!r} holds a signalling NaN: write missing cells as NaN") from None
    if pd.api.types.is_complex_dtype(cells.dtype):
        raise TypeError(f"column {name!r} holds complex numbers: give real ones, or leave it out")
    if pd.api.types.is_timedelta64_dtype(cells.dtype):
        raise TypeError(
            f"column {name!r} holds spans of time: give their number of days, table[{name!r}] / "
            "pd.Timedelta(days=1), or leave it out"
        )


def plain_numbers(cells: pd.Series) -> pd.Series:
    """Objects that are all numbers or missing as float64, other cells as they are.

    Args:
        cells: of a column.

    Returns:
        The column.
    """
    if cells.dtype != np.dtype(object):
        return cells
    values = cells[~_is_missing(cells)]
    if not len(values) or not values.map(lambda value: isinstance(value, Real | Decimal)).all():
        return cells
    return pd.Series(as_numbers(cells.to_numpy(), "a column"), cells.index)


def _words(cells: pd.Series) -> pd.Series:
    """The words of a column without spaces around them, missing ones left out."""
    return _as_text(cells[~_is_missing(cells)])


# One column


def _read(name: str, cells: pd.Series, kind: str | None, said: str | None = None) -> Column:
    """What a column holds; ``kind`` is that of what the caller said, or None."""
    if kind != KINDS["leave_out"]:
        _check_cells(name, cells)
    are_answers = pd.api.types.infer_dtype(cells) == "boolean"  # some may be missing
    cells = plain_numbers(cells)
    if kind is not None:
        return _as_told(name, cells, kind, said)
    if isinstance(cells.dtype, pd.CategoricalDtype):
        levels = tuple(str(level) for level in cells.cat.categories)
        order = "ordered" if cells.cat.ordered else "category"
        return _column(name, order, "a categorical of pandas", cells, levels=levels)
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return _as_dates(name, cells)
    if are_answers:
        return _column(name, "yes/no", "booleans", cells, levels=("no", "yes"))
    if _is_numeric(cells):
        return _read_numbers(name, cells, cells)
    values = cells[~_is_missing(cells)]
    if not len(values):
        return _column(name, "text", "no cell has a value", cells)
    if not any(isinstance(value, str) for value in values):
        return _column(name, "text", f"cells such as {shown(values.iloc[0])}", cells)
    return _read_words(name, cells)


def _as_told(name: str, cells: pd.Series, kind: str, said: str | None = None) -> Column:
    """A column whose kind the caller gave."""
    fields: dict[str, Any] = {"is_given": True}
    words = _words(cells)
    if kind in _WORDS_OF_KIND:
        if isinstance(cells.dtype, pd.CategoricalDtype):
            fields["levels"] = tuple(map(str, cells.cat.categories))
        else:
            scale = _scale_of(words)
            fields["levels"] = _sorted_words(cells) if scale is None else _on_scale(words, scale)
        if len(fields["levels"]) < 2:
            raise ValueError(f"column {name!r} has fewer than two levels: leave it out")
    elif kind == "yes/no" and not _is_numeric(cells):
        fields["levels"] = _answers(words) or _sorted_words(cells)
        if len(fields["levels"]) != 2:
            raise ValueError(
                f"column {name!r} has {len(fields['levels'])} different words, and yes/no takes two: leave "
                f"families out, or say 'category'"
            )
    elif kind == "date":
        return replace(_as_dates(name, cells, said), why="as given", is_given=True)
    return _column(name, kind, "as given", cells, **fields)


def _with_given_levels(name: str, cells: pd.Series, levels: Sequence[Any], kind: str) -> Column:
    """A column whose levels the caller gave."""
    if isinstance(levels, str) or not isinstance(levels, Sequence) or len(set(map(str, levels))) < 2:
        raise ValueError(f"levels of {name!r} must be a list of at least two names; got {shown(levels)}")
    if kind not in _WORDS_OF_KIND:
        raise ValueError(f"column {name!r} has levels, so that families must say 'ordered' or 'category'")
    column = _column(name, kind, "levels as given", cells, levels=tuple(map(str, levels)), is_given=True)
    _codes(cells, column)  # which names a word that is none of them
    return column


def _read_numbers(name: str, cells: pd.Series, numbers: pd.Series) -> Column:
    """A column of numbers."""
    values = numbers.dropna().to_numpy(dtype=float)
    if not len(values):
        return _column(name, "real", "no cell has a value", cells)
    distinct = np.unique(values)
    if len(distinct) == 2 and (distinct == (0.0, 1.0)).all() and len(values) > 2:
        return _column(name, "yes/no", "zeros and ones", cells, levels=_PLAIN_ANSWERS)
    if not np.isfinite(values).all():
        return _column(name, "real", "numbers, some infinite", cells)
    is_whole = (values == np.round(values)).all()
    if is_whole and len(distinct) >= LEAST_STEPS and _may_be_dates(distinct):
        if read_dates(pd.Series(distinct).map(_as_word)) is not None:
            return _as_dates(name, cells)
    if is_whole and len(distinct) == len(values) and not numbers.isna().any():
        if _is_named_like_id(name):
            return _column(
                name, "id", "all different whole numbers, named like an id", cells, doubt="gaussian"
            )
        steps = np.unique(np.diff(values))
        is_integer = pd.api.types.is_integer_dtype(cells.dtype)
        if is_integer and len(values) >= LEAST_STEPS and len(steps) == 1:
            why = f"all different whole numbers, in steps of {steps[0]:g}"
            return _column(name, "id", why, cells, doubt="gaussian")
    why = _not_counts(values) if is_whole and len(distinct) > 1 else ""
    if why is None:
        return _column(name, "count", "whole numbers with the range and spread of counts", cells)
    if values.min() > 0 and len(distinct) > MOST_FEW:
        gain, error = _gain_of_logs(values)
        told = f"positive, a held-out row {gain:.2g} nats likelier under log-normals than under Gaussians"
        if gain > max(LOG_GAIN, LOG_ERRORS * error):
            return _column(name, "positive", told, cells)
        if gain > SUGGESTED * error > 0:
            return _column(name, "real", told, cells, doubt=_SKEWED)
    return _column(name, "real", f"whole numbers, {why}" if why else "numbers", cells)


def _may_be_dates(distinct: np.ndarray) -> bool:
    """Whether sorted whole numbers have the digits of years and months, or of these and days."""
    return any(19 * unit < distinct[0] and distinct[-1] < 21 * unit for unit in (10**4, 10**6))


def _not_counts(values: np.ndarray) -> str | None:
    """Why whole numbers do not look like counts; None: they do."""
    mean, least = values.mean(), values.min()
    if len(values) < LEAST_COUNTS:
        return "too few to tell counts by"
    if least < 0:
        return "some negative"
    if least > max(1.0, mean / COUNT_REACH):
        return f"none near zero (the smallest is {least:g})"
    if mean > LARGEST_MEAN_COUNT:
        return f"too large for counts (mean {mean:.4g})"
    dispersion = values.var() / mean
    if not COUNT_DISPERSION[0] <= dispersion <= COUNT_DISPERSION[1]:
        return f"spread unlike counts (variance {dispersion:.2g} times the mean)"
    return None


def _gain_of_logs(values: np.ndarray) -> tuple[float, float]:
    """Gain of log-normals over Gaussians in nats a held-out row, and its standard error."""
    if _skewness(values) <= SKEWED or len(values) < 2 * LEAST_COUNTS:
        return 0.0, 0.0
    rows = np.random.default_rng(0).permutation(len(values))[:MOST_SCORED]
    halves = np.array_split(values[rows], 2)
    gains = np.concatenate(
        [
            _held_out_density(np.log(fitted), np.log(held)) - np.log(held) - _held_out_density(fitted, held)
            for fitted, held in (halves, halves[::-1])
        ]
    )
    gains = np.clip(gains, -1.0, 1.0)  # no row bears more witness than a nat
    return float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


def _held_out_density(fitted: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Log density of held-out numbers in nats, under one to three Gaussians by EM, whichever are best."""
    best = np.full(len(held), -np.inf)
    for number in (1, 2, 3):
        weights = np.full(number, 1 / number)
        locs = np.quantile(fitted, (np.arange(number) + 0.5) / number)
        variances = np.full(number, fitted.var())
        for _ in range(30):
            joint = _log_joint(fitted, weights, locs, variances)
            shares = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)) + 1e-12
            sizes = shares.sum(axis=0)
            weights, locs = sizes / len(fitted), fitted @ shares / sizes
            squares = ((fitted[:, None] - locs) ** 2 * shares).sum(axis=0) / sizes
            variances = np.maximum(squares, 1e-4 * fitted.var())
        scores = np.logaddexp.reduce(_log_joint(held, weights, locs, variances), axis=1)
        best = scores if scores.mean() > best.mean() else best
    return best


def _log_joint(x: np.ndarray, weights: np.ndarray, locs: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Log density of numbers and components of a Gaussian mixture, shape (num_numbers, num_components)."""
    squares = (x[:, None] - locs) ** 2 / variances
    return np.log(weights) - 0.5 * (squares + np.log(2 * np.pi * variances))


def _skewness(values: np.ndarray) -> float:
    deviations = values - values.mean()
    spread = np.sqrt(np.mean(deviations**2))
    return float(np.mean(deviations**3) / spread**3) if spread > 0 else 0.0


def _is_named_like_id(name: str) -> bool:
    """Whether the last word of a name is one of ids: ``customer_id``, ``customerId``, ``ID``."""
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip()
    return parts in _known()["id_names"] or re.split(r"[\W_]+", parts)[-1] in _known()["id_names"]


def _read_words(name: str, cells: pd.Series) -> Column:
    """A column of words."""
    written = _words(cells)
    words = _with_points(name, written)
    distinct = words.drop_duplicates()
    if (is_number := pd.to_numeric(distinct, errors="coerce").notna()).any() and not are_codes(distinct):
        numbers = pd.to_numeric(words, errors="coerce")
        if is_number.all():
            column = _read_numbers(name, cells, numbers)
            marked = "" if words.equals(written) else ", written with commas"
            return replace(column, why=f"{column.why}{marked}")
        if numbers.notna().mean() > MOSTLY:
            row, word = distinct[~is_number].index[0], distinct[~is_number].iloc[0]
            raise ValueError(
                f"column {name!r} holds numbers, but row {shown(row)} has {word!r} "
                f"({int(numbers.isna().sum())} such cells): write missing cells as NaN, or leave the column "
                f"out, families={{{name!r}: 'leave_out'}}"
            )
    if answers := _answers(distinct):
        return _column(name, "yes/no", f"the words {' and '.join(answers)}", cells, levels=answers)
    if read_dates(distinct) is not None:
        return _as_dates(name, cells)
    scale = _scale_of(distinct)
    if scale is not None:
        return _column(
            name, "ordered", f"words of the scale of {scale}", cells, levels=_on_scale(distinct, scale)
        )
    num_levels = len(distinct)
    may_be_dates = (num_levels > MOST_LEVELS or num_levels == len(cells)) and not are_codes(distinct)
    if may_be_dates and (near := nearly_dates(distinct)):
        return _column(name, "text", near, cells)
    if num_levels == len(cells) and num_levels > 2:
        return _column(name, "id", "all different words", cells)
    if num_levels < 2 and len(words) < len(cells) and words.iloc[0].lower() in _known()["ticks"]:
        doubt = f"{words.iloc[0]}, or empty for no"
        return Column(name, "yes/no", "a tick, or empty", levels=(_EMPTY, words.iloc[0]), doubt=doubt)
    if num_levels < 2:
        return _column(name, "text", f"one word in {_rows_in_words(cells)}: {words.iloc[0]!r}", cells)
    if num_levels > MOST_LEVELS:
        why = f"{num_levels} different words, more than {MOST_LEVELS}"
        return _column(name, "text", why, cells, doubt="category")
    if len(words) < ROWS_PER_LEVEL * num_levels:
        why = f"{num_levels} different words in {len(words)} rows"
        return _column(name, "text", why, cells, doubt="category")
    return _column(name, "category", f"{num_levels} different words", cells, levels=_sorted_words(cells))


def _with_points(name: str, words: pd.Series) -> pd.Series:
    """Numbers with decimal commas, or commas that group thousands, as Python writes them; others as is."""
    role = role_of_commas(words.drop_duplicates())
    if role == "doubtful":
        example = next(word for word in words if "," in word)
        whole, decimal = example.replace(",", ""), example.replace(",", ".")
        raise ValueError(
            f"column {name!r} has numbers such as {example!r}, which may be {whole} or {decimal}: write them "
            f"as numbers, table[{name!r}].str.replace(',', '').astype(float) if commas group thousands and "
            "str.replace(',', '.') if they are decimal; or give the thousands= or decimal= of pandas.read_csv"
        )
    if role == "decimal":
        words = words.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
    return words.str.replace(",", "", regex=False) if role == "group" else words


def are_codes(words: Collection[str]) -> bool:
    """Whether words are digits of which some begin with a 0, as postal codes do and numbers do not."""
    return bool([w for w in words if w[:1] == "0" and len(w) > 2]) and all(map(str.isdecimal, words))


def _rows_in_words(cells: pd.Series) -> str:
    """In which rows a column has its one value."""
    held = int((~_is_missing(cells)).sum())
    return "every row" if held == len(cells) else f"{held} of {len(cells)} rows, and no other"


def _sorted_words(cells: pd.Series) -> tuple[str, ...]:
    """The different words, or numbers as words, in their order."""
    if _is_numeric(cells):
        return tuple(map(_as_word, np.unique(cells.dropna().to_numpy(dtype=float))))
    return tuple(sorted(_words(cells).unique()))


def _as_word(number: float) -> str:
    return f"{number:.15g}"


def _answers(words: pd.Series) -> tuple[str, str] | None:
    """The words for no and yes, as they are written; None: others."""
    written = {word.lower(): word for word in reversed(words.unique()[:MOST_LEVELS])}
    if len(written) != 2 or words.nunique() > MOST_LEVELS:
        return None
    for pair in _known()["yes_no"]:
        if set(written) == set(pair):
            return written[pair[0]], written[pair[1]]
    return None


def _scale_of(words: pd.Series) -> str | None:
    """The name of the common scale that has all the words, two or more; None: there is none."""
    if not 2 <= words.nunique() <= MOST_LEVELS:
        return None
    found = {word.lower() for word in words.unique()}
    return next((name for name, scale in _known()["scales"].items() if found <= set(scale)), None)


def _on_scale(words: pd.Series, scale: str) -> tuple[str, ...]:
    """The words that occur, as they are first written, in the order of a scale."""
    written = {word.lower(): word for word in reversed(words.unique())}
    return tuple(written[word] for word in _known()["scales"][scale] if word in written)


@cache
def _known() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))


def _as_dates(name: str, cells: pd.Series, order: str | None = None) -> Column:
    """A column of dates; ValueError if some cell is none."""
    dates, fields = cells, {"why": "dates of pandas"}
    if not pd.api.types.is_datetime64_any_dtype(cells.dtype):
        found = read_dates(_dates_in_words(cells), order if order in (DAY_FIRST, MONTH_FIRST) else None)
        if found is None:
            raise ValueError(f"column {name!r} is to hold dates; write them as 2024-03-31")
        fields = {"why": found.why, "format": found.format}
        if _is_numeric(cells) and order is None:
            fields["doubt"] = f"such as {_as_word(cells.dropna().iloc[0])}; as numbers: gaussian"
        if found.is_doubtful:
            fields["doubt"] = f"day first; or say families={{{name!r}: {MONTH_FIRST!r}}}"
        dates = found.dates
    first = dates.min()
    if order is None and len(dates) >= LEAST_STEPS and len(dates) == len(cells):
        steps = np.diff(pd.DatetimeIndex(dates).asi8)
        if steps[0] != 0 and (steps == steps[0]).all():
            return _column(name, "id", "dates in even steps, one a row", cells, doubt="date")
    return _column(name, "date", cells=cells, origin=None if pd.isna(first) else first.isoformat(), **fields)


def _days(cells: pd.Series, column: Column) -> np.ndarray:
    """Days since the first date of a column; NaN where there is none."""
    if not pd.api.types.is_datetime64_any_dtype(cells.dtype):
        words = _dates_in_words(cells)
        found = read_dates(words, format=column.format)
        if found is None and len(words):
            raise ValueError(
                f"column {column.name!r} is to hold dates, written as those of the fit"
                + (
                    "; write them as 2024-03-31"
                    if column.format in (None, "ISO8601")
                    else f", {column.format}"
                )
            )
        dates = pd.Series(pd.NaT, cells.index) if found is None else found.dates.reindex(cells.index)
    else:
        dates = cells
    first = pd.Timestamp(column.origin)
    if (dates.dt.tz is None) != (first.tz is None):
        raise ValueError(
            f"column {column.name!r} has {'no ' if first.tz else ''}time zones, and the fit has "
            f"{'some' if first.tz else 'none'}: write its dates as those of the fit"
        )
    return ((dates - first) / pd.Timedelta(days=1)).to_numpy(dtype=float)


def _dates_in_words(cells: pd.Series) -> pd.Series:
    return cells.dropna().map(_as_word) if _is_numeric(cells) else _words(cells)


# All columns


def _on_common_scales(frame: pd.DataFrame, found: list[Column]) -> list[Column]:
    """Ordered columns of one scale with the levels that occur in any of them."""
    scales: dict[str, list[int]] = {}
    for place, column in enumerate(found):
        if column.kind == "ordered" and not column.is_given:
            scale = _scale_of(_words(frame.iloc[:, place]))
            if scale is not None and not isinstance(frame.dtypes.iloc[place], pd.CategoricalDtype):
                scales.setdefault(scale, []).append(place)
    for scale, places in scales.items():
        words = pd.concat([_words(frame.iloc[:, place]) for place in places], ignore_index=True)
        levels = _on_scale(words, scale)
        for place in places:
            found[place] = replace(found[place], levels=levels)
    return found


def _with_few_numbers(frame: pd.DataFrame, found: list[Column]) -> list[Column]:
    """Few numbers as counts or levels; columns that reach from the same number to the same alike."""
    ranges: dict[tuple[float, float], list[int]] = {}
    for place, column in enumerate(found):
        if column.kind not in ("real", "count") or column.is_given or not _is_numeric(frame.iloc[:, place]):
            continue
        distinct = frame.iloc[:, place].dropna().unique()  # no sort of all rows
        if 2 <= len(distinct) <= MOST_FEW:
            numbers = np.asarray(distinct, dtype=float)
            if np.isfinite(numbers).all():
                ranges.setdefault((numbers.min(), numbers.max()), []).append(place)
    for (low, high), places in ranges.items():
        values = np.concatenate([frame.iloc[:, p].dropna().to_numpy(dtype=float) for p in places])
        numbers, counts = np.unique(values, return_counts=True)
        rare = int(counts[counts < ROWS_OF_EACH].sum())
        if len(numbers) > MOST_FEW or rare > RARE * len(values):
            continue
        is_whole = bool((numbers == np.round(numbers)).all())
        steps = np.gcd.reduce(np.diff(numbers).astype(np.int64)) if is_whole else 0.0
        is_coded = is_whole and (high - low) / steps >= MOST_FEW
        of = "whole numbers" if is_whole else "numbers"
        each = f"{ROWS_OF_EACH} rows or more each{f' but for {rare} rows' if rare else ''}"
        why = f"{len(numbers)} {of} of {each}, {_as_word(low)} to {_as_word(high)}"
        changes: dict[str, Any] = {"kind": "count", "why": f"{why}, that thin out as counts do"}
        if not is_whole or counts[-1] > THINNED_OUT * len(values) or _not_counts(values) is not None:
            changes = {
                "kind": "category" if is_coded else "ordered",
                "why": f"{why}, in no even steps" if is_coded else why,
                "levels": tuple(map(_as_word, numbers)),
                "numbers": tuple(numbers.tolist()),
            }
        for place in places:
            found[place] = replace(found[place], **changes)
    return found


def _without_chance(found: list[Column]) -> list[Column]:
    """Suggestions dropped that are as few as chance makes them among so many columns."""
    real = [column for column in found if column.kind == "real"]
    if sum(bool(column.doubt) for column in real) > BY_CHANCE * len(real):
        return found
    return [replace(column, doubt="") if column.kind == "real" else column for column in found]


def _with_repeats(frame: pd.DataFrame, found: list[Column]) -> list[Column]:
    """Words that are left out, and told where each has several rows whose numbers are alike."""
    numbers = [place for place, column in enumerate(found) if column.kind in ("real", "positive", "count")]
    numbers = [place for place in numbers if _is_numeric(frame.iloc[:, place])]
    for place, column in enumerate(found):
        if column.kind != "text" or column.doubt != "category" or not numbers:
            continue
        held = ~_is_missing(frame.iloc[:, place]).to_numpy()
        words, x = _as_text(frame.iloc[held, place]).to_numpy(), frame.iloc[held, numbers].astype(float)
        of_words = x.groupby(words)
        rows = len(words) / max(of_words.ngroups, 1)
        if rows < REPEATED:
            continue
        within = (x - of_words.transform("mean")).pow(2).sum() / (len(x) - of_words.ngroups)
        share = float(1.0 - (within / x.var()).mean())
        if share >= ALIKE:
            why = f"{column.why}, of {rows:.3g} rows each, which are alike ({share:.0%} of the variance of "
            why += "numbers is between words): clusters are of words and not of rows"
            found[place] = replace(column, why=why, repeats=rows)
    return found


def _without_constants(frame: pd.DataFrame, found: list[Column]) -> list[Column]:
    """Columns of numbers with one value in all rows, or none, left out where others vary.

    Among answers, or among counts, a constant column is an answer or a count that all rows share.
    """
    values = {}
    for place, column in enumerate(found):
        cells = frame.iloc[:, place]
        if column.kind in ("real", "positive", "count") and not column.is_given and _is_numeric(cells):
            distinct = np.unique(cells.dropna().to_numpy(dtype=float))
            if len(distinct) < 2 and len(cells) > 1:
                values[place] = distinct
    others = {column.kind for place, column in enumerate(found) if column.is_kept and place not in values}
    changes: dict[str, Any]
    for place, value in values.items() if others else ():
        if len(value) and others == {"yes/no"} and value[0] in (0.0, 1.0):
            changes = {"kind": "yes/no", "levels": _PLAIN_ANSWERS, "why": f"{value[0]:g} in every row"}
        elif len(value) and others == {"count"} and value[0] >= 0 and value[0] == round(value[0]):
            changes = {"kind": "count", "why": f"{value[0]:g} in every row, among counts"}
        else:
            cells = frame.iloc[:, place]
            why = f"{value[0]:g} in {_rows_in_words(cells)}" if len(value) else "no cell has a value"
            changes = {"kind": "text", "why": why, "doubt": ""}
        found[place] = replace(found[place], **changes)
    return found


def _labelled(frame: pd.DataFrame, found: list[Column], given: str | None) -> Columns:
    """The decisions with the column that labels the rows."""
    ids = [place for place, column in enumerate(found) if column.kind == "id"]
    label = given
    if label is None and ids and _is_plain(frame.index):
        named = [place for place in ids if _is_named_like_id(found[place].name)]
        label = found[(named or ids)[0]].name
    if len(ids) == len(found) and given is None:  # numbers in step are all that there is
        numbers = [p for p in ids if _is_numeric(frame.iloc[:, p])]
        if numbers:
            found = list(found)
            for place in numbers:
                found[place] = replace(
                    found[place], kind="real", why="whole numbers in step, and no others", doubt=""
                )
            label = None if label in {found[place].name for place in numbers} else label
    return Columns(tuple(found), label, len(frame))


def _is_plain(index: pd.Index) -> bool:
    """Whether rows are numbered 0, 1, ... and have no labels."""
    return isinstance(index, pd.RangeIndex) or index.equals(pd.RangeIndex(len(index)))


# Numbers


def _numbers(cells: pd.Series, column: Column) -> np.ndarray:
    """The cells of a column that is part of the data as float64, NaN where one is missing."""
    _check_cells(column.name, cells)
    cells = plain_numbers(cells)
    is_answer = column.kind == "yes/no" and not _is_plain_answer(cells)
    if is_answer or (column.kind in _WORDS_OF_KIND and not column.is_as_numbered):
        return _codes(cells, column)
    if column.kind == "date":
        return _days(cells, column)
    if _is_numeric(cells):
        return cells.to_numpy(dtype=float, na_value=np.nan)
    numbers = pd.to_numeric(cells.where(~_is_missing(cells)), errors="coerce")
    strange = numbers.isna() & ~_is_missing(cells)
    if strange.any():
        words = _with_points(column.name, _words(cells))
        numbers.loc[~_is_missing(cells).to_numpy()] = pd.to_numeric(words, errors="coerce").to_numpy()
        strange = numbers.isna() & ~_is_missing(cells)
    if strange.any():
        raise TypeError(
            f"column {column.name!r} is not numeric: row {shown(cells.index[strange][0])} has "
            f"{shown(cells[strange].iloc[0])}; write missing cells as NaN, or leave the column out"
        )
    return numbers.to_numpy(dtype=float, na_value=np.nan)


def _is_as_it_is(kind: object, column: Column) -> bool:
    """Whether the cells of a column of this type are its numbers."""
    return column.is_as_numbered and isinstance(kind, np.dtype) and kind.kind in "fiu"


def _is_plain_answer(cells: pd.Series) -> bool:
    return _is_numeric(cells) or pd.api.types.is_bool_dtype(cells.dtype)


def _codes(cells: pd.Series, column: Column) -> np.ndarray:
    """Levels as their numbers, NaN where one is missing."""
    missing = _is_missing(cells)
    if _is_numeric(cells):
        words = cells[~missing].map({value: _as_word(value) for value in cells[~missing].unique()})
    else:
        words = _as_text(cells[~missing])
    place = {level.lower(): number for number, level in enumerate(column.levels)}
    place |= {level: number for number, level in enumerate(column.levels)}
    codes = words.map({word: place.get(word, place.get(word.lower(), -1)) for word in words.unique()})
    strange = codes < 0
    if strange.any():
        raise ValueError(
            f"column {column.name!r} has {words[strange].iloc[0]!r} in row {shown(words.index[strange][0])}, "
            f"which is none of its levels {', '.join(column.levels)}: correct it, or write NaN where missing"
            + (f"; or fit it as numbers, families={{{column.name!r}: 'gaussian'}}" if column.numbers else "")
        )
    numbers = np.full(len(cells), 0.0 if column.levels[0] == _EMPTY else np.nan)
    numbers[~missing.to_numpy()] = codes.to_numpy(dtype=float) + (column.first or 0)
    return numbers
