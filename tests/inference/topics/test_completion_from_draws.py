"""Held-out completion averages word probabilities over draws, not their logs, and does not add them up."""

import jax
import jax.numpy as jnp
import numpy as np

import zoo
from inference.topics import text_heldout
from inference.topics.text_heldout import _completed, _Scored, split_tokens
from zoo.documents.bags import as_counts

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


def test_the_standard_error_is_that_of_a_ratio(monkeypatch):
    """Documents of different lengths: sqrt(n Var(score - mean tokens)) / tokens, by hand."""
    scores, tokens = np.array([-10.0, -31.0, -22.0, -5.0]), np.array([4.0, 10.0, 9.0, 2.0])
    monkeypatch.setattr(text_heldout, "_scored", lambda *_: _Scored(scores, tokens, np.array([])))
    monkeypatch.setattr(text_heldout, "model_of", lambda tree: None)
    monkeypatch.setattr(text_heldout, "is_asked_in_batches", lambda *_: False)
    found = text_heldout.heldout_text(None, None, protocol="completion")
    mean = -68.0 / 25.0
    away = np.array([-10 - 4 * mean, -31 - 10 * mean, -22 - 9 * mean, -5 - 2 * mean])
    assert float(found["mean"]) == mean
    np.testing.assert_allclose(found["standard_error"], np.sqrt(4 * (away**2).sum() / 3) / 25, rtol=1e-12)
