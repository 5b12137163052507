"""Sparse counts: the nonzero cells of a document-term matrix (or any table of counts), sorted by row.

Sums over cells are taken a few thousand cells at a time, so that neither a dense rows x columns array nor a
cells x components array is ever made.
"""

import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln

__all__ = ["SparseCounts"]

CACHED_TERMS = 2**18  # numbers that are made for the cells of a sum at once
SCANNED_CELLS = (256, 8192)  # fewest and most cells at once


@jax.tree_util.register_pytree_node_class
class SparseCounts:
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

    def __init__(self, document: Any, word: Any, count: Any, shape: tuple[int, int]) -> None:
        document, word = np.asarray(document, np.int32), np.asarray(word, np.int32)
        count = np.asarray(count, np.float64)
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
        bad = ~(np.isfinite(count) & (count >= 0) & (count == np.round(count)))
        if bad.any():
            place = int(np.argmax(bad))
            raise ValueError(
                f"counts must be whole numbers of at least 0; row {document[place]}, column {word[place]} is "
                f"{count[place]:g} ({bad.sum()} such cells in all)"
            )
        self.document, self.word, self.count = document, word, count

    @classmethod
    def from_matrix(cls, matrix: Any) -> Self:
        """From a scipy sparse matrix, or a dense matrix of counts.

        Args:
            matrix: shape (num_documents, num_words).

        Returns:
            Its cells that are not zero.
        """
        if hasattr(matrix, "tocoo"):
            coo = matrix.tocsr().tocoo()  # duplicates summed, rows in order
            return cls(coo.row, coo.col, coo.data, coo.shape)
        dense = np.asarray(matrix)
        document, word = np.nonzero(dense)
        return cls(document, word, dense[document, word], dense.shape)

    def to_dense(self) -> np.ndarray:
        """The whole matrix.

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

    @property
    def ndim(self) -> int:
        """Rows and columns: 2. NumPyro asks every observed value, before it samples."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the cells."""
        return sum(part.nbytes for part in (self.document, self.word, self.count))

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
        held = np.flatnonzero(np.bincount(self.document, self.count, self.shape[0]) > 0)
        return self.rows(held)

    def rows(self, chosen: Any) -> Self:
        """Some of the documents, in the order given.

        Args:
            chosen: their numbers, shape (num_chosen,).

        Returns:
            Their counts, shape (num_chosen, num_words).
        """
        chosen = np.asarray(chosen)
        begin = np.searchsorted(self.document, chosen)
        length = np.searchsorted(self.document, chosen, side="right") - begin
        first = np.repeat(begin - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
        cells = first + np.arange(length.sum())
        document = np.repeat(np.arange(chosen.size), length)
        return type(self)(document, self.word[cells], self.count[cells], (chosen.size, self.shape[1]))

    def to_scipy(self) -> Any:
        """A scipy matrix in compressed rows.

        Returns:
            A ``csr_matrix`` of shape (num_documents, num_words).
        """
        from scipy.sparse import csr_matrix

        return csr_matrix((self.count, (self.document, self.word)), shape=self.shape)

    def __len__(self) -> int:
        """Number of documents."""
        return self.shape[0]

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The cells; the shape is static."""
        return (self.document, self.word, self.count), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], cells: tuple) -> Self:
        """From cells that were checked before."""
        new = object.__new__(cls)
        new.document, new.word, new.count = cells
        new.shape = shape
        return new
