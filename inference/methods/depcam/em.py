r"""Variational EM for repulsive mixtures of exponential-family PCAs, latents at their best value.

The paper's algorithm with its formulas put right (`inference.methods.depcam.em`). It maximises

.. math::
    \sum_n \log \sum_k \pi_k\, p(x_n \mid y_{nk}, k)\, N(y_{nk}; 0, I)
    + \lambda \log|S| + \log p(\phi, b, \pi)

over bases, scales, offsets, weights and latents: the log density of the program with every row's label summed
out and, where each component has its latents, those of the components not taken integrated out; uniform on
the manifold of bases (the program's carriers add a constant). With ``latents="shared"`` there is one y_n and
its density stands before the sum. That, and not the expected log density which the paper monitors, is in the
trace; it never falls. Gaussian cells have their latents integrated out: a mixture of PPCAs.

A sweep visits the rows 5 times if every step is taken at once (``num_evaluations`` in the trace), O(N K D d)
each. Starts, as of `zoo.Mixture`: ``"mixed"`` (k-means, but ``"hierarchical"`` for the second of several,
where rows or columns are at most 2000), ``"kmeans"`` (on the cells, then ``clamped_sweeps`` sweeps with
labels held), ``"pca"``, ``"hierarchical"`` and ``"random"``, which mostly ends in one or two components: a
component that owns rows fits their latents, and the others are judged with latents that nobody fitted.
Restarts differ by k-means's labels, and by the signs of bases; with labels by ``"pca"`` or
``"hierarchical"``, or a single component, Gaussian cells start every time from the same place, and one start
is enough.

When to use what: a maximum over y has no Occam factor, so components with more directions win rows; new rows
are judged with the latents integrated out by Laplace's approximation. NUTS on tables that it can afford.

**Directions**: labels start each component along its leading directions, those of the closed-form M-step of
Gaussian cells. A column :math:`\phi u` beside orthogonal ones raises the log likelihood, its latent
integrated out, by :math:`\tfrac12\phi^2\, u'Mu + O(\phi^4)`, with E and a the gradient and the negative
second derivative of a row's log density in theta and

.. math:: M = \sum_n r_n \{E_n E_n' - \mathrm{diag}(a_n)\},

without the second term where the latent is at its best value. A scale at zero has gradient zero and gives
none to its basis: no step moves it, be it a maximum or a saddle, and a random direction with less variance
than the noise gets there. So every few sweeps a dead column of each component is turned to the leading
eigenvector of M among the directions that are free, and raised to the scale that gains most,

.. math::
    \max_\phi \tfrac12 \sum_n r_n \Big\{ \frac{\phi^2 (u'E_n)^2}{1 + \phi^2 h_n} - \log(1 + \phi^2 h_n)\Big\}
    + \log p(\phi) - \log p(0), \qquad h_n = u'(a_n - a_n W V W' a_n) u,

if any gains. Under a sparse prior zero is a maximum of its own, and stays where none does.

**Block updates**: none lowers the objective. By EM's inequality its gradients are those of the log densities
weighted by responsibilities. Each block takes a step whose size follows a curvature; it is taken if the
objective does not fall, else halved:

* scales: proximal gradient, :math:`\phi \leftarrow \mathrm{soft}(\phi + g/L,\ s/L)` with
  :math:`L_j = \sum_n r a y_{nj}^2`: exact zeros (in place of the paper's choice among three signs);
* bases: along the Stiefel gradient :math:`G - U\,\mathrm{sym}(U'G)`, drawn back by QR. The paper's Grassmann
  gradient never turns a basis inside its span, though the likelihood and its kernel change with that, and its
  (22) goes downhill as printed;
* latents at a value: with the bound 1/4 on the curvature of binary cells (Boehning) a unit step never falls;
  else Newton's step, halved for each row on its own until it does not;
* latents integrated: the curves xi of binary cells, q of Poisson cells (`inference.methods.depcam.rows`); the
  noise variance of Gaussian cells;
* rescaling :math:`\phi_j \to c\phi_j,\ y_j \to y_j/c`, which leaves the likelihood as it is: free, and the
  optimal c is :math:`(B/A)^{1/3}` with :math:`A = s|\phi_j|,\ B = \sum_n r y_{nj}^2` (for normal scales of
  precision zeta :math:`(B/A)^{1/4}`, :math:`A = \zeta_j\phi_j^2`).
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_draw
from inference.methods.depcam import EM
from inference.methods.depcam.rows import (
    LocalDensities,
    Sums,
    best_scaling,
    inverse_of,
    log_standard_normal,
    natural_step,
    poisson_rows,
    prior_latents,
    quadratic_rows,
    rows_given_latents,
    scaled_bound,
    sums_of,
    tight_curves,
)
from inference.methods.mixture.starts import hierarchical_labels, kmeans_labels, principal_labels
from inference.numerics.compiled import compiled
from zoo.answers import answer_of, start_of
from zoo.depcam import DEPCAM
from zoo.dirichlet_process import log_stick_weights, with_stick_decays
from zoo.dpp import log_determinant
from zoo.exponential_family.local_pca import SparseScales, components_of, orthonormal
from zoo.shapes import Values

REVIVAL_PERIOD = 4  # sweeps; below the small gains in a row that end a run, so that none ends untried
DEAD = 1e-2  # of a column: its share in the variance of natural parameters, over that of the noise
SCALE_GRID = 1e-2, 1e2, 41  # of raised scales, in units of one over the root of the curvature
LEAST_SCALE = 0.1  # of a start, in standard deviations of the noise
LEAST_REST = 1e-6  # of a start: share of the squares that is left to the noise
WORD = 32  # bits of a number of a key
LARGEST_STEP = 8.0  # of the bases, in units of one over their curvature
LABELS = {
    "kmeans": kmeans_labels,
    "pca": lambda key, z, count: principal_labels(z, count),
    "hierarchical": lambda key, z, count: hierarchical_labels(z, count),
}
MOST_HALVED = 2000  # rows or columns, whichever are fewer, of a start among mixed ones: an eigenproblem
OF_BOUND = ("curves", "latents_loc", "latents_covariance")  # made afresh where a start has none
STRATEGIES = ("mixed", *LABELS, "random")
PARAMETERS = ("scales", "scales_precision", "offsets", "weights", "stick_fractions", "noise_variance")


class DEPCAMState(NamedTuple):
    """Values of all parameters and latents, and the step size of the bases.

    Attributes:
        values: site name to value; with the bound of integrated latents also its ``curves``, or q of them.
        step_size: of the bases, in units of one over their curvature.
        num_sweeps: done so far, clamped ones among them.
        labels: of the rows, shape (num_observations,), which the first sweeps hold.
        num_clamped: how many sweeps hold them.
    """

    values: dict[str, Array]
    step_size: Array
    num_sweeps: Array
    labels: Array
    num_clamped: Array


class DEPCAMInfo(NamedTuple):
    """Values recorded at every sweep.

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


