"""The signs of axes, which a model leaves open: one convention, so that equal answers look alike."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def signs_of(columns: Any) -> Any:
    """Signs that make the largest entry of each column positive, whatever the order of the rows.

    Args:
        columns: shape (size, num_columns), an array of NumPy (the signs are one too, in double precision) or
            of JAX.

    Returns:
        -1 or 1, shape (num_columns,); 1 for a column of zeros.
    """
    numbers = np if isinstance(columns, np.ndarray) else jnp
    places = numbers.argmax(numbers.abs(columns), axis=0)
    largest = numbers.take_along_axis(columns, places[None], axis=0)[0]
    return numbers.where(largest < 0, -1.0, 1.0)
