r"""Coordinates of the data, and how everything that has a unit follows them.

A table may be measured from another origin and in another scale, :math:`\tilde x_d = (x_d - o_d) / s_d`. A
quantity of power p is then :math:`\tilde v = v / s^p`, a location :math:`(v - o) / s`, and a density of it
gains :math:`p \log s` for every entry that varies freely. A model that declares the powers of its sites and
fields (`Unit`) is therefore *the same model* in all coordinates in which its program can be written:

.. math:: p(x, v \mid m) = p(\tilde x, \tilde v \mid \tilde m) \,
    |\partial(\tilde x, \tilde v) / \partial(x, v)|.

With a scale for each column, a quantity that has no axis over the columns (one noise variance for all) cannot
follow; so a scale for each column suits models of which every quantity has one (`freedom_of`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.checks import column_moments, is_finite

__all__ = [
    "Coordinates",
    "Freedom",
    "Unit",
    "by_part",
    "coordinates_of",
    "free_log_scales",
    "freedom_of",
    "is_improper",
]


class Unit(NamedTuple):
    """How a quantity follows the data.

    A covariance is ``Unit(1, (-2, -1))``, a precision matrix ``Unit(-1, (-2, -1))``, one noise variance
    ``Unit(2)``, one for each column ``Unit(2, (-1,))``. A number that is read off the data but has no unit is
    ``Unit(0)``. A field that holds numbers of several parts has a tuple of units, see `by_part`.

    Attributes:
        power: of the scale of the columns; of a matrix, along each axis.
        axes: axes of the value over the columns, counted from the last; empty: it has none.
        is_location: whether it has the origin of the data too.
        part: of the data.
        columns: those along its axes, one for each entry, or those that its scale is common to; None: all.
        logs: those of ``columns`` whose logarithms it is of: a scale moves a location, and nothing else.
    """

    power: float = 1.0
    axes: tuple[int, ...] = ()
    is_location: bool = False
    part: int = 0
    columns: tuple[int, ...] | None = None
    logs: tuple[int, ...] = ()


class Freedom(NamedTuple):
    """Which coordinates of a part of the data a model can be written in.

    Attributes:
        scale: one for each of the ``"columns"``, one ``"common"`` to all, or None: the scale stays.
        shift: whether the origin may change.
        groups: columns that have a freedom of their own, others having none; empty: all have this one.
    """

    scale: Literal["columns", "common"] | None = "common"
    shift: bool = True
    groups: tuple[tuple[tuple[int, ...], "Freedom"], ...] = ()


def by_part(value: Any, units: Unit | Sequence[Unit], sizes: Sequence[int | None]) -> list[Any]:
    """What a field holds of each part of the data, along its one axis.

    Args:
        value: one number for all parts, one for each, or those of all columns, the first part's first.
        units: of the numbers of each part; without an axis over columns a part has one number.
        sizes: the number of columns of each part; None: not known, nor asked where its unit has no axis.

    Returns:
        A number for each part, or its columns' numbers.
    """
    units = (units,) if isinstance(units, Unit) else units
    if not value.ndim:
        return [value] * len(units)
    widths: list[Any] = [size if unit.axes else 1 for unit, size in zip(units, sizes, strict=True)]
    if value.size == len(units) < sum(widths):
        return list(value)
    ends = np.cumsum(widths)
    pairs = zip(units, ends - widths, ends, strict=True)
    return [value[begin:end] if unit.axes else value[begin] for unit, begin, end in pairs]


def freedom_of(
    units: Mapping[str, Unit | tuple[Unit, ...]], names: Sequence[str]
) -> tuple[Freedom | None, ...]:
    """The coordinates that units allow.

    Args:
        units: of parts of the data, sites and fields.
        names: of the parts of the data; one without a unit keeps its coordinates, and one of power 0 its
            scale, which is that of a known noise.

    Returns:
        For each part its freedom, or None.
    """
    each = [own for unit in units.values() for own in ((unit,) if isinstance(unit, Unit) else unit)]
    cells = {name: unit for name, unit in units.items() if isinstance(unit, Unit)}
    return tuple(
        _freedom([own for own in each if own.part == part], cells[name]) if name in cells else None
        for part, name in enumerate(names)
    )


def _freedom(units: Sequence[Unit], cells: Unit) -> Freedom:
    """The coordinates that the units of a part allow, whose cells have one of them."""
    groups: dict[tuple[int, ...], list[Unit]] = {}
    for own in units:
        if own.columns is not None and len(set(own.columns)) == len(own.columns):
            groups.setdefault(own.columns, []).append(own)
    found = []
    for columns, together in groups.items():
        logs, shift = {c for unit in together for c in unit.logs}, any(unit.is_location for unit in together)
        found += [(tuple(c for c in columns if c not in logs), Freedom(_scale(together), shift))]
        found += [(tuple(c for c in columns if c in logs), Freedom(_scale(together), shift=False))]
    groups_of = tuple((columns, own) for columns, own in found if columns)
    return Freedom(_scale(units) if cells.power else None, cells.is_location, groups_of)


def _scale(units: Sequence[Unit]) -> Literal["columns", "common"]:
    return "columns" if all(own.axes for own in units if own.power) else "common"


@dataclass(frozen=True)
class Coordinates:
    """Origin and scale of each part of the data; both are numbers of the data and in double precision.

    A quantity without an axis over columns keeps its number where each column has a scale of its own: it is
    in standard units.

    Attributes:
        origins: shape (num_columns,) or () each; None: the part keeps its origin.
        scales: shape (num_columns,), or () of a common scale; None: the part keeps its scale.
    """

    origins: tuple[np.ndarray | None, ...]
    scales: tuple[np.ndarray | None, ...]

    def factor(self, unit: Unit) -> Any:
        """By what a value is multiplied on the way outward.

        Args:
            unit: of the value.

        Returns:
            Positive numbers that broadcast to its trailing axes.
        """
        scale = self._scale(unit)
        if scale is None:
            return np.ones(())
        if not np.ndim(scale):
            return scale ** (unit.power * max(1, len(unit.axes)))
        total, power = np.ones(()), np.asarray(unit.power)
        if unit.logs:
            power = power * ~np.isin(np.array(unit.columns), unit.logs)
        for axis in unit.axes:
            total = total * (scale**power).reshape(-1, *(1,) * (-axis - 1))
        return total

    def shift(self, unit: Unit) -> Any:
        """What is added to a value on the way outward.

        Args:
            unit: of the value.

        Returns:
            Numbers that broadcast to its trailing axes.
        """
        if not unit.is_location:
            return np.zeros(())
        origin, scale = self.origins[unit.part], self._scale(unit)
        origin = np.zeros(()) if origin is None else origin
        if unit.columns is not None and np.ndim(origin):
            origin = origin[np.array(unit.columns)]
        if not unit.logs or scale is None:
            return origin
        is_log = np.isin(np.array(unit.columns), unit.logs)  # columns of logarithms have no origin
        return origin + is_log * _log(scale)

    def _scale(self, unit: Unit) -> Any:
        """The scale of the columns that a quantity is of, one number if it has no axis over them."""
        scale = self.scales[unit.part]
        if scale is None or unit.columns is None or not np.ndim(scale):
            return scale
        return scale[np.array(unit.columns) if unit.axes else unit.columns[0]]

    def inward(self, value: Any, unit: Unit) -> Any:
        """A value, or the prior of one, of the data's coordinates in these.

        Args:
            value: numbers of any leading axes, in double precision unless JAX's, or a distribution.
            unit: its unit.

        Returns:
            The same kind.

        Raises:
            TypeError: there is no rule for such a distribution.
        """
        if self.origins[unit.part] is None and self.scales[unit.part] is None:
            return value
        if not isinstance(value, dist.Distribution):  # the difference first: it is exact near the origin
            away = _in_double(value) - self.shift(unit)
            factor = self.factor(unit)
            if isinstance(away, np.ndarray) and not isinstance(factor, Array):
                return np.divide(away, factor, out=away)  # which is a copy already
            return away / factor
        return _changed(value, 1.0 / self.factor(unit), -self.shift(unit) / self.factor(unit))

    def outward(self, value: Any, unit: Unit) -> Any:
        """A value, or the prior of one, of these coordinates in the data's.

        Args:
            value: as of `inward`.
            unit: its unit.

        Returns:
            The same kind.
        """
        if self.origins[unit.part] is None and self.scales[unit.part] is None:
            return value
        return _changed(value, self.factor(unit), self.shift(unit))

    def parts_inward(self, data: Sequence[Any], names: Sequence[str], units: Mapping[str, Unit]) -> list[Any]:
        """The parts of the data in these coordinates.

        Args:
            data: the parts; the last ones may be left out, or None.
            names: of the parts.
            units: of those that have one.

        Returns:
            As many parts.
        """
        return [
            part if part is None or name not in units else self.inward(part, units[name])
            for name, part in zip(names, data, strict=False)
        ]

    def log_scale_of_rows(self, data: Sequence[Any], weights: Sequence[float] = ()) -> Any:
        """By how much the log density of each row is larger in these coordinates.

        Args:
            data: the parts, NaN where a cell is missing; the last ones may be left out, or None.
            weights: of the parts in the density; empty: all 1.

        Returns:
            Shape (num_observations,), in nats.
        """
        total = np.zeros(data[0].shape[0])
        for number, (part, scale) in enumerate(zip(data, self.scales, strict=False)):
            if scale is not None and part is not None:
                numbers = jnp if isinstance(part, Array) or isinstance(scale, Array) else np
                logs = numbers.broadcast_to(_log(scale), part.shape[-1:])
                seen = logs.sum()
                if not (isinstance(part, np.ndarray) and is_finite(part)):  # one fast pass on the host
                    seen = seen - numbers.isnan(part) @ logs
                total = total + (weights[number] if weights else 1.0) * seen
        return total


def coordinates_of(data: Sequence[Any], freedom: Sequence[Freedom | None]) -> Coordinates | None:
    """Coordinates about the origin of the data and in their scale, as far as a model allows them.

    The origin is the mean of the observed cells of each column and the scale their standard deviation (a
    common one: the root of the mean variance); where the origin stays, the scale is the mean size of the
    cells. A column that does not vary has scale 1.

    Args:
        data: the parts; one that is no array keeps its coordinates.
        freedom: of each part.

    Returns:
        The coordinates; None: none change.
    """
    origins: list[np.ndarray | None] = []
    scales: list[np.ndarray | None] = []
    for x, free in zip(data, freedom, strict=True):
        if free is None or not isinstance(x, np.ndarray):
            free = Freedom(None, shift=False)
        origin, scale = _of_groups(x, free) if free.groups else _of_columns(x, free)
        origins.append(origin)
        scales.append(scale)
    changes = any(own is not None for own in (*origins, *scales))
    return Coordinates(tuple(origins), tuple(scales)) if changes else None


def _of_groups(x: np.ndarray, free: Freedom) -> tuple[np.ndarray | None, np.ndarray]:
    """Origin and scale where groups of columns have a freedom of their own; 0 and 1 in the others."""
    origin, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    for columns, own in free.groups:
        at, size = _of_columns(x[:, columns], own)
        origin[list(columns)], scale[list(columns)] = 0.0 if at is None else at, size
    return origin if free.shift else None, scale


def _of_columns(x: np.ndarray, free: Freedom) -> tuple[np.ndarray | None, np.ndarray | None]:
    if not any(free):
        return None, None
    origin, size = _moments(x, free.shift)
    if free.scale == "common":
        size = np.sqrt(np.mean(np.square(size)))
    return (origin if free.shift else None), (None if free.scale is None else np.where(size > 0, size, 1.0))


def _log(scale: Array | np.ndarray) -> Any:
    return (jnp if isinstance(scale, Array) else np).log(scale)


def _moments(x: np.ndarray, is_shifted: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each column's observed cells, or the mean size of cells whose origin stays."""
    mean, deviation = column_moments(x)
    return (mean, deviation) if is_shifted else (mean, np.nan_to_num(np.nanmean(np.abs(x), axis=0)))


