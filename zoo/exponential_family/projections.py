"""What `zoo.EPCA` and `zoo.Paired` have in common: facts of their families and priors, and checks."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array

from zoo import checks
from zoo.coordinates import Coordinates, Unit
from zoo.coordinates.of_models import field_by_part
from zoo.exponential_family.cells import (
    has_units,
    measured_columns,
    units_of,
    units_of_columns,
    without_units,
)
from zoo.exponential_family.joint_prior import balanced_variance
from zoo.fields import Part, family_field, require
from zoo.intake.families import ChoosesFamily
from zoo.intake.kinds import Columns

if TYPE_CHECKING:
    from zoo.epca import EPCA
    from zoo.paired import Paired

    type Projection = EPCA | Paired

KERNEL_STRENGTH = 0.1  # lam of the default kernel
DEFAULT_PRIORS = {"loading_variance": 1.0, "loc_variance": 100.0}


def _sizes(model: "Projection", *parts: Part) -> np.ndarray | None:
    """Sizes of natural parameters read off the data, where some must be negative."""
    if not model.is_negative:
        return None
    pairs = list(zip(model.part_families, parts, strict=True))
    for family, part in pairs:
        family.check(part.rows, part.name)
    return np.concatenate([family.natural_units(part.rows) for family, part in pairs])


def _places(model: "Projection", *parts: Part) -> np.ndarray | None:
    """Origins of the cells of unknown noise, all columns of all parts; 0 of others."""
    found = _units(model, parts) if model.unit is None and model.reads_units else None
    return None if found is None else np.concatenate([place for place, _ in found])


def _own_units(model: "Projection", *parts: Part) -> np.ndarray | None:
    """Units of the cells of unknown noise, of parts or with ``standardize`` of their columns; 1 of others."""
    if not model.reads_units:
        return None
    units = [unit for _, unit in _units(model, parts)]
    is_one = not model.standardize and family_field(model) == "family"
    return units[0] if is_one else np.concatenate(list(map(np.atleast_1d, units)))


def _units(model: "Projection", parts: Sequence[Part]) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs = zip(model.part_families, parts, strict=True)
    if model.standardize:
        return [units_of_columns(family, part.rows, part.name) for family, part in pairs]
    return [part.once(_common_unit) if has_units(family) else _no_unit(part) for family, part in pairs]


def _common_unit(part: Part) -> tuple[np.ndarray, np.ndarray]:
    means, variance = units_of(part.rows)
    return means, np.sqrt(variance)


def _no_unit(part: Part) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(part.rows.shape[1]), np.ones(())


def _kernels(model: "Projection", *parts: Part) -> Any:
    """The default kernels' lam and nu, read off the data where there must be kernels."""
    families = model.part_families
    if not (model.needs_kernel and all(family.has_kernel for family in families)):
        return None
    found = [
        family.kernel_of(part.rows, KERNEL_STRENGTH) for family, part in zip(families, parts, strict=True)
    ]
    if family_field(model) == "family":
        return found[0]
    pairs = zip(found, parts, strict=True)
    return np.concatenate([np.broadcast_to(own, (part.rows.shape[1], 2)) for own, part in pairs])


_STATED: dict[str, Any] = {
    "dims": lambda model: {"each column or view": "any"},
    "or_one": True,
    "inside": None,
}
# facts of the fields that tell the coordinates of the program, and of the kernels
FACTS: dict[str, Any] = {
    "loc_mean": _STATED
    | {"unit": "place_unit", "read": _places}
    | {"otherwise": lambda model: None if model.unit is None else 0.0},
    "unit": _STATED | {"unit": "own_unit", "read": _own_units},
    "natural_unit": _STATED | {"unit": "size_unit", "read": _sizes},
    "conjugate": {"unit": "kernel_unit", "read": _kernels},
}


