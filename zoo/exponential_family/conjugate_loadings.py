r"""Loadings of exponential-family PCA under the conjugate prior of natural parameters.

Mohamed, Heller and Ghahramani (2008) give each latent's row of natural parameters the conjugate prior of the
family of its cells, independently by column:

.. math::
    p(v_{dk}) \propto \exp\{\lambda_d v_{dk} - \nu_d\, g(v_{dk})\}.

It is what :math:`\nu_d` cells with the sum :math:`\lambda_d` would leave of a flat prior, of a row whose
natural parameter is the loading itself. Unlike the joint prior (`zoo.exponential_family.joint_prior`) it has
a known normaliser, so that the prior is proper and can be drawn from. Where theta must be negative there is
no such prior: loadings times scores of either sign would leave the domain.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import shown
from zoo.exponential_family.family import ByColumn, Family


class ConjugateLoadings(dist.Distribution):
    """Independent loadings, those of a column under the conjugate prior of the family of its cells.

    Args:
        family: of the cells.
        pairs: lam and nu of each column, shape (num_features, 2).
        num_latents: loadings of each column.
    """

    support = dist.constraints.independent(dist.constraints.real, 2)
    pytree_data_fields = ("family", "pairs")
    pytree_aux_fields = ("num_latents",)

    def __init__(self, family: Family, pairs: Array, num_latents: int) -> None:
        self.family, self.pairs, self.num_latents = family, pairs, num_latents
        super().__init__((), (pairs.shape[0], num_latents))

    def log_prob(self, value: Array) -> Array:
        """Log density in nats.

        Args:
            value: loadings, shape (..., num_features, num_latents).

        Returns:
            The shape of ``value`` without its last two axes.
        """
        lam, nu = self.pairs[:, 0], self.pairs[:, 1]
        kernel = self.family.log_kernel(jnp.swapaxes(value, -1, -2), lam, nu)
        return jnp.sum(kernel - self.family.log_kernel_integral(lam, nu), axis=(-2, -1))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of loadings.

        Args:
            key: a JAX key.
            sample_shape: of the draws.

        Returns:
            Shape (*sample_shape, num_features, num_latents).
        """
        shape = (*sample_shape, self.num_latents, self.pairs.shape[0])
        drawn = self.family.draw_from_kernel(key, self.pairs[:, 0], self.pairs[:, 1], shape)
        return jnp.swapaxes(drawn, -1, -2)


def check_conjugate_pairs(pairs: Any, num_features: int | None) -> None:
    """Raise ValueError or TypeError unless lam and nu are finite numbers of the right shape.

    Args:
        pairs: lam and nu, shape (2,), or both for each column, shape (num_features, 2).
        num_features: columns of the table; None: not known yet.

    Raises:
        TypeError: a distribution in place of numbers.
        ValueError: a wrong shape, or a number that is not finite.
    """
    if isinstance(pairs, dist.Distribution):
        raise TypeError(
            "conjugate_loadings must be two numbers, lam and nu, or both for each column; they have no "
            f"prior of their own; got {shown(pairs)}"
        )
    pairs = np.asarray(pairs)
    good = pairs.shape == (2,) or (pairs.ndim == 2 and pairs.shape[1] == 2)
    if not good or (pairs.ndim == 2 and num_features not in (None, len(pairs))):
        columns = "num_features" if num_features is None else num_features
        raise ValueError(
            f"conjugate_loadings must be two numbers, lam and nu, or shape ({columns}, 2), both for each "
            f"column; got shape {pairs.shape}"
        )
    if not np.isfinite(pairs).all():
        raise ValueError(f"conjugate_loadings must be finite; got {shown(pairs)}")


def check_conjugate_loadings(family: Family, pairs: np.ndarray, num_features: int | None) -> None:
    """Raise ValueError unless loadings of these cells can have the conjugate prior.

    Args:
        family: of the cells.
        pairs: lam and nu, shape (2,), or both for each column, shape (num_features, 2).
        num_features: columns of the table; None: not known yet.

    Raises:
        TypeError: a distribution in place of numbers.
        ValueError: a wrong shape, cells without such a prior, or one that has no integral.
    """
    check_conjugate_pairs(pairs, num_features)
    name = type(family).__name__
    if not family.has_kernel or family.theta_is_negative or family.learns_noise:
        raise ValueError(
            "conjugate_loadings goes with Bernoulli, binomial and Poisson cells and Gaussian ones of known "
            f"noise; {name} has cells without a conjugate prior of real loadings: leave it out"
        )
    columns = len(pairs) if pairs.ndim == 2 else num_features
    if columns is None and isinstance(family, ByColumn):
        columns = len(family.columns)
    own = pairs if columns is None else np.broadcast_to(pairs, (columns, 2))
    for member, lam, nu in family.kernel_problems(own):
        if not member.kernel_is_proper(lam, nu):
            raise ValueError(
                f"conjugate_loadings: the conjugate prior of {type(member).__name__} loadings has no "
                f"integral at ({lam:g}, {nu:g}): see zoo.exponential_family for where it is proper"
            )
