r"""Blocked Gibbs sampling for finite and (truncated) Dirichlet-process mixtures.

A sweep draws, in this order (Yu 2006, sections 2.2.1 and 3.3; the conditionals of the concentration are not
given there)

* Dirichlet weights: the concentration given the labels, with the weights integrated out, by slice sampling,

  .. math::
      p(\alpha \mid c) \propto p(\alpha) \frac{\Gamma(\alpha)}{\Gamma(\alpha + N)}
      \prod_k \frac{\Gamma(\alpha/K + n_k)}{\Gamma(\alpha/K)},

  and at once :math:`\pi \mid \alpha, c \sim \mathrm{Dirichlet}(\alpha/K + n_k)`; the two are one block.
  (Escobar and West's update is that of the infinite model, not of this one.)
* stick-breaking, by the decays :math:`E_j = -\log(1 - V_j)` of the M random sticks, which are what the state
  holds, since 1 - V rounds to nothing at small concentrations:
  :math:`\alpha \mid E \sim \mathrm{Gamma}(a + M, b + \sum_j E_j)`, then
  :math:`V_j \mid \alpha, c \sim \mathrm{Beta}(1 + n_j, \alpha + \sum_{l>j} n_l)`, drawn in logs
  (`zoo.dirichlet_process.BetaDecay`);
* components: :math:`\Lambda_k \mid c, x` with the mean integrated out, then
  :math:`\mu_k \mid \Lambda_k, c, x`;
* labels: :math:`p(c_i = k \mid \cdot) \propto \pi_k\, p(x_i \mid \theta_k)`.

Hyperparameters of the component prior that have a prior themselves are drawn first. With stick-breaking
weights the components are put in a new order before the sticks are drawn, without which the chain does not
mix; ``label_moves=False`` leaves that out. Both are described below. ``split_merge`` moves
(`inference.methods.mixture.split_merge`), four in a sweep, come before weights and parameters are drawn;
families whose components share a parameter have none. Without them chains stay apart in the number of
clusters: a cluster that loses its rows one by one passes through states that are far less likely.

A call that says neither ``num_samples`` nor ``until`` runs until its chains have converged
(``python -m tests.benchmarks.mixture_samplers default``).

A sweep costs O(N K D^2). The recorded log joint has the labels summed out, as in NUTS on the same program,
so that traces compare. Each conditional is a function of the current values that returns NumPyro
distributions: what is checked is what is drawn from.

**The order of the components** of a truncated Dirichlet process is drawn anew in every sweep. Earlier sticks
are longer, so the posterior prefers orders in which large components come first, but a sampler that moves one
label at a time cannot exchange two components full of rows: it stays in the order it met first, and number of
components, concentration and log joint stay apart between chains. Swaps of two components cure that step by
step (Papaspiliopoulos and Roberts 2008, "Retrospective Markov chain Monte Carlo methods for Dirichlet process
hierarchical models", Biometrika 95; Hastie, Liverani and Richardson 2015, "Sampling from Dirichlet process
mixture models with unknown concentration parameter", Statistics and Computing 25). Here all components are
put in a new order at once.

With sticks and component parameters integrated out, labels with :math:`n_j` rows at stick j have probability

.. math::
    p(c \mid \alpha) = \prod_{j<K} \frac{B(1 + n_j, \alpha + n_{>j})}{B(1, \alpha)},
    \qquad n_{>j} = \sum_{l>j} n_l,

and the likelihood does not see the order, so this is, up to a constant, the law of the order given the sizes.
Without truncation it factorises: the next stick holds component k with probability :math:`n_k / (\alpha + R)`
and no row at all with probability :math:`\alpha / (\alpha + R)`, where R rows are still without a stick (a
size-biased order with gaps; Pitman 1996). A proposal from that law, confined to K sticks by filling a gap no
more once the components without rows are used up, has probability

.. math::
    q(c) \propto \prod_{j \le K} \frac{1}{\alpha\,[\text{some stick from } j \text{ on is empty}] + n_{\ge j}}

whatever order it is compared with, and is accepted with the Metropolis-Hastings probability for p and q:
always, as long as both orders end on an empty stick, which is nearly always where the truncation is long
enough for the concentration. Where it is not, exchanges of neighbouring sticks, each drawn from its two-point
conditional, go on mixing. Cost: O(N + K log K) a sweep.

Sticks and parameters must be drawn next, as in `inference.methods.mixture.gibbs.blocks_of`: the old ones
belong to the old order.

**Hyperparameters of the component priors.** Given the parameters :math:`\theta_k` of the components that have
rows (M of them; D features) each hyperparameter with a prior has this conditional:

* :math:`m_0 \sim \mathrm{Normal}(a, P^{-1})`: with :math:`R = P + \beta_0 \sum_k \Lambda_k`, normal with
  precision R and mean :math:`R^{-1}(P a + \beta_0 \sum_k \Lambda_k \mu_k)`;
* :math:`\beta_0 \sim \mathrm{Gamma}(a, b)`:
  :math:`\mathrm{Gamma}(a + MD/2,\; b + \tfrac12 \sum_k (\mu_k - m_0)^\top \Lambda_k (\mu_k - m_0))`;
* :math:`W_0^{-1} \sim \mathrm{Wishart}(V, n)`, scale matrix V and n degrees of freedom:
  :math:`\mathrm{Wishart}((V^{-1} + \sum_k \Lambda_k)^{-1},\; n + M \nu_0)`; with one covariance for all
  components the sum has one term and M is 1;
* Gamma priors on the parameters of Dirichlet and beta priors: not conjugate, slice sampling
  (`inference.numerics.slice_sampling`), elementwise, given the labels and the data with the probabilities
  integrated out; these are drawn next, in the same block. Given the probabilities instead, the sampler
  would read log(1 - p) off numbers that round to one, and see no parameter much below 1/36 (1/16 in float32).

The thesis learns these numbers by a variational M-step (Yu 2006, section 2.2.4) and has no priors on them;
the conditionals follow from the densities of its Table 2.1.

Components without rows are integrated out: their parameters are draws from the prior that say nothing about
it, but the chain would move the slower the more of them there are. A sweep must therefore draw the parameters
of all components before it uses those of an empty one: these blocks come first in it
(`inference.methods.mixture.gibbs.blocks_of`). Where every component has rows they are conditionals of the
program. Cost: O(K D^2) a sweep.

**Weights of rows** are powers of the likelihood with the label summed out,

.. math::
    p(\theta, \pi \mid x, w) \propto p(\theta, \pi) \prod_i \Big( \sum_k a_{ik} \Big)^{w_i},
    \qquad a_{ik} = \pi_k\, p(x_i \mid \theta_k),

which is the target of NUTS and HMC, and whose bound and maximum VB and EM climb. For a whole number w the
power expands over w labels,

.. math::
    \Big( \sum_k a_{ik} \Big)^{w} = \sum_{c_1 \dots c_w} \prod_{l=1}^{w} a_{i c_l},

so that w copies of the row, each with a label of its own, are an exact augmentation: the sweep runs on the
copies, every conditional and move as it stands. One label for all copies would be another model: summed out
it leaves :math:`\prod_i \sum_k a_{ik}^{w_i}`, at most the power above for :math:`w_i \ge 1` and equal to it
only where one component has the row to itself; it takes rows between two components for less likely than they
are. A fractional power has no expansion in finitely many labels with positive terms, so such weights are
refused. Labels that are kept are one of each row, drawn given weights and parameters (of rows of weight zero
too). The cost is that of the copies, :math:`\sum_i w_i` rows.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Init, Outcome, Sampler, conclude_draws
from inference.methods.gibbs_sweep import Move, sweep
from inference.methods.mixture import Gibbs
from inference.methods.mixture.split_merge import split_merge as split_merge_moves
from inference.methods.mixture.starts import given_labels
from inference.numerics.programs import draw_locals, log_prior
from inference.numerics.slice_sampling import PositiveSlice, PositiveSlices
from inference.numerics.weighted_rows import PaddedRows, Rows, beside_rows, sum_of_rows, with_padding
from zoo.answers import answer_of
from zoo.checks import machine_memory
from zoo.conjugate import (
    CategoricalDirichlet,
    GaussianKnownCovariance,
    GaussianWishart,
    MultinomialDirichlet,
    NormalGamma,
    Product,
)
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.gaussian import symmetric_inverse
from zoo.conjugate.mixture_rows import ERRORS, exact_rows, log_joint_rows
from zoo.conjugate.product import in_logs
from zoo.conjugate.rounded import normal_within
from zoo.dirichlet_process import StickBreaking, with_stick_decays
from zoo.gamma_functions import gammaln
from zoo.mixture import Mixture
from zoo.shapes import Values
from zoo.sparse import SparseCounts


class Copies(NamedTuple):
    """Rows as many times as their weights say, and the rows themselves.

    Attributes:
        each: the copies, shape (num_copies, num_features), or sparse counts.
        row: the row that each copy is of, shape (num_copies,).
        rows: shape (num_observations, num_features), or sparse counts.
    """

    each: Any
    row: Array
    rows: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the copies."""
        return self.each.shape


