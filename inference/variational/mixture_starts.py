"""Where VB for a mixture may start: from drawn or given responsibilities, as the state they lead to."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from inference.row_blocks import map_rows, sum_over_rows
from inference.variational.concentration import (
    initial_concentration,
    parameter_names,
    stored_concentration,
)
from inference.variational.mixture_posterior import MixtureVBState, from_statistics
from zoo.mixture import Mixture
from zoo.sparse_counts import SparseCounts

__all__ = ["from_responsibilities", "init", "init_kmeans", "start"]


def from_responsibilities(r: Array, model: Mixture, x: Array) -> MixtureVBState:
    """The state whose global factors are optimal for given responsibilities.

    Shape (num_observations, num_components).
    """
    return from_statistics(r.T @ model.components.features(x), initial_concentration(model), model)


def init(key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """Uniform random responsibilities, rows normalised (a symmetric start is a fixed point)."""
    if isinstance(x, SparseCounts):
        r = jax.random.uniform(key, (x.shape[0], model.num_components), minval=1e-6)
        return from_responsibilities(r / jnp.sum(r, axis=-1, keepdims=True), model, x)
    numbered = jnp.concatenate([x, jnp.arange(x.shape[0], dtype=x.dtype)[:, None]], axis=-1)

    def block(rows: Array, weight: Array) -> Array:  # drawn block by block: no N x K array is held
        block_key = key if rows.shape[0] == x.shape[0] else jax.random.fold_in(key, rows[0, -1].astype(int))
        r = jax.random.uniform(block_key, (rows.shape[0], model.num_components), minval=1e-6)
        r = weight[:, None] * r / jnp.sum(r, axis=-1, keepdims=True)
        return r.T @ model.components.features(rows[:, :-1])

    return from_statistics(sum_over_rows(block, numbered), initial_concentration(model), model)


def init_kmeans(key: Array, model: Mixture, x: Array) -> MixtureVBState:
    """Hard k-means++ seeds on standardised columns, each row with its nearest.

    Fast to converge, but keeps too many components.
    """
    if isinstance(x, SparseCounts):
        raise ValueError("init='kmeans' needs dense rows; sparse ones start at random: init='random'")
    spread = jnp.nanstd(x, axis=0)
    z = jnp.nan_to_num((x - jnp.nanmean(x, axis=0)) / jnp.where(spread > 0, spread, 1.0))  # missing: the mean

    def seed(distance: Array, key: Array) -> tuple[Array, Array]:
        index = jax.random.categorical(key, jnp.log(distance))
        return jnp.minimum(distance, jnp.sum((z - z[index]) ** 2, axis=-1)), z[index]

    _, seeds = jax.lax.scan(seed, jnp.ones(z.shape[0]), jax.random.split(key, model.num_components))
    nearest = map_rows(lambda rows: jnp.argmax(rows @ seeds.T - 0.5 * jnp.sum(seeds**2, axis=-1), axis=-1), z)
    return from_responsibilities(jax.nn.one_hot(nearest, model.num_components, dtype=z.dtype), model, x)


def start(key: Array, variables: Mapping[str, Array], model: Mixture, x: Array) -> MixtureVBState:
    """The state that given ``responsibilities`` (or ``assignments``) lead to; deterministic."""
    if "responsibilities" in variables:
        r = jnp.asarray(variables["responsibilities"], jnp.result_type(float))
    elif "assignments" in variables:
        r = jax.nn.one_hot(variables["assignments"], model.num_components)
    else:
        raise ValueError(
            f"init must hold 'responsibilities' or 'assignments'; got {', '.join(variables) or 'nothing'}"
        )
    if r.shape != (x.shape[0], model.num_components):
        raise ValueError(
            f"init: responsibilities must have shape ({x.shape[0]}, {model.num_components}); got {r.shape}"
        )
    concentration = initial_concentration(model)
    if model.has_random_concentration and parameter_names(concentration)[0] in variables:
        concentration = stored_concentration(variables, concentration)
    return from_statistics(r.T @ model.components.features(x), concentration, model)
