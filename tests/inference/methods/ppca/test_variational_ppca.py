"""PPCA by variational Bayes: its bound against the program, its monotony, what it finds, what it stores."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import special, stats
from scipy.linalg import polar, subspace_angles

import inference
import zoo
from inference.calibration import elbo_check
from inference.diagnostics import summary
from inference.methods.linear_gaussian import vb as linear_gaussian_vb
from inference.methods.linear_gaussian.em import LoadingPrior
from inference.methods.linear_gaussian.vb import latents_of, log_predictive
from inference.methods.ppca import vb
from inference.methods.ppca.closed_form import tipping_bishop
from inference.precision import in_precision
from inference.symmetry import align_rotation
from tests.support.ppca_cases import mean_density, projected_rows, with_holes

ROUNDING = 1e-12  # of the bound, relative


@pytest.fixture(scope="module")
def x():
    """Sixty rows of five columns, two latents."""
    return projected_rows()


@pytest.fixture(scope="module")
def holes(x):
    """The same with a fifth of the cells missing."""
    return with_holes(x)


@pytest.fixture(scope="module")
def ard_tree(holes):
    """Three latents offered, ARD, missing cells."""
    model = zoo.PPCA(num_latents=3, loading_prior="ard")
    return inference.fit(model, holes, method="vb", num_samples=400)


@pytest.fixture(scope="module")
def gaussian_tree(x):
    """A Gaussian prior and complete rows, to the last digit."""
    model = zoo.PPCA(num_latents=2, loading_prior="gaussian")
    return inference.fit(model, x, method="vb", num_samples=50, tolerance=0, max_iterations=200)


def _objective(tree):
    return tree["trace"]["objective"].to_numpy()


def test_the_precision_of_a_latent_is_told_by_means_and_variances_of_its_loadings():
    """Half of the expected squares by hand: five columns of two classes, of which each column counts."""
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(5, 3)), rng.normal(size=(2, 3, 3))
    covariance, column_class = root @ root.transpose(0, 2, 1), np.array([0, 1, 0, 1, 1])
    nothing = (None,) * 4
    with in_precision():
        state = linear_gaussian_vb.LinearGaussianPosterior(
            jnp.asarray(mean), jnp.asarray(covariance), *nothing
        )
        rows = SimpleNamespace(sums=np.zeros(5), column_class=column_class, class_member=np.array([0, 1]))
        prior = LoadingPrior(None, 1.4, 0.6, np.zeros(5), np.ones(()), 3.0, 0.5)
        found = linear_gaussian_vb._update_ard(state, rows, prior)
        number = int(linear_gaussian_vb.num_relevant(state, rows))
    variances = np.stack([np.diag(covariance[own])[:2] for own in column_class])
    squares = (mean[:, :2] ** 2 + variances).sum(axis=0)
    np.testing.assert_allclose(found.ard_concentration, [1.4 + 2.5] * 2, rtol=1e-12)
    np.testing.assert_allclose(found.ard_rate, 0.6 + squares / 2, rtol=1e-12)
    assert number == ((mean[:, :2] ** 2).sum(axis=0) > variances.sum(axis=0)).sum()


def test_columns_are_drawn_from_their_joint_normal():
    """The mean and the loadings given it have SciPy's joint density, the noise its inverse gamma."""
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 4))
    joint = root @ root.transpose(0, 2, 1)  # of two loadings and the mean
    parts = mean[:, :2], joint[:, :2, :2], joint[:, :2, 2], mean[:, 2], joint[:, 2, 2]
    loc, loadings, noise = rng.normal(size=2), rng.normal(size=(2, 2)), np.array([0.3, 0.8])
    values = {"loc_y": loc, "loadings_y": loadings, "noise_variance_y": noise}
    with in_precision():
        program = handlers.substitute(linear_gaussian_vb.sample_columns, jax.tree.map(jnp.asarray, values))
        given = [jnp.asarray(part) for part in (*parts, np.array([2.0, 3.0]), np.array([0.7, 0.4]))]
        sites = handlers.trace(program).get_trace("_y", *given)
        found = {name: float(site["fn"].log_prob(site["value"]).sum()) for name, site in sites.items()}
    wanted = sum(
        stats.multivariate_normal(m, c).logpdf([*w, u])
        for m, c, w, u in zip(mean, joint, loadings, loc, strict=True)
    )
    np.testing.assert_allclose(found["loc_y"] + found["loadings_y"], wanted, rtol=1e-9)
    of_noise = stats.invgamma.logpdf(noise, [2.0, 3.0], scale=[0.7, 0.4]).sum()
    np.testing.assert_allclose(found["noise_variance_y"], of_noise, rtol=1e-9)


