"""NUTS, HMC, SVI and MAP of columns from 1e-5 to 1e6 take the steps of the standardised table.

Every model of the zoo that may scale each column is here: those whose quantities all have an axis over the
columns, and those that are stated in standardised columns. Compared are steps, not draws, in which rounding
grows by up to sixty leapfrogs each.
"""

import numpy as np
import pytest

import zoo
from inference import fit
from zoo.conjugate import ExponentialGamma, NormalGamma
from zoo.exponential_family import Bernoulli, Exponential, Gaussian

SCALES = np.array([1e-5, 1e-2, 1.0, 30.0, 1e3, 1e6])
PLACES = np.array([1e-3, 0.0, -7.0, 2e3, 0.0, 5e7])
UNKNOWN, SIZES = Gaussian(noise_variance=None), {"num_latents": 2}
RUNS = {
    "nuts": {"num_chains": 1, "num_warmup": 20, "num_samples": 10, "max_tree_depth": 6},
    "hmc": {"num_chains": 1, "num_warmup": 15, "num_samples": 8, "num_steps": 5},
    "svi": {"max_iterations": 100, "num_samples": 3},
    "map": {"max_iterations": 60, "tolerance": 1e-9, "num_restarts": 1},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*has not converged", "ignore:the truncation is too short"),
]

_rng = np.random.default_rng(0)
_z = _rng.normal(size=(40, 2)) @ _rng.normal(size=(2, 6)) + 0.6 * _rng.normal(size=(40, 6))
TABLE = (_z - _z.mean(axis=0)) / _z.std(axis=0)
BITS = (TABLE[:, :3] > 0).astype(float)

MODELS = {
    "mixture": (lambda x: zoo.Mixture(num_components=2), None),
    "mixture of columns": (
        lambda x: zoo.Mixture.from_data(x, components=NormalGamma(), num_components=2),
        None,
    ),
    "mixture of positive cells": (
        lambda x: zoo.Mixture.from_data(x, components=ExponentialGamma(), num_components=2),
        None,
    ),
    "factor analysis": (lambda x: zoo.PPCA(noise="diagonal", **SIZES), None),
    "ppca": (lambda x: zoo.PPCA(loading_prior="ard", standardize=True, **SIZES), None),
    "mcfa": (
        lambda x: zoo.MCFA(num_components=2, weight_prior="stick_breaking", standardize=True, **SIZES),
        None,
    ),
    "sppca": (lambda x: zoo.SPPCA(loading_prior="gaussian", standardize=True, **SIZES), 4),
    "epca": (lambda x: zoo.EPCA(family=UNKNOWN, standardize=True, **SIZES), None),
    "epca of positive cells": (lambda x: zoo.EPCA(family=Exponential(), **SIZES), None),
    "paired": (lambda x: zoo.Paired((UNKNOWN, UNKNOWN), 1, (1, 0), standardize=True), 3),
    "paired with bits": (lambda x: zoo.Paired((UNKNOWN, Bernoulli()), 1, (1, 0), standardize=True), BITS),
    "depcam": (lambda x: zoo.DEPCAM(UNKNOWN, num_components=2, standardize=True, **SIZES), None),
    "kernelpca": (
        lambda x: zoo.KernelPCA(
            kernel="rbf", noise_variance=0.1, latent_variance=0.5, standardize=True, **SIZES
        ),
        None,
    ),
}


def both(name, method):
    """Fits of the standardised table, and of the one in its scales at its places."""
    make, other = MODELS[name]
    is_positive = name.endswith("positive cells")
    plain = np.exp(0.5 * TABLE) if is_positive else TABLE
    trees = []
    for x in (plain, plain * SCALES + (0.0 if is_positive else PLACES)):
        data = (
            (x,) if other is None else (x[:, :other], x[:, other:]) if isinstance(other, int) else (x, other)
        )
        trees.append(fit(make(x), *data, method=method, seed=0, **RUNS[method]))
    return trees


@pytest.mark.parametrize("method", ["nuts", "hmc"])
@pytest.mark.parametrize("name", MODELS)
def test_samplers_take_the_steps_of_the_standardised_table(name, method):
    trees = both(name, method)
    for statistic in ("step_size", "n_steps", "diverging"):
        first, second = (tree["sample_stats"][statistic].values for tree in trees)
        np.testing.assert_allclose(second, first, rtol=1e-4, err_msg=statistic)


CLIMBED = [
    *((name, "svi") for name in MODELS if name != "epca of positive cells"),
    *((name, "map") for name in MODELS if name.startswith(("epca", "paired", "depcam", "mcfa"))),
]


@pytest.mark.parametrize(("name", "method"), CLIMBED)
def test_optimisers_take_the_path_of_the_standardised_table(name, method):
    """Objectives differ by one number, the log scales of cells and of the parameters in the density."""
    first, second = (tree["trace"]["objective"].values.ravel() for tree in both(name, method))
    assert len(first) == len(second)
    np.testing.assert_allclose(second - first, second[0] - first[0], atol=1e-5)
