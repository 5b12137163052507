"""Invariants, PSRF, the verdict, number of clusters, partitions, comparison: on fits with a known truth."""

import re
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from inference import diagnostics
from inference.convergence import identifiable
from inference.convergence.partitions import memberships
from inference.convergence.r_hat import Mixing
from inference.diagnostics import (
    co_clustering,
    compare,
    heldout,
    invariants,
    judge,
    occupied,
    point_partition,
    psrf,
    psrf_path,
    summary,
    summary_cells,
    summary_text,
)
from inference.diagnostics.cluster_profiles import _shares, number_table, starts_table
from inference.diagnostics.prior_width import AtWidth
from tests.support.planted import (
    planted_mixture,
    planted_projection,
    planted_regression,
    planted_zoo,
    replaced,
    switch_labels,
    variational_mixture,
)


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.fixture(scope="module")
def straight():
    return planted_mixture()


@pytest.fixture(scope="module")
def switched(straight):
    return switch_labels(straight)


# Invariants


def test_label_switching_leaves_every_invariant_exactly_as_it_was(straight, switched):
    assert not np.array_equal(straight["posterior"]["weights"], switched["posterior"]["weights"])
    xr.testing.assert_identical(invariants(straight), invariants(switched))


def test_invariants_of_a_mixture_by_hand(switched):
    found = invariants(switched)
    chain, draw = 2, 17
    z = switched["posterior"]["assignments"].values[chain, draw]
    assert found["num_occupied"][chain, draw] == len(set(z.tolist()))
    pairs = [z[i] == z[j] for i, j in product(range(len(z)), repeat=2) if i != j]
    assert float(found["same_cluster"][chain, draw]) == pytest.approx(np.mean(pairs))
    weights = switched["posterior"]["weights"].values[chain, draw]
    assert (
        found["sorted_weights"].sizes["weight_rank"] == 3
    )  # the two empty components are far below one per cent
    np.testing.assert_array_equal(found["sorted_weights"][chain, draw], sorted(weights, reverse=True)[:3])
    rows = switched["log_likelihood"]["log_likelihood"].values[chain, draw]
    assert float(found["mean_log_likelihood"][chain, draw]) == pytest.approx(rows.mean())
    for name in found["pair_together"]["pair"].values:
        i, j = map(int, name.split("~"))
        assert float(found["pair_together"].sel(pair=name)[chain, draw]) == (z[i] == z[j])
    assert ((found["pair_together"].mean(("chain", "draw")) - 0.5).__abs__() <= 0.45).all()


def test_pairs_are_neighbours_along_the_first_component_wherever_the_rows_are(straight):
    """Every fourth of 41 rows in a line of slope -1 that lie far from the origin along the other diagonal."""
    rng = np.random.default_rng(0)
    place = rng.permutation(41)
    x = 1000.0 + (place - 20.0)[:, None] * [1.0, -1.0] + 1e-3 * rng.normal(size=(41, 2))
    tree = straight.copy()
    tree["observed_data"] = xr.Dataset({"x": (("observation", "feature"), x)})
    pairs = place[identifiable._representative_pairs(tree)]
    line = np.arange(4, 40, 4)
    expected = np.stack([line[:-1], line[1:]], axis=1)
    assert np.array_equal(pairs, expected) or np.array_equal(pairs, 40 - expected)


def test_invariants_of_a_projection_are_those_of_the_draws_before_they_were_turned():
    turned, straight = planted_projection(views=("", "_y"))
    found = invariants(turned)
    w, w_y = straight["loadings"], straight["loadings_y"]
    noise = turned["posterior"]["noise_variance"].values
    covariance = w @ np.swapaxes(w, -1, -2) + noise[..., None, None] * np.eye(4)
    np.testing.assert_allclose(found["marginal_covariance"], covariance, atol=1e-12)
    np.testing.assert_allclose(found["singular_values"], np.linalg.svd(w, compute_uv=False), atol=1e-12)
    np.testing.assert_allclose(found["cross_covariance_y"], w @ np.swapaxes(w_y, -1, -2), atol=1e-12)
    assert not {"loadings", "latents", "latent_scales"} & set(found.data_vars)


def test_a_model_without_symmetries_shows_all_its_variables():
    assert set(invariants(planted_regression()).data_vars) == {"slope", "lp"}


# The table


