r"""Expectations over the latents of rows: what a missing cell is expected to be, and how far it may be off.

A cell with natural parameter :math:`\theta` has mean :math:`m(\theta)` and variance :math:`s(\theta)`; given
the observed cells of its row

.. math:: E[x] = E[m(\theta)], \qquad \mathrm{Var}[x] = E[s(\theta)] + \mathrm{Var}[m(\theta)],

over the posterior of the row's latents u, :math:`p(u \mid x_o) \propto e^{h(u)}`. At the mode of u the first
would be too small by the curvature of m, e.g. :math:`e^{v^T \mathrm{Cov} v / 2}` for counts, and the second
would lack its second part, which is most of it where few cells were observed.

**Nodes** (`over_latents`). :math:`u_i = a + L z_i` with fixed nodes z of a standard normal and their weights
b, each weighted by :math:`w_i \propto b_i e^{h(u_i)} / N(u_i; a, L L^T)`. The normal begins as Laplace's and
is moved twice to the mean and covariance that the weighted nodes have (Naylor and Smith 1982): Laplace's
alone overshoots for counts, because their posterior is skewed. Up to four latents the nodes are products of
Gauss and Hermite's (40, 18, 9 and 6 a latent), beyond that 1024 quasi-random ones whose mean is exactly zero
and whose covariance is exactly one, so that Gaussian cells are exact with any of them. A latent on which no
observed cell depends keeps its prior exactly.

**Steep cells** (`are_steep`). Where theta's deviation is many units, a bounded mean is nearly a step along u,
and a grid sees it as far as its nodes are apart: with one latent the error of E[m] of a Bernoulli cell is
0.001 at a deviation of 6, 0.01 at 10 and 0.08 at 200, with four latents 0.002 at 2 and 0.2 at 200. Beyond
`STEEP` the nodes are the quasi-random ones with few latents too, whose error is 0.001 with one latent
and at most 0.015 with more.

**Spread of the loadings** (`with_spread`). Where loadings have a distribution themselves, normal and
independent between columns as in variational Bayes, :math:`\theta_d` given u is normal about its mean; each
node is then replaced by sixteen along it. The error of E[m] of a Bernoulli cell is at most 0.0006 where that
normal has a standard deviation of 3, 0.003 at 4, 0.013 at 6 and 0.04 at 10.

Accuracy, as the tests hold it on drawn data against quadrature over the exact posterior: with one latent,
relative errors of expectations below 2e-3 and of deviations below 5e-3 for every family. With more latents
one case of three was compared, to 4e-5. All this is at given parameters: expectations of counts rest on the
tail of the latents, and MAP's loadings are too long for latents as wide as the prior, so its expectations
of counts in new rows may be far too large where variational Bayes or a sampler has them right.

**The tail** (`rests_on_tail`). Where log m has standard deviation s over the latents' posterior and is about
normal, :math:`E[m]` is :math:`e^{s^2 / 2}` times the median, its integrand lies s deviations above the mean,
and the share :math:`\Phi(s - 3)` of it comes from beyond three deviations, where one row in 740 is. Loadings
that are too long by a factor f make it too large by :math:`e^{(1 - f^{-2}) s^2 / 2}`, a factor of three at
s = 1.72, where the share is a tenth, and of 40 at s = 3.1 for f = 2. So s measures how little an expectation
at a point estimate of the loadings can be relied on; :math:`E[m^2] / E[m]^2 = e^{s^2}` tells it. (Measured
by MAP, one Poisson view from another: 1.5 times what was observed at s below 1.5, 6 at 2 to 2.5, 450 at 4.)

References: Naylor and Smith (1982), "Applications of a method for the efficient computation of posterior
distributions"; Tierney and Kadane (1986).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import ndtri

from zoo import late
from zoo.exponential_family.natural_params import RowMode
from zoo.in_blocks import map_in_blocks

GRID = {1: 40, 2: 18, 3: 9, 4: 6}  # latents to nodes for each
STEEP = {1: 6.0, 2: 4.0, 3: 2.5, 4: 2.0}  # latents to the deviation of theta that a grid is good for
NUM_POINTS = 1024  # quasi-random ones, with more latents
SPREAD_NODES = 16
ROUNDS = 2  # of moving the normal to the moments of its nodes
MOST = 4.0  # factor by which a round may change a variance
TAIL_SHARE = 0.1  # of an expectation, from beyond three deviations of the latents
LARGEST_RATIO = float(np.exp((3.0 + ndtri(TAIL_SHARE)) ** 2))  # E[m^2] / E[m]^2 with that share
BLOCK_NODES = 2**19  # nodes times columns that are held at a time


class Nodes(NamedTuple):
    """Latents of one row at which functions of them are averaged.

    Attributes:
        latents: u, shape (num_nodes, num_latents).
        weights: of the posterior, shape (num_nodes,), with sum one.
        normal_weights: those under which the nodes are normal, likewise.
    """

    latents: Array
    weights: Array
    normal_weights: Array


def are_steep(family: Any, loadings: Any, latent_variance: Any) -> bool:
    """Whether a grid of nodes is too coarse for the bounded means of some cells.

    Args:
        family: of the cells.
        loadings: of their natural parameters, shape (..., num_params, num_latents), of any number of draws.
        latent_variance: of the prior of the latents, broadcastable to (num_latents,).

    Returns:
        Whether a column's natural parameter has a prior deviation above `STEEP`, in the median draw.
    """
    num_latents = np.shape(loadings)[-1]
    if num_latents not in STEEP:
        return False
    own = np.asarray(loadings, float).reshape(-1, *np.shape(loadings)[-2:])
    deviations = np.median(np.sqrt(np.sum(own**2 * np.asarray(latent_variance, float), axis=-1)), axis=0)
    columns = np.asarray(family.param_columns(_num_columns(family, len(deviations))))
    bounded = [group for member, group in family.column_groups(columns[-1] + 1) if _is_bounded(member)]
    steep = deviations > STEEP[num_latents]
    return bool(steep[np.isin(columns, np.concatenate(bounded))].any()) if bounded else False


def _num_columns(family: Any, num_params: int) -> int:
    """Columns of a table with so many natural parameters a row."""
    return len(family.columns) if family.is_mixed else num_params // family.params_per_cell


def _is_bounded(family: Any) -> bool:
    """Whether the mean of a cell is bounded in theta: neither linear nor with a tail."""
    one = jnp.ones(1)
    return family.log_partition_form != "quadratic" and family.mean_square_of_means(one, one) is None


@cache
def unit_nodes(num_latents: int, steep: bool = False) -> tuple[np.ndarray, np.ndarray, bool]:
    """Nodes and weights of a standard normal, mean zero and covariance one.

    Args:
        num_latents: K.
        steep: whether a grid is too coarse, see `are_steep`.

    Returns:
        Nodes, shape (num_nodes, num_latents); weights with sum one, shape (num_nodes,); and whether the nodes
        are a grid.
    """
    if num_latents in GRID and not steep:
        one, weights = hermegauss(GRID[num_latents])
        grid = np.meshgrid(*[one] * num_latents, indexing="ij")
        product = np.prod(np.meshgrid(*[weights] * num_latents, indexing="ij"), axis=0).ravel()
        return np.stack([axis.ravel() for axis in grid], axis=1), product / product.sum(), True
    if num_latents == 1:  # one in each slice of equal probability
        points = ndtri((np.arange(NUM_POINTS) + 0.5) / NUM_POINTS)[:, None]
        return points / points.std(), np.full(NUM_POINTS, 1.0 / NUM_POINTS), False
    drawn = ndtri(late.qmc.Sobol(num_latents, seed=0).random(NUM_POINTS // 2))
    points = np.concatenate([drawn, -drawn])
    if num_latents < NUM_POINTS // 2:
        factor = np.linalg.cholesky(points.T @ points / len(points))
        points = np.linalg.solve(factor, points.T).T
    return points, np.full(len(points), 1.0 / len(points)), False


def over_latents(
    log_joint: Callable,
    function: Callable,
    rows: Array,
    mode: RowMode,
    num_columns: int,
    *,
    steep: bool = False,
) -> Any:
    """A function of the nodes of each row.

    Args:
        log_joint: ``log_joint(latents, row)``, in nats, up to a constant; minus infinity outside the domain.
        function: ``function(nodes, row)`` with `Nodes`, a pytree of arrays.
        rows: shape (num_observations, ...).
        mode: of the rows.
        num_columns: for how many columns ``function`` makes an array with all nodes.
        steep: whether a grid is too coarse, see `are_steep`.

    Returns:
        What ``function`` returns, with leading shape (num_observations,).
    """
    num_latents = mode.latents.shape[-1]
    points, base, is_grid = unit_nodes(num_latents, steep)
    z, log_base = jnp.asarray(points, mode.latents.dtype), jnp.log(jnp.asarray(base, mode.latents.dtype))

    def one(given: tuple) -> Any:
        row, loc, covariance = given

        def move(_: int, carry: tuple) -> tuple:
            loc, factor = carry[:2]
            u = loc + z @ factor.T
            heights = jax.vmap(log_joint, (0, None))(u, row)
            logits = log_base + heights + 0.5 * jnp.sum(z**2, axis=1)
            weights = jax.nn.softmax(jnp.where(jnp.isnan(logits), -jnp.inf, logits))
            away = weights @ z
            spread = (z * weights[:, None]).T @ z - jnp.outer(away, away)
            if not is_grid:  # few of the points may carry all weight
                share = 1.0 / jnp.sum(weights**2)
                share = share / (share + 4 * num_latents)
                spread = share * spread + (1.0 - share) * jnp.eye(num_latents)
            values, vectors = jnp.linalg.eigh(spread)
            moved = factor @ (vectors * jnp.sqrt(jnp.clip(values, 1.0 / MOST, MOST)))
            return loc + factor @ away, moved, u, weights

        begin = loc, jnp.linalg.cholesky(covariance), jnp.zeros_like(z), jnp.zeros_like(log_base)
        _, _, u, weights = jax.lax.fori_loop(0, ROUNDS + 1, move, begin)
        return function(Nodes(u, weights, jnp.exp(log_base)), row)

    size = BLOCK_NODES // (len(points) * max(num_columns, num_latents))
    return map_in_blocks(one, (rows, mode.latents, mode.covariance), size)


def with_spread(theta: Array, variance: Array | None, nodes: Nodes) -> tuple[Array, Array, Array | None]:
    """Natural parameters at the nodes of a row, each spread over its variance there, and their weights.

    Args:
        theta: shape (num_nodes, num_params).
        variance: of theta given the latents, likewise; None: none.
        nodes: of the row.

    Returns:
        Theta, shape (number, num_params); weights, shape (number,), with sum one; and the normal weights of
        the nodes, or None.
    """
    if variance is None:
        return theta, nodes.weights, nodes.normal_weights
    points, base, _ = _along(theta.dtype)
    wide = theta[:, None] + jnp.sqrt(variance)[:, None] * points[:, None]
    return wide.reshape(-1, theta.shape[-1]), jnp.outer(nodes.weights, base).ravel(), None


def rests_on_tail(mean: Array, mean_square: Array) -> Array:
    """Which cells' expectations come to more than a tenth from beyond three deviations of the latents.

    Args:
        mean: E[m] of the cells, any shape.
        mean_square: E[m^2], likewise.

    Returns:
        Boolean, shape of ``mean``; True where either is not a number.
    """
    return ~(mean_square <= LARGEST_RATIO * mean**2)


def expected_log_density(log_density: Callable, theta: Array, variance: Array) -> Array:
    """Log of the mean of a density over normal natural parameters, by Gauss and Hermite's rule.

    Args:
        log_density: of natural parameters, shape (..., num_params), to cells, shape (..., num_features).
        theta: their means, shape (num_params,).
        variance: their variances, likewise.

    Returns:
        Shape (num_features,), in nats.
    """
    points, base, log_base = _along(theta.dtype)
    cells = log_density(theta + jnp.sqrt(variance) * points[:, None])
    return jax.nn.logsumexp(cells + log_base[:, None], axis=0)


def _along(dtype: Any) -> tuple[Array, Array, Array]:
    """Nodes of a standard normal in one dimension, their weights, and the logarithms of these."""
    points, weights = hermegauss(SPREAD_NODES)
    base = jnp.asarray(weights / weights.sum(), dtype)
    return jnp.asarray(points, dtype), base, jnp.log(base)
