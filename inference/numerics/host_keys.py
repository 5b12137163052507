"""JAX's keys of a run, derived by NumPy where it can: a compiled program for them takes half a second.

The first run of a process takes 14 ms for its keys, most of it tracing.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.numerics.compiled import compiled


def key_from_seed(seed: int) -> Array:
    """The key of a seed in [0, 2**32), of the generator that ``jax_default_prng_impl`` names."""
    return _key(np.uint32(seed), jax.config.jax_default_prng_impl)


@partial(compiled, once=True, static_argnums=1)
def _key(seed: np.uint32, generator: str) -> Array:
    return jax.random.key(seed, impl=generator)


@partial(compiled, once=True, static_argnums=1)
def numbered_keys(key: Array, count: int) -> Array:
    """The keys of all restarts, chains or draws, ``fold_in(key, number)``, shape (count,).

    ``jax.random.split(key, count)`` gives the same.
    """
    return folded(key, count)


@partial(compiled, once=True, static_argnums=1)
def run_keys(key: Array, count: int) -> tuple[Array, Array]:
    """The keys of all restarts or chains of a run, shape (count,), and that of its conclusion."""
    run_key, conclude_key = folded(key, 2)
    return folded(run_key, count), conclude_key


def folded(key: Array, count: int) -> Array:
    """`numbered_keys` inside a program, in one call: each takes a while to compile."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))
