"""Moves along which the natural parameters stay as they are: drawn from their exact conditionals."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, polygamma

import zoo
from inference.methods.epca import gibbs
from inference.methods.epca.gibbs import common_shift, rescaling
from inference.precision import in_precision

NUM_DRAWS = 20_000
LATENT_PRECISION, OTHER_PRECISION = 0.7, 1.6


def test_the_shift_has_its_mean_and_covariance():
    """Normal, by completing the square; whitened draws within 4.5 standard errors: false alarms 3e-5."""
    rng = np.random.default_rng(0)
    z, w, loc = rng.normal(size=(5, 2)) + 1.0, rng.normal(size=(3, 2)), rng.normal(size=3) + 2.0
    precision = 5 * LATENT_PRECISION * np.eye(2) + OTHER_PRECISION * w.T @ w
    mean = np.linalg.solve(precision, OTHER_PRECISION * w.T @ loc - LATENT_PRECISION * z.sum(0))
    with in_precision():
        given = (*map(jnp.asarray, (z, w, loc)), LATENT_PRECISION, OTHER_PRECISION)
        keys = jax.random.split(jax.random.key(0), NUM_DRAWS)
        draws = np.asarray(jax.vmap(lambda key: common_shift(key, *given))(keys))
    white = (draws - mean) @ np.linalg.cholesky(precision)
    error = 4.5 / np.sqrt(NUM_DRAWS)
    assert np.abs(white.mean(0)).max() < error
    assert np.abs((white**2).mean(0) - 1).max() < np.sqrt(2) * error
    assert abs(white.prod(1).mean()) < error


def test_rescaled_draws_of_the_prior_are_draws_of_the_prior():
    """Three moves of latents (3 rows) and loadings (2 columns); logs of sums of squares, 4.5 errors: 3e-5.

    Planted: with the precisions of latents and loadings exchanged they are not.
    """
    rng = np.random.default_rng(1)
    z = rng.normal(size=(NUM_DRAWS, 3, 1)) / LATENT_PRECISION**0.5
    w = rng.normal(size=(NUM_DRAWS, 2, 1)) / OTHER_PRECISION**0.5

    def misses(*precisions):
        with in_precision():
            move = jax.jit(jax.vmap(lambda key, z, w: rescaling(key, z, w, *precisions)))
            scale = jnp.ones((NUM_DRAWS, 1, 1))
            for number in range(3):
                keys = jax.random.split(jax.random.key(number), NUM_DRAWS)
                scale *= move(keys, z * scale, w / scale)[:, None]
            scale = np.asarray(scale)
        assert np.log(scale).std() > 0.2  # it moves
        found = []
        for x, precision in ((z * scale, LATENT_PRECISION), (w / scale, OTHER_PRECISION)):
            half = x.shape[1] / 2
            logs = np.log(precision * (x**2).sum((1, 2)) / 2)
            found.append(abs(logs.mean() - digamma(half)) / np.sqrt(polygamma(1, half) / NUM_DRAWS))
        return max(found)

    assert misses(LATENT_PRECISION, OTHER_PRECISION) < 4.5
    assert misses(OTHER_PRECISION, LATENT_PRECISION) > 4.5


def test_both_moves_forget_where_along_a_shift_they_start(monkeypatch):
    """From (z, mu) and (z + d, mu - W d) the same keys lead to one point, and theta stays as it was.

    The scales are drawn given the shifted latents: of prior variance (0.5 * 1)^(1/2), and 2 or 5 loadings.
    """
    given = []

    def scales(key, z, *rest):
        given.append((z, *rest))
        return jnp.exp(jnp.mean(z, axis=0) / 2)

    monkeypatch.setattr(gibbs, "rescaling", scales)
    rng = np.random.default_rng(2)
    fields = {"num_features": (3, 2), "latent_variance": 0.5, "loc_variance": 2.0}
    model = zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (0, 1), **fields)
    z, away, ridge = rng.normal(size=(6, 2)), np.array([4.0, -3.0]), np.array([0.9, 1.4])
    loadings = [rng.normal(size=(3, 2)) * [1.0, 0.0], rng.normal(size=(2, 2))]
    starts, ends = [], []
    with in_precision():
        for shift in (0.0 * away, away):
            values = {"latents": z + shift}
            for v, w in enumerate(loadings):
                values |= {f"loadings_{v}": w, f"loc_{v}": 1.0 - w @ shift}
            starts.append({name: jnp.asarray(value) for name, value in values.items()})
            keys = jax.random.split(jax.random.key(0))
            ends.append(gibbs.flat_moves(keys, starts[-1], model, jnp.asarray(ridge)))
        starts, ends, given = jax.tree.map(np.asarray, (starts, ends, given))
    for name, value in ends[0].items():
        np.testing.assert_allclose(ends[1][name], value, rtol=1e-10, atol=1e-10, err_msg=name)
    for v in range(2):
        first, last = (s["latents"] @ s[f"loadings_{v}"].T + s[f"loc_{v}"] for s in (starts[0], ends[0]))
        np.testing.assert_allclose(last, first, rtol=1e-10, atol=1e-10)
    expected = np.concatenate(loadings), 0.5**-0.5, ridge, [5, 2]
    for found, own in zip(given[0][1:], expected, strict=True):
        np.testing.assert_allclose(found, own, rtol=1e-12)
