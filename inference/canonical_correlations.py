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

from inference.closed_form.paired import canonical
from inference.identifiable import draws_of
from inference.results import model_of
from zoo.joint_prior import balanced_variance
from zoo.paired import Paired

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
    model = model_of(tree)
    if not isinstance(model, Paired) or len(model.families) != 2:
        raise ValueError(
            f"canonical correlations are of zoo.Paired with two views; got {tree.attrs['model']}"
        )
    posterior = draws_of(tree)
    variance = float(balanced_variance(model.latent_variance, model.loading_variance, model.beta))
    loadings = [posterior[f"loadings_{v}"].transpose("chain", "draw", ..., "latent") for v in (0, 1)]
    number = min(model.num_shared, *(w.shape[2] for w in loadings))
    shape = loadings[0].shape[:2]
    correlations = np.zeros((*shape, number))
    directions = [np.zeros((*shape, w.shape[2], number)) for w in loadings]
    for place in np.ndindex(shape):
        own = [w.values[place] for w in loadings]
        squares = [variance * w @ w.T + _noise(model, posterior, v, place, len(w)) for v, w in enumerate(own)]
        squares = [s + JITTER * np.trace(s) / len(s) * np.eye(len(s)) for s in squares]
        found = canonical(squares[0], variance * own[0] @ own[1].T, squares[1], number)
        correlations[place] = found.correlations
        signs = np.sign(np.sum(found.directions[0] * directions[0][0, 0], axis=0)) if any(place) else 1.0
        for v in (0, 1):
            directions[v][place] = found.directions[v] * np.where(signs == 0, 1.0, signs)
    components = {"component": np.arange(1, number + 1)}
    found = {
        "correlations": xr.DataArray(correlations, dims=("chain", "draw", "component"), coords=components)
    }
    for v, (w, value) in enumerate(zip(loadings, directions, strict=True)):
        dims = ("chain", "draw", w.dims[2], "component")
        coords = components | {w.dims[2]: w.coords[w.dims[2]].values}
        found[f"directions_{v}"] = xr.DataArray(value, dims=dims, coords=coords)
    return xr.Dataset(found)


def _noise(
    model: Paired, posterior: xr.Dataset, v: int, place: tuple[int, ...], size: int
) -> np.ndarray | float:
    """Psi_v of one draw."""
    if model.specific == "full_covariance":
        return np.linalg.inv(posterior[f"specific_precision_{v}"].values[place])
    if f"noise_variance_{v}" in posterior:
        return float(posterior[f"noise_variance_{v}"].values[place]) * np.eye(size)
    given = getattr(model.families[v], "noise_variance", None)
    return 0.0 if given is None else float(given) * np.eye(size)
