"""Runs killed with SIGKILL at random moments, resumed, and compared bit for bit with runs that went through.

``python -m tests.benchmarks.kills`` kills every case seven times and writes ``tests/reference/kills.json``.
In the runs that are killed every chunk is a step or two and is saved, after a random pause, so that a kill
falls into a step, a pause or a save; the runs that they are compared with have chunks and saves as a user has
them.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.support.processes import LIMIT, started

__all__ = ["CASES", "KILLS", "killed_and_compared"]

ROOT = Path(__file__).parents[2]
KILLS = 7  # of each case
LATEST = 1.5  # seconds after the first save at which a process is killed
COMMAND = "python -m tests.benchmarks.kills"
_ASCENT = {"max_iterations": 500, "tolerance": 0.0, "num_samples": 10}
_CHAINS = {"num_warmup": 150, "num_samples": 350, "num_chains": 2}


def _rows():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + [3.0, 1.0]])


def _counts():
    return np.random.default_rng(1).poisson(0.8, size=(60, 12)) + 1


def _sticks(zoo, dist):
    return zoo.Mixture(num_components=4, weight_prior="stick_breaking", concentration=dist.Gamma(2.0, 1.0))


#: Name: the model of the modules `zoo` and `numpyro.distributions`, the data, and the rest of the call.
CASES = {
    "vb": (_sticks, _rows, _ASCENT | {"method": "vb", "num_restarts": 2}),
    "em": (
        lambda zoo, dist: zoo.Mixture(num_components=3),
        _rows,
        _ASCENT | {"method": "em", "num_restarts": 2},
    ),
    "gibbs": (_sticks, _rows, _CHAINS | {"method": "gibbs", "thinning": 2}),
    "collapsed_gibbs": (_sticks, _rows, _CHAINS | {"method": "collapsed_gibbs"}),
    "nuts": (
        lambda zoo, dist: zoo.PPCA(num_latents=1),
        _rows,
        _CHAINS | {"method": "nuts", "max_tree_depth": 3},
    ),
    "svi": (lambda zoo, dist: zoo.PPCA(num_latents=1), _rows, _ASCENT | {"method": "svi"}),
    "vb in batches": (_sticks, _rows, _ASCENT | {"method": "vb", "batch_size": 20, "max_iterations": 120}),
    "lda in batches": (
        lambda zoo, dist: zoo.LDA(num_topics=3),
        _counts,
        _ASCENT | {"method": "vb", "batch_size": 12, "max_iterations": 100},
    ),
    "two devices": (_sticks, _rows, _ASCENT | {"method": "vb", "num_restarts": 2, "num_devices": 2}),
}


# In the processes


def _fitted(case, checkpoint):
    """All numbers of the fit of a case."""
    import numpyro.distributions as dist

    import inference
    import zoo

    make, data, call = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # none of these runs is meant to converge
        tree = inference.fit(make(zoo, dist), data(), seed=5, checkpoint=checkpoint, **call)
    groups = ("posterior", "variational", "sample_stats", "trace")
    return {
        f"{group}/{name}": value.to_numpy()
        for group in groups
        if group in tree.children
        for name, value in tree[group].data_vars.items()
    }


def _step_by_step(seed):
    """Make the driver run and save a step or two at a time, with random pauses."""
    from inference.driver import checkpoint, host

    def one_step(self):
        self.length = 1

    pause, save = np.random.default_rng(seed), checkpoint.Checkpoint.save

    def paused(*args):
        time.sleep(pause.uniform(0, 0.03))
        save(*args)

    checkpoint.SECONDS_BETWEEN_SAVES, host.CHUNK_SECONDS = 0.0, 1e-9
    checkpoint.Checkpoint.save, host.ChunkLength.__init__ = paused, one_step


def _differences(case, checkpoint):
    """The names of the numbers in which the resumed run differs from one that went through."""
    resumed, whole = _fitted(case, checkpoint), _fitted(case, None)
    names = resumed.keys() | whole.keys()
    return [
        name
        for name in sorted(names)
        if name not in resumed or name not in whole or resumed[name].tobytes() != whole[name].tobytes()
    ]


# The process that kills


def killed_and_compared(case, kills, folder, seed=0):
    """Kill a run so often, resume it to its end, and compare.

    Args:
        case: one of `CASES`.
        kills: how often.
        folder: an empty one.
        seed: of the moments.

    Returns:
        The names of the numbers that differ, the files that are left beside the checkpoint, how many kills
        left half a file, and how many steps were saved before each kill.
    """
    checkpoint, moments = Path(folder, "run.ckpt"), np.random.default_rng([seed, *case.encode()])
    halves, progress = 0, []
    for number in range(kills):
        before = _time_of(checkpoint)
        with _start(case, checkpoint, "--pauses", str(number)) as process:
            _wait_for_save(process, checkpoint, before)
            time.sleep(moments.uniform(0, LATEST))
            if process.poll() is not None:
                raise RuntimeError(f"{case} ended before it could be killed: {process.communicate()[1]}")
            process.kill()
            process.communicate()
        halves += sum(path.suffix == ".tmp" for path in checkpoint.parent.iterdir())
        progress.append(_steps(checkpoint))
    with _start(case, checkpoint) as process:
        output, errors = process.communicate(timeout=LIMIT)
    if process.returncode:
        raise RuntimeError(f"{case}: {errors}")
    left = sorted(path.name for path in checkpoint.parent.iterdir() if path != checkpoint)
    return output.split(), left, halves, progress


def _start(case, checkpoint, *words):
    flags = os.environ.get("XLA_FLAGS", "")
    if case == "two devices":
        flags = f"{flags} --xla_force_host_platform_device_count=2".strip()
    kept = {  # programs are compiled once a case, not at each start
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), "zoo-kills-programs"))
        ),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    environment = os.environ | kept | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.kills",
        "--case",
        case,
        "--checkpoint",
        checkpoint,
        *words,
    ]
    return started(command, env=environment, cwd=ROOT)


def _time_of(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def _wait_for_save(process, path, before):
    deadline = time.monotonic() + LIMIT
    while _time_of(path) == before:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"no save: {process.communicate()[1] if process.poll() is not None else 'late'}"
            )
        time.sleep(0.005)


def _steps(path):
    with np.load(path) as file:
        passed = file["done"] if "done" in file.files else file["progress_iteration"].max()
        return int(passed)


def main():
    """Kill every case and write the record; with ``--case``, be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--pauses", type=int)
    options = parser.parse_args()
    if options.pauses is not None:
        _step_by_step(options.pauses)
        _fitted(options.case, options.checkpoint)
    elif options.case is not None:
        print(*_differences(options.case, options.checkpoint))
    else:
        _record()


def _result(case):
    """The figures of a case, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        differ, left, halves, progress = killed_and_compared(case, KILLS, folder)
    result = {
        "kills": KILLS,
        "numbers_that_differ": len(differ),
        "files_left": len(left),
        "kills_that_left_half_a_file": halves,
        "steps_saved_before_each_kill": progress,
    }
    print(case, result, differ, left, flush=True)
    return result


def _record():
    from tests.tools.recording import write_record

    with ThreadPoolExecutor(len(CASES)) as pool:  # the processes wait and start most of the time
        results = dict(zip(CASES, pool.map(_result, CASES), strict=True))
    total = {
        "kills": KILLS * len(CASES),
        "identical_results": sum(not result["numbers_that_differ"] for result in results.values()),
        "cases": len(CASES),
        "files_left": sum(result["files_left"] for result in results.values()),
    }
    write_record("kills", COMMAND, total=total, results=results)


if __name__ == "__main__":
    main()
