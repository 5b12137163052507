r"""Gaussian paired views by maximum likelihood in closed form: probabilistic CCA and probabilistic PLS.

Probabilistic CCA (``specific="full_covariance"``, two Gaussian views of unknown noise). With
:math:`\Sigma` the covariance of the rows, divisor N, canonical directions W_v and correlations P
(:math:`W_v^T \Sigma_{vv} W_v = I`, :math:`W_0^T \Sigma_{01} W_1 = P`), for unit latents

.. math::
    V_v = \Sigma_{vv} W_v P^{1/2}, \qquad \Psi_v = \Sigma_{vv} - V_v V_v^T, \qquad \mu = \bar y

and the log likelihood is :math:`-\frac N2 \{D \log 2\pi + \log|\Sigma_{00}| + \log|\Sigma_{11}| + \sum_k
\log(1 - \rho_k^2) + D\}` (Bach and Jordan 2005, theorem 2). Any M_0 M_1' = P in place of the two P^{1/2} has
the same likelihood; this one treats both views equally.

Probabilistic PLS and supervised PCA (low rank, all views Gaussian of the same given noise variance phi): with
no latents of their own, the views side by side are PPCA, whose maximum is
:math:`V = U (\Lambda - \varphi)_+^{1/2}` (Tipping and Bishop 1999). EPLS whose targets have no more columns
than there are shared latents is that same model: the latents are turned until the targets lie on the first,
shared axes (QR of the targets' loadings), which leaves covariates' latents that the targets do not see.

Probabilistic PLS with more target columns than shared latents has no such maximum. With three targets, one
covariate, one latent of each kind and unit noise it maximises :math:`w^T S_{00} w - \log w^T Q w` over the
sphere, with :math:`Q = s_{11} S_{00} - s s^T`; for the covariance [[4, 1, 0, 2], [1, 3, 1, 1],
[0, 1, 2, -1], [2, 1, -1, 10]] the value of :math:`1 / w^T Q w` at the maximum is a root of an irreducible
polynomial of degree 7 with Galois group S_7, so neither radicals nor eigenvectors of matrices of size up to
6 x 6, however often taken, give it (the proof is in tests/inference/methods/paired/test_general_pls.py). It
is found by ``map``, the priors wide.

Priors of loadings, means and covariances play no part: this is the limit of many rows. Loadings are those for
latents of the model's prior variance. Runs on the host with LAPACK; every cell has to be there.

Departure from the source: section 4.3.2 prints :math:`M_1 M_2 = P`; the transpose is missing.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jax import Array

from inference.algorithm import Direct, Outcome, as_one_draw
from inference.methods.paired import ClosedForm
from zoo.checks import check_complete
from zoo.exponential_family import Gaussian
from zoo.exponential_family.joint_prior import balanced_variance
from zoo.linear_gaussian.axes import signs_of
from zoo.paired import Paired

SMALLEST_UNCORRELATED = 1e-12  # of 1 - rho^2: below it the covariance given the latents is singular


class Canonical(NamedTuple):
    """Canonical correlations and directions of two views.

    Attributes:
        correlations: descending, shape (num_shared,).
        directions: of each view, columns with unit variance, shape (num_features, num_shared).
    """

    correlations: np.ndarray
    directions: tuple[np.ndarray, np.ndarray]


def canonical(
    first: np.ndarray, across: np.ndarray, second: np.ndarray, number: int | None = None
) -> Canonical:
    """The leading canonical correlations and directions of covariances.

    Args:
        first: of the first view, positive definite.
        across: of the first with the second view.
        second: of the second view.
        number: how many; None: all.

    Raises:
        ValueError: a covariance is not positive definite.
    """
    factors = []
    for v, square in enumerate((first, second)):
        try:
            factors.append(scipy.linalg.cholesky(square, lower=True))
        except scipy.linalg.LinAlgError:
            raise ValueError(
                f"the covariance of y_{v} is singular (fewer rows than columns, or columns that depend on "
                "each other), and canonical correlations are then 1: leave columns out, or use another method"
            ) from None
    whitened = scipy.linalg.solve_triangular(factors[0], across, lower=True)
    whitened = scipy.linalg.solve_triangular(factors[1], whitened.T, lower=True).T
    left, correlations, right = np.linalg.svd(whitened, full_matrices=False)
    signs = signs_of(left)
    both = (left * signs, right.T * signs)
    directions = [
        scipy.linalg.solve_triangular(f, side, lower=True, trans=1)[:, :number]
        for f, side in zip(factors, both, strict=True)
    ]
    return Canonical(np.minimum(correlations, 1.0)[:number], (directions[0], directions[1]))


def principal(y: np.ndarray, num_latents: int, noise_variance: float) -> tuple[np.ndarray, float]:
    """Loadings of PPCA with given noise variance, for unit latents, and the log likelihood in nats."""
    num_rows, num_features = y.shape
    _, lengths, directions = np.linalg.svd(y - y.mean(axis=0), full_matrices=False)
    variances = np.zeros(num_features)
    variances[: len(lengths)] = lengths**2 / num_rows
    leading = np.maximum(variances[:num_latents], noise_variance)
    rest = variances.sum() - variances[:num_latents].sum()
    loadings = directions[:num_latents].T * np.sqrt(leading - noise_variance)
    fit = (variances[:num_latents] / leading).sum() + rest / noise_variance
    spread = np.log(leading).sum() + (num_features - num_latents) * np.log(noise_variance)
    return loadings, float(-0.5 * num_rows * (num_features * np.log(2 * np.pi) + spread + fit))


def solve(key: Array, model: Paired, data: tuple) -> tuple[Outcome, float]:
    """The estimate, and the log likelihood there in nats; the key is ignored.

    Raises:
        ValueError: a cell is missing.
    """
    check_complete("closed_form", "fit with method='map'", **{f"y_{v}": y for v, y in enumerate(data)})
    is_canonical = model.specific == "full_covariance"
    loadings, extra, objective = (_canonical if is_canonical else _principal)(model, data)
    values: dict[str, Any] = {f"loc_{v}": y.mean(axis=0) for v, y in enumerate(data)} | extra
    centred = np.concatenate([y - y.mean(axis=0) for y in data], axis=1)
    noise = [
        np.linalg.inv(extra[f"specific_precision_{v}"])
        if is_canonical
        else _noise_variances(model)[v] * np.eye(y.shape[1])
        for v, y in enumerate(data)
    ]
    whole = np.concatenate(loadings)
    covariance = whole @ whole.T + scipy.linalg.block_diag(*noise)
    variance = float(balanced_variance(model.latent_variance, model.loading_variance, model.beta))
    latents = centred @ np.linalg.solve(covariance, whole)
    values["latents"] = latents * np.sqrt(variance)
    values |= {f"loadings_{v}": own / np.sqrt(variance) for v, own in enumerate(loadings)}
    outcome = Outcome(
        posterior=as_one_draw(values), variational=values, is_point=True, densities={"objective": ()}
    )
    return outcome, objective


def _canonical(model: Paired, data: tuple) -> tuple[list[np.ndarray], dict[str, np.ndarray], float]:
    num_rows = data[0].shape[0]
    first, second = (y - y.mean(axis=0) for y in data)
    squares = first.T @ first / num_rows, second.T @ second / num_rows
    found = canonical(squares[0], first.T @ second / num_rows, squares[1], model.num_shared)
    uncorrelated = 1.0 - found.correlations**2
    if uncorrelated.min() < SMALLEST_UNCORRELATED:
        raise ValueError(
            "a canonical correlation is 1: the likelihood has no maximum (fewer rows than columns of both "
            "views, or a column that the other view determines)"
        )
    loadings, extra, log_det = [], {}, np.log(uncorrelated).sum()
    for v, (square, directions) in enumerate(zip(squares, found.directions, strict=True)):
        own = square @ directions * np.sqrt(found.correlations)
        loadings.append(own)
        extra[f"specific_precision_{v}"] = np.linalg.inv(square - own @ own.T)
        log_det += np.linalg.slogdet(square)[1]
    size = first.shape[1] + second.shape[1]
    return loadings, extra, float(-0.5 * num_rows * (size * np.log(2 * np.pi) + log_det + size))


def _noise_variances(model: Paired) -> list[float]:
    """The given noise variances of Gaussian views."""
    return [float(family.noise_variance) for family in model.families if isinstance(family, Gaussian)]


def _principal(model: Paired, data: tuple) -> tuple[list[np.ndarray], dict[str, np.ndarray], float]:
    noise = _noise_variances(model)[0]
    whole, objective = principal(np.concatenate(data, axis=1), model.num_latents, noise)
    if any(model.num_specific):  # targets on the first axes: V_0 R has zeros after its first D_0 columns
        rotation = np.linalg.qr(whole[: data[0].shape[1]].T, mode="complete")[0]
        whole = whole @ rotation
        whole[: data[0].shape[1], model.num_shared :] = 0.0
    ends = np.cumsum([y.shape[1] for y in data])[:-1]
    return np.split(whole, ends), {}, objective


def check(model: Paired, settings: ClosedForm) -> None:
    """Raise ValueError if the model's maximum has no closed form."""
    gaussian = all(type(family) is Gaussian for family in model.families)
    if model.specific == "full_covariance":
        if not gaussian or len(model.families) != 2 or not all(f.learns_noise for f in model.families):
            raise ValueError(
                "closed_form of specific='full_covariance' is probabilistic CCA: two views, both "
                "Gaussian(noise_variance=None)"
            )
        sizes = model.num_features
        if not model.num_shared:
            raise ValueError("closed_form finds canonical correlations: num_shared must be at least 1; got 0")
        if model.num_shared > min(sizes):
            raise ValueError(
                f"there are at most {min(sizes)} canonical correlations; got num_shared={model.num_shared}"
            )
        return
    if not gaussian:
        raise ValueError("closed_form is for Gaussian views: fit with method='map'")
    if any(family.learns_noise for family in model.families):
        remedy = "give noise variances, as Gaussian(noise_variance=1.0)"
        if len(model.families) == 2:
            remedy += ", or specific='full_covariance', which is CCA"
        raise ValueError(
            "closed_form of specific='low_rank' is for Gaussian views of given noise variance; got "
            f"noise_variance=None: {remedy}, or fit with method='map'"
        )
    if len(set(_noise_variances(model))) > 1:
        raise ValueError("closed_form needs the same noise variance in all views: fit with method='map'")
    if np.any(model.view_weights != 1) or model.beta > 0:
        raise ValueError("closed_form goes with beta=0 and view_weights of one: fit with method='map'")
    targets_only = len(model.families) == 2 and model.num_specific[0] == 0
    if any(model.num_specific) and not (targets_only and model.num_features[0] <= model.num_shared):
        raise ValueError(
            "with view-specific latents, closed_form is for targets y_0 (without any) of at most "
            "num_shared columns and one view of covariates; in general the maximum is no function of "
            "eigenvectors (see inference.methods.paired.closed_form): fit with method='map'"
        )


METHOD = Direct(settings=ClosedForm, solve=solve, check=check)
