"""Why a row: contributions of cells, by hand, by all orders of the columns, and exact in their sum."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import inference
import zoo
from inference import explanation
from inference.results.groups import with_groups
from zoo.conjugate import GaussianWishart, NormalGamma, Product, SphericalNormalGamma
from zoo.kernels import RBF

COLUMNS = ["a", "b", "c", "d"]
WEIGHTS = np.array([0.5, 0.3, 0.2])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 4)) + rng.integers(3, size=60)[:, None] * [3.0, -2.0, 1.0, 0.0]
    x[5, 1] = x[6, [0, 3]] = np.nan
    x[7] = [0.4, np.nan, np.nan, np.nan]
    return pd.DataFrame(x, columns=COLUMNS, index=[f"K{n:03}" for n in range(60)])


@pytest.fixture(scope="module")
def em_tree(table):
    with pytest.warns(UserWarning, match=r"did not settle|not converged|max_iterations"):
        return inference.fit(
            zoo.Mixture(num_components=3), table, method="em", max_iterations=3, num_restarts=1
        )


def at(tree, locs, covariances, weights=WEIGHTS):
    """A fit by EM whose estimate is replaced."""
    group = tree["variational"].to_dataset().copy(deep=True)
    given = {"locs": locs, "covariances": covariances, "precisions": np.linalg.inv(covariances)}
    for name, value in (given | {"weights": weights}).items():
        if name in group:
            group[name].values[...] = value
    return with_groups(tree, {"variational": group})


def planted(tree, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 4, 4))
    locs, covariances = rng.normal(size=(3, 4)) * 2, root @ np.swapaxes(root, 1, 2) + np.eye(4)
    return at(tree, locs, covariances), locs, covariances


def log_joint_by_hand(row, chosen, locs, covariances):
    chosen = list(chosen)
    found = np.log(WEIGHTS)
    if chosen:
        found = found + [
            multivariate_normal(loc[chosen], covariance[np.ix_(chosen, chosen)]).logpdf(row[chosen])
            for loc, covariance in zip(locs, covariances, strict=True)
        ]
    return found


def over_all_orders(players, value):
    """Shapley values by their definition: the mean gain over all orders in which players come."""
    found = dict.fromkeys(players, 0.0)
    for order in itertools.permutations(players):
        for place, player in enumerate(order):
            found[player] += value(order[: place + 1]) - value(order[:place])
    return {player: gain / math.factorial(len(players)) for player, gain in found.items()}


@pytest.mark.parametrize("name", ["K002", "K005", "K006", "K007"])
def test_contributions_are_gains_over_all_orders_of_the_columns(em_tree, table, name):
    tree, locs, covariances = planted(em_tree)
    row = table.loc[name].to_numpy()
    seen = tuple(np.flatnonzero(~np.isnan(row)))
    whole = log_joint_by_hand(row, seen, locs, covariances)
    own, other = np.argsort(-whole)[:2]
    ratio = lambda chosen: -np.subtract(*log_joint_by_hand(row, chosen, locs, covariances)[[other, own]])  # noqa: E731
    expected = over_all_orders(seen, ratio)
    found = inference.explain(tree, name)["contribution"]
    np.testing.assert_allclose(found["weights"], ratio(()), rtol=1e-9)
    for j, column in enumerate(COLUMNS):
        np.testing.assert_allclose(found[column], expected.get(j, 0.0), rtol=1e-7, atol=1e-9)
    assert all(found[COLUMNS[j]] == 0 for j in range(4) if j not in seen)
    np.testing.assert_allclose(found.sum(), whole[own] - whole[other], rtol=1e-9)


@pytest.mark.parametrize("kind", ["em", "vb"])
def test_clusters_are_those_of_predict_and_the_sum_is_the_ratio_of_its_shares(
    kind, em_tree, table, vb_tree, two_clusters
):
    tree, rows = (em_tree, table) if kind == "em" else (vb_tree, two_clusters)
    shares, labels = inference.transform(tree, rows), inference.predict(tree, rows)
    for place in (0, 5, 40):
        found = inference.explain(tree, rows.index[place])
        holds = tree["variational"]["responsibilities"].to_numpy().sum(0) > 0.5
        largest = np.sort(shares[place].to_numpy()[holds])[::-1]
        total = np.log(largest[0]) - np.log(largest[1])
        np.testing.assert_allclose(found["contribution"].sum(), total, rtol=1e-6)
        np.testing.assert_allclose(found.attrs["total"]["contribution"], total, rtol=1e-6)
        assert f"row {rows.index[place]} is in cluster {int(labels[place])} with" in found.attrs["said"]
        assert found.attrs["kind"] == "shapley"
        assert found.index[0] == "weights" and set(found.index[1:]) == set(rows.columns)
        values = found["contribution"].abs().to_numpy()[1:]
        assert (np.diff(values) <= 0).all()


def test_the_next_cluster_holds_rows(em_tree, table):
    """A component without rows may be the second most probable, and nobody would find it in a table."""
    tree = at(em_tree, np.eye(3, 4) * [[0.0], [9.0], [1.0]], np.stack([np.eye(4)] * 3))
    group = tree["variational"].to_dataset().copy(deep=True)
    group["responsibilities"].values[:] = [0.5, 0.5, 0.0]
    tree = with_groups(tree, {"variational": group})
    data = tree["observed_data"].to_dataset().copy(deep=True)
    data["x"].values[0] = 0.0
    found = inference.explain(with_groups(tree, {"observed_data": data}), "K000")
    assert found.attrs["said"].startswith("row K000 is in cluster 0 with")
    assert "the next that holds rows is 1 with" in found.attrs["said"]
    np.testing.assert_allclose(found["contribution"]["weights"], np.log(0.5 / 0.3))


def test_a_column_alike_in_all_clusters_says_nothing_and_copies_share(em_tree, table):
    same = np.array([[0.0, 0.0, 0.0, 1.0], [3.0, 3.0, 0.0, 1.0], [-3.0, -3.0, 0.0, 1.0]])
    covariance = np.eye(4)
    covariance[0, 1] = covariance[1, 0] = 0.9
    tree = at(em_tree, same, np.stack([covariance] * 3))
    data = tree["observed_data"].to_dataset().copy(deep=True)
    data["x"].values[0] = [1.0, 1.0, 0.5, 7.0]
    found = inference.explain(with_groups(tree, {"observed_data": data}), "K000")["contribution"]
    np.testing.assert_allclose(found[["c", "d"]], 0.0, atol=1e-10)
    np.testing.assert_allclose(found["a"], found["b"], rtol=1e-10)
    assert abs(found["a"]) > 0.1


def test_columns_in_another_order_have_the_same_contributions(em_tree):
    tree, locs, covariances = planted(em_tree)
    order = [2, 0, 3, 1]
    other = at(em_tree, locs[:, order], covariances[:, order][:, :, order])
    data = other["observed_data"].to_dataset().copy(deep=True)
    data["x"].values[:] = data["x"].values[:, order]
    other = with_groups(other, {"observed_data": data})
    before = inference.explain(tree, "K003")["contribution"]
    after = inference.explain(other, "K003")["contribution"]
    for place, column in enumerate(order):
        np.testing.assert_allclose(after[COLUMNS[place]], before[COLUMNS[column]], rtol=1e-8, atol=1e-10)


def test_columns_beyond_the_most_are_one_player(em_tree, monkeypatch, table):
    tree, locs, covariances = planted(em_tree)
    row, whole = table.iloc[2].to_numpy(), inference.explain(tree, 2)["contribution"]
    monkeypatch.setattr(explanation, "MOST_PLAYERS", 3)
    found = inference.explain(tree, 2)["contribution"]
    together = "2 other columns, together"
    single = [column for column in found.index if column in COLUMNS]
    assert len(single) == 2 and together in found.index
    own, other = np.argsort(-log_joint_by_hand(row, range(4), locs, covariances))[:2]
    rest = tuple(j for j in range(4) if COLUMNS[j] not in single)
    players = (*((COLUMNS.index(column),) for column in single), rest)

    def value(chosen):
        columns = sorted(itertools.chain(*chosen))
        found = log_joint_by_hand(row, columns, locs, covariances)
        return found[own] - found[other]

    expected = over_all_orders(players, value)
    for player in players:
        name = together if player == rest else COLUMNS[player[0]]
        np.testing.assert_allclose(found[name], expected[player], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.sum(), whole.sum(), rtol=1e-9)
    alone = [abs(value(((j,),)) - value(())) for j in range(4)]
    assert min(alone[COLUMNS.index(column)] for column in single) >= max(alone[j] for j in rest)


def test_batches_of_coalitions_answer_as_one(em_tree, monkeypatch):
    tree, *_ = planted(em_tree)
    whole = inference.explain(tree, 2)
    monkeypatch.setattr(explanation, "_ENTRIES", 1)
    lengths = [len(batch) for batch in explanation._batches(np.ones((40, 4), bool), 48)]
    assert lengths == [16, 16, 16]
    monkeypatch.setattr(explanation, "_batches", lambda held, size: np.array_split(held, -(-len(held) // 7)))
    np.testing.assert_allclose(
        inference.explain(tree, 2)["contribution"], whole["contribution"], rtol=1e-9, atol=1e-12
    )


def test_groups_of_columns_are_those_without_a_shared_parameter():
    x = np.random.default_rng(0).normal(size=(20, 3))
    assert NormalGamma.from_data(x).independent_columns == [(0,), (1,), (2,)]
    assert SphericalNormalGamma.from_data(x).independent_columns == [(0, 1, 2)]
    assert GaussianWishart.from_data(x).independent_columns == [(0, 1, 2)]
    families = (GaussianWishart, NormalGamma)
    product = Product.from_data(x, families=families, columns=((0, 2), (1,)))
    assert product.independent_columns == [(0, 2), (1,)]


def test_groups_that_are_independent_are_games_of_their_own(monkeypatch):
    """By VB, whose densities of rows are not Gaussian: in groups as in one game of all columns."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 4)) + rng.integers(2, size=40)[:, None] * 2.0
    families = (GaussianWishart, NormalGamma)
    components = Product.from_data(x, families=families, columns=((0, 2), (1, 3)))
    tree = inference.fit(zoo.Mixture(components=components, num_components=2), x, method="vb", num_restarts=1)
    found = inference.explain(tree, 4)["contribution"].sort_index(key=lambda names: names.map(str))
    monkeypatch.setattr(Product, "independent_columns", [(0, 1, 2, 3)])
    whole = inference.explain(tree, 4)["contribution"].sort_index(key=lambda names: names.map(str))
    np.testing.assert_allclose(found, whole, rtol=1e-9)


