"""Every component family: likelihood, posterior, evidence, expectations and predictive belong together."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from tests.support.component_families import CELLWISE, COLUMNS, FAMILIES, matrix, priors, rows
from zoo import SparseCounts, conjugate
from zoo.conjugate.component_prior import BRACKETS, ConjugatePredictive, within_scale
from zoo.conjugate.mixture_rows import MixtureRows
from zoo.conjugate.product import _ProductRow

pytestmark = pytest.mark.usefixtures("in_double")


def draw(components, num_components, key):
    """Values of all sites, drawn from a prior or a posterior."""
    values = {}
    while len(drawn := components.conditionals(values)) > len(values):
        site = list(drawn)[len(values)]
        shared = drawn[site].batch_shape == () and not (site == "shared_precision")
        shape = (num_components,) if shared else ()
        values[site] = drawn[site].sample(jax.random.fold_in(key, len(values)), shape)
    return values


def log_prior(components, values):
    return sum(jnp.sum(d.log_prob(values[site])) for site, d in components.conditionals(values).items())


@pytest.mark.cases_by_default(4)
@pytest.mark.parametrize("name", FAMILIES)
def test_bayes_theorem_ties_likelihood_posterior_and_evidence(name):
    """log p(x | theta) + log p(theta) - log p(theta | x) is the evidence at every theta (Chib's identity)."""
    components, x = priors()[name], rows(name, 12)
    features = components.features(x)
    labels = jnp.arange(12) % 3
    statistics = jax.ops.segment_sum(features, labels, num_segments=3)
    posterior = components.posterior(statistics)
    evidence = jnp.sum(components.log_evidence(statistics))
    for seed in range(2):
        values = draw(posterior, 3, jax.random.key(seed))
        likelihood = jnp.sum(components.likelihood_of(values, labels).log_prob(x))
        identity = likelihood + log_prior(components, values) - log_prior(posterior, values)
        np.testing.assert_allclose(identity, evidence, rtol=1e-9)
        by_features = features @ components.coefficients(values).T
        np.testing.assert_allclose(by_features[jnp.arange(12), labels].sum(), likelihood, rtol=1e-9)
        every = components.likelihood(values).log_prob(x[:, None])
        np.testing.assert_allclose(by_features, every, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "SharedGaussianWishart"])
