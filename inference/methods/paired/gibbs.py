"""Gibbs sampling for `zoo.Paired`: Polya-Gamma Gibbs of the low-rank program, GiBECCA of the full one.

``specific="low_rank"``: `inference.methods.projections.gibbs`, for Gaussian, Bernoulli and binomial cells and
mixed tables of them, every beta below 1. ``specific="full_covariance"``:
`inference.methods.paired.full_covariance_gibbs`, for every family without cut points.
"""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from inference.algorithm import Algorithm
from inference.methods.paired.full_covariance_gibbs import sweep_once
from inference.methods.projections import gibbs as projections
from inference.methods.projections.gibbs import GibbsInfo, GibbsState
from zoo.checks import check_flag
from zoo.paired import Paired

__all__ = ["ALGORITHM", "METHOD", "algorithm_of", "check"]


def _step(
    key: Array, state: GibbsState, model: Paired, *data: Array, moves: bool
) -> tuple[GibbsState, GibbsInfo]:
    """One sweep of the program's own sampler."""
    if model.specific == "low_rank":
        return projections.algorithm_of(moves).step(key, state, model, *data)
    values, objective = sweep_once(key, state.values, model, *data, moves=moves)
    return GibbsState(values, jnp.ones(())), GibbsInfo(objective)


@cache
def algorithm_of(moves: bool = True) -> Algorithm:
    """The sampler with or without moves."""
    return Algorithm(projections.init, partial(_step, moves=moves))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, moves: bool) -> Algorithm:
    """The sampler; it does not adapt."""
    return algorithm_of(moves)


def check(model: Paired, *, moves: Any) -> None:
    """Raise ValueError if the program has no such sampler, TypeError if ``moves`` is not a boolean."""
    if model.specific == "low_rank":
        return projections.check(model, moves=moves)
    check_flag("moves", moves)
    for family in model.families:
        if family.num_cut_points:
            raise ValueError(
                f"gibbs has no draw of the cut points of {type(family).__name__} cells; use nuts"
            )
    return None


METHOD = replace(projections.METHOD, build=build, check=check)
