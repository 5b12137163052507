"""Tables, scores and pictures of topic models, against simple formulas and peers."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import special

import zoo
from inference import extend, fit, load, log_density, save, topics
from inference.diagnostics import heldout, invariants, profiles, summary
from inference.diagnostics.model_size import cross_validate
from inference.plots import plot_clusters, plot_document_clusters
from inference.prediction import warn_of_impossible
from inference.report import report
from inference.topics import topic_tables as tables
from inference.topics.text_heldout import split_tokens
from inference.topics.topic_tables import NORMALISERS, coherence, normalised_mutual_information
from tests.support.text_cases import WORDS, sparse
from zoo.model import Roles

KINDS = np.repeat(
    np.array([[0.3, 0.3, 0.3, 0.04, 0.03, 0.03], [0.03, 0.03, 0.04, 0.3, 0.3, 0.3]]), 10, axis=0
)
COUNTS = np.random.default_rng(5).multinomial(12, KINDS).astype(float)  # ten documents on each subject
FRAME = pd.DataFrame(COUNTS, columns=WORDS, index=[f"d{i}" for i in range(20)])
OPTIONS = {"num_samples": 40, "progress": False}


@pytest.fixture(scope="module")
def trees():
    """The small corpus by VB of LDA, by the best of four random starts of VB of PCP, and by EM of pLSI."""
    return {
        "lda": fit(zoo.LDA(num_topics=2), FRAME, inner_steps=30, **OPTIONS),
        "pcp": fit(zoo.PCP(num_topics=2, num_clusters=3), FRAME, init="random", num_restarts=4, **OPTIONS),
        "plsi": fit(zoo.PLSI(num_topics=2), FRAME, max_iterations=300, tolerance=0, **OPTIONS),
    }


@pytest.mark.slow
def test_top_words_are_the_two_kinds_of_words(trees):
    for tree in trees.values():
        table = topics.top_words(tree, 3)
        assert list(table.columns) == [1, 2, 3]
        kinds = {frozenset(row) for row in table.to_numpy().tolist()}
        assert kinds == {frozenset(WORDS[:3]), frozenset(WORDS[3:])}
    assert topics.top_words(trees["lda"]).shape == (2, 6)
    with pytest.raises(ValueError, match="num_words must be at least 1; got 0"):
        topics.top_words(trees["lda"], 0)


@pytest.mark.slow
def test_invariants_of_topics_do_not_know_their_order(trees):
    """Word probabilities by hand, and the same to the last digit when topics and clusters change places."""
    for name, tree in trees.items():
        draws = tree["posterior"].to_dataset()
        found = invariants(tree)["word_probs"]
        topics = draws["topic_word_probs"]
        if name == "pcp":
            shares = (draws["cluster_weights"] * draws["cluster_topic_probs"]).sum("cluster")
        else:
            shares = draws["doc_topic_probs"][:, :, [0, 9, 19]]
        expected = (shares * topics[..., [0, 2, 5]]).sum("topic").transpose("chain", "draw", ...)
        np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), rtol=1e-12)
        turned = {dim: slice(None, None, -1) for dim in ("topic", "cluster") if dim in draws.dims}
        other = tree.copy()
        other["posterior"] = xr.DataTree(draws.isel(turned))
        np.testing.assert_allclose(invariants(other)["word_probs"], found, rtol=1e-12)


# One of the ten slowest: it pays for the fits that the other tests of this file read.
def test_each_word_of_a_profile_has_its_own_probability_and_lift(trees):
    """In falling order; the mean over draws, beside the word's share of all tokens."""
    tree = trees["lda"]
    table = profiles(tree, num_words=6)["topic_words"].reset_index()
    mean = tree["posterior"]["topic_word_probs"].mean(("chain", "draw")).transpose("topic", "word").to_numpy()
    share = COUNTS.sum(axis=0) / COUNTS.sum()
    assert len(table) == 12
    for topic, own in table.groupby("topic"):
        order = np.argsort(-mean[topic])
        assert own["word"].tolist() == [WORDS[w] for w in order]
        np.testing.assert_allclose(own["mean"], mean[topic][order], rtol=1e-9)
        np.testing.assert_allclose(own["lift"], (mean[topic] / share)[order], rtol=1e-9)
        assert ((own["lb"] <= own["mean"]) & (own["mean"] <= own["ub"])).all()


