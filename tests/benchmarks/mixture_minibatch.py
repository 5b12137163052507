"""Rows in batches against all rows at once: how soon, how much memory, and a file too large to hold.

Run ``python -m tests.benchmarks.mixture_minibatch`` on a quiet machine (about half an hour); ``--cost``,
``--batches`` and ``--file`` run one part. It writes tests/reference/mixture_minibatch.json.

Both ways start from the same state, the one that uniform random responsibilities of 10 000 evenly spaced
rows lead to. Full batch runs until it has converged. Batches begin, as `fit` does, by climbing the bound of
those rows, once with merge and birth moves and once without. Counted is the time, climbing included, at which
the passes come within 0.002 nats per row of the bound that full batch ends at; compilation is in none of the
times.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from functools import partial
from pathlib import Path

from tests.recording import add_to_record

ROOT = Path(__file__).parents[2]
NUM_ROWS, NUM_FEATURES, NUM_COMPONENTS, BATCH_ROWS = 1_000_000, 10, 50, 10_000
FILE_ROWS, FILE_PASSES = 10_000_000, 5
STARTS = 5
NATS_PER_ROW, SHARE_OF_TIME, MEGABYTES = 0.002, 1 / 3, 1000
PASSES, STEPS = 60, 600  # at most


def mixture_of_gaussians(num_rows, seed=0):
    """Fifty Gaussians: means N(0, 9 I), covariances A A' / D with standard normal A, equal weights."""
    import numpy as np

    rng = np.random.default_rng(seed)
    locs = 3 * rng.normal(size=(NUM_COMPONENTS, NUM_FEATURES))
    factors = rng.normal(size=(NUM_COMPONENTS, NUM_FEATURES, NUM_FEATURES)) / NUM_FEATURES**0.5
    for begin in range(0, num_rows, 100_000):
        count = min(100_000, num_rows - begin)
        label = rng.integers(NUM_COMPONENTS, size=count)
        noise = np.einsum("nij,nj->ni", factors[label], rng.normal(size=(count, NUM_FEATURES)))
        yield locs[label] + noise