def test_bound_never_falls(ard_tree):
    """Also through the transformations, which are kept only where the bound gains."""
    assert -np.diff(_objective(ard_tree)).min() < ROUNDING * abs(_objective(ard_tree)[-1])
    assert ard_tree.attrs["converged"] == 1


def test_bound_is_that_of_the_program_and_the_guide(ard_tree, holes):
    """Whole, by Monte Carlo (false alarm rate 6e-5)."""
    model, bound = inference.model_of(ard_tree), _objective(ard_tree)[-1]
    verdict = elbo_check(
        model, inference.guide(ard_tree), bound, (holes,), key=jax.random.key(1), num_particles=1000
    )
    assert verdict.passed, verdict
    assert abs(verdict.estimate - bound - 1.0) > verdict.threshold * verdict.standard_error  # planted


@pytest.mark.slow
def test_the_lecture_s_count_of_cells_is_caught(ard_tree, holes):
    """With missing cells q(tau) has a + (observed cells) / 2; all cells counted, it is another bound."""
    model = inference.model_of(ard_tree)
    stored = dict(ard_tree["variational"].to_dataset())
    stored["noise_precision_concentration"] = (
        stored["noise_precision_concentration"] + np.isnan(holes).sum() / 2
    )
    bugged = ard_tree.copy()
    bugged["variational"] = ard_tree["variational"].to_dataset().assign(stored)
    assert not elbo_check(
        model,
        inference.guide(bugged),
        _objective(ard_tree)[-1],
        (holes,),
        key=jax.random.key(1),
        num_particles=1000,
    ).passed


def test_ard_switches_off_what_the_data_do_not_need(ard_tree):
    """Of three latents two are relevant; the third has next to no loadings and a large precision."""
    assert int(ard_tree["variational"]["num_relevant"]) == 2
    q = ard_tree["variational"]
    precision = q["loading_precision_concentration"] / q["loading_precision_rate"]
    assert precision.max() > 100 * np.sort(precision)[1]


