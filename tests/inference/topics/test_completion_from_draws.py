"""Held-out completion averages word probabilities over draws, not their logs, and does not add them up."""

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference.topics.text_heldout import _completed, split_tokens
from zoo.documents import as_counts

NUM_WORDS = 5


def test_a_word_s_probability_is_its_mean_over_draws():
    """One scored word a document: the exponential of the score is the average over draws, each by itself."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.ones(NUM_WORDS), size=(3, 2))  # draws, topics
    given = as_counts(rng.poisson(2.0, size=(4, NUM_WORDS)).astype(float) + 1)
    scored = as_counts(np.eye(NUM_WORDS)[:4] * np.array([[1.0], [2.0], [1.0], [3.0]]))
    with jax.enable_x64(True):
        model = zoo.LDA(num_topics=2)

        def score(draws):
            return np.asarray(_completed({"topic_word_probs": jnp.asarray(draws)}, model, given, scored))

        together, alone = score(topics), np.stack([score(one[None]) for one in topics])
        times = np.array([1.0, 2.0, 1.0, 3.0])
        np.testing.assert_allclose(together, times * np.log(np.exp(alone / times).mean(0)), rtol=1e-10)
        shares = model.scores({"topic_word_probs": jnp.asarray(topics[0])}, given)
        by_hand = times * np.log(np.diagonal(np.asarray(shares) @ topics[0]))
    np.testing.assert_allclose(alone[0], by_hand, rtol=1e-10)


def test_tokens_are_dealt_at_random():
    """Of 1000 tokens of each of two words the half has 500 of each, give or take 11 (hypergeometric)."""
    counts = as_counts(np.full((6, 2), 1000.0))
    first, again, other = (split_tokens(counts, seed)[0].to_dense() for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    away = np.abs(np.concatenate([first, other])[:, 0] - 500)
    assert (first != other).any() and 1 < away.mean() < 40 and away.max() < 90