class JointPriorModel(ChoosesFamily):
    """A projection with Gaussian priors or the joint beta-prior (`zoo.exponential_family.joint_prior`).

    Subclasses have the fields ``beta``, ``conjugate``, ``ard``, ``standardize`` and the variances,
    ``_check_kernels``, and as answers a `zoo.exponential_family.answers.ProjectionAnswers`.
    """

    num_features: Any  # a number, or one for each view
    beta: Array
    ard: bool
    standardize: bool
    latent_variance: Array
    loading_variance: Array
    loc_mean: Array | None
    unit: Array | None
    natural_unit: Array | None
    conjugate: Array | None
    _check_kernels: Callable

    def with_families(self, columns: Sequence[Columns | None]) -> Any:
        """The model with the families of the columns of tables, where none were given.

        With ``beta=0`` also with ``standardize``, where these are Gaussian of unknown noise beside others: a
        loading of prior variance 1 is small in euros, and large beside the log odds of a yes.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            The model.
        """
        found = super().with_families(columns)
        is_mixed = any(family.is_mixed and family.learns_noise for family in found.part_families)
        is_open = self._given is not None and bool(found.beta == 0)
        return found.replaced(standardize=True) if is_open and is_mixed else found

    @property
    def entry_variance(self) -> Array:
        """Prior variance of an entry of U and of V."""
        return balanced_variance(self.latent_variance, self.loading_variance, self.beta)

    @property
    def has_kernel(self) -> bool:
        """Whether the conjugate kernel multiplies the prior."""
        return self.conjugate is not None

    @property
    def kernel_unit(self) -> Unit | None:
        """Of the kernel's mean, which has none that a column could follow."""
        return Unit(0) if self.needs_kernel and not self.units else None

    @property
    def needs_kernel(self) -> bool:
        """Whether there must be a kernel, as far as the number beta is known."""
        return isinstance(self.beta, np.ndarray) and bool(self.beta > 0)

    @property
    def prior(self) -> str:
        """``"unnormalised"`` with beta > 0 (``"improper"`` with beta = 1), else ``"proper"``."""
        if not self.has_kernel:
            return "proper"
        is_known = not isinstance(self.beta, jax.core.Tracer)
        return "improper" if is_known and bool(self.beta == 1) else "unnormalised"

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """With an ARD prior, whose loadings are not alike in all directions, no rotation."""
        return tuple(name for name in self.symmetries if not (self.ard and name == "rotation"))

    @property
    def reads_units(self) -> bool:
        """Whether cells of unknown noise have their units read off the data: with default priors only."""
        if self.standardize:
            return True
        default = all(np.all(getattr(self, name) == value) for name, value in DEFAULT_PRIORS.items())
        return default and bool(self.beta == 0) and any(map(has_units, self.part_families))

    @property
    def is_negative(self) -> bool:
        """Whether some natural parameters must be negative."""
        return any(family.theta_is_negative for family in self.part_families)

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        if self.unit is None and self.loc_mean is not None:
            raise ValueError("loc_mean goes with unit: cells of unknown noise are measured in unit about it")
        if self.standardize:
            self._check_standardize()
        self._check_kernels()
        if self.beta == 0:
            object.__setattr__(self, "conjugate", None)
        if self.ard and self.beta > 0:
            raise ValueError(
                "ard=True goes with beta=0: the joint prior's normaliser depends on the precisions"
            )

    def _check_standardize(self) -> None:
        """Refuse to measure cells in their standard deviations that have no unit, or priors that have one."""
        if not any(family.learns_noise for family in self.part_families):
            if self._given is not None:
                return  # families are still to be read off the columns
            raise ValueError(without_units(self.part_families, family_field(self)))
        if self.beta > 0:
            raise ValueError(
                "standardize=True goes with beta=0: the kernel's pseudo-data have a unit of their own; leave "
                "standardize out, and divide the columns by their standard deviations"
            )
        if self.unit is None:
            return
        sizes = self.num_features
        total = sizes if sizes is None or isinstance(sizes, int) else sum(sizes)
        checks.check_positive_columns("unit", self.unit, total)
        if sizes is None:
            return
        measured = self._measured()
        if (self.unit[~measured] != 1).any():
            raise ValueError(
                "unit must be 1 for columns that are not Gaussian of unknown noise, "
                f"{np.flatnonzero(~measured).tolist()}; got {checks.shown(self.unit)}"
            )

    def _measured(self) -> np.ndarray:
        """The columns of all tables that are in the unit of the data, boolean."""
        sizes = (self.num_features,) if isinstance(self.num_features, int) else self.num_features
        pairs = zip(self.part_families, sizes, strict=True)
        return np.concatenate([measured_columns(family, size) for family, size in pairs])

    @property
    def scale_remedies(self) -> tuple[str, ...]:
        """`standardize`, which cells of known noise and the joint prior do not have, for Gaussian tables."""
        remedy = f"give {family_field(self)} with Gaussian(noise_variance=None), and standardize=True"
        if self.beta > 0:
            remedy = "divide the columns by their standard deviations"
        elif all(family.learns_noise for family in self.part_families):
            remedy = "give standardize=True"
        pairs = [(own.learns_noise, own.log_partition_form == "quadratic") for own in self.part_families]
        return tuple(
            remedy if (learns or known) and not (self.standardize and learns) else ""
            for learns, known in pairs
        )

    # Coordinates in which the program is stated

    @property
    def _is_inverse(self) -> bool:
        """Whether each column's natural parameters have the inverse unit of its cells, and are in sizes."""
        return False

    def _is_measured(self, v: int) -> bool:
        """Whether cells of a table are in the unit of the data: Gaussian ones of unknown noise."""
        family = self.part_families[v]
        return family.learns_noise if self.standardize else has_units(family)

    @property
    def _has_unit(self) -> bool:
        """Whether cells are in a unit of their own: Gaussian ones of unknown noise, exponential and gamma."""
        has_unit = self.unit is not None and any(map(self._is_measured, range(len(self.part_families))))
        return self._is_inverse or has_unit

    @property
    def own_coordinates(self) -> Coordinates | None:
        """Those about ``loc_mean`` in ``unit``, or in the columns' sizes ``1 / natural_unit``."""
        if self._is_inverse:
            return Coordinates((None,), (1 / self.natural_unit,))
        if not self._has_unit:
            return None
        require(self, "num_features")
        pairs = zip(field_by_part(self, "loc_mean"), field_by_part(self, "unit"), strict=True)
        own = [pair if self._is_measured(v) else (None, None) for v, pair in enumerate(pairs)]
        return Coordinates(*zip(*own, strict=True))

    @property
    def units(self) -> Mapping[str, Unit]:
        """Of cells in a unit of their own: rows, natural parameters with what they are made of, noise."""
        units: dict[str, Unit] = {}
        if not (self._has_unit or self.standardize):
            return units
        power, has_place = (-1, False) if self._is_inverse else (1, True)
        for v, name in enumerate(self.data_names):
            if self._is_inverse or self._is_measured(v):
                columns, suffix = self._param_columns(v), self._suffix(v)
                units[name] = Unit(1, (-1,), has_place, v)
                units[f"loc{suffix}"] = Unit(power, (-1,), has_place, v, columns)
                units[f"loadings{suffix}"] = Unit(power, (-2,), False, v, columns)
                units |= self._noise_units(v)
        return units

    def _noise_units(self, v: int) -> Mapping[str, Unit]:
        """Of the noise variance of a table, where it has one."""
        unit = Unit(0 if self.standardize else 2, part=v)
        return {} if self._is_inverse else {f"noise_variance{self._suffix(v)}": unit}

    def _suffix(self, v: int) -> str:
        return "" if family_field(self) == "family" else f"_{v}"

    def _param_columns(self, v: int) -> tuple[int, ...] | None:
        """The column of each natural parameter of a table; None: each column has one."""
        sizes, family = self.num_features, self.part_families[v]
        d = sizes[v] if isinstance(sizes, tuple) else sizes
        columns = None if d is None else tuple(family.param_columns(d))
        return None if columns is None or len(columns) == d else columns

    @property
    def size_unit(self) -> Unit | None:
        """Of the sizes of natural parameters, where columns have an inverse unit."""
        return Unit(-1, (-1,)) if self._is_inverse else None

    @property
    def own_unit(self) -> Unit | tuple[Unit, ...] | None:
        """Of the units of cells of unknown noise."""
        return self._stated_unit((-1,) if self.standardize else (), is_place=False)

    @property
    def place_unit(self) -> Unit | tuple[Unit, ...] | None:
        """Of the origins of cells of unknown noise."""
        return self._stated_unit((-1,), is_place=True)

    def _stated_unit(self, axes: tuple[int, ...], *, is_place: bool) -> Unit | tuple[Unit, ...] | None:
        """Of a field with numbers of each table, which count in those with a unit of their own."""
        if self._is_inverse or not (self._has_unit or self.standardize):
            return None
        measured = enumerate(map(self._is_measured, range(len(self.part_families))))
        units = tuple(Unit(int(own), axes, own and is_place, v) for v, own in measured)
        return units[0] if family_field(self) == "family" else units
