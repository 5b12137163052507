"""Claims of Yu (2006) and one of Virtanen (2010) on their own settings, as far as they fit a few minutes.

Run ``python -m tests.benchmarks.paper_settings PART``; each writes one part of a record in tests/reference:

- ``paper_mixture.json``: ``k_250`` (Table 3.1's last column: the toy, K = 250), ``dying`` (sections 3.3.4 and
  3.4.1: what the bound gains where a component dies), ``dma_tdp`` (sections 3.3.4 and 3.5: do sticks overfit
  more?), ``old_faithful`` (section 3.4.1: the printed log likelihoods);
- ``paper_kernel_pca.json``: ``figure_5_2`` (EM on the toy of Figure 4.2), ``figure_5_3`` (time beside ARPACK,
  Reuters-21578, linear kernel) and ``classification`` (section 5.2.6: the same accuracy by both);
- ``paper_projections.json``: ``table_7_3`` and ``table_7_4`` (with names of sets after them), ``figure_6_3``,
  ``figure_6_4`` (RCV1, of which 500 terms are held) and ``figure_6_6`` (Reuters-21578 with several topics a
  document; the weight of the outputs, and the ridge of section 6.2.3), ``thousand_iterations`` (EM as section
  7.4.2 has it), ``eigenfaces`` and ``seven_dimensions`` (Morrison 2016);
- ``paper_topics.json``: ``algorithm_9_1`` (mean field from the start that section 9.2.4 recommends, on
  drawn corpora; with a corpus after it on text), ``dying_documents`` (section 9.1.4: what the bound gains
  where a cluster goes), ``figure_9_3`` (the case study on newsgroups), ``table_9_1``
  (with a corpus after it, and with the numbers of topics if not all six are wanted: Federalist with M = D and
  200; newsgroups and Reuters with M = 200, and with M = D and alpha = 1 by our family, at K = 5 and 50 with
  alpha learnt too, at K = 20 also by Algorithm 9.1 from pLSI, stopped as section 9.3.2 has it; the other
  priors learnt on both sides),
  ``figure_9_4`` (with a corpus after it: classes told from ten topics, of PCP by our family and by
  Algorithm 9.1 from pLSI);
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
from scipy.linalg import eigh, subspace_angles
from scipy.sparse import csr_matrix, issparse

import zoo
from inference import fit, log_density, transform
from inference.diagnostics import heldout
from inference.topics import normalised_mutual_information, token_shares, topic_shares
from tests.benchmarks.labels import nearest_error
from tests.benchmarks.topic_bars import one_split
from tests.benchmarks.topics import one_label
from tests.tools.recording import REFERENCE, add_part_to_record, mean_and_error
from zoo.conjugate import GaussianWishart
from zoo.datasets import load

ALPHAS = (1, 10, 100, 1000, 10000)
FORMS = {
    "DMA": {},
    "TDP": {"weight_prior": "stick_breaking"},
    "TDP, free last stick": {"weight_prior": "stick_breaking", "free_last_stick": True},
}


def quiet(model, *data, **options):
    """A fit without bars; short truncations, plateaus and floors are the thesis's.

    Raises:
        KeyboardInterrupt: the fit was interrupted: what it returns is not to be recorded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(model, *data, progress=False, **options)
    if tree.attrs.get("stop_reason") == "interrupted":
        raise KeyboardInterrupt
    return tree


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
        found[name] = of_deaths(gains, ratios)
        print(name, found[name], flush=True)
    return found


def of_deaths(gains, ratios):
    """What `deaths` of several fits are like."""
    return {
        "deaths": len(gains),
        "least gain, nats": round(float(np.min(gains)), 6),
        "median gain, nats": round(float(np.median(gains)), 4),
        "share above the median of the iterations around": round(float(np.mean(np.array(ratios) > 1)), 3),
        "median ratio to the iterations around": round(float(np.median(ratios)), 3),
    }


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


def figure_5_3(turns=3):
    """CPU seconds of twenty sweeps of EM and of ARPACK on the centred Gram matrix of Reuters' TF-IDF rows.

    The least of each, as a shared core disturbs a run by more than the two differ.
    """
    from scipy.sparse.linalg import eigsh

    counts, found = csr_matrix(load("reuters21578")["counts"]), {}
    for rows, size in ((3000, 10), (3000, 50), (3000, 100), (1000, 50), (2000, 50)):
        order = np.random.default_rng(0).permutation(counts.shape[0])[:rows]
        x = tf_idf(counts[order])
        gram = centred((x @ x.T).toarray())
        taken = []
        for _ in range(turns):
            begin = time.process_time()
            eigsh(gram, k=size)
            taken.append((time.process_time() - begin, time_of_em(gram, size)))
        arpack, seconds = np.min(taken, axis=0)
        found[f"N = {rows}, K = {size}"] = {
            "arpack": round(float(arpack), 3),
            "em, 20 sweeps": round(float(seconds), 3),
            "em over arpack": round(float(seconds / arpack), 3),
        }
        print(found, flush=True)
    return found | {"turns": turns}


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


