"""A few rows that stand for many: their weight, mean and scatter against NumPy."""

import numpy as np
import pytest

from inference.numerics.summed_rows import summed


@pytest.mark.parametrize("cuts", [[], [7], [3, 20, 21]])
def test_few_rows_have_the_weight_mean_and_scatter_of_all(cuts):
    """Far from zero, with weights, one of them zero, however the rows are cut into batches."""
    rng = np.random.default_rng(0)
    x = 50.0 + rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3))
    weight = rng.uniform(0.5, 2.0, 40)
    weight[4] = 0.0
    few = summed(zip(np.split(x, cuts), np.split(weight, cuts), strict=True))
    rows, own = np.asarray(few[0]), np.broadcast_to(few[1], len(few[0]))
    assert len(rows) <= 6
    mean = np.average(x, axis=0, weights=weight)
    np.testing.assert_allclose(own.sum(), weight.sum())
    np.testing.assert_allclose(np.average(rows, axis=0, weights=own), mean, rtol=1e-12)
    scatter = (x - mean).T @ (weight[:, None] * (x - mean))
    np.testing.assert_allclose((rows - mean).T @ (own[:, None] * (rows - mean)), scatter, rtol=1e-9)


def test_rows_that_are_few_stay_as_they_are():
    x = np.arange(12.0).reshape(4, 3)
    few = summed([(x[:1], np.ones(1)), (x[1:], np.ones(3))])
    np.testing.assert_array_equal(few[0], x)
    np.testing.assert_array_equal(few[1], 1.0)
