"""Columns of a `Product` that are fitted by their logarithms: densities and typical cells are those of x.

The tests of every family and method have two such components, `LogNormal` and `LogGaussian`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import inference
import zoo
from tests.support.component_families import matrix
from zoo.conjugate import (
    GaussianKnownCovariance,
    GaussianWishart,
    NormalGamma,
    PoissonGamma,
    Product,
    SphericalNormalGamma,
)
from zoo.conjugate import product as product_file

pytestmark = pytest.mark.usefixtures("in_double")
LOCS = np.array([[0.3, -0.4, 1.2], [2.0, 0.5, -1.0]])
COVARIANCES = np.stack([matrix(3, 3), matrix(3, 4)])
PARAMETERS = {"locs_0": LOCS, "precisions_0": np.linalg.inv(COVARIANCES), "covariances_0": COVARIANCES}
LOGS = (1,)


def evidence(components, x):
    return float(components.log_evidence(components.features(jnp.asarray(x)).sum(axis=0)))


def joint(logs=LOGS, order=(0, 1, 2)):
    """A Gaussian of three columns, some by their logarithms."""
    family = GaussianWishart(np.zeros(3), 0.3, matrix(3), 4.2, center=np.array([0.2, -0.1, 0.4]))
    return Product((family,), (order,), logs)


def turned(x, logs=LOGS):
    x = np.array(x, float)
    x[:, list(logs)] = np.log(x[:, list(logs)])
    return x


def table(count=6):
    x = np.random.default_rng(3).normal(size=(count, 3))
    x[:, 1] = np.exp(1.5 * x[:, 1])
    return x


def by_scipy(x, columns=(0, 1, 2)):
    """Log density of some columns of rows under each component, by SciPy and the Jacobian."""
    at, z = np.array(columns), turned(x)
    found = [
        scipy.stats.multivariate_normal(m[at], c[np.ix_(at, at)]).logpdf(z[:, at])
        for m, c in zip(LOCS, COVARIANCES, strict=True)
    ]
    return np.stack(found, axis=1) - (z[:, [1]] if 1 in columns else 0.0)


def test_rows_have_the_density_of_scipy_with_the_jacobian(monkeypatch):
    """Under each component and under its own; planted: the density of the logarithms."""
    components, x = joint(), table()

    def found():
        labels = jnp.arange(6) % 2
        by_features = components.features(x) @ components.coefficients(PARAMETERS).T
        each = components.likelihood(PARAMETERS).log_prob(x[:, None])
        own = components.likelihood_of(PARAMETERS, labels).log_prob(x)
        np.testing.assert_allclose(own, each[np.arange(6), labels], rtol=1e-12)
        return by_features, each

    for densities in found():
        np.testing.assert_allclose(densities, by_scipy(x), rtol=1e-9)
    monkeypatch.setattr(product_file, "log_jacobian", lambda turned, logs: jnp.zeros(turned.shape[:-1]))
    for densities in found():
        assert np.abs(densities - by_scipy(x)).max() > 0.1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_rows_that_miss_a_cell_have_the_density_of_the_others(place):
    x = table()
    x[:4, place] = np.nan
    components = joint().with_patterns(x)
    seen = [column for column in range(3) if column != place]
    whole = by_scipy(np.where(np.isnan(x), 1.0, x))
    wanted = np.where(np.isnan(x[:, [place]]), by_scipy(np.where(np.isnan(x), 1.0, x), seen), whole)
    densities = components.features(jnp.asarray(x)) @ components.coefficients(PARAMETERS).T
    np.testing.assert_allclose(densities, wanted, rtol=1e-9)
    rows_of = components.likelihood(PARAMETERS)
    np.testing.assert_allclose(rows_of.log_prob(jnp.asarray(x)[:, None]), wanted, rtol=1e-9)


def test_complete_rows_are_predicted_alike_beside_rows_that_miss_cells():
    x = table()
    sums = jax.ops.segment_sum(joint().features(jnp.asarray(x)), jnp.arange(6) % 2, num_segments=2)
    posterior, holes = joint().posterior(sums), x.copy()
    holes[4:, 1] = np.nan
    found = posterior.with_patterns(holes).log_predictive(jnp.asarray(holes))
    np.testing.assert_allclose(found[:4], posterior.log_predictive(jnp.asarray(x[:4])), rtol=1e-9)


def test_special_cases_are_simpler_families():
    """No logarithm: the joint Gaussian; all: that of the logarithms; one column alone: the log-normal."""
    x = np.abs(table(9))
    plain = joint(logs=())
    assert evidence(plain, x) == pytest.approx(evidence(plain.families[0], x), rel=1e-12)
    every = joint(logs=(0, 1, 2))
    of_logs = evidence(every.families[0], np.log(x)) - np.log(x).sum()
    assert evidence(every, x) == pytest.approx(of_logs, rel=1e-12)
    by_column = NormalGamma([0.3], [0.4], [2.1], [1.2])
    full = GaussianWishart([0.3], 0.4, [[1 / 2.4]], 4.2)
    one, other = (Product((family,), ((0,),), (0,)) for family in (by_column, full))
    assert evidence(one, x[:, :1]) == pytest.approx(evidence(other, x[:, :1]), rel=1e-12)
    a, b = 2.1, 1.2
    student = scipy.stats.t(2 * a, 0.3, np.sqrt(b / a * (1 + 1 / 0.4)))
    wanted = student.logpdf(np.log(x[0, 0])) - np.log(x[0, 0])
    assert evidence(one, x[:1, :1]) == pytest.approx(wanted, rel=1e-12)
    assert float(one.predictive().log_prob(x[0, :1])) == pytest.approx(wanted, rel=1e-12)


def test_a_change_of_the_logarithms_unit_moves_the_evidence_by_its_jacobian():
    """Default priors, which follow the data: cents for euros cost log 100 a cell, and nothing else."""
    x = table(20)
    cents = x * np.array([1.0, 100.0, 1.0])
    one, other = (
        Product.from_data(own, families=(GaussianWishart,), columns=((0, 1, 2),), logs=LOGS)
        for own in (x, cents)
    )
    assert evidence(other, cents) == pytest.approx(evidence(one, x) - 20 * np.log(100.0), rel=1e-10)
    np.testing.assert_allclose(
        other.families[0].loc - one.families[0].loc, [0.0, np.log(100.0), 0.0], atol=1e-9
    )


def test_typical_cells_are_means_and_medians_with_their_columns():
    """Where the group's order is not that of the table, and of rows that miss a cell by their others."""
    components = Product((PoissonGamma([2.0], [0.5]), joint().families[0]), ((1,), (3, 0, 2)), logs=(0, 3))
    values = {f"{name[:-1]}1": own for name, own in PARAMETERS.items()} | {"rates_0": np.ones((2, 1))}
    counts, means, medians = (
        next(part for part in components.typical_cells(values) if tuple(part.columns) == columns)
        for columns in ((1,), (2,), (3, 0))
    )
    assert (counts.of_logs, means.of_logs, medians.of_logs) == (False, False, True)
    assert medians.quantity == "median" and means.quantity == "mean"
    np.testing.assert_allclose(medians.values, LOCS[:, :2])
    np.testing.assert_allclose(means.values, LOCS[:, 2:])
    np.testing.assert_allclose(medians.spread, np.sqrt(COVARIANCES[:, [0, 1], [0, 1]]))
    x = table(2)
    x[:, 1] = np.nan
    given = joint().with_patterns(x).cells_given(PARAMETERS, jnp.asarray(x))
    median = next(part for part in given if part.of_logs)
    rest = np.array([0, 2])
    for k, (m, c) in enumerate(zip(LOCS, COVARIANCES, strict=True)):
        gain = c[1, rest] @ np.linalg.inv(c[np.ix_(rest, rest)])
        np.testing.assert_allclose(median.values[:, k, 0], m[1] + (x[:, rest] - m[rest]) @ gain, rtol=1e-9)


