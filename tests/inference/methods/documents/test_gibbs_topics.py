"""Gibbs samplers of LDA and PCP, blocked and collapsed: conditionals, invariance, planted bugs, agreement.

A Geweke test fails a correct sampler with probability 0.01 at most; the two-sided comparisons stand at 4
Monte Carlo standard errors (6e-5). Seeds are fixed.
"""

import inspect
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers
from scipy import stats
from scipy.special import gammaln

import zoo
from inference import fit, log_density, transform
from inference.algorithm import Algorithm
from inference.calibration import conditional_check, geweke
from inference.methods.documents import tokens as topic_tokens
from inference.methods.lda import collapsed_gibbs as collapsed_lda
from inference.methods.lda import gibbs as blocked_lda
from inference.methods.pcp import collapsed_gibbs as collapsed_pcp
from inference.methods.pcp import gibbs as blocked_pcp
from tests.support.text_cases import COUNTS, coefficient, sparse

TINY = {"num_words": 3, "num_tokens": (4, 3, 2), "num_topics": 2, "word_smoothing": 0.7}
LDA = zoo.LDA(**TINY, topic_prior=[0.5, 0.9])
PCP = zoo.PCP(**TINY, num_clusters=2, concentration=1.3)
STICKS = zoo.PCP(**TINY, num_clusters=3, weight_prior="stick_breaking")
SHORT_STICKS = zoo.PCP(**TINY, num_clusters=3, weight_prior="stick_breaking", concentration=0.02)


class Values(NamedTuple):
    """What `geweke` asks of a state."""

    values: dict


def program(model):
    """The program with clusters and topics of words summed out; `geweke` would take the explicit one."""
    return lambda *data, **sizes: handlers.block(model, hide=["doc_clusters"])(*data, **sizes)


def drawn(key, given):
    return {
        name: jnp.maximum(d.sample(jax.random.fold_in(key, i)), 1e-300)
        for i, (name, d) in enumerate(given.items())
    }


def blocked(module, model):
    """The blocked sampler as it is, for a plain program."""

    def init(key, _, counts):
        return module.init(key, model, counts)

    return Algorithm(init, lambda key, state, _, counts: module.step(key, state, model, counts))


def collapsed(model, scan=collapsed_lda.scan_tokens, documents=collapsed_pcp.scan_documents):
    """Topics of tokens (and clusters) given the parameters, a collapsed sweep, parameters given these."""
    is_lda = isinstance(model, zoo.LDA)
    module = blocked_lda if is_lda else blocked_pcp

    def init(key, _, counts):
        return Values(module.init(key, model, counts).values)

    def step(key, state, _, counts):
        keys = jax.random.split(key, 5)
        tokens, values = topic_tokens.tokens_of(counts, model), state.values
        if is_lda:
            shares, rows = values["doc_topic_probs"], tokens.document
        else:
            scores = model.log_joint_documents(values, counts)
            clusters = jax.random.categorical(keys[0], scores)
            shares, rows = values["cluster_topic_probs"], clusters[tokens.document]
        logits = jnp.log(shares)[rows] + jnp.log(values["topic_word_probs"]).T[tokens.word]
        topics = jax.random.categorical(keys[1], logits)
        by_row = collapsed_pcp.counts_by(rows, topics, shares.shape[0], 2)
        by_word = collapsed_pcp.counts_by(tokens.word, topics, 3, 2)
        prior = jnp.asarray(model.shares_concentration), jnp.asarray(model.word_smoothing)
        topics, by_row, by_word = scan(keys[2], topics, rows, tokens.word, by_row, by_word, *prior)
        if is_lda:
            given = blocked_lda.posteriors(by_row, by_word, model)
        else:
            clusters = documents(keys[3], topics, clusters, tokens, model)
            by_row = collapsed_pcp.counts_by(clusters[tokens.document], topics, model.num_clusters, 2)
            sizes = jnp.bincount(clusters, length=model.num_clusters)
            given = blocked_pcp.posteriors(sizes, by_row, by_word, model)
        return Values(drawn(keys[4], given)), None

    return Algorithm(init, step)


def with_bug(function, right, wrong):
    """The function with a piece of its source replaced."""
    source = inspect.getsource(function)
    assert right in source
    scope = dict(vars(inspect.getmodule(function)))
    exec(source.replace(right, wrong), scope)
    return scope[function.__name__]


def verdict_on(model, algorithm, num_draws=10_000):
    return geweke(program(model), algorithm, 3, key=jax.random.key(3), num_draws=num_draws, num_rounds=4)


