r"""Priors in the EM of linear-Gaussian models: what they add to the objective, the M-step and the expansion.

With a proper prior

.. math::
    w_{dk} \sim N(0, 1/\alpha_k), \quad \mu_d \sim N(m_d, v), \quad \psi_g \sim \mathrm{InverseGamma}(a, b)

and either :math:`\alpha_k` given (``"gaussian"``) or :math:`\alpha_k \sim \mathrm{Gamma}(a_0, b_0)`
(``"ard"``). The ARD precisions are latent variables of the EM too: the objective is the log posterior with
them integrated out, :math:`\log p(w_k) = \log\Gamma(a_0 + D/2) - \log\Gamma(a_0) + a_0 \log b_0 - (a_0 + D/2)
\log(b_0 + \|w_k\|^2/2) - (D/2) \log 2\pi`, and the M-step uses their expectation (Bishop 1999, "Bayesian
PCA", section 3, with the exact numerator). That prior is not indifferent to rotation, the likelihood is: of
all rotations the one with orthogonal columns has the highest prior density, because :math:`\sum_k \log(b_0 +
\|w_k\|^2/2)` is Schur-concave in the squared lengths. The expansion takes it at once; without it EM crawls
towards it.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

from inference.methods.linear_gaussian.rows import CompressedRows
from inference.methods.linear_gaussian.linear_gaussian_moments import Parameters

__all__ = [
    "LoadingPrior",
    "expansion",
    "expansion_mean",
    "expected_precision",
    "log_prior",
    "posterior_noise",
    "prior_precision",
    "prior_shift",
]


class LoadingPrior(NamedTuple):
    """A proper prior of loadings, mean and noise; the data must not have been rotated.

    Attributes:
        loading_variance: of every entry of the loadings, shape (); None: ARD.
        ard_concentration: a0 of the precision of a column of loadings; used with ARD only.
        ard_rate: b0.
        loc: prior mean of the mean, about the centre of the data, shape (D,).
        loc_variance: v, shape ().
        noise_concentration: a of each noise variance.
        noise_rate: b.
    """

    loading_variance: Array | None
    ard_concentration: Array
    ard_rate: Array
    loc: Array
    loc_variance: Array
    noise_concentration: Array
    noise_rate: Array


def expected_precision(loadings: Array, prior: LoadingPrior) -> Array:
    """Precision of each column of loadings: given, or E[alpha_k | w_k]; shape (num_latents,)."""
    if prior.loading_variance is not None:
        return jnp.full(loadings.shape[1], 1.0) / prior.loading_variance
    concentration = prior.ard_concentration + loadings.shape[0] / 2
    return concentration / (prior.ard_rate + jnp.sum(loadings**2, axis=0) / 2)


def prior_precision(parameters: Parameters, rows: CompressedRows, prior: LoadingPrior | None) -> Array:
    """Precisions of loadings and mean, by class of columns: shape (1, num_latents + 1)."""
    if prior is None:
        return jnp.zeros((1, parameters.loadings.shape[1] + 1))
    return jnp.append(expected_precision(parameters.loadings, prior), 1 / prior.loc_variance)[None]


def prior_shift(rows: CompressedRows, prior: LoadingPrior | None) -> Array:
    """Prior mean over prior variance of the mean, shape (D,)."""
    return jnp.zeros_like(rows.sums) if prior is None else prior.loc / prior.loc_variance


def posterior_noise(squares: Array, cells: Array, prior: LoadingPrior | None) -> Array:
    """The noise variances that maximise the expected log joint, shape (num_groups,)."""
    if prior is None:
        return squares / cells
    return (prior.noise_rate + squares / 2) / (prior.noise_concentration + cells / 2 + 1)


def expansion(spread: Array, loadings: Array, rows: CompressedRows, prior: LoadingPrior | None) -> Array:
    """L with L L' = R, the covariance that the latents are given before they are standardised again.

    Args:
        spread: the latents' mean second moment about the mean they are given, (num_latents, num_latents).
        loadings: after the M-step.
        rows: the data.
        prior: of the loadings.
    """
    if prior is None:
        return jnp.linalg.cholesky(spread)
    precision, size = expected_precision(loadings, prior), rows.total_weight
    if prior.loading_variance is None:  # n r + alpha |w|^2 r^2 = n c, for each latent
        strength = precision * jnp.sum(loadings**2, axis=0) / size
        second = jnp.diag(spread)
        scale = jnp.sqrt(2 * second / (1 + jnp.sqrt(1 + 4 * strength * second)))
        scaled = loadings * scale
        return scale[:, None] * jnp.linalg.eigh(scaled.T @ scaled)[1]
    root = jnp.linalg.cholesky(spread)
    weighed = root.T @ (loadings.T @ loadings) @ root * (precision[0] / size)
    strengths, turn = jnp.linalg.eigh(weighed)
    return root @ turn * jnp.sqrt(2 / (1 + jnp.sqrt(1 + 4 * jnp.maximum(strengths, 0.0))))


def expansion_mean(
    mean: Array, parameters: Parameters, rows: CompressedRows, prior: LoadingPrior | None
) -> Array:
    """The mean m that the latents are given before they are centred again; theirs, if ``loc`` has no prior.

    Args:
        mean: of E[z] over rows, shape (num_latents,).
        parameters: after the M-step.
        rows: the data.
        prior: of the mean.
    """
    if prior is None:
        return mean
    loadings, size = parameters.loadings, rows.total_weight
    precision = size * jnp.eye(mean.shape[0]) + loadings.T @ loadings / prior.loc_variance
    target = size * mean - loadings.T @ (parameters.loc - prior.loc) / prior.loc_variance
    return jnp.linalg.solve(precision, target)


def log_prior(parameters: Parameters, rows: CompressedRows, prior: LoadingPrior | None) -> Array:
    """Log prior density of the parameters, ARD precisions integrated out, in nats; 0 without a prior."""
    if prior is None:
        return jnp.zeros(())
    loadings, loc, noise = parameters
    size = loadings.shape[0]
    lengths = jnp.sum(loadings**2, axis=0)
    if prior.loading_variance is not None:
        variance = prior.loading_variance
        columns = -0.5 * (lengths / variance + size * jnp.log(2 * jnp.pi * variance))
    else:
        a, b = prior.ard_concentration, prior.ard_rate
        columns = gammaln(a + size / 2) - gammaln(a) + a * jnp.log(b) - size / 2 * jnp.log(2 * jnp.pi)
        columns = columns - (a + size / 2) * jnp.log(b + lengths / 2)
    away = (loc - prior.loc) ** 2 / prior.loc_variance
    means = -0.5 * (away + jnp.log(2 * jnp.pi * prior.loc_variance))
    a, b = prior.noise_concentration, prior.noise_rate
    noises = a * jnp.log(b) - gammaln(a) - (a + 1) * jnp.log(noise) - b / noise
    return jnp.sum(columns) + jnp.sum(means) + jnp.sum(noises)
