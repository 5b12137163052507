r"""Learnt hyperparameters: the variational M-step of a mixture's priors.

Given q, each hyperparameter goes where the bound is highest. Means are over all K components, empty ones
included; :math:`P_k = E[\Lambda_k] = \nu_k W_k`.

.. math::
    m_0 &= (\textstyle\sum_k P_k)^{-1} \sum_k P_k m_k \\
    \beta_0 &= K D \,/\, \textstyle\sum_k \{D / \beta_k + (m_k - m_0)^\top P_k (m_k - m_0)\}
        \quad \text{with the new } m_0 \\
    W_0 &= \overline{P} / \nu_0, \qquad
    \textstyle\sum_l \psi\{(\nu_0 + 1 - l) / 2\} - D \log(\nu_0 / 2) + \log|\overline{P}|
        = \overline{E \log|\Lambda_k|} \quad \text{jointly} \\
    \psi(\xi_v) - \psi(\textstyle\sum \xi) &= \overline{E \log p_{kv}} \quad \text{(Dirichlet, beta)} \\
    \log a - \psi(a) &= \log \overline{E \lambda_k} - \overline{E \log \lambda_k}, \quad
    b = a / \overline{E \lambda_k} \quad \text{(gamma)} \\
    \alpha &= M / \textstyle\sum_j \{\psi(a_j + b_j) - \psi(b_j)\} \quad \text{(M random sticks)} \\
    \psi(\alpha / K) - \psi(\alpha) &= \overline{E \log \pi_k} \quad \text{(Dirichlet weights)}

Learning begins when VB with the given hyperparameters has settled (or after `LEARNING_AFTER` steps), or at
once from given responsibilities: the components of a random start are all alike, and beta0 and the
concentration would run off before they part.

With a Gamma prior on the concentration or on beta0 the M-step maximises the log posterior instead (MAP), and
the objective contains the log density of the prior. Equations in one unknown are solved by bisection of its
logarithm in a bracket, so that nothing can run off: clusters of equal size send the concentration up, a
single cluster sends it to zero, and beta0, nu0 and the discrete priors have such optima too. A hyperparameter
that ends at an end of its bracket is reported.

Reference: Yu (2006), sections 2.2.4 and 3.3.3. Corrections: (3.15) counts the last, fixed stick; the factor K
of (3.20) is M; nu0 and W0 are coupled and are solved together.
"""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma

from inference.variational.concentration import expected_log_left
from zoo.component_prior import ComponentPrior
from zoo.conjugate import (
    BernoulliBeta,
    ExponentialGamma,
    GaussianWishart,
    MultinomialDirichlet,
    PoissonGamma,
    SharedGaussianWishart,
)
from zoo.mixture import Mixture

__all__ = [
    "BRACKETS",
    "LEARNING_AFTER",
    "at_bound",
    "check_learn",
    "learn_components",
    "learn_concentration",
    "learnt_from",
    "learnt_model",
    "log_hyperprior",
    "starting_model",
    "starting_prior",
    "with_learnt",
]

BRACKETS = {  # degrees_of_freedom: above num_features - 1; scale_matrix: eigenvalues relative to the start
    "concentration": (1e-3, 1e4),
    "mean_precision": (1e-6, 1e4),
    "degrees_of_freedom": (1e-3, 1e4),
    "scale_matrix": (1e-6, 1e6),
    "concentration1": (1e-3, 1e4),
    "concentration0": (1e-3, 1e4),
    "shape": (1e-3, 1e4),
}
LEARNING_AFTER = 200  # steps, for runs that are not to settle
BISECTIONS = 48  # of the logarithm: to 1e-13 relative


# What is learnt of which model


def check_learn(model: Mixture, learn: Any) -> None:
    """Raise TypeError or ValueError unless ``learn`` names hyperparameters that can be learnt here."""
    if not isinstance(learn, tuple) or not all(isinstance(name, str) for name in learn):
        raise TypeError(f"learn must be a tuple of names of hyperparameters; got {learn!r}")
    allowed = ("concentration", *_learnable(model.components))
    for name in learn:
        if name not in allowed:
            raise ValueError(
                f"learn: {name!r} is not a hyperparameter that can be learnt of a mixture of "
                f"{type(model.components).__name__}; these are {', '.join(allowed)}"
            )
    if "concentration" in learn and model.num_components == 1:
        raise ValueError("learn: with one component the bound does not depend on the concentration")
    for name in model.components.hyperprior_sites():
        if name != "mean_precision" or name not in learn:
            raise ValueError(
                f"method 'vb' has no posterior of {name}, which has a prior: give a number"
                + (", or learn mean_precision (its mode)" if name == "mean_precision" else "")
            )


