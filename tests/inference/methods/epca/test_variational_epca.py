"""VB for EPCA: the bound against the programs, its rise, expectations by quadrature, what is refused."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import zoo
from inference import fit, guide, log_density, model_of, predict, transform
from inference.calibration import elbo_check
from inference.methods.epca import vb_factors
from inference.methods.epca.vb_factors import _relevance, expected_exponential
from inference.numerics import polya_gamma
from inference.precision import in_precision
from zoo.exponential_family import Binomial, Gaussian

ROWS, FEATURES = 12, 4
CASES = {
    "gaussian": {"family": Gaussian(None), "ard": True},
    "gaussian, joint prior": {"family": Gaussian(0.5), "beta": 0.4, "conjugate": (0.1, 0.4)},
    "bernoulli": {"family": "bernoulli", "ard": True},
    "binomial, joint prior": {"family": Binomial(2), "beta": 0.5, "conjugate": (0.7, 1.0)},
    "poisson": {"family": "poisson", "latent_variance": 0.3},
    "poisson, joint prior": {"family": "poisson", "beta": 0.3, "conjugate": (0.4, 0.5)},
}


def data_of(case, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(ROWS, 1)) * rng.normal(size=FEATURES)
    if "gaussian" in case:
        x = theta + 0.5 * rng.normal(size=theta.shape)
    elif "poisson" in case:
        x = rng.poisson(np.exp(0.5 * theta)).astype(float)
    else:
        x = rng.binomial(2 if "binomial" in case else 1, 1 / (1 + np.exp(-theta))).astype(float)
    x[1, 2] = x[4, 0] = np.nan
    return x


@pytest.fixture(scope="session")
def epca_vb_fits():
    """Made once for each case, when it is first asked for."""
    made = {}

    def get(case):
        if case not in made:
            model = zoo.EPCA(num_latents=1, **CASES[case])
            made[case] = fit(
                model, data_of(case), method="vb", max_iterations=150, tolerance=0, num_samples=50
            )
        return made[case]

    return get


class _RelativeTo0(dist.Distribution):
    """PG(count, tilt), with its density relative to PG(count, 0): what is known of it in closed form."""

    support = dist.constraints.real_matrix
    pytree_data_fields = ("count", "tilt")

    def __init__(self, count, tilt):
        self.count, self.tilt = jnp.broadcast_arrays(count, tilt)
        super().__init__((), self.count.shape)

    def log_prob(self, value):
        return jnp.sum(self.count * polya_gamma.log_cosh(self.tilt / 2) - value * self.tilt**2 / 2)

    def sample(self, key, sample_shape=()):
        return polya_gamma.draw_whole(key, self.count, self.tilt)


def augmented(tree, x):
    """Program and guide with a Polya-Gamma variable for every cell; counts are whole."""
    model = zoo.EPCA(num_latents=1, num_features=FEATURES, **CASES["binomial, joint prior"])
    own = guide(tree)
    lam, nu = model.conjugate
    seen = ~jnp.isnan(x)
    count = 2 * (seen + model.beta * nu)  # 3 where seen, 1 where missing
    linear = jnp.nan_to_num(x) + model.beta * lam - count / 2
    base = jnp.sum(jnp.where(seen, model.family.log_base_measure(jnp.where(seen, x, 1.0)), 0.0))

    def program(x):
        inside = numpyro.handlers.block(model, hide_fn=lambda site: site["name"] in ("x", "joint_prior"))
        with numpyro.handlers.trace() as trace:
            inside(jnp.full_like(x, jnp.nan))
        theta = model.low_rank({name: site["value"] for name, site in trace.items()}).whole()
        omega = numpyro.sample("omega", _RelativeTo0(count, 0.0))
        numpyro.factor("cells", base + jnp.sum(linear * theta - omega * theta**2 / 2 - count * jnp.log(2.0)))

    stored = {name: value.to_numpy() for name, value in tree["variational"].data_vars.items()}

    def posterior(x):
        own(x)
        from inference.methods.epca.vb import _from_stored
        from inference.methods.epca.vb_factors import expected_moments

        second = expected_moments(*_from_stored({k: jnp.asarray(v) for k, v in stored.items()}, model)[:4])[1]
        numpyro.sample("omega", _RelativeTo0(count, jnp.sqrt(second)))

    return program, posterior


def bound_of(tree):
    return float(tree["trace"]["objective"][-1])


SLOW = pytest.mark.slow
QUICK = ("bernoulli", "poisson")


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("case", [c if c in QUICK else pytest.param(c, marks=SLOW) for c in CASES])
def test_the_bound_never_falls(case, epca_vb_fits):
    objective = epca_vb_fits(case)["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() > -1e-8 * np.abs(objective).max()
    assert objective[-1] > objective[0] + 0.1


@pytest.mark.parametrize(
    "case",
    [
        "poisson",
        pytest.param("gaussian", marks=SLOW),
        pytest.param("gaussian, joint prior", marks=SLOW),
        pytest.param("poisson, joint prior", marks=SLOW),
    ],
)
def test_the_bound_is_that_of_program_and_guide(case, epca_vb_fits):
    """4 standard errors of 4000 particles: false alarm rate 6e-5."""
    tree, x = epca_vb_fits(case), data_of(case)
    model = model_of(tree)  # with the priors of location and noise that the fit read off the data
    checked = {"key": jax.random.key(1), "num_particles": 4000}
    verdict = elbo_check(model, guide(tree), bound_of(tree), (x,), **checked)
    assert verdict.passed, verdict
    wrong = bound_of(tree) + 8 * verdict.standard_error  # planted: an offset of the bound
    assert not elbo_check(model, guide(tree), wrong, (x,), **checked).passed


@SLOW
def test_the_bound_of_logistic_cells_is_that_of_the_augmented_program(epca_vb_fits):
    tree, x = epca_vb_fits("binomial, joint prior"), data_of("binomial, joint prior")
    program, posterior = augmented(tree, jnp.asarray(x))
    verdict = elbo_check(program, posterior, bound_of(tree), (x,), key=jax.random.key(2), num_particles=4000)
    assert verdict.passed, verdict


@SLOW
def test_the_bound_of_logistic_cells_is_below_the_guides_elbo(epca_vb_fits):
    tree, x = epca_vb_fits("bernoulli"), data_of("bernoulli")
    model = zoo.EPCA(num_latents=1, num_features=FEATURES, **CASES["bernoulli"])
    found = elbo_check(model, guide(tree), bound_of(tree), (x,), key=jax.random.key(3), num_particles=4000)
    gap = found.estimate - bound_of(tree)
    assert -4 * found.standard_error < gap < 0.1 * x.size


def test_expected_exponential_by_quadrature_and_where_it_does_not_exist():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    weight = np.prod(np.stack(np.meshgrid(weights, weights, weights, indexing="ij"), -1), -1).ravel()
    spread = np.array([[0.2, 0.05], [0.05, 0.1]])
    mean, variance, column = 0.4, 0.3, np.array([0.5, -0.2])
    u = mean + np.sqrt(variance) * grid[:, 0]
    v = column + grid[:, 1:] @ np.linalg.cholesky(spread).T
    expected = (weight * np.exp(u * v[:, 0] + v[:, 1])).sum() / weight.sum()
    with in_precision():

        def value(scale):
            arguments = jnp.array([mean]), jnp.array([[scale]]), jnp.asarray(column), jnp.asarray(spread)
            return float(expected_exponential(*arguments))

        np.testing.assert_allclose(value(variance), expected, rtol=1e-9)
        assert np.isfinite(value(4.99)) and value(5.01) == np.inf  # 1 - S A = 0 at 5


@pytest.mark.slow
def test_new_rows_and_draws(epca_vb_fits):
    tree, x = epca_vb_fits("bernoulli"), data_of("bernoulli")
    assert tree["posterior"]["latents"].dims == ("chain", "draw", "observation", "latent")
    assert transform(tree, x[:3]).shape == (3, 1)
    found = float(predict(tree, x)[1, 2])
    zero, one = log_density(tree, np.where(np.isnan(x[[1, 1]]), [[0.0], [1.0]], x[[1, 1]])).to_numpy()
    odds = np.exp(one - zero)  # by another approximation of the same probability; they differ by 0.012 here
    assert abs(found - odds / (1 + odds)) < 0.04 < abs(1 - found - odds / (1 + odds))


def test_a_former_fit_goes_on(epca_vb_fits):
    tree, x = epca_vb_fits("bernoulli"), data_of("bernoulli")
    model = zoo.EPCA(num_latents=1, **CASES["bernoulli"])
    more = fit(model, x, method="vb", init=tree, max_iterations=1, tolerance=0, num_samples=2)
    assert bound_of(tree) - 1e-9 < bound_of(more) < bound_of(tree) + 0.5


def test_families_without_a_bound_say_why():
    x = np.ones((6, 4))
    with pytest.raises(ValueError, match="natural parameters are negative, and a normal q puts mass"):
        fit(zoo.EPCA(family="exponential"), x, method="vb")
    with pytest.raises(ValueError, match="vb has no closed bound for Categorical cells"):
        fit(zoo.EPCA(family="categorical"), np.arange(24).reshape(6, 4) % 2, method="vb")


@pytest.mark.slow
def test_a_factor_without_counts_goes_to_its_normal_in_one_step():
    """Where no cell is Poisson the objective is quadratic: the whole step is best."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(3, 3))
    precision, linear = half @ half.T + np.eye(3), rng.normal(size=3)

    def height(mean, covariance):
        return 0.0 * jnp.sum(mean) + 0.0 * jnp.sum(covariance)

    with in_precision():
        rest = height, jnp.asarray(linear), jnp.asarray(precision)
        mean, covariance = vb_factors._ascend(jnp.asarray(3.0 * rng.normal(size=3)), 2.0 * jnp.eye(3), *rest)
        again = vb_factors._ascend(mean, covariance, *rest)
    np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-9)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-9)
    for one, other in zip(again, (mean, covariance), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_a_step_of_a_factor_of_counts_does_not_lower_its_objective(scale):
    """By NumPy, one Poisson cell, from starts near and far: E log p(x) and prior and entropy."""
    precision, linear = np.diag([1.0, 2.0]), np.array([3.0, 0.0])
    v = np.array([0.8, -0.5])

    def objective(mean, covariance):
        rate = np.exp(v @ mean + v @ covariance @ v / 2)
        square = np.sum((covariance + np.outer(mean, mean)) * precision)
        return linear @ mean - rate - square / 2 + np.linalg.slogdet(covariance)[1] / 2

    with in_precision():
        u = jnp.asarray(v)
        rest = (
            lambda mean, covariance: -jnp.exp(u @ mean + u @ covariance @ u / 2),
            jnp.asarray(linear),
            jnp.asarray(precision),
        )
        now = jnp.asarray(scale * np.array([1.0, -1.0])), scale * jnp.eye(2)
        heights = [objective(*map(np.asarray, now))]
        for _ in range(8):
            now = vb_factors._ascend(*now, *rest)
            heights.append(objective(*map(np.asarray, now)))
    assert (np.diff(heights) >= -1e-9).all() and heights[-1] > heights[0]
    grid = [objective(np.asarray(now[0]) + step, np.asarray(now[1])) for step in 0.05 * unit_vectors()]
    assert max(grid) < heights[-1] + 1e-4  # and it is at the top


def unit_vectors():
    """Unit vectors in the plane."""
    angles = np.linspace(0, 2 * np.pi, 16)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_relevances_count_the_cells_and_the_expected_squares_of_their_loadings():
    """Of three columns, one without a loading of the second latent; over the variance of the latents."""
    rng = np.random.default_rng(0)
    columns, parts = rng.normal(size=(3, 3)), rng.normal(size=(3, 3, 3))
    covariance = parts @ parts.transpose(0, 2, 1)
    seen = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    model = zoo.EPCA(num_latents=2, ard=True, ard_concentration=1.5, ard_rate=0.7)
    state = SimpleNamespace(columns=jnp.asarray(columns), columns_covariance=jnp.asarray(covariance))
    state._replace = lambda relevance: relevance
    found = _relevance(state, model, SimpleNamespace(seen=jnp.asarray(seen), variance=2.0))
    squares = columns**2 + np.diagonal(covariance, axis1=1, axis2=2)
    expected = [[1.5 + 3 / 2, 1.5 + 2 / 2], 0.7 + squares[:, :2].sum(axis=0) / 4]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_terms_of_the_bound_are_divergences():
    """Those of gamma and normal variables against NumPyro's; no parameter is one."""
    rng = np.random.default_rng(2)
    with in_precision():
        gamma, parts = rng.uniform(0.5, 4.0, size=(2, 3)), rng.normal(size=(5, 2, 2))
        terms = vb_factors.gamma_terms(jnp.asarray(gamma), 1.7, 0.6)
        expected = -dist.kl_divergence(dist.Gamma(*gamma), dist.Gamma(1.7, 0.6))
        np.testing.assert_allclose(terms, expected, rtol=1e-10)
        mean, covariance = rng.normal(size=(5, 2)), parts @ parts.transpose(0, 2, 1)
        precision = jnp.array([0.4, 2.5])
        squares = mean**2 + np.diagonal(covariance, axis1=1, axis2=2)
        term = vb_factors.normal_terms(jnp.asarray(squares), covariance, precision, jnp.log(precision))
        prior = dist.MultivariateNormal(jnp.zeros(2), precision_matrix=jnp.diag(precision))
        apart = dist.kl_divergence(dist.MultivariateNormal(jnp.asarray(mean), covariance), prior)
        np.testing.assert_allclose(term, -jnp.sum(apart), rtol=1e-10)


def test_the_bound_has_the_prior_variance_of_loadings_and_latents():
    """Precisions of loadings over s are those of rate b s over 1; latents of variance s by their normals."""
    rng, s = np.random.default_rng(1), 0.3
    half, other = rng.normal(size=(5, 2, 2)), rng.normal(size=(FEATURES, 3, 3))
    rows, spread = half @ half.transpose(0, 2, 1), other @ other.transpose(0, 2, 1)
    latents, columns = rng.normal(size=(5, 2)), rng.normal(size=(FEATURES, 3))
    x = rng.normal(size=(5, FEATURES))
    fields = {"family": Gaussian(0.5), "num_latents": 2, "num_features": FEATURES, "ard": True}
    found, bound = [], jax.jit(vb_factors.bound)
    with in_precision():
        for variance, factor in ((s, 1.0), (1.0, s)):  # the precision over the variance is the same
            model = zoo.EPCA(
                **fields, latent_variance=variance, loading_variance=variance, ard_rate=0.7 * factor
            )
            relevance = np.array([[2.0, 3.5], [1.5 * factor, 0.8 * factor]])
            parts = (latents, rows, columns, spread, np.ones((1, 2)), relevance)
            state = vb_factors.ProjectionPosterior(*map(jnp.asarray, parts))
            found.append(float(bound(state, model, (jnp.asarray(x),))))
    squares = np.sum(latents**2) + np.trace(rows, axis1=1, axis2=2).sum()
    apart = -len(x) * np.log(s) - squares / 2 * (1 / s - 1)
    np.testing.assert_allclose(found[0] - found[1], apart, rtol=1e-10)