def test_summary_says_what_was_left_out_and_how_to_get_it(switched):
    table = summary(switched)
    assert not [
        name for name in table.index if name.startswith(("weights", "locs", "covariances", "assignments"))
    ]
    for word in ("weights", "locs", "labels switch", "relabel"):
        assert word in table.attrs["note"]
    assert " ".join(table.attrs["note"].split()) in " ".join(summary_text(switched, details=True).split())
    values = invariants(switched)["lp"].values
    row = table.loc["lp"]
    assert row["mean"] == pytest.approx(values.mean())
    assert row["sd"] == pytest.approx(values.std(ddof=1))
    assert row["eti90_lb"] == pytest.approx(np.quantile(values, 0.05), abs=0.02)
    assert row["eti90_ub"] == pytest.approx(np.quantile(values, 0.95), abs=0.02)


def test_summary_of_switched_parameters_is_refused(switched):
    with pytest.raises(ValueError, match=r"locs.*relabel"):
        summary(switched, var_names=["locs"])
    with pytest.raises(ValueError, match="no variable 'nothing'"):
        summary(switched, var_names=["nothing"])


def test_summary_of_draws_from_q_has_no_r_hat_and_says_why():
    table = summary(variational_mixture())
    assert not {"r_hat", "ess_bulk", "ess_tail"} & set(table.columns)
    assert "independent draws" in table.attrs["note"]
    assert table.notna().all(axis=None)


def test_summary_of_a_point_estimate_has_means_only():
    tree = variational_mixture(num_draws=1)
    tree.attrs["method"] = "em"
    table = summary(tree)
    assert list(table.columns) == ["mean"]
    assert "point estimate" in table.attrs["note"]


def test_a_constant_quantity_is_called_constant():
    tree = planted_regression()
    posterior = tree["posterior"].to_dataset().assign(num_occupied=(("chain", "draw"), np.full((4, 200), 2)))
    tree = replaced(tree, posterior=posterior)
    table = summary(tree)
    assert table.loc["num_occupied", "r_hat"] == "constant"
    assert table.loc["num_occupied", "ess_bulk"] == "constant"
    assert table.loc["num_occupied", "mean"] == 2
    assert "nan" not in summary_text(tree, details=True).lower()
    assert psrf(tree).attrs["constant"] == "num_occupied"
    assert judge(tree)[0]


def test_a_long_table_is_printed_with_its_worst_rows(straight):
    table = summary(straight)
    long = pd.concat([table.iloc[:1]] * 30 + [table.iloc[1:]])
    long.index = [f"loc[{i}]" for i in range(30)] + list(table.index[1:])
    long.loc["loc[21]", "r_hat"] = 9.0
    cells = summary_cells(long, most=3)
    assert list(cells.index[:3]) == ["loc[0]", "loc[1]", "loc[21]"]
    assert cells.attrs["not_shown"].startswith("Not shown: 27 more of loc")
    assert summary_cells(table).attrs["not_shown"] == ""


def test_one_chain_has_no_r_hat_and_says_so():
    tree = planted_regression(num_chains=1)
    table = summary(tree)
    assert "r_hat" not in table and "ess_bulk" in table
    assert "single chain" in table.attrs["note"]
    with pytest.raises(ValueError, match="one"):
        psrf(tree)


