r"""Gram matrices over all rows and their centring, and linear-Gaussian rows in the feature space of a kernel.

**Gram matrices** are made in blocks and checked, and the memory of a large one is announced. Centring moves
the origin of feature space to the mean of the fitted rows. With the column means
:math:`m_j = \frac1N \sum_i k(x_i, x_j)` and their mean :math:`\bar m`,

.. math::
    \hat K_{ij} = K_{ij} - m_i - m_j + \bar m, \qquad
    \hat k_j(x) = k(x, x_j) - \frac1N \sum_i k(x, x_i) - m_j + \bar m

(Yu 2006, (4.3), (4.4)), so that m and its mean are all that has to be kept for new rows. When rows are added
the column means are updated from those of the old rows and the two new blocks alone (5.28)-(5.30); the text's
``rowmean_1(K)`` in the line after them is that of the old block :math:`K_{11}`.

In floating point both lose the digits by which the uncentred values exceed the centred ones: an eigenvalue
below `CentredGram.rounding` is not known. Values of the linear kernel are centred by centring the rows
instead, and those of a kernel of differences are computed from rows about the fitted rows' mean: neither
loses a digit far from zero. New rows go the same way as the fitted ones (`centred_cross`).

**Rows in feature space** are seen through inner products alone. With
:math:`\phi(x) = W z + N(0, \sigma^2 I_m)` and loadings in the span of the fitted rows,
:math:`W = \Phi^T B`, everything that the density of a centred row needs is

.. math::
    W^T W = B^T K B, \qquad W^T \phi(x) = B^T k(x), \qquad |\phi(x)|^2 = k(x, x)

(Yu 2006, (7.17), (7.18)), so that with :math:`A = \sigma^2 I + B^T K B`

.. math::
    z \mid x \sim N(A^{-1} B^T k(x),\; \sigma^2 A^{-1}), \qquad
    -2 \log p(\phi(x)) = (m - K) \log \sigma^2 + \log|A| + m \log 2\pi
    + \frac{k(x,x) - k(x)^T B A^{-1} B^T k(x)}{\sigma^2} .

In a space of infinitely many dimensions the terms in m are a constant for every given noise and are left out.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array
from jax.scipy.linalg import cho_solve

from zoo.checks import machine_memory, memory_in_words, warn
from zoo.kernels import Kernel

LARGE_BYTES = 2**28  # a matrix from this size on is announced
BLOCK_BYTES = 2**22  # of a block of rows: what stays in the processor's cache
ROUNDING = 10 * np.finfo(np.float64).eps  # of a sum of products, relative to the sum of their sizes
LOST_SHARE = 1e-7  # of the centred trace: rounding beyond it is warned of
RELATIVE_TOLERANCE = 1e-8  # of asymmetry to the largest entry, of a negative eigenvalue to the trace


class Centring(NamedTuple):
    """The numbers that centre kernel values with respect to the fitted rows.

    Attributes:
        column_means: mean kernel value of each fitted row with all fitted rows, shape (num_observations,).
    """

    column_means: np.ndarray

    def gram(self, matrix: Array | np.ndarray) -> Any:
        """The centred Gram matrix of the fitted rows; a new array (4.3).

        Args:
            matrix: kernel values of the fitted rows, shape (num_observations, num_observations), NumPy or
                JAX.

        Returns:
            Shape (num_observations, num_observations).
        """
        means = self.column_means
        return matrix - means[:, None] - (means - means.mean())[None, :]

    def gram_in_place(self, matrix: np.ndarray) -> np.ndarray:
        """The result of `gram`, in the memory of ``matrix``.

        Args:
            matrix: shape (num_observations, num_observations), NumPy only; overwritten.

        Returns:
            ``matrix``, shape (num_observations, num_observations).
        """
        matrix -= self.column_means[:, None]
        matrix -= (self.column_means - self.column_means.mean())[None, :]
        return matrix

    def cross(self, values: Array | np.ndarray) -> Any:
        """Centred kernel values of new rows with fitted ones (4.4).

        Args:
            values: shape (new rows, num_observations), not centred.

        Returns:
            Shape (new rows, num_observations).
        """
        means = self.column_means
        return values - values.mean(axis=1, keepdims=True) - (means - means.mean())[None, :]


def centring_of(gram: Array | np.ndarray) -> Centring:
    """The centring of a Gram matrix.

    Args:
        gram: shape (num_observations, num_observations).

    Returns:
        Its column means.
    """
    return Centring(gram.mean(axis=0))


class CentredGram(NamedTuple):
    """The centred Gram matrix of fitted rows.

    Attributes:
        matrix: shape (num_observations, num_observations).
        column_means: mean kernel value of each row with all, not centred, shape (num_observations,).
        rounding: the eigenvalue below which there is only rounding error, from the size of the values before
            they were centred.
        factor: of a linear kernel the centred (and scaled) rows, whose singular values are known to twice the
            digits; None of others.
        column_rounding: squared length of the rounding error of each column of the factor, whose columns may
            have units far apart, shape (num_features,); None of others. Its sum is ``rounding``.
    """

    matrix: np.ndarray
    column_means: np.ndarray
    rounding: float
    factor: np.ndarray | None = None
    column_rounding: np.ndarray | None = None


def centred_gram(kernel: Kernel, x: Array | np.ndarray, announce: bool = True) -> CentredGram:
    """The centred Gram matrix of rows, on the host in float64, as accurate far from zero as near it.

    Args:
        kernel: its parameters filled.
        x: rows, shape (num_observations, num_features); for `Precomputed` the (uncentred) Gram matrix.
        announce: as for `gram_matrix`.

    Returns:
        The matrix, the means that centred it, and what rounding leaves of its eigenvalues.

    Warns:
        UserWarning: the values are so much larger than their differences that rounding shows.
    """
    if kernel.linear_scale is None or hasattr(x, "toarray"):
        gram = gram_matrix(kernel, x, announce)
        size = float(np.abs(gram.diagonal()).sum())
        centring = centring_of(gram)
        centring.gram_in_place(gram)
        rounding, trace = ROUNDING * size, float(np.trace(gram))
        if rounding > LOST_SHARE * trace > 0:
            remedy = "subtract the columns' means from x"
            if kernel.is_precomputed:
                remedy = "make the Gram matrix of rows about their mean"
            elif kernel.is_shift_invariant:
                remedy = "use a smaller length_scale"
            warn(
                f"the values of the kernel {type(kernel).__name__} are so much larger than their differences "
                f"(mean size of the diagonal {size / len(gram):.3g}, centred {trace / len(gram):.3g}) that "
                f"rounding shows in the components: {remedy}"
            )
        return CentredGram(gram, centring.column_means, rounding)
    rows = np.asarray(x, np.float64)
    mean = rows.mean(axis=0)
    about = rows - mean
    about = about - about.mean(axis=0)  # what the mean's own rounding left
    gram = gram_matrix(kernel, about, announce)
    centring = centring_of(gram)  # of rows that have mean zero up to rounding, and the offset of a polynomial
    centring.gram_in_place(gram)
    means = np.asarray(kernel.matrix(rows, mean[None]))[:, 0]
    of_columns = float(kernel.linear_scale) * ROUNDING * np.finfo(np.float64).eps * np.sum(rows**2, axis=0)
    factor = np.sqrt(float(kernel.linear_scale)) * about
    return CentredGram(gram, means, float(np.sum(of_columns)), factor, of_columns)


def centred_matrix(kernel: Kernel, x: Array) -> Array:
    """The centred Gram matrix of rows, in compiled code.

    Args:
        kernel: its parameters filled, in the current precision.
        x: rows, shape (num_observations, num_features); for `Precomputed` the (uncentred) Gram matrix.

    Returns:
        Shape (num_observations, num_observations).
    """
    return centred(kernel.matrix(*_about_mean(kernel, x, x)))


def centred_cross(kernel: Kernel, new_x: Array, x: Array, column_means: Array) -> Array:
    """Centred kernel values of new rows with fitted ones, in compiled code (4.4).

    Args:
        kernel: its parameters filled, in the current precision.
        new_x: new rows, shape (new rows, num_features); for `Precomputed` their values with the fitted rows.
        x: fitted rows, shape (num_observations, num_features).
        column_means: of `CentredGram`.

    Returns:
        Shape (new rows, num_observations).
    """
    new_rows, rows = _about_mean(kernel, new_x, x)
    if kernel.linear_scale is not None:
        return kernel.linear_scale * new_rows @ rows.T
    return Centring(column_means).cross(kernel.matrix(new_rows, rows))


def centred_diagonal(kernel: Kernel, new_x: Array, x: Array, column_means: Array) -> Array:
    """Centred kernel values of new rows with themselves, in compiled code.

    Args:
        kernel: its parameters filled, in the current precision; not a precomputed one, which does not say.
        new_x: new rows, shape (new rows, num_features).
        x: fitted rows, shape (num_observations, num_features).
        column_means: of `CentredGram`.

    Returns:
        Shape (new rows,).
    """
    new_rows, rows = _about_mean(kernel, new_x, x)
    if kernel.linear_scale is not None:
        return kernel.linear_scale * jnp.sum(new_rows**2, axis=1)
    each = jnp.mean(kernel.matrix(new_rows, rows), axis=1)
    return kernel.diagonal(new_rows) - 2 * each + jnp.mean(column_means)


def _about_mean(kernel: Kernel, new_x: Array, x: Array) -> tuple[Array, Array]:
    """New and fitted rows about the fitted rows' mean, where the centred values do not change with it."""
    if kernel.linear_scale is None and not kernel.is_shift_invariant:
        return new_x, x
    mean = jnp.mean(x, axis=0)
    new_x, x = new_x - mean, x - mean
    rest = jnp.mean(x, axis=0)  # what the mean's own rounding left
    return new_x - rest, x - rest


