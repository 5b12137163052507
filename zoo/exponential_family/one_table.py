"""`zoo.EPCA` beside its program: what is read off a table, what is refused, and the dims of its variables."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from zoo import checks
from zoo.exponential_family import joint_prior
from zoo.exponential_family.cells import has_units
from zoo.exponential_family.conjugate_loadings import check_conjugate_loadings, check_conjugate_pairs
from zoo.exponential_family.projections import JointPriorModel


class OneTable(JointPriorModel):
    """A projection of one table; the subclass has the fields of `zoo.EPCA`, its program and its units."""

    family: Any
    conjugate_loadings: Array | None

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        super().validate()
        if self.unit is not None and not self.standardize and self._given is None:
            self._check_unit()
        if self.conjugate_loadings is not None:
            self._check_conjugate_loadings()

    def _check_unit(self) -> None:
        """Refuse a unit of cells that have none, and several without ``standardize``."""
        if not has_units(self.family):
            raise ValueError(
                "unit is that of Gaussian cells of unknown noise, all columns alike, and not of "
                f"{type(self.family).__name__} cells: leave unit and loc_mean out"
            )
        if self.unit.ndim:
            raise ValueError(
                f"unit must be one number; got shape {self.unit.shape}: units of columns go with "
                "standardize=True"
            )

    def _check_conjugate_loadings(self) -> None:
        """Refuse pairs of a wrong shape, what changes normal loadings, and cells without such a prior."""
        check_conjugate_pairs(self.conjugate_loadings, self.num_features)
        given = {"beta": self.beta != 0, "ard": self.ard, "standardize": self.standardize}
        given["loading_variance"] = self.loading_variance != 1
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"conjugate_loadings is the whole prior of the loadings, and {name} changes that of "
                    f"normal ones: leave {name} out"
                )
        if self._given is None:  # else families are still to be read off the columns
            check_conjugate_loadings(self.family, self.conjugate_loadings, self.num_features)

    def _check_kernels(self) -> None:
        pairs = [(self.family, 0.0, 0.0)]
        if self.conjugate is not None:
            if self.conjugate.shape not in self.family.kernel_shapes or not np.isfinite(self.conjugate).all():
                raise ValueError(
                    "conjugate must be two finite numbers, lam and nu (of a mixed table also two for each "
                    f"column); got {checks.shown(self.conjugate)}"
                )
            pairs = self.family.kernel_problems(self.conjugate)
        elif 0 <= self.beta <= 1 and self.family.has_kernel:
            return
        for family, lam, nu in pairs:
            joint_prior.check_joint_prior(family, float(self.beta), lam, nu)

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; those of categorical cells have classes as well as features."""
        dims = dict(self.dims)
        if self.num_features is None:
            return dims
        if self.family.num_params(self.num_features) != self.num_features:
            dims |= {"loadings": ("feature_class", "latent"), "loc": ("feature_class",)}
        if len(self.family.cut_sizes) > 1:
            dims["cut_points"] = ("level_cut",)
        elif len(self.family.level_columns(self.num_features)) != self.num_features:
            dims["cut_points"] = ("level_feature", "cut")
        return dims

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """None with conjugate loadings: their prior is not alike in all directions."""
        return super().exact_symmetries if self.conjugate_loadings is None else ()
