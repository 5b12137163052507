"""Tempered sampling of supervised PCA: the Gibbs sampler of normal cells, or NUTS."""

from inference.methods.linear_gaussian.tempered import of_normal_cells
from inference.methods.sppca import gibbs
from inference.methods.tempered.nuts import beside_nuts
from zoo.sppca import SPPCA


def why_not(model: SPPCA) -> str:
    """Why the Gibbs sampler does not temper a model exactly; empty where it does."""
    return (
        "the utilities of probit outputs have no conditional under a power"
        if model.output_likelihood != "gaussian"
        else ""
    )


METHOD = beside_nuts(of_normal_cells(gibbs), why_not)
