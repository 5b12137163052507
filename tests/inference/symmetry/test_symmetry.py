"""Relabelling undoes planted label switching exactly; aligned rotations undo planted turns."""

from itertools import permutations

import numpy as np
import pytest
import xarray as xr

from inference.component_subspaces import component_similarity, effective_directions, loading_products
from inference.convergence.numbering import _by_rows, by_size, matched_numbers
from inference.diagnostics import co_clustering, invariants, summary
from inference.diagnostics.summaries import summary_cells
from inference.symmetry import align_rotation, identified, identify, relabel
from inference.symmetry.labels import given_rows
from tests.support.fit_cases import fitted
from tests.support.planted import (
    CENTRES,
    PlantedProjection,
    planted_mixture,
    planted_projection,
    planted_regression,
    planted_zoo,
    replaced,
    switch_labels,
    variational_mixture,
)
from zoo.coordinates import Coordinates, Unit


@pytest.fixture(autouse=True)
def of_planted_models():
    with planted_zoo():
        yield


@pytest.fixture(scope="module")
def straight():
    return planted_mixture(stick=True)


@pytest.fixture(scope="module")
def switched(straight):
    return switch_labels(straight)


def test_relabelling_depends_on_partitions_alone(straight, switched):
    one, other = relabel(straight), relabel(switched)
    for name in ("weights", "locs", "covariances", "precisions", "assignments"):
        np.testing.assert_array_equal(one["posterior"][name], other["posterior"][name], err_msg=name)


def test_relabelling_finds_the_planted_order(switched):
    found = relabel(switched)["posterior"]
    np.testing.assert_allclose(found["locs"].mean(("chain", "draw"))[:3], CENTRES, atol=0.2)
    shares = (found["assignments"].values[..., None] == np.arange(5)).mean((0, 1, 2))
    assert list(shares) == sorted(shares, reverse=True)


def test_assignments_and_parameters_move_together(switched):
    before, after = switched["posterior"], relabel(switched)["posterior"]
    z_before, z_after = before["assignments"].values.astype(int), after["assignments"].values.astype(int)
    for name in ("weights", "locs", "covariances"):
        old = np.take_along_axis(before[name].values, _index(z_before, before[name].ndim), axis=2)
        new = np.take_along_axis(after[name].values, _index(z_after, after[name].ndim), axis=2)
        np.testing.assert_array_equal(old, new, err_msg=name)  # each row keeps its own component's parameters
    np.testing.assert_array_equal(np.sort(before["weights"].values, -1), np.sort(after["weights"].values, -1))


def _index(z, ndim):
    return z.reshape(*z.shape, *(1,) * (ndim - 3))


def test_relabelling_twice_is_relabelling_once_and_the_input_is_unchanged(switched):
    copy = switched.copy(deep=True)
    once = relabel(switched)
    assert switched.identical(copy)
    assert relabel(once).identical(once)


def test_r_hat_before_and_after():
    """Two chains name the clusters the other way round: R-hat is large before and near 1 after."""
    tree = planted_mixture(num_draws=200)
    posterior = tree["posterior"].to_dataset()
    order = np.array([1, 0, 2, 3, 4])
    moved = {}
    for name, variable in posterior.data_vars.items():
        values = variable.values.copy()
        if "component" in variable.dims:
            values[2:] = values[2:][:, :, order]
        elif name == "assignments":
            values[2:] = order[values[2:]]
        moved[name] = (variable.dims, values)
    after = relabel(replaced(tree, posterior=xr.Dataset(moved)))
    assert after.attrs["relabel_rhat_before"] > 1.5
    assert after.attrs["relabel_rhat_after"] < 1.03


def test_relabelled_parameters_can_be_summarised_and_invariants_stay(switched):
    after = relabel(switched)
    table = summary(after, var_names=["locs"])
    assert table.loc["locs[1, width]", "mean"] == pytest.approx(4.0, abs=0.2)
    assert "relabel(" not in summary(after).attrs["note"]
    xr.testing.assert_identical(invariants(after), invariants(switched))
    np.testing.assert_array_equal(co_clustering(after), co_clustering(switched))


