"""Profiles: what they say of clusters, topics and projections, against data in which the answer is known."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import inference
import zoo
from inference.diagnostics import filled_cells, occupied, profile_text, profiles, summary, summary_text
from inference.diagnostics.cluster_profiles import _unit
from inference.diagnostics.profile_parts import intervals
from inference.diagnostics.profile_tables import answer_blocks, profile_cells
from tests.support.fit_cases import fitted as fit_of
from tests.support.planted import replaced
from tests.support.report_cases import FITS, ROWS, fitted
from zoo.exponential_family import Bernoulli, ByColumn, Categorical, Gaussian

OF_CLUSTERS = {"clusters", "num_clusters", "cluster_values", "cluster_differences", "cluster_rows"}
OF_LATENTS = {"latents", "loadings", "columns", "extreme_rows"}
OF_TOPICS = {"topics", "topic_words", "topic_documents"}
KEYS = {
    "mixture": OF_CLUSTERS,
    "ppca": OF_LATENTS,
    "kernelpca": {"latents", "extreme_rows"},
    "sppca": OF_LATENTS,
    "epca": OF_LATENTS,
    "paired": OF_LATENTS | {"canonical_correlations"},
    "depcam": OF_CLUSTERS | {"cluster_directions"},
    "mcfa": OF_CLUSTERS | OF_LATENTS,
    "lda": OF_TOPICS,
    "plsi": OF_TOPICS,
    "pcp": {"clusters", "num_clusters", "cluster_rows", "cluster_topics"} | OF_TOPICS,
}


@pytest.mark.parametrize("name", FITS)
def test_every_model_has_its_tables_with_titles_and_finite_means(name):
    tables = profiles(fitted(name), num_rows=2, num_words=3)
    assert KEYS[name] <= set(tables) <= KEYS[name] | {"starts", "filled_cells"}
    for key, table in tables.items():
        assert table.attrs["title"] and table.attrs["note"] and table.attrs["probability"] == 0.9, key
        assert ("not converged" in table.attrs["provisional"]) == (not fitted(name).attrs["converged"])
        leading = {"mean", "share", "score", "difference"} & set(table.columns)
        assert all(np.isfinite(table[column].astype(float)).all() for column in leading), key
        assert len(profile_cells(table)) == len(table)
    text = profile_text(fitted(name))
    assert text and max(map(len, text.splitlines())) <= 115


@pytest.fixture(scope="module")
def two_kinds():
    """Two kinds of rows that differ in every column, most of all in the first; a cell of each is missing."""
    rng = np.random.default_rng(3)
    kind = np.arange(40) % 4 == 0  # the minority: rows 0, 4, 8, ...
    table = pd.DataFrame(
        {
            "age": np.where(kind, 70.0, 30.0) + rng.normal(size=40),
            "visits": rng.poisson(np.where(kind, 9.0, 3.0)).astype(float),
            "smoker": np.where(rng.random(40) < np.where(kind, 0.8, 0.2), "yes", "no"),
            "town": np.where(rng.random(40) < np.where(kind, 0.9, 0.1), "Ulm", "Bonn"),
            "joined": pd.Timestamp("2021-03-01") + pd.to_timedelta(np.where(kind, 400, 100), unit="D"),
        },
        index=[f"p{i}" for i in range(40)],
    )
    table["joined"] += pd.to_timedelta(rng.integers(0, 60, 40), unit="D")
    table.loc["p4", "age"], table.loc["p5", "visits"] = np.nan, np.nan
    table.loc["p8", "town"] = table.loc["p9", "smoker"] = None
    table.loc["p9", "joined"] = None
    model = zoo.Mixture(num_components=3)  # one stays empty
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(
            model,
            table,
            method="vb",
            num_samples=200,
            num_restarts=3,
            progress=False,
            families={"town": "category", "age": "gaussian", "visits": "poisson"},
        )
    return table, kind, tree, profiles(tree)


def test_shares_of_weighted_rows_are_told_from_their_proportions():
    """Half of the rows with three quarters of the weights: 50 % stood beside 75 %, and nothing said why."""
    rng = np.random.default_rng(0)
    x = rng.normal(np.repeat([0.0, 9.0], 30)[:, None], 1.0, (60, 2))
    told, model = "a share counts each row once", zoo.Mixture(num_components=2)
    for method in ("vb", "em"):
        weighted = np.repeat([1.0, 3.0], 30)
        tree = inference.fit(model, x, method=method, sample_weight=weighted, progress=False)
        clusters = profiles(tree)["clusters"]
        np.testing.assert_allclose(clusters["share"], [0.5, 0.5], atol=1e-6)
        np.testing.assert_allclose(clusters["proportion"], [0.75, 0.25], atol=0.02)
        lines = inference.diagnostics.summary_text(tree).splitlines()
        assert told in " ".join(" ".join(lines).split())
        assert any(line.startswith("mixing proportion ") for line in lines)
        assert told not in inference.diagnostics.summary_text(inference.fit(model, x, method=method))


@pytest.mark.parametrize("method", ["vb", "em"])
def test_what_sets_clusters_apart_is_the_same_of_weights_and_of_repeated_rows(method):
    """Of three clusters: the mean over the others went by their rows, whatever these weighed."""
    rng = np.random.default_rng(0)
    x = rng.normal(np.repeat([0.0, 9.0, 30.0], 20)[:, None], 1.0, (60, 2))
    weight, model, found = np.repeat([1, 2, 6], 20), zoo.Mixture(num_components=3), []
    for rows, more in ((np.arange(60), {"sample_weight": weight}), (np.repeat(np.arange(60), weight), {})):
        start = {"responsibilities": np.eye(3)[rows // 20]}
        tree = inference.fit(model, x[rows], method=method, init=start, progress=False, **more)
        found.append(profiles(tree))
    weighted, repeated = found
    assert repeated["cluster_values"]["others"].iloc[0] == pytest.approx(6.0, abs=0.5)
    for name, column in (("cluster_values", "others"), ("cluster_differences", "difference")):
        np.testing.assert_allclose(weighted[name][column], repeated[name][column], rtol=1e-6)


@pytest.mark.slow
def test_clusters_of_any_family_are_described_in_the_units_of_the_data(two_kinds):
    table, kind, _, found = two_kinds
    assert found["clusters"]["rows"].tolist() == pytest.approx([30.0, 10.0], abs=0.5)
    values = found["cluster_values"]["mean"]
    for cluster, own in ((0, ~kind), (1, kind)):
        members = table[own]
        assert values[cluster, "age", "mean"] == pytest.approx(members["age"].mean(), abs=1.0)
        assert values[cluster, "visits", "rate"] == pytest.approx(members["visits"].mean(), rel=0.15)
        share = values[cluster, "smoker", "probability of yes"]
        assert share == pytest.approx(((members["smoker"] == "yes").sum() + 1) / (len(members) + 2), abs=0.1)
        assert values[cluster, "town", "probability of Ulm"] == pytest.approx(
            0.9 if cluster else 0.1, abs=0.15
        )
        first = table["joined"].min()
        joined = values[cluster, "joined", f"mean, days since {first.date()}"]
        assert joined == pytest.approx((members["joined"] - first).dt.days.mean(), abs=3.0)
        inside = found["cluster_values"].loc[(cluster, "age", "mean")]
        assert inside["lb"] < inside["mean"] < inside["ub"] and 0.5 < inside["spread"] < 2.0
    assert values[0, "age", "mean"] == pytest.approx(
        found["cluster_values"]["others"][1, "age", "mean"], abs=0.5
    )
    first = found["cluster_differences"].xs(1, level="rank")
    assert first["column"].tolist() == ["age", "age"] and first["difference"][0] < 0 < first["difference"][1]


def test_dates_are_printed_as_dates_and_their_widths_in_days(two_kinds):
    """Days since the first stay numbers in the tables and in the tree; what a person reads has dates."""
    table, kind, tree, found = two_kinds
    first = table["joined"].min()
    key = (1, "joined", f"mean, days since {first.date()}")
    days = found["cluster_values"].loc[key]
    shown = profile_cells(found["cluster_values"]).loc[key]
    wanted = {
        n: str((first + pd.Timedelta(days=round(days[n]))).date()) for n in ("mean", "lb", "ub", "others")
    }
    assert abs(pd.Timestamp(wanted["mean"]) - table["joined"][kind].mean()).days <= 3
    assert shown["mean"] == f"{wanted['mean']} ({wanted['lb']} to {wanted['ub']})"
    assert shown["others"] == wanted["others"] and shown["spread"] == f"{days['spread']:.3g} days"
    assert days["date"] == wanted["mean"] and days["others_date"] == wanted["others"]
    assert list(shown.index) == ["mean", "spread", "others", "apart"]
    text = profile_text(tree)
    line = next(line for line in text.splitlines() if line.startswith("joined "))
    assert shown["mean"] in line and "days since" not in text
    apart = found["cluster_differences"]
    dated = apart[apart["column"] == "joined"]
    assert profile_cells(dated)["mean"].tolist() == dated["date"].tolist() and len(dated)
    filled = found["filled_cells"]
    cell = profile_cells(filled).loc["x", "p9", "joined"]
    assert cell["mean"] == cell["value"] == filled["value"]["x", "p9", "joined"]
    assert cell["sd"].endswith(" days") and filled["mean"]["x", "p9", "joined"] > 0


def test_typical_rows_are_named_and_belong_to_their_cluster(two_kinds):
    table, kind, _, found = two_kinds
    rows = found["cluster_rows"]
    assert all(name in set(table.index[~kind]) for name in rows.loc[0, "row"])
    assert all(name in set(table.index[kind]) for name in rows.loc[1, "row"])
    assert rows.xs(1, level="rank")["distance"].tolist() == [0.0, 0.0]
    assert all(part.is_monotonic_increasing for _, part in rows["distance"].groupby(level="cluster"))


def test_missing_cells_of_a_mixture_are_filled_by_their_cluster(two_kinds):
    table, kind, tree, found = two_kinds
    filled = found["filled_cells"].loc["x"]
    clusters = tree["variational"]["responsibilities"].to_numpy().argmax(axis=1)
    assert filled["mean"]["p4", "age"] == pytest.approx(table["age"][kind].mean(), abs=1.0)
    assert filled["mean"]["p5", "visits"] == pytest.approx(table["visits"][~kind].mean(), rel=0.15)
    assert filled["value"]["p8", "town"] == "Ulm" and filled["value"]["p9", "smoker"] == "no"
    joined = table["joined"][clusters == clusters[9]].mean()
    assert abs(pd.Timestamp(filled["value"]["p9", "joined"]) - joined).days <= 5 and len(filled) == 5
    assert (filled["probability"].dropna() > 0.6).all() and (filled["sd"].dropna() > 0.3).all()


def test_the_first_screen_counts_filled_cells_without_computing_them(two_kinds, monkeypatch):
    _, _, tree, found = two_kinds
    monkeypatch.setattr(filled_cells, "filled_cells", None)
    monkeypatch.setattr(filled_cells, "over_draws", None)
    number = len(found["filled_cells"])
    assert f"Missing cells filled in: {number} " in summary_text(tree)
    assert filled_cells.number_filled(fitted("mixture")) == 0


def test_missing_cells_of_correlated_columns_are_filled_given_the_others():
    """Conditional means and deviations of every cluster, weighed by the other cells of the row."""
    x = ROWS.copy()
    x[0, 1] = x[5, 0] = x[5, 3] = np.nan
    tree, own = fitted("mixture"), fitted("mixture")["posterior"].isel(chain=0, draw=0)
    held = tree["observed_data"].to_dataset().copy(deep=True)
    held["x"].values[:] = x
    found = profiles(replaced(tree, observed_data=held))
    for row in (0, 5):
        gap = np.isnan(x[row])
        log_density, means, variances = [], [], []
        for k in range(2):
            loc, covariance = own["locs"].values[k], own["covariances"].values[k]
            seen = covariance[np.ix_(~gap, ~gap)]
            away = x[row, ~gap] - loc[~gap]
            gain = covariance[np.ix_(gap, ~gap)] @ np.linalg.inv(seen)
            means.append(loc[gap] + gain @ away)
            variances.append(np.diag(covariance[np.ix_(gap, gap)] - gain @ covariance[np.ix_(~gap, gap)]))
            height = np.linalg.slogdet(2 * np.pi * seen)[1] + away @ np.linalg.solve(seen, away)
            log_density.append(np.log(own["weights"].values[k]) - 0.5 * height)
        share = np.exp(log_density - np.logaddexp(*log_density))
        mean = share @ means
        deviation = np.sqrt(share @ (np.array(variances) + np.array(means) ** 2) - mean**2)
        cells = found["filled_cells"].loc[[("x", row, f"feature {column}") for column in np.flatnonzero(gap)]]
        np.testing.assert_allclose(cells["mean"], mean, rtol=1e-6)
        np.testing.assert_allclose(cells["sd"], deviation, rtol=1e-6)
        assert (np.abs(mean - share @ own["locs"].values[:, gap]) > 0.05).all()
    assert np.isfinite(found["cluster_rows"]["distance"].dropna()).all()
    assert not {0, 5} & set(found["cluster_rows"]["row"])  # complete rows come first


def test_rows_and_cells_are_described_by_draws_in_which_their_clusters_hold_rows():
    """Where a cluster is empty in a draw, its parameters there change no typical row and no filled cell."""
    tree = fit_of("mixture gibbs")
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    labels = posterior["assignments"].transpose("chain", "draw", "observation").values
    labels[:] = np.arange(30) >= 20
    labels[:, ::3] = 0
    held = tree["observed_data"].to_dataset().copy(deep=True)
    held["x"].values[3, 1] = np.nan
    found = []
    for away in (0.0, 3.0):
        posterior["locs"].transpose("chain", "draw", "component", ...).values[:, ::3, 1] = ROWS[20] + away
        stats = tree["sample_stats"].to_dataset().drop_vars("component_label")
        spoilt = replaced(tree, observed_data=held, posterior=posterior.copy(deep=True), sample_stats=stats)
        del spoilt.attrs["numbering"]
        found.append(profiles(spoilt))
    for table in ("cluster_rows", "filled_cells"):
        pd.testing.assert_frame_equal(found[0][table], found[1][table])


@pytest.mark.parametrize(("every", "number"), [(3, "Two"), (2, "Three")])
def test_a_cluster_that_most_draws_leave_empty_is_none_of_those_found(every, number):
    """In one draw of three five rows are a cluster of their own: 1.7 rows are expected in it."""
    tree = fit_of("mixture gibbs")
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    labels = posterior["assignments"].transpose("chain", "draw", "observation").values
    labels[:] = np.arange(30) >= 20
    labels[:, ::every, :5] = 2
    stats = tree["sample_stats"].to_dataset().drop_vars("component_label")
    spoilt = replaced(tree, posterior=posterior, sample_stats=stats)
    del spoilt.attrs["numbering"]
    assert summary_text(spoilt).startswith(f"{number} clusters (in the draws")


def _with_starts(tree, ends, numbers):
    trace = tree["trace"].to_dataset()
    trace = trace.drop_dims("restart")
    trace["objective_at_end"] = ("restart", np.array(ends))
    trace["num_occupied_at_end"] = ("restart", np.array(numbers))
    return replaced(tree, trace=trace)


def test_a_number_of_clusters_is_no_surer_than_the_starts(two_kinds):
    """One q has two clusters in every draw; other starts, as good or worse, found others."""
    _, _, tree, _ = two_kinds
    assert len(occupied(tree)) == 1
    torn = _with_starts(tree, [-10.0, -11.0, -90.0], [2, 4, 6])
    row, number = summary(torn).loc["num_occupied"], profiles(torn)["num_clusters"]
    assert row[["sd", "eti90_lb", "eti90_ub"]].isna().all()
    assert "over all starts it is 2 to 6" in summary(torn).attrs["note"]
    assert number["starts"].to_dict() == {2: 1, 4: 1, 6: 1} and number["behind"].tolist() == [0.0, 1.0, 80.0]
    assert number["probability"].isna().all() and "not sure: between 2 and 4" in number.attrs["note"]
    assert "disagree on the number of clusters" in summary_text(torn)
    sure = _with_starts(tree, [-10.0, -11.0, -90.0], [2, 2, 2])
    number = profiles(sure)["num_clusters"]
    assert "2, as in all 3 starts" in number.attrs["note"] and number["probability"].tolist() == [1.0]
    assert summary(sure).loc["num_occupied", "sd"] == 0
    best = _with_starts(tree, [-10.0, -11.0, -90.0], [2, 2, 6])
    assert "all starts, best first: 2, 2, 6" in profiles(best)["num_clusters"].attrs["note"]
    alone = _with_starts(tree, [-10.0], [2])
    assert np.isnan(summary(alone).loc["num_occupied", "sd"]) and "one start" in summary(alone).attrs["note"]


def test_draws_in_which_a_cluster_is_empty_do_not_describe_it():
    values = np.array([[1.0, 5.0], [3.0, np.nan], [2.0, np.nan]])
    found = intervals(values, "sampling", 0.9)
    np.testing.assert_allclose(found["mean"], [2.0, 5.0])
    np.testing.assert_allclose(found["ub"], [2.9, 5.0])
    assert np.isnan(intervals(values, "point", 0.9)["lb"]).all()


def test_a_projection_says_what_principal_components_say():
    """With orthogonal loadings by maximum likelihood the shares are those of the eigenvalues."""
    x = pd.DataFrame(ROWS, columns=["a", "b", "c", "d"], index=[f"r{i}" for i in range(len(ROWS))])
    tree = inference.fit(zoo.PPCA(num_latents=2), x, method="closed_form")
    found = profiles(tree, num_rows=3)
    eigenvalues = np.linalg.eigvalsh(np.cov(ROWS.T, bias=True))[::-1]
    noise = eigenvalues[2:].mean()
    np.testing.assert_allclose(
        found["latents"]["share"], (eigenvalues[:2] - noise) / eigenvalues.sum(), rtol=1e-6
    )
    np.testing.assert_allclose(found["latents"]["cumulative"], found["latents"]["share"].cumsum())
    explained = found["columns"]["explained"].to_numpy()
    loadings = found["loadings"]["mean"].unstack("latent").to_numpy()
    total = (loadings**2).sum(1)
    np.testing.assert_allclose(explained, total / (total + noise), rtol=1e-6)
    assert found["loadings"].index.get_level_values("column").unique().tolist() == ["a", "b", "c", "d"]
    scores = inference.transform(tree, x)
    top = found["extreme_rows"]["row"][0, "high", 1]
    assert abs(scores.sel(observation=top, latent=0)) == pytest.approx(
        np.abs(scores.isel(latent=0)).max(), rel=0.5
    )
    assert found["loadings"]["lb"].isna().all() and "no intervals" in found["loadings"].attrs["note"]


def test_colours_and_names_of_latents_agree_in_whatever_unit_the_columns_are():
    """A column of small numbers once had no colour, though the latent was named after it."""
    shades, said = [], []
    for unit in (np.ones(4), np.array([1.0, 100.0, 1.0, 0.01])):
        tree = inference.fit(zoo.PPCA(num_latents=2, standardize=True), ROWS * unit, method="closed_form")
        blocks = answer_blocks(tree, profiles(tree))
        (table,) = (block for block in blocks if getattr(block, "caption", "") == "Loadings")
        shades.append(table.shades)
        said.append([block for block in blocks if isinstance(block, str)][-1])
        assert "standard deviations" in table.note
    pd.testing.assert_frame_equal(*shades)
    assert said[0] == said[1] and said[0].startswith("Also estimated, columns in their standard deviations: ")


def test_latents_of_noise_by_column_are_told_in_whatever_unit_the_columns_are():
    """Shares and names; they once were those of the one column of large numbers, and nothing said so."""
    random, found = np.random.default_rng(0), []
    rows = np.repeat(random.normal(size=(100, 2)) * [1.0, 0.7], 3, axis=1)
    rows += 0.5 * random.normal(size=rows.shape)
    for unit in (np.ones(6), np.array([1.0, 1e4, 1.0, 0.01, 1.0, 1.0])):
        x = pd.DataFrame(rows * unit, columns=list("abcdef"))
        tree = inference.fit(zoo.PPCA(2, noise="diagonal"), x, method="em")
        found.append(profiles(tree)["latents"])
    pd.testing.assert_frame_equal(*found, rtol=1e-6)
    named = [set(name.replace(",", " and").split(" and ")) for name in found[0]["name"]]
    assert named == [set("abc"), set("def")]
    assert "columns are in their standard deviations" in found[0].attrs["note"]


def test_standardised_columns_count_alike():
    x = ROWS * [1.0, 1.0, 1.0, 1000.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        raw = profiles(inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form"))["latents"]
        even = profiles(inference.fit(zoo.PPCA(num_latents=1, standardize=True), x, method="closed_form"))[
            "latents"
        ]
    assert raw["share"][0] > 0.99 > even["share"][0] and "standardize" in raw.attrs["note"]
    assert "standardize" not in even.attrs["note"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_pairs_tell_shared_latents_from_those_of_one_view():
    model = zoo.Paired.ecca(("gaussian", "gaussian"), 1, (1, 0))
    tree = inference.fit(model, ROWS[:, :2], ROWS[:, 2:], method="map", max_iterations=30, progress=False)
    found = profiles(tree)
    assert found["latents"]["kind"].tolist() == ["shared", "y_0"]
    assert found["latents"]["share_1"].tolist()[1] == 0.0 < found["latents"]["share_0"].tolist()[1]
    latents = found["loadings"].xs("y_1", level="view").index.get_level_values("latent")
    assert set(latents) == {0}


@pytest.mark.parametrize("method, last", [("map", Categorical(3)), ("gibbs", Bernoulli())])
@pytest.mark.filterwarnings("ignore")
def test_shares_of_a_mixed_view_are_the_means_of_its_columns(method, last):
    """They leapt from .5 to 1 beside a yes/no column, whose natural parameter has no noise."""
    rng = np.random.default_rng(0)
    y = np.column_stack([ROWS[:, :2], *rng.integers(0, 2, (2, len(ROWS)))])
    mixed = ByColumn.of((Gaussian(None), Gaussian(None), Bernoulli(), last))
    model = zoo.Paired((mixed, Gaussian(None)), num_shared=1, num_specific=(0, 1))
    given = {"max_iterations": 20} if method == "map" else {"num_samples": 20, "num_warmup": 5}
    found = profiles(inference.fit(model, y, ROWS[:, 2:], method=method, progress=False, seed=0, **given))
    latents, columns = found["latents"], found["columns"]["explained"]
    assert latents["share"].sum() == pytest.approx(columns.mean())
    assert latents.attrs["of"] == "the variance of the cells"
    for v in (0, 1):
        assert latents[f"share_{v}"].sum() == pytest.approx(columns.xs(f"y_{v}", level="view").mean())
    assert latents["share_0"].tolist()[1] == 0.0 < latents["share_1"].tolist()[1]


@pytest.mark.slow
def test_topics_are_those_that_wrote_the_documents():
    rng = np.random.default_rng(0)
    words = ["cat", "dog", "pet", "bank", "loan", "cash"]
    topics = np.array([[0.4, 0.3, 0.3, 0, 0, 0], [0, 0, 0, 0.5, 0.3, 0.2]])
    counts = [rng.multinomial(30, topics[int(d >= 8)]) for d in range(24)]
    table = pd.DataFrame(np.array(counts), columns=words, index=[f"d{i}" for i in range(24)])
    tree = inference.fit(zoo.LDA(num_topics=2), table, method="vb", num_samples=100, progress=False)
    found = profiles(tree, num_rows=4, num_words=3)
    assert set(found["topics"]["words"].iloc[0].split(", ")) == {"bank", "loan", "cash"}  # the larger topic
    assert set(found["topics"]["words"].iloc[1].split(", ")) == {"cat", "dog", "pet"}
    np.testing.assert_allclose(found["topics"]["share"], [16 / 24, 8 / 24], atol=0.03)
    first = found["topics"].index[0]
    assert set(found["topic_documents"].loc[first, "document"]) <= {f"d{i}" for i in range(8, 24)}
    lift = found["topic_words"].loc[first, "lift"]
    assert (lift > 1.2).all() and (found["topic_words"]["lb"] <= found["topic_words"]["mean"]).all()


def test_cells_are_printed_with_their_intervals():
    table = pd.DataFrame(
        {"mean": [3.29, 0.5], "lb": [3.1, np.nan], "ub": [3.45, np.nan], "share": [0.364, 0.02]}
    )
    cells = profile_cells(table)
    assert cells["mean"].tolist() == ["3.29 (3.10 to 3.45)", "0.500"] and cells["share"].tolist() == [
        "36 %",
        "2.0 %",
    ]


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="probability must lie between 0 and 1"):
        profiles(fitted("ppca"), probability=1.0)
    with pytest.raises(ValueError, match="num_rows"):
        profiles(fitted("ppca"), num_rows=0)
    with pytest.raises(TypeError, match="DataTree"):
        profiles(xr.Dataset())


def test_effects_are_in_deviations_within_clusters():
    """Of numbers the root of the mean variance within; of an indicator that of its mean probability."""
    share = np.array([[0.2, 0.3, 0.5]])
    values = np.array([[[0.1, 0.9], [0.5, 0.2], [0.6, 0.4]]])
    spread = np.array([[[1.0, 2.0], [3.0, np.nan], [0.5, 4.0]]])
    within = np.sqrt([[0.2 * 1 + 0.3 * 9 + 0.5 * 0.25, 0.2 * 4 + 0.5 * 16]])
    np.testing.assert_allclose(_unit(values, spread, share)[0], within)
    mean = np.array([[0.2 * 0.1 + 0.3 * 0.5 + 0.5 * 0.6, 0.2 * 0.9 + 0.3 * 0.2 + 0.5 * 0.4]])
    np.testing.assert_allclose(_unit(values, None, share)[0], np.sqrt(mean * (1 - mean)))


def test_others_are_the_other_clusters_by_their_shares():
    """By EM, one estimate: means and shares of rows as the fit has them."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(30, 2)) + centre for centre in ([0, 0], [9, 0], [0, 20])])[:75]
    model = zoo.Mixture(zoo.conjugate.GaussianWishart.from_data(x), num_components=3)
    tree = inference.fit(model, x, method="em", num_restarts=1, init="kmeans")
    table = profiles(tree)["cluster_values"]
    means = tree["variational"]["locs"].values
    share = tree["variational"]["responsibilities"].values.mean(axis=0)
    for cluster in range(3):
        own = table.loc[cluster]
        k = np.argmin(np.abs(means - own["mean"].to_numpy()).sum(axis=1))
        rest = [j for j in range(3) if j != k]
        np.testing.assert_allclose(own["others"], share[rest] @ means[rest] / share[rest].sum(), rtol=1e-6)
