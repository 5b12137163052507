"""Keys and states of restarts and chains that run side by side."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from inference.driver.checkpoint import Checkpoint

__all__ = ["lane_keys", "resume", "start_each"]


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