def topics_and_shares(values, model, counts):
    """The block of LDA's sampler given every word's topic."""
    tokens = values["word_topics"]
    return blocked_lda.posteriors(tokens.sum(axis=2), tokens.sum(axis=0).T, model)


@pytest.mark.slow
@pytest.mark.parametrize("model", [LDA, PCP, STICKS], ids=["lda", "pcp", "sticks"])
def test_conditionals_are_those_of_the_program(model):
    """Every block against the explicit program's log joint, 1e-8; a wrong prior is found."""
    with jax.enable_x64(True):
        sites = handlers.trace(handlers.seed(model.explicit, 1)).get_trace(num_observations=3).items()
        values = {name: site["value"] for name, site in sites if site["type"] == "sample"}
        counts = values.pop("counts")
    if model is LDA:
        blocks, first = (topics_and_shares, blocked_lda.word_topics), topics_and_shares
    else:
        blocks, first = (blocked_pcp.parameters, blocked_pcp.clusters), blocked_pcp.parameters
    for block in blocks:
        verdict = conditional_check(model, block, values, (counts,), num_draws=3)
        assert verdict.passed, (block.__name__, verdict)

    def off_by_one(values, model, counts):
        return first(values, model.replaced(word_smoothing=model.word_smoothing + 1), counts)

    assert not conditional_check(model, off_by_one, values, (counts,), num_draws=3).passed


def log_joint_of(topics, tokens):
    state = collapsed_lda.state_of(topics, tokens, LDA)
    return collapsed_lda.log_joint(state.by_document, state.by_word, LDA)


def test_collapsed_joint_is_the_evidence_summed_over_topics():
    """LDA: of the 2^9 topics of nine tokens every 37th, by Dirichlets integrated by hand."""
    counts = np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]])
    with jax.enable_x64(True):
        tokens = topic_tokens.tokens_of(jnp.asarray(counts), LDA)
        every = jnp.asarray(np.array(np.meshgrid(*[[0, 1]] * 9)).reshape(9, -1).T)

        def one(topics):
            return log_joint_of(topics, tokens)

        found = np.asarray(jax.jit(jax.vmap(one))(every))
    document, word = np.asarray(tokens.document), np.asarray(tokens.word)
    exact = []
    for topics in np.asarray(every)[::37]:
        s, t = np.zeros((3, 2)), np.zeros((2, 3))
        np.add.at(s, (document, topics), 1)
        np.add.at(t, (topics, word), 1)
        value = sum(dirichlet_multinomial(row, np.array([0.5, 0.9])) for row in s)
        exact.append(value + sum(dirichlet_multinomial(row, np.full(3, 0.7)) for row in t))
    np.testing.assert_allclose(found[::37], exact, rtol=1e-12)


@pytest.mark.parametrize("model", [PCP, STICKS, SHORT_STICKS], ids=["pcp", "sticks", "short"])
def test_a_document_s_cluster_is_drawn_by_the_ratio_of_partitions(model):
    """Five documents and one more in each cluster in turn: differences of the log prior."""
    clusters, last = jnp.array([0, 1, 1, 0, 1]), model.num_clusters - 1
    with jax.enable_x64(True):
        sizes = jnp.bincount(clusters, length=model.num_clusters).astype(float)
        found = np.asarray(collapsed_pcp.log_weights(sizes, model))
        joint = [float(collapsed_pcp.log_partition(jnp.append(clusters, k), model)) for k in range(last + 1)]
    np.testing.assert_allclose(found - found[last], np.array(joint) - joint[last], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [PCP, STICKS], ids=["pcp", "sticks"])
