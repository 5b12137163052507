r"""Components of mixed tables: groups of columns with a family each, independent given the component.

A column may be fitted by its logarithm, :math:`\log x_j` in place of :math:`x_j`. The density is that of the
cells all the same, with the Jacobian :math:`1 / x_j` of every such cell that is observed; `GaussianWishart`
then has correlations between logarithms and between them and other columns, and `NormalGamma` is log-normal.

The names of a group's sites end in its number: ``locs_0``, ``probs_1``, ...; so do those of hyperpriors,
``prior_mean_precision_0``. A hyperparameter to learn is called as the fit's constants call it,
``families_0_mean_precision``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.answers import TypicalCells
from zoo.checks import as_matrix, check_cells, check_columns, column_labels, copy_labels, shown, take_columns
from zoo.conjugate.component_prior import ComponentPrior, Estimate
from zoo.conjugate.missing_cells import IncompleteFeatures, OrMissing
from zoo.coordinates import Unit
from zoo.fields import static
from zoo.shapes import (
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

FIELD = "families_{number}_{name}"


class _ProductRow(dist.Distribution):
    """A row whose groups of columns are independent, with one distribution each.

    Args:
        groups: one distribution per group, over its columns.
        columns: the columns of each group.
        logs: columns whose logarithms the groups have.
    """

    support = dist.constraints.independent(OrMissing(dist.constraints.real), 1)
    pytree_data_fields = ("groups",)
    pytree_aux_fields = ("columns", "logs")

    def __init__(
        self,
        groups: tuple[dist.Distribution, ...],
        columns: tuple[tuple[int, ...], ...],
        logs: tuple[int, ...] = (),
    ) -> None:
        self.groups, self.columns, self.logs = groups, columns, logs
        num_features = sum(map(len, columns))
        batch_shape = jnp.broadcast_shapes(*[group.batch_shape for group in groups])
        super().__init__(batch_shape, (num_features,))

    def log_prob(self, value: Array) -> Array:
        """Log density in nats."""
        turned, pairs = in_logs(value, self.logs), zip(self.groups, self.columns, strict=True)
        parts = [group.log_prob(turned[..., np.asarray(columns)]) for group, columns in pairs]
        return sum(parts) + log_jacobian(turned, self.logs)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Rows with their columns in order."""
        keys = jax.random.split(key, len(self.groups))
        shape = (*sample_shape, *self.batch_shape)
        parts = []
        for group, columns, own in zip(self.groups, self.columns, keys, strict=True):
            drawn = group.expand(self.batch_shape).sample(own, sample_shape)
            parts.append(jnp.broadcast_to(drawn, (*shape, len(columns))))
        order = np.argsort(np.concatenate(self.columns))
        rows = jnp.concatenate([part.astype(float) for part in parts], axis=-1)[..., order]
        return jnp.where(_are_logs(rows, self.logs), jnp.exp(rows), rows)


def in_logs(x: Any, logs: Sequence[int]) -> Any:
    """Rows with the logarithms of some columns in their place.

    Args:
        x: shape (..., num_features), of NumPy or of JAX, NaN where a cell is missing.
        logs: the columns.

    Returns:
        The same shape.
    """
    if not logs:
        return x
    numbers = jnp if isinstance(x, Array) else np
    are_logs = _are_logs(x, logs)
    return numbers.where(are_logs, numbers.log(numbers.where(are_logs, x, 1.0)), x)  # no NaN in gradients


def log_jacobian(turned: Array, logs: Sequence[int]) -> Array:
    """By how much the log density of rows is larger than that of what `in_logs` makes of them.

    Args:
        turned: result of `in_logs`, shape (..., num_features).
        logs: the columns.

    Returns:
        Shape (...), in nats.
    """
    return -jnp.sum(jnp.nan_to_num(turned[..., np.asarray(logs, int)]), axis=-1)


def _are_logs(x: Any, logs: Sequence[int]) -> np.ndarray:
    return np.isin(np.arange(x.shape[-1]), logs)


