"""Blocks of a page, and writing a page as one self-contained HTML file or as Markdown with pictures.

The templates ``page.html.j2`` and ``page.md.j2`` and the style sheet ``page.css`` lie beside this module.
"""

import base64
import io
import re
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from inference.numerics.atomic_files import replacing

__all__ = [
    "Code",
    "Paragraph",
    "Picture",
    "Section",
    "Table",
    "Judgement",
    "as_html",
    "as_markdown",
    "check_page_path",
    "one_column",
    "to_png",
    "write_page",
]

_ENDINGS = (".html", ".md")
_VALUE = r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)"
_NUMBER = re.compile(rf"{_VALUE}( ± {_VALUE})?|-|constant")
_DPI = 130
_WIDE = 700  # pixels of a picture that would be too small to read if it were shrunk to a phone


class Paragraph(NamedTuple):
    """A paragraph of plain text.

    Attributes:
        text: the words.
    """

    text: str


class Judgement(NamedTuple):
    """A verdict with its reason and the next step.

    Attributes:
        good: whether it is in favour; None: neither.
        text: the verdict in one sentence.
        reason: why.
        advice: the next step.
    """

    good: bool | None
    text: str
    reason: str
    advice: str


class Code(NamedTuple):
    """Lines to be shown verbatim.

    Attributes:
        text: the lines.
    """

    text: str


class Table(NamedTuple):
    """A table.

    Attributes:
        caption: its title.
        frame: the cells, as text or numbers; the index is the first column.
    """

    caption: str
    frame: pd.DataFrame


class Picture(NamedTuple):
    """A picture.

    Attributes:
        name: a word for its file name.
        caption: its title.
        alt: a description for a reader who cannot see it.
        figure: the figure.
    """

    name: str
    caption: str
    alt: str
    figure: Figure


class Section(NamedTuple):
    """A titled list of blocks.

    Attributes:
        title: its heading.
        blocks: its contents, in order.
    """

    title: str
    blocks: Sequence[Paragraph | Judgement | Code | Table | Picture]


def one_column(caption: str, values: Mapping[str, object], name: str = "value") -> Table:
    """Build a table of one column: the keys are its index.

    Args:
        caption: its title.
        values: the rows, in order.
        name: the column's heading.
    """
    return Table(caption, pd.DataFrame({name: values.values()}, index=list(values)))


def to_png(figure: Figure) -> bytes:
    """Return the picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def as_html(title: str, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """Render the page as one HTML file: ``pictures[picture.name]`` (PNG) become data URLs."""
    template = _TEMPLATES.get_template("page.html.j2")
    return template.render(
        title=title, sections=sections, anchors=_anchors(sections), pictures=pictures, widest=_WIDE
    )


def as_markdown(title: str, sections: Sequence[Section], files: Mapping[str, str]) -> str:
    """Render the page as Markdown; pictures link to their files, ``files[picture.name]``."""
    return _TEMPLATES.get_template("page.md.j2").render(title=title, sections=sections, files=files)


def check_page_path(path: Path) -> None:
    """Raise before any work unless a page can be written there.

    Args:
        path: where to write; the ending decides the form.

    Raises:
        ValueError: another ending than ``.html`` and ``.md``.
        IsADirectoryError: there is a folder of that name.
        FileNotFoundError: there is no such folder to write in.
        OSError: the folder cannot be written to.
    """
    if path.suffix not in _ENDINGS:
        raise ValueError(
            f"a report is written as {' or '.join(_ENDINGS)}, by the ending of its name; got {path.name!r}"
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
        sections: its contents.
        path: where; pictures of Markdown are PNG files beside it, under its name.

    Returns:
        The path written.
    """
    pictures = {
        block.name: to_png(block.figure)
        for section in sections
        for block in section.blocks
        if isinstance(block, Picture)
    }
    if path.suffix == ".html":
        page = as_html(title, sections, pictures)
    else:
        files = {name: f"{path.stem}-{name}.png" for name in pictures}
        for name, data in pictures.items():
            _write(path.with_name(files[name]), data)
        page = as_markdown(title, sections, files)
    _write(path, page.encode("utf-8"))
    return path


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Anchors of sections: the first word of each title, numbered where several begin with it."""
    words = [section.title.split()[0].lower().strip(":,") for section in sections]
    return [
        f"{word}-{words[:place].count(word) + 1}" if words.count(word) > 1 else word
        for place, word in enumerate(words)
    ]


def _sentences(verdict: Judgement) -> tuple[str, list[str]]:
    """Sentences of a verdict: itself, and its reason and advice if there are any."""
    found = [verdict.text]
    found += [f"Why: {verdict.reason}"] if verdict.reason else []
    found += [f"Next: {verdict.advice}"] if verdict.advice else []
    first, *rest = (text if text.endswith((".", "?", "!")) else f"{text}." for text in found)
    return first, rest


def _cells(frame: pd.DataFrame) -> tuple[list[str], list[list[str]], list[bool]]:
    """Column names, rows as text, and which columns hold words (set to the left); the index comes first."""
    cells = frame.map(_cell)
    rows = [[str(index), *row] for index, row in zip(cells.index, cells.values, strict=True)]
    of_words = [not all(map(_NUMBER.fullmatch, column)) for column in cells.values.T]
    return ["", *map(str, cells.columns)], rows, [True, *of_words]


def _cell(value: object) -> str:
    """Format a cell: text unchanged, whole numbers whole, others with four significant digits."""
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.1f}"


_TEMPLATES = Environment(
    loader=PackageLoader("inference.report", ""),
    autoescape=select_autoescape(["html.j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.tests["of_kind"] = lambda block, kind: type(block).__name__ == kind
_TEMPLATES.filters |= {
    "base64": lambda png: base64.b64encode(png).decode("ascii"),
    "cells": _cells,
    "png_size": lambda png: struct.unpack(">II", png[16:24]),  # as a PNG file begins
    "sentences": _sentences,
}
