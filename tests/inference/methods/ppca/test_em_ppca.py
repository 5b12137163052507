"""PPCA and factor analysis by closed form and by EM: the same maximum, with and without missing cells."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import subspace_angles
from scipy.optimize import approx_fprime, minimize

import inference
import zoo
from inference.diagnostics import summary
from inference.methods import auto_method
from inference.methods.linear_gaussian.em import given_start, log_prior
from inference.methods.linear_gaussian.rows import compress
from inference.methods.ppca import closed_form
from inference.methods.ppca import em as em_ppca
from inference.methods.ppca.closed_form import num_free_parameters, tipping_bishop
from inference.numerics.weighted_rows import Rows
from tests.support.ppca_cases import projected_rows, with_holes

CLOSE = 1e-9


@pytest.fixture(scope="module")
def x():
    """Sixty rows of five columns."""
    return projected_rows()


@pytest.fixture(scope="module")
def holes(x):
    """The same with a fifth of the cells missing."""
    return with_holes(x)


@pytest.fixture(scope="module")
def trees(x):
    """The same data by closed form and by EM from a random start."""
    model = zoo.PPCA(num_latents=2)
    return {
        "closed_form": inference.fit(model, x, method="closed_form"),
        "em": inference.fit(model, x, method="em", init="random", tolerance=0, max_iterations=80),
    }


@pytest.fixture(scope="module")
def holes_tree(holes):
    """EM with missing cells."""
    return inference.fit(zoo.PPCA(num_latents=2), holes, tolerance=1e-12)


def _values(tree):
    return {
        name: value.to_numpy() for name, value in tree["posterior"].isel(chain=0, draw=0).data_vars.items()
    }


def test_the_components_are_a_series_of_total_least_squares_fits(x, trees):
    """Lines of least squared distance from the rows, each orthogonal to those before, by a direct search."""
    away, found = x - x.mean(axis=0), np.zeros((5, 0))

    def distance(place):
        line = place - found @ (found.T @ place)
        line = line / np.linalg.norm(line)
        return np.sum((away - np.outer(away @ line, line)) ** 2)

    for seed in range(2):
        starts = np.random.default_rng(seed).normal(size=(4, 5))
        best = min((minimize(distance, start, tol=1e-12) for start in starts), key=lambda own: own.fun)
        line = best.x - found @ (found.T @ best.x)
        found = np.column_stack([found, line / np.linalg.norm(line)])
    loadings = _values(trees["closed_form"])["loadings"]
    assert subspace_angles(found, loadings).max() < 1e-4
    assert subspace_angles(np.cov(x.T) @ found[:, :1], found[:, :1]).max() < 1e-4  # the first is an axis


def test_em_from_anywhere_reaches_the_closed_form(trees):
    """Log likelihood and noise 1e-9, subspace 1e-6 rad, loadings themselves after the canonical rotation."""
    closed, em = _values(trees["closed_form"]), _values(trees["em"])
    assert trees["em"].attrs["log_likelihood"] == pytest.approx(
        trees["closed_form"].attrs["log_likelihood"], rel=CLOSE
    )
    assert em["noise_variance"] == pytest.approx(closed["noise_variance"], rel=CLOSE)
    assert subspace_angles(em["loadings"], closed["loadings"]).max() < 1e-6
    np.testing.assert_allclose(em["loadings"], closed["loadings"], atol=1e-6)
    assert trees["closed_form"].attrs["converged"] == 1


def test_closed_form_is_a_maximum_of_the_program(trees, x):
    """Its log likelihood is the rows' by the program, its gradient is zero."""
    values = _values(trees["closed_form"])
    model = zoo.PPCA(num_latents=2)
    density = inference.log_density(trees["closed_form"], x)
    objective = float(trees["closed_form"]["trace"]["objective"][0])
    assert objective == pytest.approx(float(density.sum()), rel=1e-12)
    with jax.enable_x64(True):

        def minus(flat):
            loadings, loc, noise = flat[:10].reshape(5, 2), flat[10:15], np.exp(flat[15])
            given = {"loadings": loadings, "loc": loc, "noise_variance": noise}
            return -float(model.log_likelihood(given, x).sum())

        at = np.concatenate([values["loadings"].ravel(), values["loc"], [np.log(values["noise_variance"])]])
        assert np.abs(approx_fprime(at, minus, 1e-6)).max() < 1e-2  # forward differences of curvature 1e3
        for direction in np.eye(16):
            assert minus(at + 1e-3 * direction) > minus(at)


