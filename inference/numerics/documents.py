"""Sparse counts in blocks of whole documents, the layout of every compiled pass over a corpus.

The cells of a document are cut into segments of equal width, the last one filled up with counts of zero;
a block holds the segments of some documents. A pass scans the blocks: the rows gathered for the cells of
one block stay in the processor's cache, so that neither a documents x words nor a nonzeros x columns
array is made. The rows of a document are fetched once a segment, sums over its cells are batched
products, and one row per segment is added to the document's: eight times as fast as cell by cell in XLA on
a CPU.

A pass is a sum over blocks (`DocumentBlocks.fold`); over several devices each sums the blocks of its
share, and one exchange adds the sums up. The number of columns that a pass gathers, topics or clusters,
sets the size of blocks: with many clusters a block holds few documents.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from inference.numerics.devices import on_all_devices, spread
from inference.numerics.weighted_rows import MOST_ROWS, bucket, power_of_two
from inference.processes import gathered
from zoo.model import Model
from zoo.sparse import SparseCounts

CACHED_NUMBERS = 2**17  # of a block's gathered rows: a megabyte in double precision
WIDTHS = (2, 4, 8, 16)
FEWEST_BLOCKS, FEWEST_SEGMENTS = 8, 512  # of buckets; fewer blocks stay as many, since one more is dear


class DocumentBlock(NamedTuple):
    """Whole documents in segments; cells that fill up have count zero.

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

    def rows_of(self, by_document: Array, missing: float = 0.0) -> Array:
        """The rows of the block's documents.

        Args:
            by_document: shape (num_documents, K).
            missing: the value at places that no document takes.

        Returns:
            Shape (block_documents, K).
        """
        return by_document.at[self.owner].get(mode="fill", fill_value=missing)

    def times(self, by_word: Array) -> Array:
        """The block's counts times a matrix.

        Args:
            by_word: shape (num_words, K).

        Returns:
            Shape (block_documents, K).
        """
        columns = zip(self.word.T, self.count.T, strict=True)  # cell after cell: gathered and added at once
        by_segment = sum(count[:, None] * by_word[word] for word, count in columns)
        zeros = jnp.zeros((self.owner.shape[0], by_word.shape[1]), by_word.dtype)
        return zeros.at[self.place].add(by_segment)


