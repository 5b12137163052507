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

from inference.count_segments import CACHED_NUMBERS, segment_width, segments_of
from zoo.sparse_counts import SparseCounts

__all__ = ["DocumentBlock", "DocumentBlocks", "PassSums", "block_sums", "cut", "topic_pass", "word_tokens"]


class DocumentBlock(NamedTuple):
    """Whole documents in segments (`inference.count_segments`); cells that fill up have count zero.

    Attributes:
        place: which of the block's documents each segment is of, shape (block_segments,).
        word: shape (block_segments, width).
        count: shape (block_segments, width).
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


def cut(counts: SparseCounts, num_topics: int, *, block_cells: int | None = None) -> DocumentBlocks:
    """The documents in blocks, on the host.

    Args:
        counts: the documents.
        num_topics: columns of what a pass gathers: cells x topics of a block stay in the cache.
        block_cells: cells per block instead; more, if a single document has more.
    """
    num_documents, width = counts.shape[0], segment_width(counts)
    segments = segments_of(counts, width)
    number = np.bincount(segments.document, minlength=num_documents)  # segments of each document
    ends = np.cumsum(number)
    wanted = (CACHED_NUMBERS // num_topics if block_cells is None else block_cells) // width
    size = int(max(min(wanted, max(ends[-1], 1)), number.max(), 1))
    most = max(8, int(1.5 * size / max(number.mean(), 1.0)))  # documents: so that short ones leave no waste
    borders = [0]
    while borders[-1] < num_documents:
        begin = borders[-1]
        before = ends[begin] - number[begin]
        fits = int(np.searchsorted(ends, before + size, side="right"))
        borders.append(min(max(fits, begin + 1), begin + most))
    first, last = np.array(borders[:-1]), np.array(borders[1:])
    of_document = np.repeat(np.arange(first.size), last - first)
    block = of_document[segments.document]
    slot = np.arange(block.size) - (ends - number)[first][block]
    shape = (first.size, size)
    place = np.full(shape, (last - first - 1)[:, None], np.int32)  # in order, those that fill up too
    word, count = np.zeros((*shape, width), np.int32), np.zeros((*shape, width))
    place[block, slot] = segments.document - first[block]
    word[block, slot], count[block, slot] = segments.word, segments.count
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
        own: word weights of the cells, shape (block_segments, width, num_topics).
    """
    s = jnp.einsum("swk,sk->sw", own, shares[block.place])
    s = jnp.where(block.count > 0, jnp.maximum(s, jnp.finfo(s.dtype).tiny), 1.0)
    ratio = block.count / s
    by_segment = jnp.einsum("swk,sw->sk", own, ratio)
    by_document = jnp.zeros_like(shares).at[block.place].add(by_segment)
    return ratio, by_document, jnp.sum(block.count * jnp.log(s))


def word_tokens(total: Array, block: DocumentBlock, ratio: Array, shares: Array) -> Array:
    """``total`` (num_words, num_topics) plus the block's ratios times the shares of their documents."""
    return total.at[block.word].add(ratio[..., None] * shares[block.place][:, None])


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
            word_tokens(total.by_word, block, ratio, own_shares),
            total.log_sums + log_sums,
        ), None

    zeros = PassSums(jnp.zeros_like(shares), jnp.zeros_like(by_word), jnp.zeros((), shares.dtype))
    sums = jax.lax.scan(add, zeros, documents.blocks)[0]
    return sums._replace(by_word=sums.by_word * by_word)
