"""The default call on two tables of real numbers: canonical correlations of the size that they have."""

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.diagnostics import summary_text
from inference.estimators import PairedRegressor
from inference.methods import auto_method
from inference.symmetry.identified import canonical_correlations
from zoo.exponential_family import Gaussian, Ordinal

SIZES, ROWS = (8, 5), 300


@pytest.fixture(scope="module")
def views():
    """Two tables with two shared latents and noise of variance 1."""
    rng = np.random.default_rng(1)
    u = rng.normal(size=(ROWS, 2))
    cells = [u @ rng.normal(size=(2, size)) + rng.normal(size=(ROWS, size)) for size in SIZES]
    return [
        pd.DataFrame(x, columns=[f"{v}{d}" for d in range(x.shape[1])])
        for v, x in zip("ab", cells, strict=True)
    ]


@pytest.fixture(scope="module")
def tree(views):
    return inference.fit(zoo.Paired(("auto", "auto")), *views, num_samples=100, progress=False)


def sample_correlations(views):
    """The singular values of the product of orthonormal bases of the centred views."""
    bases = [np.linalg.qr(x.to_numpy() - x.to_numpy().mean(0))[0] for x in views]
    return np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)


def test_canonical_correlation_is_the_samples(views, tree):
    # of 16 such draws the largest difference was .022, of MAP with no specific latents .09 on average
    found = canonical_correlations(tree)["correlations"].mean(("chain", "draw"))
    np.testing.assert_allclose(found, sample_correlations(views)[:1], atol=0.04)


def test_points_say_that_shares_are_too_large(views, tree):
    noise = Gaussian(noise_variance=None)
    point = inference.fit(zoo.Paired((noise, noise), 2), *views, method="map", progress=False)
    tables = inference.diagnostics.profiles(point)
    assert float(canonical_correlations(point)["correlations"].min()) > sample_correlations(views)[1] + 0.04
    for name in ("canonical_correlations", "latents", "columns"):
        assert "too large: the latents are points" in tables[name].attrs["note"]
    said, of_q = (" ".join(summary_text(own).split()) for own in (point, tree))
    assert said.count("(too large: the latents are points)") == 2 and "too large" not in of_q


def test_defaults_that_integrate_the_latents():
    negative, ordinal = (("exponential",) * 2, (Ordinal(3),) * 2)
    y = (np.ones((4, 2)), np.ones((4, 2)))
    assert auto_method(zoo.Paired(("poisson", "bernoulli")), *y) == "vb"
    assert auto_method(zoo.Paired(negative), *y) == auto_method(zoo.Paired(ordinal), *y) == "map"
    full = zoo.Paired((Gaussian(noise_variance=None),) * 2, specific="full_covariance")
    assert auto_method(full, *y) == "vb"
    assert auto_method(full, np.array([[1.0, np.nan]]), np.ones((1, 2))) == "map"
    assert auto_method(zoo.Paired(("bernoulli", "bernoulli"), specific="full_covariance"), *y) == "map"
    assert auto_method(zoo.EPCA(family="bernoulli"), y[0]) == "vb"
    assert auto_method(zoo.EPCA(family="bernoulli", beta=1.0), y[0]) == "map"


def test_regressor_does_not_depend_on_units():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3)) + 2
    y = x @ rng.normal(size=(3, 2)) + 0.1 * rng.normal(size=(150, 2)) + 50
    u, v = np.array([1e6, 1.0, 1e-3]), np.array([1e-4, 1e6])
    regressor = PairedRegressor(num_shared=3, fields={"standardize": True})
    first, second = regressor.fit(x, y).predict(x), regressor.fit(x * u, y * v).predict(x * u) / v
    np.testing.assert_allclose(second, first, rtol=1e-6)
    assert 1 - ((first - y) ** 2).sum() / ((y - y.mean(0)) ** 2).sum() > 0.95
