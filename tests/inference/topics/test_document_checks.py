"""Documents drawn from a fit against the documents: at the truth they agree, planted misfits show.

Fits are stood in for by trees whose draws are the parameters that drew the corpus, so that replications are
exact and p-values uniform but for their step of 1 / 200.
"""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import csr_matrix
from sklearn.metrics import mutual_info_score

import inference
import zoo
from inference.plots import plot_document_check
from inference.report.predictive import document_blocks
from inference.topics import document_checks
from inference.topics.document_checks import (
    STATISTICS,
    _compared,
    _Draw,
    _information,
    _mutual_information,
    _statistics,
    check_documents,
)
from tests.support.text_cases import COUNTS, small_models

NUM_WORDS, NUM_TOPICS, NUM_DOCUMENTS = 120, 3, 80


def corpus(burstiness=None, seed=0):
    """Counts, shares and topics; with burstiness each document has word probabilities of its own."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(NUM_WORDS, 0.1), NUM_TOPICS)
    shares = rng.dirichlet(np.full(NUM_TOPICS, 0.3), NUM_DOCUMENTS)
    probs = shares @ topics
    if burstiness is not None:
        probs = np.stack([rng.dirichlet(burstiness * row + 1e-9) for row in probs])
    return rng.multinomial(rng.integers(30, 90, NUM_DOCUMENTS), probs).astype(float), shares, topics


def plsi_tree(counts, shares, topics):
    """A fit of pLSI whose estimate is what is given."""
    model = zoo.PLSI(num_topics=len(topics))
    tree = inference.fit(model, counts, method="em", max_iterations=2, progress=False)
    given = {
        "doc_topic_probs": (("document", "topic"), shares),
        "topic_word_probs": (("topic", "word"), topics),
    }
    drawn = {name: (("chain", "draw", *dims), value[None, None]) for name, (dims, value) in given.items()}
    posterior, stored = (
        tree["posterior"].to_dataset().assign(drawn),
        tree["variational"].to_dataset().assign(given),
    )
    tree["posterior"], tree["variational"] = xr.DataTree(posterior), xr.DataTree(stored)
    return tree


@pytest.fixture(scope="module")
def checks():
    """The check of documents drawn from the truth, and of bursty ones."""
    with pytest.warns(UserWarning, match="has not converged"):
        return {
            name: check_documents(plsi_tree(*corpus(burstiness)), num_draws=200)
            for name, burstiness in (("true", None), ("bursty", 40.0))
        }


@pytest.mark.slow
def test_documents_of_the_model_look_like_the_model(checks):
    """Four statistics and three topics, each false alarm 2 % at most: 14 % in all, at a fixed seed."""
    check = checks["true"]
    assert list(check.table.index) == list(STATISTICS)
    assert check.table["p"].between(0.01, 0.99).all() and check.topics["p"].between(0.01, 0.99).all()
    inside = check.documents["distinct"].between(
        check.documents["replicated_lb"], check.documents["replicated_ub"]
    )
    assert inside.mean() > 0.8  # 0.9 and more, since counts are whole numbers; 80 documents, sd 0.03
    away = (check.words["documents"] - check.words["replicated"]) / check.words["sd"].clip(lower=0.5)
    assert away.abs().max() < 5


def test_bursty_documents_are_noticed(checks):
    """Counts of a word within a document depend on each other: statistics of words and all topics say so."""
    check = checks["bursty"]
    p = check.table["p"]
    assert p[STATISTICS[0]] == 1.0 and p[STATISTICS[2]] == 0.0 and p[STATISTICS[3]] == 0.0
    assert (check.topics["p"] < 0.01).all()
    assert (check.topics["observed"] > check.topics["replicated_ub"]).all()


@pytest.mark.slow
def test_a_topic_that_mixes_two_is_named_and_the_other_is_not():
    """Topics 0 and 1 made one, in the proportions in which they were used: its words depend on documents."""
    counts, shares, topics = corpus()
    weights = (counts.sum(1)[:, None] * shares).sum(0)
    merged = np.average(topics[:2], axis=0, weights=weights[:2])
    with pytest.warns(UserWarning, match="has not converged"):
        tree = plsi_tree(counts, np.c_[shares[:, :2].sum(1), shares[:, 2]], np.stack([merged, topics[2]]))
    check = check_documents(tree, num_draws=200)
    assert check.topics["p"].iloc[0] == 0.0 and check.topics["p"].iloc[1] > 0.01
    blocks = document_blocks(tree)
    assert blocks[0].good is False and "1 of 2 topics" in blocks[0].reason
    assert "raise num_topics" in blocks[0].advice


def test_what_is_drawn_is_in_the_picture_and_on_the_page(checks):
    check = checks["bursty"]
    left, right = plot_document_check(check).axes
    inside = check.documents["distinct"].between(
        check.documents["replicated_lb"], check.documents["replicated_ub"]
    )
    drawn = {line.get_label(): line.get_xydata() for line in left.lines}
    for name, chosen in (
        (f"inside its interval: {inside.sum()}", inside),
        (f"outside: {(~inside).sum()}", ~inside),
    ):
        expected = check.documents[chosen][["replicated", "distinct"]].to_numpy()
        np.testing.assert_allclose(drawn[name], expected)
    used = check.words[check.words[["documents", "replicated"]].max(axis=1) > 0]
    np.testing.assert_allclose(right.lines[0].get_xydata(), used[["replicated", "documents"]].to_numpy())
    named = [int(text.get_text()) for text in right.texts]
    assert 1 <= len(named) <= 6
    own = check.words.loc[named]
    assert (own["documents"] < own["replicated"] - 1.5).all()


def test_statistics_of_a_corpus_counted_by_hand():
    counts = csr_matrix([[2, 0, 1], [0, 4, 0]])
    distinct, spread, commonest, dispersion = _statistics(counts)
    assert distinct == 1.5 and spread == 0.5 and commonest == pytest.approx((2 / 3 + 1) / 2)
    means, variances = np.array([1, 2, 0.5]), np.array([1, 4, 0.25])
    assert dispersion == pytest.approx(np.average(variances / means, weights=means))


def test_information_of_words_and_documents_is_scikit_learns():
    """Token by token, of two topics; a third without tokens has none."""
    rng = np.random.default_rng(2)
    document, topic, word = rng.integers(0, 4, 30), rng.integers(0, 2, 30), rng.integers(0, 5, 30)
    cells, count = np.unique(np.stack([document, topic, word]), axis=1, return_counts=True)
    found = _mutual_information(*cells, count, (4, 3, 5))
    wanted = [mutual_info_score(document[topic == k], word[topic == k]) for k in (0, 1)]
    np.testing.assert_allclose(found, [*wanted, 0.0], rtol=1e-9, atol=1e-12)


def test_observed_words_have_the_topics_of_their_documents_not_of_new_ones():
    """Documents of one topic each, new ones of the other: scikit-learn's information of each topic's own."""
    counts = np.array([[3, 1, 0], [0, 2, 2], [1, 0, 4], [2, 2, 0]])
    own = np.array([0, 0, 1, 0])
    draw = _Draw(np.eye(2)[1 - own], np.eye(2)[own], np.full((2, 3), 1 / 3))
    observed, _ = _information(csr_matrix(counts), draw, np.random.default_rng(0))
    document, word = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    of_first = own[document] == 0
    wanted = mutual_info_score(document[of_first], word[of_first])
    np.testing.assert_allclose(observed, [wanted, 0.0], rtol=1e-9, atol=1e-12)  # one document is all of one


def test_replicated_documents_have_the_shares_of_new_ones(monkeypatch):
    """Each topic has one word: numbers of documents with it, and of its words in each document, are known."""
    counts, certain = csr_matrix([[3, 1, 0], [0, 2, 2], [1, 0, 4], [2, 2, 0]]), np.eye(3)[:2]
    draw = _Draw(np.eye(2)[[0, 1, 0, 0]], np.eye(2)[[1, 1, 1, 1]], certain)
    posterior = xr.Dataset(coords={"word": ["ball", "goal", "team"]})
    for name, given in {
        "documents_of": counts,
        "_draws": ([draw, draw], 2),
        "top_words": pd.DataFrame([["ball"], ["goal"]]),
        "draws_of": posterior,
    }.items():
        monkeypatch.setattr(document_checks, name, lambda *_, given=given: given)
    check = check_documents(None, num_draws=2)
    np.testing.assert_array_equal(check.words["replicated"], [3, 1, 0])
    np.testing.assert_array_equal(check.words["sd"], 0)
    np.testing.assert_array_equal(check.words["documents"], [3, 3, 2])
    np.testing.assert_array_equal(check.documents[["length", "distinct"]], [[4, 2], [4, 2], [5, 2], [4, 2]])
    np.testing.assert_array_equal(check.documents["replicated"], 1)
    means = np.array([13, 4]) / 4  # words of each kind a document; squares 57 and 16
    index = np.average(np.array([57, 16]) / 4 / means - means, weights=means)
    np.testing.assert_allclose(check.table["replicated_lb"], [1, 0, 1, index], rtol=1e-12)


def test_the_share_of_larger_replications_counts_ties_half():
    """Of four replications two are larger and one is equal, then none is larger and all are equal."""
    replicated = np.array([[3.0, 1.0], [5.0, 1.0], [2.0, 1.0], [1.0, 1.0]])
    table = _compared(np.array([2.0, 1.0]), replicated, [0.25, 0.75], ("one", "other"))
    np.testing.assert_allclose(table["p"], [0.625, 0.5])
    np.testing.assert_allclose(table["replicated_lb"], [1.75, 1.0])
    np.testing.assert_allclose(table["replicated_ub"], [3.5, 1.0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the learnt word_smoothing")
def test_replications_are_those_of_the_program():
    """PCP, whose clusters are drawn anew: mean counts of words and spread over documents, by the program.

    Six words and two moments: the largest of 12 standardised differences passes 4.5 once in 10 000 times. A
    sampler that draws the first word too often is told apart.
    """
    _, model = small_models()
    with pytest.warns(UserWarning, match="has not converged"):
        tree = inference.fit(
            model, COUNTS, method="vb", max_iterations=3, num_samples=200, progress=False, seed=1
        )
    drawn = inference.extend(tree, "posterior_predictive")["posterior_predictive"]["counts"].values[0]
    check = check_documents(tree, num_draws=200)
    assert check.num_draws == 200 and check.note == ""
    held = drawn > 0
    mean, spread = held.sum(1).mean(0), held.sum(1).std(0) * np.sqrt(2 / 200)
    assert np.abs((check.words["replicated"] - mean) / spread).max() < 4.5
    sds = held.sum(1).std(0)
    assert np.abs(check.words["sd"] / sds - 1).max() < 4.5 * np.sqrt(2 / 400) * 1.5
    turned = tree.copy()
    posterior = turned["posterior"].to_dataset()
    heavier = posterior["topic_word_probs"] * xr.DataArray([3.0, 1, 1, 1, 1, 1], dims="word")
    posterior["topic_word_probs"] = heavier / heavier.sum("word")
    turned["posterior"] = xr.DataTree(posterior)
    wrong = check_documents(turned, num_draws=200)
    assert np.abs((wrong.words["replicated"] - mean) / spread).max() > 10


def test_what_is_left_out_is_said_and_bad_calls_are_refused():
    with pytest.warns(UserWarning, match="has not converged"):
        tree = plsi_tree(*corpus())
    check = check_documents(tree, num_draws=5, num_documents=10)
    assert check.note == "Looked at: 10 of 80 documents, evenly spaced."
    assert len(check.documents) == 10 and check.num_draws == 5
    with pytest.raises(ValueError, match="num_draws must be at least 2; got 1"):
        check_documents(tree, num_draws=1)
    bare = tree.copy()
    bare["posterior"] = xr.DataTree(tree["posterior"].to_dataset().drop_vars("doc_topic_probs"))
    with pytest.raises(ValueError, match="takes 'doc_topic_probs', which this fit does not hold"):
        check_documents(bare)
    (said,) = document_blocks(bare)
    assert "No documents were drawn from the fit" in said.text


def test_documents_are_replicated_at_draws_in_one_numbering():
    """Topics that change places from draw to draw: all draws have the same, and shares that go with them.

    Of five documents two are looked at, of nine draws five, every second.
    """
    rng = np.random.default_rng(0)
    words, shares = rng.dirichlet(np.full(6, 0.3), 3), rng.dirichlet(np.ones(3), (9, 5))
    orders = [rng.permutation(3) for _ in range(9)]
    variables = {
        "topic_word_probs": (("chain", "draw", "topic", "word"), [[words[o] for o in orders]]),
        "doc_topic_probs": (
            ("chain", "draw", "document", "topic"),
            [[own[:, o] for own, o in zip(shares, orders, strict=True)]],
        ),
    }
    root = xr.Dataset(attrs={"model": "lda", "model_fields": "{}"})
    tree = xr.DataTree.from_dict({"/": root, "posterior": xr.Dataset(variables)})
    chosen = np.array([1, 4])
    draws, known = inference.topics.document_checks._draws(tree, chosen, csr_matrix(COUNTS[chosen]), 5, rng)
    draws = list(draws)
    assert known == 9 and len(draws) == 5
    order = orders[8]
    for draw, own in zip(draws, shares[::2], strict=True):
        np.testing.assert_allclose(draw.topics, words[order], rtol=1e-12)
        for found in (draw.fresh, draw.fitted):
            np.testing.assert_allclose(found, own[chosen][:, order], rtol=1e-12)
