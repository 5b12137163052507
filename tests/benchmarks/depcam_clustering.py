"""Held-out clustering by DEPCAM beside k-means and a Bernoulli mixture (Qiao et al., section VI).

Run ``python -m tests.benchmarks.depcam_clustering PART`` in an environment with the extra ``bench``; PART is
``synthetic`` (offset on or off, latents integrated or maximised, started from k-means and at the true
classes), ``weights`` (repulsion and sparsity apart), ``paper`` (the paper's lambda, no offset, one y a row),
or ``usps``, ``cora``, ``cora_paper`` (without the offset) and ``cora_starts`` (from single starts of several
kinds), which need ``ZOO_DATA``; or ``lambdas_synthetic``, ``lambdas_usps`` and ``lambdas_cora`` (Figure 4:
the paper's program at four weights of the determinant, from its random starts and from k-means starts),
``sizes``, ``sizes_usps`` and ``sizes_cora`` (Figures 6, 7a, 7b, 7c: the same by number of latents); or
``continuous``: Gaussian cells of unknown noise, where the model is a mixture of PPCAs (Tipping and Bishop
1999), beside k-means, mixtures of Gaussians and the mixture of factor analysers (Ghahramani and Hinton 1996),
on rows drawn from a mixture of PPCAs, its home ground, and on pictures of digits, by held-out density too.
Every part prints its figures and writes them into tests/reference/depcam_clustering.json (``means``: the
means over draws of what it holds).

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
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

import zoo
from inference import fit, log_density, transform
from tests.tools.recording import code_of
from zoo.conjugate import BernoulliBeta
from zoo.datasets import load
from zoo.exponential_family import Gaussian

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
    "cora_starts": range(5),
    "lambdas_synthetic": range(10),
    "lambdas_usps": range(2),
    "lambdas_cora": range(3),
    "sizes": range(5),
    "sizes_usps": range(2),
    "sizes_cora": range(3),
    "continuous": range(5),
}
FOLDS = {
    "cora": 1,
    "cora_starts": 1,
    "lambdas_usps": 3,
    "lambdas_cora": 1,
    "sizes_usps": 3,
    "sizes_cora": 1,
    "continuous": 1,
}  # of the five, where not all are used
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
    "cora_starts": {"num_restarts": 1, "max_iterations": 40, "tolerance": 1e-3, "clamped_sweeps": 15},
    "cora_paper": {"num_restarts": 3, "max_iterations": 25, "tolerance": 1e-3, "clamped_sweeps": 15},
    "lambdas_synthetic": {"num_restarts": 1, "max_iterations": 200, "tolerance": 1e-4},
    "lambdas_usps": {"num_restarts": 1, "max_iterations": 60, "tolerance": 1e-3},
    "lambdas_cora": {"num_restarts": 1, "max_iterations": 40, "tolerance": 1e-3},
    "sizes": {"num_restarts": 1, "max_iterations": 200, "tolerance": 1e-4},
    "sizes_usps": {"num_restarts": 1, "max_iterations": 60, "tolerance": 1e-3},
    "sizes_cora": {"num_restarts": 1, "max_iterations": 40, "tolerance": 1e-3},
}
LAMBDAS = (0.0, 1.0, 10.0, 100.0)
SMALL = 0.1  # of the largest scale of a component: "quite small boxes" of Figure 6
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
    """Clusters of training and held-out rows, the objective, the shares of scales at zero and small."""
    model = zoo.DEPCAM(num_features=train.shape[1], **fields)
    if labels is not None:
        options |= {"init": {"responsibilities": np.eye(fields["num_components"])[labels]}, "num_restarts": 1}
    tree = quietly(model, train, **options)
    objective = tree["trace"]["objective"].to_numpy()
    responsibilities = tree["variational"]["responsibilities"].to_numpy()
    scales = np.abs(tree["variational"]["scales"].to_numpy())
    shares = float(np.mean(scales == 0)), float(np.mean(scales <= SMALL * scales.max(axis=-1, keepdims=True)))
    return responsibilities.argmax(axis=1), clusters_of(tree, test), float(np.nanmax(objective)), *shares


def compared(draws, settings, true_labels=(False,), num_folds=NUM_FOLDS, rivals=True):
    """Figures by method and kind: arrays of shape (draws, folds).

    Args:
        draws: pairs of rows and classes.
        settings: name to fields of `zoo.DEPCAM` and options of its fit.
        true_labels: from which starts each setting runs: its own (False), the true classes (True).
        num_folds: how many of the five folds are used.
        rivals: whether k-means and the Bernoulli mixture run too.
    """
    found = defaultdict(list)
    for number, (x, labels) in enumerate(draws):
        classes, begin = int(labels.max()) + 1, time.perf_counter()
        for train, test in folds_of(len(x), number)[:num_folds]:
            pairs = {"k-means": by_kmeans, "Bernoulli mixture": by_bernoulli_mixture}
            for name, method in pairs.items() if rivals else ():
                clusters = method(x[train], x[test], classes)
                found[name].append(accuracies(clusters[0], labels[train], clusters[1], labels[test]))
            for name, (fields, options) in settings.items():
                for is_true in true_labels:
                    start, given = (" from the true classes", labels[train]) if is_true else ("", None)
                    own, held_out, *rest = by_depcam(x[train], x[test], fields, given, **options)
                    both = accuracies(own, labels[train], held_out, labels[test])
                    found[name + start].append((*both, *rest))
        print(f"draw {number}: {time.perf_counter() - begin:.0f} s", flush=True)
    what = ("train", "test", "objective", "share_of_scales_at_zero", "share_of_small_scales")
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
    found = compared(synthetic_draws("synthetic"), settings, true_labels=(False, True))
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
    held = load("usps_234" if "usps" in name else "cora_two_topics")
    x, labels = held["x"], np.unique(held["labels"], return_inverse=True)[1]
    for seed in DRAWS[name]:
        rng = np.random.default_rng(seed)
        if "usps" in name:
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


def lambdas(part):
    """Figure 4: the paper's program at each weight, from random starts, as in the paper, and from k-means."""
    kind = part.removeprefix("lambdas_")
    fields, quality = (SYNTHETIC, 0.1) if kind == "synthetic" else REAL[kind]
    starts = ("random",) if kind == "cora" else ("random", "kmeans")
    settings = {
        f"lambda {weight:g}, {start} starts": (
            fields
            | {"offset": False, "latents": "shared", "repulsion": weight, "sparsity": weight * quality},
            REAL_RUN[part] | {"method": "em", "init": start},
        )
        for start in starts
        for weight in LAMBDAS
    }
    draws = synthetic_draws(part) if kind == "synthetic" else real_draws(part)
    found = compared(draws, settings, num_folds=FOLDS.get(part, NUM_FOLDS), rivals=False)
    return found, {
        f"lambda {weight:g} - lambda 0, {start} starts": paired(
            found, f"lambda {weight:g}, {start} starts", f"lambda 0, {start} starts"
        )
        for start in starts
        for weight in LAMBDAS[1:]
    }


