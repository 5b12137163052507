"""Rows with two latents, whole and with holes, and densities under q, that the tests of PPCA share."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

import inference
from inference.precision import in_precision

__all__ = ["mean_density", "projected_rows", "with_holes"]


def projected_rows(num_rows=60, d=5, k=2, seed=0, noise=0.3):
    """Rows of d columns with k latents."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(num_rows, k))
    return z @ rng.normal(size=(k, d)) * 2 + noise * rng.normal(size=(num_rows, d)) + 4.0


def with_holes(x):
    """The same with a fifth of the cells missing, no row without any."""
    spoilt = np.where(np.random.default_rng(1).uniform(size=x.shape) < 0.2, np.nan, x)
    spoilt[np.isnan(spoilt).all(axis=1), 0] = 4.0
    return spoilt


def mean_density(tree, x, num_draws, key):
    """Log mean density of rows over draws of q, and its standard error in nats."""
    guide, model = inference.guide(tree), inference.model_of(tree)
    program = jax.jit(lambda keys: jax.vmap(lambda k: _density_of_draw(guide, model, x, k))(keys))
    with in_precision():
        logs = np.concatenate([program(own) for own in jax.random.split(key, (num_draws // 5000, 5000))])
    highest = logs.max(axis=0)
    density = np.exp(logs - highest)
    error = density.std(axis=0) / density.mean(axis=0) / np.sqrt(num_draws)
    return highest + np.log(density.mean(axis=0)), error


def _density_of_draw(guide, model, x, key):
    sites = handlers.trace(handlers.seed(guide, key)).get_trace(num_observations=1)
    values = {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}
    return model.log_likelihood(values, jnp.asarray(x))
