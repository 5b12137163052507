"""Hand-written inference for repulsive mixtures of PCAs, and the settings of its methods."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from inference.settings import Climb, Tempered
from zoo.checks import check_size

__all__ = ["EM", "VB", "Tempered"]


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Variational EM of `zoo.DEPCAM`, latents at their best value.

    Attributes:
        clamped_sweeps: sweeps after a start by k-means with labels held.
    """

    name = "em"
    clamped_sweeps: Annotated[int, partial(check_size, least=0)] = 50


@dataclass(frozen=True, kw_only=True)
class VB(EM):
    """Variational EM of `zoo.DEPCAM`, latents integrated out; the settings are those of `EM`."""

    name = "vb"
