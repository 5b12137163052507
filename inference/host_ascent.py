"""The loop of `inference.ascent` for steps that run on the host: nothing is traced, and no data are copied.

A step that multiplies a sparse matrix by scipy cannot be part of a compiled loop. Here restarts run one after
another, step by step, with the same keys and the same verdict on every step.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

__all__ = ["ascend_chunk_on_host", "start_on_host"]


def start_on_host(start: Callable, keys: Array, variables: Any, model: Any, data: tuple) -> Any:
    """The states of all restarts, leaves with a leading axis over them."""
    states = [
        start(key, jax.tree.map(lambda leaf, own=lane: leaf[own], variables), model, *data)
        for lane, key in enumerate(keys)
    ]
    return _stacked(states)


def ascend_chunk_on_host(
    step: Callable,
    verdict: Callable,
    lanes: Any,
    keys: Array,
    limit: int,
    max_iterations: int,
    model: Any,
    data: tuple,
) -> tuple[Any, Any]:
    """Up to ``limit`` steps of every running restart; a restart that has stopped keeps its state.

    Args:
        step: of the algorithm.
        verdict: ``verdict(lane, objective)`` gives the steps of little gain, the status, and whether the step
            failed.
        lanes: all restarts, as `inference.ascent` has them.
        keys: of the restarts.
        limit: the most steps of the chunk.
        max_iterations: the most steps of a restart.
        model: passed to the step.
        data: passed to the step.

    Returns:
        The restarts, and what was recorded, leaves of shape (restarts, steps).
    """
    after, recorded = [], []
    for lane, key in enumerate(keys):
        own = jax.tree.map(lambda leaf, at=lane: np.asarray(leaf[at]), lanes)
        infos = []
        while own.status == 0 and own.iteration < max_iterations and len(infos) < limit:
            state, info = step(jax.random.fold_in(key, own.iteration), own.state, model, *data)
            small, status, failed = verdict(own, info.objective)
            own = own._replace(iteration=own.iteration + 1, status=np.asarray(status))
            if not failed:
                own = own._replace(
                    state=state, objective=np.asarray(info.objective), small_steps=np.asarray(small)
                )
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
