"""The settings of the methods of `zoo.EPCA`, which `zoo.Paired` shares (`inference.methods.projections`)."""

from inference.methods.projections import VB, Gibbs

__all__ = ["VB", "Gibbs"]
