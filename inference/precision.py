"""The numerical precision in which every public function of ``inference`` computes.

JAX's global precision setting is never touched: it belongs to the user. A public function enters
``jax.enable_x64`` in the thread that computes, does its work, and hands NumPy arrays out, because a 64-bit
JAX array used outside the context would silently lose half its bits.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

__all__ = ["double_precision", "in_precision", "to_numpy"]

_DTYPES = {"float64": True, "float32": False}


@contextmanager
def in_precision(dtype: str = "float64") -> Iterator[None]:
    """Run the body in 64-bit (or, for ``dtype="float32"``, 32-bit) JAX, whatever the caller's setting is.

    Raises:
        ValueError: ``dtype`` is neither ``"float64"`` nor ``"float32"``.
    """
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32'; got {dtype!r}")
    with jax.enable_x64(_DTYPES[dtype]):
        yield


def double_precision(function: Callable) -> Callable:
    """Decorate a public function so that it computes in 64 bits.

    It must return NumPy or xarray objects, not JAX arrays.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with in_precision("float64"):
            return function(*args, **kwargs)

    return wrapped


def to_numpy(tree: Any) -> Any:
    """Every leaf of a pytree as a NumPy array on the host (call it before the precision context is left)."""
    return jax.tree.map(np.asarray, tree)
