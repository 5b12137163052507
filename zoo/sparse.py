"""Sparse matrices as pytrees: counts by cell, and real numbers by compressed rows.

`SparseCounts` holds the nonzero cells of a document-term matrix (or any table of counts), sorted by row. Sums
over cells are taken a few thousand cells at a time, so that neither a dense rows x columns array nor a cells
x components array is ever made.

`SparseMatrix` holds real numbers (TF-IDF and the like). Cells that are not stored are zeros, values like any
other; there are no missing cells. On the host the products are scipy's; compiled code scans over blocks of
cells, as it does for counts.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from scipy.sparse import csr_array, csr_matrix

from zoo.checks import as_matrix, as_numbers, as_plain, column_of, row_of

WHOLE_NUMBERS = 2.0**53  # every whole number up to here is a double
CACHED_TERMS = 2**18  # numbers that are made for the cells of a sum at once
_MISSING = (
    ": a count cannot be missing; give 0 where a word does not occur, counts.fillna(0), or leave the row out"
)
SCANNED_CELLS = (256, 8192)  # fewest and most cells at once


def _in_rows(matrix: Any, name: str) -> Any:
    """A scipy matrix in compressed rows; ValueError if it has a place that is not in it."""
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        return matrix.tocsr()
    except (ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"{name} is not a valid sparse matrix ({error}): build it again") from None


def _are_no_counts(numbers: np.ndarray) -> np.ndarray:
    return ~(np.isfinite(numbers) & (numbers >= 0) & (numbers == np.round(numbers)))


def _no_count(where: str, value: float, how_many: int) -> str:
    """The message for cells that are no counts."""
    remedy = _MISSING
    if value < 0:
        remedy = ": a count is not negative; other numbers are of zoo.EPCA(family='gaussian')"
    elif value < 1:
        remedy = (
            ": weights such as tf-idf are no counts; pass how often each word occurs (CountVectorizer), or "
            "take zoo.EPCA(family='gaussian')"
        )
    elif np.isfinite(value):
        remedy = ": round counts, counts.round(); other numbers are of zoo.EPCA(family='gaussian')"
    return (
        f"counts must be whole numbers of at least 0; {where} is {value:g} ({how_many} such cells in all)"
        f"{remedy}"
    )


class _Cells:
    """A matrix by its cells: a pytree of the arrays that ``_arrays`` names, whose shape is static."""

    shape: tuple[int, int]
    _arrays: tuple[str, ...]
    ndim = 2  # which NumPyro asks of every observed value

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return sum(getattr(self, name).nbytes for name in self._arrays)

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The cells; the shape is static."""
        return tuple(getattr(self, name) for name in self._arrays), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], cells: tuple) -> Self:
        """The matrix of cells that were checked before."""
        new = object.__new__(cls)
        vars(new).update(zip(cls._arrays, cells, strict=True), shape=shape)
        return new