def program_values(values: Values) -> dict[str, Array]:
    """Values of the program's parameters: carriers for bases, and decays of sticks, if any, for weights."""
    derived = ("weights", "stick_fractions") if "stick_fractions" in values else ()
    held = {name: values[name] for name in PARAMETERS if name in values and name not in derived}
    if derived:
        held["stick_decays"] = with_stick_decays(values)["stick_decays"]
    return {"carriers": values["bases"]} | held


def step(
    key: Array, state: DEPCAMState, model: DEPCAM, x: Array, **options: object
) -> tuple[DEPCAMState, DEPCAMInfo]:
    """Update every block once, the first sweeps with labels held; the key is ignored."""
    others = state.labels[:, None] != jnp.arange(model.num_components)
    clamp = jnp.where((state.num_sweeps < state.num_clamped) & others, -jnp.inf, 0.0)

    values, count = update_latents(state.values, model, x, clamp)
    values, now, step_size, visits = update_blocks(state.num_sweeps, values, model, x, clamp, state.step_size)
    count += visits
    objective = now.objective
    if "latents" in values or "latents_loc" in values:
        values, objective = rescale(values, model, now, clamp)
    num_sweeps = state.num_sweeps + 1
    # where labels are held the sweeps converge, and rounding decides which of the last steps are halved
    step_size = jnp.where(num_sweeps == state.num_clamped, 1.0, step_size)
    active, occupied = values["scales"] != 0, jnp.sum(now.responsibilities, axis=0) > 0.5
    info = DEPCAMInfo(objective, count, jnp.sum(active), jnp.sum(occupied))
    return state._replace(values=values, step_size=step_size, num_sweeps=num_sweeps), info


def settling_steps(state: DEPCAMState) -> np.ndarray:
    """How many sweeps still hold the labels."""
    return np.asarray(state.num_clamped) - np.asarray(state.num_sweeps)


def mixed_labels(number: Array, key: Array, z: Array, num_clusters: int) -> Array:
    """Labels of one of several starts, shape (num_observations,): k-means, the second hierarchical.

    Each run of k-means ends in a local optimum, on wide binary rows mostly one of a few common columns; the
    leading direction is the optimum of its relaxation (Ding and He 2004).
    """
    if min(z.shape) > MOST_HALVED:
        return kmeans_labels(key, z, num_clusters)
    return jax.lax.cond(
        number == 1,
        lambda key: hierarchical_labels(z, num_clusters),
        lambda key: kmeans_labels(key, z, num_clusters),
        key,
    )


def numbered(strategy: str, begin: Callable) -> Callable | None:
    """``init`` of one of several restarts, of a strategy whose restarts do not all start alike."""
    if strategy != "mixed":
        return None
    return partial(_of_number, begin)


def _of_number(begin: Callable, number: Array, key: Array, model: DEPCAM, x: Array) -> DEPCAMState:
    return begin(key, model, x, number=number)


def init(
    key: Array,
    model: DEPCAM,
    x: Array,
    *,
    strategy: str,
    clamped_sweeps: int,
    integrated: bool,
    number: Array | None = None,
) -> DEPCAMState:
    """The state at labels that the first sweeps hold, or at random values; of several starts, that number."""
    if strategy == "random":
        return _free_state(_random_values(key, model, x, integrated), x)
    means = jnp.nanmean(x, axis=0)
    centred = jnp.where(jnp.isnan(x), 0.0, x - means)
    centred /= 4.0 * jnp.sqrt(jnp.max(jnp.sum(centred**2, axis=-1)))  # k-means++ caps distances at one
    if number is None:
        of_strategy = LABELS["kmeans" if strategy == "mixed" else strategy]
    else:
        of_strategy = partial(mixed_labels, number)
    keys = jax.random.split(key, 2 + _num_sign_keys(model))
    labels = of_strategy(keys[0], centred, model.num_components)
    return _from_labels(keys[1:], labels, model, x, clamped_sweeps, integrated)


def _free_state(values: dict[str, Array], x: Array) -> DEPCAMState:
    return _held_state(values, jnp.zeros(x.shape[0], int), 0)


def _held_state(values: dict[str, Array], labels: Array, clamped_sweeps: int) -> DEPCAMState:
    return DEPCAMState(values, jnp.array(1.0), jnp.array(0), labels.astype(int), jnp.array(clamped_sweeps))


