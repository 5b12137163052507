"""A model's card as a page: one source, written as plain text for a terminal or as Markdown.

What is assumed comes from the model's docstrings and program (`zoo.model_card`), what a method costs from
`zoo.method_notes`, what came of the papers' claims from `zoo.paper_claims`, their misprints from
`zoo.paper_corrections`.
"""

import textwrap
from typing import NamedTuple

from zoo.method_notes import GENERIC, METHOD_NOTES
from zoo.model_card import ModelCard
from zoo.paper_claims import PAPER_CLAIMS
from zoo.paper_corrections import PAPER_CORRECTIONS

__all__ = ["CardSection", "as_markdown", "as_text", "card_sections"]

_WIDTH = 106


class CardSection(NamedTuple):
    """A titled part of a card.

    Attributes:
        title: its heading; empty for the first.
        text: its lines.
        is_code: whether the lines stand as they are, rather than as a list or a paragraph.
    """

    title: str
    text: str
    is_code: bool = True


def card_sections(card: ModelCard) -> list[CardSection]:
    """The parts of a card, in the order of reading.

    Args:
        card: a model's metadata.

    Returns:
        Sections: what is assumed, fields, shapes, symmetries, methods, papers' claims and misprints, program.
    """
    own = METHOD_NOTES.get(card.name, {})
    methods = [(name, *own.get(name, GENERIC.get(name, ("", "")))) for name in card.methods]
    fields = "\n".join(f"{name}: {declared}" for name, declared in card.fields.items())
    width = max(map(len, card.dims)) + 2
    sections = [
        CardSection("", card.module_docstring),
        CardSection("Fields", f"{fields}\n\n{card.class_docstring}"),
        CardSection("Shapes", "\n".join(f"{n:<{width}}({', '.join(d)})" for n, d in card.dims.items())),
        CardSection("Symmetries", ", ".join(card.symmetries) or "none", is_code=False),
        CardSection(
            "Methods",
            "\n".join(
                f"- {name}{' (auto)' if name == card.methods[0] else ''}: {when}. Cost: {cost}."
                for name, cost, when in methods
            ),
            is_code=False,
        ),
    ]
    if claims := PAPER_CLAIMS.get(card.name):
        lines = [
            f"- {c.paper} Here: {c.here}" + (f" [tests/reference/{c.record}]" if c.record else "")
            for c in claims
        ]
        sections.append(
            CardSection("What the papers claim, and what came out here", "\n".join(lines), is_code=False)
        )
    corrections = "\n".join(f"- {place}: {right}" for place, right in PAPER_CORRECTIONS.get(card.name, ()))
    if corrections:
        sections.append(CardSection("Corrections to the papers", corrections, is_code=False))
    sections.append(CardSection("Aliases", ", ".join(card.aliases) or "none", is_code=False))
    return [*sections, CardSection("Program", card.program)]


def as_text(card: ModelCard) -> str:
    """The card for a terminal.

    Args:
        card: a model's metadata.

    Returns:
        Lines of at most 110 characters, but for code.
    """
    parts = [f"{card.name}: {card.title}\n{card.paper}"]
    for section in card_sections(card):
        if section.is_code:
            body = section.text if not section.title else textwrap.indent(section.text, "    ")
        else:
            body = "\n".join(
                textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="      ")
                for line in section.text.splitlines()
            )
        parts.append(f"{section.title}\n\n{body}" if section.title else body)
    return "\n\n".join(parts)


def as_markdown(card: ModelCard) -> str:
    """The card as a page.

    Args:
        card: a model's metadata.

    Returns:
        Markdown: headings, lists, and code blocks for formulas, tables and the program.
    """
    parts = [f"# {card.name}: {card.title}", card.paper]
    for section in card_sections(card):
        language = "python" if section.title == "Program" else "text"
        body = f"```{language}\n{section.text}\n```" if section.is_code else section.text
        parts.append(f"## {section.title}\n\n{body}" if section.title else body)
    return "\n\n".join(parts) + "\n"
