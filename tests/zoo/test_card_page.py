"""A model's card: every method has its cost and its use, every figure a place where it was measured."""

import re
from pathlib import Path

import pytest

from zoo import MODELS
from zoo.card_page import as_markdown, as_text, card_sections
from zoo.cli import main
from zoo.method_notes import GENERIC, METHOD_NOTES
from zoo.model_card import read_card
from zoo.paper_claims import PAPER_CLAIMS
from zoo.paper_corrections import PAPER_CORRECTIONS

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.parametrize("name", MODELS)
def test_every_method_says_what_it_costs_and_when_to_use_it(name):
    card = read_card(name)
    own = METHOD_NOTES[name]
    assert set(own) <= set(card.methods) and set(card.methods) <= set(own) | set(GENERIC)
    assert all(cost and when for cost, when in own.values())


@pytest.mark.parametrize("name", MODELS)
def test_text_and_page_say_the_same_and_all_of_it(name):
    card = read_card(name)
    text, page = as_text(card), as_markdown(card)
    titles = [section.title for section in card_sections(card) if section.title]
    assert [line for line in text.splitlines() if line in titles] == titles
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == titles
    assert {"Fields", "Shapes", "Symmetries", "Methods", "Program"} <= set(titles)

    def words(some):
        return re.sub(r"^```.*$|[#\s]", "", some, flags=re.MULTILINE)

    assert words(text) == words(page)
    assert "~" in card.module_docstring and "Symmetr" in card.module_docstring
    for line in text.split("Program")[0].splitlines():
        assert len(line) <= 114, line


PAGES = ("tests/reference/README.md", "CHANGELOG.md")


def test_figures_of_claims_stand_where_measurements_are():
    known = "".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
    for model, claims in PAPER_CLAIMS.items():
        for claim in claims:
            record = ROOT / "tests" / "reference" / claim.record
            assert not claim.record or record.is_file(), claim.record
            figures = NUMBER.findall(claim.here)
            assert all(figure in known for figure in figures), (model, figures)
            assert claim.here.endswith(".")


PLACE = re.compile(
    r"^(Yu \(2006\)|Yu et al\. \(2006\)|Virtanen \(2010\)|Qiao et al\.|Lecture)[^:]*, .*"
    r"(\(\d+(\.\d+)?\)|[Ss]ections? [\dI]|Table|Figure|Algorithm|Theorem|chapter \d|gradient|terms|"
    r"components|rotations|Q_|Kullback|<log)"
)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_says_what_is_wrong_in_its_papers_and_where(name):
    corrections = PAPER_CORRECTIONS[name]
    assert corrections and all(PLACE.search(place) for place, _ in corrections), corrections
    assert all(right.endswith(".") and len(right) > 20 for _, right in corrections)
    assert PAPER_CLAIMS[name]
    text = " ".join(as_text(read_card(name)).split())
    assert "Corrections to the papers" in text and all(right in text for _, right in corrections)
    assert set(PAPER_CORRECTIONS) == set(MODELS)


def test_a_page_is_written(tmp_path, capsys):
    assert main(["show", "s2ppca", "--out", str(tmp_path / "sppca.md")]) == 0
    assert (tmp_path / "sppca.md").read_text().startswith("# sppca: Supervised")
    assert main(["show", "s2ppca", "--out", str(tmp_path / "sppca.pdf")]) == 2
    assert "ending in .md" in capsys.readouterr().err
