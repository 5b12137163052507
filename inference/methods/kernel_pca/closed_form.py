r"""Kernel PCA by an eigenvalue problem: the maximum of the program, in one step.

The K largest eigenvalues of the centred Gram matrix and their eigenvectors give
:math:`Z = V (\Lambda / m - s^2)_+^{1/2}` (Theorem 5.2.1, corrected for components that vanish) and, where the
noise is not given, :math:`s^2 = \sum_{j > K} \lambda_j / \{m (M - K)\}` (5.19). With a Gaussian prior of Z
the eigenvectors are the same and each length is the root of a quadratic.

The default solver is Lanczos iteration (ARPACK, ``scipy.sparse.linalg.eigsh``), which needs some tens of
products of the Gram matrix with a vector: O(N^2) each, against O(N^3) for all eigenvalues. It runs on the
host, outside of JAX, which has no such solver. The dense solver serves where there are few rows or many
components. Both start from fixed vectors and give the same answer every time.

When to use what: this, always, unless rows keep arriving or an approximate answer after a few sweeps will do
(`inference.methods.kernel_pca.em`).

Reference: Yu (2006), section 5.2; Schoelkopf, Smola and Mueller (1998).

Components
----------
A direction in feature space is a combination of centred rows, :math:`\hat\Phi^T a`. With eigenvalues
:math:`\lambda_j` of the centred Gram matrix K and unit eigenvectors :math:`v_j` the coefficients
:math:`a_j = v_j / \sqrt{\lambda_j}` give directions of length one, and the loadings are
:math:`w_j = \sqrt{l_j}\, \hat\Phi^T a_j` with :math:`l_j = (\lambda_j / m - s^2)_+`, the eigenvalues of Z'Z.
New rows are projected on them by `zoo.KernelPCA.scores`.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jax import Array

from inference.algorithm import Direct, Outcome, as_one_draw
from inference.methods.kernel_pca import ClosedForm
from zoo.checks import warn
from zoo.kernel_pca import KernelPCA
from zoo.kernels import gram as gram_matrices
from zoo.kernels.gram import CentredGram
from zoo.linear_gaussian.axes import signs_of

FEW_ROWS = 256  # up to so many the dense solver is as quick
LARGE_SHARE = 0.25  # of all eigenvalues: from here on Lanczos iteration loses its advantage


def leading_eigenpairs(gram: np.ndarray, count: int, solver: str = "auto") -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, descending and at least 0, and unit eigenvectors.

    Args:
        gram: symmetric positive semi-definite, shape (num_observations, num_observations).
        count: how many.
        solver: ``"lanczos"``, ``"dense"`` or ``"auto"``.
    """
    num_rows = gram.shape[0]
    few = num_rows <= FEW_ROWS or count > LARGE_SHARE * num_rows
    if solver == "dense" or (solver == "auto" and few):
        wanted = [num_rows - count, num_rows - 1]
        values, vectors = scipy.linalg.eigh(gram, subset_by_index=wanted, check_finite=False)
    else:
        start = np.random.default_rng(0).standard_normal(num_rows)  # not constant: that is a null vector
        values, vectors = scipy.sparse.linalg.eigsh(gram, k=count, which="LA", v0=start)
    order = np.argsort(values)[::-1]
    return np.maximum(values[order], 0.0), vectors[:, order]


def solve(key: Array, model: KernelPCA, data: tuple, *, solver: str = "auto") -> tuple[Outcome, float]:
    """The estimate and the objective there, the log posterior of the program in nats.

    Args:
        key: ignored; nothing is random.
        model: the (filled) model.
        data: the rows, shape (num_observations, num_features), alone in a tuple.
        solver: see `leading_eigenpairs`.
    """
    (x,) = data
    gram = centred_gram(model, x)
    freedom, dimension = float(model.freedom(x.shape[0])), model.score_dimension(*x.shape)
    values, vectors = leading_eigenpairs(gram.matrix, model.num_latents, solver)
    components = components_from(
        model,
        freedom,
        dimension,
        values,
        vectors,
        gram.column_means,
        float(np.trace(gram.matrix)),
        rounding=gram.rounding,
    )
    return to_outcome(components, model, "closed_form"), score_at(components, model, freedom, dimension)


def check(model: KernelPCA, settings: ClosedForm) -> None:
    """Raise ValueError if there is no closed form."""
    if model.noise_variance is None and model.latent_variance is not None:
        raise ValueError(
            "closed_form knows the maximum for a given noise_variance with any latent_variance, or for an "
            "estimated noise with the flat prior: give noise_variance, or leave latent_variance out"
        )


METHOD = Direct(settings=ClosedForm, solve=solve, check=check)


class KernelComponents(NamedTuple):
    """Components of a fit, on the host.

    Attributes:
        eigenvalues: of the centred Gram matrix, descending, shape (num_latents,).
        coefficients: a, of directions of length one, shape (num_observations, num_latents); zero for a
            component without variance.
        vectors: unit eigenvectors, shape (num_observations, num_latents).
        products: coordinates of the fitted rows, K a, shape (num_observations, num_latents).
        gram_means: mean kernel value of each fitted row with all, shape (num_observations,).
        trace: of the centred Gram matrix.
        noise_variance: s2.
    """

    eigenvalues: np.ndarray
    coefficients: np.ndarray
    vectors: np.ndarray
    products: np.ndarray
    gram_means: np.ndarray
    trace: float
    noise_variance: float


