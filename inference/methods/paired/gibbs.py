r"""Gibbs sampling for `zoo.Paired`: Polya-Gamma Gibbs of the low-rank program, GiBECCA of the full one.

``specific="low_rank"``: `inference.methods.epca.gibbs`, for Gaussian, Bernoulli and binomial cells and
mixed tables of them, every beta below 1. ``specific="full_covariance"``: GiBECCA (Virtanen 2010, 6.2.3),
corrected, for every family without cut points.

GiBECCA
-------
A sweep draws, view by view and then for all views:

* the noisy natural parameters of each row, :math:`\theta_n \sim N(m_n, \Psi)` times the likelihood of the
  row's cells, by one elliptical slice-sampling step (Murray, Adams and MacKay 2010), whole rows at once; of
  Gaussian views, whose cells are the natural parameters, missing cells from their normal conditional;
* loadings and mean together: in the eigenvectors of Psi the columns of :math:`[V, \mu]` are independent
  regressions on [u, 1], because their prior is spherical;
* the precision of the view, Wishart with :math:`\nu + N` degrees and rate :math:`S + R^T R`, R the residuals;
* the latents of all rows, normal with the common precision :math:`\sum_v V_v^T \Psi_v^{-1} V_v + I/\sigma^2`;
* the loadings' precisions, and the moves of `inference.methods.epca.gibbs`.

Corrections of the printed algorithm 2. It draws the mean from its conditional with the latents integrated
out, and then uses the old latents: here every draw is given the current values of the others. It accepts or
rejects single entries of a row proposed from the whole of Psi, which is right for a diagonal Psi only: here a
row moves as a whole. The printed covariance of a loading is its precision. With binary cells the scale of Psi
is hardly identified, and the chain moves slowly; the low-rank program mixes much better.

A sweep costs O(N D^2 + D^3) for each view.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm
from inference.methods.epca import gibbs as projections
from inference.methods.epca.gibbs import Conditionals, GibbsInfo, GibbsState, flat_moves, relevance
from inference.methods.epca.quadratic_cells import CanonicalNormal, columns_given
from inference.methods.epca.views import prior_variance
from inference.numerics.programs import log_densities
from zoo.model import in_current_precision
from zoo.paired import Paired
from zoo.shapes import Values


def _step(
    key: Array, state: GibbsState, model: Paired, *data: Array, moves: bool
) -> tuple[GibbsState, GibbsInfo]:
    """Run one sweep of the sampler of the model's program."""
    if model.specific == "low_rank":
        return projections.algorithm_of(moves).step(key, state, model, *data)
    values, objective = sweep_once(key, state.values, model, *data, moves=moves)
    return GibbsState(values, jnp.ones(())), GibbsInfo(objective)


@cache
def algorithm_of(moves: bool = True) -> Algorithm:
    """The sampler with or without moves."""
    return Algorithm(projections.init, partial(_step, moves=moves))


ALGORITHM = algorithm_of()


def build(strategy: str, num_warmup: int, moves: bool) -> Algorithm:
    """Build the sampler, which does not adapt."""
    return algorithm_of(moves)


def check(model: Paired, settings: Any) -> None:
    """Raise ValueError if Gibbs does not suit the model."""
    if model.specific == "low_rank":
        projections.check(model, settings)
        return
    for family in model.families:
        if family.num_cut_points:
            raise ValueError(
                f"gibbs has no draw of the cut points of {type(family).__name__} cells; use nuts"
            )


METHOD = replace(projections.METHOD, build=build, check=check)


