r"""Variational EM for repulsive mixtures of exponential-family PCAs, latents at their best value.

The paper's algorithm with its formulas put right (`inference.methods.depcam.em_blocks`). It maximises

.. math::
    \sum_n \log \sum_k \pi_k\, p(x_n \mid y_{nk}, k)\, N(y_{nk}; 0, I)
    + \lambda \log|S| + \log p(\phi, b, \pi)

over bases, scales, offsets, weights and latents: the log density of the program with every row's label summed
out and, where each component has its latents, those of the components not taken integrated out; uniform on
the manifold of bases (the program's carriers add a constant). With ``latents="shared"`` there is one y_n and
its density stands before the sum. That, and not the expected log density which the paper monitors, is in the
trace; it never falls. Gaussian cells have their latents integrated out: a mixture of PPCAs.

A sweep visits the rows 5 times if every step is taken at once (``num_evaluations`` in the trace), O(N K D d)
each. Starts, as of `zoo.Mixture`: ``"kmeans"`` (on the cells, then ``clamped_sweeps`` sweeps with labels
held), ``"spectral"`` (groups that hang together, `inference.methods.depcam.em`), ``"pca"``,
``"hierarchical"`` (labels the same at every restart, bases not), and ``"random"``, which mostly ends in one
or two components: a component that owns rows fits their latents, and the others are judged with latents that
nobody fitted.

When to use what: a maximum over y has no Occam factor, so components with more directions win rows; new rows
are judged with the latents integrated out by Laplace's approximation. NUTS on tables that it can afford.

Normalised spectral clustering of rows by landmarks, in time linear in the number of rows.

Rows are joined to L landmarks (all rows, or as many drawn at random) by self-tuning weights
:math:`Z_{nl} = \exp\{-|x_n - x_l|^2 / (\sigma_n \sigma_l)\}`, :math:`\sigma` the distance to the seventh
nearest landmark (Zelnik-Manor and Perona 2004). With the degrees of rows and landmarks in R and C, the
leading left singular vectors of :math:`R^{-1/2} Z C^{-1/2}` are those of the normalised affinity
:math:`R^{-1/2} Z C^{-1} Z' R^{-1/2}` (Dhillon 2001; Chen and Cai 2011), found from an L x L matrix. Their
rows, brought to length one, are clustered by k-means (Ng, Jordan and Weiss 2002): groups of any shape that
hang together, where k-means asks for round ones. Cost O(N L D + N L^2 + L^3).
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome
from inference.methods.depcam.em_blocks import (
    evaluate,
    rescale,
    update_bases,
    update_latents,
    update_offsets,
    update_scales,
    update_weights,
)
from inference.methods.depcam.rows import prior_latents
from inference.methods.mixture.starts import hierarchical_labels, kmeans_labels, principal_labels
from zoo.checks import check_size
from zoo.depcam import DEPCAM, orthonormal

__all__ = [
    "DEPCAMInfo",
    "DEPCAMState",
    "METHOD",
    "STRATEGIES",
    "check",
    "conclude",
    "init",
    "spectral_labels",
    "start",
    "step",
    "sweep",
]


LANDMARKS = 500
NEIGHBOUR = 7


def spectral_labels(key: Array, z: Array, num_clusters: int) -> Array:
    """The cluster of each row, shape (num_observations,).

    Args:
        key: random key: of the landmarks, where there are more rows than those, and of k-means.
        z: rows without missing cells.
        num_clusters: how many clusters.
    """
    landmark_key, cluster_key = jax.random.split(key)
    if z.shape[0] > LANDMARKS:
        chosen = jax.random.choice(landmark_key, z.shape[0], (LANDMARKS,), replace=False)
    else:
        chosen = jnp.arange(z.shape[0])
    landmarks = z[chosen]
    squares = jnp.sum(z**2, axis=-1)[:, None] - 2.0 * z @ landmarks.T + jnp.sum(landmarks**2, axis=-1)
    distance = jnp.sqrt(jnp.maximum(squares, 0.0))
    neighbour = min(NEIGHBOUR, landmarks.shape[0] - 1)
    width = jnp.sort(distance, axis=1)[:, neighbour]  # the nearest of a landmark is itself
    width = jnp.where(width > 0, width, 1.0)
    weights = jnp.exp(-(distance**2) / (width[:, None] * width[chosen]))
    tiny = jnp.finfo(z.dtype).tiny
    rows, columns = jnp.sum(weights, axis=1), jnp.sum(weights, axis=0)
    scaled = weights / jnp.sqrt(jnp.maximum(rows, tiny))[:, None] / jnp.sqrt(jnp.maximum(columns, tiny))
    values, vectors = jnp.linalg.eigh(scaled.T @ scaled)
    leading = scaled @ vectors[:, -num_clusters:] / jnp.sqrt(jnp.maximum(values[-num_clusters:], tiny))
    length = jnp.linalg.norm(leading, axis=1, keepdims=True)
    return kmeans_labels(cluster_key, leading / jnp.where(length > 0, length, 1.0), num_clusters)


LARGEST_STEP = 8.0  # of the bases, in units of one over their curvature
LABELS = {
    "kmeans": kmeans_labels,
    "spectral": spectral_labels,
    "pca": lambda key, z, count: principal_labels(z, count),
    "hierarchical": lambda key, z, count: hierarchical_labels(z, count),
}
OF_BOUND = ("curves", "latents_loc", "latents_covariance")  # made afresh where a start has none
STRATEGIES = (*LABELS, "random")
SITES = (
    "bases",
    "scales",
    "scales_precision",
    "offsets",
    "weights",
    "stick_fractions",
    "noise_variance",
    "latents",
    "curves",
)


class DEPCAMState(NamedTuple):
    """Values of everything, and how far the bases went.

    Attributes:
        values: site name to value; with the bound of integrated latents also its ``curves``, or q of them.
        step_size: of the bases, in units of one over their curvature.
    """

    values: dict[str, Array]
    step_size: Array


class DEPCAMInfo(NamedTuple):
    """What is recorded of a sweep.

    Attributes:
        objective: at the end of the sweep, in nats.
        num_evaluations: visits to all rows.
        num_active: scales that are not zero.
        num_occupied: components with more than half an expected row.
    """

    objective: Array
    num_evaluations: Array
    num_active: Array
    num_occupied: Array


def sweep(state: DEPCAMState, model: DEPCAM, x: Array, clamp: Array) -> tuple[DEPCAMState, DEPCAMInfo]:
    """All blocks once. ``clamp`` (broadcasts to rows x components) is added to rows' log densities."""
    judge = partial(_judge, model=model, x=x, clamp=clamp)
    values, count = update_latents(state.values, model, x, clamp)
    now = judge(values)
    values, now = update_weights(values, model, now, clamp)
    count += 1
    if model.offset:
        values, now, _, tries = update_offsets(values, model, now, judge)
        count += tries
    values, now, _, tries = update_scales(values, model, now, judge)
    count += tries
    values, now, size, tries = update_bases(values, model, now, state.step_size, judge)
    count += tries
    objective = now.objective
    if "latents" in values or "latents_loc" in values:
        values, objective = rescale(values, model, now, clamp)
    step_size = jnp.clip(jnp.where(tries == 1, 1.5 * size, size), 1e-6, LARGEST_STEP)
    info = DEPCAMInfo(
        objective,
        count,
        jnp.sum(values["scales"] != 0),
        jnp.sum(jnp.sum(now.responsibilities, axis=0) > 0.5),
    )
    return DEPCAMState(values, step_size), info


