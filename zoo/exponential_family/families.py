"""The families of cells; `zoo.exponential_family` lists them in a table.

Those with one natural parameter a cell come first, then classes and ordered levels, which have no conjugate
kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, polygamma

from zoo.checks import largest_in_columns
from zoo.exponential_family.family import CellTerms, Family, Number
from zoo.fields import positive, whole
from zoo.shapes import Cells

CLOSE = 5e-4  # weight within half a deviation of the domain's end, below which nodes are averaged as they are
MOSTLY_INSIDE = 0.98  # weight inside the domain, from which on the nodes tell the spread of log m


@dataclass(frozen=True, eq=False)
class Gaussian(Family):
    """Real cells about their mean theta.

    Attributes:
        noise_variance: phi > 0; None: unknown, a site of the model.
    """

    noise_variance: Array | None = positive(1.0)
    domain = "finite numbers"
    cell_units = "location_scale"
    log_partition_form = "quadratic"

    @property
    def learns_noise(self) -> bool:
        """Whether the variance is unknown."""
        return self.noise_variance is None

    @property
    def dispersion(self) -> Array:
        """The noise variance."""
        return self.noise_variance

    @property
    def curvature_bound(self) -> Array:
        """One over the noise variance."""
        return 1.0 / self.dispersion

    def log_partition(self, theta: Cells) -> Cells:
        """Theta^2 / 2."""
        return 0.5 * theta**2

    def mean(self, theta: Cells) -> Cells:
        """Theta itself."""
        return theta

    def variance(self, theta: Cells) -> Cells:
        """Phi."""
        return jnp.broadcast_to(self.dispersion, jnp.shape(theta))

    def natural(self, mean: Cells) -> Cells:
        """The mean itself."""
        return mean

    def natural_of_columns(self, x: Array) -> Array:
        """The mean of every column, or zero without cells; not smoothed: columns may have different units."""
        means = jnp.nanmean(x, axis=0)
        return jnp.where(jnp.isnan(means), 0.0, means)

    def log_base_measure(self, x: Cells) -> Cells:
        """Log N(x; 0, phi)."""
        return -0.5 * (jnp.log(2 * jnp.pi * self.dispersion) + x**2 / self.dispersion)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Normal."""
        return dist.Normal(theta, jnp.sqrt(self.dispersion))

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """Nu > 0: theta ~ Normal(lam / nu, 1 / nu)."""
        return nu > 0

    def log_kernel_integral(self, lam: Array, nu: Array) -> Array:
        """Of a normal density."""
        return 0.5 * (jnp.log(2 * jnp.pi / nu) + lam**2 / nu)

    def draw_from_kernel(self, key: Array, lam: Array, nu: Array, shape: tuple[int, ...]) -> Array:
        """Normal."""
        return lam / nu + jax.random.normal(key, shape) / jnp.sqrt(nu)

    def kernel_variance(self, lam: Array, nu: Array) -> Array:
        """1 / nu."""
        return jnp.broadcast_to(1 / nu, jnp.shape(lam))

    def _cell_terms(self, known: Array, seen: Array, lam: Number, nu: Number) -> CellTerms:
        scale, nothing = 1 / self.noise_variance, jnp.zeros_like(seen)
        return scale * known + lam, scale * seen + nu, nothing, nothing

    def quadratic_bound(self, x: Array, curves: Array | None) -> tuple[Array, Array, Array]:
        """The log density itself."""
        return self.log_base_measure(x), x / self.dispersion, 1.0 / self.dispersion

    def log_marginal(self, theta: Array, variance: Array, x: Array, cut_points: Array | None) -> Array:
        """Normal, its variance the sum of both."""
        return dist.Normal(theta, jnp.sqrt(self.dispersion + variance)).log_prob(x)

    def expected_base_measure(self, x: Array, inverse_noise: Number, log_noise: Number) -> Array:
        """Normal, with the expectations where the variance is not given."""
        if not self.learns_noise:
            inverse_noise, log_noise = 1 / self.noise_variance, jnp.log(self.noise_variance)
        count = jnp.sum(~jnp.isnan(x))
        return -0.5 * (count * (jnp.log(2 * jnp.pi) + log_noise) + inverse_noise * jnp.nansum(x**2))

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Finite."""
        return np.isfinite(x)


class _Logistic(Family):
    """Cells of ``total_count`` trials; theta is the log odds of one."""

    total_count: int = 1
    log_partition_form = "logistic"

    @property
    def curvature_bound(self) -> float:
        """A quarter for each trial."""
        return 0.25 * self.total_count

    def _cell_terms(self, known: Array, seen: Array, lam: Number, nu: Number) -> CellTerms:
        count, nothing = self.total_count * (seen + nu), jnp.zeros_like(seen)
        return known + lam - count / 2, nothing, count, nothing

    def variance(self, theta: Cells) -> Cells:
        """N p (1 - p)."""
        return self.total_count * jax.nn.sigmoid(theta) * jax.nn.sigmoid(-theta)

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """0 < lam < n nu: for one trial the mean ~ Beta(lam, nu - lam)."""
        return 0 < lam < self.total_count * nu

    def log_kernel_integral(self, lam: Array, nu: Array) -> Array:
        """Log beta function of lam and n nu - lam."""
        rest = self.total_count * nu - lam
        return gammaln(lam) + gammaln(rest) - gammaln(lam + rest)

    def draw_from_kernel(self, key: Array, lam: Array, nu: Array, shape: tuple[int, ...]) -> Array:
        """The log odds of a beta variable, by logs of gamma variables: it may round to 0 or 1."""
        shapes = jnp.stack([jnp.broadcast_to(a, shape) for a in (lam, self.total_count * nu - lam)])
        successes, failures = jax.random.loggamma(key, shapes)
        return successes - failures

    def kernel_variance(self, lam: Array, nu: Array) -> Array:
        """Trigamma(lam) + trigamma(n nu - lam)."""
        return polygamma(1, lam) + polygamma(1, self.total_count * nu - lam)

    def kernel_is_bounded(self, lam: float, nu: float) -> bool:
        """0 <= lam <= n nu."""
        return 0 <= lam <= self.total_count * nu

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole, from 0 to n."""
        return (x >= 0) & (x <= self.total_count) & (x == np.floor(x))

    def quadratic_bound(self, x: Array, curves: Array) -> tuple[Array, Array, Array]:
        """The bound of Jaakkola and Jordan (2000)."""
        count, is_small = self.total_count, curves < 1e-6
        half = 0.25 * jnp.where(is_small, 0.5, jnp.tanh(curves / 2) / jnp.where(is_small, 1.0, curves))
        constant = count * (half * curves**2 - (curves / 2 + jax.nn.softplus(-curves)))
        return constant + self.log_base_measure(x), x - count / 2, 2 * count * half


