"""Polya-Gamma draws: moments, Laplace transforms in both precisions, the remainder's error, planted bugs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from inference.numerics import polya_gamma
from inference.precision import in_precision

DRAWS = 40_000
TILTS = np.array([0.0, 0.7, 3.1, 5.1, 5.2, 12.0])  # 5.1 and 5.2: the two proposals below the meeting point
RATES = np.array([0.3, 3.0, 30.0])  # where the Laplace transform is compared
LIMIT = 4.6  # 15 to 30 comparisons of |z|: false alarm rate below 1.3e-4 for each test


def deviates(draws, expected):
    """Z of mean exp(-s omega) for every tilt and rate; draws have shape (DRAWS, num_tilts)."""
    powers = np.exp(-RATES * draws[:, :, None])
    return (powers.mean(0) - expected) / (powers.std(0) / np.sqrt(len(draws)))


def drawn(function, count, dtype="float64", seed=0):
    with in_precision(dtype):
        tilts = jnp.tile(jnp.asarray(TILTS), (DRAWS, 1))
        return np.asarray(jax.jit(function)(jax.random.key(seed), jnp.full(tilts.shape, count), tilts), float)


def log_laplace(count, tilt, s):
    """Log E[exp(-s omega)] of PG(count, tilt), s >= 0 (Polson, Scott and Windle 2013, equation 5)."""
    return count * (jnp.log(jnp.cosh(tilt / 2)) - jnp.log(jnp.cosh(jnp.sqrt(tilt**2 / 4 + s / 2))))


def transform(count):
    with in_precision():
        return np.exp(log_laplace(count, jnp.asarray(TILTS)[:, None], jnp.asarray(RATES)))


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize(("count", "dtype"), [(1.0, "float64"), (1.0, "float32"), (3.0, "float64")])
def test_whole_counts_have_the_laplace_transform(count, dtype):
    draws = drawn(polya_gamma.draw_whole, count, dtype)
    assert np.isfinite(draws).all() and (draws > 0).all()
    assert np.abs(deviates(draws, transform(count))).max() < LIMIT


@pytest.mark.slow
def test_a_count_in_two_parts_has_the_laplace_transform():
    """2.3 = 2 + 0.3, up to the remainder's known error, as the samplers draw it before they correct."""
    draws = drawn(tilted_at_zero, 2.3)
    reached = np.sqrt(TILTS[:, None] ** 2 + 2 * RATES)
    with in_precision():
        error = polya_gamma.log_remainder_error(jnp.asarray(reached))
        error = np.asarray(error - polya_gamma.log_remainder_error(jnp.asarray(TILTS))[:, None])
    assert np.abs(deviates(draws, transform(2.3) * np.exp(0.3 * error))).max() < LIMIT
    assert np.abs(deviates(draws[:, :1], transform(2.3)[:1]))[0, 0] < LIMIT  # no need of it where it is small


def tilted_at_zero(key, count, tilt):
    """The fraction matched at c = 0 and tilted by c: right up to an error that grows with c."""
    first, second = jax.random.split(key)
    whole = jnp.floor(count)
    rest = polya_gamma.draw_fraction(second, count - whole, tilt)
    return polya_gamma.draw_whole(first, whole, tilt) + rest


def variance(count, tilt):
    """Var[omega] of PG(count, tilt), elementwise: b (sinh c - c) / (4 c^3 cosh^2(c/2)), at c = 0 b / 24."""
    size = jnp.abs(tilt)
    small = size < 0.1
    safe = jnp.where(small, 1.0, size)
    closed = (2 * jnp.tanh(safe / 2) - safe / jnp.cosh(jnp.minimum(safe, 80.0) / 2) ** 2) / (4 * safe**3)
    return count * jnp.where(small, 1 / 24 - size**2 / 120 + 17 * size**4 / 13440, closed)


def moment_deviates(function, count, dtype):
    """Z of mean and variance at every tilt against their closed forms, which the test below proves."""
    draws = drawn(function, count, dtype)
    with in_precision():
        tilts = jnp.asarray(TILTS)
        exact_mean = np.asarray(polya_gamma.mean(count, tilts))
        exact_variance = np.asarray(variance(count, tilts))
    squares = (draws - exact_mean) ** 2
    by_mean = (draws.mean(0) - exact_mean) / (draws.std(0) / np.sqrt(len(draws)))
    by_variance = (squares.mean(0) - exact_variance) / (squares.std(0) / np.sqrt(len(draws)))
    return np.abs(np.concatenate([by_mean, by_variance]))


def in_small_calls(function):
    """The same draws in a hundred calls, of so few elements that all rejected ones are proposed again."""
    number = 100

    def calls(key, count, tilt):
        parts = (part.reshape(number, -1, part.shape[-1]) for part in (count, tilt))
        draws = jax.lax.map(lambda call: function(*call), (jax.random.split(key, number), *parts))
        return draws.reshape(tilt.shape)

    assert DRAWS * len(TILTS) // number <= polya_gamma.SMALL_SIZE < DRAWS * len(TILTS)
    return calls


