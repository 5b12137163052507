"""The page on algorithms that are wrong as printed: each section runs, and each is linked from a card."""

import re
from pathlib import Path

import pytest

import zoo
from zoo.cards import read_card, read_notes
from zoo.cards.page import card_as_text

PAGE = Path(__file__).parents[1] / "notebooks" / "guide" / "printed.md"
CELL = re.compile(r"```\{code-cell\} python\n(.*?)```", re.DOTALL)
INTRODUCTION, *SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
TITLES = {section.partition("\n")[0]: section for section in SECTIONS}
SLOW = {
    "PCP's mean-field updates lose all clusters from random starts",
    "The joint prior at beta = 1 has no integral",
    "The last stick must not be free",
}


def run(text, names):
    """The cells of a text, executed one after another."""
    for cell in CELL.findall(text):
        exec(compile(cell, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=pytest.mark.slow if title in SLOW else ()) for title in TITLES]
)
def test_the_printed_form_is_wrong_and_ours_is_not(title):
    """Its cells assert that the printed form fails the test by far, and that the right one passes."""
    cells = "".join(CELL.findall(TITLES[title]))
    assert "assert " in cells and "**The test**" in TITLES[title]
    run(TITLES[title], run(INTRODUCTION, {"__name__": "printed"}))


def test_each_section_is_linked_from_a_card_and_each_link_has_a_section():
    notes = {name: read_notes(read_card(name)) for name in zoo.MODELS}
    shown = {own.shown: name for name, n in notes.items() for own in n.corrections + n.remarks if own.shown}
    assert set(shown) == set(TITLES) and len(TITLES) == 5
    for title, name in shown.items():
        text = " ".join(card_as_text(read_card(name)).split())
        assert f"[notebooks/guide/printed.md, {title!r}]" in text
