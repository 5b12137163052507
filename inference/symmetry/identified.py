r"""Aligned singular value decompositions, and canonical correlations, of natural parameters draw by draw.

Components
----------
Every draw of the natural parameters is decomposed as

.. math:: U V^T = \hat U \Sigma \hat V^T, \qquad \hat U^T \hat U = \hat V^T \hat V = I_K

with the loadings of all views one above the other, of all latents or of the shared ones,
:math:`\Theta_S = U_S V_S^T` (Virtanen 2010, section 6.2.2). The product is identified, so its decomposition
is, up to the signs and the order of its components. Both are settled against one reference for all draws, the
decomposition of the posterior mean of the product: components are matched to it so that the total agreement
of latents and loadings is largest (an assignment problem), then u and v of a component change sign together.

Corrections of the source. With orthonormal factors Sigma holds the singular values, not their squares;
only K of them are not zero, so K components are computed, not D. The source clusters the signs of U and of V
separately by 2-means, which can flip one without the other and so change the product; and it leaves order
swaps between draws alone. Where two singular values are close, single components mix and are not identified:
``separation`` measures that.

Canonical correlations
----------------------
Given the loadings, natural parameters with the noise of the cells have the covariances
:math:`\Sigma_{vv} = \sigma^2 V_v V_v^T + \Psi_v` and :math:`\Sigma_{01} = \sigma^2 V_0 V_1^T`. Their
canonical correlations and directions depend on nothing that a rotation of latents changes. They take the
place of the loadings themselves, which by maximum likelihood span the same space as the directions but are
turned and scaled in it (Bach and Jordan 2005; Archambeau, Delannay and Verleysen 2006).

Psi_v is the covariance of the full-covariance model, and the noise variance of Gaussian cells. Other cells
have the noise of Gaussian cells that would tell as much of their natural parameters: Psi_v is the inverse of
their Fisher information, averaged over the fitted rows, such as 1 / (p (1 - p)) of a yes/no column and one
over the mean of a count (the delta method: Nakagawa, Johnson and Schielzeth 2017). Without it natural
parameters, fewer latents than columns, correlate perfectly whatever the data.
"""

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import (
    draws_of,
    factors_of,
    in_standard_units,
    kind_of,
    shared_latents,
)
from inference.convergence.r_hat import effective_sample_size, is_constant, psrf_of
from inference.methods.paired.closed_form import canonical
from inference.precision import double_precision
from inference.results.files import model_of
from inference.results.groups import loadings_of
from zoo import late
from zoo.answers import answer_of
from zoo.checks import check_choice
from zoo.coordinates.of_models import noise_factors

_PARTS = ("all", "shared")


def components(tree: xr.DataTree, part: str = "all") -> xr.Dataset:
    """The singular value decomposition of natural parameters (less their mean) of every draw, aligned.

    Args:
        tree: a fit of `zoo.EPCA`, `zoo.Paired` or another model whose latents are drawn.
        part: ``"all"`` latents, or the ``"shared"`` ones of paired views.

    Returns:
        A Dataset: ``singular_values`` (chain, draw, component), ``latents`` (chain, draw, observation,
        component) and ``loadings`` or ``loadings_0``, ... (chain, draw, feature, component), orthonormal over
        all views together, so that latents times singular values times loadings' is U V' (with
        ``standardize=True`` orthonormal in units of the columns, then in those of the data); ``swapped``,
        whether a component of a draw is not where its size would put it; and ``separation`` (component), how
        often its singular value lies nearer to its own posterior mean than to another's: near 1 for a
        component that can be told from the others.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: the fit has no latents and loadings, or no shared latents.
    """
    check_choice("part", part, _PARTS)
    posterior, model = draws_of(tree), model_of(tree)
    if "rotation" not in model.symmetries or model.roles.latent not in posterior or not model.roles.loadings:
        raise ValueError(
            f"components need draws of latents and loadings; this fit has {sorted(posterior.data_vars)}"
        )
    u, loadings = factors_of(tree)
    chosen = shared_latents(loadings) if part == "shared" else np.arange(u.shape[-1])
    u = u[..., chosen]
    standard = in_standard_units(model, loadings)
    v = np.concatenate([value[..., chosen] for value in standard.values()], axis=2)
    left, singular, right = _svd(u, v)
    reference = _svd(*_mean_product(u, v, len(chosen)))
    order, signs = _matched(left, right, reference[0], reference[2])
    left, right = _ordered(left, order, signs), _ordered(right, order, signs)
    singular = np.take_along_axis(singular, order, axis=-1)
    draws, number = ("chain", "draw"), singular.shape[-1]
    found = {
        "singular_values": ((*draws, "component"), singular),
        "latents": ((*draws, "observation", "component"), left),
        "swapped": ((*draws, "component"), order != np.arange(number)),
        "separation": (("component",), _separation(singular)),
    }
    rows = posterior[model.roles.latent]["observation"].values
    coords = {"component": np.arange(1, number + 1), "observation": rows}
    views = loadings_of(tree)
    ends = np.cumsum([value.shape[2] for value in views.values()])
    for (suffix, value), part_of_view in zip(views.items(), np.split(right, ends[:-1], axis=2), strict=True):
        dim = value.dims[2]
        scale = np.sqrt(np.asarray(noise_factors(model).get(suffix, 1.0))).reshape(-1, 1)
        found[f"loadings{suffix}"] = ((*draws, dim, "component"), part_of_view * scale)
        coords[dim] = value.coords[dim].values
    return xr.Dataset(found, coords, {"part": part, "kind": kind_of(tree)})


