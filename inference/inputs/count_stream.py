"""Documents that pass in batches: from counts in memory, or from chunks that come one after another.

Counts are read once before the first pass, to be checked and counted: how many documents there are, their
lengths, and the blocks (`inference.numerics.documents`) that all batches share, so that one compiled step serves
them. Documents in memory are put into a new random order for every pass; chunks are taken as they come and
never held whole.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from inference.numerics.documents import (DocumentBlocks, Layout, cut, log_coefficient)
from inference.inputs.streams import is_chunked
from inference.inputs.text import read_documents
from zoo.documents.bags import warn_of_empty
from zoo.sparse import SparseCounts

__all__ = ["CountStream"]


class CountStream:
    """Documents in batches of one size.

    Args:
        source: documents as `fit` takes them; or chunks of documents: an object with ``__iter__``, or a
            callable that makes a fresh iterator.
        batch_size: documents per batch.
        num_topics: columns of what a pass gathers.

    Attributes:
        num_rows: documents in all.
        num_words: size of the vocabulary.
        lengths: tokens of each document, shape (num_rows,).
        log_coefficient: sum of the documents' log multinomial coefficients, in nats.
        first: the first batch, or all of the documents in memory.
        coords: names of words and documents.

    Raises:
        TypeError: an iterator that can be read only once, or chunks that are no counts.
        ValueError: no documents, chunks that differ in their words, or cells that are no counts.
    """

    def __init__(self, source: Any, batch_size: int, num_topics: int) -> None:
        """Read the source once."""
        self.batch_size, self.is_chunked, self.coords = batch_size, is_chunked(source), {}
        if not self.is_chunked:
            (self.source,), self.coords = read_documents(source)
        elif hasattr(source, "__next__"):
            raise TypeError(
                "an iterator can be read only once, and a fit reads its data many times; give a callable "
                "that makes a fresh iterator, such as lambda: read_chunks(path), or an object with __iter__"
            )
        else:
            self.source = source
        cells, lengths, self.log_coefficient, self.first = [], [], 0.0, None
        for counts in self._chunks():
            self.first = counts if self.first is None else self.first
            cells.append(np.bincount(counts.document, minlength=counts.shape[0]))
            lengths.append(np.bincount(counts.document, counts.count, counts.shape[0]))
            self.log_coefficient += float(log_coefficient(counts))
        if self.first is None or not sum(map(len, lengths)):
            raise ValueError("there are no documents")
        self.lengths = np.concatenate(lengths)
        self.num_rows, self.num_words = self.lengths.size, self.first.shape[1]
        if self.is_chunked:
            warn_of_empty(self.lengths)
        self.layout = Layout.of(np.concatenate(cells), num_topics)
        self._num_blocks = 0

    def batches(self, order: np.ndarray | None = None) -> Iterator[tuple[int, SparseCounts]]:
        """The batches of a pass, each with the number of its first document in the pass.

        Args:
            order: of the documents, shape (num_rows,); of those in memory only.

        Returns:
            Pairs: the number of a batch's first document in the pass, and its counts, shape (documents,
                num_words).

        Raises:
            ValueError: the chunks gave other documents than when they were counted.
        """
        begin = 0
        for counts in self._recut() if self.is_chunked else self._sliced(order):
            yield begin, counts
            begin += counts.shape[0]
        if begin != self.num_rows:
            raise ValueError(
                f"the source of chunks gave {self.num_rows} documents at first and {begin} later"
            )

    def blocks(self, counts: SparseCounts) -> DocumentBlocks:
        """A batch in blocks, their number filled up so that few programs are compiled.

        Args:
            counts: a batch, shape (documents, num_words).

        Returns:
            The same counts in the blocks that `inference.numerics.documents` describes.
        """
        held = cut(counts, layout=self.layout, num_documents=self.batch_size, num_blocks=self._num_blocks)
        number = held.blocks.owner.shape[0]
        if number > self._num_blocks:
            self._num_blocks = number + -(-number // 16)
            return self.blocks(counts)
        return held

    def identity(self) -> tuple:
        """What tells these data from others: all counts in memory, the first chunk and all lengths.

        Returns:
            Documents, words and counts of what is in memory, and the lengths of all documents, each an array.
        """
        return (self.first.document, self.first.word, self.first.count, self.lengths)

    def _chunks(self) -> Iterator[SparseCounts]:
        if not self.is_chunked:
            yield self.source
            return
        words, names = None, None
        for number, chunk in enumerate(self.source() if callable(self.source) else self.source):
            try:
                (counts,), coords = read_documents(chunk)
            except (TypeError, ValueError) as error:
                raise type(error)(f"chunk {number}: {error}") from None
            words = counts.shape[1] if words is None else words
            names = coords.get("word") if names is None else names
            if counts.shape[1] != words:
                raise ValueError(f"chunk {number} has {counts.shape[1]} words; those before it have {words}")
            if coords.get("word") not in (None, names):
                raise ValueError(f"chunk {number} has words of other names than those before it")
            if names is not None:
                self.coords = {"word": names}
            yield counts

    def _sliced(self, order: np.ndarray | None) -> Iterator[SparseCounts]:
        order = np.arange(self.num_rows) if order is None else order
        for begin in range(0, self.num_rows, self.batch_size):
            yield self.source.rows(order[begin : begin + self.batch_size])

    def _recut(self) -> Iterator[SparseCounts]:
        held: list[SparseCounts] = []
        for counts in self._chunks():
            held.append(counts)
            while sum(map(len, held)) >= self.batch_size:
                joined = stacked(held)
                yield joined.rows(np.arange(self.batch_size))
                held = [joined.rows(np.arange(self.batch_size, len(joined)))]
        if sum(map(len, held)):
            yield stacked(held)


def stacked(parts: list[SparseCounts]) -> SparseCounts:
    """Documents of several matrices as one."""
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0] + [len(part) for part in parts])
    document = np.concatenate([part.document + begin for part, begin in zip(parts, first, strict=False)])
    word, count = (np.concatenate([getattr(part, name) for part in parts]) for name in ("word", "count"))
    return SparseCounts(document, word, count, (int(first[-1]), parts[0].shape[1]))