NUMBERS = {"sizes": (3, 4, 6), "sizes_usps": (3, 4, 6), "sizes_cora": (5, 7, 9)}  # of latents


def sizes(part):
    """Figures 6 and 7: the paper's program without and with the determinant by number of latents."""
    kind, numbers = part.removeprefix("sizes").removeprefix("_"), NUMBERS[part]
    fields, quality = REAL[kind] if kind else (SYNTHETIC, 0.1)
    settings = {
        f"d = {number}, lambda {weight:g}": (
            fields
            | {"num_latents": number, "offset": False, "latents": "shared"}
            | {"repulsion": weight, "sparsity": weight * quality},
            REAL_RUN[part] | {"method": "em", "init": "random"},
        )
        for number in numbers
        for weight in (0.0, 10.0)
    }
    draws = real_draws(part) if kind else synthetic_draws(part)
    found = compared(draws, settings, num_folds=FOLDS.get(part, NUM_FOLDS), rivals=False)
    pairs = [(f"d = {number}, lambda 10", f"d = {number}, lambda 0") for number in numbers]
    fewer, more, most = numbers
    pairs.append((f"d = {fewer}, lambda 10", f"d = {more}, lambda 0"))
    differences = {f"{one} - {other}": paired(found, one, other) for one, other in pairs}
    small = "share_of_small_scales"
    differences[f"d = {most}, lambda 10 - lambda 0, {small}"] = paired(
        found, f"d = {most}, lambda 10", f"d = {most}, lambda 0", small
    )
    return found, differences


