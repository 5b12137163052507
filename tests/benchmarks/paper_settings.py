"""Claims of Yu (2006) and one of Virtanen (2010) on their own settings, as far as they fit a few minutes.

Run ``python -m tests.benchmarks.paper_settings PART``; each writes one part of a record in tests/reference:

- ``paper_mixture.json``: ``k_250`` (Table 3.1's last column: the toy, K = 250), ``dying`` (sections 3.3.4 and
  3.4.1: what the bound gains where a component dies), ``dma_tdp`` (sections 3.3.4 and 3.5: do sticks overfit
  more?), ``old_faithful`` (section 3.4.1: the printed log likelihoods);
- ``paper_kernel_pca.json``: ``figure_5_2`` (EM on the toy of Figure 4.2), ``figure_5_3`` (time beside ARPACK,
  Reuters-21578, linear kernel) and ``classification`` (section 5.2.6: the same accuracy by both);
- ``paper_projections.json``: ``table_7_3`` (with names of sets after it), ``figure_6_3`` (Reuters-21578 with
  several topics a document);
- ``paper_topics.json``: ``algorithm_9_1`` (mean field from the start that section 9.2.4 recommends),
  ``table_9_1`` (with a corpus after it: Federalist with M = D and 200, newsgroups and Reuters with M = 200;
  all six K, priors learnt on both sides);
- ``epca_spect.json``: ``figure_9`` of Virtanen (2010), by its own protocol: the variances chosen by
  validation cells at beta = 0, the conjugate prior at beta = 1, then beta varied with both fixed.

Parts on Reuters, faces and SPECT need ``ZOO_DATA``.
"""

import json
import sys
import time
import warnings
from functools import partial

import numpy as np
from scipy.linalg import subspace_angles
from scipy.sparse import csr_matrix

import zoo
from inference import fit, log_density, transform
from inference.diagnostics import heldout
from inference.topics import normalised_mutual_information
from tests.benchmarks.labels import nearest_error
from tests.benchmarks.topic_bars import one_split
from tests.tools.recording import REFERENCE, add_part_to_record
from zoo.conjugate import GaussianWishart
from zoo.datasets import load

ALPHAS = (1, 10, 100, 1000, 10000)
FORMS = {
    "DMA": {},
    "TDP": {"weight_prior": "stick_breaking"},
    "TDP, free last stick": {"weight_prior": "stick_breaking", "free_last_stick": True},
}