@pytest.mark.parametrize("method", ["em", "vb"])
def test_contributions_to_scores_are_exact(method, table):
    model = zoo.PPCA(num_latents=2, loading_prior="ard" if method == "vb" else "flat")
    rows = table.iloc[:40]
    tree = inference.fit(model, rows, method=method)
    scores = inference.transform(tree, rows).to_numpy()
    for place in (0, 5, 6):
        found = inference.explain(tree, rows.index[place])
        assert found.attrs["kind"] == "contributions" and found.index[0] == "mean row"
        np.testing.assert_allclose(
            found[["latent_0", "latent_1"]].sum(), scores[place], rtol=1e-9, atol=1e-11
        )
        gone = rows.columns[rows.iloc[place].isna()]
        assert (found.loc[gone, ["latent_0", "latent_1"]] == 0).all(axis=None)
    if method == "em":  # the share of a cell by the formula
        values = {
            name: tree["variational"][name].to_numpy() for name in ("loadings", "loc", "noise_variance")
        }
        w, noise = values["loadings"], values["noise_variance"]
        gain = np.linalg.solve(np.eye(2) + w.T @ w / noise, w.T / noise)
        away = rows.iloc[0].to_numpy() - rows.mean().to_numpy()
        shares = inference.explain(tree, "K000").loc[COLUMNS, ["latent_0", "latent_1"]]
        np.testing.assert_allclose(shares, (gain * away).T, rtol=1e-8, atol=1e-10)


