"""DEPCAM's program: its joint density by hand, labels and latents summed out, priors, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import zoo
from inference.precision import in_precision
from tests.support.fit_requests import check_method
from tests.support.log_joint import log_joint
from zoo.answers import answer_of, start_of
from zoo.exponential_family import Categorical, Gaussian
from zoo.exponential_family.local_pca import ComponentRows, components_of, modes, orthonormal

ROWS, FEATURES, COMPONENTS, LATENTS = 6, 4, 3, 2
SIZES = dict(num_components=COMPONENTS, num_latents=LATENTS)


def cells(family, seed=0):
    rng = np.random.default_rng(seed)
    drawn = {
        "gaussian": rng.normal(size=(ROWS, FEATURES)),
        "bernoulli": rng.integers(0, 2, (ROWS, FEATURES)).astype(float),
        "poisson": rng.poisson(2.0, (ROWS, FEATURES)).astype(float),
        "exponential": rng.exponential(size=(ROWS, FEATURES)),
    }[family]
    drawn[2, 1] = drawn[5, 3] = np.nan
    return drawn


def start(model, x, seed=0):
    rng = np.random.default_rng(seed)
    with in_precision():
        values = jax.tree.map(np.asarray, start_of(model, jax.random.key(seed), jnp.asarray(x)))
    values["scales"] = values["scales"] * rng.normal(size=values["scales"].shape)
    if "weights" in values:
        values["weights"] = rng.dirichlet(np.ones(COMPONENTS))
    return values


def prior_by_hand(model, values):
    bases = values["carriers"]
    total = stats.norm.logpdf(bases).sum() + stats.norm.logpdf(values["offsets"], 0, 10.0).sum()
    total += gammaln(COMPONENTS)  # a flat Dirichlet
    rate, rho = float(model.sparsity), float(model.similarity_scale)
    total += (np.log(rate / 2) - rate * np.abs(values["scales"])).sum()
    sums = bases.sum(-1)
    apart = ((sums[:, None] - sums[None]) ** 2).sum(-1)
    if model.kernel == "subspace":
        planes = bases @ np.swapaxes(bases, -1, -2)
        apart = ((planes[:, None] - planes[None]) ** 2).sum((-1, -2))
    return total + float(model.repulsion) * np.linalg.slogdet(np.exp(-rho / 2 * apart))[1]


def cells_by_hand(family, theta, x):
    with np.errstate(invalid="ignore"):
        density = {
            "bernoulli": lambda: x * theta - np.logaddexp(0, theta),
            "poisson": lambda: x * theta - np.exp(theta) - gammaln(x + 1),
            "exponential": lambda: np.log(-theta) + theta * x,
            "gaussian": lambda: stats.norm.logpdf(x, theta),
        }[family]()
    return np.where(np.isnan(x), 0.0, density).sum(-1)


@pytest.mark.parametrize(
    ("family", "latents", "kernel"),
    [
        ("bernoulli", "component", "angular"),
        ("poisson", "shared", "subspace"),
        ("exponential", "shared", "angular"),
    ],
)
def test_joint_density_is_the_one_on_paper(family, latents, kernel):
    """Labels summed out: hand-written prior, latents and rows; the row densities are the companions'."""
    x = cells(family)
    model = zoo.DEPCAM.from_data(
        x, family=family, latents=latents, kernel=kernel, repulsion=2.0, sparsity=0.3, **SIZES
    )
    values = start(model, x)
    loadings = values["carriers"] * values["scales"][:, None, :]
    y = values["latents"]
    expected = prior_by_hand(model, values) + stats.norm.logpdf(y).sum()
    rows = np.empty((ROWS, COMPONENTS))
    for k in range(COMPONENTS):
        own = y[:, k] if latents == "component" else y
        rows[:, k] = cells_by_hand(family, own @ loadings[k].T + values["offsets"][k], x)
    rows = logsumexp(np.log(values["weights"]) + rows, axis=1)
    np.testing.assert_allclose(log_joint(model, values, x), expected + rows.sum(), rtol=1e-12)
    with in_precision():
        np.testing.assert_allclose(
            model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(x)), rows, rtol=1e-12
        )


