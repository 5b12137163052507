"""The memory of a run: refused before it starts where sizes tell, one MemoryError where they do not.

Sizes are those of shapes alone: the states of all restarts or chains, what a chunk of steps records, and the
draws that a fit keeps. That is less than a run takes, so that nothing is refused that could have run.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from inference.algorithm import Direct, FitRequest, model_name
from inference.driver.host import CHUNK_CAPACITY
from zoo.checks import machine_memory, memory_in_words

__all__ = ["check_memory", "check_sizes", "one_memory_error"]

SHARE = 0.1  # of the memory, for which generous sizes ask before any shapes are computed


def check_memory(
    request: FitRequest, *, starts: int, num_draws: int, sizes: Callable[[], Mapping[str, Any]]
) -> None:
    """Raise ValueError if a run cannot fit into the memory of this machine.

    Args:
        request: the call.
        starts: restarts or chains that run side by side.
        num_draws: draws that the fit ends with, of all chains; 0: a point estimate.
        sizes: ``sizes()``, what is held (in words) to a pytree of its shapes; asked for large runs only.

    Raises:
        ValueError: the states or the draws are larger than the memory.
    """
    if _generous(request, starts, num_draws) >= SHARE * machine_memory():
        check_sizes(request, sizes())


def check_sizes(request: FitRequest, sizes: Mapping[str, Any]) -> None:
    """Raise ValueError if what a run holds is larger than the memory of this machine.

    Args:
        request: the call.
        sizes: what is held (in words) to a pytree of its shapes.

    Raises:
        ValueError: it is larger.
    """
    memory = machine_memory()
    needs = {what: _num_bytes(shapes) for what, shapes in sizes.items()}
    if sum(needs.values()) <= memory:
        return
    most = max(needs, key=lambda what: needs[what])
    raise ValueError(
        f"this run needs at least {memory_in_words(sum(needs.values()))} of memory, most of it for {most} "
        f"({memory_in_words(needs[most])}), and there are {memory_in_words(memory)}: {_remedy(request)}"
    )


@contextmanager
def one_memory_error(request: FitRequest) -> Iterator[None]:
    """Turn whatever NumPy or XLA raises when memory runs out into one MemoryError of one line.

    Raises:
        MemoryError: memory ran out.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        words = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in words:
            raise
        asked = f" ({words[:150]})" if words else ""
        raise MemoryError(
            f"{model_name(request.model)} by {request.name} ran out of memory{asked}: {_remedy(request)}"
        ) from None


def _generous(request: FitRequest, starts: int, num_draws: int) -> float:
    """More bytes than states and draws of any model of the zoo take at these sizes."""
    num_rows = request.data[0].shape[0]
    num_columns = sum(math.prod(part.shape[1:]) for part in request.data)
    width = request.model.row_width
    of_rows = num_rows * (width + num_columns)
    of_parameters = (width + 1) * num_columns * (num_columns + width + 1)
    recorded = CHUNK_CAPACITY + 8  # of a chunk, and the progress
    return 8.0 * ((starts + num_draws) * (of_rows + of_parameters) + starts * recorded)


def _num_bytes(shapes: Any) -> float:
    leaves = jax.tree.leaves(shapes)
    return float(sum(math.prod(leaf.shape) * _width(leaf.dtype) for leaf in leaves))


def _width(dtype: Any) -> int:
    return 8 if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) else dtype.itemsize


def _remedy(request: FitRequest) -> str:
    """What makes this run smaller."""
    settings = request.settings
    if isinstance(request.method, Direct):
        return "fit fewer rows or columns"
    if hasattr(settings, "num_chains"):
        words = ["take fewer draws (num_samples, with a larger thinning)"]
        words += ["fewer num_chains"] if settings.num_chains > 1 else []
    else:
        words = ["take a smaller num_samples"]
        words += ["a smaller num_restarts"] if settings.num_restarts > 1 else []
        if "batches" in request.method.takes and request.batch_size is None:
            words += ["rows in batches (batch_size)"]
    words += ["fewer rows or components"]
    words += ["dtype='float32'"] if request.dtype == "float64" else []
    return f"{', '.join(words[:-1])}, or {words[-1]}"
