"""Rows with two latents, whole and with holes, that the tests of PPCA by EM and by VB share."""

import numpy as np

__all__ = ["projected_rows", "with_holes"]


def projected_rows(num_rows=60, d=5, k=2, seed=0, noise=0.3):
    """Rows of d columns with k latents."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, k))
    return z @ rng.normal(size=(k, d)) * 2 + noise * rng.normal(size=(num_rows, d)) + 4.0


def with_holes(x):
    """The same with a fifth of the cells missing, no row without any."""
    spoilt = np.where(np.random.default_rng(1).uniform(size=x.shape) < 0.2, np.nan, x)
    spoilt[np.isnan(spoilt).all(axis=1), 0] = 4.0
    return spoilt
