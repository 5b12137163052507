"""Missing cells under full covariances: densities, expected sums and draws against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.support.component_families import COLUMNS, matrix, priors
from zoo import conjugate
from zoo.conjugate import missing_cells

pytestmark = pytest.mark.usefixtures("in_double")

FULL = ("GaussianWishart", "SharedGaussianWishart", "GaussianKnownCovariance", "GaussianKnownMean")


def family(name, d=3):
    place = {"loc": np.array([0.3, -0.2, 0.1])[:d], "center": np.array([1.0, 2.0, -1.0])[:d]}
    wishart = {"scale_matrix": matrix(d) / d, "degrees_of_freedom": d + 1.7}
    return {
        "GaussianWishart": lambda: conjugate.GaussianWishart(**place, mean_precision=0.3, **wishart),
        "SharedGaussianWishart": lambda: conjugate.SharedGaussianWishart(
            **place, mean_precision=0.3, **wishart
        ),
        "GaussianKnownCovariance": lambda: conjugate.GaussianKnownCovariance(
            **place, mean_precision=0.3, covariance=matrix(d, 1)
        ),
        "GaussianKnownMean": lambda: conjugate.GaussianKnownMean(**place, **wishart),
    }[name]()


def table(count=14, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, d)) * [1.0, 2.0, 0.5][:d] + 0.5
    x[rng.random(x.shape) < 0.35] = np.nan
    x[0], x[1] = np.nan, 0.3  # a row without a cell, and a complete one
    return x


def parameters_of(components, x):
    """Two components, drawn from their posteriors given the rows filled up with zeros."""
    complete = components.complete()
    statistics = complete.features(np.nan_to_num(x)).reshape(2, len(x) // 2, -1).sum(axis=1)
    posterior, values = complete.posterior(statistics), {}
    while len(drawn := posterior.conditionals(values)) > len(values):
        site = list(drawn)[len(values)]
        values[site] = drawn[site].sample(jax.random.key(len(values)))
    return posterior, values


def normals_of(components, values):
    """Mean and covariance of each component."""
    with_covariances = {**values, **components.deterministics(values)}
    locs = np.asarray(with_covariances["locs"])
    return list(zip(locs, np.asarray(with_covariances["covariances"]), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_observed_cells_have_their_marginal_density(name):
    x = table()
    components = family(name).with_patterns(x)
    _, values = parameters_of(components, x)
    expected = np.zeros((len(x), 2))
    for k, (loc, covariance) in enumerate(normals_of(components, values)):
        for i, row in enumerate(x):
            seen = ~np.isnan(row)
            if seen.any():
                part = covariance[np.ix_(seen, seen)]
                expected[i, k] = stats.multivariate_normal(loc[seen], part).logpdf(row[seen])
    scores = components.features(x) @ components.coefficients(values).T
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    every = components.likelihood(values).log_prob(x[:, None])
    np.testing.assert_allclose(every, expected, rtol=1e-9, atol=1e-9)
    labels = jnp.arange(len(x)) % 2
    own = components.likelihood_of(values, labels).log_prob(x)
    np.testing.assert_allclose(own, expected[np.arange(len(x)), labels], rtol=1e-9, atol=1e-9)
    gradient = jax.grad(lambda v: jnp.sum(components.likelihood(v).log_prob(x[:, None])))(values)
    assert all(np.isfinite(leaf).all() for leaf in gradient.values())


def brute_sums(x, r, center, normals, with_spread=True):
    """Sums of 1, y and y y' by component, each missing cell at its conditional moments."""
    sums = []
    for k, (loc, covariance) in enumerate(normals):
        total = 0.0
        for row, weight in zip(x, r[:, k], strict=True):
            seen, filled, spread = ~np.isnan(row), row.copy(), np.zeros_like(covariance)
            lost = ~seen
            gain = covariance[np.ix_(lost, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
            filled[lost] = loc[lost] + gain @ (row[seen] - loc[seen])
            rest = covariance[np.ix_(lost, lost)] - gain @ covariance[np.ix_(seen, lost)]
            spread[np.ix_(lost, lost)] = rest * with_spread
            y = filled - center
            second = np.outer(y, y) + spread
            total = total + weight * np.concatenate([[1.0], y, second[np.triu_indices(len(y))]])
        sums.append(total)
    return np.array(sums)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", FULL)
def test_expected_sums_are_those_of_each_row(name):
    """The planted fault leaves the variance of missing cells out, as imputation by means does."""
    x = table()
    components = family(name).with_patterns(x)
    _, values = parameters_of(components, x)
    r = np.random.default_rng(1).dirichlet([1.0, 1.0], len(x))
    features = components.features(x)
    found = components.expected_sums(jnp.asarray(r.T), features, components.coefficients(values))
    normals = normals_of(components, values)
    expected = brute_sums(x, r, components.center, normals)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    planted = brute_sums(x, r, components.center, normals, with_spread=False)
    assert np.abs(planted - expected).max() > 0.1


def test_drawn_cells_have_the_conditional_moments():
    """20 000 draws, 5 standard errors (false alarms below 1e-5); without their covariance it fails."""
    x = table(4)
    components = family("GaussianWishart").with_patterns(x)
    _, values = parameters_of(components, x)
    labels = jnp.array([0, 1, 0, 1])
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = jax.vmap(lambda key: components.completed(key, values, labels, jnp.asarray(x)))(keys)
    draws = np.asarray(draws)
    seen = ~np.isnan(x)
    np.testing.assert_allclose(draws[:, seen], np.broadcast_to(x[seen], (20_000, seen.sum())))
    normals, center = normals_of(components, values), components.center
    for i, row in enumerate(x):
        one = np.eye(2)[[labels[i]]]
        expected = brute_sums(row[None], one, center, normals)[labels[i]]
        complete = np.asarray(components.complete().features(draws[:, i]))
        error = complete.std(axis=0) / np.sqrt(len(draws)) + 1e-9
        assert np.abs((complete.mean(axis=0) - expected) / error).max() < 5
        planted = brute_sums(row[None], one, center, normals, with_spread=False)[labels[i]]
        if np.isnan(row).any():
            assert np.abs((complete.mean(axis=0) - planted) / error).max() > 5


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", [name for name in FULL if name != "GaussianKnownCovariance"])
def test_predictive_of_observed_cells_is_a_marginal_student(name):
    x = table()
    components = family(name).with_patterns(x)
    posterior, _ = parameters_of(components, x)
    found = np.asarray(posterior.replaced(patterns=components.patterns).log_predictive(jnp.asarray(x)))
    predictive = posterior.predictive()
    for k in range(2):
        loc, tril = np.asarray(predictive.loc)[k], np.asarray(predictive.scale_tril)
        tril = np.broadcast_to(tril, (2, 3, 3))[k]
        df = float(np.broadcast_to(predictive.df, 2)[k])
        for i, row in enumerate(x):
            seen = ~np.isnan(row)
            if seen.any():
                scale = (tril @ tril.T)[np.ix_(seen, seen)]
                student = stats.multivariate_t(loc[seen], scale, df=df)
                np.testing.assert_allclose(found[i, k], student.logpdf(row[seen]), rtol=1e-9)
    np.testing.assert_allclose(found[0], 0.0, atol=1e-12)


@pytest.mark.slow
def test_a_product_with_missing_cells_is_the_sum_of_its_groups():
    x = np.column_stack([table()[:, 0], np.arange(14) % 3, np.arange(14) % 2, table()[:, 1]])
    x[3, 1] = np.nan
    product = priors()["Product"]
    known = product.with_patterns(x)
    assert known.is_incomplete and not product.with_patterns(np.nan_to_num(x)).is_incomplete
    statistics = product.features(np.nan_to_num(x)).reshape(2, 7, -1).sum(axis=1)
    values = {}
    posterior = product.posterior(statistics)
    while len(drawn := posterior.conditionals(values)) > len(values):
        site = list(drawn)[len(values)]
        values[site] = drawn[site].sample(jax.random.key(len(values)))
    scores = np.asarray(known.features(x) @ known.coefficients(values).T)
    np.testing.assert_allclose(known.likelihood(values).log_prob(x[:, None]), scores, rtol=1e-9)
    r = jnp.asarray(np.random.default_rng(1).dirichlet([1.0, 1.0], 14).T)
    sums = known.expected_sums(r, known.features(x), known.coefficients(values))
    total, start = 0.0, 1
    for number, (own, group) in enumerate(zip(known.families, COLUMNS, strict=True)):
        mine = {name[: -len("_0")]: v for name, v in values.items() if name.endswith(f"_{number}")}
        features = own.features(x[:, list(group)])
        total = total + features @ own.coefficients(mine).T
        expected = own.expected_sums(r, features, own.coefficients(mine))[:, 1:]
        np.testing.assert_allclose(sums[:, start : start + expected.shape[1]], expected, rtol=1e-9)
        start += expected.shape[1]
    np.testing.assert_allclose(scores, total, rtol=1e-9)
    new = posterior.replaced(
        families=tuple(
            after.replaced(**({"patterns": before.patterns} if before.is_incomplete else {}))
            for after, before in zip(posterior.families, known.families, strict=True)
        )
    )
    assert np.isfinite(new.log_predictive(jnp.asarray(x))).all()


def test_the_default_prior_of_incomplete_rows_is_that_of_the_most_likely_normal():
    """Its variances are those of the observed cells; without missing cells it is the sample's."""
    x = table(60, seed=3)
    mean, covariance = missing_cells.covariance_of_observed(x)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), np.nanstd(x, axis=0, ddof=1), rtol=1e-12)
    complete = np.random.default_rng(0).normal(size=(60, 3))
    mean, covariance = missing_cells.covariance_of_observed(complete)
    np.testing.assert_allclose(mean, complete.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(complete, rowvar=False), rtol=1e-9, atol=1e-12)
    prior = conjugate.GaussianWishart.from_data(x)
    assert prior.scale_matrix.shape == (3, 3)
    with pytest.raises(ValueError, match="column 1 of x is missing in all rows"):
        conjugate.GaussianWishart.from_data(np.where([0, 1, 0], np.nan, complete))


