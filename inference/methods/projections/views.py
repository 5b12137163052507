"""The tables of cells of `zoo.EPCA` and of low-rank `zoo.Paired`, in one form.

Both are views side by side, each of whose columns sees some of the latents; EPCA has one view that sees all.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from zoo.epca import EPCA
from zoo.exponential_family import Family
from zoo.model import in_current_precision
from zoo.paired import Paired

__all__ = ["View", "views_of"]


class View(NamedTuple):
    """A table of cells.

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
    """The views of a model, in the precision that is computed in."""
    prior = in_current_precision(model)
    if isinstance(model, EPCA):
        return (View("", prior.family, tuple(range(model.num_latents)), prior.conjugate, 1.0),)
    weights = jnp.broadcast_to(prior.view_weights, (len(model.families),))
    return tuple(
        View(f"_{v}", family, model.latents_of(v), prior.kernel_of(v) if model.has_kernel else None, weight)
        for v, (family, weight) in enumerate(zip(prior.families, weights, strict=True))
    )
