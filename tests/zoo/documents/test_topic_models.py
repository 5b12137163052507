"""The programs of LDA, pLSI and PCP: densities by hand and by enumeration, limits, bad input."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro import handlers
from scipy import sparse as scipy_sparse
from scipy import stats
from scipy.special import digamma, gammaln, logsumexp

import zoo
from inference.inputs.tables import as_arrays
from inference.inputs.text import WordCounts, matching_words, read_documents, to_vocabulary
from inference.methods.lda import vb
from inference.numerics.weighted_rows import in_own_shapes
from inference.precision import in_precision
from tests.support.log_joint import log_joint
from tests.support.text_cases import COUNTS, WORDS, small_models, sparse
from zoo.answers import answer_of
from zoo.documents import topic_model
from zoo.documents.bags import as_counts, log_coefficients
from zoo.documents.shares import LogIntegrals, fold_in, likely_shares, log_integrals

TINY = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])


def draw(program, seed=0, rows=2):
    """Latent values and data of one run of a program without data."""
    with in_precision():
        sites = handlers.trace(handlers.seed(program, seed)).get_trace(num_observations=rows).items()
    return {name: np.asarray(site["value"]) for name, site in sites if site["type"] == "sample"}


def joint(program, counts, values):
    with in_precision():
        return float(log_joint(program, values, counts))


def tiny(kind, **fields):
    sizes = {"num_words": 3, "num_tokens": (3, 3), "num_topics": 2}
    return {"lda": zoo.LDA, "pcp": zoo.PCP}[kind](**(sizes | fields))


def without(values, *names):
    return {name: value for name, value in values.items() if name not in names}


def test_lda_is_dirichlets_and_multinomials():
    model = tiny("lda", topic_prior=[0.3, 0.8], word_smoothing=0.5)
    values = without(draw(model), "counts")
    expected = sum(stats.dirichlet.logpdf(topic, [0.5] * 3) for topic in values["topic_word_probs"])
    for row, shares in zip(TINY, values["doc_topic_probs"], strict=True):
        expected += stats.dirichlet.logpdf(shares, [0.3, 0.8])
        expected += stats.multinomial.logpmf(row, 3, shares @ values["topic_word_probs"])
    for counts in (TINY, sparse(TINY)):
        np.testing.assert_allclose(joint(model, counts, values), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["lda", "pcp"])
def test_the_topics_of_words_sum_out(kind):
    """All ways to share the tokens of every cell out over two topics, and all clusters: 36 x 4 terms."""
    model = tiny(kind, **({"num_clusters": 2, "concentration": 1.3} if kind == "pcp" else {}))
    values = without(draw(model), "counts", "doc_clusters")
    cells = [range(int(count) + 1) for count in TINY.ravel()]
    clusters = itertools.product(range(2), repeat=2) if kind == "pcp" else [None]
    terms = []
    for chosen in clusters:
        own = {} if chosen is None else {"doc_clusters": np.array(chosen)}
        for first in itertools.product(*cells):
            one = np.array(first, float).reshape(2, 3)
            topics = np.stack([one, TINY - one], axis=1)
            terms.append(joint_by_hand(kind, values | own, topics))
    np.testing.assert_allclose(joint(model, sparse(TINY), values), np.logaddexp.reduce(terms), rtol=1e-12)
    explicit = values | ({"doc_clusters": np.array([0, 1])} if kind == "pcp" else {})
    topics = np.stack([TINY, 0 * TINY], axis=1)
    found = joint(model.explicit, TINY, explicit | {"word_topics": topics})
    np.testing.assert_allclose(found, joint_by_hand(kind, explicit, topics), rtol=1e-12)
    impossible = joint(model.explicit, TINY, explicit | {"word_topics": topics[::-1]})
    assert impossible == -np.inf


def joint_by_hand(kind, values, topics):
    """Log joint of the explicit program with eps = 0.1 and lambda = 1/2, by SciPy's densities."""
    total = sum(stats.dirichlet.logpdf(topic, [0.1] * 3) for topic in values["topic_word_probs"])
    if kind == "pcp":
        weights, centres = values["cluster_weights"], values["cluster_topic_probs"]
        total += stats.dirichlet.logpdf(weights, [0.65, 0.65]) + np.log(weights[values["doc_clusters"]]).sum()
        total += sum(stats.dirichlet.logpdf(centre, [0.5, 0.5]) for centre in centres)
        shares = centres[values["doc_clusters"]]
    else:
        shares = values["doc_topic_probs"]
        total += sum(stats.dirichlet.logpdf(share, [0.5, 0.5]) for share in shares)
    for row, share in zip(topics, shares, strict=True):
        probs = (share[:, None] * values["topic_word_probs"]).ravel()
        total += stats.multinomial.logpmf(row.ravel(), 3, probs)
    return total


