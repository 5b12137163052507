r"""The posterior of a clustering as a distribution over partitions of the rows, without labels.

With assignments :math:`z^{(s)}` of draw s, the co-clustering matrix is :math:`P_{ij} = \frac1S \sum_s
1[z_i^{(s)} = z_j^{(s)}]`; for a factorised posterior with responsibilities r it is :math:`P_{ij} = \sum_k
r_{ik} r_{jk}` off the diagonal. Time is O(S N^2), memory O(N^2).

A single partition is chosen by the expected loss of Binder (1978, "Bayesian cluster analysis",
Biometrika 65): :math:`\sum_{i<j} |1[c_i = c_j] - P_{ij}|`, pairs put together or apart by mistake.

The best draw is improved by moving one row at a time to the cluster (or a new one) that lowers the loss,
until no move does.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from inference.results.files import model_of
from inference.results.groups import flat_draws, group_or_empty, labels_of, responsibilities_of
from zoo import late

_LARGEST_MATRIX = 512 * 2**20  # bytes
LEAST_ROWS = 0.5  # expected in a cluster that counts as one
_BLOCK = 2**24  # entries of a block of indicators held at once
_EVALUATIONS = 2**30  # pairs of rows looked at while draws are compared
_MAX_SWEEPS = 100
_NEAR = 0.1  # share of the pairs of rows on which draws of one mode may differ
MOST_COMPARED = 100  # draws among which a central one is looked for
_FEW = 0.05  # share of the draws, below which they are no mode


def cluster_sizes(assignments: np.ndarray, least: int = 0, weight: np.ndarray | None = None) -> np.ndarray:
    """Rows in each component, or the sum of their weights, draw by draw.

    Returns:
        Whole numbers without weights, shape (..., largest label + 1), or (..., ``least``) where that is more.
    """
    flat = assignments.reshape(-1, assignments.shape[-1])
    num_labels = max(int(flat.max(initial=0)) + 1, least)
    sizes = np.empty((len(flat), num_labels), dtype=np.int64 if weight is None else np.float64)
    block = max(1, _BLOCK // max(flat.shape[1], num_labels))
    for start in range(0, len(flat), block):
        part = flat[start : start + block].astype(np.int64)
        code = part + num_labels * np.arange(len(part))[:, None]
        weights = None if weight is None else np.broadcast_to(weight, part.shape).ravel()
        counts = np.bincount(code.ravel(), weights, minlength=num_labels * len(part))
        sizes[start : start + block] = counts.reshape(len(part), num_labels)
    return sizes.reshape(*assignments.shape[:-1], num_labels)


def clusters_found(probs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which clusters a fit has found: half a row expected, and those that most draws leave empty not counted.

    Args:
        probs: of each cluster for each row, shape (rows, clusters).
        sizes: of the clusters draw by draw, or expected ones, shape (draws, clusters).

    Returns:
        Shape (clusters,).
    """
    is_held = np.isin(np.arange(probs.shape[1]), probs.argmax(1)) | ((sizes > 0).mean(0) >= 0.5)
    return (probs.sum(0) >= LEAST_ROWS) & is_held


