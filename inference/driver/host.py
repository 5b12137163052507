"""The host between chunks of a run: the length of the next chunk, Ctrl-C, and starting or resuming."""

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
from inference.numerics.compiled import compiled

__all__ = ["CHUNK_CAPACITY", "ChunkLength", "Interrupt", "resume", "start_each"]


CHUNK_SECONDS = 0.25
CHUNK_CAPACITY = 512  # steps a chunk can hold


class ChunkLength:
    """A context around a chunk whose duration sets the number of steps of the next one, 0.25 s of them."""

    def __init__(self) -> None:
        self.length = 10

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        elapsed = time.perf_counter() - self._begin
        wanted = self.length * CHUNK_SECONDS / max(elapsed, 1e-6)
        wanted = int(np.clip(wanted, max(self.length // 4, 1), 4 * self.length))
        self.length = min(wanted, CHUNK_CAPACITY)


class Interrupt:
    """A context in which the first Ctrl-C is a request to stop between chunks; a second one stops at once."""

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


def resume(
    checkpoint: Checkpoint, init: Callable, *args: Any, traced: bool = True
) -> tuple[Any, dict | None]:
    """The saved state, or a fresh one; only its shapes are computed when there is something to resume.

    An ``init`` that cannot be ``traced`` is run for them.
    """
    if checkpoint.path is None:
        return init(*args), None
    fresh = None if traced else init(*args)
    saved = checkpoint.load(jax.eval_shape(init, *args) if traced else fresh)
    if saved is not None:
        return saved
    return init(*args) if traced else fresh, None


@partial(compiled, static_argnums=0)
def start_each(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> Any:
    """The states of all restarts or chains, started in turn: a start may need as much memory as a step.

    Their types are strong, as those that a step leaves: the second chunk is compiled as the first.
    """
    states = jax.lax.map(lambda args: start(*args, model, *data), (keys, variables))
    return jax.tree.map(_strongly_typed, states)


def _strongly_typed(leaf: Array) -> Array:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return leaf if is_key else jax.lax.convert_element_type(leaf, leaf.dtype)
