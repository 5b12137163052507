"""Tempered sampling of mixtures of factor analysers: the Gibbs sampler of normal cells, or NUTS."""

from inference.methods.linear_gaussian.tempered import of_normal_cells
from inference.methods.mcfa import gibbs
from inference.methods.tempered.nuts import beside_nuts

METHOD = beside_nuts(of_normal_cells(gibbs))
