"""What `zoo.DEPCAM` says of rows at given parameters: starts, densities, responsibilities, predictions."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.dpp import SIMILARITIES
from zoo.local_pca import LocalPCA, gaussian_latents, laplace_latents, log_cells
from zoo.model import in_current_precision
from zoo.row_latents import RowMode

__all__ = ["DEPCAMRows", "orthonormal"]

LEAST_NOISE = 1e-6  # of a start
START_SCALE = 0.5


def orthonormal(carriers: Array) -> Array:
    """Q of the QR decomposition whose R has a positive diagonal: of normal matrices uniform on the manifold.

    Args:
        carriers: shape (..., D, d) with D >= d.

    Returns:
        Shape (..., D, d), columns orthonormal.
    """
    q, r = jnp.linalg.qr(carriers)
    return q * jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


class DEPCAMRows:
    """Rows of local PCAs; a base of `zoo.depcam.DEPCAM`, whose fields it uses."""

    def similarity(self, values: Mapping[str, Array]) -> Array:
        """S, the similarities of the components.

        Args:
            values: of the sites; ``bases`` is read.

        Returns:
            Shape (num_components, num_components), with a unit diagonal.
        """
        return SIMILARITIES[self.kernel](values["bases"], self.similarity_scale)

    def local(self, values: Mapping[str, Array]) -> LocalPCA:
        """The components at given values of the sites.

        Args:
            values: of the sites; ``bases`` or their ``carriers``.

        Returns:
            Family, loadings and offsets of the components.
        """
        family = in_current_precision(self).family
        if "noise_variance" in values:
            family = family.with_noise(values["noise_variance"])
        bases = values["bases"] if "bases" in values else orthonormal(values["carriers"])
        offsets = values["offsets"] if self.offset else jnp.zeros(bases.shape[:2])
        return LocalPCA(family, bases * values["scales"][:, None, :], offsets)

    def log_rows(self, values: Mapping[str, Array], x: Array) -> Array:
        """``log p(x_n | z_n = k)``, given the latents if ``values`` has them.

        Else with them integrated out, exactly for Gaussian cells, by Laplace's approximation for others.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_components), in nats.
        """
        if "latents" not in values:
            return self.modes(values, x).log_integral
        local = self.local(values)
        return log_cells(local.family, local.natural_params(values["latents"]), x)

    def modes(self, values: Mapping[str, Array], x: Array) -> RowMode:
        """Posterior of the latents of rows under each component, exact or by Laplace's approximation.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features).

        Returns:
            Mode, covariance and log integral, leading shape (num_observations, num_components).
        """
        local = self.local(values)
        return (gaussian_latents if self.integrates_latents else laplace_latents)(local, x)

    def log_joint_rows(self, values: Mapping[str, Array], x: Array) -> Array:
        """``log pi_k + log p(x_n | z_n = k)``.

        Args:
            values: of the sites; latents as in `log_rows`.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_components), in nats.
        """
        return self.log_rows(values, x) + self.weights.log_weights(values)

    def log_likelihood(self, values: Mapping[str, Array], x: Array) -> Array:
        """Log density of each row, labels summed out.

        Args:
            values: of the sites; latents as in `log_rows`.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations,), in nats.
        """
        return jax.nn.logsumexp(self.log_joint_rows(values, x), axis=-1)

    def local_conditionals(self, values: Mapping[str, Array], x: Array) -> dict[str, dist.Distribution]:
        """The summed-out labels given everything else.

        Args:
            values: of the sites; latents as in `log_rows`.
            x: rows, shape (num_observations, num_features).

        Returns:
            ``assignments``, with batch shape (num_observations,).
        """
        return {"assignments": dist.Categorical(logits=self.log_joint_rows(values, x))}

    def derived(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Labels in the smallest type that holds them, and how many components have at least one row.

        Args:
            values: of the sites; ``assignments``, shape (num_observations,), is read.

        Returns:
            ``assignments``, and ``num_occupied``, a scalar.
        """
        assignments = values["assignments"]
        occupied = jnp.sum(jnp.bincount(assignments, length=self.num_components) > 0)
        kind = np.min_scalar_type(self.num_components - 1)
        return {"assignments": assignments.astype(kind), "num_occupied": occupied}

    def scores(self, values: Mapping[str, Array], x: Array, *, kind: str = "latent") -> Array:
        """Responsibilities with the latents integrated out.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.
            kind: ``"latent"``.

        Returns:
            Shape (num_observations, num_components).

        Raises:
            ValueError: another kind than ``"latent"``.
        """
        if kind != "latent":
            raise ValueError(f"a mixture has one kind of scores, the shares of components; got {kind!r}")
        return jax.nn.softmax(self.log_joint_rows(_of_all(values), x), axis=-1)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """What `inference.predict` can be asked for: missing cells filled in, or every cell at its mean.

        Returns:
            Name to the dims of what it gives.
        """
        return dict.fromkeys(("cells", "reconstruction"), ("observation", "feature"))

    def default_completion(self, *data: Any) -> str:
        """The cells that are missing.

        Args:
            *data: not read.

        Returns:
            ``"cells"``.
        """
        return "cells"

    def predicted(self, values: Mapping[str, Array], x: Array, *, what: str = "cells") -> tuple[Array, Array]:
        """Mean of cells at the mode of the latents of each component, averaged, and their variance.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.
            what: ``"cells"`` or ``"reconstruction"``.

        Returns:
            Two arrays of shape (num_observations, num_features).
        """
        values = _of_all(values)
        local, modes = self.local(values), self.modes(values, x)
        r = jax.nn.softmax(modes.log_integral + self.weights.log_weights(values), axis=-1)
        theta = local.natural_params(modes.latents)
        means, variances = local.family.mean(theta), local.family.variance(theta)
        mean = jnp.einsum("nk,nkf->nf", r, means)
        variance = jnp.einsum("nk,nkf->nf", r, variances + (means - mean[:, None]) ** 2)
        if what == "reconstruction":
            return mean, variance
        missing = jnp.isnan(x)
        return jnp.where(missing, mean, x), jnp.where(missing, variance, 0.0)

    def starting_point(self, key: Array, x: Array) -> dict[str, Array]:
        """Values of all sites to start from: random bases, offsets about the columns' means.

        Args:
            key: a JAX key.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Value of each site by name, in the shapes that the program gives them.
        """
        family = in_current_precision(self).family
        keys = jax.random.split(key, 3)
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        sizes = self.num_components, x.shape[1], self.num_latents
        values = {
            "carriers": orthonormal(jax.random.normal(keys[0], sizes)),
            "scales": scale * jnp.ones((sizes[0], sizes[2])),
        }
        if not self.weights.has_sticks:
            values["weights"] = jnp.full(sizes[0], 1.0 / sizes[0])
        else:
            values["stick_fractions"] = 1.0 / jnp.arange(sizes[0], 1.0, -1.0)
        if self.scale_prior == "ard":
            values["scales_precision"] = jnp.ones((sizes[0], sizes[2]))
        if self.offset:
            shift = 0.1 * scale * jax.random.normal(keys[1], sizes[:2])
            values["offsets"] = family.natural_of_columns(x) + shift
        if family.learns_noise:
            values["noise_variance"] = jnp.maximum(jnp.mean(jnp.nanvar(x, axis=0)), LEAST_NOISE)
        if not self.integrates_latents or self.draw_locals:
            values["latents"] = scale * jax.random.normal(keys[2], self.latents_shape(x.shape[0]))
        return values


def _of_all(values: Mapping[str, Array]) -> dict[str, Array]:
    """Values without those of fitted rows: new rows have their own latents."""
    return {name: value for name, value in values.items() if name != "latents"}
