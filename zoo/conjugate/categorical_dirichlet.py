r"""Components of categories: independent categorical cells with Dirichlet priors.

Cells hold the numbers of their levels, 0 to L - 1; all columns of one prior have the same levels. Columns
with other levels go into another group of `zoo.conjugate.Product`. Missing cells (NaN) are integrated out
exactly: they are left out of the counts.

Reference: Yu (2006), Table 2.1, the multinomial of one draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import as_matrix, check_cells, check_columns, check_infinite, check_size
from zoo.conjugate.component_prior import (
    ComponentPrior,
    Estimate,
    best_dirichlet,
    expected_log_probs,
    floored_shares,
    log_dirichlet_normaliser,
    safe_log,
)
from zoo.conjugate.missing_cells import OrMissing
from zoo.fields import positive, static
from zoo.model import as_hyperparameter
from zoo.shapes import Features, OneOrMore, OneOrMoreStatistics, RowOrRows, Scalar, Statistics, Values
from zoo.supports.small_probabilities import Dirichlet


class _CategoricalCells(dist.Distribution):
    """A row of independent categorical cells; those that are NaN are missing and add nothing.

    Args:
        probs: shape (..., num_features, num_levels).
    """

    support = dist.constraints.independent(OrMissing(dist.constraints.nonnegative_integer), 1)
    pytree_data_fields = ("probs",)

    def __init__(self, probs: Array) -> None:
        self.probs = probs
        super().__init__(probs.shape[:-2], probs.shape[-2:-1])

    def log_prob(self, value: Array) -> Array:
        """Sum over the observed cells, in nats."""
        observed = _indicators(value, self.probs.shape[-1])
        return jnp.sum(observed * safe_log(self.probs), axis=(-2, -1))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Numbers of levels, as floats."""
        drawn = dist.Categorical(probs=self.probs).sample(key, sample_shape)
        return jnp.asarray(drawn, jnp.result_type(float))


