r"""The latents' factor of variational Bayes for linear-Gaussian models: of compressed rows, and of new ones.

.. math::
    \Lambda_n = I + \sum_{d \in o_n} \langle\tau_d\rangle (\langle w_d\rangle \langle w_d\rangle^T + S_d),
    \qquad m_n = \Lambda_n^{-1} \sum_{d \in o_n} \langle\tau_d\rangle (\langle w_d\rangle x_{nd} - \langle w_d
    \mu_d\rangle)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve

from inference.methods.linear_gaussian.rows import CompressedRows, Pattern
from inference.numerics.row_blocks import map_rows, sum_over_rows
from inference.numerics.weighted_rows import Rows

__all__ = [
    "LatentMoments",
    "draws_of",
    "latent_moments",
    "latents_of",
    "sample_columns",
    "sample_latents",
]


class LatentMoments(NamedTuple):
    """Sums over rows of moments of the latents under q.

    Attributes:
        second: by class of columns, the sum of E[[z, 1] [z, 1]'] over the rows in which the class is
            observed.
        cross: by column, the sum of x E[z] over its rows, x about the centre, shape (D, num_latents).
        total_second: the sum of E[z z'] over all rows.
        total_first: the sum of E[z] over all rows.
        half_log_det: half the sum of log det of the covariances: the entropies but for their constants.
    """

    second: Array
    cross: Array
    total_second: Array
    total_first: Array
    half_log_det: Array


def latent_moments(mean: Array, covariance: Array, precision: Array, rows: CompressedRows) -> LatentMoments:
    """The moments under the optimal q(Z).

    Args:
        mean: of [w, mu], shape (D, num_latents + 1).
        covariance: of [w, mu] by class of columns.
        precision: E[tau] of each column, shape (D,).
        rows: the data.
    """
    total = None
    for pattern in rows.patterns:
        part = _pattern_moments(mean, covariance, precision, pattern, rows)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    if rows.single.shape[0]:
        packed = Rows(jnp.stack([rows.single, rows.single_observed], axis=1), rows.single_weight)

        def block(cells: Array, weight: Array) -> LatentMoments:
            return _single_moments(mean, covariance, precision, cells[:, 0], cells[:, 1], weight, rows)

        part = sum_over_rows(block, packed)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    return total


def latents_of(
    x: Array, loadings: Array, loc: Array, covariance: Array, precision: Array
) -> tuple[Array, Array]:
    """Means and covariances of the latents of rows under q.

    Args:
        x: rows, NaN for missing cells, shape (num_observations, num_features).
        loadings: E[w], shape (num_features, num_latents).
        loc: E[mu], shape (num_features,).
        covariance: of [w, mu], by column, shape (num_features, num_latents + 1, num_latents + 1).
        precision: E[tau] of each column.

    Returns:
        Shapes (num_observations, num_latents) and (num_observations, num_latents, num_latents).
    """
    k = loadings.shape[1]
    outer = precision[:, None, None] * (loadings[:, :, None] * loadings[:, None, :] + covariance[:, :k, :k])

    def block(rows: Array) -> tuple[Array, Array]:
        seen = jnp.where(jnp.isnan(rows), 0.0, 1.0)
        away = jnp.where(seen > 0, rows - loc, 0.0)
        precisions = (seen @ outer.reshape(-1, k * k)).reshape(-1, k, k) + jnp.eye(k)
        factor = jnp.linalg.cholesky(precisions)
        spread = jax.vmap(lambda lower: cho_solve((lower, True), jnp.eye(k)))(factor)
        target = (away * precision) @ loadings - (seen * precision) @ covariance[:, :k, k]
        return jnp.einsum("nkj,nj->nk", spread, target), spread

    return map_rows(block, x)


def _pattern_moments(
    mean: Array, covariance: Array, precision: Array, pattern: Pattern, rows: CompressedRows
) -> LatentMoments:
    loadings, loc = mean[:, :-1], mean[:, -1]
    k = loadings.shape[1]
    weights = pattern.observed * precision
    by_class = jax.ops.segment_sum(weights, rows.column_class, covariance.shape[0])
    scaled = weights[:, None] * loadings
    own = jnp.eye(k) + scaled.T @ loadings + jnp.einsum("q,qij->ij", by_class, covariance[:, :k, :k])
    factor = jnp.linalg.cholesky(own)
    spread = cho_solve((factor, True), jnp.eye(k))
    target = (pattern.mean - loc) @ scaled - by_class @ covariance[:, :k, k]
    first, scores = spread @ target, pattern.rows @ (scaled @ spread)
    second = pattern.count * (spread + jnp.outer(first, first)) + scores.T @ scores
    border = jnp.append(pattern.count * first, pattern.count)
    bordered = jnp.concatenate([second, border[None, :-1]])
    bordered = jnp.concatenate([bordered, border[:, None]], axis=1)
    return LatentMoments(
        second=pattern.observed[rows.class_member][:, None, None] * bordered,
        cross=pattern.rows.T @ scores + pattern.count * jnp.outer(pattern.mean, first),
        total_second=second,
        total_first=pattern.count * first,
        half_log_det=-pattern.count * jnp.sum(jnp.log(jnp.diag(factor))),
    )


def _single_moments(
    mean: Array,
    covariance: Array,
    precision: Array,
    x: Array,
    seen: Array,
    weight: Array,
    rows: CompressedRows,
) -> LatentMoments:
    """Of rows each of which has its own holes; x about the centre and zero where missing."""
    k = mean.shape[1] - 1
    whole = jnp.where(seen > 0, x, jnp.nan)
    per_column = covariance[rows.column_class]
    first, spread = latents_of(whole, mean[:, :-1], mean[:, -1], per_column, precision)
    second = weight[:, None, None] * (spread + first[:, :, None] * first[:, None, :])
    weighed = weight[:, None] * first
    border = jnp.concatenate([second, weighed[:, :, None]], axis=2)
    bottom = jnp.concatenate([weighed, weight[:, None]], axis=1)
    bordered = jnp.concatenate([border, bottom[:, None, :]], axis=1)
    by_class = seen[:, rows.class_member].T @ bordered.reshape(bordered.shape[0], -1)
    return LatentMoments(
        second=by_class.reshape(-1, k + 1, k + 1),
        cross=x.T @ weighed,
        total_second=jnp.sum(second, axis=0),
        total_first=jnp.sum(weighed, axis=0),
        half_log_det=0.5 * weight @ jnp.linalg.slogdet(spread)[1],
    )


def sample_columns(
    suffix: str,
    mean: Array,
    covariance: Array,
    cross: Array,
    loc_mean: Array,
    loc_variance: Array,
    concentration: Array,
    rate: Array,
) -> None:
    """Q of a block of columns as NumPyro statements: the mean, the loadings given it, the noise variance.

    Args:
        suffix: of the sites' names.
        mean: of the loadings, shape (num_features, num_latents).
        covariance: of each column's loadings, shape (num_features, num_latents, num_latents).
        cross: of each column's loadings with its mean, shape (num_features, num_latents).
        loc_mean: shape (num_features,).
        loc_variance: shape (num_features,).
        concentration: of the inverse-gamma q of the noise variance, shape () or one for each column.
        rate: of it, likewise.
    """
    loc = numpyro.sample(f"loc{suffix}", dist.Normal(loc_mean, jnp.sqrt(loc_variance)).to_event(1))
    slope = cross / loc_variance[:, None]
    given = dist.MultivariateNormal(
        mean + slope * (loc - loc_mean)[:, None], covariance - slope[:, :, None] * cross[:, None, :]
    )
    numpyro.sample(f"loadings{suffix}", given.to_event(1))
    noise = dist.InverseGamma(concentration, rate)
    numpyro.sample(f"noise_variance{suffix}", noise.to_event(jnp.ndim(rate)))


def sample_latents(num_rows: int, num_latents: int, moments: tuple[Array, Array] | None) -> None:
    """Q of the latents of rows with these means and covariances, or the prior of new rows."""
    own = dist.Normal(0.0, 1.0).expand([num_latents]).to_event(1)
    if moments is not None:
        own = dist.MultivariateNormal(*moments)
    with numpyro.plate("observations", num_rows):
        numpyro.sample("latents", own)


def draws_of(
    keys: Array, sample_globals: Callable, means: Array, covariances: Array, keep_rows: bool
) -> dict[str, Array]:
    """A draw from q for each key: the sites of ``sample_globals``, and latents if ``keep_rows``."""
    factors = jnp.linalg.cholesky(covariances)

    def one(key: Array) -> dict[str, Array]:
        own, rest = jax.random.split(key)
        sites = numpyro.handlers.trace(numpyro.handlers.seed(sample_globals, own)).get_trace()
        values = {name: site["value"] for name, site in sites.items()}
        if keep_rows:
            noise = jax.random.normal(rest, means.shape)
            values["latents"] = means + jnp.einsum("nij,nj->ni", factors, noise)
        return values

    return jax.lax.map(one, keys)
