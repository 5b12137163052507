r"""Gibbs sampling for exponential-family PCA with Bernoulli, binomial or Gaussian cells.

A sweep draws, each from its exact conditional given the rest and the Polya-Gamma variables of logistic cells
(`inference.gibbs.quadratic_cells`; Gaussian cells need none):

* the Polya-Gamma variable of every cell given its natural parameter;
* the latents of each row: normal with precision
  :math:`\sum_d \omega_{nd} v_d v_d^T + I/\sigma^2`;
* loadings and mean of each column together, the regression on [u, 1];
* the precision of each latent's loadings (``ard=True``), gamma, and an unknown noise variance, inverse gamma.

Then, unless ``moves=False``, latents and means are shifted and every latent rescaled along directions in
which no natural parameter changes (`inference.gibbs.projection_moves`).

The joint prior's kernel is a binomial pseudo-count, so it needs no more than a Polya-Gamma variable with a
fractional count; what that lacks of being exact is taken care of by an acceptance step for every row and
column (``acceptance_rate``; hardly ever below 0.99), so the draws are exact for every beta below 1.

A sweep costs O(N D K^2), all rows at once and then all columns. Other families have no such augmentation:
NUTS serves them.

Reference: Polson, Scott and Windle (2013); Virtanen (2010), section 6.1 for what it replaces.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Method, Outcome
from inference.gibbs.projection_moves import common_shift, rescaling
from inference.gibbs.quadratic_cells import (
    QuadraticCells,
    columns_given,
    columns_with_noise,
    draw_precisions,
    is_logistic,
    is_quadratic,
    log_lacking,
    quadratic_cells,
    rows_given,
)
from inference.programs import log_densities
from zoo.epca import EPCA
from zoo.joint_prior import balanced_variance
from zoo.model import in_current_precision

__all__ = ["METHOD", "EPCAGibbsInfo", "EPCAGibbsState", "algorithm_of", "cells_of", "columns", "latents"]


class EPCAGibbsState(NamedTuple):
    """Current values of every latent site of the program, in constrained space.

    Attributes:
        values: site name to value.
        acceptance_rate: share of rows and columns whose draw was kept in the last sweep.
    """

    values: dict[str, Array]
    acceptance_rate: Array


class EPCAGibbsInfo(NamedTuple):
    """What is recorded of a sweep.

    Attributes:
        objective: log density of data and latent sites in the program, nats.
    """

    objective: Array


# The blocks, given values of the sites and ``cell_precisions``


def cells_of(values: Mapping[str, Array], model: EPCA, x: Array) -> QuadraticCells:
    """The coefficients of every cell at the current noise variance."""
    prior = in_current_precision(model)
    family = prior.family
    if "noise_variance" in values:
        family = family.with_noise(values["noise_variance"])
    return quadratic_cells(family, x, prior.beta, prior.conjugate)


def latents(values: Mapping[str, Array], model: EPCA, x: Array) -> dict[str, dist.Distribution]:
    """The latents of all rows."""
    linear = cells_of(values, model, x).linear
    own = (values["loadings"], values["loc"], 1 / _variance(model))
    return {"latents": rows_given(linear, values["cell_precisions"], *own)}


def columns(values: Mapping[str, Array], model: EPCA, x: Array) -> dict[str, dist.Distribution]:
    """Loadings, their mean integrated out, and mean of every column."""
    linear = cells_of(values, model, x).linear
    ridges = (_loading_precision(values, model), 1 / in_current_precision(model).loc_variance)
    loadings, loc_given = columns_given(linear, values["cell_precisions"], values["latents"], *ridges)
    return {"loadings": loadings.to_event(1), "loc": loc_given(values["loadings"]).to_event(1)}


def relevance(values: Mapping[str, Array], model: EPCA, x: Array) -> dict[str, dist.Distribution]:
    """The precision of each latent's loadings."""
    prior, w = in_current_precision(model), values["loadings"]
    rate = prior.ard_rate + jnp.sum(w**2, axis=0) / (2 * _variance(model))
    return {"loading_precision": dist.Gamma(prior.ard_concentration + w.shape[0] / 2, rate).to_event(1)}


def noise(values: Mapping[str, Array], model: EPCA, x: Array) -> dict[str, dist.Distribution]:
    """The noise variance of Gaussian cells."""
    columns = jnp.asarray(columns_with_noise(model.family, x.shape[1]))
    away = (x - model.natural_params(values))[:, columns]
    count, squares = jnp.sum(~jnp.isnan(away)), jnp.nansum(away**2)
    return {"noise_variance": dist.InverseGamma(1.0 + count / 2, 1.0 + squares / 2)}


def _variance(model: EPCA) -> Array:
    prior = in_current_precision(model)
    return balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)


def _loading_precision(values: Mapping[str, Array], model: EPCA) -> Array:
    return values.get("loading_precision", 1.0) / _variance(model)


# The algorithm


def init(key: Array, model: EPCA, x: Array) -> EPCAGibbsState:
    """The model's own starting point."""
    return EPCAGibbsState(model.starting_point(key, x), jnp.ones(()))