def _random_values(key: Array, model: DEPCAM, x: Array, integrated: bool) -> dict[str, Array]:
    values = start_of(model, key, x)
    values["bases"] = values.pop("carriers")
    if "stick_decays" in values:  # the estimate is the mode of the density of the fractions
        values["weights"] = jnp.exp(model.weights.log_weights(values))
        values["stick_fractions"] = -jnp.expm1(-values.pop("stick_decays"))
    if integrated and "latents" in values:
        del values["latents"]
        if model.family.log_partition_form == "exponential":
            return values | prior_latents(model, x.shape[0])
        values["curves"] = jnp.ones((x.shape[0], model.num_components, x.shape[1]))
    return values


def _from_labels(
    keys: Array, labels: Array, model: DEPCAM, x: Array, clamped_sweeps: int, integrated: bool
) -> DEPCAMState:
    values = _random_values(keys[0], model, x, integrated)
    taken = jax.nn.one_hot(labels, model.num_components)
    if model.offset:
        seen = (~jnp.isnan(x)).astype(x.dtype)
        of_columns = model.family.mean(model.family.natural_of_columns(x))  # columns may have different units
        means = (taken.T @ jnp.nan_to_num(x) + of_columns) / (taken.T @ seen + 1.0)
        values["offsets"] = model.family.natural(means)
    values |= leading_values(keys[1:], taken, values, model, x)
    return _held_state(values, labels, clamped_sweeps)


def start(
    key: Array, variables: Values, model: DEPCAM, x: Array, *, clamped_sweeps: int, integrated: bool = False
) -> DEPCAMState:
    """The state at given values of all sites, or at responsibilities or labels that the first sweeps hold.

    Raises:
        ValueError: too few variables to start from.
    """
    values = _random_values(key, model, x, integrated)
    given = dict(variables)
    if "bases" not in given and "carriers" in given:
        given["bases"] = orthonormal(given["carriers"])
    if all(name in given for name in values if name not in OF_BOUND):
        values = {name: jnp.asarray(given.get(name, values[name]), float) for name in values}
        return _free_state(values, x)
    if not {"responsibilities", "assignments"} & given.keys():
        needed = ", ".join(name for name in values if name not in OF_BOUND)
        raise ValueError(f"init must hold responsibilities, assignments, or all of {needed}")
    r = given.get("responsibilities")
    labels = given["assignments"].astype(int) if r is None else jnp.argmax(r, axis=-1)
    keys = jax.random.split(key, 1 + _num_sign_keys(model))
    return _from_labels(keys, labels, model, x, clamped_sweeps, integrated)


@cache
def build(strategy: str, clamped_sweeps: int) -> Algorithm:
    """The algorithm with a start strategy."""
    begin = partial(init, strategy=strategy, clamped_sweeps=clamped_sweeps, integrated=False)
    return Algorithm(begin, step, settling_steps=settling_steps, numbered_init=numbered(strategy, begin))


def check(model: DEPCAM, settings: EM) -> None:
    """Raise ValueError if a field does not suit a point estimate."""
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
    **options: object,
) -> Outcome:
    """The estimate as one draw of one chain, beside its responsibilities."""
    (x,) = data
    sites = ("bases", *PARAMETERS, "latents")
    values = {name: state.values[name] for name in sites if name in state.values}
    r, labels = _labels(state.values, model, x)
    posterior = program_values(values) | labels
    if "latents" in values:
        posterior["latents"] = values["latents"]
    if not keep_rows:
        posterior.pop("assignments")
    stored = values | {"responsibilities": r, "num_occupied": np.sum(np.asarray(r).sum(axis=0) > 0.5)}
    return Outcome(
        posterior=as_one_draw(posterior),
        variational=stored,
        is_point=True,
        densities={"objective": tuple(program_values(values))},
    )


@partial(compiled, once=True)
def _labels(values: dict[str, Array], model: DEPCAM, x: Array) -> tuple[Array, dict[str, Array]]:
    """Responsibilities, latents of rows integrated out as of new ones, and labels with what follows."""
    own = {
        name: value for name, value in program_values(values).items() if name not in ("latents", *OF_BOUND)
    }
    r = jax.nn.softmax(answer_of(model, "conditionals", own, x)["assignments"].logits, axis=-1)
    return r, answer_of(model, "derived", {"assignments": jnp.argmax(r, axis=-1)})


def log_density(stored: Values, model: DEPCAM, x: Array) -> Array:
    """Log density of new rows at the estimate, their latents integrated out, in nats."""
    return model.log_likelihood({name: value for name, value in stored.items() if name != "latents"}, x)


METHOD = Ascent(
    settings=EM,
    strategies=STRATEGIES,
    build=build,
    start=start,
    conclude=conclude,
    log_density=log_density,
    check=check,
)


HALVINGS = 25
ROUNDING = 50  # units of rounding of the objective that are no fall


class Evaluation(NamedTuple):
    """The objective at given values, and the quantities that the block updates need.

    Attributes:
        objective: in nats.
        log_rows: log densities of rows under components, shape (num_observations, num_components).
        responsibilities: likewise.
        sums: gradients and curvatures of the log likelihood.
    """

    objective: Array
    log_rows: Array
    responsibilities: Array
    sums: Sums


