"""VB for PCP: its bound token by token, never falling, at or above mean field; limits; the collapse.

The bars of the model's acceptance are named in the tests. Statistical tests compare at 4 standard errors:
6e-5 false alarms each, on fixed seeds.
"""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, special

import zoo
from inference import fit, guide, log_density, model_of, transform
from inference.calibration import elbo_check
from inference.methods.pcp import mean_field, vb, vb_updates
from inference.methods.pcp import vb_starts as starts
from inference.methods.pcp.vb_posterior import (
    Annealing,
    PCPVBState,
    conclude,
    learnt_factors,
    prune,
    shrink,
    with_all_clusters,
)
from inference.numerics.documents import CACHED_NUMBERS, cut
from inference.topics.topic_tables import normalised_mutual_information
from tests.support.text_cases import COUNTS, WORDS, expected_log, pcp_bound, sparse
from zoo.datasets import load
from zoo.sparse import SparseCounts

pytestmark = pytest.mark.usefixtures("in_double")

LEARN = ("word_smoothing", "concentration", "topic_prior")


def corpus(counts=COUNTS):
    return jax.tree.map(jnp.asarray, cut(sparse(counts), CACHED_NUMBERS // 40))


def model_for(num_topics=3, num_clusters=4, **fields):
    return zoo.PCP.from_data(COUNTS, num_topics=num_topics, num_clusters=num_clusters, **fields)


def random_state(model, seed=0, num_documents=20):
    """Global factors that are nowhere near an optimum."""
    rng = np.random.default_rng(seed)
    k, m = model.num_topics, model.num_clusters
    return PCPVBState(
        dist.Dirichlet(jnp.asarray(rng.gamma(2.0, 2.0, m))),
        jnp.asarray(rng.gamma(2.0, 1.0, (m, k))),
        jnp.asarray(rng.gamma(2.0, 1.0, (k, 6))),
        jnp.asarray(model.concentration),
        jnp.broadcast_to(jnp.asarray(model.topic_prior), (k,)),
        jnp.asarray(model.word_smoothing),
        jnp.asarray(rng.dirichlet(np.ones(m), num_documents)),
    )


def climb(function, state, model, data, steps):
    """The state after some steps, and the objective of each."""
    state, trace = climbed(function, state, model, data, steps)
    return state, trace[:steps]


@partial(jax.jit, static_argnames="function")
def climbed(function, state, model, data, steps):
    """The same, one program for any number of steps."""

    def once(i, reached):
        state, info = function(None, reached[0], model, data)
        return state, reached[1].at[i].set(info.objective)

    return jax.lax.fori_loop(0, steps, once, (state, jnp.zeros(1200)))


STRUCTURED = partial(vb.step, learn=())
LEARNING = partial(vb.step, learn=LEARN)
MEAN_FIELD = partial(mean_field.step, learn=(), point=False)
LEARNING_MEAN_FIELD = partial(mean_field.step, learn=LEARN, point=False)


def numbers(state):
    parts = state.weights.concentration, state.clusters, state.words
    return tuple(np.asarray(part) for part in parts)


def by_hand(state, r, **options):
    priors = state.concentration, state.topic_prior, state.word_smoothing
    return pcp_bound(COUNTS, *numbers(state), np.asarray(r), *map(np.asarray, priors), **options)


def best_clusters(state):
    """The structured family's q(c), by NumPy."""
    weights, clusters, words = numbers(state)
    centres = np.exp(special.digamma(clusters) - special.digamma(clusters.sum(1, keepdims=True)))
    centres = centres @ np.exp(special.digamma(words) - special.digamma(words.sum(1, keepdims=True)))
    return special.softmax(COUNTS @ np.log(centres).T + special.digamma(weights), axis=1)


def test_random_topics_of_tokens_share_out_every_token():
    """By documents and by words the topics add up to the counts, half of the tokens each on average."""
    found = mean_field._random_topics(jax.random.key(0), cut(sparse(), CACHED_NUMBERS), 2)
    np.testing.assert_allclose(found.by_document.sum(axis=1), COUNTS.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.by_word.sum(axis=1), COUNTS.sum(axis=0), rtol=1e-9)
    assert (found.by_document > 0).all()


def test_the_bound_is_the_sum_over_tokens_and_at_least_mean_field():
    """Bar 2: 1e-10 against a brute-force sum, and the better of the two families at equal global factors."""
    model = model_for(concentration=1.7)
    state = random_state(model)
    r = best_clusters(state)
    structured = float(vb.bound(state, model, corpus()))
    np.testing.assert_allclose(structured, by_hand(state, r), rtol=1e-10)
    for other in (r, state.responsibilities):
        factorised = by_hand(state, other, structured=False)
        assert factorised <= by_hand(state, other) + 1e-9 and factorised < structured
    certain = np.eye(4)[r.argmax(1)]  # equal where clusters are certain
    np.testing.assert_allclose(by_hand(state, certain), by_hand(state, certain, structured=False), rtol=1e-12)


@pytest.mark.parametrize(("step", "structured"), [(STRUCTURED, True), (MEAN_FIELD, False)])
def test_a_step_reports_the_bound_that_it_reaches(step, structured):
    """At a fixed point the factors belong together: the reported bound is the brute-force one there."""
    model = model_for(concentration=1.7)
    state, trace = climb(step, random_state(model), model, corpus(), 1200)
    r = best_clusters(state) if structured else state.responsibilities
    np.testing.assert_allclose(trace[-1], by_hand(state, r, structured=structured), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "slack"),
    [(STRUCTURED, 1e-10), (MEAN_FIELD, 1e-10), (LEARNING, 1e-8), (LEARNING_MEAN_FIELD, 1e-8)],
)
def test_the_bound_never_falls(step, slack):
    """Bar 1: 1e-10 relative, 1e-8 with learnt hyperparameters; both families, from far off."""
    model, data = model_for(concentration=1.7), corpus()
    for seed in range(3):
        trace = np.asarray(climb(step, random_state(model, seed), model, data, 1200)[1])
        assert (np.diff(trace) >= -slack * np.abs(trace[1:])).all() and np.isfinite(trace).all()


@pytest.mark.slow
def test_a_hyperparameter_changed_in_silence_shows():
    """Negative control: a smoothing that drifts from step to step makes the bound fall by more than that."""

    def drifting(key, state, model, data):
        new, info = STRUCTURED(key, state, model, data)
        return new._replace(word_smoothing=1.02 * new.word_smoothing), info

    model = model_for(concentration=1.7)
    trace = np.asarray(climb(drifting, random_state(model), model, corpus(), 1200)[1])
    assert (np.diff(trace) < -1e-8 * np.abs(trace[1:])).any()


def updated_by_numpy(clusters, words, by_word, prior, smoothing, steps, point):
    """Centres and topics in turn as the equations have them, over all words at once."""

    def weights(concentration):
        return np.exp(special.digamma(concentration) - special.digamma(concentration.sum(-1, keepdims=True)))

    for _ in range(steps):
        shares, topics = weights(clusters), words if point else weights(words)
        ratio = by_word.T / (shares @ topics)
        clusters = prior + shares * (ratio @ topics.T)
        words = smoothing + topics * (shares.T @ ratio)
        if point:
            words = np.maximum(words - 1, 0)
            words /= words.sum(-1, keepdims=True)
    return clusters, words


@pytest.mark.parametrize("point", [False, True])
def test_words_that_fill_up_a_block_have_no_weight(monkeypatch, point):
    """37 words in three blocks of 13 are updated as all at once; planted: two more words."""
    monkeypatch.setattr(vb_updates, "CACHED_NUMBERS", 0)  # blocks as small as there are
    rng = np.random.default_rng(0)
    smoothing, prior = 1.5 if point else 0.3, np.full(3, 0.4)
    by_word, clusters, words = (
        rng.gamma(1.0, 5.0, (37, 4)),
        rng.gamma(2.0, 1.0, (4, 3)),
        rng.gamma(2.0, 1.0, (3, 37)),
    )
    if point:
        words /= words.sum(-1, keepdims=True)
    model = zoo.PCP(num_topics=3, num_clusters=4, num_words=37, word_smoothing=smoothing, topic_prior=0.4)
    state = random_state(model)._replace(clusters=jnp.asarray(clusters), words=jnp.asarray(words))
    update = jax.jit(vb_updates.update_globals, static_argnames=("inner_steps", "learn", "point"))
    options = {"inner_steps": 4, "learn": (), "point": point}
    found = update(state, jnp.asarray(by_word), jnp.ones(4), model, **options)
    expected = updated_by_numpy(clusters, words, by_word, prior, smoothing, 4, point)
    np.testing.assert_allclose(found.clusters, expected[0], rtol=1e-12)
    np.testing.assert_allclose(found.words, expected[1], rtol=1e-12)
    more = np.pad(words, ((0, 0), (0, 2)), constant_values=smoothing), np.pad(by_word, ((0, 2), (0, 0)))
    bugged = updated_by_numpy(clusters, *more, prior, smoothing, 4, point)
    assert abs(bugged[0] / expected[0] - 1).max() > 1e-3


def test_one_topic_and_one_cluster_are_the_unigram_distribution():
    """Bar 3: K = M = 1 and no additive constant (a flat prior, its maximum)."""
    model = model_for(1, 1, word_smoothing=1.0)
    step = partial(vb.step, learn=(), point=True)
    state = climb(step, random_state(model), model, corpus(), 2)[0]
    unigram = COUNTS.sum(0) / COUNTS.sum()
    np.testing.assert_allclose(state.words[0], unigram, rtol=1e-12)


@pytest.mark.slow
def test_pruning_leaves_the_bound_as_it_is():
    """Bar 3: 1e-9 relative, clusters without mass gone; a cluster that has some must not go."""
    counts = 20 * COUNTS
    model, data = model_for(2, 12, concentration=0.2), corpus(counts)
    state, _ = climb(STRUCTURED, random_state(model)._replace(responsibilities=None), model, data, 300)
    sizes = state.weights.concentration - 0.2 / 12
    small = prune(state, sizes)
    assert 1 < small.clusters.shape[0] < 12
    whole, pruned = (float(vb.bound(each, model, data)) for each in (state, small))
    np.testing.assert_allclose(pruned, whole, rtol=1e-9)
    back = with_all_clusters(small, model)
    np.testing.assert_allclose(float(vb.bound(back, model, data)), whole, rtol=1e-9)
    assert abs(float(vb.bound(prune(state, sizes, 2.0), model, data)) / whole - 1) > 1e-6


@pytest.mark.slow
def test_a_fit_drops_clusters_on_the_way(monkeypatch):
    """64 clusters for 20 documents, two restarts: the same bounds and sizes with as without pruning, 1e-9."""
    seen = []

    def noting(states, model):
        smaller = shrink(states, model)
        seen.append(states.clusters.shape[1] if smaller is None else smaller.clusters.shape[1])
        return smaller

    monkeypatch.setattr(vb, "shrink", noting)
    vb.build.cache_clear()
    call = {"num_samples": 2, "progress": False, "max_iterations": 30, "tolerance": 0, "num_restarts": 2}
    model = model_for(2, 64)
    pruned, whole = (fit(model, 20 * COUNTS, prune=prune, **call) for prune in (True, False))
    assert seen[-1] < 64
    vb.build.cache_clear()
    np.testing.assert_allclose(pruned["trace"].objective, whole["trace"].objective, rtol=1e-9)
    for name in ("cluster_weights_concentration", "cluster_topic_concentration"):
        own, other = (np.sort(tree["variational"][name].values, axis=0) for tree in (pruned, whole))
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["lda", "plsi"])
def test_starts_that_project_know_the_documents(strategy):
    """Nearer to the documents than a random start, by 0.1 nats a token; clusters at documents' shares.

    Planted: the same topics with their words shuffled are as far off as a random start.
    """
    data = load("pcp_corpus", seed=0)
    counts = data["counts"][:100]
    model = zoo.PCP.from_data(counts, num_topics=6, num_clusters=120)
    held = jax.tree.map(jnp.asarray, cut(sparse(counts.toarray()), 120))
    order = np.random.default_rng(0).permutation(200)

    @jax.jit
    def compared(key):
        begun, random = (vb.init(key, model, held, strategy=name) for name in (strategy, "random"))
        states = begun, random, begun._replace(words=begun.words[:, order])
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        return begun, jax.lax.map(lambda state: vb.bound(state, model, held), stacked)

    begun, (own, random, shuffled) = compared(jax.random.key(0))
    assert own - random > 0.1 * counts.sum() and shuffled < random
    shares = begun.clusters - model.shares_concentration
    np.testing.assert_allclose(shares.sum(1), counts.sum() / 120, rtol=1e-9)
    rows = np.unique(np.round(np.asarray(shares), 6), axis=0)
    assert len(rows) <= 100  # of 120 clusters twenty begin where another document's cluster does


