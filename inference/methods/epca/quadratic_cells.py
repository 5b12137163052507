r"""Cells whose log density becomes quadratic in the natural parameter, and the regressions that follow.

Up to constants every cell contributes, with the joint prior's share of it
(`zoo.exponential_family.joint_prior`),

.. math:: \kappa\theta - \tfrac12 \tau\theta^2 - b \log\cosh(\theta/2).

Gaussian cells: :math:`\kappa = x/\phi + \beta\lambda`, :math:`\tau = 1/\phi + \beta\nu`, b = 0. Bernoulli and
binomial cells of n trials: the kernel of the joint prior is itself a binomial pseudo-count of size
:math:`\beta\nu n`, so :math:`b = n (1 + \beta\nu)`, :math:`\kappa = x + \beta\lambda - b/2`; a missing cell
keeps the contribution of the kernel. Polya-Gamma variables (`inference.numerics.polya_gamma`) make the rest
Gaussian.

The fractional part f of b has no exact draw. In its place a fraction up to a quarter has a fixed precision,
that of a Polya-Gamma variable at theta = 2, and a larger one a gamma variable omega given theta, kept as a
variable of its own: the target is :math:`p(u, V)\, q(\omega \mid \theta)`. Both make the density normal but
for a known :math:`\epsilon(\theta)`, and a row (or column) drawn as if it were exact is kept with probability
:math:`\min\{1, e^{\sum \epsilon(\theta') - \epsilon(\theta)}\}`. With that the sweep is exact for every beta
below 1.

Reference: Polson, Scott and Windle (2013).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from inference.numerics import polya_gamma

SMALL_FRACTION = 0.25
FIXED_PRECISION = float(np.tanh(1.0) / 4)  # E[omega] of PG(1, 2)


class QuadraticCells(NamedTuple):
    """Coefficients of the log density of every cell in its natural parameter.

    Attributes:
        linear: kappa, shape (num_observations, num_features).
        precision: tau, of the same shape.
        count: b, of the same shape.
    """

    linear: Array
    precision: Array
    count: Array


def side_by_side(parts: list[QuadraticCells]) -> QuadraticCells:
    """Concatenate the cells of several views with the same rows."""
    return QuadraticCells(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def draw_precisions(key: Array, cells: QuadraticCells, theta: Array) -> Array:
    """Draw the precision of every cell: tau, a Polya-Gamma variable, a substitute for fractional counts."""
    first, second = jax.random.split(key)
    whole = jnp.floor(cells.count)
    small, large = _fractions(cells)
    own = jax.lax.cond(
        jnp.any(large > 0),
        lambda: polya_gamma.draw_fraction(second, large, theta),
        lambda: jnp.zeros_like(theta),
    )
    return cells.precision + polya_gamma.draw_whole(first, whole, theta) + own + FIXED_PRECISION * small


def log_lacking(cells: QuadraticCells, theta: Array) -> Array:
    """The error in the log density of every cell from the substitutes for fractional counts."""
    small, large = _fractions(cells)
    of_large = jax.lax.cond(
        jnp.any(large > 0),
        lambda: -large * polya_gamma.log_remainder_error(theta),
        lambda: jnp.zeros_like(theta),
    )
    return of_large + jax.lax.cond(
        jnp.any(small > 0),
        lambda: small * (FIXED_PRECISION * theta**2 / 2 - polya_gamma.log_cosh(theta / 2)),
        lambda: jnp.zeros_like(theta),
    )


def _fractions(cells: QuadraticCells) -> tuple[Array, Array]:
    """The fractional parts of the counts up to a quarter, and those above, each zero elsewhere."""
    fraction = cells.count - jnp.floor(cells.count)
    is_small = fraction <= SMALL_FRACTION
    return jnp.where(is_small, fraction, 0.0), jnp.where(is_small, 0.0, fraction)


class CanonicalNormal(dist.Distribution):
    """A normal distribution with log density linear' u - u' precision u / 2 plus a constant.

    Args:
        linear: shape (..., size).
        precision: positive definite, shape (..., size, size).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("linear", "precision")

    def __init__(self, linear: Array, precision: Array) -> None:
        self.linear, self.precision = linear, precision
        super().__init__(linear.shape[:-1], linear.shape[-1:])

    def log_prob(self, value: Array) -> Array:
        """The log density in nats."""
        factor = jnp.linalg.cholesky(self.precision)
        away = value - cho_solve((factor, True), self.linear[..., None])[..., 0]
        half = jnp.einsum("...ji,...j->...i", factor, away)
        log_det = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        return log_det - 0.5 * jnp.sum(half**2 + jnp.log(2 * jnp.pi), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors of shape (*sample_shape, ..., size)."""
        noise = jax.random.normal(key, (*sample_shape, *self.linear.shape), self.linear.dtype)
        factor = jnp.broadcast_to(jnp.linalg.cholesky(self.precision), (*noise.shape, noise.shape[-1]))
        half = solve_triangular(factor, jnp.broadcast_to(self.linear, noise.shape)[..., None], lower=True)
        return solve_triangular(factor, half + noise[..., None], lower=True, trans=1)[..., 0]


def rows_given(
    linear: Array, precision: Array, loadings: Array, loc: Array, prior_precision: Array
) -> CanonicalNormal:
    """The conditional of the latents of every row given the loadings and the precision of every cell.

    Args:
        linear: kappa, shape (num_observations, num_features).
        precision: of every cell, of the same shape.
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        prior_precision: of the latents, shape (num_latents,) or ().
    """
    size = loadings.shape[1]
    second = (precision @ _squares(loadings)).reshape(-1, size, size)
    ridge = jnp.diag(jnp.broadcast_to(prior_precision, (size,)))
    return CanonicalNormal((linear - precision * loc) @ loadings, second + ridge)


def columns_given(
    linear: Array, precision: Array, latents: Array, prior_precision: Array, loc_precision: Array
) -> tuple[CanonicalNormal, Callable[[Array], dist.Distribution]]:
    """Conditionals of each column's loadings, the mean integrated out, and of the mean given them.

    Args:
        linear: kappa, shape (num_observations, num_features).
        precision: of every cell, of the same shape.
        latents: shape (num_observations, num_latents).
        prior_precision: of the loadings, shape (num_latents,) or ().
        loc_precision: prior precision of the mean.
    """
    size = latents.shape[1]
    second = (precision.T @ _squares(latents)).reshape(-1, size, size)
    ridge = jnp.diag(jnp.broadcast_to(prior_precision, (size,)))
    first, total = precision.T @ latents, jnp.sum(precision, axis=0) + loc_precision
    cross, sums = linear.T @ latents, jnp.sum(linear, axis=0)
    collapsed = second + ridge - first[:, :, None] * first[:, None, :] / total[:, None, None]

    def loc_given(loadings: Array) -> dist.Distribution:
        return dist.Normal((sums - jnp.sum(first * loadings, axis=1)) / total, 1 / jnp.sqrt(total))

    return CanonicalNormal(cross - first * (sums / total)[:, None], collapsed), loc_given


def _squares(vectors: Array) -> Array:
    """The outer product of each row with itself, flattened."""
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(vectors.shape[0], -1)
