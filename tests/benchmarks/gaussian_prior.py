"""Two default priors of Gaussian components: held-out density and the agreement of starts on twelve tables.

``python -m tests.benchmarks.gaussian_prior [--record] [TABLE ...]`` fits `zoo.Mixture` with its defaults (VB,
K = 20) to three quarters of the rows of each table, four times, under two priors with the same location, the
sample mean, and the same strength, a hundredth of a row:

* ``ours``, `zoo.conjugate.GaussianWishart.from_data`: d degrees of freedom, inverse scale matrix 0.01 d S, S
  the sample covariance;
* ``Fraley and Raftery``: d + 2 degrees of freedom, inverse scale matrix :math:`S / K^{2/d}` (Fraley and
  Raftery 2007, "Bayesian regularization for normal mixture estimation and model-based clustering", Journal of
  Classification 24, section 3.2).

What decides is the log density of the other rows, in nats per row, mean over the splits; over tables the mean
of the differences (theirs less ours) and its standard error. Beside it: the share of the ten starts that end
within one nat of the best, the components with rows, and the splits, which share rows, so that the standard
error of a single table's mean would be too small and is not given.

Tables: of the catalogue (``faithful``, ``toy_gaussians``, ``olive``); of scikit-learn (``iris``, ``wine``,
the ten means of ``breast_cancer``); drawn as in `tests.benchmarks.mixture_samplers` (``separated``,
``overlapping``, ``heavy_tailed``), with the centres of `tests.support.planted` (``planted``), and two wider
ones: ``regimes`` (1000 rows, three columns, three regimes of unequal spread, one column skewed) and ``parts``
(500 rows, ten columns, three kinds in a direction of large common variance).
"""

import argparse
import warnings

import numpy as np

NAME = "benchmark_gaussian_prior"
PRIORS = ("ours", "Fraley and Raftery")
TABLES = (
    *("faithful", "toy_gaussians", "olive", "iris", "wine", "breast_cancer"),
    *("separated", "overlapping", "heavy_tailed", "planted", "regimes", "parts"),
)
COMPONENTS, SPLITS = 20, 4


def table(name):
    """The rows of a table, shape (num_observations, num_features)."""
    from tests.benchmarks.mixture_samplers import rows_of

    rng = np.random.default_rng(0)
    if name in ("iris", "wine", "breast_cancer"):
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")().data[:, : 13 if name == "wine" else 10]
    if name == "planted":
        from tests.support.planted import CENTRES, SHARES

        return CENTRES[rng.choice(3, 300, p=SHARES)] + rng.normal(size=(300, 2))
    if name == "regimes":
        regime = rng.choice(3, 1000, p=[0.6, 0.3, 0.1])
        heat = rng.normal(np.array([55, 72, 91])[regime], 2)
        shake = np.exp(rng.normal(np.log(np.array([0.3, 0.5, 2.4]))[regime], 0.25))
        return np.column_stack([heat, shake, rng.normal(np.array([3.1, 3.4, 2.2])[regime], 0.12)])
    if name == "parts":
        kind, centres = rng.choice(3, 500), 1.2 * rng.normal(size=(3, 10))
        common = 3 * rng.normal(size=(500, 1)) * rng.normal(size=(1, 10))
        return centres[kind] + rng.normal(size=(500, 10)) + common
    return rows_of(name)


def prior_on(name, x):
    """A prior of the components for these rows."""
    from zoo.conjugate import GaussianWishart

    if name == "ours":
        return GaussianWishart.from_data(x)
    d = x.shape[1]
    covariance = np.atleast_2d(np.cov(x, rowvar=False))
    scale = np.linalg.inv(covariance) * COMPONENTS ** (2 / d)
    return GaussianWishart.from_data(x, degrees_of_freedom=d + 2.0, scale_matrix=0.5 * (scale + scale.T))


def judged(x, name, split):
    """Held-out density in nats per row, share of starts within a nat of the best, components with rows."""
    import inference
    import zoo

    order = np.random.default_rng([1, split]).permutation(len(x))
    train, test = np.split(x[order], [3 * len(x) // 4])
    model = zoo.Mixture(components=prior_on(name, train), num_components=COMPONENTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(model, train, method="vb", seed=split, progress=False)
    ends = tree["trace"]["objective_by_restart"].max("restart_iteration").values
    return {
        "density": float(inference.log_density(tree, test).mean()),
        "agreement": float(np.mean(ends > ends.max() - 1)),
        "occupied": float(tree["posterior"]["num_occupied"].mean()),
    }


def compared(name):
    """Both priors on all splits of a table."""
    x, found = table(name), {}
    for prior in PRIORS:
        splits = [judged(x, prior, split) for split in range(SPLITS)]
        found[prior] = {key: [round(one[key], 4) for one in splits] for key in splits[0]}
    differences = {
        key: round(float(np.mean(found[PRIORS[1]][key]) - np.mean(found[PRIORS[0]][key])), 4)
        for key in ("density", "agreement", "occupied")
    }
    print(name, x.shape, differences, flush=True)
    return {"shape": list(x.shape), **found, "theirs less ours": differences}


def over_tables(tables):
    """Mean and standard error over the tables of theirs less ours, and on how many theirs is larger."""
    found = {}
    for key in ("density", "agreement", "occupied"):
        each = np.array([own["theirs less ours"][key] for own in tables.values()])
        found[key] = {
            "mean": round(float(each.mean()), 4),
            "standard error": round(float(each.std(ddof=1) / np.sqrt(len(each))), 4),
            "median": round(float(np.median(each)), 4),
            "tables where theirs is larger": int((each > 0).sum()),
        }
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    tables = {name: compared(name) for name in given.tables}
    summary = over_tables(tables) if len(tables) > 1 else {}
    print(summary)
    if given.record:
        from tests.tools.recording import write_record

        command = "python -m tests.benchmarks.gaussian_prior --record"
        write_record(NAME, command, "scikit-learn", over_tables=summary, **tables)


if __name__ == "__main__":
    main()
