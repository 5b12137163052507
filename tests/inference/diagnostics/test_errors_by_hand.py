"""R-hat, Monte Carlo standard errors and relative efficiency against their definitions, written out."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm, rankdata

from inference.convergence.r_hat import psrf_of
from inference.diagnostics import comparison, summaries
from inference.fitting import verdict
from tests.support.planted import planted_regression, replaced


def split_r_hat(draws):
    """Of chains cut in halves: (B / W of the means and variances) + 1, square root."""
    halves = np.concatenate(np.split(draws, 2, axis=1))
    length = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(axis=1).var(ddof=1)
    return np.sqrt((length - 1) / length + between / within)


def normal_scores(draws):
    """Ranks among all draws, as quantiles of a normal distribution (Blom)."""
    return norm.ppf((rankdata(draws).reshape(draws.shape) - 3 / 8) / (draws.size + 1 / 4))


def folded(draws):
    """Distances from the median."""
    return np.abs(draws - np.median(draws))


def test_rank_r_hat_is_the_larger_of_two_and_sees_a_chain_that_is_wider():
    """Vehtari et al. (2021), equations 4 to 14. The chains have one median: only the folded half speaks."""
    draws = np.random.default_rng(0).normal(size=(4, 400))
    draws -= np.median(draws, axis=1, keepdims=True)
    draws[3] *= 3.0
    place, spread = split_r_hat(normal_scores(draws)), split_r_hat(normal_scores(folded(draws)))
    assert place < 1.01 and spread > 1.1
    assert psrf_of(draws, "rank") == pytest.approx(spread, rel=1e-10)
    elsewhere = np.random.default_rng(1).normal(size=(4, 400)) + np.array([[0.0], [0], [0], [1]])
    assert psrf_of(elsewhere, "rank") == pytest.approx(split_r_hat(normal_scores(elsewhere)), rel=1e-10)


def test_errors_of_draws_of_q_are_those_of_independent_draws():
    drawn = (np.arange(40).reshape(1, 40) % 8 == 0).astype(float)  # 5 of 40
    assert summaries._standard_error(drawn, "variational") == pytest.approx(
        np.sqrt(0.125 * 0.875 / 40), rel=1e-12
    )
    values = np.arange(10.0).reshape(1, 10)
    mean, error, deviation = comparison._statistics(values, "variational")
    assert (mean, deviation) == (4.5, pytest.approx(values.std(ddof=1)))
    assert error == pytest.approx(deviation / np.sqrt(10), rel=1e-12)


def test_errors_of_chains_count_what_draws_repeat():
    """Every draw ten times over: a tenth of the effective sample size, errors of a run a tenth as long."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(4, 500))
    repeated = np.repeat(values, 10, axis=1)
    _, error, deviation = comparison._statistics(repeated, "sampling")
    assert error == pytest.approx(deviation / np.sqrt(values.size), rel=0.1)
    indicator = (repeated > 0.5).astype(float)
    share = indicator.mean()
    wanted = np.sqrt(share * (1 - share) / values.size)
    assert summaries._standard_error(indicator, "sampling") == pytest.approx(wanted, rel=0.15)


def test_errors_of_two_fits_are_combined():
    table = pd.DataFrame(
        {("one", "mean"): [1.0], ("one", "mcse"): [0.3], ("one", "sd"): [2.0]}
        | {("two", "mean"): [2.0], ("two", "mcse"): [0.4], ("two", "sd"): [4.0]},
        index=["lp"],
    )
    found = comparison.differences(table, "one", "two").loc["lp"]
    assert tuple(found) == pytest.approx((1.0, 1.0 / 0.5, 1.0 / 4.0), rel=1e-12)


def test_relative_efficiency_is_the_share_of_draws_that_count():
    """Log densities whose draws are each repeated four times are worth a quarter of their number."""
    rng = np.random.default_rng(3)
    independent = 0.3 * rng.normal(size=(4, 500, 6))
    assert comparison._relative_efficiency(independent) == pytest.approx(1.0, abs=0.1)
    repeated = np.repeat(independent, 4, axis=1)
    assert comparison._relative_efficiency(repeated) == pytest.approx(0.25, rel=0.15)
    assert comparison._relative_efficiency(repeated[:1]) == 1.0  # draws of q are independent


def test_leave_one_out_is_told_how_many_draws_count(monkeypatch):
    """Four chains of 400 draws, each repeated four times; what ArviZ is given besides the tree."""
    rows = np.repeat(-0.5 * np.random.default_rng(4).normal(size=(4, 100, 6)) ** 2, 4, axis=1)
    group = xr.Dataset({"log_likelihood": (("chain", "draw", "observation"), rows)})
    monkeypatch.setattr(comparison.late, "loo", lambda tree, **given: given)
    given = comparison.leave_one_out(replaced(planted_regression(num_draws=400), log_likelihood=group))
    assert given["reff"] == pytest.approx(0.25, rel=0.15) and given["pointwise"] is True


def test_a_score_s_standard_error_is_the_deviation_over_the_root_of_the_rows():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    assert comparison.standard_error(values) == pytest.approx(np.sqrt(((values - 4.0) ** 2).sum() / 3 / 4))
    assert np.isnan(comparison.standard_error(values[:1]))


@pytest.mark.parametrize(("errors", "is_level"), [(1.9, True), (2.1, False)])
def test_a_noisy_objective_is_level_within_two_standard_errors(errors, is_level):
    """Two stretches of a hundred steps, each of variance exactly 4 (0.2 standard errors each)."""
    noise = np.tile([-1.0, 1.0], 50) * np.sqrt(4 * 99 / 100)
    error = np.sqrt(4 / 100 + 4 / 100)
    objective = np.concatenate([np.full(800, -90.0), noise - 50, noise - 50 + errors * error])
    assert verdict._has_levelled(objective, objective.size)[0] == is_level
    assert not verdict._has_levelled(objective, objective.size + 1)[0]  # stopped before its time
