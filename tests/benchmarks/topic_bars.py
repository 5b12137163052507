"""Topic models on four newsgroups and five Reuters topics, measured against bars and peers.

Parts: ``agreement`` (clusters of PCP against the classes, ten starts each), ``heldout`` (PCP with 200
clusters, from its default start and from LDA's topics, beside LDA with documents restarted and learnt priors,
90/10 splits), ``completion`` (LDA beside scikit-learn's and tomotopy's: five seeds of the fits on one split
of 2000 documents, so that shapes are compiled once, and three corpora that are drawn, 270 and 30 documents).
Run from the root, ``ZOO_DATA`` naming the folder of the
sets; tomotopy 0.14 is needed for the last part:
``python -m tests.benchmarks.topic_bars agreement heldout completion``, or a part, or a set or a fit held out
alone (``completion news4_stemmed``, ``completion pcp_corpus``, ``heldout "PCP from LDA"``). Every figure is
written to tests/reference/topic_bars.json as soon as it is known, beside those of other parts.
"""

import sys
import time
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference import fit
from inference.diagnostics import heldout
from inference.topics import normalised_mutual_information
from inference.topics.text_heldout import split_tokens
from tests.benchmarks.topics import one_label
from tests.tools.recording import add_to_record
from zoo.datasets import load
from zoo.documents.shares import fold_in
from zoo.sparse import SparseCounts

__all__ = ["agreement", "completions", "heldout_scores", "one_split", "over_seeds"]

CLASSES = {"news4_stemmed": 4, "reuters5_stemmed": 5}
DRAWN, CORPORA = "pcp_corpus", 3
STARTS = 10
LEARN = ("word_smoothing", "topic_prior")
QUIET = {"num_samples": 1, "progress": False}
SPLITS = 3
HELD_OUT = {
    "LDA": (zoo.LDA(num_topics=20), {"learn": LEARN}),
    "PCP": (zoo.PCP(num_topics=20, num_clusters=200), {}),
    "PCP from LDA": (zoo.PCP(num_topics=20, num_clusters=200), {"init": "lda"}),
}
PEER_ITERATIONS = 40  # of scikit-learn's batch LDA
PEER_SWEEPS = 1000  # of tomotopy's Gibbs sampler


def agreement(counts, labels, num_clusters, num_topics):
    """NMI of PCP's clusters with the classes and bound, start by start; the best bound's NMI and the mean."""
    model = zoo.PCP(num_topics=num_topics, num_clusters=num_clusters)
    scores, bounds, steps = [], [], []
    for seed in range(STARTS):
        tree = fit(model, counts, max_iterations=100, seed=seed, **QUIET)
        found = tree["variational"].responsibilities.values.argmax(1)
        scores.append(normalised_mutual_information(labels, found))
        bounds.append(float(tree["trace"].objective.values[-1]) / counts.sum())
        steps.append(int(tree.attrs["num_iterations"]))
    best = int(np.argmax(bounds))
    return {
        "best bound": scores[best],
        "mean": float(np.mean(scores)),
        "standard deviation": float(np.std(scores, ddof=1)),
        "all": scores,
        "bound per token": bounds,
        "iterations": steps,
    }


def one_split(counts, seed):
    """Nine tenths of the documents to fit, one tenth held out, over the words that the first have."""
    order = np.random.default_rng(seed).permutation(counts.shape[0])
    held = counts.shape[0] // 10
    return known_words(counts[order[held:]], counts[order[:held]])


def known_words(train, test):
    """Both tables over the words that the first has, without documents that have none of them."""
    known = np.flatnonzero(np.asarray(train.sum(0)).ravel() > 0)
    test, train = test[:, known], train[:, known]
    return train, test[np.asarray(test.sum(1)).ravel() > 0]


def some_documents(counts, number=2000):
    """So many of the documents, drawn once."""
    return counts[np.random.default_rng(0).permutation(counts.shape[0])[:number]]


def heldout_scores(counts, seed, model, options):
    """Perplexity per token by the three protocols of a model that is fitted to nine tenths."""
    train, test = one_split(counts, seed)
    tree = fit(model, train, max_iterations=100, tolerance=0, seed=seed, **QUIET, **options)
    found = {
        protocol: float(heldout(tree, test, protocol=protocol).perplexity)
        for protocol in ("bound", "likelihood", "completion")
    }
    return found | {"objective per token": float(tree["trace"].objective.values.ravel()[-1] / train.sum())}


def splits(model, options, counts, labels, size):
    """`heldout_scores` of some splits; the classes do not matter."""
    return {f"seed {seed}": heldout_scores(counts, seed, model, options) for seed in range(SPLITS)}


