r"""Statistics of the clusters of a Polya urn: a row is put where its predictive densities decide.

Three classes of one interface. `EvidenceStatistics` serves any conjugate family whose components are
independent given the labels: the predictive density is a difference of log evidences. `StudentStatistics`
serves the Gaussian-Wishart, whose predictive is the Student-t

.. math::
    \log t_k(x) = \log \frac{\Gamma(\frac{\nu_k + 1}{2})}{\Gamma(\frac{\nu_k + 1 - d}{2})}
    + \frac{d}{2} \log \frac{\beta_k}{\pi (\beta_k + 1)} + \frac{1}{2} \log |W_k|
    - \frac{\nu_k + 1}{2} \log\Big(1 + \frac{\beta_k}{\beta_k + 1} (x - m_k)' W_k (x - m_k)\Big),

by rank-one changes of :math:`W_k` and :math:`\log |W_k|` (Sherman-Morrison): O(d^2) per cluster and row.
`SharedStudentStatistics` serves one covariance for all clusters: W and :math:`\nu`, the degrees of freedom
that all rows have brought, are one matrix and one number there, and a row changes what is said of every
cluster.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from inference.methods.mixture.powers import OfEvidence, OfLikelihood
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.gaussian import GaussianWishart, SharedGaussianWishart, log_det
from zoo.gamma_functions import gammaln


class EvidenceStatistics(NamedTuple):
    """Summed features and log evidence of each cluster.

    Attributes:
        sums: shape (num_slots, num_statistics).
        evidence: log evidence, shape (num_slots,), nats.
    """

    sums: Array
    evidence: Array

    @staticmethod
    def rows(components: ComponentPrior, x: Array) -> Array:
        """Features of the rows, which the other methods take.

        Args:
            components: the prior of a cluster's parameters.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_statistics).
        """
        return components.features(x)

    @classmethod
    def of(
        cls, components: ComponentPrior, rows: Array, labels: Array, num_slots: int
    ) -> "EvidenceStatistics":
        """The statistics of given labels; a label outside 0..num_slots - 1 is in no cluster.

        Args:
            components: the prior of a cluster's parameters.
            rows: what `rows` gave.
            labels: the cluster of each row, shape (num_observations,).
            num_slots: clusters that may be there.

        Returns:
            Sums and log evidence of each cluster, leading shape (num_slots,).
        """
        sums = jax.ops.segment_sum(rows, labels, num_segments=num_slots)
        return cls(sums, components.log_evidence(sums))

    def holding(self, components: ComponentPrior, sums: Array) -> "EvidenceStatistics":
        """The statistics of clusters whose rows' features add up to these.

        Args:
            components: the prior of a cluster's parameters.
            sums: shape (num_slots, num_statistics).

        Returns:
            Statistics of as many clusters.
        """
        return self._replace(sums=sums, evidence=components.log_evidence(sums))

    @classmethod
    def without_rows(cls, components: ComponentPrior, rows: Array, num_slots: int) -> "EvidenceStatistics":
        """The statistics of empty clusters.

        Args:
            components: the prior of a cluster's parameters.
            rows: what `rows` gave, to be put into them.
            num_slots: how many.

        Returns:
            As `of` labels that are all outside.
        """
        sums = jnp.zeros((num_slots, rows.shape[1]), rows.dtype)
        return cls(sums, components.log_evidence(sums))

    def drawn_anew(
        self, components: ComponentPrior, slot: Array | int, row: Array, choose: Callable
    ) -> tuple["EvidenceStatistics", Any]:
        """A row taken out of its cluster, if it is in one, and put where its predictive densities decide.

        Args:
            components: the prior of a cluster's parameters.
            slot: the row's cluster; -1: none.
            row: one of `rows`, shape (num_statistics,).
            choose: ``choose(log_predictive) -> (takes, told)``, from log densities given all other rows,
                shape (num_slots,), nats, to the clusters that take the row, booleans of that shape.

        Returns:
            The statistics after the change, and what ``choose`` has told.
        """
        is_own = jnp.arange(self.evidence.shape[0]) == slot
        sign = jnp.where(is_own, -1.0, 1.0)  # an own cluster loses the row, every other could gain it
        sums = self.sums + sign[:, None] * row
        evidence = components.log_evidence(sums)
        takes, told = choose(sign * (evidence - self.evidence))
        moved = is_own != takes
        sums = jnp.where(moved[:, None], sums, self.sums)
        return EvidenceStatistics(sums, jnp.where(moved, evidence, self.evidence)), told


class StudentStatistics(NamedTuple):
    """The Gaussian-Wishart posterior of each cluster.

    Attributes:
        count: rows, shape (num_slots,).
        loc: posterior location m_k, shape (d, num_slots): clusters last, so that they are computed at once.
        scale_matrix: W_k, shape (d, d, num_slots).
        log_det: log |W_k|, shape (num_slots,).
        constants: the log density's terms in the number of rows of a cluster alone, for 0, 1, ... of them,
            shape (num_observations + 1,): log-gammas would cost more than all the rest.
    """

    count: Array
    loc: Array
    scale_matrix: Array
    log_det: Array
    constants: Array

    @staticmethod
    def rows(components: GaussianWishart, x: Array) -> Array:
        """The rows themselves, which the other methods take.

        Args:
            components: the prior of a cluster's parameters; not used.
            x: rows, shape (num_observations, num_features).

        Returns:
            ``x`` itself, shape (num_observations, num_features).
        """
        return x

    @classmethod
    def of(
        cls, components: GaussianWishart, rows: Array, labels: Array, num_slots: int
    ) -> "StudentStatistics":
        """The statistics of given labels; a label outside 0..num_slots - 1 is in no cluster.

        Args:
            components: the prior of a cluster's parameters.
            rows: shape (num_observations, num_features).
            labels: the cluster of each row, shape (num_observations,).
            num_slots: clusters that may be there.

        Returns:
            Counts and posterior of each cluster, leading shape (num_slots,).
        """
        sums = jax.ops.segment_sum(components.features(rows), labels, num_segments=num_slots)
        return cls.without_rows(components, rows, num_slots).holding(components, sums)

    def holding(self, components: GaussianWishart, sums: Array) -> "StudentStatistics":
        """The statistics of clusters whose rows' features add up to these.

        Args:
            components: the prior of a cluster's parameters.
            sums: shape (num_slots, num_statistics).

        Returns:
            Statistics of as many clusters.
        """
        own = components.posterior(sums)
        loc, scale_matrix = jnp.moveaxis(own.loc, 0, -1), jnp.moveaxis(own.scale_matrix, 0, -1)
        return StudentStatistics(sums[:, 0], loc, scale_matrix, log_det(own.scale_matrix), self.constants)

    @classmethod
    def without_rows(cls, components: GaussianWishart, rows: Array, num_slots: int) -> "StudentStatistics":
        """The statistics of empty clusters, whose posterior is the prior.

        Args:
            components: the prior of a cluster's parameters.
            rows: those to be put into them, shape (num_observations, num_features).
            num_slots: how many.

        Returns:
            As `of` labels that are all outside.
        """
        scale_matrix = jnp.asarray(components.scale_matrix)
        prior = jnp.zeros((), rows.dtype), jnp.asarray(components.loc), scale_matrix, log_det(scale_matrix)
        count, loc, scale_matrix, half = (
            jnp.broadcast_to(own[..., None], (*own.shape, num_slots)) for own in prior
        )
        return cls(count, loc, scale_matrix, half, _constants(components, rows))

    def drawn_anew(
        self, components: GaussianWishart, slot: Array | int, row: Array, choose: Callable
    ) -> tuple["StudentStatistics", Any]:
        """A row taken out of its cluster, if it is in one, and put where its predictive densities decide.

        One quadratic form and one logarithm a cluster: with g = |W before| / |W after| for the row put in, or
        for the own cluster taken out, a density is a power of g times a constant, and a change of rank one.

        Args:
            components: the prior of a cluster's parameters.
            slot: the row's cluster; -1: none.
            row: shape (num_features,).
            choose: as of `EvidenceStatistics.drawn_anew`.

        Returns:
            The statistics after the change, and what ``choose`` has told.
        """
        is_own = jnp.arange(self.count.shape[0]) == slot
        sign = jnp.where(is_own, -1.0, 1.0)
        before = components.mean_precision + self.count
        after = before + sign
        factor = before * sign / after  # how much away away' changes the inverse of W
        away = row[:, None] - self.loc
        turned = jnp.sum(self.scale_matrix * away, axis=1)
        growth = 1 + factor * jnp.sum(away * turned, axis=0)
        log_growth = jnp.log(growth)
        others = self.count - is_own  # rows without this one
        half = 0.5 * (components.degrees_of_freedom + others + 1)
        power = jnp.where(is_own, half - 0.5, -half)
        constant = self.constants[others.astype(int)]
        takes, told = choose(constant + 0.5 * self.log_det + power * log_growth)
        moved = is_own != takes
        shift, shrinkage = jnp.where(moved, sign / after, 0.0), jnp.where(moved, factor / growth, 0.0)
        changed = StudentStatistics(
            jnp.where(moved, self.count + sign, self.count),
            self.loc + shift * away,
            self.scale_matrix - (shrinkage * turned)[:, None] * turned,
            jnp.where(moved, self.log_det - log_growth, self.log_det),
            self.constants,
        )
        return changed, told


def _constants(components: GaussianWishart, rows: Array) -> Array:
    """`StudentStatistics.constants` of clusters that these rows, shape (num_observations, d), come into."""
    count = jnp.arange(rows.shape[0] + 1)
    half, d = 0.5 * (components.degrees_of_freedom + count + 1), rows.shape[1]
    strength = components.mean_precision + count
    constants = gammaln(half) - gammaln(half - 0.5 * d)
    constants += 0.5 * d * jnp.log(strength / (strength + 1) / jnp.pi)
    return constants


class SharedStudentStatistics(NamedTuple):
    """The posterior of the clusters' means and of the precision that they share.

    Attributes:
        count: rows, shape (num_slots,).
        loc: posterior location m_k, shape (num_slots, d).
        scale_matrix: W, shape (d, d).
        log_det: log |W|, a scalar.
        constants: the log density's terms in the number of all rows alone, for 0, 1, ... of them, shape
            (num_observations + 1,).
    """

    count: Array
    loc: Array
    scale_matrix: Array
    log_det: Array
    constants: Array

    @staticmethod
    def rows(components: SharedGaussianWishart, x: Array) -> Array:
        """The rows themselves; see `StudentStatistics.rows`.

        Args:
            components: not used.
            x: rows, shape (num_observations, num_features).

        Returns:
            ``x`` itself, shape (num_observations, num_features).
        """
        return x

    @classmethod
    def of(
        cls, components: SharedGaussianWishart, rows: Array, labels: Array, num_slots: int
    ) -> "SharedStudentStatistics":
        """The statistics of given labels; a label outside 0..num_slots - 1 is in no cluster.

        Args:
            components: the prior of the means and of the precision.
            rows: shape (num_observations, num_features).
            labels: the cluster of each row, shape (num_observations,).
            num_slots: clusters that may be there.

        Returns:
            Counts and posterior of all clusters.
        """
        sums = jax.ops.segment_sum(components.features(rows), labels, num_segments=num_slots)
        posterior = components.posterior(sums)
        count, d = jnp.arange(rows.shape[0] + 1), rows.shape[1]
        half = 0.5 * (components.degrees_of_freedom + count + 1)
        constants = gammaln(half) - gammaln(half - 0.5 * d) - 0.5 * d * jnp.log(jnp.pi)
        log_det_of_all = log_det(posterior.scale_matrix)
        return cls(sums[:, 0], posterior.loc, posterior.scale_matrix, log_det_of_all, constants)

    def log_predictive(self, components: SharedGaussianWishart, row: Array) -> Array:
        """Log density of a row in each cluster given all rows, shape (num_slots,), nats.

        Args:
            components: the prior of the means and of the precision.
            row: shape (num_features,).

        Returns:
            Shape (num_slots,).
        """
        total = jnp.sum(self.count)
        strength = components.mean_precision + self.count
        share = strength / (strength + 1)
        half = 0.5 * (components.degrees_of_freedom + total + 1)
        away = row - self.loc
        squared = jnp.sum(away @ self.scale_matrix * away, axis=-1)
        constant = self.constants[total.astype(int)] + 0.5 * self.log_det
        return constant + 0.5 * row.shape[0] * jnp.log(share) - half * jnp.log1p(share * squared)

    def changed(
        self, components: SharedGaussianWishart, slot: Array, row: Array, sign: Array
    ) -> "SharedStudentStatistics":
        """A row put into a cluster (sign 1), taken out of it (-1) or neither (0).

        Args:
            components: the prior of the means and of the precision.
            slot: the cluster.
            row: shape (num_features,).
            sign: 1, -1 or 0.

        Returns:
            The statistics after the change, by an update of rank one.
        """
        before = components.mean_precision + self.count[slot]
        after = before + sign
        away = row - self.loc[slot]
        share = sign * before / after  # how much away away' changes the inverse of W
        turned = self.scale_matrix @ away
        growth = 1 + share * (away @ turned)
        return SharedStudentStatistics(
            self.count.at[slot].add(sign),
            self.loc.at[slot].add(sign * away / after),
            self.scale_matrix - (share / growth) * turned[:, None] * turned,
            self.log_det - jnp.log(growth),
            self.constants,
        )

    def drawn_anew(
        self, components: SharedGaussianWishart, slot: Array, row: Array, choose: Callable
    ) -> tuple["SharedStudentStatistics", Any]:
        """A row taken out of its cluster and put into one that is chosen by its predictive densities.

        Args:
            components: the prior of the means and of the precision.
            slot: the row's cluster.
            row: shape (num_features,).
            choose: as of `EvidenceStatistics.drawn_anew`; one cluster takes the row.

        Returns:
            The statistics after the change, and what ``choose`` has told.
        """
        one = jnp.ones((), row.dtype)
        without = self.changed(components, slot, row, -one)
        takes, told = choose(without.log_predictive(components, row))
        return without.changed(components, jnp.argmax(takes), row, one), told


class RaisedStatistics(NamedTuple):
    """The statistics of a family whose predictive densities count to a power.

    Attributes:
        own: those of the family itself.
    """

    own: Any

    @staticmethod
    def rows(components: OfEvidence | OfLikelihood, x: Array) -> Array:
        """What the family's statistics take of the rows."""
        return statistics_for(components.family).rows(components.family, x)

    @classmethod
    def of(
        cls, components: OfEvidence | OfLikelihood, rows: Array, labels: Array, num_slots: int
    ) -> "RaisedStatistics":
        """The statistics of given labels."""
        return cls(statistics_for(components.family).of(components.family, rows, labels, num_slots))

    @classmethod
    def without_rows(
        cls, components: OfEvidence | OfLikelihood, rows: Array, num_slots: int
    ) -> "RaisedStatistics":
        """The statistics of empty clusters."""
        return cls(statistics_for(components.family).without_rows(components.family, rows, num_slots))

    def holding(self, components: OfEvidence | OfLikelihood, sums: Array) -> "RaisedStatistics":
        """The statistics of clusters whose rows' features add up to these."""
        return RaisedStatistics(self.own.holding(components.family, sums))

    def drawn_anew(
        self, components: OfEvidence | OfLikelihood, slot: Array | int, row: Array, choose: Callable
    ) -> tuple["RaisedStatistics", Any]:
        """A row put where its predictive densities to the power decide."""

        def choose_raised(log_predictive: Array) -> tuple[Array, Any]:
            return choose(components.power * log_predictive)

        own, told = self.own.drawn_anew(components.family, slot, row, choose_raised)
        return RaisedStatistics(own), told


def statistics_for(components: ComponentPrior | OfEvidence | OfLikelihood) -> Any:
    """The class that serves a family best."""
    if isinstance(components, OfEvidence | OfLikelihood):
        return RaisedStatistics
    if type(components) is GaussianWishart:
        return StudentStatistics
    return SharedStudentStatistics if type(components) is SharedGaussianWishart else EvidenceStatistics
