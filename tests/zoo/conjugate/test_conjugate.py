"""The Gaussian-Wishart: its evidence, predictive density, expectations and default prior.

Expectations and coefficients agree with each other and with their definitions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from zoo.conjugate import GaussianWishart
from zoo.conjugate.resolution import decimal_step

pytestmark = pytest.mark.usefixtures("in_double")


def prior(num_features, mean_precision=0.3, excess=0.7, seed=0):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(num_features, num_features))
    return GaussianWishart(
        loc=rng.normal(size=num_features),
        mean_precision=mean_precision,
        scale_matrix=factor @ factor.T + 0.5 * np.eye(num_features),
        degrees_of_freedom=num_features - 1 + excess,
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_features", [3, 1, 2])
def test_the_chain_of_predictives_is_the_evidence(num_features):
    """An error of one in the Student-t's degrees of freedom shifts a single point by more than 0.1 nats."""
    components = prior(num_features)
    x = np.random.default_rng(1).normal(size=(12, num_features)) + 1.0
    features = components.features(x)
    chain = 0.0
    for i in range(len(x)):
        chain += components.posterior(features[:i].sum(axis=0)).predictive().log_prob(x[i])
    evidence = components.log_evidence(features.sum(axis=0))
    np.testing.assert_allclose(chain, evidence, rtol=1e-9)
    wrong = components.replaced(degrees_of_freedom=components.degrees_of_freedom + 1)
    assert abs(wrong.predictive().log_prob(x[0]) - components.predictive().log_prob(x[0])) > 0.01


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("num_features", [3, 1])
def test_coefficients_on_features_are_the_log_density(num_features):
    components = prior(num_features)
    rng = np.random.default_rng(2)
    posterior = components.posterior(components.features(rng.normal(size=(4, 30, num_features))).sum(axis=1))
    parameters = {
        "precisions": posterior.degrees_of_freedom[:, None, None] * posterior.scale_matrix,
        "locs": posterior.loc,
    }
    x = rng.normal(size=(7, num_features))
    by_features = components.features(x) @ components.coefficients(parameters).T
    np.testing.assert_allclose(
        by_features, components.likelihood(parameters).log_prob(x[:, None]), rtol=1e-10, atol=1e-10
    )
    labels = jnp.array([0, 3, 1, 1, 2, 0, 3])
    picked = components.likelihood_of(parameters, labels).log_prob(x)
    np.testing.assert_allclose(picked, by_features[jnp.arange(7), labels], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_expected_coefficients_are_posterior_means_of_coefficients():
    """20 000 draws of the posterior.

    Each coefficient within 5 standard errors (false alarms below 1e-5 for 12).
    """
    components = prior(2, excess=3.0)
    x = np.random.default_rng(3).normal(size=(2, 20, 2))
    posterior = components.posterior(components.features(x).sum(axis=1))

    def draw(key):
        precision_key, loc_key = jax.random.split(key)
        values = {"precisions": posterior.conditionals({})["precisions"].sample(precision_key)}
        values["locs"] = posterior.conditionals(values)["locs"].sample(loc_key)
        return components.coefficients(values)

    draws = jax.vmap(draw)(jax.random.split(jax.random.key(0), 20_000))
    z = (draws.mean(axis=0) - components.expected_coefficients(posterior)) / (
        draws.std(axis=0) / np.sqrt(20_000)
    )
    assert np.abs(z).max() < 5
    planted = components.expected_coefficients(
        posterior.replaced(degrees_of_freedom=posterior.degrees_of_freedom + 1)
    )
    assert np.abs((draws.mean(axis=0) - planted) / (draws.std(axis=0) / np.sqrt(20_000))).max() > 5


def test_a_component_without_rows_is_exactly_the_prior():
    components = prior(2)
    empty = components.posterior(jnp.zeros((1, 6)))
    for name in components.posterior_dims:
        np.testing.assert_allclose(getattr(empty, name)[0], getattr(components, name), rtol=1e-14)
    np.testing.assert_allclose(components.log_evidence(jnp.zeros(6)), 0.0, atol=1e-14)  # as the fields above


def test_posterior_is_the_textbook_one():
    components = prior(2)
    x = np.random.default_rng(4).normal(size=(9, 2))
    posterior = components.posterior(components.features(x).sum(axis=0))
    mean, n, beta = x.mean(axis=0), len(x), float(components.mean_precision)
    gap = mean - components.loc
    rate = (
        np.linalg.inv(components.scale_matrix)
        + (x - mean).T @ (x - mean)
        + beta * n / (beta + n) * np.outer(gap, gap)
    )
    np.testing.assert_allclose(posterior.loc, (beta * components.loc + n * mean) / (beta + n), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(posterior.scale_matrix), rate, rtol=1e-10)
    assert posterior.degrees_of_freedom == components.degrees_of_freedom + n
    assert posterior.mean_precision == beta + n


def test_default_prior_is_reading_d():
    x = np.random.default_rng(5).normal(size=(40, 3)) * [1.0, 10.0, 0.1]
    components = GaussianWishart.from_data(x)
    precision = components.mean_precision * components.degrees_of_freedom * components.scale_matrix
    np.testing.assert_allclose(precision, np.linalg.inv(np.cov(x.T)), rtol=1e-9)
    assert components.mean_precision == 0.01 and components.degrees_of_freedom == 3
    stronger = GaussianWishart.from_data(x, mean_precision=0.1, degrees_of_freedom=5)
    np.testing.assert_allclose(stronger.scale_matrix * 0.5, components.scale_matrix * 0.03, rtol=1e-9)


def test_collinear_columns_get_a_ridge_and_a_warning():
    x = np.random.default_rng(6).normal(size=(20, 2))
    told = (
        "the columns 0, 1, 2 of x are collinear: .*; leave one of them out, np.delete.x, 2, axis=1., or give"
    )
    with pytest.warns(UserWarning, match=told):
        components = GaussianWishart.from_data(np.column_stack([x, x @ [1.0, 1.0]]))
    assert np.linalg.eigvalsh(components.scale_matrix)[0] > 0
    with pytest.warns(
        UserWarning, match="the columns of x are collinear: .*; leave out redundant columns, or"
    ):
        GaussianWishart.from_data(np.column_stack([x, x, x @ [1.0, 1.0]]))


def _shares(decimals, noise=0.0):
    """Three shares of a whole, of which the last may be off by so much more than was rounded away."""
    rng = np.random.default_rng(11)
    cells = rng.dirichlet([6.0, 3.0, 2.0], 80)
    cells[:, 2] += noise * rng.normal(size=80)
    table = pd.DataFrame(np.round(cells, decimals), columns=["rent", "food", "rest"])
    return table.assign(age=np.round(rng.normal(40, 9, 80), 1))[["rent", "age", "food", "rest"]]


@pytest.mark.parametrize("decimals", [2, 4])
def test_columns_that_add_up_but_for_rounding_are_named(decimals):
    """Such a mixture found clusters of what was rounded off, and its bound fell; nothing said why."""
    named = "columns 'rent', 'food', 'rest' of x .* rounded off: leave one of them out, x.drop.columns='rest'"
    with pytest.warns(UserWarning, match=named):
        GaussianWishart.from_data(_shares(decimals))
    with pytest.warns(UserWarning, match="columns 0, 2, 3 of x .* np.delete"):
        GaussianWishart.from_data(1000.0 * _shares(decimals).to_numpy())
    GaussianWishart.from_data(_shares(decimals, noise=2.0 * 10.0**-decimals))  # warnings fail
    rng = np.random.default_rng(0)
    GaussianWishart.from_data(
        np.round(rng.normal(size=(80, 3)) + rng.normal(size=(80, 1)))
    )  # coarse, no more


@pytest.mark.parametrize(
    ("cells", "step"),
    [([0.25, 1.5, np.nan], 0.01), ([3.0, -7.0], 1.0), ([1e6, 3e6], 1e6), ([1 / 3, 0.1], 0.0), ([7.1], 0.1)],
)
def test_decimals_are_those_that_all_cells_end_within(cells, step):
    assert decimal_step(np.array(cells)) == pytest.approx(step, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"degrees_of_freedom": 1.0}, r"degrees_of_freedom must exceed num_features - 1 = 1"),
        ({"mean_precision": 0.0}, "mean_precision must be a positive number"),
        ({"scale_matrix": np.eye(3)}, r"scale_matrix must have shape \(2, 2\)"),
        ({"scale_matrix": -np.eye(2)}, "symmetric and positive definite"),
        ({"scale_matrix": [[1.0, 0.5], [0.0, 1.0]]}, "symmetric and positive definite"),
        ({"loc": [np.nan, 0.0]}, "loc must be finite"),
        ({"loc": 0.0}, r"loc must have shape \(num_features,\)"),
    ],
)
def test_fields_outside_their_domain_are_refused(fields, message):
    good = {"loc": [0.0, 0.0], "mean_precision": 1.0, "scale_matrix": np.eye(2), "degrees_of_freedom": 2.0}
    with pytest.raises(ValueError, match=message):
        GaussianWishart(**(good | fields))
