"""LDA from batches: the gradient without bias, the bound that batch VB finds, chunks, files, interruption."""

import os
import signal
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import zoo
from inference import fit, log_density, transform
from inference.diagnostics import summary
from inference.methods.lda.vb import LDAVBState, natural_gradient
from inference.numerics.documents import BlockSizes, cut
from tests.support.text_cases import COUNTS, WORDS, random_corpus, sparse

CORPUS = random_corpus(90, seed=4)
CALL = {"num_samples": 2, "progress": False, "tolerance": 0, "batch_size": 16, "learning_offset": 1.0}
MODEL = zoo.LDA(num_topics=2)


def test_the_gradient_of_a_batch_is_the_whole_one_on_average():
    """All 15 batches of two of six documents; one that is not weighted by its share is far off."""
    counts = sparse(COUNTS[:6])
    layout = BlockSizes.of(np.bincount(counts.document), 3)
    rng = np.random.default_rng(0)
    gradient = jax.jit(natural_gradient, static_argnums=3)
    with jax.enable_x64(True):
        words = jnp.asarray(rng.gamma(2.0, 1.0, (6, 3)))
        state = LDAVBState(words, jnp.zeros((0, 3)), jnp.full(3, 0.3), jnp.asarray(0.2))

        def of(rows, share):
            held = cut(counts.rows(np.array(rows)), layout=layout, num_documents=6, num_blocks=2)
            return np.asarray(gradient(state, jax.tree.map(jnp.asarray, held), share, 20).gradient)

        whole = of(range(6), 1.0)
        batches = [of(rows, 2 / 6) for rows in combinations(range(6), 2)]
        np.testing.assert_allclose(np.mean(batches, axis=0), whole, rtol=1e-10)
        unweighted = np.mean([of(rows, 1.0) for rows in combinations(range(6), 2)], axis=0)
        assert np.abs(unweighted - whole).max() > 0.1 * np.abs(whole).max()


@pytest.fixture(scope="module")
def tree():
    return fit(MODEL, scipy.sparse.csr_matrix(CORPUS), max_iterations=60, **CALL)


@pytest.mark.slow
def test_the_bound_is_nearly_that_of_all_documents_at_once(tree):
    """Within one per cent of the best of three starts after 60 passes of six batches (measured: 0.7), rising.

    The last step still has weight 0.016, and its noise is what is left: VB of all documents started there
    gains no more. Batches that are not taken D/|B| times end more than four per cent lower.
    """
    whole = fit(MODEL, CORPUS, num_samples=2, progress=False, max_iterations=200, num_restarts=3)
    best = float(np.nanmax(whole["trace"].objective.values))
    found = tree["trace"].objective.values
    assert abs(found[-1] / best - 1) < 1e-2 and found[0] < found[10] < found[-1]
    from_there = fit(MODEL, CORPUS, init=tree, num_samples=2, progress=False, max_iterations=200)
    assert found[-1] < from_there["trace"].objective.values[-1] < best + 1e-2 * abs(best)
    assert tree.attrs["batch_size"] == 16 and tree.attrs["stop_reason"] == "max_iterations"
    assert summary(tree).shape[0] > 0 and log_density(tree, CORPUS[:3]).shape == (3,)
    own = tree["variational"].doc_topic_concentration.values
    shares = transform(tree, CORPUS).values
    np.testing.assert_allclose(shares, own / own.sum(1, keepdims=True), atol=0.05)


def chunked(*sizes):
    """The corpus in chunks of these sizes, as scipy matrices, arrays and sparse counts in turn."""
    parts = np.split(CORPUS, np.cumsum(sizes))
    forms = (scipy.sparse.csr_matrix, np.asarray, sparse)
    return [forms[number % 3](part) for number, part in enumerate(parts)]


