"""Hand-written inference for the probabilistic clustering-projection model, and its settings."""

from dataclasses import dataclass
from typing import Literal

from inference.methods.documents import TopicVB
from inference.settings import Sampling, TemperedGibbs

__all__ = ["VB", "CollapsedGibbs", "Gibbs", "TemperedGibbs"]


@dataclass(frozen=True, kw_only=True)
class VB(TopicVB):
    """Variational Bayes of `zoo.PCP`.

    Attributes:
        family: of q: ``"structured"``, or ``"mean_field"`` as in the thesis.
        topics: ``"posterior"``, or ``"point"`` for the most probable topics.
        inner_steps: updates of the clusters in a step.
        prune: whether clusters without documents are left out of later steps.
    """

    name = "vb"
    learnable = ("concentration", "topic_prior", "word_smoothing")
    family: Literal["structured", "mean_field"] = "structured"
    topics: Literal["posterior", "point"] = "posterior"
    inner_steps: int = 5
    prune: bool = True


@dataclass(frozen=True, kw_only=True)
class CollapsedGibbs(Sampling):
    """The collapsed Gibbs sampler of `zoo.PCP`."""

    name = "collapsed_gibbs"


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The blocked Gibbs sampler of `zoo.PCP`."""

    name = "gibbs"