def extended_centring(old: Centring, cross: Array | np.ndarray, new: Array | np.ndarray) -> Centring:
    """The centring after rows were added, without the Gram matrix of the old ones.

    Args:
        old: that of the N1 old rows.
        cross: kernel values of old with new rows, shape (N1, N2).
        new: Gram matrix of the new rows, shape (N2, N2).

    Reference: Yu (2006), (5.28)-(5.30) and the formula of rowmean after them.

    Returns:
        The centring of the N1 + N2 rows.
    """
    n1, n2 = cross.shape
    first = (n1 * old.column_means + cross.sum(axis=1)) / (n1 + n2)
    second = (cross.sum(axis=0) + new.sum(axis=0)) / (n1 + n2)
    return Centring(np.concatenate([first, second]))


def gram_matrix(kernel: Kernel, x: Array | np.ndarray, announce: bool = True) -> np.ndarray:
    """k(x_i, x_j) of all rows, not centred, on the host in float64.

    Half of it is computed, in blocks of rows that stay in cache, and mirrored.

    Args:
        kernel: its parameters filled.
        x: rows, shape (num_observations, num_features), dense or scipy sparse; for `Precomputed` the matrix.
        announce: whether to say what it costs; no, where a model's check has said it.

    Returns:
        Symmetric matrix of shape (num_observations, num_observations); a new array.

    Raises:
        ValueError: the machine's memory cannot hold it, or masked cells.

    Warns:
        UserWarning: it takes more than 256 MiB; the message says how much.
    """
    if np.ma.is_masked(x):
        raise ValueError(
            "x has masked cells, and a kernel needs every cell: fill them or leave their rows out"
        )
    num_rows = x.shape[0]
    if announce:
        announce_cost(num_rows)
    if kernel.is_precomputed:
        return np.array(kernel.matrix(x, x), np.float64)
    x = _shifted(kernel, x, x)
    gram = np.empty((num_rows, num_rows))
    step = _block_rows(num_rows)
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        block = kernel.matrix(x[start:stop], x[:stop])
        gram[start:stop, :stop] = block
        gram[:start, start:stop] = block[:, :start].T
        square = gram[start:stop, start:stop]  # a product of equal rows may differ in the last bit
        square[...] = np.tril(square) + np.tril(square, -1).T
    np.fill_diagonal(gram, kernel.diagonal(x))
    return gram