def test_shares_and_clusters_as_tables(trees):
    for tree in trees.values():
        shares = topics.topic_shares(tree)
        assert list(shares.index) == list(FRAME.index)
        np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-9)
    clusters = topics.cluster_topics(trees["pcp"])
    np.testing.assert_allclose(clusters.drop(columns="weight").sum(axis=1), 1, rtol=1e-12)
    assert clusters["weight"].sum() == pytest.approx(1, abs=1e-9)
    assert topics.cluster_shares(trees["pcp"]).shape == (20, 3)
    with pytest.raises(ValueError, match="'lda' has no clusters"):
        topics.cluster_topics(trees["lda"])


def test_nearest_documents_have_the_smallest_divergence(trees):
    tree = trees["pcp"]
    shares = topics.cluster_shares(tree)
    cluster = int(shares.sum().idxmax())
    table = topics.nearest_documents(tree, cluster, 4)
    assert (shares.loc[table.index].to_numpy().argmax(1) == cluster).all()
    clusters, words = topics.cluster_topics(tree).drop(columns="weight"), topics.topic_words(tree)
    centre = clusters.loc[cluster].to_numpy() @ words.to_numpy()
    for name, row in table.iterrows():
        p = FRAME.loc[name].to_numpy() / FRAME.loc[name].sum()
        assert row["divergence"] == pytest.approx(special.rel_entr(p, centre).sum())
    assert table["divergence"].is_monotonic_increasing
    with pytest.raises(ValueError, match="no cluster 9"):
        topics.nearest_documents(tree, 9)


def test_topics_of_two_models_are_matched(trees):
    one, other = (topics.topic_words(trees[name]) for name in ("lda", "plsi"))
    matching = topics.match_topics(one, other)
    assert (matching.similarity > 0.9).all()
    backwards = topics.match_topics(one.iloc[::-1], other)
    np.testing.assert_array_equal(backwards.order, 1 - matching.order)
    with pytest.raises(ValueError, match="over one vocabulary"):
        topics.match_topics(one, other.iloc[:, :5])


def test_words_in_another_order_are_the_same_words(trees):
    one, other = (topics.topic_words(trees[name]) for name in ("lda", "plsi"))
    straight = topics.match_topics(one, other)
    shuffled = topics.match_topics(one, other.iloc[:, ::-1])
    np.testing.assert_array_equal(straight.order, shuffled.order)
    np.testing.assert_allclose(straight.similarity, shuffled.similarity, rtol=1e-12)
    with pytest.raises(ValueError, match="2 words are only in one of two, such as 'ball'"):
        topics.match_topics(one, other.rename(columns={"ball": "tree"}))


@pytest.mark.slow
def test_topics_take_the_numbers_of_another_fit(trees):
    """Whichever way round the reference is, shares and words follow; the density does not change."""
    for name in ("lda", "pcp", "plsi"):
        tree = trees[name]
        own = topics.topic_words(trees["lda"])
        for reference in (own, own.iloc[::-1].reset_index(drop=True)):
            again = topics.numbered_like(tree, reference)
            words = topics.topic_words(again)
            np.testing.assert_array_equal(topics.match_topics(words, reference).order, [0, 1])
            back = [(words == row).all(axis=1).idxmax() for _, row in topics.topic_words(tree).iterrows()]
            shares = topics.topic_shares(tree).to_numpy()
            np.testing.assert_allclose(topics.topic_shares(again).to_numpy()[:, back], shares, rtol=1e-9)
            new, old = (
                float(heldout(fit, COUNTS[:4], protocol="completion")["mean"]) for fit in (again, tree)
            )
            assert new == pytest.approx(old, rel=1e-9)
        by_tree = topics.topic_words(topics.numbered_like(tree, trees["pcp"]))
        np.testing.assert_array_equal(
            topics.match_topics(by_tree, topics.topic_words(trees["pcp"])).order, [0, 1]
        )
    three = topics.numbered_like(trees["lda"], np.vstack([np.full(6, 1 / 6), own.to_numpy()]))
    np.testing.assert_allclose(topics.topic_words(three), own, rtol=1e-12)
    vector = fit(
        zoo.LDA(num_topics=2, topic_prior=[0.5, 0.9]), FRAME, max_iterations=2, tolerance=0, **OPTIONS
    )
    with pytest.raises(ValueError, match="priors of their own"):
        topics.numbered_like(vector, own)


