"""Names that are not known, in messages."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A name that is near to one that is not known, as the end of a message.

    Args:
        name: as it was written.
        known: the names that there are.

    Returns:
        "; did you mean ...?", or nothing where none is near.
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