@pytest.mark.parametrize(("number", "size"), [(1, 512), (180, 512), (1625, 1664), (1626, 1664), (3000, 3072)])
def test_documents_are_shuffled_as_if_nothing_filled_up(number, size):
    """At numbers that JAX shuffles once and twice."""
    key = jax.random.key(number)
    found = np.asarray(starts.permutation(key, jnp.asarray(number), size))
    np.testing.assert_array_equal(found[:number], jax.random.permutation(key, number))
    assert set(found[number:]) == {*range(number, size)}


def test_a_random_start_has_topics_all_but_flat():
    """Every word begins with near-equal shares of all topics, whatever its count; no two keys alike."""
    model, data = model_for(), corpus()
    begin = jax.jit(lambda key: vb.init(key, model, data, strategy="random").words)
    one, other = begin(jax.random.key(0)), begin(jax.random.key(1))
    assert abs(one - 1).max() < 0.6 and 0.03 < one.std() < 0.2  # Gamma of mean 1, deviation 0.1: 6 of these
    assert abs(one - other).max() > 0.01


ONE_STEP = jax.jit(LEARNING)


def annealed(state, model, data, power, steps):
    """The state after annealed steps, all of them under one power."""
    left = starts.ANNEALING_STEPS if power != 1 else 1  # of the powers the first is as given, the last is 1
    for _ in range(steps):
        annealing = Annealing(jnp.asarray(power), jnp.asarray(left))
        state, _ = ONE_STEP(None, state._replace(annealing=annealing), model, data)
        assert int(state.annealing.steps_left) == left - 1
    return state


