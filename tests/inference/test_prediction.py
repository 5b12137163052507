"""New rows, groups on request, and the guide as a program."""

import re
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
import xarray as xr
from numpyro.infer import SVI, Predictive, TraceGraph_ELBO

import inference
import zoo
from inference import prediction
from inference.batched_answers import frame_of
from inference.calibration import elbo_check
from inference.numerics.programs import latent_names
from inference.prediction import _incomplete_rows, _warn_of_tails
from inference.results.groups import flat_draws, labels_of, with_groups
from inference.symmetry import relabel
from zoo.exponential_family import Categorical, as_family, local_pca_answers

TREES = ["vb_tree", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gibbs_tree", "nuts_tree"))]


@pytest.mark.parametrize("name", TREES)
def test_shares_sum_to_one_and_clusters_are_theirs(name, request, two_clusters):
    tree = request.getfixturevalue(name)
    shares = inference.transform(tree, two_clusters)
    assert shares.dims == ("observation", "component") and np.allclose(shares.sum("component"), 1, atol=1e-9)
    clusters = inference.predict(tree, two_clusters)
    assert clusters.dims == ("observation",) and clusters.dtype.kind == "i"
    np.testing.assert_array_equal(clusters, shares["component"].to_numpy()[shares.argmax("component")])
    assert list(clusters["observation"].to_numpy()) == list(two_clusters.index)
    assert clusters[0] != clusters[-1]  # the two clusters are told apart


@pytest.mark.parametrize("name", TREES)
def test_the_predictive_density_integrates_to_one(name, request):
    """On a grid that holds the data with room around them; the rest of the mass is in the tails."""
    tree = request.getfixturevalue(name)
    side = np.linspace(-15, 18, 140)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mass = np.exp(inference.log_density(tree, grid)).sum() * (side[1] - side[0]) ** 2
    assert 0.98 < mass < 1.001


def test_density_from_draws_is_the_log_of_the_mean(few_draws, two_clusters):
    rows = few_draws["log_likelihood"]["log_likelihood"]
    by_hand = np.logaddexp.reduce(rows.stack(s=("chain", "draw")).to_numpy(), axis=1) - np.log(4 * 200)
    np.testing.assert_allclose(inference.log_density(few_draws, two_clusters), by_hand, rtol=1e-10)


def test_a_single_new_row_is_one_of_many(vb_tree, two_clusters):
    """Fitting needs two rows, a question does not."""
    one = two_clusters[3:4]
    for ask in (inference.log_density, inference.transform):
        np.testing.assert_allclose(ask(vb_tree, one)[0], ask(vb_tree, two_clusters)[3], rtol=1e-12)


def test_vb_density_is_that_of_its_own_draws(vb_tree, two_clusters):
    """The closed form against 400 draws of q.

    Within 5 Monte Carlo errors plus the draws' heavy tail, 0.05 nats a row.
    """
    rows = vb_tree["log_likelihood"]["log_likelihood"].squeeze("chain").to_numpy()
    by_draws = np.log(np.exp(rows).mean(axis=0))
    error = np.exp(rows).std(axis=0) / np.exp(rows).mean(axis=0) / np.sqrt(400)
    exact = inference.log_density(vb_tree, two_clusters).to_numpy()
    assert (np.abs(exact - by_draws) < 5 * error + 1e-3).all()


def test_shares_from_draws_do_not_depend_on_how_labels_are_numbered(few_draws, two_clusters):
    """Two of the four chains have another numbering."""
    permuted = few_draws.copy()
    order = np.array([2, 0, 1])
    posterior = permuted["posterior"].to_dataset()
    by_component = [n for n, v in posterior.data_vars.items() if "component" in v.dims]
    for name in by_component:
        values = posterior[name].to_numpy()
        posterior[name] = posterior[name].copy(data=np.concatenate([values[:2], values[2:][:, :, order]]))
    labels = posterior["assignments"].to_numpy()
    renamed = np.argsort(order).astype("uint8")[labels[2:]]
    posterior["assignments"] = posterior["assignments"].copy(data=np.concatenate([labels[:2], renamed]))
    permuted["posterior"] = posterior
    permuted["sample_stats"] = permuted["sample_stats"].to_dataset().drop_vars("component_label")
    one = np.sort(inference.transform(few_draws, two_clusters), axis=1)
    two = np.sort(inference.transform(permuted, two_clusters), axis=1)
    np.testing.assert_allclose(one, two, atol=0.05)


def test_scores_from_draws_do_not_depend_on_how_latents_are_turned():
    """One draw, and the same three times with its two latent axes turned a quarter round in the second."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2)) @ (rng.normal(size=(2, 3)) * [[3.0], [1.0]]) + 0.3 * rng.normal(size=(12, 3))
    fitted = inference.fit(zoo.PPCA(num_latents=2), x, method="closed_form")
    names = ["loadings", "loc", "noise_variance"]
    posterior = fitted["posterior"].to_dataset()[names]
    quarter = posterior["loadings"] @ xr.DataArray([[0.0, 1.0], [-1.0, 0.0]], dims=("latent", "turned"))
    turned = posterior.assign(loadings=quarter.rename(turned="latent").transpose(*posterior["loadings"].dims))
    trees = []
    for draws in ([posterior], [posterior, turned, posterior]):
        held = xr.Dataset(attrs=fitted.attrs | {"method": "nuts"})
        trees.append(xr.DataTree.from_dict({"/": held, "posterior": xr.concat(draws, "draw")}))
    one, three = (inference.transform(tree, x, covariance=True) for tree in trees)
    assert np.abs(one["scores"]).max() > 1.0
    np.testing.assert_allclose(three["scores"], one["scores"], atol=1e-9)
    np.testing.assert_allclose(three["covariance"], one["covariance"], atol=1e-9)


def test_a_column_that_new_rows_lack_is_given_as_empty_cells():
    """As the message advises; its cells are then predicted."""
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 1)) * [1, 2, 3], columns=list("abc"))
    tree = inference.fit(zoo.PPCA(num_latents=1), x + np.eye(30)[:, :3])
    with pytest.raises(ValueError, match="lack the columns b of the fit; .* a column of empty cells for it"):
        inference.predict(tree, x.drop(columns="b"))
    with pytest.raises(ValueError, match="a column of empty cells for each"):
        inference.predict(tree, x[["a"]])
    with pytest.raises(ValueError, match="none of the columns a, b, c of the fit; they have A, B, C: name"):
        inference.predict(tree, x.rename(columns=str.upper))
    assert np.isfinite(inference.predict(tree, x.assign(b=np.nan))).all()
    of_whole_rows = inference.fit(zoo.KernelPCA(num_latents=1, kernel="rbf", noise_variance=0.1), x)
    with pytest.raises(ValueError, match="they have a, c: add it, or fit without it"):
        inference.transform(of_whole_rows, x.drop(columns="b"))


def test_new_columns_are_matched_by_name_or_refused(vb_tree, two_clusters):
    swapped = two_clusters[["width", "length"]]
    np.testing.assert_array_equal(
        inference.log_density(vb_tree, swapped), inference.log_density(vb_tree, two_clusters)
    )
    with pytest.raises(ValueError, match="new data lack the columns width"):
        inference.predict(vb_tree, two_clusters.rename(columns={"width": "breadth"}))
    with pytest.raises(ValueError, match="must have 2 columns"):
        inference.predict(vb_tree, np.zeros((3, 5)))
    with pytest.raises(TypeError, match="takes 1 part of data, x; got 2"):
        inference.predict(vb_tree, two_clusters, two_clusters)


@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
def test_groups_on_request_leave_the_tree_alone(name, request):
    tree = request.getfixturevalue(name)
    groups = set(tree.children)
    new = inference.extend(
        tree, "prior", "prior_predictive", "posterior_predictive", "log_prior", num_samples=7
    )
    assert set(tree.children) == groups
    assert new["prior_predictive"]["x"].shape == (1, 7, 60, 2) and new["prior"]["locs"].shape == (1, 7, 3, 2)
    assert new["posterior_predictive"]["x"].dims == ("chain", "draw", "observation", "feature")
    assert new["posterior_predictive"].sizes["draw"] == tree["posterior"].sizes["draw"]
    total = new["log_prior"]["log_prior"] + tree["log_likelihood"]["log_likelihood"].sum("observation")
    np.testing.assert_allclose(total, tree["sample_stats"]["lp"], rtol=1e-10)


def test_replicated_data_are_not_the_data(few_draws):
    """`Predictive` with the data passed would return the data."""
    replicated = inference.extend(few_draws, "posterior_predictive")["posterior_predictive"]["x"]
    data = few_draws["observed_data"]["x"]
    assert not np.isclose(replicated.isel(chain=0, draw=0), data).any()
    spread = replicated.std("observation").mean(("chain", "draw"))
    np.testing.assert_allclose(spread, data.std("observation"), rtol=0.25)


def test_unknown_groups_are_refused(vb_tree):
    with pytest.raises(ValueError, match="does not know 'posterior'; it makes prior"):
        inference.extend(vb_tree, "posterior")
    with pytest.raises(ValueError, match="name at least one group"):
        inference.extend(vb_tree)


@pytest.mark.slow
def test_the_guide_is_a_program_with_the_sites_of_the_model(vb_tree, small_model, two_clusters):
    guide, x = inference.guide(vb_tree), two_clusters.to_numpy()
    assert set(latent_names(guide, x)) == set(latent_names(small_model.explicit, x))
    draws = Predictive(guide, num_samples=50)(jax.random.key(0), x)
    assert draws["assignments"].shape == (50, 60) and np.isfinite(draws["locs"]).all()


@pytest.mark.slow
def test_the_guide_has_the_bound_of_the_fit(vb_tree, small_model, two_clusters):
    guide, x = inference.guide(vb_tree), two_clusters.to_numpy()
    with jax.enable_x64(True):
        bound = float(vb_tree["trace"]["objective"].max())
        verdict = elbo_check(small_model, guide, bound, (x,), key=jax.random.key(1), num_particles=2000)
    assert abs(verdict.estimate - bound) < 4 * verdict.standard_error + 60 * 1e-6 * 5, (
        verdict
    )  # converged to the tolerance


@pytest.mark.slow
def test_svi_goes_on_from_the_guide(vb_tree, small_model, two_clusters):
    guide, x = inference.guide(vb_tree), jnp.asarray(two_clusters.to_numpy())
    svi = SVI(small_model.explicit, guide, numpyro.optim.Adam(1e-4), TraceGraph_ELBO())
    result = svi.run(jax.random.key(0), 3, x, progress_bar=False)
    assert {"components_loc", "weights_concentration", "concentration_loc"} <= set(result.params)
    assert np.isfinite(result.losses).all()


def test_samplers_have_no_guide(few_draws):
    with pytest.raises(ValueError, match="has no variational posterior"):
        inference.guide(few_draws)


def test_rows_of_no_fitted_cluster_are_warned_of_by_name():
    """Guards the first of 18 tied empty components, or the only one at probability 1, told as the cluster."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)) + 8.0 * rng.integers(2, size=(60, 1))
    new = pd.DataFrame([[60.0, 0.0], [0.0, 0.0], [-30.0, 30.0]], index=["typo", "held", "far"])
    for size in (3, 8):  # one empty component, or several
        tree = inference.fit(zoo.Mixture(num_components=size), x, progress=False)
        with pytest.warns(UserWarning, match="2 of 3 rows belong to none of the fitted clusters: typo, far;"):
            shares = inference.predict(tree, new, what="probabilities")
        np.testing.assert_allclose(shares.new_cluster, shares[:, 2:].sum("component"))
        assert (shares.new_cluster > 0.5).values.tolist() == [True, False, True]
        np.testing.assert_allclose(shares.sum("component"), 1.0)
        of_rows = {"variational": "responsibilities", "posterior": "assignments"}
        left = {group: tree[group].to_dataset().drop_vars(name) for group, name in of_rows.items()}
        with pytest.warns(UserWarning, match="2 of 3 rows belong to none"):
            again = inference.predict(with_groups(tree, left), new)  # a fit in batches holds nothing of rows
        np.testing.assert_array_equal(again.new_cluster, shares.new_cluster)
        assert frame_of(again).columns.tolist() == ["assignments", "new_cluster"]  # as in a file
    full = inference.fit(zoo.Mixture(num_components=2), x, progress=False)
    assert "new_cluster" not in inference.predict(full, x, what="probabilities").coords


@pytest.mark.slow
def test_a_new_row_belongs_where_a_fit_that_has_it_would_put_it():
    """By Gibbs too, whose clusters without rows are draws of the prior: the few near the row count.

    The tolerance is four standard errors (.026, of the difference over five seeds of both fits), so that
    one right run in 10 000 fails. Means over five seeds: .779 and .772.
    """
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(40, 1)), rng.normal(size=(40, 1)) + 12.0])
    model = zoo.Mixture(zoo.conjugate.NormalGamma.from_data(x), num_components=6, concentration=0.6)
    settings = {"method": "gibbs", "num_samples": 1000, "num_chains": 4, "progress": False}
    tree = inference.fit(model, x, seed=0, **settings)
    with pytest.warns(UserWarning, match="belongs to none of the fitted clusters"):
        told = inference.predict(tree, [[4.0]], what="probabilities").new_cluster.item()
    with_it = inference.fit(model, np.append(x, [[4.0]], axis=0), seed=1, **settings)
    labels = flat_draws(labels_of(with_it))
    beside = labels[:, :80] == labels[:, 80:]
    alone = (beside[:, :40].sum(1) < 20) & (beside[:, 40:].sum(1) < 20)  # not in either fitted cluster
    assert told == pytest.approx(alone.mean(), abs=0.105)


