"""Held-out cells of two paired tables against MOFA+ (mofapy2) and cca-zoo, ten paired masks a case.

``python -m tests.benchmarks.epca_peers`` draws two views of 80 rows and 12 columns from a model with one
shared latent and one of each view, hides cells (fifteen per cent of each view; against cca-zoo, which knows
no missing cells, the second view of every fifth row) and scores them by the plug-in density at
posterior-mean natural parameters on both sides. Means of columns are zero, because MOFA+ has no intercept for
binary views and counts; its Poisson rate is log(1 + e^theta), ours e^theta, which is what the data are drawn
with. Ours has the true numbers of latents and unit variances, without tuning; the peers prune from six and
three factors. What is not installed, or does not run, is named with its error. Recorded in
tests/reference/epca_peers.json.
"""

import contextlib
import io
import json
import time
import warnings
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from tests.tools.recording import write_record

ROWS, COLUMNS, MASKS = 80, 12, 10
SCALES = {"gaussian": 1.0, "bernoulli": 1.5, "poisson": 0.6}
LENGTHS = {"gibbs": (300, 700), "nuts": (200, 300)}


def views_of(family, seed):
    """Two views with one latent in common and one each."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(ROWS, 1))
    views = []
    for _ in range(2):
        u = np.hstack([shared, rng.normal(size=(ROWS, 1))])
        theta = u @ (SCALES[family] * rng.normal(size=(2, COLUMNS)))
        draw = {
            "gaussian": lambda theta: theta + rng.normal(size=theta.shape),
            "bernoulli": lambda theta: (rng.random(theta.shape) < 1 / (1 + np.exp(-theta))).astype(float),
            "poisson": lambda theta: rng.poisson(np.exp(theta)).astype(float),
        }[family]
        views.append(draw(theta))
    return views


def cells_hidden(seed):
    """Fifteen per cent of the cells of each view."""
    rng = np.random.default_rng(1000 + seed)
    return [rng.random((ROWS, COLUMNS)) < 0.15 for _ in range(2)]


def rows_hidden(seed):
    """The second view of a fifth of the rows."""
    chosen = np.random.default_rng(1000 + seed).permutation(ROWS)[: ROWS // 5]
    return [np.zeros((ROWS, COLUMNS), bool), np.isin(np.arange(ROWS), chosen)[:, None].repeat(COLUMNS, 1)]


def log_density(family, y, location, noise_variance=1.0):
    """Of cells at their mean (rate, probability), in nats."""
    from scipy import stats

    if family == "gaussian":
        return stats.norm(location, np.sqrt(noise_variance)).logpdf(y)
    if family == "bernoulli":
        return stats.bernoulli(location).logpmf(y)
    return stats.poisson(location).logpmf(y)


def score(family, views, hidden, locations, noises):
    """Mean over the hidden cells of both views."""
    own = [
        log_density(family, y, location, noise)[mask]
        for y, mask, location, noise in zip(views, hidden, locations, noises, strict=True)
    ]
    return float(np.mean(np.concatenate(own)))


def ours(family, seen, seed):
    """Means of the cells at posterior-mean natural parameters, and noise variances."""
    import zoo
    from inference import fit
    from zoo.exponential_family import Gaussian

    member = Gaussian(None) if family == "gaussian" else family
    method = "nuts" if family == "poisson" else "gibbs"
    warmup, draws = LENGTHS[method]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        tree = fit(
            zoo.Paired.ecca((member, member), 1, (1, 1)),
            *seen,
            method=method,
            seed=seed,
            num_chains=2,
            num_warmup=warmup,
            num_samples=draws,
            progress=False,
        )
    found = tree["posterior"]
    u = found["latents"].values
    link = {"gaussian": lambda t: t, "bernoulli": lambda t: 1 / (1 + np.exp(-t)), "poisson": np.exp}[family]
    locations, noises = [], []
    for v in (0, 1):
        theta = u @ np.swapaxes(found[f"loadings_{v}"].values, -1, -2) + found[f"loc_{v}"].values[:, :, None]
        locations.append(link(theta.mean((0, 1))))
        noises.append(float(found[f"noise_variance_{v}"].mean()) if family == "gaussian" else 1.0)
    return locations, noises


def mofa(family, seen, seed):
    """The same by MOFA+, six factors to begin with; means of Gaussian columns are those of seen cells."""
    from mofapy2.run.entry_point import entry_point

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = entry_point()
        run.set_data_options(scale_views=False)
        run.set_data_matrix([[y.copy()] for y in seen], likelihoods=[family] * 2)
        run.set_model_options(factors=6, spikeslab_weights=False, ard_weights=True)
        run.set_train_options(iter=1000, convergence_mode="slow", seed=seed, quiet=True, dropR2=None)
        run.build()
        run.run()
    expectations = run.model.getExpectations()
    z = np.asarray(expectations["Z"]["E"] if isinstance(expectations["Z"], dict) else expectations["Z"])
    locations, noises = [], []
    for v, y in enumerate(seen):
        w = expectations["W"][v]
        w = np.asarray(w["E"] if isinstance(w, dict) else w)
        theta = z @ w.T
        noise = 1.0
        if family == "gaussian":
            theta = theta + np.nanmean(y, axis=0)
            tau = expectations["Tau"][v]
            noise = 1 / np.asarray(tau["E"] if isinstance(tau, dict) else tau)
        link = {
            "gaussian": lambda t: t,
            "bernoulli": lambda t: 1 / (1 + np.exp(-t)),
            "poisson": lambda t: np.log1p(np.exp(t)),
        }[family]
        locations.append(link(theta))
        noises.append(np.broadcast_to(noise, theta.shape))
    return locations, noises


def group_factor_analysis(family, seen, seed):
    """The second view from the first by cca-zoo's GFA, three factors; fitted to the rows that have both."""
    from cca_zoo.probabilistic import GFA

    both = ~np.isnan(seen[1]).any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GFA(n_components=3, random_state=seed).fit([y[both] for y in seen])
    means = [y[both].mean(axis=0) for y in seen]
    w, draws = model.weights_, model.posterior_samples_
    tau = [float(np.mean(draws[f"noise_sd_{v}"] ** -2.0)) for v in (0, 1)]
    precision = np.eye(w[0].shape[1]) + tau[0] * w[0].T @ w[0]
    z = np.linalg.solve(precision, tau[0] * w[0].T @ (seen[0] - means[0]).T).T
    return [means[0] + z @ w[0].T, means[1] + z @ w[1].T], [1 / tau[0], 1 / tau[1]]


