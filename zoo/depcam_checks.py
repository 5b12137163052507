"""What is wrong with the fields or the data of `zoo.depcam.DEPCAM`, in one message each."""

import warnings
from typing import Any

import jax
import numpy as np

from zoo.argument_checks import check_choice, check_flag, check_positive, check_size
from zoo.dpp import SIMILARITIES
from zoo.validation import as_matrix, check_some_cells

__all__ = ["check_fields", "check_new_rows", "check_table", "is_zero", "rows_to_draw", "warn_of_drift"]

CHOICES = {
    "kernel": tuple(SIMILARITIES),
    "latents": ("component", "shared"),
    "scale_prior": ("laplace", "ard"),
    "weight_prior": ("dirichlet", "stick_breaking"),
}
POSITIVE = ("similarity_scale", "concentration", "offset_variance", "ard_concentration", "ard_rate")


def is_zero(value: Any) -> bool:
    """Whether a hyperparameter is known to be zero; a traced one is not.

    Args:
        value: a number, maybe traced.

    Returns:
        True if it is zero whatever the data.
    """
    return not isinstance(value, jax.core.Tracer) and bool(np.all(np.asarray(value) == 0))


def check_fields(model: Any) -> None:
    """Raise TypeError or ValueError if a field is outside its domain.

    Args:
        model: a `zoo.DEPCAM`.
    """
    for name in ("num_components", "num_latents"):
        check_size(name, getattr(model, name))
    for name in ("repulsion", "sparsity"):
        value = getattr(model, name)
        if value.shape != () or not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a number of at least 0; got {value}")
    for name in POSITIVE:
        check_positive(name, getattr(model, name))
    for name, choices in CHOICES.items():
        check_choice(name, getattr(model, name), choices)
    check_flag("offset", model.offset)
    if model.family.is_mixed or not model.family.has_kernel:
        raise ValueError(
            "family must have one natural parameter a cell and be the same for all columns; "
            f"got {type(model.family).__name__}"
        )
    if model.family.theta_is_negative and not model.offset:
        raise ValueError(
            f"the natural parameters of {type(model.family).__name__} are negative, which a component "
            "without an offset cannot keep to: leave offset=True"
        )
    if model.num_features is not None:
        _check_num_latents(model, model.num_features)


def check_table(model: Any, x: np.ndarray) -> None:
    """Raise ValueError if rows cannot be fitted.

    Args:
        model: a `zoo.DEPCAM`.
        x: rows, shape (num_observations, num_features).
    """
    check_some_cells(x)
    _check_num_latents(model, x.shape[1])
    if x.shape[0] < model.num_components:
        raise ValueError(
            f"num_components must be at most the number of rows, {x.shape[0]}; got {model.num_components}"
        )
    if model.num_components > 1 and len(x) > 1 and (x == x[0]).all():
        raise ValueError("all rows are the same: there is nothing to cluster")


def check_new_rows(model: Any, x: np.ndarray) -> None:
    """Raise ValueError if new rows do not suit the fitted model; rows without any cell are allowed.

    Args:
        model: a fitted `zoo.DEPCAM`.
        x: rows, shape (num_observations, num_features).
    """
    x = as_matrix(x)
    if model.num_features is not None and x.shape[1] != model.num_features:
        raise ValueError(f"x must have {model.num_features} columns, as the model has; got {x.shape[1]}")
    model.family.check(x)


def rows_to_draw(model: Any, num_observations: int | None) -> int:
    """The number of rows of a draw from the prior.

    Args:
        model: a `zoo.DEPCAM`.
        num_observations: as the program was called.

    Returns:
        ``num_observations``.
    """
    reason = "sparsity=0 has a flat prior of the scales, which nothing can be drawn from"
    if model.prior == "unnormalised":
        reason = (
            "repulsion > 0 multiplies the prior by a factor, which drawing from the program would ignore: "
            "inference.extend(tree, 'prior') samples it"
        )
    return model.rows_to_draw(num_observations, "num_features", reason=reason)


def warn_of_drift(model: Any, method: str) -> None:
    """Refuse samplers of an improper posterior, and warn of point estimates that have no optimum.

    Args:
        model: a `zoo.DEPCAM`.
        method: its name.

    Raises:
        ValueError: a sampler, and the posterior is improper.
    """
    proper = model.integrates_latents or method == "vb"
    if model.scale_prior != "laplace" or not is_zero(model.sparsity) or proper:
        return
    if method in ("nuts", "hmc", "svi"):
        raise ValueError(
            f"{method} needs a proper posterior, and at sparsity=0 it is improper: the likelihood tends to a "
            "positive constant as the scales grow; give sparsity > 0 or scale_prior='ard'"
        )
    warnings.warn(
        "sparsity=0 has no optimum: scales grow and latents shrink for ever, and the result depends on when "
        "the run stops; give sparsity > 0 or scale_prior='ard'",
        stacklevel=3,
    )


def _check_num_latents(model: Any, num_features: int) -> None:
    if model.num_latents > num_features:
        raise ValueError(
            f"num_latents must be at most the number of features, {num_features}: bases have orthonormal "
            f"columns; got {model.num_latents}"
        )