def test_relabelled_trees_predict_the_same_density(few_draws, two_clusters):
    np.testing.assert_allclose(
        inference.log_density(relabel(few_draws), two_clusters),
        inference.log_density(few_draws, two_clusters),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_new_rows_under_stick_breaking_draws(two_clusters):
    """Aligned draws have their weights in another order than the sticks made them."""
    from zoo import Mixture

    model = Mixture.from_data(two_clusters, num_components=8, weight_prior="stick_breaking")
    with pytest.warns(UserWarning, match="has not converged"):
        tree = inference.fit(model, two_clusters, method="gibbs", num_chains=2, num_warmup=50, num_samples=50)
    shares = inference.transform(tree, two_clusters)
    np.testing.assert_allclose(shares.sum("component"), 1.0, rtol=1e-9)
    labels = inference.predict(tree, two_clusters).to_numpy()
    assert (labels[:35] == np.bincount(labels[:35]).argmax()).mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["map", pytest.param("gibbs", marks=pytest.mark.slow)])
def test_complete_rows_do_not_change_what_incomplete_ones_are_predicted(method):
    """Rows without a gap are not looked at: they come back as they are, whatever is beside them.

    Deviations over draws are compared with the law of total variance over the draws, each scored by itself.
    """
    rng = np.random.default_rng(0)
    x = 1.0 * (rng.normal(size=(30, 1)) @ rng.normal(size=(1, 4)) + rng.normal(size=(30, 4)) > 0)
    model = zoo.EPCA("bernoulli", num_latents=1, num_features=4)
    settings = {"num_chains": 1, "num_warmup": 20, "num_samples": 10} if method == "gibbs" else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(converged|chain)")
        tree = inference.fit(model, x, method=method, progress=False, **settings)
    gaps = np.where(np.arange(24).reshape(6, 4) % 7 == 0, np.nan, x[:6])
    filled = inference.predict(tree, gaps)
    lacks = np.isnan(gaps)
    assert 0 < lacks.any(axis=1).sum() < 6
    np.testing.assert_array_equal(filled.to_numpy()[~lacks], gaps[~lacks])
    np.testing.assert_array_equal(filled.standard_deviation.to_numpy() > 0, lacks)
    alone = inference.predict(tree, gaps[lacks.any(axis=1)])
    np.testing.assert_allclose(alone, filled[lacks.any(axis=1)], rtol=1e-10)
    complete = inference.predict(tree, x[:3])
    np.testing.assert_array_equal(complete, x[:3])
    assert not complete.standard_deviation.any()
    if method == "gibbs":
        single = [tree.isel(draw=[i], missing_dims="ignore") for i in range(10)]
        parts = [inference.predict(one, gaps) for one in single]
        means = np.stack([part.to_numpy() for part in parts])
        variances = np.stack([part.standard_deviation.to_numpy() for part in parts]) ** 2
        np.testing.assert_allclose(filled, means.mean(0), rtol=1e-10)
        total = variances.mean(0) + means.var(0)
        np.testing.assert_allclose(filled.standard_deviation, total**0.5, rtol=1e-9)


