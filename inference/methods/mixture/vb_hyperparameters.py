r"""The variational M-step of the hyperparameters of a mixture, and its factor q(alpha).

Given q, each hyperparameter goes where the bound is highest. Means are over all K components, empty ones
included; :math:`P_k = E[\Lambda_k] = \nu_k W_k`.

.. math::
    m_0 &= (\textstyle\sum_k P_k)^{-1} \sum_k P_k m_k \\
    \beta_0 &= K D \,/\, \textstyle\sum_k \{D / \beta_k + (m_k - m_0)^\top P_k (m_k - m_0)\}
        \quad \text{with the new } m_0 \\
    W_0 &= \overline{P} / \nu_0, \qquad
    \textstyle\sum_l \psi\{(\nu_0 + 1 - l) / 2\} - D \log(\nu_0 / 2) + \log|\overline{P}|
        = \overline{E \log|\Lambda_k|} \quad \text{jointly} \\
    m_{0j} &= \textstyle\sum_k E[\tau_{kj}] m_{kj} \,/\, \sum_k E[\tau_{kj}], \quad
    \beta_{0j} = K \,/\, \textstyle\sum_k \{1 / \beta_{kj} + E[\tau_{kj}] (m_{kj} - m_{0j})^2\}
        \quad \text{(normal-gamma, by column)} \\
    \psi(\xi_v) - \psi(\textstyle\sum \xi) &= \overline{E \log p_{kv}} \quad \text{(Dirichlet, beta)} \\
    \log a - \psi(a) &= \log \overline{E \lambda_k} - \overline{E \log \lambda_k}, \quad
    b = a / \overline{E \lambda_k} \quad \text{(gamma; rates, and } \tau_{kj}) \\
    \alpha &= M / \textstyle\sum_j \{\psi(a_j + b_j) - \psi(b_j)\} \quad \text{(M random sticks)} \\
    \psi(\alpha / K) - \psi(\alpha) &= \overline{E \log \pi_k} \quad \text{(Dirichlet weights)}

Learning begins when VB with the given hyperparameters has settled (or after `LEARNING_AFTER` steps), or at
once from given responsibilities: the components of a random start are nearly equal, and beta0 and the
concentration would run off before they part.

With a known covariance :math:`P_k` is its inverse; groups of columns have each the M-step of their family.

With a Gamma prior on the concentration or on beta0 the M-step maximises the log posterior instead (MAP), and
the objective contains the log density of the prior. Equations in one unknown are solved by bisection of its
logarithm in a bracket, so that nothing can run off: clusters of equal size send the concentration up, a
single cluster sends it to zero, and beta0, nu0 and the discrete priors have such optima too. A hyperparameter
that ends at an end of its bracket is reported.

Reference: Yu (2006), sections 2.2.4 and 3.3.3. Corrections: (3.15) counts the last, fixed stick; the factor K
of (3.20) is M; nu0 and W0 are coupled and are solved together.

**q(alpha)**. Stick-breaking weights: conjugate, :math:`q(\alpha) =
\mathrm{Gamma}(a + M, b - \sum_j E[\log(1 - V_j)])` over the M random sticks. Dirichlet weights: not
conjugate; q is a log-normal whose two parameters climb the bound by Newton steps, with :math:`E[\log
\Gamma(\alpha) - K \log \Gamma(\alpha/K)]` by Gauss-Hermite quadrature, exact to rounding at 64 nodes.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.conjugate.component_prior import BRACKETS, ComponentPrior, bracket, relative_eigenvalues, root
from zoo.dirichlet_process import BetaDecay
from zoo.gamma_functions import digamma, gammaln
from zoo.mixture import Mixture
from zoo.shapes import Values

LEARNING_AFTER = 200  # steps, for runs that are not to settle


# Learnt hyperparameters by model


def check_learn(model: Mixture, learn: tuple[str, ...]) -> None:
    """Raise ValueError unless ``learn`` names hyperparameters that can be learnt here."""
    allowed = ("concentration", *learnable(model.components))
    for name in learn:
        if name not in allowed:
            raise ValueError(
                f"learn: {name!r} is not a hyperparameter that can be learnt of a mixture of "
                f"{type(model.components).__name__}; these are {', '.join(allowed)}"
            )
    if "concentration" in learn and model.num_components == 1:
        raise ValueError("learn: with one component the bound does not depend on the concentration")
    for name in model.components.hyperprior_sites():
        has_mode = model.components.owner_of(name)[1] == "mean_precision"
        if not has_mode or name not in learn:
            raise ValueError(
                f"method 'vb' has no posterior of {name}, which has a prior: give a number"
                + (f", or learn {name} (its mode)" if has_mode else "")
            )


def learnable(components: ComponentPrior) -> tuple[str, ...]:
    """Names of the component prior's hyperparameters that have an M-step, as `learn` calls them."""
    return tuple(f"components_{n}" if n == "concentration" else n for n in components.learnable)


def starting_model(model: Mixture, learn: tuple[str, ...]) -> Mixture:
    """The model that learning starts from: learnt hyperparameters with Gamma priors have their means."""
    if "concentration" in learn:
        model = model.replaced(concentration=jnp.asarray(model.expected_concentration))
    prior = model.components
    numbers = {name: jnp.asarray(prior.hyperparameter(name).mean) for name in prior.hyperprior_sites()}
    return model.replaced(components=prior.with_hyperparameter_values(numbers)) if numbers else model


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
        value = state.prior.hyperparameter(name)
        total += jnp.sum(model.components.hyperparameter(name).log_prob(value))
    return total


