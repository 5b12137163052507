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
same without the constraint z = X w and another problem with it: whenever :math:`N > M + L` its
:math:`X^T \bar K^{+} X` is a multiple of I for every weight below one, and **the printed algorithm is PCA**
(`printed_morp`, tested). The simplified form agrees with the others where :math:`G_x` has rank N - 1 and is
another answer where it has not.

Kernel CCA (the peer in section 6.3.3): pairs of directions :math:`a, b` of largest
:math:`a^T G_x G_y b` under :math:`a^T (G_x + \kappa I)^2 a = b^T (G_y + \kappa I)^2 b = 1`, each ridge
relative to the mean eigenvalue of its Gram matrix.

Cost: O(N M min(N, M)) primal, O(N^3) dual.

None of these is a generative model, and a fit has no density: its attribute ``generative`` is 0, nothing of
the program is evaluated at it, and `inference.log_density` and `inference.predict` raise an error.
"""

from typing import NamedTuple

import numpy as np
from jax import Array

from inference.algorithm import Outcome, as_one_draw
from zoo.kernels import Kernel, Linear, as_kernel
from zoo.kernels.gram import CentredGram, centred_cross, scored_dimension
from zoo.kernels.gram import centred_gram as gram_about_mean
from zoo.linear_gaussian.axes import signs_of
from zoo.model import in_current_precision
from zoo.shapes import Values
from zoo.sppca import SPPCA


class PrimalProjection(NamedTuple):
    """A projection whose scores are ``(x - mean) @ weights``.

    Attributes:
        weights: shape (num_features, num_latents).
        eigenvalues: of the problem, descending, shape (num_latents,).
    """

    weights: np.ndarray
    eigenvalues: np.ndarray


class DualProjection(NamedTuple):
    """A projection with scores ``k(x) @ coefficients``, k(x) the centred kernel values with the fitted rows.

    Attributes:
        coefficients: shape (num_observations, num_latents).
        eigenvalues: of the problem, descending, shape (num_latents,).
        weights: of a linear kernel the weights of the columns, X' times the coefficients; None of others.
    """

    coefficients: np.ndarray
    eigenvalues: np.ndarray
    weights: np.ndarray | None = None


def blended_gram(
    gram_x: np.ndarray, grams_y: tuple[np.ndarray, ...], weights: np.ndarray, balance: bool = True
) -> np.ndarray:
    """The blend ``(1 - sum w) G_x + sum_s w_s G_s`` of centred Gram matrices (6.9).

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


def morp_primal(
    x: np.ndarray,
    blend: np.ndarray,
    num_latents: int,
    ridge: np.ndarray | float,
    rounding: np.ndarray | float = 0.0,
) -> PrimalProjection:
    """Solve problem (6.5) for centred rows.

    Args:
        x: rows, shape (num_observations, num_features).
        blend: of `blended_gram`.
        num_latents: K.
        ridge: gamma.
        rounding: squared length of each column's rounding error, shape (num_features,), or one for all.
    """
    u, squares, directions = _singular(x, rounding)
    whitened, scale = _constrained(u, squares, ridge)
    values, vectors = _leading(whitened.T @ blend @ whitened, num_latents)
    return PrimalProjection(np.sqrt(values) * (directions.T @ (scale[:, None] * vectors)), values)