def test_one_cluster_for_each_document_is_lda_and_one_cluster_a_multinomial():
    """PCP whose clusters are certain has LDA's document density; with one cluster all share one centre."""
    lda, pcp = tiny("lda"), tiny("pcp", num_clusters=2)
    values = draw(lda)
    weights = np.array([1.0 - 1e-300, 1e-300])
    own = {"cluster_weights": weights, "cluster_topic_probs": values["doc_topic_probs"]}
    with in_precision():
        documents = np.asarray(lda.log_likelihood(jax.tree.map(jnp.asarray, values), sparse(TINY)))
        clusters = pcp.log_likelihood(
            jax.tree.map(jnp.asarray, own | {"topic_word_probs": values["topic_word_probs"]}), sparse(TINY)
        )
    centre = values["doc_topic_probs"][0] @ values["topic_word_probs"]
    np.testing.assert_allclose(clusters[0], documents[0], rtol=1e-10)
    np.testing.assert_allclose(clusters, stats.multinomial.logpmf(TINY, 3, centre), rtol=1e-10)


@pytest.mark.parametrize("sticks", [False, True])
def test_a_new_document_s_part_of_the_bound_of_pcp_is_its_formula(sticks):
    """Log of the sum over clusters of exp(E log weight + counts times logs of the mixed words), by NumPy."""
    rng = np.random.default_rng(3)
    model = tiny("pcp", num_clusters=3, weight_prior="stick_breaking" if sticks else "dirichlet")

    def expected_log(a):
        return digamma(a) - digamma(a.sum(axis=-1, keepdims=True))

    stored = {
        "topic_word_concentration": rng.gamma(2.0, size=(2, 3)),
        "cluster_topic_concentration": rng.gamma(2.0, size=(3, 2)),
    }
    if sticks:
        a, b = stored["stick_fractions_concentration1"], stored["stick_fractions_concentration0"] = rng.gamma(
            2.0, size=(2, 2)
        )
        log_v, log_rest = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        log_weights = np.append(log_v, 0.0) + np.append(0.0, np.cumsum(log_rest))
    else:
        stored["cluster_weights_concentration"] = rng.gamma(2.0, size=3)
        log_weights = expected_log(stored["cluster_weights_concentration"])
    words = np.exp(expected_log(stored["cluster_topic_concentration"])) @ np.exp(
        expected_log(stored["topic_word_concentration"])
    )
    expected = logsumexp(TINY @ np.log(words).T + log_weights, axis=1)
    with in_precision():
        found = answer_of(model, "document_bounds", jax.tree.map(jnp.asarray, stored), sparse(TINY))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9)


