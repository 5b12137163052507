"""Seeded generators of the papers' synthetic data."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

__all__ = ["GENERATORS"]


def _toy_gaussians(seed: int = 0) -> dict[str, np.ndarray]:
    """Fifty points from each of the five Gaussians of Yu (2006), section 2.1.3."""
    means = [(3, 3), (3, 8), (5, 6), (7, 7), (8, 4)]
    covariances = [
        [[0.4, -0.3], [-0.3, 0.6]],
        [[1.0, 0.0], [0.0, 0.2]],
        [[0.4, -0.3], [-0.3, 0.8]],
        [[0.7, 0.3], [0.3, 0.6]],
        [[0.3, -0.2], [-0.2, 0.8]],
    ]
    rng = np.random.default_rng(seed)
    rows = [
        rng.multivariate_normal(m, c, size=50, method="cholesky")
        for m, c in zip(means, covariances, strict=True)
    ]
    return {"x": np.concatenate(rows), "labels": np.repeat(np.arange(5), 50)}


def _pcp_corpus(seed: int = 0) -> dict[str, Any]:
    """Documents of the probabilistic clustering-projection model (Yu 2006, section 9.1), settings ours.

    Six topics ~ Dirichlet(0.05) over 200 words, five clusters ~ Dirichlet(0.1) over the topics, 300 documents
    of uniformly drawn clusters and Poisson(60) + 5 words.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(200, 0.05), size=6)
    clusters = rng.dirichlet(np.full(6, 0.1), size=5)
    labels = rng.integers(5, size=300)
    lengths = rng.poisson(60, size=300) + 5
    counts = rng.multinomial(lengths, (clusters @ topics)[labels]).astype(np.float64)
    return {"counts": csr_matrix(counts), "labels": labels}


def _binary_prototypes(seed: int = 0) -> dict[str, np.ndarray]:
    """Noisy copies of binary prototypes in three categories (Qiao et al., section VI-A).

    Each category has a mean of 0.9, 0.5 or 0.1 and three prototypes of 16 bits drawn with it; each prototype
    has 50 copies, of which every bit is flipped with probability 0.1.
    """
    rng = np.random.default_rng(seed)
    means = np.repeat([0.9, 0.5, 0.1], 3)
    prototypes = rng.random((9, 16)) < means[:, None]
    clean = np.repeat(prototypes, 50, axis=0)
    x = clean ^ (rng.random(clean.shape) < 0.1)
    number = np.repeat(np.arange(9), 50)
    return {
        "x": x.astype(np.float64),
        "labels": number // 3,
        "prototype": number,
        "prototypes": prototypes.astype(np.float64),
    }


GENERATORS = {
    "binary_prototypes": _binary_prototypes,
    "pcp_corpus": _pcp_corpus,
    "toy_gaussians": _toy_gaussians,
}
