"""Cells of sparse tables: what is summed of them is that of the dense table."""

import numpy as np
import scipy.sparse
from scipy.special import gammaln

from zoo.sparse import SparseCounts, SparseMatrix


def test_moments_and_extremes_of_columns_count_the_zeros():
    """A full column of negative numbers, one with holes, one without any cell."""
    dense = np.array([[-3.0, 2.5, 0.0], [-1.0, 0.0, 0.0], [-2.0, -4.0, 0.0], [-0.5, 1.0, 0.0]])
    table = SparseMatrix.from_scipy(scipy.sparse.csr_array(dense))
    mean, variance = table.column_moments()
    np.testing.assert_allclose(mean, dense.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, dense.var(0), rtol=1e-12)
    lowest, highest = table.extremes()
    np.testing.assert_array_equal(lowest, dense.min(0))
    np.testing.assert_array_equal(highest, dense.max(0))


def test_log_coefficients_are_those_of_multinomials():
    """Of a document with words, one with a single word, and one without."""
    dense = np.array([[2.0, 0, 3, 1], [0, 4, 0, 0], [0, 0, 0, 0]])
    wanted = gammaln(dense.sum(1) + 1) - gammaln(dense + 1).sum(1)
    np.testing.assert_allclose(SparseCounts.from_matrix(dense).log_coefficients, wanted, atol=1e-6)