def prepare(model: Mixture, data: tuple, init: Init, **options: object) -> tuple:
    """The rows, or as many copies of each as its weight says.

    Raises:
        ValueError: a weight is not a whole number, or there are more copies than memory holds.
    """
    (x,) = data
    if not isinstance(x, Rows):
        return data
    weight, rows = np.asarray(x.weight), x.x
    if (fractional := weight != np.round(weight)).any():
        place = int(np.argmax(fractional))
        raise ValueError(
            "gibbs takes whole numbers as sample_weight, since a row of weight w has w labels; row "
            f"{place} has {weight[place]:g}: use method='nuts', 'hmc', 'vb' or 'em', which take any"
        )
    num_bytes = weight.sum() * 8.0 * (1 + np.shape(rows)[1])
    if num_bytes > machine_memory():
        raise ValueError(
            f"gibbs makes copies of the rows, and weights that add up to {weight.sum():g} make "
            f"{num_bytes / 2**30:.1f} GiB of them, more than this machine has: use method='nuts', 'hmc', "
            "'vb' or 'em', which make none"
        )
    row = np.repeat(np.arange(len(weight)), weight.astype(int))
    each = rows.rows(row) if isinstance(rows, SparseCounts) else np.asarray(rows)[row]
    return (Copies(each, row, rows),)


def copies_of(x: Array | Rows) -> Any:
    """The rows that a sweep runs on."""
    return x.each if isinstance(x, Copies) else x