@pytest.mark.parametrize("wrong", [{"interval": "iqr"}, {"probability": 1.0}, {"method": "magic"}])
def test_summary_refuses(straight, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        summary(straight, **wrong)


def test_a_highest_density_interval_is_shorter_for_a_skewed_quantity(straight):
    equal_tails = summary(straight, ["concentration"])
    densest = summary(straight, ["concentration"], interval="hdi")
    width = [float(table.iloc[0, 3] - table.iloc[0, 2]) for table in (equal_tails, densest)]
    assert width[1] < width[0]


# PSRF


def test_identity_psrf_is_gelman_and_rubins_formula():
    tree = planted_regression(shift=0.5)
    draws = tree["posterior"]["slope"].values[..., 0]
    n = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean()
    between_over_n = draws.mean(axis=1).var(ddof=1)
    expected = np.sqrt(((n - 1) / n * within + between_over_n) / within)
    assert float(psrf(tree, ["slope"], method="identity")["slope"][0]) == pytest.approx(expected, rel=1e-12)


def test_psrf_finds_the_chain_that_is_elsewhere():
    assert float(psrf(planted_regression())["slope"].max()) < 1.02
    assert float(psrf(planted_regression(shift=3.0))["slope"].min()) > 1.3


def test_psrf_of_chains_stuck_at_their_own_values_is_infinite():
    draws = np.repeat(np.arange(4.0)[:, None], 50, axis=1)
    tree = planted_regression(num_draws=50)
    tree = replaced(tree, posterior=xr.Dataset({"stuck": (("chain", "draw"), draws)}))
    assert np.isinf(psrf(tree, ["stuck"])["stuck"])
    good, reason = judge(tree)
    assert not good and "stuck" in reason


def test_a_fair_coin_has_a_psrf():
    # folded about its median 1/2 it is constant, and ArviZ's maximum of both statistics would be NaN
    tree = planted_regression(num_draws=200)
    coin = np.random.default_rng(3).permuted(np.tile([0.0, 1.0], (4, 100)), axis=1)
    tree = replaced(tree, posterior=xr.Dataset({"coin": (("chain", "draw"), coin)}))
    assert float(psrf(tree, ["coin"])["coin"]) == pytest.approx(1.0, abs=0.02)


def test_psrf_of_raw_labels_shows_the_switching():
    tree = planted_mixture(num_draws=50)
    posterior = tree["posterior"].to_dataset()
    turned = posterior["locs"].values.copy()
    turned[0] = turned[0][:, [1, 0, 2, 3, 4]]  # one chain has two labels the other way round
    tree = replaced(tree, posterior=posterior.assign(locs=(posterior["locs"].dims, turned)))
    assert float(psrf(tree, ["locs"])["locs"].max()) > 1.5
    assert float(psrf(tree)["num_occupied"]) < 1.05


def test_psrf_path_ends_at_the_second_half_and_falls_after_a_bad_start():
    tree = planted_regression(num_draws=400)
    slope = tree["posterior"]["slope"].values.copy()
    slope[0, :40] += 20.0  # one chain starts far away
    tree = replaced(tree, posterior=xr.Dataset({"slope": (("chain", "draw", "feature"), slope)}))
    path = psrf_path(tree, ["slope"], num_points=20)
    assert path.sizes["draw"] == 20 and int(path["draw"][-1]) == 400
    half = replaced(
        tree, posterior=tree["posterior"].to_dataset().isel(draw=slice(200, 400)), sample_stats=None
    )
    np.testing.assert_allclose(path["slope"][-1], psrf(half, ["slope"])["slope"])
    early = path["slope"].sel(draw=slice(0, 60)).max()
    assert early > 1.5 and path["slope"].sel(draw=slice(120, None)).max() < 1.1


@pytest.mark.parametrize("function", [psrf, psrf_path, judge])
def test_psrf_does_not_apply_to_draws_from_q(function):
    with pytest.raises(ValueError, match="independent draws"):
        function(variational_mixture())


# The verdict


def test_judge_believes_independent_chains_and_says_what_fails_in_others():
    good, reason = judge(planted_regression(num_draws=1000))
    assert good and "R-hat" in reason and "ESS" in reason
    good, reason = judge(planted_regression(num_draws=1000, shift=1.0))
    assert not good and "slope[a]" in reason + "slope[b]" and "Next:" in reason


def test_judge_asks_for_enough_draws():
    """Chains with equal halves but slow movement: R-hat is fine, the effective sample size is not."""
    rng = np.random.default_rng(5)
    slow = rng.normal(size=(4, 1000))
    for t in range(1, 1000):  # autocorrelation 0.9: about 1000 / 19 effective draws a chain
        slow[:, t] = 0.9 * slow[:, t - 1] + np.sqrt(1 - 0.81) * slow[:, t]
    halves = slow.reshape(4, 2, 500)
    halves = (halves - halves.mean(-1, keepdims=True)) / halves.std(-1, keepdims=True)
    tree = planted_regression(num_draws=1000)
    tree = replaced(tree, posterior=xr.Dataset({"slow": (("chain", "draw"), halves.reshape(4, 1000))}))
    good, reason = judge(tree)
    assert not good and reason.startswith("1 invariant fails on ESS: ")


@pytest.mark.parametrize(
    ("factor", "size", "said"),
    [
        (1.00962, 399.6, "2 invariants fail on ESS: largest R-hat 1.0096 (slope; .* bulk ESS 399.6 "),
        (1.0104, 400.4, "1 invariant fails on R-hat: largest R-hat 1.0104 .* bulk ESS 400.4 "),
        (1.3, 20.4, "1 invariant fails on R-hat and 2 on ESS: largest R-hat 1.300 .* bulk ESS 20 "),
    ],
)
def test_a_figure_that_fails_does_not_read_as_the_bound(factor, size, said):
    """Once `0 invariants fail on R-hat`, and `smallest bulk ESS 400 (above 400 wanted)`."""
    tree = planted_regression(num_draws=1000)
    mixed = Mixing({"slope": factor, "loc": 1.0}, {"slope": size, "loc": size}, (), None, 400)
    good, reason = judge(tree, mixed)
    assert not good and re.match(said.replace("(", "[(]"), reason)


def test_judge_does_not_overlook_what_is_not_finite():
    tree = planted_regression()
    lp = tree["sample_stats"]["lp"].values.copy()
    lp[0, 0] = np.nan
    good, reason = judge(replaced(tree, sample_stats=xr.Dataset({"lp": (("chain", "draw"), lp)})))
    assert not good and "lp is not finite" in reason


def test_judge_wants_two_chains():
    assert not judge(planted_regression(num_chains=1))[0]


# Number of clusters


def test_cluster_sizes_by_blocks(monkeypatch):
    from inference.convergence.partitions import cluster_sizes

    z = np.random.default_rng(0).integers(0, 7, size=(2, 9, 30)).astype(np.uint8)
    expected = [[np.bincount(draw, minlength=7) for draw in chain] for chain in z]
    np.testing.assert_array_equal(cluster_sizes(z), expected)
    monkeypatch.setattr("inference.convergence.partitions._BLOCK", 100)
    np.testing.assert_array_equal(cluster_sizes(z), expected)


def test_occupied_is_the_histogram_of_the_draws(switched):
    found = occupied(switched)
    counts = switched["posterior"]["num_occupied"].values
    for value, probability in zip(found["num_occupied"].values, found.values, strict=True):
        assert probability == pytest.approx((counts == value).mean())
    assert found.sum() == pytest.approx(1.0)
    p = found.values[0]
    binomial = np.sqrt(p * (1 - p) / counts.size)
    assert 0.5 < found["mcse"].values[0] / binomial < 2.0  # independent draws by construction
    chains = occupied(switched, by_chain=True)
    np.testing.assert_allclose(chains.mean("chain"), found)
    without = replaced(switched, posterior=switched["posterior"].to_dataset().drop_vars("num_occupied"))
    np.testing.assert_array_equal(occupied(without), found)


def test_occupied_of_vb_has_q_s_own_count():
    assert occupied(variational_mixture()).attrs["variational_num_occupied"] == 3


def test_number_of_clusters_by_hand():
    """Eight draws of q in two chains: mode, mean and errors from counts or labels; or q's labels alone."""
    counts = np.array([[1, 1, 1, 6], [1, 2, 6, 6]])
    labels = np.stack([[np.arange(6) % number for number in chain] for chain in counts])
    from_counts = xr.Dataset({"num_occupied": (("chain", "draw"), counts)})
    from_labels = xr.Dataset({"assignments": (("chain", "draw", "observation"), labels)})
    for posterior in (from_counts, from_labels):
        tree = replaced(variational_mixture(num_draws=4), posterior=posterior)
        found = occupied(tree)
        np.testing.assert_array_equal(found["num_occupied"], [1, 2, 3, 4, 5, 6])
        np.testing.assert_array_equal(found, [4 / 8, 1 / 8, 0, 0, 0, 3 / 8])
        binomial = np.sqrt(np.array([4 * 4, 1 * 7, 0, 0, 0, 3 * 5]) / 8**3)
        np.testing.assert_allclose(found["mcse"], binomial, rtol=1e-12)
        assert (found.attrs["mode"], found.attrs["mean"]) == (1, 24 / 8)
        each = occupied(tree, by_chain=True)
        np.testing.assert_array_equal(each, [[3 / 4, 0, 0, 0, 0, 1 / 4], [1 / 4, 1 / 4, 0, 0, 0, 2 / 4]])
    soft = np.array([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.0, 0.2, 0.8]])
    q = xr.Dataset({"responsibilities": (("observation", "component"), soft)})
    blank = xr.Dataset({"lp": (("chain", "draw"), np.zeros((1, 2)))})
    found = occupied(replaced(tree, variational=q, posterior=blank))
    assert found["num_occupied"].values.tolist() == [2] and found.values.tolist() == [1.0]


