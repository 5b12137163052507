"""The interface of a mixture's component prior: one class per conjugate family.

A component has a likelihood in an exponential family and a conjugate prior. All that inference needs of the
pair is a method of its class, listed in `ComponentPrior`. The same class holds a posterior, then with a
leading axis over components.

The solvers of the M-steps of hyperparameters keep each of them within a bracket, so that none can diverge.
Equations in one unknown are solved by bisection of its logarithm; the equation itself is given in
`ComponentPrior.learnt` of each family.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln

from zoo.answers import TypicalCells
from zoo.checks import check_single_concentration, column_moments, largest_in_columns, unit_roundoff
from zoo.conjugate.missing_cells import IncompleteFeatures
from zoo.coordinates import Unit
from zoo.fields import facts_of, names_of
from zoo.model import Assumptions, as_hyperparameter
from zoo.shapes import (
    Assignments,
    Features,
    OneOrMore,
    OneOrMoreStatistics,
    RowOrRows,
    Rows,
    RowsByComponent,
    Scalar,
    Statistics,
    Values,
)
from zoo.supports.in_units import InUnits

PROBABILITY_FLOOR = 1e-6  # of estimated probabilities, and of rates relative to that of all rows


LOST_SHARE = 5e-4  # of a variance: the most that rounding may make uncertain
FAR_CENTER = 10.0  # deviations of a column: beyond it sums of squares lose two digits or more


class Estimate(NamedTuple):
    """Maximum-likelihood parameters of all components.

    Attributes:
        parameters: site name to value.
        at_floor: number of components that a guard holds, without which the likelihood has no maximum; 0 of
            probabilities of discrete cells, which are at most 1.
    """

    parameters: dict[str, Array]
    at_floor: Array


class ComponentPrior(Assumptions):
    """A conjugate prior of a component's parameters, together with the likelihood of its rows.

    Rows enter through `features`, a matrix whose first column is one: ``features(x) @ coefficients.T`` is a
    matrix of log densities and ``responsibilities.T @ features(x)`` the sufficient statistics. Two matrix
    products, no N x K x D array.

    A hyperparameter may be a NumPyro distribution, of a kind that its field names: then it is a
    site of the program, called as `hyperprior_sites` says, and `with_hyperparameters` puts values in place.

    Class attributes:
        posterior_dims: the fields in which a posterior differs from its prior, to their dims there.
        parameter_dims: site or deterministic of a component's parameters to its dims.
        couples_components: whether components share a parameter, so that `log_evidence` does not split
            by component.
        learnable: hyperparameters that `learnt` can move.
        takes_sparse: whether rows may be `zoo.SparseCounts`.
        takes_missing: whether cells may be NaN.
        is_grouped: whether groups of columns have different families.
        has_correlations: whether columns depend on each other within a component.
        unit_of_cells: how cells follow the origin and the scale of the data; None: they have no unit.
        units_of_parameters: sites and deterministics of a component's parameters to how they do.
        has_counts: whether cells are counts, whose log factorials its density takes.
        rounding: steps in which cells were recorded, shape (num_features,); None: cells are exact.
        logs: columns whose logarithms it is of, see `zoo.conjugate.Product`.
        optional_fields: fields that may stay None.
    """

    posterior_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    parameter_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    couples_components: ClassVar[bool] = False
    learnable: ClassVar[tuple[str, ...]] = ()
    takes_sparse: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    is_grouped: ClassVar[bool] = False
    has_correlations: ClassVar[bool] = False
    unit_of_cells: ClassVar[Unit | None] = None
    units_of_parameters: ClassVar[Mapping[str, Unit]] = {}
    has_counts: ClassVar[bool] = False
    rounding: Array | None = None
    logs: tuple[int, ...] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ("center", "num_tokens", "levels", "patterns", "rounding")

    center: Any  # fields of families that have a location
    loc: Any
    mean_precision: Any

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """The prior that suits rows, shape (num_observations, num_features), given some of its fields."""
        raise NotImplementedError

    @property
    def by_columns(self) -> Sequence[tuple["ComponentPrior", Sequence[int]]]:
        """Families, each with the numbers of its columns."""
        return [(self, range(self.num_features))]

    @property
    def independent_columns(self) -> list[tuple[int, ...]]:
        """Groups of columns that are independent given the component, be its parameters known or not."""
        groups: list[tuple[int, ...]] = []
        for family, columns in self.by_columns:
            shared = any("feature" not in dims for dims in family.posterior_dims.values())
            joined = family.has_correlations or shared
            groups += [tuple(columns)] if joined else [(column,) for column in columns]
        return groups

    @property
    def field_dims(self) -> Mapping[str, tuple[str, ...]]:
        """Fields that are arrays with named dims, to these."""
        return facts_of(self, "dims")

    @property
    def units_of_fields(self) -> Mapping[str, Unit]:
        """Hyperparameters to how they follow the data's origin and scale; others do not."""
        return facts_of(self, "unit")

    @property
    def is_filled(self) -> bool:
        """Whether all fields are there; ``NormalGamma()`` is a prior whose fields are read off the data."""
        names = (field.name for field in dataclasses.fields(self) if field.name not in self.optional_fields)
        return all(getattr(self, name) is not None for name in names)

    def filled(self, x: Any, sample_weight: np.ndarray | None = None) -> Self:
        """The prior with the fields that are None read off the data by `from_data`; itself where none is.

        Args:
            x: rows, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.

        Returns:
            The prior.
        """
        if self.is_filled:
            return self
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given |= {"sample_weight": sample_weight}
        return type(self).from_data(x, **{name: value for name, value in given.items() if value is not None})

    # Rows whose missing cells are integrated out by pattern

    @property
    def is_incomplete(self) -> bool:
        """Whether rows miss cells that the family integrates out by the patterns of `with_patterns`."""
        return False

    def with_patterns(self, x: Any) -> Self:
        """The family that knows which cells of the rows are missing; by default itself.

        Args:
            x: all rows that it will be asked of, shape (num_observations, num_features), NaN where missing.

        Returns:
            The family.
        """
        return self

    def complete(self) -> Self:
        """The family of complete rows.

        Returns:
            The family without patterns of missing cells.
        """
        return self

    def completed(self, key: Array, parameters: Values, assignments: Array, x: Array) -> Array:
        """Rows with the cells drawn that the family of complete rows cannot miss.

        Args:
            key: a JAX key.
            parameters: values of the sites, leading shape (num_components,).
            assignments: component of each row, shape (num_observations,).
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_features).
        """
        return x

    @property
    def is_rounded(self) -> bool:
        """Whether cells were recorded in steps."""
        return self.rounding is not None

    @property
    def density_passes(self) -> int:
        """How often the density of a row passes over its cells."""
        return 1

    def exact(self) -> Self:
        """The family of rows whose cells are exact.

        Returns:
            The family without steps of recorded cells.
        """
        return self.replaced(rounding=None) if self.is_rounded else self

    def cell_given_others(
        self, parameters: Values, assignments: Array, x: Array, column: Array | int
    ) -> dist.Normal:
        """A cell of each row given the others and the component, in a family that takes steps of cells.

        Args:
            parameters: values of the sites.
            assignments: component of each row, shape (num_observations,).
            x: rows of exact cells, shape (num_observations, num_features).
            column: of the cell.

        Returns:
            Its distribution, batch shape (num_observations,).
        """
        raise NotImplementedError

    def expected_sums(
        self, by_row: Array, features: Features | IncompleteFeatures, coefficients: Array
    ) -> Array:
        """Weighted sums of features, those of missing cells at their expectation.

        Args:
            by_row: weights, shape (K, num_observations).
            features: of the rows, a result of `features`.
            coefficients: of the log density, shape (K, num_statistics).

        Returns:
            Shape (K, num_statistics).
        """
        return by_row @ features

    def level_starts(self, num_features: int) -> np.ndarray:
        """The number of the first level of each column.

        Args:
            num_features: number of columns of the data.

        Returns:
            Shape (num_features,), -1 where cells are no levels, as by default.
        """
        return np.full(num_features, -1)

    def with_column_names(self, names: Sequence[str]) -> Self:
        """The prior with columns that were given by name as numbers; itself by default.

        Args:
            names: of the columns of the data.

        Returns:
            The prior.
        """
        return self

    def labels_of(
        self, names: Sequence[Any] | None, levels: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        """Labels of the dims that this family adds to those of the model.

        Args:
            names: of the columns of the data, or None.
            levels: of columns, by name; components have their own.

        Returns:
            Dim to labels; none by default.
        """
        return {}

    # Defined by each family

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        raise NotImplementedError

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """The support of each field of a posterior, which makes it a guide with free parameters."""
        return dict.fromkeys(self.posterior_dims, dist.constraints.positive)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if data cannot come from this family.

        Args:
            x: numeric, shape (num_observations, num_features); NaN where a cell is missing.

        Raises:
            ValueError: a cell outside the family's domain, or a missing one where the family cannot leave it
                out.
        """
        raise NotImplementedError

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The distributions of a component's parameters, in order.

        One that depends on parameters before it is left out as long as ``values`` lacks them.

        Args:
            values: parameters drawn so far, leading shape (num_components,).

        Returns:
            Distribution of each parameter by the name of its site, batch shape () or (num_components,).
        """
        raise NotImplementedError

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,).

        Args:
            parameters: values of the sites of `conditionals`, leading shape (num_components,).

        Returns:
            Distribution with batch shape (num_components,) and event shape (num_features,).
        """
        raise NotImplementedError

    def features(self, x: RowOrRows) -> Features:
        """Sufficient statistics of rows, the first of which is one; call it on the prior.

        Args:
            x: rows, shape (num_observations, num_features), or a row, shape (num_features,).

        Returns:
            Shape (num_observations, num_statistics), or (num_statistics,); the first column is one.
        """
        raise NotImplementedError

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`.

        Args:
            statistics: shape (num_components, num_statistics), or of one component (num_statistics,); the
                first column is the number of rows.

        Returns:
            The same class with a leading axis over components. A component without rows gets the prior.
        """
        raise NotImplementedError

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`; call it on the prior.

        Args:
            posterior: of the same family, a result of `posterior`.

        Returns:
            Shape (num_components, num_statistics).
        """
        raise NotImplementedError

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values.

        Args:
            parameters: values of the sites of `conditionals`, leading shape (num_components,).

        Returns:
            Shape (num_components, num_statistics).
        """
        raise NotImplementedError

    def typical_cells(self, parameters: Values) -> tuple[TypicalCells, ...]:
        """Typical cells of each component: means with deviations, or probabilities of levels.

        Args:
            parameters: of the components, shapes as in `parameter_dims`.

        Returns:
            One entry a quantity, values of shape (num_components, num_columns).
        """
        columns = np.arange(self.num_features)
        for name, dims in self.parameter_dims.items():
            if dims[-1].partition("_")[0] == "level":  # cells that are names have probabilities and no mean
                probs = jnp.asarray(parameters[name])
                known = getattr(self, "levels", None)
                levels = range(probs.shape[-1]) if known is None else known
                return tuple(
                    TypicalCells(f"probability of {level}", columns, probs[..., place], None)
                    for place, level in enumerate(levels)
                )
        row = self.likelihood(parameters)
        return (TypicalCells("mean", columns, row.mean, jnp.sqrt(row.variance)),)

    def cells_given(self, parameters: Values, x: Array) -> tuple[TypicalCells, ...]:
        """Typical cells of rows under each component, given the cells of them that were observed.

        Args:
            parameters: of the components, shapes as in `parameter_dims`.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            As `typical_cells`, values of shape (num_observations, num_components, num_columns), or with one
                row for all where cells are independent given the component.
        """
        return tuple(
            part._replace(values=part.values[None], spread=None if part.spread is None else part.spread[None])
            for part in self.typical_cells(parameters)
        )

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the rows of each component with its parameters integrated out.

        Args:
            statistics: sums of `features` over the rows of each component, shape (num_components,
                num_statistics), or of one (num_statistics,).

        Returns:
            Shape (num_components,), or a scalar, in nats.
        """
        raise NotImplementedError

    def log_evidence_beside(self, posterior: Self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """`log_evidence` where the posterior given these statistics is known already.

        Args:
            posterior: ``self.posterior(statistics)``.
            statistics: sums of `features`, shape (num_components, num_statistics).

        Returns:
            Shape (num_components,), in nats.
        """
        return self.log_evidence(statistics)

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        r"""The parameters that the rows of each component make most likely, within a guard.

        Each maximises :math:`\sum_i r_{ik} \log p(x_i \mid \theta_k)` over the parameters that the guard
        allows: variances (eigenvalues of covariances, in the metric where each column of the data has
        variance one) of at least ``variance_floor``, probabilities at least ``PROBABILITY_FLOOR`` from 0 and
        1, rates of at least ``PROBABILITY_FLOOR`` times that of all rows. The guarded maximiser is the exact
        constrained one, so that the likelihood never falls. Without a guard that of variances has no maximum:
        a component on a single row sends it to infinity. Of the prior only known values are used (a
        covariance, a mean, a shape).

        Args:
            statistics: weighted sums of `features`, shape (num_components, num_statistics).
            variance_floor: smallest variance, relative to that of all rows.

        Returns:
            The parameters, and how many components the guard holds.
        """
        raise NotImplementedError

    # What a precision can hold

    def count_sizes(self, x: Any) -> np.ndarray | None:
        """The largest count, or number of trials, of each column.

        Args:
            x: rows, shape (num_observations, num_features), or sparse counts.

        Returns:
            Shape (num_features,), 0 in columns without counts; None where the family has no counts.
        """
        return largest_in_columns(x) if self.has_counts else None

    @property
    def has_location(self) -> bool:
        """Whether cells may be counted from any origin."""
        return self.unit_of_cells is not None and self.unit_of_cells.is_location

    def centred(self, x: Any) -> Self:
        """The family with moments summed about the columns' means where ``center`` is far from them.

        Args:
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            The family; itself where ``center`` is near, or there is no location.
        """
        if not self.has_location or x.shape[1:] != np.shape(
            self.center
        ):  # what does not suit is refused later
            return self
        with np.errstate(all="ignore"):
            means, deviations = column_moments(x)
            least = np.maximum(deviations, np.finfo(np.float64).eps * np.abs(means))
            is_far = np.isfinite(means) & (np.abs(self.center - means) > FAR_CENTER * least)
        return self.replaced(center=np.where(is_far, means, self.center)) if is_far.any() else self

    def check_concentrations(self, dtype: str) -> None:
        """Raise ValueError if a concentration of the prior is too large for the precision.

        Args:
            dtype: the precision of the computation.
        """
        for name in facts_of(self, "is_concentration"):
            if not self.is_random(name):
                check_single_concentration(name, getattr(self, name), dtype)

    def check_offset(self, x: Any, dtype: str, weight: np.ndarray | None = None) -> None:
        """Raise ValueError if the prior's location is so far from the rows that their spread is lost.

        Args:
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.
            dtype: the precision of the computation.
            weight: of the rows, shape (num_observations,); None: one.
        """

    def lost_share(self, parameters: Mapping[str, np.ndarray], dtype: str) -> np.ndarray:
        """The share of its variance that rounding makes uncertain, by component and column.

        Squares are summed about ``center``: of a component whose mean lies m of its deviations from it, the
        sums of squares are m^2 times the variance, and so is their rounding.

        Args:
            parameters: values of the sites, leading shape (..., num_components,).
            dtype: the precision of the computation.

        Returns:
            Shape (..., num_components, num_features), or of zeros (1, 1) where there is no location.
        """
        if not self.has_location or not {"locs", "precisions"} <= set(parameters):
            return np.zeros((1, 1))
        locs, precisions = parameters["locs"], np.asarray(parameters["precisions"], np.float64)
        if precisions.ndim == locs.ndim + 1:
            precisions = np.diagonal(precisions, axis1=-2, axis2=-1)
        elif precisions.ndim < locs.ndim:
            precisions = precisions[..., None]
        return unit_roundoff(dtype) * (locs - self.center) ** 2 * precisions

    def units_of_hyperparameters(self) -> dict[str, Unit]:
        """Hyperparameters to how their values, or those of their priors, follow the data.

        Returns:
            Name to unit; of a scale matrix that has a prior, which is that of its inverse, the inverse's.
        """
        sites = self.hyperprior_sites()
        return {
            name: unit._replace(power=-unit.power) if _is_inverse(sites.get(name, "")) else unit
            for name, unit in self.units_of_fields.items()
        }

    def expressed(self, turn: Callable[[Any, Unit], Any]) -> Self:
        """The same family of rows in other coordinates.

        Args:
            turn: what becomes of a field with a unit; see `zoo.model.Model.expressed`.

        Returns:
            The family.
        """
        units = {n: u for n, u in self.units_of_hyperparameters().items() if getattr(self, n) is not None}
        return self.replaced(**{name: turn(getattr(self, name), unit) for name, unit in units.items()})

    def num_free_parameters(self, num_components: int) -> int:
        """Numbers that `maximum_likelihood` estimates.

        Args:
            num_components: K.

        Returns:
            Their number; by default one for each component and column.
        """
        return num_components * self.num_features

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest.

        Args:
            posterior: of all components, a result of `posterior`.
            given: the prior as the model has it: hyperpriors, and the scale that brackets refer to.
            learn: hyperparameters to move, among `learnable`.

        Returns:
            The prior.
        """
        raise NotImplementedError

    # Derived

    def sample(self, num_components: int) -> dict[str, Array]:
        """The prior (or posterior) of the parameters of all components as NumPyro statements.

        What follows from them for the reader, `deterministics`, is named too.

        Args:
            num_components: K.

        Returns:
            Value of each site, leading shape (num_components,).
        """
        values: dict[str, Array] = {}
        with numpyro.plate("components", num_components):
            while len(drawn := self.conditionals(values)) > len(values):
                name = list(drawn)[len(values)]
                values[name] = numpyro.sample(name, drawn[name])
        return self.named(values)

    def named(self, parameters: dict[str, Array]) -> dict[str, Array]:
        """The parameters, their `deterministics` as NumPyro statements.

        Args:
            parameters: values of the sites of `conditionals`.

        Returns:
            The same, leading shapes (num_components,).
        """
        for name, value in self.deterministics(parameters).items():
            numpyro.deterministic(name, value)
        return parameters

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """Quantities derived from the parameters, for the reader; the sampler does not need them.

        Args:
            parameters: values of the sites of `conditionals`.

        Returns:
            Arrays by name, leading shape (num_components,); none by default.
        """
        return {}

    def likelihood_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``.

        Args:
            parameters: values of the sites of `conditionals`, leading shape (num_components,).
            assignments: the component of each row, shape (num_observations,).

        Returns:
            Distribution with the batch shape of ``assignments`` and event shape (num_features,).
        """
        return self.likelihood({name: value[assignments] for name, value in parameters.items()})

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the component's parameters integrated out.

        Returns:
            Distribution with batch shape (num_components,), or () of a prior, and event shape
                (num_features,).
        """
        return ConjugatePredictive(self)

    def variables(self) -> dict[str, Array]:
        """The fields in which a posterior differs from its prior, named as in `posterior_dims`.

        Returns:
            Arrays by name, leading shape (num_components,).
        """
        return {name: getattr(self, name) for name in self.posterior_dims}

    def with_variables(self, values: Values) -> Self:
        """The posterior from its `variables`; call it on the prior.

        Args:
            values: the result of `variables`.

        Returns:
            The posterior.
        """
        return self.replaced(**{name: jnp.asarray(values[name]) for name in self.posterior_dims})

    def statistics(self, x: Rows, assignments: Assignments, num_components: int) -> Statistics:
        """Sums of `features` over the rows of each component.

        Args:
            x: rows, shape (num_observations, num_features).
            assignments: the component of each row, shape (num_observations,).
            num_components: K.

        Returns:
            Shape (num_components, num_statistics).
        """
        if self.is_incomplete:
            return jax.nn.one_hot(assignments, num_components, axis=0) @ self.features(x)
        return jax.ops.segment_sum(self.features(x), assignments, num_segments=num_components)

    def log_predictive(self, x: Rows) -> RowsByComponent:
        """Log `predictive` density of rows under every component of a posterior.

        Args:
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_components), in nats.
        """
        return self.predictive().log_prob(x[:, None])

    # Hyperpriors

    def hyperprior_sites(self) -> dict[str, str]:
        """Hyperparameters that have a prior, with the site of each.

        Returns:
            Name of the hyperparameter to name of its site.
        """
        return {
            name: "prior_inverse_scale_matrix" if name == "scale_matrix" else f"prior_{name}"
            for name in names_of(self).leaves
            if self.is_random(name)
        }

    def owner_of(self, name: str) -> "tuple[ComponentPrior, str]":
        """The family that a hyperparameter belongs to, and the field that it is there.

        Args:
            name: of the hyperparameter, as `hyperprior_sites` and `field_dims` call it.

        Returns:
            The family itself, or that of a group of its columns, and the field's name.
        """
        return self, name

    def hyperparameter(self, name: str) -> Any:
        """The value or the prior of a hyperparameter.

        Args:
            name: as of `owner_of`.

        Returns:
            An array, a number, or a NumPyro distribution.
        """
        owner, field = self.owner_of(name)
        return getattr(owner, field)

    def with_hyperparameter_values(self, values: Mapping[str, Any]) -> Self:
        """The family with other values of hyperparameters.

        Args:
            values: by name, as of `owner_of`.

        Returns:
            The family.
        """
        return self.replaced(**values)

    def sample_hyperparameters(self) -> Self:
        """The hyperpriors as NumPyro statements.

        Returns:
            The family with the numbers drawn.
        """
        sites = self.hyperprior_sites().items()
        return self.with_hyperparameters(
            {site: numpyro.sample(site, _in_own_units(*self._prior_of(name))) for name, site in sites}
        )

    def _prior_of(self, name: str) -> tuple[dist.Distribution, bool]:
        """The prior of a hyperparameter, and whether that has a unit, of cells or of a power of them."""
        owner, field = self.owner_of(name)
        return getattr(owner, field), field in owner.units_of_fields

    def with_hyperparameters(self, values: Values) -> Self:
        """The family with numbers in place of its hyperpriors, for whatever hyperprior sites it has.

        Args:
            values: values of the sites, of which those of `hyperprior_sites` are read.

        Returns:
            The family with numbers; itself if it has no such site.
        """
        numbers = {
            name: jnp.linalg.inv(values[site]) if _is_inverse(site) else values[site]
            for name, site in self.hyperprior_sites().items()
        }
        return self.with_hyperparameter_values(numbers) if numbers else self

    def is_random(self, name: str) -> bool:
        """Whether a hyperparameter has a prior.

        Args:
            name: of a field.

        Returns:
            True if the field holds a distribution.
        """
        return isinstance(getattr(self, name), dist.Distribution)


def place_of(prior: ComponentPrior) -> Any:
    """The prior location, or its mean: about it moments are summed where no center is given."""
    return prior.loc.mean if prior.is_random("loc") else prior.loc


def _is_inverse(site: str) -> bool:
    """Whether a site holds the inverse of the hyperparameter."""
    return site.startswith("prior_inverse_scale_matrix")


def _in_own_units(prior: dist.Distribution, has_unit: bool) -> dist.Distribution:
    """A hyperprior with its coordinates in its own standard deviations or means, where it has a unit."""
    if isinstance(prior, dist.Normal):
        return InUnits(prior, jnp.asarray(prior.scale), jnp.asarray(prior.loc))
    if isinstance(prior, dist.Gamma) and has_unit:
        return InUnits(prior, jnp.asarray(prior.mean))
    if isinstance(prior, dist.MultivariateNormal):
        return InUnits(prior, jnp.sqrt(prior.variance), prior.mean)
    if isinstance(prior, dist.Wishart):
        return InUnits(prior, jnp.sqrt(jnp.diagonal(prior.mean, axis1=-2, axis2=-1)))
    return prior  # numbers without a unit


class ConjugatePredictive(dist.Distribution):
    """The predictive density of a row under any conjugate family: the evidence of that one row.

    Args:
        components: a prior, or a posterior with a leading axis over components (the batch shape).
    """

    support = dist.constraints.real_vector

    def __init__(self, components: ComponentPrior) -> None:
        self.components = components
        row = jnp.zeros(components.num_features)
        batch_shape = jax.eval_shape(lambda: components.log_evidence(components.features(row))).shape
        super().__init__(batch_shape, (components.num_features,))

    def log_prob(self, value: Array) -> Array:
        """Log density in nats; missing cells are integrated out where the family can."""
        return self.components.log_evidence(self.components.features(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of rows, each from parameters drawn first."""

        def one(key: Array) -> Array:
            values: dict[str, Array] = {}
            while len(drawn := self.components.conditionals(values)) > len(values):
                name = list(drawn)[len(values)]
                key, site_key = jax.random.split(key)
                values[name] = drawn[name].sample(site_key)
            return self.components.likelihood(values).sample(key)

        count = int(np.prod(sample_shape))
        rows = jax.vmap(one)(jax.random.split(key, count))
        return rows.reshape(*sample_shape, *rows.shape[1:])


def bounded_estimate(site: str, value: Array, lowest: Array | float, highest: Array | float) -> Estimate:
    """The estimate of a site, clipped to bounds.

    Args:
        site: its name.
        value: estimate without bounds, shape (num_components, num_features).
        lowest: lower bound, broadcast to ``value``.
        highest: upper bound, likewise.

    Returns:
        The estimate, and how many components a bound holds.
    """
    outside = (value < lowest) | (value > highest)
    return Estimate({site: jnp.clip(value, lowest, highest)}, jnp.sum(jnp.any(outside, axis=-1)))


def at_least_one(count: Array) -> Array:
    """A count that is safe to divide by: an empty component has sums of zero.

    Args:
        count: number of rows, any shape.

    Returns:
        The shape of ``count``, one where it is zero.
    """
    return jnp.where(count > 0, count, np.ones(()))


def floored_shares(counts: Array) -> Array:
    """Shares of counts in their total, each at least ``PROBABILITY_FLOOR`` over their number.

    Args:
        counts: shape (..., num_categories); without any count all shares are equal.

    Returns:
        Shares, the shape of ``counts``.
    """
    size = counts.shape[-1]
    total = jnp.sum(counts, axis=-1, keepdims=True)
    own = jnp.where(total > 0, counts / at_least_one(total), 1.0 / size)
    low = own < PROBABILITY_FLOOR / size  # what never occurs keeps a little of the mass
    free = jnp.sum(jnp.where(low, 0.0, own), axis=-1, keepdims=True)
    held = jnp.sum(low, axis=-1, keepdims=True) * PROBABILITY_FLOOR / size
    return jnp.where(low, PROBABILITY_FLOOR / size, own * (1 - held) / free)


def num_columns(value: Any) -> int:
    """The number of entries of a field along columns.

    Args:
        value: numbers, or their prior.

    Returns:
        Their number, 0 for a single number.
    """
    shape = value.batch_shape if isinstance(value, dist.Distribution) else np.shape(value)
    return int(shape[-1]) if shape else 0


def broadcast_fields(fields: dict[str, Any], names: tuple[str, ...], num_features: int) -> dict[str, Any]:
    """Numbers, and Gamma or normal priors, given once for all columns, repeated for each.

    Args:
        fields: values by name.
        names: the fields that have a number for each column.
        num_features: D.

    Returns:
        The same fields, those of ``names`` with shape (num_features,).
    """

    def spread(name: str, value: Any) -> Any:
        for kind, parts in ((dist.Gamma, ("concentration", "rate")), (dist.Normal, ("loc", "scale"))):
            if isinstance(value, kind):
                own = (np.asarray(getattr(value, part), np.float64) for part in parts)
                return kind(*(np.broadcast_to(part, num_features) for part in own))
        value = as_hyperparameter(name, value)
        if value is None or isinstance(value, dist.Distribution):
            return value
        return np.broadcast_to(value, num_features).copy() if value.ndim == 0 else value

    return {name: spread(name, value) if name in names else value for name, value in fields.items()}


BRACKETS = {  # degrees_of_freedom: above num_features - 1; scale_matrix: eigenvalues relative to the start
    "concentration": (1e-3, 1e4),
    "mean_precision": (1e-6, 1e4),
    "degrees_of_freedom": (1e-3, 1e4),
    "scale_matrix": (1e-6, 1e6),
    "concentration1": (1e-3, 1e4),
    "concentration0": (1e-3, 1e4),
    "shape": (1e-3, 1e4),
}
BISECTIONS = 48  # of the logarithm: to 1e-13 relative


def root(falling: Callable, low: Array, high: Array) -> Array:
    """The zero of a falling function of a positive number, or the end of the bracket nearest to it.

    Args:
        falling: elementwise function of an array of the shape of ``low``.
        low: lower end of the bracket, positive.
        high: upper end, the shape of ``low``.

    Returns:
        The shape of ``low``.
    """

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = bracket
        middle = 0.5 * (below + above)
        is_left = falling(jnp.exp(middle)) > 0
        return jnp.where(is_left, middle, below), jnp.where(is_left, above, middle)

    below, above = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.log(low), jnp.log(high)))
    return jnp.exp(0.5 * (below + above))


def bracket(name: str, like: Array) -> tuple[Array, Array]:
    """Both ends of a hyperparameter's bracket.

    Args:
        name: of the hyperparameter.
        like: array whose shape the ends get.

    Returns:
        Two arrays of the shape of ``like``.
    """
    low, high = BRACKETS[name]
    return jnp.full_like(like, low), jnp.full_like(like, high)


def learnt_gamma(prior: Any, learn: tuple[str, ...], mean: Array, log_mean: Array) -> dict[str, Array]:
    """The gamma distributions of highest expected log density, by shape, rate or both.

    Args:
        prior: a family with the fields ``shape`` and ``rate``.
        learn: names of the fields to move; others than these two do not matter.
        mean: the average expectation of the variables, the shape of the fields.
        log_mean: that of their logarithms, likewise.

    Returns:
        The fields that were moved, by name.
    """
    found: dict[str, Array] = {}
    shape = jnp.asarray(prior.shape)
    if "shape" in learn:
        if "rate" in learn:
            target = jnp.log(mean) - log_mean
            shape = root(lambda a: jnp.log(a) - digamma(a) - target, *bracket("shape", target))
        else:
            target = jnp.log(jnp.asarray(prior.rate)) + log_mean
            shape = root(lambda a: target - digamma(a), *bracket("shape", target))
        found["shape"] = shape
    if "rate" in learn:
        found["rate"] = shape / mean
    return found


def learnt_mean_precision(given: "ComponentPrior", number: Array | int, squares: Array) -> Array:
    r"""The best number of rows that a prior location is worth, or its mode under a gamma prior.

    Args:
        given: the family as the model has it, whose ``mean_precision`` may have a prior.
        number: of terms :math:`\tfrac12 \log \beta_0` in the bound.
        squares: the expectation of what :math:`-\tfrac12 \beta_0` multiplies there, the shape of the field.

    Returns:
        The shape of ``squares``, within the bracket.
    """
    shape, rate = 1.0, 0.0
    if given.is_random("mean_precision"):
        shape, rate = given.mean_precision.concentration, given.mean_precision.rate
    best = (0.5 * number + shape - 1.0) / (0.5 * squares + rate)
    return jnp.clip(best, *BRACKETS["mean_precision"])


def safe_log(values: Array) -> Array:
    """Logs of probabilities or rates, of which some may have rounded to zero.

    Args:
        values: at least zero, any shape.

    Returns:
        The shape of ``values``, finite.
    """
    return jnp.log(jnp.maximum(values, jnp.finfo(values.dtype).tiny))


def log_dirichlet_normaliser(concentration: Array) -> Array:
    """Log of the integral of a Dirichlet's unnormalised density.

    Args:
        concentration: shape (..., num_categories).

    Returns:
        Shape (...), in nats.
    """
    return jnp.sum(gammaln(concentration), axis=-1) - gammaln(jnp.sum(concentration, axis=-1))


def expected_log_probs(concentration: Array) -> Array:
    """E[log p] of Dirichlets.

    Args:
        concentration: shape (..., num_categories).

    Returns:
        The shape of ``concentration``, in nats.
    """
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=-1, keepdims=True))


def best_dirichlet(average: Array) -> Array:
    """The Dirichlet with given expectations of the logarithms.

    A search for the total s with sum of psi^-1(psi(s) + average) equal to s.

    Args:
        average: E[log p], shape (..., num_categories).

    Returns:
        The concentration, the shape of ``average``.
    """
    total = average[..., 0]
    low, high = BRACKETS["concentration"]
    size = average.shape[-1]

    def parts(total: Array) -> Array:
        target = digamma(total)[..., None] + average
        return root(lambda value: target - digamma(value), *bracket("concentration", target))

    def excess(total: Array) -> Array:
        return jnp.sum(parts(total), axis=-1) - total

    return parts(root(excess, jnp.full_like(total, low * size), jnp.full_like(total, high)))


def relative_eigenvalues(matrix: Array, reference: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of a matrix in coordinates where the reference is the identity.

    Args:
        matrix: symmetric, shape (D, D).
        reference: positive definite, shape (D, D).

    Returns:
        Eigenvalues, shape (D,), and vectors in the given coordinates, shape (D, D).
    """
    factor = jnp.linalg.cholesky(reference)
    half = jax.scipy.linalg.solve_triangular(factor, matrix, lower=True)
    whitened = jax.scipy.linalg.solve_triangular(factor, half.T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (whitened + whitened.T))
    return values, factor @ vectors


def within_scale(matrix: Array, reference: Array) -> Array:
    """The matrix, with eigenvalues relative to the reference brought into the bracket of scale matrices.

    Args:
        matrix: symmetric, shape (D, D).
        reference: positive definite, shape (D, D).

    Returns:
        Shape (D, D).
    """
    low, high = BRACKETS["scale_matrix"]
    values, vectors = relative_eigenvalues(matrix, reference)
    clipped = (vectors * jnp.clip(values, low, high)) @ vectors.T
    inside = (values[0] >= low) & (values[-1] <= high)
    return jnp.where(inside, 0.5 * (matrix + matrix.T), 0.5 * (clipped + clipped.T))
