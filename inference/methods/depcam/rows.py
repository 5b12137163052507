r"""What rows say about local exponential-family PCAs: log densities and their gradients, by hand.

Either the latents have a value (``values["latents"]``), or they are integrated out of cells whose log density
is quadratic in the natural parameter, :math:`c + t\theta - \tfrac12 a\theta^2`: Gaussian cells as they are,
Bernoulli and binomial ones by the bound of Jaakkola and Jordan (2000),

.. math:: -\log(1 + e^\theta) \ge -\tfrac\theta2 - \log 2\cosh\tfrac\xi2
   - \tfrac{\tanh(\xi/2)}{4\xi}(\theta^2 - \xi^2),

tight where :math:`\xi^2 = \theta^2`. Then y given row and component is :math:`N(m, V)` with
:math:`V^{-1} = I + W'\mathrm{diag}(a)W`, :math:`m = VW'(t - a b)`.

With E = t - a E[theta] (or x - g'(theta)) and responsibilities r the gradient of the log likelihood in W_k is
:math:`\sum_n r_{nk}\{E_{nk} m_{nk}' - \mathrm{diag}(a_{nk}) W_k V_{nk}\}`, in b_k
:math:`\sum_n r_{nk} E_{nk}` (Qiao et al., equations 20 to 25, with the sign of 25 put right). One evaluation
costs O(N K D d), or O(N K D d^2) where latents are integrated.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from zoo.depcam import DEPCAM

__all__ = [
    "LocalRows",
    "Sums",
    "quadratic_rows",
    "rows_given_latents",
    "sums_of",
    "tight_curves",
]


class LocalRows(NamedTuple):
    """Of each row under each component.

    Attributes:
        log_density: in nats, that of its own latents included, shape (rows, components); in the shared mode
            the latents' density is not in it.
        residual: E, shape (rows, components, features), zero in missing cells.
        curvature: a, or minus the second derivative in theta, likewise.
        mean: of the latents, shape (rows, components, latents).
        covariance: of the latents, shape (rows, components, latents, latents), or None where they are given.
    """

    log_density: Array
    residual: Array
    curvature: Array
    mean: Array
    covariance: Array | None


class Sums(NamedTuple):
    """Gradients of the log likelihood, and curvatures that make a unit step the right size.

    Attributes:
        loadings: gradient in W, shape (components, features, latents).
        offsets: gradient in b, shape (components, features).
        offsets_curvature: shape (components, features).
        moments: sum of r a E[y y'] with a the largest over the row's cells, shape (components, d, d).
    """

    loadings: Array
    offsets: Array
    offsets_curvature: Array
    moments: Array


def rows_given_latents(values: Mapping[str, Array], model: DEPCAM, x: Array) -> LocalRows:
    """At values of the latents."""
    local, y = model.local(values), values["latents"]
    family, seen = local.family, ~jnp.isnan(x)[:, None]
    filled = jnp.where(seen, jnp.nan_to_num(x, nan=1.0)[:, None], 1.0)
    theta = local.natural_params(y)
    log_density = jnp.sum(jnp.where(seen, family.log_density(theta, filled), 0.0), axis=-1)
    inside = seen & jnp.isfinite(log_density)[..., None]  # a row may lie outside of a component's domain
    residual = jnp.where(inside, (filled - family.mean(theta)) / family.dispersion, 0.0)
    bound = family.curvature_bound
    curvature = family.variance(theta) / family.dispersion**2 if bound is None else bound
    curvature = jnp.where(inside, curvature, 0.0) * jnp.ones_like(theta)
    if y.ndim == 3:
        log_density += log_standard_normal(y)
    else:
        y = jnp.broadcast_to(y[:, None], (*theta.shape[:2], y.shape[-1]))
    return LocalRows(log_density, residual, curvature, y, None)


def log_standard_normal(y: Array) -> Array:
    """Log density of the last axis, in nats."""
    return -0.5 * jnp.sum(y**2, axis=-1) - 0.5 * y.shape[-1] * jnp.log(2 * jnp.pi)


def quadratic_rows(values: Mapping[str, Array], model: DEPCAM, x: Array) -> LocalRows:
    """With the latents integrated out; binary cells by the bound at ``values["curves"]``, xi."""
    local, seen = model.local(values), ~jnp.isnan(x)[:, None]
    w, b = local.loadings, local.offsets
    filled = jnp.where(seen, jnp.nan_to_num(x)[:, None], 0.0)
    constant, slope, curvature = local.family.quadratic_bound(filled, values.get("curves"))
    curvature = jnp.where(seen, curvature, 0.0)
    away = jnp.where(seen, slope, 0.0) - curvature * b
    precision = jnp.einsum("nkf,kfi,kfj->nkij", curvature, w, w) + jnp.eye(w.shape[-1])
    projected = jnp.einsum("nkf,kfi->nki", away, w)
    factor = jnp.linalg.cholesky(precision)
    covariance = jnp.linalg.inv(precision)
    mean = jnp.einsum("nkij,nkj->nki", covariance, projected)
    cells = jnp.where(seen, constant + slope * b - 0.5 * curvature * b**2, 0.0)
    log_density = jnp.sum(cells, axis=-1) + 0.5 * jnp.sum(projected * mean, axis=-1)
    log_density -= jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    residual = away - curvature * jnp.einsum("nki,kfi->nkf", mean, w)
    return LocalRows(log_density, residual, curvature, mean, covariance)


def tight_curves(values: Mapping[str, Array], model: DEPCAM, rows: LocalRows) -> Array:
    """Xi with which the bound is best given the latents' distribution: the root of E[theta^2]."""
    local = model.local(values)
    theta = local.natural_params(rows.mean)
    spread = jnp.einsum("kfi,nkij,kfj->nkf", local.loadings, rows.covariance, local.loadings)
    return jnp.sqrt(theta**2 + spread)


def sums_of(rows: LocalRows, r: Array, loadings: Array) -> Sums:
    """Sums over rows with responsibilities r, shape (rows, components)."""
    weighted = r[..., None] * rows.residual
    gradient = jnp.einsum("nkf,nki->kfi", weighted, rows.mean)
    scale = r * jnp.max(rows.curvature, axis=-1)
    moments = jnp.einsum("nk,nki,nkj->kij", scale, rows.mean, rows.mean)
    heights = jnp.einsum("nk,nkf->kf", r, rows.curvature)
    if rows.covariance is not None:
        spread = jnp.einsum("nkf,nkij->kfij", r[..., None] * rows.curvature, rows.covariance)
        gradient -= jnp.einsum("kfi,kfij->kfj", loadings, spread)
        moments += jnp.einsum("nk,nkij->kij", scale, rows.covariance)
    return Sums(gradient, jnp.sum(weighted, axis=0), heights, moments)