def digits_to_classify():
    """Rows and classes."""
    held = load("digits")
    x = held["x"].astype(float)
    return x[:, x.std(axis=0) > 0], np.asarray(held["labels"])


def reuters_to_classify(size=3000):
    """Standardised TF-IDF of documents of one topic, of those with at least 50 documents, and the topic."""
    held = load("reuters21578")
    counts, y = csr_matrix(held["counts"]), np.asarray(held["y"])
    y = y[:, y.sum(axis=0) >= 50]
    order = np.random.default_rng(0).permutation(np.flatnonzero(y.sum(axis=1) == 1))[:size]
    x = tf_idf(counts[order]).toarray()
    x = x[:, x.std(axis=0) > 0]
    return x / x.std(axis=0), y[order].argmax(axis=1)


def classification():
    """Nearest neighbours on K components by EM (20 sweeps) and the eigensolver; ten splits."""
    found = {}
    for data, (x, labels) in {"digits": digits_to_classify(), "Reuters": reuters_to_classify()}.items():
        for size in (10, 50):
            model = zoo.KernelPCA(num_latents=size, kernel="linear", noise_variance=0.01)
            run = {"method": "em", "init": "random", "max_iterations": 20, "tolerance": 0.0}
            runs = run, {"method": "closed_form"}
            trees = [quiet(model, x, keep=("observed_data",), **own) for own in runs]
            scores = [transform(tree, x).to_numpy() for tree in trees]
            errors = []
            for seed in range(10):
                labelled = np.random.default_rng(seed).permutation(len(x))[: len(x) // 2]
                errors.append([nearest_error(own, labels, labelled) for own in scores])
            errors = np.array(errors)
            found[f"{data}, K = {size}"] = {
                "error by EM": round(float(errors[:, 0].mean()), 5),
                "error by the eigensolver": round(float(errors[:, 1].mean()), 5),
                "difference": mean_and_error(errors[:, 0] - errors[:, 1]),
                "largest angle of the subspaces, rad": round(float(subspace_angles(*scores)[0]), 5),
            }
            print(data, size, found[f"{data}, K = {size}"], flush=True)
    return found


# Projections

SETS = {  # labelled rows of each class, splits (50 in the thesis), numbers of latents
    "orl": (2, 4, (5, 10, 20)),
    "yale": (2, 4, (5, 10, 20)),
    "tumors": (2, 4, (5, 10, 20)),
    "yaleb": (5, 2, (5, 10, 20)),
    "pie": (5, 2, (5, 10, 20)),
    "tdt2": (5, 2, (5, 10, 20)),
    "news20": (5, 4, (5, 10, 20)),
}
TEXT_SETS = ("tdt2", "news20")
LABEL_SETS = {"yeast": 10}  # splits (50 in the thesis)
MEASURES = ("F1", "F1 micro", "AUC")
PEERS = ("PCA", "PPCA", "PLS", "SPPCA")
WEIGHTS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)  # of the outputs in MORP
RIDGES = (0.0, 1e-3, 0.1)


def projections_of(x, codes, labelled, size, known):
    """Scores by method; PCA and PPCA see no label, S2PPCA all rows, the others the labelled rows alone.

    Args:
        x: rows; sparse ones get no PLS, which the thesis could not run on them.
        codes: outputs, a column for each class or label.
        labelled: numbers of the rows whose outputs are known.
        size: number of latents.
        known: scores that are known already.
    """
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    found, own, outputs = dict(known), x[labelled], codes[labelled]
    words = x
    if issparse(x):  # words of no labelled document tell nothing there
        words = x[:, np.flatnonzero(np.diff(own.tocsc().indptr))]
        own = words[labelled].toarray()
    else:
        found["PLS"] = PLSRegression(min(size, len(own) - 1), scale=False).fit(own, outputs).transform(x)
    if np.all(codes.sum(axis=1) == 1):
        most, classes = min(size, codes.shape[1] - 1), outputs.argmax(axis=1)
        found["LDA"] = words @ LinearDiscriminantAnalysis().fit(own, classes).scalings_[:, :most]
        basis = np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[2][: len(own) - 1].T
        found["LDA, shrunk"] = words @ (basis @ shrunk_discriminants(own @ basis, outputs)[:, :most])
    partly = np.full(codes.shape, np.nan)
    partly[labelled] = outputs
    model = zoo.SPPCA(num_latents=min(size, len(own) - 1))
    found["SPPCA"] = transform(quiet(model, own, outputs, method="closed_form"), words).to_numpy()
    model = zoo.SPPCA(num_latents=size)
    found["S2PPCA"] = transform(quiet(model, x, partly, method="em"), x).to_numpy()
    return found


