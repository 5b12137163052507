"""Solvers of the M-steps of hyperparameters, each within a bracket, so that nothing can run off.

Equations in one unknown are solved by bisection of its logarithm; `ComponentPrior.learnt` of each family
states its own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma

__all__ = [
    "BRACKETS",
    "best_dirichlet",
    "bracket",
    "expected_log_probs",
    "relative_eigenvalues",
    "root",
    "within_scale",
]

BRACKETS = {  # degrees_of_freedom: above num_features - 1; scale_matrix: eigenvalues relative to the start
    "concentration": (1e-3, 1e4),
    "mean_precision": (1e-6, 1e4),
    "degrees_of_freedom": (1e-3, 1e4),
    "scale_matrix": (1e-6, 1e6),
    "concentration1": (1e-3, 1e4),
    "concentration0": (1e-3, 1e4),
    "shape": (1e-3, 1e4),
}
BISECTIONS = 48  # of the logarithm: to 1e-13 relative


def root(falling: Callable, low: Array, high: Array) -> Array:
    """Where a falling function of a positive number is zero, or the end of the bracket nearest to that.

    Args:
        falling: elementwise function of an array of the shape of ``low``.
        low: lower end of the bracket, positive.
        high: upper end, the shape of ``low``.

    Returns:
        The shape of ``low``.
    """

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = bracket
        middle = 0.5 * (below + above)
        is_left = falling(jnp.exp(middle)) > 0
        return jnp.where(is_left, middle, below), jnp.where(is_left, above, middle)

    below, above = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.log(low), jnp.log(high)))
    return jnp.exp(0.5 * (below + above))


def bracket(name: str, like: Array) -> tuple[Array, Array]:
    """Both ends of a hyperparameter's bracket.

    Args:
        name: of the hyperparameter.
        like: array whose shape the ends get.

    Returns:
        Two arrays of the shape of ``like``.
    """
    low, high = BRACKETS[name]
    return jnp.full_like(like, low), jnp.full_like(like, high)


def expected_log_probs(concentration: Array) -> Array:
    """E[log p] of Dirichlets.

    Args:
        concentration: shape (..., num_categories).

    Returns:
        The shape of ``concentration``, in nats.
    """
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=-1, keepdims=True))


def best_dirichlet(average: Array) -> Array:
    """The Dirichlet with given expectations of the logarithms.

    A search for the total s with sum of psi^-1(psi(s) + average) equal to s.

    Args:
        average: E[log p], shape (..., num_categories).

    Returns:
        The concentration, the shape of ``average``.
    """
    total = average[..., 0]
    low, high = BRACKETS["concentration"]
    size = average.shape[-1]

    def parts(total: Array) -> Array:
        target = digamma(total)[..., None] + average
        return root(lambda value: target - digamma(value), *bracket("concentration", target))

    def excess(total: Array) -> Array:
        return jnp.sum(parts(total), axis=-1) - total

    return parts(root(excess, jnp.full_like(total, low * size), jnp.full_like(total, high)))


def relative_eigenvalues(matrix: Array, reference: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of a matrix in coordinates where the reference is the identity.

    Args:
        matrix: symmetric, shape (D, D).
        reference: positive definite, shape (D, D).

    Returns:
        Eigenvalues, shape (D,), and vectors in the given coordinates, shape (D, D).
    """
    factor = jnp.linalg.cholesky(reference)
    half = jax.scipy.linalg.solve_triangular(factor, matrix, lower=True)
    whitened = jax.scipy.linalg.solve_triangular(factor, half.T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (whitened + whitened.T))
    return values, factor @ vectors


def within_scale(matrix: Array, reference: Array) -> Array:
    """The matrix, with eigenvalues relative to the reference brought into the bracket of scale matrices.

    Args:
        matrix: symmetric, shape (D, D).
        reference: positive definite, shape (D, D).

    Returns:
        Shape (D, D).
    """
    low, high = BRACKETS["scale_matrix"]
    values, vectors = relative_eigenvalues(matrix, reference)
    clipped = (vectors * jnp.clip(values, low, high)) @ vectors.T
    inside = (values[0] >= low) & (values[-1] <= high)
    return jnp.where(inside, 0.5 * (matrix + matrix.T), 0.5 * (clipped + clipped.T))
