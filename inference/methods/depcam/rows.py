r"""Log densities of rows under local exponential-family PCAs, and their gradients, by hand.

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

Poisson cells have a Gaussian q(y) for each row and component. With :math:`\theta = Wy + b` and :math:`q(y) =
N(m, V)` the expectation is exact, :math:`E[e^{\theta_d}] = \lambda_d = \exp(b_d + w_d'm + \tfrac12
w_d'Vw_d)`, and

.. math::
    \log \int p(x \mid y)\, N(y; 0, I)\, dy \ge \sum_d \{x_d (b_d + w_d'm) - \lambda_d - \log x_d!\}
    + \tfrac12 \{\log|V| + d - \mathrm{tr} V - m'm\}

is jointly concave in m and the Cholesky factor of V (Arridge, Ito, Jin and Zhang 2018). Its optimum has
:math:`V^{-1} = I + W'\mathrm{diag}(\lambda)W` and :math:`W'(x - \lambda) = m`. The step

.. math::
    V^{-1} \leftarrow (1-t) V^{-1} + t\{I + W'\mathrm{diag}(\lambda)W\}, \qquad
    m \leftarrow m + t V \{W'(x - \lambda) - m\}

goes along the natural gradient; at t = 1 it is Newton's in m. t is halved, for each row and component on its
own, until its bound does not fall. The gradients of the bound in W and b at fixed q are those of
`inference.methods.depcam.rows` with E = x - lambda and a = lambda.

Rescaling :math:`\phi_j \to c\phi_j,\ m_j \to m_j/c` and V alike leaves :math:`\lambda` as it is. With
:math:`R = \sum_n r_n,\ B = \sum_n r_n (m_{nj}^2 + V_{njj})` the best c solves
:math:`A c^3 + R c^2 = B` for a Laplace prior, :math:`A = s|\phi_j|`, and :math:`A c^4 + R c^2 = B` for a
normal one, :math:`A = \zeta_j \phi_j^2`: parameter expansion, without which scales and q wait for each other.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from zoo.depcam import DEPCAM
from zoo.exponential_family.local_pca import components_of
from zoo.gamma_functions import gammaln
from zoo.shapes import Values


class LocalDensities(NamedTuple):
    """Log densities and gradients of each row under each component.

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


def rows_given_latents(values: Values, model: DEPCAM, x: Array) -> LocalDensities:
    """Log densities and gradients at values of the latents."""
    local, y = components_of(model, values), values["latents"]
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
    return LocalDensities(log_density, residual, curvature, y, None)


def log_standard_normal(y: Array) -> Array:
    """Log density of standard normal vectors along the last axis, in nats."""
    return -0.5 * jnp.sum(y**2, axis=-1) - 0.5 * y.shape[-1] * jnp.log(2 * jnp.pi)


def quadratic_rows(values: Values, model: DEPCAM, x: Array) -> LocalDensities:
    """Log densities and gradients with latents integrated out, binary cells by the bound at curves xi."""
    local, seen = components_of(model, values), ~jnp.isnan(x)[:, None]
    w, b = local.loadings, local.offsets
    filled = jnp.where(seen, jnp.nan_to_num(x)[:, None], 0.0)
    if model.integrates_latents:  # about the offsets: far from the origin squares would cancel
        filled, b = jnp.where(seen, filled - b, 0.0), jnp.zeros_like(b)
    constant, slope, curvature = local.family.quadratic_bound(filled, values.get("curves"))
    curvature = jnp.where(seen, curvature, 0.0)
    away = jnp.where(seen, slope, 0.0) - curvature * b
    precision = jnp.einsum("nkf,kfi,kfj->nkij", curvature, w, w) + jnp.eye(w.shape[-1])
    projected = jnp.einsum("nkf,kfi->nki", away, w)
    factor = jnp.linalg.cholesky(precision)
    covariance = inverse_of(factor)
    mean = jnp.einsum("nkij,nkj->nki", covariance, projected)
    cells = jnp.where(seen, constant + slope * b - 0.5 * curvature * b**2, 0.0)
    log_density = jnp.sum(cells, axis=-1) + 0.5 * jnp.sum(projected * mean, axis=-1)
    log_density -= jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    residual = away - curvature * jnp.einsum("nki,kfi->nkf", mean, w)
    return LocalDensities(log_density, residual, curvature, mean, covariance)


def inverse_of(factor: Array) -> Array:
    """The inverse of L L' given its Cholesky factor L: a shorter program than that of a general inverse."""
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inner = jax.lax.linalg.triangular_solve(factor, identity, left_side=True, lower=True)
    return jnp.swapaxes(inner, -1, -2) @ inner


