"""Fields of a mixture of local PCAs: what they may be, what the data decide, which rows and methods suit."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax import Array

from zoo import checks
from zoo.coordinates import Unit
from zoo.exponential_family.cells import units_of, without_units
from zoo.fields import Part
from zoo.intake.families import ChoosesFamily

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


def _is_zero(value: object) -> bool:
    """Whether a hyperparameter is known to be zero, which a traced one is not."""
    return not isinstance(value, jax.core.Tracer) and bool(np.all(np.asarray(value) == 0))


class LocalPCAFields(ChoosesFamily):
    """What the fields of `zoo.DEPCAM` say: its prior, its units, and which data and methods suit."""

    family: Any
    num_components: int
    num_latents: int
    num_features: int
    integrates_latents: bool
    offset: bool
    standardize: bool
    latents: str
    scale_prior: str
    repulsion: Array
    sparsity: Array

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, offsets, and what has the scale of natural parameters; bases have no unit."""
        if self.family.cell_units == "none":
            return {}
        at, variance = self.place_unit, self.variance_unit
        units = {"x": at._replace(power=abs(at.power)), "offsets": at, "scales": self.scale_unit}
        units |= {"scales_precision": Unit(-variance.power), "loading_norms": variance}
        return units | ({"noise_variance": variance} if self.family.learns_noise else {})

    @property
    def place_unit(self) -> Unit:
        """That of natural parameters: the inverse one where they are rates, none beside a known noise."""
        power = -1 if self.family.theta_is_negative else int(self.family.learns_noise)
        return Unit(power, (-1,), is_location=self.offset and power >= 0)

    @property
    def scale_unit(self) -> Unit:
        """Of the scales, which have none where the program is of standardised columns."""
        return Unit(0 if self.standardize else self.place_unit.power)

    @property
    def rate_unit(self) -> Unit:
        """Of the rate of the scales' prior."""
        return Unit(-self.scale_unit.power)

    @property
    def variance_unit(self) -> Unit:
        """Of the variances of offsets, scales and noise."""
        return Unit(2 * self.scale_unit.power)

    @property
    def noise_unit(self) -> Unit | None:
        """Of the rate of the noise, where there is one to learn."""
        return self.variance_unit if self.family.learns_noise else None

    @property
    def prior(self) -> str:
        """``"improper"`` at zero sparsity, ``"unnormalised"`` with repulsion, else ``"proper"``.

        A traced repulsion is not known, and taken for none.
        """
        if self.scale_prior == "laplace" and _is_zero(self.sparsity):
            return "improper"
        is_known = not isinstance(self.repulsion, jax.core.Tracer)
        repels = self.num_components > 1 and is_known and not _is_zero(self.repulsion)
        return "unnormalised" if repels else "proper"

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables."""
        own = {} if self.latents == "component" else {"latents": ("observation", "latent")}
        return dict(self.dims) | own

    @property
    def scale_remedies(self) -> tuple[str, ...]:
        """`standardize`, which cells of known noise do not have."""
        family = "" if self.family.learns_noise else "family=Gaussian(noise_variance=None) and "
        return tuple(own and f"give {family}standardize=True" for own in super().scale_remedies)

    def validate(self) -> None:
        """Raise ValueError if fields do not go together."""
        if self.standardize and not (self.family.learns_noise or self._given is not None):
            raise ValueError(without_units((self.family,), "family"))
        if self.family.is_mixed or not self.family.has_kernel:
            raise ValueError(
                "family must have one natural parameter a cell and be the same for all columns; "
                f"got {type(self.family).__name__}"
            )
        if self.family.theta_is_negative and not self.offset:
            raise ValueError(
                f"the natural parameters of {type(self.family).__name__} are negative, which a component "
                "without an offset cannot keep to: leave offset=True"
            )
        if self.num_features is not None:
            checks.check_num_latents(self.num_latents, {"columns": self.num_features})

    def check(self, x: Any) -> None:
        """Raise ValueError if ``x`` does not suit the model, or has too few rows for the components."""
        super().check(x)
        if x.shape[0] < self.num_components:
            raise ValueError(
                f"num_components must be at most the number of rows, {x.shape[0]}; got "
                f"{self.num_components}: give num_components={x.shape[0]} or less"
            )
        if self.num_components > 1 and len(x) > 1 and (x == x[0]).all():
            raise ValueError("all rows are the same: there is nothing to cluster; use num_components=1")
