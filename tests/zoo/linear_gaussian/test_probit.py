"""Probit outputs of SPPCA: orthants, the program against quadrature and counting, its errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats
from numpyro.handlers import seed, trace
from scipy.special import ndtr

from inference import fit
from inference.methods import auto_method
from inference.precision import in_precision
from tests.support.fit_requests import check_method
from tests.support.log_joint import log_joint
from zoo import SPPCA
from zoo.answers import answer_of
from zoo.linear_gaussian.probit import (
    ProbitOutputs,
    class_log_probabilities,
    log_orthant,
    orthant_moments,
    positive_normal_moments,
)

N, M, K = 7, 3, 2


def values_of(num_outputs, seed_=0):
    rng = np.random.default_rng(seed_)
    return {
        "loadings_x": rng.normal(size=(M, K)),
        "loadings_y": rng.normal(size=(num_outputs, K)),
        "loc_x": rng.normal(size=M),
        "loc_y": rng.normal(size=num_outputs) / 2,
        "noise_variance_x": np.asarray(0.4),
    }


def case(kind):
    """A model, values of its parameters, and rows with holes; binary, binaries, two or three classes."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, M))
    x[1, 2] = x[3, 0] = np.nan
    if kind == "binary":
        y = np.array([1, 0, np.nan, 1, 1, 0, 0.0])[:, None]
    elif kind == "binaries":
        y = rng.integers(0, 2, size=(N, 2)).astype(float)
        y[2] = y[3, 1] = np.nan
    else:
        names = ["a", "b", None, "b", "a", "b", "a"] if kind == "two" else list("abcab") + [None, "c"]
        names = [*names, "c"] if kind == "three" else names
        x = np.concatenate([x, x[:1] + 1])[: len(names)]
        y = pd.Series(names)
    model, data = SPPCA(num_latents=K, output_likelihood="probit", loading_prior="gaussian").encoded(x, y)
    data = tuple(np.asarray(part, float) for part in data)
    model = model.with_sizes_from(*data)
    model.check(*data)
    return model, values_of(model.num_outputs), data


def scored(model, values, data):
    with in_precision():
        values, data = jax.tree.map(jnp.asarray, (values, data))
        return float(log_joint(model, values, *data))


def conditional_probabilities(model, z, y, values):
    """P(y | z) of one row at many latents, by its definition."""
    f = values["loc_y"] + z @ values["loadings_y"].T
    if np.isnan(y).all():
        return np.ones(len(z))
    if not model.is_classes:
        o = ~np.isnan(y)
        return np.prod(ndtr((2 * y[o] - 1) * f[:, o]), axis=1)
    c = int(np.argmax(y))
    others = np.delete(f, c, axis=1)
    e, weights = np.polynomial.hermite_e.hermegauss(30)
    return np.prod(ndtr(e[:, None, None] + f[:, c, None] - others), axis=2).T @ (weights / weights.sum())


def by_quadrature(model, values, data):
    """Log p(x, y) of each row, latents integrated by a product of Gauss-Hermite rules."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    shares = np.outer(weights, weights).ravel() / weights.sum() ** 2
    result = []
    for x, y in zip(*data, strict=True):
        o = ~np.isnan(x)
        w, r = values["loadings_x"][o], x[o] - values["loc_x"][o]
        noise = float(values["noise_variance_x"])
        cov = np.linalg.inv(np.eye(K) + w.T @ w / noise)
        mean, root = cov @ w.T @ r / noise, np.linalg.cholesky(cov)
        marginal = scipy.stats.multivariate_normal(np.zeros(len(r)), w @ w.T + noise * np.eye(len(r)))
        given = conditional_probabilities(model, mean + grid @ root.T, y, values)
        result.append(marginal.logpdf(r) + np.log(shares @ given))
    return np.array(result)


def test_outputs_that_are_missing_leave_the_density_of_the_others():
    """Binary outputs by SciPy's normal distribution; of classes by quadrature, a row without a label zero."""
    predictor = np.array([[0.3, -1.2, 0.8], [2.0, 0.1, -0.4]])
    binary = np.array([[1.0, 0.0, np.nan], [np.nan, 1.0, 0.0]])
    labels = np.array([[0.0, 1.0, 0.0], [np.nan] * 3])
    with in_precision():
        of_binary = ProbitOutputs(jnp.asarray(predictor), False).log_prob(jnp.asarray(binary))
        of_labels = ProbitOutputs(jnp.asarray(predictor), True).log_prob(jnp.asarray(labels))
    by_hand = np.nansum(scipy.stats.norm.logcdf((2 * binary - 1) * predictor), axis=1)
    np.testing.assert_allclose(of_binary, by_hand, rtol=1e-9)

    def integrand(e):
        return scipy.stats.norm.pdf(e) * ndtr(e - 1.2 - 0.3) * ndtr(e - 1.2 - 0.8)

    probability = scipy.integrate.quad(integrand, -9, 9)[0]
    np.testing.assert_allclose(of_labels, [np.log(probability), 0.0], rtol=1e-6)


