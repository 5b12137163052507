"""A topic model's documents as ArviZ's pictures of predictions want them."""

import numpy as np
import xarray as xr

from inference.results.groups import group_of

__all__ = ["with_dense_counts"]


def with_dense_counts(tree: xr.DataTree) -> xr.DataTree:
    """The fit with its documents as one table ``counts`` instead of their cells that are not zero.

    ``arviz.plot_ppc_dist`` (of counts with ``kind="ecdf"``) and its like compare variables of one name and
    one shape in ``observed_data`` and ``posterior_predictive``. A fit stores the cells, which are few;
    replicated documents are a table.

    Args:
        tree: a fit of LDA, pLSI or PCP that holds its documents.

    Returns:
        A new tree, ``counts`` in ``observed_data`` with dims (document, word); our own functions want the
        old one.

    Raises:
        ValueError: the fit holds no documents.
    """
    cells = group_of(tree, "observed_data")
    if not {"document", "word", "count"} <= set(cells.data_vars):
        raise ValueError(f"with_dense_counts is for documents; this fit's data are {sorted(cells.data_vars)}")
    shape = {"document": int(cells.attrs["num_documents"]), "word": int(cells.attrs["num_words"])}
    counts = np.zeros(tuple(shape.values()))
    np.add.at(counts, (cells["document"].values, cells["word"].values), cells["count"].values)
    coords = {
        dim: group.coords[dim].values
        for group in tree.children.values()
        for dim, size in shape.items()
        if dim in group.coords and group.sizes.get(dim) == size
    }
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    groups["observed_data"] = xr.Dataset({"counts": (tuple(shape), counts)}, coords)
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs))} | groups)
