"""How much a program is optimised when it is compiled: little where it has little to do, or none at all.

XLA's optimisation takes up to three times as long as the rest of a compilation, and a call of `fit` on a
small table spends its time there. So a program that `compiled` makes is optimised for the work of the call,
which `for_work` tells: what runs through the data once less than what is repeated. Work is counted from sizes
and numbers of steps, never timed: the same call always runs the same program.

On 272 rows with 20 components a sweep of Gibbs takes 2.4 times as long at level 0 as at level 1, and its
program half the time to compile; level 1 runs as fast as XLA's default, in two thirds of its compilation.

A program that a call runs once or a few times is not compiled at all where NumPy does its work in less time
(`inference.numerics.interpreted`).
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from inference.numerics.interpreted import evaluate, worth_compiling

LEVELS = ((2**20, 0), (2**28, 1))  # up to so many cells passed over, XLA's level; above them its default
MOST_ONCE = 2**23  # cells passed over, each a few times, by a program that runs once: level 0 up to there
_work: ContextVar[tuple[float, float]] = ContextVar("work", default=(math.inf, math.inf))


def is_work_told() -> bool:
    """Whether programs are being compiled for a known amount of work."""
    return _work.get() != (math.inf, math.inf)


@contextmanager
def for_work(once: float, repeated: float) -> Iterator[None]:
    """A context in which programs are compiled for an amount of work.

    Args:
        once: cells that a program passes over which runs once.
        repeated: cells that all steps of a loop pass over.
    """
    token = _work.set((once, repeated))
    try:
        yield
    finally:
        _work.reset(token)


def compiled(function: Callable, *, repeats: bool = False, once: bool = False, **static: Any) -> Callable:
    """``jax.jit`` whose programs are optimised for the work that `for_work` tells.

    Args:
        function: to be compiled.
        repeats: whether it repeats a step.
        once: whether a call of the package runs it once or a few times: on little data NumPy does it.
        **static: ``static_argnums`` and ``static_argnames`` of `jax.jit`.

    Returns:
        The compiled function.
    """
    default = jax.jit(function, **static)
    by_level = {
        level: jax.jit(function, compiler_options={"xla_backend_optimization_level": level}, **static)
        for _, level in LEVELS
    }
    fixed = _fixed(function, **static)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = by_level.get(_level(repeats), default)
        if chosen is default and not once:
            return chosen(*args, **kwargs)
        leaves = jax.tree.leaves((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return default(*args, **kwargs)  # options belong to the outermost program
        if once and _is_of_host(leaves):
            traced = chosen.trace(*args, **kwargs)
            if not worth_compiling(traced.jaxpr):
                args = tuple(value for place, value in enumerate(args) if place not in fixed)
                kwargs = {name: value for name, value in kwargs.items() if name not in fixed}
                found = evaluate(traced.jaxpr, jax.tree.leaves((args, kwargs)))
                return jax.tree.unflatten(traced.out_tree, found)
        return chosen(*args, **kwargs)

    return call


def _fixed(
    function: Callable,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> set[int | str]:
    """Places and names of the static arguments."""
    names = list(inspect.signature(function).parameters)
    numbers = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)
    numbers |= {names.index(name) for name in np.atleast_1d(static_argnames)}
    return numbers | {names[number] for number in numbers}


def _is_of_host(leaves: list[Any]) -> bool:
    """Whether no argument lies on several devices, or on one with a memory of its own."""
    arrays = (leaf for leaf in leaves if isinstance(leaf, jax.Array))
    return jax.default_backend() == "cpu" and all(len(array.sharding.device_set) == 1 for array in arrays)


def _level(repeats: bool) -> int | None:
    """XLA's level of optimisation, or None for its default."""
    once, repeated = _work.get()
    if not repeats:
        return 0 if once <= MOST_ONCE else None
    return next((level for most, level in LEVELS if repeated <= most), None)
