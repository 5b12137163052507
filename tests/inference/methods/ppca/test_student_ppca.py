"""PPCA with Student-t rows: its program is the scale mixture, EM climbs it, NUTS is calibrated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from numpyro import handlers
from scipy import integrate, optimize, stats

import inference
import zoo
from inference.calibration import sbc
from inference.methods.ppca import em as em_ppca
from inference.numerics.weighted_rows import Rows
from inference.precision import in_precision
from tests.support.ppca_cases import projected_rows, with_holes
from zoo.answers import answer_of
from zoo.linear_gaussian.rows import StudentRows

NU = 3.0
NAMES = ("loadings", "loc", "noise_variance")


@pytest.fixture(autouse=True)
def double():
    """64 bits throughout."""
    with jax.enable_x64(True):
        yield


def _odd_rows(num_rows=60):
    """Rows about a plane, three of them far away, a tenth of the cells missing."""
    x = projected_rows(num_rows)
    x[:3] += 30.0 * np.random.default_rng(2).normal(size=(3, 5))
    return np.where(np.random.default_rng(3).uniform(size=x.shape) < 0.1, np.nan, x)


def _values(d=5, k=2, noise="isotropic", seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.2, 1.0, d if noise == "diagonal" else ())
    drawn = {"loadings": rng.normal(size=(d, k)), "loc": rng.normal(size=d), "noise_variance": noise}
    return {name: jnp.asarray(value) for name, value in drawn.items()}


def _scale(values):
    w = np.asarray(values["loadings"])
    return w @ w.T + np.eye(len(w)) * np.asarray(values["noise_variance"])


@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_a_row_is_the_scale_mixture_of_its_observed_cells(noise):
    """Against scipy's density, and against quadrature over u of the normal density of precision u."""
    x, values = _odd_rows(12), _values(noise=noise)
    model = zoo.PPCA(num_latents=2, noise=noise, degrees_of_freedom=NU)
    found = np.asarray(model.log_likelihood(values, x))
    loc, scale = np.asarray(values["loc"]), _scale(values)
    for row, density in zip(x, found, strict=True):
        o = ~np.isnan(row)
        own = scale[np.ix_(o, o)]
        assert density == pytest.approx(stats.multivariate_t(loc[o], own, df=NU).logpdf(row[o]), rel=1e-11)
    o = ~np.isnan(x[5])
    law, own = stats.gamma(NU / 2, scale=2 / NU), scale[np.ix_(o, o)]

    def given(u):
        return law.pdf(u) * stats.multivariate_normal(loc[o], own / u).pdf(x[5][o])

    assert np.exp(found[5]) == pytest.approx(integrate.quad(given, 0, np.inf, epsrel=1e-10)[0], rel=1e-8)


def test_the_latents_given_the_row_are_its_joint_over_its_density():
    """log p(z) + log p(x | z) - log p(z | x) = log p(x) at any z, with missing cells."""
    x, values = _odd_rows(12), _values()
    model = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU)
    z = jnp.asarray(3.0 * np.random.default_rng(1).normal(size=(12, 2)))
    trace = jax.tree.map(jnp.asarray, values) | {"latents": z}
    sites = _sites(model.explicit, trace, x)
    joint = sites["latents"].log_prob(z) + sites["x"].log_prob(jnp.asarray(x))
    given = answer_of(model, "conditionals", values, jnp.asarray(x))["latents"]
    np.testing.assert_allclose(joint - given.log_prob(z), model.log_likelihood(values, x), rtol=1e-10)


def _sites(program, values, x):
    seeded = handlers.substitute(handlers.seed(program, 0), values)
    sites = handlers.trace(seeded).get_trace(jnp.asarray(x))
    return {name: site["fn"] for name, site in sites.items() if site["type"] == "sample"}


def test_completed_cells_and_scores_have_the_moments_of_the_conditional_t():
    """Means and variances by Schur complements; a row without cells has no variance at nu = 2."""
    x, values = _odd_rows(12), _values()
    x[4] = np.nan
    loc, scale = np.asarray(values["loc"]), _scale(values)
    model = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU)
    filled, variance = map(np.asarray, model.predicted(values, x))
    for row, mean, spread in zip(x, filled, variance, strict=True):
        o = ~np.isnan(row)
        gain = np.linalg.solve(scale[np.ix_(o, o)], scale[np.ix_(o, ~o)]).T
        away = row[o] - loc[o]
        factor = (NU + away @ np.linalg.solve(scale[np.ix_(o, o)], away)) / (NU + o.sum() - 2)
        np.testing.assert_allclose(mean[~o], loc[~o] + gain @ away, rtol=1e-9)
        schur = scale[np.ix_(~o, ~o)] - gain @ scale[np.ix_(o, ~o)]
        np.testing.assert_allclose(spread[~o], factor * np.diag(schur), rtol=1e-9)
        assert (spread[o] == 0).all()
    heavy = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=2.0)
    assert np.isinf(np.asarray(heavy.predicted(values, x)[1])[4]).all()
    given = answer_of(model, "conditionals", values, jnp.asarray(x))["latents"]
    np.testing.assert_allclose(model.scores(values, x), given.mean, rtol=1e-9, atol=1e-12)
    covariance = answer_of(model, "scores_covariance", values, jnp.asarray(x))
    spread = given.scale_tril @ jnp.swapaxes(given.scale_tril, 1, 2)
    spread = spread * (given.df / (given.df - 2))[:, None, None]
    np.testing.assert_allclose(covariance, spread, rtol=1e-9, atol=1e-12)


