r"""One orientation of the latent space for all draws of a projection.

:math:`W R` and :math:`R^T z` give the same data density as W and z for every orthogonal R, so axes turn from
draw to draw. Two remedies:

* ``align_rotation``: generalised Procrustes (Gower 1975, Psychometrika 40). Each draw is turned to the
  running mean M, both in units of the columns' noise (mean deviation over the draws), so that the unit of a
  column does not count,
  :math:`R_s = U V^T` from :math:`W_s^T M = U D V^T` (Schoenemann 1966), and M recomputed until it rests; then
  all draws are turned together so that the columns of M are orthogonal and in descending length. Best where
  axes are close in strength: no draw can swap two of them.
* ``identify``: every draw is turned separately to :math:`W_s V` with
  :math:`\Phi_s^{-1/2} W_s = U D V^T`, :math:`\Phi_s` the noise variances of the columns that the draw has (1
  where there are none), or the covariances of its views: :math:`W^T \Phi^{-1} W` is diagonal and descending,
  the axes of the closed form of SPPCA (Yu 2006, theorem 7.3.1), of factor analysis, and the canonical pairs
  of Bach and Jordan (2005). With one noise variance for all columns these are
  orthogonal loadings, longest first. Each draw then has a meaning by itself, but two axes of nearly equal
  strength swap or mix.

Signs are frozen by one rule for all draws: in each column the feature that is largest in root mean square
over the draws is positive (for ``align_rotation``, in M). Latents turn along, covariances on both sides.
Where views have loadings that are exactly zero (latents of their own), only latents with the same pattern of
zeros are turned into each other. A model without loadings (kernel PCA) has its latents turned themselves.
Both depend on the draws through W W' alone, up to rounding, so they can be repeated.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, in_standard_units, kind_of, symmetries_of
from inference.convergence.r_hat import largest_psrf
from inference.results.files import check_tree, model_of
from inference.results.groups import loadings_of, thinned, thinning, with_groups
from zoo.coordinates.of_models import noise_factors

_MAX_ROUNDS = 500
_TOLERANCE = 1e-12
_PROCRUSTES = "orthogonal Procrustes to the mean loadings"
_LATENT_DIMS = ("latent", "latent_2")
_DIAGONAL = re.compile("scale|(?<!co)variance|precision")  # names of what is by latent and no vector


def align_rotation(tree: xr.DataTree) -> xr.DataTree:
    """The same fit with the latent axes of all draws turned to a common mean (orthogonal Procrustes).

    Args:
        tree: a fit of a model with the symmetry "rotation"; its posterior has ``loadings*`` with the dim
            ``latent``.

    Returns:
        A new tree; the argument is not changed. Loadings, latents and covariances of ``posterior`` turn draw
        by draw; for draws from one q (or a point estimate) one rotation serves all draws and ``variational``
        too. Diagonal scales by latent do not survive a rotation that does more than order and sign: they are
        dropped. Root attributes:
        ``rotation_aligned`` (how), and with several chains ``rotation_rhat_before`` and
        ``rotation_rhat_after``, the largest rank-normalised R-hat of the loadings.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: the model has no rotation symmetry, or the fit no loadings.
    """
    return _turned(tree, _to_common_mean, _PROCRUSTES)


def aligned_draws(tree: xr.DataTree, most: int) -> xr.DataTree:
    """At most so many draws of the fit in the orientation of all its draws; those of an aligned fit stay."""
    check_tree(tree)
    if "rotation_aligned" in tree.attrs:
        return thinned(tree, most)
    return _turned(tree, _to_common_mean, _PROCRUSTES, most)


def identify(tree: xr.DataTree) -> xr.DataTree:
    """The same fit with every draw in its canonical orientation: orthogonal loadings, strongest first.

    Orthogonality and strength are in units of the noise, where the draws have noise variances or covariances.

    Args:
        tree: as for ``align_rotation``.

    Returns:
        A new tree, as for ``align_rotation``.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: the model has no rotation symmetry, or the fit no loadings.
    """
    return _turned(tree, _canonical, "singular vectors of the loadings of each draw, in units of its noise")


def _loadings(tree: xr.DataTree) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """All loadings, stacked (chain, draw, features, latent), and which latents may be turned together.

    Between them, of each view, the standard deviation of its features' noise, (chain, draw, features, 1),
    where the draws have it, else 1; of correlated noise a root of its covariance, (chain, draw, features,
    features).
    """
    posterior = draws_of(tree)
    if "rotation" not in symmetries_of(tree):
        raise ValueError(
            f"a fit of {tree.attrs.get('model', 'this model')!r} has no rotation symmetry: there is "
            f"nothing to turn"
        )
    turning = _turning(tree)
    if not turning:
        model = model_of(tree)
        wanted = ", ".join(filter(None, (*model.roles.loadings, model.roles.latent)))
        raise ValueError(
            f"turning takes one of {wanted} in the posterior; it has {sorted(posterior.data_vars)}"
        )
    values = {suffix: variable.values for suffix, variable in turning.items()}
    views = list(in_standard_units(model_of(tree), values).values())  # in which they turn
    factors = noise_factors(model_of(tree))
    scales = [_noise_scale(posterior, s, value, factors.get(s, 1.0)) for s, value in values.items()]
    if kind_of(tree) != "sampling":
        views, scales = (  # one q has one orientation: that of its mean
            [part.mean((0, 1), keepdims=True) for part in parts] for parts in (views, scales)
        )
    zeros = np.stack([(view == 0).all((0, 1, 2)) for view in views])  # views x latents
    patterns, block_of = np.unique(zeros, axis=1, return_inverse=True)
    blocks = [np.flatnonzero(block_of.ravel() == b) for b in range(patterns.shape[1])]
    return np.concatenate(views, axis=2), scales, blocks


def _noise_scale(
    posterior: xr.Dataset, suffix: str | None, view: np.ndarray, factors: np.ndarray | float
) -> np.ndarray:
    """Standard deviation of the noise of a view's features, or a root of its covariance; 1 without any."""
    precision = None if suffix is None else posterior.get(f"specific_precision{suffix}")
    if precision is not None:
        root = np.linalg.cholesky(precision.transpose("chain", "draw", ...).values)
        return np.linalg.inv(np.swapaxes(root, -1, -2)) / np.reshape(np.sqrt(factors), (-1, 1))
    noise = None if suffix is None else posterior.get(f"noise_variance{suffix}")
    if noise is None:
        return np.ones((*view.shape[:3], 1))
    variance = noise.transpose("chain", "draw", ...).values.reshape(*view.shape[:2], -1, 1)
    return np.sqrt(np.broadcast_to(variance, (*view.shape[:3], 1)))


