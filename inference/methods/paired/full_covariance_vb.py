r"""Variational Bayes for Gaussian `zoo.Paired` with a full covariance each: Bayesian CCA.

The objective is the whole ELBO. A step costs O(N D^2 + D^3 + D K^3) for each view. As every mean-field
posterior this one is too narrow: directions and correlations are right to first order, their spread is that
given the latents. Views of other families have noisy natural parameters besides, for which Gibbs and NUTS are
there.

References: Wang (2007), "Variational Bayesian approach to canonical correlation analysis"; Klami and Kaski
(2007).

Factors and updates
-------------------
With :math:`\tilde u = [u, 1]` and :math:`\Lambda_v = \Psi_v^{-1}` the posterior is approximated by
:math:`\prod_n q(u_n) \prod_v q(V_v, \mu_v)\, q(\Lambda_v)` and q of the loadings' precisions (Wang 2007,
without his further factorisation of the loadings). All updates are in closed form and the bound never falls:

* latents: normal, precision :math:`I/\sigma^2 + \sum_v E[V_v^T \Lambda_v V_v]` over the views that a row has;
* loadings and mean: in the eigenvectors Q of :math:`E\Lambda_v = Q\,\mathrm{diag}(l)\,Q^T` the rows of
  :math:`Q^T[V_v, \mu_v]` are independent, because their prior is spherical, with precisions
  :math:`l_j \sum_n E[\tilde u_n \tilde u_n^T]` plus the prior's;
* :math:`\Lambda_v`: Wishart with the prior's degrees and rate plus the number of rows and the expected
  scatter of residuals :math:`\sum_n E[(y_n - V\tilde u_n)(y_n - V\tilde u_n)^T]`;
* precisions of loadings: gamma.

A row of a view is there or missing as a whole: the log density of some of its cells has no expectation in
closed form under a Wishart. A view's weight counts each of its rows so many times.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from inference.algorithm import Outcome
from inference.methods.epca.vb import (
    OF_COLUMNS,
    START_VARIANCE,
    ProjectionVBInfo,
    concluded,
    dims_of,
    relevance_of,
    sample_latents,
    sample_relevance,
    stored_rows,
)
from inference.methods.epca.vb_factors import (
    expected_log_gamma,
    gamma_terms,
    normal_given,
    normal_terms,
)
from inference.methods.epca.views import given_values, prior_variance
from inference.methods.linear_gaussian.em import bordered
from inference.methods.paired.gibbs import Turned
from zoo.answers import start_of
from zoo.checks import row_of
from zoo.conjugate.gaussian import expected_log_det, log_wishart_normaliser, symmetric_inverse
from zoo.coordinates import Unit
from zoo.linear_gaussian.axes import signs_of
from zoo.model import in_current_precision
from zoo.paired import Paired
from zoo.shapes import Values


class Wishart(NamedTuple):
    """A Wishart distribution of a precision matrix, with mean degrees_of_freedom * scale_matrix.

    Attributes:
        scale_matrix: shape (num_features, num_features).
        degrees_of_freedom: shape ().
    """

    scale_matrix: Array
    degrees_of_freedom: Array

    @property
    def num_features(self) -> int:
        """The number of rows of the matrix."""
        return self.scale_matrix.shape[-1]

    @property
    def mean(self) -> Array:
        """The expected precision matrix."""
        return self.degrees_of_freedom * self.scale_matrix


class ViewFactors(NamedTuple):
    """Factors of q of the parameters of one view.

    Attributes:
        columns: means of loadings and mean, shape (num_features, num_latents + 1).
        axes: Q, orthogonal, shape (num_features, num_features).
        covariance: of each row of Q'[V, mu], shape (num_features, num_latents + 1, num_latents + 1).
        precision: of the specific precision.
    """

    columns: Array
    axes: Array
    covariance: Array
    precision: Wishart


class FullPosterior(NamedTuple):
    """Parameters of q over latents, views and precisions.

    Attributes:
        latents: means, shape (num_observations, num_latents).
        latents_covariance: shape (num_observations, num_latents, num_latents).
        views: of every view.
        relevance: concentrations and rates of the loadings' precisions, shape (2, num_latents).
    """

    latents: Array
    latents_covariance: Array
    views: tuple[ViewFactors, ...]
    relevance: Array


# Parts of updates and bound


def _ridge(state: FullPosterior, model: Paired) -> Array:
    """The expected prior precision of a row of [V, mu]."""
    relevance = state.relevance[0] / state.relevance[1] if model.ard else jnp.ones(model.num_latents)
    return jnp.append(relevance / prior_variance(model), 1 / in_current_precision(model).loc_variance)


def rows_seen(model: Paired, data: tuple[Array, ...]) -> list[Array]:
    """The weight of each row of each view, zero where it is missing."""
    weights = jnp.broadcast_to(in_current_precision(model.view_weights), (len(data),))
    return [w * jnp.where(jnp.isnan(y[:, 0]), 0.0, 1.0) for w, y in zip(weights, data, strict=True)]


def degrees_of(model: Paired, size: int, seen: Array | float = 0.0) -> Array:
    """The degrees of freedom of a view's precision: those of the prior and one for each row."""
    return size + in_current_precision(model).covariance_degrees + jnp.sum(seen)


