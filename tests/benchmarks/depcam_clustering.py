"""Held-out clustering by DEPCAM beside k-means and a Bernoulli mixture (Qiao et al., section VI).

Run ``python -m tests.benchmarks.depcam_clustering PART`` in an environment with the extra ``bench``; PART is
``synthetic`` (offset on or off, latents integrated or maximised, started from k-means and at the true
classes), ``weights`` (repulsion and sparsity apart), ``paper`` (the paper's lambda, no offset, one y a row),
or ``usps``, ``cora`` and ``cora_paper`` (without the offset), which need ``ZOO_DATA``. Every part prints its
figures and writes them into tests/reference/depcam_clustering.json.

Five folds of every draw, the same for all methods. Clusters are matched to classes on the training rows
(Hungarian method) and keep that class on the held-out ones. The paired differences are means of draws (their
five folds averaged), so that their standard errors count draws and not folds.
"""

import json
import os
import platform
import sys
import time
import warnings
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

import zoo
from inference import fit, transform
from zoo.conjugate import BernoulliBeta
from zoo.datasets import load

__all__ = ["accuracies", "compared", "folds_of", "main"]

REFERENCE = Path(__file__).parents[1] / "reference" / "depcam_clustering.json"
NUM_FOLDS = 5
DRAWS = {
    "synthetic": range(10),
    "weights": range(10),
    "paper": range(3),
    "usps": range(5),
    "cora": range(5),
    "cora_paper": range(5),
}
FOLDS = {"cora": 1}  # of the five, where not all are used
SYNTHETIC = {"num_components": 3, "num_latents": 4, "similarity_scale": 0.1}  # K, d, rho of section VI-A
RUN = {"num_restarts": 3, "max_iterations": 200, "tolerance": 1e-4}
SINGLE = RUN | {"num_restarts": 1}  # of sweeps over weights
REAL = {
    # K, d, rho, and xi of section VI-B
    "usps": ({"num_components": 3, "num_latents": 4, "similarity_scale": 0.1}, 0.005),
    "cora": ({"num_components": 2, "num_latents": 7, "similarity_scale": 0.1}, 0.001),
}
REAL_RUN = {
    "usps": {"num_restarts": 1, "max_iterations": 60, "tolerance": 1e-3, "clamped_sweeps": 20},
    "cora": {"num_restarts": 5, "max_iterations": 60, "tolerance": 1e-4, "clamped_sweeps": 40},
    "cora_paper": {"num_restarts": 3, "max_iterations": 25, "tolerance": 1e-3, "clamped_sweeps": 15},
}
EXPECTED = (".*has not converged", "sparsity=0 has no optimum", "em: a guard holds")


def folds_of(num_rows, seed):
    """Five random folds: pairs of training and held-out row numbers, all of one size."""
    parts = np.random.default_rng(seed).permutation(num_rows).reshape(NUM_FOLDS, -1)
    return [(np.sort(np.delete(parts, i, axis=0).ravel()), np.sort(parts[i])) for i in range(NUM_FOLDS)]


def accuracies(train, train_labels, test, test_labels):
    """Shares of training and held-out rows in the class that their cluster has on the training rows."""
    counts = np.zeros((max(train.max(), test.max()) + 1, train_labels.max() + 1))
    np.add.at(counts, (train, train_labels), 1)
    clusters, classes = linear_sum_assignment(-counts)
    class_of = np.full(len(counts), -1)
    class_of[clusters] = classes
    return float(np.mean(class_of[train] == train_labels)), float(np.mean(class_of[test] == test_labels))


def quietly(model, x, **options):
    """A fit without bars; warnings of runs cut short and of zero sparsity are the point of some rows."""
    with warnings.catch_warnings():
        for message in EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        return fit(model, x, progress=False, num_samples=1, **options)


def clusters_of(tree, rows):
    """The most probable component of each row."""
    return transform(tree, rows).to_numpy().argmax(axis=1)


def by_kmeans(train, test, num_clusters):
    """The best of ten starts by its inertia."""
    from sklearn.cluster import KMeans

    found = KMeans(num_clusters, n_init=10, random_state=0).fit(train)
    return found.labels_, found.predict(test)


