"""Twenty newsgroups (18 846 x 30 048), K = 100: LDA from minibatches and PCP; time, memory and completion.

Run from the root, ``ZOO_DATA`` naming the folder of the sets:
``python -m tests.benchmarks.topics_news20 OUT.json [seeds]``.
Each model is fitted twice from the same seed, for a third of the passes and for all of them. The bar: the
short fit completes held-out documents (a tenth of all) to within 3 per cent of the long one's perplexity, in
less than 1200 processor seconds (ten minutes on two cores) and 4 GB. Seconds are processor seconds of the
whole call, compilation included.
"""

import json
import resource
import sys
import time
import warnings

import numpy as np

import zoo
from inference import fit
from inference.diagnostics import heldout
from inference.results import versions
from zoo.datasets import load

MODELS = {
    "LDA": (zoo.LDA(num_topics=100), {"batch_size": 2000, "dtype": "float32"}, (8, 24)),
    "PCP, M = 50": (zoo.PCP(num_topics=100, num_clusters=50), {"dtype": "float32"}, (20, 60)),
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


def main(path, num_seeds=5):
    """All figures, as JSON, written as they come."""
    warnings.filterwarnings("ignore", category=UserWarning)
    counts = load("news20")["counts"]
    record = {
        "command": f"python -m tests.benchmarks.topics_news20 OUT.json {num_seeds}",
        "versions": versions(),
    }
    for name in MODELS:
        for seed in range(num_seeds):
            record[f"{name}, seed {seed}"] = one(counts, name, seed)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
