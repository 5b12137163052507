r"""One numbering of topics (and clusters) for all draws of a fit, or for two runs or models.

Two sets of topics are matched by the assignment that maximises the summed Bhattacharyya similarity
:math:`\sum_w \sqrt{p_w q_w}` of word probabilities (Hungarian algorithm). The numbers of a sampler's draws
are decided when the tree is built (`inference.convergence.numbering`).
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.convergence.numbering import cluster_dim, draw_labels, stored_labels
from inference.results.files import model_of
from inference.results.groups import group_or_empty, with_groups
from zoo import late


class Matching(NamedTuple):
    """Topics matched to a reference.

    Attributes:
        order: number of the topic that answers each reference topic, shape (num_matched,).
        reference: the reference topics that are answered, shape (num_matched,).
        similarity: of each pair, in [0, 1], shape (num_matched,).
    """

    order: np.ndarray
    reference: np.ndarray
    similarity: np.ndarray


def match_topics(topic_word_probs: Any, reference: Any) -> Matching:
    """The topics of one run or model matched to those of another over the same vocabulary.

    Args:
        topic_word_probs: shape (num_topics, num_words).
        reference: shape (num_reference, num_words); of different numbers the smaller is matched. Two
            DataFrames are brought to one order of their words.

    Returns:
        Which topic goes with which, and how far apart they are.

    Raises:
        ValueError: other vocabularies.
    """
    if hasattr(topic_word_probs, "columns") and hasattr(reference, "columns"):
        strange = reference.columns.symmetric_difference(topic_word_probs.columns)
        if len(strange):
            raise ValueError(
                f"topics must be over one vocabulary; {len(strange)} words are only in one of two, such as "
                f"{strange[0]!r}"
            )
        reference = reference[topic_word_probs.columns]
    topics, other = np.asarray(topic_word_probs), np.asarray(reference)
    if topics.ndim != 2 or other.ndim != 2 or topics.shape[1] != other.shape[1]:
        raise ValueError(f"topics must be over one vocabulary; got shapes {topics.shape} and {other.shape}")
    similarity = np.sqrt(other) @ np.sqrt(topics).T
    rows, columns = late.linear_sum_assignment(-similarity)
    return Matching(columns, rows, similarity[rows, columns])


def align_topics(tree: xr.DataTree) -> xr.DataTree:
    """The same fit of a topic model with one numbering of topics, and of clusters, in all draws.

    Draws from one q, or a point estimate, have one numbering already: they are returned as they are.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        A new tree; root attribute ``relabelled`` says how.
    """
    posterior = draws_of(tree)
    if kind_of(tree) != "sampling" or "relabelled" in tree.attrs:
        return tree
    model = model_of(tree)
    clusters, found = cluster_dim(model), {}
    for dim in dict.fromkeys(("topic", clusters)):
        stored = None if dim is None else stored_labels(tree, dim)
        if stored is not None:
            found[dim] = stored.to_numpy().astype(np.int64)
    if not found:
        found = {
            name.removesuffix("_label"): numbers.astype(np.int64)
            for name, (_, numbers) in draw_labels(tree).items()
        }
    stats = group_or_empty(tree, "sample_stats")
    for dim, targets in found.items():
        site = model.roles.cluster if dim == clusters else None
        sources = np.argsort(targets, axis=-1)
        posterior = permuted(posterior, (dim,), site, sources, targets, drop_sticks=dim == clusters)
        own = np.broadcast_to(np.arange(targets.shape[-1]), targets.shape)
        stats = stats.assign({f"{dim}_label": (("chain", "draw", dim), own)})
    how = "topics matched across draws by their words"
    return with_groups(tree, {"posterior": posterior, "sample_stats": stats}, relabelled=how)


def permuted(
    group: xr.Dataset,
    dims: tuple[str, ...],
    cluster_site: str | None,
    sources: np.ndarray,
    targets: np.ndarray,
    drop_sticks: bool = True,
) -> xr.Dataset:
    """Reorder components draw by draw.

    Args:
        group: draws.
        dims: entry j of these dims is taken from the old entry ``sources[..., j]``.
        cluster_site: labels of rows, which become ``targets[..., label]``; or None.
        sources: shape (chain, draw, component).
        targets: the inverse of each permutation.
        drop_sticks: whether stick fractions, which belong to the former order, are left out.
    """
    moved = {}
    for name, variable in group.data_vars.items():
        if drop_sticks and "stick" in variable.dims:
            continue
        if name == cluster_site:
            rows = variable.transpose("chain", "draw", ...)
            mapped = np.take_along_axis(targets, rows.values.astype(np.int64), axis=2).astype(rows.dtype)
            variable = rows.copy(data=mapped).transpose(*variable.dims)
        for dim in set(dims) & set(variable.dims):
            front = variable.transpose("chain", "draw", dim, ...)
            index = sources.reshape(*sources.shape, *(1,) * (front.ndim - 3))
            taken = np.take_along_axis(front.values, index, axis=2)
            variable = front.copy(data=taken).transpose(*variable.dims)
        moved[name] = variable
    return with_coords_of(group, moved)


def with_coords_of(group: xr.Dataset, variables: dict[str, xr.DataArray]) -> xr.Dataset:
    """A Dataset of the variables with the old coordinates, except those of dims that are gone."""
    used = {dim for variable in variables.values() for dim in variable.dims}
    coords = {name: coord for name, coord in group.coords.items() if set(coord.dims) <= used}
    return xr.Dataset(variables, coords=coords, attrs=group.attrs)