@jax.tree_util.register_pytree_node_class
class SparseCounts(_Cells):
    """The nonzero cells of a matrix of counts, sorted by row; a pytree whose shape is static.

    Args:
        document: row of each cell, shape (num_nonzeros,), sorted.
        word: column of each cell, shape (num_nonzeros,).
        count: what each cell holds, shape (num_nonzeros,), whole numbers of at least 0.
        shape: rows and columns of the whole matrix.

    Raises:
        ValueError: arrays of different lengths, cells outside the shape, rows out of order, or counts that
            are negative or not whole.
    """

    _arrays = ("document", "word", "count")

    def __init__(self, document: Any, word: Any, count: Any, shape: tuple[int, int]) -> None:
        for name, index in (("document", document), ("word", word)):
            if np.ma.is_masked(index):
                raise ValueError(f"{name} has masked entries: leave these cells out")
        document, word = np.asarray(document, np.int32), np.asarray(word, np.int32)
        count = as_numbers(count, "count")
        self.shape = (int(shape[0]), int(shape[1]))
        if not document.shape == word.shape == count.shape or document.ndim != 1:
            raise ValueError(
                f"document, word and count must be vectors of one length; got {document.shape}, {word.shape} "
                f"and {count.shape}"
            )
        for name, index, size in (("document", document, self.shape[0]), ("word", word, self.shape[1])):
            if index.size and not (0 <= index.min() and index.max() < size):
                raise ValueError(f"{name} must lie in 0 to {size - 1}; got {index.min()} to {index.max()}")
        if np.any(np.diff(document) < 0):
            raise ValueError("cells must be sorted by document")
        bad = _are_no_counts(count)
        if bad.any():
            place = int(np.argmax(bad))
            where = f"row {document[place]}, column {word[place]}"
            raise ValueError(_no_count(where, count[place], int(bad.sum())))
        self.document, self.word, self.count = document, word, count
        with np.errstate(over="ignore"):
            total = count.sum()
        if total > WHOLE_NUMBERS:
            place = int(np.argmax(count))
            raise ValueError(
                f"counts must add up to at most 2**53, beyond which sums lose the unit; they add up to "
                f"{total:.3g}, and row {document[place]}, column {word[place]} is {count[place]:g}"
            )

    @classmethod
    def from_matrix(cls, matrix: Any) -> Self:
        """Convert a scipy sparse matrix or a dense matrix of counts.

        Args:
            matrix: shape (num_documents, num_words).

        Returns:
            Its cells that are not zero.

        Raises:
            TypeError: not numbers.
            ValueError: not two-dimensional, or cells that are no counts or missing.
        """
        if hasattr(matrix, "tocoo"):
            coo = _in_rows(matrix, "counts").tocoo()  # duplicates summed, rows in order
            return cls(coo.row, coo.col, coo.data, coo.shape)
        dense = as_plain(matrix, "counts")
        if dense.ndim != 2:
            raise ValueError(f"counts must have shape (num_documents, num_words); got {dense.shape}")
        document, word = np.nonzero(dense)
        count = dense[document, word]
        bad = _are_no_counts(count)
        if bad.any():
            place = int(np.argmax(bad))
            where = f"{row_of(dense, document[place])}, {column_of(dense, word[place])}"
            raise ValueError(_no_count(where, count[place], int(bad.sum())))
        return cls(document, word, count, dense.shape)

    def to_dense(self) -> np.ndarray:
        """The matrix as a dense array.

        Returns:
            Shape (num_documents, num_words).
        """
        dense = np.zeros(self.shape)
        np.add.at(dense, (np.asarray(self.document), np.asarray(self.word)), np.asarray(self.count))
        return dense

    @property
    def num_nonzeros(self) -> int:
        """Number of cells held."""
        return self.count.shape[0]

    def times(self, by_word: Array) -> Array:
        """The matrix times a dense one.

        Args:
            by_word: shape (num_words, K).

        Returns:
            Shape (num_documents, K).
        """
        by_word = jnp.asarray(by_word)
        return self.sum_by_document(lambda document, word, count: count[:, None] * by_word[word])

    def transposed_times(self, by_document: Array) -> Array:
        """The transposed matrix times a dense one.

        Args:
            by_document: shape (num_documents, K).

        Returns:
            Shape (num_words, K).
        """
        by_document = jnp.asarray(by_document)
        return self._sums(lambda document, word, count: count[:, None] * by_document[document], axis=1)

    def sum_by_document(self, function: Callable[[Array, Array, Array], Any]) -> Any:
        """Sums over the cells of each document, a few thousand cells at a time.

        Args:
            function: ``function(document, word, count)`` of some cells, vectors of one length; returns an
                array with a leading axis over the cells, or a pytree of such arrays.

        Returns:
            The same with a leading axis over documents, shape (num_documents, ...).
        """
        return self._sums(function, axis=0)

    def _sums(self, function: Callable[[Array, Array, Array], Any], axis: int) -> Any:
        """Sums by document (axis 0) or by word (axis 1) whose terms stay in the processor's cache."""
        cells = jax.tree.map(jnp.asarray, (self.document, self.word, self.count))
        terms = jax.eval_shape(function, *cells)
        width = max(1, *(math.prod(term.shape[1:]) for term in jax.tree.leaves(terms)))
        size = min(int(np.clip(CACHED_TERMS // width, *SCANNED_CELLS)), max(self.num_nonzeros, 1))
        padding = -self.num_nonzeros % size
        absent = (*self.shape, 0)  # cells that fill up belong to no document and no word
        blocks = [
            jnp.pad(values, (0, padding), constant_values=fill).reshape(-1, size)
            for values, fill in zip(cells, absent, strict=True)
        ]

        def add(total: Any, block: list[Array]) -> tuple[Any, None]:
            index = block[axis]
            return jax.tree.map(lambda sums, term: sums.at[index].add(term), total, function(*block)), None

        start = jax.tree.map(lambda term: jnp.zeros((self.shape[axis], *term.shape[1:]), term.dtype), terms)
        return jax.lax.scan(add, start, blocks)[0]

    @property
    def totals(self) -> Array:
        """Sum of the counts of each document, shape (num_documents,)."""
        return self.sum_by_document(lambda document, word, count: count)

    @property
    def log_coefficients(self) -> Array:
        """Log multinomial coefficient of each document, in nats, shape (num_documents,)."""
        factorials = self.sum_by_document(lambda document, word, count: gammaln(count + 1))
        return gammaln(self.totals + 1) - factorials

    def without_empty(self) -> Self:
        """The documents that have at least one word.

        Returns:
            Their counts, shape (num_kept, num_words).
        """
        return self.rows(np.flatnonzero(np.bincount(self.document, self.count, self.shape[0])))

    def rows(self, chosen: Any) -> Self:
        """Some of the documents, in the order given.

        Args:
            chosen: their numbers, shape (num_chosen,).

        Returns:
            Their counts, shape (num_chosen, num_words).
        """
        return self.from_matrix(self.to_scipy()[np.asarray(chosen)])

    def to_scipy(self) -> Any:
        """A scipy matrix in compressed rows.

        Returns:
            A ``csr_matrix`` of shape (num_documents, num_words).
        """
        return csr_matrix((self.count, (self.document, self.word)), shape=self.shape)


BLOCK_CELLS = 2**17


def is_sparse(x: object) -> bool:
    """Whether an object is a sparse matrix of this library or of scipy.

    Args:
        x: anything.

    Returns:
        True if it is sparse.
    """
    return isinstance(x, SparseMatrix | SparseCounts) or hasattr(x, "tocoo")


def as_rows(x: object, name: str = "x") -> "np.ndarray | SparseMatrix":
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
class SparseMatrix(_Cells):
    """A matrix by its compressed rows; a pytree whose shape is static.

    Args:
        starts: where the cells of each row begin, shape (num_rows + 1,).
        column: column of each cell, shape (num_nonzeros,).
        value: what each cell holds, shape (num_nonzeros,).
        shape: rows and columns of the whole matrix.
    """

    _arrays = ("starts", "column", "value")

    def __init__(self, starts: Any, column: Any, value: Any, shape: tuple[int, int]) -> None:
        self.starts, self.column, self.value = starts, column, value
        self.shape = (int(shape[0]), int(shape[1]))

    @classmethod
    def from_scipy(cls, matrix: Any, name: str = "x") -> Self:
        """Convert a scipy sparse matrix, sharing the memory of a canonical float64 CSR matrix.

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
        rows = _in_rows(matrix, name)
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
        """Build the matrix from cells given by row and column.

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

    def to_scipy(self) -> csr_array:
        """The matrix as a scipy array that shares its memory.

        Returns:
            Shape (num_rows, num_columns).
        """
        parts = (np.asarray(self.value), np.asarray(self.column), np.asarray(self.starts))
        return csr_array(parts, shape=self.shape)

    def extremes(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest cell of each column, counting cells that are not stored as zeros.

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
        """Mean and variance of each column, counting cells that are not stored as zeros.

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
        """Slices of cells, so that intermediate arrays stay small."""
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
        """The matrix as a dense array.

        Returns:
            Shape (num_rows, num_columns).
        """
        return jnp.zeros(self.shape, self.value.dtype).at[self.row, self.column].add(self.value)

    def _cells(self, value: Array) -> SparseCounts:
        return SparseCounts.tree_unflatten(self.shape, (self.row, self.column, value))


#: A part of the data as programs, answers and methods take it
Observed = Array | np.ndarray | SparseCounts | SparseMatrix
