"""Several processes that share one fit through `jax.distributed`: how they join, and what they exchange.

Every process runs the same script. Messages are bytes, so that what arrives is what was sent, bit for bit and
in any precision. They pass through the collectives of JAX, as the sums of a compiled step do: when a process
is gone its connections close, the next exchange of every other one fails, and these end too.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

EXCHANGED_BYTES = 2**28  # of rows of all processes together
VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
SCHEDULERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")  # how many processes each has started
LOST_STATUS = 75  # the exit status of a process that ended because another had: to be tried again
SHORT = 256  # bytes of a message that is sent with its length
FAILED = ("gloo", "connection closed", "connection reset", "nccl", "heartbeat", "coordination service")


class ProcessLost(ConnectionError):
    """Another of the processes that share a fit has ended."""


def join_processes() -> tuple[int, int]:
    """Join the processes that were started to share a fit; call it before anything is computed.

    What was started is read off the environment: the variables ``JAX_COORDINATOR_ADDRESS`` (host:port of
    process 0), ``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID``; else those of Slurm (``srun``) or Open MPI.
    Where there are none this is the only process, and nothing happens. A process that has joined and fails by
    an error that nothing catches ends at once, and so do the others, each with one line and status 75.

    Returns:
        The number of this process, from 0, and how many there are.

    Raises:
        ValueError: some of the variables are set and others are not, or they are no numbers that fit.
        RuntimeError: JAX has already computed something.

    Example:
        >>> import inference
        >>> inference.join_processes()  # no other process was started
        (0, 1)
    """
    if not jax.distributed.is_initialized():
        given = _from_environment()
        if given is None:
            return 0, 1
        if jax.config.jax_platforms in (None, "", "cpu"):
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.config.update("jax_enable_preemption_service", False)  # it would make processes deaf to SIGTERM
        jax.distributed.initialize(**given)
        sys.excepthook = _ending_at_once(sys.excepthook)
    return jax.process_index(), jax.process_count()


def _from_environment() -> dict[str, Any] | None:
    """The arguments of `jax.distributed.initialize`; None: this process is the only one."""
    found = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    if not found:
        return {} if any(_number(os.environ.get(name)) > 1 for name in SCHEDULERS) else None
    missing = [name for name in VARIABLES if name not in found]
    if missing:
        raise ValueError(f"{' and '.join(found)} are set in the environment without {' and '.join(missing)}")
    address, count, number = (found[name] for name in VARIABLES)
    if _number(count) < 1 or not 0 <= _number(number) < _number(count):
        raise ValueError(
            "JAX_NUM_PROCESSES must be a whole number of at least 1 and JAX_PROCESS_ID one from 0 to that "
            f"less 1; got {count!r} and {number!r}"
        )
    if int(count) == 1:
        return None
    host, _, port = address.rpartition(":")
    if not host or _number(port) < 1:
        raise ValueError(f"JAX_COORDINATOR_ADDRESS must be host:port of process 0; got {address!r}")
    return {"coordinator_address": address, "num_processes": int(count), "process_id": int(number)}


def _number(text: str | None) -> int:
    """A whole number, or -1."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else -1


def refuse_unjoined() -> None:
    """Raise ValueError for one of several processes that has not joined the others."""
    count = _number(os.environ.get("JAX_NUM_PROCESSES"))
    if count > 1 and jax.process_count() == 1:
        raise ValueError(
            f"this process was started as one of {count} (JAX_NUM_PROCESSES) and has not joined the others: "
            "call inference.join_processes() before anything is computed"
        )


def _ending_at_once(shown: Any) -> Any:
    """A hook for errors that nothing catches: no waiting, at exit, for processes that wait for this one."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, ProcessLost):
            shown(kind, error, trace)
        else:
            print(error, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        status = LOST_STATUS if issubclass(kind, ProcessLost) else 1
        os._exit(130 if issubclass(kind, KeyboardInterrupt) else status)

    return hook


@contextmanager
def among_processes() -> Iterator[None]:
    """A context that says in one line when an exchange failed because another process has ended.

    Raises:
        ProcessLost: in place of the error of an exchange.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        said = str(error).lower()
        if jax.process_count() == 1 or not any(word in said for word in FAILED):
            raise
        raise ProcessLost(
            f"process {jax.process_index()} of {jax.process_count()}: another process has ended; start all "
            "of them again, and a fit with a checkpoint goes on from there"
        ) from None


