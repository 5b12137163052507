"""What the weights of PCP's clusters add to the bound and to its E-step, by beta and gamma functions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats
from scipy.special import betaln, digamma, gammaln, softmax

import zoo
from inference.methods.pcp import mean_field
from inference.methods.pcp.vb_posterior import (
    PCPVBState,
    cluster_scores,
    expected_log_weights,
    globals_bound,
    learnt_concentration,
    log_weight_terms,
)
from inference.numerics.documents import cut
from zoo.sparse import SparseCounts

pytestmark = pytest.mark.usefixtures("in_double")

SIZES = np.array([5.0, 0.3, 2.0, 7.7])  # expected documents of each cluster
ALPHA = 1.7


def state_of(model, alpha=ALPHA):
    """Clusters and topics at their priors, whose divergences are zero; weights at their optimum."""
    weights = model.weights.posterior(jnp.asarray(SIZES), jnp.asarray(alpha))
    topic_prior, eps = np.array([0.4, 0.6]), 0.2
    clusters, words = np.tile(topic_prior, (4, 1)), np.full((2, 6), eps)
    return PCPVBState(weights, *map(jnp.asarray, (clusters, words, alpha, topic_prior, eps)))


def test_the_bound_holds_the_sticks_divergence_and_the_clusters_expected_log_weights():
    model = zoo.PCP(
        num_topics=2, num_clusters=4, num_words=6, concentration=ALPHA, weight_prior="stick_breaking"
    )
    state = state_of(model)
    a, b = 1 + SIZES[:3], ALPHA + np.cumsum(SIZES[::-1])[::-1][1:]  # the last stick is 1
    np.testing.assert_allclose(state.weights.concentration1, a, rtol=1e-12)
    np.testing.assert_allclose(state.weights.concentration0, b, rtol=1e-12)
    taken, left = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    logs = np.append(taken, 0.0) + np.concatenate([[0.0], np.cumsum(left)])
    np.testing.assert_allclose(expected_log_weights(state, model), logs, rtol=1e-10)
    np.testing.assert_allclose(log_weight_terms(state, model), SIZES @ logs, rtol=1e-10)
    divergence = betaln(1, ALPHA) - betaln(a, b) + (a - 1) * taken + (b - ALPHA) * left
    bound = float(globals_bound(state, model, False))
    assert bound == pytest.approx(SIZES @ logs - divergence.sum(), rel=1e-10)


def test_alpha_is_learnt_where_the_bound_of_the_sticks_is_highest():
    """The maximum of 3 log alpha + alpha times the sum of E[log(1 - V)], q of the three sticks held."""
    model = zoo.PCP(
        num_topics=2, num_clusters=4, num_words=6, concentration=ALPHA, weight_prior="stick_breaking"
    )
    state = state_of(model)
    best = float(learnt_concentration(state, model))
    a, b = np.asarray(state.weights.concentration1), np.asarray(state.weights.concentration0)
    left = digamma(b) - digamma(a + b)
    assert best == pytest.approx(-3 / np.sum(left), rel=1e-6)


def of_six_clusters():
    """Dirichlet weights of six clusters, two without documents; with them, and with these two pruned."""
    model = zoo.PCP(num_topics=2, num_clusters=6, num_words=6, concentration=ALPHA)
    weights = model.weights.posterior(jnp.append(jnp.asarray(SIZES), jnp.zeros(2)), jnp.asarray(ALPHA))
    clusters = np.array([[2.0, 0.7], [0.4, 0.6], [1.4, 3.6], [0.9, 5.6], [0.4, 0.6], [0.4, 0.6]])
    topic_prior, eps, words = np.array([0.4, 0.6]), 0.2, np.arange(1.0, 13).reshape(2, 6)
    whole = PCPVBState(weights, *map(jnp.asarray, (clusters, words, ALPHA, topic_prior, eps)))
    pruned = whole._replace(weights=dist.Dirichlet(weights.concentration[:4]), clusters=whole.clusters[:4])
    return model, whole, pruned


def divergence(q, p):
    """Of Dirichlets, rows of parameters."""
    logs = digamma(q) - digamma(q.sum(-1, keepdims=True))
    normalisers = gammaln(q.sum(-1)) - gammaln(q).sum(-1) - gammaln(p.sum(-1)) + gammaln(p).sum(-1)
    return (normalisers + ((q - p) * logs).sum(-1)).sum()


def test_the_bound_holds_the_divergences_of_weights_clusters_and_topics():
    """Of clusters that were pruned too; with topics at a point, their log prior density instead."""
    model, whole, pruned = of_six_clusters()
    share, sizes = np.full(6, ALPHA / 6), np.append(SIZES, [0.0, 0.0])
    logs = digamma(share + sizes) - digamma(ALPHA + SIZES.sum())
    given = sizes @ logs - divergence(share + sizes, share)
    given -= divergence(np.asarray(whole.clusters), np.array([0.4, 0.6]))
    of_words = divergence(np.asarray(whole.words), np.full(6, 0.2))
    at_a_point = np.asarray(whole.words / whole.words.sum(-1, keepdims=True))
    density = sum(stats.dirichlet(np.full(6, 0.2)).logpdf(row) for row in at_a_point)
    for state, held in ((whole, 6), (pruned, 4)):
        np.testing.assert_allclose(expected_log_weights(state, model), logs[:held], rtol=1e-10)
        np.testing.assert_allclose(log_weight_terms(state, model), sizes @ logs, rtol=1e-10)
        np.testing.assert_allclose(globals_bound(state, model, False), given - of_words, rtol=1e-10)
        points = state._replace(words=jnp.asarray(at_a_point))
        np.testing.assert_allclose(globals_bound(points, model, True), given + density, rtol=1e-10)


def test_alpha_is_learnt_where_the_bound_of_the_dirichlet_is_highest():
    """The maximum of the Dirichlet's expected log density, q held, whether or not clusters were pruned."""
    model, whole, pruned = of_six_clusters()
    a = np.asarray(whole.weights.concentration)
    total = (digamma(a) - digamma(a.sum())).sum()

    def height(log_alpha):
        alpha = np.exp(log_alpha)
        return gammaln(alpha) - 6 * gammaln(alpha / 6) + (alpha / 6 - 1) * total

    best = np.exp(optimize.minimize_scalar(lambda at: -height(at), bracket=(0.0, 1.0), tol=1e-10).x)
    for state in (whole, pruned):
        assert float(learnt_concentration(state, model)) == pytest.approx(best, rel=1e-5)


