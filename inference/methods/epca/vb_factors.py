r"""Factors of a variational posterior of exponential-family projections, their updates and the whole bound.

The posterior of `zoo.EPCA` and of low-rank `zoo.Paired` is approximated by
:math:`\prod_n q(u_n) \prod_d q(v_d, \mu_d)`, the columns those of all views side by side, times q of the
loadings' precisions and of each view's unknown noise variance. Loadings for latents that a view does not see
are zero in every factor. Each factor in turn becomes the best given the others:

* logistic cells, by their Polya-Gamma mean field at its optimum, and Gaussian cells are quadratic: where a
  row or a column has no other cells its normal factor is in closed form;
* with Poisson cells: a step of the natural gradient of the closed expectation for each row, then for each
  such column, of which the best of several lengths (or none) is taken: the bound never falls, and where the
  expectation does not exist it is minus infinity, so no step leads there;
* gamma and inverse gamma factors in closed form.

Contribution of a cell to the bound
-----------------------------------
With :math:`\theta = u^T v + \mu`, :math:`u \sim N(m, S)` and :math:`[v, \mu] \sim N(M, C)`:

* Gaussian and logistic cells need the first two moments of theta alone. A logistic cell,
  :math:`\kappa\theta - b \log 2\cosh(\theta/2)`, is bounded below by its Polya-Gamma mean field, which is the
  bound of Jaakkola and Jordan (2000): :math:`\kappa E\theta - b\log 2\cosh(c/2)` at its best
  :math:`c^2 = E\theta^2`, and quadratic in theta with precision :math:`E\omega = b \tanh(c/2) / (2c)` there.
* a Poisson cell needs :math:`E e^\theta`. With :math:`S = L L^T`, :math:`C = [[A, b], [b^T, c]]`,
  :math:`h = M_v + b`, :math:`R = I - L^T A L` and :math:`g = L^T (h + A m)` it is
  :math:`|R|^{-1/2} \exp\{m^T h + m^T A m / 2 + M_\mu + c/2 + g^T R^{-1} g / 2\}` where R is positive
  definite, and infinite elsewhere.

Exponential, gamma and negative binomial cells need :math:`\theta < 0`, which no normal q gives, and the
log-partition functions of categorical and ordinal cells have no expectation in closed form.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import digamma, gammaln

from inference.methods.epca.views import View, prior_variance, views_of
from inference.numerics import polya_gamma
from inference.numerics.weighted_rows import PaddedRows, cells_of, only_rows, with_padding
from zoo.epca import EPCA
from zoo.exponential_family import Family
from zoo.model import in_current_precision
from zoo.paired import Paired


class NaturalCells(NamedTuple):
    r"""Coefficients of :math:`\kappa\theta - \tau\theta^2/2 - b\log 2\cosh(\theta/2) - r e^\theta`.

    Attributes:
        linear: kappa, shape (num_observations, num_features).
        precision: tau, of the same shape.
        count: b, of the same shape.
        rate: r, of the same shape.
    """

    linear: Array
    precision: Array
    count: Array
    rate: Array


def check_has_bound(family: Family) -> None:
    """Raise ValueError unless the expectation of every cell is bounded in closed form."""
    for one, _ in family.column_groups(1):
        name = type(one).__name__
        if one.theta_is_negative:
            raise ValueError(
                f"vb has no bound for {name} cells: their natural parameters are negative, and a normal q "
                f"puts mass where the density is zero, so the bound is minus infinity; use nuts or map"
            )
        if one.log_partition_form == "other":
            raise ValueError(f"vb has no closed bound for {name} cells; use nuts or svi")


def natural_cells(view: View, x: Array, beta: Array | float, noise_variance: Array | None) -> NaturalCells:
    """The coefficients of all cells of a view, including the contribution of the joint prior.

    Args:
        view: the view.
        x: its cells, NaN where missing.
        beta: share of the kernel.
        noise_variance: 1 / E[1 / phi] where a Gaussian has an unknown one.
    """
    family = view.family.with_noise(noise_variance) if view.family.learns_noise else view.family
    return NaturalCells(*family.cell_terms(x, beta, view.conjugate, view.weight))


def expected_cells(cells: NaturalCells, mean: Array, second: Array) -> Array:
    """The expected log density of all cells without the exponentials, given E[theta] and E[theta^2], in nats.

    Logistic cells by their bound.
    """
    total = jnp.sum(cells.linear * mean - cells.precision * second / 2)
    return total - jnp.sum(cells.count * (polya_gamma.log_cosh(jnp.sqrt(second) / 2) + jnp.log(2.0)))


def expected_moments(
    latents: Array, latents_covariance: Array, columns: Array, columns_covariance: Array
) -> tuple[Array, Array]:
    """The moments E[theta] and E[theta^2] of every cell, each of shape (num_observations, num_features).

    Args:
        latents: m, shape (num_observations, num_latents).
        latents_covariance: S, shape (num_observations, num_latents, num_latents).
        columns: M, loadings and mean, shape (num_features, num_latents + 1).
        columns_covariance: C, shape (num_features, num_latents + 1, num_latents + 1).
    """
    size = latents.shape[1]
    extended = jnp.concatenate([latents, jnp.ones((latents.shape[0], 1), latents.dtype)], axis=1)
    mean = extended @ columns.T
    outer = columns[:, :size, None] * columns[:, None, :size] + columns_covariance[:, :size, :size]
    squares = (extended[:, :, None] * extended[:, None, :]).reshape(len(latents), -1)
    second = latents_covariance.reshape(len(latents), -1) @ outer.reshape(len(columns), -1).T
    return mean, mean**2 + second + squares @ columns_covariance.reshape(len(columns), -1).T


def expected_exponential(latents: Array, covariance: Array, column: Array, column_covariance: Array) -> Array:
    """The expectation E[e^theta] of one cell, infinite where the integral diverges.

    Args:
        latents: m, shape (num_latents,).
        covariance: S, shape (num_latents, num_latents).
        column: M, shape (num_latents + 1,).
        column_covariance: C, shape (num_latents + 1, num_latents + 1).
    """
    size = latents.shape[0]
    spread, cross = column_covariance[:size, :size], column_covariance[:size, size]
    half = jnp.linalg.cholesky(covariance)
    factor = jnp.linalg.cholesky(jnp.eye(size) - half.T @ spread @ half)  # NaN where not positive definite
    exists = jnp.all(jnp.isfinite(factor))
    safe = jnp.where(exists, factor, jnp.eye(size))
    slope = column[:size] + cross
    solved = solve_triangular(safe, half.T @ (slope + spread @ latents), lower=True)
    log_mean = latents @ slope + 0.5 * latents @ spread @ latents + column[size]
    log_mean += 0.5 * (column_covariance[size, size] + solved @ solved) - jnp.sum(jnp.log(jnp.diagonal(safe)))
    return jnp.where(exists, jnp.exp(log_mean), jnp.inf)


STEP_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)


class ProjectionPosterior(NamedTuple):
    """Parameters of q, with the columns of all views side by side.

    Attributes:
        latents: means, shape (num_observations, num_latents).
        latents_covariance: shape (num_observations, num_latents, num_latents).
        columns: means of loadings and mean, shape (num_features, num_latents + 1).
        columns_covariance: shape (num_features, num_latents + 1, num_latents + 1).
        noise: concentration and rate of each view's noise variance, shape (num_views, 2).
        relevance: concentrations and rates of the loadings' precisions, shape (2, num_latents).
    """

    latents: Array
    latents_covariance: Array
    columns: Array
    columns_covariance: Array
    noise: Array
    relevance: Array


class _Table(NamedTuple):
    """Quantities that the updates share.

    Attributes:
        cells: coefficients of all cells of all views.
        summed: the same, and zero beside the rows.
        seen: which entries of the columns are free, ones and zeros, shape (num_features, num_latents + 1).
        poisson: places of the columns whose cells are Poisson.
        variance: prior variance of latents and, at precision one, of loadings.
        ridge: E[prior precision] of [v_d, mu_d], shape (num_latents + 1,).
    """

    cells: NaturalCells
    summed: NaturalCells
    seen: Array
    poisson: np.ndarray
    variance: Array
    ridge: Array


def _table(state: ProjectionPosterior, model: EPCA | Paired, data: tuple[Array | PaddedRows, ...]) -> _Table:
    prior, parts, poisson, first = in_current_precision(model), [], [], 0
    tables = tuple(map(with_padding, data))
    for own, view, x in zip(state.noise, views_of(model), tables, strict=True):
        parts.append(natural_cells(view, x, prior.beta, own[1] / own[0]))  # 1 / E[1 / phi]
        groups = view.family.column_groups(x.shape[1])
        poisson += [first + columns for f, columns in groups if f.log_partition_form == "exponential"]
        first += x.shape[1]
    variance = prior_variance(model)
    relevance = state.relevance[0] / state.relevance[1] if model.ard else jnp.ones(model.num_latents)
    cells = NaturalCells(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))
    return _Table(
        cells=cells,
        summed=NaturalCells(*(only_rows(part, data[0]) for part in cells)),
        seen=seen_loadings(model, tables),
        poisson=np.concatenate([np.zeros(0, int), *poisson]),
        variance=variance,
        ridge=jnp.append(relevance / variance, 1 / prior.loc_variance),
    )


def seen_loadings(model: EPCA | Paired, data: tuple[Array, ...]) -> Array:
    """Mask of the free loadings and means of the columns, shape (num_features, num_latents + 1)."""
    parts = []
    for view, x in zip(views_of(model), data, strict=True):
        own = np.zeros(model.num_latents + 1)
        own[[*view.places, model.num_latents]] = 1.0
        parts.append(np.tile(own, (x.shape[1], 1)))
    return jnp.asarray(np.concatenate(parts), data[0].dtype)


def noise_concentrations(model: EPCA | Paired, data: tuple[Array, ...]) -> Array:
    """Concentrations of q of the views' noise variances, shape (num_views,); one where there is none."""
    counts = []
    for view, x in zip(views_of(model), data, strict=True):
        own = x[:, view.family.noise_columns(x.shape[1])]
        counts.append(1.0 + view.weight * jnp.sum(~jnp.isnan(own)) / 2)
    return jnp.stack(counts)