def test_a_sweep_over_documents_draws_each_by_the_ratios_of_the_joint(model):
    """Twenty sweeps: each document to the cluster with the largest log joint plus its Gumbel noise."""
    counts, m, rng = (
        np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]]),
        model.num_clusters,
        np.random.default_rng(2),
    )
    topics, begun = rng.integers(0, 2, (20, 9)), rng.integers(0, m, (20, 3))
    keys = jax.random.split(jax.random.key(4), 20)
    with jax.enable_x64(True):
        tokens = topic_tokens.tokens_of(jnp.asarray(counts), model)
        scan = jax.jit(jax.vmap(partial(collapsed_pcp.scan_documents, tokens=tokens, model=model)))
        found = np.asarray(scan(keys, jnp.asarray(topics), jnp.asarray(begun)))
        noise = np.asarray(jax.vmap(lambda key: jax.random.gumbel(key, (3, m)))(keys))
        every = np.stack(np.meshgrid(*[np.arange(m)] * 3, indexing="ij"), -1)
        partition = jax.jit(jax.vmap(partial(collapsed_pcp.log_partition, model=model)))
        prior = np.asarray(partition(jnp.asarray(every.reshape(-1, 3)))).reshape([m] * 3)
    document, shares = np.asarray(tokens.document), np.asarray(model.shares_concentration, float)

    def log_joint(clusters, topics):
        by_cluster = np.zeros((m, 2))
        np.add.at(by_cluster, (clusters[document], topics), 1)
        return prior[tuple(clusters)] + sum(dirichlet_multinomial(row, shares) for row in by_cluster)

    wanted = begun.copy()
    for clusters, own_topics, own_noise in zip(wanted, topics, noise, strict=True):
        for d in range(3):
            others = [np.where(np.arange(3) == d, k, clusters) for k in range(m)]
            clusters[d] = np.argmax([log_joint(other, own_topics) for other in others] + own_noise[d])
    np.testing.assert_array_equal(found, wanted)
    assert (wanted != begun).sum() > 20


def parameters_of(model):
    """Some parameters of PCP with two topics of three words."""
    rng = np.random.default_rng(0)
    values = {
        "cluster_topic_probs": rng.dirichlet([1.0, 1.0], model.num_clusters),
        "topic_word_probs": rng.dirichlet([1.0] * 3, 2),
    }
    if model.weights.has_sticks:
        return values | {"stick_decays": np.array([0.3, 1.1])}
    return values | {"cluster_weights": np.array([0.25, 0.75])}


def log_prior_by_scipy(values, model):
    """Log density of PCP's parameters: weights or decays of sticks, clusters' topic shares, topics."""
    total = sum(stats.dirichlet([0.7] * 3).logpdf(row) for row in values["topic_word_probs"])
    shares = stats.dirichlet(np.asarray(model.shares_concentration))
    total += sum(shares.logpdf(row) for row in values["cluster_topic_probs"])
    if model.weights.has_sticks:
        return total + stats.expon(scale=1 / float(model.concentration)).logpdf(values["stick_decays"]).sum()
    return total + stats.dirichlet([1.3 / 2] * 2).logpdf(values["cluster_weights"])


@pytest.mark.parametrize("model", [PCP, STICKS], ids=["pcp", "sticks"])
def test_the_prior_of_blocked_parameters_is_that_of_scipy(model):
    """Weights, clusters' topic shares and topics; the decays of sticks are exponential."""
    values = parameters_of(model)
    with jax.enable_x64(True):
        found = blocked_pcp._log_prior({name: jnp.asarray(own) for name, own in values.items()}, model)
    wanted = log_prior_by_scipy(values, model)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)  # alpha and prior are given in single precision


@pytest.fixture
def without_chance(monkeypatch):
    """Counts of topics that are given, (2, 2) or (3, 2) by row and (3, 2) by word, and means for draws."""

    def draw_topics(key, tokens, shares, row_of, by_word):
        return jnp.asarray([[3.0, 1], [1, 2], [0, 2]])[: len(shares)], jnp.asarray([[1.0, 2], [3, 0], [0, 3]])

    for module in (blocked_lda, blocked_pcp):
        monkeypatch.setattr(module, "draw_topics", draw_topics)
        monkeypatch.setattr(module, "draw", lambda key, given: given.mean)


@pytest.mark.usefixtures("without_chance")
@pytest.mark.parametrize("model", [PCP, STICKS], ids=["pcp", "sticks"])
def test_a_sweep_of_pcp_tells_the_log_joint_of_the_parameters_that_it_began_with(model):
    """Documents by the mixture over clusters, word by word, and SciPy's log prior of the same parameters."""
    counts, values = np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]]), parameters_of(model)
    with jax.enable_x64(True):
        state = blocked_pcp.PCPGibbsState(jax.tree.map(jnp.asarray, values), jnp.zeros(3, int))
        step = jax.jit(partial(blocked_pcp.step, model=model, documents=jnp.asarray(counts)))
        after, info = step(jax.random.key(0), state)
    if model.weights.has_sticks:
        left = np.exp(-np.cumsum(values["stick_decays"]))  # of the stick after each break
        weights = -np.diff([1.0, *left, 0.0])
    else:
        weights = values["cluster_weights"]
    by_word = values["cluster_topic_probs"] @ values["topic_word_probs"]
    densities = np.log((weights * np.prod(by_word ** counts[:, None], axis=-1)).sum(axis=1))
    wanted = densities.sum() + coefficient(counts) + log_prior_by_scipy(values, model)
    np.testing.assert_allclose(info.objective, wanted, rtol=1e-6)
    given = np.array([[1, 3, 0], [2, 0, 3]]) + 0.7
    np.testing.assert_allclose(
        after.values["topic_word_probs"], given / given.sum(axis=1, keepdims=True), rtol=1e-6
    )
    given = np.asarray(model.shares_concentration) + [[3, 1], [1, 2], [0, 2]][: model.num_clusters]
    np.testing.assert_allclose(
        after.values["cluster_topic_probs"], given / given.sum(axis=1, keepdims=True), rtol=1e-6
    )