def test_chain_of_predictives_is_the_evidence(name):
    components, x = priors()[name], rows(name, 8)
    features = components.features(x)
    before = jnp.cumsum(features, axis=0) - features
    posteriors = components.posterior(before)
    chain = jnp.sum(posteriors.predictive().log_prob(x))
    np.testing.assert_allclose(chain, components.log_evidence(features.sum(axis=0)), rtol=1e-9)
    generic = ConjugatePredictive(posteriors).log_prob(x)
    np.testing.assert_allclose(generic, posteriors.predictive().log_prob(x), rtol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_expected_coefficients_are_means_over_draws(name):
    """4000 draws of the posterior, within 5 standard errors (false alarms below 1e-4 in all families)."""
    components = priors()[name]
    x = rows(name, 8, seed=3)
    statistics = components.features(x).reshape(2, 4, -1).sum(axis=1)
    posterior = components.posterior(statistics)
    keys = jax.random.split(jax.random.key(1), 4000)
    draws = jax.jit(jax.vmap(lambda key: components.coefficients(draw(posterior, 2, key))))(keys)
    expected = components.expected_coefficients(posterior)
    error = draws.std(axis=0) / np.sqrt(len(draws)) + 1e-12
    assert np.abs((draws.mean(axis=0) - expected) / error).max() < 5
    planted = components.expected_coefficients(components.posterior(0.0 * statistics))  # the prior
    assert np.abs((draws.mean(axis=0) - planted) / error).max() > 5


@pytest.mark.cases_by_default(2)
@pytest.mark.parametrize("name", CELLWISE)
def test_missing_cells_are_integrated_out(name):
    components, x = priors()[name], rows(name, 9)
    without = x.copy()
    without[:, 0] = np.nan
    statistics = components.features(without).sum(axis=0)
    rest = components.replaced(
        **{
            field: getattr(components, field)[1:]
            for field, dims in components.field_dims.items()
            if dims and getattr(components, field) is not None
        }
    )
    np.testing.assert_allclose(
        components.log_evidence(statistics),
        rest.log_evidence(rest.features(x[:, 1:]).sum(axis=0)),
        rtol=1e-10,
    )
    values = draw(components.posterior(statistics[None]), 1, jax.random.key(0))
    full = components.features(without) @ components.coefficients(values).T
    np.testing.assert_allclose(full, components.likelihood(values).log_prob(without[:, None]), rtol=1e-10)
    gradient = jax.jit(jax.grad(lambda v: jnp.sum(components.likelihood(v).log_prob(without[:, None]))))(
        values
    )
    assert all(np.isfinite(leaf).all() for leaf in gradient.values())
    assert np.all(components.log_evidence(components.features(np.full((1, x.shape[1]), np.nan))) == 0)


def evidence(components, x):
    return jnp.sum(components.log_evidence(components.features(x).sum(axis=0)[None]))


def test_special_cases_equal_simpler_families():
    x = rows("NormalGamma", 10)[:, :1]
    wishart = conjugate.GaussianWishart([0.3], 0.7, [[1 / (2 * 1.2)]], 2 * 2.1)
    gamma = conjugate.NormalGamma([0.3], [0.7], [2.1], [1.2])
    spherical = conjugate.SphericalNormalGamma([0.3], [0.7], 2.1, 1.2)
    for other in (gamma, spherical):
        np.testing.assert_allclose(evidence(other, x), evidence(wishart, x), rtol=1e-11)
    y = rows("GaussianWishart", 10)
    prior = priors()["GaussianWishart"]
    shared = priors()["SharedGaussianWishart"]
    np.testing.assert_allclose(evidence(shared, y), evidence(prior, y), rtol=1e-11)
    known = priors()["GaussianKnownMean"]
    np.testing.assert_allclose(evidence(prior.replaced(mean_precision=1e9), y), evidence(known, y), rtol=1e-6)
    z = rows("ExponentialGamma", 10)
    exponential = priors()["ExponentialGamma"]
    gamma = conjugate.GammaKnownShape(exponential.shape, exponential.rate, [1.0, 1.0])
    np.testing.assert_allclose(evidence(gamma, z), evidence(exponential, z), rtol=1e-11)
    binary = rows("BernoulliBeta", 10)
    bernoulli = priors()["BernoulliBeta"]
    binomial = conjugate.BinomialBeta(bernoulli.concentration1, bernoulli.concentration0, np.ones(3))
    np.testing.assert_allclose(evidence(binomial, binary), evidence(bernoulli, binary), rtol=1e-11)
    categories = conjugate.CategoricalDirichlet(
        np.stack([bernoulli.concentration0, bernoulli.concentration1], 1)
    )
    np.testing.assert_allclose(evidence(categories, binary), evidence(bernoulli, binary), rtol=1e-11)
    positive, normal = rows("LogNormal", 10), priors()["NormalGamma"]
    of_logs = evidence(normal, np.log(positive)) - np.log(positive).sum()
    np.testing.assert_allclose(evidence(priors()["LogNormal"], positive), of_logs, rtol=1e-11)
    counts = np.array([[1.0, 3.0], [4.0, 0.0], [2.0, 2.0]])
    multinomial = conjugate.MultinomialDirichlet([0.7, 1.5])
    binomial = conjugate.BinomialBeta([0.7], [1.5], [4.0])
    np.testing.assert_allclose(evidence(multinomial, counts), evidence(binomial, counts[:, :1]), rtol=1e-11)


def test_predictive_densities_of_one_cell_have_mass_one():
    """Summed over levels, integrated over positive numbers; with another Jacobian the integral is not one."""
    categories = priors()["CategoricalDirichlet"]
    every = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), axis=-1).reshape(-1, 2)
    posterior = categories.posterior(categories.features(rows("CategoricalDirichlet", 8)).sum(axis=0))
    np.testing.assert_allclose(np.exp(posterior.predictive().log_prob(every)).sum(), 1.0, rtol=1e-12)
    positive = conjugate.Product((conjugate.NormalGamma([0.3], [0.4], [2.1], [1.2]),), ((0,),), logs=(0,))
    posterior = positive.posterior(positive.features(rows("LogNormal", 8)[:, :1]).sum(axis=0))
    log_x = np.linspace(-40.0, 40.0, 20_001)
    density = np.exp(posterior.predictive().log_prob(np.exp(log_x)[:, None]) + log_x)
    np.testing.assert_allclose(np.trapezoid(density, log_x), 1.0, rtol=1e-6)
    planted = np.exp(posterior.predictive().log_prob(np.exp(log_x)[:, None]) + 2 * log_x)
    assert abs(np.trapezoid(planted, log_x) - 1.0) > 0.1


