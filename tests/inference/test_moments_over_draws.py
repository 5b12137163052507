"""Predicted cells over draws of a sampler: the law of total variance, by hand."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from inference.prediction import _log_mean_density, _moments_over_draws


class Told(NamedTuple):
    """A model whose cells have the means and variances that its draws say."""

    nothing: float = 0.0

    def predicted(self, values, x):
        return x + values["mean"], values["variance"] * jnp.ones_like(x)

    def log_likelihood(self, values, x):
        return x * values["mean"]


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
