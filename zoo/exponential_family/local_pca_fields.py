"""Fields of a mixture of local PCAs: what they may be, what the data decide, which rows and methods suit."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from zoo import checks
from zoo.dirichlet_process import WEIGHT_PRIORS
from zoo.dpp import SIMILARITIES
from zoo.exponential_family import Family
from zoo.exponential_family.cells import units_of, without_units
from zoo.exponential_family.expectations import are_steep
from zoo.intake.families import AUTO, numbers_and_families

__all__ = [
    "check_field_values",
    "check_for_method",
    "check_rows_of_components",
    "default_priors",
    "defaults_of",
    "fields_of_simple_epca",
    "has_steep_cells",
    "kind_of_prior",
    "read_off",
]

CHOICES = {
    "kernel": tuple(SIMILARITIES),
    "latents": ("component", "shared"),
    "scale_prior": ("laplace", "ard"),
    "weight_prior": WEIGHT_PRIORS,
}
POSITIVE = (
    "similarity_scale",
    "concentration",
    "offset_variance",
    "ard_concentration",
    "ard_rate",
    "noise_rate",
)
SCALE_RATE = 0.1  # default sparsity, over standard deviations
BROAD = 100.0  # default variance of offsets, in variances
LEAST_ARD_RATE = 1e-3  # of SePCA


def default_priors(means: Any = 0.0, variance: float = 1.0) -> dict[str, Any]:
    """The default priors of cells with these means of columns and this mean variance.

    Args:
        means: shape (num_features,) or ().
        variance: a number.

    Returns:
        Field name to value.
    """
    return {
        "sparsity": SCALE_RATE / np.sqrt(variance),
        "offset_mean": means,
        "offset_variance": BROAD * variance,
        "ard_rate": variance,
        "noise_rate": variance,
    }


def defaults_of(model: Any) -> dict[str, Any]:
    """Values of the fields that are not given and that no data decide.

    Args:
        model: the model, whose family is known.

    Returns:
        Field name to value.
    """
    checks.check_size("num_components", model.num_components)
    known = {} if model.family.learns_noise else default_priors()
    known["concentration"] = model.num_components
    return {name: value for name, value in known.items() if getattr(model, name) is None}


def read_off(model: Any, x: Any, overrides: dict[str, Any]) -> dict[str, Any]:
    """The fields of a model of given rows: its size, and with unknown noise its priors.

    Args:
        model: its class.
        x: the rows, a table.
        overrides: fields that are given.

    Returns:
        Field name to value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    (x,), (family,) = numbers_and_families(model, (x,), (given.get("family", AUTO),))
    given["family"] = family
    read = model.sizes_of((x,))
    if given.get("standardize", False):
        model(**given)  # what cannot be standardised is refused
        scale = checks.column_scale(x, given.get("column_scale"))
        read |= {"column_scale": scale} | default_priors(*units_of(x / scale))
        read["offset_mean"] = read["offset_mean"] * scale
    elif family.learns_noise:
        read |= default_priors(*units_of(x))
    return read | given


