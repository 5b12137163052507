"""Data that a command reads in batches: several files, folders, patterns, arrays, or one large table."""

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.cli.paths import Target
from zoo.cli.selection import terms_of
from zoo.datasets import catalogue

__all__ = ["files_read", "is_read_in_batches", "line_of", "name_of", "opened", "reserved"]

_ALWAYS = (".npy", ".zarr")  # kinds of files that are read in batches alone
_PATTERN = re.compile(r"[*?\[]")


def is_read_in_batches(options: argparse.Namespace) -> bool:
    """Whether the data of a command are read in batches: by what they are, or because it says so of a file.

    Args:
        options: of the command line, whose ``files`` are the data.

    Returns:
        Whether they are.

    Raises:
        ValueError: several data sets with one of the catalogue among them, options that go with data in
            memory, or a fit without ``--batch-size``.
    """
    given, asked = options.files, getattr(options, "batch_size", None)
    if len(given) > 1 and asked is None and getattr(options, "id", None):
        return False  # tables of the same people, a part each
    many = len(given) > 1 or any(_stands_for_many(name) for name in given)
    if not many and not (asked is not None and Path(given[0]).suffix.lower() == ".parquet"):
        return False
    for name in given:
        if name in catalogue():
            raise ValueError(f"{name} is a data set of the catalogue; several data sets are several files")
    for option in ("y", "views", "read"):
        if getattr(options, option, None):
            raise ValueError(f"--{option} goes with one table in memory; these data are read in batches")
    if asked is None and options.command == "fit":
        raise ValueError(
            f"{' '.join(given[:2])}{' ...' if len(given) > 2 else ''} is read in batches: say how many rows "
            "each has, such as --batch-size 100000"
        )
    return True


def _stands_for_many(name: str) -> bool:
    path = Path(name)
    if name in catalogue():
        return False
    return (
        path.is_dir() or path.suffix.lower() in _ALWAYS or (bool(_PATTERN.search(name)) and not path.exists())
    )


def files_read(given: Sequence[str]) -> tuple[Path, ...]:
    """The files that paths, folders and patterns stand for, which a command must not write.

    Args:
        given: as on the command line.

    Returns:
        The files, and the folders themselves.
    """
    found: list[Path] = []
    for name in given:
        path = Path(name)
        here = [path]
        if not path.exists() and _PATTERN.search(name):
            here = sorted(
                Path(path.anchor or ".").glob(str(path.relative_to(path.anchor) if path.anchor else path))
            )
        for held in here:
            found += [held, *held.rglob("*")] if held.is_dir() else [held]
    return tuple(found)


def name_of(given: Sequence[str]) -> str:
    """A short name for the data: the stem of the first file, or of the folder that a pattern is in.

    Args:
        given: as on the command line.

    Returns:
        The name.
    """
    path = Path(given[0])
    return path.parent.resolve().name or "rows" if _PATTERN.search(path.name) else path.stem


def opened(options: argparse.Namespace, extra: str | None = None, *, texts: bool = False) -> Any:
    """The data of a command, with the columns that ``--x`` names.

    Args:
        options: of the command line.
        extra: a column beside them, such as the weights.
        texts: whether the model takes documents.

    Returns:
        A source, see `inference.inputs.sources`.

    Raises:
        ValueError: no such column.
    """
    from inference.inputs.sources import as_source

    source = as_source([Path(name) for name in options.files], texts=texts)
    if options.x is None:
        return source
    wanted = list(_expanded(source, terms_of("--x", options.x)))
    return source.taking([*wanted, *([extra] if extra is not None and extra not in wanted else [])])


def _expanded(source: Any, terms: Sequence[str]) -> Iterator[str]:
    """Names of columns, a run ``first:last`` as all of its names."""
    names = source.names or ()
    for term in terms:
        first, _, last = term.partition(":")
        if term not in names and first in names and last in names:
            yield from names[names.index(first) : names.index(last) + 1]
        else:
            yield term


def line_of(source: Any, batch_size: int | None) -> str:
    """The data in words: rows, columns and parts.

    Args:
        source: of the data.
        batch_size: rows of a batch, or None.

    Returns:
        Text.
    """
    names = source.names or ()
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 8 else ""
    columns = f", {len(names)} columns{listed}" if names else ""
    what = "texts" if source.holds_texts else "rows"
    several = f" from {len(source.files)} files" if len(source.files) > 1 else ""
    sizes = f" in batches of {batch_size}" if batch_size else " in batches"
    return f"{source.num_rows} {what}{columns}{several}{sizes}"


@contextmanager
def reserved(out: Target) -> Iterator[Path]:
    """A place that is written while the command runs: no other file takes it meanwhile.

    Args:
        out: the target of the command.

    Yields:
        The path; an empty file that was made to hold it is removed when the body fails.
    """
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