class Turned(dist.Distribution):
    """The distribution of a rotation times an array with independent rows.

    Args:
        base: with one batch dim of rows; its event a row or a number.
        rotation: orthogonal, shape (num_rows, num_rows).
    """

    support = dist.constraints.real
    pytree_data_fields = ("base", "rotation")

    def __init__(self, base: dist.Distribution, rotation: Array) -> None:
        self.base, self.rotation = base, rotation
        super().__init__((), base.batch_shape + base.event_shape)

    def log_prob(self, value: Array) -> Array:
        """The log density in nats."""
        return jnp.sum(self.base.log_prob(self.rotation.T @ value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw once.

        Raises:
            ValueError: several draws are asked for.
        """
        if sample_shape:
            raise ValueError("a Gibbs draw is one value; sample_shape must be ()")
        return self.of_base(self.base.sample(key))

    def of_base(self, value: Array) -> Array:
        """The rotation times a value of the base."""
        return self.rotation @ value


def _theta(values: Values, model: Paired, data: tuple[Array, ...], v: int) -> Array:
    """The natural parameters of a view, or the completed cells of a Gaussian view."""
    if f"completed_{v}" in values:
        return values[f"completed_{v}"]
    return values[f"natural_params_{v}"] if not model.has_dense_rows(v) else data[v]


# Conditionals


def columns(values: Values, model: Paired, *data: Array) -> Conditionals:
    """The conditionals of the loadings, the mean integrated out, and of the mean of every view."""
    conditionals = {}
    for v in range(len(data)):
        loadings, loc_given = _columns_of(values, model, data, v)
        conditionals[f"loadings_{v}"] = loadings
        conditionals[f"loc_{v}"] = loc_given(values[f"loadings_{v}"])
    return conditionals


def _columns_of(
    values: Values, model: Paired, data: tuple[Array, ...], v: int
) -> tuple[dist.Distribution, Callable]:
    """The conditional of the loadings of one view, and a function from them to that of the mean."""
    ridge = jnp.broadcast_to(
        values.get("loading_precision", 1.0) / prior_variance(model), (model.num_latents,)
    )
    eigenvalues, rotation = jnp.linalg.eigh(values[f"specific_precision_{v}"])
    theta = _theta(values, model, data, v) @ rotation
    weights = jnp.broadcast_to(eigenvalues, theta.shape)
    loadings, loc_given = columns_given(
        weights * theta, weights, values["latents"], ridge, 1 / in_current_precision(model).loc_variance
    )
    return Turned(loadings, rotation), lambda drawn: Turned(loc_given(rotation.T @ drawn), rotation)


def precisions(values: Values, model: Paired, *data: Array) -> Conditionals:
    """The conditional of the inverse covariance of every view."""
    prior, conditionals = in_current_precision(model), {}
    for v in range(len(data)):
        away = _theta(values, model, data, v) - model.mean_theta(v, values).whole()
        rate = prior.covariance_scale * jnp.eye(away.shape[1]) + away.T @ away
        degrees = away.shape[1] + prior.covariance_degrees + away.shape[0]
        conditionals[f"specific_precision_{v}"] = dist.Wishart(degrees, rate_matrix=rate, validate_args=False)
    return conditionals


def latents(values: Values, model: Paired, *data: Array) -> Conditionals:
    """The conditional of the latents of all rows."""
    precision, linear = jnp.eye(model.num_latents) / prior_variance(model), 0.0
    for v in range(len(data)):
        weighted = values[f"specific_precision_{v}"] @ values[f"loadings_{v}"]
        precision += values[f"loadings_{v}"].T @ weighted
        linear += (_theta(values, model, data, v) - values[f"loc_{v}"]) @ weighted
    shape = (data[0].shape[0], *precision.shape)
    return {"latents": CanonicalNormal(linear, jnp.broadcast_to(precision, shape))}


# Moves


def move_theta(key: Array, values: dict[str, Array], model: Paired, *data: Array) -> dict[str, Array]:
    """Move the noisy natural parameters of all rows of every view by elliptical slice sampling."""
    prior, moved = in_current_precision(model), dict(values)
    weights = jnp.broadcast_to(prior.view_weights, (len(data),))
    for v, y in enumerate(data):
        name = f"natural_params_{v}"
        if name not in values:
            continue
        factor = jnp.linalg.cholesky(model.specific_covariance(v, values))

        def height(theta: Array, row: Array, v: int = v) -> Array:
            at = {**values, f"natural_params_{v}": theta[None]}
            return weights[v] * prior.rows_of(v, at).log_prob(row[None])[0]

        keys = jax.random.split(jax.random.fold_in(key, v), len(y))
        mean = model.mean_theta(v, values).whole()
        moved[name] = jax.vmap(_elliptical_slice, (0, 0, 0, None, None, 0))(
            keys, values[name], mean, factor, height, y
        )
    return moved


def _elliptical_slice(
    key: Array, current: Array, mean: Array, factor: Array, height: Any, row: Array
) -> Array:
    """Take one step that leaves N(mean, factor factor') times e^height invariant."""
    direction_key, level_key, angle_key, key = jax.random.split(key, 4)
    other = factor @ jax.random.normal(direction_key, current.shape, current.dtype)
    level = height(current, row) - jax.random.exponential(level_key, (), current.dtype)
    own = current - mean

    def at(angle: Array) -> Array:
        return mean + own * jnp.cos(angle) + other * jnp.sin(angle)

    def outside(carry: tuple) -> Array:
        return height(at(carry[2]), row) < level

    def shrink(carry: tuple) -> tuple:
        low, high, angle, key = carry
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        key, draw = jax.random.split(key)
        return low, high, jax.random.uniform(draw, (), current.dtype, low, high), key

    angle = jax.random.uniform(angle_key, (), current.dtype, 0.0, 2 * jnp.pi)
    return at(jax.lax.while_loop(outside, shrink, (angle - 2 * jnp.pi, angle, angle, key))[2])


def completed_views(key: Array, values: Values, model: Paired, *data: Array) -> dict[str, Array]:
    """Draw the missing cells of Gaussian views from their conditionals, as ``completed_0``, ..."""
    found = {}
    for v, y in enumerate(data):
        if not model.has_dense_rows(v):
            continue
        precision, size = values[f"specific_precision_{v}"], y.shape[1]
        mean = model.mean_theta(v, values).whole()
        missing = jnp.isnan(y)
        away = jnp.where(missing, 0.0, y - mean)
        both = missing[:, :, None] & missing[:, None, :]
        own = CanonicalNormal(
            -jnp.where(missing, away @ precision, 0.0), jnp.where(both, precision, jnp.eye(size))
        )
        drawn = mean + own.sample(jax.random.fold_in(key, v))
        found[f"completed_{v}"] = jnp.where(missing, drawn, y)
    return found


def sweep_once(
    key: Array, values: dict[str, Array], model: Paired, *data: Array, moves: bool = True
) -> tuple[dict[str, Array], Array]:
    """Run a sweep, and return the values of the sites and their log joint density in nats."""
    keys, names = jax.random.split(key, 8), tuple(values)
    values = move_theta(keys[0], values, model, *data)
    values = values | completed_views(keys[1], values, model, *data)
    for v in range(len(data)):
        first, second = jax.random.split(jax.random.fold_in(keys[2], v))
        loadings, loc_given = _columns_of(values, model, data, v)
        values[f"loadings_{v}"] = loadings.sample(first)
        values[f"loc_{v}"] = loc_given(values[f"loadings_{v}"]).sample(second)
    blocks = (precisions, latents) + ((relevance,) if "loading_precision" in values else ())
    for block, own in zip(blocks, keys[3:], strict=False):
        drawn = block(values, model, *data)
        for place, (name, conditional) in enumerate(drawn.items()):
            values[name] = conditional.sample(jax.random.fold_in(own, place))
    values = {name: values[name] for name in names}
    if moves:
        loading_precision = 1 / prior_variance(model) * values.get("loading_precision", 1.0)
        values = flat_moves(keys[6:], values, model, loading_precision)
    return values, sum(log_densities(model, data, values).values())
