"""Batches that several processes make together, each of rows or documents that it holds.

A batch of the fit is made of one share of each process, in their order; a process that has no more gives an
empty share. So the fit is that of one process whose batches are these. Documents in memory are put into one
random order of all, as in one process, and each process gives those of the batch that it holds.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from inference.inputs.streams import Batch, CountStream, RowStream
from inference.numerics.documents import DocumentBlocks, cut
from inference.processes import gathered
from zoo.model import in_current_precision
from zoo.sparse import SparseCounts


class SharedRows:
    """The batches of this process's rows, as many of them as of the process that has most.

    Everything but batches and the rows to start from is that of the process's own stream.

    Args:
        own: of this process, its ``batch_size`` the share of a batch.
    """

    def __init__(self, own: RowStream) -> None:
        self.own, self.num_batches = own, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def about(self, origin: np.ndarray | None) -> Self:
        """The same rows less ``origin``.

        Args:
            origin: shape (num_features,), or None.

        Returns:
            The stream.
        """
        return type(self)(self.own.about(origin))

    def __iter__(self) -> Iterator[Batch]:
        """This process's share of each batch of one pass; every process must go on to the next together."""
        shares, number, last = iter(self.own), 0, None
        while True:
            share = next(shares, None)
            if not any(bool(part["more"]) for part in gathered(more=share is not None)):
                break
            if share is None:
                share = Batch(last.x, np.zeros_like(last.weight), last.begin + last.count, 0)
                last = Batch(share.x, share.weight, share.begin, 0)
            else:
                last = share
            number += 1
            yield share
        self.num_batches = number

    def rows_of_all(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows to start from and their weights, the same in every process.

        Evenly spaced ones in the order in which the batches pass, as many as a batch has; of chunks the
        first ones.

        Returns:
            Shapes (rows, num_features) and (rows,).
        """
        own = self.own
        if own.is_chunked:
            rows = own.sample(own.batch_size)
            parts = gathered(rows=rows, weight=np.ones(rows.shape[0]))
            return tuple(np.concatenate([part[name] for part in parts]) for name in ("rows", "weight"))
        counts = np.array([int(part["count"]) for part in gathered(count=own.num_rows)])
        share, number = own.batch_size, int(jax.process_index())
        starts = np.arange(-(-counts.max() // share))[:, None] * share
        ends = np.cumsum(np.clip(counts - starts, 0, share))  # of each share, in the order of passing
        total, wanted = int(ends[-1]), share * counts.size
        chosen = np.linspace(0, total - 1, wanted).astype(int) if total > wanted else np.arange(total)
        cell = np.searchsorted(ends, chosen, side="right")
        batch, holder = np.divmod(cell, counts.size)
        place = batch * share + chosen - np.concatenate([[0], ends])[cell]
        mine = np.flatnonzero(holder == number)
        weight = np.ones(own.num_rows) if own.sample_weight is None else own.sample_weight
        rows = own.rows_at(place[mine])
        parts = gathered(at=mine, rows=rows, weight=weight[place[mine]])
        at = np.argsort(np.concatenate([part["at"] for part in parts]))
        rows, weight = (np.concatenate([part[name] for part in parts])[at] for name in ("rows", "weight"))
        return rows, weight if weight.any() else np.ones_like(weight)


class Share(NamedTuple):
    """This process's documents of a batch.

    Attributes:
        counts: the documents, none where it has none of the batch.
        places: of each in the whole batch, shape (documents,).
        shape: of the whole batch: documents and words.
    """

    counts: SparseCounts
    places: np.ndarray
    shape: tuple[int, int]


class SharedDocuments:
    """Batches of the documents of all processes; what is not said here is of the process's own stream.

    Args:
        own: of this process, its ``batch_size`` the share of a batch.
        num_devices: of all processes.

    Attributes:
        batch_size: of all processes together.
        num_rows: documents of all processes.
        log_coefficient: of all documents, in nats.
    """

    def __init__(self, own: CountStream, num_devices: int) -> None:
        self.own, self.num_devices = own, num_devices
        parts = gathered(count=own.num_rows, coefficient=own.log_coefficient)
        self.counts = np.array([int(part["count"]) for part in parts])
        self.num_rows = int(self.counts.sum())
        self.log_coefficient = sum(float(part["coefficient"]) for part in parts)
        self.batch_size = own.batch_size * len(parts)
        self.number = jax.process_index()
        self._num_blocks = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    @property
    def num_batches(self) -> int:
        """Batches of a pass."""
        if self.own.is_chunked:
            return int(-(-self.counts.max() // self.own.batch_size))
        return -(-self.num_rows // self.batch_size)

    def batches(self, order: np.ndarray | None = None) -> Iterator[tuple[int, Share]]:
        """This process's share of each batch of a pass, with the number of its first document in the pass.

        Args:
            order: of the documents of all processes, shape (num_rows,); of those in memory only.

        Returns:
            Pairs: the number of a batch's first document in the pass, and the share.
        """
        yield from self._in_turn() if order is None else self._in_order(order)

    def _in_order(self, order: np.ndarray) -> Iterator[tuple[int, Share]]:
        begin = int(self.counts[: self.number].sum())
        end = begin + self.own.num_rows
        for first in range(0, self.num_rows, self.batch_size):
            chosen = order[first : first + self.batch_size]
            places = np.flatnonzero((chosen >= begin) & (chosen < end))
            counts = self.own.source.rows(chosen[places] - begin)
            yield first, Share(counts, places, (chosen.size, self.own.num_words))

    def _in_turn(self) -> Iterator[tuple[int, Share]]:
        size, own, first = self.own.batch_size, iter(self.own.batches()), 0
        for number in range(int(-(-self.counts.max() // size))):
            _, counts = next(own, (0, self.own.first.rows(np.arange(0))))
            sizes = np.clip(self.counts - number * size, 0, size)
            places = sizes[: self.number].sum() + np.arange(counts.shape[0])
            yield first, Share(counts, places, (int(sizes.sum()), self.own.num_words))
            first += int(sizes.sum())

    def blocks(self, share: Share) -> DocumentBlocks:
        """A batch in blocks over the devices of all processes, their number filled up.

        Args:
            share: this process's.

        Returns:
            The documents of all processes.
        """
        held = self._cut(share)
        number = max(int(part["number"]) for part in gathered(number=held.blocks.owner.shape[0]))
        if number > self._num_blocks:
            self._num_blocks = number + -(-number // 16)
        if held.blocks.owner.shape[0] < self._num_blocks:
            held = self._cut(share)
        owner = held.blocks.owner
        absent = owner >= share.places.size
        places = np.append(share.places, self.batch_size)[np.where(absent, share.places.size, owner)]
        placed = held.blocks._replace(owner=places.astype(np.int32))
        whole = DocumentBlocks(placed, held.log_coefficient, held.shape)
        return in_current_precision(whole).over_devices(self.num_devices, numbers_all=True)

    def _cut(self, share: Share) -> DocumentBlocks:
        return cut(
            share.counts,
            layout=self.own.layout,
            num_documents=self.batch_size,
            num_blocks=self._num_blocks,
        )

    def places(self, share: Share) -> np.ndarray:
        """Where this process's documents stand in a batch.

        Args:
            share: this process's.

        Returns:
            Shape (documents,).
        """
        return share.places
