"""The joint prior on SPECT images (Figure 9 of Virtanen 2010): held-out cells over beta, spread of restarts.

Needs the set; the figures are recorded in tests/reference/epca_spect.json. Run with
``ZOO_DATA=... python -m pytest -m "slow and needs_data"
tests/inference/methods/epca/test_reference_epca.py``.
"""

import warnings

import numpy as np
import pytest

import zoo
from inference import fit
from tests.tools.recording import add_part_to_record
from zoo.datasets import load

pytestmark = [pytest.mark.slow, pytest.mark.needs_data]
NUM_MASKS, HIDDEN, NUM_STARTS = 20, 0.15, 10
WITHOUT_MEAN, WITH_MEAN = 1e-4, 100.0  # prior variances of the mean
KERNEL = (0.1, 0.2)


def record(part, **figures):
    """Put the figures beside those of the other test."""
    test = "tests/inference/methods/epca/test_reference_epca.py"
    command = f'ZOO_DATA=... python -m pytest -m "slow and needs_data" {test}'
    add_part_to_record("epca_spect", part, command, **figures)


def estimate(x, beta, variance, loc_variance, **settings):
    """MAP with one latent; ``variance`` is the product of the two prior variances."""
    model = zoo.EPCA(
        family="bernoulli",
        num_latents=1,
        beta=beta,
        latent_variance=variance,
        loc_variance=loc_variance,
        conjugate=KERNEL if beta else None,
        num_features=x.shape[1],
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="beta=1 makes prior and posterior")
        return fit(model, x, method="map", max_iterations=5000, tolerance=1e-8, **settings)


def held_out(x, mask, *choice):
    """Mean log density of the hidden cells, in nats a cell."""
    point = estimate(np.where(mask, np.nan, x), *choice)["posterior"].isel(chain=0, draw=0)
    theta = point["latents"].values @ point["loadings"].values.T + point["loc"].values
    return float((x * theta - np.logaddexp(0.0, theta))[mask].mean())


def masks(x):
    """Fifteen per cent of the cells, twenty times."""
    return [np.random.default_rng(seed).random(x.shape) < HIDDEN for seed in range(NUM_MASKS)]


def test_a_weak_gaussian_prior_gains_from_the_kernel_and_a_tuned_one_does_not():
    """Variances' product 100, no mean: beta 0.4 beats 0 by 0.005 and 1 by 0.002; with 0.1 within 0.002 of 0.

    Paired over 20 masks, standard errors recorded. The two comparisons are each other's control: a score that
    ignores beta fails the first, one that always favours the kernel the second.
    """
    x = load("spect")["x"].astype(float)
    hidden = masks(x)
    scores = {
        f"variance {variance:g}, beta {beta:g}": np.array(
            [held_out(x, mask, beta, variance, WITHOUT_MEAN) for mask in hidden]
        )
        for variance in (100.0, 0.1)
        for beta in (0.0, 0.4, 1.0)
    }

    def gain(variance, beta):
        """Mean and standard error of beta 0.4 over another one."""
        gap = scores[f"variance {variance}, beta 0.4"] - scores[f"variance {variance}, beta {beta}"]
        return {"mean": float(gap.mean()), "standard_error": float(gap.std(ddof=1) / NUM_MASKS**0.5)}

    gains = {f"variance {s}, over beta {b}": gain(s, b) for s in ("100", "0.1") for b in ("0", "1")}
    figures = {
        "rows": "SPECT, K = 1, no mean, lam 0.1, nu 0.2, 15 % hidden",
        "masks": NUM_MASKS,
        "nats_per_cell": {name: float(values.mean()) for name, values in scores.items()},
        "gain_of_beta_0.4": gains,
        "bars": {"over beta 0": 0.005, "over beta 1": 0.002, "at variance 0.1": 0.002},
    }
    record("held_out", **figures)
    assert gains["variance 100, over beta 0"]["mean"] >= 0.005
    assert gains["variance 100, over beta 1"]["mean"] >= 0.002
    assert abs(gains["variance 0.1, over beta 0"]["mean"]) <= 0.002


def spread_of_starts(x, beta, variance, loc_variance):
    """Largest minus smallest objective of ten random starts, in nats."""
    fits = estimate(x, beta, variance, loc_variance, num_restarts=NUM_STARTS)
    best = fits["trace"]["objective_at_end"].to_numpy()
    assert best.shape == (NUM_STARTS,)
    return float(np.ptp(best))


def test_random_starts_end_at_one_maximum():
    """Without a mean, as in the source: objectives of ten starts within 0.01 nats in all eight settings.

    A free mean brings local maxima where the Gaussian prior is weak and alone, by some twenty nats, and the
    joint prior takes them away: found here, not stated in the source.
    """
    x = load("spect")["x"].astype(float)
    plain = {
        f"variance {variance:g}, beta {beta:g}": spread_of_starts(x, beta, variance, WITHOUT_MEAN)
        for variance in (0.1, 100.0)
        for beta in (0.0, 0.2, 0.4, 0.6)
    }
    free = {
        f"variance {variance:g}, beta {beta:g}": spread_of_starts(x, beta, variance, WITH_MEAN)
        for variance in (0.1, 100.0)
        for beta in (0.0, 0.4)
    }
    spreads = {"spread_in_nats_no_mean": plain, "spread_in_nats_free_mean": free}
    record("restarts", starts=NUM_STARTS, bar=0.01, **spreads)
    assert max(plain.values()) < 0.01
    assert free["variance 100, beta 0"] > 1 > 0.01 > free["variance 100, beta 0.4"]
