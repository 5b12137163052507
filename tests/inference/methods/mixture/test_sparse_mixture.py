"""A mixture of multinomials on sparse counts is the same mixture on the dense ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from inference import extend, fit, load, log_density, predict, save
from inference.calibration import conditional_check
from inference.methods.mixture import gibbs
from tests.support.log_joint import log_joint
from zoo import Mixture, SparseCounts
from zoo import sparse as sparse_counts
from zoo.conjugate import MultinomialDirichlet, PoissonGamma


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(12, 0.3), 2)
    return np.stack([rng.multinomial(rng.poisson(20) + 1, topics[i % 2]) for i in range(40)]).astype(float)


@pytest.fixture(scope="module")
def model():
    from_sparse = MultinomialDirichlet.from_data(scipy.sparse.csr_matrix((40, 12)), concentration=0.5)
    return Mixture(components=from_sparse, num_components=3)


@pytest.mark.parametrize("cells_at_once", [8192, 7])
def test_products_with_sparse_counts_are_the_dense_ones(counts, cells_at_once, monkeypatch):
    """All cells at once, or a few, the last of which are filled up."""
    monkeypatch.setattr(sparse_counts, "SCANNED_CELLS", (1, cells_at_once))
    with jax.enable_x64(True):
        sparse = SparseCounts.from_matrix(scipy.sparse.csr_matrix(counts))
        rng = np.random.default_rng(1)
        by_word, by_document = rng.normal(size=(12, 3)), rng.normal(size=(40, 3))
        np.testing.assert_allclose(sparse.times(by_word), counts @ by_word, rtol=1e-12)
        np.testing.assert_allclose(sparse.transposed_times(by_document), counts.T @ by_document, rtol=1e-12)
        np.testing.assert_array_equal(sparse.totals, counts.sum(axis=1))
        logs = jax.grad(lambda probs: jnp.sum(sparse.times(jnp.log(probs))))(jnp.abs(by_word))
        np.testing.assert_allclose(logs, counts.sum(axis=0)[:, None] / np.abs(by_word), rtol=1e-12)
        np.testing.assert_array_equal(sparse.to_dense(), counts)


@pytest.mark.slow
def test_program_and_conditionals_are_those_of_dense_rows(counts, model):
    sparse = SparseCounts.from_matrix(counts)
    with jax.enable_x64(True):
        values = gibbs.ALGORITHM.init(jax.random.key(0), model, sparse).values
        same = gibbs.ALGORITHM.init(jax.random.key(0), model, jnp.asarray(counts)).values
        np.testing.assert_allclose(values["probs"], same["probs"], rtol=1e-10)
        for program in (model, model.explicit):
            given = (
                values if program is not model else {k: v for k, v in values.items() if k != "assignments"}
            )
            dense_density = log_joint(program, given, counts)
            np.testing.assert_allclose(log_joint(program, given, sparse), dense_density, rtol=1e-12)
    small = SparseCounts.from_matrix(counts[:6])
    with jax.enable_x64(True):
        values = gibbs.ALGORITHM.init(jax.random.key(0), model, small).values
    for block in gibbs.blocks_of(model):
        assert conditional_check(model, block, values, (small,)).passed


@pytest.mark.slow
def test_fits_are_those_of_dense_rows(counts, model, tmp_path):
    sparse = scipy.sparse.csr_matrix(counts)
    r = np.random.default_rng(2).dirichlet(np.ones(3), 40)
    trees = [fit(model, x, init={"responsibilities": r}, num_samples=20) for x in (sparse, counts)]
    np.testing.assert_allclose(*(t["trace"]["objective"] for t in trees), rtol=1e-11)
    np.testing.assert_allclose(*(t["log_likelihood"]["log_likelihood"] for t in trees), rtol=1e-9)
    save(trees[0], tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    new = counts[:7] + 1
    both = [log_density(again, x) for x in (scipy.sparse.csr_matrix(new), new)]
    np.testing.assert_allclose(*both, rtol=1e-10)
    np.testing.assert_array_equal(predict(again, scipy.sparse.csr_matrix(new)), predict(again, new))
    wide = extend(again, "log_likelihood")
    np.testing.assert_allclose(
        wide["log_likelihood"]["log_likelihood"], again["log_likelihood"]["log_likelihood"]
    )


def test_sparse_rows_need_a_family_that_takes_them(counts):
    model = Mixture(components=PoissonGamma.from_data(counts), num_components=2)
    with pytest.raises(TypeError, match="x must be dense: give x.toarray.., or take .*MultinomialDirichlet"):
        fit(model, scipy.sparse.csr_matrix(counts))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (([0, 1], [0, 1], [1.0, -1.0]), r"counts must be whole numbers of at least 0; row 1, column 1 is -1"),
        (([0, 1], [0, 1], [1.0, 0.5]), r"row 1, column 1 is 0.5"),
        (([1, 0], [0, 1], [1.0, 1.0]), "sorted by document"),
        (([0, 1], [0, 5], [1.0, 1.0]), r"word must lie in 0 to 2; got 0 to 5"),
        (([0, 1], [0], [1.0, 1.0]), "vectors of one length"),
    ],
)
def test_bad_cells_are_refused(cells, message):
    with pytest.raises(ValueError, match=message):
        SparseCounts(*cells, shape=(2, 3))
