r"""Probit outputs: independent binary columns, or the 0/1 columns of class labels.

Every output has a utility :math:`u_l = w_l^T z + b_l + N(0, 1)`. A binary output is 1 where its utility is
positive, so :math:`p(y_l = 1 \mid z) = \Phi(w_l^T z + b_l)`. Of class labels (``exclusive``: one column a
class, one of them 1) the class with the largest utility is the one, so with :math:`m_c = w_c^T z + b_c`

.. math:: p(c \mid z) = \int N(e \mid 0, 1) \prod_{j \neq c} \Phi(e + m_c - m_j)\, de,

here by Gauss-Hermite quadrature (Albert and Chib 1993, "Bayesian analysis of binary and polychotomous
response data", sections 3 and 4.2). An observed row of outputs is one *decision* on its utilities: d = T u is
positive in every entry, T the signs of binary outputs, or the differences of the class to all others. With z
Gaussian, d is Gaussian, and the row's probability that of an orthant (`zoo.linear_gaussian.probit`).

A missing output is NaN; class labels are missing or there as a whole row.

**Beside inputs** x (`zoo.linear_gaussian.supervised`) the latents given x are N(m, S) and the utilities
N(W m + b, W S W' + I). The observed outputs cut the utilities off (`decisions`), so p(y | x) is the
probability of a Gaussian orthant: exact for one binary output or two classes, otherwise as accurate as
`log_orthant`. An output that is missing beside observed ones has
:math:`p(y_l = 1 \mid x, y_o) = p(y_l = 1, y_o \mid x) / p(y_o \mid x)`.

**Gaussian orthants**: the probability that d ~ N(mu, Sigma) is positive throughout, and its moments there.
With L the Cholesky factor of Sigma and :math:`d = \mu + L \eta`, entry j is positive where
:math:`\eta_j > b_j = -(\mu_j + \sum_{k<j} L_{jk} \eta_k) / L_{jj}`, so that

.. math:: P(d > 0) = \int_{[0,1]^{J-1}} \prod_j \Phi(-b_j(v))\, dv, \qquad
    \eta_j = -\Phi^{-1}\{v_j \Phi(-b_j)\}

(separation of variables: Genz 1992, "Numerical computation of multivariate normal probabilities"; Geweke,
Hajivassiliou and Keane). One entry is exact. Two are integrated by Gauss-Legendre quadrature (errors below
1e-7 nats), three by its product (below 1e-5), more by 512 points of a Sobol sequence with a fixed scramble,
whose relative error is of the order of 1e-3 (of 1e-2 with nine entries); the same points every time make it a
smooth function. Moments take one integral more.
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from zoo import late
from zoo.checks import column_of, row_of
from zoo.in_blocks import map_in_blocks

BLOCK_ROWS = 64  # rows whose nodes of integration are held at a time
NUM_HERMITE = 48
CERTAIN = 40.0  # mean of the decision, of variance 1, that stands for a missing output


class _ZeroOrOne(dist.Distribution):
    """Rows of outputs that are 0 or 1: the base of the distributions below."""

    support = dist.constraints.independent(dist.constraints.boolean, 1)
    pytree_data_fields = ("predictor", "covariance")
    pytree_aux_fields = ("exclusive",)

    def __init__(self, predictor: Array, exclusive: bool, covariance: Array | None = None) -> None:
        self.predictor, self.exclusive, self.covariance = predictor, exclusive, covariance
        super().__init__(predictor.shape[:-1], predictor.shape[-1:])

    def _utilities(self, key: Array, sample_shape: tuple[int, ...]) -> Array:
        noise = jax.random.normal(key, (*sample_shape, *self.predictor.shape), self.predictor.dtype)
        return self.predictor + noise

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of complete rows of outputs."""
        return _decided(self._utilities(key, sample_shape), self.exclusive)


