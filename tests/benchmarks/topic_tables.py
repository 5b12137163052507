"""Tables 9.1 and 9.2 of Yu (2006) redone with baselines that are given the same care as PCP.

Run from the root, ``ZOO_DATA`` naming the folder of the sets for the texts: ``python -m
tests.benchmarks.topic_tables news4_stemmed reuters5_stemmed drawn``, or some of these. Every figure goes
to tests/reference/topic_tables.json as soon as it is known.

Clusters (Table 9.2): as many as there are classes, NMI with the classes over the larger entropy. Ten
starts a method: their mean, and the start whose own objective is best, a choice that needs no labels.
LDA and pLSI with 10 and 20 topics, k-means (best of ten) on the documents' topic shares; NMF of the counts
under the I-divergence, which is pLSI (a document goes to its largest share); NMF and k-means on tf-idf
weights of unit length. PCP's ten annealed starts on texts are those of tests/reference/topic_bars.json. A
method is ahead where the difference of means, each at its better number of topics, is more than two
standard errors; those are over starts, so that they say nothing of other texts.

Held-out documents (Table 9.1), on corpora drawn from PCP (`load("pcp_corpus", seed=s)`, six topics, five
clusters) and from LDA with as many topics, 270 documents fitted and 30 scored: PCP with 50 clusters, pLSI,
LDA run well (documents restarted and settled, both priors learnt, at once and after ten steps, the higher
bound kept) and carelessly. PCP is fitted from its default start and from a random one: by its bound the
default is to end no lower.
"""

import argparse
import json
import time
import warnings

import numpy as np
from numpyro import handlers
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import TfidfTransformer

import zoo
from inference import fit
from inference.diagnostics import heldout
from inference.topics import cluster_shares, normalised_mutual_information, topic_shares
from tests.benchmarks.topic_bars import known_words
from tests.benchmarks.topics import one_label
from tests.tools.recording import REFERENCE, add_to_record
from zoo.datasets import load

__all__ = ["compared", "drawn_corpora", "scored", "table_of_clusters"]

COMMAND = "python -m tests.benchmarks.topic_tables news4_stemmed reuters5_stemmed drawn"
TEXTS = {"news4_stemmed": 4, "reuters5_stemmed": 5}
STARTS, TOPICS, STEPS = 10, (10, 20), 60
LEARN = ("word_smoothing", "topic_prior")
QUIET = {"num_samples": 1, "progress": False}
HELD_FOR = (0, 10)  # steps before LDA's priors are learnt
DRAWN_TOPICS, CORPORA, CLUSTERS = (6, 20), 2, 50


def objective(tree):
    """The objective at the end."""
    return float(tree["trace"].objective.values.ravel()[-1])


def well_run(num_topics, counts, seed, steps, **options):
    """LDA with both priors learnt at once, and after some steps: the fit with the higher bound."""
    model, fits = zoo.LDA(num_topics=num_topics), []
    common = QUIET | {"seed": seed, "tolerance": 0} | options
    for held in HELD_FOR:
        begin = {}
        if held:
            begin = {"init": fit(model, counts, max_iterations=held, learn=(), **common), "num_restarts": 1}
        fits.append(fit(model, counts, max_iterations=steps - held, learn=LEARN, **common, **begin))
    return max(fits, key=objective)


# Clusters


def k_means(rows, size, seed, starts=10):
    """Labels and inertia of the best of some starts."""
    found = KMeans(size, n_init=starts, random_state=seed).fit(rows)
    return found.labels_, found.inertia_