def test_token_shares_by_hand(trees):
    """Averages over tokens of the topic's probability; over clusters first, then, for PCP."""
    for name in ("lda", "plsi", "pcp"):
        tree = trees[name]
        words = topics.topic_words(tree).to_numpy()
        if name == "pcp":
            table = topics.cluster_topics(tree)
            psi = topics.cluster_shares(tree, FRAME).to_numpy()
            by_token = table.drop(columns="weight").to_numpy()[:, :, None] * words
            by_token = np.einsum("dm,mkw->dkw", psi, by_token / by_token.sum(1, keepdims=True))
        else:
            by_token = topics.topic_shares(tree).to_numpy()[:, :, None] * words
            total = by_token.sum(1, keepdims=True)  # 0 for words that pLSI gives no probability
            by_token = by_token / np.where(total > 0, total, 1)
        exact = np.einsum("dw,dkw->dk", COUNTS, by_token) / COUNTS.sum(1, keepdims=True)
        found = topics.token_shares(tree)
        np.testing.assert_allclose(found, exact, atol=1e-6)
        assert list(found.index) == list(FRAME.index)
        np.testing.assert_allclose(topics.token_shares(tree, FRAME.iloc[3:7]), exact[3:7], atol=1e-6)


def test_clusters_of_new_documents(trees):
    """By Bayes' rule at the posterior means: nearly q of fitted documents, which has its own parameters."""
    fitted, new = topics.cluster_shares(trees["pcp"]), topics.cluster_shares(trees["pcp"], FRAME)
    assert list(new.index) == list(FRAME.index) and list(new.columns) == list(fitted.columns)
    np.testing.assert_allclose(new.sum(axis=1), 1, rtol=1e-9)
    assert (new.to_numpy().argmax(1) == fitted.to_numpy().argmax(1)).mean() > 0.9
    with pytest.raises(ValueError, match="'lda' has no clusters"):
        topics.cluster_shares(trees["lda"], FRAME)


def test_draws_are_brought_to_one_numbering():
    """Topics and clusters shuffled draw by draw come back in one order, documents' clusters with them."""
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.ones(6), 3)
    shares = np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]])
    topic_orders = [rng.permutation(3) for _ in range(8)]
    cluster_orders = [rng.permutation(2) for _ in range(8)]
    pairs = list(zip(topic_orders, cluster_orders, strict=True))
    clusters = np.array([0, 1, 1])
    posterior = xr.Dataset(
        {
            "topic_word_probs": (
                ("chain", "draw", "topic", "word"),
                np.array([[words[t] for t, _ in pairs]]),
            ),
            "cluster_topic_probs": (
                ("chain", "draw", "cluster", "topic"),
                np.array([[shares[c][:, t] for t, c in pairs]]),
            ),
            "doc_clusters": (
                ("chain", "draw", "document"),
                np.array([[np.argsort(c)[clusters] for _, c in pairs]]),
            ),
        }
    )
    attrs = {"model": "pcp", "model_fields": "{}"}
    tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), "posterior": posterior})
    aligned = topics.align_topics(tree)["posterior"]
    for name, variable in aligned.data_vars.items():
        assert np.ptp(variable.values, axis=1).max() < 1e-12, name
    last = aligned.isel(chain=0, draw=0)
    centres = last.cluster_topic_probs.values @ last.topic_word_probs.values
    expected = (shares @ words)[clusters]
    np.testing.assert_allclose(centres[last.doc_clusters.values], expected, rtol=1e-12)


def labels_partly_alike():
    rng = np.random.default_rng(0)
    labels, others = rng.integers(0, 3, 60), rng.integers(0, 4, 60)
    others[:30] = labels[:30]
    return labels, others


@pytest.mark.needs_peer
def test_mutual_information_is_scikit_learns():
    from sklearn.metrics import normalized_mutual_info_score

    labels, others = labels_partly_alike()
    for name in NORMALISERS:
        expected = normalized_mutual_info_score(labels, others, average_method=name)
        found = normalised_mutual_information(labels, others, normaliser=name)
        assert found == pytest.approx(expected, rel=1e-10)


def test_mutual_information_by_its_four_normalisers():
    """By sums over the table of counts; equal and unrelated labels at the ends."""
    labels, others = labels_partly_alike()
    joint = np.zeros((3, 4))
    np.add.at(joint, (labels, others), 1 / 60)
    rows, columns = joint.sum(1), joint.sum(0)
    first, second = (-np.sum(p * np.log(p)) for p in (rows, columns))
    product = np.outer(rows, columns)
    information = np.sum(joint[joint > 0] * np.log(joint[joint > 0] / product[joint > 0]))
    normalisers = {
        "min": min(first, second),
        "max": max(first, second),
        "geometric": np.sqrt(first * second),
        "arithmetic": (first + second) / 2,
    }
    assert set(normalisers) == set(NORMALISERS)
    for name, normaliser in normalisers.items():
        found = normalised_mutual_information(labels, others, normaliser=name)
        assert found == pytest.approx(information / normaliser, rel=1e-10)
    assert normalised_mutual_information(labels, 5 - labels) == pytest.approx(1)
    assert normalised_mutual_information(labels, np.zeros(60)) == 0
    with pytest.raises(ValueError, match="normaliser must be one of max"):
        normalised_mutual_information(labels, others, normaliser="sum")
    with pytest.raises(ValueError, match="of the same rows; got 60 and 59"):
        normalised_mutual_information(labels, others[1:])