def test_components_without_rows_are_numbered_by_weight():
    """Of two draws by hand of three rows; of two equal weights the first comes first."""
    labels = np.array([[3, 1, 1], [2, 0, 0]])
    weights = np.array([[0.1, 0.4, 0.05, 0.2, 0.25], [0.4, 0.1, 0.2, 0.2, 0.1]])
    found = _by_rows(labels, np.array([0, 1, 1]), 5, weights)
    np.testing.assert_array_equal(found, [[3, 0, 4, 1, 2], [0, 3, 1, 2, 4]])


def test_components_are_matched_to_the_clusters_whose_rows_they_hold():
    """Six rows; a draw that exchanges labels, one that splits the largest cluster, one that joins two."""
    partition = np.array([7, 7, 7, 2, 2, 5])
    labels = np.array(
        [[0, 0, 0, 1, 1, 2], [2, 2, 2, 0, 0, 1], [3, 1, 1, 0, 0, 2], [1, 1, 1, 3, 3, 3], [0, 0, 0, 1, 1, 2]]
    )
    found = _by_rows(labels, partition, 4)
    seen = np.take_along_axis(found, labels, axis=1)
    expected = [[0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 2], [3, 0, 0, 1, 1, 2], [0, 0, 0, 1, 1, 1]]
    np.testing.assert_array_equal(seen, [*expected, expected[0]])
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(4), (5, 1)))


def test_sizes_are_ordered_with_ties_by_the_first_row():
    sizes, first = np.array([2.0, 5.0, 2.0 + 1e-12, 0.0, 5.0]), np.array([4, 9, 1, 10, 0])
    assert by_size(sizes, first).tolist() == [4, 1, 2, 0, 3]
    assert by_size(sizes).tolist() == [1, 4, 0, 2, 3]


def test_stick_fractions_are_dropped_and_named(straight):
    after = relabel(straight)
    assert "stick_fractions" not in after["posterior"] and "stick" not in after["posterior"].coords
    assert "stick_fractions dropped" in after.attrs["relabelled"]
    assert "dropped" not in relabel(planted_mixture()).attrs["relabelled"]


def test_draws_of_q_get_one_order_in_all_groups():
    tree = variational_mixture()
    after = relabel(tree)
    share = after["variational"]["responsibilities"].sum("observation").values
    assert list(share) == sorted(share, reverse=True)
    np.testing.assert_allclose(after["variational"]["locs_loc"][:3], CENTRES, atol=0.3)
    np.testing.assert_allclose(after["posterior"]["locs"].mean(("chain", "draw"))[:3], CENTRES, atol=0.3)
    owner = after["variational"]["responsibilities"].values.argmax(1)
    assert (after["posterior"]["assignments"].values == owner).mean() > 0.9
    assert "relabel_rhat_after" not in after.attrs
    assert relabel(after).identical(after)


def test_one_order_of_draws_of_q_keeps_rows_with_their_parameters():
    """Components go round before, so that the order by size is not its own inverse."""
    tree = variational_mixture()
    round_about = np.array([2, 0, 3, 4, 1])
    posterior = tree["posterior"].to_dataset().isel(component=round_about)
    posterior["assignments"] = (
        posterior["assignments"].dims,
        np.argsort(round_about)[posterior["assignments"].values],
    )
    variational = tree["variational"].to_dataset().isel(component=round_about)
    tree = replaced(tree, posterior=posterior, variational=variational)
    order = np.argsort(-variational["responsibilities"].values.sum(0))
    assert not np.array_equal(order[order], np.arange(5))
    after = relabel(tree)
    z_before, z_after = (own["posterior"]["assignments"].values for own in (tree, after))
    for name in ("weights", "locs", "covariances"):
        old, new = (own["posterior"][name].values for own in (tree, after))
        old = np.take_along_axis(old, _index(z_before, old.ndim), axis=2)
        new = np.take_along_axis(new, _index(z_after, new.ndim), axis=2)
        np.testing.assert_array_equal(old, new, err_msg=name)
    for name, axis in (("responsibilities", 1), ("locs_loc", 0)):
        expected = variational[name].values.take(order, axis=axis)
        np.testing.assert_array_equal(after["variational"][name], expected)