def test_a_product_is_the_sum_of_its_groups():
    product, x = priors()["Product"], rows("Product", 10)
    parts = sum(
        float(evidence(family, x[:, list(group)]))
        for family, group in zip(product.families, COLUMNS, strict=True)
    )
    np.testing.assert_allclose(evidence(product, x), parts, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "SharedGaussianWishart"])
def test_rows_drawn_from_the_predictive_have_its_density(name):
    """E[p(x') / p(x)] over draws x of the predictive is one for the predictive of another posterior, p'.

    20 000 draws, 5 standard errors (false alarms below 1e-5).
    """
    components = priors()[name]
    posterior = components.posterior(components.features(rows(name, 8)).sum(axis=0))
    other = components.posterior(components.features(rows(name, 10)).sum(axis=0))
    x = ConjugatePredictive(posterior).sample(jax.random.key(0), (20_000,))
    ratio = np.exp(other.predictive().log_prob(x) - posterior.predictive().log_prob(x))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))
    planted = np.exp(other.predictive().log_prob(x) - components.predictive().log_prob(x))
    assert abs(planted.mean() - 1) > 5 * planted.std() / np.sqrt(len(ratio))


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("BernoulliBeta", 2.0, r"zeros and ones .*row 4, column 1 is 2"),
        ("BinomialBeta", 7.0, r"whole numbers from 0 to total_count .*row 4, column 1 is 7"),
        ("PoissonGamma", -1.0, r"counts: whole numbers of at least 0 .*row 4, column 1 is -1"),
        ("PoissonGamma", 0.5, r"counts: whole numbers of at least 0 .*row 4, column 1 is 0.5"),
        ("MultinomialDirichlet", 0.5, r"counts: whole numbers of at least 0; row 4, column 1 is 0.5"),
        ("MultinomialDirichlet", np.nan, r"cannot miss cells; row 4, column 1"),
        ("ExponentialGamma", -0.1, r"numbers of at least 0 .*row 4, column 1 is -0.1"),
        ("GammaKnownShape", 0.0, r"positive numbers .*row 4, column 1 is 0"),
        ("LogNormal", 0.0, r"positive numbers .*row 4, column 1 is 0"),
        ("CategoricalDirichlet", 3.0, r"numbers of levels, 0 to 2 .*row 4, column 1 is 3"),
        ("CategoricalDirichlet", 0.5, r"numbers of levels, 0 to 2 .*row 4, column 1 is 0.5"),
        ("NormalGamma", np.inf, r"finite or NaN .*row 4, column 1 is inf"),
        ("Product", -1.0, r"columns \(1,\) \(group 1, PoissonGamma\): .*row 4, column 1 is -1"),
    ],
)
def test_cells_outside_the_domain_are_named(name, cell, message):
    x = rows(name, 6)
    x[4, 1] = cell
    with pytest.raises(ValueError, match=message):
        priors()[name].check(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: conjugate.BernoulliBeta([1.0, 0.0], [1.0, 1.0]), "concentration1 must be positive"),
        (
            lambda: conjugate.BernoulliBeta(1.0, 1.0),
            r"must have shape \(num_features,\), or use BernoulliBeta",
        ),
        (lambda: conjugate.BernoulliBeta([1.0, 1.0], [1.0]), r"concentration0 must have shape \(2,\)"),
        (lambda: conjugate.BinomialBeta([1.0], [1.0], [2.5]), "total_count must be whole numbers"),
        (lambda: conjugate.PoissonGamma([1.0], [-1.0]), "rate must be positive"),
        (lambda: conjugate.MultinomialDirichlet([1.0, -1.0]), "concentration must be positive"),
        (lambda: conjugate.MultinomialDirichlet(1.0), r"concentration must have shape \(num_features,\)"),
        (lambda: conjugate.SphericalNormalGamma([0.0], [1.0], -1.0, 1.0), "shape must be a positive number"),
        (
            lambda: conjugate.CategoricalDirichlet([1.0, 1.0]),
            r"concentration must have shape \(num_features, num",
        ),
        (lambda: conjugate.CategoricalDirichlet([[1.0, 0.0]]), "concentration must be positive"),
        (
            lambda: conjugate.CategoricalDirichlet([[1.0, 1.0]], levels=("a",)),
            "levels must be 2 different names",
        ),
        (lambda: conjugate.NormalGamma([np.nan], [1.0], [1.0], [1.0]), "loc must be finite"),
        (
            lambda: conjugate.GaussianKnownCovariance([0.0, 0.0], 1.0, -matrix(2)),
            "covariance must be symmetric",
        ),
        (
            lambda: conjugate.GaussianKnownCovariance.from_data(rows("GaussianWishart", 5)),
            "needs covariance=",
        ),
        (lambda: conjugate.BinomialBeta.from_data(rows("BinomialBeta", 5)), "needs total_count="),
        (lambda: conjugate.GammaKnownShape.from_data(rows("GammaKnownShape", 5)), "needs known_shape="),
        (lambda: conjugate.PoissonGamma.from_data(np.zeros((4, 2))), "column 0 of x has mean 0"),
        (
            lambda: conjugate.Product(families=tuple(priors().values())[:1], columns=((0, 2),)),
            "columns must name each column 0 to 1 exactly once",
        ),
    ],
)
def test_fields_outside_their_domain_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", FAMILIES)
def test_default_priors_fit_their_data(name):
    x = rows(name, 20)
    family = type(priors()[name])
    known = {
        "GaussianKnownCovariance": {"covariance": np.eye(2)},
        "BinomialBeta": {"total_count": [4.0, 6.0]},
        "GammaKnownShape": {"known_shape": 2.0},
    }.get(name, {})
    if family is conjugate.Product:
        known = {fact: getattr(priors()[name], fact) for fact in ("families", "columns", "logs")}
    components = family.from_data(x, **known)
    components.check(x)
    assert components.num_features == x.shape[1]
    assert np.isfinite(evidence(components, x))


