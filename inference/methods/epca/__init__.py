"""Inference for exponential-family projections, shared by EPCA and paired views, and its settings."""

from dataclasses import dataclass

from inference.settings import Climb, Sampling, Settings, Tempered
from zoo.checks import warn
from zoo.epca import EPCA
from zoo.paired import Paired

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


def check(model: EPCA | Paired, settings: Settings) -> None:
    """Refuse what integrates an improper posterior, leaves a domain, or takes other loadings for normal."""
    name = settings.name
    if model.beta == 1 and name != "map":
        raise ValueError(
            f"beta=1 makes prior and posterior of (U, V) improper, and method {name!r} would sample or "
            "integrate them; use beta < 1, or a point estimate of Theta (method='map')"
        )
    if model.beta == 1:
        warn(
            "beta=1 makes prior and posterior of (U, V) improper: their product Theta alone is estimated "
            "(inference.symmetry.components decomposes it)"
        )
    if name == "svi" and model.is_negative:
        raise ValueError(
            "svi has no bound for exponential, gamma and negative binomial cells: their natural "
            "parameters are negative, and the normal guide puts some mass elsewhere; use map, nuts or hmc"
        )
    if name in ("gibbs", "vb") and getattr(model, "conjugate_loadings", None) is not None:
        raise ValueError(
            f"method {name!r} takes loadings with a normal prior, and conjugate_loadings gives them "
            "another one: use nuts, hmc, svi or map, or leave conjugate_loadings out"
        )