def test_relabel_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="no labels"):
        relabel(planted_regression())
    tree = planted_mixture()
    with pytest.raises(ValueError, match="keep"):
        relabel(replaced(tree, posterior=tree["posterior"].to_dataset().drop_vars("assignments")))
    with pytest.raises(TypeError, match="DataTree"):
        relabel("fit.nc")


# Rotation


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_turned_loadings_agree_across_chains(turn):
    tree, straight = planted_projection(views=("", "_y"))
    copy = tree.copy(deep=True)
    after = turn(tree)
    assert tree.identical(copy)
    assert after.attrs["rotation_rhat_after"] < 1.03
    stacked = np.concatenate([straight["loadings"], straight["loadings_y"]], axis=2).mean((0, 1))
    u, d, _ = np.linalg.svd(stacked, full_matrices=False)
    found = np.concatenate(
        [after["posterior"][name].mean(("chain", "draw")) for name in ("loadings", "loadings_y")]
    )
    np.testing.assert_allclose(np.abs(found), np.abs(u * d), atol=0.02)
    assert (found[np.abs(found).argmax(0), [0, 1]] > 0).all()  # the frozen rule for signs


def test_the_unit_of_a_view_does_not_turn_the_draws():
    """One view in millimetres: its loadings and the roots of its noise a thousand times as large."""
    tree, _ = planted_projection(views=("", "_y"))
    posterior = tree["posterior"].to_dataset()
    posterior["noise_variance_y"] = posterior["noise_variance"].expand_dims(output=2, axis=-1) * [0.5, 2.0]
    in_metres = align_rotation(replaced(tree, posterior=posterior))["posterior"]
    posterior = posterior.assign(
        loadings_y=1e3 * posterior["loadings_y"], noise_variance_y=1e6 * posterior["noise_variance_y"]
    )
    turned = align_rotation(replaced(tree, posterior=posterior))["posterior"]
    np.testing.assert_allclose(turned["loadings"], in_metres["loadings"], atol=1e-9)
    np.testing.assert_allclose(turned["loadings_y"], 1e3 * in_metres["loadings_y"], atol=1e-6)


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_loadings_of_standardised_columns_turn_as_those_in_standard_units(turn, monkeypatch):
    """In the units of the columns, whose squares the model tells, they are as many times as large."""
    tree, _ = planted_projection(views=("", "_y"))
    in_standard_units = turn(tree)["posterior"]
    units = np.array([10.0, 0.1, 3.0, 1.0])
    posterior = tree["posterior"].to_dataset()
    posterior["loadings"] = posterior["loadings"] * xr.DataArray(units, dims="feature")
    monkeypatch.setattr(PlantedProjection, "units", {"loadings": Unit(1, (-2,))})
    monkeypatch.setattr(PlantedProjection, "own_coordinates", Coordinates((None,), (units,)))
    turned = turn(replaced(tree, posterior=posterior))["posterior"]
    np.testing.assert_allclose(
        turned["loadings"], in_standard_units["loadings"].values * units[:, None], atol=1e-9
    )
    for name in ("loadings_y", "latents"):
        np.testing.assert_allclose(turned[name], in_standard_units[name], atol=1e-9)


