"""Documents as segments: a few cells of one document side by side, so that a pass multiplies small matrices.

A segment has ``width`` cells, the last one of a document is filled up with counts of zero. What a document
gives its cells (shares, scores) is fetched once a segment, sums over its cells are batched products, and only
one row a segment is added to a document's: eight times as fast as cell by cell in XLA on a CPU.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.block_shards import deal_out_blocks, sum_over_blocks
from zoo.sparse_counts import SparseCounts

__all__ = ["CACHED_NUMBERS", "CountSegments", "Segments", "segment_width", "segments_of"]

CACHED_NUMBERS = 2**17  # of a block's gathered rows: a megabyte in double precision
WIDTHS = (2, 4, 8, 16)


class Segments(NamedTuple):
    """Cells in segments of one document each.

    Attributes:
        document: of each segment, shape (..., num_segments); D for segments that only fill up.
        word: shape (..., num_segments, width).
        count: shape (..., num_segments, width), zero for cells that only fill up.
    """

    document: Array
    word: Array
    count: Array


def segment_width(num_cells: np.ndarray) -> int:
    """The widest segment that fills up at most about an eighth of the cells of documents of usual length.

    Args:
        num_cells: of each document, shape (num_documents,).
    """
    usual = num_cells.sum() / max(np.count_nonzero(num_cells), 1)
    return max((width for width in WIDTHS if width <= usual / 4), default=WIDTHS[0])


def segments_of(counts: SparseCounts, width: int) -> Segments:
    """All segments in the order of documents, on the host."""
    length = np.bincount(counts.document, minlength=counts.shape[0])
    number = -(-length // width)
    first_cell, first_segment = np.cumsum(length) - length, np.cumsum(number) - number
    within = np.arange(counts.num_nonzeros) - first_cell[counts.document]
    place = first_segment[counts.document] + within // width, within % width
    shape = (int(number.sum()), width)
    word, count = np.zeros(shape, np.int32), np.zeros(shape)
    word[place], count[place] = counts.word, counts.count
    return Segments(np.repeat(np.arange(counts.shape[0], dtype=np.int32), number), word, count)


@jax.tree_util.register_pytree_node_class
class CountSegments:
    """A matrix of counts in blocks of segments, for products with dense matrices of a given width.

    Args:
        blocks: `Segments` with a leading axis over blocks, or shares of them (`inference.block_shards`).
        shape: documents and words.
    """

    def __init__(self, blocks: Segments, shape: tuple[int, int]) -> None:
        self.blocks, self.shape = blocks, shape

    @classmethod
    def cut(cls, counts: SparseCounts, num_columns: int) -> Self:
        """Blocks of such a size that cells x ``num_columns`` arrays stay in the cache; computed on the host.

        Args:
            counts: shape (num_rows, num_columns of the table).
            num_columns: of the arrays that are gathered for each cell, such as K topics.

        Returns:
            The same counts in blocks.
        """
        width = segment_width(np.bincount(counts.document, minlength=1))
        segments = segments_of(counts, width)
        most = max(segments.document.size, 1)
        size = int(np.clip(CACHED_NUMBERS // (num_columns * width), 16, most))
        return cls(in_blocks(segments, size, counts.shape[0]), counts.shape)

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The blocks; the shape is static."""
        return (self.blocks,), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], parts: tuple) -> Self:
        """From blocks that were made before."""
        return cls(*parts, shape)

    def over_devices(self, num_devices: int) -> Self:
        """The same, the blocks dealt out.

        Args:
            num_devices: how many shares.

        Returns:
            The same counts, a leading axis of devices before that of the blocks.
        """
        empty = Segments(self.shape[0], 0, 0)
        return type(self)(deal_out_blocks(self.blocks, empty, num_devices), self.shape)

    def times(self, by_word: Array) -> Array:
        """The matrix times a dense one.

        Args:
            by_word: shape (num_words, K).

        Returns:
            Shape (num_documents, K).
        """

        def add(total: Array, block: Segments) -> tuple[Array, None]:
            rows = jnp.einsum("swk,sw->sk", by_word[block.word], block.count)
            return total.at[block.document].add(rows, mode="drop"), None

        start = jnp.zeros((self.shape[0], by_word.shape[1]), by_word.dtype)
        return sum_over_blocks(add, start, self.blocks)

    def transposed_times(self, by_document: Array) -> Array:
        """The transposed matrix times a dense one.

        Args:
            by_document: shape (num_documents, K).

        Returns:
            Shape (num_words, K).
        """

        def add(total: Array, block: Segments) -> tuple[Array, None]:
            own = by_document.at[block.document].get(mode="fill", fill_value=0.0)
            return total.at[block.word].add(block.count[..., None] * own[:, None]), None

        start = jnp.zeros((self.shape[1], by_document.shape[1]), by_document.dtype)
        return sum_over_blocks(add, start, self.blocks)


def in_blocks(segments: Segments, size: int, num_documents: int) -> Segments:
    """Segments in equal blocks, the last one filled up."""
    number = segments.document.size
    padding = -number % size if number else size

    def cut(values: np.ndarray, fill: int) -> np.ndarray:
        filled = np.pad(values, ((0, padding),) + ((0, 0),) * (values.ndim - 1), constant_values=fill)
        return filled.reshape(-1, size, *values.shape[1:])

    return Segments(cut(segments.document, num_documents), cut(segments.word, 0), cut(segments.count, 0))