def co_clustering(tree: xr.DataTree, rows: np.ndarray | None = None) -> xr.DataArray:
    """Posterior probability that two rows share a component.

    Args:
        tree: a fit with assignments (a sampler) or responsibilities (a variational posterior or point
            estimate).
        rows: positions of the rows to look at; all of them by default.

    Returns:
        DataArray (observation, observation_2), probabilities, 1 on the diagonal.

    Raises:
        ValueError: the fit has no clusters, its assignments were left out, or the matrix would need more than
            512 MiB.
    """
    labels, soft, names = _clusters(tree)
    num_rows = len(names)
    rows = np.arange(num_rows) if rows is None else np.asarray(rows)
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or not len(rows):
        raise ValueError(f"rows must be a list of row positions; got shape {rows.shape} of {rows.dtype}")
    if rows.min() < 0 or rows.max() >= num_rows:
        raise ValueError(f"rows must lie in 0..{num_rows - 1}; got {rows.min()}..{rows.max()}")
    needed = 8 * len(rows) ** 2
    if needed > _LARGEST_MATRIX:
        raise ValueError(
            f"a co-clustering matrix of {len(rows)} rows needs {needed / 2**20:.0f} MiB, more than the "
            f"limit of {_LARGEST_MATRIX // 2**20} MiB:"
            f" give rows=, positions of at most {int((_LARGEST_MATRIX / 8) ** 0.5)} rows"
        )
    if soft is not None:
        matrix = soft[rows] @ soft[rows].T
        np.fill_diagonal(matrix, 1.0)
    else:
        matrix = _share_of_draws(labels[:, rows])
    coords = {"observation": names[rows], "observation_2": names[rows]}
    attrs = {"long_name": "posterior probability of sharing a component"}
    return xr.DataArray(matrix, coords, ("observation", "observation_2"), "co_clustering", attrs)


def point_partition(tree: xr.DataTree, rows: np.ndarray | None = None) -> xr.DataArray:
    """The partition of the rows that misplaces fewest pairs of them under the posterior: least Binder loss.

    Args:
        tree: a fit with assignments or responsibilities.
        rows: positions of the rows to partition; all of them by default.

    Returns:
        Integers (observation,), the numbers that the clusters have in the fit, by size where it has none
        (`inference.convergence.numbering`). Attributes: ``expected_loss`` (expected number of
        misplaced pairs), ``num_clusters``.

    Raises:
        ValueError: the fit has no clusters, or as for ``co_clustering``.
    """
    matrix = co_clustering(tree, rows)
    together, names = matrix.values, matrix["observation"].values
    labels, soft, _ = _clusters(tree)
    candidates = soft.argmax(1)[None] if soft is not None else labels
    candidates = candidates if rows is None else candidates[:, np.asarray(rows)]
    most = int(np.clip(_EVALUATIONS / together.size, 10, 500))
    if len(candidates) > most:  # one evaluation costs N^2, and the moves below repair a near miss
        candidates = candidates[np.linspace(0, len(candidates) - 1, most).astype(int)]
    candidates = np.unique(np.stack([_compact(z) for z in candidates]), axis=0)
    best = _improve(min(candidates, key=lambda z: _binder(z, together)), together)
    attrs = {"expected_loss": _binder(best, together), "num_clusters": len(np.unique(best))}
    return xr.DataArray(
        _numbered_like_fit(best, tree, rows), {"observation": names}, ("observation",), "partition", attrs
    )


def central_draw(tree: xr.DataTree) -> np.ndarray:
    """The drawn partition nearest to the others: the draw of least expected Binder loss (Dahl 2006).

    It needs no matrix of pairs of rows, O(M^2 N) for M draws instead of the O(N^2) of `point_partition`, and
    searches among draws only, `MOST_COMPARED` of them.

    Returns:
        The component of each row, integers of shape (num_observations,); of responsibilities the most
            probable one.

    Raises:
        ValueError: the fit has no clusters, or its assignments were left out.
    """
    labels, soft, _ = _clusters(tree)
    if soft is not None:
        return soft.argmax(1)
    chosen = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), MOST_COMPARED)).astype(int))
    draws = np.stack([_compact(labels[draw]) for draw in chosen]).astype(np.int64)
    return draws[np.argmin(_distances(draws).sum(1))]


def _distances(draws: np.ndarray) -> np.ndarray:
    """Twice the pairs of rows that one partition has together and the other apart, by two partitions."""
    sizes = draws.max() + 1
    # pairs together in both: with n_ij rows shared by clusters i and j, sum n_ij^2 counts each pair twice
    both = np.zeros((len(draws), len(draws)))
    for one in range(len(draws)):
        for other in range(one, len(draws)):
            shared = np.bincount(draws[one] * sizes + draws[other]).astype(float)
            both[one, other] = both[other, one] = shared @ shared
    alone = np.diag(both)
    return alone[:, None] + alone - 2 * both


