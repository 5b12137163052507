"""States of a run, kept in memory for a film: a checkpoint that no file holds.

Between chunks the loops of this package hand their states to the checkpoint, and where a chunk ends decides
no number of a run. `Frames` says where chunks are to end and keeps what it is handed, so that a run with it
is bit for bit the run without. The first states are all kept, later ones at even distances: once there are
too many, every second of them goes and the distance doubles, since nobody knows beforehand when a run ends.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from inference.driver.checkpoint import Checkpoint

EARLY = 40  # steps of which every state is kept: most happens there
MOST = 240

_frames: ContextVar["Frames | None"] = ContextVar("frames", default=None)


class Frames(Checkpoint):
    """A few hundred states of a run, and what the run's plan makes of them.

    Attributes:
        states: number of steps (the most of all restarts) to the states then, the steps of each restart, and
            their objectives, which of a restart that was moved is not in its trace (NaN of chains).
        trees: what became of the states, by `inference.fitting`: a fit for each, of an ascent; one fit whose
            draws are the frames, of a sampler.
        numbers: the step or sweep of each frame.
        gains: of an ascent, what each frame's objective exceeds that of its step by: not 0 after a move.
        labels: the sampler's own labels of the rows, shape (chain, frame, observation), before anything
            renumbers them; None where it has none.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__(None, {})
        self.states: dict[int, tuple[Any, np.ndarray, np.ndarray]] = {}
        self.trees: list[Any] = []
        self.numbers: list[int] = []
        self.gains: list[float] = []
        self.labels: np.ndarray | None = None
        self._distance = 1

    def until_next(self, done: int) -> int:
        """Steps to the next state that is kept."""
        if done < EARLY:
            return 1
        return self._distance - done % self._distance

    def is_due(self) -> bool:
        """After every chunk."""
        return True

    def save(self, state: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep a state, which stays if the run ends with it or if it is one of those wanted."""
        steps = np.asarray(arrays["done"] if "done" in arrays else arrays["progress_iteration"])
        done = int(steps.max())
        if self.states and not self._wants(last := next(reversed(self.states))):
            del self.states[last]
        objectives = arrays.get("progress_objective", np.full(1, np.nan))
        self.states[done] = jax.tree.map(_copied, state), steps, objectives
        if len(self.states) > MOST:
            self._distance *= 2
            self.states = {at: own for at, own in self.states.items() if self._wants(at) or at == done}

    def _wants(self, done: int) -> bool:
        return done <= EARLY or done % self._distance == 0


def _copied(leaf: Any) -> Any:
    """A leaf on the host, which the next step cannot change; keys stay where they are."""
    return leaf if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) else np.array(leaf)


@contextmanager
def filmed() -> Iterator[Frames]:
    """A context whose first fit hands its states to the `Frames` that it gives."""
    token = _frames.set(frames := Frames())
    try:
        yield frames
    finally:
        _frames.reset(token)


def frames_of_run() -> Frames | None:
    """The frames that the run is to fill, or None."""
    return _frames.get()
