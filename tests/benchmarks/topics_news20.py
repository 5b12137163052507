"""Twenty newsgroups (18 846 x 30 048), K = 100: LDA from minibatches and PCP; time, memory and completion.

Run from the root, ``ZOO_DATA`` naming the folder of the sets:
``python -m tests.benchmarks.topics_news20 LDA PCP``, or one of the two, or with the number of seeds (``LDA
2``; five without). Each model is fitted twice from the same seed, for a third of the passes and for all
of them. The bar: the short fit completes held-out documents (a tenth of all) to within 3 per cent of the long
one's perplexity, in less than 1200 processor seconds (ten minutes on two cores) and 4 GB. Seconds are
processor seconds of the whole call, compilation included. Every seed is written to
tests/reference/benchmark_topics_news20.json as soon as it is done.
"""

import resource
import sys
import time
import warnings

import numpy as np

import zoo
from inference import fit
from inference.diagnostics import heldout
from tests.tools.recording import add_to_record
from zoo.datasets import load

MODELS = {
    "LDA": (zoo.LDA(num_topics=100), {"batch_size": 2000, "dtype": "float32"}, (48, 144)),
    "PCP": (zoo.PCP(num_topics=100, num_clusters=50), {"dtype": "float32"}, (20, 60)),
}


def one(counts, name, seed):
    """Perplexities of completion, processor seconds and peak memory of the short and the long fit."""
    model, options, lengths = MODELS[name]
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    held = counts.shape[0] // 10
    test, train = counts[order[:held]], counts[order[held:]]
    found = {}
    for passes in lengths:
        begin, wall = time.process_time(), time.perf_counter()
        tree = fit(
            model,
            train,
            max_iterations=passes,
            seed=seed,
            num_samples=1,
            tolerance=0,
            progress=False,
            **options,
        )
        found[f"{passes} passes"] = {
            "processor seconds": time.process_time() - begin,
            "wall seconds": time.perf_counter() - wall,
            "peak memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            "completion perplexity": float(heldout(tree, test, protocol="completion").perplexity),
            "objective": float(tree["trace"].objective.values[-1]),
        }
    short, long = (found[f"{passes} passes"]["completion perplexity"] for passes in lengths)
    return found | {"short over long": short / long}


def main(wanted):
    """The figures of the models that are named, seed by seed."""
    warnings.filterwarnings("ignore", category=UserWarning)
    counts = load("news20")["counts"]
    numbers = [int(word) for word in wanted if word.isdigit()]
    command = "python -m tests.benchmarks.topics_news20 LDA PCP"
    for name in (name for name in MODELS if name in wanted):
        for seed in range(*numbers or (5,)):
            found = {f"{name}, seed {seed}": one(counts, name, seed)}
            add_to_record("benchmark_topics_news20", command, **found)


if __name__ == "__main__":
    main(sys.argv[1:])
