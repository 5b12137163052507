"""Fields with which a model suits a data set, so that models can be compared on it without being told.

Cells are judged by their values: zeros and ones get Bernoulli cells, whole numbers from 0 Poisson ones, other
numbers Gaussian ones of unknown variance, with priors as wide as the data, in every model that has a choice;
a sparse matrix holds documents. Then all models score the same thing, a density, a probability, or that of a
document given its length, and their log densities compare; a model that scores something else is refused.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.conjugate import BernoulliBeta, MultinomialDirichlet, NormalGamma, PoissonGamma
from zoo.exponential_family import Gaussian
from zoo.model import Model

__all__ = ["kind_of_cells", "suitable_fields"]

_DENSITIES_ALONE = ("PPCA", "SPPCA")
_SIZE = 2  # latents, where the data have columns enough
_WIDE = 100.0  # prior variance of means, in mean squares of the cells
_RATE = 0.1  # of the prior of DEPCAM's scales, a standard deviation of the data


def kind_of_cells(x: Any) -> str:
    """The family whose support the cells of a table fill.

    Args:
        x: a table of numbers, NaN where missing; a sparse one holds counts.

    Returns:
        ``"bernoulli"``, ``"poisson"`` or ``"gaussian"``.
    """
    if hasattr(x, "tocsr"):
        return "poisson"
    values = np.asarray(x, np.float64)
    values = values[~np.isnan(values)]
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli"
    return "poisson" if (values >= 0).all() and (values == np.round(values)).all() else "gaussian"


def suitable_fields(model: type[Model], data: Sequence[Any]) -> dict[str, Any]:
    """Fields of a model that suit the data, besides what it reads off them by itself.

    Args:
        model: its class.
        data: the parts of the data; tables of two axes.

    Returns:
        Field name to value.

    Raises:
        TypeError: the model takes another number of parts.
        ValueError: the model scores densities, and the cells are zeros and ones, or counts.
    """
    name = model.__name__
    needed = 2 if name == "Paired" else len(model.data_names)
    if len(data) != needed:
        parts = "part" if needed == 1 else "parts"
        raise TypeError(f"{name} takes {needed} {parts} of data; there {_are(len(data))}")
    if not model.scores_rows:
        raise ValueError(f"{name} gives rows no density to compare")
    sparse = hasattr(data[0], "tocsr")
    if model.takes_documents and not sparse:
        raise ValueError(f"{name} scores documents given their lengths: give their counts as a sparse matrix")
    if model.takes_documents:
        return {}
    if name == "Mixture" and sparse:
        return {"components": MultinomialDirichlet.from_data(data[0])}
    if sparse:
        raise ValueError(f"{name} scores cells, which does not compare with documents given their lengths")
    kinds = [kind_of_cells(part) for part in data]
    if name in _DENSITIES_ALONE:
        if kinds[0] != "gaussian":
            held = "zeros and ones" if kinds[0] == "bernoulli" else "whole numbers"
            raise ValueError(f"{name} gives densities, which do not compare with probabilities of {held}")
        return {"num_latents": _num_latents(data[0])}
    if name == "Mixture":
        return _components(data[0], kinds[0])
    if name == "Paired":
        own = tuple(int(part.shape[1] > 1) for part in data)
        families = tuple(_family(kind) for kind in kinds)
        fields = {"families": families, "num_shared": 1, "num_specific": own}
        return fields | (_widths(name, np.hstack(data)) if set(kinds) == {"gaussian"} else {})
    fields = {"family": _family(kinds[0]), "num_latents": _num_latents(data[0])}
    return fields | (_widths(name, data[0]) if kinds[0] == "gaussian" else {})


def _family(kind: str) -> Any:
    return Gaussian(noise_variance=None) if kind == "gaussian" else kind


def _widths(name: str, x: Any) -> dict[str, float]:
    """Priors of Gaussian natural parameters in the units of the data."""
    values = np.asarray(x, np.float64)
    values = values[:, ~np.isnan(values).all(axis=0)]
    if not values.size:
        return {}
    variance, size = float(np.nanmean(np.nanvar(values, axis=0))), float(np.nanmean(values**2))
    if not (variance > 0 and np.isfinite(size)):
        return {}  # the model's own check says what is wrong with the data
    if name == "DEPCAM":
        return {"offset_variance": _WIDE * size, "sparsity": _RATE / np.sqrt(variance)}
    return {"loading_variance": variance, "loc_variance": _WIDE * size}


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _num_latents(x: Any) -> int:
    return max(1, min(_SIZE, x.shape[1] - 1, x.shape[0] - 1))


def _components(x: Any, kind: str) -> dict[str, Any]:
    """Families of independent cells where the cells are no numbers, or some are missing."""
    if kind == "gaussian" and not np.isnan(np.asarray(x, np.float64)).any():
        return {}
    if kind == "poisson":  # a column without events: as if half a one had been seen
        means = np.nanmean(np.asarray(x, np.float64), axis=0)
        return {"components": PoissonGamma.from_data(x, rate=1.0 / np.maximum(means, 0.5 / len(x)))}
    family = {"bernoulli": BernoulliBeta, "gaussian": NormalGamma}[kind]
    return {"components": family.from_data(x)}
