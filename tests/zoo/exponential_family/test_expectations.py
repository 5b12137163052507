"""Missing cells: expectation and deviation against quadrature over the latents of the exact posterior."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import inference
import zoo
from inference.precision import in_precision
from zoo.answers import answer_of, start_of
from zoo.exponential_family import (
    Bernoulli,
    Binomial,
    ByColumn,
    Categorical,
    Exponential,
    GammaWithShape,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from zoo.exponential_family.expectations import unit_nodes
from zoo.exponential_family.local_pca import (
    LocalPCA,
    cells_of_prior,
    expected_cells,
    gaussian_latents,
    laplace_latents,
)
from zoo.exponential_family.natural_params import RowMode, row_means, row_modes

D = 6
MODEL = {name: zoo.EPCA(family=name, num_latents=1, num_features=D) for name in ("bernoulli", "poisson")}
SEEN = np.arange(D) < 2


def predicted(model, values, x, **options):
    with in_precision():
        found = jax.jit(lambda v, y: model.predicted(v, y, **options))(
            jax.tree.map(jnp.asarray, values), jnp.asarray(x)
        )
    return np.asarray(found[0]), np.sqrt(np.asarray(found[1]))


def by_quadrature(log_cell, mean, variance, values, row, width=12.0):
    """Expectation and deviation of all cells on a grid over one latent, N(0, 1) before the row was seen."""
    u = np.linspace(-width, width, 20001)
    theta = u[:, None] * values["loadings"][:, 0] + values["loc"]
    seen = ~np.isnan(row)
    with np.errstate(all="ignore"):
        log_w = stats.norm.logpdf(u) + np.where(seen, log_cell(theta, np.where(seen, row, 1.0)), 0.0).sum(1)
    w = np.exp(log_w - log_w.max())
    w = w / w.sum()
    with np.errstate(all="ignore"):
        m, v = np.where(w[:, None] > 0, mean(theta), 0.0), np.where(w[:, None] > 0, variance(theta), 0.0)
    first = w @ m
    return first, np.sqrt(w @ (v + (m - first) ** 2))


FAMILIES = {
    "bernoulli": (
        lambda t, x: x * t - np.logaddexp(0, t),
        special.expit,
        lambda t: special.expit(t) * special.expit(-t),
    ),
    "poisson": (lambda t, x: x * t - np.exp(t), np.exp, np.exp),
}


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_one_latent_equals_quadrature(name, scale):
    """Two cells, none, or all but one seen; loadings of deviation 1 and 2.5. Measured: 2e-4 at most."""
    rng = np.random.default_rng(0)
    values = {"loadings": scale * rng.normal(size=(D, 1)), "loc": rng.normal(size=D) - 0.5}
    theta = rng.normal(size=(3, 1)) @ values["loadings"].T + values["loc"]
    x = (rng.uniform(size=theta.shape) < special.expit(theta)) * 1.0
    if name == "poisson":
        x = rng.poisson(np.exp(theta)) * 1.0
    x[0, ~SEEN], x[1], x[2, -1] = np.nan, np.nan, np.nan
    mean, deviation = predicted(MODEL[name], values, x)
    for row, m, s in zip(x, mean, deviation, strict=True):
        exact = by_quadrature(*FAMILIES[name], values, row)
        hidden = np.isnan(row)
        np.testing.assert_allclose(m[hidden], exact[0][hidden], rtol=2e-3)
        np.testing.assert_allclose(s[hidden], exact[1][hidden], rtol=5e-3)
        np.testing.assert_array_equal(s[~hidden], 0.0)


def test_the_mean_at_the_mode_would_fail():
    """The planted fault: what was predicted before is off by more than half here."""
    rng = np.random.default_rng(0)
    values = {"loadings": 2.5 * rng.normal(size=(D, 1)), "loc": np.zeros(D)}
    row = np.where(SEEN, 0.0, np.nan)
    exact, _ = by_quadrature(*FAMILIES["poisson"], values, row)
    with in_precision():
        given = jax.tree.map(jnp.asarray, values)
        u = MODEL["poisson"].scores(given, jnp.asarray(row[None]))
    plugged = np.exp(np.asarray(u) @ values["loadings"].T + values["loc"])[0]
    assert (plugged[~SEEN] / exact[~SEEN]).min() < 0.5


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_scores_of_a_draw_are_means_and_not_modes(name):
    """One latent against quadrature: .0023 and .0041 at most, the modes .016 and .078."""
    rng = np.random.default_rng(0)
    values = {"loadings": 1.5 * rng.normal(size=(D, 1)), "loc": rng.normal(size=D) - 0.5}
    theta = rng.normal(size=(20, 1)) @ values["loadings"].T + values["loc"]
    x = (
        rng.poisson(np.exp(theta))
        if name == "poisson"
        else rng.uniform(size=theta.shape) < special.expit(theta)
    ) * 1.0
    x[:5, ~SEEN] = np.nan
    with in_precision():
        given, rows = jax.tree.map(jnp.asarray, values), jnp.asarray(x)
        means = np.asarray(answer_of(MODEL[name], "scores_of_draw", given, rows))[:, 0]
        modes = np.asarray(MODEL[name].scores(given, rows))[:, 0]
    latents = np.linspace(-9, 9, 20001)
    at = latents[:, None] * values["loadings"][:, 0] + values["loc"]
    exact = []
    for row in x:
        seen = ~np.isnan(row)
        weights = special.softmax(FAMILIES[name][0](at[:, seen], row[seen]).sum(1) - 0.5 * latents**2)
        exact.append(weights @ latents)
    assert np.abs(means - exact).max() < 0.25 * np.abs(modes - exact).max()


def test_the_mean_of_a_gamma_density_is_exact():
    """Latents under one exponential cell without a prior: shape a and rate b, mode (a - 1) / b."""
    shape, rates = 7.0, jnp.asarray([[0.5], [3.0]])

    def log_joint(u, rate):
        return jnp.sum((shape - 1) * jnp.log(u) - rate * u)

    with in_precision():
        mode = (shape - 1) / rates
        modes = RowMode(mode, (mode**2 / (shape - 1))[:, None], jnp.zeros(2))
        np.testing.assert_allclose(row_means(log_joint, rates, modes), shape / rates, rtol=1e-12)


@pytest.mark.slow
def test_exponential_cells_equal_quadrature_where_the_domain_is_far():
    """Means four deviations or more from the end of the domain: plain averages. Nearer, a finite number."""
    values = {"loadings": np.array([[0.1], [-0.2], [0.15], [0.1], [-0.1], [0.9]]), "loc": -np.ones(D)}
    model = zoo.EPCA(family="exponential", num_latents=1, num_features=D)
    row = np.where(SEEN, [0.5, 2.0, 0, 0, 0, 0], np.nan)
    mean, deviation = predicted(model, values, row[None])

    def log_cell(theta, x):
        return np.where(theta < 0, x * theta + np.log(np.maximum(-theta, 1e-300)), -np.inf)

    exact = by_quadrature(log_cell, lambda t: -1 / t, lambda t: 1 / t**2, values, row, width=6.0)
    far = np.array([2, 3, 4])
    np.testing.assert_allclose(mean[0, far], exact[0][far], rtol=1e-3)
    np.testing.assert_allclose(deviation[0, far], exact[1][far], rtol=5e-3)
    assert 1.0 < mean[0, 5] < 10.0 and np.isfinite(deviation[0, 5])


@pytest.mark.slow
def test_a_rate_with_a_gamma_distribution_is_near_its_exact_mean():
    """Log-normal in the place of a gamma of shape 4, whose mean of 1 / rate is 1/3: 1.6 % (docstring)."""
    rate = stats.gamma.ppf((np.arange(4000) + 0.5) / 4000, 4.0)
    theta, weights = jnp.asarray(-rate[:, None]), jnp.full(4000, 1 / 4000)
    mean, _ = zoo.exponential_family.Exponential().expected_cells(theta, weights, None, None)
    np.testing.assert_allclose(mean, 1 / 3, rtol=0.02)
    counts, _ = NegativeBinomial(2.0).expected_cells(theta - 3.0, weights, None, None)  # far inside
    np.testing.assert_allclose(counts, 2 * np.mean(1 / np.expm1(rate + 3.0)), rtol=1e-3)


def test_the_share_of_the_tail_is_that_of_the_log_normal():
    """Rows without a cell: theta ~ N(loc, s^2), and Phi(s - 3) of E[e^theta] comes from beyond 3 s.

    Just below and above a tenth, for counts and in a mixed table; a cell that was seen has no tail.
    """
    s = 3.0 + stats.norm.ppf(0.1) + np.array([-0.3, -0.02, 0.02, 0.3])
    values = {"loadings": s[:, None], "loc": np.array([-3.0, 0.0, 2.0, 1.0])}
    row = np.full((1, 4), np.nan)
    u = np.linspace(-12, 12, 200001)
    mass = stats.norm.pdf(u)[:, None] * np.exp(u[:, None] * s)
    share = mass[u > 3].sum(0) / mass.sum(0)
    with in_precision():
        counts = zoo.EPCA(family="poisson", num_latents=1, num_features=4)
        mean, variance = jax.jit(lambda y: counts.predicted(values, y))(jnp.asarray(row))
        np.testing.assert_array_equal(
            answer_of(counts, "rests_on_tail", values, mean, variance, row)[0], share > 0.1
        )
        mixed = zoo.EPCA(
            family=("poisson", "bernoulli", "poisson", Gaussian()), num_latents=1, num_features=4
        )
        mean, variance = jax.jit(lambda y: mixed.predicted(values, y))(jnp.asarray(row))
        found = answer_of(mixed, "rests_on_tail", values, mean, variance, row)[0]
        np.testing.assert_array_equal(found, [False, False, True, False])
        assert not answer_of(mixed, "rests_on_tail", values, mean, 0.0 * variance, row).any()


@pytest.mark.parametrize("family", [Poisson(), GammaWithShape(2.5), Exponential(), NegativeBinomial(1.5)])
def test_mean_squares_are_recovered_from_mean_and_variance(family):
    theta = -1.0 - 0.3 * np.random.default_rng(0).gamma(4.0, size=(500, 3))
    with in_precision():
        theta, weights = jnp.asarray(theta), jnp.full(500, 1 / 500)
        found = family.mean_square_of_means(*family.expected_cells(theta, weights, None, None))
        np.testing.assert_allclose(found, jnp.mean(family.mean(theta) ** 2, axis=0), rtol=1e-6)


LAWS = {  # a family and the law of its cells at natural parameters, by SciPy
    "gaussian": (Gaussian(2.0), lambda t: stats.norm(t, 2**0.5)),
    "bernoulli": (Bernoulli(), lambda t: stats.bernoulli(special.expit(t))),
    "binomial": (Binomial(7), lambda t: stats.binom(7, special.expit(t))),
    "poisson": (Poisson(), lambda t: stats.poisson(np.exp(t))),
    "exponential": (Exponential(), lambda t: stats.expon(scale=-1 / t)),
    "gamma": (GammaWithShape(2.5), lambda t: stats.gamma(2.5, scale=-1 / t)),
    "negative_binomial": (NegativeBinomial(2.5), lambda t: stats.nbinom(2.5, -np.expm1(t))),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_variance_of_a_cell_is_the_mean_of_its_variances_and_the_variance_of_its_means(name):
    """Three nodes of natural parameters, of unequal weights; also as one column of a mixed table."""
    family, law = LAWS[name]
    theta, weights = np.array([[-1.3, -0.9], [-0.9, -1.7], [-1.1, -1.2]]), np.array([0.5, 0.2, 0.3])
    means, variances = law(theta).mean(), law(theta).var()
    mean = weights @ means
    with in_precision():
        found = family.expected_cells(jnp.asarray(theta), jnp.asarray(weights), None, None)
        table = ByColumn.of((Gaussian(0.3), family, family))
        beside = jnp.asarray(np.column_stack([np.ones(3), theta]))
        mixed = table.expected_cells(beside, jnp.asarray(weights), None, None)
    for cells in (found, (mixed[0][1:], mixed[1][1:])):
        np.testing.assert_allclose(cells[0], mean, rtol=1e-10)
        np.testing.assert_allclose(cells[1], weights @ variances + weights @ (means - mean) ** 2, rtol=1e-10)
    np.testing.assert_allclose([mixed[0][0], mixed[1][0]], [1.0, 0.3], rtol=1e-12)


@pytest.mark.parametrize("name", LAWS)
def test_the_density_of_a_cell_of_a_normal_parameter_is_the_integral_over_it(name):
    """By the trapezoid rule, from seven deviations below to seven above."""
    family, law = LAWS[name]
    theta, cells = np.array([-1.3, -0.6]), np.array([1.0, 0.0])
    deviation = np.array([0.15, 0.07]) if family.theta_is_negative else np.array([0.9, 0.4])
    cells = np.array([0.4, 2.0]) if family.cell_units == "scale" else cells
    nodes = theta + deviation * np.linspace(-7, 7, 1401)[:, None]
    density = getattr(law(nodes), "pmf" if hasattr(law(nodes).dist, "pmf") else "pdf")(cells)
    expected = np.log(np.trapezoid(density * stats.norm.pdf(nodes, theta, deviation), nodes, axis=0))
    with in_precision():
        given = (jnp.asarray(values) for values in (theta, deviation**2, cells))
        np.testing.assert_allclose(family.log_marginal(*given, None), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:epca by map has not converged")
def test_predictions_that_rest_on_the_tail_are_warned_of():
    """Of a point estimate whose loadings are long, once a call, and not of one whose loadings are short."""
    counts = np.random.default_rng(0).poisson(2.0, size=(15, 4)) * 1.0
    table = pd.DataFrame(counts, columns=["a", "b", "c", "d"])
    tree = inference.fit(zoo.EPCA(family="poisson", num_latents=1), table, method="map", max_iterations=2)
    new = pd.DataFrame([[1.0, 2.0, np.nan, np.nan]] * 3, columns=table.columns)
    own = tree["variational"].to_dataset()
    for length, is_warned in ((0.3, False), (4.0, True)):
        loadings = np.array([0.01, 0.01, 0.1, 1.0])[:, None] * length
        tree["variational"] = own.assign(loadings=(own["loadings"].dims, loadings))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            inference.predict(tree, new)
        messages = [str(warning.message) for warning in caught]
        assert len(messages) == is_warned
        if is_warned:
            assert "of 3 of 6 missing cells (columns d)" in messages[0] and "fit by vb or nuts" in messages[0]


@pytest.mark.slow
def test_clusters_that_differ_are_no_tail():
    """A rare cluster of large counts: a wide mixture, and each component's expectation is sure."""
    model = zoo.DEPCAM(family="poisson", num_components=2, num_latents=1, num_features=3, offset=True)
    with in_precision():
        values = start_of(model, jax.random.key(0), jnp.ones((4, 3)))
        row = jnp.full((1, 3), jnp.nan)
        values["offsets"] = jnp.asarray([[0.0] * 3, [8.0] * 3])
        for scale, expected in ((0.1, False), (2.5, True)):
            own = values | {"scales": jnp.full_like(values["scales"], scale)}
            mean, variance = model.predicted(own, row)
            found = answer_of(model, "rests_on_tail", own, mean, variance, row)
            assert bool(found.any()) == expected


