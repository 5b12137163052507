"""A prior that a factor multiplies, drawn by NUTS, against its density on a grid."""

import itertools

import numpy as np
import pytest
from arviz_stats.base import array_stats

import zoo
from inference import extend, fit
from inference.diagnostics import summary

MODEL = {"family": "bernoulli", "num_latents": 1, "beta": 0.6, "conjugate": (4.0, 8.0), "loc_variance": 1.0}


@pytest.fixture(scope="module")
def tree():
    return fit(zoo.EPCA(**MODEL), np.array([[1.0], [0.0]]), method="map")


def expected_squares(with_factor):
    """E[v^2] and E[theta_1 theta_2] of two rows and one column, by Gauss-Hermite quadrature.

    The log kernel of a Bernoulli cell is lam theta - nu log(1 + e^theta), beta times over both cells.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    scale = (1.0 / (1.0 - MODEL["beta"])) ** 0.5
    first, second, v, loc = np.array(list(itertools.product(nodes, repeat=4))).T
    weight = np.prod(np.array(list(itertools.product(weights, repeat=4))), axis=1)
    v, theta = scale * v, np.stack([scale * first, scale * second]) * scale * v + loc
    lam, nu = MODEL["conjugate"]
    factor = MODEL["beta"] * np.sum(lam * theta - nu * np.logaddexp(0.0, theta), axis=0)
    weight = weight * np.exp(factor) if with_factor else weight
    return np.array([np.sum(weight * value) for value in (v**2, theta[0] * theta[1])]) / np.sum(weight)


@pytest.mark.slow
def test_prior_with_a_factor_is_drawn_by_nuts(tree):
    """4 standard errors on two means: false alarm 1e-4; the prior without its factor must lie far away."""
    prior = extend(tree, "prior", "prior_predictive", num_samples=4000)
    assert prior["prior"].attrs["method"] == "nuts" and prior["prior"].sizes["chain"] == 4
    assert prior["prior_predictive"]["x"].dims == ("chain", "draw", "observation", "feature")
    v = prior["prior"]["loadings"].to_numpy()[:, :, 0, 0]
    u = prior["prior"]["latents"].to_numpy()[..., 0]
    theta = u * v[..., None] + prior["prior"]["loc"].to_numpy()
    found = np.stack([v**2, theta[..., 0] * theta[..., 1]])
    errors = np.array([float(array_stats.mcse(each, chain_axis=0, draw_axis=1)) for each in found])
    distance = np.abs(found.mean(axis=(1, 2))[:, None] - np.stack([expected_squares(w) for w in (1, 0)], 1))
    assert (distance[:, 0] < 4 * errors).all(), (distance, errors)
    assert (distance[:, 1] > 8 * errors).all(), (distance, errors)


def test_latents_that_stay_sites_are_used_by_every_group(tree):
    groups = extend(tree, "posterior_predictive", "log_likelihood", "log_prior")
    assert set(np.unique(groups["posterior_predictive"]["x"])) <= {0.0, 1.0}
    assert groups["log_likelihood"].attrs["latents"] == "drawn"
    joint = float(groups["log_likelihood"]["log_likelihood"].sum() + groups["log_prior"]["log_prior"][0, 0])
    assert joint == pytest.approx(float(tree["trace"]["objective"][-1]), abs=1e-9)
    assert "mean" in summary(tree).columns


@pytest.mark.slow
def test_a_repulsion_of_zero_is_no_factor():
    x = np.random.default_rng(0).integers(0, 2, size=(20, 3))
    model = zoo.DEPCAM(num_components=2, num_latents=1, repulsion=0.0, family="bernoulli")
    prior = extend(fit(model, x, method="em", num_restarts=1), "prior", num_samples=20)["prior"]
    assert (prior.sizes["chain"], prior.sizes["draw"]) == (1, 20)
    assert set(prior.data_vars) >= {"bases", "scales", "offsets"} and "repulsion" not in prior


@pytest.mark.slow
def test_draws_too_wide_for_numbers_are_warned_of():
    """A noise variance ~ inverse gamma(a = 0.001, 0.001) is beyond 1e308 in half of its draws."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    model = zoo.PPCA(num_latents=1, loading_prior="gaussian")
    tree = fit(model, x, method="vb", num_samples=2)
    with pytest.warns(UserWarning, match="of the cells of 'x' drawn from the prior are infinite"):
        extend(tree, "prior_predictive", num_samples=20)