def test_identified_loadings_are_orthogonal_in_units_of_the_noise():
    """W' Phi^-1 W is diagonal and descending in every draw, also with a noise each; W'W is not."""
    tree, _ = planted_projection(views=("", "_y"))
    posterior = tree["posterior"].to_dataset()
    posterior["noise_variance_y"] = posterior["noise_variance"].expand_dims(output=2, axis=-1) * [0.01, 4.0]
    after = identify(replaced(tree, posterior=posterior))["posterior"]
    noise = [after["noise_variance"].values[..., None] * np.ones(4), after["noise_variance_y"].values]
    w = np.concatenate([after["loadings"].values, after["loadings_y"].values], axis=2)
    strengths = np.swapaxes(w, -1, -2) @ (w / np.concatenate(noise, axis=-1)[..., None])
    size = strengths[..., 0, 0]
    assert np.abs(strengths[..., 0, 1] / size).max() < 1e-12 and (size > strengths[..., 1, 1]).all()
    assert np.abs((np.swapaxes(w, -1, -2) @ w)[..., 0, 1]).min() > 0.1


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_r_hat_before_shows_turned_chains(turn):
    tree, straight = planted_projection()
    posterior = tree["posterior"].to_dataset()
    posterior["loadings"][0] = straight["loadings"][0]  # this chain does not turn
    after = turn(replaced(tree, posterior=posterior))
    assert after.attrs["rotation_rhat_before"] > 1.1 > after.attrs["rotation_rhat_after"] > 0


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_latents_turn_along(turn):
    tree, straight = planted_projection()
    after = turn(tree)["posterior"]
    natural = np.einsum("cdfl,cdnl->cdnf", after["loadings"].values, after["latents"].values)
    expected = np.einsum("cdfl,cdnl->cdnf", straight["loadings"], straight["latents"])
    np.testing.assert_allclose(natural, expected, atol=1e-10)
    w, s = after["loadings"].values, after["latents_covariance"].values
    expected = straight["loadings"] @ np.diag([0.2, 0.1]) @ np.swapaxes(straight["loadings"], -1, -2)
    np.testing.assert_allclose(w @ s @ np.swapaxes(w, -1, -2), expected, atol=1e-10)


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_turning_twice_is_turning_once(turn):
    once = turn(planted_projection()[0])
    twice = turn(once)
    for name in ("loadings", "latents", "latents_covariance"):
        np.testing.assert_allclose(once["posterior"][name], twice["posterior"][name], atol=1e-9)
    assert (
        "latent_scales" not in once["posterior"] and "latent_scales dropped" in once.attrs["rotation_aligned"]
    )


def test_identified_loadings_have_orthogonal_columns_in_every_draw():
    w = identify(planted_projection()[0])["posterior"]["loadings"].values
    gram = np.swapaxes(w, -1, -2) @ w
    np.testing.assert_allclose(gram[..., 0, 1], 0.0, atol=1e-10)
    assert (gram[..., 0, 0] >= gram[..., 1, 1]).all()


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_latents_of_one_view_only_stay_its_own(turn):
    """Columns that are exactly zero in a view are not mixed with the others."""
    rng = np.random.default_rng(0)
    w_0, w_1 = rng.normal(size=(2, 4, 50, 5, 4)) * 0.05 + rng.normal(size=(2, 1, 1, 5, 4))
    w_0[..., 3], w_1[..., 2] = 0.0, 0.0
    dims = ("chain", "draw", "feature_0", "latent"), ("chain", "draw", "feature_1", "latent")
    posterior = xr.Dataset({"loadings_0": (dims[0], w_0), "loadings_1": (dims[1], w_1)})
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset(attrs={"model": "plantedprojection", "model_fields": "{}"}), "posterior": posterior}
    )
    after = turn(tree)["posterior"]
    assert (after["loadings_0"].values[..., 3] == 0).all() and (after["loadings_1"].values[..., 2] == 0).all()
    v_0, v_1 = after["loadings_0"].values, after["loadings_1"].values
    np.testing.assert_allclose(v_0 @ np.swapaxes(v_1, -1, -2), w_0 @ np.swapaxes(w_1, -1, -2), atol=1e-10)
    assert np.abs(v_0 - w_0).max() > 0.1


def test_a_point_estimate_turns_with_its_local_posterior():
    tree, straight = planted_projection(num_chains=1, num_draws=1)
    local = tree["posterior"].to_dataset()[["latents", "latents_covariance"]].isel(chain=0, draw=0)
    after = identify(replaced(tree, variational=local))
    for name in ("latents", "latents_covariance"):
        np.testing.assert_allclose(after["variational"][name], after["posterior"][name][0, 0], atol=1e-12)
    natural = after["posterior"]["loadings"][0, 0].values @ after["variational"]["latents"].values.T
    np.testing.assert_allclose(natural, straight["loadings"][0, 0] @ straight["latents"][0, 0].T, atol=1e-10)


