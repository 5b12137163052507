"""Scalar summaries of a joint draw of latents and data, by which `geweke` and `sbc` compare distributions.

They are compared by ranks, so they need no moments (under a Wishart prior with few degrees of freedom the
data have none) and a logarithm more or less changes nothing. All are symmetric in the elements of a site,
hence do not depend on labels. The log density of each site given the ones before it ties the sites to each
other and to the data.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from inference.numerics.programs import Site, log_densities, sites_of

__all__ = ["joint_functionals", "summarise"]


def joint_functionals(
    values: Mapping[str, jax.Array],
    sites: Mapping[str, Site],
    program: Callable,
    data_names: tuple[str, ...],
) -> dict[str, jax.Array]:
    """Named scalars of one joint draw.

    Args:
        values: every site of the program, latent and data, in constrained space.
        sites: their descriptions.
        program: the program, called with the data in the order of ``data_names``.
        data_names: which sites are data.

    Returns:
        Summaries of each site by its kind, products of the mean of the data with those of real latents, and
        log densities in nats.
    """
    data = tuple(values[name] for name in data_names)
    latents = {name: value for name, value in values.items() if name not in data_names}
    scalars = {
        f"{name}: {summary}": scalar
        for name, value in values.items()
        for summary, scalar in _summaries(value, sites[name].kind).items()
    }
    for name in latents:
        if sites[name].kind == "real":
            for observed in data_names:
                scalars[f"{name} x {observed}"] = jnp.mean(values[name]) * jnp.mean(values[observed])
    terms = log_densities(program, data, latents)
    scalars.update({f"{name}: log density": term for name, term in terms.items() if name in values})
    scalars["log joint"] = sum(terms.values())
    return scalars


def summarise(
    joint: Mapping[str, jax.Array],
    functionals: Callable | None,
    program: Callable,
    data_names: tuple[str, ...],
    block_size: int,
) -> dict[str, jax.Array]:
    """The functionals (`joint_functionals` for None) of each of many joint draws, stacked, in blocks."""
    if functionals is None:
        sites = sites_of(program, *(joint[name][0] for name in data_names))

        def functionals(values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
            return joint_functionals(values, sites, program, data_names)

    return jax.lax.map(functionals, joint, batch_size=block_size)


def _summaries(value: Any, kind: str) -> dict[str, jax.Array]:
    if kind == "label":
        ordered = jnp.sort(jnp.ravel(value))
        counts = jnp.searchsorted(ordered, ordered, side="right") - jnp.searchsorted(ordered, ordered)
        return {
            "largest group": jnp.max(counts),
            "number of groups": 1 + jnp.sum(ordered[1:] != ordered[:-1]),
        }
    if kind == "simplex":
        squares = jnp.sum(value**2, axis=-1)
        return {"largest": jnp.max(value), "smallest": jnp.min(value), "sum of squares": jnp.mean(squares)}
    if kind == "positive_definite":
        log_det = jnp.linalg.slogdet(value)[1]
        trace = jnp.trace(value, axis1=-2, axis2=-1)
        return {
            "mean log det": jnp.mean(log_det),
            "largest log det": jnp.max(log_det),
            "mean log trace": jnp.mean(jnp.log(trace)),
        }
    value = jnp.asarray(value, float)
    if jnp.size(value) == 1:
        return {"value": jnp.reshape(value, ())}
    if kind == "positive":
        return {"mean log": jnp.mean(jnp.log(value)), "largest": jnp.max(value), "smallest": jnp.min(value)}
    return {
        "mean": jnp.mean(value),
        "mean square": jnp.mean(value**2),
        "largest": jnp.max(value),
        "smallest": jnp.min(value),
    }
