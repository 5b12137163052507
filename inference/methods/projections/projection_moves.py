"""Moves of latents, loadings and means along directions in which no natural parameter changes.

There the conditionals alone take small steps (Liu and Sabatti 2000, "Generalised Gibbs sampler and multigrid
Monte Carlo for Bayesian computation"). Whatever acts on natural parameters alone, likelihood or conjugate
kernel, is of no account: only the Gaussian priors of latents, loadings and means are.
"""

import jax
import jax.numpy as jnp
from jax import Array

from inference.numerics.slice_sampling import PositiveSlice

__all__ = ["common_shift", "rescaling"]


def common_shift(
    key: Array, latents: Array, loadings: Array, loc: Array, latent_precision: Array, loc_precision: Array
) -> Array:
    """Delta of latents + delta, loc - loadings delta: an exact draw, shape (num_latents,).

    Args:
        key: a JAX key.
        latents: shape (num_observations, num_latents).
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        latent_precision: prior precision of the latents, about zero.
        loc_precision: prior precision of the means, about zero.
    """
    size = latents.shape[1]
    precision = latents.shape[0] * latent_precision * jnp.eye(size) + loc_precision * loadings.T @ loadings
    linear = loc_precision * loadings.T @ loc - latent_precision * jnp.sum(latents, axis=0)
    factor = jnp.linalg.cholesky(precision)
    standard = jax.random.normal(key, linear.shape, linear.dtype)
    delta = jax.scipy.linalg.cho_solve((factor, True), linear)
    return delta + jax.scipy.linalg.solve_triangular(factor.T, standard, lower=False)


def rescaling(
    key: Array,
    latents: Array,
    loadings: Array,
    latent_precision: Array,
    loading_precision: Array,
    num_columns: Array | int | None = None,
) -> Array:
    """G of latents g, loadings / g: a slice-sampling step for each latent, shape (num_latents,).

    Args:
        key: a JAX key.
        latents: shape (num_observations, num_latents).
        loadings: shape (num_features, num_latents).
        latent_precision: prior precision of the latents, about zero.
        loading_precision: of the loadings, shape () or (num_latents,).
        num_columns: how many loadings of each latent are free, shape (num_latents,); None: all of them.
    """
    columns = jnp.broadcast_to(loadings.shape[0] if num_columns is None else num_columns, latents.shape[1:])

    def one(key: Array, z_squares: Array, w_squares: Array, difference: Array) -> Array:
        def log_density(g: Array) -> Array:  # the measure of a scale group is dg / g
            return (difference - 1) * jnp.log(g) - 0.5 * (g**2 * z_squares + w_squares / g**2)

        return PositiveSlice(log_density, jnp.ones_like(z_squares), width=0.3).sample(key)

    keys = jax.random.split(key, latents.shape[1])
    z_squares = latent_precision * jnp.sum(latents**2, axis=0)
    w_squares = loading_precision * jnp.sum(loadings**2, axis=0)
    return jax.vmap(one)(keys, z_squares, w_squares, latents.shape[0] - columns)