def reorder_components(key: Array, values: Values, model: Mixture, x: Array) -> dict[str, Array]:
    """New labels, rows grouped as before; a move for labels with sticks and parameters integrated out.

    Args:
        key: a JAX key.
        values: all sites; ``assignments`` and, where it is random, ``concentration`` are read.
        model: a mixture with stick-breaking weights.
        x: the data; not read.

    Returns:
        The values with new ``assignments``, which the components' own parameters follow: missing cells are
        drawn from these. The sticks are as they were and must be drawn again.
    """
    propose_key, accept_key, even_key, odd_key = jax.random.split(key, 4)
    sticks = cast(StickBreaking, model.weights)
    alpha = values["concentration"] if model.has_random_concentration else model.concentration
    counts = jnp.bincount(values["assignments"], length=model.num_components).astype(jnp.result_type(float))
    proposed = propose_order(propose_key, counts, alpha)

    def log_weight(counts: Array) -> Array:
        return log_allocation(sticks, counts, alpha) - log_proposal(counts, alpha)

    log_ratio = log_weight(counts[proposed]) - log_weight(counts)
    accepted = jnp.log(jax.random.uniform(accept_key, dtype=log_ratio.dtype)) < log_ratio
    order = jnp.where(accepted, proposed, jnp.arange(model.num_components))
    for first, pair_key in ((0, even_key), (1, odd_key)):
        order = exchange_neighbours(pair_key, order, counts, alpha, sticks, first)
    place = jnp.append(jnp.argsort(order), model.num_components)  # of each component, the stick that it gets
    dims = model.components.parameter_dims.items()
    new = {name: values[name][order] for name, own in dims if name in values and own[0] == "component"}
    new["assignments"] = place[values["assignments"]].astype(values["assignments"].dtype)
    return {**values, **new}


def log_allocation(weights: StickBreaking, counts: Array, alpha: Array) -> Array:
    """Log probability of labels with these rows per stick, sticks integrated out, up to a constant in nats.

    The constant depends on the concentration and the number of sticks only.

    Args:
        weights: the prior of the weights.
        counts: rows per stick, shape (num_components,).
        alpha: the concentration, positive.
    """
    return weights.log_normaliser(weights.posterior(counts, alpha))


def propose_order(key: Array, counts: Array, alpha: Array) -> Array:
    """An order from the law without truncation, confined to the sticks there are.

    Args:
        key: a JAX key.
        counts: rows per component, shape (num_components,).
        alpha: the concentration, positive.

    Returns:
        The component at each stick, shape (num_components,), int. Its log probability is `log_proposal` of
        the reordered counts, up to a constant.
    """
    clock_key, gap_key = jax.random.split(key)
    size = counts.shape[0]
    clock = jax.random.exponential(clock_key, (size,), counts.dtype) / counts  # infinite without rows
    queue = jnp.argsort(clock)  # components with rows in size-biased order, then those without
    num_occupied = jnp.sum(counts > 0)

    def fill(carry: tuple, uniform: Array) -> tuple:
        taken, gaps, rows_left = carry  # components with rows placed, empty sticks so far, rows not placed
        gap = (gaps < size - num_occupied) & (uniform * (alpha + rows_left) < alpha)
        gap = gap | (taken == num_occupied)
        component = queue[jnp.where(gap, num_occupied + gaps, taken)]
        carry = (taken + ~gap, gaps + gap, rows_left - jnp.where(gap, 0.0, counts[component]))
        return carry, component

    start = (jnp.zeros((), int), jnp.zeros((), int), jnp.sum(counts))
    return jax.lax.scan(fill, start, jax.random.uniform(gap_key, (size,), counts.dtype))[1]


def log_proposal(counts: Array, alpha: Array) -> Array:
    """Log probability that `propose_order` returns this order, up to a constant in nats.

    The constant depends on concentration and sizes, not on the order.

    Args:
        counts: rows per stick in that order, shape (num_components,).
        alpha: the concentration, positive.
    """
    rows_left = jnp.cumsum(counts[::-1])[::-1]  # from this stick on
    empty_left = jnp.cumsum((counts == 0)[::-1])[::-1] > 0
    return -jnp.sum(jnp.log(alpha * empty_left + rows_left))


def exchange_neighbours(
    key: Array, order: Array, counts: Array, alpha: Array, weights: StickBreaking, first: int
) -> Array:
    """The order after each pair of neighbouring sticks was exchanged or not, by its conditional.

    The pairs are disjoint, and the rows beyond a pair do not change with what happens within another one,
    so that the pairs are independent given the rest and drawn side by side.

    Args:
        key: a JAX key.
        order: the component at each stick, shape (num_components,).
        counts: rows per component, shape (num_components,).
        alpha: the concentration, positive.
        weights: the prior of the weights.
        first: 0 for the pairs (0, 1), (2, 3), ..., 1 for (1, 2), (3, 4), ....
    """
    size = weights.num_components
    left = jnp.arange(first, size - 1, 2)
    ordered = counts[order]
    beyond = (jnp.cumsum(ordered[::-1])[::-1] - ordered)[left + 1]
    both_random = left + 1 < weights.num_sticks  # the last stick of a truncation is fixed

    def log_pair(near: Array, far: Array) -> Array:
        own, last = (_log_beta(1.0 + n, alpha + rest) for n, rest in ((near, beyond + far), (far, beyond)))
        return own + jnp.where(both_random, last, 0.0)

    near, far = ordered[left], ordered[left + 1]
    log_odds = log_pair(far, near) - log_pair(near, far)
    exchanged = jax.random.bernoulli(key, jax.nn.sigmoid(log_odds))
    new_left = jnp.where(exchanged, order[left + 1], order[left])
    new_right = jnp.where(exchanged, order[left], order[left + 1])
    return order.at[left].set(new_left).at[left + 1].set(new_right)