def test_missing_value_em_without_missing_values_is_the_closed_form(trees, x):
    """The form that takes every row by itself, as it must where rows have holes of their own."""
    model = zoo.PPCA(num_latents=2)
    with jax.enable_x64(True):
        key = jax.random.key(0)
        state = em_ppca.init(key, model, jnp.asarray(x), strategy="random")
        step = jax.jit(em_ppca.step)
        for _ in range(60):
            state, info = step(key, state, model, jnp.asarray(x))
    assert float(info.objective) == pytest.approx(trees["closed_form"].attrs["log_likelihood"], rel=CLOSE)


@pytest.mark.slow
def test_wide_data_and_weights():
    """More columns than rows; rows that count several times are copies."""
    wide = projected_rows(20, 40)
    closed, em = (inference.fit(zoo.PPCA(), wide, method=m) for m in ("closed_form", "em"))
    assert em.attrs["log_likelihood"] == pytest.approx(closed.attrs["log_likelihood"], rel=CLOSE)
    assert subspace_angles(_values(em)["loadings"], _values(closed)["loadings"]).max() < 1e-6
    weight = np.arange(60) % 3
    x = projected_rows()
    weighed = inference.fit(zoo.PPCA(), x, method="em", sample_weight=weight)
    copied = inference.fit(zoo.PPCA(), np.repeat(x, weight, axis=0), method="closed_form")
    assert weighed.attrs["log_likelihood"] == pytest.approx(copied.attrs["log_likelihood"], rel=CLOSE)
    np.testing.assert_allclose(_values(weighed)["loadings"], _values(copied)["loadings"], atol=1e-7)


def test_tree_has_what_the_contract_says(trees, holes_tree, holes):
    """Groups, dims, one draw; the covariance of the latents is one for all rows only if all are complete."""
    for tree in (*trees.values(), holes_tree):
        assert tree["posterior"].sizes["chain"] == tree["posterior"].sizes["draw"] == 1
        assert tree["posterior"]["loadings"].dims == ("chain", "draw", "feature", "latent")
        assert tree["variational"]["latents"].dims == ("observation", "latent")
        assert np.isfinite(tree["trace"]["objective"]).all()
        assert "log_likelihood" not in tree.children and tree.attrs["left_out"] == ""
    assert trees["em"]["variational"]["latents_covariance"].dims == ("latent", "latent_2")
    per_row = holes_tree["variational"]["latents_covariance"]
    assert per_row.dims == ("observation", "latent", "latent_2")
    scores = inference.transform(holes_tree, holes, covariance=True)
    np.testing.assert_allclose(scores["scores"], holes_tree["variational"]["latents"], atol=1e-12)
    np.testing.assert_allclose(scores["covariance"], per_row, atol=1e-12)
    assert "marginal_covariance[0, 0]" in summary(holes_tree).index
    assert "loadings" in summary(holes_tree).attrs["note"]


def test_scores_latent_and_orthonormal(trees, x):
    """Orthonormal scores are PCA's, latent ones are whitened and shrunk by (1 - noise / eigenvalue)."""
    tree = trees["closed_form"]
    centred = x - x.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(x))
    values, vectors = values[::-1][:2], vectors[:, ::-1][:, :2]
    orthonormal = inference.transform(tree, x, scores="orthonormal").to_numpy()
    projected = centred @ vectors
    signs = np.sign((projected * orthonormal).sum(0))
    np.testing.assert_allclose(orthonormal, projected * signs, atol=1e-9)
    latent = inference.transform(tree, x)
    assert latent.dims == ("observation", "latent")
    shrunk = projected * signs * np.sqrt(values - float(_values(tree)["noise_variance"])) / values
    np.testing.assert_allclose(latent, shrunk, atol=1e-9)
    with pytest.raises(ValueError, match="scores must be one of latent, orthonormal; got 'pca'"):
        inference.transform(tree, x, scores="pca")
    assert inference.transform(tree, x[:1]).shape == (1, 2)


