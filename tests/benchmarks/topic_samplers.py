"""Samplers of topic models beside tomotopy's with one worker: CPU time of a sweep, ESS of the log joint.

Run on one core from the root, ``ZOO_DATA`` naming the folder of the sets for the second corpus:
``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false taskset -c 0 python -m
tests.benchmarks.topic_samplers pcp_corpus news4_stemmed``, or one of these; tomotopy 0.14 is needed. Every
figure goes to tests/reference/benchmark_topic_samplers.json as soon as it is known.

Times are process CPU seconds of a sweep, the difference of a long and a short run of `inference.fit` after
compilation, samplers in turns, the least of one or two turns. LDA has the priors lambda = 1/K and eps = 0.1
in all samplers and tomotopy learns none. PCP, which tomotopy has not, is set against the same sweep of LDA.

``--attempts`` measures instead, on the second corpus, a collapsed sweep in double precision with the ways of
drawing that were tried, in turns with tomotopy: the one in use, and others (`attempts`). tomotopy computes in
single precision (its ``Float``), ours in double unless told otherwise.

The log joint is one function for all: of tokens and their topics, parameters integrated out; tomotopy's own
value must agree with ours at its topics. Chains start apart. ``ess`` is the sum over chains of each chain's
own; ``rhat`` says whether they found one mode, without which no sampler's ESS speaks of the posterior.
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
from inference.convergence.r_hat import effective_sample_size, psrf_of
from inference.methods.documents.tokens import Tokens, prepare
from inference.methods.lda import collapsed_gibbs as collapsed_lda
from inference.methods.lda import gibbs as blocked_lda
from tests.benchmarks.topics import seconds_per_step
from tests.tools.recording import add_to_record
from zoo.datasets import load
from zoo.sparse import SparseCounts

__all__ = ["attempts", "corpus", "mixing", "times"]

COMMAND = "python -m tests.benchmarks.topic_samplers pcp_corpus news4_stemmed"
SMOOTHING = 0.1
BARS = {"collapsed_gibbs": 1.5, "gibbs": 5.0}  # sweeps of tomotopy
ESS_BAR = 1.0  # of tomotopy's effective draws by CPU second
IN_USE = "in use: read twice, made once; counts of four bytes; sums in pairs; two changes in one pass"
TURNS = 1
SETTINGS = {  # topics, clusters of PCP, short and long run; chains, warm-up, sweeps kept
    "pcp_corpus": (6, 5, 5, 105, 8, 500, 1500),
    "news4_stemmed": (50, None, 1, 7, 2, 500, 500),
}


def corpus(name):
    """Counts over the words that are there: tomotopy knows no others."""
    counts = load(name)["counts"].tocsr()
    return counts[:, np.flatnonzero(np.asarray(counts.sum(0)).ravel() > 0)]


def tomotopy_model(counts, num_topics, seed):
    """Fixed priors, before the first sweep."""
    import tomotopy

    peer = tomotopy.LDAModel(k=num_topics, alpha=1 / num_topics, eta=SMOOTHING, seed=seed + 1)
    peer.optim_interval = 0
    for row in counts:
        peer.add_doc([str(word) for word in np.repeat(row.indices, row.data.astype(int))])
    peer.train(0, workers=1)
    return peer


def times(counts, num_topics, num_clusters, short, long, turns):
    """CPU seconds of one sweep of each sampler, and in sweeps of tomotopy."""
    peer = tomotopy_model(counts, num_topics, 0)
    models = {"LDA": zoo.LDA(num_topics=num_topics, word_smoothing=SMOOTHING)}
    if num_clusters is not None:
        models["PCP"] = zoo.PCP(num_topics=num_topics, num_clusters=num_clusters, word_smoothing=SMOOTHING)

    def ours(model, method, dtype):
        sampling = {"num_chains": 1, "num_samples": 1, "progress": False, "method": method, "dtype": dtype}
        return lambda sweeps: fit(model, counts, num_warmup=sweeps, **sampling)

    calls = {"tomotopy": lambda sweeps: peer.train(sweeps, workers=1)}
    for name, model in models.items():
        for method in BARS:
            for dtype in ("float64", "float32")[: 2 if name == "LDA" else 1]:
                calls[f"{name}, {method}, {dtype}"] = ours(model, method, dtype)
    taken = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            more = 5 if name == "tomotopy" else 1
            taken[name].append(seconds_per_step(call, short, more * long))
            print(name, taken[name], flush=True)
    seconds = {name: min(values) for name, values in taken.items()}
    ratio = {name: value / seconds["tomotopy"] for name, value in seconds.items()}
    reached = {name: ratio[name] <= BARS[name.split(", ")[1]] for name in ratio if name.startswith("LDA")}
    return {"seconds": seconds, "all turns": taken, "sweeps of tomotopy": ratio, "bar reached": reached}


def attempts(counts, num_topics, turns=3, sweeps=4):
    """CPU seconds of a collapsed sweep by ways of drawing a topic, over those of tomotopy's, in turns.

    Each way differs from the one in use in one thing: two tokens or four in a turn of the loop, numbers
    that are made again where they are read, the width of stored counts, one long sum after the other, and
    single precision, which is tomotopy's.
    """
    ways = {  # whether in double precision, what is changed
        IN_USE: (True, {}),
        "two tokens in a turn": (True, {"jax": _with_scan(partial(jax.lax.scan, unroll=2))}),
        "four tokens in a turn": (True, {"jax": _with_scan(partial(jax.lax.scan, unroll=4))}),
        "made again where it is read": (True, {"_made_once": lambda value: value}),
        "counts of eight bytes": (True, {"COUNT": jnp.int64}),
        "sums one after the other": (True, {"_added_up": lambda terms: sum(terms[1:], terms[0])}),
        "single precision": (False, {}),
    }
    peer = tomotopy_model(counts, num_topics, 0)
    calls = {"tomotopy": lambda: peer.train(1, workers=1)}
    for name, (in_double, changed) in ways.items():
        with (
            jax.enable_x64(in_double),
            patch.multiple(collapsed_lda, **changed) if changed else nullcontext(),
        ):
            model, tokens = _prepared(counts, num_topics)
            state, key = collapsed_lda.init(jax.random.key(0), model, tokens), jax.random.key(1)
            step = jax.jit(lambda *args: collapsed_lda.step(*args)).lower(key, state, model, tokens)
            calls[name] = partial(_swept, in_double, step.compile(), key, state, model, tokens)
    taken = {name: [] for name in calls}
    for _ in range(turns * sweeps):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            taken[name].append(time.process_time() - begin)
    seconds = {name: min(values) for name, values in taken.items()}
    ratio = {name: value / seconds["tomotopy"] for name, value in seconds.items()}
    bar = BARS["collapsed_gibbs"]
    return {"seconds": seconds, "sweeps of tomotopy": ratio, "bar": bar, "reached": ratio[IN_USE] <= bar}


def _prepared(counts, num_topics):
    """The model, and the tokens on the device."""
    model = zoo.LDA.from_data(counts, num_topics=num_topics, word_smoothing=SMOOTHING)
    (tokens,) = prepare(model, (SparseCounts.from_matrix(counts),), None)
    return model, jax.tree.map(jnp.asarray, tokens)


def _with_scan(scan):
    """JAX as a module sees it, with another scan."""
    lax = SimpleNamespace(**vars(jax.lax) | {"scan": scan})
    return SimpleNamespace(**vars(jax) | {"lax": lax})


def _swept(in_double, step, *args):
    with jax.enable_x64(in_double):
        jax.block_until_ready(step(*args))


def mixing(counts, num_topics, num_chains, num_warmup, num_sweeps, seconds, names):
    """ESS of the collapsed log joint, by sweep and by CPU second; ``seconds`` of a sweep from `times`.

    The standard error of an ESS is that of the sum over chains.
    """
    chains = {name: [] for name in ("tomotopy", *names)}
    with jax.enable_x64(True):
        model = _prepared(counts, num_topics)[0]
        for seed in range(num_chains):
            chains["tomotopy"].append(_tomotopy_chain(counts, model, num_warmup + num_sweeps, seed))
    for name in names:
        chain, _, in_double = CHAINS[name]
        with jax.enable_x64(in_double):
            scan = jax.jit(chain, static_argnums=2)
            model, tokens = _prepared(counts, num_topics)
            for seed in range(num_chains):
                found = scan(jax.random.key(seed), model, num_warmup + num_sweeps, tokens)
                chains[name].append(np.asarray(found, dtype=float))
    result = {"sweeps": {"chains": num_chains, "warm-up": num_warmup, "kept": num_sweeps}}
    for name, values in chains.items():
        kept = np.array(values)[:, num_warmup:]
        ess = np.array([effective_sample_size(chain[None], "bulk") for chain in kept])
        second = seconds["tomotopy" if name == "tomotopy" else CHAINS[name][1]]
        result[name] = {
            "mean": kept.mean(1).tolist(),
            "standard deviation": float(kept.std(1).mean()),
            "rhat": psrf_of(kept, "rank"),
            "ess": float(ess.sum()),
            "standard error of ess": float(ess.std(ddof=1) * num_chains**0.5),
            "ess by sweep": float(ess.sum() / kept.size),
            "ess by CPU second": float(ess.sum() / kept.size / second),
        }
    peer = result["tomotopy"]["ess by CPU second"]
    for name in names:
        over = result[name]["ess by CPU second"] / peer
        result[name] |= {"over tomotopy's": over, "bar": ESS_BAR, "reached": over >= ESS_BAR}
    return result


def _blocked_chain(key, model, number, tokens):
    """The collapsed log joint of the tokens' topics after every sweep."""

    def one(values, key):
        swept = blocked_lda.sweep(key, values, model, tokens)
        return swept.values, collapsed_lda.log_joint(swept.drawn.by_document, swept.drawn.by_word, model)

    start = blocked_lda.init(key, model, tokens).values
    return jax.lax.scan(one, start, jax.random.split(key, number))[1]


