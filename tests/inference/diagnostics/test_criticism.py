"""Verdicts of criticism: each on a fit that deserves it and on one that does not.

False-alarm rates: of the predictive checks at most 1 in 100 by construction; that 60 true data sets give more
than 4 alarms has a probability of 4e-4, that 300 pools give more than 10 one of 3e-4.
"""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import genpareto

import inference
import zoo
from inference.diagnostics import check_features, compare, invariants, leave_one_out, prior_sensitivity
from inference.diagnostics.model_criticism import (
    _compared,
    _correlations,
    _surprises_above,
    check_predictions,
    judge_features,
)
from inference.diagnostics.sensitivity import judge_prior
from inference.extension import prior_of_parameters
from tests.support.planted import planted_mixture, planted_regression, planted_zoo, replaced
from tests.support.report_cases import ROWS, fitted

NUM_ROWS, NUM_DRAWS = 40, 500  # draws as many as a check makes of a fit


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


def _replicated(x, rng):
    """Posterior predictive draws of columns ~ Normal(m, s^2) under the flat prior, exact."""
    n, mean, var = len(x), x.mean(0), x.var(0, ddof=1)
    s2 = (n - 1) * var / rng.chisquare(n - 1, size=(NUM_DRAWS, x.shape[1]))
    m = mean + np.sqrt(s2 / n) * rng.normal(size=s2.shape)
    return m[:, None] + np.sqrt(s2)[:, None] * rng.normal(size=(NUM_DRAWS, *x.shape))


def _table(x, rng, **options):
    drawn = _replicated(x, rng)[None]
    return check_features(
        xr.DataArray(x, dims=("observation", "feature")),
        xr.DataArray(drawn, dims=("chain", "draw", "observation", "feature")),
        **({"new_rows": True} | options),
    )


def test_true_fits_pass_whatever_the_number_of_statistics():
    rng = np.random.default_rng(0)
    alarms = sum(judge_features(_table(rng.normal(size=(NUM_ROWS, 2)), rng))[0] is False for _ in range(60))
    assert alarms <= 4


def _outlier(rng):
    x = rng.normal(size=(NUM_ROWS, 2))
    x[3, 1] = 12.0
    return x


def _correlated(rng):
    return rng.normal(size=(NUM_ROWS, 1)) + 0.4 * rng.normal(size=(NUM_ROWS, 2))


def _two_humps(rng):
    return np.where(rng.random((NUM_ROWS, 2)) < 0.5, -3.0, 3.0) + 0.3 * rng.normal(size=(NUM_ROWS, 2))


def _many_zeros(rng):
    return np.where(rng.random((NUM_ROWS, 2)) < 0.5, 0.0, rng.poisson(20.0, (NUM_ROWS, 2))).astype(float)


def test_correlations_are_those_of_numpy():
    """Of columns with unlike means, of the data and of every draw."""
    rng = np.random.default_rng(5)
    both = rng.normal(size=(4, 30, 3)) @ rng.normal(size=(3, 3)) + [5.0, -2.0, 0.0]
    found = _correlations(both, np.zeros((30, 3), bool), ["a", "b", "c"])
    assert list(found) == [f"{pair}: correlation" for pair in ("a and b", "a and c", "b and c")]
    expected = np.array([np.corrcoef(draw.T)[np.triu_indices(3, 1)] for draw in both])
    np.testing.assert_allclose(np.transpose(list(found.values())), expected, rtol=1e-10)


