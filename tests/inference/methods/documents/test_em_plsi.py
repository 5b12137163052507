"""EM for pLSI: it never falls, is NMF under the I-divergence, and the tempered one climbs its free energy."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import zoo
from inference import fit, log_density, transform
from inference.methods.plsi import em as plsi
from inference.numerics.documents import CACHED_NUMBERS, cut
from tests.support.interruptions import cut_short
from tests.support.text_cases import COUNTS, sparse

pytestmark = pytest.mark.usefixtures("in_double")


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


@pytest.mark.slow
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
        ({"heldout_share": 1.0}, r"heldout_share must be the share of tokens that are held out, in \[0, 1\)"),
        (
            {"heldout_share": 1e-9},
            "heldout_share=1e-09 holds out none of the 159 tokens, since every word and",
        ),
        ({"inverse_temperature_decay": 1.0}, "inverse_temperature_decay must be a factor, between 0 and 1"),
        ({"smoothing": -1.0}, "smoothing must be a number of tokens of at least 0"),
        ({"init": {"topic_word_probs": np.ones((2, 6))}}, r"topic_word_probs must have shape \(3, 6\)"),
    ],
)
def test_options_that_do_not_suit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(MODEL, COUNTS, progress=False, **options)


def drawn_corpus(seed=0, num_topics=5, num_documents=80, num_words=200, length=40):
    """Short documents of a few topics, and fresh tokens of the same documents."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(num_words, 0.1), num_topics)
    probs = rng.dirichlet(np.full(num_topics, 0.3), num_documents) @ topics
    return tuple(np.stack([rng.multinomial(n, p / p.sum()) for p in probs]) for n in (length, 400))


def hofmann(kept, held, shares, topics, decay, smoothing):
    """The schedule in dense arrays: scores and b of each step, the best estimate and its b."""
    b, before, best, trace, small = 1.0, -np.inf, (-np.inf,), [], 0
    while small < 5:
        tokens = (shares[:, None, :] * topics.T * (kept / (shares @ topics))[:, :, None]).sum((0, 1))
        smooth = (tokens[:, None] * topics + smoothing) / (tokens[:, None] + smoothing * kept.shape[1])
        with np.errstate(divide="ignore"):
            score = float(np.sum(held * np.log(np.where(held > 0, shares @ smooth, 1.0))))
        small = small + 1 if score - best[0] < 1e-6 * len(kept) else 0
        trace.append((score, b))
        best = max(best, (score, smooth, shares, b), key=lambda own: own[0])
        if score - before < 1e-4 * held.sum():
            b *= decay
        before = score
        phi = shares[:, None, :] ** b * topics.T**b
        phi *= (kept / phi.sum(-1))[:, :, None]
        shares = phi.sum(1) / phi.sum((1, 2))[:, None]
        topics = (phi.sum(0) / phi.sum((0, 1))).T
    return np.array(trace), best


def test_the_schedule_is_that_of_dense_arrays():
    """Every score, every inverse temperature and the estimate, from the same start; with smoothed topics."""
    counts = drawn_corpus(num_documents=30, num_words=40)[0]
    counts = counts[:, counts.any(0)]
    rng = np.random.default_rng(1)
    shares, topics = rng.dirichlet(np.ones(6), 30), rng.dirichlet(np.ones(counts.shape[1]), 6)
    start = {"doc_topic_probs": shares, "topic_word_probs": topics}
    call = {"init": start, "heldout_share": 0.15, "inverse_temperature_decay": 0.8, "smoothing": 0.01}
    tree = fit(zoo.PLSI(num_topics=6), counts, progress=False, **call)
    kept, held = (part.to_dense() for part in plsi.split_off(sparse(counts), 0.15))
    np.testing.assert_array_equal(kept + held, counts)
    assert kept.any(0).all() and kept.any(1).all()
    trace, (score, smooth, by_document, b) = hofmann(kept, held, shares, topics, 0.8, 0.01)
    found = tree["trace"]
    np.testing.assert_allclose(found["heldout_log_likelihood"], trace[:, 0], rtol=1e-9)
    np.testing.assert_allclose(found["inverse_temperature"], trace[:, 1], rtol=1e-12)
    np.testing.assert_allclose(found["objective"], np.maximum.accumulate(trace[:, 0]), rtol=1e-9)
    by_size = np.argsort(-counts.sum(axis=1) @ by_document)
    np.testing.assert_allclose(tree["posterior"]["topic_word_probs"][0, 0], smooth[by_size], rtol=1e-6)
    np.testing.assert_allclose(tree["posterior"]["doc_topic_probs"][0, 0], by_document[:, by_size], rtol=1e-6)
    assert tree.attrs["inverse_temperature"] == pytest.approx(b) and b < 1
    assert tree.attrs["num_heldout_tokens"] == held.sum() and tree.attrs["converged"]
    assert tree.attrs["heldout_perplexity"] == pytest.approx(np.exp(-score / held.sum()))