def _collapsed_chain(key, model, number, tokens):
    def one(state, key):
        state, _ = collapsed_lda.step(key, state, model, tokens)
        return state, state.log_joint

    return jax.lax.scan(one, collapsed_lda.init(key, model, tokens), jax.random.split(key, number))[1]


CHAINS = {  # the chain, its time, whether in double precision
    "gibbs": (_blocked_chain, "LDA, gibbs, float64", True),
    "collapsed_gibbs": (_collapsed_chain, "LDA, collapsed_gibbs, float64", True),
    "collapsed_gibbs, float32": (_collapsed_chain, "LDA, collapsed_gibbs, float32", False),
}


def _tomotopy_chain(counts, model, number, seed):
    peer = tomotopy_model(counts, model.num_topics, seed)
    values = []
    for _ in range(number):
        peer.train(1, workers=1)
        values.append(peer.ll_per_word * peer.num_words)
    documents = peer.docs
    lengths = [len(document.words) for document in documents]
    vocabulary = np.array([int(word) for word in peer.used_vocabs])
    words = vocabulary[np.concatenate([document.words for document in documents])]
    tokens = Tokens(np.repeat(np.arange(len(lengths)), lengths), words, counts.shape)
    topics = np.concatenate([document.topics for document in documents]).astype(int)
    state = collapsed_lda.state_of(jnp.asarray(topics), tokens, model)
    own = float(collapsed_lda.log_joint(state.by_document, state.by_word, model))
    if abs(own - values[-1]) > 1e-4 * abs(own):
        raise ValueError(f"tomotopy's log joint is {values[-1]:.1f}, ours of its topics {own:.1f}")
    return values


