"""Figures that notebooks show, and colours, markers and lines for colour-blind readers (Okabe and Ito)."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # seven, as a ninth group has the first one's colour
_MOST_NAMES = 16  # at the ticks of an axis
LINES = ("-", "--", "-.", ":")


class ShownFigure(Figure):
    """A figure that a notebook shows as a picture where it is the value of a cell.

    IPython knows how to draw Matplotlib's own figures only once pyplot is loaded, which these do without.
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def literal(name: object) -> str:
    """Return a name from the data as a picture shows it: no part of it is read as mathematics.

    Matplotlib takes what stands between two dollar signs for a formula, and stops where that is none.
    """
    return str(name).replace("$", r"\$")


def figure_with_axes(width: float, height: float, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Return an empty figure of that size in inches and its only axes, or given axes and their figure."""
    if ax is not None:
        return ax.figure, ax
    figure = ShownFigure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def legend_of(figure: Figure, axes: Axes, given: Axes | None, place: str, **options: Any) -> None:
    """Draw a legend outside of the only axes of a figure, or inside axes that were given."""
    if given is not None:
        axes.legend(handles=options.get("handles"), fontsize=7, frameon=False)
        return
    figure.legend(**{"loc": place, "fontsize": 8, "frameon": False} | options)


def tick_names(axis: Axis, names: Sequence[object], **style: Any) -> None:
    """Write names at the ticks of an axis; of more than can be read an even selection."""
    places = np.unique(np.linspace(0, len(names) - 1, min(len(names), _MOST_NAMES)).round().astype(int))
    axis.set_ticks(places, [literal(names[place]) for place in places], **style)


def figure_with_grid(
    count: int, num_columns: int, margin: tuple[float, float], panel: tuple[float, float], **shared: bool
) -> tuple[Figure, np.ndarray]:
    """Return an empty figure and its panels, row by row.

    Args:
        count: panels.
        num_columns: panels in a row.
        margin: width and height in inches that the panels leave free.
        panel: width and height of a panel in inches.
        **shared: ``sharex``, ``sharey``.
    """
    width = min(num_columns, count)
    height = -(-count // width)
    size = (margin[0] + panel[0] * width, margin[1] + panel[1] * height)
    figure = ShownFigure(figsize=size, layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, **shared).ravel()
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def shade_cells(axes: Axes, shares: np.ndarray, words: np.ndarray, size: float, **options: str) -> object:
    """Draw a matrix of shares in grey with words in its cells, white on dark ones; return the image."""
    image = axes.imshow(shares, cmap="Greys", vmin=0, vmax=1, **options)
    for row, column in np.argwhere(words != ""):
        colour = "white" if shares[row, column] > 0.55 else "black"
        axes.text(column, row, words[row, column], ha="center", va="center", fontsize=size, color=colour)
    return image
