"""One orientation: tables, `transform`, explanations, files and estimators mean the same axis by a latent.

The weakest direction of the data is their first, so that no order is right by chance.
"""

import warnings

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference import prediction
from inference.diagnostics import profiles
from inference.estimators import EPCAEstimator, MCFAEstimator, PPCAEstimator, SPPCARegressor
from inference.results.files import load, save
from inference.results.groups import loadings_of, thinned
from inference.symmetry import align_rotation
from inference.symmetry.rotation import aligned_draws, orientation

ROWS = 60
_rng = np.random.default_rng(3)
X = _rng.normal(size=(ROWS, 2)) @ (_rng.normal(size=(2, 6)) * [[0.9], [2.0]]) + 0.4 * _rng.normal(
    size=(ROWS, 6)
)
BITS = (X > X.mean(0)).astype(float)
GAUSSIAN = ("gaussian", "gaussian")

CASES = {
    "ppca vb": (zoo.PPCA(num_latents=2, loading_prior="gaussian"), (X,), "vb"),
    "ppca vb ard": (zoo.PPCA(num_latents=2, loading_prior="ard"), (X,), "vb"),
    "ppca em": (zoo.PPCA(num_latents=2), (X,), "em"),
    "student ppca vb": (
        zoo.PPCA(num_latents=2, loading_prior="gaussian", degrees_of_freedom=4.0),
        (X,),
        "vb",
    ),
    "sppca vb": (zoo.SPPCA(num_latents=2, loading_prior="gaussian"), (X[:, :4], X[:, 4:]), "vb"),
    "epca map": (zoo.EPCA(family="bernoulli", num_latents=2), (BITS,), "map"),
    "epca vb": (zoo.EPCA(family="bernoulli", num_latents=2), (BITS,), "vb"),
    "paired vb": (zoo.Paired.ecca(GAUSSIAN, 2, (0, 0)), (X[:, :3], X[:, 3:]), "vb"),
    "mcfa vb": (zoo.MCFA(num_components=2, num_latents=2), (X,), "vb"),
}


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    """A fit, and its data."""
    model, data, method = CASES[request.param]
    return inference.fit(model, *data, method=method, progress=False), data


def scores_of_table(tree):
    """The scores of all rows by the table of extreme rows, shape (ROWS, num_latents)."""
    table = profiles(tree, num_rows=ROWS)["extreme_rows"].reset_index()
    return table.pivot_table(index="row", columns="latent", values="score").to_numpy()


def check(tree, data):
    """That each latent of the table is that of `transform`."""
    told, asked = scores_of_table(tree), inference.transform(tree, *data).to_numpy()
    for latent in range(told.shape[1]):
        assert np.corrcoef(told[:, latent], asked[:, latent])[0, 1] > 0.98, latent


def test_the_latents_of_a_table_are_those_of_transform(fitted):
    tree, data = fitted
    check(tree, data)
    check(align_rotation(tree), data)


def test_an_exchange_of_two_latents_is_noticed(fitted, monkeypatch):
    tree, data = fitted
    monkeypatch.setattr("inference.prediction.orientation", lambda tree: orientation(tree)[:, ::-1])
    with pytest.raises(AssertionError):
        check(tree, data)


def test_fewer_draws_have_the_orientation_of_all(fitted):
    check_few_draws(fitted[0])


def test_fewer_draws_of_a_sampler_have_the_orientation_of_all():
    model, data, _ = CASES["ppca vb"]
    settings = {"num_samples": 20, "num_warmup": 20, "num_chains": 2, "progress": False}
    with pytest.warns(UserWarning, match="has not converged"):
        tree = inference.fit(model, *data, method="gibbs", **settings)
    check_few_draws(tree)


def check_few_draws(tree):
    """That they are those of the aligned fit, although fewer have another mean."""
    few, all_of_them = aligned_draws(tree, 7), align_rotation(tree)
    for view, loadings in loadings_of(few).items():
        np.testing.assert_array_equal(loadings, loadings_of(thinned(all_of_them, 7))[view])
    assert aligned_draws(all_of_them, 7)["posterior"].sizes == few["posterior"].sizes


def test_a_file_and_an_explanation_have_the_same_axes(fitted, tmp_path):
    tree, data = fitted
    save(tree, tmp_path / "fit.nc")
    loaded = load(tmp_path / "fit.nc")
    scores = inference.transform(tree, *data).to_numpy()
    np.testing.assert_allclose(inference.transform(loaded, *data), scores, atol=1e-9)
    said = inference.explain(loaded, 5).attrs["said"]
    if "scores" in said and len(data) == 1:  # of two parts a row is scored without its outputs
        assert f"latent_0 {scores[5, 0]:.3g}, latent_1 {scores[5, 1]:.3g}" in said