def _in_units_of_noise(w: np.ndarray, scales: list[np.ndarray]) -> np.ndarray:
    """All loadings, those of each view over its scale."""
    views = np.split(w, np.cumsum([scale.shape[2] for scale in scales])[:-1], axis=2)
    return np.concatenate(
        [
            view / scale if scale.shape[-1] == 1 else np.linalg.solve(scale, view)
            for view, scale in zip(views, scales, strict=True)
        ],
        axis=2,
    )


def _turning(tree: xr.DataTree) -> dict[str | None, xr.DataArray]:
    """Variables that decide the orientation: loadings by suffix, or (None) latents where there are none."""
    site, posterior = model_of(tree).roles.latent, draws_of(tree)
    latents = {None: posterior[site].transpose("chain", "draw", ..., "latent")} if site in posterior else {}
    return loadings_of(tree) or latents


def _to_common_mean(w: np.ndarray, scales: list[np.ndarray]) -> np.ndarray:
    """`_procrustes` of loadings in units of each feature's noise, its mean over the draws, one for all."""
    return _procrustes(_in_units_of_noise(w, [scale.mean((0, 1), keepdims=True) for scale in scales]))


def _procrustes(w: np.ndarray) -> np.ndarray:
    """Rotations (chain, draw, latent, latent) of w (chain, draw, features, latent) to their common mean."""
    rotations = _canonical(w)
    mean = (w @ rotations).mean((0, 1))
    for _ in range(_MAX_ROUNDS):
        u, _, v = np.linalg.svd(np.swapaxes(w, -1, -2) @ mean)
        rotations = u @ v
        former, mean = mean, (w @ rotations).mean((0, 1))
        if np.abs(mean - former).max() <= _TOLERANCE * max(np.abs(mean).max(), 1.0):
            break
    return rotations @ _canonical(mean[None, None])[0, 0]


def _canonical(w: np.ndarray, scales: list[np.ndarray] | None = None) -> np.ndarray:
    """V of w / scales = U D V', columns signed by one rule for all draws; (chain, draw, latent, latent)."""
    # eigenvectors of W'W instead of the SVD: full even with fewer features than latents
    own = w if scales is None else _in_units_of_noise(w, scales)
    _, v = np.linalg.eigh(np.swapaxes(own, -1, -2) @ own)
    v = v[..., ::-1]
    turned = w @ v
    judge = np.sqrt((turned**2).mean((0, 1))).argmax(0)  # per column, the feature that decides its sign
    signs = np.sign(turned[:, :, judge, np.arange(w.shape[-1])])
    return v * np.where(signs == 0, 1.0, signs)[..., None, :]