@dataclass(frozen=True, eq=False)
class CategoricalDirichlet(ComponentPrior):
    r"""Categories: :math:`x_j \sim \mathrm{Cat}(p_{kj})`, :math:`p_{kj} \sim \mathrm{Dirichlet}(\xi_j)`.

    Attributes:
        concentration: :math:`\xi_{jl} > 0`, shape (num_features, num_levels), cells in prior pseudo-counts.
        levels: names of the levels, which label them in a fit; None: they are numbered.

    Example:
        >>> import numpy as np
        >>> from zoo.conjugate import CategoricalDirichlet
        >>> x = np.random.default_rng(0).integers(0, 3, size=(20, 2))
        >>> CategoricalDirichlet.from_data(x, levels=("low", "middle", "high")).concentration.shape
        (2, 3)
    """

    concentration: Array | None = positive(None, ("feature", "level"), is_concentration=True)
    levels: tuple[str, ...] | None = static(None, convert=lambda levels: tuple(map(str, levels)))

    posterior_dims = {"concentration": ("component", "feature", "level")}
    parameter_dims = {"probs": ("component", "feature", "level")}
    learnable = ("concentration",)
    takes_missing = True

    @property
    def num_features(self) -> int:
        """Number of columns of the data."""
        return (0, 0, *np.shape(self.concentration))[-2]

    @property
    def num_levels(self) -> int:
        """Number of levels of every column."""
        return np.shape(self.concentration)[-1] if np.ndim(self.concentration) > 1 else 0

    def level_starts(self, num_features: int) -> np.ndarray:
        """0 in all columns, shape (num_features,)."""
        return np.zeros(num_features, int)

    def labels_of(
        self, names: Sequence[Any] | None, levels: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        """Names of the levels, where they have names."""
        return {} if self.levels is None else {"level": self.levels}

    @classmethod
    def from_data(
        cls,
        x: Any,
        *,
        sample_weight: np.ndarray | None = None,
        num_levels: int | None = None,
        levels: Any = None,
        concentration: Any = 1.0,
    ) -> Self:
        """Uniform on every simplex unless ``concentration`` is given.

        Args:
            x: numbers of levels and NaN, shape (num_observations, num_features).
            sample_weight: weight of each row; the levels are those of all rows.
            num_levels: L; None: as many as there are names, or else one more than the largest number.
            levels: names of the levels.
            concentration: a number, one for each level, or shape (num_features, num_levels).

        Returns:
            The prior.

        Raises:
            ValueError: no observed cell, and neither ``levels`` nor ``num_levels`` given.
        """
        x = as_matrix(x)
        names = None if levels is None else tuple(map(str, levels))
        if num_levels is None:
            if names is None and np.isnan(x).all():
                raise ValueError("x has no observed cell: give num_levels")
            num_levels = int(np.nanmax(x)) + 1 if names is None else len(names)
        check_size("num_levels", num_levels, 2)
        shape = (x.shape[1], num_levels)
        value = np.broadcast_to(as_hyperparameter("concentration", concentration), shape)
        return cls(concentration=value.copy(), levels=names)

    def validate(self) -> None:
        """Raise ValueError if a field has the wrong shape or is outside its domain."""
        if self.num_levels < 2:
            raise ValueError(
                f"concentration must have at least two levels; got shape {self.concentration.shape}: "
                "CategoricalDirichlet.from_data(x) makes one"
            )
        if self.levels is not None and len(set(self.levels)) != self.num_levels:
            raise ValueError(
                f"levels must be {self.num_levels} different names, as concentration has columns; got "
                f"{self.levels}"
            )

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` (numeric, two-dimensional) cannot come from this family."""
        check_columns(x, self.num_features)
        check_infinite(x)
        inside = (x >= 0) & (x == np.round(x)) & (x < self.num_levels)
        check_cells(x, inside, f"numbers of levels, 0 to {self.num_levels - 1} (or NaN where missing)")

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The probabilities."""
        return {"probs": Dirichlet(jnp.asarray(self.concentration)).to_event(1)}

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return _CategoricalCells(parameters["probs"])

    def features(self, x: RowOrRows) -> Features:
        """``[1, one number per column and level]``: 1 where an observed cell has the level."""
        x = jnp.asarray(x)
        indicators = _indicators(x, self.num_levels)
        flat = indicators.reshape(*x.shape[:-1], self.num_features * self.num_levels)
        return jnp.concatenate([jnp.ones_like(flat[..., :1]), flat], axis=-1)

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        return self.replaced(concentration=self.concentration + self._counts(statistics))

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        return _on_features(expected_log_probs(jnp.asarray(posterior.concentration)))

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return _on_features(safe_log(parameters["probs"]))

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the observed cells of each component, probabilities integrated out, in nats."""
        prior = jnp.asarray(self.concentration)
        own, before = map(log_dirichlet_normaliser, (prior + self._counts(statistics), prior))
        return jnp.sum(own, axis=-1) - jnp.sum(before, axis=-1)

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The probabilities."""
        return Estimate({"probs": floored_shares(self._counts(statistics))}, jnp.zeros((), int))

    def num_free_parameters(self, num_components: int) -> int:
        """A point of the simplex for each component and column."""
        return num_components * self.num_features * (self.num_levels - 1)

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with its concentration moved to where the variational bound is highest."""
        average = jnp.mean(expected_log_probs(posterior.concentration), axis=0)
        return self.replaced(concentration=best_dirichlet(average))

    def _counts(self, statistics: Array) -> Array:
        """Observed cells by column and level, shape (..., num_features, num_levels)."""
        return statistics[..., 1:].reshape(*statistics.shape[:-1], self.num_features, self.num_levels)


def _indicators(x: Array, num_levels: int) -> Array:
    """One where a cell has the level, shape (..., num_features, num_levels); zeros for a missing cell."""
    levels = jnp.arange(num_levels, dtype=x.dtype)
    return (x[..., None] == levels).astype(jnp.result_type(float))


def _on_features(natural: Array) -> Array:
    flat = natural.reshape(*natural.shape[:-2], -1)
    return jnp.concatenate([jnp.zeros_like(flat[..., :1]), flat], axis=-1)
