"""Runs pytest again and again, each time in a child of a process that has the libraries imported.

Importing the libraries takes longer than most tests that notice a mistake. None of the project's own modules
is imported here, so each child reads them anew, with the mistake that is planted then. Each line of the
standard input asks for one run; one line answers with the child's number, a second when it has ended.
"""

import importlib
import json
import os
import resource
import sys
import warnings
from pathlib import Path

LIBRARIES = (
    "arviz",
    "h5netcdf",
    "jax",
    "jax.experimental.multihost_utils",
    "jax.experimental.sparse",
    "jax.scipy.special",
    "jax.scipy.stats",
    "numpyro",
    "numpyro.distributions",
    "numpyro.infer",
    "pandas",
    "pytest",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.sparse.linalg",
    "scipy.special",
    "scipy.stats",
    "sklearn.base",
    "sklearn.utils.estimator_checks",
    "xarray",
)
HARMLESS = {"jemalloc_bg_thd"}  # pyarrow's allocator, which tidies up


def main() -> None:
    """Answer until the standard input ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    own = [name for name in sys.modules if name.partition(".")[0] in {"zoo", "inference", "conftest"}]
    if own:
        raise RuntimeError(f"the libraries import {own}, which no child would read anew")
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    if others := {(task / "comm").read_text().strip() for task in tasks} - HARMLESS:
        raise RuntimeError(
            f"importing the libraries has started threads, which no child would have: {others}"
        )
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(asked)
        print(json.dumps({"pid": pid}), flush=True)
        _, status, used = os.wait4(pid, 0)
        seconds = used.ru_utime + used.ru_stime
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "seconds": seconds}), flush=True)


def _run(asked: dict) -> None:
    """Be the child: a pytest, in a session of its own so that it can be ended with what it starts."""
    status = 3  # what pytest itself says of an internal error
    try:
        os.setsid()
        limit = asked["seconds"]
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(asked["output"], os.O_WRONLY | os.O_TRUNC)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        import pytest

        sys.argv = ["pytest", *asked["arguments"]]
        status = int(pytest.main(asked["arguments"]))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
