"""Data sets: shipped files, seeded generators, sets of other packages, and sets that users provide.

``catalogue()`` lists them, ``load(name)`` returns the arrays. Nothing is ever downloaded. Shipped files
lie beside this file in an installed wheel (``zoo/data``) and one level up in a clone; sets that may not be
passed on are read from the folder that the environment variable ``ZOO_DATA`` names, and recognised by their
SHA-256. ``read_table(path)`` reads a file of the user's.
"""

import importlib
import json
from pathlib import Path
from typing import Any

__all__ = ["catalogue", "load", "read_table"]

_LAZY = {  # names imported on first access, so that the catalogue needs no NumPy
    "Dataset": "zoo.datasets.loading",
    "load": "zoo.datasets.loading",
    "read_table": "zoo.intake.files",
    "read_tables": "zoo.intake.files",
}


def catalogue() -> dict[str, dict[str, Any]]:
    """All data sets by name, with kind, description, citation, terms, and arrays with their shapes.

    Kinds: ``shipped`` (a file of this package), ``generated`` (from a seed), ``package`` (comes with another
    package), ``user`` (a file that the user holds in the folder that ``ZOO_DATA`` names).

    Returns:
        Name to entry.
    """
    return json.loads((shipped_folder() / "catalogue.json").read_text(encoding="utf-8"))


def shipped_folder() -> Path:
    """The folder of the data: ``zoo/data`` of a wheel, else ``data`` of the clone that holds this package."""
    beside = Path(__file__).parents[1] / "data"
    return beside if beside.is_dir() else Path(__file__).parents[2] / "data"


def __getattr__(name: str) -> Any:
    """Import what needs NumPy and pandas on first access."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'zoo.datasets' has no attribute {name!r}")
