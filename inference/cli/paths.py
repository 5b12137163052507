"""Where a command writes: nothing that a user holds is replaced unless the user says so.

A path that is given and exists is refused without ``--force``. Without a path a free name is taken. What the
command reads (data, fits, a checkpoint), a folder, a link, a device or a pipe is refused even with
``--force``. All this is checked before the run, and once more when the run has ended: a file that has come
into being meanwhile is not replaced either.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from inference.numerics.atomic_files import check_replaceable, check_writable

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
        """The path to write to when the run has ended, or another free one if a file has come there since."""
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

    Raises:
        ValueError: no name, another ending, the path of a file that the command reads, a file and no
            ``--force``, a place where nothing can be written, or a saved fit or a checkpoint where a page, a
            table or a picture is to be written.
    """
    path = free_name(Path(default)) if given is None else _named(option, given, default)
    if endings and path.suffix.lower() not in endings:
        raise ValueError(f"{option} takes a file ending in {', '.join(endings)}; got {path.name!r}")
    check_writable(path)
    if any(_same_file(path, Path(held)) for held in inputs):
        other = free_name(path.with_stem(path.stem + "-result"))
        raise ValueError(f"cannot write {given}: this command reads it; choose another name, such as {other}")
    if path.exists() and not force:
        raise ValueError(
            f"{given} exists: add --force to replace it, or choose another name, such as {free_name(path)}"
        )
    if endings:
        check_replaceable(path)
    return Target(path, force, _identity(path))


def check_checkpoint(given: str | None, others: Iterable[str | Path]) -> None:
    """ValueError for a checkpoint file that is something else, or one of the others of a command."""
    if given is None:
        return
    path = _named("--checkpoint", given, "run.ckpt")
    check_writable(path)
    for other in others:
        if _same_file(path, Path(other)):
            raise ValueError(f"--checkpoint {given} is {other} as well: give it a file of its own")
    if path.exists():
        with path.open("rb") as file:
            if file.read(4) != _CHECKPOINT:
                raise ValueError(
                    f"{given} is no checkpoint: it would be replaced; choose another name for --checkpoint"
                )


@contextmanager
def reserved(out: Target) -> Iterator[Path]:
    """A place written while the command runs: an empty file holds it, and is gone if the body fails."""
    place = out.settled()
    is_new = not place.exists()
    if is_new:
        place.touch(exist_ok=False)
    try:
        yield place
    except BaseException:
        if is_new:
            place.unlink(missing_ok=True)
        raise


def free_name(path: Path) -> Path:
    """The path itself or, where there is a file, the first of NAME-2, NAME-3, ... where there is none."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _named(option: str, given: str, such: str | Path) -> Path:
    if not given.strip() or given.startswith("--"):
        raise ValueError(f"{option} needs the name of a file, such as {option} {such}; got {given!r}")
    return Path(given)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file is at a path, and in which state; None where there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _same_file(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist
        return False
