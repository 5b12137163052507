"""`posterior_check` on draws whose truth is known: its false alarms, its power, and what it refuses."""

import numpy as np
import pytest
from scipy import stats

from inference.calibration import posterior_check
from zoo import posteriors

DRAWS, CHAINS, CORRELATION = 5000, 4, 0.5
NAME = "lda_sparse"  # twelve exact quantities


def chains(rng, num_effective, size):
    """Autoregressions with standard normal draws, this many effective ones, shape (size, chain, draw)."""
    length = round(num_effective * (1 + CORRELATION) / (1 - CORRELATION) / CHAINS)
    noise = rng.normal(size=(size, CHAINS, length))
    values = np.empty_like(noise)
    values[..., 0] = noise[..., 0]
    for t in range(1, length):
        values[..., t] = CORRELATION * values[..., t - 1] + np.sqrt(1 - CORRELATION**2) * noise[..., t]
    return values


def replicates(bias, count, rate, name=NAME):
    """Verdicts on draws of which one quantity alone is off by ``bias`` posterior sds."""
    rng, reference = np.random.default_rng(5), posteriors.load(name).reference
    for replicate in range(count):
        values = chains(rng, DRAWS, len(reference))
        values[replicate % len(reference)] += bias
        draws = {q: own.mean + own.sd * v for (q, own), v in zip(reference.items(), values, strict=True)}
        yield posterior_check(draws, name, false_alarm_rate=rate)


@pytest.mark.slow
def test_right_draws_pass_as_often_as_is_said():
    """At a rate of .2, so that 90 replicates show it; the bounds fail a right check in 1e-3 of cases."""
    failed = sum(not verdict for verdict in replicates(0.0, 90, 0.2))
    # Bonferroni's rate is an upper bound: for twelve independent quantities 1 - (1 - .2 / 12)^12 = .183
    assert stats.binom.isf(0.9995, 90, 0.183) <= failed <= stats.binom.isf(0.0005, 90, 0.183)


@pytest.mark.slow
def test_a_tenth_of_a_standard_deviation_is_found_with_5000_effective_draws():
    """At the default rate of 1 % in the family; fails with a power of .95 in 1e-3 of cases."""
    verdicts = list(replicates(0.1, 60, 0.01))
    assert sum(not verdict for verdict in verdicts) >= stats.binom.ppf(1e-3, 60, 0.95)
    for verdict in verdicts:
        assert 0.06 < max(verdict.smallest_visible_bias.values()) < 0.1


@pytest.mark.parametrize("name", posteriors.names())
def test_every_posterior_can_show_a_tenth_of_a_standard_deviation(name):
    """Of each quantity, with both Monte Carlo errors, at the rate of 1 % for all quantities together."""
    reference = posteriors.load(name).reference
    needed = stats.norm.isf(0.005 / len(reference)) + stats.norm.ppf(0.95)
    for quantity, own in reference.items():
        assert own.sd > 0 and own.exact == (own.mcse == 0)
        assert needed * np.sqrt(1 / DRAWS + (own.mcse / own.sd) ** 2) < 0.1, quantity


def test_the_smallest_visible_bias_is_found_with_the_power_that_is_said():
    """Few draws see less: what a run of 600 says it sees it does see, in .95 of 60 replicates."""
    rng, own = np.random.default_rng(8), posteriors.load("mixture").reference["same_cluster"]

    def verdict(bias):
        draws = own.mean + own.sd * (chains(rng, 600, 1)[0] + bias)
        return posterior_check({"same_cluster": draws}, "mixture")

    visible = np.mean([verdict(0.0).smallest_visible_bias["same_cluster"] for _ in range(20)])
    assert 0.13 < visible < 0.22
    found = sum(not verdict(visible) for _ in range(60))
    assert stats.binom.ppf(1e-3, 60, 0.95) <= found


def test_a_chain_that_never_moves_fails():
    mean = posteriors.load("mixture").reference["same_cluster"].mean
    verdict = posterior_check({"same_cluster": np.full((4, 100), mean)}, "mixture")
    assert not verdict and verdict.statistic == np.inf and verdict.ess["same_cluster"] == 0


def test_the_verdict_says_what_it_could_not_have_seen():
    own = posteriors.load("mixture").reference["num_occupied"]
    draws = np.random.default_rng(0).normal(own.mean, own.sd, 400)
    verdict = posterior_check({"num_occupied": draws}, "mixture")
    assert verdict and "same_cluster" in verdict.not_compared
    assert f"a bias of {verdict.smallest_visible_bias['num_occupied']:.2g} posterior sd" in str(verdict)


@pytest.mark.parametrize(
    ("draws", "name", "kind", "said"),
    [
        ({"same_cluster": np.ones(9)}, "mixtures", ValueError, "no reference posterior is called 'mixtures'"),
        ({"other": np.ones(9)}, "mixture", ValueError, "no reference for other; .* has: "),
        ({}, "mixture", ValueError, "nothing to compare"),
        (np.ones((4, 9)), "mixture", TypeError, "a fit or a mapping from names to draws; got ndarray"),
        ({"same_cluster": np.ones((2, 3))}, "mixture", ValueError, r"at least 4 draws; got \(2, 3\)"),
        ({"same_cluster": np.ones((2, 2, 9))}, "mixture", ValueError, r"got \(2, 2, 9\)"),
        ({"same_cluster": np.r_[np.ones(9), np.nan]}, "mixture", ValueError, "finite; got 1 that are not"),
    ],
)
def test_what_it_refuses(draws, name, kind, said):
    with pytest.raises(kind, match=said):
        posterior_check(draws, name)


def test_a_rate_outside_its_domain_is_refused():
    with pytest.raises(ValueError, match="false_alarm_rate must be false alarms, between 0 and 1; got 2"):
        posterior_check({"same_cluster": np.ones(9)}, "mixture", false_alarm_rate=2)
