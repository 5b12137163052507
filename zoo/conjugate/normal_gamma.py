r"""Gaussian components without correlations: a variance per column, or one for all columns.

With one column each equals the Gaussian-Wishart with ``scale_matrix = 1 / (2 rate)`` and
``degrees_of_freedom = 2 shape``. Missing cells (NaN) are integrated out exactly.

Reference: Yu (2006), Table 2.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln

from zoo.checks import check_not_constant, check_rows, observed_moments
from zoo.conjugate.cellwise import Cellwise, ObservedCells, column_means
from zoo.conjugate.component_prior import (
    Estimate,
    at_least_one,
    learnt_gamma,
    learnt_mean_precision,
    place_of,
)
from zoo.conjugate.rounded import RoundedCells, recorded_steps
from zoo.coordinates import Unit
from zoo.fields import numbers, positive
from zoo.shapes import Rows, Scalar, Statistics, Values

LOG_2PI = float(np.log(2 * np.pi))
PLACE = Unit(1, (-1,), is_location=True)


@dataclass(frozen=True, eq=False)
class NormalGamma(Cellwise):
    r"""Gaussian components with diagonal covariance.

    .. math::
        \tau_{kj} \sim \mathrm{Gamma}(a_j, b_j), \quad
        \mu_{kj} \mid \tau_{kj} \sim \mathrm{Normal}(m_j, (\beta_j \tau_{kj})^{-1}), \quad
        x_j \sim \mathrm{Normal}(\mu_{kj}, \tau_{kj}^{-1}).

    Attributes:
        loc: :math:`m_j`, shape (num_features,); or a ``Normal``.
        mean_precision: :math:`\beta_j > 0`, shape (num_features,), the number of cells that the prior mean
            is worth; or a ``Gamma``.
        shape: :math:`a_j > 0`, shape (num_features,), half the cells that the prior variance is worth.
        rate: :math:`b_j > 0`, shape (num_features,), half their sum of squares; or a ``Gamma``.
        center: the point about which moments are summed, shape (num_features,); by default ``loc`` or its
            prior mean.
        rounding: steps in which cells were recorded, shape (num_features,), 0 for exact ones, in the units
            of the data: each cell stands for an interval (`zoo.conjugate.rounded`). None: cells are exact.
    """

    loc: Array | dist.Distribution | None = numbers(None, ("feature",), unit=PLACE, prior=(dist.Normal,))
    mean_precision: Array | dist.Distribution | None = positive(None, ("feature",), prior=(dist.Gamma,))
    shape: Array | None = positive(None, ("feature",))
    rate: Array | dist.Distribution | None = positive(
        None, ("feature",), unit=Unit(2, (-1,)), prior=(dist.Gamma,)
    )
    center: Array | None = numbers(None, ("feature",), unit=PLACE, otherwise=place_of)
    rounding: Array | None = recorded_steps()

    posterior_dims = dict.fromkeys(("loc", "mean_precision", "shape", "rate"), ("component", "feature"))
    parameter_dims = {"precisions": ("component", "feature"), "locs": ("component", "feature")}
    learnable = ("loc", "mean_precision", "shape", "rate")
    unit_of_cells: ClassVar[Unit] = PLACE
    units_of_parameters: ClassVar[Mapping[str, Unit]] = {"precisions": Unit(-2, (-1,)), "locs": PLACE}
    has_base_measure = True
    is_spherical: ClassVar[bool] = False

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """The support of each field of a posterior, which makes it a guide with free parameters."""
        return super().field_supports | {"loc": dist.constraints.real}

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """The default of `GaussianWishart`, column by column.

        Centred at the column means, a hundredth of a cell strong, and such that
        E[mean_precision * precision] = 1 / variance.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields to set instead, a number or one per column; the rate follows
                ``mean_precision`` and ``shape``.

        Returns:
            The prior.

        Raises:
            ValueError: constant or wholly missing columns.
        """
        x, weight, means = column_means(x, sample_weight)
        check_rows(x, 2, "a mixture of one row has nothing to cluster")
        check_not_constant(x)
        fields: dict[str, Any] = {
            "loc": means,
            "mean_precision": 0.01,
            "shape": 0.5,
            "center": means,
        } | overrides
        if "rate" not in fields:
            worth = fields["mean_precision"]
            worth = worth.mean if isinstance(worth, dist.Distribution) else worth
            strength = np.asarray(worth, np.float64) * np.asarray(fields["shape"])
            variances = observed_moments(x, weight, ddof=1)[1]
            fields["rate"] = strength * (variances.mean() if cls.is_spherical else variances)
        return cls(**cls.spread(fields, len(means)))

    def _check_domain(self, x: np.ndarray) -> None:
        """Any number is in the domain."""

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The precisions, then the means given ``values["precisions"]``."""
        precisions = dist.Gamma(jnp.asarray(self.shape), jnp.asarray(self.rate))
        drawn = {"precisions": precisions if self.is_spherical else precisions.to_event(1)}
        if "precisions" in values:
            scale = 1.0 / jnp.sqrt(self.mean_precision * self._by_column(values["precisions"]))
            drawn["locs"] = dist.Normal(jnp.asarray(self.loc), scale).to_event(1)
        return drawn

    def _by_column(self, precision: Array) -> Array:
        """A precision, or a number of each, broadcast against columns."""
        return precision[..., None] if self.is_spherical else precision

    def _by_precision(self, columns: Array) -> Array:
        """The sums of a number of each column over the columns that share a precision."""
        return jnp.sum(columns, axis=-1) if self.is_spherical else columns

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Normal(parameters["locs"], self._by_column(1.0 / jnp.sqrt(parameters["precisions"])))

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        cells = self._cell(parameters)
        return ObservedCells(RoundedCells(cells, self.rounding) if self.is_rounded else cells)

    def cell_given_others(
        self, parameters: Values, assignments: Array, x: Rows, column: Array | int
    ) -> dist.Normal:
        """A cell of each row given the component, see `ComponentPrior.cell_given_others`."""
        cell = self._cell(parameters)
        return dist.Normal(cell.loc[assignments, column], cell.scale[assignments, column])

    def _cell_statistics(self, x: Array) -> tuple[Array, ...]:
        y = x - self.center
        return y, y**2

    def _log_base_measure(self, x: Array) -> Array:
        return jnp.full_like(x, -0.5 * LOG_2PI)

    def _location(self, count: Array, first: Array, second: Array) -> tuple[Array, Array, Array]:
        """Mean precision and location of the posterior, and the sum of squares that its rate grows by."""
        move = self.loc - self.center
        about = first - count * move  # the sums about the prior location
        squares = second - 2 * move * first + count * move**2
        mean_precision = self.mean_precision + count
        shift = about / mean_precision
        return mean_precision, self.loc + shift, squares - about * shift

    def _updated(self, count: Array, first: Array, second: Array) -> dict[str, Array]:
        mean_precision, loc, squares = self._location(count, first, second)
        return {
            "mean_precision": mean_precision,
            "loc": loc,
            "shape": self.shape + 0.5 * self._by_precision(count),
            "rate": self.rate + 0.5 * self._by_precision(squares),
        }

    def _cell_moments(self, statistics: Array) -> tuple[Array, Array, Array, Array]:
        """Count, mean and sum of squares of cells by component, and the variances of all rows."""

        def moments(sums: list[Array]) -> tuple[Array, Array, Array]:
            count, first, second = sums
            shift = first / at_least_one(count)
            return count, shift, second - first * shift

        count, shift, squares = moments(self._sums(statistics))
        total, _, total_squares = moments(self._sums(jnp.sum(statistics, axis=0)))
        return count, self.center + shift, squares, total_squares / total

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The precisions and means."""
        count, locs, squares, variances = self._cell_moments(statistics)
        at_least = variance_floor * (jnp.mean(variances) if self.is_spherical else variances)
        cells = self._by_precision(count)
        own = self._by_precision(squares) / at_least_one(cells)
        held = (own < at_least) & (cells > 0)
        at_floor = jnp.sum(held if self.is_spherical else jnp.any(held, axis=-1))
        return Estimate({"precisions": 1.0 / jnp.maximum(own, at_least), "locs": locs}, at_floor)

    def num_free_parameters(self, num_components: int) -> int:
        """A mean and a variance for each component and column."""
        return 2 * num_components * self.num_features

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        q, num_components = posterior, posterior.loc.shape[0]
        precision = q.shape / q.rate
        by_column = jnp.broadcast_to(self._by_column(precision), q.loc.shape)
        fields: dict[str, Array] = {}
        loc = self.loc
        if "loc" in learn:
            shift = jnp.sum(by_column * (q.loc - self.center), axis=0) / jnp.sum(by_column, axis=0)
            loc = fields["loc"] = self.center + shift
        if "mean_precision" in learn:
            squares = jnp.sum(1 / q.mean_precision + by_column * (q.loc - loc) ** 2, axis=0)
            fields["mean_precision"] = learnt_mean_precision(given, num_components, squares)
        log_precision = jnp.mean(digamma(q.shape) - jnp.log(q.rate), axis=0)
        return self.replaced(
            **fields, **learnt_gamma(self, learn, jnp.mean(precision, axis=0), log_precision)
        )

    def _log_normaliser(self) -> Array:
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        return jnp.sum(gammaln(a) - a * jnp.log(b) - 0.5 * jnp.log(self.mean_precision), axis=-1)

    def _expected_natural(self) -> tuple[Array, ...]:
        log_precision = self._by_column(digamma(self.shape) - jnp.log(self.rate))
        precision = self._by_column(self.shape / self.rate)
        return self._expanded(log_precision - 1 / self.mean_precision, precision, self.loc)

    def _natural(self, parameters: Values) -> tuple[Array, ...]:
        precisions = self._by_column(parameters["precisions"])
        return self._expanded(jnp.log(precisions), precisions, parameters["locs"])

    def _expanded(self, twice_constant: Array, precision: Array, loc: Array) -> tuple[Array, ...]:
        """Expand ``(twice_constant - precision (x - loc)^2) / 2`` in 1, y, y^2 with y = x - center."""
        shift = loc - self.center
        parts = 0.5 * (twice_constant - precision * shift**2), precision * shift, -0.5 * precision
        return tuple(jnp.broadcast_to(part, loc.shape) for part in parts)


@dataclass(frozen=True, eq=False)
class SphericalNormalGamma(NormalGamma):
    r"""Gaussian components with one precision for all columns.

    .. math::
        \tau_k \sim \mathrm{Gamma}(a, b), \quad
        \mu_{kj} \mid \tau_k \sim \mathrm{Normal}(m_j, (\beta_j \tau_k)^{-1}), \quad
        x_j \sim \mathrm{Normal}(\mu_{kj}, \tau_k^{-1}).

    Attributes:
        loc: :math:`m_j`, shape (num_features,); or a ``Normal``.
        mean_precision: :math:`\beta_j > 0`, shape (num_features,); or a ``Gamma``.
        shape: :math:`a > 0`, one number.
        rate: :math:`b > 0`, one number; or a ``Gamma``.
        center: the point about which moments are summed, shape (num_features,); by default ``loc`` or its
            prior mean.
        rounding: steps in which cells were recorded, shape (num_features,), as of `NormalGamma`.
    """

    shape: Array | None = positive()
    rate: Array | dist.Distribution | None = positive(unit=Unit(2), prior=(dist.Gamma,))

    posterior_dims = NormalGamma.posterior_dims | {"shape": ("component",), "rate": ("component",)}
    parameter_dims = {"precisions": ("component",), "locs": ("component", "feature")}
    units_of_parameters = {**NormalGamma.units_of_parameters, "precisions": Unit(-2)}
    is_spherical = True

    def num_free_parameters(self, num_components: int) -> int:
        """A vector and a variance for each component."""
        return num_components * self.num_features + num_components

    def _log_normaliser(self) -> Array:
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        return gammaln(a) - a * jnp.log(b) - 0.5 * jnp.sum(jnp.log(self.mean_precision), axis=-1)
