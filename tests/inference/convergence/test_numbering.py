"""One numbering: tables, files, predictions, pictures, reports and continued fits name the clusters alike.

Each fit is of three groups whose sizes rise with their place in the data, and begins, where it can, with the
smallest first, so that no numbering is right by chance.
"""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import inference
import zoo
from inference.cli import main
from inference.convergence.numbering import cluster_dim, in_program_order, topic_orders
from inference.convergence.partitions import point_partition
from inference.diagnostics.profile_tables import profiles
from inference.estimators import DEPCAMEstimator, MCFAEstimator, MixtureEstimator
from inference.numerics import weighted_rows
from inference.plots.mixtures import occupied_components
from inference.report import report
from inference.results.files import load, model_of, save
from inference.results.groups import responsibilities_of
from inference.symmetry import relabel
from inference.topics.topic_tables import token_shares, topic_words

SIZES = (6, 10, 24)
LABELS = np.repeat([0, 1, 2], SIZES)
ROWS = np.array([[0, 0], [9, 0], [0, 9]])[LABELS] + np.random.default_rng(0).normal(size=(40, 2))
WIDE = ROWS @ np.random.default_rng(2).normal(size=(2, 4)) + np.random.default_rng(3).normal(size=(40, 4)) / 3
WORDS = np.kron(np.eye(3), np.ones(3)) * 8 + 0.3
TEXTS = np.random.default_rng(1).poisson(WORDS[LABELS])
START = {"responsibilities": np.eye(3)[LABELS] * 0.94 + 0.02}
CHAINS = {"num_chains": 2, "num_warmup": 30, "num_samples": 30}


def _mixture(**fields):
    return zoo.Mixture.from_data(ROWS, num_components=3, **fields)


def _depcam():
    return zoo.DEPCAM.from_data(ROWS, family="gaussian", num_components=3, num_latents=1)


def _mcfa():
    return zoo.MCFA.from_data(WIDE, num_components=3, num_latents=2)


def _topics(kind, **fields):
    return kind.from_data(TEXTS, num_topics=3, **fields)


CASES = {
    "mixture vb": (_mixture, ROWS, {"method": "vb", "init": START}),
    "mixture sticks vb": (
        lambda: _mixture(weight_prior="stick_breaking", concentration=0.1),
        ROWS,
        {"method": "vb", "init": START, "sort_sticks": False},
    ),
    "mixture em": (_mixture, ROWS, {"method": "em", "init": START}),
    "mixture gibbs": (_mixture, ROWS, {"method": "gibbs", **CHAINS}),
    "mixture collapsed": (_mixture, ROWS, {"method": "collapsed_gibbs", **CHAINS}),
    "depcam em": (_depcam, ROWS, {"method": "em", "init": START}),
    "mcfa vb": (_mcfa, WIDE, {"method": "vb", "init": START}),
    "mcfa gibbs": (_mcfa, WIDE, {"method": "gibbs", **CHAINS}),
    "lda vb": (lambda: _topics(zoo.LDA), TEXTS, {"method": "vb"}),
    "lda gibbs": (lambda: _topics(zoo.LDA), TEXTS, {"method": "collapsed_gibbs", **CHAINS}),
    "plsi em": (lambda: _topics(zoo.PLSI), TEXTS, {"method": "em"}),
    "pcp vb": (lambda: _topics(zoo.PCP, num_clusters=3), TEXTS, {"method": "vb"}),
    "pcp gibbs": (
        lambda: _topics(zoo.PCP, num_clusters=3),
        TEXTS,
        {"method": "gibbs", "num_chains": 2, "num_warmup": 100, "num_samples": 30},
    ),
}