# Updates of the normal factors


def _quadratic(state: ProjectionPosterior, cells: NaturalCells) -> Array:
    """The precision of every cell at the best Polya-Gamma factor."""
    second = expected_moments(*state[:4])[1]
    return cells.precision + polya_gamma.mean(cells.count, jnp.sqrt(second))


def _rows(state: ProjectionPosterior, table: _Table) -> ProjectionPosterior:
    """Update q of all latents."""
    weights, k, chosen = _quadratic(state, table.cells), state.latents.shape[1], table.poisson
    v, loc = state.columns[:, :k], state.columns[:, k]
    outer = v[:, :, None] * v[:, None, :] + state.columns_covariance[:, :k, :k]
    cross = v * loc[:, None] + state.columns_covariance[:, :k, k]  # E[v mu]
    linear = table.cells.linear @ v - weights @ cross
    precision = jnp.eye(k) / table.variance + jnp.einsum("nd,dij->nij", weights, outer)
    if not chosen.size:
        latents, covariance = normal_given(linear, precision)
    else:

        def one(mean: Array, spread: Array, rate: Array, *quadratic: Array) -> tuple[Array, Array]:
            def height(mean: Array, spread: Array) -> Array:
                own = state.columns[chosen], state.columns_covariance[chosen]
                return -rate @ jax.vmap(expected_exponential, (None, None, 0, 0))(mean, spread, *own)

            return _ascend(mean, spread, height, *quadratic)

        rates = table.cells.rate[:, chosen]
        latents, covariance = jax.vmap(one)(state.latents, state.latents_covariance, rates, linear, precision)
    return state._replace(latents=latents, latents_covariance=covariance)