def test_how_chunks_are_cut_does_not_matter():
    """Batches are made of them in their order; nothing per document is kept."""
    found = []
    for chunks in (chunked(30, 30), chunked(1, 50, 9)):
        tree = fit(MODEL, lambda chunks=chunks: iter(chunks), max_iterations=3, **CALL)
        found.append(tree["variational"].topic_word_concentration.values)
        assert "doc_topic_concentration" not in tree["variational"]
        assert tree.attrs["num_observations"] == 90 and "observed_data" in tree.attrs["left_out"]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def test_a_run_that_was_cut_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """Killed in the second pass, resumed: the answer of a run that was not."""
    monkeypatch.setattr("inference.driver.checkpoint.SECONDS_BETWEEN_SAVES", 0.0)
    chunks, reads = chunked(30, 30), []

    def failing():
        reads.append(0)
        for number, chunk in enumerate(chunks):
            if len(reads) == 4 and number == 2:  # counted, started, passed once, then
                raise OSError("the disk is gone")
            yield chunk

    call = CALL | {"checkpoint": tmp_path / "run.npz", "max_iterations": 4}
    with pytest.raises(OSError, match="the disk is gone"):
        fit(MODEL, failing, **call)
    resumed = fit(MODEL, lambda: iter(chunks), **call)
    straight = fit(MODEL, lambda: iter(chunks), **CALL, max_iterations=4)
    for group in ("variational", "trace"):
        for name in straight[group].data_vars:
            np.testing.assert_array_equal(resumed[group][name], straight[group][name])


@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_ctrl_c_returns_what_there_is():
    reads, chunks = [], chunked(30, 30)

    def interrupting():
        reads.append(0)
        for chunk in chunks:
            if len(reads) == 5:
                os.kill(os.getpid(), signal.SIGINT)
                reads.append(0)
            yield chunk

    tree = fit(MODEL, interrupting, max_iterations=1000, **CALL | {"tolerance": 1e-9})
    assert tree.attrs["stop_reason"] == "interrupted" and tree.attrs["num_iterations"] < 10
    assert np.isfinite(tree["trace"].objective.values[-1])


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (CORPUS, {"batch_size": 0}, ValueError, "batch_size must be at least 1; got 0"),
        (CORPUS, {"batch_size": 2.5}, TypeError, "batch_size must be a whole number"),
        (CORPUS, {"learn": ("topic_prior",)}, ValueError, "with batch_size but for word_smoothing"),
        (CORPUS, {"documents": "continue"}, ValueError, "needs all documents at once"),
        (CORPUS, {"num_restarts": 2}, ValueError, "batch_size goes with one start for lda; got num_rest"),
        (CORPUS, {"learning_decay": 0.5}, ValueError, r"learning_decay must lie in \(0.5, 1\]"),
        (CORPUS, {"learning_offset": -1}, ValueError, "learning_offset must be a positive number"),
        (CORPUS, {"sample_weight": np.ones(90)}, ValueError, "do not take sample_weight"),
        (CORPUS, {"method": "gibbs"}, ValueError, "method 'gibbs' of lda does not take batch_size"),
        (iter(chunked(30)), {}, TypeError, "an iterator can be read only once"),
        (lambda: iter([]), {}, ValueError, "there are no documents"),
        ([CORPUS[:9], CORPUS[9:, :4]], {}, ValueError, "chunk 1 has 4 words; those before it have 6"),
        ([CORPUS[:9], -CORPUS[9:]], {}, ValueError, "chunk 1: counts must be whole numbers of at least 0"),
    ],
)
def test_what_does_not_suit_is_refused(data, options, error, message):
    own = {"batch_size": 16, "progress": False} | options
    with pytest.raises(error, match=message):
        fit(MODEL, data, **own)


@pytest.mark.slow
def test_words_keep_their_names_and_empty_documents_are_named():
    import pandas as pd

    tables = [pd.DataFrame(part, columns=WORDS) for part in (CORPUS[:40], np.zeros((1, 6)), CORPUS[41:])]
    with pytest.warns(UserWarning, match=r"1 of 90 documents have no words \(rows 40\)"):
        tree = fit(MODEL, tables, max_iterations=1, **CALL)
    assert tree["variational"].word.values.tolist() == WORDS
    tables[2] = tables[2].rename(columns={"ball": "bell"})
    with pytest.raises(ValueError, match="chunk 2 has words of other names"):
        fit(MODEL, tables, **CALL)
