r"""Determinantal point processes: L-ensembles as distributions and as factors, kernels of orthonormal bases.

An L-ensemble on a ground set of M items draws subsets with :math:`P(S) = \det L_S / \det(L + I)`, L
positive semi-definite: similar items seldom come together. Each item is drawn with probability
:math:`K_{ii}`, two with :math:`K_{ii} K_{jj} - K_{ij}^2`, where :math:`K = L (L + I)^{-1}` is the marginal
kernel. Given its size k the subset is a k-DPP, :math:`P(S) = \det L_S / e_k(\lambda)` with :math:`e_k` the
elementary symmetric polynomial of the eigenvalues (Kulesza and Taskar 2012, sections 2 and 5).

Draws are exact. One pass over the items decides each by its probability given those before it, and updates
the marginal kernel of the rest by a rank-one step (Poulson 2020, algorithm 1); a k-DPP first draws which k
eigenvectors make up its marginal kernel.

Similarities of bases :math:`U_k`, each D x d with orthonormal columns, for a repulsive prior of components
(Qiao et al., "Repulsive mixture models of exponential family PCA for clustering"):

* ``angular``: that paper's, from the cosines of all pairs of columns. With :math:`s_k` the sum of the columns
  of :math:`U_k` it is :math:`\exp\{-\tfrac\rho2 \|s_k - s_l\|^2\}`, a Gaussian kernel of the sums. It changes
  when a column changes its sign, though the component that the basis stands for does not.
* ``subspace``: :math:`\exp\{-\tfrac\rho2 \|U_k U_k' - U_l U_l'\|_F^2\}`, of the subspaces alone: neither
  signs nor rotations of a basis change it.

Corrections of that paper: its forms (5) and (6) are the angular kernel times :math:`e^{-\rho d (d-1)}` and
:math:`e^{\rho d}`, so their objectives differ by constants; (9), with unit diagonals beside the off-diagonals
of (6), is the determinant of neither and may be negative. All have their diagonal in one scale here.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.util import validate_sample

from zoo.checks import check_choice, check_size
from zoo.in_blocks import map_in_blocks
from zoo.kernels.gram import check_gram

ANGULAR_FORMS = ("normalised", "equation_5", "equation_6")


def log_determinant(matrix: Array) -> Array:
    """Log determinant of positive semi-definite matrices by Cholesky; minus infinity where one is singular.

    Args:
        matrix: shape (..., M, M).

    Returns:
        Shape (...,).
    """
    factor = jnp.linalg.cholesky(matrix)
    value = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


def marginal_kernel(likelihood_kernel: Array) -> Array:
    """The marginal kernel K = L (L + I)^-1, whose diagonal has the probabilities of the items.

    Args:
        likelihood_kernel: L, shape (M, M).

    Returns:
        Shape (M, M).
    """
    eye = jnp.eye(likelihood_kernel.shape[-1], dtype=likelihood_kernel.dtype)
    return eye - jnp.linalg.inv(likelihood_kernel + eye)


def log_elementary_symmetric(log_values: Array, degree: int) -> Array:
    """Log elementary symmetric polynomials of all leading parts of a list of values.

    Returns:
        Shape (M + 1, degree + 1): entry (m, l) is that of degree l of the first m values.
    """
    first = jnp.full(degree + 1, -jnp.inf, log_values.dtype).at[0].set(0.0)

    def add(before: Array, log_value: Array) -> tuple[Array, Array]:
        after = before.at[1:].set(jnp.logaddexp(before[1:], log_value + before[:-1]))
        return after, after

    return jnp.concatenate([first[None], jax.lax.scan(add, first, log_values)[1]])


class LEnsemble(dist.Distribution):
    """Subsets of M items as vectors of zeros and ones, with probability det L_S / det(L + I).

    Args:
        likelihood_kernel: L, shape (M, M), symmetric and positive semi-definite.
        validate_args: as in NumPyro.

    Raises:
        ValueError: L is not square, not finite, not symmetric or not positive semi-definite.
    """

    support = dist.constraints.independent(dist.constraints.boolean, 1)
    pytree_data_fields = ("likelihood_kernel",)

    def __init__(self, likelihood_kernel: Any, *, validate_args: bool | None = None) -> None:
        """Check and store the kernel."""
        _check_kernel(likelihood_kernel)
        self.likelihood_kernel = jnp.asarray(likelihood_kernel, float)
        super().__init__((), self.likelihood_kernel.shape[-1:], validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        """Log probability of subsets, shape (..., M), in nats."""
        eye = jnp.eye(self.event_shape[0])
        return _log_determinant_of(self.likelihood_kernel, value) - log_determinant(
            self.likelihood_kernel + eye
        )

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, shape (*sample_shape, M)."""
        return _in_shape(partial(_draw, marginal_kernel(self.likelihood_kernel)), key, sample_shape)

    @property
    def mean(self) -> Array:
        """The probability of each item."""
        return jnp.diagonal(marginal_kernel(self.likelihood_kernel))

    @property
    def variance(self) -> Array:
        """The variance of each item's indicator."""
        return self.mean * (1.0 - self.mean)


