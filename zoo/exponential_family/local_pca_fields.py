"""Fields of a mixture of local PCAs: what they may be, what the data decide, which rows and methods suit."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from zoo import checks
from zoo.exponential_family import Family
from zoo.exponential_family.cells import units_of, without_units
from zoo.exponential_family.expectations import are_steep
from zoo.fields import Part

SCALE_RATE = 0.1  # default sparsity, over standard deviations
BROAD = 100.0  # default variance of offsets, in variances
LEAST_ARD_RATE = 1e-3  # of SePCA


def _of_cells(unit: str, formula: Callable[[Any, Any], Any], **facts: Any) -> dict[str, Any]:
    """The facts of a field whose value follows from means and mean variance of the columns.

    These are read off the data where the noise is not known, and 0 and 1 of other cells.
    """
    return facts | {
        "unit": unit,
        "is_used": lambda model: model.family.cell_units != "none",
        "read": lambda model, x: formula(*x.once(_units)) if model.family.learns_noise else None,
        "otherwise": lambda model: None if model.family.learns_noise else formula(0.0, 1.0),
    }


def _units(part: Part) -> tuple[np.ndarray, float]:
    return units_of(part.rows)


FACTS: dict[str, Any] = {
    "sparsity": _of_cells("rate_unit", lambda _, variance: SCALE_RATE / np.sqrt(variance), least=0),
    "offset_mean": _of_cells("place_unit", lambda means, _: means, dims=("feature",), or_one=True),
    "offset_variance": _of_cells("variance_unit", lambda _, variance: BROAD * variance),
    "ard_rate": _of_cells("variance_unit", lambda _, variance: variance),
    "noise_rate": _of_cells("noise_unit", lambda _, variance: variance),
}


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


def check_together(model: Any, *, is_open: bool) -> None:
    """Raise ValueError if fields do not go together.

    Args:
        model: the model.
        is_open: whether the family is still to be chosen by what the columns hold.

    Raises:
        ValueError: the family does not suit the model, or another field.
    """
    if model.standardize and not (model.family.learns_noise or is_open):
        raise ValueError(without_units((model.family,), "family"))
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
