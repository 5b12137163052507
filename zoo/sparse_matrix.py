"""Sparse matrices of real numbers (TF-IDF and the like): a scipy matrix as a pytree.

Cells that are not stored are zeros, values like any other; a missing cell has no place here. On the host the
products are scipy's; compiled code scans over blocks of cells, as it does over `zoo.sparse`.
"""

from collections.abc import Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import csr_array

from zoo.sparse import SparseCounts
from zoo.checks import as_matrix

__all__ = ["SparseMatrix", "as_rows", "is_sparse"]

BLOCK_CELLS = 2**17


def is_sparse(x: Any) -> bool:
    """Whether it is sparse: of this library, or of scipy.

    Args:
        x: anything.

    Returns:
        True if it is sparse.
    """
    return isinstance(x, SparseMatrix | SparseCounts) or hasattr(x, "tocoo")


def as_rows(x: Any, name: str = "x") -> "np.ndarray | SparseMatrix":
    """The data as a float64 array, or as a sparse matrix where they are sparse.

    Args:
        x: shape (num_observations, num_features), dense or sparse.
        name: of the data in messages.

    Returns:
        Shape (num_observations, num_features).

    Raises:
        TypeError, ValueError: as `zoo.checks.as_matrix` and `SparseMatrix.from_scipy`.
    """
    if not is_sparse(x):
        return as_matrix(x, name)
    if isinstance(x, SparseCounts):
        cells = np.asarray(x.count), (np.asarray(x.document), np.asarray(x.word))
        return SparseMatrix.from_scipy(csr_array(cells, shape=x.shape), name)
    return x if isinstance(x, SparseMatrix) else SparseMatrix.from_scipy(x, name)


@jax.tree_util.register_pytree_node_class
class SparseMatrix:
    """A matrix by its compressed rows; a pytree whose shape is static.

    Args:
        starts: where the cells of each row begin, shape (num_rows + 1,).
        column: column of each cell, shape (num_nonzeros,).
        value: what each cell holds, shape (num_nonzeros,).
        shape: rows and columns of the whole matrix.
    """

    ndim = 2

    def __init__(self, starts: Any, column: Any, value: Any, shape: tuple[int, int]) -> None:
        self.starts, self.column, self.value = starts, column, value
        self.shape = (int(shape[0]), int(shape[1]))

    @classmethod
    def from_scipy(cls, matrix: Any, name: str = "x") -> Self:
        """From a scipy sparse matrix, whose memory is shared where it is a canonical float64 CSR matrix.

        Args:
            matrix: shape (num_rows, num_columns), real numbers.
            name: of the data in messages.

        Returns:
            The matrix.

        Raises:
            TypeError: what it holds are not real numbers.
            ValueError: a cell is NaN or infinite; the first one is named. Or there are no columns.
        """
        if matrix.dtype.kind not in "biuf":
            raise TypeError(f"{name} must be numeric; got a sparse matrix of type {matrix.dtype}")
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise ValueError(f"{name} must have rows and columns; got a sparse array of shape {matrix.shape}")
        rows = matrix.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy() if rows is matrix else rows
            rows.sum_duplicates()
        value = rows.data.astype(np.float64, copy=False)
        bad = np.flatnonzero(~np.isfinite(value))
        if bad.size:
            row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
            raise ValueError(
                f"a sparse {name} must hold finite numbers: cells that are not stored are zeros, and a "
                f"missing one (NaN) needs a dense matrix; row {row}, column {rows.indices[bad[0]]} is "
                f"{value[bad[0]]} ({bad.size} such cells in all)"
            )
        return cls(rows.indptr, rows.indices, value, rows.shape)

    @classmethod
    def from_cells(cls, row: Any, column: Any, value: Any, shape: tuple[int, int]) -> Self:
        """From cells, each by its row and column.

        Args:
            row: of each cell, from 0, shape (num_cells,).
            column: of each cell, from 0, shape (num_cells,).
            value: of each cell, shape (num_cells,); those of one place are summed.
            shape: (num_rows, num_columns).

        Returns:
            The matrix.

        Raises:
            ValueError: a cell outside the shape, NaN or infinite.
        """
        return cls.from_scipy(csr_array((value, (row, column)), shape=shape))

    # On the host

    def to_scipy(self) -> csr_array:
        """The same matrix for scipy, its memory shared.

        Returns:
            Shape (num_rows, num_columns).
        """
        parts = (np.asarray(self.value), np.asarray(self.column), np.asarray(self.starts))
        return csr_array(parts, shape=self.shape)

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest cell of each column, those that are not stored being zero.

        Returns:
            Two arrays of shape (num_columns,).
        """
        column, value = np.asarray(self.column), np.asarray(self.value)
        lowest, highest = np.zeros(self.shape[1]), np.zeros(self.shape[1])
        filled = np.zeros(self.shape[1], np.int64)
        for cells in self._blocks():
            filled += np.bincount(column[cells], minlength=self.shape[1])
        full = filled == self.shape[0]
        lowest[full], highest[full] = np.inf, -np.inf
        np.minimum.at(lowest, column, value)
        np.maximum.at(highest, column, value)
        return lowest, highest

    def column_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each column, cells that are not stored being zero.

        Returns:
            Two arrays of shape (num_columns,).
        """
        sums, squares = np.zeros((2, self.shape[1]))
        for cells in self._blocks():
            column, value = np.asarray(self.column[cells]), np.asarray(self.value[cells])
            sums += np.bincount(column, value, self.shape[1])
            squares += np.bincount(column, value**2, self.shape[1])
        mean = sums / self.shape[0]
        return mean, squares / self.shape[0] - mean**2

    def _blocks(self) -> Iterator[slice]:
        """Some cells at a time, so that what is made of them stays small."""
        for first in range(0, self.value.shape[0], BLOCK_CELLS):
            yield slice(first, first + BLOCK_CELLS)

    # Compiled

    @property
    def row(self) -> Array:
        """Row of each cell, shape (num_nonzeros,)."""
        counts = jnp.diff(jnp.asarray(self.starts))
        return jnp.repeat(jnp.arange(self.shape[0]), counts, total_repeat_length=self.value.shape[0])

    def times(self, by_column: Array) -> Array:
        """The matrix times a dense one.

        Args:
            by_column: shape (num_columns, K).

        Returns:
            Shape (num_rows, K).
        """
        return self._cells(self.value).times(by_column)

    def squares_times(self, by_column: Array) -> Array:
        """The matrix of squared cells times a dense one.

        Args:
            by_column: shape (num_columns, K).

        Returns:
            Shape (num_rows, K).
        """
        return self._cells(self.value**2).times(by_column)

    def to_dense(self) -> Array:
        """The whole matrix.

        Returns:
            Shape (num_rows, num_columns).
        """
        return jnp.zeros(self.shape, self.value.dtype).at[self.row, self.column].add(self.value)

    def _cells(self, value: Array) -> SparseCounts:
        return SparseCounts.tree_unflatten(self.shape, (self.row, self.column, value))

    # As an array and a pytree

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return sum(part.nbytes for part in (self.starts, self.column, self.value))

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The cells; the shape is static."""
        return (self.starts, self.column, self.value), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], cells: tuple) -> Self:
        """From cells that were checked before."""
        new = object.__new__(cls)
        new.starts, new.column, new.value = cells
        new.shape = shape
        return new
