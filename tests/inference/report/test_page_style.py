"""The page can be read in light and dark, on a phone and on paper; its links and pictures hold."""

import re
from importlib.resources import files

import numpy as np
import pytest
from html_page import Page
from matplotlib.figure import Figure

import inference
import zoo
from inference.report import report
from inference.report.page import Picture, Section, as_html, to_png

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


def test_contrast_is_measured_as_the_guidelines_do():
    assert contrast("000000", "ffffff") == pytest.approx(21.0) and contrast("777777", "ffffff") < 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_and_marks_stand_out(colours):
    for ground in ("paper", "box"):
        assert all(contrast(colours[name], colours[ground]) >= 4.5 for name in ("ink", "faint", "link"))
        assert all(contrast(colours[name], colours[ground]) >= 3.0 for name in ("good", "bad", "open"))


def test_dark_is_dark_and_paper_is_white():
    assert luminance(LIGHT["paper"]) > 0.9 and luminance(DARK["paper"]) < 0.02
    printed = palette(STYLE.split("@media print")[1])
    assert printed["paper"] == "ffffff" and printed["ink"] == "000000"


def test_every_colour_that_is_used_is_set():
    assert set(re.findall(r"var\(--(\w+)\)", STYLE)) == set(LIGHT) == set(DARK)


def test_nothing_is_wider_than_a_phone():
    """Tables and wide pictures scroll within their box, other pictures shrink, lines of code break."""
    assert "@media (max-width: 36rem)" in STYLE and "img { max-width: 100%" in STYLE
    phone = STYLE.split("@media (max-width: 36rem)")[1].split("@media")[0]
    assert "figure { overflow-x: auto" in phone and ".wide img { max-width: 34rem" in phone
    assert ".scroll { overflow-x: auto" in STYLE and "overflow-wrap: anywhere" in STYLE


@pytest.mark.parametrize(
    "model", [zoo.PPCA(num_latents=1), zoo.KernelPCA(num_latents=1, noise_variance=0.1)], ids=["ppca", "kpca"]
)
def test_links_lead_to_sections_and_pictures_have_words(model, tmp_path):
    tree = inference.fit(model, ROWS, method="closed_form")
    page = Page(report(tree, tmp_path / "fit.html").read_text(encoding="utf-8"))
    page.assert_needs_no_other()
    assert page.loose_tables == 0 and "width=device-width" in page.meta["viewport"]
    assert page.links == [f"#{name}" for name in page.targets] and len(page.targets) == 5


def test_pictures_have_their_size_and_wide_ones_are_marked():
    """So that nothing moves while the page loads, and a phone scrolls a picture instead of shrinking it."""
    figures = {size: Figure(figsize=(size, 1.0)) for size in (4.0, 8.0)}
    blocks = [Picture(f"p{size:.0f}", "caption", "alt", figure) for size, figure in figures.items()]
    text = as_html("Title", [Section("One", blocks)], {b.name: to_png(b.figure) for b in blocks})
    assert '<figure><img width="520" height="130"' in text
    assert '<figure class="wide"><img width="1040" height="130"' in text