@pytest.mark.slow
def test_annealing_by_the_whole_likelihood_is_a_climb():
    """A power of 1 leaves the step's updates, the hyperparameters held; a power near 0 no cluster apart.

    Planted: at half the power the topics are others; hyperparameters that are learnt on the way are others.
    """
    model, data = model_for(), corpus()
    state = random_state(model)._replace(responsibilities=None)
    climbed = climb(STRUCTURED, state, model, data, 4)[0]
    np.testing.assert_allclose(annealed(state, model, data, 1.0, 4).words, climbed.words, rtol=1e-9)
    assert abs(annealed(state, model, data, 0.5, 4).words - climbed.words).max() > 0.01
    blurred = annealed(state, model, data, 1e-9, 4)
    assert (blurred.word_smoothing, blurred.concentration) == (state.word_smoothing, state.concentration)
    np.testing.assert_array_equal(blurred.topic_prior, state.topic_prior)
    free, _ = ONE_STEP(None, state, model, data)
    assert abs(free.word_smoothing - state.word_smoothing) > 1e-3
    assert abs(free.concentration - state.concentration) > 1e-3
    shares = blurred.clusters - model.shares_concentration
    tokens = np.asarray(blurred.weights.concentration - model.concentration / 4) / 20 * COUNTS.sum()
    np.testing.assert_allclose(shares.sum(1), tokens, rtol=1e-6)  # each has its weight of every document


