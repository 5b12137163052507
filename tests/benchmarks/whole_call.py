"""Whole calls of `fit` on large tables beside scikit-learn's: compilation, start, conclusion and all.

Run ``python -m tests.benchmarks.whole_call`` in an environment with the extra ``bench``; everything runs on
one core, in processes of their own. The mixture is of 100 000 rows, ten columns and fifty Gaussian
components, fifty iterations from one start on both sides; ``cold`` is the first call of a process, ``warm``
the smallest of three later ones, ``iterations`` the same fifty iterations as the difference of calls of a
hundred and of fifty. PPCA's closed form reads 20 000 rows of 200 columns. Seconds are of the CPU. The default
call, with its restarts, is printed beside. Written to tests/reference/benchmark_whole_call.json.

The bar of ``cold`` is not met: of the 4.1 s that it allows, the fifty iterations take 2.5 s and what else a
warm call does 0.5 s, which leaves 1.2 s for tracing and compilation; they take 4.5 s. CPU seconds of
compilation alone, of XLA for one core, single runs on a busy machine, where all is a quarter longer: the
loop 2.1 (compiled apart, its pass over rows takes 0.6, coefficients, posterior and bound 0.6; the rest is the
driver's), the start 0.9, draws from q 0.5, responsibilities 0.5, covariances of draws 0.3; tracing and
lowering 0.8. The loop's 100 kernels are an LLVM module each; what one costs was not taken apart further.
Fewer instructions (loop 3128 to 2204: Cholesky in the place of LU, shorter log-gamma functions, the verdict
on a step computed once, the posterior made once) took a tenth off it, the last of these nothing measurable.
Tried besides: XLA's level 0 for all but the
loop saves 1.0 s of compilation and costs 0.7 s of execution in every call, which the bar of ``warm`` does not
allow; of XLA's flags ``xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE``, one part for code generation,
no expensive LLVM passes, no loop unrolling, optimising for size and multi-output fusion change nothing beyond
a tenth or slow the iterations; a conditional in the place of selections in the driver is longer to compile.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings

from tests.benchmarks.kernel_pca import pin
from tests.tools.recording import write_record

ROWS, COLUMNS, COMPONENTS, ITERATIONS = 100_000, 10, 50, 50
TABLE, LATENTS = (20_000, 200), 10
REPEATS = 3
BARS = {"cold": 10, "warm": 15, "warm_over_iterations": 1.6, "ppca": 1.5}
SIDES = ("mixture", "scikit-learn mixture", "default mixture", "ppca")


def seconds(call, *args, **options):
    """CPU seconds of one call."""
    began = time.process_time()
    call(*args, **options)
    return time.process_time() - began


def clusters():
    """Rows around fifty centres."""
    import numpy as np

    rng = np.random.default_rng(0)
    locs = rng.normal(size=(COMPONENTS, COLUMNS)) * 3
    return locs[rng.integers(COMPONENTS, size=ROWS)] + rng.normal(size=(ROWS, COLUMNS))


def mixture():
    """Ours: first call, later ones, and the iterations' own time."""
    import arviz  # noqa: F401  what a notebook has imported
    import xarray  # noqa: F401

    import zoo
    from inference import fit

    x = clusters()

    def call(iterations):
        model = zoo.Mixture.from_data(x, num_components=COMPONENTS)
        options = {"method": "vb", "seed": 0, "num_restarts": 1, "tolerance": 0.0}
        return seconds(fit, model, x, max_iterations=iterations, **options)

    cold = call(ITERATIONS)
    warm = min(call(ITERATIONS) for _ in range(REPEATS))
    twice = min(call(2 * ITERATIONS) for _ in range(REPEATS))
    return {"cold": cold, "warm": warm, "iterations": twice - warm}


def default_mixture():
    """The call without options, as a user makes it."""
    import zoo
    from inference import fit

    x = clusters()
    return {"cold": seconds(lambda: fit(zoo.Mixture.from_data(x, num_components=COMPONENTS), x))}


def scikit_learn_mixture():
    """The peer, one start, as many iterations."""
    from sklearn.mixture import BayesianGaussianMixture

    x = clusters()
    peer = BayesianGaussianMixture(
        n_components=COMPONENTS, max_iter=ITERATIONS, tol=0.0, n_init=1, random_state=0
    )
    return {"cold": seconds(peer.fit, x)}


def ppca():
    """The closed form and the peer's solver, taking turns after a first call of each."""
    import numpy as np
    from sklearn.decomposition import PCA

    import zoo
    from inference import fit

    rng = np.random.default_rng(0)
    x = rng.normal(size=(TABLE[0], LATENTS)) @ rng.normal(size=(LATENTS, TABLE[1])) + rng.normal(size=TABLE)
    calls = {
        "ours": lambda: fit(zoo.PPCA(num_latents=LATENTS), x, method="closed_form"),
        "scikit-learn": lambda: PCA(LATENTS, svd_solver="covariance_eigh").fit(x),
    }
    found = {"cold": seconds(calls["ours"])}
    calls["scikit-learn"]()
    times = {name: [] for name in calls}
    for _ in range(4 * REPEATS):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return found | {name: min(own) for name, own in times.items()}


def main():
    """Each side in a process of its own; ratios, bars and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sides", nargs="*", help=f"of {', '.join(SIDES)} (default: all, recorded)")
    parser.add_argument("--one", choices=SIDES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        warnings.simplefilter("ignore")
        print(json.dumps(globals()[arguments.one.replace(" ", "_").replace("-", "_")]()))
        return
    found = {}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "ZOO_"))}
    kept |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    for side in arguments.sides or SIDES:
        command = [sys.executable, "-m", __spec__.name, "--one", side]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=kept)
        found[side] = json.loads(done.stdout.splitlines()[-1])
        print(side, {name: round(value, 3) for name, value in found[side].items()}, flush=True)
    if arguments.sides:
        return
    ours, peer = found["mixture"], found["scikit-learn mixture"]["cold"]
    ratios = {
        "cold": peer / ours["cold"],
        "warm": peer / ours["warm"],
        "warm_over_iterations": ours["warm"] / ours["iterations"],
        "ppca": found["ppca"]["ours"] / found["ppca"]["scikit-learn"],
    }
    print({name: f"{ratio:.2f} (bar {BARS[name]})" for name, ratio in ratios.items()})
    command = "python -m tests.benchmarks.whole_call"
    write_record("benchmark_whole_call", command, "scikit-learn", bars=BARS, ratios=ratios, cpu_seconds=found)


if __name__ == "__main__":
    pin()
    main()