def _learnable(components: ComponentPrior) -> tuple[str, ...]:
    """Names of the family's hyperparameters that have an M-step, as `learn` calls them."""
    if isinstance(components, SharedGaussianWishart):
        return ("loc", "mean_precision", "scale_matrix")
    if isinstance(components, GaussianWishart):
        return ("loc", "mean_precision", "scale_matrix", "degrees_of_freedom")
    if isinstance(components, BernoulliBeta):
        return ("concentration1", "concentration0")
    if isinstance(components, ExponentialGamma | PoissonGamma):
        return ("shape", "rate")
    return ("components_concentration",) if isinstance(components, MultinomialDirichlet) else ()


def starting_model(model: Mixture, learn: tuple[str, ...]) -> Mixture:
    """The model that learning starts from: Gamma priors of what is learnt replaced by their means."""
    if "concentration" in learn:
        model = model.replaced(concentration=jnp.asarray(model.expected_concentration))
    prior = model.components
    numbers = {name: jnp.asarray(getattr(prior, name).mean) for name in prior.hyperprior_sites()}
    return model.replaced(components=prior.replaced(**numbers)) if numbers else model


def starting_prior(model: Mixture, learn: tuple[str, ...]) -> ComponentPrior | None:
    """The component prior that learning starts from; None if nothing of it is learnt."""
    if not set(learn) - {"concentration"}:
        return None
    return jax.tree.map(jnp.asarray, starting_model(model, learn).components)


def with_learnt(state: Any, model: Mixture) -> Mixture:
    """The model with the hyperparameters that a state has learnt so far."""
    if state.prior is not None:
        model = model.replaced(components=state.prior)
    if model.has_random_concentration and not isinstance(state.concentration, dist.Distribution):
        return model.replaced(concentration=state.concentration)
    return model


def log_hyperprior(state: Any, model: Mixture) -> Array:
    """Log density of the learnt hyperparameters under their Gamma priors, where they have one; nats."""
    total = jnp.zeros(())
    if model.has_random_concentration and not isinstance(state.concentration, dist.Distribution):
        total += model.concentration.log_prob(state.concentration)
    for name in model.components.hyperprior_sites():
        total += jnp.sum(getattr(model.components, name).log_prob(getattr(state.prior, name)))
    return total


def learnt_model(state: Any, model: Mixture) -> Mixture:
    """The model with what was learnt, as a person would write it: float64 NumPy fields."""
    current = with_learnt(state, model)
    if not isinstance(state.concentration, dist.Distribution):
        current = current.replaced(concentration=state.concentration)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), current)


def learnt_from(model: Mixture, learn: tuple[str, ...]) -> str:
    """JSON of the values that the learnt hyperparameters had in the model that was given."""
    values = {}
    for name in learn:
        owner = model if name == "concentration" else model.components
        value = getattr(owner, name.removeprefix("components_"))
        if isinstance(value, dist.Gamma):
            gamma = {"concentration": value.concentration, "rate": value.rate}
            values[name] = {"type": "Gamma"} | {key: np.asarray(v).tolist() for key, v in gamma.items()}
        else:
            values[name] = np.asarray(value).tolist()
    return json.dumps(values)


def at_bound(state: Any, model: Mixture, learn: tuple[str, ...]) -> list[str]:
    """Which learnt hyperparameters ended at an end of their bracket."""
    found = []
    for name in learn:
        field = name.removeprefix("components_")
        if field not in BRACKETS:
            continue
        value = state.concentration if name == "concentration" else getattr(state.prior, field)
        if name == "degrees_of_freedom":
            value = value - (model.components.num_features - 1)
        if name == "scale_matrix":
            value = _relative_eigenvalues(value, jnp.asarray(model.components.scale_matrix))[0]
        low, high = BRACKETS[field]
        value = np.asarray(value)
        if np.any(value <= low * (1 + 1e-5)) or np.any(value >= high * (1 - 1e-5)):
            found.append(name)
    return found