def test_scores_of_a_supervised_projection_are_those_given_the_inputs():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40, 3))
    y = x[:, :1] + rng.normal(size=(40, 1))
    tree = inference.fit(zoo.SPPCA(num_latents=1), x, y, method="em")
    found = inference.explain(tree, 3)
    assert found.attrs["note"].endswith("given the inputs alone")
    np.testing.assert_allclose(found["latent_0"].sum(), inference.transform(tree, x[3:4])[0, 0], rtol=1e-9)


def test_what_has_no_estimate_tells_the_change_when_a_cell_is_left_out(few_draws, two_clusters):
    found = inference.explain(few_draws, "row 7")
    assert found.attrs["kind"] == "left out" and "total" not in found.attrs
    row = two_clusters.iloc[[7]]
    before, without = (inference.transform(few_draws, rows)[0] for rows in (row, row.assign(width=np.nan)))
    own = int(before.to_numpy().argmax())
    change = float(before[own] - without[own])
    np.testing.assert_allclose(found.loc["width", f"cluster_{own}"], change, atol=1e-12)
    assert found.loc["width", "cell"] == row["width"].iloc[0]
    assert found.attrs["said"].startswith(
        f"row row 7 is in cluster {own} with probability {before[own]:.3g};"
    )


def test_words_of_a_document_are_left_out():
    counts = np.random.default_rng(0).poisson(1.5, (12, 6))
    counts[3] = [2, 0, 1, 4, 0, 0]
    tree = inference.fit(zoo.PLSI(num_topics=2), counts, method="em", num_restarts=1)
    found = inference.explain(tree, 3)
    assert sorted(found["cell"]) == [1.0, 2.0, 4.0]
    less = counts[[3]].copy()
    less[0, 3] = 0
    change = inference.transform(tree, counts[[3]]) - inference.transform(tree, less)
    topics = [name for name in found if name != "cell"]
    np.testing.assert_allclose(found.loc[3, topics].astype(float), change[0], atol=1e-12)