def test_coherence_by_hand():
    """Words that always come together: 1; never: -1; independent: 0."""
    documents = np.array([[1, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]])
    pairs = np.array([[0.5, 0.4, 0.05, 0.05], [0.5, 0.0, 0.4, 0.1], [0.5, 0.0, 0.1, 0.4]])
    np.testing.assert_allclose(coherence(pairs, documents, num_words=2), [1, -1, 0], atol=1e-12)
    with pytest.raises(ValueError, match="corpus's 4 words"):
        coherence(pairs[:, :3], documents)


def test_tokens_are_split_into_halves():
    given, scored = split_tokens(sparse(COUNTS), seed=1)
    np.testing.assert_array_equal(given.to_dense() + scored.to_dense(), COUNTS)
    sizes = given.to_dense().sum(1) - scored.to_dense().sum(1)
    np.testing.assert_array_equal(sizes, COUNTS.sum(1) % 2)


def test_the_three_protocols_mean_what_they_say(trees):
    """Bounds lie below likelihoods; perplexity is exp of minus the mean; a point estimate has no bound."""
    new = COUNTS[:6]
    for name in ("lda", "pcp"):
        bound, likelihood, completion = (
            heldout(trees[name], new, protocol=protocol) for protocol in ("bound", "likelihood", "completion")
        )
        assert bound.attrs["is_bound"] == 1 and likelihood.attrs["is_bound"] == 0
        assert float(bound["mean"]) < float(likelihood["mean"])
        assert int(bound["num_tokens"]) == new.sum() and int(completion["num_tokens"]) < new.sum() / 2 + 1
        assert float(completion["perplexity"]) == pytest.approx(np.exp(-float(completion["mean"])))
        assert 2 < float(completion["perplexity"]) < 6
    tree = trees["plsi"]
    with pytest.raises(ValueError, match="has no bound"):
        heldout(tree, new, protocol="bound")
    point = tree["posterior"].isel(chain=0, draw=0)
    words = np.maximum(point.doc_topic_probs.values @ point.topic_word_probs.values, 1e-300)
    scores, tokens = special.logsumexp(new @ np.log(words).T, axis=1, b=1 / 20), new.sum(1)
    exact, found = scores.sum() / tokens.sum(), heldout(tree, new, protocol="likelihood")
    assert float(found["mean"]) == pytest.approx(exact, rel=1e-8)
    residuals = scores - exact * tokens  # of a ratio of sums over documents
    error = np.sqrt(len(new) / (len(new) - 1) * (residuals**2).sum()) / tokens.sum()
    assert float(found["standard_error"]) == pytest.approx(error, rel=1e-6)
    coefficients = special.gammaln(tokens + 1) - special.gammaln(new + 1).sum(1)
    of_words = (log_density(trees["pcp"], new).to_numpy() - coefficients).sum() / tokens.sum()
    found = heldout(trees["pcp"], new, protocol="likelihood")
    assert float(found["mean"]) == pytest.approx(of_words, rel=1e-6)
    with pytest.raises(ValueError, match="protocol must be one of"):
        heldout(tree, new, protocol="perplexity")


@pytest.mark.slow
def test_a_fit_in_single_precision_is_scored_in_double(trees):
    """The likelihood of LDA once refused it: topics were float32 and the prior float64."""
    options = {"inner_steps": 30, "max_iterations": 100, "tolerance": 0, "dtype": "float32"}
    tree = fit(zoo.LDA(num_topics=2), FRAME, **options, **OPTIONS)
    for protocol in ("bound", "likelihood", "completion"):
        found, expected = (
            float(heldout(fitted, COUNTS[:6], protocol=protocol)["mean"]) for fitted in (tree, trees["lda"])
        )
        assert found == pytest.approx(expected, rel=1e-3), protocol


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pcp", "plsi"])
def test_single_precision_warns_of_nothing(trees, name):
    """JAX warned of double counts added to sums in single precision; warnings fail here."""
    start = {"init": trees["pcp"]} if name == "pcp" else {}
    model = zoo.PCP(num_topics=2, num_clusters=3) if name == "pcp" else zoo.PLSI(num_topics=2)
    tree = fit(model, FRAME, dtype="float32", max_iterations=200, tolerance=0, **start, **OPTIONS)
    for protocol in ("likelihood", "completion", "bound")[: 3 if name == "pcp" else 2]:
        found, expected = (
            float(heldout(fitted, COUNTS[:6], protocol=protocol)["mean"]) for fitted in (tree, trees[name])
        )
        assert found == pytest.approx(expected, rel=1e-2), protocol


