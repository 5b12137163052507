"""Numbers written as text: which mark is decimal, in a file and in a table of pandas."""

import re

import pandas as pd

POINT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+)?,\d+([eE][+-]?\d+)?")
GROUPED_BY_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
GROUPED_BY_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")


def is_number(cell: str, with_commas: bool = True) -> bool:
    """Whether a cell is a number.

    Args:
        cell: text without spaces around it.
        with_commas: whether its decimal mark may be a comma.

    Returns:
        Whether it is.
    """
    return bool(POINT.fullmatch(cell) or (with_commas and COMMA.fullmatch(cell)))


def role_of_commas(cells: pd.Series) -> str:
    """What commas are in a column of numbers.

    Args:
        cells: text without spaces around it, no cell missing.

    Returns:
        ``"decimal"``; ``"group"``: they group thousands; ``"doubtful"``: they are either; or nothing, where
        there are none or the cells are no numbers.
    """
    with_comma = cells[cells.str.contains(",", regex=False)]
    if with_comma.empty:
        return ""
    plain = cells[cells.map(lambda cell: bool(POINT.fullmatch(cell)) and "." in cell)]
    has_point = not plain.map(lambda cell: bool(GROUPED_BY_POINTS.fullmatch(cell))).all()
    if has_point or not cells.map(is_number).all():
        grouped = cells.map(lambda cell: bool(GROUPED_BY_COMMAS.fullmatch(cell) or POINT.fullmatch(cell)))
        return "group" if grouped.all() else ""  # 1,234,567 or 1,234.5
    may_group = with_comma.map(lambda cell: bool(GROUPED_BY_COMMAS.fullmatch(cell))).all()
    return "doubtful" if may_group else "decimal"