@pytest.mark.parametrize(
    "planted, named",
    [
        (_outlier, "feature 1: largest"),
        (_correlated, "feature 0 and feature 1: correlation"),
        (_two_humps, "cells in their middle 50 %"),
        (_many_zeros, "share of zeros"),
    ],
)
def test_planted_misfits_are_found_and_named(planted, named):
    """Means and deviations are right in all of them: by these alone none would be found but the outlier."""
    rng = np.random.default_rng(1)
    x = planted(rng)
    table = _table(x, rng)
    if planted is _many_zeros:  # counts under a Poisson distribution
        rates = rng.gamma(x.sum(0) + 1.0, 1.0 / NUM_ROWS, size=(NUM_DRAWS, 1, 2))
        drawn = rng.poisson(np.broadcast_to(rates, (NUM_DRAWS, *x.shape))).astype(float)[None]
        table = check_features(
            xr.DataArray(x, dims=("observation", "feature")),
            xr.DataArray(drawn, dims=("chain", "draw", "observation", "feature")),
            new_rows=True,
        )
    good, reason = judge_features(table)
    assert good is False and named in reason
    means = table[table.index.str.endswith(": mean")]
    assert ((means["p"] - 0.5).abs() < 0.49).all()


def test_the_surprise_of_a_value_is_its_tail_under_a_fit_to_the_others():
    """By the moments of Hosking and Wallis (1987, equation 11), shape -k, of the excesses of the others."""
    rng = np.random.default_rng(3)
    values = np.stack([rng.standard_t(2, 100), rng.exponential(size=100), rng.normal(size=100)], axis=1)
    found = _surprises_above(values)
    for column, surprises in zip(values.T, found.T, strict=True):
        order = np.argsort(column)
        assert (surprises[order[:80]] == 0).all()
        for place in order[80:]:
            others = np.sort(np.delete(column, place))[80:] - column[order[79]]
            mean = others.mean()
            low = np.mean(others * (1 - np.arange(19) / 18))
            shape = np.clip(2 - mean / (mean - 2 * low), 0.0, 0.99)
            tail = genpareto(shape, column[order[79]], mean * (1 - shape)).sf(column[place]) / 5
            assert surprises[place] == pytest.approx(-np.log(tail), rel=1e-9)


def test_surprises_of_values_without_a_spread_to_measure_by():
    """Alone above ties: one of 100; among equal ones: an exponential tail; above a constant: infinite."""
    alone, ties, constant = np.arange(100) % 2.0, np.zeros(100), np.full(100, 0.1)
    alone[7], ties[:5], ties[50:], constant[7] = 9.0, 1.0, -1.0 - np.arange(50), 0.2
    constant[8] += 1e-16
    found = _surprises_above(np.stack([alone, ties, constant], axis=1))
    assert found[7, 0] == pytest.approx(np.log(100)) and (np.delete(found[:, 0], 7) == 0).all()
    np.testing.assert_allclose(found[:, 1], np.where(ties == 1, np.log(20) + 1, 0.0))
    assert found[7, 2] == np.inf and (np.delete(found[:, 2], 7) == 0).all()


def test_members_of_a_pool_are_exchangeable():
    """Ties included: a surprise follows its member to any other place."""
    rng = np.random.default_rng(4)
    values = np.stack([rng.normal(size=200), rng.poisson(2.0, 200), rng.integers(0, 2, 200)], axis=1)
    order = rng.permutation(200)
    np.testing.assert_allclose(
        _surprises_above(values[order]), _surprises_above(values)[order], rtol=1e-9, atol=1e-12
    )


def _pool(rng, num_members=501):
    """Statistics with tails of all kinds, of which those of Student's t set the largest distance."""
    heavy, light = rng.standard_t(2, (num_members, 8)), rng.normal(size=(num_members, 8))
    return np.concatenate([heavy, light, rng.poisson(0.5, (num_members, 4))], axis=1)


def _judged(values):
    return judge_features(_compared({f"T{i}": column for i, column in enumerate(values.T)}, 0.9))


def test_pools_give_the_false_alarms_that_are_stated():
    rng = np.random.default_rng(6)
    assert sum(_judged(_pool(rng, 201))[0] is False for _ in range(300)) <= 10


