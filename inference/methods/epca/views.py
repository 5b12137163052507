"""The tables of cells of `zoo.EPCA` and of low-rank `zoo.Paired`, in one form.

Both are views side by side, each of whose columns sees some of the latents; EPCA has one view that sees all.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from zoo.epca import EPCA
from zoo.exponential_family import Family
from zoo.exponential_family.joint_prior import balanced_variance
from zoo.model import in_current_precision
from zoo.paired import Paired
from zoo.shapes import Values


class View(NamedTuple):
    """A table of cells that sees some of the latents.

    Attributes:
        suffix: of its sites' names.
        family: of its cells.
        places: of the latents that it sees.
        conjugate: (lam, nu) of the joint prior, or None.
        weight: of its log likelihood.
    """

    suffix: str
    family: Family
    places: tuple[int, ...]
    conjugate: Array | None
    weight: Array | float


def views_of(model: EPCA | Paired) -> tuple[View, ...]:
    """The views of a model, in the current precision."""
    current = in_current_precision(model)
    if isinstance(model, EPCA):
        return (View("", current.family, tuple(range(model.num_latents)), current.conjugate, 1.0),)
    weights = current.view_weights  # one for all views, or one for each
    weights = weights if jnp.ndim(weights) else [weights] * len(model.families)
    return tuple(
        View(f"_{v}", family, model.latents_of(v), current.kernel_of(v) if model.has_kernel else None, weight)
        for v, (family, weight) in enumerate(zip(current.families, weights, strict=True))
    )


def prior_variance(model: EPCA | Paired) -> Array:
    """The prior variance of the latents, and of the loadings at precision one."""
    current = in_current_precision(model)
    return balanced_variance(current.latent_variance, current.loading_variance, current.beta)


def given_values(fresh: Values, variables: Values) -> dict[str, Array]:
    """Given values of sites, and those of a fresh start where none is given.

    Raises:
        ValueError: a given value has another shape.
    """
    values = {name: jnp.asarray(variables.get(name, old), old.dtype) for name, old in fresh.items()}
    for name, old in fresh.items():
        if values[name].shape != old.shape:
            raise ValueError(f"init: {name} must have shape {old.shape}; got {values[name].shape}")
    return values
