"""A report of a fit in a fixed order: what was assumed, done, can be believed, was found, and how it fits.

Each judgement comes with its reason and the next step. The same sections are written as plain text, Markdown
(pictures beside them) or one HTML file that needs no other.
"""

import os
import tempfile
from pathlib import Path

import xarray as xr

from inference.identifiable import draws_of
from inference.page import Picture, as_html, as_markdown, as_text, to_png
from inference.report_results import believed, fits, found
from inference.report_run import assumed, done
from zoo import MODELS

__all__ = ["report"]

_ENDINGS = (".html", ".md", ".txt")


def report(tree: xr.DataTree, path: str | os.PathLike) -> Path:
    """Write the report of a fit.

    Args:
        tree: a fit.
        path: where to write. The ending decides the form: ``.html`` (one self-contained file), ``.md`` or
            ``.txt`` (pictures as PNG files beside it, under its name).

    Returns:
        The path written.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: another ending, or a tree that is not a fit.
        OSError: the folder does not exist or cannot be written to; found out before any work.
    """
    path = Path(path)
    _check_path(path)
    draws_of(tree)
    title = f"{_title(tree)}, fitted by {tree.attrs.get('method', 'an unnamed method')}"
    sections = [assumed(tree), done(tree), believed(tree), found(tree), fits(tree)]
    pictures = {
        b.name: to_png(b.figure) for section in sections for b in section.blocks if isinstance(b, Picture)
    }
    if path.suffix == ".html":
        _write(path, as_html(title, sections, pictures).encode("utf-8"))
        return path
    files = {name: f"{path.stem}-{name}.png" for name in pictures}
    for name, data in pictures.items():
        _write(path.with_name(files[name]), data)
    _write(path, (as_markdown if path.suffix == ".md" else as_text)(title, sections, files).encode("utf-8"))
    return path


def _check_path(path: Path) -> None:
    if path.suffix not in _ENDINGS:
        raise ValueError(
            f"the report is written as {', '.join(_ENDINGS)}, by the ending of its name; got {path.name!r}"
        )
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    with tempfile.TemporaryFile(dir=path.parent):  # raises where nothing can be written
        pass


def _write(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that an interrupted run leaves no half of a file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _title(tree: xr.DataTree) -> str:
    name = tree.attrs.get("model", "model")
    return MODELS[name]["title"] if name in MODELS else str(name)
