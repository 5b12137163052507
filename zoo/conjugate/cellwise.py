r"""Components whose columns are independent given the component, one conjugate family per cell.

A cell's density is :math:`p(x \mid \theta) = h(x) \exp\{\sum_s c_s(\theta)\, t_s(x)\}` with a few statistics
:math:`t_s`, the first of them one. Sums of the statistics over the observed cells of a column are all that
the posterior needs, so missing cells (NaN) are simply left out of them: they are integrated out exactly.

Here are the families of binary and binomial cells (beta prior), of counts, and of positive cells that are
exponential or gamma of known shape (gamma prior); `zoo.conjugate.normal_gamma` has the normal ones.

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

from zoo.answers import TypicalCells
from zoo.checks import (
    as_matrix,
    check_cells,
    check_columns,
    check_infinite,
    check_scale,
    check_some_columns,
    column_of,
    rows_with_weight,
    shown,
    without_columns,
)
from zoo.conjugate.component_prior import (
    PROBABILITY_FLOOR,
    ComponentPrior,
    Estimate,
    at_least_one,
    best_dirichlet,
    bounded_estimate,
    bracket,
    broadcast_fields,
    expected_log_probs,
    learnt_gamma,
    num_columns,
    root,
    safe_log,
)
from zoo.conjugate.missing_cells import OrMissing
from zoo.coordinates import Unit
from zoo.fields import facts_of, names_of, positive
from zoo.shapes import Features, OneOrMore, OneOrMoreStatistics, RowOrRows, Scalar, Statistics, Values
from zoo.supports.small_probabilities import Beta


class ObservedCells(dist.Distribution):
    """A row of independent cells; those that are NaN are missing and add nothing to the density.

    Args:
        cell: the distribution of the cells, batch shape (..., num_features).
    """

    pytree_data_fields = ("cell",)

    def __init__(self, cell: dist.Distribution) -> None:
        self.cell = cell
        super().__init__(cell.batch_shape[:-1], cell.batch_shape[-1:])

    @property
    def support(self) -> dist.constraints.Constraint:
        """Support of a row of cells (of counts out of a total any whole number; the total is checked)."""
        own = self.cell.support
        if not isinstance(own, dist.constraints.ParameterFreeConstraint):
            own = dist.constraints.nonnegative_integer
        return dist.constraints.independent(OrMissing(own), 1)

    def log_prob(self, value: Array) -> Array:
        """Sum over the observed cells, in nats."""
        missing = jnp.isnan(value)
        safe = jnp.where(missing, 1.0, value)  # a value that every family has, so that gradients stay finite
        return jnp.sum(jnp.where(missing, 0.0, self.cell.log_prob(safe)), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Whole rows, as floats."""
        return jnp.asarray(self.cell.sample(key, sample_shape), jnp.result_type(float))


