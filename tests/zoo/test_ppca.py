"""The program of probabilistic PCA: its densities, its priors, what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.sparse
from numpyro import handlers
from scipy import linalg, stats

import zoo
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from zoo.answers import answer_of
from zoo.linear_gaussian import LatentsGivenRows, answers


@pytest.fixture(autouse=True)
def double():
    """64 bits throughout."""
    with jax.enable_x64(True):
        yield


def _case(noise="isotropic", num_rows=12, d=5, k=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, d)) + 3
    x[1, 2] = x[4, 0] = x[4, 1] = np.nan
    values = {
        "loadings": rng.normal(size=(d, k)),
        "loc": rng.normal(size=d),
        "noise_variance": rng.uniform(0.2, 1.0, d if noise == "diagonal" else ()),
    }
    return x, {name: jnp.asarray(value) for name, value in values.items()}


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_flat_program_is_the_likelihood(noise):
    """Conditioned on data the program scores the observed cells and nothing else."""
    x, values = _case(noise)
    model = zoo.PPCA(num_latents=2, noise=noise)
    covariance = np.asarray(values["loadings"] @ values["loadings"].T)
    covariance = covariance + np.eye(5) * np.asarray(values["noise_variance"])
    expected = 0.0
    for row in x:
        o = ~np.isnan(row)
        normal = stats.multivariate_normal(np.asarray(values["loc"])[o], covariance[np.ix_(o, o)])
        expected += normal.logpdf(row[o])
    assert float(log_joint(model, values, x)) == pytest.approx(expected, rel=1e-11)
    assert float(model.log_likelihood(values, x).sum()) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("loading_prior", ["flat", "ard"])
def test_explicit_program_minus_the_latents_is_the_marginal_one(loading_prior):
    """log p(x, z) - log p(z | x) = log p(x), at any z, priors of the parameters included."""
    x, values = _case()
    model = zoo.PPCA.from_data(x, num_latents=2, loading_prior=loading_prior)
    if loading_prior == "ard":
        values["loading_precision"] = jnp.asarray([0.5, 2.0])
    latents = jax.random.normal(jax.random.key(0), (12, 2))
    conditional = answer_of(model, "conditionals", values, x)["latents"]
    explicit = log_joint(model.explicit, values | {"latents": latents}, x)
    marginal = log_joint(model, values, x)
    assert float(explicit - conditional.log_prob(latents).sum()) == pytest.approx(float(marginal), rel=1e-11)


@pytest.mark.parametrize("concentration", [1e-3, 4.0])
def test_default_rates_are_of_the_variances_whatever_the_concentration(concentration):
    """The prior mean of a precision, concentration over rate, is one over the variance of the data."""
    x, _ = _case("diagonal")
    variances = np.nanvar(x, axis=0)
    fields = {"num_latents": 2, "loading_prior": "ard"}
    fields |= {"noise_concentration": concentration, "ard_concentration": concentration}
    model = zoo.PPCA.from_data(x, **fields)
    np.testing.assert_allclose(concentration / model.noise_rate, 1 / variances.mean())
    np.testing.assert_allclose(concentration / model.ard_rate, 1 / variances.mean())
    of_each = zoo.PPCA.from_data(x, noise="diagonal", **fields)
    np.testing.assert_allclose(concentration / of_each.noise_rate, 1 / variances)


@pytest.mark.parametrize("name", ["noise_concentration", "ard_concentration"])
def test_a_concentration_that_is_no_number_is_named_before_anything_follows_from_it(name):
    """None is the default, as of every field that the data may fill in."""
    x, _ = _case()
    fields = {"num_latents": 2, "loading_prior": "ard"}
    for wrong in ("x", [1.0, 2.0], -1.0):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must be a"):
            zoo.PPCA.from_data(x, **fields, **{name: wrong})
    default, none = zoo.PPCA.from_data(x, **fields), zoo.PPCA.from_data(x, **fields, **{name: None})
    np.testing.assert_array_equal(none.noise_rate, default.noise_rate)
    np.testing.assert_array_equal(none.ard_rate, default.ard_rate)


def test_priors_are_those_of_the_docstring():
    """Sum of scipy's densities of every parameter; the inverse gamma is of the variance."""
    x, values = _case("diagonal")
    model = zoo.PPCA.from_data(
        x, num_latents=2, loading_prior="ard", noise="diagonal", noise_concentration=2.0, noise_rate=3.0
    )
    alpha = np.array([0.5, 2.0])
    scale = np.nanvar(x, axis=0).mean()
    expected = stats.gamma(1e-3, scale=1e3 / scale).logpdf(alpha).sum()
    expected += stats.norm(0, 1 / np.sqrt(alpha)).logpdf(values["loadings"]).sum()
    expected += stats.norm(np.nanmean(x, axis=0), np.sqrt(100 * scale)).logpdf(values["loc"]).sum()
    expected += stats.invgamma(2.0, scale=3.0).logpdf(values["noise_variance"]).sum()
    whole = log_joint(model, values | {"loading_precision": jnp.asarray(alpha)}, x)
    ours = whole - model.log_likelihood(values, x).sum()
    assert float(ours) == pytest.approx(expected, rel=1e-10)


