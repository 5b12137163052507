"""What is wrong with a call of `fit` is said before anything is compiled."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.algorithm import Method
from inference.driver import CHAIN_METHODS
from inference.model_fields import model_name
from zoo.argument_checks import check_choice
from zoo.model import Model
from zoo.sparse_counts import SparseCounts
from zoo.sparse_matrix import SparseMatrix

__all__ = [
    "check_options",
    "check_settings",
    "check_takes_batches",
    "check_takes_devices",
    "check_takes_sparse",
    "key_of",
]


def check_settings(method: Method, **settings: Any) -> dict[str, Any]:
    """The settings that matter to this kind of method, checked.

    Raises:
        ValueError: a setting outside its domain.
    """
    for name, at_least in (
        ("num_chains", 1),
        ("num_warmup", 0),
        ("num_samples", 1),
        ("thinning", 1),
        ("max_iterations", 1),
        ("num_restarts", 1),
    ):
        value = settings[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
            raise ValueError(f"{name} must be a whole number of at least {at_least}; got {value!r}")
    if not (isinstance(settings["tolerance"], int | float) and settings["tolerance"] >= 0):
        raise ValueError(
            f"tolerance must be a number of at least 0 (nats per row); got {settings['tolerance']!r}"
        )
    check_choice("chain_method", settings["chain_method"], CHAIN_METHODS)
    if method.kind == "direct":
        return {"num_restarts": 1}
    sampling = ("num_chains", "num_warmup", "num_samples", "thinning", "chain_method")
    ascent = ("num_samples", "max_iterations", "tolerance", "num_restarts")
    return {name: settings[name] for name in (sampling if method.kind == "sampling" else ascent)}


def check_options(method: Method, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the method, those that are not given at their defaults.

    Raises:
        TypeError: the method has no such option (the message lists those it has).
    """
    unknown = [option for option in options if option not in method.options]
    if unknown:
        has = ", ".join(method.options) or "no options of its own"
        raise TypeError(f"method {name!r} has no option {unknown[0]!r}; it has {has}")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    return dict(method.options) | given  # lists: as the options of a stored fit have them


def check_takes_sparse(method: Method, name: str, model: Model, data: tuple) -> None:
    """Raise ValueError if the data are sparse and the method takes dense rows."""
    if not method.takes_sparse and any(isinstance(part, SparseMatrix) for part in data):
        raise ValueError(f"method {name!r} of {model_name(model)} takes dense x; sparse x goes with 'em'")


def check_takes_batches(
    method: Method, name: str, model: Model, options: Mapping[str, Any], num_restarts: int
) -> None:
    """Raise ValueError if the method, or one of its options, needs all rows at once."""
    if method.memoised is None and method.stochastic is None:
        raise ValueError(f"method {name!r} of {model_name(model)} does not take batch_size")
    learnt = options.get("learn") or ()
    if not set(learnt) <= set(method.learnt_in_batches):
        but = f" but for {', '.join(method.learnt_in_batches)}" if method.learnt_in_batches else ""
        raise ValueError(
            f"learn does not go with batch_size{but}: give the hyperparameters, or learn them on fewer rows"
        )
    if method.stochastic is None:
        return
    if options.get("documents") == "continue":
        raise ValueError(
            "documents='continue' needs all documents at once: with batch_size they are restarted"
        )
    if num_restarts != 1:
        raise ValueError(
            f"batch_size goes with one start for {model_name(model)}; got num_restarts={num_restarts}"
        )


def check_takes_devices(
    method: Method,
    name: str,
    model: Model,
    data: tuple,
    *,
    num_devices: int,
    in_batches: bool,
    variables: bool,
    checkpoint: bool,
    options: Mapping[str, Any],
) -> None:
    """Raise ValueError if rows are to lie on several devices and something of the call needs them on one."""
    num_processes = jax.process_count()
    if num_processes > 1:
        if "num_devices" not in method.options:
            raise ValueError(
                f"method {name!r} of {model_name(model)} runs in one process; this one is one of "
                f"{num_processes}"
            )
        for given, argument, reason in (
            (in_batches, "batch_size", "the processes would have to pass over as many batches each"),
            (variables, "init with variables per row", "each process holds rows of its own"),
            (checkpoint, "checkpoint", "a run that several processes share cannot be resumed from a file"),
        ):
            if given:
                raise ValueError(
                    f"{argument} goes with one process, and this is one of {num_processes}: {reason}"
                )
    if method.shards_documents:
        if num_processes > 1:
            raise ValueError(
                f"documents lie in one process, on one device or several; this one is one of {num_processes}"
            )
        if num_devices > 1 and in_batches:
            raise ValueError(f"documents in batches lie on one device; got num_devices={num_devices}")
        if num_devices > 1 and options.get("family") == "mean_field":
            raise ValueError(
                f"family='mean_field' runs on one device, the structured one on several; got "
                f"num_devices={num_devices}"
            )
    elif num_devices > 1 and any(isinstance(part, SparseCounts) for part in data):
        raise ValueError(f"sparse counts lie on one device; got num_devices={num_devices}")


def key_of(seed: Any) -> jax.Array:
    """The JAX key of a seed.

    Raises:
        ValueError: neither a whole number in [0, 2**32) nor a key.
    """
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    if isinstance(seed, jax.Array) and seed.dtype == jnp.uint32 and seed.shape == (2,):
        return jax.random.wrap_key_data(seed)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number in [0, 2**32) or a JAX key; got {seed!r}")
    return jax.random.key(int(seed))