def log_prior(values: Values, model: DEPCAM) -> Array:
    """Log density of the parameters, bases uniform, and the repulsion; in nats."""
    scales = values["scales"]
    if model.scale_prior == "laplace":
        total = SparseScales(model.sparsity, scales.shape).log_prob(scales)
    else:
        precision = values["scales_precision"]
        total = jnp.sum(dist.Normal(0.0, 1.0 / jnp.sqrt(precision)).log_prob(scales))
        total += jnp.sum(dist.Gamma(model.ard_concentration, model.ard_rate).log_prob(precision))
    if model.offset:
        offsets = dist.Normal(model.offset_mean, jnp.sqrt(model.offset_variance))
        total += jnp.sum(offsets.log_prob(values["offsets"]))
    if "noise_variance" in values:
        total += dist.InverseGamma(1.0, model.noise_rate).log_prob(values["noise_variance"])
    if model.num_components > 1:
        total += model.repulsion * log_determinant(model.similarity(values))
    if "stick_fractions" in values:
        total += jnp.sum(dist.Beta(1.0, model.concentration).log_prob(values["stick_fractions"]))
    elif model.num_components > 1:
        share = model.concentration / model.num_components * jnp.ones(model.num_components)
        total += dist.Dirichlet(share).log_prob(values["weights"])
    return total


def objective_of(log_rows: Array, values: Values, model: DEPCAM, clamp: Array) -> tuple[Array, Array]:
    """The objective given rows' log densities under components, and their responsibilities."""
    log_joint = log_rows + model.weights.log_weights(values) + clamp
    total = jnp.sum(jax.nn.logsumexp(log_joint, axis=-1)) + log_prior(values, model)
    if "latents" in values and values["latents"].ndim == 2:
        total += jnp.sum(log_standard_normal(values["latents"]))
    return total, jax.nn.softmax(log_joint, axis=-1)


def rows_of(values: Values, model: DEPCAM, x: Array) -> LocalDensities:
    """Log densities of rows: given the latents if they have values, else with the latents integrated out."""
    if "latents_loc" in values:
        return poisson_rows(values, model, x)
    return (rows_given_latents if "latents" in values else quadratic_rows)(values, model, x)


def evaluate(values: Values, model: DEPCAM, x: Array, clamp: Array) -> Evaluation:
    """Objective and gradients; ``clamp`` is added to rows' log densities (0, or minus infinity)."""
    rows = rows_of(values, model, x)
    objective, r = objective_of(rows.log_density, values, model, clamp)
    sums = sums_of(rows, r, components_of(model, values).loadings)
    return Evaluation(objective, rows.log_density, r, sums)


def rounding_of(objective: Array) -> Array:
    """Differences of the objective that are no rise and no fall."""
    return ROUNDING * jnp.finfo(objective.dtype).eps * jnp.abs(objective)


def climb(
    propose: Callable,
    values: dict[str, Array],
    before: Evaluation,
    step: Array,
    judge: Callable,
    goes: Array | bool = True,
) -> tuple[dict[str, Array], Evaluation, Array, Array]:
    """The first of ``propose(step)``, ``propose(step / 2)``, ... at which the objective does not fall.

    Args:
        propose: of a step size, the values.
        values: where to stay if all fall.
        before: the evaluation there.
        step: the first step size.
        judge: the evaluation of values.
        goes: whether to go anywhere.

    Returns:
        Values, evaluation, step size, number of evaluations.
    """
    floor = before.objective - rounding_of(before.objective)

    def goes_on(state: tuple) -> Array:
        return goes & ~(state[1].objective >= floor) & (state[3] < HALVINGS)

    def halve(state: tuple) -> tuple:
        new = propose(state[2] / 2)
        return new, judge(new), state[2] / 2, state[3] + 1

    nowhere = before._replace(objective=jnp.full_like(before.objective, jnp.nan))
    begin = (values, nowhere, 2.0 * step, jnp.array(0))  # so that evaluation is compiled once
    new, after, step, count = jax.lax.while_loop(goes_on, halve, begin)
    good = after.objective >= floor
    chosen = jax.tree.map(lambda a, b: jnp.where(good, a, b), (new, after), (values, before))
    return *chosen, step, count


def update_weights(
    values: dict[str, Array], model: DEPCAM, before: Evaluation, clamp: Array
) -> tuple[dict[str, Array], Evaluation]:
    """The maximum over the weights given responsibilities; no row is visited."""
    counts = jnp.sum(before.responsibilities, axis=0)
    if model.num_components == 1:
        return values, before
    if "stick_fractions" in values:
        left = jnp.cumsum(counts[::-1])[::-1][1:]
        fractions = counts[:-1] / (counts[:-1] + left + model.concentration - 1.0)
        tiny = jnp.finfo(counts.dtype).eps
        new = {"stick_fractions": jnp.clip(fractions, tiny, 1.0 - tiny)}
        new["weights"] = jnp.exp(log_stick_weights(new["stick_fractions"], model.num_components))
    else:
        total = counts + model.concentration / model.num_components - 1.0
        total = jnp.maximum(total, jnp.finfo(counts.dtype).eps)  # the prior's density is none at zero
        new = {"weights": total / jnp.sum(total)}
    values = values | new
    objective, r = objective_of(before.log_rows, values, model, clamp)
    return values, before._replace(objective=objective, responsibilities=r)