def test_gaussian_latents_are_integrated_out_exactly():
    """Against dense normals of the observed cells, and so is the posterior of the latents."""
    x = cells("gaussian")
    model = zoo.DEPCAM.from_data(x, family=Gaussian(noise_variance=0.4), repulsion=2.0, sparsity=0.3, **SIZES)
    values = start(model, x)
    assert "latents" not in values
    loadings, rows = values["carriers"] * values["scales"][:, None, :], np.empty((ROWS, COMPONENTS))
    means = np.empty((ROWS, COMPONENTS, LATENTS))
    for n in range(ROWS):
        seen = ~np.isnan(x[n])
        for k in range(COMPONENTS):
            w, away = loadings[k][seen], x[n, seen] - values["offsets"][k, seen]
            covariance = w @ w.T + 0.4 * np.eye(seen.sum())
            rows[n, k] = stats.multivariate_normal.logpdf(away, cov=covariance)
            means[n, k] = w.T @ np.linalg.solve(covariance, away)
    expected = logsumexp(np.log(values["weights"]) + rows, axis=1).sum()
    np.testing.assert_allclose(
        log_joint(model, values, x), prior_by_hand(model, values) + expected, rtol=1e-12
    )
    with in_precision():
        found = modes(components_of(model, jax.tree.map(jnp.asarray, values)), jnp.asarray(x))
    np.testing.assert_allclose(found.latents, means, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_explicit_program_summed_over_labels_is_the_other(family):
    """All 2^3 labellings of three rows; where latents are integrated, by the normal they are."""
    x = cells(family)[:3]
    model = zoo.DEPCAM.from_data(x, family=family, num_components=2, num_latents=1)
    values = start(model.explicit, x) | {"weights": np.array([0.3, 0.7])}
    terms = []
    for labels in np.ndindex(2, 2, 2):
        terms.append(log_joint(model.explicit, values | {"assignments": np.array(labels)}, x))
    if family == "bernoulli":
        np.testing.assert_allclose(logsumexp(terms), log_joint(model, values, x), rtol=1e-12)
    else:  # p(x, y) = p(x) p(y | x), the latents of components not taken have their prior
        own = {name: value for name, value in values.items() if name != "latents"}
        with in_precision():
            local = components_of(model, jax.tree.map(jnp.asarray, own))
            latents, covariance, log_integral = map(np.asarray, modes(local, jnp.asarray(x)))
        y, rows = values["latents"], np.empty((3, 2))
        for k in range(2):
            deviation = np.sqrt(covariance[:, k, 0, 0])
            rows[:, k] = log_integral[:, k] + np.log(values["weights"][k])
            rows[:, k] += stats.norm.logpdf(y[:, k, 0], latents[:, k, 0], deviation)
            rows[:, k] += stats.norm.logpdf(y[:, 1 - k, 0])
        given = log_joint(model, own, x) - logsumexp(log_integral + np.log(values["weights"]), axis=1).sum()
        np.testing.assert_allclose(logsumexp(terms), given + logsumexp(rows, axis=1).sum(), rtol=1e-12)


def test_bases_are_orthonormal_whatever_the_carrier():
    with in_precision():
        carriers = jax.random.normal(jax.random.key(0), (3, 5, 2))
        bases = orthonormal(carriers)
        np.testing.assert_allclose(
            jnp.swapaxes(bases, -1, -2) @ bases, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-14
        )
        triangles = jnp.swapaxes(bases, -1, -2) @ carriers
        assert (jnp.diagonal(triangles, axis1=-2, axis2=-1) > 0).all()
        np.testing.assert_allclose(orthonormal(bases), bases, atol=1e-14)


def test_loading_norms_are_the_traces_of_the_products_largest_first():
    model = zoo.DEPCAM(family="bernoulli", num_components=3, num_latents=2, num_features=4, repulsion=0)
    with in_precision():
        sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(num_observations=5)
        values = {name: np.asarray(site["value"]) for name, site in sites.items()}
    w = values["bases"] * values["scales"][:, None]
    traces = np.einsum("kfi,kfi->k", w, w)
    np.testing.assert_allclose(values["loading_norms"], np.sort(traces)[::-1], rtol=1e-10)


def test_missing_numbers_are_those_of_a_mixture_of_conditional_normals():
    """By NumPy and SciPy: shares given the cells that are seen, then the moments of a mixture."""
    rng = np.random.default_rng(8)
    model = zoo.DEPCAM(family=Gaussian(0.5), num_components=2, num_latents=1, num_features=3)
    values = {
        "carriers": rng.normal(size=(2, 3, 1)),
        "scales": np.array([[1.5], [0.8]]),
        "offsets": rng.normal(size=(2, 3)),
        "weights": np.array([0.3, 0.7]),
    }
    with in_precision():
        values["bases"] = np.asarray(orthonormal(jnp.asarray(values["carriers"])))
    row, seen = np.array([0.4, np.nan, -0.3]), np.array([0, 2])
    shares, means, variances = [], [], []
    for k in range(2):
        w = values["bases"][k] * values["scales"][k]
        covariance, loc = w @ w.T + 0.5 * np.eye(3), values["offsets"][k]
        part = covariance[np.ix_(seen, seen)]
        density = stats.multivariate_normal.pdf(row[seen], loc[seen], part)
        shares.append(values["weights"][k] * density)
        gain = np.linalg.solve(part, covariance[seen, 1])
        means.append(loc[1] + gain @ (row[seen] - loc[seen]))
        variances.append(covariance[1, 1] - gain @ covariance[seen, 1])
    r = np.array(shares) / np.sum(shares)
    mean = r @ means
    variance = r @ (np.array(variances) + (np.array(means) - mean) ** 2)
    with in_precision():
        found = model.predicted(jax.tree.map(jnp.asarray, values), jnp.asarray(row[None]), what="cells")
        found = [np.asarray(part)[0] for part in found]
    np.testing.assert_allclose(found[0], [0.4, mean, -0.3], rtol=1e-9)
    np.testing.assert_allclose(found[1], [0.0, variance, 0.0], rtol=1e-9)


def test_counts_are_in_the_tail_where_their_component_s_latents_are_wide():
    """Means of counts: a wide loading makes the mean of one column rest on the tail, narrow ones do not."""
    model = zoo.DEPCAM(family="poisson", num_components=2, num_latents=1, num_features=2)
    carriers = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    values = {"carriers": carriers, "bases": carriers, "scales": np.array([[4.0], [0.1]])}
    values |= {"offsets": np.zeros((2, 2)), "weights": np.array([0.5, 0.5])}
    nothing = np.full((1, 2), np.nan)
    with in_precision():
        given, x = jax.tree.map(jnp.asarray, values), jnp.asarray(nothing)
        mean, variance = model.predicted(given, x, what="cells")
        far = np.asarray(answer_of(model, "rests_on_tail", given, mean, variance, x))
    np.testing.assert_array_equal(far, [[True, False]])


def test_labels_and_latents_that_are_none_are_summed_out_of_the_rows():
    """Of Gaussian cells all four: the labels by hand, the latents by the conditional of the other."""
    x, rng = cells("gaussian"), np.random.default_rng(1)
    model = zoo.DEPCAM.from_data(x, family=Gaussian(noise_variance=0.4), **SIZES)
    values, log_weights = start(model, x), np.log([0.2, 0.3, 0.5])
    labels, y = rng.integers(0, COMPONENTS, ROWS), rng.normal(size=(ROWS, COMPONENTS, LATENTS))
    with in_precision():
        local = components_of(model, jax.tree.map(jnp.asarray, values))
        given = jnp.asarray(labels), jnp.asarray(y)
        both, of_label, of_latents, nothing = (
            np.asarray(ComponentRows(local, jnp.asarray(log_weights), *own).log_prob(jnp.asarray(x)))
            for own in (given, (given[0], None), (None, given[1]), (None, None))
        )
        mode = modes(local, jnp.asarray(x))
    w = values["carriers"] * values["scales"][:, None, :]
    theta = np.einsum("nkd,kfd->nkf", y, w) + values["offsets"]
    by_hand = np.nansum(stats.norm.logpdf(x[:, None], theta, np.sqrt(0.4)), axis=-1)
    rows = np.arange(ROWS)
    np.testing.assert_allclose(both, by_hand[rows, labels], rtol=1e-12)
    np.testing.assert_allclose(of_latents, logsumexp(log_weights + by_hand, axis=1), rtol=1e-12)
    for n, k in enumerate(labels):
        posterior = stats.multivariate_normal.logpdf(y[n, k], mode.latents[n, k], mode.covariance[n, k])
        prior = stats.norm.logpdf(y[n, k]).sum()
        assert of_label[n] == pytest.approx(both[n] + prior - posterior, rel=1e-10)
    wanted = logsumexp(log_weights + np.asarray(mode.log_integral), axis=1)
    np.testing.assert_allclose(nothing, wanted, rtol=1e-12)


def test_rows_are_drawn_with_what_is_summed_out_drawn_too():
    """Means of 4000 draws, five standard errors: a false alarm in 1 of 100,000 runs."""
    model = zoo.DEPCAM(family=Gaussian(noise_variance=0.4), num_features=FEATURES, **SIZES)
    rng = np.random.default_rng(1)
    values = {"carriers": rng.normal(size=(COMPONENTS, FEATURES, LATENTS)), "scales": np.ones((3, 2))}
    values["offsets"] = 3.0 * rng.normal(size=(COMPONENTS, FEATURES))
    with in_precision():
        local = components_of(model, jax.tree.map(jnp.asarray, values))
        rows = ComponentRows(local, jnp.log(jnp.asarray([0.2, 0.3, 0.5])))
        drawn = np.asarray(rows.expand((4000,)).sample(jax.random.key(0)))
        labels = jnp.zeros(4000, int)
        of_label = np.asarray(ComponentRows(local, rows.log_weights, labels).sample(jax.random.key(1)))
    for own, mean in ((drawn, [0.2, 0.3, 0.5] @ values["offsets"]), (of_label, values["offsets"][0])):
        assert (np.abs(own.mean(0) - mean) < 5 * own.std(0) / np.sqrt(4000)).all()


@pytest.mark.slow
def test_zero_repulsion_draws_from_the_prior_and_dirichlet_process_weights():
    model = zoo.DEPCAM(
        num_features=5,
        repulsion=0.0,
        weight_prior="stick_breaking",
        concentration=2.0,
        scale_prior="ard",
        **SIZES,
    )
    assert model.prior == "proper"
    with in_precision():
        sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(num_observations=8)
    assert sites["latents"]["value"].shape == (8, COMPONENTS, LATENTS)
    assert sites["stick_decays"]["value"].shape == (2,) and "scales_precision" in sites
    assert np.isin(sites["x"]["value"], (0, 1)).all()


def test_the_paper_s_single_weight():
    model = zoo.DEPCAM.with_single_weight(10.0, 0.2, num_components=2)
    assert (model.repulsion, model.sparsity) == (10.0, 2.0) and model.prior == "unnormalised"
    assert zoo.DEPCAM.with_single_weight(0.0, 0.2).prior == "improper"
    assert zoo.DEPCAM(num_components=1, repulsion=3.0).prior == "proper"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(num_components=0), ValueError, "num_components must be at least 1; got 0"),
        (dict(num_latents=1.5), TypeError, "num_latents must be a whole number; got 1.5"),
        (dict(num_latents=6, num_features=5), ValueError, "at most the number of columns, 5.*got 6"),
        (dict(repulsion=-1.0), ValueError, "repulsion must be a number of at least 0; got -1.0"),
        (dict(sparsity=-0.1), ValueError, "sparsity must be a number of at least 0; got -0.1"),
        (dict(similarity_scale=0.0), ValueError, "similarity_scale must be a positive number; got 0.0"),
        (dict(kernel="rbf"), ValueError, "kernel must be one of angular, subspace; got 'rbf'"),
        (dict(latents="own"), ValueError, "latents must be one of component, shared; got 'own'"),
        (dict(scale_prior="horseshoe"), ValueError, "scale_prior must be one of laplace, ard"),
        (dict(weight_prior="py"), ValueError, "weight_prior must be one of dirichlet, stick_breaking"),
        (dict(offset=1), TypeError, "offset must be True or False; got 1"),
        (dict(family=Categorical(3)), ValueError, "one natural parameter a cell.*got Categorical"),
        (dict(family="exponential", offset=False), ValueError, "Exponential are negative.*offset=True"),
        (dict(concentration=0.0), ValueError, "concentration must be a positive number; got 0.0"),
    ],
)
def test_bad_fields_are_refused(fields, error, message):
    with pytest.raises(error, match=message):
        zoo.DEPCAM(**fields)


