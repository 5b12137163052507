"""One prior of every component family, with rows in its domain: what the tests of all families share."""

import numpy as np
import numpyro.distributions as dist

from zoo import conjugate

COLUMNS = ((0, 3), (1,), (2,))


def matrix(num_features, seed=0):
    factor = np.random.default_rng(seed).normal(size=(num_features, num_features))
    return factor @ factor.T + 0.5 * np.eye(num_features)


def gaussian(d=2):
    return {"loc": np.array([0.3, -0.2, 0.1])[:d], "center": np.array([1.0, 2.0, -1.0])[:d]}


def priors():
    """Name to prior; the center of the Gaussian ones differs from their location on purpose."""
    wishart = {"scale_matrix": matrix(2), "degrees_of_freedom": 3.7}
    normal_gamma = {"mean_precision": [0.3, 0.8], "shape": [2.1, 1.4], "rate": [1.2, 0.4]}
    made = {
        "GaussianWishart": conjugate.GaussianWishart(**gaussian(), mean_precision=0.3, **wishart),
        "SharedGaussianWishart": conjugate.SharedGaussianWishart(**gaussian(), mean_precision=0.3, **wishart),
        "GaussianKnownCovariance": conjugate.GaussianKnownCovariance(
            **gaussian(), mean_precision=0.3, covariance=matrix(2, 1)
        ),
        "GaussianKnownMean": conjugate.GaussianKnownMean(**gaussian(), **wishart),
        "NormalGamma": conjugate.NormalGamma(**gaussian(), **normal_gamma),
        "SphericalNormalGamma": conjugate.SphericalNormalGamma(
            **gaussian(), mean_precision=[0.3, 0.8], shape=2.1, rate=1.2
        ),
        "BernoulliBeta": conjugate.BernoulliBeta([0.7, 1.2, 2.0], [1.5, 0.9, 0.6]),
        "BinomialBeta": conjugate.BinomialBeta([0.7, 1.2], [1.5, 0.9], [4.0, 6.0]),
        "PoissonGamma": conjugate.PoissonGamma([2.0, 1.5], [0.5, 1.3]),
        "ExponentialGamma": conjugate.ExponentialGamma([2.0, 3.5], [0.5, 1.3]),
        "GammaKnownShape": conjugate.GammaKnownShape([2.0, 3.5], [0.5, 1.3], [1.7, 0.6]),
        "CategoricalDirichlet": conjugate.CategoricalDirichlet([[0.7, 1.2, 2.0], [1.5, 0.4, 0.9]]),
        "MultinomialDirichlet": conjugate.MultinomialDirichlet([0.7, 1.2, 2.0], num_tokens=9),
    }
    made["Product"] = conjugate.Product(
        families=(
            made["GaussianWishart"],
            conjugate.PoissonGamma([2.0], [0.5]),
            made["BernoulliBeta"].replaced(concentration1=np.array([0.7]), concentration0=np.array([1.5])),
        ),
        columns=COLUMNS,
    )
    made["LogNormal"] = conjugate.Product((made["NormalGamma"],), ((0, 1),), logs=(0, 1))
    made["LogGaussian"] = made["Product"].replaced(logs=(3,))  # correlated with a column in its own unit
    return made


def rows(name, count, seed=0):
    """Rows in the family's domain, whatever their distribution."""
    rng = np.random.default_rng(seed)
    return {
        "BernoulliBeta": lambda: rng.integers(0, 2, (count, 3)),
        "BinomialBeta": lambda: rng.integers(0, 5, (count, 2)),
        "PoissonGamma": lambda: rng.poisson(4.0, (count, 2)),
        "ExponentialGamma": lambda: rng.gamma(2.0, size=(count, 2)),
        "GammaKnownShape": lambda: rng.gamma(2.0, size=(count, 2)),
        "LogNormal": lambda: rng.lognormal(1.0, 0.7, size=(count, 2)),
        "LogGaussian": lambda: _with_exponentials(rows("Product", count, seed)),
        "CategoricalDirichlet": lambda: rng.integers(0, 3, (count, 2)),
        "MultinomialDirichlet": lambda: rng.multinomial(9, [0.2, 0.3, 0.5], count),
        "Product": lambda: np.column_stack(
            [
                rng.normal(size=count),
                rng.poisson(4.0, count),
                rng.integers(0, 2, count),
                rng.normal(size=count),
            ]
        ),
    }.get(name, lambda: rng.normal(size=(count, 2)) + 0.5)().astype(float)


def _with_exponentials(x):
    x[:, 3] = np.exp(x[:, 3])
    return x


FAMILIES = tuple(priors())
CELLWISE = tuple(
    name
    for name in FAMILIES
    if name
    in (
        "NormalGamma",
        "SphericalNormalGamma",
        "CategoricalDirichlet",
        "BernoulliBeta",
        "BinomialBeta",
        "PoissonGamma",
        "ExponentialGamma",
        "GammaKnownShape",
    )
)


def mixture(name, **fields):
    """A small mixture of the family."""
    from zoo import Mixture

    return Mixture(
        components=priors()[name], **({"num_components": 3, "concentration": dist.Gamma(3.0, 1.0)} | fields)
    )
