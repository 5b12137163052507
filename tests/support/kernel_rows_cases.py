"""Rows, toys and dense eigenpairs that the tests of kernel PCA share."""

import numpy as np

from zoo.kernels import RBF
from zoo.kernels.gram import centring_of, gram_matrix

__all__ = ["NEW", "TOY", "X", "centred", "clusters", "spectrum"]

X = np.random.default_rng(4).normal(size=(40, 3)) * [2.0, 1.0, 0.7]
NEW = np.random.default_rng(6).normal(size=(5, 3))


def clusters(third=30):
    """The toy of Yu (2006), Figures 5.2 and 5.4: three spherical Gaussians, the third one cut short."""
    rng = np.random.default_rng(2)
    means = [(-0.5, -0.2), (0.0, 0.6), (0.5, 0.0)]
    return np.concatenate([rng.normal(mean, 0.1, size=(30, 2)) for mean in means])[: 60 + third]


TOY = {"num_latents": 3, "kernel": RBF(20**-0.5), "noise_variance": 0.01}  # exp(-10 |x - y|^2)


def centred(kernel, x):
    gram = gram_matrix(kernel, x)
    return centring_of(gram).gram(gram)


def spectrum(kernel, x):
    """All eigenpairs of the centred Gram matrix, descending."""
    values, vectors = np.linalg.eigh(centred(kernel, x))
    return values[::-1], vectors[:, ::-1]