def test_a_new_document_s_part_of_the_bound_of_lda_and_its_shares_by_mean_field():
    """Coordinate ascent in NumPy: the bound's terms with q of the topics held, the shares with the topics."""
    prior, model = np.array([0.4, 0.9]), tiny("lda", topic_prior=(0.4, 0.9))
    q = np.array([[2.0, 0.5, 1.0], [0.3, 1.5, 2.5]])

    def expected_log(a):
        return digamma(a) - digamma(a.sum(axis=-1, keepdims=True))

    def settled(row, by_topic):
        gamma = prior + row.sum() / 2
        for _ in range(3000):
            phi = np.exp(expected_log(gamma))[:, None] * by_topic
            gamma = prior + (phi / phi.sum(axis=0)) @ row
        return gamma

    bounds, shares = [], []
    probs = q / q.sum(axis=1, keepdims=True)
    for row in TINY:
        gamma, by_topic = settled(row, np.exp(expected_log(q))), np.exp(expected_log(q))
        words = row @ np.log((np.exp(expected_log(gamma))[:, None] * by_topic).sum(axis=0))
        divergence = gammaln(gamma.sum()) - gammaln(gamma).sum() - gammaln(prior.sum()) + gammaln(prior).sum()
        bounds.append(words - divergence - (gamma - prior) @ expected_log(gamma))
        gamma = settled(row, probs)
        shares.append(gamma / gamma.sum())
    with in_precision():
        counts = sparse(TINY)
        found = answer_of(model, "document_bounds", {"topic_word_concentration": jnp.asarray(q)}, counts)
        np.testing.assert_allclose(np.asarray(found), bounds, rtol=1e-6)
        found = model.scores({"topic_word_probs": jnp.asarray(probs)}, counts)
        np.testing.assert_allclose(np.asarray(found), shares, rtol=1e-4)


def test_a_document_with_a_word_that_no_topic_gives_is_impossible_to_plsi():
    topics = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    model = zoo.PLSI(num_topics=2, num_words=3)
    with in_precision():
        found = model.log_likelihood({"topic_word_probs": jnp.asarray(topics)}, sparse(TINY))
    assert np.isfinite(found[0]) and np.isneginf(found[1])


