r"""Blocked Gibbs sampling for finite and (truncated) Dirichlet-process mixtures.

A sweep draws, in this order (Yu 2006, sections 2.2.1 and 3.3; the conditionals of the concentration are not
given there)

* Dirichlet weights: the concentration given the labels, with the weights integrated out, by slice sampling,

  .. math::
      p(\alpha \mid c) \propto p(\alpha) \frac{\Gamma(\alpha)}{\Gamma(\alpha + N)}
      \prod_k \frac{\Gamma(\alpha/K + n_k)}{\Gamma(\alpha/K)},

  and at once :math:`\pi \mid \alpha, c \sim \mathrm{Dirichlet}(\alpha/K + n_k)`; the two are one block.
  (Escobar and West's update is that of the infinite model, not of this one.)
* stick-breaking: :math:`\alpha \mid V \sim \mathrm{Gamma}(a + M, b - \sum_j \log(1 - V_j))` over the M
  random sticks, then
  :math:`V_j \mid \alpha, c \sim \mathrm{Beta}(1 + n_j, \alpha + \sum_{l>j} n_l)`;
* components: :math:`\Lambda_k \mid c, x` with the mean integrated out, then
  :math:`\mu_k \mid \Lambda_k, c, x`;
* labels: :math:`p(c_i = k \mid \cdot) \propto \pi_k\, p(x_i \mid \theta_k)`.

Hyperparameters of the component prior that have a prior themselves are drawn first
(`inference.methods.mixture.gibbs_hyperparameters`). With stick-breaking weights the components are put in a new order before
the sticks are drawn (`inference.methods.mixture.label_moves`), without which the chain does not mix;
``label_moves=False`` leaves that out.

A sweep costs O(N K D^2). The recorded log joint has the labels summed out, as in NUTS on the same program,
so that traces compare. Each conditional is a function of the current values that returns NumPyro
distributions: what is checked is what is drawn from.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from inference.algorithm import Algorithm, Sampler, conclude_draws
from inference.numerics.densities import log_prior
from inference.methods.mixture.gibbs_hyperparameters import expected_hyperparameters, hyperparameter_blocks
from inference.methods.mixture.label_moves import reorder_components
from inference.numerics.slice_sampling import PositiveSlice
from inference.methods.gibbs_sweep import Move, conditionals_among, sweep
from inference.methods.mixture.starts import given_labels
from zoo.argument_checks import check_flag
from zoo.mixture import Mixture

__all__ = [
    "METHOD",
    "MixtureGibbsInfo",
    "MixtureGibbsState",
    "algorithm_of",
    "blocks_of",
    "component_parameters",
    "concentration_and_weights",
    "labels",
    "plain_blocks_of",
    "stick_concentration",
    "stick_fractions",
]


class MixtureGibbsState(NamedTuple):
    """Current values of every latent site of ``model.explicit``, in constrained space.

    Attributes:
        values: site name to value.
    """

    values: dict[str, Array]


class MixtureGibbsInfo(NamedTuple):
    """What is recorded of a sweep.

    Attributes:
        objective: log joint density of data and parameters, labels summed out, in nats.
        num_occupied: components with at least one row.
    """

    objective: Array
    num_occupied: Array


def counts_of(values: Mapping[str, Array], model: Mixture) -> Array:
    """Rows per component, shape (num_components,), as floats."""
    return jnp.bincount(values["assignments"], length=model.num_components).astype(float)


# The blocks: each gives the distributions it draws from, in order; a distribution may depend on sites before
# it in its block


def concentration_and_weights(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """Dirichlet weights: the concentration given the labels alone, then the weights given both."""
    counts = counts_of(values, model)
    if not model.has_random_concentration:
        return {"weights": model.weights.posterior(counts, model.concentration)}
    num_rows, num_components = x.shape[0], model.num_components

    def log_density(alpha: Array) -> Array:
        share = alpha / num_components
        allocation = (
            gammaln(alpha) - gammaln(alpha + num_rows) + jnp.sum(gammaln(share + counts) - gammaln(share))
        )
        return model.concentration.log_prob(alpha) + allocation

    alpha = values["concentration"]
    return {
        "concentration": PositiveSlice(log_density, alpha),
        "weights": model.weights.posterior(counts, alpha),
    }


def stick_concentration(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The concentration given the sticks; conjugate."""
    fractions = values["stick_fractions"]
    log_left = jnp.log(jnp.maximum(1.0 - fractions, jnp.finfo(fractions.dtype).tiny))
    prior = model.concentration
    return {
        "concentration": dist.Gamma(prior.concentration + fractions.shape[-1], prior.rate - jnp.sum(log_left))
    }


