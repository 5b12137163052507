"""Starts of VB and EM of a mixture: the sufficient statistics of drawn or given responsibilities.

``"mixed"``, the default, in VB: k-means into K clusters and random labels, in turn: with the moves of VB the
first finds clusters that lie apart, the second those that overlap. Sparse rows begin at random.

``"mixed"`` in EM, and in VB of rows with missing cells under full covariances and of components that share a
parameter: of several restarts every other one begins at random, the others with k-means into 2, 3, 5, 8, 12,
... clusters (at most K), since components that begin empty stay so and those that begin full are given up
slowly; a single start, and sparse rows, begin at random.

Random: ``"random"`` (uniform responsibilities, rows normalised), ``"dirichlet"`` (responsibilities uniform on
the simplex) and ``"kmeans"`` (k-means from k-means++ seeds). Deterministic, the same whatever the seed, so
that restarts of them are all the same: ``"pca"`` (slices along the first principal component) and
``"hierarchical"`` (the most scattered cluster halved along its own principal direction, again and again).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from inference.algorithm import starts_by_size
from inference.numerics.weighted_rows import Rows, map_rows, sum_over_rows, unweighted, weight_of
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.product import in_logs
from zoo.mixture import Mixture
from zoo.shapes import Values
from zoo.sparse import SparseCounts

KMEANS_STEPS = 10


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
    z, weight = _standardised(model, x), weight_of(x)
    return _labelled(kmeans_labels(key, z, model.num_components, weight=weight), model, x)


def kmeans_labels(
    key: Array, z: Array, num_clusters: int, num_used: Array | None = None, weight: Array | float = 1.0
) -> Array:
    """The nearest centre of each row, shape (num_observations,), after k-means from k-means++ seeds.

    Args:
        key: random key.
        z: rows without missing cells.
        num_clusters: how many centres.
        num_used: the first so many of them alone; None: all.
        weight: of the rows; one of weight zero is no seed and moves no centre.
    """
    beyond = 0.0 if num_used is None else jnp.where(jnp.arange(num_clusters) < num_used, 0.0, jnp.inf)
    weight = jnp.broadcast_to(jnp.asarray(weight, z.dtype), z.shape[:1])
    counted = weight[:, None] * jnp.append(z, jnp.ones((z.shape[0], 1), z.dtype), axis=-1)

    def seed(distance: Array, key: Array) -> tuple[Array, Array]:
        drawn = z[jax.random.categorical(key, jnp.log(distance * weight))]
        return jnp.minimum(distance, jnp.sum((z - drawn) ** 2, axis=-1)), drawn

    def nearest(centres: Array) -> Array:
        half = 0.5 * jnp.sum(centres**2, axis=-1) + beyond
        return map_rows(lambda rows: jnp.argmax(rows @ centres.T - half, axis=-1), z)

    def move(_: int, centres: Array) -> Array:
        labels = nearest(centres)
        sums, count = jnp.split(jax.ops.segment_sum(counted, labels, num_clusters), [z.shape[1]], axis=-1)
        return jnp.where(count > 0, sums / jnp.where(count > 0, count, 1.0), centres)

    _, seeds = jax.lax.scan(seed, jnp.ones(z.shape[0]), jax.random.split(key, num_clusters))
    return nearest(jax.lax.fori_loop(0, KMEANS_STEPS, move, seeds))


def _statistics(r: Array, model: Mixture, x: Array | Rows) -> Array:
    return (weight_of(x)[:, None] * r).T @ model.components.features(unweighted(x))


def _labelled(labels: Array, model: Mixture, x: Array | Rows) -> Array:
    if not isinstance(x, Rows):
        return model.components.statistics(x, labels, model.num_components)
    return _statistics(jax.nn.one_hot(labels, model.num_components), model, x)


def _standardised(model: Mixture, x: Array | Rows) -> Array:
    """Columns, or logarithms, with mean zero and deviation one, by weight; a missing cell is at the mean."""
    weight, x = weight_of(x), unweighted(x)
    if isinstance(x, SparseCounts):
        raise ValueError("this start needs dense rows; sparse ones start at random: init='random'")
    x = in_logs(x, model.components.logs)
    known = jnp.where(jnp.isnan(x), 0.0, weight[:, None])
    count = jnp.maximum(jnp.sum(known, axis=0), jnp.finfo(x.dtype).tiny)
    away = jnp.nan_to_num(x - jnp.nansum(known * x, axis=0) / count)
    spread = jnp.sqrt(jnp.sum(known * away**2, axis=0) / count)
    return away / jnp.where(spread > 0, spread, 1.0)


def pca(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of K slices of equal size along the first principal component; deterministic.

    Columns are standardised.
    """
    return _labelled(principal_labels(_standardised(model, x), model.num_components, weight_of(x)), model, x)


