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

from inference.block_shards import deal_out_blocks, sum_over_blocks
from inference.count_segments import CACHED_NUMBERS, segment_width, segments_of
from inference.devices import on_all_devices
from zoo.sparse_counts import SparseCounts

__all__ = [
    "DocumentBlock",
    "DocumentBlocks",
    "Layout",
    "PassSums",
    "block_sums",
    "cut",
    "topic_pass",
    "word_tokens",
]


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
        blocks: `DocumentBlock` with a leading axis over blocks, or shares of them (`inference.block_shards`).
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

    def over_devices(self, num_devices: int) -> Self:
        """The same, the blocks dealt out.

        Args:
            num_devices: how many shares.

        Returns:
            The same documents, a leading axis of devices before that of the blocks.
        """
        empty = DocumentBlock(0, 0, 0, self.shape[0])
        return type(self)(
            deal_out_blocks(self.blocks, empty, num_devices),
            on_all_devices(self.log_coefficient, num_devices),
            self.shape,
        )


class Layout(NamedTuple):
    """The sizes of blocks.

    Attributes:
        width: cells of a segment.
        segments: of a block; a document has at most so many.
        documents: of a block, at most.
    """

    width: int
    segments: int
    documents: int

    @classmethod
    def of(cls, num_cells: np.ndarray, num_topics: int, block_cells: int | None = None) -> Self:
        """Blocks whose cells x topics stay in the cache, unless a single document has more.

        Args:
            num_cells: of each document, shape (num_documents,).
            num_topics: columns of what a pass gathers.
            block_cells: cells per block instead.

        Returns:
            Width and number of the segments of a block, and how many documents it may hold at most.
        """
        width = segment_width(num_cells)
        number = -(-num_cells // width)
        wanted = (CACHED_NUMBERS // num_topics if block_cells is None else block_cells) // width
        size = int(max(min(wanted, max(number.sum(), 1)), number.max(), 1))
        most = max(8, int(1.5 * size / max(number.mean(), 1.0)))  # so that short documents leave no waste
        return cls(width, size, most)


def cut(
    counts: SparseCounts,
    num_topics: int = 1,
    *,
    block_cells: int | None = None,
    layout: Layout | None = None,
    num_documents: int | None = None,
    num_blocks: int = 0,
) -> DocumentBlocks:
    """The documents in blocks, on the host.

    Args:
        counts: the documents.
        num_topics: columns of what a pass gathers, see `Layout.of`.
        block_cells: see `Layout.of`.
        layout: the sizes of blocks, where they are not to be made for these documents.
        num_documents: that the blocks are to pass for, at least as many as there are.
        num_blocks: at least so many; those that fill up hold nothing.
    """
    if layout is None:
        layout = Layout.of(np.bincount(counts.document, minlength=counts.shape[0]), num_topics, block_cells)
    held, absent = counts.shape[0], counts.shape[0] if num_documents is None else num_documents
    segments = segments_of(counts, layout.width)
    number = np.bincount(segments.document, minlength=held)  # segments of each document
    ends = np.cumsum(number)
    borders = [0]
    while borders[-1] < held:
        begin = borders[-1]
        before = ends[begin] - number[begin]
        fits = int(np.searchsorted(ends, before + layout.segments, side="right"))
        borders.append(min(max(fits, begin + 1), begin + layout.documents))
    first, last = np.array(borders[:-1]), np.array(borders[1:])
    of_document = np.repeat(np.arange(first.size), last - first)
    block = of_document[segments.document]
    slot = np.arange(block.size) - (ends - number)[first][block]
    blocks = max(first.size, num_blocks)
    most = layout.documents if num_blocks else int((last - first).max())
    place = np.zeros((blocks, layout.segments), np.int32)
    place[: first.size] = (last - first - 1)[:, None]  # in order, those that fill up too
    shape = (*place.shape, layout.width)
    word, count = np.zeros(shape, np.int32), np.zeros(shape)
    place[block, slot] = segments.document - first[block]
    word[block, slot], count[block, slot] = segments.word, segments.count
    owner = np.full((blocks, most), absent, np.int32)
    owner[of_document, np.arange(held) - first[of_document]] = np.arange(held)
    whole = DocumentBlock(place, word, count, owner)
    return DocumentBlocks(whole, log_coefficient(counts), (absent, counts.shape[1]))


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
    sums = sum_over_blocks(add, zeros, documents.blocks)
    return sums._replace(by_word=sums.by_word * by_word)