def component_intervals(tree: xr.DataTree, part: str = "all", prob: float = 0.9) -> pd.DataFrame:
    """Mean and central interval of every singular value and loading of `components`, with R-hat and ESS.

    Args:
        tree: a fit.
        part: as for `components`.
        prob: probability of the intervals.

    Returns:
        One row for each quantity: ``mean``, ``low``, ``high`` and, from chains, ``r_hat`` and ``ess_bulk``.

    Raises:
        ValueError: ``prob`` is not between 0 and 1.
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must lie between 0 and 1; got {prob}")
    found, rows = components(tree, part), {}
    for name, variable in found.data_vars.items():
        if "draw" not in variable.dims or "observation" in variable.dims or variable.dtype == bool:
            continue
        inner = variable.dims[2:]
        for index in np.ndindex(variable.shape[2:]):
            draws = variable.values[(slice(None), slice(None), *index)]
            places = [str(variable[dim].values[i]) for dim, i in zip(inner, index, strict=True)]
            low, high = np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2])
            row = {"mean": draws.mean(), "low": low, "high": high}
            if found.attrs["kind"] == "sampling" and draws.shape[0] > 1 and not is_constant(draws):
                row |= {"r_hat": psrf_of(draws, "rank"), "ess_bulk": effective_sample_size(draws, "bulk")}
            rows[f"{name}[{', '.join(places)}]"] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def _svd(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular value decomposition of U V', for U (..., N, K) and V (..., D, K), cut to min(N, D, K)."""
    q_u, r_u = np.linalg.qr(u)
    q_v, r_v = np.linalg.qr(v)
    left, singular, right = np.linalg.svd(r_u @ np.swapaxes(r_v, -1, -2), full_matrices=False)
    return q_u @ left, singular, q_v @ np.swapaxes(right, -1, -2)


def _mean_product(u: np.ndarray, v: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the mean of U V' over all draws, cut to its leading components."""
    mean = np.tensordot(u, v, axes=((0, 1, 3), (0, 1, 3))) / (u.shape[0] * u.shape[1])
    left, singular, right = np.linalg.svd(mean, full_matrices=False)
    kept = min(rank, *mean.shape)
    return left[:, :kept] * singular[:kept], right[:kept].T


def _matched(
    left: np.ndarray, right: np.ndarray, left_mean: np.ndarray, right_mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For every draw the component that matches each one of the reference, and the signs."""
    agreement = np.swapaxes(left, -1, -2) @ left_mean + np.swapaxes(right, -1, -2) @ right_mean
    order = np.zeros(agreement.shape[:-1], int)
    for place in np.ndindex(agreement.shape[:2]):
        matched, target = late.linear_sum_assignment(-np.abs(agreement[place]))
        order[place][target] = matched
    signs = np.sign(np.take_along_axis(agreement, order[..., None, :], axis=-2)[..., 0, :])
    return order, np.where(signs == 0, 1.0, signs)


def _ordered(vectors: np.ndarray, order: np.ndarray, signs: np.ndarray) -> np.ndarray:
    return np.take_along_axis(vectors, order[..., None, :], axis=-1) * signs[..., None, :]


def _separation(singular: np.ndarray) -> np.ndarray:
    """How often a singular value lies nearer to its own posterior mean than to another component's."""
    means = singular.mean((0, 1))
    nearest = np.abs(singular[..., None] - means).argmin(-1)
    return (nearest == np.arange(len(means))).mean((0, 1))


JITTER = 1e-10  # of each column's variance, where views have next to no noise


@double_precision
def canonical_correlations(tree: xr.DataTree) -> xr.Dataset:
    """Canonical correlations and directions of every draw.

    Returns:
        ``correlations`` (chain, draw, component), descending, as many as there are shared latents, and
        ``directions_0``, ``directions_1`` (chain, draw, feature, component), columns of unit variance whose
        signs agree with those of the first draw.

    Raises:
        ValueError: not a fit of two views, or of views without shared latents.
    """
    model, posterior = model_of(tree), draws_of(tree)
    if getattr(model, "num_shared", 1) == 0:
        raise ValueError("the views share no latents (num_shared=0): all canonical correlations are zero")
    draws = {
        str(name): value.transpose("chain", "draw", *model.variable_dims[name])
        for name, value in posterior.data_vars.items()
        if name in model.variable_dims
    }
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    correlations, directions = None, None
    for place in np.ndindex(shape):
        blocks = answer_of(
            model, "view_covariances", {name: value.values[place] for name, value in draws.items()}
        )
        variances = [np.diagonal(s) for s in blocks[::2]]
        squares = [
            s + JITTER * np.diag(np.where(own > 0, own, 1.0))
            for s, own in zip(blocks[::2], variances, strict=True)
        ]
        number = min(model.num_shared, *map(len, squares))
        found = canonical(squares[0], blocks[1], squares[1], number)
        if directions is None:
            correlations = np.zeros((*shape, number))
            directions = [np.zeros((*shape, len(s), number)) for s in squares]
        correlations[place] = found.correlations
        signs = np.sign(np.sum(found.directions[0] * directions[0][0, 0], axis=0)) if any(place) else 1.0
        for v in (0, 1):
            directions[v][place] = found.directions[v] * np.where(signs == 0, 1.0, signs)
    coords = {"component": np.arange(1, correlations.shape[-1] + 1)}
    variables = {"correlations": (("chain", "draw", "component"), correlations)}
    for v, (site, value) in enumerate(zip(model.roles.loadings, directions, strict=True)):
        feature = model.variable_dims[site][0]
        coords[feature] = posterior.coords[feature].values
        variables[f"directions_{v}"] = (("chain", "draw", feature, "component"), value)
    return xr.Dataset(variables, coords)