@pytest.mark.slow
def test_the_lecture_s_example_has_one_structured_pair():
    """Seven columns of noise N(0, 1), two with a common signal of variance 4: ARD keeps one latent."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 7))
    x[:, :2] += 2 * rng.normal(size=(200, 1))
    model = zoo.PPCA(num_latents=4, loading_prior="ard", noise="isotropic")
    tree = inference.fit(model, x, method="vb", num_samples=1, max_iterations=2000)
    loadings = tree["variational"]["loadings_mean"].to_numpy()
    assert int(tree["variational"]["num_relevant"]) == 1
    strongest = loadings[:, (loadings**2).sum(0).argmax()]
    assert (strongest[:2] ** 2).sum() > 0.9 * (strongest**2).sum()


@pytest.mark.slow
def test_loadings_span_the_subspace_of_maximum_likelihood(gaussian_tree, x):
    """With one variance for all loadings only lengths shrink, on complete rows."""
    loadings = gaussian_tree["variational"]["loadings_mean"].to_numpy()
    assert subspace_angles(loadings, tipping_bishop(x, 2).loadings).max() < 1e-6


def test_tree_has_draws_of_q_and_their_scores(ard_tree, holes, x):
    """Dims, log likelihood of rows, scores and completed cells with what is uncertain in them."""
    posterior = ard_tree["posterior"]
    assert dict(posterior["loadings"].sizes) == {"chain": 1, "draw": 400, "feature": 5, "latent": 3}
    assert posterior["latents"].dims == ("chain", "draw", "observation", "latent")
    assert ard_tree["log_likelihood"]["log_likelihood"].shape == (1, 400, 60)
    assert "r_hat" not in summary(ard_tree)
    q = ard_tree["variational"]
    for name, errors in (("loc", 5.0), ("loadings", 5.0)):  # 20 means of 400 draws: false alarm rate 1e-5
        draws = posterior[name].to_numpy()[0]
        error = draws.std(0) / np.sqrt(400)
        assert (np.abs(draws.mean(0) - q[f"{name}_mean"].to_numpy()) < errors * error).all()
    scores, shown = (
        inference.transform(ard_tree, holes, covariance=True),
        align_rotation(ard_tree)["variational"],
    )
    np.testing.assert_allclose(scores["scores"], shown["latents"], atol=1e-10)
    np.testing.assert_allclose(scores["covariance"], shown["latents_covariance"], atol=1e-10)
    assert inference.transform(ard_tree, holes, scores="orthonormal").shape == (60, 3)
    missing = np.isnan(holes)
    completed = inference.predict(ard_tree, holes)
    deviation = completed["standard_deviation"].to_numpy()
    np.testing.assert_array_equal(completed.to_numpy()[~missing], holes[~missing])
    assert (deviation[~missing] == 0).all()
    assert (np.abs(completed.to_numpy() - x)[missing] < 4.5 * deviation[missing]).all()  # rate as for EM
    assert np.isfinite(inference.log_density(ard_tree, holes)).all()


def test_unseen_cells_vary_with_the_mean_of_the_noise_under_q(ard_tree):
    """The noise's inverse gamma has mean rate / (concentration - 1), and none at a concentration of one.

    In a row of which nothing is known the latents have their prior, whatever the noise.
    """
    nothing = np.full((1, 5), np.nan)

    def variances(concentration, rate):
        tree = ard_tree.copy()
        stored = ard_tree["variational"].to_dataset()
        noise = {"noise_precision_concentration": concentration, "noise_precision_rate": rate}
        like = {name: stored[name] * 0.0 + value for name, value in noise.items()}
        tree["variational"] = stored.assign(like)
        return inference.predict(tree, nothing)["standard_deviation"].to_numpy()[0] ** 2

    gain = variances(3.5, 4.0) - variances(3.5, 1.5)
    np.testing.assert_allclose(gain, np.full(5, 2.5 / 2.5), rtol=1e-9)
    assert np.isposinf(variances(1.0, 1.0)).all()


@pytest.mark.slow
def test_a_fit_goes_on_from_where_it_was(ard_tree, holes):
    """Started from its own q the bound begins where it ended."""
    model = inference.model_of(ard_tree)
    settings = {"tolerance": 0, "max_iterations": 5, "method": "vb", "num_samples": 1}
    again = inference.fit(model, holes, init=ard_tree, **settings)
    assert _objective(again)[0] == pytest.approx(_objective(ard_tree)[-1], abs=1e-4)
    assert _objective(again)[0] >= _objective(ard_tree)[-1]


def test_flat_priors_and_unknown_options_are_refused(x):
    """With what to do instead."""
    with pytest.raises(ValueError, match="loading_prior='ard' or 'gaussian', not 'flat'"):
        inference.fit(zoo.PPCA(), x, method="vb")
    with pytest.raises(ValueError, match="acceleration must be one of px, none"):
        inference.fit(zoo.PPCA(loading_prior="ard"), x, method="vb", acceleration="fast")


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
@pytest.mark.parametrize("loading_prior", ["gaussian", "ard"])
def test_every_bound_is_that_of_the_program(noise, loading_prior, x, holes):
    """Both priors and noises, with and without holes and transformation (false alarm rate 6e-5 each)."""
    model = zoo.PPCA(num_latents=3, loading_prior=loading_prior, noise=noise)
    for data in (x, holes):
        ends, trees = {}, {}
        settings = {"method": "vb", "tolerance": 0, "max_iterations": 1000, "num_samples": 1}
        for acceleration in ("px", "none"):
            tree = trees[acceleration] = inference.fit(model, data, acceleration=acceleration, **settings)
            ends[acceleration] = _objective(tree)
            assert -np.diff(_objective(tree)).min() < ROUNDING * abs(_objective(tree)[-1])
            arguments = (inference.model_of(tree), inference.guide(tree), _objective(tree)[-1], (data,))
            assert elbo_check(*arguments, key=jax.random.key(2), num_particles=4000).passed
        # Without transformations the two latents of nearly one length turn by 4e-7 nats a sweep: with ARD
        # and a noise variance for each column 0.016 nats below the end, and 0.009 after 20 000 sweeps.
        assert ends["px"][0] > ends["none"][0] - 1e-9 and ends["px"][-1] > ends["none"][-1] - 1e-3
        stays = inference.fit(model, data, acceleration="none", init=trees["px"], **settings)
        assert abs(_objective(stays)[-1] - ends["px"][-1]) < 1e-3


NEW = projected_rows()[:4] + 0.3 * np.random.default_rng(3).normal(size=(4, 5))
NEW[1, 0] = np.nan


@pytest.mark.slow
def test_density_of_new_rows_has_no_random_part_and_no_orientation(ard_tree):
    """Two fits that differ in their draws alone, and q turned by a rotation of all latents."""
    density = inference.log_density(ard_tree, NEW).values
    other = ard_tree.copy()
    other["posterior"] = ard_tree["posterior"].to_dataset().isel(draw=slice(0, 2))
    np.testing.assert_array_equal(inference.log_density(other, NEW), density)
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    stored = ard_tree["variational"].to_dataset()
    mean, spread, cross = (
        stored[name].to_numpy()
        for name in ("loadings_mean", "loadings_covariance", "loadings_loc_covariance")
    )
    turned = {
        "loadings_mean": (stored["loadings_mean"].dims, mean @ turn),
        "loadings_covariance": (stored["loadings_covariance"].dims, turn.T @ spread @ turn),
        "loadings_loc_covariance": (stored["loadings_loc_covariance"].dims, cross @ turn),
    }
    other["variational"] = stored.assign(turned)
    np.testing.assert_allclose(inference.log_density(other, NEW), density, atol=1e-9)


@pytest.mark.slow
def test_density_of_new_rows_is_the_expectation_under_q(gaussian_tree):
    """Monte Carlo over 10^5 draws, five standard errors: false alarm rate 2e-6; q's means are not it."""
    density = inference.log_density(gaussian_tree, NEW).values
    estimate, error = mean_density(gaussian_tree, NEW, 100_000, jax.random.key(4))
    assert (np.abs(density - estimate) < 5 * error + 1e-3).all()
    q = gaussian_tree["variational"]
    names = {"loadings": "loadings_mean", "loc": "loc_mean"}
    plugged = {name: q[stored].to_numpy() for name, stored in names.items()}
    plugged["noise_variance"] = q["noise_precision_rate"].values / q["noise_precision_concentration"].values
    with in_precision():
        at_means = inference.model_of(gaussian_tree).log_likelihood(plugged, jnp.asarray(NEW))
    assert not (np.abs(np.asarray(at_means) - estimate) < 5 * error + 1e-3).all()


