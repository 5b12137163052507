"""Rows dealt out over devices, in one process or several.

The same compiled step runs: rows lie on a mesh of devices with automatic axes, everything else on all of
them, and each sum over rows ends in one exchange. Shares are filled up to equal length with rows of weight
zero.

Several processes (`inference.processes`) each hold some of the rows and call `fit` with them. Quantities of
all rows that a fit needs before it starts (scales, a start) are computed from rows that they exchange.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inference.numerics.weighted_rows import RowShards
from inference.processes import gathered
from zoo.checks import shown


def resolved_num_devices(num_devices: int | None) -> int:
    """The number of devices that a fit uses; None means one, or all of them over several processes.

    Raises:
        ValueError: there are not so many devices, or processes would be left out.
    """
    if num_devices is None:
        return 1 if jax.process_count() == 1 else jax.device_count()
    available = jax.device_count()
    if not 1 <= num_devices <= available:
        raise ValueError(
            f"num_devices must be between 1 and {available}, the devices that JAX has here; got "
            f"{num_devices}. On a CPU call numpyro.set_host_device_count({max(num_devices, 2)}) before "
            f"anything is computed"
        )
    if jax.process_count() > 1 and num_devices != available:
        raise ValueError(
            f"over {jax.process_count()} processes a fit uses every device: num_devices must be {available}; "
            f"got {shown(num_devices)}"
        )
    return num_devices


def deal_out(x: np.ndarray, weight: np.ndarray, num_devices: int) -> RowShards:
    """The rows in equal shares over the devices; each process deals out those that it holds."""
    local = num_devices // jax.process_count()
    share = -(-x.shape[0] // local)
    if jax.process_count() > 1:
        share = max(int(part["share"]) for part in gathered(share=share))
    padding = share * local - x.shape[0]
    x = np.concatenate([x, np.broadcast_to(x[:1], (padding, *x.shape[1:]))])  # real rows: finite everywhere
    weight = np.pad(weight, (0, padding))
    shares = (rows.reshape(local, share, *rows.shape[1:]) for rows in (x, weight))
    return RowShards(*(spread(rows, num_devices) for rows in shares))


def spread(shares: np.ndarray, num_devices: int) -> jax.Array:
    """An array whose leading axis is one share for each device of this process."""
    sharding = NamedSharding(_mesh(num_devices), PartitionSpec("shards"))
    return jax.make_array_from_process_local_data(sharding, shares)


def on_all_devices(tree: Any, num_devices: int) -> Any:
    """A copy of every leaf on every device; the leaves must be the same in each process."""
    everywhere = NamedSharding(_mesh(num_devices), PartitionSpec())

    def put(leaf: Any) -> jax.Array:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:  # they lie on all devices already
            return leaf if leaf.is_fully_replicated else jax.jit(_same, out_shardings=everywhere)(leaf)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(leaf)))
        return jax.make_array_from_process_local_data(everywhere, np.asarray(leaf))

    return jax.tree.map(put, tree)


def _same(leaf: jax.Array) -> jax.Array:
    return leaf


def on_one_device(tree: Any) -> Any:
    """Every leaf as an array of this process alone."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def of_first_process(answer: Callable[[], bytes | None]) -> bytes | None:
    """What the first of several processes answers, in each of them; the others are not asked.

    Args:
        answer: ``answer()``, some bytes or None.

    Raises:
        Exception: whatever the first process raised; in the others a ValueError of the same words.
    """
    if jax.process_count() == 1:
        return answer()
    content, failure = None, None
    if jax.process_index() == 0:
        try:
            content = answer()
        except Exception as error:
            failure = error
    kind = 0 if failure is not None else 1 if content is None else 2
    sent = str(failure).encode() if kind == 0 else content or b""
    share = multihost_utils.broadcast_one_to_all
    kind, size = map(int, share(np.array([kind, len(sent)])))
    words = np.frombuffer(sent, np.uint8) if jax.process_index() == 0 else np.zeros(size, np.uint8)
    received = np.asarray(share(words)).tobytes() if size else b""
    if kind == 0:
        raise failure if failure is not None else ValueError(received.decode())
    return None if kind == 1 else received


def _mesh(num_devices: int) -> Mesh:
    """A mesh of one automatic axis (`jax.make_mesh` has explicit ones, which the steps do not take)."""
    return Mesh(np.array(jax.devices()[:num_devices]), ("shards",))