def shrunk_discriminants(rows, codes):
    """Fisher's discriminants, a column each, with the covariance within classes shrunk by Ledoit and Wolf.

    Of all deviations together: two rows of a class by themselves give that rule nothing to shrink by.
    """
    from sklearn.covariance import LedoitWolf

    counts = codes.sum(axis=0)
    means = codes.T @ rows / counts[:, None]
    within = LedoitWolf(assume_centered=True).fit(rows - codes @ means).covariance_
    between = np.cov(means.T, fweights=counts.astype(int), bias=True)
    return eigh(between, within)[1][:, ::-1]


def error_of_all_words(x, labels, labelled):
    """One nearest neighbour of sparse rows of length one."""
    rest = np.setdiff1d(np.arange(len(labels)), labelled)
    nearest = (x[rest] @ x[labelled].T).toarray().argmax(axis=1)
    return float(np.mean(labels[labelled][nearest] != labels[rest]))


def rows_and_classes(name):
    """Faces and documents of length one; TDT2 with its twenty largest classes; no constant columns."""
    held = load(name)
    if name in TEXT_SETS:
        counts, labels = csr_matrix(held["counts"]), np.asarray(held["labels"])
        kept = np.flatnonzero((labels < 20) & (np.asarray(counts.sum(axis=1)).ravel() > 0))
        counts = counts[kept]
        return csr_matrix(tf_idf(counts[:, np.flatnonzero(np.diff(counts.tocsc().indptr))])), labels[kept]
    x, labels = held["x"].astype(float), np.unique(np.asarray(held["labels"]), return_inverse=True)[1]
    if name in ("orl", "yale", "yaleb", "pie"):
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x[:, x.std(axis=0) > 1e-9 * x.std()], labels


def principal_scores(x, size):
    """The leading scores of PCA of dense or sparse rows."""
    from sklearn.decomposition import PCA

    return PCA(size, svd_solver="arpack" if issparse(x) else "full", random_state=0).fit_transform(x)


def table_7_3(name):
    """Errors of one nearest neighbour by method at the sizes, and paired differences at K = 20."""
    x, labels = rows_and_classes(name)
    codes, (per_class, splits, sizes) = np.eye(labels.max() + 1)[labels], SETS[name]
    principal, full = principal_scores(x, max(sizes)), error_of_all_words if issparse(x) else nearest_error
    errors = {}
    for size in sizes:
        ppca = transform(quiet(zoo.PPCA(num_latents=size), x), x).to_numpy()
        known = {"PCA": principal[:, :size], "PPCA": ppca}
        for split in range(splits):
            rng = np.random.default_rng(split)
            labelled = np.concatenate(
                [
                    rng.choice(np.flatnonzero(labels == c), min(per_class, np.sum(labels == c) - 1), False)
                    for c in range(labels.max() + 1)
                ]
            )
            for method, scores in projections_of(x, codes, labelled, size, known).items():
                own = nearest_error(scores, labels, labelled)
                errors.setdefault(f"K={size}", {}).setdefault(method, []).append(own)
            if size == sizes[0]:
                errors.setdefault("FULL", []).append(full(x, labels, labelled))
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
            f"{one} - {other}": mean_and_error(last[one] - last[other])
            for one, other in pairs
            if one in last and other in last
        },
    }


