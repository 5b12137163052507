"""Functions of one draw, applied to every draw."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax

__all__ = ["map_draws", "over_draws"]


@partial(jax.jit, static_argnums=0)
def over_draws(function: Callable, draws: Mapping[str, Any], model: Any, data: tuple) -> Any:
    """``function(model, values, *data)`` of every draw.

    Args:
        function: of a model, one draw's values and the data; a module-level function, since it keys the
            compile cache.
        draws: name to draws, leading dims (chain, draw).
        model: the model.
        data: the data.

    Returns:
        Its results, with leading dims (chain, draw).
    """
    chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    values = jax.lax.map(lambda values: function(model, values, *data), flat, batch_size=8)
    return jax.tree.map(lambda leaf: leaf.reshape(chains, num_draws, *leaf.shape[1:]), values)


def map_draws(function: Callable, key: jax.Array, draws: Mapping[str, Any]) -> Any:
    """``function((key, values))`` of every draw, each with a key of its own.

    Args:
        function: of a key and one draw's values, traced.
        key: a JAX key.
        draws: name to draws, leading dims (chain, draw).

    Returns:
        Its results, with leading dims (chain, draw).
    """
    chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    values = jax.lax.map(function, (jax.random.split(key, chains * num_draws), flat))
    return jax.tree.map(lambda leaf: leaf.reshape(chains, num_draws, *leaf.shape[1:]), values)
