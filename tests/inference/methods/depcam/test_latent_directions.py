"""Latent directions of Gaussian cells of unknown noise are found from the default start, and in any units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import zoo
from inference import fit
from inference.methods.depcam import em
from inference.precision import in_precision
from zoo.answers import start_of
from zoo.exponential_family import Gaussian

SEEDS = range(12)
UNKNOWN = Gaussian(noise_variance=None)


@pytest.fixture(scope="module")
def plane():
    """400 rows near a plane in five dimensions; random directions often have less variance than the noise."""
    r = np.random.default_rng(0)
    z, w = r.normal(size=(400, 2)), r.normal(size=(5, 2)) * 1.5
    return z @ w.T + r.normal(size=(400, 5)) * 0.5 + r.normal(size=5)


def ppca_objective(model, x):
    """The log posterior density at its maximum for one component: eigenvalues, a search in 1 + d numbers.

    For given scales and noise the likelihood is largest with bases along the leading eigenvectors and offsets
    at the means, where their prior's density is largest too.
    """
    size, width = x.shape
    latents = model.num_latents
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]
    rest = values[latents:].sum()

    def minus(free):
        scales, variance = np.abs(free[:-1]), np.exp(free[-1])
        own = scales**2 + variance
        fit_to_rows = np.log(own).sum() + (values[:latents] / own).sum() + rest / variance
        fit_to_rows += (width - latents) * np.log(variance) + width * np.log(2 * np.pi)
        prior = -model.sparsity * scales.sum() + stats.invgamma.logpdf(variance, 1.0, scale=model.noise_rate)
        if model.sparsity > 0:
            prior += latents * np.log(model.sparsity / 2)
        return 0.5 * size * fit_to_rows - prior

    begin = [*np.sqrt(np.maximum(values[:latents] - rest / 3, 0.01)), np.log(rest / (width - latents))]
    best = minimize(
        minus, begin, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-9, "maxiter": 9999}
    )
    offsets = stats.norm.logpdf(x.mean(0), model.offset_mean, np.sqrt(model.offset_variance)).sum()
    return offsets - best.fun


def reached(x, method, seed=0, **fields):
    settings = dict(num_components=1, num_latents=2, repulsion=0.0) | fields
    model = zoo.DEPCAM.from_data(x, family=UNKNOWN, **settings)
    options = {"init": "random"} if seed < 0 else {}
    tree = fit(model, x, method=method, seed=abs(seed), max_iterations=4000, tolerance=1e-10, **options)
    return model, float(np.nanmax(tree["trace"]["objective"])), tree


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sparsity"),
    [
        ("em", 0.0),
        pytest.param("em", 1e-9, marks=pytest.mark.slow),
        pytest.param("em", 0.1, marks=pytest.mark.slow),
        pytest.param("vb", 0.0, marks=pytest.mark.slow),
        pytest.param("vb", 1e-9, marks=pytest.mark.slow),
        pytest.param("vb", 0.1, marks=pytest.mark.slow),
    ],
)
def test_one_component_is_ppca_from_every_default_start(plane, method, sparsity):
    """8 of 12 ended 289 nats below with a scale of zero."""
    for seed in SEEDS:
        model, objective, _ = reached(plane, method, seed, sparsity=sparsity)
        assert abs(objective - ppca_objective(model, plane)) < 1e-4, seed


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [0.0, 0.1])
def test_random_bases_end_at_ppca_too(plane, sparsity):
    for seed in SEEDS:
        model, objective, _ = reached(plane, "em", -1 - seed, sparsity=sparsity)
        assert abs(objective - ppca_objective(model, plane)) < 1e-4, seed


def test_other_units_change_nothing_but_the_units(plane):
    """x -> s x + c: the same responsibilities and latents; densities of cells and parameters lose log s each.

    D offsets and d scales of a component lose log s, the noise variance two; sparsity, means, variances and
    rates are read off the data.
    """
    fits = {}
    for scale, shift in ((1.0, 0.0), (1e3, 1e6), (1e-3, -2.0)):
        model, objective, tree = reached(scale * plane + shift, "em", sparsity=None)
        fits[scale] = objective + (plane.size + 5 + 2 + 2) * np.log(scale)
        found = tree["variational"]
        np.testing.assert_allclose(found["noise_variance"] / scale**2, 0.257, atol=0.01)
        np.testing.assert_allclose(model.offset_mean, scale * plane.mean(0) + shift)
    np.testing.assert_allclose(list(fits.values()), fits[1.0], atol=1e-6)
    known = zoo.DEPCAM.from_data(1e3 * plane, family="gaussian", num_components=1)
    assert (known.sparsity, known.offset_mean, known.offset_variance, known.ard_rate) == (0.1, 0, 100, 1)


def closed_form_mixture(x, num_components, num_latents, noise_rate, shares, num_steps=4000):
    """EM of Tipping and Bishop (1999), appendix C, with one unknown noise variance for all components.

    Returns the log likelihood plus the log prior of the noise, which has a Gamma(1, noise_rate) precision.
    """
    before = -np.inf
    for _ in range(num_steps):
        weights, spectra, means = shares.mean(0), [], []
        for r in shares.T:
            means.append(r @ x / r.sum())
            away = x - means[-1]
            spectra.append(np.linalg.eigh((r[:, None] * away).T @ away / r.sum()))
        counts = shares.sum(0)
        rest = sum(n * values[:-num_latents].sum() for n, (values, _) in zip(counts, spectra, strict=True))
        variance = (rest + 2 * noise_rate) / (len(x) * (x.shape[1] - num_latents) + 4)
        log_rows = np.empty(shares.shape)
        for k, (values, vectors) in enumerate(spectra):
            kept = np.maximum(values[-num_latents:] - variance, 0.0)
            covariance = vectors[:, -num_latents:] * kept @ vectors[:, -num_latents:].T
            covariance += variance * np.eye(x.shape[1])
            log_rows[:, k] = np.log(weights[k]) + stats.multivariate_normal.logpdf(x, means[k], covariance)
        total = np.logaddexp.reduce(log_rows, axis=1)
        shares = np.exp(log_rows - total[:, None])
        after = total.sum() + stats.invgamma.logpdf(variance, 1.0, scale=noise_rate)
        if after - before < 1e-11:
            break
        before = after
    return after


@pytest.mark.slow
@pytest.mark.parametrize("method", ["em", "vb"])
def test_three_components_are_the_mixture_of_ppcas(method):
    """Overlapping clusters, K = 3, default starts: the best of 12 is the best of 12 closed-form runs."""
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1, 2], 100)
    loadings = rng.normal(size=(3, 6, 2)) * [1.5, 1.0]
    centres = 2.0 * rng.normal(size=(3, 6))
    x = np.einsum("nfi,ni->nf", loadings[labels], rng.normal(size=(300, 2))) + centres[labels]
    x += 0.6 * rng.normal(size=x.shape)
    model = zoo.DEPCAM.from_data(
        x, family=UNKNOWN, num_components=3, num_latents=2, repulsion=0.0, sparsity=0.0, offset_variance=1e12
    )
    starts = [rng.dirichlet(np.ones(3), 300) for _ in range(11)] + [np.eye(3)[labels]]
    expected = max(closed_form_mixture(x, 3, 2, float(model.noise_rate), start) for start in starts)
    options = dict(max_iterations=6000, tolerance=1e-11, num_restarts=12)
    tree = fit(model, x, method=method, **options)
    best = np.nanmax(tree["trace"]["objective"])
    constants = stats.norm.logpdf(0.0, 0.0, 1e6) * 18 + np.log(2.0)  # offsets' prior, Dirichlet(1, 1, 1)
    assert abs(best - constants - expected) < 1e-3
    assert np.abs(tree["variational"]["scales"]).min() > 0.3


def column_state(model, x, direction, scale):
    """Values at offsets of the columns' means with one column, and the objective there."""
    values = jax.jit(lambda *given: start_of(model, *given))(jax.random.key(0), x)
    values["bases"] = jnp.asarray(direction)[None, :, None]
    values.pop("carriers")
    values["offsets"] = jnp.mean(x, axis=0)[None]
    values["scales"] = jnp.full((1, 1), scale)
    if model.family.log_partition_form == "logistic":
        del values["latents"]
        values["curves"] = jnp.full((len(x), 1, x.shape[1]), 1e-3)
    return values


