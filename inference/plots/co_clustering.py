"""The picture of a clustering: how probably two rows share a component, ordered in blocks."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from inference.convergence.partitions import co_clustering, point_partition
from inference.plots.palette import figure_with_axes
from inference.results.groups import labels_of, responsibilities_of
from zoo.checks import first_of

_MOST_ROWS = 1000  # of a drawn matrix: more than the picture has pixels


def plot_co_clustering(tree: xr.DataTree, *, ax: Axes | None = None) -> Figure:
    """Plot the posterior probability that two rows share a component, as a matrix ordered in blocks.

    Rows are ordered by the point partition (its clusters by an optimal leaf ordering, so that clusters that
    exchange rows are neighbours), and within a cluster by an average-linkage tree. Lines mark the partition.
    Above 1000 rows an even selection is drawn.

    Args:
        tree: a fit with assignments or responsibilities.
        ax: axes to draw into; None: a new figure.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters.
    """
    num_rows = _number_of_rows(tree)
    rows = np.unique(np.linspace(0, num_rows - 1, min(num_rows, _MOST_ROWS)).astype(int))
    together = co_clustering(tree, rows).values
    partition = point_partition(tree, rows).values
    order = _order(together, partition)
    figure, axis = figure_with_axes(6.6, 5.6, ax)
    style = {"cmap": "cividis", "vmin": 0, "vmax": 1, "interpolation": "nearest", "aspect": "auto"}
    image = axis.imshow(together[np.ix_(order, order)], **style)
    borders = np.r_[-0.5, np.flatnonzero(np.diff(partition[order])) + 0.5, len(order) - 0.5]
    for border in borders[1:-1]:
        axis.axhline(border, color="white", linewidth=0.8)
        axis.axvline(border, color="white", linewidth=0.8)
    middles, sizes = (borders[:-1] + borders[1:]) / 2, np.diff(borders).astype(int)
    wide = sizes >= 0.03 * len(order)
    axis.set_yticks(middles[wide], [f"{size} rows" for size in sizes[wide]])
    axis.set(xticks=[], xlabel="rows, in the same order")
    shown = f" ({len(rows)} of {num_rows} rows)" if len(rows) < num_rows else ""
    listed = first_of(sorted(sizes, reverse=True), 8)
    title = f"Do two rows share a component?{shown}\nPoint partition: clusters of {listed} rows"
    axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axis, label="posterior probability")
    return figure


def _number_of_rows(tree: xr.DataTree) -> int:
    soft, drawn = responsibilities_of(tree), labels_of(tree)
    if soft is None and drawn is None:
        return co_clustering(tree).sizes["observation"]  # raises the ValueError that names the missing group
    return drawn.shape[-1] if soft is None else soft.shape[0]


def _order(together: np.ndarray, partition: np.ndarray) -> np.ndarray:
    clusters = [np.flatnonzero(partition == k) for k in np.unique(partition)]
    member = (partition[:, None] == np.unique(partition)) / np.bincount(partition)[np.unique(partition)]
    sequence = _leaves(1.0 - member.T @ together @ member)  # of the means over the blocks
    order = []
    for place, k in enumerate(sequence):
        members = clusters[k][_leaves(1.0 - together[np.ix_(clusters[k], clusters[k])])]
        # a leaf order may be read either way: rows that lean to the next cluster go to its side
        before, after = sequence[max(place - 1, 0)], sequence[min(place + 1, len(sequence) - 1)]
        shared = (together[np.ix_(members, clusters[other])].mean(1) for other in (after, before))
        leaning = np.subtract(*shared)
        if leaning @ (np.arange(len(members)) - (len(members) - 1) / 2) < 0:
            members = members[::-1]
        order.append(members)
    return np.concatenate(order)


def _leaves(distance: np.ndarray) -> np.ndarray:
    """Leaf order of an average-linkage tree, neighbours as near as it allows (Bar-Joseph et al. 2001)."""
    if len(distance) < 3:
        return np.arange(len(distance))
    distance = (distance + distance.T) / 2
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(distance.clip(0.0), checks=False)
    return leaves_list(linkage(condensed, "average", optimal_ordering=True))
