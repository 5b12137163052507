"""Tests that need ranks only: two samples, uniform ranks, and the correction for many of them."""

from collections.abc import Mapping

import numpy as np
from scipy import stats

__all__ = ["bonferroni", "rank_uniformity", "two_sample"]


def two_sample(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """P-values for two samples to have one distribution.

    Mann-Whitney for the location, the same of the distances from the middle rank for the spread, and
    Kolmogorov-Smirnov for the whole distribution.

    Not-a-number is the lowest value on both sides. A functional that never varies has no test.
    """
    pooled = np.concatenate([before, after])
    pooled = np.where(np.isnan(pooled), -np.inf, pooled)
    if np.all(pooled == pooled[0]):
        return {}
    ranks = stats.rankdata(pooled)
    distances = np.abs(ranks - (len(ranks) + 1) / 2)
    size = len(before)
    p_values = {
        "location": stats.mannwhitneyu(ranks[:size], ranks[size:], method="asymptotic").pvalue,
        "distribution": stats.ks_2samp(ranks[:size], ranks[size:], method="asymp").pvalue,
    }
    if np.any(distances != distances[0]):
        p_values["spread"] = stats.mannwhitneyu(
            distances[:size], distances[size:], method="asymptotic"
        ).pvalue
    return {test: float(p) for test, p in p_values.items()}


def rank_uniformity(
    values: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Ranks of a truth among draws, and p-values for their uniformity.

    Each functional is an array (num_replicates, 1 + num_ranked), the truth in its first column.

    Ties are broken at random. A functional equal to the truth in every draw of every replicate depends on the
    data alone: no test.
    """
    ranks, p_values = {}, {}
    for name, scalars in values.items():
        scalars = np.where(np.isnan(scalars), -np.inf, scalars)
        truth, draws = scalars[:, :1], scalars[:, 1:]
        if np.all(truth == draws):
            continue
        num_replicates, num_ranked = draws.shape
        ties = np.sum(draws == truth, axis=1)
        ranks[name] = np.sum(draws < truth, axis=1) + rng.integers(0, ties + 1)
        num_bins = int(np.clip(num_replicates // 10, 2, min(16, num_ranked + 1)))
        edges = np.linspace(0, num_ranked + 1, num_bins + 1).astype(int)
        counts = np.histogram(ranks[name], bins=edges - 0.5)[0]
        expected = num_replicates * np.diff(edges) / (num_ranked + 1)
        spread_out = (ranks[name] + rng.uniform(size=num_replicates)) / (num_ranked + 1)
        p_values[f"{name}, chi-square"] = float(stats.chisquare(counts, expected).pvalue)
        p_values[f"{name}, distribution"] = float(stats.kstest(spread_out, "uniform").pvalue)
    return ranks, p_values


def bonferroni(p_values: Mapping[str, float], false_alarm_rate: float) -> tuple[float, float]:
    """The smallest p-value (nan if one is nan) and the threshold it must reach.

    Raises:
        ValueError: there are no p-values.
    """
    if not p_values:
        raise ValueError("no functional varies: there is nothing to compare")
    return float(np.min(list(p_values.values()))), false_alarm_rate / len(p_values)
