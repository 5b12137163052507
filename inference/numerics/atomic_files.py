"""Files that are either whole or not there, and the lock of a file that one run at a time may use.

A file is written beside its place under a short name of its own, flushed to the disk, and renamed into its
place. While it is written its writer holds a lock of the operating system on it, which ends with the process:
what carries such a name and is not locked was left by a process that was killed, and the next one that writes
the same file removes it. Where the system has no such locks (Windows, some network folders) nothing is
removed and nothing is refused. ``filelock`` locks files that it opens itself, and not one that is written.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HDF5 = b"\x89HDF\r\n\x1a\n"  # how such a file begins, and with it every saved fit

_NUMBERS = count()  # of the files that this process writes
_LOCKED, _TAKEN, _NO_LOCKS = range(3)


def check_writable(path: str | os.PathLike) -> None:
    """Raise before a run unless a file can be written at ``path`` after it.

    Args:
        path: where.

    Raises:
        ValueError: it is a folder, a link, a device or a pipe; its folder does not exist; nothing may be
            written there; or the name is longer than the file system takes.
    """
    path = Path(path)
    try:
        length, longest = len(os.fsencode(path.name)), _longest_name(path.parent)
        if length > longest:
            raise ValueError(f"its name takes {length} bytes and this folder takes {longest}; shorten it")
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(kind):
        raise ValueError(f"cannot write {path}: it is a folder; name a file in it")
    if not stat.S_ISREG(kind):
        found = "a link" if stat.S_ISLNK(kind) else "no regular file"
        raise ValueError(f"cannot write {path}: it is {found}; choose the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ValueError(f"cannot write {path}: no permission")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # permissions do not tell all
            pass
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}; choose another folder") from None


def check_replaceable(path: str | os.PathLike) -> None:
    """Raise before a run unless a page, a table or a picture can be written at ``path`` after it.

    Args:
        path: where; a file that is there may be replaced, but not one that a run has made.

    Raises:
        ValueError: nothing can be written there (`check_writable`), or a saved fit, another HDF5 file or a
            checkpoint is there.
    """
    check_writable(path)
    path = Path(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        found = "a saved fit, or another HDF5 file" if file.read(len(HDF5)) == HDF5 else ""
        if not found and _is_checkpoint(file):
            found = "the checkpoint of a run"
    if found:
        raise ValueError(f"cannot write {path}: {found} is there, which would be lost; choose another name")


def _is_checkpoint(file: BinaryIO) -> bool:
    """Whether an open file is an archive with the fingerprint of a run."""
    try:
        with zipfile.ZipFile(file) as archive:
            return "fingerprint.npy" in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def _longest_name(folder: Path) -> int:
    """The most bytes of a name that the file system of a folder takes."""
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (AttributeError, OSError, ValueError):  # not told by this system
        return 255


@contextmanager
def replacing(path: str | os.PathLike, reserve: int = 0) -> Iterator[BinaryIO]:
    """A new file, open for writing and reading bytes, that takes the place of ``path`` when the body ends.

    When the body fails, or the disk is full, ``path`` is as it was and nothing else is left.

    Args:
        path: where.
        reserve: bytes that the disk must have free; asked for before the body begins.

    Yields:
        The file; the body may read and seek in it.

    Raises:
        OSError: it cannot be written; the error names ``path``.
    """
    path = Path(path)
    try:
        _remove_orphans(path)
        temporary, file = _created(path)
    except OSError as error:
        raise _of(path, error) from error
    try:
        with file:
            if reserve:
                _reserve(file, reserve)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows renames no open file
            os.replace(temporary, path)  # still locked: nobody takes it for an orphan
        _to_disk(path.parent)
    except OSError as error:
        raise _of(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _of(path: Path, error: OSError) -> OSError:
    """The same error of the file that the user named, not of a name of ours."""
    if error.errno is None or (error.filename is not None and not _is_ours(path, error.filename)):
        return error
    return OSError(error.errno, f"cannot write this file: {error.strerror}", str(path))


def _is_ours(path: Path, name: object) -> bool:
    return Path(os.fsdecode(name)).name.startswith(_stem(path))


def _stem(path: Path) -> str:
    """How the names of the files that stand in for ``path`` begin: short, however long its own name is."""
    return f".zoo-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]}"


def _created(path: Path) -> tuple[Path, BinaryIO]:
    """A new locked file beside ``path``, its name unique to process and thread."""
    while True:
        number = f"{os.getpid()}-{threading.get_native_id()}-{next(_NUMBERS)}"
        temporary = path.with_name(f"{_stem(path)}-{number}.tmp")
        file = open(temporary, "x+b")  # noqa: SIM115 - `replacing` closes it
        _lock(file)
        if _is_at(file, temporary):
            return temporary, file
        file.close()  # taken for an orphan before it was locked


def _remove_orphans(path: Path) -> None:
    """Remove what processes that are dead have left of writing ``path``."""
    for orphan in path.parent.glob(f"{_stem(path)}-*.tmp"):
        with suppress(OSError), open(orphan, "r+b") as file:
            if _lock(file) == _LOCKED:
                orphan.unlink()


def _lock(file: BinaryIO) -> int:
    """Lock a file if nobody holds it: `_LOCKED`; `_TAKEN`: someone does; `_NO_LOCKS`: it cannot be known."""
    if fcntl is None:
        return _NO_LOCKS
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _TAKEN
    except OSError:  # a file system without locks
        return _NO_LOCKS
    return _LOCKED


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file.fileno()), there)


def _reserve(file: BinaryIO, size: int) -> None:
    """Take space on the disk; OSError where there is not as much."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    if shutil.disk_usage(Path(file.name).parent).free < size:  # macOS, Windows
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _to_disk(folder: Path) -> None:
    """Make a renaming survive a power failure, where folders can be flushed."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def held_alone(path: str | os.PathLike) -> Iterator[None]:
    """Hold ``path`` for one run: no other process and no other thread can hold it meanwhile.

    The lock is one of the operating system (``flock``) on a file beside ``path``, which is gone when the body
    ends. It ends with the process, however that ends, so that a killed run does not stand in the way of the
    next. Where the system has no ``flock`` (Windows, some network folders) nothing is held or refused.

    Args:
        path: of the file; it need not exist.

    Raises:
        ValueError: another run holds it.
        OSError: no file can be made in its folder.
    """
    path = Path(path)
    beside = path.with_name(f"{_stem(path)}.lock")
    if fcntl is None:
        yield
        return
    while True:
        try:
            file = open(beside, "a+b", buffering=0)  # noqa: SIM115 - closed below
        except OSError as error:
            raise _of(path, error) from error
        state = _lock(file)
        if state == _TAKEN:
            holder = _holder(file)
            file.close()
            raise ValueError(
                f"{path} is in use by another run{holder}: wait until that has ended, or name another file"
            )
        if _is_at(file, beside):
            break
        file.close()  # its holder removed it in between
    try:
        with suppress(OSError):  # on a full disk it does not say who holds it
            file.truncate(0)
            file.write(f"process {os.getpid()}".encode())
        yield
    finally:
        with suppress(OSError):
            beside.unlink()
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # also for a child process that was forked meanwhile
        file.close()


def _holder(file: BinaryIO) -> str:
    """Who holds a locked file, in brackets, as it says itself; it may have had no time to say it."""
    file.seek(0)
    words = file.read(100).decode("utf-8", "replace")
    return f" ({words})" if words else ""
