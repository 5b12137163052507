r"""One numbering of topics (and clusters) for all draws of a fit, or for two runs or models.

Two sets of topics are matched by the assignment that maximises the summed Bhattacharyya similarity
:math:`\sum_w \sqrt{p_w q_w}` of word probabilities (Hungarian algorithm). Draws of a sampler are matched to a
reference, first the draw of the highest log joint, then the mean of the draws as matched so far, until
nothing changes. Clusters of PCP are matched by the word probabilities of their centres.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from inference.convergence.identifiable import draws_of, kind_of
from inference.results.files import model_of
from inference.results.groups import flat_draws, with_groups
from zoo.dependencies import naming_versions

__all__ = ["Matching", "align_topics", "match_topics", "permuted", "with_coords_of"]

MOST_ROUNDS = 20


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


@naming_versions()
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
    rows, columns = linear_sum_assignment(-similarity)
    return Matching(columns, rows, similarity[rows, columns])


@naming_versions()
def align_topics(tree: xr.DataTree) -> xr.DataTree:
    """The same fit of a topic model with one numbering of topics, and of clusters, in all draws.

    Draws from one q, or a point estimate, have one numbering already: they are returned as they are.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        A new tree; root attribute ``relabelled`` says how.
    """
    posterior = draws_of(tree)
    if kind_of(tree) != "sampling":
        return tree
    model = model_of(tree)
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], -1)
    clusters = None if model.weight_site is None else model.variable_dims[model.weight_site][-1]

    def reordered(group: xr.Dataset, dim: str, orders: np.ndarray) -> xr.Dataset:
        site = model.cluster_site if dim == clusters else None
        places = np.argsort(orders, axis=1).reshape(shape)
        return permuted(group, (dim,), site, orders.reshape(shape), places, drop_sticks=dim == "cluster")

    best = _best_draw(tree)
    orders, rounds = _orders(flat_draws(posterior[model.topic_site], "topic", "word"), best)
    moved = reordered(posterior, "topic", orders)
    if model.cluster_topic_site in posterior:
        shares = flat_draws(moved[model.cluster_topic_site], "cluster", "topic")
        words = flat_draws(moved[model.topic_site], "topic", "word").mean(0)
        moved = reordered(moved, "cluster", _orders(shares, best, words)[0])
    how = f"topics matched across draws in {rounds} rounds"
    return with_groups(tree, {"posterior": moved}, relabelled=how)


def _best_draw(tree: xr.DataTree) -> int:
    if "sample_stats" in tree.children and "lp" in tree["sample_stats"]:
        return int(tree["sample_stats"]["lp"].transpose("chain", "draw").values.argmax())
    return -1


def _orders(rows: np.ndarray, best: int, words: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """For each draw the numbers that come first, second, ..., shape (num_draws, size), and the rounds."""
    reference, orders, rounds = rows[best], np.zeros(rows.shape[:2], dtype=int), 0
    while rounds < MOST_ROUNDS:
        rounds += 1
        ends = (reference, rows) if words is None else (reference @ words, rows @ words)
        found = np.stack([match_topics(topics, ends[0]).order for topics in ends[1]])
        if (found == orders).all():
            break
        orders = found
        reference = np.take_along_axis(rows, orders[:, :, None], axis=1).mean(0)
    return orders, rounds


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

    Returns:
        The draws in the new order.
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