def by_quadrature(row, loadings, loc, covariance, concentration, rate, group):
    """Log of the expected density of a row with one latent: grids over it and over the logs of precisions."""
    z = np.linspace(-40.0, 40.0, 4001)
    extended = np.stack([z, np.ones_like(z)], axis=1)
    spread = np.einsum("pi,dij,pj->pd", extended, covariance, extended)
    squares = (row - loc - z[:, None] * loadings[:, 0]) ** 2
    total = stats.norm.logpdf(z) + np.log(z[1] - z[0])
    for g, (e, f) in enumerate(zip(concentration, rate, strict=True)):
        y = np.log(e / f) + np.linspace(-14.0, 6.0, 1201)
        height = stats.gamma.logpdf(np.exp(y), e, scale=1 / f) + y + np.log(y[1] - y[0])
        height = np.tile(height, (z.size, 1))
        for d in np.flatnonzero(group == g):
            variance = spread[:, d, None] + np.exp(-y)
            height -= 0.5 * (np.log(2 * np.pi * variance) + squares[:, d, None] / variance)
        total = total + special.logsumexp(height, axis=1)
    return special.logsumexp(total)


@pytest.mark.parametrize(
    ("shared", "concentration"),
    [
        pytest.param(True, 36.0, marks=pytest.mark.slow),
        pytest.param(False, 8.0, marks=pytest.mark.slow),
        pytest.param(True, 3000.0, marks=pytest.mark.slow),
    ],
)
def test_density_equals_quadrature_however_far_a_row_is(shared, concentration, monkeypatch):
    """Rows inside, 3, 10 and 50 deviations outside, and far along the loadings; sharp and wide loadings.

    The error was 90 nats at six deviations (Gauss and Laguerre's nodes do not reach such rows), unnoticed.
    Planted: the rule for the usual rows alone.
    """
    rng, d = np.random.default_rng(0), 5
    group = np.zeros(d, int) if shared else np.arange(d)
    e = np.full(group.max() + 1, concentration)
    loadings, loc, parts = rng.normal(size=(d, 1)), rng.normal(size=d), rng.normal(size=(d, 2, 2))
    away = [loadings[:, 0], *(size * rng.normal(size=d) for size in (3, 10, 50)), 10 * loadings[:, 0]]
    rows = loc + np.stack(away)
    worst = 0.0
    for scale in (0.01, 0.1):
        covariance = scale * (parts @ parts.transpose(0, 2, 1) + 0.2 * np.eye(2))
        q = loadings, loc, covariance, e, 0.3 * e
        want = np.array([by_quadrature(row, *q, group) for row in rows])

        def found(q=q):
            with in_precision():
                return np.asarray(log_predictive(*map(jnp.asarray, (rows, *q)), group))

        assert (np.abs(found() - want) < 0.02 + 3e-4 * np.abs(want)).all()
        with monkeypatch.context() as planted:
            planted.setattr(linear_gaussian_vb, "FAR", np.inf)
            worst = max(worst, np.abs(found() - want).max())
    assert worst > 0.3


