r"""Expectation maximisation for linear-Gaussian models of a matrix whose columns share noise by group.

.. math:: z_n \sim N(0, I_K), \qquad x_{nd} = w_d^T z_n + \mu_d + N(0, \psi_{g(d)})

PPCA is one group, factor analysis a group a column, SPPCA the groups x and y (or x and one an output); any
cell may be missing. With :math:`\tilde z = [z, 1]` the E-step gives :math:`C_d = \sum_{n \in o_d} E[\tilde z
\tilde z^T]` over the rows in which column d is observed, and the M-step regresses each column on
:math:`\tilde z` there,

.. math::
    [w_d, \mu_d] = C_d^{-1} \sum_{n \in o_d} x_{nd} E[\tilde z_n], \qquad
    \psi_g = \frac{\sum_{d \in g} \sum_{n \in o_d} E (x_{nd} - w_d^T z_n - \mu_d)^2}{\sum_{d \in g} |o_d|},

which is the exact joint maximum over loadings, mean and noise. The thesis's plug-in (the mean of the observed
cells, whatever z is there) is ``center="plugin"``; it is not the maximum where rows are unlabelled.

*Parameter expansion* (Liu, Rubin and Wu 1998). The latents are allowed the moments that they were found to
have, :math:`z \sim N(m, R)`, and are standardised again: :math:`W \leftarrow W L, \mu \leftarrow \mu + W m`
with :math:`L L^T = R`. Plain EM gets the subspace right at once and then crawls for hundreds of sweeps,
because it can change scale and rotation of the latents only at the rate at which they are uncertain; this
costs one K x K factorisation and takes tens. With a Gaussian prior of the loadings R solves :math:`R M R + N
R = N \hat R`, M the prior's precision times :math:`W^T W`; with an ARD prior, which is not indifferent to
rotation, R is diagonal.

*SQUAREM* (Varadhan and Roland 2008) extrapolates two such sweeps, the log noise kept above its floor, and
takes the extrapolation only if the objective there is at least that of the sweep.

The objective is the log likelihood of the observed cells, plus the log prior where there is one, in nats. It
is that of the new parameters and cannot fall. Noise variances stay above ``floor``, a share of the mean
variance of the group's columns, because the likelihood has no maximum where the latents can explain a group
whole; the guarded M-step is the exact constrained maximum.

A sweep costs O(min(N, D) D K) where nothing is missing, O(N D K^2) with holes in every row
(`inference.methods.linear_gaussian.rows`).

Reference: Tipping and Bishop (1999), appendix B; Yu (2006), section 7.2 with (7.12) and (7.24) corrected.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.methods.linear_gaussian.rows import CompressedRows
from inference.methods.linear_gaussian.linear_gaussian_moments import Moments, Parameters, moments_of
from inference.methods.linear_gaussian.linear_gaussian_prior import (LoadingPrior, expansion, expansion_mean, log_prior, posterior_noise, prior_precision, prior_shift)

__all__ = [
    "ACCELERATIONS",
    "LinearGaussianInfo",
    "LinearGaussianState",
    "begin",
    "m_step",
    "step",
]

ACCELERATIONS = ("px", "none", "squarem")


class LinearGaussianState(NamedTuple):
    """The estimate and what its E-step left behind.

    Attributes:
        parameters: loadings, mean about the centre, noise variance by group.
        moments: of the latents at these parameters.
        objective: at these parameters, nats.
        at_floor: which noise variances the floor holds, shape (num_groups,).
    """

    parameters: Parameters
    moments: Moments
    objective: Array
    at_floor: Array


class LinearGaussianInfo(NamedTuple):
    """What is recorded of a step.

    Attributes:
        objective: log likelihood (plus log prior) at the new parameters, in nats.
        noise_variance: mean over the groups.
        num_at_floor: noise variances that the floor holds.
    """

    objective: Array
    noise_variance: Array
    num_at_floor: Array


def begin(
    parameters: Parameters,
    rows: CompressedRows,
    prior: LoadingPrior | None = None,
    *,
    e_step: Callable = moments_of,
) -> LinearGaussianState:
    """The state at given parameters; ``e_step(parameters, rows)`` gives the moments."""
    moments = e_step(parameters, rows)
    objective = moments.log_likelihood + log_prior(parameters, rows, prior)
    return LinearGaussianState(parameters, moments, objective, jnp.zeros(rows.num_groups, bool))


def step(
    state: LinearGaussianState,
    rows: CompressedRows,
    prior: LoadingPrior | None = None,
    *,
    acceleration: str = "px",
    center: str = "joint",
    floor: Array | float = 1e-6,
    fixed_noise: Array | None = None,
    e_step: Callable = moments_of,
    sweep: Callable | None = None,
) -> tuple[LinearGaussianState, LinearGaussianInfo]:
    """One sweep: M-step from the moments of the state, expansion, E-step (SQUAREM: two sweeps).

    Args:
        state: from `begin` or a former step.
        rows: the data, from `compress` or `one_by_one`.
        prior: of loadings, mean and noise; None: maximum likelihood.
        acceleration: ``"px"``, ``"none"`` or ``"squarem"`` (which extrapolates expanded sweeps).
        center: ``"joint"`` (mean and loadings together) or ``"plugin"`` (mean of the observed cells).
        floor: smallest noise variance as a share of the group's mean variance; one for all groups or one
            each.
        fixed_noise: noise variances that are given, not estimated, shape (num_groups,); NaN: estimated.
        e_step: ``e_step(parameters, rows)`` gives the moments.
        sweep: the M-step and expansion, of rows of another kind (`inference.methods.linear_gaussian.sparse_em`).
    """
    sweep = _sweep if sweep is None else sweep
    lowest = jnp.broadcast_to(floor, rows.group_variance.shape) * rows.group_variance
    keywords = {
        "center": center,
        "expand": acceleration != "none",
        "lowest": lowest,
        "fixed_noise": fixed_noise,
    }
    first, at_floor = sweep(state.parameters, state.moments, rows, prior, **keywords)
    new = begin(first, rows, prior, e_step=e_step)._replace(at_floor=at_floor)
    if acceleration == "squarem":
        second, second_at_floor = sweep(first, new.moments, rows, prior, **keywords)
        leap = _extrapolated(state.parameters, first, second, lowest, fixed_noise)
        leapt = begin(leap, rows, prior, e_step=e_step)._replace(at_floor=second_at_floor)
        better = leapt.objective >= new.objective  # False where it is not a number
        new = jax.tree.map(lambda yes, no: jnp.where(better, yes, no), leapt, new)
    info = LinearGaussianInfo(new.objective, jnp.mean(new.parameters.noise_variance), jnp.sum(new.at_floor))
    return new, info


def _sweep(
    parameters: Parameters,
    moments: Moments,
    rows: CompressedRows,
    prior: LoadingPrior | None,
    *,
    center: str,
    expand: bool,
    lowest: Array,
    fixed_noise: Array | None,
) -> tuple[Parameters, Array]:
    new, at_floor = m_step(
        parameters, moments, rows, prior, center=center, lowest=lowest, fixed_noise=fixed_noise
    )
    return (standardised(new, moments, rows, prior, center) if expand else new), at_floor


def m_step(
    parameters: Parameters,
    moments: Moments,
    rows: CompressedRows,
    prior: LoadingPrior | None,
    *,
    center: str,
    lowest: Array,
    fixed_noise: Array | None = None,
) -> tuple[Parameters, Array]:
    """Loadings, mean and noise that maximise the expected log joint, and which noises the floor holds."""
    num_latents = parameters.loadings.shape[1]
    own_noise = parameters.noise_variance[rows.group]  # used where there is a prior only
    precision = own_noise[rows.class_member, None] * prior_precision(parameters, rows, prior)
    shift = own_noise * prior_shift(rows, prior)
    if center == "joint":
        second = moments.second + jax.vmap(jnp.diag)(precision)
        target = jnp.concatenate([moments.cross, (rows.sums + shift)[:, None]], axis=1)
        solution = _regression(second, target, rows.column_class)
        loadings, loc = solution[:, :num_latents], solution[:, num_latents]
    else:
        latent_part = moments.second[:, :num_latents, :num_latents]
        second = latent_part + jax.vmap(jnp.diag)(precision[:, :num_latents])
        loadings = _regression(second, moments.cross, rows.column_class)
        loc = jnp.zeros_like(rows.sums)  # about the mean of the observed cells
    weights = jnp.concatenate([loadings, loc[:, None]], axis=1)
    right = jnp.concatenate([moments.cross, rows.sums[:, None]], axis=1)
    if prior is None:  # least squares: the residual is orthogonal to the fit
        squares = rows.squares - jnp.sum(weights * right, axis=1)
    else:
        fitted = _quadratic(moments.second, weights, rows.column_class)
        squares = rows.squares - 2 * jnp.sum(weights * right, axis=1) + fitted
    group_squares = jax.ops.segment_sum(squares, rows.group, rows.num_groups)
    group_cells = jax.ops.segment_sum(rows.cells, rows.group, rows.num_groups) + rows.silent_cells
    noise = posterior_noise(group_squares, group_cells, prior)
    at_floor = ~(noise > lowest)
    noise = jnp.where(at_floor, lowest, noise)
    if fixed_noise is not None:
        given = ~jnp.isnan(fixed_noise)
        noise, at_floor = jnp.where(given, fixed_noise, noise), at_floor & ~given
    return Parameters(loadings, loc, noise), at_floor


def standardised(
    parameters: Parameters, moments: Moments, rows: CompressedRows, prior: LoadingPrior | None, center: str
) -> Parameters:
    """The parameters with the latents' found moments taken into the loadings: parameter expansion."""
    loadings, loc, noise = parameters
    mean = moments.total_first / rows.total_weight
    spread = moments.total_second / rows.total_weight
    if center == "joint":
        moved = expansion_mean(mean, parameters, rows, prior)
        spread = spread - jnp.outer(mean, moved) - jnp.outer(moved, mean) + jnp.outer(moved, moved)
        loc = loc + loadings @ moved
    return Parameters(loadings @ expansion(spread, loadings, rows, prior), loc, noise)