def test_clusters_of_documents_are_drawn_by_their_weights_and_of_observed_ones_by_their_words_too(
    monkeypatch,
):
    """The probabilities that draws are asked for, word by word; a document without words has the weights."""
    asked = []

    def last_of(probs, rng):
        asked.append(probs)
        return np.full(len(probs), len(asked))

    monkeypatch.setattr(topic_model, "_one_of", last_of)
    rng = np.random.default_rng(0)
    counts, weights = np.vstack([TINY, np.zeros(3)]), np.array([0.6, 0.1, 0.3])
    centres, topics = rng.dirichlet([1.0, 1.0], 3), rng.dirichlet([1.0] * 3, 2)
    values = {"cluster_weights": weights, "cluster_topic_probs": centres, "topic_word_probs": topics}
    model = zoo.PCP(num_topics=2, num_clusters=3)
    fresh, fitted = model.document_shares(values, scipy_sparse.csr_matrix(counts), rng)
    given = weights * np.prod((centres @ topics) ** counts[:, None], axis=-1)
    prior, posterior = asked
    np.testing.assert_allclose(prior, np.tile(weights, (3, 1)), rtol=1e-12)
    np.testing.assert_allclose(posterior, given / given.sum(axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_array_equal(fresh, centres[[1, 1, 1]])
    np.testing.assert_array_equal(fitted, centres[[2, 2, 2]])


@pytest.mark.slow
def test_draws_have_the_lengths_that_were_asked_for():
    for model in small_models():
        values = draw(model, rows=len(COUNTS))
        np.testing.assert_array_equal(values["counts"].sum(1), COUNTS.sum(1))
        explicit = draw(model.explicit, rows=len(COUNTS))
        np.testing.assert_array_equal(explicit["word_topics"].sum(1), explicit["counts"])
    with pytest.raises(ValueError, match="num_tokens is of 20 documents; 3 are to be drawn"):
        draw(small_models()[0], rows=3)
    with pytest.raises(
        ValueError, match="the prior of PLSI is improper and draws nothing: give counts to condition on"
    ):
        zoo.PLSI.from_data(COUNTS)(num_observations=3)
    with pytest.raises(ValueError, match="num_words is not set"):
        zoo.LDA()(num_observations=3)


def test_stick_breaking_clusters_have_the_weights_of_their_sticks():
    model = tiny("pcp", num_clusters=3, weight_prior="stick_breaking", concentration=2.0)
    values = without(draw(model), "counts", "doc_clusters")
    fractions = -np.expm1(-np.asarray(values["stick_decays"]))
    weights = np.r_[fractions, 1] * np.r_[1, np.cumprod(1 - fractions)]
    finite = without(values, "stick_decays") | {"cluster_weights": weights}
    with in_precision():
        by_sticks, by_weights = (
            np.asarray(model.log_likelihood(jax.tree.map(jnp.asarray, given), sparse(TINY)))
            for given in (values, finite)
        )
    np.testing.assert_allclose(by_sticks, by_weights, rtol=1e-10)
    expected = stats.expon(scale=1 / 2).logpdf(values["stick_decays"]).sum() + by_sticks.sum()
    expected += sum(stats.dirichlet.logpdf(topic, [0.1] * 3) for topic in values["topic_word_probs"])
    expected += sum(stats.dirichlet.logpdf(centre, [0.5] * 2) for centre in values["cluster_topic_probs"])
    np.testing.assert_allclose(joint(model, TINY, values), expected, rtol=1e-12)


def test_integrals_over_topic_shares_match_quadrature():
    """Two topics: the integral over one share by Gauss-Jacobi nodes; importance sampling to 3 per cent."""
    topics, prior = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), np.array([0.6, 0.9])
    nodes = stats.beta(0.6, 0.9).ppf((np.arange(20_000) + 0.5) / 20_000)
    shares = np.stack([nodes, 1 - nodes], axis=1)
    exact = np.log(np.mean(np.exp(TINY @ np.log(shares @ topics).T), axis=1))
    with in_precision():
        parts = sparse(TINY), jnp.asarray(topics.T), jnp.asarray(prior)
        found = np.asarray(log_integrals(jax.random.key(1), *parts, num_draws=20_000).value)
        gamma, likely = np.asarray(fold_in(*parts)), np.asarray(likely_shares(*parts[:2], steps=2000))
    np.testing.assert_allclose(found, exact, atol=0.03)
    assert (gamma.sum(1) == pytest.approx(1.5 + 3)) and gamma[0, 0] > gamma[0, 1]
    best = [shares[np.argmax(row @ np.log(shares @ topics).T)] for row in TINY]
    np.testing.assert_allclose(likely, best, atol=2e-3)


def _log_rising(start, length):
    return (gammaln(start + length) - gammaln(start)).sum()


def _enumerated_under_q(counts, words, prior):
    """As `_enumerated`, expected under independent Dirichlets of the topics (``words``, a row each)."""
    found = []
    for row in counts.astype(int):
        tokens, total = np.repeat(np.arange(len(row)), row), 0.0
        for assigned in itertools.product(range(len(words)), repeat=len(tokens)):
            own = np.zeros(words.shape)
            np.add.at(own, (list(assigned), tokens), 1)
            log_shares = _log_rising(prior, own.sum(1)) - _log_rising(prior.sum(), len(tokens))
            total += np.exp(log_shares + _log_rising(words, own) - _log_rising(words.sum(1), own.sum(1)))
        found.append(np.log(total))
    return np.array(found)


def _enumerated(counts, topics, prior):
    """Log probabilities of the tokens of documents: the sum over all topics of all tokens."""
    found = []
    for row in counts:
        words, total = np.repeat(np.arange(len(row)), row.astype(int)), 0.0
        for assigned in itertools.product(range(len(topics)), repeat=len(words)):
            sizes = np.bincount(assigned, minlength=len(topics))
            rising = gammaln(prior + sizes) - gammaln(prior)
            log_prior = rising.sum() + gammaln(prior.sum()) - gammaln(prior.sum() + len(words))
            total += np.exp(log_prior + np.log(topics[list(assigned), words]).sum())
        found.append(np.log(total))
    return np.array(found)


@pytest.mark.slow
def test_importance_sampling_is_unbiased_and_knows_its_error():
    """300 runs of 100 draws for five documents of up to six tokens, against the sum over all their topics.

    The prior, 0.2, is less than half of most fitted parameters, where weights against `fold_in` alone have
    infinite variance. The mean of the runs differs from the truth by more than 4.5 standard errors in one of
    30 000 cases for all five. Draws of fixed shares from prior and q vary less than the error says, which is
    of draws from the mixture: the mean squared error in standard errors (its standard deviation is 0.08 of it
    where errors are normal) is below 1.5. The planted fault, another prior, fails.
    """
    topics, prior = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.3, 0.4, 0.3]]), np.full(3, 0.2)
    counts = np.array([[6.0, 0, 0], [2, 2, 2], [0, 1, 3], [1, 0, 0], [3, 0, 3]])
    with in_precision():
        parts = sparse(counts), jnp.asarray(topics.T), jnp.asarray(prior)
        once = jax.jit(jax.vmap(lambda key: log_integrals(key, *parts, num_draws=100)))
        found = jax.tree.map(np.asarray, once(jax.random.split(jax.random.key(0), 300)))

    def passes(exact):
        ratio = np.exp(found.value - exact)
        away = np.abs(ratio.mean(0) - 1) / (ratio.std(0, ddof=1) / np.sqrt(300))
        squared = np.mean(((found.value - exact) / found.standard_error) ** 2, axis=0)
        return away.max() < 4.5 and squared.max() < 1.5

    assert passes(_enumerated(counts, topics, prior))
    assert not passes(_enumerated(counts, topics, 1.5 * prior))


