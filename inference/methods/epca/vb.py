r"""Variational Bayes for exponential-family projections: Gaussian, Bernoulli, binomial and Poisson cells.

One ascent serves `zoo.EPCA` and low-rank `zoo.Paired`; factors, updates and bound are those of
`inference.methods.epca.vb_factors`. The objective is the whole bound on the log evidence, of an
unnormalised prior with its factor as in the program; of logistic cells the bound with
Polya-Gamma variables, a little lower than the ELBO of the normal factors alone, the bound of `guide`. View
weights multiply the expected log density of a view's cells, as in the program. A step costs O(N D K^2), of
Poisson cells some ten times O(N D K^3).

Exponential, gamma and negative binomial cells need theta < 0, which no normal q gives: they have no bound.

References: Jaakkola and Jordan (2000), "Bayesian parameter estimation via variational methods"; Polson,
Scott and Windle (2013); Virtanen (2010) for the models.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Algorithm, Ascent, Outcome, as_one_chain
from inference.methods.epca import VB
from inference.methods.epca.vb_factors import (
    ProjectionPosterior,
    bound,
    check_has_bound,
    noise_concentrations,
    seen_loadings,
    update,
)
from inference.methods.epca.views import View, given_values, prior_variance, views_of
from inference.methods.linear_gaussian.em import bordered
from inference.numerics.host_draws import generator, site_draws
from inference.numerics.weighted_rows import PaddedRows, beside_rows, row_limit
from zoo.answers import answer_of, start_of
from zoo.coordinates import Unit
from zoo.epca import EPCA
from zoo.exponential_family.natural_params import padded
from zoo.model import in_current_precision
from zoo.paired import Paired
from zoo.shapes import Values

START_VARIANCE = 0.05
OF_ROWS = {
    "latents_mean": ("observation", "latent"),
    "latents_covariance": ("observation", "latent", "latent_2"),
    "loading_precision_concentration": ("latent",),
    "loading_precision_rate": ("latent",),
}
OF_RELEVANCE = ("loading_precision_concentration", "loading_precision_rate")
OF_COLUMNS = ("loadings_covariance", "loadings_loc_covariance", "loc_variance")
OF_VIEWS = {
    "loadings_mean": ("feature", "latent"),
    "loadings_covariance": ("feature", "latent", "latent_2"),
    "loadings_loc_covariance": ("feature", "latent"),
    "loc_mean": ("feature",),
    "loc_variance": ("feature",),
    "noise_variance_concentration": (),
    "noise_variance_rate": (),
}


def units(model: EPCA | Paired) -> dict[str, Unit]:
    """The moments of q follow the data as loadings, means and the noise of the program do."""
    sites, found = model.units, dict[str, Any]()
    for site, suffix in model.roles.loadings.items():
        if site not in sites:
            continue
        loadings = sites[site]
        squares = loadings._replace(power=2 * loadings.power)
        own = {
            "loadings_mean": loadings,
            "loadings_covariance": squares._replace(axes=(-3,)),
            "loadings_loc_covariance": squares,
            "loc_mean": sites[f"loc{suffix}"],
            "loc_variance": squares._replace(axes=(-1,)),
            "noise_variance_rate": sites[f"noise_variance{suffix}"],
        }
        found |= {f"{name}{suffix}": unit for name, unit in own.items()}
    return found


class ProjectionVBInfo(NamedTuple):
    """Quantities recorded at each step.

    Attributes:
        objective: the bound, in nats.
    """

    objective: Array


def init(key: Array, model: EPCA | Paired, *data: Array) -> ProjectionPosterior:
    """Narrow factors around the model's starting point."""
    return _about(start_of(model, key, *data), model, data)


def _about(values: Values, model: EPCA | Paired, data: tuple[Array, ...]) -> ProjectionPosterior:
    k, views = model.num_latents, views_of(model)
    seen, concentrations = seen_loadings(model, data), noise_concentrations(model, data)
    columns = jnp.concatenate(
        [jnp.column_stack([values[f"loadings{view.suffix}"], values[f"loc{view.suffix}"]]) for view in views]
    )
    noise = jnp.stack(
        [jnp.asarray(values.get(f"noise_variance{view.suffix}", 1.0), columns.dtype) for view in views]
    )
    return ProjectionPosterior(
        latents=jnp.asarray(values["latents"], columns.dtype),
        latents_covariance=jnp.tile(START_VARIANCE * jnp.eye(k), (len(data[0]), 1, 1)),
        columns=columns * seen,
        columns_covariance=START_VARIANCE * seen[:, :, None] * jnp.eye(k + 1),
        noise=jnp.stack([concentrations, concentrations * noise], axis=1),
        relevance=jnp.ones((2, k)),
    )


def start(
    key: Array, variables: Values, model: EPCA | Paired, *data: Array, **options: object
) -> ProjectionPosterior:
    """A former q, or narrow factors around given sites, the others as in a fresh start."""
    if f"loadings_mean{views_of(model)[0].suffix}" in variables and "latents_covariance" in variables:
        return _from_stored(variables, model)
    return _about(given_values(start_of(model, key, *data), variables), model, data)