class Mode(NamedTuple):
    """A partition about which many draws lie.

    Attributes:
        partition: the cluster of each row, shape (num_observations,).
        shares: of each chain's draws, shape (num_chains,).
    """

    partition: np.ndarray
    shares: np.ndarray


def modes(tree: xr.DataTree, most: int = 50) -> list[Mode]:
    """The partitions that the draws of a sampler lie about, those with most draws first.

    The draw that has most others near it, of which at most one pair of rows in ten is together in one and
    apart in the other, is a mode with them; the next is found among the draws that are left, and so on while
    one draw in twenty is near. The groups are those of Daura et al. (1999), "Peptide folding: when simulation
    meets experiment".

    Args:
        tree: a fit.
        most: draws of each chain that are looked at, evenly spaced.

    Returns:
        None at all of a fit without drawn labels.
    """
    drawn = labels_of(tree) if "posterior" in tree.children else None
    if drawn is None:
        return []
    labels = drawn.to_numpy()
    chains, number, rows = labels.shape
    chosen = np.unique(np.linspace(0, number - 1, min(number, most)).astype(int))
    draws = np.stack([_compact(own) for own in labels[:, chosen].reshape(-1, rows)]).astype(np.int64)
    near = _distances(draws) <= _NEAR * rows**2
    left, found = np.full(len(draws), True), []
    while left.any():
        counts = (near & left).sum(1) * left
        centre = int(counts.argmax())
        if counts[centre] < _FEW * len(draws):
            break
        own = near[centre] & left
        found.append(Mode(draws[centre], own.reshape(chains, -1).mean(1)))
        left &= ~own
    return found


def seen_clusters(tree: xr.DataTree) -> np.ndarray | None:
    """The most probable cluster of each row, as the fit numbers them; None where it does not."""
    shares = memberships(tree, numbered=True)
    return None if shares is None else shares.argmax(1)


def memberships(tree: xr.DataTree, *, numbered: bool = False) -> np.ndarray | None:
    """Probability of each cluster, as the fit numbers them, for each fitted row.

    Args:
        tree: a fit.
        numbered: whether drawn labels without a numbering of the fit are no answer, since they may switch.

    Returns:
        Shape (rows, clusters); None of a fit that holds neither responsibilities nor labels.
    """
    soft, drawn, model = responsibilities_of(tree), labels_of(tree), model_of(tree)
    if soft is not None:
        return soft.to_numpy().astype(float)
    if drawn is None or model.roles.weight is None:
        return None
    dim, labels, numbers = model.variable_dims[model.roles.weight][-1], flat_draws(drawn), None
    stats = group_or_empty(tree, "sample_stats")
    if f"{dim}_label" in stats:
        numbers = flat_draws(stats[f"{dim}_label"], dim)
    elif numbered:
        return None
    largest = labels.max() if numbers is None else numbers.max()
    size = max(tree["posterior"].sizes.get(dim, 0), int(largest) + 1)
    num_draws, rows = labels.shape
    counts, begins = np.zeros(rows * size, dtype=np.int64), np.arange(rows) * size
    for draw, own in enumerate(labels):  # no array of all draws is made
        counts[begins + (own if numbers is None else numbers[draw, own])] += 1
    return counts.reshape(rows, size) / num_draws


