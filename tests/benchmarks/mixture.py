"""VB for the mixture against scikit-learn's BayesianGaussianMixture: time per iteration, in one run.

Run ``python -m tests.benchmarks.mixture`` in an environment with the extra ``bench``. It starts itself again
on one core and on two, so that both packages are pinned alike, prints a table and writes
tests/reference/benchmark_mixture.json.

Time per iteration is the difference of two runs of different length, divided by the difference in iterations;
runs of both packages alternate and the smallest time of each length counts. Compilation is in none of them;
the cold first call is printed beside. An iteration is the same work on both sides: responsibilities,
parameters, bound. Memory is that of a second call: the peak is reset after the first, which compiles.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.tools.recording import write_record

SIZES = {"large": (100_000, 10, 50, 8), "small": (272, 2, 20, 400)}  # rows, columns, components, iterations
BARS = {("large", 1): 10, ("large", 2): 15, ("small", 1): 4, ("small", 2): 4}
REPEATS = 4
ROOT = Path(__file__).parents[2]


def data(num_rows, num_features, num_components):
    import numpy as np

    rng = np.random.default_rng(0)
    locs = rng.normal(size=(num_components, num_features)) * 3
    return locs[rng.integers(num_components, size=num_rows)] + rng.normal(size=(num_rows, num_features))


def pin(cores):
    """Before NumPy or JAX are imported: both take their thread count from here."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(cores)


def peak_megabytes():
    """Peak resident memory since the start, or since the last reset."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


def compare(name):
    """Milliseconds per iteration of both, at one size, in this process."""
    import zoo
    from inference import fit

    num_rows, num_features, num_components, iterations = SIZES[name]
    x = data(num_rows, num_features, num_components)
    model = zoo.Mixture.from_data(x, num_components=num_components)

    def ours(count):
        start = time.perf_counter()
        fit(model, x, max_iterations=count, tolerance=0, num_samples=1, seed=0)
        return time.perf_counter() - start

    cold = ours(iterations)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is in use now
    before = peak_megabytes()
    ours(iterations)
    extra = peak_megabytes() - before
    times = {"ours": ([], []), "scikit-learn": ([], [])}
    for _ in range(REPEATS):
        for place, factor in enumerate((1, 3)):
            times["ours"][place].append(ours(factor * iterations))
            times["scikit-learn"][place].append(peer(x, num_components, factor * max(iterations // 4, 2)))
    per_iteration = {
        "ours": (min(times["ours"][1]) - min(times["ours"][0])) / (2 * iterations),
        "scikit-learn": (min(times["scikit-learn"][1]) - min(times["scikit-learn"][0]))
        / (2 * max(iterations // 4, 2)),
    }
    return {
        "ours_ms": 1e3 * per_iteration["ours"],
        "scikit_learn_ms": 1e3 * per_iteration["scikit-learn"],
        "ratio": per_iteration["scikit-learn"] / per_iteration["ours"],
        "cold_first_call_s": cold,
        "extra_memory_in_NK_floats": extra * 2**20 / (8 * num_rows * num_components)
        if name == "large"
        else None,
    }


def peer(x, num_components, count):
    """Seconds for exactly so many iterations."""
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import BayesianGaussianMixture

    class Started(BayesianGaussianMixture):
        """Starts from uniform random responsibilities, as ours does, and never stops early."""

        def _initialize_parameters(self, X, random_state, xp=None):
            r = np.random.default_rng(0).uniform(size=(len(X), self.n_components))
            self._initialize(X, r / r.sum(axis=1, keepdims=True))

    mixture = Started(
        n_components=num_components,
        weight_concentration_prior_type="dirichlet_distribution",
        max_iter=count,
        tol=0.0,
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(x)
    seconds = time.perf_counter() - start
    if mixture.n_iter_ != count:
        raise RuntimeError(f"scikit-learn stopped after {mixture.n_iter_} of {count} iterations")
    return seconds


def gibbs_milliseconds(name):
    """Per sweep of one chain."""
    import zoo
    from inference import fit

    num_rows, num_features, num_components, iterations = SIZES[name]
    x = data(num_rows, num_features, num_components)
    model = zoo.Mixture.from_data(x, num_components=num_components)
    warnings.simplefilter("ignore")  # so few sweeps cannot converge

    def run(count):
        start = time.perf_counter()
        fit(model, x, method="gibbs", num_chains=1, num_warmup=count, num_samples=1)
        return time.perf_counter() - start

    run(iterations)
    return (
        1e3
        * (min(run(3 * iterations) for _ in range(2)) - min(run(iterations) for _ in range(2)))
        / (2 * iterations)
    )


def command_line():
    """Seconds of the command line from a cold start, and the size of what it writes."""
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {
        "PYTHONPATH": str(ROOT)
    }
    figures = {}
    with tempfile.TemporaryDirectory() as folder:

        def run(*arguments):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "zoo", *arguments],
                check=True,
                capture_output=True,
                cwd=folder,
                env=environment,
            )
            return time.perf_counter() - start

        run("list")
        figures["zoo_list_s"] = min(run("list") for _ in range(3))
        for method in ("vb", "gibbs"):
            figures[f"zoo_fit_faithful_{method}_s"] = run(
                "fit", "mixture", "faithful", "--method", method, "--out", f"{method}.nc"
            )
            figures[f"faithful_{method}_megabytes"] = (Path(folder) / f"{method}.nc").stat().st_size / 1e6
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", nargs=2, metavar=("SIZE", "CORES"), help=argparse.SUPPRESS)
    inside = parser.parse_args().inside
    if inside:
        pin(int(inside[1]))
        print(json.dumps(compare(inside[0]) | {"gibbs_ms_per_sweep": gibbs_milliseconds(inside[0])}))
        return
    results, load = {}, os.getloadavg()[0]
    for size, cores in BARS:
        command = [sys.executable, "-m", "tests.benchmarks.mixture", "--inside", size, str(cores)]
        run = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        result = results[f"{size}, {cores} core(s)"] = json.loads(run.stdout.splitlines()[-1])
        verdict = "reached" if result["ratio"] >= BARS[size, cores] else "MISSED"
        print(
            f"{size:5} {cores} core(s): ours {result['ours_ms']:.3g} ms, "
            f"scikit-learn {result['scikit_learn_ms']:.3g} ms, "
            f"{result['ratio']:.1f} times as fast (at least {BARS[size, cores]}: {verdict}); cold first call "
            f"{result['cold_first_call_s']:.1f} s; Gibbs {result['gibbs_ms_per_sweep']:.3g} ms a sweep"
        )
    memory = results["large, 2 core(s)"]["extra_memory_in_NK_floats"]
    print(f"extra memory at the large size: {memory:.2f} N K floats (below 3 wanted)")
    cli = command_line()
    print(", ".join(f"{name} {value:.2f}" for name, value in cli.items()))
    record = {
        "load_average_before": load,
        "sizes_N_d_K": {name: size[:3] for name, size in SIZES.items()},
        "results": results,
        "command_line": cli,
    }
    write_record("benchmark_mixture", "python -m tests.benchmarks.mixture", "scikit-learn", **record)


if __name__ == "__main__":
    main()
