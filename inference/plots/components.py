"""Pictures of the components of a mixture of PCAs: their reach, likeness, overlap, products of loadings."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from inference.component_subspaces import (
    component_similarity,
    effective_directions,
    loading_products,
    responsibility_overlap,
)
from inference.plots.palette import COLOURS

__all__ = ["plot_component_similarity", "plot_hinton", "plot_loading_products", "plot_overlap"]

_MOST_WRITTEN = 10  # components; above it no numbers are written into the cells


def plot_hinton(tree: xr.DataTree) -> Figure:
    """Hinton diagram of the scales: a row a component, squares whose area is |phi|, largest first.

    Signs and the order of columns mean nothing, so neither is drawn; an empty place is a direction that the
    component does not use.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        The figure.

    Raises:
        ValueError: a fit of another model.
    """
    table = effective_directions(tree)
    sizes = table[[name for name in table if name.startswith("direction_")]].to_numpy()
    num_components, num_latents = sizes.shape
    figure = Figure(figsize=(2.6 + 0.5 * num_latents, 1.6 + 0.45 * num_components), layout="constrained")
    axes = figure.subplots()
    largest = sizes.max() or 1.0
    for k, j in np.ndindex(sizes.shape):
        if sizes[k, j] > 0:
            side = 0.92 * np.sqrt(sizes[k, j] / largest)
            square = Rectangle((j - side / 2, k - side / 2), side, side, color=COLOURS[0], linewidth=0)
            axes.add_patch(square)
    axes.set_xlim(-0.6, num_latents - 0.4)
    axes.set_ylim(num_components - 0.4, -0.6)
    axes.set_aspect("equal")
    axes.set_facecolor("0.93")
    axes.set_xticks(range(num_latents), range(1, num_latents + 1))
    axes.set_yticks(range(num_components), _names(table["share"]))
    axes.set_xlabel("direction, by size")
    axes.set_title(f"|phi|, the largest {largest:.3g}", loc="left", fontsize=10)
    return figure


def plot_component_similarity(tree: xr.DataTree) -> Figure:
    """How alike components are: the paper's kernel, that of subspaces, and their products' correlation.

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
    figure = Figure(figsize=(1.2 + 3 * size, 1.0 + size), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        image = _matrix(axes, found[name].values, title)
        axes.set_xlabel("component")
    panels[0].set_yticks(range(found.sizes["component"]), _names(found["share"].values))
    figure.colorbar(image, ax=list(panels), label="similarity", shrink=0.8)
    return figure


def plot_overlap(tree: xr.DataTree) -> Figure:
    """Which components share rows: how a component's rows would be dealt out if labels were drawn again.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        The figure.

    Raises:
        ValueError: a fit of another model.
    """
    overlap = responsibility_overlap(tree)
    size = 1.8 + 0.42 * len(overlap)
    figure = Figure(figsize=(1.6 + size, 0.8 + size), layout="constrained")
    axes = figure.subplots()
    image = _matrix(axes, overlap.to_numpy(), "Where rows may go")
    axes.set_yticks(range(len(overlap)), _names(effective_directions(tree)["share"]))
    axes.set_xlabel("given to component")
    figure.colorbar(image, ax=axes, label="probability", shrink=0.8)
    return figure


def plot_loading_products(tree: xr.DataTree, num_columns: int = 4) -> Figure:
    """W W' of every component: which features move together within it.

    Args:
        tree: a fit of DEPCAM.
        num_columns: panels in a line.

    Returns:
        The figure, a panel a component on one scale of colours.

    Raises:
        ValueError: a fit of another model, or no columns.
    """
    if num_columns < 1:
        raise ValueError(f"num_columns must be at least 1; got {num_columns}")
    products = loading_products(tree)
    count = products.sizes["component"]
    width = min(num_columns, count)
    height = -(-count // width)
    figure = Figure(figsize=(1.2 + 2.3 * width, 0.6 + 2.3 * height), layout="constrained")
    grid = figure.subplots(height, width, squeeze=False, sharex=True, sharey=True)
    limit = float(np.abs(products).max()) or 1.0
    for axes, values, name in zip(
        grid.ravel(), products.values, _names(products["share"].values), strict=False
    ):
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel("feature")
        axes.set_ylabel("feature")
        for line in (axes.xaxis, axes.yaxis):
            line.set_major_locator(MaxNLocator(5, integer=True))
        axes.label_outer()
    for axes in grid.ravel()[count:]:
        axes.remove()
    figure.colorbar(image, ax=list(grid.ravel()[:count]), label="W W'", shrink=0.8)
    return figure


def _names(shares: np.ndarray) -> list[str]:
    return [f"component {k}, {share:.0%}" for k, share in enumerate(shares)]


def _matrix(axes: Axes, values: np.ndarray, title: str) -> object:
    image = axes.imshow(values, cmap="Greys", vmin=0, vmax=1)
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xticks(range(len(values)))
    if len(values) <= _MOST_WRITTEN:
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            shade = "white" if value > 0.55 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=shade)
    return image
