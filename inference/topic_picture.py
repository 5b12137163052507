"""Clusters of documents: as mixtures of topics, and against known classes (Yu 2006, Figure 9.3 b and c)."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from inference.topics import cluster_shares, cluster_topics, top_words

__all__ = ["plot_clusters", "plot_document_clusters"]


def plot_clusters(
    tree: xr.DataTree, num_words: int = 4, least_weight: float = 0.0, num_topics: int | None = None
) -> Figure:
    """A row a cluster, a column a topic: how much of the cluster's words each topic gives.

    Topics are named by their top words; clusters stand in falling order of weight, topics in the order in
    which the clusters use them most.

    Args:
        tree: a fit of PCP.
        num_words: words by which a topic is named.
        least_weight: clusters of less expected weight are left out.
        num_topics: only so many topics, those with the largest share in any of the clusters shown.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters, or none of that weight.
    """
    table = _weighty(tree, least_weight)
    weights, shares = table["weight"].to_numpy(), table.drop(columns="weight").to_numpy()
    order = np.lexsort((-shares.max(0), shares.argmax(0)))
    if num_topics is not None:
        used = np.argsort(-shares.max(0), kind="stable")[:num_topics]
        order = order[np.isin(order, used)]
    words = top_words(tree, num_words)
    names = [", ".join(map(str, words.iloc[topic])) for topic in order]
    size = (2.4 + 0.42 * len(order), 1.9 + 0.3 * len(table))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares[:, order], cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(order)), names, rotation=90, fontsize=8)
    labels = [f"cluster {name}, {w:.0%}" for name, w in zip(table.index, weights, strict=True)]
    axes.set_yticks(range(len(table)), labels, fontsize=8)
    axes.set_xlabel("topic, by its top words")
    axes.set_title("Topic shares of the clusters", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="share of the cluster's words", shrink=0.8)
    return figure


def plot_document_clusters(tree: xr.DataTree, classes: Any, least_weight: float = 0.0) -> Figure:
    """A row a document, in the order of known classes, a column a cluster: how surely it is of the cluster.

    Args:
        tree: a fit of PCP that holds its documents' clusters.
        classes: the class of each fitted document.
        least_weight: clusters of less expected weight are left out.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters, or none of that weight; classes of other documents.
    """
    kept = _weighty(tree, least_weight).index
    shares, classes = cluster_shares(tree), np.asarray(classes)
    if classes.shape != (len(shares),):
        raise ValueError(
            f"classes must have one entry for each of {len(shares)} documents; got {classes.shape}"
        )
    order = np.argsort(classes, kind="stable")
    names, first = np.unique(classes[order], return_index=True)
    ends = np.append(first[1:], classes.size)
    figure = Figure(figsize=(2.4 + 0.3 * len(kept), 4.0), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        shares[kept].to_numpy()[order], cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="nearest"
    )
    for border in first[1:]:
        axes.axhline(border - 0.5, color="tab:blue", linewidth=0.8)
    axes.set_yticks((first + ends) / 2 - 0.5, [str(name) for name in names], fontsize=8)
    axes.set_xticks(range(len(kept)), [str(name) for name in kept], fontsize=8)
    axes.set_xlabel("cluster, heaviest first")
    axes.set_title("Documents by class", loc="left", fontsize=10)
    figure.colorbar(image, ax=axes, label="probability of the cluster", shrink=0.8)
    return figure


def _weighty(tree: xr.DataTree, least_weight: float) -> pd.DataFrame:
    """Clusters of at least that weight, the heaviest first."""
    table = cluster_topics(tree).sort_values("weight", ascending=False, kind="stable")
    table = table[table["weight"] >= least_weight]
    if table.empty:
        raise ValueError(f"no cluster has an expected weight of at least {least_weight}")
    return table