@pytest.mark.slow
def test_documents_score_the_same_in_any_company():
    """Other order, a document without words, a word that nobody uses: shares and densities to rounding."""
    topics, prior = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), np.array([0.2, 0.3])
    counts = np.random.default_rng(0).poisson(2.0, (6, 3))
    order = np.array([3, 0, 5, 1, 4, 2])
    wider = np.hstack([np.vstack([counts[order], np.zeros(3)]), np.zeros((7, 1))])
    with in_precision():
        scored = []
        for table, weights in ((counts, topics.T), (wider, np.vstack([topics.T, [[1e-3, 1e-3]]]))):
            parts = sparse(table), jnp.asarray(weights)
            integrals = log_integrals(jax.random.key(0), *parts, jnp.asarray(prior))
            scored.append((fold_in(*parts, jnp.asarray(prior)), likely_shares(*parts), integrals.value))
    for here, there in zip(*scored, strict=True):
        np.testing.assert_allclose(np.asarray(there)[:6], np.asarray(here)[order], rtol=1e-9)
    assert float(scored[1][2][6]) == pytest.approx(0.0, abs=1e-9)  # no words: probability one, exactly


def test_new_documents_have_settled():
    """Topics that overlap: twice the passes change nothing to speak of; 50 and 100, as once, are too few.

    Folding in by EM lies less than 1e-6 nats a token below the maximum, by the gradient.
    """
    rng = np.random.default_rng(1)
    topics = 0.8 * rng.dirichlet(np.ones(30)) + 0.2 * rng.dirichlet(np.full(30, 0.3), 6)
    counts = rng.multinomial(40, rng.dirichlet(np.full(6, 0.3), 12) @ topics)
    with in_precision():
        parts, prior = (sparse(counts), jnp.asarray(topics.T)), jnp.full(6, 1 / 6)
        few, found, twice = (np.asarray(fold_in(*parts, prior, steps)) for steps in (50, 1000, 2000))
        early, likely = (np.asarray(likely_shares(*parts, steps)) for steps in (100, 5000))
    assert np.abs(twice - found).max() < 1e-9 < 0.05 < np.abs(found - few).max()

    def gap(shares):
        gradient = (counts / (shares @ topics)) @ topics.T / counts.sum(1, keepdims=True)
        return gradient.max(1).max() - 1

    assert gap(likely) < 2e-6 < 1e-4 < gap(early)