def test_pcp_completion_by_hand(trees):
    tree = trees["pcp"]
    given, scored = (part.to_dense() for part in split_tokens(sparse(COUNTS[:6])))
    words, table = topics.topic_words(tree).to_numpy(), topics.cluster_topics(tree)
    concentration = tree["variational"].cluster_weights_concentration.values
    centres = table.drop(columns="weight").to_numpy()
    logits = given @ np.log(centres @ words).T + np.log(concentration / concentration.sum())
    probs = special.softmax(logits, axis=1) @ centres @ words
    exact = (scored * np.log(probs)).sum() / scored.sum()
    assert float(heldout(tree, COUNTS[:6], protocol="completion")["mean"]) == pytest.approx(exact, rel=1e-9)


def test_the_picture_has_a_row_for_each_cluster(trees):
    figure = plot_clusters(trees["pcp"], num_words=2)
    axes = figure.axes[0]
    assert len(axes.get_yticks()) == 3 and len(axes.get_xticks()) == 2
    assert any("ball" in label.get_text() for label in axes.get_xticklabels())
    with pytest.raises(ValueError, match="no cluster has an expected weight"):
        plot_clusters(trees["pcp"], least_weight=1.0)


def test_few_topics_and_documents_by_class_are_drawn(trees):
    figure = plot_clusters(trees["pcp"], num_words=2, num_topics=1)
    assert len(figure.axes[0].get_xticks()) == 1
    classes = np.repeat(["sport", "cars"], 10)
    axes = plot_document_clusters(trees["pcp"], classes, least_weight=0.05).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cars", "sport"]
    shown = axes.images[0].get_array()
    shares = topics.cluster_shares(trees["pcp"])
    np.testing.assert_allclose(shown[:10, 0], shares[0].to_numpy()[10:])
    with pytest.raises(ValueError, match="one entry for each of 20 documents"):
        plot_document_clusters(trees["pcp"], classes[:5])


