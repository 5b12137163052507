r"""Canonical correlations that a fit of two views implies, draw by draw.

Given the loadings, natural parameters (or Gaussian cells) of the views have the covariances
:math:`\Sigma_{vv} = \sigma^2 V_v V_v^T + \Psi_v` and :math:`\Sigma_{01} = \sigma^2 V_0 V_1^T`. Their
canonical correlations and directions depend on nothing that a rotation of latents changes. They take the
place of the loadings themselves, which by maximum likelihood span the same space as the directions but are
turned and scaled in it (Bach and Jordan 2005; Archambeau, Delannay and Verleysen 2006).

Psi_v is the covariance of the full-covariance model, the noise variance of Gaussian cells, and nothing for
other cells: the correlations are then those of natural parameters, and equal to one where views have no
latents of their own.
"""

import numpy as np
import xarray as xr

from inference.convergence.invariants import draws_of
from inference.methods.paired.closed_form import canonical
from inference.results.files import model_of

__all__ = ["canonical_correlations"]

JITTER = 1e-10  # of the mean variance, where views have no noise


def canonical_correlations(tree: xr.DataTree) -> xr.Dataset:
    """Canonical correlations and directions of every draw.

    Args:
        tree: a fit of `zoo.Paired` with two views.

    Returns:
        ``correlations`` (chain, draw, component), descending, as many as there are shared latents, and
        ``directions_0``, ``directions_1`` (chain, draw, feature, component), columns of unit variance whose
        signs agree with those of the first draw.

    Raises:
        ValueError: not a fit of two views.
    """
    model, posterior = model_of(tree), draws_of(tree)
    draws = {
        str(name): value.transpose("chain", "draw", *model.variable_dims[name])
        for name, value in posterior.data_vars.items()
        if name in model.variable_dims
    }
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    correlations, directions = None, None
    for place in np.ndindex(shape):
        blocks = model.view_covariances({name: value.values[place] for name, value in draws.items()})
        squares = [s + JITTER * np.trace(s) / len(s) * np.eye(len(s)) for s in blocks[::2]]
        number = min(model.num_shared, *map(len, squares))
        found = canonical(squares[0], blocks[1], squares[1], number)
        if directions is None:
            correlations = np.zeros((*shape, number))
            directions = [np.zeros((*shape, len(s), number)) for s in squares]
        correlations[place] = found.correlations
        signs = np.sign(np.sum(found.directions[0] * directions[0][0, 0], axis=0)) if any(place) else 1.0
        for v in (0, 1):
            directions[v][place] = found.directions[v] * np.where(signs == 0, 1.0, signs)
    components = {"component": np.arange(1, correlations.shape[-1] + 1)}
    found = {
        "correlations": xr.DataArray(correlations, dims=("chain", "draw", "component"), coords=components)
    }
    for v, (site, value) in enumerate(zip(model.loading_sites, directions, strict=True)):
        feature = model.variable_dims[site][0]
        coords = components | {feature: posterior.coords[feature].values}
        dims = ("chain", "draw", feature, "component")
        found[f"directions_{v}"] = xr.DataArray(value, dims=dims, coords=coords)
    return xr.Dataset(found)
