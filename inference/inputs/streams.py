"""Rows and documents in batches: from memory, a memory-mapped file, or chunks that come one after another.

A source of rows is read as often as a fit needs it and never held whole. Batches have one size; the last one
is filled up with rows of weight zero, so that one compiled program serves them all.

Counts of documents are read once before the first pass, to be checked and counted: how many documents there
are, their lengths, and the blocks (`inference.numerics.documents`) that all batches share, so that one
compiled step serves them. Documents in memory are put into a new random order for every pass; chunks are
taken as they come and never held whole.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from inference.algorithm import TEXT_COLUMN
from inference.inputs.reading_ahead import read_ahead
from inference.inputs.sources import is_source
from inference.inputs.text import TextChunks, read_documents
from inference.numerics.documents import BlockSizes, DocumentBlocks, cut, log_coefficient
from zoo.checks import as_matrix, column_of, shown
from zoo.documents.bags import warn_of_empty
from zoo.fields import family_field
from zoo.intake.families import for_data
from zoo.model import Model
from zoo.sparse import SparseCounts


class Batch(NamedTuple):
    """One batch, filled up to the common size.

    Attributes:
        x: shape (batch_size, num_features); padding repeats the first row.
        weight: shape (batch_size,), zero for padding.
        begin: number of the first row in the whole data.
        count: rows that are not padding.
    """

    x: np.ndarray
    weight: np.ndarray
    begin: int
    count: int

    @property
    def rows(self) -> np.ndarray:
        """The rows without padding, shape (count, num_features)."""
        return self.x[: self.count]


def is_chunked(data: object) -> bool:
    """Whether data come as chunks rather than as an array, a table or nested lists of numbers.

    Chunks are an object with ``__iter__``, or a callable that makes a fresh iterator.
    """
    if hasattr(data, "__array__") or hasattr(data, "shape"):
        return False
    if isinstance(data, list | tuple):
        return any(np.ndim(chunk) == 2 for chunk in data)
    return callable(data) or (hasattr(data, "__iter__") and not isinstance(data, Mapping))


def check_complete_batch(model: Model, rows: np.ndarray) -> None:
    """Raise ValueError if rows of a batch miss cells whose patterns all rows must be read for.

    Args:
        model: with its sizes.
        rows: of the batch, shape (batch_size, num_features).
    """
    if for_data(model, rows) is not model:
        components = getattr(model, family_field(model))
        pairs = components.by_columns
        are_joint = [family.with_patterns(rows[:, list(own)]) is not family for family, own in pairs]
        places = np.concatenate(
            [own for (_, own), is_joint in zip(pairs, are_joint, strict=True) if is_joint]
        )
        row, first = np.argwhere(np.isnan(rows[:, places]))[0]
        remedy = "NormalGamma()"
        if components.is_grouped:
            joint = dict.fromkeys(np.flatnonzero(are_joint), "NormalGamma")
            names = (joint.get(at, type(own).__name__) for at, (own, _) in enumerate(pairs))
            logs = f", logs={components.logs}" if components.logs else ""
            remedy = f"Product(({'(), '.join(names)}(),), {components.columns}{logs})"
        raise ValueError(
            f"cells are missing (row {row}, {column_of(rows, int(places[first]))} of a batch), and "
            "batch_size takes complete rows under full covariances: leave batch_size out, or take "
            f"components={remedy}, whose columns are independent"
        )


class RowStream:
    """Rows in batches of one size, again and again in the same order.

    Args:
        source: an array of shape (num_observations, num_features), a memory-mapped one, anything with a
            ``shape`` that can be sliced by rows; an `inference.inputs.sources.Source`; or chunks of any
            length: an object with ``__iter__``, or a callable that makes a fresh iterator.
        batch_size: rows per batch.
        sample_weight: weight per row, shape (num_observations,); not of chunks, whose number is not known.

    Attributes:
        columns: names of the columns of chunks that are tables, else None.

    Raises:
        TypeError: an iterator that can be read only once.
        ValueError: no rows, or rows that are not two-dimensional.
    """

    def __init__(self, source: Any, batch_size: int, sample_weight: np.ndarray | None = None) -> None:
        """Remember the source; of chunks only the first is read."""
        self.source, self.batch_size, self.sample_weight = source, batch_size, sample_weight
        self.columns = None
        self.origin: np.ndarray | None = None
        self.is_chunked = is_chunked(source)
        self.num_rows = None if self.is_chunked else source.shape[0]
        self._samples: dict[int, np.ndarray] = {}
        if is_source(source):
            self.source, self.num_rows = source.in_chunks_of(batch_size), source.num_rows
        _refuse_iterator(source)
        if not self.is_chunked and len(source.shape) != 2:
            raise ValueError(f"x must have shape (num_observations, num_features); got {source.shape}")
        first = next(iter(self), None)
        if first is None and self.is_chunked:
            raise ValueError("the source of chunks gave no rows")
        if first is None:
            raise ValueError(f"x has no rows: its shape is {source.shape}")
        self.num_features = first.x.shape[1]

    def about(self, origin: np.ndarray | None) -> Self:
        """The same rows less ``origin``, the difference taken as they are read.

        Args:
            origin: shape (num_features,), or None.

        Returns:
            The stream.
        """
        new = copy.copy(self)
        new.origin = origin
        return new

    def __iter__(self) -> Iterator[Batch]:
        """The batches of one pass.

        Raises:
            ValueError: a chunk with another number of columns, or other rows than at the pass before.
        """
        begin = 0
        for rows in self._pieces():
            yield self._filled_up(rows, begin)
            begin += rows.shape[0]
        if self.num_rows is None:
            self.num_rows = begin
        elif begin != self.num_rows:
            raise ValueError(f"the source of chunks gave {self.num_rows} rows at first and {begin} later")

    def sample(self, num_rows: int) -> np.ndarray:
        """Some rows, to start from or to read scales off: evenly spaced, or of chunks the first ones.

        Args:
            num_rows: at most so many.

        Returns:
            Shape (at most num_rows, num_features).
        """
        if is_source(self.source):
            return self._moved(self._sampled(num_rows))
        if not self.is_chunked:
            if self.source.shape[0] <= num_rows:
                return self._moved(as_matrix(self.source))
            return self._moved(as_matrix(self.source[_evenly_spaced(self.source.shape[0], num_rows)]))
        found, count = [], 0
        for batch in self:
            found.append(batch.rows)
            count += batch.count
            if count >= num_rows:
                break
        return np.concatenate(found)[:num_rows]

    def rows_at(self, numbers: np.ndarray) -> np.ndarray:
        """Some rows of an array or a source.

        Args:
            numbers: of the rows, rising, shape (n,).

        Returns:
            Shape (n, num_features).
        """
        if not numbers.size:
            return np.empty((0, self.num_features))
        if is_source(self.source):
            return self._moved(self.source.picked(numbers))
        return self._moved(as_matrix(self.source[numbers]))

    @property
    def num_batches(self) -> int | None:
        """Batches of a pass; None: not known before chunks have passed once."""
        return None if self.num_rows is None else -(-self.num_rows // self.batch_size)

    def _sampled(self, num_rows: int) -> np.ndarray:
        """Evenly spaced rows of a source; those of a batch are read by the same pass."""
        if num_rows not in self._samples:
            wanted = {most: self._places(most) for most in (num_rows, self.batch_size)}
            rows = np.unique(np.concatenate(list(wanted.values())))
            found = self.source.picked(rows)
            for most, places in wanted.items():
                self._samples[most] = found[np.searchsorted(rows, places)]
        return self._samples[num_rows]

    def _places(self, most: int) -> np.ndarray:
        return np.arange(self.num_rows) if self.num_rows <= most else _evenly_spaced(self.num_rows, most)

    def sampled_weight(self, num_rows: int) -> np.ndarray:
        """The weights of `sample`'s rows; one each if all are zero.

        Args:
            num_rows: as given to `sample`.

        Returns:
            Shape (at most num_rows,).
        """
        weight = np.ones(self.num_rows) if self.sample_weight is None else self.sample_weight
        if weight.shape[0] > num_rows:
            weight = weight[_evenly_spaced(weight.shape[0], num_rows)]
        return weight if weight.any() else np.ones_like(weight)

    def whole(self) -> np.ndarray:
        """All rows at once.

        Returns:
            Shape (num_rows, num_features).
        """
        if not self.is_chunked:
            return self._moved(as_matrix(self.source))
        return np.concatenate([batch.rows for batch in self])

    def identity(self) -> np.ndarray:
        """Values that identify these data: the rows of an array, the first batch of chunks.

        Returns:
            The rows of an array, or the first batch of chunks, shape (rows, num_features).
        """
        return self.source if not self.is_chunked else next(iter(self)).x

    def _pieces(self) -> Iterator[np.ndarray]:
        """The rows of one pass in pieces of the common size, the last one shorter."""
        if self.is_chunked:
            return self._recut()
        return read_ahead(self._copied) if isinstance(self.source, np.memmap) else self._sliced()

    def _copied(self) -> Iterator[np.ndarray]:
        """Pieces of a memory map, read from the disk here rather than where they are used."""
        return map(np.array, self._sliced())

    def _sliced(self) -> Iterator[np.ndarray]:
        for begin in range(0, self.source.shape[0], self.batch_size):
            yield as_matrix(self.source[begin : begin + self.batch_size])

    def _recut(self) -> Iterator[np.ndarray]:
        """Chunks of any length as pieces of the common size, the last one shorter."""
        held, count, width = [], 0, None
        for number, chunk in enumerate(self.source() if callable(self.source) else self.source):
            rows = as_matrix(chunk, f"chunk {number}")
            self._check_names(getattr(chunk, "columns", None), number)
            width = rows.shape[1] if width is None else width
            if rows.shape[1] != width:
                raise ValueError(f"chunk {number} has {rows.shape[1]} columns; those before it have {width}")
            held.append(rows)
            count += rows.shape[0]
            if count >= self.batch_size:
                joined = held[0] if len(held) == 1 else np.concatenate(held)
                whole = count - count % self.batch_size
                yield from np.split(joined[:whole], whole // self.batch_size)
                count -= whole
                held = [joined[whole:]] if count else []  # an empty rest would have the next chunk copied
        if count:
            yield held[0] if len(held) == 1 else np.concatenate(held)

    def _check_names(self, columns: Any, number: int) -> None:
        """Raise ValueError if the columns of a chunk have other names, or another order, than the first's."""
        names = None if columns is None else tuple(columns)
        if number == 0 and self.columns is None:
            self.columns = names
        if names == self.columns or names is None:
            return
        held = "no names" if self.columns is None else shown(self.columns)
        raise ValueError(
            f"chunk {number} has the columns {shown(names)} and the first chunk has {held}: give every "
            "chunk the same columns in the same order"
        )

    def _moved(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.origin is None else rows - self.origin

    def _filled_up(self, rows: np.ndarray, begin: int) -> Batch:
        rows, count = self._moved(rows), rows.shape[0]
        padding = self.batch_size - count
        weight = np.ones(count) if self.sample_weight is None else self.sample_weight[begin : begin + count]
        if padding:
            rows = np.concatenate([rows, np.broadcast_to(rows[:1], (padding, rows.shape[1]))])
            weight = np.pad(weight, (0, padding))
        return Batch(rows, weight, begin, count)


def _evenly_spaced(num_rows: int, num_wanted: int) -> np.ndarray:
    return np.linspace(0, num_rows - 1, num_wanted).astype(int)


def _refuse_iterator(source: Any) -> None:
    """Raise TypeError for a source that can be read only once."""
    if hasattr(source, "__next__"):
        raise TypeError(
            "an iterator can be read only once, and a fit reads its data many times; give a callable "
            "that makes a fresh iterator, such as lambda: read_chunks(path), or an object with __iter__"
        )


class CountStream:
    """Documents in batches of one size.

    Args:
        source: documents as `fit` takes them; an `inference.inputs.sources.Source` of counts or texts; or
            chunks of documents: an object with ``__iter__``, or a callable that makes a fresh iterator.
        batch_size: documents per batch.
        num_columns: that a pass gathers for each cell, such as topics or clusters.

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

    def __init__(self, source: Any, batch_size: int, num_columns: int) -> None:
        """Read the source once."""
        self.batch_size, self.is_chunked, self.coords = batch_size, is_chunked(source), {}
        _refuse_iterator(source)
        self.source, given = source, source
        if is_source(source) and source.holds_texts:
            self.source = TextChunks(source)
        if not self.is_chunked:
            (self.source,), self.coords = read_documents(source)
        cells, lengths, self.log_coefficient, self.first = [], [], 0.0, None
        for counts in self._chunks():
            self.first = counts if self.first is None else self.first
            cells.append(np.bincount(counts.document, minlength=counts.shape[0]))
            lengths.append(np.bincount(counts.document, counts.count, counts.shape[0]))
            self.log_coefficient += float(log_coefficient(counts))
        if self.first is None or not sum(map(len, lengths)):
            raise ValueError("there are no documents")
        if is_source(given) and given.holds_texts and given.names:
            self.coords[TEXT_COLUMN] = list(given.names)
        self.lengths = np.concatenate(lengths)
        if not self.lengths.any():
            raise ValueError(
                "counts holds no word at all: every document is empty, and there is nothing to fit"
            )
        self.num_rows, self.num_words = self.lengths.size, self.first.shape[1]
        if self.is_chunked:
            warn_of_empty(self.lengths)
        else:
            warn_of_empty(self.lengths, given, self.coords.get("document"))
        self.layout = BlockSizes.of(np.concatenate(cells), num_columns)
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

    @property
    def num_batches(self) -> int:
        """Batches of a pass."""
        return -(-self.num_rows // self.batch_size)

    def places(self, counts: SparseCounts) -> slice:
        """Where the documents of a batch stand in it.

        Args:
            counts: the batch.

        Returns:
            All places but those that fill up.
        """
        return slice(0, counts.shape[0])

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
        """Values that identify these data: all counts in memory, the first chunk and all lengths.

        Returns:
            Documents, words and counts in memory, and the lengths of all documents, each an array.
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