def with_starts(tree, ends, numbers):
    """The fit of one q whose starts ended so, with so many clusters."""
    trace = tree["trace"].to_dataset().drop_dims("restart")
    trace["objective_at_end"] = ("restart", np.array(ends))
    trace["num_occupied_at_end"] = ("restart", np.array(numbers))
    return replaced(tree, trace=trace)


@pytest.mark.parametrize(
    ("numbers", "interval", "is_sure"),
    [
        ([3, 5, 2], (2, 5), False),
        ([4, 5, 5], (3, 5), False),
        ([4, 4, 4], (3, 4), False),
        ([3, 3, 3], (3, 3), True),
        ([3], None, False),
    ],
)
def test_the_number_of_clusters_of_one_q_is_no_surer_than_its_starts(numbers, interval, is_sure):
    """All draws of q hold three clusters; a start without a finite objective says nothing."""
    tree = variational_mixture()
    tree["posterior"]["num_occupied"].values[:] = 3
    lost = [np.nan] if len(numbers) > 1 else []
    torn = with_starts(tree, [-10.0, -90.0, -20.0][: len(numbers)] + lost, numbers + [9] * len(lost))
    table = summary(torn)
    row, note = table.loc["num_occupied"], table.attrs["note"]
    assert row["mean"] == 3.0 and (row["sd"] == 0.0 if is_sure else np.isnan(row["sd"]))
    if interval is None:
        assert np.isnan(row["eti90_lb"]) and np.isnan(row["eti90_ub"]) and "is of one start" in note
    else:
        span = f"over all starts it is {interval[0]} to {interval[1]}"
        assert (span in note) is not is_sure
        ends = (row["eti90_lb"], row["eti90_ub"])
        assert ends == (3, 3) if is_sure else np.isnan(ends).all()
    lp = invariants(tree)["lp"].values
    assert table.loc["lp", "sd"] == pytest.approx(lp.std(ddof=1))


