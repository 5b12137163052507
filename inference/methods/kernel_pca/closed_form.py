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
"""

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from inference.algorithm import Direct, Outcome
from inference.methods.kernel_pca.components import centred_gram, components_from, score_at, to_outcome
from zoo.checks import check_choice
from zoo.kernel_pca import KernelPCA

__all__ = ["METHOD", "leading_eigenpairs", "solve"]

SOLVERS = ("auto", "lanczos", "dense")
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


def solve(key: Any, model: KernelPCA, data: tuple, *, solver: str = "auto") -> tuple[Outcome, float]:
    """The estimate and the objective there, the log posterior of the program in nats.

    Args:
        key: ignored; nothing is random.
        model: the (filled) model.
        data: the rows, shape (num_observations, num_features), alone in a tuple.
        solver: see `leading_eigenpairs`.
    """
    (x,) = data
    gram, gram_means = centred_gram(model, x)
    freedom, dimension = float(model.freedom(x.shape[0])), model.score_dimension(*x.shape)
    values, vectors = leading_eigenpairs(gram, model.num_latents, solver)
    components = components_from(
        model, freedom, dimension, values, vectors, gram_means, float(np.trace(gram))
    )
    return to_outcome(components, model, "closed_form"), score_at(components, model, freedom, dimension)


def check(model: KernelPCA, *, solver: Any) -> None:
    """Raise ValueError if the solver is unknown, or there is no closed form."""
    check_choice("solver", solver, SOLVERS)
    if model.noise_variance is None and model.latent_variance is not None:
        raise ValueError(
            "closed_form knows the maximum for a given noise_variance with any latent_variance, or for an "
            "estimated noise with the flat prior: give noise_variance, or leave latent_variance out"
        )


METHOD = Direct(
    options={"solver": "auto"},
    solve=solve,
    check=check,
)