@pytest.fixture(scope="module", params=CASES)
def journey(request):
    make, data, options = CASES[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
        return model, data, options, inference.fit(model, data, seed=0, progress=False, **options)


def check_clusters(tree, data):
    """All that a person sees of the clusters of rows or documents."""
    tables = profiles(tree)
    listed = tables["clusters"]
    assert listed.index.tolist() == list(range(len(listed))) and listed["rows"].is_monotonic_decreasing
    partition = point_partition(tree).to_numpy()
    shares = inference.predict(tree, data, what="probabilities").to_numpy()
    predicted = inference.predict(tree, data).to_numpy()
    np.testing.assert_array_equal(predicted, shares.argmax(1))
    np.testing.assert_allclose(shares.sum(0)[: len(listed)], listed["rows"], atol=1.5)
    sure = shares.max(1) > 0.9
    np.testing.assert_array_equal(predicted[sure], partition[sure])
    typical = tables["cluster_rows"].reset_index()
    np.testing.assert_array_equal(predicted[typical["row"].to_numpy().astype(int)], typical["cluster"])
    if set(model_of(tree).roles.gaussian) & tree["posterior"].keys():
        drawn = occupied_components(tree)
        np.testing.assert_array_equal(drawn.owner, predicted)
        centres = np.stack([data[predicted == k].mean(0) for k in drawn.index])
        np.testing.assert_allclose(drawn.locs, centres, atol=1.5)


def check_topics(tree, data):
    """All that a person sees of the topics of documents."""
    tables, shares = profiles(tree), token_shares(tree).to_numpy()
    listed = tables["topics"]
    assert listed.index.tolist() == [0, 1, 2] and listed["share"].is_monotonic_decreasing
    best = [words.split(", ")[:3] for words in listed["words"]]
    words = topic_words(tree)
    assert best == [[str(w) for w in words.columns[np.argsort(-row)[:3]]] for row in words.to_numpy()]
    if model_of(tree).roles.document_topic is None:  # clusters mix topics, whose shares the data hardly tell
        return
    np.testing.assert_allclose(data.sum(1) @ shares / data.sum(), listed["share"], atol=0.05)
    near = tables["topic_documents"].reset_index()
    np.testing.assert_array_equal(shares[near["document"].to_numpy().astype(int)].argmax(1), near["topic"])


def check(tree, data):
    check = check_clusters if cluster_dim(model_of(tree)) else lambda *_: None
    check(tree, data)
    if model_of(tree).roles.topic is not None:
        check_topics(tree, data)


def test_new_rows_are_in_the_clusters_of_the_table_or_in_none(journey):
    _, data, _, tree = journey
    if cluster_dim(model_of(tree)) is None:
        return
    shares = inference.predict(tree, data, what="probabilities")
    others = np.delete(shares.to_numpy(), profiles(tree)["clusters"].index, axis=1)
    assert ("new_cluster" in shares.coords) == (others.shape[1] > 0)
    np.testing.assert_allclose(shares.coords.get("new_cluster", 0.0), others.sum(1), atol=1e-12)


def owners(tree, data):
    has_clusters = cluster_dim(model_of(tree)) is not None
    asked = inference.predict(tree, data, what="probabilities") if has_clusters else None
    return (inference.transform(tree, data) if asked is None else asked).to_numpy()


def test_tables_predictions_and_pictures_say_the_same(journey):
    _, data, _, tree = journey
    check(tree, data)


def test_a_saved_fit_says_the_same(journey, tmp_path):
    _, data, _, tree = journey
    save(tree, tmp_path / "fit.nc")
    loaded = load(tmp_path / "fit.nc")
    check(loaded, data)
    np.testing.assert_array_equal(owners(loaded, data), owners(tree, data))


# an estimate, draws, clusters of documents, and topics: the page's table is that of `profiles` for every fit
@pytest.mark.parametrize("journey", ["mixture vb", "mcfa gibbs", "lda vb", "pcp gibbs"], indirect=True)
def test_the_page_of_a_saved_fit_says_the_same(journey, tmp_path):
    *_, tree = journey
    save(tree, tmp_path / "fit.nc")
    text = report(load(tmp_path / "fit.nc"), tmp_path / "fit.md").read_text(encoding="utf-8")
    key, column = ("clusters", "rows") if cluster_dim(model_of(tree)) else ("topics", "share")
    listed = profiles(tree)[key]
    found = re.findall(r"^\| (\d) \| ([^|]*)\|", text.partition(listed.attrs["title"])[2], re.MULTILINE)
    assert [int(number) for number, _ in found[: len(listed)]] == listed.index.tolist(), column


def test_a_person_is_told_the_same_cluster_at_every_door(journey, tmp_path, monkeypatch, capsys):
    """The command line's new rows, and why a fitted row is where it is."""
    _, data, _, tree = journey
    if cluster_dim(model_of(tree)) is None:
        return
    predicted = inference.predict(tree, data).to_numpy()
    monkeypatch.chdir(tmp_path)
    save(tree, "fit.nc")
    pd.DataFrame(data, columns=[*"abcdefghi"[: data.shape[1]]]).to_csv("new.csv", index=False)
    assert main(["predict", "fit.nc", "new.csv", "--out", "found.csv"]) == 0
    assert "cluster of each" in capsys.readouterr().out
    found = pd.read_csv("found.csv")
    np.testing.assert_array_equal(found["assignments"], predicted)
    assert main(["predict", "fit.nc", "new.csv", "--what", "probabilities", "--out", "shares.csv"]) == 0
    shares = pd.read_csv("shares.csv", index_col=0).to_numpy()
    np.testing.assert_array_equal(shares.argmax(1), predicted)
    np.testing.assert_allclose(shares.max(1), found["probability"])
    for row in (0, SIZES[0], 39):
        why = inference.explain(tree, row)
        assert f"is in cluster {predicted[row]} " in why.attrs["said"]
        assert why.attrs["kind"] == "shapley" or why.columns[1] == f"cluster_{predicted[row]}"


def test_a_continued_fit_keeps_the_numbers(journey):
    model, data, options, tree = journey
    again = {name: value for name, value in options.items() if name != "init"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new = inference.fit(model, data, seed=1, progress=False, init=tree, **again)
    check(new, data)
    before, after = owners(tree, data), owners(new, data)
    sure = (before.max(1) > 0.6) & (after.max(1) > 0.6)  # chains of PCP may stay in two modes
    assert sure.sum() >= SIZES[-1] / 2
    np.testing.assert_array_equal(after[sure].argmax(1), before[sure].argmax(1))


def test_an_exchange_of_two_components_is_noticed(journey):
    """In the draws and estimates alone, as if a table had been made in another order."""
    _, data, _, tree = journey
    dim = cluster_dim(model_of(tree)) or "topic"
    order = [1, 0, 2]
    exchanged = tree.copy()
    if f"{dim}_label" in tree.get("sample_stats", {}):
        stats = tree["sample_stats"].to_dataset()
        stats[f"{dim}_label"] = stats[f"{dim}_label"].copy(
            data=np.array(order)[stats[f"{dim}_label"].to_numpy()]
        )
        exchanged["sample_stats"] = stats
    else:
        group = tree["variational"].to_dataset()
        moved = {
            name: value.copy(data=value.isel({dim: order}).to_numpy())
            for name, value in group.data_vars.items()
            if dim in value.dims
        }
        exchanged["variational"] = group.assign(moved)
    with pytest.raises(AssertionError):
        check(exchanged, data)


@pytest.mark.parametrize("method", ["gibbs", "collapsed_gibbs"])
def test_the_table_counts_rows_in_all_draws(method):
    """Shares of 400 draws told of 45 doubtful rows where `transform` of the same fit told of 36."""
    near = ROWS - 6 * np.array([[0, 0], [1, 0], [0, 1]])[LABELS]
    model = zoo.Mixture.from_data(near, num_components=3)
    options = {"num_chains": 2, "num_warmup": 50, "num_samples": 250}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = inference.fit(model, near, method=method, seed=0, progress=False, **options)
    labels = tree["posterior"]["assignments"].to_numpy().astype(int)
    numbers = tree["sample_stats"]["component_label"].to_numpy()
    numbered = np.take_along_axis(numbers, labels, axis=2)
    shares = np.stack([(numbered == k).mean((0, 1)) for k in range(3)], axis=1)
    for fit in (tree, relabel(tree)):
        table = profiles(fit)["clusters"]
        np.testing.assert_allclose(table["rows"], shares.sum(0)[table.index], rtol=1e-12)
        assert table.attrs["doubtful"] == (shares.max(1) < 0.9).sum() > 0


def test_the_sticks_keep_their_order_and_the_map_leads_back():
    """The smallest group is on the first stick; components are numbered by size all the same."""
    make, data, options = CASES["mixture sticks vb"]
    tree = inference.fit(make(), data, seed=0, progress=False, **options)
    model = model_of(tree)
    assert tree["posterior"]["stick_of_component"].to_numpy().tolist() == [2, 1, 0]
    r = responsibilities_of(tree).to_numpy()
    np.testing.assert_array_equal(r.argmax(1), 2 - LABELS)
    posterior = in_program_order(tree["posterior"].to_dataset(), model)
    fractions = posterior["stick_fractions"].to_numpy()
    left = np.concatenate([np.ones((*fractions.shape[:2], 1)), np.cumprod(1 - fractions, axis=-1)], axis=-1)
    taken = np.concatenate([fractions, np.ones((*fractions.shape[:2], 1))], axis=-1)
    np.testing.assert_allclose(posterior["weights"], left * taken, rtol=1e-9)
    lp = inference.extend(tree, "log_prior")["log_prior"]["log_prior"].to_numpy()
    total = lp + tree["log_likelihood"]["log_likelihood"].sum("observation").to_numpy()
    np.testing.assert_allclose(total, tree["sample_stats"]["lp"], rtol=1e-9)
    drawn = inference.extend(tree, "assignments")["posterior"]["assignments"].to_numpy()
    np.testing.assert_array_equal(drawn, np.broadcast_to(2 - LABELS, drawn.shape))


@pytest.mark.parametrize("case", ["dirichlet", "stick_breaking", "texts"])
def test_without_rows_the_numbers_go_by_expected_weights(case, monkeypatch):
    """Of clusters of nearly one size a few draws of the weights would put any first."""
    monkeypatch.setattr(weighted_rows, "ROW_BYTES", 10)
    labels = np.repeat([0, 1, 2, 3], (11, 10, 13, 12))
    rows = 9.0 * np.eye(4)[labels] + np.random.default_rng(0).normal(size=(46, 4))
    call = {
        "init": {"responsibilities": np.eye(4)[labels] * 0.92 + 0.02},
        "max_iterations": 3,
        "num_samples": 1,
    }
    if case == "texts":
        model, data = zoo.PCP(num_topics=4, num_clusters=4), np.rint(np.maximum(rows, 0)).astype(int) + 1
        del call["init"]
    else:
        fields = {"num_components": 4, "weight_prior": case, "concentration": 0.1}
        model, data = zoo.Mixture.from_data(rows, **fields), rows
    for seed in range(3):
        tree = inference.fit(model, data, method="vb", tolerance=0, seed=seed, progress=False, **call)
        assert "responsibilities" in tree.attrs["left_out"] and responsibilities_of(tree) is None
        weights = model_of(tree).weights
        stored = {name: tree["variational"][name].to_numpy() for name in weights.posterior_names}
        sizes = np.asarray(weights.expected_weights(weights.with_variables(stored)))
        if case == "stick_breaking":  # the sticks keep their order
            sizes = sizes[tree["variational"]["stick_of_component"].to_numpy()]
        np.testing.assert_array_equal(sizes, np.sort(sizes)[::-1])


def test_topics_with_names_of_their_own_keep_their_places(monkeypatch):
    """A prior that tells topics apart names them: nothing is ordered."""

    def ordered(*_):
        raise AssertionError("topics were numbered by size")

    monkeypatch.setattr("inference.convergence.numbering.by_size", ordered)
    settings = {"method": "vb", "max_iterations": 3, "tolerance": 0, "progress": False}
    inference.fit(_topics(zoo.LDA, topic_prior=np.array([0.1, 0.5, 2.0])), TEXTS, **settings)
    with pytest.raises(AssertionError, match="numbered by size"):
        inference.fit(_topics(zoo.LDA), TEXTS, **settings)


@pytest.mark.parametrize(
    ("estimator", "data"),
    [
        (MixtureEstimator(num_components=3), ROWS),
        (DEPCAMEstimator(num_components=3, method="em"), WIDE),
        (MCFAEstimator(num_components=3, num_latents=2), WIDE),
    ],
)
def test_an_estimator_predicts_the_numbers_of_its_table(estimator, data):
    labels = estimator.fit_predict(data)
    assert np.bincount(labels).tolist() == sorted(SIZES, reverse=True)
    np.testing.assert_array_equal(estimator.predict_proba(data).argmax(1), labels)
    check(estimator.tree_, data)


def test_topics_are_matched_by_all_their_words_not_by_a_frequent_one():
    """Two topics of ten words each that share one more, whose shares in them are drawn anew each time."""
    rng = np.random.default_rng(0)
    frequent, swapped = rng.uniform(0.2, 0.8, size=(40, 2)), rng.integers(0, 2, 40)
    own = np.kron(np.eye(2), np.full(10, 0.1))
    rows = np.concatenate([frequent[:, :, None], (1 - frequent[:, :, None]) * own], axis=2)
    rows = np.where(swapped[:, None, None], rows[:, ::-1], rows)
    orders = topic_orders(rows, best=0)
    np.testing.assert_array_equal(orders[:, 0] == orders[0, 0], swapped == swapped[0])