def test_clusters_score_by_their_expected_words_and_weights():
    """Words of two documents times the log of exp E[log theta] exp E[log beta], and E[log pi]."""
    model, whole, _ = of_six_clusters()
    counts = np.array([[1.0, 0, 2, 0, 0, 3], [0, 4, 0, 0, 1, 0]])
    theta, beta = (np.asarray(own) for own in (whole.clusters, whole.words))
    centres = np.exp(digamma(theta) - digamma(theta.sum(1, keepdims=True)))
    centres = centres @ np.exp(digamma(beta) - digamma(beta.sum(1, keepdims=True)))
    wanted = counts @ np.log(centres).T + np.asarray(expected_log_weights(whole, model))
    documents = cut(SparseCounts.from_matrix(counts))
    np.testing.assert_allclose(cluster_scores(whole, model, documents, False), wanted, rtol=1e-10)


def test_a_random_start_has_the_clusters_of_an_empty_document_by_their_weights():
    """Sticks of unlike expectations, in the mean-field family: no word tells anything."""
    model = zoo.PCP(
        num_topics=2, num_clusters=4, num_words=6, concentration=ALPHA, weight_prior="stick_breaking"
    )
    state = state_of(model)
    documents = cut(SparseCounts.from_matrix(np.array([[1.0, 0, 2, 0, 0, 3], [0] * 6])))
    begun = mean_field.begin(jax.random.key(0), state, model, documents, "random", False)
    logs = np.asarray(expected_log_weights(state, model))
    np.testing.assert_allclose(begun.responsibilities[1], softmax(logs), rtol=1e-10)
