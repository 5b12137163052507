"""A table whose columns are of different families: ratings beside counts beside yes or no."""

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo.checks import as_matrix
from zoo.exponential_family.family import Family
from zoo.model import static

__all__ = ["ByColumn"]


@dataclass(frozen=True, eq=False)
class ByColumn(Family):
    """One family a column.

    Natural parameters of a row lie flat, those of a column together and columns in the order of the table.
    The conjugate kernel has a pair (lam, nu) for each column. At most one Gaussian of unknown variance and at
    most one `Ordinal` take part, and each serves all columns that name it.

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
        """From one family a column; columns share a family that is the same object or has the same fields.

        Args:
            families: shape of the tuple: one entry a column, in the table's order.

        Returns:
            The distinct families, and which one each column has.
        """
        distinct: dict[Any, Family] = {}
        keys = [_key(family) for family in families]
        for key, family in zip(keys, families, strict=True):
            distinct.setdefault(key, family)
        order = list(distinct)
        return cls(tuple(distinct.values()), tuple(order.index(key) for key in keys))

    def validate(self) -> None:
        """Raise ValueError if columns and families do not match or too many bring parameters of their own."""
        if not self.columns or set(self.columns) != set(range(len(self.families))):
            raise ValueError("columns must name the place of a family in families, and every family be named")
        for what, count in (
            ("Gaussian of unknown variance", sum(f.learns_noise for f in self.families)),
            ("Ordinal", sum(f.num_cut_points > 0 for f in self.families)),
        ):
            if count > 1:
                raise ValueError(f"a table can have one {what} for several columns, not {count} of them")

    @property
    def domain(self) -> str:
        """What cells may be, said by column in `check`."""
        return "what the family of its column can be"

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
    def learns_noise(self) -> bool:
        """Whether there is a Gaussian of unknown variance."""
        return any(family.learns_noise for family in self.families)

    def with_noise(self, noise_variance: Array) -> Self:
        """The same with that variance in place of the unknown one."""
        given = (f.with_noise(noise_variance) if f.learns_noise else f for f in self.families)
        return self.replaced(families=tuple(given))

    @property
    def num_cut_points(self) -> int:
        """Of an `Ordinal` column, 0 without such columns."""
        return max(family.num_cut_points for family in self.families)

    def num_params(self, num_features: int) -> int:
        """Natural parameters of a row."""
        return sum(self.families[place].params_per_cell for place in self.columns)

    def param_columns(self, num_features: int) -> tuple[int, ...]:
        """The column of each natural parameter of a row."""
        sizes = [self.families[place].params_per_cell for place in self.columns]
        return tuple(np.repeat(np.arange(len(sizes)), sizes).tolist())

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

    def log_density_at(self, theta: Array, x: Array, cut_points: Array | None) -> Array:
        """Log density of each cell under the family of its column."""
        parts = self._parts(theta)
        return self.by_column([f.log_density_at(own, x[..., c], cut_points) for f, c, own in parts])

    def mean_and_variance(self, theta: Array, cut_points: Array | None) -> tuple[Array, Array]:
        """Of each cell under the family of its column."""
        pairs = [family.mean_and_variance(own, cut_points) for family, _, own in self._parts(theta)]
        mean, variance = (self.by_column(list(part)) for part in zip(*pairs, strict=True))
        return mean, variance

    def sample(self, key: Array, theta: Array, cut_points: Array | None, shape: tuple[int, ...]) -> Array:
        """Draws of each cell from the family of its column."""
        parts = self._parts(theta)
        keys = jax.random.split(key, len(parts))
        return self.by_column(
            [f.sample(k, own, cut_points, shape) for k, (f, _, own) in zip(keys, parts, strict=True)]
        )

    def cell_terms(
        self,
        x: Array,
        beta: Array | float = 0.0,
        conjugate: Array | None = None,
        weight: Array | float = 1.0,
    ) -> tuple[Array, Array, Array, Array]:
        """The coefficients under the family of each column."""
        pairs = None if conjugate is None else jnp.broadcast_to(conjugate, (x.shape[1], 2))
        parts = [
            family.cell_terms(x[:, columns], beta, None if pairs is None else pairs[columns], weight)
            for family, columns, _ in self.groups
        ]
        linear, precision, count, rate = (self.by_column(list(part)) for part in zip(*parts, strict=True))
        return linear, precision, count, rate

    def expected_base_measure(
        self, x: Array, inverse_noise: Array | float, log_noise: Array | float
    ) -> Array:
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

    def kernel_of(self, x: np.ndarray, strength: float) -> np.ndarray:
        """Default (lam, nu) of each column, shape (num_features, 2): the mean of its family's cells."""
        found = np.zeros((len(self.columns), 2))
        for family, columns, _ in self.groups:
            found[columns] = family.kernel_of(x[:, columns], strength)
        return found

    def kernel_problems(self, conjugate: np.ndarray) -> list[tuple[Family, float, float]]:
        """Each column's family with its lam and nu, those that are alike once."""
        pairs = np.broadcast_to(conjugate, (len(self.columns), 2))
        seen = {(place, *pair): None for place, pair in zip(self.columns, pairs.tolist(), strict=True)}
        return [(self.families[place], lam, nu) for place, lam, nu in seen]

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
            family.check(only, name)


def _key(family: Family) -> tuple:
    leaves = tuple(
        None if value is None else float(value) for value in (getattr(family, n) for n in family.leaf_names())
    )
    fixed = tuple(getattr(family, name) for name in family.static_names())
    return (type(family).__name__, leaves, fixed)