def test_latents_are_drawn_from_their_conditional():
    """Mean and covariance of 20 000 draws, at 5 standard errors (60 moments: false alarm rate 4e-5)."""
    x, values = _case()
    conditional = answer_of(zoo.PPCA(num_latents=2), "conditionals", values, jnp.asarray(x))["latents"]
    assert isinstance(conditional, LatentsGivenRows)
    draws = np.asarray(conditional.sample(jax.random.key(1), (20_000,)))
    covariance = np.asarray(conditional.covariance_matrix)
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    assert (np.abs(draws.mean(0) - conditional.mean) < 5 * np.sqrt(variances / 20_000)).all()
    away = draws - np.asarray(conditional.mean)
    found = np.einsum("snk,snj->nkj", away, away) / 20_000
    errors = np.sqrt((variances[:, :, None] * variances[:, None, :] + covariance**2) / 20_000)
    assert (np.abs(found - covariance) < 5 * errors).all()


def test_proper_priors_draw_and_flat_ones_refuse():
    """The prior predictive has every site and the moments' shapes; flat says what to do instead."""
    x, _ = _case()
    model = zoo.PPCA.from_data(x, num_latents=2, loading_prior="gaussian", noise_concentration=3.0)
    sites = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(num_observations=7)
    shapes = {"loadings": (5, 2), "loc": (5,), "noise_variance": (), "latents": (7, 2), "x": (7, 5)}
    assert {name: sites[name]["value"].shape for name in shapes} == shapes
    assert model.prior == "proper" and zoo.PPCA().prior == "improper"
    with pytest.raises(ValueError, match="choose loading_prior"):
        zoo.PPCA(num_features=3)(num_observations=4)
    with pytest.raises(ValueError, match="loading_variance is not set"):
        zoo.PPCA(loading_prior="ard", num_features=3)(num_observations=4)
    with numpyro.handlers.seed(rng_seed=0), pytest.raises(ValueError, match="num_observations"):
        model()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_latents": 0}, "at least 1; got 0"),
        ({"noise": "full"}, "noise must be one of isotropic, diagonal; got 'full'"),
        ({"loading_prior": "laplace"}, "loading_prior must be one of flat, gaussian, ard"),
        ({"noise_rate": -1.0}, "noise_rate must be a positive number; got -1.0"),
        ({"loc_mean": [0.0, 1.0], "num_features": 3}, r"one number for each feature; got shape \(2,\)"),
    ],
)
def test_fields_outside_their_domain(fields, message):
    """Said at once, with what came."""
    with pytest.raises(ValueError, match=message):
        zoo.PPCA(**fields)


def _spoilt(change):
    x = np.random.default_rng(0).normal(size=(10, 4))
    change(x)
    return x


def _set(index, value):
    return lambda x: x.__setitem__(index, value)


@pytest.mark.parametrize(
    ("num_latents", "change", "message"),
    [
        (4, lambda x: None, "below the number of columns, 4; got 4"),
        (2, _set((slice(None), 1), 3.0), r"column 1 of x is constant \(3.0\)"),
        (2, _set((slice(None), 2), np.nan), "column 2 of x is missing in all rows"),
        (2, _set(5, np.nan), "row 5 of x is missing in all columns"),
        (2, _set((3, 1), np.inf), "row 3, column 1 is inf"),
    ],
)
def test_data_that_do_not_suit(num_latents, change, message):
    """Each with the row or column it is about, before anything is compiled."""
    import inference

    with pytest.raises(ValueError, match=message):
        inference.fit(zoo.PPCA(num_latents=num_latents), _spoilt(change))


def test_too_few_rows_and_other_columns():
    """K must be below the number of rows; a filled model keeps its number of columns."""
    x = np.random.default_rng(0).normal(size=(3, 6))
    with pytest.raises(ValueError, match="below the number of rows, 3; got 3: give num_latents=2 or less"):
        zoo.PPCA(num_latents=3).check(x)
    with pytest.raises(ValueError, match="must have 5 columns, as the model has; got 6"):
        zoo.PPCA(num_features=5).check(x)
    with pytest.raises(TypeError, match="whole number"):
        zoo.PPCA(num_latents=1.5)
    zoo.PPCA.from_data(scipy.sparse.csr_matrix(np.eye(6))).check(scipy.sparse.csr_matrix(np.eye(6)))
    with pytest.raises(ValueError, match="column 1 of x is constant"):
        zoo.PPCA().check(scipy.sparse.csr_matrix(np.diag([1.0, 0, 1, 1, 1])))


