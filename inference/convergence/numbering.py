r"""One numbering of the clusters, components and topics of a fit, decided when its tree is built.

They are numbered by size, the largest first: clusters and components by their rows (the weighted sum of
responsibilities, or of the rows drawn into them), topics by their tokens. Equal sizes are numbered by their
first row, and those without rows come last. Every variable, table, picture and prediction bears these
numbers.

* Draws of one q, and a point estimate, have one order of components: the tree holds them by size. Only the
  axis ``stick`` keeps the order in which sticks are broken. The coordinate ``stick_of_component`` (or
  ``stick_of_cluster``) then says which stick each component is, and `in_program_order` undoes the numbering
  for whoever evaluates the program.
* Draws of a Markov chain switch labels. Their axes keep the order of the sampler, and ``component_label`` (or
  ``cluster_label``, ``topic_label``) of the group ``sample_stats`` holds, draw by draw, the number that each
  component has for a reader. The clusters of a reader are those of a point partition, the draw of least
  expected Binder loss; the components of each draw are matched to them by the rows that they have in common
  (equivalence class representatives, Papastamoulis and Iliopoulos 2010). `inference.symmetry.relabel` applies
  the numbers. Topics are matched by their words.
"""

from typing import Any

import numpy as np
import xarray as xr

from inference.convergence.identifiable import kind_of
from inference.convergence.partitions import central_draw, cluster_sizes
from inference.processes import gathered
from inference.results.files import model_of
from inference.results.groups import (
    flat_draws,
    group_or_empty,
    labels_of,
    responsibilities_of,
    restored_data,
    sample_weight_of,
    with_groups,
)
from zoo import late
from zoo.dirichlet_process import DirichletAllocation, StickBreaking
from zoo.model import Model

_BLOCK = 2**24  # entries of the tables of rows in common that are held at once
_DIGITS = 6  # of a size in rows: less is rounding, and makes no order
_MOST_MATCHED = 100  # draws among which the reference of topics is sought
_MOST_ROUNDS = 20


def numbered(tree: xr.DataTree, spreads_rows: bool = False, like: xr.DataTree | None = None) -> xr.DataTree:
    """The fit with its clusters, components and topics in the numbering of this module.

    Args:
        tree: a fit in the order of its method.
        spreads_rows: whether each of several processes holds rows of its own.
        like: the same run at another step, by whose sizes it is numbered; None: by its own.
    """
    model = model_of(tree)
    if "labels" not in model.symmetries:
        return tree
    if kind_of(tree) == "sampling":
        found = draw_labels(tree)
        if not found:
            return tree
        stats = group_or_empty(tree, "sample_stats")
        how = f"that of the sampler; for a reader {', '.join(found)} of sample_stats"
        return with_groups(tree, {"sample_stats": stats.assign(found)}, numbering=how)
    for dim, sizes in _sizes(tree if like is None else like, model, spreads_rows).items():
        if not _told_apart(model, dim):
            tree = _renumbered(tree, model, dim, by_size(*sizes))
    return with_groups(tree, {}, numbering="by size, the largest first")


def cluster_dim(model: Model) -> str | None:
    """The dim of the clusters of rows or documents."""
    return None if model.roles.weight is None else model.variable_dims[model.roles.weight][-1]


def by_size(sizes: np.ndarray, first: np.ndarray | None = None) -> np.ndarray:
    """The order of components by falling size; equal ones by their ``first`` row, then as they are."""
    places = np.arange(len(sizes))
    return np.lexsort((places, places if first is None else first, -np.round(sizes, _DIGITS)))


def _told_apart(model: Model, dim: str) -> bool:
    """Whether a prior differs between the topics, which it then names."""
    return dim == "topic" and np.ptp(getattr(model, "topic_prior", 0.0)) > 0


def _sizes(
    tree: xr.DataTree, model: Model, spreads_rows: bool
) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """By dim the sizes of q's or an estimate's components, and the first row of each where that is known."""
    found: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
    posterior = tree["posterior"].to_dataset()
    dim = cluster_dim(model)
    soft, drawn = responsibilities_of(tree), labels_of(tree)
    if soft is not None:
        weight, r = sample_weight_of(tree), soft.to_numpy()
        sizes, owner = (r.sum(0) if weight is None else weight @ r), r.argmax(1)
        if spreads_rows:
            sizes, first = sum(part["sizes"] for part in gathered(sizes=sizes)), None
        else:
            first = _first_rows(owner[None], len(sizes))[0]
        found[soft.dims[-1]] = sizes, first
    elif dim is not None and dim in posterior.dims:
        expected = _expected_weights(tree, model)
        if expected is not None:
            sizes = expected
        elif drawn is not None and not spreads_rows:
            sizes = cluster_sizes(flat_draws(drawn), posterior.sizes[dim], sample_weight_of(tree)).mean(0)
        else:
            sizes = flat_draws(posterior[model.roles.weight]).mean(0)
        found[dim] = sizes, None
    if model.roles.topic in posterior:
        found["topic"] = _tokens(tree, model), None
    return found


