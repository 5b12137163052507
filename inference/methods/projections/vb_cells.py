r"""What a cell adds to a variational bound when its natural parameter is a product of normal vectors.

With :math:`\theta = u^T v + \mu`, :math:`u \sim N(m, S)` and :math:`[v, \mu] \sim N(M, C)`:

* Gaussian and logistic cells need the first two moments of theta alone. A logistic cell,
  :math:`\kappa\theta - b \log 2\cosh(\theta/2)`, is bounded below by its Polya-Gamma mean field, which is the
  bound of Jaakkola and Jordan (2000): :math:`\kappa E\theta - b\log 2\cosh(c/2)` at its best
  :math:`c^2 = E\theta^2`, and quadratic in theta with precision :math:`E\omega = b \tanh(c/2) / (2c)` there.
* a Poisson cell needs :math:`E e^\theta`. With :math:`S = L L^T`, :math:`C = [[A, b], [b^T, c]]`,
  :math:`h = M_v + b`, :math:`R = I - L^T A L` and :math:`g = L^T (h + A m)` it is
  :math:`|R|^{-1/2} \exp\{m^T h + m^T A m / 2 + M_\mu + c/2 + g^T R^{-1} g / 2\}` where R is positive
  definite, and infinite elsewhere.

Exponential, gamma and negative binomial cells need :math:`\theta < 0`, which no normal q gives, and the
log-partition functions of categorical and ordinal cells have no expectation in closed form.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from inference.methods.projections.views import View
from inference.numerics import polya_gamma
from zoo.exponential_family import Family

__all__ = [
    "NaturalCells",
    "check_has_bound",
    "expected_base_measure",
    "expected_cells",
    "expected_exponential",
    "expected_moments",
    "natural_cells",
]


class NaturalCells(NamedTuple):
    r"""Of every cell :math:`\kappa\theta - \tau\theta^2/2 - b\log 2\cosh(\theta/2) - r e^\theta`.

    Attributes:
        linear: kappa, shape (num_observations, num_features).
        precision: tau, of the same shape.
        count: b, of the same shape.
        rate: r, of the same shape.
    """

    linear: Array
    precision: Array
    count: Array
    rate: Array


def check_has_bound(family: Family) -> None:
    """Raise ValueError unless the expectation of every cell is bounded in closed form."""
    for one, _ in family.column_groups(1):
        name = type(one).__name__
        if one.theta_is_negative:
            raise ValueError(
                f"vb has no bound for {name} cells: their natural parameters are negative, and a normal q "
                f"puts mass where the density is zero, so the bound is minus infinity; use nuts or map"
            )
        if one.log_partition_form == "other":
            raise ValueError(f"vb has no closed bound for {name} cells; use nuts or svi")


def natural_cells(view: View, x: Array, beta: Array | float, noise_variance: Array | None) -> NaturalCells:
    """The coefficients of all cells of a view, the joint prior's share among them.

    Args:
        view: the view.
        x: its cells, NaN where missing.
        beta: share of the kernel.
        noise_variance: 1 / E[1 / phi] where a Gaussian has an unknown one.
    """
    family = view.family.with_noise(noise_variance) if view.family.learns_noise else view.family
    return NaturalCells(*family.cell_terms(x, beta, view.conjugate, view.weight))


def expected_cells(cells: NaturalCells, mean: Array, second: Array) -> Array:
    """Sum of what all cells expect, given E[theta] and E[theta^2], but for the exponentials; in nats.

    Logistic cells by their bound.
    """
    total = jnp.sum(cells.linear * mean - cells.precision * second / 2)
    return total - jnp.sum(cells.count * (polya_gamma.log_cosh(jnp.sqrt(second) / 2) + jnp.log(2.0)))


def expected_base_measure(view: View, x: Array, noise: tuple[Array, Array] = (jnp.nan, jnp.nan)) -> Array:
    """What does not depend on theta of the (weighted) log density of a view, in nats.

    Args:
        view: the view.
        x: its cells.
        noise: E[1 / phi] and E[log phi] where a Gaussian has an unknown phi.
    """
    return view.weight * view.family.expected_base_measure(x, *noise)


def expected_moments(
    latents: Array, latents_covariance: Array, columns: Array, columns_covariance: Array
) -> tuple[Array, Array]:
    """E[theta] and E[theta^2] of every cell, each of shape (num_observations, num_features).

    Args:
        latents: m, shape (num_observations, num_latents).
        latents_covariance: S, shape (num_observations, num_latents, num_latents).
        columns: M, loadings and mean, shape (num_features, num_latents + 1).
        columns_covariance: C, shape (num_features, num_latents + 1, num_latents + 1).
    """
    size = latents.shape[1]
    extended = jnp.concatenate([latents, jnp.ones((latents.shape[0], 1), latents.dtype)], axis=1)
    mean = extended @ columns.T
    outer = columns[:, :size, None] * columns[:, None, :size] + columns_covariance[:, :size, :size]
    squares = (extended[:, :, None] * extended[:, None, :]).reshape(len(latents), -1)
    second = latents_covariance.reshape(len(latents), -1) @ outer.reshape(len(columns), -1).T
    return mean, mean**2 + second + squares @ columns_covariance.reshape(len(columns), -1).T


def expected_exponential(latents: Array, covariance: Array, column: Array, column_covariance: Array) -> Array:
    """E[e^theta] of one cell; infinite where the integral is.

    Args:
        latents: m, shape (num_latents,).
        covariance: S, shape (num_latents, num_latents).
        column: M, shape (num_latents + 1,).
        column_covariance: C, shape (num_latents + 1, num_latents + 1).
    """
    size = latents.shape[0]
    spread, cross = column_covariance[:size, :size], column_covariance[:size, size]
    half = jnp.linalg.cholesky(covariance)
    factor = jnp.linalg.cholesky(jnp.eye(size) - half.T @ spread @ half)  # NaN where not positive definite
    exists = jnp.all(jnp.isfinite(factor))
    safe = jnp.where(exists, factor, jnp.eye(size))
    slope = column[:size] + cross
    solved = solve_triangular(safe, half.T @ (slope + spread @ latents), lower=True)
    log_mean = latents @ slope + 0.5 * latents @ spread @ latents + column[size]
    log_mean += 0.5 * (column_covariance[size, size] + solved @ solved) - jnp.sum(jnp.log(jnp.diagonal(safe)))
    return jnp.where(exists, jnp.exp(log_mean), jnp.inf)