@pytest.mark.parametrize(("size", "within"), [(1, 1e-12), (2, 1e-7), (3, 1e-5), (5, 3e-3)])
def test_orthant_probabilities_and_moments(size, within):
    """Against SciPy's randomised integration; the moments of a half line and of independent entries.

    Three entries and more are integrated by 512 Sobol points, of which each coordinate has one in every 512th
    of the unit interval. An independent entry is a monotone function of its coordinate, from 0 to at most
    4.11 deviations above its mean where the lowest point is above 1 / 51 200; so its average is off by at
    most that range over 512, and that of a square about the mean by its variation over 512.
    """
    rng = np.random.default_rng(size)
    root, mean = rng.normal(size=(size, size)), rng.normal(size=size)
    covariance = root @ root.T / size + np.eye(size)
    exact = scipy.stats.multivariate_normal(np.zeros(size), covariance, abseps=1e-9, maxpts=10**5, seed=rng)
    with in_precision():
        got = log_orthant(jnp.asarray(mean), jnp.asarray(covariance))
        apart = orthant_moments(jnp.asarray(mean), jnp.diag(jnp.diag(jnp.asarray(covariance))))
        one_by_one = positive_normal_moments(jnp.asarray(mean), jnp.sqrt(jnp.diag(jnp.asarray(covariance))))
        got, apart, one_by_one = jax.tree.map(np.asarray, (got, apart, one_by_one))
    np.testing.assert_allclose(float(got), np.log(exact.cdf(mean)), atol=max(within, 1e-8))
    np.testing.assert_allclose(apart.log_probability, one_by_one[0].sum(), atol=1e-10)  # weights are equal
    if size < 3:
        within_mean, within_variance = 1e-5, 1e-4
    else:
        highest, centre = mean + 4.11 * np.sqrt(np.diag(covariance)), one_by_one[1]
        within_mean = highest / 512
        within_variance = ((highest - centre) ** 2 + centre**2) / 512 + within_mean**2
    assert (np.abs(apart.mean - one_by_one[1]) < within_mean).all()
    assert (np.abs(np.diag(apart.covariance) - one_by_one[2]) < within_variance).all()


def test_half_normal_far_below_zero():
    """Both branches are the moments by one-dimensional quadrature."""
    means = np.array([-40.0, -18.1, -17.9, -10.0, 0.0, 4.0])
    with in_precision():
        _, mean, variance = positive_normal_moments(jnp.asarray(means), jnp.asarray(1.0))
        mean, variance = np.asarray(mean), np.asarray(variance)
    for m, first, second in zip(means, mean, variance, strict=True):
        total = scipy.integrate.quad(lambda d, m=m: np.exp(m * d - d * d / 2), 0, 20, epsabs=0)[0]
        expected = (
            scipy.integrate.quad(lambda d, m=m: d * np.exp(m * d - d * d / 2), 0, 20, epsabs=0)[0] / total
        )
        spread = scipy.integrate.quad(
            lambda d, m=m, e=expected: (d - e) ** 2 * np.exp(m * d - d * d / 2), 0, 20, epsabs=0
        )[0]
        np.testing.assert_allclose([first, second], [expected, spread / total], rtol=1e-6)


def test_class_probabilities_are_the_integral():
    """Of three classes by quadrature; of two the normal distribution at the difference over root two."""
    predictor = np.array([[0.3, -0.2, 1.1], [2.0, -3.0, 0.5], [0.0, 0.0, 0.0]])
    with in_precision():
        logs = np.asarray(class_log_probabilities(jnp.asarray(predictor)))
        of_two = np.asarray(class_log_probabilities(jnp.asarray(predictor[:, :2])))
    halves = (predictor[:, :2] - predictor[:, 1::-1]) / np.sqrt(2.0)
    np.testing.assert_allclose(of_two, scipy.stats.norm.logcdf(halves), rtol=1e-9)
    for m, row in zip(predictor, np.exp(logs), strict=True):
        for c in range(3):
            exact = scipy.integrate.quad(
                lambda e, m=m, c=c: scipy.stats.norm.pdf(e) * np.prod(ndtr(e + m[c] - np.delete(m, c))), -9, 9
            )[0]
            np.testing.assert_allclose(row[c], exact, rtol=1e-7)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "binaries", "two", "three"])
