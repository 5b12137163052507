"""A row of weight w counts as w copies of it."""

import warnings

import numpy as np
import pytest
import scipy.sparse

import zoo
from inference import fit, model_of, predict
from inference.convergence.identifiable import invariants
from inference.diagnostics.arviz_trees import for_arviz
from inference.fitting import in_memory
from tests.support.component_families import FAMILIES, mixture, rows
from zoo import conjugate
from zoo.checks import column_moments
from zoo.fields import names_of


@pytest.mark.filterwarnings("ignore:mixture by gibbs has not converged")
@pytest.mark.parametrize("method", ["vb", "em", "gibbs"])
def test_clusters_are_numbered_by_the_weights_of_their_rows(method):
    """Guards cluster 0 of a sampler, which was that of most rows, whatever their weights."""
    few, many = (
        np.random.default_rng(0).normal(size=(12, 1)),
        9 + np.random.default_rng(1).normal(size=(28, 1)),
    )
    call = {"num_warmup": 20, "num_samples": 20} if method == "gibbs" else {}
    data, weight = np.concatenate([few, many]), np.repeat([21.0, 1.0], [12, 28])
    tree = fit(
        zoo.Mixture(num_components=2), data, sample_weight=weight, method=method, progress=False, **call
    )
    assert predict(tree, np.array([[0.0], [9.0]])).values.tolist() == [0, 1]


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


def test_densities_of_weighted_rows_are_those_of_repeated_rows():
    """Log joint and mean log density of one state; the log likelihood that ArviZ scales sums to the same."""
    x, weight = rows("GaussianWishart", 40), np.random.default_rng(0).integers(0, 4, 40)
    r = np.random.default_rng(1).dirichlet(np.full(3, 0.3), 40)
    model = mixture("GaussianWishart", concentration=1.0)
    call = {"method": "vb", "max_iterations": 12, "tolerance": 0, "num_samples": 40}
    weighted = fit(model, x, sample_weight=weight, init={"responsibilities": r}, **call)
    repeated = np.repeat(r, weight, axis=0)
    copies = fit(model, np.repeat(x, weight, axis=0), init={"responsibilities": repeated}, **call)
    found, wanted = (invariants(tree) for tree in (weighted, copies))
    for name in ("lp", "mean_log_likelihood"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-9)
    sums = [for_arviz(tree)["log_likelihood"].to_dataset().sum("observation") for tree in (weighted, copies)]
    np.testing.assert_allclose(*(own.to_dataarray() for own in sums), rtol=1e-9)


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


def unfilled(name):
    """What `fit` is given where nothing is: the model whose default prior is read off the rows."""
    if name == "PPCA":
        return zoo.PPCA(num_latents=1, loading_prior="ard", noise="diagonal")
    if name == "standardized PPCA":
        return zoo.PPCA(num_latents=1, loading_prior="gaussian", standardize=True)
    given = {
        "GaussianKnownCovariance": {"covariance": np.eye(2)},
        "BinomialBeta": {"total_count": 4.0},
        "GammaKnownShape": {"known_shape": 1.5},
    }.get(name, {})
    families = (conjugate.GaussianWishart(), conjugate.PoissonGamma(), conjugate.BernoulliBeta())
    product = {"families": families, "columns": ((0, 3), (1,), (2,))}
    products = {"Product": product, "LogGaussian": product | {"logs": (3,)}}
    products["LogNormal"] = {"families": (conjugate.NormalGamma(),), "columns": ((0, 1),), "logs": (0, 1)}
    if name in products:
        return zoo.Mixture(components=conjugate.Product(**products[name]), num_components=3)
    return zoo.Mixture(components=getattr(conjugate, name)(**given), num_components=3)