def test_predict_completesprojected_rows(holes_tree, holes, x):
    """Missing cells at the conditional normal's mean with its deviation, others untouched; truth is covered.

    All 58 standardised errors below 4.5 where the parameters are nearly known: false alarm rate 4e-4.
    """
    completed = inference.predict(holes_tree, holes)
    missing = np.isnan(holes)
    np.testing.assert_array_equal(completed.to_numpy()[~missing], holes[~missing])
    deviation = completed["standard_deviation"].to_numpy()
    assert (deviation[~missing] == 0).all() and (deviation[missing] > 0).all()
    assert (np.abs((completed.to_numpy() - x)[missing]) < 4.5 * deviation[missing]).all()
    values = _values(holes_tree)
    covariance = values["loadings"] @ values["loadings"].T + values["noise_variance"] * np.eye(5)
    row = int(np.flatnonzero(missing.any(axis=1))[0])
    o = ~missing[row]
    gain = covariance[np.ix_(~o, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    mean = values["loc"][~o] + gain @ (holes[row, o] - values["loc"][o])
    spread = covariance[np.ix_(~o, ~o)] - gain @ covariance[np.ix_(o, ~o)]
    np.testing.assert_allclose(completed.to_numpy()[row, ~o], mean, rtol=1e-9)
    np.testing.assert_allclose(deviation[row, ~o], np.sqrt(np.diag(spread)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("acceleration", ["none", "px"])
def test_every_acceleration_rises_and_starts_are_taken(acceleration, holes, holes_tree):
    """Monotone to rounding from the given start; a former tree starts at its end."""
    model = zoo.PPCA(num_latents=2)
    settings = {"tolerance": 0, "max_iterations": 30, "acceleration": acceleration, "method": "em"}
    trace = inference.fit(model, holes, init="random", **settings)["trace"]["objective"].to_numpy()
    assert -np.diff(trace).min() < 1e-12 * abs(trace[-1])
    again = inference.fit(model, holes, init=holes_tree, **settings)["trace"]["objective"].to_numpy()
    assert again[0] == pytest.approx(holes_tree.attrs["log_likelihood"], rel=1e-12)


def test_methods_say_what_they_cannot(x, holes):
    """Closed form: complete rows, one noise, flat prior; auto goes to EM there; bad options are named."""
    for model, rows, message in (
        (zoo.PPCA(), holes, "is missing: fit with method='em'"),
        (zoo.PPCA(noise="diagonal"), x, "got noise='diagonal'"),
    ):
        with pytest.raises(ValueError, match=message):
            inference.fit(model, rows, method="closed_form")
        assert auto_method(model, rows) == "em"
    assert auto_method(zoo.PPCA(), x) == "closed_form"
    with pytest.raises(ValueError, match="acceleration must be one of px, none"):
        inference.fit(zoo.PPCA(), x, method="em", acceleration="fast")
    with pytest.raises(ValueError, match="noise_floor must be a share"):
        inference.fit(zoo.PPCA(), x, noise_floor=0)
    with pytest.raises(ValueError, match="missing: loc, noise_variance"):
        inference.fit(zoo.PPCA(), x, method="em", init={"loadings": np.ones((5, 2))})


def test_rank_deficient_data_are_held_at_the_floor_and_said():
    """Two latents explain rank-two data whole: both methods stop at the floor and warn."""
    x = projected_rows(noise=0.0)
    lowest = 1e-6 * x.var(0).mean()
    for method in ("closed_form", "em"):
        with pytest.warns(UserWarning, match="held at noise_floor=1e-06"):
            tree = inference.fit(zoo.PPCA(), x, method=method)
        assert float(_values(tree)["noise_variance"]) == pytest.approx(lowest)
        assert tree.attrs["noise_at_floor"] == 1


@pytest.mark.slow
def test_factor_analysis_does_not_mind_the_columns_units():
    """Rescaling a column rescales its loadings and noise; the likelihood moves by the Jacobian alone."""
    holes = projected_rows(80, 8, noise=0.7)
    holes[::3, 2] = holes[1::4, 5] = np.nan
    model = zoo.PPCA(num_latents=2, noise="diagonal")
    tree = inference.fit(model, holes, tolerance=1e-10)
    scale = np.array([1.0, 10.0, 1.0, 0.1, 1.0, 1.0, 3.0, 1.0])
    other = inference.fit(model, holes * scale, tolerance=1e-10)
    assert tree["posterior"]["noise_variance"].dims == ("chain", "draw", "feature")
    cells = (~np.isnan(holes)).sum(0) @ np.log(scale)
    assert other.attrs["log_likelihood"] == pytest.approx(tree.attrs["log_likelihood"] - cells, abs=1e-5)
    ours, theirs = _values(tree), _values(other)
    np.testing.assert_allclose(theirs["noise_variance"], ours["noise_variance"] * scale**2, rtol=1e-3)


def test_saved_fits_predict(holes_tree, holes, tmp_path):
    """A fit read back scores and completes rows as before."""
    inference.save(holes_tree, tmp_path / "fit.nc")
    again = inference.load(tmp_path / "fit.nc")
    for function in (inference.transform, inference.predict, inference.log_density):
        np.testing.assert_array_equal(function(again, holes), function(holes_tree, holes))


def test_tipping_bishop_agrees_with_the_svd_and_survives_small_noise():
    """Also where the squares of singular values have lost the noise: relative noise 1e-16 of the signal."""
    for noise in (0.3, 1e-8):
        x = projected_rows(200, 8, 3, noise=noise)
        found = tipping_bishop(x, 3, noise_floor=1e-300)
        lengths = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2 / len(x)
        strengths = (found.loadings**2).sum(0) + found.noise_variance
        np.testing.assert_allclose(strengths, lengths[:3], rtol=1e-9)
        if noise > 1e-3:
            assert found.noise_variance == pytest.approx(lengths[3:].mean(), rel=1e-9)


@pytest.mark.filterwarnings("ignore:the noise variance is held")
@pytest.mark.parametrize("noise", [1.0, 1e-6], ids=["", "by_svd"])
@pytest.mark.parametrize("shape", [(12, 4), (6, 9)], ids=["tall", "wide"])
def test_rows_of_weight_w_are_rows_that_stand_there_w_times(shape, noise):
    """Estimate, log likelihood, BIC and AIC of the closed form; the latents are those of each row once."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(shape[0], 1)) @ rng.normal(size=(1, shape[1])) + noise * rng.normal(size=shape)
    model, weight = zoo.PPCA(num_latents=2), np.arange(len(x)) % 3 + 1
    weighted, given = closed_form.solve(None, model, (Rows(x, weight.astype(float)),))
    repeated, wanted = closed_form.solve(None, model, (np.repeat(x, weight, axis=0),))
    close = 1e-12 if noise == 1.0 else 1e-9  # at the floor six digits of the trace are lost
    assert given == pytest.approx(wanted, rel=close)
    for name, value in repeated.attrs.items():
        assert weighted.attrs[name] == pytest.approx(value, rel=close), name
    for name, value in repeated.posterior.items():
        np.testing.assert_allclose(weighted.posterior[name], value, rtol=1e-9, atol=1e-12)
    latents = repeated.variational["latents"][np.cumsum(weight) - 1]
    np.testing.assert_allclose(weighted.variational["latents"], latents, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loading_prior", ["gaussian", "ard"])
def test_the_prior_is_of_the_parameters_as_given_though_rows_are_about_their_mean(loading_prior):
    """Rows a hundred away from zero: the mean's prior density by SciPy, of what is added to the noise's."""
    x = np.random.default_rng(0).normal(size=(9, 4)) + 100.0
    fields = {
        "loc_mean": np.full(4, 98.0),
        "loc_variance": 4.0,
        "noise_concentration": 3.0,
        "noise_rate": 0.7,
    }
    fields |= {"loading_variance": 2.0, "ard_concentration": 1.4, "ard_rate": 0.6}
    model = zoo.PPCA(num_latents=2, loading_prior=loading_prior, **fields)
    rows = compress(x, em_ppca.groups_of(model, 4), rotate=False)
    loc, other = np.array([97.0, 99.5, 100.0, 101.0]), np.full(4, 98.0)
    with jax.enable_x64(True):
        prior = em_ppca.prior_of(model, rows)
        found = [
            float(log_prior(given_start(np.ones((4, 2)), own, np.array([0.4]), rows), prior))
            for own in (loc, other)
        ]
    wanted = stats.norm.logpdf(loc, 98.0, 2.0).sum() - stats.norm.logpdf(other, 98.0, 2.0).sum()
    np.testing.assert_allclose(found[0] - found[1], wanted, rtol=1e-6)


@pytest.mark.parametrize(("case", "digits"), [("tall", 1e-11), ("wide", 1e-11), ("at the floor", 1e-9)])
def test_what_the_closed_form_knows_is_what_the_program_says(case, digits):
    """Latents and log likelihood come with the eigenvalues; the general formulas give the same.

    Noise at 1e-6 of the variance divides squares whose rounding is 1e-16 of it: some 1e-10 of each row's sum.
    """
    rng = np.random.default_rng(3)
    x = {"tall": rng.normal(size=(60, 5)) * 3 + 1e3, "wide": rng.normal(size=(8, 30))}.get(case)
    x = np.outer(rng.normal(size=50), np.ones(4)) if x is None else x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the floor
        tree = inference.fit(zoo.PPCA(num_latents=2), x, method="closed_form")
    spread = tree["variational"]["latents"].values.std()
    np.testing.assert_allclose(
        tree["variational"]["latents"], inference.transform(tree, x), rtol=0, atol=1e-12 * spread
    )
    total = float(np.sum(np.asarray(inference.log_density(tree, x))))
    np.testing.assert_allclose(tree.attrs["log_likelihood"], total, rtol=digits)


def test_free_parameters_are_counted_without_the_rotation_and_bic_weighs_them_by_the_rows():
    """Of five columns and two latents 10 loadings less one angle, five means, one noise or five."""
    assert num_free_parameters(zoo.PPCA(num_latents=2), 5) == 10 - 1 + 5 + 1
    assert num_free_parameters(zoo.PPCA(num_latents=3, noise="diagonal"), 5) == 15 - 3 + 5 + 5
    x = np.random.default_rng(0).normal(size=(30, 5))
    tree = inference.fit(zoo.PPCA(num_latents=2), x)
    log_likelihood = tree["trace"]["objective"].to_numpy().ravel()[-1]
    assert tree.attrs["bic"] == pytest.approx(15 * np.log(30) - 2 * log_likelihood, rel=1e-9)


@pytest.mark.parametrize("weak", [0.5, 1e-3], ids=["products", "small gain"])
@pytest.mark.parametrize("shape", [(12, 5), (7, 9)], ids=["tall", "wide"])
def test_eigenvalues_of_rows_of_known_singular_values(shape, weak):
    """Their squares over the number of rows; a weak direction, 1e-6 of the first one's length, keeps its own.

    There the squares of the rows have lost it, and the singular values of the rows themselves tell.
    """
    rng, lengths = np.random.default_rng(0), np.array([1e3, 2.0, weak, weak / 50])
    about = rng.normal(size=(shape[0], 4))
    left = np.linalg.qr(about - about.mean(axis=0))[0]  # centred columns
    directions = np.linalg.qr(rng.normal(size=(shape[1], 4)))[0]
    x = (left * lengths) @ directions.T
    found = tipping_bishop(x + 0.25, 3, noise_floor=1e-300)
    variances = (found.loadings**2).sum(axis=0) + found.noise_variance
    np.testing.assert_allclose(variances, lengths[:3] ** 2 / shape[0], rtol=1e-8)
    cosines = np.abs((found.loadings * directions[:, :3]).sum(axis=0)) / np.linalg.norm(
        found.loadings, axis=0
    )
    np.testing.assert_allclose(cosines, 1.0, rtol=1e-8)
    if weak > 1e-2:
        noise = lengths[3] ** 2 / shape[0] / (shape[1] - 3)
        assert found.noise_variance == pytest.approx(noise, rel=1e-4)
