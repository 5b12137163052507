"""Blocks of a page, and their rendering as text, Markdown or one self-contained HTML file."""

import base64
import html
import io
import re
import struct
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from inference.report.page_style import STYLE

__all__ = [
    "Code",
    "Paragraph",
    "Picture",
    "Section",
    "Table",
    "Verdict",
    "as_html",
    "as_markdown",
    "as_text",
    "to_png",
]

_WIDTH = 100
_WORDS = ' class="words"'
_VALUE = r"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|inf|nan)"
_NUMBER = re.compile(rf"{_VALUE}( ± {_VALUE})?|-")
_DPI = 130
_WIDE = 700  # pixels of a picture that would be too small to read if it were shrunk to a phone


class Paragraph(NamedTuple):
    """A paragraph of plain text.

    Attributes:
        text: the words.
    """

    text: str


class Verdict(NamedTuple):
    """A judgement with its reason and what to do next.

    Attributes:
        good: whether it is in favour; None: neither.
        text: the judgement.
        reason: why.
        advice: the next step.
    """

    good: bool | None
    text: str
    reason: str
    advice: str


class Code(NamedTuple):
    """Lines to be shown as they are.

    Attributes:
        text: the lines.
    """

    text: str


class Table(NamedTuple):
    """A table.

    Attributes:
        caption: what it shows.
        frame: the cells, as text or numbers; the index is the first column.
    """

    caption: str
    frame: pd.DataFrame


class Picture(NamedTuple):
    """A picture.

    Attributes:
        name: a word for its file name.
        caption: what it shows.
        alt: what a reader who cannot see it should know.
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
        blocks: what it shows, in order.
    """

    title: str
    blocks: Sequence[Paragraph | Verdict | Code | Table | Picture]


def to_png(figure: Figure) -> bytes:
    """The picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def as_text(title: str, sections: Sequence[Section], files: Mapping[str, str]) -> str:
    """The page as plain text; pictures are named by their files, ``files[picture.name]``."""
    lines = [title, "=" * len(title), ""]
    for section in sections:
        lines += [section.title, "-" * len(section.title), ""]
        for block in section.blocks:
            match block:
                case Paragraph(text):
                    lines.append(textwrap.fill(text, _WIDTH))
                case Verdict():
                    lines += [
                        textwrap.fill(sentence, _WIDTH, subsequent_indent="  ")
                        for sentence in _sentences(block)
                    ]
                case Code(text):
                    lines.append(textwrap.indent(text, "    "))
                case Table(caption, frame):
                    lines += [textwrap.fill(caption, _WIDTH), "", *_text_table(_cells(frame))]
                case Picture(name, caption, alt, _):
                    lines.append(textwrap.fill(f"[picture {files[name]}: {caption} {alt}]", _WIDTH))
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def as_markdown(title: str, sections: Sequence[Section], files: Mapping[str, str]) -> str:
    """The page as Markdown; pictures link to their files, ``files[picture.name]``."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            match block:
                case Paragraph(text):
                    lines.append(text)
                case Verdict():
                    verdict, *rest = _sentences(block)
                    lines.append(" ".join([f"**{verdict}**", *rest]))
                case Code(text):
                    lines.append(f"```\n{text}\n```")
                case Table(caption, frame):
                    cells = _cells(frame)
                    rows = [["", *cells.columns], ["---"] * (cells.shape[1] + 1)]
                    rows += [[index, *row] for index, row in zip(cells.index, cells.values, strict=True)]
                    lines += [caption, ""] + [
                        "| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows
                    ]
                case Picture(name, caption, alt, _):
                    lines += [f"![{alt}]({files[name]})", "", f"*{caption}*"]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def as_html(title: str, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    """The page as one HTML file that needs no other: ``pictures[picture.name]`` (PNG) become data URLs."""
    body = [f"<h1>{html.escape(title)}</h1>"]
    anchors = [(section.title, anchor) for section, anchor in zip(sections, _anchors(sections), strict=True)]
    links = " ".join(f'<a href="#{anchor}">{html.escape(text)}</a>' for text, anchor in anchors)
    body.append(f'<nav aria-label="sections">{links}</nav>')
    for section, (_, anchor) in zip(sections, anchors, strict=True):
        body.append(f'<section id="{anchor}"><h2>{html.escape(section.title)}</h2>')
        for block in section.blocks:
            match block:
                case Paragraph(text):
                    body.append(f"<p>{html.escape(text)}</p>")
                case Verdict(good=good):
                    verdict, *rest = (html.escape(sentence) for sentence in _sentences(block))
                    kind = {True: "good", False: "bad", None: "open"}[good]
                    body.append(f'<p class="verdict {kind}"><strong>{verdict}</strong> {" ".join(rest)}</p>')
                case Code(text):
                    body.append(f"<pre>{html.escape(text)}</pre>")
                case Table(caption, frame):
                    body.append(_html_table(caption, _cells(frame)))
                case Picture(name):
                    body.append(_html_picture(block, pictures[name]))
        body.append("</section>")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _html_picture(picture: Picture, png: bytes) -> str:
    width, height = struct.unpack(">II", png[16:24])  # as a PNG file begins
    data, alt = base64.b64encode(png).decode("ascii"), html.escape(picture.alt, quote=True)
    image = f'<img width="{width}" height="{height}" src="data:image/png;base64,{data}" alt="{alt}">'
    look = ' class="wide"' if width > _WIDE else ""
    return f"<figure{look}>{image}<figcaption>{html.escape(picture.caption)}</figcaption></figure>"


def _anchors(sections: Sequence[Section]) -> list[str]:
    """The first word of each title, numbered where several begin with it."""
    words = [section.title.split()[0].lower().strip(":,") for section in sections]
    return [
        f"{word}-{words[:place].count(word) + 1}" if words.count(word) > 1 else word
        for place, word in enumerate(words)
    ]


def _sentences(verdict: Verdict) -> list[str]:
    found = [verdict.text]
    found += [f"Why: {verdict.reason}"] if verdict.reason else []
    found += [f"Next: {verdict.advice}"] if verdict.advice else []
    return [sentence if sentence.endswith((".", "?", "!")) else f"{sentence}." for sentence in found]


def _cells(frame: pd.DataFrame) -> pd.DataFrame:
    """All cells as text: whole numbers whole, others with four significant digits."""
    return frame.map(_cell)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.1f}"


