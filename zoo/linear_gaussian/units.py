"""What a linear-Gaussian model takes over from a former fit of it."""

from collections.abc import Sequence
from typing import Any

from zoo.model import Model

__all__ = ["taken_over"]


def taken_over(model: Model, former: Model, names: Sequence[str]) -> dict[str, Any]:
    """The fields that are not given and that a former fit read off its data.

    Args:
        model: of the new fit, before it sees data.
        former: of the former fit.
        names: of the fields.

    Returns:
        Field name to value.
    """
    open_ones = (name for name in names if getattr(model, name) is None)
    return {name: getattr(former, name) for name in open_ones if getattr(former, name) is not None}
