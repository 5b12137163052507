"""Words that are dates: in which way they are written is decided by all cells, never by the first.

A way of writing that some cell does not have is out. Where day and month come in either order (05/03/2022),
a day above 12 in any cell decides; if there is none, the day comes first unless the caller says
``"month_first"``, and the fit says so. With points (05.03.2022) the day comes first.
"""

import calendar
import re
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

DAY_FIRST, MONTH_FIRST = "day_first", "month_first"
_YEAR_AND_MONTH = "%Y%m"  # 20240531 is ISO 8601, and 202405 is not
_FIXED = (
    "ISO8601",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%Y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d %B %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
    "%B %d %Y",
    "%b %Y",
    "%B %Y",
    "%m/%Y",
    "%a, %d %b %Y",
    _YEAR_AND_MONTH,
)
_EITHER = (
    ("%d/%m/%Y", "%m/%d/%Y"),
    ("%d-%m-%Y", "%m-%d-%Y"),
    ("%d/%m/%y", "%m/%d/%y"),
    ("%d-%m-%y", "%m-%d-%y"),
)
_TIMES = (
    "",
    " %H:%M",
    " %H:%M:%S",
    "T%H:%M",
    "T%H:%M:%S",
    " %I:%M %p",
    " %I:%M:%S %p",
    ", %H:%M",
    " %H:%M:%S %z",
)
_FEWEST = 6  # letters of a date
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")  # at the end of a time
_BEGINNING = re.compile(r"\s*(?P<number>\d*)(?P<next>\D)", re.DOTALL)
_SAMPLE = 50  # words by which most ways of writing are refused


class Dates(NamedTuple):
    """Words read as dates.

    Attributes:
        dates: of each word, index and order as given.
        format: in which they are written, of ``strptime``, or ``"ISO8601"``.
        why: the reason for the decision, in words.
        is_doubtful: whether no cell tells which of day and month comes first.
    """

    dates: pd.Series
    format: str
    why: str
    is_doubtful: bool = False


def read_dates(words: pd.Series, order: str | None = None, format: str | None = None) -> Dates | None:
    """Read words as dates, all written in one way.

    Args:
        words: without missing ones.
        order: ``"day_first"`` or ``"month_first"``, where both are possible; None: by the cells.
        format: the way in which they are written; None: by the cells.

    Returns:
        The dates; None: some word is none, or they are written in different ways.
    """
    distinct = pd.Series(words.unique())
    if not len(words) or distinct.str.len().min() < _FEWEST or not distinct.str.contains(r"\d").all():
        return None
    if format is not None:
        return _read(words, distinct, format, "as the fitted ones")
    for fixed in _with_times(_FIXED):
        if found := _read(words, distinct, fixed, "words that are dates"):
            return found
    for day_first, month_first in _EITHER:
        for time in _TIMES:
            by_day = _read(words, distinct, day_first + time, "dates, the day before the month")
            by_month = _read(words, distinct, month_first + time, "dates, the month before the day")
            if by_day and by_month:
                return _chosen(by_day, by_month, order)
            if by_day or by_month:
                return by_day or by_month
    return None


def _chosen(by_day: Dates, by_month: Dates, order: str | None) -> Dates:
    """One of two readings that suit all cells."""
    if by_day.dates.equals(by_month.dates):
        return by_day
    own = by_month if order == MONTH_FIRST else by_day
    return own._replace(is_doubtful=order is None)


def nearly_dates(words: pd.Series) -> str | None:
    """Why words that are dates for the most part are not read as dates.

    Args:
        words: without missing ones, not read as dates.

    Returns:
        The reason; None: most of the first ones are no dates.
    """
    distinct = pd.Series(words.unique()[:_SAMPLE])
    way: list[str | None] = [None] * len(distinct)
    for own in [*_with_times(_FIXED)] + [a + t for pair in _EITHER for a in pair for t in _TIMES]:
        unread = [p for p, word in enumerate(distinct) if way[p] is None and _begins_as(word, own)]
        for place in np.array(unread)[_are_dates(distinct.iloc[unread], own)] if unread else ():
            way[place] = own
    if 2 * sum(name is not None for name in way) <= len(distinct):
        return None
    if None in way:
        word = distinct.iloc[way.index(None)]
        return f"dates, but row {words[words == word].index[0]} has {word!r}"
    first, other = (
        distinct.iloc[0],
        next((w for w, n in zip(distinct, way, strict=True) if n != way[0]), None),
    )
    return f"dates that are not all written alike: {first}" + (f", {other}" if other else "")


def _with_times(formats: tuple[str, ...]) -> Iterator[str]:
    yield formats[0]
    yield from (own + time for own in formats[1:] for time in _TIMES)


def _read(words: pd.Series, distinct: pd.Series, format: str, why: str) -> Dates | None:
    if not _begins_as(distinct.iloc[0], format):
        return None
    if _parsed(distinct.iloc[:1], format) is None or _parsed(distinct.iloc[:_SAMPLE], format) is None:
        return None
    found = _parsed(distinct, format)
    if found is None:
        return None
    dates = words.map(dict(zip(distinct, found, strict=True))) if len(distinct) < len(words) else found
    return Dates(pd.Series(pd.DatetimeIndex(dates), index=words.index), format, why)


def _begins_as(word: str, format: str) -> bool:
    """Whether a word begins as a format does: pandas takes milliseconds to refuse one that does not."""
    if format == "ISO8601":
        return True
    if format.startswith(_YEAR_AND_MONTH):
        return word.lstrip()[:6].isdigit()
    found = _BEGINNING.match(word)
    if found is None or (" " in format and not any(map(str.isspace, word))):
        return False
    if format[1] not in "dmY":
        return word.lstrip()[:3].casefold() in _names_begin()
    return bool(found["number"]) and (
        found["next"].isspace() if format[2] == " " else found["next"] == format[2]
    )


@cache
def _names_begin() -> frozenset[str]:
    """The first three letters of the months and days of the week, of the locale as pandas' own."""
    names = (calendar.month_abbr, calendar.month_name, calendar.day_abbr, calendar.day_name)
    return frozenset(name[:3].casefold() for name in chain(*names) if name)


def _parsed(words: pd.Series, format: str) -> pd.Series | None:
    found = _coerced(words, format)
    return None if found is None or found.isna().any() else found


def _are_dates(words: pd.Series, format: str) -> np.ndarray:
    """Whether each word is a date of a format, shape (num_words,)."""
    found = _coerced(words, format)
    return np.zeros(len(words), bool) if found is None else found.notna().to_numpy()


def _coerced(words: pd.Series, format: str) -> pd.Series | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of time zones that differ
        try:
            found = pd.to_datetime(words, format=format, errors="coerce")
        except (ValueError, TypeError):
            if not words.str.contains(_ZONE).all():
                return None
            found = pd.to_datetime(words, format=format, errors="coerce", utc=True)  # summer and winter
    return found if pd.api.types.is_datetime64_any_dtype(found.dtype) else None