def read_off(model):
    """The numbers of a model's prior, by name."""
    components = getattr(model, "components", None)
    parts = (model, *getattr(components, "families", (components,) if components else ()))
    found = {
        f"{i} {name}": getattr(part, name) for i, part in enumerate(parts) for name in names_of(part).leaves
    }
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("name", [*FAMILIES, "PPCA", "standardized PPCA"])
def test_default_priors_are_those_of_copies(name, holes):
    """Rows of weight zero, which are far away, count as absent, and those of weight w as w rows."""
    x, weight = rows(name, 40), np.random.default_rng(0).integers(0, 4, 40)
    if holes and name not in ("GaussianKnownMean", "SharedGaussianWishart", "MultinomialDirichlet"):
        x[np.random.default_rng(1).uniform(size=x.shape) < 0.1] = np.nan
    if name not in ("BernoulliBeta", "BinomialBeta", "CategoricalDirichlet", "Product", "LogGaussian"):
        x[weight == 0] *= 50
    model = unfilled(name)
    weighted = read_off(model.with_sizes_from(x, sample_weight=weight))
    copies = read_off(model.with_sizes_from(np.repeat(x, weight, axis=0)))
    assert weighted.keys() == copies.keys()
    for field, value in copies.items():
        np.testing.assert_allclose(weighted[field], value, rtol=1e-6, err_msg=field)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (zoo.Mixture(num_components=2), "vb"),
        (zoo.Mixture(num_components=2), "em"),
        (zoo.Mixture(num_components=2), "gibbs"),
        (zoo.PPCA(num_latents=1, loading_prior="ard"), "vb"),
        (zoo.PPCA(num_latents=1, loading_prior="gaussian"), "em"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_the_stored_prior_is_that_of_the_rows_that_count(model, method):
    """From the call of `fit`, whole or in batches, to the numbers that it stores."""
    rng = np.random.default_rng(0)
    x = np.vstack([rng.normal(5000.0, 1.0, (6, 2)), rng.normal(size=(30, 2))])
    weight = np.repeat([0.0, 1.0], [6, 30])
    short = {"gibbs": {"num_warmup": 0, "num_samples": 1, "num_chains": 1, "split_merge": 0}}
    call = short.get(method, {"max_iterations": 1, "num_restarts": 1, "num_samples": 1})
    wanted = read_off(model.with_sizes_from(x[6:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of one step
        tree = fit(model, x, method=method, sample_weight=weight, **call)
    for field, value in read_off(model_of(tree)).items():
        np.testing.assert_allclose(value, wanted[field], rtol=1e-6, err_msg=field)


def said_of(model, x, weight=None):
    """The refusal of a call, or the first warning before it runs."""
    with pytest.raises((ValueError, UserWarning)) as said, warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model, x, method="em", sample_weight=weight, max_iterations=1, num_restarts=1)
    return str(said.value)


@pytest.mark.parametrize("case", ["location", "scales"])
def test_checks_say_of_weighted_rows_what_they_say_of_copies(case):
    """The figures in the words are means and deviations, which weights from 1 to 9 change."""
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(30, 2)) * [1.0, 1e-4], rng.integers(0, 10, 30)
    model = zoo.PPCA(num_latents=1)
    if case == "location":
        far = {"loc": np.full(2, 1e9), "scale_matrix": np.eye(2), "degrees_of_freedom": 4.0}
        model = zoo.Mixture(conjugate.GaussianWishart(mean_precision=1.0, **far), num_components=2)
    told = said_of(model, x, weight)
    assert ("far apart" if case == "location" else "very different scales") in told
    assert told == said_of(model, np.repeat(x, weight, axis=0))
    assert told != said_of(model, x)


@pytest.mark.parametrize("holes", [False, True])
def test_moments_of_weighted_rows_are_those_of_copies(holes):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(3.0, 2.0, (40, 3)), rng.integers(0, 4, 40)
    x[:, 2] = 7.1
    if holes:
        x[rng.random(x.shape) < 0.2] = np.nan
    copies = column_moments(np.repeat(x, weight, axis=0))
    np.testing.assert_allclose(column_moments(x, weight), copies, rtol=1e-12, atol=0)
