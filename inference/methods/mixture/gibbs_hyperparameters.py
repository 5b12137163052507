r"""Conditionals of the component priors' hyperparameters, for the Gibbs samplers of mixtures.

Given the parameters :math:`\theta_k` of the components that have rows (M of them; D features) each
hyperparameter with a prior has a conditional of its own:

* :math:`m_0 \sim \mathrm{Normal}(a, P^{-1})`: with :math:`R = P + \beta_0 \sum_k \Lambda_k`, normal with
  precision R and mean :math:`R^{-1}(P a + \beta_0 \sum_k \Lambda_k \mu_k)`;
* :math:`\beta_0 \sim \mathrm{Gamma}(a, b)`:
  :math:`\mathrm{Gamma}(a + MD/2,\; b + \tfrac12 \sum_k (\mu_k - m_0)^\top \Lambda_k (\mu_k - m_0))`;
* :math:`W_0^{-1} \sim \mathrm{Wishart}(V, n)`, scale matrix V and n degrees of freedom:
  :math:`\mathrm{Wishart}((V^{-1} + \sum_k \Lambda_k)^{-1},\; n + M \nu_0)`; with one covariance for all
  components the sum has one term and M is 1;
* Gamma priors on the parameters of Dirichlet and beta priors: not conjugate, slice sampling
  (`inference.numerics.slice_sampling`), elementwise.

The thesis learns these numbers by a variational M-step (Yu 2006, section 2.2.4) and has no priors on them;
the conditionals follow from the densities of its Table 2.1.

Components without rows are integrated out: their parameters are draws from the prior that say nothing about
it, but the chain would move the slower the more of them there are. A sweep must therefore draw the parameters
of all components before it uses those of an empty one: these blocks come first in it
(`inference.methods.mixture.gibbs.blocks_of`). Where every component has rows they are conditionals of the
program. Cost: O(K D^2) a sweep.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from inference.numerics.slice_sampling import PositiveSlices
from zoo.conjugate.component_prior import ComponentPrior
from zoo.mixture import Mixture

__all__ = [
    "beta_concentration0",
    "beta_concentration1",
    "dirichlet_concentration",
    "expected_hyperparameters",
    "hyperparameter_blocks",
    "inverse_scale_matrix",
    "location",
    "mean_precision",
]


def hyperparameter_blocks(components: ComponentPrior) -> tuple[Callable, ...]:
    """One block for each hyperparameter that has a prior.

    Raises:
        ValueError: a hyperparameter has a prior that no conditional here is for.
    """
    missing = [name for name in components.hyperprior_sites() if name not in _BLOCKS]
    if missing:
        raise ValueError(f"the Gibbs sampler learns {', '.join(_BLOCKS)}; it has no update for {missing[0]}")
    return tuple(_BLOCKS[name] for name in components.hyperprior_sites())


def expected_hyperparameters(components: ComponentPrior) -> dict[str, Array]:
    """The prior mean of every hyperparameter that has a prior, by site: what a chain starts from."""
    return {site: jnp.asarray(getattr(components, name).mean) for name, site in _sites(components).items()}


# Gaussian families


def location(values: Mapping[str, Array], model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The prior location of the means; conjugate."""
    prior, strength = model.components.loc, _numbers(values, model).mean_precision
    precisions = strength * _precisions(values) * _has_rows(values, model)[:, None, None]
    precision = prior.precision_matrix + jnp.sum(precisions, axis=0)
    pull = prior.precision_matrix @ prior.loc + jnp.einsum("kij,kj->i", precisions, values["locs"])
    return {
        _sites(model.components)["loc"]: dist.MultivariateNormal(
            jnp.linalg.solve(precision, pull), precision_matrix=precision
        )
    }


def mean_precision(values: Mapping[str, Array], model: Mixture, x: Array) -> dict[str, dist.Distribution]:
    """The number of rows that the prior location is worth; conjugate."""
    prior, family, has_rows = (
        model.components.mean_precision,
        _numbers(values, model),
        _has_rows(values, model),
    )
    distance = values["locs"] - family.loc
    squares = jnp.einsum("ki,kij,kj->k", distance, _precisions(values), distance)
    return {
        _sites(model.components)["mean_precision"]: dist.Gamma(
            prior.concentration + 0.5 * distance.shape[-1] * jnp.sum(has_rows),
            prior.rate + 0.5 * jnp.sum(has_rows * squares),
        )
    }


