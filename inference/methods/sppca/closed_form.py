r"""SPPCA with every row labelled, by eigenvalues: theorem 7.3.1 alternated with the noise updates.

For given noise variances the loadings that maximise the likelihood are known. With the covariance S of the
columns of [x, y] whitened by the noise :math:`\Phi`, its eigenvalues
:math:`\lambda_1 \ge \lambda_2 \ge \ldots` and eigenvectors U (7.25),

.. math::
    W_x = \sigma_x U_x (\Lambda_K - I)_+^{1/2}, \qquad W_y = \sigma_y U_y (\Lambda_K - I)_+^{1/2},

where a direction with :math:`\lambda \le 1` is left out (the text takes all to be larger). For these loadings

.. math:: \sigma_x^2 = (\mathrm{tr}\, S_x - \mathrm{tr}\, W_x^T W_x) / M, \qquad \sigma_y^2 \text{ likewise},

in turn. The text's "analytical solution" is for given noise only. The objective is the log likelihood

.. math::
    -\tfrac N2 \Big\{ (M + L) \log 2\pi + \log|\Phi| + \mathrm{tr}\, \Phi^{-1} S
    + \sum_{k \le K} (\log \lambda_k^+ + \lambda_k / \lambda_k^+ - \lambda_k) \Big\},
    \quad \lambda^+ = \max(\lambda, 1),

in nats, which never falls: some 17 passes where EM takes 160 sweeps. Where x has more columns than rows it is
first turned into the space that its rows span, M staying in the noise. A pass costs
O((min(M, N) + L)^3).

Scores of a new x are E[z | x]; in the letters of theorem 7.3.2 (ii), whose printed form lacks the factor
:math:`N \sigma_x^2` and an inverse, they are

.. math::
    z_* = \sqrt N\, D^{-1/2} (V^T G V + N \sigma_x^2 D^{-1})^{-1} V^T k(X, x_*), \qquad
    D = I - N \Lambda^{-1} ,

with the eigenvectors V and eigenvalues :math:`\Lambda` of
:math:`G_x / \sigma_x^2 + Y Y^T / \sigma_y^2` (tested). **With a kernel** a pass needs
this matrix alone: the latents of theorem 7.3.2 (i), :math:`Z = \sqrt N V D_+^{1/2}`, have :math:`C = N I`,
so that the coefficients of `inference.methods.sppca.kernel_em` are :math:`B = Z / N` and
:math:`W_y = Y^T B`. A pass costs O(N^3).

Reference: Yu (2006), theorems 7.3.1 and 7.3.2 (corrected).

Canonical rotation and scores
-----------------------------
Latents may be turned at will; an estimate is turned so that
:math:`W_x^T W_x / \sigma_x^2 + W_y^T \Psi_y^{-1} W_y` is diagonal, largest entry first, as in theorem 7.3.1
with R = I, and each latent's sign such that the loading of largest size in W_x is positive.

Stored latents of the fitted rows are those given all that was observed of a row, E[z | x, y]; of rows without
outputs `inference.transform` returns E[z | x].
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Algorithm, Ascent, Init, Outcome, as_one_draw
from inference.methods.linear_gaussian.rows import gain_and_covariance
from inference.methods.sppca import ClosedForm, kernel_em
from inference.methods.sppca.floors import warn_of_floors
from inference.methods.sppca.kernel_em import FeatureData, KernelSPPCAState
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import row_limit
from zoo.answers import answer_of
from zoo.checks import check_complete, is_finite
from zoo.coordinates import Unit
from zoo.linear_gaussian.axes import signs_of
from zoo.linear_gaussian.supervised import joint
from zoo.shapes import Values
from zoo.sparse import SparseMatrix
from zoo.sppca import SPPCA


def turned(values: Values, model: SPPCA) -> tuple[dict[str, Array], Array]:
    """The estimate with its latents rotated to the axes of the theorem, and the rotation."""
    loadings, _, noise = joint(model, values)
    _, turn = jnp.linalg.eigh(loadings.T @ (loadings / noise[:, None]))
    turn = turn[:, ::-1]
    turn = turn * signs_of(values["loadings_x"] @ turn)
    return dict(values) | {name: values[name] @ turn for name in ("loadings_x", "loadings_y")}, turn


_turned = compiled(turned, once=True)


def by_site(loadings: Array, loc: Array, model: SPPCA) -> dict[str, Array]:
    """Loadings and means of [x, y], named by site."""
    m = model.num_features
    return {"loadings_x": loadings[:m], "loadings_y": loadings[m:], "loc_x": loc[:m], "loc_y": loc[m:]}


def concluded(
    values: Values,
    model: SPPCA,
    data: tuple,
    attrs: Mapping[str, Any] | None = None,
    latents: np.ndarray | None = None,
    variance_x: float | None = None,
) -> Outcome:
    """Conclude a point estimate: one draw of one chain and the posterior of the latents.

    Args:
        values: the estimate.
        model: the model.
        data: x and y.
        attrs: further root attributes.
        latents: E[z] of the rows, where they are known already (sparse x); their covariance, one for each row
            unless all have the same outputs, is then left out.
        variance_x: mean variance of the columns of x, where it is known already.

    Warns:
        UserWarning: a noise variance is at its floor, or nothing but the floor may bound the likelihood.
    """
    x, y = data
    num_rows, k = x.shape[0], model.num_latents
    wanted = row_limit(8 * num_rows * k, "latents", ()), row_limit(8 * num_rows * k**2, "covariance", ())
    if latents is None and _is_plain(model, data):
        values, held = _with_latents_of_complete_rows(wanted, values, np.asarray(x), np.asarray(y))
    elif latents is None:
        values, held = _with_latents(wanted, dict(values), model, x, y)
    else:
        values, turn = _turned(dict(values), model)
        held = {"latents": latents @ np.asarray(turn)} if wanted[0] else {}
    if model.noise_variance_x is not None:
        variance_x = None
    elif variance_x is None:
        variance_x = float(np.nanvar(np.asarray(x), axis=0).mean())
    warn_of_floors(values, model, np.asarray(y), variance_x)
    return Outcome(
        posterior=as_one_draw(values),
        variational={**values, **held},
        attrs=attrs or {},
        is_point=True,
        densities={"objective": tuple(values)},
    )


def log_density(values: Values, model: SPPCA, x: Array, y: Array | None = None) -> Array:
    """The log density log p(x) or log p(x, y) of each row over its observed cells, in nats."""
    return model.log_likelihood(values, x, y)


@partial(compiled, static_argnums=0)
def _with_latents(
    wanted: tuple[bool, bool], values: dict[str, Array], model: SPPCA, x: Array, y: Array
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The estimate in its canonical rotation, and the requested moments of the latents."""
    values = turned(values, model)[0]
    latents = {}
    if wanted[0]:
        latents["latents"] = model.scores(values, x, y)
    if wanted[1]:
        latents["latents_covariance"] = answer_of(model, "scores_covariance", values, x, y)
    return values, latents


