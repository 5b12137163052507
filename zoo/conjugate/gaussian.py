r"""Gaussian components with full covariance matrices.

Moments are summed about a fixed point, ``center``, which `from_data` puts at the mean of the data: the
cancellation in the scatter matrices is then harmless, and the prior location may move while the sums remain
valid.

- `GaussianWishart`: unknown mean and full covariance, under the Gaussian-Wishart prior.
- `SharedGaussianWishart`: one covariance for all components ("tied"), each with its mean. The covariance
  couples the components: the evidence of a partition is one number, not a sum over components.
- `GaussianKnownCovariance`, `GaussianKnownMean`: one of the two is known.

Reference: Yu (2006), sections 2.1-2.2, Table 2.1. Correction: the Wishart needs
``degrees_of_freedom > num_features - 1`` (the table says > 0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve

from zoo.answers import TypicalCells
from zoo.checks import (
    as_matrix,
    check_columns,
    check_infinite,
    check_not_constant,
    check_rows,
    check_scale,
    check_some_columns,
    column_labels,
    column_moments,
    column_of,
    degrees_of_freedom,
    is_finite,
    rows_with_weight,
    shown,
    unit_roundoff,
    warn,
    without_columns,
)
from zoo.conjugate.component_prior import (
    LOST_SHARE,
    ComponentPrior,
    Estimate,
    at_least_one,
    bracket,
    learnt_mean_precision,
    num_columns,
    place_of,
    root,
    within_scale,
)
from zoo.conjugate.missing_cells import (
    IncompleteFeatures,
    IncompleteRows,
    check_patterns,
    coefficients_of,
    conditionals_of,
    covariance_of_observed,
    features_of,
    log_predictive_of_observed,
    patterns_of,
    places_of,
    symmetric,
    with_products,
)
from zoo.conjugate.resolution import decimal_step
from zoo.conjugate.rounded import LATTICE, RoundedRows, recorded_steps
from zoo.coordinates import Unit
from zoo.fields import numbers, positive
from zoo.gamma_functions import digamma, gammaln
from zoo.shapes import (
    Features,
    OneOrMore,
    OneOrMoreStatistics,
    RowOrRows,
    Rows,
    RowsByComponent,
    Scalar,
    Statistics,
    Values,
)

LOG_2PI = float(np.log(2 * np.pi))
MATRIX = ("feature", "feature_2")
FIELDS = {
    "loc": ("feature",),
    "mean_precision": (),
    "scale_matrix": MATRIX,
    "degrees_of_freedom": (),
    "covariance": MATRIX,
    "center": ("feature",),
}
OF_ROWS = {"is_stored": False}  # patterns, which follow from the data
_NARROW = 1e-2  # of a column's variance: a combination with less may be what rounding left
PLACE = Unit(1, (-1,), is_location=True)
PARAMETERS = {
    "precisions": ("component", *MATRIX),
    "locs": ("component", "feature"),
    "covariances": ("component", *MATRIX),
}


def _location(**facts: Any) -> Any:
    """A field with a place in the space of a row."""
    return numbers(None, ("feature",), unit=PLACE, **facts)


def _matrix(power: int, **facts: Any) -> Any:
    """A field with a positive definite matrix over the columns."""
    return numbers(None, MATRIX, unit=Unit(power, (-2, -1)), also=_check_positive_definite, **facts)


def _check_positive_definite(name: str, matrix: np.ndarray, _: object) -> None:
    if not np.allclose(matrix, matrix.T, rtol=1e-8) or np.linalg.eigvalsh(matrix)[0] <= 0:
        raise ValueError(f"{name} must be symmetric and positive definite")


def _check_degrees(name: str, value: np.ndarray, prior: Any) -> None:
    least = prior.num_features - 1
    if not value > least:
        raise ValueError(
            f"{name} must exceed num_features - 1 = {least} for the Wishart prior to be proper; "
            f"got {shown(value)}"
        )


def _fields_by_component(*names: str) -> dict[str, tuple[str, ...]]:
    """Dims of the fields of these names in a posterior."""
    return {name: ("component", *FIELDS[name]) for name in names}


class _FullGaussian(ComponentPrior):
    """Gaussian components with full matrices: their sufficient statistics, checks and matrix algebra."""

    loc: Array
    center: Array
    mean_precision: Any
    degrees_of_freedom: Any
    scale_matrix: Any
    patterns: Any

    unit_of_cells = PLACE
    units_of_parameters = dict.fromkeys(("precisions", "shared_precision"), Unit(-1, (-2, -1))) | {
        "covariances": Unit(1, (-2, -1)),
        "locs": PLACE,
    }
    takes_missing = True
    has_correlations = True

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return num_columns(self.center)

    @property
    def field_supports(self) -> dict[str, dist.constraints.Constraint]:
        """The support of each field of a posterior, which makes it a guide with free parameters."""
        supports = {
            "loc": dist.constraints.real_vector,
            "mean_precision": dist.constraints.positive,
            "scale_matrix": dist.constraints.positive_definite,
            "degrees_of_freedom": dist.constraints.greater_than(self.num_features - 1.0),
        }
        return {name: supports[name] for name in self.posterior_dims}

    def validate(self) -> None:
        """Raise ValueError if the patterns of missing cells are of other columns."""
        if self.patterns is not None:
            check_patterns(self.patterns, self.num_features)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        check_columns(x, self.num_features)
        check_infinite(x)
        if self.is_rounded and np.isnan(x).any():
            raise ValueError(
                f"{type(self).__name__} takes rounding with complete rows only: fill the missing cells, "
                "leave rounding out, or take zoo.conjugate.NormalGamma, whose columns are independent"
            )

    @property
    def is_incomplete(self) -> bool:
        """Whether rows miss cells."""
        return self.patterns is not None

    def with_patterns(self, x: Any) -> Self:
        """The family that knows which cells of the rows are missing."""
        patterns = patterns_of(x)
        return self if patterns is None and self.patterns is None else self.replaced(patterns=patterns)

    def complete(self) -> Self:
        """The family of complete rows."""
        return self.replaced(patterns=None)

    def completed(self, key: Array, parameters: Values, assignments: Array, x: Array) -> Array:
        """Rows with their missing cells drawn given the observed ones and the component."""
        if self.patterns is None:
            return x
        drawn = self.features(x).drawn(key, self.coefficients(parameters), assignments)
        return jnp.where(jnp.isnan(x), drawn + self.center, x)

    def expected_sums(
        self, by_row: Array, features: Features | IncompleteFeatures, coefficients: Array
    ) -> Array:
        """Weighted sums of features, those of missing cells at their expectation."""
        if isinstance(features, IncompleteFeatures):
            return features.expected_sums(by_row, coefficients)
        return by_row @ features

    def log_predictive(self, x: Rows) -> RowsByComponent:
        """Log `predictive` density of rows under every component, missing cells integrated out, in nats."""
        if self.patterns is None:
            return super().log_predictive(x)
        return log_predictive_of_observed(self.predictive(), x, jnp.asarray(self.patterns))

    def check_offset(self, x: np.ndarray, dtype: str, weight: np.ndarray | None = None) -> None:
        """Raise ValueError if a prior of means and full covariances is too far from the rows.

        Between a mean at m and a prior location at m_0 the scatter of a component grows by a multiple of
        (m - m_0)(m - m_0)', beside which rounding loses the covariance of the rows.
        """
        if "scale_matrix" not in self.field_dims:
            return
        means, deviations = column_moments(x, weight)
        loc = np.asarray(self.loc.mean if self.is_random("loc") else self.loc)
        least = np.where(deviations > 0, deviations, np.inf)
        distance = np.abs(means - loc) / least
        column, limit = int(np.argmax(distance)), float(np.sqrt(LOST_SHARE / unit_roundoff(dtype)))
        if distance[column] <= limit:
            return
        single = dtype == "float32" and distance[column] <= np.sqrt(LOST_SHARE / unit_roundoff("float64"))
        remedy = ", or fit with dtype='float64'" if single else ""
        raise ValueError(
            f"the data and the prior location are far apart: {column_of(x, column)} of x has mean "
            f"{means[column]:.6g} and standard deviation {deviations[column]:.3g}, and loc is "
            f"{loc[column]:.6g} there; beyond {limit:.2g} standard deviations {dtype} loses the covariance "
            f"of the rows: give loc near the data ({type(self).__name__}.from_data does){remedy}"
        )

    def features(self, x: RowOrRows) -> Features | IncompleteFeatures:
        """Sufficient statistics of rows: ``[1, y, upper triangle of y y']`` with ``y = x - center``."""
        if self.patterns is not None:
            patterns = jnp.asarray(self.patterns)
            return IncompleteFeatures(features_of(x, self.center), places_of(x, patterns), patterns)
        return with_products(x - self.center)

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return self._observed(self._rows(parameters), parameters)

    def likelihood_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``."""
        return self._observed(self._rows_of(parameters, assignments), parameters, assignments)

    def _rows(self, parameters: Values) -> dist.Distribution:
        """Complete rows under each component."""
        return dist.MultivariateNormal(
            parameters["locs"], precision_matrix=parameters["precisions"], validate_args=False
        )

    def _rows_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """Complete rows under the components that they are assigned to."""
        return self._rows({name: value[assignments] for name, value in parameters.items()})

    def _observed(
        self, rows: dist.Distribution, parameters: Values, assignments: Array | None = None
    ) -> dist.Distribution:
        """The distribution of rows, of their observed cells where some are missing."""
        if self.is_rounded:
            return RoundedRows(rows, self.rounding)
        if self.patterns is None:
            return rows
        patterns, center = jnp.asarray(self.patterns), jnp.asarray(self.center)
        return IncompleteRows(rows, self.coefficients(parameters), patterns, center, assignments)

    @property
    def density_passes(self) -> int:
        """Once, or for each point of the lattice that cells recorded in steps take."""
        return len(LATTICE) if self.is_rounded else 1

    def cell_given_others(
        self, parameters: Values, assignments: Array, x: Rows, column: Array | int
    ) -> dist.Normal:
        """A cell of each row given the others and the component, see `ComponentPrior.cell_given_others`."""
        rows = self._rows(parameters)
        shape = (*rows.loc.shape, self.num_features)
        precision = jnp.broadcast_to(rows.precision_matrix, shape)[assignments, column]
        strength, pull = precision[:, column], jnp.sum(precision * (x - rows.loc[assignments]), axis=-1)
        return dist.Normal(x[:, column] - pull / strength, 1 / jnp.sqrt(strength))

    def typical_cells(self, parameters: Values) -> tuple[TypicalCells, ...]:
        """Means and deviations of the columns; see `ComponentPrior.typical_cells`."""
        variances = jnp.diagonal(jnp.asarray(parameters["covariances"]), axis1=-2, axis2=-1)
        columns = np.arange(self.num_features)
        return (TypicalCells("mean", columns, jnp.asarray(parameters["locs"]), jnp.sqrt(variances)),)

    def cells_given(self, parameters: Values, x: Array) -> tuple[TypicalCells, ...]:
        """Means and deviations of missing cells given the others; see `ComponentPrior.cells_given`."""
        if self.patterns is None:
            return super().cells_given(parameters, x)
        patterns, columns = jnp.asarray(self.patterns), np.arange(self.num_features)
        found, place = conditionals_of(self.coefficients(parameters), patterns), places_of(x, patterns)
        y = jnp.where(jnp.isnan(x), 0.0, x - self.center)
        mean = jnp.einsum("nkij,nj->nki", found.matrix[place], y) + found.shift[place] + self.center
        variances = jnp.diagonal(found.covariance, axis1=-2, axis2=-1)[place]
        return (TypicalCells("mean", columns, mean, jnp.sqrt(variances)),)

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values.

        Shape (num_components, num_statistics).
        """
        precision = parameters["precisions"]
        constant = 0.5 * (log_det(precision) - self.num_features * LOG_2PI)
        return self._coefficients(constant, parameters["locs"] - self.center, precision)

    def _moments(self, statistics: Array, about: Array) -> tuple[Array, Array, Array]:
        """Count, sum and sum of squares about a point."""
        d = self.num_features
        count, first, second = statistics[..., 0], statistics[..., 1 : d + 1], statistics[..., d + 1 :]
        move = about - self.center
        cross = first[..., :, None] * move[..., None, :]
        moved = count[..., None] * move
        squared = moved[..., :, None] * move[..., None, :]
        second = symmetric(second, d) - cross - jnp.swapaxes(cross, -1, -2) + squared
        return count, first - moved, second

    def _means_and_covariances(self, statistics: Array) -> tuple[Array, Array, Array]:
        """Count, mean and covariance of the rows of each component."""
        count, first, second = self._moments(statistics, jnp.asarray(self.center))
        safe = at_least_one(count)
        shift = first / safe[:, None]
        covariances = second / safe[:, None, None] - shift[:, :, None] * shift[:, None, :]
        return count, self.center + shift, covariances

    def _precisions(self, covariances: Array, statistics: Array, floor: Array) -> tuple[Array, Array]:
        """Inverses of covariances, with eigenvalues at least the floor in the metric of all rows' variances.

        Returned with a flag for each covariance that had to be raised. From the eigenvalues: an LU inverse at
        a floor of 1e-6 leaves five digits of the small eigenvalues of the precision, and the objective falls
        by 1e-4 nats.
        """
        _, _, total = self._means_and_covariances(jnp.sum(statistics, axis=0, keepdims=True))
        scale = jnp.sqrt(jnp.diagonal(total[0]))
        metric = scale[:, None] * scale
        eigenvalues, vectors = jnp.linalg.eigh(covariances / metric)
        raised = jnp.maximum(eigenvalues, floor)
        whitened = (vectors / raised[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)
        return whitened / metric, jnp.any(eigenvalues < floor, axis=-1)

    def _coefficients(self, constant: Array, shift: Array, precision: Array) -> Array:
        """Expand ``constant - (y - shift)' precision (y - shift) / 2`` in the features of y."""
        linear = jnp.sum(precision * shift[..., None, :], axis=-1)  # a product a component: longer to compile
        return coefficients_of(constant - 0.5 * jnp.sum(shift * linear, axis=-1), linear, precision)


# Matrices


def _wishart(degrees_of_freedom: Array, scale_matrix: Array) -> dist.Distribution:
    """The Wishart distribution; a prior's fields are checked by `ComponentPrior`, not in every program."""
    return dist.Wishart(degrees_of_freedom, scale_matrix=scale_matrix, validate_args=False)


def _normal_locs(loc: Array, mean_precision: Array, precision: Array) -> dist.Distribution:
    """Normal(loc, (mean_precision * precision)^-1).

    Args:
        loc: shape (num_features,), or one for each component.
        mean_precision: strength, shape () or (num_components,).
        precision: shape (..., num_features, num_features).

    Returns:
        Distribution with event shape (num_features,).
    """
    strength = jnp.asarray(mean_precision)[..., None, None]
    return dist.MultivariateNormal(
        jnp.asarray(loc), precision_matrix=strength * precision, validate_args=False
    )


def symmetric_inverse(matrix: Array) -> Array:
    """Inverse of positive definite matrices through Cholesky, exactly symmetric.

    Args:
        matrix: shape (..., D, D).

    Returns:
        Shape (..., D, D).
    """
    factor = jnp.linalg.cholesky(matrix)
    row, column = (jax.lax.broadcasted_iota(int, matrix.shape, matrix.ndim - axis) for axis in (2, 1))
    identity = (row == column).astype(matrix.dtype)  # elementwise: a copy into LAPACK's layout compiles long
    inverse = cho_solve((factor, True), identity)
    return 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2))