@dataclass(frozen=True, eq=False)
class Cellwise(ComponentPrior):
    """The base of families of independent cells; a family defines the density of one cell.

    Its fields have shape (num_features,); a number is repeated for every column where the number of columns
    is known.

    Class attributes:
        has_base_measure: whether h differs from one, so that its logarithm is a feature.
        mean_is: what the mean of a cell is called.
    """

    has_base_measure = False
    takes_missing = True
    mean_is = "mean"

    def __post_init__(self) -> None:
        """Repeat a field given as one number for all columns."""
        given = {name: getattr(self, name) for name in names_of(self).leaves}
        sizes = [num_columns(given[name]) for name in self.by_column()]
        if any(sizes):
            for name, value in self.spread(given, max(sizes)).items():
                object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return num_columns(getattr(self, self.by_column()[0]))

    @classmethod
    def by_column(cls) -> tuple[str, ...]:
        """The fields with one number for each column.

        Returns:
            Names.
        """
        return tuple(name for name, dims in facts_of(cls, "dims").items() if dims)

    @classmethod
    def spread(cls, fields: Mapping[str, Any], num_features: int) -> dict[str, Any]:
        """Fields of which a number for all columns is repeated for each.

        Args:
            fields: values by name.
            num_features: D.

        Returns:
            The same fields.
        """
        return broadcast_fields(dict(fields), cls.by_column(), num_features)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        check_columns(x, self.num_features)
        check_infinite(x)
        self._check_domain(x)

    # Defined by a family for one cell

    def _check_domain(self, x: np.ndarray) -> None:
        raise NotImplementedError

    def _cell_statistics(self, x: Array) -> tuple[Array, ...]:
        """The statistics of observed cells, without the constant one."""
        return (x,)

    def _log_base_measure(self, x: Array) -> Array:
        return jnp.zeros_like(x)

    def _updated(self, *sums: Array) -> dict[str, Array]:
        """The fields of the posterior, from sums of the statistics, shape (..., num_features) each."""
        raise NotImplementedError

    def _log_normaliser(self) -> Array:
        """Log of the integral of the prior's kernel, per component (summed over columns)."""
        raise NotImplementedError

    def _expected_natural(self) -> tuple[Array, ...]:
        """Expectations of the c_s under this posterior, shape (num_components, num_features) each."""
        raise NotImplementedError

    def _natural(self, parameters: Values) -> tuple[Array, ...]:
        """The c_s at given parameters."""
        raise NotImplementedError

    def _cell(self, parameters: Values) -> dist.Distribution:
        """The distribution of a cell."""
        raise NotImplementedError

    # What follows

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return ObservedCells(self._cell(parameters))

    def features(self, x: RowOrRows) -> Features:
        """``[1, observed, statistics of the observed cells, log base measure]``, column by column each."""
        x = jnp.asarray(x)
        missing = jnp.isnan(x)
        safe = jnp.where(missing, 1.0, x)
        parts = [jnp.ones_like(x[..., :1]), (~missing).astype(x.dtype)]
        parts += [jnp.where(missing, 0.0, statistic) for statistic in self._cell_statistics(safe)]
        if self.has_base_measure:
            base = jnp.where(missing, 0.0, self._log_base_measure(safe))
            parts.append(jnp.sum(base, axis=-1, keepdims=True))
        return jnp.concatenate(parts, axis=-1)

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        return self.replaced(**self._updated(*self._sums(statistics)))

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        return self._on_features(posterior._expected_natural())

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return self._on_features(self._natural(parameters))

    def typical_cells(self, parameters: Values) -> tuple[TypicalCells, ...]:
        """Mean and deviation of the cells; see `ComponentPrior.typical_cells`."""
        cell, columns = self._cell(parameters), np.arange(self.num_features)
        return (TypicalCells(self.mean_is, columns, cell.mean, jnp.sqrt(cell.variance)),)

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the observed cells of each component, parameters integrated out, in nats."""
        base = statistics[..., -1] if self.has_base_measure else 0.0
        return self.posterior(statistics)._log_normaliser() - self._log_normaliser() + base

    def _sums(self, statistics: Array) -> list[Array]:
        d = self.num_features
        end = statistics.shape[-1] - int(self.has_base_measure)
        return [statistics[..., start : start + d] for start in range(1, end, d)]

    def _on_features(self, natural: tuple[Array, ...]) -> Array:
        lead = natural[0].shape[:-1]
        parts = [jnp.zeros((*lead, 1)), *natural]
        if self.has_base_measure:
            parts.append(jnp.ones((*lead, 1)))
        return jnp.concatenate(parts, axis=-1)


@dataclass(frozen=True, eq=False)
class _GammaRates(Cellwise):
    """Families of independent cells with a rate for each component and column, under a gamma prior.

    Attributes:
        shape: of the gamma prior, positive, shape (num_features,).
        rate: of the gamma prior, positive, shape (num_features,).
    """

    shape: Array | None = positive(None, ("feature",), is_concentration=True)
    rate: Array | None = positive(None, ("feature",))

    learnable = ("shape", "rate")
    posterior_dims = dict.fromkeys(learnable, ("component", "feature"))
    parameter_dims = {"rates": ("component", "feature")}

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """A prior of shape one, unless one is given, whose rate gives the cells the mean of their column.

        Args:
            x: data that the family can have and NaN, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields to set instead, a number or one per column.

        Returns:
            The prior.

        Raises:
            ValueError: a column whose mean is not positive, and no ``rate`` given.
        """
        x, _, means = column_means(x, sample_weight)
        if "rate" not in overrides and not np.all(means > 0):
            place = int(np.argmin(means))
            raise ValueError(
                f"{column_of(x, place)} of x has mean {means.min():g}: leave it out, "
                f"{without_columns(x, np.flatnonzero(means <= 0))}, or give rate"
            )
        made = cls(**cls.spread({"shape": 1.0, "rate": 1.0} | overrides, len(means)))
        return made if "rate" in overrides else made.replaced(rate=made._rate_for(means))

    def _rate_for(self, means: np.ndarray) -> np.ndarray:
        """The rate with which a prior of this shape gives cells these means of columns."""
        raise NotImplementedError

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The rates."""
        return {"rates": dist.Gamma(jnp.asarray(self.shape), jnp.asarray(self.rate)).to_event(1)}

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        mean = jnp.mean(posterior.shape / posterior.rate, axis=0)
        log_mean = jnp.mean(digamma(posterior.shape) - jnp.log(posterior.rate), axis=0)
        return self.replaced(**learnt_gamma(self, learn, mean, log_mean))

    def _log_normaliser(self) -> Array:
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        return jnp.sum(gammaln(a) - a * jnp.log(b), axis=-1)


