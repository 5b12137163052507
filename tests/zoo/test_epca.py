"""EPCA's program: the joint density by hand, missing cells, the joint prior's guards, new rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, linalg, stats
from scipy.special import softmax

import inference
import zoo
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import answer_of, start_of
from zoo.exponential_family import Bernoulli, Categorical, Gaussian, Ordinal

ROWS, FEATURES = 7, 4


def cells(family, seed=0):
    rng = np.random.default_rng(seed)
    drawn = {
        "gaussian": rng.normal(size=(ROWS, FEATURES)),
        "bernoulli": rng.integers(0, 2, (ROWS, FEATURES)).astype(float),
        "poisson": rng.poisson(2.0, (ROWS, FEATURES)).astype(float),
        "exponential": rng.exponential(size=(ROWS, FEATURES)),
        "ordinal": rng.integers(1, 6, (ROWS, FEATURES)).astype(float),
        "categorical": rng.integers(0, 3, (ROWS, FEATURES)).astype(float),
    }[family]
    drawn[2, 1] = drawn[5, 3] = np.nan
    return drawn


def model_of(family, x, **fields):
    given = {"categorical": Categorical(3), "ordinal": Ordinal(5)}.get(family, family)
    return zoo.EPCA.from_data(x, family=given, num_latents=2, **fields)


def start(model, x, seed=0):
    with in_precision():
        return jax.tree.map(np.asarray, start_of(model, jax.random.key(seed), jnp.asarray(x)))


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "exponential"])
@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_joint_density_is_the_one_on_paper(family, beta):
    """Equation 37 in the balanced scale, at two points: Gaussians, kernel over all cells, observed cells."""
    x = cells(family)
    model = model_of(family, x, beta=beta, latent_variance=0.5, loading_variance=2.0)
    scale = ((0.5 * 2.0) ** 0.5 / (1 - beta)) ** 0.5
    unit = np.ones(FEATURES) if model.natural_unit is None else model.natural_unit
    for seed in range(2):
        values = start(model, x, seed)
        theta = values["latents"] @ values["loadings"].T + values["loc"]
        with in_precision():
            g = np.asarray(model.family.log_partition(jnp.asarray(theta)))
            base = np.asarray(model.family.log_base_measure(jnp.asarray(np.nan_to_num(x, nan=1.0))))
        expected = stats.norm.logpdf(values["latents"], 0, scale).sum()
        expected += stats.norm.logpdf(values["loadings"], 0, scale * unit[:, None]).sum()
        expected += stats.norm.logpdf(values["loc"], 0, 10.0 * unit).sum()
        expected += np.nansum(base + x * theta - g)
        if beta:
            lam, nu = model.conjugate
            expected += beta * (lam * theta - nu * g).sum()
        np.testing.assert_allclose(log_joint(model, values, x), expected, rtol=1e-11)


def paper_in_units(model, values, x, unit, noise, precision=1.0):
    """By hand in the units of the data: cells about theta, priors in units of the columns about loc_mean."""
    theta = values["latents"] @ values["loadings"].T + values["loc"]
    found = np.nansum(stats.norm.logpdf(x, theta, noise**0.5)) + stats.norm.logpdf(values["latents"]).sum()
    found += stats.norm.logpdf(
        values["loadings"], 0, unit * np.ones((FEATURES, 1)) / np.sqrt(precision)
    ).sum()
    return found + stats.norm.logpdf(values["loc"], model.loc_mean, 10.0 * np.ravel(unit)).sum()


def test_cells_of_unknown_noise_are_stated_in_their_unit():
    x = cells("gaussian") * 50.0 + 7.0
    model, u2 = model_of(Gaussian(None), x, ard=True), np.nanvar(cells("gaussian") * 50.0, axis=0).mean()
    values, precision = start(model, x), np.array([0.5, 3.0])
    values |= {"noise_variance": np.array(0.4 * u2), "loading_precision": precision}
    wanted = paper_in_units(model, values, x, u2**0.5, 0.4 * u2, precision)
    wanted += stats.invgamma.logpdf(0.4 * u2, 1, scale=u2) + stats.expon.logpdf(precision).sum()
    np.testing.assert_allclose(log_joint(model, values, x), wanted, rtol=1e-11)


def test_standardised_columns_are_stated_in_their_deviations():
    x = cells("gaussian") * [1.0, 10.0, 100.0, 1000.0] + 3.0
    model, s = model_of(Gaussian(None), x, standardize=True), np.nanstd(x, axis=0)
    values = start(model, x)
    wanted = paper_in_units(model, values, x, s[:, None], values["noise_variance"] * s**2)
    wanted += stats.invgamma.logpdf(values["noise_variance"], 1)
    np.testing.assert_allclose(log_joint(model, values, x), wanted, rtol=1e-11)


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("family", ["bernoulli", "ordinal", "categorical"])
def test_what_is_hidden_has_no_influence(family):
    """Rows without cells cost nothing but their latents' prior; gradients are finite where cells are NaN."""
    x = cells(family)
    model = model_of(family, x)
    values = start(model, x)
    without = np.where(np.arange(ROWS)[:, None] == 3, np.nan, x)
    with in_precision():
        rows = np.asarray(model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(without)))
        whole = np.asarray(model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(x)))
        gradient = jax.jit(jax.grad(lambda v: log_joint(model, v, x)))(jax.tree.map(jnp.asarray, values))
    assert rows[3] == 0.0 and whole[3] < 0
    np.testing.assert_array_equal(np.delete(rows, 3), np.delete(whole, 3))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.cases_by_default(2)
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "ordinal", "categorical"])
def test_a_proper_prior_draws_cells_of_the_family(family):
    model = model_of(family, cells(family), loc_variance=1.0)
    with in_precision():
        drawn = np.asarray(jax.jit(lambda key: _draw(model, key))(jax.random.key(0)))
    assert drawn.shape == (11, FEATURES)
    model.family.check(drawn)


