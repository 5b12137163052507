r"""Factors of a variational posterior of exponential-family PCA, their updates and the whole bound.

The posterior is approximated by :math:`\prod_n q(u_n) \prod_d q(v_d, \mu_d)` times q of the loadings'
precisions and of an unknown noise variance. Each factor in turn becomes the best given the others:

* logistic cells by their Polya-Gamma mean field, always at its best (`inference.variational.natural_cells`),
  and Gaussian cells are quadratic: normal factors in closed form;
* Poisson cells: a step of the natural gradient of the closed expectation for each row, then for each column,
  of which the best of several lengths (or none) is taken: the bound never falls, and where the expectation
  does not exist it is minus infinity, so no step leads there;
* gamma and inverse gamma factors in closed form.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, gammaln

from inference import polya_gamma
from inference.gibbs.quadratic_cells import quadratic_cells
from inference.variational.natural_cells import expected_exponential, expected_moments
from zoo.epca import EPCA
from zoo.exponential_family import Gaussian, Poisson
from zoo.joint_prior import balanced_variance
from zoo.model import in_current_precision

__all__ = ["EPCAPosterior", "bound", "noise_is_unknown", "update"]

STEP_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)


class EPCAPosterior(NamedTuple):
    """Parameters of q.

    Attributes:
        latents: means, shape (num_observations, num_latents).
        latents_covariance: shape (num_observations, num_latents, num_latents).
        columns: means of loadings and mean, shape (num_features, num_latents + 1).
        columns_covariance: shape (num_features, num_latents + 1, num_latents + 1).
        noise: concentration and rate of the noise variance, shape (2,).
        relevance: concentrations and rates of the loadings' precisions, shape (2, num_latents).
    """

    latents: Array
    latents_covariance: Array
    columns: Array
    columns_covariance: Array
    noise: Array
    relevance: Array


# The prior, and what cells add


def _variance(model: EPCA) -> Array:
    prior = in_current_precision(model)
    return balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)


def _columns_precision(state: EPCAPosterior, model: EPCA) -> Array:
    """E[prior precision] of [v_d, mu_d], shape (num_latents + 1,)."""
    relevance = state.relevance[0] / state.relevance[1] if model.ard else jnp.ones(model.num_latents)
    return jnp.append(relevance / _variance(model), 1 / in_current_precision(model).loc_variance)


def noise_is_unknown(model: EPCA) -> bool:
    """Whether a Gaussian noise variance is a site."""
    return isinstance(model.family, Gaussian) and model.family.noise_variance is None


def _coefficients(state: EPCAPosterior, model: EPCA, x: Array) -> tuple[Array, Array, Array]:
    """Linear, quadratic and logistic (or exponential) coefficients of every cell under q."""
    prior = in_current_precision(model)
    if isinstance(prior.family, Poisson):
        seen = jnp.where(jnp.isnan(x), 0.0, 1.0)
        lam, nu = (0.0, 0.0)
        if prior.conjugate is not None:
            lam, nu = prior.conjugate[..., 0], prior.conjugate[..., 1]
        linear, count = jnp.nan_to_num(x) + prior.beta * lam, seen + prior.beta * nu
        return linear, jnp.zeros_like(seen), count
    family = prior.family
    if noise_is_unknown(model):
        family = family.with_noise(state.noise[1] / state.noise[0])  # 1 / E[1 / phi]
    return tuple(quadratic_cells(family, x, prior.beta, prior.conjugate))


def _quadratic(state: EPCAPosterior, coefficients: tuple) -> Array:
    """The precision of every cell at the best Polya-Gamma factor."""
    _, precision, count = coefficients
    second = expected_moments(*state[:4])[1]
    return precision + polya_gamma.mean(count, jnp.sqrt(second))


# Updates of the normal factors


def _normal(linear: Array, precision: Array) -> tuple[Array, Array]:
    covariance = jnp.linalg.inv(precision)
    covariance = (covariance + jnp.swapaxes(covariance, -1, -2)) / 2
    return jnp.einsum("nij,nj->ni", covariance, linear), covariance


def _rows(state: EPCAPosterior, model: EPCA, coefficients: tuple) -> EPCAPosterior:
    """Q of all latents, quadratic cells."""
    linear, weights, k = coefficients[0], _quadratic(state, coefficients), model.num_latents
    v, loc = state.columns[:, :k], state.columns[:, k]
    outer = v[:, :, None] * v[:, None, :] + state.columns_covariance[:, :k, :k]
    cross = v * loc[:, None] + state.columns_covariance[:, :k, k]  # E[v mu]
    precision = jnp.eye(k) / _variance(model) + jnp.einsum("nd,dij->nij", weights, outer)
    latents, covariance = _normal(linear @ v - weights @ cross, precision)
    return state._replace(latents=latents, latents_covariance=covariance)


def _columns(state: EPCAPosterior, model: EPCA, coefficients: tuple) -> EPCAPosterior:
    """Q of all loadings and means, quadratic cells."""
    linear, weights = coefficients[0], _quadratic(state, coefficients)
    extended, second = _extended(state)
    precision = jnp.diag(_columns_precision(state, model)) + jnp.einsum("nd,nij->dij", weights, second)
    columns, covariance = _normal(linear.T @ extended, precision)
    return state._replace(columns=columns, columns_covariance=covariance)


def _extended(state: EPCAPosterior) -> tuple[Array, Array]:
    """E[u, 1] and E of its outer product."""
    extended = jnp.concatenate([state.latents, jnp.ones((len(state.latents), 1))], axis=1)
    covariance = jnp.pad(state.latents_covariance, ((0, 0), (0, 1), (0, 1)))
    return extended, extended[:, :, None] * extended[:, None, :] + covariance


def _expected_poisson(latents: Array, covariance: Array, columns: Array, columns_covariance: Array) -> Array:
    """E[e^theta] of one row and all columns."""
    return jax.vmap(expected_exponential, (None, None, 0, 0))(
        latents, covariance, columns, columns_covariance
    )


def _ascend(mean: Array, covariance: Array, height: Any, prior_precision: Array) -> tuple[Array, Array]:
    """The best of several lengths of a natural-gradient step of one normal factor, or none.

    ``height(mean, covariance)`` is what the cells expect of it; the prior is normal about zero.
    """

    def whole(mean: Array, covariance: Array) -> Array:
        spread = covariance + mean[:, None] * mean[None, :]
        entropy = 0.5 * jnp.linalg.slogdet(covariance)[1]
        value = height(mean, covariance) - 0.5 * jnp.sum(jnp.diag(spread) * prior_precision) + entropy
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    by_mean, by_covariance = jax.grad(height, (0, 1))(mean, covariance)
    by_covariance = (by_covariance + by_covariance.T) / 2
    best_precision = jnp.diag(prior_precision) - 2 * by_covariance
    best_linear = by_mean - 2 * by_covariance @ mean
    precision = jnp.linalg.inv(covariance)
    linear = precision @ mean

    def moved(length: Array) -> tuple[Array, Array]:
        new = jnp.linalg.inv((1 - length) * precision + length * best_precision)
        new = (new + new.T) / 2
        return new @ ((1 - length) * linear + length * best_linear), new

    means, covariances = jax.vmap(moved)(jnp.asarray(STEP_LENGTHS, mean.dtype))
    heights = jax.vmap(whole)(means, covariances)
    best = jnp.argmax(heights)
    better = heights[best] > whole(mean, covariance)
    return jnp.where(better, means[best], mean), jnp.where(better, covariances[best], covariance)


def _poisson_rows(state: EPCAPosterior, model: EPCA, coefficients: tuple) -> EPCAPosterior:
    linear, _, count = coefficients
    ridge = jnp.full(model.num_latents, 1 / _variance(model))
    v, loc = state.columns[:, :-1], state.columns[:, -1]

    def one(mean: Array, covariance: Array, linear: Array, count: Array) -> tuple[Array, Array]:
        def height(mean: Array, covariance: Array) -> Array:
            means = _expected_poisson(mean, covariance, state.columns, state.columns_covariance)
            return linear @ (v @ mean + loc) - count @ means

        return _ascend(mean, covariance, height, ridge)

    latents, covariance = jax.vmap(one)(state.latents, state.latents_covariance, linear, count)
    return state._replace(latents=latents, latents_covariance=covariance)


def _poisson_columns(state: EPCAPosterior, model: EPCA, coefficients: tuple) -> EPCAPosterior:
    linear, _, count = coefficients
    ridge, (extended, _) = _columns_precision(state, model), _extended(state)
    over_rows = jax.vmap(expected_exponential, (0, 0, None, None))

    def one(mean: Array, covariance: Array, linear: Array, count: Array) -> tuple[Array, Array]:
        def height(mean: Array, covariance: Array) -> Array:
            means = over_rows(state.latents, state.latents_covariance, mean, covariance)
            return linear @ (extended @ mean) - count @ means

        return _ascend(mean, covariance, height, ridge)

    columns, covariance = jax.vmap(one)(state.columns, state.columns_covariance, linear.T, count.T)
    return state._replace(columns=columns, columns_covariance=covariance)


# The other factors


def _relevance(state: EPCAPosterior, model: EPCA) -> EPCAPosterior:
    prior, k = in_current_precision(model), model.num_latents
    squares = jnp.sum(_column_squares(state)[:, :k], axis=0)
    concentration = jnp.full(k, prior.ard_concentration + len(state.columns) / 2)
    rates = prior.ard_rate + squares / (2 * _variance(model))
    return state._replace(relevance=jnp.stack([concentration, rates]))


def _column_squares(state: EPCAPosterior) -> Array:
    """E of the square of every loading and mean."""
    return state.columns**2 + jnp.diagonal(state.columns_covariance, axis1=1, axis2=2)


def _noise(state: EPCAPosterior, model: EPCA, x: Array) -> EPCAPosterior:
    return state._replace(noise=1.0 + jnp.stack([jnp.sum(~jnp.isnan(x)), _squares_away(state, x)]) / 2)


def _squares_away(state: EPCAPosterior, x: Array) -> Array:
    mean, second = expected_moments(*state[:4])
    return jnp.nansum(x**2 - 2 * x * mean + second)


def update(state: EPCAPosterior, model: EPCA, x: Array) -> EPCAPosterior:
    """Every factor once."""
    is_poisson = isinstance(model.family, Poisson)
    coefficients = _coefficients(state, model, x)
    state = (_poisson_rows if is_poisson else _rows)(state, model, coefficients)
    state = (_poisson_columns if is_poisson else _columns)(state, model, coefficients)
    if model.ard:
        state = _relevance(state, model)
    return _noise(state, model, x) if noise_is_unknown(model) else state


# The bound


def bound(state: EPCAPosterior, model: EPCA, x: Array) -> Array:
    """The whole bound, in nats."""
    prior, k = in_current_precision(model), model.num_latents
    linear, precision, count = _coefficients(state, model, x)
    mean, second = expected_moments(*state[:4])
    total = jnp.sum(linear * mean)
    seen = ~jnp.isnan(x)
    base = prior.family.log_base_measure if not isinstance(prior.family, Gaussian) else jnp.zeros_like
    total += jnp.sum(jnp.where(seen, base(jnp.where(seen, x, 1.0)), 0.0))
    if isinstance(prior.family, Poisson):
        means = jax.vmap(_expected_poisson, (0, 0, None, None))(*state[:4])
        total -= jnp.sum(count * means)
    elif isinstance(prior.family, Gaussian):
        inverse, log_noise = _expected_noise(state, model)
        total += -0.5 * jnp.sum(precision * second)
        total += -0.5 * (jnp.sum(seen) * (jnp.log(2 * jnp.pi) + log_noise) + inverse * jnp.nansum(x**2))
    else:
        total -= jnp.sum(count * (polya_gamma.log_cosh(jnp.sqrt(second) / 2) + jnp.log(2.0)))
    own = jnp.full(k, 1 / _variance(model))
    squares = state.latents**2 + jnp.diagonal(state.latents_covariance, axis1=1, axis2=2)
    total += _normal_terms(squares, state.latents_covariance, own, jnp.log(own))
    ridge = _columns_precision(state, model)
    log_ridge = jnp.log(ridge)
    if model.ard:
        log_ridge = log_ridge.at[:k].set(_expected_log(state.relevance) - jnp.log(_variance(model)))
        total += jnp.sum(_gamma_terms(state.relevance, prior.ard_concentration, prior.ard_rate))
    total += _normal_terms(_column_squares(state), state.columns_covariance, ridge, log_ridge)
    if noise_is_unknown(model):  # of 1 / phi, which is gamma, the Jacobian the same in p and q
        total += _gamma_terms(state.noise, 1.0, 1.0)
    return total


def _expected_noise(state: EPCAPosterior, model: EPCA) -> tuple[Array, Array]:
    """E[1 / phi] and E[log phi]."""
    if noise_is_unknown(model):
        return state.noise[0] / state.noise[1], -_expected_log(state.noise)
    variance = in_current_precision(model).family.noise_variance
    return 1 / variance, jnp.log(variance)


def _normal_terms(squares: Array, covariances: Array, precision: Array, log_precision: Array) -> Array:
    """E[log p - log q] of normal vectors, the prior about zero with these precisions expected."""
    log_dets = jnp.linalg.slogdet(covariances)[1]
    return 0.5 * (jnp.sum(log_precision + 1 - squares * precision) + jnp.sum(log_dets))


def _expected_log(gamma: Array) -> Array:
    return digamma(gamma[0]) - jnp.log(gamma[1])


def _gamma_terms(gamma: Array, concentration: Array, rate: Array) -> Array:
    """E[log p - log q] of gamma variables."""
    shape, own_rate = gamma
    log_p = concentration * jnp.log(rate) - gammaln(concentration)
    log_p += (concentration - 1) * _expected_log(gamma) - rate * shape / own_rate
    return log_p + shape - jnp.log(own_rate) + gammaln(shape) + (1 - shape) * digamma(shape)
