"""The interface of the families of `zoo.exponential_family`, and tables with a family for each column."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import as_matrix, check_cells, copy_labels, row_blocks
from zoo.exponential_family.cut_points import cut_points_of_columns
from zoo.exponential_family.expectations import expected_log_density
from zoo.fields import names_of, static
from zoo.model import Assumptions

type Number = Array | float
CellTerms = tuple[Array, Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Family(Assumptions):
    """The distribution of a cell given its natural parameter.

    Attributes:
        domain: values that a cell may have, in words, for messages.
        mean_is: what the mean of a cell is called.
        theta_is_negative: whether natural parameters are negative instead of real.
        cell_units: as in `zoo.model.Model.cell_units`.
        has_kernel: whether there is a conjugate kernel, which the joint prior needs.
        takes_missing: whether cells may be NaN.
        is_mixed: whether columns have different families.
        log_partition_form: ``"quadratic"``, ``"logistic"`` (n log(1 + e^theta)) or ``"exponential"``, for
            which inference has closed forms; ``"other"``.
        first_level: number of the first level of a cell; -1: cells are no levels.
        has_answers: whether cells are yes or no.
    """

    domain: ClassVar[str] = ""
    mean_is: ClassVar[str] = "mean"
    theta_is_negative: ClassVar[bool] = False
    cell_units: ClassVar[str] = "none"
    has_kernel: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    is_mixed: ClassVar[bool] = False
    log_partition_form: ClassVar[str] = "other"
    first_level: ClassVar[int] = -1
    has_answers: ClassVar[bool] = False

    @property
    def log_partition_forms(self) -> frozenset[str]:
        """The forms of the log-partitions of all columns."""
        return frozenset({self.log_partition_form})

    @property
    def kernel_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes that (lam, nu) of the conjugate kernel may have."""
        return ((2,),)

    @property
    def curvature_bound(self) -> Array | float | None:
        """Upper bound of minus the second derivative of `log_density` in theta; None: there is none."""
        return None

    def column_groups(self, num_features: int) -> list[tuple["Family", np.ndarray]]:
        """The families of the columns.

        Args:
            num_features: cells of a row.

        Returns:
            Each family with the numbers of its columns, shape (columns of the family,).
        """
        return [(self, np.arange(num_features))]

    @property
    def has_classes(self) -> bool:
        """Whether some cells are classes, whose numbers are names."""
        return False

    def noise_columns(self, num_features: int) -> np.ndarray:
        """Columns whose noise variance is not given.

        Args:
            num_features: cells of a row.

        Returns:
            Numbers of columns, shape (number of such columns,).
        """
        groups = self.column_groups(num_features)
        return np.concatenate([np.zeros(0, int)] + [own for family, own in groups if family.learns_noise])

    def row_shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a row of cells.

        Args:
            theta_shape: shape of the natural parameters of all rows, as `log_density` takes them.

        Returns:
            (num_features,).
        """
        return theta_shape[1:2]

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
            noise_variance: of the cells, shape () or (num_features,).

        Returns:
            The family.
        """
        return self.replaced(noise_variance=noise_variance)

    @property
    def num_cut_points(self) -> int:
        """Cut points of a column, which then has no mean; 0 for most families."""
        return 0

    @property
    def cut_sizes(self) -> frozenset[int]:
        """The numbers of cut points that ordinal columns have, each once; empty for most families."""
        return frozenset({self.num_cut_points}) - {0}

    def cut_counts(self, num_features: int) -> tuple[int, ...]:
        """Number of cut points of each column of `level_columns`.

        Args:
            num_features: cells of a row.

        Returns:
            As many numbers as there are such columns.
        """
        return (self.num_cut_points,) * len(self.level_columns(num_features))

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

    def level_starts(self, num_features: int) -> np.ndarray:
        """The number of the first level of each column.

        Args:
            num_features: cells of a row.

        Returns:
            Shape (num_features,), -1 where cells are no levels.
        """
        return np.full(num_features, self.first_level)

    def answer_columns(self, num_features: int) -> tuple[int, ...]:
        """Columns whose cells are yes or no.

        Args:
            num_features: cells of a row.

        Returns:
            Numbers of columns.
        """
        return tuple(range(num_features)) if self.has_answers else ()

    def level_columns(self, num_features: int) -> tuple[int, ...]:
        """Columns that have cut points instead of a mean.

        Args:
            num_features: cells of a row.

        Returns:
            Numbers of columns, none in most families.
        """
        return tuple(range(num_features)) if self.num_cut_points else ()

    def labels_of(
        self, names: Sequence[Any] | None, levels: Mapping[str, Sequence[Any]]
    ) -> dict[str, Sequence[Any]]:
        """Names of natural parameters of classes, ``COLUMN: LEVEL``, of ordinal columns and of cut points.

        The first class of a column has none: the others are measured against it. Cut points are named
        ``COLUMN: LEVEL|NEXT LEVEL``, by number where levels have no names.

        Args:
            names: of the columns of the data, or None.
            levels: of columns, by name.

        Returns:
            Dim to labels; none where there are no classes or all columns have cut points.
        """
        if names is None:
            return {}
        columns, with_levels = list(map(str, names)), self.level_columns(len(names))
        found: dict[str, Sequence[Any]] = {}
        if len(self.cut_sizes) > 1:
            counts = zip(with_levels, self.cut_counts(len(names)), strict=True)
            found["level_cut"] = [
                f"{columns[place]}: {low}|{high}"
                for place, count in counts
                for low, high in itertools.pairwise(_words(levels.get(columns[place], ()), count + 1))
            ]
        elif 0 < len(with_levels) < len(names):
            found["level_feature"] = [columns[place] for place in with_levels]
        if self.num_params(len(names)) == len(names):
            return found
        of_column: dict[int, list[str]] = {}
        for place in self.param_columns(len(names)):
            own, words = of_column.setdefault(place, []), levels.get(columns[place], ())
            number = len(own) + 1
            own.append(str(words[number] if number < len(words) else number))
        found["feature_class"] = [
            f"{columns[place]}: {level}" if len(own) > 1 else columns[place]
            for place, own in of_column.items()
            for level in own
        ]
        return found

    def shaped(self, theta: Array) -> Array:
        """Flat natural parameters of rows in the shape that `log_density` takes.

        Args:
            theta: shape (..., natural parameters of a row).

        Returns:
            Shape (..., num_features), with a last axis of `params_per_cell` where cells have classes.
        """
        many = self.params_per_cell
        return theta.reshape(*theta.shape[:-1], -1, many) if self.has_classes and not self.is_mixed else theta

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

    def natural_units(self, x: np.ndarray) -> np.ndarray:
        """Sizes of natural parameters: the change by which a column's mean changes by a factor e, about.

        One but for families whose natural parameters are negative, and have the inverse unit of the data or
        lie close to zero where means are large.

        Args:
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Shape (num_params,), positive.
        """
        return np.ones(self.num_params(x.shape[1]))

    def negative_params(self, num_features: int) -> np.ndarray:
        """Which natural parameters of a row must be negative.

        Args:
            num_features: cells of a row.

        Returns:
            Boolean, shape (num_params,).
        """
        return np.full(self.num_params(num_features), self.theta_is_negative)

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

    def log_density_at(self, theta: Array, x: Array, cut_points: Array | None) -> Array:
        """`log_density` of families that may have cut points.

        Args:
            theta: natural parameters, as in `log_partition`.
            x: cells.
            cut_points: of the columns of `level_columns`, shape (number of them, num_cut_points), flat where
                these numbers differ, or None.

        Returns:
            The shape of ``x``, in nats.
        """
        return self.log_density(theta, x)

    def mean_and_variance(self, theta: Array, cut_points: Array | None) -> tuple[Array, Array]:
        """Mean and variance of each cell; of a class the most probable one, and p (1 - p) of it.

        Args:
            theta: natural parameters, as in `log_partition`.
            cut_points: as in `log_density_at`.

        Returns:
            Two arrays, each of the shape of the cells.
        """
        return self.mean(theta), self.variance(theta)

    def mean_information(self, theta: Array, cut_points: Array | None) -> Array:
        """Fisher information of the natural parameters of a row, averaged over rows.

        Args:
            theta: natural parameters of rows, as in `log_partition`, shape (num_rows, num_features, ...).
            cut_points: as in `log_density_at`.

        Returns:
            Shape (num_params, num_params), positive semi-definite.
        """
        return jnp.diag(jnp.mean(self.variance(theta) / self.dispersion**2, axis=0))

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """Mean and variance of cells whose natural parameters have a distribution.

        The mean is E[m], the variance E[s] + Var[m] over theta, m and s those of `mean_and_variance`.

        Args:
            theta: nodes of the distribution, shape (num_nodes, ...), the rest as in `log_partition`.
            weights: of the nodes, shape (num_nodes,), with sum one.
            normal_weights: those under which the nodes are normally distributed; None: there are none.
            cut_points: as in `log_density_at`.

        Returns:
            Two arrays, each of the shape of the cells.
        """
        means, variances = self.mean_and_variance(theta, cut_points)
        mean = jnp.tensordot(weights, means, 1)
        return mean, jnp.tensordot(weights, variances + (means - mean) ** 2, 1)

    def mean_square_of_means(self, mean: Array, variance: Array) -> Array | None:
        """E[m^2] of cells whose natural parameters have a distribution, by inverting `expected_cells`.

        Args:
            mean: E[m] of each cell, shape (..., num_features).
            variance: E[s] + Var[m], likewise.

        Returns:
            Shape of ``mean``; None where m is bounded or linear in theta, so that no tail can dominate it.
        """
        return None

    def expected_class_probs(self, theta: Array, weights: Array) -> Array | None:
        """Probabilities of the classes of cells, averaged as in `expected_cells`; None: there are no classes.

        Args:
            theta: nodes, as there.
            weights: of the nodes.

        Returns:
            Shape (num_features, num_classes), zero for columns and classes that there are not.
        """
        return None

    def log_marginal(self, theta: Array, variance: Array, x: Array, cut_points: Array | None) -> Array:
        """Log density of cells whose natural parameters are normal.

        Args:
            theta: their means, flat, shape (num_params,).
            variance: their variances, likewise; those of a cell are independent.
            x: cells, shape (num_features,).
            cut_points: as in `log_density_at`.

        Returns:
            Shape (num_features,), in nats.
        """
        return expected_log_density(
            lambda nodes: self.log_density_at(self.shaped(nodes), x, cut_points), theta, variance
        )

    def sample(self, key: Array, theta: Array, cut_points: Array | None, shape: tuple[int, ...]) -> Array:
        """Draws of cells, as floating-point numbers.

        Args:
            key: a JAX key.
            theta: natural parameters, as in `log_partition`.
            cut_points: as in `log_density_at`.
            shape: of the draws.

        Returns:
            ``shape`` followed by the shape of the cells.
        """
        return self.distribution(theta).sample(key, shape).astype(theta.dtype)

    def by_column(self, parts: list[Array]) -> Array:
        """Arrays of the columns of each family side by side, in the table's order.

        Args:
            parts: an array for each entry of `column_groups`, shape (..., columns of the group).

        Returns:
            Shape (..., num_features).
        """
        (whole,) = parts
        return whole

    def cell_terms(
        self, x: Array, beta: Number = 0.0, conjugate: Array | None = None, weight: Number = 1.0
    ) -> CellTerms:
        r"""Coefficients of the log density of cells together with the conjugate kernel's share of it.

        Up to a constant it is :math:`\kappa\theta - \tau\theta^2/2 - b\log 2\cosh(\theta/2) - r e^\theta`.

        Args:
            x: cells, shape (num_observations, num_features), NaN where missing.
            beta: share of the kernel.
            conjugate: its (lam, nu), shape (2,) or (num_features, 2), or None.
            weight: of the log likelihood.

        Returns:
            kappa, tau, b and r, each of the shape of ``x``.
        """
        lam, nu = (0.0, 0.0) if conjugate is None else (conjugate[..., 0], conjugate[..., 1])
        seen = jnp.where(jnp.isnan(x), 0.0, weight)
        return self._cell_terms(weight * jnp.nan_to_num(x), seen, beta * lam, beta * nu)

    def _cell_terms(self, known: Array, seen: Array, lam: Number, nu: Number) -> CellTerms:
        raise NotImplementedError(f"the log-partition of {type(self).__name__} has no such form")

    def quadratic_bound(self, x: Array, curves: Array | None) -> tuple[Array, Array, Array]:
        r"""Lower bound :math:`c + t\theta - a\theta^2/2` of `log_density`; exact for Gaussian cells.

        Args:
            x: cells.
            curves: xi, the values of theta at which the bound of Jaakkola and Jordan (2000) is tight.

        Returns:
            c, t and a, the shape of ``x``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no quadratic bound")

    def expected_base_measure(self, x: Array, inverse_noise: Number, log_noise: Number) -> Array:
        """The part of the expected log density of all observed cells that does not depend on theta.

        Args:
            x: cells, shape (num_observations, num_features), NaN where missing.
            inverse_noise: E[1 / phi], read where the noise variance is not given.
            log_noise: E[log phi], likewise.

        Returns:
            A scalar, in nats.
        """
        seen = ~jnp.isnan(x)
        return jnp.sum(jnp.where(seen, self.log_base_measure(jnp.where(seen, x, 1.0)), 0.0))

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
        """The distribution of cells, in NumPyro.

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
        """The kernels to be checked, each distinct one once: family, lam and nu.

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

    def log_kernel_integral(self, lam: Array, nu: Array) -> Array:
        """Logarithm of the integral of the conjugate kernel over theta, where that is proper.

        Args:
            lam: multiplies theta; the last axis over columns, where there are several.
            nu: multiplies the log-partition, likewise.

        Returns:
            The shape of both, in nats.
        """
        raise NotImplementedError(f"{type(self).__name__} has no integral of its kernel")

    def draw_from_kernel(self, key: Array, lam: Array, nu: Array, shape: tuple[int, ...]) -> Array:
        """Natural parameters from the density that is proportional to the conjugate kernel.

        Args:
            key: a JAX key.
            lam: multiplies theta; the last axis over columns, where there are several.
            nu: multiplies the log-partition, likewise.
            shape: of the draws, to which both broadcast.

        Returns:
            Draws of that shape.
        """
        raise NotImplementedError(f"{type(self).__name__} has no draws from its kernel")

    def kernel_variance(self, lam: Array, nu: Array) -> Array:
        """Variance of theta under the density that is proportional to the conjugate kernel.

        Args:
            lam: multiplies theta; the last axis over columns, where there are several.
            nu: multiplies the log-partition, likewise.

        Returns:
            The shape of both.
        """
        raise NotImplementedError(f"{type(self).__name__} has no variance of its kernel")

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

    def count_sizes(self, x: np.ndarray) -> np.ndarray | None:
        """The largest count, or number of trials, of each column.

        Args:
            x: cells, shape (num_observations, num_features), NaN where missing.

        Returns:
            Shape (num_features,), 0 in columns without counts; None where cells are no counts.
        """
        return None

    def check(self, x: np.ndarray, name: str = "x") -> None:
        """Raise ValueError if the family cannot have these data.

        Args:
            x: shape (num_observations, num_features).
            name: of the data in messages.

        Raises:
            ValueError: a cell that is neither in the domain nor missing (NaN); the first one is named.
        """
        with np.errstate(invalid="ignore"):
            if all(self._are_cells(own) for own in row_blocks(x)):
                return
            good = self.is_cell(x) | np.isnan(x)
            check_cells(x, good, self.domain, name, "" if good.all() else _suited(x, name))

    def _are_cells(self, x: np.ndarray) -> bool:
        """Whether the family can have all of these cells, missing ones aside."""
        good = self.is_cell(x)
        return bool(good.all() or (good | np.isnan(x)).all())


def _suited(x: np.ndarray, name: str) -> str:
    """The family whose domain cells lie in, for the end of a message."""
    seen = x[~np.isnan(x)]
    if not np.isfinite(seen).all():
        return ""
    kind = "poisson" if (seen >= 0).all() and (seen == np.round(seen)).all() else "gaussian"
    what = "counts" if kind == "poisson" else "real numbers"
    where = f"family={kind!r}" if name == "x" else f"the family {kind!r} in families"
    learns = " (noise variance 1; Gaussian(noise_variance=None) learns it)" if kind == "gaussian" else ""
    return f": {what} are of {where}{learns}"


@dataclass(frozen=True, eq=False)
class ByColumn(Family):
    """A table with one family for each column.

    Natural parameters of a row lie flat, those of a column together and columns in the order of the table.
    The conjugate kernel has a pair (lam, nu) for each column. At most one Gaussian of unknown variance takes
    part, and serves all columns that name it. `Ordinal` columns may have different numbers of levels.

    Attributes:
        families: those that occur, each once.
        columns: of each column of the table the place of its family among ``families``.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.array([[0.0, 3.0], [1.0, 0.0], [1.0, 2.0]])
        >>> zoo.EPCA.from_data(x, family=("bernoulli", "poisson"), num_latents=1).family.columns
        (0, 1)
    """

    families: tuple[Family, ...] = ()
    columns: tuple[int, ...] = static(default=())
    is_mixed = True

    @classmethod
    def of(cls, families: tuple[Family, ...]) -> Self:
        """A table from one family per column; columns with equal families share one.

        Args:
            families: shape of the tuple: one entry per column, in the table's order.

        Returns:
            The distinct families, and which one each column has.
        """
        keys = [_key(family) for family in families]
        order = list(dict.fromkeys(keys))
        return cls(tuple(families[keys.index(key)] for key in order), tuple(order.index(key) for key in keys))

    def validate(self) -> None:
        """Raise ValueError if columns and families do not match or too many have parameters beside theta."""
        if not self.columns or set(self.columns) != set(range(len(self.families))):
            raise ValueError("columns must name the place of a family in families, and every family be named")
        count = sum(family.learns_noise for family in self.families)
        if count > 1:
            raise ValueError(
                f"a table can have one Gaussian of unknown variance for several columns, not {count} of "
                "them; put the columns of each in a view of zoo.Paired(families, num_shared=num_latents), "
                "which with num_specific=0 is the same model"
            )

    @property
    def domain(self) -> str:
        """The allowed values, for messages; `check` names those of the column."""
        return "values that the family of its column can have"

    @property
    def theta_is_negative(self) -> bool:
        """Whether some natural parameters are negative."""
        return any(family.theta_is_negative for family in self.families)

    @property
    def log_partition_forms(self) -> frozenset[str]:
        """The forms of the log-partitions of all columns."""
        return frozenset().union(*(family.log_partition_forms for family in self.families))

    @property
    def kernel_shapes(self) -> tuple[tuple[int, ...], ...]:
        """One pair, or one for each column."""
        return ((2,), (len(self.columns), 2))

    @property
    def has_kernel(self) -> bool:
        """Whether all columns have a conjugate kernel."""
        return all(family.has_kernel for family in self.families)

    @property
    def has_classes(self) -> bool:
        """Whether some columns are `Categorical`."""
        return any(family.has_classes for family in self.families)

    @property
    def learns_noise(self) -> bool:
        """Whether there is a Gaussian of unknown variance."""
        return any(family.learns_noise for family in self.families)

    def with_noise(self, noise_variance: Array) -> Self:
        """The same with that variance in place of the unknown one."""
        by_column = jnp.ndim(noise_variance) > 0
        given = [
            family.with_noise(noise_variance[columns] if by_column else noise_variance)
            if family.learns_noise
            else family
            for family, columns, _ in self.groups
        ]
        return self.replaced(families=tuple(given))

    @property
    def num_cut_points(self) -> int:
        """The largest number of cut points of an `Ordinal` column, 0 without such columns."""
        return max(family.num_cut_points for family in self.families)

    @property
    def cut_sizes(self) -> frozenset[int]:
        """Those of all families."""
        return frozenset().union(*(family.cut_sizes for family in self.families))

    def cut_counts(self, num_features: int) -> tuple[int, ...]:
        """Number of cut points of each ordinal column."""
        counts = (self.families[place].num_cut_points for place in self.columns)
        return tuple(count for count in counts if count)

    def num_params(self, num_features: int) -> int:
        """Natural parameters of a row."""
        return sum(self.families[place].params_per_cell for place in self.columns)

    def param_columns(self, num_features: int) -> tuple[int, ...]:
        """The column of each natural parameter of a row."""
        sizes = [self.families[place].params_per_cell for place in self.columns]
        return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

    def level_starts(self, num_features: int) -> np.ndarray:
        """The number of the first level of each column, -1 where cells are no levels."""
        return np.array([self.families[place].first_level for place in self.columns])

    def answer_columns(self, num_features: int) -> tuple[int, ...]:
        """Columns whose cells are yes or no."""
        return tuple(c for c, place in enumerate(self.columns) if self.families[place].has_answers)

    def level_columns(self, num_features: int) -> tuple[int, ...]:
        """Columns that have cut points instead of a mean."""
        return tuple(c for c, place in enumerate(self.columns) if self.families[place].num_cut_points)

    @property
    def groups(self) -> tuple[tuple[Family, np.ndarray, np.ndarray], ...]:
        """Each family with its columns and the places of their natural parameters in a row."""
        owner = np.asarray(self.columns)[np.asarray(self.param_columns(len(self.columns)))]
        return tuple(
            (family, np.flatnonzero(np.asarray(self.columns) == place), np.flatnonzero(owner == place))
            for place, family in enumerate(self.families)
        )

    def column_groups(self, num_features: int) -> list[tuple[Family, np.ndarray]]:
        """Each family with the numbers of its columns."""
        return [(family, columns) for family, columns, _ in self.groups]

    def row_shape(self, theta_shape: tuple[int, ...]) -> tuple[int, ...]:
        """(num_features,); natural parameters lie flat."""
        return (len(self.columns),)

    def by_column(self, parts: list[Array]) -> Array:
        """Arrays of the columns of each family side by side, in the table's order."""
        order = np.argsort(np.concatenate([columns for _, columns, _ in self.groups]), kind="stable")
        return jnp.concatenate(parts, axis=-1)[..., order]

    def log_partition(self, theta: Array) -> Array:
        """G of each column; all must have one natural parameter."""
        return self.by_column([f.log_partition(theta[..., params]) for f, _, params in self.groups])

    def _parts(self, theta: Array) -> list[tuple[Family, np.ndarray, Array]]:
        """Each family with its columns and their natural parameters, shaped for it."""
        return [(f, columns, f.shaped(theta[..., params])) for f, columns, params in self.groups]

    def _cuts(self, cut_points: Array | None) -> list[Array | None]:
        """The cut points of the columns of each family, None where it has none."""
        size = len(self.columns)
        counts, place_of = self.cut_counts(size), {c: i for i, c in enumerate(self.level_columns(size))}
        return [
            cut_points_of_columns(cut_points, counts, [place_of[c] for c in columns.tolist()])
            if family.num_cut_points
            else None
            for family, columns, _ in self.groups
        ]

    def log_density_at(self, theta: Array, x: Array, cut_points: Array | None) -> Array:
        """Log density of each cell under the family of its column."""
        parts = zip(self._parts(theta), self._cuts(cut_points), strict=True)
        return self.by_column([f.log_density_at(own, x[..., c], cuts) for (f, c, own), cuts in parts])

    def mean_and_variance(self, theta: Array, cut_points: Array | None) -> tuple[Array, Array]:
        """Mean and variance of each cell under the family of its column."""
        parts = zip(self._parts(theta), self._cuts(cut_points), strict=True)
        pairs = [family.mean_and_variance(own, cuts) for (family, _, own), cuts in parts]
        return tuple(self.by_column(list(part)) for part in zip(*pairs, strict=True))

    def mean_information(self, theta: Array, cut_points: Array | None) -> Array:
        """Of each column by its family; cells of different columns are independent."""
        found = jnp.zeros(theta.shape[-1:] * 2)
        for (family, _, params), cuts in zip(self.groups, self._cuts(cut_points), strict=True):
            own = family.mean_information(family.shaped(theta[..., params]), cuts)
            found = found.at[np.ix_(params, params)].set(own)
        return found

    def expected_cells(
        self, theta: Array, weights: Array, normal_weights: Array | None, cut_points: Array | None
    ) -> tuple[Array, Array]:
        """Mean and variance of each cell under the family of its column."""
        parts = zip(self._parts(theta), self._cuts(cut_points), strict=True)
        pairs = [f.expected_cells(own, weights, normal_weights, cuts) for (f, _, own), cuts in parts]
        return tuple(self.by_column(list(part)) for part in zip(*pairs, strict=True))

    def mean_square_of_means(self, mean: Array, variance: Array) -> Array | None:
        """That of the columns whose families have one, E[m]^2 in the others; None where none has."""
        found = [f.mean_square_of_means(mean[..., c], variance[..., c]) for f, c, _ in self.groups]
        if all(part is None for part in found):
            return None
        squares = [mean[..., c] ** 2 for _, c, _ in self.groups]
        return self.by_column([s if part is None else part for part, s in zip(found, squares, strict=True)])

    def expected_class_probs(self, theta: Array, weights: Array) -> Array | None:
        """Probabilities of the classes of the categorical columns, zero in the others."""
        found = [(columns, f.expected_class_probs(own, weights)) for f, columns, own in self._parts(theta)]
        sizes = [probs.shape[1] for _, probs in found if probs is not None]
        if not sizes:
            return None
        whole = jnp.zeros((len(self.columns), max(sizes)))
        for columns, probs in found:
            if probs is not None:
                whole = whole.at[columns, : probs.shape[1]].set(probs)
        return whole

    def log_marginal(self, theta: Array, variance: Array, x: Array, cut_points: Array | None) -> Array:
        """Log density of each cell under the family of its column."""
        parts = zip(self.groups, self._cuts(cut_points), strict=True)
        return self.by_column(
            [
                f.log_marginal(theta[params], variance[params], x[columns], cuts)
                for (f, columns, params), cuts in parts
            ]
        )

    def sample(self, key: Array, theta: Array, cut_points: Array | None, shape: tuple[int, ...]) -> Array:
        """Draws of each cell from the family of its column."""
        parts = self._parts(theta)
        keys, all_cuts = jax.random.split(key, len(parts)), self._cuts(cut_points)
        return self.by_column(
            [
                f.sample(k, own, cuts, shape)
                for k, (f, _, own), cuts in zip(keys, parts, all_cuts, strict=True)
            ]
        )

    def cell_terms(
        self, x: Array, beta: Number = 0.0, conjugate: Array | None = None, weight: Number = 1.0
    ) -> CellTerms:
        """The coefficients under the family of each column."""
        pairs = None if conjugate is None else jnp.broadcast_to(conjugate, (x.shape[1], 2))
        parts = [
            family.cell_terms(x[:, columns], beta, None if pairs is None else pairs[columns], weight)
            for family, columns, _ in self.groups
        ]
        return tuple(self.by_column(list(part)) for part in zip(*parts, strict=True))

    def expected_base_measure(self, x: Array, inverse_noise: Number, log_noise: Number) -> Array:
        """The sum over all columns."""
        groups = self.groups
        return sum(f.expected_base_measure(x[:, own], inverse_noise, log_noise) for f, own, _ in groups)

    def natural_of_columns(self, x: Array) -> Array:
        """Theta of every column's mean, flat; zero for `Ordinal` columns."""
        found = jnp.zeros(self.num_params(x.shape[1]))
        for family, columns, params in self.groups:
            if not family.num_cut_points:
                found = found.at[params].set(family.natural_of_columns(x[:, columns]))
        return found

    def natural_units(self, x: np.ndarray) -> np.ndarray:
        """Of each column those of its family."""
        found = np.ones(self.num_params(x.shape[1]))
        for family, columns, params in self.groups:
            found[params] = family.natural_units(x[:, columns])
        return found

    def negative_params(self, num_features: int) -> np.ndarray:
        """Those of the columns whose family has negative ones."""
        found = np.zeros(self.num_params(num_features), bool)
        for family, _, params in self.groups:
            found[params] = family.theta_is_negative
        return found

    def kernel_of(self, x: np.ndarray, strength: float) -> np.ndarray:
        """Default (lam, nu) of each column, shape (num_features, 2): the mean of its family's cells."""
        found = np.zeros((len(self.columns), 2))
        for family, columns, _ in self.groups:
            found[columns] = family.kernel_of(x[:, columns], strength)
        return found

    def kernel_problems(self, conjugate: np.ndarray) -> list[tuple[Family, float, float]]:
        """Each column's family with its lam and nu, each distinct triple once."""
        pairs = np.broadcast_to(conjugate, (len(self.columns), 2))
        seen = {(place, *pair): None for place, pair in zip(self.columns, pairs.tolist(), strict=True)}
        return [(self.families[place], lam, nu) for place, lam, nu in seen]

    def log_kernel_integral(self, lam: Array, nu: Array) -> Array:
        """That of each column."""
        return self.by_column([f.log_kernel_integral(lam[..., c], nu[..., c]) for f, c, _ in self.groups])

    def draw_from_kernel(self, key: Array, lam: Array, nu: Array, shape: tuple[int, ...]) -> Array:
        """Those of each column; the last axis is over columns."""
        keys = jax.random.split(key, len(self.families))
        return self.by_column(
            [
                f.draw_from_kernel(own, lam[..., c], nu[..., c], (*shape[:-1], len(c)))
                for own, (f, c, _) in zip(keys, self.groups, strict=True)
            ]
        )

    def kernel_variance(self, lam: Array, nu: Array) -> Array:
        """That of each column."""
        return self.by_column([f.kernel_variance(lam[..., c], nu[..., c]) for f, c, _ in self.groups])

    def count_sizes(self, x: np.ndarray) -> np.ndarray:
        """Those of the columns' families."""
        whole = np.zeros(len(self.columns))
        for family, columns, _ in self.groups:
            own = family.count_sizes(x[:, columns])
            whole[columns] = 0.0 if own is None else own
        return whole

    def check(self, x: np.ndarray, name: str = "x") -> None:
        """Raise ValueError naming the first cell outside its column's domain."""
        x = as_matrix(x, name)
        if x.shape[1] != len(self.columns):
            raise ValueError(
                f"{name} has {x.shape[1]} columns and {len(self.columns)} families were given for them"
            )
        for family, columns, _ in self.groups:
            only = np.full(x.shape, np.nan)
            only[:, columns] = x[:, columns]
            copy_labels(only, x)
            family.check(only, name)


def _key(family: Family) -> tuple:
    leaves = [getattr(family, name) for name in names_of(family).leaves]
    fixed = tuple(getattr(family, name) for name in names_of(family).static)
    return type(family).__name__, tuple(None if leaf is None else float(leaf) for leaf in leaves), fixed


def _words(levels: Sequence[Any], count: int) -> Sequence[Any]:
    """The names of so many levels; their numbers where they have none."""
    return levels if len(levels) == count else range(1, count + 1)
