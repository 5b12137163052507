r"""Supervised projections by one eigenvalue problem: MORP in three forms, and regularised kernel CCA.

All work on centred data: rows x_n with Gram matrix :math:`G_x = X X^T`, and an output matrix
:math:`\bar K = (1 - \sum_s \beta_s) G_x + \sum_s \beta_s G_{y_s}` in which every set of outputs has a Gram
matrix of its own, all traces made equal first (Yu 2006, section 6.2).

MORP (multi-output regularised projection). The thesis's problem (6.5),

.. math::
    \max_w\; w^T X^T \bar K X w \quad\text{subject to}\quad w^T (X^T X + \gamma I) w = 1 ,

is solved in the row space of X: with :math:`X = U S V^T` and
:math:`A = S (S^2 + \gamma)^{-1/2}` the answer is :math:`w = V (S^2 + \gamma)^{-1/2} q` for the leading
eigenvectors q of :math:`A U^T \bar K U A`. Scores are :math:`\sqrt{\lambda_k}\, w_k^T x`, which is PCA where
all weights are zero and :math:`\gamma = 0`. In the dual form :math:`w = X^T \alpha`; in the simplified one
(Algorithm 6.3) :math:`\alpha_k = G_x^+ z_k` with the leading eigenvectors z of :math:`\bar K`.

Departures from the source. Algorithm 6.1 turns (6.5) into :math:`\min w^T X^T \bar K^{-1} X w`, which is the
same without the constraint z = X w and another problem with it: whenever :math:`N \ge M + L` its
:math:`X^T \bar K^{+} X` is a multiple of I for every weight below one, and **the printed algorithm is PCA**
(`printed_morp`, tested). The simplified form agrees with the others where :math:`G_x` has rank N - 1 and is
another answer where it has not.

Kernel CCA (the peer in section 6.3.2): pairs of directions :math:`a, b` of largest
:math:`a^T G_x G_y b` under :math:`a^T (G_x + \kappa I)^2 a = b^T (G_y + \kappa I)^2 b = 1`, each ridge
relative to the mean eigenvalue of its Gram matrix.

None of these is a model: they say nothing of the distribution of x or y.

Cost: O(N M min(N, M)) primal, O(N^3) dual.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    "DualProjection",
    "PrimalProjection",
    "blended_gram",
    "kernel_cca",
    "morp_dual",
    "morp_primal",
    "morp_simplified",
    "printed_morp",
]


class PrimalProjection(NamedTuple):
    """Scores are ``(x - mean) @ weights``.

    Attributes:
        weights: shape (num_features, num_latents).
        eigenvalues: of the problem, descending, shape (num_latents,).
    """

    weights: np.ndarray
    eigenvalues: np.ndarray


class DualProjection(NamedTuple):
    """Scores are ``k(x) @ coefficients``, k(x) the centred kernel values with the fitted rows.

    Attributes:
        coefficients: shape (num_observations, num_latents).
        eigenvalues: of the problem, descending, shape (num_latents,).
    """

    coefficients: np.ndarray
    eigenvalues: np.ndarray


def blended_gram(
    gram_x: np.ndarray, grams_y: tuple[np.ndarray, ...], weights: np.ndarray, balance: bool = True
) -> np.ndarray:
    """``(1 - sum w) G_x + sum_s w_s G_s`` of centred Gram matrices (6.9).

    Args:
        gram_x: centred, shape (num_observations, num_observations).
        grams_y: one a set of outputs, centred.
        weights: beta_s of each set.
        balance: scale every output Gram matrix to the trace of ``gram_x`` first.
    """
    total = (1.0 - np.sum(weights)) * gram_x
    for weight, gram in zip(weights, grams_y, strict=True):
        scale = np.trace(gram_x) / np.trace(gram) if balance else 1.0
        total = total + weight * scale * gram
    return total


def morp_primal(x: np.ndarray, blend: np.ndarray, num_latents: int, ridge: np.ndarray) -> PrimalProjection:
    """Problem (6.5) for centred rows ``x`` of shape (num_observations, num_features)."""
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    whitened, scale = _constrained(u, s**2, ridge)
    values, vectors = _leading(whitened.T @ blend @ whitened, num_latents)
    return PrimalProjection(np.sqrt(values) * (vt.T @ (scale[:, None] * vectors)), values)


def morp_dual(gram_x: np.ndarray, blend: np.ndarray, num_latents: int, ridge: np.ndarray) -> DualProjection:
    """Problem (6.5) with ``w = X' alpha``, for a centred Gram matrix."""
    u, squares = _spectrum(gram_x)
    whitened, scale = _constrained(u, squares, ridge)
    values, vectors = _leading(whitened.T @ blend @ whitened, num_latents)
    inverse = np.where(squares > 0, scale / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    return DualProjection(np.sqrt(values) * (u @ (inverse[:, None] * vectors)), values)


def morp_simplified(gram_x: np.ndarray, blend: np.ndarray, num_latents: int) -> DualProjection:
    """Algorithm 6.3 with the pseudo-inverse of the Gram matrix, which after centring is always singular."""
    values, z = _leading(blend, num_latents)
    return DualProjection(np.sqrt(values) * (_pseudo_inverse(gram_x) @ z), values)


def printed_morp(x: np.ndarray, blend: np.ndarray, num_latents: int, ridge: np.ndarray) -> PrimalProjection:
    """Algorithm 6.1 as printed, ``X'X w = l (X' K^+ X + g I) w`` with ``w'Qw = 1``: PCA where N >= M + L."""
    q = x.T @ _pseudo_inverse(blend) @ x + ridge * np.eye(x.shape[1], dtype=x.dtype)
    values, vectors = np.linalg.eigh(q)
    root = vectors / np.sqrt(values) @ vectors.T
    values, vectors = _leading(root @ x.T @ x @ root, num_latents)
    return PrimalProjection(root @ vectors, values)


def kernel_cca(gram_x: np.ndarray, gram_y: np.ndarray, num_latents: int, ridge: np.ndarray) -> DualProjection:
    """Regularised kernel CCA; the eigenvalues are the regularised canonical correlations."""
    root_x, root_y = _ridged(gram_x, ridge), _ridged(gram_y, ridge)
    u, s, _ = np.linalg.svd(root_x @ gram_x @ gram_y @ root_y)
    return DualProjection(_signed(root_x @ u[:, :num_latents]), s[:num_latents])


def _constrained(u: np.ndarray, squares: np.ndarray, ridge: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``U A`` and ``(S^2 + g)^-1/2``; directions without variance are left out (zero)."""
    kept = squares > _smallest(squares)
    total = np.where(kept, squares + ridge, 1.0)
    scale = np.where(kept, 1.0 / np.sqrt(total), 0.0)
    return u * (np.sqrt(np.where(kept, squares, 0.0)) * scale), scale


def _spectrum(gram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues of a Gram matrix, those within rounding of zero as zero."""
    squares, u = np.linalg.eigh(gram)
    return u, np.where(squares > _smallest(squares), squares, 0.0)


def _smallest(squares: np.ndarray) -> np.ndarray:
    """An eigenvalue that is no more than rounding."""
    return np.max(squares) * squares.shape[0] * np.finfo(squares.dtype).eps * 10


def _pseudo_inverse(gram: np.ndarray) -> np.ndarray:
    u, squares = _spectrum(gram)
    return (u * np.where(squares > 0, 1.0 / np.where(squares > 0, squares, 1.0), 0.0)) @ u.T


def _ridged(gram: np.ndarray, ridge: np.ndarray) -> np.ndarray:
    """``(G + kappa I)^-1`` on the range of G, kappa relative to the mean of its positive eigenvalues."""
    u, squares = _spectrum(gram)
    kappa = ridge * np.sum(squares) / np.maximum(np.sum(squares > 0), 1)
    return (u * np.where(squares > 0, 1.0 / np.where(squares > 0, squares + kappa, 1.0), 0.0)) @ u.T


def _leading(matrix: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, descending and not below zero, and their eigenvectors with frozen signs."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.maximum(values[::-1][:number], 0.0), _signed(vectors[:, ::-1][:, :number])


def _signed(vectors: np.ndarray) -> np.ndarray:
    """The entry of a column that is largest in size is positive."""
    largest = np.argmax(np.abs(vectors), axis=0)
    sign = np.sign(np.take_along_axis(vectors, largest[None], axis=0))
    return vectors * np.where(sign == 0, 1.0, sign)