def test_topics_in_single_precision_meet_double_counts():
    """As when a fit in float32 is scored: the scan's sums are double, and nothing warns (warnings fail)."""
    counts, topics = sparse(TINY), np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    calls = (
        lambda matrix: counts.times(matrix.T),
        lambda matrix: counts.transposed_times(matrix[:, :2]),
        lambda matrix: likely_shares(counts, matrix.T, steps=5),
    )
    with in_precision():
        for call in calls:
            single, double = call(jnp.asarray(topics, jnp.float32)), call(jnp.asarray(topics))
            assert single.dtype == jnp.float64
            np.testing.assert_allclose(single, double, rtol=1e-5)


def test_rows_of_sparse_counts():
    counts = sparse(np.vstack([COUNTS[:3], np.zeros(6), COUNTS[3:5]]))
    np.testing.assert_array_equal(counts.rows([4, 3, 0]).to_dense(), counts.to_dense()[[4, 3, 0]])
    assert counts.without_empty().shape == (5, 6)
    with in_precision():
        np.testing.assert_allclose(log_coefficients(counts), log_coefficients(counts.to_dense()), atol=1e-12)


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        (-COUNTS, ValueError, "whole numbers of at least 0; row 0, column 0 is"),
        (COUNTS / 2 + 0.25, ValueError, "whole numbers"),
        (np.where(COUNTS > 2, np.nan, COUNTS), ValueError, "is nan"),
        (COUNTS[0], ValueError, r"shape \(num_documents, num_words\); got \(6,\)"),
        (np.broadcast_to(1.0, (60_000, 40_000)), ValueError, "60000 documents x 40000 words takes 19.2 GB"),
        (np.array([["a", "b"]]), TypeError, "counts must be numeric"),
    ],
)
def test_what_is_no_counts_is_refused(counts, error, message):
    with pytest.raises(error, match=message):
        as_counts(counts)


def test_documents_that_do_not_suit_are_refused():
    model = small_models()[0]
    with pytest.raises(ValueError, match="must have 6 words, as the model has; got 5"):
        model.check(sparse(COUNTS[:, :5]))
    with pytest.raises(ValueError, match="vocabulary of one word"):
        zoo.LDA(num_topics=2).check(sparse(COUNTS[:, :1] + 1))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: zoo.LDA(num_topics=0), ValueError, "num_topics must be at least 1; got 0"),
        (lambda: zoo.PCP(num_clusters=0), ValueError, "num_clusters must be at least 1; got 0"),
        (lambda: zoo.PLSI(num_topics=2.5), TypeError, "num_topics must be a whole number"),
        (lambda: zoo.LDA(topic_prior=[1.0, 2.0]), ValueError, "topic_prior must have shape"),
        (lambda: zoo.PCP(word_smoothing=0.0), ValueError, "word_smoothing must be a positive number"),
        (lambda: zoo.PCP(concentration=-1.0), ValueError, "concentration must be a positive number"),
        (lambda: zoo.PCP(weight_prior="even"), ValueError, "weight_prior must be one of dirichlet"),
        (lambda: zoo.LDA(num_tokens=(3, -1)), ValueError, "num_tokens must be whole numbers"),
    ],
)
def test_fields_outside_their_domain_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_documents_come_in_as_people_hold_them():
    import pandas as pd

    frame = pd.DataFrame(COUNTS.astype(int), columns=WORDS, index=[f"d{i}" for i in range(20)])
    (counts,), coords = read_documents(frame)
    assert coords["word"] == WORDS and coords["document"][3] == "d3"
    for other in (COUNTS, scipy_sparse.csr_matrix(COUNTS), scipy_sparse.coo_array(COUNTS), counts):
        np.testing.assert_array_equal(read_documents(other)[0][0].to_dense(), COUNTS)
    with pytest.raises(TypeError, match="takes counts alone; got 2 parts"):
        read_documents(COUNTS, COUNTS)