def test_drawn_rows_are_in_the_units_of_the_table():
    """Moments of the logarithms of 40 000 rows; 5 standard errors (1e-5 with all comparisons)."""
    drawn = np.asarray(joint().likelihood(PARAMETERS).sample(jax.random.key(0), (40_000,)))
    for k in range(2):
        z = turned(drawn[:, k])
        error = np.sqrt(np.diag(COVARIANCES[k]) / len(z))
        assert (np.abs(z.mean(axis=0) - LOCS[k]) < 5 * error).all()
        np.testing.assert_allclose(np.cov(z.T), COVARIANCES[k], atol=0.1 * COVARIANCES[k].max())


def test_missing_cells_are_drawn_in_the_units_of_the_table():
    """Given the others, of 20 000 equal rows; the observed cells stay; 5 standard errors (1e-6)."""
    x = np.tile(table(1), (20_000, 1))
    x[:, 1] = np.nan
    components = joint().with_patterns(x)
    labels = jnp.zeros(len(x), int)
    drawn = np.asarray(components.completed(jax.random.key(1), PARAMETERS, labels, jnp.asarray(x)))
    np.testing.assert_array_equal(drawn[:, [0, 2]], x[:, [0, 2]])
    rest = np.array([0, 2])
    gain = COVARIANCES[0][1, rest] @ np.linalg.inv(COVARIANCES[0][np.ix_(rest, rest)])
    mean = LOCS[0, 1] + gain @ (x[0, rest] - LOCS[0, rest])
    deviation = np.sqrt(COVARIANCES[0][1, 1] - gain @ COVARIANCES[0][rest, 1])
    assert abs(np.log(drawn[:, 1]).mean() - mean) < 5 * deviation / np.sqrt(len(x))
    assert np.log(drawn[:, 1]).std() == pytest.approx(deviation, rel=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Product((PoissonGamma([2.0], [0.5]),), ((0,),), logs=(0,)),
            "logs names column 0, of a PoissonGamma: logarithms are for Gaussian families",
        ),
        (
            lambda: Product((SphericalNormalGamma([0.0, 0.0], 1.0, 1.0, 1.0),), ((0, 1),), logs=(1,)),
            "logs names column 1, of a SphericalNormalGamma",
        ),
        (lambda: joint(logs=(1, 1)), "logs must name columns, each at most once"),
        (lambda: joint(logs=(3,)), "logs must name columns, each at most once"),
        (
            lambda: Product.from_data(-table(), families=(GaussianWishart,), columns=((0, 1, 2),), logs=LOGS),
            "positive numbers .*row 0, column 1 is -",
        ),
        (lambda: joint().check(-table()), "positive numbers .*row 0, column 1 is -"),
    ],
)
def test_what_has_no_logarithm_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_known_covariance_may_be_of_logarithms():
    components = Product((GaussianKnownCovariance(np.zeros(2), 0.5, matrix(2)),), ((0, 1),), logs=(1,))
    x = np.array([[0.4, 2.0]])
    normal = scipy.stats.multivariate_normal([0.0, 0.0], matrix(2) * (1 + 1 / 0.5))
    assert evidence(components, x) == pytest.approx(
        normal.logpdf([0.4, np.log(2.0)]) - np.log(2.0), rel=1e-12
    )


