r"""Gaussian orthants: the probability that d ~ N(mu, Sigma) is positive throughout, and its moments there.

With L the Cholesky factor of Sigma and :math:`d = \mu + L \eta`, entry j is positive where
:math:`\eta_j > b_j = -(\mu_j + \sum_{k<j} L_{jk} \eta_k) / L_{jj}`, so that

.. math:: P(d > 0) = \int_{[0,1]^{J-1}} \prod_j \Phi(-b_j(v))\, dv, \qquad
    \eta_j = -\Phi^{-1}\{v_j \Phi(-b_j)\}

(separation of variables: Genz 1992, "Numerical computation of multivariate normal probabilities"; Geweke,
Hajivassiliou and Keane). One entry is exact. Two are integrated by Gauss-Legendre quadrature (errors below
1e-7 nats), three by its product (below 1e-5), more by 512 points of a Sobol sequence with a fixed scramble,
whose relative error is of the order of 1e-3 (of 1e-2 with nine entries); the same points every time make it a
smooth function. Moments take one integral more.
"""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import Array
from jax.scipy.special import log_ndtr, logsumexp, ndtri

__all__ = ["Orthant", "log_orthant", "orthant_moments", "positive_normal_moments"]

NUM_NODES = {1: 40, 2: 24}  # Gauss-Legendre nodes by number of integrals
NUM_POINTS = 512
FAR = -18.0  # in deviations: from here on asymptotic series are better than differences
SMALLEST = 1e-290  # probabilities below it are taken for it where a quantile is needed


class Orthant(NamedTuple):
    """A Gaussian cut off at zero in every entry.

    Attributes:
        log_probability: of the orthant before the cut, nats, shape ().
        mean: after the cut, shape (J,).
        covariance: after the cut, shape (J, J).
    """

    log_probability: Array
    mean: Array
    covariance: Array


def log_orthant(mean: Array, covariance: Array) -> Array:
    """Log P(d > 0) of a Gaussian vector.

    Args:
        mean: shape (J,).
        covariance: positive definite, shape (J, J).

    Returns:
        A scalar, in nats.
    """
    return logsumexp(_separated(mean, covariance, whole=False)[0])


def orthant_moments(mean: Array, covariance: Array) -> Orthant:
    """Probability of the positive orthant and the moments of the Gaussian there.

    Args:
        mean: shape (J,).
        covariance: positive definite, shape (J, J).

    Returns:
        Log probability, mean and covariance of the Gaussian cut off there.
    """
    if mean.shape[0] == 1:
        scale = jnp.sqrt(covariance[0, 0])
        log_probability, first, second = positive_normal_moments(mean[0], scale)
        return Orthant(log_probability, first[None], second[None, None])
    log_weights, draws = _separated(mean, covariance, whole=True)
    total = logsumexp(log_weights)
    weights = jnp.exp(log_weights - total)
    first = weights @ draws
    away = draws - first
    return Orthant(total, first, away.T @ (weights[:, None] * away))


def positive_normal_moments(mean: Array, scale: Array) -> tuple[Array, Array, Array]:
    r"""Log P(d > 0), E[d | d > 0] and Var[d | d > 0] of d ~ N(mean, scale^2), entry by entry.

    With :math:`\lambda = \phi(a) / \Phi(a)`, a = mean / scale: mean + scale lambda, and
    :math:`scale^2 (1 - \lambda(\lambda + a))`; far below zero, where that loses all digits,
    the first terms of Mills' ratio.

    Args:
        mean: any shape.
        scale: standard deviation, the same shape.

    Returns:
        Three arrays of the shape of ``mean``, the first in nats.
    """
    ratio = mean / scale
    log_probability = log_ndtr(ratio)
    hazard = jnp.exp(-0.5 * ratio**2 - 0.5 * jnp.log(2 * jnp.pi) - log_probability)
    far = jnp.minimum(ratio, -1.0)
    tail = 1 / far**2 - 6 / far**4 + 50 / far**6 - 518 / far**8 + 6354 / far**10
    shrunk = jnp.where(ratio < FAR, tail, 1 - hazard * (hazard + ratio))
    tail = -1 / far + 2 / far**3 - 10 / far**5 + 74 / far**7 - 706 / far**9
    excess = jnp.where(ratio < FAR, tail, hazard + ratio)
    return log_probability, scale * excess, scale**2 * shrunk


def _separated(mean: Array, covariance: Array, *, whole: bool) -> tuple[Array, Array]:
    """Log weights of the nodes, shape (P,), and d there, (P, J); ``whole``: its last entry too."""
    size = mean.shape[0]
    nodes, log_shares = _nodes(size if whole else size - 1)
    nodes, log_weights = jnp.asarray(nodes.copy(), mean.dtype), jnp.asarray(log_shares.copy(), mean.dtype)
    factor = jnp.linalg.cholesky(covariance)
    standard: list[Array] = []
    for j in range(size):
        shift = sum((factor[j, k] * standard[k] for k in range(j)), jnp.zeros_like(log_weights))
        above = (mean[j] + shift) / factor[j, j]
        log_probability = log_ndtr(above)
        log_weights = log_weights + log_probability
        if j < nodes.shape[1]:
            share = nodes[:, j] * jnp.exp(log_probability)
            standard.append(-ndtri(jnp.maximum(share, SMALLEST)))
    drawn = jnp.stack(standard, axis=1) if standard else jnp.zeros((1, 0), mean.dtype)
    return log_weights, mean[: drawn.shape[1]] + drawn @ factor[: drawn.shape[1], : drawn.shape[1]].T


@cache
def _nodes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in the unit cube, (P, size), and the logarithms of their weights, which sum to one."""
    if size == 0:
        return np.zeros((1, 0)), np.zeros(1)
    if size in NUM_NODES:
        nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES[size])
        t = (nodes + 1) / 2  # v = t^3 (10 - 15 t + 6 t^2) smooths the quantiles' singularity at 0
        nodes, weights = t**3 * (10 - 15 * t + 6 * t**2), 30 * t**2 * (1 - t) ** 2 * weights / 2
        grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
        shares = np.stack(np.meshgrid(*[weights] * size, indexing="ij"), axis=-1).reshape(-1, size)
        return grid, np.log(shares).sum(axis=1)
    points = scipy.stats.qmc.Sobol(size, scramble=True, rng=np.random.default_rng(0)).random(NUM_POINTS)
    return np.clip(points, 1e-9, 1 - 1e-9), np.full(NUM_POINTS, -np.log(NUM_POINTS))