def table_of_clusters(counts, labels, size, topics, starts, *, with_pcp, **options):
    """NMI of every method with the classes, start by start: the table after each start but the first."""
    weighted = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    found = {}

    began = time.process_time()

    def note(name, clusters, height):
        print(seed, name, f"{time.process_time() - began:.1f} CPU seconds so far", flush=True)
        scores = found.setdefault(name, {"all": [], "objective": []})
        scores["all"].append(float(normalised_mutual_information(labels, clusters)))
        scores["objective"].append(float(height))

    for seed in range(starts):
        common = QUIET | {"seed": seed, "max_iterations": STEPS, "tolerance": 0}
        for number in topics:
            tree = well_run(number, counts, seed, STEPS, **options)
            note(f"LDA + k-means, K = {number}", k_means(topic_shares(tree), size, seed)[0], objective(tree))
            tree = fit(zoo.PLSI(num_topics=number), counts, **common, **options)
            note(f"pLSI + k-means, K = {number}", k_means(topic_shares(tree), size, seed)[0], objective(tree))
            if with_pcp:
                tree = fit(zoo.PCP(num_topics=number, num_clusters=size), counts, **common)
                note(f"PCP, K = {number}", cluster_shares(tree).to_numpy().argmax(1), objective(tree))
        tree = fit(zoo.PLSI(num_topics=size), counts, **common, **options)
        note("NMF of counts", topic_shares(tree).to_numpy().argmax(1), objective(tree))
        factors = NMF(size, init="random", max_iter=300, tol=1e-4, random_state=seed)
        note("NMF of tf-idf", factors.fit_transform(weighted).argmax(1), -factors.reconstruction_err_)
        clusters, inertia = k_means(weighted, size, seed, starts=1)
        note("k-means of tf-idf", clusters, -inertia)
        if seed:
            yield {name: summary(**scores) for name, scores in found.items()}


def summary(all, objective):  # noqa: A002 - the names of the record
    """Mean, deviation, and the start with the best objective."""
    return {
        "mean": float(np.mean(all)),
        "standard deviation": float(np.std(all, ddof=1)),
        "best objective": all[int(np.argmax(objective))],
        "all": all,
    }


def compared(table):
    """PCP less every other method, each at its better number of topics: of means, and of best objectives.

    Args:
        table: of `table_of_clusters`, PCP among the methods.

    Returns:
        By method; ``PCP is`` better or worse where the difference of means is above two standard errors.
    """
    families = {}
    for name, scores in table.items():
        families.setdefault(name.split(", ")[0], []).append(scores)
    best = {name: max(rows, key=lambda row: row["mean"]) for name, rows in families.items()}
    own, result = best.pop("PCP"), {}
    for name, other in best.items():
        difference = own["mean"] - other["mean"]
        parts = (row["standard deviation"] ** 2 / len(row["all"]) for row in (own, other))
        error = sum(parts) ** 0.5
        verdict = "even" if abs(difference) <= 2 * error else "better" if difference > 0 else "worse"
        by_objective = own["best objective"] - other["best objective"]
        result[name] = {
            "difference of means": difference,
            "standard error": error,
            "PCP is": verdict,
            "difference by best objective": by_objective,
        }
    return result


def pcp_on_text(name, topics):
    """PCP's ten annealed starts, as `tests.benchmarks.topic_bars` recorded them."""
    held = json.loads((REFERENCE / "topic_bars.json").read_text(encoding="utf-8"))
    return {
        f"PCP, K = {number}": {
            part: held[f"NMI, {name}, K = {number}"][source]
            for part, source in {
                "mean": "mean",
                "standard deviation": "standard deviation",
                "best objective": "best bound",
                "all": "all",
            }.items()
        }
        for number in topics
    }


# Held-out documents


def drawn_corpora(home):
    """Names, tables and, where there are any, classes of the corpora drawn from PCP or from LDA."""
    model = zoo.LDA(num_topics=6, topic_prior=0.1, word_smoothing=0.05, num_words=200, num_tokens=65)
    for seed in range(CORPORA):
        if home == "PCP":
            data = load("pcp_corpus", seed=seed)
            yield f"from PCP, {seed}", data["counts"], data["labels"]
        else:
            counts = handlers.seed(model, seed)(num_observations=300)
            yield f"from LDA, {seed}", csr_matrix(np.asarray(counts, dtype=float)), None