@pytest.mark.usefixtures("without_chance")
def test_a_sweep_of_lda_tells_the_log_joint_of_its_own_draws():
    """Topics of tokens and new parameters: SciPy's priors and the log of every token's two probabilities.

    But for the priors' constants.
    """
    counts = jnp.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]])
    with jax.enable_x64(True):
        begun = blocked_lda.init(jax.random.key(1), LDA, counts)
        after, info = jax.jit(partial(blocked_lda.step, model=LDA, counts=counts))(jax.random.key(0), begun)
    by_document, by_topic = np.array([[3, 1], [1, 2], [0, 2]]), np.array([[1, 3, 0], [2, 0, 3]])
    wanted = 0.0
    for name, number, prior in (
        ("topic_word_probs", by_topic, np.full(3, 0.7)),
        ("doc_topic_probs", by_document, np.array([0.5, 0.9])),
    ):
        probs = (number + prior) / (number + prior).sum(axis=1, keepdims=True)  # the mean of its posterior
        np.testing.assert_allclose(after.values[name], probs, rtol=1e-6)
        constant = gammaln(prior.sum()) - gammaln(prior).sum()
        wanted += (number * np.log(probs)).sum()
        wanted += sum(stats.dirichlet(prior).logpdf(row) - constant for row in probs)
    np.testing.assert_allclose([info.objective, after.log_joint], wanted, rtol=1e-6)


def test_each_token_has_one_topic_by_the_inverted_probabilities(monkeypatch):
    """Eleven tokens in blocks of four, against NumPy token by token; two documents share their row."""
    monkeypatch.setattr(topic_tokens, "BLOCK_TOKENS", 4)
    rng = np.random.default_rng(0)
    document, word = np.repeat([0, 1, 2], [5, 0, 6]), rng.integers(0, 4, 11)
    shares, by_word, row_of = (
        rng.dirichlet(np.ones(3), 2),
        rng.dirichlet(np.ones(4), 3).T,
        np.array([1, 0, 0]),
    )
    by_word[word[0], 0] = 0.0  # then the first topic has none of these
    with jax.enable_x64(True):
        tokens = topic_tokens.Tokens(jnp.asarray(document), jnp.asarray(word), (3, 4))
        arrays = (jnp.asarray(shares), jnp.asarray(row_of), jnp.asarray(by_word))
        found = topic_tokens.draw_topics(jax.random.key(2), tokens, *arrays)
        levels = np.asarray(jax.random.uniform(jax.random.key(2), (11,), float))
    wanted = np.zeros((2, 3)), np.zeros((4, 3))
    for own, w, level in zip(row_of[document], word, levels, strict=True):
        upto = np.cumsum(shares[own] * by_word[w])
        topic = np.searchsorted(upto, level * upto[-1], side="right")
        wanted[0][own, topic] += 1
        wanted[1][w, topic] += 1
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])
    assert (wanted[0].sum(axis=1) == [6, 5]).all()


def dirichlet_multinomial(counts, prior):
    total = gammaln(prior.sum()) - gammaln(prior.sum() + counts.sum())
    return total + (gammaln(prior + counts) - gammaln(prior)).sum()


