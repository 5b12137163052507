"""Mixtures of factor analysers beside PPCA, PPCA followed by a mixture, and a mixture of all columns.

Run ``python -m tests.benchmarks.mcfa_two_steps``: rows planted in three clusters on a plane of ten columns,
olive oils (columns in their deviations) and pictures of digits, a third of the rows held out. The two-step
way takes loadings, mean and noise from PPCA, and the clusters from VB on its scores. Everything is by VB with
a Dirichlet process over the clusters but for PPCA, which is the maximum of the likelihood. Figures go into
tests/reference/mcfa_two_steps.json: held-out log density a row, its differences with standard errors, the
adjusted Rand index of held-out rows against known classes, and clusters with rows; of the real tables for two
further splits too.
"""

import time

import jax.numpy as jnp
import numpy as np
from scipy.linalg import subspace_angles
from sklearn.metrics import adjusted_rand_score

import zoo
from inference import fit, log_density, predict, transform
from inference.precision import in_precision
from tests.support.mcfa_cases import planted
from tests.tools.recording import write_record
from zoo.linear_gaussian.clustered import ClusteredRows

VB = {"method": "vb", "progress": False, "seed": 0, "num_samples": 50, "num_restarts": 2}
SPLITS = (1, 2)  # further ones of the real tables
STICKS = {"weight_prior": "stick_breaking"}


def table(name):
    """Rows, classes, numbers of clusters and latents, and the planted loadings or None."""
    if name == "planted":
        x, classes, loadings = planted(450)
        return x, classes, 10, 2, loadings
    data = zoo.datasets.load(name)
    x = np.asarray(data["x"], float)
    if name == "olive":
        return x / x.std(axis=0), np.asarray(data["area"]), 15, 4, None
    return x, np.asarray(data["labels"]), 20, 8, None


def two_steps(ppca, train, test, number):
    """Log densities and labels of rows under PPCA's columns with the mixture of its scores."""
    scores = fit(zoo.Mixture(num_components=number, **STICKS), transform(ppca, train).values, **VB)
    q = {name: np.asarray(value) for name, value in scores["variational"].data_vars.items()}
    precisions = q["components_degrees_of_freedom"][:, None, None] * q["components_scale_matrix"]
    columns = [ppca["posterior"][name].values[0, 0] for name in ("loadings", "loc", "noise_variance")]
    with in_precision():
        parts = np.log(q["expected_weights"]), q["components_loc"], precisions, *columns
        density = np.asarray(ClusteredRows(*map(jnp.asarray, parts)).log_prob(jnp.asarray(test)))
    labels = predict(scores, transform(ppca, test).values).values
    return density, labels, int(q["num_occupied"])


def difference(own, other):
    """Mean and standard error over rows."""
    return {
        "mean": float(np.mean(own - other)),
        "standard_error": float(np.std(own - other) / len(own) ** 0.5),
    }


def compared(name, split):
    """The figures of a table, rows held out by the seed ``split``."""
    x, classes, number, num_latents, loadings = table(name)
    order = np.random.default_rng(split).permutation(len(x))
    train, test = np.split(order, [2 * len(x) // 3])
    x = x[:, np.ptp(x[train], axis=0) > 0]  # some pixels of digits are constant in all rows, or in these
    begun = time.process_time()
    model = zoo.MCFA(num_components=number, num_latents=num_latents, **STICKS)
    tree = fit(model, x[train], **VB)
    seconds = time.process_time() - begun
    own = log_density(tree, x[test]).values
    found = {
        "heldout": float(own.mean()),
        "rand": adjusted_rand_score(classes[test], predict(tree, x[test])),
        "occupied": int(tree["variational"]["num_occupied"]),
        "cpu_seconds": seconds,
    }
    if loadings is not None:
        angles = subspace_angles(tree["variational"]["raw_loadings_mean"].values, loadings)
        found["degrees"] = float(np.degrees(angles).max())
    ppca = fit(zoo.PPCA(num_latents=num_latents), x[train], progress=False)
    found["over_ppca"] = difference(own, log_density(ppca, x[test]).values)
    density, labels, occupied = two_steps(ppca, x[train], x[test], number)
    found["over_two_steps"] = difference(own, density)
    found |= {"rand_of_two_steps": adjusted_rand_score(classes[test], labels), "occupied_two_steps": occupied}
    if x.shape[1] <= 10:
        whole = fit(zoo.Mixture(num_components=number, **STICKS), x[train], **VB)
        found["over_mixture"] = difference(own, log_density(whole, x[test]).values)
        found["rand_of_mixture"] = adjusted_rand_score(classes[test], predict(whole, x[test]))
    return found


if __name__ == "__main__":
    figures = {}
    for name in ("planted", "olive", "digits"):
        figures[name] = compared(name, 0)
        others = {str(split): compared(name, split) for split in SPLITS if name != "planted"}
        figures[name] |= {"other_splits": others} if others else {}
        print(name, figures[name], flush=True)
    write_record("mcfa_two_steps", "python -m tests.benchmarks.mcfa_two_steps", "scikit-learn", **figures)