def test_a_saved_fit_says_the_same_and_replicates_documents(trees, tmp_path):
    save(trees["pcp"], tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    pd.testing.assert_frame_equal(topics.top_words(again), topics.top_words(trees["pcp"]))
    replicated = extend(again, "posterior_predictive")["posterior_predictive"].counts
    assert replicated.dims == ("chain", "draw", "document", "word")
    np.testing.assert_array_equal(replicated.sum("word")[0, 0], COUNTS.sum(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lda", "plsi", "pcp"])
def test_a_report_shows_the_topics(name, tmp_path):
    models = {
        "lda": (zoo.LDA(num_topics=2), "vb"),
        "plsi": (zoo.PLSI(num_topics=2), "em"),
        "pcp": (zoo.PCP(num_topics=2, num_clusters=2), "vb"),
    }
    model, method = models[name]
    tree = fit(model, pd.DataFrame(COUNTS, columns=WORDS), method=method, num_samples=20)
    page = report(tree, tmp_path / "fit.html").read_text()
    assert "Topics by size" in page and WORDS[0] in page
    assert len(summary(tree))


def test_a_document_without_words_has_token_shares(trees):
    """Those of its topics, as `topic_shares` has: rows sum to one, where they were zero."""
    wider = pd.concat([FRAME, pd.DataFrame(0.0, columns=WORDS, index=["nothing"])])
    for tree in trees.values():
        with pytest.warns(UserWarning, match="1 of 21 documents have no words"):
            found = topics.token_shares(tree, wider)
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
        assert found.index[-1] == "nothing" and (found.loc["nothing"] > 0).all()


def test_documents_without_words_are_told_once_by_their_numbers_in_the_data():
    """Guards the second telling by the first screen of a fit, and that of each fold by the fold's numbers."""
    counts = FRAME.to_numpy().copy()
    counts[[3, 7]] = 0.0
    model = zoo.LDA(num_topics=2)
    with pytest.warns(UserWarning, match=r"rows 3, 7\): they keep the prior; leave them out"):
        tree = fit(model, counts, max_iterations=2, tolerance=0, progress=False)
    topics.token_shares(tree)  # warnings are errors here
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        cross_validate({2: model}, counts, folds=2, max_iterations=2, tolerance=0, progress=False)
    (told,) = (str(note.message) for note in notes if "no words" in str(note.message))
    assert "2 of 20 documents" in told


@pytest.mark.slow
def test_a_word_that_no_topic_gives_has_density_zero():
    """pLSI without smoothing, a word that was never used: once -472.8 nats a token, without a warning."""
    table = FRAME.assign(unused=0.0)
    tree = fit(zoo.PLSI(num_topics=2), table, max_iterations=5, tolerance=0, **OPTIONS)
    new = table.iloc[:3].copy()
    new.loc[new.index[1], "unused"] = 4.0
    named = r"1 of 3 documents have density zero \(rows d1\): the fit gives probability zero to unused"
    with pytest.warns(UserWarning, match=named):
        scores = log_density(tree, new).values
    assert np.isneginf(scores[1]) and np.isfinite(scores[[0, 2]]).all()
    for protocol in ("likelihood", "completion"):
        with pytest.warns(UserWarning, match=named):
            found = heldout(tree, new, protocol=protocol)
        assert float(found["perplexity"]) == np.inf and np.isnan(found["standard_error"])
        known = heldout(tree, new.iloc[[0, 2]], protocol=protocol)  # warnings fail
        assert np.isfinite(known["perplexity"])


def drawn_tree(model, counts, **draws):
    """A sampler's fit of a topic model: its draws in one chain, (draw, ...), and its documents, no other."""
    documents = sparse(counts)
    cells = {name: ("cell", np.asarray(getattr(documents, name))) for name in ("document", "word", "count")}
    attrs = dict(zip(("num_documents", "num_words"), counts.shape, strict=True))
    posterior = xr.Dataset(
        {name: (("chain", "draw", *dims), np.asarray(value)[None]) for name, (dims, value) in draws.items()}
    )
    posterior = posterior.assign_coords({dim: np.arange(size) for dim, size in posterior.sizes.items()})
    root = xr.Dataset(attrs={"model": model, "model_fields": "{}"})
    observed = xr.Dataset(cells, attrs=attrs)
    return xr.DataTree.from_dict({"/": root, "posterior": posterior, "observed_data": observed})


def test_shares_of_topics_in_all_words_weigh_a_document_by_its_length(monkeypatch):
    """Token by token, draw by draw: by shares of documents, of clusters, or by tables where draws have none.

    The documents are of 1, 9 and no words.
    """
    counts, rng = np.array([[1.0, 0, 0], [2, 3, 4], [0, 0, 0]]), np.random.default_rng(0)
    document, word = np.nonzero(counts)
    document, word = (np.repeat(own, counts[counts > 0].astype(int)) for own in (document, word))
    words, centres = rng.dirichlet(np.ones(3), (2, 2)), rng.dirichlet(np.ones(2), (2, 4))
    shares, labels = rng.dirichlet(np.ones(2), (2, 3)), np.array([[3, 0, 1], [2, 2, 0]])
    of_words = {"topic_word_probs": (("topic", "word"), words)}

    def by_hand(shares):
        given = shares[:, document] * np.stack([own.T[word] for own in words])
        return (given / given.sum(axis=2, keepdims=True)).mean(axis=1)

    lda = drawn_tree("lda", counts, doc_topic_probs=(("document", "topic"), shares), **of_words)
    np.testing.assert_allclose(tables.token_share_draws(lda), by_hand(shares), rtol=1e-12)
    clusters = {
        "cluster_topic_probs": (("cluster", "topic"), centres),
        "doc_clusters": (("document",), labels),
    }
    pcp = drawn_tree("pcp", counts, **clusters, **of_words)
    own = np.stack([centre[label] for centre, label in zip(centres, labels, strict=True)])
    np.testing.assert_allclose(tables.token_share_draws(pcp), by_hand(own), rtol=1e-12)
    monkeypatch.setattr(
        tables, "token_shares", lambda tree: pd.DataFrame([[0.2, 0.8], [0.7, 0.3], [0.5, 0.5]])
    )
    left_out = tables.token_share_draws(drawn_tree("lda", counts, **of_words))
    np.testing.assert_allclose(left_out, [[(0.2 + 9 * 0.7) / 10, (0.8 + 9 * 0.3) / 10]], rtol=1e-12)


def test_tables_of_a_sampler_are_of_draws_in_one_numbering():
    """Topics and clusters that change places from draw to draw: no table mixes them."""
    rng = np.random.default_rng(1)
    words, shares = rng.dirichlet(np.full(6, 0.3), 3), np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]])
    weights, clusters, counts = np.array([0.3, 0.7]), np.array([0, 1, 1]), COUNTS[:3]
    orders = [(rng.permutation(3), rng.permutation(2)) for _ in range(8)]
    tree = drawn_tree(
        "pcp",
        counts,
        topic_word_probs=(("topic", "word"), [words[t] for t, _ in orders]),
        cluster_topic_probs=(("cluster", "topic"), [shares[c][:, t] for t, c in orders]),
        cluster_weights=(("cluster",), [weights[c] for _, c in orders]),
        doc_clusters=(("document",), [np.argsort(c)[clusters] for _, c in orders]),
    )
    for name in ("topic_word_probs", "cluster_topic_probs"):
        assert np.ptp(tree["posterior"][name].values, axis=1).max() > 0.1
    found = topics.cluster_topics(tree)
    rows = {tuple(np.round(row, 9)) for row in topics.topic_words(tree).to_numpy()}
    assert rows == {tuple(np.round(row, 9)) for row in words}
    centres = found.drop(columns="weight").to_numpy() @ topics.topic_words(tree).to_numpy()
    first = int(np.argmin(found["weight"]))
    np.testing.assert_allclose(centres[[first, 1 - first]], shares @ words, rtol=1e-9)
    np.testing.assert_allclose(np.sort(found["weight"]), weights, rtol=1e-12)
    of_clusters = topics.cluster_shares(tree).to_numpy()
    np.testing.assert_array_equal(of_clusters[:, [first, 1 - first]], np.eye(2)[clusters])


