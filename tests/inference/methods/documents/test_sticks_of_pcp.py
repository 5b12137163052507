"""What stick-breaking weights of PCP's clusters add to the bound, by the beta function, and to its E-step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, digamma

import zoo
from inference.methods.pcp.vb_posterior import (
    PCPVBState,
    expected_log_weights,
    globals_bound,
    learnt_concentration,
    log_weight_terms,
)

SIZES = np.array([5.0, 0.3, 2.0, 7.7])  # expected documents of each cluster
ALPHA = 1.7


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


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
