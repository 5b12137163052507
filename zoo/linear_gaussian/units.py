"""The prior of a linear-Gaussian model: its unit, how it is read off data, and kept from a former fit."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from zoo import checks
from zoo.coordinates import Unit
from zoo.fields import Part

__all__ = ["BROAD", "NOISE_RATE", "of_prior"]

BROAD = 100.0  # variance of the means' prior, in mean variances of the columns


class _Moments(NamedTuple):
    """Means and variances of the columns of a part of the data, shape (num_columns,)."""

    means: np.ndarray
    variances: np.ndarray

    @property
    def scale(self) -> float:
        """The columns' mean variance."""
        return float(self.variances.mean())


def _moments(part: Part) -> _Moments:
    if not isinstance(part.rows, np.ndarray):
        raise ValueError("sparse x goes with loading_prior='flat', the default")
    checks.check_infinite(part.rows, part.name)
    checks.check_some_columns(part.rows, part.name)
    checks.check_scale(part.rows, name=part.name)
    return _Moments(*checks.observed_moments(part.rows, part.weight))


def of_prior(unit: Unit | str, read: Callable) -> dict[str, Any]:
    """The facts of a field of the prior, which is not used where it is flat.

    Args:
        unit: of the field, see `zoo.fields`.
        read: its value, of the model and of moments of the parts: ``means``, ``variances`` and ``scale``.

    Returns:
        The facts.
    """
    return {
        "unit": unit,
        "read": lambda model, *parts: read(model, *(part.once(_moments) for part in parts)),
        "is_used": lambda model: model.loading_prior != "flat",
        "is_kept": lambda model, former: former.loading_prior == model.loading_prior,
    }


def _of_noise(model: Any) -> dict[str, int | str]:
    return {"each feature": model.num_features or "num_features"} if model.noise == "diagonal" else {}


def _noise_rate(model: Any, x: _Moments) -> Any:
    return model.noise_concentration * (x.variances if model.noise == "diagonal" else x.scale)


NOISE_RATE = {"dims": _of_noise, "or_one": True} | of_prior("noise_unit", _noise_rate)  # facts of a field
