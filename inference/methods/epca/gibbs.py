"""Gibbs sampling for `zoo.EPCA`: the sweep of `inference.methods.projections.gibbs` on one table."""

from inference.methods.projections.gibbs import METHOD, algorithm_of

__all__ = ["ALGORITHM", "METHOD"]

ALGORITHM = algorithm_of()
