"""Variational Bayes for Gaussian `zoo.Paired` with a full covariance each: Bayesian CCA.

Factors, updates and bound are those of `inference.methods.paired.full_covariance_factors`; the objective is the
whole ELBO. A step costs O(N D^2 + D^3 + D K^3) for each view. As every mean-field posterior this one is too
narrow: directions and correlations are right to first order, their spread is that given the latents. Views of
other families have noisy natural parameters besides, for which Gibbs and NUTS are there.

References: Wang (2007), "Variational Bayesian approach to canonical correlation analysis"; Klami and Kaski
(2007).
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Outcome
from inference.methods.paired.full_covariance_gibbs import Turned
from inference.methods.paired.full_covariance_factors import (FullPosterior, ViewFactors, Wishart, bound, degrees_of, rows_seen, update)
from inference.methods.projections.vb import (OF_ROWS, START_VARIANCE, ProjectionVBInfo, concluded, sample_latents)
from zoo.conjugate.gaussian import symmetric_inverse
from zoo.model import in_current_precision
from zoo.paired import Paired

__all__ = ["check", "check_data", "conclude", "guide", "init", "point", "start", "step"]

OF_VIEWS = {
    "loadings_mean": ("feature", "latent"),
    "loc_mean": ("feature",),
    "axes": ("feature", "axis"),
    "loadings_covariance": ("axis", "latent", "latent_2"),
    "loadings_loc_covariance": ("axis", "latent"),
    "loc_variance": ("axis",),
    "specific_precision_scale": ("feature", "feature_2"),
    "specific_precision_degrees": (),
}


def init(key: Array, model: Paired, *data: Array) -> FullPosterior:
    """Narrow factors about the model's starting point, the views' own covariances those of their cells."""
    return _about(model.starting_point(key, *data), model, data)


def _about(values: Mapping[str, Array], model: Paired, data: tuple[Array, ...]) -> FullPosterior:
    k, views = model.num_latents, []
    for v, (y, seen) in enumerate(zip(data, rows_seen(model, data), strict=True)):
        size = y.shape[1]
        degrees = degrees_of(model, size, seen)
        own = Wishart(jnp.eye(size) / (degrees * jnp.mean(jnp.nanvar(y, axis=0))), degrees)
        columns = jnp.column_stack([values[f"loadings_{v}"], values[f"loc_{v}"]])
        covariance = jnp.tile(START_VARIANCE * jnp.eye(k + 1), (size, 1, 1))
        views.append(ViewFactors(columns, jnp.eye(size), covariance, own))
    latents = jnp.asarray(values["latents"], data[0].dtype)
    spread = jnp.tile(START_VARIANCE * jnp.eye(k), (len(latents), 1, 1))
    return FullPosterior(latents, spread, tuple(views), jnp.ones((2, k)))


def start(
    key: Array, variables: Mapping[str, Array], model: Paired, *data: Array, **options: Any
) -> FullPosterior:
    """A former q, or narrow factors about given sites; those that are not given as in a fresh start."""
    if "axes_0" in variables and "latents_covariance" in variables:
        return _from_stored(variables, model)
    fresh = model.starting_point(key, *data)
    return _about({name: jnp.asarray(variables.get(name, old)) for name, old in fresh.items()}, model, data)


def step(
    key: Array, state: FullPosterior, model: Paired, *data: Array
) -> tuple[FullPosterior, ProjectionVBInfo]:
    """Every factor once; deterministic, the key is ignored."""
    state = update(state, model, data)
    return state, ProjectionVBInfo(bound(state, model, data))


def check(model: Paired) -> None:
    """Raise ValueError if a view is not Gaussian."""
    for v in range(len(model.families)):
        if not model.has_dense_rows(v):
            name = type(model.families[v]).__name__
            raise ValueError(
                f"vb of specific='full_covariance' is for views that are Gaussian(noise_variance=None); view "
                f"{v} is {name}, whose natural parameters are sites: use gibbs or nuts"
            )


def check_data(model: Paired, data: tuple) -> None:
    """Raise ValueError if some cells of a row are missing but not all of its view."""
    for v, y in enumerate(data):
        missing = np.isnan(y)
        partly = missing.any(axis=1) & ~missing.all(axis=1)
        if partly.any():
            row = int(np.flatnonzero(partly)[0])
            raise ValueError(
                f"vb of specific='full_covariance' takes rows of a view that are whole or missing as a whole "
                f"(the density of some cells has no expectation under a Wishart); row {row} of y_{v} has "
                f"only some: use gibbs"
            )


# The posterior in a fit


def _dims_of(model: Paired) -> dict[str, tuple[str, ...]]:
    dims = dict(OF_ROWS)
    for v in range(len(model.families)):
        for name, own in OF_VIEWS.items():
            renamed = {"feature": f"feature_{v}", "feature_2": f"feature_{v}_2", "axis": f"axis_{v}"}
            dims[f"{name}_{v}"] = tuple(renamed.get(dim, dim) for dim in own)
    return dims


def _stored(state: FullPosterior, model: Paired) -> dict[str, Array]:
    k, stored = model.num_latents, {}
    for v, own in enumerate(state.views):
        parts = (
            own.columns[:, :k],
            own.columns[:, k],
            own.axes,
            own.covariance[:, :k, :k],
            own.covariance[:, :k, k],
            own.covariance[:, k, k],
            *own.precision,
        )
        stored |= {f"{name}_{v}": part for name, part in zip(OF_VIEWS, parts, strict=True)}
    stored |= {"latents_mean": state.latents, "latents_covariance": state.latents_covariance}
    if model.ard:
        names = ("loading_precision_concentration", "loading_precision_rate")
        stored |= dict(zip(names, state.relevance, strict=True))
    return stored


def _from_stored(stored: Mapping[str, Array], model: Paired) -> FullPosterior:
    views = []
    for v in range(len(model.families)):
        own = {name: jnp.asarray(stored[f"{name}_{v}"]) for name in OF_VIEWS}
        cross = own["loadings_loc_covariance"][:, :, None]
        top = jnp.concatenate([own["loadings_covariance"], cross], axis=2)
        last = jnp.concatenate([jnp.swapaxes(cross, 1, 2), own["loc_variance"][:, None, None]], axis=2)
        precision = Wishart(own["specific_precision_scale"], own["specific_precision_degrees"])
        columns = jnp.column_stack([own["loadings_mean"], own["loc_mean"]])
        views.append(ViewFactors(columns, own["axes"], jnp.concatenate([top, last], axis=1), precision))
    ones = jnp.ones(model.num_latents)
    relevance = [stored.get(f"loading_precision_{name}", ones) for name in ("concentration", "rate")]
    return FullPosterior(
        jnp.asarray(stored["latents_mean"]),
        jnp.asarray(stored["latents_covariance"]),
        tuple(views),
        jnp.stack(relevance),
    )


def guide(
    stored: Mapping[str, Array], model: Paired, *data: Array, num_observations: int | None = None
) -> None:
    """Q as a NumPyro program with exactly the sites of the model; see `inference.methods.projections.vb`."""
    stored = in_current_precision(dict(stored))
    given = {name: numpyro.param(name, stored[name]) for name in _dims_of(model) if name in stored}
    if model.ard:
        names = ("loading_precision_concentration", "loading_precision_rate")
        numpyro.sample("loading_precision", dist.Gamma(*(given[name] for name in names)).to_event(1))
    for v in range(len(model.families)):
        own = {name: given[f"{name}_{v}"] for name in OF_VIEWS}
        rate = symmetric_inverse(own["specific_precision_scale"])
        degrees = own["specific_precision_degrees"]
        numpyro.sample(f"specific_precision_{v}", dist.Wishart(degrees, rate_matrix=rate))
        axes, variance, cross = own["axes"], own["loc_variance"], own["loadings_loc_covariance"]
        loc_mean = axes.T @ own["loc_mean"]
        loc = numpyro.sample(f"loc_{v}", Turned(dist.Normal(loc_mean, jnp.sqrt(variance)), axes))
        slope = cross / variance[:, None]
        mean = axes.T @ own["loadings_mean"] + slope * (axes.T @ loc - loc_mean)[:, None]
        covariance = own["loadings_covariance"] - slope[:, :, None] * cross[:, None, :]
        numpyro.sample(f"loadings_{v}", Turned(dist.MultivariateNormal(mean, covariance), axes))
    sample_latents(given, model, data, num_observations)


def conclude(
    key: Array,
    state: FullPosterior,
    model: Paired,
    data: tuple,
    num_samples: int,
    keep_rows: bool,
    **options: Any,
) -> Outcome:
    """Independent draws of q, as one chain, beside q's parameters."""
    return concluded(key, _stored(state, model), guide, model, num_samples, _dims_of(model))


def point(stored: Mapping[str, Array], model: Paired) -> dict[str, Array]:
    """The means of q."""
    values = {}
    for v in range(len(model.families)):
        values[f"loadings_{v}"] = stored[f"loadings_mean_{v}"]
        values[f"loc_{v}"] = stored[f"loc_mean_{v}"]
        own = Wishart(stored[f"specific_precision_scale_{v}"], stored[f"specific_precision_degrees_{v}"])
        values[f"specific_precision_{v}"] = own.mean
    return values
