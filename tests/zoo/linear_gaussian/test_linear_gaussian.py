"""Linear-Gaussian rows against dense normal distributions, with and without missing cells."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal

from zoo.linear_gaussian import rows as linear_gaussian
from zoo.sparse import SparseMatrix

DENSE = 1e-11  # relative


@pytest.fixture(autouse=True)
def double():
    """64 bits throughout."""
    with jax.enable_x64(True):
        yield


def _case(share_missing, num_rows=20, d=7, k=3):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num_rows, d)) * 2
    x[rng.uniform(size=x.shape) < share_missing] = np.nan
    return x, rng.normal(size=(d, k)), rng.normal(size=d), rng.uniform(1e-3, 1.0, d)


def _dense(x, loadings, loc, noise):
    """Log density, posterior mean and covariance of each row by the textbook, with full matrices."""
    covariance = loadings @ loadings.T + np.diag(noise)
    densities, means, covariances = [], [], []
    for row in x:
        o = ~np.isnan(row)
        own = covariance[np.ix_(o, o)]
        densities.append(multivariate_normal(loc[o], own).logpdf(row[o]) if o.any() else 0.0)
        gain = loadings[o].T @ np.linalg.inv(own)
        means.append(gain @ (row[o] - loc[o]))
        covariances.append(np.eye(loadings.shape[1]) - gain @ loadings[o])
    return np.array(densities), np.array(means), np.array(covariances)


@pytest.mark.parametrize("share_missing", [0.0, 0.4])
@pytest.mark.parametrize("traced", [False, True])
def test_density_and_posterior_equal_a_dense_normal(share_missing, traced):
    """Both branches, concrete and traced, with a row that has no cell at all."""
    case = _case(share_missing)
    if share_missing:
        case[0][4] = np.nan
    density, mean, covariance = _dense(*case)
    of_density, of_mean = linear_gaussian.log_density, linear_gaussian.latents_mean
    if traced:
        of_density, of_mean = jax.jit(of_density), jax.jit(of_mean)
    np.testing.assert_allclose(of_density(*case), density, rtol=DENSE, atol=1e-12)
    np.testing.assert_allclose(of_mean(*case), mean, rtol=DENSE, atol=1e-11)
    x, loadings, _, noise = case
    np.testing.assert_allclose(linear_gaussian.latents_covariance(x, loadings, noise), covariance, atol=1e-12)
    if not share_missing:
        shared = linear_gaussian.shared_latents_covariance(loadings, noise)
        np.testing.assert_allclose(shared, covariance[0], atol=1e-12)


@pytest.mark.parametrize("shared", [False, True], ids=["noise by column", "one noise"])
def test_missing_cells_are_completed_by_their_conditional_normal(shared):
    """Means and variances given the observed cells of a row, with full matrices; one row has no cell."""
    x, loadings, loc, noise = _case(0.4, num_rows=5, d=4, k=2)
    x[2], noise = np.nan, noise + 0.5
    x[3] = [0.4, -1.0, 2.0, 0.1]  # nothing to complete
    noise = noise[0] if shared else noise
    covariance = loadings @ loadings.T + np.eye(4) * noise
    filled, variance = x.copy(), np.zeros_like(x)
    for number, row in enumerate(x):
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
        filled[number, m] = loc[m] + gain @ (row[o] - loc[o])
        variance[number, m] = np.diag(covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)])
    found = linear_gaussian.completed(*map(jnp.asarray, (x, loadings, loc, noise)))
    np.testing.assert_allclose(found[0], filled, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found[1], variance, rtol=1e-9)


def test_gradients_are_finite_with_missing_cells():
    """NaN in a cell that is masked must not leak into gradients, of either branch."""
    x, loadings, loc, noise = _case(0.3)
    gradient = jax.jit(jax.grad(lambda w, x: linear_gaussian.log_density(x, w, loc, noise).sum()))
    assert np.isfinite(gradient(loadings, x)).all()
    whole = np.where(np.isnan(x), 0.0, x)
    eps, direction = 1e-6, np.random.default_rng(0).normal(size=loadings.shape)
    ends = [
        float(linear_gaussian.log_density(whole, loadings + s * eps * direction, loc, noise).sum())
        for s in (1, -1)
    ]
    slope = float(np.sum(np.asarray(gradient(loadings, whole)) * direction))
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * eps), rel=1e-6)


def test_small_noise_loses_no_digits():
    """With noise 1e-10 of the signal the density still has ten digits, against 50-digit arithmetic.

    The form r'r/psi - b' A^-1 b, which the residual form replaces, fails the same test.
    """
    rng = np.random.default_rng(1)
    d, k, noise = 4, 2, 1e-10
    loadings, z = rng.normal(size=(d, k)), rng.normal(size=(1, k))
    x = z @ loadings.T + np.sqrt(noise) * rng.normal(size=(1, d))
    exact = _exact_log_density(x[0], loadings, noise)
    ours = float(linear_gaussian.log_density(x, loadings, np.zeros(d), noise)[0])
    assert ours == pytest.approx(exact, rel=1e-9)
    b = loadings.T @ x[0] / noise
    a = np.eye(k) + loadings.T @ loadings / noise
    quadratic = x[0] @ x[0] / noise - b @ np.linalg.solve(a, b)
    printed = -0.5 * (quadratic + d * np.log(2 * np.pi * noise) + np.linalg.slogdet(a)[1])
    assert abs(printed / exact - 1) > 1e-9


def _exact_log_density(x, loadings, noise):
    """By rational arithmetic: Gaussian elimination on exact fractions."""
    from fractions import Fraction

    w = [[Fraction(v) for v in row] for row in loadings.tolist()]
    d = len(w)
    matrix = [
        [
            sum(a * b for a, b in zip(one, other, strict=True)) + (one is other) * Fraction(noise)
            for other in w
        ]
        for one in w
    ]
    right, determinant = [Fraction(v) for v in x.tolist()], Fraction(1)
    quadratic = Fraction(0)
    for i in range(d):
        pivot = matrix[i][i]
        determinant *= pivot
        quadratic += right[i] ** 2 / pivot
        for j in range(i + 1, d):
            factor = matrix[j][i] / pivot
            matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
            right[j] -= factor * right[i]
    return -0.5 * (float(quadratic) + np.log(float(determinant)) + d * np.log(2 * np.pi))


def test_the_distribution_is_a_numpyro_one():
    """It conditions on rows with holes, validated, and its draws have its moments.

    Each of the 7 + 28 moments of 20 000 draws is compared at 5 standard errors: false alarm rate below 3e-5.
    """
    x, loadings, loc, noise = _case(0.3)
    rows = linear_gaussian.LinearGaussianRows(*map(jnp.asarray, (loadings, loc, noise)), validate_args=True)
    with numpyro.plate("observations", x.shape[0]):
        site = numpyro.handlers.trace(lambda: numpyro.sample("x", rows, obs=jnp.asarray(x))).get_trace()["x"]
    np.testing.assert_allclose(site["fn"].log_prob(site["value"]), _dense(x, loadings, loc, noise)[0])
    draws = np.asarray(rows.sample(jax.random.key(0), (20_000,)))
    covariance = loadings @ loadings.T + np.diag(noise)
    np.testing.assert_allclose(rows.variance, np.diag(covariance))
    spread = np.sqrt(np.diag(covariance) / 20_000)
    assert (np.abs(draws.mean(0) - loc) < 5 * spread).all()
    errors = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 20_000)
    assert (np.abs(np.cov(draws.T) - covariance) < 5 * errors).all()


def test_draws_given_rows_have_their_posterior():
    """20 000 draws a row: means and covariances within 5 standard errors, of 27 numbers false alarm 2e-5.

    Noise of a thousandth and of one side by side: its root and itself differ.
    """
    x, loadings, loc, noise = _case(0.4, num_rows=3, d=4)
    given = linear_gaussian.LatentsGivenRows(*map(jnp.asarray, (x, loadings, loc, noise)))
    _, means, covariances = _dense(x, loadings, loc, noise)
    drawn = np.asarray(given.sample(jax.random.key(0), (20_000,))) - means
    roots = np.sqrt(np.array([np.diag(own) for own in covariances]))
    assert np.abs(drawn.mean(axis=0) / roots).max() < 5 / 20_000**0.5
    products = np.einsum("sni,snj->nij", drawn, drawn) / 20_000
    scale = np.einsum("ni,nj->nij", roots, roots)
    error = np.sqrt((scale**2 + covariances**2) / 20_000)
    assert (np.abs(products - covariances) < 5 * error).all()


def test_sparse_rows_have_the_density_and_latents_of_dense_ones():
    """Noise of every column apart, far from one; outputs given sparse inputs too."""
    x, loadings, loc, noise = _case(0.0)
    x = np.where(np.abs(x) > 1.5, x, 0.0)
    rows = SparseMatrix.from_scipy(scipy.sparse.csr_matrix(x))
    density, mean, covariance = _dense(x, loadings, loc, noise)
    own = [jnp.asarray(part) for part in (loadings, loc, noise)]
    np.testing.assert_allclose(linear_gaussian.log_density(rows, *own), density, rtol=1e-9)
    np.testing.assert_allclose(linear_gaussian.latents_mean(rows, *own), mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        linear_gaussian.latents_covariance(rows, own[0], own[2]), covariance, atol=1e-10
    )


def _drawn_exactly(monkeypatch, rows, num_normals):
    """The mean and covariance of the draws of rows, which are affine in standard normals.

    These are set to zero, which gives the mean, and to unit vectors in turn, which give a root of the
    covariance; each call of the generator has the next of them.
    """
    directions, begun = np.vstack([np.zeros(num_normals), np.eye(num_normals)]), 0

    def normal(key, shape, *dtype):
        nonlocal begun
        own = directions[:, begun : begun + shape[-1]].reshape(-1, *[1] * (len(shape) - 2), shape[-1])
        begun += shape[-1]
        return jnp.broadcast_to(own, shape)

    with monkeypatch.context() as patched:
        patched.setattr(jax.random, "normal", normal)
        draws = np.asarray(rows.sample(jax.random.key(0), (num_normals + 1,)))
    assert begun == num_normals
    away = draws[1:] - draws[0]
    return draws[0], np.einsum("s...i,s...j->...ij", away, away)


def test_draws_have_the_mean_and_covariance_of_their_density(monkeypatch):
    """Exactly, of four kinds of rows; the noise of no column is near one, where it equals its root."""
    x, loadings, loc, noise = _case(0.4, num_rows=3, d=5, k=2)
    noise = noise + np.array([0.0, 2.0, 0.0, 3.0, 0.0])
    shift = np.random.default_rng(4).normal(size=(3, 5))
    whole = loadings @ loadings.T + np.diag(noise)
    own = tuple(map(jnp.asarray, (loadings, loc, noise)))
    first = x[:, :3], loadings[:3], loc[:3], noise[:3]
    _, mean, covariance = _dense(*first)
    last = loadings[3:]
    cases = (
        (linear_gaussian.LinearGaussianRows(*own), 7, loc, whole),
        (linear_gaussian.ShiftedRows(jnp.asarray(shift), *own), 7, shift + loc, whole),
        (linear_gaussian.DenseRows(jnp.asarray(shift), jnp.asarray(whole)), 5, shift, whole),
        (
            linear_gaussian.RowsGivenOthers(jnp.asarray(first[0]), *own),
            4,
            loc[3:] + mean @ last.T,
            last @ covariance @ last.T + np.diag(noise[3:]),
        ),
    )
    for rows, num_normals, wanted_mean, wanted_covariance in cases:
        found = _drawn_exactly(monkeypatch, rows, num_normals)
        name = type(rows).__name__
        np.testing.assert_allclose(found[0], wanted_mean, atol=1e-10, err_msg=name)
        wanted = np.broadcast_to(wanted_covariance, found[1].shape)
        np.testing.assert_allclose(found[1], wanted, atol=1e-10, err_msg=name)


def test_rows_with_a_full_covariance_are_scored_and_completed_by_their_conditional_normal():
    """Density, means and variances given the observed cells; one row is whole, one has no cell."""
    rng = np.random.default_rng(6)
    x, root = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    loc, covariance = rng.normal(size=(4, 3)), root @ root.T + np.diag([0.2, 0.5, 3.0])
    x[0, 1] = x[2, 0] = x[2, 2] = np.nan
    x[3] = np.nan
    density, filled, variance = np.zeros(4), x.copy(), np.zeros_like(x)
    for number, row in enumerate(x):
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        seen = covariance[np.ix_(o, o)]
        gain = covariance[np.ix_(m, o)] @ np.linalg.inv(seen)
        density[number] = multivariate_normal(loc[number, o], seen).logpdf(row[o]) if o.size else 0.0
        filled[number, m] = loc[number, m] + gain @ (row[o] - loc[number, o])
        variance[number, m] = np.diag(covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)])
    rows = linear_gaussian.DenseRows(jnp.asarray(loc), jnp.asarray(covariance))
    found = rows.completed(jnp.asarray(x))
    np.testing.assert_allclose(found[0], filled, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found[1], variance, rtol=1e-9)
    np.testing.assert_allclose(rows.log_prob(jnp.asarray(x)), density, rtol=DENSE, atol=1e-12)
    whole = linear_gaussian.DenseRows(jnp.asarray(loc[[1] * 4]), jnp.asarray(covariance))
    np.testing.assert_allclose(whole.log_prob(jnp.asarray(x[[1] * 4])), density[[1] * 4], rtol=DENSE)
    every = rows.mean_and_variance()
    np.testing.assert_array_equal(every[0], loc)
    np.testing.assert_array_equal(every[1], np.tile(np.diag(covariance), (4, 1)))
