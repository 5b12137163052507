r"""Identified quantities of the components of a repulsive mixture of PCAs (`zoo.DEPCAM`).

Component k is :math:`W_k = U_k\,\mathrm{diag}(\phi_k)` and an offset.

Identified, once all draws have one numbering of the components: :math:`W_k W_k'`, offsets, weights,
responsibilities; the sizes :math:`|\phi_{kj}|` as a sorted list; of sizes that differ the axes :math:`u_{kj}`
up to sign; where no scale is zero, the similarity of subspaces.

Not identified: the number of a component; the order of its columns; which sign is where, for (U, phi),
(-U, -phi) and (-U, phi) are one component; axes within a group of equal sizes; columns whose scale is zero,
which the likelihood does not see, though both kernels of the prior do.

The paper's kernel (``angular``) changes with signs that change nothing else, so its value is given with the
range that it takes over all signs of the same two components. Its repulsion, and that of ``subspace``, can
also be met by turning columns of scale zero. The similarity of two components that data can measure is
the correlation of their products,
:math:`\langle W_k W_k', W_l W_l'\rangle / (\|W_k W_k'\| \|W_l W_l'\|)` (the RV coefficient of Robert and
Escoufier 1976), ``products``: 1 for proportional ones, 0 for orthogonal ones.

Components of draws are numbered by `inference.symmetry.relabel`, everywhere the largest share of rows first.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.numbering import by_size
from inference.prediction import transform
from inference.results.files import model_of
from inference.results.groups import flat_draws, labels_of, responsibilities_of
from inference.symmetry import relabel
from inference.symmetry.labels import given_rows
from zoo.coordinates.of_models import noise_factors

__all__ = [
    "component_shares",
    "component_similarity",
    "effective_directions",
    "loading_products",
    "responsibility_overlap",
]

_MOST_DRAWS = 500  # evenly spaced
_MOST_SIGNS = 12  # latents; the range over signs costs 2^d


class _Components(NamedTuple):
    """Components in one order for all draws, the largest share of rows first.

    Attributes:
        bases: shape (draws, components, features, latents), NaN where a component of a draw has no rows.
        scales: shape (draws, components, latents), likewise.
        units: of the features, in which bases and scales are, shape (features, 1) or ().
        shares: responsibilities, shape (rows, components), averaged over draws.
        features: names of the columns.
    """

    bases: np.ndarray
    scales: np.ndarray
    units: np.ndarray
    shares: np.ndarray
    features: np.ndarray

    def coords(self) -> dict[str, Any]:
        """Number and share of the rows of each component."""
        shares = self.shares.mean(0)
        return {"component": np.arange(shares.size), "share": ("component", shares)}


def loading_products(tree: xr.DataTree, *, in_standard_units: bool = False) -> xr.DataArray:
    """W_k W_k' of every component, averaged over the draws in which it holds rows.

    Args:
        tree: a fit of DEPCAM.
        in_standard_units: whether columns that the model measures in their standard deviations stay in them.

    Returns:
        Dims (component, feature, feature_2), in squared units of the natural parameter; coordinate ``share``
        of the rows.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: a fit of another model, or without the labels that its draws are numbered by.
    """
    components = _components(tree)
    w = components.bases * components.scales[:, :, None, :]
    w = w if in_standard_units else w * components.units
    count = (~np.isnan(w[:, :, 0, 0])).sum(0)[:, None, None]  # of draws
    stacked = np.moveaxis(np.nan_to_num(w), 0, -2).reshape(*w.shape[1:3], -1)  # component, feature, rest
    products, names = stacked @ np.swapaxes(stacked, -1, -2), components.features
    products = np.divide(products, count, where=count > 0, out=np.full(products.shape, np.nan))
    coords = components.coords() | {"feature": names, "feature_2": names}
    dims = ("component", "feature", "feature_2")
    return xr.DataArray(products, coords, dims, name="loading_products")


def effective_directions(tree: xr.DataTree) -> pd.DataFrame:
    """Number of directions that each component uses, and its scale along each.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        One row a component: ``share`` of the rows; ``num_active``, scales that are not zero (of a sampler all
        are); ``effective``, the participation ratio (sum phi^2)^2 / sum phi^4, between 1 and d, 0 without any
        direction; ``direction_1``, ..., the sizes of the scales, largest first. All averaged over the draws
        in which the component holds rows.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: as `loading_products`.
    """
    components = _components(tree)
    squares = components.scales**2
    total, fourth = squares.sum(-1), (squares**2).sum(-1)
    table = pd.DataFrame(
        {
            "share": components.shares.mean(0),
            "num_active": _mean(np.where(np.isnan(total), np.nan, (squares > 0).sum(-1))),
            "effective": _mean(np.divide(total**2, fourth, where=~(fourth <= 0), out=np.zeros_like(fourth))),
        }
    )
    sizes = _mean(np.sort(np.abs(components.scales), axis=-1)[..., ::-1])
    for j, column in enumerate(sizes.T, start=1):
        table[f"direction_{j}"] = column
    return table.rename_axis("component")


def component_similarity(tree: xr.DataTree) -> xr.Dataset:
    """Similarity of any two components, by both kernels of the prior and by their products.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        Dims (component, component_2), averaged over the draws in which both hold rows, all with a unit
        diagonal: ``angular`` and
        ``subspace``, the kernels at the model's similarity scale, ``products`` as in the head of this file
        (NaN where all scales of a component are zero), and, up to 12 latents, ``angular_least`` and
        ``angular_most``, the range of the angular kernel of the same components under
        turning signs of columns. Coordinate ``share`` of the rows.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: as `loading_products`.
    """
    components = _components(tree)
    rho, bases, scales = float(model_of(tree).similarity_scale), components.bases, components.scales
    d = bases.shape[-1]
    cosines = np.einsum("skfi,slfj->sklij", bases, bases)
    found = {
        "angular": np.exp(rho * (cosines.sum((-2, -1)) - d)),
        "subspace": np.exp(rho * ((cosines**2).sum((-2, -1)) - d)),
    }
    squares = scales**2
    inner = np.einsum("ski,sklij,slj->skl", squares, cosines**2, squares)
    sizes = np.sqrt(np.einsum("skk->sk", inner))
    with np.errstate(invalid="ignore"):
        found["products"] = inner / (sizes[:, :, None] * sizes[:, None, :])
    if d <= _MOST_SIGNS:
        farthest = _largest_signed_sum(cosines)
        same = np.eye(bases.shape[1], dtype=bool)
        found["angular_least"] = np.where(same, 1.0, np.exp(rho * (-farthest - d)))
        found["angular_most"] = np.where(same, 1.0, np.exp(rho * (farthest - d)))
    variables = {name: (("component", "component_2"), _mean(values)) for name, values in found.items()}
    coords = components.coords() | {"component_2": np.arange(bases.shape[1])}
    return xr.Dataset(variables, coords, attrs={"similarity_scale": rho})


def responsibility_overlap(tree: xr.DataTree) -> pd.DataFrame:
    """Probability that a row of one component would be given to another if its label were drawn again.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        Entry (k, l): sum_n r_nk r_nl / sum_n r_nk, from component k to l. Rows sum to one (NaN for a
        component without rows); the identity means that every row is sure.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: as `loading_products`.
    """
    r = _components(tree).shares
    counts = r.sum(0)[:, None]
    overlap = np.divide(r.T @ r, counts, where=counts > 0, out=np.full((r.shape[1],) * 2, np.nan))
    return pd.DataFrame(overlap).rename_axis(index="component", columns="given to")


def component_shares(tree: xr.DataTree) -> xr.DataArray:
    """Responsibilities of the fitted rows, components in the order of the other tables of this file.

    Args:
        tree: a fit of DEPCAM.

    Returns:
        Dims (observation, component), each row summing to one; of draws the share of draws.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: as `loading_products`.
    """
    return xr.DataArray(_components(tree).shares, dims=("observation", "component"))


def _components(tree: xr.DataTree) -> _Components:
    posterior, model = draws_of(tree), model_of(tree)
    if not model.roles.subspaces or any(site not in posterior for site in model.roles.subspaces):
        raise ValueError(
            "expected a fit whose components have bases and scales, as of zoo.DEPCAM; got one of "
            f"{tree.attrs.get('model', 'no model')!r}"
        )
    if kind_of(tree) == "sampling":
        tree = tree if "relabelled" in tree.attrs else relabel(tree)
        posterior, shares = given_rows(tree), _frequencies(tree)
    else:
        order = by_size(_responsibilities(tree).sum(0))  # as the tree of a fit has them already
        posterior, shares = posterior.isel(component=order), _responsibilities(tree)[:, order]
    bases, scales = (_draws(posterior[name]) for name in model.roles.subspaces)
    units = np.sqrt(np.asarray(noise_factors(model).get("", 1.0)))
    units = units[:, None] if units.ndim else units
    return _Components(bases, scales, units, shares, posterior["feature"].values)


def _mean(values: np.ndarray) -> np.ndarray:
    """Mean over the draws in which a component holds rows; NaN where there is none."""
    return np.ma.masked_invalid(values).mean(0).filled(np.nan)


def _draws(variable: xr.DataArray) -> np.ndarray:
    inner = (dim for dim in ("component", "feature", "latent") if dim in variable.dims)
    values = flat_draws(variable, *inner)
    return values[np.linspace(0, len(values) - 1, min(len(values), _MOST_DRAWS)).round().astype(int)]


def _frequencies(tree: xr.DataTree) -> np.ndarray:
    labels = flat_draws(labels_of(tree))
    return np.stack([(labels == k).mean(0) for k in range(draws_of(tree).sizes["component"])], axis=1)


def _responsibilities(tree: xr.DataTree) -> np.ndarray:
    """Responsibilities of the fitted rows under an estimate or q, whose labels do not switch."""
    soft = responsibilities_of(tree)
    if soft is not None:
        return soft.values
    if labels_of(tree) is not None:
        return _frequencies(tree)
    if "observed_data" not in tree.children:
        raise ValueError(
            "this fit holds neither responsibilities, labels nor its rows, by which components are ordered: "
            "fit with keep=('observed_data',)"
        )
    return transform(tree, tree["observed_data"][model_of(tree).data_names[0]].values).values


def _largest_signed_sum(cosines: np.ndarray) -> np.ndarray:
    """The largest of sum_ij a_i c_ij b_j over signs a and b, for matrices on the last two axes."""
    d = cosines.shape[-1]
    largest = np.full(cosines.shape[:-2], -np.inf)
    for number in range(2 ** (d - 1)):  # a and -a give the same
        signs = 1.0 - 2.0 * ((number >> np.arange(d)) & 1)
        largest = np.maximum(largest, np.abs(np.einsum("i,...ij->...j", signs, cosines)).sum(-1))
    return largest