def test_chains_are_sure_of_the_number_of_clusters_that_they_all_hold():
    tree = planted_mixture()
    tree["posterior"]["num_occupied"].values[:] = 3
    row = summary(tree).loc["num_occupied"]
    assert (row["mean"], row["sd"], row["eti90_lb"], row["eti90_ub"]) == (3, 0, 3, 3)


def test_starts_are_told_by_the_numbers_of_clusters_that_they_found():
    """How many found each number, and how far the best of them ended behind the best of all."""
    tree = variational_mixture()
    tree["posterior"]["num_occupied"].values[:] = 3
    torn = with_starts(tree, [-14.0, -10.0, -13.0, -90.0, np.nan], [4, 3, 5, 4, 7])
    found = number_table(torn)
    assert found["behind"].to_dict() == {3: 0.0, 5: 3.0, 4: 4.0}
    assert list(found.index) == [3, 5, 4] and found["starts"].to_dict() == {3: 1, 5: 1, 4: 2}
    assert found["probability"].isna().all() and found["mcse"].isna().all()
    starts = starts_table(torn)
    assert list(starts.index) == [1, 2, 0, 3] and starts["behind"].tolist() == [0.0, 3.0, 4.0, 80.0]
    assert (
        starts["occupied"].tolist() == [3, 5, 4, 4]
        and "; 1 start had no finite objective" in starts.attrs["note"]
    )
    assert number_table(with_starts(tree, [-10.0, -11.0], [3, 3]))["probability"].to_dict() == {3: 1.0}
    assert starts_table(with_starts(tree, [-10.0], [3])) is None


def test_occupied_needs_components():
    with pytest.raises(ValueError, match="no components"):
        occupied(planted_regression())


# Partitions