def by_scipy(name, values):
    """The cells of each component, shape (num_components, num_features), by SciPy."""
    own = {site: np.asarray(value) for site, value in values.items()}
    if "precisions" in own:
        by_column = own["precisions"].reshape(len(own["locs"]), -1)
        deviations = np.broadcast_to(by_column, own["locs"].shape) ** -0.5
    return {
        "BernoulliBeta": lambda: scipy.stats.bernoulli(own["probs"]),
        "BinomialBeta": lambda: scipy.stats.binom([4, 6], own["probs"]),
        "PoissonGamma": lambda: scipy.stats.poisson(own["rates"]),
        "ExponentialGamma": lambda: scipy.stats.expon(scale=1 / own["rates"]),
        "GammaKnownShape": lambda: scipy.stats.gamma([1.7, 0.6], scale=1 / own["rates"]),
        "NormalGamma": lambda: scipy.stats.norm(own["locs"], deviations),
        "SphericalNormalGamma": lambda: scipy.stats.norm(own["locs"], deviations),
    }[name]()


@pytest.mark.parametrize("name", [name for name in CELLWISE if name != "CategoricalDirichlet"])
def test_cells_are_those_of_scipy(name):
    """Log densities on features, and the mean and deviation of typical cells."""
    components, x = priors()[name], rows(name, 6)
    values = draw(components, 3, jax.random.key(2))
    cells = by_scipy(name, values)
    log_prob = cells.logpmf if isinstance(cells.dist, scipy.stats.rv_discrete) else cells.logpdf
    expected = log_prob(x[:, None]).sum(axis=-1)
    np.testing.assert_allclose(
        components.features(x) @ components.coefficients(values).T, expected, rtol=1e-9
    )
    np.testing.assert_allclose(components.likelihood(values).log_prob(x[:, None]), expected, rtol=1e-9)
    labels = np.arange(6) % 3
    of_own = components.likelihood_of(values, jnp.asarray(labels)).log_prob(x)
    np.testing.assert_allclose(of_own, expected[np.arange(6), labels], rtol=1e-9)
    (typical,) = components.typical_cells(values)
    np.testing.assert_allclose(typical.values, cells.mean(), rtol=1e-9)
    np.testing.assert_allclose(typical.spread, cells.std(), rtol=1e-9)


