r"""One numbering of the components for all draws of a mixture.

A draw's labels are exchangeable, so its clusters are matched to running reference probabilities
:math:`q_{nj}` (the share of draws, relabelled so far, in which row n bears label j): the permutation of draw
s maximises :math:`\sum_n \log q_{n, \nu_s(z_n^{(s)})}`, an assignment problem, and q is recomputed until no
permutation changes. This is Stephens's algorithm (2000, "Dealing with label switching in mixture models",
JRSS B 62, section 4.1) with the drawn assignments in the place of the classification probabilities, which a
fit doesn't keep by draw. The first reference is one draw, the pivot of the equivalence-classes method
(Papastamoulis and Iliopoulos 2010): of the draws with the most frequent number of clusters, the one of the
highest likelihood.

Everything depends on the draws' partitions alone, taken in order of first appearance, and never on the labels
that came in: two fits that differ by permutations of the labels become the same fit, and relabelling twice is
relabelling once. A component without rows is a draw from the prior; those are numbered by weight. A round
costs O(S N K) for S draws; there are usually 5 to 20.
"""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from inference.convergence.identifiable import draws_of, kind_of, symmetries_of
from inference.convergence.partitions import cluster_sizes
from inference.convergence.r_hat import largest_psrf
from inference.results.files import SAMPLE_DIMS, model_of
from inference.results.groups import flat_draws, labels_of, responsibilities_of, with_groups
from inference.symmetry.topics import align_topics, permuted, with_coords_of
from zoo.dependencies import naming_versions

__all__ = ["given_rows", "relabel"]

_MAX_ROUNDS = 50
_SMALLEST_SHARE = 0.01  # of the rows; R-hat is not reported on components with less
_DIMS = ("component", "component_2")


