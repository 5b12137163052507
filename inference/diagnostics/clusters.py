"""The posterior over partitions of the rows: which ones, how probable, and how surely we know it."""

import warnings

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.base import array_stats

from inference.convergence.invariants import kind_of
from inference.results.groups import labels_of
from zoo.checks import check_whole

__all__ = ["top_partitions"]


def top_partitions(tree: xr.DataTree, count: int = 10) -> pd.DataFrame:
    """The most probable partitions of the rows into clusters, whatever the labels of the clusters.

    With many rows every draw is another partition, and the table says so by its small probabilities; then
    `co_clustering` and `point_partition` tell more.

    Args:
        tree: a fit with ``assignments`` in its draws.
        count: how many partitions.

    Returns:
        One row a partition, most probable first: ``probability`` (share of the draws), ``mcse`` (its Monte
        Carlo standard error over the chains; for independent draws of q the binomial one), ``num_clusters``,
        ``sizes`` (descending) and ``labels`` (of the rows in their order, numbered by first appearance).

    Raises:
        ValueError: no assignments in the draws, or ``count`` below 1.
    """
    check_whole("count", count)
    drawn_labels = labels_of(tree)
    if drawn_labels is None:
        raise ValueError(
            "the draws hold no assignments: fit with keep=('assignments',), or make them with "
            "inference.extend(tree, 'assignments')"
        )
    labels = drawn_labels.to_numpy()
    chains, number, num_rows = labels.shape
    flat = _by_first_appearance(labels.reshape(-1, num_rows))
    kinds, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(chains, number)
    rows = []
    for place in np.argsort(-counts, kind="stable")[:count]:
        drawn = (which == place).astype(float)
        sizes = np.sort(np.bincount(kinds[place]))[::-1]
        rows.append(
            {
                "probability": drawn.mean(),
                "mcse": _standard_error(drawn, kind_of(tree)),
                "num_clusters": len(sizes),
                "sizes": tuple(int(size) for size in sizes),
                "labels": tuple(int(label) for label in kinds[place]),
            }
        )
    return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="rank"))


def _standard_error(drawn: np.ndarray, kind: str) -> float:
    if kind == "sampling" and 0 < drawn.mean() < 1 and drawn.shape[1] > 3:
        with warnings.catch_warnings():  # a partition that some chain never visits
            warnings.simplefilter("ignore", RuntimeWarning)
            return float(array_stats.mcse(drawn, chain_axis=0, draw_axis=1, method="mean"))
    share = drawn.mean()
    return float(np.sqrt(share * (1 - share) / drawn.size))


def _by_first_appearance(labels: np.ndarray) -> np.ndarray:
    """Labels of every draw numbered 0, 1, ... in the order in which its clusters first appear."""
    num_draws, num_rows = labels.shape
    new = np.zeros_like(labels, dtype=np.int32)
    place = np.full((num_draws, int(labels.max()) + 1), -1, dtype=np.int32)
    used = np.zeros(num_draws, dtype=np.int32)
    every = np.arange(num_draws)
    for i in range(num_rows):
        own = place[every, labels[:, i]]
        unseen = own < 0
        own = np.where(unseen, used, own)
        place[every, labels[:, i]] = own
        used += unseen
        new[:, i] = own
    return new
