r"""Components of binary, binomial and count cells: Bernoulli-beta, binomial-beta, Poisson-gamma.

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

from zoo.conjugate.best_hyperparameters import (best_dirichlet, bracket, expected_log_probs, root)
from zoo.conjugate.cellwise import Cellwise, GammaRates, column_means
from zoo.conjugate.component_prior import (PROBABILITY_FLOOR, Estimate, at_least_one, bounded_estimate, broadcast_fields)
from zoo.checks import check_cells

__all__ = ["BernoulliBeta", "BinomialBeta", "PoissonGamma"]


@dataclass(frozen=True, eq=False)
class BernoulliBeta(Cellwise):
    r"""Binary cells: :math:`x_j \sim \mathrm{Bernoulli}(p_{kj})`, the probabilities beta.

    Attributes:
        concentration1: :math:`a_j > 0`, shape (num_features,), ones in prior pseudo-counts; or a ``Gamma``.
        concentration0: :math:`b_j > 0`, shape (num_features,), zeros in prior pseudo-counts; or a ``Gamma``.
    """

    concentration1: Array | dist.Distribution
    concentration0: Array | dist.Distribution

    field_dims = {"concentration1": ("feature",), "concentration0": ("feature",)}
    posterior_dims = {"concentration1": ("component", "feature"), "concentration0": ("component", "feature")}
    parameter_dims = {"probs": ("component", "feature")}
    hyperprior_kinds = {"concentration1": (dist.Gamma,), "concentration0": (dist.Gamma,)}
    column_fields = ("concentration1", "concentration0")
    learnable = ("concentration1", "concentration0")

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """Where each field may lie."""
        return {"concentration1": dist.constraints.positive, "concentration0": dist.constraints.positive}

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """Uniform on every probability, unless fields are given.

        Args:
            x: zeros, ones and NaN, shape (num_observations, num_features).
            **overrides: fields to set instead, a number or one per column.

        Returns:
            The prior.
        """
        x, means = column_means(x)
        fields = {"concentration1": 1.0, "concentration0": 1.0} | overrides
        return cls(**broadcast_fields(fields, cls.column_fields, len(means)))

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The probabilities."""
        beta = dist.Beta(jnp.asarray(self.concentration1), jnp.asarray(self.concentration0))
        return {"probs": beta.to_event(1)}

    def _check_domain(self, x: np.ndarray) -> None:
        check_cells(x, (x == 0) | (x == 1), "zeros and ones (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The probabilities."""
        count, ones = self._sums(statistics)
        trials = self._trials(count)
        own = jnp.where(trials > 0, ones / at_least_one(trials), 0.5)
        return bounded_estimate("probs", own, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)

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
        """Trials in so many cells."""
        return count

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
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
        return digamma(b) - digamma(a + b), digamma(a) - digamma(b)

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        log_success, log_failure = _log_probs(parameters["probs"])
        return log_failure, log_success - log_failure


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

    total_count: Array

    field_dims = BernoulliBeta.field_dims | {"total_count": ("feature",)}
    column_fields = ("concentration1", "concentration0", "total_count")
    has_base_measure = True

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """Uniform on every probability; ``total_count`` must be given.

        Raises:
            ValueError: ``total_count`` is not given.
        """
        if "total_count" not in overrides:
            raise ValueError("BinomialBeta needs total_count=, the number of trials of each column")
        return super().from_data(x, **overrides)

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        super().validate()
        if np.any(self.total_count != np.round(self.total_count)):
            raise ValueError(f"total_count must be whole numbers; got {self.total_count}")

    def _check_domain(self, x: np.ndarray) -> None:
        whole = (x >= 0) & (x == np.round(x)) & (x <= self.total_count)
        check_cells(x, whole, "whole numbers from 0 to total_count (or NaN where a cell is missing)")

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        return dist.Binomial(jnp.asarray(self.total_count).astype(int), probs=parameters["probs"])

    def _log_base_measure(self, x: Array) -> Array:
        m = jnp.asarray(self.total_count)
        return gammaln(m + 1) - gammaln(x + 1) - gammaln(m - x + 1)

    def _trials(self, count: Array) -> Array:
        return self.total_count * count

    def _expected_natural(self) -> tuple[Array, ...]:
        log_failure, log_odds = super()._expected_natural()
        return self.total_count * log_failure, log_odds

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        log_failure, log_odds = super()._natural(parameters)
        return self.total_count * log_failure, log_odds


@dataclass(frozen=True, eq=False)
class PoissonGamma(GammaRates):
    r"""Counts: :math:`x_j \sim \mathrm{Poisson}(\lambda_{kj})`, the rates gamma.

    Attributes:
        shape: :math:`a_j > 0`, shape (num_features,), events in prior pseudo-counts.
        rate: :math:`b_j > 0`, shape (num_features,), the number of rows that the prior is worth.
    """

    has_base_measure = True

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """A prior worth one row with the mean of the column, unless fields are given.

        Args:
            x: counts and NaN, shape (num_observations, num_features).
            **overrides: fields to set instead, a number or one per column.

        Returns:
            The prior.

        Raises:
            ValueError: a column without a single event and no ``rate`` given.
        """
        x, means = column_means(x)
        if "rate" not in overrides and not np.all(means > 0):
            raise ValueError(
                f"column {int(np.argmin(means))} of x has mean {means.min():g}: leave it out or give rate"
            )
        fields = {"shape": 1.0} | ({} if "rate" in overrides else {"rate": 1.0 / means}) | overrides
        return cls(**broadcast_fields(fields, cls.column_fields, len(means)))

    def _check_domain(self, x: np.ndarray) -> None:
        whole = (x >= 0) & (x == np.round(x))
        check_cells(x, whole, "counts: whole numbers of at least 0 (or NaN where a cell is missing)")

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The rates."""
        count, events = self._sums(statistics)
        overall = jnp.sum(events, axis=0) / jnp.sum(count, axis=0)
        return bounded_estimate("rates", events / at_least_one(count), PROBABILITY_FLOOR * overall, jnp.inf)

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        return dist.Poisson(parameters["rates"])

    def _log_base_measure(self, x: Array) -> Array:
        return -gammaln(x + 1)

    def _updated(self, count: Array, events: Array) -> dict[str, Array]:
        return {"shape": self.shape + events, "rate": self.rate + count}

    def _expected_natural(self) -> tuple[Array, ...]:
        return -self.shape / self.rate, digamma(self.shape) - jnp.log(self.rate)

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        rates = parameters["rates"]
        return -rates, jnp.log(jnp.maximum(rates, jnp.finfo(rates.dtype).tiny))


def _log_probs(probs: Array) -> tuple[Array, Array]:
    """Logs of a probability and of its complement; one that rounds to 0 or 1 must not give NaN."""
    tiny = jnp.finfo(probs.dtype).tiny
    return jnp.log(jnp.maximum(probs, tiny)), jnp.log(jnp.maximum(1.0 - probs, tiny))
