"""Variational Bayes of mixtures as a method of `fit`: updates, moves, starts and conclusions put together."""

from functools import cache, partial
from typing import Any

from jax import Array

from inference.algorithm import Algorithm, Ascent, Memoised
from inference.methods.mixture.starts import STARTS
from inference.methods.mixture.vb_hyperparameters import check_learn
from inference.methods.mixture.vb_moves import MOVES, improve
from inference.methods.mixture.vb_posterior import (
    MixtureVBState,
    begin,
    conclude,
    guide,
    log_density,
    start,
    transform,
)
from inference.methods.mixture.vb_updates import (
    RowSums,
    best_order,
    step,
    update_globals,
    update_responsibilities,
)
from zoo.checks import check_flag
from zoo.mixture import Mixture

__all__ = ["METHOD", "build", "check", "memoised"]


@cache
def build(strategy: str, sort_sticks: bool, moves: tuple[str, ...], learn: tuple[str, ...]) -> Algorithm:
    """The algorithm with a start strategy."""
    options = {"sort_sticks": sort_sticks, "learn": learn}
    return Algorithm(
        partial(begin, STARTS[strategy], learn),
        partial(step, **options),
        partial(improve, moves=moves, **options) if moves or learn else None,
    )


@cache
def memoised(sort_sticks: bool, moves: tuple[str, ...], learn: tuple[str, ...]) -> Memoised:
    """The step taken apart, for rows that pass in batches.

    Raises:
        ValueError: hyperparameters are to be learnt, which needs all rows at once.
    """
    if learn:
        raise ValueError(
            "learn does not go with batch_size: give the hyperparameters, or learn them on fewer rows"
        )
    return Memoised(
        update_responsibilities,
        update_globals,
        partial(_order_of_sums, sort_sticks),
        lambda sums, order: sums._replace(statistics=sums.statistics[order]),
    )


def _order_of_sums(sort_sticks: bool, state: MixtureVBState, sums: RowSums, model: Mixture) -> Array | None:
    return best_order(state, sums.statistics, model) if sort_sticks else None


def check(model: Mixture, *, sort_sticks: Any, moves: Any, learn: Any, num_devices: int) -> None:
    """Raise TypeError or ValueError if an option does not suit the model."""
    check_flag("sort_sticks", sort_sticks)
    if not isinstance(moves, tuple) or not set(moves) <= set(MOVES):
        raise ValueError(f"moves must be a tuple of some of {', '.join(MOVES)}; got {moves!r}")
    if moves and model.num_components < 2:
        raise ValueError("moves need a mixture of at least two components")
    check_learn(model, learn)


METHOD = Ascent(
    options={"sort_sticks": True, "moves": (), "learn": (), "num_devices": None},
    strategies=tuple(STARTS),
    takes=frozenset({"weights", "batches", "devices"}),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=transform,
    log_density=log_density,
    check=check,
    in_batches=memoised,
)
