"""Sizes of mixtures of PCAs: the bound, the parameters it pays for, and the answer where sizes are known."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats
from scipy.special import logsumexp

import inference
import zoo
from inference.diagnostics import model_size
from inference.diagnostics.model_size import _bound, num_parameters
from zoo.exponential_family import Gaussian

# columns of one unit, of which some are of noise alone
pytestmark = pytest.mark.filterwarnings("ignore:the columns of x have very different scales")


def planted(num_rows, seed=0):
    """Two groups in five columns, each with one strong direction, noise variance a quarter."""
    rng = np.random.default_rng(seed)
    label = np.arange(num_rows) % 2
    direction = np.array([[3.0, 3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, -3.0]])
    centre = np.array([[4.0, 0.0, 0.0, 0.0, 0.0], [-4.0, 0.0, 0.0, 0.0, 0.0]])
    x = centre[label] + rng.normal(size=(num_rows, 1)) * direction[label]
    return x + 0.5 * rng.normal(size=x.shape)


FIELDS = dict(family=Gaussian(noise_variance=0.25), repulsion=0.0)


def test_free_parameters_are_the_dimension_of_the_manifolds():
    """Of W W' + offset: rank-d symmetric matrices of size D have D d - d (d - 1) / 2 dimensions."""
    for features, latents in ((5, 1), (5, 2), (7, 7)):
        model = zoo.DEPCAM(num_components=3, num_latents=latents)
        own = features * latents - latents * (latents - 1) // 2 + features
        assert num_parameters(model, features) == 3 * own + 2
    learnt = zoo.DEPCAM(family=Gaussian(noise_variance=None), num_components=1, num_latents=1, offset=True)
    assert num_parameters(learnt, 4) == 4 + 4 + 1


def test_parameters_pay_half_the_logarithm_of_the_rows(monkeypatch):
    """Three components of two directions in five columns, by hand: 7 of each basis, 2 scales, 5 offsets."""
    x = planted(40)
    objective = xr.Dataset({"objective": ("iteration", [-300.0, -110.0, np.nan])})
    q = xr.Dataset({"scales": (("component", "latent"), [[2.0, 0.0], [1.0, 3.0], [0.5, 0.0]])})
    tree = xr.DataTree.from_dict({"variational": q, "trace": objective})
    monkeypatch.setattr(model_size, "fit", lambda *data, **settings: tree)
    monkeypatch.setattr(model_size, "model_of", lambda tree: None)
    monkeypatch.setattr(model_size, "_log_prior", lambda values, model: 10.0)
    for noise, learnt in ((0.25, 0), (None, 1)):
        family = Gaussian(noise_variance=noise)
        model = zoo.DEPCAM.from_data(x, num_components=3, num_latents=2, family=family)
        found = model_size._of_one(model, x, "vb", 0, {})
        count = 3 * (7 + 2 + 5) + 2 + learnt
        assert (found["bound"], found["num_parameters"], found["num_active"]) == (-120.0, count, 4)
        criterion = -120.0 - np.log(np.sqrt(40.0)) * count
        assert found["criterion"] == pytest.approx(criterion, rel=1e-12)


@pytest.mark.slow
def test_bound_of_gaussian_cells_is_the_log_likelihood():
    """Dense normals at the estimate, the prior left out."""
    x = planted(40)
    model = zoo.DEPCAM.from_data(x, num_components=2, num_latents=1, **FIELDS)
    tree = inference.fit(model, x, method="vb", num_samples=1, tolerance=1e-7)
    q = {name: value.to_numpy() for name, value in tree["variational"].data_vars.items()}
    w = q["bases"] * q["scales"][:, None]
    rows = [
        stats.multivariate_normal.logpdf(x, q["offsets"][k], w[k] @ w[k].T + 0.25 * np.eye(5))
        + np.log(q["weights"][k])
        for k in range(2)
    ]
    np.testing.assert_allclose(_bound(tree), logsumexp(rows, axis=0).sum(), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"standardize": True}])
def test_bound_of_unknown_noise_is_the_density_of_the_rows(fields):
    """In the coordinates of the data too where the priors are of columns in their deviations."""
    x = planted(40) * [1.0, 5.0, 2.0, 0.5, 3.0]
    own = {"family": Gaussian(noise_variance=None), "repulsion": 0.0, "num_components": 2, "num_latents": 1}
    tree = inference.fit(zoo.DEPCAM(**own | fields), x, method="vb", num_samples=1, tolerance=1e-7)
    np.testing.assert_allclose(_bound(tree), float(inference.log_density(tree, x).sum()), rtol=1e-9)


@pytest.mark.slow
def test_planted_sizes_are_chosen():
    """Two components of one direction: by the bound clearly, by held-out rows against one component."""
    table = inference.choose_components_and_latents(
        planted(200), (1, 2), (1, 2), fields=FIELDS, folds=4, tolerance=1e-5
    )
    assert table.attrs["by_bound"] == (2, 1)
    criterion = table["criterion"]
    assert (criterion.drop((2, 1)) < criterion[(2, 1)] - 5.0).all()
    assert table.attrs["by_heldout"][0] == 2
    assert table["heldout"][(2, 1)] > table["heldout"][(1, 1)] + 5 * table["standard_error"][(2, 1)]
    assert table.attrs["note"].startswith("bound: 2 components of 1 latents; held-out density: 2 comp")


def test_more_parameters_that_score_alike_are_not_chosen(monkeypatch):
    """Planted scores: one component of two latents falls short of the best by less than the error of that."""
    heldout = np.array([-3.0, -2.01, -2.0, -2.005])
    scores = pd.DataFrame({"heldout": heldout, "difference": heldout + 2.0})
    scores.index = pd.MultiIndex.from_product([(1, 2), (1, 2)])
    scores = scores.assign(standard_error=0.1, difference_error=0.05)
    monkeypatch.setattr(model_size, "cross_validate", lambda *models, **settings: scores)
    monkeypatch.setattr(
        model_size,
        "_of_one",
        lambda model, x, *of: {
            "bound": 0.0,
            "criterion": 0.0,
            "num_parameters": num_parameters(model, 5),
            "num_active": 1,
        },
    )
    table = inference.choose_components_and_latents(planted(12), (1, 2), (1, 2), method="em", fields=FIELDS)
    assert table.attrs["by_heldout"] == (1, 2) and table["difference"][(1, 2)] == pytest.approx(-0.01)
    assert table.attrs["note"].endswith(
        "num_latents above 2 was not tried, and may be better: give larger candidates"
    )


@pytest.mark.slow
def test_maximised_latents_are_judged_by_held_out_rows_alone():
    with pytest.warns(UserWarning, match="has not converged"):
        table = inference.choose_components_and_latents(
            planted(60), (2,), (1,), method="em", folds=2, fields=FIELDS, max_iterations=20
        )
    assert table.attrs["by_heldout"] == (2, 1) and "by_bound" not in table.attrs
    assert "criterion" not in table and np.isfinite(table["heldout"]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(num_components=()), "num_components is empty"),
        (dict(num_latents=(1, 9)), "num_latents must be whole numbers from 1 to 5; got 9"),
        (dict(num_components=(0,)), "num_components must be whole numbers from 1 to 12; got 0"),
        (dict(num_components=(True,)), "got True"),
        (dict(method="nuts"), "method must be vb or em; got 'nuts'"),
    ],
)
def test_bad_candidates_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        inference.choose_components_and_latents(planted(12), **given)