@naming_versions()
def relabel(tree: xr.DataTree) -> xr.DataTree:
    """The same fit with one numbering of the components in all draws, the largest first.

    Args:
        tree: a fit of a model with the symmetry "labels", its assignments kept; of a topic model topics are
            matched by their words (`inference.symmetry.topics`).

    Returns:
        A new tree; the argument is not changed. Every variable of ``posterior`` with the dim ``component`` is
        permuted draw by draw and ``assignments`` follow; for draws from one q (or a point estimate), whose
        labels agree already, one common order is applied, to ``variational`` too. Stick fractions are
        dropped: they belong to an order of the components that no longer holds. Root attributes:
        ``relabelled`` (how), and with several chains ``relabel_rhat_before`` and ``relabel_rhat_after``, the
        largest rank-normalised R-hat of the vectors by component (weights, locs, ...) over components with at
        least 1 per cent of the rows.

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
    if model.topic_site in posterior:
        return align_topics(tree)
    if "component" not in posterior.dims:
        raise ValueError(
            "relabel needs variables of the posterior with the dim 'component'; this fit has none"
        )
    num_components = posterior.sizes["component"]
    if kind_of(tree) != "sampling":
        return _one_order(tree, posterior, num_components)
    drawn = labels_of(tree)
    if drawn is None:
        raise ValueError(
            "relabel matches draws by their assignments, which this fit does not hold: draw them by "
            "inference.extend(tree, 'assignments'), or fit with keep=('assignments',)"
        )
    shape, labels = drawn.shape[:2], flat_draws(drawn)
    counted = cluster_sizes(labels)
    sizes = np.pad(counted, ((0, 0), (0, num_components - counted.shape[1])))
    weights = flat_draws(posterior[model.weight_site]) if model.weight_site in posterior else sizes
    new_labels, rounds = _match(labels, _pivot(tree, sizes), num_components)
    sources = _sources(new_labels, sizes, weights)
    targets = np.argsort(sources, axis=1).reshape(*shape, -1)
    relabelled = permuted(posterior, _DIMS, model.cluster_site, sources.reshape(*shape, -1), targets)
    how = f"assignments matched across draws in {rounds} rounds" + _dropped(posterior)
    attrs = {"relabelled": tree.attrs.get("relabelled", how)}
    if shape[0] > 1 and shape[1] >= 4:
        before = tree.attrs.get("relabel_rhat_before", largest_psrf(_entries(posterior, sizes)))
        after = largest_psrf(_entries(relabelled, np.take_along_axis(sizes, sources, axis=1)))
        attrs |= {"relabel_rhat_before": float(before), "relabel_rhat_after": after}
    return with_groups(tree, {"posterior": relabelled}, **attrs)


def given_rows(tree: xr.DataTree) -> xr.Dataset:
    """The draws with the parameters of clusters given that these hold rows: NaN in draws where one is empty.

    There they are draws from the prior, which tell nothing of the cluster of that number.

    Args:
        tree: a fit with one numbering of its clusters, such as `relabel` gives.

    Returns:
        The group ``posterior``; the weights of the clusters are kept, since that of an empty one is known.
    """
    posterior, model, drawn = draws_of(tree), model_of(tree), labels_of(tree)
    if drawn is None or model.weight_site is None or kind_of(tree) == "point":
        return posterior
    dim = model.variable_dims[model.weight_site][-1]
    counts = cluster_sizes(drawn.values)
    size = posterior.sizes.get(dim, 0)
    held = np.pad(counts, ((0, 0), (0, 0), (0, max(size - counts.shape[2], 0))))[..., :size] > 0
    if held.all():
        return posterior
    holds = xr.DataArray(held, dims=(*SAMPLE_DIMS, dim))
    return posterior.assign(
        {
            name: value.where(holds)
            for name, value in posterior.data_vars.items()
            if dim in value.dims and name != model.weight_site
        }
    )


def _pivot(tree: xr.DataTree, sizes: np.ndarray) -> int:
    """The draw to start from: of those with the usual number of clusters, the one of highest likelihood.

    Not of the highest log joint: under a sparse Dirichlet prior that is one whose empty components have tiny
    weights.
    """
    counts = (sizes > 0).sum(1)
    usual = np.flatnonzero(counts == np.bincount(counts).argmax())
    if "log_likelihood" not in tree.children:
        return int(usual[-1])
    rows = flat_draws(tree["log_likelihood"]["log_likelihood"])
    return int(usual[rows.reshape(len(sizes), -1).sum(1)[usual].argmax()])


def _match(labels: np.ndarray, pivot: int, num_components: int) -> tuple[list[dict[int, int]], int]:
    """For each draw, old -> new label of its occupied components, and the rounds; 0 holds most rows."""
    num_draws, num_rows = labels.shape
    drawn = []  # per draw: labels by first appearance, each row's cluster, rows by cluster, starts
    for z in labels:
        names, first, inverse = np.unique(z, return_index=True, return_inverse=True)
        appearance = np.argsort(first)
        small = np.min_scalar_type(num_components)  # clusters are held for every draw
        cluster = np.argsort(appearance)[inverse].astype(small)
        rows = np.argsort(cluster, kind="stable").astype(np.int32)
        starts = np.searchsorted(cluster[rows], np.arange(len(names)))
        drawn.append((names[appearance], cluster, rows, starts))
    counts = np.zeros((num_rows, num_components))
    counts[np.arange(num_rows), drawn[pivot][1]] = 1.0
    before, rounds = None, 0
    while rounds < _MAX_ROUNDS:
        rounds += 1
        # one pseudo-draw spread evenly keeps log q finite where a label was never seen
        reference = np.log((counts + 1.0 / num_components) / (counts.sum(1, keepdims=True) + 1.0))
        permutations, counts = [], np.zeros_like(counts)
        for _, cluster, rows, starts in drawn:
            gain = np.add.reduceat(reference[rows], starts, axis=0)
            permutation = linear_sum_assignment(gain, maximize=True)[1]
            permutations.append(permutation)
            counts[np.arange(num_rows), permutation[cluster]] += 1.0
        if before is not None and all(map(np.array_equal, before, permutations)):
            break
        before = permutations
    final = np.argsort(np.argsort(-counts.sum(0), kind="stable"), kind="stable")
    return [
        dict(zip(names.tolist(), final[permutation].tolist(), strict=True))
        for (names, *_), permutation in zip(drawn, permutations, strict=True)
    ], rounds


def _sources(new_labels: list[dict[int, int]], sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The old label that each new one takes parameters from, (draws, components); empty ones by weight."""
    sources = np.full(sizes.shape, -1)
    for draw, mapping in enumerate(new_labels):
        sources[draw, list(mapping.values())] = list(mapping)
        empty = np.flatnonzero(sizes[draw] == 0)
        sources[draw, sources[draw] < 0] = empty[np.argsort(-weights[draw, empty], kind="stable")]
    return sources


def _one_order(tree: xr.DataTree, posterior: xr.Dataset, num_components: int) -> xr.DataTree:
    """Draws of one q, or a point estimate: their labels agree, so one order by share serves all groups."""
    model, soft, drawn = model_of(tree), responsibilities_of(tree), labels_of(tree)
    if soft is not None:
        share = soft.values.sum(0)
    elif drawn is not None:
        share = np.bincount(drawn.values.astype(int).ravel(), minlength=num_components).astype(float)
    elif model.weight_site in posterior:
        share = posterior[model.weight_site].transpose("chain", "draw", ...).values.mean((0, 1))
    else:
        raise ValueError(
            "relabel orders components by their share of the rows: this fit has neither "
            "responsibilities, assignments nor weights"
        )
    order = np.argsort(-share, kind="stable")
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], num_components)
    both = np.broadcast_to(order, shape), np.broadcast_to(np.argsort(order), shape)
    groups = {"posterior": permuted(posterior, _DIMS, model.cluster_site, *both)}
    if "variational" in tree.children:
        stored = tree["variational"].to_dataset()
        groups["variational"] = with_coords_of(
            stored,
            {
                name: value.copy(data=value.isel({dim: order for dim in _DIMS if dim in value.dims}).values)
                for name, value in stored.data_vars.items()
                if "stick" not in value.dims
            },
        )
    how = "one order by share of the rows: these labels do not switch" + _dropped(posterior)
    return with_groups(tree, groups, relabelled=tree.attrs.get("relabelled", how))


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