def scored(train, test, num_topics, seed=0):
    """Perplexities of every model by the three protocols, and objectives per fitted token."""
    common = QUIET | {"seed": seed, "tolerance": 0, "max_iterations": 100}
    lda, pcp = zoo.LDA(num_topics=num_topics), zoo.PCP(num_topics=num_topics, num_clusters=CLUSTERS)
    carried = {"documents": "continue", "inner_steps": 1, "inner_tolerance": 0}
    fits = {
        "LDA": lambda: well_run(num_topics, train, seed, 100),
        "careless LDA (documents carried over, one pass a step)": lambda: fit(
            lda, train, **common, **carried
        ),
        "pLSI": lambda: fit(zoo.PLSI(num_topics=num_topics), train, smoothing=0.01, **common),
        "PCP": lambda: fit(pcp, train, **common),
        "PCP from a random start": lambda: fit(pcp, train, init="random", **common),
    }
    found = {}
    for name, call in fits.items():
        tree = call()
        protocols = ("likelihood", "completion") if name == "pLSI" else ("bound", "likelihood", "completion")
        found[name] = {
            protocol: float(heldout(tree, test, protocol=protocol).perplexity) for protocol in protocols
        }
        found[name]["objective per token"] = objective(tree) / float(train.sum())
    return found


def over_pcp(cases):
    """Perplexity of PCP over that of each LDA and of pLSI: mean over corpora, and how often it is below."""
    result = {}
    for name in cases[0]:
        if name.startswith("PCP"):
            continue
        for protocol in ("bound", "likelihood", "completion"):
            if protocol in cases[0][name]:
                ratios = [case["PCP"][protocol] / case[name][protocol] for case in cases]
                result[f"PCP over {name}, {protocol}"] = {
                    "mean": float(np.mean(ratios)),
                    "below 1": f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}",
                    "all": ratios,
                }
    gains = [
        case["PCP"]["objective per token"] - case["PCP from a random start"]["objective per token"]
        for case in cases
    ]
    result["bound of the default start less that of a random one, nats a token"] = {
        "mean": float(np.mean(gains)),
        "least": float(np.min(gains)),
        "all": gains,
    }
    return result


def drawn(starts):
    """Both tables on drawn corpora."""
    for home in ("PCP", "LDA"):
        for number in DRAWN_TOPICS:
            cases = {}
            for name, counts, _ in drawn_corpora(home):
                cases[name] = scored(*known_words(counts[:270], counts[270:]), number)
                title = f"held out, drawn from {home}, K = {number}, M = {CLUSTERS}"
                note(**{title: cases | {"ratios": over_pcp(list(cases.values()))}})
    for name, counts, labels in drawn_corpora("PCP"):
        for table in table_of_clusters(counts, labels, 5, DRAWN_TOPICS[:1], starts, with_pcp=True):
            note(**{f"clusters, drawn {name}": table | {"PCP less": compared(table)}})


def note(**figures):
    """Put figures into the record."""
    add_to_record("topic_tables", COMMAND, "scikit-learn", **figures)


def main():
    """The parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(TEXTS)}, drawn (default: all)")
    parser.add_argument("--starts", type=int, default=STARTS, help="of every method")
    parser.add_argument("--topics", type=int, nargs="+", default=TOPICS, help="numbers of topics, on texts")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    for name, size in TEXTS.items():
        if name in arguments.parts or not arguments.parts:
            counts, labels = one_label(load(name))
            sizes = size, arguments.topics, arguments.starts
            for own in table_of_clusters(counts, labels, *sizes, with_pcp=False, dtype="float32"):
                table = pcp_on_text(name, arguments.topics) | own
                note(**{f"clusters, {name}": table | {"PCP less": compared(table)}})
    if "drawn" in arguments.parts or not arguments.parts:
        drawn(arguments.starts)


if __name__ == "__main__":
    main()