def stick_fractions(values: Mapping[str, Array], model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The sticks given labels and concentration."""
    alpha = values["concentration"] if model.has_random_concentration else model.concentration
    return {"stick_fractions": model.weights.posterior(counts_of(values, model), alpha)}


def component_parameters(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The parameters of the components given labels and data."""
    statistics = model.components.statistics(x, values["assignments"], model.num_components)
    prior = model.components.with_hyperparameters(values)
    return prior.posterior(statistics).conditionals(values)


def labels(values: Mapping[str, Array], model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The labels given weights and parameters."""
    return model.local_conditionals(values, x)


REORDERING = Move(reorder_components)


def blocks_of(model: Mixture) -> tuple[Callable | Move, ...]:
    """The blocks of a sweep, in order.

    Sticks and parameters follow the reordering at once: it integrates them out. So do the hyperparameters
    with the parameters of components without rows, which nothing reads before all are drawn again.
    """
    return (*hyperparameter_blocks(model.components), *_weight_blocks(model), component_parameters, labels)


def plain_blocks_of(model: Mixture) -> tuple[Callable, ...]:
    """The same without label moves."""
    return conditionals_among(blocks_of(model))


def _weight_blocks(model: Mixture) -> tuple[Callable | Move, ...]:
    if not model.weights.has_sticks:
        return (concentration_and_weights,)
    concentration = (stick_concentration,) if model.has_random_concentration else ()
    return (*concentration, REORDERING, stick_fractions)


# The algorithm


def init(key: Array, model: Mixture, x: Array, *, labels_of: Callable) -> MixtureGibbsState:
    """A state whose labels come from ``labels_of(key, num_rows, num_components)``.

    Everything else drawn given them.
    """
    label_key, key = jax.random.split(key)
    return _from_labels(key, labels_of(label_key, x.shape[0], model.num_components), model, x)


def _from_labels(key: Array, assignments: Array, model: Mixture, x: Array) -> MixtureGibbsState:
    values = {"assignments": assignments}
    dtype = jnp.result_type(float)
    values |= {n: v.astype(dtype) for n, v in expected_hyperparameters(model.components).items()}
    if model.weights.has_sticks:
        values["stick_fractions"] = jnp.full(model.weights.num_sticks, 0.5, dtype)
    if model.has_random_concentration:
        values["concentration"] = jnp.asarray(model.concentration.mean, dtype)
    blocks = (*conditionals_among(_weight_blocks(model)), component_parameters)
    return MixtureGibbsState(sweep(key, values, blocks, model, x))


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


def start(
    key: Array, variables: Mapping[str, Array], model: Mixture, x: Array, **options: Any
) -> MixtureGibbsState:
    """The state with given ``assignments`` (or drawn from given ``responsibilities``).

    Further given sites are kept, others drawn.
    """
    state_key, label_key = jax.random.split(key)
    assignments = given_labels(label_key, variables, x.shape[0])
    values = _from_labels(state_key, assignments, model, x).values
    return MixtureGibbsState(
        {name: jnp.asarray(variables.get(name, value), value.dtype) for name, value in values.items()}
    )


def _step(
    key: Array, state: MixtureGibbsState, model: Mixture, x: Array, *, blocks_of: Callable
) -> tuple[MixtureGibbsState, MixtureGibbsInfo]:
    """One sweep."""
    values = sweep(key, state.values, blocks_of(model), model, x)
    log_joint = jnp.sum(model.log_likelihood(values, x)) + log_prior(model, values, x)
    num_occupied = jnp.sum(counts_of(values, model) > 0)
    return MixtureGibbsState(values), MixtureGibbsInfo(log_joint, num_occupied)


@cache
def algorithm_of(blocks_of: Callable = blocks_of, init_labels: str = "random") -> Algorithm:
    """The sampler whose sweep has the blocks that ``blocks_of(model)`` gives."""
    return Algorithm(partial(init, labels_of=STARTS[init_labels]), partial(_step, blocks_of=blocks_of))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, label_moves: bool) -> Algorithm:
    """The sampler with a start strategy, with or without label moves.

    It does not adapt, so the length of the warm-up does not matter to it.

    Raises:
        TypeError: ``label_moves`` is not a boolean.
    """
    check_flag("label_moves", label_moves)
    return algorithm_of(blocks_of if label_moves else plain_blocks_of, strategy)


def position(state: MixtureGibbsState, model: Mixture) -> dict[str, Array]:
    """What is kept of a draw.

    All values, labels in the smallest type, and the number of occupied components.
    """
    return state.values | model.derived(state.values)


def position_without_rows(state: MixtureGibbsState, model: Mixture) -> dict[str, Array]:
    """The same without the labels, for data too large to keep them."""
    return {name: value for name, value in position(state, model).items() if name != "assignments"}


METHOD = Sampler(
    options={"label_moves": True},
    strategies=tuple(STARTS),
    build=build,
    start=start,
    conclude=conclude_draws,
    position={True: position, False: position_without_rows}.get,
)
