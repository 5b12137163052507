r"""Expectation maximisation for SPPCA and S2PPCA in feature space (Algorithm 7.3).

Loadings of x are combinations of the centred rows, :math:`W_x = \Phi^T B`, and G is their centred Gram
matrix. With :math:`A = \sigma_x^2 I + B^T G B` a row's latents given x alone are
:math:`N(A^{-1} B^T g_i,\, \sigma_x^2 A^{-1})`; its observed outputs add
:math:`\sum_l w_l w_l^T / \psi_l` to the precision (7.19)-(7.22). The M-step regresses :math:`\phi(x)` and
every output on [z, 1]:

.. math::
    B = (Z - \mathbf 1 \bar z^T)(C - N \bar z \bar z^T)^{-1}, \qquad
    \sigma_x^2 = \{\mathrm{tr}\, G - \mathrm{tr}\, B^T G Z\} / (N m)

and :math:`W_y, \mu_y, \sigma_y^2` over the rows where an output is observed. Parameter expansion as in
`inference.methods.linear_gaussian.em`; the mean in feature space then stays that of the rows, which is its
maximum. With ``center="plugin"`` or ``acceleration="none"`` it is held there from the start, :math:`B = Z
C^{-1}`.

Departures from the source. (7.24) takes Z and C of all rows and divides by L N: it must be those of the
labelled rows and L N1. Both halves of the sweep (steps 5 and 6) use the old Z and C. In infinitely many
dimensions :math:`\sigma_x^2` falls to zero as 1/m and has to be given.

The objective is the log likelihood in nats (without the constant of an infinite dimension) and never falls.
A sweep costs O(N^2 K): the product G B.

Reference: Yu (2006), section 7.2.3, (7.17)-(7.24) corrected.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.algorithm import Outcome, as_one_draw
from inference.methods.linear_gaussian.em import LinearGaussianInfo
from inference.methods.sppca.floors import warn_of_floors
from zoo.checks import warn
from zoo.kernels.gram import centred_gram, feature_rows
from zoo.linear_gaussian.axes import signs_of
from zoo.shapes import Values
from zoo.sppca import SPPCA


class FeatureData(NamedTuple):
    """Inner products of the rows, and their outputs.

    Attributes:
        gram: centred, shape (num_observations, num_observations).
        gram_means: mean kernel value of each row with all, not centred, shape (num_observations,).
        y: outputs about ``centre``, zero where missing, shape (num_observations, num_outputs).
        observed: one where an output is observed, else zero.
        centre: mean of the observed cells of each output.
        variance: of the observed cells of each output, shape (num_outputs,).
    """

    gram: Array
    gram_means: Array
    y: Array
    observed: Array
    centre: Array
    variance: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix, rows first."""
        return self.gram.shape


class KernelSPPCAState(NamedTuple):
    """The estimate and the results of its E-step.

    Attributes:
        coefficients: B, shape (num_observations, num_latents).
        loadings_y: shape (num_outputs, num_latents).
        loc_y: about the centre, shape (num_outputs,).
        noise_variance_x: shape ().
        noise_variance_y: of each output, shape (num_outputs,).
        latents: posterior means Z, shape (num_observations, num_latents).
        second: E[z z'] of each row, shape (num_observations, num_latents, num_latents).
        objective: at these parameters, nats.
        at_floor: how many noise variances the floor holds.
    """

    coefficients: Array
    loadings_y: Array
    loc_y: Array
    noise_variance_x: Array
    noise_variance_y: Array
    latents: Array
    second: Array
    objective: Array
    at_floor: Array


def prepare(model: SPPCA, data: tuple) -> tuple[FeatureData]:
    """The centred Gram matrix and the outputs, on the host."""
    x, y = data
    gram = centred_gram(model.kernel, x)
    observed = ~np.isnan(y)
    cells = observed.sum(axis=0)
    centre = np.where(observed, y, 0.0).sum(axis=0) / cells
    rows = np.where(observed, y - centre, 0.0)
    variance = (rows**2).sum(axis=0) / cells
    return (FeatureData(gram.matrix, gram.column_means, rows, observed.astype(float), centre, variance),)