UNKNOWN_NOISE = Gaussian(noise_variance=None)
ON_DRAWN_ROWS_ALONE = ("mixture of PPCAs, repulsion 10",)  # minutes a fit on digits
CONTINUOUS = {  # number of components, of latents; of draws
    "drawn": ((3, 2), 5),
    "digits": ((10, 8), 3),
}


def planes(seed):
    """300 rows of 30 columns: three planes of their own directions, whose centres lie inside the spread."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), 100)
    centres = rng.normal(size=(3, 30))
    bases = np.linalg.qr(rng.normal(size=(3, 30, 2)))[0] * 4.0
    latents = rng.normal(size=(300, 2))
    means = centres[labels] + np.einsum("nfi,ni->nf", bases[labels], latents)
    return means + rng.normal(size=(300, 30)), labels


def digits_split(seed):
    """A thousand pictures; pixels that are hardly ever inked are left out, as no density is of a constant."""
    held = load("digits")
    x, labels = held["x"].astype(float), np.asarray(held["labels"])
    rows = np.random.default_rng(seed).permutation(len(x))[:1000]
    return x[rows][:, x.std(axis=0) > 1.0], labels[rows]


def by_mixture_of_ppcas(train, test, sizes, **fields):
    """The best of three k-means starts by its objective."""
    model = zoo.DEPCAM(family=UNKNOWN_NOISE, num_components=sizes[0], num_latents=sizes[1], **fields)
    run = {"num_restarts": 3, "max_iterations": 100, "tolerance": 1e-4}
    tree = quietly(model, train, method="em", init="kmeans", **run)
    own, held_out = clusters_of(tree, train), clusters_of(tree, test)
    return own, held_out, float(log_density(tree, test).mean())


def by_gaussians(train, test, sizes, **options):
    """Maximum likelihood by scikit-learn, the best of three k-means starts."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        found = GaussianMixture(sizes[0], n_init=3, random_state=0, **options).fit(train)
    return found.predict(train), found.predict(test), float(found.score(test))


def factor_analysers(x, responsibilities, num_latents, most=300, tolerance=1e-4):
    """Maximum likelihood of a mixture of factor analysers by EM, diagonal noise that all components share.

    Args:
        x: rows.
        responsibilities: to begin with, shape (rows, components).
        num_latents: of each component.
        most: iterations.
        tolerance: gain in nats per row below which it stops.

    Returns:
        ``score(rows)``: log density of each row in each component, weights included; and the log likelihood
        after each iteration.
    """
    num_rows, num_features = x.shape
    floor = 1e-6 * x.var(axis=0)  # as the ridge of scikit-learn's mixtures
    r, loadings, noise, trace = responsibilities, [], np.zeros(num_features), []
    for own in r.T:
        away = (x - own @ x / own.sum()) * np.sqrt(own / own.sum())[:, None]
        noise += own.sum() / num_rows * np.sum(away**2, axis=0)
        _, d, right = np.linalg.svd(away, full_matrices=False)
        loadings.append(right[:num_latents].T * d[:num_latents])
    noise = np.maximum(noise / 2, floor)
    means = (r.T @ x) / r.sum(axis=0)[:, None]

    def latents_of(rows, w, mean):
        """Posterior means of the latents, their covariance, and the log density of the rows."""
        scaled = w / noise[:, None]
        covariance = np.linalg.inv(np.eye(num_latents) + w.T @ scaled)
        away = rows - mean
        u = away @ scaled @ covariance
        square = np.sum(away**2 / noise, axis=1) - np.sum((away @ scaled) * u, axis=1)
        log_det = np.sum(np.log(noise)) - np.linalg.slogdet(covariance)[1]
        return u, covariance, -0.5 * (square + log_det + num_features * np.log(2 * np.pi))

    def score(rows):
        pairs = zip(loadings, means, strict=True)
        return np.stack([latents_of(rows, *pair)[2] for pair in pairs], axis=1) + np.log(weights)

    for _ in range(most):
        weights = np.maximum(r.mean(axis=0), 1e-12)
        variance, moved = np.zeros(num_features), []
        for own, w, mean in zip(r.T, loadings, means, strict=True):
            u, covariance, _ = latents_of(x, w, mean)
            wide = np.concatenate([u, np.ones((num_rows, 1))], axis=1)
            square = (wide * own[:, None]).T @ wide
            square[:-1, :-1] += own.sum() * covariance
            cross = (x * own[:, None]).T @ wide
            joint = np.linalg.solve(square, cross.T).T
            variance += own @ x**2 - np.sum(joint * cross, axis=1)
            moved.append((joint[:, :-1], joint[:, -1]))
        loadings, means = [w for w, _ in moved], np.array([mean for _, mean in moved])
        noise = np.maximum(variance / num_rows, floor)
        scores = score(x)
        whole = logsumexp(scores, axis=1)
        r = np.exp(scores - whole[:, None])
        trace.append(float(whole.sum()))
        if len(trace) > 1 and trace[-1] - trace[-2] < tolerance * num_rows:
            break
    return score, trace