def _log_beta(a: Array, b: Array) -> Array:
    """Logarithm of the beta function; that of jax.scipy loses half the digits at moderate arguments."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)


class MixtureGibbsState(NamedTuple):
    """Current values of every latent site of ``model.explicit``, in constrained space.

    Attributes:
        values: site name to value.
    """

    values: dict[str, Array]


class MixtureGibbsInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: log joint density of data and parameters, labels summed out, in nats.
        num_occupied: components with at least one row.
    """

    objective: Array
    num_occupied: Array


def is_row(values: Values, model: Mixture) -> Array:
    """Which are rows, shape (num_observations,): what is beside them has a label beyond all components."""
    return values["assignments"] < model.num_components


def counts_of(values: Values, model: Mixture) -> Array:
    """Rows per component, shape (num_components,), as floats."""
    return jnp.bincount(values["assignments"], length=model.num_components).astype(float)


# The blocks: each returns the distributions it draws from, in order; one may depend on sites before it in its
# block


def concentration_and_weights(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """Dirichlet weights: the concentration given the labels alone, then the weights given both."""
    counts = counts_of(values, model)
    if not model.has_random_concentration:
        return {"weights": model.weights.posterior(counts, model.concentration)}
    num_rows, num_components = jnp.sum(counts), model.num_components

    def log_density(alpha: Array) -> Array:
        share = alpha / num_components
        allocation = jnp.sum(gammaln(share + counts) - gammaln(share))
        allocation = gammaln(alpha) - gammaln(alpha + num_rows) + allocation
        return model.concentration.log_prob(alpha) + allocation

    alpha = values["concentration"]
    return {
        "concentration": PositiveSlice(log_density, alpha),
        "weights": model.weights.posterior(counts, alpha),
    }


def stick_concentration(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The concentration given the sticks; conjugate."""
    decays, prior = values["stick_decays"], model.concentration
    shape, rate = prior.concentration + decays.shape[-1], prior.rate + jnp.sum(decays)
    return {"concentration": dist.Gamma(shape, rate)}


def stick_decays(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The sticks given labels and concentration."""
    alpha = values["concentration"] if model.has_random_concentration else model.concentration
    return {"stick_decays": model.weights.posterior(counts_of(values, model), alpha)}


def component_parameters(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The parameters of the components given labels and data."""
    statistics = model.components.statistics(x, values["assignments"], model.num_components)
    prior = model.components.with_hyperparameters(values)
    return prior.posterior(statistics).conditionals(values)


def component_parameters_of_completed_rows(
    key: Array, values: Values, model: Mixture, x: Array
) -> dict[str, Array]:
    """Missing cells given labels and parameters, then the parameters given labels and the completed rows.

    The cells are forgotten again: labels are drawn with them integrated out.
    """
    cell_key, parameter_key = jax.random.split(key)
    prior = model.components.with_hyperparameters(values)
    rows = prior.completed(cell_key, values, values["assignments"], x)
    complete = model.replaced(components=model.components.complete())
    return sweep(parameter_key, values, (component_parameters,), complete, rows)


COMPLETING = Move(component_parameters_of_completed_rows)


def labels(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The labels given weights and parameters, as `zoo.answers.Answers.conditionals`."""
    return {"assignments": RowLabels(log_joint_rows(model, values, x), is_row(values, model))}


class RowLabels(dist.CategoricalLogits):
    """A label for each row, drawn by one uniform number a row: most of a sweep would go into K of them.

    Args:
        logits: shape (num_observations, num_components).
        is_row: shape (num_observations,); what is no row has label K.
    """

    pytree_data_fields = ("is_row",)

    def __init__(self, logits: Array, is_row: Array) -> None:
        self.is_row = is_row
        super().__init__(logits, validate_args=False)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Labels, by the cumulated probabilities; one of probability zero is never drawn."""
        shape = (*sample_shape, *self.batch_shape)
        uniform = jax.random.uniform(key, shape, self.logits.dtype)
        return drawn_label(self.logits, jnp.where(self.is_row, uniform, 1.0))


def drawn_label(logits: Array, uniform: Array) -> Array:
    """Labels by their cumulated probabilities.

    Args:
        logits: log probabilities up to a constant, shape (..., num_labels).
        uniform: a number on [0, 1) for each label to draw, shape (...); at 1 it is ``num_labels``.

    Returns:
        Shape (...).
    """
    upto = jnp.cumsum(jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True)), axis=-1)
    return jnp.sum(upto <= (uniform * upto[..., -1])[..., None], axis=-1)


REORDERING = Move(reorder_components)


# Cells recorded in steps


def error_given_others(values: Values, model: Mixture, x: Array, column: Array | int) -> dist.TruncatedNormal:
    """The errors of a column in its steps, given all else; of exact and missing cells all are alike."""
    exact, y = exact_rows(model, values, x)
    cell = exact.components.cell_given_others(values, values["assignments"], y, column)
    step = jnp.asarray(model.components.rounding)[column]
    is_free = (step == 0) | jnp.isnan(x[:, column])
    safe = jnp.where(step == 0, 1.0, step)
    loc = jnp.where(is_free, 0.0, (x[:, column] - cell.loc) / safe)
    scale = jnp.where(is_free, 1e8, cell.scale / safe)  # so wide that all errors are alike
    return dist.TruncatedNormal(loc, scale, low=-0.5, high=0.5, validate_args=False)


def draw_errors(key: Array, values: Values, model: Mixture, x: Array) -> dict[str, Array]:
    """The errors of one column after the other, each given all else, by quantiles that hold in the tails."""
    place = jax.random.uniform(key, x.shape, x.dtype)

    def draw_column(column: Array, errors: Array) -> Array:
        own = error_given_others({**values, ERRORS: errors}, model, x, column)
        loc, scale = own.base_dist.loc, own.base_dist.scale
        drawn = loc + scale * normal_within(place[:, column], (-0.5 - loc) / scale, (0.5 - loc) / scale)
        return errors.at[:, column].set(drawn)

    return {**values, ERRORS: jax.lax.fori_loop(0, x.shape[1], draw_column, values[ERRORS])}


@cache
def of_exact_rows(block: Callable | Move) -> Callable | Move:
    """The block of a mixture whose cells are recorded in steps: that of the rows less their errors."""
    if isinstance(block, Move):
        return Move(lambda key, values, model, x: block.apply(key, values, *exact_rows(model, values, x)))
    return lambda values, model, x: block(values, *exact_rows(model, values, x))


def with_errors(blocks: tuple[Callable | Move, ...], model: Mixture) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep, and where cells are recorded in steps that of their errors, which comes last."""
    if not model.components.is_rounded:
        return blocks
    return (*map(of_exact_rows, blocks), Move(draw_errors))


def blocks_of(model: Mixture) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep, in order.

    Sticks and parameters follow the reordering at once: it integrates them out. So do the hyperparameters
    with the parameters of components without rows, which nothing reads before all are drawn again.
    """
    parameters = COMPLETING if model.components.is_incomplete else component_parameters
    return (*hyperparameter_blocks(model.components), *_weight_blocks(model), parameters, labels)


@cache
def blocks_with(split_merge: int = 0, label_moves: bool = True) -> Callable:
    """What gives the blocks of a sweep with this many split-merge moves, with or without label moves.

    Split-merge moves come where weights and parameters are next to be drawn: as the reordering does, they
    integrate them out.
    """
    ordered = blocks_of if label_moves else plain_blocks_of
    if split_merge == 0:
        return ordered

    def with_moves(model: Mixture) -> tuple[Callable | Move, ...]:
        blocks = ordered(model)
        if not _may_split(model):
            return blocks
        first = concentration_and_weights if not model.weights.has_sticks else stick_decays
        place = blocks.index(REORDERING if REORDERING in blocks else first)
        return (*blocks[:place], split_merge_moves(split_merge), *blocks[place:])

    return with_moves


def _may_split(model: Mixture) -> bool:
    """Whether a component's parameters can be integrated out by themselves, as split-merge moves do."""
    prior = model.components
    return not prior.couples_components and not prior.is_incomplete and model.num_components > 1


def plain_blocks_of(model: Mixture) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep without label moves."""
    return tuple(block for block in blocks_of(model) if block is COMPLETING or not isinstance(block, Move))


def _weight_blocks(model: Mixture) -> tuple[Callable | Move, ...]:
    if not model.weights.has_sticks:
        return (concentration_and_weights,)
    concentration = (stick_concentration,) if model.has_random_concentration else ()
    return (*concentration, REORDERING, stick_decays)


# The algorithm


def init(key: Array, model: Mixture, x: Array, *, labels_of: Callable) -> MixtureGibbsState:
    """A state with labels from ``labels_of(key, num_rows, num_components)``, the rest at means given them."""
    x = copies_of(x)
    return _from_labels(key, labels_of(key, x.shape[0], model.num_components), model, x)


def _from_labels(key: Array, assignments: Array, model: Mixture, x: Array) -> MixtureGibbsState:
    """Labels, hyperparameters at their prior means, and the means of all else given both.

    The first sweep draws everything else again before it reads it, hyperparameters apart.
    """
    values, dtype = {"assignments": assignments}, jnp.result_type(float)
    if model.components.is_rounded:  # spread out: from equal cells a component would not widen
        values[ERRORS] = jax.random.uniform(jax.random.fold_in(key, 1), x.shape, dtype) - 0.5
    values |= {n: v.astype(dtype) for n, v in expected_hyperparameters(model.components).items()}
    if model.has_random_concentration:
        values["concentration"] = jnp.asarray(model.concentration.mean, dtype)
    weights = stick_decays if model.weights.has_sticks else concentration_and_weights
    for block in (weights, component_parameters):
        place = 0
        while place < len(conditionals := block(values, *exact_rows(model, values, x))):
            site, conditional = list(conditionals.items())[place]
            if site not in values:
                values[site] = jnp.broadcast_to(conditional.mean, conditional.shape())
            place += 1
    return MixtureGibbsState(values)


def _dispersed_labels(key: Array, num_rows: int, num_components: int) -> Array:
    """Uniform labels over the first L components, L itself uniform on 1..K: chains that start far apart."""
    number_key, label_key = jax.random.split(key)
    number = jax.random.randint(number_key, (), 1, num_components + 1)
    return jnp.floor(jax.random.uniform(label_key, (num_rows,)) * number).astype(int)


def _one_cluster(key: Array, num_rows: int, num_components: int) -> Array:
    return jnp.zeros(num_rows, int)


def _spread_labels(key: Array, num_rows: int, num_components: int) -> Array:
    return jax.random.randint(key, (num_rows,), 0, num_components)


STARTS = {"random": _dispersed_labels, "one_cluster": _one_cluster, "spread": _spread_labels}


def start(key: Array, variables: Values, model: Mixture, x: Array, **options: object) -> MixtureGibbsState:
    """The state with given ``assignments`` (or drawn from ``responsibilities``), and further given sites."""
    if isinstance(x, Copies):  # which begin with the label of their row
        assignments = given_labels(key, variables, x.rows.shape[0])[x.row]
    else:
        assignments = given_labels(key, variables, x.shape[0])
    given = {name: value for name, value in with_stick_decays(variables).items() if name != "assignments"}
    values = _from_labels(key, assignments, model, copies_of(x)).values
    return MixtureGibbsState(
        {name: jnp.asarray(given.get(name, value), value.dtype) for name, value in values.items()}
    )


def _step(
    key: Array, state: MixtureGibbsState, model: Mixture, x: Array, *, blocks_of: Callable
) -> tuple[MixtureGibbsState, MixtureGibbsInfo]:
    """Run one sweep."""
    values, rows = state.values, with_padding(copies_of(x))
    if isinstance(x, PaddedRows):  # a label beyond all others has no part in any sum
        own = jnp.where(x.is_row, values["assignments"], model.num_components)
        values = {**values, "assignments": own}
    values = sweep(key, values, with_errors(blocks_of(model), model), model, rows)
    log_joint = sum_of_rows(model.log_likelihood(values, rows), x) + log_prior(model, values, rows)
    num_occupied = jnp.sum(counts_of(values, model) > 0)
    return MixtureGibbsState(values), MixtureGibbsInfo(log_joint, num_occupied)


@cache
def algorithm_of(blocks_of: Callable = blocks_of, init_labels: str = "random") -> Algorithm:
    """The sampler whose sweep has the blocks ``blocks_of(model)``."""
    return Algorithm(partial(init, labels_of=STARTS[init_labels]), partial(_step, blocks_of=blocks_of))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, label_moves: bool, split_merge: int) -> Algorithm:
    """The sampler with a start strategy, with or without label moves and split-merge moves.

    It does not adapt, so the length of the warm-up does not matter to it.
    """
    return algorithm_of(blocks_with(split_merge, label_moves), strategy)


def position(state: MixtureGibbsState, model: Mixture, keep_rows: bool = True) -> dict[str, Array]:
    """Values kept at every draw: all but errors, and the number of occupied components.

    Labels only if ``keep_rows``.
    """
    kept = {name: value for name, value in state.values.items() if name != ERRORS}
    kept |= answer_of(model, "derived", state.values)
    return {name: value for name, value in kept.items() if keep_rows or name != "assignments"}


def for_steps(model: Mixture, data: tuple) -> tuple[Mixture, tuple]:
    """The rows, or their copies, in a bucket; not where holes have patterns or each row has a factor."""
    if model.components.is_incomplete or model.free_last_stick:
        return model, data
    return beside_rows(model, (copies_of(data[0]),))


def conclude(key: Array, draws: dict[str, Array], model: Mixture, data: tuple, keep_rows: bool) -> Outcome:
    """The draws as they are; of weighted rows with a label of each row in place of those of its copies."""
    (x,) = data
    if isinstance(x, Copies):
        draws = {name: value for name, value in draws.items() if name != "assignments"}
        if keep_rows:
            draws["assignments"] = draw_locals(key, draws, model, (x.rows,), True)["assignments"]
    return conclude_draws(key, draws, model, data, keep_rows)._replace(of_occupied=True)


BLOCK_DRAWS, MOST_LOOKS = 500, 20
SMALL, MEDIUM = 2**18, 2**20  # numbers that a sweep passes over
MOST_WORK = 2**33  # numbers that the sweeps of a chain pass over, each sweep `SMALL` more for its overhead
MOST_BYTES = 2**31  # of all draws


def to_convergence(model: Mixture, data: tuple, num_chains: int) -> dict[str, int]:
    """Draws at a time, sweeps per draw and the most looks at the draws, by the sizes of table and model.

    Large tables make a sweep dear and chains forget their start in fewer of them: two looks at least, which
    is what it takes to end.

    Args:
        model: the mixture, filled.
        data: the rows.
        num_chains: chains run side by side.
    """
    (x,) = data
    num_rows, num_features = x.shape
    has_matrices = any("feature_2" in dims for dims in model.components.parameter_dims.values())
    width = 1 + num_features + has_matrices * num_features**2
    numbers = num_rows * model.num_components * width
    thinning = 4 if numbers <= SMALL else 2 if numbers <= MEDIUM else 1
    by_work = MOST_WORK // ((numbers + SMALL) * thinning * BLOCK_DRAWS)
    by_bytes = MOST_BYTES // (8 * num_chains * BLOCK_DRAWS * (2 * model.num_components * width + num_rows))
    looks = max(2, min(MOST_LOOKS, by_work, by_bytes))
    return {"num_samples": BLOCK_DRAWS, "thinning": thinning, "max_looks": looks}


METHOD = Sampler(
    settings=Gibbs,
    strategies=tuple(STARTS),
    takes=frozenset({"weights"}),
    build=build,
    start=start,
    prepare=prepare,
    conclude=conclude,
    for_steps=for_steps,
    of_rows=(".values['assignments']", f".values['{ERRORS}']"),
    position={True: position, False: partial(position, keep_rows=False)}.get,
    options_for_modes=lambda model: {"split_merge": 4} if _may_split(model) else {},
    to_convergence=to_convergence,
)


def hyperparameter_blocks(components: ComponentPrior) -> tuple[Callable, ...]:
    """One block for each hyperparameter that has a prior.

    Raises:
        ValueError: a hyperparameter has a prior that no conditional here is for.
    """
    if isinstance(components, Product):
        return tuple(
            of_group(number, block)
            for number, family in enumerate(components.families)
            for block in hyperparameter_blocks(family)
        )
    blocks = _BLOCKS_BY_COLUMN if isinstance(components, NormalGamma) else _BLOCKS
    missing = [name for name in components.hyperprior_sites() if name not in blocks]
    if missing:
        raise ValueError(f"the Gibbs sampler learns {', '.join(blocks)}; it has no update for {missing[0]}")
    return tuple(blocks[name] for name in components.hyperprior_sites())


@cache
def of_group(number: int, block: Callable) -> Callable:
    """The block of a hyperparameter of one group of a `Product`: that of a mixture of its columns alone.

    Args:
        number: of the group.
        block: of the group's family.

    Returns:
        The block, its sites with the group's number.
    """

    def of_columns(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
        product = cast(Product, model.components)
        family, columns = product.families[number], np.asarray(product.columns[number])
        names = (*family.parameter_dims, *family.hyperprior_sites().values())
        own = {name: values[f"{name}_{number}"] for name in names if f"{name}_{number}" in values}
        own["assignments"] = values["assignments"]
        rows = in_logs(x, product.logs)[:, columns]
        found = block(own, model.replaced(components=family), rows)
        return {f"{site}_{number}": conditional for site, conditional in found.items()}

    of_columns.__name__ = f"{block.__name__}_of_group_{number}"
    return of_columns


def expected_hyperparameters(components: ComponentPrior) -> dict[str, Array]:
    """The prior mean of every hyperparameter that has a prior, by site: the start of a chain."""
    sites = _sites(components).items()
    return {site: jnp.asarray(components.hyperparameter(name).mean) for name, site in sites}


# Gaussian families


def location(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The prior location of the means; conjugate."""
    prior, strength = model.components.loc, _numbers(values, model).mean_precision
    precisions = strength * _precisions(values, model) * _has_rows(values, model)[:, None, None]
    precision = prior.precision_matrix + jnp.sum(precisions, axis=0)
    pull = prior.precision_matrix @ prior.loc + jnp.einsum("kij,kj->i", precisions, values["locs"])
    mean, site = jnp.linalg.solve(precision, pull), _sites(model.components)["loc"]
    return {site: dist.MultivariateNormal(mean, precision_matrix=precision, validate_args=False)}


def mean_precision(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The number of rows that the prior location is worth; conjugate."""
    prior, has_rows = model.components.mean_precision, _has_rows(values, model)
    distance = values["locs"] - _numbers(values, model).loc
    squares = jnp.einsum("ki,kij,kj->k", distance, _precisions(values, model), distance)
    shape = prior.concentration + 0.5 * distance.shape[-1] * jnp.sum(has_rows)
    rate = prior.rate + 0.5 * jnp.sum(has_rows * squares)
    return {_sites(model.components)["mean_precision"]: dist.Gamma(shape, rate)}


def inverse_scale_matrix(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The inverse of the Wishart prior's scale matrix; conjugate."""
    components, precisions = cast(GaussianWishart, model.components), _precisions(values, model)
    prior = components.scale_matrix
    drawn = _has_rows(values, model) if "precisions" in values else jnp.ones(1, precisions.dtype)
    degrees = prior.concentration + jnp.sum(drawn) * components.degrees_of_freedom
    rate_matrix = prior.rate_matrix + jnp.einsum("k,kij->ij", drawn, precisions)
    return {
        _sites(components)["scale_matrix"]: dist.Wishart(
            degrees, rate_matrix=rate_matrix, validate_args=False
        )
    }


def _precisions(values: Values, model: Mixture) -> Array:
    """Precision of every component, shape (num_components, D, D); one that all share has one entry."""
    if "precisions" in values:
        return values["precisions"]
    if "shared_precision" in values:
        return values["shared_precision"][None]
    return symmetric_inverse(jnp.asarray(cast(GaussianKnownCovariance, model.components).covariance))[None]


# Gaussian families without correlations


def column_locations(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The prior location of each column's means; conjugate."""
    prior, strength = model.components.loc, _numbers(values, model).mean_precision
    precisions = strength * _column_precisions(values) * _has_rows(values, model)[:, None]
    precision = 1 / prior.variance + jnp.sum(precisions, axis=0)
    pull = prior.loc / prior.variance + jnp.sum(precisions * values["locs"], axis=0)
    return {_sites(model.components)["loc"]: dist.Normal(pull / precision, 1 / jnp.sqrt(precision))}


def column_mean_precisions(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The number of cells that each column's prior location is worth; conjugate."""
    prior, has_rows = model.components.mean_precision, _has_rows(values, model)
    distance = values["locs"] - _numbers(values, model).loc
    shape = prior.concentration + 0.5 * jnp.sum(has_rows)
    squares = _column_precisions(values) * distance**2
    rate = prior.rate + 0.5 * jnp.sum(has_rows[:, None] * squares, axis=0)
    return {_sites(model.components)["mean_precision"]: dist.Gamma(shape, rate)}


def precision_rates(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The rate of the precisions' gamma prior, by column or one for all; conjugate."""
    components, has_rows = cast(NormalGamma, model.components), _has_rows(values, model)
    prior = components.rate
    shape = prior.concentration + jnp.sum(has_rows) * components.shape
    rate = prior.rate + has_rows @ values["precisions"]
    return {_sites(components)["rate"]: dist.Gamma(shape, rate)}


def _column_precisions(values: Values) -> Array:
    """Precision of every component and column, shape (num_components, D) or (num_components, 1)."""
    precisions = values["precisions"]
    return precisions if precisions.ndim == 2 else precisions[:, None]


# Beta and Dirichlet families


def beta_concentration1(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The first parameter of each column's beta prior given the labels, then the probabilities given both."""
    return _beta_parameter("concentration1", "concentration0", values, model, x)


def beta_concentration0(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The second parameter of each column's beta prior given the labels, then the probabilities."""
    return _beta_parameter("concentration0", "concentration1", values, model, x)


def dirichlet_concentration(values: Values, model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The parameters of the Dirichlet prior given the labels, coupled by their sum; then probabilities."""
    components = cast(CategoricalDirichlet | MultinomialDirichlet, model.components)
    prior, site = components.concentration, _sites(components)["concentration"]
    counts = _observed(("concentration",), values, model, x)[0]
    lengths = jnp.sum(counts, axis=0)

    def log_density(value: Array, counts: Array, shape: Array, rate: Array) -> Array:
        own = jnp.asarray(value)[..., None]
        evidence = jnp.sum(gammaln(own + counts) - gammaln(own), axis=-1)
        return evidence + dist.Gamma(shape, rate).log_prob(value)

    def log_density_of_sum(total: Array) -> Array:
        return jnp.sum(gammaln(total) - gammaln(total + lengths))

    arguments = (counts, *_gamma_parameters(prior, values[site]))
    slices = PositiveSlices(log_density, values[site], arguments, log_density_of_sum)
    return {site: slices, **component_parameters(values, model, x)}


def _beta_parameter(
    own: str, other: str, values: Values, model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    prior, site = getattr(model.components, own), _sites(model.components)[own]
    rival = jnp.asarray(getattr(_numbers(values, model), other))

    def log_density(
        value: Array, mine: Array, others: Array, rival: Array, shape: Array, rate: Array
    ) -> Array:
        value, rival = jnp.asarray(value), jnp.asarray(rival)
        evidence = _log_beta(value[..., None] + mine, rival[..., None] + others)
        evidence = jnp.sum(evidence - _log_beta(value, rival)[..., None], axis=-1)
        return evidence + dist.Gamma(shape, rate).log_prob(value)

    arguments = (*_observed((own, other), values, model, x), rival, *_gamma_parameters(prior, values[site]))
    slices = PositiveSlices(log_density, values[site], arguments)
    return {site: slices, **component_parameters(values, model, x)}


def _observed(names: tuple[str, ...], values: Values, model: Mixture, x: Array) -> tuple[Array, ...]:
    """What the rows of each component add to the parameters named, shape (num_features, num_components)."""
    statistics = model.components.statistics(x, values["assignments"], model.num_components)
    ones = {name: jnp.ones_like(getattr(_numbers(values, model), name)) for name in names}
    added = model.components.with_hyperparameters(values).replaced(**ones).posterior(statistics)
    return tuple((getattr(added, name) - 1.0).T for name in names)


def _gamma_parameters(prior: dist.Gamma, like: Array) -> tuple[Array, Array]:
    return jnp.broadcast_to(prior.concentration, like.shape), jnp.broadcast_to(prior.rate, like.shape)


# Shared


def _sites(components: ComponentPrior) -> dict[str, str]:
    return components.hyperprior_sites()


def _numbers(values: Values, model: Mixture) -> ComponentPrior:
    """The component prior with the current numbers in place of its hyperpriors."""
    return model.components.with_hyperparameters(values)


def _has_rows(values: Values, model: Mixture) -> Array:
    """One for every component with rows, zero for the others, shape (num_components,), as floats."""
    return (counts_of(values, model) > 0).astype(jnp.result_type(float))


_BLOCKS_BY_COLUMN = {
    "loc": column_locations,
    "mean_precision": column_mean_precisions,
    "rate": precision_rates,
}
_BLOCKS = {
    "loc": location,
    "mean_precision": mean_precision,
    "scale_matrix": inverse_scale_matrix,
    "concentration1": beta_concentration1,
    "concentration0": beta_concentration0,
    "concentration": dirichlet_concentration,
}
