"""Planted tables of rows in clusters on a plane, for mixtures of factor analysers."""

import numpy as np

CENTRES = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])


def planted(num_rows=150, num_features=10, seed=1, noise=0.5):
    """Rows of three clusters in two of the dimensions, their labels, loadings and offset."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, num_rows)
    latents = CENTRES[labels] + rng.normal(size=(num_rows, 2))
    loadings, offset = rng.normal(size=(num_features, 2)), 3 * rng.normal(size=num_features)
    x = latents @ loadings.T + offset + noise * rng.normal(size=(num_rows, num_features))
    return x, labels, loadings


def with_holes(x, share=0.1, seed=0):
    """The same with some of the cells missing."""
    return np.where(np.random.default_rng(seed).uniform(size=x.shape) < share, np.nan, x)
