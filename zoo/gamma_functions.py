r"""Digamma and log-gamma of positive numbers, 7 and 4 times as fast as JAX (``tests.benchmarks.numerics``).

With :math:`y = x + n - 1/2` and Bernoulli polynomials :math:`b_j = B_{2j}(1/2)` (Abramowitz and Stegun 1964,
6.3.18 and 6.1.40, taken at the half)

.. math::
    \psi(x) \sim \log y - \sum_j \frac{b_j}{2j\, y^{2j}} - \sum_{i<n} \frac{1}{x + i}, \qquad
    \log\Gamma(x) \sim (y \log y - y) + \tfrac12 \log 2\pi + \sum_j \frac{b_j}{2j(2j-1)\, y^{2j-1}}
        - \log \prod_{i<n} (x + i).

The factors of the product pair to :math:`u + i(n-1-i)` with :math:`u = x(x+n-1)`, so that product and sum of
reciprocals are one polynomial in u and its derivative: one division instead of n. exp(digamma), the
mean-field weight of a Dirichlet's entry, has a series without a logarithm. n = 10 with eight terms leaves
rounding alone in double precision, n = 4 with four terms in single. Up to x = 1e9.
"""

from fractions import Fraction
from functools import cache
from math import comb, log, pi
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

DOUBLE, SINGLE = (10, 8), (4, 4)  # shift n, terms of the series


def digamma(x: Array) -> Array:
    """The digamma function, the derivative of log-gamma.

    Args:
        x: above 0, any shape.

    Returns:
        The shape of ``x``.
    """
    x = _floating(x)
    shift, terms = _sizes(x)
    y = x + (shift - 0.5)
    return jnp.log(y) + _series(1 / (y * y), _coefficients(terms)[0]) - _reciprocals(x, shift)


def exp_digamma(x: Array) -> Array:
    """Exponential of the digamma function.

    Args:
        x: above 0, any shape.

    Returns:
        The shape of ``x``.
    """
    x = _floating(x)
    shift, terms = _sizes(x)
    y = x + (shift - 0.5)
    scale = y * (1 + _series(1 / (y * y), _coefficients(terms)[2]))
    return scale * jnp.exp(-_reciprocals(x, shift))


def gammaln(x: Array) -> Array:
    """Logarithm of the gamma function.

    Args:
        x: above 0, any shape.

    Returns:
        The shape of ``x``.
    """
    x = _floating(x)
    shift, terms = _sizes(x)
    y = x + (shift - 0.5)
    tail = y * _series(1 / (y * y), _coefficients(terms)[1])
    product = _polynomial(x * (x + (shift - 1)), _products(shift)[0])
    return y * (jnp.log(y) - 1) + 0.5 * log(2 * pi) + tail - jnp.log(product)


def _floating(x: Array) -> Array:
    """Numbers of the precision in force where whole ones are given, which would count as single."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))


def _sizes(x: Array) -> tuple[int, int]:
    return DOUBLE if x.dtype == jnp.float64 else SINGLE


def _reciprocals(x: Array, shift: int) -> Array:
    """Sum of 1 / (x + i), i = 0 to shift - 1."""
    u = x * (x + (shift - 1))
    product, derivative = _products(shift)
    return (2 * x + (shift - 1)) * (_polynomial(u, derivative) / _polynomial(u, product))


def _polynomial(u: Array, coefficients: tuple[float, ...]) -> Array:
    """A polynomial by Horner's rule, its coefficients from the highest power down."""
    value = jnp.full_like(u, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * u + coefficient
    return value


def _series(r: Array, coefficients: tuple[float, ...]) -> Array:
    """Sum of coefficients times r, r^2, ..."""
    return _polynomial(r, (*coefficients[::-1], 0.0))


@cache
def _products(shift: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The product of u + i(shift - 1 - i) over the first half of i, and its derivative, as polynomials."""
    product = np.poly([-i * (shift - 1 - i) for i in range(shift // 2)])
    return tuple(product.tolist()), tuple(np.polyder(product).tolist())


@cache
def _coefficients(terms: int) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Coefficients in powers of 1/y^2 of digamma - log y, of log-gamma over y and of exp(digamma) / y."""
    bernoulli: list[Any] = [Fraction(1)]
    for m in range(1, 2 * terms + 1):
        bernoulli.append(-sum(comb(m + 1, k) * bernoulli[k] for k in range(m)) / (m + 1))
    at_half = [(Fraction(2) ** (1 - 2 * j) - 1) * bernoulli[2 * j] for j in range(1, terms + 1)]
    logs = [-b / (2 * j) for j, b in enumerate(at_half, 1)]
    integrals = [b / (2 * j * (2 * j - 1)) for j, b in enumerate(at_half, 1)]
    power: list[Any] = [Fraction(1)]  # of the exponential: m e_m = sum_j j l_j e_{m-j}
    for m in range(1, terms + 1):
        power.append(sum(j * logs[j - 1] * power[m - j] for j in range(1, m + 1)) / m)
    return tuple(map(float, logs)), tuple(map(float, integrals)), tuple(map(float, power[1:]))


def expected_log(concentration: Array, axis: int = -1) -> Array:
    """E[log p] under Dirichlets along an axis.

    Args:
        concentration: parameters, any shape.
        axis: of the entries of one vector.

    Returns:
        Shape of ``concentration``, in nats.
    """
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=axis, keepdims=True))
