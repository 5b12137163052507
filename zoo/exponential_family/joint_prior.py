r"""The joint prior of exponential-family PCA: a conjugate kernel on the natural parameters.

The beta-prior of Virtanen (2010, equation 37) mixes, in the exponent, independent Gaussians of latents U and
loadings V with the conjugate kernel of the family at :math:`\Theta = U V^T + \mu`:

.. math::
    p(U, V) \propto \Big[\prod_{nd} e^{\lambda\theta_{nd} - \nu g(\theta_{nd})}\Big]^{\beta}
    \big[N(U; 0, \sigma_U^2)\, N(V; 0, \sigma_V^2)\big]^{1-\beta}

As a program: the Gaussian part raised to 1 - beta is again Gaussian, with variances
:math:`\sigma^2 / (1-\beta)`, so U and V are ordinary sites, and what is left is one factor over all cells,
missing ones included. Its normaliser is unknown and depends on beta, lam, nu and the variances: those can be
chosen by held-out density, not inferred.

Linear rescaling of U against V leaves Theta alone, so for Theta only the product of the two variances matters
(exactly so for beta < 1): both sites are drawn in the balanced scale, with variance
:math:`\sigma_U \sigma_V / (1-\beta)` each. At beta = 1 the density is constant along (c U, V / c) and has no
integral: only a point estimate of Theta is left then.

Corrections of the source: the exponent of the kernel is a sum over cells (section 7.2 prints a product of log
terms), and the normaliser integrates over U and V.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array

from zoo.checks import shown, warn
from zoo.exponential_family.family import Family
from zoo.exponential_family.natural_params import LowRank

NEARLY_ONE = 0.95
LEAST_SHARE = 1e-6  # of the Gaussian part in a point estimate with beta = 1


def balanced_variance(latent_variance: Array, loading_variance: Array, beta: Array) -> Array:
    """The prior variance of every entry of U and of V in the balanced scale.

    At beta = 1, where there is no Gaussian part, the variance is so wide that it decides nothing about Theta.

    Args:
        latent_variance: of an entry of U.
        loading_variance: of an entry of V.
        beta: share of the kernel, 0 to 1.

    Returns:
        A scalar.
    """
    given = latent_variance, loading_variance, beta
    numbers = jnp if any(isinstance(own, jax.Array) for own in given) else np  # of which no program is made
    return numbers.sqrt(latent_variance * loading_variance) / numbers.maximum(1.0 - beta, LEAST_SHARE)


def log_kernel(family: Family, theta: Array, conjugate: Array) -> Array:
    """The conjugate kernel's logarithm at each cell.

    Args:
        family: of the cells.
        theta: natural parameters, shape (num_observations, num_features).
        conjugate: (lam, nu), shape (2,), or both for each column, shape (num_features, 2).

    Returns:
        Shape (num_observations, num_features).
    """
    return family.log_kernel(theta, conjugate[..., 0], conjugate[..., 1])


def joint_prior_factor(
    family: Family, theta: LowRank, beta: Array, conjugate: Array, name: str = "joint_prior"
) -> None:
    """The factor ``name``, inside the plate of rows: beta times the kernel's logarithm of each row.

    Args:
        family: of the cells.
        theta: natural parameters of the rows, by their factors.
        beta: share of the kernel.
        conjugate: as for `log_kernel`.
        name: of the site.
    """
    rows = theta.row_sums(lambda cells: jnp.sum(log_kernel(family, cells, conjugate), axis=-1))
    numpyro.factor(name, beta * rows)


def check_joint_prior(family: Family, beta: float, lam: float, nu: float) -> None:
    """Raise ValueError for a joint prior that cannot be used, and warn of a doubtful one.

    Args:
        family: of the cells.
        beta: share of the kernel.
        lam: multiplies theta.
        nu: multiplies the log-partition.

    Raises:
        ValueError: beta outside [0, 1], a family without a kernel, or a kernel that is not bounded.
    """
    name = type(family).__name__
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must lie in [0, 1]; got {shown(beta)}")
    if beta == 0:
        return
    if not family.has_kernel:
        raise ValueError(f"{name} has no conjugate kernel, so the joint prior does not know it: use beta=0")
    if not family.kernel_is_bounded(lam, nu):
        raise ValueError(
            f"the conjugate kernel of {name} has no maximum at conjugate=({lam:g}, {nu:g}): "
            f"see zoo.exponential_family for where it is proper"
        )
    if not family.kernel_is_proper(lam, nu):
        warn(
            f"the conjugate kernel of {name} is not proper at conjugate=({lam:g}, {nu:g}): it pulls natural "
            f"parameters towards infinity, and only the Gaussian part holds them"
        )
    if NEARLY_ONE < beta < 1:
        warn(
            f"beta={beta:g} is nearly 1, where latents and loadings lose their scale: R-hat of natural "
            f"parameters does not show it"
        )