def morp_dual(
    gram_x: np.ndarray,
    blend: np.ndarray,
    num_latents: int,
    ridge: np.ndarray | float,
    rounding: np.ndarray | float = 0.0,
    factor: np.ndarray | None = None,
) -> DualProjection:
    """Solve problem (6.5) with ``w = X' alpha``, for a centred Gram matrix.

    Args:
        gram_x: the Gram matrix.
        blend: of `blended_gram`.
        num_latents: K.
        ridge: gamma.
        rounding: the eigenvalue below which the Gram matrix is rounding; with a factor as in `morp_primal`.
        factor: X, of a linear kernel: its singular values have the digits that eigenvalues lose.
    """
    u, squares, directions = _factored(gram_x, rounding, factor)
    whitened, scale = _constrained(u, squares, ridge)
    values, vectors = _leading(whitened.T @ blend @ whitened, num_latents)
    inverse = np.where(squares > 0, scale / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    weights = None if factor is None else np.sqrt(values) * (directions.T @ (scale[:, None] * vectors))
    return DualProjection(np.sqrt(values) * (u @ (inverse[:, None] * vectors)), values, weights)


def morp_simplified(
    gram_x: np.ndarray,
    blend: np.ndarray,
    num_latents: int,
    rounding: np.ndarray | float = 0.0,
    factor: np.ndarray | None = None,
) -> DualProjection:
    """Run Algorithm 6.3 with the pseudo-inverse of the Gram matrix, which centring makes singular."""
    values, z = _leading(blend, num_latents)
    u, squares, directions = _factored(gram_x, rounding, factor)
    inverse = np.where(squares > 0, 1.0 / np.where(squares > 0, squares, 1.0), 0.0)[:, None]
    turned = u.T @ z
    weights = None
    if factor is not None:
        weights = np.sqrt(values) * (directions.T @ (np.sqrt(squares)[:, None] * inverse * turned))
    return DualProjection(np.sqrt(values) * (u @ (inverse * turned)), values, weights)


def printed_morp(
    x: np.ndarray, blend: np.ndarray, num_latents: int, ridge: np.ndarray | float
) -> PrimalProjection:
    """Run Algorithm 6.1 as printed, ``X'X w = l (X' K^+ X + g I) w``, which is PCA where N > M + L."""
    q = x.T @ _inverse(blend) @ x + ridge * np.eye(x.shape[1], dtype=x.dtype)
    values, vectors = np.linalg.eigh(q)
    root = vectors / np.sqrt(values) @ vectors.T
    values, vectors = _leading(root @ x.T @ x @ root, num_latents)
    return PrimalProjection(root @ vectors, values)


def kernel_cca(
    gram_x: np.ndarray,
    gram_y: np.ndarray,
    num_latents: int,
    ridge: np.ndarray | float,
    rounding: tuple[float, float] = (0.0, 0.0),
) -> DualProjection:
    """Solve regularised kernel CCA, whose eigenvalues are the regularised canonical correlations."""
    root_x, root_y = _inverse(gram_x, ridge, rounding[0]), _inverse(gram_y, ridge, rounding[1])
    u, s, _ = np.linalg.svd(root_x @ gram_x @ gram_y @ root_y)
    directions = root_x @ u[:, :num_latents]
    return DualProjection(directions * signs_of(directions), s[:num_latents])


def _constrained(
    u: np.ndarray, squares: np.ndarray, ridge: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """The matrices ``U A`` and ``(S^2 + g)^-1/2``, zero for directions without variance."""
    kept = squares > 0
    total = np.where(kept, squares + ridge, 1.0)
    scale = np.where(kept, 1.0 / np.sqrt(total), 0.0)
    return u * (np.sqrt(np.where(kept, squares, 0.0)) * scale), scale


def _spectrum(gram: np.ndarray, rounding: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors and eigenvalues of a Gram matrix, with rounding errors set to zero."""
    squares, u = np.linalg.eigh(gram)
    return u, np.where(squares > np.maximum(_smallest(squares), rounding), squares, 0.0)


def _factored(
    gram: np.ndarray, rounding: np.ndarray | float, factor: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Left vectors, eigenvalues of the Gram matrix, and of a factor X, ``G = X X'``, the right vectors."""
    if factor is None:
        return *_spectrum(gram, rounding), None
    return _singular(factor, rounding)


def _singular(x: np.ndarray, rounding: np.ndarray | float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left vectors, squares of the singular values, zero beyond the rank, and right vectors.

    The rank is that of columns of unit length, because it must not depend on their units: columns in units
    1e-3 and 1e3 differ by 1e12 in the eigenvalues of the Gram matrix, and none may be taken for rounding.
    """
    lengths = np.linalg.norm(x, axis=0)
    lengths = np.where(lengths > 0, lengths, 1.0)
    relative = np.linalg.svd(x / lengths, compute_uv=False)
    error = np.sqrt(np.sum(np.broadcast_to(rounding, lengths.shape) / lengths**2))
    rank = np.sum(relative > max(relative[0] * max(x.shape) * np.finfo(x.dtype).eps, error))
    u, values, directions = np.linalg.svd(x, full_matrices=False)
    return u, np.where(np.arange(values.size) < rank, values**2, 0.0), directions


def rank_of(gram: CentredGram) -> int:
    """The number of eigenvalues of a centred Gram matrix above what rounding leaves."""
    rounding = gram.rounding if gram.factor is None else gram.column_rounding
    return int(np.sum(_factored(gram.matrix, rounding, gram.factor)[1] > 0))


def _smallest(squares: np.ndarray) -> np.ndarray:
    """The eigenvalue of a symmetric matrix below which there is only rounding error."""
    return np.max(squares) * squares.shape[0] * np.finfo(squares.dtype).eps * 10


def _inverse(gram: np.ndarray, ridge: np.ndarray | float = 0.0, rounding: float = 0.0) -> np.ndarray:
    """The inverse of G + kappa I on the range of G, kappa relative to its mean positive eigenvalue."""
    u, squares = _spectrum(gram, rounding)
    kappa = ridge * np.sum(squares) / np.maximum(np.sum(squares > 0), 1)
    return (u * np.where(squares > 0, 1.0 / np.where(squares > 0, squares + kappa, 1.0), 0.0)) @ u.T


def _leading(matrix: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, descending and at least zero, and their eigenvectors with fixed signs."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    leading = vectors[:, ::-1][:, :number]
    return np.maximum(values[::-1][:number], 0.0), leading * signs_of(leading)


def centred_gram(kernel: Kernel | str, rows: np.ndarray) -> CentredGram:
    """The centred Gram matrix of rows, for a kernel or its name."""
    return gram_about_mean(as_kernel(kernel).filled(rows), rows)


def stored(
    projection: PrimalProjection | DualProjection,
    model: SPPCA,
    x: np.ndarray,
    gram: CentredGram | None = None,
) -> Outcome:
    """Conclude with the projection and the scores of the fitted rows.

    Args:
        projection: the solution.
        model: the model; a dual projection of a primal model is stored with the linear kernel.
        x: the fitted rows.
        gram: dual: the centred Gram matrix.
    """
    posterior = {"eigenvalues": np.asarray(projection.eigenvalues)}
    if isinstance(projection, PrimalProjection):
        loc = x.mean(axis=0)
        posterior |= {"projection": np.asarray(projection.weights), "loc_x": loc}
        more = {"latents": (x - loc) @ posterior["projection"]}
    else:
        posterior["coefficients"] = np.asarray(projection.coefficients)
        more = {"latents": gram.matrix @ posterior["coefficients"], "gram_means": gram.column_means}
        kernel = (Linear() if model.kernel is None else model.kernel).filled(x)
        if projection.weights is not None:
            weights = np.sqrt(float(kernel.linear_scale)) * projection.weights
            more |= {"latents": gram.factor @ projection.weights}
            more |= {"projection": weights, "loc_x": x.mean(axis=0)}
        dimension = scored_dimension(kernel.feature_dimension(x.shape[1]), len(x))
        model = model.replaced(kernel=kernel, feature_dimension=dimension)
    lead = as_one_draw(posterior)
    dims = {"eigenvalues": ("rank",), "projection": ("feature", "latent")}
    return Outcome(
        posterior=lead,
        variational=posterior | more,
        attrs={"generative": 0},
        dims=dims,
        model=model,
        is_point=True,
        is_generative=False,
        densities={},
    )


def transform(
    values: Values, model: SPPCA, x: Array, y: Array | None = None, *, kind: str = "latent"
) -> Array:
    """Scores of new rows, whose outputs are not used.

    Raises:
        ValueError: other scores than ``"latent"``.
    """
    if kind != "latent":
        raise ValueError("this projection has one kind of scores; leave scores out")
    if "projection" in values:
        return (x - values["loc_x"]) @ values["projection"]
    kernel = in_current_precision(model.kernel)
    return centred_cross(kernel, x, values["fitted_x"], values["gram_means"]) @ values["coefficients"]


def not_generative(values: Values, model: SPPCA, *data: object, **options: object) -> Array:
    """Raise ValueError, because a projection has no distribution of rows."""
    raise ValueError(
        "this fit is a projection, not generative: it has scores (inference.transform) but no densities, "
        "predictions or covariances; fit the model by method='em' for those"
    )
