"""Linear-Gaussian rows, and beside them class labels, probit outputs and Gaussian orthants."""

from zoo.linear_gaussian.rows import (
    DenseRows,
    LatentsGivenRows,
    LinearGaussianRows,
    ReducedRows,
    RowsGivenOthers,
    ShiftedRows,
    completed,
    latents_covariance,
    latents_mean,
    log_density,
    reduced,
    shared_latents_covariance,
)

__all__ = [
    "DenseRows",
    "LatentsGivenRows",
    "LinearGaussianRows",
    "ReducedRows",
    "RowsGivenOthers",
    "ShiftedRows",
    "completed",
    "latents_covariance",
    "latents_mean",
    "log_density",
    "reduced",
    "shared_latents_covariance",
]
