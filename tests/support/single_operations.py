"""Operations that a test calls one by one are done by NumPy, which has them compiled already.

XLA takes 15 ms to compile an addition, and half of the processor time of the default run went there. Programs
with a loop or of many operations, the steps of all methods among them, are compiled as before. Everything is
compiled in slow tests, in modules marked ``all_compiled``, those of the evaluator among them, and with other
versions of JAX, whose place for this has no public name.
"""

from functools import lru_cache
from typing import Any

import jax
import pytest

from inference.numerics.interpreted import _parts, evaluate, worth_compiling

__all__ = ["done_by_numpy"]

VERSION = (0, 12)  # of JAX, in which `PLACE` is what runs a program that has no compiled form yet
PLACE = "_pjit_call_impl_python"
MOST = 40  # operations of a program that counts as a single one: a quantile has as many
LOOPS = frozenset(("while", "scan", "cond"))


def done_by_numpy(patch: pytest.MonkeyPatch) -> None:
    """Let NumPy do single operations until the patch is undone."""
    if jax.__version_info__[:2] != VERSION or jax.default_backend() != "cpu":
        return
    from jax._src import pjit  # private names, which other versions need not have
    from jax._src.interpreters.pxla import batched_device_put

    compiled, device = getattr(pjit, PLACE), jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)

    def run(*args: Any, jaxpr: Any, **params: Any) -> tuple:
        ours = _is_single(jaxpr) and not params["compiler_options_kvs"] and not jax.config.jax_debug_nans
        placed = (*params["in_shardings"], *params["out_shardings"])
        if not ours or any(own is not pjit.UNSPECIFIED for own in placed) or not _is_of(device, args):
            return compiled(*args, jaxpr=jaxpr, **params)
        found = evaluate(jaxpr, args)
        kept = [
            value
            if isinstance(value, jax.Array)  # keys
            else batched_device_put(aval, sharding, [value], [device], committed=False, enable_x64=True)
            for value, aval in zip(found, jaxpr.out_avals, strict=True)
        ]
        return kept, None, None, []

    patch.setattr(pjit, PLACE, run)


@lru_cache(maxsize=4096)
def _is_single(closed: Any) -> bool:
    return _operations(closed.jaxpr) <= MOST and not worth_compiling(closed)


def _operations(jaxpr: Any) -> int:
    if any(equation.primitive.name in LOOPS for equation in jaxpr.eqns):
        return MOST + 1
    return sum(1 + sum(map(_operations, _parts(equation))) for equation in jaxpr.eqns)


def _is_of(device: Any, args: tuple) -> bool:
    arrays = (value for value in args if isinstance(value, jax.Array))
    return all(array.sharding.device_set == {device} for array in arrays)
