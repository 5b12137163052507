"""Topic models on four newsgroups and five Reuters topics: CPU time per step, agreement with the classes.

Run from the root on one core, ``ZOO_DATA`` naming the folder of the sets:
``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m
tests.benchmarks.topics OUT.json [times|attempts]``; without ``taskset`` XLA splits small loops and waits.
Times are process CPU seconds of the second call at the same shapes, so without compilation, divided by the
steps; what a fit does besides steps is taken away by the difference of a long and a short run.
"""

import json
import os
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
from inference.diagnostics import heldout
from inference.methods.pcp import vb as pcp_vb
from inference.methods.pcp import vb_updates
from inference.numerics import documents
from inference.results.files import versions
from inference.topics import normalised_mutual_information
from inference.topics.text_heldout import split_tokens
from zoo.datasets import load
from zoo.sparse import SparseCounts

OPTIONS = {"num_samples": 1, "tolerance": 0, "progress": False}
SETS = {"news4_stemmed": 4, "reuters5_stemmed": 5}


def seconds_per_step(run, short, long):
    """CPU seconds of a step: the difference of two runs, after both have been compiled."""
    run(short)
    taken = []
    for steps in (short, long):
        begin = time.process_time()
        run(steps)
        taken.append(time.process_time() - begin)
    return (taken[1] - taken[0]) / (long - short)


def times(counts, note):
    """CPU seconds of one step at K = 50, in one run; ``note`` is given what there is after each."""
    from sklearn.decomposition import LatentDirichletAllocation

    def peer(steps):
        LatentDirichletAllocation(50, max_iter=steps, evaluate_every=-1, random_state=0).fit(counts)

    def ours(model, **options):
        return lambda steps: fit(model, counts, max_iterations=steps, **OPTIONS, **options)

    def sweeps(method):
        sampling = {"num_chains": 1, "num_samples": 1, "progress": False, "method": method}
        return lambda number: fit(zoo.LDA(num_topics=50), counts, num_warmup=number, **sampling)

    measured = {
        "scikit-learn batch LDA": (peer, 1, 3),
        "structured PCP, M = 200": (ours(zoo.PCP(num_topics=50, num_clusters=200), prune=False), 2, 8),
        "structured PCP, M = 200, float32": (
            ours(zoo.PCP(num_topics=50, num_clusters=200), prune=False, dtype="float32"),
            2,
            8,
        ),
        "LDA VB, float64": (ours(zoo.LDA(num_topics=50)), 2, 8),
        "LDA VB, float32": (ours(zoo.LDA(num_topics=50), dtype="float32"), 2, 8),
        "structured PCP, M = 20": (ours(zoo.PCP(num_topics=50, num_clusters=20), prune=False), 2, 8),
        "LDA gibbs": (sweeps("gibbs"), 1, 9),
        "LDA collapsed_gibbs": (sweeps("collapsed_gibbs"), 1, 9),
    }
    found = {}
    for name, call in measured.items():
        found[name] = seconds_per_step(*call)
        ratio = {other: value / found["scikit-learn batch LDA"] for other, value in found.items()}
        note("times, news4_stemmed, K = 50", {"seconds": found, "ratio to scikit-learn": ratio})


