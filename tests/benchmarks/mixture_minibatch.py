"""Rows in batches against all rows at once: how soon, how much memory, and a file too large to hold.

Run ``python -m tests.benchmarks.mixture_minibatch`` on a quiet machine (about half an hour); ``--cost``,
``--batches``, ``--file`` and ``--moves`` run one part. It writes tests/reference/mixture_minibatch.json.

``--batches``: both ways start from the same state, the one that uniform random responsibilities of 10 000
evenly spaced rows lead to. Full batch runs until it has converged. Batches begin, as `fit` does, by climbing
the bound of those rows, once with merge and birth moves and once without. Counted is the time, climbing
included, at which the passes come within 0.002 nats per row of the bound that full batch ends at; compilation
is in none of the times. Full batch has no moves there, so that it shows what moves gain as much as what
batches do.

``--moves``: the fair comparison, on 100 000 rows: three ways with merge and birth moves from the same start.
Batches, as above; full batch; and full batch from where the climb on 10 000 rows ended, which tells what of
the gain is due to that climb and what to the batches. Processor time until each converges, and until it comes
within 0.002 nats per row of the best bound that one of the three ends at, and of the one of full batch.
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

from tests.tools.recording import add_part_to_record, add_to_record

ROOT = Path(__file__).parents[2]
NUM_ROWS, NUM_FEATURES, NUM_COMPONENTS, BATCH_ROWS = 1_000_000, 10, 50, 10_000
FILE_ROWS, FILE_PASSES = 10_000_000, 5
STARTS = 5
NATS_PER_ROW, SHARE_OF_TIME, MEGABYTES = 0.002, 1 / 3, 1000
PASSES, STEPS = 60, 600  # at most
MOVES_ROWS, MOVES_STARTS = 100_000, 3
COMMAND = "python -m tests.benchmarks.mixture_minibatch"
PLAIN = {"sort_sticks": True, "moves": (), "learn": ()}
WITH_MOVES = PLAIN | {"moves": ("merge", "birth")}


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


class Timed:
    """Batches of rows that remember when each pass began, by the wall and by the processor."""

    def __init__(self, x):
        from inference.inputs.streams import RowStream

        class Stream(RowStream):
            began = None

            def __iter__(self):
                if self.began is not None:
                    self.began.append((time.perf_counter(), time.process_time()))
                return super().__iter__()

        self.stream = Stream(x, BATCH_ROWS)


class Steps:
    """In the place of a progress bar: after how many steps what processor time had been used."""

    def __init__(self):
        self.counts, self.seconds = [], []

    def __call__(self, total, done):
        return self

    def __enter__(self):
        self.began, self.done = time.process_time(), 0
        return self

    def __exit__(self, *error):
        pass

    def update(self, count):
        self.done += count
        self.counts.append(self.done)
        self.seconds.append(time.process_time() - self.began)

    def set_postfix_str(self, text, refresh=False):
        pass


class Ways:
    """The rows, and the ways to climb the bound from one start, inside `in_precision`.

    Args:
        x: the rows.
        seed: of the start.
    """

    def __init__(self, x, seed):
        import jax

        import zoo
        from inference.driver.checkpoint import Checkpoint
        from inference.fitting.in_memory import progress_line
        from inference.fitting.verdict import five_small_gains
        from inference.methods.mixture.vb import METHOD
        from zoo.model import in_current_precision

        model = zoo.Mixture.from_data(x, num_components=NUM_COMPONENTS)
        self.program, self.x = in_current_precision(model), x
        self.few = in_current_precision(x[:: len(x) // BATCH_ROWS])
        self.timed = Timed(x)
        init = METHOD.build("random", **PLAIN).init
        self.start = lambda key, variables, model, rows: init(key, model, rows)
        self.keys = jax.random.key(seed)[None]
        self.shared = {
            "keys": self.keys,
            "num_restarts": 1,
            "tolerance": 1e-6,
            "checkpoint": Checkpoint(None, {}),
            "rule": five_small_gains,
            "open_bar": progress_line(False),
        }

    def in_batches(self, passes, options):
        """Climb the bound of a few rows, then pass over batches."""
        from inference.driver.memoised import ascend_in_batches
        from inference.fitting.in_batches import warmed_up
        from inference.methods.mixture.vb import METHOD
        from inference.numerics.weighted_rows import Rows
        from zoo.model import in_current_precision

        return ascend_in_batches(
            METHOD.in_batches(**options),
            self.start,
            self.program,
            self.timed.stream,
            put=lambda batch: Rows(*in_current_precision((batch.x, batch.weight))),
            check=lambda batch: None,
            start_rows=self.few,
            warm_up=partial(warmed_up, METHOD.build("random", **options), self.program, self.few),
            max_iterations=passes,
            variables={},
            **self.shared,
        )

    def climbed(self, options):
        """The state at the top of the bound of a few rows, with the leading axis of restarts."""
        import jax

        from inference.fitting.in_batches import warmed_up
        from inference.methods.mixture.vb import METHOD

        begun = jax.vmap(lambda key: self.start(key, {}, self.program, self.few))(self.keys)
        return warmed_up(METHOD.build("random", **options), self.program, self.few, self.keys, begun)

    def all_at_once(self, steps, options, begun=None, **changes):
        """Full batch, from the start or from given states."""
        from inference.driver.ascent import ascend
        from inference.methods.mixture.vb import METHOD
        from zoo.model import in_current_precision

        algorithm = METHOD.build("random", **options)
        return ascend(
            algorithm.step,
            self.start if begun is None else lambda key, state, model, rows: state,
            self.program,
            (in_current_precision(self.x),),
            start_data=(self.few,),
            num_rows=len(self.x),
            max_iterations=steps,
            must_rise=True,
            improve=algorithm.improve,
            variables={} if begun is None else begun,
            **(self.shared | changes),
        )


def batches_against_all(seed):
    """Both ways from one start, in this process."""
    import numpy as np

    from inference.precision import in_precision

    with in_precision():
        ways = Ways(np.concatenate(list(mixture_of_gaussians(NUM_ROWS))), seed)
        ways.in_batches(2, PLAIN), ways.in_batches(2, WITH_MOVES), ways.all_at_once(2, PLAIN)  # compiles
        runs = {}
        for name, options in {"moves": WITH_MOVES, "plain": PLAIN}.items():
            ways.timed.stream.began = []
            with Memory() as memory:
                clock = time.perf_counter()
                run = ways.in_batches(PASSES, options)
            began = [wall for wall, _ in ways.timed.stream.began]
            ends = np.array([*began[1:], time.perf_counter()]) - clock
            runs[name] = (run.trace["objective"][0], ends, began[0] - clock, memory.extra_megabytes)
        clock = time.perf_counter()
        full = ways.all_at_once(STEPS, PLAIN)
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


def moves_against_moves(seed):
    """Batches, full batch, and full batch after the climb on a few rows, all with moves, from one start."""
    import numpy as np

    from inference.precision import in_precision

    with in_precision():
        ways = Ways(np.concatenate(list(mixture_of_gaussians(MOVES_ROWS))), seed)
        ways.in_batches(2, WITH_MOVES)  # compiles, as the next line does: each gain is small there
        ways.all_at_once(12, WITH_MOVES, tolerance=1e6), ways.climbed(WITH_MOVES)
        ways.timed.stream.began = []
        clock = time.process_time()
        run = ways.in_batches(PASSES, WITH_MOVES)
        ends = np.array([*[own for _, own in ways.timed.stream.began][1:], time.process_time()]) - clock
        climb = ways.timed.stream.began[0][1] - clock
        paths = {"batches": (run, run.trace["objective"][0], ends)}
        for name in ("full batch", "few rows first"):
            clock = time.process_time()
            begun = None if name == "full batch" else ways.climbed(WITH_MOVES)
            before, steps = time.process_time() - clock, Steps()
            run = ways.all_at_once(STEPS, WITH_MOVES, begun, open_bar=steps)
            objective = run.trace["objective"][0]
            chunk = np.searchsorted(steps.counts, np.arange(1, len(objective) + 1))
            paths[name] = (run, objective, before + np.array(steps.seconds)[chunk])
    best = max(objective[-1] for _, objective, _ in paths.values())
    full = paths["full batch"][1][-1]
    result = {"cpu_seconds_to_climb_a_few_rows": climb}
    for name, (run, objective, seconds) in paths.items():
        result[name] = {
            "steps": len(objective),
            "converged": run.converged,
            "nats_per_row": objective[-1] / MOVES_ROWS,
            "cpu_seconds": float(seconds[-1]),
        }
        for what, bound in (("the best of the three", best), ("full batch", full)):
            there = np.flatnonzero((bound - objective) / MOVES_ROWS <= NATS_PER_ROW)
            result[name][f"cpu_seconds_to_come_within, {what}"] = (
                float(seconds[there[0]]) if there.size else None
            )
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


def moves_summary(runs):
    """Means over starts, and processor time over that of full batch to what both come within."""
    ways = ("batches", "full batch", "few rows first")
    found = {}
    for way in ways:
        found[way] = {
            what: sum(run[way][what] for run in runs) / len(runs) for what in ("nats_per_row", "cpu_seconds")
        }
        within = "cpu_seconds_to_come_within, "
        there = [run[way][within + "the best of the three"] for run in runs]
        found[way]["starts_that_come_within, the best of the three"] = sum(own is not None for own in there)
        pairs = [(run[way][within + "full batch"], run["full batch"][within + "full batch"]) for run in runs]
        shares = [own / full for own, full in pairs if own is not None]
        found[way]["shares_of_full_batch's_time_to_its_bound"] = sorted(round(share, 3) for share in shares)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for part in ("--cost", "--batches", "--file", "--moves"):
        parser.add_argument(part, action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        part, _, seed = asked.inside.partition(":")
        one = {"file": from_a_file, "cost": cost}
        by_seed = {"batches": batches_against_all, "moves": moves_against_moves}
        print(json.dumps(one[part]() if part in one else by_seed[part](int(seed))))
        return

    def inside(part):
        command = [sys.executable, "-m", "tests.benchmarks.mixture_minibatch", "--inside", part]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment)
        result = json.loads(run.stdout.splitlines()[-1])
        print(part, json.dumps(result), flush=True)
        return result

    every = not (asked.cost or asked.batches or asked.file or asked.moves)
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
    if every or asked.moves:
        runs = [inside(f"moves:{seed}") for seed in range(MOVES_STARTS)]
        figures = {"rows": MOVES_ROWS, "starts": runs, "summary": moves_summary(runs)}
        print(figures["summary"])
        add_part_to_record("mixture_minibatch", "with_moves_both", f"{COMMAND} --moves", **figures)
    if not record:
        return
    record |= {
        "bars": {
            "nats_per_row": NATS_PER_ROW,
            "share_of_time": SHARE_OF_TIME,
            "extra_megabytes": MEGABYTES,
            "slope": [0.8, 1.1],
        },
    }
    add_to_record("mixture_minibatch", COMMAND, **record)


if __name__ == "__main__":
    main()
