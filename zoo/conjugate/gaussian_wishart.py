r"""Gaussian components with unknown mean and full covariance: the Gaussian-Wishart prior.

Reference: Yu (2006), sections 2.1-2.2, Table 2.1. Correction: the Wishart needs
``degrees_of_freedom > num_features - 1`` (the table says > 0).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma

from zoo.conjugate.best_hyperparameters import (BRACKETS, bracket, root, within_scale)
from zoo.conjugate.component_prior import Estimate
from zoo.conjugate.gaussian import (LOG_2PI, MATRIX, FullGaussian, check_location, check_mean_precision, check_wishart, checked_columns, expected_log_det, log_wishart_normaliser, normal_locs, sample_covariance, symmetric_inverse)

__all__ = ["GaussianWishart"]


@dataclass(frozen=True, eq=False)
class GaussianWishart(FullGaussian):
    r"""Normal components with unknown mean and full covariance, under the Gaussian-Wishart prior.

    .. math::
        \Lambda_k \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        \mu_k \mid \Lambda_k \sim \mathrm{Normal}(m_0, (\beta_0 \Lambda_k)^{-1}), \quad
        x \mid \mu_k, \Lambda_k \sim \mathrm{Normal}(\mu_k, \Lambda_k^{-1}).

    The same class holds a posterior: then each field has a leading axis over components.

    Attributes:
        loc: :math:`m_0`, shape (num_features,), in the units of the data; or a ``MultivariateNormal``.
        mean_precision: :math:`\beta_0 > 0`, the number of rows that the prior mean is worth; or a ``Gamma``.
        scale_matrix: :math:`W_0`, shape (num_features, num_features), positive definite;
            ``E[precision] = degrees_of_freedom * scale_matrix``; or a ``Wishart``, the prior of its inverse.
        degrees_of_freedom: :math:`\nu_0 > ` num_features - 1. The prior mean of the covariance exists above
            num_features + 1 only.
        center: the point about which moments are summed; by default ``loc`` or its prior mean.
    """

    loc: Array | dist.Distribution
    mean_precision: Array | dist.Distribution
    scale_matrix: Array | dist.Distribution
    degrees_of_freedom: Array
    center: Array | None = None

    field_dims = {
        "loc": ("feature",),
        "mean_precision": (),
        "scale_matrix": MATRIX,
        "degrees_of_freedom": (),
        "center": ("feature",),
    }
    posterior_dims = {
        "loc": ("component", "feature"),
        "mean_precision": ("component",),
        "scale_matrix": ("component", *MATRIX),
        "degrees_of_freedom": ("component",),
    }
    parameter_dims = {
        "precisions": ("component", *MATRIX),
        "locs": ("component", "feature"),
        "covariances": ("component", *MATRIX),
    }
    hyperprior_kinds = {
        "loc": (dist.MultivariateNormal,),
        "mean_precision": (dist.Gamma,),
        "scale_matrix": (dist.Wishart,),
    }
    learnable = ("loc", "mean_precision", "scale_matrix", "degrees_of_freedom")

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """Where each field may lie: what makes a posterior of this class a guide with free parameters."""
        return {
            "loc": dist.constraints.real_vector,
            "mean_precision": dist.constraints.positive,
            "scale_matrix": dist.constraints.positive_definite,
            "degrees_of_freedom": dist.constraints.greater_than(self.num_features - 1.0),
        }

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The default prior for these data.

        Centred at the mean, a hundredth of a row strong, scaled so that E[beta0 * precision] = S^-1.

        ``S`` is the sample covariance; ``scale_matrix = S^-1 / (mean_precision * degrees_of_freedom)``, which
        is how we read Yu (2006, section 2.2.4), "the inverse of the sample covariance divided by beta_0": of
        the readings that were tried it alone fits both the published bounds and Table 3.1.
        ``degrees_of_freedom`` is num_features, as there (2 for two features).

        Args:
            x: data, shape (num_observations, num_features).
            **overrides: fields to set instead; the scale matrix follows ``mean_precision`` and
                ``degrees_of_freedom``.

        Returns:
            The prior.

        Raises:
            ValueError: NaN, infinite or constant columns, or no more rows than columns (their covariance is
                singular).
        """
        x = checked_columns(x)
        num_features = x.shape[1]
        fields = {
            "loc": x.mean(axis=0),
            "mean_precision": 0.01,
            "degrees_of_freedom": float(num_features),
            "center": x.mean(axis=0),
        } | overrides
        if "scale_matrix" not in fields:
            strength = _expected(fields["mean_precision"]) * np.asarray(fields["degrees_of_freedom"])
            fields["scale_matrix"] = np.linalg.inv(sample_covariance(x)) / strength
        return cls(**fields)

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        self.check_hyperpriors()
        check_location(self)
        check_mean_precision(self)
        check_wishart(self)

    # The program

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The precisions, then the means given ``values["precisions"]``."""
        drawn = {"precisions": dist.Wishart(self.degrees_of_freedom, scale_matrix=self.scale_matrix)}
        if "precisions" in values:
            drawn["locs"] = normal_locs(self.loc, self.mean_precision, values["precisions"])
        return drawn

    def likelihood(self, parameters: Mapping[str, Array]) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return dist.MultivariateNormal(parameters["locs"], precision_matrix=parameters["precisions"])

    def likelihood_of(self, parameters: Mapping[str, Array], assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``."""
        components = self.likelihood(parameters)  # factorised once per component, not once per row
        return dist.MultivariateNormal(
            components.loc[assignments], scale_tril=components.scale_tril[assignments]
        )

    def deterministics(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """What a reader wants to see and the sampler does not need: the covariances."""
        return {"covariances": symmetric_inverse(parameters["precisions"])}

    # Posterior, expectations

    def posterior(self, statistics: Array) -> Self:
        """The posterior of each component, given weighted sums of `features`.

        Args:
            statistics: shape (num_components, num_statistics); the first column is the number of rows.

        Returns:
            The same class with a leading axis over components. A component without rows gets exactly the
            prior (Yu 2006, section 2.2.4).
        """
        count, first, second = self._moments(statistics, self.loc)
        mean_precision = self.mean_precision + count
        shift = first / mean_precision[..., None]  # m_k - m_0
        scatter = second - first[..., :, None] * shift[..., None, :]
        rate_matrix = jnp.linalg.inv(jnp.asarray(self.scale_matrix)) + scatter
        return self.replaced(
            loc=self.loc + shift,
            mean_precision=mean_precision,
            scale_matrix=symmetric_inverse(rate_matrix),
            degrees_of_freedom=self.degrees_of_freedom + count,
        )

    def expected_coefficients(self, posterior: Self) -> Array:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`.

        Shape (num_components, num_statistics).
        """
        d = self.num_features
        precision = posterior.degrees_of_freedom[..., None, None] * posterior.scale_matrix
        constant = 0.5 * (expected_log_det(posterior) - d * LOG_2PI - d / posterior.mean_precision)
        return self._coefficients(constant, posterior.loc - self.center, precision)

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values.

        Shape (num_components, num_statistics).
        """
        precision = parameters["precisions"]
        constant = 0.5 * (jnp.linalg.slogdet(precision)[1] - self.num_features * LOG_2PI)
        return self._coefficients(constant, parameters["locs"] - self.center, precision)

    def log_evidence(self, statistics: Array) -> Array:
        """Log probability of the rows of each component with its parameters integrated out, in nats.

        Shape (num_components,).
        """
        base = -0.5 * self.num_features * LOG_2PI * statistics[..., 0]
        return _log_normaliser(self.posterior(statistics)) - _log_normaliser(self) + base

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the component's parameters integrated out.

        A multivariate Student-t (Yu 2006, after 3.9).
        """
        d = self.num_features
        df = jnp.asarray(self.degrees_of_freedom) - d + 1
        rate = jnp.linalg.inv(jnp.asarray(self.scale_matrix))
        scale = (1 + self.mean_precision) / (self.mean_precision * df)
        return dist.MultivariateStudentT(
            df, jnp.asarray(self.loc), jnp.linalg.cholesky(scale[..., None, None] * rate)
        )

    # Estimates

    def maximum_likelihood(self, statistics: Array, variance_floor: Array) -> Estimate:
        """The precisions and means."""
        count, locs, covariances = self._means_and_covariances(statistics)
        covariances, at_floor = self._floored(covariances, statistics, variance_floor)
        parameters = {"precisions": jnp.linalg.inv(covariances), "locs": locs}
        return Estimate(parameters, jnp.sum(at_floor & (count > 0)))

    def num_free_parameters(self, num_components: int) -> int:
        """A vector and a symmetric matrix for each component."""
        d = self.num_features
        return num_components * d + num_components * d * (d + 1) // 2

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        q, d, num_components = posterior, self.num_features, posterior.loc.shape[0]
        precision = jnp.asarray(q.degrees_of_freedom)[..., None, None] * q.scale_matrix
        precision = jnp.broadcast_to(precision, (num_components, d, d))
        fields: dict[str, Array] = {}
        loc = self.loc
        if "loc" in learn:
            pull = jnp.einsum("kij,kj->i", precision, q.loc - self.center)
            loc = self.center + jnp.linalg.solve(jnp.sum(precision, axis=0), pull)
            fields["loc"] = loc
        if "mean_precision" in learn:
            gap = q.loc - loc
            spread = jnp.sum(d / q.mean_precision) + jnp.einsum("ki,kij,kj->", gap, precision, gap)
            shape, rate = 1.0, 0.0
            if given.is_random("mean_precision"):
                shape, rate = given.mean_precision.concentration, given.mean_precision.rate
            best = (0.5 * num_components * d + shape - 1.0) / (0.5 * spread + rate)
            fields["mean_precision"] = jnp.clip(best, *BRACKETS["mean_precision"])
        average = jnp.mean(precision, axis=0)
        log_det = jnp.mean(expected_log_det(q))
        if "degrees_of_freedom" in learn:
            joint = "scale_matrix" in learn
            log_scale = jnp.linalg.slogdet(average if joint else jnp.asarray(self.scale_matrix))[1]

            def slope(excess: Array) -> Array:
                nu = excess + (d - 1)
                scale = log_scale - d * jnp.log(nu) if joint else log_scale  # W0 = average / nu, its best
                return log_det - scale - d * jnp.log(2.0) - jnp.sum(digamma(0.5 * (nu - jnp.arange(d))))

            fields["degrees_of_freedom"] = d - 1 + root(slope, *bracket("degrees_of_freedom", log_det))
        if "scale_matrix" in learn:
            best = average / fields.get("degrees_of_freedom", self.degrees_of_freedom)
            fields["scale_matrix"] = within_scale(best, jnp.asarray(given.scale_matrix))
        return self.replaced(**fields)


def _log_normaliser(q: GaussianWishart) -> Array:
    """Log of the integral of the Gaussian-Wishart kernel: what the evidence is a difference of."""
    d = q.num_features
    return log_wishart_normaliser(q) + 0.5 * d * (LOG_2PI - jnp.log(jnp.asarray(q.mean_precision)))


def _expected(value: Any) -> np.ndarray:
    return np.asarray(value.mean if isinstance(value, dist.Distribution) else value, np.float64)
