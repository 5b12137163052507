"""The loop of `inference.driver.ascent` for steps that run on the host: nothing is traced, and no data are copied.

A step that multiplies a sparse matrix by scipy cannot be part of a compiled loop. Here restarts run one after
another, step by step, with the same keys and the same verdict on every step.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from inference.driver.progress import NOT_FINITE, RUNNING, advanced

__all__ = ["ascend_chunk_on_host", "start_on_host"]


def start_on_host(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> Any:
    """The states of all restarts, leaves with a leading axis over them."""
    states = [
        start(key, jax.tree.map(lambda leaf, own=lane: leaf[own], variables), model, *data)
        for lane, key in enumerate(keys)
    ]
    return _stacked(states)


def ascend_chunk_on_host(
    functions: tuple[Callable, Callable],
    lanes: Any,
    keys: Array,
    limit: int,
    max_iterations: int,
    small_gain: float,
    slack: float,
    settled: int,
    model: Any,
    data: tuple,
) -> tuple[Any, Any]:
    """Up to ``limit`` steps of every running restart; a restart that has stopped keeps its state.

    The arguments and results are those of the compiled chunk of `inference.driver.ascent`.
    """
    step, rule = functions
    after, recorded = [], []
    for lane, key in enumerate(keys):
        own = jax.tree.map(lambda leaf, at=lane: np.asarray(leaf[at]), lanes)
        infos = []
        while (
            own.progress.status == RUNNING and own.progress.iteration < max_iterations and len(infos) < limit
        ):
            at = own.progress
            state, info = step(jax.random.fold_in(key, at.iteration), own.state, model, *data)
            with np.errstate(invalid="ignore"):
                reached = advanced(rule, np, at, np.asarray(info.objective), small_gain, slack, settled)
            failed = reached.status >= NOT_FINITE
            own = own._replace(state=own.state if failed else state, progress=reached)
            infos.append(jax.tree.map(np.asarray, info))
        after.append(own)
        recorded.append(infos)
    longest = max(map(len, recorded))
    kinds = next(infos[0] for infos in recorded if infos)
    empty = jax.tree.map(lambda leaf: np.full_like(leaf, 0), kinds)
    padded = [infos + [empty] * (longest - len(infos)) for infos in recorded]
    columns = [jax.tree.map(lambda *leaves: np.stack(leaves), *infos) for infos in padded]
    return _stacked(after), _stacked(columns)


def _stacked(trees: list) -> Any:
    """Leaves with a leading axis; of one tree its own memory."""
    if len(trees) == 1:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], trees[0])
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