def quiet(model, *data, **options):
    """A fit without bars; short truncations, plateaus and floors are the thesis's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return fit(model, *data, progress=False, **options)


def mean_and_error(values):
    """Mean and its standard error."""
    values = np.asarray(values, float)
    return {
        "mean": round(float(values.mean()), 5),
        "standard_error": round(float(values.std(ddof=1) / len(values) ** 0.5), 5),
    }


# Mixtures


def by_the_thesis(x, size, alpha, seed=0, num_restarts=1, mean_precision=0.01, **fields):
    """VB as printed: beta0, nu0 = 2, random responsibilities, components left where they are."""
    components = GaussianWishart.from_data(x, mean_precision=mean_precision)
    model = zoo.Mixture(components=components, num_components=size, concentration=float(alpha), **fields)
    run = {"tolerance": 1e-7, "max_iterations": 1500, "num_samples": 1, "sort_sticks": False}
    return quiet(model, x, init="random", num_restarts=num_restarts, seed=seed, moves=(), **run)


def k_250():
    """Occupied components of the toy at K = N = 250: five starts on one draw."""
    x, found = load("toy_gaussians", seed=0)["x"], {}
    for name, fields in FORMS.items():
        for alpha in ALPHAS:
            tree = by_the_thesis(x, 250, alpha, num_restarts=5, **fields)
            counts = np.atleast_1d(
                tree["trace"].get("num_occupied_at_end", tree["trace"]["num_occupied"][-1])
            )
            found.setdefault(name, {})[f"alpha={alpha}"] = float(counts.mean())
            print(name, alpha, counts, flush=True)
    return found


def deaths(tree):
    """Gains of the bound at the iterations where the number of occupied components falls, and nearby."""
    objective = tree["trace"]["objective"].to_numpy().ravel()
    occupied = tree["trace"]["num_occupied"].to_numpy().ravel()
    gain, falls = np.diff(objective), np.diff(occupied) < 0
    own, ratio = [], []
    for at in np.flatnonzero(falls):
        near = np.arange(max(at - 10, 0), min(at + 11, len(gain)))
        near = near[~falls[near]]
        if len(near):
            own.append(gain[at])
            ratio.append(gain[at] / max(np.median(gain[near]), 1e-12))
    return own, ratio


def dying():
    """Settings of Figures 3.3 (toy, alpha = 1) and 3.6 (Old Faithful, K = 272, alpha = 100)."""
    toys = {f"toy, K = {size}": (size, 1, 0.01) for size in (10, 50, 250)}
    cases = toys | {"Old Faithful, K = 272": (272, 100, 0.1)}
    found = {}
    for name, (size, alpha, precision) in cases.items():
        gains, ratios = [], []
        for seed in range(4):
            x = load("faithful")["x"] if "Old" in name else load("toy_gaussians", seed=seed)["x"]
            more = deaths(by_the_thesis(x, size, alpha, seed=seed, mean_precision=precision))
            gains, ratios = gains + more[0], ratios + more[1]
        found[name] = {
            "deaths": len(gains),
            "least gain, nats": round(float(np.min(gains)), 6),
            "median gain, nats": round(float(np.median(gains)), 4),
            "share above the median of the iterations around": round(float(np.mean(np.array(ratios) > 1)), 3),
            "median ratio to the iterations around": round(float(np.median(ratios)), 3),
        }
        print(name, found[name], flush=True)
    return found


def dma_tdp():
    """Nats a row: the fitted rows less held-out ones (overfitting), and held out, on the toy; ten draws."""
    found = {}
    for size, alpha in ((20, 1), (20, 10)):
        gaps, scores = {}, {}
        for seed in range(10):
            x, new = (load("toy_gaussians", seed=s)["x"] for s in (seed, seed + 1000))
            for name, fields in FORMS.items():
                tree = by_the_thesis(x, size, alpha, seed=seed, num_restarts=5, **fields)
                own, other = (float(log_density(tree, rows).mean()) for rows in (x, new))
                gaps.setdefault(name, []).append(own - other)
                scores.setdefault(name, []).append(other)
        for name in list(FORMS)[1:]:
            away = {
                "overfitting": np.subtract(gaps[name], gaps["DMA"]),
                "held out": np.subtract(scores[name], scores["DMA"]),
            }
            found[f"K={size}, alpha={alpha}: {name} less DMA"] = {
                what: mean_and_error(own) for what, own in away.items()
            }
        found[f"K={size}, alpha={alpha}"] = {
            name: {
                "overfitting": round(float(np.mean(gaps[name])), 5),
                "held out": round(float(np.mean(scores[name])), 5),
            }
            for name in FORMS
        }
        print(found, flush=True)
    return found


def old_faithful():
    """Bounds at K = 272, beta0 = 0.1, nu0 = 2 by three readings of W0; four starts."""
    x = load("faithful")["x"]
    own = GaussianWishart.from_data(x, mean_precision=0.1)
    precision = np.linalg.inv(np.cov(x.T, bias=True))
    readings = {
        "S^-1 / (beta0 nu0)": own.scale_matrix,
        "S^-1 / beta0": precision / 0.1,
        "S^-1": precision,
    }
    found = {}
    for name, scale in readings.items():
        components = own.replaced(scale_matrix=np.asarray(scale))  # nu0 = 2, the number of columns
        for alpha in (100, 500, 1000):
            model = zoo.Mixture(components=components, num_components=272, concentration=float(alpha))
            run = {"tolerance": 1e-7, "max_iterations": 1500, "num_samples": 1, "moves": ()}
            tree = quiet(model, x, init="random", num_restarts=4, **run)
            counts = np.atleast_1d(tree["trace"]["num_occupied_at_end"])
            found[f"{name}, alpha={alpha}"] = {
                "bound": round(float(np.nanmax(tree["trace"]["objective"])), 2),
                "components": float(counts.mean()),
            }
            print(name, alpha, found[f"{name}, alpha={alpha}"], flush=True)
    return found


# Kernel PCA


def clusters(seed, each=30):
    """The toy of Figure 4.2: three round Gaussians, standard deviation 0.1, at the printed means."""
    centres = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
    return np.repeat(centres, each, axis=0) + 0.1 * np.random.default_rng(seed).normal(size=(3 * each, 2))


def centred(gram):
    """About the mean row of the feature space."""
    gram = gram - gram.mean(axis=0)
    return gram - gram.mean(axis=1)[:, None]


def figure_5_2():
    """Largest angle between EM's three components and NumPy's eigenvectors, random starts, s2 = 0.01."""
    found = {"20": [], "100": []}
    for seed in range(10):
        x = clusters(seed)
        square = np.sum((x[:, None] - x) ** 2, axis=-1)
        vectors = np.linalg.eigh(centred(np.exp(-10.0 * square)))[1][:, ::-1][:, :3]
        model = zoo.KernelPCA(
            num_latents=3, kernel=zoo.kernels.RBF(float(np.sqrt(1 / 20))), noise_variance=0.01
        )
        for sweeps, angles in found.items():
            tree = quiet(
                model, x, method="em", init="random", max_iterations=int(sweeps), tolerance=0.0, seed=seed
            )
            angles.append(float(subspace_angles(transform(tree, x).to_numpy(), vectors)[0]))
    return {
        f"largest angle after {sweeps} sweeps, rad": {
            "median": round(float(np.median(own)), 8),
            "worst of ten": round(float(np.max(own)), 8),
        }
        for sweeps, own in found.items()
    }


def tf_idf(counts):
    """Rows of TF-IDF of unit length."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer().fit_transform(counts)


