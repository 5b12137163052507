"""Rows of a mixture: their distribution under their components, and what follows from it in closed form."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, override

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import logsumexp

from zoo.answers import Answers, TypicalCells
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.resolution import check_resolved
from zoo.dirichlet_process import compact_labels
from zoo.shapes import PerRow, Rows, RowsByComponent, Scores, Values
from zoo.sparse import Observed, SparseCounts

if TYPE_CHECKING:
    from zoo.mixture import Mixture

ERRORS = "rounding_errors"  # site of cells recorded in steps
RARE = 0.05  # chance below which the prior does not expect all components to hold rows


class MixtureRows(dist.Distribution):
    """Rows, each under the component of its label, or with the labels summed out.

    Args:
        family: of the components.
        theta: parameters of all components.
        log_weights: of the components, shape (num_components,), up to a constant.
        labels: component of each row, shape (num_observations,), or None: summed out.
        num_rows: number of rows.
        errors: of cells that were recorded in steps, in these steps, shape (num_observations, num_features),
            or None: integrated out, if there are any.
    """

    pytree_data_fields = ("family", "theta", "log_weights", "labels", "row", "moves")

    def __init__(
        self,
        family: ComponentPrior,
        theta: Values,
        log_weights: Array,
        labels: Array | None,
        num_rows: int,
        errors: Array | None = None,
    ) -> None:
        self.moves = None if errors is None else errors * family.rounding
        family = family if errors is None else family.exact()
        self.family, self.theta, self.log_weights, self.labels = family, dict(theta), log_weights, labels
        if labels is None:
            weights = dist.Categorical(logits=log_weights)
            self.row = dist.MixtureSameFamily(weights, family.likelihood(theta)).expand((num_rows,))
        else:
            self.row = family.likelihood_of(theta, labels)
        super().__init__(self.row.batch_shape, self.row.event_shape, validate_args=False)

    @property
    def support(self) -> dist.constraints.Constraint:
        """That of a row under any component."""
        return self.row.support

    def log_prob(self, value: Rows | SparseCounts) -> PerRow:
        """Log density of each row, in nats; of sparse rows without making them dense."""
        if not isinstance(value, SparseCounts):
            return self.row.log_prob(value if self.moves is None else value - self.moves)
        scores = _scores(self.family, self.theta, value)
        if self.labels is None:
            return logsumexp(scores + jax.nn.log_softmax(self.log_weights), axis=-1)
        return jnp.take_along_axis(scores, self.labels[:, None], axis=-1)[:, 0]

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Rows:
        """Rows, dense."""
        rows = self.row.sample(key, sample_shape)
        return rows if self.moves is None else rows + self.moves


def exact_rows(model: "Mixture", values: Values, x: Any) -> tuple[Any, Any]:
    """The mixture of exact rows, and the rows before they were recorded in steps, where errors are drawn.

    Args:
        model: the mixture.
        values: of the sites; ``rounding_errors`` in steps, or none.
        x: rows as recorded.

    Returns:
        Both as they are where cells are exact or errors are integrated out.
    """
    if ERRORS not in values or not model.components.is_rounded:
        return model, x
    exact = model.replaced(components=model.components.exact())
    return exact, x - values[ERRORS] * model.components.rounding


def _scores(family: ComponentPrior, values: Values, x: Any) -> RowsByComponent:
    """Log density of each row under each component."""
    if family.is_rounded:
        return family.likelihood(values).log_prob(x[:, None])
    return family.features(x) @ family.coefficients(values).T


def log_joint_rows(model: "Mixture", values: Values, x: Rows | SparseCounts) -> RowsByComponent:
    """Log joint density of each row and label, ``log pi_k + log p(x_i | theta_k)``.

    Args:
        model: the mixture.
        values: of the sites.
        x: rows, shape (num_observations, num_features), or sparse counts.

    Returns:
        Shape (num_observations, num_components), in nats; of weights that sum to less than one (a free last
        stick) their shares count: the missing mass is a factor of the program and not of a row.
    """
    log_weights = jax.nn.log_softmax(model.weights.log_weights(values))
    model, x = exact_rows(model, values, x)
    return _scores(model.components, values, x) + log_weights


class MixtureAnswers(Answers):
    """Of rows under components of a conjugate family, whose labels are the site ``assignments``."""

    weighs_rows = True

    @override
    def log_rows(self, model: "Mixture", values: Values, x: Rows | SparseCounts) -> PerRow:
        return logsumexp(log_joint_rows(model, values, x), axis=-1)

    @override
    def density_passes(self, model: "Mixture") -> int:
        return model.components.density_passes

    @override
    def conditionals(
        self, model: "Mixture", values: Values, x: Rows | SparseCounts
    ) -> dict[str, dist.Distribution]:
        return {"assignments": dist.Categorical(logits=log_joint_rows(model, values, x))}

    @override
    def derived(self, model: "Mixture", values: Values) -> dict[str, Array]:
        labels, num_occupied = compact_labels(values["assignments"], model.num_components)
        return {"assignments": labels, "num_occupied": num_occupied}

    @override
    def scores(
        self, model: "Mixture", values: Values, x: Rows | SparseCounts, *, kind: str = "latent"
    ) -> Scores:
        if kind != "latent":
            raise ValueError(f"a mixture has one kind of scores, the responsibilities; got {kind!r}")
        return jax.nn.softmax(log_joint_rows(model, values, x), axis=-1)

    @override
    def log_density_by_cluster(self, model: "Mixture", values: Values, x: Rows) -> RowsByComponent:
        return _scores(model.components, values, x)

    @override
    def typical_cells(self, model: "Mixture", values: Values) -> tuple[TypicalCells, ...]:
        return model.components.typical_cells(values)

    @override
    def cells_given(self, model: "Mixture", values: Values, x: Rows) -> tuple[TypicalCells, ...]:
        return model.components.cells_given(values, x)

    @override
    def leaves_some_empty(self, model: "Mixture", num_rows: float) -> bool:
        r"""Whether the prior gives rows in all components less than one chance in twenty.

        A component has no row with probability :math:`E[(1 - \pi_k)^n]`; under Dirichlet weights this is a
        ratio of Gamma functions. That components are filled independently of each other is close enough.
        """
        number = model.num_components
        if number < 2 or model.weights.has_sticks:
            return number > 1
        alpha = float(model.expected_concentration)
        others = alpha * (1 - 1 / number)
        log_empty = math.lgamma(alpha) - math.lgamma(others)
        log_empty += math.lgamma(others + num_rows) - math.lgamma(alpha + num_rows)
        return (1 - math.exp(log_empty)) ** number < RARE

    @override
    def check_resolved(
        self, model: "Mixture", values: Mapping[str, Any], num_rows: float, dtype: str, x: Any = None
    ) -> None:
        of_rows = (values.get(model.roles.weight), values.get(model.roles.cluster))
        check_resolved(model.components, values, *of_rows, num_rows, dtype, x)

    @override
    def prior_of_occupied(
        self, model: "Mixture", values: Values, *data: Observed
    ) -> Callable[[str, Array], Array] | None:
        """The log prior density of a site with components without rows integrated out.

        Their parameters and weights are draws from the prior. The weights that are left are those of the
        components with rows and the sum of the others, a Dirichlet vector too; of sticks, those up to the
        last component with rows. Without labels, which tell the components with rows, every term counts.
        """
        if model.roles.cluster not in values:
            return None
        labels, dims = jnp.asarray(values[model.roles.cluster]), model.variable_dims
        occupied = jnp.zeros(model.num_components, bool).at[labels].set(True)

        def density(name: str, log_prob: Array) -> Array:
            if name == model.weights.site:
                alpha = values.get("concentration", model.concentration)
                return model.weights.log_density_of_occupied(values[name], log_prob, alpha, occupied)
            if dims.get(name, ())[:1] == ("component",):
                terms = jnp.sum(log_prob.reshape(model.num_components, -1), axis=1)
                return jnp.sum(jnp.where(occupied, terms, 0.0))
            return jnp.sum(log_prob)

        return density
