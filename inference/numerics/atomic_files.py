"""Files that are either whole or not there: written beside their place, then renamed into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_writable", "replacing"]


def check_writable(path: str | os.PathLike) -> None:
    """Raise ValueError before a run if a file cannot be written at ``path`` after it."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ValueError(f"cannot write {path}: no permission")


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A path in the same folder to write to.

    When the body ends it takes the place of ``path``, when it fails it is removed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