def test_held_out_tokens_are_compared_with_the_step_before_not_with_the_best():
    """They gain over the former step, though not over the best: b stays. Without a gain it is lowered."""
    now, data = random_state(), blocks()
    b, options = jnp.asarray(0.7), {"inverse_temperature_decay": 0.8, "smoothing": 0.0}
    step = jax.jit(partial(plsi.annealed, **options), static_argnums=2)
    for before, wanted in ((-1e6, 0.7), (-1.0, 0.7 * 0.8)):
        state = plsi.AnnealedState(now, now, b, jnp.asarray(0.9), jnp.asarray(before), jnp.asarray(0.0))
        after, info = step(None, state, MODEL, data, data)
        assert -1e6 < float(info.heldout_log_likelihood) < -1.0
        assert float(after.inverse_temperature) == pytest.approx(wanted, rel=1e-12)
        assert float(after.best_inverse_temperature) == 0.9 and float(after.best_score) == 0.0


def fresh_score(tree, fresh):
    """Nats per token of new tokens of the fitted documents."""
    probs = tree["posterior"].doc_topic_probs.values[0, 0] @ tree["posterior"].topic_word_probs.values[0, 0]
    return float(np.sum(fresh * np.log(np.where(fresh > 0, probs, 1.0))) / fresh.sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_schedule_predicts_new_tokens_better_than_em(seed, monkeypatch):
    """With more topics than there are, against EM at b = 1 from the same start.

    Over twenty other corpora, in dense arrays, the gain is 0.232 +- 0.038 nats per token (mean, deviation):
    0.08 lies four deviations below, a false alarm rate of 3e-5 for each corpus.

    Planted: a schedule that scores the tokens it fits, which predicts no better than EM.
    """
    model, settings = zoo.PLSI(num_topics=8), {"progress": False, "smoothing": 0.01, "tolerance": 1e-3}
    counts, fresh = drawn_corpus(seed)
    plain = fit(model, counts, **settings)
    tree = fit(model, counts, heldout_share=0.1, **settings)
    assert fresh_score(tree, fresh) > fresh_score(plain, fresh) + 0.08
    assert 0.4 < tree.attrs["inverse_temperature"] < 1
    monkeypatch.setattr(plsi, "split_off", lambda counts, share: (counts, counts))
    leaking = fit(model, counts, heldout_share=0.1, **settings)
    assert fresh_score(leaking, fresh) < fresh_score(tree, fresh) - 0.08


@pytest.mark.slow
def test_the_schedule_starts_resumes_and_goes_on_with_all_tokens(tmp_path, monkeypatch):
    counts = drawn_corpus()[0]
    model, settings = zoo.PLSI(num_topics=8), {"progress": False, "heldout_share": 0.1}
    tree = fit(model, counts, num_restarts=4, **settings)
    ends = tree["trace"]["objective_by_restart"].max("restart_iteration")
    assert float(ends.max()) == pytest.approx(tree.attrs["heldout_log_likelihood"], rel=1e-9)
    call = settings | {"num_restarts": 4, "checkpoint": tmp_path / "run"}
    with monkeypatch.context() as patched:
        cut_short(patched, after=1)
        with pytest.warns(UserWarning, match="the run was interrupted"):
            fit(model, counts, **call)
    resumed = fit(model, counts, **call)
    for group in ("posterior", "trace"):
        for name, value in tree[group].data_vars.items():
            np.testing.assert_array_equal(resumed[group][name], value, err_msg=name)
    b = tree.attrs["inverse_temperature"]
    after = fit(model, counts, init=tree, inverse_temperature=b, progress=False, tolerance=1e-3)
    assert after.attrs["converged"] and (np.diff(after["trace"]["objective"]) >= -1e-8).all()


@pytest.mark.parametrize("b", [1.0, 0.7])
def test_a_given_start_is_taken_as_it_is_and_at_the_inverse_temperature_that_was_asked_for(b, monkeypatch):
    """And so is a drawn one. With the schedule nothing has been scored yet; shares not given are equal."""
    state, documents = random_state(), SimpleNamespace(shape=COUNTS.shape)
    given = {"topic_word_probs": np.asarray(state.by_word).T}
    options = {"inverse_temperature": b, "smoothing": 0.1, "inverse_temperature_decay": 0.9}
    for shares in (np.asarray(state.shares), None):
        own = given if shares is None else given | {"doc_topic_probs": shares}
        wanted = np.full((20, 3), 1 / 3) if shares is None else shares
        plain, begun = (
            plsi.start(None, own, MODEL, documents, heldout_share=share, **options) for share in (0.0, 0.2)
        )
        monkeypatch.setattr(plsi, "init", lambda key, model, documents, plain=plain: plain)
        drawn = plsi.build("random", b, 0.1, 0.2, 0.9).init(None, MODEL, documents, None)
        for found in (plain, begun.now, begun.best, drawn.now, drawn.best):
            np.testing.assert_array_equal(found.shares, wanted)
            np.testing.assert_array_equal(found.by_word, state.by_word)
        for found in (begun, drawn):
            assert float(found.inverse_temperature) == float(found.best_inverse_temperature) == b
            assert np.isneginf(found.score) and np.isneginf(found.best_score)