def by_bernoulli_mixture(train, test, num_clusters):
    """Maximum likelihood, the best of ten k-means starts by its likelihood."""
    model = zoo.Mixture(components=BernoulliBeta.from_data(train), num_components=num_clusters)
    tree = quietly(model, train, method="em", init="kmeans", num_restarts=10, max_iterations=300)
    return clusters_of(tree, train), clusters_of(tree, test)


def by_depcam(train, test, fields, labels=None, **options):
    """Clusters of training and held-out rows, the objective, the share of scales at zero."""
    model = zoo.DEPCAM(num_features=train.shape[1], **fields)
    if labels is not None:
        options |= {"init": {"responsibilities": np.eye(fields["num_components"])[labels]}, "num_restarts": 1}
    tree = quietly(model, train, **options)
    objective = tree["trace"]["objective"].to_numpy()
    responsibilities = tree["variational"]["responsibilities"].to_numpy()
    zeros = float(np.mean(tree["variational"]["scales"].to_numpy() == 0))
    return responsibilities.argmax(axis=1), clusters_of(tree, test), float(np.nanmax(objective)), zeros


def compared(draws, settings, true_labels=False, num_folds=NUM_FOLDS):
    """Figures by method and kind: arrays of shape (draws, folds).

    Args:
        draws: pairs of rows and classes.
        settings: name to fields of `zoo.DEPCAM` and options of its fit.
        true_labels: whether each setting is also started at the true classes.
        num_folds: how many of the five folds are used.
    """
    found = defaultdict(list)
    for number, (x, labels) in enumerate(draws):
        classes, begin = int(labels.max()) + 1, time.perf_counter()
        for train, test in folds_of(len(x), number)[:num_folds]:
            pairs = {"k-means": by_kmeans, "Bernoulli mixture": by_bernoulli_mixture}
            for name, method in pairs.items():
                clusters = method(x[train], x[test], classes)
                found[name].append(accuracies(clusters[0], labels[train], clusters[1], labels[test]))
            for name, (fields, options) in settings.items():
                for start in ("", " from the true classes") if true_labels else ("",):
                    given = labels[train] if start else None
                    own, held_out, *rest = by_depcam(x[train], x[test], fields, given, **options)
                    both = accuracies(own, labels[train], held_out, labels[test])
                    found[name + start].append((*both, *rest))
        print(f"draw {number}: {time.perf_counter() - begin:.0f} s", flush=True)
    what = ("train", "test", "objective", "share_of_scales_at_zero")
    return {
        name: dict(zip(what, np.reshape(np.transpose(own), (-1, number + 1, num_folds)), strict=False))
        for name, own in found.items()
    }


def paired(found, first, second, what="test"):
    """Mean difference over draws with its standard error."""
    away = (found[first][what] - found[second][what]).mean(axis=1)
    return {"mean": float(away.mean()), "standard_error": float(away.std(ddof=1) / len(away) ** 0.5)}


def synthetic_draws(part):
    """Rows and classes of the paper's generated data."""
    for seed in DRAWS[part]:
        drawn = load("binary_prototypes", seed=seed)
        yield drawn["x"], drawn["labels"]


def synthetic():
    """Offset on or off, latents integrated or maximised, at the paper's lambda = 10."""
    settings = {
        f"offset {'on' if offset else 'off'}, latents {how}": (
            SYNTHETIC | {"offset": offset, "repulsion": 10.0, "sparsity": 1.0},
            RUN | {"method": method},
        )
        for offset in (True, False)
        for how, method in (("integrated", "vb"), ("maximised", "em"))
    }
    found = compared(synthetic_draws("synthetic"), settings, true_labels=True)
    differences = {
        f"{name} - {rival}": paired(found, name, rival)
        for name in settings
        for rival in ("k-means", "Bernoulli mixture")
    }
    return found, differences


def weights():
    """Repulsion and sparsity apart, with offset and integrated latents; the paper's lambda has both."""
    pairs = ((0.0, 0.0), (10.0, 0.0), (0.0, 1.0), (10.0, 1.0), (100.0, 10.0))
    settings = {
        f"repulsion {r:g}, sparsity {s:g}": (
            SYNTHETIC | {"repulsion": r, "sparsity": s},
            SINGLE | {"method": "vb"},
        )
        for r, s in pairs
    }
    found = compared(synthetic_draws("weights"), settings)
    base = "repulsion 0, sparsity 0"
    differences = {f"{name} - {base}": paired(found, name, base) for name in settings if name != base}
    repelled, plain = "repulsion 10, sparsity 1", "repulsion 0, sparsity 1"
    differences[f"{repelled} - {plain}"] = paired(found, repelled, plain)
    return found, differences