@jax.tree_util.register_pytree_node_class
class DocumentBlocks:
    """The documents of a corpus in blocks.

    Args:
        blocks: `DocumentBlock` with a leading axis over blocks, or with axes over devices and blocks.
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

    def over_devices(self, num_devices: int, *, numbers_all: bool = False) -> Self:
        """The same documents, the blocks in equal shares over devices.

        Several processes each give documents of their own: those of all become the documents of one corpus,
        the first process's first, with blocks of one size.

        Args:
            num_devices: number of shares; the last ones are filled up with empty blocks.
            numbers_all: whether several processes have numbered their documents among those of all.

        Returns:
            Blocks with an axis over devices before that over blocks.
        """
        held, begin, blocks, coefficient = self.shape[0], 0, self.blocks, self.log_coefficient
        most = blocks.word.shape, blocks.owner.shape
        if jax.process_count() > 1:
            sizes = gathered(word=most[0], owner=most[1], documents=held, coefficient=coefficient)
            most = tuple(np.max([part[name] for part in sizes], axis=0) for name in ("word", "owner"))
            counts = [int(part["documents"]) for part in sizes]
            if not numbers_all:
                begin, held = sum(counts[: jax.process_index()]), sum(counts)
            coefficient = np.asarray(sum(float(part["coefficient"]) for part in sizes))
        owner = np.asarray(blocks.owner)
        owner = np.where(owner < self.shape[0], owner + begin, held).astype(np.int32)
        local = num_devices // jax.process_count()
        number = -(-int(most[0][0]) // local) * local

        def deal(leaf: Any, size: tuple, **filling: Any) -> Array:
            leaf = _filled(leaf, (number, *size[1:]), **filling)
            return spread(leaf.reshape(local, -1, *leaf.shape[1:]), num_devices)

        dealt = DocumentBlock(
            deal(blocks.place, most[0][:2], mode="edge"),
            deal(blocks.word, most[0]),
            deal(blocks.count, most[0]),
            deal(owner, most[1], constant_values=held),
        )
        everywhere = on_all_devices(coefficient, num_devices)
        return type(self)(dealt, everywhere, (held, self.shape[1]))

    def padded(self) -> Self:
        """The same documents in a `bucket` of each size: of documents, of blocks, and of what a block holds.

        A block that holds all has a power of two of segments. What fills up is of no document. More documents
        than `MOST_ROWS` stay as they are.
        """
        held = self.shape[0]
        if held > MOST_ROWS:
            return self
        size, owner = bucket(held), np.asarray(self.blocks.owner)
        number, segments, width = self.blocks.word.shape
        owned = size if number == 1 else bucket(owner.shape[1], FEWEST_BLOCKS)
        if number == 1:
            segments = power_of_two(segments, FEWEST_SEGMENTS)
        number = bucket(number, FEWEST_BLOCKS) if number > FEWEST_BLOCKS else number
        most, owned = (number, bucket(segments, FEWEST_SEGMENTS), width), (number, owned)
        blocks = DocumentBlock(
            _filled(self.blocks.place, most[:2], mode="edge"),
            _filled(self.blocks.word, most),
            _filled(self.blocks.count, most),
            _filled(np.where(owner < held, owner, size).astype(owner.dtype), owned, constant_values=size),
        )
        return type(self)(blocks, self.log_coefficient, (size, self.shape[1]))

    @property
    def held(self) -> Array:
        """Which documents there are, of those that the blocks pass for, shape (num_documents,)."""
        return jnp.zeros(self.shape[0], bool).at[self.blocks.owner].set(True, mode="drop")

    def fold(self, add: Callable[[Any, DocumentBlock], Any], zeros: Any) -> Any:
        """The sum over all blocks.

        Args:
            add: ``add(total, block) -> total``.
            zeros: the empty total, an array or a pytree.

        Returns:
            The total of all blocks, of the structure of ``zeros``.
        """

        def over(blocks: DocumentBlock) -> Any:
            return jax.lax.scan(lambda total, block: (add(total, block), None), zeros, blocks)[0]

        if self.blocks.place.ndim == 2:
            return over(self.blocks)
        return jax.tree.map(lambda share: jnp.sum(share, axis=0), jax.vmap(over)(self.blocks))

    def times(self, by_word: Array) -> Array:
        """The counts times a matrix.

        Args:
            by_word: shape (num_words, K).

        Returns:
            Shape (num_documents, K).
        """

        def add(total: Array, block: DocumentBlock) -> Array:
            return total.at[block.owner].set(block.times(by_word), mode="drop")

        return self.fold(add, jnp.zeros((self.shape[0], by_word.shape[1]), by_word.dtype))

    def transposed_times(self, by_document: Array) -> Array:
        """The transposed counts times a matrix.

        Args:
            by_document: shape (num_documents, K).

        Returns:
            Shape (num_words, K).
        """

        def add(total: Array, block: DocumentBlock) -> Array:
            return add_by_word(total, block, block.count, block.rows_of(by_document))

        return self.fold(add, jnp.zeros((self.shape[1], by_document.shape[1]), by_document.dtype))


def _filled(leaf: Any, size: tuple, **filling: Any) -> np.ndarray:
    """An array of blocks in another size; whole blocks are filled up by zeros in place of the last value."""
    leaf = np.asarray(leaf)
    first, *rest = ((0, int(whole) - own) for whole, own in zip(size, leaf.shape, strict=True))
    leaf = np.pad(leaf, [(0, 0), *rest], **filling)
    return np.pad(leaf, [first, *[(0, 0)] * len(rest)], **({} if "mode" in filling else filling))


class BlockSizes(NamedTuple):
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
    def of(cls, num_cells: np.ndarray, num_columns: int) -> Self:
        """Blocks whose cells x columns stay in the cache, unless a single document has more.

        Segments are as wide as fills up at most about an eighth of the cells of documents of usual length.

        Args:
            num_cells: of each document, shape (num_documents,).
            num_columns: columns that a pass gathers for each cell, such as topics or clusters.

        Returns:
            The sizes of blocks.
        """
        usual = num_cells.sum() / max(np.count_nonzero(num_cells), 1)
        width = max((width for width in WIDTHS if width <= usual / 4), default=WIDTHS[0])
        number = -(-num_cells // width)
        wanted = CACHED_NUMBERS // num_columns // width
        size = int(max(min(wanted, max(number.sum(), 1)), number.max(), 1))
        most = max(8, int(1.5 * size / max(number.mean(), 1.0)))  # so that short documents leave no waste
        return cls(width, size, most)


def cut(
    counts: SparseCounts,
    num_columns: int = 1,
    *,
    layout: BlockSizes | None = None,
    num_documents: int | None = None,
    num_blocks: int = 0,
) -> DocumentBlocks:
    """The documents in blocks, on the host.

    Args:
        counts: the documents.
        num_columns: columns that a pass gathers for each cell, see `BlockSizes.of`.
        layout: the sizes of blocks, where they are not to be made for these documents.
        num_documents: that the blocks are to pass for, at least as many as there are.
        num_blocks: at least so many; those that fill up hold nothing.
    """
    held, absent = counts.shape[0], counts.shape[0] if num_documents is None else num_documents
    length = np.bincount(counts.document, minlength=held)
    if layout is None:
        layout = BlockSizes.of(length, num_columns)
    number = -(-length // layout.width)  # segments of each document
    ends = np.cumsum(number)
    borders = [0]
    while borders[-1] < held:
        begin = borders[-1]
        before = ends[begin] - number[begin]
        fits = int(np.searchsorted(ends, before + layout.segments, side="right"))
        borders.append(min(max(fits, begin + 1), begin + layout.documents))
    first, last = np.array(borders[:-1], int), np.array(borders[1:], int)
    block = np.repeat(np.arange(first.size), last - first)  # of each document
    slot = ends - number - (ends - number)[first][block]  # of its first segment in the block
    blocks = max(first.size, num_blocks)
    most = layout.documents if num_blocks else int((last - first).max())
    place = np.zeros((blocks, layout.segments), np.int32)
    place[: first.size] = (last - first - 1)[:, None]  # in order, those that fill up too
    document = np.repeat(np.arange(held), number)  # of each segment
    within = np.arange(document.size) - (ends - number)[document]
    place[block[document], slot[document] + within] = document - first[block[document]]
    cell = np.arange(counts.num_nonzeros) - (np.cumsum(length) - length)[counts.document]
    at = block[counts.document], slot[counts.document] + cell // layout.width, cell % layout.width
    shape = (*place.shape, layout.width)
    word, count = np.zeros(shape, np.int32), np.zeros(shape)
    word[at], count[at] = counts.word, counts.count
    owner = np.full((blocks, most), absent, np.int32)
    owner[block, np.arange(held) - first[block]] = np.arange(held)
    whole = DocumentBlock(place, word, count, owner)
    return DocumentBlocks(whole, log_coefficient(counts), (absent, counts.shape[1]))


def padded_documents[M: Model](model: M, data: tuple[DocumentBlocks, ...]) -> tuple[M, tuple]:
    """The ``for_steps`` of an ascent whose steps never read a document that no block is for.

    The model has no ``num_tokens``, which only draws of documents need and every corpus has its own.
    """
    return model.replaced(num_tokens=None), tuple(part.padded() for part in data)


def log_coefficient(counts: SparseCounts) -> np.ndarray:
    """Sum of the log multinomial coefficients of the documents, in nats."""
    totals = np.bincount(counts.document, counts.count, counts.shape[0])
    return np.asarray(gammaln(totals + 1).sum() - gammaln(counts.count + 1).sum())


def add_by_word(total: Array, block: DocumentBlock, by_cell: Array, by_document: Array) -> Array:
    """``total`` plus the sum over the cells of each word of a number times a row of the cell's document.

    Args:
        total: shape (num_words, K).
        block: of documents.
        by_cell: a number for each cell, such as its count, shape (block_segments, width).
        by_document: rows of the block's documents, shape (block_documents, K).
    """
    place = jnp.broadcast_to(block.place[:, None], block.word.shape)
    return _add_rows(total, block.word.ravel(), by_cell.ravel(), by_document, place.ravel())


@jax.custom_batching.custom_vmap
def _add_rows(total: Array, to: Array, factor: Array, rows: Array, place: Array) -> Array:
    """``total`` with a factor times a row added to one of its rows, for every entry of ``to`` in turn."""
    add = _row_after_row if jax.default_backend() == "cpu" else _all_rows_at_once
    return add(total, to, factor, rows, place)


@_add_rows.def_vmap
def _(axis_size: int, in_batched: list, *args: Array) -> tuple[Array, bool]:
    """Over devices the rows that are added to differ, over restarts they do not."""
    axes = tuple(0 if batched else None for batched in in_batched)
    shared = not in_batched[1] and not in_batched[4]
    return jax.vmap(_add_rows.fun if shared else _all_rows_at_once, in_axes=axes)(*args), True


def _row_after_row(total: Array, to: Array, factor: Array, rows: Array, place: Array) -> Array:
    """On a CPU half the time of XLA's scatter, which finds the place of every number by itself."""
    width, first = total.shape[1], jnp.zeros((), place.dtype)

    def add(total: Array, cell: tuple[Array, Array, Array]) -> tuple[Array, None]:
        to, factor, place = cell
        here, own = ((number, first) for number in (to, place))
        row = factor * jax.lax.dynamic_slice(rows, own, (1, width))
        row = jax.lax.dynamic_slice(total, here, (1, width)) + row
        return jax.lax.dynamic_update_slice(total, row, here), None

    return jax.lax.scan(add, total, (to, factor, place))[0]


def _all_rows_at_once(total: Array, to: Array, factor: Array, rows: Array, place: Array) -> Array:
    return total.at[to].add(factor[:, None] * rows[place])


class PassSums(NamedTuple):
    """The sums of one pass over all documents.

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


def topic_pass(documents: DocumentBlocks, shares: Array, by_word: Array) -> PassSums:
    """One pass over all documents, given unnormalised shares and word weights.

    Args:
        documents: in blocks.
        shares: shape (num_documents, num_topics).
        by_word: shape (num_words, num_topics).
    """
    shares, by_word = jnp.asarray(shares), jnp.asarray(by_word)

    def add(total: PassSums, block: DocumentBlock) -> PassSums:
        own = block.rows_of(shares)
        ratio, by_document, log_sums = block_sums(block, own, by_word[block.word])
        return PassSums(
            total.by_document.at[block.owner].set(own * by_document, mode="drop"),
            add_by_word(total.by_word, block, ratio, own),
            total.log_sums + log_sums,
        )

    zeros = PassSums(jnp.zeros_like(shares), jnp.zeros_like(by_word), jnp.zeros((), shares.dtype))
    sums = documents.fold(add, zeros)
    return sums._replace(by_word=sums.by_word * by_word)
