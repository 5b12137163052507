"""Fast digamma and log-gamma against scipy's, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from zoo.gamma_functions import digamma, exp_digamma, gammaln

ARGUMENTS = np.concatenate([np.geomspace(1e-8, 1e8, 4001), np.linspace(0.01, 30, 3001)])


@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 2e-16), ("float32", 1.2e-7)])
def test_they_are_scipys_up_to_rounding(dtype, rounding):
    """Ten units of rounding of the largest part that the sum is made of."""
    with jax.enable_x64(dtype == "float64"):
        x = jnp.asarray(ARGUMENTS, dtype)
        exact = np.asarray(x, np.float64)
        size = 10 * rounding * (6 + 1 / exact + np.log1p(exact))
        assert (np.abs(digamma(x) - special.digamma(exact)) <= size).all()
        weight = np.exp(special.digamma(exact))
        flushed = 2 * np.finfo(dtype).tiny  # exp gives zero a little before numbers end
        assert (np.abs(exp_digamma(x) - weight) <= size * weight + flushed).all()
        size = 10 * rounding * (20 + np.abs(special.gammaln(exact)))
        assert (np.abs(gammaln(x) - special.gammaln(exact)) <= size).all()
        assert digamma(x).dtype == dtype


def test_a_series_cut_short_is_seen():
    """The planted bug: single precision's shift and terms in double precision."""
    from zoo import gamma_functions

    with jax.enable_x64(True):
        x = jnp.asarray(1.5)
        short = jnp.log(x + 3.5) + gamma_functions._series(
            1 / (x + 3.5) ** 2, gamma_functions._coefficients(4)[0]
        )
        short -= gamma_functions._reciprocals(x, 4)
        assert 1e-12 < abs(float(short) - special.digamma(1.5)) < 1e-6
        assert abs(float(digamma(x)) - special.digamma(1.5)) < 1e-14


def test_whole_numbers_are_as_exact_as_others():
    """They were taken for single precision: 1e-9 off."""
    with jax.enable_x64(True):
        n = jnp.arange(1, 40)
        np.testing.assert_allclose(gammaln(n), special.gammaln(np.arange(1, 40)), rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(digamma(n), special.digamma(np.arange(1, 40)), rtol=1e-14)
