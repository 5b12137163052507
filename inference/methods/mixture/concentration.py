r"""The factor q(alpha) of the concentration of a mixture.

Stick-breaking weights: conjugate, :math:`q(\alpha) = \mathrm{Gamma}(a + M, b - \sum_j E[\log(1 - V_j)])`
over the M random sticks. Dirichlet weights: not conjugate; q is a log-normal whose two parameters climb the
bound by Newton steps, with
:math:`E[\log \Gamma(\alpha) - K \log \Gamma(\alpha/K)]` by Gauss-Hermite quadrature, exact to rounding at 64
nodes.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from zoo.mixture import Mixture

__all__ = [
    "concentration_terms",
    "expected_log",
    "expected_log_dirichlet_constant",
    "expected_log_left",
    "initial_concentration",
    "mean_of",
    "parameter_names",
    "stored_concentration",
    "update_concentration",
    "variables",
]

NEWTON_STEPS = 3


def initial_concentration(model: Mixture) -> dist.Distribution | Array:
    """q(alpha) before anything is known: the prior, or the log-normal with its mean and variance."""
    if not model.has_random_concentration:
        return jnp.asarray(model.concentration)
    prior = model.concentration
    if model.weights.has_sticks:
        return dist.Gamma(jnp.asarray(prior.concentration), jnp.asarray(prior.rate))
    variance = jnp.log1p(1.0 / prior.concentration)
    return dist.LogNormal(jnp.log(prior.mean) - variance / 2, jnp.sqrt(variance))


def update_concentration(
    q: dist.Distribution | Array, weights: dist.Distribution, model: Mixture
) -> dist.Distribution | Array:
    """q(alpha) given q of the weights; fixed concentrations stay."""
    if not model.has_random_concentration:
        return q
    prior = model.concentration
    expected_log_weights = model.weights.expected_log_weights(weights)
    if model.weights.has_sticks:  # conjugate
        left = expected_log_left(weights)
        return dist.Gamma(prior.concentration + left.shape[0], prior.rate - jnp.sum(left))
    return _climb_log_normal(q, prior, model.weights.num_components, jnp.sum(expected_log_weights))


def expected_log_left(weights: dist.Beta) -> Array:
    """E[log(1 - V_j)]."""
    digamma = jax.scipy.special.digamma
    return digamma(weights.concentration0) - digamma(weights.concentration1 + weights.concentration0)


def _climb_log_normal(
    q: dist.LogNormal, prior: dist.Gamma, num_components: int, sum_log_weights: Array
) -> dist.LogNormal:
    """A few Newton steps on the bound in (loc, log scale), halved until it rises, else not taken."""

    def objective(parameters: Array) -> Array:
        candidate = dist.LogNormal(parameters[0], jnp.exp(parameters[1]))
        dirichlet = (
            expected_log_dirichlet_constant(candidate, num_components)
            + candidate.mean / num_components * sum_log_weights
        )
        return dirichlet + concentration_terms(candidate, prior)

    def newton(parameters: Array, _: None) -> tuple[Array, None]:
        slope, curvature = jax.grad(objective)(parameters), jax.hessian(objective)(parameters)
        eigenvalues, vectors = jnp.linalg.eigh(curvature)
        steepness = jnp.maximum(jnp.abs(eigenvalues), 1e-6)  # uphill whatever the curvature's sign
        direction = vectors @ ((vectors.T @ slope) / steepness)
        lengths = 0.5 ** jnp.arange(12)
        candidates = parameters + lengths[:, None] * jnp.clip(direction, -2.0, 2.0)
        candidates = jnp.concatenate([candidates, parameters[None]])
        values = jax.vmap(objective)(candidates)
        return candidates[jnp.nanargmax(values)], None

    start = jnp.stack([q.loc, jnp.log(q.scale)])
    loc, log_scale = jax.lax.scan(newton, start, None, length=NEWTON_STEPS)[0]
    return dist.LogNormal(loc, jnp.exp(log_scale))


def expected_log_dirichlet_constant(q: dist.Distribution | Array, num_components: int) -> Array:
    """E[log Gamma(alpha) - K log Gamma(alpha / K)]."""

    def constant(alpha: Array) -> Array:
        return gammaln(alpha) - num_components * gammaln(alpha / num_components)

    if not isinstance(q, dist.LogNormal):
        return constant(q)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(64)
    alphas = jnp.exp(q.loc + q.scale * nodes)
    return constant(alphas) @ (node_weights / np.sqrt(2 * np.pi))


def concentration_terms(q: dist.Distribution, prior: dist.Gamma) -> Array:
    """E[log p(alpha)] - E[log q(alpha)] for a Gamma prior."""
    a, b = prior.concentration, prior.rate
    return a * jnp.log(b) - gammaln(a) + (a - 1) * expected_log(q) - b * q.mean + q.entropy()


def expected_log(q: dist.Distribution) -> Array:
    """E[log alpha]."""
    if isinstance(q, dist.LogNormal):
        return q.loc
    return jax.scipy.special.digamma(q.concentration) - jnp.log(q.rate)


def mean_of(q: dist.Distribution | Array) -> Array:
    """E[alpha], or alpha where it is fixed."""
    return q.mean if isinstance(q, dist.Distribution) else q


_PARAMETERS = {
    "concentration_shape": "concentration",
    "concentration_rate": "rate",
    "concentration_loc": "loc",
    "concentration_scale": "scale",
}


def parameter_names(q: dist.Distribution) -> tuple[str, str]:
    """What the two parameters of q(alpha) are called in a fit."""
    if isinstance(q, dist.LogNormal):
        return ("concentration_loc", "concentration_scale")
    return ("concentration_shape", "concentration_rate")


def stored_concentration(stored: Mapping[str, Array], like: dist.Distribution) -> dist.Distribution:
    """q(alpha) back from what `variables` stored."""
    return type(like)(*[jnp.asarray(stored[name]) for name in parameter_names(like)])


def variables(q: dist.Distribution) -> dict[str, Array]:
    """The parameters of q(alpha) as they are stored in a fit."""
    return {name: getattr(q, _PARAMETERS[name]) for name in parameter_names(q)}
