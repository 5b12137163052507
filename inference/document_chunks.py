"""Products of sparse counts with dense matrices, a chunk of whole documents at a time.

What a step makes for documents and clusters is made for the documents of one chunk, and what it gathers for
cells and clusters for a part of a chunk's cells: both stay in the processor's cache, whatever the corpus.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.block_shards import sum_over_blocks
from inference.count_segments import CACHED_NUMBERS
from inference.document_blocks import DocumentBlock, DocumentBlocks, Layout, cut
from zoo.sparse_counts import SparseCounts

__all__ = ["add_transposed_times", "chunk_times", "in_chunks", "times", "transposed_times"]

FEWEST = 16  # documents of a chunk, and segments of a part of its cells


def in_chunks(counts: SparseCounts, num_columns: int) -> DocumentBlocks:
    """The documents in chunks, on the host.

    Args:
        counts: the documents.
        num_columns: of what is made for each document and cell, such as M clusters.
    """
    num_cells = np.bincount(counts.document, minlength=counts.shape[0])
    documents = max(CACHED_NUMBERS // num_columns, FEWEST)
    cells = int(np.ceil(documents * num_cells.mean()))
    return cut(counts, layout=Layout.of(num_cells, num_columns, block_cells=cells))


def chunk_times(chunk: DocumentBlock, by_word: Array) -> Array:
    """The counts of a chunk times a dense matrix.

    Args:
        chunk: some documents.
        by_word: shape (num_words, K).

    Returns:
        Shape (chunk_documents, K); zeros at places that are not taken.
    """

    def add(total: Array, cells: tuple) -> tuple[Array, None]:
        place, word, count = cells
        columns = zip(word.T, count.T, strict=True)  # cell after cell: what is gathered is added at once
        return total.at[place].add(sum(own[:, None] * by_word[which] for which, own in columns)), None

    start = jnp.zeros((chunk.owner.shape[0], by_word.shape[1]), by_word.dtype)
    return jax.lax.scan(add, start, _parts(chunk, by_word.shape[1]))[0]


def add_transposed_times(total: Array, chunk: DocumentBlock, own: Array) -> Array:
    """A dense matrix plus the transposed counts of a chunk times another.

    Args:
        total: shape (num_words, K).
        chunk: some documents.
        own: of these, shape (chunk_documents, K).

    Returns:
        Shape (num_words, K).
    """

    def add(total: Array, cells: tuple) -> tuple[Array, None]:
        place, word, count = cells
        return total.at[word].add(count[..., None] * own[place][:, None]), None

    return jax.lax.scan(add, total, _parts(chunk, own.shape[1]))[0]


def times(documents: DocumentBlocks, by_word: Array) -> Array:
    """The counts times a dense matrix.

    Args:
        documents: in chunks.
        by_word: shape (num_words, K).

    Returns:
        Shape (num_documents, K).
    """

    def visit(total: Array, chunk: DocumentBlock) -> tuple[Array, None]:
        return total.at[chunk.owner].set(chunk_times(chunk, by_word), mode="drop"), None

    start = jnp.zeros((documents.shape[0], by_word.shape[1]), by_word.dtype)
    return sum_over_blocks(visit, start, documents.blocks)


def transposed_times(documents: DocumentBlocks, by_document: Array) -> Array:
    """The transposed counts times a dense matrix.

    Args:
        documents: in chunks.
        by_document: shape (num_documents, K).

    Returns:
        Shape (num_words, K).
    """

    def visit(total: Array, chunk: DocumentBlock) -> tuple[Array, None]:
        own = by_document.at[chunk.owner].get(mode="fill", fill_value=0.0)
        return add_transposed_times(total, chunk, own), None

    start = jnp.zeros((documents.shape[1], by_document.shape[1]), by_document.dtype)
    return sum_over_blocks(visit, start, documents.blocks)


def _parts(chunk: DocumentBlock, num_columns: int) -> tuple[Array, Array, Array]:
    """Place, word and count of a chunk's segments with a leading axis over parts, filled up with zeros."""
    number, width = chunk.word.shape
    size = min(max(CACHED_NUMBERS // (num_columns * width), FEWEST), number)

    def split(leaf: Array) -> Array:
        padded = jnp.pad(leaf, ((0, -number % size),) + ((0, 0),) * (leaf.ndim - 1))
        return padded.reshape(-1, size, *leaf.shape[1:])

    return split(chunk.place), split(chunk.word), split(chunk.count)
