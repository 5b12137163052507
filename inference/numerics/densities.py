"""What a model's program says of given values.

Log prior, log joint, deterministic sites. The program is the one truth.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform

__all__ = ["deterministics", "latent_names", "log_prior"]


def log_prior(model: Any, values: Mapping[str, Array], *data: Any) -> Array:
    """Log density of the latent sites (and factors) in constrained space, in nats.

    The likelihood is left out, and with it the local latents that the program keeps because they cannot be
    summed out exactly: `log_likelihood` of the model has them integrated out.

    Args:
        model: a zoo model.
        values: value of every latent site of the program when called with ``data``.
        *data: the data; only their shapes matter.
    """
    total = jnp.zeros(())
    for name, site in _sites(model, values, *data).items():
        if name in model.kept_locals:
            continue
        is_factor = site["type"] == "sample" and isinstance(_base(site["fn"]), dist.Unit)
        if site["type"] == "sample" and (is_factor or not site["is_observed"]):
            log_prob = site["fn"].log_prob(site["value"])
            total = total + jnp.sum(log_prob if site["scale"] is None else site["scale"] * log_prob)
    return total


def deterministics(model: Any, values: Mapping[str, Array], *data: Any) -> dict[str, Array]:
    """The deterministic sites of the program at given values of its latent sites."""
    sites = _sites(model, values, *data).items()
    return {name: site["value"] for name, site in sites if site["type"] == "deterministic"}


def latent_names(model: Any, *data: Any) -> tuple[str, ...]:
    """Names of the latent sites of the program, in its order."""
    names: list[str] = []

    def note(key: Array) -> None:  # only shapes are computed; a flat prior has no draws but a starting point
        program = substitute(seed(model, key), substitute_fn=init_to_uniform)
        sites = trace(program).get_trace(*data).items()
        names.extend(name for name, site in sites if site["type"] == "sample" and not site["is_observed"])

    jax.eval_shape(note, jax.random.key(0))
    return tuple(names)


def _sites(model: Any, values: Mapping[str, Array], *data: Any) -> dict[str, Any]:
    """The program's sites; local latents that it keeps stand at zero where no values of them are given."""

    def absent(site: Mapping[str, Any]) -> Array | None:
        name = site["name"]
        if name in values or name not in (*model.kept_locals, *model.local_sites):
            return None
        return jnp.zeros(site["fn"].shape())

    program = substitute(model, substitute_fn=absent)
    return trace(substitute(program, data=dict(values))).get_trace(*data)


def _base(distribution: dist.Distribution) -> dist.Distribution:
    """The distribution inside expansions and masks."""
    while isinstance(distribution, dist.ExpandedDistribution | dist.MaskedDistribution):
        distribution = distribution.base_dist
    return distribution