@pytest.mark.slow
def test_cells_and_reconstructions_from_draws_of_depcam():
    """A reconstruction says something of every cell, "cells" of the missing ones: there the two agree."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, size=(16, 3)).astype(float)
    model = zoo.DEPCAM("bernoulli", num_components=2, num_latents=1)
    settings = {"num_chains": 1, "num_warmup": 10, "num_samples": 4, "max_tree_depth": 3}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(converged|diverg)")
        tree = inference.fit(model, x, method="nuts", progress=False, **settings)
    gaps = np.where(np.arange(12).reshape(4, 3) == 4, np.nan, x[:4])
    cells, whole = (inference.predict(tree, gaps, what=what) for what in ("cells", "reconstruction"))
    lacks = np.isnan(gaps)
    np.testing.assert_array_equal(cells.to_numpy()[~lacks], gaps[~lacks])
    np.testing.assert_allclose(cells.to_numpy()[lacks], whole.to_numpy()[lacks], rtol=1e-6)
    assert (whole.standard_deviation > 0).all() and ((cells.standard_deviation > 0) == lacks).all()


def test_a_draw_predicts_classes_as_the_same_estimate_does():
    """Of draws the probabilities are averaged; of a single draw that is what the estimate says."""
    x = np.random.default_rng(0).integers(0, 3, (12, 3)).astype(float)
    model = zoo.EPCA(family=Categorical(3), num_latents=1)
    by_map = inference.fit(model, x, method="map")
    drawn = by_map.copy()
    drawn.attrs["method"] = "nuts"
    new = x[:4].copy()
    new[0, 1] = new[3, 0] = np.nan
    own, other = (inference.predict(tree, new) for tree in (drawn, by_map))
    np.testing.assert_array_equal(own, other)
    np.testing.assert_allclose(own.standard_deviation, other.standard_deviation, rtol=1e-6)
    lost = np.isnan(new)
    assert set(own.to_numpy()[lost]) <= {0.0, 1.0, 2.0}
    deviation = own.standard_deviation.to_numpy()[lost]
    assert (deviation > 0.05).all() and (deviation <= 0.5).all()  # of a top probability of at least 1/3


@pytest.mark.parametrize(
    ("families", "better"),
    [
        (["poisson"], "vb or nuts"),
        (["gaussian", "poisson", "bernoulli"], "vb or nuts"),
        (["exponential"], "nuts"),
        (["poisson", "categorical"], "nuts"),
        (["poisson", "ordinal"], "nuts"),
        ([("poisson", "gaussian")], "vb or nuts"),
        ([("poisson", "negative_binomial")], "nuts"),
    ],
    ids=str,
)
def test_the_warning_of_tails_counts_its_cells_and_names_a_method_that_the_families_have(families, better):
    """Variational Bayes has a bound where every log-partition is one of three forms. One view, or several."""
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(coords={"feature": list("abcdefg")})})
    model = SimpleNamespace(part_families=[as_family(family) for family in families])
    far = np.zeros((3, 7), bool)
    _warn_of_tails(None, model, np.ones((3, 7)), tree, "feature")
    _warn_of_tails(jnp.asarray(far), model, np.ones((3, 7)), tree, "feature")  # of none is no warning
    far[0, 1], far[:2, 4] = True, True
    variance = np.where(np.arange(7) < 3, 0.0, 0.5) * np.ones((3, 1))  # of a cell that was seen it is zero
    with pytest.warns(UserWarning, match=re.escape("of 3 of 12 missing cells (columns b, e) come")) as caught:
        _warn_of_tails(jnp.asarray(far), model, variance, tree, "feature")
    assert str(caught[0].message).endswith(f"; fit by {better}")
    with pytest.warns(UserWarning, match=re.escape("(columns a, b, c, d, e, ...)")):
        _warn_of_tails(jnp.ones((3, 7), bool), model, variance, tree, "feature")


def test_rows_with_any_missing_cell_are_the_incomplete_ones():
    """Of the part that is asked for; one row stands for all where every cell is there."""
    holes = jnp.array([[1.0, 2.0], [np.nan, 2.0], [1.0, 2.0], [1.0, np.nan], [np.nan, np.nan]])
    whole = jnp.ones((5, 3))
    assert _incomplete_rows((holes,), 0).tolist() == [1, 3, 4]
    assert _incomplete_rows((whole, holes), 1).tolist() == [1, 3, 4]
    assert _incomplete_rows((whole, holes), 0).tolist() == [0]
    assert _incomplete_rows((object(), holes), 1) is None  # a sparse part


@pytest.mark.parametrize(
    "model",
    [
        zoo.EPCA("gaussian", num_latents=1),
        zoo.Paired(("gaussian", "gaussian"), num_features=(2, 2)),
        zoo.DEPCAM("gaussian", num_components=2, num_latents=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_observed_cells_keep_their_values_and_have_no_variance(model, monkeypatch):
    """What the latents give of a cell is put into missing cells alone, each in its own place."""
    mean, variance = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[0.1, 0.2], [0.3, 0.4]])
    given = mean, variance, None
    if isinstance(model, zoo.DEPCAM):  # two components of equal shares at a distance of 2: the variance + 1
        given = jnp.full((2, 2), 0.5), jnp.stack([mean - 1, mean + 1], 1), jnp.stack([variance] * 2, 1)
        variance = variance + 1.0
    owner = local_pca_answers if isinstance(model, zoo.DEPCAM) else model.answers
    monkeypatch.setattr(owner, "_expected", lambda *arguments: given)
    x = jnp.array([[np.nan, 7.0], [8.0, np.nan]])
    views = (x, jnp.full((2, 2), np.nan)) if isinstance(model, zoo.Paired) else (x,)
    filled, spread = model.predicted({}, *views)
    np.testing.assert_array_equal(filled, [[1.0, 7.0], [8.0, 4.0]])
    np.testing.assert_allclose(spread, [[variance[0, 0], 0.0], [0.0, variance[1, 1]]], rtol=1e-6)


def test_one_row_may_be_a_mapping_or_a_series():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    frame["town"] = rng.choice(["north", "south"], 40)
    tree = inference.fit(zoo.Mixture(num_components=2), frame, seed=0, progress=False)
    expected = inference.log_density(tree, frame.iloc[[3]]).values
    for row in (frame.iloc[3], frame.iloc[3].to_dict(), [frame.iloc[3].to_dict()]):
        np.testing.assert_array_equal(inference.log_density(tree, row).values, expected)
        assert inference.predict(tree, row).shape == (1,)


def test_counts_of_words_that_a_table_lacked_are_warned_of_as_those_of_texts():
    counts = pd.DataFrame(np.random.default_rng(0).poisson(2.0, size=(30, 4)), columns=list("abcd"))
    tree = inference.fit(zoo.LDA(num_topics=2), counts, seed=0, progress=False)
    with pytest.warns(UserWarning, match="500 tokens of new documents are of words that the fit"):
        found = inference.transform(tree, counts.iloc[:2].assign(e=250))
    np.testing.assert_array_equal(found.values, inference.transform(tree, counts.iloc[:2]).values)


def test_bags_of_words_by_document_are_not_taken_for_one_row():
    bags = {"d1": {"a": 2, "b": 1}, "d2": {"b": 3, "c": 1}, "d3": {"a": 1, "c": 4}}
    tree = inference.fit(zoo.LDA(num_topics=2), bags, seed=0, learn=(), progress=False)
    found = inference.transform(tree, bags)
    assert list(found["document"].values) == list(bags)
    np.testing.assert_array_equal(inference.transform(tree, bags["d2"]).values, found.values[1:2])


def _people(num_rows, seed):
    """Heights in cm and incomes in dollars, independent; a column of codes, two in a hundred of them 1."""
    rng = np.random.default_rng(seed)
    cells = {"height": rng.normal(170, 10, num_rows), "income": np.exp(rng.normal(10, 1, num_rows))}
    return pd.DataFrame(cells | {"code": (np.arange(num_rows) % 50 == 0).astype(float)})


@pytest.fixture(scope="module")
def people_tree():
    return inference.fit(zoo.PPCA(num_latents=1, standardize=True), _people(150, 0), method="em")


@pytest.mark.parametrize("ask", [inference.transform, inference.predict, inference.log_density])
def test_new_rows_in_another_unit_are_told_by_column(ask, people_tree):
    """Heights in metres, incomes in thousands."""
    new = _people(60, 1)
    with pytest.warns(UserWarning, match="unlike the fitted ones") as told:
        ask(people_tree, new / [100, 1000, 1])
    (message,) = {str(one.message) for one in told}
    assert re.search(r"in height \(median 1\.\d+; fitted: 14\d to 19\d\), income \(.*\): nine", message), (
        message
    )


def test_few_rows_and_rows_of_one_kind_are_told_nothing(people_tree):
    """Nine rows, tall people, those of a rare code, and an empty column."""
    new = _people(60, 1)
    others = {"height": new["height"] / 20 + 180}, {"code": 1.0}, {"income": np.nan}
    for rows in (new[:9] / 100, *(new.assign(**cells) for cells in others)):
        inference.transform(people_tree, rows)


def test_rows_of_the_fitted_population_are_not_taken_for_others(monkeypatch):
    """20 fitted rows and 10 new ones in 100 000 columns: .04 alarms are expected; planted: half of the cells.

    All new rows are outside the fitted ones if these are 20 neighbours in order: 11 of C(30, 10) cases.
    """
    x = np.random.default_rng(0).normal(size=(30, 100_000))
    fitted = {"x": xr.DataArray(x[:20], dims=("observation", "feature"))}
    facts = {"kept": lambda make: make(tree), "model": SimpleNamespace(data_names=("x",)), "columns": (None,)}
    tree = SimpleNamespace(fit=SimpleNamespace(**facts), children=("observed_data",))
    monkeypatch.setattr(prediction, "observed_tables", lambda tree: fitted)
    prediction._warn_of_other_units(tree, {"x": jnp.asarray(x[20:])})
    monkeypatch.setattr(prediction, "_FEW_WITHIN", 0.5)
    with pytest.warns(UserWarning, match="and .* more columns: nine"):
        prediction._warn_of_other_units(tree, {"x": jnp.asarray(x[20:])})