def update_blocks(
    num_sweeps: Array, values: dict[str, Array], model: DEPCAM, x: Array, clamp: Array, step_size: Array
) -> tuple[dict[str, Array], Evaluation, Array, Array]:
    """Move weights, offsets, scales and bases in turn, and every few sweeps raise dead columns.

    One loop over the blocks, so that there is one evaluation in the compiled program. The first block stays
    where it is, to have that evaluated, and then the weights go to their best.

    Args:
        num_sweeps: done so far.
        values: of the sites and of q.
        model: the model.
        x: rows.
        clamp: added to rows' log densities.
        step_size: of the bases.

    Returns:
        Values, evaluation, the next step size of the bases, number of evaluations.
    """
    offsets = (moved_offsets,) if model.offset else ()
    blocks = unmoved, *offsets, moved_scales, moved_bases, partial(raised, x=x)
    bases, last = len(blocks) - 2, len(blocks) - 1

    def judge(values: dict[str, Array]) -> Evaluation:
        return evaluate(values, model, x, clamp)

    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(judge, values))
    nowhere = nowhere._replace(objective=-jnp.inf * jnp.ones_like(nowhere.objective))
    is_turn = num_sweeps % REVIVAL_PERIOD == REVIVAL_PERIOD - 1

    def update(block: Array, state: tuple) -> tuple:
        values, now, step_size, count = state
        column, weak = dead_columns(values, now)
        due = (block == last) & is_turn & jnp.any(column)
        lift = _lift_if(due, values, model, x, now.responsibilities, column, weak)
        moves = [partial(move, values=values, model=model, now=now, lift=lift) for move in blocks]
        new, after, size, tries = climb(
            lambda step: jax.lax.switch(block, moves, step),
            values,
            now,
            jnp.where(block == bases, step_size, 1.0),
            judge,
            (block != last) | due,
        )
        rises = (tries == 1) & (after.objective > now.objective + rounding_of(now.objective))
        next_size = jnp.clip(jnp.where(rises, 1.5 * size, size), 1e-6, LARGEST_STEP)
        new, after = jax.lax.cond(
            block == 0, lambda *at: update_weights(at[0], model, at[1], clamp), lambda *at: at, new, after
        )
        return new, after, jnp.where(block == bases, next_size, step_size), count + tries + due

    return jax.lax.fori_loop(0, len(blocks), update, (values, nowhere, step_size, jnp.array(0)))


def unmoved(step: Array, values: dict[str, Array], **others: Any) -> dict[str, Array]:
    """The values as they are."""
    return values


def moved_offsets(
    step: Array, values: dict[str, Array], model: DEPCAM, now: Evaluation, **others: Any
) -> dict[str, Array]:
    """The offsets moved by gradient over curvature."""
    rate = 1.0 / model.offset_variance
    away = values["offsets"] - model.offset_mean
    direction = (now.sums.offsets - rate * away) / (now.sums.offsets_curvature + rate)
    return values | {"offsets": values["offsets"] + step * direction}


def moved_scales(
    step: Array, values: dict[str, Array], model: DEPCAM, now: Evaluation, **others: Any
) -> dict[str, Array]:
    """The scales after a proximal step; precisions of an ARD prior at their maximum given the scales."""
    scales = values["scales"]
    gradient = jnp.einsum("kfi,kfi->ki", values["bases"], now.sums.loadings)
    curvature = jnp.diagonal(now.sums.moments, axis1=-2, axis2=-1)
    curvature = jnp.maximum(curvature, jnp.finfo(scales.dtype).eps)
    moved = scales + step * gradient / curvature
    if model.scale_prior == "laplace":
        shrunk = jnp.maximum(jnp.abs(moved) - step * model.sparsity / curvature, 0.0)
        return values | {"scales": jnp.sign(moved) * shrunk}
    new = moved / (1.0 + step * values["scales_precision"] / curvature)
    shape, rate = model.ard_concentration - 0.5, model.ard_rate + 0.5 * new**2
    return values | {"scales": new, "scales_precision": shape / rate}


def repulsion_gradient(values: Values, model: DEPCAM) -> Array:
    """Gradient of the repulsion times log det S in the bases, shape of the bases."""
    bases, s = values["bases"], model.similarity(values)
    weights = inverse_of(jnp.linalg.cholesky(s)) * s * model.repulsion * model.similarity_scale
    if model.kernel == "angular":
        sums = jnp.sum(bases, axis=-1)
        return jnp.broadcast_to((2.0 * weights @ sums)[..., None], bases.shape)
    inner = jnp.einsum("lfi,kfj->klij", bases, bases)
    return 4.0 * jnp.einsum("kl,lfi,klij->kfj", weights, bases, inner)


def stiefel_gradient(bases: Array, gradient: Array) -> Array:
    """The part of a gradient along the Stiefel manifold, G - U sym(U'G)."""
    inner = jnp.swapaxes(bases, -1, -2) @ gradient
    return gradient - bases @ (0.5 * (inner + jnp.swapaxes(inner, -1, -2)))


def moved_bases(
    step: Array, values: dict[str, Array], model: DEPCAM, now: Evaluation, **others: Any
) -> dict[str, Array]:
    """The bases moved along the Stiefel gradient, drawn back by a sign-fixed QR."""
    scales, bases = values["scales"], values["bases"]
    gradient = now.sums.loadings * scales[:, None, :]
    stiff = jnp.linalg.eigvalsh(now.sums.moments * scales[:, :, None] * scales[:, None, :])[:, -1]
    if model.num_components > 1:
        gradient += repulsion_gradient(values, model)
        stiff += model.repulsion * model.similarity_scale * model.num_latents
    floor = jnp.finfo(scales.dtype).eps
    direction = stiefel_gradient(bases, gradient) / jnp.maximum(stiff, floor)[:, None, None]
    return {**values, "bases": orthonormal(bases + step * direction)}


def _without(values: Values, columns: Array) -> dict[str, Array]:
    """Values at which columns, shape (components, latents), boolean, are switched off."""
    without = {**values, "scales": jnp.where(columns, 0.0, values["scales"])}
    if "latents" in values:
        off = columns if values["latents"].ndim == 3 else jnp.any(columns, axis=0)
        without["latents"] = jnp.where(off, 0.0, values["latents"])
    if "latents_loc" in values:
        without["latents_loc"] = jnp.where(columns, 0.0, values["latents_loc"])
        kept = ~columns[:, :, None] & ~columns[:, None, :]
        identity = columns[:, :, None] * jnp.eye(columns.shape[-1])
        without["latents_covariance"] = kept * values["latents_covariance"] + identity
    return without