def log_det(matrix: Array) -> Array:
    """Log determinant of positive definite matrices through Cholesky.

    Args:
        matrix: shape (..., D, D).

    Returns:
        Shape (...), in nats.
    """
    diagonal = jnp.diagonal(jnp.linalg.cholesky(matrix), axis1=-2, axis2=-1)
    return 2 * jnp.sum(jnp.log(diagonal), axis=-1)


class WishartNumbers(Protocol):
    """What has the numbers of a Wishart distribution: a family, or a factor of q."""

    @property
    def num_features(self) -> int: ...  # noqa: D102

    @property
    def scale_matrix(self) -> Any: ...  # noqa: D102

    @property
    def degrees_of_freedom(self) -> Any: ...  # noqa: D102


def expected_log_det(q: WishartNumbers) -> Array:
    """E[log |precision|] under the Wishart.

    Args:
        q: a posterior.

    Returns:
        Shape (num_components,), in nats.
    """
    d = q.num_features
    half = 0.5 * (jnp.asarray(q.degrees_of_freedom)[..., None] - jnp.arange(d))
    return jnp.sum(digamma(half), axis=-1) + d * np.log(2.0) + log_det(q.scale_matrix)


def log_wishart_normaliser(q: WishartNumbers) -> Array:
    """Log of the integral of the Wishart kernel |P|^((nu - d - 1)/2) exp(-tr(W^-1 P)/2).

    Args:
        q: a prior or a posterior.

    Returns:
        Shape () or (num_components,), in nats.
    """
    d = q.num_features
    nu = jnp.asarray(q.degrees_of_freedom)
    constant = 0.25 * d * (d - 1) * np.log(np.pi)
    log_gammas = jnp.sum(gammaln(0.5 * (nu[..., None] - np.arange(d))), axis=-1)
    return 0.5 * nu * (d * np.log(2.0) + log_det(jnp.asarray(q.scale_matrix))) + constant + log_gammas


