r"""Variational Bayes for exponential-family PCA: Gaussian, Bernoulli, binomial and Poisson cells.

Factors, updates and bound are those of `inference.variational.epca_factors`. The objective is the whole bound
on the log evidence, of an unnormalised prior with its factor as it stands in the program; of logistic cells
the bound with Polya-Gamma variables, a little lower than the ELBO of the normal factors alone, which `guide`
gives. A step costs O(N D K^2), of Poisson cells some ten times O(N D K^3).

Exponential, gamma and negative binomial cells need theta < 0, which no normal q gives: they have no bound.

References: Jaakkola and Jordan (2000), "Bayesian parameter estimation via variational methods"; Polson,
Scott and Windle (2013); Virtanen (2010) for the model.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Method, Outcome
from inference.results import row_limit
from inference.variational.epca_factors import EPCAPosterior, bound, noise_is_unknown, update
from zoo.epca import EPCA
from zoo.exponential_family import Bernoulli, Binomial, Gaussian, Poisson
from zoo.model import in_current_precision

__all__ = ["ALGORITHM", "METHOD", "EPCAVBInfo", "guide", "init", "step"]

START_VARIANCE = 0.05
DIMS = {
    "loadings_mean": ("feature", "latent"),
    "loadings_covariance": ("feature", "latent", "latent_2"),
    "loadings_loc_covariance": ("feature", "latent"),
    "loc_mean": ("feature",),
    "loc_variance": ("feature",),
    "latents_mean": ("observation", "latent"),
    "latents_covariance": ("observation", "latent", "latent_2"),
    "noise_variance_concentration": (),
    "noise_variance_rate": (),
    "loading_precision_concentration": ("latent",),
    "loading_precision_rate": ("latent",),
}


class EPCAVBInfo(NamedTuple):
    """What is recorded of a step.

    Attributes:
        objective: the bound, in nats.
    """

    objective: Array


def init(key: Array, model: EPCA, x: Array) -> EPCAPosterior:
    """Narrow factors about the model's starting point."""
    return _about(model.starting_point(key, x), model, x)


def _about(values: Mapping[str, Array], model: EPCA, x: Array) -> EPCAPosterior:
    k, (num_rows, num_columns) = model.num_latents, x.shape
    columns = jnp.concatenate([values["loadings"], values["loc"][:, None]], axis=1)
    noise = jnp.asarray(values.get("noise_variance", 1.0), columns.dtype)
    concentration = 1.0 + jnp.sum(~jnp.isnan(x)) / 2
    return EPCAPosterior(
        latents=jnp.asarray(values["latents"], columns.dtype),
        latents_covariance=jnp.tile(START_VARIANCE * jnp.eye(k), (num_rows, 1, 1)),
        columns=columns,
        columns_covariance=jnp.tile(START_VARIANCE * jnp.eye(k + 1), (num_columns, 1, 1)),
        noise=jnp.stack([concentration, concentration * noise]),
        relevance=jnp.ones((2, k)),
    )


def start(key: Array, variables: Mapping[str, Array], model: EPCA, x: Array, **options: Any) -> EPCAPosterior:
    """A former q, or narrow factors about given sites; those that are not given as in a fresh start."""
    if "loadings_mean" in variables and "latents_covariance" in variables:
        return _from_stored(variables, model)
    values = model.starting_point(key, x) | {name: jnp.asarray(value) for name, value in variables.items()}
    return _about(values, model, x)


def step(key: Array, state: EPCAPosterior, model: EPCA, x: Array) -> tuple[EPCAPosterior, EPCAVBInfo]:
    """Every factor once; deterministic, the key is ignored."""
    state = update(state, model, x)
    return state, EPCAVBInfo(bound(state, model, x))


ALGORITHM = Algorithm(init, step)


@cache
def build(init: str) -> Algorithm:
    """The algorithm."""
    return ALGORITHM


def check(model: EPCA) -> None:
    """Raise ValueError if there is no closed bound for the family."""
    if isinstance(model.family, Gaussian | Bernoulli | Binomial | Poisson):
        return
    name = type(model.family).__name__
    if model.family.theta_is_negative:
        raise ValueError(
            f"vb has no bound for {name} cells: their natural parameters are negative, and a normal q puts "
            f"mass where the density is zero, so the bound is minus infinity; use nuts or map"
        )
    raise ValueError(f"vb has no closed bound for {name} cells; use nuts or svi")


# The posterior in a fit


def _stored(state: EPCAPosterior, model: EPCA) -> dict[str, Array]:
    k, covariance = model.num_latents, state.columns_covariance
    stored = {
        "loadings_mean": state.columns[:, :k],
        "loadings_covariance": covariance[:, :k, :k],
        "loadings_loc_covariance": covariance[:, :k, k],
        "loc_mean": state.columns[:, k],
        "loc_variance": covariance[:, k, k],
        "latents_mean": state.latents,
        "latents_covariance": state.latents_covariance,
    }
    if noise_is_unknown(model):
        stored |= {"noise_variance_concentration": state.noise[0], "noise_variance_rate": state.noise[1]}
    if model.ard:
        names = ("loading_precision_concentration", "loading_precision_rate")
        stored |= dict(zip(names, state.relevance, strict=True))
    return stored


