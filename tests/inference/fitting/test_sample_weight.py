"""A row of weight w counts as w copies of it."""

import numpy as np
import pytest
import scipy.sparse
from component_families import mixture, rows

import zoo
from inference import fit
from inference.fitting import in_memory


@pytest.mark.cases_by_default(1)
@pytest.mark.parametrize("method", ["vb", "em"])
@pytest.mark.parametrize(
    "name", ["GaussianWishart", pytest.param("MultinomialDirichlet", marks=pytest.mark.slow)]
)
def test_integer_weights_are_repeated_rows(method, name):
    x = rows(name, 40)
    weight = np.random.default_rng(0).integers(0, 4, 40)
    r = np.random.default_rng(1).dirichlet(np.full(3, 0.3), 40)
    model = mixture(name, concentration=1.0)
    call = {"method": method, "max_iterations": 12, "tolerance": 0, "num_samples": 5}
    data = scipy.sparse.csr_matrix(x) if name == "MultinomialDirichlet" else x
    weighted = fit(model, data, sample_weight=weight, init={"responsibilities": r}, **call)
    repeated = np.repeat(x, weight, axis=0)
    copies = fit(model, repeated, init={"responsibilities": np.repeat(r, weight, axis=0)}, **call)
    np.testing.assert_allclose(weighted["trace"]["objective"], copies["trace"]["objective"], rtol=1e-10)
    shares = weighted["variational"]["responsibilities"].to_numpy()
    np.testing.assert_allclose(
        np.repeat(shares, weight, axis=0), copies["variational"]["responsibilities"], atol=1e-9
    )
    assert int(weighted["variational"]["num_occupied"]) == int(copies["variational"]["num_occupied"])
    np.testing.assert_array_equal(weighted["constant_data"]["sample_weight"], weight)


@pytest.mark.slow
def test_starts_and_many_blocks_are_weighted(monkeypatch):
    """Blocks of eight rows: the padding of the last has weight zero whatever the weights are."""
    from inference.numerics import weighted_rows as row_blocks

    x = rows("GaussianWishart", 43)
    model = mixture("GaussianWishart", concentration=1.0)
    call = {"max_iterations": 6, "tolerance": 0, "num_samples": 5, "sample_weight": np.linspace(0.1, 3.0, 43)}
    for init in ("kmeans", "pca"):
        one_block = fit(model, x, init=init, **call)
        with monkeypatch.context() as patch:
            patch.setattr(row_blocks.sum_over_rows, "__defaults__", (8,))
            import jax

            jax.clear_caches()
            many = fit(model, x, init=init, **call)
        jax.clear_caches()
        np.testing.assert_allclose(one_block["trace"]["objective"], many["trace"]["objective"], rtol=1e-10)


@pytest.mark.parametrize(
    ("weight", "options", "error", "message"),
    [
        (-np.ones(9), {}, ValueError, "sample_weight must be at least 0 and finite; row 0 has -1"),
        ([1.0] * 8 + [np.nan], {}, ValueError, "sample_weight must be at least 0 and finite; row 8 has nan"),
        (np.zeros(9), {}, ValueError, "sample_weight is zero for every row"),
        (np.ones(5), {}, ValueError, r"sample_weight must have shape \(9,\), one for each row; got \(5,\)"),
        ("heavy", {}, TypeError, "sample_weight='heavy' names a column, and the data have no names"),
        (
            np.ones(9),
            {"method": "collapsed_gibbs"},
            ValueError,
            "method 'collapsed_gibbs' of mixture does not take sample_weight: use method='vb'",
        ),
        (
            np.arange(9) / 2,
            {"method": "gibbs"},
            ValueError,
            "gibbs takes whole numbers as sample_weight.* row 1 has 0.5: use method='nuts'",
        ),
    ],
)
def test_bad_weights_are_refused(weight, options, error, message):
    with pytest.raises(error, match=message):
        fit(mixture("GaussianWishart"), rows("GaussianWishart", 9), sample_weight=weight, **options)


@pytest.mark.parametrize("weight", [None, np.array([0.5, 0, 2, 3.5, 1, 0])])
def test_the_tolerance_is_per_row_and_a_row_of_weight_w_counts_w_times(weight, monkeypatch):
    """What the loop is told of the number of rows, before anything is compiled."""
    told = []

    def stop(*arguments, num_rows, **settings):
        told.append(num_rows)
        raise InterruptedError

    monkeypatch.setattr(in_memory, "ascend", stop)
    x = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(InterruptedError):
        fit(zoo.Mixture(num_components=2), x, method="vb", sample_weight=weight)
    assert told == [6 if weight is None else 7.0]