def by_factor_analysers(train, test, sizes):
    """The best of three k-means starts by its likelihood."""
    from sklearn.cluster import KMeans

    best = None
    for seed in range(3):
        labels = KMeans(sizes[0], n_init=1, random_state=seed).fit(train).labels_
        score, trace = factor_analysers(train, np.eye(sizes[0])[labels], sizes[1])
        if best is None or trace[-1] > best[1]:
            best = score, trace[-1]
    own, held_out = best[0](train), best[0](test)
    return own.argmax(axis=1), held_out.argmax(axis=1), float(logsumexp(held_out, axis=1).mean())


def by_bayesian_gaussians(train, test, sizes):
    """VB with a Wishart prior, the best of three k-means starts: what a prior does for full covariances."""
    model = zoo.Mixture.from_data(train, num_components=sizes[0])
    run = {"num_restarts": 3, "max_iterations": 100, "tolerance": 1e-4}
    tree = quietly(model, train, method="vb", init="kmeans", **run)
    return clusters_of(tree, train), clusters_of(tree, test), float(log_density(tree, test).mean())


CONTINUOUS_METHODS = {
    "mixture of PPCAs": partial(by_mixture_of_ppcas, repulsion=0.0),
    "mixture of PPCAs, repulsion 10": partial(by_mixture_of_ppcas, repulsion=10.0),
    "one PPCA": lambda train, test, sizes: by_mixture_of_ppcas(train, test, (1, sizes[1]), repulsion=0.0),
    "mixture of factor analysers": by_factor_analysers,
    "k-means": lambda train, test, sizes: (*by_kmeans(train, test, sizes[0]), np.nan),
    "Gaussians, full": partial(by_gaussians, covariance_type="full"),
    "Gaussians, full, ridge 1": partial(by_gaussians, covariance_type="full", reg_covar=1.0),
    "Gaussians, tied": partial(by_gaussians, covariance_type="tied"),
    "Gaussians, diagonal": partial(by_gaussians, covariance_type="diag"),
    "Gaussians, full, VB": by_bayesian_gaussians,
}


def continuous():
    """Held-out nats a row and accuracies, one fold a draw; differences to the mixture of PPCAs."""
    found, differences = {}, {}
    for case, (sizes, num_draws) in CONTINUOUS.items():
        for seed in range(num_draws):
            x, labels = planes(seed) if case == "drawn" else digits_split(seed)
            train, test = folds_of(len(x), seed)[0]
            for name, method in CONTINUOUS_METHODS.items():
                if case != "drawn" and name in ON_DRAWN_ROWS_ALONE:
                    continue
                own, held_out, nats = method(x[train], x[test], sizes)
                both = accuracies(own, labels[train], held_out, labels[test])
                kept = found.setdefault(f"{case}: {name}", {"train": [], "test": [], "nats": []})
                for what, value in zip(kept, (*both, nats), strict=True):
                    kept[what].append([value])
                print(case, seed, name, np.round((*both, nats), 3), flush=True)
    found = {
        name: {what: np.array(own) for what, own in figures.items() if np.isfinite(own).all()}
        for name, figures in found.items()
    }
    for case in CONTINUOUS:
        base = f"{case}: mixture of PPCAs"
        for name in CONTINUOUS_METHODS:
            for what in ("test", "nats"):
                rival = f"{case}: {name}"
                if rival != base and what in found.get(rival, ()):
                    differences[f"{base} - {name}, {what}"] = paired(found, base, rival, what)
    return found, differences