def _from_stored(stored: Mapping[str, Array], model: EPCA) -> EPCAPosterior:
    cross = stored["loadings_loc_covariance"][:, :, None]
    top = jnp.concatenate([stored["loadings_covariance"], cross], axis=2)
    last = jnp.concatenate([jnp.swapaxes(cross, 1, 2), stored["loc_variance"][:, None, None]], axis=2)
    ones = jnp.ones(model.num_latents)
    noise = [stored.get(f"noise_variance_{name}", jnp.ones(())) for name in ("concentration", "rate")]
    relevance = [stored.get(f"loading_precision_{name}", ones) for name in ("concentration", "rate")]
    return EPCAPosterior(
        latents=stored["latents_mean"],
        latents_covariance=stored["latents_covariance"],
        columns=jnp.concatenate([stored["loadings_mean"], stored["loc_mean"][:, None]], axis=1),
        columns_covariance=jnp.concatenate([top, last], axis=1),
        noise=jnp.stack(noise),
        relevance=jnp.stack(relevance),
    )


def guide(
    stored: Mapping[str, Array],
    model: EPCA,
    x: Array | None = None,
    *,
    num_observations: int | None = None,
) -> None:
    """Q as a NumPyro program with exactly the sites of the model.

    Args:
        stored: the parameters, as they are stored in a fit.
        model: the model.
        x: the rows that were fitted; only their number matters.
        num_observations: without ``x``: draw the latents of so many new rows from their Gaussian prior.
    """
    stored = in_current_precision(dict(stored))
    given = {name: numpyro.param(name, stored[name]) for name in DIMS if name in stored}
    _sample_globals(given, model)
    if x is None:
        variance = in_current_precision(model.latent_variance * model.loading_variance)
        scale = variance**0.25 / jnp.sqrt(1.0 - in_current_precision(model.beta))
        own = dist.Normal(0.0, scale).expand([num_observations, model.num_latents]).to_event(1)
    elif "latents_mean" not in given or len(given["latents_mean"]) != len(x):
        raise ValueError("the latents of these rows are not in the fit: the guide takes the fitted rows")
    else:
        own = dist.MultivariateNormal(given["latents_mean"], given["latents_covariance"])
    with numpyro.plate("observations", own.batch_shape[0]):
        numpyro.sample("latents", own)


def _sample_globals(stored: Mapping[str, Array], model: EPCA) -> None:
    """Q of everything but the latents: the mean, then the loadings given it."""
    if model.ard:
        names = ("loading_precision_concentration", "loading_precision_rate")
        numpyro.sample("loading_precision", dist.Gamma(*(stored[name] for name in names)).to_event(1))
    if noise_is_unknown(model):
        names = ("noise_variance_concentration", "noise_variance_rate")
        numpyro.sample("noise_variance", dist.InverseGamma(*(stored[name] for name in names)))
    variance, cross = stored["loc_variance"], stored["loadings_loc_covariance"]
    loc = numpyro.sample("loc", dist.Normal(stored["loc_mean"], jnp.sqrt(variance)).to_event(1))
    mean = stored["loadings_mean"] + (cross / variance[:, None]) * (loc - stored["loc_mean"])[:, None]
    covariance = (
        stored["loadings_covariance"] - cross[:, :, None] * cross[:, None, :] / variance[:, None, None]
    )
    numpyro.sample("loadings", dist.MultivariateNormal(mean, covariance).to_event(1))


def conclude(
    key: Array,
    state: EPCAPosterior,
    model: EPCA,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Independent draws of q, as one chain, beside q's parameters."""
    stored = _stored(state, model)
    draws = _draw(jax.random.split(key, num_samples), stored, model)
    if not row_limit(8 * state.latents_covariance.size, "latents_covariance", ()):
        del stored["latents_covariance"], stored["latents_mean"]
    posterior = {name: value[None] for name, value in draws.items()}
    return Outcome(posterior=posterior, variational=stored, dims=DIMS)


@jax.jit
def _draw(keys: Array, stored: dict[str, Array], model: EPCA) -> dict[str, Array]:
    rows = jnp.zeros((len(stored["latents_mean"]), 1))

    def one(key: Array) -> dict[str, Array]:
        program = numpyro.handlers.seed(partial(guide, stored, model), key)
        sites = numpyro.handlers.trace(program).get_trace(rows).items()
        return {name: site["value"] for name, site in sites if site["type"] == "sample"}

    return jax.lax.map(one, keys)


# New rows, at the means of q


def _point(stored: Mapping[str, Array]) -> dict[str, Array]:
    point = {"loadings": stored["loadings_mean"], "loc": stored["loc_mean"]}
    if "noise_variance_rate" in stored:
        concentration = stored["noise_variance_concentration"]
        point["noise_variance"] = stored["noise_variance_rate"] / concentration  # 1 / E[1 / phi]
    return point


METHOD = Method(
    kind="ascent",
    options={},
    strategies=("random",),
    build=build,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=lambda stored, model, x, **options: model.scores(_point(stored), x, **options),
    covariance=lambda stored, model, x: model.scores_covariance(_point(stored), x),
    predict=lambda stored, model, x: model.predicted(_point(stored), x),
    check=check,
)