def init(key: Array, model: SPPCA, data: FeatureData, *, strategy: str = "pca") -> KernelSPPCAState:
    """Kernel principal components with y regressed on their scores, or random coefficients."""
    coefficients, noise = first_coefficients(key, model, data, strategy)
    outputs = _output_variance(data.variance, model)
    loadings = jnp.zeros((model.num_outputs, model.num_latents))
    loc = jnp.zeros(model.num_outputs)
    state = at(coefficients, loadings, loc, noise, outputs, model, data)
    loadings, loc, _ = _regress_outputs(state, data)  # z of x alone, y regressed on it
    return at(coefficients, loadings, loc, noise, outputs / 2, model, data)


def first_coefficients(key: Array, model: SPPCA, data: FeatureData, strategy: str) -> tuple[Array, Array]:
    """Coefficients and noise variance of kernel principal components (``"pca"``), or at random.

    Args:
        key: a JAX key.
        model: the model.
        data: inner products of the rows.
        strategy: ``"pca"`` or ``"random"``.

    Returns:
        Shapes (num_observations, num_latents) and ().
    """
    num_rows, num_latents = data.shape[0], model.num_latents
    total = jnp.trace(data.gram) / num_rows
    if strategy == "random":
        draws = jax.random.normal(key, (num_rows, num_latents))
        draws = draws - jnp.mean(draws, axis=0)
        size = jnp.sum(draws * (data.gram @ draws), axis=0)
        coefficients, noise = draws * jnp.sqrt(0.5 * total / num_latents / size), 0.5 * total
    else:
        values, vectors = jnp.linalg.eigh(data.gram)
        values, vectors = values[::-1][:num_latents], vectors[:, ::-1][:, :num_latents]
        noise = jnp.maximum(total - jnp.sum(values) / num_rows, 1e-3 * total)
        coefficients = vectors / jnp.sqrt(num_rows)
    dimension = model.feature_dimension or num_rows
    noise = noise / dimension if model.noise_variance_x is None else jnp.asarray(model.noise_variance_x)
    return coefficients, noise


def start(
    key: Array, variables: Values, model: SPPCA, data: FeatureData, **options: object
) -> KernelSPPCAState:
    """The state at given ``coefficients``, loadings and mean of y, and noise variances."""
    noise_y = jnp.broadcast_to(jnp.asarray(variables["noise_variance_y"]), data.centre.shape)
    loc = jnp.asarray(variables["loc_y"]) - data.centre
    coefficients, loadings, noise_x = (
        jnp.asarray(variables[name]) for name in ("coefficients", "loadings_y", "noise_variance_x")
    )
    return at(coefficients, loadings, loc, noise_x, noise_y, model, data)


def step(
    key: Array, state: KernelSPPCAState, model: SPPCA, data: FeatureData, *, acceleration: str = "px"
) -> tuple[KernelSPPCAState, LinearGaussianInfo]:
    """Run one sweep: M-step from the latents of the state, expansion, E-step."""
    num_rows, expand = data.shape[0], acceleration == "px"
    z = state.latents
    moves = expand and model.center == "joint"
    mean = jnp.mean(z, axis=0) if moves else jnp.zeros(z.shape[1])
    centred = z - mean
    spread = jnp.sum(state.second, axis=0) - num_rows * jnp.outer(mean, mean)
    coefficients = cho_solve((jnp.linalg.cholesky(spread), True), centred.T).T
    residual = jnp.trace(data.gram) - jnp.sum((data.gram @ coefficients) * z)
    noise_x, lowest_x = residual / (num_rows * max(model.feature_dimension, 1)), 0.0
    variance_x, variance_y = variances(data, model)
    if model.noise_variance_x is not None:
        noise_x = jnp.asarray(model.noise_variance_x)
    else:
        lowest_x = model.noise_floor[0] * variance_x
    loadings, loc, squares = _regress_outputs(state, data, plugin=model.center == "plugin")
    noise_y = _output_noise(squares, data, model)
    lowest_y = model.noise_floor[1] * variance_y
    at_floor = (noise_x < lowest_x) + jnp.sum(noise_y < lowest_y)
    noise_x, noise_y = jnp.maximum(noise_x, lowest_x), jnp.maximum(noise_y, lowest_y)
    if expand:
        root = jnp.linalg.cholesky(spread / num_rows)
        loc = loc + loadings @ mean
        coefficients, loadings = coefficients @ root, loadings @ root
    new = at(coefficients, loadings, loc, noise_x, noise_y, model, data)._replace(at_floor=at_floor)
    return new, LinearGaussianInfo(new.objective, noise_x, at_floor)


