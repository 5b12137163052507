"""Log evidence where it is known, and on ordinary tables: errors, round trips and CPU seconds; olive.

``python -m tests.benchmarks.tempered [--record] [PART ...]`` writes
``tests/reference/benchmark_tempered.json``, each part as soon as it is known. CPU seconds are those of `fit`,
compilation in every run included.

``faithful``: Old Faithful, K = 20, concentration 1, the default prior, five seeds. Wanted of each 50 round
trips, a standard error of at most .15 and 40 CPU seconds; a range of at most 4.5 mean standard errors.
``without_moves``: the same without split-merge moves, which the verdict is to refuse.

``olive``: the five continuous columns of olive, K = 20, with the prior of Fraley and Raftery (2007,
`tests.benchmarks.gaussian_prior`), by the collapsed sampler from one cluster: chains from random labels are
caught more often in a division that they leave after some 10 000 sweeps. Wanted: a largest R-hat below 1.01,
that of the pairs of rows below 1.05, 150 CPU seconds. ``drawn``: a table drawn from nine Gaussians with the
sizes, means and covariances of olive's areas, with the default prior. Wanted: 30 CPU seconds.

``eight``: all columns of olive with the default prior, two tempered runs, the replicates of one fit. Wanted:
a largest R-hat of the log joint below 1.02, of pairs below 1.15, 200 CPU seconds, and an evidence that is
refused, with a verdict that names the spikes. ``in_steps``: the same with the columns as they were
recorded, ``rounding=`` by `zoo.conjugate.resolution.recorded_step`.

``enumerated``: every posterior of `zoo.posteriors` that is enumerated, by its Gibbs kernels, 16 replicates,
and ``enumerated_by_nuts``, in trees of at most 2^6 steps. Wanted: one test of all errors passed at 1e-3,
their mean at most .02 nats.
``programs``: the other models by NUTS, four seeds each, whose evidence is a mean over draws of the prior.

``ppca``: six columns, three latents, 100 rows drawn from the prior; bridge sampling after Gibbs, 20 seeds,
against importance sampling. Wanted: all within three standard errors, the largest of which is at most .1.
"""

import argparse
import time
import warnings

import numpy as np

NAME = "benchmark_tempered"
SEEDS, COMPONENTS, CONTINUOUS = range(1, 6), 20, 5
SHALLOW = 6  # doublings of a tree of NUTS
PROGRAMS = (
    *("epca of bits", "paired", "epca of unknown noise", "sppca of a probit output"),
    *("depcam without repulsion", "lda", "pcp"),
)
PROGRAM_SEEDS = range(101, 105)
PPCA_SEEDS, PPCA_ROWS, PPCA_FEATURES, PPCA_LATENTS = range(1, 21), 100, 6, 3
PPCA_PRIOR = {"loading_prior": "gaussian", "loading_variance": 1.0, "loc_variance": 1.0}
PPCA_PRIOR |= {"noise_concentration": 3.0, "noise_rate": 2.0, "loc_mean": np.zeros(PPCA_FEATURES)}
TEMPERED = {"method": "tempered", "num_samples": 600}
LONGER = 800  # sweeps that 40 CPU seconds hold on Old Faithful
PLAIN = {"method": "collapsed_gibbs", "num_warmup": 1000, "num_samples": 500, "thinning": 2}
LONG = {"init": "one_cluster", "split_merge": 2, "num_warmup": 12_000, "num_samples": 1000, "thinning": 48}


def fitted(model, *data, seed=1, anew=True, **options):
    """A fit, whose programs are all compiled anew or only what has not been, and its CPU seconds."""
    import jax

    from inference import fit

    jax.config.update("jax_enable_compilation_cache", False)
    if anew:
        jax.clear_caches()
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(model, *data, seed=seed, progress=False, **options)
    return tree, round(time.process_time() - begun, 1)


def tempered(seed, **options):
    """What a run on Old Faithful tells of the evidence."""
    import zoo
    from zoo.datasets import load

    x = np.asarray(load("faithful")["x"], float)
    model = zoo.Mixture.from_data(x, num_components=COMPONENTS, concentration=1.0)
    tree, seconds = fitted(model, x, seed=seed, **TEMPERED | options)
    names = ("log_evidence", "log_evidence_se", "round_trips", "barrier", "why_no_evidence")
    found = {name: tree.attrs[name] for name in names}
    found |= {"temperatures": tree["sample_stats"].sizes["temperature"], "CPU seconds": seconds}
    print(seed, found, flush=True)
    return found