def orientation(tree: xr.DataTree) -> np.ndarray | None:
    """The rotation R of latents, z' R, by which `align_rotation` turns an estimate or one q.

    Args:
        tree: a fit by another method than a sampler.

    Returns:
        Shape (num_latents, num_latents); None of rows that are not scored by latents, and where not all
        views have loadings, which alone say how to turn (a kernel: those of outputs leave axes undecided).
    """
    model = model_of(tree)
    is_turned = "rotation" in symmetries_of(tree) and model.roles.scores[-1] == "latent"
    is_turned &= 0 < len(model.roles.loadings) == len(loadings_of(tree))
    return _rotations(tree, _to_common_mean)[0, 0] if is_turned else None


def _rotations(tree: xr.DataTree, rotation_of: Callable) -> np.ndarray:
    """``rotation_of(loadings, noise scales)`` of each block of latents, (chain, draw, latent, latent)."""
    loadings, scales, blocks = _loadings(tree)
    rotations = np.zeros((*loadings.shape[:2], loadings.shape[3], loadings.shape[3]))
    for block in blocks:
        rotations[..., block[:, None], block] = rotation_of(loadings[..., block], scales)
    return rotations


def _turned(tree: xr.DataTree, rotation_of: Callable, how: str, most: int | None = None) -> xr.DataTree:
    """The fit, or so many draws, turned by ``rotation_of(loadings, noise scales)`` of each block."""
    rotations = _rotations(tree, rotation_of)
    if most is not None:
        tree, rotations = thinned(tree, most), rotations[:, :: thinning(tree, most)]
    posterior, groups = draws_of(tree), {}
    if kind_of(tree) != "sampling" and "variational" in tree.children:
        groups["variational"], _ = _rotated(tree["variational"].to_dataset(), rotations[0, 0])
    rotations = np.broadcast_to(
        rotations, (posterior.sizes["chain"], posterior.sizes["draw"], *rotations.shape[2:])
    )
    groups["posterior"], dropped = _rotated(posterior, rotations)
    lost = f"; {', '.join(dropped)} dropped: not defined after a rotation" if dropped else ""
    new = with_groups(tree, groups, rotation_aligned=how + lost)
    if posterior.sizes["chain"] > 1 and posterior.sizes["draw"] >= 4:
        before = float(tree.attrs.get("rotation_rhat_before", largest_psrf(_entries(tree))))
        new.attrs |= {"rotation_rhat_before": before, "rotation_rhat_after": largest_psrf(_entries(new))}
    return new


def _rotated(group: xr.Dataset, rotations: np.ndarray) -> tuple[xr.Dataset, list[str]]:
    """Every variable with R on each of its latent dims; the names of diagonal scales, which are left out.

    They stay where R only orders and signs latents.
    """
    turned, dropped = {}, []
    order = np.abs(rotations).round()
    is_order = np.allclose(np.abs(rotations), order, atol=1e-9)
    for name, variable in group.data_vars.items():
        dims = [dim for dim in _LATENT_DIMS if dim in variable.dims]
        is_diagonal = len(dims) == 1 and _DIAGONAL.search(str(name))
        if is_diagonal and not is_order:
            dropped.append(name)
            continue
        by = order if is_diagonal else rotations
        for dim in dims:
            lead = ("chain", "draw") if "chain" in variable.dims else ()
            last = variable.transpose(*lead, ..., dim)
            r = by.reshape(*by.shape[: len(lead)], *(1,) * (last.ndim - len(lead) - 2), *by.shape[-2:])
            values = last.values[..., None, :] @ r if last.ndim == len(lead) + 1 else last.values @ r
            variable = last.copy(data=values.reshape(last.shape)).transpose(*variable.dims)
        turned[name] = variable
    return xr.Dataset(turned, coords=group.coords, attrs=group.attrs), dropped


def _entries(tree: xr.DataTree) -> Iterator[np.ndarray]:
    """Every entry of the variables that turn, each (chain, draw)."""
    for variable in _turning(tree).values():
        yield from np.moveaxis(variable.values.reshape(*variable.shape[:2], -1), -1, 0)
