"""Small pictures in text: rows on a plane by their clusters, and bars of shares."""

import numpy as np

_LONGEST = 30  # characters of a bar
_HEIGHT = 12  # lines of a scatter
_WIDEST = 72


def bar(share: float) -> str:
    """A bar for a share between 0 and 1; at least one character where there is any."""
    return "#" * (max(1, round(_LONGEST * min(share, 1.0))) if share > 0 else 0)


def scatter(x: np.ndarray, marks: list[str], names: list[str], width: int) -> str:
    """Draw rows on the plane of two columns.

    Args:
        x: shape (num_rows, 2), NaN where a cell is missing: such rows are left out.
        marks: one character a row; where rows meet, the most frequent one is drawn.
        names: of the two columns.
        width: of a line.
    """
    seen = np.isfinite(x).all(1)
    points, kept = x[seen], np.asarray(marks)[seen]
    low, high = points.min(0), points.max(0)
    ends = [[f"{value:.4g}" for value in pair] for pair in (low, high)]
    margin = max(len(ends[0][1]), len(ends[1][1]))
    size = np.array([min(_WIDEST, width - margin - 3), _HEIGHT])
    spread = np.where(high > low, high - low, 1.0)
    places = np.round((points - low) / spread * (size - 1)).astype(int)
    cells = np.full(size[::-1], " ", dtype="<U1")
    for column, line in np.unique(places, axis=0):
        found, counts = np.unique(kept[(places == [column, line]).all(1)], return_counts=True)
        cells[line, column] = found[counts.argmax()]
    labels = {0: ends[0][1], size[1] - 1: ends[1][1]}
    drawn = [f"{labels.get(line, ''):>{margin}} | {''.join(cells[line])}".rstrip() for line in range(size[1])]
    axis = f"{'':{margin}} +{'-' * (size[0] + 1)}"
    inner = max(size[0] - len(ends[0][0]) - len(ends[1][0]), len(names[0]) + 2)
    below = f"{'':{margin}}   {ends[0][0]}{names[0]:^{inner}}{ends[1][0]}"
    return "\n".join([f"{'':{margin}} {names[1]}", *drawn[::-1], axis, below])