def _columns(state: ProjectionPosterior, table: _Table) -> ProjectionPosterior:
    """Update q of all loadings and means; loadings of latents that a column does not see stay zero."""
    weights, chosen, seen = _quadratic(state, table.summed), table.poisson, table.seen
    extended = jnp.concatenate([state.latents, jnp.ones((len(state.latents), 1))], axis=1)
    second = jnp.pad(state.latents_covariance, ((0, 0), (0, 1), (0, 1)))
    second += extended[:, :, None] * extended[:, None, :]
    free, fixed = seen[:, :, None] * seen[:, None, :], _fixed(seen)
    linear = (table.summed.linear.T @ extended) * seen
    precision = jnp.diag(table.ridge) + jnp.einsum("nd,nij->dij", weights, second)
    precision = precision * free + fixed
    if len(chosen) == len(seen):
        columns, covariance = state.columns, state.columns_covariance
    else:
        columns, covariance = normal_given(linear, precision)
    if chosen.size:
        over_rows = jax.vmap(expected_exponential, (0, 0, None, None))

        def one(mean: Array, spread: Array, rate: Array, own: Array, *rest: Array) -> tuple[Array, Array]:
            def height(mean: Array, spread: Array) -> Array:
                free = mean * own, spread * own[:, None] * own
                return -rate @ over_rows(state.latents, state.latents_covariance, *free)

            return _ascend(mean, spread, height, *rest)

        rest = table.summed.rate.T[chosen], seen[chosen], linear[chosen], precision[chosen]
        means, spreads = jax.vmap(one)(
            state.columns[chosen], state.columns_covariance[chosen] + fixed[chosen], *rest
        )
        columns = columns.at[chosen].set(means)
        covariance = covariance.at[chosen].set(spreads)
    return state._replace(columns=columns, columns_covariance=covariance * free)


