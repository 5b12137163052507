"""Evidence by tempering on ordinary tables: round trips, errors and CPU seconds; olive's continuous columns.

``python -m tests.benchmarks.tempered [--record] [PART ...]`` writes
``tests/reference/benchmark_tempered.json``, each part as soon as it is known. CPU seconds are those of `fit`,
compilation in every run included.

``faithful``: Old Faithful, K = 20, concentration 1, the default prior, five seeds. Wanted of each 50 round
trips, a standard error of at most .15 and 40 CPU seconds; a range of at most 4.5 mean standard errors.
``without_moves``: the same without split-merge moves, which the verdict is to refuse.

``olive``: the five continuous columns of olive, K = 20, with the prior of Fraley and Raftery (2007,
`tests.benchmarks.gaussian_prior`), by the collapsed sampler. Wanted: a largest R-hat below 1.01, that of the
pairs of rows below 1.05, 150 CPU seconds. ``drawn``: a table drawn from nine Gaussians with the sizes, means
and covariances of olive's areas, with the default prior. Wanted: 30 CPU seconds.

``eight``: all columns of olive with the default prior, two tempered runs, the replicates of one fit. Wanted:
a largest R-hat of the log joint below 1.02, of pairs below 1.15, 200 CPU seconds, and an evidence that is
refused, with a verdict that names the spikes. ``in_steps``: the same with the columns as they were
recorded, ``rounding=`` by `zoo.conjugate.resolution.recorded_step`.
"""

import argparse
import time
import warnings

import numpy as np

NAME = "benchmark_tempered"
SEEDS, COMPONENTS, CONTINUOUS = range(1, 6), 20, 5
TEMPERED = {"method": "tempered", "num_samples": 600}
PLAIN = {"method": "collapsed_gibbs", "num_warmup": 1000, "num_samples": 500, "thinning": 2}
LONG = {"num_warmup": 4000, "num_samples": 1000, "thinning": 16}


def fitted(model, x, seed=1, **options):
    """A fit whose programs are all compiled anew, and its CPU seconds."""
    import jax

    from inference import fit

    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(model, x, seed=seed, progress=False, **options)
    return tree, round(time.process_time() - begun, 1)


def tempered(seed, **options):
    """What a run on Old Faithful tells of the evidence."""
    import zoo
    from zoo.datasets import load

    x = np.asarray(load("faithful")["x"], float)
    model = zoo.Mixture.from_data(x, num_components=COMPONENTS, concentration=1.0)
    tree, seconds = fitted(model, x, seed, **TEMPERED | options)
    names = ("log_evidence", "log_evidence_se", "round_trips", "barrier", "why_no_evidence")
    found = {name: tree.attrs[name] for name in names}
    found |= {"temperatures": tree["sample_stats"].sizes["temperature"], "CPU seconds": seconds}
    print(seed, found, flush=True)
    return found


def faithful():
    """Five runs, and their range over their mean standard error."""
    runs = [tempered(seed) for seed in SEEDS]
    values, errors = ([run[name] for run in runs] for name in ("log_evidence", "log_evidence_se"))
    return {"runs": runs, "range over mean error": round(float(np.ptp(values) / np.mean(errors)), 2)}


def without_moves():
    """The run of one seed without split-merge moves."""
    return tempered(SEEDS[0], split_merge=0)


def converged(model, x, names=(), **options):
    """R-hats of a run, its CPU seconds, and root attributes of these names."""
    from inference.convergence.r_hat import psrf_of
    from inference.diagnostics import invariants

    tree, seconds = fitted(model, x, **PLAIN | options)
    labels = tree["posterior"]["assignments"].transpose("chain", "draw", ...).values
    pairs = np.random.default_rng(0).integers(0, len(x), (200, 2))
    together = (labels[..., pairs[:, 0]] == labels[..., pairs[:, 1]]).astype(float)
    own = invariants(tree)
    r_hats = {
        name: psrf_of(own[name].transpose("chain", "draw").values, "rank") for name in ("lp", "num_occupied")
    }
    share = together.mean((0, 1))
    worst = max(psrf_of(together[..., i], "split") for i in np.flatnonzero((share > 0.02) & (share < 0.98)))
    found = {"R-hat": {name: round(float(v), 4) for name, v in r_hats.items()}}
    found |= {"worst pair": round(float(worst), 3), "CPU seconds": seconds}
    return found | {name: tree.attrs[name] for name in names}


def olive():
    """The continuous columns under the prior of Fraley and Raftery."""
    import zoo
    from tests.benchmarks.gaussian_prior import prior_on
    from zoo.datasets import load

    x = np.asarray(load("olive")["x"], float)[:, :CONTINUOUS]
    components = prior_on("Fraley and Raftery", x)
    return converged(
        zoo.Mixture(components=components, num_components=COMPONENTS, concentration=1.0), x, **LONG
    )


def drawn():
    """A table of nine Gaussians as olive's areas have them."""
    import zoo
    from zoo.datasets import load

    data, rng = load("olive"), np.random.default_rng(0)
    x, area = np.asarray(data["x"], float), np.asarray(data["area"])
    rows = [x[area == name] for name in np.unique(area)]
    x = np.concatenate([rng.multivariate_normal(own.mean(0), np.cov(own.T), len(own)) for own in rows])
    return converged(zoo.Mixture.from_data(x, num_components=COMPONENTS, concentration=1.0), x)


def all_columns(steps_of=lambda x: None):
    """Two tempered runs on all columns of olive."""
    import zoo
    from zoo.conjugate import GaussianWishart
    from zoo.datasets import load

    x = np.asarray(load("olive")["x"], float)
    components = GaussianWishart.from_data(x, rounding=steps_of(x))
    model = zoo.Mixture(components=components, num_components=COMPONENTS, concentration=1.0)
    names = ("log_evidence", "log_evidence_se", "round_trips", "barrier", "why_no_evidence", "verdict")
    return converged(model, x, names, **TEMPERED, num_chains=2, num_warmup=300, thinning=1)


def eight():
    """The default prior, cells taken for exact."""
    return all_columns()


def in_steps():
    """Cells as they were recorded."""
    from zoo.conjugate.resolution import recorded_step

    return all_columns(lambda x: np.array([recorded_step(cells) for cells in x.T]))


PARTS = {part.__name__: part for part in (faithful, without_moves, olive, drawn, eight, in_steps)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    for name in given.parts:
        found = PARTS[name]()
        print(name, found, flush=True)
        if given.record:
            from tests.tools.recording import add_part_to_record

            command = f"python -m tests.benchmarks.tempered --record {name}"
            add_part_to_record(NAME, name, command, **found)


if __name__ == "__main__":
    main()