@pytest.mark.parametrize("num_topics", [1, 3, 8, 11, 50, 517])
def test_a_topic_is_drawn_by_its_share_wherever_it_is(num_topics):
    """Against one cumulated sum, at 400 levels; some have no weight. Planted: columns before are left out."""
    rng = np.random.default_rng(num_topics)
    weights = rng.gamma(0.3, 1.0, num_topics) * (rng.random(num_topics) < 0.7)
    weights[rng.integers(num_topics)] += 0.5
    levels = np.linspace(0, 1, 400, endpoint=False) + 1e-5
    lanes = collapsed_lda._lanes(num_topics)
    padded = np.pad(weights, (0, -num_topics % lanes))
    order = np.arange(padded.size).reshape(-1, lanes).T.ravel()  # column by column
    upto = np.cumsum(padded[order])
    expected = order[np.searchsorted(upto, levels * upto[-1], side="right")]

    def drawn(function):
        with jax.enable_x64(True):
            return np.asarray(
                jax.vmap(lambda u: function(u, jnp.asarray(padded), num_topics))(jnp.asarray(levels))
            )

    np.testing.assert_array_equal(drawn(collapsed_lda._drawn), expected)
    if num_topics > lanes:
        wrong = with_bug(collapsed_lda._drawn, "before[lane] + _sums_before", "_sums_before")
        assert (drawn(wrong) != expected).any()


# One of the ten slowest: sweeps from the exact posterior by enumeration, the proof of the collapsed sampler.
def test_a_collapsed_sweep_leaves_the_exact_posterior_invariant():
    """LDA: topics drawn from all 512 exactly, then swept: each pair of tokens still agrees as often.

    20 000 draws; the largest of 36 differences at 4.5 standard errors of a difference: 2.5e-4 false alarms.
    Planted: a token that is not taken out of the counts, totals that do not keep up, the change by the token
    before that is never made, a prior off by one.
    """
    counts = np.array([[2.0, 1, 1], [0, 3, 0], [1, 0, 1]])
    bugs = {
        "right": collapsed_lda.scan_tokens,
        "not decremented": with_bug(
            collapsed_lda.scan_tokens,
            "at(by_row, row) - out, at(by_word, word) - out",
            "at(by_row, row), at(by_word, word)",
        ),
        "totals not kept": with_bug(
            collapsed_lda.scan_tokens,
            "changed(totals, new, 1)",
            "changed(totals, new, 2)",
        ),
        "last change not made": with_bug(
            collapsed_lda.scan_tokens, "jnp.where(number == last, of_last, inverse)", "inverse"
        ),
        "prior off by one": with_bug(collapsed_lda.scan_tokens, "(dtype) + prior", "(dtype) + prior + 1"),
    }
    with jax.enable_x64(True):
        tokens = topic_tokens.tokens_of(jnp.asarray(counts), LDA)
        every = jnp.asarray(np.array(np.meshgrid(*[[0, 1]] * 9)).reshape(9, -1).T)
        log_joint = jax.jit(jax.vmap(lambda z: log_joint_of(z, tokens)))(every)
        weights = np.asarray(jax.nn.softmax(log_joint))
        prior = jnp.asarray(LDA.topic_prior), jnp.asarray(LDA.word_smoothing)

        def swept(key, scan):
            draw_key, key = jax.random.split(key)
            topics = every[jax.random.categorical(draw_key, log_joint)]
            state = collapsed_lda.state_of(topics, tokens, LDA)
            rows = (tokens.document, tokens.word, state.by_document, state.by_word)
            return scan(key, topics, *rows, *prior)[0]

        i, j = np.triu_indices(9, 1)
        same = np.asarray(every)[:, i] == np.asarray(every)[:, j]
        exact = weights @ same
        for name, scan in bugs.items():
            keys = jax.random.split(jax.random.key(7), 20_000)
            topics = np.asarray(jax.jit(jax.vmap(partial(swept, scan=scan)))(keys))
            found = (topics[:, i] == topics[:, j]).mean(0)
            error = np.sqrt(exact * (1 - exact) / 20_000)
            assert (np.abs(found - exact).max() < 4.5 * error.max()) == (name == "right"), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "make"),
    [
        (LDA, partial(blocked, blocked_lda)),
        (LDA, collapsed),
        (PCP, partial(blocked, blocked_pcp)),
        (PCP, collapsed),
        (STICKS, partial(blocked, blocked_pcp)),
        (STICKS, collapsed),
        (SHORT_STICKS, partial(blocked, blocked_pcp)),
        (SHORT_STICKS, collapsed),
    ],
    ids=[
        "lda",
        "collapsed lda",
        "pcp",
        "collapsed pcp",
        "sticks",
        "collapsed sticks",
        "short",
        "collapsed short",
    ],
)
def test_joint_distribution_is_left_invariant(model, make):
    verdict = verdict_on(model, make(model))
    assert verdict.passed, verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (
            LDA,
            {
                "scan": (
                    "scan_tokens",
                    "at(by_row, row) - out, at(by_word, word) - out",
                    "at(by_row, row), at(by_word, word)",
                )
            },
        ),
        (LDA, {"scan": ("scan_tokens", "(dtype) + smoothing", "(dtype) + smoothing + 1")}),
        (PCP, {"scan": ("scan_tokens", "(dtype) + prior", "(dtype) + prior + 1")}),
        (PCP, {"documents": ("scan_documents", "score + log_weights(sizes, model)", "score")}),
        (STICKS, {"documents": ("scan_documents", "by_cluster + prior", "by_cluster + prior + 1")}),
    ],
    ids=["lda not decremented", "lda prior", "pcp prior", "pcp weights left out", "sticks prior"],
)
def test_planted_bugs_are_found(model, options):
    modules = {"scan": collapsed_lda, "documents": collapsed_pcp}
    bugs = {
        name: with_bug(getattr(modules[name], function), right, wrong)
        for name, (function, right, wrong) in options.items()
    }
    verdict = verdict_on(model, collapsed(model, **bugs))
    assert not verdict.passed, verdict


