r"""Densities and posteriors of linear-Gaussian rows :math:`x = W z + \mu + \epsilon` at given parameters.

Each row has latents :math:`z \sim N(0, I_K)`, and :math:`\epsilon_d \sim N(0, \psi_d)`, one noise variance a
column. A row is observed in some of its columns, o; NaN is a missing cell. With

.. math::
    A = I + \sum_{d \in o} w_d w_d^T / \psi_d, \qquad
    \hat z = A^{-1} \sum_{d \in o} w_d (x_d - \mu_d) / \psi_d

the latents have the posterior :math:`N(\hat z, A^{-1})`, and by the identity of Woodbury the row's log
density over its observed cells is

.. math::
    -\tfrac12 \sum_{d \in o} \left\{\log 2\pi\psi_d + (x_d - \mu_d - w_d^T \hat z)^2 / \psi_d\right\}
    - \tfrac12 \log|A| - \tfrac12 \hat z^T \hat z .

The residual form is a sum of squares: unlike :math:`\sum r^2/\psi - b^T A^{-1} b` it loses no digits where
the noise is small.

Rows without a missing cell share A: they cost one K x K factorisation in all and never make an array of shape
(N, K, K). Whether all rows are complete is seen from the data when they are concrete, and decided inside the
compiled program when they are traced. Otherwise every row has a different A, computed in blocks of rows.

Sparse rows (`zoo.sparse`) have every cell and stay sparse: `reduced`.

A row with a full covariance, :math:`x \sim N(\mu, \Sigma)`, is scored by its observed cells,
:math:`N(x_o; \mu_o, \Sigma_{oo})`: rows and columns of the covariance that belong to missing cells are
replaced by those of the identity, their residuals by zero, and the constant they add is left out
(`DenseRows`).

Student-t rows have a precision of their own, :math:`u \sim \mathrm{Gamma}(\nu/2, \nu/2)`, by which the
covariances of latents and noise are divided; it is summed out. With :math:`\delta` the sum of the squares
above, that of the latents too, and c the number of observed cells,

.. math::
    u \mid x \sim \mathrm{Gamma}\left(\frac{\nu + c}2, \frac{\nu + \delta}2\right), \qquad
    z \mid x, u \sim N(\hat z, A^{-1} / u) .

Reference: Tipping and Bishop (1999), section 3 and appendix A; Yu (2006), (7.3)-(7.6); of Student-t rows
Archambeau, Delannay and Verleysen (2006), "Robust probabilistic projections".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import gammaln

from zoo.conjugate.cellwise import ObservedCells
from zoo.in_blocks import map_in_blocks
from zoo.programs import local
from zoo.sparse import SparseMatrix

BLOCK_ROWS = 1024  # rows with holes whose K x K matrices are held at a time


def log_density(x: Array, loadings: Array, loc: Array, noise_variance: Array) -> Array:
    """Log density of each row over its observed cells, latents integrated out, in nats.

    Args:
        x: shape (num_observations, num_features); NaN is missing. A row without any cell has log density 0.
        loadings: W, shape (num_features, num_latents).
        loc: the mean, shape (num_features,).
        noise_variance: one for each column, shape (num_features,), or one for all, shape ().

    Returns:
        Shape (num_observations,).
    """
    if isinstance(x, SparseMatrix):
        *own, log_factor = reduced(x, loadings, loc, noise_variance)
        return log_density(*own) + log_factor
    squares, log_det = _distances(x, loadings, loc, noise_variance)
    return -0.5 * (squares + log_det)


def student_log_density(squares: Array, log_det: Array, count: Array, degrees_of_freedom: Array) -> Array:
    """Log density of Student-t rows, in nats.

    Args:
        squares: of each row, its distance from the mean in the metric of its covariance.
        log_det: of 2 pi times the covariance.
        count: how many cells it has.
        degrees_of_freedom: nu.

    Returns:
        Shape (num_observations,).
    """
    half, own = degrees_of_freedom / 2, count / 2
    norm = gammaln(half + own) - gammaln(half) - own * jnp.log(half)
    return norm - 0.5 * log_det - (half + own) * jnp.log1p(squares / degrees_of_freedom)


def precision_of_rows(
    x: Array, loadings: Array, loc: Array, noise_variance: Array, degrees_of_freedom: Array
) -> tuple[Array, Array]:
    """The precisions of Student-t rows given their cells: twice the concentration and the rate of a gamma.

    Args:
        x: as for `log_density`.
        loadings: as there.
        loc: as there.
        noise_variance: as there.
        degrees_of_freedom: nu.

    Returns:
        Two arrays of shape (num_observations,).
    """
    squares = _distances(x, loadings, loc, noise_variance)[0]
    return degrees_of_freedom + jnp.sum(~jnp.isnan(x), axis=1), degrees_of_freedom + squares


def latents_mean(x: Array, loadings: Array, loc: Array, noise_variance: Array) -> Array:
    """Posterior mean of the latents of each row; a row without any cell has the prior mean, zero.

    Args:
        x: as for `log_density`.
        loadings: as there.
        loc: as there.
        noise_variance: as there.

    Returns:
        Shape (num_observations, num_latents).
    """
    if isinstance(x, SparseMatrix):
        return latents_mean(*reduced(x, loadings, loc, noise_variance)[:4])
    return _by_completeness(x, _complete_mean, _row_mean, loadings, loc, noise_variance)


def latents_covariance(x: Array, loadings: Array, noise_variance: Array) -> Array:
    """Posterior covariance of the latents of each row.

    For rows without missing cells they are all the same: `shared_latents_covariance`.

    Args:
        x: as for `log_density`.
        loadings: as there.
        noise_variance: as there.

    Returns:
        Shape (num_observations, num_latents, num_latents).
    """
    if isinstance(x, SparseMatrix):
        shared = shared_latents_covariance(loadings, noise_variance)
        return jnp.broadcast_to(shared, (x.shape[0], *shared.shape))
    per_column, identity = _per_column(noise_variance, loadings), jnp.eye(loadings.shape[1])

    def one(observed: Array) -> Array:
        return cho_solve((_factor(observed, loadings, per_column), True), identity)

    return map_in_blocks(one, jnp.asarray(~jnp.isnan(x), loadings.dtype), BLOCK_ROWS)


def shared_latents_covariance(loadings: Array, noise_variance: Array) -> Array:
    """Posterior covariance of the latents of every row that has all its cells.

    Args:
        loadings: as for `log_density`.
        noise_variance: as there.

    Returns:
        Shape (num_latents, num_latents).
    """
    per_column = _per_column(noise_variance, loadings)
    everything = jnp.ones(loadings.shape[0], loadings.dtype)
    return cho_solve((_factor(everything, loadings, per_column), True), jnp.eye(loadings.shape[1]))


def completed(x: Array, loadings: Array, loc: Array, noise_variance: Array) -> tuple[Array, Array]:
    """Rows with missing cells at their expectation given the observed ones, and the variance of every cell.

    Args:
        x: as for `log_density`.
        loadings: as there.
        loc: as there.
        noise_variance: as there.

    Returns:
        Two arrays of shape (num_observations, num_features), the variance 0 where observed.
    """
    if isinstance(x, SparseMatrix):  # nothing is missing
        return x.to_dense(), jnp.zeros(x.shape)
    per_column, missing = _per_column(noise_variance, loadings), jnp.isnan(x)
    mean = latents_mean(x, loadings, loc, noise_variance)
    filled = jnp.where(missing, loc + mean @ loadings.T, x)

    def spread(observed: Array) -> Array:
        factor = _factor(observed, loadings, per_column)
        return jnp.sum(solve_triangular(factor, loadings.T, lower=True) ** 2, axis=0) + per_column

    observed = jnp.asarray(~missing, loadings.dtype)
    return filled, jnp.where(missing, map_in_blocks(spread, observed, BLOCK_ROWS), 0.0)


def flat(*shape: int, positive: bool = False) -> dist.Distribution:
    """The improper prior of density one.

    Args:
        *shape: of the value.
        positive: whether it is positive.

    Returns:
        A distribution that cannot be drawn from.
    """
    support = dist.constraints.positive if positive else dist.constraints.real
    return dist.ImproperUniform(support, (), shape)


def standard_normal(*shape: int) -> dist.Distribution:
    """An array of independent standard normal variables.

    Args:
        *shape: of the array.

    Returns:
        The distribution.
    """
    return dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))


def normal_latents(num_latents: int, row_precision: Array | None = None) -> dist.Distribution:
    """Latents of rows: standard normal, or with a precision for each row.

    Args:
        num_latents: K.
        row_precision: u, shape (num_observations,); None: ones.

    Returns:
        The distribution of a row, or of every row.
    """
    if row_precision is None:
        return standard_normal(num_latents)
    return dist.Normal(jnp.zeros(num_latents), 1 / jnp.sqrt(row_precision)[..., None]).to_event(1)


def latents_of_rows(num_latents: int, degrees_of_freedom: Array | None) -> tuple[Array | None, Array | None]:
    """Draw the precisions and the latents of rows in a program.

    Args:
        num_latents: K.
        degrees_of_freedom: of Student-t rows; None: normal, without precisions.

    Returns:
        Shapes (num_observations,) and (num_observations, num_latents); None where they are summed out, or
        ones.
    """
    precision = None
    if degrees_of_freedom is not None:
        precision = local("row_precision", dist.Gamma(degrees_of_freedom / 2, degrees_of_freedom / 2))
    return precision, local("latents", lambda: normal_latents(num_latents, precision))


def linear_gaussian(
    loadings: Array,
    loc: Array,
    noise_variance: Array,
    latents: Array | None,
    degrees_of_freedom: Array | None = None,
    row_precision: Array | None = None,
) -> dist.Distribution:
    """Rows W z + mu + noise; a missing cell is left out.

    Args:
        loadings: W, shape (num_features, num_latents).
        loc: mu, shape (num_features,).
        noise_variance: shape (num_features,) or ().
        latents: z, shape (num_observations, num_latents), or None: summed out.
        degrees_of_freedom: of Student-t rows; None: normal.
        row_precision: of these, by which the noise is divided, shape (num_observations,); summed out with the
            latents.

    Returns:
        The distribution of a row, or of every row given its latents.
    """
    if latents is None and degrees_of_freedom is not None:
        return StudentRows(loadings, loc, noise_variance, degrees_of_freedom)
    if latents is None:
        return LinearGaussianRows(loadings, loc, noise_variance)
    if row_precision is not None:
        noise_variance = noise_variance / row_precision[..., None]
    return ObservedCells(dist.Normal(loc + latents @ loadings.T, jnp.sqrt(noise_variance)))


class LatentsGivenRows(dist.Distribution):
    """The latents of rows given their observed cells.

    Draws need no factor of each row's covariance: for z0 and x0 drawn together from the model, z0 + E[z | x]
    - E[z | x0] is a draw given x (Papandreou and Yuille 2010, "Gaussian sampling by local perturbations").

    Args:
        x: rows, shape (num_observations, num_features); NaN is missing.
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().
        row_precision: u of Student-t rows, shape (num_observations,); None: ones.
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("x", "loadings", "loc", "noise_variance", "row_precision")

    def __init__(
        self,
        x: Array,
        loadings: Array,
        loc: Array,
        noise_variance: Array,
        row_precision: Array | None = None,
    ) -> None:
        self.x, self.loadings, self.loc, self.noise_variance = x, loadings, loc, noise_variance
        self.row_precision = row_precision
        super().__init__(x.shape[:1], loadings.shape[1:])

    @property
    def mean(self) -> Array:
        """E[z | x], shape (num_observations, num_latents)."""
        return latents_mean(self.x, self.loadings, self.loc, self.noise_variance)

    @property
    def covariance_matrix(self) -> Array:
        """Cov[z | x], shape (num_observations, num_latents, num_latents)."""
        own = latents_covariance(self.x, self.loadings, self.noise_variance)
        return own if self.row_precision is None else own / self.row_precision[:, None, None]

    def log_prob(self, value: Array) -> Array:
        """Log density in nats, shape (num_observations,)."""
        return dist.MultivariateNormal(self.mean, self.covariance_matrix, validate_args=False).log_prob(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, shape (*sample_shape, num_observations, num_latents)."""
        own, rest = jax.random.split(key)
        latents = jax.random.normal(own, (*sample_shape, *self.batch_shape, *self.event_shape))
        noise = jax.random.normal(rest, (*sample_shape, *self.x.shape))
        if self.row_precision is not None:
            latents, noise = (own / jnp.sqrt(self.row_precision)[:, None] for own in (latents, noise))
        away = self.x - latents @ self.loadings.T - jnp.sqrt(self.noise_variance) * noise  # x - x0 + loc
        flat = away.reshape(-1, self.x.shape[1])
        shift = latents_mean(flat, self.loadings, self.loc, self.noise_variance)
        return latents + shift.reshape(latents.shape)


class LinearGaussianRows(dist.Distribution):
    """A row whose latents are summed out: N(loc, W W' + diag(noise_variance)), missing cells left out.

    Args:
        loadings: W, shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().
    """

    arg_constraints = {
        "loadings": dist.constraints.independent(dist.constraints.real, 2),
        "loc": dist.constraints.real_vector,
    }
    support = dist.constraints.real_vector
    pytree_data_fields: tuple[str, ...] = ("loadings", "loc", "noise_variance")

    def __init__(
        self, loadings: Array, loc: Array, noise_variance: Array, *, validate_args: bool | None = None
    ) -> None:
        self.loadings, self.loc, self.noise_variance = loadings, loc, noise_variance
        super().__init__((), loc.shape, validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed cells; shape (num_observations,) for a matrix of rows."""
        if isinstance(value, SparseMatrix):
            return log_density(value, self.loadings, self.loc, self.noise_variance)
        rows = value if value.ndim == 2 else value.reshape(-1, value.shape[-1])
        densities = log_density(rows, self.loadings, self.loc, self.noise_variance)
        return densities.reshape(value.shape[:-1])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows."""
        own, rest = jax.random.split(key)
        latents = jax.random.normal(own, (*sample_shape, self.loadings.shape[1]))
        noise = jax.random.normal(rest, (*sample_shape, *self.loc.shape))
        return self.loc + latents @ self.loadings.T + jnp.sqrt(self.noise_variance) * noise

    @property
    def mean(self) -> Array:
        """The mean of a row."""
        return self.loc

    @property
    def variance(self) -> Array:
        """The variance of each cell."""
        return jnp.sum(self.loadings**2, axis=-1) + self.noise_variance


class StudentRows(LinearGaussianRows):
    """A Student-t row whose latents are summed out, missing cells left out.

    Args:
        loadings: W, shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().
        degrees_of_freedom: nu, shape ().
    """

    pytree_data_fields = ("degrees_of_freedom",)

    def __init__(
        self,
        loadings: Array,
        loc: Array,
        noise_variance: Array,
        degrees_of_freedom: Array,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.degrees_of_freedom = degrees_of_freedom
        super().__init__(loadings, loc, noise_variance, validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed cells; shape (num_observations,) for a matrix of rows."""
        rows = value.reshape(-1, value.shape[-1])
        distances = _distances(rows, self.loadings, self.loc, self.noise_variance)
        count = jnp.sum(~jnp.isnan(rows), axis=1)
        return student_log_density(*distances, count, self.degrees_of_freedom).reshape(value.shape[:-1])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows."""
        own, rest = jax.random.split(key)
        half = self.degrees_of_freedom / 2
        scale = jnp.sqrt(half / jax.random.gamma(own, half, sample_shape))[..., None]
        return self.loc + scale * (super().sample(rest, sample_shape) - self.loc)

    @property
    def variance(self) -> Array:
        """The variance of each cell, infinite with two degrees of freedom or less."""
        nu = self.degrees_of_freedom
        return jnp.where(nu > 2, nu / jnp.where(nu > 2, nu - 2, 1.0), jnp.inf) * super().variance


class ShiftedRows(dist.Distribution):
    r"""Rows N(shift_n + loc, W W' + diag(noise_variance)), each with its mean.

    Args:
        shift: shape (num_observations, L).
        loadings: W, shape (L, num_latents).
        loc: shape (L,).
        noise_variance: shape (L,).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("shift", "loadings", "loc", "noise_variance")

    def __init__(self, shift: Array, loadings: Array, loc: Array, noise_variance: Array) -> None:
        self.shift, self.loadings, self.loc, self.noise_variance = shift, loadings, loc, noise_variance
        super().__init__(shift.shape[:1], shift.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed cells (NaN is missing), shape (num_observations,)."""
        return log_density(value - self.shift, self.loadings, self.loc, self.noise_variance)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows."""
        own = LinearGaussianRows(self.loadings, self.loc, self.noise_variance)
        return self.shift + own.sample(key, (*sample_shape, *self.batch_shape))


class RowsGivenOthers(dist.Distribution):
    r"""The last columns of rows [x, y] given the observed cells of the first ones, latents summed out.

    The log density is that of [x, y] less that of x, over observed cells. Draws are
    :math:`W_y z + \\mu_y + N(0, \\psi_y)` with z from its posterior given x.

    Args:
        x: the first columns, shape (num_observations, M); NaN is missing; may be sparse.
        loadings: of all columns, shape (M + L, num_latents).
        loc: of all columns, shape (M + L,).
        noise_variance: of all columns, shape (M + L,).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("x", "loadings", "loc", "noise_variance")

    def __init__(self, x: Array, loadings: Array, loc: Array, noise_variance: Array) -> None:
        if isinstance(x, SparseMatrix):
            m = x.shape[1]
            x, *own, _ = reduced(x, loadings[:m], loc[:m], noise_variance[:m])
            rest = loadings[m:], loc[m:], noise_variance[m:]
            loadings, loc, noise_variance = map(jnp.concatenate, zip(own, rest, strict=True))
        self.x, self.loadings, self.loc, self.noise_variance = x, loadings, loc, noise_variance
        super().__init__(x.shape[:1], (loc.shape[0] - x.shape[1],))

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed cells, shape (num_observations,)."""
        rows = jnp.concatenate([self.x, value], axis=1)
        both = log_density(rows, self.loadings, self.loc, self.noise_variance)
        return both - log_density(self.x, *self._known())

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the last columns, complete."""
        own, rest = jax.random.split(key)
        known, size = self._known(), self.x.shape[1]
        mean = latents_mean(self.x, *known)
        root = jnp.linalg.cholesky(latents_covariance(self.x, known[0], known[2]))
        standard = jax.random.normal(own, (*sample_shape, *mean.shape))
        latents = mean + jnp.einsum("nij,...nj->...ni", root, standard)
        noise = jax.random.normal(rest, (*sample_shape, *self.batch_shape, *self.event_shape))
        noise = jnp.sqrt(self.noise_variance[size:]) * noise
        return self.loc[size:] + latents @ self.loadings[size:].T + noise

    def _known(self) -> tuple[Array, Array, Array]:
        size = self.x.shape[1]
        return self.loadings[:size], self.loc[:size], self.noise_variance[:size]


class DenseRows(dist.Distribution):
    """Rows ~ Normal(loc, covariance); NaN is a missing cell.

    Args:
        loc: shape (num_observations, num_features).
        covariance: shape (num_features, num_features).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("loc", "covariance")

    def __init__(self, loc: Array, covariance: Array) -> None:
        self.loc, self.covariance = loc, covariance
        super().__init__(batch_shape=loc.shape[:1], event_shape=loc.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """Log density of each row over its observed cells, in nats."""
        seen = ~jnp.isnan(value)
        residual = jnp.where(seen, value - self.loc, 0.0)

        def with_holes(_: None) -> Array:
            def one(row: Array, mask: Array) -> Array:
                factor = jnp.linalg.cholesky(_only(self.covariance, mask))
                return _log_normal(factor, row, jnp.sum(mask))

            return jax.vmap(one)(residual, seen)

        def complete(_: None) -> Array:
            factor = jnp.linalg.cholesky(self.covariance)
            return jax.vmap(lambda row: _log_normal(factor, row, row.shape[0]))(residual)

        return jax.lax.cond(jnp.all(seen), complete, with_holes, None)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows."""
        noise = jax.random.normal(key, (*sample_shape, *self.loc.shape), self.loc.dtype)
        return self.loc + noise @ jnp.linalg.cholesky(self.covariance).T

    def mean_and_variance(self) -> tuple[Array, Array]:
        """Mean and variance of every cell.

        Returns:
            Two arrays of shape (num_observations, num_features).
        """
        return self.loc, jnp.broadcast_to(jnp.diagonal(self.covariance), self.loc.shape)

    def completed(self, x: Array) -> tuple[Array, Array]:
        """Rows with missing cells at their expectation given the observed ones, and each cell's variance.

        Args:
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Two arrays of the shape of ``x``; the variance of an observed cell is zero.
        """

        def one(row: Array, mean: Array) -> tuple[Array, Array]:
            mask = ~jnp.isnan(row)
            factor = jnp.linalg.cholesky(_only(self.covariance, mask))
            across = jnp.where(mask[:, None], self.covariance, 0.0)
            gain = cho_solve((factor, True), across).T
            filled = mean + gain @ jnp.where(mask, row - mean, 0.0)
            spread = jnp.diag(self.covariance) - jnp.sum(gain * across.T, axis=1)
            return jnp.where(mask, row, filled), jnp.where(mask, 0.0, spread)

        return jax.vmap(one)(x, self.loc)


class ReducedRows(NamedTuple):
    """Rows of a linear-Gaussian model with as many columns as latents.

    Attributes:
        rows: shape (num_observations, num_latents).
        loadings: shape (num_latents, num_latents).
        loc: zeros, shape (num_latents,).
        noise_variance: ones, shape (num_latents,).
        log_factor: to be added to the log density of each row, shape (num_observations,).
    """

    rows: Array
    loadings: Array
    loc: Array
    noise_variance: Array
    log_factor: Array


def reduced(x: SparseMatrix, loadings: Array, loc: Array, noise_variance: Array) -> ReducedRows:
    r"""Sparse rows, reduced to as many dense numbers as there are latents.

    A complete row x informs its latents through :math:`b = W^T \Psi^{-1} (x - \mu)` alone, with precision
    :math:`P = W^T \Psi^{-1} W = V \,\mathrm{diag}(s)\, V^T`. It is therefore worth the K numbers
    :math:`\tilde x = \mathrm{diag}(s)^{-1/2} V^T b` with loadings :math:`\mathrm{diag}(s)^{1/2} V^T`, mean 0
    and noise variance 1, up to a factor of its density that is free of the latents,

    .. math::
        -\tfrac12 \sum_d \{\log 2\pi\psi_d + (x_d - \mu_d)^2 / \psi_d\}
        + \tfrac12 (K \log 2\pi + \tilde x^T \tilde x) .

    Rows that are mostly zeros thus cost two sparse products and are never made dense; centring is implicit.
    The sum of squares is taken apart, which loses the digits by which the noise is smaller than the data.

    Args:
        x: the rows.
        loadings: W, shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: shape (num_features,) or ().

    Returns:
        Rows of as many columns as there are latents, with the parameters of their density.
    """
    precision = 1 / jnp.broadcast_to(jnp.asarray(noise_variance), loc.shape)
    scaled = loadings * precision[:, None]
    number = loadings.shape[1]
    products = x.times(jnp.concatenate([scaled, (loc * precision)[:, None]], axis=1))
    strengths, turn = jnp.linalg.eigh(scaled.T @ loadings)
    known = strengths > jnp.max(strengths) * jnp.finfo(strengths.dtype).eps
    lengths = jnp.sqrt(jnp.where(known, strengths, 1.0))
    rows = (products[:, :number] - loc @ scaled) @ turn * jnp.where(known, 1 / lengths, 0.0)
    squares = x.squares_times(precision[:, None])[:, 0] - 2 * products[:, number] + loc**2 @ precision
    log_det = jnp.sum(jnp.log(2 * jnp.pi / precision))
    factor = 0.5 * (number * jnp.log(2 * jnp.pi) + jnp.sum(rows**2, axis=1) - squares - log_det)
    own = jnp.where(known, lengths, 0.0)[:, None] * turn.T
    return ReducedRows(rows, own, jnp.zeros(number), jnp.ones(number), factor)


def _distances(x: Array, loadings: Array, loc: Array, noise_variance: Array) -> tuple[Array, Array]:
    """Each row's squared distance from the mean, and the log determinant of 2 pi times its covariance."""
    return _by_completeness(x, _complete_distances, _row_distances, loadings, loc, noise_variance)


def _per_column(noise_variance: Array, loadings: Array) -> Array:
    return jnp.broadcast_to(jnp.asarray(noise_variance), loadings.shape[:1])


def _by_completeness(
    x: Array, complete: Callable, one_row: Callable, loadings: Array, loc: Array, noise_variance: Array
) -> Any:
    """The function of all rows at once where none has a hole, else row by row, in blocks."""
    per_column = _per_column(noise_variance, loadings)

    def masked(x: Array) -> Any:
        observed = ~jnp.isnan(x)
        residual = jnp.where(observed, x - loc, 0.0)
        weights = observed.astype(residual.dtype)
        rows = residual, weights
        return map_in_blocks(lambda row: one_row(*row, loadings, per_column), rows, BLOCK_ROWS)

    def whole(x: Array) -> Any:
        # a hole cannot be here; zeros keep gradients of the branch not taken finite
        return complete(jnp.where(jnp.isnan(x), 0.0, x - loc), loadings, per_column)

    if not isinstance(x, jax.core.Tracer):
        return masked(jnp.asarray(x)) if np.isnan(np.asarray(x)).any() else whole(jnp.asarray(x))
    return jax.lax.cond(jnp.any(jnp.isnan(x)), masked, whole, x)


def _factor(observed: Array, loadings: Array, per_column: Array) -> Array:
    """Lower Cholesky factor of A for the columns that are observed (ones and zeros)."""
    num_latents = loadings.shape[1]
    outer = (loadings / per_column[:, None])[:, :, None] * loadings[:, None, :]
    precision = (observed @ outer.reshape(-1, num_latents**2)).reshape(num_latents, num_latents)
    return jnp.linalg.cholesky(precision + jnp.eye(num_latents))


def _complete_latents(residual: Array, loadings: Array, per_column: Array) -> tuple[Array, Array]:
    """Posterior means of rows without a hole, and the Cholesky factor of their A."""
    scaled = loadings / per_column[:, None]
    factor = jnp.linalg.cholesky(scaled.T @ loadings + jnp.eye(loadings.shape[1]))
    return cho_solve((factor, True), scaled.T @ residual.T).T, factor


def _complete_mean(residual: Array, loadings: Array, per_column: Array) -> Array:
    return _complete_latents(residual, loadings, per_column)[0]


def _complete_distances(residual: Array, loadings: Array, per_column: Array) -> tuple[Array, Array]:
    mean, factor = _complete_latents(residual, loadings, per_column)
    squares = (residual - mean @ loadings.T) ** 2 @ (1 / per_column) + jnp.sum(mean**2, axis=-1)
    log_det = jnp.sum(jnp.log(2 * jnp.pi * per_column)) + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    return squares, jnp.broadcast_to(log_det, squares.shape)


def _row_latents(residual: Array, observed: Array, loadings: Array, per_column: Array) -> tuple[Array, Array]:
    """Posterior mean of a row with holes, and the Cholesky factor of its A."""
    factor = _factor(observed, loadings, per_column)
    halfway = solve_triangular(factor, (residual / per_column) @ loadings, lower=True)
    return solve_triangular(factor, halfway, lower=True, trans=1), factor


def _row_mean(residual: Array, observed: Array, loadings: Array, per_column: Array) -> Array:
    return _row_latents(residual, observed, loadings, per_column)[0]


def _row_distances(
    residual: Array, observed: Array, loadings: Array, per_column: Array
) -> tuple[Array, Array]:
    mean, factor = _row_latents(residual, observed, loadings, per_column)
    squares = (observed * (residual - loadings @ mean) ** 2) @ (1 / per_column) + jnp.sum(mean**2)
    log_det = observed @ jnp.log(2 * jnp.pi * per_column) + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    return squares, log_det


def _only(covariance: Array, mask: Array) -> Array:
    both = mask[:, None] & mask[None]
    return jnp.where(both, covariance, jnp.eye(covariance.shape[0], dtype=covariance.dtype))


def _log_normal(factor: Array, residual: Array, count: Array | int) -> Array:
    whitened = solve_triangular(factor, residual, lower=True)
    constant = count * jnp.log(2 * jnp.pi) / 2
    return -0.5 * whitened @ whitened - jnp.sum(jnp.log(jnp.diag(factor))) - constant
