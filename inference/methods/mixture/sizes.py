"""Mixtures of up to so many components in one size, so that one program steps them all.

Steps take a mixture of K components with `SIZE` or a multiple of it. What is beyond K has no share in the
prior of the weights: no row comes to it, its sums stay zero, and the evidence of no rows is one. K itself, by
which the prior of the weights divides, is a number of the program. Starts, draws and whatever a fit tells are
of the K components alone.

Not so where a component too many is dear or does not leave the others as they are: many cells, cells that are
missing under full covariances, a parameter that components share, sparse counts, and a free last stick.
"""

from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln

from inference.numerics.weighted_rows import bucket, next_to_none, padded, unweighted
from zoo.conjugate.component_prior import ComponentPrior
from zoo.dirichlet_process import BetaDecay, DirichletAllocation, StickBreaking
from zoo.mixture import Mixture
from zoo.shapes import PerComponent, Scalar
from zoo.sparse import SparseCounts

SIZE = 8
MOST_PRODUCTS = 2**17  # of two cells of a row, in all rows: more make each component dear


class SizedAllocation(NamedTuple):
    """`zoo.dirichlet_process.DirichletAllocation` over the components that are there.

    Attributes:
        present: which are, shape (num_slots,).
    """

    present: Array

    @property
    def has_sticks(self) -> bool:
        """Whether the weights are made of sticks."""
        return False

    @property
    def num_components(self) -> Array:
        """K."""
        return self.present.sum()

    def posterior(self, counts: PerComponent, concentration: Scalar) -> dist.Dirichlet:
        """The weights given rows per component; what is not there has next to no share."""
        return dist.Dirichlet(
            jnp.where(self.present, concentration / self.num_components + counts, next_to_none(counts))
        )

    def log_normaliser(self, q: dist.Dirichlet) -> Scalar:
        """Log of the integral of the kernel of a `posterior`, in nats."""
        own = jnp.where(self.present, gammaln(q.concentration), 0.0)
        return jnp.sum(own) - gammaln(jnp.sum(q.concentration))

    def expected_log_weights(self, q: dist.Dirichlet) -> PerComponent:
        """E[log weights] under a `posterior`."""
        return DirichletAllocation(q.concentration.shape[-1]).expected_log_weights(q)

    def sum_of_expected_logs(self, q: dist.Dirichlet) -> Scalar:
        """The sum of E[log weights] under a `posterior`."""
        return jnp.sum(jnp.where(self.present, self.expected_log_weights(q), 0.0))


class SizedSticks(NamedTuple):
    """`zoo.dirichlet_process.StickBreaking` over the components that are there.

    Attributes:
        present: which are, the first so many, shape (num_slots,).
    """

    present: Array

    @property
    def has_sticks(self) -> bool:
        """Whether the weights are made of sticks."""
        return True

    @property
    def num_components(self) -> Array:
        """K."""
        return self.present.sum()

    @property
    def num_sticks(self) -> Array:
        """Number of random sticks."""
        return self.num_components - 1

    def posterior(self, counts: PerComponent, concentration: Scalar) -> BetaDecay:
        """The sticks given rows per component; from the last component on they take nothing."""
        q = StickBreaking(counts.shape[-1]).posterior(counts, concentration)
        random = self.present[1:]
        return BetaDecay(
            jnp.where(random, q.concentration1, next_to_none(counts)),
            jnp.where(random, q.concentration0, 1.0),
        )

    def best_order(self, counts: PerComponent, concentration: Scalar) -> Array:
        """The order of the components that maximises the bound for given counts."""
        return StickBreaking(self.num_components).best_order(counts, concentration)

    def expected_log_weights(self, q: BetaDecay) -> PerComponent:
        """E[log weights] under a `posterior`, that of the last stick zero."""
        total, random = digamma(q.concentration1 + q.concentration0), self.present[1:]
        left = digamma(q.concentration0) - total
        taken = jnp.append(jnp.where(random, digamma(q.concentration1) - total, 0.0), 0.0)
        own = jnp.where(self.present, taken, -1 / next_to_none(taken))
        return own + jnp.append(0.0, jnp.cumsum(left))

    def log_normaliser(self, q: BetaDecay) -> Scalar:
        """Log of the integral of the kernels of a `posterior`, in nats."""
        a, b = q.concentration1, q.concentration0
        return jnp.sum(jnp.where(self.present[1:], gammaln(a) + gammaln(b) - gammaln(a + b), 0.0))


class SizedMixture(NamedTuple):
    """A mixture as steps take it.

    Attributes:
        components: of the model.
        concentration: of the model.
        weights: of the components that are there.
    """

    components: ComponentPrior
    concentration: Array | dist.Distribution
    weights: SizedAllocation | SizedSticks

    @property
    def has_random_concentration(self) -> bool:
        """Whether the concentration has a prior."""
        return isinstance(self.concentration, dist.Distribution)

    @property
    def num_components(self) -> Array:
        """K."""
        return self.weights.num_components

    def replaced(self, **fields: Any) -> Self:
        """A copy with some fields replaced."""
        return self._replace(**fields)


def in_shared_shapes(model: Mixture, data: tuple) -> tuple[Mixture | SizedMixture, tuple]:
    """Model and data in the sizes that steps take, which many share: of rows a `bucket`."""
    return _sized(model, unweighted(data[0])), padded(data)


def _sized(model: Mixture, x: Any) -> Mixture | SizedMixture:
    family = model.components
    is_dear = isinstance(x, SparseCounts) or bucket(x.shape[0]) * x.shape[1] ** 2 > MOST_PRODUCTS
    if is_dear or family.is_incomplete or family.couples_components or model.free_last_stick:
        return model
    present = np.arange(-(-model.num_components // SIZE) * SIZE) < model.num_components
    weights = SizedSticks(present) if model.weights.has_sticks else SizedAllocation(present)
    return SizedMixture(family, model.concentration, weights)


def with_others(values: Array, model: Mixture | SizedMixture, other: Array | float = 0.0) -> Array:
    """Values by component (first axis), as many as the model has; those beyond K are ``other``."""
    size = model.weights.present.shape[0] if isinstance(model, SizedMixture) else model.num_components
    more = jnp.broadcast_to(other, (max(size - values.shape[0], 0), *values.shape[1:]))
    return jnp.concatenate([values[:size], more.astype(values.dtype)])