def attempts(counts, note, turns=5):
    """CPU seconds of a step of structured PCP, M = 200, by ways of making it, over scikit-learn's, in turns.

    Each way differs from the one in use in one thing: XLA's scatter for the words' sums, four rows of them in
    one turn of the loop, blocks of words eight times as large where centres and topics alternate.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    scan = partial(jax.lax.scan, unroll=4)
    lax = SimpleNamespace(**vars(jax.lax) | {"scan": scan})
    unrolled = SimpleNamespace(**vars(jax) | {"lax": lax})
    ways = {
        "in use: row after row": (documents, {}),
        "scatter": (documents, {"_row_after_row": documents._all_rows_at_once}),
        "four rows in one turn": (documents, {"jax": unrolled}),
        "larger blocks of words": (vb_updates, {"CACHED_NUMBERS": 8 * vb_updates.CACHED_NUMBERS}),
    }
    size = counts.shape[0]  # in one batch: a pass over all documents, then the topics once
    peer = LatentDirichletAllocation(
        50, batch_size=size, evaluate_every=-1, random_state=0, total_samples=size
    )
    calls = {"scikit-learn batch LDA": partial(peer.partial_fit, counts)}
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
        taken = {name: [] for name in calls}
        for _ in range(turns):
            for name, call in calls.items():
                begin = time.process_time()
                call()
                taken[name].append(time.process_time() - begin)
    seconds = {name: min(values) for name, values in taken.items()}
    ratio = {name: value / seconds["scikit-learn batch LDA"] for name, value in seconds.items()}
    note("attempts, news4_stemmed, K = 50, M = 200", {"seconds": seconds, "ratio to scikit-learn": ratio})


def _stepped(step, *args):
    jax.block_until_ready(step(*args))


def agreement(counts, labels, num_clusters, num_topics):
    """NMI of PCP with the classes: the best bound of ten starts, and their mean."""
    model = zoo.PCP(num_topics=num_topics, num_clusters=num_clusters)
    fits = [fit(model, counts, max_iterations=150, seed=s, num_samples=1, progress=False) for s in range(10)]
    scores = [
        normalised_mutual_information(labels, tree["variational"].responsibilities.values.argmax(1))
        for tree in fits
    ]
    bounds = [float(tree["trace"].objective.values[-1]) for tree in fits]
    return {"best bound": scores[int(np.argmax(bounds))], "mean": float(np.mean(scores)), "all": scores}


def completion(counts, seed=0):
    """Perplexity of completed held-out documents, K = 20: ours and scikit-learn's, and PCP's with M = 200."""
    from sklearn.decomposition import LatentDirichletAllocation

    order = np.random.default_rng(seed).permutation(counts.shape[0])
    held = counts.shape[0] // 10
    test, train = counts[order[:held]], counts[order[held:]]
    given, scored = split_tokens(SparseCounts.from_matrix(test))
    peer = LatentDirichletAllocation(20, max_iter=40, random_state=seed).fit(train)
    shares = peer.transform(given.to_scipy())
    topics = peer.components_ / peer.components_.sum(1, keepdims=True)
    logs = np.log((shares[scored.document] * topics.T[scored.word]).sum(1))
    found = {"scikit-learn": {"completion": float(np.exp(-(scored.count @ logs) / scored.count.sum()))}}
    learn = {"learn": ("word_smoothing", "topic_prior")}
    for name, model, options in (
        ("LDA", zoo.LDA(num_topics=20), learn),
        ("PCP, M = 200", zoo.PCP(num_topics=20, num_clusters=200), {}),
    ):
        tree = fit(model, train, max_iterations=100, seed=seed, **OPTIONS, **options)
        found[name] = {
            protocol: float(heldout(tree, test, protocol=protocol).perplexity)
            for protocol in ("bound", "likelihood", "completion")
        }
    return found


def main(path, only_times=""):
    """All figures, as JSON, written as they come; ``only_times``: any word, for those, or ``attempts``."""
    warnings.filterwarnings("ignore", category=UserWarning)
    record = {"command": f"python -m tests.benchmarks.topics OUT.json {only_times}".strip()}
    record |= {"load average": os.getloadavg(), "versions": versions()}

    def note(name, value):
        record[name] = value
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)

    sets = {name: load(name) for name in SETS}
    if only_times == "attempts":
        attempts(sets["news4_stemmed"]["counts"], note)
        return
    times(sets["news4_stemmed"]["counts"], note)
    if only_times:
        return
    for name, size in SETS.items():
        counts, labels = one_label(sets[name])
        for num_topics in (10, 20):
            note(f"NMI, {name}, K = {num_topics}", agreement(counts, labels, size, num_topics))
    note("held out, news4_stemmed, K = 20", completion(sets["news4_stemmed"]["counts"]))


def one_label(data):
    """Documents of one class, and it."""
    if "labels" in data:
        return data["counts"], data["labels"]
    chosen = data["y"].sum(1) == 1
    return data["counts"][np.flatnonzero(chosen)], data["y"][chosen].argmax(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
