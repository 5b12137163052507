"""CPU time of LDA until it completes held-out documents as well as scikit-learn's, over the peer's time.

Run ``python -m tests.benchmarks.lda_to_completion``, ``ZOO_DATA`` naming the folder of the sets; a corpus
alone by its name. The peer makes its default ten iterations, and forty. Ours is the default call,
``fit(zoo.LDA(num_topics=20), counts)`` from one start, with the fewest iterations whose perplexity of the
second halves of held-out documents (`tests.benchmarks.topic_bars.completions`) is at most the peer's; None if
no number up to the peer's forty is enough. ``first`` is the first call of a process, compilation and all,
``cached`` the first of a process whose cache of compiled programs an earlier process has filled, ``later``
the smallest of three further ones; each over the peer's seconds. Everything runs on one core. The bar is 0.4
for ``later``. Written to tests/reference/benchmark_lda_to_completion.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

from tests.benchmarks.kernel_pca import pin
from tests.tools.recording import add_to_record

BAR = 0.4
CORPORA = ("news4_stemmed", "reuters5_stemmed", "pcp_corpus")
TOPICS, SEEDS, REPEATS = 20, 3, 3
PEER_ITERATIONS = (10, 40)


def seconds(call, *args, **options):
    """CPU seconds of one call, and what it returns."""
    began = time.process_time()
    found = call(*args, **options)
    return time.process_time() - began, found


def split(name, seed):
    """Documents to fit and held-out ones, over the words that the first have."""
    from tests.benchmarks.topic_bars import DRAWN, known_words, one_split, some_documents
    from zoo.datasets import load

    if name == DRAWN:
        counts = load(name, seed=seed)["counts"].astype(float)
        return known_words(counts[:270], counts[270:])
    return one_split(some_documents(load(name)["counts"]), seed)


def ours(train, seed, iterations):
    """The default call, from one start."""
    import zoo
    from inference import fit

    options = {"tolerance": 0, "num_samples": 1, "num_restarts": 1, "progress": False}
    return fit(zoo.LDA(num_topics=TOPICS), train, seed=seed, max_iterations=iterations, **options)


def first(name, seed, iterations, cache):
    """CPU seconds of the first call of this process."""
    import arviz  # noqa: F401  what a notebook has imported
    import xarray  # noqa: F401

    import inference

    train, _ = split(name, seed)
    if cache:
        inference.compile_cache(cache)
    return seconds(ours, train, seed, int(iterations))[0]


def race(name, seed):
    """The peer's completions and seconds, and the fewest of our iterations that do as well, and theirs."""
    import numpy as np
    from sklearn.decomposition import LatentDirichletAllocation

    from inference.diagnostics import heldout
    from inference.topics.text_heldout import split_tokens
    from zoo.sparse import SparseCounts

    train, test = split(name, seed)
    given, scored = split_tokens(SparseCounts.from_matrix(test))

    def completion(iterations):
        return float(heldout(ours(train, seed, iterations), test, protocol="completion").perplexity)

    def perplexity(peer):
        topics = peer.components_ / peer.components_.sum(1, keepdims=True)
        shares = peer.transform(given.to_scipy())
        probs = (shares[scored.document] * topics.T[scored.word]).sum(1)
        return float(np.exp(-(scored.count @ np.log(probs)) / scored.count.sum()))

    own, found = {}, {}
    for peer_iterations in PEER_ITERATIONS:
        peer = LatentDirichletAllocation(TOPICS, max_iter=peer_iterations, random_state=seed)
        spent = min(seconds(peer.fit, train)[0] for _ in range(REPEATS))
        reached, result = perplexity(peer), None
        for iterations in range(1, max(PEER_ITERATIONS) + 1):
            if iterations not in own:
                own[iterations] = completion(iterations)
            if own[iterations] <= reached:
                result = iterations
                break
        row = {"peer_seconds": spent, "peer_perplexity": reached, "iterations": result}
        if result is not None:
            row["perplexity"] = own[result]
            row["later"] = min(seconds(ours, train, seed, result)[0] for _ in range(REPEATS))
        found[f"{peer_iterations} iterations of scikit-learn"] = row
    return found


def in_process(*arguments):
    """What a fresh process prints, without settings of compilation from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "ZOO_COMPILE"))}
    kept |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, "-m", __spec__.name, "--one", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=kept)
    return json.loads(done.stdout.splitlines()[-1])


def figures(name):
    """Of every seed: both races, and first calls."""
    found = {}
    for seed in range(SEEDS):
        found[f"seed {seed}"] = races = in_process(name, seed)
        for row in races.values():
            if row["iterations"] is None:
                continue
            with tempfile.TemporaryDirectory() as cache:
                row["first"] = in_process(name, seed, row["iterations"], "")
                in_process(name, seed, row["iterations"], cache)
                row["cached"] = in_process(name, seed, row["iterations"], cache)
            row["ratios"] = {kind: row[kind] / row["peer_seconds"] for kind in ("first", "cached", "later")}
        print(name, seed, json.dumps(races), flush=True)
    return found


def main():
    """All corpora, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", help=f"of {', '.join(CORPORA)} (default: all)")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        warnings.simplefilter("ignore")
        pin()
        name, seed, *others = arguments.one
        print(json.dumps((first if others else race)(name, int(seed), *others)))
        return
    command, peer = "python -m tests.benchmarks.lda_to_completion", "scikit-learn"
    for name in arguments.corpora or CORPORA:
        add_to_record("benchmark_lda_to_completion", command, peer, bar=BAR, **{name: figures(name)})


if __name__ == "__main__":
    main()