class ProbitOutputs(_ZeroOrOne):
    """Outputs given the utilities' means.

    Args:
        predictor: W z + b, shape (num_observations, num_outputs).
        exclusive: whether the outputs are the columns of class labels.
    """

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed outputs, shape (num_observations,)."""
        missing = jnp.isnan(value)
        value = jnp.where(missing, 0.0, value)
        if not self.exclusive:
            signed = (2 * value - 1) * self.predictor
            return jnp.sum(jnp.where(missing, 0.0, log_ndtr(signed)), axis=-1)
        logs = jnp.sum(value * class_log_probabilities(self.predictor), axis=-1)
        return jnp.where(missing.any(axis=-1), 0.0, logs)


class ProbitOutputsGivenRows(_ZeroOrOne):
    """Outputs of rows whose latents are Gaussian and summed out.

    Args:
        predictor: W E[z] + b, shape (num_observations, num_outputs).
        exclusive: whether the outputs are the columns of class labels.
        covariance: W Cov[z] W', shape (num_observations, num_outputs, num_outputs).
    """

    def log_prob(self, value: Array) -> Array:
        """Log density in nats over the observed outputs, shape (num_observations,)."""

        def one(row: tuple[Array, Array, Array]) -> Array:
            y, predictor, covariance = row
            mean, spread, _ = decisions(y, predictor, covariance, self.exclusive)
            return log_orthant(mean, spread)

        return map_in_blocks(one, (value, self.predictor, self.covariance), BLOCK_ROWS)

    def _utilities(self, key: Array, sample_shape: tuple[int, ...]) -> Array:
        spread = self.covariance + jnp.eye(self.predictor.shape[-1])
        return dist.MultivariateNormal(self.predictor, spread, validate_args=False).sample(key, sample_shape)


class DecidedOutputs(dist.Distribution):
    """Outputs given the utilities: certain, so the log density is 0, or minus infinity elsewhere.

    Args:
        utilities: shape (num_observations, num_outputs).
        exclusive: whether the outputs are the columns of class labels.
    """

    support = dist.constraints.independent(dist.constraints.boolean, 1)
    pytree_data_fields = ("utilities",)
    pytree_aux_fields = ("exclusive",)

    def __init__(self, utilities: Array, exclusive: bool) -> None:
        self.utilities, self.exclusive = utilities, exclusive
        super().__init__(utilities.shape[:-1], utilities.shape[-1:])

    def log_prob(self, value: Array) -> Array:
        """0 or minus infinity, shape (num_observations,); missing outputs agree with anything."""
        agree = jnp.isnan(value) | (value == _decided(self.utilities, self.exclusive))
        return jnp.where(agree.all(axis=-1), 0.0, -jnp.inf)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """The outputs that the utilities decide."""
        decided = _decided(self.utilities, self.exclusive)
        return jnp.broadcast_to(decided, (*sample_shape, *decided.shape))


class LatentsGivenDecisions(dist.Distribution):
    r"""The latents of rows given x and one decision each: a skew normal.

    With z ~ N(m, S) given x and d = a'z + ... Gaussian, drawn as d given d > 0, then z given d.

    Args:
        mean: m, shape (num_observations, num_latents).
        covariance: S, shape (num_observations, num_latents, num_latents).
        loadings: of the outputs, shape (num_outputs, num_latents).
        loc: of the outputs, shape (num_outputs,).
        y: outputs, NaN where missing.
        exclusive: whether the outputs are the columns of class labels.
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("loc_given_x", "covariance_given_x", "loadings", "loc", "y")
    pytree_aux_fields = ("exclusive",)

    def __init__(
        self, mean: Array, covariance: Array, loadings: Array, loc: Array, y: Array, exclusive: bool
    ) -> None:
        self.loc_given_x, self.covariance_given_x, self.loadings, self.loc = mean, covariance, loadings, loc
        self.y, self.exclusive = y, exclusive
        super().__init__(mean.shape[:1], mean.shape[1:])

    def _utilities(self) -> tuple[Array, Array]:
        """Mean and covariance, without their noise, of the utilities given x."""
        return (
            self.loc + self.loc_given_x @ self.loadings.T,
            carried_over(self.loadings, self.covariance_given_x),
        )

    def log_prob(self, value: Array) -> Array:
        """Log density in nats, shape (num_observations,)."""
        prior = dist.MultivariateNormal(
            self.loc_given_x, self.covariance_given_x, validate_args=False
        ).log_prob(value)
        own = ProbitOutputs(self.loc + value @ self.loadings.T, self.exclusive).log_prob(self.y)
        predictor, spread = self._utilities()
        return prior + own - ProbitOutputsGivenRows(predictor, self.exclusive, spread).log_prob(self.y)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, shape (*sample_shape, num_observations, num_latents)."""
        cut, rest = jax.random.split(key)
        shape, dtype = (*sample_shape, *self.batch_shape), self.loc_given_x.dtype
        uniform = jax.random.uniform(cut, shape, dtype, 1e-12, 1.0)
        root = jnp.linalg.cholesky(self.covariance_given_x)
        standard = jax.random.normal(rest, (*sample_shape, *self.loc_given_x.shape), dtype)
        free = self.loc_given_x + jnp.einsum("nij,...nj->...ni", root, standard)
        decided = jax.vmap(partial(decisions, exclusive=self.exclusive))
        mean, variance, contrast = decided(self.y, *self._utilities())
        mean, variance, contrast = mean[:, 0], variance[:, 0, 0], contrast[:, 0] @ self.loadings
        scale = jnp.sqrt(variance)
        cut_off = mean - scale * ndtri(uniform * ndtr(mean / scale))
        explained = jnp.einsum("ni,nij,nj->n", contrast, self.covariance_given_x, contrast)
        noise = jnp.sqrt(jnp.maximum(variance - explained, 0))
        unconditional = mean + jnp.einsum("ni,...ni->...n", contrast, free - self.loc_given_x)
        other = jax.random.normal(jax.random.fold_in(rest, 1), unconditional.shape, dtype)
        gain = jnp.einsum("nij,nj->ni", self.covariance_given_x, contrast) / variance[:, None]
        return free + (cut_off - unconditional - noise * other)[..., None] * gain


def class_log_probabilities(predictor: Array) -> Array:
    """Log p(class | utilities' means).

    Two classes are exact; more by Gauss-Hermite quadrature (errors below 1e-8 nats where the class has a
    probability above 1e-6).

    Args:
        predictor: means of the utilities, shape (..., num_classes).

    Returns:
        Shape (..., num_classes), in nats.
    """
    differences = predictor[..., :, None] - predictor[..., None, :]  # m_c - m_j
    size = predictor.shape[-1]
    if size == 2:
        return log_ndtr(jnp.stack([differences[..., 0, 1], differences[..., 1, 0]], axis=-1) / jnp.sqrt(2.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_HERMITE)
    logs = log_ndtr(jnp.asarray(nodes) + differences[..., None])
    logs = jnp.sum(jnp.where(jnp.eye(size, dtype=bool)[..., None], 0.0, logs), axis=-2)
    return logsumexp(logs + jnp.asarray(np.log(weights / weights.sum())), axis=-1)


def decisions(y: Array, predictor: Array, covariance: Array, exclusive: bool) -> tuple[Array, Array, Array]:
    """Mean and covariance of a row's decision d = T u, and T.

    Args:
        y: outputs, shape (num_outputs,); NaN is missing: an entry without information, N(`CERTAIN`, 1).
        predictor: mean of the utilities, shape (num_outputs,).
        covariance: of the utilities without their noise, shape (num_outputs, num_outputs).
        exclusive: whether the outputs are the columns of class labels.

    Returns:
        Shapes (J,), (J, J) and (J, num_outputs).
    """
    size, missing = predictor.shape[0], jnp.isnan(y)
    if exclusive:
        winner = jnp.argmax(jnp.where(missing, 0.0, y))
        others = jnp.arange(size - 1) + (jnp.arange(size - 1) >= winner)
        identity = jnp.eye(size)
        contrast = identity[winner] - identity[others]
        silent = jnp.broadcast_to(missing.any(), (size - 1,))
    else:
        contrast, silent = jnp.diag(2 * jnp.where(missing, 0.5, y) - 1), missing
    contrast = jnp.where(silent[:, None], 0.0, contrast)
    spread = contrast @ (covariance + jnp.eye(size)) @ contrast.T + jnp.diag(silent.astype(predictor.dtype))
    return contrast @ predictor + CERTAIN * silent, spread, contrast


def check_probit_outputs(y: np.ndarray, exclusive: bool) -> None:
    """Raise ValueError, naming row and column, unless outputs are 0, 1 or missing, one 1 a row of classes.

    Args:
        y: outputs, shape (num_observations, num_outputs).
        exclusive: whether they are classes of which one occurs.
    """
    strange = np.argwhere(~np.isnan(y) & (y != 0) & (y != 1))
    if strange.size:
        row, column = strange[0]
        raise ValueError(
            f"probit outputs are 0, 1 or missing; {row_of(y, row)}, {column_of(y, column)} of y is "
            f"{y[row, column]:g}: give class labels in words, or use output_likelihood='gaussian'"
        )
    if not exclusive:
        return
    partly = np.isnan(y).any(axis=1) & ~np.isnan(y).all(axis=1)
    several = ~np.isnan(y).any(axis=1) & (y.sum(axis=1) != 1)
    for rows, what in ((partly, "is missing in part"), (several, "does not have exactly one 1")):
        if rows.any():
            row = row_of(y, int(np.argmax(rows)))
            raise ValueError(
                f"class labels take one column per class; {row} of y {what}: give the labels themselves, "
                f"one a row"
            )


def carried_over(loadings: Array, covariance: Array) -> Array:
    """The covariance of the utilities of each row without their noise, W S_n W'.

    Args:
        loadings: W, shape (num_outputs, num_latents).
        covariance: of the latents, shape (num_observations, num_latents, num_latents).

    Returns:
        Shape (num_observations, num_outputs, num_outputs).
    """
    return jnp.einsum("li,nij,mj->nlm", loadings, covariance, loadings)


def _decided(utilities: Array, exclusive: bool) -> Array:
    if not exclusive:
        return (utilities > 0).astype(utilities.dtype)
    return jax.nn.one_hot(jnp.argmax(utilities, axis=-1), utilities.shape[-1], dtype=utilities.dtype)


NUM_NODES = {1: 40, 2: 24}  # Gauss-Legendre nodes by number of integrals
NUM_POINTS = 512
FAR = -18.0  # in deviations: from here on asymptotic series are better than differences
SMALLEST = 1e-290  # probabilities below it are taken for it where a quantile is needed


class Orthant(NamedTuple):
    """A Gaussian cut off at zero in every entry.

    Attributes:
        log_probability: of the orthant before the cut, nats, shape ().
        mean: after the cut, shape (J,).
        covariance: after the cut, shape (J, J).
    """

    log_probability: Array
    mean: Array
    covariance: Array


def log_orthant(mean: Array, covariance: Array) -> Array:
    """Log P(d > 0) of a Gaussian vector.

    Args:
        mean: shape (J,).
        covariance: positive definite, shape (J, J).

    Returns:
        A scalar, in nats.
    """
    return logsumexp(_separated(mean, covariance, whole=False)[0])


def orthant_moments(mean: Array, covariance: Array) -> Orthant:
    """Probability of the positive orthant and the moments of the Gaussian there.

    Args:
        mean: shape (J,).
        covariance: positive definite, shape (J, J).

    Returns:
        Log probability, mean and covariance of the Gaussian cut off there.
    """
    if mean.shape[0] == 1:
        scale = jnp.sqrt(covariance[0, 0])
        log_probability, first, second = positive_normal_moments(mean[0], scale)
        return Orthant(log_probability, first[None], second[None, None])
    log_weights, draws = _separated(mean, covariance, whole=True)
    total = logsumexp(log_weights)
    weights = jnp.exp(log_weights - total)
    first = weights @ draws
    away = draws - first
    return Orthant(total, first, away.T @ (weights[:, None] * away))


def positive_normal_moments(mean: Array, scale: Array) -> tuple[Array, Array, Array]:
    r"""Log P(d > 0), E[d | d > 0] and Var[d | d > 0] of d ~ N(mean, scale^2), entry by entry.

    With :math:`\lambda = \phi(a) / \Phi(a)`, a = mean / scale: mean + scale lambda, and
    :math:`scale^2 (1 - \lambda(\lambda + a))`; far below zero, where that loses all digits,
    the first terms of Mills' ratio.

    Args:
        mean: any shape.
        scale: standard deviation, the same shape.

    Returns:
        Three arrays of the shape of ``mean``, the first in nats.
    """
    ratio = mean / scale
    log_probability = log_ndtr(ratio)
    hazard = jnp.exp(-0.5 * ratio**2 - 0.5 * jnp.log(2 * jnp.pi) - log_probability)
    far = jnp.minimum(ratio, -1.0)
    tail = 1 / far**2 - 6 / far**4 + 50 / far**6 - 518 / far**8 + 6354 / far**10
    shrunk = jnp.where(ratio < FAR, tail, 1 - hazard * (hazard + ratio))
    tail = -1 / far + 2 / far**3 - 10 / far**5 + 74 / far**7 - 706 / far**9
    excess = jnp.where(ratio < FAR, tail, hazard + ratio)
    return log_probability, scale * excess, scale**2 * shrunk


def _separated(mean: Array, covariance: Array, *, whole: bool) -> tuple[Array, Array]:
    """Log weights of the nodes, shape (P,), and d there, (P, J); ``whole``: its last entry too."""
    size = mean.shape[0]
    nodes, log_shares = _nodes(size if whole else size - 1)
    nodes, log_weights = jnp.asarray(nodes.copy(), mean.dtype), jnp.asarray(log_shares.copy(), mean.dtype)
    factor = jnp.linalg.cholesky(covariance)
    standard: list[Array] = []
    for j in range(size):
        shift = sum((factor[j, k] * standard[k] for k in range(j)), jnp.zeros_like(log_weights))
        above = (mean[j] + shift) / factor[j, j]
        log_probability = log_ndtr(above)
        log_weights = log_weights + log_probability
        if j < nodes.shape[1]:
            share = nodes[:, j] * jnp.exp(log_probability)
            standard.append(-ndtri(jnp.maximum(share, SMALLEST)))
    drawn = jnp.stack(standard, axis=1) if standard else jnp.zeros((1, 0), mean.dtype)
    return log_weights, mean[: drawn.shape[1]] + drawn @ factor[: drawn.shape[1], : drawn.shape[1]].T


@cache
def _nodes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in the unit cube, (P, size), and the logarithms of their weights, which sum to one."""
    if size == 0:
        return np.zeros((1, 0)), np.zeros(1)
    if size in NUM_NODES:
        nodes, weights = np.polynomial.legendre.leggauss(NUM_NODES[size])
        t = (nodes + 1) / 2  # v = t^3 (10 - 15 t + 6 t^2) smooths the quantiles' singularity at 0
        nodes, weights = t**3 * (10 - 15 * t + 6 * t**2), 30 * t**2 * (1 - t) ** 2 * weights / 2
        grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
        shares = np.stack(np.meshgrid(*[weights] * size, indexing="ij"), axis=-1).reshape(-1, size)
        return grid, np.log(shares).sum(axis=1)
    points = late.qmc.Sobol(size, scramble=True, rng=np.random.default_rng(0)).random(NUM_POINTS)
    return np.clip(points, 1e-9, 1 - 1e-9), np.full(NUM_POINTS, -np.log(NUM_POINTS))