def test_the_most_likely_normal_of_a_complete_and_an_incomplete_column_is_by_regression():
    """Missing cells in one column only: maximum likelihood is in closed form (Anderson 1957)."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 2)) @ [[1.0, 0.8], [0.0, 0.6]] * [3.0, 0.1] + [10.0, -4.0]
    seen = np.arange(40) < 25
    x[~seen, 1] = np.nan
    slope, intercept = np.polyfit(x[seen, 0], x[seen, 1], 1)
    left = np.var(x[seen, 1] - intercept - slope * x[seen, 0])
    correlation = slope * x[:, 0].std() / np.sqrt(left + slope**2 * x[:, 0].var())
    deviations = np.nanstd(x, axis=0, ddof=1)
    expected = np.outer(deviations, deviations) * [[1.0, correlation], [correlation, 1.0]]
    for order in ([0, 1], [1, 0]):
        mean, covariance = missing_cells.covariance_of_observed(x[:, order])
        wanted = np.array([x[:, 0].mean(), intercept + slope * x[:, 0].mean()])
        np.testing.assert_allclose(mean, wanted[order], rtol=1e-6)
        np.testing.assert_allclose(covariance, expected[np.ix_(order, order)], rtol=1e-6)


def test_groups_of_columns_complete_their_own_cells_by_keys_of_their_own(monkeypatch):
    """Two alike but for their locations, which say whose parameters a cell has; the noise left is no copy."""

    def completed(family, key, parameters, assignments, x):
        drawn = parameters["locs"][assignments] + jax.random.normal(key, x.shape)
        return jnp.where(jnp.isnan(x), drawn, x)

    monkeypatch.setattr(conjugate.NormalGamma, "completed", completed)
    family = conjugate.NormalGamma(np.zeros(2), np.ones(2), np.ones(2), np.ones(2))
    product = conjugate.Product((family, family), ((3, 0), (1, 2)))
    locs = 1000.0 * np.arange(8).reshape(2, 2, 2)  # group, component, column of the group
    x = np.full((5, 4), np.nan)
    x[2, 1], labels = 0.5, np.array([0, 1, 1, 0, 1])
    values = {"locs_0": jnp.asarray(locs[0]), "locs_1": jnp.asarray(locs[1])}
    found = np.asarray(product.completed(jax.random.key(0), values, jnp.asarray(labels), jnp.asarray(x)))
    assert found[2, 1] == 0.5
    places = ((0, 1), (1, 0), (1, 1), (0, 0))  # of each column: its group, and its place there
    noise = found - np.stack([locs[group, labels, place] for group, place in places], axis=1)
    noise = noise[np.isnan(x)]
    assert np.abs(noise).max() < 10 and len(np.unique(noise)) == 19