@pytest.mark.parametrize("turn", [align_rotation, identify])
def test_no_rotation_no_turning(turn):
    with pytest.raises(ValueError, match="no rotation symmetry"):
        turn(planted_mixture())
    tree = planted_projection()[0]
    with pytest.raises(ValueError, match="loadings"):
        turn(replaced(tree, posterior=tree["posterior"].to_dataset()[["noise_variance"]]))


@pytest.mark.parametrize(("prob", "tail"), [(0.9, 5), (0.5, 25), (0.2, 40)])
def test_intervals_of_components_leave_the_same_mass_in_each_tail(prob, tail, monkeypatch):
    """Draws at 0, 1, ..., 100: quantiles are percentages. Latents and what is no draw are left out."""
    chain = np.random.default_rng(0).permutation(np.arange(101.0))
    for chains, kind in ((1, "variational"), (1, "sampling"), (2, "sampling")):
        steps = np.broadcast_to(chain, (chains, 101))
        draws = ("chain", "draw")
        made = xr.Dataset(
            {
                "singular_values": ((*draws, "component"), np.stack([steps, 10 - 2 * steps], axis=-1)),
                "loadings_0": (
                    (*draws, "feature_0", "component"),
                    np.stack([3 * steps, 0 * steps], -1)[:, :, None],
                ),
                "latents": ((*draws, "observation", "component"), np.zeros((chains, 101, 4, 2))),
                "swapped": ((*draws, "component"), np.zeros((chains, 101, 2), bool)),
                "separation": ("component", np.ones(2)),
            },
            {"component": [1, 2], "feature_0": ["width"]},
            {"kind": kind},
        )
        monkeypatch.setattr(identified, "components", lambda tree, part, made=made: made)
        table = identified.component_intervals(xr.DataTree(), prob=prob)
        expected = {
            "singular_values[1]": (50, tail, 100 - tail),
            "singular_values[2]": (10 - 2 * 50, 10 - 2 * (100 - tail), 10 - 2 * tail),
            "loadings_0[width, 1]": (3 * 50, 3 * tail, 3 * (100 - tail)),
            "loadings_0[width, 2]": (0, 0, 0),
        }
        assert list(table.index) == list(expected)
        np.testing.assert_allclose(table[["mean", "low", "high"]], list(expected.values()), atol=1e-12)
        judged = ["r_hat", "ess_bulk"] if chains == 2 else []
        assert list(table.columns) == ["mean", "low", "high", *judged]
        assert not judged or table["r_hat"].isna().tolist() == [False, False, False, True]


def emptied(tree, site, cluster, **spoilt):
    """The fit with a cluster without rows in every second draw, and its parameters far away there."""
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    labels = posterior[site].transpose("chain", "draw", ...).values
    labels[:, ::2] = np.where(labels[:, ::2] == cluster, 0, labels[:, ::2])
    for name, value in spoilt.items():
        posterior[name].transpose("chain", "draw", ...).values[:, ::2, cluster] = value
    return replaced(tree, posterior=posterior)


def test_parameters_of_a_cluster_are_of_the_draws_in_which_it_holds_rows(straight):
    tree = emptied(straight, "assignments", 2, locs=1e4, covariances=1e6)
    aligned = relabel(tree)
    assert aligned["posterior"]["locs"].sel(component=2).std() > 1000  # by the number alone
    table = summary(aligned, ["locs", "weights"])
    number = straight["posterior"].sizes["chain"] * straight["posterior"].sizes["draw"]
    of_cluster = table.loc[[name for name in table.index if name.startswith("locs[2")]]
    holds = (aligned["posterior"]["assignments"] == 2).any("observation").values
    held = aligned["posterior"]["locs"].sel(component=2).values[holds]
    assert held.std() < 5 and number // 2 <= len(held) < 0.6 * number  # a stray row is a cluster in a few
    np.testing.assert_allclose(of_cluster["mean"], held.mean(0))
    np.testing.assert_allclose(of_cluster["sd"], held.std(0, ddof=1))
    assert (of_cluster["draws"] == len(held)).all()
    assert of_cluster["r_hat"].isna().all() and "in which the cluster holds rows" in table.attrs["note"]
    others = table.loc[[name for name in table.index if name.startswith(("locs[0", "weights"))]]
    assert others["draws"].isna().all() and others["r_hat"].notna().all()
    assert "draws" not in summary(relabel(straight), ["weights"])
    assert "inf" not in summary_cells(table).to_string()


