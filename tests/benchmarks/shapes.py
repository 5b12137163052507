"""What another shape costs: sizes, folds, tables and numbers of rows, against another checkout.

Run ``python -m tests.benchmarks.shapes FOLDER [--rounds N] [--record]`` with FOLDER a checkout of the commit
to compare with. CPU seconds of calls in fresh processes, one core, no cache of programs, the smallest
of N processes; the two checkouts take turns. Garbage is collected before a call and not in it by chance (.2
seconds over all modules). Each question is asked after the calls that its name speaks of:

* ``cross_validate``: six sizes of a mixture on 272 rows, five folds; ``again``: once more in that process.
* ``choose_num_latents``: 1 to 6 latents of 572 rows in 8 columns.
* ``250 after 272``, ``5 after 4``: a fit of another number of rows, and of components, after a first one.
* ``first fit``: that first one.
* ``gibbs``, ``collapsed``, ``projection``: 1 000 sweeps of chains, by both Gibbs samplers of a mixture (the
  first without split-merge moves, which the other checkout may lack) and that of `zoo.PPCA`: a first fit of
  272 rows, once more, then of 250, which shares its size, and of 60.
* ``predict 7 after 5``, ``transform 7 after 5``: of a mixture, and of `zoo.EPCA`, whose modes are searched.
* ``5 topics after 4``, ``180 texts after 200``, ``density 7 after 5``: of LDA: fits and log densities.
* ``pcp``, ``plsi``, ``epca``: by VB, EM and VB, of 180 documents after 200 and of 250 rows after 272.
* ``other table``: a fit of another table (231 rows) in a new process whose cache one of 272 rows has filled.

The tables are drawn. Written to tests/reference/benchmark_shapes.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tools.recording import write_record

BARS = {
    "cross_validate": 12 / 103,
    "again": 2 / 3.7,
    "choose_num_latents": 5 / 51,
    "250 after 272": 0.5 / 4.9,
    "5 after 4": 0.8 / 5.7,
    "first fit": 1.05,
    **{
        f"{name}, {which}": 1.05
        for name in ("gibbs", "collapsed", "projection")
        for which in ("first", "60 rows")
    },
    **{f"{name}, 250 after 272": 0.3 for name in ("gibbs", "collapsed", "projection")},
    "predict 7 after 5": 0.05 / 0.6,
    "transform 7 after 5": 0.05 / 0.6,
}
QUESTIONS = (
    *("cross_validate", "choose_num_latents", "fits", "epca", "topics", "other"),
    *("gibbs", "collapsed", "projection"),
)
#: Run in a fresh interpreter: imports, then calls under the clock.
CALLS = """
import gc, json, sys, time, warnings
which, cache = sys.argv[1:]
import numpy as np, numpyro, arviz, xarray, zoo, inference
from inference import fit, log_density, predict, transform
from inference.diagnostics.model_size import choose_num_latents, cross_validate
from inference.methods import method_of
warnings.simplefilter("ignore")
if cache != "off":
    inference.compile_cache(cache)
rng = np.random.default_rng(0)
taken = rng.random(272) < 0.36
short, long = rng.normal((2.0, 54.5), (0.25, 5.8), (272, 2)), rng.normal((4.3, 80), (0.4, 6), (272, 2))
x = np.where(taken[:, None], short, long)
found = {}
def clock(name, call):
    gc.collect()
    began = time.process_time()
    value = call()
    found[name] = time.process_time() - began
    return value
def mixture(rows, size):
    return fit(zoo.Mixture.from_data(rows, num_components=size), rows, seed=0)
if which == "cross_validate":
    models = {size: zoo.Mixture.from_data(x, num_components=size) for size in (1, 2, 3, 4, 6, 8)}
    clock("cross_validate", lambda: cross_validate(models, x))
    clock("again", lambda: cross_validate(models, x))
elif which == "choose_num_latents":
    wide = rng.normal(size=(572, 3)) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(572, 8))
    clock("choose_num_latents", lambda: choose_num_latents(wide, range(1, 7)))
elif which == "fits":
    tree = clock("first fit", lambda: mixture(x, 4))
    clock("250 after 272", lambda: mixture(x[:250], 4))
    clock("5 after 4", lambda: mixture(x, 5))
    predict(tree, x[:5])
    clock("predict 7 after 5", lambda: predict(tree, x[:7]))