@pytest.mark.parametrize("loading_prior", ["gaussian", "ard"])
def test_joint_density_under_priors_is_the_one_on_paper(loading_prior):
    """By SciPy, with no variance of one: loadings, mean, precisions, noise and rows with a missing cell."""
    rng = np.random.default_rng(6)
    fields = {"loading_variance": 0.3, "loc_mean": np.array([1.0, -2.0, 0.5]), "loc_variance": 2.5}
    fields |= {"noise_concentration": 3.0, "noise_rate": 1.7, "ard_concentration": 1.4, "ard_rate": 0.6}
    model = zoo.PPCA(num_latents=2, num_features=3, loading_prior=loading_prior, **fields)
    x = rng.normal(size=(4, 3))
    x[1, 2] = np.nan
    w, loc, noise, precision = rng.normal(size=(3, 2)), rng.normal(size=3), 0.7, np.array([0.5, 2.0])
    values = {"loadings": w, "loc": loc, "noise_variance": np.array(noise)}
    deviation = np.sqrt(0.3)
    expected = stats.norm.logpdf(loc, fields["loc_mean"], np.sqrt(2.5)).sum()
    expected += stats.invgamma.logpdf(noise, 3.0, scale=1.7)
    if loading_prior == "ard":
        values["loading_precision"] = precision
        expected += stats.gamma.logpdf(precision, 1.4, scale=1 / 0.6).sum()
        deviation = precision**-0.5
    expected += stats.norm.logpdf(w, 0.0, deviation).sum()
    covariance = w @ w.T + noise * np.eye(3)
    for row in x:
        seen = ~np.isnan(row)
        expected += stats.multivariate_normal.logpdf(row[seen], loc[seen], covariance[np.ix_(seen, seen)])
    with in_precision():
        found = log_joint(model, values, x)
        found = float(found)
    assert found == pytest.approx(expected, rel=1e-9)


def test_orthonormal_scores_are_of_completed_rows_about_the_mean(monkeypatch):
    """In the basis W (W'W)^-1/2 of SciPy; sparse rows, and rows in units of their columns, have the same."""
    x, values = _case()
    whole, asked = np.where(np.isnan(x), 7.0, x), []

    def completed(x, *parameters):
        asked.append(parameters)
        return jnp.asarray(whole), None

    monkeypatch.setattr(answers.rows, "completed", completed)
    wanted = (whole - np.asarray(values["loc"])) @ linalg.polar(np.asarray(values["loadings"]))[0]
    model = zoo.PPCA(num_latents=2)
    _, (sparse,) = model.encoded(scipy.sparse.csr_matrix(whole))
    s = np.array([1e-3, 1.0, 20.0, 1e3, 0.5])
    scaled = values | {"loadings": values["loadings"] * s[:, None], "loc": values["loc"] * s}
    measured = zoo.PPCA(num_latents=2, standardize=True, column_scale=s, num_features=5)
    for own, given, rows in ((model, values, x), (model, values, sparse), (measured, scaled, x * s)):
        rows = rows if rows is sparse else jnp.asarray(rows)
        np.testing.assert_allclose(own.scores(given, rows, kind="orthonormal"), wanted, rtol=1e-6)
    for parameters in asked:
        for found, name in zip(parameters, ("loadings", "loc", "noise_variance"), strict=True):
            np.testing.assert_allclose(found, values[name], rtol=1e-6)
    assert len(asked) == 2


def test_factors_that_the_covariance_cannot_tell_from_noise_are_said():
    """The covariance of 5 columns has 15 entries, 3 latents and 5 noise variances 17 free parameters."""
    x = np.random.default_rng(0).normal(size=(20, 6))
    with pytest.warns(UserWarning, match="3 latents of 5 columns.*use num_latents=2 or less"):
        zoo.PPCA(num_latents=3, noise="diagonal").check(x[:, :5])
    zoo.PPCA(num_latents=2, noise="diagonal").check(x[:, :5])
    zoo.PPCA(num_latents=3, noise="diagonal").check(x)  # 21 entries and as many parameters
    zoo.PPCA(num_latents=3, noise="diagonal", loading_prior="gaussian").check(x[:, :5])
    zoo.PPCA(num_latents=3).check(x[:, :5])