def _judge(values: dict[str, Array], *, model: DEPCAM, x: Array, clamp: Array) -> Any:
    return evaluate(values, model, x, clamp)


def init(
    key: Array, model: DEPCAM, x: Array, *, strategy: str, clamped_sweeps: int, integrated: bool
) -> DEPCAMState:
    """The state after clamped sweeps from labels, or at random values."""
    if strategy == "random":
        values = {name: value for name, value in _random_values(key, model, x, integrated).items()}
        return DEPCAMState(values, jnp.array(1.0))
    means = jnp.nanmean(x, axis=0)
    centred = jnp.where(jnp.isnan(x), 0.0, x - means)
    centred /= 4.0 * jnp.sqrt(jnp.max(jnp.sum(centred**2, axis=-1)))  # k-means++ caps distances at one
    labels = LABELS[strategy](jax.random.fold_in(key, 1), centred, model.num_components)
    return _from_labels(key, labels, model, x, clamped_sweeps, integrated)


def _random_values(key: Array, model: DEPCAM, x: Array, integrated: bool) -> dict[str, Array]:
    values = model.starting_point(key, x)
    values["bases"] = values.pop("carriers")
    if "stick_fractions" in values:
        values["weights"] = jnp.exp(model.weights.log_weights(values))
    if integrated and "latents" in values:
        del values["latents"]
        if model.family.log_partition_form == "exponential":
            return values | prior_latents(model, x.shape[0])
        values["curves"] = jnp.ones((x.shape[0], model.num_components, x.shape[1]))
    return values


