r"""What follows from an estimate of SPPCA: its canonical rotation, its latents, what it says of new rows.

Latents may be turned at will; an estimate is turned so that
:math:`W_x^T W_x / \sigma_x^2 + W_y^T \Psi_y^{-1} W_y` is diagonal, largest entry first, as in theorem 7.3.1
with R = I, and each latent's sign such that the loading of largest size in W_x is positive.

Stored latents of the fitted rows are those given all that was observed of a row, E[z | x, y]; what
`inference.transform` gives of rows that come without outputs is E[z | x].
"""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Outcome
from inference.numerics.weighted_rows import row_limit
from zoo.sparse import SparseMatrix
from zoo.sppca import SPPCA

__all__ = ["canonical", "concluded", "log_density", "warn_of_floors"]

FLOOR_SLACK = 1.0 + 1e-9


def canonical(values: Mapping[str, Array], model: SPPCA) -> dict[str, Array]:
    """The same estimate with its latents turned to the theorem's axes."""
    return turned(values, model)[0]


def turned(values: Mapping[str, Array], model: SPPCA) -> tuple[dict[str, Array], Array]:
    """The same estimate with its latents turned to the theorem's axes, and the turn."""
    loadings, _, noise = model.joint(values)
    _, turn = jnp.linalg.eigh(loadings.T @ (loadings / noise[:, None]))
    loadings_x = values["loadings_x"] @ turn[:, ::-1]
    largest = jnp.argmax(jnp.abs(loadings_x), axis=0)
    sign = jnp.sign(jnp.take_along_axis(loadings_x, largest[None], axis=0))[0]
    turn = turn[:, ::-1] * jnp.where(sign == 0, 1.0, sign)
    return dict(values) | {name: values[name] @ turn for name in ("loadings_x", "loadings_y")}, turn


_turned = jax.jit(turned)


def concluded(
    values: Mapping[str, Array],
    model: SPPCA,
    data: tuple,
    attrs: Mapping[str, Any] | None = None,
    latents: np.ndarray | None = None,
) -> Outcome:
    """An estimate as one draw of one chain, beside the posterior of the latents of the fitted rows.

    Args:
        values: the estimate.
        model: the model.
        data: x and y.
        attrs: further root attributes.
        latents: E[z] of the rows, where they are known already (sparse x); their covariance, one for each row
            unless all have the same outputs, is then left out.

    Warns:
        UserWarning: a noise variance is at its floor, or nothing but the floor may bound the likelihood.
    """
    x, y = data
    num_rows, k = x.shape[0], model.num_latents
    wanted = row_limit(8 * num_rows * k, "latents", ()), row_limit(8 * num_rows * k**2, "covariance", ())
    if latents is None:
        values, latents = _with_latents(wanted, dict(values), model, x, y)
    else:
        values, turn = _turned(dict(values), model)
        latents = {"latents": latents @ np.asarray(turn)} if wanted[0] else {}
    variance_x = None
    if model.noise_variance_x is None:
        sparse = isinstance(x, SparseMatrix)
        variance_x = float((x.column_moments()[1] if sparse else np.nanvar(np.asarray(x), axis=0)).mean())
    warn_of_floors(values, model, np.asarray(y), variance_x)
    lead = {name: np.asarray(value)[None, None] for name, value in values.items()}
    return Outcome(posterior=lead, variational=values | latents, attrs=attrs or {}, is_point=True)


def warn_of_floors(
    values: Mapping[str, Array],
    model: SPPCA,
    y: np.ndarray,
    variance_x: float | None,
) -> None:
    """Say so where a noise variance is at its floor, or where the likelihood may have no maximum without it.

    Args:
        values: the estimate.
        model: the model.
        y: outputs, NaN where missing.
        variance_x: mean variance of the columns of x; None where the noise of x is given.
    """
    variance_y = np.nanvar(y, axis=0)
    shared, has_noise_y = model.output_noise == "shared", model.output_likelihood == "gaussian"
    floors = {}
    if has_noise_y:
        floors["y"] = float(model.noise_floor[1]) * (variance_y.mean() if shared else variance_y)
    if variance_x is not None:
        floors["x"] = float(model.noise_floor[0]) * variance_x
    for name, floor in floors.items():
        held = np.atleast_1d(np.asarray(values[f"noise_variance_{name}"]) <= floor * FLOOR_SLACK)
        if held.any():
            which = f" of output {int(np.argmax(held))}" if name == "y" and not shared else ""
            share = float(model.noise_floor[int(name == "y")])
            warnings.warn(
                f"noise_variance_{name}{which} is at its floor, {share:g} of the variance: the likelihood "
                f"rises as it goes to 0; use fewer latents, more rows, or label_coding='reduced' for labels",
                stacklevel=5,
            )
    if not has_noise_y:
        return
    labelled = y[~np.isnan(y).any(axis=1)]
    rank = int(np.linalg.matrix_rank(labelled - labelled.mean(axis=0))) if len(labelled) else y.shape[1]
    if rank < y.shape[1] and model.num_latents >= rank:
        warnings.warn(
            f"the {y.shape[1]} outputs have rank {rank} and there are {model.num_latents} latents: they can "
            f"be fitted exactly and only noise_floor bounds the likelihood; label_coding='reduced' leaves "
            f"out the column of class labels that the others determine",
            stacklevel=5,
        )
    elif model.num_latents >= len(labelled) - 1 > 0:
        warnings.warn(
            f"there are {model.num_latents} latents and only {len(labelled)} labelled rows: their outputs "
            f"can be fitted exactly",
            stacklevel=5,
        )


def log_density(values: Mapping[str, Array], model: SPPCA, x: Array, y: Array | None = None) -> Array:
    """Log p(x), or log p(x, y), of each row over its observed cells, nats."""
    return model.log_likelihood(values, x, y)


@partial(jax.jit, static_argnums=0)
def _with_latents(
    wanted: tuple[bool, bool], values: dict[str, Array], model: SPPCA, x: Array, y: Array
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The estimate in its canonical rotation, and what is wanted of the rows' latents."""
    values = canonical(values, model)
    latents = {}
    if wanted[0]:
        latents["latents"] = model.scores(values, x, y)
    if wanted[1]:
        latents["latents_covariance"] = model.scores_covariance(values, x, y)
    return values, latents
