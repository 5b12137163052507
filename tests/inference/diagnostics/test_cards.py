"""Cards of fits and models in notebooks: the verdict first, nothing unescaped, other trees as before."""

import html
import importlib

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from IPython.core.interactiveshell import InteractiveShell

import inference
import zoo
from inference.diagnostics import profiles
from inference.diagnostics.blocks import Cards
from inference.diagnostics.first_screen import found_in_words
from inference.diagnostics.notebook_cards import _COLOURS, card, html_of_tree
from inference.diagnostics.profile_tables import answer_blocks
from inference.fitting.verdict import sentences, verdict
from tests.support.planted import planted_regression, planted_zoo
from tests.support.report_cases import fitted


@pytest.mark.cases_by_default(2)
@pytest.mark.parametrize("name", ["ppca", "lda", "mixture", "kernelpca", "pcp", "depcam", "epca", "paired"])
def test_a_card_says_what_the_first_screen_says(name):
    """What was found and the verdict before the table, whose cells are the model and each answer."""
    tree = fitted(name)
    page = html.unescape(card(tree))
    above, facts = page.split("<table")
    tables = profiles(tree)
    for said in (found_in_words(tree, tables), f"{verdict(tree).word}: {sentences(verdict(tree))[0]}"):
        assert said in above
    assert f">{type(inference.model_of(tree)).__name__}</td>" in facts
    blocks = [block for block in answer_blocks(tree, tables) if isinstance(block, Cards)]
    assert blocks
    for own in (own for block in blocks for own in block.cards[:8]):
        assert f">{own.heading}</th>" in facts and own.shown in facts and own.name in facts


def test_chains_that_disagree_are_told_apart_from_chains_that_agree():
    with planted_zoo():
        good, bad = (card(planted_regression(num_draws=500, shift=shift)) for shift in (0.0, 2.0))
    assert "agree" in good and _COLOURS[True] in good
    assert "not converged" in bad and _COLOURS[False] in bad


@pytest.mark.filterwarnings("ignore:plsi by em has not converged")
def test_names_from_the_data_are_escaped():
    counts = pd.DataFrame(np.eye(6, dtype=int) * 5 + 1, columns=["<b>", "a", "b", "c", "d", "e"])
    tree = inference.fit(zoo.PLSI(num_topics=1), counts, method="em", max_iterations=2, progress=False)
    assert "<b>" not in card(tree).replace("<br>", "")


@pytest.fixture
def shell():
    """A running IPython, of which no later test is to know."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_shows_fits_as_cards_and_other_trees_as_before(shell, monkeypatch):
    importlib.reload(inference)
    show = shell.display_formatter.formatters["text/html"]
    monkeypatch.setattr(show, "enabled", True)
    tree = fitted("ppca")
    assert show(tree).startswith(card(tree)) and html_of_tree(tree)[:900] == show(tree)[:900]
    assert "Solved directly" in show(tree) and "<summary>groups of the tree</summary>" in show(tree)
    other = xr.DataTree(xr.Dataset({"a": 1}))
    assert "Solved" not in show(other) and show(other).count("xr-wrap") == other._repr_html_().count(
        "xr-wrap"
    )


def test_a_model_shows_its_fields_before_and_after_it_has_seen_data():
    bare, filled = zoo.PPCA(num_latents=2), inference.model_of(fitted("ppca"))
    assert "read off the data" in bare._repr_html_() and "<strong>PPCA</strong>" in bare._repr_html_()
    for name in ("num_latents", "methods", "unchanged under", "prior"):
        assert name in filled._repr_html_()
