"""Documents as a table: ArviZ draws predictions of a topic model."""

import arviz
import numpy as np
import pytest
import xarray as xr

from inference.topics.document_checks import with_dense_counts
from tests.support.text_cases import COUNTS


def test_arviz_draws_replicated_documents():
    documents, words = np.nonzero(COUNTS)
    cells = {"document": documents, "word": words, "count": COUNTS[documents, words]}
    drawn = np.random.default_rng(0).poisson(COUNTS, size=(1, 8, *COUNTS.shape)).astype(float)
    dims = ("chain", "draw", "document", "word")
    tree = xr.DataTree.from_dict(
        {
            "observed_data": xr.Dataset(
                {name: ("nonzero", values) for name, values in cells.items()},
                attrs={"num_documents": COUNTS.shape[0], "num_words": COUNTS.shape[1]},
            ),
            "posterior_predictive": xr.Dataset({"counts": (dims, drawn)}, {"word": list("abcdef")}),
        }
    )
    with pytest.raises(ValueError, match="sample_dims"):
        arviz.plot_ppc_dist(tree, kind="ecdf", num_samples=5)  # cells against a table
    dense = with_dense_counts(tree)
    np.testing.assert_array_equal(dense["observed_data"]["counts"], COUNTS)
    assert list(dense["observed_data"]["word"].values) == list("abcdef")
    assert arviz.plot_ppc_dist(dense, kind="ecdf", num_samples=5) is not None
    with pytest.raises(ValueError, match="for documents"):
        with_dense_counts(dense)
