"""Blocks of a page, and writing a page as one self-contained HTML file or as Markdown with pictures.

The templates ``page.html.j2`` and ``page.md.j2``, the style sheet ``page.css`` and the script ``page.js`` lie
beside this module. The page's Content-Security-Policy allows that style and that script by their hashes,
pictures inside the file, and nothing else: text from the data cannot run or fetch, whatever it says.
"""

import base64
import io
import os
import re
import struct
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from jinja2 import select_autoescape
from matplotlib.figure import Figure
from PIL import Image

from inference.diagnostics.blocks import Cards, ShownTable
from inference.fitting.verdict import Judgement, gravest, sentences
from inference.numerics.atomic_files import check_replaceable, replacing
from inference.plots.films import packaged_text, templates_beside
from zoo.cards.markup import Code, Paragraph

_ENDINGS = (".html", ".md")
_VALUE = r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)"
_NUMBER = re.compile(rf"{_VALUE}( ± {_VALUE})?|-|constant")
_INTERVAL = re.compile(r"(\S.*?) \((\S+ to \S+(?: %)?)\)")
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")  # of Markdown, within a line
_FIRST = re.compile(r"^(\d*)([#>+=)-]|\.(?!\d))")  # of Markdown, at the beginning of a line
_DPI = 130


class Picture(NamedTuple):
    """A picture.

    Attributes:
        name: a word for its file name.
        caption: its title.
        alt: a description for a reader who cannot see it.
        figure: the figure.
        leads: its place among pictures that a page may begin with, from 1; 0: it begins with another.
    """

    name: str
    caption: str
    alt: str
    figure: Figure
    leads: int = 0


class Front(NamedTuple):
    """The first screen of a page.

    Attributes:
        title: its heading.
        verdict: the one verdict: of a page of one fit, that on its run.
        facts: what, how, when and where, in a few words each.
        found: what was found, in a sentence; empty: nothing that one could hold.
        plain: whether it says what a reader who decides may do.
        model: the verdict on the model, by what it predicts; None: it is not judged.
    """

    title: str
    verdict: Judgement
    facts: Mapping[str, str]
    found: str = ""
    plain: bool = False
    model: Judgement | None = None

    @property
    def judged(self) -> dict[str, Judgement]:
        """The verdicts, with the words before each."""
        if self.model is None:
            return {self.verdict.word: self.verdict}
        return {f"The run: {self.verdict.word}": self.verdict, f"The model: {self.model.word}": self.model}

    @property
    def use(self) -> Judgement:
        """The verdict that decides what a reader may do: what a model misses asks for care."""
        if self.model is None or self.model.good:
            return self.verdict
        return gravest([self.verdict, self.model._replace(good=None)])


class Section(NamedTuple):
    """A titled list of blocks.

    Attributes:
        title: its heading.
        blocks: its contents, in order.
        folded: whether a reader opens it to see them.
    """

    title: str
    blocks: Sequence[Paragraph | Judgement | Code | ShownTable | Picture | Cards]
    folded: bool = False


def one_column(caption: str, values: Mapping[str, object], name: str = "value") -> ShownTable:
    """Build a table of one column: the keys are its index."""
    index = pd.Index(list(values), name="item")
    return ShownTable(caption, pd.DataFrame({name: values.values()}, index=index))