def fields_of_simple_epca(model: Any, x: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of one PCA whose columns are normal with precisions by type-II maximum likelihood.

    Args:
        model: its class.
        x: the rows, a table.
        fields: that are given.

    Returns:
        Field name to value.
    """
    (x,), (family,) = numbers_and_families(model, (x,), (fields.get("family", AUTO),))
    has_unit = family.learns_noise and not fields.get("standardize", False)
    rate = LEAST_ARD_RATE * (units_of(x)[1] if has_unit else 1.0)
    prior = {"ard_concentration": (x.shape[1] + 1) / 2, "ard_rate": rate, "repulsion": 0.0}
    return {"num_components": 1, "scale_prior": "ard"} | prior | fields | {"family": family}


def kind_of_prior(model: Any) -> str:
    """As `zoo.model.Model.prior`; a traced repulsion is not known, and taken for none.

    Args:
        model: the model.

    Returns:
        ``"improper"`` at zero sparsity, ``"unnormalised"`` with repulsion, else ``"proper"``.
    """
    if model.scale_prior == "laplace" and _is_zero(model.sparsity):
        return "improper"
    is_known = not isinstance(model.repulsion, jax.core.Tracer)
    repels = model.num_components > 1 and is_known and not _is_zero(model.repulsion)
    return "unnormalised" if repels else "proper"


def has_steep_cells(family: Family, variables: Mapping[str, Any]) -> bool:
    """Whether bounded cells change steeply with the latents (`zoo.exponential_family.expectations`).

    Args:
        family: of the cells.
        variables: of a fit, with any leading axes.

    Returns:
        Whether they do, as far as bases and scales are known.
    """
    if not {"bases", "scales"} <= variables.keys():
        return False
    loadings = np.asarray(variables["bases"]) * np.asarray(variables["scales"])[..., None, :]
    return are_steep(family, loadings, 1.0)


def _is_zero(value: Any) -> bool:
    """Whether a hyperparameter is known to be zero, which a traced one is not."""
    return not isinstance(value, jax.core.Tracer) and bool(np.all(np.asarray(value) == 0))


def check_field_values(model: Any, *, is_open: bool) -> None:
    """Raise ValueError or TypeError if a field is outside its domain.

    Args:
        model: the model.
        is_open: whether the family is still to be chosen by what the columns hold.

    Raises:
        TypeError: a field of another kind.
        ValueError: one that is outside its domain.
    """
    for name in ("num_components", "num_latents"):
        checks.check_size(name, getattr(model, name))
    for name in ("repulsion", "sparsity"):
        value = getattr(model, name)
        if value is not None and (value.shape != () or not 0 <= value < np.inf):
            raise ValueError(f"{name} must be a number of at least 0; got {checks.shown(value)}")
    for name in POSITIVE:
        if getattr(model, name) is not None:
            checks.check_positive(name, getattr(model, name))
    checks.check_concentration("concentration", model.concentration)
    _check_offset_mean(model.offset_mean, model.num_features)
    for name, allowed in CHOICES.items():
        checks.check_choice(name, getattr(model, name), allowed)
    checks.check_flag("offset", model.offset)
    checks.check_flag("standardize", model.standardize)
    if model.standardize and not (model.family.learns_noise or is_open):
        raise ValueError(without_units((model.family,), "family"))
    if model.column_scale is not None:
        checks.check_positive_columns("column_scale", model.column_scale, model.num_features)
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
        checks.check_num_latents(model.num_latents, {"columns": model.num_features})


def _check_offset_mean(mean: Any, num_features: int | None) -> None:
    if mean is None:
        return
    if not np.isfinite(mean).all():
        raise ValueError(f"offset_mean must be finite; got {checks.shown(mean)}")
    if num_features and mean.shape not in ((), (num_features,)):
        raise ValueError(
            f"offset_mean must be one number or one for each of {num_features} features; "
            f"got shape {mean.shape}"
        )


def check_rows_of_components(model: Any, x: np.ndarray) -> None:
    """Raise ValueError if there are too few rows for the components, or nothing to cluster.

    Args:
        model: the model.
        x: the rows.

    Raises:
        ValueError: the rows do not suit.
    """
    if x.shape[0] < model.num_components:
        raise ValueError(
            f"num_components must be at most the number of rows, {x.shape[0]}; got "
            f"{model.num_components}: "
            f"give num_components={x.shape[0]} or less"
        )
    if model.num_components > 1 and len(x) > 1 and (x == x[0]).all():
        raise ValueError("all rows are the same: there is nothing to cluster; use num_components=1")


def check_for_method(model: Any, method: str) -> None:
    """Refuse samplers of an improper posterior; warn of point estimates without an optimum.

    Args:
        model: the model.
        method: its name.

    Raises:
        ValueError: a sampler, and the posterior is improper; svi, and natural parameters are negative.
    """
    if method == "svi" and model.family.theta_is_negative:
        raise ValueError(
            f"svi has no bound for cells of {type(model.family).__name__}: their natural parameters are "
            "negative, and the normal guide puts some mass elsewhere; use em, map, nuts or hmc"
        )
    proper = model.integrates_latents or method == "vb"
    if model.scale_prior != "laplace" or not _is_zero(model.sparsity) or proper:
        return
    if method in ("nuts", "hmc", "svi"):
        raise ValueError(
            f"{method} needs a proper posterior, and at sparsity=0 it is improper: the likelihood tends "
            "to a positive constant as the scales grow; give sparsity > 0 or scale_prior='ard'"
        )
    checks.warn(
        "sparsity=0 has no optimum: scales grow and latents shrink for ever, and the result depends on "
        "when the run stops; give sparsity > 0 or scale_prior='ard'"
    )
