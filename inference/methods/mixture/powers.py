"""Conjugate families whose rows count to a power, for kernels of `inference.methods.mixture.tempered`."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array


class _Raised:
    """A family beside the power to which its rows count; what does not depend on it is the family's own.

    Attributes:
        family: the prior of a component's parameters.
        power: a scalar.
    """

    def __init__(self, family: Any, power: Array) -> None:
        self.family, self.power = family, power

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node(
            cls, lambda own: ((own.family, own.power), None), lambda _, leaves: cls(*leaves)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.family, name)

    def with_hyperparameters(self, values: Any) -> Self:
        """The family with numbers in place of its hyperpriors."""
        return type(self)(self.family.with_hyperparameters(values), self.power)

    def replaced(self, **fields: Any) -> Self:
        """The family with other fields."""
        return type(self)(self.family.replaced(**fields), self.power)


class OfLikelihood(_Raised):
    """The likelihood of a row given the parameters counts to a power: its statistics are multiplied by it."""

    @property
    def families(self) -> tuple[Self, ...]:
        """Those of groups of columns, to the same power."""
        return tuple(type(self)(family, self.power) for family in self.family.families)

    def exact(self) -> Self:
        """The family of rows whose cells are exact, to the same power."""
        return type(self)(self.family.exact(), self.power)

    def cell_given_others(self, parameters: Any, assignments: Array, x: Array, column: int) -> dist.Normal:
        """A cell of each row given the others and the component, its density to the power."""
        own = self.family.cell_given_others(parameters, assignments, x, column)
        return dist.Normal(own.loc, own.scale / jnp.sqrt(self.power))

    def posterior(self, statistics: Array) -> Any:
        """Of the parameters, the fields with a leading axis over components."""
        return self.family.posterior(self.power * statistics)

    def coefficients(self, parameters: Any) -> Array:
        """Of the log density to the power, shape (num_components, num_statistics)."""
        return self.power * self.family.coefficients(parameters)

    def expected_coefficients(self, posterior: Any) -> Array:
        """Of the expected log density to the power, shape (num_components, num_statistics)."""
        return self.power * self.family.expected_coefficients(posterior)

    def log_evidence(self, statistics: Array) -> Array:
        """Log integral of the prior times the likelihood to the power, shape (num_components,), nats."""
        return self.family.log_evidence(self.power * statistics)


class OfEvidence(_Raised):
    """The evidence of a component's rows counts to a power."""

    def log_evidence(self, statistics: Array) -> Array:
        """Log evidence times the power, shape (num_components,), nats."""
        return self.power * self.family.log_evidence(statistics)

    def expected_coefficients(self, posterior: Any) -> Array:
        """As of the likelihood to the power: where rows are launched, no more."""
        return self.power * self.family.expected_coefficients(posterior)
