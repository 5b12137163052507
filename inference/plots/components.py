"""Pictures of the components of a mixture of PCAs: directions, similarity, overlap, products of loadings."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from inference.component_subspaces import (
    component_similarity,
    effective_directions,
    loading_products,
    responsibility_overlap,
)
from inference.convergence.identifiable import feature_names
from inference.plots.palette import COLOURS, figure_with_axes, figure_with_grid, shade_cells, tick_names
from zoo.checks import check_size

_MOST_WRITTEN = 10  # components; above it no numbers are written into the cells


def plot_hinton(tree: xr.DataTree, *, ax: Axes | None = None) -> Figure:
    """Plot a Hinton diagram of the scales: one row per component, squares of area `|phi|`, largest first.

    Signs and the order of columns mean nothing, so neither is drawn; an empty place is a direction that the
    component does not use.

    Args:
        tree: a fit of DEPCAM.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: a fit of another model.
    """
    table = effective_directions(tree)
    sizes = table[[name for name in table if name.startswith("direction_")]].to_numpy()
    num_components, num_latents = sizes.shape
    figure, axes = figure_with_axes(2.6 + 0.5 * num_latents, 1.6 + 0.45 * num_components, ax)
    largest = sizes.max() or 1.0
    for k, j in np.ndindex(sizes.shape):
        if sizes[k, j] > 0:
            side = 0.92 * np.sqrt(sizes[k, j] / largest)
            corner = (j - side / 2, k - side / 2)
            axes.add_patch(Rectangle(corner, side, side, color=COLOURS[0], linewidth=0))
    axes.set(xlim=(-0.6, num_latents - 0.4), ylim=(num_components - 0.4, -0.6), xlabel="direction, by size")
    axes.set(aspect="equal", facecolor="0.93")
    axes.set_xticks(range(num_latents), range(1, num_latents + 1))
    axes.set_yticks(range(num_components), _names(table["share"]))
    axes.set_title(f"|phi|, the largest {largest:.3g}", loc="left", fontsize=10)
    return figure


def plot_component_similarity(tree: xr.DataTree) -> Figure:
    """Plot the similarity of components by the paper's kernel, by subspaces, and by correlation of W W'.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        The figure, a panel each.

    Raises:
        ValueError: a fit of another model.
    """
    found = component_similarity(tree)
    titles = {
        "angular": "angular kernel (signs matter)",
        "subspace": "subspace kernel",
        "products": "correlation of W W'",
    }
    size = 1.4 + 0.42 * found.sizes["component"]
    figure, panels = figure_with_grid(3, 3, (1.2, 1.0), (size, size), sharey=True)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        image = _matrix(axes, found[name].values, title)
        axes.set_xlabel("component")
    panels[0].set_yticks(range(found.sizes["component"]), _names(found["share"].values))
    figure.colorbar(image, ax=list(panels), label="similarity", shrink=0.8)
    return figure


def plot_overlap(tree: xr.DataTree, *, ax: Axes | None = None) -> Figure:
    """Plot which components share rows: where a component's rows would go if labels were drawn again.

    Args:
        tree: a fit of DEPCAM.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: a fit of another model.
    """
    overlap = responsibility_overlap(tree)
    size = 1.8 + 0.42 * len(overlap)
    figure, axes = figure_with_axes(1.6 + size, 0.8 + size, ax)
    image = _matrix(axes, overlap.to_numpy(), "Where rows may go")
    axes.set_yticks(range(len(overlap)), _names(effective_directions(tree)["share"]))
    axes.set_xlabel("given to component")
    figure.colorbar(image, ax=axes, label="probability", shrink=0.8)
    return figure


def plot_loading_products(tree: xr.DataTree, num_columns: int = 4) -> Figure:
    """Plot W W' of every component, which shows the features that move together within it.

    Columns that the model measures in their standard deviations (``standardize=True``) stay in them.

    Args:
        tree: a fit of DEPCAM.
        num_columns: panels in a line.

    Returns:
        The figure, one panel per component on one scale of colours.

    Raises:
        ValueError: a fit of another model, or no columns.
    """
    check_size("num_columns", num_columns)
    products = loading_products(tree, in_standard_units=True)
    names, limit = _names(products["share"].values), float(np.abs(products).max()) or 1.0
    features = feature_names(products)
    figure, grid = figure_with_grid(len(names), num_columns, (1.2, 0.6), (2.3, 2.3), sharex=True, sharey=True)
    for axes, values, name in zip(grid, products.values, names, strict=True):
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set_title(name, loc="left", fontsize=9)
        tick_names(axes.xaxis, features, rotation=90, fontsize=7)
        tick_names(axes.yaxis, features, fontsize=7)
        axes.label_outer()
    figure.colorbar(image, ax=list(grid), label="W W'", shrink=0.8)
    return figure


def _names(shares: np.ndarray) -> list[str]:
    return [f"component {k}, {share:.0%}" for k, share in enumerate(shares)]


def _matrix(axes: Axes, values: np.ndarray, title: str) -> object:
    words = np.vectorize("{:.2f}".format)(values) if len(values) <= _MOST_WRITTEN else np.empty((0, 0), str)
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xticks(range(len(values)))
    return shade_cells(axes, values, words, 7)