@pytest.mark.slow
def test_mixed_columns_classes_and_levels_equal_quadrature():
    """A class is the most probable one by averaged probabilities; levels are averaged as numbers."""
    families = (Gaussian(0.5), "poisson", Categorical(3), Ordinal(4))
    model = zoo.EPCA(family=families, num_latents=1, num_features=4)
    values = {
        "loadings": np.array([[1.0], [0.5], [2.0], [-2.0], [1.5]]),
        "loc": np.array([0.2, 0.3, 0.4, 0.1, 0.0]),
        "cut_points": np.array([[-1.0, 0.2, 1.0]]),
    }
    row = np.array([[np.nan, 2.0, np.nan, np.nan]])
    mean, deviation = predicted(model, values, row)
    u = np.linspace(-10, 10, 20001)
    theta = u[:, None] * values["loadings"][:, 0] + values["loc"]
    w = np.exp(stats.norm.logpdf(u) + 2.0 * theta[:, 1] - np.exp(theta[:, 1]))
    w /= w.sum()
    gauss = w @ theta[:, 0]
    np.testing.assert_allclose(mean[0, 0], gauss, rtol=1e-4)
    np.testing.assert_allclose(deviation[0, 0], np.sqrt(0.5 + w @ (theta[:, 0] - gauss) ** 2), rtol=1e-3)
    logits = np.stack([np.zeros_like(u), theta[:, 2], theta[:, 3]], axis=1)
    probs = w @ special.softmax(logits, axis=1)
    assert mean[0, 2] == probs.argmax()
    np.testing.assert_allclose(deviation[0, 2] ** 2, probs.max() * (1 - probs.max()), rtol=1e-3)
    below = special.expit(values["cut_points"] - theta[:, 4:])
    whole = np.concatenate([np.zeros((u.size, 1)), below, np.ones((u.size, 1))], axis=1)
    levels = np.diff(whole, axis=1)
    expected = w @ (levels @ np.arange(1, 5))
    spread = w @ (levels @ np.arange(1, 5) ** 2) - expected**2
    np.testing.assert_allclose([mean[0, 3], deviation[0, 3]], [expected, np.sqrt(spread)], rtol=1e-3)
    with in_precision():
        found = answer_of(model, "class_probs", jax.tree.map(jnp.asarray, values), jnp.asarray(row))
    np.testing.assert_allclose(found[0, 2], probs, rtol=1e-3)