def zeros_of_words(num_words, cells, scores):
    """Warnings of documents of density zero where one topic gives word a, one word b, and none the others.

    Cells are triples of document, word and count.
    """
    topic_word = np.zeros((1, 2, 2, num_words))
    topic_word[..., 0, 0] = topic_word[..., 1, 1] = 1.0
    posterior = xr.Dataset(
        {"topics": (("chain", "draw", "topic", "word"), topic_word)}, {"word": list("abcdefgh"[:num_words])}
    )
    document, word, count = np.array(cells).T
    counts = SimpleNamespace(document=document, word=word, count=count)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tree = xr.DataTree.from_dict({"posterior": posterior})
        warn_of_impossible(tree, SimpleNamespace(roles=Roles(topic="topics")), np.array(scores), counts)
    return [str(one.message) for one in told]


def test_only_words_that_no_topic_gives_are_named_and_only_of_documents_of_density_zero():
    """A word of one topic alone, one of a possible document, and one that is counted zero times are not."""
    cells = [(0, 0, 1), (0, 4, 2), (1, 0, 1), (1, 2, 1), (1, 5, 0), (3, 1, 2), (3, 2, 1), (3, 3, 1)]
    start = "2 of 4 documents have density zero (rows 1, 3): the fit gives probability zero to "
    found = zeros_of_words(6, cells, [-1.0, -np.inf, -2.0, -np.inf])
    remedy = "; fit by em with smoothing=0.1, tokens added to every word of every topic"
    assert found == [start + "c, d" + remedy]
    found = zeros_of_words(6, cells[:3], [-1.0, -np.inf])
    assert found == [
        "1 of 2 documents have density zero (rows 1): the fit gives probability zero to their words" + remedy
    ]
    assert zeros_of_words(6, cells, [-1.0, -5.0, -2.0, -3.0]) == []


@pytest.mark.filterwarnings("ignore:plsi by em has not converged")
def test_new_documents_of_density_zero_go_by_their_labels():
    table = pd.DataFrame([[4, 1, 0], [1, 5, 0], [3, 3, 0]], columns=list("abc"))
    tree = fit(zoo.PLSI(num_topics=2), table, max_iterations=5, **OPTIONS)
    new = pd.DataFrame([[1, 2, 0], [1, 0, 3]], columns=list("abc"), index=["first", "second"])
    for ask in (lambda: log_density(tree, new), lambda: heldout(tree, new, protocol="likelihood")):
        with pytest.warns(UserWarning, match=r"zero \(rows second\).* to c; fit by em with smoothing"):
            ask()