@dataclass(frozen=True, eq=False)
class Product(ComponentPrior):
    """Groups of columns, each with its own family, independent given the component.

    Attributes:
        families: one component prior per group, over its columns; one that is not filled, such as
            ``NormalGamma()``, has its fields read off the data.
        columns: the numbers or names of each group's columns; together every column once. Names are those of
            the DataFrame that is fitted.
        logs: the numbers or names of the columns whose logarithms the families have; their cells are
            positive, and their families Gaussian with a variance for each column.

    Example:
        >>> import numpy as np
        >>> from zoo.conjugate import BernoulliBeta, GaussianWishart, Product
        >>> x = np.column_stack([np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2])
        >>> columns = ((0, 1), (2,))
        >>> prior = Product.from_data(x, families=(GaussianWishart, BernoulliBeta), columns=columns)
        >>> prior.num_features
        3
    """

    families: tuple[ComponentPrior, ...]
    columns: tuple[tuple[int, ...], ...] = static()
    logs: tuple[int, ...] = static(())
    is_grouped = True

    @property
    def by_columns(self) -> Sequence[tuple[ComponentPrior, Sequence[int]]]:
        """The families with their columns."""
        return list(zip(self.families, self.columns, strict=True))

    @property
    def is_filled(self) -> bool:
        """Whether the columns are numbers and the families have all their fields."""
        return not self._named_columns and all(family.is_filled for family in self.families)

    @property
    def _named_columns(self) -> tuple[str, ...]:
        named: tuple[tuple[int | str, ...], ...] = (*self.columns, self.logs)
        return tuple(column for group in named for column in group if isinstance(column, str))

    @classmethod
    def from_data(
        cls,
        x: Any,
        *,
        families: tuple[ComponentPrior | type[ComponentPrior], ...],
        columns: tuple[tuple[int, ...], ...],
        logs: tuple[int, ...] = (),
        sample_weight: np.ndarray | None = None,
    ) -> Self:
        """Each group's default prior for its columns.

        Args:
            x: data, shape (num_observations, num_features).
            families: per group a class of `zoo.conjugate`, or a prior, filled or not.
            columns: column numbers, or names if ``x`` is a DataFrame, per group.
            logs: the columns whose logarithms the families have, likewise.
            sample_weight: weight of each row, shape (num_observations,); None: one.

        Returns:
            The prior.

        Raises:
            ValueError: the default prior of a group refuses its columns, or a cell that has no logarithm.
        """
        *numbers, of_logs = _as_numbers((*columns, logs), getattr(x, "columns", None))
        x = as_matrix(x)
        _check_positive(x, of_logs)
        made = []
        for family, group in zip(families, numbers, strict=True):
            fill = family.from_data if isinstance(family, type) else family.filled
            made.append(fill(_turned_columns(x, group, of_logs), sample_weight=sample_weight))
        return cls(families=tuple(made), columns=tuple(numbers), logs=of_logs)

    def with_column_names(self, names: Sequence[str]) -> Self:
        """The prior with columns that were given by name as numbers.

        Args:
            names: of the columns of the data.

        Returns:
            The prior.

        Raises:
            ValueError: a name that no column has.
        """
        if not self._named_columns:
            return self
        *columns, logs = _as_numbers((*self.columns, self.logs), names)
        return self.replaced(columns=tuple(columns), logs=logs)

    @property
    def takes_missing(self) -> bool:
        """Whether cells may be missing: where all groups can do without them."""
        return all(family.takes_missing for family in self.families)

    @property
    def is_incomplete(self) -> bool:
        """Whether a group integrates missing cells out by their patterns."""
        return any(family.is_incomplete for family in self.families)

    def with_patterns(self, x: Any) -> Self:
        """Each group knows which of its cells are missing."""
        return self._by_group(lambda family, group: family.with_patterns(np.asarray(x)[:, group]))

    def complete(self) -> Self:
        """Groups of complete rows."""
        return self._by_group(lambda family, group: family.complete())

    def completed(self, key: Array, parameters: Values, assignments: Array, x: Array) -> Array:
        """Rows with the cells drawn that a group of complete rows cannot miss."""
        keys, turned = jax.random.split(key, len(self.families)), in_logs(x, self.logs)
        for number, (family, group) in enumerate(zip(self.families, self.columns, strict=True)):
            at, own = np.asarray(group), self._own(parameters, number)
            turned = turned.at[:, at].set(family.completed(keys[number], own, assignments, turned[:, at]))
        drawn = jnp.where(_are_logs(x, self.logs), jnp.exp(turned), turned)
        return jnp.where(jnp.isnan(x), drawn, x)

    def expected_sums(
        self, by_row: Array, features: Features | IncompleteFeatures, coefficients: Array
    ) -> Array:
        """Those of the groups, the number of rows once and in front."""
        if not isinstance(features, _GroupedFeatures):
            return by_row @ features
        own = self._split(coefficients, first_only=True)
        of_families = zip(self.families, features.groups, own, strict=False)  # the log Jacobian is of none
        parts = [family.expected_sums(by_row, group, mine) for family, group, mine in of_families]
        parts += [by_row @ group for group in features.groups[len(parts) :]]
        return _side_by_side(parts)

    def level_starts(self, num_features: int) -> np.ndarray:
        """Those of the groups, shape (num_features,)."""
        found = np.full(num_features, -1)
        for family, group in zip(self.families, self.columns, strict=True):
            inside = [column for column in group if isinstance(column, int) and column < num_features]
            found[inside] = family.level_starts(len(inside))
        return found

    def labels_of(
        self, names: Sequence[Any] | None, levels: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        """Names of the groups' columns and levels, by the dims of the groups."""
        found: dict[str, Sequence[Any]] = {}
        for number, (family, group) in enumerate(zip(self.families, self.columns, strict=True)):
            own = None if names is None else tuple(names[column] for column in group)
            labels = ({} if own is None else {"feature": own}) | family.labels_of(own, levels)
            found |= {f"{dim}_{number}": value for dim, value in labels.items()}
            if own is not None:
                found[f"feature_{number}_2"] = own
        return found

    def validate(self) -> None:
        """Raise ValueError if groups and families do not match, or a column is in no group or in two."""
        if len(self.families) != len(self.columns) or not self.families:
            raise ValueError(
                f"families and columns must have one entry per group; got {len(self.families)} and "
                f"{len(self.columns)}"
            )
        listed = sorted(column for group in self.columns for column in group)
        if listed != list(range(len(listed))):
            raise ValueError(
                f"columns must name each column 0 to {len(listed) - 1} exactly once; got "
                f"{shown(self.columns)}"
            )
        for number, (family, group) in enumerate(zip(self.families, self.columns, strict=True)):
            if family.is_grouped or family.couples_components:
                raise ValueError(f"family {number} cannot be a {type(family).__name__}")
            if family.is_rounded:
                raise ValueError(
                    f"family {number} has rounding, and cells of a Product are taken for exact: leave it out"
                )
            if family.num_features != len(group):
                raise ValueError(
                    f"family {number} has {family.num_features} columns, but its group names {len(group)}"
                )
            own = [column for column in group if column in self.logs]
            if own and not _takes_logs(family):
                raise ValueError(
                    f"logs names column {own[0]}, of a {type(family).__name__}: logarithms are for Gaussian "
                    "families with a variance for each column, such as GaussianWishart or NormalGamma"
                )
        if len({*self.logs} & {*listed}) < len(self.logs):
            raise ValueError(f"logs must name columns, each at most once; got {shown(self.logs)}")

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return sum(map(len, self.columns))

    @property
    def parameter_dims(self) -> dict[str, tuple[str, ...]]:
        """Site names with the group's number; each group has a separate feature dim."""
        return self._numbered(lambda number, family: _renamed(family.parameter_dims, number))

    @property
    def posterior_dims(self) -> dict[str, tuple[str, ...]]:
        """Fields of the groups' posteriors, named ``families_0_loc`` and so on."""
        return self._numbered(lambda number, family: _renamed(family.posterior_dims, number), FIELD)

    @property
    def field_dims(self) -> dict[str, tuple[str, ...]]:
        """Fields of the groups' priors, named ``families_0_loc`` and so on."""
        return self._numbered(lambda number, family: _renamed(family.field_dims, number), FIELD)

    def _numbered(self, values_of: Callable, form: str = "{name}_{number}") -> dict[str, Any]:
        """``values_of(number, family)`` of all groups, the names with the group's number."""
        return {
            form.format(name=name, number=number): value
            for number, family in enumerate(self.families)
            for name, value in values_of(number, family).items()
        }

    @property
    def learnable(self) -> tuple[str, ...]:
        """Hyperparameters of the groups that can be learnt, named ``families_0_loc`` and so on."""
        return tuple(self._numbered(lambda number, family: dict.fromkeys(family.learnable), FIELD))

    def owner_of(self, name: str) -> tuple[ComponentPrior, str]:
        """The family of a group, and the field there, of a hyperparameter such as ``families_0_loc``."""
        number, field = _group_and_field(name)
        return self.families[number], field

    def with_hyperparameter_values(self, values: Mapping[str, Any]) -> Self:
        """The prior with other values of hyperparameters, named as by `owner_of`."""
        own: list[dict[str, Any]] = [{} for _ in self.families]
        for name, value in values.items():
            number, field = _group_and_field(name)
            own[number][field] = value
        pairs = zip(self.families, own, strict=True)
        return self.replaced(families=tuple(f.replaced(**fields) if fields else f for f, fields in pairs))

    def hyperprior_sites(self) -> dict[str, str]:
        """Hyperparameters of the groups that have a prior, to the site of each, ``prior_loc_0`` and so on."""
        return {
            FIELD.format(number=number, name=name): f"{site}_{number}"
            for number, family in enumerate(self.families)
            for name, site in family.hyperprior_sites().items()
        }

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest, by group."""
        wanted: list[list[str]] = [[] for _ in self.families]
        for name in set(learn) & set(self.learnable):
            number, field = _group_and_field(name)
            wanted[number].append(field)
        groups = zip(self.families, posterior.families, given.families, wanted, strict=True)
        moved = (f.learnt(q, own, tuple(fields)) if fields else f for f, q, own, fields in groups)
        return self.replaced(families=tuple(moved))

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """The support of each field of the groups' posteriors."""
        return self._numbered(lambda number, family: family.field_supports, FIELD)

    def variables(self) -> dict[str, Array]:
        """The fields in which a posterior differs from its prior, named as in `posterior_dims`."""
        return self._numbered(lambda number, family: family.variables(), FIELD)

    def with_variables(self, values: Values) -> Self:
        """The posterior from its `variables`."""
        groups = tuple(
            family.with_variables({name: values[f"families_{n}_{name}"] for name in family.posterior_dims})
            for n, family in enumerate(self.families)
        )
        return self.replaced(families=groups)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if a group's columns cannot come from its family."""
        check_columns(x, self.num_features)
        _check_positive(x, self.logs)
        self._check_groups(x, lambda family, own: family.check(own))

    def count_sizes(self, x: Any) -> np.ndarray | None:
        """Those of the groups, zero in columns of a family without counts."""
        whole = np.zeros(self.num_features)
        for family, group in zip(self.families, self.columns, strict=True):
            own = family.count_sizes(x[:, list(group)])
            whole[list(group)] = 0.0 if own is None else own
        return whole

    @property
    def unit_of_cells(self) -> Unit | None:
        """That of the cells of all columns; those of a family without units, or without location, stay."""
        units = [
            family.unit_of_cells._replace(is_location=family.has_location and not {*group} <= {*self.logs})
            for family, group in zip(self.families, self.columns, strict=True)
            if family.unit_of_cells is not None
        ]
        return max(units, key=lambda unit: unit.is_location, default=None)

    @property
    def units_of_parameters(self) -> dict[str, Unit]:
        """Those of the groups, of their columns."""
        return self._numbered(lambda number, family: self._of_columns(number, family.units_of_parameters))

    @property
    def units_of_fields(self) -> dict[str, Unit]:
        """Those of the groups, of their columns."""
        return self._numbered(lambda number, family: self._of_columns(number, family.units_of_fields), FIELD)

    def units_of_hyperparameters(self) -> dict[str, Unit]:
        """Those of the groups, of their columns."""

        def own(number: int, family: ComponentPrior) -> dict[str, Unit]:
            return self._of_columns(number, family.units_of_hyperparameters())

        return self._numbered(own, FIELD)

    def _of_columns(self, number: int, units: Mapping[str, Unit]) -> dict[str, Unit]:
        return {name: self._of_group(unit, self.columns[number]) for name, unit in units.items()}

    def _of_group(self, unit: Unit, columns: Sequence[Any]) -> Unit:
        return unit._replace(columns=tuple(columns), logs=tuple(c for c in columns if c in self.logs))

    def expressed(self, turn: Callable[[Any, Unit], Any]) -> Self:
        """Each group in the coordinates of its columns."""
        return self._by_group(
            lambda family, group: family.expressed(
                lambda value, unit: turn(value, self._of_group(unit, group))
            )
        )

    def centred(self, x: Any) -> Self:
        """Each group about the means of its columns, where its center is far from them."""
        turned = in_logs(x, self.logs)
        return self._by_group(lambda family, group: family.centred(turned[:, group]))

    def check_concentrations(self, dtype: str) -> None:
        """Raise ValueError if a concentration of a group is too large for the precision."""
        for family in self.families:
            family.check_concentrations(dtype)

    def check_offset(self, x: np.ndarray, dtype: str, weight: np.ndarray | None = None) -> None:
        """Raise ValueError if a group's prior location is too far from its columns."""
        self._check_groups(x, lambda family, own: family.check_offset(own, dtype, weight))

    def _check_groups(self, x: np.ndarray, check: Callable) -> None:
        """Call ``check(family, its columns)`` of all groups; what it raises names the group."""
        for number, (family, group) in enumerate(zip(self.families, self.columns, strict=True)):
            try:
                check(family, _turned_columns(x, group, self.logs))
            except ValueError as error:
                raise ValueError(
                    f"columns {column_labels(x, group)} (group {number}, {type(family).__name__}): {error}"
                ) from None

    def lost_share(self, parameters: Mapping[str, np.ndarray], dtype: str) -> np.ndarray:
        """Those of the groups, zero in columns of a family without location."""
        parts = [f.lost_share(self._own(parameters, n), dtype) for n, f in enumerate(self.families)]
        shape = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
        whole = np.zeros((*shape, self.num_features))
        for part, group in zip(parts, self.columns, strict=True):
            whole[..., list(group)] = part
        return whole

    def _by_group(self, function: Callable) -> Self:
        pairs = zip(self.families, self.columns, strict=True)
        found = tuple(function(family, list(group)) for family, group in pairs)
        is_same = all(old is new for old, new in zip(self.families, found, strict=True))
        return self if is_same else self.replaced(families=found)

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The distributions of the groups, one after another."""
        return self._numbered(lambda number, family: family.conditionals(self._own(values, number)))

    def typical_cells(self, parameters: Values) -> tuple[TypicalCells, ...]:
        """Those of the groups, with the columns in the whole table; medians of those fitted by logarithms."""
        return self._in_table(f.typical_cells(self._own(parameters, n)) for n, f in enumerate(self.families))

    def cells_given(self, parameters: Values, x: Array) -> tuple[TypicalCells, ...]:
        """Those of the groups, with the columns in the whole table; medians of those fitted by logarithms."""
        turned, pairs = in_logs(x, self.logs), enumerate(zip(self.families, self.columns, strict=True))
        return self._in_table(
            family.cells_given(self._own(parameters, number), turned[:, np.asarray(group)])
            for number, (family, group) in pairs
        )

    def _in_table(self, found: Iterable[Sequence[TypicalCells]]) -> tuple[TypicalCells, ...]:
        """What each group has, with the columns in the whole table; logarithms apart from other numbers."""
        parts = []
        for own, group in zip(found, self.columns, strict=True):
            for part in own:
                columns = np.asarray(group)[part.columns]
                are_logs = np.isin(columns, self.logs)
                for of_logs in np.unique(are_logs):
                    at = np.flatnonzero(are_logs == of_logs)
                    parts.append(
                        TypicalCells(
                            "median" if of_logs else part.quantity,
                            columns[at],
                            part.values[..., at],
                            None if part.spread is None else part.spread[..., at],
                            bool(of_logs),
                        )
                    )
        return tuple(parts)

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """Those of the groups."""
        return self._numbered(lambda number, family: family.deterministics(self._own(parameters, number)))

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        groups = [f.likelihood(self._own(parameters, n)) for n, f in enumerate(self.families)]
        return _ProductRow(tuple(groups), self.columns, self.logs)

    def likelihood_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``."""
        groups = [f.likelihood_of(self._own(parameters, n), assignments) for n, f in enumerate(self.families)]
        return _ProductRow(tuple(groups), self.columns, self.logs)

    def features(self, x: RowOrRows) -> Features:
        """A column of ones, each group's features without their first column of ones, the log Jacobian."""
        turned, pairs = in_logs(x, self.logs), zip(self.families, self.columns, strict=True)
        parts: list[Any] = [family.features(turned[..., np.asarray(group)]) for family, group in pairs]
        widths = self._widths()
        if self.logs:
            jacobian = log_jacobian(jnp.asarray(turned), self.logs)
            parts, widths = [*parts, jnp.stack([jnp.ones_like(jacobian), jacobian], axis=-1)], (*widths, 1)
        if any(isinstance(part, IncompleteFeatures) for part in parts):
            return _GroupedFeatures(tuple(parts), widths)
        return _side_by_side(parts)

    def log_predictive(self, x: Rows) -> RowsByComponent:
        """Log `predictive` density of rows under every component, in nats."""
        if not self.is_incomplete:
            return super().log_predictive(x)
        turned, pairs = in_logs(x, self.logs), zip(self.families, self.columns, strict=True)
        parts = [family.log_predictive(turned[:, np.asarray(group)]) for family, group in pairs]
        return sum(parts) + log_jacobian(turned, self.logs)[:, None]

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each group of each component, given weighted sums of `features`."""
        pairs = zip(self.families, self._split(statistics), strict=True)
        return self.replaced(families=tuple(family.posterior(part) for family, part in pairs))

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        pairs = zip(self.families, posterior.families, strict=True)
        return self._joined([family.expected_coefficients(own) for family, own in pairs])

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return self._joined([f.coefficients(self._own(parameters, n)) for n, f in enumerate(self.families)])

    def _joined(self, parts: list[Array]) -> Array:
        """Coefficients of all groups, the constants added up, and one of the log Jacobian."""
        constant = sum(part[..., :1] for part in parts)
        jacobian = [jnp.ones_like(constant)] if self.logs else []
        return jnp.concatenate([constant] + [part[..., 1:] for part in parts] + jacobian, axis=-1)

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the rows of each component with all parameters integrated out, in nats."""
        parts = self._split(statistics)
        whole = sum(f.log_evidence(part) for f, part in zip(self.families, parts, strict=True))
        return whole + statistics[..., -1] if self.logs else whole

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """Those of the groups."""
        parameters, at_floor = dict[str, Any](), jnp.zeros((), int)
        for number, (family, own) in enumerate(zip(self.families, self._split(statistics), strict=True)):
            estimate = family.maximum_likelihood(own, variance_floor)
            parameters |= {f"{name}_{number}": value for name, value in estimate.parameters.items()}
            at_floor = jnp.maximum(at_floor, estimate.at_floor)
        return Estimate(parameters, at_floor)

    def num_free_parameters(self, num_components: int) -> int:
        """Those of the groups."""
        return sum(family.num_free_parameters(num_components) for family in self.families)

    def _own(self, values: Values, number: int) -> dict[str, Array]:
        """A group's values under the names that its family uses."""
        ending = f"_{number}"
        names = self.families[number].parameter_dims
        return {name: values[name + ending] for name in names if name + ending in values}

    def _widths(self) -> tuple[int, ...]:
        """The number of statistics of each group, without the number of rows."""
        return tuple(
            jax.eval_shape(family.complete().features, jnp.zeros(family.num_features)).shape[-1] - 1
            for family in self.families
        )

    def _split(self, statistics: Array, first_only: bool = False) -> list[Array]:
        """Each group's statistics, with the number of rows (or in the first group only) in front."""
        return _parts(statistics, self._widths(), first_only)


class _GroupedFeatures(NamedTuple):
    """The features of groups, some of which miss cells, as a factor of matrix products.

    Attributes:
        groups: the features of each group, each with a first column of ones.
        widths: the number of statistics of each group without it.
    """

    groups: tuple[Any, ...]
    widths: tuple[int, ...]

    def __matmul__(self, by_statistic: Array) -> Array:
        """Sums of the groups' log densities: (num_statistics, K) gives (num_observations, K)."""
        parts = _parts(by_statistic.T, self.widths, first_only=True)
        return sum(own @ part.T for own, part in zip(self.groups, parts, strict=True))

    def __rmatmul__(self, by_row: Array) -> Array:
        """Sums with missing cells at the center: (K, num_observations) gives (K, num_statistics)."""
        return _side_by_side([by_row @ own for own in self.groups])

    def __getitem__(self, chosen: Any) -> Array:
        """The features of some rows."""
        return _side_by_side([own[chosen] for own in self.groups])


def _side_by_side(parts: Sequence[Array]) -> Array:
    """Features of groups, the number of rows once and in front."""
    return jnp.concatenate([parts[0][..., :1]] + [part[..., 1:] for part in parts], axis=-1)


def _parts(statistics: Array, widths: tuple[int, ...], first_only: bool) -> list[Array]:
    """Each group's statistics with the first one in front, of the groups after the first zero if asked."""
    parts, start = [], 1
    for number, width in enumerate(widths):
        ahead = statistics[..., :1]
        ahead = jnp.zeros_like(ahead) if first_only and number else ahead
        parts.append(jnp.concatenate([ahead, statistics[..., start : start + width]], axis=-1))
        start += width
    return parts


def _group_and_field(name: str) -> tuple[int, str]:
    """The number of a group and the field there: (0, "loc") of ``families_0_loc``."""
    _, number, field = name.split("_", 2)
    return int(number), field


def _as_numbers(columns: Sequence[Sequence[int | str]], names: Any) -> tuple[tuple[int, ...], ...]:
    """The numbers of the columns of each group, of which some may be given by name."""
    known = None if names is None else list(map(str, names))

    def number(column: int | str) -> int:
        if not isinstance(column, str):
            return int(column)
        if known is None:
            raise ValueError(
                f"columns names {column!r}, but the data have no names of columns: give a DataFrame"
            )
        if column not in known:
            raise ValueError(f"columns names {column!r}, which is no column: there are {', '.join(known)}")
        return known.index(column)

    return tuple(tuple(map(number, group)) for group in columns)


def _renamed(dims_of: Mapping[str, tuple[str, ...]], number: int) -> dict[str, tuple[str, ...]]:
    """Dims by name, with the group's number in those of features."""
    new = {"feature": f"feature_{number}", "feature_2": f"feature_{number}_2", "level": f"level_{number}"}
    return {name: tuple(new.get(dim, dim) for dim in dims) for name, dims in dims_of.items()}


def _takes_logs(family: ComponentPrior) -> bool:
    """Whether a column may have a unit of its own, that of a logarithm, beside others of the family."""
    return family.has_location and all(unit.axes for unit in family.units_of_parameters.values())


def _check_positive(x: np.ndarray, logs: Sequence[int]) -> None:
    """Raise ValueError if a cell whose logarithm is wanted has none."""
    own = take_columns(x, logs)
    check_cells(own, own > 0, "positive numbers (or NaN where a cell is missing) in columns with logarithms")


def _turned_columns(x: np.ndarray, group: Sequence[int], logs: Sequence[int]) -> np.ndarray:
    """The columns of a group as its family has them, whose messages name them as those of the table."""
    own = take_columns(x, group)
    turned = in_logs(own, [place for place, column in enumerate(group) if column in logs])
    copy_labels(turned, own)
    return turned
