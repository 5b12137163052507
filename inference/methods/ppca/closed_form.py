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
partial eigenvalue problem, as in any PCA. It runs on the host with LAPACK. A row of weight w counts as w
rows. Needs rows without missing cells, isotropic noise and a flat prior; for the rest there is EM.

Reference: Tipping and Bishop (1999), (7)-(8) and appendix A.

Point estimates of probabilistic PCA, from here and from EM, are rotated so that the loadings are orthogonal,
the longest first, with the largest entry of each positive.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jax import Array

from inference.algorithm import Direct, Outcome, as_one_draw
from inference.methods.linear_gaussian.rows import gain_and_covariance
from inference.methods.ppca import ClosedForm
from inference.numerics.compiled import compiled
from inference.numerics.weighted_rows import Rows, row_limit, unweighted
from zoo.checks import check_complete, column_of, warn
from zoo.linear_gaussian import latents_mean
from zoo.linear_gaussian.answers import LinearGaussianAnswers
from zoo.linear_gaussian.axes import signs_of
from zoo.ppca import PPCA
from zoo.sparse import SparseMatrix, is_sparse

NOISE_FLOOR = 1e-6  # of the columns' mean variance
BLOCK_CELLS = 2**17  # of a block of rows that stays in the cache
SMALL_GAIN = 1e-10  # of the largest eigenvalue: below it the products' round-off shows, and the SVD decides
NEAR_ORIGIN = 100.0  # squared length of the mean over the smallest variance kept: no need to centre


class Maximum(NamedTuple):
    """The maximum of the likelihood.

    Attributes:
        loadings: W, orthogonal columns, longest first, the largest entry of each positive, (D, K).
        loc: the mean of the rows, (D,).
        noise_variance: shape ().
        log_likelihood: of all rows, nats.
        at_floor: whether the floor holds the noise variance.
        latents: posterior means of the rows' latents, (N, K).
    """

    loadings: np.ndarray
    loc: np.ndarray
    noise_variance: np.ndarray
    log_likelihood: float
    at_floor: bool
    latents: np.ndarray


def tipping_bishop(
    x: np.ndarray, num_latents: int, noise_floor: float = NOISE_FLOOR, weight: np.ndarray | None = None
) -> Maximum:
    """The maximum of the likelihood of isotropic PPCA.

    Args:
        x: rows without missing cells, shape (num_observations, num_features).
        num_latents: K, fewer than rows and than features.
        noise_floor: smallest noise variance as a share of the columns' mean variance.
        weight: how many rows each counts as, shape (num_observations,); None: one.

    Raises:
        ValueError: a cell is missing.
        FloatingPointError: squares of the data overflow.
    """
    num_rows, num_features = x.shape
    size = num_rows if weight is None else weight.sum(dtype=np.float64)
    of_rows = x.mean(axis=0, dtype=np.float64) if weight is None else weight @ x / size
    loc = of_rows.astype(x.dtype)
    variances, directions, total = _leading(x, loc, num_latents, weight)
    noise, at_floor, leading, terms = _covariance(variances, total, num_features, noise_floor)
    lengths = np.sqrt(np.maximum(variances - noise, 0.0))
    signs = signs_of(directions)
    fit = (variances / leading).sum() + (total - variances.sum()) / noise
    log_likelihood = -0.5 * size * (num_features * np.log(2 * np.pi) + terms + fit)
    # with orthogonal loadings W'W + noise is diagonal, of variance itself in each direction
    gain = directions * (signs * lengths / leading)
    latents = np.empty((num_latents, num_rows), gain.dtype)  # on their side, BLAS needs a fifth less time
    if loc @ loc <= NEAR_ORIGIN * variances[-1]:  # without a pass that centres, for a digit at most
        np.matmul(gain.T, x.T, out=latents)
        latents -= (gain.T @ loc)[:, None]
    else:
        for first, rows in _centred_blocks(x, loc):
            np.matmul(gain.T, rows.T, out=latents[:, first : first + len(rows)])
    loadings = directions * (signs * lengths)
    return Maximum(loadings, loc, np.asarray(noise), float(log_likelihood), at_floor, latents.T)


def _covariance(
    variances: np.ndarray, total: float, num_features: int, noise_floor: float
) -> tuple[float, bool, np.ndarray, float]:
    """The noise variance, whether the floor holds it, leading variances of rows, and the log determinant."""
    num_latents, lowest = len(variances), noise_floor * total / num_features
    noise = (total - variances.sum()) / (num_features - num_latents)
    at_floor, noise = not noise > lowest, max(noise, lowest)
    leading = np.maximum(variances, noise)
    log_det = np.log(leading).sum() + (num_features - num_latents) * np.log(noise)
    return noise, at_floor, leading, log_det


