"""What is read off a table before its cells are modelled."""

import numpy as np
import pytest

from zoo.exponential_family.cells import units_of


def test_means_and_mean_variance_are_those_of_the_cells_that_are_there():
    """By NumPy; a column without a cell has the mean of all cells and counts for no variance."""
    x = np.random.default_rng(0).normal(size=(7, 4)) * [1.0, 2.0, 3.0, 4.0] + 5.0
    x[0, 1] = x[3, 1] = x[6, 3] = np.nan
    means, variance = units_of(x)
    np.testing.assert_allclose(means, np.nanmean(x, axis=0), rtol=1e-12)
    assert variance == pytest.approx(np.nanvar(x, axis=0).mean(), rel=1e-12)
    wider = np.column_stack([x, np.full(7, np.nan)])
    means, variance = units_of(wider)
    np.testing.assert_allclose(means, [*np.nanmean(x, axis=0), np.nanmean(x)], rtol=1e-12)
    assert variance == pytest.approx(np.nanvar(x, axis=0).mean(), rel=1e-12)


@pytest.mark.parametrize(
    ("value", "expected"), [(3.0, 9.0), (0.0, 1.0), (np.nan, 1.0)], ids=["constant", "zeros", "no cells"]
)
def test_a_table_without_variance_is_measured_in_its_mean_square_or_in_one(value, expected):
    assert units_of(np.full((5, 2), value))[1] == expected
