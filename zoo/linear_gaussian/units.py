"""The prior of a linear-Gaussian model: its unit, how it is read off data, and kept from a former fit."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from zoo import checks
from zoo.coordinates import Unit
from zoo.fields import Part

if TYPE_CHECKING:
    from zoo.mcfa import MCFA
    from zoo.ppca import PPCA

BROAD = 100.0  # variance of the means' prior, in mean variances of the columns
PLACE = Unit(1, (-1,), is_location=True)


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
    checks.check_rows(part.rows, 2, "one row has no variance", part.name)
    found = _Moments(*checks.observed_moments(part.rows, part.weight))
    if found.scale == 0:  # no variance to read the prior off
        checks.check_not_constant(part.rows, part.name)
    return found


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
    }


def _of_noise(model: "PPCA | MCFA") -> dict[str, int | str]:
    return {"each feature": model.num_features or "num_features"} if model.noise == "diagonal" else {}


def _noise_rate(model: "PPCA | MCFA", x: _Moments) -> Any:
    return model.noise_concentration * (x.variances if model.noise == "diagonal" else x.scale)


NOISE_RATE: dict[str, Any] = {"dims": _of_noise, "or_one": True} | of_prior(
    "noise_unit", _noise_rate
)  # facts of a field


class ProjectionUnits:
    """Units of the sites and of the prior of a projection of one table, by its fields.

    Those are ``standardize``, ``noise`` (``"isotropic"`` or ``"diagonal"``) and ``loading_prior``.
    """

    standardize: bool
    noise: str
    loading_prior: str
    dims: ClassVar[Mapping[str, tuple[str, ...]]]
    symmetries: ClassVar[tuple[str, ...]]

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """With an ARD prior, whose loadings are not alike in all directions, their signs and no rotation."""
        in_place = "sign" if self.loading_prior == "ard" else "rotation"
        return tuple(in_place if name == "rotation" else name for name in self.symmetries)

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, mean, loadings, and variances."""
        ard = {"loading_precision": Unit(-self.ard_unit.power)} if self.ard_unit else {}
        return {"x": PLACE, "loc": PLACE, "loadings": Unit(1, (-2,)), "noise_variance": self.noise_unit} | ard

    @property
    def variance_unit(self) -> Unit:
        """Of variances, which have none where columns are measured in their deviations."""
        return Unit(0 if self.standardize else 2)

    @property
    def ard_unit(self) -> Unit | None:
        """Of the rate of the loadings' precisions, where there are any."""
        return self.variance_unit if self.loading_prior == "ard" else None

    @property
    def noise_unit(self) -> Unit:
        """Of noise variances."""
        return self.variance_unit._replace(axes=(-1,) if self.noise == "diagonal" else ())

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; those of the noise variance depend on ``noise``."""
        return dict(self.dims) | ({"noise_variance": ("feature",)} if self.noise == "diagonal" else {})
