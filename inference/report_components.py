"""What a report says of the components of a repulsive mixture of PCAs."""

import numpy as np
import pandas as pd
import xarray as xr

from inference.component_picture import (
    plot_component_similarity,
    plot_hinton,
    plot_loading_products,
    plot_overlap,
)
from inference.component_subspaces import (
    component_similarity,
    effective_directions,
    loading_products,
    responsibility_overlap,
)
from inference.identifiable import kind_of
from inference.page import Paragraph, Picture, Table
from inference.tree_groups import labels_of

__all__ = ["local_pca_blocks"]

_MOST_COMPONENTS = 12
_MOST_FEATURES = 64  # of a drawn W W'
_IDENTIFIED = (
    "Read products of loadings, sizes of directions, offsets and shares of rows; the numbers of components, "
    "the order and the signs of their columns mean nothing, nor do axes of equal size or of size zero. The "
    "angular kernel changes with those signs: beside its value stands the range that signs alone can give it."
)


def local_pca_blocks(tree: xr.DataTree) -> list[Paragraph | Picture | Table]:
    """Tables and pictures of the components, and what is identified of them.

    Args:
        tree: a fit of DEPCAM.
    """
    if kind_of(tree) == "sampling" and labels_of(tree) is None:
        return [
            Paragraph(
                "No table of components: labels are matched by the assignments, which this fit does not hold."
            )
        ]
    table = effective_directions(tree)
    if len(table) > _MOST_COMPONENTS:
        return [
            Paragraph(_IDENTIFIED),
            Table(f"The largest {_MOST_COMPONENTS} of {len(table)} components", table[:_MOST_COMPONENTS]),
        ]
    reach = ", ".join(f"{value:.1f}" for value in table["effective"])
    blocks = [
        Paragraph(_IDENTIFIED),
        Table("Components and the directions they use, the largest share of rows first", table),
        Picture(
            "hinton",
            "Sizes of the directions of each component: the area of a square is |phi|.",
            f"Hinton diagram: effective numbers of directions {reach}.",
            plot_hinton(tree),
        ),
    ]
    if len(table) > 1:
        blocks += _pairs(tree)
    products = loading_products(tree)
    if products.sizes["feature"] <= _MOST_FEATURES:
        traces = ", ".join(f"{np.trace(p):.3g}" for p in products.values)
        caption = "W W' of each component: features of one colour move together, of the other against it."
        blocks.append(
            Picture(
                "loading-products", caption, f"Matrices with traces {traces}.", plot_loading_products(tree)
            )
        )
    return blocks


def _pairs(tree: xr.DataTree) -> list[Picture | Table]:
    found, overlap = component_similarity(tree), responsibility_overlap(tree)
    above = np.triu_indices(len(overlap), 1)
    rows = {
        f"{first} and {second}": {name: found[name].values[first, second] for name in found.data_vars}
        | {"rows in common": overlap.iloc[first, second]}
        for first, second in zip(*above, strict=True)
    }
    products = found["products"].values[above]
    described = (
        f"largest correlation of two products {np.nanmax(products):.2f}"
        if np.isfinite(products).any()
        else "no component has a direction"
    )
    lost = 1 - np.diag(overlap)
    return [
        Table(
            "Pairs of components: similarities, and which share of the first's rows the second would take",
            pd.DataFrame.from_dict(rows, orient="index"),
        ),
        Picture(
            "component-similarity",
            "Similarity of components by both kernels of the prior and by the correlation of W W'.",
            f"Three matrices; {described}.",
            plot_component_similarity(tree),
        ),
        Picture(
            "overlap",
            "How a component's rows would be dealt out if labels were drawn again: a dark diagonal is sure.",
            f"Matrix; the least sure component would lose {np.nanmax(lost):.0%} of its rows.",
            plot_overlap(tree),
        ),
    ]