@pytest.mark.parametrize("place, side", [(9, 1.0), (9, -1.0)])
def test_heavy_tails_of_other_statistics_hide_no_misfit(place, side):
    """Eight deviations of a Gaussian statistic, where some t statistic of most pools is further out."""
    pool = _pool(np.random.default_rng(7))
    pool[0] = np.median(pool, axis=0)
    pool[0, place] = 8.0 * side
    away = np.abs(pool - np.median(pool, axis=0)) / pool.std(0)
    assert (away[1:].max(1) > away[0].max()).mean() > 0.01
    good, reason = _judged(pool)
    assert good is False and reason.endswith(f": T{place}")


def _clusters(rng, correlation, num_rows=250):
    noise = rng.multivariate_normal(np.zeros(2), [[1, correlation], [correlation, 1]], num_rows)
    return noise + 6.0 * rng.integers(0, 2, (num_rows, 1))


@pytest.mark.parametrize("components", [zoo.conjugate.NormalGamma, zoo.conjugate.GaussianWishart])
def test_dependence_within_clusters_is_found_and_named(components):
    """Twenty components follow the ridge of each cluster, and those without rows throw rows far away.

    Far rows set distances in spreads, so that by these none of ten data sets was found out.
    """
    x = _clusters(np.random.default_rng(0), 0.9)
    model = zoo.Mixture.from_data(x, num_components=20, components=components())
    found = check_predictions(inference.fit(model, x, seed=0, progress=False))
    assert found.good is (components is zoo.conjugate.GaussianWishart)
    if not found.good:
        assert found.reason.endswith(": feature 0 and feature 1: correlation within clusters")


@pytest.mark.parametrize("copied", [0.0, 0.5])
def test_dependence_of_answers_within_classes_is_found_and_named(copied):
    rng = np.random.default_rng(0)
    probs = np.where(np.arange(8) % 2 == rng.integers(0, 2, (300, 1)), 0.8, 0.25)
    x = (rng.random((300, 8)) < probs).astype(float)
    x[:, 2] = np.where(rng.random(300) < copied, x[:, 0], x[:, 2])
    model = zoo.Mixture.from_data(x, num_components=2, components=zoo.conjugate.BernoulliBeta())
    found = check_predictions(inference.fit(model, x, seed=0, progress=False))
    assert found.good is (copied == 0)
    assert len(found.table) == 8 + 28, "of zeros and ones the mean says all"
    if not found.good:
        assert found.reason.endswith(": feature 0 and feature 2: correlation within clusters")


def test_correlations_within_clusters_are_those_of_clusters_by_hand():
    """Averaged by their sizes, of rows with the estimate's probabilities as weights."""
    x = _clusters(np.random.default_rng(2), 0.5, 60) * [1.0, 100.0] + [3.0, -500.0]
    tree = inference.fit(zoo.Mixture.from_data(x, num_components=2), x, method="em", progress=False)
    shares = inference.predict(tree, x, what="probabilities").to_numpy()
    by_cluster = [np.cov(x.T, aweights=share) for share in shares.T]
    each = [cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1]) for cov in by_cluster]
    table = check_predictions(tree).table
    found = table.loc["feature 0 and feature 1: correlation within clusters", "observed"]
    assert found == pytest.approx(np.average(each, weights=shares.sum(0)), rel=1e-6)
    assert not table.index.str.endswith(": correlation").any()


def test_all_views_are_judged_by_one_rule():
    """A check of each view would fail true fits as often as there are views."""
    tree = fitted("paired")
    found = check_predictions(tree)
    assert found.good and found.table.attrs["num_replications"] == found.num_replications == 500
    assert f"of {len(found.table)} statistics" in found.reason and len(found.table) == 30


def test_too_few_replications_are_not_judged():
    table = check_features(
        xr.DataArray(np.eye(3), dims=("observation", "feature")),
        xr.DataArray(np.ones((1, 10, 3, 3)), dims=("chain", "draw", "observation", "feature")),
    )
    assert judge_features(table)[0] is None