def completions(train, test, seed, num_topics=20):
    """Perplexity of the second halves of held-out documents: ours, scikit-learn's, tomotopy's two ways.

    tomotopy's topics are scored with its own shares of the first halves and with variational ones. "ours, as
    scikit-learn" has its fixed priors, 1/K both, and as many iterations; the other learns its priors.
    ``seed`` is of the fits.
    """
    given, scored = split_tokens(SparseCounts.from_matrix(test))

    def perplexity(shares, topics):
        probs = (np.asarray(shares)[scored.document] * np.asarray(topics).T[scored.word]).sum(1)
        return float(np.exp(-(scored.count @ np.log(probs)) / scored.count.sum()))

    def ours(**options):
        model = zoo.LDA(num_topics=num_topics, word_smoothing=options.pop("word_smoothing", 0.1))
        tree = fit(model, train, tolerance=0, seed=seed, **QUIET, **options)
        return {"": float(heldout(tree, test, protocol="completion").perplexity)}

    def scikit_learn():
        return {"": perplexity(*_scikit_learn(train, given, num_topics, seed))}

    def tomotopy():
        own, variational, topics = _tomotopy(train, given, num_topics, seed)
        both = {", own shares": own, ", variational shares": variational}
        return {name: perplexity(shares, topics) for name, shares in both.items()}

    calls = {
        "ours": partial(ours, max_iterations=100, learn=LEARN),
        "ours, as scikit-learn": partial(
            ours, max_iterations=PEER_ITERATIONS, learn=(), word_smoothing=1 / num_topics
        ),
        "scikit-learn": scikit_learn,
        "tomotopy": tomotopy,
    }
    found, seconds = {}, {}
    for name, call in calls.items():
        begin = time.process_time()
        found |= {name + kind: value for kind, value in call().items()}
        seconds[name] = time.process_time() - begin
    best = min(value for name, value in found.items() if not name.startswith("ours"))
    ratio = {
        "ours over the best peer": found["ours"] / best,
        "ours over scikit-learn, same priors and iterations": found["ours, as scikit-learn"]
        / found["scikit-learn"],
    }
    return found | ratio | {"CPU seconds": seconds}


def drawn(seed):
    """`completions` on a drawn corpus, whose documents are short; the seed is of corpus and fits."""
    counts = load(DRAWN, seed=seed)["counts"].astype(float)
    return completions(*known_words(counts[:270], counts[270:]), seed)


def over_seeds(figures, note, seeds=5):
    """The figures seed by seed, each noted as it comes, and the mean of their ratios."""
    found = {}
    for seed in range(seeds):
        found[f"seed {seed}"] = figures(seed)
        names = [name for name in found["seed 0"] if " over " in name]
        found["mean"] = {
            name: float(np.mean([found[f"seed {s}"][name] for s in range(seed + 1)])) for name in names
        }
        note(found)
    return found


def _scikit_learn(train, given, num_topics, seed):
    from sklearn.decomposition import LatentDirichletAllocation

    peer = LatentDirichletAllocation(num_topics, max_iter=PEER_ITERATIONS, random_state=seed).fit(train)
    return peer.transform(given.to_scipy()), peer.components_ / peer.components_.sum(1, keepdims=True)


def _tomotopy(train, given, num_topics, seed):
    """Shares by its own sampler, variational shares, topics over the words of ``train``."""
    import tomotopy

    def words(matrix):
        for row in matrix.tocsr():
            yield [str(word) for word in np.repeat(row.indices, row.data.astype(int))]

    peer = tomotopy.LDAModel(k=num_topics, seed=seed + 1)
    for document in words(train):
        peer.add_doc(document)
    peer.train(PEER_SWEEPS, workers=1)
    topics = np.zeros((num_topics, train.shape[1]))
    columns = [int(word) for word in peer.used_vocabs]
    for number in range(num_topics):
        topics[number, columns] = peer.get_topic_word_dist(number)
    documents = [peer.make_doc(document) for document in words(given.to_scipy())]
    own = np.array(peer.infer(documents, iterations=100, workers=1)[0])
    with jax.enable_x64(True):
        alpha = jnp.asarray(np.asarray(peer.alpha, dtype=float))
        gamma = np.asarray(fold_in(given, jnp.asarray(topics.T), alpha))
    return own, gamma / gamma.sum(1, keepdims=True), topics


def _note(command, peers, title, found):
    add_to_record("topic_bars", command, *peers, **{title: found})


def main(wanted):
    """The figures of the parts and sets that are named (all sets, if none is)."""
    warnings.filterwarnings("ignore", category=UserWarning)
    command = "python -m tests.benchmarks.topic_bars agreement heldout completion"
    parts = {
        "NMI, {}, K = 10": ("agreement", lambda counts, labels, size: agreement(counts, labels, size, 10)),
        "NMI, {}, K = 20": ("agreement", lambda counts, labels, size: agreement(counts, labels, size, 20)),
        "completion, {}, K = 20, 2000 documents": (
            "completion",
            lambda counts, labels, size, note: over_seeds(
                partial(completions, *one_split(some_documents(counts), 0)), note
            ),
        ),
    }
    parts |= {
        f"held out, {{}}, K = 20, M = 200: {name}": ("heldout", partial(splits, *case))
        for name, case in HELD_OUT.items()
        if name in wanted or not wanted & set(HELD_OUT)
    }
    if "completion" in wanted and (DRAWN in wanted or not wanted & set(CLASSES)):
        title = f"completion, {DRAWN}, K = 20, 270 documents"
        over_seeds(drawn, partial(_note, command, ("scikit-learn", "tomotopy"), title), CORPORA)
    for name, size in CLASSES.items():
        if wanted & {*CLASSES, DRAWN} and name not in wanted:
            continue
        for title, (part, figures) in parts.items():
            if part in wanted:
                peers = ("scikit-learn", "tomotopy") if part == "completion" else ()

                note = partial(_note, command, peers, title.format(name))
                given = (note,) if part == "completion" else ()
                note(figures(*one_label(load(name)), size, *given))


if __name__ == "__main__":
    main(set(sys.argv[1:]))
