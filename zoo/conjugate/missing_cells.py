r"""Rows with missing cells under Gaussian components with full matrices, integrated out exactly.

The log density of a complete row is quadratic, :math:`c + b^\top y - \tfrac12 y^\top P y` with y the
row less the center: its coefficients on the row's features. With observed cells O and missing ones M

.. math::
    \log \int \exp\{c + b^\top y - \tfrac12 y^\top P y\}\, dy_M
    = c' + b'^\top y_O - \tfrac12 y_O^\top P' y_O,

.. math::
    P' = P_{OO} - P_{OM} P_{MM}^{-1} P_{MO}, \quad b' = b_O - P_{OM} P_{MM}^{-1} b_M, \quad
    c' = c + \tfrac12 b_M^\top P_{MM}^{-1} b_M - \tfrac12 \log |P_{MM}| + \tfrac12 |M| \log 2\pi,

again quadratic, so that rows with the same missing cells share one set of coefficients, and the missing cells
given the others are normal with covariance :math:`C = P_{MM}^{-1}` and mean :math:`C (b_M - P_{MO} y_O)`.
Matrices are factorised once for each pattern of missing cells and component, O(D^3), not once a row.

In EM these are the parameters' own densities and the result is the likelihood of the observed cells. In VB
they are exponentials of expected log densities; then q of a row's missing cells given its label is that
normal, and the bound holds with the entropy of missing cells beside that of labels.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import gammaln

from zoo.checks import observed_moments, shown

LOG_2PI = float(np.log(2 * np.pi))
EM_STEPS, EM_TOLERANCE = 200, 1e-8


def patterns_of(x: np.ndarray) -> np.ndarray | None:
    """The different patterns of missing cells of a table.

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Ones where cells are missing, shape (num_patterns, num_features); None: no cell is missing.
    """
    missing = np.isnan(np.asarray(x, float))
    return np.unique(missing, axis=0).astype(np.float64) if missing.any() else None


def check_patterns(patterns: Any, num_features: int) -> None:
    """Raise ValueError unless these are patterns of missing cells.

    Args:
        patterns: as of `patterns_of`.
        num_features: columns of the rows.
    """
    shape = np.shape(patterns)
    if len(shape) != 2 or shape[1] != num_features:
        raise ValueError(f"patterns must have shape (num_patterns, {num_features}); got {shape}")
    values = np.asarray(patterns)
    if not ((values == 0) | (values == 1)).all():
        raise ValueError(f"patterns must be ones where cells are missing, else zeros; got {shown(values)}")


def places_of(x: Array, patterns: Array) -> Array:
    """The place of each row's pattern.

    Args:
        x: rows, shape (num_observations, num_features).
        patterns: as of `patterns_of`; that of each row is among them.

    Returns:
        Shape (num_observations,), int.
    """
    missing = jnp.isnan(x).astype(patterns.dtype)
    differing = missing @ (1 - patterns).T + (1 - missing) @ patterns.T
    return jnp.argmin(differing, axis=-1)


class Conditionals(NamedTuple):
    """Missing cells given the observed ones, and the density of these, by pattern and component.

    Attributes:
        coefficients: of the log density of observed cells on features whose missing cells are at the center,
            shape (num_patterns, num_components, num_statistics).
        matrix: from a row with missing cells at the center to their expectation, observed cells to
            themselves, shape (num_patterns, num_components, D, D).
        shift: added to it, shape (num_patterns, num_components, D).
        covariance: of the missing cells, zero elsewhere, shape of ``matrix``.
        factor: lower Cholesky factor of the precision of the missing cells, the identity elsewhere.
    """

    coefficients: Array
    matrix: Array
    shift: Array
    covariance: Array
    factor: Array


def conditionals_of(coefficients: Array, patterns: Array) -> Conditionals:
    """What the coefficients of complete rows say of rows with missing cells.

    Args:
        coefficients: shape (num_components, num_statistics).
        patterns: shape (num_patterns, num_features).

    Returns:
        By pattern and component.
    """
    size = patterns.shape[-1]
    constant, linear, precision = _quadratic(coefficients, size)
    identity = jnp.eye(size, dtype=coefficients.dtype)

    def of_pattern(missing: Array) -> Conditionals:
        seen = 1 - missing
        both = missing[:, None] * missing
        factor = jnp.linalg.cholesky(both * precision + seen * identity)
        inverse = cho_solve((factor, True), jnp.broadcast_to(identity, factor.shape))
        covariance = both * 0.5 * (inverse + jnp.swapaxes(inverse, -1, -2))
        across = covariance @ (precision * seen)  # from observed cells to minus the missing ones' means
        shift = jnp.einsum("kij,kj->ki", covariance, linear)
        halves = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        number = jnp.sum(missing)
        new_constant = constant + 0.5 * jnp.sum(linear * shift, axis=-1) - halves + 0.5 * number * LOG_2PI
        new_linear = seen * (linear - jnp.einsum("kij,kj->ki", precision, shift))
        new_precision = (seen[:, None] * seen) * (precision - precision @ across)
        new = coefficients_of(new_constant, new_linear, new_precision)
        return Conditionals(new, seen * identity - across, shift, covariance, factor)

    return jax.vmap(of_pattern)(patterns)


def _quadratic(coefficients: Array, size: int) -> tuple[Array, Array, Array]:
    """Constant, linear part and precision of coefficients on ``[1, y, upper triangle of y y']``."""
    row, column = np.triu_indices(size)
    upper = coefficients[..., size + 1 :] * np.where(row == column, -2.0, -1.0)
    return coefficients[..., 0], coefficients[..., 1 : size + 1], symmetric(upper, size)


def coefficients_of(constant: Array, linear: Array, precision: Array) -> Array:
    """Coefficients on ``[1, y, upper triangle of y y']`` of ``constant + linear' y - y' precision y / 2``.

    Args:
        constant: shape (...).
        linear: shape (..., num_features).
        precision: shape (..., num_features, num_features); all shapes before the last axes broadcast.

    Returns:
        Shape (..., num_statistics).
    """
    row, column = np.triu_indices(linear.shape[-1])
    quadratic = precision[..., row, column] * np.where(row == column, -0.5, -1.0)
    parts = [constant[..., None], linear, quadratic]
    lead = linear.shape[:-1]
    return jnp.concatenate([jnp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


def symmetric(upper: Array, size: int) -> Array:
    """The symmetric matrix with an upper triangle.

    Args:
        upper: by rows, shape (..., size * (size + 1) / 2).
        size: of the matrix.

    Returns:
        Shape (..., size, size).
    """
    row, column = np.triu_indices(size)
    matrix = jnp.zeros((*upper.shape[:-1], size, size), upper.dtype)
    return matrix.at[..., row, column].set(upper).at[..., column, row].set(upper)


class IncompleteFeatures(NamedTuple):
    """The features of rows with missing cells, as a factor of matrix products.

    Attributes:
        features: with missing cells at the center, shape (num_observations, num_statistics).
        place: of each row's pattern, shape (num_observations,).
        patterns: shape (num_patterns, num_features).
    """

    features: Array
    place: Array
    patterns: Array

    def __matmul__(self, by_statistic: Array) -> Array:
        """Log density of the observed cells: coefficients of shape (num_statistics, K) give (N, K)."""
        own = conditionals_of(by_statistic.T, self.patterns).coefficients[self.place]
        return jnp.einsum("nkf,nf->nk", own, self.features)

    def __rmatmul__(self, by_row: Array) -> Array:
        """Sums with missing cells at the center, for starts: (K, N) gives (K, num_statistics)."""
        return by_row @ self.features

    def __getitem__(self, chosen: Any) -> Array:
        """The features of some rows with missing cells at the center."""
        return self.features[chosen]

    def expected_sums(self, by_row: Array, coefficients: Array) -> Array:
        """Sums of the expected features, missing cells given the observed ones and the component.

        Args:
            by_row: weights, shape (K, num_observations).
            coefficients: of complete rows, shape (K, num_statistics).

        Returns:
            Shape (K, num_statistics).
        """
        num_patterns, size = self.patterns.shape
        num_rows, num_components = by_row.shape[1], by_row.shape[0]
        weighted = (by_row.T[:, :, None] * self.features[:, None, :]).reshape(num_rows, -1)
        sums = jax.ops.segment_sum(weighted, self.place, num_segments=num_patterns)
        sums = sums.reshape(num_patterns, num_components, -1)
        row, column = np.triu_indices(size)
        count, first = sums[..., 0], sums[..., 1 : size + 1]
        second = symmetric(sums[..., size + 1 :], size)
        _, matrix, shift, covariance, _ = conditionals_of(coefficients, self.patterns)
        moved = jnp.einsum("pkij,pkj->pki", matrix, first)
        cross = moved[..., :, None] * shift[..., None, :]
        squared = shift[..., :, None] * shift[..., None, :] + covariance
        second = matrix @ second @ jnp.swapaxes(matrix, -1, -2) + cross + jnp.swapaxes(cross, -1, -2)
        second = second + count[..., None, None] * squared
        first = moved + count[..., None] * shift
        whole = jnp.concatenate([count[..., None], first, second[..., row, column]], axis=-1)
        return jnp.sum(whole, axis=0)

    def drawn(self, key: Array, coefficients: Array, assignments: Array) -> Array:
        """Rows less the center with missing cells drawn given the observed ones and the component.

        Args:
            key: a JAX key.
            coefficients: of complete rows, shape (K, num_statistics).
            assignments: component of each row, shape (num_observations,).

        Returns:
            Shape (num_observations, num_features).
        """
        size = self.patterns.shape[-1]
        _, matrix, shift, _, factor = conditionals_of(coefficients, self.patterns)
        at = self.place, assignments
        y = self.features[:, 1 : size + 1]
        noise = jax.random.normal(key, y.shape, y.dtype)
        noise = solve_triangular(factor[at], noise[..., None], trans=1, lower=True)[..., 0]
        return jnp.einsum("nij,nj->ni", matrix[at], y) + shift[at] + self.patterns[self.place] * noise


class OrMissing(dist.constraints.ParameterFreeConstraint):
    """A constraint on cells that NaN, a missing cell, satisfies too.

    NumPyro gives a value outside the support the density zero wherever it validates, as in the mixture that
    sums labels out: without this every row with a missing cell would be impossible.

    Args:
        cell: the constraint on observed cells.
    """

    def __init__(self, cell: dist.constraints.Constraint) -> None:
        self.cell = cell
        super().__init__()

    @property
    def event_dim(self) -> int:
        """That of the constraint on observed cells."""
        return self.cell.event_dim

    @property
    def is_discrete(self) -> bool:
        """Whether observed cells are discrete."""
        return self.cell.is_discrete

    def __call__(self, x: Array) -> Array:
        """Whether each cell is missing or satisfies the constraint.

        Args:
            x: cells.

        Returns:
            Booleans, shape of ``x``.
        """
        return jnp.isnan(x) | self.cell(x)

    def feasible_like(self, prototype: Array) -> Array:
        """Observed cells that satisfy the constraint.

        Args:
            prototype: an array of the shape and dtype wanted.

        Returns:
            Cells, shape of ``prototype``.
        """
        return self.cell.feasible_like(prototype)

    def tree_flatten(self) -> tuple:
        """The constraint on observed cells."""
        return (self.cell,), (("cell",), {})

    def __repr__(self) -> str:
        """The name and the constraint on observed cells."""
        return f"OrMissing({self.cell!r})"

    def eq(self, other: object, static: bool = False) -> Any:
        """Whether the constraints on observed cells are equal.

        Args:
            other: a constraint.
            static: whether parameters are compared as Python values.

        Returns:
            A boolean.
        """
        return isinstance(other, OrMissing) and self.cell.eq(other.cell, static=static)


class IncompleteRows(dist.Distribution):
    """The observed cells of rows under Gaussian components; whole rows when drawn.

    Args:
        complete: the distribution of complete rows, batch shape (num_components,).
        coefficients: of its log density on the features, shape (num_components, num_statistics).
        patterns: shape (num_patterns, num_features).
        center: shape (num_features,).
        assignments: component of each row, or None: rows under every component.
    """

    support = dist.constraints.independent(OrMissing(dist.constraints.real), 1)
    pytree_data_fields = ("complete", "coefficients", "patterns", "center", "assignments")

    def __init__(
        self,
        complete: dist.Distribution,
        coefficients: Array,
        patterns: Array,
        center: Array,
        assignments: Array | None = None,
    ) -> None:
        self.complete, self.coefficients, self.patterns = complete, coefficients, patterns
        self.center, self.assignments = center, assignments
        batch_shape = coefficients.shape[:1] if assignments is None else assignments.shape
        super().__init__(batch_shape, (center.shape[-1],), validate_args=False)

    def log_prob(self, value: Array) -> Array:
        """Log density of the observed cells, in nats.

        Args:
            value: rows, shape (..., 1, num_features) under every component, or (num_observations,
                num_features) under the assigned ones.
        """
        own = conditionals_of(self.coefficients, self.patterns).coefficients
        features, place = features_of(value, self.center), places_of(value, self.patterns)
        own = own[place[..., 0]] if self.assignments is None else own[place, self.assignments]
        return jnp.sum(own * features, axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Whole rows."""
        return self.complete.sample(key, sample_shape)


def features_of(x: Array, center: Array) -> Array:
    """``[1, y, upper triangle of y y']`` of rows, missing cells at the center.

    Args:
        x: shape (..., num_features).
        center: shape (num_features,).

    Returns:
        Shape (..., num_statistics).
    """
    return with_products(jnp.where(jnp.isnan(x), 0.0, x - center))


def with_products(y: Array) -> Array:
    """``[1, y, upper triangle of y y']`` of rows.

    Args:
        y: shape (..., num_features).

    Returns:
        Shape (..., num_statistics).
    """
    row, column = np.triu_indices(y.shape[-1])
    return jnp.concatenate([jnp.ones_like(y[..., :1]), y, y[..., row] * y[..., column]], axis=-1)


def log_predictive_of_observed(predictive: dist.Distribution, x: Array, patterns: Array) -> Array:
    """Log density of the observed cells of rows under normal or Student-t distributions.

    Args:
        predictive: ``MultivariateNormal`` or ``MultivariateStudentT``, batch shape (num_components,).
        x: rows, shape (num_observations, num_features).
        patterns: shape (num_patterns, num_features).

    Returns:
        Shape (num_observations, num_components), in nats.
    """
    tril = predictive.scale_tril
    scale, identity = tril @ jnp.swapaxes(tril, -1, -2), jnp.eye(tril.shape[-1], dtype=tril.dtype)
    seen = 1 - patterns
    masked = (seen[:, None, :, None] * seen[:, None, None, :]) * scale + patterns[:, None, :, None] * identity
    factor = jnp.linalg.cholesky(masked)
    place = places_of(x, patterns)
    own = factor[place]
    deviations = jnp.where(jnp.isnan(x)[:, None], 0.0, x[:, None] - predictive.loc)
    squares = jnp.sum(solve_triangular(own, deviations[..., None], lower=True)[..., 0] ** 2, axis=-1)
    log_det = jnp.sum(jnp.log(jnp.diagonal(own, axis1=-2, axis2=-1)), axis=-1)
    number = jnp.sum(seen, axis=-1)[place][:, None]
    if isinstance(predictive, dist.MultivariateNormal):
        return -0.5 * (number * LOG_2PI + squares) - log_det
    df = predictive.df
    constant = gammaln(0.5 * (df + number)) - gammaln(0.5 * df) - 0.5 * number * jnp.log(jnp.pi * df)
    return constant - log_det - 0.5 * (df + number) * jnp.log1p(squares / df)


def covariance_of_observed(x: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of one normal fitted to the observed cells, by maximum likelihood (EM).

    Args:
        x: shape (num_observations, num_features), NaN where a cell is missing; every column varies.
        weight: of each row, positive, shape (num_observations,); None: one.

    Returns:
        Mean, shape (num_features,), and covariance, its variances those of the observed cells, shape
        (num_features, num_features), positive definite where the data determine it.
    """
    mean, variances = observed_moments(x, weight, ddof=1)
    deviations = np.sqrt(variances)
    weight = np.ones(len(x)) if weight is None else weight
    z = (x - mean) / deviations
    missing = np.isnan(z)
    patterns, place = np.unique(missing, axis=0, return_inverse=True)
    groups = [(~pattern, place.ravel() == number) for number, pattern in enumerate(patterns)]
    loc, covariance = np.zeros(z.shape[1]), np.eye(z.shape[1])
    for _ in range(EM_STEPS):
        first, second = np.zeros_like(loc), np.zeros_like(covariance)
        for seen, own in groups:
            rows, worth = z[own], weight[own]
            gain = covariance[:, seen] @ np.linalg.pinv(covariance[np.ix_(seen, seen)], hermitian=True)
            filled = loc + (rows[:, seen] - loc[seen]) @ gain.T
            first += worth @ filled
            second += (worth * filled.T) @ filled + worth.sum() * (covariance - gain @ covariance[seen])
        loc = first / weight.sum()
        new = second / weight.sum() - np.outer(loc, loc)
        moved, covariance = np.abs(new - covariance).max(), 0.5 * (new + new.T)
        if moved < EM_TOLERANCE:
            break
    spread = np.sqrt(np.diag(covariance))
    return mean + loc * deviations, covariance / spread[:, None] / spread * np.outer(deviations, deviations)
