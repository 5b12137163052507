"""PPCA with Student-t rows: its program is the scale mixture, EM and VB climb it, NUTS is calibrated."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from numpyro import handlers
from scipy import integrate, optimize, stats

import inference
import zoo
from inference.calibration import elbo_check, sbc
from inference.methods.ppca import em as em_ppca
from inference.methods.ppca import vb as vb_ppca
from inference.numerics.weighted_rows import Rows
from inference.precision import in_precision
from tests.support.ppca_cases import mean_density, projected_rows, with_holes
from zoo.answers import answer_of
from zoo.linear_gaussian.rows import StudentRows

NU = 3.0
NAMES = ("loadings", "loc", "noise_variance")
PRIOR = {"loading_variance": 1.0, "loc_mean": np.zeros(5), "loc_variance": 1.0, "noise_rate": 1.0}


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


def test_precision_and_latents_given_the_row_are_its_joint_over_its_density():
    """log p(u) + log p(z | u) + log p(x | z, u) - log q(u) - log q(z | u) = log p(x), with missing cells."""
    x, values = _odd_rows(12), _values()
    model = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU)
    rng = np.random.default_rng(1)
    own = {"row_precision": rng.gamma(2.0, size=12), "latents": 3.0 * rng.normal(size=(12, 2))}
    own = jax.tree.map(jnp.asarray, own)
    sites = _sites(model.explicit, values | own, x)
    joint = sum(sites[name].log_prob(value) for name, value in (own | {"x": jnp.asarray(x)}).items())
    assert list(answer_of(model, "conditionals", values, jnp.asarray(x))) == ["row_precision"]
    given = answer_of(model, "conditionals", values | own, jnp.asarray(x))
    posterior = sum(given[name].log_prob(value) for name, value in own.items())
    np.testing.assert_allclose(joint - posterior, model.log_likelihood(values, x), rtol=1e-10)


def test_latents_are_drawn_with_the_precision_of_their_row():
    """Mean and covariance of 20 000 draws given the cells and u (five errors: 1e-5)."""
    x, values = _odd_rows(4), _values()
    model, u = (
        zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU),
        jnp.array([0.01, 0.3, 1.0, 9.0]),
    )
    given = answer_of(model, "conditionals", values | {"row_precision": u}, jnp.asarray(x))["latents"]
    draws = np.asarray(given.sample(jax.random.key(0), (20_000,)))
    spread = np.asarray(given.covariance_matrix)
    variances = np.diagonal(spread, axis1=1, axis2=2)
    error = np.sqrt(variances / len(draws))
    assert (np.abs(draws.mean(axis=0) - np.asarray(given.mean)) < 5 * error).all()
    assert (np.abs(draws.var(axis=0) / variances - 1) < 5 * np.sqrt(2 / len(draws))).all()
    w, noise = np.asarray(values["loadings"]), float(values["noise_variance"])
    for row, own, precision in zip(x, spread, np.asarray(u), strict=True):
        o = ~np.isnan(row)
        np.testing.assert_allclose(own, np.linalg.inv(np.eye(2) + w[o].T @ w[o] / noise) / precision)


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
    one = values | {"row_precision": jnp.ones(12)}
    given = answer_of(model, "conditionals", one, jnp.asarray(x))
    np.testing.assert_allclose(model.scores(values, x), given["latents"].mean, rtol=1e-9, atol=1e-12)
    covariance = answer_of(model, "scores_covariance", values, jnp.asarray(x))
    law = given["row_precision"]  # E[1/u] of a gamma
    spread = given["latents"].covariance_matrix * (law.rate / (law.concentration - 1))[:, None, None]
    np.testing.assert_allclose(covariance, spread, rtol=1e-9, atol=1e-12)


def test_draws_have_the_distances_of_a_t():
    """Squared distances over D are F(D, nu), from rows and by way of latents (false alarm rate 1e-4 each)."""
    values = _values()
    loc, scale = np.asarray(values["loc"]), _scale(values)
    rows = StudentRows(*(values[name] for name in NAMES), jnp.asarray(NU)).sample(jax.random.key(0), (2000,))
    model = zoo.PPCA(num_latents=2, num_features=5, degrees_of_freedom=NU)
    given = handlers.substitute(handlers.seed(model.replaced(loading_prior="gaussian", **PRIOR), 1), values)
    for drawn in (rows, given(num_observations=2000)):
        away = np.asarray(drawn) - loc
        distance = np.einsum("nd,nd->n", away, np.linalg.solve(scale, away.T).T) / 5
        assert stats.kstest(distance, stats.f(5, NU).cdf).pvalue > 1e-4


@pytest.mark.parametrize("acceleration", ["px", "none"])
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
    with pytest.raises(ValueError, match="^closed_form is for normal rows: leave degrees_of_freedom out"):
        inference.fit(model, x, method="closed_form")
    with pytest.raises(ValueError, match="^sparse x goes with normal rows"):
        inference.fit(zoo.PPCA(degrees_of_freedom=NU), scipy.sparse.csr_array(np.eye(6)[:, :4]))
    with pytest.raises(ValueError, match="batch"):
        inference.fit(model, x, method="em", batch_size=10)
    with pytest.raises(ValueError, match="degrees_of_freedom must be a positive number"):
        zoo.PPCA(degrees_of_freedom=0.0)


# Variational Bayes


@pytest.fixture(scope="module")
def vb_tree():
    """Holes, odd rows, a noise variance for each column, to the last digit."""
    model = zoo.PPCA(num_latents=2, loading_prior="ard", noise="diagonal", degrees_of_freedom=NU)
    run = {"tolerance": 0.0, "max_iterations": 60, "num_samples": 50, "progress": False}
    return inference.fit(model, _odd_rows(), method="vb", **run)


def _elbo(tree, x, **change):
    """The bound of the fit against the program and its guide, with some of its stored numbers changed."""
    bugged = tree.copy()
    stored = dict(tree["variational"].to_dataset()) | change
    bugged["variational"] = tree["variational"].to_dataset().assign(stored)
    bound = float(tree["trace"]["objective"].values.ravel()[-1])
    arguments = inference.model_of(tree), inference.guide(bugged), bound, (x,)
    return elbo_check(*arguments, key=jax.random.key(1), num_particles=1000)


def test_the_bound_is_that_of_the_program_and_the_guide(vb_tree):
    """Whole, by Monte Carlo, precisions of rows drawn (false alarm rate 6e-5); it never falls."""
    objectives = vb_tree["trace"]["objective"].values.ravel()
    assert np.diff(objectives).min() > -1e-12 * abs(objectives[-1])
    verdict = _elbo(vb_tree, _odd_rows())
    assert verdict.passed, verdict
    assert verdict.standard_error < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("loading_prior", ["gaussian", "ard"])
def test_every_bound_of_student_rows_is_that_of_the_program(noise, loading_prior):
    """With and without holes and transformation (false alarm rate 6e-5 each)."""
    whole = projected_rows(30)
    whole[0] += 20.0
    model = zoo.PPCA(num_latents=3, loading_prior=loading_prior, noise=noise, degrees_of_freedom=NU)
    for data in (whole, _odd_rows(30)):
        ends = []
        for acceleration in ("px", "none"):
            run = {"acceleration": acceleration, "max_iterations": 200, "tolerance": 1e-8, "num_samples": 1}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                tree = inference.fit(model, data, method="vb", progress=False, **run)
            objectives = tree["trace"]["objective"].values.ravel()
            assert np.diff(objectives).min() > -1e-10 * abs(objectives[-1])
            assert _elbo(tree, data).passed
            ends.append(objectives[-1])
        assert ends[0] > ends[1] - 1e-6


def test_the_factor_of_a_row_is_the_best_there_is(vb_tree):
    """log q(u) + log q(z | u) less the expected log joint, in NumPy, is one number for each row."""
    x = _odd_rows()[:12]
    stored = {name: v.values for name, v in vb_tree["variational"].data_vars.items()}
    model = inference.model_of(vb_tree)
    means, spread, shape, rate = map(np.asarray, vb_ppca.latents(stored, model, jnp.asarray(x)))
    columns = np.c_[stored["loadings_mean"], stored["loc_mean"]]
    covariance = np.asarray(vb_ppca.joint_covariance(stored))
    precision = stored["noise_precision_concentration"] / stored["noise_precision_rate"]

    def difference(own_rate, seed):
        rng = np.random.default_rng(seed)
        u, z = rng.gamma(shape) / rate, rng.normal(size=means.shape)
        extended = np.c_[z, np.ones(len(z))]
        squares = (x - extended @ columns.T) ** 2 + np.einsum("ni,dij,nj->nd", extended, covariance, extended)
        cells = np.log(u)[:, None] - u[:, None] * precision * squares
        joint = np.nansum(cells, axis=1) / 2 + stats.gamma(NU / 2, scale=2 / NU).logpdf(u)
        joint += stats.norm(scale=u[:, None] ** -0.5).logpdf(z).sum(axis=1)
        q = stats.gamma(shape, scale=1 / own_rate).logpdf(u)
        normals = [stats.multivariate_normal(m, s / p) for m, s, p in zip(means, spread, u, strict=True)]
        return q + [law.logpdf(value) for law, value in zip(normals, z, strict=True)] - joint

    np.testing.assert_allclose(difference(rate, 0), difference(rate, 1), rtol=1e-9)
    planted = rate - NU / 2  # without the rate of the prior
    assert np.abs(difference(planted, 0) - difference(planted, 1)).max() > 0.1


@pytest.mark.slow
def test_the_density_of_new_student_rows_is_the_expectation_under_q(vb_tree):
    """Monte Carlo over 10^5 draws of q, five errors (false alarm rate 2e-6), near and far, with a hole."""
    new = np.array([[4.0] * 5, [9.0, -3.0, np.nan, 4.0, 1.0], [60.0, 4.0, 4.0, -50.0, 4.0]])
    density = inference.log_density(vb_tree, new).values
    estimate, error = mean_density(vb_tree, new, 100_000, jax.random.key(4))
    assert (np.abs(density - estimate) < 5 * error + 5e-3).all()
    stored = {name: jnp.asarray(v.values) for name, v in vb_tree["variational"].data_vars.items()}
    other = inference.model_of(vb_tree).replaced(degrees_of_freedom=2 * NU)
    assert (np.abs(np.asarray(vb_ppca.log_density(stored, other, jnp.asarray(new))) - estimate) > 0.1).all()


@pytest.mark.slow
def test_missing_cells_of_student_rows_vary_as_under_q(vb_tree):
    """Moments of latents and completed cells by 20 000 draws of all factors (five errors: 1e-4)."""
    x, num_draws = _odd_rows()[3:9], 20_000
    stored = {name: jnp.asarray(v.values) for name, v in vb_tree["variational"].data_vars.items()}
    model = inference.model_of(vb_tree).replaced(degrees_of_freedom=30.0)  # so that fourth moments exist

    def draw(key):
        program = handlers.seed(lambda: vb_ppca.guide(stored, model, jnp.asarray(x)), key)
        sites = handlers.trace(program).get_trace()
        return {name: sites[name]["value"] for name in (*NAMES, "row_precision", "latents")}

    drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_draws))
    w, loc, noise, u, z = map(np.asarray, drawn.values())
    spread = np.diagonal(np.asarray(vb_ppca.covariance_of(stored, model, jnp.asarray(x))), axis1=1, axis2=2)
    assert (np.abs(z.var(axis=0) / spread - 1) < 5 * np.sqrt(2.5 / num_draws)).all()
    away = np.random.default_rng(0).normal(size=(num_draws, *x.shape))
    cells = np.einsum("snk,sdk->snd", z, w) + loc[:, None] + np.sqrt(noise[:, None] / u[..., None]) * away
    filled, variance = map(np.asarray, vb_ppca.predict(stored, model, jnp.asarray(x)))
    missing = np.isnan(x)
    assert missing.any() and (variance[~missing] == 0).all()
    assert (np.abs(cells.var(axis=0) / variance - 1)[missing] < 5 * np.sqrt(4 / num_draws)).all()
    assert (np.abs(cells.mean(axis=0) - filled)[missing] < 5 * np.sqrt(variance / num_draws)[missing]).all()


def test_a_fit_of_student_rows_goes_on_and_tells_which_rows_are_odd(vb_tree):
    """From its own q the bound begins where it ended; the three odd rows have by far the least weights."""
    run = {"tolerance": 0.0, "max_iterations": 3, "num_samples": 1, "progress": False}
    again = inference.fit(inference.model_of(vb_tree), _odd_rows(), method="vb", init=vb_tree, **run)
    ends = [float(t["trace"]["objective"].values.ravel()[n]) for t, n in ((vb_tree, -1), (again, 0))]
    assert ends[1] >= ends[0] - 1e-9
    q = vb_tree["variational"]
    weights = (q["row_precision_concentration"] / q["row_precision_rate"]).values
    assert set(np.argsort(weights)[:3]) == {0, 1, 2} and weights[:3].max() < 0.1 * np.sort(weights)[3]
    drawn = vb_tree["posterior"]["row_precision"].mean(("chain", "draw")).values
    np.testing.assert_allclose(drawn, weights, rtol=0.6)  # five errors of 50 draws


def test_a_step_at_many_degrees_of_freedom_is_that_of_normal_rows():
    """From the same start, with holes; q and bound by the part in 1e7 that the degrees are short of it."""
    x, key = jnp.asarray(with_holes(projected_rows(30))), jax.random.key(0)
    found = []
    for nu in (None, 1e7):
        model = zoo.PPCA.from_data(x, loading_prior="ard", degrees_of_freedom=nu)
        state = vb_ppca.init(key, model, x)
        found.append(jax.jit(vb_ppca.step)(key, state, model, x))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), *found)


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
