"""Numbers that are held as NumPy arrays, in the precision in which they are used."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["in_current_precision"]


def in_current_precision(tree: Any) -> Any:
    """The pytree with NumPy leaves as JAX arrays in the caller's precision; traced leaves as they are.

    Programs and guides call this on what they hold. A NumPy array is copied on purpose: JAX remembers the
    converted constant by the identity of the array, and would hand 64-bit numbers out of a 64-bit context
    into a 32-bit one. The copy has the precision wanted, so that a large table is not copied twice.

    Args:
        tree: any pytree.

    Returns:
        The same pytree; shapes are as they were.
    """

    def converted(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            # device_put, since asarray copies a second time
            return jax.device_put(leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)))
        return jnp.asarray(leaf)

    return jax.tree.map(converted, tree)
