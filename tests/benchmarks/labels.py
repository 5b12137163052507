"""Do labels help a projection? S2PPCA beside label-free projections that share its scale (Yu 2006, 7.4).

Run ``python -m tests.benchmarks.labels``, or with the names of some sets; digits, wine and drawn rows run for
everybody, the faces of ORL and Yale where ``ZOO_DATA`` holds them. It writes
tests/reference/sppca_labels.json.

A few rows of each class are labelled, all others are unlabelled and test rows; one nearest neighbour among
the labelled rows decides. S2PPCA sees the inputs of all rows and those labels; PCA, whitened PCA and PPCA see
the inputs alone. Scores of S2PPCA and PPCA are E[z | x], which shrink with a component's variance: whitening
gives every component the same weight, so the fair label-free column is PPCA's. "Orthonormal" scores are those
in the units of the data, as PCA's are.

Differences are paired. On one data set the splits share its rows, and the standard error is that of the
choice of labelled rows; on drawn rows, a set each split, it is that of the data. The drawn rows are the
positive control: their classes differ along a direction of little variance, which only labels can tell.
"""

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

import zoo
from inference import fit, transform
from tests.tools.recording import add_part_to_record, mean_and_error
from zoo.datasets import catalogue, load

COMMAND = "python -m tests.benchmarks.labels"
PARTS = {  # number of latents, labelled rows of each class, splits
    "digits": (10, 2, 20),
    "wine": (2, 2, 40),
    "orl": (20, 2, 20),
    "yale": (20, 2, 20),
    "drawn": (2, 75, 20),
}
FACES = ("orl", "yale")
RIVALS = {"s2ppca": ("pca", "pca_whitened", "ppca"), "s2ppca_orthonormal": ("pca",)}


def drawn_rows(seed):
    """300 rows of 20 columns: two directions of no class, a third with less variance that tells two apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(2), 150)
    basis = np.linalg.qr(rng.normal(size=(20, 3)))[0]
    weak = 4.0 * (labels - 0.5) + 0.5 * rng.normal(size=300)
    scores = np.column_stack([2.2 * rng.normal(size=(300, 2)), weak])
    return scores @ basis.T + rng.normal(size=(300, 20)), labels


def inputs_of(name, split):
    """Rows and classes: digits as they are, wine in units of its deviations, faces of length one."""
    if name == "drawn":
        return drawn_rows(split)
    held = load(name)
    x, labels = held["x"].astype(float), np.asarray(held["labels"])
    if name == "wine":
        x = (x - x.mean(axis=0)) / x.std(axis=0)
    if name in FACES:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    if name == "digits":  # a grain of noise: columns that are constant are refused
        x = x + 1e-6 * x.std() * np.random.default_rng(0).normal(size=x.shape)
    return x, labels


def nearest_error(scores, labels, labelled):
    """Share of the other rows whose nearest labelled row is of another class."""
    rest = np.setdiff1d(np.arange(len(labels)), labelled)
    nearest = cdist(scores[rest], scores[labelled]).argmin(axis=1)
    return float(np.mean(labels[labelled][nearest] != labels[rest]))


def quietly(model, *data, method):
    """A fit without bars; outputs fitted exactly and pixels hardly ever inked are part of the sets."""
    expected = (
        "the .* outputs have rank",
        ".*is at its floor",
        "there are .* latents and only",
        "the columns of x have very different scales",
    )
    with warnings.catch_warnings():
        for message in expected:
            warnings.filterwarnings("ignore", message=message)
        return fit(model, *data, method=method, progress=False)


def label_free(x, number):
    """Scores of PCA, whitened PCA and PPCA, each of shape (rows, number)."""
    u, d, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    ppca = quietly(zoo.PPCA(num_latents=number), x, method="closed_form")
    return {
        "pca": (u * d)[:, :number],
        "pca_whitened": u[:, :number],
        "ppca": transform(ppca, x).to_numpy(),
    }


def with_labels(x, labels, labelled, number):
    """Scores of S2PPCA, in its own scale and in that of the data."""
    partly = pd.Series([None] * len(labels), dtype=object)
    partly[labelled] = [f"class {label}" for label in labels[labelled]]
    tree = quietly(zoo.SPPCA(num_latents=number), x, partly, method="em")
    return {
        "s2ppca": transform(tree, x).to_numpy(),
        "s2ppca_orthonormal": transform(tree, x, scores="orthonormal").to_numpy(),
    }


def errors_of(name):
    """Errors by method, one a split."""
    number, per_class, splits = PARTS[name]
    found, known = {}, None
    for split in range(splits):
        x, labels = inputs_of(name, split)
        rng = np.random.default_rng(split)
        classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        labelled = np.concatenate([rng.choice(rows, per_class, replace=False) for rows in classes])
        if known is None or name == "drawn":
            known = label_free(x, number)
        for method, scores in (known | with_labels(x, labels, labelled, number)).items():
            found.setdefault(method, []).append(nearest_error(scores, labels, labelled))
    return {method: np.array(own) for method, own in found.items()}


def compared(found):
    """Mean errors, and paired differences with their standard errors."""
    result = {"errors": {method: round(float(own.mean()), 4) for method, own in found.items()}}
    for method, others in RIVALS.items():
        for other in others:
            result[f"{method} - {other}"] = mean_and_error(found[method] - found[other])
    return result


def is_held(name):
    """Whether the reader holds a set of the papers."""
    folder = os.environ.get("ZOO_DATA")
    return name not in FACES or bool(folder) and (Path(folder) / catalogue()[name]["file"]).is_file()


def main(names):
    """Run the parts, print and record them."""
    for name in names:
        if not is_held(name):
            print(f"{name}: not run, ZOO_DATA does not hold it")
            continue
        began = time.process_time()
        number, per_class, splits = PARTS[name]
        figures = compared(errors_of(name)) | {
            "latents": number,
            "labelled rows of a class": per_class,
            "splits": splits,
            "cpu_seconds": round(time.process_time() - began, 1),
        }
        print(name, figures, flush=True)
        add_part_to_record("sppca_labels", name, f"{COMMAND} {name}", "scipy", **figures)


if __name__ == "__main__":
    main(sys.argv[1:] or PARTS)