def _extended(state: FullPosterior) -> tuple[Array, Array]:
    """The mean and covariance of [u, 1] of every row."""
    ones = jnp.ones((len(state.latents), 1))
    covariance = jnp.pad(state.latents_covariance, ((0, 0), (0, 1), (0, 1)))
    return jnp.concatenate([state.latents, ones], axis=1), covariance


def _scatter(state: FullPosterior, own: ViewFactors, y: Array, seen: Array) -> Array:
    """The sum over rows of E[(y - V [u, 1]) (y - V [u, 1])']."""
    extended, spread = _extended(state)
    away = jnp.nan_to_num(y) - extended @ own.columns.T
    of_latents = jnp.einsum("n,nij->ij", seen, spread)
    second = of_latents + (extended * seen[:, None]).T @ extended
    traces = jnp.einsum("jab,ab->j", own.covariance, second)
    found = (away * seen[:, None]).T @ away + own.columns @ of_latents @ own.columns.T
    return found + (own.axes * traces) @ own.axes.T


def _column_squares(own: ViewFactors) -> Array:
    """The expected squares of Q'[V, mu], whose sum over rows is that of [V, mu]."""
    return (own.axes.T @ own.columns) ** 2 + jnp.diagonal(own.covariance, axis1=1, axis2=2)


# Updates


def _precision(state: FullPosterior, own: ViewFactors, model: Paired, y: Array, seen: Array) -> ViewFactors:
    size = y.shape[1]
    rate = in_current_precision(model).covariance_scale * jnp.eye(size) + _scatter(state, own, y, seen)
    return own._replace(precision=Wishart(symmetric_inverse(rate), degrees_of(model, size, seen)))


def _columns(state: FullPosterior, own: ViewFactors, model: Paired, y: Array, seen: Array) -> ViewFactors:
    lengths, axes = jnp.linalg.eigh(own.precision.mean)
    axes = axes * signs_of(axes)
    extended, spread = _extended(state)
    weighted = extended * seen[:, None]
    second = weighted.T @ extended + jnp.einsum("n,nij->ij", seen, spread)
    linear = lengths[:, None] * ((jnp.nan_to_num(y) @ axes).T @ weighted)
    precision = lengths[:, None, None] * second + jnp.diag(_ridge(state, model))
    turned, covariance = normal_given(linear, precision)
    return own._replace(columns=axes @ turned, axes=axes, covariance=covariance)


def _latents(
    state: FullPosterior, model: Paired, data: tuple[Array, ...], seen: list[Array]
) -> FullPosterior:
    k = model.num_latents
    precision, linear = jnp.eye(k) / prior_variance(model), 0.0
    precision = jnp.broadcast_to(precision, (len(data[0]), k, k))
    for own, y, rows in zip(state.views, data, seen, strict=True):
        expected = own.precision.mean
        turned = jnp.diagonal(own.axes.T @ expected @ own.axes)
        square = own.columns.T @ expected @ own.columns + jnp.einsum("j,jab->ab", turned, own.covariance)
        precision += rows[:, None, None] * square[:k, :k]
        linear += rows[:, None] * (jnp.nan_to_num(y) @ expected @ own.columns[:, :k] - square[:k, k])
    latents, covariance = normal_given(linear, precision)
    return state._replace(latents=latents, latents_covariance=covariance)


