"""Gibbs sampling for `zoo.EPCA`: the sweep of `inference.gibbs.projections` on one table."""

from inference.gibbs.projections import METHOD, algorithm_of

__all__ = ["ALGORITHM", "METHOD"]

ALGORITHM = algorithm_of()
