"""Quantities that a symmetry cannot change, and whether chains agree on them."""

from inference.convergence.r_hat import effective_sample_size, judge, psrf, psrf_of

__all__ = ["effective_sample_size", "judge", "psrf", "psrf_of"]