@dataclass(frozen=True, eq=False)
class Bernoulli(_Logistic):
    """Zeros and ones; theta is the log odds."""

    domain = "0 or 1"
    mean_is = "probability of 1"
    has_answers = True

    def log_partition(self, theta: Cells) -> Cells:
        """Log(1 + e^theta)."""
        return jnp.where(theta >= 0, theta, 0.0) + jnp.log1p(_small_odds(theta))

    def mean(self, theta: Cells) -> Cells:
        """1 / (1 + e^-theta)."""
        odds = _small_odds(theta)  # shared with `log_partition`, where both are computed
        return jnp.where(theta >= 0, 1.0, odds) / (1.0 + odds)

    def natural(self, mean: Cells) -> Cells:
        """The log odds."""
        return jnp.log(mean) - jnp.log1p(-mean)

    def kernel_of(self, x: np.ndarray, strength: float) -> tuple[float, float]:
        """The mean of all cells, or one half where that is 0 or 1."""
        mean = float(np.nanmean(x))
        return strength, strength / mean if 0 < mean < 1 else 2 * strength

    def log_base_measure(self, x: Cells) -> Cells:
        """Zero."""
        return jnp.zeros_like(x)

    def log_density_of_rows(self, theta: Array, x: Array, seen: Array) -> Array:
        """The sum over cells, with one logarithm for every eight of them.

        Factors `1 + e^-|theta|` lie between 1 and 2, so products of eight lose nothing but rounding.
        """
        linear = jnp.sum(jnp.where(seen, (x - (theta >= 0)) * theta, 0.0), axis=-1)
        factors = jnp.where(seen, 1.0 + _small_odds(theta), 1.0)
        pad = [(0, 0)] * (factors.ndim - 1) + [(0, -factors.shape[-1] % 8)]
        factors = jnp.pad(factors, pad, constant_values=1.0)
        eights = factors.reshape(*factors.shape[:-1], 8, -1)
        return linear - jnp.sum(jnp.log(jnp.prod(eights, axis=-2)), axis=-1)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Bernoulli."""
        return dist.Bernoulli(logits=theta)


@dataclass(frozen=True, eq=False)
class Binomial(_Logistic):
    """Counts out of a total; theta is the log odds of one trial.

    Attributes:
        total_count: n, a whole number of at least 1.
    """

    total_count: int = whole(1)

    @property
    def domain(self) -> str:
        """The allowed values, for messages."""
        return f"whole numbers from 0 to {self.total_count}"

    def log_partition(self, theta: Cells) -> Cells:
        """N log(1 + e^theta)."""
        return self.total_count * jax.nn.softplus(theta)

    def mean(self, theta: Cells) -> Cells:
        """N p."""
        return self.total_count * jax.nn.sigmoid(theta)

    def natural(self, mean: Cells) -> Cells:
        """The log odds of mean / n."""
        return jnp.log(mean) - jnp.log(self.total_count - mean)

    def log_base_measure(self, x: Cells) -> Cells:
        """Log of n choose x."""
        return gammaln(self.total_count + 1.0) - gammaln(x + 1.0) - gammaln(self.total_count - x + 1.0)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Binomial."""
        return dist.Binomial(self.total_count, logits=theta)

    def count_sizes(self, x: np.ndarray) -> np.ndarray:
        """The number of trials."""
        return np.full(x.shape[1], float(self.total_count))