@pytest.mark.slow
def test_subspaces_of_a_component_are_of_the_draws_in_which_it_holds_rows():
    tree = fitted("depcam nuts")
    labels = np.broadcast_to(np.arange(30) % 3 == 2, tree["posterior"]["assignments"].shape)
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    posterior["assignments"] = posterior["assignments"].copy(data=labels.astype(np.int32))
    whole = replaced(tree, posterior=posterior)
    spoilt = emptied(whole, "assignments", 1, scales=1e3)
    halves = {
        name: child.to_dataset().isel(draw=slice(1, None, 2))
        for name, child in whole.children.items()
        if "draw" in child.dims
    }
    half = replaced(whole, **halves)
    for table in (loading_products, lambda tree: effective_directions(tree).drop(columns="share")):
        found, expected = (np.asarray(table(fit))[1] for fit in (spoilt, half))
        np.testing.assert_allclose(found, expected)
    found, expected = (component_similarity(fit) for fit in (spoilt, half))
    for name in expected.data_vars:
        np.testing.assert_allclose(found[name][0, 1], expected[name][0, 1], err_msg=name)


@pytest.mark.slow
def test_topics_of_a_cluster_are_of_the_draws_in_which_it_holds_documents():
    tree = fitted("pcp gibbs")
    labels = np.broadcast_to((np.arange(24) % 3 == 2) * 1, tree["posterior"]["doc_clusters"].shape)
    posterior = tree["posterior"].to_dataset().copy(deep=True)
    posterior["doc_clusters"] = posterior["doc_clusters"].copy(data=labels.astype(np.int32))
    whole = replaced(tree, posterior=posterior)
    held = given_rows(emptied(whole, "doc_clusters", 1, cluster_topic_probs=np.eye(3)[0]))
    half = posterior["cluster_topic_probs"].isel(draw=slice(1, None, 2))
    found, expected = (
        value.sel(cluster=1).mean(("chain", "draw")) for value in (held["cluster_topic_probs"], half)
    )
    np.testing.assert_allclose(found, expected)
    assert (
        held["cluster_topic_probs"].sel(cluster=2).isnull().all() and held["cluster_weights"].notnull().all()
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_components_are_numbered_by_the_clusters_that_they_share_rows_with(weighted):
    rng = np.random.default_rng(0)
    size, reference = 5, np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    labels = rng.integers(0, size, (200, len(reference)))
    weights = rng.random((200, size)) if weighted else None
    numbers = matched_numbers(labels, reference, size, weights)
    for draw, (own, found) in enumerate(zip(labels, numbers, strict=True)):
        assert sorted(found) == list(range(size))
        shared = np.zeros((size, size), int)
        np.add.at(shared, (own, reference), 1)
        chosen = [shared[range(size), order].sum() for order in map(list, permutations(range(size)))]
        counts = np.bincount(own, minlength=size)
        best = shared[range(size), found].sum()
        assert best == max(chosen)  # the best exchange, where several share most rows with one cluster
        empty = [k for k in range(size) if not counts[k]]
        by = counts[empty] if weights is None else weights[draw, empty]
        assert sorted(empty, key=lambda k: found[k]) == [empty[i] for i in np.argsort(-by, kind="stable")]
        late = [k for k in range(size) if counts[k] and found[k] > reference.max()]
        if late and empty:  # of more components than clusters: by rows, before those without
            assert found[late].max() < found[empty].min()
        assert [counts[k] for k in sorted(late, key=lambda k: found[k])] == sorted(counts[late], reverse=True)
