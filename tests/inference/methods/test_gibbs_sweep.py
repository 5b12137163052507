"""A sweep gives every block and every site a key of its own."""

import jax
import numpy as np
import numpyro.distributions as dist

from inference.methods.gibbs_sweep import Move, sweep

NORMAL = dist.Normal(0.0, 1.0)


def two_sites(values, model):
    return {"a": NORMAL, "b": NORMAL}


def another_site(values, model):
    return {"c": NORMAL}


MOVE = Move(lambda key, values, model: values | {"d": jax.random.normal(key)})
SECOND_MOVE = Move(lambda key, values, model: values | {"e": jax.random.normal(key)})
BLOCKS = two_sites, another_site, MOVE, SECOND_MOVE


def test_blocks_and_sites_have_different_keys():
    """One key for all would leave every marginal as it is, so that no test of a sampler sees it soon."""
    start = dict.fromkeys("abcde", np.zeros(()))
    drawn = sweep(jax.random.key(0), start, BLOCKS, None)
    numbers = [float(drawn[name]) for name in "abcde"]
    assert len(set(numbers)) == 5 and 0.0 not in numbers
    again = sweep(jax.random.key(0), start, BLOCKS, None)
    assert [float(again[name]) for name in "abcde"] == numbers
    other = sweep(jax.random.key(1), start, BLOCKS, None)
    assert not set(numbers) & {float(other[name]) for name in "abcde"}
