"""Conversion of docstrings in reStructuredText to text for a terminal or to Markdown.

The part of reStructuredText that the models' docstrings use: paragraphs, lists with bullets, literal blocks
after two colons, examples, simple tables, roles, literals and mathematics. No library does it, since
``zoo show`` runs on a bare Python; docutils writes neither text for a terminal nor Markdown.
"""

import html
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

_INDENT = "    "
_HARD_SPACE = "\xa0"
_UNBROKEN = 30  # longest code or formula that stays on one line of a paragraph
_BORDER = re.compile(r"=+( +=+)+ *")
_BULLET = re.compile(r"[*-] ")
_GAP = re.compile(r"(?<=\S)\s{2,}(?=\S)")
_INLINE = re.compile(
    r":math:`(?P<math>[^`]+)`|(?::[a-z:]+:)?(?P<ticks>``?)(?P<code>.+?)(?P=ticks)|\*\*(?P<strong>.+?)\*\*",
    re.DOTALL,
)


class Paragraph(NamedTuple):
    """Running text.

    Attributes:
        text: with inline markup.
    """

    text: str


class Bullets(NamedTuple):
    """A list with bullets.

    Attributes:
        items: their texts, with inline markup; a line break stays one.
    """

    items: tuple[str, ...]


class Code(NamedTuple):
    """Code, whose lines are kept.

    Attributes:
        text: the lines.
        language: for Markdown.
        wrapped: whether lines longer than a terminal may be broken.
    """

    text: str
    language: str = "text"
    wrapped: bool = True