def to_png(figure: Figure) -> bytes:
    """Return the picture as the bytes of a PNG file of 256 colours, a third of the size of one of all."""
    drawn, buffer = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    with Image.open(drawn) as whole:
        few = whole.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def as_html(front: Front, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """Render the page as one HTML file: ``pictures[picture.name]`` (PNG) become data URLs."""
    template = _TEMPLATES.get_template("page.html.j2")
    parts = {"style": packaged_text("report", "page.css"), "script": packaged_text("report", "page.js")}
    return template.render(
        front=front, sections=sections, anchors=_anchors(sections), pictures=pictures, **parts
    )


def as_markdown(front: Front, sections: Sequence[Section], files: Mapping[str, str]) -> str:
    """Render the page as Markdown; pictures link to their files, ``files[picture.name]``."""
    return _TEMPLATES.get_template("page.md.j2").render(front=front, sections=sections, files=files)


@cache
def check_page_path(path: Path) -> None:
    """Raise before any work unless a page can be written there.

    Raises:
        ValueError: another ending than ``.html`` and ``.md``, or something is there that no page replaces: a
            link, a device, a saved fit or a checkpoint.
        IsADirectoryError: there is a folder of that name.
        FileNotFoundError: there is no such folder to write in.
        OSError: the folder cannot be written to.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(
            f"a report is written as {' or '.join(_ENDINGS)}, by the ending of its name; got {path.name!r}"
        )
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}")
    with tempfile.TemporaryFile(dir=path.parent):  # raises where nothing can be written
        pass
    check_replaceable(path)


def write_page(front: Front, sections: Sequence[Section], path: Path) -> Path:
    """Write a page in the form that the ending of its name asks for."""
    pictures = {
        block.name: to_png(block.figure)
        for section in sections
        for block in section.blocks
        if isinstance(block, Picture)
    }
    if path.suffix.lower() == ".html":
        page = as_html(front, sections, pictures)
    else:
        former = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        places = {name: _place_of_picture(path, name, former) for name in pictures}
        for name, data in pictures.items():
            _write(places[name], data)
        page = as_markdown(front, sections, {name: quote(place.name) for name, place in places.items()})
    _write(path, page.encode("utf-8"))
    return path


def _place_of_picture(page: Path, name: str, former: str) -> Path:
    """Where a picture of a page is written: over the one that the former page shows, or under a free name."""
    place, number = page.with_name(f"{page.stem}-{name}.png"), 1
    while os.path.lexists(place):
        if f"]({quote(place.name)})" in former and place.is_file() and not place.is_symlink():
            return place
        number += 1
        place = page.with_name(f"{page.stem}-{name}-{number}.png")
    return place


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Anchors of sections: the first word of each title, numbered where several begin with it."""
    words = [section.title.split()[0].lower().strip(":,") for section in sections]
    return [
        f"{word}-{words[:place].count(word) + 1}" if words.count(word) > 1 else word
        for place, word in enumerate(words)
    ]


class _Column(NamedTuple):
    """A column as it is written: its heading, whether its cells head their rows, and its CSS classes."""

    name: str
    is_header: bool
    classes: str


class _Cells(NamedTuple):
    """A table as it is written: of each cell its text, its interval if it ends in one, and its shade."""

    columns: list[_Column]
    rows: list[list[tuple[str, str, str]]]


def _cells(table: ShownTable) -> _Cells:
    """Write a table: the index first, then decisive columns, then the others; words are set to the left."""
    decisive = [name for name in table.decisive if name in table.frame]
    frame = table.frame[[*decisive, *(name for name in table.frame if name not in decisive)]].map(_cell)
    index = frame.index.to_frame(index=False)
    columns = [_Column(str(name or "quantity"), True, "words") for name in frame.index.names]
    for place, name in enumerate(frame):
        words = table.shades is None and not all(map(_NUMBER.fullmatch, frame.iloc[:, place]))
        classes = [kind for kind, holds in (("words", words), ("decisive", name in decisive)) if holds]
        columns.append(_Column(str(name), False, " ".join(classes)))
    rows: list[list[tuple[str, str, str]]] = []
    for place, heads in enumerate(index.astype(str).to_numpy().tolist()):
        own = [(text, "") for text in frame.iloc[place]] if table.shades is None else _shaded(table, place)
        rows.append([(head, "", "") for head in heads] + [(*_in_parts(text), shade) for text, shade in own])
    return _Cells(columns, rows)


def _shaded(table: ShownTable, place: int) -> list[tuple[str, str]]:
    """The cells of a row, each with the class of its colour."""
    assert table.shades is not None
    steps = np.nan_to_num(np.round(3 * table.shades.iloc[place].to_numpy(float))).clip(-3, 3).astype(int)
    classes = [f"{'above' if step > 0 else 'below'}-{abs(step)}" if step else "" for step in steps]
    return list(zip(table.frame.iloc[place].map(_cell), classes, strict=True))


def _in_parts(text: str) -> tuple[str, str]:
    """A cell and the interval in brackets at its end."""
    found = _INTERVAL.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


def _plain(text: object) -> str:
    """Text for Markdown on one line, in which no character of the data is markup."""
    flat = _MARKUP.sub(r"\\\g<0>", " ".join(str(text).split()))
    return _FIRST.sub(r"\g<1>\\\g<2>", flat.replace("&", "&amp;").replace("<", "&lt;"))


def _fenced(text: object) -> str:
    """Lines of Markdown that are shown verbatim, between fences longer than any in the text."""
    lines = str(text)
    longest = max((len(found) for found in re.findall("`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{lines}\n{fence}"


def _cell(value: object) -> str:
    """Format a cell: text unchanged, whole numbers whole, others with four significant digits."""
    if isinstance(value, str):
        return value
    if np.isnan(value):
        return "-"
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.1f}"


_TEMPLATES = templates_beside(
    "inference.report", autoescape=select_autoescape(["html.j2"]), keep_trailing_newline=True
)
_TEMPLATES.tests["of_kind"] = lambda block, kind: type(block).__name__ == kind
_TEMPLATES.filters |= {
    "base64": lambda png: base64.b64encode(png).decode("ascii"),
    "cells": _cells,
    "in_parts": _in_parts,
    "fenced": _fenced,
    "plain": _plain,
    "png_size": lambda png: struct.unpack(">II", png[16:24]),  # as a PNG file begins
    "sentences": sentences,
}