def figure_5_3():
    """CPU seconds of twenty sweeps of EM and of ARPACK on the centred Gram matrix of Reuters' TF-IDF rows."""
    from scipy.sparse.linalg import eigsh

    counts, found = csr_matrix(load("reuters21578")["counts"]), {}
    for rows, size in ((3000, 10), (3000, 50), (3000, 100), (1000, 50), (2000, 50)):
        order = np.random.default_rng(0).permutation(counts.shape[0])[:rows]
        x = tf_idf(counts[order])
        gram = centred((x @ x.T).toarray())
        begin = time.process_time()
        eigsh(gram, k=size)
        arpack = time.process_time() - begin
        seconds = time_of_em(gram, size)
        found[f"N = {rows}, K = {size}"] = {
            "arpack": round(arpack, 3),
            "em, 20 sweeps": round(seconds, 3),
            "em over arpack": round(seconds / arpack, 3),
        }
        print(found, flush=True)
    return found


def time_of_em(gram, size):
    """CPU seconds of twenty sweeps as Algorithm 5.1 prints them, in NumPy, as no fit is around the peer."""
    z = np.random.default_rng(0).normal(size=(len(gram), size))
    begin, noise = time.process_time(), 0.01
    second = z.T @ z
    for _ in range(20):
        b = np.linalg.solve(second, z.T).T
        product = gram @ b
        inverse = np.linalg.inv(b.T @ product + noise * np.eye(size))
        z = product @ inverse
        second = len(gram) * noise * inverse + z.T @ z
    return time.process_time() - begin


