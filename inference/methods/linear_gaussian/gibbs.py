r"""Conditionals of the columns of linear-Gaussian models given the latents of the rows.

Loadings and mean of a column are the regression of its observed cells on [z, 1] with the prior as ridge: the
loadings with the mean integrated out, then the mean given them; the noise variances are inverse gamma. Rows
may have precisions u of their own, the weights of their squares; normal rows have ones.
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.linear_gaussian.supervised import BlockPrior
from zoo.shapes import Values

Conditionals = dict[str, dist.Distribution]


def regression(
    values: Values,
    suffix: str,
    cells: Array,
    noise: Array,
    prior: BlockPrior,
    row_precision: Array | float = 1.0,
) -> Conditionals:
    """Conditionals of the loadings of each column, its mean integrated out, and of the mean.

    Args:
        values: of the sites.
        suffix: of the sites' names.
        cells: shape (num_observations, num_columns), NaN where missing.
        noise: variance, shape () or (num_columns,).
        prior: of the columns, its ``loading_variance`` of shape () or (num_latents,).
        row_precision: u, shape (num_observations, 1); 1: normal rows.
    """
    z = values["latents"]
    size, num_latents = cells.shape[1], z.shape[1]
    observed = jnp.where(jnp.isnan(cells), 0.0, row_precision)
    known = observed * jnp.nan_to_num(cells)
    noise = jnp.broadcast_to(noise, (size,))[:, None]
    squares = (z[:, :, None] * z[:, None, :]).reshape(-1, num_latents**2)
    second = (observed.T @ squares / noise).reshape(-1, num_latents, num_latents)
    first = observed.T @ z / noise  # sum of z over the rows of each column
    total = jnp.sum(observed, axis=0) / noise[:, 0] + 1 / prior.loc_variance
    cross, sums = known.T @ z / noise, jnp.sum(known, axis=0) / noise[:, 0]
    sums = sums + prior.loc_mean / prior.loc_variance
    precision = second + jnp.eye(num_latents) / prior.loading_variance
    precision = precision - first[:, :, None] * first[:, None, :] / total[:, None, None]
    covariance = jnp.linalg.inv(precision)
    mean = jnp.einsum("dij,dj->di", covariance, cross - first * (sums / total)[:, None])
    covariance = (covariance + jnp.swapaxes(covariance, 1, 2)) / 2
    loc = (sums - jnp.sum(first * values[f"loadings{suffix}"], axis=1)) / total
    return {
        f"loadings{suffix}": dist.MultivariateNormal(mean, covariance, validate_args=False).to_event(1),
        f"loc{suffix}": dist.Normal(loc, 1 / jnp.sqrt(total)).to_event(1),
    }


def noise(
    values: Values,
    suffix: str,
    cells: Array,
    prior: BlockPrior,
    *,
    per_column: bool,
    row_precision: Array | float = 1.0,
) -> Conditionals:
    """The conditional of the noise variance of each column, or of all; arguments as of `regression`."""
    away = cells - values[f"loc{suffix}"] - values["latents"] @ values[f"loadings{suffix}"].T
    squares, counts = jnp.nansum(row_precision * away**2, axis=0), jnp.sum(~jnp.isnan(cells), axis=0)
    if not per_column:
        squares, counts = jnp.sum(squares), jnp.sum(counts)
    own = dist.InverseGamma(prior.noise_concentration + counts / 2, prior.noise_rate + squares / 2)
    return {f"noise_variance{suffix}": own.to_event(squares.ndim)}


def half_variance(cells: Array) -> Array:
    """Half the mean variance of the columns, whatever their unit and means: noise to start from."""
    return jnp.maximum(jnp.nanmean(jnp.nanvar(cells, axis=0)) / 2, jnp.finfo(cells.dtype).tiny)
