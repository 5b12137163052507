"""A fit is found again in tables drawn from it, by methods that can, and not by a planted one that cannot."""

import re

import numpy as np
import pytest
import sklearn.metrics
import xarray as xr

import inference
import zoo
from inference.calibration import recoveries, recovery
from tests.support.mcfa_cases import planted


@pytest.fixture(scope="module")
def apart():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 20, axis=0)
    x[4, 1] = np.nan
    return inference.fit(zoo.Mixture(num_components=5), x, method="vb", num_restarts=4, num_samples=20)


@pytest.fixture(scope="module")
def found(apart):
    return recovery(apart, num_tables=4, seed=1, progress=False)


def test_clusters_far_apart_come_back(found):
    assert list(found["clusters"]) == [3] * 4 and list(found["found"]) == [3] * 4
    assert (found[["labels", "labels_known"]] > 0.9).all(axis=None)  # row 4 may be of two
    said, note = found.attrs["said"], found.attrs["note"]
    assert said.startswith("the number of clusters came back in 4 of 4 tables; labels with")
    assert "not about whether the fit is true" in note and "held out" in said


def test_the_same_seed_gives_the_same_tables(apart, found, monkeypatch):
    calls = []
    monkeypatch.setattr(recoveries, "_fitted", lambda model, x, call, seed: calls.append((x, call)) or apart)
    for seed in (1, 1, 2):
        recovery(apart, num_tables=1, seed=seed, progress=False)
    (one, call), _, (same, _), _, (other, _), (rest, _) = calls
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other, equal_nan=True)
    assert np.isnan(one).sum() == 1 and np.isnan(one[4, 1]) and len(rest) == 48
    assert call["method"] == "vb" and call["num_restarts"] == 4 and call["moves"] == ("merge", "delete")


def test_labels_that_come_back_by_chance_are_seen(apart, monkeypatch):
    """A planted method that shuffles its labels: the index is near 0, and near 1 for the fit itself."""
    genuine, rng = recoveries._shares, np.random.default_rng(0)
    table = recovery(apart, num_tables=1, progress=False)
    monkeypatch.setattr(recoveries, "_shares", lambda tree, x: rng.permutation(genuine(tree, x)))
    mixed = recovery(apart, num_tables=1, progress=False)
    assert abs(mixed["labels"][0]) < 0.3 < table["labels"][0] and mixed["labels_known"][0] > 0.9


def test_the_index_of_partitions_is_scikit_learns():
    rng = np.random.default_rng(0)
    for k in (1, 2, 5):
        one, other = rng.integers(k, size=50), rng.integers(3, size=50)
        expected = sklearn.metrics.adjusted_rand_score(one, other)
        np.testing.assert_allclose(recoveries._adjusted_rand(one, other), expected, atol=1e-12)
    assert recoveries._adjusted_rand(np.zeros(9), np.zeros(9)) == 1


def test_spans_are_compared_whatever_their_bases():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(5, 2))
    np.testing.assert_allclose(recoveries._same_span(w, w @ rng.normal(size=(2, 2))), 1)
    np.testing.assert_allclose(recoveries._same_span(np.eye(5)[:, :2], np.eye(5)[:, 2:4]), 0)
    np.testing.assert_allclose(recoveries._same_span(np.eye(5)[:, :2], np.eye(5)[:, 1:3]), 0.5)


def test_a_subspace_comes_back():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 5)) * 3 + rng.normal(size=(80, 5)) * 0.3
    tree = inference.fit(zoo.PPCA(num_latents=2), x, method="em")
    table = recovery(tree, num_tables=3, progress=False)
    assert list(table) == ["subspace", "log_density", "converged"] and (table["subspace"] > 0.97).all()
    assert "subspaces with a mean squared cosine of" in table.attrs["said"]


def test_clusters_of_a_projection_come_back_with_its_subspace():
    x, labels, _ = planted(90, 5)
    tree = inference.fit(zoo.MCFA(num_components=3, num_latents=2), x, method="vb", num_restarts=4)
    assert sklearn.metrics.adjusted_rand_score(labels, inference.predict(tree, x)) > 0.9
    table = recovery(tree, num_tables=1, progress=False)
    assert table["clusters"][0] == table["found"][0] == 3 and table["labels_known"][0] > 0.9
    assert table["labels"][0] > 0.9 and table["subspace"][0] > 0.97


def test_sticks_are_drawn_in_their_own_order():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [9.0, 0.0], [9.0, 0.0]], 20, axis=0)
    model = zoo.Mixture(num_components=8, weight_prior="stick_breaking")
    tree = inference.fit(model, x, method="vb", num_restarts=2, num_samples=5)
    _, labels, draws = recoveries._tables(tree, model=tree.fit.model, x=x, num_tables=5, rng=rng)
    for table, weights in zip(labels, draws["weights"], strict=True):
        assert set(np.unique(table)) == set(np.argsort(-weights)[:2])


def test_the_cost_is_told_first(apart, capsys, monkeypatch):
    def stop(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(recoveries, "_fitted", stop)
    with pytest.raises(KeyboardInterrupt):
        recovery(apart)
    assert re.match(r"21 fits like this one, which took [\d.]+ s", capsys.readouterr().out)


def test_fits_that_are_not_drawn_again(apart, few_draws):
    with pytest.raises(ValueError, match="this fit by gibbs has draws; tables are drawn"):
        recovery(few_draws)
    without = xr.DataTree.from_dict(
        {name: child.to_dataset() for name, child in apart.children.items() if name != "observed_data"}
    )
    without.attrs |= apart.attrs
    with pytest.raises(ValueError, match="observed_data"):
        recovery(without)
    batches = apart.copy()
    batches.attrs["batch_size"] = 10
    with pytest.raises(ValueError, match="in batches"):
        recovery(batches)
    with pytest.raises((TypeError, ValueError), match="num_tables"):
        recovery(apart, num_tables=0)