def step(
    key: Array, state: ProjectionPosterior, model: EPCA | Paired, *data: Array | PaddedRows
) -> tuple[ProjectionPosterior, ProjectionVBInfo]:
    """Update every factor once; the key is ignored."""
    state = update(state, model, data)
    return state, ProjectionVBInfo(bound(state, model, data))


ALGORITHM = Algorithm(init, step)


def check(model: EPCA | Paired, settings: VB) -> None:
    """Raise ValueError if a family has no bound in closed form."""
    for view in views_of(model):
        check_has_bound(view.family)


# The posterior in a fit


def dims_of(
    model: EPCA | Paired, of_views: Mapping[str, tuple[str, ...]] = OF_VIEWS
) -> dict[str, tuple[str, ...]]:
    """The dims of all parameters of q.

    Args:
        model: the model.
        of_views: dims of the parameters of one view, without its number.
    """
    dims = dict(OF_ROWS)
    for view in views_of(model):
        suffixes = {"feature": "{}", "feature_2": "{}_2", "axis": "{}"}
        for name, own in of_views.items():
            dims[f"{name}{view.suffix}"] = tuple(
                dim.removesuffix("_2") + suffixes[dim].format(view.suffix) if dim in suffixes else dim
                for dim in own
            )
    return dims


def stored_rows(state: Any, model: EPCA | Paired) -> dict[str, Array]:
    """The parameters of q that belong to no view, in their stored form."""
    stored = {"latents_mean": state.latents, "latents_covariance": state.latents_covariance}
    return stored | (dict(zip(OF_RELEVANCE, state.relevance, strict=True)) if model.ard else {})


def relevance_of(stored: Values, model: EPCA | Paired) -> Array:
    """Concentrations and rates of the loadings' precisions, ones where they are fixed, (2, num_latents)."""
    return jnp.stack([stored.get(name, jnp.ones(model.num_latents)) for name in OF_RELEVANCE])


def _stored(state: ProjectionPosterior, model: EPCA | Paired, data: tuple[Array, ...]) -> dict[str, Array]:
    k, first, stored = model.num_latents, 0, dict[str, Any]()
    for noise, view, x in zip(state.noise, views_of(model), data, strict=True):
        own = slice(first, first + x.shape[1])
        mean, covariance = state.columns[own], state.columns_covariance[own]
        parts = {
            "loadings_mean": mean[:, :k],
            "loadings_covariance": covariance[:, :k, :k],
            "loadings_loc_covariance": covariance[:, :k, k],
            "loc_mean": mean[:, k],
            "loc_variance": covariance[:, k, k],
        }
        if view.family.learns_noise:
            parts |= {"noise_variance_concentration": noise[0], "noise_variance_rate": noise[1]}
        stored |= {f"{name}{view.suffix}": value for name, value in parts.items()}
        first += x.shape[1]
    return stored | stored_rows(state, model)


def _from_stored(stored: Values, model: EPCA | Paired) -> ProjectionPosterior:
    columns, covariances, noise = [], [], []
    for view in views_of(model):
        own = {name: stored.get(f"{name}{view.suffix}", jnp.ones(())) for name in OF_VIEWS}
        columns.append(jnp.column_stack([own["loadings_mean"], own["loc_mean"]]))
        covariances.append(bordered(*(own[name] for name in OF_COLUMNS)))
        noise.append(jnp.stack([own["noise_variance_concentration"], own["noise_variance_rate"]]))
    return ProjectionPosterior(
        latents=stored["latents_mean"],
        latents_covariance=stored["latents_covariance"],
        columns=jnp.concatenate(columns),
        columns_covariance=jnp.concatenate(covariances),
        noise=jnp.stack(noise),
        relevance=relevance_of(stored, model),
    )


def guide(stored: Values, model: EPCA | Paired, *data: Array, num_observations: int | None = None) -> None:
    """The guide q as a NumPyro program with exactly the sites of the model.

    Args:
        stored: the parameters, as they are stored in a fit.
        model: the model.
        *data: the rows that were fitted; only their number matters.
        num_observations: without data: draw the latents of so many new rows from their Gaussian prior.

    Raises:
        ValueError: other rows than the fitted ones.
    """
    given = sample_relevance(stored, model, dims_of(model))
    for view in views_of(model):
        _sample_view({name: given.get(f"{name}{view.suffix}") for name in OF_VIEWS}, view, model.num_latents)
    sample_latents(given, model, data, num_observations)


def sample_relevance(stored: Values, model: EPCA | Paired, names: Collection[str]) -> dict[str, Array]:
    """Declare the named parameters of a guide, and sample the precisions of the loadings from q."""
    stored = in_current_precision(dict(stored))
    given = {name: numpyro.param(name, stored[name]) for name in names if name in stored}
    if model.ard:
        own = dist.Gamma(*(given[name] for name in OF_RELEVANCE))
        numpyro.sample("loading_precision", own.to_event(1))
    return given


