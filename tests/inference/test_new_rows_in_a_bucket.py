"""New rows are answered beside copies of the first, so that few programs serve all numbers of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo
from inference import fit, log_density, predict, prediction, transform
from inference.numerics.weighted_rows import bucket, in_own_shapes

X = np.random.default_rng(0).normal(size=(30, 3)) + np.repeat([0.0, 4.0], 15)[:, None]
GAPS = np.where(np.arange(30)[:, None] % 4 == np.arange(3), np.nan, X)
BITS = np.where(np.isnan(GAPS), np.nan, GAPS > 2.0)
FEW = {"max_iterations": 3, "tolerance": 0.0, "num_samples": 4, "progress": False}
COUNTS = np.random.default_rng(1).poisson(0.7, size=(30, 9))
CASES = {
    "lda": (zoo.LDA(num_topics=3, topic_prior=[0.1, 0.4, 2.0]), COUNTS, "vb", FEW | {"num_restarts": 1}),
    "pcp": (zoo.PCP(num_topics=2, num_clusters=3), COUNTS, "vb", FEW),
    "mixture": (zoo.Mixture(num_components=2), X, "vb", FEW | {"num_restarts": 1}),
    "ppca": (zoo.PPCA(num_latents=1), GAPS, "em", FEW),
    "ppca vb": (zoo.PPCA(num_latents=1, loading_prior="ard"), GAPS, "vb", FEW),
    "epca": (zoo.EPCA(family="bernoulli", num_latents=1), BITS, "map", FEW | {"num_restarts": 1}),
}


@pytest.mark.filterwarnings("ignore:the learnt")
@pytest.mark.parametrize("case", CASES)
def test_copies_beside_them_change_no_row(case):
    model, data, method, settings = CASES[case]
    tree = fit(model, data, method=method, seed=0, **settings)
    questions = (transform, log_density) if case == "lda" else (transform, predict, log_density)
    beside = [ask(tree, data[:7]) for ask in questions]
    for ask, found in zip(questions, beside, strict=True):
        with in_own_shapes():
            alone = ask(tree, data[:7])
        assert found.sizes == alone.sizes
        np.testing.assert_allclose(found, alone, rtol=1e-9, atol=1e-9)
        if "standard_deviation" in alone.coords:
            own = (value.coords["standard_deviation"] for value in (found, alone))
            np.testing.assert_allclose(*own, rtol=1e-9, atol=1e-9)


def test_numbers_of_rows_share_programs_at_no_more_than_twice_the_work():
    shapes = []

    def answer(values, model, data):
        shapes.append(data[0].shape)
        return {"sums": data[0].sum(axis=1) + values, "none": None}

    asked = prediction._in_a_bucket(answer, place=2)
    for num_rows in (1, 5, 7, 64):
        with jax.enable_x64(True):
            found = asked(1.0, None, (X[np.arange(num_rows) % 30],))
        np.testing.assert_allclose(found["sums"], X[np.arange(num_rows) % 30].sum(axis=1) + 1.0)
    assert shapes == [(1, 3), (8, 3), (8, 3), (64, 3)]
    assert bucket(65, prediction.FEWEST_NEW) == 72


def test_an_answer_that_sees_other_rows_would_be_told():
    def answer(values, data):  # planted
        return data[0] - jnp.mean(data[0], axis=0)

    asked = prediction._in_a_bucket(answer, place=1)
    with jax.enable_x64(True):
        assert np.abs(asked(None, (X[:7],)) - answer(None, (X[:7],))).max() > 0.1
