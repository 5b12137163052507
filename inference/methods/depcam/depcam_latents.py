r"""Blocks of repulsive mixtures of PCAs that belong to rows: latents, bounds on them, the noise, rescaling.

* latents at a value: with the bound 1/4 on the curvature of binary cells (Boehning) a unit step never falls;
  else Newton's step, halved for each row on its own until it does not;
* latents integrated: the curves xi of binary cells, q of Poisson cells (`inference.methods.depcam.poisson_latents`); the
  noise variance of Gaussian cells;
* rescaling :math:`\phi_j \to c\phi_j,\ y_j \to y_j/c`, which leaves the likelihood as it is: free, and the
  optimal c is :math:`(B/A)^{1/3}` with :math:`A = s|\phi_j|,\ B = \sum_n r y_{nj}^2` (for normal scales of
  precision zeta :math:`(B/A)^{1/4}`, :math:`A = \zeta_j\phi_j^2`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.depcam.em_blocks import (ROUNDING, Evaluation, objective_of, rows_of)
from inference.methods.depcam.rows import (LocalRows, log_standard_normal, rows_given_latents, tight_curves)
from inference.methods.depcam.poisson_latents import (best_scaling, natural_step, poisson_rows, scaled_bound)
from zoo.depcam import DEPCAM

__all__ = ["rescale", "update_latents"]

HALVINGS = 8


def update_latents(
    values: dict[str, Array], model: DEPCAM, x: Array, clamp: Array
) -> tuple[dict[str, Array], Array]:
    """Latents (25), or q of them, the bound's curves, the noise variance of Gaussian cells; and visits."""
    rows, one = rows_of(values, model, x), jnp.array(1)
    if "latents_loc" in values:
        sizes, visits = _longest_steps(
            lambda size: poisson_rows(values | natural_step(values, model, rows, size), model, x).log_density,
            rows.log_density,
        )
        return values | natural_step(values, model, rows, sizes), one + visits
    _, r = objective_of(rows.log_density, values, model, clamp)
    if "latents" in values:
        latents, visits = _moved_latents(values, model, x, rows, r, clamp)
        return values | {"latents": latents}, one + visits
    if not model.integrates_latents:
        return values | {"curves": tight_curves(values, model, rows)}, one
    if "noise_variance" not in values:
        return values, one
    loadings, variance = model.local(values).loadings, values["noise_variance"]
    spread = jnp.einsum("kfi,nkij,kfj->nkf", loadings, rows.covariance, loadings)
    seen = ~jnp.isnan(x)[:, None]
    squares = jnp.where(seen, (rows.residual * variance) ** 2 + spread, 0.0)
    total = jnp.sum(r[..., None] * squares)
    return values | {"noise_variance": (total + 2.0) / (jnp.sum(seen) + 4.0)}, one


def _moved_latents(
    values: dict[str, Array], model: DEPCAM, x: Array, rows: LocalRows, r: Array, clamp: Array
) -> tuple[Array, Array]:
    y, loadings = values["latents"], model.local(values).loadings
    inner = jnp.einsum("nkf,kfi,kfj->nkij", rows.curvature, loadings, loadings)
    slope = jnp.einsum("nkf,kfi->nki", rows.residual, loadings)
    if y.ndim == 2:
        inner, slope = jnp.einsum("nk,nkij->nij", r, inner), jnp.einsum("nk,nki->ni", r, slope)
    step = jnp.linalg.solve(inner + jnp.eye(y.shape[-1]), (slope - y)[..., None])[..., 0]
    step = jnp.where(jnp.isfinite(step), step, 0.0)
    if model.family.curvature_bound is not None:
        return y + step, jnp.array(0)

    def height(size: Array) -> Array:
        moved = values | {"latents": y + size[..., None] * step}
        own = rows_given_latents(moved, model, x).log_density
        return own if y.ndim == 3 else _shared_height(own, moved, model, clamp)

    before = rows.log_density if y.ndim == 3 else _shared_height(rows.log_density, values, model, clamp)
    sizes, visits = _longest_steps(height, before)
    return y + sizes[..., None] * step, visits


def _shared_height(log_rows: Array, values: dict[str, Array], model: DEPCAM, clamp: Array) -> Array:
    log_joint = log_rows + model.weights.log_weights(values) + clamp
    return jax.nn.logsumexp(log_joint, axis=-1) + log_standard_normal(values["latents"])


def _longest_steps(height: Callable, before: Array) -> tuple[Array, Array]:
    """The largest of 1, 1/2, ... for each row at which its height does not fall, else 0; and visits."""
    floor = before - ROUNDING * jnp.finfo(before.dtype).eps * jnp.abs(before)

    def halve(state: tuple) -> tuple:
        sizes, _, count = state
        falls = ~(height(sizes) >= floor)
        return jnp.where(falls, sizes / 2, sizes), falls, count + 1

    def goes_on(state: tuple) -> Array:
        return jnp.any(state[1]) & (state[2] < HALVINGS)

    begin = (jnp.ones_like(before), jnp.ones(before.shape, bool), jnp.array(0))
    sizes, falls, count = jax.lax.while_loop(goes_on, halve, begin)
    return jnp.where(falls, 0.0, sizes), count


def rescale(values: dict[str, Array], model: DEPCAM, now: Evaluation, clamp: Array) -> tuple[Any, Array]:
    """Scales times c and latents over c, c optimal given responsibilities; values and objective."""
    scales, r = values["scales"], now.responsibilities
    if model.scale_prior == "laplace":
        cost, power = model.sparsity * jnp.abs(scales), 3
    else:
        cost, power = values["scales_precision"] * scales**2, 4
    if "latents_loc" in values:
        spread = jnp.diagonal(values["latents_covariance"], axis1=-2, axis2=-1)
        squares = jnp.einsum("nk,nkj->kj", r, values["latents_loc"] ** 2 + spread)
        c = best_scaling(jnp.sum(r, axis=0)[:, None] + jnp.zeros_like(scales), squares, cost, power)
        gain, latents = scaled_bound(values, c)
        new, log_rows = values | latents | {"scales": scales * c}, now.log_rows + gain
    else:
        new, log_rows = _rescaled_values(values, now, cost, power)
    objective, _ = objective_of(log_rows, new, model, clamp)
    better = objective >= now.objective
    return jax.tree.map(lambda a, b: jnp.where(better, a, b), (new, objective), (values, now.objective))


def _rescaled_values(
    values: dict[str, Array], now: Evaluation, cost: Array, power: int
) -> tuple[dict[str, Array], Array]:
    y, r = values["latents"], now.responsibilities
    shared = y.ndim == 2
    squares = jnp.sum(y**2, axis=0) if shared else jnp.einsum("nk,nkj->kj", r, y**2)
    cost = jnp.sum(cost, axis=0) if shared else cost
    usable = (cost > 0) & (squares > 0)
    ratio = jnp.where(usable, squares, 1.0) / jnp.where(usable, cost, 1.0)
    c = jnp.where(usable, ratio ** (1 / power), 1.0)
    new = values | {"scales": values["scales"] * c, "latents": y / c}
    if shared:
        return new, now.log_rows
    return new, now.log_rows + log_standard_normal(new["latents"]) - log_standard_normal(y)
