"""Where a command writes: nothing that a user holds is replaced unless the user says so.

A path that is given and exists is refused without ``--force``. Without a path a free name is taken. What the
command reads (data, fits, a checkpoint), a folder, a link, a device or a pipe is refused even with
``--force``. All this is checked before the run, and once more when the run has ended: a file that has come
into being meanwhile is not replaced either.
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from zoo.datasets import catalogue, shipped_folder

__all__ = ["Target", "check_checkpoint", "files_of", "free_name", "target"]

_CHECKPOINT = b"PK\x03\x04"


class Target(NamedTuple):
    """A file to be written.

    Attributes:
        path: where.
        may_replace: whether a file that was there before the run may be replaced.
        seen: which file that was, None where there was none.
    """

    path: Path
    may_replace: bool
    seen: tuple[int, ...] | None = None

    def settled(self) -> Path:
        """The path to write to when the run has ended.

        Returns:
            The path, or another free one if a file has come there since.
        """
        found = _identity(self.path)
        if found is None or (self.may_replace and found == self.seen):
            return self.path
        return free_name(self.path)


def target(
    option: str,
    given: str | None,
    default: str | Path,
    *,
    force: bool = False,
    inputs: Iterable[str | Path] = (),
    endings: tuple[str, ...] = (),
) -> Target:
    """The file that a command writes, checked.

    Args:
        option: name of the option, for messages.
        given: its value; None: it was not given.
        default: where to write then, or to a name like it that is free.
        force: whether a file that exists may be replaced.
        inputs: files that the command reads.
        endings: allowed endings of the name; none: any.

    Returns:
        The target.

    Raises:
        ValueError: no name, another ending, the path of a file that the command reads, or a saved fit or a
            checkpoint where a page, a table or a picture is to be written.
        FileExistsError: there is a file and no ``--force``, or something that is no regular file.
        IsADirectoryError: the path is a folder.
        OSError: nothing can be written there.
    """
    if given is None:
        path = free_name(Path(default))
        _check_folder(path)
        return Target(path, may_replace=False)
    if not given.strip():
        raise ValueError(f"{option} needs the name of a file, such as {option} {default}")
    path = Path(given)
    _check_name(given)
    if path.is_dir():
        raise IsADirectoryError(
            f"cannot write {given}: it is a folder; name a file in it, such as {path / Path(default).name}"
        )
    if endings and path.suffix.lower() not in endings:
        raise ValueError(f"{option} takes a file ending in {', '.join(endings)}; got {path.name!r}")
    for held in inputs:
        if _same_file(path, Path(held)):
            raise ValueError(
                f"cannot write {given}: this command reads it; choose another name, such as "
                f"{free_name(path.with_stem(path.stem + '-result'))}"
            )
    if os.path.lexists(path):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            kind = "a link" if path.is_symlink() else "no regular file"
            raise FileExistsError(f"cannot write {given}: it is {kind}; choose the name of a file")
        if not force:
            raise FileExistsError(
                f"{given} exists: add --force to replace it, or choose another name, such as "
                f"{free_name(path)}"
            )
        if endings:
            from inference.numerics.atomic_files import check_replaceable

            check_replaceable(path)
    _check_folder(path)
    return Target(path, force, _identity(path))


def _check_name(given: str) -> None:
    """Raise ValueError for a name that no file has: too long for the file system, or not told to it."""
    try:
        os.lstat(given)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"cannot write {given}: {reason}; choose another name") from None


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file is at a path, and in which state; None where there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def free_name(path: Path) -> Path:
    """A path where there is nothing.

    Args:
        path: the one that is wanted.

    Returns:
        The path itself or, where there is a file, the first of NAME-2, NAME-3, ... where there is none.
    """
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _same_file(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return False


def _check_folder(path: Path) -> None:
    """Raise OSError unless a file can be written beside the path, before the run."""
    if path.parent.exists() and not path.parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {path.parent} is a file, not a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: there is no folder {path.parent}; make it with mkdir -p {path.parent}"
        )
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror}; choose another folder") from None


def files_of(source: str) -> tuple[Path, ...]:
    """The file that is read for a name of the catalogue or a path.

    Args:
        source: as on the command line.

    Returns:
        Its file; empty for a data set without one.
    """
    entry = catalogue().get(source)
    if entry is None:
        return (Path(source),)
    folders = {"shipped": shipped_folder(), "user": os.environ.get("ZOO_DATA")}
    folder = folders.get(entry["kind"])
    return (Path(folder, entry["file"]),) if folder else ()


def check_checkpoint(given: str | None, others: Iterable[str | Path]) -> None:
    """Refuse a checkpoint file that is something else, before the run.

    Args:
        given: the path, or None.
        others: files that the command reads or writes.

    Raises:
        ValueError: no name, a file that is no checkpoint, or one of the others.
        IsADirectoryError: the path is a folder.
        OSError: nothing can be written there.
    """
    if given is None:
        return
    if not given.strip():
        raise ValueError("--checkpoint needs the name of a file, such as --checkpoint run.ckpt")
    path = Path(given)
    _check_name(given)
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {given}: it is a folder; name a file in it")
    for other in others:
        if _same_file(path, Path(other)):
            raise ValueError(f"--checkpoint {given} is {other} as well: give it a file of its own")
    if os.path.lexists(path):
        if not path.is_file():
            raise ValueError(f"--checkpoint {given} is no regular file: choose another name")
        with path.open("rb") as file:
            if file.read(4) != _CHECKPOINT:
                raise ValueError(
                    f"{given} is no checkpoint: it would be replaced; choose another name for --checkpoint"
                )
    _check_folder(path)
