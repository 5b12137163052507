r"""Linear-Gaussian rows in the feature space of a kernel, seen through inner products alone.

With :math:`\phi(x) = W z + N(0, \sigma^2 I_m)` and loadings in the span of the fitted rows,
:math:`W = \Phi^T B`, everything that the density of a centred row needs is

.. math::
    W^T W = B^T K B, \qquad W^T \phi(x) = B^T k(x), \qquad |\phi(x)|^2 = k(x, x)

(Yu 2006, (7.17), (7.18)), so that with :math:`A = \sigma^2 I + B^T K B`

.. math::
    z \mid x \sim N(A^{-1} B^T k(x),\; \sigma^2 A^{-1}), \qquad
    -2 \log p(\phi(x)) = (m - K) \log \sigma^2 + \log|A| + m \log 2\pi
    + \frac{k(x,x) - k(x)^T B A^{-1} B^T k(x)}{\sigma^2} .

In a space of infinitely many dimensions the terms in m are a constant for every given noise and are left out.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve

__all__ = ["FeatureRows", "centred", "feature_rows", "given_latents", "scored_dimension"]


class FeatureRows(NamedTuple):
    """What the kernel values of rows say.

    Attributes:
        mean: E[z | x], shape (num_rows, num_latents).
        covariance: cov[z | x], the same for all rows, shape (num_latents, num_latents).
        log_density: of each row in feature space, nats, shape (num_rows,).
    """

    mean: Array
    covariance: Array
    log_density: Array


def feature_rows(
    values: Array,
    squares: Array,
    projected: Array,
    coefficients: Array,
    noise_variance: Array,
    dimension: float,
) -> FeatureRows:
    """Posterior of the latents, and log density, of rows given by their centred kernel values.

    Args:
        values: k(x) with the fitted rows, shape (num_rows, num_observations).
        squares: k(x, x), shape (num_rows,).
        projected: K B of the fitted rows, shape (num_observations, num_latents).
        coefficients: B, shape (num_observations, num_latents).
        noise_variance: sigma^2.
        dimension: m, see `scored_dimension`.

    Returns:
        Moments of the latents and log density of each row.
    """
    num_latents = coefficients.shape[1]
    identity = jnp.eye(num_latents)
    inner = coefficients.T @ projected
    factor = jnp.linalg.cholesky((inner + inner.T) / 2 + noise_variance * identity)
    inverse = cho_solve((factor, True), identity)
    right = values @ coefficients
    mean = right @ inverse
    quadratic = (squares - jnp.sum(mean * right, axis=1)) / noise_variance
    constant = dimension * jnp.log(2 * jnp.pi * noise_variance) - num_latents * jnp.log(noise_variance)
    log_det = constant + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    return FeatureRows(mean, noise_variance * inverse, -0.5 * (log_det + quadratic))


def given_latents(
    latents: Array,
    values: Array,
    squares: Array,
    coefficients: Array,
    noise_variance: Array,
    dimension: float,
) -> Array:
    """Log density of fitted rows in feature space given their latents.

    Args:
        latents: shape (num_rows, num_latents).
        values: the centred Gram matrix, shape (num_rows, num_rows).
        squares: its diagonal, shape (num_rows,).
        coefficients: B, shape (num_rows, num_latents).
        noise_variance: sigma^2.
        dimension: m, see `scored_dimension`.

    Returns:
        Shape (num_rows,), in nats.
    """
    projected = values @ coefficients
    inner = coefficients.T @ projected
    distance = (
        squares - 2 * jnp.sum(latents * projected, axis=1) + jnp.sum((latents @ inner) * latents, axis=1)
    )
    return -0.5 * (dimension * jnp.log(2 * jnp.pi * noise_variance) + distance / noise_variance)


def scored_dimension(dimension: float | None, num_rows: int) -> int:
    """The m of a row's density: 0 where it is infinite, N - 1 where it is not known.

    Args:
        dimension: `zoo.kernels.Kernel.feature_dimension`.
        num_rows: of the fit.

    Returns:
        The number m.
    """
    if dimension is None:
        return num_rows - 1
    return 0 if math.isinf(dimension) else int(dimension)


def centred(gram: Array) -> Array:
    """A Gram matrix with the origin of feature space at the mean of the rows (4.3).

    Args:
        gram: shape (num_observations, num_observations).

    Returns:
        Shape (num_observations, num_observations).
    """
    means = jnp.mean(gram, axis=0)
    return gram - means[:, None] - (means - jnp.mean(means))[None, :]