def _fixed(seen: Array) -> Array:
    """The identity on unseen entries of each column, so that determinants are those of the seen ones."""
    return (1.0 - seen)[:, :, None] * jnp.eye(seen.shape[1])


def _ascend(
    mean: Array, covariance: Array, height: Callable, linear: Array, precision: Array
) -> tuple[Array, Array]:
    """Take the best of several lengths of a natural-gradient step of one normal factor, or none.

    ``height(mean, covariance)`` is the expected log density of the Poisson cells; prior and other cells add
    linear'u - u' precision u / 2.
    """

    def whole(mean: Array, covariance: Array) -> Array:
        spread = covariance + mean[:, None] * mean[None, :]
        entropy = 0.5 * jnp.linalg.slogdet(covariance)[1]
        value = height(mean, covariance) + linear @ mean - 0.5 * jnp.sum(spread * precision) + entropy
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    by_mean, by_covariance = jax.grad(height, (0, 1))(mean, covariance)
    by_covariance = (by_covariance + by_covariance.T) / 2
    best_precision = precision - 2 * by_covariance
    best_linear = linear + by_mean - 2 * by_covariance @ mean
    own_precision = jnp.linalg.inv(covariance)
    own_linear = own_precision @ mean

    def moved(length: Array) -> tuple[Array, Array]:
        new = jnp.linalg.inv((1 - length) * own_precision + length * best_precision)
        new = (new + new.T) / 2
        return new @ ((1 - length) * own_linear + length * best_linear), new

    means, covariances = jax.vmap(moved)(jnp.asarray(STEP_LENGTHS, mean.dtype))
    heights = jax.vmap(whole)(means, covariances)
    best = jnp.argmax(heights)
    better = heights[best] > whole(mean, covariance)
    return jnp.where(better, means[best], mean), jnp.where(better, covariances[best], covariance)


# The other factors


def _relevance(state: ProjectionPosterior, model: EPCA | Paired, table: _Table) -> ProjectionPosterior:
    prior, k = in_current_precision(model), model.num_latents
    concentrations = prior.ard_concentration + jnp.sum(table.seen[:, :k], axis=0) / 2
    rates = prior.ard_rate + jnp.sum(_column_squares(state)[:, :k], axis=0) / (2 * table.variance)
    return state._replace(relevance=jnp.stack([concentrations, rates]))


def _column_squares(state: ProjectionPosterior) -> Array:
    """The expected square of every loading and mean."""
    return state.columns**2 + jnp.diagonal(state.columns_covariance, axis1=1, axis2=2)


def _noise(state: ProjectionPosterior, model: EPCA | Paired, data: tuple[Array, ...]) -> ProjectionPosterior:
    mean, second = expected_moments(*state[:4])
    rates, first = [], 0
    for view, x in zip(views_of(model), data, strict=True):
        chosen = view.family.noise_columns(x.shape[1])
        own, places = x[:, chosen], first + chosen
        squares = jnp.nansum(own**2 - 2 * own * mean[:, places] + second[:, places])
        rates.append(1.0 + view.weight * squares / 2)
        first += x.shape[1]
    return state._replace(noise=jnp.stack([noise_concentrations(model, data), jnp.stack(rates)], axis=1))


