r"""Variational Bayes for linear-Gaussian models of a joint matrix whose columns share noise by group.

The posterior is approximated by :math:`q(Z)\, q(W, \mu)\, q(\tau)\, q(\alpha)`, with :math:`\tau_g =
1/\psi_g`, :math:`\tilde w_d = [w_d, \mu_d]` and :math:`\tilde z = [z, 1]`. Each factor is conjugate:

.. math::
    q(z_n) &= N(m_n, \Lambda_n^{-1}), \quad \Lambda_n = I + \sum_{d \in o_n} \langle\tau_d\rangle
        \langle w_d w_d^T\rangle, \quad
        m_n = \Lambda_n^{-1} \sum_{d \in o_n} \langle\tau_d\rangle (\langle w_d\rangle x_{nd} -
        \langle w_d \mu_d\rangle) \\
    q(\tilde w_d) &= N(\cdot, S_d), \quad S_d^{-1} = \mathrm{diag}(\langle\alpha\rangle, 1/v) +
        \langle\tau_d\rangle \sum_{n \in o_d} \langle\tilde z_n \tilde z_n^T\rangle \\
    q(\tau_g) &= \mathrm{Gamma}(a + \tfrac12 |o_g|,\; b + \tfrac12 \sum_{d \in g} \sum_{n \in o_d}
        \langle (x_{nd} - \tilde w_d^T \tilde z_n)^2 \rangle) \\
    q(\alpha_k) &= \mathrm{Gamma}(a_0 + D/2,\; b_0 + \tfrac12 \sum_d \langle w_{dk}^2\rangle)

with missing cells left out of every sum (the indicators of Morrison 2016). The data enter by the squares

.. math::
    \delta_n = m_n^T m_n + \sum_{d \in o_n} \langle\tau_d\rangle \{(x_{nd} - \langle\tilde w_d\rangle^T
        \tilde m_n)^2 + \tilde m_n^T S_d \tilde m_n\}

of *Student-t rows* too, each with a precision u of its own: :math:`q(z_n, u_n)` is one factor, exact given
the others,

.. math::
    q(u_n) = \mathrm{Gamma}(\tfrac12 (\nu + |o_n|),\; \tfrac12 (\nu + \delta_n)), \qquad
    q(z_n \mid u_n) = N(m_n, \Lambda_n^{-1} / u_n) ,

so that all sums over rows have the weights :math:`\langle u_n \rangle`, but for :math:`\langle u z z^T
\rangle = \Lambda^{-1} + \langle u \rangle m m^T`; the numbers of cells have none, and the bound gains
:math:`\tfrac12 |o_n| \langle\log u_n\rangle - \mathrm{KL}(q(u_n), p(u_n))`.

Expectations of :math:`\log\tau` and :math:`\log\alpha` are exact, digamma(e) - log f: estimated by sampling,
as Morrison (2016) does, the bound would not be monotone. The cross term there lacks the factor
:math:`y_{nm}`, and with missing cells its count is that of the observed cells.

The bound does not change with :math:`z \to L^{-1}(z - m), W \to W L, \mu \to \mu + W m` but for the priors
and the entropies, a few K x K matrices. After each round m and L are set so that the latents are standard
(and, under ARD, the loadings' columns orthogonal), and kept if the bound is higher (Luttinen and Ilin 2010,
"Transformations in variational Bayesian factor analysis"). Without this the bound crawls. Of Student-t rows
the moments that become standard are those of :math:`\sqrt u z`.

The objective is the whole evidence lower bound in nats. Cost as for EM,
`inference.methods.linear_gaussian.rows`.

Densities of new rows
---------------------
Loadings, mean and noise are random under q, so that :math:`E_q\, p(x)` is no Gaussian and has no closed form.
Given z the columns are independent and their loadings and mean integrate exactly,

.. math::
    E_q\, p(x) = \int N(z; 0, I) \prod_g E_{q(\tau_g)} \prod_{d \in g \cap o}
        N(x_d;\; \langle\tilde w_d\rangle^T \tilde z,\; \tilde z^T S_d \tilde z + 1/\tau_g)\; dz .

The expectations over :math:`\tau` are taken by Gauss and Hermite's rule in :math:`\log\tau` about the mode of
the integrand. (Gauss and Laguerre's under Gamma(e + n/2, f + sum r^2 / 2) fails for rows outside: what
:math:`S_d` multiplies it by grows as fast as its weights fall. It was 90 nats off at six deviations.) What is
left is the integral over the K latents of a row. It is the exact one of the Gaussian :math:`N(m_n,
\Lambda_n^{-1})` times a mean ratio over fixed, quasi-random points about it, turned to the principal axes of
the loadings: where q is sharp the ratio is constant, whatever the points. The result has no random part and
does not change when q is turned. Rows more than three deviations of a chi-square out are explained by noise
or by loadings that q holds for unlikely, so that the integrand lies elsewhere and may have two modes: they
have further points, about the latents under the noise that the row calls for and in wide circles, and two
modes of each noise. Against quadrature with one latent: within .02 nats and 3e-4 of the log density.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.special
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import digamma, gammaln, logsumexp
from numpy.polynomial.hermite_e import hermegauss

from inference.algorithm import Outcome, as_one_chain
from inference.methods.linear_gaussian.em import (
    LoadingPrior,
    Parameters,
    as_weighed,
    bordered,
    column_precisions,
    sum_over_patterns,
)
from inference.methods.linear_gaussian.rows import CompressedRows, Pattern
from inference.numerics.host_draws import generator, site_draws
from inference.numerics.weighted_rows import map_rows, row_limit
from zoo.linear_gaussian.axes import signs_of
from zoo.linear_gaussian.rows import normal_latents
from zoo.mcfa import MCFA
from zoo.ppca import PPCA
from zoo.sppca import SPPCA

OF_ROWS = ("row_precision_concentration", "row_precision_rate")
NO_LOADINGS = 1e30  # precision of loadings that are zero, in that of others


class LatentMoments(NamedTuple):
    """Moments of the latents under q, summed over rows.

    Attributes:
        second: by class of columns, the sum of E[[z, 1] [z, 1]'] over the rows in which the class is
            observed.
        cross: by column, the sum of x E[z] over its rows, x about the centre, shape (D, num_latents).
        total_second: the sum of E[z z'] over all rows.
        total_first: the sum of E[z] over all rows.
        half_log_det: half the sum of log det of the covariances: the entropies but for their constants. Of
            Student-t rows the bound's terms of their precisions too.
        of_rows: of Student-t rows, where all moments above are E[u ...]: as of
            `inference.methods.linear_gaussian.em.Moments`.
    """

    second: Array
    cross: Array
    total_second: Array
    total_first: Array
    half_log_det: Array
    of_rows: tuple[Array, Array, Array] | None = None


def latent_moments(mean: Array, covariance: Array, precision: Array, rows: CompressedRows) -> LatentMoments:
    """The moments under the optimal q(Z).

    Args:
        mean: of [w, mu], shape (D, num_latents + 1).
        covariance: of [w, mu] by class of columns.
        precision: E[tau] of each column, shape (D,).
        rows: the data.
    """
    of_pattern, of_singles = (
        partial(moments, mean, covariance, precision) for moments in (_pattern_moments, _single_moments)
    )
    return sum_over_patterns(rows, of_pattern, of_singles)


def latents_of(
    x: Array, loadings: Array, loc: Array, covariance: Array, precision: Array
) -> tuple[Array, Array]:
    """Means and covariances of the latents of rows under q.

    Args:
        x: rows, NaN for missing cells, shape (num_observations, num_features).
        loadings: E[w], shape (num_features, num_latents).
        loc: E[mu], shape (num_features,).
        covariance: of [w, mu], by column, shape (num_features, num_latents + 1, num_latents + 1).
        precision: E[tau] of each column.

    Returns:
        Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
    """
    k = loadings.shape[1]
    outer = precision[:, None, None] * (loadings[:, :, None] * loadings[:, None, :] + covariance[:, :k, :k])

    def block(rows: Array) -> tuple[Array, Array]:
        seen = jnp.where(jnp.isnan(rows), 0.0, 1.0)
        away = jnp.where(seen > 0, rows - loc, 0.0)
        precisions = (seen @ outer.reshape(-1, k * k)).reshape(-1, k, k) + jnp.eye(k)
        factor = jnp.linalg.cholesky(precisions)
        spread = jax.vmap(lambda lower: cho_solve((lower, True), jnp.eye(k)))(factor)
        target = (away * precision) @ loadings - (seen * precision) @ covariance[:, :k, k]
        return jnp.einsum("nkj,nj->nk", spread, target), spread

    return map_rows(block, x)


def precisions_of(
    x: Array, means: Array, loadings: Array, loc: Array, covariance: Array, precision: Array, nu: Array
) -> tuple[Array, Array]:
    """Concentration and rate of the precision of each Student-t row under q, shapes (num_observations,).

    Args:
        x: as for `latents_of`.
        means: of the latents, as from there.
        loadings: as there.
        loc: as there.
        covariance: as there.
        precision: as there.
        nu: the degrees of freedom.
    """
    k = loadings.shape[1]

    def block(packed: Array) -> Array:
        rows, z = packed[:, :-k], packed[:, -k:]
        residual = rows - loc - z @ loadings.T
        extended = jnp.concatenate([z, jnp.ones((len(z), 1))], axis=1)
        blur = jnp.einsum("ni,dij,nj->nd", extended, covariance, extended)
        cells = jnp.where(jnp.isnan(rows), 0.0, precision * (residual**2 + blur))
        return jnp.sum(z**2, axis=1) + jnp.sum(cells, axis=1)

    squares = map_rows(block, jnp.concatenate([x, means], axis=1))
    return (nu + jnp.sum(~jnp.isnan(x), axis=1)) / 2, (nu + squares) / 2


NUM_POINTS = 512  # about the latents of a row, half of them the others' mirror images
NUM_NODES = 5  # of the integral over the log of a noise precision
NUM_ROW_NODES = 9  # and of a row's own
MODE_ROUNDS = (4, 30)  # towards its mode, for the usual rows and those far outside
ROW_ROUNDS = 30  # towards the noise that a row far outside calls for
WIDER = 2.0  # variance of the points, in that of the latents
RADII = (1.0, 4.0, 12.0)  # of latents by which the spread of the loadings may explain such a row
FAR = 3.0  # deviations of its squared distance


def log_predictive(
    x: Array,
    loadings: Array,
    loc: Array,
    covariance: Array,
    concentration: Array,
    rate: Array,
    group: np.ndarray,
    roots: Array | None = None,
) -> Array:
    """Log of the expectation of each row's density under q, over its observed cells.

    Args:
        x: rows, NaN for missing cells, shape (num_observations, num_features).
        loadings: E[w], shape (num_features, num_latents).
        loc: E[mu], shape (num_features,).
        covariance: of [w, mu], by column, shape (num_features, num_latents + 1, num_latents + 1).
        concentration: of the noise precision of each group, shape (num_groups,).
        rate: of it.
        group: noise group of each column, shape (num_features,).
        roots: what the rows' distances from ``loc`` have been multiplied by, and with them those of the mean
            that q holds for possible, shape (num_observations,); None: ones.

    Returns:
        Shape (num_observations,), in nats.
    """
    k, precision = loadings.shape[1], (concentration / rate)[group]
    axes = jnp.linalg.eigh(loadings.T @ (precision[:, None] * loadings))[1]
    axes = axes * signs_of(loadings @ axes)
    points = jnp.asarray(_quasi_normal(NUM_POINTS, k))
    noise = _NoiseOfRow(concentration, rate, group)

    def one(args: tuple[Array, Array | None]) -> Array:
        row, root = args
        own_covariance = covariance
        if root is not None:
            of_mean = jnp.append(jnp.ones(k), root)
            own_covariance = covariance * of_mean[:, None] * of_mean
        seen = jnp.where(jnp.isnan(row), 0.0, 1.0)
        target = jnp.nan_to_num(row - loc)

        def spreads_at(z: Array) -> Array:
            extended = jnp.concatenate([z, jnp.ones((len(z), 1))], axis=1)
            return seen * jnp.einsum("pi,dij,pj->pd", extended, own_covariance, extended)

        def value(is_far: bool) -> Array:
            centres, roots = [centre], [axes @ jnp.linalg.cholesky(axes.T @ spread @ axes)]
            if is_far:
                own = _normal_of_row(target, seen, loadings, own_covariance, noise)
                centres += [own[0]] + [jnp.zeros(k)] * len(RADII)
                roots += [axes @ jnp.linalg.cholesky(axes.T @ own[1] @ axes)]
                roots += [radius * axes for radius in RADII]
            pairs = list(zip(centres, roots, strict=True))
            z = jnp.concatenate([own + np.sqrt(WIDER) * points @ root.T for own, root in pairs])
            given = noise.log_density(seen * (target - z @ loadings.T), spreads_at(z), seen, is_far)
            joint = given - 0.5 * jnp.sum(z**2, axis=1)

            def log_normal(place: int, wider: float) -> Array:
                """Up to the constant -k / 2 log(2 pi), which cancels."""
                own, root = pairs[place]
                factor = axes.T @ root
                away = jax.scipy.linalg.solve_triangular(factor, axes.T @ (z - own).T, lower=True)
                log_det = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * k * np.log(wider)
                return -0.5 * jnp.sum(away**2, axis=0) / wider - log_det

            proposal = logsumexp(jnp.stack([log_normal(i, WIDER) for i in range(len(pairs))]), axis=0)
            return logsumexp(joint - proposal) - logsumexp(log_normal(0, 1.0) - proposal)

        [centre], [spread] = latents_of(row[None], loadings, loc, own_covariance, precision)
        blurred = 1.0 + precision * spreads_at(centre[None])[0]
        lengths = precision * seen * (target - loadings @ centre) ** 2 / blurred
        distance, count = jnp.sum(centre**2) + jnp.sum(lengths), jnp.sum(seen)
        is_far = distance > count + FAR * jnp.sqrt(2.0 * count)  # deviations of a chi-square
        return jax.lax.cond(is_far, lambda: value(True), lambda: value(False))

    return jax.lax.map(one, (x, roots))


def log_predictive_of_student(
    x: Array,
    loadings: Array,
    loc: Array,
    covariance: Array,
    concentration: Array,
    rate: Array,
    group: np.ndarray,
    nu: Array,
) -> Array:
    r"""`log_predictive` of Student-t rows with ``nu`` degrees of freedom.

    Given its precision u a row is normal, and :math:`\sqrt u (x - \mu)` has the precision of normal rows; the
    integral over log u is Gauss and Hermite's about the mode under the expectations of q.
    """
    precision = (concentration / rate)[group]
    means = latents_of(x, loadings, loc, covariance, precision)[0]
    shape, strength = precisions_of(x, means, loadings, loc, covariance, precision, nu)
    nodes, weights = hermegauss(NUM_ROW_NODES)
    prior, count = dist.Gamma(nu / 2, nu / 2), jnp.sum(~jnp.isnan(x), axis=1)

    def at(node: Array) -> Array:
        u = shape / strength * jnp.exp(node / jnp.sqrt(shape))
        root = jnp.sqrt(u)
        rows = loc + root[:, None] * (x - loc)
        given = log_predictive(rows, loadings, loc, covariance, concentration, rate, group, root)
        return given + prior.log_prob(u) + (count / 2 + 1) * jnp.log(u)

    heights = jax.lax.map(at, jnp.asarray(nodes)) - 0.5 * jnp.log(shape)
    return logsumexp(heights + jnp.asarray(nodes**2 / 2 + np.log(weights))[:, None], axis=0)


class _NoiseOfRow(NamedTuple):
    """The noise precisions of a row's columns by group, Gamma(concentration, rate) each."""

    concentration: Array
    rate: Array
    group: np.ndarray

    def mode(self, tau: Array, squares: Array, spreads: Array, seen: Array, rounds: int) -> Array:
        """Precisions at which the integrand over log tau is largest, by its stationarity equation.

        Shapes: ``tau`` (points, num_groups), the rest (points, num_features).
        """

        def move(_: int, tau: Array) -> Array:
            share = 1.0 / (1.0 + spreads * tau[:, self.group])
            gained = self.concentration + 0.5 * self.by_group(seen * share)
            return gained / (self.rate + 0.5 * self.by_group(squares * share**2))

        return jax.lax.fori_loop(0, rounds, move, tau)

    def log_density(self, residual: Array, spreads: Array, seen: Array, is_far: bool) -> Array:
        r"""Log of :math:`E_\tau \prod_d N(r_d; 0, s_d + 1 / \tau_g)` at each point, in nats.

        By Gauss and Hermite's rule in log tau about the mode of each group's integrand, not that of q. For a
        row far outside there may be two, one where the noise explains it and one where the loadings' spread
        does: each takes the share of the integrand that a mixture of normals at both would give it.
        """
        squares = residual**2
        count = self.by_group(seen * jnp.ones_like(squares))
        most = self.concentration + count / 2

        def height(log_tau: Array) -> Array:
            of_columns = jnp.exp(log_tau)[:, self.group]
            blurred = 1.0 + spreads * of_columns
            cells = 0.5 * (jnp.log(blurred) + squares * of_columns / blurred)
            return most * log_tau - self.rate * jnp.exp(log_tau) - self.by_group(cells)

        def peak(tau: Array) -> tuple[Array, Array, Array]:
            tau = self.mode(tau, squares, spreads, seen, MODE_ROUNDS[is_far])
            share = 1.0 / (1.0 + spreads * tau[:, self.group])
            curvature = tau * self.rate + 0.5 * self.by_group(
                share * (1.0 - share) + squares * tau[:, self.group] * share**2 * (2.0 * share - 1.0)
            )
            least = 0.25 * (self.concentration + 0.5 * self.by_group(seen * share))
            log_tau = jnp.log(tau)
            return log_tau, 1.0 / jnp.sqrt(jnp.maximum(curvature, least)), height(log_tau)

        peaks = [peak(most / (self.rate + self.by_group(squares) / 2))]
        if is_far:
            peaks.append(peak(jnp.broadcast_to(most / self.rate, peaks[0][0].shape)))
        nodes, weights = hermegauss(NUM_NODES)
        log_weights = jnp.asarray(nodes**2 / 2 + np.log(weights))

        def at(own: int) -> Array:
            log_tau, width, _ = peaks[own]

            def of_node(node: Array) -> Array:
                y = log_tau + node * width
                beside = [top - 0.5 * ((y - centre) / wide) ** 2 for centre, wide, top in peaks]
                return height(y) + beside[own] - logsumexp(jnp.stack(beside), axis=0)

            heights = jax.lax.map(of_node, jnp.asarray(nodes))
            return logsumexp(heights + log_weights[:, None, None], axis=0) + jnp.log(width)

        constant = self.concentration * jnp.log(self.rate) - gammaln(self.concentration)
        constant = constant - 0.5 * count * jnp.log(2 * jnp.pi)
        whole = logsumexp(jnp.stack([at(own) for own in range(len(peaks))]), axis=0)
        return jnp.sum(whole + constant, axis=1)

    def by_group(self, cells: Array) -> Array:
        """Sums over the columns of each group, shape (points, num_groups)."""
        if np.array_equal(self.group, np.arange(cells.shape[1])):
            return cells
        if not self.group.any():
            return jnp.sum(cells, axis=1, keepdims=True)
        return jax.ops.segment_sum(cells.T, self.group, self.rate.shape[0]).T


def _normal_of_row(
    target: Array, seen: Array, loadings: Array, covariance: Array, noise: _NoiseOfRow
) -> tuple[Array, Array]:
    """Mean and covariance of a row's latents under the noise that the row itself calls for."""
    k = loadings.shape[1]

    def move(_: int, carry: tuple) -> tuple:
        _, _, tau, spreads = carry
        precision = seen * tau[0, noise.group] / (1.0 + spreads * tau[0, noise.group])
        spread = jnp.linalg.inv(jnp.eye(k) + loadings.T @ (precision[:, None] * loadings))
        centre = spread @ (loadings.T @ (precision * target))
        extended = jnp.append(centre, 1.0)
        spreads = jnp.einsum("i,dij,j->d", extended, covariance, extended)
        spreads = seen * (spreads + jnp.einsum("dij,ij->d", covariance[:, :k, :k], spread))
        squares = (target - loadings @ centre) ** 2 + jnp.einsum("di,ij,dj->d", loadings, spread, loadings)
        tau = noise.mode(tau, (seen * squares)[None], spreads[None], seen[None], 3)
        return centre, spread, tau, spreads

    begin = jnp.zeros(k), jnp.eye(k), (noise.concentration / noise.rate)[None], jnp.zeros_like(target)
    return jax.lax.fori_loop(0, ROW_ROUNDS, move, begin)[:2]


@cache
def _quasi_normal(count: int, size: int) -> np.ndarray:
    """Points of a Kronecker sequence by the normal quantile function, and their mirror images."""
    ratio = 2.0
    for _ in range(60):  # the root of r^(size + 1) = r + 1
        ratio = (1 + ratio) ** (1 / (size + 1))
    steps = ratio ** -np.arange(1.0, size + 1)
    uniform = (0.5 + np.arange(1, count // 2 + 1)[:, None] * steps) % 1.0
    normal = scipy.special.ndtri(uniform)
    return np.concatenate([normal, -normal])


def _pattern_moments(
    mean: Array, covariance: Array, precision: Array, rows: CompressedRows, pattern: Pattern
) -> LatentMoments:
    loadings, loc = mean[:, :-1], mean[:, -1]
    k = loadings.shape[1]
    weights = pattern.observed * precision
    by_class = jax.ops.segment_sum(weights, rows.column_class, covariance.shape[0])
    scaled = weights[:, None] * loadings
    own = jnp.eye(k) + scaled.T @ loadings + jnp.einsum("q,qij->ij", by_class, covariance[:, :k, :k])
    factor = jnp.linalg.cholesky(own)
    spread = cho_solve((factor, True), jnp.eye(k))
    target = (pattern.mean - loc) @ scaled - by_class @ covariance[:, :k, k]
    first, scores = spread @ target, pattern.rows @ (scaled @ spread)
    second = pattern.count * (spread + jnp.outer(first, first)) + scores.T @ scores
    whole = bordered(second, pattern.count * first, pattern.count)
    return LatentMoments(
        second=pattern.observed[rows.class_member][:, None, None] * whole,
        cross=pattern.rows.T @ scores + pattern.count * jnp.outer(pattern.mean, first),
        total_second=second,
        total_first=pattern.count * first,
        half_log_det=-pattern.count * jnp.sum(jnp.log(jnp.diag(factor))),
    )


def _single_moments(
    mean: Array,
    covariance: Array,
    precision: Array,
    rows: CompressedRows,
    x: Array,
    seen: Array,
    weight: Array,
) -> LatentMoments:
    """The moments of rows that differ in their holes; x about the centre and zero where missing."""
    k = mean.shape[1] - 1
    whole = jnp.where(seen > 0, x, jnp.nan)
    per_column = covariance[rows.column_class]
    columns = mean[:, :-1], mean[:, -1], per_column, precision
    first, spread = latents_of(whole, *columns)
    half_log_det, own, of_rows = 0.5 * weight @ jnp.linalg.slogdet(spread)[1], weight, None
    if rows.degrees_of_freedom is not None:
        nu = rows.degrees_of_freedom
        shape, strength = precisions_of(whole, first, *columns, nu)
        expected = shape / strength
        terms = jnp.sum(seen, axis=1) * (digamma(shape) - jnp.log(strength)) / 2
        half_log_det += weight @ (terms - _gamma_divergence(shape, strength, nu / 2, nu / 2))
        spread, own = spread / expected[:, None, None], weight * expected
        of_rows = jnp.sum(own), own @ x, own @ x**2
    second = own[:, None, None] * (spread + first[:, :, None] * first[:, None, :])
    weighed = own[:, None] * first
    joint = bordered(second, weighed, own)
    by_class = seen[:, rows.class_member].T @ joint.reshape(joint.shape[0], -1)
    return LatentMoments(
        second=by_class.reshape(-1, k + 1, k + 1),
        cross=x.T @ weighed,
        total_second=jnp.sum(second, axis=0),
        total_first=jnp.sum(weighed, axis=0),
        half_log_det=half_log_det,
        of_rows=of_rows,
    )


def sample_columns(
    suffix: str,
    mean: Array,
    covariance: Array,
    cross: Array,
    loc_mean: Array,
    loc_variance: Array,
    concentration: Array,
    rate: Array,
) -> None:
    """Sample a block of columns from q: the mean, the loadings given it, the noise variance.

    Args:
        suffix: of the sites' names.
        mean: of the loadings, shape (num_features, num_latents).
        covariance: of each column's loadings, shape (num_features, num_latents, num_latents).
        cross: of each column's loadings with its mean, shape (num_features, num_latents).
        loc_mean: shape (num_features,).
        loc_variance: shape (num_features,).
        concentration: of the inverse-gamma q of the noise variance, shape () or one for each column.
        rate: of it, likewise.
    """
    loc = numpyro.sample(f"loc{suffix}", dist.Normal(loc_mean, jnp.sqrt(loc_variance)).to_event(1))
    slope = cross / loc_variance[:, None]
    given = dist.MultivariateNormal(
        mean + slope * (loc - loc_mean)[:, None],
        covariance - slope[:, :, None] * cross[:, None, :],
        validate_args=False,
    )
    numpyro.sample(f"loadings{suffix}", given.to_event(1))
    noise = dist.InverseGamma(concentration, rate)
    numpyro.sample(f"noise_variance{suffix}", noise.to_event(jnp.ndim(rate)))


def expected_variance(concentration: Array, rate: Array) -> Array:
    """E[1/u] of precisions u under a gamma distribution, infinite where its concentration is at most 1."""
    return jnp.where(concentration > 1, rate / jnp.where(concentration > 1, concentration - 1, 1.0), jnp.inf)


def sample_latents(
    num_rows: int, num_latents: int, moments: tuple[Array, ...] | None, nu: Array | None = None
) -> None:
    """Sample the latents from q with these means and covariances, or from the prior if there are none.

    Of Student-t rows the precisions first, whose concentrations and rates stand after the covariances.
    """
    with numpyro.plate("observations", num_rows):
        if nu is not None:
            of_rows = (nu / 2, nu / 2) if moments is None else moments[2:]
            u = numpyro.sample("row_precision", dist.Gamma(*of_rows))
        if moments is None:
            own = normal_latents(num_latents, None if nu is None else u)
        else:
            spread = moments[1] if nu is None else moments[1] / u[:, None, None]
            own = dist.MultivariateNormal(moments[0], spread, validate_args=False)
        numpyro.sample("latents", own)


def concluded(
    key: Array,
    sample_globals: Callable,
    model: PPCA | MCFA | SPPCA,
    stored: dict[str, Array],
    latents: tuple[Array, ...],
    dims: Mapping[str, tuple[str, ...]],
    shared: bool,
    num_samples: int,
    keep_rows: bool,
) -> Outcome:
    """Conclude a fit by independent draws of q, its parameters, and the latents of the rows.

    Args:
        key: a JAX key.
        sample_globals: ``sample_globals(stored, model)``, q of everything but the latents, a NumPyro program.
        model: the model.
        stored: the parameters of q.
        latents: means and covariances of the latents of the rows, shapes (num_observations, num_latents) and
            (num_observations, num_latents, num_latents); of Student-t rows those given a precision of 1, and
            concentrations and rates of their precisions.
        dims: of the parameters of q.
        shared: whether all rows have the same covariance, which is then stored once.
        num_samples: how many draws.
        keep_rows: whether the latents are drawn too.
    """
    means, covariances, *of_rows = latents
    program = _with_latents(sample_globals) if keep_rows else sample_globals
    args = (stored, model, latents) if keep_rows else (stored, model)
    draws = site_draws(generator(key), program, num_samples, *args)
    if row_limit(8 * means.size, "latents", ()):
        stored["latents"] = means
        stored |= dict(zip(OF_ROWS, of_rows, strict=False))
    if of_rows:
        covariances = covariances * expected_variance(*of_rows)[:, None, None]
    if shared:
        stored["latents_covariance"] = np.asarray(covariances)[0]
        dims = dict(dims) | {"latents_covariance": ("latent", "latent_2")}
    elif row_limit(8 * covariances.size, "latents_covariance", ()):
        stored["latents_covariance"] = covariances
    posterior = as_one_chain(draws)
    densities = {"objective": ()}
    return Outcome(posterior=posterior, variational=stored, dims=dims, densities=densities)


@cache
def _with_latents(sample_globals: Callable) -> Callable:
    """Q of everything as a NumPyro program, made once, since it keys the compile cache."""

    def program(stored: dict[str, Array], model: PPCA | MCFA, moments: tuple[Array, ...]) -> None:
        sample_globals(stored, model)
        nu = model.degrees_of_freedom if len(moments) > 2 else None
        num_rows, num_latents = moments[0].shape
        sample_latents(num_rows, num_latents, moments, nu)

    return program


class LinearGaussianPosterior(NamedTuple):
    """All factors of q but that of the latents, which follows from them; means are about the data's centre.

    Attributes:
        mean: of [w_d, mu_d], shape (D, num_latents + 1).
        covariance: S of each class of columns, shape (Q, num_latents + 1, num_latents + 1).
        noise_concentration: e of the noise precision of each group, shape (num_groups,).
        noise_rate: f.
        ard_concentration: of the precision of each column of loadings, shape (num_latents,); with a Gaussian
            prior, where the precision is known, anything.
        ard_rate: its rate.
    """

    mean: Array
    covariance: Array
    noise_concentration: Array
    noise_rate: Array
    ard_concentration: Array
    ard_rate: Array


class LinearGaussianVBInfo(NamedTuple):
    """Quantities recorded at each step.

    Attributes:
        objective: the evidence lower bound, in nats.
        noise_variance: 1 / E[tau], mean over the groups.
        num_relevant: latents whose loadings are larger than their uncertainty.
    """

    objective: Array
    noise_variance: Array
    num_relevant: Array


def posterior_at(
    parameters: Parameters, rows: CompressedRows, prior: LoadingPrior
) -> LinearGaussianPosterior:
    """Degenerate factors at given parameters, from which the first step makes a posterior."""
    loadings, loc, noise = parameters
    size = loadings.shape[1]
    concentration, rate = _ard_update(jnp.sum(loadings**2, axis=0), rows, prior)
    return LinearGaussianPosterior(
        mean=jnp.concatenate([loadings, loc[:, None]], axis=1),
        covariance=jnp.zeros((rows.class_member.shape[0], size + 1, size + 1)),
        noise_concentration=jnp.ones_like(noise),
        noise_rate=noise,
        ard_concentration=concentration,
        ard_rate=rate,
    )


def step(
    state: LinearGaussianPosterior, rows: CompressedRows, prior: LoadingPrior, *, acceleration: str = "px"
) -> tuple[LinearGaussianPosterior, LinearGaussianVBInfo]:
    """Update latents, loadings and mean, the transformation, ARD precisions and noise, then the bound.

    Args:
        state: q.
        rows: the data; not rotated.
        prior: of the parameters.
        acceleration: ``"px"``: with the transformation; ``"none"``: without.
    """
    precision = (state.noise_concentration / state.noise_rate)[rows.group]
    latents = latent_moments(state.mean, state.covariance, precision, rows)
    rows, size = as_weighed(rows, latents.of_rows)
    state, log_dets = _update_loadings(state, latents, precision, rows, prior)
    state = _update_ard(state, rows, prior)
    if acceleration == "px":
        change = _transformation(state, latents, rows, prior, size)
        moved = _update_ard(_transformed(state, change), rows, prior)
        there = moved, _transformed_latents(latents, change, rows, size), log_dets + 2 * change.log_det
        here = state, latents, log_dets
        better = _global_terms(*there, rows, prior) > _global_terms(*here, rows, prior)
        state, latents, log_dets = jax.tree.map(partial(jnp.where, better), there, here)
    state, of_noise = _update_noise(state, latents, rows, prior)
    objective = _global_terms(state, latents, log_dets, rows, prior) + of_noise
    noise_variance = jnp.mean(state.noise_rate / state.noise_concentration)
    return state, LinearGaussianVBInfo(objective, noise_variance, num_relevant(state, rows))


def update_columns(
    state: LinearGaussianPosterior, latents: LatentMoments, rows: CompressedRows, prior: LoadingPrior
) -> tuple[LinearGaussianPosterior, Array, Array]:
    """Update loadings and mean, ARD precisions and noise for latents of any prior.

    Returned with the log determinant of each class's covariance, and the bound but for the latents' density
    and entropy, in nats.
    """
    precision = (state.noise_concentration / state.noise_rate)[rows.group]
    state, log_dets = _update_loadings(state, latents, precision, rows, prior)
    state, noise = _update_noise(_update_ard(state, rows, prior), latents, rows, prior)
    return state, log_dets, _column_terms(0.0, state, log_dets, rows, prior) + noise


def expected_precisions(state: LinearGaussianPosterior, prior: LoadingPrior) -> tuple[Array, Array]:
    """The expectations E[alpha] and E[log alpha] of each latent's loadings; one and zero without ARD."""
    mean = _under_ard(prior, lambda: state.ard_concentration / state.ard_rate, jnp.ones_like(state.ard_rate))
    log_mean = _under_ard(
        prior,
        lambda: digamma(state.ard_concentration) - jnp.log(state.ard_rate),
        jnp.zeros_like(state.ard_rate),
    )
    return _of_present(prior, mean, NO_LOADINGS), _of_present(prior, log_mean, np.log(NO_LOADINGS))


def _under_ard(prior: LoadingPrior, own: Callable[[], Array], other: Array) -> Array:
    """What holds under ARD, else the other."""
    if prior.is_ard is None:
        return own() if prior.loading_variance is None else other
    return jnp.where(prior.is_ard, own(), other)


def _of_present(prior: LoadingPrior, values: Array, other: Array | float) -> Array:
    """Values of the latents that there are, and another number of those that only fill up."""
    return values if prior.present is None else jnp.where(prior.present, values, other)


def num_relevant(state: LinearGaussianPosterior, rows: CompressedRows) -> Array:
    """The number of latents whose squared mean loadings exceed their variances, summed over columns."""
    means = jnp.sum(state.mean[:, :-1] ** 2, axis=0)
    variances = jnp.diagonal(state.covariance, axis1=1, axis2=2)[rows.column_class, :-1]
    return jnp.sum(means > jnp.sum(variances, axis=0))


# Updates


def _update_loadings(
    state: LinearGaussianPosterior,
    latents: LatentMoments,
    precision: Array,
    rows: CompressedRows,
    prior: LoadingPrior,
) -> tuple[LinearGaussianPosterior, Array]:
    """The state, and the log determinant of each class's covariance."""
    alpha, _ = expected_precisions(state, prior)
    of_loadings, of_loc = column_precisions(prior, rows.sums.shape[0])
    own = jnp.concatenate([of_loadings[:, None] * alpha, of_loc[:, None]], axis=1)[rows.class_member]
    own = jax.vmap(jnp.diag)(own) + precision[rows.class_member, None, None] * latents.second
    factor = jnp.linalg.cholesky(own)
    covariance = jax.vmap(lambda lower: cho_solve((lower, True), jnp.eye(own.shape[1])))(factor)
    shift = prior.loc * of_loc
    target = precision[:, None] * jnp.concatenate([latents.cross, rows.sums[:, None]], axis=1)
    target = target.at[:, -1].add(shift)
    mean = jnp.einsum("di,dij->dj", target, covariance[rows.column_class])
    log_dets = -2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
    return state._replace(mean=mean, covariance=covariance), log_dets


def _update_ard(
    state: LinearGaussianPosterior, rows: CompressedRows, prior: LoadingPrior
) -> LinearGaussianPosterior:
    concentration, rate = _ard_update(jnp.diag(_gram(state, rows))[:-1], rows, prior)
    return state._replace(ard_concentration=concentration, ard_rate=rate)


def _ard_update(squares: Array, rows: CompressedRows, prior: LoadingPrior) -> tuple[Array, Array]:
    concentration = prior.ard_concentration + rows.sums.shape[0] / 2
    return jnp.full(squares.shape, 1.0) * concentration, prior.ard_rate + squares / 2


def _update_noise(
    state: LinearGaussianPosterior, latents: LatentMoments, rows: CompressedRows, prior: LoadingPrior
) -> tuple[LinearGaussianPosterior, Array]:
    squares = _expected_squares(state, latents, rows)
    state = state._replace(
        noise_concentration=prior.noise_concentration + _cells(rows) / 2,
        noise_rate=prior.noise_rate + squares / 2,
    )
    return state, _noise_terms(state, squares, rows, prior)


# The transformation that leaves the data's terms as they are


class Transformation(NamedTuple):
    """L and m of latents that are moved by m and multiplied by the inverse of L.

    Attributes:
        root: L, shape (num_latents, num_latents).
        inverse: of it.
        log_det: logarithm of its determinant without the sign.
        m: shape (num_latents,).
    """

    root: Array
    inverse: Array
    log_det: Array
    m: Array


def _transformation(
    state: LinearGaussianPosterior,
    latents: LatentMoments,
    rows: CompressedRows,
    prior: LoadingPrior,
    weight: Array,
) -> Transformation:
    """The transformation after which the terms of latents and loadings are highest.

    The weight is that of the rows in the latents' moments.
    """
    size, columns = rows.total_weight, rows.sums.shape[0]
    loadings, gram, with_loc = prior_pulls(state, rows, prior)
    first = latents.total_first / weight
    eye = jnp.eye(first.shape[0])
    pulled = jnp.linalg.cholesky(weight * eye + gram)
    m = cho_solve((pulled, True), weight * first - with_loc)
    spread = latents.total_second / weight - jnp.outer(first, m) - jnp.outer(m, first) + jnp.outer(m, m)
    root = jnp.linalg.cholesky(spread * (weight / size))
    square = root.T @ loadings @ root  # zero where a latent is not there: above all others it stays last
    absent = _of_present(prior, jnp.zeros_like(first), 1 + 2 * jnp.trace(square))
    strengths, turn = jnp.linalg.eigh(square + jnp.diag(absent))
    turn = turn * signs_of(state.mean[:, :-1] @ root @ turn)  # whatever the size of the matrix
    pull, free = jnp.maximum(strengths, 1e-300), size - columns  # pull z^2 + (N - D) z = N
    lengths = jnp.sqrt(2 * size / (free + jnp.sqrt(free**2 + 4 * pull * size)))
    lengths = _under_ard(prior, lambda: jnp.ones_like(strengths), _of_present(prior, lengths, 1.0))
    inverse = (turn / lengths).T @ solve_triangular(root, eye, lower=True)
    log_det = jnp.sum(jnp.log(jnp.diag(root))) + jnp.sum(jnp.log(lengths))
    return Transformation(root @ turn * lengths, inverse, log_det, m)


def prior_pulls(
    state: LinearGaussianPosterior, rows: CompressedRows, prior: LoadingPrior
) -> tuple[Array, Array, Array]:
    """What the prior of the columns says of a transformation of the latents.

    Sums of E[w w'] over the prior variances of loadings and over those of the mean, and of E[w (mu - m)] over
    the latter.
    """
    of_loadings, of_loc = column_precisions(prior, rows.sums.shape[0])
    loadings, gram = _gram(state, rows, of_loadings)[:-1, :-1], _gram(state, rows, of_loc)
    with_loc = gram[:-1, -1] - (of_loc * prior.loc) @ state.mean[:, :-1]
    return loadings, gram[:-1, :-1], with_loc


def transformed_columns(
    state: LinearGaussianPosterior,
    log_dets: Array,
    by: Transformation,
    rows: CompressedRows,
    prior: LoadingPrior,
) -> tuple[LinearGaussianPosterior, Array]:
    """The columns for transformed latents, and the gain of the bound without these, in nats."""
    moved = _update_ard(_transformed(state, by), rows, prior)
    there = _column_terms(0.0, moved, log_dets + 2 * by.log_det, rows, prior)
    return moved, there - _column_terms(0.0, state, log_dets, rows, prior)


def _transformed(state: LinearGaussianPosterior, by: Transformation) -> LinearGaussianPosterior:
    change = jnp.block([[by.root.T, jnp.zeros((by.m.size, 1))], [by.m, jnp.ones(1)]])
    return state._replace(
        mean=state.mean @ change.T, covariance=jnp.einsum("ij,qjk,lk->qil", change, state.covariance, change)
    )


def _transformed_latents(
    latents: LatentMoments, by: Transformation, rows: CompressedRows, weight: Array
) -> LatentMoments:
    inverse, size = by.inverse, by.m.size
    change = jnp.block([[inverse, -(inverse @ by.m)[:, None]], [jnp.zeros(size), jnp.ones(1)]])
    whole = bordered(latents.total_second, latents.total_first, jnp.asarray(weight))
    whole = change @ whole @ change.T
    return LatentMoments(
        second=jnp.einsum("ij,qjk,lk->qil", change, latents.second, change),
        cross=(latents.cross - jnp.outer(rows.sums, by.m)) @ inverse.T,
        total_second=whole[:size, :size],
        total_first=whole[:size, size],
        half_log_det=latents.half_log_det - rows.total_weight * by.log_det,
        of_rows=latents.of_rows,
    )


# Expectations and the bound


def _gram(state: LinearGaussianPosterior, rows: CompressedRows, weights: Array | None = None) -> Array:
    """The (weighted) sum over columns of E[[w, mu] [w, mu]']."""
    weights = jnp.ones(rows.sums.shape, state.mean.dtype) if weights is None else weights
    by_class = jax.ops.segment_sum(weights, rows.column_class, rows.class_member.shape[0])
    return (state.mean.T * weights) @ state.mean + jnp.einsum("q,qij->ij", by_class, state.covariance)


def _cells(rows: CompressedRows) -> Array:
    return jax.ops.segment_sum(rows.cells, rows.group, rows.num_groups)


def _expected_squares(state: LinearGaussianPosterior, latents: LatentMoments, rows: CompressedRows) -> Array:
    """The sum of E[(x - w'z - mu)^2] over the cells of each noise group."""
    right = jnp.concatenate([latents.cross, rows.sums[:, None]], axis=1)
    fitted = jnp.einsum("di,dij,dj->d", state.mean, latents.second[rows.column_class], state.mean)
    spread = jnp.einsum("qij,qij->q", state.covariance, latents.second)[rows.column_class]
    squares = rows.squares - 2 * jnp.sum(state.mean * right, axis=1) + fitted + spread
    return jax.ops.segment_sum(squares, rows.group, rows.num_groups)


def _global_terms(
    state: LinearGaussianPosterior,
    latents: LatentMoments,
    log_dets: Array,
    rows: CompressedRows,
    prior: LoadingPrior,
) -> Array:
    """The part of the bound without the noise: latents, loadings, mean, ARD precisions."""
    size = latents.total_first.shape[0]
    local = latents.half_log_det + (rows.total_weight * size - jnp.trace(latents.total_second)) / 2
    return _column_terms(local, state, log_dets, rows, prior)


def _column_terms(
    local: Array | float,
    state: LinearGaussianPosterior,
    log_dets: Array,
    rows: CompressedRows,
    prior: LoadingPrior,
) -> Array:
    """What the bound has of the latents, and its terms of loadings, mean and ARD precisions."""
    columns, size = rows.sums.shape[0], state.mean.shape[1] - 1
    alpha, log_alpha = expected_precisions(state, prior)
    of_loadings, of_loc = column_precisions(prior, columns)
    loadings = columns * jnp.sum(log_alpha - jnp.log(2 * jnp.pi)) + size * jnp.sum(jnp.log(of_loadings))
    loadings = loadings - alpha @ jnp.diag(_gram(state, rows, of_loadings))[:-1]
    spread = state.covariance[rows.column_class, -1, -1]
    away = (state.mean[:, -1] - prior.loc) ** 2 + spread
    means = jnp.sum(jnp.log(of_loc / (2 * jnp.pi)) - of_loc * away)
    entropy = jnp.sum(log_dets[rows.column_class]) + columns * (size + 1) * (1 + jnp.log(2 * jnp.pi))
    total = local + (loadings + means + entropy) / 2

    def divergence() -> Array:
        ard = prior.ard_concentration, prior.ard_rate
        divergences = _gamma_divergence(state.ard_concentration, state.ard_rate, *ard)
        return jnp.sum(_of_present(prior, divergences, 0.0))

    return total - _under_ard(prior, divergence, jnp.zeros(()))


def _noise_terms(
    state: LinearGaussianPosterior, squares: Array, rows: CompressedRows, prior: LoadingPrior
) -> Array:
    concentration, rate = state.noise_concentration, state.noise_rate
    log_precision = digamma(concentration) - jnp.log(rate)
    data = _cells(rows) * (log_precision - jnp.log(2 * jnp.pi)) - concentration / rate * squares
    own = prior.noise_concentration, prior.noise_rate
    return jnp.sum(data) / 2 - jnp.sum(_gamma_divergence(concentration, rate, *own))


def _gamma_divergence(concentration: Array, rate: Array, a: Array, b: Array) -> Array:
    """The divergence KL(Gamma(concentration, rate), Gamma(a, b)) in nats."""
    shape = (concentration - a) * digamma(concentration) - gammaln(concentration) + gammaln(a)
    return shape + a * jnp.log(rate / b) + concentration * (b - rate) / rate