def test_shares_of_rows_by_draw_and_by_cluster_by_hand():
    """Three draws of four rows in five components, two of them empty; of q its own responsibilities."""
    labels = np.array([[[0, 0, 0, 1], [0, 0, 1, 1], [0, 2, 2, 2]]])
    tree = planted_mixture(num_chains=1, num_draws=3)
    posterior = tree["posterior"].to_dataset().drop_vars("assignments")
    posterior["assignments"] = (("chain", "draw", "observation"), labels)
    tree = replaced(tree, posterior=posterior)
    expected = np.array([[3, 1, 0, 0, 0], [2, 2, 0, 0, 0], [1, 0, 3, 0, 0]]) / 4
    np.testing.assert_array_equal(_shares(tree), expected)
    by_row = np.array([[3, 0, 0, 0, 0], [2, 0, 1, 0, 0], [1, 1, 1, 0, 0], [0, 2, 1, 0, 0]]) / 3
    np.testing.assert_allclose(memberships(tree), by_row, rtol=1e-15)
    soft = np.array([[0.9, 0.1, 0, 0, 0], [0.5, 0.3, 0.2, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]])
    q = xr.Dataset({"responsibilities": (("observation", "component"), soft)})
    estimate = replaced(tree, variational=q, trace=None, posterior=posterior.isel(draw=[0]))
    np.testing.assert_array_equal(memberships(estimate), soft)
    np.testing.assert_allclose(_shares(estimate), [[1.4 / 4, 1.4 / 4, 1.2 / 4, 0, 0]], rtol=1e-15)


def test_co_clustering_does_not_see_labels(straight, switched):
    np.testing.assert_array_equal(co_clustering(straight), co_clustering(switched))


def test_co_clustering_counts_draws(switched, monkeypatch):
    drawn = switched["posterior"]["assignments"].values.reshape(-1, 60)
    expected = np.mean([z[:, None] == z[None, :] for z in drawn], axis=0)
    np.testing.assert_allclose(co_clustering(switched), expected, atol=1e-15)
    rows = np.array([3, 59, 7])
    np.testing.assert_allclose(co_clustering(switched, rows), expected[np.ix_(rows, rows)], atol=1e-15)
    monkeypatch.setattr("inference.convergence.partitions._BLOCK", 1000)  # many blocks
    np.testing.assert_allclose(co_clustering(switched), expected, atol=1e-15)


def test_co_clustering_of_vb_is_from_responsibilities():
    tree = variational_mixture()
    r = tree["variational"]["responsibilities"].values
    found = co_clustering(tree).values
    assert found[3, 8] == pytest.approx(sum(r[3, k] * r[8, k] for k in range(r.shape[1])))
    np.testing.assert_array_equal(np.diag(found), 1.0)


def test_co_clustering_of_too_many_rows_is_refused_with_the_memory_it_needs():
    z = np.zeros((1, 2, 9000), dtype=np.int16)
    tree = replaced(
        planted_mixture(), posterior=xr.Dataset({"assignments": (("chain", "draw", "observation"), z)})
    )
    with pytest.raises(ValueError, match=r"618 MiB.*rows="):
        co_clustering(tree)
    assert co_clustering(tree, rows=np.arange(5)).shape == (5, 5)
    with pytest.raises(ValueError, match="rows must lie in 0..8999"):
        co_clustering(tree, rows=[9000])
    with pytest.raises(ValueError, match="keep"):
        co_clustering(_without_assignments(planted_mixture()))


def _without_assignments(tree):
    tree = replaced(tree, posterior=tree["posterior"].to_dataset().drop_vars("assignments"))
    tree.attrs["left_out"] = "assignments"
    return tree


def test_point_partition_recovers_the_planted_clusters(switched):
    partition = point_partition(switched).values
    truth = np.repeat([0, 1, 2], [30, 18, 12])
    assert (partition == truth).mean() >= 0.95
    assert list(np.bincount(partition)) == sorted(np.bincount(partition), reverse=True)


def test_point_partition_is_the_best_of_all_partitions_of_six_rows():
    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, size=(1, 8, 6))
    z[:, :5, :3] = 0
    tree = replaced(
        planted_mixture(), posterior=xr.Dataset({"assignments": (("chain", "draw", "observation"), z)})
    )
    together = co_clustering(tree).values

    def expected_loss(c):
        same = c[:, None] == c[None, :]
        return sum(abs(same[i, j] - together[i, j]) for i in range(6) for j in range(i))

    every = [
        np.array(c)
        for c in product(range(6), repeat=6)
        if all(c[i] <= max(c[:i], default=-1) + 1 for i in range(6))
    ]
    assert len(every) == 203
    found = point_partition(tree)
    best = min(map(expected_loss, every))
    assert expected_loss(found.values) == pytest.approx(best, abs=1e-12)
    assert found.attrs["expected_loss"] == pytest.approx(best, abs=1e-12)


def test_moves_alone_find_the_clusters_from_singletons(switched):
    from inference.convergence.partitions import _binder, _improve

    together = co_clustering(switched).values
    improved = _improve(np.arange(60), together)
    assert _binder(improved, together) < _binder(np.arange(60), together)
    assert len(np.unique(improved)) <= 5  # the three clusters and at most two stray rows