def faithful():
    """Five runs, and their range over their mean standard error."""
    runs = [tempered(seed, num_samples=LONGER) for seed in SEEDS]
    values, errors = ([run[name] for run in runs] for name in ("log_evidence", "log_evidence_se"))
    return {"runs": runs, "range over mean error": round(float(np.ptp(values) / np.mean(errors)), 2)}


def without_moves():
    """The run of one seed without split-merge moves."""
    return tempered(SEEDS[0], split_merge=0)


def converged(model, x, names=(), **options):
    """R-hats of a run, its CPU seconds, and root attributes of these names.

    ``lp`` is that of draws of the parameters, which the clusters of few rows spread over hundreds of nats;
    ``recorded`` is the log joint that the sampler records, of the urn that of labels alone.
    """
    from inference.convergence.r_hat import psrf_of
    from inference.diagnostics import invariants

    tree, seconds = fitted(model, x, **PLAIN | options)
    labels = tree["posterior"]["assignments"].transpose("chain", "draw", ...).values
    pairs = np.random.default_rng(0).integers(0, len(x), (200, 2))
    together = (labels[..., pairs[:, 0]] == labels[..., pairs[:, 1]]).astype(float)
    own = invariants(tree)
    told = [name for name in ("lp", "num_occupied") if name in own]  # lp needs densities of all draws
    r_hats = {name: psrf_of(own[name].transpose("chain", "draw").values, "rank") for name in told}
    recorded = tree["trace"]["objective"].transpose("chain", "iteration")
    recorded = recorded.values[:, tree["trace"].attrs["num_warmup"] :]
    r_hats["recorded"] = psrf_of(recorded, "rank")
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


def judged(runs):
    """Runs by name, the chance of worse errors and of a mean further from zero if all are right, the mean."""
    from scipy import stats

    from tests.inference.methods.test_tempered import REPLICATES, of_errors

    errors, standard_errors = np.array([(run["error"], run["standard error"]) for run in runs.values()]).T
    normal = stats.norm.ppf(stats.t.cdf(errors / standard_errors, REPLICATES - 1))
    of_mean = 2 * stats.norm.sf(abs(normal.sum()) / np.sqrt(len(runs)))
    found = {"chance": of_errors(errors, standard_errors), "chance of the mean": of_mean}
    return {name: float(value) for name, value in (found | {"mean error": errors.mean()}).items()} | {
        "runs": runs
    }


def run_of(model, data, value, error=0.0, **options):
    """A tempered run beside an evidence that is known up to a standard error."""
    if options["kernel"] == "nuts":  # at all temperatures the longest tree counts
        options["max_tree_depth"] = SHALLOW
    tree, seconds = fitted(model, *data, **{"method": "tempered"} | options)
    found = {"error": float(tree.attrs["log_evidence"] - value)}
    found |= {"standard error": float(np.hypot(tree.attrs["log_evidence_se"], error)), "CPU seconds": seconds}
    print(options, found, tree.attrs["why_no_evidence"], flush=True)
    return found


def enumerated(kernels=("collapsed_gibbs", "gibbs")):
    """Posteriors whose labels or topics are listed."""
    from tests.inference.methods import test_tempered as mixtures
    from tests.inference.methods import test_tempered_models as others

    runs = {}
    for name, kernel in mixtures.pairs(mixtures.ENUMERATED, kernels):
        case, call = mixtures.ALL[name](), mixtures.LENGTH | {"kernel": kernel}
        runs[f"{name}, {kernel}"] = run_of(case.model, case.data, mixtures.truth(name, kernel), **call)
    for name, (model, data, own) in others.TOPICS.items():
        for kernel in set(own) & set(kernels):
            call = others.RUN | {"kernel": kernel}
            runs[f"{name}, {kernel}"] = run_of(model, data, others.known(name, kernel)[0], **call)
    return judged(runs)


def enumerated_by_nuts():
    """The same by NUTS, trees of at most 2^6 steps."""
    return enumerated(("nuts",))


def programs():
    """Models whose evidence is a mean over draws of the prior, by NUTS."""
    from tests.inference.methods import test_tempered_models as others

    runs = {}
    for name in PROGRAMS:
        model, data, _ = others.ALL[name]
        for seed in PROGRAM_SEEDS:
            call = others.RUN | {"kernel": "nuts", "seed": seed, "anew": seed == PROGRAM_SEEDS[0]}
            runs[f"{name}, {seed}"] = run_of(model, data, *others.known(name, f"nuts {seed}"), **call)
    return judged(runs)


