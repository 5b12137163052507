"""Tempered sampling of probabilistic PCA and factor analysis: the Gibbs sampler of normal cells, or NUTS."""

from inference.methods.linear_gaussian.tempered import of_normal_cells
from inference.methods.ppca import gibbs
from inference.methods.tempered.nuts import beside_nuts
from zoo.ppca import PPCA


def why_not(model: PPCA) -> str:
    """Why the Gibbs sampler does not temper a model exactly; empty where it does."""
    return (
        "the precisions of Student-t rows have no conditional under a power"
        if model.degrees_of_freedom is not None
        else ""
    )


METHOD = beside_nuts(of_normal_cells(gibbs), why_not)