class Grid(NamedTuple):
    """A table with a header.

    Attributes:
        header: names of the columns.
        rows: cells with inline markup, as many as there are columns.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Paragraph | Bullets | Code | Grid


def parse(docstring: str) -> list[Block]:
    """Parse a docstring into blocks."""
    blocks: list[Block] = []
    chunks = [chunk for chunk in re.split(r"\n\s*\n", docstring.strip("\n")) if chunk.strip()]
    literal = False  # whether an indented chunk is a literal block
    for chunk in chunks:
        lines = chunk.splitlines()
        if literal and lines[0].startswith(" "):
            _append_code(blocks, textwrap.dedent(chunk))
            continue
        literal = chunk.rstrip().endswith("::")
        if _BORDER.fullmatch(lines[0]):
            blocks.append(_table(lines))
        elif _BULLET.match(lines[0]):
            items = re.split(r"^[*-] ", chunk, flags=re.MULTILINE)[1:]
            blocks.append(Bullets(tuple(_joined(item) for item in items)))
        elif lines[0].lstrip().startswith(">>> "):
            blocks.append(Code(textwrap.dedent(chunk), "python", wrapped=False))
        elif text := _joined(chunk).removesuffix("::").rstrip():
            blocks.append(Paragraph(f"{text}:" if literal else text))
    return blocks


def _append_code(blocks: list[Block], text: str) -> None:
    """Append a literal block, which may continue after an empty line."""
    if blocks and isinstance(last := blocks[-1], Code):
        blocks.pop()
        text = f"{last.text}\n\n{text}"
    blocks.append(Code(text))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _table(lines: Sequence[str]) -> Grid:
    """Parse a simple table with columns as in its border; the last one may continue in the next line."""
    starts = [found.start() for found in re.finditer("=+", lines[0])]
    spans = list(zip(starts, [*starts[1:], None], strict=True))
    rows: list[tuple[str, ...]] = []
    for line in lines:
        cells = tuple(line[start:end].strip() for start, end in spans)
        if _BORDER.fullmatch(line):
            continue
        if any(cells[:-1]):
            rows.append(cells)
        else:
            rows[-1] = (*rows[-1][:-1], f"{rows[-1][-1]} {cells[-1]}")
    return Grid(rows[0], tuple(rows[1:]))


def _replaced(
    text: str,
    math: Callable[[str], str],
    code: Callable[[str], str],
    strong: Callable[[str], str],
    other: Callable[[str], str],
) -> str:
    """Rewrite each kind of inline markup and the text between."""
    writers = {"math": math, "code": code, "strong": strong}
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts.append(other(text[end : found.start()]))
        parts += [write(found[kind]) for kind, write in writers.items() if found[kind]]
        end = found.end()
    return "".join([*parts, other(text[end:])])


def plain_math(formula: str) -> str:
    r"""Convert a LaTeX formula to plain text.

    Example:
        >>> plain_math(r"\lambda_j \le m s^{2}")
        'lambda_j <= m s^2'
    """
    formula = re.sub(r"\\(mathrm|mathbf|text|operatorname)\{([^{}]*)\}", r"\2", formula)
    formula = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)", formula)
    formula = re.sub(r"([_^])\{(\w+)\}", r"\1\2", formula)
    formula = re.sub(r"(?<!\\)([_^])\{([^{}]*)\}", r"\1(\2)", formula)
    for name, sign in {"le": "<=", "ge": ">=", "sim": "~", "times": "x", "cdot": "*", "top": "'"}.items():
        formula = re.sub(rf"\\{name}\b", sign, formula)
    return re.sub(r"\\([a-zA-Z]+|[{}|,;])", r"\1", formula)


def _plain(text: str) -> str:
    """Remove the markup; short code and formulas are not broken across lines."""

    def whole(part: str) -> str:
        return part.replace(" ", _HARD_SPACE) if len(part) <= _UNBROKEN else part

    return _replaced(text, lambda math: whole(plain_math(math)), whole, str, str)


def _marked(text: str) -> str:
    def escaped(part: str) -> str:
        return re.sub(r"([*\\]|<(?=[\w/!]))", r"\\\1", part)

    return _replaced(text, "${}$".format, "`{}`".format, "**{}**".format, escaped)


def as_text(blocks: Sequence[Block], width: int, indent: str = "") -> str:
    """Format blocks for a terminal."""
    return "\n\n".join(_block_as_text(block, width, indent) for block in blocks)


def _block_as_text(block: Block, width: int, indent: str) -> str:
    if isinstance(block, Paragraph):
        return _filled(_plain(block.text), width, indent)
    if isinstance(block, Bullets):
        return "\n".join(
            _filled(_plain(line), width, indent + ("  " if number else "- "), f"{indent}  ")
            for item in block.items
            for number, line in enumerate(item.splitlines())
        )
    indent = indent or _INDENT
    if isinstance(block, Grid):
        return textwrap.indent(_table_as_text(block, width - len(indent)), indent)
    lines = block.text.splitlines()
    if block.wrapped:
        lines = [part for line in lines for part in _broken(line, width - len(indent))]
    return textwrap.indent("\n".join(lines), indent)


def _filled(text: str, width: int, first: str, rest: str | None = None) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_HARD_SPACE, " ")


def _broken(line: str, width: int) -> list[str]:
    """Break a line of formulas that is too long at its last wide gap, else between words."""
    if len(line) <= width:
        return [line]
    gaps = list(_GAP.finditer(line))
    start = len(line) - len(line.lstrip()) + 1  # inside the bracket that such a line opens
    hanging = " " * (gaps[0].end() if gaps and gaps[0].end() < width // 3 else max(start, 4))
    for gap in reversed(gaps[1:]):
        rest = hanging + _INDENT + line[gap.end() :]
        if gap.start() <= width and len(rest) <= width:
            return [line[: gap.start()], rest]
    return textwrap.wrap(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def _table_as_text(table: Grid, width: int) -> str:
    """Format a table with aligned columns, the last one wrapped."""
    rows = [[_plain(cell).replace(_HARD_SPACE, " ") for cell in row] for row in [table.header, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    last = max(20, min(widths[-1], width - before))
    lines = []
    for row in rows:
        start = "".join(f"{cell:<{size + 2}}" for cell, size in zip(row[:-1], widths[:-1], strict=True))
        lines.append(_filled(row[-1], before + last, start, " " * before).rstrip() or start.rstrip())
    rule = "  ".join("-" * size for size in [*widths[:-1], last])
    return "\n".join([lines[0], rule, *lines[1:]])


def facts_as_html(facts: Mapping[str, str]) -> str:
    """Format names and what is said of them as an HTML table, for notebooks."""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;padding-right:1em">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in facts.items()
    )
    return f'<table style="border:0;margin:.3em 0">{cells}</table>'


def as_markdown(blocks: Sequence[Block]) -> str:
    """Format blocks as Markdown."""
    return "\n\n".join(map(_block_as_markdown, blocks))


def _block_as_markdown(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _marked(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_marked(item)}".replace("\n", "  \n  ") for item in block.items)
    if isinstance(block, Code):
        return f"```{block.language}\n{block.text}\n```"
    rows = [" | ".join(_marked(cell).replace("|", r"\|") for cell in row) for row in block.rows]
    head = " | ".join(map(_marked, block.header))
    return "\n".join(f"| {row} |" for row in [head, " | ".join("---" for _ in block.header), *rows])
