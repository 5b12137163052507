"""The memory of a run: refused before it starts where sizes tell, one MemoryError where they do not.

Sizes are those of shapes alone: the states of all restarts or chains, what a chunk of steps records, and the
draws that a fit keeps. That is less than a run takes, so that nothing is refused that could have run.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers

from inference.algorithm import Direct, FitRequest, model_name
from inference.driver.host import CHUNK_CAPACITY
from inference.numerics.host_draws import affordable
from inference.numerics.weighted_rows import row_width, unweighted
from inference.results.groups import ROW_DIMS
from zoo.checks import listed, machine_memory, memory_in_words
from zoo.model import Model

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


FEWEST_COLUMNS = 16  # of a table whose draws may be large


def affordable_draws(request: FitRequest, *data: Any) -> int:
    """The number of draws from q that a fit ends with: fewer than asked for where they would be large.

    Counted are square matrices, such as full covariances, each of which takes operations of order columns
    cubed, and where there are none all parameters. Draws are independent, so that fewer are as good, and
    ``keep`` makes all of them. Warns if there are fewer.

    Args:
        request: the call.
        *data: rows that the program takes; only their widths matter.
    """
    num_samples, model, data = request.settings.num_samples, request.model, tuple(map(unweighted, data))
    if request.method.guide is None or max(part.shape[-1] for part in data) < FEWEST_COLUMNS:
        return num_samples
    dims = {name: set(own) for name, own in model.variable_dims.items()}
    shapes = _value_shapes(model, data)
    every = {name: own for name, own in shapes.items() if name in dims and not ROW_DIMS & dims[name]}
    matrices = {name: own for name, own in every.items() if any(dim.endswith("_2") for dim in dims[name])}
    counted = matrices or every
    if not counted or set(counted) & set(request.keep):
        return num_samples
    largest = sorted(counted, key=lambda name: -math.prod(counted[name]))
    named = listed(largest[:2] + ["others"] * (len(largest) > 2))
    remedy = f", or for all of them by keep={(largest[0],)}"
    return affordable(num_samples, sum(map(math.prod, counted.values())), named, remedy)


def _value_shapes(model: Model, data: tuple) -> dict[str, tuple[int, ...]]:
    """The shapes of the program's latent and deterministic sites; none where it has no program to run."""
    found: dict[str, tuple[int, ...]] = {}

    def run() -> None:
        sites = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(*data)
        for name, site in sites.items():
            if site["type"] in ("sample", "deterministic") and not site.get("is_observed", False):
                found[name] = jnp.shape(site["value"])

    with suppress(NotImplementedError):  # an improper prior: its program has no draws to be traced
        jax.eval_shape(run)
    return found


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
    width = row_width(request.model)
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
        words += ["a smaller num_restarts"] if settings.num_starts > 1 else []
        if "batches" in request.method.takes and request.batch_size is None:
            words += ["rows in batches (batch_size)"]
    words += ["fewer rows or components"]
    words += ["dtype='float32'"] if request.dtype == "float64" else []
    return f"{', '.join(words[:-1])}, or {words[-1]}"
