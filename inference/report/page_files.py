"""A page to a file: one that needs no other (HTML), or text with its pictures beside it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from inference.atomic_files import replacing
from inference.report.page import Picture, Section, as_html, as_markdown, as_text, to_png

__all__ = ["check_page_path", "write_page"]

_ENDINGS = (".html", ".md", ".txt")


def check_page_path(path: Path) -> None:
    """Raise before any work unless a page can be written there.

    Args:
        path: where to write; the ending decides the form.

    Raises:
        ValueError: another ending than ``.html``, ``.md`` and ``.txt``.
        IsADirectoryError: there is a folder of that name.
        FileNotFoundError: there is no such folder to write in.
        OSError: the folder cannot be written to.
    """
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


def write_page(title: str, sections: Sequence[Section], path: Path) -> Path:
    """Write a page in the form that the ending of its name asks for.

    Args:
        title: its heading.
        sections: what it shows.
        path: where; pictures of text and Markdown are PNG files beside it, under its name.

    Returns:
        The path written.
    """
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


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)
