"""Hand-written inference for repulsive mixtures of PCAs, and the settings of its methods."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from inference.settings import Climb, Settings, Tempered
from zoo.checks import check_size, warn
from zoo.depcam import DEPCAM

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


def check(model: DEPCAM, settings: Settings) -> None:
    """Refuse methods without a bound or a proper posterior; warn of points without an optimum."""
    if settings.name == "svi" and model.family.theta_is_negative:
        raise ValueError(
            f"svi has no bound for cells of {type(model.family).__name__}: their natural parameters are "
            "negative, and the normal guide puts some mass elsewhere; use em, map, nuts or hmc"
        )
    if model.prior != "improper" or model.integrates_latents or settings.name == "vb":
        return
    if settings.name not in ("em", "map"):
        raise ValueError(
            f"{settings.name} needs a proper posterior, and at sparsity=0 it is improper: the likelihood "
            "tends to a positive constant as the scales grow; give sparsity > 0 or scale_prior='ard'"
        )
    warn(
        "sparsity=0 has no optimum: scales grow and latents shrink for ever, and the result depends on "
        "when the run stops; give sparsity > 0 or scale_prior='ard'"
    )
