"""Gibbs samplers, one file per model, and any of them as a NumPyro kernel."""

from inference.numpyro_kernel import kernel

__all__ = ["kernel"]