def principal_labels(z: Array, num_clusters: int, weight: Array | float = 1.0) -> Array:
    """Labels of slices of equal weight along the first principal direction, shape (num_observations,)."""
    weight = jnp.broadcast_to(jnp.asarray(weight, z.dtype), z.shape[:1])
    order = jnp.argsort(z @ _principal_direction(z, weight))
    upto = jnp.cumsum(weight[order])
    slices = jnp.floor((upto - weight[order]) * num_clusters / upto[-1]).astype(int)
    return jnp.zeros_like(slices).at[order].set(jnp.minimum(slices, num_clusters - 1))


def hierarchical(key: Array, model: Mixture, x: Array) -> Array:
    """Statistics of clusters halved along their principal direction, the most scattered first, K - 1 times.

    Deterministic (Boley 1998, on standardised columns).
    """
    z, weight = _standardised(model, x), weight_of(x)
    return _labelled(hierarchical_labels(z, model.num_components, weight), model, x)


def hierarchical_labels(z: Array, num_clusters: int, weight: Array | float = 1.0) -> Array:
    """Labels of clusters that are halved again and again, shape (num_observations,); z is centred."""
    weight = jnp.broadcast_to(jnp.asarray(weight, z.dtype), z.shape[:1])

    def halve(new: Array, labels: Array) -> Array:
        members = jax.nn.one_hot(labels, num_clusters, dtype=z.dtype) * weight[:, None]
        counts = jnp.sum(members, axis=0)
        counts = jnp.where(counts > 0, counts, 1.0)
        means = (members.T @ z) / counts[:, None]
        scatter = members.T @ jnp.sum(z**2, axis=-1) - counts * jnp.sum(means**2, axis=-1)
        widest = jnp.argmax(scatter)
        side = (z - means[widest]) @ _principal_direction(z - means[widest], members[:, widest]) > 0
        return jnp.where((labels == widest) & side, new, labels)

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


def statistics_given(variables: Values, model: Mixture, x: Array) -> Array:
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
        z, weight = _standardised(model, x), weight_of(x)
        return _labelled(kmeans_labels(key, z, model.num_components, used, weight), model, x)

    return jax.lax.cond(number % 2 == 0, partial(random, model=model, x=x), clusters, key)


def kmeans_or_random(number: Array | int, key: Array, model: Mixture, x: Array | Rows) -> Array:
    """Statistics of one of several starts of VB: k-means into all clusters and random labels in turn."""
    components = model.components
    if isinstance(unweighted(x), SparseCounts) or components.is_incomplete or components.couples_components:
        return mixed(number, key, model, x)
    rows = {"z": _standardised(model, x), "weight": weight_of(x)}
    clusters = partial(kmeans_labels, num_clusters=model.num_components, **rows)

    def drawn(key: Array) -> Array:
        return jax.random.randint(key, x.shape[:1], 0, model.num_components)

    labels = jax.lax.cond(jnp.asarray(number % 2 == 1), drawn, clusters, key)
    return _labelled(labels, model, x)


def restarts(model: Mixture, data: tuple, moves: tuple[str, ...] = (), **options: object) -> int:
    """How many starts a fit needs whose call does not say: `NEEDED` where they are cheap, one with births."""
    components = model.components
    entries = data[0].nbytes / 8
    if components.is_incomplete:  # squares of each row's missing cells take a solution each
        entries *= data[0].shape[1]
    widest = max(
        (len(columns) for family, columns in components.by_columns if _has_matrices(family)), default=0
    )
    entries = max(entries, widest**3)  # of many columns the factors of matrices cost more than the rows
    asks_for_births = isinstance(moves, tuple | list) and "birth" in moves  # checked later
    return 1 if asks_for_births else starts_by_size(NEEDED, entries * model.num_components)


def _has_matrices(family: ComponentPrior) -> bool:
    """Whether each component has a matrix over the family's columns."""
    return any("feature_2" in dims for dims in family.parameter_dims.values())


def given_labels(key: Array, variables: Values, num_rows: int) -> Array:
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
