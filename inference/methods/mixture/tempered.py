r"""Tempered sampling of mixtures: kernels made of the Polya urn and of the blocked Gibbs sampler.

Which function of the data is raised to the power beta is the kernel's choice, for the evidence at power 1 is
the same:

* ``kernel="collapsed_gibbs"``: the evidence of the partition, :math:`\prod_k L_k^\beta`, that is, every
  predictive density to the power beta. (A posterior given beta times the statistics would be tempered too,
  and freezes.) A hyperparameter of the components that has a prior is not conjugate under it: refused.
* ``kernel="gibbs"``: the likelihood given labels and parameters. Parameters are drawn given beta times the
  statistics, labels from :math:`\log \pi_k + \beta \log p(x_i \mid \theta_k)`, weights and concentration as
  ever, hyperparameters of the components given the parameters as ever or, where these are integrated out,
  given beta times the counts. Missing cells that are drawn (full covariances) would be drawn from the
  likelihood itself and not from its power: refused. Errors of cells recorded in steps are drawn from theirs.
* ``kernel="nuts"``: of `inference.methods.tempered.nuts`, labels summed out.

Split-merge moves run at every temperature: their launch and the sides they draw are functions of the family
alone, so that a family whose evidence is tempered has them as it stands.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.gibbs_sweep import sweep
from inference.methods.mixture import Tempered, collapsed_gibbs, gibbs
from inference.methods.mixture.powers import OfEvidence, OfLikelihood
from inference.methods.tempered import nuts
from inference.methods.tempered.sampler import TemperedKernel, check_evidence, drawn_from_prior, tempered
from inference.numerics.programs import log_prior
from inference.numerics.weighted_rows import Rows
from zoo.conjugate.mixture_rows import exact_rows
from zoo.mixture import Mixture


class TemperedMixtureInfo(NamedTuple):
    """Values recorded at every sweep.

    Attributes:
        objective: log joint density at power 1, as the kernel's sampler records it, in nats.
        num_occupied: components with rows at power 1.
        full: whether a temperature ran out of slots.
    """

    objective: Array
    num_occupied: Array
    full: Array


# The Polya urn


def urn_moves(
    key: Array,
    power: Array,
    state: collapsed_gibbs.CollapsedMixtureState,
    model: Mixture,
    x: Array,
    *,
    split_merge: int,
    **options: object,
) -> tuple[collapsed_gibbs.CollapsedMixtureState, Array]:
    """Split-merge moves under the evidence to a power."""
    raised = model.replaced(components=OfEvidence(model.components, power))
    return collapsed_gibbs.split_and_merge(key, state, raised, x, split_merge)[:2]


def urn_scan(
    key: Array,
    power: Array,
    state: collapsed_gibbs.CollapsedMixtureState,
    model: Mixture,
    x: Array,
    **options: Any,
) -> tuple[collapsed_gibbs.CollapsedMixtureState, Array]:
    """Labels row by row under the evidence to a power, and the concentration."""
    scan_key, concentration_key = jax.random.split(key)
    raised = model.replaced(components=OfEvidence(model.components, power))
    state, full = collapsed_gibbs.scan_labels(scan_key, state, raised, x)
    alpha = collapsed_gibbs.update_concentration(concentration_key, state, model, x)
    return state._replace(concentration=alpha), full


def urn_prior(
    key: Array, state: collapsed_gibbs.CollapsedMixtureState, model: Mixture, x: Array, **options: object
) -> tuple[collapsed_gibbs.CollapsedMixtureState, Array]:
    """A partition from the urn: each row joins an earlier one, or begins a cluster."""
    alpha_key, row_key, slot_key = jax.random.split(key, 3)
    alpha, num_slots = state.concentration, state.counts.shape[0]
    if model.has_random_concentration:
        alpha = model.concentration.sample(alpha_key).astype(alpha.dtype)
    places = jnp.arange(x.shape[0])
    level = jax.random.uniform(row_key, places.shape, alpha.dtype) * (alpha + places)
    leader = jnp.where(level < places, jnp.floor(level).astype(int), places)
    for _ in range(x.shape[0].bit_length()):  # to the row that began the cluster
        leader = leader[leader]
    begins = leader == places
    if model.weights.has_sticks:
        slots = jnp.cumsum(begins) - 1
    else:
        slots = jax.random.randint(slot_key, places.shape, 0, num_slots)
    labels = slots[leader].astype(state.labels.dtype)
    counts = jnp.zeros_like(state.counts).at[labels].add(1)
    full = model.weights.has_sticks & (jnp.sum(begins) >= num_slots)
    return state._replace(labels=labels, counts=counts, concentration=alpha), full


def urn_log_likelihood(state: collapsed_gibbs.CollapsedMixtureState, model: Mixture, x: Array) -> Array:
    """Log evidence of the partition."""
    sums = model.components.statistics(x, state.labels, state.counts.shape[0])
    return jnp.sum(model.components.log_evidence(sums))


def urn_info(state: collapsed_gibbs.CollapsedMixtureState, model: Mixture, x: Array) -> TemperedMixtureInfo:
    """The collapsed log joint, and the clusters."""
    objective = collapsed_gibbs.log_joint(state, model, x)
    return TemperedMixtureInfo(objective, jnp.sum(state.counts > 0), jnp.zeros((), bool))


# The blocked Gibbs sampler


def blocked_step(
    key: Array,
    power: Array,
    state: gibbs.MixtureGibbsState,
    model: Mixture,
    x: Array | Rows,
    *,
    split_merge: int,
    label_moves: bool,
    **options: object,
) -> tuple[gibbs.MixtureGibbsState, Array]:
    """The sweep of the blocked sampler under the likelihood to a power."""
    raised = model.replaced(components=OfLikelihood(model.components, power))
    blocks = gibbs.with_errors(gibbs.blocks_with(split_merge, label_moves)(model), model)
    values = sweep(key, state.values, blocks, raised, x)
    return gibbs.MixtureGibbsState(values), jnp.zeros((), bool)


def blocked_prior(
    key: Array, state: gibbs.MixtureGibbsState, model: Mixture, x: Array | Rows, **options: object
) -> tuple[gibbs.MixtureGibbsState, Array]:
    """All sites drawn from the program."""
    values = drawn_from_prior(key, model.explicit, state.values, x)
    return gibbs.MixtureGibbsState(values), jnp.zeros((), bool)


def blocked_log_likelihood(state: gibbs.MixtureGibbsState, model: Mixture, x: Array | Rows) -> Array:
    """Log density of the rows given labels, parameters and errors."""
    values = state.values
    model, x = exact_rows(model, values, x)
    sums = model.components.statistics(x, values["assignments"], model.num_components)
    return jnp.sum(jnp.where(sums == 0, 0.0, model.components.coefficients(values) * sums))


def blocked_info(state: gibbs.MixtureGibbsState, model: Mixture, x: Array | Rows) -> TemperedMixtureInfo:
    """The log joint with labels summed out, and the clusters."""
    values = state.values
    objective = jnp.sum(model.log_likelihood(values, x)) + log_prior(model, values, x)
    occupied = jnp.sum(gibbs.counts_of(values, model) > 0)
    return TemperedMixtureInfo(objective, occupied, jnp.zeros((), bool))


KERNELS: Mapping[str, TemperedKernel] = {
    "collapsed_gibbs": TemperedKernel(
        sampler=collapsed_gibbs.METHOD,
        steps=(urn_moves, urn_scan),
        prior=urn_prior,
        log_likelihood=urn_log_likelihood,
        info=urn_info,
    ),
    "gibbs": TemperedKernel(
        sampler=gibbs.METHOD,
        steps=(blocked_step,),
        prior=blocked_prior,
        log_likelihood=blocked_log_likelihood,
        info=blocked_info,
    ),
    "nuts": nuts.KERNEL,
}


def _why_not_collapsed(model: Mixture) -> str:
    """Why the urn does not temper a model exactly; empty where it does."""
    if sites := model.components.hyperprior_sites():
        return (
            f"{next(iter(sites))} has a prior, and given the evidence to a power it has no conditional to "
            "draw it from"
        )
    if model.components.is_incomplete:
        return "it takes complete rows under full covariances, and cells are missing"
    if model.components.is_rounded:
        return "it takes cells for exact, and with rounding= they stand for intervals"
    return ""


def default(model: Mixture) -> str:
    """The urn, or the blocked sampler where the urn does not temper the model."""
    return "gibbs" if _why_not_collapsed(model) else "collapsed_gibbs"


def check(model: Mixture, settings: Tempered) -> None:
    """Raise ValueError if the kernel does not temper the model exactly."""
    check_evidence(model)
    if settings.kernel == "collapsed_gibbs" and (why := _why_not_collapsed(model)):
        raise ValueError(f"kernel='collapsed_gibbs' does not temper this model: {why}; use kernel='gibbs'")
    if model.components.is_incomplete and settings.kernel != "nuts":
        raise ValueError(
            "the Gibbs kernels do not temper rows with missing cells under full covariances: cells are drawn "
            "given the likelihood itself, not its power; use components=NormalGamma(), whose columns are "
            "independent, or kernel='nuts'"
        )


METHOD = replace(tempered(KERNELS, Tempered, default), check=check)
