"""The host between chunks of a run: the length of the next chunk, and Ctrl-C.

Keys and states of restarts and chains that run side by side.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.driver.checkpoint import Checkpoint

__all__ = ["CHUNK_CAPACITY", "ChunkLength", "Interrupt", "lane_keys", "resume", "start_each"]


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


def lane_keys(key: Array, count: int) -> Array:
    """The key of each restart or chain: ``fold_in(key, number)``."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))


def resume(
    checkpoint: Checkpoint, init: Callable, *args: Any, traced: bool = True
) -> tuple[Any, dict | None]:
    """The saved state, or a fresh one; only its shapes are computed when there is something to resume.

    An ``init`` that cannot be ``traced`` is run for them.
    """
    if checkpoint.path is None:
        return init(*args), None
    if not traced:
        fresh = init(*args)
        saved = checkpoint.load(fresh)
        return (fresh, None) if saved is None else saved
    saved = checkpoint.load(jax.eval_shape(init, *args))
    return (init(*args), None) if saved is None else saved


def start_each(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> Any:
    """The states of all restarts or chains, started in turn: a start may need as much memory as a step."""
    return jax.lax.map(lambda args: start(*args, model, *data), (keys, variables))
