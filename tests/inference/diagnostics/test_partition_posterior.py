"""The table of most probable partitions, and cross-validation."""

import numpy as np
import pytest
import xarray as xr

from inference import cross_validate
from inference.diagnostics import top_partitions
from tests.support.planted import planted_zoo
from zoo import Mixture


@pytest.fixture(autouse=True)
def planted_models():
    with planted_zoo():
        yield


def tree_of(labels):
    posterior = xr.Dataset(
        {"assignments": (("chain", "draw", "observation"), labels)},
        {"observation": np.arange(labels.shape[2])},
    )
    root = xr.Dataset(attrs={"model": "plantedmixture", "model_fields": "{}", "method": "nuts"})
    return xr.DataTree.from_dict({"/": root, "posterior": posterior})


def test_labels_do_not_matter_to_a_partition():
    rng = np.random.default_rng(0)
    kinds = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 1, 1], [3, 3, 3, 3, 3]])
    which = rng.choice(3, (2, 400), p=[0.6, 0.3, 0.1])
    relabelled = np.stack([[rng.permutation(6)[kinds[w]] for w in chain] for chain in which])
    table = top_partitions(tree_of(relabelled), 2)
    assert list(table["sizes"]) == [(2, 2, 1), (4, 1)]
    assert list(table["labels"]) == [(0, 0, 1, 1, 2), (0, 1, 1, 1, 1)]
    np.testing.assert_allclose(table["probability"], [(which == 0).mean(), (which == 1).mean()])
    binomial = np.sqrt(table["probability"] * (1 - table["probability"]) / 800)
    np.testing.assert_allclose(table["mcse"], binomial, rtol=0.25)  # the draws are independent
    assert list(table["num_clusters"]) == [3, 2]


def test_a_fit_without_assignments_or_a_bad_count_is_refused():
    tree = tree_of(np.zeros((1, 5, 3), int))
    with pytest.raises(ValueError, match="count must be a whole number of at least 1; got 0"):
        top_partitions(tree, 0)
    empty = tree.copy()
    empty["posterior"] = xr.DataTree(xr.Dataset({"lp": (("chain", "draw"), np.zeros((1, 5)))}))
    with pytest.raises(ValueError, match="this fit holds no assignments of its rows"):
        top_partitions(empty)


@pytest.mark.slow
def test_cross_validation_finds_the_two_clusters(two_clusters):
    models = {k: Mixture.from_data(two_clusters, num_components=k) for k in (1, 2)}
    settings = {"method": "em", "folds": 3, "init": "kmeans", "num_restarts": 3}
    table = cross_validate(models, two_clusters, **settings)
    assert table["heldout"].idxmax() == 2 and table["bic"].idxmin() == 2
    assert (
        table.loc[2, "difference"] == 0 and table.loc[1, "difference"] < -2 * table.loc[1, "difference_error"]
    )
    assert (table["fitted"] >= table["heldout"]).all()
    again = cross_validate({2: models[2]}, two_clusters, **settings)
    assert again.loc[2, "heldout"] == table.loc[2, "heldout"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({}, {}), ValueError, "models is empty"),
        (([1], {}), TypeError, "models must be a dict of name to model"),
        (
            ("good", {"folds": 1}),
            ValueError,
            "folds must be a whole number from 2 to 30",
        ),
    ],
)
def test_bad_cross_validation_is_refused(arguments, error, message, two_clusters):
    models, settings = arguments
    models = {"a": Mixture.from_data(two_clusters, num_components=1)} if models == "good" else models
    with pytest.raises(error, match=message):
        cross_validate(models, two_clusters, **settings)