def at(
    coefficients: Array,
    loadings: Array,
    loc: Array,
    noise_x: Array,
    noise_y: Array,
    model: SPPCA,
    data: FeatureData,
) -> KernelSPPCAState:
    """The state at given parameters, with the latents of every row and the log likelihood.

    Args:
        coefficients: B, shape (num_observations, num_latents).
        loadings: of y, shape (num_outputs, num_latents).
        loc: of y about the centre, shape (num_outputs,).
        noise_x: shape ().
        noise_y: shape (num_outputs,).
        model: the model.
        data: inner products of the rows.

    Returns:
        The state.
    """
    projected = data.gram @ coefficients
    rows = feature_rows(
        data.gram, jnp.diag(data.gram), projected, coefficients, noise_x, model.feature_dimension
    )
    identity = jnp.eye(coefficients.shape[1])
    prior_precision = jnp.linalg.inv(rows.covariance)
    scaled = loadings / noise_y[:, None]
    outer = (scaled[:, :, None] * loadings[:, None, :]).reshape(loadings.shape[0], -1)
    precision = prior_precision + (data.observed @ outer).reshape(-1, *identity.shape)
    factor = jnp.linalg.cholesky(precision)
    covariance = jax.vmap(lambda lower: cho_solve((lower, True), identity))(factor)
    deviation = data.observed * (data.y - loc - rows.mean @ loadings.T)
    shift = jnp.einsum("nij,nj->ni", covariance, deviation @ scaled)
    latents = rows.mean + shift
    residual = deviation - data.observed * (shift @ loadings.T)
    quadratic = residual**2 @ (1 / noise_y) + jnp.sum((shift @ prior_precision) * shift, axis=1)
    log_det = data.observed @ jnp.log(2 * jnp.pi * noise_y) + jnp.linalg.slogdet(rows.covariance)[1]
    log_det = log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
    objective = jnp.sum(rows.log_density) - 0.5 * jnp.sum(quadratic + log_det)
    second = covariance + latents[:, :, None] * latents[:, None, :]
    floor = jnp.zeros((), int)
    return KernelSPPCAState(coefficients, loadings, loc, noise_x, noise_y, latents, second, objective, floor)


def _regress_outputs(
    state: KernelSPPCAState, data: FeatureData, plugin: bool = False
) -> tuple[Array, Array, Array]:
    """Loadings, mean and residual squares of every output regressed on [z, 1] over its observed rows."""
    z, seen = state.latents, data.observed
    k = z.shape[1]
    second = (seen.T @ state.second.reshape(z.shape[0], -1)).reshape(-1, k, k)
    first, count = seen.T @ z, jnp.sum(seen, axis=0)
    mean = jnp.zeros_like(first) if plugin else first / count[:, None]
    spread = second - count[:, None, None] * mean[:, :, None] * mean[:, None, :]
    cross = data.y.T @ z  # y sums to zero over its observed cells
    loadings = jnp.linalg.solve(spread, cross[:, :, None])[:, :, 0]
    squares = jnp.sum(data.y**2, axis=0) - jnp.sum(loadings * cross, axis=1)
    return loadings, -jnp.sum(loadings * mean, axis=1), squares


