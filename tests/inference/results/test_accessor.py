"""``tree.fit``: one model for a tree, and no stale one."""

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.report import report
from inference.results import accessor
from inference.results.groups import with_groups

X = np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture(scope="module")
def tree():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    return inference.fit(zoo.PPCA(num_latents=1), frame, method="closed_form", progress=False)


@pytest.fixture
def builds(monkeypatch):
    """Names of the models that were built."""
    found, restore = [], accessor.restore

    def counted(name, *rest):
        found.append(name)
        return restore(name, *rest)

    monkeypatch.setattr(accessor, "restore", counted)
    return found


def test_a_fit_tells_model_method_columns_roles_and_values(tree):
    assert tree.fit.model is inference.model_of(tree)
    assert tree.fit.method == "closed_form"
    assert tree.fit.roles == tree.fit.model.roles
    assert [column.name for column in tree.fit.columns[0].columns] == ["a", "b", "c"]
    assert np.array_equal(tree.fit.values("posterior")["loc"], tree["posterior"]["loc"])
    with pytest.raises(KeyError):
        tree.fit.values("prior")
    with pytest.raises(ValueError, match="not a fit of this library"):
        _ = xr.DataTree().fit.model


def test_a_report_builds_its_model_once(tree, tmp_path, builds):
    report(tree.copy(), tmp_path / "fit.md")
    assert builds == ["ppca"]


def test_a_tree_made_of_a_fit_shares_its_model_until_its_fields_change(tree, builds):
    own = tree.copy()
    first = own.fit.model
    made = with_groups(own, {}, note="as before")
    assert made.fit.model is first and builds == ["ppca"]
    assert made.attrs["note"] == "as before" and "note" not in own.attrs
    made.attrs["model_fields"] = made.attrs["model_fields"].replace('"num_latents": 1', '"num_latents": 2')
    assert made.fit.model.num_latents == 2 and own.fit.model is first


def test_other_constants_make_another_model(builds):
    prior = zoo.conjugate.GaussianWishart(
        loc=np.zeros(3), mean_precision=1.0, scale_matrix=np.eye(3), degrees_of_freedom=5.0
    )
    model = zoo.Mixture(components=prior, num_components=2)
    tree = inference.fit(model, X, method="vb", max_iterations=2, tolerance=0, num_samples=2, progress=False)
    first = tree.fit.model
    builds.clear()
    assert tree.fit.model is first and not builds
    name = next(name for name in tree["constant_data"].data_vars if "loc" in name)
    tree["constant_data"][name] = tree["constant_data"][name] + 1.0
    assert np.array_equal(tree.fit.model.components.loc, np.ones(3))


def test_a_fit_in_a_pickle_leaves_its_models_behind(tree, builds):
    again = pickle.loads(pickle.dumps(tree))
    assert again.fit.model.num_features == 3 and builds == ["ppca"]


def test_what_was_made_of_the_draws_is_kept_until_they_change(tree):
    own, made = tree.copy(), []

    def total(of):
        made.append(of)
        return float(of["posterior"]["loadings"].sum())

    first = own.fit.kept(total)
    assert own.fit.kept(total) == first and len(made) == 1
    own["posterior"]["loadings"] = own["posterior"]["loadings"] + 1.0
    assert own.fit.kept(total) == pytest.approx(first + 3.0) and len(made) == 2