def _checked_columns(x: Any, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The rows with weight as a matrix in which every column has cells, and varies, and their weights."""
    x, weight = rows_with_weight(as_matrix(x), weight)
    check_rows(x, 2, "a mixture of one row has nothing to cluster")
    check_infinite(x)
    check_scale(x)
    check_some_columns(x)
    check_not_constant(x)
    return x, weight


def _means(x: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Means of the columns: of complete rows their sums, else those that the observed cells make likely."""
    return np.average(x, axis=0, weights=weight) if is_finite(x) else covariance_of_observed(x, weight)[0]


def _related(x: np.ndarray, direction: np.ndarray) -> tuple[str, str]:
    """The columns whose sum, weighted by ``direction``, hardly varies, and how to leave the last out."""
    places = np.flatnonzero(np.abs(direction) > 0.1 * np.abs(direction).max()).tolist()
    named = ", ".join(map(repr, column_labels(x, places)))
    return f"the columns {named} of x", f"leave one of them out, {without_columns(x, places[-1:])}"


def _default_scale_matrix(x: np.ndarray, weight: np.ndarray | None, strength: np.ndarray) -> np.ndarray:
    """The inverse of the sample covariance over ``strength``; a warning if the columns are collinear.

    Where they are but for rounding, the prior expects a component to be as narrow as the rounding.
    """
    num_features = x.shape[1]
    why = f"the sample covariance of {num_features} columns; for independent ones NormalGamma(), or"
    check_rows(x, num_features + 1, f"{why} give scale_matrix")
    if not is_finite(x):
        covariance = covariance_of_observed(x, weight)[1]
    elif weight is None:
        covariance = np.cov(x, rowvar=False).reshape(num_features, num_features)
    else:
        away = x - _means(x, weight)
        covariance = (weight * away.T) @ away / degrees_of_freedom(weight.sum(), 1)
    variances = np.diag(covariance)
    deviations = np.sqrt(variances)  # a product of two variances would leave the range of doubles long before
    spectrum, directions = np.linalg.eigh(covariance / deviations[:, None] / deviations)
    those, remedy = _related(x, directions[:, 0])
    if spectrum[0] <= 1e-10:
        if spectrum[1] <= 1e-10:  # several relations, of which a direction names a mixture
            those, remedy = "the columns of x", "leave out redundant columns"
        warn(
            f"{those} are collinear: the default prior adds a millionth of each variance to the sample "
            f"covariance; {remedy}, or give scale_matrix"
        )
        covariance = covariance + 1e-6 * np.diag(variances)
    elif spectrum[0] < _NARROW and len(x) >= 10 * len(spectrum):  # fewer lie near a plane by chance
        steps = np.array([decimal_step(column) for column in x.T])
        rounded = np.sum((directions[:, 0] / deviations * steps) ** 2) / 12
        if spectrum[0] <= 2 * rounded:
            warn(
                f"{those} determine each other but for rounding, and clusters may part rows by what was "
                f"rounded off: {remedy}"
            )
    inverse = np.linalg.inv(covariance)
    if not np.allclose(inverse, inverse.T, rtol=1e-8):  # nearly singular: its halves differ by rounding
        inverse = (inverse + inverse.T) / 2
    return inverse / strength


@dataclass(frozen=True, eq=False)
class GaussianWishart(_FullGaussian):
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
        degrees_of_freedom: :math:`\nu_0` > num_features - 1. The prior mean of the covariance exists above
            num_features + 1 only.
        center: the point about which moments are summed; by default ``loc`` or its prior mean.
        patterns: of missing cells, ones where cells are missing, shape (num_patterns, num_features); set
            for a fit by `with_patterns`. None: rows are complete.
        rounding: steps in which cells were recorded, shape (num_features,), 0 for exact ones, in the units
            of the data: each cell stands for an interval (`zoo.conjugate.rounded`). None: cells are exact.
    """

    loc: Array | dist.Distribution | None = _location(prior=(dist.MultivariateNormal,))
    mean_precision: Array | dist.Distribution | None = positive(prior=(dist.Gamma,))
    scale_matrix: Array | dist.Distribution | None = _matrix(-1, prior=(dist.Wishart,))
    degrees_of_freedom: Array | None = numbers(also=_check_degrees)
    center: Array | None = _location(otherwise=place_of)
    patterns: Array | None = field(default=None, metadata=OF_ROWS)
    rounding: Array | None = recorded_steps()

    learnable: ClassVar[tuple[str, ...]] = ("loc", "mean_precision", "scale_matrix", "degrees_of_freedom")
    posterior_dims = _fields_by_component(*learnable)
    parameter_dims = PARAMETERS

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """The default prior for these data.

        Centred at the mean, a hundredth of a row strong, scaled so that E[beta0 * precision] = S^-1.

        ``S`` is the sample covariance; ``scale_matrix = S^-1 / (mean_precision * degrees_of_freedom)``, which
        is how we read Yu (2006, section 2.2.4), "the inverse of the sample covariance divided by beta_0": of
        the readings that were tried it alone fits both the published bounds and Table 3.1.
        ``degrees_of_freedom`` is num_features, as there (2 for two features). The scale of Fraley and Raftery
        (2007), S / K^(2/d) with d + 2 degrees of freedom, is no better in held-out density on twelve tables
        (``tests/reference/benchmark_gaussian_prior.json``).

        Args:
            x: data, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields to set instead; the scale matrix follows ``mean_precision`` and
                ``degrees_of_freedom``.

        Returns:
            The prior.

        Raises:
            ValueError: infinite, constant or wholly missing columns, or no more rows than columns (their
                covariance is singular).
        """
        x, weight = _checked_columns(x, sample_weight)
        mean = _means(x, weight)
        fields: dict[str, Any] = {
            "loc": mean,
            "mean_precision": 0.01,
            "degrees_of_freedom": float(x.shape[1]),
            "center": mean,
        }
        fields |= overrides
        if "scale_matrix" not in fields:
            worth = fields["mean_precision"]
            worth = np.asarray(worth.mean if isinstance(worth, dist.Distribution) else worth, np.float64)
            strength = worth * np.asarray(fields["degrees_of_freedom"])
            fields["scale_matrix"] = _default_scale_matrix(x, weight, strength)
        return cls(**fields)

    # The program

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The precisions, then the means given ``values["precisions"]``."""
        drawn = {"precisions": _wishart(self.degrees_of_freedom, self.scale_matrix)}
        if "precisions" in values:
            drawn["locs"] = _normal_locs(self.loc, self.mean_precision, values["precisions"])
        return drawn

    def _rows_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """Complete rows under the components that they are assigned to."""
        components = self._rows(parameters)  # factorised once per component, not once per row
        return dist.MultivariateNormal(
            components.loc[assignments], scale_tril=components.scale_tril[assignments], validate_args=False
        )

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """The covariances, which the sampler does not need."""
        return {"covariances": symmetric_inverse(parameters["precisions"])}

    # Posterior, expectations

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
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
        rate_matrix = symmetric_inverse(jnp.asarray(self.scale_matrix)) + scatter
        return self.replaced(
            loc=self.loc + shift,
            mean_precision=mean_precision,
            scale_matrix=symmetric_inverse(rate_matrix),
            degrees_of_freedom=self.degrees_of_freedom + count,
        )

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`.

        Shape (num_components, num_statistics).
        """
        d = self.num_features
        precision = posterior.degrees_of_freedom[..., None, None] * posterior.scale_matrix
        constant = 0.5 * (expected_log_det(posterior) - d * LOG_2PI - d / posterior.mean_precision)
        return self._coefficients(constant, posterior.loc - self.center, precision)

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the rows of each component with its parameters integrated out, in nats.

        Shape (num_components,).
        """
        return self.log_evidence_beside(self.posterior(statistics), statistics)

    def log_evidence_beside(self, posterior: Self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """`log_evidence` without factors of matrices that the posterior has been made of."""
        base = -0.5 * self.num_features * LOG_2PI * statistics[..., 0]
        return _log_normaliser(posterior) - _log_normaliser(self) + base

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the component's parameters integrated out.

        A multivariate Student-t (Yu 2006, after 3.9).
        """
        d = self.num_features
        df = jnp.asarray(self.degrees_of_freedom) - d + 1
        rate = symmetric_inverse(jnp.asarray(self.scale_matrix))
        scale = (1 + self.mean_precision) / (self.mean_precision * df)
        factor = jnp.linalg.cholesky(scale[..., None, None] * rate)
        return dist.MultivariateStudentT(df, jnp.asarray(self.loc), factor, validate_args=False)

    # Estimates

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The precisions and means."""
        count, locs, covariances = self._means_and_covariances(statistics)
        precisions, at_floor = self._precisions(covariances, statistics, variance_floor)
        parameters = {"precisions": precisions, "locs": locs}
        return Estimate(parameters, jnp.sum(at_floor & (count > 0)))

    def num_free_parameters(self, num_components: int) -> int:
        """A vector and a symmetric matrix for each component."""
        d = self.num_features
        return num_components * d + num_components * d * (d + 1) // 2

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        precision = _expected_precision(posterior)
        fields = _learnt_location(self, posterior, given, learn, precision)
        return self.replaced(**fields, **_learnt_wishart(self, posterior, given, learn, precision))


def _expected_precision(q: _FullGaussian) -> Array:
    """E[precision] of every component, shape (num_components, D, D), of one that all share too."""
    precision = jnp.asarray(q.degrees_of_freedom)[..., None, None] * q.scale_matrix
    return jnp.broadcast_to(precision, (jnp.shape(q.loc)[0], *precision.shape[-2:]))


def _learnt_location(
    prior: _FullGaussian, q: _FullGaussian, given: _FullGaussian, learn: tuple[str, ...], precision: Array
) -> dict[str, Array]:
    """The best location and mean precision for means with q; ``precision`` is E[precision] of each."""
    d, num_components = prior.num_features, q.loc.shape[0]
    fields: dict[str, Array] = {}
    loc = prior.loc
    if "loc" in learn:
        pull = jnp.einsum("kij,kj->i", precision, q.loc - prior.center)
        loc = fields["loc"] = prior.center + jnp.linalg.solve(jnp.sum(precision, axis=0), pull)
    if "mean_precision" in learn:
        gap = q.loc - loc
        spread = jnp.sum(d / q.mean_precision) + jnp.einsum("ki,kij,kj->", gap, precision, gap)
        fields["mean_precision"] = learnt_mean_precision(given, num_components * d, spread)
    return fields


def _learnt_wishart(
    prior: _FullGaussian, q: _FullGaussian, given: _FullGaussian, learn: tuple[str, ...], precision: Array
) -> dict[str, Array]:
    """The best scale matrix and degrees of freedom for precisions with q, of mean ``precision``."""
    d = prior.num_features
    fields: dict[str, Array] = {}
    average = jnp.mean(precision, axis=0)
    mean_log_det = jnp.mean(expected_log_det(q))
    if "degrees_of_freedom" in learn:
        joint = "scale_matrix" in learn
        log_scale = log_det(average if joint else jnp.asarray(prior.scale_matrix))

        def slope(excess: Array) -> Array:
            nu = excess + (d - 1)
            scale = log_scale - d * jnp.log(nu) if joint else log_scale  # W0 = average / nu, its best
            return mean_log_det - scale - d * jnp.log(2.0) - jnp.sum(digamma(0.5 * (nu - jnp.arange(d))))

        fields["degrees_of_freedom"] = d - 1 + root(slope, *bracket("degrees_of_freedom", mean_log_det))
    if "scale_matrix" in learn:
        best = average / fields.get("degrees_of_freedom", prior.degrees_of_freedom)
        fields["scale_matrix"] = within_scale(best, jnp.asarray(given.scale_matrix))
    return fields


def _log_normaliser(q: GaussianWishart) -> Array:
    """Log of the integral of the Gaussian-Wishart kernel; the evidence is a difference of two."""
    d = q.num_features
    return log_wishart_normaliser(q) + 0.5 * d * (LOG_2PI - jnp.log(jnp.asarray(q.mean_precision)))


@dataclass(frozen=True, eq=False)
class SharedGaussianWishart(GaussianWishart):
    r"""Normal components with different means and one covariance for all ("tied").

    .. math::
        \Lambda \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        \mu_k \mid \Lambda \sim \mathrm{Normal}(m_0, (\beta_0 \Lambda)^{-1}), \quad
        x \mid \mu_k, \Lambda \sim \mathrm{Normal}(\mu_k, \Lambda^{-1}).

    Fields and default prior are those of `GaussianWishart`. A posterior has a leading axis over components in
    ``loc`` and ``mean_precision`` only, and the evidence is one number for all components.
    """

    posterior_dims = _fields_by_component("loc", "mean_precision") | {
        "scale_matrix": MATRIX,
        "degrees_of_freedom": (),
    }
    parameter_dims = {"shared_precision": MATRIX} | {
        name: PARAMETERS[name] for name in ("locs", "covariances")
    }
    couples_components = True
    learnable = ("loc", "mean_precision", "scale_matrix")

    def sample(self, num_components: int) -> dict[str, Array]:
        """The shared precision, then the means of all components, as NumPyro statements."""
        shared = {"shared_precision": numpyro.sample("shared_precision", self._precision())}
        with numpyro.plate("components", num_components):
            return self.named(shared | {"locs": numpyro.sample("locs", self.conditionals(shared)["locs"])})

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The shared precision, then the means given ``values["shared_precision"]``."""
        drawn = {"shared_precision": self._precision()}
        if "shared_precision" in values:
            drawn["locs"] = _normal_locs(self.loc, self.mean_precision, values["shared_precision"])
        return drawn

    def _rows(self, parameters: Values) -> dist.Distribution:
        """Complete rows under each component."""
        return dist.MultivariateNormal(
            parameters["locs"], precision_matrix=parameters["shared_precision"], validate_args=False
        )

    def _rows_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """Complete rows under the components that they are assigned to."""
        return self._rows(
            {"locs": parameters["locs"][assignments], "shared_precision": parameters["shared_precision"]}
        )

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """The covariance, once per component, as the other Gaussian families have it."""
        covariance = symmetric_inverse(parameters["shared_precision"])
        count = parameters["locs"].shape[-2]
        return {"covariances": jnp.broadcast_to(covariance, (count, *covariance.shape[-2:]))}

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior given the statistics of all components, shape (num_components, num_statistics)."""
        each = super().posterior(statistics)
        prior_rate = symmetric_inverse(jnp.asarray(self.scale_matrix))
        count, first, second = self._moments(statistics, self.loc)
        scatter = second - first[..., :, None] * (first / each.mean_precision[..., None])[..., None, :]
        return each.replaced(
            scale_matrix=symmetric_inverse(prior_rate + jnp.sum(scatter, axis=-3)),
            degrees_of_freedom=self.degrees_of_freedom + jnp.sum(count, axis=-1),
        )

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return super().coefficients({**parameters, "precisions": parameters["shared_precision"]})

    def log_evidence(self, statistics: OneOrMoreStatistics) -> Scalar:
        """Log probability of all rows with means and covariance integrated out, in nats; one number."""
        return self.log_evidence_beside(self.posterior(statistics), statistics)

    def log_evidence_beside(self, posterior: Self, statistics: OneOrMoreStatistics) -> Scalar:
        """`log_evidence` without factors of matrices that the posterior has been made of."""
        d = self.num_features
        base = -0.5 * d * LOG_2PI * jnp.sum(statistics[..., 0])
        means = 0.5 * d * jnp.sum(jnp.log(self.mean_precision) - jnp.log(posterior.mean_precision))
        return log_wishart_normaliser(posterior) - log_wishart_normaliser(self) + means + base

    def lost_share(self, parameters: Mapping[str, np.ndarray], dtype: str) -> np.ndarray:
        """The share of the common variance that rounding makes uncertain, by component and column."""
        shared = np.asarray(parameters["shared_precision"])[..., None, :, :]
        return super().lost_share({"locs": parameters["locs"], "precisions": shared}, dtype)

    def predictive(self) -> dist.Distribution:
        """The density of a new row with mean and covariance integrated out: a multivariate Student-t."""
        d = self.num_features
        df = jnp.asarray(self.degrees_of_freedom) - d + 1
        rate = symmetric_inverse(jnp.asarray(self.scale_matrix))
        scale = (1 + jnp.asarray(self.mean_precision)) / (self.mean_precision * df)
        tril = jnp.sqrt(scale)[..., None, None] * jnp.linalg.cholesky(rate)
        return dist.MultivariateStudentT(df, jnp.asarray(self.loc), tril)

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The shared precision and the means."""
        count, locs, covariances = self._means_and_covariances(statistics)
        pooled = jnp.einsum("k,kij->ij", count, covariances) / jnp.sum(count)
        precision, at_floor = self._precisions(pooled, statistics, variance_floor)
        return Estimate({"shared_precision": precision, "locs": locs}, at_floor.astype(int))

    def num_free_parameters(self, num_components: int) -> int:
        """A vector for each component, and one symmetric matrix."""
        return num_components * self.num_features + self.num_features * (self.num_features + 1) // 2

    def _precision(self) -> dist.Distribution:
        return _wishart(self.degrees_of_freedom, self.scale_matrix)


@dataclass(frozen=True, eq=False)
class GaussianKnownCovariance(_FullGaussian):
    r"""Normal components with unknown means and known covariance.

    .. math::
        \mu_k \sim \mathrm{Normal}(m_0, \Sigma / \beta_0), \quad
        x \mid \mu_k \sim \mathrm{Normal}(\mu_k, \Sigma).

    Attributes:
        loc: :math:`m_0`, shape (num_features,); or a ``MultivariateNormal``.
        mean_precision: :math:`\beta_0 > 0`, the number of rows that the prior mean is worth; or a ``Gamma``.
        covariance: :math:`\Sigma`, shape (num_features, num_features), known.
        center: the point about which moments are summed; by default ``loc`` or its prior mean.
        patterns: of missing cells, ones where cells are missing, shape (num_patterns, num_features); set
            for a fit by `with_patterns`. None: rows are complete.
        rounding: steps in which cells were recorded, shape (num_features,), 0 for exact ones, in the units
            of the data: each cell stands for an interval (`zoo.conjugate.rounded`). None: cells are exact.
    """

    loc: Array | dist.Distribution | None = _location(prior=(dist.MultivariateNormal,))
    mean_precision: Array | dist.Distribution | None = positive(prior=(dist.Gamma,))
    covariance: Array | None = _matrix(1)
    center: Array | None = _location(otherwise=place_of)
    patterns: Array | None = field(default=None, metadata=OF_ROWS)
    rounding: Array | None = recorded_steps()

    learnable = ("loc", "mean_precision")
    posterior_dims = _fields_by_component("loc", "mean_precision")
    parameter_dims = {name: PARAMETERS[name] for name in ("locs", "covariances")}

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """Centred at the mean, a hundredth of a row strong.

        Args:
            x: data, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields; ``covariance`` must be among them, since it is known.

        Returns:
            The prior.

        Raises:
            ValueError: no ``covariance``, infinite cells, or a wholly missing column.
        """
        if "covariance" not in overrides:
            raise ValueError(
                "GaussianKnownCovariance needs covariance=, of shape (num_features, num_features)"
            )
        x, weight = rows_with_weight(as_matrix(x), sample_weight)
        check_infinite(x)
        check_some_columns(x)
        mean = _means(x, weight)
        fields: dict[str, Any] = {"loc": mean, "mean_precision": 0.01, "center": mean}
        return cls(**fields | overrides)

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The means."""
        return {"locs": _normal_locs(self.loc, self.mean_precision, self._precision())}

    def _rows(self, parameters: Values) -> dist.Distribution:
        """Complete rows under each component."""
        return dist.MultivariateNormal(
            parameters["locs"], covariance_matrix=jnp.asarray(self.covariance), validate_args=False
        )

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """The covariance, once per component, as the other Gaussian families have it."""
        shape = (*parameters["locs"].shape, self.num_features)
        return {"covariances": jnp.broadcast_to(jnp.asarray(self.covariance), shape)}

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        count, first, _ = self._moments(statistics, self.loc)
        mean_precision = self.mean_precision + count
        return self.replaced(loc=self.loc + first / mean_precision[..., None], mean_precision=mean_precision)

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        constant = self._constant() - 0.5 * self.num_features / posterior.mean_precision
        return self._coefficients(constant, posterior.loc - self.center, self._precision())

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return self._coefficients(self._constant(), parameters["locs"] - self.center, self._precision())

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
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
        return dist.MultivariateNormal(jnp.asarray(self.loc), scale_tril=tril, validate_args=False)

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The means."""
        return Estimate({"locs": self._means_and_covariances(statistics)[1]}, jnp.zeros((), int))

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        d = self.num_features
        precision = jnp.broadcast_to(self._precision(), (posterior.loc.shape[0], d, d))
        return self.replaced(**_learnt_location(self, posterior, given, learn, precision))

    def _precision(self) -> Array:
        return symmetric_inverse(jnp.asarray(self.covariance))

    def _constant(self) -> Array:
        return -0.5 * (self.num_features * LOG_2PI + log_det(jnp.asarray(self.covariance)))


@dataclass(frozen=True, eq=False)
class GaussianKnownMean(_FullGaussian):
    r"""Normal components with a known common mean and unknown precisions: a scale mixture.

    .. math::
        \Lambda_k \sim \mathrm{Wishart}(W_0, \nu_0), \quad
        x \mid \Lambda_k \sim \mathrm{Normal}(m, \Lambda_k^{-1}).

    Attributes:
        loc: :math:`m`, the known mean of all components, shape (num_features,).
        scale_matrix: :math:`W_0`, shape (num_features, num_features), positive definite; or a ``Wishart``,
            the prior of its inverse.
        degrees_of_freedom: :math:`\nu_0` > num_features - 1.
        center: the point about which moments are summed; by default ``loc``.
        patterns: of missing cells, ones where cells are missing, shape (num_patterns, num_features); set
            for a fit by `with_patterns`. None: rows are complete.
        rounding: steps in which cells were recorded, shape (num_features,), 0 for exact ones, in the units
            of the data: each cell stands for an interval (`zoo.conjugate.rounded`). None: cells are exact.
    """

    loc: Array | None = _location()
    scale_matrix: Array | dist.Distribution | None = _matrix(-1, prior=(dist.Wishart,))
    degrees_of_freedom: Array | None = numbers(also=_check_degrees)
    center: Array | None = _location(otherwise=place_of)
    patterns: Array | None = field(default=None, metadata=OF_ROWS)
    rounding: Array | None = recorded_steps()

    learnable = ("scale_matrix", "degrees_of_freedom")
    posterior_dims = _fields_by_component("scale_matrix", "degrees_of_freedom")
    parameter_dims = PARAMETERS

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """The known mean is that of the columns unless ``loc`` is given; E[precision] = S^-1.

        ``S`` is the sample covariance, ``degrees_of_freedom`` is num_features.

        Args:
            x: data, shape (num_observations, num_features).
            sample_weight: weight of each row, shape (num_observations,); None: one.
            **overrides: fields to set instead.

        Returns:
            The prior.

        Raises:
            ValueError: infinite, constant or wholly missing columns, or no more rows than columns.
        """
        x, weight = _checked_columns(x, sample_weight)
        mean = _means(x, weight)
        fields: dict[str, Any] = {
            "loc": mean,
            "degrees_of_freedom": float(x.shape[1]),
            "center": mean,
        } | overrides
        if "scale_matrix" not in fields:
            fields["scale_matrix"] = _default_scale_matrix(
                x, weight, np.asarray(fields["degrees_of_freedom"])
            )
        return cls(**fields)

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The precisions."""
        return {"precisions": _wishart(self.degrees_of_freedom, self.scale_matrix)}

    def _rows(self, parameters: Values) -> dist.Distribution:
        """Complete rows under each component."""
        return super()._rows({**parameters, "locs": self._locs(parameters)})

    def deterministics(self, parameters: Values) -> dict[str, Array]:
        """Covariances, and the known mean once per component, as the other Gaussian families have it."""
        covariances = symmetric_inverse(parameters["precisions"])
        return {"covariances": covariances, "locs": self._locs(parameters)}

    def _locs(self, parameters: Values) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.loc), parameters["precisions"].shape[:-1])

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        count, _, second = self._moments(statistics, self.loc)
        rate_matrix = symmetric_inverse(jnp.asarray(self.scale_matrix)) + second
        return self.replaced(
            scale_matrix=symmetric_inverse(rate_matrix), degrees_of_freedom=self.degrees_of_freedom + count
        )

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        precision = posterior.degrees_of_freedom[..., None, None] * posterior.scale_matrix
        constant = 0.5 * (expected_log_det(posterior) - self.num_features * LOG_2PI)
        shift = jnp.broadcast_to(self.loc - self.center, precision.shape[:-1])
        return self._coefficients(constant, shift, precision)

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return super().coefficients({**parameters, "locs": self._locs(parameters)})

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the rows of each component with its precision integrated out, in nats."""
        base = -0.5 * self.num_features * LOG_2PI * statistics[..., 0]
        return log_wishart_normaliser(self.posterior(statistics)) - log_wishart_normaliser(self) + base

    def predictive(self) -> dist.Distribution:
        """The density of a new row with the precision integrated out: a multivariate Student-t."""
        df = jnp.asarray(self.degrees_of_freedom) - self.num_features + 1
        rate = symmetric_inverse(jnp.asarray(self.scale_matrix))
        loc = jnp.broadcast_to(jnp.asarray(self.loc), rate.shape[:-1])
        return dist.MultivariateStudentT(df, loc, jnp.linalg.cholesky(rate / df[..., None, None]))

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The precisions about the known mean."""
        count, _, second = self._moments(statistics, jnp.asarray(self.loc))
        covariances = second / at_least_one(count)[:, None, None]
        precisions, at_floor = self._precisions(covariances, statistics, variance_floor)
        return Estimate({"precisions": precisions}, jnp.sum(at_floor & (count > 0)))

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with hyperparameters moved to where the variational bound is highest."""
        precision = jnp.asarray(posterior.degrees_of_freedom)[:, None, None] * posterior.scale_matrix
        return self.replaced(**_learnt_wishart(self, posterior, given, learn, precision))

    def num_free_parameters(self, num_components: int) -> int:
        """A symmetric matrix for each component."""
        return num_components * self.num_features * (self.num_features + 1) // 2
