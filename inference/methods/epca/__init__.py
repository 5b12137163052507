"""Inference for exponential-family projections, shared by EPCA and paired views, and its settings."""

from dataclasses import dataclass

from inference.settings import Climb, Sampling, Tempered

__all__ = ["VB", "Gibbs", "Tempered"]


@dataclass(frozen=True, kw_only=True)
class VB(Climb):
    """Variational Bayes of `zoo.EPCA` and `zoo.Paired`."""

    name = "vb"


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The Gibbs sampler of `zoo.EPCA` and `zoo.Paired`.

    Attributes:
        moves: whether latents and loadings are shifted and rescaled against each other in every sweep.
    """

    name = "gibbs"
    moves: bool = True
