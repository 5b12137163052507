r"""Kernels: inner products of two rows in a feature space, and the dimension of that space.

===================  ====================================================  ==================================
kernel               k(x, y)                                               dimension after centring
===================  ====================================================  ==================================
``Linear()``         :math:`x^T y`                                         D
``RBF(l)``           :math:`\exp\{-|x - y|^2 / (2 l^2)\}`                  infinite
``Polynomial(p)``    :math:`(\mathrm{scale}\; x^T y + \mathrm{offset})^p`  monomials of degree 1 to p (p only
                                                                           where the offset is 0)
``Precomputed()``    the data themselves are the Gram matrix               not known
===================  ====================================================  ==================================

Yu (2006) writes the RBF kernel as :math:`\exp(-\alpha |x - y|^2)`: ``length_scale = (2 alpha) ** -0.5``. The
constant monomial of a polynomial kernel with an offset is lost when rows are centred in feature space, so it
does not count as a dimension: a polynomial of degree 1 is then the linear kernel.

A kernel is a frozen dataclass and a pytree; it computes with NumPy arrays on the host (rows may be a scipy
sparse matrix) and with JAX arrays inside compiled code. Matrices over all rows, and their centring, are in
`zoo.kernels.gram`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo.checks import check_finite
from zoo.fields import numbers, positive, whole
from zoo.model import Assumptions, in_current_precision

__all__ = ["Linear", "Polynomial", "Precomputed", "RBF"]


@dataclass(frozen=True, eq=False)
class Kernel(Assumptions):
    """A positive semi-definite function of two rows.

    Class attributes:
        is_shift_invariant: whether values depend on the difference of two rows alone.
        is_precomputed: whether the data are kernel values instead of rows.
        weighs_columns_alike: whether a column's weight in values follows from its units alone.
        has_unit: whether values change with the unit of the columns (lengths read off the data apart).
    """

    weighs_columns_alike: ClassVar[bool] = False
    is_shift_invariant: ClassVar[bool] = False
    is_precomputed: ClassVar[bool] = False
    has_unit: ClassVar[bool] = True

    def matrix(self, x: Array | np.ndarray, y: Array | np.ndarray) -> Array | np.ndarray:
        """Kernel values of rows with rows, k(x_i, y_j).

        Args:
            x: rows, shape (n, num_features): NumPy, scipy sparse or JAX.
            y: rows, shape (m, num_features).

        Returns:
            Shape (rows of x, rows of y), dense.
        """
        raise NotImplementedError

    def diagonal(self, x: Array | np.ndarray) -> Array | np.ndarray:
        """Kernel values of rows with themselves, k(x_i, x_i).

        Args:
            x: rows, shape (num_observations, num_features): NumPy, scipy sparse or JAX.

        Returns:
            Shape (num_observations,).
        """
        raise NotImplementedError

    @property
    def linear_scale(self) -> Array | float | None:
        """The factor c of a kernel that is c x'y once it is centred; None: it is not of this kind.

        Such a kernel is centred by centring the rows, which loses no digits however far they are from zero.
        """
        return None

    def feature_dimension(self, num_features: int) -> float | None:
        """Number of dimensions of the centred feature space.

        Args:
            num_features: columns of the rows.

        Returns:
            The number, ``math.inf``, or None where it is not known.
        """
        raise NotImplementedError

    def filled(self, x: Array | np.ndarray) -> Self:
        """The kernel with parameters that are None estimated from the rows.

        Args:
            x: rows, shape (num_observations, num_features).

        Returns:
            A kernel without None; itself where nothing is None.
        """
        return self


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """The inner product of two rows; its feature space is that of the rows."""

    weighs_columns_alike = True

    def matrix(self, x: Array | np.ndarray, y: Array | np.ndarray) -> Array | np.ndarray:
        """Inner products, shape (rows of x, rows of y)."""
        return _products(x, y)

    def diagonal(self, x: Array | np.ndarray) -> Array | np.ndarray:
        """Squared lengths, shape (num_observations,)."""
        return _squares(x)

    @property
    def linear_scale(self) -> float:
        """One."""
        return 1.0

    def feature_dimension(self, num_features: int) -> float:
        """As many as there are columns."""
        return num_features


@dataclass(frozen=True, eq=False)
class RBF(Kernel):
    """Radial basis function, or squared exponential: rows near each other have a value close to one.

    Attributes:
        length_scale: l > 0, in units of the columns. None: estimated from the data, so that the mean squared
            distance of two rows is 2 l^2, that is l^2 is the sum of the columns' variances.
    """

    weighs_columns_alike = True
    is_shift_invariant = True
    has_unit = False

    length_scale: Array | None = positive()

    def matrix(self, x: Array | np.ndarray, y: Array | np.ndarray) -> Array | np.ndarray:
        """Values in (0, 1], shape (rows of x, rows of y)."""
        xp = _library(x, y)
        half_precision = -0.5 / _value(self.length_scale, xp) ** 2
        squared = _squares(x)[:, None] + _squares(y)[None, :] - 2.0 * _products(x, y)
        return xp.exp(half_precision * xp.maximum(squared, 0.0))

    def diagonal(self, x: Array | np.ndarray) -> Array | np.ndarray:
        """Ones, shape (num_observations,)."""
        return _library(x).ones(x.shape[0])

    def feature_dimension(self, num_features: int) -> float:
        """Infinite."""
        return math.inf

    def filled(self, x: Array | np.ndarray) -> Self:
        """The kernel with the length scale estimated from the rows, if it is None.

        Raises:
            ValueError: the rows are all equal, or a cell is missing or infinite.
        """
        if self.length_scale is not None:
            return self
        if hasattr(x, "toarray"):
            mean = np.asarray(x.mean(axis=0)).ravel()
            total = float(np.mean(_squares(x)) - mean @ mean)
        else:
            total = float(np.var(x, axis=0).sum())
            if not math.isfinite(total):
                check_finite(x)
        if not total > 0:
            raise ValueError("the rows are all equal: give the RBF kernel a length_scale")
        return type(self)(math.sqrt(total))


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    """Products of up to ``degree`` columns.

    Attributes:
        degree: p, a whole number of at least 1.
        offset: at least 0; 0 keeps only products of exactly p columns.
        scale: positive factor of the inner product.
    """

    degree: int = whole(3)
    offset: Array = numbers(1.0, least=0)
    scale: Array = positive(1.0)

    def matrix(self, x: Array | np.ndarray, y: Array | np.ndarray) -> Array | np.ndarray:
        """Values, shape (rows of x, rows of y)."""
        xp = _library(x, y)
        return (_value(self.scale, xp) * _products(x, y) + _value(self.offset, xp)) ** self.degree

    def diagonal(self, x: Array | np.ndarray) -> Array | np.ndarray:
        """Values at equal rows, shape (num_observations,)."""
        xp = _library(x)
        return (_value(self.scale, xp) * _squares(x) + _value(self.offset, xp)) ** self.degree

    @property
    def linear_scale(self) -> Array | float | None:
        """``scale`` where the degree is 1: the offset is lost in centring."""
        return self.scale if self.degree == 1 else None

    def feature_dimension(self, num_features: int) -> float:
        """The number of monomials, the constant one left out."""
        highest = math.comb(num_features + self.degree - 1, self.degree)
        all_of_them = math.comb(num_features + self.degree, self.degree) - 1
        if isinstance(self.offset, jax.Array):  # in compiled code, whose shapes do not depend on it
            return jnp.where(self.offset == 0, highest, all_of_them)
        return highest if self.offset == 0 else all_of_them


@dataclass(frozen=True, eq=False)
class Precomputed(Kernel):
    """The data are kernel values already.

    Fitted rows are a Gram matrix of shape (num_observations, num_observations); new rows come as their kernel
    values with the fitted ones, shape (new rows, num_observations).
    """

    is_precomputed = True

    def matrix(self, x: Array | np.ndarray, y: Array | np.ndarray) -> Array | np.ndarray:
        """The values themselves; ``y`` is only the Gram matrix that they belong to.

        Raises:
            ValueError: ``x`` has not a column for each fitted row.
        """
        if x.shape[1] != y.shape[0]:
            raise ValueError(
                f"kernel values with {y.shape[0]} fitted rows must have shape (new rows, {y.shape[0]}); "
                f"got {x.shape}"
            )
        return x.toarray() if hasattr(x, "toarray") else x

    def diagonal(self, x: Array | np.ndarray) -> Array | np.ndarray:
        """The diagonal of the Gram matrix."""
        return x.diagonal()

    def feature_dimension(self, num_features: int) -> None:
        """Not known from the values alone."""
        return None


#: The kernels by the names that a string may give, and by those that a stored fit has.
KERNELS: dict[str, type[Kernel]] = {
    "linear": Linear,
    "rbf": RBF,
    "polynomial": Polynomial,
    "precomputed": Precomputed,
}


def as_kernel(kernel: Any) -> Kernel:
    """Return a kernel as it is, or the kernel of a name with its default parameters.

    Args:
        kernel: a kernel, or one of the registered names.

    Returns:
        A kernel; parameters that its data decide are still None.

    Raises:
        TypeError: neither a kernel nor a string.
        ValueError: no kernel has that name.

    Example:
        >>> as_kernel("rbf").length_scale is None
        True
    """
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise TypeError(
            f"kernel must be one of {', '.join(KERNELS)}, or a kernel such as zoo.kernels.RBF(1.0); "
            f"got {type(kernel).__name__}"
        )
    if kernel.lower() not in KERNELS:
        raise ValueError(f"no kernel is called {kernel!r}; there are {', '.join(KERNELS)}")
    return KERNELS[kernel.lower()]()


# Arithmetic that NumPy, JAX and scipy's sparse matrices share


def _library(*arrays: Array | np.ndarray) -> Any:
    """``jax.numpy`` if any array is JAX's (or a tracer), else NumPy."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def _value(parameter: Array | np.ndarray, xp: Any) -> Any:
    """A parameter as the library wants it: a float for NumPy, an array of the current precision for JAX."""
    if parameter is None:
        raise ValueError("length_scale is not set: give a number, or fill it from data with kernel.filled(x)")
    return in_current_precision(parameter) if xp is jnp or isinstance(parameter, jax.Array) else parameter


def _products(x: Array | np.ndarray, y: Array | np.ndarray) -> Any:
    products = x @ y.T
    return products.toarray() if hasattr(products, "toarray") else products


def _squares(x: Any) -> Any:
    if hasattr(x, "toarray"):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return _library(x).einsum("ij,ij->i", x, x)