def main(wanted):
    """The figures of the corpora that are named, or of the attempts."""
    warnings.filterwarnings("ignore", category=UserWarning)
    if wanted == ["--attempts"]:
        name = "news4_stemmed"
        found = attempts(corpus(name), SETTINGS[name][0])
        title = f"attempts at a collapsed sweep, {name}"
        add_to_record("benchmark_topic_samplers", COMMAND, "tomotopy", **{title: found})
        return
    for name in wanted:
        num_topics, num_clusters, short, long, *sweeps = SETTINGS[name]
        counts = corpus(name)
        begin = time.process_time()
        found = {"shape": counts.shape, "tokens": int(counts.sum()), "topics": num_topics}
        found["clusters of PCP"] = num_clusters
        found["times"] = times(counts, num_topics, num_clusters, short, long, TURNS)
        add_to_record("benchmark_topic_samplers", COMMAND, "tomotopy", **{name: found})
        found["log joint"] = mixing(counts, num_topics, *sweeps, found["times"]["seconds"], list(CHAINS))
        found["CPU seconds in all"] = time.process_time() - begin
        add_to_record("benchmark_topic_samplers", COMMAND, "tomotopy", **{name: found})


if __name__ == "__main__":
    main(sys.argv[1:] or list(SETTINGS))
