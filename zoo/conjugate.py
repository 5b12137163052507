r"""Component priors of mixtures: conjugate families, each one class with the same interface.

A component of a mixture has a likelihood :math:`p(x \mid \theta)` in an exponential family and a conjugate
prior. Everything that inference needs of the pair is here, written once: the prior as NumPyro statements,
the posterior given (weighted) sufficient statistics, which is an object of the same class with a leading
axis over components, expectations under it, the evidence and the predictive density.

Rows enter only through ``features(x)``, a matrix of shape (num_observations, num_statistics) whose first
column is one, so that ``features(x) @ coefficients.T`` is a matrix of log densities and
``responsibilities.T @ features(x)`` the sufficient statistics: two matrix products, no N x K x D array.
Moments are taken about the prior location, which `from_data` puts at the mean of the data; that keeps the
cancellation in the scatter matrices harmless.

Reference: Yu (2006), sections 2.1-2.2, Table 2.1. Corrections: the Wishart needs
``degrees_of_freedom > num_features - 1`` (the table says > 0).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.scipy.special import digamma, multigammaln

from zoo.model import Assumptions
from zoo.validation import as_matrix, check_finite, check_not_constant, check_rows

__all__ = ["GaussianWishart"]

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class GaussianWishart(Assumptions):
    r"""Normal components with unknown mean and full covariance, under the Gaussian-Wishart prior.

    .. math::
        \Lambda_k \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        \mu_k \mid \Lambda_k \sim \mathrm{Normal}(m_0, (\beta_0 \Lambda_k)^{-1}), \quad
        x \mid \mu_k, \Lambda_k \sim \mathrm{Normal}(\mu_k, \Lambda_k^{-1}).

    The same class holds a posterior: then each field has a leading axis over components.

    Attributes:
        loc: :math:`m_0`, shape (num_features,), in the units of the data.
        mean_precision: :math:`\beta_0 > 0`, the number of rows that the prior mean is worth.
        scale_matrix: :math:`W_0`, shape (num_features, num_features), positive definite;
            ``E[precision] = degrees_of_freedom * scale_matrix``.
        degrees_of_freedom: :math:`\nu_0 > ` num_features - 1. The prior mean of the covariance exists above
            num_features + 1 only.
    """

    loc: Array
    mean_precision: Array
    scale_matrix: Array
    degrees_of_freedom: Array

    field_dims = {
        "loc": ("feature",),
        "mean_precision": (),
        "scale_matrix": ("feature", "feature_2"),
        "degrees_of_freedom": (),
    }

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

        ``S`` is the sample covariance; ``scale_matrix = S^-1 / (mean_precision * degrees_of_freedom)``,
        which is how we read Yu (2006, section 2.2.4), "the inverse of the sample covariance divided by
        beta_0": of the readings that were tried it alone fits both the published bounds and Table 3.1.
            ``degrees_of_freedom`` is num_features, as there (2 for two features).

        Args:
            x: data, shape (num_observations, num_features).
            **overrides: fields to set instead; the scale matrix follows ``mean_precision`` and
                ``degrees_of_freedom``.

        Raises:
            ValueError: NaN, infinite or constant columns, or no more rows than columns (their covariance is
                singular).
        """
        x = as_matrix(x)
        check_rows(x, 2, "a mixture of one row has nothing to cluster")
        check_finite(x)
        check_not_constant(x)
        num_features = x.shape[1]
        fields = {
            "loc": x.mean(axis=0),
            "mean_precision": 0.01,
            "degrees_of_freedom": float(num_features),
        } | overrides
        if "scale_matrix" not in fields:
            check_rows(
                x, num_features + 1, f"the sample covariance of {num_features} columns; or give scale_matrix"
            )
            strength = np.asarray(fields["mean_precision"]) * np.asarray(fields["degrees_of_freedom"])
            fields["scale_matrix"] = (
                np.linalg.inv(_regular(np.cov(x, rowvar=False).reshape(num_features, num_features)))
                / strength
            )
        return cls(**fields)

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        if self.loc.ndim != 1:
            raise ValueError(f"loc must have shape (num_features,); got {self.loc.shape}")
        d = self.num_features
        if self.scale_matrix.shape != (d, d):
            raise ValueError(
                f"scale_matrix must have shape ({d}, {d}) to go with loc; got {self.scale_matrix.shape}"
            )
        for name in ("loc", "scale_matrix"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite; got {getattr(self, name)}")
        if self.mean_precision.shape != () or not 0 < self.mean_precision < np.inf:
            raise ValueError(f"mean_precision must be a positive number; got {self.mean_precision}")
        if self.degrees_of_freedom.shape != () or not d - 1 < self.degrees_of_freedom < np.inf:
            raise ValueError(
                f"degrees_of_freedom must exceed num_features - 1 = {d - 1} for the Wishart prior to be "
                f"proper; got {self.degrees_of_freedom}"
            )
        if (
            not np.allclose(self.scale_matrix, self.scale_matrix.T, rtol=1e-8)
            or np.linalg.eigvalsh(self.scale_matrix)[0] <= 0
        ):
            raise ValueError("scale_matrix must be symmetric and positive definite")

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return int(self.loc.shape[-1])

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        if x.shape[1] != self.num_features:
            raise ValueError(
                f"x must have {self.num_features} columns, as the component prior has; got {x.shape[1]}"
            )
        check_finite(x)

    # The program

    def sample(self) -> dict[str, Array]:
        """The prior (or posterior) as NumPyro statements, to be called inside a plate over components."""
        precisions = numpyro.sample("precisions", self._precision_distribution())
        locs = numpyro.sample("locs", self._loc_distribution(precisions))
        return {"precisions": precisions, "locs": locs}

    def conditionals(self, values: Mapping[str, Array]) -> dict[str, dist.Distribution]:
        """The distributions that `sample` draws from, in order.

        The precisions, then the means given ``values["precisions"]``.

        The second is left out as long as ``values`` has no precisions to condition on.
        """
        drawn = {"precisions": self._precision_distribution()}
        if "precisions" in values:
            drawn["locs"] = self._loc_distribution(values["precisions"])
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

    def _precision_distribution(self) -> dist.Distribution:
        return dist.Wishart(self.degrees_of_freedom, scale_matrix=self.scale_matrix)

    def _loc_distribution(self, precisions: Array) -> dist.Distribution:
        strength = jnp.asarray(self.mean_precision)[..., None, None]
        return dist.MultivariateNormal(jnp.asarray(self.loc), precision_matrix=strength * precisions)

    # Sufficient statistics, posterior, expectations

    def features(self, x: Array) -> Array:
        """Sufficient statistics of rows: ``[1, y, upper triangle of y y']`` with ``y = x - loc``.

        Call it on the prior.
        """
        y = x - self.loc
        row, column = np.triu_indices(self.num_features)
        return jnp.concatenate([jnp.ones_like(y[..., :1]), y, y[..., row] * y[..., column]], axis=-1)

    def posterior(self, statistics: Array) -> Self:
        """The posterior of each component, given weighted sums of `features`.

        Args:
            statistics: shape (num_components, num_statistics); the first column is the number of rows.

        Returns:
            The same class with a leading axis over components. A component without rows gets exactly the
            prior (Yu 2006, section 2.2.4).
        """
        count, first, second = self._moments(statistics)
        mean_precision = self.mean_precision + count
        shift = first / mean_precision[..., None]  # m_k - m_0
        scatter = second - first[..., :, None] * shift[..., None, :]
        rate_matrix = jnp.linalg.inv(jnp.asarray(self.scale_matrix)) + scatter
        return self.replaced(
            loc=self.loc + shift,
            mean_precision=mean_precision,
            scale_matrix=_symmetric_inverse(rate_matrix),
            degrees_of_freedom=self.degrees_of_freedom + count,
        )

    def expected_coefficients(self, posterior: Self) -> Array:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`.

        Shape (num_components, num_statistics).
        """
        d = self.num_features
        precision = posterior.degrees_of_freedom[..., None, None] * posterior.scale_matrix
        constant = 0.5 * (_expected_log_det(posterior) - d * LOG_2PI - d / posterior.mean_precision)
        return self._coefficients(constant, posterior.loc - self.loc, precision)

    def coefficients(self, parameters: Mapping[str, Array]) -> Array:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values.

        Shape (num_components, num_statistics).
        """
        precision = parameters["precisions"]
        constant = 0.5 * (jnp.linalg.slogdet(precision)[1] - self.num_features * LOG_2PI)
        return self._coefficients(constant, parameters["locs"] - self.loc, precision)

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

    def deterministics(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """What a reader wants to see and the sampler does not need: the covariances."""
        return {"covariances": _symmetric_inverse(parameters["precisions"])}

    def _moments(self, statistics: Array) -> tuple[Array, Array, Array]:
        d = self.num_features
        row, column = np.triu_indices(d)
        second = jnp.zeros((*statistics.shape[:-1], d, d), statistics.dtype)
        second = second.at[..., row, column].set(statistics[..., d + 1 :])
        second = second.at[..., column, row].set(statistics[..., d + 1 :])
        return statistics[..., 0], statistics[..., 1 : d + 1], second

    def _coefficients(self, constant: Array, shift: Array, precision: Array) -> Array:
        """Expand ``constant - (y - shift)' precision (y - shift) / 2`` in the features of y."""
        row, column = np.triu_indices(self.num_features)
        linear = jnp.einsum("...ij,...j->...i", precision, shift)
        constant = constant - 0.5 * jnp.sum(shift * linear, axis=-1)
        quadratic = precision[..., row, column] * np.where(row == column, -0.5, -1.0)
        return jnp.concatenate([constant[..., None], linear, quadratic], axis=-1)


def _symmetric_inverse(matrix: Array) -> Array:
    """Inverse of positive definite matrices through Cholesky, exactly symmetric."""
    factor = jnp.linalg.cholesky(matrix)
    identity = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    inverse = cho_solve((factor, True), identity)
    return 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2))


def _expected_log_det(q: GaussianWishart) -> Array:
    """E[log |precision|] under the Wishart."""
    d = q.num_features
    half = 0.5 * (jnp.asarray(q.degrees_of_freedom)[..., None] - jnp.arange(d))
    return jnp.sum(digamma(half), axis=-1) + d * jnp.log(2.0) + jnp.linalg.slogdet(q.scale_matrix)[1]


def _log_normaliser(q: GaussianWishart) -> Array:
    """Log of the integral of the Gaussian-Wishart kernel that is |P|^((nu - d)/2) exp(-...).

    What the evidence is a difference of.
    """
    d = q.num_features
    nu = jnp.asarray(q.degrees_of_freedom)
    wishart = 0.5 * nu * (
        d * jnp.log(2.0) + jnp.linalg.slogdet(jnp.asarray(q.scale_matrix))[1]
    ) + multigammaln(nu / 2, d)
    return wishart + 0.5 * d * (LOG_2PI - jnp.log(jnp.asarray(q.mean_precision)))


def _regular(covariance: np.ndarray) -> np.ndarray:
    """The covariance, with a ridge and a warning if its columns are collinear."""
    eigenvalues = np.linalg.eigvalsh(covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))))
    if eigenvalues[0] > 1e-10:
        return covariance
    warnings.warn(
        "the columns of x are collinear: the default prior adds a millionth of each variance to the sample "
        "covariance; "
        "leave out redundant columns or give scale_matrix",
        stacklevel=3,
    )
    return covariance + 1e-6 * np.diag(np.diag(covariance))
