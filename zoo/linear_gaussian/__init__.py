"""Linear-Gaussian rows, and beside them class labels, probit outputs and Gaussian orthants."""

from zoo.linear_gaussian.rows import LatentsGivenRows, latents_mean, log_density

__all__ = ["LatentsGivenRows", "latents_mean", "log_density"]