@dataclass(frozen=True, eq=False)
class Poisson(Family):
    """Counts; theta is the log rate."""

    domain = "whole numbers of at least 0"
    mean_is = "rate"
    log_partition_form = "exponential"

    def log_partition(self, theta: Cells) -> Cells:
        """E^theta, which is the mean and the variance too."""
        return jnp.exp(theta)

    mean = variance = log_partition

    def natural(self, mean: Cells) -> Cells:
        """The logarithm."""
        return jnp.log(mean)

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """E[e^theta], and its sum with Var[e^theta].

        E[e^theta] depends on the upper tail, where nodes are few: they correct the log-normal expectation by
        a ratio, in which the tail counts above and below. Where theta is normal it is exact.
        """
        top = jnp.max(theta, axis=0)
        if normal_weights is None:
            first = jnp.tensordot(weights, jnp.exp(theta - top), 1)
            away = jnp.exp(theta - top) / first - 1.0
            mean = jnp.exp(top) * first
            return mean, mean + mean**2 * jnp.tensordot(weights, away**2, 1)
        loc = jnp.tensordot(normal_weights, theta, 1)
        spread = jnp.tensordot(normal_weights, (theta - loc) ** 2, 1)

        def log_ratio(power: float) -> Array:
            lifted = jnp.exp(power * (theta - top))
            return jnp.log(jnp.tensordot(weights, lifted, 1)) - jnp.log(
                jnp.tensordot(normal_weights, lifted, 1)
            )

        once, twice = log_ratio(1.0), log_ratio(2.0)
        mean = jnp.exp(loc + 0.5 * spread + once)
        return mean, mean + mean**2 * jnp.maximum(jnp.expm1(spread + twice - 2.0 * once), 0.0)

    def mean_square_of_means(self, mean: Array, variance: Array) -> Array:
        """Variance - mean + mean^2."""
        return variance - mean + mean**2

    def log_base_measure(self, x: Cells) -> Cells:
        """Minus log x!."""
        return -gammaln(x + 1.0)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Poisson."""
        return dist.Poisson(jnp.exp(theta))

    def count_sizes(self, x: np.ndarray) -> np.ndarray:
        """The largest count of each column."""
        return largest_in_columns(x)

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """Lam, nu > 0: the rate ~ Gamma(lam, nu)."""
        return lam > 0 and nu > 0

    def log_kernel_integral(self, lam: Array, nu: Array) -> Array:
        """Of a gamma density of the rate."""
        return gammaln(lam) - lam * jnp.log(nu)

    def draw_from_kernel(self, key: Array, lam: Array, nu: Array, shape: tuple[int, ...]) -> Array:
        """The logarithm of a gamma variable."""
        return jax.random.loggamma(key, jnp.broadcast_to(lam, shape)) - jnp.log(nu)

    def kernel_variance(self, lam: Array, nu: Array) -> Array:
        """Trigamma(lam)."""
        return jnp.broadcast_to(polygamma(1, lam), jnp.shape(nu))

    def kernel_is_bounded(self, lam: float, nu: float) -> bool:
        """Lam, nu >= 0, and nu > 0 unless lam = 0."""
        return lam >= 0 and nu >= 0 and (nu > 0 or lam == 0)

    def _cell_terms(self, known: Array, seen: Array, lam: Number, nu: Number) -> CellTerms:
        nothing = jnp.zeros_like(seen)
        return known + lam, nothing, nothing, seen + nu

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole and not negative."""
        return (x >= 0) & (x == np.floor(x)) & np.isfinite(x)


