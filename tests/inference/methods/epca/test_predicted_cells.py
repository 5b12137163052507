"""Predictions of fits: calibration on drawn data, draws, variational Bayes, paired views."""

import numpy as np
import pytest

import zoo
from inference import fit, predict
from zoo.exponential_family import Gaussian


@pytest.mark.slow
def test_the_deviation_holds_the_latents_spread():
    """A row without a cell: the noise and v'v; it was the noise alone."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)) * np.linspace(1, 3, 6) + rng.normal(size=(60, 6))
    tree = fit(zoo.EPCA(family=Gaussian(), num_latents=1), x, method="map", max_iterations=500)
    exact = np.sqrt(1 + (tree["variational"]["loadings"].to_numpy() ** 2).sum(1))
    found = predict(tree, np.full((1, 6), np.nan)).standard_deviation[0]
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    assert (exact > 1.5).all()  # the planted fault, 1, would fail


@pytest.mark.slow
def test_canonical_correlations_give_the_exact_conditional():
    """A view, and single cells of a view, given the rest: the conditional of the joint Gaussian."""
    rng = np.random.default_rng(2)
    u = rng.normal(size=(80, 1))
    y = [u @ rng.normal(size=(1, 3)) + rng.normal(size=(80, 3)) for _ in range(2)]
    views = Gaussian(noise_variance=None), Gaussian(noise_variance=None)
    tree = fit(zoo.Paired(views, 1, specific="full_covariance"), *y, method="closed_form")
    whole = np.cov(np.hstack(y).T, bias=True)
    own = tree["variational"]
    w = np.concatenate([own["loadings_0"], own["loadings_1"]])
    joint = w @ w.T
    for v in range(2):
        part = slice(3 * v, 3 * v + 3)
        joint[part, part] = whole[part, part]
    holes = [y[0][:2].copy(), y[1][:2].copy()]
    holes[0][0, 1] = np.nan
    holes[1][:, :2] = np.nan
    found = predict(tree, *holes, what="y_1")
    loc = np.concatenate([part.mean(0) for part in y])
    for n in range(2):
        row = np.concatenate([holes[0][n], holes[1][n]])
        hidden = np.isnan(row)
        gain = joint[np.ix_(hidden, ~hidden)] @ np.linalg.inv(joint[np.ix_(~hidden, ~hidden)])
        mean = loc[hidden] + gain @ (row - loc)[~hidden]
        spread = joint[np.ix_(hidden, hidden)] - gain @ joint[np.ix_(~hidden, hidden)]
        mean, deviation = mean[-2:], np.sqrt(np.diag(spread))[-2:]
        np.testing.assert_allclose(found[n, :2], mean, rtol=1e-6)
        np.testing.assert_allclose(found.standard_deviation[n, :2], deviation, rtol=1e-6)


def drawn_counts(seed=3, n=200, d=12, new=1000):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(n + new, 3)), 0.7 * rng.normal(size=(2 * d, 3))
    v[:d, 2] = v[d:, 1] = 0
    y = rng.poisson(np.exp(u @ v.T)) * 1.0
    return y[:n, :d], y[:n, d:], y[n:, :d], y[n:, d:]


@pytest.mark.slow
def test_one_view_of_counts_is_predicted_from_another():
    """By VB: the total within 20 % (three deviations of a ratio of heavy-tailed totals), errors calibrated.

    1000 new rows of 12 cells; at the mode of the latents the ratio was .56 and the mean square 92. Measured:
    .91 and 1.10.
    """
    first, second, given, truth = drawn_counts()
    model = zoo.Paired.ecca(("poisson", "poisson"), 1, (1, 1))
    tree = fit(model, first, second, method="vb", max_iterations=2000)
    found = predict(tree, given, None, what="y_1")
    assert 0.8 < float(found.sum()) / truth.sum() < 1.2
    errors = (found.to_numpy() - truth) / found.standard_deviation.to_numpy()
    assert 0.7 < (errors**2).mean() < 1.5


@pytest.mark.slow
def test_standardised_errors_of_gibbs_have_mean_square_one():
    """Gaussian cells from draws: 400 x 4 hidden cells of rows that were not fitted; false alarms 1 in 1000.

    Errors of a row share its latents, so rows are the independent units: 3.3 standard errors over rows.
    """
    rng = np.random.default_rng(5)
    v = rng.normal(size=(8, 2))
    x = rng.normal(size=(600, 2)) @ v.T + rng.normal(size=(600, 8))
    model = zoo.EPCA(family=Gaussian(), num_latents=2)
    tree = fit(model, x[:200], method="gibbs", num_chains=2, num_warmup=200, num_samples=500)
    holes = np.where(np.arange(8) < 4, np.nan, x[200:])
    found = predict(tree, holes)
    square = ((found - x[200:]) / found.standard_deviation).to_numpy()[:, :4] ** 2
    rows = square.mean(axis=1)
    assert abs(rows.mean() - 1) < 3.3 * rows.std() / np.sqrt(400) + 0.02  # .02: the loadings' error
    noise_only = ((found - x[200:]).to_numpy()[:, :4] ** 2).mean()
    assert noise_only > 1.3  # what the noise alone as the variance would give
