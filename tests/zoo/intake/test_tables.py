"""What follows from the tables that a model declares."""

import numpy as np
import pandas as pd
import pytest

import zoo
from zoo.intake import ANY, KINDS
from zoo.intake.tables import num_needed, takes_missing, takes_sparse_counts

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(customer_id=range(100, 112))
MODELS = {name: zoo.model_class(name) for name in zoo.MODELS}
SMALL = {"kernelpca": {"noise_variance": 0.1}}


def test_facts_of_the_ten_models():
    parts = {name: model.data_names for name, model in MODELS.items()}
    assert parts["sppca"] == ("x", "y") and parts["lda"] == ("counts",) and parts["paired"] is None
    assert zoo.Paired(("bernoulli",) * 3).data_names == ("y_0", "y_1", "y_2")
    assert {name for name, model in MODELS.items() if model.data[0].holds_documents} == {"lda", "plsi", "pcp"}
    assert {num_needed(model) for model in (zoo.SPPCA(), zoo.PPCA(), zoo.Paired())} == {1}
    misses = {"mixture": zoo.Mixture(), "ppca": zoo.PPCA(), "sppca": zoo.SPPCA(), "epca": zoo.EPCA()}
    assert all(takes_missing(model) for model in misses.values())
    kernel = zoo.KernelPCA(noise_variance=0.1)
    assert not (any(map(takes_missing, (kernel, zoo.SPPCA(kernel="linear"), zoo.LDA()))))
    assert set(ANY) <= set(KINDS.values())


def test_components_say_what_rows_of_a_mixture_may_be():
    counts = RNG.poisson(2.0, size=(12, 3))
    model = zoo.Mixture.from_data(counts, components=zoo.conjugate.MultinomialDirichlet.from_data(counts))
    assert takes_sparse_counts(model) and not takes_missing(model)
    assert not takes_sparse_counts(zoo.Mixture())


@pytest.mark.parametrize("name", ["mixture", "ppca", "kernelpca", "sppca", "epca", "depcam", "paired"])
def test_tables_are_read_as_a_fit_reads_them(name):
    """Guards: ids stayed among the columns of PPCA, SPPCA and KernelPCA."""
    more = {"sppca": [FRAME[["a"]]], "paired": [FRAME]}.get(name, [])
    made = MODELS[name].from_data(FRAME, *more, **SMALL.get(name, {}))
    made.check(X, *(part[["a", "b", "c"][: part.shape[1]]].to_numpy() for part in more))
    if name != "kernelpca":  # which knows no number of columns
        assert made.num_features == ((3, 3) if name == "paired" else 3)