def _num_sign_keys(model: DEPCAM) -> int:
    return -(-model.num_components * model.num_latents // WORD)


def signs(keys: Array, shape: tuple[int, ...]) -> Array:
    """Independent fair signs: bits of keys that nothing else is drawn with, so that none need be drawn.

    Args:
        keys: fresh from a split, at least one for every `WORD` signs.
        shape: of the signs.
    """
    words = jax.random.key_data(keys).reshape(-1, 1)
    bits = (words >> jnp.arange(WORD, dtype=words.dtype)) & 1
    return jnp.where(bits.ravel()[: math.prod(shape)].reshape(shape) == 1, 1.0, -1.0)


def leading_values(keys: Array, taken: Array, values: Values, model: DEPCAM, x: Array) -> dict[str, Array]:
    """Bases along the leading directions of each component; scales and noise of Gaussian cells to match.

    The directions are those in which a column raises the marginal likelihood most: the leading eigenvectors
    of M in the module's docstring, for Gaussian cells of the component's covariance. With the noise at the
    mean of the other eigenvalues, that is the M-step of Tipping and Bishop (1999). Signs, which the angular
    kernel tells apart, are drawn.

    Args:
        keys: of the `signs`.
        taken: labels as zeros and ones, shape (rows, components).
        values: of the sites; the offsets are read, of bases and scales the shapes.
        model: the model.
        x: rows.

    Returns:
        ``bases``; of Gaussian cells ``scales``, and ``noise_variance`` where it is not given.
    """
    shape = values["scales"].shape
    nothing = {name: jnp.zeros_like(values[name]) for name in ("bases", "scales")}
    nothing["latents"] = jnp.zeros((x.shape[0], *shape))
    rows = rows_given_latents({**values, **nothing}, model, x)
    second = jnp.einsum("nk,nkf,nkg->kfg", taken, rows.residual, rows.residual)
    second -= jnp.einsum("nk,nkf->kf", taken, rows.curvature)[:, :, None] * jnp.eye(x.shape[1])
    leading = jnp.linalg.eigh(second)[1][..., ::-1][..., : shape[1]]
    new = {"bases": leading * signs(keys, (shape[0], 1, shape[1])).astype(leading.dtype)}
    if not model.integrates_latents:
        return new
    seen, variance = (~jnp.isnan(x)).astype(x.dtype), components_of(model, values).family.dispersion
    away = rows.residual * variance
    explained = jnp.einsum("nk,nki->ki", taken, jnp.einsum("nkf,kfi->nki", away, leading) ** 2)
    counts = jnp.einsum("nk,nf,kfi->ki", taken, seen, leading**2)
    if "noise_variance" in values:
        total = jnp.einsum("nk,nkf->", taken, away**2)
        rest = jnp.maximum(total - jnp.sum(explained), LEAST_REST * total)
        variance = (rest + 2.0 * model.noise_rate) / (jnp.sum(seen) - jnp.sum(counts) + 4.0)
        new["noise_variance"] = variance
    spread = explained / jnp.maximum(counts, 1.0)
    new["scales"] = jnp.sqrt(jnp.maximum(spread - variance, LEAST_SCALE**2 * variance))
    return new


def dead_columns(values: Values, now: Evaluation) -> tuple[Array, Array]:
    """The deadest column of each component, if any is dead, and all dead ones; (components, latents)."""
    r = now.responsibilities
    total = jnp.maximum(jnp.sum(r, axis=0), 1.0)[:, None]
    heights = now.sums.offsets_curvature / total
    strength = values["scales"] ** 2 * jnp.einsum("kfi,kf->ki", values["bases"] ** 2, heights)
    if "latents" in values:
        y = values["latents"] if values["latents"].ndim == 3 else values["latents"][:, None]
        strength *= jnp.einsum("nk,nki->ki", r, y**2 * jnp.ones((1, r.shape[1], 1))) / total
        if values["latents"].ndim == 2:  # dead where it is so in all components
            strength = jnp.broadcast_to(jnp.max(strength, axis=0), strength.shape)
    weak = strength < DEAD
    column = weak & (jnp.arange(weak.shape[1]) == jnp.argmin(strength, axis=1)[:, None])

    return column, weak


class Lift(NamedTuple):
    """Dead columns turned to their best directions, and how far they are to be raised.

    Attributes:
        column: at most one of each component, shape (components, latents), boolean.
        moves: those of them that gain, likewise.
        bases: with these columns turned.
        scales: the best of each component, shape (components,).
        force: gradient of each row in the component's latent, shape (rows, components).
        stiff: and minus the second derivative, likewise.
    """

    column: Array
    moves: Array
    bases: Array
    scales: Array
    force: Array
    stiff: Array


def _lift_if(due: Array, *args: Any) -> Lift:
    """`lift_of`, or zeros where it is not due."""
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lift_of, *args))
    # a loop of at most one round, since side by side with other restarts both branches of a cond would run
    return jax.lax.while_loop(
        lambda state: state[1], lambda _: (lift_of(*args), jnp.array(False)), (nothing, due)
    )[0]