def tight_curves(values: Values, model: DEPCAM, rows: LocalDensities) -> Array:
    """The optimal xi of the bound given the latents' distribution: the root of E[theta^2]."""
    local = components_of(model, values)
    theta = local.natural_params(rows.mean)
    spread = jnp.einsum("kfi,nkij,kfj->nkf", local.loadings, rows.covariance, local.loadings)
    return jnp.sqrt(theta**2 + spread)


def sums_of(rows: LocalDensities, r: Array, loadings: Array) -> Sums:
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


NEWTON_STEPS = 12


def prior_latents(model: DEPCAM, num_rows: int) -> dict[str, Array]:
    """The start of q of the latents, their prior: ``latents_loc`` and ``latents_covariance``."""
    shape = (num_rows, model.num_components, model.num_latents)
    eye = jnp.broadcast_to(jnp.eye(model.num_latents), (*shape, model.num_latents))
    return {"latents_loc": jnp.zeros(shape), "latents_covariance": eye}


def poisson_rows(values: Values, model: DEPCAM, x: Array) -> LocalDensities:
    """The bound and its gradients at values of q, for Poisson cells."""
    local, mean, covariance = (
        components_of(model, values),
        values["latents_loc"],
        values["latents_covariance"],
    )
    seen = ~jnp.isnan(x)[:, None]
    filled = jnp.where(seen, jnp.nan_to_num(x)[:, None], 0.0)
    theta = local.natural_params(mean)
    spread = jnp.einsum("kfi,nkij,kfj->nkf", local.loadings, covariance, local.loadings)
    rate = jnp.where(seen, jnp.exp(theta + 0.5 * spread), 0.0)
    cells = jnp.where(seen, filled * theta - gammaln(filled + 1.0), 0.0) - rate
    factor = jnp.linalg.cholesky(covariance)
    log_det = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    trace = jnp.trace(covariance, axis1=-2, axis2=-1)
    divergence = 0.5 * (trace + jnp.sum(mean**2, axis=-1) - mean.shape[-1] - log_det)
    return LocalDensities(jnp.sum(cells, axis=-1) - divergence, filled * seen - rate, rate, mean, covariance)


def natural_step(values: Values, model: DEPCAM, rows: LocalDensities, size: Array) -> dict[str, Array]:
    """Parameters of q after a step of ``size``, shape (rows, components); at size 0 as it was."""
    loadings = components_of(model, values).loadings
    target = jnp.einsum("nkf,kfi,kfj->nkij", rows.curvature, loadings, loadings) + jnp.eye(loadings.shape[-1])
    gradient = jnp.einsum("nkf,kfi->nki", rows.residual, loadings) - rows.mean
    share = size[..., None, None]
    precision = (1.0 - share) * jnp.linalg.inv(rows.covariance) + share * target
    covariance = jnp.linalg.inv(precision)
    covariance = 0.5 * (covariance + jnp.swapaxes(covariance, -1, -2))
    mean = rows.mean + size[..., None] * jnp.einsum("nkij,nkj->nki", covariance, gradient)
    stays = size == 0
    return {
        "latents_loc": jnp.where(stays[..., None], rows.mean, mean),
        "latents_covariance": jnp.where(stays[..., None, None], rows.covariance, covariance),
    }


def best_scaling(count: Array, squares: Array, cost: Array, power: int) -> Array:
    """The c > 0 with cost c^power + count c^2 = squares; one where there is no such c.

    Args:
        count: R >= 0.
        squares: B >= 0.
        cost: A >= 0.
        power: 3 or 4.
    """
    usable = (squares > 0) & (count > 0)
    count, squares = jnp.where(usable, count, 1.0), jnp.where(usable, squares, 1.0)
    cost = jnp.where(usable, cost, 0.0)

    def newton(_: int, c: Array) -> Array:  # from above, convex: it never passes the root
        value = cost * c**power + count * c**2 - squares
        return c - value / (power * cost * c ** (power - 1) + 2.0 * count * c)

    # neither term alone may pass the sum, so this start is less than twice the root
    most = jnp.where(cost > 0, (squares / jnp.where(cost > 0, cost, 1.0)) ** (1 / power), jnp.inf)
    return jax.lax.fori_loop(0, NEWTON_STEPS, newton, jnp.minimum(jnp.sqrt(squares / count), most))


def scaled_bound(values: Values, c: Array) -> tuple[Array, dict[str, Array]]:
    """The gain of rows' bounds, shape (rows, components), and q, when latents are divided by c."""
    mean, covariance = values["latents_loc"], values["latents_covariance"]
    squares = mean**2 + jnp.diagonal(covariance, axis1=-2, axis2=-1)
    gain = -jnp.sum(jnp.log(c), axis=-1) - 0.5 * jnp.sum(squares * (c**-2 - 1.0), axis=-1)
    new = {
        "latents_loc": mean / c,
        "latents_covariance": covariance / (c[..., :, None] * c[..., None, :]),
    }
    return gain, new