@jax.jit
def _extrapolated(
    start: Parameters, first: Parameters, second: Parameters, lowest: Array, fixed_noise: Array | None
) -> Parameters:
    """SQUAREM's leap from two sweeps, steplength S3."""
    zero, one, two = (p._replace(noise_variance=jnp.log(p.noise_variance)) for p in (start, first, second))
    change = jax.tree.map(jnp.subtract, one, zero)
    bend = jax.tree.map(lambda b, a, r: b - a - r, two, one, change)
    norm_change, norm_bend = _norm(change), _norm(bend)
    length = -jnp.maximum(norm_change / jnp.maximum(norm_bend, 1e-300), 1.0)
    leap = jax.tree.map(lambda a, r, v: a - 2 * length * r + length**2 * v, zero, change, bend)
    noise = jnp.maximum(jnp.exp(leap.noise_variance), lowest)
    if fixed_noise is not None:
        noise = jnp.where(jnp.isnan(fixed_noise), noise, fixed_noise)
    return leap._replace(noise_variance=noise)


def _norm(tree: Parameters) -> Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def _regression(second: Array, target: Array, column_class: Array) -> Array:
    """Each column's coefficients, (D, size), from its class's second moments and its own cross moments."""
    if second.shape[0] == 1:
        return cho_solve((jnp.linalg.cholesky(second[0]), True), target.T).T
    identity = jnp.broadcast_to(jnp.eye(second.shape[1]), second.shape)
    factor = jnp.linalg.cholesky(second)
    inverse = jax.vmap(lambda lower, right: cho_solve((lower, True), right))(factor, identity)
    return jnp.einsum("di,dij->dj", target, inverse[column_class])


def _quadratic(second: Array, weights: Array, column_class: Array) -> Array:
    """w_d' C_d w_d of every column."""
    if second.shape[0] == 1:
        return jnp.sum((weights @ second[0]) * weights, axis=1)
    return jnp.einsum("di,dij,dj->d", weights, second[column_class], weights)
