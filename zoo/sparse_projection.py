r"""Sparse rows of a linear-Gaussian model, reduced to as many dense numbers as there are latents.

A complete row x speaks of its latents through :math:`b = W^T \Psi^{-1} (x - \mu)` alone, with precision
:math:`P = W^T \Psi^{-1} W = V \,\mathrm{diag}(s)\, V^T`. It is therefore worth the K numbers
:math:`\tilde x = \mathrm{diag}(s)^{-1/2} V^T b` with loadings :math:`\mathrm{diag}(s)^{1/2} V^T`, mean 0 and
noise variance 1, up to a factor of its density that is free of the latents,

.. math::
    -\tfrac12 \sum_d \{\log 2\pi\psi_d + (x_d - \mu_d)^2 / \psi_d\}
    + \tfrac12 (K \log 2\pi + \tilde x^T \tilde x) .

So rows that are mostly zeros cost two sparse products and are never made dense; centring is implicit. The sum
of squares is taken apart, which loses the digits that the noise is smaller than the data.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from zoo.sparse_matrix import SparseMatrix

__all__ = ["ReducedRows", "reduced"]


class ReducedRows(NamedTuple):
    """Rows of a linear-Gaussian model with as many columns as latents.

    Attributes:
        rows: shape (num_observations, num_latents).
        loadings: shape (num_latents, num_latents).
        loc: zeros, shape (num_latents,).
        noise_variance: ones, shape (num_latents,).
        log_factor: what to add to the log density of each row, shape (num_observations,).
    """

    rows: Array
    loadings: Array
    loc: Array
    noise_variance: Array
    log_factor: Array


def reduced(x: SparseMatrix, loadings: Array, loc: Array, noise_variance: Array) -> ReducedRows:
    """The rows, reduced.

    Args:
        x: the rows.
        loadings: W, shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().

    Returns:
        Rows of as many columns as there are latents, with what else their density needs.
    """
    precision = 1 / jnp.broadcast_to(jnp.asarray(noise_variance), loc.shape)
    scaled = loadings * precision[:, None]
    number = loadings.shape[1]
    products = x.times(jnp.concatenate([scaled, (loc * precision)[:, None]], axis=1))
    strengths, turn = jnp.linalg.eigh(scaled.T @ loadings)
    known = strengths > jnp.max(strengths) * jnp.finfo(strengths.dtype).eps
    lengths = jnp.sqrt(jnp.where(known, strengths, 1.0))
    rows = (products[:, :number] - loc @ scaled) @ turn * jnp.where(known, 1 / lengths, 0.0)
    squares = x.squares_times(precision[:, None])[:, 0] - 2 * products[:, number] + loc**2 @ precision
    log_det = jnp.sum(jnp.log(2 * jnp.pi / precision))
    factor = 0.5 * (number * jnp.log(2 * jnp.pi) + jnp.sum(rows**2, axis=1) - squares - log_det)
    own = jnp.where(known, lengths, 0.0)[:, None] * turn.T
    return ReducedRows(rows, own, jnp.zeros(number), jnp.ones(number), factor)
