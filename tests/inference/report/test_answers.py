"""What a page answers first: names in words, cards, a heat map, a time line; the terminal says the same."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference.diagnostics import profiles, summary_text
from inference.diagnostics.blocks import Cards, ShownTable
from inference.diagnostics.profile_tables import answer_blocks
from inference.diagnostics.suggested_names import (
    are_extreme,
    listed,
    name_of_cluster,
    name_of_latent,
    name_of_topic,
    with_namesakes,
)
from inference.fitting.verdict import verdict
from inference.report import report
from inference.report.answers import _dates_of, _time_line, answers_section
from inference.report.page import Picture
from inference.report.results import results_section
from tests.support import people_tables
from tests.support.html_page import Page
from tests.support.report_cases import finished, fitted


def row(column, difference, quantity="mean", mean=0.3, probability=1.0, is_extreme=False):
    return {
        "is_extreme": is_extreme,
        "column": column,
        "difference": difference,
        "quantity": quantity,
        "mean": mean,
        "probability": probability,
    }


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([row("age", 2.0), row("income", 1.0), row("visits", -0.9)], "high age and income, low visits"),
        ([row("age", 2.0), row("income", 0.6)], "high age"),  # less than a third of the largest
        ([row("age", 2.0), row("income", 1.5, probability=0.94)], "high age"),  # its sign is not sure
        ([row("age", -2.0, probability=np.nan)], "low age"),  # an estimate knows no probabilities
        ([row("age", 0.4)], "like all the others"),
        ([], "like all the others"),
        ([row("joined", 3.0, "mean, days since 2021-03-01"), row("age", -2.0)], "late joined, low age"),
        ([row("town", 2.0, "probability of Ulm", 0.8)], "mostly town: Ulm"),
        ([row("town", 2.0, "probability of Ulm", 0.4)], "more often town: Ulm"),
        ([row("town", -2.0, "probability of Ulm", 0.1)], "rarely town: Ulm"),
        (
            [row("town", -2.0, "probability of Ulm"), row("town", 1.9, "probability of Bonn")],
            "less often town: Ulm",
        ),
        ([row("tax", -2.0, "share of counts")], "rarely tax"),
        ([row("age", 2.0, is_extreme=True), row("income", 1.0)], "highest age, high income"),
        ([row("joined", -3.0, "mean, days since 2021-03-01", is_extreme=True)], "earliest joined"),
        ([row("town", 2.0, "probability of Ulm", 0.4, is_extreme=True)], "most often town: Ulm"),
        ([row("town", 2.0, "probability of Ulm", 0.8, is_extreme=True)], "mostly town: Ulm"),
    ],
)
def test_a_cluster_is_named_after_the_columns_that_set_it_apart(rows, name):
    assert name_of_cluster(rows) == name


def test_of_clusters_on_one_side_the_farthest_is_called_so():
    """Three columns: two high ones of which one is higher; two that are level; one that is high alone."""
    means = np.array([[0.0, 5.0, 5.0], [4.0, 5.2, 0.0], [9.0, 0.0, 0.1]])
    differences = np.array([[-6.0, 3.0, 5.0], [1.0, 3.0, -2.5], [7.0, -5.1, -2.4]])
    expected = [[False, False, False], [False, False, False], [True, False, False]]
    for sign in (1, -1):
        np.testing.assert_array_equal(are_extreme(sign * means[None], sign * differences), expected)
    unsure = np.stack([means] * 9 + [means[[0, 2, 1]]])  # in a tenth of the draws another is the farthest
    assert not are_extreme(unsure, differences).any()
    without = np.where(np.arange(3)[:, None] == 1, np.nan, means)  # the other one has rows in some draws
    np.testing.assert_array_equal(are_extreme(np.stack([means, without]), differences), expected)


def test_a_name_that_several_have_says_which():
    names = {0: "high age", 1: "low age", 4: "high age", 5: "like all the others", 6: "like all the others"}
    named = {0: "high age (like cluster 4)", 1: "low age", 4: "high age (like cluster 0)"}
    assert with_namesakes(names, "cluster") == names | named
    assert with_namesakes(dict.fromkeys(range(3), "a"), "topic")[1] == "a (like topic 0 and topic 2)"


def test_latents_and_topics_are_named_after_what_is_large_in_them():
    loadings, sure = np.array([0.1, -3.0, 2.0, 2.5, 1.5]), np.array([1.0, 1.0, 1.0, 0.9, np.nan])
    assert name_of_latent(list("abcde"), loadings, sure) == "c and e against b"
    assert name_of_latent(["a"], np.zeros(1), np.ones(1)) == "" and listed(["a", "b", "c"]) == "a, b and c"
    words = pd.DataFrame({"word": ["the", "loan", "bank"], "mean": [0.5, 0.2, 0.1], "lift": [1.0, 4.0, 9.0]})
    assert name_of_topic(words) == "loan, bank, the"  # .2 log 4 > .1 log 9 > 0


@pytest.fixture(scope="module")
def customers():
    return finished("customers")


@pytest.fixture(scope="module")
def plain(customers, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "fit.html"
    return report(customers, path, plain=True).read_text(encoding="utf-8")


def test_the_terminal_and_the_page_are_made_of_the_same_blocks(customers, plain):
    """Every name, share and cell of a card is on both; so is the sentence on what was found."""
    words = " ".join(re.sub("<[^>]*>", " ", plain).split()).lower()
    printed = " ".join(summary_text(customers, width=1000).split()).lower()
    tables = profiles(customers)
    cards = next(block for block in answer_blocks(customers, tables) if isinstance(block, Cards)).cards
    assert len(cards) == len(tables["clusters"]) == 3
    assert printed.split("good: ")[0].strip() in words or verdict(customers).word != "Good"
    for card in cards:
        assert card.name == tables["clusters"]["name"][int(card.heading.split()[1])]
        for text in (card.name.lower(), *(cell.lower() for cell in card.decisive.values())):
            assert text in printed and text in words


def test_a_plain_page_folds_what_a_statistician_reads_and_begins_with_a_picture(plain):
    page = Page(plain)
    page.assert_needs_no_other()
    assert page.headings[0] == "Answers" and plain.count("<details>") == len(page.headings) - 1 == 5
    answers = plain.split("<details>")[0]
    assert answers.index("<figure>") < answers.index('<div class="cards">') < answers.index('class="shaded"')
    assert re.search(r'class="use \w+">[A-Z][a-z ]+ these answers|class="use \w+">These answers can', plain)
    assert {*page.facts} == {"Data", "Date", "File"}


def test_markdown_folds_too_and_names_the_clusters(customers, tmp_path):
    text = report(customers, tmp_path / "fit.md", plain=True).read_text(encoding="utf-8")
    assert text.count("<details>") == text.count("</details>") == 5
    for name in profiles(customers)["clusters"]["name"]:
        assert f": {name}**" in text.replace("\\", "")


def test_cells_are_coloured_by_how_far_they_are_from_the_others(customers):
    """Counted again from the table: thirds of three standard deviations, orange above and blue below."""
    tables = profiles(customers)
    section, _ = answers_section(customers, tables, results_section(customers, tables))
    (heat,) = (block for block in section.blocks if isinstance(block, ShownTable))
    apart = tables["cluster_values"]["apart"]
    assert heat.shades.loc["age", "cluster 0"] == pytest.approx(np.clip(apart[0, "age", "mean"] / 3, -1, 1))
    assert heat.shades.to_numpy().max() == 1 and heat.shades.to_numpy().min() == -1
    assert all(cell.endswith("%)") for cell in heat.frame.loc["plan: basic"])


def test_a_table_that_the_answers_show_whole_in_colour_is_not_shown_again(customers):
    """Twelve of eighteen quantities are not the whole of it."""
    repeated = {
        "mixture": ["Typical values of each cluster"],
        "ppca": ["Loadings of the columns"],
        "customers": [],
    }
    for name, titles in repeated.items():
        tree = customers if name == "customers" else fitted(name)
        tables = profiles(tree)
        every = results_section(tree, tables)
        section, results = answers_section(tree, tables, every)
        shown, kept = (
            [block.caption for block in part.blocks if isinstance(block, ShownTable)]
            for part in (every, results)
        )
        assert [title for title in shown if title not in kept] == titles
        assert any(block.shades is not None for block in section.blocks if isinstance(block, ShownTable))


def test_a_time_line_stands_where_rows_have_dates(customers):
    """By a column of dates, the same days as in the table; else by labels that are dates."""
    name, when = _dates_of(customers)
    table, _ = people_tables.customers(150)
    assert name == "joined" and when.equals(pd.to_datetime(table["joined"]).astype(when.dtype).rename(None))
    assert _dates_of(fitted("mixture")) is None
    labels = pd.date_range("2024-01-01", periods=24).strftime("%Y-%m-%d").to_numpy()
    tree = fitted("lda").map_over_datasets(
        lambda group: (
            group.assign_coords(document=labels[: group.sizes["document"]])
            if "document" in group.coords
            else group
        )
    )
    tables = profiles(tree)
    section, _ = answers_section(tree, tables, results_section(tree, tables))
    pictures = [block.name for block in section.blocks if isinstance(block, Picture)]
    assert pictures == ["topics", "time-line"]
    long = _time_line(
        when, np.ones((len(when), 2)), ["cluster 0: high " + "expenditure, " * 8, "cluster 1: low"]
    )
    long.draw_without_rendering()
    assert long.get_figwidth() <= 4.5  # inches: letters of 9 points can be read on a phone
    assert all(axes.title.get_window_extent().x1 <= long.bbox.x1 for axes in long.axes)


def test_the_command_line_takes_plain(customers, tmp_path, monkeypatch, capsys):
    import inference
    from inference.cli import main

    monkeypatch.chdir(tmp_path)
    inference.save(customers, "fit.nc")
    assert main(["report", "fit.nc", "--plain"]) == 0
    assert "<details>" in Path("fit.html").read_text(encoding="utf-8")
    assert main(["report", "fit.nc", "--out", "full.html"]) == 0
    assert "<details>" not in Path("full.html").read_text(encoding="utf-8")
    inference.save(customers, "other.nc")
    assert main(["report", "fit.nc", "other.nc", "--plain"]) == 2
    assert "--plain is of the page of one fit; got 2" in capsys.readouterr().err
