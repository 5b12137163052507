"""SPPCA in feature space: the linear kernel is the primal model, others separate what is not linear."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference import extend, fit, load, log_density, predict, save, transform
from inference.methods.sppca import kernel_em
from inference.methods.sppca.kernel_em import FeatureData, concluded_in_features, first_coefficients
from inference.precision import in_precision
from tests.support.supervised_toys import best, dual_scores, toy
from zoo import SPPCA
from zoo.kernels import RBF
from zoo.kernels.gram import centred_gram

PRIMAL, DUAL = SPPCA(num_latents=3), SPPCA(num_latents=3, kernel="linear")


@pytest.fixture(scope="module")
def pair():
    """The same data by both forms, to the end."""
    x, _, y = toy(0)
    return fit(PRIMAL, x, y, tolerance=1e-13), fit(DUAL, x, y, tolerance=1e-13)


def four_clusters(seed=0, each=25):
    """Clusters at (+-2, +-2), sd .5, classes by XOR; positions are ours, the source does not print them."""
    rng = np.random.default_rng(seed)
    centres = np.array([[2.0, 2.0], [-2.0, -2.0], [2.0, -2.0], [-2.0, 2.0]])
    x = np.repeat(centres, each, axis=0) + 0.5 * rng.normal(size=(4 * each, 2))
    return x, np.repeat([1.0, 1.0, -1.0, -1.0], each)[:, None]


def test_linear_kernel_is_the_primal_model(pair):
    primal, dual = pair
    x, _, y = toy(0)
    np.testing.assert_allclose(best(dual), best(primal), atol=1e-8)
    new = toy(7)[0][:30]
    for what in (predict, log_density):
        np.testing.assert_allclose(what(dual, new), what(primal, new), atol=1e-6)
    for name in ("noise_variance_x", "noise_variance_y"):
        np.testing.assert_allclose(dual["variational"][name], primal["variational"][name], rtol=1e-6)
    for kind in ("latent", "orthonormal"):
        grams = [s @ s.T for s in (transform(t, new, scores=kind).to_numpy() for t in pair)]
        np.testing.assert_allclose(*grams, atol=1e-5)
    spreads = [transform(t, x, y, covariance=True)["covariance"].to_numpy() for t in pair]
    np.testing.assert_allclose(*(np.linalg.eigvalsh(s) for s in spreads), atol=1e-7)
    np.testing.assert_allclose(log_density(dual, x, y).sum(), best(dual), rtol=1e-11)
    np.testing.assert_allclose(transform(dual, x, y), dual["variational"]["latents"], atol=1e-8)
    sums = dual["posterior"]["coefficients"].to_numpy().sum(axis=2)  # so W stays when rows are centred again
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)


@pytest.mark.parametrize(
    "fields",
    [{}, {"output_noise": "per_output", "noise_floor": (1e-6, 1e-9)}],
    ids=["shared", "per output"],
)
def test_the_closed_form_with_a_linear_kernel_is_the_primal_one(fields):
    """Theorem 7.3.2 as corrected: the same maximum, densities, scores and spread as Theorem 7.3.1."""
    x, y, _ = toy(0)
    models = [SPPCA(num_latents=3, kernel=kernel, **fields) for kernel in (None, "linear")]
    primal, dual = (fit(model, x, y, method="closed_form", tolerance=1e-13) for model in models)
    trace = dual["trace"]["objective"].to_numpy()
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])
    np.testing.assert_allclose(best(dual), best(primal), rtol=1e-11)
    np.testing.assert_allclose(log_density(dual, x, y).sum(), best(dual), rtol=1e-11)
    new = toy(7)[0][:30]
    np.testing.assert_allclose(predict(dual, new), predict(primal, new), atol=1e-6)
    np.testing.assert_allclose(*(np.abs(transform(t, new)) for t in (primal, dual)), atol=1e-5)
    spreads = [transform(t, x, y, covariance=True)["covariance"].to_numpy() for t in (primal, dual)]
    np.testing.assert_allclose(*(np.linalg.eigvalsh(s) for s in spreads), atol=1e-7)


def test_the_closed_form_in_feature_space_is_where_em_ends_and_has_the_scores_of_the_theorem():
    x, y = four_clusters()
    y = y + np.random.default_rng(0).normal(size=y.shape)  # so that no floor holds its noise
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.05)
    tree = fit(model, x, y, method="closed_form", tolerance=1e-13)
    assert best(fit(model, x, y, init=tree, tolerance=1e-9)) - best(tree) < 1e-7
    np.testing.assert_allclose(log_density(tree, x, y).sum(), best(tree), rtol=1e-10)
    values = tree["variational"]
    gram = centred_gram(RBF(1.0), x)
    noise = 0.05, values["noise_variance_y"].to_numpy()
    with in_precision():
        own = dual_scores(jnp.asarray(gram.matrix), y - y.mean(axis=0), jnp.asarray(gram.matrix), noise, 3)
    np.testing.assert_allclose(np.abs(own), np.abs(transform(tree, x)), atol=1e-8)
    with pytest.raises(ValueError, match="closed_form needs every cell.*row 2"):
        fit(model, x, np.where(np.arange(100)[:, None] == 2, np.nan, y), method="closed_form")
    with pytest.raises(ValueError, match="noise of x is zero: give noise_variance_x"):
        fit(SPPCA(num_latents=3, kernel=RBF(1.0)), x, y, method="closed_form")


def test_components_below_the_noise_vanish_from_the_closed_form_in_feature_space():
    x, y = four_clusters()
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.9, output_noise="shared")
    noisy = np.random.default_rng(0).normal(size=y.shape)
    with pytest.warns(UserWarning) as told:
        tree = fit(model, x, noisy, method="closed_form", max_iterations=5)
    assert any("closed_form: 2 of 3 latents have no part in x" in str(one.message) for one in told)
    assert np.isfinite(best(tree))


@pytest.mark.parametrize("plugin", [False, True], ids=["joint", "plugin"])
def test_outputs_are_regressed_where_they_are_observed_and_share_the_noise_of_all_cells(plugin):
    """Latents known for certain: NumPy's least squares of each output; the plug-in keeps the cells' mean."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(9, 2)), rng.normal(size=(9, 3)) * [1.0, 5.0, 0.2]
    y[:4, 0] = y[7, 2] = np.nan
    observed, y = (~np.isnan(y)).astype(float), y - np.nanmean(y, axis=0)
    wanted = []
    for own in range(3):
        seen = observed[:, own] > 0
        design = z[seen] if plugin else np.c_[z, np.ones(9)][seen]
        found, squares, *_ = np.linalg.lstsq(design, y[seen, own])
        wanted.append([*found[:2], 0.0 if plugin else found[2], squares[0]])
    wanted = np.array(wanted)
    variance = np.nanvar(np.where(observed > 0, y, np.nan), axis=0)
    with in_precision():
        state = SimpleNamespace(latents=jnp.asarray(z), second=jnp.asarray(z[:, :, None] * z[:, None, :]))
        data = FeatureData(None, None, jnp.nan_to_num(y), jnp.asarray(observed), None, variance)
        loadings, loc, squares = kernel_em._regress_outputs(state, data, plugin)
        np.testing.assert_allclose(np.c_[loadings, loc, squares], wanted, rtol=1e-8, atol=1e-10)
        shared, each = SPPCA(num_latents=2), SPPCA(num_latents=2, output_noise="per_output")
        noise, noises = (kernel_em._output_noise(squares, data, model) for model in (shared, each))
        np.testing.assert_allclose(noise, wanted[:, 3].sum() / np.full(3, 22), rtol=1e-8)
        np.testing.assert_allclose(noises, wanted[:, 3] / [5, 9, 8], rtol=1e-8)
        spread, spreads = (kernel_em._output_variance(variance, model) for model in (shared, each))
    np.testing.assert_allclose(spread, np.full(3, variance.mean()), rtol=1e-12)
    np.testing.assert_array_equal(spreads, variance)


