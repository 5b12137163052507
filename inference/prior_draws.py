"""Draws from a model's prior: forward runs of its program, or MCMC where a factor multiplies the prior."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from arviz_stats.base import array_stats
from jax import Array
from numpyro.handlers import seed as seeded
from numpyro.handlers import substitute, trace

from inference.algorithm import SamplerSettings
from inference.driver.checkpoint import Checkpoint
from inference.numerics.densities import latent_names
from inference.driver.chains import sample
from inference.numerics.programs import redraw_data
from inference.fitting.starting_points import read_init
from inference.fitting.in_memory import progress_line
from zoo.model import Model

__all__ = ["prior_by_mcmc", "replicate", "simulate"]

CHAINS, WARMUP = 4, 1000
LARGEST_RHAT = 1.05  # a thousand draws and less: their R-hat is noisy


@partial(jax.jit, static_argnums=3)
def simulate(keys: Array, given: Mapping[str, Array], model: Model, num_rows: int) -> dict[str, Array]:
    """Forward runs of the program, one per key, with given values substituted."""

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        sites = trace(seeded(substitute(model, data=values), key)).get_trace(num_observations=num_rows)
        return {
            name: site["value"] for name, site in sites.items() if site["type"] in ("sample", "deterministic")
        }

    return jax.lax.map(one, (keys, given))


@jax.jit
def replicate(keys: Array, given: Mapping[str, Array], model: Model, data: tuple) -> dict[str, Array]:
    """Data drawn from the program at given values of its latent sites, one set per key."""

    def one(args: tuple) -> dict[str, Array]:
        key, values = args
        return dict(
            zip(model.data_names, redraw_data(key, model, values, data, model.data_names), strict=True)
        )

    return jax.lax.map(one, (keys, given))


def prior_by_mcmc(
    tree: xr.DataTree, key: Array, model: Model, data: tuple, num_samples: int
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Draws of all sites of a program whose factors have no known normaliser, by NUTS.

    The program is given data without any cell, so that prior and factors are all that is left of it. Chains
    start at draws of the fit, where natural parameters lie in the family's domain.

    Args:
        tree: a fit of the model.
        key: random key.
        model: the model.
        data: what it was fitted to; only the shapes matter.
        num_samples: draws in all, of four chains together.

    Returns:
        Values of the sites, leading dims (chain, draw); what is to be known of the run, as attributes.
    """
    from inference.methods.nuts_hmc import METHODS, position

    nuts, options = METHODS["nuts"], dict(METHODS["nuts"].options)
    missing = jax.tree.map(lambda part: jnp.full_like(part, jnp.nan), data)
    settings = SamplerSettings(CHAINS, WARMUP, -(-num_samples // CHAINS), 1, "vectorized")
    values = read_init(tree, nuts, settings)[1]
    variables = {name: values[name] for name in latent_names(model, *missing)}
    algorithm = nuts.build("uniform", num_warmup=WARMUP, **options)
    run = sample(
        algorithm.step,
        partial(nuts.start, num_warmup=WARMUP, **options),
        position,
        model,
        missing,
        key=key,
        variables=variables,
        checkpoint=Checkpoint(None, {}),
        open_bar=progress_line(False),
        **asdict(settings),
    )
    draws = jax.tree.map(jnp.asarray, run.draws)
    kept = nuts.conclude(key, draws, model, missing, True).posterior
    log_prior = np.asarray(run.trace["objective"])[:, -settings.num_samples :]
    rhat = float(array_stats.rhat(log_prior, chain_axis=0, draw_axis=1)) if log_prior.shape[1] > 3 else np.nan
    divergences = int(np.sum(run.draws["stats"]["diverging"]))
    if rhat > LARGEST_RHAT or divergences:
        warnings.warn(
            f"the prior has a factor without a normaliser, so NUTS drew from it, and not well: R-hat of its "
            f"log density {rhat:.3f}, {divergences} divergences; ask for more draws (num_samples)",
            stacklevel=5,
        )
    return kept, {
        "method": "nuts",
        "num_warmup": WARMUP,
        "rhat_of_log_prior": rhat,
        "divergences": divergences,
    }
