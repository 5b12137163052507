r"""Rows under several local exponential-family PCAs: densities, and their integrals over the latents.

Under component k :math:`\theta_n = W_k y + b_k` for the natural parameters of row n, with latents
:math:`y \sim N(0, I)`. Of Gaussian cells with variance :math:`\sigma^2` the integral over y is exact: with
:math:`A = I + W'W/\sigma^2` and :math:`h = W'(x - b)/\sigma^2` over the observed cells (D of them),

.. math:: \log p(x \mid k) = -\tfrac12\{D \log 2\pi\sigma^2 + \log|A| + |x - b|^2/\sigma^2 - h'A^{-1}h\},

and y given x is :math:`N(A^{-1}h, A^{-1})` (Tipping and Bishop 1999). For other families it is Laplace's
(`zoo.exponential_family.natural_params`). Without the log determinant in it the component with the most
directions would win, since a maximum over y grows with each.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions.util import validate_sample

from zoo.exponential_family.cells import FamilyCells
from zoo.exponential_family.expectations import Nodes, over_latents, unit_nodes
from zoo.exponential_family.family import Family
from zoo.exponential_family.natural_params import RowMode, row_modes
from zoo.shapes import Values

if TYPE_CHECKING:
    from zoo.depcam import DEPCAM


class LocalPCA(NamedTuple):
    """The parameters of all components.

    Attributes:
        family: of the cells, its noise variance known.
        loadings: W, shape (num_components, num_features, num_latents).
        offsets: b, shape (num_components, num_features).
    """

    family: Family
    loadings: Array
    offsets: Array

    def natural_params(self, latents: Array) -> Array:
        """Theta of rows under each component.

        Args:
            latents: shape (num_observations, num_components, num_latents), or without components where they
                are shared.

        Returns:
            Shape (num_observations, num_components, num_features).
        """
        letters = "nkd" if latents.ndim == 3 else "nd"
        return jnp.einsum(f"{letters},kfd->nkf", latents, self.loadings) + self.offsets


def components_of(model: "DEPCAM", values: Values) -> LocalPCA:
    """The components of a mixture of PCAs at given values of its sites.

    Args:
        model: of fields ``family`` and ``offset``.
        values: of the sites; ``bases`` or their ``carriers``.

    Returns:
        Family, loadings and offsets of the components.
    """
    family = model.family
    if "noise_variance" in values:
        family = family.with_noise(values["noise_variance"])
    bases = values["bases"] if "bases" in values else orthonormal(values["carriers"])
    offsets = values["offsets"] if model.offset else jnp.zeros(bases.shape[:2])
    return LocalPCA(family, bases * values["scales"][:, None, :], offsets)


def orthonormal(carriers: Array) -> Array:
    """The Q of the QR decomposition whose R has a positive diagonal; of normal matrices it is uniform.

    Args:
        carriers: shape (..., D, d) with D >= d.

    Returns:
        Shape (..., D, d), columns orthonormal.
    """
    q, r = jnp.linalg.qr(carriers)
    return q * jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


def log_cells(family: Family, theta: Array, x: Array) -> Array:
    """Log density of each row under each component given its latents, observed cells only, in nats.

    Args:
        family: of the cells.
        theta: shape (num_observations, num_components, num_features).
        x: shape (num_observations, num_features).

    Returns:
        Shape (num_observations, num_components).
    """
    seen = ~jnp.isnan(x)
    cells = family.log_density(theta, jnp.where(seen, x, 1.0)[:, None])  # 1: a value of every family
    return jnp.sum(jnp.where(seen[:, None], cells, 0.0), axis=-1)


def log_rows(local: LocalPCA, x: Array, latents: Array | None = None) -> Array:
    """Log density of each row under each component, ``log p(x_n | z_n = k)``, over its observed cells.

    Args:
        local: the components.
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.
        latents: as of `LocalPCA.natural_params`; None: integrated out, see `modes`.

    Returns:
        Shape (num_observations, num_components), in nats.
    """
    if latents is None:
        return modes(local, x).log_integral
    return log_cells(local.family, local.natural_params(latents), x)


def modes(local: LocalPCA, x: Array) -> RowMode:
    """Posterior of the latents of rows under each component, exact for Gaussian cells, else by Laplace.

    Args:
        local: the components.
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Mode, covariance and log integral, leading shape (num_observations, num_components).
    """
    is_exact = local.family.log_partition_form == "quadratic"
    return (gaussian_latents if is_exact else laplace_latents)(local, x)


def gaussian_latents(local: LocalPCA, x: Array) -> RowMode:
    """Mean and covariance of the latents of rows of Gaussian cells, and the exact integral over them.

    Args:
        local: the components.
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Leading shape (num_observations, num_components).
    """
    variance, seen = local.family.dispersion, ~jnp.isnan(x)
    away = jnp.where(seen[:, None], jnp.where(seen, x, 0.0)[:, None] - local.offsets, 0.0)
    inner = jnp.einsum("nf,kfi,kfj->nkij", seen.astype(x.dtype), local.loadings, local.loadings) / variance
    precision = inner + jnp.eye(inner.shape[-1])
    projected = jnp.einsum("nkf,kfi->nki", away, local.loadings) / variance
    covariance = jnp.linalg.inv(precision)
    mean = jnp.einsum("nkij,nkj->nki", covariance, projected)
    diagonal = jnp.diagonal(jnp.linalg.cholesky(precision), axis1=-2, axis2=-1)
    log_det = 2.0 * jnp.sum(jnp.log(diagonal), axis=-1)
    size = jnp.sum(seen, axis=-1)[:, None]
    quadratic = jnp.sum(away**2, axis=-1) / variance - jnp.sum(projected * mean, axis=-1)
    return RowMode(mean, covariance, -0.5 * (size * jnp.log(2 * jnp.pi * variance) + log_det + quadratic))


def laplace_latents(local: LocalPCA, x: Array) -> RowMode:
    """Mode of the latents under each component, Laplace's covariance and integral; any family.

    Args:
        local: the components.
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.

    Returns:
        Leading shape (num_observations, num_components).
    """

    def of_component(loadings: Array, offsets: Array) -> RowMode:
        log_joint = _log_joint(local.family, loadings, offsets)
        modes = row_modes(log_joint, x, loadings.shape[-1])
        start = jnp.zeros(loadings.shape[-1])
        outside = ~jnp.isfinite(jax.vmap(log_joint, (None, 0))(start, x))  # of the component's domain
        return RowMode(
            jnp.where(outside[:, None], 0.0, modes.latents),
            jnp.where(outside[:, None, None], jnp.eye(start.size), modes.covariance),
            jnp.where(outside, -jnp.inf, modes.log_integral),
        )

    modes = jax.lax.map(lambda pair: of_component(*pair), (local.loadings, local.offsets))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), modes)


def _log_joint(family: Family, loadings: Array, offsets: Array) -> Callable:
    """Log joint density of a row and its latents under a component, in nats."""

    def log_joint(y: Array, row: Array) -> Array:
        theta = loadings @ y + offsets
        prior = jnp.sum(dist.Normal(0.0, 1.0).log_prob(y))
        return log_cells(family, theta[None, None], row[None])[0, 0] + prior

    return log_joint


def expected_cells(local: LocalPCA, x: Array, modes: RowMode, *, steep: bool = False) -> tuple[Array, Array]:
    """Mean and variance of every cell under each component given the row's observed cells.

    Averaged over the posterior of the latents by `zoo.exponential_family.expectations`; exact for Gaussian
    cells.

    Args:
        local: the components.
        x: rows, shape (num_observations, num_features), NaN where a cell is missing.
        modes: of the rows under each component.
        steep: whether cells change steeply with the latents.

    Returns:
        Two arrays of shape (num_observations, num_components, num_features).
    """
    if local.family.log_partition_form == "quadratic":
        spread = jnp.einsum("kfi,nkij,kfj->nkf", local.loadings, modes.covariance, local.loadings)
        theta = local.natural_params(modes.latents)
        return theta, spread + local.family.variance(theta)

    def of_component(given: tuple) -> tuple[Array, Array]:
        loadings, offsets, mode = given

        def average(nodes: Nodes, row: Array) -> tuple[Array, Array]:
            theta = nodes.latents @ loadings.T + offsets
            return local.family.expected_cells(theta, nodes.weights, nodes.normal_weights, None)

        log_joint = _log_joint(local.family, loadings, offsets)
        return over_latents(log_joint, average, x, mode, x.shape[1], steep=steep)

    by_component = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), modes)
    moments = jax.lax.map(of_component, (local.loadings, local.offsets, by_component))
    return tuple(jnp.moveaxis(part, 0, 1) for part in moments)


def cells_of_prior(local: LocalPCA, *, steep: bool = False) -> tuple[Array, Array]:
    """Mean and variance of every cell under each component where no cell of its row is known.

    As `expected_cells` of rows without an observed cell, whose latents have their prior: no mode is searched.

    Args:
        local: the components.
        steep: whether cells change steeply with the latents.

    Returns:
        Two arrays of shape (num_components, num_features).
    """
    if local.family.log_partition_form == "quadratic":
        return local.offsets, jnp.sum(local.loadings**2, axis=-1) + local.family.variance(local.offsets)
    points, weights, _ = unit_nodes(local.loadings.shape[-1], steep)
    points, weights = (jnp.asarray(part, local.loadings.dtype) for part in (points, weights))

    def of_component(pair: tuple) -> tuple[Array, Array]:
        loadings, offsets = pair
        return local.family.expected_cells(points @ loadings.T + offsets, weights, weights, None)

    return jax.lax.map(of_component, (local.loadings, local.offsets))


class ComponentRows(dist.Distribution):
    """Rows of a mixture of local PCAs; labels or latents that are None are summed out. The event is one row.

    Args:
        local: the components.
        log_weights: of the components, shape (num_components,).
        labels: the component of each row, shape (num_observations,), or None.
        latents: of each row, as of `LocalPCA.natural_params`, or None, which takes Gaussian cells.
    """

    support = dist.constraints.real_vector
    pytree_data_fields = ("local", "log_weights", "labels", "latents")

    def __init__(
        self, local: LocalPCA, log_weights: Array, labels: Array | None = None, latents: Array | None = None
    ) -> None:
        self.local, self.log_weights, self.labels, self.latents = local, log_weights, labels, latents
        given = latents if labels is None else labels
        super().__init__(() if given is None else given.shape[:1], local.offsets.shape[1:])

    def log_prob(self, value: Array) -> Array:
        """Log density of each row over its observed cells, in nats; NaN is missing."""
        if self.labels is None:
            by_component = log_rows(self.local, value, self.latents)
            return jax.nn.logsumexp(self.log_weights + by_component, axis=-1)
        if self.latents is None:
            by_component = log_rows(self.local, value)
            return jnp.take_along_axis(by_component, self.labels[:, None], axis=1)[:, 0]
        return self._cells(self.labels, self.latents).log_prob(value)

    def _cells(self, labels: Array, latents: Array) -> FamilyCells:
        """Rows given the label and the latents of each."""
        theta = self.local.natural_params(latents)
        return FamilyCells(self.local.family, jnp.take_along_axis(theta, labels[:, None, None], axis=1)[:, 0])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Rows, with labels and latents drawn where they are None."""
        if self.labels is not None and self.latents is not None:
            return self._cells(self.labels, self.latents).sample(key, sample_shape)
        if sample_shape:
            keys = jax.random.split(key, sample_shape)
            return jax.vmap(self.sample)(keys.reshape(-1)).reshape(*sample_shape, *self.shape())
        label_key, latent_key, cell_key = jax.random.split(key, 3)
        labels, latents, num_rows = self.labels, self.latents, math.prod(self.batch_shape)
        if labels is None:
            labels = jax.random.categorical(label_key, self.log_weights, shape=(num_rows,))
        if latents is None:
            latents = jax.random.normal(latent_key, (num_rows, self.local.loadings.shape[-1]))
        return self._cells(labels, latents).sample(cell_key).reshape(self.shape())