@pytest.mark.slow
def test_more_columns_than_rows_and_partial_outputs_agree_too():
    x, _, y = toy(4, num_rows=30, num_features=40, labelled=25)
    y[3, 0] = y[5, 2] = np.nan
    for fields in ({}, {"output_noise": "per_output", "noise_floor": (1e-6, 1e-9)}, {"center": "plugin"}):
        models = [SPPCA(num_latents=3, kernel=kernel, **fields) for kernel in (None, "linear")]
        primal, dual = (fit(model, x, y, tolerance=1e-13, max_iterations=5000) for model in models)
        np.testing.assert_allclose(best(dual), best(primal), atol=1e-7)
        np.testing.assert_allclose(predict(dual, x), predict(primal, x), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("acceleration", ["px", "none"])
def test_likelihood_in_feature_space_never_falls(acceleration):
    x, y = four_clusters()
    y[::3] = np.nan
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.01)
    options = {"acceleration": acceleration, "init": "random", "tolerance": 0, "max_iterations": 80}
    tree = fit(model, x, y, **options)
    objective = tree["trace"]["objective"].to_numpy()
    assert np.diff(objective).min() >= -1e-12 * np.abs(objective).max()
    np.testing.assert_allclose(log_density(tree, x, y).sum(), objective[-1], rtol=1e-10)


@pytest.mark.slow
def test_classes_that_no_line_separates_are_separated(tmp_path):
    """Figure 7.3: the class of the four clusters is read off x alone; its noise goes to any floor."""
    x, y = four_clusters()
    model = SPPCA(num_latents=3, kernel=RBF(1.0), noise_variance_x=0.01)
    with pytest.warns(UserWarning, match="noise_variance_y is at its floor"):
        tree = fit(model, x, y, max_iterations=300)
    new_x, new_y = four_clusters(seed=1)
    guess = predict(tree, new_x)
    assert guess.dims == ("observation", "output")
    assert (np.sign(guess.to_numpy()) == new_y).mean() > 0.97
    save(tree, tmp_path / "kernel.nc")
    np.testing.assert_array_equal(predict(load(tmp_path / "kernel.nc"), new_x), guess)