def test_a_fit_is_judged_on_the_data_that_it_was_made_for_and_on_others():
    assert check_predictions(fitted("ppca")).good
    with pytest.warns(UserWarning, match="very different scales"):
        rows = ROWS.copy()
        rows[0, 1] = 60.0
        found = check_predictions(inference.fit(zoo.PPCA(num_latents=1), rows, method="closed_form"))
    assert found.good is False and "feature 1: largest" in found.reason
    assert found.num_replications >= 50 and {"p", "surprise"} <= set(found.table.columns)
    with pytest.raises(ValueError, match="check_documents"):
        check_predictions(replaced(fitted("ppca"), observed_data=xr.Dataset({"count": ("nonzero", [1.0])})))


def test_cells_are_not_ranked_among_replications_that_followed_them():
    """At drawn latents ranks are too central even for a true model: EPCA's are left out, PPCA's are not."""
    ranked = {name: check_predictions(fitted(name)).table.index for name in ("ppca", "epca")}
    assert any("middle" in row for row in ranked["ppca"]) and not any(
        "middle" in row for row in ranked["epca"]
    )


# Leave-one-out


def test_fits_are_ranked_only_where_the_order_means_something():
    one, other = planted_mixture(), planted_mixture()
    assert not compare({"a": one, "b": other}).attrs["ranked"]  # of one posterior
    assert "of one posterior" in compare({"a": one, "b": other}).attrs["note"]
    other.attrs["model_fields"] = '{"num_components": 9}'
    table = compare({"a": one, "b": other})
    assert table.attrs["ranked"] and table["converged"].all()
    other.attrs["converged"] = 0
    table = compare({"a": one, "b": other})
    assert not table.attrs["ranked"] and "no ranking: b has not converged" in table.attrs["note"]


def test_densities_given_latents_of_the_row_itself_rank_nothing():
    """EPCA was 180 nats above PPCA, which drew the rows; held out both had -13.34 nats a row."""
    trees = {name: planted_mixture() for name in ("integrated", "given")}
    for name, latents in (("integrated", "integrated out"), ("given", "drawn")):
        trees[name].attrs["model_fields"] = name
        trees[name]["log_likelihood"].attrs["latents"] = latents
    scores = {name: leave_one_out(tree) for name, tree in trees.items()}
    assert compare(trees, scores=scores).attrs["ranked"], "no Pareto k is high"
    scores["given"].pareto_k[3] = 2.0
    table = compare(trees, scores=scores)
    assert not table.attrs["ranked"]
    assert table.attrs["note"].startswith("no ranking: densities of given are given latents of each row")
    scores["integrated"].pareto_k[3], scores["given"].pareto_k[3] = 2.0, 0.1
    assert compare(trees, scores=scores).attrs["ranked"]


# The prior


def _with_log_prior(deviation, of_slope=0.0):
    """Draws of two slopes whose log prior varies by ``deviation``, and with the first slope."""
    tree, rng = planted_regression(num_draws=400), np.random.default_rng(5)
    slope = tree["posterior"]["slope"].to_numpy()
    prior = deviation * rng.normal(size=slope.shape[:2]) - of_slope * slope[..., 0]
    rows = -0.5 * (slope[..., :1] - rng.normal(size=30)) ** 2
    groups = {
        "log_prior": xr.Dataset({"log_prior": (("chain", "draw"), prior)}),
        "log_likelihood": xr.Dataset({"log_likelihood": (("chain", "draw", "observation"), rows)}),
    }
    return replaced(tree, **groups)


@pytest.mark.filterwarnings("ignore")
def test_a_prior_that_moves_nothing_and_one_that_moves_a_slope():
    table = prior_sensitivity(_with_log_prior(0.5))
    assert judge_prior(table)[0] is True, table
    row = table.attrs["reliability"].loc["prior"]
    assert row["ess"] == pytest.approx(1600, rel=1e-3) and row["pareto_k"] < row["good_k"]  # weights of 1
    good, reason = judge_prior(prior_sensitivity(_with_log_prior(0.0, of_slope=2.0)))
    assert good is False and "slope[a]" in reason and "slope[b]" not in reason


