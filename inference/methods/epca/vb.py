"""Variational Bayes for `zoo.EPCA`: `inference.methods.projections.vb`."""

from inference.methods.projections.vb import ALGORITHM, METHOD

__all__ = ["ALGORITHM", "METHOD"]