@pytest.mark.slow
def test_precomputed_values_are_the_kernel(pair):
    x, _, y = toy(0)
    model = SPPCA(num_latents=3, kernel="precomputed", feature_dimension=12)
    tree = fit(model, x @ x.T, y, tolerance=1e-13)
    new = toy(7)[0][:5]
    np.testing.assert_allclose(best(tree), best(pair[1]), atol=1e-8)
    np.testing.assert_allclose(predict(tree, new @ x.T), predict(pair[1], new), atol=1e-6)
    with pytest.raises(ValueError, match="a precomputed kernel does not say the inner product"):
        log_density(tree, new @ x.T)


@pytest.mark.slow
def test_latents_below_the_noise_are_said_to_have_vanished():
    x, y = four_clusters(each=8)
    model = SPPCA(num_latents=8, kernel=RBF(1.0), noise_variance_x=0.2)
    with (
        pytest.warns(UserWarning, match="latents have no part in x"),
        pytest.warns(UserWarning, match="is at its floor"),
    ):
        fit(model, x, y, max_iterations=2000, tolerance=1e-9)


def test_what_feature_space_does_not_have(pair):
    x, _, y = toy(0)
    with pytest.raises(ValueError, match="predicts outputs; got 'cells'"):
        predict(pair[1], x, what="cells")
    with pytest.raises(ValueError, match="inner products alone: rows cannot be replicated"):
        extend(pair[1], "posterior_predictive")
    rows = extend(pair[1], "log_likelihood")["log_likelihood"]["log_likelihood"]
    np.testing.assert_allclose(rows.sum(), best(pair[1]), rtol=1e-9)
    with pytest.raises(ValueError, match="nuts has no posterior to explore with a kernel"):
        fit(DUAL, x, y, method="nuts")


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "offset"), [("linear", 1e6), (RBF(3.0), 1e5)])
def test_an_offset_of_the_data_moves_no_prediction(kernel, offset):
    """New rows are shifted as the fitted ones are, and the stored latents are those of the rows again."""
    x, _, y = toy(0, num_rows=40)
    model = SPPCA(num_latents=2, kernel=kernel, noise_variance_x=0.25)
    near, far = fit(model, x, y, max_iterations=30), fit(model, x + offset, y + offset, max_iterations=30)
    new = toy(7)[0][:6]
    atol = 1e-13 * offset
    np.testing.assert_allclose(predict(far, new + offset) - offset, predict(near, new), atol=atol)
    np.testing.assert_allclose(log_density(far, new + offset), log_density(near, new), atol=atol)
    np.testing.assert_allclose(
        transform(far, x + offset, y + offset), far["variational"]["latents"], atol=atol
    )


def test_starts_share_the_variance_between_directions_and_noise():
    """Of a linear kernel of four columns: at random half is noise; at the components what they leave."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4)) * np.array([3.0, 2.0, 1.0, 0.5])
    x = x - x.mean(axis=0)
    gram = x @ x.T
    whole, lengths = (x**2).sum() / 20, np.linalg.eigvalsh(x.T @ x)[::-1] / 20
    model = SPPCA(num_latents=2, kernel="linear", feature_dimension=4)
    with in_precision():
        empty = jnp.zeros((20, 0))
        data = FeatureData(jnp.asarray(gram), jnp.zeros(20), empty, empty, jnp.zeros(0), jnp.zeros(0))
        drawn, noise = first_coefficients(jax.random.key(0), model, data, "random")
        led, left = first_coefficients(jax.random.key(0), model, data, "pca")
    drawn, led = np.asarray(drawn), np.asarray(led)
    np.testing.assert_allclose(np.sum(drawn * (gram @ drawn), axis=0), 0.25 * whole, rtol=1e-9)
    np.testing.assert_allclose(drawn.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(noise, 0.5 * whole / 4, rtol=1e-9)
    np.testing.assert_allclose(np.sum(led * (gram @ led), axis=0), lengths[:2], rtol=1e-9)
    np.testing.assert_allclose(left, lengths[2:].sum() / 4, rtol=1e-9)


def test_each_latent_without_a_part_in_x_is_counted():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)), rng.normal(size=(20, 1))
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    model = SPPCA(num_latents=3, kernel="linear", feature_dimension=4, noise_variance_x=0.5, num_outputs=1)
    with in_precision():
        data = FeatureData(
            jnp.asarray(x @ x.T), jnp.zeros(20), jnp.asarray(y), jnp.ones((20, 1)), 0.0, y.var(axis=0)
        )
        values = {
            "coefficients": jnp.asarray(rng.normal(size=(20, 3))).at[:, 1].set(0.0),
            "loadings_y": jnp.array([[1.0, 0.0, 1.0]]),
            "loc_y": jnp.zeros(1),
            "noise_variance_x": jnp.asarray(0.5),
            "noise_variance_y": jnp.asarray(0.8),
        }
        with pytest.warns(UserWarning, match="em: 1 of 3 latents have no part in x"):
            concluded_in_features(values, jnp.zeros((20, 3)), jnp.zeros((20, 3, 3)), model, data, y, "em")
