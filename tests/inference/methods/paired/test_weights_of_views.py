"""A view of weight w counts as w copies of its cells in the conditional, and in q, of its noise."""

import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference.methods.epca import gibbs, vb_factors
from inference.precision import in_precision
from zoo.exponential_family import Gaussian

WEIGHTS = (2.0, 0.5)
RNG = np.random.default_rng(0)
Z, VIEWS = RNG.normal(size=(9, 2)), [RNG.normal(size=(9, size)) for size in (3, 4)]
VIEWS[0][2, 1] = np.nan


def test_the_noise_of_a_view_is_drawn_with_its_weight():
    """Conjugate, by hand: InverseGamma(1 + w n / 2, 1 + w sum of squares / 2), missing cells left out."""
    model = zoo.Paired.sepca((Gaussian(None), Gaussian(None)), 2, view_weights=WEIGHTS)
    model = model.with_sizes_from(*VIEWS)
    values = {"latents": Z}
    for number, x in enumerate(VIEWS):
        values |= {
            f"loadings_{number}": RNG.normal(size=(x.shape[1], 2)),
            f"loc_{number}": np.ones(x.shape[1]),
        }
    with in_precision():
        found = gibbs.noise(values, model, *map(jnp.asarray, VIEWS))
    assert len(found) == 2
    for number, (x, weight) in enumerate(zip(VIEWS, WEIGHTS, strict=True)):
        away = x - Z @ values[f"loadings_{number}"].T - 1.0
        own = found[f"noise_variance_{number}"]
        assert float(own.concentration) == pytest.approx(1 + weight * np.isfinite(x).sum() / 2, rel=1e-12)
        assert float(own.rate) == pytest.approx(1 + weight * np.nansum(away**2) / 2, rel=1e-12)


def test_q_of_the_noise_of_a_view_has_its_weight():
    """By hand: the squares are expected ones, (x - m)^2 + var(v'u + mu) cell by cell."""
    model = zoo.Paired.sepca((Gaussian(None), Gaussian(None)), 2, view_weights=WEIGHTS)
    model = model.with_sizes_from(*VIEWS)
    rng = np.random.default_rng(1)
    half, other = rng.normal(size=(9, 2, 2)), rng.normal(size=(7, 3, 3))
    rows, spread = half @ half.transpose(0, 2, 1), other @ other.transpose(0, 2, 1)
    columns = rng.normal(size=(7, 3))
    with in_precision():
        parts = map(jnp.asarray, (Z, rows, columns, spread, np.ones((2, 2)), np.ones((2, 2))))
        state = vb_factors.ProjectionPosterior(*parts)
        found = np.asarray(vb_factors._noise(state, model, tuple(map(jnp.asarray, VIEWS))).noise)
    first = 0
    for x, weight, (concentration, rate) in zip(VIEWS, WEIGHTS, found, strict=True):
        squares = 0.0
        for n, d in np.argwhere(np.isfinite(x)):
            w, c, u = columns[first + d], spread[first + d], np.append(Z[n], 1.0)
            variance = w[:2] @ rows[n] @ w[:2] + u @ c @ u + np.sum(rows[n] * c[:2, :2])
            squares += (x[n, d] - w @ u) ** 2 + variance
        assert concentration == pytest.approx(1 + weight * np.isfinite(x).sum() / 2, rel=1e-12)
        assert rate == pytest.approx(1 + weight * squares / 2, rel=1e-10)
        first += x.shape[1]


def test_the_precisions_of_loadings_are_drawn_given_their_squares():
    """Conjugate, by hand: Gamma(a + D / 2, b + sum of w^2 / (2 s)), s^2 the product of both variances."""
    prior = {"ard": True, "ard_concentration": 1.5, "ard_rate": 0.8, "latent_variance": 0.4}
    model = zoo.Paired.sepca((Gaussian(None), Gaussian(None)), 2, **prior).with_sizes_from(*VIEWS)
    loadings = [RNG.normal(size=(x.shape[1], 2)) for x in VIEWS]
    values = {f"loadings_{number}": own for number, own in enumerate(loadings)}
    values |= {f"loc_{number}": np.zeros(len(own)) for number, own in enumerate(loadings)}
    with in_precision():
        found = gibbs.relevance(values, model, *map(jnp.asarray, VIEWS))["loading_precision"].base_dist
    squares = (np.concatenate(loadings) ** 2).sum(0)
    np.testing.assert_allclose(found.concentration, 1.5 + 7 / 2, rtol=1e-12)
    np.testing.assert_allclose(found.rate, 0.8 + squares / (2 * 0.4**0.5), rtol=1e-12)