def _draw(model, key):
    import numpyro

    return numpyro.handlers.seed(model, key)(num_observations=11)


@pytest.mark.parametrize(("family", "beta"), [("bernoulli", 0.0), ("poisson", 0.3)])
def test_density_of_a_new_row_is_the_integral_over_its_latents(family, beta):
    """Two latents by quadrature on a grid; Laplace's error is far below what a wrong normaliser gives."""
    x = cells(family)
    model = model_of(family, x, beta=beta, **({"conjugate": (6.0, 2.0)} if beta else {}))
    values = {name: value for name, value in start(model, x).items() if name != "latents"}
    row = x[:1]
    grid = np.linspace(-8, 8, 321)
    u = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    with in_precision():
        inside = jax.tree.map(jnp.asarray, values)
        found = float(model.log_likelihood(inside, jnp.asarray(row))[0])
        cell = model.cells(inside | {"latents": jnp.asarray(u)})
        weight = np.asarray(cell.log_prob(jnp.broadcast_to(row, (len(u), FEATURES))))
        prior = stats.norm.logpdf(u, 0, (1 / (1 - beta)) ** 0.5).sum(-1)
        if beta:
            prior = prior + beta * np.asarray(model.family.log_kernel(cell.theta, *model.conjugate)).sum(-1)
    total, normaliser = (
        np.log(integrate.simpson(integrate.simpson(np.exp(h.reshape(321, 321)), x=grid), x=grid))
        for h in (weight + prior, prior)
    )
    assert abs(found - (total - normaliser)) < 0.03
    assert abs(total - found) > 0.1 or not beta  # the kernel's normaliser matters


def test_new_gaussian_rows_are_exact():
    """With Gaussian cells Laplace is exact: the density of a new row is that of factor analysis."""
    x = cells("gaussian")
    model = model_of("gaussian", x)
    values = {name: value for name, value in start(model, x).items() if name != "latents"}
    new = np.random.default_rng(1).normal(size=(3, FEATURES))
    covariance = values["loadings"] @ values["loadings"].T + np.eye(FEATURES)
    with in_precision():
        found = model.log_likelihood(jax.tree.map(jnp.asarray, values), jnp.asarray(new))
    expected = stats.multivariate_normal(values["loc"], covariance).logpdf(new)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beta": -0.1}, r"beta must lie in \[0, 1\]; got -0.1"),
        ({"beta": 0.4, "conjugate": (-1.0, 1.0)}, "the conjugate kernel of Bernoulli has no maximum"),
        ({"beta": 0.4, "family": "ordinal"}, "Ordinal has no conjugate kernel"),
        ({"beta": 0.4, "ard": True}, "ard=True goes with beta=0"),
        ({"num_latents": 0}, "num_latents must be at least 1; got 0"),
        ({"loading_variance": -1.0}, "loading_variance must be a positive number"),
        ({"family": "cauchy"}, "no family is called 'cauchy'; there are"),
        ({"family": "poisson", "unit": 2.0}, "unit is that of Gaussian cells of unknown noise"),
        ({"family": Gaussian(None), "unit": [1.0] * 4}, "units of columns go with standardize=True"),
    ],
)
def test_fields_outside_their_domain_are_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        zoo.EPCA(num_features=4, **fields)


def test_kernels_at_the_edge_are_warned_of():
    with pytest.warns(UserWarning, match=r"not proper at conjugate=\(0, 1\)"):
        zoo.EPCA(beta=0.4, conjugate=(0.0, 1.0))
    with pytest.warns(UserWarning, match="beta=0.97 is nearly 1"):
        zoo.EPCA(beta=0.97, conjugate=(0.1, 0.2))


def test_a_prior_that_is_not_normalised_is_not_drawn_from():
    model = model_of("bernoulli", cells("bernoulli"), beta=0.4)
    assert model.prior == "unnormalised"
    with pytest.raises(ValueError, match="the prior of EPCA is unnormalised .* choose beta=0; .* samples it"):
        model(num_observations=3)
    with pytest.raises(ValueError, match="conjugate is not set"):
        zoo.EPCA(beta=0.4)(cells("bernoulli"))
    with pytest.raises(ValueError, match="num_features is not set"):
        zoo.EPCA()(num_observations=3)


