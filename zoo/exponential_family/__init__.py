r"""Exponential families: the distribution of a cell of data given its natural parameter.

.. math::
    p(x \mid \theta) = h(x, \phi) \exp\{(x\theta - g(\theta)) / \phi\}, \qquad
    E[x] = g'(\theta), \qquad \mathrm{Var}[x] = \phi\, g''(\theta)

====================  ======================  ======================  ===========  =======================
family                x                       g(theta)                theta        kernel is proper where
====================  ======================  ======================  ===========  =======================
`Gaussian`            real, variance phi      theta^2 / 2             real         nu > 0
`Bernoulli`           0, 1                    log(1 + e^theta)        real         0 < lam < nu
`Binomial`            0..n                    n log(1 + e^theta)      real         0 < lam < n nu
`Poisson`             0, 1, 2, ...            e^theta                 real         lam, nu > 0
`Exponential`         at least 0              -log(-theta)            negative     lam > 0, nu > -1
`GammaWithShape`      positive, shape a       -a log(-theta)          negative     lam > 0, a nu > -1
`NegativeBinomial`    0, 1, 2, ..., size r    -r log(1 - e^theta)     negative     lam > 0, r nu > -1
====================  ======================  ======================  ===========  =======================

The conjugate kernel is :math:`\exp\{\lambda\theta - \nu g(\theta)\}`; where it is proper,
:math:`E[g'(\theta)] = \lambda / \nu` under it. `Categorical` and `Ordinal` have several numbers a cell or
cut points beside them, no such kernel, and take no part in the joint prior. A tuple of families, one for
each column of the table, is `ByColumn`.

Corrections of Virtanen (2010), tables 1 and 2: the mean of a Bernoulli is 1 / (1 + e^-theta) (printed
e^theta); the exponential's theta is minus its rate, so it is negative; the conjugate kernels need the
Jacobian of the mean (Gaussian: lam = m / s^2 and nu = 1 / s^2, printed 1 / (2 s^2); Bernoulli: mean
~ Beta(lam, nu - lam)).

Reference: Virtanen (2010), section 3.1; Barndorff-Nielsen (1978); McCullagh and Nelder (1989).
"""

from zoo.exponential_family.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    GammaWithShape,
    Gaussian,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from zoo.exponential_family.family import ByColumn, Family

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Exponential",
    "GammaWithShape",
    "Gaussian",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
]

#: Name to family, as fields and the command line take them.
FAMILIES: dict[str, type[Family]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "binomial": Binomial,
    "poisson": Poisson,
    "exponential": Exponential,
    "gamma": GammaWithShape,
    "negative_binomial": NegativeBinomial,
    "categorical": Categorical,
    "ordinal": Ordinal,
}


def has_unit_noise(family: Family) -> bool:
    """Whether cells are Gaussian with noise of known variance 1, as ``"gaussian"`` and `Gaussian()` say.

    Args:
        family: of the cells.

    Returns:
        True for these cells only.
    """
    return isinstance(family, Gaussian) and not family.learns_noise and bool(family.noise_variance == 1)


def as_family(family: object) -> Family:
    """Return a family as it is, that of a name, or `ByColumn` of a tuple with one per column.

    Args:
        family: a family, its name, or a tuple of these, one for each column.

    Returns:
        The family.

    Raises:
        TypeError: neither a family nor a name.
        ValueError: no family has that name (the message lists those there are).
    """
    if isinstance(family, Family):
        return family
    if isinstance(family, tuple | list):
        return ByColumn.of(tuple(as_family(member) for member in family))
    if not isinstance(family, str):
        raise TypeError(
            "family must be a family, its name, or a tuple with one for each column; "
            f"got {type(family).__name__}"
        )
    if family not in FAMILIES:
        raise ValueError(f"no family is called {family!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[family]()