# Equations in one unknown


def _root(falling: Callable, low: Array, high: Array) -> Array:
    """Where a falling function of a positive number is zero, or the end of the bracket nearest to that."""

    def halve(_: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        below, above = bracket
        middle = 0.5 * (below + above)
        is_left = falling(jnp.exp(middle)) > 0
        return jnp.where(is_left, middle, below), jnp.where(is_left, above, middle)

    bracket = jnp.log(low), jnp.log(high)
    below, above = jax.lax.fori_loop(0, BISECTIONS, halve, bracket)
    return jnp.exp(0.5 * (below + above))


def _bracket(name: str, like: Array) -> tuple[Array, Array]:
    low, high = BRACKETS[name]
    return jnp.full_like(like, low), jnp.full_like(like, high)


# The concentration


def learn_concentration(weights: dist.Distribution, model: Mixture) -> Array:
    """The best concentration given q of the weights; its mode under a Gamma prior, if it has one."""
    shape, rate = 1.0, 0.0
    if model.has_random_concentration:
        shape, rate = model.concentration.concentration, model.concentration.rate
    if isinstance(weights, dist.Beta):
        left = expected_log_left(weights)
        value = (left.shape[-1] + shape - 1.0) / (rate - jnp.sum(left))
        return jnp.clip(value, *BRACKETS["concentration"])
    num_components = model.num_components
    average = jnp.mean(model.weights.expected_log_weights(weights))

    def slope(alpha: Array) -> Array:  # of the bound, times alpha, which keeps it finite at small alpha
        return alpha * (digamma(alpha) - digamma(alpha / num_components) + average - rate) + (shape - 1.0)

    return _root(slope, *_bracket("concentration", average))


# The component families


def learn_components(
    prior: ComponentPrior, posterior: ComponentPrior, model: Mixture, learn: tuple[str, ...]
) -> ComponentPrior:
    """The component prior with its learnt fields moved to their best, given q of the components.

    Args:
        prior: as learnt so far.
        posterior: q of the components.
        model: as it was given: hyperpriors, and the scale that brackets refer to.
        learn: names.
    """
    if isinstance(prior, GaussianWishart):
        return _learn_gaussian_wishart(prior, posterior, model.components, learn)
    if isinstance(prior, BernoulliBeta):
        return _learn_beta(prior, posterior, learn)
    if isinstance(prior, MultinomialDirichlet):
        average = _expected_log_probs(posterior.concentration)
        return prior.replaced(concentration=_best_dirichlet(jnp.mean(average, axis=0)))
    return _learn_gamma(prior, posterior, learn)


def _learn_gaussian_wishart(
    prior: GaussianWishart, q: GaussianWishart, given: GaussianWishart, learn: tuple[str, ...]
) -> GaussianWishart:
    d, num_components = prior.num_features, q.loc.shape[0]
    precision = jnp.asarray(q.degrees_of_freedom)[..., None, None] * q.scale_matrix
    precision = jnp.broadcast_to(precision, (num_components, d, d))
    fields: dict[str, Array] = {}
    loc = prior.loc
    if "loc" in learn:
        pull = jnp.einsum("kij,kj->i", precision, q.loc - prior.center)
        loc = prior.center + jnp.linalg.solve(jnp.sum(precision, axis=0), pull)
        fields["loc"] = loc
    if "mean_precision" in learn:
        gap = q.loc - loc
        spread = jnp.sum(d / q.mean_precision) + jnp.einsum("ki,kij,kj->", gap, precision, gap)
        shape, rate = 1.0, 0.0
        if given.is_random("mean_precision"):
            shape, rate = given.mean_precision.concentration, given.mean_precision.rate
        best = (0.5 * num_components * d + shape - 1.0) / (0.5 * spread + rate)
        fields["mean_precision"] = jnp.clip(best, *BRACKETS["mean_precision"])
    average = jnp.mean(precision, axis=0)
    index = jnp.arange(d)
    half = 0.5 * (jnp.asarray(q.degrees_of_freedom)[..., None] - index)
    log_det = jnp.mean(
        jnp.sum(digamma(half), axis=-1) + d * jnp.log(2.0) + jnp.linalg.slogdet(q.scale_matrix)[1]
    )
    if "degrees_of_freedom" in learn:
        joint = "scale_matrix" in learn
        log_scale = jnp.linalg.slogdet(average if joint else jnp.asarray(prior.scale_matrix))[1]

        def slope(excess: Array) -> Array:
            nu = excess + (d - 1)
            scale = log_scale - d * jnp.log(nu) if joint else log_scale  # W0 = average / nu, its best
            return log_det - scale - d * jnp.log(2.0) - jnp.sum(digamma(0.5 * (nu - index)))

        fields["degrees_of_freedom"] = d - 1 + _root(slope, *_bracket("degrees_of_freedom", log_det))
    if "scale_matrix" in learn:
        best = average / fields.get("degrees_of_freedom", prior.degrees_of_freedom)
        fields["scale_matrix"] = _within_scale(best, jnp.asarray(given.scale_matrix))
    return prior.replaced(**fields)


def _relative_eigenvalues(matrix: Array, reference: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues and vectors of a matrix in coordinates where the reference is the identity."""
    factor = jnp.linalg.cholesky(reference)
    half = jax.scipy.linalg.solve_triangular(factor, matrix, lower=True)
    whitened = jax.scipy.linalg.solve_triangular(factor, half.T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (whitened + whitened.T))
    return values, factor @ vectors, factor


def _within_scale(matrix: Array, reference: Array) -> Array:
    """The matrix, with eigenvalues relative to the reference brought into their bracket."""
    low, high = BRACKETS["scale_matrix"]
    values, vectors, _ = _relative_eigenvalues(matrix, reference)
    clipped = (vectors * jnp.clip(values, low, high)) @ vectors.T
    inside = (values[0] >= low) & (values[-1] <= high)
    return jnp.where(inside, 0.5 * (matrix + matrix.T), 0.5 * (clipped + clipped.T))


def _expected_log_probs(concentration: Array) -> Array:
    """E[log p] of Dirichlets over the last axis."""
    return digamma(concentration) - digamma(jnp.sum(concentration, axis=-1, keepdims=True))


def _best_dirichlet(average: Array) -> Array:
    """The Dirichlet with given expectations of the logarithms, over the last axis.

    A search for the total s with sum of psi^-1(psi(s) + average) equal to s.
    """
    total = average[..., 0]
    low, high = BRACKETS["concentration"]
    size = average.shape[-1]

    def parts(total: Array) -> Array:
        target = digamma(total)[..., None] + average
        return _root(lambda value: target - digamma(value), *_bracket("concentration", target))

    def excess(total: Array) -> Array:
        return jnp.sum(parts(total), axis=-1) - total

    return parts(_root(excess, jnp.full_like(total, low * size), jnp.full_like(total, high)))


def _learn_beta(prior: BernoulliBeta, q: BernoulliBeta, learn: tuple[str, ...]) -> BernoulliBeta:
    both = jnp.stack([q.concentration1, q.concentration0], axis=-1)
    average = jnp.mean(_expected_log_probs(both), axis=0)
    if "concentration1" in learn and "concentration0" in learn:
        best = _best_dirichlet(average)
        return prior.replaced(concentration1=best[:, 0], concentration0=best[:, 1])
    name, other, column = (
        ("concentration1", "concentration0", 0)
        if "concentration1" in learn
        else ("concentration0", "concentration1", 1)
    )
    held, target = jnp.asarray(getattr(prior, other)), average[:, column]
    value = _root(lambda value: target - digamma(value) + digamma(value + held), *_bracket(name, target))
    return prior.replaced(**{name: value})


def _learn_gamma(prior: PoissonGamma, q: PoissonGamma, learn: tuple[str, ...]) -> PoissonGamma:
    mean = jnp.mean(q.shape / q.rate, axis=0)
    log_mean = jnp.mean(digamma(q.shape) - jnp.log(q.rate), axis=0)
    shape = jnp.asarray(prior.shape)
    if "shape" in learn:
        if "rate" in learn:
            target = jnp.log(mean) - log_mean
            shape = _root(lambda a: jnp.log(a) - digamma(a) - target, *_bracket("shape", target))
        else:
            target = jnp.log(jnp.asarray(prior.rate)) + log_mean
            shape = _root(lambda a: target - digamma(a), *_bracket("shape", target))
    return prior.replaced(shape=shape, rate=shape / mean if "rate" in learn else prior.rate)
