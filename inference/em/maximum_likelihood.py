r"""Maximum likelihood of a component's parameters from weighted sufficient statistics, family by family.

Each is the maximiser of :math:`\sum_i r_{ik} \log p(x_i \mid \theta_k)` over the parameters that the guard
allows: variances (eigenvalues of covariances, in the metric where each column of the data has variance one)
of at least ``variance_floor``, probabilities at least ``PROBABILITY_FLOOR`` from 0 and 1, rates of at least
``PROBABILITY_FLOOR`` times that of all rows. The guarded maximiser is the exact constrained one, so that the
likelihood still never falls. Without a guard it has no maximum: a component on a single row sends it to
infinity.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo import conjugate
from zoo.component_prior import ComponentPrior

__all__ = ["PROBABILITY_FLOOR", "Estimate", "maximum_likelihood", "num_free_parameters"]

PROBABILITY_FLOOR = 1e-6


class Estimate(NamedTuple):
    """Parameters of all components.

    Attributes:
        parameters: site name to value.
        at_floor: number of components that a guard holds.
    """

    parameters: dict[str, Array]
    at_floor: Array


def maximum_likelihood(components: ComponentPrior, statistics: Array, variance_floor: Array) -> Estimate:
    """The parameters that the rows of each component make most likely.

    Args:
        components: the family; of its prior nothing is used but what is known (a covariance, a mean, a
            shape).
        statistics: weighted sums of its features, shape (num_components, num_statistics).
        variance_floor: smallest variance, relative to that of all rows.
    """
    return _ESTIMATES[type(components).__name__](components, statistics, variance_floor)


def num_free_parameters(components: ComponentPrior, num_components: int) -> int:
    """How many numbers are estimated for the components (weights not counted)."""
    d, k = components.num_features, num_components
    if isinstance(components, conjugate.Product):
        return sum(num_free_parameters(family, k) for family in components.families)
    return {
        "GaussianWishart": k * d + k * d * (d + 1) // 2,
        "SharedGaussianWishart": k * d + d * (d + 1) // 2,
        "GaussianKnownCovariance": k * d,
        "GaussianKnownMean": k * d * (d + 1) // 2,
        "NormalGamma": 2 * k * d,
        "SphericalNormalGamma": k * d + k,
        "MultinomialDirichlet": k * (d - 1),
    }.get(type(components).__name__, k * d)


# Gaussian families with full matrices


def _full(components: conjugate.GaussianWishart, statistics: Array, floor: Array) -> Estimate:
    count, locs, covariances = _means_and_covariances(components, statistics)
    covariances, at_floor = _floored(covariances, _total_variances(components, statistics), floor)
    return Estimate(
        {"precisions": jnp.linalg.inv(covariances), "locs": locs}, jnp.sum(at_floor & (count > 0))
    )


def _shared(components: conjugate.SharedGaussianWishart, statistics: Array, floor: Array) -> Estimate:
    count, locs, covariances = _means_and_covariances(components, statistics)
    pooled = jnp.einsum("k,kij->ij", count, covariances) / jnp.sum(count)
    pooled, at_floor = _floored(pooled, _total_variances(components, statistics), floor)
    return Estimate({"shared_precision": jnp.linalg.inv(pooled), "locs": locs}, at_floor.astype(int))


def _known_covariance(
    components: conjugate.GaussianKnownCovariance, statistics: Array, floor: Array
) -> Estimate:
    return Estimate({"locs": _means_and_covariances(components, statistics)[1]}, jnp.zeros((), int))


def _known_mean(components: conjugate.GaussianKnownMean, statistics: Array, floor: Array) -> Estimate:
    count, _, second = components._moments(statistics, jnp.asarray(components.loc))
    covariances = second / _at_least_one(count)[:, None, None]
    covariances, at_floor = _floored(covariances, _total_variances(components, statistics), floor)
    return Estimate({"precisions": jnp.linalg.inv(covariances)}, jnp.sum(at_floor & (count > 0)))


def _means_and_covariances(components: ComponentPrior, statistics: Array) -> tuple[Array, Array, Array]:
    count, first, second = components._moments(statistics, jnp.asarray(components.center))
    safe = _at_least_one(count)
    shift = first / safe[:, None]
    covariances = second / safe[:, None, None] - shift[:, :, None] * shift[:, None, :]
    return count, components.center + shift, covariances


def _total_variances(components: ComponentPrior, statistics: Array) -> Array:
    """Variance of each column over all rows."""
    _, _, covariance = _means_and_covariances(components, jnp.sum(statistics, axis=0, keepdims=True))
    return jnp.diagonal(covariance[0])


def _floored(covariances: Array, variances: Array, floor: Array) -> tuple[Array, Array]:
    """Eigenvalues raised to the floor in the metric of the column variances; which ones had to be."""
    scale = jnp.sqrt(variances)
    eigenvalues, vectors = jnp.linalg.eigh(covariances / (scale[:, None] * scale))
    raised = jnp.maximum(eigenvalues, floor)
    whitened = (vectors * raised[..., None, :]) @ jnp.swapaxes(vectors, -1, -2)
    at_floor = jnp.any(eigenvalues < floor, axis=-1)
    whole = jnp.where(at_floor[..., None, None], whitened * (scale[:, None] * scale), covariances)
    return whole, at_floor


# Families of independent cells


def _diagonal(components: conjugate.NormalGamma, statistics: Array, floor: Array) -> Estimate:
    count, locs, squares, variances = _cell_moments(components, statistics)
    at_least = floor * variances
    own = squares / _at_least_one(count)
    return Estimate(
        {"precisions": 1.0 / jnp.maximum(own, at_least), "locs": locs},
        jnp.sum(jnp.any((own < at_least) & (count > 0), axis=-1)),
    )


def _spherical(components: conjugate.SphericalNormalGamma, statistics: Array, floor: Array) -> Estimate:
    count, locs, squares, variances = _cell_moments(components, statistics)
    at_least = floor * jnp.mean(variances)
    cells = jnp.sum(count, axis=-1)
    own = jnp.sum(squares, axis=-1) / _at_least_one(cells)
    return Estimate(
        {"precisions": 1.0 / jnp.maximum(own, at_least), "locs": locs},
        jnp.sum((own < at_least) & (cells > 0)),
    )


def _cell_moments(components: conjugate.NormalGamma, statistics: Array) -> tuple[Array, Array, Array, Array]:
    """Cells, means and sums of squares about them by component; variance of each column over all rows."""

    def moments(sums: list[Array]) -> tuple[Array, Array, Array]:
        count, first, second = sums
        shift = first / _at_least_one(count)
        return count, shift, second - first * shift

    count, shift, squares = moments(components._sums(statistics))
    total, _, total_squares = moments(components._sums(jnp.sum(statistics, axis=0)))
    return count, components.center + shift, squares, total_squares / total


def _probabilities(components: conjugate.BernoulliBeta, statistics: Array, floor: Array) -> Estimate:
    count, ones = components._sums(statistics)
    trials = count * components.total_count if isinstance(components, conjugate.BinomialBeta) else count
    own = jnp.where(trials > 0, ones / _at_least_one(trials), 0.5)
    return _bounded("probs", own, PROBABILITY_FLOOR, 1 - PROBABILITY_FLOOR)


def _poisson(components: conjugate.PoissonGamma, statistics: Array, floor: Array) -> Estimate:
    count, events = components._sums(statistics)
    overall = jnp.sum(events, axis=0) / jnp.sum(count, axis=0)
    return _bounded("rates", events / _at_least_one(count), PROBABILITY_FLOOR * overall, jnp.inf)


def _waiting(components: conjugate.ExponentialGamma, statistics: Array, floor: Array) -> Estimate:
    count, total = components._sums(statistics)
    if isinstance(components, conjugate.GammaKnownShape):
        count = count * components.known_shape
    overall = jnp.sum(count, axis=0) / jnp.sum(total, axis=0)
    own = jnp.where(total > 0, count / jnp.where(total > 0, total, 1.0), overall)
    return _bounded("rates", own, PROBABILITY_FLOOR * overall, overall / PROBABILITY_FLOOR)


def _bounded(site: str, own: Array, lowest: Array | float, highest: Array | float) -> Estimate:
    outside = (own < lowest) | (own > highest)
    return Estimate({site: jnp.clip(own, lowest, highest)}, jnp.sum(jnp.any(outside, axis=-1)))


def _simplex(components: conjugate.MultinomialDirichlet, statistics: Array, floor: Array) -> Estimate:
    counts = statistics[:, 1:-1]
    d = components.num_features
    total = jnp.sum(counts, axis=-1, keepdims=True)
    own = jnp.where(total > 0, counts / _at_least_one(total), 1.0 / d)
    low = own < PROBABILITY_FLOOR / d  # words that a component never has keep a little of the mass
    free = jnp.sum(jnp.where(low, 0.0, own), axis=-1, keepdims=True)
    held = jnp.sum(low, axis=-1, keepdims=True) * PROBABILITY_FLOOR / d
    probs = jnp.where(low, PROBABILITY_FLOOR / d, own * (1 - held) / free)
    return Estimate({"probs": probs}, jnp.sum(jnp.any(low, axis=-1)))


def _product(components: conjugate.Product, statistics: Array, floor: Array) -> Estimate:
    parameters, at_floor = {}, jnp.zeros((), int)
    for number, (family, own) in enumerate(
        zip(components.families, components._split(statistics), strict=True)
    ):
        estimate = maximum_likelihood(family, own, floor)
        parameters |= {f"{name}_{number}": value for name, value in estimate.parameters.items()}
        at_floor = jnp.maximum(at_floor, estimate.at_floor)
    return Estimate(parameters, at_floor)


def _at_least_one(count: Array) -> Array:
    """A count to divide by: an empty component has sums of zero."""
    return jnp.where(count > 0, count, np.ones(()))


_ESTIMATES: dict[str, Callable[..., Estimate]] = {
    "GaussianWishart": _full,
    "SharedGaussianWishart": _shared,
    "GaussianKnownCovariance": _known_covariance,
    "GaussianKnownMean": _known_mean,
    "NormalGamma": _diagonal,
    "SphericalNormalGamma": _spherical,
    "BernoulliBeta": _probabilities,
    "BinomialBeta": _probabilities,
    "PoissonGamma": _poisson,
    "ExponentialGamma": _waiting,
    "GammaKnownShape": _waiting,
    "MultinomialDirichlet": _simplex,
    "Product": _product,
}