@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_noise_are_refused():
    """As of parameters that the data leave to a wide prior: it varies by hundreds of nats."""
    tree = _with_log_prior(400.0)
    with pytest.raises(
        ValueError, match=r"the weights of the prior rest on \d+\.\d of 1600 draws .* by \d+ nats"
    ):
        prior_sensitivity(tree)
    forced = prior_sensitivity(tree, force=True)
    assert judge_prior(forced)[0] is None and forced.attrs["reliability"].loc["prior", "ess"] < 100


@pytest.mark.parametrize("numbers", [(2, 3), (2, 2)])
def test_densities_of_different_numbers_of_parameters_are_not_scaled(numbers):
    """Of a mixture the log prior is of the components with rows, and in the units of the data."""
    rng, shape = np.random.default_rng(0), (4, 100)
    slope = rng.normal(size=shape)
    groups = {
        "posterior": {"num_occupied": np.resize(numbers, shape), "concentration": np.exp(slope)},
        "log_prior": {"log_prior": -0.1 * slope},
        "log_likelihood": {"log_likelihood": -(slope**2)},
    }
    made = {
        name: xr.Dataset({key: (("chain", "draw"), value) for key, value in held.items()})
        for name, held in groups.items()
    }
    attrs = dict(fitted("mixture").attrs) | {"converged": 1, "method": "gibbs"}
    constants = {"constant_data": fitted("mixture")["constant_data"].to_dataset()}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs)} | made | constants)
    if numbers == (2, 3):
        with pytest.raises(ValueError, match="between 2 and 3 components with rows, .* no common power"):
            prior_sensitivity(tree)
        assert judge_prior(prior_sensitivity(tree, force=True))[0] is None
    else:
        assert judge_prior(prior_sensitivity(tree))[0] is not None


@pytest.mark.filterwarnings("ignore")
def test_the_prior_of_a_fit_that_has_not_converged_is_not_judged():
    tree = _with_log_prior(0.5)
    tree.attrs["converged"] = 0
    with pytest.raises(ValueError, match="has not converged"):
        prior_sensitivity(tree)
    assert judge_prior(prior_sensitivity(tree, force=True))[0] is None


def test_a_distance_within_the_noise_is_called_noise():
    table = pd.DataFrame({"prior": [0.2, 0.4], "prior_noise": [0.3, 0.1]}, index=["a", "b"])
    good, reason = judge_prior(table)
    assert good is False and reason.endswith(": b")
    assert judge_prior(table.assign(prior_noise=0.5))[0] is True


@pytest.mark.filterwarnings("ignore")
def test_latents_of_single_rows_are_of_the_rows_and_not_of_the_prior():
    """Kallioinen et al. (2024) scale priors of parameters alone: 40 N(0, 1) draws would drown these."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 5)) > 0).astype(float)
    settings = {"num_warmup": 50, "num_samples": 50, "num_chains": 2, "progress": False}
    tree = inference.fit(zoo.EPCA(num_latents=1), x, method="gibbs", **settings)
    own = prior_of_parameters(tree)["log_prior"].to_numpy()
    whole = inference.extend(tree, "log_prior")["log_prior"]["log_prior"].to_numpy()
    z = tree["posterior"]["latents"].to_numpy()
    of_rows = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi)).sum((2, 3))
    np.testing.assert_allclose(whole - own, of_rows, rtol=1e-10)
    table = prior_sensitivity(tree, force=True)
    assert table.attrs["reliability"].loc["prior", "deviation"] == pytest.approx(own.std())


@pytest.mark.filterwarnings("ignore")
def test_densities_are_no_answers_that_a_prior_could_move():
    x = np.random.default_rng(0).normal(size=(30, 3))
    model = zoo.PPCA(num_latents=1, loading_prior="gaussian")
    tree = inference.fit(model, x, method="gibbs", num_samples=100, num_chains=2, progress=False)
    assert {"lp", "mean_log_likelihood"} <= set(invariants(tree))
    table = prior_sensitivity(tree, force=True)
    assert len(table) and not {"lp", "mean_log_likelihood"} & set(table.index)


def test_weighted_data_are_compared_with_replications_of_the_same_weights(monkeypatch):
    """Rows of the rarer cluster weigh nine; planted: the data as they are, without their weights."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], [150, 50])
    x = rng.normal(size=(200, 2)) + 6 * z[:, None]
    model = zoo.Mixture.from_data(x, num_components=2)
    tree = inference.fit(model, x, sample_weight=np.where(z == 1, 9.0, 1.0), seed=0, progress=False)
    assert check_predictions(tree).good is True
    monkeypatch.setattr("inference.diagnostics.model_criticism.sample_weight_of", lambda tree: None)
    assert check_predictions(tree).good is False


