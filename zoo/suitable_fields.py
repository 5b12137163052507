"""Default fields that suit a data set, for the comparison of models on it.

Each model chooses them in `zoo.model.Model.suitable_fields`; this module has the parts that models share.

Cells are judged by their values: zeros and ones get Bernoulli cells, whole numbers from 0 Poisson ones, other
numbers Gaussian ones of unknown variance, with priors as wide as the data, in every model that has a choice;
a sparse matrix holds documents. Then all models score the same thing, a density, a probability, or that of a
document given its length, and their log densities compare; a model that scores something else is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.checks import as_numbers
from zoo.exponential_family import Gaussian
from zoo.model import Model

__all__ = [
    "check_not_sparse",
    "density_fields",
    "family_fields",
    "family_of",
    "kind_of_cells",
    "natural_param_widths",
    "suitable_fields",
    "suitable_num_latents",
]

_SIZE = 2  # latents, where the data have columns enough
_WIDE = 100.0  # prior variance of means, in mean squares of the cells


def kind_of_cells(x: Any) -> str:
    """The family of the cells of a table, judged by their values.

    Args:
        x: a table of numbers, NaN where missing; a sparse one holds counts.

    Returns:
        ``"bernoulli"``, ``"poisson"`` or ``"gaussian"``.
    """
    if hasattr(x, "tocsr"):
        return "poisson"
    values = as_numbers(x)
    values = values[~np.isnan(values)]
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli"
    return "poisson" if (values >= 0).all() and (values == np.round(values)).all() else "gaussian"


def suitable_fields(model: type[Model], data: Sequence[Any]) -> dict[str, Any]:
    """Fields of a model that suit the data, besides those that `from_data` reads off them.

    Args:
        model: its class.
        data: the parts of the data; tables of two axes.

    Returns:
        Field name to value.

    Raises:
        TypeError: the model takes another number of parts.
        ValueError: the model scores densities, and the cells are zeros and ones, or counts.
    """
    fields = model.suitable_fields(data)
    if not model.scores_rows:
        raise ValueError(f"{model.__name__} has no density of rows to compare")
    return fields


def check_not_sparse(name: str, x: Any) -> None:
    """Raise ValueError if the table is sparse and therefore holds documents.

    Args:
        name: of the model.
        x: a table.
    """
    if hasattr(x, "tocsr"):
        raise ValueError(f"{name} scores cells, which does not compare with documents given their lengths")


def density_fields(name: str, x: Any) -> dict[str, Any]:
    """Fields of a projection whose scores are densities.

    Args:
        name: of the model.
        x: a table of numbers.

    Returns:
        ``num_latents``.

    Raises:
        ValueError: the cells have probabilities.
    """
    check_not_sparse(name, x)
    kind = kind_of_cells(x)
    if kind != "gaussian":
        held = "zeros and ones" if kind == "bernoulli" else "whole numbers"
        raise ValueError(f"{name} has densities, which do not compare with probabilities of {held}")
    return {"num_latents": suitable_num_latents(x)}


def family_fields(name: str, x: Any) -> tuple[dict[str, Any], tuple[float, float] | None]:
    """Fields of a projection whose cells are of an exponential family, and the widths of Gaussian cells.

    Args:
        name: of the model.
        x: a table of numbers.

    Returns:
        ``family`` and ``num_latents``; `natural_param_widths` of Gaussian cells, else None.

    Raises:
        ValueError: the table is sparse.
    """
    check_not_sparse(name, x)
    kind = kind_of_cells(x)
    widths = natural_param_widths(x) if kind == "gaussian" else None
    return {"family": family_of(kind), "num_latents": suitable_num_latents(x)}, widths


def family_of(kind: str) -> Any:
    """The family of cells of a kind; Gaussian ones have an unknown noise variance.

    Args:
        kind: as of `kind_of_cells`.

    Returns:
        A family, or its name.
    """
    return Gaussian(noise_variance=None) if kind == "gaussian" else kind


def natural_param_widths(x: Any) -> tuple[float, float] | None:
    """Mean variance of the columns, and a wide prior variance of their means, in squared units of the data.

    Args:
        x: a table of numbers.

    Returns:
        None where the data have no variance; the model's check refuses them.
    """
    values = as_numbers(x)
    values = values[:, ~np.isnan(values).all(axis=0)]
    if not values.size:
        return None
    variance, size = float(np.nanmean(np.nanvar(values, axis=0))), float(np.nanmean(values**2))
    return (variance, _WIDE * size) if variance > 0 and np.isfinite(size) else None


def suitable_num_latents(x: Any) -> int:
    """A number of latents: two, or one if the data have too few rows or columns.

    Args:
        x: a table, shape (num_observations, num_features).

    Returns:
        1 or 2.
    """
    return max(1, min(_SIZE, x.shape[1] - 1, x.shape[0] - 1))
