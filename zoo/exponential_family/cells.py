"""A matrix of cells of one exponential family as a NumPyro distribution over rows, missing cells left out."""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.exponential_family import Family
from zoo.exponential_family.natural_params import LowRank

__all__ = ["FamilyCells"]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _canonical_rows(family: Family, theta: Array, value: Array) -> Array:
    """Rows of a family with one natural parameter a cell and none of its own; data are taken as constants.

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
        family: what a cell is.
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
        """Natural parameters, made whole."""
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
        """Of every cell, as numbers; of a class the most probable one, and p (1 - p) of it.

        Returns:
            Two arrays of shape (num_observations, num_features).
        """
        return self.family.mean_and_variance(self.theta, self.cut_points)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Rows drawn cell by cell, as floating-point numbers."""
        return self.family.sample(key, self.theta, self.cut_points, sample_shape)