class KDPP(dist.Distribution):
    """Subsets of exactly k of M items as vectors of zeros and ones, with probability det L_S / e_k(lambda).

    Args:
        likelihood_kernel: L, shape (M, M), symmetric and positive semi-definite.
        size: k, at most the rank of L.
        validate_args: as in NumPyro.

    Raises:
        TypeError: the size is not a whole number.
        ValueError: as `LEnsemble`, or a size outside 1 to M.
    """

    support = dist.constraints.independent(dist.constraints.boolean, 1)
    pytree_data_fields = ("likelihood_kernel",)
    pytree_aux_fields = ("size",)

    def __init__(self, likelihood_kernel: Any, size: int, *, validate_args: bool | None = None) -> None:
        """Check and store the kernel and the size."""
        is_known = _check_kernel(likelihood_kernel)
        check_size("size", size)
        self.likelihood_kernel = jnp.asarray(likelihood_kernel, float)
        num_items = self.likelihood_kernel.shape[-1]
        if not 1 <= size <= num_items:
            raise ValueError(f"size must be between 1 and {num_items}, the number of items; got {size}")
        if is_known and size > (rank := np.linalg.matrix_rank(np.asarray(likelihood_kernel), hermitian=True)):
            raise ValueError(f"size must be at most the rank of the kernel, {rank}; got {size}")
        self.size = int(size)
        super().__init__((), (num_items,), validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        """Log probability of subsets, shape (..., M), in nats; minus infinity for another size."""
        log_normaliser = log_elementary_symmetric(self._spectrum()[0], self.size)[-1, -1]
        fits = jnp.sum(value, axis=-1) == self.size
        log_prob = _log_determinant_of(self.likelihood_kernel, value) - log_normaliser
        return jnp.where(fits, log_prob, -jnp.inf)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, shape (*sample_shape, M)."""
        log_values, vectors = self._spectrum()
        table = log_elementary_symmetric(log_values, self.size)

        def draw(key: Array) -> Array:
            vectors_key, items_key = jax.random.split(key)
            chosen = _draw_eigenvectors(vectors_key, log_values, table)
            return _draw((vectors * chosen) @ vectors.T, items_key)

        return _in_shape(draw, key, sample_shape)

    def _spectrum(self) -> tuple[Array, Array]:
        """Log eigenvalues and eigenvectors, with eigenvalues at rounding level set to zero."""
        values, vectors = jnp.linalg.eigh(self.likelihood_kernel)
        smallest = values[-1] * values.shape[0] * jnp.finfo(values.dtype).eps
        positive = values > smallest
        return jnp.where(positive, jnp.log(jnp.where(positive, values, 1.0)), -jnp.inf), vectors


def greedy_subset(likelihood_kernel: Any, size: int | None = None) -> list[int]:
    """Choose items greedily, each maximising log det L_S given those before it.

    log det is submodular; the subset of largest probability itself is NP-hard to find. Incremental Cholesky
    factors (Chen, Zhang and Zhou 2018) make it O(M k^2).

    Args:
        likelihood_kernel: L, shape (M, M).
        size: how many items; None: as long as the determinant grows.

    Raises:
        ValueError: as `LEnsemble`, or a size above the rank of L.
    """
    matrix = np.asarray(likelihood_kernel, float)
    _check_kernel(matrix)
    num_items = len(matrix)
    if size is not None and not 0 <= size <= num_items:
        raise ValueError(f"size must be between 0 and {num_items}, the number of items; got {size}")
    gains, factor, chosen = np.diag(matrix).copy(), np.zeros((0, num_items)), list[int]()
    rounding = num_items * np.finfo(float).eps * max(gains.max(), 0.0)
    while len(chosen) < (num_items if size is None else size):
        free = gains.copy()
        free[chosen] = -np.inf
        best = int(free.argmax())
        if size is None and free[best] <= 1.0:
            break
        if free[best] <= rounding:
            raise ValueError(f"size must be at most the rank of the kernel, {len(chosen)}; got {size}")
        row = (matrix[best] - factor[:, best] @ factor) / np.sqrt(gains[best])
        factor, gains = np.vstack([factor, row]), gains - row**2
        chosen.append(best)
    return chosen


# Similarities of orthonormal bases


def angular_similarity(bases: Array, scale: Array, form: str = "normalised") -> Array:
    """The paper's similarity of bases, from the cosines of all pairs of columns.

    Args:
        bases: U, shape (K, D, d), columns orthonormal.
        scale: rho > 0.
        form: ``"normalised"`` has a unit diagonal; ``"equation_5"`` and ``"equation_6"`` are the paper's,
            the same up to a factor.

    Returns:
        Shape (K, K).

    Raises:
        ValueError: an unknown form.
    """
    check_choice("form", form, ANGULAR_FORMS)
    sums, num_columns = jnp.sum(bases, axis=-1), bases.shape[-1]
    exponent = {
        "normalised": 0.0,
        "equation_5": -num_columns * (num_columns - 1.0),
        "equation_6": float(num_columns),
    }[form]
    return jnp.exp(scale * (sums @ sums.T - num_columns + exponent))


def subspace_similarity(bases: Array, scale: Array) -> Array:
    """Similarity of the subspaces that bases span, invariant to their signs and rotations.

    One for the same subspace, exp(-rho d) for orthogonal ones.

    Args:
        bases: U, shape (K, D, d), columns orthonormal.
        scale: rho > 0.

    Returns:
        Shape (K, K).
    """
    cosines = jnp.einsum("kia,lib->klab", bases, bases)
    return jnp.exp(scale * (jnp.sum(cosines**2, axis=(-2, -1)) - bases.shape[-1]))


SIMILARITIES = {"angular": angular_similarity, "subspace": subspace_similarity}


def repulsion_factor(name: str, similarity: Array, weight: Array) -> None:
    """Add weight times log det of a similarity matrix to the density of a NumPyro program.

    With a unit diagonal it is at most zero, and zero where all similarities vanish.

    Args:
        name: of the site.
        similarity: shape (K, K), positive semi-definite.
        weight: at least 0.
    """
    numpyro.factor(name, weight * log_determinant(similarity))


# Draws


def _draw(kernel: Array, key: Array) -> Array:
    """Draw zeros and ones, shape (M,), from the determinantal process with a marginal kernel."""
    num_items = kernel.shape[0]
    uniforms = jax.random.uniform(key, (num_items,), kernel.dtype)
    places = jnp.arange(num_items)

    def decide(kernel: Array, args: tuple[Array, Array]) -> tuple[Array, Array]:
        item, uniform = args
        taken = uniform < kernel[item, item]
        pivot = kernel[item, item] - jnp.where(taken, 0.0, 1.0)
        later = jnp.where(places > item, kernel[:, item], 0.0)
        return kernel - jnp.outer(later, later) / pivot, taken

    return jax.lax.scan(decide, kernel, (places, uniforms))[1].astype(jnp.int32)


def _draw_eigenvectors(key: Array, log_values: Array, table: Array) -> Array:
    """Draw k eigenvectors, shape (M,), from the last one on (Kulesza and Taskar, algorithm 8)."""
    num_values, size = log_values.shape[0], table.shape[1] - 1
    log_uniforms = jnp.log(jax.random.uniform(key, (num_values,), log_values.dtype))

    def decide(left: Array, m: Array) -> tuple[Array, Array]:
        log_odds = log_values[m] + table[m, left - 1] - table[m + 1, left]
        taken = (left > 0) & (log_uniforms[m] < log_odds)
        return left - taken, taken

    backwards = jnp.arange(num_values)[::-1]
    return jax.lax.scan(decide, jnp.asarray(size), backwards)[1][::-1].astype(log_values.dtype)


def _in_shape(draw: Array, key: Array, sample_shape: tuple[int, ...]) -> Array:
    drawn = map_in_blocks(draw, jax.random.split(key, int(np.prod(sample_shape))), 1024)
    return drawn.reshape(*sample_shape, -1)


def _log_determinant_of(matrix: Array, subset: Array) -> Array:
    """Log determinant of the rows and columns of subsets, the others replaced by those of the identity."""
    inside = jnp.asarray(subset, matrix.dtype)
    both = inside[..., :, None] * inside[..., None, :]
    return log_determinant(both * matrix + (1.0 - inside)[..., None] * jnp.eye(matrix.shape[-1]))


def _check_kernel(matrix: Any) -> bool:
    """Raise ValueError unless the matrix is a kernel; return whether its values are known, not traced."""
    if isinstance(matrix, jax.core.Tracer):
        return False
    array = np.asarray(matrix, float)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise ValueError(f"likelihood_kernel must have shape (items, items); got {array.shape}")
    check_gram(array, "likelihood_kernel")
    return True
