"""The page can be read in light and dark, on a phone and on paper; its links, pictures and policy hold."""

import base64
import hashlib
import re
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import inference
import zoo
from inference.fitting.verdict import Judgement
from inference.report import report
from inference.report.page import Front, Paragraph, Picture, Section, ShownTable, as_html, to_png
from tests.support.html_page import Page

STYLE = files("inference.report").joinpath("page.css").read_text(encoding="utf-8")
ROWS = np.random.default_rng(0).normal(size=(20, 3))


def palette(block):
    """The colours that a block of the style sheet sets, by name."""
    return dict(re.findall(r"--(\w+): #(\w{6})", block))


def luminance(colour):
    """Relative luminance of a colour as the Web Content Accessibility Guidelines (2.1) define it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


LIGHT = palette(STYLE.split("@media")[0])
DARK = LIGHT | palette(STYLE.split("(prefers-color-scheme: dark)")[1].split("body")[0])


@pytest.mark.parametrize(
    ("good", "kind", "front", "below"),
    [
        (True, "good", "Good", "Good"),
        (False, "bad", "Problem", "Problem"),
        (None, "open", "Caution", "Note"),
    ],
)
def test_a_verdict_has_its_colour_and_its_word(good, kind, front, below):
    judgement = Judgement(good, "It is so", "a reason", "an advice")
    page = as_html(Front("A page", judgement, {}), [Section("Part", [judgement])], {})
    found = re.findall(r'class="verdict ([^"]*)">\s*<b class="mark">(\w+)</b>', page)
    assert found == [(f"front {kind}", front), (kind, below)]


@pytest.mark.parametrize("good", [True, False, None])
def test_reasons_of_what_is_good_are_folded_for_a_reader_who_decides(good):
    judgement = Judgement(good, "It is so", "a reason", "an advice")
    for plain in (False, True):
        page = as_html(Front("A page", judgement, {}, plain=plain), [Section("Part", [])], {})
        folded = re.findall(r"<details.*?</summary>(.*?)</details>", page, re.DOTALL)
        assert any("a reason" in words and "an advice" in words for words in folded) == bool(plain and good)
        assert page.count("a reason") == 1


def test_contrast_is_measured_as_the_guidelines_do():
    assert contrast("000000", "ffffff") == pytest.approx(21.0) and contrast("777777", "ffffff") < 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_and_marks_stand_out(colours):
    """The marks of verdicts are words in their colour, on the ground of a box."""
    for ground in ("paper", "box"):
        names = ("ink", "faint", "link", "good", "bad", "open")
        assert all(contrast(colours[name], colours[ground]) >= 4.5 for name in names)


def test_dark_is_dark_and_paper_is_white():
    assert luminance(LIGHT["paper"]) > 0.9 and luminance(DARK["paper"]) < 0.02
    printed = palette(STYLE.split("@media print")[1])
    assert printed["paper"] == "ffffff" and printed["ink"] == "000000"


def test_every_colour_that_is_used_is_set():
    assert set(re.findall(r"var\(--(\w+)\)", STYLE)) == set(LIGHT) == set(DARK)


def test_nothing_is_wider_than_a_phone():
    """Tables scroll within their box, pictures shrink, lines of code break; measured in tests/tools/pages."""
    assert "@media (max-width: 36rem)" in STYLE and "img { display: block; max-width: 100%" in STYLE
    assert "overflow-x: auto" in STYLE and "overflow-wrap: anywhere" in STYLE


@pytest.mark.parametrize(
    "model", [zoo.PPCA(num_latents=1), zoo.KernelPCA(num_latents=1, noise_variance=0.1)], ids=["ppca", "kpca"]
)
def test_links_lead_to_sections_and_pictures_have_words(model, tmp_path):
    tree = inference.fit(model, ROWS, method="closed_form")
    page = Page(report(tree, tmp_path / "fit.html").read_text(encoding="utf-8"))
    page.assert_needs_no_other()
    assert page.loose_tables == 0 and "width=device-width" in page.meta["viewport"]
    sections = ["answers", "results", "convergence", "predictive", "run", "model"]
    assert page.links == ["#answers", *(f"#{name}" for name in sections)]
    assert [name for name in page.targets if not name.startswith("table-")] == sections


def _page(*blocks, verdict=None):
    verdict = verdict or Judgement(True, "Good", "why", "next")
    front = Front("Title", verdict, {"Data": "rows"})
    pictures = {block.name: to_png(block.figure) for block in blocks if isinstance(block, Picture)}
    return as_html(front, [Section("One", blocks)], pictures)


def test_pictures_have_their_size():
    """So that nothing moves while the page loads."""
    text = _page(Picture("p", "caption", "alt", Figure(figsize=(4.0, 1.0))))
    assert '<figure><img width="520" height="130"' in text


def _hash(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_allows_one_script_and_one_style_by_their_hashes():
    """A page from hostile text has the same policy; one more script, or a changed one, is not allowed."""
    hostile = '</style><script>alert("x")</script><style>'
    text = _page(Paragraph(hostile), verdict=Judgement(False, hostile, hostile, hostile))
    policy = Page(text).meta["Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert dict(part.split(" ", 1) for part in policy.split("; ")) == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{_hash(style)}'",
        "script-src": f"'sha256-{_hash(script)}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script>")
    assert "style=" not in text.split("<body>")[1] and " on" + "click=" not in text


def test_decisive_columns_come_first_and_missing_numbers_are_dashes():
    frame = pd.DataFrame({"mean": [1.5, np.nan], "r_hat": ["1.300", "1.001"]}, ["a", "b"])
    text = _page(ShownTable("caption", frame, ("r_hat",)))
    heads = re.findall(r'<th scope="col" ?(?:class="(.*?)")?>(.*?)</th>', text)
    assert heads == [("words", "quantity"), ("decisive", "r_hat"), ("", "mean")]
    assert '<td class="decisive">1.300</td><td>1.5</td>' in text
    assert '<td class="decisive">1.001</td><td>-</td>' in text


def test_an_index_of_several_levels_heads_its_rows():
    index = pd.MultiIndex.from_tuples([(0, "a"), (1, "b")], names=["cluster", "column"])
    text = _page(ShownTable("caption", pd.DataFrame({"mean": [1.0, 2.0]}, index)))
    assert '<tr><th scope="row">0</th><th scope="row">a</th><td>1</td></tr>' in text
    assert re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text) == ["cluster", "column", "mean"]