def start(
    key: Array, variables: Mapping[str, Array], model: EPCA, x: Array, **options: Any
) -> EPCAGibbsState:
    """The state at given values of sites; those that are not given are as in a fresh start."""
    fresh = init(key, model, x)
    values = {name: jnp.asarray(variables.get(name, old), old.dtype) for name, old in fresh.values.items()}
    for name, old in fresh.values.items():
        if values[name].shape != old.shape:
            raise ValueError(f"init: {name} must have shape {old.shape}; got {values[name].shape}")
    return fresh._replace(values=values)


def _step(
    key: Array, state: EPCAGibbsState, model: EPCA, x: Array, *, moves: bool
) -> tuple[EPCAGibbsState, EPCAGibbsInfo]:
    """One sweep."""
    keys = jax.random.split(key, 7)
    cells, theta = cells_of(state.values, model, x), model.natural_params(state.values)
    precisions = cells.precision
    if is_logistic(model.family):
        precisions = draw_precisions(keys[0], cells, theta, has_fractions=_has_fractions(model))
    lacking = log_lacking(cells, theta) if _has_fractions(model) else None
    values, rest = dict(state.values) | {"cell_precisions": precisions}, (cells, model, x)
    values, lacking, rows = _draw_block(keys[1], latents, values, lacking, *rest, axis=1)
    values, lacking, cols = _draw_block(keys[2], columns, values, lacking, *rest, axis=0)
    del values["cell_precisions"]
    for block, name, own in ((relevance, "loading_precision", keys[3]), (noise, "noise_variance", keys[4])):
        if name in values:
            values[name] = block(values, model, x)[name].sample(own)
    if moves:
        values = _move(keys[5:], values, model)
    objective = sum(log_densities(model, (x,), values).values())
    return EPCAGibbsState(values, (rows + cols) / 2), EPCAGibbsInfo(objective)


def _draw_block(
    key: Array,
    block: Callable,
    values: dict[str, Array],
    lacking: Array | None,
    cells: QuadraticCells,
    model: EPCA,
    x: Array,
    *,
    axis: int,
) -> tuple[dict[str, Array], Array | None, Array]:
    """A block drawn given the cells' precisions, what its cells lack, and what share of it was kept.

    ``lacking`` is None where counts are whole; else each row (axis 1) or column (axis 0) is kept with the
    probability that makes the draw exact.
    """
    draw_key, accept_key = jax.random.split(key)
    proposed = dict(values)
    names = tuple(block(values, model, x))
    for place, name in enumerate(names):
        conditional = block(proposed, model, x)[name]
        proposed[name] = conditional.sample(jax.random.fold_in(draw_key, place))
    if lacking is None:
        return proposed, None, jnp.ones(())
    new = log_lacking(cells, model.natural_params(proposed))
    gain = jnp.sum(new - lacking, axis=axis)
    keep = gain > -jax.random.exponential(accept_key, gain.shape, gain.dtype)
    for name in names:
        where = keep.reshape(-1, *[1] * (proposed[name].ndim - 1))
        proposed[name] = jnp.where(where, proposed[name], values[name])
    kept_cells = jnp.expand_dims(keep, axis)
    return proposed, jnp.where(kept_cells, new, lacking), jnp.mean(keep, dtype=gain.dtype)


def _move(keys: Array, values: dict[str, Array], model: EPCA) -> dict[str, Array]:
    """Shift, then rescale."""
    z, w, loc, own = values["latents"], values["loadings"], values["loc"], 1 / _variance(model)
    delta = common_shift(keys[0], z, w, loc, own, 1 / in_current_precision(model).loc_variance)
    z, loc = z + delta, loc - w @ delta
    scale = rescaling(keys[1], z, w, own, _loading_precision(values, model))
    return values | {"latents": z * scale, "loadings": w / scale, "loc": loc}


def _has_fractions(model: EPCA) -> bool:
    return is_logistic(model.family) and model.has_kernel


@cache
def algorithm_of(moves: bool = True) -> Algorithm:
    """The sampler with or without moves."""
    return Algorithm(init, partial(_step, moves=moves))


ALGORITHM = algorithm_of()


def build(init: str, num_warmup: int, moves: bool) -> Algorithm:
    """The sampler; it does not adapt."""
    return algorithm_of(moves)


def check(model: EPCA, *, moves: Any) -> None:
    """Raise ValueError if the family has no conjugate sweep, TypeError if ``moves`` is not a boolean."""
    if not isinstance(moves, bool):
        raise TypeError(f"moves must be True or False; got {moves!r}")
    if not is_quadratic(model.family):
        raise ValueError(
            f"gibbs needs Gaussian, Bernoulli or binomial cells, whose conditionals are normal given "
            f"Polya-Gamma variables; {type(model.family).__name__} has no such form: use nuts"
        )


def position(state: EPCAGibbsState, model: EPCA) -> dict[str, Any]:
    """What is kept of a draw."""
    return {"values": state.values, "stats": {"acceptance_rate": state.acceptance_rate}}


def conclude(key: Array, draws: dict[str, Any], model: EPCA, data: tuple, keep_rows: bool) -> Outcome:
    """The draws as they are."""
    return Outcome(posterior=draws["values"], sample_stats=draws["stats"])


METHOD = Method(
    kind="sampling",
    options={"moves": True},
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
    position=lambda keep_rows: position,
    check=check,
)
