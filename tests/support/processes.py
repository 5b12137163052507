"""Processes that a test starts: time enough on a busy machine, and nothing left behind."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["LIMIT", "sharing", "started"]

LIMIT = 1800  # seconds of wall time: a process that takes ten alone may take minutes beside others


@contextmanager
def started(command: list, **options: Any) -> Iterator[subprocess.Popen]:
    """A process with pipes; when the block ends, however it ends, it has ended too and its pipes are closed.

    A pipe left open is a ResourceWarning in whichever test runs next.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **(pipes | options)) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def sharing(count: int, command: list, **options: Any) -> Iterator[list[subprocess.Popen]]:
    """So many processes of one command that share a fit, each with pipes and the variables set by hand."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    own = options.pop("env", os.environ) | {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(count),
    }
    with ExitStack() as stack:
        numbers = ({"JAX_PROCESS_ID": str(number)} for number in range(count))
        yield [stack.enter_context(started(command, env=own | number, **options)) for number in numbers]
