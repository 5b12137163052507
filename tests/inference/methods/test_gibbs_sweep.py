"""A sweep gives every block and every site a key of its own."""

import jax
import numpy as np
import numpyro.distributions as dist

from inference.methods.gibbs_sweep import Move, conditionals_among, sweep

NORMAL = dist.Normal(0.0, 1.0)


def two_sites(values, model):
    return {"a": NORMAL, "b": NORMAL}


def another_site(values, model):
    return {"c": NORMAL}


MOVE = Move(lambda key, values, model: values | {"d": jax.random.normal(key)})


def test_blocks_and_sites_have_different_keys():
    """One key for all would leave every marginal as it is, so that no test of a sampler sees it soon."""
    start = dict.fromkeys("abcd", np.zeros(()))
    drawn = sweep(jax.random.key(0), start, (two_sites, another_site, MOVE), None)
    numbers = [float(drawn[name]) for name in "abcd"]
    assert len(set(numbers)) == 4 and 0.0 not in numbers
    again = sweep(jax.random.key(0), start, (two_sites, another_site, MOVE), None)
    assert [float(again[name]) for name in "abcd"] == numbers
    other = sweep(jax.random.key(1), start, (two_sites, another_site, MOVE), None)
    assert not set(numbers) & {float(other[name]) for name in "abcd"}
    assert conditionals_among((two_sites, MOVE)) == (two_sites,)
