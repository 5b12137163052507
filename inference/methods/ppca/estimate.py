"""A point estimate of probabilistic PCA in a fit: its canonical rotation, latents of its rows, warnings."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Outcome
from inference.numerics.weighted_rows import Rows, row_limit, unweighted, weight_of
from zoo.checks import check_number
from zoo.linear_gaussian.rows import latents_covariance, latents_mean, log_density, shared_latents_covariance
from zoo.ppca import PPCA
from zoo.sparse import SparseMatrix

__all__ = ["canonical", "check_noise_floor", "num_free_parameters", "point_outcome"]


def canonical(values: Mapping[str, Array]) -> dict[str, Array]:
    """The same estimate with orthogonal loadings, longest first, the largest entry of each positive."""
    return turned(values)[0]


def turned(values: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
    """The same estimate in its canonical rotation, and the turn of its latents."""
    loadings = values["loadings"]
    turn = jnp.linalg.eigh(loadings.T @ loadings)[1][:, ::-1]
    straight = loadings @ turn
    largest = jnp.take_along_axis(straight, jnp.argmax(jnp.abs(straight), axis=0)[None], axis=0)[0]
    sign = jnp.where(largest < 0, -1.0, 1.0)
    return dict(values) | {"loadings": straight * sign}, turn * sign


def num_free_parameters(model: PPCA, num_features: int) -> int:
    """Parameters of the likelihood, the rotation not counted: of W, the mean and the noise."""
    k = model.num_latents
    noise = num_features if model.noise == "diagonal" else 1
    return num_features * k - k * (k - 1) // 2 + num_features + noise


def check_noise_floor(noise_floor: Any) -> None:
    """Raise TypeError or ValueError unless it is a share of the columns' variance."""
    check_number("noise_floor", noise_floor)
    if not 0 < noise_floor < 1:
        raise ValueError(
            f"noise_floor must be a share of the columns' variance, between 0 and 1; got {noise_floor}"
        )


def point_outcome(
    values: Mapping[str, Array],
    model: PPCA,
    x: Array | SparseMatrix | Rows,
    *,
    held: np.ndarray,
    noise_floor: float,
    known: tuple[float, np.ndarray] | None = None,
) -> Outcome:
    """An estimate as one draw of one chain, with posterior means and covariance of the latents, BIC and AIC.

    Args:
        values: ``loadings``, ``loc``, ``noise_variance``, and with ARD ``loading_precision``.
        model: the model.
        x: the rows fitted.
        held: noise variances that the floor holds.
        noise_floor: the floor.
        known: log likelihood and E[z] of the rows where these are known already, which sparse rows need.

    Warns:
        UserWarning: the floor holds a noise variance.
    """
    rows, weight = unweighted(x), weight_of(x)
    if known is None:
        values, density = _canonical(dict(values), rows)
        log_likelihood = float(weight @ density)
    else:
        (values, turn), log_likelihood = _turned(dict(values)), known[0]
    if held.size:
        which = (
            "the noise variance" if model.noise == "isotropic" else f"the noise variance of column {held[0]}"
        )
        more = f" ({held.size} in all)" if held.size > 1 else ""
        warnings.warn(
            f"{which}{more} is held at noise_floor={noise_floor:g} of the columns' variance: the latents "
            f"explain it whole and the likelihood has no maximum there; use fewer latents, or a prior "
            f"(loading_prior='ard', method='vb')",
            stacklevel=5,
        )
    has_holes = known is None and bool(np.isnan(np.asarray(rows)).any())
    stored, dims = dict(values), {}
    num_rows, k = rows.shape[0], model.num_latents
    if row_limit(8 * num_rows * k, "latents", ()):
        stored["latents"] = _latents(values, rows) if known is None else known[1] @ np.asarray(turn)
    if not has_holes:  # one for all rows
        stored["latents_covariance"] = _shared(values)
        dims["latents_covariance"] = ("latent", "latent_2")
    elif row_limit(8 * num_rows * k**2, "latents_covariance", ()):
        stored["latents_covariance"] = _covariances(values, rows)
    number, size = num_free_parameters(model, rows.shape[1]), float(jnp.sum(weight))
    attrs = {
        "num_parameters": number,
        "log_likelihood": log_likelihood,
        "bic": float(-2 * log_likelihood + number * np.log(size)),
        "aic": float(-2 * log_likelihood + 2 * number),
        "noise_at_floor": int(held.size),
    }
    lead = {name: jnp.asarray(value)[None, None] for name, value in values.items()}
    return Outcome(posterior=lead, variational=stored, attrs=attrs, dims=dims, is_point=True)


_turned = jax.jit(turned)


@jax.jit
def _canonical(values: dict[str, Array], x: Array) -> tuple[dict[str, Array], Array]:
    turned = canonical(values)
    return turned, log_density(x, turned["loadings"], turned["loc"], turned["noise_variance"])


@jax.jit
def _latents(values: dict[str, Array], x: Array) -> Array:
    return latents_mean(x, values["loadings"], values["loc"], values["noise_variance"])


@jax.jit
def _shared(values: dict[str, Array]) -> Array:
    return shared_latents_covariance(values["loadings"], values["noise_variance"])


@jax.jit
def _covariances(values: dict[str, Array], x: Array) -> Array:
    return latents_covariance(x, values["loadings"], values["noise_variance"])