@pytest.mark.parametrize("num_latents", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_gaussian_cells_equal_ppca(num_latents):
    """At the same parameters, whatever the nodes: a grid, or quasi-random points beyond four latents."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 7)) @ rng.normal(size=(7, 7))
    tree = inference.fit(zoo.PPCA(num_latents=num_latents), x, method="closed_form")
    own = tree["variational"]
    noise = float(own["noise_variance"])
    model = zoo.EPCA(family=Gaussian(noise), num_latents=num_latents, num_features=7)
    values = {"loadings": own["loadings"].to_numpy(), "loc": own["loc"].to_numpy()}
    holes = np.where(rng.uniform(size=(6, 7)) < 0.5, np.nan, x[:6])
    holes[0] = np.nan
    mean, deviation = predicted(model, values, holes)
    other = inference.predict(tree, holes)
    np.testing.assert_allclose(mean, other, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(deviation, other.standard_deviation, rtol=1e-8)


@pytest.mark.parametrize("num_latents", [1, 2, 3, 4, 5, 30])
def test_nodes_have_mean_zero_and_covariance_one(num_latents):
    points, weights, _ = unit_nodes(num_latents)
    np.testing.assert_allclose(weights @ points, 0.0, atol=1e-12)
    np.testing.assert_allclose((points * weights[:, None]).T @ points, np.eye(num_latents), atol=1e-11)


COUNTS = np.array([[0.0, 1, np.nan], [3, 0, 7], [30000, 30000, 30000], [1e6, 1e6, 1e6], [0, 1e6, 1e12]])


def test_the_mode_of_a_row_is_found_however_far_it_is():
    """Poisson rows at a fitted mean of about three, counts up to 1e12; the exact mode by bisection."""
    values = {"loadings": np.ones((3, 1)), "loc": np.full(3, 0.5)}
    model = zoo.EPCA(family="poisson", num_latents=1, num_features=3)
    with in_precision():
        found = model.scores(jax.tree.map(jnp.asarray, values), jnp.asarray(COUNTS))
    for row, u in zip(COUNTS, np.asarray(found)[:, 0], strict=True):
        low, high = -60.0, 60.0
        for _ in range(200):
            middle = 0.5 * (low + high)
            slope = np.nansum(row - np.where(np.isnan(row), 0.0, np.exp(middle + 0.5))) - middle
            low, high = (middle, high) if slope > 0 else (low, middle)
        np.testing.assert_allclose(u, middle, rtol=1e-9, atol=1e-9)


def test_the_mode_of_large_counts_is_found():
    """The rise of the log joint is lost in the rounding of terms of c log c nats: some draws gave NaN."""
    rng = np.random.default_rng(0)
    row = jnp.array([[9.0, 1.4e6, 3e9, 2.4e6, 1.4e6, 2.2e6]])
    loadings = np.array([0.12, -0.33, 0.4, 0.08, -0.36, 0.05]) * rng.normal(1.0, 0.3, (400, 6))
    locs = np.array([2.3, 12.2, 17.9, 15.1, 12.0, 14.9]) + 0.3 * rng.normal(size=(400, 6))

    def of_draw(draw):
        def log_joint(u, row):
            return jnp.sum(Poisson().log_density(draw[1] + draw[0] * u, row)) - 0.5 * jnp.sum(u**2)

        mode = row_modes(log_joint, row, 1)
        return mode.latents[0, 0], jax.grad(log_joint)(mode.latents[0], row[0])[0], mode.covariance[0, 0, 0]

    with in_precision():
        modes, slopes, variances = jax.lax.map(of_draw, (jnp.asarray(loadings), jnp.asarray(locs)))
    assert np.isfinite(modes).all()
    assert (np.abs(slopes) * np.sqrt(variances) < 2e-3).all()


def test_a_mode_that_is_not_there_is_not_made_up():
    """A planted fault: a log joint that has no maximum gives NaN, not the place where steps ran out."""
    with in_precision():
        mode = row_modes(lambda u, row: jnp.sum(u * row + 1e-3 * jnp.tanh(u)), jnp.ones((2, 1)), 1)
    assert np.isnan(mode.latents).all() and np.isnan(mode.log_integral).all()


def test_rows_without_an_answer_are_named():
    x = np.random.default_rng(0).poisson(2.0, (15, 4)) * 1.0  # of the shape that is fitted above
    tree = inference.fit(zoo.EPCA(family="poisson", num_latents=1), x, method="map", max_iterations=40)
    tree = tree.copy()
    stored = tree["variational"].to_dataset()
    stored["loadings"] = stored["loadings"] * 0 + np.nan
    tree["variational"] = stored
    with pytest.warns(UserWarning, match="2 of 2 rows have NaN .* rows 0, 1"):
        inference.transform(tree, x[:2])


def test_latents_inside_the_domain_are_found_from_means_outside_it():
    """Draws of a sampler may have a mean at theta > 0, and rows whose latents make up for it."""
    values = {"loadings": np.array([[1.0], [1.5]]), "loc": np.array([0.2, -0.5])}
    model = zoo.EPCA(family="exponential", num_latents=1, num_features=2)
    with in_precision():
        rows = model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray([[1.0, 2.0]]))
    u = np.linspace(-12, -0.2, 200001)
    theta = u[:, None] * values["loadings"][:, 0] + values["loc"]
    with np.errstate(all="ignore"):
        cells = np.where(theta < 0, theta * [1.0, 2.0] + np.log(-theta), -np.inf).sum(1)
    exact = np.log(np.trapezoid(np.exp(stats.norm.logpdf(u) + cells), u))
    assert abs(float(rows[0]) - exact) < 0.2  # Laplace's error


def test_cells_of_rows_of_which_nothing_is_known():
    """Of counts in closed form, E exp(theta) over normal theta; of 0/1 by quadrature; of numbers exact."""
    rng = np.random.default_rng(2)
    loadings, offsets = 0.5 * rng.normal(size=(2, D, 1)), rng.normal(size=(2, D))
    variance = loadings[..., 0] ** 2
    mean = np.exp(offsets + variance / 2)
    u, w = np.polynomial.hermite_e.hermegauss(60)
    prob = special.expit(offsets[..., None] + loadings * u) @ (w / w.sum())
    expected = {
        Poisson(): (mean, mean + mean**2 * np.expm1(variance)),
        zoo.exponential_family.Bernoulli(): (prob, prob * (1 - prob)),
        Gaussian(noise_variance=0.5): (offsets, variance + 0.5),
    }
    for family, moments in expected.items():
        with in_precision():
            found = cells_of_prior(LocalPCA(family, jnp.asarray(loadings), jnp.asarray(offsets)))
        np.testing.assert_allclose(found[0], moments[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], moments[1], rtol=1e-6)


@pytest.mark.slow
def test_cells_of_the_prior_are_those_of_rows_without_an_observed_cell():
    rng = np.random.default_rng(3)
    local = LocalPCA(
        Poisson(), jnp.asarray(0.4 * rng.normal(size=(2, D, 2))), jnp.asarray(rng.normal(size=(2, D)))
    )
    nothing = jnp.full((1, D), jnp.nan)
    with in_precision():
        slow = expected_cells(local, nothing, laplace_latents(local, nothing))
        quick = cells_of_prior(local)
    for one, other in zip(slow, quick, strict=True):
        np.testing.assert_allclose(one[0], other, rtol=1e-6)


def test_latents_of_gaussian_cells_are_those_of_dense_normals():
    """Two components; log density of the seen cells, mean and covariance of the latents given them."""
    rng = np.random.default_rng(4)
    loadings, offsets, x = rng.normal(size=(2, 4, 2)), rng.normal(size=(2, 4)), rng.normal(size=(3, 4))
    x[1, [0, 3]] = x[2] = np.nan
    with in_precision():
        local = LocalPCA(Gaussian(0.4), jnp.asarray(loadings), jnp.asarray(offsets))
        modes = gaussian_latents(local, jnp.asarray(x))
    for n, k in np.ndindex(3, 2):
        seen = ~np.isnan(x[n])
        w, away = loadings[k][seen], x[n, seen] - offsets[k, seen]
        covariance = w @ w.T + 0.4 * np.eye(seen.sum())
        density = stats.multivariate_normal.logpdf(away, cov=covariance) if seen.any() else 0.0
        slope = w.T @ np.linalg.inv(covariance)
        np.testing.assert_allclose(modes.log_integral[n, k], density, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(modes.latents[n, k], slope @ away, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(modes.covariance[n, k], np.eye(2) - slope @ w, rtol=1e-10, atol=1e-12)
