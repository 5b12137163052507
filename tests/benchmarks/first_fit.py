"""What the first `fit` of a process costs, against another checkout of this project: compilation and all.

Run ``python -m tests.benchmarks.first_fit FOLDER [PAIRS] [--record]`` with FOLDER a checkout of the commit to
compare with, such as ``git worktree add FOLDER d4579d2``; a pair is ``model/method``. CPU seconds of one
call, ``inference.fit(model, data, method=..., seed=0, num_restarts=1)`` after the imports of a notebook, on a
table of a hundred rows or sixty documents, one core, the smallest of three processes; the two checkouts take
turns, so that a busy machine decides little. ``cold`` keeps no compiled programs. ``cached`` is this checkout
in a process whose cache (``inference.compile_cache``) an earlier process has filled, over the other
checkout's cold call, as that had no cache. ``process`` is the CPU time of the whole process, imports and all.
A pair may end in options of the method that the other checkout does not have: ``mixture/gibbs split_merge=4``
is the sampler with split-merge moves. Iterations are few (50; of samplers 20 + 20 sweeps), so that the steps
decide little. Bars: ``cold`` 0.4 for variational Bayes and the Gibbs samplers of mixtures and topics, which
`BARS` names, and 0.5 for the rest, ``cached`` 0.2. Written to
tests/reference/benchmark_first_fit.json, where pairs that were not measured keep their figures.

Where a bar is missed, what is left is XLA's own work: the CPU time of its compilation, at its lowest level of
optimisation, goes with the number of kernels (about 7 ms each: a new context of MLIR and a module of LLVM for
every one; measured with ``perf`` on the sweep of mixtures, 380 kernels in 2.9 s), and none of its flags
changes that by more than 4 per cent (instruction set, vector width, verification, metadata of aliases,
oneDNN and XNNPACK, scheduler, copy insertion, tiling, parts of code generation).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.recording import REFERENCE, write_record

RECORD = REFERENCE / "benchmark_first_fit.json"
ROUNDS = 3
SWEEPS = {"num_chains": 4, "num_warmup": 20, "num_samples": 20}
STEPS = {"max_iterations": 50, "num_restarts": 1}
BARS = dict.fromkeys(
    (
        "mixture/vb",
        "mixture/gibbs",
        "mixture/collapsed_gibbs",
        "pcp/vb",
        "pcp/gibbs",
        "depcam/vb",
        "lda/vb",
        "lda/gibbs",
        "lda/collapsed_gibbs",
    ),
    0.4,
)
OTHERS, CACHED = 0.5, 0.2
PAIRS = (
    *BARS,
    "depcam/em",
    "mixture/gibbs split_merge=4",
    "mixture/em",
    "ppca/em",
    "ppca/closed_form",
    "kernelpca/em",
    "sppca/em",
    "epca/map",
    "epca/vb",
    "epca/gibbs",
    "paired/vb",
    "plsi/em",
)
#: Run in a fresh interpreter: imports, then one call under the clock.
CALL = """
import sys, time
model_name, method, options, cache = sys.argv[1], sys.argv[2], eval(sys.argv[3]), sys.argv[4]
import numpy as np, numpyro, arviz, xarray, zoo
from inference import fit
if cache != "off":
    import inference
    inference.compile_cache(cache)
rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(size=(50, 3)), rng.normal(size=(50, 3)) + 4.0])
bits = (x > 2.0).astype(float)
counts = rng.poisson(rng.gamma(0.5, 2.0, size=(60, 25)))
counts[:, 0] += 1
if model_name == "mixture":
    model, data = zoo.Mixture.from_data(x, num_components=5), (x,)
elif model_name == "ppca":
    model, data = zoo.PPCA(num_latents=2), (x,)
elif model_name == "kernelpca":
    model, data = zoo.KernelPCA(num_latents=2), (x,)
elif model_name == "sppca":
    model, data = zoo.SPPCA(num_latents=2), (x, x[:, :2] - x[:, 1:])