def lift_of(values: dict[str, Array], model: DEPCAM, x: Array, r: Array, column: Array, weak: Array) -> Lift:
    """A dead column of each component turned to its best direction, and its best scale where that gains.

    Args:
        values: of the sites and of q.
        model: the model.
        x: rows.
        r: responsibilities.
        column: at most one of each component, shape (components, latents), boolean.
        weak: columns whose directions need not be kept, likewise.
    """
    without = _without(values, column)
    rows = rows_of(without, model, x)
    second = jnp.einsum("nk,nkf,nkg->kfg", r, rows.residual, rows.residual)
    if "latents" not in values:
        second -= jnp.einsum("nk,nkf->kf", r, rows.curvature)[:, :, None] * jnp.eye(x.shape[1])
    taken = values["bases"] * ~weak[:, None, :]
    within = jnp.einsum("kfi,kgi->kfg", taken, taken)
    free = jnp.eye(x.shape[1]) - within
    below = 1.0 + jnp.sqrt(jnp.sum(second**2, axis=(1, 2), keepdims=True))
    direction = jnp.linalg.eigh(free @ second @ free - below * within)[1][..., -1]

    force = jnp.einsum("nkf,kf->nk", rows.residual, direction)
    stiff = jnp.einsum("nkf,kf->nk", rows.curvature, direction**2)
    if rows.covariance is not None:
        loadings = components_of(model, without).loadings
        across = jnp.einsum("nkf,kf,kfi->nki", rows.curvature, direction, loadings)
        stiff -= jnp.einsum("nki,nkij,nkj->nk", across, rows.covariance, across)
    stiff = jnp.maximum(stiff, 0.0)
    tiny = jnp.finfo(x.dtype).tiny
    unit = jnp.sqrt(jnp.sum(r, axis=0) / jnp.maximum(jnp.sum(r * stiff, axis=0), tiny))
    grid = jnp.asarray(np.geomspace(*SCALE_GRID), x.dtype)[:, None] * unit

    def gain(scale: Array) -> Array:
        ratio = 1.0 + scale**2 * stiff
        total = scale**2 * force**2 / ratio - (0.0 if "latents" in values else jnp.log(ratio))
        if model.scale_prior == "laplace":
            cost = model.sparsity * scale
        else:
            cost = (model.ard_concentration - 0.5) * jnp.log1p(0.5 * scale**2 / model.ard_rate)
        return 0.5 * jnp.sum(r * total, axis=0) - cost

    gains = jax.lax.map(gain, grid)
    best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains), axis=0)[None]
    moves = column & (jnp.take_along_axis(gains, best, axis=0)[0] > 0)[:, None]
    moved = jnp.any(moves, axis=1)
    whole = jnp.where(moved, jnp.take_along_axis(grid, best, axis=0)[0], 0.0)

    # the QR keeps the first columns: strong ones, then the raised one, then the other dead ones
    order = jnp.argsort(jnp.where(column, 1, jnp.where(weak, 2, 0)), axis=1)[:, None, :]
    turned = jnp.where(column[:, None, :], direction[:, :, None], values["bases"])
    turned = orthonormal(jnp.take_along_axis(turned, order, axis=2))
    turned = jnp.take_along_axis(turned, jnp.argsort(order, axis=2), axis=2)
    bases = jnp.where(moved[:, None, None], turned, values["bases"])

    return Lift(column, moves, bases, whole, force, stiff)


def raised(
    step: Array, values: dict[str, Array], model: DEPCAM, now: Evaluation, lift: Lift, x: Array
) -> dict[str, Array]:
    """Dead columns raised to a share of their best scale."""
    scale, force, stiff, r = step * lift.scales, lift.force, lift.stiff, now.responsibilities
    new = values | {"bases": lift.bases, "scales": jnp.where(lift.moves, scale[:, None], values["scales"])}
    if "scales_precision" in values:
        precision = (model.ard_concentration - 0.5) / (model.ard_rate + 0.5 * scale**2)
        new["scales_precision"] = jnp.where(lift.moves, precision[:, None], values["scales_precision"])
    if "latents" in values and values["latents"].ndim == 3:
        y = scale * force / (1.0 + scale**2 * stiff)
        new["latents"] = jnp.where(lift.moves, y[..., None], values["latents"])
    elif "latents" in values:
        y = jnp.sum(r * scale * force, axis=1) / (1.0 + jnp.sum(r * scale**2 * stiff, axis=1))
        new["latents"] = jnp.where(jnp.any(lift.moves, axis=0), y[:, None], values["latents"])
    if "latents_loc" in values:
        moved = jnp.any(lift.moves, axis=1)
        new |= _settled_q(new, _without(values, lift.column), moved, model, x)
    return new


def _settled_q(
    values: dict[str, Array], without: Values, moved: Array, model: DEPCAM, x: Array
) -> dict[str, Array]:
    """Q of the latents of Poisson cells at new bases and scales, one step from where columns are off."""
    begun = dict(values)
    for name in ("latents_loc", "latents_covariance"):
        mask = moved.reshape(1, -1, *(1,) * (values[name].ndim - 2))
        begun[name] = jnp.where(mask, without[name], values[name])
    rows = poisson_rows(begun, model, x)
    sizes, _ = _longest_steps(
        lambda size: poisson_rows(begun | natural_step(begun, model, rows, size), model, x).log_density,
        rows.log_density,
    )
    return natural_step(begun, model, rows, sizes)


ROW_HALVINGS = 40  # of a row far outside the others the first step is too long by e^theta / theta