class SparseScales(dist.Distribution):
    """Independent Laplace variables by their rate; at rate zero they are flat, with density one.

    Args:
        rate: s >= 0; the density is (s / 2) exp(-s |scale|).
        shape: of the event.
    """

    pytree_data_fields = ("rate",)

    def __init__(self, rate: Array, shape: tuple[int, ...]) -> None:
        self.rate = jnp.asarray(rate)
        super().__init__(batch_shape=(), event_shape=shape)

    @property
    def is_flat(self) -> bool:
        """Whether the rate is known to be zero, which a traced one is not."""
        return not isinstance(self.rate, jax.core.Tracer) and not np.any(np.asarray(self.rate))

    @property
    def support(self) -> dist.constraints.Constraint:
        """Real arrays of the given shape."""
        return dist.constraints.independent(dist.constraints.real, len(self.event_shape))

    @validate_sample
    def log_prob(self, value: Array) -> Array:
        """Log density in nats."""
        positive = self.rate > 0
        constant = jnp.where(positive, jnp.log(jnp.where(positive, self.rate, 1.0) / 2.0), 0.0)
        return jnp.sum(constant - self.rate * jnp.abs(value), axis=tuple(range(-len(self.event_shape), 0)))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws; at rate zero those of rate one, for programs that only ask for shapes."""
        drawn = dist.Laplace(0.0, 1.0).sample(key, sample_shape + self.event_shape)
        return drawn / jnp.where(self.rate > 0, self.rate, 1.0)