def test_default_rates_give_cells_the_mean_of_their_column():
    """Also beside a shape that is given: a prior worth more rows has the mean of one worth less."""
    x = rows("GammaKnownShape", 20)
    for shape in (1.0, 3.0):
        exponential = conjugate.ExponentialGamma.from_data(x, shape=shape)
        gamma = conjugate.GammaKnownShape.from_data(x, shape=shape, known_shape=2.0)
        poisson = conjugate.PoissonGamma.from_data(np.round(x + 1), shape=shape)
        np.testing.assert_allclose(exponential.rate / exponential.shape, x.mean(axis=0))
        np.testing.assert_allclose(2.0 * gamma.rate / gamma.shape, x.mean(axis=0))
        np.testing.assert_allclose(poisson.shape / poisson.rate, np.round(x + 1).mean(axis=0))
    given = conjugate.PoissonGamma.from_data(np.round(x + 1), shape=3.0, rate=0.5)
    np.testing.assert_array_equal(given.rate, 0.5)
    for shape, worth in ((0.5, 0.01), (2.0, 0.3)):
        normal = conjugate.NormalGamma.from_data(x, shape=shape, mean_precision=worth)
        np.testing.assert_allclose(normal.rate, shape * worth * x.var(axis=0, ddof=1))


def test_rows_of_counts_are_those_of_scipy():
    """Whatever the total of a row, by parameters and on features."""
    components, x = priors()["MultinomialDirichlet"], rows("MultinomialDirichlet", 6)
    values = draw(components, 3, jax.random.key(2))
    (probs,) = (np.asarray(value) for value in values.values())
    expected = np.array([[scipy.stats.multinomial(row.sum(), p).logpmf(row) for p in probs] for row in x])
    np.testing.assert_allclose(components.likelihood(values).log_prob(x[:, None]), expected, rtol=1e-9)
    np.testing.assert_allclose(
        components.features(x) @ components.coefficients(values).T, expected, rtol=1e-9
    )


