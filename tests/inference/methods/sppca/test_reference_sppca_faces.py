"""Slow runs on faces that ``ZOO_DATA`` holds, in tests/reference/sppca_faces.json: what labels add to PCA.

Run with ``ZOO_DATA=... python -m pytest -m "slow and needs_data"`` and the name of this file.
"""

import warnings

import numpy as np
import pytest
import scipy.stats
from scipy.spatial.distance import cdist

from inference import fit, transform
from tests.tools.recording import add_to_record
from zoo import SPPCA
from zoo.datasets import load

NUM_LATENTS = 20
NUM_SPLITS = 50


def record(name, **figures):
    """Put the figures of one set beside those of the other."""
    file = "tests/inference/methods/sppca/test_reference_sppca_faces.py"
    command = f'ZOO_DATA=... python -m pytest -m "slow and needs_data" {file}'
    add_to_record("sppca_faces", command, **{name: figures})


def nearest(scores, y, labelled):
    """Share of the other rows whose nearest labelled row is of another class."""
    rest = np.setdiff1d(np.arange(len(y)), labelled)
    return float(np.mean(y[labelled][cdist(scores[rest], scores[labelled]).argmin(axis=1)] != y[rest]))


def errors(name):
    """1-NN error by method, one a split: two labels a class, all others unlabelled and to be told."""
    held = load(name)
    y = held["labels"]
    x = held["x"] / np.linalg.norm(held["x"], axis=1, keepdims=True)
    u, d, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    unsupervised = {
        "full": x,
        "pca": (u * d)[:, :NUM_LATENTS],
        "pca_whitened": u[:, :NUM_LATENTS],
    }
    found = {method: [] for method in (*unsupervised, "s2ppca", "s2ppca_orthonormal")}
    for split in range(NUM_SPLITS):
        rng = np.random.default_rng(split)
        labelled = np.concatenate(
            [rng.choice(np.flatnonzero(y == label), 2, replace=False) for label in np.unique(y)]
        )
        partly = [f"person {label}" for label in y]
        for row in np.setdiff1d(np.arange(len(y)), labelled):
            partly[row] = None
        with warnings.catch_warnings():  # on Yale the 15 columns of labels have rank 14
            warnings.filterwarnings("ignore", message="the 15 outputs have rank 14")
            warnings.filterwarnings("ignore", message="noise_variance_y is at its floor")
            tree = fit(SPPCA(num_latents=NUM_LATENTS), x, partly, method="em")
        projected = unsupervised | {
            "s2ppca": transform(tree, x).to_numpy(),
            "s2ppca_orthonormal": transform(tree, x, scores="orthonormal").to_numpy(),
        }
        for method, scores in projected.items():
            found[method].append(nearest(scores, y, labelled))
    return {method: np.array(own) for method, own in found.items()}


def told(name, published):
    """Means and deviations of the errors, and the two paired differences, recorded."""
    found = errors(name)
    figures = {
        method: {"mean": float(own.mean()), "sd": float(own.std(ddof=1))} for method, own in found.items()
    }
    differences = {}
    for other in ("pca", "pca_whitened"):
        away = found["s2ppca"] - found[other]
        differences[f"s2ppca - {other}"] = {
            "mean": float(away.mean()),
            "standard_error": float(away.std(ddof=1) / NUM_SPLITS**0.5),
            "rank_sum_p": float(scipy.stats.ranksums(found["s2ppca"], found[other]).pvalue),
            "signed_rank_p": float(scipy.stats.wilcoxon(away).pvalue),
        }
    record(
        name, num_latents=NUM_LATENTS, splits=NUM_SPLITS, published=published, errors=figures, **differences
    )
    return figures, differences


@pytest.mark.slow
@pytest.mark.needs_data
def test_orl_errors_are_the_published_ones_and_whitening_explains_them():
    """Two labels a class, K = 20, 50 splits: the gain over PCA is real and needs no label."""
    means, differences = told("orl", {"s2ppca": 0.2755, "pca": 0.3323, "full": 0.3308})
    assert abs(means["s2ppca"]["mean"] - 0.280) < 0.015
    assert abs(means["pca"]["mean"] - 0.333) < 0.015
    assert abs(differences["s2ppca - pca_whitened"]["mean"]) < 0.005
    assert differences["s2ppca - pca"]["mean"] < -0.03
    assert abs(means["s2ppca_orthonormal"]["mean"] - means["pca"]["mean"]) < 0.005


@pytest.mark.slow
@pytest.mark.needs_data
def test_yale_errors():
    """Two labels a class, K = 20, 50 splits."""
    means, differences = told("yale", {"s2ppca": 0.5001, "pca": 0.5437, "full": 0.5656})
    assert abs(means["s2ppca"]["mean"] - 0.523) < 0.02
    assert abs(differences["s2ppca - pca_whitened"]["mean"]) < 0.01
