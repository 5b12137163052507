"""Functions of SciPy and ArviZ whose modules take long to import, imported when one is first used.

``scipy.stats`` and ``arviz_stats`` take nearly a second together, which a fit that needs neither saves. Use
``late.NAME``: a name that is imported from here is imported at once.
"""

import importlib
from typing import Any

_HOMES = {
    "array_stats": "arviz_stats.base",
    "compare": "arviz_stats",
    "linear_sum_assignment": "scipy.optimize",
    "loo": "arviz_stats",
    "psense": "arviz_stats",
    "psense_summary": "arviz_stats",
    "qmc": "scipy.stats",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """The function or module of that name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo.late' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return found
