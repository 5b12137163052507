"""The host between chunks of a run: the length of the next chunk, and Ctrl-C."""

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Self

import numpy as np

__all__ = ["CHUNK_CAPACITY", "ChunkLength", "Interrupt"]

CHUNK_SECONDS = 0.25
CHUNK_CAPACITY = 512  # steps a chunk can hold


class ChunkLength:
    """How many steps the next chunk takes, so that the host is asked a few times a second."""

    def __init__(self) -> None:
        self.length = 10

    def timed(self) -> Self:
        """A context whose duration sets the next length.

        Returns:
            Itself, to stand after ``with``.
        """
        return self

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        elapsed = time.perf_counter() - self._begin
        self.length = int(
            np.clip(
                self.length * CHUNK_SECONDS / max(elapsed, 1e-6), max(self.length // 4, 1), 4 * self.length
            )
        )
        self.length = min(self.length, CHUNK_CAPACITY)


class Interrupt:
    """Turns the first Ctrl-C into a request that is honoured between chunks.

    A second one interrupts at once.
    """

    requested = False

    def __enter__(self) -> Self:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("stopping after this chunk; press Ctrl-C again to stop at once", file=sys.stderr)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._previous)