elif model_name == "epca":
    model, data = zoo.EPCA(family="bernoulli", num_latents=2), (bits,)
elif model_name == "paired":
    model, data = zoo.Paired.ecca(("gaussian", "gaussian"), 1, (0, 0)), (x[:, :2], x[:, 1:])
elif model_name == "depcam":
    model, data = zoo.DEPCAM(family="bernoulli", num_components=3, num_latents=1), (bits,)
elif model_name == "lda":
    model, data = zoo.LDA(num_topics=4), (counts,)
elif model_name == "plsi":
    model, data = zoo.PLSI(num_topics=4), (counts,)
else:
    model, data = zoo.PCP(num_topics=4, num_clusters=3), (counts,)
import warnings
warnings.simplefilter("ignore")
began = time.process_time()
tree = fit(model, *data, method=method, seed=0, **options)
call = time.process_time() - began
assert np.isfinite(tree["trace"]["objective"].values).any() or method in ("closed_form",)
print(call, time.process_time())
"""


def options_of(method):
    """The keyword arguments of the call."""
    if method == "closed_form":
        return {}
    return SWEEPS if "gibbs" in method else STEPS


def one_call(checkout, pair, cache="off", *, own=True):
    """CPU seconds of the call and of its process, options at the end of the pair if they are known."""
    model, _, method = pair.partition("/")
    method, *extra = method.split()
    options = options_of(method) | {n: int(v) for n, v in (text.split("=") for text in extra if own)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "ZOO_"))}
    kept |= {"PYTHONPATH": str(checkout), "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, "-c", CALL, model, method, repr(options), cache]
    core = str(sorted(os.sched_getaffinity(0))[-1])
    done = subprocess.run(
        ["taskset", "-c", core, *command], cwd=checkout, env=kept, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{pair} in {checkout}:\n{done.stderr[-2000:]}")
    return [float(number) for number in done.stdout.split()]


def measure(here, there, pair):
    """Smallest CPU seconds of the call and of the process in each checkout, and their ratios."""
    runs = {"now": [], "then": [], "cached": []}
    with tempfile.TemporaryDirectory() as cache:
        one_call(here, pair, cache)  # fills it
        for _ in range(ROUNDS):
            runs["then"].append(one_call(there, pair, own=False))
            runs["now"].append(one_call(here, pair))
            runs["cached"].append(one_call(here, pair, cache))
    call = {name: min(run[0] for run in own) for name, own in runs.items()}
    process = {name: min(run[1] for run in own) for name, own in runs.items()}
    return {
        "cold": call["now"] / call["then"],
        "cached": call["cached"] / call["then"],
        "cold_bar": BARS.get(pair, OTHERS),
        "cached_bar": CACHED,
        "call_seconds": call,
        "process_seconds": process,
    }


def main():
    """Measure the pairs; print a line for each and record them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("pairs", nargs="*", default=PAIRS)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    here, there = Path(__file__).resolve().parents[2], arguments.folder.resolve()
    found = {}
    for pair in arguments.pairs or PAIRS:
        found[pair] = own = measure(here, there, pair)
        print(
            f"{pair:24s} cold {own['cold']:.2f} (bar {own['cold_bar']}), cached {own['cached']:.2f} "
            f"(bar {CACHED}); seconds {json.dumps({n: round(s, 2) for n, s in own['call_seconds'].items()})}",
            flush=True,
        )
    if arguments.record:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=there, capture_output=True, text=True, check=True
        ).stdout.strip()
        if RECORD.is_file():  # pairs that were not measured now are kept
            former = json.loads(RECORD.read_text(encoding="utf-8"))
            kept = former["pairs"] if former["against"] == commit else {}
            found = {pair: own for pair, own in (kept | found).items() if pair in PAIRS}
        command = "python -m tests.benchmarks.first_fit FOLDER --record"
        write_record("benchmark_first_fit", command, against=commit, pairs=found)


if __name__ == "__main__":
    main()