def _is_plain(model: SPPCA, data: tuple) -> bool:
    """Whether E[z | x, y] is one product for all rows: real outputs, no cell missing."""
    is_gaussian = model.output_likelihood == "gaussian" and model.kernel is None
    return is_gaussian and all(
        not isinstance(part, SparseMatrix) and is_finite(np.asarray(part)) for part in data
    )


def _with_latents_of_complete_rows(
    wanted: tuple[bool, bool], values: Values, x: np.ndarray, y: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What `_with_latents` gives, on the host."""
    found = {name: np.asarray(value) for name, value in values.items()}
    sizes, loadings = (x.shape[1], y.shape[1]), np.concatenate([found["loadings_x"], found["loadings_y"]])
    noises = [found["noise_variance_x"], found["noise_variance_y"]]
    noise = np.concatenate([np.broadcast_to(own, size) for own, size in zip(noises, sizes, strict=True)])
    turn = np.linalg.eigh(loadings.T @ (loadings / noise[:, None]))[1][:, ::-1]
    turn = turn * signs_of(found["loadings_x"] @ turn).astype(turn.dtype)
    found |= {name: found[name] @ turn for name in ("loadings_x", "loadings_y")}
    gain, covariance = gain_and_covariance(loadings @ turn, noise)
    latents = {}
    if wanted[0]:
        latents["latents"] = (x - found["loc_x"]) @ gain[: sizes[0]] + (y - found["loc_y"]) @ gain[sizes[0] :]
    if wanted[1]:
        latents["latents_covariance"] = np.repeat(covariance[None], len(x), axis=0)
    return found, latents


class SPPCAState(NamedTuple):
    """Noise variances and sufficient statistics of the data.

    Attributes:
        noise_variance_x: shape ().
        noise_variance_y: shape () or (num_outputs,).
        scatter: covariance of [x, y], x turned by ``basis``, shape (D, D).
        basis: orthonormal directions of x's rows, shape (num_features, D - num_outputs); None where x stays.
        loc: mean of [x, y], shape (num_features + num_outputs,).
    """

    noise_variance_x: Array
    noise_variance_y: Array
    scatter: Array
    basis: Array | None
    loc: Array


class SPPCAInfo(NamedTuple):
    """Quantities recorded at each pass.

    Attributes:
        objective: log likelihood at the new noise variances and their best loadings, nats.
        noise_variance_x: new.
        noise_variance_y: new, mean over the outputs; where each has its own, of outputs in their deviations.
    """

    objective: Array
    noise_variance_x: Array
    noise_variance_y: Array


def loadings_given_noise(scatter: Array, noise_variance: Array, num_latents: int) -> tuple[Array, Array]:
    """The best loadings for given noise (theorem 7.3.1 i), and the spectral part of the log likelihood.

    Args:
        scatter: covariance of the columns, shape (D, D).
        noise_variance: of each column, shape (D,).
        num_latents: K.

    Returns:
        Loadings (D, K), and the sum over k of ``log l+ + l / l+ - l``.
    """
    scale = jnp.sqrt(noise_variance)
    values, vectors = jnp.linalg.eigh(scatter / (scale[:, None] * scale))
    leading, directions = values[::-1][:num_latents], vectors[:, ::-1][:, :num_latents]
    kept = jnp.maximum(leading, 1.0)
    loadings = scale[:, None] * directions * jnp.sqrt(kept - 1.0)
    return loadings, jnp.sum(jnp.log(kept) + leading / kept - leading)


def _in_features(noise_x: Array, noise_y: Array, model: SPPCA, rows: FeatureData) -> KernelSPPCAState:
    """The best coefficients for given noise (theorem 7.3.2 i); components below the noise vanish."""
    num_rows = rows.shape[0]
    values, vectors = jnp.linalg.eigh(rows.gram / noise_x + (rows.y / noise_y) @ rows.y.T)
    leading, directions = values[::-1][: model.num_latents], vectors[:, ::-1][:, : model.num_latents]
    shrunk = 1.0 / num_rows - 1.0 / jnp.maximum(leading, num_rows)
    coefficients = directions * jnp.sqrt(shrunk)
    loc = jnp.zeros(model.num_outputs)
    return kernel_em.at(coefficients, rows.y.T @ coefficients, loc, noise_x, noise_y, model, rows)


def _step_in_features(
    state: KernelSPPCAState, model: SPPCA, rows: FeatureData
) -> tuple[KernelSPPCAState, SPPCAInfo]:
    """The noise given the coefficients of the state, then the coefficients given this noise."""
    num_rows, b = rows.shape[0], state.coefficients
    variances = kernel_em.variances(rows, model)
    left = jnp.sum(rows.y**2, axis=0) / num_rows - jnp.sum(state.loadings_y**2, axis=1)
    noise_y = left if model.output_noise == "per_output" else jnp.full(left.shape, jnp.mean(left))
    noise_y = jnp.maximum(noise_y, model.noise_floor[1] * variances[1])
    noise_x = jnp.asarray(model.noise_variance_x) if model.noise_variance_x is not None else None
    if noise_x is None:
        noise_x = (jnp.trace(rows.gram) / num_rows - jnp.sum(b * (rows.gram @ b))) / model.feature_dimension
        noise_x = jnp.maximum(noise_x, model.noise_floor[0] * variances[0])
    state = _in_features(noise_x, noise_y, model, rows)
    return state, SPPCAInfo(state.objective, state.noise_variance_x, jnp.mean(state.noise_variance_y))


def init(key: Array, model: SPPCA, x: Array, y: Array | None = None) -> SPPCAState | KernelSPPCAState:
    """The state with half the variance of each block as noise; the key is ignored."""
    if model.kernel is not None:
        noise_x, noise_y = kernel_em.variances(x, model)
        noise_x = noise_x / 2 if model.noise_variance_x is None else jnp.asarray(model.noise_variance_x)
        return _in_features(noise_x, noise_y / 2, model, x)
    scatter, basis, loc = _statistics(x, y)
    variances = _variances(scatter, model)
    return SPPCAState(variances[0] / 2, variances[1] / 2, scatter, basis, loc)


def start(
    key: Array, variables: Values, model: SPPCA, x: Array, y: Array | None = None, **options: object
) -> SPPCAState | KernelSPPCAState:
    """The state at given ``noise_variance_x`` and ``noise_variance_y``."""
    state = init(key, model, x, y)
    noise_x, noise_y = (jnp.asarray(variables[f"noise_variance_{block}"]) for block in "xy")
    noise_y = jnp.broadcast_to(noise_y, state.noise_variance_y.shape)
    if model.kernel is not None:
        return _in_features(noise_x, noise_y, model, x)
    return state._replace(noise_variance_x=noise_x, noise_variance_y=noise_y)


def step(key: Array, state: Any, model: SPPCA, x: Array, y: Array | None = None) -> tuple[Any, SPPCAInfo]:
    """Update the loadings given the noise, then the noise given these loadings."""
    if model.kernel is not None:
        return _step_in_features(state, model, x)
    loadings, _ = _fitted(state, model)
    left = jnp.diag(state.scatter) - jnp.sum(loadings**2, axis=1)
    num_inputs = state.scatter.shape[0] - model.num_outputs
    noise_x = jnp.sum(left[:num_inputs]) / model.num_features
    noise_y = left[num_inputs:] if model.output_noise == "per_output" else jnp.mean(left[num_inputs:])
    floors = [share * v for share, v in zip(model.noise_floor, _variances(state.scatter, model), strict=True)]
    if model.noise_variance_x is not None:
        noise_x, floors[0] = jnp.asarray(model.noise_variance_x), 0.0
    state = state._replace(
        noise_variance_x=jnp.maximum(noise_x, floors[0]), noise_variance_y=jnp.maximum(noise_y, floors[1])
    )
    objective = _log_likelihood(state, model, x.shape[0])
    return state, SPPCAInfo(objective, state.noise_variance_x, jnp.mean(state.noise_variance_y))


ALGORITHM = Algorithm(init, step)


def _statistics(x: Array, y: Array) -> tuple[Array, Array | None, Array]:
    """Covariance of [x, y] about the mean, with x rotated to its row space where that is smaller."""
    num_rows, num_features = x.shape
    loc = jnp.concatenate([jnp.mean(x, axis=0), jnp.mean(y, axis=0)])
    rows, basis = x - loc[:num_features], None
    if num_features > num_rows:
        left, lengths, directions = jnp.linalg.svd(rows, full_matrices=False)
        rows, basis = left * lengths, directions.T
    rows = jnp.concatenate([rows, y - loc[num_features:]], axis=1)
    return rows.T @ rows / num_rows, basis, loc


def _variances(scatter: Array, model: SPPCA) -> tuple[Array, Array]:
    """Mean variance of the columns of x and of y, or of each output where noises are per output."""
    own = jnp.diag(scatter)
    num_inputs = own.shape[0] - model.num_outputs
    outputs = own[num_inputs:]
    return (
        jnp.sum(own[:num_inputs]) / model.num_features,
        outputs if model.output_noise == "per_output" else jnp.mean(outputs),
    )


def _noise(state: SPPCAState, model: SPPCA) -> Array:
    num_inputs = state.scatter.shape[0] - model.num_outputs
    outputs = jnp.broadcast_to(state.noise_variance_y, (model.num_outputs,))
    return jnp.concatenate([jnp.full(num_inputs, state.noise_variance_x), outputs])


def _fitted(state: SPPCAState, model: SPPCA) -> tuple[Array, Array]:
    return loadings_given_noise(state.scatter, _noise(state, model), model.num_latents)


def _log_likelihood(state: SPPCAState, model: SPPCA, num_rows: int) -> Array:
    noise, num_columns = _noise(state, model), model.num_features + model.num_outputs
    _, spectrum = _fitted(state, model)
    silent = (num_columns - noise.shape[0]) * jnp.log(state.noise_variance_x)
    log_det = jnp.sum(jnp.log(noise)) + silent + num_columns * jnp.log(2 * jnp.pi)
    return -0.5 * num_rows * (log_det + jnp.sum(jnp.diag(state.scatter) / noise) + spectrum)


# The estimate in a fit


def check(model: SPPCA, settings: ClosedForm) -> None:
    """Raise ValueError unless the model is one that the theorem covers."""
    if model.loading_prior != "flat":
        raise ValueError("closed_form maximises the likelihood: with a prior of the loadings use method='em'")


def prepare(model: SPPCA, data: tuple, init: Init, **options: object) -> tuple:
    """The data unchanged, or with a kernel the Gram matrix and the outputs.

    Raises:
        ValueError: a cell is missing; the message names the first.
    """
    x, y = data
    check_complete("closed_form", "use method='em'", x=x, y=y)
    return data if model.kernel is None else kernel_em.prepare(model, data)


def conclude(key: Array, state: Any, model: SPPCA, data: tuple, *sizes: object, **options: object) -> Outcome:
    """Conclude with the estimate and the posterior of the latents."""
    if model.kernel is not None:
        return kernel_em.conclude(key, state, model, data, method="closed_form")
    return concluded(_estimate(state, model), model, data)


@partial(compiled, once=True)
def _estimate(state: SPPCAState, model: SPPCA) -> dict[str, Array]:
    """The parameters of a state, named by site."""
    loadings, _ = _fitted(state, model)
    if state.basis is not None:
        last = loadings.shape[0] - model.num_outputs
        loadings = jnp.concatenate([state.basis @ loadings[:last], loadings[last:]])
    noise = {name: getattr(state, name) for name in ("noise_variance_x", "noise_variance_y")}
    return by_site(loadings, state.loc, model) | noise


METHOD = Ascent(
    settings=ClosedForm,
    strategies=("eigenvalues",),
    build=lambda strategy: ALGORITHM,
    start=start,
    conclude=conclude,
    log_density=log_density,
    trace_units={"noise_variance_x": Unit(2), "noise_variance_y": Unit(2, part=1)},
    check=check,
    prepare=prepare,
)
