"""Hand-written inference for probabilistic PCA and factor analysis, and the settings of its methods."""

from dataclasses import dataclass
from typing import Annotated, Literal

from inference.settings import Climb, Once, Sampling, TemperedGibbs
from zoo.checks import check_number

__all__ = ["EM", "VB", "ClosedForm", "Gibbs", "TemperedGibbs"]


def _check_floor(name: str, value: float) -> None:
    check_number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be a share of the columns' variance, between 0 and 1; got {value}")


NoiseFloor = Annotated[float, _check_floor]


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Once):
    """The maximum of the likelihood of `zoo.PPCA` by an eigenvalue problem.

    Attributes:
        noise_floor: share of the columns' variance that the noise keeps.
    """

    name = "closed_form"
    noise_floor: NoiseFloor = 1e-6


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Expectation maximisation of `zoo.PPCA`.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
        noise_floor: share of the columns' variance that the noise keeps.
    """

    name = "em"
    acceleration: Literal["px", "none"] = "px"
    noise_floor: NoiseFloor = 1e-6


@dataclass(frozen=True, kw_only=True)
class VB(Climb):
    """Variational Bayes of `zoo.PPCA`.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
    """

    name = "vb"
    acceleration: Literal["px", "none"] = "px"


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The Gibbs sampler of `zoo.PPCA`.

    Attributes:
        moves: whether latents and loadings are shifted and rescaled against each other in every sweep.
    """

    name = "gibbs"
    moves: bool = True
