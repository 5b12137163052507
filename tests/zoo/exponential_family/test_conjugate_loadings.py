"""Loadings of EPCA under the conjugate prior: density, draws, program, and the posterior by quadrature.

Reference: Mohamed, Heller and Ghahramani (2008).
"""

import warnings

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import zoo
from inference import extend, fit, load, log_density, model_of, save
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import start_of
from zoo.exponential_family import Bernoulli, Binomial, Gaussian, Poisson, as_family
from zoo.exponential_family.conjugate_loadings import ConjugateLoadings


def of_beta(theta, a, b):
    """The density of the log odds of a beta variable, by its smaller side, which does not round to one."""
    small = special.expit(-np.abs(theta))
    sides = stats.beta.pdf(small, b, a), stats.beta.pdf(small, a, b)
    return np.where(theta > 0, *sides) * small * special.expit(np.abs(theta))


CASES = {  # a family, lam and nu, and the density of theta by a distribution of the mean and its Jacobian
    "gaussian": (Gaussian(2.5), 0.6, 1.4, lambda t: stats.norm.pdf(t, 0.6 / 1.4, 1.4**-0.5)),
    "bernoulli": (
        Bernoulli(),
        0.6,
        1.7,
        lambda t: of_beta(t, 0.6, 1.1),
    ),
    "binomial": (
        Binomial(3),
        1.2,
        0.9,
        lambda t: of_beta(t, 1.2, 1.5),
    ),
    "poisson": (Poisson(), 1.3, 0.8, lambda t: stats.gamma.pdf(np.exp(t), 1.3, scale=1 / 0.8) * np.exp(t)),
}
GRID = np.linspace(-40, 40, 40_001)
X = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, np.nan], [1.0, 1.0]])


@pytest.mark.parametrize("name", CASES)
def test_the_density_has_mass_one_its_mean_and_variance_and_is_that_of_the_mean(name):
    """E[g'(theta)] = lam / nu; the kernel without its integral has another mass."""
    family, lam, nu, density = CASES[name]
    with in_precision():
        pairs = jnp.array([[lam, nu], [lam + 0.2, nu + 0.3]])
        log_prob = jax.jit(lambda t: ConjugateLoadings(family, pairs, 1).log_prob(t))
        inside = GRID[(GRID > -30) & (GRID < 12)] if name == "poisson" else GRID
        rows = jnp.stack([inside, jnp.zeros_like(inside)], axis=-1)[:, :, None]
        both = np.asarray(log_prob(rows))
        other = ConjugateLoadings(family, pairs[1:], 1).log_prob(jnp.zeros((1, 1)))
        means = np.asarray(family.mean(jnp.asarray(inside)))
        variance = float(family.kernel_variance(jnp.asarray(lam), jnp.asarray(nu)))
    found = np.exp(both - float(other))
    np.testing.assert_allclose(found, density(inside), rtol=1e-9, atol=1e-300)
    assert abs(integrate.simpson(found, x=inside) - 1) < 1e-6
    assert abs(integrate.simpson(found * means, x=inside) - lam / nu) < 1e-5
    first = integrate.simpson(found * inside, x=inside)
    assert abs(integrate.simpson(found * (inside - first) ** 2, x=inside) / variance - 1) < 1e-4
    planted = np.exp(lam * inside - nu * np.asarray(family.log_partition(inside)) - float(other))
    assert abs(integrate.simpson(planted, x=inside) - 1) > 1e-2  # without the normaliser


def test_draws_are_from_the_density():
    """Kolmogorov-Smirnov, 4 columns at 1e-4 each; the neighbouring column's law must be told apart."""
    families = tuple(family for family, *_ in CASES.values())
    family = as_family(families)
    with in_precision():
        pairs = jnp.array([[lam, nu] for _, lam, nu, _ in CASES.values()])
        drawn = np.asarray(ConjugateLoadings(family, pairs, 3).sample(jax.random.key(0), (1500,)))
    assert drawn.shape == (1500, 4, 3)
    laws = []
    for *_, density in CASES.values():
        cumulative = np.cumsum(density(GRID)) * (GRID[1] - GRID[0])
        laws.append(lambda t, cumulative=cumulative: np.interp(t, GRID, cumulative))
    for column, law in enumerate(laws):
        assert stats.kstest(drawn[:, column].ravel(), law).pvalue > 1e-4
        assert stats.kstest(drawn[:, column].ravel(), laws[column - 1]).pvalue < 1e-4