# Comparison


def test_compare_ranks_by_loo_and_counts_pareto_k(straight):
    worse = straight["log_likelihood"].to_dataset() - 0.3
    spiky = straight["log_likelihood"].to_dataset().copy(deep=True)
    spiky["log_likelihood"][
        0, 0, 5
    ] = -60.0  # one draw makes a row impossible: its importance ratio dwarfs all others
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = compare({"worse": replaced(straight, log_likelihood=worse), "good": straight})
        counted = compare({"good": straight, "spiky": replaced(straight, log_likelihood=spiky)})
    assert list(table.index) == ["good", "worse"]
    assert table.loc["worse", "elpd_diff"] == pytest.approx(-0.3 * 60, abs=1e-9)
    assert list(table["pareto_k_bad"]) == [0, 0]
    assert counted.loc["spiky", "pareto_k_bad"] == 1 and "spiky: 1 of 60 rows" in counted.attrs["note"]


def test_loo_is_near_exact_leave_one_out_for_a_normal_mean():
    """Known variance 1, flat prior: the leave-one-out predictive is normal with variance 1 + 1 / (n - 1)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    mean = x.mean() + rng.normal(size=(4, 500)) / np.sqrt(30)
    pointwise = -0.5 * (x - mean[..., None]) ** 2 - 0.5 * np.log(2 * np.pi)
    tree = replaced(
        planted_regression(num_draws=500),
        log_likelihood=xr.Dataset({"log_likelihood": (("chain", "draw", "observation"), pointwise)}),
    )
    variance = 1 + 1 / 29
    others = (x.sum() - x) / 29
    exact = np.sum(-0.5 * (x - others) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance))
    from inference.diagnostics.comparison import leave_one_out

    assert float(leave_one_out(tree).elpd) == pytest.approx(exact, abs=0.1)


def test_loo_refuses_draws_too_few_or_all_alike(straight):
    from inference.diagnostics.comparison import leave_one_out

    pointwise = straight["log_likelihood"].to_dataset()
    few = replaced(straight, log_likelihood=pointwise.isel(chain=[0, 1], draw=slice(12)))
    with pytest.raises(ValueError, match="LOO needs 25 draws or more to fit their tail; this fit holds 24"):
        leave_one_out(few)
    alike = pointwise.copy(deep=True)
    alike["log_likelihood"][..., 3] = -1.0
    with pytest.raises(ValueError, match="a row has the same density under every draw"):
        leave_one_out(replaced(straight, log_likelihood=alike))


def test_compare_refuses_other_data_and_point_estimates(straight):
    x = straight["observed_data"].to_dataset() + 1.0
    with pytest.raises(ValueError, match="x has other values"):
        compare({"a": straight, "b": replaced(straight, observed_data=x)})
    with pytest.raises(ValueError, match="shape"):
        compare({"a": straight, "b": replaced(straight, observed_data=x.isel(observation=slice(9)))})
    weight = xr.Dataset({"sample_weight": ("observation", np.full(10, 2.0))})
    weighted = replaced(straight, constant_data=weight)
    with pytest.raises(ValueError, match="'a' and 'b' are not .* only the second weighs its rows: fit both"):
        compare({"a": straight, "b": weighted})
    with pytest.raises(ValueError, match="only the first weighs its rows"):
        compare({"a": weighted, "b": straight})
    other = replaced(straight, constant_data=weight.assign(sample_weight=weight["sample_weight"] * 2))
    with pytest.raises(ValueError, match="sample_weight has other values"):
        compare({"a": weighted, "b": other})
    assert set(compare({"a": weighted, "b": weighted}).index) == {"a", "b"}
    with pytest.raises(ValueError, match="at least two"):
        compare({"a": straight})
    with pytest.raises(TypeError, match="dict"):
        compare([straight, straight])
    with pytest.raises(ValueError, match="log_likelihood"):
        compare({"a": straight, "b": replaced(straight, log_likelihood=None)})
    point = variational_mixture(num_draws=1)
    with pytest.raises(ValueError, match="point estimate"):
        compare({"a": point, "b": point})


EVIDENCE_OF_FITS = {"a": (-10.0, 0.3), "b": (-11.2, 0.4), "c": (-15.0, 0.4), "d": (np.nan, np.nan)}


def with_evidence(straight):
    """Fits of four models with a log evidence each, the last with none."""
    fits = {}
    for name, (value, error) in EVIDENCE_OF_FITS.items():
        told = {"log_evidence": value, "log_evidence_se": error, "why_no_evidence": "" if value < 0 else "no"}
        fits[name] = straight.copy()
        fits[name].attrs |= told | {"model_fields": name}
    return fits


def test_compare_tells_what_the_errors_of_the_evidence_allow(straight, monkeypatch):
    monkeypatch.setattr("inference.diagnostics.comparison.evidence_at_width", lambda tree, factor: AtWidth())
    fits = with_evidence(straight)
    read = {"a": False, "b": True, "c": False}  # only of fits that tell an evidence
    monkeypatch.setattr(
        "inference.diagnostics.comparison.is_read_off", lambda tree: read[tree.attrs["model_fields"]]
    )
    table = compare(fits)
    assert table.loc["b", ["log_evidence", "log_evidence_se"]].tolist() == [-11.2, 0.4]
    assert table.attrs["evidence"] == (
        "a has more evidence than c (5.00 nats lower, standard error 0.5). "
        "a cannot be told apart from b (1.20 nats lower, standard error 0.5). Prior read off these data: b. "
        "The log evidence of d is not told: no"
    )
    assert "log_evidence" not in compare({"a": straight, "b": straight})
    said = "The log evidence of d is not told: no"
    assert compare({name: fits[name] for name in "ad"}).attrs["evidence"] == said


@pytest.mark.parametrize("gain", [0.0, 4.0])
def test_compare_says_where_the_width_of_the_prior_decides(straight, monkeypatch, gain):
    """At half its width the second model gains: it overtakes the first, or nothing changes."""

    def at_width(tree, factor):
        name = tree.attrs["model_fields"]
        value, error = EVIDENCE_OF_FITS[name]
        return AtWidth(value + gain * (name == "b" and factor < 1), error)

    monkeypatch.setattr("inference.diagnostics.comparison.evidence_at_width", at_width)
    monkeypatch.setattr("inference.diagnostics.comparison.is_read_off", lambda tree: False)
    fits = with_evidence(straight)
    table = compare({name: fits[name] for name in "abc"})
    said = "The prior decides: at half its width b has more evidence than a (2.80 nats lower"
    columns = ["log_evidence_half_width", "log_evidence_twice_width"]
    assert table.loc["b", columns].tolist() == [gain - 11.2, -11.2]
    assert (said in table.attrs["evidence"]) == ("The prior decides" in table.attrs["evidence"]) == (gain > 0)


def test_heldout_is_the_mean_with_its_standard_error(straight, monkeypatch):
    values = np.array([-1.0, -2.0, -6.0])
    monkeypatch.setattr(
        "inference.diagnostics.comparison.log_density",
        lambda tree, x, **batches: xr.DataArray(values[: len(x)]),
        raising=False,
    )
    found = heldout(straight, np.zeros((3, 2)))
    assert float(found["mean"]) == pytest.approx(-3.0)
    assert float(found["standard_error"]) == pytest.approx(np.sqrt(7.0 / 3.0))
    assert int(found["num_rows"]) == 3
    with pytest.raises(ValueError, match="scores text"):
        heldout(straight, np.zeros((3, 2)), protocol="completion")
    with pytest.raises(ValueError, match="protocol must be"):
        heldout(straight, np.zeros((3, 2)), protocol="magic")


def test_what_is_not_a_fit_is_refused():
    with pytest.raises(TypeError, match="DataTree"):
        summary({"posterior": 1})
    with pytest.raises(ValueError, match="posterior"):
        occupied(xr.DataTree())


def test_public_names_exist():
    assert all(callable(getattr(diagnostics, name)) for name in diagnostics.__all__)


def test_loadings_in_standard_units_are_divided_by_the_deviations(monkeypatch):
    """Of the table whose columns the model measures in units of their own; the other stays."""
    monkeypatch.setattr(identifiable, "noise_factors", lambda model: {"_x": np.array([4.0, 9.0])})
    loadings = {"_x": np.ones((2, 3, 2, 1)), "_y": np.ones((2, 3, 2, 1))}
    found = identifiable.in_standard_units(None, loadings)
    np.testing.assert_allclose(found["_x"][..., 0], np.broadcast_to([1 / 2, 1 / 3], (2, 3, 2)))
    np.testing.assert_array_equal(found["_y"], loadings["_y"])