def test_new_rows_of_counts_are_those_of_scipy_dense_or_sparse():
    """With the probabilities integrated out, under two components; one row has no count at all."""
    components = priors()["MultinomialDirichlet"]
    seen = components.features(rows("MultinomialDirichlet", 8)).reshape(2, 4, -1)
    posterior = components.posterior(seen.sum(axis=1))
    x = np.array([[0, 3, 1], [0, 0, 0], [5, 0, 0], [2, 2, 7]])
    by_component = np.asarray(posterior.concentration)
    expected = [
        [scipy.stats.dirichlet_multinomial(alpha, row.sum()).logpmf(row) for alpha in by_component]
        for row in x
    ]
    for form in (jnp.asarray(x.astype(float)), SparseCounts.from_matrix(x)):
        np.testing.assert_allclose(posterior.log_predictive(form), expected, rtol=1e-9, atol=1e-12)


def test_sparse_rows_of_counts_are_those_of_scipy():
    """On features, under the components assigned, and under all by their weights."""
    components, x = priors()["MultinomialDirichlet"], np.array([[0, 3, 1], [0, 0, 0], [5, 0, 0], [2, 2, 7]])
    probs, weights = np.random.default_rng(0).dirichlet(np.ones(3), 2), np.array([0.3, 0.7])
    sparse, values = SparseCounts.from_matrix(x), {"probs": jnp.asarray(probs)}
    expected = np.array([[scipy.stats.multinomial(row.sum(), p).logpmf(row) for p in probs] for row in x])
    features = components.features(sparse)
    np.testing.assert_allclose(features @ components.coefficients(values).T, expected, rtol=1e-9, atol=1e-12)
    r = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(2), 4).T)
    np.testing.assert_allclose(r @ features, r @ components.features(x.astype(float)), rtol=1e-9, atol=1e-12)
    labels = np.array([1, 0, 0, 1])
    for assignments, wanted in (
        (jnp.asarray(labels), expected[np.arange(4), labels]),
        (None, np.logaddexp.reduce(expected + np.log(weights), axis=1)),
    ):
        rows_of = MixtureRows(components, values, jnp.log(weights), assignments, 4)
        np.testing.assert_allclose(rows_of.log_prob(sparse), wanted, rtol=1e-9, atol=1e-12)


def test_groups_of_columns_are_drawn_into_their_places():
    """Column j is ten times j; the places of the columns in the groups are no permutation of order two."""
    columns = ((2, 0), (3,), (1,))
    groups = [dist.Delta(10.0 * jnp.asarray(group), event_dim=1) for group in columns]
    row = _ProductRow(tuple(groups), columns)
    drawn = row.sample(jax.random.key(0), (2,))
    np.testing.assert_array_equal(drawn, np.tile([0.0, 10.0, 20.0, 30.0], (2, 1)))
    np.testing.assert_array_equal(row.log_prob(drawn), [0.0, 0.0])
    assert np.isneginf(row.log_prob(drawn[:, ::-1])).all()


def compound(name, row):
    """Log density of one row with the parameters of its component integrated out, by SciPy."""
    prior = priors()[name]
    if name == "MultinomialDirichlet":
        return scipy.stats.dirichlet_multinomial(prior.concentration, int(row.sum())).logpmf(row.astype(int))
    if name == "CategoricalDirichlet":
        means = np.asarray(prior.concentration) / np.sum(prior.concentration, axis=1, keepdims=True)
        return np.log(means[np.arange(2), row.astype(int)]).sum()
    if name in ("BernoulliBeta", "BinomialBeta"):
        counts = getattr(prior, "total_count", 1)
        return scipy.stats.betabinom(counts, prior.concentration1, prior.concentration0).logpmf(row).sum()
    a, b = np.asarray(prior.shape), np.asarray(prior.rate)
    if name == "PoissonGamma":
        return scipy.stats.nbinom(a, b / (b + 1)).logpmf(row).sum()
    if name == "ExponentialGamma":
        return scipy.stats.lomax(a, scale=b).logpdf(row).sum()
    if name == "GammaKnownShape":
        return scipy.stats.betaprime(prior.known_shape, a, scale=b).logpdf(row).sum()
    scale = np.sqrt(b / a * (1 + 1 / np.asarray(prior.mean_precision)))
    if name == "SphericalNormalGamma":
        return scipy.stats.multivariate_t(prior.loc, np.diag(scale**2), 2 * a).logpdf(row)
    return scipy.stats.t(2 * a, prior.loc, scale).logpdf(row).sum()