def test_draws_of_other_parameters_from_the_same_key_are_shifted_and_scaled():
    """Normal theta by its mean lam / nu and deviation nu^-1/2, a gamma rate by its unit 1 / nu."""
    with in_precision():
        key, lam, nu = jax.random.key(3), jnp.array([0.6, -2.0]), jnp.array([1.4, 9.0])
        normal = np.asarray(Gaussian(2.5).draw_from_kernel(key, lam, nu, (5, 2)))
        standard = np.asarray(Gaussian(0.1).draw_from_kernel(key, 0.0, 1.0, (5, 2)))
        rates, plain = (np.exp(Poisson().draw_from_kernel(key, 1.3, unit, (5, 2))) for unit in (nu, 1.0))
    shift, scale = [0.6 / 1.4, -2.0 / 9.0], np.array([1.4**-0.5, 1 / 3])
    np.testing.assert_allclose(normal, shift + scale * standard, rtol=1e-12)
    np.testing.assert_allclose(rates, plain / [1.4, 9.0], rtol=1e-12)


def values_of(model, x, seed=0):
    with in_precision():
        return jax.tree.map(np.asarray, start_of(model, jax.random.key(seed), jnp.asarray(x)))


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_the_program_has_the_joint_density_on_paper(name):
    family, lam, nu, density = CASES[name]
    x = X if name == "bernoulli" else 3 * X
    model = zoo.EPCA.from_data(
        x, family=name, num_latents=2, latent_variance=0.7, loc_variance=4.0, conjugate_loadings=(lam, nu)
    )
    values = values_of(model, x)
    theta = values["latents"] @ values["loadings"].T + values["loc"]
    cell = stats.bernoulli(special.expit(theta)) if name == "bernoulli" else stats.poisson(np.exp(theta))
    expected = np.log(density(values["loadings"])).sum() + stats.norm.logpdf(values["loc"], 0, 2.0).sum()
    expected += stats.norm.logpdf(values["latents"], 0, 0.7**0.5).sum()
    expected += np.nansum(np.where(np.isnan(x), 0.0, cell.logpmf(np.nan_to_num(x))))
    np.testing.assert_allclose(log_joint(model, values, x), expected, rtol=1e-10)
    assert model.prior == "proper" and model.exact_symmetries == ()


def test_gaussian_loadings_of_mean_zero_are_the_normal_ones():
    """(0, nu) is Normal(0, 1 / nu): the same density in the balanced scale, but for the change of volume."""
    x = np.random.default_rng(0).normal(size=(6, 3))
    conjugate = zoo.EPCA.from_data(x, family="gaussian", num_latents=2, conjugate_loadings=(0.0, 0.5))
    normal = zoo.EPCA.from_data(x, family="gaussian", num_latents=2, loading_variance=2.0)
    stretch, constants = 2.0**0.25, []
    for seed in (0, 1):
        values = values_of(conjugate, x, seed)
        balanced = values | {"loadings": values["loadings"] / stretch, "latents": values["latents"] * stretch}
        constants.append(log_joint(conjugate, values, x) - log_joint(normal, balanced, x))
    np.testing.assert_allclose(constants[0], constants[1], rtol=1e-9)
    np.testing.assert_allclose(constants[0], (6 - 3) * 2 * np.log(stretch), rtol=1e-8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"conjugate_loadings": (1.0, 0.5)}, r"Bernoulli loadings has no integral at \(1, 0.5\)"),
        ({"conjugate_loadings": [(0.6, 1.7), (1.0, 0.5)]}, r"has no integral at \(1, 0.5\)"),
        (
            {"conjugate_loadings": (1.0, 2.0, 3.0)},
            r"or shape \(2, 2\), both for each column; got shape \(3,\)",
        ),
        ({"conjugate_loadings": (1.0, np.inf)}, "conjugate_loadings must be finite"),
        ({"conjugate_loadings": (1.0, 2.0), "ard": True}, "leave ard out"),
        ({"conjugate_loadings": (1.0, 2.0), "beta": 0.4}, "leave beta out"),
        ({"conjugate_loadings": (1.0, 2.0), "loading_variance": 3.0}, "leave loading_variance out"),
        ({"conjugate_loadings": (1.0, 2.0), "family": "exponential"}, "Exponential has cells without a conj"),
        ({"conjugate_loadings": (1.0, 2.0), "family": Gaussian(None)}, "Gaussian has cells without a conj"),
    ],
)
def test_what_has_no_conjugate_prior_is_said(fields, message):
    with pytest.raises(ValueError, match=message):
        zoo.EPCA(**({"family": "bernoulli", "num_features": 2, "num_latents": 1} | fields))


@pytest.mark.parametrize("method", ["gibbs", "vb"])
def test_methods_for_normal_loadings_refuse_others(method):
    model = zoo.EPCA(family="bernoulli", num_latents=1, conjugate_loadings=(1.0, 2.0))
    with pytest.raises(ValueError, match=f"method {method!r} takes loadings with a normal prior"):
        fit(model, X, method=method)


