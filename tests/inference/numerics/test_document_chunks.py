"""Products of sparse counts by blocks of documents are those of the dense matrix, however they are cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from inference.methods.pcp.vb_updates import assign
from inference.numerics import documents as document_blocks
from inference.numerics.documents import cut
from zoo.sparse import SparseCounts

RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(0.3, (90, 40)) * RNG.poisson(1.5, (90, 1))  # a quarter of the documents is empty


@pytest.fixture(params=[2**17, 40], ids=["one block", "many"])
def documents(request, monkeypatch):
    """The documents in one block or in many, by the numbers that the cache is to hold."""
    monkeypatch.setattr(document_blocks, "CACHED_NUMBERS", request.param)
    with jax.enable_x64(True):
        documents = cut(SparseCounts.from_matrix(scipy.sparse.csr_array(COUNTS)), 3)
        number = documents.blocks.owner.shape[0]
        assert number == 1 if request.param > 100 else number > 5
        yield jax.tree.map(jnp.asarray, documents)


def test_products_are_those_of_the_dense_matrix(documents):
    by_word, by_document = (jnp.asarray(RNG.normal(size=(size, 3))) for size in (40, 90))
    np.testing.assert_allclose(documents.times(by_word), COUNTS @ by_word, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(documents.transposed_times(by_document), COUNTS.T @ by_document, atol=1e-12)


@pytest.mark.parametrize("power", [1.0, 0.1])
def test_clusters_of_documents_are_those_of_the_dense_scores(documents, power):
    """Expected tokens, sizes and entropy; a power of the likelihood leaves the weights as they are."""
    log_centres, log_weights = np.log(RNG.dirichlet(np.ones(40), 3)).T, np.log([0.2, 0.5, 0.3])
    found = assign(documents, jnp.asarray(log_centres), jnp.asarray(log_weights), power)
    scores = power * COUNTS @ log_centres + log_weights
    r = np.exp(scores - scores.max(1, keepdims=True))
    r /= r.sum(1, keepdims=True)
    np.testing.assert_allclose(found.by_word, COUNTS.T @ r, atol=1e-12)
    np.testing.assert_allclose(found.sizes, r.sum(0), rtol=1e-12)
    np.testing.assert_allclose(found.entropy, -(r * np.log(r)).sum(), rtol=1e-10)


@pytest.mark.parametrize("batched", ["restarts", "devices", "both"])
def test_rows_are_added_for_several_restarts_and_devices(batched):
    """The sums of words for each of a batch; a word that comes twice counts twice."""
    with jax.enable_x64(True):
        to, place = jnp.array([[0, 2, 2, 4], [1, 1, 0, 3]]), jnp.array([[0, 0, 1, 1], [1, 0, 1, 0]])
        factor = jnp.asarray(RNG.gamma(1.0, size=(2, 4)))
        rows, total = jnp.asarray(RNG.normal(size=(3, 2, 2, 3))), jnp.zeros((3, 2, 5, 3))
        add = document_blocks._add_rows
        expected = np.zeros((3, 2, 5, 3))
        for restart, device, cell in np.ndindex(3, 2, 4):
            row = rows[restart, device, place[device, cell]]
            expected[restart, device, to[device, cell]] += factor[device, cell] * row
        if batched == "restarts":
            own = (to[0], factor[0])
            found = jax.vmap(lambda total, rows: add(total, *own, rows, place[0]))(total[:, 0], rows[:, 0])
            expected = expected[:, 0]
        elif batched == "devices":
            found, expected = jax.vmap(add)(total[0], to, factor, rows[0], place), expected[0]
        else:
            found = jax.vmap(lambda total, rows: jax.vmap(add)(total, to, factor, rows, place))(total, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_over_devices_the_shares_add_up(documents):
    """As many shares as there are devices; tests/inference/numerics/test_devices.py has several."""
    by_word = jnp.asarray(RNG.normal(size=(40, 3)))
    shared = documents.over_devices(len(jax.devices()))
    np.testing.assert_allclose(shared.times(by_word), COUNTS @ by_word, atol=1e-12)


def test_shares_of_blocks_on_one_device_add_up():
    """Twenty blocks in two shares, as devices hold them: each share knows its own documents alone."""
    with jax.enable_x64(True):
        counts = SparseCounts.from_matrix(scipy.sparse.csr_array(COUNTS[:20]))
        layout = document_blocks.BlockSizes(2, int(COUNTS[:20].astype(bool).sum(1).max()) + 1, 8)
        held = cut(counts, 3, layout=layout, num_blocks=20)
        assert held.blocks.owner.shape[0] == 20
        shares = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(2, 10, *leaf.shape[1:]), held.blocks)
        whole = document_blocks.DocumentBlocks(shares, held.log_coefficient, held.shape)
        by_word, by_document = (jnp.asarray(RNG.normal(size=(size, 3))) for size in (40, 20))
        np.testing.assert_allclose(whole.times(by_word), COUNTS[:20] @ by_word, rtol=1e-12, atol=1e-12)
        found = whole.transposed_times(by_document)
        np.testing.assert_allclose(found, COUNTS[:20].T @ by_document, rtol=1e-12, atol=1e-12)
        theta, beta = jnp.exp(by_document), jnp.exp(by_word)
        ratio = COUNTS[:20] / (theta @ beta.T)
        sums = document_blocks.topic_pass(whole, theta, beta)
        np.testing.assert_allclose(sums.by_document, theta * (ratio @ beta), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sums.by_word, beta * (ratio.T @ theta), rtol=1e-12, atol=1e-12)
        logs = np.sum(COUNTS[:20] * np.log(theta @ beta.T))
        np.testing.assert_allclose(sums.log_sums, logs, rtol=1e-12)