@dataclass(frozen=True, eq=False)
class GammaWithShape(Family):
    """Positive numbers with known shape; theta is minus the rate, so it is negative.

    Attributes:
        shape: a > 0.
    """

    shape: Array = positive(1.0)
    domain = "positive numbers"
    theta_is_negative = True
    cell_units = "scale"

    def log_partition(self, theta: Cells) -> Cells:
        """Minus a log(-theta); infinite where theta is not negative."""
        inside = theta < 0
        return jnp.where(inside, -self.shape * jnp.log(jnp.where(inside, -theta, 1.0)), jnp.inf)

    def mean(self, theta: Cells) -> Cells:
        """Minus a / theta."""
        return -self.shape / theta

    def variance(self, theta: Cells) -> Cells:
        """A / theta^2."""
        return self.shape / theta**2

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """E[m] and E[m^2] / a + Var[m] over theta < 0, by `_bounded_moments`."""
        first, second = _bounded_moments(self.mean, theta, weights)
        return first, second / self.shape + jnp.maximum(second - first**2, 0.0)

    def mean_square_of_means(self, mean: Array, variance: Array) -> Array:
        """(Variance + mean^2) / (1 + 1 / a)."""
        return (variance + mean**2) / (1.0 + 1.0 / self.shape)

    def natural(self, mean: Cells) -> Cells:
        """Minus a / mean."""
        return -self.shape / mean

    def natural_of_columns(self, x: Array) -> Array:
        """Theta of every column's mean; that of all cells where a column has only zeros.

        Not smoothed: columns may have different units.
        """
        means = jnp.nanmean(x, axis=0)
        theta = self.natural(jnp.where(means > 0, means, jnp.nanmean(x)))
        return jnp.where(jnp.isfinite(theta), theta, -1.0)

    def natural_units(self, x: np.ndarray) -> np.ndarray:
        """A / mean of each column, or of all cells where a column has only zeros."""
        return float(self.shape) / _positive_means(x)

    def kernel_of(self, x: np.ndarray, strength: float) -> tuple[float, float]:
        """Nu of size ``strength``, which has no unit, and lam with the mean of all cells."""
        return strength * float(_positive_means(np.reshape(x, (-1, 1)))[0]), strength

    def log_base_measure(self, x: Cells) -> Cells:
        """(a - 1) log x - log Gamma(a)."""
        return jax.scipy.special.xlogy(self.shape - 1.0, x) - gammaln(self.shape)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Gamma with rate -theta."""
        return dist.Gamma(self.shape, -theta)

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """Lam > 0 and a nu > -1: the rate ~ Gamma(a nu + 1, lam)."""
        return lam > 0 and float(self.shape) * nu > -1

    def kernel_is_bounded(self, lam: float, nu: float) -> bool:
        """Lam > 0 and nu >= 0."""
        return lam > 0 and nu >= 0

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Positive."""
        return (x > 0) & np.isfinite(x)


