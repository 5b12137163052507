r"""Exponential-family PCA, Bayesian (BEPCA), with the joint beta-prior.

Generative process, in the letters of Mohamed, Heller and Ghahramani (2008) and Virtanen (2010)::

    v_d     ~ Normal(0, sigma_V^2 I_K),     d = 1..D
    mu_d    ~ Normal(loc_mean, loc_variance)
    u_n     ~ Normal(0, sigma_U^2 I_K),     n = 1..N
    theta_n = V u_n + mu
    x_nd    ~ the exponential family with natural parameter theta_nd

With ``conjugate_loadings`` the density of v_dk is proportional to exp{lam_d v_dk - nu_d g(v_dk)} instead, the
conjugate prior of the cells of its column (`zoo.exponential_family.conjugate_loadings`), as in Mohamed,
Heller and Ghahramani (2008); their factor scores have a mean and variances with priors, where here natural
parameters have the mean mu and the variance of scores is given.

With 0 < beta < 1 the density of U and V is multiplied by the conjugate kernel of the family at every
theta_nd (`zoo.exponential_family.joint_prior`); then the prior has no known normaliser.

======  ======================  ==========  =========================================================
letter  site                    shape       support
======  ======================  ==========  =========================================================
V       ``loadings``            (D, K)      real
mu      ``loc``                 (D,)        real; not with `Ordinal`, whose cut points stand for it
u_n     ``latents``             (N, K)      real
alpha   ``loading_precision``   (K,)        positive; a site only with ``ard=True``
phi     ``noise_variance``      ()          positive; a site only of a Gaussian of unknown variance
        ``cut_points``          (D, C - 1)  rising; `Ordinal` only
x_nd    ``x``                   (N, D)      data; NaN is a missing cell
======  ======================  ==========  =========================================================

With `Categorical` cells of C classes loadings and mean have D (C - 1) rows, those of a column together. Where
`Ordinal` columns have different numbers of levels their cut points lie flat, those of a column together: dim
``level_cut``, named ``COLUMN: LEVEL|NEXT LEVEL``.

Symmetry: U R and V R with R orthogonal give the same density (rotation, including signs). Only the product
of the two variances matters for Theta, so both sites are drawn with variance sigma_U sigma_V. With conjugate
loadings directions are not interchangeable: only the order of the latents is arbitrary (and signs if the
prior is symmetric about zero), and latents have variance sigma_U^2. Chains are still compared by quantities
that rotations leave unchanged, above all Theta.

Units. Gaussian cells of unknown variance with default priors are measured in a common unit u, the root of the
columns' mean variance, about ``loc_mean``, the columns' means: the rows of V, mu - loc_mean and the standard
deviation of the noise are u times those of the program above, and phi ~ InverseGamma(1, u^2). Scores then do
not depend on the unit of the table. Priors that are given are in the units of the data. Nothing is rescaled
for other families, whose natural parameters have no unit, for known noise variances, for mixed tables, which
have no common unit, or for beta > 0, where the kernel's pseudo-data have units.

With ``standardize`` every column of Gaussian cells of unknown variance, in mixed tables too, has its own unit
u_d, its standard deviation: row d of V, mu_d - loc_mean_d and the standard deviation of the noise are u_d
times those of the program above. The cells then have variance u_d^2 phi; phi ~ InverseGamma(1, 1) and the
variances of the priors, given or not, have no unit. The fit equals that of the table with columns divided by
their standard deviations; loadings, means, natural parameters and predictions are in the units of the data.

The latents cannot be integrated out, so they are sites whether or not the program is ``explicit``.

Departures from the source. beta = 1, which has no integral, is for point estimates only. The conjugate kernel
sees the whole Theta, mean included.

References: Virtanen (2010), chapters 3 and 5; Mohamed et al. (2008); Collins, Dasgupta and Schapire (2001).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks, suitable_fields
from zoo.columns import Columns
from zoo.exponential_family import Family, as_family, has_unit_noise, joint_prior
from zoo.exponential_family.cells import (
    FamilyCells,
    cells_of,
    has_units,
    measured_columns,
    sample_view_parameters,
    standard_normals,
    starting_sizes,
    starting_view_parameters,
    units_of,
    units_of_columns,
    units_of_standard_view,
    units_of_view,
    without_units,
)
from zoo.exponential_family.conjugate_loadings import (
    ConjugateLoadings,
    check_conjugate_loadings,
    check_conjugate_pairs,
)
from zoo.exponential_family.expectations import (
    SPREAD_NODES,
    Nodes,
    are_steep,
    over_latents,
    rests_on_tail,
    with_spread,
)
from zoo.exponential_family.joint_prior import FACTOR_IN_PRIOR, balanced_variance
from zoo.exponential_family.natural_params import LowRank, RowMode, padded, row_modes
from zoo.model import Model, in_current_precision, static
from zoo.shapes import Covariances, PerRow, Rows, Scores, Theta, View
from zoo.suitable_fields import ChoosesFamily

__all__ = ["EPCA", "JointPriorModel"]

KERNEL_STRENGTH = 0.1  # lam of the default kernel
START_SCALE = 0.3
WEAK_VARIANCE = 10.0  # of natural parameters before the data: above it MAP reaches different optima
DEFAULT_PRIORS = {"loading_variance": 1.0, "loc_variance": 100.0}
START_DEPTHS = (0.1, 1.0, 10.0)  # of natural parameters below zero, in sizes of their means


class JointPriorModel(ChoosesFamily, Model):
    """A projection with Gaussian priors or the joint beta-prior (`zoo.exponential_family.joint_prior`).

    Subclasses have the fields ``beta``, ``conjugate``, ``ard``, ``standardize`` and the variances,
    ``_check_kernels``, and of
    rows at given values ``_log_cells`` (log density), ``_log_prior`` (of local latents), ``_with_local``,
    ``_num_local``, ``_table`` (cells of a view), ``_mean_theta``, ``_suffix`` and ``_view_weights``.
    """

    sums_out_locals = False
    latent_site = "latents"

    @property
    def _variance(self) -> Array:
        """Prior variance of an entry of U and of V."""
        return balanced_variance(self.latent_variance, self.loading_variance, self.beta)

    @property
    def has_several_modes(self) -> bool:
        """Where ``latent_variance`` times ``loading_variance`` exceeds 10, as was measured."""
        return float(np.max(self.latent_variance * self.loading_variance)) > WEAK_VARIANCE

    def dim_labels(
        self, coords: Mapping[str, Sequence[Any]], columns: Sequence[Columns | None] = ()
    ) -> dict[str, Sequence[Any]]:
        """Names of natural parameters of classes, ``COLUMN: LEVEL``, of ordinal columns and of cut points.

        The first class of a column has none: the others are measured against it.
        """
        labels: dict[str, Sequence[Any]] = {}
        for place, (part, family) in enumerate(zip(self.data_names, self.cell_families, strict=True)):
            dim = self.variable_dims[part][1]
            names = coords.get(dim)
            if names is None:
                continue
            read = columns[place] if place < len(columns) else None
            held = {} if read is None else {column.name: column.levels for column in read.kept}
            with_levels = family.level_columns(len(names))
            if len(family.cut_sizes) > 1:
                counts = zip(with_levels, family.cut_counts(len(names)), strict=True)
                labels[dim.replace("feature", "level_cut")] = [
                    label
                    for column, count in counts
                    for label in _cut_labels(str(names[column]), held.get(str(names[column]), ()), count)
                ]
            elif 0 < len(with_levels) < len(names):
                labels[f"level_{dim}"] = [str(names[column]) for column in with_levels]
            if family.num_params(len(names)) == len(names):
                continue
            of_column: dict[int, list[str]] = {}
            for column in family.param_columns(len(names)):
                own = of_column.setdefault(column, [])
                levels = held.get(str(names[column]), ())
                number = len(own) + 1
                own.append(str(levels[number] if number < len(levels) else number))
            labels[dim.replace("feature", "feature_class")] = [
                f"{names[column]}: {level}" if len(own) > 1 else str(names[column])
                for column, own in of_column.items()
                for level in own
            ]
        return labels

    @property
    def has_kernel(self) -> bool:
        """Whether the conjugate kernel multiplies the prior."""
        return self.conjugate is not None

    @property
    def prior(self) -> str:
        """``"unnormalised"`` with beta > 0 (``"improper"`` with beta = 1), else ``"proper"``."""
        if not self.has_kernel:
            return "proper"
        return "improper" if isinstance(self.beta, np.ndarray) and self.beta == 1 else "unnormalised"

    def with_sizes_from(self, *data: Any, sample_weight: Any = None) -> Self:
        """The model with its sizes and, where there are kernels, their means."""
        is_filled = self.unit is not None or not self._reads_units()
        has_unit = self.natural_unit is not None or not self._is_negative
        has_kernels = self.conjugate is not None or self.beta == 0
        if self.num_features is not None and has_kernels and is_filled and has_unit:
            return self
        return super().with_sizes_from(*data)

    def _reads_units(self) -> bool:
        """Whether cells of unknown noise have their units read off the data: with default priors only."""
        if self.standardize:
            return True
        default = all(np.all(getattr(self, name) == value) for name, value in DEFAULT_PRIORS.items())
        return default and bool(self.beta == 0) and any(map(has_units, self.cell_families))

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        in_units = self.unit is not None and all(map(has_units, self.cell_families))
        by_column = ("columns_rescaled",) if self.standardize else ()
        if name not in ("shifted", "rescaled", "other_units", *by_column) or not in_units:
            return super().relation_of(name, method)
        said = "same, predictions in the new unit"
        return said if method in ("vb", "svi") else f"{said}, objective up to a constant"

    @property
    def _is_negative(self) -> bool:
        """Whether some natural parameters must be negative."""
        return any(family.theta_is_negative for family in self.cell_families)

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        unit = self.natural_unit
        if unit is not None and (unit.ndim > 1 or not (np.isfinite(unit) & (unit > 0)).all()):
            raise ValueError(
                "natural_unit must be positive, one number or one for each natural parameter of a row; "
                f"got {checks.shown(unit)}"
            )
        for name in ("latent_variance", "loading_variance", "loc_variance", "ard_concentration", "ard_rate"):
            checks.check_positive(name, getattr(self, name))
        if self.unit is not None and (self.unit.ndim > 1 or self.unit.size == 0):
            raise ValueError(f"unit must be one number, or one for each column; got shape {self.unit.shape}")
        if self.unit is not None and not ((self.unit > 0) & (self.unit < np.inf)).all():
            raise ValueError(f"unit must be positive; got {checks.shown(self.unit)}")
        if self.unit is not None and self.loc_mean is None:
            object.__setattr__(self, "loc_mean", np.zeros(()))
        if self.unit is None and self.loc_mean is not None:
            raise ValueError("loc_mean goes with unit: cells of unknown noise are measured in unit about it")
        if self.beta.shape != ():
            raise ValueError(f"beta must be one number; got shape {self.beta.shape}")
        checks.check_flag("standardize", self.standardize)
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
        if not any(family.learns_noise for family in self.cell_families):
            if self._given is not None:
                return  # families are still to be read off the columns
            raise ValueError(without_units(self.cell_families, self.family_field))
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
        pairs = zip(self.cell_families, sizes, strict=True)
        return np.concatenate([measured_columns(family, size) for family, size in pairs])

    @property
    def scale_remedy(self) -> str:
        """`standardize`, which cells of known noise and the joint prior do not have."""
        if self.beta > 0:
            return "divide the columns by their standard deviations"
        if all(family.learns_noise for family in self.cell_families):
            return "give standardize=True"
        return f"give {self.family_field} with Gaussian(noise_variance=None), and standardize=True"

    def auto_method(self, *data: Any) -> str:
        """``"vb"`` where its bound is in closed form, else ``"map"``, whose latents are points.

        Points follow the noise of their own rows, so that the loadings and all that they explain come out too
        large and the noise too small, however many rows there are.
        """
        return "vb" if self._has_closed_bound(data) else "map"

    def _has_closed_bound(self, data: Sequence[Any]) -> bool:
        """Whether VB takes the cells and the prior."""
        kinds = [kind for family in self.cell_families for kind, _ in family.column_groups(1)]
        closed = all(not k.theta_is_negative and k.log_partition_form != "other" for k in kinds)
        return closed and bool(self.beta < 1)

    def check_method(self, method: str) -> None:
        """Refuse methods that integrate the posterior at beta = 1, and guides that leave a domain.

        Args:
            method: its name.

        Raises:
            ValueError: ``"svi"``, and some natural parameters must be negative.
        """
        joint_prior.refuse_improper(float(self.beta), method)
        if method == "svi" and self._is_negative:
            raise ValueError(
                "svi has no bound for exponential, gamma and negative binomial cells: their natural "
                "parameters are negative, and the normal guide puts some mass elsewhere; use map, nuts or hmc"
            )

    def log_likelihood(self, values: Mapping[str, Array], *data: View) -> PerRow:
        """Log density of each row over its observed cells, weighted as in the program.

        Given its latents if ``values`` has them; else (new rows) with them integrated out by Laplace's
        approximation, under the prior that they have given the loadings, conjugate kernels and all. View
        weights other than one make it a score instead of a density.

        Args:
            values: of the sites.
            *data: tables, each of shape (num_observations, its features), NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        if "latents" in values:
            return self._log_cells(values, data)
        whole = self._modes(values, data).log_integral
        if not self.has_kernel:
            return whole
        nothing = tuple(jnp.full_like(table[:1], jnp.nan) for table in data)
        return whole - self._modes(values, nothing).log_integral

    def view_variances(self, values: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
        """Variance of the cells' means over the rows, and mean of their variances; NaN for classes.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Suffix of the view to two arrays of shape (num_columns,).
        """
        found = {}
        for v, family in enumerate(self.cell_families):
            suffix = self._suffix(v)
            means, variances = self._table(v, values).mean_and_variance()
            total = jnp.var(means, axis=0) + jnp.mean(variances, axis=0)
            by_latents = {name: own for name, own in values.items() if name != f"natural_params{suffix}"}
            explained = jnp.var(self._table(v, by_latents).mean_and_variance()[0], axis=0)
            groups = family.column_groups(means.shape[1])
            named = [own for group, own in groups if group.has_classes]  # classes have no variance
            classes = np.concatenate([np.zeros(0, int), *named])
            pair = explained, jnp.maximum(total - explained, 0.0)
            found[suffix] = tuple(part.at[classes].set(jnp.nan) for part in pair)
        return found

    def scores(self, values: Mapping[str, Array], *data: View, kind: str = "latent") -> Scores:
        """The mode of each row's latents, or its natural parameters' coordinates in an orthonormal basis.

        Args:
            values: of the sites.
            *data: as in `log_likelihood`.
            kind: ``"latent"`` or ``"orthonormal"``; with ``standardize`` that of columns in their units.

        Returns:
            Shape (num_observations, num_latents).
        """
        u = self._modes(values, data).latents[:, : self.num_latents]
        if kind == "latent":
            return u
        factors = self.noise_factors
        loadings = jnp.concatenate(
            [
                values[name] / jnp.sqrt(factors[suffix])[:, None] if suffix in factors else values[name]
                for name, suffix in self.loading_sites.items()
            ]
        )
        left, _, right = jnp.linalg.svd(loadings, full_matrices=False)
        return u @ loadings.T @ (left @ right)

    def _modes(self, values: Mapping[str, Array], data: tuple[Array, ...]) -> RowMode:
        """Mode of the local latents of rows, and Laplace's integral over them."""
        rows = jnp.concatenate(data, axis=1)
        starts = self._starts(values, data) if self._is_negative else None
        return row_modes(self._log_joint(values, data), rows, self._num_local(values), starts)

    def _starts(self, values: Mapping[str, Array], data: tuple[Array, ...]) -> Callable:
        """Latents at which a row's natural parameters are negative where they must be, if there are any.

        Least squares towards minus some multiples of the sizes of their means. At latents of zero they are
        the means, which some draws of a sampler have outside the domain.
        """
        at = self._with_local(values, jnp.zeros((1, self._num_local(values))))
        tables = [self._mean_theta(v, at) for v in range(len(self.cell_families))]
        loadings = jnp.concatenate([table.loadings for table in tables])
        loc = jnp.concatenate([jnp.broadcast_to(t.loc, t.loadings.shape[:1]) for t in tables])
        sizes = [table.shape[1] for table in data]
        negative = np.concatenate(
            [f.negative_params(d) for f, d in zip(self.cell_families, sizes, strict=True)]
        )
        column = np.concatenate(
            [
                sum(sizes[:v]) + np.asarray(f.param_columns(d))
                for v, (f, d) in enumerate(zip(self.cell_families, sizes, strict=True))
            ]
        )

        def starts(row: Array) -> Array:
            bound = jnp.asarray(negative) & (~jnp.isnan(row)[column] | self.has_kernel)
            scale = jnp.where(bound, 1.0 / jnp.maximum(jnp.abs(loc), 1e-300), 0.0)
            own = loadings * scale[:, None]
            gram = own.T @ own
            gram += 1e-9 * (jnp.trace(gram) + 1e-300) * jnp.eye(gram.shape[0])
            targets = -(jnp.asarray(START_DEPTHS)[:, None] + loc * scale) * bound
            return jnp.linalg.solve(gram, own.T @ targets.T).T

        return starts

    def _log_joint(
        self,
        values: Mapping[str, Array],
        data: tuple[Array, ...],
        spread: Mapping[str, Array] | None = None,
    ) -> Callable:
        """Log joint density of a row, all views side by side, and its local latents, in nats.

        Where loadings have a ``spread`` the density of each observed cell is averaged over it.
        """
        ends = np.cumsum([table.shape[1] for table in data])[:-1].tolist()

        def log_joint(local: Array, row: Array) -> Array:
            at, parts = self._with_local(values, local[None]), jnp.split(row, ends)
            if spread is None:
                cells = self._log_cells(at, tuple(part[None] for part in parts))[0]
            else:
                cells = self._log_averaged_cells(at, parts, spread)
            return cells + self._log_prior(values, local[None])[0]

        return log_joint

    def _log_averaged_cells(
        self, at: Mapping[str, Array], row: Sequence[Array], spread: Mapping[str, Array]
    ) -> Array:
        total, weights = 0.0, jnp.broadcast_to(self._view_weights(), (len(row),))
        for v, part in enumerate(row):
            table, seen = self._table(v, at), ~jnp.isnan(part)
            theta = self._mean_theta(v, at).whole()[0]
            variance = _theta_variance(at["latents"], spread[self._suffix(v)])[0]
            filled = jnp.where(seen, part, 1.0)
            cells = table.family.log_marginal(theta, variance, filled, table.cut_points)
            total += weights[v] * jnp.sum(jnp.where(seen, cells, 0.0))
        return total

    def _expected(
        self,
        values: Mapping[str, Array],
        data: tuple[Array, ...],
        v: int,
        spread: Mapping[str, Array] | None = None,
    ) -> tuple[Array, Array, Array | None]:
        """Mean and variance of all cells of a view given the observed cells of all, and class probabilities.

        Shapes (num_observations, num_features), twice, and (num_observations, num_features, num_classes) or
        None.
        """
        rows, modes = jnp.concatenate(data, axis=1), self._modes(values, data)

        def average(nodes: Nodes, row: Array) -> tuple[Array, Array, Array | None]:
            at = self._with_local(values, nodes.latents)
            table = self._table(v, at)
            theta = table.theta.reshape(len(nodes.weights), -1)
            variance = None if spread is None else _theta_variance(at["latents"], spread[self._suffix(v)])
            wide, weights, normal = with_spread(theta, variance, nodes)
            wide = table.family.shaped(wide)
            mean, variance = table.family.expected_cells(wide, weights, normal, table.cut_points)
            return mean, variance, table.family.expected_class_probs(wide, weights)

        num_columns = sum(table.shape[1] for table in data) * (1 if spread is None else SPREAD_NODES)
        log_joint = self._log_joint(values, data, spread)
        return over_latents(log_joint, average, rows, modes, num_columns, steep=self.has_steep_cells)

    def resolving(self, variables: Mapping[str, Any]) -> Self:
        """With finer nodes where bounded cells change steeply, see `zoo.exponential_family.expectations`.

        Args:
            variables: with loadings or their means, draws with any leading axes.

        Returns:
            The model.
        """
        for v, family in enumerate(self.cell_families):
            for name in (f"loadings{self._suffix(v)}", f"loadings_mean{self._suffix(v)}"):
                if name in variables and are_steep(family, variables[name], self._variance):
                    return self.replaced(has_steep_cells=True)
        return self

    def rests_on_tail(
        self,
        values: Mapping[str, Array],
        mean: Array,
        variance: Array,
        *data: Array,
        what: str | None = None,
    ) -> Array | None:
        """Which expectations the tail of the latents dominates; see `zoo.exponential_family.expectations`.

        Args:
            values: not read: mean and variance tell.
            mean: of `predicted`.
            variance: of `predicted`; zero for cells that were observed.
            *data: not read.
            what: the view, of several.

        Returns:
            Boolean, the shape of ``mean``; None: no cells of the family have a tail.
        """
        family = self.cell_families[0 if what is None else self.data_names.index(what)]
        square = family.mean_square_of_means(mean, variance)
        return None if square is None else rests_on_tail(mean, square) & (variance != 0)

    def class_probs(self, values: Mapping[str, Array], *data: Array, what: str | None = None) -> Array | None:
        """Probabilities of the classes of categorical cells given the observed cells; None: there are none.

        Args:
            values: of the sites.
            *data: as in `log_likelihood`.
            what: the view, of several.

        Returns:
            Shape (num_observations, num_features, num_classes); zero in columns of other families.
        """
        v = 0 if what is None else self.data_names.index(what)
        if not self.cell_families[v].has_classes:
            return None
        return self._expected(values, data, v)[2]

    def scores_covariance(self, values: Mapping[str, Array], *data: View) -> Covariances:
        """Laplace's covariance of the latents of each row.

        Args:
            values: of the sites.
            *data: as in `log_likelihood`.

        Returns:
            Shape (num_observations, num_latents, num_latents).
        """
        k = self.num_latents
        return self._modes(values, data).covariance[:, :k, :k]


def _theta_variance(latents: Array, covariance: Array) -> Array:
    """Variance of natural parameters given latents, where loadings and mean have a covariance.

    ``latents`` of shape (number, num_latents) and one matrix for each natural parameter give (number,
    num_params).
    """
    extended = jnp.concatenate([latents, jnp.ones_like(latents[:, :1])], axis=1)
    return jnp.maximum(jnp.einsum("ni,pij,nj->np", extended, covariance, extended), 0.0)


def _cut_labels(name: str, levels: Sequence[Any], count: int) -> list[str]:
    """Names of the cut points of a column, ``COLUMN: LEVEL|NEXT LEVEL``; by number where levels have none."""
    words = levels if len(levels) == count + 1 else range(1, count + 2)
    return [f"{name}: {low}|{high}" for low, high in itertools.pairwise(words)]


@dataclass(frozen=True, eq=False)
class EPCA(JointPriorModel):
    """Exponential-family PCA with Gaussian priors (``beta=0``) or the joint beta-prior.

    Attributes:
        family: a family of `zoo.exponential_family`, its name, or a tuple with one for each column;
            ``"gaussian"`` is `Gaussian()`, noise of known variance 1: `Gaussian(noise_variance=None)` has
            unknown noise. ``"auto"`` is bernoulli for an array; for a DataFrame it is what its columns hold
            (`zoo.suitable_fields.family_of_columns`).
        num_latents: K.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance: sigma_U^2 > 0.
        loading_variance: sigma_V^2 > 0.
        loc_variance: prior variance of the mean of natural parameters.
        loc_mean: its prior mean, a number or shape (num_features,); given with `unit`.
        unit: u > 0 in which cells of unknown noise are measured, and the variances above with them. None:
            read off the data, with `loc_mean`, where those variances have their defaults; else there is none.
            With ``standardize`` shape (num_features,), 1 for columns of other cells; None: the columns'
            standard deviations over their observed cells.
        natural_unit: in which natural parameters, and so loadings and means, are measured: the priors above
            are of loadings and means divided by it. One number, or one for each natural parameter of a row.
            None: one; but with exponential, gamma or negative binomial columns read off the data, the size
            that their natural parameters have at the column's mean, such as 1 / mean (in the inverse unit of
            the data). A table in other units then has the same fit.
        conjugate: (lam, nu) of the kernel; None: lam = 0.1 and nu such that the kernel's mean is that of all
            cells; of exponential and gamma cells, whose unit lam has, nu = 0.1 and lam so (in mixed tables a
            pair for each column, of its family's cells). Not used with ``beta=0``.
        ard: whether each latent has a precision of its loadings, Gamma(ard_concentration, ard_rate), by which
            it can be switched off; with ``beta=0`` only.
        ard_concentration: of the precisions' prior.
        ard_rate: of the precisions' prior.
        standardize: whether each column of Gaussian cells of unknown noise is measured in a `unit` of its
            own, its standard deviation: for columns in different units (see "Units"); with ``beta=0`` only.
        num_features: D; read off the data.
        conjugate_loadings: (lam, nu) of the conjugate prior of the loadings, in cells: their sum and their
            number; or shape (num_features, 2), both for each column. None: loadings are normal, with
            ``loading_variance``. For Bernoulli, binomial, Poisson and Gaussian cells of known noise, with
            ``beta=0``, by map, nuts, hmc and svi.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.EPCA.from_data(x, family="bernoulli", num_latents=2).num_features
        5
    """

    family: Family | str = "auto"
    num_latents: int = static(default=2)
    beta: Array = 0.0
    latent_variance: Array = 1.0
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    loc_mean: Array | None = None
    unit: Array | None = None
    conjugate: Array | None = None
    ard: bool = static(default=False)
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    natural_unit: Array | None = None
    standardize: bool = static(default=False)
    num_features: int | None = static(default=None)
    conjugate_loadings: Array | None = None

    dims = {
        "loadings": ("feature", "latent"),
        "loc": ("feature",),
        "latents": ("observation", "latent"),
        "loading_precision": ("latent",),
        "noise_variance": (),
        "cut_points": ("feature", "cut"),
        "natural_params": ("observation", "feature"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation", "sign")
    relations = {
        "shifted": "no: priors have a unit, but those of unknown noise by default",
        "rescaled": "no: priors have a unit, but those of unknown noise by default",
        "other_units": "no: priors have a unit, but those of unknown noise by default",
        "float32": "same where it ends, to the root of single precision",
    }
    methods = ("vb", "map", "gibbs", "nuts", "hmc", "svi")
    loading_sites = {"loadings": ""}

    def __call__(self, x: Rows | None = None, *, num_observations: int | None = None) -> Rows:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows = self._num_rows(x, num_observations)
        prior = in_current_precision(self)
        size = self.family.num_params(self.num_features if x is None else x.shape[1])
        variance = prior._variance
        if self.standardize:
            self.require("unit")
        num_features = self.num_features if x is None else x.shape[1]
        unit = 1.0 if self.unit is None else prior.unit
        rows = unit[np.asarray(self.family.param_columns(num_features)), None] if self.standardize else unit
        scale = jnp.sqrt(variance) * rows
        if self.ard:
            precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
            scale = scale / jnp.sqrt(numpyro.sample("loading_precision", precisions.to_event(1)))
        shape = (size, self.num_latents)
        natural_unit = None if prior.natural_unit is None else jnp.broadcast_to(prior.natural_unit, (size,))
        entries = dist.Normal(0.0, scale).expand(shape).to_event(2)
        if natural_unit is not None:
            entries = padded(entries, tuple(range(self.num_latents)), self.num_latents, natural_unit[:, None])
        if self.conjugate_loadings is not None:
            entries = prior._conjugate_entries(num_features)
        values = {"loadings": numpyro.sample("loadings", entries)}
        centre = 0.0 if self.loc_mean is None else prior.loc_mean
        values |= sample_view_parameters(
            prior.family,
            num_features,
            prior.loc_variance,
            loc_mean=centre,
            unit=unit,
            natural_unit=natural_unit,
        )
        with numpyro.plate("observations", num_rows):
            z = dist.Normal(0.0, jnp.sqrt(variance)).expand([self.num_latents]).to_event(1)
            values["latents"] = numpyro.sample("latents", z)
            cells = self.cells(values)
            if self.has_kernel:
                joint_prior.joint_prior_factor(prior.family, self._theta(values), prior.beta, prior.conjugate)
            return numpyro.sample("x", cells, obs=x)

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The unit and the prior mean of cells of unknown noise, once they are read off the data."""
        if self.unit is None:
            return {}
        if self.standardize:
            return units_of_standard_view(self.family, self.unit, self.loc_mean, "x")
        return units_of_view(self.unit, self.loc_mean, "x")

    def in_standard_units(self) -> Self:
        """The model of (x - loc_mean) / unit."""
        return self.replaced(unit=None, loc_mean=None, standardize=False) if self.units else self

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared units of the columns, with ``standardize``."""
        if not self.standardize or self.unit is None:
            return {}
        return {"": self.unit[np.asarray(self.family.param_columns(self.unit.size))] ** 2}

    @property
    def _variance(self) -> Array:
        """Prior variance of an entry of U; of V too, but where loadings have their conjugate prior."""
        if self.conjugate_loadings is not None:
            return jnp.asarray(self.latent_variance)
        return super()._variance

    def _conjugate_entries(self, num_features: int) -> ConjugateLoadings:
        pairs = jnp.broadcast_to(jnp.asarray(self.conjugate_loadings), (num_features, 2))
        return ConjugateLoadings(self.family, pairs, self.num_latents)

    @property
    def has_several_modes(self) -> bool:
        """Where the variances of latents and loadings have a product above 10, as was measured."""
        if self.conjugate_loadings is None or self.num_features is None:
            return super().has_several_modes
        pairs = np.broadcast_to(self.conjugate_loadings, (self.num_features, 2))
        of_loadings = self.family.kernel_variance(pairs[:, 0], pairs[:, 1])
        return float(np.max(self.latent_variance * of_loadings)) > WEAK_VARIANCE

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """None with conjugate loadings: their prior is not alike in all directions."""
        return super().exact_symmetries if self.conjugate_loadings is None else ()

    def check_method(self, method: str) -> None:
        """Refuse methods that take loadings for normal, where they have their conjugate prior.

        Args:
            method: its name.

        Raises:
            ValueError: ``"gibbs"`` or ``"vb"`` with ``conjugate_loadings``; what `JointPriorModel` refuses.
        """
        super().check_method(method)
        if self.conjugate_loadings is not None and method in ("gibbs", "vb"):
            raise ValueError(
                f"method {method!r} takes loadings with a normal prior, and conjugate_loadings gives them "
                "another one: use nuts, hmc, svi or map, or leave conjugate_loadings out"
            )

    def _has_closed_bound(self, data: Sequence[Any]) -> bool:
        return self.conjugate_loadings is None and super()._has_closed_bound(data)

    # Closed-form companions of the program

    def natural_params(self, values: Mapping[str, Array]) -> Theta:
        """The natural parameters Theta, flat in mixed tables.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Shape (num_observations, num_features), with one more axis for `Categorical`.
        """
        return self.family.shaped(self._theta(values).whole())

    def cells(self, values: Mapping[str, Array]) -> dist.Distribution:
        """The distribution of the rows at given values of the sites.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_features,).
        """
        prior = in_current_precision(self)
        return cells_of(
            prior.family, self._theta(values), values, unit=prior.unit if self.standardize else None
        )

    def _theta(self, values: Mapping[str, Array]) -> LowRank:
        return LowRank(values["latents"], values["loadings"], values.get("loc", 0.0))

    def _log_cells(self, values: Mapping[str, Array], data: tuple[Array]) -> Array:
        return self.cells(values).log_prob(*data)

    def _mean_theta(self, v: int, values: Mapping[str, Array]) -> LowRank:
        return self._theta(values)

    def _view_weights(self) -> float:
        return 1.0

    def predicted(
        self, values: Mapping[str, Array], x: Rows, *, spread: Mapping[str, Array] | None = None
    ) -> tuple[Rows, Rows]:
        """Rows with missing cells replaced by their expectation given the observed ones, and the variance.

        Averaged over the posterior of the row's latents by `zoo.exponential_family.expectations`.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.
            spread: covariance of each natural parameter's loadings and mean by the suffix of their names,
                shape (num_params, num_latents + 1, num_latents + 1), where they have one besides.

        Returns:
            Two arrays of the shape of ``x``; the variance of an observed cell is zero.
        """
        mean, variance, _ = self._expected(values, (x,), 0, spread)
        missing = jnp.isnan(x)
        return jnp.where(missing, mean, x), jnp.where(missing, variance, 0.0)

    def _table(self, v: int, values: Mapping[str, Array]) -> FamilyCells:
        return self.cells(values)

    def _suffix(self, v: int) -> str:
        return ""

    def _with_local(self, values: Mapping[str, Array], local: Array) -> dict[str, Array]:
        return dict(values) | {"latents": local}

    def _log_prior(self, values: Mapping[str, Array], local: Array) -> Array:
        """Log prior density of latents, up to a constant with kernels; shape (num_observations,)."""
        prior = in_current_precision(self)
        total = jnp.sum(dist.Normal(0.0, jnp.sqrt(prior._variance)).log_prob(local), axis=-1)
        if self.has_kernel:
            theta = self._theta(self._with_local(values, local)).whole()
            total += prior.beta * jnp.sum(joint_prior.log_kernel(self.family, theta, prior.conjugate), -1)
        return total

    def _num_local(self, values: Mapping[str, Array]) -> int:
        return self.num_latents

    def starting_point(self, key: Array, x: Rows) -> dict[str, Array]:
        """Starting values of all sites: means at the columns' means, small latents and loadings.

        Natural parameters lie inside the family's domain, which the prior alone does not see to.
        """
        if self.standardize and self.units:
            return self.started_in_standard_units(key, x)
        family = in_current_precision(self).family
        size = family.num_params(x.shape[1])
        shapes = (size, self.num_latents), (x.shape[0], self.num_latents)
        loadings, latents = standard_normals(key, *shapes)
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        values = starting_view_parameters(family, x)
        loadings *= scale
        if self._is_negative:
            unit = in_current_precision(self).natural_unit
            unit = None if unit is None else jnp.broadcast_to(unit, (size,))
            loadings *= starting_sizes(family, values["loc"], unit, x.shape[1])[:, None]
        values |= {
            "loadings": loadings,
            "latents": scale * latents,
        }
        if self.ard:
            values["loading_precision"] = jnp.ones(self.num_latents)
        return values

    # Sizes and checks

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size, and the kernel's mean, read off the data; ``overrides`` are fields."""
        given = overrides.get("family") or suitable_fields.AUTO
        (x,), (family,) = suitable_fields.read_tables((x,), (given,), cls.families_for, cls.__name__)
        overrides["family"] = family = as_family(family)
        x = checks.as_matrix(x)
        read: dict[str, Any] = {"num_features": x.shape[1]}
        if family.theta_is_negative:
            family.check(x)
            read["natural_unit"] = family.natural_units(x)
        if np.any(np.asarray(overrides.get("beta", 0.0)) > 0) and family.has_kernel:
            read["conjugate"] = family.kernel_of(x, KERNEL_STRENGTH)
        elif overrides.get("standardize", False):
            cls(**(read | overrides))  # what cannot be standardised is refused
            given = overrides.get("unit")
            centre, read["unit"] = units_of_columns(family, x, given)
            read |= {"loc_mean": centre} if given is None else {}
        elif "unit" not in overrides and cls(**overrides)._reads_units():
            read["loc_mean"], variance = units_of(x)
            read["unit"] = np.sqrt(variance)
        return cls(**(read | {name: value for name, value in overrides.items() if value is not None}))

    def __post_init__(self) -> None:
        """Replace a family's name by the family, then store and validate the fields."""
        self._remember_auto()
        object.__setattr__(self, "family", as_family(self.family))
        super().__post_init__()

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Family and number of latents.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 1)
        return suitable_fields.family_fields(cls.__name__, data[0])

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        super().validate()
        if self.conjugate_loadings is not None:
            self._check_conjugate_loadings()

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

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        self.check_new(x)
        checks.check_rows(x, 2, "the projection of one row is the row itself")
        checks.check_some_cells(x)
        checks.check_num_latents(self.num_latents, {"columns": x.shape[1], "rows": x.shape[0]})

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model; rows without any cell are allowed."""
        checks.check_columns(x, self.num_features, owner="model")
        self.family.check(x)

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether all cells are Gaussian with one noise variance, in one unit for all columns."""
        return (self.family.log_partition_form == "quadratic" and not self.standardize,)

    @property
    def unit_noise_parts(self) -> tuple[bool, ...]:
        """Whether all cells are Gaussian with noise of known variance 1."""
        return (has_unit_noise(self.family),)

    @property
    def cell_families(self) -> tuple[Family]:
        """The family of the cells."""
        return (self.family,)

    @property
    def cell_units(self) -> tuple[str, ...]:
        """Those of the cells of each part."""
        return tuple(family.cell_units for family in self.cell_families)

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

    def _num_rows(self, x: Array | None, num_observations: int | None) -> int:
        if x is not None:
            if isinstance(self.beta, np.ndarray) and self.beta > 0:
                self.require("conjugate")
            return x.shape[0]
        return self.rows_to_draw(num_observations, "num_features", reason=FACTOR_IN_PRIOR)
