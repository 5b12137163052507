"""Topic models on four newsgroups: CPU time of a step over that of scikit-learn's LDA.

Run from the root on one core, ``ZOO_DATA`` naming the folder of the sets:
``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m
tests.benchmarks.topics times attempts``, or one of the two; without ``taskset`` XLA splits small loops and
waits. Times are process CPU seconds of the second call at the same shapes, so without compilation, divided by
the steps; what a fit does besides steps is taken away by the difference of a long and a short run. Every
figure goes to tests/reference/benchmark_topics_times.json as soon as it is known. The bar is 0.15 of
scikit-learn's step for structured PCP with 200 clusters in double precision.
"""

import sys
import time
import warnings
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference import fit
from inference.methods.pcp import vb as pcp_vb
from inference.methods.pcp import vb_updates
from inference.numerics import documents
from tests.tools.recording import add_to_record
from zoo.datasets import load
from zoo.sparse import SparseCounts

OPTIONS = {"num_samples": 1, "tolerance": 0, "progress": False}
COMMAND = "python -m tests.benchmarks.topics times attempts"
BAR = 0.15  # of scikit-learn's step
IN_USE = "in use: rows one by one, words in blocks laid out once"
BARRED = ("structured PCP, M = 200", IN_USE)


def seconds_of(run, short, long):
    """CPU seconds of a short and of a long run, after both have been compiled: they may differ in that."""
    for steps in (short, long):
        run(steps)
    taken = []
    for steps in (short, long):
        begin = time.process_time()
        run(steps)
        taken.append(time.process_time() - begin)
    return taken


def per_step(taken, short, long):
    """CPU seconds of a step from several such pairs: the least long run less the least short one.

    The least of their differences would be the one whose short run was disturbed most.
    """
    of_short, of_long = map(min, zip(*taken, strict=True))
    return (of_long - of_short) / (long - short)


def seconds_per_step(run, short, long):
    """CPU seconds of a step from one such pair."""
    return per_step([seconds_of(run, short, long)], short, long)


