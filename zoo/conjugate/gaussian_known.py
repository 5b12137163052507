r"""Gaussian components of which one half is known: the covariance, or the mean.

Reference: Yu (2006), Table 2.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import as_matrix, check_finite
from zoo.conjugate.component_prior import Estimate, at_least_one
from zoo.conjugate.gaussian import (
    LOG_2PI,
    MATRIX,
    FullGaussian,
    check_location,
    check_mean_precision,
    check_positive_definite,
    check_wishart,
    checked_columns,
    expected_log_det,
    log_wishart_normaliser,
    normal_locs,
    sample_covariance,
    symmetric_inverse,
)

__all__ = ["GaussianKnownCovariance", "GaussianKnownMean"]


@dataclass(frozen=True, eq=False)
class GaussianKnownCovariance(FullGaussian):
    r"""Normal components with unknown means and a covariance that is given.

    .. math::
        \mu_k \sim \mathrm{Normal}(m_0, \Sigma / \beta_0), \quad
        x \mid \mu_k \sim \mathrm{Normal}(\mu_k, \Sigma).

    Attributes:
        loc: :math:`m_0`, shape (num_features,).
        mean_precision: :math:`\beta_0 > 0`, the number of rows that the prior mean is worth.
        covariance: :math:`\Sigma`, shape (num_features, num_features), known.
        center: the point about which moments are summed; by default ``loc``.
    """

    loc: Array
    mean_precision: Array
    covariance: Array
    center: Array | None = None

    field_dims = {"loc": ("feature",), "mean_precision": (), "covariance": MATRIX, "center": ("feature",)}
    posterior_dims = {"loc": ("component", "feature"), "mean_precision": ("component",)}
    parameter_dims = {"locs": ("component", "feature"), "covariances": ("component", *MATRIX)}

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """Where each field may lie."""
        return {"loc": dist.constraints.real_vector, "mean_precision": dist.constraints.positive}

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """Centred at the mean, a hundredth of a row strong.

        Args:
            x: data, shape (num_observations, num_features).
            **overrides: fields; ``covariance`` must be among them, since it is what is known.

        Returns:
            The prior.

        Raises:
            ValueError: no ``covariance``, or NaN in the data.
        """
        if "covariance" not in overrides:
            raise ValueError(
                "GaussianKnownCovariance needs covariance=, of shape (num_features, num_features)"
            )
        x = as_matrix(x)
        check_finite(x)
        mean = x.mean(axis=0)
        return cls(**({"loc": mean, "mean_precision": 0.01, "center": mean} | overrides))

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        self.check_hyperpriors()
        check_location(self)
        check_mean_precision(self)
        check_positive_definite(self, "covariance")

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The means."""
        return {"locs": normal_locs(self.loc, self.mean_precision, self._precision())}

    def likelihood(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return dist.MultivariateNormal(parameters["locs"], covariance_matrix=jnp.asarray(self.covariance))

    def deterministics(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """The covariance, once per component, as the other Gaussian families have it."""
        shape = (*parameters["locs"].shape, self.num_features)
        return {"covariances": jnp.broadcast_to(jnp.asarray(self.covariance), shape)}

    def posterior(self, statistics: Array) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        count, first, _ = self._moments(statistics, self.loc)
        mean_precision = self.mean_precision + count
        return self.replaced(loc=self.loc + first / mean_precision[..., None], mean_precision=mean_precision)

    def expected_coefficients(self, posterior: Self) -> Array:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        constant = self._constant() - 0.5 * self.num_features / posterior.mean_precision
        return self._coefficients(constant, posterior.loc - self.center, self._precision())

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return self._coefficients(self._constant(), parameters["locs"] - self.center, self._precision())

    def log_evidence(self, statistics: Array) -> Array:
        """Log probability of the rows of each component with its mean integrated out, in nats."""
        count, first, second = self._moments(statistics, self.loc)
        mean_precision = self.mean_precision + count
        scatter = second - first[..., :, None] * first[..., None, :] / mean_precision[..., None, None]
        means = 0.5 * self.num_features * (jnp.log(self.mean_precision) - jnp.log(mean_precision))
        return (
            count * self._constant() + means - 0.5 * jnp.einsum("ij,...ij->...", self._precision(), scatter)
        )

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the mean integrated out: a normal."""
        spread = 1 + 1 / jnp.asarray(self.mean_precision)
        tril = jnp.sqrt(spread)[..., None, None] * jnp.linalg.cholesky(jnp.asarray(self.covariance))
        return dist.MultivariateNormal(jnp.asarray(self.loc), scale_tril=tril)

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The means."""
        return Estimate({"locs": self._means_and_covariances(statistics)[1]}, jnp.zeros((), int))

    def _precision(self) -> Array:
        return symmetric_inverse(jnp.asarray(self.covariance))

    def _constant(self) -> Array:
        log_det = jnp.linalg.slogdet(jnp.asarray(self.covariance))[1]
        return -0.5 * (self.num_features * LOG_2PI + log_det)


@dataclass(frozen=True, eq=False)
class GaussianKnownMean(FullGaussian):
    r"""Normal components with one given mean and unknown precisions: a scale mixture.

    .. math::
        \Lambda_k \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        x \mid \Lambda_k \sim \mathrm{Normal}(m, \Lambda_k^{-1}).

    Attributes:
        loc: :math:`m`, the known mean of all components, shape (num_features,).
        scale_matrix: :math:`W_0`, shape (num_features, num_features), positive definite.
        degrees_of_freedom: :math:`\nu_0 > ` num_features - 1.
        center: the point about which moments are summed; by default ``loc``.
    """

    loc: Array
    scale_matrix: Array
    degrees_of_freedom: Array
    center: Array | None = None

    field_dims = {
        "loc": ("feature",),
        "scale_matrix": MATRIX,
        "degrees_of_freedom": (),
        "center": ("feature",),
    }
    posterior_dims = {"scale_matrix": ("component", *MATRIX), "degrees_of_freedom": ("component",)}
    parameter_dims = {
        "precisions": ("component", *MATRIX),
        "locs": ("component", "feature"),
        "covariances": ("component", *MATRIX),
    }

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """Where each field may lie."""
        return {
            "scale_matrix": dist.constraints.positive_definite,
            "degrees_of_freedom": dist.constraints.greater_than(self.num_features - 1.0),
        }

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The known mean is that of the columns unless ``loc`` is given; E[precision] = S^-1.

        ``S`` is the sample covariance, ``degrees_of_freedom`` is num_features.

        Args:
            x: data, shape (num_observations, num_features).
            **overrides: fields to set instead.

        Returns:
            The prior.

        Raises:
            ValueError: NaN, infinite or constant columns, or no more rows than columns.
        """
        x = checked_columns(x)
        mean = x.mean(axis=0)
        fields = {"loc": mean, "degrees_of_freedom": float(x.shape[1]), "center": mean} | overrides
        if "scale_matrix" not in fields:
            strength = np.asarray(fields["degrees_of_freedom"])
            fields["scale_matrix"] = np.linalg.inv(sample_covariance(x)) / strength
        return cls(**fields)

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        self.check_hyperpriors()
        check_location(self)
        check_wishart(self)

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The precisions."""
        return {"precisions": dist.Wishart(self.degrees_of_freedom, scale_matrix=self.scale_matrix)}

    def likelihood(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        precisions = parameters["precisions"]
        loc = jnp.broadcast_to(jnp.asarray(self.loc), precisions.shape[:-1])
        return dist.MultivariateNormal(loc, precision_matrix=precisions)

    def deterministics(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """Covariances, and the known mean once per component, as the other Gaussian families have it."""
        precisions = parameters["precisions"]
        return {
            "covariances": symmetric_inverse(precisions),
            "locs": jnp.broadcast_to(jnp.asarray(self.loc), precisions.shape[:-1]),
        }

    def posterior(self, statistics: Array) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        count, _, second = self._moments(statistics, self.loc)
        rate_matrix = jnp.linalg.inv(jnp.asarray(self.scale_matrix)) + second
        return self.replaced(
            scale_matrix=symmetric_inverse(rate_matrix), degrees_of_freedom=self.degrees_of_freedom + count
        )

    def expected_coefficients(self, posterior: Self) -> Array:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        precision = posterior.degrees_of_freedom[..., None, None] * posterior.scale_matrix
        constant = 0.5 * (expected_log_det(posterior) - self.num_features * LOG_2PI)
        shift = jnp.broadcast_to(self.loc - self.center, precision.shape[:-1])
        return self._coefficients(constant, shift, precision)

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        precision = parameters["precisions"]
        constant = 0.5 * (jnp.linalg.slogdet(precision)[1] - self.num_features * LOG_2PI)
        return self._coefficients(
            constant, jnp.broadcast_to(self.loc - self.center, precision.shape[:-1]), precision
        )

    def log_evidence(self, statistics: Array) -> Array:
        """Log probability of the rows of each component with its precision integrated out, in nats."""
        base = -0.5 * self.num_features * LOG_2PI * statistics[..., 0]
        return log_wishart_normaliser(self.posterior(statistics)) - log_wishart_normaliser(self) + base

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the precision integrated out: a multivariate Student-t."""
        df = jnp.asarray(self.degrees_of_freedom) - self.num_features + 1
        rate = jnp.linalg.inv(jnp.asarray(self.scale_matrix))
        loc = jnp.broadcast_to(jnp.asarray(self.loc), rate.shape[:-1])
        return dist.MultivariateStudentT(df, loc, jnp.linalg.cholesky(rate / df[..., None, None]))

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The precisions about the known mean."""
        count, _, second = self._moments(statistics, jnp.asarray(self.loc))
        covariances = second / at_least_one(count)[:, None, None]
        covariances, at_floor = self._floored(covariances, statistics, variance_floor)
        return Estimate({"precisions": jnp.linalg.inv(covariances)}, jnp.sum(at_floor & (count > 0)))

    def num_free_parameters(self, num_components: int) -> int:
        """A symmetric matrix for each component."""
        return num_components * self.num_features * (self.num_features + 1) // 2
