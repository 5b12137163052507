r"""Factors of a variational posterior of paired Gaussian views with a full covariance each: Bayesian CCA.

With :math:`\tilde u = [u, 1]` and :math:`\Lambda_v = \Psi_v^{-1}` the posterior is approximated by
:math:`\prod_n q(u_n) \prod_v q(V_v, \mu_v)\, q(\Lambda_v)` and q of the loadings' precisions (Wang 2007,
without his further factorisation of the loadings). All updates are in closed form and the bound never falls:

* latents: normal, precision :math:`I/\sigma^2 + \sum_v E[V_v^T \Lambda_v V_v]` over the views that a row has;
* loadings and mean: in the eigenvectors Q of :math:`E\Lambda_v = Q\,\mathrm{diag}(l)\,Q^T` the rows of
  :math:`Q^T[V_v, \mu_v]` are independent, because their prior is spherical, with precisions
  :math:`l_j \sum_n E[\tilde u_n \tilde u_n^T]` plus the prior's;
* :math:`\Lambda_v`: Wishart with the prior's degrees and rate plus the number of rows and the expected
  scatter of residuals :math:`\sum_n E[(y_n - V\tilde u_n)(y_n - V\tilde u_n)^T]`;
* precisions of loadings: gamma.

A row of a view is there or missing as a whole: the log density of some of its cells has no expectation in
closed form under a Wishart. A view's weight counts each of its rows so many times.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from inference.methods.projections.normal_factors import (expected_log_gamma, gamma_terms, normal_given, normal_terms)
from zoo.conjugate.gaussian import expected_log_det, log_wishart_normaliser, symmetric_inverse
from zoo.exponential_family.joint_prior import balanced_variance
from zoo.model import in_current_precision
from zoo.paired import Paired

__all__ = ["FullPosterior", "ViewFactors", "Wishart", "bound", "degrees_of", "rows_seen", "update"]


class Wishart(NamedTuple):
    """Of a precision matrix; E = degrees_of_freedom * scale_matrix.

    Attributes:
        scale_matrix: shape (num_features, num_features).
        degrees_of_freedom: shape ().
    """

    scale_matrix: Array
    degrees_of_freedom: Array

    @property
    def num_features(self) -> int:
        """Its size."""
        return self.scale_matrix.shape[-1]

    @property
    def mean(self) -> Array:
        """E of the precision matrix."""
        return self.degrees_of_freedom * self.scale_matrix


class ViewFactors(NamedTuple):
    """Q of what a view has of its own.

    Attributes:
        columns: means of loadings and mean, shape (num_features, num_latents + 1).
        axes: Q, orthogonal, shape (num_features, num_features).
        covariance: of each row of Q'[V, mu], shape (num_features, num_latents + 1, num_latents + 1).
        precision: of the specific precision.
    """

    columns: Array
    axes: Array
    covariance: Array
    precision: Wishart


class FullPosterior(NamedTuple):
    """Parameters of q.

    Attributes:
        latents: means, shape (num_observations, num_latents).
        latents_covariance: shape (num_observations, num_latents, num_latents).
        views: of every view.
        relevance: concentrations and rates of the loadings' precisions, shape (2, num_latents).
    """

    latents: Array
    latents_covariance: Array
    views: tuple[ViewFactors, ...]
    relevance: Array


# What updates and bound share


def _variance(model: Paired) -> Array:
    prior = in_current_precision(model)
    return balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)


def _ridge(state: FullPosterior, model: Paired) -> Array:
    """E[prior precision] of a row of [V, mu]."""
    relevance = state.relevance[0] / state.relevance[1] if model.ard else jnp.ones(model.num_latents)
    return jnp.append(relevance / _variance(model), 1 / in_current_precision(model).loc_variance)


def rows_seen(model: Paired, data: tuple[Array, ...]) -> list[Array]:
    """How much each row of each view counts: its weight, or nothing where it is missing."""
    weights = jnp.broadcast_to(in_current_precision(model.view_weights), (len(data),))
    return [w * jnp.where(jnp.isnan(y[:, 0]), 0.0, 1.0) for w, y in zip(weights, data, strict=True)]


def degrees_of(model: Paired, size: int, seen: Array | float = 0.0) -> Array:
    """Degrees of freedom of a view's precision: the prior's, and one for each row."""
    return size + in_current_precision(model).covariance_degrees + jnp.sum(seen)


def _extended(state: FullPosterior) -> tuple[Array, Array]:
    """E[u, 1] of every row and its covariance."""
    ones = jnp.ones((len(state.latents), 1))
    covariance = jnp.pad(state.latents_covariance, ((0, 0), (0, 1), (0, 1)))
    return jnp.concatenate([state.latents, ones], axis=1), covariance


def _scatter(state: FullPosterior, own: ViewFactors, y: Array, seen: Array) -> Array:
    """Sum over rows of E[(y - V [u, 1]) (y - V [u, 1])']."""
    extended, spread = _extended(state)
    away = jnp.nan_to_num(y) - extended @ own.columns.T
    of_latents = jnp.einsum("n,nij->ij", seen, spread)
    second = of_latents + (extended * seen[:, None]).T @ extended
    traces = jnp.einsum("jab,ab->j", own.covariance, second)
    found = (away * seen[:, None]).T @ away + own.columns @ of_latents @ own.columns.T
    return found + (own.axes * traces) @ own.axes.T


def _column_squares(own: ViewFactors) -> Array:
    """E of the squares of Q'[V, mu], whose sum over rows is that of [V, mu]."""
    return (own.axes.T @ own.columns) ** 2 + jnp.diagonal(own.covariance, axis1=1, axis2=2)


# Updates


def _precision(state: FullPosterior, own: ViewFactors, model: Paired, y: Array, seen: Array) -> ViewFactors:
    size = y.shape[1]
    rate = in_current_precision(model).covariance_scale * jnp.eye(size) + _scatter(state, own, y, seen)
    return own._replace(precision=Wishart(symmetric_inverse(rate), degrees_of(model, size, seen)))


def _columns(state: FullPosterior, own: ViewFactors, model: Paired, y: Array, seen: Array) -> ViewFactors:
    lengths, axes = jnp.linalg.eigh(own.precision.mean)
    extended, spread = _extended(state)
    weighted = extended * seen[:, None]
    second = weighted.T @ extended + jnp.einsum("n,nij->ij", seen, spread)
    linear = lengths[:, None] * ((jnp.nan_to_num(y) @ axes).T @ weighted)
    precision = lengths[:, None, None] * second + jnp.diag(_ridge(state, model))
    turned, covariance = normal_given(linear, precision)
    return own._replace(columns=axes @ turned, axes=axes, covariance=covariance)


def _latents(
    state: FullPosterior, model: Paired, data: tuple[Array, ...], seen: list[Array]
) -> FullPosterior:
    k = model.num_latents
    precision, linear = jnp.eye(k) / _variance(model), 0.0
    precision = jnp.broadcast_to(precision, (len(data[0]), k, k))
    for own, y, rows in zip(state.views, data, seen, strict=True):
        expected = own.precision.mean
        turned = jnp.diagonal(own.axes.T @ expected @ own.axes)
        square = own.columns.T @ expected @ own.columns + jnp.einsum("j,jab->ab", turned, own.covariance)
        precision += rows[:, None, None] * square[:k, :k]
        linear += rows[:, None] * (jnp.nan_to_num(y) @ expected @ own.columns[:, :k] - square[:k, k])
    latents, covariance = normal_given(linear, precision)
    return state._replace(latents=latents, latents_covariance=covariance)


def _relevance(state: FullPosterior, model: Paired) -> FullPosterior:
    prior, k = in_current_precision(model), model.num_latents
    size = sum(len(own.columns) for own in state.views)
    squares = sum(jnp.sum(_column_squares(own)[:, :k], axis=0) for own in state.views)
    concentrations = jnp.full(k, prior.ard_concentration + size / 2)
    rates = prior.ard_rate + squares / (2 * _variance(model))
    return state._replace(relevance=jnp.stack([concentrations, rates]))


def update(state: FullPosterior, model: Paired, data: tuple[Array, ...]) -> FullPosterior:
    """Every factor once."""
    seen = rows_seen(model, data)
    for step in (_precision, _columns):
        views = [
            step(state, own, model, y, rows) for own, y, rows in zip(state.views, data, seen, strict=True)
        ]
        state = state._replace(views=tuple(views))
    state = _latents(state, model, data, seen)
    return _relevance(state, model) if model.ard else state


# The bound


def bound(state: FullPosterior, model: Paired, data: tuple[Array, ...]) -> Array:
    """The whole bound, in nats."""
    prior, k, variance = in_current_precision(model), model.num_latents, _variance(model)
    ridge = _ridge(state, model)
    log_ridge, total = jnp.log(ridge), 0.0
    if model.ard:
        log_ridge = log_ridge.at[:k].set(expected_log_gamma(state.relevance) - jnp.log(variance))
        total += jnp.sum(gamma_terms(state.relevance, prior.ard_concentration, prior.ard_rate))
    for own, y, rows in zip(state.views, data, rows_seen(model, data), strict=True):
        size, count, q = y.shape[1], jnp.sum(rows), own.precision
        log_det = expected_log_det(q)
        total += 0.5 * count * (log_det - size * jnp.log(2 * jnp.pi))
        total -= 0.5 * jnp.sum(q.mean * _scatter(state, own, y, rows))
        p = Wishart(jnp.eye(size) / prior.covariance_scale, degrees_of(model, size))
        total += 0.5 * (p.degrees_of_freedom - q.degrees_of_freedom) * log_det
        total += 0.5 * (q.degrees_of_freedom * size - prior.covariance_scale * jnp.trace(q.mean))
        total += log_wishart_normaliser(q) - log_wishart_normaliser(p)
        total += normal_terms(_column_squares(own), own.covariance, ridge, log_ridge)
    own = jnp.full(k, 1 / variance)
    squares = state.latents**2 + jnp.diagonal(state.latents_covariance, axis1=1, axis2=2)
    return total + normal_terms(squares, state.latents_covariance, own, jnp.log(own))