def classification():
    """Nearest neighbours on K components of digits by EM (20 sweeps) and the eigensolver; ten splits."""
    held = load("digits")
    x, labels = held["x"].astype(float), np.asarray(held["labels"])
    x, found = x[:, x.std(axis=0) > 0], {}
    for size in (10, 50):
        model = zoo.KernelPCA(num_latents=size, kernel="linear", noise_variance=0.01)
        run = {"method": "em", "init": "random", "max_iterations": 20, "tolerance": 0.0}
        trees = [quiet(model, x, **own) for own in (run, {"method": "closed_form"})]
        scores = [transform(tree, x).to_numpy() for tree in trees]
        errors = []
        for seed in range(10):
            labelled = np.random.default_rng(seed).permutation(len(x))[: len(x) // 2]
            errors.append([nearest_error(own, labels, labelled) for own in scores])
        errors = np.array(errors)
        found[f"K = {size}"] = {
            "error by EM": round(float(errors[:, 0].mean()), 5),
            "error by the eigensolver": round(float(errors[:, 1].mean()), 5),
            "difference": mean_and_error(errors[:, 0] - errors[:, 1]),
            "largest angle of the subspaces, rad": round(float(subspace_angles(*scores)[0]), 5),
        }
    return found


# Projections

SETS = {  # labelled rows of each class, splits (50 in the thesis), numbers of latents
    "orl": (2, 4, (5, 10, 20)),
    "yale": (2, 4, (5, 10, 20)),
    "tumors": (2, 4, (20,)),
    "yaleb": (5, 2, (20,)),
    "pie": (5, 2, (20,)),
}


def projections_of(x, labels, labelled, size, known):
    """Scores by method; PCA and PPCA see no label, S2PPCA all rows, the others the labelled rows alone."""
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    found = dict(known)
    own, codes = x[labelled], np.eye(labels.max() + 1)[labels[labelled]]
    most = min(size, labels.max())
    found["LDA"] = LinearDiscriminantAnalysis(n_components=most).fit(own, labels[labelled]).transform(x)
    found["PLS"] = PLSRegression(min(size, len(own) - 1), scale=False).fit(own, codes).transform(x)
    partly = np.full((len(x), codes.shape[1]), np.nan)
    partly[labelled] = codes
    model = zoo.SPPCA(num_latents=min(size, len(own) - 1))
    found["SPPCA"] = transform(quiet(model, own, codes, method="closed_form"), x).to_numpy()
    model = zoo.SPPCA(num_latents=size)
    found["S2PPCA"] = transform(quiet(model, x, partly, method="em"), x).to_numpy()
    return found


def table_7_3(name):
    """Errors of one nearest neighbour by method at the sizes, and paired differences at K = 20."""
    held = load(name)
    x, labels = held["x"].astype(float), np.unique(np.asarray(held["labels"]), return_inverse=True)[1]
    if name in ("orl", "yale", "yaleb", "pie"):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    x = x[:, x.std(axis=0) > 1e-9 * x.std()]
    per_class, splits, sizes = SETS[name]
    left, lengths, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    errors = {}
    for size in sizes:
        ppca = transform(quiet(zoo.PPCA(num_latents=size), x, method="closed_form"), x).to_numpy()
        known = {"PCA": (left * lengths)[:, :size], "PPCA": ppca}
        for split in range(splits):
            rng = np.random.default_rng(split)
            labelled = np.concatenate(
                [
                    rng.choice(np.flatnonzero(labels == c), min(per_class, np.sum(labels == c) - 1), False)
                    for c in range(labels.max() + 1)
                ]
            )
            for method, scores in projections_of(x, labels, labelled, size, known).items():
                own = nearest_error(scores, labels, labelled)
                errors.setdefault(f"K={size}", {}).setdefault(method, []).append(own)
            if size == sizes[0]:
                errors.setdefault("FULL", []).append(nearest_error(x, labels, labelled))
        print(name, size, {m: round(np.mean(v), 4) for m, v in errors[f"K={size}"].items()}, flush=True)
    last = {method: np.array(own) for method, own in errors[f"K={sizes[-1]}"].items()}
    pairs = (
        ("S2PPCA", "PPCA"),
        ("S2PPCA", "PCA"),
        ("S2PPCA", "PLS"),
        ("SPPCA", "PLS"),
        ("SPPCA", "LDA"),
        ("S2PPCA", "LDA"),
    )
    return {
        "rows, columns, classes": [*x.shape, int(labels.max()) + 1],
        "labelled rows of a class": per_class,
        "splits": splits,
        "FULL": round(float(np.mean(errors.pop("FULL"))), 4),
        "errors": {
            size: {m: round(float(np.mean(v)), 4) for m, v in own.items()} for size, own in errors.items()
        },
        "K=20, differences": {
            f"{one} - {other}": mean_and_error(last[one] - last[other]) for one, other in pairs
        },
    }


def reuters_of_several_topics():
    """Documents of several topics that have at least 50 documents, words of at least five of them."""
    held = load("reuters21578")
    counts, y = csr_matrix(held["counts"]), np.asarray(held["y"])
    topics = np.flatnonzero(y.sum(axis=0) >= 50)
    kept = np.flatnonzero(y[:, topics].sum(axis=1) > 1)
    counts = counts[kept]
    counts = counts[:, np.asarray((counts > 0).sum(axis=0)).ravel() >= 5]
    return tf_idf(counts).toarray(), y[kept][:, topics].astype(float)


def scores_of_labels(train, test, train_y, test_y):
    """Macro F1 and mean AUC of a linear SVM for each label."""
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.svm import LinearSVC

    f1, auc = [], []
    for own, other in zip(train_y.T, test_y.T, strict=True):
        if own.sum() == 0 or other.sum() in (0, len(other)):
            continue
        svm = LinearSVC(C=100.0, dual="auto", max_iter=5000).fit(train, own)
        f1.append(f1_score(other, svm.predict(test), zero_division=0.0))
        auc.append(roc_auc_score(other, svm.decision_function(test)))
    return float(np.mean(f1)), float(np.mean(auc))


def figure_6_3(size=50, repeats=2):
    """Setting I (labels seen by the projection) and II (new labels) with one fold in five for training."""
    x, y = reuters_of_several_topics()
    found = {}
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        order, topics = rng.permutation(len(x)), rng.permutation(y.shape[1])
        train, test = order[: len(x) // 5], order[len(x) // 5 :]
        seen, new = np.split(topics, [int(0.7 * len(topics))])
        seen = seen[y[train][:, seen].any(axis=0)]  # without an example there is nothing to learn
        kernel = zoo.SPPCA(num_latents=size, kernel="linear")
        known = x[:, x[train].std(axis=0) > 0]  # other words meet no word of the fitted rows
        data = known[train], y[train][:, seen]
        unsupervised = zoo.KernelPCA(num_latents=size, kernel="linear", noise_variance=1e-6)
        trees = {
            "kernel PCA": quiet(unsupervised, data[0]),
            "MORP": quiet(kernel, *data, method="morp", form="simplified", weight=0.5),
            "kernel CCA": quiet(
                zoo.SPPCA(num_latents=min(size, len(seen) - 1), kernel="linear"),
                *data,
                method="kernel_cca",
                ridge=0.9,
            ),
        }
        projected = {"original": x} | {
            name: transform(tree, known).to_numpy() for name, tree in trees.items()
        }
        inner = rng.permutation(len(test))
        again, rest = test[inner[: len(test) // 5]], test[inner[len(test) // 5 :]]
        for name, own in projected.items():
            own = own / own[train].std()
            first = scores_of_labels(own[train], own[test], y[train][:, seen], y[test][:, seen])
            second = scores_of_labels(own[again], own[rest], y[again][:, new], y[rest][:, new])
            for setting, scores in (("I", first), ("II", second)):
                for what, value in zip(("F1", "AUC"), scores, strict=True):
                    found.setdefault(f"setting {setting}, {what}", {}).setdefault(name, []).append(value)
        print(seed, {k: {m: round(np.mean(v), 3) for m, v in own.items()} for k, own in found.items()})
    result = {
        title: {name: round(float(np.mean(v)), 4) for name, v in own.items()} for title, own in found.items()
    }
    for title, own in found.items():
        for rival in ("kernel PCA", "kernel CCA", "original"):
            away = mean_and_error(np.subtract(own["MORP"], own[rival]))
            result[title][f"MORP - {rival}"] = away
    return {"documents, words, topics": [*x.shape, y.shape[1]], "K": size, "repeats": repeats} | result


# Topics


def algorithm_9_1():
    """Mean field from pLSI's projection (9.2.4), best bound of four starts, five drawn corpora, M = 5."""
    found = {"mean field, from pLSI": [], "mean field, random": [], "structured": []}
    runs = {
        "mean field, from pLSI": {"family": "mean_field", "init": "plsi"},
        "mean field, random": {"family": "mean_field", "init": "random"},
        "structured": {"family": "structured"},
    }
    bounds = {name: [] for name in found}
    for corpus in range(5):
        held = load("pcp_corpus", seed=corpus)
        for name, options in runs.items():
            model = zoo.PCP(num_topics=6, num_clusters=5)
            tree = quiet(
                model, held["counts"], num_restarts=4, max_iterations=300, num_samples=1, seed=0, **options
            )
            clusters_of = tree["variational"]["responsibilities"].values.argmax(axis=1)
            found[name].append(round(float(normalised_mutual_information(held["labels"], clusters_of)), 3))
            bounds[name].append(round(float(np.nanmax(tree["trace"]["objective"])), 2))
        print(corpus, {name: own[-1] for name, own in found.items()}, flush=True)
    return {"NMI": found, "bounds": bounds} | {
        f"mean NMI, {name}": round(float(np.mean(own)), 3) for name, own in found.items()
    }


def table_9_1(name):
    """Perplexity of a tenth of a corpus by the bound, recorded after every K; goes on where it stopped."""
    part = f"table_9_1 {name}"
    counts, found = csr_matrix(load(name)["counts"]), held_part("paper_topics", part)
    is_small = counts.shape[0] < 200
    for size in (5, 10, 20, 30, 40, 50):
        if f"K={size}" in found:
            continue
        own = found[f"K={size}"] = {}
        for seed in range(2 if is_small else 1):
            train, test = one_split(counts, seed)
            both = {"learn": ("word_smoothing", "topic_prior")}
            models = {
                "pLSI": (zoo.PLSI(num_topics=size), {}),
                "LDA": (zoo.LDA(num_topics=size), both),
            }
            for clusters in (train.shape[0], 200) if is_small else (200,):
                learn = {"learn": (*both["learn"], "concentration")}
                model = zoo.PCP(num_topics=size, num_clusters=clusters)
                models["PCP, M = D" if clusters == train.shape[0] else f"PCP, M = {clusters}"] = model, learn
            for model_name, (model, options) in models.items():
                tree = quiet(model, train, max_iterations=100, seed=seed, num_samples=1, **options)
                protocol = "likelihood" if model_name == "pLSI" else "bound"
                perplexity = float(heldout(tree, test, protocol=protocol).perplexity)
                own.setdefault(model_name, []).append(round(perplexity, 1))
        print(size, own, flush=True)
        at_k = [v for k, v in found.items() if k.startswith("K=")]
        found |= {"documents, words": [*counts.shape]} | {
            f"{rival} over LDA, mean over K": round(
                float(np.mean([np.mean(v[rival]) / np.mean(v["LDA"]) for v in at_k])), 4
            )
            for rival in own
            if rival != "LDA"
        }
        add_part_to_record("paper_topics", part, command_of(part), "scipy", "scikit-learn", **found)
    return found


# Cells of an exponential family

BETAS = tuple(np.linspace(0, 1, 11).round(1).tolist())
VARIANCES = tuple(10.0**power for power in (-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2))  # products, printed: 0.1
KERNELS = [(share * nu, nu) for nu in (0.05, 0.1, 0.2, 0.4, 0.8) for share in (0.3, 0.4, 0.5)]


def imputed(x, hidden, judged, beta, variance, kernel):
    """Nats a cell of the judged cells at the mode without the hidden ones; one latent, no mean."""
    model = zoo.EPCA(
        family="bernoulli",
        num_latents=1,
        beta=beta,
        latent_variance=variance,
        loc_variance=1e-4,
        conjugate=kernel if beta else None,
        num_features=x.shape[1],
    )
    given = np.where(hidden, np.nan, x)
    point = quiet(model, given, method="map", max_iterations=5000, tolerance=1e-8)["posterior"]
    point = point.isel(chain=0, draw=0)
    theta = point["latents"].to_numpy() @ point["loadings"].to_numpy().T + point["loc"].to_numpy()
    return float((x * theta - np.logaddexp(0, theta))[judged].mean())


def figure_9(num_masks=10):
    """Fifteen per cent of SPECT hidden to judge by, as many others to choose by; ten masks."""
    x, curves, chosen = load("spect")["x"].astype(float), [], []
    for seed in range(num_masks):
        drawn = np.random.default_rng(seed).random(x.shape)
        test, validation = drawn < 0.15, (drawn >= 0.15) & (drawn < 0.3)
        both = test | validation
        variance = max(VARIANCES, key=lambda own: imputed(x, both, validation, 0.0, own, KERNELS[0]))
        kernel = max(KERNELS, key=lambda own: imputed(x, both, validation, 1.0, variance, own))
        chosen.append([round(own, 3) for own in (variance, *kernel)])
        curves.append([imputed(x, test, test, beta, variance, kernel) for beta in BETAS])
        print(seed, chosen[-1], np.round(curves[-1], 4), flush=True)
    curves = np.array(curves)
    mean = curves.mean(axis=0).round(5).tolist()
    middle = 1 + int(np.argmax(mean[1:-1]))
    ends = {f"over beta {BETAS[end]:g}": end for end in (0, -1)}
    return {
        "masks": num_masks,
        "chosen: product of variances, lam, nu": chosen,
        "nats_per_cell": {f"beta {beta:g}": own for beta, own in zip(BETAS, mean, strict=True)},
        "best beta of each mask": [BETAS[own] for own in curves.argmax(axis=1)],
        "gain of beta 0.4": {
            name: mean_and_error(curves[:, BETAS.index(0.4)] - curves[:, end]) for name, end in ends.items()
        },
        "best intermediate beta": BETAS[middle],
        "gain of the best intermediate beta": {
            name: mean_and_error(curves[:, middle] - curves[:, end]) for name, end in ends.items()
        },
    }


def held_part(record, part):
    """The figures of a part for each K that is recorded already."""
    held = json.loads((REFERENCE / f"{record}.json").read_text()).get(part, {})
    return {name: own for name, own in held.items() if name.startswith("K=")}


def command_of(part):
    """The command that makes a part."""
    return f"python -m tests.benchmarks.paper_settings {part}"


PARTS = {
    "k_250": ("paper_mixture", k_250),
    "dying": ("paper_mixture", dying),
    "dma_tdp": ("paper_mixture", dma_tdp),
    "old_faithful": ("paper_mixture", old_faithful),
    "figure_5_2": ("paper_kernel_pca", figure_5_2),
    "figure_5_3": ("paper_kernel_pca", figure_5_3),
    "classification": ("paper_kernel_pca", classification),
    "figure_6_3": ("paper_projections", figure_6_3),
    "algorithm_9_1": ("paper_topics", algorithm_9_1),
    "figure_9": ("epca_spect", figure_9),
}
PARTS |= {f"table_7_3 {name}": ("paper_projections", partial(table_7_3, name)) for name in SETS}
TEXTS = ("federalist", "reuters5_stemmed", "news4_stemmed")
PARTS |= {f"table_9_1 {name}": ("paper_topics", partial(table_9_1, name)) for name in TEXTS}


def main(part):
    """Run one part, print it, record it."""
    record, figures = PARTS[part]
    began = time.process_time()
    found = figures()
    command = command_of(part)
    own = found | {"cpu_seconds": round(time.process_time() - began, 1)}
    print(part, own)
    add_part_to_record(record, part, command, "scipy", "scikit-learn", **own)


if __name__ == "__main__":
    wanted = " ".join(sys.argv[1:])
    if wanted not in PARTS:
        sys.exit(f"name one part: {', '.join(PARTS)}")
    main(wanted)
