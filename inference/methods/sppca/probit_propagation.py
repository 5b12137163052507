r"""Expectation propagation for a Gaussian cut off at zero in every entry.

Of d ~ N(mu, Sigma) given d > 0 every half line is replaced by a Gaussian site
:math:`\exp(\nu_j d - \tau_j d^2 / 2)`, so chosen that the approximation has, in entry j, the moments of the
cavity times the half line, which are in closed form. With one entry the result is exact, normalising constant
and moments; with more it is an approximation and no bound in either direction, least accurate where the
entries are strongly correlated. The derivative of its log normalising constant with respect to mu and Sigma
is exactly that of its moments, so a fixed point of the EM that uses them is a stationary point of the
objective.

References: Minka (2001), "Expectation propagation for approximate Bayesian inference"; Rasmussen and Williams
(2006), "Gaussian processes for machine learning", section 3.6.
"""

import jax
import jax.numpy as jnp
from jax import Array

from zoo.linear_gaussian.orthants import Orthant, positive_normal_moments

__all__ = ["propagate"]

MOST_SWEEPS = 60
PRECISION = 1e-9  # of the sites


def propagate(mean: Array, covariance: Array) -> Orthant:
    """The approximation for one row.

    Args:
        mean: mu, shape (J,).
        covariance: Sigma, positive definite, shape (J, J).
    """
    size = mean.shape[0]
    if size == 1:
        log_probability, first, second = positive_normal_moments(mean, jnp.sqrt(covariance[0]))
        return Orthant(log_probability[0], first, second[:, None])
    natural = jnp.linalg.solve(covariance, mean)

    def cavity(j: Array, carry: tuple) -> tuple[Array, Array]:
        precisions, shifts, spread = carry
        variance = spread[j, j]
        centre = spread[j] @ (natural + shifts)
        left = jnp.maximum(1 / variance - precisions[j], 1e-12)
        return 1 / left, (centre / variance - shifts[j]) / left

    def update(j: Array, carry: tuple) -> tuple:
        precisions, shifts, spread = carry
        variance, centre = cavity(j, carry)
        _, first, second = positive_normal_moments(centre, jnp.sqrt(variance))
        precision = jnp.maximum(1 / second - 1 / variance, 0.0)
        shift = first / second - centre / variance
        change = precision - precisions[j]
        column = spread[:, j]
        spread = spread - (change / (1 + change * spread[j, j])) * column[:, None] * column[None, :]
        return precisions.at[j].set(precision), shifts.at[j].set(shift), spread

    def sweep(carry: tuple) -> tuple:
        count, _, sites = carry
        new = jax.lax.fori_loop(0, size, update, sites)
        moved = jnp.max(jnp.abs(new[0] - sites[0])) + jnp.max(jnp.abs(new[1] - sites[1]))
        return count + 1, moved, new

    def goes_on(carry: tuple) -> Array:
        return (carry[0] < MOST_SWEEPS) & (carry[1] > PRECISION)

    silent = (jnp.zeros_like(mean), jnp.zeros_like(mean), covariance)
    _, _, sites = jax.lax.while_loop(goes_on, sweep, (0, jnp.asarray(jnp.inf, mean.dtype), silent))
    precisions, shifts, spread = sites
    centre = spread @ (natural + shifts)
    variances, centres = jax.vmap(lambda j: cavity(j, sites))(jnp.arange(size))
    log_parts, _, _ = positive_normal_moments(centres, jnp.sqrt(variances))
    whole = 0.5 * ((natural + shifts) @ centre - mean @ natural)
    whole = whole - 0.5 * jnp.linalg.slogdet(jnp.eye(size) + covariance * precisions[None, :])[1]
    sites_alone = 0.5 * (centres / variances + shifts) ** 2 / (1 / variances + precisions)
    sites_alone = sites_alone - 0.5 * centres**2 / variances - 0.5 * jnp.log1p(precisions * variances)
    return Orthant(whole + jnp.sum(log_parts - sites_alone), centre, spread)