@jax.jit
def revived(values, model, x):
    """After a column is raised where it is dead, and the objective before and after."""
    zero = jnp.zeros((1, 1))

    def judge(at):
        return em.evaluate(at, model, x, zero)

    now = judge(values)
    column, weak = em.dead_columns(values, now)
    lift = em.lift_of(values, model, x, now.responsibilities, column, weak)
    new, after, *_ = em.climb(
        lambda size: em.raised(size, values, model, now, lift, x),
        values,
        now,
        jnp.array(1.0),
        judge,
        jnp.any(column),
    )
    return new, now.objective, after.objective


@pytest.mark.slow
def test_a_dead_column_has_no_gradient_and_is_raised_where_the_likelihood_is_convex(plane):
    """Zero is a saddle without sparsity; under a strong sparse prior it is the maximum, and stays."""
    with in_precision():
        x = jnp.asarray(plane)
        for sparsity, lives in ((0.0, True), (1.0, True), (1e4, False)):
            model = zoo.DEPCAM.from_data(
                plane, family=UNKNOWN, num_components=1, num_latents=1, sparsity=sparsity
            )
            values = column_state(model, x, np.eye(5)[0], 0.0)
            sums = em.evaluate(values, model, x, jnp.zeros((1, 1))).sums
            assert np.abs(sums.loadings).max() < 1e-12  # neither scale nor basis has a gradient
            new, before, after = revived(values, model, x)
            assert (after > before + 1.0) == lives and (float(new["scales"][0, 0]) > 0) == lives
            if lives:
                leading = np.linalg.eigh(np.cov(plane.T))[1][:, -1]
                assert abs(leading @ new["bases"][0, :, 0]) > 1 - 1e-9
            assert after >= before


def test_a_column_that_fits_the_rows_is_left_alone(plane):
    """A planted period or threshold that always fires would turn healthy columns too."""
    with in_precision():
        x = jnp.asarray(plane)
        model = zoo.DEPCAM.from_data(plane, family=UNKNOWN, num_components=1, num_latents=1, sparsity=0.0)
        values = column_state(model, x, np.eye(5)[0], 2.0)
        new, before, after = revived(values, model, x)
        assert after == before and float(new["scales"][0, 0]) == 2.0


def test_a_dead_column_of_binary_cells_is_raised():
    """Two opposite patterns of zeros and ones about even odds: the direction is the pattern."""
    with in_precision():
        pattern = np.array([1, 1, -1, -1, 1.0])
        x = jnp.asarray((np.repeat([[1.0], [-1.0]], 20, axis=0) * pattern > 0).astype(float))
        model = zoo.DEPCAM.from_data(x, num_components=1, num_latents=1, sparsity=0.1)
        values = column_state(model, x, np.eye(5)[0], 0.0) | {"offsets": jnp.zeros((1, 5))}
        new, before, after = revived(values, model, x)
        assert after > before + 1.0
        assert abs(pattern @ new["bases"][0, :, 0]) / np.sqrt(5) > 1 - 1e-9
