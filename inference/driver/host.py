"""The host between chunks of a run: length of the next chunk, Ctrl-C and SIGTERM, starting or resuming."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.driver.checkpoint import Checkpoint, Layout
from inference.numerics.compiled import compiled
from zoo.model import Model

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
    """A context in which the first Ctrl-C or SIGTERM is a request to stop between chunks.

    What there is is then saved and returned. The second has the effect that the first had outside: Ctrl-C
    stops at once, and SIGTERM goes to whoever handled it before, by default the end of the process.

    Signals are handled in the main thread of Python only, and the former handlers are put back. One that was
    not installed by Python could not be put back and stays; so does SIGTERM where it was ignored.
    """

    requested = False

    def __enter__(self) -> Self:
        self._previous: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                former = signal.getsignal(number)
                if former is not None and not (number == signal.SIGTERM and former == signal.SIG_IGN):
                    self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGTERM:
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
            return
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        again = "press Ctrl-C again" if number == signal.SIGINT else "send SIGTERM again"
        with suppress(OSError, ValueError):  # the terminal may be gone
            print(f"stopping after this chunk; {again} to stop at once", file=sys.stderr)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, former in self._previous.items():
            signal.signal(number, former)


def resume(
    checkpoint: Checkpoint, init: Callable, *args: Any, layout: Callable[[Any], Layout], traced: bool = True
) -> tuple[Any, dict | None]:
    """The saved state, or a fresh one; only its shapes are computed when there is something to resume.

    An ``init`` that cannot be ``traced`` is run for them.

    Args:
        checkpoint: the file.
        init: ``init(*args)``, a fresh state.
        *args: of it.
        layout: the arrays beside the state, see `Checkpoint.load`.
        traced: whether ``init`` can be.

    Returns:
        The state, and the saved arrays beside it or None.
    """
    saved = checkpoint.load(lambda: jax.eval_shape(init, *args) if traced else init(*args), layout)
    return (init(*args), None) if saved is None else saved


@partial(compiled, once=True, static_argnums=0)
def start_each(
    start: Callable, keys: Array, variables: Mapping[str, np.ndarray] | None, model: Model, data: tuple
) -> Any:
    """The states of all restarts or chains, started in turn: a start may need as much memory as a step.

    Their types are strong, as those that a step leaves: the second chunk is compiled as the first.
    """
    states = jax.lax.map(lambda args: start(*args, model, *data), (keys, variables))
    return jax.tree.map(_strongly_typed, states)


@partial(compiled, once=True, static_argnums=0)
def start_together(
    start: Callable, keys: Array, variables: Mapping[str, np.ndarray] | None, model: Model, data: tuple
) -> Any:
    """`start_each` with each operation done for all at once, which takes half the time on few cells."""
    given = keys, variables
    if len(keys) == 1:  # not batched, which is half of the tracing
        alone = start(*jax.tree.map(lambda leaf: leaf[0], given), model, *data)
        states = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], alone)
    else:
        states = jax.vmap(lambda *own: start(*own, model, *data))(*given)
    return jax.tree.map(_strongly_typed, states)


def with_rows(states: Any, of_rows: tuple[str, ...], num_rows: int) -> Any:
    """The states of all restarts or chains with so many rows: without the last, or with copies of the first.

    Args:
        states: leaves with a leading axis over restarts or chains.
        of_rows: the paths of the leaves whose next axis is over rows.
        num_rows: how many.
    """

    def resized(path: tuple, leaf: Any) -> Any:
        if jax.tree_util.keystr(path) not in of_rows or leaf.shape[1] == num_rows:
            return leaf
        own = np.asarray(leaf)[:, :num_rows]
        more = np.broadcast_to(own[:, :1], (len(own), num_rows - own.shape[1], *own.shape[2:]))
        return np.concatenate([own, more], axis=1)

    return jax.tree_util.tree_map_with_path(resized, states)


def _strongly_typed(leaf: Array) -> Array:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return leaf if is_key else jax.lax.convert_element_type(leaf, leaf.dtype)