def test_few_elements_have_the_laplace_transform_and_the_moments():
    draws = drawn(in_small_calls(polya_gamma.draw_whole), 1.0)
    assert np.abs(deviates(draws, transform(1.0))).max() < LIMIT
    assert moment_deviates(in_small_calls(polya_gamma.draw_whole), 2.0, "float64").max() < LIMIT


def test_few_elements_taken_at_the_first_proposal_are_found(monkeypatch):
    """Planted: what is rejected is not proposed again."""
    until_accepted = polya_gamma._until_accepted

    def first_alone(key, propose, parameters):
        return until_accepted(
            key, lambda *args: (propose(*args)[0], jnp.ones(args[1].shape, bool)), parameters
        )

    monkeypatch.setattr(polya_gamma, "_until_accepted", first_alone)
    draws = drawn(in_small_calls(lambda *args: polya_gamma.draw_whole(*args)), 1.0)
    assert np.abs(deviates(draws, transform(1.0))).max() > 8


def test_a_fraction_matched_at_zero_is_found():
    """Planted: the mean of PG(0.5, 5) was 18 % low."""
    assert moment_deviates(tilted_at_zero, 0.5, "float64").max() > 50


def test_a_truncated_series_is_found():
    """Planted: 20 terms of the infinite sum, which lack a hundredth of the mean."""

    def truncated(key, count, tilt):
        k = jnp.arange(1, 21) - 0.5
        gammas = jax.random.exponential(key, (*tilt.shape, 20))
        return jnp.sum(gammas / (k**2 + (tilt[..., None] / (2 * jnp.pi)) ** 2), -1) / (2 * jnp.pi**2)

    assert np.abs(deviates(drawn(truncated, 1.0), transform(1.0))).max() > 8


@pytest.mark.slow
def test_a_proposal_taken_as_it_is_is_found(monkeypatch):
    """Planted: the alternating series is not looked at."""
    accept = polya_gamma._propose_jacobi

    def careless(uniforms, z):
        x, _ = accept(uniforms, z)
        return x, x > 0

    monkeypatch.setattr(polya_gamma, "_propose_jacobi", careless)
    draws = drawn(lambda *args: polya_gamma.draw_whole(*args), 1.0)
    assert np.abs(deviates(draws, transform(1.0))).max() > 8


@pytest.mark.slow
def test_pieces_chosen_without_their_tilt_are_found(monkeypatch):
    """Planted: the pieces of the Levy proposal have the masses they have at z = 0."""
    masses = polya_gamma._levy_masses
    monkeypatch.setattr(polya_gamma, "_levy_masses", lambda z: masses(jnp.zeros_like(z)))
    draws = drawn(lambda *args: polya_gamma.draw_whole(*args), 1.0)
    assert np.abs(deviates(draws, transform(1.0))).max() > 8


def test_moments_are_derivatives_of_the_transform():
    with in_precision():
        tilts = jnp.array([0.0, 1e-3, 0.05, 0.11, 0.7, 3.0, 60.0])

        def log_transform(s, tilt):
            return log_laplace(2.5, tilt, s)

        def at(s, tilt):  # away from the branch point of the square root at s = tilt = 0
            return jax.grad(log_transform)(s, tilt), jax.grad(jax.grad(log_transform))(s, tilt)

        first, second = jax.vmap(at, (None, 0))(jnp.asarray(1e-9), jnp.maximum(tilts, 0.05))
        moments = polya_gamma.mean(2.5, tilts), variance(2.5, tilts)
        np.testing.assert_allclose(moments[0][2:], -first[2:], rtol=1e-6)
        np.testing.assert_allclose(moments[1][3:], second[3:], rtol=1e-5)
        np.testing.assert_allclose(moments[0][:2], 2.5 / 4, rtol=1e-6)
        np.testing.assert_allclose(
            moments[1][:3], 2.5 * (1 / 24 - np.array([0, 1e-6, 2.5e-3]) / 120), rtol=1e-5
        )


def test_the_augmentation_gives_the_logistic_likelihood():
    """The gamma remainder by quadrature over omega, with its error put back: cosh^-b."""
    shape, rate = polya_gamma.REMAINDER_SHAPE * 0.4, polya_gamma.REMAINDER_RATE
    for psi in (0.5, 2.0, 5.0):
        value = integrate.quad(
            lambda t, psi=psi: np.exp(-(t ** (1 / shape)) * (rate + psi**2 / 2)), 0, np.inf, epsabs=1e-13
        )[0]
        value *= rate**shape / (shape * special.gamma(shape))
        with in_precision():
            error = float(polya_gamma.log_remainder_error(jnp.asarray(psi)))
        np.testing.assert_allclose(value * np.exp(-0.4 * error), np.cosh(psi / 2) ** -0.4, rtol=1e-7)
        assert 0 < error < 0.14


def test_counts_of_zero_and_arrays_of_any_shape():
    with in_precision():
        counts = jnp.array([[0.0, 1.0, 2.5], [0.0, 0.4, 0.0]])
        found = np.asarray(tilted_at_zero(jax.random.key(0), counts, jnp.asarray(1.0)))
    np.testing.assert_array_equal(found == 0, np.asarray(counts) == 0)