def cross_gram(kernel: Kernel, new_x: Array | np.ndarray, x: Array | np.ndarray) -> np.ndarray:
    """Kernel values of new rows with fitted ones, not centred.

    Args:
        kernel: the kernel; a precomputed one is given its values.
        new_x: new rows, or of a precomputed kernel their values.
        x: fitted rows, shape (num_observations, num_features).

    Returns:
        Shape (new rows, num_observations).
    """
    if kernel.is_precomputed:
        return np.asarray(kernel.matrix(new_x, x), np.float64)
    new_x, x = _shifted(kernel, new_x, x), _shifted(kernel, x, x)
    values = np.empty((new_x.shape[0], x.shape[0]))
    step = _block_rows(x.shape[0])
    for start in range(0, new_x.shape[0], step):
        values[start : start + step] = kernel.matrix(new_x[start : start + step], x)
    return values


def announce_cost(num_rows: int) -> str:
    """The memory of dense matrices over all pairs of rows, in words; a warning if it is large.

    Args:
        num_rows: N.

    Returns:
        The sentence.

    Raises:
        ValueError: more than the memory of the machine.

    Warns:
        UserWarning: more than 256 MiB.
    """
    size = 8.0 * num_rows**2
    matrix = f"the {num_rows} x {num_rows} matrix of kernel values"
    cost = f"{matrix} needs {memory_in_words(size)} of memory"
    memory = machine_memory()
    if size > memory:
        raise ValueError(f"{cost}, more than this machine has ({memory_in_words(memory)}): use fewer rows")
    if size >= LARGE_BYTES:
        warn(f"{cost}, and time grows with the square of the number of rows")
    return cost


