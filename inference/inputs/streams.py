"""Rows that pass in batches: from an array, a memory-mapped file, or chunks that come one after another.

A source is read as often as a fit needs it and never held whole. Batches have one size; the last one is
filled up with rows of weight zero, so that one compiled program serves them all.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from zoo.checks import as_matrix

__all__ = ["Batch", "RowStream", "is_chunked"]


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
        """The rows themselves, shape (count, num_features)."""
        return self.x[: self.count]


def is_chunked(data: Any) -> bool:
    """Whether data come as chunks.

    An object with ``__iter__``, or a callable that makes a fresh iterator, rather than an array, a table or
    nested lists of numbers.
    """
    if hasattr(data, "__array__") or hasattr(data, "shape"):
        return False
    if isinstance(data, list | tuple):
        return any(np.ndim(chunk) == 2 for chunk in data)
    return callable(data) or hasattr(data, "__iter__")


class RowStream:
    """Rows in batches of one size, again and again in the same order.

    Args:
        source: an array of shape (num_observations, num_features), a memory-mapped one, anything with a
            ``shape`` that can be sliced by rows; or chunks of any length: an object with ``__iter__``, or a
            callable that makes a fresh iterator.
        batch_size: rows per batch.
        sample_weight: weight per row, shape (num_observations,); for sources of known length only.

    Raises:
        TypeError: an iterator that can be read only once.
        ValueError: no rows, or rows that are not two-dimensional.
    """

    def __init__(self, source: Any, batch_size: int, sample_weight: np.ndarray | None = None) -> None:
        """Remember the source; of chunks only the first is read."""
        self.source, self.batch_size, self.sample_weight = source, batch_size, sample_weight
        self.is_chunked = is_chunked(source)
        self.num_rows = None if self.is_chunked else source.shape[0]
        if self.is_chunked and _is_iterator(source):
            raise TypeError(
                "an iterator can be read only once, and a fit reads its data many times; give a callable "
                "that makes a fresh iterator, such as lambda: read_chunks(path), or an object with __iter__"
            )
        if not self.is_chunked and len(source.shape) != 2:
            raise ValueError(f"x must have shape (num_observations, num_features); got {source.shape}")
        first = next(iter(self), None)
        if first is None:
            raise ValueError(
                "the source of chunks gave no rows"
                if self.is_chunked
                else f"x has no rows: its shape is {source.shape}"
            )
        self.num_features = first.x.shape[1]

    def __iter__(self) -> Iterator[Batch]:
        """The batches of one pass.

        Raises:
            ValueError: a chunk with another number of columns, or other rows than at the pass before.
        """
        begin = 0
        for rows in self._sliced() if not self.is_chunked else self._recut():
            yield self._filled_up(rows, begin)
            begin += rows.shape[0]
        if self.num_rows is None:
            self.num_rows = begin
        elif begin != self.num_rows:
            raise ValueError(f"the source of chunks gave {self.num_rows} rows at first and {begin} later")

    def sample(self, num_rows: int) -> np.ndarray:
        """Rows to start from or to read scales off: evenly spaced ones, or the first ones of chunks.

        Args:
            num_rows: at most so many.

        Returns:
            Shape (at most num_rows, num_features).
        """
        if not self.is_chunked:
            if self.source.shape[0] <= num_rows:
                return as_matrix(self.source)
            return as_matrix(self.source[_evenly_spaced(self.source.shape[0], num_rows)])
        found, count = [], 0
        for batch in self:
            found.append(batch.rows)
            count += batch.count
            if count >= num_rows:
                break
        return np.concatenate(found)[:num_rows]

    def sampled_weight(self, num_rows: int) -> np.ndarray:
        """The weights of `sample`'s rows; one each if not one of them counts.

        Args:
            num_rows: as given to `sample`.

        Returns:
            Shape (at most num_rows,).
        """
        weight = np.ones(self.source.shape[0]) if self.sample_weight is None else self.sample_weight
        if weight.shape[0] > num_rows:
            weight = weight[_evenly_spaced(weight.shape[0], num_rows)]
        return weight if weight.any() else np.ones_like(weight)

    def whole(self) -> np.ndarray:
        """All rows at once.

        Returns:
            Shape (num_rows, num_features).
        """
        if not self.is_chunked:
            return as_matrix(self.source)
        return np.concatenate([batch.rows for batch in self])

    def identity(self) -> np.ndarray:
        """What tells these data from others: the rows of an array, the first batch of chunks.

        Returns:
            The rows of an array, or the first batch of chunks, shape (rows, num_features).
        """
        return self.source if not self.is_chunked else next(iter(self)).x

    def _sliced(self) -> Iterator[np.ndarray]:
        for begin in range(0, self.source.shape[0], self.batch_size):
            yield as_matrix(self.source[begin : begin + self.batch_size])

    def _recut(self) -> Iterator[np.ndarray]:
        """Chunks of any length as pieces of the common size, the last one shorter."""
        held, count, width = [], 0, None
        for number, chunk in enumerate(self.source() if callable(self.source) else self.source):
            rows = as_matrix(chunk, f"chunk {number}")
            width = rows.shape[1] if width is None else width
            if rows.shape[1] != width:
                raise ValueError(f"chunk {number} has {rows.shape[1]} columns; those before it have {width}")
            held.append(rows)
            count += rows.shape[0]
            if count >= self.batch_size:
                joined = np.concatenate(held)
                whole = count - count % self.batch_size
                yield from np.split(joined[:whole], whole // self.batch_size)
                held, count = [joined[whole:]], count - whole
        if count:
            yield np.concatenate(held)

    def _filled_up(self, rows: np.ndarray, begin: int) -> Batch:
        count = rows.shape[0]
        padding = self.batch_size - count
        weight = np.ones(count) if self.sample_weight is None else self.sample_weight[begin : begin + count]
        if padding:
            rows = np.concatenate([rows, np.broadcast_to(rows[:1], (padding, rows.shape[1]))])
            weight = np.pad(weight, (0, padding))
        return Batch(rows, weight, begin, count)


def _evenly_spaced(num_rows: int, num_wanted: int) -> np.ndarray:
    return np.linspace(0, num_rows - 1, num_wanted).astype(int)


def _is_iterator(source: Any) -> bool:
    """Whether a source can be read only once."""
    return hasattr(source, "__next__")
