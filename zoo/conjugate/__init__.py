"""Component priors of mixtures: every conjugate family by name.

=======================  ==================================================  ============================
family                   a row of a component                                sites of the parameters
=======================  ==================================================  ============================
GaussianWishart          normal, full covariance                             ``precisions``, ``locs``
SharedGaussianWishart    normal, one covariance for all components           ``shared_precision``, ``locs``
NormalGamma              normal, a variance per column                       ``precisions``, ``locs``
SphericalNormalGamma     normal, one variance for all columns                ``precisions``, ``locs``
GaussianKnownCovariance  normal, covariance given                            ``locs``
GaussianKnownMean        normal, mean given                                  ``precisions``
BernoulliBeta            zeros and ones                                      ``probs``
BinomialBeta             counts out of a known number of trials              ``probs``
PoissonGamma             counts                                              ``rates``
MultinomialDirichlet     counts that share the row's total; may be sparse    ``probs``
CategoricalDirichlet     categories, by the numbers of their levels          ``probs``
ExponentialGamma         positive numbers                                    ``rates``
GammaKnownShape          positive numbers, shape given                       ``rates``
Product                  groups of columns, each with a family; logarithms   ``locs_0``, ``probs_1``, ...
=======================  ==================================================  ============================

Each is one class with the interface of `zoo.conjugate.component_prior.ComponentPrior`: the prior as NumPyro
statements, the posterior given (weighted) sufficient statistics, which is an object of the same class with a
leading axis over components, expectations under it, the evidence and the predictive density. Families of
independent cells (NormalGamma, SphericalNormalGamma, BernoulliBeta, BinomialBeta,
PoissonGamma, CategoricalDirichlet, ExponentialGamma, GammaKnownShape) take NaN as a missing cell.

Reference: Yu (2006), sections 2.1-2.2, Table 2.1.
"""

from zoo.conjugate.categorical_dirichlet import CategoricalDirichlet
from zoo.conjugate.cellwise import (
    BernoulliBeta,
    BinomialBeta,
    ExponentialGamma,
    GammaKnownShape,
    PoissonGamma,
)
from zoo.conjugate.gaussian import (
    GaussianKnownCovariance,
    GaussianKnownMean,
    GaussianWishart,
    SharedGaussianWishart,
)
from zoo.conjugate.multinomial_dirichlet import MultinomialDirichlet
from zoo.conjugate.normal_gamma import NormalGamma, SphericalNormalGamma
from zoo.conjugate.product import Product

__all__ = [
    "BernoulliBeta",
    "BinomialBeta",
    "CategoricalDirichlet",
    "ExponentialGamma",
    "GammaKnownShape",
    "GaussianKnownCovariance",
    "GaussianKnownMean",
    "GaussianWishart",
    "MultinomialDirichlet",
    "NormalGamma",
    "PoissonGamma",
    "Product",
    "SharedGaussianWishart",
    "SphericalNormalGamma",
]
