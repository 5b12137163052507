"""VB for the mixture against scikit-learn's mixtures: held-out log likelihood on paired splits, and time.

Run ``python -m tests.benchmarks.mixture_heldout`` in an environment with the extra ``bench``. It pins itself
to one core, prints a table and writes tests/reference/mixture_heldout.json. ``--splits 5 --data wine`` is a
look.

Every split trains all fits on the same three quarters of the rows, with as many components, and scores them
on the rest; the toy is drawn afresh for each. Columns are standardised by the training rows, digits replaced
by their 20 leading principal components there. A difference is ours minus theirs in nats per held-out row,
the standard error that of the mean of 20 differences (but for the toy the splits share rows, so it is too
small, which makes the bar of -2 the harder). Where both are equally good, one comparison in 44 misses it by
chance.

Ours is scored by `inference.log_density`, the exact predictive density of q. ``score_samples`` of
scikit-learn's BayesianGaussianMixture is no density: it takes the expected logarithm where the density needs
the logarithm of the expectation, and so falls short by Jensen's inequality. It is what that package reports,
hence what the bar is about; beside it stands the exact predictive density of its q ("exact"), which compares
optima and priors alone.

bnpy is not compared: 0.1.7, its last version, does not build on Python 3.11 or 3.12 (pip compiles the old
scikit-learn that it asks for and fails; without that, bnpy's own generated C needs a header which Python 3.11
dropped).
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np

from tests.tools.recording import write_record

ROOT = Path(__file__).parents[2]
SIZES = {
    "toy": (5, 10),
    "faithful": (2, 6),
    "wine": (3, 6),
    "digits": (10, 30),
}  # the classes; more than these
STARTS = 10
BAR = -2.0  # standard errors
OURS = {
    "default": {},
    "random starts": {"num_restarts": STARTS, "init": "random"},
    "k-means starts": {"num_restarts": STARTS, "init": "kmeans"},
    "k-means starts, flat weights": {"num_restarts": STARTS, "init": "kmeans", "flat": True},
    "k-means starts, their prior": {"num_restarts": STARTS, "init": "kmeans", "prior": "theirs"},
}
PEERS = {
    "Bayesian, default": {},
    "Bayesian": {"n_init": STARTS},
    "Bayesian, our prior": {"n_init": STARTS, "prior": "ours"},
    "maximum likelihood, default": {"bayesian": False},
    "maximum likelihood": {"bayesian": False, "n_init": STARTS},
}
COMPARISONS = (  # ours, theirs: both as they come; then ten starts each and priors as equal as can be
    ("default", "Bayesian, default"),
    ("default", "maximum likelihood, default"),
    ("k-means starts", "Bayesian, our prior"),
    ("k-means starts, their prior", "Bayesian"),
    ("k-means starts, flat weights", "maximum likelihood"),
    ("k-means starts", "maximum likelihood"),
    ("random starts", "maximum likelihood"),
)


def split(name, seed):
    """Training and held-out rows, on the scale that both packages get."""
    from zoo.datasets import load

    rng = np.random.default_rng(seed)
    x = load("toy_gaussians", seed=seed)["x"] if name == "toy" else load(name)["x"]
    order = rng.permutation(len(x))
    train, held_out = np.split(x[order], [3 * len(x) // 4])
    loc, scale = train.mean(axis=0), train.std(axis=0)
    if name == "digits":
        axes = np.linalg.svd(train - loc, full_matrices=False)[2][:20]
        return (train - loc) @ axes.T, (held_out - loc) @ axes.T
    return (train - loc) / scale, (held_out - loc) / scale


def priors(train):
    """Ours as `GaussianWishart.from_data` has it, and the one that scikit-learn takes by default."""
    import zoo

    num_features = train.shape[1]
    theirs = zoo.conjugate.GaussianWishart.from_data(
        train,
        mean_precision=1.0,
        degrees_of_freedom=float(num_features),
        scale_matrix=np.linalg.inv(np.cov(train, rowvar=False)),
    )
    return {"ours": zoo.conjugate.GaussianWishart.from_data(train), "theirs": theirs}


def fit_ours(train, num_components, seed, prior="ours", flat=False, **settings):
    """The fitted tree of the public front door; one draw from q, since only its parameters are scored.

    Flat weights are Dirichlet(1, ..., 1), which is what maximum likelihood comes nearest to.
    """
    import zoo
    from inference import fit

    model = zoo.Mixture(
        components=priors(train)[prior],
        num_components=num_components,
        concentration=float(num_components) if flat else 1.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a start that has not converged counts as it is
        return fit(model, train, seed=seed, num_samples=1, progress=False, **settings)


def fit_theirs(train, num_components, seed, bayesian=True, prior="theirs", **settings):
    """The fitted estimator; its weights are Dirichlet with concentration 1 / K each, as ours are."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

    settings |= {"n_components": num_components, "max_iter": 1000, "random_state": seed}
    if bayesian:
        settings["weight_concentration_prior_type"] = "dirichlet_distribution"
        if prior == "ours":
            ours = priors(train)["ours"]
            settings |= {
                "mean_precision_prior": float(ours.mean_precision),
                "degrees_of_freedom_prior": float(ours.degrees_of_freedom),
                "covariance_prior": np.linalg.inv(ours.scale_matrix),
                "reg_covar": 0.0,  # its prior regularises already
            }
    estimator = BayesianGaussianMixture(**settings) if bayesian else GaussianMixture(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(train)


def exact_predictive(estimator, rows):
    """Log density of rows under a BayesianGaussianMixture's q, parameters integrated out: Student's t's."""
    from scipy.special import logsumexp
    from scipy.stats import multivariate_t

    num_features = rows.shape[1]
    weights = estimator.weight_concentration_ / estimator.weight_concentration_.sum()
    parts = []
    for k, (nu, beta) in enumerate(
        zip(estimator.degrees_of_freedom_, estimator.mean_precision_, strict=True)
    ):
        df = nu - num_features + 1
        shape = estimator.covariances_[k] * nu * (beta + 1) / (beta * df)
        parts.append(np.log(weights[k]) + multivariate_t(estimator.means_[k], shape, df).logpdf(rows))
    return logsumexp(parts, axis=0)


def timed(call, *arguments, **settings):
    """Result, wall seconds, processor seconds of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call(*arguments, **settings)
    return result, time.perf_counter() - wall, time.process_time() - cpu


def score(name, num_components, seed, ours=OURS, peers=PEERS):
    """Held-out nats per row and seconds of every fit on one split."""
    from inference import log_density

    train, held_out = split(name, seed)
    scores, seconds = {}, {}
    for label, settings in ours.items():
        tree, *seconds["ours", label] = timed(fit_ours, train, num_components, seed, **settings)
        scores["ours", label] = float(log_density(tree, held_out).mean())
    for label, settings in peers.items():
        estimator, *seconds["theirs", label] = timed(fit_theirs, train, num_components, seed, **settings)
        scores["theirs", label] = float(estimator.score(held_out))
        if settings.get("bayesian", True):
            scores["exact", label] = float(exact_predictive(estimator, held_out).mean())
    return scores, seconds


def difference(ours, theirs):
    """Mean of the paired differences, its standard error, and whether it lies above the bar."""
    gain = np.asarray(ours) - np.asarray(theirs)
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return {"mean": gain.mean(), "standard_error": error, "reached": bool(gain.mean() >= BAR * error)}


def compare(name, num_components, num_splits):
    """All comparisons on one data set at one number of components."""
    runs = [score(name, num_components, seed) for seed in range(num_splits)]
    scores = {key: [run[0][key] for run in runs] for key in runs[0][0]}
    # the first split compiles ours; the others have its shapes, and every fit there is a later call
    wall, cpu = ({key: sum(run[1][key][i] for run in runs[1:]) for key in runs[0][1]} for i in (0, 1))
    rows = []
    for mine, peer in COMPARISONS:
        row = {"ours": mine, "theirs": peer, **difference(scores["ours", mine], scores["theirs", peer])}
        if ("exact", peer) in scores:
            row["exact"] = difference(scores["ours", mine], scores["exact", peer])
        a, b = ("ours", mine), ("theirs", peer)
        row |= {"times_as_fast_wall": wall[b] / wall[a], "times_as_fast_cpu": cpu[b] / cpu[a]}
        row |= {"ours_s": wall[a] / (num_splits - 1), "cold_first_call_s": runs[0][1][a][0]}
        rows.append(row)
    means = {f"{side}: {label}": float(np.mean(values)) for (side, label), values in scores.items()}
    return {"nats_per_row": means, "comparisons": rows}


def show(title, result):
    """Print the comparisons of one data set as they will be recorded."""
    print(title)
    for row in result["comparisons"]:
        verdict = "reached" if row["reached"] else "MISSED"
        exact = row.get("exact")
        beside = f"; exact {exact['mean']:+.3f} ({exact['standard_error']:.3f})" if exact else ""
        print(
            f"  {row['ours']:<28} - {row['theirs']:<28} {row['mean']:+.3f} ({row['standard_error']:.3f}) "
            f"{verdict}{beside}; {row['times_as_fast_wall']:.2f} times as fast by the clock, "
            f"{row['times_as_fast_cpu']:.2f} by the processor; ours "
            f"{row['ours_s']:.3f} s, cold {row['cold_first_call_s']:.1f} s",
            flush=True,
        )


def pin():
    """One core for both packages, and no compiled program of an earlier run; before JAX is imported."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    results = {}
    for name in arguments.data:
        for num_components in SIZES[name]:
            title = f"{name}, {num_components} components"
            results[title] = compare(name, num_components, arguments.splits)
            show(title, results[title])
    if arguments.splits < 20 or set(arguments.data) != set(SIZES):
        return
    record = {
        "load_average_before": load,
        "splits": arguments.splits,
        "bar_in_standard_errors": BAR,
        "bnpy": "0.1.7 does not build with pip on Python 3.11 or 3.12",
        "missed": [
            f"{title}: {row['ours']} - {row['theirs']}"
            for title, result in results.items()
            for row in result["comparisons"]
            if not row["reached"]
        ],
        "results": results,
    }
    write_record("mixture_heldout", "python -m tests.benchmarks.mixture_heldout", "scikit-learn", **record)


if __name__ == "__main__":
    pin()
    main()