def test_bad_data_are_refused():
    x = cells("bernoulli")
    model = zoo.DEPCAM(**SIZES)
    with pytest.raises(ValueError, match="0 or 1"):
        model.check(np.where(np.isnan(x), 0.5, x))
    empty = x.copy()
    empty[4] = np.nan
    with pytest.raises(ValueError, match="row 4 of x is missing in all columns"):
        model.check(empty)
    with pytest.raises(ValueError, match="all rows are the same"):
        model.check(np.ones((5, 4)))
    with pytest.raises(ValueError, match="at most the number of rows, 2; got 3"):
        model.check(x[:2])
    with pytest.raises(ValueError, match="at most the number of columns, 1"):
        model.check(x[:, :1])
    with pytest.raises(ValueError, match="must have 7 columns"):
        zoo.DEPCAM(num_features=7, **SIZES).check_new(x)
    with pytest.raises(ValueError, match="prior of DEPCAM is unnormalised.*choose repulsion=0.*extend"):
        zoo.DEPCAM(num_features=4)(num_observations=3)
    with pytest.raises(ValueError, match="prior of DEPCAM is improper.*sparsity > 0"):
        zoo.DEPCAM(num_features=4, sparsity=0.0, repulsion=0.0)(num_observations=3)
    with pytest.raises(ValueError, match="num_features is not set"):
        zoo.DEPCAM(repulsion=0.0)(num_observations=3)
    for method in ("nuts", "hmc", "svi"):
        with pytest.raises(ValueError, match="at sparsity=0 it is improper"):
            check_method(zoo.DEPCAM(sparsity=0.0), method)
    with pytest.warns(UserWarning, match="sparsity=0 has no optimum"):
        check_method(zoo.DEPCAM(sparsity=0.0), "em")
    check_method(zoo.DEPCAM(sparsity=0.0, family="gaussian"), "nuts")


def test_the_density_by_cluster_with_the_weights_is_that_of_the_row():
    x = np.random.default_rng(0).normal(size=(6, 3))
    model = zoo.DEPCAM.from_data(x, family=Gaussian(noise_variance=None), num_components=2, num_latents=1)
    with in_precision():
        values = start_of(model, jax.random.key(0), jnp.asarray(x))
        values["weights"] = jnp.array([0.3, 0.7])
        by_cluster = np.asarray(answer_of(model, "log_density_by_cluster", values, jnp.asarray(x)))
        wanted = np.asarray(model.log_likelihood(values, jnp.asarray(x)))
    weighted = by_cluster + np.log([0.3, 0.7])
    np.testing.assert_allclose(np.logaddexp.reduce(weighted, axis=1), wanted, rtol=1e-10)
