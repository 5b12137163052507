"""Checks of single arguments, and what their messages say."""

from collections.abc import Collection
from typing import Any

import numpy as np

__all__ = [
    "check_choice",
    "check_flag",
    "check_number",
    "check_num_parts",
    "check_positive",
    "check_size",
    "check_whole",
]


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless ``value`` is one of the names in ``choices``.

    Args:
        name: of the argument in the message.
        value: what came.
        choices: the names there are.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a boolean.

    Args:
        name: of the argument in the message.
        value: what came.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False; got {value!r}")


def check_num_parts(name: str, given: int, needed: int) -> None:
    """Raise TypeError unless a model was given as many parts of data as it takes.

    Args:
        name: of the model.
        given: number of parts.
        needed: number that it takes.
    """
    if given != needed:
        parts = "part" if needed == 1 else "parts"
        raise TypeError(
            f"{name} takes {needed} {parts} of data; there {'is' if given == 1 else 'are'} {given}"
        )


def check_size(name: str, value: Any, least: int = 1) -> None:
    """Raise TypeError unless ``value`` is a whole number, ValueError if it is below ``least``.

    Args:
        name: of the argument in the message.
        value: what came.
        least: the smallest that is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is a whole number of at least ``least``.

    Args:
        name: of the argument in the message.
        value: what came.
        least: the smallest that is allowed.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")


def check_number(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a Python number.

    Args:
        name: of the argument in the message.
        value: what came.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number; got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is one positive, finite number.

    Args:
        name: of the argument in the message.
        value: what came.
    """
    if value is None or np.shape(value) != () or not 0 < value < np.inf:
        raise ValueError(f"{name} must be a positive number; got {value}")