@dataclass(frozen=True, eq=False)
class Exponential(GammaWithShape):
    """Numbers of at least zero, exponential: the gamma of shape one, whose density at zero is the rate."""

    domain = "numbers of at least 0"

    def validate(self) -> None:
        """Raise ValueError if a shape other than one was given."""
        if np.shape(self.shape) != () or self.shape != 1:
            raise ValueError(f"an exponential has shape 1; for others use GammaWithShape(shape={self.shape})")

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Not negative: rounded durations hold zeros."""
        return (x >= 0) & np.isfinite(x)


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Family):
    """Counts with more spread than a Poisson's; theta is the log of the success probability, negative.

    Attributes:
        dispersion_count: r > 0; the variance is mean + mean^2 / r.
    """

    dispersion_count: Array = positive(1.0)
    domain = "whole numbers of at least 0"
    theta_is_negative = True

    def log_partition(self, theta: Cells) -> Cells:
        """Minus r log(1 - e^theta); infinite where theta is not negative."""
        inside = theta < 0
        return jnp.where(
            inside, -self.dispersion_count * jnp.log(-jnp.expm1(jnp.where(inside, theta, -1.0))), jnp.inf
        )

    def mean(self, theta: Cells) -> Cells:
        """R p / (1 - p)."""
        return self.dispersion_count / jnp.expm1(-theta)

    def variance(self, theta: Cells) -> Cells:
        """R p / (1 - p)^2."""
        return -self.dispersion_count / (jnp.expm1(-theta) * jnp.expm1(theta))

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """E[m] and E[m] + E[m^2] / r + Var[m] over theta < 0, by `_bounded_moments`."""
        first, second = _bounded_moments(self.mean, theta, weights)
        return first, first + second / self.dispersion_count + jnp.maximum(second - first**2, 0.0)

    def mean_square_of_means(self, mean: Array, variance: Array) -> Array:
        """(Variance - mean + mean^2) / (1 + 1 / r)."""
        return (variance - mean + mean**2) / (1.0 + 1.0 / self.dispersion_count)

    def natural(self, mean: Cells) -> Cells:
        """Log of mean / (r + mean)."""
        return -jnp.log1p(self.dispersion_count / mean)

    def natural_units(self, x: np.ndarray) -> np.ndarray:
        """R / (r + mean) of each column, the derivative of theta in the log of the mean."""
        count = float(self.dispersion_count)
        return count / (count + _positive_means(x))

    def log_base_measure(self, x: Cells) -> Cells:
        """Log of Gamma(x + r) / (x! Gamma(r))."""
        r = self.dispersion_count
        return gammaln(x + r) - gammaln(x + 1.0) - gammaln(r)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Negative binomial by its mean and r."""
        return dist.NegativeBinomial2(self.mean(theta), self.dispersion_count)

    def count_sizes(self, x: np.ndarray) -> np.ndarray:
        """The largest count of each column and r."""
        return largest_in_columns(x) + float(self.dispersion_count)

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """Lam > 0 and r nu > -1: the success probability ~ Beta(lam, r nu + 1)."""
        return lam > 0 and float(self.dispersion_count) * nu > -1

    def kernel_is_bounded(self, lam: float, nu: float) -> bool:
        """Lam, nu >= 0."""
        return lam >= 0 and nu >= 0

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole and not negative."""
        return (x >= 0) & (x == np.floor(x)) & np.isfinite(x)


def _positive_means(x: np.ndarray) -> np.ndarray:
    """Mean of each column; of all cells where that is zero or there is none, or one."""
    seen = ~np.isnan(x)
    whole = np.sum(x, where=seen) / max(seen.sum(), 1)
    means = np.sum(x, axis=0, where=seen) / np.maximum(seen.sum(axis=0), 1)
    return np.where(means > 0, means, whole if whole > 0 else 1.0)


def _bounded_moments(mean: Callable, theta: Array, weights: Array) -> tuple[Array, Array]:
    r"""E[m] and E[m^2] of a mean with a pole at the upper end of the domain theta < 0.

    Where hardly any weighted node lies within half a deviation of the end or beyond (of a normal theta: where
    its mean is 3.8 deviations away), the nodes are averaged as they are. Nearer to it both expectations are
    infinite, for m is about -1 / theta there and the density of theta does not vanish; a sum over nodes would
    depend on where the last one lies. Log m has all moments, and m is taken to be log-normal with those:
    :math:`E[m] = e^{a + b / 2}`, :math:`E[m^2] = e^{2a + 2b}`, a and b mean and variance of log m over
    theta < 0. They are those of the nodes where 98 % of the weight is inside, else of the normal distribution
    with the nodes' mean and variance, truncated at the end. Of a rate that is gamma with shape 4 the error is
    1.6 %.
    """
    loc = jnp.tensordot(weights, theta, 1)
    deviation = jnp.sqrt(jnp.tensordot(weights, (theta - loc) ** 2, 1))
    inside = theta < 0
    held = jnp.tensordot(weights, inside, 1)
    close = jnp.tensordot(weights, theta > -0.5 * deviation, 1)
    means = mean(jnp.where(inside, theta, -1.0))
    own = jnp.where(inside, weights.reshape(-1, *[1] * (theta.ndim - 1)), 0.0)
    own = own / jnp.where(held > 0, held, 1.0)
    direct = jnp.sum(own * means, axis=0), jnp.sum(own * means**2, axis=0)

    # the truncated normal: -theta = deviation e^y, the trapezoid rule in y
    scale = jnp.where(deviation > 0, deviation, 1.0)
    ratio = -loc / scale  # of the mean to the deviation; at most about 2 where this is used
    y = jnp.linspace(-18.0, 3.0, 256).reshape(-1, *[1] * (theta.ndim - 1))
    shrunk = y - jnp.log1p(jnp.maximum(-ratio, 0.0))  # far outside the rest is exponential
    log_weights = shrunk - 0.5 * (jnp.exp(shrunk) - ratio) ** 2
    truncated = jax.nn.softmax(log_weights, axis=0), jnp.log(mean(-scale * jnp.exp(shrunk)))

    def log_normal(shares: Array, log_means: Array) -> tuple[Array, Array]:
        a = jnp.sum(shares * log_means, axis=0)
        b = jnp.sum(shares * (log_means - a) ** 2, axis=0)
        return jnp.exp(a + 0.5 * b), jnp.exp(2.0 * (a + b))

    by_nodes, by_normal = log_normal(own, jnp.log(means)), log_normal(*truncated)

    def chosen(k: int) -> Array:
        near = jnp.where(held > MOSTLY_INSIDE, by_nodes[k], by_normal[k])
        return jnp.where(close < CLOSE, direct[k], near)

    return chosen(0), chosen(1)


def _small_odds(theta: Array) -> Array:
    """`e^-|theta|`, at zero with the derivative from above, so that functions of it are smooth there."""
    return jnp.exp(jnp.where(theta >= 0, -theta, theta))


def most_probable(probs: Array, dtype: Any) -> tuple[Array, Array]:
    """The most probable class of each cell, and p (1 - p) of it.

    Args:
        probs: of the classes, the last axis.
        dtype: of the classes' numbers.

    Returns:
        Two arrays, each of the shape of the cells.
    """
    top = jnp.max(probs, axis=-1)
    return jnp.argmax(probs, axis=-1).astype(dtype), top * (1.0 - top)


@dataclass(frozen=True, eq=False)
class Categorical(Family):
    """One of C classes, numbered from 0, by C - 1 natural parameters: log odds against class 0.

    Attributes:
        num_classes: C, at least 2.
    """

    num_classes: int = whole(2, least=2)
    mean_is = "most probable class"
    has_kernel = False
    first_level = 0

    @property
    def domain(self) -> str:
        """The allowed values, for messages."""
        return f"classes numbered from 0 to {self.num_classes - 1}"

    @property
    def has_classes(self) -> bool:
        """True."""
        return True

    @property
    def params_per_cell(self) -> int:
        """C - 1."""
        return self.num_classes - 1

    def natural_of_columns(self, x: Array) -> Array:
        """Log odds of every column's shares, smoothed, flat with those of a column together."""
        counts = jnp.sum(x[..., None] == jnp.arange(self.num_classes), axis=0) + 1.0
        return (jnp.log(counts[:, 1:]) - jnp.log(counts[:, :1])).ravel()

    def log_probs(self, theta: Array) -> Array:
        """Log probability of each class.

        Args:
            theta: shape (..., C - 1); the first class has zero.

        Returns:
            Shape (..., C), in nats.
        """
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros_like(theta[..., :1]), theta], axis=-1), axis=-1)

    def log_density(self, theta: Array, x: Array) -> Array:
        """Log probability of each cell's class; theta has one more axis than x."""
        return jnp.take_along_axis(self.log_probs(theta), x.astype(int)[..., None], axis=-1)[..., 0]

    def mean_and_variance(self, theta: Array, cut_points: Array | None) -> tuple[Array, Array]:
        """The most probable class, and p (1 - p) of it."""
        probs = jnp.exp(self.log_probs(theta))
        return most_probable(probs, theta.dtype)

    def mean_information(self, theta: Array, cut_points: Array | None) -> Array:
        """Covariance of the indicators of all classes but the first, a block for each column."""
        probs = jnp.exp(self.log_probs(theta))[..., 1:]
        blocks = jnp.eye(self.params_per_cell) * jnp.mean(probs, axis=0)[..., None]
        blocks -= jnp.einsum("ndi,ndj->dij", probs, probs) / len(probs)
        return jax.scipy.linalg.block_diag(*blocks)

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """The most probable class by the averaged probabilities, and p (1 - p) of it."""
        return most_probable(self.expected_class_probs(theta, weights), theta.dtype)

    def expected_class_probs(self, theta: Array, weights: Array) -> Array:
        """The averaged probabilities of the classes."""
        return jnp.tensordot(weights, jnp.exp(self.log_probs(theta)), 1)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Categorical."""
        return dist.Categorical(logits=self.log_probs(theta))

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole, from 0 to C - 1."""
        return (x >= 0) & (x < self.num_classes) & (x == np.floor(x))