def column_means(
    x: Any, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """The rows with weight as a matrix, their weights, and the mean of the observed cells of each column.

    Args:
        x: data, shape (num_observations, num_features), NaN where a cell is missing.
        weight: of each row, shape (num_observations,); None: one.

    Returns:
        Rows as float64, their weights or None, and means of shape (num_features,).

    Raises:
        ValueError: a column without a single observed cell.
    """
    x, weight = rows_with_weight(as_matrix(x), weight)
    check_infinite(x)
    check_scale(x)
    check_some_columns(x)
    worth = np.ones(len(x)) if weight is None else weight
    return x, weight, np.nansum(x * worth[:, None], axis=0) / (worth @ ~np.isnan(x))


OF_PROBABILITIES: dict[str, Any] = {"dims": ("feature",), "prior": (dist.Gamma,), "is_concentration": True}


@dataclass(frozen=True, eq=False)
class BernoulliBeta(Cellwise):
    r"""Binary cells: :math:`x_j \sim \mathrm{Bernoulli}(p_{kj})`, with a beta prior.

    Attributes:
        concentration1: :math:`a_j > 0`, shape (num_features,), ones in prior pseudo-counts; or a ``Gamma``.
        concentration0: :math:`b_j > 0`, shape (num_features,), zeros in prior pseudo-counts; or a ``Gamma``.
    """

    concentration1: Array | dist.Distribution | None = positive(**OF_PROBABILITIES)
    concentration0: Array | dist.Distribution | None = positive(**OF_PROBABILITIES)

    learnable = ("concentration1", "concentration0")
    mean_is = "probability of 1"
    posterior_dims = dict.fromkeys(learnable, ("component", "feature"))
    parameter_dims = {"probs": ("component", "feature")}

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """Uniform on every probability, unless fields are given.

        Args:
            x: zeros, ones and NaN, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields to set instead, a number or one per column.

        Returns:
            The prior.
        """
        x, _, means = column_means(x, sample_weight)
        fields: dict[str, Any] = {"concentration1": 1.0, "concentration0": 1.0} | overrides
        return cls(**cls.spread(fields, len(means)))

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The probabilities."""
        beta = Beta(jnp.asarray(self.concentration1), jnp.asarray(self.concentration0))
        return {"probs": beta.to_event(1)}

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, (x == 0) | (x == 1), "zeros and ones (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The probabilities."""
        count, ones = self._sums(statistics)
        trials = self._trials(count)
        own = jnp.where(trials > 0, ones / at_least_one(trials), 0.5)
        bounded = jnp.clip(own, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)
        return Estimate({"probs": bounded}, jnp.zeros((), int))

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        both = jnp.stack([posterior.concentration1, posterior.concentration0], axis=-1)
        average = jnp.mean(expected_log_probs(both), axis=0)
        if set(learn) >= set(self.learnable):
            best = best_dirichlet(average)
            return self.replaced(concentration1=best[:, 0], concentration0=best[:, 1])
        column = 0 if "concentration1" in learn else 1
        name, other = self.learnable[column], self.learnable[1 - column]
        held, target = jnp.asarray(getattr(self, other)), average[:, column]
        value = root(lambda value: target - digamma(value) + digamma(value + held), *bracket(name, target))
        return self.replaced(**{name: value})

    def _trials(self, count: Array) -> Array:
        """The number of trials in ``count`` cells, or any number of a cell times its trials."""
        return count

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Bernoulli(probs=parameters["probs"])

    def _updated(self, count: Array, ones: Array) -> dict[str, Array]:
        return {
            "concentration1": self.concentration1 + ones,
            "concentration0": self.concentration0 + (self._trials(count) - ones),
        }

    def _log_normaliser(self) -> Array:
        a, b = jnp.asarray(self.concentration1), jnp.asarray(self.concentration0)
        return jnp.sum(gammaln(a) + gammaln(b) - gammaln(a + b), axis=-1)

    def _expected_natural(self) -> tuple[Array, ...]:
        a, b = self.concentration1, self.concentration0
        return self._trials(digamma(b) - digamma(a + b)), digamma(a) - digamma(b)

    def _natural(self, parameters: Values) -> tuple[Array, ...]:
        probs = parameters["probs"]
        log_failure = safe_log(1.0 - probs)
        return self._trials(log_failure), safe_log(probs) - log_failure


def _check_whole(name: str, value: np.ndarray, _: object) -> None:
    if np.any(value != np.round(value)):
        raise ValueError(f"{name} must be whole numbers; got {shown(value)}")


@dataclass(frozen=True, eq=False)
class BinomialBeta(BernoulliBeta):
    r"""Counts out of a known number of trials, :math:`x_j \sim \mathrm{Binomial}(m_j, p_{kj})`, beta prior.

    Attributes:
        concentration1: :math:`a_j > 0`, successes in prior pseudo-counts, shape (num_features,);
            or a ``Gamma``.
        concentration0: :math:`b_j > 0`, failures in prior pseudo-counts, shape (num_features,);
            or a ``Gamma``.
        total_count: :math:`m_j`, trials per cell of a column, shape (num_features,), whole and positive.
    """

    total_count: Array | None = positive(None, ("feature",), also=_check_whole)

    mean_is = "mean count"
    has_base_measure = True
    has_counts = True

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """Uniform on every probability; ``total_count`` must be given.

        Raises:
            ValueError: ``total_count`` is not given.
        """
        if "total_count" not in overrides:
            raise ValueError("BinomialBeta needs total_count=, the number of trials of each column")
        return super().from_data(x, sample_weight=sample_weight, **overrides)

    def _check_domain(self, x: np.ndarray) -> None:
        whole = (x >= 0) & (x == np.round(x)) & (x <= self.total_count)
        check_cells(x, whole, "whole numbers from 0 to total_count (or NaN where a cell is missing)")

    def count_sizes(self, x: np.ndarray) -> np.ndarray:
        """The numbers of trials."""
        return np.asarray(self.total_count)

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Binomial(jnp.asarray(self.total_count).astype(int), probs=parameters["probs"])

    def _log_base_measure(self, x: Array) -> Array:
        m = jnp.asarray(self.total_count)
        return gammaln(m + 1) - gammaln(x + 1) - gammaln(m - x + 1)

    def _trials(self, count: Array) -> Array:
        return self.total_count * count


@dataclass(frozen=True, eq=False)
class PoissonGamma(_GammaRates):
    r"""Counts: :math:`x_j \sim \mathrm{Poisson}(\lambda_{kj})`, with a gamma prior.

    Attributes:
        shape: :math:`a_j > 0`, shape (num_features,), events in prior pseudo-counts.
        rate: :math:`b_j > 0`, shape (num_features,), the number of rows that the prior is worth.
    """

    has_base_measure = True
    has_counts = True
    mean_is = "rate"

    def _rate_for(self, means: np.ndarray) -> np.ndarray:
        return self.shape / means

    def _check_domain(self, x: np.ndarray) -> None:
        whole = (x >= 0) & (x == np.round(x))
        check_cells(x, whole, "counts: whole numbers of at least 0 (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The rates."""
        count, events = self._sums(statistics)
        overall = jnp.sum(events, axis=0) / jnp.sum(count, axis=0)
        own = jnp.where(count > 0, events / at_least_one(count), overall)
        return Estimate({"rates": jnp.maximum(own, PROBABILITY_FLOOR * overall)}, jnp.zeros((), int))

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Poisson(parameters["rates"])

    def _log_base_measure(self, x: Array) -> Array:
        return -gammaln(x + 1)

    def _updated(self, count: Array, events: Array) -> dict[str, Array]:
        return {"shape": self.shape + events, "rate": self.rate + count}

    def _expected_natural(self) -> tuple[Array, ...]:
        return -self.shape / self.rate, digamma(self.shape) - jnp.log(self.rate)

    def _natural(self, parameters: Values) -> tuple[Array, ...]:
        return -parameters["rates"], safe_log(parameters["rates"])


@dataclass(frozen=True, eq=False)
class ExponentialGamma(_GammaRates):
    r"""Positive cells: :math:`x_j \sim \mathrm{Exponential}(\lambda_{kj})`, with a gamma prior.

    Attributes:
        shape: :math:`a_j > 0`, shape (num_features,), the number of cells that the prior is worth.
        rate: :math:`b_j > 0`, shape (num_features,), their sum, in the units of the column.
    """

    unit_of_cells = Unit(1, (-1,))
    units_of_parameters = {"rates": Unit(-1, (-1,))}

    rate: Array | None = positive(None, ("feature",), unit=Unit(1, (-1,)))

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, x >= 0, "numbers of at least 0 (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The rates."""
        count, total = self._sums(statistics)
        events = self._events(count)
        overall = jnp.sum(events, axis=0) / jnp.sum(total, axis=0)
        own = jnp.where(total > 0, events / jnp.where(total > 0, total, 1.0), overall)
        return bounded_estimate("rates", own, PROBABILITY_FLOOR * overall, overall / PROBABILITY_FLOOR)

    def _events(self, count: Array) -> Array:
        """The shape of the joint likelihood of ``count`` cells, or any number of a cell times its shape."""
        return count

    def _rate_for(self, means: np.ndarray) -> np.ndarray:
        return self.shape * means

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Exponential(parameters["rates"])

    def _updated(self, count: Array, total: Array) -> dict[str, Array]:
        return {"shape": self.shape + self._events(count), "rate": self.rate + total}

    def _expected_natural(self) -> tuple[Array, ...]:
        return self._events(digamma(self.shape) - jnp.log(self.rate)), -self.shape / self.rate

    def _natural(self, parameters: Values) -> tuple[Array, ...]:
        return self._events(safe_log(parameters["rates"])), -parameters["rates"]


@dataclass(frozen=True, eq=False)
class GammaKnownShape(ExponentialGamma):
    r"""Positive cells: :math:`x_j \sim \mathrm{Gamma}(s_j, \lambda_{kj})` of known shape, gamma prior.

    Attributes:
        shape: :math:`a_j > 0`, of the prior of the rate, shape (num_features,).
        rate: :math:`b_j > 0`, of the prior of the rate, shape (num_features,), in the units of the column.
        known_shape: :math:`s_j > 0`, of the likelihood, shape (num_features,); 1 is the exponential.
    """

    known_shape: Array | None = positive(None, ("feature",))

    has_base_measure = True

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """The rate is such that a cell has the mean of its column; ``known_shape`` must be given.

        Raises:
            ValueError: ``known_shape`` is not given.
        """
        if "known_shape" not in overrides:
            raise ValueError("GammaKnownShape needs known_shape=, a number or one per column")
        return super().from_data(x, sample_weight=sample_weight, **overrides)

    def _rate_for(self, means: np.ndarray) -> np.ndarray:
        return self.shape * means / self.known_shape

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, x > 0, "positive numbers (or NaN where a cell is missing)")

    def _cell(self, parameters: Values) -> dist.Distribution:
        return dist.Gamma(jnp.asarray(self.known_shape), parameters["rates"])

    def _log_base_measure(self, x: Array) -> Array:
        s = jnp.asarray(self.known_shape)
        return (s - 1) * jnp.log(x) - gammaln(s)

    def _events(self, count: Array) -> Array:
        return self.known_shape * count
