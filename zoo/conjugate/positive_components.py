r"""Components of positive cells: gamma with known shape, and its special case, the exponential.

Reference: Yu (2006), Table 2.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln

from zoo.conjugate.cellwise import GammaRates, column_means
from zoo.conjugate.component_prior import (PROBABILITY_FLOOR, Estimate, bounded_estimate, broadcast_fields)
from zoo.checks import check_cells

__all__ = ["ExponentialGamma", "GammaKnownShape"]


@dataclass(frozen=True, eq=False)
class ExponentialGamma(GammaRates):
    r"""Positive cells: :math:`x_j \sim \mathrm{Exponential}(\lambda_{kj})`, the rates gamma.

    Attributes:
        shape: :math:`a_j > 0`, shape (num_features,), the number of cells that the prior is worth.
        rate: :math:`b_j > 0`, shape (num_features,), their sum, in the units of the column.
    """

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """A prior worth one cell with the mean of the column, unless fields are given.

        Args:
            x: positive numbers and NaN, shape (num_observations, num_features).
            **overrides: fields to set instead, a number or one per column.

        Returns:
            The prior.

        Raises:
            ValueError: a column whose mean is not positive, and no rate.
        """
        x, means = column_means(x)
        if "rate" not in overrides and not np.all(means > 0):
            raise ValueError(f"column {int(np.argmin(means))} of x has mean {means.min():g}; give rate")
        fields = {"shape": 1.0} | ({} if "rate" in overrides else {"rate": means}) | overrides
        return cls(**broadcast_fields(fields, cls.column_fields, len(means)))

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, x >= 0, "numbers of at least 0 (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The rates."""
        count, total = self._sums(statistics)
        events = self._events(count)
        overall = jnp.sum(events, axis=0) / jnp.sum(total, axis=0)
        own = jnp.where(total > 0, events / jnp.where(total > 0, total, 1.0), overall)
        return bounded_estimate("rates", own, PROBABILITY_FLOOR * overall, overall / PROBABILITY_FLOOR)

    def _events(self, count: Array) -> Array:
        """The shape of the likelihood of so many cells together."""
        return count

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        return dist.Exponential(parameters["rates"])

    def _updated(self, count: Array, total: Array) -> dict[str, Array]:
        return {"shape": self.shape + self._events(count), "rate": self.rate + total}

    def _expected_natural(self) -> tuple[Array, ...]:
        return digamma(self.shape) - jnp.log(self.rate), -self.shape / self.rate

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        rates = parameters["rates"]
        return jnp.log(jnp.maximum(rates, jnp.finfo(rates.dtype).tiny)), -rates


@dataclass(frozen=True, eq=False)
class GammaKnownShape(ExponentialGamma):
    r"""Positive cells: :math:`x_j \sim \mathrm{Gamma}(s_j, \lambda_{kj})` of known shape, the rates gamma.

    Attributes:
        shape: :math:`a_j > 0`, of the prior of the rate, shape (num_features,).
        rate: :math:`b_j > 0`, of the prior of the rate, shape (num_features,), in the units of the column.
        known_shape: :math:`s_j > 0`, of the likelihood, shape (num_features,); 1 is the exponential.
    """

    known_shape: Array

    field_dims = ExponentialGamma.field_dims | {"known_shape": ("feature",)}
    column_fields = ("shape", "rate", "known_shape")
    has_base_measure = True

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The rate is such that a cell has the mean of its column; ``known_shape`` must be given.

        Raises:
            ValueError: ``known_shape`` is not given.
        """
        if "known_shape" not in overrides:
            raise ValueError("GammaKnownShape needs known_shape=, a number or one per column")
        if "rate" not in overrides:
            means = column_means(x)[1]
            overrides = overrides | {"rate": means / np.asarray(overrides["known_shape"], np.float64)}
        return super().from_data(x, **overrides)

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, x > 0, "positive numbers (or NaN where a cell is missing)")

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        return dist.Gamma(jnp.asarray(self.known_shape), parameters["rates"])

    def _log_base_measure(self, x: Array) -> Array:
        s = jnp.asarray(self.known_shape)
        return (s - 1) * jnp.log(x) - gammaln(s)

    def _events(self, count: Array) -> Array:
        return self.known_shape * count

    def _expected_natural(self) -> tuple[Array, ...]:
        log_rate, minus_rate = super()._expected_natural()
        return self.known_shape * log_rate, minus_rate

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        log_rate, minus_rate = super()._natural(parameters)
        return self.known_shape * log_rate, minus_rate
