"""Class labels of SPPCA through a probit or as Gaussian 0/1 columns: log score and error over paired splits.

``python -m tests.benchmarks.probit_outputs`` fits all rows of a data set, standardised, of which a few are
labelled, and scores the class probabilities of the others: mean log probability of the true class (nats a
row, higher is better) and share of rows whose most probable class is not the true one. The fits see the same
rows and labels. It records what it finds in ``tests/reference/probit_outputs.json``.
"""

import argparse
import time
import warnings

import numpy as np
import scipy.stats

from tests.tools.recording import add_to_record, write_record

NUM_LATENTS, NUM_LABELLED = 2, 45
DRAWS = {"num_chains": 2, "num_warmup": 200, "num_samples": 40, "thinning": 5}
CONTENDERS = {  # options of the model, of the fit
    "Gaussian coding, flat": ({}, {"method": "em"}),
    "Gaussian coding, prior": ({"loading_prior": "gaussian"}, {"method": "em"}),
    "probit by EP, prior": (
        {"output_likelihood": "probit", "loading_prior": "gaussian"},
        {"method": "ep", "tolerance": 1e-5},
    ),
    "probit by EP, loading variance 10": (
        {"output_likelihood": "probit", "loading_prior": "gaussian", "loading_variance": 10.0},
        {"method": "ep", "tolerance": 1e-5},
    ),
    "probit by Gibbs, prior": (
        {"output_likelihood": "probit", "loading_prior": "gaussian"},
        {"method": "gibbs", **DRAWS},
    ),
    "probit by Gibbs, loading variance 10": (
        {"output_likelihood": "probit", "loading_prior": "gaussian", "loading_variance": 10.0},
        {"method": "gibbs", **DRAWS},
    ),
}


def rows_of(name):
    """Standardised rows and class labels as numbers from 0."""
    from zoo.datasets import load

    data = load(name)
    x, labels = np.asarray(data["x"], float), np.unique(data["labels"], return_inverse=True)[1]
    return (x - x.mean(axis=0)) / x.std(axis=0), labels


def scores(x, labels, known, model_options, fit_options):
    """Log score and error on the rows whose label is not known."""
    import zoo
    from inference import fit, predict

    given = [f"class {label}" if seen else None for label, seen in zip(labels, known, strict=True)]
    model = zoo.SPPCA(num_latents=NUM_LATENTS, **model_options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # floors and starts that have not converged count as they are
        tree = fit(model, x, given, progress=False, **fit_options)
    shares = predict(tree, x[~known], what="classes")
    truth = labels[~known]
    shares = shares.sel({"class": [f"class {c}" for c in range(labels.max() + 1)]}).to_numpy()
    own = shares[np.arange(len(truth)), truth]
    error = float(np.mean(shares.argmax(axis=1) != truth))
    return float(np.mean(np.log(np.maximum(own, 1e-300)))), error


def main():
    """Fit, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--data", default="wine")
    parser.add_argument("--only", default="", help="contenders whose name has this; added to the record")
    arguments = parser.parse_args()
    x, labels = rows_of(arguments.data)
    contenders = {name: options for name, options in CONTENDERS.items() if arguments.only in name}
    judge = next(name for name in contenders if "by EP" in name)
    found = {name: [] for name in contenders}
    seconds = dict.fromkeys(contenders, 0.0)
    for split in range(arguments.splits):
        known = np.zeros(len(x), bool)
        known[np.random.default_rng(split).permutation(len(x))[:NUM_LABELLED]] = True
        for name, options in contenders.items():
            begin = time.process_time()
            found[name].append(scores(x, labels, known, *options))
            seconds[name] += time.process_time() - begin
        print(split, {name: np.round(own[-1], 4).tolist() for name, own in found.items()}, flush=True)
    results = {name: np.array(own) for name, own in found.items()}
    summary = {}
    probit = results[judge]
    for name, own in results.items():
        summary[name] = {
            "log_score": [float(own[:, 0].mean()), float(own[:, 0].std(ddof=1))],
            "error": [float(own[:, 1].mean()), float(own[:, 1].std(ddof=1))],
            "cpu_seconds": seconds[name],
        }
        if name != judge:
            away = probit - own
            summary[name] |= {"compared_with": judge, "log_score_it_less_this": float(away[:, 0].mean())}
            summary[name]["paired_t_log_score"] = float(scipy.stats.ttest_rel(probit[:, 0], own[:, 0]).pvalue)
            summary[name]["error_it_less_this"] = float(away[:, 1].mean())
        print(f"{name:<36} {summary[name]}")
    command = f"python -m tests.benchmarks.probit_outputs --splits {arguments.splits} --data {arguments.data}"
    if arguments.only:
        more = f"{command} --only {arguments.only!r}"
        figures = {f"only {arguments.only}": {"command": more, "draws": DRAWS} | summary}
        add_to_record("probit_outputs", command, "scikit-learn", **figures)
        return
    record = {
        "rows": list(x.shape),
        "num_latents": NUM_LATENTS,
        "num_labelled": NUM_LABELLED,
        "mean_and_standard_deviation_over_splits": summary,
    }
    write_record("probit_outputs", command, "scikit-learn", **record)


if __name__ == "__main__":
    main()