def test_words_that_a_fit_has_not_seen_are_dropped_and_counted():
    import pandas as pd

    new = pd.DataFrame([[1, 2, 3], [0, 1, 0]], columns=["road", "yacht", "ball"])
    counts, dropped = to_vocabulary(new, WORDS)
    assert dropped == 3
    np.testing.assert_array_equal(counts.to_dense(), [[3, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]])
    with pytest.raises(ValueError, match="3 tokens are of words that the fit has not seen: yacht"):
        to_vocabulary(new, WORDS, unseen="error")
    with pytest.warns(UserWarning, match="3 tokens of new documents"):
        matched = matching_words(new, np.array(WORDS))
    assert isinstance(matched, WordCounts) and matched.shape == (2, 6)
    assert matching_words(COUNTS, np.array(WORDS)) is COUNTS


@pytest.mark.needs_peer
def test_texts_are_counted_by_scikit_learn():
    texts = ["The team scored a goal, a goal!", "A road for the wheel"]
    (counts,), coords = read_documents(texts)
    assert counts.to_dense()[0, coords["word"].index("goal")] == 2
    counts, dropped = to_vocabulary(texts, WORDS)
    assert counts.to_dense()[0].tolist() == [0, 2, 1, 0, 0, 0] and dropped == 4


def test_empty_documents_are_named_with_advice_that_fits():
    """In terms of what the caller has: a DataFrame has no ``without_empty``."""
    table = np.vstack([COUNTS[0], np.zeros(6)])
    frame = pd.DataFrame(table, columns=WORDS, index=["full", "empty"])
    cases = [
        (table, r"rows 1\).*leave them out, counts\[counts.sum\(axis=1\) > 0\]"),
        (frame, r"rows empty\).*leave them out, counts\[counts.sum\(axis=1\) > 0\]"),
        (scipy_sparse.csr_matrix(table), r"rows 1\).*counts.tocsr\(\)\[np.flatnonzero"),
        (sparse(table), r"rows 1\).*counts.without_empty\(\)"),
        (table.tolist(), r"rows 1\).*leave them out"),
    ]
    for given, message in cases:
        with pytest.warns(UserWarning, match=message):
            as_arrays(zoo.LDA(num_topics=2), (given,))
    counts = scipy_sparse.csr_matrix(table)
    assert counts.tocsr()[np.flatnonzero(counts.sum(axis=1))].shape == (1, 6)  # the advice works
    assert frame[frame.sum(axis=1) > 0].shape == (1, 6)