def _in_double(value: Array | np.ndarray) -> Any:
    """Numbers on the host in double precision; those of JAX, which may be traced, as they are."""
    return value if isinstance(value, Array) else np.asarray(value, np.float64)


def _changed(value: Array | np.ndarray, factor: Array | np.ndarray, shift: Array | np.ndarray) -> Any:
    """``factor * value + shift``, of numbers or of a variable with this distribution."""
    if not isinstance(value, dist.Distribution):
        return _in_double(value) * factor + shift
    if isinstance(value, dist.Gamma):
        return dist.Gamma(value.concentration, value.rate / factor, validate_args=False)
    if isinstance(value, dist.Normal):
        return dist.Normal(value.loc * factor + shift, value.scale * factor, validate_args=False)
    if isinstance(value, dist.MultivariateNormal):
        rows = jnp.broadcast_to(factor, jnp.shape(value.loc))[..., :, None]
        loc = value.loc * factor + shift
        return dist.MultivariateNormal(loc, scale_tril=value.scale_tril * rows, validate_args=False)
    if isinstance(value, dist.Wishart):
        matrix = jnp.asarray(value.scale_matrix) * factor
        return dist.Wishart(value.concentration, scale_matrix=matrix, validate_args=False)
    raise TypeError(
        f"a prior in other coordinates must be Normal, MultivariateNormal, Gamma or Wishart; "
        f"got {type(value).__name__}"
    )


def is_improper(prior: dist.Distribution) -> bool:
    """Whether a prior is improper: its density is one in any coordinates.

    Args:
        prior: of a site.

    Returns:
        Whether it is an improper uniform distribution, or says of itself ``is_flat``.
    """
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    return isinstance(prior, dist.ImproperUniform) or getattr(prior, "is_flat", False)


def free_log_scales(
    support: dist.constraints.Constraint, scale: Array | np.ndarray, shape: tuple[int, ...]
) -> Any:
    """Log scales of the entries of a value that vary freely.

    Args:
        support: of the value.
        scale: of its entries, broadcast to its trailing axes.
        shape: of the value.

    Returns:
        The shape of the value, zero where an entry follows from others (the second half of a symmetric
        matrix); of a value with fixed zeros the free places of the last axis alone.
    """
    numbers = jnp if isinstance(scale, Array) else np  # on the host nothing is compiled
    each = numbers.broadcast_to(numbers.log(scale), shape)
    while hasattr(support, "base_constraint") and not hasattr(support, "places"):
        support = support.base_constraint
    if hasattr(support, "places"):  # real there, zero elsewhere
        return each[..., np.array(support.places, int)]
    return numbers.tril(each) if isinstance(support, type(dist.constraints.positive_definite)) else each