def update_latents(
    values: dict[str, Array], model: DEPCAM, x: Array, clamp: Array
) -> tuple[dict[str, Array], Array]:
    """Update latents (25), or q of them, or the bound's curves, or the noise variance; returns visits too."""
    rows, one = rows_of(values, model, x), jnp.array(1)
    if "latents_loc" in values:
        sizes, visits = _longest_steps(
            lambda size: poisson_rows(values | natural_step(values, model, rows, size), model, x).log_density,
            rows.log_density,
        )
        return values | natural_step(values, model, rows, sizes), one + visits
    _, r = objective_of(rows.log_density, values, model, clamp)
    if "latents" in values:
        latents, visits = _moved_latents(values, model, x, rows, r, clamp)
        return values | {"latents": latents}, one + visits
    if not model.integrates_latents:
        return values | {"curves": tight_curves(values, model, rows)}, one
    if "noise_variance" not in values:
        return values, one
    loadings, variance = components_of(model, values).loadings, values["noise_variance"]
    spread = jnp.einsum("kfi,nkij,kfj->nkf", loadings, rows.covariance, loadings)
    seen = ~jnp.isnan(x)[:, None]
    squares = jnp.where(seen, (rows.residual * variance) ** 2 + spread, 0.0)
    total = jnp.sum(r[..., None] * squares)
    new = (total + 2.0 * model.noise_rate) / (jnp.sum(seen) + 4.0)
    return values | {"noise_variance": new}, one


def _moved_latents(
    values: dict[str, Array], model: DEPCAM, x: Array, rows: LocalDensities, r: Array, clamp: Array
) -> tuple[Array, Array]:
    y, loadings = values["latents"], components_of(model, values).loadings
    inner = jnp.einsum("nkf,kfi,kfj->nkij", rows.curvature, loadings, loadings)
    slope = jnp.einsum("nkf,kfi->nki", rows.residual, loadings)
    if y.ndim == 2:
        inner, slope = jnp.einsum("nk,nkij->nij", r, inner), jnp.einsum("nk,nki->ni", r, slope)
    inverse = inverse_of(jnp.linalg.cholesky(inner + jnp.eye(y.shape[-1])))
    step = jnp.einsum("...ij,...j->...i", inverse, slope - y)
    step = jnp.where(jnp.isfinite(step), step, 0.0)
    if model.family.curvature_bound is not None:
        return y + step, jnp.array(0)

    def height(size: Array) -> Array:
        moved = values | {"latents": y + size[..., None] * step}
        own = rows_given_latents(moved, model, x).log_density
        return own if y.ndim == 3 else _shared_height(own, moved, model, clamp)

    before = rows.log_density if y.ndim == 3 else _shared_height(rows.log_density, values, model, clamp)
    sizes, visits = _longest_steps(height, before)
    return y + sizes[..., None] * step, visits


def _shared_height(log_rows: Array, values: dict[str, Array], model: DEPCAM, clamp: Array) -> Array:
    log_joint = log_rows + model.weights.log_weights(values) + clamp
    return jax.nn.logsumexp(log_joint, axis=-1) + log_standard_normal(values["latents"])


def _longest_steps(height: Callable, before: Array) -> tuple[Array, Array]:
    """The largest of 1, 1/2, ... for each row at which its height does not fall, else 0; and visits."""
    floor = before - rounding_of(before)

    def halve(state: tuple) -> tuple:
        sizes, _, count = state
        falls = ~(height(sizes) >= floor)
        return jnp.where(falls, sizes / 2, sizes), falls, count + 1

    def goes_on(state: tuple) -> Array:
        return jnp.any(state[1]) & (state[2] < ROW_HALVINGS)

    begin = (jnp.ones_like(before), jnp.ones(before.shape, bool), jnp.array(0))
    sizes, falls, count = jax.lax.while_loop(goes_on, halve, begin)
    return jnp.where(falls, 0.0, sizes), count


def rescale(values: dict[str, Array], model: DEPCAM, now: Evaluation, clamp: Array) -> tuple[Any, Array]:
    """Scales times c and latents over c, c optimal given responsibilities; values and objective."""
    scales, r = values["scales"], now.responsibilities
    if model.scale_prior == "laplace":
        cost, power = model.sparsity * jnp.abs(scales), 3
    else:
        cost, power = values["scales_precision"] * scales**2, 4
    if "latents_loc" in values:
        spread = jnp.diagonal(values["latents_covariance"], axis1=-2, axis2=-1)
        squares = jnp.einsum("nk,nkj->kj", r, values["latents_loc"] ** 2 + spread)
        c = best_scaling(jnp.sum(r, axis=0)[:, None] + jnp.zeros_like(scales), squares, cost, power)
        gain, latents = scaled_bound(values, c)
        new, log_rows = values | latents | {"scales": scales * c}, now.log_rows + gain
    else:
        new, log_rows = _rescaled_values(values, now, cost, power)
    objective, _ = objective_of(log_rows, new, model, clamp)
    better = objective >= now.objective
    return jax.tree.map(lambda a, b: jnp.where(better, a, b), (new, objective), (values, now.objective))


def _rescaled_values(
    values: dict[str, Array], now: Evaluation, cost: Array, power: int
) -> tuple[dict[str, Array], Array]:
    y, r = values["latents"], now.responsibilities
    shared = y.ndim == 2
    squares = jnp.sum(y**2, axis=0) if shared else jnp.einsum("nk,nkj->kj", r, y**2)
    cost = jnp.sum(cost, axis=0) if shared else cost
    usable = (cost > 0) & (squares > 0)
    ratio = jnp.where(usable, squares, 1.0) / jnp.where(usable, cost, 1.0)
    c = jnp.where(usable, ratio ** (1 / power), 1.0)
    new = values | {"scales": values["scales"] * c, "latents": y / c}
    if shared:
        return new, now.log_rows
    return new, now.log_rows + log_standard_normal(new["latents"]) - log_standard_normal(y)