def _relevance(state: FullPosterior, model: Paired) -> FullPosterior:
    prior, k = in_current_precision(model), model.num_latents
    size = sum(len(own.columns) for own in state.views)
    squares = sum(jnp.sum(_column_squares(own)[:, :k], axis=0) for own in state.views)
    concentrations = jnp.full(k, prior.ard_concentration + size / 2)
    rates = prior.ard_rate + squares / (2 * prior_variance(model))
    return state._replace(relevance=jnp.stack([concentrations, rates]))


def update(state: FullPosterior, model: Paired, data: tuple[Array, ...]) -> FullPosterior:
    """Update every factor once."""
    seen = rows_seen(model, data)
    for step in (_precision, _columns):
        views = [
            step(state, own, model, y, rows) for own, y, rows in zip(state.views, data, seen, strict=True)
        ]
        state = state._replace(views=tuple(views))
    state = _latents(state, model, data, seen)
    return _relevance(state, model) if model.ard else state


# The bound


def bound(state: FullPosterior, model: Paired, data: tuple[Array, ...]) -> Array:
    """The whole bound, in nats."""
    prior, k, variance = in_current_precision(model), model.num_latents, prior_variance(model)
    ridge = _ridge(state, model)
    log_ridge, total = jnp.log(ridge), 0.0
    if model.ard:
        log_ridge = log_ridge.at[:k].set(expected_log_gamma(state.relevance) - jnp.log(variance))
        total += jnp.sum(gamma_terms(state.relevance, prior.ard_concentration, prior.ard_rate))
    for own, y, rows in zip(state.views, data, rows_seen(model, data), strict=True):
        size, count, q = y.shape[1], jnp.sum(rows), own.precision
        log_det = expected_log_det(q)
        total += 0.5 * count * (log_det - size * jnp.log(2 * jnp.pi))
        total -= 0.5 * jnp.sum(q.mean * _scatter(state, own, y, rows))
        p = Wishart(jnp.eye(size) / prior.covariance_scale, degrees_of(model, size))
        total += 0.5 * (p.degrees_of_freedom - q.degrees_of_freedom) * log_det
        total += 0.5 * (q.degrees_of_freedom * size - prior.covariance_scale * jnp.trace(q.mean))
        total += log_wishart_normaliser(q) - log_wishart_normaliser(p)
        total += normal_terms(_column_squares(own), own.covariance, ridge, log_ridge)
    own = jnp.full(k, 1 / variance)
    squares = state.latents**2 + jnp.diagonal(state.latents_covariance, axis1=1, axis2=2)
    return total + normal_terms(squares, state.latents_covariance, own, jnp.log(own))


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


def units(model: Paired) -> dict[str, Unit]:
    """The moments of q follow the data as loadings, means and precisions do.

    With ``standardize`` the axes follow the columns, and variances along them have no unit.
    """
    sites, found = model.units, dict[str, Any]()
    for v in range(len(model.families)):
        if f"loadings_{v}" not in sites:
            continue
        loadings = sites[f"loadings_{v}"]
        own = {"loadings_mean": loadings, "loc_mean": sites[f"loc_{v}"]}
        own["specific_precision_scale"] = sites[f"specific_precision_{v}"]
        own |= {"axes": loadings} if model.standardize else dict.fromkeys(OF_COLUMNS, Unit(2, part=v))
        found |= {f"{name}_{v}": unit for name, unit in own.items()}
    return found


def init(key: Array, model: Paired, *data: Array) -> FullPosterior:
    """Narrow factors around the model's starting point, with covariances of the views' cells."""
    return _about(start_of(model, key, *data), model, data)


def _about(values: Values, model: Paired, data: tuple[Array, ...]) -> FullPosterior:
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


def start(key: Array, variables: Values, model: Paired, *data: Array, **options: object) -> FullPosterior:
    """A former q, or narrow factors around given sites, the others as in a fresh start."""
    if "axes_0" in variables and "latents_covariance" in variables:
        return _from_stored(variables, model)
    return _about(given_values(start_of(model, key, *data), variables), model, data)


