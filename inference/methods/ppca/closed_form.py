r"""Maximum likelihood of probabilistic PCA in closed form.

With :math:`\lambda_1 \ge \dots \ge \lambda_D` the eigenvalues of the covariance of the rows, divisor N, and U
their vectors,

.. math::
    \hat\mu = \bar x, \qquad \hat\psi = \frac{1}{D - K} \sum_{j > K} \lambda_j, \qquad
    \hat W = U_K (\Lambda_K - \hat\psi I)^{1/2} R

for any rotation R, here the identity. The log likelihood is
:math:`-\frac N2 \{D \log 2\pi + \sum_{j \le K} \log\lambda_j + (D - K) \log \hat\psi + D\}`.

Only the K leading eigenvectors of the smaller of the D x D covariance and the N x N Gram matrix are computed;
the other eigenvalues enter by their sum, the trace. The cost is one symmetric product of the data and one
partial eigenvalue problem, as in any PCA. It runs on the host with LAPACK. Needs rows without missing cells,
isotropic noise and a flat prior; for the rest there is EM.

Reference: Tipping and Bishop (1999), (7)-(8) and appendix A.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jax import Array

from inference.algorithm import Direct, Outcome
from inference.methods.ppca.estimate import check_noise_floor, point_outcome
from zoo.ppca import PPCA

__all__ = ["METHOD", "ClosedForm", "solve", "tipping_bishop"]

SMALL_GAIN = 1e-10  # of the largest eigenvalue: below it the products' round-off shows, and the SVD decides


class ClosedForm(NamedTuple):
    """The maximum of the likelihood.

    Attributes:
        loadings: W, orthogonal columns, longest first, the largest entry of each positive, (D, K).
        loc: the mean of the rows, (D,).
        noise_variance: shape ().
        log_likelihood: of all rows, nats.
        at_floor: whether the floor holds the noise variance.
    """

    loadings: np.ndarray
    loc: np.ndarray
    noise_variance: np.ndarray
    log_likelihood: float
    at_floor: bool


def tipping_bishop(x: np.ndarray, num_latents: int, noise_floor: float = 1e-6) -> ClosedForm:
    """The maximum of the likelihood of isotropic PPCA.

    Args:
        x: rows without missing cells, shape (num_observations, num_features).
        num_latents: K, fewer than rows and than features.
        noise_floor: smallest noise variance as a share of the columns' mean variance.
    """
    num_rows, num_features = x.shape
    loc = x.mean(axis=0)
    centred = x - loc
    variances, directions, total = _leading(centred, num_latents)
    lowest = noise_floor * total / num_features
    noise = (total - variances.sum()) / (num_features - num_latents)
    at_floor = not noise > lowest
    noise = max(noise, lowest)
    lengths = np.sqrt(np.maximum(variances - noise, 0.0))
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(num_latents)])
    leading = np.maximum(variances, noise)
    terms = np.log(leading).sum() + (num_features - num_latents) * np.log(noise)
    fit = (variances / leading).sum() + (total - variances.sum()) / noise
    log_likelihood = -0.5 * num_rows * (num_features * np.log(2 * np.pi) + terms + fit)
    return ClosedForm(directions * (signs * lengths), loc, np.asarray(noise), float(log_likelihood), at_floor)


def _leading(centred: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The largest eigenvalues of the covariance, descending, their vectors, and the sum of all."""
    num_rows, num_features = centred.shape
    wide = num_features > num_rows
    square = centred @ centred.T if wide else centred.T @ centred
    size, total = square.shape[0], np.trace(square) / num_rows
    values, vectors = scipy.linalg.eigh(
        square, subset_by_index=[size - count, size - 1], overwrite_a=True, check_finite=False
    )
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[-1] < SMALL_GAIN * values[0]:
        _, lengths, vectors = np.linalg.svd(centred, full_matrices=False)
        return lengths[:count] ** 2 / num_rows, vectors[:count].T, total
    if wide:
        vectors = centred.T @ vectors / np.sqrt(values)
    return values / num_rows, vectors, total


def solve(key: Array, model: PPCA, data: tuple, *, noise_floor: float = 1e-6) -> tuple[Outcome, float]:
    """The estimate, and the log likelihood there in nats; the key is ignored.

    Raises:
        ValueError: a cell is missing.
    """
    (x,) = data
    if np.isnan(x).any():
        row, column = np.argwhere(np.isnan(x))[0]
        raise ValueError(
            f"closed_form needs every cell of x; row {row}, column {column} is missing: fit with method='em'"
        )
    found = tipping_bishop(x, model.num_latents, noise_floor)
    values = {name: getattr(found, name) for name in ("loadings", "loc", "noise_variance")}
    held = np.flatnonzero([found.at_floor])
    return point_outcome(values, model, x, held=held, noise_floor=noise_floor), found.log_likelihood


def check(model: PPCA, *, noise_floor: Any) -> None:
    """Raise ValueError if the model's maximum has no closed form."""
    if model.noise != "isotropic" or model.loading_prior != "flat":
        raise ValueError(
            "closed_form is for noise='isotropic' with loading_prior='flat'; "
            f"got noise={model.noise!r}, loading_prior={model.loading_prior!r}: fit with method='em'"
        )
    check_noise_floor(noise_floor)


METHOD = Direct(options={"noise_floor": 1e-6}, solve=solve, check=check)