def _from_labels(
    key: Array, labels: Array, model: DEPCAM, x: Array, clamped_sweeps: int, integrated: bool
) -> DEPCAMState:
    values = _random_values(key, model, x, integrated)
    taken = jax.nn.one_hot(labels, model.num_components)
    if model.offset:
        seen = (~jnp.isnan(x)).astype(x.dtype)
        means = (taken.T @ jnp.nan_to_num(x) + jnp.nanmean(x)) / (taken.T @ seen + 1.0)
        values["offsets"] = model.local(values).family.natural(means)
    clamp = jnp.where(taken > 0, 0.0, -jnp.inf)

    def held(state: DEPCAMState, _: None) -> tuple[DEPCAMState, None]:
        return sweep(state, model, x, clamp)[0], None

    return jax.lax.scan(held, DEPCAMState(values, jnp.array(1.0)), None, clamped_sweeps)[0]


def start(
    key: Array,
    variables: Mapping[str, Array],
    model: DEPCAM,
    x: Array,
    *,
    clamped_sweeps: int,
    integrated: bool = False,
) -> DEPCAMState:
    """The state at given values of all sites, or after clamped sweeps from responsibilities or labels.

    Raises:
        ValueError: too few variables to start from.
    """
    values = _random_values(key, model, x, integrated)
    given = dict(variables)
    if "bases" not in given and "carriers" in given:
        given["bases"] = orthonormal(given["carriers"])
    if all(name in given for name in values if name not in OF_BOUND):
        values = {name: jnp.asarray(given.get(name, values[name]), float) for name in values}
        return DEPCAMState(values, jnp.array(1.0))
    if "responsibilities" in given:
        labels = jnp.argmax(given["responsibilities"], axis=-1)
    elif "assignments" in given:
        labels = given["assignments"].astype(int)
    else:
        needed = ", ".join(name for name in values if name not in OF_BOUND)
        raise ValueError(f"init must hold responsibilities, assignments, or all of {needed}")
    return _from_labels(key, labels, model, x, clamped_sweeps, integrated)


def step(
    key: Array, state: DEPCAMState, model: DEPCAM, x: Array, **options: Any
) -> tuple[DEPCAMState, DEPCAMInfo]:
    """One sweep; deterministic, the key is ignored."""
    return sweep(state, model, x, jnp.zeros((1, 1)))


@cache
def build(strategy: str, clamped_sweeps: int) -> Algorithm:
    """The algorithm with a start strategy."""
    begin = partial(init, strategy=strategy, clamped_sweeps=clamped_sweeps, integrated=False)
    return Algorithm(begin, step)


def check(model: DEPCAM, *, clamped_sweeps: Any) -> None:
    """Raise TypeError or ValueError if an option or a field does not suit a point estimate."""
    check_size("clamped_sweeps", clamped_sweeps, 0)
    least = 1 if model.weights.has_sticks else model.num_components
    if model.num_components > 1 and model.concentration < least:
        raise ValueError(
            f"the most probable weights lie on the border of the simplex with concentration below {least}; "
            f"got {model.concentration}"
        )
    if model.scale_prior == "ard" and model.ard_concentration <= 0.5:
        raise ValueError(
            "the most probable precisions are zero with ard_concentration of at most 0.5; "
            f"got {model.ard_concentration}"
        )


def conclude(
    key: Array,
    state: DEPCAMState,
    model: DEPCAM,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """The estimate as one draw of one chain, beside its responsibilities."""
    (x,) = data
    values = {name: state.values[name] for name in SITES if name in state.values and name != "curves"}
    r = _evaluate(state.values, model, x).responsibilities
    posterior = {name: value for name, value in values.items() if name not in ("bases", "weights")}
    posterior |= {"carriers": values["bases"]} | model.derived({"assignments": jnp.argmax(r, axis=-1)})
    if "stick_fractions" not in values:
        posterior["weights"] = values["weights"]
    if not keep_rows:
        posterior.pop("assignments")
    stored = values | {"responsibilities": r, "num_occupied": jnp.sum(jnp.sum(r, axis=0) > 0.5)}
    lead = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], posterior)
    return Outcome(posterior=lead, variational=stored, is_point=True)


@jax.jit
def _evaluate(values: dict[str, Array], model: DEPCAM, x: Array) -> Any:
    return evaluate(values, model, x, jnp.zeros((1, 1)))


def log_density(stored: Mapping[str, Array], model: DEPCAM, x: Array) -> Array:
    """Log density of new rows at the estimate, their latents integrated out, in nats."""
    return model.log_likelihood({name: value for name, value in stored.items() if name != "latents"}, x)


METHOD = Ascent(
    options={"clamped_sweeps": 50},
    strategies=STRATEGIES,
    build=build,
    start=start,
    conclude=conclude,
    log_density=log_density,
    check=check,
)
