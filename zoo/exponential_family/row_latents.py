r"""Latents of new rows where no closed form exists: their mode, and Laplace's integral over them.

For one row the log density of latents u, :math:`h(u) = \log N(u; 0, v I) + \sum_d k_d(\theta_d)` with
:math:`\theta = V u + \mu`, is concave for every canonical family (and for its conjugate kernel), so Newton's
method with step halving finds the mode. Laplace's approximation of the integral is

.. math:: \log \int e^{h(u)} du \approx h(\hat u) + \tfrac K2 \log 2\pi - \tfrac12 \log|-\nabla^2 h(\hat u)|,

exact where h is quadratic (Gaussian cells).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["RowMode", "row_modes"]

NEWTON_STEPS = 30
HALVINGS = 10  # step sizes 1, 1/2, ..., of which the best is taken


class RowMode(NamedTuple):
    """Of each row.

    Attributes:
        latents: the mode, shape (num_observations, num_latents).
        covariance: inverse of minus the Hessian there, shape (num_observations, num_latents, num_latents).
        log_integral: Laplace's approximation, in nats, shape (num_observations,).
    """

    latents: Array
    covariance: Array
    log_integral: Array


def row_modes(log_joint: Callable, rows: Array, num_latents: int) -> RowMode:
    """Mode and Laplace integral over the latents of every row.

    Args:
        log_joint: ``log_joint(latents, row)``, in nats, concave in the latents where it is finite, and finite
            at latents of zero.
        rows: shape (num_observations, ...).
        num_latents: K.

    Returns:
        Leading shape (num_observations,).
    """
    sizes = 0.5 ** jnp.arange(HALVINGS)

    def one(row: Array) -> RowMode:
        gradient, hessian = jax.grad(log_joint), jax.hessian(log_joint)

        def improve(u: Array, _: None) -> tuple[Array, None]:
            direction = -jnp.linalg.solve(hessian(u, row), gradient(u, row))
            trials = u + sizes[:, None] * direction
            heights = jax.vmap(log_joint, (0, None))(trials, row)
            heights = jnp.where(jnp.isnan(heights), -jnp.inf, heights)
            best = jnp.argmax(heights)
            return jnp.where(heights[best] >= log_joint(u, row), trials[best], u), None

        u = jax.lax.scan(improve, jnp.zeros(num_latents), None, NEWTON_STEPS)[0]
        precision = -hessian(u, row)
        log_integral = (
            log_joint(u, row)
            + 0.5 * num_latents * jnp.log(2 * jnp.pi)
            - 0.5 * jnp.linalg.slogdet(precision)[1]
        )
        return RowMode(u, jnp.linalg.inv(precision), log_integral)

    return jax.lax.map(one, rows, batch_size=min(256, rows.shape[0]))