def _of_words(cells: pd.DataFrame) -> list[bool]:
    """For each column, whether its cells are words (and stand to the left) rather than numbers."""
    return [
        not all(_NUMBER.fullmatch(cell) or cell == "constant" for cell in cells[name])
        for name in cells.columns
    ]


def _text_table(cells: pd.DataFrame) -> list[str]:
    """Aligned lines: numbers to the right, words to the left; a last column of words is wrapped."""
    names = ["", *map(str, cells.columns)]
    rows = [[str(index), *row] for index, row in zip(cells.index, cells.values, strict=True)]
    left = [True, *_of_words(cells)]
    widths = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
    if left[-1]:
        widths[-1] = max(20, _WIDTH - sum(widths[:-1]) - 2 * len(widths))
    lines = []
    for row in [names, *rows]:
        *cut, last = row
        parts = textwrap.wrap(last, widths[-1]) or [""] if left[-1] else [last]
        for n, part in enumerate(parts):
            shown = [*(cut if n == 0 else [""] * len(cut)), part]
            padded = [
                c.ljust(w) if to_left else c.rjust(w)
                for c, w, to_left in zip(shown, widths, left, strict=True)
            ]
            lines.append("  " + "  ".join(padded).rstrip())
    return lines


def _html_table(caption: str, cells: pd.DataFrame) -> str:
    head = "".join(
        f'<th scope="col"{_WORDS if words else ""}>{html.escape(str(name))}</th>'
        for name, words in zip(["", *cells.columns], [True, *_of_words(cells)], strict=True)
    )
    rows = "".join(
        f'<tr><th scope="row">{html.escape(str(index))}</th>'
        + "".join(
            f"<td{_WORDS if words else ''}>{html.escape(cell)}</td>"
            for cell, words in zip(row, _of_words(cells), strict=True)
        )
        + "</tr>"
        for index, row in zip(cells.index, cells.values, strict=True)
    )
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
