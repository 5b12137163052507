r"""Topics (and clusters) numbered alike: across the draws of a fit, between runs, between models.

Two sets of topics are matched by the assignment that maximises the summed Bhattacharyya similarity
:math:`\sum_w \sqrt{p_w q_w}` of word probabilities (Hungarian algorithm). Draws of a sampler are matched to a
reference, first the draw of the highest log joint, then the mean of the draws as matched so far, until
nothing changes. Clusters of PCP are matched by the word probabilities of their centres.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from inference.convergence.invariants import draws_of, kind_of
from inference.results.files import model_of
from zoo.model import Model

__all__ = ["Matching", "align_topics", "match_topics"]

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


def align_topics(tree: xr.DataTree) -> xr.DataTree:
    """The same fit of a topic model with topics, and clusters, numbered alike in all draws.

    Draws from one q, or a point estimate, have one numbering already: they are given back as they are.

    Args:
        tree: a fit of LDA, pLSI or PCP.

    Returns:
        A new tree; root attribute ``relabelled`` says how.
    """
    posterior = draws_of(tree)
    if kind_of(tree) != "sampling":
        return tree
    model = model_of(tree)
    topics = _flat(posterior[model.topic_site], "topic", "word")
    best = _best_draw(tree)
    orders, rounds = _orders(topics, best)
    moved = _permuted(posterior, model, "topic", orders)
    if model.cluster_topic_site in posterior:
        shares = _flat(moved[model.cluster_topic_site], "cluster", "topic")
        ordered = _flat(moved[model.topic_site], "topic", "word")
        moved = _permuted(moved, model, "cluster", _orders(shares, best, ordered.mean(0))[0])
    groups = {name: child.to_dataset() for name, child in tree.children.items()} | {"posterior": moved}
    attrs = dict(tree.attrs) | {"relabelled": f"topics matched across draws in {rounds} rounds"}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs)} | groups)


def _flat(variable: xr.DataArray, *dims: str) -> np.ndarray:
    values = variable.transpose("chain", "draw", *dims).values
    return values.reshape(-1, *values.shape[2:])


def _best_draw(tree: xr.DataTree) -> int:
    if "sample_stats" in tree.children and "lp" in tree["sample_stats"]:
        return int(tree["sample_stats"]["lp"].transpose("chain", "draw").values.argmax())
    return -1


def _orders(rows: np.ndarray, best: int, words: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """For each draw the numbers that come first, second, ..., shape (num_draws, size), and the rounds."""
    reference = rows[best]
    orders = np.zeros(rows.shape[:2], dtype=int)
    rounds = 0
    for _ in range(MOST_ROUNDS):
        rounds += 1
        ends = (reference, rows) if words is None else (reference @ words, rows @ words)
        found = np.stack([match_topics(own, ends[0]).order for own in ends[1]])
        if (found == orders).all():
            break
        orders = found
        reference = np.take_along_axis(rows, orders[:, :, None], axis=1).mean(0)
    return orders, rounds


def _permuted(posterior: xr.Dataset, model: Model, dim: str, orders: np.ndarray) -> xr.Dataset:
    """Every variable with entry j of the dim from old entry ``orders[..., j]``; cluster numbers follow."""
    moved = {}
    clusters = None if model.weight_site is None else model.variable_dims[model.weight_site][-1]
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], -1)
    places = np.argsort(orders, axis=1).reshape(shape)
    for name, variable in posterior.data_vars.items():
        if dim == "cluster" and "stick" in variable.dims:
            continue  # sticks belong to the former order
        if dim in variable.dims:
            front = variable.transpose("chain", "draw", dim, ...)
            index = orders.reshape(*shape, *(1,) * (front.ndim - 3))
            taken = np.take_along_axis(front.values, index, axis=2)
            variable = front.copy(data=taken).transpose(*variable.dims)
        elif dim == clusters and name == model.cluster_site:
            rows = variable.transpose("chain", "draw", ...)
            renamed = np.take_along_axis(places, rows.values.astype(int), axis=2)
            variable = rows.copy(data=renamed.astype(rows.dtype)).transpose(*variable.dims)
        moved[name] = variable
    used = {dim for variable in moved.values() for dim in variable.dims}
    coords = {name: coord for name, coord in posterior.coords.items() if set(coord.dims) <= used}
    return xr.Dataset(moved, coords=coords, attrs=posterior.attrs)
