"""What to say where another package lacks a name that this library uses: which versions it was tested with.

A version that is newer than those says nothing as long as it has what is used. The versions are in
``tested.toml`` beside this file, which `.ci/versions` writes when its tests have passed.
"""

import importlib
import importlib.util
import platform
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

__all__ = ["naming_versions", "show_versions"]

_LIBRARY = "probabilistic-model-zoo"
_DISTRIBUTIONS = {"PIL": "pillow"}  # modules that are not called as what is installed


@contextmanager
def naming_versions() -> Iterator[None]:
    """A context, or a decorator, in which a name that a dependency lacks is one ImportError.

    Returns:
        The context.

    Raises:
        ImportError: naming the package, its version and the versions that were tested. Errors of other kinds
            pass unchanged.
    """
    try:
        yield
    except (ImportError, AttributeError) as error:
        module, name = _lacking(error)
        top = module.partition(".")[0]
        tested = tomllib.loads((Path(__file__).parent / "tested.toml").read_text(encoding="utf-8"))
        package = _DISTRIBUTIONS.get(top, top)
        if package not in tested or importlib.util.find_spec(top) is None:
            raise
        low, high = tested[package]
        dotted = f"{module}.{name}" if name else module
        raise ImportError(
            f"{package} {_version(package)} has no {dotted}, which this library uses; it "
            f"was tested with {package} {low} to {high}: pip install '{package}>={low},<={high}'",
            name=module,
        ) from error


def show_versions() -> None:
    """Print the versions of Python, of this library and of the packages it depends on.

    For the end of a notebook, and for bug reports. A package that is not installed is listed as such.
    """
    tested = tomllib.loads((Path(__file__).parent / "tested.toml").read_text(encoding="utf-8"))
    found = [f"Python {platform.python_version()}"]
    for package in (_LIBRARY, *tested):
        try:
            found.append(f"{package} {_version(package)}")
        except ModuleNotFoundError:
            found.append(f"{package} (not installed)")
    print(textwrap.fill(", ".join(found), 110, break_on_hyphens=False))


def _version(package: str) -> str:
    """The version of an installed package; ModuleNotFoundError where it is not installed."""
    metadata = importlib.import_module("importlib.metadata")  # takes half of the time of ``import zoo``
    return metadata.version(package)


def _lacking(error: ImportError | AttributeError) -> tuple[str, str]:
    """The module that lacks something, and the name that it lacks; empty of errors of another kind."""
    if isinstance(error, ImportError):
        return error.name or "", getattr(error, "name_from", None) or ""
    if isinstance(error.obj, ModuleType):
        return error.obj.__name__, error.name or ""
    return "", ""