def step(
    key: Array, state: FullPosterior, model: Paired, *data: Array
) -> tuple[FullPosterior, ProjectionVBInfo]:
    """Update every factor once; the key is ignored."""
    state = update(state, model, data)
    return state, ProjectionVBInfo(bound(state, model, data))


def check(model: Paired, settings: Any) -> None:
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
            row = row_of(y, int(np.flatnonzero(partly)[0]))
            raise ValueError(
                f"vb of specific='full_covariance' takes rows of a view that are whole or missing as a whole "
                f"(the density of some cells has no expectation under a Wishart); {row} of y_{v} has "
                f"only some: use gibbs"
            )


# The posterior in a fit


def _stored(state: FullPosterior, model: Paired) -> dict[str, Array]:
    k, stored = model.num_latents, dict[str, Any]()
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
    return stored | stored_rows(state, model)


def _from_stored(stored: Values, model: Paired) -> FullPosterior:
    views = []
    for v in range(len(model.families)):
        own = {name: jnp.asarray(stored[f"{name}_{v}"]) for name in OF_VIEWS}
        covariance = bordered(*(own[name] for name in OF_COLUMNS))
        precision = Wishart(own["specific_precision_scale"], own["specific_precision_degrees"])
        columns = jnp.column_stack([own["loadings_mean"], own["loc_mean"]])
        views.append(ViewFactors(columns, own["axes"], covariance, precision))
    latents, covariance = (jnp.asarray(stored[f"latents_{part}"]) for part in ("mean", "covariance"))
    return FullPosterior(latents, covariance, tuple(views), relevance_of(stored, model))


def guide(stored: Values, model: Paired, *data: Array, num_observations: int | None = None) -> None:
    """The guide q as a NumPyro program, like `inference.methods.epca.vb.guide`."""
    given = sample_relevance(stored, model, dims_of(model, OF_VIEWS))
    for v in range(len(model.families)):
        own = {name: given[f"{name}_{v}"] for name in OF_VIEWS}
        rate = symmetric_inverse(own["specific_precision_scale"])
        degrees = own["specific_precision_degrees"]
        numpyro.sample(
            f"specific_precision_{v}", dist.Wishart(degrees, rate_matrix=rate, validate_args=False)
        )
        axes, variance, cross = own["axes"], own["loc_variance"], own["loadings_loc_covariance"]
        loc_mean = axes.T @ own["loc_mean"]
        loc = numpyro.sample(f"loc_{v}", Turned(dist.Normal(loc_mean, jnp.sqrt(variance)), axes))
        slope = cross / variance[:, None]
        mean = axes.T @ own["loadings_mean"] + slope * (axes.T @ loc - loc_mean)[:, None]
        covariance = own["loadings_covariance"] - slope[:, :, None] * cross[:, None, :]
        numpyro.sample(
            f"loadings_{v}", Turned(dist.MultivariateNormal(mean, covariance, validate_args=False), axes)
        )
    sample_latents(given, model, data, num_observations)


def conclude(
    key: Array, state: FullPosterior, model: Paired, data: tuple, *sizes: Any, **options: object
) -> Outcome:
    """Conclude with independent draws of q and its parameters."""
    return concluded(key, _stored(state, model), guide, model, dims_of(model, OF_VIEWS), *sizes)


def point(stored: Values, model: Paired) -> dict[str, Array]:
    """The means of q."""
    values = {}
    for v in range(len(model.families)):
        values[f"loadings_{v}"] = stored[f"loadings_mean_{v}"]
        values[f"loc_{v}"] = stored[f"loc_mean_{v}"]
        own = Wishart(stored[f"specific_precision_scale_{v}"], stored[f"specific_precision_degrees_{v}"])
        values[f"specific_precision_{v}"] = own.mean
    return values


def predict(stored: Values, model: Paired, *data: Array, **options: object) -> tuple[Array, Array]:
    """Missing cells at their expectation at the means of q, and their variance with the loadings' spread.

    The spread is that of the predicted view's loadings; it is exact under q for rows whose view is missing as
    a whole.
    """
    spread = {
        f"_{v}": jnp.einsum(
            "dj,jab->dab", stored[f"axes_{v}"] ** 2, bordered(*(stored[f"{name}_{v}"] for name in OF_COLUMNS))
        )
        for v in range(len(model.families))
    }
    return model.predicted(point(stored, model), *data, spread=spread, **options)