def paper():
    """For each of the paper's lambdas: no offset, one y for all components, at its best value."""
    weights = {f"lambda {weight:g}": (weight, weight * 0.1) for weight in (0.0, 1.0, 10.0, 100.0)}
    weights |= {"repulsion 10 alone": (10.0, 0.0), "sparsity 1 alone": (0.0, 1.0)}
    settings = {
        name: (
            SYNTHETIC | {"offset": False, "latents": "shared", "repulsion": repulsion, "sparsity": sparsity},
            SINGLE | {"method": "em"},
        )
        for name, (repulsion, sparsity) in weights.items()
    }
    found = compared(synthetic_draws("paper"), settings)
    differences = {f"{name} - lambda 0": paired(found, name, "lambda 0") for name in list(settings)[1:]}
    differences |= {
        f"{name} - k-means, training rows": paired(found, name, "k-means", "train") for name in settings
    }
    return found, differences


def real_draws(name):
    """USPS 2, 3, 4: 200 pictures of each, ink where the grey value is above 127; Cora: 400 papers."""
    held = load("usps_234" if name == "usps" else "cora_two_topics")
    x, labels = held["x"], np.unique(held["labels"], return_inverse=True)[1]
    for seed in DRAWS[name]:
        rng = np.random.default_rng(seed)
        if name == "usps":
            rows = np.concatenate([rng.choice(np.flatnonzero(labels == c), 200, False) for c in range(3)])
            yield (x[rows] > 127).astype(float), labels[rows]
        else:
            rows = rng.choice(len(x), 400, replace=False)
            yield x[rows], labels[rows]


def real(name):
    """At the paper's K, d, xi, rho and lambda = 10."""
    fields, quality = REAL[name.split("_")[0]]
    fields = fields | {"repulsion": 10.0, "sparsity": 10.0 * quality}
    integrated = {"offset on, latents integrated": (fields, REAL_RUN[name] | {"method": "vb"})}
    maximised = {
        "offset off, latents maximised": (fields | {"offset": False}, REAL_RUN[name] | {"method": "em"})
    }
    settings = {"usps": integrated | maximised, "cora": integrated, "cora_paper": maximised}[name]
    found = compared(real_draws(name), settings, num_folds=FOLDS.get(name, NUM_FOLDS))
    return found, {
        f"{setting} - {rival}": paired(found, setting, rival)
        for setting in settings
        for rival in ("k-means", "Bernoulli mixture")
    }


def main(part):
    """Run one part, print it, record it."""
    began = time.process_time()
    found, differences = {"synthetic": synthetic, "weights": weights, "paper": paper}.get(
        part, lambda: real(part)
    )()
    for name, own in found.items():
        figures = ", ".join(f"{what} {np.mean(values):.3f}" for what, values in own.items())
        print(f"{name:<52}{figures}; test by draw {np.round(np.mean(own['test'], axis=1), 3).tolist()}")
    for name, own in differences.items():
        print(f"{name:<75}{own['mean']:+.4f} +- {own['standard_error']:.4f}")
    kept = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
    kept[part] = {
        "command": f"python -m tests.benchmarks.depcam_clustering {part}",
        "draws": len(DRAWS[part]),
        "folds": FOLDS.get(part, NUM_FOLDS),
        "fit": REAL_RUN.get(part, RUN if part == "synthetic" else SINGLE),
        "figures": _rounded(found),
        "paired differences of held-out accuracy": differences,
        "cpu_seconds": round(time.process_time() - began),
        "load": os.getloadavg()[0],
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("numpy", "jax", "numpyro", "scikit-learn")},
    }
    REFERENCE.write_text(json.dumps(kept, indent=1) + "\n")


def _rounded(found):
    """Per draw, folds averaged."""
    return {
        name: {what: np.mean(values, axis=1).round(4).tolist() for what, values in own.items()}
        for name, own in found.items()
    }


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in DRAWS:
        sys.exit(f"name one part: {', '.join(DRAWS)}")
    main(sys.argv[1])
