"""Slice-sampling moves of positive numbers whose density has a term in their sum."""

import jax
import jax.numpy as jnp
import numpy as np

from inference.numerics.slice_sampling import PositiveSlices
from inference.precision import in_precision


def test_each_element_sees_the_sum_of_the_others_as_they_are_by_then():
    """Nearly all mass lies where the sum is ten: it stays there, however far the elements move."""
    with in_precision():
        begin = jnp.asarray([1.0, 2.0, 3.0, 4.0])
        slices = PositiveSlices(jnp.zeros_like, begin, (), lambda total: -0.5 * ((total - 10.0) / 0.1) ** 2)
        moved = np.asarray(jax.vmap(slices.sample)(jax.random.split(jax.random.key(0), 200)))
    assert np.abs(moved.sum(axis=1) - 10.0).max() < 1.0
    assert moved.std(axis=0).min() > 0.05
