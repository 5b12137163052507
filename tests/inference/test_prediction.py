"""New rows, groups on request, and the guide as a program."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import SVI, Predictive, TraceGraph_ELBO

import inference
from inference.calibration import elbo_check
from inference.numerics.programs import latent_names
from inference.symmetry import relabel

TREES = ["vb_tree", "gibbs_tree", pytest.param("nuts_tree", marks=pytest.mark.slow)]


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


def test_density_from_draws_is_the_log_of_the_mean(gibbs_tree, two_clusters):
    rows = gibbs_tree["log_likelihood"]["log_likelihood"]
    by_hand = np.logaddexp.reduce(rows.stack(s=("chain", "draw")).to_numpy(), axis=1) - np.log(16000)
    np.testing.assert_allclose(inference.log_density(gibbs_tree, two_clusters), by_hand, rtol=1e-10)


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


def test_shares_from_draws_do_not_depend_on_how_labels_are_numbered(gibbs_tree, two_clusters):
    permuted = gibbs_tree.copy()
    order = np.random.default_rng(0).permutation(3)
    posterior = permuted["posterior"].to_dataset()
    by_component = [n for n, v in posterior.data_vars.items() if "component" in v.dims]
    for name in by_component:
        posterior[name] = posterior[name].copy(data=posterior[name].to_numpy()[:, :, order])
    posterior["assignments"] = posterior["assignments"].copy(
        data=np.argsort(order).astype("uint8")[posterior["assignments"]]
    )
    permuted["posterior"] = posterior
    one = np.sort(inference.transform(gibbs_tree, two_clusters), axis=1)
    two = np.sort(inference.transform(permuted, two_clusters), axis=1)
    np.testing.assert_allclose(one, two, atol=0.05)


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


def test_replicated_data_are_not_the_data(gibbs_tree):
    """`Predictive` with the data passed would return the data."""
    replicated = inference.extend(gibbs_tree, "posterior_predictive")["posterior_predictive"]["x"]
    data = gibbs_tree["observed_data"]["x"]
    assert not np.isclose(replicated.isel(chain=0, draw=0), data).any()
    spread = replicated.std("observation").mean(("chain", "draw"))
    np.testing.assert_allclose(spread, data.std("observation"), rtol=0.25)


def test_unknown_groups_are_refused(vb_tree):
    with pytest.raises(ValueError, match="does not know 'posterior'; it makes prior"):
        inference.extend(vb_tree, "posterior")
    with pytest.raises(ValueError, match="name at least one group"):
        inference.extend(vb_tree)


def test_the_guide_is_a_program_with_the_sites_of_the_model(vb_tree, small_model, two_clusters):
    guide, x = inference.guide(vb_tree), two_clusters.to_numpy()
    assert set(latent_names(guide, x)) == set(latent_names(small_model.explicit, x))
    draws = Predictive(guide, num_samples=50)(jax.random.key(0), x)
    assert draws["assignments"].shape == (50, 60) and np.isfinite(draws["locs"]).all()
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


def test_samplers_have_no_guide(gibbs_tree):
    with pytest.raises(ValueError, match="has no variational posterior"):
        inference.guide(gibbs_tree)


def test_relabelled_trees_predict_the_same_density(gibbs_tree, two_clusters):
    np.testing.assert_allclose(
        inference.log_density(relabel(gibbs_tree), two_clusters),
        inference.log_density(gibbs_tree, two_clusters),
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