def test_a_cell_is_told_as_the_table_had_it():
    rng = np.random.default_rng(0)
    kinds = rng.choice(["red", "green", "blue"], 50)
    table = pd.DataFrame({"kind": kinds, "size": rng.normal(size=50) + 5 * (kinds == "red")})
    tree = inference.fit(zoo.Mixture(num_components=2), table, method="vb", num_restarts=2)
    found = inference.explain(tree, 9)
    assert found.loc["kind", "cell"] == kinds[9] and found.loc["size", "cell"] == table["size"][9]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("K2000", "has no row 'K2000': its 60 rows are called 'K000' to 'K059'; did you mean"),
        (60, "has no row 60"),
        (-1, "has no row -1"),
        ("twice", "2 rows of the fit are called 'twice': rows 1, 4, counted from 0"),
    ],
)
def test_a_row_that_is_none_or_several(em_tree, row, said):
    labels = em_tree["observed_data"]["observation"].to_numpy().astype(object)
    labels[[1, 4]] = ["twice", "twice"] if row == "twice" else labels[[1, 4]]
    groups = {
        name: child.to_dataset().assign_coords(observation=labels)
        for name, child in em_tree.children.items()
        if "observation" in child.coords
    }
    with pytest.raises(ValueError, match=said):
        inference.explain(with_groups(em_tree, groups), row)


def test_fits_that_cannot_say(em_tree, vb_tree):
    without = xr.DataTree.from_dict(
        {name: child.to_dataset() for name, child in em_tree.children.items() if name != "observed_data"}
    )
    without.attrs |= em_tree.attrs
    with pytest.raises(ValueError, match="observed_data"):
        inference.explain(without, 0)
    x = np.random.default_rng(0).normal(size=(20, 2))
    one = inference.fit(zoo.Mixture(num_components=1), x, method="em", num_restarts=1)
    with pytest.raises(ValueError, match="one cluster"):
        inference.explain(one, 0)
    kernel = inference.fit(zoo.KernelPCA(num_latents=1, kernel=RBF(1.0), noise_variance=0.1), x)
    with pytest.raises(ValueError, match="kernelpca cannot miss cells"):
        inference.explain(kernel, 0)


@pytest.mark.parametrize(
    ("kind", "method", "fields"), [(zoo.DEPCAM, "em", {"family": "gaussian"}), (zoo.MCFA, "vb", {})]
)
def test_a_mixture_of_projections_is_explained_by_its_densities(kind, method, fields):
    """Its densities are no conjugate family's: one game of all columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1)) * [3.0, 2.0, 1.0] + rng.normal(size=(40, 3)) / 4
    x[3, 1] = np.nan
    model = kind(num_components=2, num_latents=1, **fields)
    tree = inference.fit(model, x, method=method, num_restarts=1)
    shares = inference.predict(tree, x[3:4], what="probabilities")[0].to_numpy()
    found = inference.explain(tree, 3)
    assert found.attrs["kind"] == "shapley" and set(found.index) == {"weights", 0, 1, 2}
    assert found.loc[1, "contribution"] == 0 and found.loc[0, "contribution"] != 0
    ratio = np.log(np.sort(shares)[1] / np.sort(shares)[0])
    np.testing.assert_allclose(found["contribution"].sum(), ratio, rtol=1e-8)
