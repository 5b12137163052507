"""What every family of `zoo.exponential_family` says about a cell of data."""

from dataclasses import dataclass
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.model import Assumptions
from zoo.validation import check_cells

__all__ = ["Family"]


@dataclass(frozen=True, eq=False)
class Family(Assumptions):
    """What every family says.

    Class attributes:
        domain: what cells may be, in words, for messages.
        theta_is_negative: whether natural parameters are negative instead of real.
        has_kernel: whether there is a conjugate kernel, which the joint prior needs.
    """

    domain: ClassVar[str] = ""
    theta_is_negative: ClassVar[bool] = False
    has_kernel: ClassVar[bool] = True

    @property
    def params_per_cell(self) -> int:
        """Natural parameters of a cell."""
        return 1

    @property
    def learns_noise(self) -> bool:
        """Whether there is a noise variance that is not given."""
        return False

    def with_noise(self, noise_variance: Array) -> Self:
        """The family with that variance in place of the unknown one.

        Args:
            noise_variance: of the cells, shape ().

        Returns:
            The family.
        """
        return self.replaced(noise_variance=noise_variance)

    @property
    def num_cut_points(self) -> int:
        """Cut points of a column, which then has no mean; 0 for most families."""
        return 0

    def num_params(self, num_features: int) -> int:
        """Natural parameters of a row of ``num_features`` cells.

        Args:
            num_features: cells of a row.

        Returns:
            Their number: `params_per_cell` for each cell, unless columns differ.
        """
        return num_features * self.params_per_cell

    def param_columns(self, num_features: int) -> tuple[int, ...]:
        """The column of each natural parameter of a row, those of a column together.

        Args:
            num_features: cells of a row.

        Returns:
            As many numbers of columns as a row has natural parameters.
        """
        return tuple(i // self.params_per_cell for i in range(self.num_params(num_features)))

    def level_columns(self, num_features: int) -> tuple[int, ...]:
        """Columns that have cut points instead of a mean.

        Args:
            num_features: cells of a row.

        Returns:
            Numbers of columns, none in most families.
        """
        return tuple(range(num_features)) if self.num_cut_points else ()

    def shaped(self, theta: Array) -> Array:
        """Flat natural parameters of rows in the shape that `log_density` takes.

        Args:
            theta: shape (..., natural parameters of a row).

        Returns:
            Shape (..., num_features), with a last axis of `params_per_cell` where a cell has several.
        """
        many = self.params_per_cell
        return theta if many == 1 else theta.reshape(*theta.shape[:-1], -1, many)

    @property
    def dispersion(self) -> Array | float:
        """Phi."""
        return 1.0

    def log_partition(self, theta: Array) -> Array:
        """g, elementwise.

        Args:
            theta: natural parameters, any shape; where a cell has several, they are the last axis.

        Returns:
            One number for each cell, the shape of the cells.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no log-partition")

    def mean(self, theta: Array) -> Array:
        """E[x] = g', elementwise.

        Args:
            theta: natural parameters, as in `log_partition`.

        Returns:
            The shape of the cells.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no mean map")

    def variance(self, theta: Array) -> Array:
        """Var[x] = phi g'', elementwise.

        Args:
            theta: natural parameters, as in `log_partition`.

        Returns:
            The shape of the cells.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no variance")

    def natural(self, mean: Array) -> Array:
        """Theta of a mean inside the family's range: the inverse of `mean`.

        Args:
            mean: any shape, inside the range of means.

        Returns:
            Theta, the shape of ``mean``.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no inverse mean map")

    def natural_of_columns(self, x: Array) -> Array:
        """Theta of every column's mean, smoothed towards the mean of all cells.

        Finite also where all cells are at the end of the mean's range, such as a table of zeros.

        Args:
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Shape (num_features,).
        """

        def add(row: int, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            seen = ~jnp.isnan(x[row])
            return sums[0] + jnp.where(seen, x[row], 0.0), sums[1] + seen

        # row after row: XLA's own reduction of masked rows takes ten times as long
        x, zero = jnp.asarray(x), jnp.zeros(x.shape[1])
        total, seen = jax.lax.fori_loop(0, x.shape[0], add, (zero, zero))
        theta = self.natural((total + jnp.sum(total) / jnp.sum(seen)) / (seen + 1))
        return jnp.where(jnp.isfinite(theta), theta, -1.0 if self.theta_is_negative else 0.0)

    def log_base_measure(self, x: Array) -> Array:
        """Log h, elementwise.

        Args:
            x: cells, any shape.

        Returns:
            The shape of ``x``.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no base measure")

    def log_density(self, theta: Array, x: Array) -> Array:
        """Log p(x | theta) of each cell.

        Args:
            theta: natural parameters, as in `log_partition`.
            x: cells.

        Returns:
            The shape of ``x``, in nats.
        """
        return self.log_base_measure(x) + (x * theta - self.log_partition(theta)) / self.dispersion

    def log_density_of_rows(self, theta: Array, x: Array, seen: Array) -> Array:
        """The sum of `log_density` over the cells of each row that are seen.

        Args:
            theta: natural parameters of the rows, as `shaped` gives them.
            x: rows, shape (..., num_features), any number of the family in cells that are not seen.
            seen: which cells count, shape of ``x``.

        Returns:
            Shape of ``x`` without its last axis, in nats.
        """
        return jnp.sum(jnp.where(seen, self.log_density(theta, x), 0.0), axis=-1)

    def distribution(self, theta: Array) -> dist.Distribution:
        """The same as a NumPyro distribution over cells, to draw from.

        Args:
            theta: natural parameters, as in `log_partition`.

        Returns:
            Distribution whose batch shape is that of the cells.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no distribution")

    def log_kernel(self, theta: Array, lam: Array, nu: Array) -> Array:
        """The conjugate kernel's logarithm, lam theta - nu g(theta), elementwise.

        Args:
            theta: natural parameters, any shape.
            lam: multiplies theta.
            nu: multiplies the log-partition.

        Returns:
            The shape of ``theta``, lam and nu broadcast to it.
        """
        return lam * theta - nu * self.log_partition(theta)

    def kernel_of(self, x: np.ndarray, strength: float) -> tuple[float, float]:
        """Lam and nu of a kernel whose mean is that of all cells of ``x``, and lam of size ``strength``.

        Args:
            x: cells, NaN where missing.
            strength: positive.

        Returns:
            lam and nu.
        """
        mean = float(np.nanmean(x))
        return np.sign(mean) * strength, strength / abs(mean) if mean else 2 * strength

    def kernel_problems(self, conjugate: np.ndarray) -> list[tuple["Family", float, float]]:
        """The kernels to be checked: family, lam and nu, those that are alike once.

        Args:
            conjugate: pairs of lam and nu, the last axis two long.

        Returns:
            Triples.
        """
        pairs = dict.fromkeys(map(tuple, np.reshape(conjugate, (-1, 2)).tolist()))
        return [(self, lam, nu) for lam, nu in pairs]

    def kernel_is_proper(self, lam: float, nu: float) -> bool:
        """Whether the kernel can be normalised over theta.

        Args:
            lam: multiplies theta.
            nu: multiplies the log-partition.

        Returns:
            True if the integral is finite.
        """
        raise NotImplementedError(f"{type(self).__name__} has no conjugate kernel")

    def kernel_is_bounded(self, lam: float, nu: float) -> bool:
        """Whether the kernel has a finite maximum (it may be at infinity).

        Args:
            lam: multiplies theta.
            nu: multiplies the log-partition.

        Returns:
            True if it has.
        """
        return self.kernel_is_proper(lam, nu)

    def is_cell(self, x: np.ndarray) -> np.ndarray:
        """Which cells the family can have.

        Args:
            x: any numbers.

        Returns:
            Boolean, the shape of ``x``; of NaN it may be either.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no domain")

    def check(self, x: np.ndarray, name: str = "x") -> None:
        """Refuse data that the family cannot have.

        Args:
            x: shape (num_observations, num_features).
            name: of the data in messages.

        Raises:
            ValueError: a cell that is neither in the domain nor missing (NaN); the first one is named.
        """
        with np.errstate(invalid="ignore"):
            check_cells(x, self.is_cell(x), self.domain, name)