class Memory:
    """The peak of anonymous memory (what is mapped from a file is not counted) while it is watched."""

    counted = "RssAnon"

    def __enter__(self):
        self.before, self.peak, self._stop = self._now(), self._now(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, self._now())

    def _now(self):
        return int(re.search(rf"{self.counted}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])

    @property
    def extra_megabytes(self):
        return (self.peak - self.before) / 1024


def batches_against_all(seed):
    """Both ways from one start, in this process."""
    import jax
    import numpy as np

    import zoo
    from inference.driver.ascent import ascend
    from inference.driver.checkpoint import Checkpoint
    from inference.driver.memoised import ascend_in_batches
    from inference.fitting.in_batches import warmed_up
    from inference.fitting.in_memory import progress_line
    from inference.fitting.verdict import five_small_gains
    from inference.inputs.streams import RowStream
    from inference.methods.mixture.vb import METHOD
    from inference.numerics.weighted_rows import Rows
    from inference.precision import in_precision
    from zoo.model import in_current_precision

    x = np.concatenate(list(mixture_of_gaussians(NUM_ROWS)))
    model = zoo.Mixture.from_data(x, num_components=NUM_COMPONENTS)
    plain = {"sort_sticks": True, "moves": (), "learn": ()}
    with_moves = plain | {"moves": ("merge", "birth")}

    class Timed(RowStream):
        """Remembers when each pass began."""

        began = None

        def __iter__(self):
            if self.began is not None:
                self.began.append(time.perf_counter())
            return super().__iter__()

    with in_precision():
        program = in_current_precision(model)
        begin = in_current_precision(x[:: NUM_ROWS // BATCH_ROWS])
        init = METHOD.build("random", **plain).init
        shared = {
            "keys": jax.random.key(seed)[None],
            "variables": {},
            "num_restarts": 1,
            "tolerance": 1e-6,
            "checkpoint": Checkpoint(None, {}),
            "rule": five_small_gains,
            "open_bar": progress_line(False),
        }
        start = lambda key, variables, model, rows: init(key, model, rows)  # noqa: E731
        stream = Timed(x, BATCH_ROWS)

        def in_batches(passes, options):
            algorithm = METHOD.build("random", **options)
            return ascend_in_batches(
                METHOD.in_batches(**options),
                start,
                program,
                stream,
                put=lambda batch: Rows(*in_current_precision((batch.x, batch.weight))),
                check=lambda batch: None,
                start_rows=begin,
                warm_up=partial(warmed_up, algorithm, program, begin),
                max_iterations=passes,
                **shared,
            )

        def all_at_once(steps):
            return ascend(
                METHOD.build("random", **plain).step,
                start,
                program,
                (in_current_precision(x),),
                start_data=(begin,),
                num_rows=NUM_ROWS,
                max_iterations=steps,
                must_rise=True,
                **shared,
            )

        in_batches(2, plain), in_batches(2, with_moves), all_at_once(2)  # compiles
        runs = {}
        for name, options in {"moves": with_moves, "plain": plain}.items():
            stream.began = []
            with Memory() as memory:
                clock = time.perf_counter()
                run = in_batches(PASSES, options)
            ends = np.array([*stream.began[1:], time.perf_counter()]) - clock
            runs[name] = (run.trace["objective"][0], ends, stream.began[0] - clock, memory.extra_megabytes)
        clock = time.perf_counter()
        full = all_at_once(STEPS)
        seconds = time.perf_counter() - clock
    bound = full.trace["objective"][0][-1]
    result = {
        "full_batch_seconds": seconds,
        "full_batch_steps": full.num_iterations,
        "full_batch_converged": full.converged,
        "full_batch_nats_per_row": bound / NUM_ROWS,
    }
    for name, (passes, ends, climbing, megabytes) in runs.items():
        there = np.flatnonzero((bound - passes) / NUM_ROWS <= NATS_PER_ROW)
        result[name] = {
            "seconds_to_climb": climbing,
            "passes": len(passes),
            "seconds_per_pass": float(np.median(np.diff(ends))),
            "nats_per_row_after_each_pass": (passes / NUM_ROWS).round(5).tolist(),
            "seconds_to_come_within": float(ends[there[0]]) if there.size else None,
            "passes_to_come_within": int(there[0]) + 1 if there.size else None,
            "extra_megabytes": megabytes,
        }
    return result


def from_a_file():
    """A file of ten million rows, fitted through the public function."""
    import numpy as np

    import zoo
    from inference import fit

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float64, (FILE_ROWS, NUM_FEATURES))
        begin = 0
        for rows in mixture_of_gaussians(FILE_ROWS):
            file[begin : begin + len(rows)] = rows
            begin += len(rows)
        file.flush()
        del file
        mapped = np.load(path, mmap_mode="r")
        model = zoo.Mixture(num_components=NUM_COMPONENTS)
        warnings.simplefilter("ignore")  # so few passes do not converge
        with Memory() as memory:
            begin = time.perf_counter()
            tree = fit(
                model,
                mapped,
                batch_size=BATCH_ROWS,
                moves=("merge", "birth"),
                max_iterations=FILE_PASSES,
                tolerance=0,
                num_samples=10,
            )
            seconds = time.perf_counter() - begin
        objective = tree["trace"]["objective"].to_numpy()
        return {
            "rows": FILE_ROWS,
            "file_megabytes": path.stat().st_size / 1e6,
            "passes": FILE_PASSES,
            "seconds": seconds,
            "extra_megabytes": memory.extra_megabytes,
            "bound_nats_per_row": (objective / FILE_ROWS).tolist(),
            "left_out": tree.attrs["left_out"],
        }


def cost():
    """Milliseconds per iteration of full batch at 10^4 to 10^6 rows, and the slope of the logs."""
    import numpy as np

    import zoo
    from inference import fit

    warnings.simplefilter("ignore")
    milliseconds = {}
    x = np.concatenate(list(mixture_of_gaussians(NUM_ROWS)))
    for num_rows in (10_000, 31_623, 100_000, 316_228, 1_000_000):
        rows = x[:num_rows]
        model = zoo.Mixture.from_data(rows, num_components=NUM_COMPONENTS)
        steps = max(4, 400_000 // num_rows)

        def run(count, model=model, rows=rows):
            begin = time.perf_counter()
            fit(model, rows, max_iterations=count, tolerance=0, num_samples=1)
            return time.perf_counter() - begin

        run(steps)
        times = [[run(factor * steps) for _ in range(3)] for factor in (1, 3)]
        milliseconds[num_rows] = 1e3 * (min(times[1]) - min(times[0])) / (2 * steps)
    slope = np.polyfit(np.log(list(milliseconds)), np.log(list(milliseconds.values())), 1)[0]
    return {"milliseconds_per_iteration": milliseconds, "slope": float(slope)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("--cost", "--batches", "--file"):
        parser.add_argument(part, action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        part, _, seed = asked.inside.partition(":")
        one = {"file": from_a_file, "cost": cost}
        print(json.dumps(one[part]() if part in one else batches_against_all(int(seed))))
        return

    def inside(part):
        command = [sys.executable, "-m", "tests.benchmarks.mixture_minibatch", "--inside", part]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment)
        result = json.loads(run.stdout.splitlines()[-1])
        print(part, json.dumps(result), flush=True)
        return result

    every = not (asked.cost or asked.batches or asked.file)
    record = {}
    if every or asked.cost:
        record["cost"] = inside("cost")
    if every or asked.file:
        record["file"] = inside("file")
    if every or asked.batches:
        runs = [inside(f"batches:{seed}") for seed in range(STARTS)]
        record["batches"] = {"starts": runs}
        for name in ("moves", "plain"):
            seconds = [run[name]["seconds_to_come_within"] or float("inf") for run in runs]
            shares = sorted(s / run["full_batch_seconds"] for s, run in zip(seconds, runs, strict=True))
            record["batches"][f"share_of_time_{name}"] = [str(share) for share in shares]
            record["batches"][f"median_share_{name}"] = str(shares[STARTS // 2])
    record |= {
        "bars": {
            "nats_per_row": NATS_PER_ROW,
            "share_of_time": SHARE_OF_TIME,
            "extra_megabytes": MEGABYTES,
            "slope": [0.8, 1.1],
        },
    }
    add_to_record("mixture_minibatch", "python -m tests.benchmarks.mixture_minibatch", **record)


if __name__ == "__main__":
    main()
