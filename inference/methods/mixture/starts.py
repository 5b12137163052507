"""Starts of VB and EM of a mixture: the sufficient statistics of drawn or given responsibilities.

``"mixed"``, the default, in VB: k-means into K clusters, which are then united in pairs (`united`), and
random responsibilities, in turn. The first finds clusters that lie apart in few steps, the second, with the
moves of VB, those that overlap. Sparse rows begin at random.

``"mixed"`` in EM, and in VB of rows with missing cells under full covariances and of components that share a
parameter: of several restarts every other one begins at random, the others with k-means into 2, 3, 5, 8, 12,
... clusters (at most K), since components that begin empty stay so and those that begin full are given up
slowly; a single start, and sparse rows, begin at random.

Random: ``"random"`` (uniform responsibilities, rows normalised), ``"dirichlet"`` (responsibilities uniform on
the simplex) and ``"kmeans"`` (k-means from k-means++ seeds). Deterministic, the same whatever the seed, so
that restarts of them are all the same: ``"pca"`` (slices along the first principal component) and
``"hierarchical"`` (the most scattered cluster halved along its own principal direction, again and again).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from inference.algorithm import starts_by_size
from inference.numerics.weighted_rows import Rows, map_rows, sum_over_rows, unweighted, weight_of
from zoo.mixture import Mixture
from zoo.sparse import SparseCounts

__all__ = [
    "STARTS",
    "STRATEGIES",
    "added_up",
    "given_labels",
    "hierarchical_labels",
    "kmeans_labels",
    "mixed",
    "principal_labels",
    "restarts",
    "start_named",
    "statistics_given",
    "union_gains",
    "united",
    "united_or_random",
]

KMEANS_STEPS = 10
WORTH_UNITING = 5.0  # nats: labels without doubt make a union look better than the bound of soft labels does


def random(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of uniform responsibilities, rows normalised (a symmetric start is a fixed point)."""

    def draw(key: Array, shape: tuple[int, int]) -> Array:
        return jax.random.uniform(key, shape, minval=1e-6)

    return _from_drawn(draw, key, model, x)