def check_gram(matrix: Any, name: str = "x") -> None:
    """Raise ValueError unless values are a Gram matrix: square, finite, symmetric, positive semi-definite.

    A violation of 1e-8 (of the largest entry, or of the trace for an eigenvalue) counts as rounding. Costs
    O(N^3 / 3): one Cholesky factor.

    Args:
        matrix: shape (num_observations, num_observations).
        name: of the data, for the message.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"a precomputed kernel takes the Gram matrix of the fitted rows as {name}, which is square; "
            f"got shape {matrix.shape}"
        )
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"kernel values must be finite; {name}[{row}, {column}] is {matrix[row, column]} "
            f"({bad.sum()} such entries in all)"
        )
    gap = np.abs(matrix - matrix.T)
    if gap.max(initial=0.0) > RELATIVE_TOLERANCE * np.abs(matrix).max():
        row, column = np.unravel_index(gap.argmax(), gap.shape)
        raise ValueError(
            f"a Gram matrix must be symmetric; {name}[{row}, {column}] is {matrix[row, column]:.8g} but "
            f"{name}[{column}, {row}] is {matrix[column, row]:.8g}; if that is rounding, pass (K + K.T) / 2"
        )
    diagonal = matrix.diagonal()
    if diagonal.min() < 0:
        row = int(diagonal.argmin())
        raise ValueError(
            f"a Gram matrix must be positive semi-definite; {name}[{row}, {row}] is {diagonal[row]:.8g}, "
            "and a squared length is at least 0"
        )
    slack = RELATIVE_TOLERANCE * diagonal.sum()
    lowest = _lowest_eigenvalue(matrix, slack)
    if lowest < -slack:
        raise ValueError(
            f"a Gram matrix must be positive semi-definite; the lowest eigenvalue of {name} is {lowest:.6g} "
            f"beside a trace of {diagonal.sum():.6g}"
        )


def _lowest_eigenvalue(matrix: np.ndarray, slack: float) -> float:
    """The lowest eigenvalue where it is below ``-slack``; 0 where a Cholesky factor says that it is not."""
    shifted = np.array(matrix, np.float64)
    shifted[np.diag_indices_from(shifted)] += slack + np.finfo(float).tiny
    try:
        scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return float(scipy.linalg.eigh(matrix, eigvals_only=True, subset_by_index=[0, 0])[0])
    return 0.0


def _shifted(kernel: Kernel, rows: Array | np.ndarray, x: Array | np.ndarray) -> Any:
    """Rows less the mean of ``x`` where only differences matter: distances then lose fewer digits."""
    if not kernel.is_shift_invariant or hasattr(x, "toarray"):
        return rows.tocsr() if hasattr(rows, "tocsr") else np.asarray(rows, np.float64)
    return np.asarray(rows, np.float64) - np.asarray(x, np.float64).mean(axis=0)


def _block_rows(num_columns: int) -> int:
    return max(1, int(BLOCK_BYTES / (8 * max(num_columns, 1))))


class FeatureRows(NamedTuple):
    """Latents and log density of rows, computed from their kernel values.

    Attributes:
        mean: E[z | x], shape (num_rows, num_latents).
        covariance: cov[z | x], the same for all rows, shape (num_latents, num_latents).
        log_density: of each row in feature space, nats, shape (num_rows,).
    """

    mean: Array
    covariance: Array
    log_density: Array


def feature_rows(
    values: Array,
    squares: Array,
    projected: Array,
    coefficients: Array,
    noise_variance: Array,
    dimension: float,
) -> FeatureRows:
    """Posterior of the latents, and log density, of rows given by their centred kernel values.

    Args:
        values: k(x) with the fitted rows, shape (num_rows, num_observations).
        squares: k(x, x), shape (num_rows,).
        projected: K B of the fitted rows, shape (num_observations, num_latents).
        coefficients: B, shape (num_observations, num_latents).
        noise_variance: sigma^2.
        dimension: m, see `scored_dimension`.

    Returns:
        Moments of the latents and log density of each row.
    """
    num_latents = coefficients.shape[1]
    identity = jnp.eye(num_latents)
    inner = coefficients.T @ projected
    factor = jnp.linalg.cholesky((inner + inner.T) / 2 + noise_variance * identity)
    inverse = cho_solve((factor, True), identity)
    right = values @ coefficients
    mean = right @ inverse
    quadratic = (squares - jnp.sum(mean * right, axis=1)) / noise_variance
    constant = dimension * jnp.log(2 * jnp.pi * noise_variance) - num_latents * jnp.log(noise_variance)
    log_det = constant + 2 * jnp.sum(jnp.log(jnp.diag(factor)))
    return FeatureRows(mean, noise_variance * inverse, -0.5 * (log_det + quadratic))


def given_latents(
    latents: Array,
    values: Array,
    squares: Array,
    coefficients: Array,
    noise_variance: Array,
    dimension: float,
) -> Array:
    """Log density of fitted rows in feature space given their latents.

    Args:
        latents: shape (num_rows, num_latents).
        values: the centred Gram matrix, shape (num_rows, num_rows).
        squares: its diagonal, shape (num_rows,).
        coefficients: B, shape (num_rows, num_latents).
        noise_variance: sigma^2.
        dimension: m, see `scored_dimension`.

    Returns:
        Shape (num_rows,), in nats.
    """
    projected = values @ coefficients
    inner = coefficients.T @ projected
    cross = jnp.sum(latents * projected, axis=1)
    distance = squares - 2 * cross + jnp.sum((latents @ inner) * latents, axis=1)
    return -0.5 * (dimension * jnp.log(2 * jnp.pi * noise_variance) + distance / noise_variance)


def scored_dimension(dimension: float | None, num_rows: int) -> int:
    """The m of a row's density: 0 where it is infinite, N - 1 where it is not known.

    Args:
        dimension: `zoo.kernels.Kernel.feature_dimension`.
        num_rows: of the fit.

    Returns:
        The number m.
    """
    if dimension is None:
        return num_rows - 1
    return 0 if math.isinf(dimension) else int(dimension)


def centred(gram: Array) -> Array:
    """A Gram matrix with the origin of feature space at the mean of the rows (4.3).

    Args:
        gram: shape (num_observations, num_observations).

    Returns:
        Shape (num_observations, num_observations).
    """
    return centring_of(gram).gram(gram)


def gram_score(latents: Array, noise_variance: Array, gram: Array, freedom: Array, dimension: Array) -> Array:
    """The score of a centred Gram matrix, in nats, without the constants of a Wishart density.

    Args:
        latents: Z, shape (num_observations, num_latents).
        noise_variance: s2.
        gram: K, shape (num_observations, num_observations).
        freedom: m.
        dimension: how many dimensions the determinant is over.

    Returns:
        A scalar, in nats.
    """
    num_latents = latents.shape[1]
    inner = latents.T @ latents + noise_variance * jnp.eye(num_latents)
    log_det = jnp.linalg.slogdet(inner)[1] + (dimension - num_latents) * jnp.log(noise_variance)
    explained = jnp.trace(jnp.linalg.solve(inner, latents.T @ (gram @ latents)))
    return -0.5 * freedom * log_det - 0.5 * (jnp.trace(gram) - explained) / noise_variance
