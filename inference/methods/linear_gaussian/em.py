r"""Expectation maximisation for linear-Gaussian models of a matrix whose columns share noise by group.

.. math:: z_n \sim N(0, I_K), \qquad x_{nd} = w_d^T z_n + \mu_d + N(0, \psi_{g(d)})

PPCA is one group, factor analysis a group a column, SPPCA the groups x and y (or x and one an output); any
cell may be missing. With :math:`\tilde z = [z, 1]` the E-step computes :math:`C_d = \sum_{n \in o_d} E[\tilde
z \tilde z^T]` over the rows in which column d is observed, and the M-step regresses each column on
:math:`\tilde z` there,

.. math::
    [w_d, \mu_d] = C_d^{-1} \sum_{n \in o_d} x_{nd} E[\tilde z_n], \qquad
    \psi_g = \frac{\sum_{d \in g} \sum_{n \in o_d} E (x_{nd} - w_d^T z_n - \mu_d)^2}{\sum_{d \in g} |o_d|},

which is the exact joint maximum over loadings, mean and noise. The thesis's plug-in (the mean of the observed
cells, whatever z is there) is ``center="plugin"``; it is not the maximum where rows are unlabelled.

*Parameter expansion* (Liu, Rubin and Wu 1998). The latents are allowed the moments that they were found to
have, :math:`z \sim N(m, R)`, and are standardised again: :math:`W \leftarrow W L, \mu \leftarrow \mu + W m`
with :math:`L L^T = R`. Plain EM gets the subspace right at once and then crawls for hundreds of sweeps,
because it can change scale and rotation of the latents only at the rate at which they are uncertain; this
costs one K x K factorisation and takes tens. With a Gaussian prior of the loadings R solves :math:`R M R + N
R = N \hat R`, M the prior's precision times :math:`W^T W`; with an ARD prior, which is not indifferent to
rotation, R is diagonal.

*Student-t rows* (`zoo.linear_gaussian.rows`) are kept one by one. Given u a row is normal with u times the
precision, so that the steps are the same with E[u] = (nu + c) / (nu + delta) for the weight of each row in
every sum but that of the latents' covariances, E[u z z'] - E[u] E[z] E[z]', which has none; the noise is
still divided by the number of cells.

The objective is the log likelihood of the observed cells, plus the log prior where there is one, in nats. It
is that of the new parameters and cannot fall. Noise variances stay above ``floor``, a share of the mean
variance of the group's columns, because the likelihood has no maximum where the latents can explain a group
whole; the guarded M-step is the exact constrained maximum.

A sweep costs O(min(N, D) D K) where nothing is missing, O(N D K^2) with holes in every row
(`inference.methods.linear_gaussian.rows`).

Reference: Tipping and Bishop (1999), appendix B; Yu (2006), sections 7.2.1 and 7.2.2 with (7.12) corrected.

The E-step has the notation of `zoo.linear_gaussian.rows`, whose residual form of the log density is used here
too: a sum of squares, accurate to rounding however small the noise is.

Priors
------
With a proper prior

.. math::
    w_{dk} \sim N(0, 1/\alpha_k), \quad \mu_d \sim N(m_d, v), \quad \psi_g \sim \mathrm{InverseGamma}(a, b)

and either :math:`\alpha_k` given (``"gaussian"``) or :math:`\alpha_k \sim \mathrm{Gamma}(a_0, b_0)`
(``"ard"``). The ARD precisions are latent variables of the EM too: the objective is the log posterior with
them integrated out, :math:`\log p(w_k) = \log\Gamma(a_0 + D/2) - \log\Gamma(a_0) + a_0 \log b_0 - (a_0 + D/2)
\log(b_0 + \|w_k\|^2/2) - (D/2) \log 2\pi`, and the M-step uses their expectation (Bishop 1999, "Bayesian
PCA", section 3, with the exact numerator). That prior is not indifferent to rotation, the likelihood is: of
all rotations the one with orthogonal columns has the highest prior density, because :math:`\sum_k \log(b_0 +
\|w_k\|^2/2)` is Schur-concave in the squared lengths. The expansion takes it at once; without it EM crawls
towards it.

Starts
------
EM starts from principal components, from random loadings or from given values. The principal components are
those of the columns divided by the standard deviation of their noise group, missing cells at the column's
mean. With isotropic noise and nothing missing they are the answer already (Tipping and Bishop 1999, (7)).
``primary`` restricts them to some groups (the inputs of a supervised projection); the other columns start
with loadings of zero and their variance for noise, so that the first sweep regresses them on the latents of
these components. A random start draws the loadings with the columns' own spread: drawn with unit variance
whatever the scale of the data, plain EM needs hundreds of sweeps to forget it.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.scipy.special import gammaln

from inference.methods.linear_gaussian.rows import CompressedRows, Pattern, SparseRows
from inference.numerics.weighted_rows import Rows, sum_over_rows
from zoo.linear_gaussian.rows import student_log_density
from zoo.shapes import Values


class Parameters(NamedTuple):
    """Parameters of a linear-Gaussian model of compressed rows.

    Attributes:
        loadings: W, shape (D, num_latents).
        loc: the mean about the centre, shape (D,).
        noise_variance: by group, shape (num_groups,).
    """

    loadings: Array
    loc: Array
    noise_variance: Array


class Moments(NamedTuple):
    """Sums over rows of posterior moments of the latents.

    Attributes:
        second: by class of columns, the sum of E[[z, 1] [z, 1]'] over the rows in which the class is
            observed, shape (Q, num_latents + 1, num_latents + 1).
        cross: by column, the sum of x E[z] over its rows, x about the centre, shape (D, num_latents).
        total_second: the sum of E[z z'] over all rows, shape (num_latents, num_latents).
        total_first: the sum of E[z] over all rows, shape (num_latents,).
        log_likelihood: of all observed cells, nats.
        latents: E[z] of each row where x is sparse, shape (num_observations, num_latents); else None.
        of_rows: of Student-t rows, where all sums but that of the latents' covariances have the weights E[u]:
            the sum of these, and the sums and squares of each column, shapes (), (D,) and (D,).
    """

    second: Array
    cross: Array
    total_second: Array
    total_first: Array
    log_likelihood: Array
    latents: Array | None = None
    of_rows: tuple[Array, Array, Array] | None = None


def moments_of(parameters: Parameters, rows: CompressedRows) -> Moments:
    """Posterior moments of the latents at given parameters, summed over rows."""
    per_column = parameters.noise_variance[rows.group]
    of_pattern, of_singles = (
        partial(moments, parameters, per_column) for moments in (_pattern_moments, _single_moments)
    )
    total = sum_over_patterns(rows, of_pattern, of_singles)
    silent = -0.5 * jnp.sum(rows.silent_cells * jnp.log(2 * jnp.pi * parameters.noise_variance))
    return total._replace(log_likelihood=total.log_likelihood + silent)


def sum_over_patterns(rows: CompressedRows, of_pattern: Callable, of_singles: Callable) -> Any:
    """The sum of moments over all rows.

    Args:
        rows: the data.
        of_pattern: ``of_pattern(rows, pattern)``, the sums over the rows of one pattern of holes.
        of_singles: ``of_singles(rows, x, seen, weight)``, over rows that are kept one by one, of shapes
            (block, D), (block, D) and (block,).

    Returns:
        A pytree of arrays, of the shapes that the functions return.
    """
    parts = [of_pattern(rows, pattern) for pattern in rows.patterns]
    if rows.single.shape[0]:
        packed = Rows(jnp.stack([rows.single, rows.single_observed], axis=1), rows.single_weight)
        parts.append(
            sum_over_rows(lambda cells, weight: of_singles(rows, cells[:, 0], cells[:, 1], weight), packed)
        )
    return reduce(partial(jax.tree.map, jnp.add), parts)


def bordered(square: Array, edge: Array, corner: Array) -> Array:
    """The matrices [[square, edge], [edge', corner]], shape (..., size + 1, size + 1).

    Args:
        square: shape (..., size, size).
        edge: shape (..., size).
        corner: shape (...).
    """
    top = jnp.concatenate([square, edge[..., None]], axis=-1)
    bottom = jnp.concatenate([edge, corner[..., None]], axis=-1)
    return jnp.concatenate([top, bottom[..., None, :]], axis=-2)


def _pattern_moments(
    parameters: Parameters, per_column: Array, rows: CompressedRows, pattern: Pattern
) -> Moments:
    loadings, loc, _ = parameters
    seen = pattern.observed
    identity = jnp.eye(loadings.shape[1])
    scaled = loadings * (seen / per_column)[:, None]
    factor = jnp.linalg.cholesky(scaled.T @ loadings + identity)
    covariance = cho_solve((factor, True), identity)
    gain = scaled @ covariance  # E[z] = gain' (x - loc)
    deviation = seen * (pattern.mean - loc)
    mean, spread = deviation @ gain, pattern.rows @ gain
    residuals = pattern.rows - seen * (spread @ loadings.T)
    squares = jnp.sum(residuals**2, axis=0) + pattern.count * (deviation - seen * (loadings @ mean)) ** 2
    quadratic = jnp.sum(squares / per_column) + jnp.sum(spread**2) + pattern.count * jnp.sum(mean**2)
    log_det = seen @ jnp.log(2 * jnp.pi * per_column) + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    own_second = pattern.count * (covariance + jnp.outer(mean, mean)) + spread.T @ spread
    own_first = pattern.count * mean
    return Moments(
        second=seen[rows.class_member][:, None, None] * bordered(own_second, own_first, pattern.count),
        cross=pattern.rows.T @ spread + pattern.count * jnp.outer(pattern.mean, mean),
        total_second=own_second,
        total_first=own_first,
        log_likelihood=-0.5 * (pattern.count * log_det + quadratic),
    )


def _single_moments(
    parameters: Parameters, per_column: Array, rows: CompressedRows, x: Array, seen: Array, weight: Array
) -> Moments:
    """The moments of rows that differ in their holes, shapes (rows, D), (rows, D) and (rows,)."""
    loadings, loc, _ = parameters
    num_latents = loadings.shape[1]
    identity = jnp.eye(num_latents)
    outer = (loadings / per_column[:, None])[:, :, None] * loadings[:, None, :]
    precisions = (seen @ outer.reshape(-1, num_latents**2)).reshape(-1, num_latents, num_latents) + identity
    factor = jnp.linalg.cholesky(precisions)
    covariance = jax.vmap(lambda lower: cho_solve((lower, True), identity))(factor)
    deviation = seen * (x - loc)
    mean = jnp.einsum("nkj,nj->nk", covariance, (deviation / per_column) @ loadings)
    residuals = deviation - seen * (mean @ loadings.T)
    quadratic = residuals**2 @ (1 / per_column) + jnp.sum(mean**2, axis=1)
    log_diagonal = jnp.log(jnp.diagonal(factor, axis1=1, axis2=2))
    log_det = seen @ jnp.log(2 * jnp.pi * per_column) + 2 * jnp.sum(log_diagonal, axis=1)
    own, log_density, of_rows = weight, -0.5 * (log_det + quadratic), None
    if rows.degrees_of_freedom is not None:
        nu, count = rows.degrees_of_freedom, jnp.sum(seen, axis=1)
        own = weight * (nu + count) / (nu + quadratic)  # E[u]
        log_density = student_log_density(quadratic, log_det, count, nu)
        of_rows = jnp.sum(own), own @ x, own @ x**2
    first = own[:, None] * mean
    second = weight[:, None, None] * covariance + first[:, :, None] * mean[:, None, :]
    whole = bordered(second, first, own)
    by_class = seen[:, rows.class_member].T @ whole.reshape(whole.shape[0], -1)
    return Moments(
        second=by_class.reshape(-1, num_latents + 1, num_latents + 1),
        cross=x.T @ first,
        total_second=jnp.sum(second, axis=0),
        total_first=jnp.sum(first, axis=0),
        log_likelihood=weight @ log_density,
        of_rows=of_rows,
    )


class LoadingPrior(NamedTuple):
    """A proper prior of loadings, mean and noise variances, for data that have not been rotated.

    Attributes:
        loading_variance: of the loadings of each column, shape () or (D,), the same for columns of one class;
            None: ARD.
        ard_concentration: a0 of the precision of a column of loadings; used with ARD only.
        ard_rate: b0.
        loc: prior mean of the mean, about the centre of the data, shape (D,).
        loc_variance: v, shape () or (D,), likewise.
        noise_concentration: a of each noise variance.
        noise_rate: b, shape () or (num_groups,).
        present: which latents there are, the first so many, shape (num_latents,), in VB alone: the loadings
            of the others are zero, and add nothing to the bound. None: all.
        is_ard: whether there is ARD, in VB alone, a number of a program for both; ``loading_variance`` is
            then one. None: as ``loading_variance`` tells.
    """

    loading_variance: Array | None
    ard_concentration: Array
    ard_rate: Array
    loc: Array
    loc_variance: Array
    noise_concentration: Array
    noise_rate: Array
    present: Array | None = None
    is_ard: Array | None = None


def column_precisions(prior: LoadingPrior, num_columns: int) -> tuple[Array, Array]:
    """The prior precisions of the loadings and of the mean of every column of the data, shapes (D,).

    With ARD that of the loadings is to be multiplied by the precision of each latent.
    """
    shape = (num_columns,)
    of_loadings = jnp.ones(()) if prior.loading_variance is None else 1 / prior.loading_variance
    return jnp.broadcast_to(of_loadings, shape), jnp.broadcast_to(1 / prior.loc_variance, shape)


def expected_precision(loadings: Array, prior: LoadingPrior) -> Array:
    """The ARD precision E[alpha_k | w_k] of each latent's loadings, (num_latents,); ones without ARD."""
    if prior.loading_variance is not None:
        return jnp.ones(loadings.shape[1])
    concentration = prior.ard_concentration + loadings.shape[0] / 2
    return concentration / (prior.ard_rate + jnp.sum(loadings**2, axis=0) / 2)


def expansion(spread: Array, loadings: Array, rows: CompressedRows, prior: LoadingPrior | None) -> Array:
    """A factor L of the covariance R = L L' that parameter expansion assigns to the latents.

    Args:
        spread: the latents' mean second moment about the mean they are given, (num_latents, num_latents).
        loadings: after the M-step.
        rows: the data.
        prior: of the loadings.
    """
    if prior is None:
        return jnp.linalg.cholesky(spread)
    precision, size = expected_precision(loadings, prior), rows.total_weight
    if prior.loading_variance is None:  # n r + alpha |w|^2 r^2 = n c, for each latent
        strength = precision * jnp.sum(loadings**2, axis=0) / size
        second = jnp.diag(spread)
        scale = jnp.sqrt(2 * second / (1 + jnp.sqrt(1 + 4 * strength * second)))
        scaled = loadings * scale
        return scale[:, None] * jnp.linalg.eigh(scaled.T @ scaled)[1]
    root = jnp.linalg.cholesky(spread)
    precisions = column_precisions(prior, loadings.shape[0])[0]
    weighed = root.T @ ((loadings.T * precisions) @ loadings) @ root / size
    strengths, turn = jnp.linalg.eigh(weighed)
    return root @ turn * jnp.sqrt(2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(strengths, 0.0))))


def log_prior(parameters: Parameters, prior: LoadingPrior | None) -> Array:
    """Log prior density of the parameters in nats, ARD precisions integrated out; 0 without a prior."""
    if prior is None:
        return jnp.zeros(())
    loadings, loc, noise = parameters
    size = loadings.shape[0]
    lengths = jnp.sum(loadings**2, axis=0)
    if prior.loading_variance is not None:
        precisions = column_precisions(prior, size)[0][:, None]
        columns = -0.5 * jnp.sum(loadings**2 * precisions + jnp.log(2 * jnp.pi / precisions), axis=0)
    else:
        a, b = prior.ard_concentration, prior.ard_rate
        columns = gammaln(a + size / 2) - gammaln(a) + a * jnp.log(b) - size / 2 * jnp.log(2 * jnp.pi)
        columns = columns - (a + size / 2) * jnp.log(b + lengths / 2)
    away = (loc - prior.loc) ** 2 / prior.loc_variance
    means = -0.5 * (away + jnp.log(2 * jnp.pi * prior.loc_variance))
    a, b = prior.noise_concentration, prior.noise_rate
    noises = a * jnp.log(b) - gammaln(a) - (a + 1) * jnp.log(noise) - b / noise
    return jnp.sum(columns) + jnp.sum(means) + jnp.sum(noises)


class LinearGaussianState(NamedTuple):
    """The estimate and the results of its E-step.

    Attributes:
        parameters: loadings, mean about the centre, noise variance by group.
        moments: of the latents at these parameters.
        objective: at these parameters, nats.
        at_floor: which noise variances the floor holds, shape (num_groups,).
    """

    parameters: Parameters
    moments: Moments
    objective: Array
    at_floor: Array


class LinearGaussianInfo(NamedTuple):
    """Quantities recorded at each step.

    Attributes:
        objective: log likelihood (plus log prior) at the new parameters, in nats.
        noise_variance: mean over the groups.
        num_at_floor: noise variances that the floor holds.
    """

    objective: Array
    noise_variance: Array
    num_at_floor: Array


def begin(
    parameters: Parameters,
    rows: CompressedRows | SparseRows,
    prior: LoadingPrior | None = None,
    *,
    e_step: Callable = moments_of,
) -> LinearGaussianState:
    """The state at given parameters, whose moments ``e_step(parameters, rows)`` computes."""
    moments = e_step(parameters, rows)
    objective = moments.log_likelihood
    if prior is not None:
        objective = objective + log_prior(parameters, prior)
    return LinearGaussianState(parameters, moments, objective, np.zeros(rows.num_groups, bool))


def unseen(parameters: Parameters, rows: CompressedRows) -> LinearGaussianState:
    """The state at given parameters without its E-step, which the first step makes; the objective is -inf.

    Then the program of the start need not hold an E-step too.
    """
    shapes = jax.eval_shape(moments_of, parameters, rows)
    nothing = jax.tree.map(lambda own: jnp.zeros(own.shape, own.dtype), shapes)
    objective = jnp.full((), -jnp.inf, shapes.log_likelihood.dtype)
    return LinearGaussianState(parameters, nothing, objective, jnp.zeros(rows.num_groups, bool))


def settling_steps(states: LinearGaussianState) -> np.ndarray:
    """The one step of each `unseen` start, shape (num_restarts,)."""
    return np.isneginf(np.asarray(states.objective)).astype(int)


def step(
    state: LinearGaussianState,
    rows: CompressedRows | SparseRows,
    prior: LoadingPrior | None = None,
    *,
    acceleration: str = "px",
    center: str = "joint",
    floor: Array | float = 1e-6,
    fixed_noise: Array | None = None,
    e_step: Callable = moments_of,
    sweep: Callable | None = None,
) -> tuple[LinearGaussianState, LinearGaussianInfo]:
    """Run one sweep: M-step from the moments of the state, expansion, E-step.

    Of an `unseen` state the E-step alone.

    Args:
        state: from `begin`, `unseen` or a former step.
        rows: the data, from `compress` or `one_by_one`.
        prior: of loadings, mean and noise; None: maximum likelihood.
        acceleration: ``"px"`` or ``"none"``.
        center: ``"joint"`` (mean and loadings together) or ``"plugin"`` (mean of the observed cells).
        floor: smallest noise variance as a share of the group's mean variance; one for all groups or one
            each.
        fixed_noise: noise variances that are given, not estimated, shape (num_groups,); NaN: estimated.
        e_step: ``e_step(parameters, rows)`` computes the moments.
        sweep: the M-step and expansion, of rows of another kind
        (`inference.methods.linear_gaussian.sparse_em`).
    """
    lowest = jnp.broadcast_to(floor, rows.group_variance.shape) * rows.group_variance
    keywords = {"center": center, "lowest": lowest, "fixed_noise": fixed_noise}
    once: Callable = partial(_sweep if sweep is None else sweep, expand=acceleration != "none", **keywords)
    first, at_floor = once(state.parameters, state.moments, rows, prior)
    if e_step is moments_of:  # on the host there is no program to spare, and starts are seen
        is_unseen = jnp.isneginf(state.objective)
        first = jax.tree.map(partial(jnp.where, is_unseen), state.parameters, first)
    new = begin(first, rows, prior, e_step=e_step)._replace(at_floor=at_floor)
    info = LinearGaussianInfo(new.objective, jnp.mean(new.parameters.noise_variance), jnp.sum(new.at_floor))
    return new, info


def _sweep(
    parameters: Parameters,
    moments: Moments,
    rows: CompressedRows,
    prior: LoadingPrior | None,
    *,
    expand: bool,
    center: str,
    **bounds: Array | None,
) -> tuple[Parameters, Array]:
    """The M-step, and the expansion if ``expand``."""
    rows, size = as_weighed(rows, moments.of_rows)
    new, at_floor = m_step(parameters, moments, rows, prior, center=center, **bounds)
    if expand:
        mean, second = moments.total_first / size, moments.total_second / size
        new = standardised(new, mean, second, rows, prior, center, size)
    return new, at_floor


def as_weighed(
    rows: CompressedRows, of_rows: tuple[Array, Array, Array] | None
) -> tuple[CompressedRows, Array]:
    """The rows with sums that have the weights E[u] of Student-t rows, and the sum of these weights.

    Args:
        rows: the data.
        of_rows: as of `Moments`; None: the rows count as they are.
    """
    if of_rows is None:
        return rows, rows.total_weight
    weight, sums, squares = of_rows
    return rows._replace(sums=sums, squares=squares), weight


def m_step(
    parameters: Parameters,
    moments: Moments,
    rows: CompressedRows,
    prior: LoadingPrior | None,
    *,
    center: str,
    lowest: Array,
    fixed_noise: Array | None = None,
) -> tuple[Parameters, Array]:
    """Loadings, mean and noise that maximise the expected log joint, and which noises the floor holds."""
    num_latents = parameters.loadings.shape[1]
    own_noise = parameters.noise_variance[rows.group]  # used where there is a prior only
    precision, shift = jnp.zeros((1, num_latents + 1)), jnp.zeros_like(rows.sums)
    if prior is not None:
        of_loadings, of_loc = column_precisions(prior, parameters.loadings.shape[0])
        of_latents = jnp.append(expected_precision(parameters.loadings, prior), 0.0)
        precision = of_loadings[rows.class_member, None] * of_latents
        precision = precision.at[:, num_latents].set(of_loc[rows.class_member])
        shift = prior.loc * of_loc
    precision, shift = own_noise[rows.class_member, None] * precision, own_noise * shift
    if center == "joint":
        second = moments.second + jax.vmap(jnp.diag)(precision)
        target = jnp.concatenate([moments.cross, (rows.sums + shift)[:, None]], axis=1)
        solution = _regression(second, target, rows.column_class)
        loadings, loc = solution[:, :num_latents], solution[:, num_latents]
    else:
        latent_part = moments.second[:, :num_latents, :num_latents]
        second = latent_part + jax.vmap(jnp.diag)(precision[:, :num_latents])
        loadings = _regression(second, moments.cross, rows.column_class)
        loc = jnp.zeros_like(rows.sums)  # about the mean of the observed cells
    weights = jnp.concatenate([loadings, loc[:, None]], axis=1)
    right = jnp.concatenate([moments.cross, rows.sums[:, None]], axis=1)
    squares = rows.squares - jnp.sum(weights * right, axis=1)  # least squares: residual orthogonal to fit
    if prior is not None:
        fitted = _quadratic(moments.second, weights, rows.column_class)
        squares = rows.squares - 2 * jnp.sum(weights * right, axis=1) + fitted
    group_squares = jax.ops.segment_sum(squares, rows.group, rows.num_groups)
    group_cells = jax.ops.segment_sum(rows.cells, rows.group, rows.num_groups) + rows.silent_cells
    noise = group_squares / group_cells
    if prior is not None:
        noise = (prior.noise_rate + group_squares / 2) / (prior.noise_concentration + group_cells / 2 + 1)
    at_floor = ~(noise > lowest)
    noise = jnp.where(at_floor, lowest, noise)
    if fixed_noise is not None:
        given = ~jnp.isnan(fixed_noise)
        noise, at_floor = jnp.where(given, fixed_noise, noise), at_floor & ~given
    return Parameters(loadings, loc, noise), at_floor


def standardised(
    parameters: Parameters,
    mean: Array,
    second: Array,
    rows: CompressedRows,
    prior: LoadingPrior | None,
    center: str,
    size: Array | None = None,
) -> Parameters:
    """The parameters with the latents' moments taken into the loadings and the mean: parameter expansion.

    Args:
        parameters: after the M-step.
        mean: of the latents over all rows, shape (num_latents,).
        second: their mean second moment, shape (num_latents, num_latents).
        rows: the data.
        prior: of the parameters.
        center: as in `step`; the mean stays where it is ``"plugin"``.
        size: weight of the rows in mean and second moment; None: their own.
    """
    loadings, loc, noise = parameters
    size = rows.total_weight if size is None else size
    if center == "joint":
        moved = mean
        if prior is not None:  # the mean of the latents that the prior of loc allows them
            weighed = loadings.T * column_precisions(prior, loadings.shape[0])[1]
            precision = size * jnp.eye(mean.shape[0]) + weighed @ loadings
            target = size * mean - weighed @ (loc - prior.loc)
            moved = jnp.linalg.solve(precision, target)
        second = second - jnp.outer(mean, moved) - jnp.outer(moved, mean) + jnp.outer(moved, moved)
        loc = loc + loadings @ moved
    spread = second * (size / rows.total_weight)
    return Parameters(loadings @ expansion(spread, loadings, rows, prior), loc, noise)


def _regression(second: Array, target: Array, column_class: Array) -> Array:
    """Regression coefficients of each column, (D, size), from second moments by class and cross moments."""
    identity = jnp.broadcast_to(jnp.eye(second.shape[1]), second.shape)
    factor = jnp.linalg.cholesky(second)
    inverse = jax.vmap(lambda lower, right: cho_solve((lower, True), right))(factor, identity)
    if second.shape[0] == 1:
        return target @ inverse[0]
    return jnp.einsum("di,dij->dj", target, inverse[column_class])


def _quadratic(second: Array, weights: Array, column_class: Array) -> Array:
    """The quadratic form w_d' C_d w_d of every column."""
    if second.shape[0] == 1:
        return jnp.sum((weights @ second[0]) * weights, axis=1)
    return jnp.einsum("di,dij,dj->d", weights, second[column_class], weights)


def check_given(variables: Values, names: tuple[str, ...]) -> None:
    """Raise ValueError if the variables of a start lack some of these names."""
    missing = [name for name in names if name not in variables]
    if missing:
        told = f"{', '.join(names[:-1])} and {names[-1]}"
        raise ValueError(f"init must hold {told}; missing: {', '.join(missing)}")


def start_of(
    strategy: str,
    key: Array,
    rows: CompressedRows | SparseRows,
    num_latents: int,
    primary: tuple[int, ...] | None = None,
) -> Parameters:
    """Starting parameters: ``"pca"`` (of the primary groups, without the key) or ``"random"``."""
    if strategy == "pca" and isinstance(rows, CompressedRows):
        return pca_start(rows, num_latents, primary)
    return random_start(key, rows, num_latents)


def random_start(key: Array, rows: CompressedRows | SparseRows, num_latents: int) -> Parameters:
    """Starting parameters with normal loadings that take half the variance of each group, noise the rest."""
    variance, num_columns = rows.group_variance, rows.group.shape[0]
    scale = jnp.sqrt(variance[rows.group] / (2 * num_latents))
    draws = jax.random.normal(key, (num_columns, num_latents))
    return Parameters(scale[:, None] * draws, jnp.zeros(num_columns), variance / 2)


def pca_start(rows: CompressedRows, num_latents: int, primary: tuple[int, ...] | None = None) -> Parameters:
    """Starting parameters from principal components of the primary groups.

    The loadings of the other columns are zero; the first sweep regresses them on the scores.

    Args:
        rows: the data.
        num_latents: K.
        primary: numbers of the groups whose columns make the components; None: all.
    """
    scale = jnp.sqrt(rows.group_variance)[rows.group]
    chosen = jnp.ones_like(scale)
    if primary is not None:
        chosen = jnp.any(rows.group[:, None] == jnp.asarray(primary), axis=1).astype(scale.dtype)
    parts = [rows.single * jnp.sqrt(rows.single_weight)[:, None]]
    parts += [pattern.rows for pattern in rows.patterns]
    parts += [jnp.sqrt(pattern.count) * pattern.mean[None] for pattern in rows.patterns]
    factor = jnp.concatenate(parts) * (chosen / scale)
    variances, directions = _leading(factor, num_latents)
    variances = variances / rows.total_weight
    cells = jax.ops.segment_sum(rows.cells, rows.group, rows.num_groups) + rows.silent_cells
    wanted = jax.ops.segment_max(chosen, rows.group, rows.num_groups)
    total = wanted @ cells / rows.total_weight  # columns of variance one each
    noise = (total - jnp.sum(variances)) / jnp.maximum(total - num_latents, 1.0)
    noise = jnp.maximum(noise, 1e-3)
    lengths = jnp.sqrt(jnp.maximum(variances - noise, 0.01 * variances + 1e-6))
    loadings = scale[:, None] * directions * lengths
    by_group = noise * rows.group_variance
    first_noise = jnp.where(wanted > 0, by_group, rows.group_variance)
    return Parameters(loadings, jnp.zeros_like(rows.sums), first_noise)


def given_start(
    loadings: Array, loc: Array, noise_variance: Array, rows: CompressedRows | SparseRows
) -> Parameters:
    """Convert parameters in the columns of the data to parameters of compressed rows.

    Args:
        loadings: shape (num_features, num_latents).
        loc: shape (num_features,).
        noise_variance: by group, shape (num_groups,).
        rows: the data.
    """
    about = loc - rows.original_centre
    if isinstance(rows, SparseRows) or all(basis is None for basis in rows.bases):
        return Parameters(loadings, about, noise_variance)
    turned, shift = [], []
    for basis, own in zip(rows.bases, rows.columns, strict=True):
        turned.append(loadings[own] if basis is None else basis.T @ loadings[own])
        shift.append(about[own] if basis is None else basis.T @ about[own])
    return Parameters(jnp.concatenate(turned), jnp.concatenate(shift), noise_variance)


def _leading(factor: Array, count: int) -> tuple[Array, Array]:
    """The largest ``count`` eigenvalues of factor' factor and their vectors, by its smaller side."""
    if factor.shape[0] >= factor.shape[1]:
        values, vectors = jnp.linalg.eigh(factor.T @ factor)
        return values[::-1][:count], vectors[:, ::-1][:, :count]
    values, vectors = jnp.linalg.eigh(factor @ factor.T)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    return values, factor.T @ vectors / jnp.sqrt(jnp.maximum(values, 1e-300))