def signal_variances(
    eigenvalues: Array, noise_variance: Array, freedom: Array, latent_variance: Array | None = None
) -> Array:
    r"""The eigenvalues of Z'Z at the maximum.

    With a flat prior :math:`(\lambda / m - s^2)_+`; with prior variance tau2 the root of
    :math:`u^2 / \tau^2 + m u = \lambda` takes the place of :math:`\lambda / m`.
    """
    if latent_variance is None:
        return np.maximum(eigenvalues / freedom - noise_variance, 0.0)
    root = np.sqrt(freedom**2 + 4.0 * eigenvalues / latent_variance)
    return np.maximum(2.0 * eigenvalues / (freedom + root) - noise_variance, 0.0)


def centred_gram(model: KernelPCA, x: np.ndarray) -> CentredGram:
    """The centred Gram matrix of the rows.

    Raises:
        FloatingPointError: kernel values overflow.
        ValueError: the rows are all the same in feature space.
    """
    gram = gram_matrices.centred_gram(model.kernel, x, announce=False)
    if not np.isfinite(gram.matrix).all():
        raise FloatingPointError("the kernel values of the rows overflow: change the unit of x")
    if not np.trace(gram.matrix) > gram.rounding:
        raise ValueError("the rows of x are all the same in feature space: there is no variance to explain")
    return gram


def components_from(
    model: KernelPCA,
    freedom: float,
    dimension: float,
    values: np.ndarray,
    vectors: np.ndarray,
    gram_means: np.ndarray,
    trace: float,
    products: np.ndarray | None = None,
    rounding: float = 0.0,
) -> KernelComponents:
    """Components from eigenpairs of the centred Gram matrix, with fixed signs.

    Args:
        model: the model.
        freedom: m.
        dimension: how many dimensions the score's determinant is over.
        values: eigenvalues, shape (num_latents,).
        vectors: unit eigenvectors, shape (num_observations, num_latents).
        gram_means: mean kernel value of each fitted row with all.
        trace: of the centred Gram matrix.
        products: K times the vectors, shape (num_observations, num_latents). None: they are eigenvectors to
            all digits.
        rounding: the eigenvalue below which there is only rounding error.

    Raises:
        ValueError: the components explain the Gram matrix whole.
    """
    smallest = max(10 * vectors.shape[0] * np.finfo(float).eps * values.max(), rounding)
    lengths = np.sqrt(np.where(values > smallest, values, 0.0))
    inverse = np.where(lengths > 0, 1.0 / np.where(lengths > 0, lengths, 1.0), 0.0)
    signs = signs_of(vectors)
    vectors = vectors * signs
    products = vectors * lengths if products is None else products * (signs * inverse)
    noise = model.noise_variance
    if noise is None:  # (5.19)
        rest = trace - values.sum()
        if not rest > smallest:
            raise ValueError(
                f"the first {values.size} components explain the Gram matrix whole, so that the estimate of "
                "the noise is 0 and the score has no maximum: lower num_latents, or give noise_variance"
            )
        noise = rest / (freedom * (dimension - values.size))
    return KernelComponents(values, vectors * inverse, vectors, products, gram_means, trace, float(noise))


def to_outcome(components: KernelComponents, model: KernelPCA, by: str) -> Outcome:
    """Conclude with the estimate and the quantities that new rows need; warn if components vanished."""
    num_rows = components.products.shape[0]
    freedom = float(model.freedom(num_rows))
    variances = signal_variances(
        components.eigenvalues, components.noise_variance, freedom, model.latent_variance
    )
    pruned = int(np.sum(variances <= 0))
    if pruned:
        first = int(np.argmax(variances <= 0))
        warn(
            f"{by}: {pruned} of {model.num_latents} components vanish, because their eigenvalues are not "
            f"above the noise, m * noise_variance = {freedom * components.noise_variance:.6g} (component "
            f"{first} has {components.eigenvalues[first]:.6g}); lower noise_variance or num_latents"
        )
    posterior = {"latents": components.vectors * np.sqrt(variances)}
    if model.noise_variance is None:
        posterior["noise_variance"] = np.asarray(components.noise_variance)
    variational = {
        "eigenvalues": components.eigenvalues,
        "signal_variances": variances,
        "coefficients": components.coefficients,
        "gram_products": components.products,
        "gram_means": components.gram_means,
        "noise_variance": np.asarray(components.noise_variance),
    }
    attrs = {
        "components_pruned": pruned,
        "explained_share": float(components.eigenvalues[variances > 0].sum() / components.trace),
    }
    return Outcome(
        posterior=as_one_draw(posterior),
        variational=variational,
        attrs=attrs,
        is_point=True,
        densities={"objective": ("coefficients", "noise_variance")},
    )


def score_at(components: KernelComponents, model: KernelPCA, freedom: float, dimension: float) -> float:
    """The log posterior of the program at the maximum over Z given the components, in nats.

    Args:
        components: eigenvalues of the components and the trace.
        model: the model.
        freedom: m.
        dimension: how many dimensions the score's determinant is over.
    """
    noise = components.noise_variance
    variances = signal_variances(components.eigenvalues, noise, freedom, model.latent_variance)
    total = variances + noise
    log_det = np.log(total).sum() + (dimension - total.size) * np.log(noise)
    residual = components.trace - components.eigenvalues.sum()
    score = -0.5 * freedom * log_det - 0.5 * (np.sum(components.eigenvalues / total) + residual / noise)
    if model.latent_variance is not None:
        tau2 = float(model.latent_variance)
        count = components.products.size
        score -= 0.5 * variances.sum() / tau2 + 0.5 * count * np.log(2 * np.pi * tau2)
    return float(score)
