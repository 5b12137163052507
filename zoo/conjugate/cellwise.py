r"""Components whose columns are independent given the component, one conjugate family per cell.

A cell's density is :math:`p(x \mid \theta) = h(x) \exp\{\sum_s c_s(\theta)\, t_s(x)\}` with a few statistics
:math:`t_s`, the first of them one. Sums of the statistics over the observed cells of a column are all that
the posterior needs, so missing cells (NaN) are simply left out of them: they are integrated out exactly.

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

from zoo.conjugate.best_hyperparameters import bracket, root
from zoo.conjugate.component_prior import ComponentPrior, broadcast_fields
from zoo.checks import as_matrix, check_columns, check_infinite

__all__ = ["Cellwise", "GammaRates", "ObservedCells", "column_means"]


class ObservedCells(dist.Distribution):
    """A row of independent cells, of which those that are NaN are missing and count nothing.

    Args:
        cell: the distribution of the cells, batch shape (..., num_features).
    """

    pytree_data_fields = ("cell",)

    def __init__(self, cell: dist.Distribution) -> None:
        self.cell = cell
        super().__init__(cell.batch_shape[:-1], cell.batch_shape[-1:])

    @property
    def support(self) -> dist.constraints.Constraint:
        """That of the cells, over a row (counts out of a total: any whole number, the total is checked)."""
        own = self.cell.support
        if not isinstance(own, dist.constraints.ParameterFreeConstraint):
            own = dist.constraints.nonnegative_integer
        return dist.constraints.independent(own, 1)

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
    """What families of independent cells share; a family says what holds of one cell.

    Its fields have shape (num_features,); a number is repeated for every column where the number of columns
    is known.

    Class attributes:
        column_fields: the fields with one number per column.
        has_base_measure: whether h differs from one, so that its logarithm is a feature.
    """

    column_fields = ()
    has_base_measure = False

    def __post_init__(self) -> None:
        """Repeat what was given as one number for all columns."""
        given = {name: getattr(self, name) for name in self.leaf_names()}
        sizes = [_size(given[name]) for name in self.column_fields]
        if any(sizes):
            for name, value in broadcast_fields(given, self.column_fields, max(sizes)).items():
                object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        value = getattr(self, self.column_fields[0])
        return int(value.batch_shape[-1] if isinstance(value, dist.Distribution) else np.shape(value)[-1])

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        self.check_hyperpriors()
        for name in self.column_fields:
            if not _size(getattr(self, name)):
                raise ValueError(
                    f"{name} must have shape (num_features,), or use {type(self).__name__}.from_data(x, ...)"
                )
            self._check_column_field(name, getattr(self, name))

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        check_columns(x, self.num_features)
        check_infinite(x)
        self._check_domain(x)

    # What a family says of one cell

    def _check_column_field(self, name: str, value: Any) -> None:
        """By default a field is positive, of shape (num_features,)."""
        if self.is_random(name):
            value = value.mean
        if np.shape(value) != (self.num_features,):
            raise ValueError(f"{name} must have shape ({self.num_features},); got {np.shape(value)}")
        if not (np.all(np.isfinite(value)) and np.all(np.asarray(value) > 0)):
            raise ValueError(f"{name} must be positive; got {value}")

    def _check_domain(self, x: np.ndarray) -> None:
        raise NotImplementedError

    def _cell_statistics(self, x: Array) -> tuple[Array, ...]:
        """The statistics of cells beyond the one, for observed values."""
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

    def _natural(self, parameters: Mapping[str, Array]) -> tuple[Array, ...]:
        """The c_s at given parameters."""
        raise NotImplementedError

    def _cell(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The distribution of a cell."""
        raise NotImplementedError

    # What follows

    def likelihood(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return ObservedCells(self._cell(parameters))

    def features(self, x: Array) -> Array:
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

    def posterior(self, statistics: Array) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        return self.replaced(**self._updated(*self._sums(statistics)))

    def expected_coefficients(self, posterior: Self) -> Array:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        return self._on_features(posterior._expected_natural())

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return self._on_features(self._natural(parameters))

    def log_evidence(self, statistics: Array) -> Array:
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
class GammaRates(Cellwise):
    """Families of independent cells with a rate for each component and column, under a gamma prior.

    Attributes:
        shape: of the gamma prior, positive, shape (num_features,).
        rate: of the gamma prior, positive, shape (num_features,).
    """

    shape: Array
    rate: Array

    field_dims = dict.fromkeys(("shape", "rate"), ("feature",))
    posterior_dims = dict.fromkeys(("shape", "rate"), ("component", "feature"))
    parameter_dims = {"rates": ("component", "feature")}
    column_fields = ("shape", "rate")
    learnable = ("shape", "rate")

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """Where each field may lie."""
        return dict.fromkeys(("shape", "rate"), dist.constraints.positive)

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The rates."""
        return {"rates": dist.Gamma(jnp.asarray(self.shape), jnp.asarray(self.rate)).to_event(1)}

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        mean = jnp.mean(posterior.shape / posterior.rate, axis=0)
        log_mean = jnp.mean(digamma(posterior.shape) - jnp.log(posterior.rate), axis=0)
        shape = jnp.asarray(self.shape)
        if "shape" in learn:
            if "rate" in learn:
                target = jnp.log(mean) - log_mean
                shape = root(lambda a: jnp.log(a) - digamma(a) - target, *bracket("shape", target))
            else:
                target = jnp.log(jnp.asarray(self.rate)) + log_mean
                shape = root(lambda a: target - digamma(a), *bracket("shape", target))
        return self.replaced(shape=shape, rate=shape / mean if "rate" in learn else self.rate)

    def _log_normaliser(self) -> Array:
        a, b = jnp.asarray(self.shape), jnp.asarray(self.rate)
        return jnp.sum(gammaln(a) - a * jnp.log(b), axis=-1)


def column_means(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """The data as a matrix, and the mean of the observed cells of each column.

    Args:
        x: data, shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        The data as float64, and means of shape (num_features,).

    Raises:
        ValueError: a column without a single observed cell.
    """
    x = as_matrix(x)
    check_infinite(x)
    counts = (~np.isnan(x)).sum(axis=0)
    if not counts.all():
        raise ValueError(f"column {int(np.argmin(counts))} of x has no observed cell; leave it out")
    return x, np.nansum(x, axis=0) / counts


def _size(value: Any) -> int:
    """Entries of a field along columns, 0 for a single number."""
    shape = value.batch_shape if isinstance(value, dist.Distribution) else np.shape(value)
    return int(shape[-1]) if shape else 0