def test_log_likelihood_is_the_integral_over_the_latents(kind):
    """Also: where the latents are summed out the program is that integral, elsewhere p(x, z) p(y | z)."""
    model, values, data = case(kind)
    expected = by_quadrature(model, values, data)
    with in_precision():
        own = np.asarray(model.log_likelihood(*jax.tree.map(jnp.asarray, (values, *data))))
    np.testing.assert_allclose(own, expected, atol=2e-6)
    prior = scored(model, values | {"latents": np.zeros((len(own), K))}, tuple(d * np.nan for d in data))
    if model.outputs.has_marginal:
        np.testing.assert_allclose(scored(model, values, data) - prior, expected.sum(), atol=1e-6)
        return
    z = np.random.default_rng(3).normal(size=(len(own), K))
    by_hand = -0.5 * np.sum(z**2)
    by_hand += np.nansum(
        scipy.stats.norm(values["loc_x"] + z @ values["loadings_x"].T, 0.4**0.5).logpdf(data[0])
    )
    for one, y in zip(z, data[1], strict=True):
        by_hand += np.log(conditional_probabilities(model, one[None], y, values)[0])
    np.testing.assert_allclose(scored(model, values | {"latents": z}, data) - prior, by_hand, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "binaries", "three"])
def test_probabilities_of_missing_outputs_are_ratios_of_densities(kind):
    model, values, data = case(kind)
    with in_precision():
        inner = jax.tree.map(jnp.asarray, (values, *data))
        shares = np.asarray(model.predicted(*inner)[0])
        alone = np.asarray(model.predicted(inner[0], inner[1])[0])
    known = ~np.isnan(data[1])
    np.testing.assert_array_equal(shares[known], data[1][known])
    base = by_quadrature(model, values, data)
    for row, output in np.argwhere(~known):
        tried = data[1].copy()
        tried[row] = np.eye(model.num_outputs)[output] if model.is_classes else tried[row]
        tried[row, output] = 1.0
        ratio = np.exp(by_quadrature(model, values, (data[0], tried)) - base)[row]
        np.testing.assert_allclose(shares[row, output], ratio, atol=2e-6)
    if model.is_classes:
        np.testing.assert_allclose(alone.sum(axis=1), 1.0)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("kind", ["binary", "binaries", "three"])
def test_prior_draws_of_the_explicit_program_obey_the_probabilities(kind):
    """10 000 outputs drawn with utilities against p(y | z) averaged; false alarm below 1e-6 by 5.5 sigma."""
    model, values, _ = case(kind)
    from numpyro.handlers import substitute

    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        drawn = trace(substitute(seed(model.explicit, 0), data=values)).get_trace(num_observations=10_000)
        z, y = drawn["latents"]["value"], np.asarray(drawn["y"]["value"])
        predictor = values["loc_y"] + z @ values["loadings_y"].T
        logs = (
            class_log_probabilities(predictor) if model.is_classes else jax.scipy.special.log_ndtr(predictor)
        )
        shares = np.exp(np.asarray(logs))
    error = np.sqrt((shares * (1 - shares)).mean(axis=0) / len(y))
    assert (np.abs((y - shares).mean(axis=0)) < 5.5 * error).all()
    assert (np.abs(((y - shares) * np.asarray(z)[:, :1]).mean(axis=0)) < 5.5 * 2 * error).all()


def test_outputs_drawn_without_their_latents_have_the_probability_of_an_orthant():
    """10 000 draws: each pair of answers within 5 standard errors; false alarm below 3e-6."""
    model, values, _ = case("binaries")
    x = np.array([[0.5, -1.0, np.nan]])
    w, noise = values["loadings_x"][:2], 0.4
    cov = np.linalg.inv(np.eye(K) + w.T @ w / noise)
    centre = values["loc_y"] + values["loadings_y"] @ cov @ w.T @ (x[0, :2] - values["loc_x"][:2]) / noise
    spread = values["loadings_y"] @ cov @ values["loadings_y"].T + np.eye(2)
    with in_precision():
        values = jax.tree.map(jnp.asarray, values)
        outputs = model.outputs.given_inputs(values, model.inputs, jnp.asarray(x))
        drawn = np.asarray(outputs.sample(jax.random.key(0), (10_000,)))[:, 0]
    for answers in np.ndindex(2, 2):
        sign = 2 * np.array(answers) - 1
        share = scipy.stats.multivariate_normal(np.zeros(2), spread * np.outer(sign, sign)).cdf(sign * centre)
        error = np.sqrt(share * (1 - share) / len(drawn))
        assert abs((drawn == answers).all(axis=1).mean() - share) < 5 * error, answers


