"""Cells of an exponential family as a NumPyro distribution over rows, and the parameters of such a table.

Missing cells are left out of the density. Beside its loadings a table has these sites, with the suffix of the
view: ``loc`` (D,), zero where a column has cut points; ``cut_points`` of `zoo.exponential_family.Ordinal`
columns; ``noise_variance`` of a Gaussian of unknown variance. With `Categorical` cells the mean has an entry
for each natural parameter.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.checks import column_scale
from zoo.exponential_family import Family
from zoo.exponential_family.cut_points import cut_points_prior, starting_cut_points
from zoo.exponential_family.natural_params import LowRank, padded
from zoo.shapes import Values


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
        cut_points: of `zoo.exponential_family.Ordinal` columns, shape (number of them, num_levels - 1); flat
            where their numbers of levels differ.
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
    natural_unit: Array | None = None,
) -> dict[str, Array]:
    """The sites of a view, drawn from their priors.

    Args:
        family: of the cells.
        num_features: D.
        loc_variance: prior variance of the mean.
        suffix: of the sites' names.
        noise: whether a Gaussian of unknown variance has a noise variance.
        natural_unit: in which the natural parameters of a row are measured, shape (num_params,); None: one.

    Returns:
        Value of each site by name, in the shapes that the program gives them.
    """
    values = {}
    if family.cut_sizes:
        prior = cut_points_prior(family.cut_counts(num_features))
        values["cut_points"] = numpyro.sample(f"cut_points{suffix}", prior)
    places = _params_with_mean(family, num_features)
    if places:
        mean = dist.Normal(0.0, jnp.sqrt(loc_variance)).expand([len(places)]).to_event(1)
        of_places = None if natural_unit is None else natural_unit[np.asarray(places)]
        own = padded(mean, places, family.num_params(num_features), of_places)
        values["loc"] = numpyro.sample(f"loc{suffix}", own)
    if noise and family.learns_noise:
        values["noise_variance"] = numpyro.sample(f"noise_variance{suffix}", dist.InverseGamma(1.0, 1.0))
    return {f"{name}{suffix}": value for name, value in values.items()}


def in_sizes(loadings: dist.Distribution, sizes: Array | None) -> dist.Distribution:
    """Loadings whose rows are measured in the sizes of their natural parameters.

    Args:
        loadings: Normal, event shape (num_params, num_latents).
        sizes: shape (num_params,); None: one.

    Returns:
        The loadings times the sizes, which samplers move in these.
    """
    k = loadings.event_shape[-1]
    return loadings if sizes is None else padded(loadings, tuple(range(k)), k, sizes[:, None])


def standard_normals(key: Array, *shapes: tuple[int, ...]) -> list[Array]:
    """Draw standard normal arrays in a single call, which compiles faster than one call for each.

    Args:
        key: a JAX key.
        *shapes: of the arrays.

    Returns:
        One array of each shape.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = jnp.split(jax.random.normal(key, (int(ends[-1]),)), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


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
    values = {}
    if family.cut_sizes:
        values["cut_points"] = starting_cut_points(family.cut_counts(x.shape[1]))
    if _params_with_mean(family, x.shape[1]):
        values["loc"] = family.natural_of_columns(x)
    if noise and family.learns_noise:
        variance = jnp.mean(jnp.nanvar(x, axis=0))
        values["noise_variance"] = jnp.where(variance > 0, variance, 1.0)
    return {f"{name}{suffix}": value for name, value in values.items()}


def units_of(x: np.ndarray) -> tuple[np.ndarray, float]:
    """The columns' means and their mean variance, in which default priors of unknown noise are given.

    Args:
        x: a table, shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Means, shape (num_features,), that of all cells where a column has none; and the mean variance, the
        mean square where no column varies, 1 for a table of zeros or without cells.
    """
    seen = np.isfinite(x)
    filled, counts = np.where(seen, x, 0.0), np.maximum(seen.sum(axis=0), 1)
    means = filled.sum(axis=0) / counts
    means = np.where(seen.any(axis=0), means, filled.sum() / max(seen.sum(), 1))
    of_columns = ((filled - means * seen) ** 2).sum(axis=0) / counts
    variance = of_columns.sum() / max(seen.any(axis=0).sum(), 1)
    return means, float(variance or (filled**2).sum() / max(seen.sum(), 1) or 1.0)


def has_units(family: Family) -> bool:
    """Whether the cells are in the unit of the data: Gaussian ones of unknown variance, all columns alike.

    Args:
        family: of the cells.

    Returns:
        True for these cells only.
    """
    return family.learns_noise and not family.is_mixed


def measured_columns(family: Family, num_features: int) -> np.ndarray:
    """The columns that are in the unit of the data: Gaussian ones of unknown variance.

    Args:
        family: of the cells, mixed or not.
        num_features: D.

    Returns:
        Boolean, shape (num_features,).
    """
    found = np.zeros(num_features, bool)
    found[family.noise_columns(num_features)] = True
    return found


def units_of_columns(family: Family, x: np.ndarray, name: str = "x") -> tuple[np.ndarray, np.ndarray]:
    """The means and standard deviations of the columns that are in the unit of the data; 0 and 1 of others.

    Args:
        family: of the cells, mixed or not.
        x: a table, shape (num_observations, num_features), NaN where a cell is missing.
        name: of the table in messages.

    Returns:
        Two arrays of shape (num_features,).

    Raises:
        ValueError: a column that has no standard deviation.
    """
    measured = measured_columns(family, x.shape[1])
    scales = column_scale(x, None, name, measured)
    return np.nanmean(np.where(measured, x, 0.0), axis=0), scales


def without_units(families: Sequence[Family], field: str) -> str:
    """The message for ``standardize=True`` where no cells are in the unit of the data.

    Args:
        families: of the tables.
        field: of the model, that holds them.

    Returns:
        Text.
    """
    names = " and ".join(sorted({type(family).__name__ for family in families}))
    why = f"{names} cells have no unit"
    if any("quadratic" in family.log_partition_forms for family in families):
        why = "cells of known noise are in the unit of that"
    return (
        f"standardize=True is of Gaussian cells of unknown noise, and {why}: leave standardize out, or for "
        f"real numbers give {field} with Gaussian(noise_variance=None)"
    )


def starting_sizes(family: Family, loc: Array, unit: Array | None, num_features: int) -> Array:
    """The size of natural parameters of a row at the start: their unit, or less where they must be negative.

    Args:
        family: of the cells.
        loc: their means, shape (num_params,).
        unit: ``natural_unit`` of `sample_view_parameters`.
        num_features: cells of a row.

    Returns:
        Shape (num_params,); a change much smaller than it leaves theta negative where it must be.
    """
    sizes = jnp.ones_like(loc) if unit is None else unit
    return jnp.where(family.negative_params(num_features), jnp.minimum(sizes, jnp.abs(loc)), sizes)


def cells_of(family: Family, theta: Array | LowRank, values: Values, suffix: str = "") -> FamilyCells:
    """The distribution of rows at flat natural parameters and given values of the sites.

    Args:
        family: of the cells.
        theta: flat natural parameters, shape (num_observations, num_params), whole or by their factors.
        values: of the sites.
        suffix: of the sites' names.

    Returns:
        Distribution with batch shape (num_observations,) and event shape (num_features,).
    """
    if isinstance(theta, LowRank) and (family.is_mixed or family.has_classes):
        theta = theta.whole()
    if f"noise_variance{suffix}" in values:
        family = family.with_noise(values[f"noise_variance{suffix}"])
    shaped = theta if isinstance(theta, LowRank) else family.shaped(theta)
    return FamilyCells(family, shaped, values.get(f"cut_points{suffix}"))
