"""Relabelling: the draws of a fit with its components in the order of the clusters that a reader sees.

The numbers are decided when a tree is built (`inference.convergence.numbering`); here they are applied to the
axes of the draws. A component without rows is a draw from the prior: in each draw those come last, by weight.
"""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of, symmetries_of
from inference.convergence.numbering import draw_labels, numbered, stored_labels
from inference.convergence.partitions import cluster_sizes
from inference.convergence.r_hat import largest_psrf
from inference.results.files import SAMPLE_DIMS, model_of
from inference.results.groups import flat_draws, labels_of, with_groups
from inference.symmetry.topics import align_topics, permuted

_SMALLEST_SHARE = 0.01  # of the rows; R-hat is not reported on components with less
_DIMS = ("component", "component_2")


def relabel(tree: xr.DataTree) -> xr.DataTree:
    """The same fit with one numbering of the components in all draws, the largest first.

    Args:
        tree: a fit of a model with the symmetry "labels"; by a sampler its numbering as it was stored when
            the tree was built, or else its assignments; of a topic model topics are matched by their words.

    Returns:
        A new tree; the argument is not changed. Every variable of ``posterior`` with the dim ``component`` is
        permuted draw by draw and ``assignments`` follow; draws from one q (or a point estimate), whose labels
        agree, are numbered already. Stick fractions of a sampler are dropped: they belong to an order of the
        components that no longer holds. Root attributes: ``relabelled`` (how), and with several chains
        ``relabel_rhat_before`` and ``relabel_rhat_after``, the largest rank-normalised R-hat of the vectors
        by component (weights, locs, ...) over components with at least 1 per cent of the rows.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: the model has no labels to switch, or the assignments were left out of the tree.
    """
    posterior = draws_of(tree)
    if "labels" not in symmetries_of(tree):
        raise ValueError(
            f"a fit of {tree.attrs.get('model', 'this model')!r} has no labels that could switch: there "
            f"is nothing to relabel"
        )
    model = model_of(tree)
    if model.roles.topic in posterior:
        return align_topics(tree)
    if "component" not in posterior.dims:
        raise ValueError(
            "relabel needs variables of the posterior with the dim 'component'; this fit has none"
        )
    if kind_of(tree) != "sampling":
        tree = tree if "numbering" in tree.attrs else numbered(tree)
        return with_groups(tree, {}, relabelled="by size: these labels do not switch")
    if "relabelled" in tree.attrs:
        return tree
    stored, drawn = stored_labels(tree, "component"), labels_of(tree)
    if stored is None:
        if drawn is None:
            raise ValueError(
                "relabel matches draws by their assignments, which this fit does not hold: draw them by "
                "inference.extend(tree, 'assignments'), or fit with keep=('assignments',)"
            )
        dims, numbers = draw_labels(tree)["component_label"]
        stored = xr.DataArray(numbers, dims=dims)
    targets = stored.to_numpy().astype(np.int64)
    sources = np.argsort(targets, axis=-1)
    relabelled = permuted(posterior, _DIMS, model.roles.cluster, sources, targets)
    attrs: dict[str, object] = {
        "relabelled": "components matched across draws by the rows that they hold" + _dropped(posterior)
    }
    if drawn is not None and posterior.sizes["chain"] > 1 and posterior.sizes["draw"] >= 4:
        sizes = cluster_sizes(flat_draws(drawn), posterior.sizes["component"])
        moved = np.take_along_axis(sizes, sources.reshape(len(sizes), -1), axis=1)
        attrs["relabel_rhat_before"] = float(largest_psrf(_entries(posterior, sizes)))
        attrs["relabel_rhat_after"] = float(largest_psrf(_entries(relabelled, moved)))
    return with_groups(tree, {"posterior": relabelled} | _renamed(tree, "component"), **attrs)


def given_rows(tree: xr.DataTree) -> xr.Dataset:
    """The draws with the parameters of clusters given that these hold rows: NaN in draws where one is empty.

    There they are draws from the prior, which tell nothing of the cluster of that number.

    Returns:
        The group ``posterior``; the weights of the clusters are kept, since that of an empty one is known.
    """
    posterior, model, drawn = draws_of(tree), model_of(tree), labels_of(tree)
    if drawn is None or model.roles.weight is None or kind_of(tree) == "point":
        return posterior
    dim = model.variable_dims[model.roles.weight][-1]
    size = posterior.sizes.get(dim, 0)
    held = cluster_sizes(drawn.values, size)[..., :size] > 0
    if held.all():
        return posterior
    holds = xr.DataArray(held, dims=(*SAMPLE_DIMS, dim))
    return posterior.assign(
        {
            name: value.where(holds)
            for name, value in posterior.data_vars.items()
            if dim in value.dims and name != model.roles.weight
        }
    )


def _renamed(tree: xr.DataTree, dim: str) -> dict[str, xr.Dataset]:
    """The group with the numbers of components, where they are now those of the axis."""
    stored = stored_labels(tree, dim)
    if stored is None:
        return {}
    own = np.broadcast_to(np.arange(stored.shape[-1], dtype=stored.dtype), stored.shape)
    return {"sample_stats": tree["sample_stats"].to_dataset().assign({stored.name: (stored.dims, own)})}


def _dropped(posterior: xr.Dataset) -> str:
    sticks = [name for name, variable in posterior.data_vars.items() if "stick" in variable.dims]
    return f"; {', '.join(sticks)} dropped: they belong to the former order" if sticks else ""


def _entries(posterior: xr.Dataset, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Every entry of the variables by component of those with enough rows, each (chain, draw)."""
    shares = sizes.sum(0) / sizes.sum()
    for variable in posterior.data_vars.values():
        if "component" not in variable.dims or variable.ndim > 4 or "observation" in variable.dims:
            continue
        values = variable.transpose("chain", "draw", "component", ...).values
        for k in np.flatnonzero(shares >= _SMALLEST_SHARE):
            yield from np.moveaxis(values[:, :, k].reshape(*values.shape[:2], -1), -1, 0).astype(float)
