r"""Components of count vectors: the multinomial with a Dirichlet prior.

The coefficient :math:`n! / \prod_j x_j!` of each row is part of the density and of the bound. (A model of the
single tokens, as in Yu 2006, section 2.1.3, leaves it out: its bound is lower by a constant of the data.)

Rows may be sparse (`zoo.SparseCounts`): then neither the rows nor anything of their size is ever made dense.

Reference: Yu (2006), Table 2.1 and section 2.2.4, whose update sums over words with a shadowed index.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from zoo.answers import TypicalCells
from zoo.checks import as_matrix, check_cells, check_columns, check_finite, check_lengths
from zoo.conjugate.component_prior import (
    ComponentPrior,
    Estimate,
    best_dirichlet,
    broadcast_fields,
    expected_log_probs,
    floored_shares,
    log_dirichlet_normaliser,
    num_columns,
    safe_log,
)
from zoo.fields import positive, static
from zoo.shapes import (
    Assignments,
    Features,
    OneOrMore,
    OneOrMoreStatistics,
    RowOrRows,
    Rows,
    RowsByComponent,
    Scalar,
    Statistics,
    Values,
)
from zoo.sparse import SparseCounts
from zoo.supports.small_probabilities import Dirichlet


class CountRow(dist.Distribution):
    """The multinomial density of a row of counts, whatever its total; to draw, the total must be given.

    Args:
        probs: shape (..., num_features).
        total_count: of the rows to be drawn, a number or one per row.
    """

    support = dist.constraints.independent(dist.constraints.nonnegative_integer, 1)
    pytree_data_fields = ("probs", "total_count")

    def __init__(self, probs: Array, total_count: Any = None) -> None:
        self.probs, self.total_count = probs, total_count
        super().__init__(probs.shape[:-1], probs.shape[-1:])

    def log_prob(self, value: Array) -> Array:
        """Log density in nats."""
        return jnp.sum(value * safe_log(self.probs), axis=-1) + _log_coefficient(value)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Counts, as floats.

        Raises:
            ValueError: ``num_tokens`` is not set.
        """
        if self.total_count is None:
            raise ValueError("num_tokens is not set: the program needs the total count of each row it draws")
        most = int(np.max(self.total_count))
        rows = dist.Multinomial(jnp.asarray(self.total_count), self.probs, total_count_max=most)
        return jnp.asarray(rows.sample(key, sample_shape), jnp.result_type(float))


class CountFeatures(NamedTuple):
    """The features of sparse rows as a left or a right factor of matrix products.

    Attributes:
        counts: the rows.
    """

    counts: SparseCounts

    def __matmul__(self, by_statistic: Array) -> Array:
        """Features times a matrix of shape (num_statistics, K): (num_observations, K)."""
        constant, by_word, by_coefficient = by_statistic[0], by_statistic[1:-1], by_statistic[-1]
        coefficient = self.counts.log_coefficients[:, None] * by_coefficient
        return constant + self.counts.times(by_word) + coefficient

    def __rmatmul__(self, by_row: Array) -> Array:
        """A matrix of shape (K, num_observations) times the features: (K, num_statistics)."""
        ends = jnp.stack([jnp.sum(by_row, axis=1), by_row @ self.counts.log_coefficients], axis=1)
        words = self.counts.transposed_times(by_row.T).T
        return jnp.concatenate([ends[:, :1], words, ends[:, 1:]], axis=1)


