"""Predicted cells over draws of a sampler: the law of total variance, by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from inference.prediction import (
    _covariance_about,
    _log_mean_density,
    _mean_over_draws,
    _moments_over_draws,
    draws_without_rows,
)
from zoo.answers import Answers
from zoo.model import Roles


class ToldAnswers(Answers):
    """Covariances of scores that the draws say."""

    def scores_covariance(self, model, values, x):
        return jnp.broadcast_to(values["covariance"], (x.shape[0], 2, 2))


class Told(NamedTuple):
    """A model whose cells have the means and variances that its draws say."""

    nothing: float = 0.0

    answers = ToldAnswers
    own_coordinates = None
    roles = Roles()

    def predicted(self, values, x):
        return x + values["mean"], values["variance"] * jnp.ones_like(x)

    def log_likelihood(self, values, x):
        return x * values["mean"]

    def scores(self, values, x, kind="latent"):
        return x[:, None] * values["slope"]


class Clustered(Told):
    """Likewise, with clusters of rows: a draw counts by a row's density under it."""

    roles = Roles(cluster="assignments")


def test_draws_count_by_the_density_of_the_row():
    """Bayes' rule over draws of equal weight; a row without a density in one has none of its answer."""
    rng = np.random.default_rng(2)
    means, variances, slopes = rng.normal(size=7), rng.gamma(2.0, size=7), rng.normal(size=(7, 2))
    means[0] = -np.inf  # the first: no density for positive rows, and a mean that would spoil theirs
    x = np.array([0.5, 3.0, 200.0])
    with jax.enable_x64(True):
        draws = {name: jnp.asarray(value) for name, value in {"mean": means, "variance": variances}.items()}
        draws["slope"] = jnp.asarray(slopes)
        mean, variance = _moments_over_draws(draws, Clustered(), (jnp.asarray(x),))
        scores = _mean_over_draws(_scores_of_told, draws, Clustered(), (jnp.asarray(x),))
    logits = x[:, None] * means
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    means[0] = 0.0  # of no weight
    np.testing.assert_allclose(mean, x + weights @ means, rtol=1e-12)
    spread = weights @ (variances + means**2) - (weights @ means) ** 2
    np.testing.assert_allclose(variance, spread, rtol=1e-9)
    np.testing.assert_allclose(scores, x[:, None] * (weights @ slopes), rtol=1e-12)


def _scores_of_told(values, model, x):
    return model.scores(values, x)


def test_variance_within_draws_and_between_them():
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=7), rng.gamma(2.0, size=7)
    x = rng.normal(size=(3,))
    with jax.enable_x64(True):
        draws = {"mean": jnp.asarray(means), "variance": jnp.asarray(variances)}
        mean, variance = _moments_over_draws(draws, Told(), (jnp.asarray(x),))
        density = _log_mean_density(draws, Told(), (jnp.asarray(x),))
    np.testing.assert_allclose(mean, x + means.mean(), rtol=1e-12)
    np.testing.assert_allclose(variance, np.full(3, variances.mean() + means.var()), rtol=1e-12)
    np.testing.assert_allclose(density, np.log(np.exp(x[:, None] * means).mean(1)), rtol=1e-12)


def test_covariance_within_draws_and_between_them():
    """The mean of the covariances plus the covariance of the means, which is correlated here."""
    rng = np.random.default_rng(1)
    slopes, factors, x = rng.normal(size=(7, 2)), rng.normal(size=(7, 2, 2)), rng.normal(size=3)
    slopes[:, 1] += slopes[:, 0]
    covariances = factors @ np.swapaxes(factors, 1, 2)
    with jax.enable_x64(True):
        draws = {"slope": jnp.asarray(slopes), "covariance": jnp.asarray(covariances)}
        mean = jnp.asarray(x[:, None] * slopes.mean(0))
        found = _mean_over_draws(_covariance_about, draws, Told(), (mean, jnp.asarray(x)))
    expected = covariances.mean(0) + x[:, None, None] ** 2 * np.cov(slopes.T, ddof=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("most", [2, 5, 8, None, 100])
def test_a_few_draws_are_evenly_spread_over_all_chains(most):
    """Four chains of five draws, numbered through: the first, the last, and between them equal steps."""
    numbers = np.arange(20.0).reshape(4, 5)
    sites = {
        "loc": (("chain", "draw"), numbers),
        "latents": (("chain", "draw", "observation"), numbers[..., None]),
    }
    sites["topics"] = (("chain", "draw", "topic"), np.stack([numbers, -numbers], axis=-1))
    found = draws_without_rows(xr.DataTree.from_dict({"posterior": xr.Dataset(sites)}), most)
    assert set(found) == {"loc", "topics"}  # those of rows are left out
    loc, wanted = np.asarray(found["loc"]), min(most or 20, 20)
    assert loc.shape == (wanted,) and loc[0] == 0 and loc[-1] == 19 and np.ptp(np.diff(loc)) <= 1
    assert len(set(loc // 5)) == min(wanted, 4)
    np.testing.assert_array_equal(found["topics"], np.stack([loc, -loc], axis=-1))
