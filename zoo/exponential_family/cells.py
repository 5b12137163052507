"""Cells of an exponential family as a NumPyro distribution over rows, and the parameters of such a table.

Missing cells are left out of the density. Beside its loadings a table has these sites, with the suffix of the
view: ``loc`` (D,), zero where a column has cut points; ``cut_points`` of `zoo.exponential_family.Ordinal`
columns; ``noise_variance`` of a Gaussian of unknown variance. With `Categorical` cells the mean has an entry
for each natural parameter.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.exponential_family import Family
from zoo.exponential_family.natural_params import LowRank, padded

__all__ = [
    "FamilyCells",
    "cells_of",
    "sample_view_parameters",
    "starting_sizes",
    "starting_view_parameters",
]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _canonical_rows(family: Family, theta: Array, value: Array) -> Array:
    """Log densities of rows of a family with one natural parameter a cell; data are taken as constants.

    Its derivative, x - E[x], is written down, so that value and gradient are computed in one pass and one
    table is remembered between them.
    """
    seen = ~jnp.isnan(value)
    return family.log_density_of_rows(theta, jnp.where(seen, value, 1.0), seen)


def _residual(family: Family, theta: Array, value: Array) -> Array:
    """X - E[x], zero where a cell is missing."""
    seen = ~jnp.isnan(value)
    return jnp.where(seen, jnp.where(seen, value, 1.0) - family.mean(theta), 0.0)


@_canonical_rows.defjvp
def _canonical_rows_jvp(family: Family, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (theta, value), (change, _) = primals, tangents
    return _canonical_rows(family, theta, value), jnp.sum(_residual(family, theta, value) * change, axis=-1)


class FamilyCells(dist.Distribution):
    """Rows of independent cells given their natural parameters; the event is one row.

    Args:
        family: of the cells.
        theta: natural parameters, shape (num_observations, num_features), with one more axis for
            `zoo.exponential_family.Categorical`, and flat for `zoo.exponential_family.ByColumn`. A
            `zoo.exponential_family.natural_params.LowRank` stands for them where each cell has one.
        cut_points: of `zoo.exponential_family.Ordinal` columns, shape (number of them, num_levels - 1).
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("family", "given_theta", "cut_points")

    def __init__(self, family: Family, theta: Array | LowRank, cut_points: Array | None = None) -> None:
        self.family, self.given_theta, self.cut_points = family, theta, cut_points
        shape = jax.eval_shape(lambda: self.theta).shape
        super().__init__(batch_shape=shape[:1], event_shape=family.row_shape(shape))

    @property
    def theta(self) -> Array:
        """The matrix of natural parameters."""
        return self.given_theta.whole() if isinstance(self.given_theta, LowRank) else self.given_theta

    def log_prob(self, value: Array) -> Array:
        """Log density of each row over its observed cells, in nats; NaN is missing."""
        if self.family.log_partition_form in ("logistic", "exponential"):
            rows = partial(_canonical_rows, self.family)
            if isinstance(self.given_theta, LowRank) and self.given_theta.is_large:
                return self.given_theta.row_sums_with(partial(_residual, self.family), rows, value)
            return rows(self.theta, value)
        return jnp.sum(self.log_cells(value), axis=-1)

    def log_cells(self, value: Array) -> Array:
        """Log density of each cell, zero where it is missing.

        Args:
            value: shape (..., num_features), NaN where a cell is missing.

        Returns:
            The shape of ``value``, in nats.
        """
        seen = ~jnp.isnan(value)
        filled = jnp.where(seen, value, 1.0)  # a value of every family: no NaN enters a gradient
        return jnp.where(seen, self.family.log_density_at(self.theta, filled, self.cut_points), 0.0)

    def mean_and_variance(self) -> tuple[Array, Array]:
        """Mean and variance of every cell; for a class the most probable one, and p (1 - p) of it.

        Returns:
            Two arrays of shape (num_observations, num_features).
        """
        return self.family.mean_and_variance(self.theta, self.cut_points)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Rows drawn cell by cell, as floating-point numbers."""
        return self.family.sample(key, self.theta, self.cut_points, sample_shape)


CUT_POINT_SCALE = 5.0  # standard deviation of cut points before they are put in order
LEAST_NOISE = 1e-6  # of a start


def _params_with_mean(family: Family, num_features: int) -> tuple[int, ...]:
    """Places of the natural parameters of a row that have a mean: not those of ordinal columns."""
    without = set(family.level_columns(num_features))
    return tuple(p for p, column in enumerate(family.param_columns(num_features)) if column not in without)


def sample_view_parameters(
    family: Family,
    num_features: int,
    loc_variance: Array,
    suffix: str = "",
    noise: bool = True,
    unit: Array | None = None,
) -> dict[str, Array]:
    """The sites of a view, drawn from their priors.

    Args:
        family: of the cells.
        num_features: D.
        loc_variance: prior variance of the mean.
        suffix: of the sites' names.
        noise: whether a Gaussian of unknown variance has a noise variance.
        unit: in which the natural parameters of a row are measured, shape (num_params,); None: one.

    Returns:
        Value of each site by name, in the shapes that the program gives them.
    """
    values, levels = {}, family.level_columns(num_features)
    if levels:
        base = dist.Normal(0.0, CUT_POINT_SCALE).expand([len(levels), family.num_cut_points]).to_event(1)
        ordered = dist.TransformedDistribution(base, dist.transforms.OrderedTransform())
        values["cut_points"] = numpyro.sample(f"cut_points{suffix}", ordered.to_event(1))
    places = _params_with_mean(family, num_features)
    if places:
        mean = dist.Normal(0.0, jnp.sqrt(loc_variance)).expand([len(places)]).to_event(1)
        own = padded(
            mean, places, family.num_params(num_features), None if unit is None else unit[np.asarray(places)]
        )
        values["loc"] = numpyro.sample(f"loc{suffix}", own)
    if noise and family.learns_noise:
        values["noise_variance"] = numpyro.sample(f"noise_variance{suffix}", dist.InverseGamma(1.0, 1.0))
    return {f"{name}{suffix}": value for name, value in values.items()}


def starting_view_parameters(
    family: Family, x: Array, suffix: str = "", noise: bool = True
) -> dict[str, Array]:
    """Starting values of the sites of a view: columns' smoothed means, evenly spread levels, the variance.

    Args:
        family: of the cells.
        x: the view, shape (num_observations, num_features).
        suffix: of the sites' names.
        noise: whether a Gaussian of unknown variance has a noise variance.

    Returns:
        Value of each site by name, in the shapes that the program gives them.
    """
    values, levels = {}, family.level_columns(x.shape[1])
    if levels:
        shares = jnp.arange(1, family.num_cut_points + 1) / (family.num_cut_points + 1)
        values["cut_points"] = jnp.tile(jnp.log(shares) - jnp.log1p(-shares), (len(levels), 1))
    if _params_with_mean(family, x.shape[1]):
        values["loc"] = family.natural_of_columns(x)
    if noise and family.learns_noise:
        values["noise_variance"] = jnp.maximum(jnp.mean(jnp.nanvar(x, axis=0)), LEAST_NOISE)
    return {f"{name}{suffix}": value for name, value in values.items()}


def starting_sizes(family: Family, loc: Array, unit: Array | None, num_features: int) -> Array:
    """The size of natural parameters of a row at the start: their unit, or less where they must be negative.

    Args:
        family: of the cells.
        loc: their means, shape (num_params,).
        unit: as for `sample_view_parameters`.
        num_features: cells of a row.

    Returns:
        Shape (num_params,); a change much smaller than it leaves theta negative where it must be.
    """
    sizes = jnp.ones_like(loc) if unit is None else unit
    return jnp.where(family.negative_params(num_features), jnp.minimum(sizes, jnp.abs(loc)), sizes)


def cells_of(
    family: Family, theta: Array | LowRank, values: Mapping[str, Array], suffix: str = ""
) -> FamilyCells:
    """The distribution of rows at flat natural parameters and given values of the sites.

    Args:
        family: of the cells.
        theta: flat natural parameters, shape (num_observations, num_params), whole or by their factors.
        values: of the sites.
        suffix: of the sites' names.

    Returns:
        Distribution with batch shape (num_observations,) and event shape (num_features,).
    """
    if isinstance(theta, LowRank) and (family.is_mixed or family.params_per_cell > 1):
        theta = theta.whole()
    if f"noise_variance{suffix}" in values:
        family = family.with_noise(values[f"noise_variance{suffix}"])
    shaped = theta if isinstance(theta, LowRank) else family.shaped(theta)
    return FamilyCells(family, shaped, values.get(f"cut_points{suffix}"))