def test_a_score_that_is_fitted_to_the_document_scored_is_refused():
    table = pd.DataFrame([[4, 1, 1], [1, 5, 1], [3, 3, 2]], columns=list("abc"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = fit(zoo.PLSI(num_topics=2), table, max_iterations=5, **OPTIONS)
    with pytest.raises(ValueError, match="fits the topic shares of a new document to that document"):
        heldout(tree, table)
    assert np.isfinite(heldout(tree, table, protocol="completion")["mean"])


def test_five_words_and_five_documents_of_density_zero_are_named():
    cells = [(row, word, 1) for row in range(6) for word in range(8)]
    found = zeros_of_words(8, cells, [-np.inf] * 6)
    assert (
        len(found) == 1 and "(rows 0, 1, 2, 3, 4, ...)" in found[0] and "to c, d, e, f, g, ...;" in found[0]
    )
    found = zeros_of_words(7, cells[:7], [-np.inf])
    assert len(found) == 1 and "(rows 0)" in found[0] and "to c, d, e, f, g;" in found[0]


def hand_made(words, centres, shares, counts):
    """A point estimate of PCP with these topics, clusters, probabilities of clusters and documents."""
    document, word = np.nonzero(counts)
    held = {
        "topic_word_probs": (("topic", "word"), words),
        "cluster_topic_probs": (("cluster", "topic"), centres),
        "responsibilities": (("document", "cluster"), shares),
    }
    drawn = held | {"cluster_weights": (("cluster",), shares.mean(axis=0))}
    draws = xr.Dataset({name: drawn[name] for name in drawn if name != "responsibilities"})
    coords = {dim: np.arange(size) for dim, size in draws.sizes.items()}
    cells = {"document": document, "word": word, "count": counts[document, word].astype(float)}
    observed = xr.Dataset({name: ("nonzero", values) for name, values in cells.items()})
    observed.attrs = {"num_documents": counts.shape[0], "num_words": counts.shape[1]}
    names = {"document": [f"d{i}" for i in range(len(counts))]}
    groups = {
        "/": xr.Dataset(attrs={"model": "pcp", "model_fields": "{}"}),
        "posterior": draws.assign_coords(coords).expand_dims(chain=[0], draw=[0]),
        "variational": xr.Dataset(held, coords=coords | names),
        "observed_data": observed,
    }
    return xr.DataTree.from_dict(groups)


def test_divergence_of_documents_of_any_length_is_by_token():
    """Nearest first, whatever their lengths; an empty document, which has no frequencies, is left out."""
    words = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    centres, shares = np.array([[0.8, 0.2], [0.1, 0.9]]), np.array([[0.9, 0.1]] * 5)
    shares[2] = [0.2, 0.8]
    counts = np.array([[0, 0, 9], [50, 30, 20], [4, 4, 4], [0, 0, 0], [2, 1, 0]])
    tree = hand_made(words, centres, shares, counts)
    for cluster, members in ((0, ["d1", "d4", "d0"]), (1, ["d2"])):
        table = topics.nearest_documents(tree, cluster)
        assert list(table.index) == members
        for name, row in table.iterrows():
            own = int(name[1:])
            frequencies = counts[own] / counts[own].sum()
            exact = special.rel_entr(frequencies, centres[cluster] @ words).sum()
            assert row["divergence"] == pytest.approx(exact, rel=1e-12)
            assert row["share"] == shares[own, cluster]
    assert list(topics.nearest_documents(tree, 0, 1).index) == ["d1"]


def test_topics_in_a_cycle_take_the_numbers_of_a_reference():
    """A cycle of three, which is not its own inverse, and a fourth that answers nothing; shares follow."""
    rng = np.random.default_rng(1)
    words, centres = rng.dirichlet(np.full(6, 0.2), 4), rng.dirichlet(np.ones(4), 2)
    tree = hand_made(words, centres, np.full((3, 2), 0.5), np.ones((3, 6)))
    for order in ([2, 0, 1], [3, 1, 0], [1, 2, 3, 0], [0, 1, 2, 3]):
        again = topics.numbered_like(tree, words[order])
        new = [*order, *sorted(set(range(4)) - set(order))]
        np.testing.assert_array_equal(topics.topic_words(again), words[new])
        found = topics.cluster_topics(again).drop(columns="weight")
        np.testing.assert_array_equal(found, centres[:, new])
        np.testing.assert_array_equal(again["posterior"]["topic_word_probs"][0, 0], words[new])
        assert list(found.columns) == [0, 1, 2, 3]
    more = topics.numbered_like(tree, np.vstack([np.full((1, 6), 1 / 6), words[[2, 0, 3, 1]]]))
    np.testing.assert_array_equal(topics.topic_words(more), words[[2, 0, 3, 1]])