def dirichlet(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of responsibilities uniform on the simplex: Dirichlet(1, ..., 1)."""
    return _from_drawn(jax.random.exponential, key, model, x)


def _from_drawn(draw: Callable, key: Array, model: Mixture, x: Array) -> Array:
    rows, num_rows = unweighted(x), x.shape[0]
    if isinstance(rows, SparseCounts):
        r = draw(key, (num_rows, model.num_components))
        return _statistics(r / jnp.sum(r, axis=-1, keepdims=True), model, x)
    numbered = jnp.concatenate([rows, jnp.arange(num_rows, dtype=rows.dtype)[:, None]], axis=-1)

    def block(rows: Array, weight: Array) -> Array:  # drawn block by block: no N x K array is held
        block_key = key if rows.shape[0] == num_rows else jax.random.fold_in(key, rows[0, -1].astype(int))
        r = draw(block_key, (rows.shape[0], model.num_components))
        r = weight[:, None] * r / jnp.sum(r, axis=-1, keepdims=True)
        return r.T @ model.components.features(rows[:, :-1])

    return sum_over_rows(block, Rows(numbered, weight_of(x)))


def kmeans(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of k-means labels on standardised columns: fast, but keeps too many components."""
    return _labelled(kmeans_labels(key, _standardised(x), model.num_components), model, x)


def kmeans_labels(key: Array, z: Array, num_clusters: int, num_used: Array | None = None) -> Array:
    """The nearest centre of each row, shape (num_observations,), after k-means from k-means++ seeds.

    Args:
        key: random key.
        z: rows without missing cells.
        num_clusters: how many centres.
        num_used: the first so many of them alone; None: all.
    """
    beyond = 0.0 if num_used is None else jnp.where(jnp.arange(num_clusters) < num_used, 0.0, jnp.inf)

    counted = jnp.append(z, jnp.ones((z.shape[0], 1), z.dtype), axis=-1)

    def seed(distance: Array, key: Array) -> tuple[Array, Array]:
        index = jax.random.categorical(key, jnp.log(distance))
        return jnp.minimum(distance, jnp.sum((z - z[index]) ** 2, axis=-1)), z[index]

    def nearest(centres: Array) -> Array:
        half = 0.5 * jnp.sum(centres**2, axis=-1) + beyond
        return map_rows(lambda rows: jnp.argmax(rows @ centres.T - half, axis=-1), z)

    def move(_: int, centres: Array) -> Array:
        labels = nearest(centres)
        sums, count = jnp.split(jax.ops.segment_sum(counted, labels, num_clusters), [z.shape[1]], axis=-1)
        return jnp.where(count > 0, sums / jnp.maximum(count, 1), centres)

    _, seeds = jax.lax.scan(seed, jnp.ones(z.shape[0]), jax.random.split(key, num_clusters))
    return nearest(jax.lax.fori_loop(0, KMEANS_STEPS, move, seeds))


def _statistics(r: Array, model: Mixture, x: Array | Rows) -> Array:
    return (weight_of(x)[:, None] * r).T @ model.components.features(unweighted(x))


def _labelled(labels: Array, model: Mixture, x: Array | Rows) -> Array:
    if not isinstance(x, Rows):
        return model.components.statistics(x, labels, model.num_components)
    return _statistics(jax.nn.one_hot(labels, model.num_components), model, x)


def _standardised(x: Array | Rows) -> Array:
    """Columns with mean zero and deviation one; a missing cell is at the mean."""
    x = unweighted(x)
    if isinstance(x, SparseCounts):
        raise ValueError("this start needs dense rows; sparse ones start at random: init='random'")
    spread = jnp.nanstd(x, axis=0)
    return jnp.nan_to_num((x - jnp.nanmean(x, axis=0)) / jnp.where(spread > 0, spread, 1.0))


def pca(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of K slices of equal size along the first principal component; deterministic.

    Columns are standardised.
    """
    return _labelled(principal_labels(_standardised(x), model.num_components), model, x)


def principal_labels(z: Array, num_clusters: int) -> Array:
    """Labels of slices of equal size along the first principal direction, shape (num_observations,)."""
    ranks = jnp.argsort(jnp.argsort(z @ _principal_direction(z, jnp.ones(z.shape[0], z.dtype))))
    return ranks * num_clusters // z.shape[0]


def hierarchical(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of clusters halved along their principal direction, the most scattered first, K - 1 times.

    Deterministic (Boley 1998, on standardised columns).
    """
    return _labelled(hierarchical_labels(_standardised(x), model.num_components), model, x)


def hierarchical_labels(z: Array, num_clusters: int) -> Array:
    """Labels of clusters that are halved again and again, shape (num_observations,); z is centred."""

    def halve(new: Array, labels: Array) -> Array:
        members = jax.nn.one_hot(labels, num_clusters, dtype=z.dtype)
        counts = jnp.maximum(jnp.sum(members, axis=0), 1.0)
        means = (members.T @ z) / counts[:, None]
        scatter = members.T @ jnp.sum(z**2, axis=-1) - counts * jnp.sum(means**2, axis=-1)
        widest = jnp.argmax(scatter)
        weight = members[:, widest]
        side = (z - means[widest]) @ _principal_direction(z - means[widest], weight) > 0
        return jnp.where((weight > 0) & side, new, labels)

    return jax.lax.fori_loop(1, num_clusters, halve, jnp.zeros(z.shape[0], int))


def _principal_direction(z: Array, weight: Array) -> Array:
    """Leading eigenvector of the weighted scatter of centred rows; its largest entry is positive."""
    if z.shape[0] >= z.shape[1]:
        leading = jnp.linalg.eigh((weight[:, None] * z).T @ z)[1][:, -1]
    else:  # the scatter of wide rows has the eigenvectors of their smaller Gram matrix, brought back
        half = jnp.sqrt(weight)[:, None] * z
        leading = jnp.linalg.eigh(half @ half.T)[1][:, -1] @ half
        leading /= jnp.maximum(jnp.linalg.norm(leading), jnp.finfo(z.dtype).tiny)
    return leading * jnp.sign(leading[jnp.argmax(jnp.abs(leading))])


def statistics_given(variables: Mapping[str, Array], model: Mixture, x: Array) -> Array:
    """The statistics of given ``responsibilities`` (or ``assignments``).

    Raises:
        ValueError: neither is given, or the responsibilities do not go with rows and components.
    """
    if "responsibilities" in variables:
        r = jnp.asarray(variables["responsibilities"], jnp.result_type(float))
    elif "assignments" in variables:
        r = jax.nn.one_hot(variables["assignments"], model.num_components)
    else:
        raise ValueError(
            f"init must hold 'responsibilities' or 'assignments'; got {', '.join(variables) or 'nothing'}"
        )
    if r.shape != (x.shape[0], model.num_components):
        raise ValueError(
            f"init: responsibilities must have shape ({x.shape[0]}, {model.num_components}); got {r.shape}"
        )
    return _statistics(r, model, x)


STARTS = {function.__name__: function for function in (random, kmeans, dirichlet, pca, hierarchical)}
STRATEGIES = ("mixed", *STARTS)
NEEDED = 10  # starts: from single ones Old Faithful ends with 3 to 7 components, some nats apart


def start_named(strategy: str) -> Callable:
    """``start(key, model, x)`` of a strategy, for a single start."""
    return STARTS["random" if strategy == "mixed" else strategy]


def mixed(number: Array, key: Array, model: Mixture, x: Array | Rows) -> Array:
    """Statistics of one of several starts: random ones and k-means into ever more clusters in turn."""
    if isinstance(unweighted(x), SparseCounts):
        return random(key, model, x)
    turn = number // 2
    used = jnp.minimum(2 + turn * (turn + 1) // 2, model.num_components)

    def clusters(key: Array) -> Array:
        return _labelled(kmeans_labels(key, _standardised(x), model.num_components, used), model, x)

    return jax.lax.cond(number % 2 == 0, partial(random, model=model, x=x), clusters, key)


def united(statistics: Array, model: Mixture, least_gain: Array | float = WORTH_UNITING) -> Array:
    """Statistics of clusters that are united in pairs, the best pair first, as long as it is worth it.

    Labels without doubt have no entropy, so that the gain of a union follows from sums alone (`union_gains`).
    No row is looked at.

    Args:
        statistics: of such labels, shape (num_components, num_statistics).
        model: whose components share no parameter.
        least_gain: in nats, that a union is worth.
    """
    number = model.num_components
    alpha = model.concentration.mean if model.has_random_concentration else model.concentration

    def body(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        statistics, values, row, turn = carry
        with_others = _values(statistics[row] + statistics, alpha, model)
        values = values.at[row].set(with_others).at[:, row].set(with_others)
        gains = _gains_of(values, statistics[:, 0] > 0)
        first, second = jnp.unravel_index(jnp.argmax(gains), gains.shape)
        after = added_up(statistics, first, second)
        fills = turn < number  # the table, row by row, in the first turns
        pays = gains[first, second] > least_gain
        statistics = jnp.where(pays & ~fills, after, statistics)
        return statistics, values, jnp.where(fills, turn + 1, first), jnp.where(fills | pays, turn + 1, -1)

    values = jnp.zeros((number + 1, number + 1), statistics.dtype)
    first = jnp.zeros((), int)
    carry = _with_an_empty_one(statistics), values, first, first
    return jax.lax.while_loop(lambda carry: carry[3] >= 0, body, carry)[0][:-1]


def union_gains(statistics: Array, alpha: Array, model: Mixture) -> Array:
    """The gain of the evidence by each union of two components, in nats.

    That is the evidence of the rows, and of the labels under symmetric Dirichlet weights (those under sticks
    depend on the order of all). Of soft labels it is what the bound gains but for their entropy.

    Args:
        statistics: shape (num_components, num_statistics).
        alpha: concentration of the weights.
        model: the model.

    Returns:
        Shape (num_components, num_components), minus infinity where no two occupied components are.
    """
    occupied = statistics[:, 0] > 0
    if not model.components.couples_components:
        padded = _with_an_empty_one(statistics)
        values = jax.lax.map(lambda one: _values(one + padded, alpha, model), padded)
        return _gains_of(values, jnp.append(occupied, False))[:-1, :-1]

    def after(pair: tuple[Array, Array]) -> Array:
        first, second = pair
        return jnp.sum(
            _values(statistics.at[first].add(statistics[second]).at[second].set(0.0), alpha, model)
        )

    here = _values(statistics, alpha, model)
    places = jnp.indices((model.num_components,) * 2)
    gains = jax.lax.map(after, tuple(places.reshape(2, -1))).reshape(places.shape[1:]) - here
    return jnp.where(jnp.triu(occupied & occupied[:, None], 1), gains, -jnp.inf)


def _values(statistics: Array, alpha: Array, model: Mixture) -> Array:
    """Log evidence of the rows and the labels of components; in one sum where they share a parameter."""
    of_labels = gammaln(alpha / model.num_components + statistics[:, 0])
    if model.components.couples_components:
        of_labels = jnp.sum(of_labels)
    return model.components.log_evidence(statistics) + of_labels


def added_up(statistics: Array, first: Array, second: Array) -> Array:
    """Statistics with those of a second component added to those of a first, which empties the second."""
    return statistics.at[first].add(statistics[second]).at[second].set(0.0)


def _with_an_empty_one(statistics: Array) -> Array:
    return jnp.pad(statistics, ((0, 1), (0, 0)))


def _gains_of(values: Array, occupied: Array) -> Array:
    """Gains of unions from the values of all pairs, the last component being empty."""
    own = values[-1]
    gains = values + own[-1] - own - own[:, None]
    return jnp.where(jnp.triu(occupied & occupied[:, None], 1), gains, -jnp.inf)


def united_or_random(number: Array | int, key: Array, model: Mixture, x: Array | Rows) -> Array:
    """Statistics of one of several starts of VB: united clusters of k-means and random labels in turn."""
    components = model.components
    if isinstance(unweighted(x), SparseCounts) or components.is_incomplete or components.couples_components:
        return mixed(number, key, model, x)
    is_random = jnp.asarray(number % 2 == 1)
    clusters = partial(kmeans_labels, z=_standardised(x), num_clusters=model.num_components)

    def drawn(key: Array) -> Array:
        return jax.random.randint(key, x.shape[:1], 0, model.num_components)

    labels = jax.lax.cond(is_random, drawn, clusters, key)
    return united(_labelled(labels, model, x), model, jnp.where(is_random, jnp.inf, WORTH_UNITING))


def restarts(model: Mixture, data: tuple, moves: tuple[str, ...] = (), **options: Any) -> int:
    """How many starts a fit needs whose call does not say: `NEEDED` where they are cheap, one with births."""
    entries = data[0].nbytes / 8 * model.num_components
    if model.components.is_incomplete:  # squares of each row's missing cells take a solution each
        entries *= data[0].shape[1]
    asks_for_births = isinstance(moves, tuple | list) and "birth" in moves  # checked later
    return 1 if asks_for_births else starts_by_size(NEEDED, entries)


def given_labels(key: Array, variables: Mapping[str, Array], num_rows: int) -> Array:
    """Given ``assignments``, or labels drawn from given ``responsibilities``, shape (num_rows,).

    Raises:
        ValueError: neither is given, or there are not as many as rows.
    """
    if "assignments" in variables:
        labels = jnp.asarray(variables["assignments"]).astype(int)
    elif "responsibilities" in variables:
        labels = jax.random.categorical(key, jnp.log(jnp.asarray(variables["responsibilities"])))
    else:
        raise ValueError(
            f"init must hold 'assignments' or 'responsibilities' for this sampler; got "
            f"{', '.join(variables) or 'nothing'}"
        )
    if labels.shape != (num_rows,):
        raise ValueError(f"init: assignments must have shape ({num_rows},); got {labels.shape}")
    return labels