def learnt_model(state: Any, model: Mixture) -> Mixture:
    """The model with its learnt hyperparameters, as float64 NumPy fields."""
    current = with_learnt(state, model)
    if not isinstance(state.concentration, dist.Distribution):
        current = current.replaced(concentration=state.concentration)
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), current)


def learnt_from(model: Mixture, learn: tuple[str, ...]) -> str:
    """JSON of the values that the learnt hyperparameters had in the model that was given."""
    values = {}
    for name in learn:
        value = model.concentration if name == "concentration" else _hyperparameter(model.components, name)
        if isinstance(value, dist.Gamma):
            gamma = {"concentration": value.concentration, "rate": value.rate}
            values[name] = {"type": "Gamma"} | {key: np.asarray(v).tolist() for key, v in gamma.items()}
        else:
            values[name] = np.asarray(value).tolist()
    return json.dumps(values)


def _hyperparameter(components: ComponentPrior, name: str) -> Any:
    """The value of a hyperparameter that `learn` names."""
    return components.hyperparameter(name.removeprefix("components_"))


def at_bound(state: Any, model: Mixture, learn: tuple[str, ...]) -> list[str]:
    """Names of the learnt hyperparameters that ended at an end of their bracket."""
    found = []
    for name in learn:
        if name == "concentration":
            field, value = name, state.concentration
        else:
            owner, field = model.components.owner_of(name.removeprefix("components_"))
            value = _hyperparameter(state.prior, name)
            if field == "degrees_of_freedom":
                value = value - (owner.num_features - 1)
            if field == "scale_matrix":
                value = relative_eigenvalues(value, jnp.asarray(getattr(owner, field)))[0]
        if field not in BRACKETS:
            continue
        low, high = BRACKETS[field]
        value = np.asarray(value)
        if np.any(value <= low * (1 + 1e-5)) or np.any(value >= high * (1 - 1e-5)):
            found.append(name)
    return found


# The concentration


def learn_concentration(weights: dist.Distribution, model: Mixture) -> Array:
    """The best concentration given q of the weights; its mode under a Gamma prior, if it has one."""
    shape, rate = 1.0, 0.0
    if model.has_random_concentration:
        shape, rate = model.concentration.concentration, model.concentration.rate
    if model.weights.has_sticks:
        left = expected_log_left(weights)
        value = (left.shape[-1] + shape - 1.0) / (rate - jnp.sum(left))
        return jnp.clip(value, *BRACKETS["concentration"])
    num_components = model.num_components
    average = jnp.mean(model.weights.expected_log_weights(weights))

    def slope(alpha: Array) -> Array:  # of the bound, times alpha, which keeps it finite at small alpha
        return alpha * (digamma(alpha) - digamma(alpha / num_components) + average - rate) + (shape - 1.0)

    return root(slope, *bracket("concentration", average))


NEWTON_STEPS = 3


def initial_concentration(model: Mixture) -> dist.Distribution | Array:
    """Initial q(alpha): the prior, or the log-normal with its mean and variance."""
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
    if model.weights.has_sticks:  # conjugate
        left = expected_log_left(weights)
        return dist.Gamma(prior.concentration + model.weights.num_sticks, prior.rate - jnp.sum(left))
    total = model.weights.sum_of_expected_logs(weights)
    return _climb_log_normal(q, prior, model.weights.num_components, total)


def expected_log_left(weights: BetaDecay) -> Array:
    """E[log(1 - V_j)]."""
    return digamma(weights.concentration0) - digamma(weights.concentration1 + weights.concentration0)


def _climb_log_normal(
    q: dist.LogNormal, prior: dist.Gamma, num_components: int, sum_log_weights: Array
) -> dist.LogNormal:
    """A few Newton steps on the bound in (loc, log scale), halved until it rises, else not taken."""

    def objective(parameters: Array) -> Array:
        candidate = dist.LogNormal(parameters[0], jnp.exp(parameters[1]))
        constant = expected_log_dirichlet_constant(candidate, num_components)
        dirichlet = constant + candidate.mean / num_components * sum_log_weights
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
    return digamma(q.concentration) - jnp.log(q.rate)


def mean_of(q: dist.Distribution | Array) -> Array:
    """E[alpha], or alpha where it is fixed."""
    return q.mean if isinstance(q, dist.Distribution) else q


def parameter_names(q: dist.Distribution) -> tuple[str, str]:
    """Names of the two parameters of q(alpha) in a fit."""
    if isinstance(q, dist.LogNormal):
        return ("concentration_loc", "concentration_scale")
    return ("concentration_shape", "concentration_rate")


def stored_concentration(stored: Values, like: dist.Distribution) -> dist.Distribution:
    """q(alpha) from the variables that `concentration_variables` stored."""
    return type(like)(*[jnp.asarray(stored[name]) for name in parameter_names(like)])


def concentration_variables(q: dist.Distribution) -> dict[str, Array]:
    """The parameters of q(alpha) by their names in a fit."""
    values = (q.loc, q.scale) if isinstance(q, dist.LogNormal) else (q.concentration, q.rate)
    return dict(zip(parameter_names(q), values, strict=True))