def table_7_4(name):
    """F1 and AUC of linear SVMs on the projections; five positive rows of each label are known."""
    held, splits = load(name), LABEL_SETS[name]
    x, y = np.asarray(held["x"], float), np.asarray(held["y"], float)
    x, y = x[:, x.std(axis=0) > 0], y[:, y.sum(axis=0) >= 10]
    sizes, principal, found = (5, 10, 20), principal_scores(x, 20), {}
    ppca = {size: transform(quiet(zoo.PPCA(num_latents=size), x), x).to_numpy() for size in sizes}
    for split in range(splits):
        rng = np.random.default_rng(split)
        labelled = np.unique([rng.choice(np.flatnonzero(column), 5, replace=False) for column in y.T])
        rest = np.setdiff1d(rng.permutation(len(x)), labelled, assume_unique=True)
        more = 5 * y.shape[1] - len(
            labelled
        )  # rows of several labels: others fill up, so that shapes are one
        labelled, rest = np.concatenate([labelled, rest[:more]]), rest[more:]
        for size in sizes:
            known = {"PCA": principal[:, :size], "PPCA": ppca[size]} | ({"FULL": x} if size == 5 else {})
            for method, scores in projections_of(x, y, labelled, size, known).items():
                scores = scores / scores[labelled].std()  # so that C means the same everywhere
                own = scores_of_labels(scores[labelled], scores[rest], y[labelled], y[rest])
                found.setdefault("FULL" if method == "FULL" else f"K={size}, {method}", []).append(own)
        print(split, {own: np.round(np.mean(v, axis=0), 3) for own, v in found.items()}, flush=True)
    pairs = [(f"K={size}, S2PPCA", f"K={size}, {own}") for size in sizes for own in PEERS]
    return {
        "rows, columns, labels": [*x.shape, y.shape[1]],
        "splits": splits,
        "scores": {
            name: dict(zip(MEASURES, np.mean(own, axis=0).round(4).tolist(), strict=True))
            for name, own in found.items()
        },
        "differences": {
            f"{one} - {other}": {
                what: mean_and_error(np.subtract(found[one], found[other])[:, i])
                for i, what in enumerate(MEASURES)
            }
            for one, other in pairs
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


def rcv1_of_several_topics():
    """The catalogue's documents of RCV1 (500 terms, weighted there), of several topics of 50 documents."""
    held = load("rcv1")
    y = np.asarray(held["y"], float)
    y = y[:, y.sum(axis=0) >= 50]
    kept = np.flatnonzero(y.sum(axis=1) > 1)
    return csr_matrix(held["x"])[kept].toarray(), y[kept]


#: Rows and topics of Figures 6.3 and 6.4, form of MORP (of 1200 rows by 500 terms, of rank below N - 1, the
#: simplified form solves another problem), and the printed regularisation of kernel CCA.
TEXTS_OF_TOPICS = {
    "reuters": (reuters_of_several_topics, "simplified", 0.9),
    "rcv1": (rcv1_of_several_topics, "dual", 0.3),
}


def scores_of_labels(train, test, train_y, test_y):
    """Macro F1, micro F1 and mean AUC of a linear SVM for each label, in the order of `MEASURES`."""
    from sklearn.metrics import f1_score, roc_auc_score
    from sklearn.svm import LinearSVC

    values, told = [], []
    for own, other in zip(train_y.T, test_y.T, strict=True):
        if own.sum() in (0, len(own)) or other.sum() in (0, len(other)):
            continue
        svm = LinearSVC(C=100.0, dual="auto", max_iter=5000).fit(train, own)
        values.append(svm.decision_function(test))
        told.append(other)
    values, told = np.transpose(values), np.transpose(told)
    f1 = [f1_score(told, values > 0, average=kind, zero_division=0.0) for kind in ("macro", "micro")]
    return *map(float, f1), float(roc_auc_score(told, values, average="macro"))


def both_settings(x, y, seed):
    """Rows that a projection is fitted to, the topics it sees, and rows and topics that judge it.

    Setting I: the topics that it has seen, learnt from the same rows; II: other topics, learnt from other
    rows; each from one fold in five.
    """
    rng = np.random.default_rng(seed)
    order, topics = rng.permutation(len(x)), rng.permutation(y.shape[1])
    train, test = order[: len(x) // 5], order[len(x) // 5 :]
    seen, new = np.split(topics, [int(0.7 * len(topics))])
    seen = seen[y[train][:, seen].any(axis=0)]  # without an example there is nothing to learn
    inner = rng.permutation(len(test))
    again, rest = test[inner[: len(test) // 5]], test[inner[len(test) // 5 :]]
    return train, seen, {"I": (train, test, seen), "II": (again, rest, new)}


def judge(found, name, own, y, train, settings):
    """Enter the measures of one projection."""
    own = own / own[train].std()
    for setting, (given, judged, topics) in settings.items():
        scores = scores_of_labels(own[given], own[judged], y[given][:, topics], y[judged][:, topics])
        for what, value in zip(MEASURES, scores, strict=True):
            if what != "F1 micro":
                found.setdefault(f"setting {setting}, {what}", {}).setdefault(name, []).append(value)


def by_setting(found, differences):
    """Means over repeats, and paired differences."""
    means = {
        title: {name: round(float(np.mean(v)), 4) for name, v in own.items()} for title, own in found.items()
    }
    for title, own in found.items():
        for one, other in differences:
            means[title][f"{one} - {other}"] = mean_and_error(np.subtract(own[one], own[other]))
    return means


def figure_6_3(name="reuters", sizes=(10, 50), repeats=4):
    """Setting I (labels seen by the projection) and II (new labels) by dimensionality; 6.4 on RCV1."""
    read, form, regularisation = TEXTS_OF_TOPICS[name]
    (x, y), found = read(), {}
    for seed in range(repeats):
        train, seen, settings = both_settings(x, y, seed)
        known = x[:, x[train].std(axis=0) > 0]  # other words meet no word of the fitted rows
        data = known[train], y[train][:, seen]
        judge(found, "original", x, y, train, settings)
        for size in sizes:
            unsupervised = zoo.KernelPCA(num_latents=size, kernel="linear", noise_variance=1e-6)
            model = zoo.SPPCA(num_latents=size, kernel="linear")
            fewer = zoo.SPPCA(num_latents=min(size, len(seen) - 1), kernel="linear")
            trees = {
                "kernel PCA": quiet(unsupervised, data[0]),
                "MORP": quiet(model, *data, method="morp", form=form, weight=0.5),
                "kernel CCA": quiet(fewer, *data, method="kernel_cca", ridge=regularisation),
            }
            for name, tree in trees.items():
                judge(found, f"{name}, K = {size}", transform(tree, known).to_numpy(), y, train, settings)
        print(seed, {k: {m: round(np.mean(v), 3) for m, v in own.items()} for k, own in found.items()})
    pairs = [
        (f"MORP, K = {size}", f"{rival}, K = {size}")
        for size in sizes
        for rival in ("kernel PCA", "kernel CCA")
    ]
    pairs += [(f"MORP, K = {size}", "original") for size in sizes]
    pairs += [(f"kernel CCA, K = {size}", f"kernel PCA, K = {size}") for size in sizes]
    told = {"documents, words, topics": [*x.shape, y.shape[1]], "repeats": repeats}
    return told | by_setting(found, pairs)


def figure_6_6(size=50, repeats=3):
    """MORP by the weight of the outputs, at gamma 0; and at weight 0.5 by gamma (section 6.2.3)."""
    x, y = reuters_of_several_topics()
    found, by_ridge = {}, {}
    for seed in range(repeats):
        train, seen, settings = both_settings(x, y, seed)
        known = x[:, x[train].std(axis=0) > 0]
        data, model = (known[train], y[train][:, seen]), zoo.SPPCA(num_latents=size, kernel="linear")
        for weight in WEIGHTS:
            tree = quiet(model, *data, method="morp", form="simplified", weight=weight)
            judge(found, f"beta {weight:g}", transform(tree, known).to_numpy(), y, train, settings)
        for ridge in RIDGES:
            tree = quiet(model, *data, method="morp", form="dual", weight=0.5, ridge=ridge)
            judge(by_ridge, f"gamma {ridge:g}", transform(tree, known).to_numpy(), y, train, settings)
        print(seed, {k: {m: round(np.mean(v), 3) for m, v in own.items()} for k, own in found.items()})
        print(seed, {k: {m: round(np.mean(v), 3) for m, v in own.items()} for k, own in by_ridge.items()})
    pairs = [("beta 0.5", "beta 0"), ("beta 0.5", "beta 1")]
    gammas = [(f"gamma {ridge:g}", f"gamma {RIDGES[0]:g}") for ridge in RIDGES[1:]]
    told = {"documents, words, topics": [*x.shape, y.shape[1]], "K": size, "repeats": repeats}
    return told | by_setting(found, pairs) | {"by gamma": by_setting(by_ridge, gammas)}


def eigenfaces(splits=10):
    """Error of the nearest of five pictures of each of 40 people by number of components of all 400."""
    x, labels = rows_and_classes("orl")
    principal, errors = principal_scores(x, 200), {}
    for split in range(splits):
        rng = np.random.default_rng(split)
        known = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:5] for c in range(40)])
        for size in (5, 10, 20, 50, 100, 150, 200):
            own = nearest_error(principal[:, :size], labels, known)
            errors.setdefault(f"{size} components", []).append(own)
        errors.setdefault("all pixels", []).append(nearest_error(x, labels, known))
    return {"splits": splits, "errors": {name: mean_and_error(own) for name, own in errors.items()}}


def seven_dimensions(draws=10, each=50):
    """Labelled groups in a plane and five columns of N(0, 1): eigenvalues, the plane, the order of columns.

    The lecture draws the groups without their places: here three of deviation 1 on a circle of radius 4.
    """
    turns, found = 2 * np.pi * np.arange(3) / 3, {"eigenvalues": [], "angle": [], "reordered": []}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(3 * each, 7))
        x[:, :2] += 4 * np.repeat(np.transpose([np.cos(turns), np.sin(turns)]), each, axis=0)
        found["eigenvalues"].append(np.linalg.eigvalsh(np.cov(x.T))[::-1])
        order, scores = rng.permutation(7), []
        for columns in (np.arange(7), order):
            tree = quiet(zoo.PPCA(num_latents=2), x[:, columns])
            scores.append(np.abs(transform(tree, x[:, columns], scores="orthonormal").to_numpy()))
            if columns is not order:
                loadings = tree["posterior"]["loadings"].to_numpy()[0, 0]
                found["angle"].append(subspace_angles(loadings, np.eye(7)[:, :2])[0])
        found["reordered"].append(np.abs(scores[0] - scores[1]).max())
    return {
        "draws, rows": [draws, 3 * each],
        "mean eigenvalues": np.mean(found["eigenvalues"], axis=0).round(3).tolist(),
        "largest angle to the plane of the groups, rad": {
            "mean": round(float(np.mean(found["angle"])), 4),
            "largest": round(float(np.max(found["angle"])), 4),
        },
        "largest difference of a score, columns in another order": float(np.max(found["reordered"])),
    }


def thousand_iterations(size=20):
    """EM from random loadings and noise variances 1e-5, 1000 iterations (7.4.2), beside the maximum."""
    found = {}
    for name in ("orl", "yale"):
        x, labels = rows_and_classes(name)
        codes, rng = np.eye(labels.max() + 1)[labels], np.random.default_rng(0)
        labelled = np.concatenate(
            [rng.choice(np.flatnonzero(labels == c), 2, False) for c in range(codes.shape[1])]
        )
        partly = np.full(codes.shape, np.nan)
        partly[labelled] = codes[labelled]
        start = {
            f"loadings_{k}": rng.normal(size=(own.shape[1], size)) for k, own in (("x", x), ("y", codes))
        }
        start |= {"noise_variance_x": 1e-5, "noise_variance_y": 1e-5}
        for model, rows, outputs in (("SPPCA", x[labelled], codes[labelled]), ("S2PPCA", x, partly)):
            given = start | {"loc_x": rows.mean(axis=0), "loc_y": codes[labelled].mean(axis=0)}
            runs = (
                {"init": given, "acceleration": "none", "max_iterations": 1000, "tolerance": 0},
                {"max_iterations": 1000},
            )
            trees = [quiet(zoo.SPPCA(num_latents=size), rows, outputs, method="em", **run) for run in runs]
            nats = [float(tree["trace"]["objective"].to_numpy().ravel()[-1]) for tree in trees]
            errors = [nearest_error(transform(tree, x).to_numpy(), labels, labelled) for tree in trees]
            found[f"{name}, {model}"] = {
                "nats below the maximum": round(nats[1] - nats[0], 2),
                "error": round(errors[0], 4),
                "error at the maximum": round(errors[1], 4),
            }
            print(name, model, found[f"{name}, {model}"], flush=True)
    return found


# Topics


FAMILIES = {
    "mean field, from pLSI": {"family": "mean_field", "init": "plsi"},
    "mean field, random": {"family": "mean_field", "init": "random"},
    "structured": {"family": "structured"},
}


def by_family(counts, labels, size, num_clusters, **options):
    """NMI with the classes and bound of Algorithm 9.1 from pLSI (9.2.4) and at random, and of our family."""
    scores, bounds = {}, {}
    for name, own in FAMILIES.items():
        model = zoo.PCP(num_topics=size, num_clusters=num_clusters)
        tree = quiet(model, counts, num_samples=1, seed=0, **options, **own)
        clusters_of = tree["variational"]["responsibilities"].values.argmax(axis=1)
        scores[name] = round(float(normalised_mutual_information(labels, clusters_of)), 3)
        bounds[name] = round(float(np.nanmax(tree["trace"]["objective"])), 2)
    print(scores, bounds, flush=True)
    return scores, bounds


def algorithm_9_1():
    """Best bound of four starts, five drawn corpora, M = 5."""
    held = [load("pcp_corpus", seed=corpus) for corpus in range(5)]
    run = {"num_restarts": 4, "max_iterations": 300}
    found = [by_family(own["counts"], own["labels"], 6, 5, **run) for own in held]
    scores, bounds = ({name: [own[i][name] for own in found] for name in FAMILIES} for i in range(2))
    return {"NMI": scores, "bounds": bounds} | {
        f"mean NMI, {name}": round(float(np.mean(own)), 3) for name, own in scores.items()
    }


def algorithm_9_1_on_text(name):
    """One start, ten topics, as many clusters as classes."""
    counts, labels = one_label(load(name))
    scores, bounds = by_family(csr_matrix(counts), labels, 10, len(np.unique(labels)), max_iterations=100)
    return {"NMI": scores, "bounds": bounds}


def dying_documents():
    """Section 9.1.4 on five drawn corpora: M = D, by our family and by Algorithm 9.1 from pLSI."""
    found = {}
    for name in ("structured", "mean field, from pLSI"):
        gains, ratios = [], []
        for corpus in range(5):
            counts = load("pcp_corpus", seed=corpus)["counts"]
            model = zoo.PCP(num_topics=6, num_clusters=counts.shape[0])
            run = {"num_samples": 1, "num_restarts": 1, "max_iterations": 200, "seed": 0}
            more = deaths(quiet(model, counts, **run, **FAMILIES[name]))
            gains, ratios = gains + more[0], ratios + more[1]
        found[name] = of_deaths(gains, ratios)
        print(name, found[name], flush=True)
    return found


TOPIC_COUNTS = (5, 10, 20, 30, 40, 50)
ALGORITHM_AT, LEARNT_AT = 20, (5, 50)


def models_of_table_9_1(train, size, is_small):
    """Model and options by name; of large corpora alpha is learnt with M = D at some sizes alone."""
    priors = ("word_smoothing", "topic_prior")
    clustering = {"learn": (*priors, "concentration")}
    models = {
        "pLSI": (zoo.PLSI(num_topics=size), {}),
        "LDA": (zoo.LDA(num_topics=size), {"learn": priors}),
        "PCP, M = 200": (zoo.PCP(num_topics=size, num_clusters=200), clustering),
    }
    as_many = zoo.PCP(num_topics=size, num_clusters=train.shape[0])  # alpha = 1, as in the case study
    if is_small:
        return models | {"PCP, M = D": (as_many, clustering)}
    begin = {"init": "lda"}  # from LDA's topics alone, the better of the two starts of the default
    algorithm = {"family": "mean_field", "init": "plsi"}
    if size == ALGORITHM_AT:
        models["PCP, Algorithm 9.1, M = D"] = as_many, clustering | algorithm
        models["PCP, Algorithm 9.1, alpha = 1, M = D"] = as_many, {"learn": priors} | algorithm
    if size in LEARNT_AT:
        models["PCP, M = D"] = as_many, clustering | begin
    return models | {"PCP, alpha = 1, M = D": (as_many, {"learn": priors} | begin)}


def told_apart(table):
    """Share of documents whose class is the commonest of their cluster, a row of the table."""
    return round(float(table.max(axis=1).sum() / table.sum()), 4)


def figure_9_3():
    """The case study: K = 50, M = 20, alpha = 1, lambda = 1/K, newsgroups; how well clusters tell groups."""
    counts, labels = one_label(load("news4_stemmed"))
    counts, found = csr_matrix(counts), {}
    for name in ("structured", "mean field, from pLSI"):  # at random, see `algorithm_9_1_on_text`
        model = zoo.PCP(num_topics=50, num_clusters=20, concentration=1.0, topic_prior=1 / 50)
        stop = {"tolerance": hundredth_of_a_per_cent(counts), "max_iterations": 200}
        tree = quiet(model, counts, num_samples=1, seed=0, **stop, **FAMILIES[name])
        clusters_of = tree["variational"]["responsibilities"].values.argmax(axis=1)
        table = np.zeros((20, 4), int)
        np.add.at(table, (clusters_of, labels), 1)
        largest = table[table.sum(axis=1).argsort()[::-1][:4]]
        found[name] = {
            "iterations": int(tree.attrs["num_iterations"]),
            "clusters of ten documents and more": int(np.sum(table.sum(axis=1) >= 10)),
            "documents in a cluster of mostly their group": round(
                float(table.max(axis=1).sum() / table.sum()), 4
            ),
            "groups that the four largest clusters are mostly of": len(set(largest.argmax(axis=1).tolist())),
            "documents in the four largest": round(float(largest.sum() / table.sum()), 4),
            "of these in one of mostly their group": round(
                float(largest.max(axis=1).sum() / largest.sum()), 4
            ),
        }
        print(name, found[name], flush=True)
    return found


def hundredth_of_a_per_cent(counts):
    """Where section 9.3.2 stops, in nats a document: of the nats that the words' frequencies give."""
    totals = np.asarray(counts.sum(axis=0)).ravel()
    totals = totals[totals > 0]
    return 1e-4 * float(totals @ np.log(totals.sum() / totals)) / counts.shape[0]


def table_9_1(name, sizes=TOPIC_COUNTS):
    """Perplexity of a tenth of a corpus by the bound, recorded after every K; goes on where it stopped."""
    part = f"table_9_1 {name}"
    counts, found = csr_matrix(load(name)["counts"]), held_part("paper_topics", part)
    is_small = counts.shape[0] < 200
    for size in sizes:
        own = found.setdefault(f"K={size}", {})
        for seed in range(2 if is_small else 1):
            train, test = one_split(counts, seed)
            stop = {"max_iterations": 100}
            stop |= {} if is_small else {"tolerance": hundredth_of_a_per_cent(train)}
            for model_name, (model, options) in models_of_table_9_1(train, size, is_small).items():
                if len(own.get(model_name, ())) > seed:
                    continue
                tree = quiet(model, train, seed=seed, num_samples=1, **stop, **options)
                protocol = "likelihood" if model_name == "pLSI" else "bound"
                perplexity = float(heldout(tree, test, protocol=protocol).perplexity)
                own.setdefault(model_name, []).append(round(perplexity, 1))
                steps, kept = tree.attrs["num_iterations"], None
                if model_name.endswith("M = D"):  # section 9.1.4: few of these clusters are to be left
                    kept = int(tree["variational"].num_occupied)
                    found.setdefault(f"clusters left, K={size}", {}).setdefault(model_name, []).append(kept)
                print(size, model_name, perplexity, steps, kept, time.process_time(), flush=True)
        at_k = [v for k, v in found.items() if k.startswith("K=")]
        found |= {"documents, words": [*counts.shape]} | {
            f"{rival} over LDA, mean over K": round(
                float(np.mean([np.mean(v[rival]) / np.mean(v["LDA"]) for v in at_k if rival in v])), 4
            )
            for rival in {name: None for v in at_k for name in v}
            if rival != "LDA"
        }
        command = command_of(" ".join([part, *map(str, sizes)]))
        add_part_to_record("paper_topics", part, command, "scipy", "scikit-learn", **found)
    return found


def figure_9_4(name, repeats=50):
    """Accuracy of a linear SVM for each class on the documents that it was not given; ten topics."""
    from sklearn.svm import LinearSVC

    counts, labels = one_label(load(name))
    models = {
        "pLSI": (zoo.PLSI(num_topics=10), {}),
        "LDA": (zoo.LDA(num_topics=10), {"learn": ("word_smoothing", "topic_prior")}),
        "PCP": (zoo.PCP(num_topics=10, num_clusters=20), {}),
        "PCP by Algorithm 9.1": (zoo.PCP(num_topics=10, num_clusters=20), FAMILIES["mean field, from pLSI"]),
    }
    projected = {}
    for model_name, (model, options) in models.items():
        tree = quiet(model, csr_matrix(counts), max_iterations=100, tolerance=1e-4, num_samples=1, **options)
        shares = token_shares if model_name.startswith("PCP") else topic_shares
        projected[model_name] = shares(tree).to_numpy()
        print(name, model_name, time.process_time(), flush=True)
    found = {}
    for number in (10, 20, 50, 100, 200):
        for repeat in range(repeats):
            rng, scores = np.random.default_rng((repeat, number)), {}
            for label in np.unique(labels):
                kinds = np.flatnonzero(labels == label), np.flatnonzero(labels != label)
                given = np.concatenate([rng.choice(own, number // 2, False) for own in kinds])
                rest = np.setdiff1d(np.arange(len(labels)), given)
                for model_name, x in projected.items():
                    svm = LinearSVC(C=100.0, dual=False, max_iter=2000).fit(x[given], labels[given] == label)
                    scores.setdefault(model_name, []).append(svm.score(x[rest], labels[rest] == label))
            for model_name, own in scores.items():
                found.setdefault(number, {}).setdefault(model_name, []).append(np.mean(own))
    return {"documents, words": [*counts.shape], "repeats": repeats} | {
        f"{number} documents": {m: mean_and_error(v) for m, v in own.items()}
        | {
            f"{one} - {rival}": mean_and_error(np.subtract(own[one], own[rival]))
            for one in ("PCP", "PCP by Algorithm 9.1")
            for rival in ("pLSI", "LDA")
        }
        for number, own in found.items()
    }


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
    return {name: own for name, own in held.items() if "K=" in name}


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
    "figure_6_4": ("paper_projections", partial(figure_6_3, "rcv1")),
    "figure_6_6": ("paper_projections", figure_6_6),
    "eigenfaces": ("paper_projections", eigenfaces),
    "seven_dimensions": ("paper_projections", seven_dimensions),
    "thousand_iterations": ("paper_projections", thousand_iterations),
    "algorithm_9_1": ("paper_topics", algorithm_9_1),
    "dying_documents": ("paper_topics", dying_documents),
    "figure_9_3": ("paper_topics", figure_9_3),
    "figure_9": ("epca_spect", figure_9),
}
PARTS |= {f"table_7_3 {name}": ("paper_projections", partial(table_7_3, name)) for name in SETS}
PARTS |= {f"table_7_4 {name}": ("paper_projections", partial(table_7_4, name)) for name in LABEL_SETS}
TEXTS = ("federalist", "reuters5_stemmed", "news4_stemmed")
PARTS |= {f"figure_9_4 {name}": ("paper_topics", partial(figure_9_4, name)) for name in TEXTS[1:]}
PARTS |= {
    f"algorithm_9_1 {name}": ("paper_topics", partial(algorithm_9_1_on_text, name)) for name in TEXTS[1:]
}
PARTS |= {f"table_9_1 {name}": ("paper_topics", partial(table_9_1, name)) for name in TEXTS}


def main(part, sizes):
    """Run one part, at these numbers of topics if any are named, print it, record it."""
    record, figures = PARTS[part]
    began = time.process_time()
    found = figures(sizes) if sizes else figures()
    command = command_of(" ".join([part, *map(str, sizes)]))
    own = found | {"cpu_seconds": round(time.process_time() - began, 1)}
    print(part, own)
    add_part_to_record(record, part, command, "scipy", "scikit-learn", **own)


if __name__ == "__main__":
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    wanted = " ".join(word for word in sys.argv[1:] if word not in numbers)
    if wanted not in PARTS or numbers and not wanted.startswith("table_9_1"):
        sys.exit(f"name one part, after one of Table 9.1 perhaps numbers of topics: {', '.join(PARTS)}")
    main(wanted, [int(number) for number in numbers])
