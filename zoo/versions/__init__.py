"""Which versions of Python, of this library and of the packages it depends on are installed."""

import importlib
import platform
import re
import textwrap

__all__ = ["show_versions"]

_LIBRARY = "probabilistic-model-zoo"


def show_versions() -> None:
    """Print the versions of Python, of this library and of the packages it depends on.

    For the end of a notebook, and for bug reports. A package that is not installed is listed as such, and so
    is this library in a clone from which nothing was installed.
    """
    metadata = importlib.import_module("importlib.metadata")  # takes half of the time of ``import zoo``
    found = [f"Python {platform.python_version()}"]
    try:
        required = [entry for entry in metadata.requires(_LIBRARY) or () if "extra ==" not in entry]
    except metadata.PackageNotFoundError:
        required = []
    for package in (_LIBRARY, *sorted(re.split("[^A-Za-z0-9_.-]", entry)[0] for entry in required)):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} (not installed)")
    print(textwrap.fill(", ".join(found), 110, break_on_hyphens=False))
