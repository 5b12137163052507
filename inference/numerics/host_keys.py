"""JAX's keys, derived on the host: the keys of a run cost a compiled program of half a second otherwise.

The keys are those that JAX derives, bit by bit (`inference.numerics.threefry`). Keys of another generator are
derived by JAX.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.numerics.compiled import compiled
from inference.numerics.threefry import enciphered

DEFAULT = "threefry2x32"


def key_from_seed(seed: int) -> Array:
    """``jax.random.key(seed)``, whose generator is the one that ``jax_default_prng_impl`` names.

    Args:
        seed: a whole number in [0, 2**32).
    """
    if jax.config.jax_default_prng_impl != DEFAULT:
        return jax.random.key(np.uint32(seed))
    return jax.random.wrap_key_data(np.array([0, seed], np.uint32))


def numbered_keys(key: Array, count: int) -> Array:
    """The keys of all restarts, chains or draws, ``fold_in(key, number)``, shape (count,).

    ``jax.random.split(key, count)`` gives the same.

    Args:
        key: a JAX key.
        count: how many.
    """
    implementation = jax.random.key_impl(key)
    if str(implementation) != DEFAULT:
        return _folded(key, count)
    return jax.random.wrap_key_data(_folded_words(_words(key), count), impl=implementation)


def run_keys(key: Array, count: int) -> tuple[Array, Array]:
    """The keys of all restarts or chains of a run, shape (count,), and that of its conclusion.

    Args:
        key: the key of the fit.
        count: how many restarts or chains.
    """
    implementation = jax.random.key_impl(key)
    if str(implementation) != DEFAULT:
        run_key, conclude_key = _folded(key, 2)
        return _folded(run_key, count), conclude_key
    run_words, conclude_words = _folded_words(_words(key), 2)
    keys = jax.random.wrap_key_data(_folded_words(run_words, count), impl=implementation)
    return keys, jax.random.wrap_key_data(conclude_words, impl=implementation)


@partial(compiled, static_argnums=1)
def _folded(key: Array, count: int) -> Array:
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))


def _words(key: Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _folded_words(words: np.ndarray, count: int) -> np.ndarray:
    """The words of ``fold_in(key, number)`` for the first numbers, shape (count, 2)."""
    counters = np.zeros(count, np.uint32), np.arange(count, dtype=np.uint32)
    return np.stack(enciphered((words[0], words[1]), *counters), axis=1)