@pytest.mark.parametrize("name", [*CELLWISE, "MultinomialDirichlet"])
def test_the_evidence_of_one_row_is_a_density_of_scipy(name):
    """Beta-binomial, negative binomial, Lomax, beta prime, Student's t, Dirichlet-multinomial."""
    (row,) = rows(name, 1, seed=4)
    np.testing.assert_allclose(evidence(priors()[name], row[None]), compound(name, row), rtol=1e-10)


def test_sites_in_the_units_of_the_data_are_functions_of_the_parameters():
    """Covariances invert precisions, once a component."""
    locs, precisions = np.array([[0.3, -1.0], [2.0, 0.5]]), np.array([[4.0, 0.25], [1.0, 9.0]])
    assert not priors()["NormalGamma"].deterministics({"locs": locs, "precisions": precisions})
    each = np.stack([matrix(2, 3), matrix(2, 4)])
    own = {"locs": locs, "precisions": np.linalg.inv(each)}
    np.testing.assert_allclose(priors()["GaussianWishart"].deterministics(own)["covariances"], each)
    known = priors()["GaussianKnownMean"].deterministics(own)
    np.testing.assert_allclose(known["covariances"], each)
    np.testing.assert_array_equal(known["locs"], [[0.3, -0.2]] * 2)
    shared = {"locs": locs, "shared_precision": own["precisions"][0]}
    covariances = priors()["SharedGaussianWishart"].deterministics(shared)["covariances"]
    np.testing.assert_allclose(covariances, np.stack([each[0]] * 2))
    covariances = priors()["GaussianKnownCovariance"].deterministics({"locs": locs})["covariances"]
    np.testing.assert_allclose(covariances, np.stack([matrix(2, 1)] * 2))


def test_a_scale_matrix_is_brought_into_its_bracket():
    """Relative to a reference that is not diagonal: by generalised eigenvalues, which SciPy finds anew."""
    low, high = BRACKETS["scale_matrix"]
    reference, turn = matrix(3, 1), np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    root = np.linalg.cholesky(reference) @ turn
    outside = (root * np.array([low / 10, 1.0, high * 10])) @ root.T
    found = np.asarray(within_scale(jnp.asarray(outside), jnp.asarray(reference)))
    np.testing.assert_allclose(found, found.T)
    clipped = (root * np.array([low, 1.0, high])) @ root.T
    np.testing.assert_allclose(found, clipped, rtol=1e-6)
    inside = (root * np.array([0.5, 1.0, 2.0])) @ root.T
    np.testing.assert_allclose(within_scale(jnp.asarray(inside), jnp.asarray(reference)), inside, rtol=1e-12)


FREE = {  # of three components, by counting
    "GaussianWishart": 3 * (2 + 3),
    "SharedGaussianWishart": 3 * 2 + 3,
    "GaussianKnownCovariance": 3 * 2,
    "GaussianKnownMean": 3 * 3,
    "NormalGamma": 3 * 4,
    "SphericalNormalGamma": 3 * 3,
    "BernoulliBeta": 3 * 3,
    "BinomialBeta": 3 * 2,
    "PoissonGamma": 3 * 2,
    "ExponentialGamma": 3 * 2,
    "GammaKnownShape": 3 * 2,
    "CategoricalDirichlet": 3 * 2 * 2,
    "MultinomialDirichlet": 3 * 2,
    "Product": 3 * (2 + 3 + 1 + 1),
    "LogNormal": 3 * 4,
    "LogGaussian": 3 * (2 + 3 + 1 + 1),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_free_parameters_of_three_components(name):
    assert priors()[name].num_free_parameters(3) == FREE[name]
