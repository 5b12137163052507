"""Empty figures, and colours, markers and lines that colour-blind readers can tell apart (Okabe and Ito)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["COLOURS", "LINES", "MARKERS", "figure_with_axes", "figure_with_grid", "literal", "shade_cells"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")


def literal(name: object) -> str:
    """Return a name from the data as a picture shows it: no part of it is read as mathematics.

    Matplotlib takes what stands between two dollar signs for a formula, and stops where that is none.
    """
    return str(name).replace("$", r"\$")


def figure_with_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of that size in inches and its only axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


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
    figure = Figure(figsize=size, layout="constrained")
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