@dataclass(frozen=True, eq=False)
class Ordinal(Family):
    """One of C ordered levels, numbered from 1, by cumulative logits: P(x <= c) = sigmoid(cut_c - theta).

    The C - 1 cut points of a column rise, and belong to the model's sites.

    Attributes:
        num_levels: C, at least 2.
    """

    num_levels: int = whole(5, least=2)
    mean_is = "mean level"
    has_kernel = False
    first_level = 1

    @property
    def domain(self) -> str:
        """The allowed values, for messages."""
        return f"levels from 1 to {self.num_levels}"

    @property
    def num_cut_points(self) -> int:
        """C - 1."""
        return self.num_levels - 1

    def log_density_at(self, theta: Array, x: Array, cut_points: Array) -> Array:
        """Log probability of each cell's level: the log of a difference of sigmoids, without cancellation.

        Args:
            theta: shape (..., num_features).
            x: levels from 1 to C, shape (..., num_features).
            cut_points: rising in each row, shape (num_features, C - 1).

        Returns:
            Shape (..., num_features), in nats.
        """
        column = jnp.arange(cut_points.shape[0])
        level = x.astype(int)
        upper = cut_points[column, jnp.clip(level - 1, 0, self.num_levels - 2)] - theta
        lower = cut_points[column, jnp.clip(level - 2, 0, self.num_levels - 2)] - theta
        gap = jnp.where((level > 1) & (level < self.num_levels), upper - lower, 1.0)
        between = jax.nn.log_sigmoid(upper) + jax.nn.log_sigmoid(-lower) + jnp.log(-jnp.expm1(-gap))
        ends = jnp.where(level == 1, jax.nn.log_sigmoid(upper), jax.nn.log_sigmoid(-lower))
        return jnp.where((level > 1) & (level < self.num_levels), between, ends)

    def level_probs(self, theta: Array, cut_points: Array) -> Array:
        """Probability of each level.

        Args:
            theta: shape (..., num_features).
            cut_points: rising in each row, shape (num_features, C - 1).

        Returns:
            Shape (..., num_features, C).
        """
        below = jax.nn.sigmoid(cut_points - theta[..., None])
        ends = jnp.zeros_like(below[..., :1]), jnp.ones_like(below[..., :1])
        return jnp.diff(jnp.concatenate([ends[0], below, ends[1]], axis=-1), axis=-1)

    def mean_and_variance(self, theta: Array, cut_points: Array) -> tuple[Array, Array]:
        """Mean and variance of the levels as numbers."""
        probs = self.level_probs(theta, cut_points)
        levels = jnp.arange(1, self.num_levels + 1)
        mean = probs @ levels
        return mean, probs @ levels**2 - mean**2

    def mean_information(self, theta: Array, cut_points: Array) -> Array:
        """Sum of p'(theta)^2 / p(theta) over the levels."""
        probs = self.level_probs(theta, cut_points)
        below = jax.nn.sigmoid(cut_points - theta[..., None])
        slopes = jnp.diff(jnp.pad(below * (1.0 - below), ((0, 0), (0, 0), (1, 1))), axis=-1)
        terms = jnp.where(probs > 0, slopes**2 / jnp.where(probs > 0, probs, 1.0), 0.0)
        return jnp.diag(jnp.mean(jnp.sum(terms, axis=-1), axis=0))

    def sample(self, key: Array, theta: Array, cut_points: Array, shape: tuple[int, ...]) -> Array:
        """Draws of levels."""
        probs = self.level_probs(theta, cut_points)
        drawn = jax.random.categorical(key, jnp.log(probs), shape=shape + probs.shape[:-1]) + 1
        return drawn.astype(theta.dtype)

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole, from 1 to C."""
        return (x >= 1) & (x <= self.num_levels) & (x == np.floor(x))
