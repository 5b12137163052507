"""EM for pLSI: it never falls, is NMF under the I-divergence, and the tempered one climbs its free energy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from text_cases import COUNTS, sparse

import zoo
from inference import fit, log_density, transform
from inference.methods.plsi import em as plsi
from inference.numerics.documents import CACHED_NUMBERS, cut


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


MODEL = zoo.PLSI.from_data(COUNTS, num_topics=3)


def random_state(seed=0):
    rng = np.random.default_rng(seed)
    return plsi.PLSIEMState(
        jnp.asarray(rng.dirichlet(np.ones(3), 20)), jnp.asarray(rng.dirichlet(np.ones(6), 3).T)
    )


@partial(jax.jit, static_argnames=("b", "steps"))
def climb(state, data, b=1.0, steps=200):
    def once(state, _):
        state, info = plsi.step(None, state, MODEL, data, inverse_temperature=b)
        return state, (info.objective, state)

    return jax.lax.scan(once, state, None, length=steps)


def blocks():
    return jax.tree.map(jnp.asarray, cut(sparse(), CACHED_NUMBERS // 40))


@pytest.mark.parametrize("b", [1.0, 0.6])
def test_em_never_falls_plain_and_tempered(b):
    """1e-10 relative; tempered EM climbs sum n log(sum (theta beta)^b) / b."""
    data = blocks()
    for seed in range(3):
        state, (trace, states) = climb(random_state(seed), data, b)
        trace = np.asarray(trace)
        assert (np.diff(trace) >= -1e-10 * np.abs(trace[1:])).all()
        before = jax.tree.map(lambda leaf: np.asarray(leaf[-2]), states)
        powered = (before.shares**b) @ (before.by_word.T**b)
        energy = (COUNTS * np.log(powered)).sum() / b + float(data.log_coefficient)
        np.testing.assert_allclose(trace[-1], energy, rtol=1e-10)
    if b == 1:  # then it is the log likelihood
        probs = before.shares @ before.by_word.T
        exact = sum(
            stats.multinomial.logpmf(row, row.sum(), p / p.sum())
            for row, p in zip(COUNTS, probs, strict=True)
        )
        np.testing.assert_allclose(trace[-1], exact, rtol=1e-9)


def test_em_is_multiplicative_nmf_of_the_i_divergence():
    """Lee and Seung's two updates in turn, with theta's rows scaled by the documents' lengths.

    Both factors are updated from one E-step in EM, in turn there: the fixed points are common, so an NMF
    started at EM's end stays, its divergence is minus the log likelihood but for a constant, and one
    simultaneous update is EM's step.
    """
    data, length = blocks(), COUNTS.sum(1, keepdims=True)
    start = random_state()
    after, _ = climb(start, data, 1.0, 1)
    w, h = length * np.asarray(start.shares), np.asarray(start.by_word).T
    ratio = COUNTS / (w @ h)
    simultaneous = w * (ratio @ h.T), h * (w.T @ ratio)
    np.testing.assert_allclose(simultaneous[0], length * np.asarray(after.shares), rtol=1e-10)
    scaled = simultaneous[1] / simultaneous[1].sum(1, keepdims=True)
    np.testing.assert_allclose(scaled, np.asarray(after.by_word).T, rtol=1e-10)
    end, _ = climb(start, data, 1.0, 3000)
    w, h = length * np.asarray(end.shares), np.asarray(end.by_word).T
    for _ in range(50):  # a product may be zero where nothing was counted
        w = w * ((COUNTS / np.maximum(w @ h, 1e-300)) @ h.T) / h.sum(1)
        h = h * (w.T @ (COUNTS / np.maximum(w @ h, 1e-300))) / w.sum(0)[:, None]
    np.testing.assert_allclose(w @ h, length * np.asarray(end.shares) @ np.asarray(end.by_word).T, atol=2e-2)


def test_folding_in_keeps_fitted_documents_and_smoothing_keeps_new_words_possible():
    tree = fit(MODEL, COUNTS, progress=False, max_iterations=3000, tolerance=1e-9)
    shares = transform(tree, COUNTS)
    assert shares.dims == ("document", "topic")
    probs = tree["posterior"].topic_word_probs.values[0, 0]
    fitted = tree["posterior"].doc_topic_probs.values[0, 0] @ probs
    np.testing.assert_allclose(shares.values @ probs, fitted, atol=5e-3)
    assert tree["trace"].objective.values[-1] == pytest.approx(
        log_density(tree, COUNTS).sum().item(), rel=1e-4
    )
    rare = np.hstack([COUNTS, np.zeros((20, 1))])
    bare, smooth = (
        fit(zoo.PLSI(num_topics=2), rare, progress=False, smoothing=s, max_iterations=50, tolerance=0)
        for s in (0.0, 0.1)
    )
    assert bare["posterior"].topic_word_probs.values[..., -1].max() == 0
    assert smooth["posterior"].topic_word_probs.values[..., -1].min() > 0
    np.testing.assert_allclose(smooth["posterior"].topic_word_probs.sum("word"), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inverse_temperature": 0.0}, r"inverse_temperature must lie in \(0, 1\]"),
        ({"smoothing": -1.0}, "smoothing must be a number of tokens of at least 0"),
        ({"init": {"topic_word_probs": np.ones((2, 6))}}, r"topic_word_probs must have shape \(3, 6\)"),
    ],
)
def test_options_that_do_not_suit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(MODEL, COUNTS, progress=False, **options)