@pytest.mark.parametrize("holds", [False, True], ids=["learnt", "held"])
def test_hyperparameters_are_the_likeliest_ones_or_stay_in_annealing(holds):
    """By SciPy's search over the expected log densities; clusters and topics have the prior that is left."""
    model, rng = model_for(topic_prior=0.3, word_smoothing=0.2), np.random.default_rng(0)
    state = random_state(model)
    tokens, of_clusters = rng.gamma(1.5, 1.0, (3, 6)), rng.gamma(1.5, 1.0, (4, 3))

    def likeliest(parameters):
        logs, (number, size) = expected_log(parameters).sum(), parameters.shape

        def depth(a):
            return -number * (special.gammaln(size * a) - size * special.gammaln(a)) - (a - 1) * logs

        return optimize.minimize_scalar(
            depth, bounds=(1e-3, 50.0), method="bounded", options={"xatol": 1e-9}
        ).x

    wanted = {"topic_prior": likeliest(0.3 + of_clusters), "word_smoothing": likeliest(0.2 + tokens)}
    assert abs(wanted["topic_prior"] - 0.3) > 0.02 and abs(wanted["word_smoothing"] - 0.2) > 0.02
    if holds:
        wanted = {"topic_prior": 0.3, "word_smoothing": 0.2}
    given = jnp.asarray(0.3 + of_clusters), jnp.asarray(tokens)
    found = jax.jit(partial(learnt_factors, learn=LEARN, point=False))(
        state, *given, holds=jnp.asarray(holds)
    )
    np.testing.assert_allclose(found.topic_prior, np.full(3, wanted["topic_prior"]), rtol=1e-6)
    np.testing.assert_allclose(found.word_smoothing, wanted["word_smoothing"], rtol=1e-6)
    np.testing.assert_allclose(found.clusters, wanted["topic_prior"] + of_clusters, rtol=1e-6)
    np.testing.assert_allclose(found.words, wanted["word_smoothing"] + tokens, rtol=1e-6)