def inverse_scale_matrix(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The inverse of the Wishart prior's scale matrix; conjugate."""
    prior, precisions = model.components.scale_matrix, _precisions(values)
    drawn = _has_rows(values, model) if "precisions" in values else jnp.ones(1, precisions.dtype)
    return {
        _sites(model.components)["scale_matrix"]: dist.Wishart(
            prior.concentration + jnp.sum(drawn) * model.components.degrees_of_freedom,
            rate_matrix=prior.rate_matrix + jnp.einsum("k,kij->ij", drawn, precisions),
        )
    }


def _precisions(values: Mapping[str, Array]) -> Array:
    """Precision of every component, shape (num_components, D, D); one that is shared has one entry."""
    return values["precisions"] if "precisions" in values else values["shared_precision"][None]


# Beta and Dirichlet families


def beta_concentration1(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The first parameter of each column's beta prior."""
    return _beta_parameter("concentration1", "concentration0", _log(values["probs"]), values, model)


def beta_concentration0(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The second parameter of each column's beta prior."""
    return _beta_parameter("concentration0", "concentration1", _log(1.0 - values["probs"]), values, model)


def dirichlet_concentration(
    values: Mapping[str, Array], model: Mixture, x: Array
) -> dict[str, dist.Distribution]:
    """The parameters of the Dirichlet prior, coupled through their sum."""
    prior, has_rows = model.components.concentration, _has_rows(values, model)
    count = jnp.sum(has_rows)
    site = _sites(model.components)["concentration"]

    def log_density(value: Array, logs: Array, shape: Array, rate: Array) -> Array:
        return (value - 1.0) * logs - count * gammaln(value) + dist.Gamma(shape, rate).log_prob(value)

    def log_density_of_sum(total: Array) -> Array:
        return count * gammaln(total)

    arguments = (has_rows @ _log(values["probs"]), *_gamma_parameters(prior, values[site]))
    return {site: PositiveSlices(log_density, values[site], arguments, log_density_of_sum)}


def _beta_parameter(
    own: str, other: str, logs: Array, values: Mapping[str, Array], model: Mixture
) -> dict[str, dist.Distribution]:
    prior, has_rows = getattr(model.components, own), _has_rows(values, model)
    count = jnp.sum(has_rows)
    site, rival = _sites(model.components)[own], getattr(_numbers(values, model), other)

    def log_density(value: Array, logs: Array, rival: Array, shape: Array, rate: Array) -> Array:
        normaliser = gammaln(value + rival) - gammaln(value)
        return (value - 1.0) * logs + count * normaliser + dist.Gamma(shape, rate).log_prob(value)

    arguments = (has_rows @ logs, jnp.asarray(rival), *_gamma_parameters(prior, values[site]))
    return {site: PositiveSlices(log_density, values[site], arguments)}


def _gamma_parameters(prior: dist.Gamma, like: Array) -> tuple[Array, Array]:
    return jnp.broadcast_to(prior.concentration, like.shape), jnp.broadcast_to(prior.rate, like.shape)


def _log(probs: Array) -> Array:
    """Log of probabilities of which some may have rounded to zero."""
    return jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny))


# Shared


def _sites(components: ComponentPrior) -> dict[str, str]:
    return components.hyperprior_sites()


def _numbers(values: Mapping[str, Array], model: Mixture) -> ComponentPrior:
    """The component prior with the current numbers in place of its hyperpriors."""
    return model.components.with_hyperparameters(values)


def _has_rows(values: Mapping[str, Array], model: Mixture) -> Array:
    """One for every component with rows, zero for the others, shape (num_components,), as floats."""
    counts = jnp.bincount(values["assignments"], length=model.num_components)
    return (counts > 0).astype(jnp.result_type(float))


_BLOCKS = {
    "loc": location,
    "mean_precision": mean_precision,
    "scale_matrix": inverse_scale_matrix,
    "concentration1": beta_concentration1,
    "concentration0": beta_concentration0,
    "concentration": dirichlet_concentration,
}
