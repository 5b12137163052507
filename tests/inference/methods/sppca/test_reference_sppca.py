"""Slow runs of SPPCA, in tests/reference/sppca.json: sweeps, the mean of the outputs, NUTS beside EM.

Run with ``python -m pytest -m "slow or needs_peer" tests/inference/methods/sppca/test_reference_sppca.py``;
the digits come with the extra ``bench``.
"""

import warnings

import numpy as np
import pytest
import scipy.stats

from inference import fit, predict
from inference.diagnostics import invariants, summary
from tests.support.supervised_toys import best, sweeps_to, toy
from tests.tools.recording import add_to_record
from zoo import SPPCA

MODEL = SPPCA(num_latents=3)


def record(name, **figures):
    """Put the figures of one test beside those of the others."""
    command = 'python -m pytest -m "slow or needs_peer" tests/inference/methods/sppca/test_reference_sppca.py'
    add_to_record("sppca", command, **{name: figures})


@pytest.mark.slow
def test_expansion_takes_tens_of_sweeps_where_plain_em_takes_hundreds():
    """Median over 8 draws of the toy from random starts, to 1e-5 nats of the best."""
    counts = {"px": [], "none": []}
    for seed in range(8):
        x, _, y = toy(seed)
        top = best(fit(MODEL, x, y, tolerance=1e-14, max_iterations=3000))
        for acceleration, sweeps in counts.items():
            options = {"tolerance": 0, "max_iterations": 2000, "init": "random", "seed": seed}
            tree = fit(MODEL, x, y, acceleration=acceleration, **options)
            sweeps.append(int(min(sweeps_to(tree["trace"]["objective"], top), 2001)))
    record("sweeps_to_1e-5_nats", bars="median px at most 20, plain at least 150", **counts)
    assert np.median(counts["px"]) <= 20 and np.median(counts["none"]) >= 150, counts


@pytest.mark.slow
def test_joint_mean_predicts_better_than_the_plugged_in_one():
    """Mean squared error of E[y | x] on 400 new rows of 30 toys; with few labels the text's mean costs most.

    One-sided Wilcoxon signed-rank test over the toys, false alarm 1e-3 a size. If the two means were equally
    good their errors could be exchanged within a toy, every sign of a gain would be a fair coin and the test
    exact. The mean gain over its standard error has no such guarantee: the plugged-in mean's errors have
    heavy tails with 6 labels, a few toys make up both, and the ratio is recorded (2.3 there), not judged.
    """
    figures = {}
    for labelled in (6, 12, 30):
        errors = {"plugin": [], "joint": []}
        for seed in range(30):
            x, y, _ = toy(seed, num_rows=550)
            partly = y[:150].copy()
            partly[labelled:] = np.nan
            for center, found in errors.items():
                model = SPPCA(num_latents=3, center=center)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="noise_variance_y is at its floor")
                    tree = fit(model, x[:150], partly, tolerance=1e-8, max_iterations=3000)
                found.append(float(((predict(tree, x[150:]).to_numpy() - y[150:]) ** 2).mean()))
        gain = np.array(errors["plugin"]) - np.array(errors["joint"])
        figures[labelled] = {name: float(np.mean(found)) for name, found in errors.items()}
        figures[labelled] |= {"gain": float(gain.mean()), "standard_error": float(gain.std(ddof=1) / 30**0.5)}
        figures[labelled]["wilcoxon_p"] = float(scipy.stats.wilcoxon(gain, alternative="greater").pvalue)
    record("squared_error_by_center", **{str(n): value for n, value in figures.items()})
    assert all(figures[labelled]["wilcoxon_p"] < 1e-3 for labelled in figures), figures


@pytest.mark.slow
def test_nuts_agrees_with_em_on_what_a_rotation_cannot_change():
    """Toy of 80 rows, 25 labelled; 19 free parameters, so the log likelihood falls short of EM's by 9.5."""
    sizes = {"num_rows": 80, "num_features": 5, "num_outputs": 1, "num_latents": 2, "labelled": 25}
    x, _, y = toy(0, **sizes)
    em = fit(SPPCA(num_latents=2), x, y, tolerance=1e-12)
    prior = {"loading_prior": "gaussian", "loading_variance": 4.0, "loc_variance": 100.0}
    model = SPPCA(num_latents=2, noise_concentration=1.0, noise_rate=0.1, **prior)
    lengths = {"num_warmup": 500, "num_samples": 1000, "num_chains": 4}
    tree = fit(model, x, y, method="nuts", init=em, seed=1, **lengths)
    likelihood = tree["log_likelihood"]["log_likelihood"].sum("observation").to_numpy()
    table = summary(tree)
    estimate, furthest = em["variational"], {}
    for block in "xy":
        draws = invariants(tree)[f"marginal_covariance_{block}"].to_numpy()
        draws = draws.reshape(-1, *draws.shape[2:])
        w = estimate[f"loadings_{block}"].to_numpy()
        expected = w @ w.T + float(estimate[f"noise_variance_{block}"]) * np.eye(len(w))
        furthest[block] = float((np.abs(draws.mean(axis=0) - expected) / draws.std(axis=0)).max())
    deficit = float(best(em) - likelihood.mean())
    ours, theirs = predict(em, x), predict(tree, x)
    away = float((np.abs(ours - theirs) / theirs["standard_deviation"]).max())
    record(
        "nuts",
        **lengths,
        largest_r_hat=float(table["r_hat"].max()),
        smallest_ess=float(table["ess_bulk"].min()),
        deficit=deficit,
        covariance_furthest_in_sd=furthest,
        outputs_furthest_in_sd=away,
        diverging=int(tree["sample_stats"]["diverging"].sum()),
    )
    assert (likelihood < best(em)).all()  # no draw above the maximum
    assert abs(deficit - 9.5) < 0.25 * 9.5
    assert max(furthest.values()) < 1.5 and away < 0.5
    assert table["r_hat"].max() < 1.01 and table["ess_bulk"].min() > 400


@pytest.mark.needs_peer
@pytest.mark.filterwarnings("ignore:the columns of x have very different scales")  # one unit: ink
def test_digits_with_five_labels_a_class_from_random_starts():
    """Sweeps to 1e-3 nats of the best, 10 latents: at most 60 with expansion."""
    from sklearn.datasets import load_digits

    x, labels = load_digits(return_X_y=True)
    x = x[:, x.std(axis=0) > 0]
    rng = np.random.default_rng(0)
    kept = np.concatenate([rng.choice(np.flatnonzero(labels == c), 5, replace=False) for c in range(10)])
    y = np.full((len(x), 10), np.nan)
    y[kept] = np.eye(10)[labels[kept]]
    model, counts = SPPCA(num_latents=10), []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the 10 outputs have rank 9")
        warnings.filterwarnings("ignore", message="noise_variance_y is at its floor")
        top = best(fit(model, x, y, tolerance=1e-10, max_iterations=1000))
        for seed in range(3):
            tree = fit(model, x, y, tolerance=0, max_iterations=200, init="random", seed=seed)
            top = max(top, best(tree))
            counts.append(tree["trace"]["objective"].to_numpy())
    sweeps = [int(min(sweeps_to(objective, top, within=1e-3), 201)) for objective in counts]
    record("digits_sweeps_to_1e-3_nats", bar="at most 60", px=sweeps)
    assert np.median(sweeps) <= 60