@pytest.mark.parametrize("given", [0.4, (0.4, 0.4, 0.4)], ids=["one", "by topic"])
def test_a_fit_hands_on_the_hyperparameters_that_it_learnt(given):
    """The topic prior as one number where the model had one, for each topic where it had these."""
    model = model_for(topic_prior=given, concentration=1.7)
    learnt = {"concentration": 0.9, "topic_prior": np.full(3, 0.25), "word_smoothing": 0.07}
    state = random_state(model)._replace(**jax.tree.map(jnp.asarray, learnt))
    found = conclude(jax.random.key(0), state, model, (sparse(),), 2, False, topics="posterior", learn=LEARN)
    prior = np.asarray(found.model.topic_prior)
    assert prior.shape == np.shape(given) and prior.min() == prior.max() == 0.25
    assert (float(found.model.concentration), float(found.model.word_smoothing)) == (0.9, 0.07)
    np.testing.assert_array_equal(found.variational["cluster_topic_concentration"], state.clusters)
    np.testing.assert_array_equal(found.variational["topic_word_concentration"], state.words)


@pytest.fixture(scope="module")
def starts_of_four_topics():
    """States by strategy and family, of one key and by one program."""
    with jax.enable_x64(True):
        model, data = model_for(4), corpus()

        @jax.jit
        def begin(key):
            begun = {
                name: vb.init(key, model, data, strategy=name) for name in ("auto", "annealed", "random")
            }
            for name in ("auto", "random"):
                begun[f"mean field, {name}"] = vb.init(key, model, data, strategy=name, family="mean_field")
            return begun

        return begin(jax.random.key(0))


@pytest.mark.slow
def test_powers_grow_from_two_words_to_the_whole_likelihood(starts_of_four_topics):
    begun = starts_of_four_topics["annealed"]
    first = 2 / COUNTS.sum(axis=1).mean()
    left = np.arange(starts.ANNEALING_STEPS, 0, -1)
    powers = [float(starts.power_of(begun.annealing._replace(steps_left=jnp.asarray(n)))) for n in left]
    np.testing.assert_allclose(powers, first ** np.linspace(1, 0, starts.ANNEALING_STEPS), rtol=1e-9)
    assert int(starts.settling_steps(begun)) == len(powers)
    assert starts.settling_steps(starts_of_four_topics["random"]) == 0


def test_the_default_start_is_annealed_where_there_are_topics_enough(starts_of_four_topics):
    """Four clusters: with four topics as asked for by name."""
    words = {name: starts_of_four_topics[name].words for name in ("auto", "annealed", "random")}
    np.testing.assert_array_equal(words["auto"], words["annealed"])
    assert abs(words["auto"] - words["random"]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("num_topics", "chosen"), [(4, "annealed"), (3, "random")])
def test_the_default_start_is_random_where_there_are_too_few_topics(num_topics, chosen):
    """Four clusters: with four topics as asked for by name, with three at random; the other is another."""
    model, data = model_for(num_topics), corpus()
    words = {
        name: jax.jit(lambda key, name=name: vb.init(key, model, data, strategy=name).words)(
            jax.random.key(0)
        )
        for name in ("auto", "annealed", "random")
    }
    np.testing.assert_array_equal(words["auto"], words.pop(chosen))
    assert abs(words["auto"] - words[min(set(words) - {"auto"})]).max() > 0.01


@pytest.mark.slow
def test_more_clusters_than_topics_begin_at_random_and_at_topics_of_lda():
    """In turn, the best is kept; one start is LDA's where two are dear, and where there are topics enough."""
    model, (key, data) = model_for(3), (jax.random.key(0), corpus())
    each = {
        name: jax.jit(partial(vb.init, strategy=name))(key, model, data).words for name in ("random", "lda")
    }
    begin = jax.jit(partial(starts.numbered_init, point=False))
    for number, name in enumerate(("random", "lda", "random")):
        np.testing.assert_allclose(begin(jnp.array(number), key, model, data).words, each[name], rtol=1e-9)
    many = SparseCounts(*np.zeros((3, 10**7), int), (10**5, 6))
    assert (starts.restarts(model, (sparse(),)), starts.restarts(model, (many,))) == (2, 1)
    assert (
        starts.restarts(model_for(4), (sparse(),)) == starts.restarts(model, (sparse(),), "mean_field") == 1
    )
    tree = fit(model, COUNTS, num_samples=2, progress=False, max_iterations=40, learn=())
    ends = tree["trace"].objective_at_end.values
    assert ends.shape == (2,) and tree["trace"].objective[-1] == ends.max()


