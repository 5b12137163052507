"""A model's card as a list of sections, formatted as text for a terminal or as Markdown."""

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from zoo.cards import Card, markup, read_notes
from zoo.cards.markup import Block, Bullets, Code, Grid, Paragraph

_AUTO = '``method="auto"`` is the first of these that suits the model and its data.'
_COMMAND_WIDTH = 70
_PRINTED = "notebooks/guide/printed.md"
_CHECKS = "tests/test_corrections.py"
_HEADER = re.compile(r"^(Attributes|Examples?):\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+): ", re.MULTILINE)


class CardSection(NamedTuple):
    """A titled part of a card.

    Attributes:
        title: its heading; empty for the first.
        blocks: its text.
    """

    title: str
    blocks: Sequence[Block]


def card_sections(card: Card) -> list[CardSection]:
    """The sections of a card, in order.

    Returns:
        Sections: assumptions, usage, fields, shapes, symmetries, methods, the papers' claims and
        misprints, aliases, program.
    """
    notes = read_notes(card)
    usage = [
        Code(f"import inference, zoo\n{notes.usage.python}", "python", wrapped=False),
        Code(_command(notes.usage.command), "bash", wrapped=False),
    ] * bool(notes.usage.python)
    dims = tuple((f"``{name}``", f"({', '.join(names)})") for name, names in card.dims.items())
    methods = [
        f"``{name}``" + (f": {note.when}. Cost: {note.cost}." if note.when else "")
        for name, note in notes.methods.items()
    ]
    claims = [
        f"{claim.paper}\nHere: {claim.here}" + (f" [tests/reference/{claim.record}]" if claim.record else "")
        for claim in notes.claims
    ]
    corrections, remarks = (
        [
            f"{own.place}: {own.right}"
            + (f" [{_PRINTED}, {own.shown!r}]" if own.shown else "")
            + (f" [{_CHECKS}, {own.check!r}]" if own.check else "")
            for own in kind
        ]
        for kind in (notes.corrections, notes.remarks)
    )
    sections = [
        CardSection("", markup.parse(card.module_docstring)),
        CardSection("Usage", usage),
        CardSection("Fields", _fields(card)),
        CardSection("Shapes", [Grid(("variable", "dims"), dims)]),
        CardSection("Symmetries", [Paragraph(", ".join(card.symmetries) or "none")]),
        CardSection("Methods", [Paragraph(_AUTO), Bullets(tuple(methods)), Paragraph(notes.symbols)]),
        CardSection("Claims of the papers and results here", [Bullets(tuple(claims))]),
        CardSection("Corrections to the papers", [Bullets(tuple(corrections))]),
        CardSection("Remarks on the papers", [Bullets(tuple(remarks))]),
        CardSection("Aliases", [Paragraph(", ".join(card.aliases) or "none")]),
        CardSection("Program", [Code(card.program, "python", wrapped=False)]),
    ]
    return [section for section in sections if section.blocks and section.blocks != [Bullets(())]]


def _command(line: str) -> str:
    """Break a long command line before its options."""
    lines = [""]
    for part in re.split(r" (?=--)", line):
        if lines[-1] and len(lines[-1]) + len(part) > _COMMAND_WIDTH:
            lines.append("   ")
        lines[-1] += f" {part}"
    return " \\\n".join(lines).strip()


def _fields(card: Card) -> list[Block]:
    """The class docstring without its example, each attribute with the declaration of the field."""
    before, attributes, *_ = _HEADER.split(f"{card.class_docstring}\n\nExample:\n")[:5:2]
    entries = _ENTRY.split(textwrap.dedent(attributes))[1:]
    told = dict(zip(entries[::2], entries[1::2], strict=True)) or dict.fromkeys(card.fields, "")
    items = [
        f"``{name}: {card.fields[name]}``\n{' '.join(meaning.split())}".strip()
        for name, meaning in told.items()
    ]
    return [*markup.parse(before), Bullets(tuple(items))]


def card_as_text(card: Card, width: int = 100) -> str:
    """Format a card for a terminal."""
    heading = (f"{card.name}: {card.title}", card.paper)
    parts = ["\n".join(markup.as_text([Paragraph(line)], width) for line in heading)]
    for section in card_sections(card):
        body = markup.as_text(section.blocks, width, "    " if section.title else "")
        parts.append(f"{section.title}\n\n{body}" if section.title else body)
    return "\n\n".join(parts)


def card_as_markdown(card: Card) -> str:
    """Format a card as a Markdown page."""
    parts = [f"# {card.name}: {card.title}", card.paper]
    for section in card_sections(card):
        body = markup.as_markdown(section.blocks)
        parts.append(f"## {section.title}\n\n{body}" if section.title else body)
    return "\n\n".join(parts) + "\n"
