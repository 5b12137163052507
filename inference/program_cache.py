"""Compiled programs kept on disk, so that a second process need not compile them again.

The command line keeps them by default; Python does after `compile_cache` or with the environment variable
``ZOO_COMPILE_CACHE``, a folder (``off`` switches the cache off everywhere). It is a setting of the whole
process, since JAX has no other: every program that the process compiles is kept, and other threads see it.

Two processes at once. JAX writes an entry in place, where another process could read half of it. So each
process has a folder of its own, with links to all entries that were there when it began; what it has added
it moves to the common folder when it ends, one atomic rename each. What a process that was killed has
compiled is lost, and its folder is removed by a later one. JAX's bound, ``jax_compilation_cache_max_size``,
is no remedy: it writes in place too, under a lock that every read waits for, and never replaces the half of
an entry that a killed process has left.

An entry is of use for the same versions and the same kind of processor: the common folder's name has both.
"""

import atexit
import hashlib
import os
import platform
import shutil
import stat
import sys
import time
import zlib
from functools import cache
from pathlib import Path

import jax
import numpyro
from jax.experimental.compilation_cache.compilation_cache import reset_cache

MOST_BYTES = 2**29
ABANDONED_AFTER = 7 * 24 * 3600  # seconds without a change, of the folder of a process that never ended
_VARIABLE = "ZOO_COMPILE_CACHE"
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


def compile_cache(folder: str | os.PathLike | None = None, *, max_bytes: int = MOST_BYTES) -> Path | None:
    """Keep compiled programs on disk from now on, in the whole process.

    Args:
        folder: where; None: the value of ``ZOO_COMPILE_CACHE``, or the user's cache folder. It is made with
            mode 0700; one that belongs to somebody else is not used, since what lies there is run.
        max_bytes: the oldest entries are removed when there is more.

    Returns:
        The folder of this process, or None where programs are not kept: the variable is ``off``, or the
        folder cannot be written. Where ``jax_compilation_cache_dir`` is set, that folder: it stays as it is.

    Raises:
        ValueError: ``max_bytes`` is negative.

    Example:
        >>> import inference
        >>> folder = inference.compile_cache()  # doctest: +SKIP
    """
    if max_bytes < 0:
        raise ValueError(f"max_bytes must be at least 0; got {max_bytes}")
    given = os.environ.get(_VARIABLE, "")
    if given.lower() == "off":
        return None
    if jax.config.jax_compilation_cache_dir:
        return Path(jax.config.jax_compilation_cache_dir)
    try:
        mine = own_folder(Path(folder or given or _user_folder()).expanduser())
    except OSError:
        return None  # a home that cannot be written: as without a cache
    atexit.register(publish, mine, max_bytes, os.getpid())
    jax.config.update("jax_compilation_cache_dir", str(mine))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    reset_cache()
    return mine


@cache
def compile_cache_by_environment() -> None:
    """Keep compiled programs if ``ZOO_COMPILE_CACHE`` names a folder; asked once in a process."""
    if os.environ.get(_VARIABLE, "").lower() not in ("", "off"):
        compile_cache()


def _user_folder() -> Path:
    """The folder of this project among the user's caches."""
    if sys.platform == "darwin":
        base = Path("~/Library/Caches")
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"))
    return base / "zoo-programs"


def own_folder(folder: Path) -> Path:
    """A new folder of this process, with links to the entries of the common one above it.

    Raises:
        PermissionError: others own ``folder`` or may write to it.
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        about = folder.stat()
        if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"others may write to {folder}")
    common = folder / _circumstances()
    common.mkdir(mode=0o700, exist_ok=True)
    for path in common.glob("process-*"):
        if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
            shutil.rmtree(path, ignore_errors=True)
    mine = common / f"process-{os.getpid()}-{time.time_ns()}"
    mine.mkdir(mode=0o700)
    for entry in _entries(common):
        os.link(entry, mine / entry.name)
    return mine


@cache
def _circumstances() -> str:
    """A word for the versions and the processor: the latter is not in the key that JAX gives an entry."""
    words = [platform.machine(), platform.system(), platform.python_version()]
    words += [jax.__version__, jax.lib.__version__, numpyro.__version__]
    about = Path("/proc/cpuinfo")
    if about.is_file():
        lines = about.read_text(encoding="utf-8", errors="replace").splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    else:
        words.append(platform.processor())
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


def publish(mine: Path, max_bytes: int, process: int) -> None:
    """Move what a process has added to the common folder, and remove the oldest entries beyond the bound.

    Args:
        mine: what `own_folder` made; it is removed.
        max_bytes: the bound.
        process: the number of the process that made it: a fork of it does nothing.
    """
    if os.getpid() != process:
        return
    common = mine.parent
    try:
        for entry in _entries(mine):
            if not (common / entry.name).exists() and _is_whole(entry):
                entry.replace(common / entry.name)
        shutil.rmtree(mine, ignore_errors=True)
        kept = 0
        for entry in sorted(_entries(common), key=lambda path: path.stat().st_mtime, reverse=True):
            kept += entry.stat().st_size
            if kept > max_bytes:
                entry.unlink(missing_ok=True)
    except OSError:
        return  # a full disk, or another process that removes the same: what is there stays whole


def _is_whole(entry: Path) -> bool:
    """Whether an entry was written to its end."""
    content = entry.read_bytes()
    if content.startswith(_ZSTANDARD):
        return True  # JAX compresses so where it can; a frame that is cut is refused when it is read
    unpacker = zlib.decompressobj()
    try:
        unpacker.decompress(content)
    except zlib.error:
        return False
    return unpacker.eof
