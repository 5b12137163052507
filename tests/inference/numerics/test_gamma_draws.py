"""Gamma and Dirichlet draws against their distributions; bugs planted in the rejection and the boost.

Kolmogorov-Smirnov at p = 1e-4 for each of six shapes: a right sampler fails with probability 6e-4. Seeds are
fixed.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

from inference.numerics import gamma_draws

SHAPES = np.array([0.02, 0.3, 1.0, 1.7, 40.0, 1e4])


def p_values(logs):
    """Of Kolmogorov-Smirnov, row by row; below -30 the distribution function is its leading term."""
    found = []
    for a, row in zip(SHAPES, np.asarray(logs), strict=True):
        low = np.exp(a * np.minimum(row, -30) - special.gammaln(a + 1))
        level = np.where(row < -30, low, special.gammainc(a, np.exp(row)))
        found.append(stats.kstest(level, "uniform").pvalue)
    return np.array(found)


def drawn(function=gamma_draws.draw_log_gamma, number=50_000):
    with jax.enable_x64(True):
        concentration = jnp.broadcast_to(SHAPES[:, None], (SHAPES.size, number))
        return jax.jit(function)(jax.random.key(1), concentration)


def with_bug(right, wrong):
    """`draw_log_gamma` with a piece of the module's source replaced."""
    source = inspect.getsource(gamma_draws)
    assert right in source
    scope = {"__name__": "planted"}
    exec(source.replace(right, wrong), scope)
    return scope["draw_log_gamma"]


def test_draws_have_their_distribution():
    found = p_values(drawn())
    assert (found > 1e-4).all(), found


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize(
    ("right", "wrong", "row"),
    [
        ("refused = (v <= 0) |", "refused = (v <= 0) &", 2),
        ("d.dtype) / shape, 0)", "d.dtype), 0)", 1),
        ("value, left, key = inner\n", "value, left, key = inner\n            left = left & False\n", 2),
    ],
    ids=["nothing refused", "boost by u", "refused numbers left as they were"],
)
def test_planted_bugs_are_found(right, wrong, row):
    assert p_values(drawn(with_bug(right, wrong)))[row] < 1e-4


def test_little_room_changes_nothing_but_the_rounds():
    """Room for 64 at a time, so that the collection is made again and again."""
    found = p_values(drawn(with_bug("REFUSED = 16", "REFUSED = 10**9"), 5000))
    assert (found > 1e-4).all(), found


def test_no_two_blocks_share_their_variates(monkeypatch):
    """Twenty equal parameters in blocks of eight, the last filled up: each block has a key of its own."""
    monkeypatch.setattr(gamma_draws, "BLOCK_NUMBERS", 8)
    key = jax.random.key(3)
    logs = np.asarray(gamma_draws.draw_log_gamma(key, jnp.full((4, 5), 1.5))).ravel()
    assert len(set(logs.tolist())) == 20
    alone = [gamma_draws.draw_log_gamma(own, jnp.full(7, 1.5)) for own in jax.random.split(key, 3)]
    np.testing.assert_allclose(logs, np.concatenate(alone)[:20], rtol=1e-6)


def test_a_wishart_s_root_and_determinant_are_bartlett_s(monkeypatch):
    """Means by hand at 5 standard errors of 40 000 draws (4e-6): E W = df V, E log|W| by digammas.

    And all entries at once: W has their variances, df (V_ij^2 + V_ii V_jj).
    """
    scale, df = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]]), 4.5
    with jax.enable_x64(True):
        law = dist.Wishart(df, jnp.asarray(scale)).expand((40_000,))
        drawn = np.asarray(jax.jit(lambda key: gamma_draws.draw(key, law))(jax.random.key(4)))
    variance = df * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
    assert (np.abs(drawn.mean(0) - df * scale) < 5 * np.sqrt(variance / 40_000)).all()
    logs = np.linalg.slogdet(drawn)[1] - np.linalg.slogdet(scale)[1]
    halves = (df - np.arange(3)) / 2
    expected = special.digamma(halves).sum() + 3 * np.log(2)
    assert abs(logs.mean() - expected) < 5 * np.sqrt(special.polygamma(1, halves).sum() / 40_000)


@pytest.mark.parametrize("size", [3, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_nearly_singular_wishart_is_positive_definite(dtype, size):
    """With D - 1 + .05 degrees of freedom most draws are singular to rounding: none gives a NaN."""
    scale = np.diag(np.geomspace(1.0, 1e6, size)).astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        law = dist.Wishart(dtype(size - 0.95), jnp.asarray(scale)).expand((300,))
        drawn = jax.jit(lambda key: gamma_draws.draw(key, law))(jax.random.key(1))
        assert drawn.dtype == dtype
        assert np.isfinite(jnp.linalg.cholesky(drawn)).all()
        assert np.linalg.cond(np.asarray(drawn, np.float64)).max() > 1e9


def test_dirichlet_and_nothing_positive():
    """Means of a Dirichlet at 5 standard errors (3e-6); parameters that are not positive end the loop."""
    concentration = np.array([0.2, 1.0, 3.0])
    law = dist.Dirichlet(np.tile(concentration, (20_000, 1)))
    rows = jax.jit(lambda key: gamma_draws.draw(key, law))(jax.random.key(2))
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-5)
    mean = concentration / concentration.sum()
    error = np.sqrt(mean * (1 - mean) / (1 + concentration.sum()) / 20_000)
    assert (np.abs(np.asarray(rows).mean(0) - mean) < 5 * error).all()
    odd = jax.jit(gamma_draws.draw_log_gamma)(jax.random.key(3), np.array([0.0, -1.0, np.nan, 2.0]))
    assert odd[0] == -np.inf and np.isnan(odd[1:3]).all() and np.isfinite(odd[3])


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("family", [dist.Dirichlet, dist.Beta, dist.Gamma])
def test_drawn_values_have_a_density(family):
    """Shapes of 1e-4 have logs near -1e4, beyond the smallest number: as NumPyro, none is 0, 1 or inf."""
    with jax.enable_x64(True):
        least = jnp.asarray(1e-4)
        distribution = family(jnp.full(2, least)) if family is dist.Dirichlet else family(least, least)
        keys = jax.random.split(jax.random.key(0), 200)
        values = jax.jit(jax.vmap(lambda key: gamma_draws.draw(key, distribution)))(keys)
        assert np.isfinite(distribution.log_prob(values)).all()