def log_densities(x: np.ndarray, new: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Log densities of new rows at the maxima for several numbers of latents, from one decomposition.

    Args:
        x: rows without missing cells, shape (num_observations, num_features).
        new: rows to score, shape (num_new, num_features).
        sizes: numbers of latents, fewer than rows and than features.

    Returns:
        In nats, shape (num_sizes, num_new), and whether the floor holds the noise variance, (num_sizes,).
    """
    loc, num_features = x.mean(axis=0), x.shape[1]
    variances, directions, total = _leading(x, loc, max(sizes))
    squares, whole = ((new - loc) @ directions) ** 2, ((new - loc) ** 2).sum(axis=1)
    found, floored = [], []
    for k in sizes:
        noise, at_floor, leading, log_det = _covariance(variances[:k], total, num_features, NOISE_FLOOR)
        distance = squares[:, :k] @ (1 / leading) + (whole - squares[:, :k].sum(axis=1)) / noise
        found.append(-0.5 * (num_features * np.log(2 * np.pi) + log_det + distance))
        floored.append(at_floor)
    return np.stack(found), np.array(floored)


def _centred_blocks(x: np.ndarray, loc: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The first row and the centred rows of each block, all in one array, which stays in the cache."""
    size = max(BLOCK_CELLS // x.shape[1], x.shape[1], 1)
    block = np.empty((min(size, len(x)), x.shape[1]), x.dtype)
    for first in range(0, len(x), size):
        rows = x[first : first + size]
        yield first, np.subtract(rows, loc, out=block[: len(rows)])


def _gram(x: np.ndarray, loc: np.ndarray, root: np.ndarray | None) -> np.ndarray:
    """Sums of squares and products of the centred columns; LAPACK's lower triangle is enough for `eigh`."""
    (add_product,) = scipy.linalg.get_blas_funcs(("syrk",), (x,))
    square = np.zeros((x.shape[1], x.shape[1]), x.dtype, order="F")
    for first, rows in _centred_blocks(x, loc):
        if root is not None:
            rows *= root[first : first + len(rows), None]
        square = add_product(1.0, rows.T, beta=1.0, c=square, lower=1, overwrite_c=1)
    return square


def _leading(
    x: np.ndarray, loc: np.ndarray, count: int, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """The largest eigenvalues of the covariance, descending, their vectors, and the sum of all."""
    root = None if weight is None else np.sqrt(weight).astype(x.dtype)
    num_rows = len(x) if weight is None else weight.sum(dtype=np.float64)

    def centred() -> np.ndarray:
        return x - loc if root is None else (x - loc) * root[:, None]

    wide = x.shape[1] > len(x)
    square = centred() @ centred().T if wide else _gram(x, loc, root)
    size, total = square.shape[0], np.trace(square) / num_rows
    if not np.isfinite(square).all():  # a pass over x to look for missing cells beforehand costs 2 %
        check_complete("closed_form", "fit with method='em'", x=x)
        raise FloatingPointError("closed_form has no finite answer: the squares of the data overflow")
    values, vectors = scipy.linalg.eigh(
        square, subset_by_index=[size - count, size - 1], overwrite_a=True, check_finite=False
    )
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[-1] < SMALL_GAIN * values[0]:
        _, lengths, vectors = np.linalg.svd(centred(), full_matrices=False)
        return lengths[:count] ** 2 / num_rows, vectors[:count].T, total
    if wide:
        vectors = centred().T @ vectors / np.sqrt(values)
    return values / num_rows, vectors, total


def solve(key: Array, model: PPCA, data: tuple, *, noise_floor: float = NOISE_FLOOR) -> tuple[Outcome, float]:
    """The estimate, and the log likelihood there in nats; the key is ignored.

    Raises:
        ValueError: a cell is missing.
    """
    (x,) = data
    weight = np.asarray(x.weight, np.float64) if isinstance(x, Rows) else None
    found = tipping_bishop(unweighted(x), model.num_latents, noise_floor, weight)
    values = {name: getattr(found, name) for name in ("loadings", "loc", "noise_variance")}
    held = np.flatnonzero([found.at_floor])
    known: dict[str, Any] = {"log_likelihood": found.log_likelihood, "latents": found.latents}
    return point_outcome(values, model, x, held=held, noise_floor=noise_floor, **known), found.log_likelihood


def check(model: PPCA, settings: ClosedForm) -> None:
    """Raise ValueError if the model's maximum has no closed form."""
    if model.noise != "isotropic" or model.loading_prior != "flat":
        raise ValueError(
            "closed_form is for noise='isotropic' with loading_prior='flat'; "
            f"got noise={model.noise!r}, loading_prior={model.loading_prior!r}: fit with method='em'"
        )
    if model.degrees_of_freedom is not None:
        raise ValueError(
            "closed_form is for normal rows: leave degrees_of_freedom out, or use method='em' or 'vb'"
        )


def otherwise(model: PPCA, data: tuple, is_refused: bool) -> str:
    """``"em"`` where the maximum has no closed form, or not for these rows."""
    return "em" if is_refused or is_sparse(data[0]) or np.isnan(data[0]).any() else ""


METHOD = Direct(
    settings=ClosedForm,
    takes=frozenset({"weights", "batches", "moments"}),
    solve=solve,
    check=check,
    otherwise=otherwise,
)


def turned(values: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The estimate in its canonical rotation, and the matrix that rotates its latents; on the host."""
    loadings = values["loadings"]
    turn = np.linalg.eigh(loadings.T @ loadings)[1][:, ::-1]
    straight = loadings @ turn
    sign = signs_of(straight).astype(turn.dtype)
    return dict(values) | {"loadings": straight * sign}, turn * sign


def num_free_parameters(model: PPCA, num_features: int) -> int:
    """The number of free parameters in loadings, mean and noise, not counting the rotation."""
    k = model.num_latents
    noise = num_features if model.noise == "diagonal" else 1
    return num_features * k - k * (k - 1) // 2 + num_features + noise


def point_outcome(
    values: Mapping[str, np.ndarray],
    model: PPCA,
    x: np.ndarray | SparseMatrix | Rows,
    *,
    held: np.ndarray,
    noise_floor: float,
    log_likelihood: float,
    latents: np.ndarray | None = None,
) -> Outcome:
    """Conclude a point estimate: one draw of one chain, and the posterior of the latents.

    Args:
        values: ``loadings``, ``loc``, ``noise_variance``, and with ARD ``loading_precision``.
        model: the model.
        x: the rows fitted.
        held: noise variances that the floor holds.
        noise_floor: the floor.
        log_likelihood: of the rows at these values, in nats.
        latents: E[z] of the rows where it is known already, which sparse rows need.

    Warns:
        UserWarning: the floor holds a noise variance.
    """
    rows = unweighted(x)
    values, turn = turned(values)
    if held.size:
        of_column = "" if model.noise == "isotropic" else f" of {column_of(rows, held[0])}"
        warn_of_floor(noise_floor, of_column + (f" ({held.size} in all)" if held.size > 1 else ""))
    has_holes = latents is None and bool(np.isnan(np.asarray(rows)).any())
    stored, dims = dict(values), {}
    num_rows, k = rows.shape[0], model.num_latents
    gain, covariance = gain_and_covariance(values["loadings"], values["noise_variance"])
    if row_limit(8 * num_rows * k, "latents", ()):
        if latents is not None:
            stored["latents"] = latents @ turn
        elif has_holes:
            stored["latents"] = _means(rows, values["loadings"], values["loc"], values["noise_variance"])
        else:
            stored["latents"] = (np.asarray(rows) - values["loc"]) @ gain
    if not has_holes and model.degrees_of_freedom is None:  # one for all rows
        stored["latents_covariance"] = covariance
        dims["latents_covariance"] = ("latent", "latent_2")
    elif row_limit(8 * num_rows * k**2, "latents_covariance", ()):
        own = {name: values[name] for name in ("loadings", "loc", "noise_variance")}
        stored["latents_covariance"] = _covariances(model, own, rows)
    parameters = () if model.loading_prior == "flat" else ("loadings", "loc", "noise_variance")
    attrs = {
        "num_parameters": num_free_parameters(model, rows.shape[1]),
        "log_likelihood": log_likelihood,
        "noise_at_floor": int(held.size),
    }
    return Outcome(
        posterior=as_one_draw(values),
        variational=stored,
        attrs=attrs,
        dims=dims,
        is_point=True,
        densities={"objective": parameters, "log_likelihood": ()},
    )


def warn_of_floor(noise_floor: float = NOISE_FLOOR, of_column: str = "") -> None:
    """Warn of a noise variance that the floor holds."""
    warn(
        f"the noise variance{of_column} is held at noise_floor={noise_floor:g} of the columns' variance: the "
        f"latents explain it whole and the likelihood has no maximum there; use fewer latents, or a prior "
        f"(loading_prior='ard', method='vb')"
    )


_means = compiled(latents_mean, once=True)
_covariances = compiled(LinearGaussianAnswers().scores_covariance, once=True)
