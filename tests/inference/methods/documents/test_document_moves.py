"""PCP's collapsed sampler against all topics and clusters of a tiny corpus."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from test_gibbs_topics import dirichlet_multinomial, with_bug

import zoo
from inference.methods.documents import tokens as topic_tokens
from inference.methods.pcp import collapsed_gibbs as collapsed_pcp

pytestmark = pytest.mark.usefixtures("in_double")

COUNTS = np.array([[2.0, 0, 1], [0, 2, 0], [1, 0, 0]])  # six tokens
NUM_DRAWS = 50_000
SMALLEST_P = 1e-5  # of each chi-squared test: its false-alarm rate
SIZES = {"num_topics": 2, "num_words": 3, "num_tokens": (3, 2, 1), "word_smoothing": 0.7}
MODELS = {
    "dirichlet": zoo.PCP(**SIZES, num_clusters=2, concentration=1.3),
    "sticks": zoo.PCP(**SIZES, num_clusters=3, weight_prior="stick_breaking"),
}
BUGS = {
    "size not decremented": ("sizes.at[old].add(-1)", "sizes"),
    "tokens not removed": ("by_cluster.at[old].add(-row)", "by_cluster"),
    "length left out": ("score += gammaln", "score += 0.0 * gammaln"),
}


def everything(model):
    """All topics of the tokens and clusters of the documents, with the collapsed log joint of each pair."""
    tokens = topic_tokens.tokens_of(jnp.asarray(COUNTS), model)
    grid = np.meshgrid(*[np.arange(2)] * 6, *[np.arange(model.num_clusters)] * 3, indexing="ij")
    states = np.stack([axis.ravel() for axis in grid], axis=1)
    topics, clusters = jnp.asarray(states[:, :6]), jnp.asarray(states[:, 6:])
    log_joint = jax.jit(jax.vmap(lambda z, c: collapsed_pcp.state_of(z, c, tokens, model).log_joint))
    return tokens, topics, clusters, np.asarray(log_joint(topics, clusters))


def partition_prior(clusters, model):
    """Probability of clusters, weights integrated out document by document."""
    total, sizes, alpha = 0.0, np.zeros(model.num_clusters), float(model.concentration)
    for cluster in clusters:
        if not model.weights.has_sticks:
            share = (sizes + alpha / len(sizes)) / (sizes.sum() + alpha)
        else:  # each stick's mean given those that stopped at it and those that passed it
            passed = np.array([sizes[m + 1 :].sum() for m in range(len(sizes))])
            stop = (1 + sizes) / (1 + sizes + alpha + passed)
            stop[-1] = 1.0
            share = stop * np.concatenate([[1.0], np.cumprod(1 - stop[:-1])])
        total += np.log(share[cluster])
        sizes[cluster] += 1
    return total


@pytest.mark.parametrize("name", MODELS)
def test_collapsed_joint_is_that_of_dirichlets_integrated_by_hand(name):
    model = MODELS[name]
    tokens, topics, clusters, found = everything(model)
    document, word = np.asarray(tokens.document), np.asarray(tokens.word)
    for i in range(0, len(found), 41):
        z, c = np.asarray(topics[i]), np.asarray(clusters[i])
        by_cluster, by_topic = np.zeros((model.num_clusters, 2)), np.zeros((2, 3))
        np.add.at(by_cluster, (c[document], z), 1)
        np.add.at(by_topic, (z, word), 1)
        exact = sum(dirichlet_multinomial(row, np.asarray(model.shares_concentration)) for row in by_cluster)
        exact += sum(dirichlet_multinomial(row, np.full(3, 0.7)) for row in by_topic)
        assert found[i] == pytest.approx(exact + partition_prior(c, model), abs=1e-10)


def p_value(model, scan):
    """Of the counts of all states after the documents' move, started from exact draws."""
    tokens, topics, clusters, log_joint = everything(model)
    expected = np.exp(log_joint - np.logaddexp.reduce(log_joint)) * NUM_DRAWS
    place = jnp.asarray(model.num_clusters ** np.arange(3)[::-1])

    def moved(key):
        draw_key, key = jax.random.split(key)
        i = jax.random.categorical(draw_key, jnp.asarray(log_joint))
        new = scan(key, topics[i], clusters[i], tokens, model)
        return i // model.num_clusters**3 * model.num_clusters**3 + new @ place

    after = jax.jit(jax.vmap(moved))(jax.random.split(jax.random.key(0), NUM_DRAWS))
    counts = np.bincount(np.asarray(after), minlength=len(expected))
    rare = expected < 5
    pooled = [np.append(values[~rare], values[rare].sum()) for values in (counts, expected)]
    if pooled[1][-1] < 5:
        pooled = [np.append(values[:-2], values[-2:].sum()) for values in pooled]
    return scipy.stats.chisquare(*pooled).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_documents_move_leaves_the_exact_posterior_invariant(name):
    assert p_value(MODELS[name], collapsed_pcp.scan_documents) > SMALLEST_P


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_of_the_move_are_found(bug):
    wrong = with_bug(collapsed_pcp.scan_documents, *BUGS[bug])
    assert p_value(MODELS["dirichlet"], partial(wrong)) < SMALLEST_P