def test_replications_repeat_the_rows_that_the_data_repeat():
    """Means vary as those of the few rows that carry the weight; planted: replications of all rows."""
    rng = np.random.default_rng(1)
    x, weight = rng.normal(size=(200, 2)), np.exp(1.5 * rng.normal(size=200))
    model = zoo.Mixture.from_data(x, num_components=1)
    spreads = []
    for own in (weight, None):
        tree = inference.fit(model, x, sample_weight=own, seed=0, progress=False)
        table = check_predictions(tree).table.loc[["feature 0: mean", "feature 1: mean"]]
        spreads.append((table["replicated_ub"] - table["replicated_lb"]).to_numpy())
    upto = np.cumsum(weight)
    places = np.searchsorted(upto, (np.arange(200) + 0.5) * upto[-1] / 200)
    repeats = np.bincount(places, minlength=200)
    mean = np.average(x, axis=0, weights=weight)
    deviation = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight)) / x.std(0)
    expected = deviation * np.sqrt(
        (1 + (repeats**2).mean()) / 2
    )  # the parameters' own uncertainty is one half
    np.testing.assert_allclose(spreads[0] / spreads[1], expected, rtol=0.15)
    assert (expected > 1.3 * deviation).all()  # what replications of all rows would have


def test_levels_are_counted_only_where_replications_are_levels():
    """A yes/no column under Gaussian cells is compared as numbers; a share of exact ones is 0 in all."""
    rng = np.random.default_rng(0)
    yes = rng.integers(0, 2, (100, 1)).astype(float)
    levels = {"ok": {"no": 0, "yes": 1}}
    observed = xr.DataArray(yes, dims=("observation", "feature"), coords={"feature": ["ok"]})
    replicated = {
        "gaussian": yes.mean() + yes.std() * rng.normal(size=(1, 60, 100, 1)),
        "bernoulli": rng.binomial(1, yes.mean(), (1, 60, 100, 1)).astype(float),
        "no": np.zeros((1, 60, 100, 1)),
    }
    found = {
        name: check_features(
            observed, xr.DataArray(x, dims=("chain", "draw", "observation", "feature")), levels=levels
        )
        for name, x in replicated.items()
    }
    assert "ok: share of yes" not in found["gaussian"].index and "ok: sd" in found["gaussian"].index
    assert list(found["bernoulli"].index) == ["ok: share of yes"]
    assert np.isinf(found["no"]["surprise"]).all() and not judge_features(found["no"])[0]


def test_the_leave_one_out_score_of_weighted_rows_is_that_of_rows_repeated():
    x = np.random.default_rng(0).standard_t(3, size=(15, 2))
    weight = np.arange(15) % 3 + 1.0
    model = zoo.Mixture.from_data(x, num_components=1)
    weighted = leave_one_out(inference.fit(model, x, sample_weight=weight, seed=0))
    repeated = leave_one_out(inference.fit(model, np.repeat(x, weight.astype(int), axis=0), seed=0))
    assert weighted.n_data_points == 30
    for name in ("elpd", "se", "p"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-4)
    with pytest.raises(ValueError, match="small numbers of rows; here from 0.5 to 1.5, 15 in all"):
        leave_one_out(inference.fit(model, x, sample_weight=weight / 2, seed=0))