@pytest.mark.parametrize("method", ["closed_form", "em"])
def test_scores_of_a_kernel_have_the_scale_of_transform(method):
    tree = inference.fit(zoo.KernelPCA(num_latents=2), X, method=method, progress=False)
    np.testing.assert_allclose(scores_of_table(tree), inference.transform(tree, X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", ["ppca vb", "ppca em", "mcfa vb"])
def test_scores_of_a_table_are_those_of_q_and_not_of_its_draws(case):
    model, data, method = CASES[case]
    tree = inference.fit(model, *data, method=method, progress=False)
    np.testing.assert_allclose(scores_of_table(tree), inference.transform(tree, *data), rtol=1e-5, atol=1e-5)


def test_scores_of_steep_cells_are_as_long_as_the_draws_of_their_table(monkeypatch):
    """Slopes 1.02 and 1.05 here, those of the rows' modes .81 and .89."""
    model, data, _ = CASES["epca vb"]
    settings = {"num_samples": 300, "num_warmup": 200, "num_chains": 2, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = inference.fit(model, *data, method="gibbs", **settings)

    def slopes():
        told, asked = scores_of_table(tree), inference.transform(tree, *data).to_numpy()
        return [np.polyfit(told[:, k], asked[:, k], 1)[0] for k in range(2)]

    np.testing.assert_allclose(slopes(), 1.0, atol=0.08)
    monkeypatch.setattr("inference.prediction._scores_of_draw", prediction._scores)
    assert min(slopes()) < 0.92


def test_covariances_turn_with_the_scores():
    """A row alone with its covariance: the two axes of a fit turned by hand, and turned back."""
    model, data, method = CASES["ppca vb"]
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    tree = inference.fit(model, *data, method=method, progress=False)
    found = inference.transform(tree, gaps, covariance=True)
    aligned = inference.transform(align_rotation(tree), gaps, covariance=True)
    np.testing.assert_allclose(found["covariance"], aligned["covariance"], atol=1e-8)
    np.testing.assert_allclose(found["scores"], aligned["scores"], atol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "data"),
    [
        (PPCAEstimator(num_latents=2, method="vb", loading_prior="gaussian"), (X,)),
        (MCFAEstimator(num_components=2, num_latents=2), (X,)),
        (SPPCARegressor(num_latents=2), (X[:, :4], X[:, 4:])),
        (EPCAEstimator(num_latents=2, method="map"), (X,)),
    ],
)
def test_an_estimator_leads_back_along_the_axes_it_has_given(estimator, data):
    estimator.fit(*data)
    back = estimator.inverse_transform(estimator.transform(data[0]))
    assert np.mean((back - data[0]) ** 2) < 0.15 * np.mean((data[0] - data[0].mean(0)) ** 2)


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_latents_of_views_with_full_covariances_are_the_canonical_pairs_in_any_unit(unit):
    """By QR and SVD; two pairs that share no column, beside a column of noise in another unit."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(250, 2))
    a = np.column_stack([z[:, 0], z[:, 1], np.zeros(250)]) + rng.normal(size=(250, 3)) * [0.3, 0.3, 1]
    b = np.column_stack([z[:, 0], z[:, 1], np.zeros(250)]) + rng.normal(size=(250, 3)) * [0.3, 0.8, 1]
    a[:, 2] *= unit
    (qa, _), (qb, _) = (np.linalg.qr(part - part.mean(0)) for part in (a, b))
    u, _, v = np.linalg.svd(qa.T @ qb)
    pairs = (qa @ u + qb @ v.T)[:, :2]
    tables = pd.DataFrame(a, columns=["a1", "a2", "noise"]), pd.DataFrame(b, columns=["b1", "b2", "b3"])
    tree = inference.fit(zoo.Paired(num_shared=2, specific="full_covariance"), *tables, method="closed_form")
    scores = inference.transform(tree, *tables).to_numpy()
    found = np.abs(np.corrcoef(scores, pairs, rowvar=False)[:2, 2:])
    np.testing.assert_allclose(found, np.eye(2), atol=0.005)
    latents = profiles(tree)["latents"]
    assert [set(name.split(" and ")) for name in latents["name"]] == [{"a1", "b1"}, {"a2", "b2"}]
    assert latents["share"].min() > 0.15
