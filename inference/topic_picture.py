"""Clusters of documents as mixtures of topics, as in Yu (2006), Figure 9.3."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from inference.topics import cluster_topics, top_words

__all__ = ["plot_clusters"]


def plot_clusters(tree: xr.DataTree, num_words: int = 4, least_weight: float = 0.0) -> Figure:
    """A row a cluster, a column a topic: how much of the cluster's words each topic gives.

    Topics are named by their top words; clusters stand in falling order of weight, topics in the order in
    which the clusters use them most.

    Args:
        tree: a fit of PCP.
        num_words: words by which a topic is named.
        least_weight: clusters of less expected weight are left out.

    Returns:
        The figure.

    Raises:
        ValueError: the fit has no clusters, or none of that weight.
    """
    table = cluster_topics(tree).sort_values("weight", ascending=False, kind="stable")
    table = table[table["weight"] >= least_weight]
    if table.empty:
        raise ValueError(f"no cluster has an expected weight of at least {least_weight}")
    weights, shares = table["weight"].to_numpy(), table.drop(columns="weight").to_numpy()
    order = np.lexsort((-shares.max(0), shares.argmax(0)))
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
