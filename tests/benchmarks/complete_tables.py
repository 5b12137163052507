"""Mixtures of full-covariance Gaussians on a complete table, in this checkout and in another beside it.

Run ``python -m tests.benchmarks.complete_tables FOLDER`` with FOLDER a checkout of the commit to compare
with, such as ``git worktree add FOLDER d4579d2``. 20 000 rows of ten columns, 20 components; VB and EM from
one start, Gibbs with one chain. Processes of both checkouts take turns, and seconds are of the CPU: the
difference of a call of three times as many iterations and of one, the smallest of three processes, so that
neither compilation nor the conclusion of a fit counts; sweeps are without split-merge moves. A small share
of missing cells in this checkout is printed beside: what those cost that a complete table must not pay.
Written to tests/reference/benchmark_complete_tables.json.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tools.recording import write_record

CALLS = {
    "vb": ({"method": "vb", "num_restarts": 1, "tolerance": 0.0, "num_samples": 1}, "max_iterations", 20),
    "em": ({"method": "em", "num_restarts": 1, "tolerance": 0.0}, "max_iterations", 20),
    "gibbs": ({"method": "gibbs", "num_chains": 1, "num_samples": 1}, "num_warmup", 20),
}
MOVES_OFF = {"gibbs": {"split_merge": 0}}  # the other checkout's sweep has no split-merge moves
PROCESSES = 3
BAR = 1.1  # times the other checkout's


def milliseconds(calls: dict, missing: float) -> dict:
    """CPU milliseconds of an iteration or sweep by method; runs on its own, in either checkout."""
    import time
    import warnings

    import numpy as np

    import zoo
    from inference import fit

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    locs = rng.normal(size=(20, 10)) * 3
    x = locs[rng.integers(20, size=20_000)] + rng.normal(size=(20_000, 10))
    x[rng.random(len(x)) < missing, 0] = np.nan
    found = {}
    for name, (options, counted, count) in calls.items():

        def seconds(factor, options=options, counted=counted, count=count):
            began = time.process_time()
            fit(zoo.Mixture.from_data(x, num_components=20), x, **options, **{counted: factor * count})
            return time.process_time() - began

        seconds(1), seconds(3)
        short, long = (min(seconds(factor) for _ in range(3)) for factor in (1, 3))
        found[name] = 1e3 * (long - short) / (2 * count)
    return found


def without_moves() -> dict:
    """`CALLS` for a checkout whose sweep makes split-merge moves by default: the sweep without them."""
    return {name: (given | MOVES_OFF.get(name, {}), *rest) for name, (given, *rest) in CALLS.items()}


def in_checkout(checkout: Path, calls: dict, missing: float = 0.0) -> dict:
    """`milliseconds` in a process that imports the checkout's code, on one core."""
    source = f"import json\n{inspect.getsource(milliseconds)}"
    source += f"print(json.dumps(milliseconds({calls!r}, {missing!r})))"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "ZOO_COMPILE"))}
    kept |= {"PYTHONPATH": str(checkout), "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=checkout, env=kept, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{checkout}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Both checkouts in turn; ratios, bar and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the other checkout")
    other, here = parser.parse_args().folder.resolve(), Path(__file__).parents[2]
    runs = {"then": [], "now": []}
    for _ in range(PROCESSES):
        for side, checkout, calls in (("then", other, CALLS), ("now", here, without_moves())):
            runs[side].append(in_checkout(checkout, calls))
            print(side, {name: round(value, 2) for name, value in runs[side][-1].items()}, flush=True)
    best = {side: {name: min(run[name] for run in own) for name in CALLS} for side, own in runs.items()}
    ratios = {name: best["now"][name] / best["then"][name] for name in CALLS}
    incomplete = in_checkout(here, without_moves(), missing=0.05)
    given, *rest = CALLS["gibbs"]
    moves = in_checkout(here, {"gibbs": (given | {"split_merge": 4}, *rest)})
    print({name: f"{ratio:.2f} of the time (bar {BAR})" for name, ratio in ratios.items()})
    print("with missing cells", {name: round(value, 2) for name, value in incomplete.items()})
    print("with split-merge moves", {name: round(value, 2) for name, value in moves.items()})
    command = "python -m tests.benchmarks.complete_tables FOLDER"
    figures = {"bar": BAR, "ratios": ratios, "cpu_milliseconds": best, "with_missing_cells": incomplete}
    figures |= {"with_split_merge_moves": moves}
    write_record("benchmark_complete_tables", command, **figures)


if __name__ == "__main__":
    main()
