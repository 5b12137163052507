"""What fields of `zoo.Paired` and its views may be, and what is read off the views."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.argument_checks import check_choice, check_size
from zoo.exponential_family import as_family
from zoo.family import Family
from zoo.joint_prior import balanced_variance, check_joint_prior
from zoo.validation import as_matrix

__all__ = ["KERNEL_STRENGTH", "check_fields", "check_new_views", "check_views", "read_views"]

KERNEL_STRENGTH = 0.1  # lam of the default kernel
SPECIFICS = ("low_rank", "full_covariance")


def read_views(views: Sequence[Any], families: Sequence[Any], beta: Any) -> dict[str, Any]:
    """Sizes of the views, and with beta > 0 the kernel of each column.

    Args:
        views: a table each.
        families: a family or its name for each view.
        beta: share of the kernel.

    Returns:
        Fields by name: ``num_features``, and ``conjugate`` where there are kernels.

    Raises:
        ValueError: another number of views than of families.
    """
    arrays = [as_matrix(view, f"y_{v}") for v, view in enumerate(views)]
    if len(arrays) != len(families):
        raise ValueError(
            f"there are {len(families)} families and {len(arrays)} views: give one for each view"
        )
    read: dict[str, Any] = {"num_features": tuple(array.shape[1] for array in arrays)}
    kinds = [as_family(family) for family in families]
    if np.any(np.asarray(beta) > 0) and all(kind.has_kernel for kind in kinds):
        pairs = [
            np.broadcast_to(kind.kernel_of(array, KERNEL_STRENGTH), (array.shape[1], 2))
            for kind, array in zip(kinds, arrays, strict=True)
        ]
        read["conjugate"] = np.concatenate(pairs)
    return read


def check_fields(model: Any) -> None:
    """Raise ValueError or TypeError if a field is outside its domain.

    Args:
        model: a `zoo.Paired`.
    """
    num_views = len(model.families)
    if num_views < 1:
        raise ValueError("families must name at least one family")
    check_size("num_shared", model.num_shared)
    _check_sizes("num_specific", model.num_specific, num_views, 0)
    if model.num_features is not None:
        _check_sizes("num_features", model.num_features, num_views, 1)
    check_choice("specific", model.specific, SPECIFICS)
    positive = ("latent_variance", "loading_variance", "loc_variance", "ard_concentration", "ard_rate")
    for name in (*positive, "covariance_scale"):
        value = getattr(model, name)
        if value.shape != () or not 0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number; got {value}")
    if model.covariance_degrees.shape != () or not -1 < model.covariance_degrees < np.inf:
        raise ValueError(f"covariance_degrees must be a number above -1; got {model.covariance_degrees}")
    weights = model.view_weights
    if weights.shape not in ((), (num_views,)) or not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError(f"view_weights must be positive, one or {num_views} numbers; got {weights}")
    if model.beta.shape != ():
        raise ValueError(f"beta must be one number; got shape {model.beta.shape}")
    _check_kernels(model)
    if model.ard and model.beta > 0:
        raise ValueError("ard=True goes with beta=0: the joint prior's normaliser depends on the precisions")
    if model.specific == "full_covariance":
        _check_full_covariance(model)


def check_views(model: Any, views: Sequence[np.ndarray]) -> None:
    """Raise ValueError if the views do not suit the model.

    Args:
        model: a `zoo.Paired`.
        views: a table each, shape (num_observations, features of the view).
    """
    check_new_views(model, views)
    lengths = [view.shape[0] for view in views]
    size = sum(view.shape[1] for view in views)
    for v, view in enumerate(views):
        missing = np.isnan(view)
        if missing.all():
            raise ValueError(f"y_{v} is missing as a whole: leave the view out of the model")
        if missing.all(axis=0).any():
            column = np.flatnonzero(missing.all(axis=0))[0]
            raise ValueError(f"column {column} of y_{v} is missing in all rows: leave it out")
        if model.num_specific[v] > view.shape[1]:
            raise ValueError(
                f"num_specific of view {v} must be at most its number of columns, {view.shape[1]}; "
                f"got {model.num_specific[v]}"
            )
    empty = np.all([np.isnan(view).all(axis=1) for view in views], axis=0)
    if empty.any():
        raise ValueError(f"row {np.flatnonzero(empty)[0]} is missing in all views: leave it out")
    for what, most in (("the columns of all views", size), ("the rows", lengths[0])):
        if model.num_latents > most:
            raise ValueError(
                f"there can be at most as many latents as {what}, {most}; got {model.num_latents} "
                f"({model.num_shared} shared, {model.num_specific} specific)"
            )
    _warn_of_weak_views(model, views)


def check_new_views(model: Any, views: Sequence[np.ndarray]) -> None:
    """Raise ValueError if new rows do not suit the model; rows without any cell are allowed.

    Args:
        model: a `zoo.Paired`.
        views: a table each, shape (num_observations, features of the view).
    """
    if len(views) != len(model.families):
        raise ValueError(f"the model has {len(model.families)} views; got {len(views)}")
    views = [as_matrix(view, f"y_{v}") for v, view in enumerate(views)]
    lengths = [view.shape[0] for view in views]
    if len(set(lengths)) > 1:
        raise ValueError(f"the views must have the same rows; they have {', '.join(map(str, lengths))} rows")
    for v, (family, view) in enumerate(zip(model.families, views, strict=True)):
        if model.num_features is not None and view.shape[1] != model.num_features[v]:
            raise ValueError(
                f"y_{v} must have {model.num_features[v]} columns, as the model has; got {view.shape[1]}"
            )
        family.check(view, f"y_{v}")


def _check_sizes(name: str, sizes: Any, num_views: int, least: int) -> None:
    if not isinstance(sizes, tuple) or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes
    ):
        raise TypeError(f"{name} must be a tuple of whole numbers, one for each view; got {sizes!r}")
    if len(sizes) != num_views:
        raise ValueError(f"{name} must have one number for each of the {num_views} views; got {sizes}")
    if min(sizes) < least:
        raise ValueError(f"{name} must be at least {least} for each view; got {sizes}")


def _check_kernels(model: Any) -> None:
    beta, conjugate = float(model.beta), model.conjugate
    if conjugate is None:
        for family in model.families if not 0 <= beta <= 1 else _without_kernel(model.families):
            check_joint_prior(family, beta, 0.0, 0.0)
        return
    total = None if model.num_features is None else sum(model.num_features)
    good = conjugate.shape == (2,) or (
        conjugate.ndim == 2 and conjugate.shape[1] == 2 and total in (None, conjugate.shape[0])
    )
    if not good or not np.isfinite(conjugate).all():
        raise ValueError(
            "conjugate must be two finite numbers, lam and nu, or two for each column of all views; "
            f"got shape {conjugate.shape}"
        )
    if conjugate.ndim == 2 and total is None:
        raise ValueError("conjugate with a row for each column needs num_features")
    first = 0
    for v, family in enumerate(model.families):
        pairs = conjugate
        if conjugate.ndim == 2:
            pairs = conjugate[first : first + model.num_features[v]]
            first += model.num_features[v]
        for kind, lam, nu in family.kernel_problems(pairs):
            check_joint_prior(kind, beta, lam, nu)


def _without_kernel(families: Sequence[Family]) -> list[Family]:
    return [family for family in families if not family.has_kernel]


def _check_full_covariance(model: Any) -> None:
    if any(model.num_specific):
        raise ValueError(
            "with specific='full_covariance' the views' covariances stand for latents of their own: leave "
            f"num_specific out; got {model.num_specific}"
        )
    if model.beta > 0:
        raise ValueError("specific='full_covariance' goes with beta=0: its natural parameters are Gaussian")
    for v, family in enumerate(model.families):
        if family.theta_is_negative:
            raise ValueError(
                f"specific='full_covariance' makes natural parameters Gaussian, and those of view {v} "
                f"({type(family).__name__}) are negative: use specific='low_rank'"
            )
        if family.learns_noise and hasattr(family, "groups"):
            raise ValueError(
                f"view {v} is mixed and has a Gaussian of unknown variance, which specific='full_covariance' "
                "cannot tell from its covariance: give the noise variance"
            )


def _warn_of_weak_views(model: Any, views: Sequence[np.ndarray]) -> None:
    """A view weight far below one leaves the prior of that view's latents to decide."""
    variance = balanced_variance(model.latent_variance, model.loading_variance, model.beta)
    weights = np.broadcast_to(model.view_weights, (len(views),))
    for v, (weight, view) in enumerate(zip(weights, views, strict=True)):
        if weight < 1 and weight * view.shape[1] < 1 / float(variance):
            warnings.warn(
                f"view_weights of {weight:g} for y_{v} with {view.shape[1]} columns is less than the prior's "
                f"precision {1 / float(variance):g}: the prior alone decides on that view; raise "
                "latent_variance * loading_variance along",
                stacklevel=4,
            )
