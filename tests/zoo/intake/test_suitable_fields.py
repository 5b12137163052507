"""Fields that suit a data set: all models of it score the same kind of thing."""

import numpy as np
import pytest
import scipy.sparse

import zoo
from zoo.intake.suitable_fields import kind_of_cells, suitable_fields

RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(12, 3))
BINARY = RNG.integers(0, 2, size=(12, 3)).astype(float)
COUNTS = RNG.integers(0, 5, size=(12, 3)).astype(float)
HOLES = np.where(np.eye(12, 3) > 0, np.nan, NUMBERS)


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (NUMBERS, "real"),
        (BINARY, "yes/no"),
        (np.where(np.eye(12, 3) > 0, np.nan, BINARY), "yes/no"),
        (COUNTS, "count"),
        (-COUNTS, "real"),
        (scipy.sparse.csr_array(COUNTS), "count"),
    ],
)
def test_cells_are_judged_by_their_values(x, kind):
    assert kind_of_cells(x) == kind


@pytest.mark.parametrize("x", [NUMBERS, BINARY, COUNTS, HOLES], ids=["numbers", "binary", "counts", "holes"])
@pytest.mark.parametrize("name", ["Mixture", "EPCA", "DEPCAM"])
def test_models_take_the_data_with_their_fields(name, x):
    model = getattr(zoo, name)
    filled = model.from_data(x, **suitable_fields(model, (x,)))
    filled.check(x)
    if name != "Mixture":
        family = {"real": "Gaussian", "yes/no": "Bernoulli", "count": "Poisson"}[kind_of_cells(x)]
        assert type(filled.family).__name__ == family and filled.num_latents == 2


def test_a_column_without_events_stays_in_the_comparison():
    counts = COUNTS * [1, 0, 1]
    fields = suitable_fields(zoo.Mixture, (counts,))
    zoo.Mixture.from_data(counts, **fields).check(counts)
    np.testing.assert_allclose(fields["components"].rate, 1 / np.maximum(counts.mean(axis=0), 1 / 24))


@pytest.mark.parametrize("name", ["EPCA", "DEPCAM"])
def test_priors_of_numbers_are_in_the_units_of_the_data(name):
    model = getattr(zoo, name)
    tables = (scale * NUMBERS for scale in (1.0, 10.0))
    here, there = (model.from_data(x, **suitable_fields(model, (x,))) for x in tables)
    assert here.family.learns_noise and there.family.learns_noise
    powers = {"unit": 1, "loc_mean": 1, "offset_mean": 1, "offset_variance": 2, "sparsity": -1}
    powers |= {"noise_rate": 2} if name == "DEPCAM" else {}
    found = [field for field in powers if hasattr(here, field)]
    assert len(found) == {"EPCA": 2, "DEPCAM": 4}[name]
    for field in found:
        np.testing.assert_allclose(getattr(there, field), getattr(here, field) * 10.0 ** powers[field])


def test_documents_go_to_models_of_documents():
    documents = scipy.sparse.csr_array(COUNTS)
    assert suitable_fields(zoo.LDA, (documents,)) == {}
    mixture = zoo.Mixture.from_data(documents, **suitable_fields(zoo.Mixture, (documents,)))
    assert type(mixture.components).__name__ == "MultinomialDirichlet"


def test_two_columns_leave_room_for_noise():
    assert suitable_fields(zoo.PPCA, (NUMBERS[:, :2],)) == {"num_latents": 1}


def test_two_views_have_their_own_families():
    fields = suitable_fields(zoo.Paired, (BINARY, NUMBERS[:, :1]))
    assert fields["num_shared"] == 1 and fields["num_specific"] == (1, 0) and len(fields) == 3
    assert fields["families"][0] == "bernoulli" and fields["families"][1].learns_noise
    zoo.Paired.from_data(BINARY, NUMBERS[:, :1], **fields)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("PPCA", (BINARY,), "do not compare with probabilities of zeros and ones"),
        ("PPCA", (NUMBERS, NUMBERS), "takes 1 part of data; there are 2"),
        ("SPPCA", (NUMBERS,), "takes 2 parts of data; there is 1"),
        ("LDA", (COUNTS,), "as a sparse matrix"),
        ("EPCA", (scipy.sparse.csr_array(COUNTS),), "documents given their lengths"),
        ("KernelPCA", (NUMBERS,), "no density of rows to compare"),
    ],
)
def test_what_cannot_be_compared_says_why(name, data, message):
    with pytest.raises((TypeError, ValueError), match=message):
        suitable_fields(getattr(zoo, name), data)