def test_errors_say_what_is_wrong_and_where():
    x = np.random.default_rng(0).normal(size=(6, 3))
    y = np.array([[0, 1, 1, 0, 2, 1.0]]).T
    probit = {"num_latents": 1, "output_likelihood": "probit"}
    with pytest.raises(ValueError, match="row 4, column 0 of y is 2:"):
        SPPCA.from_data(x, y, **probit).check(x, y)
    with pytest.raises(ValueError, match="probit outputs have ep$"):
        check_method(SPPCA(kernel="linear", **probit), "em")
    with pytest.raises(ValueError, match="with a kernel: .* flat prior; use method='ep', or kernel=None"):
        check_method(SPPCA(kernel="linear", **probit), "nuts")
    with pytest.raises(ValueError, match="noise of x is zero: give noise_variance_x"):
        check_method(SPPCA(kernel="rbf", **probit), "ep")
    with pytest.raises(ValueError, match="a column for each of the 3 classes"):
        SPPCA(label_coding="reduced", classes=("a", "b", "c"), **probit)
    for method in ("gibbs", "nuts", "hmc", "svi"):
        with pytest.raises(ValueError, match="needs a proper prior: loading_prior='gaussian'"):
            check_method(SPPCA(**probit), method)
    for method in ("em", "closed_form", "morp", "kernel_cca"):
        with pytest.raises(ValueError, match="probit outputs have ep, gibbs"):
            check_method(SPPCA(**probit), method)
    with pytest.raises(ValueError, match="'ep' is for output_likelihood='probit'"):
        check_method(SPPCA(num_latents=1), "ep")
    codes = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    codes[2] = [1, 0, 1]
    with pytest.raises(ValueError, match="row 2 of y does not have exactly one 1"):
        SPPCA.from_data(x, codes, classes=("a", "b", "c"), **probit).check(x, codes)
    codes[2] = [np.nan, 0, 1]
    with pytest.raises(ValueError, match="row 2 of y is missing in part"):
        SPPCA.from_data(x, codes, classes=("a", "b", "c"), **probit).check(x, codes)
    assert auto_method(SPPCA(**probit)) == "ep" and auto_method(SPPCA()) == "em"


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("kind", ["binary", "two"])
def test_latents_given_decisions_are_drawn_from_their_density(kind):
    """The density integrates to one; means of 40 000 draws are those of quadrature.

    Fourteen means and fourteen second moments at 4.5 standard errors: false alarms 2e-4. Planted: draws given
    x alone.
    """
    model, values, data = case(kind)
    with in_precision():
        values, data = jax.tree.map(jnp.asarray, (values, data))
        latents = answer_of(model, "conditionals", values, *data)["latents"]
        draws = np.asarray(latents.sample(jax.random.key(0), (40_000,)))
        center, scale = np.asarray(latents.loc_given_x), np.sqrt(np.asarray(latents.covariance_given_x).max())
        steps = np.linspace(-8, 8, 81) * scale
        grid = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 1, K) + center
        density = np.exp(jax.lax.map(latents.log_prob, jnp.asarray(grid), batch_size=4096))
        alone = dist.MultivariateNormal(latents.loc_given_x, latents.covariance_given_x)
        wrong = np.asarray(alone.sample(jax.random.key(0), (40_000,)))
    cell = (steps[1] - steps[0]) ** 2
    np.testing.assert_allclose(density.sum(0) * cell, 1.0, rtol=1e-6)

    def worst(found):
        gaps = []
        for power in (1, 2):
            expected = (density[..., None] * grid**power).sum(0) * cell
            error = (found**power).std(0) / np.sqrt(len(found))
            gaps.append(np.abs((found**power).mean(0) - expected) / error)
        return np.max(gaps)

    assert worst(draws) < 4.5
    assert worst(wrong) > 4.5


@pytest.mark.slow
def test_a_sampled_fit_of_decisions_draws_latents():
    model, _, data = case("two")
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, *data, method="nuts", num_warmup=20, num_samples=10, num_chains=2)
    assert np.isfinite(tree["posterior"]["latents"]).all()
    assert tree["posterior"]["latents"].shape == (2, 10, len(data[0]), K)
