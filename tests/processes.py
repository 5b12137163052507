"""Processes that a test starts: time enough on a busy machine, and nothing left behind."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LIMIT", "started"]

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