def sample_latents(given: Values, model: EPCA | Paired, data: tuple, num_observations: int | None) -> None:
    """Sample the latents from q, or without data those of new rows from their Gaussian prior.

    Raises:
        ValueError: the rows are not those that were fitted.
    """
    if not data:
        scale = jnp.sqrt(prior_variance(model))
        own = dist.Normal(0.0, scale).expand([num_observations, model.num_latents]).to_event(1)
    elif "latents_mean" not in given or len(given["latents_mean"]) != len(data[0]):
        raise ValueError("the latents of these rows are not in the fit: the guide takes the fitted rows")
    else:
        own = dist.MultivariateNormal(given["latents_mean"], given["latents_covariance"], validate_args=False)
    with numpyro.plate("observations", own.batch_shape[0]):
        numpyro.sample("latents", own)


def _sample_view(own: Values, view: View, num_latents: int) -> None:
    """Sample a view from q: noise variance, mean, then the loadings given it."""
    if view.family.learns_noise:
        noise = dist.InverseGamma(own["noise_variance_concentration"], own["noise_variance_rate"])
        numpyro.sample(f"noise_variance{view.suffix}", noise)
    places = jnp.asarray(view.places)
    variance, cross = own["loc_variance"], own["loadings_loc_covariance"][:, places]
    mean_of_loc = dist.Normal(own["loc_mean"], jnp.sqrt(variance)).to_event(1)
    loc = numpyro.sample(f"loc{view.suffix}", mean_of_loc)
    away = loc - own["loc_mean"]
    mean = own["loadings_mean"][:, places] + (cross / variance[:, None]) * away[:, None]
    covariance = own["loadings_covariance"][:, places][:, :, places]
    covariance = covariance - cross[:, :, None] * cross[:, None, :] / variance[:, None, None]
    loadings = dist.MultivariateNormal(mean, covariance, validate_args=False).to_event(1)
    numpyro.sample(f"loadings{view.suffix}", padded(loadings, view.places, num_latents))


def conclude(
    key: Array,
    state: ProjectionPosterior,
    model: EPCA | Paired,
    data: tuple,
    *sizes: Any,
    **options: Any,
) -> Outcome:
    """Conclude with independent draws of q and its parameters."""
    return concluded(key, _stored(state, model, data), guide, model, dims_of(model), *sizes)


def concluded(
    key: Array,
    stored: dict[str, Array],
    guide: Callable,
    model: EPCA | Paired,
    dims: Mapping[str, tuple[str, ...]],
    num_samples: int,
    keep_rows: bool,
) -> Outcome:
    """Conclude with independent draws of the guide, as one chain, and its parameters."""
    rows = np.zeros((len(stored["latents_mean"]), 1))
    draws = site_draws(generator(key), guide, num_samples, stored, model, rows)
    if not row_limit(8 * stored["latents_covariance"].size, "latents_covariance", ()):
        stored = {name: value for name, value in stored.items() if not name.startswith("latents_")}
    posterior = as_one_chain(draws)
    densities = {"objective": ()}
    return Outcome(posterior=posterior, variational=stored, dims=dims, densities=densities)


# New rows, at the means of q


def point(stored: Values, model: EPCA | Paired) -> dict[str, Array]:
    """The means of loadings and means under q, and noise variances 1 / E[1 / phi]."""
    point: dict[str, Any] = {}
    for view in views_of(model):
        point |= {f"{name}{view.suffix}": stored[f"{name}_mean{view.suffix}"] for name in ("loadings", "loc")}
        if view.family.learns_noise:  # 1 / E[1 / phi]
            rate, concentration = (
                stored[f"noise_variance_{part}{view.suffix}"] for part in ("rate", "concentration")
            )
            point[f"noise_variance{view.suffix}"] = rate / concentration
    return point


def predict(stored: Values, model: EPCA | Paired, *data: Array, **options: object) -> tuple[Array, Array]:
    """Missing cells at their expectation under q of loadings, means and new latents, and their variance."""
    suffixes = (view.suffix for view in views_of(model))
    spread = {suffix: bordered(*(stored[f"{name}{suffix}"] for name in OF_COLUMNS)) for suffix in suffixes}
    return model.predicted(point(stored, model), *data, spread=spread, **options)


METHOD = Ascent(
    settings=VB,
    strategies=("random",),
    units=units,
    build=lambda strategy: ALGORITHM,
    start=start,
    conclude=conclude,
    guide=guide,
    transform=lambda stored, model, *data, **options: model.scores(point(stored, model), *data, **options),
    covariance=lambda stored, model, *data: answer_of(
        model, "scores_covariance", point(stored, model), *data
    ),
    predict=predict,
    check=check,
    otherwise=lambda model, data, is_refused: "map" if is_refused else "",
    for_steps=beside_rows,
    of_rows=(".latents", ".latents_covariance"),
)
