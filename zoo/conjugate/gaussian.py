r"""What Gaussian components with full matrices share: statistics, matrix algebra, checks and defaults.

Moments are summed about a fixed point, ``center``, which `from_data` puts at the mean of the data; that keeps
the cancellation in the scatter matrices harmless, and lets the prior location move while the sums stand.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.scipy.special import digamma, multigammaln

from zoo.conjugate.component_prior import ComponentPrior, at_least_one
from zoo.checks import (as_matrix, check_columns, check_finite, check_not_constant, check_rows)

__all__ = [
    "LOG_2PI",
    "MATRIX",
    "FullGaussian",
    "check_location",
    "check_mean_precision",
    "check_positive_definite",
    "check_wishart",
    "checked_columns",
    "expected_log_det",
    "log_wishart_normaliser",
    "normal_locs",
    "sample_covariance",
    "symmetric_inverse",
]

LOG_2PI = float(np.log(2 * np.pi))
MATRIX = ("feature", "feature_2")


@dataclass(frozen=True, eq=False)
class FullGaussian(ComponentPrior):
    """What Gaussian components with full matrices share: their sufficient statistics."""

    def __post_init__(self) -> None:
        """Put the center at the prior location if it is not given."""
        if self.center is None:
            place = self.loc.mean if self.is_random("loc") else self.loc
            object.__setattr__(self, "center", np.asarray(place, np.float64))
        super().__post_init__()

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return int(np.shape(self.center)[-1])

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        check_columns(x, self.num_features)
        check_finite(x)

    def features(self, x: Array) -> Array:
        """Sufficient statistics of rows: ``[1, y, upper triangle of y y']`` with ``y = x - center``."""
        y = x - self.center
        row, column = np.triu_indices(self.num_features)
        return jnp.concatenate([jnp.ones_like(y[..., :1]), y, y[..., row] * y[..., column]], axis=-1)

    def _moments(self, statistics: Array, about: Array) -> tuple[Array, Array, Array]:
        """Count, sum and sum of squares about a point."""
        d = self.num_features
        row, column = np.triu_indices(d)
        second = jnp.zeros((*statistics.shape[:-1], d, d), statistics.dtype)
        second = second.at[..., row, column].set(statistics[..., d + 1 :])
        second = second.at[..., column, row].set(statistics[..., d + 1 :])
        count, first = statistics[..., 0], statistics[..., 1 : d + 1]
        move = about - self.center
        cross = first[..., :, None] * move[..., None, :]
        moved = count[..., None] * move
        squared = moved[..., :, None] * move[..., None, :]
        second = second - cross - jnp.swapaxes(cross, -1, -2) + squared
        return count, first - moved, second

    def _means_and_covariances(self, statistics: Array) -> tuple[Array, Array, Array]:
        """Count, mean and covariance of the rows of each component."""
        count, first, second = self._moments(statistics, jnp.asarray(self.center))
        safe = at_least_one(count)
        shift = first / safe[:, None]
        covariances = second / safe[:, None, None] - shift[:, :, None] * shift[:, None, :]
        return count, self.center + shift, covariances

    def _floored(self, covariances: Array, statistics: Array, floor: Array) -> tuple[Array, Array]:
        """Eigenvalues raised to the floor in the metric of the variances of all rows; which had to be."""
        _, _, total = self._means_and_covariances(jnp.sum(statistics, axis=0, keepdims=True))
        scale = jnp.sqrt(jnp.diagonal(total[0]))
        eigenvalues, vectors = jnp.linalg.eigh(covariances / (scale[:, None] * scale))
        raised = jnp.maximum(eigenvalues, floor)
        whitened = (vectors * raised[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)
        at_floor = jnp.any(eigenvalues < floor, axis=-1)
        whole = jnp.where(at_floor[..., None, None], whitened * (scale[:, None] * scale), covariances)
        return whole, at_floor

    def _coefficients(self, constant: Array, shift: Array, precision: Array) -> Array:
        """Expand ``constant - (y - shift)' precision (y - shift) / 2`` in the features of y."""
        row, column = np.triu_indices(self.num_features)
        linear = jnp.einsum("...ij,...j->...i", precision, shift)
        constant = constant - 0.5 * jnp.sum(shift * linear, axis=-1)
        quadratic = precision[..., row, column] * np.where(row == column, -0.5, -1.0)
        lead = linear.shape[:-1]
        parts = [constant[..., None], linear, quadratic]
        return jnp.concatenate([jnp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


# Matrices


def normal_locs(loc: Array, mean_precision: Array, precision: Array) -> dist.Distribution:
    """Normal(loc, (mean_precision * precision)^-1).

    Args:
        loc: shape (num_features,), or one for each component.
        mean_precision: strength, shape () or (num_components,).
        precision: shape (..., num_features, num_features).

    Returns:
        Distribution with event shape (num_features,).
    """
    strength = jnp.asarray(mean_precision)[..., None, None]
    return dist.MultivariateNormal(jnp.asarray(loc), precision_matrix=strength * precision)


def symmetric_inverse(matrix: Array) -> Array:
    """Inverse of positive definite matrices through Cholesky, exactly symmetric.

    Args:
        matrix: shape (..., D, D).

    Returns:
        Shape (..., D, D).
    """
    factor = jnp.linalg.cholesky(matrix)
    identity = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    inverse = cho_solve((factor, True), identity)
    return 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2))


def expected_log_det(q: FullGaussian) -> Array:
    """E[log |precision|] under the Wishart.

    Args:
        q: a posterior.

    Returns:
        Shape (num_components,), in nats.
    """
    d = q.num_features
    half = 0.5 * (jnp.asarray(q.degrees_of_freedom)[..., None] - jnp.arange(d))
    return jnp.sum(digamma(half), axis=-1) + d * jnp.log(2.0) + jnp.linalg.slogdet(q.scale_matrix)[1]


def log_wishart_normaliser(q: FullGaussian) -> Array:
    """Log of the integral of the Wishart kernel |P|^((nu - d - 1)/2) exp(-tr(W^-1 P)/2).

    Args:
        q: a prior or a posterior.

    Returns:
        Shape () or (num_components,), in nats.
    """
    d = q.num_features
    nu = jnp.asarray(q.degrees_of_freedom)
    log_det = jnp.linalg.slogdet(jnp.asarray(q.scale_matrix))[1]
    return 0.5 * nu * (d * jnp.log(2.0) + log_det) + multigammaln(nu / 2, d)


# Checks and data-dependent defaults


def check_location(components: FullGaussian) -> None:
    """Raise ValueError if ``loc`` or ``center`` has the wrong shape or is not finite.

    Args:
        components: the prior.
    """
    if components.is_random("loc"):
        return
    if components.loc.ndim != 1:
        raise ValueError(f"loc must have shape (num_features,); got {components.loc.shape}")
    for name in ("loc", "center"):
        if not np.isfinite(getattr(components, name)).all():
            raise ValueError(f"{name} must be finite; got {getattr(components, name)}")
    if components.center.shape != components.loc.shape:
        raise ValueError(f"center must have the shape of loc; got {components.center.shape}")


def check_mean_precision(components: FullGaussian) -> None:
    """Raise ValueError if ``mean_precision`` is not a positive number.

    Args:
        components: the prior.
    """
    value = components.mean_precision
    if not components.is_random("mean_precision") and (value.shape != () or not 0 < value < np.inf):
        raise ValueError(f"mean_precision must be a positive number; got {value}")


def check_wishart(components: FullGaussian) -> None:
    """Raise ValueError if the Wishart prior is not proper.

    Args:
        components: the prior.
    """
    d, value = components.num_features, components.degrees_of_freedom
    if value.shape != () or not d - 1 < value < np.inf:
        raise ValueError(
            f"degrees_of_freedom must exceed num_features - 1 = {d - 1} for the Wishart prior to be "
            f"proper; got {value}"
        )
    if not components.is_random("scale_matrix"):
        check_positive_definite(components, "scale_matrix")


def check_positive_definite(components: FullGaussian, name: str) -> None:
    """Raise ValueError if a matrix has the wrong shape or is not positive definite.

    Args:
        components: the prior.
        name: of the field that holds the matrix.
    """
    d, matrix = components.num_features, getattr(components, name)
    if matrix.shape != (d, d):
        raise ValueError(f"{name} must have shape ({d}, {d}) to go with loc; got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite; got {matrix}")
    if not np.allclose(matrix, matrix.T, rtol=1e-8) or np.linalg.eigvalsh(matrix)[0] <= 0:
        raise ValueError(f"{name} must be symmetric and positive definite")


def checked_columns(x: Any) -> np.ndarray:
    """The data as a matrix whose every column varies and has no missing cell.

    Args:
        x: data, shape (num_observations, num_features).

    Returns:
        The data as float64, shape (num_observations, num_features).

    Raises:
        ValueError: NaN, infinite or constant columns.
    """
    x = as_matrix(x)
    check_rows(x, 2, "a mixture of one row has nothing to cluster")
    check_finite(x)
    check_not_constant(x)
    return x


def sample_covariance(x: np.ndarray) -> np.ndarray:
    """The covariance, with a ridge and a warning if its columns are collinear.

    Args:
        x: rows, shape (num_observations, num_features).

    Returns:
        Shape (num_features, num_features).
    """
    num_features = x.shape[1]
    check_rows(x, num_features + 1, f"the sample covariance of {num_features} columns; or give scale_matrix")
    covariance = np.cov(x, rowvar=False).reshape(num_features, num_features)
    eigenvalues = np.linalg.eigvalsh(covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))))
    if eigenvalues[0] > 1e-10:
        return covariance
    warnings.warn(
        "the columns of x are collinear: the default prior adds a millionth of each variance to the sample "
        "covariance; leave out redundant columns or give scale_matrix",
        stacklevel=4,
    )
    return covariance + 1e-6 * np.diag(np.diag(covariance))