def test_data_outside_the_domain_are_errors():
    x = cells("bernoulli")
    with pytest.raises(ValueError, match="num_latents must be at most the number of columns, 4; got 5"):
        zoo.EPCA(num_latents=5).check(x)
    with pytest.raises(ValueError, match="x must hold 0 or 1; row 0, column 0 is 2"):
        zoo.EPCA(num_latents=2).check(x + 2)
    assert isinstance(zoo.EPCA(family=Gaussian(None)).family, Gaussian)


def test_orthonormal_scores_are_those_of_loadings_in_standard_units():
    """The latents times the root of L'L, by SciPy, with L the loadings over each column's deviation."""
    x = cells("gaussian") * [1.0, 10.0, 100.0, 1000.0]
    model = zoo.EPCA.from_data(x, family=Gaussian(None), num_latents=2, standardize=True)
    values = start(model, x)
    with in_precision():
        given, table = jax.tree.map(jnp.asarray, values), jnp.asarray(x)
        latent, found = (np.asarray(model.scores(given, table, kind=k)) for k in ("latent", "orthonormal"))
    standard = values["loadings"] / np.nanstd(x, axis=0)[:, None]
    np.testing.assert_allclose(found, latent @ linalg.sqrtm(standard.T @ standard), rtol=1e-7)
    assert np.abs(found - latent @ linalg.sqrtm(values["loadings"].T @ values["loadings"])).max() > 1e-3


@pytest.mark.parametrize("family", [Categorical(2), Ordinal(2), (Categorical(2), Gaussian())])
def test_two_levels_are_a_bernoulli_cell(family):
    """Of two classes the odds are one natural parameter; of two ordered levels the cut point is its mean."""
    rng = np.random.default_rng(0)
    second = rng.normal(size=12) if isinstance(family, tuple) else rng.integers(0, 2, 12)
    x = np.column_stack([rng.integers(0, 2, 12), second])
    first = 1 if isinstance(family, Ordinal) else 0
    given = (Bernoulli(), Gaussian()) if isinstance(family, tuple) else Bernoulli()
    levels, bits = (zoo.EPCA(own, num_latents=1, num_features=2) for own in (family, given))
    values = {"loadings": rng.normal(size=(2, 1)), "latents": rng.normal(size=(12, 1))}
    values["loc"] = rng.normal(size=2)
    own = dict(values)
    if isinstance(family, Ordinal):
        own["cut_points"] = -own.pop("loc")[:, None]
    found, wanted = levels.cells(own).log_prob(x + first), bits.cells(values).log_prob(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_column_in_thousands_beside_counts_and_words_is_explained_in_any_unit():
    """In its own unit it was noise, its mean too: loadings and means of a variance of 1 and 100 are small."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=120)
    table = pd.DataFrame(
        {
            "revenue": 350 + 200 * size + 10 * rng.normal(size=120),
            "staff": rng.poisson(np.exp(2.5 + 0.6 * size)),
            "region": rng.choice(["north", "south"], 120),
        }
    )
    found = []
    for factor in (1.0, 1000.0):
        rows = table.assign(revenue=factor * table["revenue"])
        tree = inference.fit(zoo.EPCA(num_latents=1), rows, progress=False)
        found.append(inference.transform(tree, rows).to_numpy()[:, 0])
    assert abs(np.corrcoef(found[0], size)[0, 1]) > 0.97
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_the_explained_share_of_a_column_of_classes_is_that_of_its_indicators():
    """By latents that are known, over the classes' shares; a column that no latent moves has none."""
    rng = np.random.default_rng(0)
    model = zoo.EPCA((Categorical(3), Gaussian(), Categorical(3)), num_latents=1, num_features=3)
    loadings = np.array([[2.0], [-3.0], [0.5], [0.0], [0.0]])
    values = {"loadings": loadings, "loc": rng.normal(size=5), "latents": rng.normal(size=(50, 1))}
    ((explained, left),) = answer_of(model, "view_variances", jax.tree.map(jnp.asarray, values)).values()
    theta = values["latents"] @ loadings.T + values["loc"]
    shares = softmax(np.column_stack([np.zeros(50), theta[:, :2]]), axis=1)
    wanted = shares.var(0).sum(), (shares * (1 - shares)).mean(0).sum()
    np.testing.assert_allclose([explained[0], left[0]], wanted, rtol=1e-5)
    np.testing.assert_allclose([explained[1], left[1]], [theta[:, 2].var(), 1.0], rtol=1e-5)
    np.testing.assert_allclose(explained[2], 0.0, atol=1e-6)
    assert left[2] > 0.1


@pytest.mark.filterwarnings("ignore")
def test_a_column_of_two_words_beside_numbers_is_fitted():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=60), "sex": rng.choice(["male", "female"], 60)})
    y = pd.DataFrame({"b": rng.normal(size=60), "d": rng.normal(size=60)})
    for model, tables in ((zoo.EPCA(num_latents=1), (x,)), (zoo.Paired(num_shared=1), (x, y))):
        tree = inference.fit(model, *tables, max_iterations=20, progress=False)
        assert np.isfinite(inference.log_density(tree, *tables)).all()
