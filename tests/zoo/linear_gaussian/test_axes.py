"""One convention for the signs of axes."""

import jax
import jax.numpy as jnp
import numpy as np

from zoo.linear_gaussian.axes import signs_of


def test_the_largest_entry_is_positive_whatever_the_order_and_the_kind_of_array():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(7, 5))
    columns[:, 4] = 0.0
    signs = signs_of(columns)
    turned = columns * signs
    largest = turned[np.abs(turned).argmax(axis=0), np.arange(5)]
    assert (largest[:4] > 0).all() and signs[4] == 1.0 and set(signs) == {-1.0, 1.0}
    np.testing.assert_array_equal(signs_of(columns[::-1]), signs)
    np.testing.assert_array_equal(signs_of(-columns[:, :4]), -signs[:4])
    assert isinstance(signs, np.ndarray) and signs.dtype == np.float64
    np.testing.assert_array_equal(jax.jit(signs_of)(jnp.asarray(columns)), signs)