def gathered(**arrays: Any) -> list[dict[str, np.ndarray]]:
    """Arrays of every process, by process; they may differ in names and shapes."""
    if jax.process_count() == 1:
        return [{name: np.asarray(value) for name, value in arrays.items()}]
    file = io.BytesIO()
    np.savez(file, **arrays)
    return [_read(message) for message in _gathered_bytes(file.getvalue())]


def _read(message: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(message), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _gathered_bytes(message: bytes) -> list[bytes]:
    """The message of every process; short ones take one exchange, longer ones two."""
    head = np.zeros(SHORT, np.uint8)
    head[:8] = np.frombuffer(len(message).to_bytes(8, "little"), np.uint8)
    short = message[: SHORT - 8]
    head[8 : 8 + len(short)] = np.frombuffer(short, np.uint8)
    heads = np.asarray(multihost_utils.process_allgather(head))
    lengths = [int.from_bytes(own[:8].tobytes(), "little") for own in heads]
    if max(lengths) <= SHORT - 8:
        return [own[8 : 8 + n].tobytes() for own, n in zip(heads, lengths, strict=True)]
    whole = np.zeros(1 << (max(lengths) - 1).bit_length(), np.uint8)  # few sizes, so that few are compiled
    whole[: len(message)] = np.frombuffer(message, np.uint8)
    found = np.asarray(multihost_utils.process_allgather(whole))
    return [own[:n].tobytes() for own, n in zip(found, lengths, strict=True)]


def gathered_leaves(tree: Any, own: slice) -> Any:
    """Leaves with a leading axis over chains, of which each process has made some: all of them, in order."""
    leaves, structure = jax.tree.flatten(tree)
    plain = [np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in leaves]
    parts = gathered(**{f"leaf_{i}": leaf[own] for i, leaf in enumerate(plain)})
    whole = [np.concatenate([part[f"leaf_{i}"] for part in parts]) for i in range(len(plain))]
    keyed = [
        jax.random.wrap_key_data(jax.numpy.asarray(new), impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else new
        for leaf, new in zip(leaves, whole, strict=True)
    ]
    return jax.tree.unflatten(structure, keyed)


def _is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def share_of(count: int) -> slice:
    """The numbers below ``count`` that fall to this process; the first processes get one more."""
    each, more = divmod(count, jax.process_count())
    number = jax.process_index()
    begin = number * each + min(number, more)
    return slice(begin, begin + each + (number < more))


def place_of(count: int) -> slice:
    """Where the rows of this process, so many, stand among those of all processes, in order."""
    counts = [int(part["count"]) for part in gathered(count=count)]
    begin = sum(counts[: jax.process_index()])
    return slice(begin, begin + count)


def first_only() -> bool:
    """Whether this is the process that writes files."""
    return jax.process_index() == 0


def exchanged(x: np.ndarray) -> np.ndarray:
    """Rows of all processes, the same in each: all of them in order; of many, evenly spaced ones of each.

    Many are those of more than `EXCHANGED_BYTES`, which a process cannot be asked to hold.

    Raises:
        ValueError: they have other numbers of columns, in every process.
    """
    if jax.process_count() == 1:
        return x
    most = EXCHANGED_BYTES // (x.itemsize * max(x.shape[1], 1) * jax.process_count())
    mine = x if x.shape[0] <= most else x[np.linspace(0, x.shape[0] - 1, most).astype(int)]
    parts = [part["rows"] for part in gathered(rows=mine)]
    check_same_columns(parts)
    return np.concatenate(parts)


def check_same_columns(parts: list[np.ndarray]) -> None:
    """Raise ValueError unless the rows of all processes have as many columns.

    Args:
        parts: rows by process, each of shape (rows, columns).
    """
    for number, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"the processes call fit with different number of columns: {parts[0].shape[1]} in process 0, "
                f"{part.shape[1]} in process {number}"
            )


def agreed(number: int) -> int:
    """A number that every process takes as the first one has it (numbers that depend on the clock differ)."""
    return number if jax.process_count() == 1 else int(gathered(number=number)[0]["number"])


def over_processes(number: float) -> float:
    """The sum of a number over all processes."""
    if jax.process_count() == 1:
        return number
    return float(np.sum([part["number"] for part in gathered(number=float(number))]))


def any_process(flag: bool) -> bool:
    """Whether a flag is set in any process."""
    if jax.process_count() == 1:
        return flag
    return any(bool(part["flag"]) for part in gathered(flag=flag))