def _numbered_like_fit(partition: np.ndarray, tree: xr.DataTree, rows: np.ndarray | None) -> np.ndarray:
    """A partition with the numbers that the fit has for its clusters; other clusters follow by size."""
    names, inverse, sizes = np.unique(partition, return_inverse=True, return_counts=True)
    seen = seen_clusters(tree)
    numbers = np.full(len(names), -1)
    if seen is not None:
        seen = seen if rows is None else seen[np.asarray(rows)]
        shared = np.zeros((len(names), seen.max() + 1))
        np.add.at(shared, (inverse, seen), 1)
        found, answers = late.linear_sum_assignment(shared, maximize=True)
        numbers[found] = np.where(shared[found, answers] > 0, answers, -1)
    left = np.flatnonzero(numbers < 0)
    left = left[np.argsort(-sizes[left], kind="stable")]
    free = np.setdiff1d(np.arange(len(names) + numbers.max(initial=-1) + 1), numbers)
    numbers[left] = free[: len(left)]
    return numbers[inverse]


def _clusters(tree: xr.DataTree) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Assignments (draws, rows) or responsibilities (rows, components), and the rows' names."""
    soft = responsibilities_of(tree)
    if soft is not None:
        return None, np.asarray(soft.values, dtype=float), soft[soft.dims[0]].values
    drawn = labels_of(tree) if "posterior" in tree.children else None
    if drawn is not None:
        return flat_draws(drawn), None, drawn[drawn.dims[-1]].values
    raise ValueError(why_no_labels(tree))


def why_no_labels(tree: xr.DataTree) -> str:
    """Why a fit holds no assignments of its rows, and what to do where its model has any."""
    if model_of(tree).roles.cluster is None:
        return (
            f"a fit of {tree.attrs.get('model', 'this model')!r} assigns no rows to components: it has no "
            f"partition"
        )
    return (
        "this fit holds no assignments of its rows: draw them by "
        "inference.extend(tree, 'assignments'), or fit with keep=('assignments',)"
    )


def _compact(labels: np.ndarray) -> np.ndarray:
    """The partition with labels in order of first appearance: equal partitions become equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _share_of_draws(labels: np.ndarray) -> np.ndarray:
    """Share of draws in which two rows have one label: products of indicators, a block of draws at a time."""
    num_draws, num_rows = labels.shape
    num_labels = int(labels.max()) + 1
    counts = np.zeros((num_rows, num_rows))
    block = max(1, _BLOCK // (num_rows * min(num_labels, num_rows)))
    for start in range(0, num_draws, block):
        part = labels[start : start + block].astype(np.int64)
        code = part + num_labels * np.arange(len(part))[:, None]
        used, column = np.unique(code, return_inverse=True)  # a column for every occupied (draw, label)
        indicator = np.zeros((num_rows, len(used)), np.float32)  # exact: far fewer than 2^24 draws in a block
        indicator[np.broadcast_to(np.arange(num_rows), part.shape), column.reshape(part.shape)] = 1.0
        counts += indicator @ indicator.T
    return counts / num_draws


def _improve(labels: np.ndarray, together: np.ndarray) -> np.ndarray:
    """Move one row at a time where the loss falls, until no move lowers it, at O(N^2) a sweep."""
    labels = labels.copy()
    sizes = np.append(np.bincount(labels), 0)
    sums = np.stack([together[:, labels == k].sum(1) for k in range(len(sizes))], axis=1)  # sum_{m in k} P_jm
    for _ in range(_MAX_SWEEPS):
        moved = False
        for i, here in enumerate(labels):
            sizes[here] -= 1
            sums[:, here] -= together[:, i]
            costs = sizes - 2.0 * sums[i]  # change of the loss if it joins a cluster: 1 - 2 P_ij summed
            best = int(np.argmin(costs))
            if not costs[best] < costs[here] - 1e-10:
                best = here
            moved |= best != here
            labels[i] = best
            sizes[best] += 1
            sums[:, best] += together[:, i]
            if sizes.min() > 0:  # one empty cluster is always on offer
                sizes = np.append(sizes, 0)
                sums = np.pad(sums, ((0, 0), (0, 1)))
        if not moved:
            break
    return _compact(labels)


def _binder(labels: np.ndarray, together: np.ndarray) -> float:
    same = labels[:, None] == labels[None, :]
    return float(np.abs(same - together).sum() / 2)
