"""Hand-written inference for latent Dirichlet allocation, and the settings of its methods."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from inference.methods.documents import TopicVB
from inference.settings import Sampling, TemperedGibbs
from zoo.checks import check_share

__all__ = ["VB", "CollapsedGibbs", "Gibbs", "TemperedGibbs"]


_OF_TOKENS = "the share of the tokens that may still move in a step's last pass"
_check_tolerance = partial(check_share, of=_OF_TOKENS, closed=True)


@dataclass(frozen=True, kw_only=True)
class VB(TopicVB):
    """Variational Bayes of `zoo.LDA`.

    Attributes:
        documents: whether the documents' factors ``"restart"`` or ``"continue"`` at every step.
        inner_steps: the most passes over the documents in a step.
        inner_tolerance: share of the tokens that may still move in the last of them.
    """

    name = "vb"
    learnable = ("word_smoothing", "topic_prior")
    documents: Literal["restart", "continue"] = "restart"
    inner_steps: int = 100
    inner_tolerance: Annotated[float, _check_tolerance] = 3e-3


@dataclass(frozen=True, kw_only=True)
class CollapsedGibbs(Sampling):
    """The collapsed Gibbs sampler of `zoo.LDA`."""

    name = "collapsed_gibbs"


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The blocked Gibbs sampler of `zoo.LDA`."""

    name = "gibbs"
