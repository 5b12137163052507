r"""Gaussian components that share one covariance ("tied"), each with its own mean.

The covariance couples the components: the evidence of a partition is one number, not a sum over components.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.conjugate.component_prior import Estimate
from zoo.conjugate.gaussian import (LOG_2PI, MATRIX, log_wishart_normaliser, normal_locs, symmetric_inverse)
from zoo.conjugate.gaussian_wishart import GaussianWishart

__all__ = ["SharedGaussianWishart"]


@dataclass(frozen=True, eq=False)
class SharedGaussianWishart(GaussianWishart):
    r"""Normal components with their own means and one covariance for all ("tied").

    .. math::
        \Lambda \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        \mu_k \mid \Lambda \sim \mathrm{Normal}(m_0, (\beta_0 \Lambda)^{-1}), \quad
        x \mid \mu_k, \Lambda \sim \mathrm{Normal}(\mu_k, \Lambda^{-1}).

    Fields and default prior are those of `GaussianWishart`. A posterior has a leading axis over components in
    ``loc`` and ``mean_precision`` only, and the evidence is one number for all components.
    """

    posterior_dims = {
        "loc": ("component", "feature"),
        "mean_precision": ("component",),
        "scale_matrix": MATRIX,
        "degrees_of_freedom": (),
    }
    parameter_dims = {
        "shared_precision": MATRIX,
        "locs": ("component", "feature"),
        "covariances": ("component", *MATRIX),
    }
    couples_components = True
    learnable = ("loc", "mean_precision", "scale_matrix")

    def sample(self, num_components: int) -> dict[str, Array]:
        """The shared precision, then the means of all components, as NumPyro statements."""
        shared = {"shared_precision": numpyro.sample("shared_precision", self._precision())}
        with numpyro.plate("components", num_components):
            return shared | {"locs": numpyro.sample("locs", self.conditionals(shared)["locs"])}

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The shared precision, then the means given ``values["shared_precision"]``."""
        drawn = {"shared_precision": self._precision()}
        if "shared_precision" in values:
            drawn["locs"] = normal_locs(self.loc, self.mean_precision, values["shared_precision"])
        return drawn

    def likelihood(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return dist.MultivariateNormal(parameters["locs"], precision_matrix=parameters["shared_precision"])

    def likelihood_of(self, parameters: Mapping[str, Array], assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``."""
        return self.likelihood(
            {"locs": parameters["locs"][assignments], "shared_precision": parameters["shared_precision"]}
        )

    def deterministics(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """The covariance, once per component, as the other Gaussian families have it."""
        covariance = symmetric_inverse(parameters["shared_precision"])
        count = parameters["locs"].shape[-2]
        return {"covariances": jnp.broadcast_to(covariance, (count, *covariance.shape[-2:]))}

    def posterior(self, statistics: Array) -> Self:
        """The posterior given the statistics of all components, shape (num_components, num_statistics)."""
        each = super().posterior(statistics)
        prior_rate = jnp.linalg.inv(jnp.asarray(self.scale_matrix))
        count, first, second = self._moments(statistics, self.loc)
        scatter = second - first[..., :, None] * (first / each.mean_precision[..., None])[..., None, :]
        return each.replaced(
            scale_matrix=symmetric_inverse(prior_rate + jnp.sum(scatter, axis=-3)),
            degrees_of_freedom=self.degrees_of_freedom + jnp.sum(count, axis=-1),
        )

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return super().coefficients(parameters | {"precisions": parameters["shared_precision"]})

    def log_evidence(self, statistics: Array) -> Array:
        """Log probability of all rows with means and covariance integrated out, in nats; one number."""
        d = self.num_features
        posterior = self.posterior(statistics)
        base = -0.5 * d * LOG_2PI * jnp.sum(statistics[..., 0])
        means = 0.5 * d * jnp.sum(jnp.log(self.mean_precision) - jnp.log(posterior.mean_precision))
        return log_wishart_normaliser(posterior) - log_wishart_normaliser(self) + means + base

    def predictive(self) -> dist.Distribution:
        """The density of a new row with mean and covariance integrated out: a multivariate Student-t."""
        d = self.num_features
        df = jnp.asarray(self.degrees_of_freedom) - d + 1
        rate = jnp.linalg.inv(jnp.asarray(self.scale_matrix))
        scale = (1 + jnp.asarray(self.mean_precision)) / (self.mean_precision * df)
        tril = jnp.sqrt(scale)[..., None, None] * jnp.linalg.cholesky(rate)
        return dist.MultivariateStudentT(df, jnp.asarray(self.loc), tril)

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The shared precision and the means."""
        count, locs, covariances = self._means_and_covariances(statistics)
        pooled = jnp.einsum("k,kij->ij", count, covariances) / jnp.sum(count)
        pooled, at_floor = self._floored(pooled, statistics, variance_floor)
        return Estimate({"shared_precision": jnp.linalg.inv(pooled), "locs": locs}, at_floor.astype(int))

    def num_free_parameters(self, num_components: int) -> int:
        """A vector for each component, and one symmetric matrix."""
        return num_components * self.num_features + self.num_features * (self.num_features + 1) // 2

    def _precision(self) -> dist.Distribution:
        return dist.Wishart(self.degrees_of_freedom, scale_matrix=self.scale_matrix)
