"""What is stored of a projection that is no model's estimate, and its scores of new rows.

Such a projection (MORP, kernel CCA) has no density: the fit's attribute ``generative`` is 0, nothing of the
program is evaluated at it, and `inference.log_density` and `inference.predict` say that there is nothing to
give.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from inference.algorithm import Outcome
from inference.methods.sppca.projections import DualProjection, PrimalProjection
from zoo.kernels.gram import centring_of, gram_matrix
from zoo.kernels import Kernel, Linear, as_kernel
from zoo.model import in_current_precision
from zoo.sppca import SPPCA

__all__ = ["GENERATIVE", "centred_gram", "check_complete", "not_generative", "stored", "transform"]

GENERATIVE = {"generative": 0}


def centred_gram(kernel: Kernel | str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The centred Gram matrix of rows, and the column means that centred it."""
    gram = gram_matrix(as_kernel(kernel).filled(rows), rows)
    centring = centring_of(gram)
    return centring.gram_in_place(gram), centring.column_means


def check_complete(method: str, x: np.ndarray, y: np.ndarray) -> None:
    """Raise ValueError naming the first missing cell."""
    for name, part in (("x", x), ("y", y)):
        if np.isnan(part).any():
            row, column = np.argwhere(np.isnan(part))[0]
            raise ValueError(
                f"{method} needs every cell and every output; row {row}, column {column} of {name} is "
                f"missing: fit the labelled rows, or use method='em'"
            )


def stored(
    projection: PrimalProjection | DualProjection,
    model: SPPCA,
    x: np.ndarray,
    gram: tuple[np.ndarray, np.ndarray] | None = None,
) -> Outcome:
    """The projection as one draw of one chain, with scores of the fitted rows.

    Args:
        projection: what was found.
        model: the model; a dual projection of a primal model is stored with the linear kernel.
        x: the fitted rows.
        gram: dual: the centred Gram matrix and its column means.
    """
    posterior = {"eigenvalues": np.asarray(projection.eigenvalues)}
    if isinstance(projection, PrimalProjection):
        loc = x.mean(axis=0)
        posterior |= {"projection": np.asarray(projection.weights), "loc_x": loc}
        more = {"latents": (x - loc) @ posterior["projection"]}
    else:
        posterior["coefficients"] = np.asarray(projection.coefficients)
        more = {"latents": gram[0] @ posterior["coefficients"], "gram_means": gram[1]}
        kernel = (Linear() if model.kernel is None else model.kernel).filled(x)
        model = model.replaced(kernel=kernel)
    lead = {name: value[None, None] for name, value in posterior.items()}
    dims = {"eigenvalues": ("rank",), "projection": ("feature", "latent")}
    return Outcome(
        posterior=lead,
        variational=posterior | more,
        attrs=GENERATIVE,
        dims=dims,
        model=model,
        is_point=True,
        is_generative=False,
    )


def transform(
    values: Mapping[str, Array], model: SPPCA, x: Array, y: Array | None = None, *, kind: str = "latent"
) -> Array:
    """Scores of new rows; outputs are not used.

    Raises:
        ValueError: other scores than ``"latent"``.
    """
    if kind != "latent":
        raise ValueError("this projection has one kind of scores; leave scores out")
    if "projection" in values:
        return (x - values["loc_x"]) @ values["projection"]
    means, kernel = values["gram_means"], in_current_precision(model.kernel)
    raw = x if kernel.is_precomputed else kernel.matrix(x, values["fitted_x"])
    cross = raw - jnp.mean(raw, axis=1, keepdims=True) - (means - jnp.mean(means))
    return cross @ values["coefficients"]


def not_generative(values: Mapping[str, Array], model: SPPCA, *data: Any, **options: Any) -> Array:
    """Raise ValueError: a projection says nothing of the distribution of rows."""
    raise ValueError(
        "this fit is a projection, not generative: it has scores (inference.transform) but no densities, "
        "predictions or covariances; fit the model by method='em' for those"
    )
