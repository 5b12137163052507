"""Found clusters against known labels: how many rows of each label each cluster holds."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from inference.convergence.partitions import central_draw, point_partition
from inference.results.files import model_of
from inference.topics.quality import normalised_mutual_information
from inference.topics.tables import cluster_shares
from inference.results.groups import labels_of, responsibilities_of

__all__ = ["confusion", "plot_confusion"]

_MOST_ROWS = 2000  # of a partition that minimises a posterior loss: it costs O(N^2)


def confusion(tree: xr.DataTree, labels: Any) -> pd.DataFrame:
    """Rows of every known label in every found cluster.

    Args:
        tree: a fit with clusters: a mixture, DEPCAM or PCP.
        labels: the known label of each fitted row.

    Returns:
        Counts, a row a label, a column a cluster. Clusters are those of one partition, so that their numbers
        do not matter: `inference.diagnostics.point_partition` (above 2000 rows each row's most probable
        component, or of a sampler the draw nearest to the others, `inference.convergence.partitions.central_draw`), or
        each document's most probable cluster; they stand in the order of the labels that they hold most of.

    Raises:
        ValueError: the fit has no clusters, or the labels are of other rows.
    """
    return _table(_clusters(tree), np.asarray(labels))


def _table(clusters: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    if labels.shape != clusters.shape:
        raise ValueError(f"labels must have one entry for each of {len(clusters)} rows; got {labels.shape}")
    table = pd.crosstab(pd.Series(labels, name="label"), pd.Series(clusters, name="cluster"))
    counts = table.to_numpy()
    return table.iloc[:, np.lexsort((-counts.max(0), counts.argmax(0)))]


def plot_confusion(tree: xr.DataTree, labels: Any) -> Figure:
    """Known labels by found clusters, shaded by the share of the label that the cluster holds.

    Args:
        tree: a fit with clusters: a mixture, DEPCAM or PCP.
        labels: the known label of each fitted row.

    Returns:
        The figure; the numbers are rows, the title has the normalised mutual information.

    Raises:
        ValueError: the fit has no clusters, or the labels are of other rows.
    """
    clusters, labels = _clusters(tree), np.asarray(labels)
    table = _table(clusters, labels)
    counts = table.to_numpy()
    share = counts / counts.sum(1, keepdims=True)
    figure = Figure(figsize=(2.6 + 0.5 * counts.shape[1], 1.5 + 0.36 * counts.shape[0]), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(share, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    if counts.size <= 400:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                shade = "white" if share[row, column] > 0.55 else "black"
                axis.text(column, row, str(count), ha="center", va="center", fontsize=8, color=shade)
    axis.set_xticks(range(counts.shape[1]), [f"{total}" for total in counts.sum(0)], fontsize=8)
    axis.set_yticks(range(counts.shape[0]), [str(label) for label in table.index], fontsize=8)
    axis.set_xlabel("cluster, by its number of rows")
    axis.set_ylabel("label")
    shared = normalised_mutual_information(labels, clusters)
    axis.set_title(f"Labels by clusters, NMI {shared:.2f}", loc="left", fontsize=10)
    figure.colorbar(image, ax=axis, label="share of the label's rows", shrink=0.8)
    return figure


def _clusters(tree: xr.DataTree) -> np.ndarray:
    if model_of(tree).cluster_topic_site is not None:
        return cluster_shares(tree).to_numpy().argmax(1)
    drawn, soft = labels_of(tree), responsibilities_of(tree)
    num_rows = drawn.shape[-1] if drawn is not None else 0 if soft is None else soft.shape[0]
    if num_rows > _MOST_ROWS:
        return central_draw(tree)
    return point_partition(tree).values
