"""Topic models: CPU time of a step against the number of nonzeros, and the memory that a step holds.

Run from the root on one core: ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m tests.benchmarks.topic_costs``, or with
names of parts (see ``STEPS``, ``MORE_CLUSTERS``). Corpora of PCP with 1000, 2000, 4000 and 8000 documents
over the same 3000 words, 100 tokens each in the mean; K = 50, M = 20, double precision. The least process CPU
time of several steps, after compilation. The slope is that of log time on log nonzeros between the ends (a
step that is linear with a part by words and topics beside has a slope below 1); its bar is ours.

Memory: what the compiled step holds, data, state in and out, and temporaries, over data plus (documents +
words) x K numbers, data being the sparse cells (two indices of four bytes and a count). Compiled for the
largest corpus, structured PCP with M = 50 and 200 too. Written to tests/reference/benchmark_topic_costs.json.
"""

import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference.methods.lda import collapsed_gibbs as collapsed_lda
from inference.methods.lda import gibbs as blocked_lda
from inference.methods.lda import vb as lda_vb
from inference.methods.pcp import collapsed_gibbs as collapsed_pcp
from inference.methods.pcp import gibbs as blocked_pcp
from inference.methods.pcp import vb as pcp_vb
from tests.tools.recording import add_to_record
from zoo.sparse import SparseCounts

__all__ = ["corpus", "costs", "step_of"]

COMMAND = "python -m tests.benchmarks.topic_costs"
SIZES = (1000, 2000, 4000, 8000)
NUM_WORDS, NUM_TOPICS, NUM_CLUSTERS, TOKENS = 3000, 50, 20, 100
REPEATS = 7
SLOPE_BAR, MEMORY_BAR = 1.1, 3.0
STEPS = {  # model, module, options of preparation
    "structured PCP": (zoo.PCP, pcp_vb, {"family": "structured"}),
    "LDA VB": (zoo.LDA, lda_vb, {}),
    "LDA, gibbs": (zoo.LDA, blocked_lda, {}),
    "LDA, collapsed_gibbs": (zoo.LDA, collapsed_lda, {}),
    "PCP, gibbs": (zoo.PCP, blocked_pcp, {}),
    "PCP, collapsed_gibbs": (zoo.PCP, collapsed_pcp, {}),
}
MORE_CLUSTERS = {"structured PCP, M = 50": 50, "structured PCP, M = 200": 200}  # memory alone


def corpus(num_documents, seed=0):
    """Sparse counts of documents of PCP."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(NUM_WORDS, 0.05), size=NUM_TOPICS)
    centres = rng.dirichlet(np.full(NUM_TOPICS, 0.1), size=NUM_CLUSTERS) @ topics
    rows = []
    for _ in range(num_documents):
        words = rng.choice(NUM_WORDS, size=rng.poisson(TOKENS) + 1, p=centres[rng.integers(NUM_CLUSTERS)])
        rows.append(np.unique(words, return_counts=True))
    document = np.repeat(np.arange(num_documents), [words.size for words, _ in rows])
    word, count = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return SparseCounts(document, word, count, (num_documents, NUM_WORDS))


def step_of(name, counts, num_clusters=NUM_CLUSTERS):
    """A compiled step, its key, state and data."""
    kind, module, options = STEPS[name]
    sizes = {"num_topics": NUM_TOPICS} | ({"num_clusters": num_clusters} if kind is zoo.PCP else {})
    model = kind.from_data(counts, **sizes)
    prepared = module.METHOD.prepare(model, (counts,), "random", **options)
    data = jax.tree.map(jnp.asarray, prepared[0])
    key = jax.random.key(0)
    begin = partial(module.init, strategy="random") if kind is zoo.PCP and module is pcp_vb else module.init
    state = jax.jit(begin)(key, model, data)
    step = jax.jit(module.step).lower(key, state, model, data).compile()
    return step, key, state, model, data


def seconds(step, key, state, model, data):
    """The least process CPU time of a step."""
    taken = []
    for number in range(REPEATS):
        own = jax.random.fold_in(key, number)
        begin = time.process_time()
        state = jax.block_until_ready(step(own, state, model, data)[0])
        taken.append(time.process_time() - begin)
    return min(taken)


def held(step, counts):
    """Bytes of the compiled step, and these over data plus (documents + words) x K numbers."""
    memory = step.memory_analysis()
    parts = {
        "data and state in": memory.argument_size_in_bytes,
        "state out": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
    }
    unit = counts.nbytes + sum(counts.shape) * NUM_TOPICS * 8
    ratio = sum(parts.values()) / unit
    return {"bytes": parts, "data plus (D + W) x K": unit, "ratio": ratio, "reached": ratio <= MEMORY_BAR}


def costs(name, corpora):
    """Seconds by nonzeros, their slope, and memory for the largest corpus."""
    cells = [counts.num_nonzeros for counts in corpora]
    taken = []
    for counts in corpora:
        compiled = step_of(name, counts)
        taken.append(seconds(*compiled))
    slope = float(np.log(taken[-1] / taken[0]) / np.log(cells[-1] / cells[0]))
    return {
        "nonzeros": cells,
        "seconds": taken,
        "slope": slope,
        "slope reached": slope <= SLOPE_BAR,
        "memory": held(compiled[0], corpora[-1]),
    }


def main(wanted):
    """The figures of the parts that are named (all, if none is), written as they come."""
    with jax.enable_x64(True):
        corpora = [corpus(size) for size in SIZES]
        for name in wanted or (*STEPS, *MORE_CLUSTERS):
            if name in STEPS:
                found = costs(name, corpora)
            else:
                step, *_ = step_of("structured PCP", corpora[-1], MORE_CLUSTERS[name])
                found = {"memory": held(step, corpora[-1])}
            print(name, found, flush=True)
            add_to_record("benchmark_topic_costs", COMMAND, **{name: found})


if __name__ == "__main__":
    main(sys.argv[1:])