elif which == "epca":
    bits = (x > x.mean(0)).astype(float)
    model = zoo.EPCA(family="bernoulli", num_latents=1)
    tree = fit(model, bits, method="map", num_restarts=1, max_iterations=9)
    transform(tree, bits[:5])
    clock("transform 7 after 5", lambda: transform(tree, bits[:7]))
    fit(model, bits, method="vb")
    clock("epca, 250 after 272", lambda: fit(model, bits[:250], method="vb"))
elif which == "topics":
    words = rng.dirichlet(np.full(300, 0.1), 4)
    def corpus(count):
        shares = rng.dirichlet(np.full(4, 0.3), count)
        return np.stack([rng.multinomial(1 + rng.poisson(80), own) for own in shares @ words])
    def topics(counts, size):
        return fit(zoo.LDA(num_topics=size), counts, seed=0)
    counts, others = corpus(200), corpus(180)
    tree = topics(counts, 4)
    clock("5 topics after 4", lambda: topics(counts, 5))
    clock("180 texts after 200", lambda: topics(others, 4))
    log_density(tree, others[:5])
    clock("density 7 after 5", lambda: log_density(tree, others[:7]))
    for name, model in (("pcp", zoo.PCP(num_clusters=8, num_topics=5)), ("plsi", zoo.PLSI(num_topics=4))):
        fit(model, counts, seed=0)
        clock(name + ", 180 texts after 200", lambda: fit(model, others, seed=0))
elif which == "projection" and "gibbs" not in zoo.PPCA.methods:
    pass
elif which in ("gibbs", "collapsed", "projection"):
    wide = rng.normal(size=(272, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(272, 6))
    def chains(count):
        rows = (wide if which == "projection" else x)[:count]
        model = zoo.PPCA(num_latents=2, loading_prior="ard") if which == "projection" else (
            zoo.Mixture.from_data(rows, num_components=4))
        method = "collapsed_gibbs" if which == "collapsed" else "gibbs"
        known = method_of(model, method).options  # split-merge moves, where both checkouts have none of them
        fewer = {"split_merge": 0} if which == "gibbs" and "split_merge" in known else {}
        fit(model, rows, method=method, num_warmup=900, num_samples=100, seed=0, **fewer)
    for name, count in (("first", 272), ("again", 272), ("250 after 272", 250), ("60 rows", 60)):
        clock(which + ", " + name, lambda: chains(count))
elif which == "fill":
    mixture(x, 4)
else:
    clock("other table", lambda: mixture(x[:231] + 0.1, 4))
print(json.dumps(found))
"""


def seconds(checkout, which, cache="off"):
    """CPU seconds of the calls of one process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "ZOO_"))}
    kept |= {"PYTHONPATH": str(checkout), "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    core = str(sorted(os.sched_getaffinity(0))[-1])
    command = ["taskset", "-c", core, sys.executable, "-c", CALLS, which, str(cache)]
    done = subprocess.run(command, cwd=checkout, env=kept, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{which} in {checkout}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_another_process(checkout):
    """CPU seconds of the fit of a table after the cache was filled by that of another."""
    with tempfile.TemporaryDirectory() as cache:
        seconds(checkout, "fill", cache)
        return seconds(checkout, "other", cache)


def main():
    """Measure both checkouts; print a line for each question and record them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, help="these processes; not to be recorded")
    arguments = parser.parse_args()
    if arguments.record and arguments.only:
        parser.error("a record has all questions")
    here, there = Path(__file__).resolve().parents[2], arguments.folder.resolve()
    found = {"then": {}, "now": {}}
    for _ in range(arguments.rounds):
        for name, checkout in (("then", there), ("now", here)):
            for which in arguments.only or QUESTIONS:
                own = in_another_process(checkout) if which == "other" else seconds(checkout, which)
                for question, spent in own.items():
                    found[name][question] = min(spent, found[name].get(question, spent))
    table = {}
    for question, now in found["now"].items():
        if (then := found["then"].get(question)) is None:
            print(f"{question:20s} {'':7s} {now:7.2f}  there was no such method", flush=True)
            continue
        table[question] = {"then": then, "now": now, "ratio": now / then, "bar": BARS.get(question)}
        bar = f" (bar {BARS[question]:.2f})" if question in BARS else ""
        print(f"{question:20s} {then:7.2f} {now:7.2f}  {now / then:.2f}{bar}", flush=True)
    if arguments.record:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=there, capture_output=True, text=True, check=True
        ).stdout.strip()
        command = f"python -m tests.benchmarks.shapes FOLDER --rounds {arguments.rounds} --record"
        write_record(
            "benchmark_shapes",
            command,
            against=commit,
            shapes=table,
        )


if __name__ == "__main__":
    main()