def _output_noise(squares: Array, data: FeatureData, model: SPPCA) -> Array:
    cells = jnp.sum(data.observed, axis=0)
    if model.output_noise == "per_output":
        return squares / cells
    return jnp.full(cells.shape, jnp.sum(squares) / jnp.sum(cells))


def variances(rows: FeatureData, model: SPPCA) -> tuple[Array, Array]:
    """Mean variance of a column of the features, and of each output or of all.

    Args:
        rows: inner products of the rows.
        model: the model.

    Returns:
        Shapes () and (num_outputs,).
    """
    num_cells = rows.shape[0] * max(model.feature_dimension, 1)
    return jnp.trace(rows.gram) / num_cells, _output_variance(rows.variance, model)


def _output_variance(variance: Array, model: SPPCA) -> Array:
    """The variance of each output, or their mean variance where they share their noise."""
    variance = jnp.asarray(variance)
    return variance if model.output_noise == "per_output" else jnp.full(variance.shape, jnp.mean(variance))


# The estimate in a fit


def conclude(
    key: Array, state: KernelSPPCAState, model: SPPCA, data: tuple, *sizes: object, method: str = "em"
) -> Outcome:
    """Conclude with the estimate and the posterior of the latents of the fitted rows."""
    rows = data[0]
    per_output = model.output_noise == "per_output"
    values = {
        "coefficients": state.coefficients,
        "loadings_y": state.loadings_y,
        "loc_y": state.loc_y + rows.centre,
        "noise_variance_x": state.noise_variance_x,
        "noise_variance_y": state.noise_variance_y if per_output else state.noise_variance_y[0],
    }
    y = np.where(np.asarray(rows.observed) > 0, np.asarray(rows.y), np.nan)
    covariance = state.second - state.latents[:, :, None] * state.latents[:, None, :]
    return concluded_in_features(values, state.latents, covariance, model, rows, y, method)


def concluded_in_features(
    values: dict[str, Array],
    latents: Array,
    covariance: Array,
    model: SPPCA,
    rows: FeatureData,
    y: Array,
    method: str,
) -> Outcome:
    """Conclude a point estimate in feature space: one draw of one chain and the posterior of the latents.

    Args:
        values: the estimate.
        latents: posterior means, shape (num_observations, num_latents).
        covariance: of the latents, shape (num_observations, num_latents, num_latents).
        model: the model.
        rows: inner products of the rows.
        y: outputs, NaN where missing.
        method: by which the estimate was found.

    Returns:
        The outcome.

    Warns:
        UserWarning: latents without a part in x, or noise variances at their floors.
    """
    inner = values["coefficients"].T @ (rows.gram @ values["coefficients"])
    noise_x, loadings = values["noise_variance_x"], values["loadings_y"]
    noise_y = jnp.broadcast_to(values.get("noise_variance_y", 1.0), loadings.shape[:1])
    _, turn = jnp.linalg.eigh(inner / noise_x + (loadings / noise_y[:, None]).T @ loadings)
    turn = turn[:, ::-1]
    turn = turn * signs_of(values["coefficients"] @ turn)
    values |= {name: values[name] @ turn for name in ("coefficients", "loadings_y")}
    lengths = np.diag(np.asarray(turn.T @ inner @ turn))
    vanished = int(np.sum(lengths <= 1e-8 * float(jnp.trace(rows.gram)) / rows.shape[0]))
    if vanished:
        warn(
            f"{method}: {vanished} of {model.num_latents} latents have no part in x, where variance is not "
            f"above noise_variance_x = {float(noise_x):.4g}; lower it or use fewer latents"
        )
    per_cell = float(variances(rows, model)[0])
    warn_of_floors(values, model, np.asarray(y), per_cell if model.noise_variance_x is None else None)
    stored = values | {
        "latents": latents @ turn,
        "latents_covariance": jnp.einsum("ki,nkl,lj->nij", turn, covariance, turn),
        "gram_means": rows.gram_means,
        "gram_products": rows.gram @ values["coefficients"],
    }
    return Outcome(
        posterior=as_one_draw(values), variational=stored, is_point=True, densities={"objective": ()}
    )
