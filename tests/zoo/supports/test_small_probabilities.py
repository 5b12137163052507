"""Probabilities in real coordinates: the density is that of the distribution however small the entries."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from scipy import stats
from scipy.special import digamma

from inference import fit
from inference.precision import in_precision
from zoo import LDA, PCP, Mixture
from zoo.conjugate import BernoulliBeta, MultinomialDirichlet
from zoo.supports.small_probabilities import Beta, Dirichlet

CONCENTRATIONS = [(0.01, 0.01), (1e-3, 0.02), (1.0, 3.0)]
FAMILIES = {
    "beta": (Beta, lambda a, b: (a, b)),
    "dirichlet": (Dirichlet, lambda a, b: (jnp.stack([a, b]),)),
    "NumPyro's beta": (dist.Beta, lambda a, b: (a, b)),
    "NumPyro's Dirichlet": (dist.Dirichlet, lambda a, b: (jnp.stack([a, b]),)),
}


def mass_and_mean(family, concentrations, dtype):
    """Integral of the density over the real coordinate, by sums, and how much of it p > 1/2 has."""
    kind, parameters = FAMILIES[family]
    with in_precision(dtype):
        distribution = kind(*parameters(*(jnp.asarray(value, dtype) for value in concentrations)))
        to_set = biject_to(distribution.support)
        reach = 150.0 if family in ("beta", "dirichlet") else 30 / min(concentrations)
        grid, step = np.linspace(-reach, reach, 20_001, retstep=True)
        u = jnp.asarray(grid, dtype).reshape(-1, *([1] if "irichlet" in family else []))

        @jax.jit
        def log_density(u):
            p = to_set(u)
            return distribution.log_prob(p) + to_set.log_abs_det_jacobian(u, p)

        density = log_density(u)
    assert np.all(np.isfinite(density))
    weight = np.exp(np.asarray(density, float)) * step
    return weight.sum(), weight[grid > 0].sum() + 0.5 * weight[grid == 0].sum()


QUICK = [("beta", (0.01, 0.01), "float64"), ("dirichlet", (1e-3, 0.02), "float32")]
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in itertools.product(("beta", "dirichlet"), CONCENTRATIONS, ("float64", "float32"))
]


@pytest.mark.parametrize(("family", "concentrations", "dtype"), CASES)
def test_the_density_in_real_coordinates_integrates_to_one(family, concentrations, dtype):
    mass, above = mass_and_mean(family, concentrations, dtype)
    a, b = concentrations
    assert mass == pytest.approx(1.0, abs=1e-4 if dtype == "float32" else 1e-9)
    assert above == pytest.approx(stats.beta(a, b).sf(0.5), abs=1e-3)


@pytest.mark.parametrize(
    "family", ["NumPyro's beta", pytest.param("NumPyro's Dirichlet", marks=pytest.mark.slow)]
)
def test_that_of_numpyro_does_not(family):
    """Planted: clipped sticks, whose mass in coordinates is not one."""
    assert abs(mass_and_mean(family, (0.01, 0.01), "float64")[0] - 1) > 0.05


def test_the_bijection_has_its_inverse_and_its_jacobian():
    with in_precision():
        to_simplex = biject_to(Dirichlet(jnp.array([0.3, 0.5, 2.0, 1.0])).support)
        u = 3 * jax.random.normal(jax.random.key(0), (20, 3))
        p = to_simplex(u)
        np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-14)
        np.testing.assert_allclose(to_simplex._inverse(p), u, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(to_simplex(jnp.zeros(3)), 0.25)
        jacobian = jax.jit(jax.vmap(jax.jacobian(lambda u: to_simplex(u)[:-1])))(u)
        found = to_simplex.log_abs_det_jacobian(u, p)
        np.testing.assert_allclose(found, np.linalg.slogdet(jacobian)[1], rtol=1e-11)
        assert not np.allclose(found, np.linalg.slogdet(jacobian)[1] + 1e-6, rtol=1e-11)  # planted
        alone = biject_to(Dirichlet(jnp.ones(1)).support)  # a single category leaves nothing to move
        np.testing.assert_array_equal(alone(alone._inverse(jnp.ones(1))), 1.0)
        to_unit = biject_to(Beta(jnp.asarray(0.3), jnp.asarray(0.5)).support)
        v = jnp.linspace(-4.0, 4.0, 9)
        np.testing.assert_allclose(to_unit._inverse(to_unit(v)), v, rtol=1e-9, atol=1e-12)
        slope = jnp.log(jax.jit(jax.vmap(jax.grad(to_unit)))(v))
        np.testing.assert_allclose(to_unit.log_abs_det_jacobian(v, to_unit(v)), slope, rtol=1e-8)


def test_every_program_with_probabilities_draws_them_so():
    """All sites on a simplex or the unit interval, except pLSI's, whose flat prior has no small entries."""
    counts = np.random.default_rng(0).poisson(1.0, size=(6, 4)) + 1
    models = [
        LDA(num_topics=2, num_words=4, num_tokens=9),
        PCP(num_topics=2, num_clusters=2, num_words=4, num_tokens=9),
        Mixture(MultinomialDirichlet.from_data(counts), 2),
        Mixture(BernoulliBeta(np.ones(2), np.ones(2)), 2),
    ]
    for model in models:
        kinds = kinds_of(model, np.minimum(counts, 1.0) if "Bernoulli" in str(model) else counts)
        probabilities = {name for name, kind in kinds.items() if issubclass(kind, dist.Dirichlet | dist.Beta)}
        assert len(probabilities) > 1
        assert all(issubclass(kinds[name], Dirichlet | Beta) for name in probabilities)


def kinds_of(model, data):
    """Kind of the distribution of each latent site, without its batch shape."""
    found = {}

    def run():
        sites = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(data)
        latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        found.update({name: type(base_of(site["fn"])) for name, site in latent.items()})

    jax.eval_shape(run)
    return found


def base_of(distribution):
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_nuts_leaves_the_concentration_at_its_prior_where_rows_say_nothing(rate, dtype):
    """E[log alpha] within 4 standard errors of 16 independent chains (t, 15 degrees: 1.2e-3 false alarms)."""
    half = BernoulliBeta(concentration1=np.array([1e4]), concentration0=np.array([1e4]))  # within .004 of 1/2
    model = Mixture(half, 4, dist.Gamma(rate, rate), "dirichlet")
    x = np.random.default_rng(0).integers(0, 2, size=(8, 1)).astype(float)
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(model, x, method="nuts", num_chains=16, num_warmup=500, num_samples=500, dtype=dtype)
    logs = np.log(tree["posterior"]["concentration"].to_numpy().astype(float))
    means = logs.mean(1)
    z = (means.mean() - (digamma(rate) - np.log(rate))) / (means.std(ddof=1) / 4)
    assert abs(z) < 4
    assert float(tree["sample_stats"]["n_steps"].mean()) < 100  # in the coordinates of logits: 1000