def test_columns_with_logarithms_may_be_named_and_new_rows_are_checked():
    """Planted clusters lie along a line of the logarithm; rows drawn from the fit are positive."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(160, 1)) * 2.0
    size = np.exp(z[:, 0] + 0.2 * rng.normal(size=160))
    years = z[:, 0] + 0.2 * rng.normal(size=160) + np.repeat([0.0, 3.0], 80)
    frame = pd.DataFrame({"size": size, "years": years})
    named = Product((GaussianWishart(),), (("years", "size"),), logs=("size",))
    model = zoo.Mixture(num_components=4, components=named)
    tree = inference.fit(model, frame, progress=False)
    labels = inference.predict(tree, frame).to_numpy()
    assert len(np.unique(labels)) == 2 and (labels[:80] == labels[0]).mean() > 0.95
    with pytest.raises(ValueError, match=r"positive numbers .*'size'.* is -1"):
        inference.log_density(tree, frame.assign(size=-1.0))
    density = inference.log_density(tree, frame).to_numpy()
    in_cents = inference.fit(model, frame.assign(size=100 * size), progress=False)
    again = inference.log_density(in_cents, frame.assign(size=100 * size)).to_numpy()
    np.testing.assert_allclose(again, density - np.log(100.0), rtol=1e-6)
