"""Rows of probabilistic PCA in batches: their number, mean and scatter are all that a fit needs."""

import numpy as np
import pytest

import zoo
from inference import fit, log_density
from inference.numerics.summed_rows import summed

RNG = np.random.default_rng(5)
X = RNG.normal(size=(403, 2)) @ RNG.normal(size=(2, 6)) * 2 + RNG.normal(size=(403, 6)) * np.linspace(
    0.5, 1.5, 6
)
X = X + 10 * RNG.normal(size=6)
WEIGHT = RNG.integers(0, 4, 403).astype(float)
PRIOR = {"num_latents": 2, "loading_prior": "ard"}
CALLS = {
    "closed form": (zoo.PPCA(num_latents=2), {}),
    "factor analysis": (zoo.PPCA(num_latents=2, noise="diagonal"), {"method": "em", "sample_weight": WEIGHT}),
    "ARD by EM": (zoo.PPCA(**PRIOR), {"sample_weight": WEIGHT}),
    "ARD by VB": (zoo.PPCA(**PRIOR), {"method": "vb"}),
    "standardised VB": (zoo.PPCA(**PRIOR, noise="diagonal", standardize=True), {"method": "vb"}),
}


def batches(size, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return [(X[begin : begin + size], weight[begin : begin + size]) for begin in range(0, len(X), size)]


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_few_rows_have_the_weight_mean_and_scatter_of_all(size):
    """To rounding, however the rows are cut, and with the columns far from the origin."""
    rows, weight = summed(batches(size, WEIGHT))
    assert rows.shape == (12, 6) and np.ptp(weight) == 0
    mean = np.average(X, axis=0, weights=WEIGHT)
    np.testing.assert_allclose(weight.sum(), WEIGHT.sum(), rtol=1e-14)
    np.testing.assert_allclose(np.average(rows, axis=0, weights=weight), mean, rtol=1e-13)
    scatter = (weight[:, None] * (rows - mean)).T @ (rows - mean)
    np.testing.assert_allclose(scatter, (WEIGHT[:, None] * (X - mean)).T @ (X - mean), rtol=1e-11, atol=1e-9)


def test_few_rows_stay_as_they_are_and_constant_columns_constant():
    rows, weight = summed(batches(5)[:2])
    np.testing.assert_array_equal(rows, X[:10])
    np.testing.assert_array_equal(weight, np.ones(10))
    constant = np.column_stack([X[:, :2], np.full(len(X), 0.1)])
    held = summed([(constant[:200], np.ones(200)), (constant[200:], np.ones(203))]).x
    assert (held[:, 2] == 0.1).all()


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("name", CALLS)
def test_the_fit_is_that_of_all_rows(name, tmp_path):
    """Objective, parameters and BIC to rounding, from a file; nothing per row is kept."""
    model, call = CALLS[name]
    np.save(tmp_path / "x.npy", X)
    whole = fit(model, X, num_samples=2, **call)
    tree = fit(model, tmp_path / "x.npy", batch_size=64, num_samples=2, **call)
    assert tree.attrs["method"] == whole.attrs["method"] and tree.attrs["batch_size"] == 64
    objectives = tree["trace"]["objective"].values, whole["trace"]["objective"].values
    assert len(objectives[0]) == len(objectives[1])
    np.testing.assert_allclose(*objectives, rtol=1e-12)
    for key in {"bic", "aic", "log_likelihood"} & whole.attrs.keys():
        np.testing.assert_allclose(tree.attrs[key], whole.attrs[key], rtol=1e-12)
    loadings = "loadings" if "loadings" in whole["variational"] else "loadings_mean"
    products = [
        each["variational"][loadings].values @ each["variational"][loadings].values.T
        for each in (tree, whole)
    ]
    np.testing.assert_allclose(*products, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_density(tree, X[:5]), log_density(whole, X[:5]), rtol=1e-9)
    assert not any("observation" in group.dims for group in tree.children.values())
    assert "observed_data" in tree.attrs["left_out"]


def test_missing_cells_are_refused_with_the_row_and_the_remedy():
    holed = X.copy()
    holed[130, 2] = np.nan
    with pytest.raises(ValueError, match="row 130 .*column 2 is missing.*leave batch_size out"):
        fit(zoo.PPCA(num_latents=2), holed, batch_size=50)
    with pytest.raises(ValueError, match="num_latents must be below the number of rows"):
        fit(zoo.PPCA(num_latents=5), X[:5], batch_size=2)
