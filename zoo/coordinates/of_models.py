"""A model in other coordinates, by the units of its sites and fields."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.coordinates import Coordinates, Unit, by_part
from zoo.fields import facts_of, names_of, part_sizes

if TYPE_CHECKING:
    from zoo.model import Model


def expressed(model: "Model", turn: Callable[[Any, Unit], Any]) -> Any:
    """The same model of data in other coordinates.

    Args:
        model: the model.
        turn: what becomes of a field with a unit: `zoo.coordinates.Coordinates.inward` or ``outward``.

    Returns:
        The model.
    """
    names = [name for name in facts_of(model, "unit") if getattr(model, name) is not None]
    nested = [name for name in names_of(model).leaves if hasattr(getattr(model, name), "expressed")]
    found = {name: getattr(model, name).expressed(turn) for name in nested}
    return model.replaced(**{name: turned(model, name, turn) for name in names} | found)


def turned(model: "Model", name: str, turn: Callable[[Any, Unit], Any]) -> Any:
    """A field with a unit in other coordinates.

    Args:
        model: the model.
        name: of the field.
        turn: as of `expressed`.

    Returns:
        Its value.
    """
    value, unit = getattr(model, name), facts_of(model, "unit")[name]
    if isinstance(unit, Unit):
        return turn(value, unit)
    numbers = jnp if isinstance(value, jax.Array) else np
    sizes = (size if own.axes else 1 for size, own in zip(part_sizes(model), unit, strict=True))
    parts = zip(field_by_part(model, name), unit, sizes, strict=True)
    return numbers.concatenate([numbers.broadcast_to(turn(v, own), (n,)) for v, own, n in parts])


def field_by_part(model: "Model", name: str) -> list[Any]:
    """What a hyperparameter holds of each part of the data.

    Args:
        model: the model.
        name: of the field, which has a unit for each part.

    Returns:
        For each part a number, or one for each of its columns.
    """
    return by_part(getattr(model, name), facts_of(model, "unit")[name], part_sizes(model))


def coordinate_fields(model: "Model") -> dict[str, Any]:
    """Fields that tell `zoo.model.Model.own_coordinates`.

    Args:
        model: the model.

    Returns:
        Name to what it is in a model of data in these coordinates.
    """
    units = facts_of(model, "unit")
    own = (field for field in fields(model) if field.name in units or "unit" not in field.metadata)
    return {field.name: field.metadata["inside"] for field in own if "inside" in field.metadata}


def is_stated(model: "Model") -> bool:
    """Whether the program is stated in coordinates of its own, whether or not these are read already.

    Args:
        model: the model.

    Returns:
        Whether its fields, or some of them, are other than in a model that has none.
    """
    inner = coordinate_fields(model).items()
    return bool(model.units) and any(getattr(model, name) is not value for name, value in inner)


def inside(model: "Model", own: Coordinates) -> Any:
    """The model of data in coordinates, and stated in these.

    Args:
        model: the model.
        own: its own coordinates, with any origin where they have none, or others where it has none.

    Returns:
        The model.
    """
    return expressed(model, own.inward).replaced(**coordinate_fields(model))


def part_weights(model: "Model") -> list[Any]:
    """The powers of the densities of the parts of the data in the program, see `zoo.intake.Table.weight`.

    Args:
        model: the model.

    Returns:
        A number for each part.
    """
    num_parts, (first, *_) = len(model.data_names), model.data
    tables = (*[first] * (num_parts - len(model.data)), *model.data)  # of which the first may have a star
    found: list[Any] = [getattr(model, w) if isinstance(w := own.weight, str) else w for own in tables]
    return [weight[part] if np.ndim(weight) else weight for part, weight in enumerate(found)]


def noise_factors(model: "Model") -> Mapping[str, Any]:
    """Factors of noise variances in the rows of the loadings, where columns are in units of their own.

    Args:
        model: the model.

    Returns:
        Suffix of a noise variance to its factor in each row of the loadings; left out: 1.
    """
    own, units = model.own_coordinates, model.units
    if own is None:
        return {}
    found = {suffix: units[site] for site, suffix in model.roles.loadings.items() if site in units}
    if model.roles.subspaces:  # whose scales have no axis over the columns
        found[""] = units[model.data_names[0]]
    return {
        suffix: own.factor(Unit(2, (-1,), part=unit.part, columns=unit.columns))
        for suffix, unit in found.items()
        if (scale := own.scales[unit.part]) is not None and scale.ndim
    }
