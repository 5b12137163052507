"""Families of cells with more than two classes or levels; they have no conjugate kernel in one number."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import check_whole
from zoo.exponential_family.family import Family
from zoo.model import static

__all__ = ["Categorical", "Ordinal"]


@dataclass(frozen=True, eq=False)
class Categorical(Family):
    """One of C classes, numbered from 0, by C - 1 natural parameters: log odds against class 0.

    Attributes:
        num_classes: C, at least 2.
    """

    num_classes: int = static(default=2)
    has_kernel = False

    def validate(self) -> None:
        """Raise ValueError if there are fewer than two classes."""
        check_whole("num_classes", self.num_classes, 2)

    @property
    def domain(self) -> str:
        """What cells may be."""
        return f"classes numbered from 0 to {self.num_classes - 1}"

    @property
    def params_per_cell(self) -> int:
        """C - 1."""
        return self.num_classes - 1

    def natural_of_columns(self, x: Array) -> Array:
        """Log odds of every column's shares, smoothed, flat with those of a column together."""
        counts = jnp.sum(x[..., None] == jnp.arange(self.num_classes), axis=0) + 1.0
        return (jnp.log(counts[:, 1:]) - jnp.log(counts[:, :1])).ravel()

    def log_probs(self, theta: Array) -> Array:
        """Log probability of each class.

        Args:
            theta: shape (..., C - 1); the first class has zero.

        Returns:
            Shape (..., C), in nats.
        """
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros_like(theta[..., :1]), theta], axis=-1), axis=-1)

    def log_density(self, theta: Array, x: Array) -> Array:
        """Log probability of each cell's class; theta has one more axis than x."""
        return jnp.take_along_axis(self.log_probs(theta), x.astype(int)[..., None], axis=-1)[..., 0]

    def mean_and_variance(self, theta: Array, cut_points: Array | None) -> tuple[Array, Array]:
        """The most probable class, and p (1 - p) of it."""
        probs = jnp.exp(self.log_probs(theta))
        top = jnp.max(probs, axis=-1)
        return jnp.argmax(probs, axis=-1).astype(theta.dtype), top * (1.0 - top)

    def distribution(self, theta: Array) -> dist.Distribution:
        """Categorical."""
        return dist.Categorical(logits=self.log_probs(theta))

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole, from 0 to C - 1."""
        return (x >= 0) & (x < self.num_classes) & (x == np.floor(x))


@dataclass(frozen=True, eq=False)
class Ordinal(Family):
    """One of C ordered levels, numbered from 1, by cumulative logits: P(x <= c) = sigmoid(cut_c - theta).

    The C - 1 cut points of a column rise, and belong to the model's sites.

    Attributes:
        num_levels: C, at least 2.
    """

    num_levels: int = static(default=5)
    has_kernel = False

    def validate(self) -> None:
        """Raise ValueError if there are fewer than two levels."""
        check_whole("num_levels", self.num_levels, 2)

    @property
    def domain(self) -> str:
        """What cells may be."""
        return f"levels from 1 to {self.num_levels}"

    @property
    def num_cut_points(self) -> int:
        """C - 1."""
        return self.num_levels - 1

    def log_density_at(self, theta: Array, x: Array, cut_points: Array) -> Array:
        """Log probability of each cell's level: the log of a difference of sigmoids, without cancellation.

        Args:
            theta: shape (..., num_features).
            x: levels from 1 to C, shape (..., num_features).
            cut_points: rising in each row, shape (num_features, C - 1).

        Returns:
            Shape (..., num_features), in nats.
        """
        column = jnp.arange(cut_points.shape[0])
        level = x.astype(int)
        upper = cut_points[column, jnp.clip(level - 1, 0, self.num_levels - 2)] - theta
        lower = cut_points[column, jnp.clip(level - 2, 0, self.num_levels - 2)] - theta
        gap = jnp.where((level > 1) & (level < self.num_levels), upper - lower, 1.0)
        between = jax.nn.log_sigmoid(upper) + jax.nn.log_sigmoid(-lower) + jnp.log(-jnp.expm1(-gap))
        ends = jnp.where(level == 1, jax.nn.log_sigmoid(upper), jax.nn.log_sigmoid(-lower))
        return jnp.where((level > 1) & (level < self.num_levels), between, ends)

    def level_probs(self, theta: Array, cut_points: Array) -> Array:
        """Probability of each level.

        Args:
            theta: shape (..., num_features).
            cut_points: rising in each row, shape (num_features, C - 1).

        Returns:
            Shape (..., num_features, C).
        """
        below = jax.nn.sigmoid(cut_points - theta[..., None])
        ends = jnp.zeros_like(below[..., :1]), jnp.ones_like(below[..., :1])
        return jnp.diff(jnp.concatenate([ends[0], below, ends[1]], axis=-1), axis=-1)

    def mean_and_variance(self, theta: Array, cut_points: Array) -> tuple[Array, Array]:
        """Of the levels as numbers."""
        probs = self.level_probs(theta, cut_points)
        levels = jnp.arange(1, self.num_levels + 1)
        mean = probs @ levels
        return mean, probs @ levels**2 - mean**2

    def sample(self, key: Array, theta: Array, cut_points: Array, shape: tuple[int, ...]) -> Array:
        """Levels."""
        probs = self.level_probs(theta, cut_points)
        drawn = jax.random.categorical(key, jnp.log(probs), shape=shape + probs.shape[:-1]) + 1
        return drawn.astype(theta.dtype)

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Whole, from 1 to C."""
        return (x >= 1) & (x <= self.num_levels) & (x == np.floor(x))