def ppca():
    """Twenty runs of bridge sampling, and what importance sampling says."""
    import zoo
    from inference import log_evidence

    rng, shape = np.random.default_rng(0), (PPCA_FEATURES, PPCA_LATENTS)
    x = rng.normal(size=(PPCA_ROWS, PPCA_LATENTS)) @ rng.normal(size=shape).T
    x += rng.normal(size=PPCA_FEATURES) + 0.7 * rng.normal(size=x.shape)
    model = zoo.PPCA(num_latents=PPCA_LATENTS, num_features=PPCA_FEATURES, **PPCA_PRIOR)
    call, runs = {"method": "gibbs", "num_warmup": 500, "num_samples": 1000, "thinning": 4}, {}
    pilot = fitted(model, x, seed=0, **call)[0]["posterior"]
    value, error = by_importance(
        x,
        *(pilot[name].values.reshape(-1, *pilot[name].shape[2:]) for name in ("loadings", "noise_variance")),
    )
    print(value, error, flush=True)
    for seed in PPCA_SEEDS:
        tree, seconds = fitted(model, x, seed=seed, anew=False, **call)
        begun = time.process_time()
        attrs = log_evidence(tree, seed=seed).attrs
        seconds += round(time.process_time() - begun, 1)
        found = {"error": attrs["log_evidence"] - value, "standard error": attrs["log_evidence_se"]}
        runs[str(seed)] = found | {"CPU seconds": seconds}
        print(runs[str(seed)], attrs["why_no_evidence"], flush=True)
    errors, standard_errors = np.array([(run["error"], run["standard error"]) for run in runs.values()]).T
    return {
        "by importance sampling": value,
        "its standard error": error,
        "largest error in standard errors": float(abs(errors / np.hypot(standard_errors, error)).max()),
        "largest standard error": float(standard_errors.max()),
        "mean error": float(errors.mean()),
        "runs": runs,
    }


def by_importance(x, loadings, noise, number=200_000):
    """Log evidence of PPCA under `PPCA_PRIOR` and its error; a Student-t proposal fitted to draws.

    Standard normal loadings W are L Q, Q orthogonal and L lower trapezoidal, with entries that are
    independent: chi of k - i + 1 degrees on the diagonal, standard normal below (Bartlett 1933). The
    likelihood is free of Q, and the rows' mean is integrated in closed form.

    Args:
        x: rows, shape (num_observations, num_features).
        loadings: draws, shape (num_draws, num_features, num_latents).
        noise: draws of the noise variance, shape (num_draws,).
        number: of draws of the proposal.
    """
    from scipy import stats
    from scipy.special import logsumexp

    from tests.inference.test_evidence import log_marginal

    (d, k), diagonal = loadings.shape[1:], np.arange(loadings.shape[2])
    below = np.tril_indices(d, -1, k)
    q = np.linalg.qr(np.swapaxes(loadings[:, :k], 1, 2))[0]
    lower = loadings @ q
    lower *= np.sign(lower[:, diagonal, diagonal])[:, None]
    draws = np.column_stack([np.log(lower[:, diagonal, diagonal]), lower[:, *below], np.log(noise)])
    proposal = stats.multivariate_t(draws.mean(0), 1.2 * np.cov(draws.T), df=8, seed=np.random.default_rng(1))
    points = proposal.rvs(number)
    lower = np.zeros((number, d, k))
    lower[:, diagonal, diagonal], lower[:, *below] = np.exp(points[:, :k]), points[:, k:-1]
    noise = np.exp(points[:, -1])
    prior = stats.chi(k - diagonal).logpdf(lower[:, diagonal, diagonal]).sum(1) + points[:, :k].sum(1)
    prior += stats.norm.logpdf(points[:, k:-1]).sum(1)
    own = PPCA_PRIOR["noise_concentration"], PPCA_PRIOR["noise_rate"]
    prior += stats.invgamma(own[0], scale=own[1]).logpdf(noise) + points[:, -1]
    logs = prior + log_marginal(x, lower, noise, PPCA_PRIOR["loc_variance"]) - proposal.logpdf(points)
    weights = np.exp(logs - logs.max())
    assert weights.sum() ** 2 / (weights**2).sum() > number / 10
    return float(logsumexp(logs) - np.log(number)), float(weights.std() / weights.mean() / np.sqrt(number))


OF_TABLES = (faithful, without_moves, olive, drawn, eight, in_steps)
PARTS = {part.__name__: part for part in (*OF_TABLES, enumerated, enumerated_by_nuts, programs, ppca)}


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