def cora_starts():
    """The default program on Cora from single starts of several kinds, and from the true classes."""
    fields, quality = REAL["cora"]
    fields = fields | {"repulsion": 10.0, "sparsity": 10.0 * quality}
    run = REAL_RUN["cora_starts"] | {"method": "vb"}
    settings = {
        "k-means start 1": (fields, run | {"init": "kmeans", "seed": 0}),
        "k-means start 2": (fields, run | {"init": "kmeans", "seed": 1}),
        "hierarchical start": (fields, run | {"init": "hierarchical"}),
    }
    found = compared(real_draws("cora"), settings, num_folds=FOLDS["cora_starts"])
    true = compared(real_draws("cora"), {"start": (fields, run)}, (True,), num_folds=1, rivals=False)
    found["the true classes"] = true["start from the true classes"]
    kinds = {"best of k-means": list(settings)[:2], "best of all three": list(settings)}
    for name, members in kinds.items():  # by the objective, as restarts are chosen
        best = np.argmax([found[own]["objective"] for own in members], axis=0)
        found[name] = {
            what: np.choose(best, [found[own][what] for own in members]) for what in found[members[0]]
        }
    pairs = (("best of all three", "best of k-means"), ("best of all three", "k-means"))
    differences = {f"{one} - {other}": paired(found, one, other) for one, other in pairs}
    for one, other in (("the true classes", "best of k-means"), ("hierarchical start", "k-means start 1")):
        differences[f"{one} - {other}, objective"] = paired(found, one, other, "objective")
    return found, differences


def main(part):
    """Run one part, print it, record it."""
    began = time.process_time()
    parts = {"synthetic": synthetic, "weights": weights, "paper": paper, "continuous": continuous}
    parts |= {"cora_starts": cora_starts}
    parts |= {name: partial(sizes, name) for name in NUMBERS}
    parts |= {name: partial(lambdas, name) for name in DRAWS if name.startswith("lambdas_")}
    found, differences = parts.get(part, lambda: real(part))()
    for name, own in found.items():
        figures = ", ".join(f"{what} {np.mean(values):.3f}" for what, values in own.items())
        print(f"{name:<52}{figures}; test by draw {np.round(np.mean(own['test'], axis=1), 3).tolist()}")
    for name, own in differences.items():
        print(f"{name:<75}{own['mean']:+.4f} +- {own['standard_error']:.4f}")
    kept = json.loads(REFERENCE.read_text()) if REFERENCE.is_file() else {}
    kept[part] = {
        "command": f"python -m tests.benchmarks.depcam_clustering {part}",
        "draws": {case: own[1] for case, own in CONTINUOUS.items()}
        if part == "continuous"
        else len(DRAWS[part]),
        "folds": FOLDS.get(part, NUM_FOLDS),
        "fit": REAL_RUN.get(part, RUN if part == "synthetic" else SINGLE),
        "figures": _rounded(found),
        "paired differences of held-out accuracy": differences,
        "cpu_seconds": round(time.process_time() - began),
        "load": os.getloadavg()[0],
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("numpy", "jax", "numpyro", "scikit-learn")},
        "code": code_of("depcam_clustering"),
    }
    write(kept)


def write(kept):
    """Write the record, with the means over draws of every part."""
    for own in kept.values():
        own["means"] = {
            name: {what: round(float(np.mean(values)), 4) for what, values in figures.items()}
            for name, figures in own["figures"].items()
        }
    REFERENCE.write_text(json.dumps(kept, indent=1) + "\n")


def _rounded(found):
    """Per draw, folds averaged."""
    return {
        name: {what: np.mean(values, axis=1).round(4).tolist() for what, values in own.items()}
        for name, own in found.items()
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["means"]:
        write(json.loads(REFERENCE.read_text()))
    elif len(sys.argv) != 2 or sys.argv[1] not in DRAWS:
        sys.exit(f"name one part: {', '.join(DRAWS)}")
    else:
        main(sys.argv[1])
