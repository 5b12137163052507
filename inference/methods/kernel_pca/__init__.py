"""Hand-written inference for kernel PCA, and the settings of its methods."""

from dataclasses import dataclass
from typing import Literal

from inference.settings import Climb, Once, Settings
from zoo.kernel_pca import KernelPCA

__all__ = ["ClosedForm", "EM"]


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Once):
    """Kernel PCA by an eigenvalue problem.

    Attributes:
        solver: ``"lanczos"`` for a few of many eigenvalues, ``"dense"`` for all; ``"auto"``: by sizes.
    """

    name = "closed_form"
    solver: Literal["auto", "lanczos", "dense"] = "auto"


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Kernel PCA by expectation maximisation.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
        memory: ``"online"`` keeps of former rows their coordinates alone.
        new_rows: where rows start that a former fit did not have.
    """

    name = "em"
    acceleration: Literal["px", "none"] = "px"
    memory: Literal["full", "online"] = "full"
    new_rows: Literal["projected", "random"] = "projected"


def check(model: KernelPCA, settings: Settings) -> None:
    """Refuse samplers and SVI where the posterior is improper."""
    is_flat = model.latent_variance is None and model.degrees_of_freedom is None
    if is_flat and settings.name in ("nuts", "hmc", "svi"):
        raise ValueError(
            f"{settings.name} needs a prior of the latents: with a flat one the posterior of N rows has no "
            "finite mass; give latent_variance (about the largest eigenvalue of the Gram matrix over N)"
        )