def test_probabilities_of_all_new_documents_of_a_length_sum_to_one(monkeypatch):
    """LDA at values and under q, with the exact sum over topics in the place of sampling at values.

    With multinomial coefficients, that is: ten documents stand for 27 sequences of three words. Under q the
    spread of topics is of second order: at totals of 7 and 2 the sum is .992, and the largest error .19 nats,
    where the density at the means is 1.16 off; a hundred times as sure, .99988 and .006.
    """

    def exact(key, documents, by_word, prior, **of_vb):
        found = _enumerated(documents.to_dense(), np.asarray(by_word).T, np.asarray(prior))
        return LogIntegrals(jnp.asarray(found), jnp.zeros(len(found)))

    monkeypatch.setattr("zoo.documents.answers.log_integrals", exact)
    monkeypatch.setattr(vb, "log_integrals", exact)
    words = itertools.combinations_with_replacement(range(3), 3)
    counts = np.stack([np.bincount(own, minlength=3) for own in words]).astype(float)
    topics, prior = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]), np.array([0.4, 0.9])
    model, documents = tiny("lda", topic_prior=prior), sparse(counts)
    concentrations = {sure: sure * topics * [[7.0], [2.0]] for sure in (1.0, 100.0)}
    with in_precision(), in_own_shapes():
        at_values = np.asarray(model.log_likelihood({"topic_word_probs": jnp.asarray(topics)}, documents))
        under_q = {
            sure: np.asarray(
                vb.log_density(*vb.for_new({"topic_word_concentration": words}, model), documents)
            )
            for sure, words in concentrations.items()
        }
    sequences = np.exp(_enumerated(counts, topics, prior))
    orders = np.array([math.factorial(3) / math.prod(math.factorial(int(n)) for n in row) for row in counts])
    np.testing.assert_allclose(np.exp(at_values), orders * sequences, rtol=1e-6)
    np.testing.assert_allclose(np.exp(at_values).sum(), 1.0, rtol=1e-9)
    for sure, words in concentrations.items():
        exact_under_q = np.log(orders) + _enumerated_under_q(counts, words, prior)
        np.testing.assert_allclose(np.exp(exact_under_q).sum(), 1.0, rtol=1e-9)
        np.testing.assert_allclose(np.exp(under_q[sure]).sum(), 1.0, atol=0.02 / sure)
        error = np.abs(under_q[sure] - exact_under_q).max()
        assert error < 1.0 / sure and error < 0.25 * np.abs(at_values - exact_under_q).max()


@pytest.mark.parametrize("kind", ["lda", "pcp", "sticks"])
def test_expected_values_are_the_means_of_their_factors(kind):
    """Dirichlets' and betas' by SciPy; a variable of q that is a value stays as it is."""
    rng = np.random.default_rng(0)
    model = tiny(
        "lda" if kind == "lda" else "pcp", **({"weight_prior": "stick_breaking"} if kind == "sticks" else {})
    )
    names = {"topic_word": (2, 3)} | ({"doc_topic": (2, 2)} if kind == "lda" else {"cluster_topic": (4, 2)})
    stored = {f"{name}_concentration": rng.gamma(2.0, size=size) for name, size in names.items()}
    wanted = {
        f"{name}_probs": [stats.dirichlet(row).mean() for row in stored[f"{name}_concentration"]]
        for name in names
    }
    if kind == "pcp":
        stored["cluster_weights_concentration"] = rng.gamma(2.0, size=4)
        wanted["cluster_weights"] = stats.dirichlet(stored["cluster_weights_concentration"]).mean()
    if kind == "sticks":
        a, b = rng.gamma(2.0, size=(2, 3))
        stored |= {"stick_fractions_concentration1": a, "stick_fractions_concentration0": b}
        wanted["stick_fractions"] = stats.beta(a, b).mean()
    with in_precision():
        found = model.expected(jax.tree.map(jnp.asarray, stored))
        kept = model.expected(dict(found))
    assert set(found) == set(kept) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)
        np.testing.assert_array_equal(kept[name], found[name])


@pytest.mark.parametrize("model", [zoo.LDA, zoo.PLSI, zoo.PCP])
def test_a_document_is_impossible_by_a_word_of_no_topic_and_not_by_one_that_a_topic_lacks(model):
    """The last word has no topic, the first and the second one each; no words are possible."""
    topics = np.array([[0.6, 0.0, 0.4, 0.0], [0.0, 0.3, 0.7, 0.0]])
    counts = np.array([[3.0, 1, 1, 0], [0, 2, 0, 0], [1, 1, 0, 1], [0, 0, 0, 5], [0, 0, 0, 0]])
    with in_precision():
        values = {"topic_word_probs": jnp.asarray(topics)}
        found = model(num_topics=2, num_words=4).impossible(values, sparse(counts))
    np.testing.assert_array_equal(found, [False, False, True, True, False])