@pytest.fixture(scope="module")
def trees():
    """LDA with two topics by both samplers, the blocked one with more draws."""
    model = zoo.LDA.from_data(COUNTS, num_topics=2, word_smoothing=0.5)
    shared = {"num_chains": 2, "num_warmup": 300, "progress": False}
    return {
        "gibbs": fit(model, COUNTS, method="gibbs", num_samples=3000, **shared),
        "collapsed_gibbs": fit(model, COUNTS, method="collapsed_gibbs", num_samples=1500, **shared),
    }


@pytest.mark.slow
def test_samplers_agree_on_what_no_label_can_change(trees):
    """Mean log likelihood of the corpus, at 4 standard errors by ESS; shares of topics sum to one."""
    from arviz_stats.base import array_stats

    means, errors = [], []
    for tree in trees.values():
        rows = tree["log_likelihood"].log_likelihood.sum("document").values
        ess = float(array_stats.ess(rows, chain_axis=0, draw_axis=1, method="mean"))
        means.append(rows.mean())
        errors.append(rows.std() / np.sqrt(ess))
    assert abs(means[0] - means[1]) < 4 * np.hypot(*errors), (means, errors)


@pytest.mark.slow
def test_new_documents_from_draws(trees):
    """Topics are brought to one numbering before shares are averaged."""
    shares = transform(trees["collapsed_gibbs"], COUNTS[:4])
    np.testing.assert_allclose(shares.sum("topic"), 1, rtol=1e-9)
    kinds = COUNTS[:4, :3].sum(1) / COUNTS[:4].sum(1)
    assert abs(np.corrcoef(shares.values[:, 0], kinds)[0, 1]) > 0.9
    density = log_density(trees["collapsed_gibbs"], COUNTS[:4])
    assert density.dims == ("document",) and (density.values < 0).all()


def test_tokens_are_the_cells_of_the_counts():
    model = zoo.LDA.from_data(COUNTS, num_topics=2)
    (host,) = topic_tokens.prepare(model, (sparse(),), None)
    for counts in (sparse(), jnp.asarray(COUNTS)):
        tokens = topic_tokens.tokens_of(counts, model)
        rebuilt = np.zeros(COUNTS.shape)
        np.add.at(rebuilt, (np.asarray(tokens.document), np.asarray(tokens.word)), 1)
        np.testing.assert_array_equal(rebuilt, COUNTS)
        np.testing.assert_array_equal(host.document, tokens.document)
    with pytest.raises(ValueError, match="num_tokens is not set"):
        topic_tokens.tokens_of(jnp.asarray(COUNTS), zoo.LDA(num_topics=2))
    assert coefficient(COUNTS) > 0


@pytest.mark.parametrize("method", ["gibbs", "collapsed_gibbs"])
def test_starts_that_do_not_suit_are_refused(method):
    with pytest.raises(ValueError, match="topic_word_probs"):
        fit(zoo.LDA(num_topics=2), COUNTS, method=method, init={"weights": np.ones(2)}, progress=False)


def test_chains_start_from_distributions():
    """Topics and shares of the blocked sampler's start add up to one; topics of two chains differ."""
    model = zoo.LDA(num_topics=3, num_words=COUNTS.shape[1])
    one, other = (blocked_lda.init(jax.random.key(own), model, jnp.asarray(COUNTS)).values for own in (0, 1))
    for value in one.values():
        np.testing.assert_allclose(value.sum(axis=-1), 1.0, rtol=1e-6)
    assert (one["topic_word_probs"] != other["topic_word_probs"]).any()