CASES = {
    "mofapy2, gaussian": ("gaussian", mofa, cells_hidden),
    "mofapy2, bernoulli": ("bernoulli", mofa, cells_hidden),
    "mofapy2, poisson": ("poisson", mofa, cells_hidden),
    "cca-zoo GFA, gaussian": ("gaussian", group_factor_analysis, rows_hidden),
}


def compare(family, peer, hide):
    """Differences of the two scores over the masks, and CPU seconds of each side."""
    scores, seconds = {"ours": [], "peer": []}, {"ours": [], "peer": []}
    for seed in range(MASKS):
        views, hidden = views_of(family, seed), hide(seed)
        seen = [np.where(mask, np.nan, y) for y, mask in zip(views, hidden, strict=True)]
        for name, run in (("ours", ours), ("peer", peer)):
            begin = time.process_time()
            scores[name].append(score(family, views, hidden, *run(family, seen, seed)))
            seconds[name].append(time.process_time() - begin)
    gap = np.subtract(scores["ours"], scores["peer"])
    error = float(gap.std(ddof=1) / MASKS**0.5)
    return {
        "nats_per_cell": {name: round(float(np.mean(own)), 4) for name, own in scores.items()},
        "difference": round(float(gap.mean()), 4),
        "standard_error": round(error, 4),
        "reached": bool(gap.mean() >= -2 * error),
        "cpu_seconds_median": {name: round(float(np.median(own)), 2) for name, own in seconds.items()},
    }


def installed(package):
    """Its version, or why there is none."""
    try:
        return version(package)
    except PackageNotFoundError as error:
        return f"not installed: {error}"


def main():
    """Run every case, print, record."""
    record = {}
    for name, (family, peer, hide) in CASES.items():
        try:
            record[name] = compare(family, peer, hide)
        except Exception as error:  # a peer that is missing or fails is a result: named with its error
            record[name] = {"did_not_run": f"{type(error).__name__}: {error}"}
        print(name, json.dumps(record[name]), flush=True)
        command, bar = "python -m tests.benchmarks.epca_peers", "difference not below -2 standard errors"
        peers = {peer: installed(peer) for peer in ("mofapy2", "cca-zoo")}
        write_record("epca_peers", command, masks=MASKS, bar=bar, peers=peers, cases=record)


if __name__ == "__main__":
    main()
