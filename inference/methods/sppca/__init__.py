"""Hand-written inference for supervised and semi-supervised probabilistic PCA, and its settings."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np

from inference.settings import Climb, Once, Sampling, Settings, TemperedGibbs
from zoo.checks import check_choice, shown
from zoo.sppca import SPPCA

__all__ = ["EM", "EP", "MORP", "VB", "ClosedForm", "Gibbs", "KernelCCA", "TemperedGibbs"]

PROBIT_METHODS = ("ep", "gibbs", "nuts", "hmc", "svi", "tempered")
OutputKernel = Literal["linear", "rbf", "polynomial"]


def _check_ridge(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ValueError(f"{name} must be a number of at least 0; got {shown(value)}")


def _check_positive_ridge(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise ValueError(f"{name} must be a positive number; got {shown(value)}")


@dataclass(frozen=True, kw_only=True)
class EM(Climb):
    """Expectation maximisation of `zoo.SPPCA`.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
    """

    name = "em"
    acceleration: Literal["px", "none"] = "px"


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Climb):
    """The maximum of the likelihood of `zoo.SPPCA` given the noise, and the noise by its own steps."""

    name = "closed_form"


@dataclass(frozen=True, kw_only=True)
class VB(Climb):
    """Variational Bayes of `zoo.SPPCA`.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
    """

    name = "vb"
    acceleration: Literal["px", "none"] = "px"


@dataclass(frozen=True, kw_only=True)
class EP(Climb):
    """Expectation maximisation of `zoo.SPPCA` with probit outputs, by expectation propagation.

    Attributes:
        acceleration: ``"px"`` (parameter expansion) or ``"none"``.
    """

    name = "ep"
    acceleration: Literal["px", "none"] = "px"


@dataclass(frozen=True, kw_only=True)
class Gibbs(Sampling):
    """The Gibbs sampler of `zoo.SPPCA` with probit outputs.

    Attributes:
        moves: whether latents and loadings are shifted and rescaled against each other in every sweep.
    """

    name = "gibbs"
    moves: bool = True


@dataclass(frozen=True, kw_only=True)
class MORP(Once):
    """Multi-output regularised projections of `zoo.SPPCA`: a point estimate.

    Attributes:
        weight: of the outputs against the inputs, in [0, 1]; or one for each output set.
        ridge: relative to the mean eigenvalue.
        form: ``"primal"`` has weights of columns, ``"dual"`` of rows, ``"simplified"`` no ridge; ``"auto"``:
            primal, or dual with a kernel.
        output_kernel: a kernel, or one for each output set.
        output_sets: columns of y by set; None: one set of all.
        balance: whether every output matrix is scaled to the trace of that of the inputs.
    """

    name = "morp"
    weight: float | tuple[float, ...] = 0.5
    ridge: Annotated[float, _check_ridge] = 0.0
    form: Literal["auto", "primal", "dual", "simplified"] = "auto"
    output_kernel: OutputKernel | tuple[OutputKernel, ...] = "linear"
    output_sets: tuple[tuple[int, ...], ...] | None = None
    balance: bool = True

    def validate(self) -> None:
        """Raise TypeError or ValueError for weights or kernels outside their domain."""
        weight, kernels = self.weight, self.output_kernel
        for part in weight if isinstance(weight, tuple) and weight else (weight,):
            if isinstance(part, bool) or not isinstance(part, int | float):
                raise TypeError(f"weight must be a number, or one for each output set; got {shown(weight)}")
        weights = np.atleast_1d(np.asarray(weight, np.float64))
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() <= 1):
            raise ValueError(f"weight must lie in [0, 1], also in sum over output sets; got {shown(weight)}")
        if self.form == "simplified" and self.ridge:
            raise ValueError("form='simplified' has no ridge: use form='dual'")
        for kernel in kernels if isinstance(kernels, tuple) and kernels else (kernels,):
            check_choice("output_kernel", kernel, get_args(OutputKernel))


@dataclass(frozen=True, kw_only=True)
class KernelCCA(Once):
    """Kernel canonical correlations of `zoo.SPPCA`: a point estimate.

    Attributes:
        ridge: relative to the mean positive eigenvalue of each Gram matrix.
        output_kernel: the kernel of the outputs.
    """

    name = "kernel_cca"
    ridge: Annotated[float, _check_positive_ridge] = 0.1
    output_kernel: OutputKernel = "linear"


def check(model: SPPCA, settings: Settings) -> None:
    """Refuse methods that do not go with the kernel, the outputs or the prior."""
    name, is_probit = settings.name, model.output_likelihood == "probit"
    if model.kernel is not None and name in ("em", "closed_form"):
        model.check_noise()
    if model.kernel is not None and name == "gibbs":
        raise ValueError("method 'gibbs' needs kernel=None, like every sampler")
    if model.kernel is not None and name in ("nuts", "hmc", "svi"):
        raise ValueError(
            f"{name} has no posterior to explore with a kernel: the coefficients of N rows have a flat "
            f"prior; use method={'ep' if is_probit else 'em'!r}, or kernel=None"
        )
    if model.standardize and name in ("morp", "kernel_cca"):
        raise ValueError(
            f"standardize=True is part of the noise model, which {name!r} does not have: divide the "
            "columns by their standard deviations"
        )
    if is_probit and name not in PROBIT_METHODS:
        known = PROBIT_METHODS if model.kernel is None else PROBIT_METHODS[:1]
        raise ValueError(
            f"method {name!r} is for output_likelihood='gaussian'; probit outputs have {', '.join(known)}"
        )
    if model.loading_prior == "flat" and (name == "gibbs" or (is_probit and name != "ep")):
        raise ValueError(
            f"method {name!r} needs a proper prior: loading_prior='gaussian'; got loading_prior='flat'"
        )
