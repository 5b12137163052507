r"""The log evidence of a fit by a sampler, by bridge sampling on coordinates that the data identify.

Identified coordinates
----------------------
Where neither the rows nor the prior can tell loadings W (D rows, K <= D columns) from W Q, Q orthogonal, the
posterior is a continuum of equal modes and no simple proposal overlaps with it. Let A be any fixed invertible
matrix of D rows. With probability one there is exactly one lower trapezoidal L with positive diagonal, and
one orthogonal Q, so that

.. math::
    A W = L Q, \qquad dW = |\det A|^{-K} \prod_{k=1}^K l_{kk}^{K-k}\, dL\, (Q^T dQ)

(Muirhead 1982, "Aspects of Multivariate Statistical Theory", theorem 2.1.13, of the transpose of the first
K rows of A W; the others turn along, with Jacobian one). The density is free of Q, which integrates to the
volume of the orthogonal group,

.. math::
    V_K = \int_{O(K)} (Q^T dQ) = \frac{2^K \pi^{K^2/2}}{\Gamma_K(K/2)}
        = \prod_{k=1}^K \frac{2 \pi^{k/2}}{\Gamma(k/2)},

so that, theta being everything else, the evidence is

.. math::
    Z = \frac{V_K}{|\det A|^K} \int\!\!\int p(x, A^{-1} L, \theta) \prod_{k=1}^K l_{kk}^{K-k}\, dL\, d\theta .

The diagonal is taken by its logarithm (another :math:`\prod_k l_{kk}`) and theta in the unconstrained
coordinates of NumPyro. A divides each row of W by its root mean square over the draws and turns the rows to
the principal axes of the mean of W W'. The first rows of A W are then the strongest directions, so that a
diagonal entry is near zero only where its latent is; A also makes the coordinates free of the columns' units.
A model without a symmetry has Z as its plain integral over unconstrained coordinates.

Bridge
------
A normal proposal q is fitted to one half of the draws of every chain. With n_1 draws of the other half (worth
s_1 / (s_1 + s_2) of all, by their effective number) and n_2 of q, the estimate is the fixed point of

.. math::
    Z = \frac{n_2^{-1} \sum_j l_{2j} / (s_1 l_{2j} + s_2 Z)}{n_1^{-1} \sum_i 1 / (s_1 l_{1i} + s_2 Z)},
    \qquad l = p(x, \cdot) / q(\cdot)

(Meng and Wong 1996, equation 4.1; it is Bennett's ratio). Fitted to the draws that it is compared with, q
would lie closer to them than to the posterior, which biases Z. Its relative error follows
Fruehwirth-Schnatter (2004), section 4.1: variances of both averages, that over the chains divided by the
effective number of draws. The halves then change parts, and the mean of the two logarithms is told, with the
error of a mean of two: given its proposal each one's error comes from draws that the other one's does not.

Verdict
-------
Z is told where the chains agree, either half has enough draws for a covariance, the two estimates are within
four of their standard errors (in one of 16 000 runs they are not by chance) and neither error is so large
that its linearisation fails. Else it is NaN and `why_no_evidence` says why.

References: Meng and Wong (1996), "Simulating ratios of normalizing constants via a simple identity"; Gronau
et al. (2017), "A tutorial on bridge sampling"; Lopes and West (2004), "Bayesian model assessment in factor
analysis".
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Self

import jax
import numpy as np
import xarray as xr
from jax import Array
from numpyro.infer.util import potential_energy, unconstrain_fn
from scipy.special import logsumexp

from inference.convergence.identifiable import kind_of
from inference.convergence.r_hat import effective_sample_size, judgement
from inference.fitting.arguments import key_of
from inference.fitting.verdict import verdict
from inference.methods import advised
from inference.numerics.host_draws import generator
from inference.numerics.programs import latent_names, over_draws
from inference.precision import double_precision
from inference.results.files import check_tree, model_of
from inference.results.groups import check_all_rows, group_of, restored_data, with_groups
from zoo.answers import answer_of
from zoo.intake.families import for_data
from zoo.model import Model, in_current_precision
from zoo.programs import to_be_proper
from zoo.shapes import Values

LARGEST_RHAT = 1.05  # of chains whose draws are one sample
LARGEST_ERROR = 0.5  # nats, above which a relative error is no error of a logarithm
APART = 4.0  # standard errors between the two halves
_DRAWS_A_COORDINATE = 10  # in a half, below which a covariance is mostly noise
_ITERATIONS, _TOLERANCE = 1000, 1e-10


@double_precision
def log_evidence(tree: xr.DataTree, seed: int | Array = 0) -> xr.DataTree:
    """Return a copy of a fit that knows its log evidence, with its standard error; by bridge sampling.

    Args:
        tree: a fit by NUTS, HMC or Gibbs of a model with a proper prior, whose program has every latent of a
            row summed out, and in which nothing but a rotation of the latents leaves the posterior as it is:
            `zoo.PPCA` with ``loading_prior="gaussian"``, or a model without a symmetry.
        seed: of the proposal's draws, a whole number in [0, 2**32) or a JAX key.

    Returns:
        The fit with the attributes ``log_evidence`` (nats; of the observed cells, in the units of the data),
        ``log_evidence_se`` (its Monte Carlo standard error) and ``why_no_evidence``: empty, or the sentence
        that says why the first two are NaN. ``verdict`` is that of the new fit.

    Raises:
        TypeError: ``tree`` is no tree.
        ValueError: the fit is not by sampling, is of weighted rows, lacks its data or some of its rows, or
            its model has an improper or unnormalised prior, latents or labels of rows in its program, or
            another symmetry.

    Example:
        >>> import numpy as np, zoo
        >>> from inference import fit, log_evidence
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(40, 1)) * [2.0, 1.0, 1.0] + rng.normal(size=(40, 3))
        >>> model = zoo.PPCA(num_latents=1, loading_prior="gaussian", noise_concentration=2.0)
        >>> tree = fit(model, x, method="nuts", num_samples=800, progress=False)
        >>> log_evidence(tree).attrs["log_evidence_se"] < 0.1
        True
    """
    check_tree(tree)
    key, model = key_of(seed), model_of(tree)
    _check(tree, model)
    check_all_rows(tree)
    data = restored_data(group_of(tree, "observed_data"), model)
    model = for_data(model, *data)
    data = in_current_precision(data)
    draws = {name: tree["posterior"][name].to_numpy() for name in latent_names(model, *data)}
    found, why = _UNKNOWN, _why_no_sample(tree)
    if not why:
        draws = jax.tree.map(np.asarray, over_draws(_unconstrained, draws, model, data))
        found, why = _of_halves(key, draws, model, data)
    attrs = {"log_evidence": found.value, "log_evidence_se": found.error, "why_no_evidence": why}
    told = with_groups(tree, {}, **attrs)
    told.attrs["verdict"] = verdict(told).said
    return told


class _Evidence(NamedTuple):
    """A log evidence and its standard error, in nats."""

    value: float
    error: float


_UNKNOWN = _Evidence(math.nan, math.nan)


def _check(tree: xr.DataTree, model: Model) -> None:
    """Raise ValueError for a fit of whose evidence nothing is known here."""
    name, tempered = type(model).__name__, advised(model, ("tempered",))
    otherwise = f"; fit with {tempered}, which estimates it" if tempered else ""
    if tree.attrs["method"] == "tempered":
        otherwise = "; tree.attrs['log_evidence'] holds that of this tempered fit"
    if model.prior != "proper":
        remedy = to_be_proper(model)
        raise ValueError(f"the prior of {name} is {model.prior}, so the data have no evidence{remedy}")
    if "sample_weight" in tree["constant_data"].to_dataset():
        raise ValueError("rows of weight w are a power of their density, not data: fit without sample_weight")
    if not answer_of(model, "sums_out_locals"):
        raise ValueError(
            f"the program of {name} draws latents of each row, too many for bridge sampling: that is for "
            f"models whose latents are summed out, such as zoo.PPCA{otherwise}"
        )
    if other := set(model.symmetries) - {"rotation"}:
        raise ValueError(
            f"{name} is unchanged under {', '.join(sorted(other))}: bridge sampling finds one mode, not all"
            f"{otherwise}"
        )
    if set(model.symmetries) - set(model.exact_symmetries):
        raise ValueError(
            f"the prior of these loadings is not the same in all directions, so that {name} has modes which "
            "no rotation connects; use loading_prior='gaussian'"
        )
    if kind_of(tree) != "sampling":
        raise ValueError(
            f"the log evidence is estimated from draws of the posterior, and method {tree.attrs['method']!r} "
            f"has none: fit with {advised(model, ('gibbs', 'nuts'))}"
        )


def _why_no_sample(tree: xr.DataTree) -> str:
    """Why the chains are no sample of one posterior, or nothing."""
    agreement = judgement(tree)
    if agreement.converged or agreement.r_hat < LARGEST_RHAT:
        return ""
    return f"the chains are no sample of the posterior: {agreement.reasons}"


def _of_halves(key: Array, draws: dict[str, np.ndarray], model: Model, data: tuple) -> tuple[_Evidence, str]:
    """The estimate from unconstrained draws (chain, draw, ...), and why it is not to be told."""
    chains, number = next(iter(draws.values())).shape[:2]
    halves = [
        {name: value[:, part] for name, value in draws.items()}
        for part in (slice(number // 2), slice(-(number // 2), None))
    ]
    size = _Coordinates.of(draws, model).size
    if chains * (number // 2) < _DRAWS_A_COORDINATE * size:
        needed = 2 * -(-_DRAWS_A_COORDINATE * size // chains)
        why = f"{chains * number} draws are too few to fit a proposal in {size} coordinates"
        return _UNKNOWN, f"{why}. Next: num_samples={needed} or more"
    random = generator(key)
    pair = [_bridge(random, fitted, held, model, data) for fitted, held in (halves, halves[::-1])]
    both = math.hypot(*(one.error for one in pair))
    if not max(one.error for one in pair) < LARGEST_ERROR:
        why = f"the proposal hardly overlaps with the posterior: the standard error is {both / 2:.2g} nats"
    elif abs(pair[0].value - pair[1].value) > APART * both:
        why = f"the halves of the draws disagree: {pair[0].value:.2f} and {pair[1].value:.2f} nats"
    else:
        return _Evidence((pair[0].value + pair[1].value) / 2, both / 2), ""
    return _UNKNOWN, f"{why}. Next: raise num_samples"


def _bridge(
    random: np.random.Generator,
    fitted: Mapping[str, np.ndarray],
    held: Mapping[str, np.ndarray],
    model: Model,
    data: tuple,
) -> _Evidence:
    """The estimate from unconstrained draws and a proposal fitted to others, as many of each."""
    coordinates = _Coordinates.of(fitted, model)
    proposal = _Normal.of(coordinates.inward(fitted))
    own = coordinates.inward(held)
    drawn = proposal.sample(random, own.shape[:2])
    log_own, log_drawn = (
        coordinates.log_density(points, model, data) - proposal.log_prob(points) for points in (own, drawn)
    )
    share = _effective(log_own) / (_effective(log_own) + log_drawn.size)
    log_shares = np.log([share, 1 - share])

    def log_mixed(log_ratio: np.ndarray, log_z: float) -> np.ndarray:  # (s_1 l + s_2 Z) / Z
        return np.logaddexp(log_shares[0] + log_ratio - log_z, log_shares[1])

    log_z, before = float(np.median(log_own)), math.inf
    for _ in range(_ITERATIONS):
        if abs(log_z - before) < _TOLERANCE:
            break
        before = log_z
        above = logsumexp(log_drawn - log_mixed(log_drawn, log_z))
        log_z = float(above - logsumexp(-log_mixed(log_own, log_z)))
    of_drawn = np.exp(log_drawn - log_z - log_mixed(log_drawn, log_z))
    of_own = np.exp(-log_mixed(log_own, log_z))
    squares = of_drawn.var() / of_drawn.mean() ** 2 / of_drawn.size
    squares += of_own.var() / of_own.mean() ** 2 / _effective(of_own)
    is_solved = abs(log_z - before) < _TOLERANCE
    return _Evidence(log_z, math.sqrt(squares) if is_solved else math.inf)


def _effective(draws: np.ndarray) -> float:
    """How many independent draws the mean of draws (chain, draw) is worth."""
    size = effective_sample_size(draws, "mean")
    return size if np.isfinite(size) else float(draws.size)  # constant ones


class _Normal(NamedTuple):
    """A normal proposal.

    Attributes:
        mean: shape (size,).
        factor: lower Cholesky factor of its covariance, shape (size, size).
    """

    mean: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray) -> Self:
        """With the moments of points (chain, draw, size)."""
        flat = points.reshape(-1, points.shape[-1])
        return cls(flat.mean(0), np.linalg.cholesky(np.cov(flat.T).reshape(2 * flat.shape[1:])))

    def sample(self, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Draws, shape (*shape, size)."""
        return self.mean + random.normal(size=(*shape, len(self.mean))) @ self.factor.T

    def log_prob(self, points: np.ndarray) -> np.ndarray:
        """Log density of points (..., size), in nats."""
        size = len(self.mean)
        flat = (points - self.mean).reshape(-1, size)
        standard = np.linalg.solve(self.factor, flat.T)
        constant = size * math.log(2 * math.pi) / 2 + np.log(np.diag(self.factor)).sum()
        return -constant - (standard**2).sum(0).reshape(points.shape[:-1]) / 2