def test_the_mean_field_family_begins_at_random_and_is_not_annealed(starts_of_four_topics):
    """Also where there are topics enough: by default it is the thesis's Algorithm 9.1."""
    model = model_for(4)
    begin = {name: starts_of_four_topics[f"mean field, {name}"] for name in ("auto", "random")}
    np.testing.assert_array_equal(begin["auto"].words, begin["random"].words)
    with (
        pytest.warns(UserWarning, match="mean_field"),
        pytest.raises(ValueError, match="family='structured'"),
    ):
        fit(model, COUNTS, family="mean_field", init="annealed", progress=False)


@pytest.fixture(scope="module")
def tree():
    """PCP by VB on the small corpus, its columns named."""
    import pandas as pd

    frame = pd.DataFrame(COUNTS, columns=WORDS)
    with pytest.warns(UserWarning, match="the learnt word_smoothing, .*, outweighs"):  # it is a tiny corpus
        return fit(model_for(), frame, num_samples=40, progress=False)


@pytest.mark.slow
def test_the_guide_has_the_bound(tree):
    """Closed form against the Monte Carlo ELBO of (explicit program, guide), error at most 0.05 nats."""
    model, documents = model_of(tree), sparse()
    stored = {name: jnp.asarray(value.values) for name, value in tree["variational"].data_vars.items()}
    state = random_state(model)._replace(
        weights=dist.Dirichlet(stored["cluster_weights_concentration"]),
        clusters=stored["cluster_topic_concentration"],
        words=stored["topic_word_concentration"],
    )
    bound = vb.bound(state, model, corpus())
    arguments = {"key": jax.random.key(0), "num_particles": 3000}
    verdict = elbo_check(model, guide(tree), bound, (documents,), **arguments)
    assert verdict.passed and verdict.standard_error <= 0.05, verdict
    np.testing.assert_allclose(tree["trace"].objective.values[-1], bound, rtol=1e-6)
    assert abs(verdict.estimate - bound - 0.5) > verdict.threshold * verdict.standard_error  # planted


def test_new_documents(tree):
    """Shares sum to one; densities are those of the mixture; words are matched by name."""
    import pandas as pd

    shuffled = pd.DataFrame(COUNTS[:5], columns=WORDS)[WORDS[::-1]]
    shares = transform(tree, shuffled)
    assert shares.dims == ("document", "topic")
    np.testing.assert_allclose(shares.values, transform(tree, COUNTS[:5]).values, rtol=1e-12)
    density = log_density(tree, COUNTS[:5])
    np.testing.assert_array_equal(density.num_tokens, COUNTS[:5].sum(1))
    assert tree["log_likelihood"]["log_likelihood"].dims == ("chain", "draw", "document")
    assert abs(density.values - tree["log_likelihood"].log_likelihood.values.mean((0, 1))[:5]).max() < 1


@pytest.mark.slow
def test_mean_field_warns_and_collapses_from_a_random_start():
    """Bar 8: one cluster is left, NMI below 0.05, where the structured family finds the clusters."""
    data, model = load("pcp_corpus", seed=0), zoo.PCP(num_topics=6, num_clusters=5)
    options = {"family": "mean_field", "max_iterations": 200, "num_samples": 1, "progress": False}
    with pytest.warns(UserWarning, match="collapses to one cluster"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="pcp by vb has not converged")
        collapsed = fit(model, data["counts"], **options)
    r = collapsed["variational"].responsibilities.values
    assert normalised_mutual_information(data["labels"], r.argmax(1)) < 0.05
    assert int(collapsed["variational"].num_occupied) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "none"}, "family must be one of structured, mean_field"),
        ({"topics": "map"}, "topics must be one of posterior, point"),
        ({"topics": "point"}, "has no maximum below 1"),
        ({"inner_steps": 0}, "inner_steps must be a whole number of at least 1"),
        ({"learn": ("beta",)}, "learn must be a tuple of some of concentration, topic_prior"),
        ({"init": {"weights": np.ones(2)}}, "init must hold 'responsibilities'"),
    ],
)
def test_options_that_do_not_suit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(model_for(), COUNTS, progress=False, **options)