@dataclass(frozen=True, eq=False)
class MultinomialDirichlet(ComponentPrior):
    r"""Counts: :math:`x \sim \mathrm{Multinomial}(n, p_k)`, :math:`p_k \sim \mathrm{Dirichlet}(\xi)`.

    Attributes:
        concentration: :math:`\xi_j > 0`, shape (num_features,), prior pseudo-counts; or a ``Gamma``.
        num_tokens: total counts of the rows that the program draws without data: a number, or a tuple with
            one per row; not needed to condition on data.
    """

    concentration: Array | dist.Distribution | None = positive(
        None, ("feature",), prior=(dist.Gamma,), is_concentration=True
    )
    num_tokens: int | tuple[int, ...] | None = static(
        None, check=lambda name, value, _: check_lengths(name, value)
    )

    posterior_dims = {"concentration": ("component", "feature")}
    parameter_dims = {"probs": ("component", "feature")}
    has_correlations = True
    learnable = ("concentration",)
    takes_sparse = True
    has_counts = True

    @property
    def num_features(self) -> int:
        """Number of columns (words)."""
        return num_columns(self.concentration)

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: np.ndarray | None = None, **overrides: Any) -> Self:
        """Uniform on the simplex unless ``concentration`` is given.

        Args:
            x: counts, shape (num_observations, num_features), dense or sparse.
            sample_weight: weight of each row; the prior does not depend on it.
            **overrides: ``concentration``, a number or one per column.

        Returns:
            The prior.
        """
        is_sparse = isinstance(x, SparseCounts) or hasattr(x, "tocoo")
        num_features = x.shape[1] if is_sparse else as_matrix(x).shape[1]
        return cls(**broadcast_fields({"concentration": 1.0} | overrides, ("concentration",), num_features))

    def check(self, x: np.ndarray | SparseCounts) -> None:
        """Raise ValueError if ``x`` cannot come from this family."""
        check_columns(x, self.num_features)
        if isinstance(x, SparseCounts):
            return  # checked when it was made
        check_finite(x)
        check_cells(x, (x >= 0) & (x == np.round(x)), "counts: whole numbers of at least 0")

    def conditionals(self, values: Values) -> dict[str, dist.Distribution]:
        """The probabilities."""
        return {"probs": Dirichlet(jnp.asarray(self.concentration))}

    def likelihood(self, parameters: Values) -> dist.Distribution:
        """The density of one row under each component, batch shape (num_components,)."""
        return CountRow(parameters["probs"], self.num_tokens)

    def typical_cells(self, parameters: Values) -> tuple[TypicalCells, ...]:
        """Shares of the columns in a row's counts; see `ComponentPrior.typical_cells`."""
        return (TypicalCells("share of counts", np.arange(self.num_features), parameters["probs"], None),)

    def likelihood_of(self, parameters: Values, assignments: Array) -> dist.Distribution:
        """The density of each row under the component it is assigned to, batch shape of ``assignments``."""
        return CountRow(parameters["probs"][assignments], self.num_tokens)

    def features(self, x: RowOrRows | SparseCounts) -> Features | CountFeatures:
        """``[1, counts, log coefficient]``; of sparse rows an object that supports products only."""
        if isinstance(x, SparseCounts):
            return CountFeatures(x)
        return jnp.concatenate([jnp.ones_like(x[..., :1]), x, _log_coefficient(x)[..., None]], axis=-1)

    def statistics(self, x: Rows | SparseCounts, assignments: Assignments, num_components: int) -> Statistics:
        """Sums of `features` over the rows of each component, shape (num_components, num_statistics)."""
        if not isinstance(x, SparseCounts):
            return super().statistics(x, assignments, num_components)
        return jax.nn.one_hot(assignments, num_components, axis=0) @ self.features(x)

    def log_predictive(self, x: Rows | SparseCounts) -> RowsByComponent:
        """Log Dirichlet-multinomial density of rows under every component of a posterior, in nats.

        Shape (num_observations, num_components).
        """
        if not isinstance(x, SparseCounts):
            return super().log_predictive(x)
        concentration = jnp.asarray(self.concentration)
        total = jnp.sum(concentration, axis=-1)

        def grown(document: Array, word: Array, count: Array) -> Array:
            prior = concentration[:, word].T
            return gammaln(prior + count[:, None]) - gammaln(prior) - gammaln(count + 1)[:, None]

        words = x.sum_by_document(grown)
        tokens = x.totals[:, None]
        return words + gammaln(total) - gammaln(total + tokens) + gammaln(tokens + 1)

    def posterior(self, statistics: OneOrMoreStatistics) -> Self:
        """The posterior of each component, given weighted sums of `features`."""
        return self.replaced(concentration=self.concentration + statistics[..., 1:-1])

    def expected_coefficients(self, posterior: Self) -> Statistics:
        """Coefficients of ``E_posterior[log p(x | component)]`` on `features`."""
        return _with_ends(expected_log_probs(jnp.asarray(posterior.concentration)))

    def coefficients(self, parameters: Values) -> Statistics:
        """Coefficients of ``log p(x | component)`` on `features`, for given parameter values."""
        return _with_ends(safe_log(parameters["probs"]))

    def log_evidence(self, statistics: OneOrMoreStatistics) -> OneOrMore:
        """Log probability of the rows of each component with its probabilities integrated out, in nats."""
        prior = jnp.asarray(self.concentration)
        own = log_dirichlet_normaliser(prior + statistics[..., 1:-1])
        return own - log_dirichlet_normaliser(prior) + statistics[..., -1]

    def maximum_likelihood(self, statistics: Statistics, variance_floor: float | Scalar) -> Estimate:
        """The probabilities."""
        return Estimate({"probs": floored_shares(statistics[:, 1:-1])}, jnp.zeros((), int))

    def num_free_parameters(self, num_components: int) -> int:
        """A point of the simplex for each component."""
        return num_components * (self.num_features - 1)

    def learnt(self, posterior: Self, given: Self, learn: tuple[str, ...]) -> Self:
        """The prior with its concentration moved to where the variational bound is highest."""
        average = expected_log_probs(posterior.concentration)
        return self.replaced(concentration=best_dirichlet(jnp.mean(average, axis=0)))


def _with_ends(middle: Array) -> Array:
    lead = middle.shape[:-1]
    return jnp.concatenate([jnp.zeros((*lead, 1)), middle, jnp.ones((*lead, 1))], axis=-1)


def _log_coefficient(x: Array) -> Array:
    return gammaln(jnp.sum(x, axis=-1) + 1) - jnp.sum(gammaln(x + 1), axis=-1)