def peer_of(counts):
    """Fits of scikit-learn's LDA with all documents in one batch, by the number of steps.

    A step of it takes the longer the further a document's topics are from where the last step left them, so
    it is the mean of its first ten after one.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    return lambda steps: LatentDirichletAllocation(50, max_iter=steps, evaluate_every=-1, random_state=0).fit(
        counts
    )


def times(counts, turns=3):
    """CPU seconds of one step at K = 50, in turns."""

    def ours(model, **options):  # from a random start: PCP's default one takes as long as a hundred steps
        return lambda steps: fit(model, counts, max_iterations=steps, init="random", **OPTIONS, **options)

    def sweeps(method):
        sampling = {"num_chains": 1, "num_samples": 1, "progress": False, "method": method}
        return lambda number: fit(zoo.LDA(num_topics=50), counts, num_warmup=number, **sampling)

    measured = {
        "scikit-learn batch LDA": (peer_of(counts), 1, 11),
        "structured PCP, M = 200": (ours(zoo.PCP(num_topics=50, num_clusters=200), prune=False), 2, 22),
        "structured PCP, M = 200, float32": (
            ours(zoo.PCP(num_topics=50, num_clusters=200), prune=False, dtype="float32"),
            2,
            22,
        ),
        "LDA VB, float64": (ours(zoo.LDA(num_topics=50)), 2, 22),
        "LDA VB, float32": (ours(zoo.LDA(num_topics=50), dtype="float32"), 2, 22),
        "structured PCP, M = 20": (ours(zoo.PCP(num_topics=50, num_clusters=20), prune=False), 2, 22),
        "LDA gibbs": (sweeps("gibbs"), 1, 9),
        "LDA collapsed_gibbs": (sweeps("collapsed_gibbs"), 1, 9),
    }
    taken = {name: [] for name in measured}
    for _ in range(turns):
        for name, call in measured.items():
            taken[name].append(seconds_of(*call))
    seconds = {name: per_step(taken[name], *measured[name][1:]) for name in measured}
    note("times, news4_stemmed, K = 50", ratios(seconds, taken))


def ratios(seconds, taken):
    """CPU seconds of a step over those of scikit-learn, and whether the bar is reached."""
    ratio = {name: value / seconds["scikit-learn batch LDA"] for name, value in seconds.items()}
    bar = {name: value <= BAR for name, value in ratio.items() if name in BARRED}
    return {
        "seconds": seconds,
        "all turns": taken,
        "ratio to scikit-learn": ratio,
        "bar": BAR,
        "reached": bar,
    }


def attempts(counts, turns=5):
    """CPU seconds of a step of structured PCP, M = 200, by ways of making it, over scikit-learn's, in turns.

    Each way differs from the one in use in one thing: XLA's scatter for the words' sums, four rows of them in
    one turn of the loop, blocks of words eight times as large where centres and topics alternate, and all
    words in one block there.
    """
    scan = partial(jax.lax.scan, unroll=4)
    lax = SimpleNamespace(**vars(jax.lax) | {"scan": scan})
    unrolled = SimpleNamespace(**vars(jax) | {"lax": lax})
    ways = {
        IN_USE: (documents, {}),
        "scatter": (documents, {"_row_after_row": documents._all_rows_at_once}),
        "four rows in one turn": (documents, {"jax": unrolled}),
        "larger blocks of words": (vb_updates, {"CACHED_NUMBERS": 8 * vb_updates.CACHED_NUMBERS}),
        "all words in one block": (vb_updates, {"CACHED_NUMBERS": 2**40}),
    }
    calls = {}
    with jax.enable_x64(True):
        sparse = SparseCounts.from_matrix(counts)
        model = zoo.PCP.from_data(sparse, num_topics=50, num_clusters=200)
        (blocks,) = pcp_vb.METHOD.prepare(model, (sparse,), "random", family="structured")
        blocks, key = jax.tree.map(jnp.asarray, blocks), jax.random.key(0)
        state = jax.jit(partial(pcp_vb.init, strategy="random"))(key, model, blocks)
        for name, (module, changed) in ways.items():
            jax.clear_caches()  # else a function that was traced before is taken as it was
            with patch.multiple(module, **changed) if changed else nullcontext():
                step = jax.jit(lambda *args: pcp_vb.step(*args)).lower(key, state, model, blocks).compile()
            calls[name] = partial(_stepped, step, key, state, model, blocks)
        taken = {"scikit-learn batch LDA": []} | {name: [] for name in calls}
        for _ in range(turns):
            taken["scikit-learn batch LDA"].append(seconds_of(peer_of(counts), 1, 11))
            for name, call in calls.items():
                begin = time.process_time()
                call()
                taken[name].append(time.process_time() - begin)
    seconds = {name: min(own) for name, own in taken.items() if name in calls}
    seconds["scikit-learn batch LDA"] = per_step(taken["scikit-learn batch LDA"], 1, 11)
    note("attempts, news4_stemmed, K = 50, M = 200", ratios(seconds, taken))


def _stepped(step, *args):
    jax.block_until_ready(step(*args))


def note(title, found):
    """Put figures into the record."""
    print(title, found, flush=True)
    add_to_record("benchmark_topics_times", COMMAND, "scikit-learn", **{title: found})


def one_label(data):
    """Documents of one class, and it."""
    if "labels" in data:
        return data["counts"], data["labels"]
    chosen = data["y"].sum(1) == 1
    return data["counts"][np.flatnonzero(chosen)], data["y"][chosen].argmax(1)


def main(wanted):
    """The parts that are named, or both."""
    warnings.filterwarnings("ignore", category=UserWarning)
    counts = load("news4_stemmed")["counts"]
    for name, part in {"times": times, "attempts": attempts}.items():
        if name in wanted or not wanted:
            part(counts)


if __name__ == "__main__":
    main(sys.argv[1:])