def update(
    state: ProjectionPosterior, model: EPCA | Paired, data: tuple[Array | PaddedRows, ...]
) -> ProjectionPosterior:
    """Update every factor once; what is beside the rows goes through the updates of the row it copies."""
    table = _table(state, model, data)
    state = _columns(_rows(state, table), table)
    if model.ard:
        state = _relevance(state, model, table)
    if any(view.family.learns_noise for view in views_of(model)):
        state = _noise(state, model, tuple(map(cells_of, data)))
    return state


# The bound


def bound(state: ProjectionPosterior, model: EPCA | Paired, data: tuple[Array | PaddedRows, ...]) -> Array:
    """The whole bound, in nats."""
    prior, k = in_current_precision(model), model.num_latents
    table = _table(state, model, data)
    total = expected_cells(table.summed, *expected_moments(*state[:4]))
    if table.poisson.size:
        own = state.columns[table.poisson], state.columns_covariance[table.poisson]
        of_row = jax.vmap(expected_exponential, (None, None, 0, 0))
        means = jax.vmap(of_row, (0, 0, None, None))(*state[:2], *own)
        total -= jnp.sum(table.summed.rate[:, table.poisson] * means)
    for noise, view, x in zip(state.noise, views_of(model), map(cells_of, data), strict=True):
        of_noise = noise[0] / noise[1], -expected_log_gamma(noise)  # E[1 / phi], E[log phi]
        total += view.weight * view.family.expected_base_measure(x, *of_noise)
        if view.family.learns_noise:  # of 1 / phi, which is gamma, the Jacobian the same in p and q
            total += gamma_terms(noise, 1.0, 1.0)
    own = jnp.full(k, 1 / table.variance)
    squares = state.latents**2 + jnp.diagonal(state.latents_covariance, axis1=1, axis2=2)
    covariances = only_rows(state.latents_covariance, data[0], jnp.eye(k))
    is_row = only_rows(jnp.ones((len(squares), 1)), data[0])
    total += normal_terms(squares, covariances, own, jnp.log(own), is_row)
    log_ridge = jnp.log(table.ridge)
    if model.ard:
        log_ridge = log_ridge.at[:k].set(expected_log_gamma(state.relevance) - jnp.log(table.variance))
        total += jnp.sum(gamma_terms(state.relevance, prior.ard_concentration, prior.ard_rate))
    whole = state.columns_covariance + _fixed(table.seen)
    return total + normal_terms(_column_squares(state), whole, table.ridge, log_ridge, table.seen)


def normal_given(linear: Array, precision: Array) -> tuple[Array, Array]:
    """Means and covariances of vectors with log density linear' u - u' precision u / 2.

    Args:
        linear: shape (count, size).
        precision: shape (count, size, size).
    """
    covariance = jnp.linalg.inv(precision)
    covariance = (covariance + jnp.swapaxes(covariance, -1, -2)) / 2
    return jnp.einsum("nij,nj->ni", covariance, linear), covariance


def normal_terms(
    squares: Array, covariances: Array, precision: Array, log_precision: Array, seen: Array | float = 1.0
) -> Array:
    """E[log p - log q] of normal vectors with a prior of mean zero and expected precisions, in nats.

    Args:
        squares: E of the squares of their entries, shape (count, size).
        covariances: of q, shape (count, size, size).
        precision: E of the prior's, shape (size,).
        log_precision: E of its logarithm.
        seen: ones where an entry is random, zeros where it is fixed; 1: all are.
    """
    log_dets = jnp.linalg.slogdet(covariances)[1]
    return 0.5 * (jnp.sum(seen * (log_precision + 1 - squares * precision)) + jnp.sum(log_dets))


def expected_log_gamma(gamma: Array) -> Array:
    """The expected logarithm of gamma variables, ``gamma`` being concentration and rate."""
    return digamma(gamma[0]) - jnp.log(gamma[1])


def gamma_terms(gamma: Array, concentration: Array | float, rate: Array | float) -> Array:
    """E[log p - log q] of gamma variables with a gamma prior, in nats."""
    shape, own_rate = gamma
    log_p = concentration * jnp.log(rate) - gammaln(concentration)
    log_p += (concentration - 1) * expected_log_gamma(gamma) - rate * shape / own_rate
    return log_p + shape - jnp.log(own_rate) + gammaln(shape) + (1 - shape) * digamma(shape)