def _expected_weights(tree: xr.DataTree, model: Model) -> np.ndarray | None:
    """E[weights] under q, where the fit holds q's parameters: a few draws order near ties by chance."""
    stored = group_or_empty(tree, "variational")
    weights = getattr(model, "weights", None)
    if not isinstance(weights, DirichletAllocation | StickBreaking):
        return None
    if not {*weights.posterior_names} <= set(stored):
        return None
    q = weights.with_variables({name: stored[name].to_numpy() for name in weights.posterior_names})
    return np.asarray(weights.expected_weights(q))


def _first_rows(labels: np.ndarray, size: int) -> np.ndarray:
    """The first row of each component in every draw, (draws, size); the number of rows where it has none."""
    num_draws, num_rows = labels.shape
    first = np.full((num_draws, size), num_rows)
    for begin in range(0, num_draws, max(1, _BLOCK // max(num_rows, 1))):
        part = labels[begin : begin + max(1, _BLOCK // max(num_rows, 1))]
        np.minimum.at(first, (np.arange(begin, begin + len(part))[:, None], part), np.arange(num_rows)[None])
    return first


def _tokens(tree: xr.DataTree, model: Model) -> np.ndarray:
    """Expected tokens of each topic, from whatever the fit holds of them."""
    variational = group_or_empty(tree, "variational")
    concentration = f"{str(model.roles.topic).removesuffix('_probs')}_concentration"
    if concentration in variational:  # the prior's, the same for all topics, and the expected counts
        return variational[concentration].transpose("topic", ...).to_numpy().sum(1)
    posterior = tree["posterior"].to_dataset()
    topics = flat_draws(posterior[model.roles.topic], "topic", "word").mean(0)
    lengths, words = _totals(tree, model)
    site = model.roles.document_topic
    if site in posterior and lengths is not None:
        return lengths @ flat_draws(posterior[site], "document", "topic").mean(0)
    if words is None:
        return np.zeros(len(topics))
    shares = np.full(len(topics), 1.0 / len(topics))
    for _ in range(_MOST_ROUNDS):  # EM of the shares of the topics in all words together
        own = shares[:, None] * topics
        shares = (own / np.maximum(own.sum(0), np.finfo(float).tiny)) @ words / words.sum()
    return shares * words.sum()


def _totals(tree: xr.DataTree, model: Model) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Tokens of each document and of each word, where the fit holds its documents."""
    if "observed_data" not in tree.children:
        return None, None
    (counts,) = restored_data(tree["observed_data"].to_dataset(), model)
    lengths = np.bincount(counts.document, counts.count, counts.shape[0])
    return lengths, np.bincount(counts.word, counts.count, counts.shape[1])


def _renumbered(tree: xr.DataTree, model: Model, dim: str, order: np.ndarray) -> xr.DataTree:
    """The fit with entry ``order[k]`` of a dim as its entry k, and the stick of each where there are any."""
    has_sticks = dim == cluster_dim(model) and any("stick" in child.dims for child in tree.children.values())
    groups = {}
    for name, child in tree.children.items():
        group = child.to_dataset()
        moved = reordered(group, dim, order, model.roles.cluster if dim == cluster_dim(model) else None)
        if has_sticks and dim in group.dims:
            before = group.coords.get(f"stick_of_{dim}", xr.DataArray(np.arange(len(order)))).to_numpy()
            moved = moved.assign_coords({f"stick_of_{dim}": (dim, before[order])})
        if moved is not group:
            groups[name] = moved
    return with_groups(tree, groups)


def reordered(group: xr.Dataset, dim: str, order: np.ndarray, cluster_site: str | None) -> xr.Dataset:
    """A group with entry ``order[k]`` of a dim as its entry k; drawn labels follow, coordinates stay."""
    dims = [own for own in (dim, f"{dim}_2") if own in group.dims]
    moved = {
        name: value.copy(data=value.isel({own: order for own in dims if own in value.dims}).to_numpy())
        for name, value in group.data_vars.items()
        if set(dims) & set(value.dims)
    }
    if cluster_site in group:
        labels = group[cluster_site]
        places = np.argsort(order).astype(labels.dtype)
        moved[cluster_site] = labels.copy(data=places[labels.to_numpy()])
    return group.assign(moved) if moved else group


# Draws of Markov chains


def stored_labels(tree: xr.DataTree, dim: str) -> xr.DataArray | None:
    """The numbers that the components of each draw have for a reader, dims (chain, draw, dim)."""
    stored = group_or_empty(tree, "sample_stats").get(f"{dim}_label")
    return None if stored is None else stored.transpose("chain", "draw", dim)


def draw_labels(tree: xr.DataTree) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """The numbers that the components of each draw have for a reader, by the names that a tree has for them.

    Returns:
        Name to dims and numbers, shape (chain, draw, dim); nothing of clusters whose labels the fit lacks.
    """
    model, posterior = model_of(tree), tree["posterior"].to_dataset()
    shape, found = (posterior.sizes["chain"], posterior.sizes["draw"], -1), {}

    def note(dim: str, numbers: np.ndarray) -> None:
        if not _told_apart(model, dim):
            kind = np.min_scalar_type(numbers.shape[1] - 1)
            found[f"{dim}_label"] = ("chain", "draw", dim), numbers.astype(kind).reshape(shape)

    topics = None
    if model.roles.topic in posterior:
        topics = flat_draws(posterior[model.roles.topic], "topic", "word")
        orders = topic_orders(topics, _best_draw(tree))
        note("topic", _by_tokens(tree, model, topics, np.argsort(orders, axis=1)))
    dim, drawn = cluster_dim(model), labels_of(tree)
    if dim is not None and dim in posterior.dims and drawn is not None:
        labels = flat_draws(drawn).astype(np.int64)
        weights = flat_draws(posterior[model.roles.weight]) if model.roles.weight in posterior else None
        of_rows = sample_weight_of(tree)
        note(dim, _by_rows(labels, central_draw(tree), posterior.sizes[dim], weights, of_rows))
    return found


def _by_rows(
    labels: np.ndarray,
    partition: np.ndarray,
    size: int,
    weights: np.ndarray | None = None,
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """Numbers of the components of every draw by the rows that they share with the clusters of a partition.

    Args:
        labels: drawn, shape (draws, rows).
        partition: cluster of each row, any names.
        size: components.
        weights: of the components in each draw, by which those without rows are numbered.
        sample_weight: of each row in the sizes of the clusters; None: one.

    Returns:
        Shape (draws, size), a permutation of 0, 1, ... in each draw.
    """
    _, first = np.unique(partition, return_index=True)
    reference = np.argsort(np.argsort(first))[np.unique(partition, return_inverse=True)[1]]
    counts = cluster_sizes(labels, size, sample_weight)
    numbers = matched_numbers(labels, reference, size, weights)
    totals = np.zeros(size)
    np.add.at(totals, numbers, counts)
    rank = np.argsort(by_size(totals / len(labels)))
    return rank[numbers]


def matched_numbers(
    labels: np.ndarray, reference: np.ndarray, size: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """`_by_rows` with the numbers that the clusters of the reference have, whatever their sizes.

    Args:
        labels: drawn, shape (draws, rows).
        reference: number of each row's cluster, below ``size``.
        size: components.
        weights: of the components in each draw, by which those without rows are numbered.
    """
    num_clusters = int(reference.max()) + 1
    counts = cluster_sizes(labels, size)
    appearance = _first_rows(labels, size)
    weights = counts if weights is None else weights
    numbers = np.empty((len(labels), size), dtype=np.int64)
    block = max(1, _BLOCK // (size * num_clusters + labels.shape[1]))
    for begin in range(0, len(labels), block):
        part = labels[begin : begin + block]
        code = (np.arange(len(part))[:, None] * size + part) * num_clusters + reference
        shared = np.bincount(code.ravel(), minlength=len(part) * size * num_clusters)
        shared = shared.reshape(len(part), size, num_clusters)
        here = slice(begin, begin + len(part))
        numbers[here] = _by_shared(shared, counts[here], appearance[here], weights[here])
    return numbers


def _by_shared(
    shared: np.ndarray, counts: np.ndarray, appearance: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The numbers in some draws by ``shared``, (draws, size, clusters); the others as (draws, size)."""
    held = counts > 0
    near = np.where(held, shared.argmax(2), -1)
    wanted = (near[:, :, None] == np.arange(shared.shape[2])).sum(1)
    for draw in np.flatnonzero((wanted > 1).any(1)):  # else each has most rows in a cluster of its own
        rows = np.flatnonzero(held[draw])
        rows = rows[np.argsort(appearance[draw, rows])]
        places, clusters = late.linear_sum_assignment(shared[draw, rows], maximize=True)
        near[draw] = -1
        near[draw, rows[places]] = clusters
    # the others: of more components than clusters, by rows; then those without rows
    second, first = np.where(held, appearance, np.arange(held.shape[1])), np.where(held, -counts, -weights)
    others = np.lexsort((second, first, ~held, near >= 0), axis=1)
    used = (near[:, :, None] == np.arange(held.shape[1])).any(1)
    found = np.empty_like(near)
    np.put_along_axis(found, others, np.argsort(used, axis=1, kind="stable"), axis=1)
    return np.where(near >= 0, near, found)


def topic_orders(rows: np.ndarray, best: int) -> np.ndarray:
    """For each draw of word probabilities the numbers that come first, second, ..., (draws, size).

    Args:
        rows: shape (draws, size, words).
        best: the draw that the search for a reference begins with.
    """
    roots = np.sqrt(rows)
    chosen = np.unique(np.linspace(0, len(roots) - 1, min(len(roots), _MOST_MATCHED)).round().astype(int))

    def matched(some: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return np.stack([late.linear_sum_assignment(-(reference @ own.T))[1] for own in some])

    reference, orders = roots[best], None
    for _ in range(_MOST_ROUNDS):
        found = matched(roots[chosen], reference)
        if orders is not None and (found == orders).all():
            break
        orders = found
        moved = np.take_along_axis(roots[chosen] ** 2, orders[:, :, None], axis=1)
        reference = np.sqrt(moved.mean(0))
    return matched(roots, reference)


def _best_draw(tree: xr.DataTree) -> int:
    if "lp" in group_or_empty(tree, "sample_stats"):
        return int(tree["sample_stats"]["lp"].transpose("chain", "draw").values.argmax())
    return -1


def _by_tokens(tree: xr.DataTree, model: Model, topics: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The numbers of topics, (draws, topics), exchanged so that the largest comes first."""
    posterior, site = tree["posterior"].to_dataset(), model.roles.document_topic
    lengths, words = _totals(tree, model)
    totals = np.zeros(topics.shape[1])
    if site in posterior and lengths is not None:
        sizes = np.stack([lengths @ shares for shares in flat_draws(posterior[site], "document", "topic")])
    elif model.roles.cluster_topic in posterior and model.roles.cluster in posterior and lengths is not None:
        labels = flat_draws(posterior[model.roles.cluster]).astype(np.int64)
        centres = flat_draws(posterior[model.roles.cluster_topic], "cluster", "topic")
        sizes = np.stack(
            [np.bincount(z, lengths, len(own)) @ own for z, own in zip(labels, centres, strict=True)]
        )
    elif words is not None:
        sizes = np.broadcast_to(_tokens(tree, model), topics.shape[:2])
    else:
        return numbers
    np.add.at(totals, numbers, sizes)
    return np.argsort(by_size(totals / len(numbers)))[numbers]


# Whoever evaluates the program


def in_program_order(group: xr.Dataset, model: Model) -> xr.Dataset:
    """A group with its components in the order in which their sticks are broken."""
    dim = cluster_dim(model)
    if dim is None or f"stick_of_{dim}" not in group.coords:
        return group
    order = np.argsort(group[f"stick_of_{dim}"].to_numpy())
    return reordered(group, dim, order, model.roles.cluster).drop_vars(f"stick_of_{dim}")


def shown_labels(labels: np.ndarray, tree: xr.DataTree, model: Model) -> np.ndarray:
    """Labels that the program gives rows, by the numbers that the components have in the tree."""
    dim = cluster_dim(model)
    group = tree["posterior"]
    if dim is None or f"stick_of_{dim}" not in group.coords:
        return labels
    return np.argsort(group[f"stick_of_{dim}"].to_numpy()).astype(labels.dtype)[labels]


def in_shown_order(values: Any, tree: xr.DataTree, model: Model) -> Any:
    """Values whose last axis is over components in the program's order, in the order of the tree."""
    dim = cluster_dim(model)
    group = tree["posterior"]
    if dim is None or f"stick_of_{dim}" not in group.coords:
        return values
    return values[..., group[f"stick_of_{dim}"].to_numpy()]
