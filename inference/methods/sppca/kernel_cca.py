"""Regularised kernel canonical correlation analysis, the peer of MORP.

Scores of x that correlate most with a direction of y: a point estimate and not generative. Options of
``fit(zoo.SPPCA(num_latents=K), x, y, method="kernel_cca", ...)``: ``ridge``, relative to the mean positive
eigenvalue of each Gram matrix, above 0 (at 0 any two full-rank Gram matrices correlate perfectly), and
``output_kernel`` as for MORP. The kernel of x is the model's, linear without one. The objective is the sum of
the regularised canonical correlations; the number of correlations is at most the rank of the outputs.

Reference: Yu (2006), section 6.3; Hardoon, Szedmak and Shawe-Taylor (2004), "Canonical correlation analysis:
an overview with application to learning methods".
"""

from typing import Any

import numpy as np

from inference.algorithm import Direct, Outcome
from inference.methods.sppca.morp import OUTPUT_KERNELS, output_gram
from inference.methods.sppca.projections import (
    centred_gram,
    check_complete,
    kernel_cca,
    not_generative,
    stored,
    transform,
)
from zoo.checks import check_choice
from zoo.sppca import SPPCA

__all__ = ["METHOD", "check", "solve"]


def solve(key: Any, model: SPPCA, data: tuple, *, ridge: float, output_kernel: str) -> tuple[Outcome, float]:
    """The projection and the sum of its correlations; the key is ignored, nothing is random.

    Raises:
        ValueError: more directions than the outputs have rank.
    """
    x, y = data
    check_complete("kernel_cca", x, y)
    own, outputs = centred_gram(model.kernel or "linear", x), output_gram(y, output_kernel)
    rank = int(np.linalg.matrix_rank(outputs, hermitian=True))
    if model.num_latents > rank:
        raise ValueError(
            f"kernel_cca has as many directions as the outputs have rank, {rank}; num_latents is "
            f"{model.num_latents}"
        )
    found = kernel_cca(own[0], outputs, model.num_latents, ridge)
    return stored(found, model, x, own), float(found.eigenvalues.sum())


def check(model: SPPCA, *, ridge: Any, output_kernel: Any) -> None:
    """Raise ValueError if an option is outside its domain."""
    if isinstance(ridge, bool) or not isinstance(ridge, int | float) or not 0 < ridge < np.inf:
        raise ValueError(f"ridge must be a positive number; got {ridge!r}")
    check_choice("output_kernel", output_kernel, OUTPUT_KERNELS)


METHOD = Direct(
    options={"ridge": 0.1, "output_kernel": "linear"},
    solve=solve,
    check=check,
    transform=transform,
    covariance=not_generative,
    predict=not_generative,
    log_density=not_generative,
)