@pytest.mark.slow
def test_a_point_estimate_is_the_maximum_and_its_file_keeps_the_prior(tmp_path):
    """At the maximum of the default method no site has a slope; the loaded fit answers as the one kept."""
    model = zoo.EPCA.from_data(X, family="bernoulli", num_latents=1, conjugate_loadings=[(0.6, 1.7), (1, 2)])
    tree = fit(model, X, tolerance=1e-12)
    save(tree, tmp_path / "epca.nc")
    back = load(tmp_path / "epca.nc")
    np.testing.assert_array_equal(model_of(back).conjugate_loadings, [(0.6, 1.7), (1, 2)])
    np.testing.assert_array_equal(log_density(back, X), log_density(tree, X))
    with in_precision():
        at = {
            name: jnp.asarray(tree["variational"][name].to_numpy()) for name in ("loadings", "loc", "latents")
        }
        slope = jax.jit(jax.grad(lambda v: log_joint(model, v, X)))(at)
    assert max(np.abs(own).max() for own in slope.values()) < 1e-3


# --- the posterior by quadrature


SCALE, LOC = 0.9, 0.8  # deviations of latents and of means


def exact(lam, nu, x):
    """Posterior means of functions of loadings and means of two columns with one latent, on grids."""
    v, mu = np.linspace(-9, 9, 61), np.linspace(-3.2, 3.2, 33)
    u = np.linspace(-4.5, 4.5, 61)
    own = np.zeros((len(x), 2, len(v), len(mu), len(u)))  # log density of a cell
    theta = v[:, None, None] * u + mu[:, None]
    for row, column in np.ndindex(x.shape):
        if not np.isnan(x[row, column]):
            own[row, column] = special.log_expit(theta if x[row, column] else -theta)
    prior = lam * v - nu * np.logaddexp(0, v)
    at = stats.norm.logpdf(mu, 0, LOC)
    log = (prior[:, None] + at)[:, :, None, None] + (prior[:, None] + at)
    weight = stats.norm.pdf(u, 0, SCALE) * (u[1] - u[0])
    for row in range(len(x)):
        first, second = np.exp(own[row, 0]).reshape(-1, len(u)), np.exp(own[row, 1]).reshape(-1, len(u))
        log = log + np.log((first * weight) @ second.T).reshape(log.shape)
    p = np.exp(log - log.max())
    p /= p.sum()
    one, two = p.sum(axis=(2, 3)), p.sum(axis=(0, 1))
    pair = p.sum(axis=(1, 3))
    return {
        "v1": one.sum(1) @ v,
        "v1^2": one.sum(1) @ v**2,
        "v2": two.sum(1) @ v,
        "v2^2": two.sum(1) @ v**2,
        "v1 v2": v @ pair @ v,
        "mu1": one.sum(0) @ mu,
        "mu2": two.sum(0) @ mu,
    }


def functions_of(posterior):
    v, mu = posterior["loadings"].to_numpy()[..., 0], posterior["loc"].to_numpy()
    return {
        "v1": v[..., 0],
        "v1^2": v[..., 0] ** 2,
        "v2": v[..., 1],
        "v2^2": v[..., 1] ** 2,
        "v1 v2": v[..., 0] * v[..., 1],
        "mu1": mu[..., 0],
        "mu2": mu[..., 1],
    }


def worst(found, expected):
    """The largest deviation of a posterior mean, in Monte Carlo errors."""
    errors = {name: arviz.mcse(draws) for name, draws in found.items()}
    return max(abs(draws.mean() - expected[name]) / errors[name] for name, draws in found.items())


@pytest.mark.slow
def test_nuts_draws_the_posterior_that_quadrature_has():
    """Seven means at |z| < 4: 4e-4 false alarms. Planted: the prior without its Jacobian, lam and nu less."""
    x = np.repeat(X, 3, axis=0)
    model = zoo.EPCA.from_data(
        x, family="bernoulli", num_latents=1, latent_variance=SCALE**2, loc_variance=LOC**2,
        conjugate_loadings=(1.6, 2.9),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R-hat of invariants is not what is asked here
        tree = fit(model, x, method="nuts", num_chains=4, num_warmup=1000, num_samples=4000, seed=1)
    found = functions_of(tree["posterior"])
    assert worst(found, exact(1.6, 2.9, x)) < 4
    assert worst(found, exact(0.6, 0.9, x)) > 8
    prior = extend(tree, "prior", num_samples=4000, seed=2)["prior"]["loadings"].to_numpy()
    law = stats.beta(1.6, 1.3).cdf
    assert stats.kstest(special.expit(prior[..., 0, 0]).ravel(), law).pvalue > 1e-4
