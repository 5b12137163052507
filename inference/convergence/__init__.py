"""Quantities that a symmetry cannot change, and whether chains agree on them."""

from inference.convergence.identifiable import invariants
from inference.convergence.partitions import co_clustering, point_partition
from inference.convergence.r_hat import effective_sample_size, judge, psrf, psrf_of, psrf_path

__all__ = [
    "co_clustering",
    "effective_sample_size",
    "invariants",
    "judge",
    "point_partition",
    "psrf",
    "psrf_of",
    "psrf_path",
]
