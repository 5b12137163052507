"""PCP from batches: a batch of everything is a step of VB, the bound of all documents, chunks, resumption."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special

import zoo
from inference import fit, log_density
from inference.methods.pcp import vb
from inference.methods.pcp.vb_batches import evaluate, in_batches, step_of_batch, total, without_rows
from inference.methods.pcp.vb_posterior import PCPVBState
from inference.methods.pcp.vb_starts import init
from inference.methods.pcp.vb_updates import assign
from inference.numerics.documents import BlockSizes, cut
from tests.support.text_cases import COUNTS, expected_log, random_corpus, sparse

CORPUS = random_corpus(90, seed=4)
MODEL = zoo.PCP(num_topics=2, num_clusters=2)
CALL = {"num_samples": 2, "progress": False, "tolerance": 0, "batch_size": 16}
STEP = {"inner_steps": 5, "learn": ("word_smoothing",), "point": False}
RATES = {"learning_offset": 10.0, "learning_decay": 0.7}


def blocks(counts, **layout):
    return jax.tree.map(jnp.asarray, cut(sparse(counts), **layout))


@pytest.mark.cases_by_default(1)
@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize(
    ("strategy", "point", "fields"),
    [("random", False, {}), ("annealed", True, {"word_smoothing": 1.1}), ("random", False, {"sticks": True})],
)
def test_a_first_batch_of_all_documents_is_a_step(strategy, point, fields):
    """State and bound are those of VB, annealed or not; the step's bound is that at the state before it."""
    fields = dict(fields)
    prior = {"weight_prior": "stick_breaking"} if fields.pop("sticks", False) else {}
    model = zoo.PCP.from_data(COUNTS, num_topics=4, num_clusters=3, **fields, **prior)
    documents, options = blocks(COUNTS), STEP | {"point": point}
    begun = init(jax.random.key(1), model, documents, strategy=strategy, point=point)
    expected, _ = vb.step(None, begun, model, documents, **options)
    found, score = step_of_batch(without_rows(begun), model, documents, 1.0, 1.0, **options, **RATES)
    for one, other in zip(jax.tree.leaves(found.factors), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    if strategy == "random":
        before = vb.bound(begun, model, documents, point)
        whole = score + total(without_rows(begun), model, point=point).objective + documents.log_coefficient
        np.testing.assert_allclose(whole, before, rtol=1e-12)
    shares, score = evaluate(found, model, documents, point=point)
    whole = score + total(found, model, point=point).objective + documents.log_coefficient
    np.testing.assert_allclose(whole, vb.bound(found.factors, model, documents, point), rtol=1e-12)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("in_double")
def test_the_sums_of_a_batch_are_those_of_the_corpus_on_average():
    """All 15 batches of two of six documents, one of them empty; not weighted by its share it is far off."""
    counts = COUNTS[:6].copy()
    counts[2] = 0
    model, layout = zoo.PCP.from_data(counts, num_topics=3, num_clusters=3), BlockSizes(2, 8, 8)
    whole = blocks(counts, layout=layout, num_documents=6, num_blocks=2)
    begun = without_rows(init(jax.random.key(0), model, whole, strategy="random"))
    step = jax.jit(lambda *args: step_of_batch(*args, **STEP, **RATES)[0])

    def sums(rows, share):
        held = blocks(counts[list(rows)], layout=layout, num_documents=6, num_blocks=2)
        found = step(begun, model, held, share, 1.0)
        return np.vstack([found.by_word, found.sizes])

    expected = sums(range(6), 1.0)
    pairs = list(combinations(range(6), 2))
    np.testing.assert_allclose(np.mean([sums(rows, 2 / 6) for rows in pairs], axis=0), expected, rtol=1e-12)
    unweighted = np.mean([sums(rows, 1.0) for rows in pairs], axis=0)
    assert np.abs(unweighted - expected).max() > 0.1 * expected.max()
    assert np.isclose(expected[-1].sum(), 6.0)  # the empty document is one; what fills batches up is none


@pytest.mark.usefixtures("in_double")
def test_what_fills_up_a_block_is_no_document():
    """Six documents in blocks with places to spare: shares, scores and sums are those of SciPy."""
    counts, rng = COUNTS[:6], np.random.default_rng(0)
    model = zoo.PCP.from_data(counts, num_topics=2, num_clusters=3)
    weights, clusters = rng.gamma(2.0, 2.0, 3), rng.gamma(2.0, 1.0, (3, 2))
    words, prior = rng.gamma(2.0, 1.0, (2, 6)), (jnp.asarray(1.0), jnp.full(2, 0.5), jnp.asarray(0.1))
    arrays = dist.Dirichlet(jnp.asarray(weights)), jnp.asarray(clusters), jnp.asarray(words)
    state = without_rows(PCPVBState(*arrays, *prior))
    centres = np.log(np.exp(expected_log(clusters)) @ np.exp(expected_log(words)))
    scores = counts @ centres.T + expected_log(weights)
    shares = special.softmax(scores, axis=1)
    documents = blocks(counts, layout=BlockSizes(2, 16, 4), num_documents=9, num_blocks=5)
    found, score = jax.jit(partial(evaluate, model=model, point=False))(state, documents=documents)
    np.testing.assert_allclose(found[:6], shares, rtol=1e-12)
    assert not np.asarray(found[6:]).any()
    np.testing.assert_allclose(score, special.logsumexp(scores, axis=1).sum(), rtol=1e-12)
    sums = jax.jit(assign)(documents, jnp.asarray(centres.T), jnp.asarray(expected_log(weights)), 1.0)
    np.testing.assert_allclose(sums.by_word, counts.T @ shares, rtol=1e-12)
    np.testing.assert_allclose(sums.sizes, shares.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sums.entropy, special.entr(shares).sum(), rtol=1e-10)


@pytest.fixture(scope="module")
def tree():
    return fit(MODEL, CORPUS, max_iterations=30, **CALL)


# Costly: two fits, in batches and whole; eight planted mistakes are noticed here first.
def test_the_bound_is_nearly_that_of_all_documents_at_once(tree):
    """After 30 passes of six batches within a nat of 588 (measured: .04 to .9 over starts and offsets).

    A pass rises on the whole; with batches that are not taken D/|B| times the end is 26 nats lower.
    """
    objective = tree["trace"].objective.values
    whole = fit(MODEL, CORPUS, num_samples=2, progress=False, max_iterations=200)
    best = float(whole["trace"].objective[-1])
    assert best - 1.0 < objective[-1] <= best + 1e-6 and objective[0] < objective[5] < objective[-1]
    shares = np.sort(tree["variational"].responsibilities.values.mean(axis=0))
    np.testing.assert_allclose(
        shares, np.sort(whole["variational"].responsibilities.values.mean(axis=0)), atol=0.05
    )
    assert log_density(tree, CORPUS[:3]).shape == (3,)
    on = fit(MODEL, CORPUS, init=tree, num_samples=2, progress=False, max_iterations=1, tolerance=0)
    assert (
        objective[-1] < float(on["trace"].objective[0]) < objective[-1] + 0.5
    )  # it is the bound that VB climbs


@pytest.mark.slow
def test_how_chunks_are_cut_does_not_matter_and_a_cut_run_goes_on(tmp_path, monkeypatch):
    """Bit for bit the run that was not cut; of documents in chunks nothing per document is kept."""
    monkeypatch.setattr("inference.driver.checkpoint.SECONDS_BETWEEN_SAVES", 0.0)
    reads = []

    def failing():
        reads.append(0)
        yield from np.split(CORPUS, [30])
        if len(reads) == 4:  # counted, started, passed once, then
            raise OSError("the disk is gone")

    call = CALL | {"max_iterations": 4}
    with pytest.raises(OSError, match="the disk is gone"):
        fit(MODEL, failing, checkpoint=tmp_path / "run.npz", **call)
    resumed = fit(MODEL, lambda: iter(np.split(CORPUS, [30])), checkpoint=tmp_path / "run.npz", **call)
    straight = fit(MODEL, lambda: iter(np.split(CORPUS, [30])), **call)
    otherwise = fit(MODEL, lambda: iter(np.split(CORPUS, [1, 51, 60])), **call)
    for group in ("variational", "trace"):
        for name, value in straight[group].data_vars.items():
            np.testing.assert_array_equal(resumed[group][name], value)
            np.testing.assert_allclose(otherwise[group][name], value, rtol=1e-12)
    assert "responsibilities" not in straight["variational"]
    assert {"responsibilities", "doc_clusters", "observed_data"} <= set(
        straight.attrs["left_out"].split(", ")
    )
    assert straight.attrs["num_observations"] == 90 and int(straight["variational"].num_occupied) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "mean_field"}, "needs all documents at once"),
        ({"learn": ("concentration",)}, "with batch_size but for word_smoothing"),
        ({"learning_decay": 0.5}, r"learning_decay must lie in \(0.5, 1\]"),
        ({"num_restarts": 2}, "batch_size goes with one start for pcp"),
    ],
)
@pytest.mark.filterwarnings("ignore:family='mean_field'")
def test_what_does_not_suit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit(MODEL, CORPUS, batch_size=16, progress=False, **options)


def test_options_have_one_program():
    assert in_batches("structured", "point", 5, (), True, 1.0, 0.7) is in_batches(
        "structured", "point", 5, (), True, 1.0, 0.7
    )