def test_draws_have_the_distances_of_a_t():
    """Squared distances over D are F(D, nu), from rows and by way of latents (false alarm rate 1e-4 each)."""
    values = _values()
    loc, scale = np.asarray(values["loc"]), _scale(values)
    rows = StudentRows(*(values[name] for name in NAMES), jnp.asarray(NU)).sample(jax.random.key(0), (2000,))
    model = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU)
    z = _sites(model.explicit, values, np.zeros((2000, 5)))["latents"].sample(jax.random.key(1))
    cells = _sites(model.explicit, values | {"latents": z}, np.zeros((2000, 5)))["x"]
    for drawn in (rows, cells.sample(jax.random.key(2))):
        away = np.asarray(drawn) - loc
        distance = np.einsum("nd,nd->n", away, np.linalg.solve(scale, away.T).T) / 5
        assert stats.kstest(distance, stats.f(5, NU).cdf).pvalue > 1e-4


@pytest.mark.parametrize("acceleration", ["px", "none", "squarem"])
@pytest.mark.parametrize("loading_prior", ["flat", "gaussian", "ard"])
def test_em_rises_by_what_the_program_says(acceleration, loading_prior):
    """Every step, holes and odd rows; the objective is the program's density at the estimate."""
    x = _odd_rows()
    model = zoo.PPCA.from_data(x, num_latents=2, loading_prior=loading_prior, degrees_of_freedom=NU)
    key, rows = jax.random.key(0), jnp.asarray(x)
    state = em_ppca.init(key, model, rows, strategy="random")
    step = jax.jit(lambda state: em_ppca.step(key, state, model, rows, acceleration=acceleration))
    objectives = []
    for _ in range(25):
        state, info = step(state)
        objectives.append(float(info.objective))
    assert np.diff(objectives).min() > -1e-9 * abs(objectives[-1])
    own = state.parameters
    centre = np.nanmean(x, axis=0)
    values = dict(zip(NAMES, (own.loadings, own.loc + centre, own.noise_variance[0]), strict=True))
    if loading_prior == "flat":
        expected = float(model.log_likelihood(values, x).sum())
        assert objectives[-1] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "own", [{}, {"noise": "diagonal", "loading_prior": "gaussian"}], ids=["flat", "prior"]
)
def test_em_ends_where_the_density_is_level(own):
    """The gradient of log likelihood and log prior by differences; from both starts; weights are copies."""
    x = _odd_rows()
    model = zoo.PPCA(num_latents=2, degrees_of_freedom=NU, **own)
    tree = inference.fit(model, x, tolerance=1e-13, max_iterations=2000, progress=False)
    other = inference.fit(model, x, init="random", tolerance=1e-13, max_iterations=2000, progress=False)
    last = [float(t["trace"]["objective"].values.ravel()[-1]) for t in (tree, other)]
    assert last[0] == pytest.approx(last[1], rel=1e-9)
    at = {name: tree["posterior"][name].values[0, 0] for name in NAMES}
    fitted = inference.model_of(tree)

    def log_joint(flat):
        values = {
            "loadings": flat[:10].reshape(5, 2),
            "loc": flat[10:15],
            "noise_variance": np.exp(flat[15:]),
        }
        noise = values["noise_variance"]
        if not own:
            return float(model.log_likelihood(values | {"noise_variance": noise[0]}, x).sum())
        prior = stats.norm(0, np.sqrt(fitted.loading_variance)).logpdf(values["loadings"]).sum()
        prior += stats.norm(fitted.loc_mean, np.sqrt(fitted.loc_variance)).logpdf(values["loc"]).sum()
        prior += stats.invgamma(fitted.noise_concentration, scale=fitted.noise_rate).logpdf(noise).sum()
        return float(model.log_likelihood(values, x).sum()) + prior

    noise = np.atleast_1d(at["noise_variance"])
    flat = np.concatenate([at["loadings"].ravel(), at["loc"], np.log(noise)])
    assert log_joint(flat) == pytest.approx(last[0], rel=1e-10)
    if own:  # the mode is that of the noise, not of its logarithm
        gradient = optimize.approx_fprime(flat, log_joint, 1e-6)[:15]
    else:
        gradient = optimize.approx_fprime(flat, log_joint, 1e-6)
    assert np.abs(gradient).max() < 1e-2  # forward differences of curvature 1e3


