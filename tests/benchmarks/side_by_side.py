"""What the benchmarks say in this checkout and in another of this project, beside each other.

Run ``python -m tests.benchmarks.side_by_side FOLDER [NAMES]`` with FOLDER a checkout of the commit to compare
with, such as ``git worktree add FOLDER d4579d2``; a name is a module of this package that both have (default:
`NAMES`). Each benchmark runs there and then here, in processes of their own, and writes its own record in its
own checkout: use a clone that you do not need. What it prints, the CPU seconds of its whole process and their
ratio are written to tests/reference/benchmark_side_by_side.json beside those of other names.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.tools.recording import add_to_record

NAMES = ("kernel_pca", "ppca", "epca_map", "sppca_sparse", "depcam", "mixture")
LAST_LINES = 20  # of what is printed


def spent_by_children():
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(checkout, name):
    """The last lines that the benchmark prints in a checkout, and its CPU seconds."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "ZOO_COMPILE"))}
    before = spent_by_children()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.benchmarks.{name}"],
        cwd=checkout,
        env=kept | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{name} in {checkout}:\n{done.stderr[-2000:]}")
    return {
        "printed": done.stdout.splitlines()[-LAST_LINES:],
        "cpu_seconds": round(spent_by_children() - before, 1),
    }


def main():
    """Each benchmark in both checkouts; recorded as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument("names", nargs="*", help=f"of benchmarks (default: {', '.join(NAMES)})")
    arguments = parser.parse_args()
    here = Path(__file__).parents[2]
    for name in arguments.names or NAMES:
        then, now = run(arguments.folder.resolve(), name), run(here, name)
        ratio = now["cpu_seconds"] / then["cpu_seconds"]
        print(f"{name}: {ratio:.2f} of the CPU seconds", flush=True)
        for side, found in (("then", then), ("now", now)):
            print(f"  {side}", *found["printed"], sep="\n    ", flush=True)
        found = {name: {"cpu_ratio": ratio, "then": then, "now": now}}
        command = "python -m tests.benchmarks.side_by_side"
        add_to_record("benchmark_side_by_side", command, "scikit-learn", **found)


if __name__ == "__main__":
    main()