class _Coordinates(NamedTuple):
    """Identified coordinates of unconstrained draws: log diagonal and rest of L, then all other sites.

    Attributes:
        shapes: of the sites that are no loadings.
        rows: rows of the loadings by site, one above the other.
        scale: of each row, shape (num_rows,).
        turn: orthogonal, from axes to rows, shape (num_rows, num_rows): A is its transpose over the scale.
        num_latents: K; 0 where nothing is rotated.
    """

    shapes: dict[str, tuple[int, ...]]
    rows: dict[str, int]
    scale: np.ndarray
    turn: np.ndarray
    num_latents: int

    @classmethod
    def of(cls, draws: Mapping[str, np.ndarray], model: Model) -> Self:
        """Coordinates about the axes of the mean of W W' over draws (chain, draw, ...)."""
        turns = model.roles.loadings if "rotation" in model.symmetries else ()
        rows = {name: value.shape[2] for name, value in draws.items() if name in turns}
        shapes = {name: value.shape[2:] for name, value in draws.items() if name not in rows}
        if not rows:
            return cls(shapes, rows, np.ones(0), np.ones((0, 0)), 0)
        stacked = np.concatenate([draws[name] for name in rows], axis=2)
        mean = np.einsum("csdk,csek->de", stacked, stacked) / math.prod(stacked.shape[:2])
        scale = np.sqrt(np.diag(mean))
        turn = np.linalg.eigh(mean / np.outer(scale, scale))[1][:, ::-1]
        return cls(shapes, rows, scale, turn, stacked.shape[3])

    @property
    def size(self) -> int:
        """How many coordinates."""
        below = len(self._below[0])
        return self.num_latents + below + sum(map(math.prod, self.shapes.values()))

    @property
    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        """Places below the diagonal of L."""
        return np.tril_indices(len(self.scale), -1, self.num_latents)

    def inward(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """Coordinates of draws (chain, draw, ...), shape (chain, draw, size)."""
        parts = [draws[name].reshape(*draws[name].shape[:2], -1) for name in self.shapes]
        if not self.rows:
            return np.concatenate(parts, axis=-1)
        stacked = np.concatenate([draws[name] for name in self.rows], axis=2)
        turned = self.turn.T @ (stacked / self.scale[:, None])
        lower = np.swapaxes(np.linalg.qr(np.swapaxes(turned, -1, -2), mode="r"), -1, -2)
        diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
        lower = lower * np.sign(diagonal)[..., None, :]
        return np.concatenate([np.log(np.abs(diagonal)), lower[..., *self._below], *parts], axis=-1)

    def outward(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """Unconstrained values of the sites at coordinates (chain, draw, size)."""
        shape, number = points.shape[:2], self.num_latents
        sizes = [number, len(self._below[0]), *map(math.prod, self.shapes.values())]
        logs, below, *others = np.split(points, np.cumsum(sizes)[:-1], axis=-1)
        named = zip(self.shapes.items(), others, strict=True)
        found = {name: part.reshape(*shape, *own) for (name, own), part in named}
        if not self.rows:
            return found
        lower = np.zeros((*shape, len(self.scale), number))
        lower[..., *np.diag_indices(number)] = np.exp(logs)
        lower[..., *self._below] = below
        loadings = self.scale[:, None] * (self.turn @ lower)
        ends = np.cumsum(list(self.rows.values()))
        return found | dict(zip(self.rows, np.split(loadings, ends[:-1], axis=2), strict=True))

    def log_density(self, points: np.ndarray, model: Model, data: tuple) -> np.ndarray:
        """Log joint density of the program and its data in these coordinates, shape (chain, draw)."""
        log_joint = np.asarray(over_draws(_log_joint, self.outward(points), model, data))
        return log_joint + self.log_volume(points)

    def log_volume(self, points: np.ndarray) -> np.ndarray:
        """Log of the volume of loadings W in that of coordinates, all rotations together."""
        ranks = np.arange(1, self.num_latents + 1)
        group = sum(math.log(2) + k / 2 * math.log(math.pi) - math.lgamma(k / 2) for k in ranks)
        powers = self.num_latents - ranks + 1
        constant = group + self.num_latents * np.log(self.scale).sum()
        return constant + points[..., : self.num_latents] @ powers


def _unconstrained(model: Model, values: Values, *data: Array) -> dict[str, Array]:
    return unconstrain_fn(model, data, {}, values)


def _log_joint(model: Model, values: Values, *data: Array) -> Array:
    return -potential_energy(model, data, {}, values)
