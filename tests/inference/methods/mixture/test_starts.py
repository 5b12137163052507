"""Starts deal out the rows, each as often as its weight says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inference.methods.mixture import starts
from inference.numerics.weighted_rows import Rows
from inference.precision import in_precision
from zoo.mixture import Mixture


@pytest.mark.parametrize("name", ["random", "dirichlet", "kmeans", "pca"])
def test_a_start_deals_out_every_row_with_its_weight(name):
    """Statistics of all components add up to those of the rows, with weights and without."""
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(14, 2)) * [1.0, 30.0] + 5.0, rng.integers(1, 4, 14) / 2
    with in_precision():
        model = Mixture.from_data(x, num_components=3)
        features = np.asarray(model.components.features(jnp.asarray(x)))
        for rows, own in ((jnp.asarray(x), np.ones(14)), (Rows(jnp.asarray(x), jnp.asarray(weight)), weight)):
            found = np.asarray(starts.STARTS[name](jax.random.key(1), model, rows))
            assert found.shape[0] == 3 and (np.abs(found).sum(1) > 0).all()
            np.testing.assert_allclose(found.sum(0), own @ features, rtol=1e-10, atol=1e-9)


def test_columns_are_standardised_and_missing_cells_are_at_the_mean():
    x = np.array([[1.0, 40.0, 7.0], [3.0, np.nan, 7.0], [8.0, -20.0, 7.0]])
    z = np.asarray(starts._standardised(Mixture.from_data(x[:, :2], num_components=2), jnp.asarray(x)))
    wanted = np.nan_to_num((x - np.nanmean(x, 0)) / np.array([np.std(x[:, 0]), 30.0, 1.0]))
    np.testing.assert_allclose(z, wanted, atol=1e-6)


@pytest.mark.parametrize("strategy", ["pca", "hierarchical"])
def test_starts_take_a_row_of_weight_two_as_two_and_one_of_weight_zero_as_none(strategy):
    """Three clusters of equal weight, far apart."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(4.0 * k, 0.3, (6, 2)) for k in range(3)])
    weight = np.append(np.tile([1.0, 1.0, 1.0, 1.0, 1.0, 2.0], 3), 0.0)
    copies = np.repeat(x, weight[:-1].astype(int), axis=0)
    with in_precision():
        model = Mixture.from_data(x, num_components=3)
        rows = Rows(jnp.asarray(np.append(x, [[40.0, -40.0]], axis=0)), jnp.asarray(weight))
        sums = [starts.STARTS[strategy](None, model, own) for own in (rows, jnp.asarray(copies))]
        one, other = (np.sort(np.asarray(own), axis=0) for own in sums)
        assert other[:, 0].min() > 1 and other[:, 0].sum() == 21
        np.testing.assert_allclose(one, other, rtol=1e-9)
