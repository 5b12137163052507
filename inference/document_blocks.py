"""Documents cut into equal blocks of whole documents: what a compiled pass over a corpus scans.

A pass gathers the topics of a block's words once and stays in the processor's cache; several passes over the
same documents (a variational step makes some) gather once. Neither a documents x words nor a nonzeros x
topics array is made, only cells x topics of one block.
"""

from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from zoo.sparse_counts import SparseCounts

__all__ = ["DocumentBlock", "DocumentBlocks", "PassSums", "block_sums", "cut", "topic_pass"]

BLOCK_CELLS = 4096  # unless a document has more


class DocumentBlock(NamedTuple):
    """Whole documents; cells that fill the block up have count zero.

    Attributes:
        place: which of the block's documents each cell is of, shape (block_cells,).
        word: shape (block_cells,).
        count: shape (block_cells,).
        owner: number of each document, shape (block_documents,); D for places that are not taken.
    """

    place: Array
    word: Array
    count: Array
    owner: Array


@jax.tree_util.register_pytree_node_class
class DocumentBlocks:
    """All documents in blocks.

    Args:
        blocks: `DocumentBlock` with a leading axis over blocks.
        log_coefficient: sum of the documents' log multinomial coefficients, in nats.
        shape: documents and words.
    """

    def __init__(self, blocks: DocumentBlock, log_coefficient: Any, shape: tuple[int, int]) -> None:
        self.blocks, self.log_coefficient, self.shape = blocks, log_coefficient, shape

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        """The blocks; the shape is static."""
        return (self.blocks, self.log_coefficient), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], parts: tuple) -> Self:
        """From parts that were made before."""
        return cls(*parts, shape)


def cut(counts: SparseCounts, block_cells: int = BLOCK_CELLS) -> DocumentBlocks:
    """The documents in blocks, on the host.

    Args:
        counts: the documents.
        block_cells: cells per block; more, if a single document has more.
    """
    num_documents = counts.shape[0]
    length = np.bincount(counts.document, minlength=num_documents)
    ends = np.cumsum(length)
    size = int(max(min(block_cells, max(ends[-1], 1)), length.max(), 1))
    most = max(8, int(1.5 * size / max(length.mean(), 1.0)))  # documents: so that short ones leave no waste
    borders = [0]
    while borders[-1] < num_documents:
        begin = borders[-1]
        before = ends[begin] - length[begin]
        fits = int(np.searchsorted(ends, before + size, side="right"))
        borders.append(min(max(fits, begin + 1), begin + most))
    first, last = np.array(borders[:-1]), np.array(borders[1:])
    of_document = np.repeat(np.arange(first.size), last - first)
    block = of_document[counts.document]
    begins = (ends - length)[first]
    slot = np.arange(counts.num_nonzeros) - begins[block]
    cells = (first.size, size)
    place, word, count = np.zeros(cells, np.int32), np.zeros(cells, np.int32), np.zeros(cells)
    place[block, slot] = counts.document - first[block]
    word[block, slot], count[block, slot] = counts.word, counts.count
    owner = np.full((first.size, int((last - first).max())), num_documents, np.int32)
    owner[of_document, np.arange(num_documents) - first[of_document]] = np.arange(num_documents)
    return DocumentBlocks(DocumentBlock(place, word, count, owner), log_coefficient(counts), counts.shape)


def log_coefficient(counts: SparseCounts) -> np.ndarray:
    """Sum of the log multinomial coefficients of the documents, in nats."""
    totals = np.bincount(counts.document, counts.count, counts.shape[0])
    return np.asarray(gammaln(totals + 1).sum() - gammaln(counts.count + 1).sum())


class PassSums(NamedTuple):
    """What one pass leaves behind.

    Attributes:
        by_document: expected tokens of each topic in each document, shape (num_documents, num_topics).
        by_word: expected tokens of each word in each topic, shape (num_words, num_topics).
        log_sums: sum over all tokens of the log of the sum over topics, in nats.
    """

    by_document: Array
    by_word: Array
    log_sums: Array


def block_sums(block: DocumentBlock, shares: Array, own: Array) -> tuple[Array, Array, Array]:
    """The ratios n/s of cells, their sums by document (not yet times the shares), and sum n log s.

    Args:
        block: of documents.
        shares: unnormalised topic shares of the block's documents, (block_documents, num_topics).
        own: word weights of the cells, shape (block_cells, num_topics).
    """
    s = jnp.sum(shares[block.place] * own, axis=-1)
    s = jnp.where(block.count > 0, jnp.maximum(s, jnp.finfo(s.dtype).tiny), 1.0)
    ratio = block.count / s
    by_document = jnp.zeros_like(shares).at[block.place].add(ratio[:, None] * own)
    return ratio, by_document, jnp.sum(block.count * jnp.log(s))


def topic_pass(documents: DocumentBlocks, shares: Array, by_word: Array) -> PassSums:
    """One pass over all documents, given unnormalised shares and word weights.

    Args:
        documents: in blocks.
        shares: shape (num_documents, num_topics).
        by_word: shape (num_words, num_topics).
    """

    def add(total: PassSums, block: DocumentBlock) -> tuple[PassSums, None]:
        own_shares = shares.at[block.owner].get(mode="fill", fill_value=0.0)
        ratio, by_document, log_sums = block_sums(block, own_shares, by_word[block.word])
        return PassSums(
            total.by_document.at[block.owner].set(own_shares * by_document, mode="drop"),
            total.by_word.at[block.word].add(ratio[:, None] * own_shares[block.place]),
            total.log_sums + log_sums,
        ), None

    zeros = PassSums(jnp.zeros_like(shares), jnp.zeros_like(by_word), jnp.zeros((), shares.dtype))
    sums = jax.lax.scan(add, zeros, documents.blocks)[0]
    return sums._replace(by_word=sums.by_word * by_word)