def test_many_degrees_of_freedom_are_normal_rows():
    """EM at nu = 1e9 ends in the answer for normal rows, with and without missing cells."""
    for x, method in ((projected_rows(), "closed_form"), (with_holes(projected_rows()), "em")):
        normal = inference.fit(zoo.PPCA(), x, method=method, progress=False)
        heavy = inference.fit(
            zoo.PPCA(degrees_of_freedom=1e9), x, tolerance=1e-11, max_iterations=500, progress=False
        )
        assert heavy.attrs["method"] == "em"
        assert heavy.attrs["log_likelihood"] == pytest.approx(normal.attrs["log_likelihood"], rel=1e-6)
        for name in NAMES:
            np.testing.assert_allclose(heavy["posterior"][name], normal["posterior"][name], atol=1e-4)


def test_weights_are_copies():
    x, weight = _odd_rows(30), np.arange(30) % 3
    model, key = zoo.PPCA(degrees_of_freedom=NU), jax.random.key(0)
    found = []
    for rows in (Rows(jnp.asarray(x), jnp.asarray(weight, float)), jnp.asarray(np.repeat(x, weight, axis=0))):
        state = em_ppca.start(key, _values(), model, rows)
        found.append(jax.jit(em_ppca.step, static_argnames="acceleration")(key, state, model, rows)[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), *found)


def test_odd_rows_turn_the_plane_of_normal_rows_alone():
    """The lecture's outliers: 15 of 300 rows, five times as far as the others."""
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(8, 2)))[0]
    x = rng.normal(size=(300, 2)) * [3.0, 2.0] @ plane.T + 0.3 * rng.normal(size=(300, 8))
    x[:15] = 6.0 * rng.normal(size=(15, 8))

    def angle(model):
        loadings = inference.fit(model, x, progress=False)["posterior"]["loadings"].values[0, 0]
        own = np.linalg.qr(loadings)[0]
        return np.degrees(np.arcsin(min(1.0, np.linalg.norm(own - plane @ plane.T @ own, 2))))

    assert angle(zoo.PPCA(degrees_of_freedom=NU)) < 3 and angle(zoo.PPCA()) > 30


def test_what_is_for_normal_rows_alone_is_refused():
    x, model = projected_rows(), zoo.PPCA(degrees_of_freedom=NU)
    for method, prior in (("closed_form", "flat"), ("vb", "gaussian")):
        with pytest.raises(ValueError, match=f"^{method} is for normal rows: leave degrees_of_freedom out"):
            inference.fit(zoo.PPCA(degrees_of_freedom=NU, loading_prior=prior), x, method=method)
    with pytest.raises(ValueError, match="^sparse x goes with normal rows"):
        inference.fit(zoo.PPCA(degrees_of_freedom=NU), scipy.sparse.csr_array(np.eye(6)[:, :4]))
    with pytest.raises(ValueError, match="batch"):
        inference.fit(model, x, method="em", batch_size=10)
    with pytest.raises(ValueError, match="degrees_of_freedom must be a positive number"):
        zoo.PPCA(degrees_of_freedom=0.0)


@pytest.mark.slow
def test_nuts_is_calibrated():
    """Ranks of four invariants in 60 data sets of six rows are uniform (false alarm rate 1 %)."""
    prior = {"loading_variance": 1.0, "loc_mean": np.zeros(3), "loc_variance": 1.0}
    noise = {"noise_concentration": 3.0, "noise_rate": 2.0, "degrees_of_freedom": 4.0}
    model = zoo.PPCA(num_latents=1, num_features=3, loading_prior="gaussian", **prior, **noise)

    def invariants(values):
        lengths = jnp.sum(values["loadings"] ** 2)
        return {
            "squared loadings": lengths,
            "noise": values["noise_variance"],
            "first mean": values["loc"][0],
            "squared latents": jnp.sum(values["latents"] ** 2),
        }

    counts = {"num_replicates": 60, "num_chains": 1, "num_warmup": 200, "num_samples": 63, "thinning": 4}
    with in_precision():
        found = sbc(
            model, "nuts", num_observations=6, key=jax.random.key(5), functionals=invariants, **counts
        )
    assert found.passed
