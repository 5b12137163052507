"""Variational Bayes for `zoo.EPCA`: `inference.variational.projections`."""

from inference.variational.projections import ALGORITHM, METHOD

__all__ = ["ALGORITHM", "METHOD"]