def test_density_of_ordinary_rows_equals_quadrature():
    """Two rows inside, one with a hole, columns of two noise groups; a rate far from one."""
    rng, d, group = np.random.default_rng(1), 3, np.array([0, 1, 1])
    loadings, loc, parts = rng.normal(size=(d, 1)), rng.normal(size=d), rng.normal(size=(d, 2, 2))
    covariance = 0.02 * (parts @ parts.transpose(0, 2, 1) + 0.2 * np.eye(2))
    e, f = np.array([6.0, 9.0]), np.array([2.4, 1.3])
    rows = loc + np.stack([loadings[:, 0], -0.5 * loadings[:, 0] + 0.2])
    want = [by_quadrature(row, loadings, loc, covariance, e, f, group) for row in rows]
    with in_precision():
        q = map(jnp.asarray, (rows, loadings, loc, covariance, e, f))
        found = np.asarray(log_predictive(*q, group))
    np.testing.assert_allclose(found, want, atol=0.01)


def test_latents_under_q_count_the_spread_of_the_loadings():
    """Precision I + sum of E[tau] E[w w'] over observed columns, and a mean by solving with it."""
    rng, d, k = np.random.default_rng(2), 4, 2
    loadings, loc, precision = rng.normal(size=(d, k)), rng.normal(size=d), rng.uniform(0.5, 2.0, d)
    parts = rng.normal(size=(d, k + 1, k + 1))
    covariance = parts @ parts.transpose(0, 2, 1)
    x = rng.normal(size=(5, d))
    x[1, 2] = x[3, 0] = np.nan
    with in_precision():
        means, spreads = latents_of(*map(jnp.asarray, (x, loadings, loc, covariance, precision)))
        means, spreads = np.asarray(means), np.asarray(spreads)
    for row, mean, spread in zip(x, means, spreads, strict=True):
        whole, target = np.eye(k), np.zeros(k)
        for own in np.flatnonzero(~np.isnan(row)):
            whole += precision[own] * (np.outer(loadings[own], loadings[own]) + covariance[own, :k, :k])
            target += precision[own] * ((row[own] - loc[own]) * loadings[own] - covariance[own, :k, k])
        np.testing.assert_allclose(np.linalg.inv(spread), whole, rtol=1e-9)
        np.testing.assert_allclose(mean, np.linalg.solve(whole, target), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "num_rows", "k"), [("diagonal", 40, 2), ("isotropic", 12, 3)])
def test_density_under_a_wide_q_is_the_expectation(noise, num_rows, k):
    """Few rows, so that loadings and noise are uncertain; as above."""
    model = zoo.PPCA(num_latents=k, loading_prior="ard", noise=noise)
    tree = inference.fit(model, projected_rows(num_rows, d=6, k=k), method="vb", num_samples=5)
    new = projected_rows(num_rows, d=6, k=k)[:6] + 0.3 * np.random.default_rng(3).normal(size=(6, 6))
    estimate, error = mean_density(tree, new, 400_000, jax.random.key(4))
    assert (np.abs(inference.log_density(tree, new).values - estimate) < 5 * error + 5e-3).all()


def test_scores_under_q_are_of_completed_rows_about_the_mean(monkeypatch):
    """In the basis of the mean loadings, W (W'W)^-1/2 of SciPy, whatever the missing cell is said to be."""
    rng = np.random.default_rng(4)
    loadings, loc, x = rng.normal(size=(4, 2)), rng.normal(size=4) + 3.0, rng.normal(size=(3, 4)) + 3.0
    monkeypatch.setattr(vb, "predict", lambda stored, model, x: (jnp.where(jnp.isnan(x), 7.0, x), None))
    completed = x.copy()
    completed[1, 2], x[1, 2] = 7.0, np.nan
    with in_precision():
        stored = {"loadings_mean": jnp.asarray(loadings), "loc_mean": jnp.asarray(loc)}
        model = zoo.PPCA(num_latents=2, loading_prior="gaussian")
        found = np.asarray(vb.transform(stored, model, jnp.asarray(x), kind="orthonormal"))
    np.testing.assert_allclose(found, (completed - loc) @ polar(loadings)[0], rtol=1e-9)
