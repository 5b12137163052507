r"""The E-step of a linear-Gaussian model: moments of the latents and the log likelihood.

The notation is that of `zoo.linear_gaussian.rows`, whose residual form of the log density is used here too: a sum
of squares, accurate to rounding however small the noise is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.methods.linear_gaussian.rows import CompressedRows, Pattern
from inference.numerics.row_blocks import sum_over_rows
from inference.numerics.weighted_rows import Rows

__all__ = ["Moments", "Parameters", "moments_of"]


class Parameters(NamedTuple):
    """A linear-Gaussian model of compressed rows.

    Attributes:
        loadings: W, shape (D, num_latents).
        loc: the mean about the centre, shape (D,).
        noise_variance: by group, shape (num_groups,).
    """

    loadings: Array
    loc: Array
    noise_variance: Array


class Moments(NamedTuple):
    """Sums over rows of posterior moments of the latents.

    Attributes:
        second: by class of columns, the sum of E[[z, 1] [z, 1]'] over the rows in which the class is
            observed, shape (Q, num_latents + 1, num_latents + 1).
        cross: by column, the sum of x E[z] over its rows, x about the centre, shape (D, num_latents).
        total_second: the sum of E[z z'] over all rows, shape (num_latents, num_latents).
        total_first: the sum of E[z] over all rows, shape (num_latents,).
        log_likelihood: of all observed cells, nats.
    """

    second: Array
    cross: Array
    total_second: Array
    total_first: Array
    log_likelihood: Array


def moments_of(parameters: Parameters, rows: CompressedRows) -> Moments:
    """The moments at given parameters."""
    per_column = parameters.noise_variance[rows.group]
    total = None
    for pattern in rows.patterns:
        part = _pattern_moments(parameters, per_column, pattern, rows.class_member)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    if rows.single.shape[0]:
        packed = Rows(jnp.stack([rows.single, rows.single_observed], axis=1), rows.single_weight)

        def block(cells: Array, weight: Array) -> Moments:
            return _single_moments(
                parameters, per_column, cells[:, 0], cells[:, 1], weight, rows.class_member
            )

        part = sum_over_rows(block, packed)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    silent = -0.5 * jnp.sum(rows.silent_cells * jnp.log(2 * jnp.pi * parameters.noise_variance))
    return total._replace(log_likelihood=total.log_likelihood + silent)


def _pattern_moments(
    parameters: Parameters, per_column: Array, pattern: Pattern, class_member: Array
) -> Moments:
    loadings, loc, _ = parameters
    seen = pattern.observed
    identity = jnp.eye(loadings.shape[1])
    scaled = loadings * (seen / per_column)[:, None]
    factor = jnp.linalg.cholesky(scaled.T @ loadings + identity)
    covariance = cho_solve((factor, True), identity)
    gain = scaled @ covariance  # E[z] = gain' (x - loc)
    deviation = seen * (pattern.mean - loc)
    mean, spread = deviation @ gain, pattern.rows @ gain
    residuals = pattern.rows - seen * (spread @ loadings.T)
    squares = jnp.sum(residuals**2, axis=0) + pattern.count * (deviation - seen * (loadings @ mean)) ** 2
    quadratic = jnp.sum(squares / per_column) + jnp.sum(spread**2) + pattern.count * jnp.sum(mean**2)
    log_det = seen @ jnp.log(2 * jnp.pi * per_column) + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    own_second = pattern.count * (covariance + jnp.outer(mean, mean)) + spread.T @ spread
    own_first = pattern.count * mean
    return Moments(
        second=seen[class_member][:, None, None] * _bordered(own_second, own_first, pattern.count),
        cross=pattern.rows.T @ spread + pattern.count * jnp.outer(pattern.mean, mean),
        total_second=own_second,
        total_first=own_first,
        log_likelihood=-0.5 * (pattern.count * log_det + quadratic),
    )


def _single_moments(
    parameters: Parameters, per_column: Array, x: Array, seen: Array, weight: Array, class_member: Array
) -> Moments:
    """Of rows each of which has its own holes, shapes (rows, D), (rows, D) and (rows,)."""
    loadings, loc, _ = parameters
    num_latents = loadings.shape[1]
    identity = jnp.eye(num_latents)
    outer = (loadings / per_column[:, None])[:, :, None] * loadings[:, None, :]
    precisions = (seen @ outer.reshape(-1, num_latents**2)).reshape(-1, num_latents, num_latents) + identity
    factor = jnp.linalg.cholesky(precisions)
    covariance = jax.vmap(lambda lower: cho_solve((lower, True), identity))(factor)
    deviation = seen * (x - loc)
    mean = jnp.einsum("nkj,nj->nk", covariance, (deviation / per_column) @ loadings)
    residuals = deviation - seen * (mean @ loadings.T)
    quadratic = residuals**2 @ (1 / per_column) + jnp.sum(mean**2, axis=1)
    log_diagonal = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2))
    log_det = seen @ jnp.log(2 * jnp.pi * per_column) + 2 * jnp.sum(log_diagonal, axis=1)
    second = weight[:, None, None] * (covariance + mean[:, :, None] * mean[:, None, :])
    first = weight[:, None] * mean
    border = jnp.concatenate([second, first[:, :, None]], axis=2)
    bottom = jnp.concatenate([first, weight[:, None]], axis=1)
    bordered = jnp.concatenate([border, bottom[:, None, :]], axis=1)
    by_class = seen[:, class_member].T @ bordered.reshape(bordered.shape[0], -1)
    return Moments(
        second=by_class.reshape(-1, num_latents + 1, num_latents + 1),
        cross=x.T @ first,
        total_second=jnp.sum(second, axis=0),
        total_first=jnp.sum(first, axis=0),
        log_likelihood=-0.5 * weight @ (log_det + quadratic),
    )


def _bordered(second: Array, first: Array, count: Array) -> Array:
    return jnp.block([[second, first[:, None]], [first[None, :], jnp.reshape(count, (1, 1))]])
