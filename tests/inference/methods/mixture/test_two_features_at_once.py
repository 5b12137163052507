"""Two features of one fit of a mixture: the plain path gives the same bounds.

Weights are repeated rows; sparse counts are dense ones; chunks are one array; the first of several starts is
the start alone; single precision is double precision to rounding; two sticks at a concentration of 1 have a
uniform fraction, as a Dirichlet distribution of total concentration 2 has.
"""

from functools import cache

import numpy as np
import pytest
import scipy.sparse

import zoo
from inference import fit
from zoo.conjugate import GaussianWishart, MultinomialDirichlet

pytestmark = pytest.mark.filterwarnings("ignore:the truncation is too short")  # of two sticks
RNG = np.random.default_rng(11)
X = RNG.normal(size=(14, 2)) + np.where(np.arange(14) % 3 == 0, 3.0, 0.0)[:, None]
HOLES = np.where(RNG.uniform(size=X.shape) < 0.2, np.nan, X)
COUNTS = RNG.multinomial(9, [0.2, 0.1, 0.3, 0.4], 14).astype(float)
WEIGHT = np.arange(14) % 4
SHARES = RNG.dirichlet([1.0, 1.0], 14)
GAUSSIAN = GaussianWishart(
    loc=[0.5, 0.5],
    mean_precision=0.5,
    scale_matrix=[[1.5, 0.1], [0.1, 0.8]],
    degrees_of_freedom=4.0,
    center=np.nanmean(HOLES, axis=0),  # where missing cells are at first, in double precision too
)


def call_of(features):
    """The model, the data and the other arguments of a fit with these features."""
    is_of_counts = bool(features & {"sparse", "dense"})
    components = MultinomialDirichlet([0.7, 1.2, 2.0, 0.4], num_tokens=9) if is_of_counts else GAUSSIAN
    weights = {"weight_prior": "stick_breaking"} if "sticks" in features else {"concentration": 2.0}
    model = zoo.Mixture(components=components, num_components=2, **weights)
    x = COUNTS if is_of_counts else HOLES if "missing" in features else X
    is_bayesian = bool(features & {"vb", "sticks", "hyperparameters", "batches"})
    learns_late = features >= {"hyperparameters"} and not features.isdisjoint({"restarts", "one start"})
    call = {"tolerance": 0, "num_samples": 2, "progress": False, "seed": 3}
    call["max_iterations"] = 210 if learns_late else 6
    call["method"] = "vb" if is_bayesian else "em"  # whose programs are fewer
    if not features & {"restarts", "one start"}:
        call["init"] = {"responsibilities": SHARES}
    if "copies" in features:
        x = np.repeat(x, WEIGHT, axis=0)
        call["init"] = {"responsibilities": np.repeat(SHARES, WEIGHT, axis=0)}
    if "batches" in features:
        call["batch_size"] = 14 if "restarts" in features else 5
    if "chunks" in features:
        x = np.split(x, (3, 9))
        call.pop("init", None)  # which goes with an array
    given = {
        "weights": {"sample_weight": WEIGHT},
        "restarts": {"num_restarts": 3},
        "one start": {"num_restarts": 1},
        "float32": {"dtype": "float32"},
        "hyperparameters": {"learn": ("concentration" if is_of_counts else "mean_precision",)},
    }
    for feature, own in given.items():
        call |= own if feature in features else {}
    return model, scipy.sparse.csr_matrix(x) if "sparse" in features else x, call


@cache
def tree_of(*features):
    model, x, call = call_of(frozenset(features))
    return fit(model, x, **call)


def bounds(*features):
    return tree_of(*features)["trace"]["objective"].to_numpy()


# Costly: two fits a case; no other test has weights beside these three.
@pytest.mark.parametrize("other", ["sparse", "missing", "hyperparameters"])
def test_weighted_rows_are_repeated_ones(other):
    np.testing.assert_allclose(bounds("weights", other), bounds("copies", other), rtol=1e-10)
    assert abs(bounds("weights", other)[-1] / bounds(other)[-1] - 1) > 1e-2  # the weights count


@pytest.mark.cases_by_default(3)
@pytest.mark.parametrize("other", ["weights", "missing", "sticks", "hyperparameters", "float32"])
def test_the_first_of_several_starts_is_the_start_alone(other):
    tree = tree_of("restarts", other)
    each = tree["trace"]["objective_by_restart"].to_numpy()
    tolerance = 1e-5 if other == "float32" else 1e-9
    np.testing.assert_allclose(each[:, 0], bounds("one start", other), rtol=tolerance)
    np.testing.assert_array_equal(bounds("restarts", other), each[:, each[-1].argmax()])
    assert np.ptp(each[0]) > 1e-3  # they start apart


@pytest.mark.cases_by_default(3)
@pytest.mark.parametrize(
    "features",
    [
        ("weights",),
        ("batches",),
        ("batches", "chunks"),
        ("sparse",),
        ("missing",),
        ("sticks",),
        ("hyperparameters",),
    ],
)
def test_single_precision_is_double_precision_to_rounding(features):
    tree = tree_of("float32", *features)
    assert tree["posterior"]["weights"].dtype == np.float32
    double = bounds(*features)
    np.testing.assert_allclose(bounds("float32", *features), double, rtol=2e-5)
    assert np.abs(bounds("float32", *features) / double - 1).max() > 1e-12  # and it is not double precision


@pytest.mark.parametrize("other", ["missing", "sparse"])
def test_two_sticks_at_one_are_a_dirichlet_of_two(other):
    np.testing.assert_allclose(bounds("sticks", other), bounds("vb", other), rtol=1e-10)


def test_hyperparameters_of_sparse_counts_are_those_of_dense_ones():
    np.testing.assert_allclose(
        bounds("sparse", "hyperparameters"), bounds("dense", "hyperparameters"), rtol=1e-10
    )
    assert abs(bounds("sparse", "hyperparameters")[-1] - bounds("sparse")[-1]) > 1e-3  # they were learnt


def test_starts_of_chunks_are_those_of_one_array():
    """A batch holds all rows, so that the starts see the same ones."""
    chunks, whole = (tree_of("batches", "restarts", *own) for own in (("chunks",), ()))
    for name in ("objective_by_restart", "objective"):
        np.testing.assert_array_equal(chunks["trace"][name], whole["trace"][name])
    assert chunks["trace"]["objective_by_restart"].shape[1] == 3
