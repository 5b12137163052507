"""The partitions that draws lie about, found in labels that are planted, and what a report says of them."""

import numpy as np
import pytest

import zoo
from inference import fit
from inference.convergence import partitions
from inference.convergence.partitions import modes
from inference.report.convergence import _of_modes

ROWS = 30
FIRST, SECOND = np.arange(ROWS) // 10, np.arange(ROWS) % 3


@pytest.fixture
def planted():
    """Chains of 20 draws: one at the first partition, one half there and half at the second."""
    x = np.random.default_rng(0).normal(size=(ROWS, 1))
    call = {"num_chains": 2, "num_warmup": 2, "num_samples": 20, "split_merge": 0, "progress": False}
    with pytest.warns(UserWarning, match="has not converged"):
        tree = fit(zoo.Mixture(num_components=3), x, method="gibbs", **call)
    turns = np.random.default_rng(1).permuted(np.tile(np.arange(3), (40, 1)), axis=1)
    first = np.arange(40) < 30
    labels = np.where(first[:, None], turns[:, FIRST], turns[:, SECOND])
    labels[np.arange(40), np.arange(40) % ROWS] = 0  # one row of each draw is anywhere
    tree["posterior"]["assignments"][:] = labels.reshape(2, 20, ROWS)
    return tree


def same(one, other):
    return (np.equal.outer(one, one) == np.equal.outer(other, other)).mean() > 0.9


def test_modes_are_the_partitions_with_the_shares_of_each_chain(planted):
    found = modes(planted)
    assert [same(mode.partition, own) for mode, own in zip(found, (FIRST, SECOND), strict=True)] == [True] * 2
    np.testing.assert_array_equal([mode.shares for mode in found], [[1.0, 0.5], [0.0, 0.5]])


def test_draws_of_a_mode_that_was_found_do_not_count_for_the_next(planted, monkeypatch):
    """By hand, on a line, near being within 1: three draws each at -1, 0, 1 and 5, one at 2.

    The first mode has nine draws; the one at 2 then has itself alone near, those at 5 have three.
    """
    places = np.array([-1.0, 0.0, 1.0, 5.0] * 3 + [2.0])
    tree = planted.isel(chain=slice(1), draw=slice(len(places)))
    away = np.abs(np.subtract.outer(places, places))
    monkeypatch.setattr(partitions, "_distances", lambda draws: away * 0.1 * ROWS**2)
    shares = [mode.shares[0] for mode in modes(tree)]
    np.testing.assert_allclose(np.array(shares) * len(places), [9, 3, 1])


def test_a_report_lists_modes_with_weights_only_where_chains_travel(planted):
    table, said = _of_modes(planted)
    assert table.frame["share of the draws"].tolist() == [0.75, 0.25]
    assert table.frame["clusters"].tolist() == [3, 3] and "no weight of a mode" in said.text
    planted.attrs["why_no_evidence"] = ""
    table, said = _of_modes(planted)
    assert table.frame["weight"].tolist() == [0.75, 0.25] and "are weights of the modes" in said.text
    np.testing.assert_allclose(table.frame["standard error"], 0.25)
    planted["posterior"]["assignments"][1] = planted["posterior"]["assignments"][0]
    assert _of_modes(planted) == []
