"""JAX's keys, derived on the host: the keys of a run cost a compiled program of half a second otherwise.

Keys of JAX's default generator are two words, and `jax.random.fold_in` is one application of the Threefry
block cipher to them (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3": 20
rounds on two words of 32 bits). The keys are those that JAX derives, bit by bit. Keys of another generator
are derived by JAX.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.numerics.compiled import compiled

__all__ = ["key_from_seed", "numbered_keys", "run_keys"]

DEFAULT = "threefry2x32"
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def key_from_seed(seed: int) -> Array:
    """``jax.random.key(seed)``, whose generator is the one that ``jax_default_prng_impl`` names.

    Args:
        seed: a whole number in [0, 2**32).
    """
    if jax.config.jax_default_prng_impl != DEFAULT:
        return jax.random.key(np.uint32(seed))
    return jax.random.wrap_key_data(np.array([0, seed], np.uint32))


def numbered_keys(key: Array, count: int) -> Array:
    """The keys of all restarts or chains, ``fold_in(key, number)``, shape (count,).

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
    first, second = np.zeros(count, np.uint32), np.arange(count, dtype=np.uint32)
    schedule = (words[0], words[1], words[0] ^ words[1] ^ PARITY)
    first, second = first + schedule[0], second + schedule[1]
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            first = first + second
            second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
        first = first + schedule[(block + 1) % 3]
        second = second + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return np.stack([first, second], axis=1)
