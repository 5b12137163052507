"""Keys derived on the host are JAX's, bit by bit."""

from functools import partial

import jax
import numpy as np
import pytest

from inference.numerics.host_keys import key_from_seed, numbered_keys, run_keys


def words(key):
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_keys_of_a_run_are_those_of_jax(seed):
    key = key_from_seed(seed)
    assert key == jax.random.key(np.uint32(seed))
    folded = jax.vmap(partial(jax.random.fold_in, key))(np.arange(70))
    np.testing.assert_array_equal(words(numbered_keys(key, 70)), words(folded))
    keys, conclude_key = run_keys(key, 5)
    assert conclude_key == jax.random.split(key)[1]
    for number in range(5):
        assert keys[number] == jax.random.fold_in(jax.random.split(key)[0], number)


def test_keys_of_other_generators_are_derived_by_jax():
    key = jax.random.key(3, impl="rbg")
    keys, conclude_key = run_keys(key, 2)
    assert keys.dtype == conclude_key.dtype == key.dtype
    run_key, expected = (jax.random.fold_in(key, number) for number in range(2))
    assert conclude_key == expected and keys[1] == jax.random.fold_in(run_key, 1)
    with jax.default_prng_impl("rbg"):
        assert key_from_seed(3) == key
